"""Queries that look like none of the classes, and where to draw the line.

How well a query fits a class is a method's `typicality`. What is still usual is learnt from base
classes that play new ones (`_playing.py`): the fit of samples to the best of some classes, one of
which is their own, by the number of shots, of these classes, and of views that a query has. A
wanted false-reject rate is a quantile of that, such that a class that was left out is rejected as
often as wanted, in the mean over classes.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fewview.engine._contract import Contract
from fewview.engine.open_world._playing import Played, play
from fewview.episodes._task import TaskSpec
from fewview.ground._errors import FewviewError
from fewview.samples._data import MultiViewData

# A number of views with fewer queries than this is judged by another number.
FEWEST_QUERIES = 50
# Dense where rates are wanted: small ones.
LEVELS = np.concatenate([np.linspace(0, 0.1, 101), np.linspace(0.11, 1.0, 90)])
FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Thresholds:
    """Quantiles of how well base samples fit the best of some classes that have their own in it.

    Attributes:
        shots: numbers of supports per class that tasks were drawn with.
        quantiles: [gaps, shots, ways, views, levels]: the first entry is about supports with gaps
            or as they come, the second, where there is one, about supports that have all views;
            entry w - 1 is about the best of w classes, entry v - 1 about queries with v views.
    """

    shots: tuple[int, ...]
    quantiles: FloatArray

    def share_below(
        self,
        fit: FloatArray,
        shots: NDArray[Any],
        n_views: NDArray[Any],
        way: int = 1,
        whole: bool = False,
    ) -> FloatArray:
        """Share of samples of these classes that fit worse, [n]: below a rate they are rejected.

        `fit` is that of the best of `way` classes, `whole` whether supports have all views.
        """
        place, known = self._places(shots, n_views)
        kinds, _, ways = self.quantiles.shape[:3]
        tables = self.quantiles[min(int(whole), kinds - 1), :, min(way, ways) - 1]
        out = np.empty(len(fit))
        for row in np.ndindex(tables.shape[:2]):
            which = (place == row[0]) & (known == row[1])
            out[which] = np.interp(fit[which], tables[row], LEVELS)
        return out

    def _places(
        self, shots: NDArray[Any], n_views: NDArray[Any]
    ) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        place = np.abs(np.asarray(shots)[:, None] - np.array(self.shots)).argmin(axis=1)
        # Supports may have views that base classes lack.
        return place, np.minimum(n_views, self.quantiles.shape[3]) - 1


def check_reject(rate: Any) -> None:
    """Refuse what is no false-reject rate."""
    if isinstance(rate, bool) or not isinstance(rate, (int, float, np.floating)):
        raise FewviewError(f"reject is {rate!r}; give a false-reject rate such as 0.05")
    if not 0 < rate < 1:
        raise FewviewError(f"reject is {rate}; give a false-reject rate between 0 and 1")


def set_thresholds(method: Contract, base: MultiViewData, task: TaskSpec) -> Thresholds:
    """Learn from unscaled base classes what is still usual."""
    found = play(method, base, task)
    shots = tuple(np.unique(found.shots[found.new]).tolist())
    best = [found.best_of(way) for way in range(1, found.few.shape[1] + 1)]
    tables = [
        [
            [by_views(found, fit, kind & (found.shots == shot), base.n_views) for fit in best]
            for shot in shots
        ]
        for kind in (found.new & (found.whole == whole) for whole in (False, True))
        if kind.any()
    ]
    return Thresholds(shots, np.array(tables))


def usual_thresholds(method: Contract, base: MultiViewData, task: TaskSpec) -> Thresholds | None:
    """`set_thresholds`; None where there are too few base classes."""
    try:
        return set_thresholds(method, base, task)
    except FewviewError:
        return None  # asking for it later says why


def by_views(
    found: Played, fit: FloatArray, which: NDArray[np.bool_], n_views: int
) -> list[FloatArray]:
    """Quantiles for every number of views; the nearest number with enough queries stands in."""
    counts = np.bincount(found.views[which], minlength=n_views + 1)
    enough = np.flatnonzero(counts >= FEWEST_QUERIES).tolist() or [int(counts.argmax())]
    out = []
    for count in range(1, n_views + 1):
        nearest = min(enough, key=lambda other: (abs(other - count), -other))
        rows = which & (found.views == nearest)
        out.append(honest_quantiles(fit[rows], found.label[rows]))
    return out


def honest_quantiles(values: FloatArray, label: NDArray[np.int64]) -> FloatArray:
    """Values below which a class that was not among them falls as often as `LEVELS` say.

    Every class in turn is held against the quantiles of the others. As classes differ, more of it
    falls below a quantile than its level says, and the more the fewer there are; so the level is
    lowered until the mean over classes is what was asked for. Where even the smallest value is too
    often undercut, that is the limit.
    """
    order = np.argsort(values)
    values, label = values[order], label[order]  # once for all classes
    levels, classes = LEVELS, np.unique(label)
    if len(classes) > 1:
        below = np.zeros(len(LEVELS))
        for one in classes:
            own, limits = values[label == one], quantiles(values[label != one], LEVELS)
            below += np.searchsorted(own, limits) / len(own) / len(classes)
        below = np.maximum.accumulate(below)
        place = np.searchsorted(below, LEVELS, side="right") - 1
        levels = np.minimum(np.where(place >= 0, LEVELS[np.maximum(place, 0)], 0.0), LEVELS)
    return quantiles(values, levels)


def quantiles(rising: FloatArray, levels: FloatArray) -> FloatArray:
    """`np.quantile` of values that rise already, to the last bit and much faster.

    Example:
        >>> quantiles(np.array([1.0, 2.0, 4.0]), np.array([0.0, 0.25, 1.0])).tolist()
        [1.0, 1.5, 4.0]
    """
    place = levels * (len(rising) - 1)
    low = np.floor(place).astype(np.intp)
    below, above = rising[low], rising[np.minimum(low + 1, len(rising) - 1)]
    share, step = place - low, above - below
    out: FloatArray = np.where(share >= 0.5, above - step * (1 - share), below + step * share)
    return out


def rejection_label(classes: NDArray[Any], wanted: Hashable) -> Hashable:
    """The label of rejected queries: -1 among numbers, else `"unknown"`, unless one is given."""
    usual = -1 if classes.dtype.kind in "iuf" else "unknown"
    label = usual if wanted is None else wanted
    if label in set(classes.tolist()):
        raise FewviewError(f"{label!r} is a class itself; give reject_label=... for rejected ones")
    return label


def joined_labels(first: NDArray[Any], second: Iterable[Any]) -> NDArray[Any]:
    """Labels one after the other; as objects where some are numbers and some are text."""
    return as_labels([*first.tolist(), *second])


def with_label(predicted: NDArray[Any], rejected: NDArray[np.bool_], label: Any) -> NDArray[Any]:
    """Labels in which some are replaced; of objects where the kinds do not go together."""
    return as_labels(
        [label if gone else kept for kept, gone in zip(predicted.tolist(), rejected, strict=True)]
    )


def as_labels(values: list[Any]) -> NDArray[Any]:
    """An array of labels; of objects where the kinds do not go together."""
    kinds = {type(value) for value in values}
    if kinds <= {int} or kinds <= {float} or kinds <= {str}:
        return np.array(values)
    out = np.empty(len(values), dtype=object)
    out[:] = values
    return out
