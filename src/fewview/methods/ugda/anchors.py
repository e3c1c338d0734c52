"""Dense anchor sampling: N_F draws from the Gaussian of every support in every view (Eq. 10).

Draws are exact. The covariance of a sample is an average of class covariances plus a ridge, so
where classes have fewer samples than features, noise in the span of the classes' factors plus
white noise has the right law and no d x d matrix is made; elsewhere the dense covariance of every
different set of neighbours is factorised once.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fewview.methods.random import normal, streams, substreams
from fewview.methods.ugda.distribution import ViewDistribution
from fewview.methods.ugda.statistics import BaseStatistics


def sample_anchors(
    distribution: ViewDistribution,
    base: BaseStatistics,
    seeds: Tensor,
    n_anchors: int,
    ridge: float,
) -> tuple[Tensor, ...]:
    """Draw anchors from N(mean, covariance + ridge I), Eq. 10 [eq:10].

    Args:
        distribution: Gaussians of the N supports of every task.
        base: statistics of the base classes.
        seeds: int64 [tasks]; anchors depend on the task alone, not on the batch.
        n_anchors: N_F, draws per support and view.
        ridge: variance added to every feature.

    Returns:
        Per view [tasks, N * N_F, d]; anchor m belongs to support m // N_F.
    """
    out = []
    for v, mean in enumerate(distribution.means):
        n_tasks, n_support, width = mean.shape
        supports = torch.arange(n_support, device=mean.device)
        states = substreams(streams(seeds, "anchors", v)[:, None], supports)  # [T, N]
        weights = distribution.neighbours[v]
        if base.covariances[v].numel():
            anchors = _dense_noise(weights, base.covariances[v], states, n_anchors, ridge)
        else:
            anchors = _factor_noise(weights, base.factors[v], states, n_anchors, ridge, width)
        anchors += mean[:, :, None]
        out.append(anchors.reshape(n_tasks, n_support * n_anchors, width))
    return tuple(out)


def _dense_noise(
    weights: Tensor, covariances: Tensor, states: Tensor, n_anchors: int, ridge: float
) -> Tensor:
    """Noise [T, N, N_F, d] through one factorisation per different set of neighbours."""
    n_classes, width, _ = covariances.shape
    flat = weights.reshape(-1, n_classes)
    sets, which = torch.unique(flat, dim=0, return_inverse=True)
    # float64: covariances of few samples are nearly singular before the ridge is added.
    pooled = (sets.double() @ covariances.double().reshape(n_classes, -1)).reshape(-1, width, width)
    root = symmetric_root(pooled, ridge).to(weights.dtype)
    white = normal(states.reshape(-1), (n_anchors, width), weights.dtype)
    noise = white @ root[which]
    return noise.reshape(*weights.shape[:2], n_anchors, width)


def symmetric_root(covariance: Tensor, ridge: float) -> Tensor:
    """A factor R with R' R = covariance + ridge I, [..., d, d]; any rank, ridge 0 included.

    Example:
        >>> symmetric_root(torch.eye(2, dtype=torch.float64) * 3, 1.0).diagonal().tolist()
        [2.0, 2.0]
    """
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
    weights: Tensor, factors: Tensor, states: Tensor, n_anchors: int, ridge: float, width: int
) -> Tensor:
    """Noise [T, N, N_F, d] from class factors plus white noise, methods.md 14.4."""
    n_classes, rank, _ = factors.shape
    flat = weights.reshape(-1, n_classes)
    flat_states = states.reshape(-1)
    if ridge > 0:
        noise = normal(streams(flat_states, "ridge"), (n_anchors, width), weights.dtype)
        noise *= ridge**0.5
    else:
        noise = weights.new_zeros(flat.shape[0], n_anchors, width)
    used = torch.nonzero((flat > 0).any(0)).flatten().tolist()
    for c in used:
        rows = torch.nonzero(flat[:, c] > 0).flatten()
        index = torch.full_like(rows, c)
        white = normal(substreams(flat_states[rows], index), (n_anchors, rank), weights.dtype)
        white *= flat[rows, c].sqrt()[:, None, None]
        noise.index_add_(0, rows, white @ factors[c])
    return noise.reshape(*weights.shape[:2], n_anchors, width)
