"""A Gaussian for every sample in every view, from its nearest base classes; gaps of queries.

Which base classes speak for a sample is a boolean table [tasks, N, C].
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from fewview.methods.ugda.statistics import BaseStatistics
from fewview.numerics.distances import partial_distances

Views = tuple[Tensor, ...]  # per view [tasks, N, d]


@dataclass(frozen=True)
class ViewDistribution:
    """Gaussians of N samples per task in every view."""

    means: Views  # per view [tasks, N, d]
    near: Views  # per view bool [tasks, N, C]: base classes J whose covariances are averaged


def nearest_classes(views: Views, mask: Tensor, base: BaseStatistics, k: int) -> Tensor:
    """The set J of every sample, bool [tasks, N, C]: its k nearest classes in each view it has.

    The mask is [tasks, N, V]. A sample whose views are all unknown to the base set has everyone.
    """
    near = mask.new_zeros(*mask.shape[:2], len(base.available))
    for v, x in enumerate(views):
        has = base.available[:, v]
        if not bool(has.any()):
            continue  # a view that the base set lacks tells nothing about its classes
        # Euclidean distance to class means, Eq. 5 [eq:5]: its square up to a term of the sample,
        # about the mean of the class means, which keeps rounding at the size of their spread.
        middle = base.means[v][has].mean(0)
        centred = base.means[v] - middle
        lengths = centred.square().sum(-1).masked_fill(~has, torch.inf)
        far = torch.addmm(lengths, (x - middle).flatten(0, 1), centred.T, alpha=-2)  # [T N, C]
        nearest = far.topk(min(k, int(has.sum())), dim=-1, largest=False).indices
        found = torch.zeros_like(far, dtype=torch.bool).scatter(-1, nearest, True)
        # The k nearest where the view is there, Eq. 7 [eq:6b]; their union, Eq. 6 [eq:6a].
        near |= found.reshape(near.shape) & mask[..., v, None]
    return near | ~near.any(-1, keepdim=True)


def estimate(
    views: Views, mask: Tensor, base: BaseStatistics, k: int, mean_rule: str = "paper"
) -> ViewDistribution:
    """Gaussian of every sample in every view, around its neighbours and itself.

    With the `mean_rule` `"paper"`, an available view averages the sample with its N_J neighbours.
    With `"code"`, as in the authors' released code, the sample has half of the weight.
    """
    chosen, means, neighbours = nearest_classes(views, mask, base, k), [], []
    for v, x in enumerate(views):
        has = base.available[:, v]
        near = chosen & has
        # Where all neighbours lack the view, every class that has it is asked.
        near = near | (has & ~near.any(-1, keepdim=True))
        neighbours.append(near)
        count = near.sum(-1, keepdim=True).clamp(min=1).to(x.dtype)  # N_J
        total = sum_over(near, base.means[v])
        centre = total / count  # Eq. 8 [eq:8], where the view is missing; and where it is not:
        known = (x + total) / (count + 1) if mean_rule == "paper" else 0.5 * (x + centre)
        # Of a view that the base set lacks, the sample itself is all that is known.
        means.append(torch.where(mask[..., v, None], known, centre) if bool(has.any()) else x)
    return ViewDistribution(tuple(means), tuple(neighbours))


def interpolate(views: Views, mask: Tensor, found: ViewDistribution) -> Tensor:
    """Missing views filled with the centre of their distribution, Eq. 11 [eq:11]: [tasks, N, D]."""
    filled = (torch.where(mask[..., v, None], x, found.means[v]) for v, x in enumerate(views))
    return torch.cat(tuple(filled), dim=-1)


def sum_over(near: Tensor, values: Tensor) -> Tensor:
    """Sums of the values [C, d] of those who are near [..., C]: [..., d]."""
    places = near.flatten(0, -2).nonzero()[:, 1]
    ends = near.sum(-1).flatten().cumsum(0)
    starts = torch.cat([ends.new_zeros(1), ends[:-1]])
    return embedding_bag(places, values, starts, mode="sum").reshape(*near.shape[:-1], -1)


def closest_classes(views: Views, mask: Tensor, base: BaseStatistics, count: int) -> Tensor:
    """Base classes by distance over all views that a sample and a class both have.

    int64 [tasks, N, min(count, C)], the nearest first; none where no class has any view.
    """
    if not bool(base.available.any()):
        return mask.new_zeros(*mask.shape[:2], 0, dtype=torch.int64)
    means = [centres.expand(len(mask), -1, -1) for centres in base.means]
    available = base.available.expand(len(mask), -1, -1)
    distance, shared = partial_distances(views, means, mask, available)
    return torch.where(shared, distance, torch.inf).argsort(-1)[..., :count]
