"""What the columns and classes of samples look like: distributions, and which class lacks what.

Counted on at most ten thousand rows, evenly spread, so that a notebook answers at once.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from fewview.samples._data import MultiViewData

MOST_ROWS = 10_000
MOST_COLUMNS = 20
MOST_CLASSES = 25
BINS = 16
# So many columns tell how large the numbers of a view are.
FEWEST_TOLD = 3


@dataclass(frozen=True)
class ColumnProfile:
    """One column: its name, the share of empty cells, and how its values lie."""

    name: str
    kind: str
    empty: float
    mean: float
    deviation: float
    minimum: float
    maximum: float
    counts: tuple[int, ...]
    common: str = ""  # of categories: the most frequent ones


@dataclass(frozen=True)
class Profile:
    """Distributions of views and columns, and presence of views by class.

    Attributes:
        values: per view, how all its values lie between its least and its largest.
        columns: per view, its first columns.
        n_columns: per view, how many there are.
        classes: name, samples, and share of samples that lack each view; the largest first.
        n_classes: how many classes there are.
        n_rows: rows that distributions were counted on.
    """

    values: tuple[tuple[int, ...], ...]
    columns: tuple[tuple[ColumnProfile, ...], ...]
    n_columns: tuple[int, ...]
    classes: tuple[tuple[str, int, tuple[float, ...]], ...]
    n_classes: int
    n_rows: int


def profile(data: MultiViewData) -> Profile:
    """Look at samples closely."""
    step = max(1, math.ceil(len(data) / MOST_ROWS))
    some = data[::step] if step > 1 else data
    values, columns, sizes = [], [], []
    for v, (view, block) in enumerate(some.views.items()):
        rows = np.asarray(block[some.mask[:, v]], dtype=np.float64)
        values.append(_histogram(rows))
        listed = list(_columns(some, view, rows))
        sizes.append(len(data.kinds.get(view, ())) or block.shape[1])
        columns.append(tuple(listed))
    classes = []
    for code, label in enumerate(data.classes.tolist()):
        mine = data.mask[data.codes == code]
        classes.append((str(label), len(mine), tuple((1.0 - mine.mean(axis=0)).tolist())))
    classes.sort(key=lambda entry: -entry[1])
    return Profile(
        tuple(values), tuple(columns), tuple(sizes), tuple(classes[:MOST_CLASSES]), len(classes),
        len(some),
    )  # fmt: skip


def _columns(data: MultiViewData, view: str, rows: Any) -> list[ColumnProfile]:
    """The first columns of a view; of words, what they were before they became numbers."""
    out = []
    if view in data.kinds:
        start = 0
        for column in data.kinds[view][:MOST_COLUMNS]:
            part = rows[:, start : start + column.width]
            start += column.width
            out.append(_column(column.name, column.kind, part, column.levels))
        return out
    names = data.columns.get(view, [str(k) for k in range(rows.shape[1])])
    return [_column(names[k], "number", rows[:, k : k + 1])
            for k in range(min(rows.shape[1], MOST_COLUMNS))]  # fmt: skip


def _column(name: str, kind: str, part: Any, levels: tuple[str, ...] = ()) -> ColumnProfile:
    there = part[~np.isnan(part).any(axis=1)]
    empty = 1.0 - len(there) / len(part) if len(part) else 0.0
    if kind == "category" and len(there):
        shares = there.mean(axis=0)
        order = np.argsort(-shares, kind="stable")
        common = ", ".join(f"{levels[k]} {100 * shares[k]:.0f}%" for k in order[:3] if shares[k])
        counts = tuple(int(there[:, k].sum()) for k in order[:BINS])
        return ColumnProfile(name, kind, empty, math.nan, math.nan, math.nan, math.nan, counts,
                             common)  # fmt: skip
    if kind in ("category", "words") or not len(there):
        nothing = (math.nan,) * 4
        return ColumnProfile(name, kind, empty, *nothing, ())
    return ColumnProfile(
        name, kind, empty, float(there.mean()), float(there.std()), float(there.min()),
        float(there.max()), _histogram(there),
    )  # fmt: skip


def _histogram(values: Any) -> tuple[int, ...]:
    """Counts between the least and the largest value; none where they do not differ."""
    known = values[np.isfinite(values)]
    if not known.size or known.min() == known.max():
        return ()
    return tuple(np.histogram(known, bins=BINS)[0].tolist())


def sizes_beside(data: MultiViewData, other: MultiViewData) -> dict[str, float]:
    """How many times as large the numbers of a view are as in other samples: medians over columns.

    Columns that are mostly zero, in either, and views with fewer than three others tell nothing.

    Example:
        >>> from fewview import MultiViewData
        >>> grams = MultiViewData({"a": [[1.0, 20.0, 3.0], [2.0, 10.0, 3.0]]})
        >>> sizes_beside(MultiViewData({"a": [[1500.0, 12000.0, 2900.0]]}), grams)["a"] > 500
        True
    """
    found = {}
    for view in data.view_names:
        if view not in other.view_names:
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # a column without a cell
            mine, theirs = (
                np.nanmedian(np.abs(part.view(view)[:MOST_ROWS]), axis=0) for part in (data, other)
            )
        told = (mine > 0) & (theirs > 0)
        if told.sum() >= FEWEST_TOLD:
            found[view] = float(np.median(mine[told] / theirs[told]))
    return found
