"""Base statistics: means and covariances of every base class and view, Eq. 3 [eq:3], 4 [eq:4]."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fewview.methods.base import State
from fewview.numerics.moments import ClassStatistics
from fewview.samples._data import MultiViewData

DENSE_WIDTH = 256  # up to this width a covariance is cheaper to handle than its factors


@dataclass
class BaseSums:
    """Sums of scaled, labelled base samples, which may come in parts."""

    found: ClassStatistics

    def update(self, data: MultiViewData) -> BaseSums:
        """Add samples; returns self."""
        self.found.update(data.views, data.mask, data.codes, data.classes.tolist())
        return self

    def merge(self, other: BaseSums) -> BaseSums:
        """The sums of both together, as a new object."""
        return BaseSums(self.found.merge(other.found))


@dataclass(frozen=True)
class BaseStatistics(State):
    """Statistics of C base classes; of a view either `factors` or `covariances` are there.

    A class with fewer than two samples of a view has no covariance and is left out for that view.
    """

    means: tuple[Tensor, ...]  # per view [C, d], zeros where the class is left out
    factors: tuple[Tensor, ...]  # per view [C, r, d], factor' factor = covariance; or empty
    covariances: tuple[Tensor, ...]  # per view [C, d, d]; or empty
    available: Tensor  # bool [C, V], whether the class has the view

    @classmethod
    def of(cls, statistics: ClassStatistics) -> BaseStatistics:
        """Stack the statistics of classes, float64."""
        views, found = statistics.view_dims, list(statistics.classes.values())
        known = torch.tensor([[v in f and f[v].count >= 2 for v in views] for f in found])
        means, factors, covariances = [], [], []
        for has, (view, width) in zip(known.T, views.items(), strict=True):
            rows = {place: found[place][view] for place in has.nonzero()[:, 0].tolist()}
            rank = max((moments.rank for moments in rows.values()), default=0)
            dense = bool(known.any()) and (width <= DENSE_WIDTH or rank >= width)
            mean = torch.zeros(len(found), width, dtype=torch.float64)
            # numpy's zeros take no memory before they are written to, and most classes are small.
            spread = torch.from_numpy(np.zeros((len(found), width if dense else rank, width)))
            for place, moments in rows.items():
                mean[place] = moments.mean
                if dense:
                    spread[place] = moments.covariance()
                else:
                    spread[place, : moments.rank] = moments.root / (moments.count - 1) ** 0.5
            means.append(mean)
            factors.append(torch.empty(0) if dense else spread)
            covariances.append(spread if dense else torch.empty(0))
        return cls(tuple(means), tuple(factors), tuple(covariances), known)

    def overall_means(self) -> tuple[Tensor, ...]:
        """Mean of the class means of every view, [d]; zeros where no class has it."""
        counts = self.available.sum(0).clamp(min=1)
        return tuple(mean.sum(0) / count for mean, count in zip(self.means, counts, strict=True))

    def variance(self, view: int) -> float:
        """Variance of a view, within and between classes, averaged over its features.

        Zero where it is rounding: a constant seldom equals its own mean to the last digit.
        """
        means, dense = self.means[view][self.available[:, view]], self.covariances[view]
        if not len(means):
            return 0.0
        spread = dense.diagonal(dim1=1, dim2=2) if dense.numel() else self.factors[view].square()
        total = float(spread.sum() / means.numel() + means.var(0, correction=0).mean())
        return total if total > 1e-24 * float(means.square().mean()) else 0.0
