"""What is learnt on base classes that play new ones: rejecting, known beside new classes, sets."""
