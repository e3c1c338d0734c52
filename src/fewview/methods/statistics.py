"""Mean and covariance of every class and view, gathered in one pass, in parts, or merged.

`ClassStatistics` keeps a covariance as a square-root factor with at most min(n, d) rows, so a
d x d matrix is never made where a class has fewer samples than features. Parts gathered on
different machines or from a stream merge to the statistics of the whole.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from fewview.views import FewviewError, MultiViewData


@dataclass(frozen=True)
class ViewMoments:
    """Count, mean and scatter of one class in one view.

    Attributes:
        count: number of samples that have the view.
        mean: float64 [d].
        root: float64 [r, d] with r <= min(count, d); root' root is the sum of squared deviations.
            As gathered, the deviations themselves where count <= d; merged, at most count - 1 rows.
    """

    count: int
    mean: Tensor
    root: Tensor

    @classmethod
    def of(cls, rows: Tensor) -> ViewMoments:
        """Gather from rows [n, d]."""
        rows = rows.to(torch.float64)
        mean = rows.mean(0)
        return cls(len(rows), mean, _compress(rows - mean))

    def merge(self, other: ViewMoments) -> ViewMoments:
        """Moments of both sets of samples together (Chan, Golub and LeVeque 1979)."""
        count = self.count + other.count
        step = other.mean - self.mean
        between = (self.count * other.count / count) ** 0.5 * step
        root = _compress(torch.cat([self._contrasts(), other._contrasts(), between[None]]))
        return ViewMoments(count, self.mean + step * (other.count / count), root)

    def covariance(self) -> Tensor:
        """The unbiased covariance [d, d], Eq. 4 [eq:4]; needs two samples."""
        if self.count < 2:
            raise FewviewError("a single sample has no covariance; at least two are needed")
        return self.root.T @ self.root / (self.count - 1)

    def _contrasts(self) -> Tensor:
        """The root in at most count - 1 rows, so that merging does not let it grow."""
        if self.root.shape[0] < self.count:
            return self.root
        # Rows that sum to zero: a reflection of (1, ..., 1) onto the first axis empties that row.
        axis = torch.ones(self.count, dtype=torch.float64)
        axis[0] += self.count**0.5
        shared = (2 / axis.square().sum()) * (axis @ self.root)
        return self.root[1:] - axis[1:, None] * shared


def _compress(root: Tensor) -> Tensor:
    """Reduce a factor to at most d rows with the same root' root."""
    if root.shape[0] <= root.shape[1]:
        return root
    reduced: Tensor = torch.linalg.qr(root, mode="r").R
    return reduced


@dataclass
class ClassStatistics:
    """Statistics of labelled samples by class and view; `update` and `merge` in any order.

    Attributes:
        view_dims: width of every view.
        classes: label -> view name -> moments; a class that never showed a view lacks it.

    Example:
        >>> data = MultiViewData({"a": [[0.0], [2.0], [5.0]]}, labels=["x", "x", "y"])
        >>> whole = ClassStatistics.of(data)
        >>> round(whole.classes["x"]["a"].covariance().item(), 9)
        2.0
        >>> parts = ClassStatistics.of(data[:1]).merge(ClassStatistics.of(data[1:]))
        >>> parts.classes["x"]["a"].mean.item()
        1.0
    """

    view_dims: dict[str, int]
    classes: dict[object, dict[str, ViewMoments]] = field(default_factory=dict)

    @classmethod
    def of(cls, data: MultiViewData) -> ClassStatistics:
        """Gather from one data set."""
        return cls(data.view_dims).update(data)

    def update(self, data: MultiViewData) -> ClassStatistics:
        """Add labelled samples; returns self."""
        if data.view_dims != self.view_dims:
            raise FewviewError(
                f"statistics are about views {self.view_dims}, new samples have {data.view_dims}"
            )
        if (data.codes < 0).any():
            row = int((data.codes < 0).argmax())
            raise FewviewError(f"row {row} has no label, so no class it tells about; drop it first")
        for code, label in enumerate(data.classes.tolist()):
            member = data.codes == code
            known = self.classes.setdefault(label, {})
            for index, (view, block) in enumerate(data.views.items()):
                rows = block[member & data.mask[:, index]]
                if len(rows):
                    _add(known, view, ViewMoments.of(torch.from_numpy(rows)))
        return self

    def merge(self, other: ClassStatistics) -> ClassStatistics:
        """Statistics of both together, as a new object."""
        if other.view_dims != self.view_dims:
            raise FewviewError(
                f"cannot merge statistics about {self.view_dims} and {other.view_dims}"
            )
        out = ClassStatistics(self.view_dims, {c: dict(v) for c, v in self.classes.items()})
        for label, views in other.classes.items():
            known = out.classes.setdefault(label, {})
            for view, moments in views.items():
                _add(known, view, moments)
        return out


def _add(known: dict[str, ViewMoments], view: str, moments: ViewMoments) -> None:
    known[view] = known[view].merge(moments) if view in known else moments
