"""`.npz` and `.npy` files: arrays of numbers and text, never a pickle.

A header may claim anything, so sizes are checked against the bytes that are there before any
memory is taken.
"""

from __future__ import annotations

import math
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from fewview.errors import FewviewError, check_count, check_dimensions, shorten
from fewview.files._file_contents import Contents
from fewview.files._kinds import UNFIT, code_labels, from_text, kind_of, to_array
from fewview.files._limits import memory_limit, naming, too_large, whose_fault
from fewview.ground._whole_files import replacing


def npz_keys(path: str | PathLike[str]) -> tuple[str, ...]:
    """List the names of the arrays in an `.npz` file.

    Args:
        path: the file.

    Example:
        >>> import tempfile
        >>> file = Path(tempfile.mkdtemp()) / "pets.npz"
        >>> np.savez(file, view_image=np.ones((2, 3)), split=np.array(["base", "novel"]))
        >>> npz_keys(file)
        ('view_image', 'split')
    """
    with naming(Path(path)), _open_archive(Path(path)) as archive:
        return tuple(archive.members)


def read_npz_column(path: str | PathLike[str], key: str) -> NDArray[Any]:
    """Read one array with an entry per sample from an `.npz` file, such as `split`.

    Args:
        path: the file.
        key: the name of the array.

    Returns:
        A read-only array [samples] of numbers or text.

    Example:
        >>> import tempfile
        >>> file = Path(tempfile.mkdtemp()) / "pets.npz"
        >>> np.savez(file, view_image=np.ones((2, 3)), split=np.array(["base", "novel"]))
        >>> read_npz_column(file, "split").tolist()
        ['base', 'novel']
    """
    with naming(Path(path)), _open_archive(Path(path)) as archive:
        if key not in archive.members:
            raise FewviewError(f"no array {key!r}; it has {shorten(archive.members, 12)}")
        column = archive.column(key)
        views = [name for name in archive.members if name.startswith("view_")]
        if views:
            check_count(f"{key} has ", "entries", len(column), (*archive.shape(views[0]), 0)[0])
        column.flags.writeable = False
        return column


