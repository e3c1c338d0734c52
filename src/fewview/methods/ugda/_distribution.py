"""View distribution estimation and view interpolation.

Every sample looks for its nearest base classes in each view it has; their statistics give it a
Gaussian in every view, missing ones included. A missing view of a query becomes the centre of
that Gaussian.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from fewview.engine._parameters import choose
from fewview.methods.ugda._base_statistics import BaseStatistics
from fewview.numerics._distances import partial_distances

# Entries of a matrix of distances that are made at once.
BLOCK = 1 << 24


@dataclass(frozen=True)
class Neighbours:
    """Which of C base classes speak for every sample, m slots per sample: never a list of all."""

    # int64 [tasks, N, m], positions of base classes in rising order, no class twice; slots that are
    # not used hold C and come last.
    classes: Tensor
    # bool [tasks, N], samples that nothing is known about, for which every class with `available`
    # speaks; their slots are not used.
    everyone: Tensor
    available: Tensor  # bool [C], or [tasks, C] where tasks have base classes of their own

    @property
    def n_classes(self) -> int:
        """Number of base classes, C."""
        return int(self.available.shape[-1])

    @classmethod
    def of(cls, classes: Tensor, available: Tensor) -> Neighbours:
        """Bring positions [tasks, N, m] into order; C stands for none."""
        n_classes = available.shape[-1]
        ordered = classes.sort(dim=-1).values
        twice = torch.zeros_like(ordered, dtype=torch.bool)
        twice[..., 1:] = ordered[..., 1:] == ordered[..., :-1]
        ordered = ordered.masked_fill(twice, n_classes).sort(dim=-1).values
        return cls(ordered, (ordered == n_classes).all(-1), available)

    def of_tasks(self, tasks: slice) -> Neighbours:
        """Those of some of the tasks."""
        own = self.available if self.available.dim() == 1 else self.available[tasks]
        return Neighbours(self.classes[tasks], self.everyone[tasks], own)

    def among(self, available: Tensor) -> Neighbours:
        """Leave only classes that are available; where none is left, all of those."""
        anywhere = available if available.dim() == 1 else available.any(0)
        padded = torch.cat([anywhere, anywhere.new_zeros(1)])
        kept = torch.where(padded[self.classes], self.classes, self.n_classes)
        return Neighbours.of(kept, available)

    def counts(self) -> Tensor:
        """Number of classes that speak, N_J: int64 [tasks, N]."""
        used = (self.classes < self.n_classes).sum(-1)
        return torch.where(self.everyone, self.available.sum(-1)[..., None], used)

    def weights(self, dtype: torch.dtype) -> Tensor:
        """Weight 1 / N_J of every slot in use, [tasks, N, m]."""
        used = (self.classes < self.n_classes).to(dtype)
        return used / used.sum(-1, keepdim=True).clamp(min=1)

    @cached_property
    def somebody_asks_everyone(self) -> bool:
        """Whether there are samples that nothing is known about."""
        return bool(self.everyone.any())

    @cached_property
    def sets(self) -> tuple[Tensor, Tensor]:
        """Different sets of classes that speak for a sample, [S, m], and whose is which, [T N].

        Where tasks have base classes of their own there is one more column: whom "everyone" is.
        """
        asked = self.classes.flatten(0, 1)
        if self.available.dim() == 2:
            first = self.available.int().argmax(-1, keepdim=True)
            who = torch.where(self.everyone, first, self.n_classes).reshape(-1, 1)
            asked = torch.cat([asked, who], dim=1)
        sets, which = torch.unique(asked, dim=0, return_inverse=True)
        return sets, which

    def sums(self, values: Tensor) -> Tensor:
        """Sum of the neighbours' values [C, d]: [tasks, N, d]."""
        total = weighted_rows(
            values, self.classes.flatten(0, 1), (self.classes < self.n_classes).flatten(0, 1)
        )
        total = total.reshape(*self.everyone.shape, -1)
        if self.somebody_asks_everyone:
            everybody = (self.available.to(values) @ values)[..., None, :]
            total = torch.where(self.everyone[..., None], everybody, total)
        return total


def weighted_rows(values: Tensor, places: Tensor, weights: Tensor) -> Tensor:
    """Sums of rows of values [C, d] at places [n, m] with weights; any place where one is 0."""
    out: Tensor = embedding_bag(
        places.clamp(max=len(values) - 1), values, mode="sum", per_sample_weights=weights.to(values)
    )
    return out


@dataclass(frozen=True)
class ViewDistribution:
    """Gaussians of N samples per task in every view."""

    means: tuple[Tensor, ...]  # per view [tasks, N, d]
    # Per view, the base classes J whose covariances are averaged.
    neighbours: tuple[Neighbours, ...]


