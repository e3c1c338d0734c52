"""Directions of a task that base classes do not have, and how much of them is between classes.

What tells new classes apart may lie outside the principal components of the base set: new words.
So the rows of a task are also described by the principal directions of what those components leave
over. How much of the variance along the first, second, ... of them lies within classes and how much
between is learnt by letting some base classes play new ones; directions along which classes do not
differ are not used, so where the rest is noise nothing changes.

Along these directions the model is diagonal and independent of the components of the base set:
x ~ N(m_c, s_j) and m_c ~ N(0, b_j) around the mean of the task.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import cast

import numpy as np
import torch
from torch import Tensor

from fewview.episodes._pretended import divide, thinned
from fewview.episodes._sampler import EpisodeSampler
from fewview.episodes._task import TaskSpec
from fewview.ground._draws import stream_key, uniform
from fewview.methods.marginal._projection import Projection, fit_projection
from fewview.numerics._batch import EpisodeBatch, ViewTensors, map_tensors
from fewview.samples._data import MultiViewData

# Most directions of a view; later ones never told classes apart.
DIRECTIONS = 32
# Subspace iterations to find them; directions that classes differ along stand out after two.
ITERATIONS = 3
# A view is looked at where at least this share of its variance is left over.
LEAST_REST = 1e-3
# Rows of a class in pretended tasks: how much of a direction is chance depends on it.
ROWS_PER_CLASS = (3, 8, 24)
# Pretended tasks of every size in a fold, folds, and rows of base classes that are looked at.
TASKS, FOLDS, MOST_ROWS = 8, 3, 2000
# Shares of classes in those tasks. Where one class has most of the rows, the first directions lie
# within it: learnt from even shares only, uneven tasks were taken apart along them (cub: -8).
KINDS = ("balanced", "dirichlet:1", "dominant:0.8")
# A share within classes below this is taken for this.
LEAST_WITHIN = 0.05
TINY = 1e-9
# Share of the squared length of rows that is rounding.
NOTHING = 1e-6


@dataclass(frozen=True)
class Profile:
    """What base classes tell about directions outside their components.

    Attributes:
        views: positions of the views that have such directions.
        way: classes of the tasks it was learnt from.
        rows: logarithm of the rows of a class, [R], rising.
        within: share of the variance along a direction that lies within classes, [R, views, J].
        between: the same between class means, zero where nothing was found.
    """

    views: tuple[int, ...]
    way: int
    rows: Tensor
    within: Tensor
    between: Tensor

    def at(self, place: int, rows: Tensor, way: int) -> tuple[Tensor, Tensor]:
        """Shares [T, J] for tasks with so many rows of a class, [T], in the view at a place."""
        where = rows.clamp(min=1).log().to(self.rows).contiguous()
        high = torch.searchsorted(self.rows, where).clamp(max=len(self.rows) - 1)
        low = (high - 1).clamp(min=0)
        part = (where - self.rows[low]) / (self.rows[high] - self.rows[low]).clamp(min=TINY)
        part = part.clamp(0, 1)[:, None]
        # With other numbers of classes as many more or fewer directions tell them apart.
        count = self.within.shape[-1]
        stretched = torch.arange(count, device=rows.device) * (self.way - 1) / (way - 1)
        stretched = stretched.clamp(max=count - 1)
        left = stretched.floor().long().clamp(max=count - 2)
        step = (stretched - left).to(self.within)

        def look_up(shares: Tensor) -> Tensor:
            moved = torch.lerp(shares[..., left], shares[..., left + 1], step)
            return torch.lerp(moved[low], moved[high], part)

        return look_up(self.within[:, place]), look_up(self.between[:, place])


@dataclass(frozen=True)
class Outside:
    """Samples of some tasks along directions of their own, D of them over all views."""

    support: Tensor  # [T, N_S, D], zero where a view is missing
    query: Tensor  # [T, N_Q, D]
    support_seen: Tensor  # 1 where the view is there, [T, N_S, D]
    query_seen: Tensor  # [T, N_Q, D]
    within: Tensor  # s, [T, D]
    between: Tensor  # b, [T, D]

    def tasks(self, key: Tensor) -> Outside:
        """The same of some of the tasks."""
        return map_tensors(self, lambda tensor: tensor[key])

    def belief(self, members: Tensor, weights: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Mean and variance of class means, [T, C, D], and from supports and weighted queries."""
        counts, sums = members.mT @ self.support_seen, members.mT @ self.support
        if weights is not None:
            counts = counts + weights.mT @ self.query_seen
            sums = sums + weights.mT @ self.query
        within = self.within[:, None]
        variance = 1 / (1 / self.between[:, None] + counts / within)
        return variance * sums / within, variance

    def variational(self, members: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor]:
        """Variational scores [T, N_Q, C], and log normalisers of the beliefs [T, C]."""
        mean, variance = self.belief(members, weights)
        within = self.within[:, None]
        scores = self.query @ (mean / within).mT
        scores = scores - self.query_seen @ ((mean.square() + variance) / within).mT / 2
        normaliser = (mean.square() / variance + (variance / self.between[:, None]).log()).sum(-1)
        return scores, normaliser / 2


