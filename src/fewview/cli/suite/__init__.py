"""`fewview suite`: the frozen suite, a folder of its own since it has commands of its own."""
