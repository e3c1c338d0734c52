"""Divisions of base classes: some are held out as new classes, the others stay base classes.

Whatever is chosen or calibrated is chosen on tasks of such held-out base classes, so that novel
classes are never seen.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fewview.numerics.random_keys import combine, raw, smallest, stream_key
from fewview.samples._data import MultiViewData


@dataclass(frozen=True, eq=False)
class Division:
    """One division of base classes."""

    known: MultiViewData  # samples of classes that stay base classes
    unknown: MultiViewData  # samples of classes that are held out as new ones
    novel: NDArray[np.int64]  # those classes, as positions in the classes of the base set


def divide(
    base: MultiViewData,
    n_novel: int,
    n_folds: int,
    *words: Hashable,
    among: NDArray[np.int64] | None = None,
    most: int | None = None,
    turns: bool = False,
) -> Iterator[Division]:
    """Divide base classes a few times; the same words give the same divisions everywhere.

    Of the classes `among` which they may be (all when None), `n_novel` are held out; at `most` so
    many take part in one division. With `turns` no class is held out twice before all have been;
    else they are drawn anew for every division.
    """
    classes = np.arange(len(base.classes)) if among is None else among
    states = combine(np.arange(n_folds, dtype=np.uint64), stream_key(*words))
    orders = smallest(raw(states, len(classes)), len(classes))
    if turns:
        orders = np.stack([np.roll(orders[0], -n_novel * turn) for turn in range(n_folds)])
    for order in orders:
        novel = classes[order[:n_novel]]
        out = novel if most is None else np.concatenate([novel, classes[order[most:]]])
        stay = np.setdiff1d(np.arange(len(base.classes)), out)
        known, unknown = (base[np.isin(base.codes, part)] for part in (stay, novel))
        yield Division(known, unknown, novel)


def thinned(data: MultiViewData, most: int) -> MultiViewData:
    """Keep at most so many samples, the same share of every class, two or more of each.

    Example:
        >>> data = MultiViewData(np.ones((9, 1)), labels=[0] * 6 + [1] * 3)
        >>> np.bincount(thinned(data, 6).codes).tolist()
        [4, 2]
    """
    return data if len(data) <= most else data[thinned_rows(data.codes, most)]


def thinned_rows(codes: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """Positions that `thinned` keeps of samples of these classes, [n], rising."""
    if len(codes) <= most:
        return np.arange(len(codes))
    share = most / len(codes)
    keys = raw(np.array(stream_key("thinned"), dtype=np.uint64), len(codes))
    keep = []
    for code, size in enumerate(np.bincount(codes)):
        rows = np.flatnonzero(codes == code)
        count = min(size, max(2, round(share * size)))
        keep.append(rows[smallest(keys[rows], count)])
    return np.sort(np.concatenate(keep))