def retrieve_neighbours(
    views: tuple[Tensor, ...],
    mask: Tensor,
    base: BaseStatistics,
    n_neighbors: int,
    states: Tensor | None = None,
) -> Neighbours:
    """The set J of every sample, of at most k V classes: its nearest k in each view it has.

    Views are [tasks, N, d], their mask [tasks, N, V]; `states` says which of several base sets a
    task has, int64 [tasks].
    """
    found = []
    for v, x in enumerate(views):
        if not base.known[v]:
            continue  # a view that the base set lacks tells nothing about its classes
        # Euclidean distance to class means, Eq. 5 [eq:5]: its square up to a term of the sample,
        # centred for precision.
        middle, centred, lengths = base.centred[v]
        rows = (x - middle).flatten(0, 1)
        own = base.of_tasks(v, states)
        if own.dim() == 2:
            lengths = torch.where(own, lengths, torch.inf)
            lengths = lengths.repeat_interleave(mask.shape[1], dim=0)
        nearest = nearest_rows(rows, centred, lengths, min(n_neighbors, base.known[v]))
        nearest = nearest.reshape(*mask.shape[:2], -1)
        # The k nearest where the view is there, none where it is not, Eq. 7 [eq:6b].
        found.append(torch.where(mask[..., v, None], nearest, base.n_classes))
    # A sample whose views are all unknown to the base set falls back on all base classes.
    nobody = mask.new_zeros(*mask.shape[:2], 0, dtype=torch.int64)
    everyone = torch.ones_like(base.of_tasks(0, states))
    # The union over views, Eq. 6 [eq:6a].
    return Neighbours.of(torch.cat([nobody, *found], dim=-1), everyone)


def nearest_rows(rows: Tensor, points: Tensor, lengths: Tensor, count: int) -> Tensor:
    """Positions, int64 [n, count], of the points with the least |p|^2 - 2 x . p, block by block.

    Rows x are [n, d], points p [C, d], and lengths |p|^2 infinite where one must not be found: [C],
    or [n, C] where rows have points of their own.
    """
    block = max(count, BLOCK // max(len(rows), 1))
    best = rows.new_empty(len(rows), 0)
    where = torch.empty(len(rows), 0, dtype=torch.int64, device=rows.device)
    for start in range(0, len(points), block):
        part = points[start : start + block]
        # lengths - 2 rows @ part', in one pass
        distance = torch.addmm(lengths[..., start : start + block], rows, part.T, alpha=-2)
        value, index = distance.topk(min(count, len(part)), dim=-1, largest=False)
        value, index = torch.cat([best, value], dim=-1), torch.cat([where, index + start], dim=-1)
        best, order = value.topk(min(count, value.shape[-1]), dim=-1, largest=False)
        where = index.gather(-1, order)
    return where


def nearest_classes(
    views: tuple[Tensor, ...], mask: Tensor, base: BaseStatistics, count: int
) -> Tensor:
    """Base classes by distance over all views that a sample and a class both have.

    int64 [tasks, N, min(count, C)], the nearest first; none where no class has any view. The other
    arguments are those of `retrieve_neighbours`.
    """
    if not bool(base.available.any()):
        return mask.new_zeros(*mask.shape[:2], 0, dtype=torch.int64)
    means = [centres.expand(len(mask), -1, -1) for centres in base.means]
    available = base.available.expand(len(mask), -1, -1)
    distance, shared = partial_distances(views, means, mask, available)
    return torch.where(shared, distance, torch.inf).argsort(-1)[..., :count]


def estimate_distribution(
    views: tuple[Tensor, ...],
    mask: Tensor,
    base: BaseStatistics,
    n_neighbors: int,
    mean_rule: str = "paper",
    states: Tensor | None = None,
) -> ViewDistribution:
    """Gaussian of every sample in every view, around its neighbours and itself.

    With the `mean_rule` `"paper"`, an available view averages the sample with its N_J neighbours.
    With `"code"`, as in the authors' released code, the sample has half of the weight whatever N_J
    is. The other arguments are those of `retrieve_neighbours`.
    """
    choose("mean_rule", mean_rule, ("paper", "code"))
    chosen = retrieve_neighbours(views, mask, base, n_neighbors, states)
    means, neighbours = list(views), [chosen] * len(views)
    for together in base.alike:
        has = base.of_tasks(together[0], states)
        # Neighbours that all lack the view: fall back on every base class that has it.
        near = chosen.among(has)
        for v in together:
            neighbours[v] = near
        if not base.known[together[0]]:
            continue  # nothing is known about these views: the sample itself is all there is
        count = near.counts().to(views[0].dtype)[..., None]  # N_J
        widths = [base.means[v].shape[1] for v in together]
        totals = near.sums(torch.cat([base.means[v] for v in together], dim=1))
        for v, total in zip(together, torch.split(totals, widths, dim=-1), strict=True):
            x = views[v]
            centre = total / count  # Eq. 8 [eq:8], where the view is missing; and where it is not:
            known = (x + total) / (count + 1) if mean_rule == "paper" else 0.5 * (x + centre)
            means[v] = torch.where(mask[..., v, None], known, centre)
    return ViewDistribution(tuple(means), tuple(neighbours))


def interpolate(
    views: tuple[Tensor, ...], mask: Tensor, distribution: ViewDistribution
) -> tuple[Tensor, ...]:
    """Fill missing views with the centre of their distribution, Eq. 11 [eq:11]."""
    return tuple(
        torch.where(mask[..., v, None], x, distribution.means[v]) for v, x in enumerate(views)
    )
