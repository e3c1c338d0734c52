"""Is this installation sound? `fewview doctor`, what it tries, and the digits it compares with."""