def npy_header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Read the header of an array: its shape, whether columns lie together, and its dtype."""
    try:
        version = np.lib.format.read_magic(stream)
        if version == (1, 0):
            return np.lib.format.read_array_header_1_0(stream)
        if version == (2, 0):
            return np.lib.format.read_array_header_2_0(stream)
        raise ValueError(f"version {version}")
    except MemoryError:
        raise
    except Exception as error:  # foreign bytes make header parsers fail in any way they like
        damaged = "is not a numpy array, or is damaged ({reason})"
        raise FewviewError(whose_fault(error, "numpy", damaged)) from error


def read_npy(stream: IO[bytes], size: int, header_only: bool = False) -> Any:
    """Read one array of `size` bytes with its header, or its shape (`header_only`).

    Never a pickle, and never more memory than there are bytes.
    """
    shape, fortran, dtype = npy_header(stream)
    start = stream.tell()
    if dtype.hasobject:
        raise FewviewError(
            "holds pickled Python objects, which are never read since they can run code; "
            "save it as numbers or text, for instance array.astype(str)"
        )
    if dtype.kind not in "fiubU":
        raise FewviewError(f"holds {dtype} values; save it as numbers or text")
    count = math.prod(shape)
    if any(length < 0 for length in shape) or count * dtype.itemsize != size - start:
        raise FewviewError(
            f"claims shape {shape} of {dtype}, which does not fit its {size - start} bytes; the "
            "file is damaged or cut short, get it again"
        )
    if header_only:
        return shape
    content = stream.read()
    if len(content) != size - start:
        raise FewviewError("is cut short; get the file again")
    if not count:
        return np.empty(shape, dtype)
    if dtype.kind == "U":
        # numpy fails with a SystemError on numbers that are no characters, so look before.
        signs = np.frombuffer(content, np.dtype(np.uint32).newbyteorder(dtype.byteorder))
        if signs.max() > sys.maxunicode:
            raise FewviewError("holds bytes that are not text; the file is damaged")
    return np.ndarray(shape, dtype, buffer=content, order="F" if fortran else "C")


@dataclass(frozen=True)
class _Archive:
    """An open `.npz` file."""

    zip: zipfile.ZipFile
    size: int
    members: dict[str, zipfile.ZipInfo]

    def _read(self, key: str, header_only: bool) -> Any:
        info = self.members[key]
        # Deflate shrinks by a factor of 1032 at most, so more than that cannot be true.
        if info.compress_size > self.size or info.file_size > 1100 * info.compress_size + 1024:
            raise FewviewError(f"array {key} claims an impossible size; the file is damaged")
        if not header_only and info.file_size > memory_limit(self.size):
            raise FewviewError(f"array {key} {too_large(memory_limit(self.size))}")
        try:
            with self.zip.open(info) as stream:
                return read_npy(stream, info.file_size, header_only)
        except FewviewError as error:
            raise FewviewError(f"array {key} {error}") from error.__cause__
        except MemoryError:
            raise
        except Exception as error:  # zipfile, zlib, struct and more, depending on the damage
            damaged = "is damaged ({reason}); get the file again"
            raise FewviewError(f"array {key} {whose_fault(error, '.npz', damaged)}") from error

    def array(self, key: str) -> NDArray[Any]:
        array: NDArray[Any] = self._read(key, header_only=False)
        return array

    def shape(self, key: str) -> tuple[int, ...]:
        shape: tuple[int, ...] = self._read(key, header_only=True)
        return shape

    def column(self, key: str, kinds: str = "fiubU") -> NDArray[Any]:
        """Read an array with one entry per something."""
        array = self.array(key)
        check_dimensions(f"array {key}", array.ndim, 1)
        if array.dtype.kind not in kinds:
            raise FewviewError(f"array {key} holds {array.dtype} values; it must hold text")
        return array


@contextmanager
def _open_archive(path: Path) -> Iterator[_Archive]:
    if not path.is_file():
        raise FewviewError("no such file; check the path")
    try:
        archive = zipfile.ZipFile(path)
    except OSError:
        raise
    except Exception as error:  # BadZipFile, but also struct.error, NotImplementedError, ...
        damaged = (
            "is not an .npz file, or is damaged or cut short ({reason}); get it again, or write it "
            "with MultiViewData.write or numpy.savez"
        )
        raise FewviewError(whose_fault(error, ".npz", damaged)) from error
    with archive:
        members = {
            info.filename[: -len(".npy")]: info
            for info in archive.infolist()
            if info.filename.endswith(".npy")
        }
        yield _Archive(archive, path.stat().st_size, members)


def read_npz(path: Path, labels: str | None) -> Contents:
    """Read an `.npz` file; `labels` is the array that holds them, by default `y`."""
    with _open_archive(path) as archive:
        names = [key[len("view_") :] for key in archive.members if key.startswith("view_")]
        if not names:
            raise FewviewError(
                f"no array is called view_<name> (it has {shorten(archive.members) or 'none'}); "
                "name the features of each view so, and the labels y"
            )
        for name in names:
            check_dimensions(f"array view_{name}", len(archive.shape(f"view_{name}")), 2)
        total = sum(archive.members[f"view_{name}"].file_size for name in names)
        if total > memory_limit(archive.size):
            raise FewviewError(too_large(memory_limit(archive.size)))
        blocks = {name: archive.array(f"view_{name}") for name in names}
        columns = {
            name: archive.column(f"columns_{name}", "U").tolist()
            for name in names
            if f"columns_{name}" in archive.members
        }
        ids = _values(archive, "ids") if "ids" in archive.members else None
        values = _labels(archive, len(blocks[names[0]]), labels)
    return Contents(blocks, values, ids, columns, path.stem)


def _values(archive: _Archive, key: str) -> list[Any]:
    """Read ids or classes, which are plain or, where they are of mixed kinds, json texts."""
    values: list[Any] = archive.column(key).tolist()
    if f"{key}_kind" not in archive.members:
        return values
    kind = archive.array(f"{key}_kind").tolist()
    if kind != "json":
        raise FewviewError(f"{key}_kind is {kind!r}; only 'json' is known")
    try:
        return [from_text("json", value) for value in values]
    except UNFIT:
        raise FewviewError(f"array {key} holds text that is not json") from None


def _labels(archive: _Archive, n_samples: int, name: str | None) -> list[Any] | None:
    key = "y" if name is None else name
    if key not in archive.members:
        if name is None:
            return None
        raise FewviewError(f"no array {name!r} for the labels; it has {shorten(archive.members)}")
    y = archive.column(key)
    check_count(f"{key} has ", "labels", len(y), n_samples)
    if key != "y" or "classes" not in archive.members or y.dtype.kind not in "iu":
        return list(y.tolist())
    classes = _values(archive, "classes")
    wrong = np.flatnonzero((y < -1) | (y >= len(classes)))
    if wrong.size:
        raise FewviewError(
            f"y of row {wrong[0]} is {y[wrong[0]]}, which is no position in the {len(classes)} "
            "classes (-1 for unlabelled samples)"
        )
    return [None if code < 0 else classes[code] for code in y.tolist()]


def write_npz(contents: Contents, path: Path) -> None:
    """Write an `.npz` file; equal data make equal files."""
    arrays: dict[str, NDArray[Any]] = {}

    def put(key: str, kind: str, values: list[Any]) -> None:
        arrays[key] = to_array(kind, values)
        if kind == "json":
            arrays[f"{key}_kind"] = np.array("json")

    for view, block in contents.views.items():
        arrays[f"view_{view}"] = block
        if view in contents.columns:
            names = list(contents.columns[view])
            arrays[f"columns_{view}"] = np.array(names, dtype=np.str_)
            if arrays[f"columns_{view}"].tolist() != names:
                raise FewviewError(f"view {view!r}: a column name ends in NUL; rename it")
    if contents.ids is not None:
        put("ids", kind_of(contents.ids, "id"), list(contents.ids))
    if contents.labels is not None:
        kind, arrays["y"], classes = code_labels(contents.labels)
        if classes is not None:
            put("classes", kind, classes)
    with replacing(path) as temporary, zipfile.ZipFile(temporary, "w") as archive:
        for key, array in arrays.items():
            # A fixed date makes equal data equal files.
            info = zipfile.ZipInfo(f"{key}.npy", date_time=(1980, 1, 1, 0, 0, 0))
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = 0o644 << 16
            with archive.open(info, "w", force_zip64=True) as stream:
                np.lib.format.write_array(stream, array, allow_pickle=False)
