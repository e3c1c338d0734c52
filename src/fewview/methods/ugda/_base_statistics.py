"""Base statistics: what UGDA carries over from base classes.

Means and covariance factors of every base class and view, stacked into tensors. A class that lacks
a view, or has a single sample of it and so no covariance, is skipped for that view.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import torch
from torch import Tensor

from fewview.engine._contract import State
from fewview.ground._errors import FewviewError, FewviewWarning, shorten
from fewview.numerics._moments import ClassStatistics

# Below this width a covariance matrix is cheaper to handle than its factors.
DENSE_WIDTH = 256


@dataclass(frozen=True)
class BaseStatistics(State):
    """Statistics of C base classes.

    Attributes:
        means: per view [C, d], zeros where the class lacks the view.
        factors: per view [C, r, d] with factor' factor = covariance, zero rows as padding.
        covariances: per view [C, d, d] where anchors are drawn from a dense covariance, else
            an empty tensor.
        available: bool [C, V], whether the class has the view.
    """

    means: tuple[Tensor, ...]
    factors: tuple[Tensor, ...]
    covariances: tuple[Tensor, ...]
    available: Tensor

    @property
    def n_classes(self) -> int:
        """Number of base classes, C."""
        return int(self.available.shape[0])

    def variances(self) -> list[float]:
        """Variance of every view, within and between classes, averaged over its features.

        Zero where it is rounding: a constant seldom equals its own mean to the last digit.
        """
        out = []
        for v, means in enumerate(self.means):
            has = self.available[:, v]
            if not bool(has.any()):
                out.append(0.0)
                continue
            if self.covariances[v].numel():
                within = self.covariances[v][has].diagonal(dim1=1, dim2=2).mean()
            else:
                within = self.factors[v][has].square().sum(1).mean()
            total = float(within + means[has].var(0, correction=0).mean())
            out.append(total if total > 1e-24 * float(means[has].square().mean()) else 0.0)
        return out


def is_dense(width: int, rank: int) -> bool:
    """Whether anchors of a view are drawn from dense covariances rather than from factors."""
    return width <= DENSE_WIDTH or rank >= width


def stack_statistics(statistics: ClassStatistics) -> BaseStatistics:
    """Stack the statistics of the scaled base set into tensors (float64)."""
    labels = list(statistics.classes)
    views = list(statistics.view_dims)
    known = [
        [
            view in statistics.classes[label] and statistics.classes[label][view].count >= 2
            for view in views
        ]
        for label in labels
    ]
    single = [
        f"{label} ({view})"
        for label in labels
        for view, moments in statistics.classes[label].items()
        if moments.count < 2
    ]
    if single:
        warnings.warn(
            f"base class {shorten(single)}: one sample only, which has no covariance; the class is "
            "left out for that view",
            FewviewWarning,
            stacklevel=4,
        )
    available = torch.tensor(known, dtype=torch.bool).reshape(len(labels), len(views))
    unknown = [repr(view) for view, has in zip(views, available.any(0), strict=True) if not has]
    if unknown and len(unknown) < len(views):
        warnings.warn(
            f"no base class tells about view {shorten(unknown)}; it is used as it is, unscaled if "
            "no base sample has it",
            FewviewWarning,
            stacklevel=4,
        )
    means, factors, covariances = [], [], []
    for index, (view, width) in enumerate(statistics.view_dims.items()):
        rows = [
            statistics.classes[label][view] if available[place, index] else None
            for place, label in enumerate(labels)
        ]
        rank = max((m.rank for m in rows if m is not None), default=0)
        dense = is_dense(width, rank)
        mean = torch.zeros(len(labels), width, dtype=torch.float64)
        shape = (len(labels), width if dense else rank, width)
        spread = torch.zeros(shape, dtype=torch.float64)
        for place, moments in enumerate(rows):
            if moments is None:
                continue
            mean[place] = moments.mean
            if dense:
                spread[place] = moments.covariance()
            else:
                spread[place, : moments.rank] = moments.root / (moments.count - 1) ** 0.5
        means.append(mean)
        covariances.append(spread if dense else torch.empty(0))
        factors.append(torch.empty(0) if dense else spread)
    if not available.any():
        raise FewviewError(
            "no base class has two samples of any view; UGDA needs covariances of base classes"
        )
    return BaseStatistics(
        means=tuple(means),
        factors=tuple(factors),
        covariances=tuple(covariances),
        available=available,
    )
