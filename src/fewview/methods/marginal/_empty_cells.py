"""Empty cells: a view of which some features are unknown, integrated out exactly.

In the features of a view the model is x = centre + s Q z + e. Its components z are those of the
Gaussian model, s Q the axes turned back, and e is what they leave over: a sphere of variance r^2 in
all directions outside Q, learnt from what the base samples leave over, the same for all classes. A
complete row then says x @ axes of z and nothing more. Of a row without the cells m, let v be the
eigenvectors of Q_m' Q_m and d^2 their eigenvalues: the cells that are there tell

    v' z + noise,   of variance (r / s)^2 d^2 / (1 - d^2),

independent for every v, exactly nothing else, and nothing at all where d is 1. So a row with empty
cells is one with other coordinates, fewer and less sure ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fewview.methods.marginal._model import Evidence, Gaussians, information_of
from fewview.methods.marginal._projection import Projection
from fewview.numerics._batch import EpisodeBatch
from fewview.samples._data import MultiViewData

# A direction is not seen where the share of it that lies in cells that are there is below this
# many times the rounding errors of the axes.
ROUNDED = 100


def has_empty_cells(batch: EpisodeBatch) -> bool:
    """Whether a present cell is NaN: sums tell, at the speed of memory, where it is not known."""
    views = (*batch.support, *batch.query)
    if not batch.empty_cells or not torch.stack([view.sum() for view in views]).isnan().any():
        return False
    return any(bool(view.isnan().any()) for view in views)


def column_filled(data: MultiViewData) -> MultiViewData:
    """Base samples with the means of their columns in empty cells."""
    if not any(
        np.isnan(block[data.mask[:, v]]).any() for v, block in enumerate(data.views.values())
    ):
        return data
    blocks = {}
    for index, (view, block) in enumerate(data.views.items()):
        empty = np.isnan(block) & data.mask[:, index, None]
        if empty.any():
            known = np.where(data.mask[:, index, None] & ~empty, block, 0.0)
            count = (data.mask[:, index, None] & ~empty).sum(axis=0)
            block = np.where(empty, known.sum(axis=0) / np.maximum(count, 1), block)
        blocks[view] = block
    return MultiViewData.unchecked(
        blocks, data.mask, data.labels, data.ids, data.columns, data.name
    )


@dataclass(frozen=True)
class Glance:
    """What the cells of rows with one pattern of cells tell, k' numbers, in float64."""

    views: Tensor  # which views are there, bool [V]
    gains: tuple[Tensor, ...]  # per view [width, k']: cells minus their centre become numbers
    turn: Tensor  # [d, k']: the numbers are z @ turn + noise
    noise: Tensor  # variances, [k']
    shared: tuple[Tensor, ...]  # per view [width, k']: covariance of its rest with the numbers

    def numbers(self, rows: tuple[Tensor, ...], projection: Projection) -> Tensor:
        """The numbers [n, k'] of rows, per view [n, width]."""
        parts = [
            torch.nan_to_num(row.double() - centre.double()) @ gain
            for row, centre, gain in zip(rows, projection.centre, self.gains, strict=True)
        ]
        return torch.stack(parts).sum(0)


def glance(projection: Projection, views: Tensor, empty: tuple[Tensor, ...]) -> Glance:
    """Find what is told where some views are there (bool [V]) with some cells empty ([width])."""
    starts = np.cumsum([0, *projection.dims])
    turns, noises, gains, rests = [], [], [], []
    for view in range(len(projection.dims)):
        unseen = ROUNDED * torch.finfo(projection.axes[view].dtype).eps
        axes = projection.axes[view].double()
        size = axes[:, 0].square().sum()  # 1 / s^2
        turn = axes.new_zeros(axes.shape[1], 0)
        noise, gain, rest = axes.new_zeros(0), axes.new_zeros(len(axes), 0), None
        if bool(views[view]):
            gone = axes[empty[view]]
            values, vectors = torch.linalg.eigh(gone.T @ gone / size)
            values = values.clamp(0, 1)
            kept = values < 1 - unseen
            values, turn = values[kept], vectors[:, kept]
            spare = projection.spare[view].double()
            noise = spare * size * values / (1 - values)
            gain = axes @ turn / (1 - values)
            gain[empty[view]] = 0.0
            rest = -spare * (axes @ turn)
            rest[~empty[view]] = 0.0
        turns.append(turn)
        noises.append(noise)
        gains.append(gain)
        rests.append(torch.zeros_like(gain) if rest is None else rest)
    ends = np.cumsum([0, *(len(noise) for noise in noises)])
    whole = turns[0].new_zeros(int(starts[-1]), int(ends[-1]))
    for view, turn in enumerate(turns):
        whole[starts[view] : starts[view + 1], ends[view] : ends[view + 1]] = turn

    def wide(parts: list[Tensor]) -> tuple[Tensor, ...]:
        out = []
        for view, part in enumerate(parts):
            block = part.new_zeros(len(part), int(ends[-1]))
            block[:, ends[view] : ends[view + 1]] = part
            out.append(block)
        return tuple(out)

    return Glance(views, wide(gains), whole, torch.cat(noises), wide(rests))


