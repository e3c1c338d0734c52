"""Inverses of many symmetric positive definite matrices, by matrix products.

LAPACK takes one small matrix after the other, on one core and far below what the machine can do.
Halving the matrices until they are small leaves nearly all of the work to batched products. Where
one view is wider than all others together, most columns need no inverse at all (`Turned`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

# Widths up to here are left to LAPACK, and on a GPU, where launches count, to its like there; less
# of it where they are recorded and cost next to nothing.
SMALL, GPU_SMALL, RECORDED_SMALL = 24, 64, 40
# Halves of matrices have a multiple of so many columns.
ROUND = 8
# Directions that are told less of, relative to the one most is told of, are told nothing of.
NOTHING = 1e-12


def inverse(matrices: Tensor) -> tuple[Tensor, Tensor]:
    """Invert symmetric positive definite matrices [n, k, k]; also log determinants, [n].

    With blocks A, B, D and X = inv(A) B the inverse has inv(D - B'X) in its lower right corner and
    everything else follows by products (Banachiewicz 1937): 4/3 k^3 multiplications and additions
    where a Cholesky factorisation and its inverse need k^3, at several times their rate.

    In float32 the relative error is about 1e-4 at condition 1e3 and a few times that of LAPACK; at
    1e5 it is a percent.
    """
    width = matrices.shape[-1]
    if width <= _small(matrices):
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


def _small(matrices: Tensor) -> int:
    """Up to which width they are not halved."""
    if not matrices.is_cuda:
        return SMALL
    return RECORDED_SMALL if torch.cuda.is_current_stream_capturing() else GPU_SMALL


class Halves(NamedTuple):
    """Symmetric matrices [n, 2 h, 2 h] by halves of their rows and columns.

    Attributes:
        corner: upper left, [n, h, h].
        side: upper right, likewise.
        end: lower right, likewise.
    """

    corner: Tensor
    side: Tensor
    end: Tensor

    def diagonals(self) -> tuple[Tensor, Tensor]:
        """The diagonal by halves, [n, h] each."""
        return self.corner.diagonal(dim1=-2, dim2=-1), self.end.diagonal(dim1=-2, dim2=-1)


def half_width(width: int) -> int:
    """Columns of a half of matrices of some width: a multiple of 8, as small products want."""
    return -(-width // (2 * ROUND)) * ROUND


def packed(matrices: Tensor) -> Tensor:
    """`Halves` of symmetric matrices [..., k, k] as rows of numbers, [..., 3 h^2].

    With zeros at the ends of the second halves.
    """
    width, half = matrices.shape[-1], half_width(matrices.shape[-1])
    upper, lower = pad(matrices, (0, 2 * half - width) * 2).chunk(2, dim=-2)
    parts = (*upper.chunk(2, dim=-1), lower[..., half:])
    return torch.cat([part.flatten(-2) for part in parts], dim=-1)


def unpacked(rows: Tensor, half: int) -> Halves:
    """`Halves`, as they lie, of matrices as rows of numbers [n, 3 h^2]."""
    return Halves(*rows.view(-1, 3, half, half).unbind(1))


class Inverse(NamedTuple):
    """Inverses of `Halves`, as far as they must be made before they are asked for something.

    Attributes:
        first: upper left corner, [n, h, h].
        gain: side times the inverse of the end, likewise.
        last: inverse of the end, likewise.
        log_size: logarithms of the determinants of the matrices, [n].
    """

    first: Tensor
    gain: Tensor
    last: Tensor
    log_size: Tensor

    def at(self, places: Tensor) -> Inverse:
        """Those at some places, int64 [m]."""
        return Inverse(*(part[places] for part in self))

    def times(self, rows: Tensor) -> Tensor:
        """Rows [n, m, 2 h] times the inverses.

        Rows, since a CPU takes several times as long for a column.
        """
        upper, lower = rows.chunk(2, dim=-1)
        top = torch.baddbmm(upper, lower, self.gain.mT, alpha=-1) @ self.first
        return torch.cat((top, torch.baddbmm(lower @ self.last, top, self.gain, alpha=-1)), dim=-1)

    def unknown(self) -> Tensor:
        """Traces of the inverses, [n]."""
        return torch.cat(self.halves().diagonals(), dim=-1).sum(-1)

    def halves(self) -> Halves:
        """The inverses with the sign of their side changed.

        So what comes next need not make a copy of the side.
        """
        cross = self.first @ self.gain
        return Halves(self.first, cross, torch.baddbmm(self.last, self.gain.mT, cross))


def inverse_of(halves: Halves) -> Inverse:
    """Invert positive definite matrices."""
    corner, side, end = halves
    last, log_last = inverse(end)
    gain = side @ last
    first, log_first = inverse(torch.baddbmm(corner, gain, side.mT, alpha=-1))
    return Inverse(first, gain, last, log_first + log_last)


@dataclass(frozen=True)
class Turned:
    """A_o of patterns in coordinates most of which are independent given the others.

    Where one view is wider than all others together, what samples tell about most coordinates of a
    class mean depends on nothing but whether they have that view; see `turned_root`. In the first q
    coordinates and the J others, the A_o of a pattern with the wide view (has = 1) or without it
    (has = 0) is

        [X_o + has L L',  has L R]        R = diag(root)
        [has R L',        has R R]

    with the same L [q, J] and R for all patterns. With counts c_o of patterns, of which c have the
    wide view, the precision I + sum c_o A_o has J pivots 1 + c R^2, and leaves for q coordinates

        I + sum over o of c_o X_o + sum over j of c / (1 + c R_j^2) l_j l_j',

    in which nothing is subtracted: one inverse of q columns instead of q + J.

    Attributes:
        own: X_o and then l_j l_j', [P + J, q q].
        has: which patterns have the wide view, zeros and ones [P].
        loads: L, [q, J].
        root: diagonal of R, [J].
    """

    own: Tensor
    has: Tensor
    loads: Tensor
    root: Tensor

    @classmethod
    def of(cls, information: Tensor, has: Tensor, own: int) -> Turned:
        """From A_o, [P, k, k]: patterns that have the wide view, bool [P], and q."""
        wide = information.double()
        one = wide.index_select(0, has.int().argmax(0, keepdim=True))[0]  # any that has it
        lines = one.diagonal()[own:].clamp(min=0)
        told = lines > NOTHING * lines.max()
        root = torch.where(told, lines, 0.0).sqrt()
        loads = torch.where(told, one[:own, own:] / root.clamp(min=1e-150), 0.0)
        parts = loads.T[:, :, None] * loads.T[:, None]
        rest = wide[:, :own, :own] - has[:, None, None] * parts.sum(0)
        table = torch.cat([rest, parts]).flatten(1)
        return cls(*(part.to(information) for part in (table, has, loads, root)))

    def inverse(self, counts: Tensor) -> TurnedInverse:
        """Of the precisions of beliefs with counts [n, P]."""
        width = len(self.loads)
        wide = (counts @ self.has)[:, None]
        pivots = 1 + wide * self.root.square()
        known = 1 / pivots
        share = wide * known
        eye = torch.eye(width, dtype=counts.dtype, device=counts.device).flatten()
        left = torch.addmm(eye, torch.cat([counts, share], dim=1), self.own)
        first, log_size = inverse(left.view(-1, width, width))
        return TurnedInverse(self, first, share, known, log_size + pivots.log().sum(1))


class TurnedInverse(NamedTuple):
    """Inverses of n precisions.

    Attributes:
        form: what they are made of.
        first: upper left corner, [n, q, q].
        share: c / (1 + c R^2), [n, J].
        known: 1 / (1 + c R^2), likewise.
        log_size: logarithms of the determinants of the precisions, [n].
    """

    form: Turned
    first: Tensor
    share: Tensor
    known: Tensor
    log_size: Tensor

    def at(self, places: Tensor) -> TurnedInverse:
        """Those at some places, int64 [m]."""
        return TurnedInverse(self.form, *(part[places] for part in self[1:]))

    def times(self, rows: Tensor) -> Tensor:
        """Rows [n, m, q + J] times the inverses."""
        side = self.form.loads * self.form.root
        upper, lower = torch.split(rows, list(side.shape), dim=-1)
        share, known = self.share[:, None], self.known[:, None]
        top = (upper - (share * lower) @ side.mT) @ self.first
        return torch.cat((top, known * lower - share * (top @ side)), dim=-1)

    def unknown(self) -> Tensor:
        """Traces of the inverses, [n]."""
        along = self._along() * (self.share * self.form.root).square()
        return self.first.diagonal(dim1=1, dim2=2).sum(1) + (self.known + along).sum(1)

    def spread(self, mean: Tensor) -> Tensor:
        """tr A_o (C + m m') of every pattern, [n, P], for inverses C and means m [n, q + J]."""
        form = self.form
        upper, lower = torch.split(mean, list(form.loads.shape), dim=-1)
        both = torch.addcmul(self.first, upper[:, :, None], upper[:, None])
        own = both.flatten(1) @ form.own[: len(form.has)].mT
        along = self._along() * self.known.square() + form.root.square() * self.known
        along = along + (upper @ form.loads + form.root * lower).square()
        return own + along.sum(1, keepdim=True) * form.has

    def _along(self) -> Tensor:
        """l_j' C l_j of the upper left corner, [n, J]."""
        return self.first.flatten(1) @ self.form.own[len(self.form.has) :].mT


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
