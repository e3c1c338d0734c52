"""View distribution estimation and view interpolation (Eqs. 5 to 9 and 11).

Every sample looks for its nearest base classes in each view it has; their statistics give it a
Gaussian in every view, missing ones included. A missing view of a query becomes the centre of
that Gaussian.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fewview.methods.ugda.statistics import BaseStatistics
from fewview.views import FewviewError


@dataclass(frozen=True)
class ViewDistribution:
    """Gaussians of N samples per task in every view.

    Attributes:
        means: per view [tasks, N, d], Eq. 8 [eq:8].
        neighbours: per view [tasks, N, C], weight 1/N_J on the base classes whose covariances are
            averaged (Eq. 9 [eq:9]), zero elsewhere.
    """

    means: tuple[Tensor, ...]
    neighbours: tuple[Tensor, ...]


def retrieve_neighbours(
    views: tuple[Tensor, ...], mask: Tensor, base: BaseStatistics, n_neighbors: int
) -> Tensor:
    """Union over available views of the nearest base classes, Eqs. 5 to 7 [eq:5, eq:6a, eq:6b].

    Args:
        views: per view [tasks, N, d].
        mask: bool [tasks, N, V].
        base: statistics of C base classes.
        n_neighbors: k, base classes per available view.

    Returns:
        bool [tasks, N, C], the set J of every sample.
    """
    chosen = torch.zeros(*mask.shape[:2], base.n_classes, dtype=torch.bool, device=mask.device)
    for v, x in enumerate(views):
        has = base.available[:, v]
        if not bool(has.any()):
            continue  # a view that the base set lacks tells nothing about its classes
        # Squared Euclidean distance up to a term of the sample, centred for precision.
        middle = base.means[v][has].mean(0)
        centred = base.means[v] - middle
        distance = (centred * centred).sum(-1) - 2 * (x - middle) @ centred.T  # [T, N, C]
        distance = distance.masked_fill(~has, float("inf"))
        k = min(n_neighbors, int(has.sum()))
        nearest = distance.topk(k, dim=-1, largest=False).indices
        here = torch.zeros_like(chosen).scatter_(-1, nearest, True)
        chosen |= here & mask[..., v, None]
    # A sample whose views are all unknown to the base set falls back on all base classes.
    return chosen | ~chosen.any(-1, keepdim=True)


def estimate_distribution(
    views: tuple[Tensor, ...],
    mask: Tensor,
    base: BaseStatistics,
    n_neighbors: int,
    mean_rule: str = "paper",
) -> ViewDistribution:
    """Gaussian of every sample in every view, Eqs. 8 and 9 [eq:8, eq:9].

    Args:
        views: per view [tasks, N, d].
        mask: bool [tasks, N, V].
        base: statistics of C base classes.
        n_neighbors: k.
        mean_rule: `"paper"`: an available view averages the sample with its N_J neighbours,
            (x + sum of means) / (N_J + 1). `"code"`: the authors' released code gives the sample
            half of the weight whatever N_J is.
    """
    chosen = retrieve_neighbours(views, mask, base, n_neighbors)
    means, neighbours = [], []
    for v, x in enumerate(views):
        has = base.available[:, v]
        if not bool(has.any()):
            # Nothing is known about this view: the sample itself is all there is.
            means.append(x)
            neighbours.append(torch.zeros_like(chosen, dtype=x.dtype))
            continue
        usable = chosen & has
        # Neighbours that all lack the view: fall back on every base class that has it.
        usable = torch.where(usable.any(-1, keepdim=True), usable, has)
        weight = usable.to(x.dtype)
        count = weight.sum(-1, keepdim=True)  # N_J
        total = weight @ base.means[v]  # sum of neighbours' means
        centre = total / count
        if mean_rule == "paper":
            known = (x + total) / (count + 1)
        elif mean_rule == "code":
            known = 0.5 * (x + centre)
        else:
            raise FewviewError(f"mean_rule is {mean_rule!r}; it must be one of paper, code")
        means.append(torch.where(mask[..., v, None], known, centre))
        neighbours.append(weight / count)
    return ViewDistribution(tuple(means), tuple(neighbours))


def interpolate(
    views: tuple[Tensor, ...], mask: Tensor, distribution: ViewDistribution
) -> tuple[Tensor, ...]:
    """Fill missing views with the centre of their distribution, Eq. 11 [eq:11].

    Returns:
        Per view [tasks, N, d], without gaps.
    """
    return tuple(
        torch.where(mask[..., v, None], x, distribution.means[v]) for v, x in enumerate(views)
    )
