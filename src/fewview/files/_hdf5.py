"""HDF5 without its traps: what readers of MATLAB and AnnData files share, in the child process.

An HDF5 file can point at other files (external links, external and virtual data sets), of which
nothing is followed, and can claim any size, which is checked before memory is taken.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fewview.errors import FewviewError, check_dimensions


@contextmanager
def opened(path: Path, memory: int) -> Iterator[Node]:
    """Open an HDF5 file for reading, never locked or changed.

    `memory` is how many bytes one of its arrays may take.
    """
    import h5py

    with h5py.File(path, "r", locking=False) as file:
        yield Node(file, memory)


@dataclass(frozen=True)
class Node:
    """A group or data set, and how many bytes of memory an array may take."""

    item: Any
    memory: int

    @property
    def name(self) -> str:
        """Where in the file it is."""
        return str(self.item.name)

    @property
    def is_group(self) -> bool:
        """Whether it is a group rather than a data set."""
        import h5py

        return isinstance(self.item, h5py.Group)

    def names(self) -> list[str]:
        """Names of what is in the group."""
        if not self.is_group:
            raise FewviewError(f"{self.name} is not a group")
        return list(self.item.keys())

    def member(self, name: str) -> Node | None:
        """Return a group or data set by its name; None where there is none. Links are refused."""
        import h5py

        if name not in self.item.keys():  # noqa: SIM118  `in group` would follow a path
            return None
        if not isinstance(self.item.get(name, getlink=True), h5py.HardLink):
            raise FewviewError(
                f"{self.name.rstrip('/')}/{name} is a link to somewhere else, which is never "
                "followed; copy what it points to into the file"
            )
        return Node(self.item[name], self.memory)

    def attribute(self, name: str) -> Any:
        """Read an attribute as text where it is text, else as it is; None where there is none."""
        value = self.item.attrs.get(name)
        if isinstance(value, bytes):  # numpy's bytes as well
            return value.decode("utf-8")
        return value

    def numbers(self, dimensions: int | None = None) -> NDArray[Any]:
        """Read a data set of numbers, of so many dimensions."""
        self.check(dimensions)
        array: NDArray[Any] = np.asarray(self.item[()])
        if array.dtype.kind not in "fiub":
            found = "text or references" if array.dtype.kind == "O" else f"{array.dtype} values"
            raise FewviewError(f"{self.name} holds {found}; it must hold numbers")
        return array

    def values(self) -> list[Any]:
        """Read a data set with one number or text per something."""
        if self._is_text:
            self.check(1)
            return [str(text) for text in self.item.asstr()[()]]
        return list(self.numbers(1).tolist())

    def text(self) -> str:
        """Read one text."""
        if not self._is_text:
            raise FewviewError(f"{self.name} must hold text")
        self.check(0)
        return str(self.item.asstr()[()])

    @property
    def _is_text(self) -> bool:
        import h5py

        return not self.is_group and h5py.check_string_dtype(self.item.dtype) is not None

    def check(self, dimensions: int | None = None) -> None:
        """Refuse what is no data set, keeps its values elsewhere, or claims too much."""
        item = self.item
        if self.is_group:
            raise FewviewError(f"{self.name} is a group; it must be a data set")
        if item.external or item.is_virtual:
            raise FewviewError(f"{self.name} keeps its values in another file, which is never read")
        if item.shape is None:
            raise FewviewError(f"{self.name} is empty")
        if dimensions is not None:
            check_dimensions(self.name, item.ndim, dimensions)
        if item.size * item.dtype.itemsize > self.memory:
            raise MemoryError

    def scanned(self, above: tuple[Any, ...] = ()) -> Any:
        """Return h5py's object, for a library to read, after checking all that is in it."""
        if not self.is_group:
            self.check()
        elif self.item in above:
            raise FewviewError(f"{self.name} leads in a circle; the file is damaged")
        else:
            for key in self.names():
                member = self.member(key)
                assert member is not None
                member.scanned((*above, self.item))
        return self.item