def find_outside(batch: EpisodeBatch, projection: Projection, profile: Profile) -> Outside:
    """Describe the samples of tasks along directions of their own."""
    parts = []
    for place, view in enumerate(profile.views):
        rows, seen, variance = principal_rows(batch, view, projection)
        counts = seen.sum(1)
        within, between = profile.at(place, counts / batch.way, batch.way)
        used = (between > 0) & (variance > TINY) & (counts > batch.way)[:, None]
        within = torch.where(used, within * variance, 1.0)
        between = torch.where(used, between * variance, TINY)
        shown = (seen[..., None] * used[:, None]).to(rows)
        parts.append((rows * used[:, None], shown, within, between))
    rows, shown, within, between = (torch.cat(part, dim=-1) for part in zip(*parts, strict=True))
    n_support = batch.n_support
    return Outside(
        support=rows[:, :n_support],
        query=rows[:, n_support:],
        support_seen=shown[:, :n_support],
        query_seen=shown[:, n_support:],
        within=within,
        between=between,
    )


def principal_rows(
    batch: EpisodeBatch, view: int, projection: Projection
) -> tuple[Tensor, Tensor, Tensor]:
    """Rows of tasks along the principal directions of what the components of a view leave over.

    Returns:
        rows: [T, N_S + N_Q, J], zero where the view is missing.
        seen: where it is not, bool [T, N_S + N_Q].
        variance: of the rows along every direction, [T, J].
    """
    seen = torch.cat([batch.support_mask[..., view], batch.query_mask[..., view]], dim=1)
    rows = torch.cat([batch.support[view], batch.query[view]], dim=1)
    counts = seen.sum(1).clamp(min=1).to(rows)
    rows = (rows - (rows.sum(1) / counts[:, None])[:, None]) * seen[..., None]
    axes = projection.axes[view]
    inside = rows @ axes
    rows = rows * axes[:, 0].norm()  # the scalar that all axes were divided by
    gram = rows @ rows.mT - inside @ inside.mT
    # Where nothing is left over but rounding, no directions are looked for.
    left = gram.diagonal(dim1=1, dim2=2).sum(1) > NOTHING * rows.square().sum((1, 2)).clamp(
        min=TINY
    )
    gram = torch.where(left[:, None, None], gram, torch.eye(gram.shape[-1]).to(gram))
    width = min(DIRECTIONS, gram.shape[-1])
    # A start that knows nothing of the order of the rows, so that neither does the answer.
    key = np.array(stream_key("directions outside"), dtype=np.uint64)
    start = uniform(key, rows.shape[-1] * width).reshape(-1, width) - 0.5
    block = rows @ torch.from_numpy(start).to(rows)
    for _ in range(ITERATIONS):
        block = torch.linalg.qr(gram @ block).Q
    values, turn = torch.linalg.eigh(block.mT @ (gram @ block))
    values, turn = values.flip(-1).clamp(min=0) * left[:, None], turn.flip(-1)
    out = (block @ turn) * values.sqrt()[:, None] * seen[..., None]
    missing = DIRECTIONS - width
    pad = torch.nn.functional.pad
    return pad(out, (0, missing)), seen, pad(values / counts[:, None], (0, missing))


@dataclass(frozen=True)
class Fold:
    """Base classes that play new ones, and the components of the others; of some views alone."""

    unknown: MultiViewData
    projection: Projection
    smallest: int  # rows of a class in pretended tasks


