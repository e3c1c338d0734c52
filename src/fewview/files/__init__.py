"""What is in a file? Readers and writers of every format; nothing is ever executed.

A reader gives named blocks of numbers with their keys, columns and labels; which samples these are
is the next room's question: `MultiViewData.read` and `.write` are the way in. Foreign binary
formats are read in a guarded process of their own.
"""

from fewview.files._formats import FORMATS
from fewview.files._guarded import kept_reader
from fewview.files._npz import npz_keys, read_npz_column

__all__ = ["FORMATS", "kept_reader", "npz_keys", "read_npz_column"]
