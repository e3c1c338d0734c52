"""What is in a file? Readers and writers of every format; nothing is ever executed.

A reader gives named blocks of numbers with their keys, columns and labels; which samples these are
is the next room's question. Foreign binary formats are read in a guarded process of their own.
"""
