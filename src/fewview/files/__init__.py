"""What is in a file? Readers and writers of every format; nothing is ever executed.

A reader gives named blocks of numbers with their keys, columns and labels; which samples these are
is the next room's question: `MultiViewData.read` and `.write` are the way in. Names are loaded on
first use, so that samples which never saw a file do not load the formats.
"""

from typing import TYPE_CHECKING

from fewview.ground._lazy import lazily

if TYPE_CHECKING:
    from fewview.files._formats import FORMATS as FORMATS
    from fewview.files._guarded import kept_reader as kept_reader
    from fewview.files._npz import npz_keys as npz_keys
    from fewview.files._npz import read_npz_column as read_npz_column

_HOMES = {
    "FORMATS": "fewview.files._formats",
    "kept_reader": "fewview.files._guarded",
    "npz_keys": "fewview.files._npz",
    "read_npz_column": "fewview.files._npz",
}
__all__ = [*_HOMES]  # noqa: PLE0604 - plain text, all of it
__getattr__ = lazily(__name__, _HOMES)
