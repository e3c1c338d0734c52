"""Dense anchor sampling: N_F draws from the Gaussian of every support in every view.

Draws are exact. The covariance of a sample is an average of class covariances plus a ridge, so
where classes have fewer samples than features, noise in the span of the classes' factors plus
white noise has the right law and no d x d matrix is made; elsewhere the dense covariance of every
different set of neighbours is factorised once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from fewview.methods.ugda._base_statistics import BaseStatistics
from fewview.methods.ugda._distribution import Neighbours, ViewDistribution, weighted_rows
from fewview.numerics._tensor_draws import normal, streams, substreams

# Entries of the factors that are gathered at once, on a CPU and on a GPU.
BLOCK, GPU_BLOCK = 1 << 24, 1 << 26


@dataclass(frozen=True)
class AnchorLaw:
    """What anchors are drawn from: N(mean, covariance + ridge I) around supports, Eq. 10 [eq:10].

    Attributes:
        around: means and neighbours of the supports of some tasks.
        base: base classes, which have the covariances.
        ridge: added to their diagonals.
    """

    around: ViewDistribution
    base: BaseStatistics
    ridge: float

    def draw(self, seeds: Tensor, n_anchors: int, tasks: slice = slice(None)) -> Tensor:
        """Draw N_F anchors for each of N supports of all or some of the tasks, whose seeds are [T].

        All views side by side, [tasks, N * N_F, D]; anchor m belongs to support m // N_F. It
        depends on the seed of its task alone, not on the batch.
        """
        means = [mean[tasks] for mean in self.around.means]
        (n_tasks, n_support), widths = means[0].shape[:2], [mean.shape[2] for mean in means]
        out = means[0].new_empty(n_tasks * n_support, n_anchors, sum(widths))
        supports = torch.arange(n_support, device=out.device)
        for v, (mean, part) in enumerate(zip(means, torch.split(out, widths, dim=2), strict=True)):
            states = streams(seeds[tasks], "anchors", v)[:, None]
            states, shape = substreams(states, supports).reshape(-1), (n_anchors, widths[v])
            if (roots := self.roots[v]) is not None:
                which = roots[1][tasks].flatten()
                noise = normal(states, shape, mean.dtype) @ roots[0].to(mean.dtype)[which]
            else:
                near = self.around.neighbours[v].of_tasks(tasks)
                noise = _factor_noise(near, self.base, v, mean.dtype, states, n_anchors, self.ridge)
            torch.add(noise, mean.reshape(-1, 1, widths[v]), out=part)
        return out.reshape(n_tasks, n_support * n_anchors, -1)

    @cached_property
    def roots(self) -> tuple[tuple[Tensor, Tensor] | None, ...]:
        """Per view factors R [S, d, d], R' R a covariance, and which is a support's, int64 [T, N].

        One for every different set of neighbours; None where class factors are used instead.
        """
        spreads = zip(self.around.neighbours, self.base.covariances, strict=True)
        return tuple(self._roots(near, spread) if spread.numel() else None
                     for near, spread in spreads)  # fmt: skip

    def _roots(self, near: Neighbours, spread: Tensor) -> tuple[Tensor, Tensor]:
        """From covariances of classes [C, d, d]."""
        n_classes, width, _ = spread.shape
        sets, which = near.sets
        places = sets[:, : near.classes.shape[-1]]
        used = (places < n_classes).double()
        # The mean of the neighbours' covariances, Eq. 9 [eq:9]. In float64: covariances of few
        # samples are nearly singular before the ridge is added.
        weights = used / used.sum(-1, keepdim=True).clamp(min=1)
        pooled = weighted_rows(spread.double().flatten(1), places, weights)
        pooled = pooled.reshape(-1, width, width)
        nobody = used.sum(-1) == 0
        for index in nobody.nonzero()[:, 0] if near.somebody_asks_everyone else ():  # then everyone
            task = (which == index).nonzero()[0, 0] // near.classes.shape[1]
            speaking = spread[near.available.expand(len(near.classes), -1)[task]].double()
            pooled[index] = speaking.sum(0) / max(len(speaking), 1)
        return symmetric_root(pooled, self.ridge), which.reshape(near.everyone.shape)


def symmetric_root(covariance: Tensor, ridge: float) -> Tensor:
    """A factor R with R' R = covariance + ridge I, [..., d, d]; any rank, ridge 0 included."""
    eye = torch.eye(covariance.shape[-1], dtype=covariance.dtype, device=covariance.device)
    root: Tensor
    root, failed = torch.linalg.cholesky_ex(covariance + ridge * eye)
    singular = failed > 0
    if bool(singular.any()):
        # Those alone: draws of a task must not depend on who else is in the batch.
        values, vectors = torch.linalg.eigh(covariance[singular])
        root[singular] = vectors * (values.clamp(min=0) + ridge).sqrt()[..., None, :]
    return root.transpose(-1, -2)


def _factor_noise(
    near: Neighbours,
    base: BaseStatistics,
    view: int,
    dtype: torch.dtype,
    states: Tensor,
    n_anchors: int,
    ridge: float,
) -> Tensor:
    """Noise [T N, N_F, d] of the same law, from class factors plus white noise.

    With X_J the factor [r, d] of class J, sum_J N_J^(-1/2) X_J' e_J + ridge^(1/2) e has
    the covariance that `_pooled_roots` factorises, where all e are standard normal.
    """
    spread = base.factors[view].to(dtype)
    n_classes, rank, width = spread.shape
    if ridge > 0:
        noise = normal(streams(states, "ridge"), (n_anchors, width), dtype)
        noise *= ridge**0.5
    else:
        noise = torch.zeros(len(states), n_anchors, width, dtype=dtype, device=states.device)
    if rank == 0:
        return noise

    def add(rows: Tensor | slice, places: Tensor, scale: Tensor, factors: Tensor) -> None:
        """Noise in the span of one class per row; draws depend on state and class alone."""
        keys = substreams(states[rows], base.numbers(places))
        white = normal(keys, (n_anchors, rank), dtype) * scale[:, None, None]
        if isinstance(rows, slice):
            noise[rows].baddbmm_(white, factors)
        else:
            noise.index_add_(0, rows, white @ factors)

    classes, weights = near.classes.flatten(0, 1), near.weights(dtype).flatten(0, 1)
    block = GPU_BLOCK if states.is_cuda else BLOCK
    for slot in range(classes.shape[1]):
        rows = torch.nonzero(classes[:, slot] < n_classes).flatten()
        size = max(1, block // (rank * width))
        parts: Sequence[Tensor | slice] = torch.split(rows, size)
        if len(rows) == len(classes):  # all of them, as nearly always: no copies
            parts = [slice(start, start + size) for start in range(0, len(rows), size)]
        for part in parts:
            place = classes[part, slot]
            add(part, place, weights[part, slot].sqrt(), spread[place])
    rows = torch.nonzero(near.everyone.flatten()).flatten()
    if len(rows):
        known = near.available.expand(len(near.classes), -1)[rows // near.classes.shape[1]]
        share = 1 / known.sum(-1).clamp(min=1).to(dtype)
        for place in torch.nonzero(known.any(0)).flatten():
            here = known[:, place].nonzero()[:, 0]
            add(rows[here], place.expand(len(here)), share[here].sqrt(), spread[place])
    return noise