def wide_views(projection: Projection) -> list[int]:
    """Views that have more features than components."""
    return [v for v, axes in enumerate(projection.axes) if axes.shape[0] > axes.shape[1]]


def play_new(
    base: MultiViewData, views: list[int], way: int, components: int, seed: int
) -> list[Fold]:
    """Let some base classes, as many as a task has or a quarter, play new ones, fold by fold.

    Of scaled base samples and the views at these positions; nothing where there are too few.
    """
    seen = base.mask[:, views].any(1)
    if not views or not seen.any():
        return []
    rows = thinned(base[seen].select_views([base.view_names[view] for view in views]), MOST_ROWS)
    sizes = np.bincount(rows.codes)
    smallest = max(2, int(np.quantile(sizes, 0.25)))
    among = np.flatnonzero(sizes >= smallest)
    n_novel = min(len(sizes) - 1, len(among), max(way, len(sizes) // 4))
    if n_novel < 2:
        return []
    return [
        Fold(division.unknown, fit_projection(division.known, components), smallest)
        for division in divide(rows, n_novel, FOLDS, "directions", seed, among=among)
    ]


def learn_profile(
    folds: Sequence[Fold], views: Sequence[int], way: int, seed: int
) -> Profile | None:
    """Learn shares from classes that play new ones, in these views; None where nothing is found."""
    if not folds:
        return None
    way = min(way, len(folds[0].unknown.classes))
    counts = sorted({min(count, folds[0].smallest) for count in ROWS_PER_CLASS})
    found = []
    for fold in folds:
        tensors = ViewTensors.of(fold.unknown, dtype=torch.float64)
        for kind, count in product(KINDS, counts):
            task = TaskSpec(way=way, shot=1, queries=count - 1, query_counts=kind)
            episodes = EpisodeSampler(fold.unknown, task, seed=seed).draw(0, TASKS)
            batch = tensors.gather(episodes)
            found.append(
                torch.stack([shares_of(batch, v, fold.projection) for v in range(len(views))])
            )
    table = torch.stack(found).reshape(-1, len(counts), len(views), 3, DIRECTIONS).mean(0)
    within, between, rest = table.unbind(2)  # [R, views, J]
    kept = [v for v in range(len(views)) if float(rest[-1, v, 0]) > LEAST_REST]
    between = between.clamp(min=0)[:, kept]
    if not bool((between > 0).any()):
        return None
    return Profile(
        views=tuple(views[v] for v in kept),
        way=way,
        rows=torch.tensor(counts, dtype=torch.float64).log(),
        within=within[:, kept].clamp(min=LEAST_WITHIN),
        between=between,
    )


def shares_of(batch: EpisodeBatch, view: int, projection: Projection) -> Tensor:
    """Variance within classes and between their means, as shares of all, by analysis of variance.

    And the share of the variance of the view that these directions have: [3, J].
    """
    rows, seen, variance = principal_rows(batch, view, projection)
    labels = torch.cat([batch.support_labels, cast(Tensor, batch.query_labels)], dim=1)
    members = (labels[..., None] == torch.arange(batch.way)).to(rows) * seen[..., None]
    counts = members.sum(1)  # [T, C]
    total, classes = counts.sum(1, keepdim=True), (counts > 0).sum(1, keepdim=True)
    means = members.mT @ rows / counts.clamp(min=1)[..., None]
    explained = (counts[..., None] * means.square()).sum(1)  # rows have mean zero
    within = (rows.square().sum(1) - explained) / (total - classes).clamp(min=1)
    freedom = (classes - 1).clamp(min=1)  # gaps may leave rows of one class only
    typical = (total - counts.square().sum(1, keepdim=True) / total.clamp(min=1)) / freedom
    between = (explained / freedom - within) / typical.clamp(min=1)
    whole = variance.sum(0).clamp(min=TINY)
    axes = projection.axes[view]
    everything = torch.cat([batch.support[view], batch.query[view]], dim=1) * axes[:, 0].norm()
    size = everything[seen].var(0).sum().clamp(min=TINY)
    rest = variance.mean(0).sum() / size
    return torch.stack([within.sum(0) / whole, between.sum(0) / whole, rest.expand_as(whole)])
