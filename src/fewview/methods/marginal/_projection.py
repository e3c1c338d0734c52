"""Preprocessing: every view to a few principal components of comparable size.

Fitted on base samples only, view by view, so that a view never changes what is done to another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator, eigsh
from torch import Tensor

from fewview.ground._draws import stream_key, uniform
from fewview.samples._data import MultiViewData

# Above this size the leading axes are found by Lanczos iteration instead of a full decomposition.
DENSE_SIZE = 600
# Up to this size products of all features (or of all samples) are formed for that.
GRAM_SIZE = 4000
# From this size on a GPU is faster.
LEAST_SIDE = 256
FloatArray = NDArray[np.float64]


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
    another has at most `components`. The answer is on the CPU, whatever the `device`.
    """
    axes, shifts, centres, spares = [], [], [], []
    for index, block in enumerate(data.views.values()):
        rows = np.asarray(block, dtype=np.float64)[data.mask[:, index]]
        mean = rows.mean(axis=0) if len(rows) else np.zeros(rows.shape[1])
        centred = rows - mean
        constant = np.abs(centred).max(initial=0) <= 1e-12 * np.abs(rows).max(initial=0)
        found, along = _principal_axes(centred, 0 if constant else components, device)
        spread = along.sum()
        spares.append(torch.tensor(_spare(centred, along), dtype=torch.float64))
        centres.append(torch.from_numpy(np.ascontiguousarray(mean)))
        found = found / np.sqrt(spread) if spread > 0 else found
        axes.append(torch.from_numpy(np.ascontiguousarray(found)))
        shifts.append(torch.from_numpy(mean @ found))
    return Projection(tuple(axes), tuple(shifts), tuple(centres), tuple(spares))


def _spare(centred: FloatArray, along: FloatArray) -> float:
    """Variance of rows [n, width] in a direction outside their axes, which have variances [c].

    Where the axes explain all that base rows differ by (there are few rows), rows of others may
    still lie outside: as far as along the last axis.
    """
    outside = centred.shape[1] - len(along)
    if outside == 0 or not len(centred):
        return 0.0
    rest = float(np.vdot(centred, centred) / len(centred) - along.sum())
    return rest / outside if rest > 1e-9 * along.sum() else float(along.min())


def _principal_axes(
    centred: FloatArray, components: int, device: Any
) -> tuple[FloatArray, FloatArray]:
    """Principal axes [width, at most components] of rows [n, width], and the variances along them.

    Without components, and where rows do not differ, the first feature.
    """
    n, width = centred.shape
    count = min(components, n, width)
    if count:
        values, found = _leading(centred, count, torch.device(device))
        order = np.argsort(-values, kind="stable")[:count]
        # Directions in which base samples do not differ at all carry rounding errors only.
        order = order[values[order] > 1e-10 * max(values[order[0]], np.finfo(float).tiny)]
        values, found = values[order], found[:, order]
        if len(order) and len(found) != width:  # of the samples: directions of features then
            found = centred.T @ (found / np.sqrt(values))
        if len(order):
            return found, values / n
    return np.eye(width, 1), centred[:, :1].var(axis=0) if n else np.zeros(1)


def _leading(
    centred: FloatArray, count: int, device: torch.device
) -> tuple[FloatArray, FloatArray]:
    """Eigenvalues and eigenvectors, at least the leading ones, of X X' or X' X: the smaller one."""
    n, width = centred.shape
    side = min(n, width)
    if device.type != "cpu" and LEAST_SIDE <= side <= GRAM_SIZE:
        rows = torch.from_numpy(centred).to(device)
        found = torch.linalg.eigh(rows @ rows.T if n < width else rows.T @ rows)
        return found[0][-count:].cpu().numpy(), found[1][:, -count:].cpu().numpy()
    if side <= max(DENSE_SIZE, 3 * count):
        values, vectors = np.linalg.eigh(centred @ centred.T if n < width else centred.T @ centred)
        return values, vectors
    if side > GRAM_SIZE:
        operator = LinearOperator(
            (width, width), matvec=lambda x: centred.T @ (centred @ x), dtype=np.float64
        )
    else:
        # Formed once, the matrix of products is read from near memory in every step.
        operator = centred @ centred.T if n < width else centred.T @ centred
    start = uniform(np.array(stream_key("principal axes"), dtype=np.uint64), operator.shape[0])
    values, vectors = eigsh(operator, k=count, v0=start - 0.5)
    return values, vectors
