"""Moments of base classes, gathered in one pass, in parts or merged, and S and B made from them.

`MarginalStatistics` holds sums only: per class [views, d] and one pooled [d, d] matrix, so that it
merges exactly and its memory grows with classes x views x components. Samples may lack views:
every pair of views is estimated from the samples that have both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fewview.errors import FewviewError
from fewview.methods.marginal._model import Gaussians, view_sums
from fewview.methods.marginal._projection import Projection
from fewview.numerics.iterate import map_tensors
from fewview.numerics.principal import products
from fewview.samples._data import MultiViewData

# Samples that are projected at once: what stays in the caches of a CPU; a GPU has none to mind.
ROWS, GPU_ROWS = 1024, 1 << 16
# Share of a sphere in what S is pulled to; the rest is its own diagonal.
SPHERE = 0.125
# How far correlations of samples are pulled to zero before they stand for those of class means.
INDEPENDENCE = 0.1


@dataclass
class MarginalStatistics:
    """Sums over projected base samples; `update` and `merge` in any order.

    Attributes:
        projection: frozen preprocessing of the (scaled) samples.
        labels: the classes seen so far, C of them, in the order they were first seen.
        counts: samples that have both views, float64 [C, V, V].
        sums: sums of coordinates over samples that also have view v, float64 [C, V, d].
        products: sum of x x' over all classes, float64 [d, d], missing coordinates being zero.
        device: where sums are taken and kept.

    Example:
        >>> from fewview.methods.marginal._projection import fit_projection
        >>> data = MultiViewData({"a": [[0.0], [2.0], [5.0]]}, labels=["x", "x", "y"])
        >>> projection = fit_projection(data, 64)
        >>> whole = MarginalStatistics(projection).update(data)
        >>> parts = MarginalStatistics(projection).update(data[:1])
        >>> parts = parts.merge(MarginalStatistics(projection).update(data[1:]))
        >>> torch.allclose(whole.products, parts.products)
        True
    """

    projection: Projection
    labels: list[Any] = field(default_factory=list)
    counts: Tensor = field(default_factory=lambda: torch.zeros(0))
    sums: Tensor = field(default_factory=lambda: torch.zeros(0))
    products: Tensor = field(default_factory=lambda: torch.zeros(0))
    device: Any = "cpu"

    def __post_init__(self) -> None:
        if not self.products.numel():
            n_views, width = len(self.projection.dims), sum(self.projection.dims)
            sizes = ((0, n_views, n_views), (0, n_views, width), (width, width))
            self.counts, self.sums, self.products = (
                torch.zeros(size, dtype=torch.float64, device=self.device) for size in sizes
            )

    def update(self, data: MultiViewData) -> MarginalStatistics:
        """Add labelled, scaled samples, projected in their own dtype and summed in float64."""
        places = self._places(data.classes.tolist())[torch.tensor(data.codes)].to(self.device)
        mask = torch.tensor(data.mask, device=self.device)
        blocks = list(data.views.values())
        kinds = [torch.tensor(block[:0], device=self.device) for block in blocks]
        axes, shifts = (
            [part.to(kind) for part, kind in zip(parts, kinds, strict=True)]
            for parts in (self.projection.axes, self.projection.shift)
        )
        size = GPU_ROWS if self.products.is_cuda else ROWS
        for start in range(0, len(data), size):
            part = slice(start, start + size)
            rows = []
            for view, block in enumerate(blocks):
                there = torch.tensor(block[part], device=self.device)
                row = (there @ axes[view] - shifts[view]).double()
                rows.append(row.where(mask[part, view, None], 0.0))
            self._add(torch.cat(rows, dim=1), mask[part], places[part])
        return self

    def _add(self, rows: Tensor, mask: Tensor, place: Tensor) -> None:
        """Add projected rows [n, d], mask [n, V], classes [n]."""
        self.products += products(rows)
        # Sorted, the rows of a class are one stretch, which is summed at once, in their order.
        order = place.argsort(stable=True)
        classes, lengths = torch.unique_consecutive(place[order], return_counts=True)
        rows, seen = rows[order], mask[order].double()
        for view in range(mask.shape[1]):
            for total, part in ((self.counts, seen), (self.sums, rows)):
                those = part * seen[:, view, None]
                total[classes, view] += torch.segment_reduce(those, "sum", lengths=lengths)

    def merge(self, other: MarginalStatistics) -> MarginalStatistics:
        """Statistics of both together, as a new object; both must share one projection."""
        if other.projection.dims != self.projection.dims:
            raise FewviewError("cannot merge statistics that were projected differently")
        out = deepcopy(self)
        out.products += other.products
        place = out._places(other.labels)
        out.counts.index_add_(0, place, other.counts)
        out.sums.index_add_(0, place, other.sums)
        return out

    def _places(self, labels: Sequence[Any]) -> Tensor:
        """Positions of classes, int64; classes not seen before get places at the end."""
        known = {label: place for place, label in enumerate(self.labels)}
        new = [label for label in labels if label not in known]
        if new:
            known.update({label: len(known) + index for index, label in enumerate(new)})
            self.labels = [*self.labels, *new]
            self.counts, self.sums = (
                torch.cat([part, part.new_zeros(len(new), *part.shape[1:])])
                for part in (self.counts, self.sums)
            )
        return torch.tensor([known[label] for label in labels], dtype=torch.int64)

    def moments(self, *, one_class: bool = False) -> Moments:
        """Mean and unshrunk covariances: within classes, between (zero of `one_class`), total.

        Computed where the sums are; the answer is on the CPU.
        """
        if len(self.labels) < (1 if one_class else 2):
            raise FewviewError(
                f"the base set has {len(self.labels)} class(es); how much classes differ can be "
                "learnt from two or more only"
            )
        dims = self.projection.dims
        view_of = torch.arange(len(dims)).repeat_interleave(torch.tensor(dims)).to(self.device)
        own = self.counts.diagonal(dim1=1, dim2=2)  # [C, V] samples that have the view
        least = own.clamp(min=1)
        own_sums = self.sums.gather(1, view_of.expand(len(own), 1, -1))[:, 0]  # [C, d]
        means = own_sums / least[:, view_of]
        known = (own > 0).double()
        mean = (known[:, view_of] * means).sum(0) / known.sum(0).clamp(min=1)[view_of]
        step = (means - mean) * known[:, view_of]
        pairs = (known.T @ known - 1).clamp(min=1)
        between = step.T @ step / pairs[view_of][:, view_of]
        total_mean = own_sums.sum(0) / own.sum(0).clamp(min=1)[view_of]
        within, total = self.products.clone(), self.products.clone()
        complete = bool((self.counts == own[:, :, None]).all())
        ends = np.cumsum(dims).tolist()
        parts = [slice(end - width, end) for width, end in zip(dims, ends, strict=True)]
        if complete:  # all views are seen together, as one
            parts = [slice(0, sum(dims))]
        # Pair by pair of views, so that nothing of size classes x d x d is made.
        for a, left in enumerate(parts):
            for b, right in enumerate(parts):
                n = self.counts[:, a, b, None]  # [C, 1]
                sums_left, sums_right = self.sums[:, b, left], self.sums[:, a, right]
                m, w = means[:, left], means[:, right]
                explained = m.T @ sums_right + sums_left.T @ w - m.T @ (n * w)
                first, second = least[:, a, None], least[:, b, None]
                freedom = n * (1 - 1 / first - 1 / second + n / (first * second))
                block = (left, right)
                within[block] = (within[block] - explained) / freedom.sum().clamp(min=1)
                m, w = total_mean[left, None], total_mean[None, right]
                explained = m * sums_right.sum(0) + sums_left.sum(0)[:, None] * w - n.sum() * m * w
                total[block] = (total[block] - explained) / n.sum().clamp(min=1)
        out = Moments(mean, within, between, total, dims, known.sum(0), own.sum(0))
        # Moments of pairs of views need not be positive semi-definite.
        if not complete:
            out = out.changed(lambda matrix: _nearest(matrix, dims))
        return map_tensors(out, lambda tensor: tensor.cpu())


@dataclass(frozen=True)
class Moments:
    """Unshrunk moments of base classes."""

    mean: Tensor  # mean of class means, [d]
    within: Tensor  # pooled within-class covariance, [d, d]
    between: Tensor  # covariance of class means, [d, d]
    total: Tensor  # covariance of all samples, [d, d]
    dims: tuple[int, ...]  # components of every view
    classes: Tensor  # how many classes have every view, [V]
    rows: Tensor  # how many samples have it, [V]

    def changed(self, change: Callable[[Tensor], Tensor], **more: Any) -> Moments:
        """The same with every matrix changed."""
        matrices = ("within", "between", "total")
        found: dict[str, Any] = {name: change(getattr(self, name)) for name in matrices}
        return replace(self, **found, **more)

    def shrunk(self, shrinkage: float, prior: float, prior_detail: float = 0.5) -> Gaussians:
        """S and B of the model, shrunk view by view so that views do not touch each other.

        S = (1 - a) S + a (7/8 diag S + 1/8 diag(tr S_vv / d_v)), in principal components: pulling
        all of them to one sphere would make those with little variance worthless. B = (1 - b) B +
        b D R D, where R are the correlations of all samples, a tenth of the way to none, which tell
        what a class mean in one view says about other views, and D how far class means lie apart
        in every component, see `apart`. A millionth of the total variance keeps S invertible; in a
        view that hardly varies within any of C classes (categories), S has at least one part in the
        geometric mean of C and the number of samples: the next class may be the first in which it
        does. The shrinkage a, the prior b and its detail are from 0 to 1.
        """
        size, mean = self.block_means(self.total).clamp(min=1e-12), self.block_means(self.within)
        count = (self.classes * self.rows).clamp(min=1).sqrt()
        least = size / count.repeat_interleave(torch.tensor(self.dims)) - mean
        target = (1 - SPHERE) * self.within.diagonal() + SPHERE * mean
        within = _shrink(self.within, shrinkage, target)
        within = within + torch.diag(torch.maximum(1e-6 * size, least))
        root = self.total.diagonal().clamp(min=1e-12).sqrt()
        correlations = self.total / root[:, None] / root
        correlations = _shrink(correlations, INDEPENDENCE, torch.ones_like(root))
        apart = self.apart(prior_detail).sqrt()
        between = (1 - prior) * self.between + prior * apart[:, None] * correlations * apart
        return Gaussians(self.mean, within, between, self.dims)

    def apart(self, detail: float) -> Tensor:
        """Variance of class means in every component, [d], from what base classes tell about it.

        Without detail, components differ as much between classes as they do between samples, and
        a view has the variance of its block of B. With all of it, a component has its own. With C
        base classes the logarithm of that has the error trigamma((C - 1) / 2) even if nothing else
        were wrong, so the ratios to the variances of samples are pulled to their mean in the view
        as far as this error explains how they differ (empirical Bayes); of their logarithms the
        share `detail` is kept.
        """
        spread = self.total.diagonal().clamp(min=1e-12)
        between = self.between.diagonal().clamp(min=0)
        out = []
        for view, (found, all_of_it) in enumerate(
            zip(*(torch.split(part, list(self.dims)) for part in (between, spread)), strict=True)
        ):
            ratios = (found / all_of_it).clamp(min=1e-4).log()
            trust = 0.0
            if len(ratios) > 1:
                freedom = (self.classes[view] - 1).clamp(min=1) / 2
                error = float(torch.polygamma(1, freedom))
                trust = max(0.0, 1 - error / max(float(ratios.var()), 1e-12))
            variance = (detail * trust * (ratios - ratios.mean())).exp() * all_of_it
            out.append(variance * (found.sum() / variance.sum()))
        return torch.cat(out)

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
    scale = (before / after).sqrt().repeat_interleave(torch.tensor(dims, device=matrix.device))
    out: Tensor = scale[:, None] * clipped * scale
    return out
