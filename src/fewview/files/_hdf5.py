"""HDF5 without its traps: what `matlab.py` and `anndata.py` share. Runs in the child process.

An HDF5 file can point at other files (external links, external and virtual data sets), of which
nothing is followed, and can claim any size, which is checked before memory is taken.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fewview.ground._errors import FewviewError


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """Open an HDF5 file for reading; never locks or changes it."""
    import h5py

    with h5py.File(path, "r", locking=False) as file:
        yield file


def member(group: Any, name: str) -> Any:
    """Return a group or data set by its name; None where there is none. Links are refused."""
    import h5py

    if name not in group.keys():  # noqa: SIM118  `in group` would follow a path
        return None
    link = group.get(name, getlink=True)
    if not isinstance(link, h5py.HardLink):
        raise FewviewError(
            f"{group.name.rstrip('/')}/{name} is a link to somewhere else, which is never "
            "followed; copy what it points to into the file"
        )
    return group[name]


def is_group(item: Any) -> bool:
    """Say whether this is a group rather than a data set."""
    import h5py

    return isinstance(item, h5py.Group)


def numbers(item: Any, memory: int, dimensions: int | None = None) -> NDArray[Any]:
    """Read a data set of numbers.

    Args:
        item: the data set.
        memory: how many bytes it may take at most.
        dimensions: how many dimensions it must have.
    """
    array = _array(item, memory, dimensions)
    if array.dtype.kind not in "fiub":
        raise FewviewError(f"{item.name} holds {_called(array.dtype)}; it must hold numbers")
    return array


def values(item: Any, memory: int) -> list[Any]:
    """Read a data set with one number or text per something."""
    import h5py

    if not is_group(item) and h5py.check_string_dtype(item.dtype) is not None:
        check(item, memory, 1)
        return [str(text) for text in item.asstr()[()]]
    return list(numbers(item, memory, 1).tolist())


def text(item: Any, memory: int) -> str:
    """Read one text."""
    import h5py

    if is_group(item) or h5py.check_string_dtype(item.dtype) is None:
        raise FewviewError(f"{item.name} must hold text")
    check(item, memory, 0)
    return str(item.asstr()[()])


def attribute(item: Any, name: str) -> Any:
    """Read an attribute as text where it is text, else as it is; None where there is none."""
    value = item.attrs.get(name)
    if isinstance(value, bytes):  # numpy's bytes as well
        return value.decode("utf-8")
    return value


def _array(item: Any, memory: int, dimensions: int | None) -> NDArray[Any]:
    check(item, memory, dimensions)
    array: NDArray[Any] = np.asarray(item[()])
    return array


def check(item: Any, memory: int, dimensions: int | None) -> None:
    """Refuse what is no data set, keeps its values elsewhere, or claims too much."""
    if is_group(item):
        raise FewviewError(f"{item.name} is a group; it must be a data set")
    if item.external or item.is_virtual:
        raise FewviewError(f"{item.name} keeps its values in another file, which is never read")
    if item.shape is None:
        raise FewviewError(f"{item.name} is empty")
    if dimensions is not None and item.ndim != dimensions:
        raise FewviewError(f"{item.name} has {item.ndim} dimension(s); it must have {dimensions}")
    if item.size * item.dtype.itemsize > memory:
        raise MemoryError


def _called(dtype: np.dtype[Any]) -> str:
    return "text or references" if dtype.kind == "O" else f"{dtype} values"
