"""Moments of base classes, gathered in one pass, in parts or merged, and S and B made from them.

`MarginalStatistics` holds sums only: per class [views, d] and one pooled [d, d] matrix, so that it
merges exactly and its memory grows with classes x views x components. Samples may lack views:
every pair of views is estimated from the samples that have both.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from fewview.methods.marginal.model import Gaussians, view_sums
from fewview.methods.marginal.projection import Projection
from fewview.views import FewviewError, MultiViewData


@dataclass
class MarginalStatistics:
    """Sums over projected base samples; `update` and `merge` in any order.

    Attributes:
        projection: frozen preprocessing of the (scaled) samples.
        counts: label -> samples that have both views, float64 [V, V].
        sums: label -> sum of coordinates over samples that also have view v, float64 [V, d].
        products: sum of x x' over all classes, float64 [d, d], missing coordinates being zero.

    Example:
        >>> from fewview.methods.marginal.projection import fit_projection
        >>> data = MultiViewData({"a": [[0.0], [2.0], [5.0]]}, labels=["x", "x", "y"])
        >>> projection = fit_projection(data, 64)
        >>> whole = MarginalStatistics(projection).update(data)
        >>> parts = MarginalStatistics(projection).update(data[:1])
        >>> parts = parts.merge(MarginalStatistics(projection).update(data[1:]))
        >>> torch.allclose(whole.products, parts.products)
        True
    """

    projection: Projection
    counts: dict[object, Tensor] = field(default_factory=dict)
    sums: dict[object, Tensor] = field(default_factory=dict)
    products: Tensor = field(default_factory=lambda: torch.zeros(0))

    def __post_init__(self) -> None:
        if not self.products.numel():
            width = sum(self.projection.dims)
            self.products = torch.zeros(width, width, dtype=torch.float64)

    def update(self, data: MultiViewData) -> MarginalStatistics:
        """Add labelled, scaled samples; returns self."""
        mask = torch.from_numpy(data.mask.copy())
        views = [torch.from_numpy(block.copy()).double() for block in data.views.values()]
        rows = self.projection.apply([view.nan_to_num(0.0) for view in views], mask)
        present = mask.double()
        for code, label in enumerate(data.classes.tolist()):
            member = torch.from_numpy(data.codes == code)
            if not bool(member.any()):
                continue
            seen, part = present[member], rows[member]
            count, total = seen.T @ seen, seen.T @ part
            self.counts[label] = self.counts[label] + count if label in self.counts else count
            self.sums[label] = self.sums[label] + total if label in self.sums else total
        self.products = self.products + rows.T @ rows
        return self

    def merge(self, other: MarginalStatistics) -> MarginalStatistics:
        """Statistics of both together, as a new object; both must share one projection."""
        if other.projection.dims != self.projection.dims:
            raise FewviewError("cannot merge statistics that were projected differently")
        out = MarginalStatistics(
            self.projection, dict(self.counts), dict(self.sums), self.products + other.products
        )
        for label in other.counts:
            known = label in out.counts
            out.counts[label] = other.counts[label] + (out.counts[label] if known else 0)
            out.sums[label] = other.sums[label] + (out.sums[label] if known else 0)
        return out

    def moments(self, *, one_class: bool = False) -> Moments:
        """Mean, within-class, between-class and total covariance, unshrunk.

        Args:
            one_class: accept samples of one class, whose between-class covariance is zero.
        """
        if len(self.counts) < (1 if one_class else 2):
            raise FewviewError(
                f"the base set has {len(self.counts)} class(es); how much classes differ can be "
                "learnt from two or more only"
            )
        dims = self.projection.dims
        width = torch.tensor(dims)
        view_of = torch.repeat_interleave(torch.arange(len(dims)), width)  # [d]
        counts = torch.stack(list(self.counts.values()))  # [C, V, V]
        sums = torch.stack(list(self.sums.values()))  # [C, V, d]
        both = counts[:, view_of][:, :, view_of]  # [C, d, d]
        own = counts.diagonal(dim1=1, dim2=2)[:, view_of]  # [C, d] samples that have the view
        # Sum of coordinate j over samples that have the view of coordinate i.
        given = sums[:, view_of]  # [C, d, d]
        means = given.diagonal(dim1=1, dim2=2) / own.clamp(min=1)  # [C, d]
        left, right = means[:, :, None], means[:, None, :]
        explained = left * given + right * given.transpose(1, 2) - both * left * right
        share = both / (own[:, :, None] * own[:, None, :]).clamp(min=1)
        freedom = both - both * (1 / own.clamp(min=1))[:, :, None]
        freedom = freedom - both * (1 / own.clamp(min=1))[:, None, :] + both * share
        within = (self.products - explained.sum(0)) / freedom.sum(0).clamp(min=1)
        known = (own > 0).double()  # [C, d]
        mean = (known * means).sum(0) / known.sum(0).clamp(min=1)
        step = (means - mean) * known
        between = step.T @ step / (known.T @ known - 1).clamp(min=1)
        total_count = both.sum(0)
        total_mean = given.diagonal(dim1=1, dim2=2).sum(0) / own.sum(0).clamp(min=1)
        crossed = given.sum(0)
        total = self.products - total_mean[:, None] * crossed - total_mean[None] * crossed.T
        total = total + total_count * total_mean[:, None] * total_mean[None]
        total = total / total_count.clamp(min=1)
        complete = bool((both == own[:, :, None]).all() and (both == own[:, None, :]).all())
        out = Moments(mean, within, between, total, dims)
        return out if complete else out.repaired()


@dataclass(frozen=True)
class Moments:
    """Unshrunk moments of base classes.

    Attributes:
        mean: mean of class means, [d].
        within: pooled within-class covariance, [d, d].
        between: covariance of class means, [d, d].
        total: covariance of all samples, [d, d].
        dims: components of every view.
    """

    mean: Tensor
    within: Tensor
    between: Tensor
    total: Tensor
    dims: tuple[int, ...]

    def repaired(self) -> Moments:
        """Make every matrix positive semi-definite: pairwise moments need not be."""
        return replace(
            self,
            within=_nearest(self.within, self.dims),
            between=_nearest(self.between, self.dims),
            total=_nearest(self.total, self.dims),
        )

    def shrunk(self, shrinkage: float, prior: float) -> Gaussians:
        """S and B of the model, shrunk view by view so that views do not touch each other.

        S = (1 - a) S + a diag(tr S_vv / d_v), and B = (1 - b) B + b D T' D, where T' is the total
        covariance shrunk as S is, and D scales every view to the size of its block of B.

        Args:
            shrinkage: a, from 0 to 1.
            prior: b, from 0 to 1.
        """
        size = self.block_means(self.total)
        floor = 1e-6 * size.clamp(min=1e-12)
        within = _shrink(self.within, shrinkage, self.block_means(self.within))
        within = within + torch.diag(floor)
        total = _shrink(self.total, shrinkage, size)
        scale = (self.block_means(self.between) / size.clamp(min=1e-12)).clamp(min=0).sqrt()
        between = (1 - prior) * self.between + prior * scale[:, None] * total * scale
        return Gaussians(self.mean, within, between, self.dims)

    def block_means(self, matrix: Tensor) -> Tensor:
        """Mean diagonal entry of the block of every view, at each of its coordinates: [d]."""
        widths = torch.tensor(self.dims)
        return (view_sums(matrix.diagonal(), self.dims) / widths).repeat_interleave(widths)


def _shrink(matrix: Tensor, amount: float, target: Tensor) -> Tensor:
    return (1 - amount) * matrix + amount * torch.diag(target)


def _nearest(matrix: Tensor, dims: tuple[int, ...]) -> Tensor:
    """Clip negative eigenvalues, then give every view its own total variance back."""
    matrix = (matrix + matrix.T) / 2
    values, vectors = torch.linalg.eigh(matrix)
    clipped = (vectors * values.clamp(min=0)) @ vectors.T
    before, after = (view_sums(m.diagonal(), dims).clamp(min=1e-30) for m in (matrix, clipped))
    scale = (before / after).sqrt().repeat_interleave(torch.tensor(dims))
    out: Tensor = scale[:, None] * clipped * scale
    return out
