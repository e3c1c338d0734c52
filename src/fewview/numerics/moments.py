"""Mean and covariance of every class and view, gathered in one pass, in parts, or merged.

`ClassStatistics` keeps the deviations of a class's samples while they are fewer than the features
and one d x d matrix of their products afterwards, so that memory never exceeds the smaller of the
two. Parts gathered on different machines or from a stream merge to the statistics of the whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fewview.numerics.principal import products


@dataclass(frozen=True)
class ViewMoments:
    """Count, mean and scatter of one class in one view."""

    count: int  # number of samples that have the view
    mean: Tensor  # float64 [d]
    # float64 [r, d], r <= d: a root, spread' spread is the sum of the products of deviations; as
    # gathered the deviations themselves, merged at most count - 1 rows. Or that sum itself,
    # [d, d], where there are more samples than features.
    spread: Tensor
    summed: bool = False  # whether `spread` is the sum

    @classmethod
    def of(cls, rows: Tensor) -> ViewMoments:
        """Gather from rows [n, d]; products are taken in their own dtype and summed in float64."""
        array = rows.numpy()
        mean = array.mean(axis=0, dtype=np.float64)  # Eq. 3 [eq:3]
        if len(array) <= array.shape[1]:
            return cls(len(array), torch.from_numpy(mean), torch.from_numpy(array - mean))
        total = _deviations(array, mean, array[:0])
        return cls(len(array), torch.from_numpy(mean), torch.from_numpy(total), summed=True)

    def with_rows(self, rows: Tensor) -> ViewMoments:
        """Moments of these samples and more of them, rows [n, d]; as `merge`, but quicker."""
        if not self.summed:
            return self.merge(ViewMoments.of(rows))
        array = rows.numpy()
        count = self.count + len(array)
        mean = array.mean(axis=0, dtype=np.float64)
        step = mean - self.mean.numpy()
        # The means of both differ too (see `merge`): as one more deviation.
        between = (self.count * len(array) / count) ** 0.5 * step[None]
        total = self.spread.numpy() + _deviations(array, mean, between)
        mean = self.mean.numpy() + step * (len(array) / count)
        return ViewMoments(count, torch.from_numpy(mean), torch.from_numpy(total), summed=True)

    def merge(self, other: ViewMoments) -> ViewMoments:
        """Moments of both sets of samples together (Chan, Golub and LeVeque 1979)."""
        count = self.count + other.count
        step = other.mean - self.mean
        mean = self.mean + step * (other.count / count)
        between = ((self.count * other.count / count) ** 0.5 * step)[None]
        roots = [part._contrasts() for part in (self, other) if not part.summed]
        root = torch.cat([*roots, between])
        if len(roots) == 2 and len(root) <= root.shape[1]:
            return ViewMoments(count, mean, root)
        total = sum((part.spread for part in (self, other) if part.summed), products(root))
        return ViewMoments(count, mean, total, summed=True)

    def scatter(self) -> Tensor:
        """Sum of the products of deviations, [d, d]."""
        return self.spread if self.summed else products(self.spread)

    @property
    def rank(self) -> int:
        """Rows of `root`, at most min(count, d)."""
        return int(self.spread.shape[0])

    @property
    def root(self) -> Tensor:
        """A matrix [r, d] with r <= min(count, d) and root' root the scatter."""
        if not self.summed:
            return self.spread
        values, vectors = torch.linalg.eigh(self.spread)
        out: Tensor = values.clamp(min=0).sqrt()[:, None] * vectors.T
        return out

    def covariance(self) -> Tensor:
        """The unbiased covariance [d, d], Eq. 4 [eq:4]; needs two samples."""
        if self.count < 2:
            raise ValueError("a single sample has no covariance; at least two are needed")
        return self.scatter() / (self.count - 1)

    def _contrasts(self) -> Tensor:
        """The root in at most count - 1 rows, so that merging does not let it grow."""
        if self.spread.shape[0] < self.count:
            return self.spread
        # Rows that sum to zero: a reflection of (1, ..., 1) onto the first axis empties that row.
        axis = torch.ones(self.count, dtype=torch.float64)
        axis[0] += self.count**0.5
        shared = (2 / axis.square().sum()) * (axis @ self.spread)
        return self.spread[1:] - axis[1:, None] * shared


def _deviations(rows: NDArray[Any], mean: NDArray[Any], more: NDArray[Any]) -> NDArray[Any]:
    """Sum of the products of deviations, float64 [d, d], with `more` [r, d] deviations added."""
    about = mean.astype(rows.dtype)
    total: NDArray[Any] = np.zeros(())
    block = 8192  # rows whose products are taken at once in the dtype of the rows
    for start in range(0, len(rows), block):
        step = rows[start : start + block] - about
        if start == 0 and len(more):
            step = np.concatenate([step, more.astype(rows.dtype)])
        part = products(torch.from_numpy(step)).numpy()
        total = part if len(rows) <= block else total + part
    rest = mean - about
    if len(rows) * np.abs(rest).max() ** 2 > 1e-14 * total.diagonal().max():
        total = total - np.outer(len(rows) * rest, rest)  # the mean above was a rounded one
    return total.astype(np.float64, copy=False)


@dataclass
class ClassStatistics:
    """Statistics of labelled samples by class and view; `update` and `merge` in any order.

    Means and sums are float64. Products of deviations are taken in the dtype of the samples, at
    most 8192 rows at a time: for float32 samples a covariance then differs from that of float64
    products by about 1e-6 of the two standard deviations.
    """

    view_dims: dict[str, int]  # width of every view
    # Label -> view name -> moments; a class that never showed a view lacks it.
    classes: dict[object, dict[str, ViewMoments]] = field(default_factory=dict)

    def update(
        self,
        views: Mapping[str, NDArray[Any]],
        mask: NDArray[np.bool_],
        codes: NDArray[np.int64],
        labels: Sequence[object],
    ) -> ClassStatistics:
        """Add samples; returns self.

        Args:
            views: rows [n, width] of every view.
            mask: bool [n, V], True where a view is present.
            codes: int64 [n], the class of every sample as a position in `labels`.
            labels: one for every class.
        """
        # Sorted once, the samples of a class are one slice: no search per class.
        order = np.argsort(codes, kind="stable")
        known = [self.classes.setdefault(label, {}) for label in labels]
        for index, (view, block) in enumerate(views.items()):
            rows = order[mask[order, index]]
            counts = np.bincount(codes[rows], minlength=len(known))
            ends = np.cumsum(counts)
            for code in np.flatnonzero(counts).tolist():
                part = torch.from_numpy(block[rows[ends[code] - counts[code] : ends[code]]])
                before = known[code].get(view)
                known[code][view] = before.with_rows(part) if before else ViewMoments.of(part)
        return self

    def merge(self, other: ClassStatistics) -> ClassStatistics:
        """Statistics of both together, as a new object."""
        if other.view_dims != self.view_dims:
            raise ValueError(
                f"cannot merge statistics about {self.view_dims} and {other.view_dims}"
            )
        out = ClassStatistics(self.view_dims, {c: dict(v) for c, v in self.classes.items()})
        for label, views in other.classes.items():
            known = out.classes.setdefault(label, {})
            for view, moments in views.items():
                known[view] = known[view].merge(moments) if view in known else moments
        return out
