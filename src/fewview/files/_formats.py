"""The front of all file formats: reading and writing `Contents`.

Formats live in modules of their own and join in the two small registries below; what they look like
is written in `docs/formats.md`. Whatever is wrong with a file comes out as a `FewviewError`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fewview.errors import FewviewError
from fewview.files._annotated import read_h5ad, read_h5mu, write_h5ad, write_h5mu
from fewview.files._file_contents import Contents, Tables
from fewview.files._folders import EXPORT, is_sheet, read_folder, write_folder
from fewview.files._matlab import read_matlab, write_matlab
from fewview.files._npz import read_npz, write_npz
from fewview.files._tables import TABLES, TEXTS, ending, is_unread, why_unread

SUPPORTED = (
    ".npz, .mat, .h5mu and .h5ad files, and folders with one .csv, .tsv, .parquet or .npy file per "
    "view"
)
_READERS: dict[str, Callable[[Path, str | None], Contents]] = {
    ".npz": read_npz,
    ".mat": read_matlab,
    ".h5mu": read_h5mu,
    ".h5ad": read_h5ad,
}
_WRITERS: dict[str, Callable[[Contents, Path], None]] = {
    "npz": write_npz,
    "mat": write_matlab,
    "h5mu": write_h5mu,
    "h5ad": write_h5ad,
    "csv": lambda contents, path: write_folder(contents, path, ".csv"),
    "parquet": lambda contents, path: write_folder(contents, path, ".parquet"),
    "npy": lambda contents, path: write_folder(contents, path, ".npy"),
}
FORMATS = tuple(_WRITERS)


def read_contents(
    path: Path, labels: str | None = None, key: str | None = None
) -> Contents | Tables:
    """Read a file, or a folder of tables; `MultiViewData.read` puts its name into messages."""
    suffix = ending(path)
    if path.is_dir() or (path.is_file() and suffix in TABLES and suffix != ".npy"):
        return read_folder(path, labels, key)
    if not path.exists():
        raise FewviewError("no such file or folder; check the path")
    if not path.is_file():
        raise FewviewError("is neither a file nor a folder")
    if suffix in _READERS and key is not None:
        raise FewviewError(f"--key {key} (key= in Python) is for folders of tables; leave it out")
    if suffix in _READERS:
        return _READERS[suffix](path, labels)
    if suffix in TABLES:
        raise FewviewError("an array has no ids; give the folder that holds it, with ids.csv")
    if is_unread(path):
        raise FewviewError(why_unread(path))
    if is_sheet(path):
        raise FewviewError(f"is a spreadsheet; {EXPORT}")
    raise FewviewError(_unsupported(suffix))


def write_contents(contents: Contents, path: Path, format: str | None = None) -> None:
    """Write a file, or a new folder of tables; `MultiViewData.write` names it in messages."""
    suffix = path.suffix.lower()
    if format is None:
        if suffix in TABLES:
            raise FewviewError(
                f"name a folder and give format={('csv' if suffix in TEXTS else suffix[1:])!r}; it "
                "gets a table per view"
            )
        if suffix and suffix not in _READERS:
            raise FewviewError(_unsupported(suffix))
        format = suffix[1:] or "csv"
    if format not in _WRITERS:
        raise FewviewError(f"unknown format {format!r}; the formats are {', '.join(_WRITERS)}")
    if f".{format}" in _READERS and suffix != f".{format}":
        raise FewviewError(f"the name must end in .{format} for this format")
    _WRITERS[format](contents, path)


def _unsupported(suffix: str) -> str:
    return f"files ending in {suffix!r} are not supported; supported are {SUPPORTED}"
