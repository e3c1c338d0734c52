"""Inverses of many symmetric positive definite matrices, by matrix products.

LAPACK takes one small matrix after the other, on one core and far below what the machine can do.
Halving the matrices until they are small leaves nearly all of the work to batched products.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

# Widths up to here are left to LAPACK, and on a GPU, where launches count, to its like there.
SMALL, GPU_SMALL = 32, 64
# Halves of matrices have a multiple of so many columns.
ROUND = 8


def inverse(matrices: Tensor) -> tuple[Tensor, Tensor]:
    """Invert symmetric positive definite matrices [n, k, k]; also log determinants, [n].

    With blocks A, B, D and X = inv(A) B the inverse has inv(D - B'X) in its lower right corner and
    everything else follows by products (Banachiewicz 1937): 4/3 k^3 multiplications and additions
    where a Cholesky factorisation and its inverse need k^3, at several times their rate.

    In float32 the relative error is about 1e-4 at condition 1e3 and a few times that of LAPACK; at
    1e5 it is a percent.
    """
    width = matrices.shape[-1]
    if width <= (GPU_SMALL if matrices.is_cuda else SMALL):
        factor = cholesky(matrices)
        log_size = 2 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        if not matrices.is_cuda:
            return torch.cholesky_inverse(factor), log_size
        eye = torch.eye(width, dtype=matrices.dtype, device=matrices.device)
        half_way = torch.linalg.solve_triangular(factor, eye.expand_as(factor), upper=False)
        return half_way.mT @ half_way, log_size
    half = (width + 1) // 2
    corner, side = matrices[:, :half, :half], matrices[:, :half, half:]
    first, log_first = inverse(corner)
    gain = first @ side
    last, log_last = inverse(torch.baddbmm(matrices[:, half:, half:], side.mT, gain, alpha=-1))
    out = torch.empty_like(matrices)
    cross = gain @ last
    out[:, half:, half:] = last
    out[:, :half, half:] = -cross
    out[:, half:, :half] = -cross.mT
    out[:, :half, :half] = torch.baddbmm(first, cross, gain.mT)
    return out, log_first + log_last


def halves(matrices: Tensor) -> Tensor:
    """Symmetric matrices [..., k, k] without the corner that they have twice: [..., 3, h, h].

    Upper left, lower right and upper right; with zeros at the end so that h is a multiple of 8,
    which products of small matrices want.
    """
    width = matrices.shape[-1]
    half = -(-width // (2 * ROUND)) * ROUND
    whole = pad(matrices, (0, 2 * half - width) * 2)
    upper, lower = whole.chunk(2, dim=-2)
    left, right = upper.chunk(2, dim=-1)
    return torch.stack((left, lower[..., half:], right), dim=-3)


def invert_halves(matrices: Tensor) -> Tensor:
    """Invert positive definite matrices given as `halves` [n, 3, h, h], in their place.

    Returns the logarithms of their determinants, [n].
    """
    corner, end, side = matrices.unbind(1)
    first, log_first = inverse(corner)
    gain = first @ side
    last, log_last = inverse(torch.baddbmm(end, side.mT, gain, alpha=-1))
    cross = gain @ last
    corner.copy_(torch.baddbmm(first, cross, gain.mT))  # a result put there is made one by one
    end.copy_(last)
    torch.neg(cross, out=side)
    return log_first + log_last


def times_halves(rows: Tensor, matrices: Tensor) -> Tensor:
    """Rows [n, m, 2 h] times symmetric matrices given as `halves` [n, 3, h, h].

    Rows, since a CPU takes several times as long for a column.
    """
    first, last, side = matrices.unbind(1)
    upper, lower = rows.chunk(2, dim=-1)
    return torch.cat(
        (torch.baddbmm(upper @ first, lower, side.mT), torch.baddbmm(upper @ side, lower, last)),
        dim=-1,
    )


def cholesky(matrices: Tensor) -> Tensor:
    """Factors of positive definite matrices; on a GPU nobody waits to see whether they were."""
    factor: Tensor = (
        torch.linalg.cholesky_ex(matrices).L
        if matrices.is_cuda
        else torch.linalg.cholesky(matrices)
    )
    return factor


def orthonormal(columns: Tensor) -> Tensor:
    """Orthonormal bases [n, rows, k] of the columns of matrices of this shape, in float64.

    By Cholesky factors of their inner products, which a QR decomposition takes one by one. Columns
    that depend on those before them become as good as zero.
    """
    wide = columns.double()
    wide = wide / wide.norm(dim=1, keepdim=True).clamp(min=1e-150)
    eye = torch.eye(wide.shape[-1], dtype=wide.dtype, device=wide.device)
    factor = cholesky(wide.mT @ wide + 1e-12 * eye)
    found: Tensor = torch.linalg.solve_triangular(factor, wide.mT, upper=False).mT
    return found.to(columns.dtype)
