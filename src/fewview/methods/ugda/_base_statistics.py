"""Base statistics: what UGDA carries over from base classes.

Means and covariance factors of every base class and view, stacked into tensors. A class that lacks
a view, or has a single sample of it and so no covariance, is skipped for that view.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from fewview.engine._state import State
from fewview.ground._errors import FewviewError, FewviewWarning, shorten
from fewview.numerics._moments import ClassStatistics

# Below this width a covariance matrix is cheaper to handle than its factors.
DENSE_WIDTH = 256


@dataclass(frozen=True)
class BaseStatistics(State):
    """Statistics of C base classes."""

    means: tuple[Tensor, ...]  # per view [C, d], zeros where the class lacks the view
    # Per view [C, r, d] with factor' factor = covariance, zero rows as padding.
    factors: tuple[Tensor, ...]
    # Per view [C, d, d] where anchors are drawn from a dense covariance, else an empty tensor.
    covariances: tuple[Tensor, ...]
    available: Tensor  # bool [C, V], whether the class has the view

    @property
    def n_classes(self) -> int:
        """Number of base classes, C."""
        return int(self.available.shape[0])

    @cached_property
    def alike(self) -> tuple[tuple[int, ...], ...]:
        """Views that the same classes have, together."""
        found: dict[tuple[bool, ...], list[int]] = {}
        for view, has in enumerate(self.available.T.tolist()):
            found.setdefault(tuple(has), []).append(view)
        return tuple(map(tuple, found.values()))

    @cached_property
    def known(self) -> list[int]:
        """How many classes have each view."""
        return list(map(int, self.available.sum(0).tolist()))

    @cached_property
    def centred(self) -> tuple[tuple[Tensor, Tensor, Tensor], ...]:
        """Per view the mean of class means [d], these around it [C, d], and their squared lengths,
        infinite where a class lacks the view [C]."""
        out = []
        for v, means in enumerate(self.means):
            has = self.available[:, v]
            middle = means[has].mean(0)
            around = means - middle
            out.append((middle, around, around.square().sum(-1).masked_fill(~has, torch.inf)))
        return tuple(out)

    def of_tasks(self, view: int, states: Tensor | None) -> Tensor:
        """Classes that have a view, bool [C]; of several base sets those of the task's: [T, C]."""
        return self.available[:, view]

    def numbers(self, classes: Tensor) -> Tensor:
        """What draws around some classes are keyed by, int64: positions in their own base set."""
        return classes

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
                within = self.covariances[v].diagonal(dim1=1, dim2=2)[has].mean()
            else:
                # Classes that lack the view have zeros.
                size = torch.linalg.vector_norm(self.factors[v]).square()
                within = size / (has.sum() * means.shape[1])
            total = float(within + means[has].var(0, correction=0).mean())
            out.append(total if total > 1e-24 * float(means[has].square().mean()) else 0.0)
        return out


@dataclass(frozen=True)
class StackedStatistics(BaseStatistics):
    """Statistics of several base sets, one after another; tasks know their own classes only."""

    owner: Tensor  # which base set a class is of, int64 [C]
    number: Tensor  # its position there, int64 [C]

    def of_tasks(self, view: int, states: Tensor | None) -> Tensor:
        """Classes of the tasks' base sets that have a view, bool [T, C]."""
        assert states is not None
        return self.available[:, view] & (self.owner == states[:, None])

    def numbers(self, classes: Tensor) -> Tensor:
        """Positions of classes in their own base sets."""
        return self.number[classes]

    @classmethod
    def of(cls, parts: Sequence[BaseStatistics]) -> StackedStatistics | None:
        """Stack them; None where shapes differ or a view is unknown to one of them."""
        shapes = {
            tuple(x.shape[1:] for x in (*part.means, *part.factors, *part.covariances))
            for part in parts
        }
        available = torch.stack([part.available.any(0) for part in parts])
        if len(shapes) > 1 or not bool(available.all()):
            return None

        def joined(name: str) -> tuple[Tensor, ...]:
            columns = zip(*(getattr(part, name) for part in parts), strict=True)
            return tuple(torch.cat(column) for column in columns)

        sizes = [part.n_classes for part in parts]
        owners = [torch.full((size,), k) for k, size in enumerate(sizes)]
        device = parts[0].available.device
        return cls(
            means=joined("means"),
            factors=joined("factors"),
            covariances=joined("covariances"),
            available=torch.cat([part.available for part in parts]),
            owner=torch.cat(owners).to(device),
            number=torch.cat([torch.arange(size) for size in sizes]).to(device),
        )


def is_dense(width: int, rank: int) -> bool:
    """Whether anchors of a view are drawn from dense covariances rather than from factors."""
    return width <= DENSE_WIDTH or rank >= width


def stack_statistics(statistics: ClassStatistics) -> BaseStatistics:
    """Stack the statistics of the scaled base set into tensors (float64)."""
    views = statistics.view_dims
    known = torch.tensor(
        [
            [view in found and found[view].count >= 2 for view in views]
            for found in statistics.classes.values()
        ],
        dtype=torch.bool,
    ).reshape(len(statistics.classes), len(views))
    _tell_what_is_left_out(statistics, known)
    if not known.any():
        raise FewviewError(
            "no base class has two samples of any view; UGDA needs covariances of base classes"
        )
    means, factors, covariances = [], [], []
    for index, (view, width) in enumerate(views.items()):
        rows = {
            place: found[view]
            for place, found in enumerate(statistics.classes.values())
            if known[place, index]
        }
        rank = max((moments.rank for moments in rows.values()), default=0)
        dense = is_dense(width, rank)
        mean = torch.zeros(len(known), width, dtype=torch.float64)
        # numpy's zeros take no memory before they are written to, and most classes are small.
        spread = torch.from_numpy(np.zeros((len(known), width if dense else rank, width)))
        for place, moments in rows.items():
            mean[place] = moments.mean
            if dense:
                spread[place] = moments.covariance()
            else:
                spread[place, : moments.rank] = moments.root / (moments.count - 1) ** 0.5
        means.append(mean)
        covariances.append(spread if dense else torch.empty(0))
        factors.append(torch.empty(0) if dense else spread)
    return BaseStatistics(tuple(means), tuple(factors), tuple(covariances), known)


def _tell_what_is_left_out(statistics: ClassStatistics, known: Tensor) -> None:
    """Warn about classes with a single sample of a view, and views that no class has."""
    single = [
        f"{label} ({view})"
        for label, found in statistics.classes.items()
        for view, moments in found.items()
        if moments.count < 2
    ]
    if single:
        warnings.warn(
            f"base class {shorten(single)}: one sample only, which has no covariance; the class is "
            "left out for that view",
            FewviewWarning,
            stacklevel=5,
        )
    views = statistics.view_dims
    unknown = [repr(view) for view, has in zip(views, known.any(0), strict=True) if not has]
    if unknown and len(unknown) < len(views):
        warnings.warn(
            f"no base class tells about view {shorten(unknown)}; it is used as it is, unscaled if "
            "no base sample has it",
            FewviewWarning,
            stacklevel=5,
        )
