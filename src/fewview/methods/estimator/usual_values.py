"""What is still usual of a number: its quantiles by groups of queries, honest about new classes.

Groups are of queries that are alike (Mondrian conformal prediction, Vovk et al. 2005).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fewview.methods.base import State

FloatArray = NDArray[np.float64]

# Dense where rates are wanted: small ones.
LEVELS = np.concatenate([np.linspace(0, 0.1, 101), np.linspace(0.11, 1.0, 90)])
# Stands for no limit, where base classes are too few to say.
LOWEST = -1e300


@dataclass(frozen=True, eq=False)
class UsualValues(State):
    """Quantiles of a value at `LEVELS`, by groups of queries.

    Attributes:
        groups: what the queries of a group have in common, as numbers.
        quantiles: [groups, levels].
    """

    groups: tuple[tuple[int, ...], ...]
    quantiles: FloatArray

    @classmethod
    def of(
        cls,
        values: FloatArray,
        label: NDArray[Any],
        columns: list[Any],
        *,
        fewest: int,
        floor: bool = True,
    ) -> UsualValues:
        """From values [n] of samples of classes `label`, in groups of at least so many.

        `columns` are what groups are by, [n] each; `floor` as for `honest_quantiles`.
        """
        keys = np.stack(columns, axis=1).astype(np.int64)
        groups, place, counts = np.unique(keys, axis=0, return_inverse=True, return_counts=True)
        kept = np.flatnonzero(counts >= min(fewest, counts.max()))
        rows = [np.flatnonzero(place.reshape(-1) == number) for number in kept]
        tables = [honest_quantiles(values[own], label[own], floor=floor) for own in rows]
        return cls(tuple(map(tuple, groups[kept].tolist())), np.array(tables))

    def share_below(self, values: FloatArray, columns: list[Any]) -> FloatArray:
        """Share of samples with a smaller value, in the group of each of these values [n].

        Where there is no such group, the nearest one stands in; what comes first in `columns`
        counts most.
        """
        keys = np.stack(np.broadcast_arrays(*columns, values)[:-1], axis=1).astype(np.int64)
        found, place = np.unique(keys, axis=0, return_inverse=True)
        out = np.empty(len(values))
        for number, key in enumerate(found.tolist()):
            rows = place.reshape(-1) == number
            limits = self.quantiles[self._nearest(key)]
            first = int(np.searchsorted(limits, LOWEST, side="right"))
            left = LEVELS[max(first - 1, 0)]
            out[rows] = np.interp(values[rows], limits[first:], LEVELS[first:], left=left)
        return out

    def _nearest(self, key: list[int]) -> int:
        def apart(number: int) -> list[int]:
            return [abs(a - b) for a, b in zip(self.groups[number], key, strict=True)]

        return min(range(len(self.groups)), key=apart)


def honest_quantiles(values: FloatArray, label: NDArray[Any], *, floor: bool = True) -> FloatArray:
    """Values below which a class that was not among them falls as often as `LEVELS` say.

    Queries of a class are alike, so what is exchangeable are classes (hierarchical conformal
    prediction, Dunn et al. 2023). Every class in turn is held against the quantiles of the others,
    as the jackknife does (Barber et al. 2021). As classes differ, more of it falls below a quantile
    than its level says, and the more the fewer there are; so the level is lowered until the mean
    over classes is what was asked for. Where even the smallest value is too often undercut, that is
    the limit, if there is to be a `floor`.
    """
    levels, classes = LEVELS, np.unique(label)
    reached = np.full(len(LEVELS), floor)
    reached[-1] = True
    if len(classes) > 1:
        shares = []
        for one in classes:
            own, limits = np.sort(values[label == one]), np.quantile(values[label != one], LEVELS)
            shares.append(np.searchsorted(own, limits) / len(own))
        below = np.maximum.accumulate(np.mean(shares, axis=0))
        place = np.searchsorted(below, LEVELS, side="right") - 1
        levels = np.minimum(np.where(place >= 0, LEVELS[np.maximum(place, 0)], 0.0), LEVELS)
        reached |= place >= 0
    return np.where(reached, np.quantile(values, levels), LOWEST)
