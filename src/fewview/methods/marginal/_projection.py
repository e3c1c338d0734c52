"""Preprocessing: every view to a few principal components of comparable size.

Fitted on base samples only, view by view, so that a view never changes what is done to another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from threadpoolctl import ThreadpoolController
from torch import Tensor

from fewview.numerics._cores import on_all_cores
from fewview.numerics.principal import principal_axes
from fewview.samples._data import MultiViewData


@dataclass(frozen=True)
class Projection:
    """Principal axes of every view, divided by one scalar so that the mean squared length is 1."""

    axes: tuple[Tensor, ...]  # per view [width, components]
    shift: tuple[Tensor, ...]  # per view [components]; a sample becomes x @ axes - shift
    # What empty cells need: means of base rows, per view [width], and the variance of a direction
    # outside the axes, per view [].
    centre: tuple[Tensor, ...]
    spare: tuple[Tensor, ...]

    @property
    def dims(self) -> tuple[int, ...]:
        """Components of every view."""
        return tuple(int(axes.shape[1]) for axes in self.axes)

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

    def fit(index: int) -> tuple[Tensor, ...]:
        block, present = data.views[data.view_names[index]], data.mask[:, index]
        rows = torch.tensor(block if present.all() else block[present], device=device)
        return _fit_view(rows.double(), components)

    on_cpu = torch.device(device).type == "cpu"
    blas = ThreadpoolController().select(user_api="blas")
    with blas.limit(limits=1) if on_cpu else nullcontext():
        found = on_all_cores(fit, range(data.n_views), torch.device(device))
    return Projection(*(tuple(parts) for parts in zip(*found, strict=True)))


def _fit_view(rows: Tensor, components: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Axes, shift, centre and spare of one view, see `Projection`, from rows [n, width]."""
    mean = rows.mean(0) if len(rows) else rows.new_zeros(rows.shape[1])
    centred = rows - mean
    constant = not len(rows) or bool(_largest(centred) <= 1e-12 * _largest(rows))
    axes, along = principal_axes(centred, 0 if constant else components)
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