def glances(
    projection: Projection, views: tuple[Tensor, ...], mask: Tensor, which: Tensor
) -> Iterator[tuple[Tensor, Glance]]:
    """Rows [n] of those chosen by `which`, bool [n], that have the same cells, and their glance."""
    places = which.nonzero()[:, 0]
    if not len(places):
        return
    empty = torch.cat([view[places].isnan() & mask[places, v, None]
                       for v, view in enumerate(views)], dim=1)  # fmt: skip
    kinds, kind = torch.unique(torch.cat([mask[places], empty], dim=1), dim=0, return_inverse=True)
    widths = [view.shape[1] for view in views]
    for index, cells in enumerate(kinds):
        present, gone = cells[: len(widths)], torch.split(cells[len(widths) :], widths)
        yield places[kind == index], glance(projection, present, gone)


def rows_with_empty(views: tuple[Tensor, ...], mask: Tensor) -> Tensor:
    """Rows that have a view with an empty cell, bool [n]; per view [n, width], a mask [n, V]."""
    found = [view.isnan().any(-1) & mask[:, v] for v, view in enumerate(views)]
    return torch.stack(found).any(0)


def see_cells(
    evidence: Evidence, model: Gaussians, root: Tensor, projection: Projection, batch: EpisodeBatch
) -> Evidence:
    """The evidence of tasks in which rows with empty cells say what their cells say.

    `evidence` is right for all other rows; `root` is the W that it was made with, [d, k].
    """
    information = [evidence.information]
    count = len(evidence.information)
    found = {}
    within = model.within.double()
    for name in ("support", "query"):
        views, mask = getattr(batch, name), getattr(batch, f"{name}_mask").flatten(0, 1)
        views = tuple(view.flatten(0, 1) for view in views)
        numbers = getattr(evidence, name).clone()
        pattern = getattr(evidence, f"{name}_pattern").clone()
        which = rows_with_empty(views, mask)
        for rows, seen in glances(projection, views, mask, which):
            spread = seen.turn.T @ within @ seen.turn + torch.diag(seen.noise)
            matrix, gain = information_of(spread, seen.turn.T @ root.double())
            part = seen.numbers(tuple(view[rows] for view in views), projection)
            step = part - model.mean.double() @ seen.turn
            numbers.flatten(0, 1)[rows] = (step @ gain).to(numbers)
            pattern.flatten()[rows] = count
            information.append(matrix[None].to(evidence.information))
            count += 1
        found[name], found[f"{name}_pattern"] = numbers, pattern
    return replace(evidence, information=torch.cat(information), **found)


def conditional_rows(
    projection: Projection,
    model: Gaussians,
    views: tuple[Tensor, ...],
    mask: Tensor,
    which: Tensor,
) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Fill in samples of an unknown class, whose covariance is S + B: means, and variances.

    Per view [n, width], NaN in empty cells; the mask [n, V] says which views are there, `which`,
    bool [n], the rows to be filled in. Variances are zero where a cell was there.
    """
    total, mean = (model.within + model.between).double(), model.mean.double()
    starts = np.cumsum([0, *projection.dims])
    filled = tuple(view.double().clone() for view in views)
    variances = tuple(torch.zeros_like(view) for view in filled)
    for rows, seen in glances(projection, views, mask, which):
        spread = seen.turn.T @ total @ seen.turn + torch.diag(seen.noise)
        factor = torch.linalg.cholesky(spread)
        step = seen.numbers(tuple(view[rows] for view in views), projection)
        step = step - mean @ seen.turn
        for view, axes in enumerate(projection.axes):
            first = views[view][rows[0]]
            gone = first.isnan() if bool(seen.views[view]) else torch.ones_like(first).bool()
            if not bool(gone.any()):
                continue
            axes, spare = axes.double(), projection.spare[view].double()
            size = axes[:, 0].square().sum()
            place = slice(int(starts[view]), int(starts[view + 1]))
            back = axes[gone] / size  # s Q
            shared = back @ total[place] @ seen.turn + seen.shared[view][gone]
            gain = torch.cholesky_solve(shared.T, factor)
            guess = projection.centre[view].double()[gone] + back @ mean[place] + step @ gain
            own = (back @ total[place, place] * back).sum(1)
            own = own + spare * (1 - axes[gone].square().sum(1) / size).clamp(min=0)
            where = gone.nonzero()[:, 0]
            filled[view][rows[:, None], where] = guess
            variances[view][rows[:, None], where] = (own - (shared * gain.T).sum(1)).clamp(min=0)
    return filled, variances


def fill_cells(batch: EpisodeBatch, projection: Projection, model: Gaussians) -> EpisodeBatch:
    """The same tasks with conditional means in empty cells; views that are missing stay so."""
    out: dict[str, Any] = {}
    for name in ("support", "query"):
        views, mask = getattr(batch, name), getattr(batch, f"{name}_mask")
        flat, present = tuple(view.flatten(0, 1) for view in views), mask.flatten(0, 1)
        which = rows_with_empty(flat, present)
        rows = conditional_rows(projection, model, flat, present, which)[0]
        out[name] = tuple(
            torch.where(mask[..., v, None], row.to(view).reshape(view.shape), 0.0)
            for v, (row, view) in enumerate(zip(rows, views, strict=True))
        )
    return replace(batch, **out)
