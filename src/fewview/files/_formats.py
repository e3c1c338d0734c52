"""Samples on disk: the front of all file formats, `read` and `write`.

Formats live in rooms of their own (`npz.py`, `folders.py` and `tables.py`, `matlab.py`,
`anndata.py`) and join in two small registries below. Whatever is wrong with a file comes out as a
`FewviewError` that names it, nothing is ever unpickled or executed, and inputs are never changed.
Foreign binary formats (MATLAB, HDF5, parquet) are read in a process of their own, under limits.

**`.npz`**: `view_<name>` arrays [samples, width] with NaN rows where a view is missing; optional
`y`, `ids`, `columns_<name>`, and any further per-row arrays such as `split`
(`read_npz_column`). `y` without `classes` holds the labels themselves. With `classes`, an integer
`y` holds positions in it and -1 for unlabelled samples; this is what `write` makes of all labels
but plain integers.

**Folder**: `<view>.csv`, `<view>.parquet` (a column `id`, the others are features; a sample that
lacks the view has no row) or `<view>.npy` (NaN rows where missing, rows in the order of `ids.csv`);
`labels.csv` or `labels.parquet` with columns `id` and `label`; optionally `ids.csv` or
`ids.parquet` with the samples in order. `write` adds `fewview.json`, which keeps what tables cannot
say (order of views, kinds of ids and labels, number types), so that reading gives back exactly what
was written. Without it, ids and labels in csv files are integers where all of them are written like
one, else text; empty cells, NA and NaN are missing; numbers are float32 where that loses nothing,
else float64.

**`.mat`**: MATLAB v4 to v7.3, see `matlab.py`. **`.h5ad`**, **`.h5mu`**: see `anndata.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike
from pathlib import Path

from fewview.files._annotated import read_h5ad, read_h5mu, write_h5ad, write_h5mu
from fewview.files._folders import read_folder, write_folder
from fewview.files._limits import naming
from fewview.files._matlab import read_matlab, write_matlab
from fewview.files._npz import npz_keys, read_npz, read_npz_column, write_npz
from fewview.files._tables import TABLES
from fewview.ground._errors import FewviewError
from fewview.samples._data import PARTIAL_ROWS, MultiViewData, PartialRows

__all__ = ["FORMATS", "npz_keys", "read", "read_npz_column", "write"]

SUPPORTED = (
    ".npz, .mat, .h5mu and .h5ad files, and folders with one .csv, .parquet or .npy file per view"
)


def read(
    path: str | PathLike[str], *, partial_rows: PartialRows = "error", labels: str | None = None
) -> MultiViewData:
    """Read samples from a file or from a folder with one table per view.

    Args:
        path: an `.npz`, `.mat`, `.h5mu` or `.h5ad` file, or the folder.
        partial_rows: what to do with rows that are partly NaN; see `MultiViewData`.
        labels: what holds the labels, by name: an array (`.npz`, by default `y`), a variable
            (`.mat`), a column of `obs` (`.h5mu`, `.h5ad`) or of the label file (folder), both by
            default `label`.

    Returns:
        The samples, called after the file.

    Example:
        >>> import tempfile
        >>> import numpy as np
        >>> file = Path(tempfile.mkdtemp()) / "pets.npz"
        >>> np.savez(file, view_image=np.ones((2, 3)), y=np.array([0, 1]))
        >>> read(file)
        MultiViewData(pets: 2 samples, views: image[3], 2 classes, 0.0% missing)
    """
    if partial_rows not in PARTIAL_ROWS:
        raise FewviewError(f"partial_rows={partial_rows!r} is not one of {', '.join(PARTIAL_ROWS)}")
    source = Path(path)
    suffix = source.suffix.lower()
    with naming(source):
        if source.is_dir():
            return read_folder(source, partial_rows, labels)
        if not source.exists():
            raise FewviewError("no such file or folder; check the path")
        if not source.is_file():
            raise FewviewError("is neither a file nor a folder")
        if suffix in _FILE_READERS:
            return _FILE_READERS[suffix](source, partial_rows, labels)
        if suffix in TABLES:
            raise FewviewError(
                "one table is one view; give the folder that holds a table for every view"
            )
        raise FewviewError(_unsupported(suffix))


def write(data: MultiViewData, path: str | PathLike[str], *, format: str | None = None) -> None:
    """Write samples to a file or to a new folder with one table per view.

    The result appears under its name only when it is complete. An existing file is replaced; an
    existing folder is not, unless it is empty. Labels and ids must be numbers or text. Reading
    gives back exactly what was written, whatever the format.

    Args:
        data: the samples.
        path: the file or the folder.
        format: one of `FORMATS`; by default that of the name's ending, and a folder of csv tables
            for names without an ending.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp()) / "pets"
        >>> data = MultiViewData({"image": [[1.0, 2.0]]}, labels=["cat"], ids=["tom"])
        >>> write(data, folder, format="csv")
        >>> print((folder / "image.csv").read_text(), end="")
        id,0,1
        tom,1.0,2.0
        >>> read(folder) == data
        True
    """
    target = Path(path)
    suffix = target.suffix.lower()
    with naming(target):
        if format is None:
            if suffix and suffix not in _FILE_READERS:
                raise FewviewError(
                    _unsupported(suffix)
                    if suffix not in TABLES
                    else f"name a folder and give format={suffix[1:]!r}; it gets a table per view"
                )
            format = suffix[1:] or "csv"
        if format not in _WRITERS:
            raise FewviewError(f"unknown format {format!r}; the formats are {', '.join(_WRITERS)}")
        if f".{format}" in _FILE_READERS and suffix != f".{format}":
            raise FewviewError(f"the name must end in .{format} for this format")
        _WRITERS[format](data, target)


def _unsupported(suffix: str) -> str:
    return f"files ending in {suffix!r} are not supported; supported are {SUPPORTED}"


_FILE_READERS: dict[str, Callable[[Path, PartialRows, str | None], MultiViewData]] = {
    ".npz": read_npz,
    ".mat": read_matlab,
    ".h5mu": read_h5mu,
    ".h5ad": read_h5ad,
}
_WRITERS: dict[str, Callable[[MultiViewData, Path], None]] = {
    "npz": write_npz,
    "mat": write_matlab,
    "h5mu": write_h5mu,
    "h5ad": write_h5ad,
    "csv": lambda data, path: write_folder(data, path, ".csv"),
    "parquet": lambda data, path: write_folder(data, path, ".parquet"),
    "npy": lambda data, path: write_folder(data, path, ".npy"),
}
FORMATS = tuple(_WRITERS)
