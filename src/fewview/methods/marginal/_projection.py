"""Preprocessing: every view to a few principal components of comparable size.

Fitted on base samples only, view by view, so that a view never changes what is done to another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from scipy.sparse.linalg import LinearOperator, eigsh
from torch import Tensor

from fewview.ground._draws import stream_key, uniform
from fewview.samples._data import MultiViewData

# Above this size the leading axes are found by Lanczos iteration instead of a full decomposition.
DENSE_SIZE = 600
# Up to this size products of all features (or of all samples) are formed for that.
GRAM_SIZE = 4000


@dataclass(frozen=True)
class Projection:
    """Principal axes of every view, divided by one scalar so that the mean squared length is 1."""

    axes: tuple[Tensor, ...]  # per view [width, components]
    shift: tuple[Tensor, ...]  # per view [components]; a sample becomes x @ axes - shift
    # What empty cells need: means of base rows, per view [width], and the variance of a direction
    # outside the axes, per view []. A model of an earlier version has neither.
    centre: tuple[Tensor, ...] = ()
    spare: tuple[Tensor, ...] = ()

    @property
    def dims(self) -> tuple[int, ...]:
        """Components of every view."""
        return tuple(int(axes.shape[1]) for axes in self.axes)

    @classmethod
    def identity(cls, dims: Sequence[int]) -> Projection:
        """Return the projection that leaves components as they are."""
        return cls(
            tuple(torch.eye(width, dtype=torch.float64) for width in dims),
            tuple(torch.zeros(width, dtype=torch.float64) for width in dims),
        )

    def with_rest(self, variances: Tensor) -> Projection:
        """The same with a centre and a rest, from variances of components [d] where it has none.

        The centre then lies in the axes, and outside them rows vary as along the last component.
        """
        if self.centre:
            return self
        parts = torch.split(variances, list(self.dims))
        sizes = [axes[:, 0].square().sum() for axes in self.axes]  # of every axis, squared
        return replace(
            self,
            centre=tuple(
                axes @ shift / size
                for axes, shift, size in zip(self.axes, self.shift, sizes, strict=True)
            ),
            spare=tuple(part.min() / size for part, size in zip(parts, sizes, strict=True)),
        )

    def apply(
        self, views: Sequence[Tensor], mask: Tensor, known: Mapping[int, Tensor] | None = None
    ) -> Tensor:
        """Project rows and put the views side by side, zeros where a view is missing.

        Per view [..., width], and a mask [..., V]; the answer is [..., all components]. Components
        of some views may be `known` already.
        """
        known = known or {}
        parts = [
            known[index] if index in known else (view @ axes - shift) * mask[..., index, None]
            for index, (view, axes, shift) in enumerate(
                zip(views, self.axes, self.shift, strict=True)
            )
        ]
        return torch.cat(parts, dim=-1)


def fit_projection(data: MultiViewData, components: int, device: Any = "cpu") -> Projection:
    """Find the principal axes of every view of the (scaled) base set.

    A view that no sample has, or that is constant, keeps one axis, so that every view has a place;
    another has at most `components`. They are looked for on the `device`; the answer is on the CPU.
    """
    found = []
    for index, block in enumerate(data.views.values()):
        present = data.mask[:, index]
        rows = torch.tensor(block if present.all() else block[present], device=device)
        found.append(_fit_view(rows.double(), components))
    return Projection(*(tuple(parts) for parts in zip(*found, strict=True)))


def _fit_view(rows: Tensor, components: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Axes, shift, centre and spare of one view, see `Projection`, from rows [n, width]."""
    mean = rows.mean(0) if len(rows) else rows.new_zeros(rows.shape[1])
    centred = rows - mean
    constant = not len(rows) or bool(_largest(centred) <= 1e-12 * _largest(rows))
    axes, along = _principal_axes(centred, 0 if constant else components)
    spread = along.sum()
    axes = axes / torch.where(spread > 0, spread, 1.0).sqrt()
    return axes.cpu(), (mean @ axes).cpu(), mean.cpu(), _spare(centred, along).cpu()


def _largest(rows: Tensor) -> Tensor:
    """The largest size of an entry; no copy is made."""
    low, high = rows.aminmax()
    return torch.maximum(high, -low)


def _spare(centred: Tensor, along: Tensor) -> Tensor:
    """Variance of rows [n, width] in a direction outside their axes, which have variances [c].

    Where the axes explain all that base rows differ by (there are few rows), rows of others may
    still lie outside: as far as along the last axis.
    """
    outside = centred.shape[1] - len(along)
    if outside == 0 or not len(centred):
        return along.new_zeros(())
    rest = torch.linalg.vector_norm(centred).square() / len(centred) - along.sum()
    return torch.where(rest > 1e-9 * along.sum(), rest / outside, along.min())


def _principal_axes(centred: Tensor, components: int) -> tuple[Tensor, Tensor]:
    """Principal axes [width, at most components] of rows [n, width], and the variances along them.

    Without components, and where rows do not differ, the first feature.
    """
    n, width = centred.shape
    count = min(components, n, width)
    if count:
        values, found = _leading(centred, count)
        order = torch.argsort(values, descending=True, stable=True)[:count]
        values, found = values[order], found[:, order]
        # Directions in which base samples do not differ at all carry rounding errors only.
        kept = values > 1e-10 * values[0].clamp(min=torch.finfo(values.dtype).tiny)
        values, found = values[kept], found[:, kept]
        if len(values) and len(found) != width:  # of the samples: directions of features then
            found = centred.T @ (found / values.sqrt())
        if len(values):
            return found, values / n
    first = centred[:, :1]
    along = first.square().mean(0) if n else first.new_zeros(1)
    return torch.eye(width, 1, dtype=centred.dtype, device=centred.device), along


def _leading(centred: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Eigenvalues and eigenvectors, at least the leading ones, of X X' or X' X: the smaller one."""
    n, width = centred.shape
    side = min(n, width)
    if centred.device.type != "cpu" and side <= GRAM_SIZE:
        values, vectors = torch.linalg.eigh(
            centred @ centred.T if n < width else centred.T @ centred
        )
        return values[-count:], vectors[:, -count:]
    rows = centred.cpu().numpy()  # numpy sees the symmetry of products and halves the work
    dense = side <= max(DENSE_SIZE, 3 * count)
    if dense or side <= GRAM_SIZE:
        # Formed once, the matrix of products is read from near memory in every step.
        operator = rows @ rows.T if n < width else rows.T @ rows
    else:
        operator = LinearOperator(
            (width, width), matvec=lambda x: rows.T @ (rows @ x), dtype=np.float64
        )
    if dense:
        found = np.linalg.eigh(operator)
    else:
        start = uniform(np.array(stream_key("principal axes"), dtype=np.uint64), operator.shape[0])
        found = eigsh(operator, k=count, v0=start - 0.5)
    values, vectors = (torch.from_numpy(part).to(centred.device) for part in found)
    return values, vectors
