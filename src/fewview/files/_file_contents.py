"""What a file says, in plain values: the border between files and samples.

Readers give `Contents` (rows of all views match) or `Tables` (they are still to be joined by key);
writers take `Contents`. Which samples these are is decided in the next room.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fewview.errors import shorten

DEFAULT_KEY = "id"


@dataclass(frozen=True)
class Contents:
    """Named blocks of numbers [rows, width] whose rows match, and what is known about the rows."""

    views: Mapping[str, NDArray[Any]]
    labels: Sequence[Any] | None = None
    ids: Sequence[Any] | None = None
    columns: Mapping[str, Sequence[str]] = field(default_factory=dict)
    name: str | None = None

    @property
    def keys(self) -> Sequence[Any]:
        """The ids, or numbers of rows where there are none."""
        return range(len(next(iter(self.views.values())))) if self.ids is None else self.ids


@dataclass(frozen=True)
class Keys:
    """What identifies the rows of one table; `where` is how messages call the table."""

    where: str
    ids: Sequence[Any]
    lines: Sequence[int] | None = None  # of the file, where there is one
    # The same ids where a reader knows that all are whole numbers, which spares looking at each.
    numbers: NDArray[np.int64] | None = field(default=None, compare=False, repr=False)

    def row(self, index: int) -> str:
        """Say where a row is, for messages."""
        return f"row {index}" if self.lines is None else f"line {self.lines[index]}"

    def rows(self, indices: Iterable[int]) -> str:
        """Say where some rows are and what they are called, for messages."""
        places = [int(index) for index in indices]
        word = "row" if self.lines is None else "line"
        found = shorten(places if self.lines is None else [self.lines[i] for i in places])
        called = shorten([self.ids[index] for index in places])
        return f"{word if len(places) == 1 else word + 's'} {found} (id {called})"


@dataclass(frozen=True)
class Table:
    """One view before the join: numbers [rows, width], their keys and column names.

    Columns that hold words are in `texts`, by their place; their numbers are NaN.
    """

    keys: Keys
    block: NDArray[Any]
    columns: tuple[str, ...] | None = None
    texts: Mapping[int, Sequence[str | None]] = field(default_factory=dict)


@dataclass(frozen=True)
class KeyedLabels:
    """One label per key."""

    keys: Keys
    labels: Sequence[Hashable]


@dataclass(frozen=True)
class Tables:
    """One table per view, with rows of its own.

    `order` lists the samples wanted, in order. `trusted` keys are known to belong together.
    Without `named` keys only match rows and are no names of samples.
    """

    tables: Mapping[str, Table]
    labels: KeyedLabels | None = None
    order: Keys | None = None
    trusted: bool = False
    named: bool = True
    name: str | None = None
