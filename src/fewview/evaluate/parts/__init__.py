"""Tables larger than memory: pieces of rows, who works on them, what becomes of them."""
