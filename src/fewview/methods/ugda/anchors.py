"""Dense anchor sampling: N_F draws from the Gaussian of every support in every view.

Draws are exact. The covariance of a support is an average over base classes plus a ridge. Where
classes have fewer samples than features, noise in the span of their factors plus white noise has
that law, and no d x d matrix is made; elsewhere it is factorised once for every different set of
neighbours.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fewview.methods.ugda.distribution import ViewDistribution, sum_over
from fewview.methods.ugda.statistics import BaseStatistics
from fewview.numerics.tensor_random import normal, streams, substreams


def draw_anchors(
    found: ViewDistribution, base: BaseStatistics, seeds: Tensor, n_anchors: int, ridge: float
) -> Tensor:
    """Draw from N(mean, covariance + ridge I), Eq. 10 [eq:10]: [tasks, N * N_F, D].

    All views side by side; anchor m is of support m // N_F. Random numbers are keyed by the seed of
    the task [tasks], the view, the support and the class, so they do not depend on the batch.
    """
    n_tasks, n_support = found.means[0].shape[:2]
    supports = torch.arange(n_support, device=seeds.device)
    widths = [mean.shape[-1] for mean in found.means]
    out = found.means[0].new_empty(n_tasks * n_support, n_anchors, sum(widths))
    for v, part in enumerate(torch.split(out, widths, dim=-1)):
        mean, near = found.means[v].flatten(0, 1), found.near[v].flatten(0, 1)  # [T N, d], [T N, C]
        states = substreams(streams(seeds, "anchors", v)[:, None], supports).flatten()
        dense = base.covariances[v].numel() > 0
        draw, spread = (dense_noise, base.covariances) if dense else (factor_noise, base.factors)
        torch.add(draw(near, spread[v], states, n_anchors, ridge), mean[:, None], out=part)
    return out.reshape(n_tasks, n_support * n_anchors, -1)


def dense_noise(
    near: Tensor, covariances: Tensor, states: Tensor, n_anchors: int, ridge: float
) -> Tensor:
    """Noise [n, N_F, d] of the mean covariance of the neighbours [n, C]."""
    width, dtype = covariances.shape[-1], covariances.dtype
    sets, which = torch.unique(near, dim=0, return_inverse=True)
    # The mean of the neighbours' covariances, Eq. 9 [eq:9]. In float64: covariances of few samples
    # are nearly singular before the ridge is added.
    count = sets.sum(-1, keepdim=True).clamp(min=1)
    pooled = sum_over(sets, covariances.double().flatten(1)) / count
    roots = symmetric_root(pooled.reshape(-1, width, width), ridge).to(dtype)
    return normal(states, (n_anchors, width), dtype) @ roots[which]


def factor_noise(
    near: Tensor, factors: Tensor, states: Tensor, n_anchors: int, ridge: float
) -> Tensor:
    """Noise [n, N_F, d] of the same law, from factors [C, r, d] of the covariances.

    With X_J the factor of class J it is sum_J N_J^(-1/2) X_J' e_J + ridge^(1/2) e, where all e are
    standard normal.
    """
    (_, rank, width), dtype = factors.shape, factors.dtype
    if ridge > 0:
        noise = normal(streams(states, "ridge"), (n_anchors, width), dtype).mul_(ridge**0.5)
    else:
        noise = factors.new_zeros(len(near), n_anchors, width)
    if not rank:  # no class has any view
        return noise
    count = near.sum(-1)
    scale = (1 / count.to(dtype)).sqrt()
    rows, classes = near.nonzero(as_tuple=True)
    turn = torch.arange(len(rows), device=rows.device) - (count.cumsum(0) - count)[rows]
    size = max(1, (1 << (26 if near.is_cuda else 24)) // (rank * width))  # factors gathered at once
    for slot in range(int(count.max())):  # the first neighbour of all, the second, ...
        for chosen in torch.split((turn == slot).nonzero()[:, 0], size):
            row, place = rows[chosen], classes[chosen]
            white = normal(substreams(states[row], place), (n_anchors, rank), dtype)
            white *= scale[row, None, None]
            noise.index_add_(0, row, white @ factors[place])
    return noise


def symmetric_root(covariance: Tensor, ridge: float) -> Tensor:
    """A factor R with R' R = covariance + ridge I, [..., d, d]; any rank, ridge 0 included."""
    eye = torch.eye(covariance.shape[-1], dtype=covariance.dtype, device=covariance.device)
    root: Tensor
    root, failed = torch.linalg.cholesky_ex(covariance + ridge * eye)
    singular = failed > 0
    if bool(singular.any()):  # those alone: draws of a task must not depend on the batch
        values, vectors = torch.linalg.eigh(covariance[singular])
        root[singular] = vectors * (values.clamp(min=0) + ridge).sqrt()[..., None, :]
    return root.mT
