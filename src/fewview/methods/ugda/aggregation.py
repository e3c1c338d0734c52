"""Inverse aggregation solved exactly: latent anchors and queries in one step.

The aggregation loss (Eq. 12 [eq:12]) is a linear factorisation of the anchors, so its minimum is
known: with orthonormal evaluator weights the latent anchors are the principal component scores of
the anchors and the latent queries are their projections. At full width the loss is zero and any
isometry of the anchors' affine span does; a Cholesky factor of their Gram matrix is the cheapest.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

# Rounding errors of Cholesky coordinates above which the next better way is taken: float64 after
# float32, and then eigenvectors, which drop directions of less than 1e-6 of the largest extent.
PRECISION = {torch.float32: 1e-3, torch.float64: 1e-2}


def aggregate_exactly(
    anchors: Tensor, queries: Tensor, latent_dim: int | None, full_rank: bool
) -> tuple[Tensor, Tensor]:
    """Latent anchors that minimise the aggregation loss, and then the queries' likewise.

    Anchors [tasks, M, D] and queries [tasks, N_Q, D] become r <= min(M, D, L) wide, with the same
    inner products about the anchors' mean as the best approximation of width L. With `full_rank`
    anchors carry noise in every direction (ridge > 0): the span of more than D is everything.
    """
    n_anchors, width = anchors.shape[1:]
    centre = anchors.mean(1, keepdim=True)
    a, q = anchors - centre, queries - centre
    rank = min(n_anchors - 1, width)
    if latent_dim is not None and latent_dim < rank:
        return principal_scores(a, q, latent_dim)
    if not full_rank:
        return principal_scores(a, q, rank)
    return (a, q) if width < n_anchors else gram_coordinates(a, q)


def gram_coordinates(a: Tensor, q: Tensor) -> tuple[Tensor, Tensor]:
    """Isometric coordinates [tasks, n, M] of M centred anchors, and of queries on their span.

    With G = a a' and any kappa > 0, the Cholesky factor of G + kappa is the anchors' coordinates
    with one more axis on which all of them are equal; queries get the same value there, so
    distances are those of the projections. Tasks whose anchors nearly depend on each other are
    done in float64 and, where that is not enough either, by eigenvectors, which cope with any rank.
    """
    gram = a @ a.mT  # [T, M, M]
    diagonal = gram.diagonal(dim1=1, dim2=2).clone()
    kappa = diagonal.mean(-1).clamp(min=torch.finfo(a.dtype).tiny)[:, None, None]
    gram += kappa
    cross = a @ q.mT  # [T, M, N_Q]
    cross += kappa
    root, failed = torch.linalg.cholesky_ex(gram)
    coordinates = torch.linalg.solve_triangular(root, cross, upper=False).mT
    # A pivot is an anchor's squared distance from the span of those before it; rounding errors of
    # the coordinates grow as the largest entry over the smallest pivot.
    pivot = root.diagonal(dim1=1, dim2=2).amin(-1).square()
    errors = torch.finfo(a.dtype).eps * diagonal.amax(-1)
    weak = (failed > 0) | ~(errors <= PRECISION[a.dtype] * pivot)
    if bool(weak.any()):  # task by task: the others must not notice
        if a.dtype != torch.float64:
            better = gram_coordinates(a[weak].double(), q[weak].double())
        else:
            better = principal_scores(a[weak], q[weak], min(a.shape[1] - 1, a.shape[2]))
        for out, part in zip((root, coordinates), better, strict=True):
            out[weak] = pad(part, (0, out.shape[-1] - part.shape[-1])).to(out)
    return root, coordinates


def principal_scores(a: Tensor, q: Tensor, latent_dim: int) -> tuple[Tensor, Tensor]:
    """Principal component scores of centred anchors and the queries' projections, [tasks, n, L].

    Components without variance are zero for both.
    """
    # The smaller of the two Gram matrices has all the non-zero eigenvalues.
    precise = a.double()
    by_samples = a.shape[1] <= a.shape[2]
    gram = precise @ precise.mT if by_samples else precise.mT @ precise
    values, vectors = torch.linalg.eigh(gram)
    values = values[:, -latent_dim:].flip(-1)
    vectors = vectors[..., -latent_dim:].flip(-1)
    # Rounding of float32 anchors alone gives about 1e-15 of the largest.
    kept = values > 1e-12 * values[:, :1].clamp(min=0)
    if by_samples:
        scale = torch.where(kept, values.clamp(min=1e-300).rsqrt(), 0.0)
        axes = precise.mT @ (vectors * scale[:, None])  # [T, D, L]
    else:
        axes = vectors * kept[:, None]
    axes = axes.to(a.dtype)
    return a @ axes, q @ axes
