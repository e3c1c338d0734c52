"""Dense anchor sampling: N_F draws from the Gaussian of every support in every view.

Draws are exact. The covariance of a sample is an average of class covariances plus a ridge, so
where classes have fewer samples than features, noise in the span of the classes' factors plus
white noise has the right law and no d x d matrix is made; elsewhere the dense covariance of every
different set of neighbours is factorised once.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fewview.methods.ugda._base_statistics import BaseStatistics
from fewview.methods.ugda._distribution import Neighbours, ViewDistribution, weighted_rows
from fewview.numerics._tensor_draws import normal, streams, substreams

# Entries of the factors that are gathered at once.
BLOCK = 1 << 24


def sample_anchors(
    around: ViewDistribution, base: BaseStatistics, seeds: Tensor, n_anchors: int, ridge: float
) -> Tensor:
    """Draw anchors from N(mean, covariance + ridge I), Eq. 10 [eq:10].

    All views side by side, [tasks, N * N_F, D]; anchor m belongs to support m // N_F. It depends on
    the seed of its task alone, not on the batch.
    """
    n_tasks, n_support = around.means[0].shape[:2]
    widths = [mean.shape[2] for mean in around.means]
    out = around.means[0].new_empty(n_tasks * n_support, n_anchors, sum(widths))
    parts = torch.split(out, widths, dim=2)
    supports = torch.arange(n_support, device=out.device)
    for v, (mean, part) in enumerate(zip(around.means, parts, strict=True)):
        width = widths[v]
        states = substreams(streams(seeds, "anchors", v)[:, None], supports).reshape(-1)  # [T N]
        near, shape = around.neighbours[v], (n_anchors, width)
        if base.covariances[v].numel():
            noise = normal(states, shape, mean.dtype)
            noise = noise @ _pooled_roots(near, base.covariances[v], ridge, mean.dtype)
        else:
            noise = _factor_noise(near, base, v, mean.dtype, states, n_anchors, ridge)
        torch.add(noise, mean.reshape(-1, 1, width), out=part)
    return out.reshape(n_tasks, n_support * n_anchors, -1)


def _pooled_roots(near: Neighbours, spread: Tensor, ridge: float, dtype: torch.dtype) -> Tensor:
    """Factors R [T N, d, d], R' R the covariance of a sample, from those of classes [C, d, d].

    One factorisation per different set of neighbours.
    """
    n_classes, width, _ = spread.shape
    sets, which = near.sets
    places = sets[:, : near.classes.shape[-1]]
    used = (places < n_classes).double()
    # The mean of the neighbours' covariances, Eq. 9 [eq:9]. In float64: covariances of few samples
    # are nearly singular before the ridge is added.
    weights = used / used.sum(-1, keepdim=True).clamp(min=1)
    pooled = weighted_rows(spread.double().flatten(1), places, weights)
    pooled = pooled.reshape(-1, width, width)
    nobody = used.sum(-1) == 0
    for index in nobody.nonzero()[:, 0] if near.somebody_asks_everyone else ():  # then everyone
        task = (which == index).nonzero()[0, 0] // near.classes.shape[1]
        speaking = spread[near.available.expand(len(near.classes), -1)[task]].double()
        pooled[index] = speaking.sum(0) / max(len(speaking), 1)
    return symmetric_root(pooled, ridge).to(dtype)[which]


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

    def add(rows: Tensor, places: Tensor, scale: Tensor, factors: Tensor) -> None:
        """Noise in the span of one class per row; draws depend on state and class alone."""
        keys = substreams(states[rows], base.numbers(places))
        white = normal(keys, (n_anchors, rank), dtype)
        noise.index_add_(0, rows, (white * scale[:, None, None]) @ factors)

    classes, weights = near.classes.flatten(0, 1), near.weights(dtype).flatten(0, 1)
    for slot in range(classes.shape[1]):
        rows = torch.nonzero(classes[:, slot] < n_classes).flatten()
        for part in torch.split(rows, max(1, BLOCK // (rank * width))):
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
