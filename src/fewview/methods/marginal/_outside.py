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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fewview.episodes.batch import EpisodeBatch, ViewTensors
from fewview.episodes.divide import divide, thinned_rows
from fewview.episodes.episodes import PER_TASK, Episodes
from fewview.episodes.sampler import EpisodeSampler
from fewview.episodes.task import TaskSpec
from fewview.methods.marginal._inverse import orthonormal
from fewview.methods.marginal._projection import Projection, fit_projection
from fewview.numerics.iterate import map_tensors
from fewview.numerics.random_keys import stream_key, uniform
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
# Numbers in the products of rows of pretended tasks that a GPU looks at together. A CPU, whose
# cache they would leave, takes one view and fold at a time.
AT_ONCE = 1 << 24
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

    def at(self, rows: Tensor, way: int) -> tuple[Tensor, Tensor]:
        """Shares [views, T, J] for tasks with so many rows of a class, [views, T]."""
        where = rows.clamp(min=1).log().to(self.rows).contiguous()
        high = torch.searchsorted(self.rows, where).clamp(max=len(self.rows) - 1)
        low = (high - 1).clamp(min=0)
        part = (where - self.rows[low]) / (self.rows[high] - self.rows[low]).clamp(min=TINY)
        part = part.clamp(0, 1)[..., None]
        # With other numbers of classes as many more or fewer directions tell them apart.
        count = self.within.shape[-1]
        stretched = torch.arange(count, device=rows.device) * (self.way - 1) / (way - 1)
        stretched = stretched.clamp(max=count - 1)
        left = stretched.floor().long().clamp(max=count - 2)
        step = (stretched - left).to(self.within)
        views = torch.arange(len(rows), device=rows.device)[:, None]

        def look_up(shares: Tensor) -> Tensor:
            moved = torch.lerp(shares[..., left], shares[..., left + 1], step)
            return torch.lerp(moved[low, views], moved[high, views], part)

        return look_up(self.within), look_up(self.between)


@dataclass(frozen=True)
class Outside:
    """What samples of some tasks say along directions of their own, D of them over all views.

    In units in which class means are added up, as in `Evidence`: of x ~ N(m_c, s) with m_c ~ N(0,
    b), x / s and 1 / s where a sample has the view, and zeros where it has not.
    """

    shift: Tensor  # of supports by class, [T, C, D]
    precision: Tensor  # of beliefs from supports, 1 / b included, [T, C, D]
    query: Tensor  # [T, N_Q, D]
    query_told: Tensor  # 1 / s or zero, [T, N_Q, D]
    log_prior: Tensor  # sum of log 1 / b, [T]

    @staticmethod
    def of(rows: Tensor, seen: Tensor, members: Tensor, within: Tensor, between: Tensor) -> Outside:
        """Of rows [T, N, D], supports first, seen or not, s and b [T, D], classes [T, N_S, C]."""
        told = seen / within[:, None]
        shift, n_support = rows * told, members.shape[1]
        prior = 1 / between
        return Outside(
            shift=members.mT @ shift[:, :n_support],
            precision=prior[:, None] + members.mT @ told[:, :n_support],
            query=shift[:, n_support:],
            query_told=told[:, n_support:],
            log_prior=prior.log().sum(-1),
        )

    def tasks(self, key: Tensor) -> Outside:
        """The same of some of the tasks."""
        return map_tensors(self, lambda tensor: tensor[key])

    @staticmethod
    def nothing(query: Tensor, way: int) -> Outside:
        """No directions, for tasks with queries [T, N_Q, ...]."""
        n_tasks, n_query = query.shape[:2]
        of_class, asked = (query.new_zeros(n_tasks, n, 0) for n in (way, n_query))
        return Outside(of_class, of_class, asked, asked, query.new_zeros(n_tasks))

    @staticmethod
    def join(parts: Sequence[Outside]) -> Outside:
        """Of tasks one after another; directions that some lack say nothing."""
        width = max(part.query.shape[-1] for part in parts)

        def wide(tensor: Tensor, value: float = 0.0) -> Tensor:
            return torch.nn.functional.pad(tensor, (0, width - tensor.shape[-1]), value=value)

        return Outside(
            torch.cat([wide(part.shift) for part in parts]),
            torch.cat([wide(part.precision, 1.0) for part in parts]),
            torch.cat([wide(part.query) for part in parts]),
            torch.cat([wide(part.query_told) for part in parts]),
            torch.cat([part.log_prior for part in parts]),
        )

    def variational(self, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Variational scores [T, N_Q, C] given supports and queries of some weights, likewise.

        And the log normalisers of these beliefs, [T, C].
        """
        shift = torch.baddbmm(self.shift, weights.mT, self.query)
        precision = torch.baddbmm(self.precision, weights.mT, self.query_told)
        variance = 1 / precision
        mean = shift * variance
        spread = torch.addcmul(variance, mean, mean)
        scores = torch.baddbmm(self.query @ mean.mT, self.query_told, spread.mT, alpha=-0.5)
        found = (mean * shift - precision.log()).sum(-1) + self.log_prior[:, None]
        return scores, found / 2


@dataclass(frozen=True)
class LeftOver:
    """What the components of a view leave over of rows, seen from the centre of base rows.

    Attributes:
        seen: rows that have the view, and no empty cell in it, bool [..., n].
        inside: their components, [..., n, c]; zero where a row is not seen, as all that follows.
        products: inner products of what is left over, in units of components, [..., n, n].
        whole: squared lengths of the rows themselves in these units, [..., n].
        start: the rows along directions that know nothing of their order, [..., n, J].
    """

    seen: Tensor
    inside: Tensor
    products: Tensor
    whole: Tensor
    start: Tensor

    def at(self, rows: Tensor, seen: Tensor) -> LeftOver:
        """Of one list of rows those of many tasks: positions int64 and `seen` bool [T, n].

        Without their components, which say nothing about what is left over.
        """
        seen = seen & self.seen[rows]
        shown = seen.to(self.whole)
        products = self.products[rows[:, :, None], rows[:, None]]
        return LeftOver(
            seen,
            self.inside[rows, :0],
            products * shown[..., None] * shown[:, None],
            self.whole[rows] * shown,
            self.start[rows] * shown[..., None],
        )

    @staticmethod
    def join(parts: Sequence[LeftOver]) -> LeftOver:
        """Of tasks of one size, one after another, in views with any numbers of components.

        Without these, as in `at`.
        """
        each = [replace(part, inside=part.inside[..., :0]) for part in parts]
        names = [item.name for item in fields(LeftOver)]
        return LeftOver(*(torch.cat([getattr(part, name) for part in each]) for name in names))


def left_over(
    rows: Tensor, seen: Tensor, view: int, projection: Projection, empty: bool = True
) -> LeftOver:
    """Look at rows [..., n, width] of a view where it is there, `seen` [..., n].

    The rows are overwritten. `empty` is False where no cell of them is NaN.
    """
    if empty:
        seen = seen & ~rows.isnan().any(-1)
    axes = projection.axes[view]
    rows -= projection.centre[view]
    rows.masked_fill_(~seen[..., None], 0.0)
    along = rows @ torch.cat([axes, _start(len(axes), axes.dtype, axes.device)], dim=1)
    inside, start = torch.split(along, [axes.shape[1], DIRECTIONS], dim=-1)
    products = rows @ rows.mT
    products *= axes[:, 0].square().sum()  # the scalar that all axes were divided by
    whole = products.diagonal(dim1=-2, dim2=-1).clone()
    return LeftOver(seen, inside, products - inside @ inside.mT, whole, start)


def rows_of(batch: EpisodeBatch, view: int) -> Tensor:
    """Supports and then queries of tasks in a view, [T, N_S + N_Q, width]; a copy."""
    return torch.cat([batch.support[view], batch.query[view]], dim=1)


def leave_over(batch: EpisodeBatch, view: int, projection: Projection) -> LeftOver:
    """What is left over of the rows of tasks, supports first."""
    seen = torch.cat([batch.support_mask[..., view], batch.query_mask[..., view]], dim=1)
    return left_over(rows_of(batch, view), seen, view, projection, batch.has_nan)


@lru_cache(maxsize=64)
def _start(width: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Fixed random directions of features, [width, J]."""
    key = np.array(stream_key("directions outside"), dtype=np.uint64)
    start = uniform(key, width * DIRECTIONS).reshape(-1, DIRECTIONS) - 0.5
    return torch.from_numpy(start).to(device=device, dtype=dtype)


def find_outside(left: Mapping[int, LeftOver], members: Tensor, profile: Profile) -> Outside:
    """Describe the samples of tasks, supports of classes [T, N_S, C] first, along directions of
    their own."""
    way, n_views = members.shape[2], len(profile.views)
    rows, seen, variance = (
        part.reshape(n_views, len(members), *part.shape[1:])
        for part in principal_rows(LeftOver.join([left[view] for view in profile.views]))
    )
    counts = seen.sum(2)
    within, between = profile.at(counts / way, way)
    used = (between > 0) & (variance > TINY) & (counts > way)[..., None]
    within = torch.where(used, within * variance, 1.0)
    between = torch.where(used, between * variance, TINY)
    shown = (seen[..., None] * used[:, :, None]).to(rows)

    def side_by_side(of_views: Tensor) -> Tensor:
        """[views, T, ..., J] as [T, ..., D]."""
        return of_views.movedim(0, -2).flatten(-2)

    return Outside.of(
        side_by_side(rows * used[:, :, None]),
        side_by_side(shown),
        members,
        side_by_side(within),
        side_by_side(between),
    )


def principal_rows(left: LeftOver) -> tuple[Tensor, Tensor, Tensor]:
    """Rows of tasks along the principal directions of what the components of a view leave over.

    Returns:
        rows: [T, N_S + N_Q, J], zero where the view is missing.
        seen: where it is not, bool [T, N_S + N_Q].
        variance: of the rows along every direction, [T, J].
    """
    shown = left.seen.to(left.whole)
    counts = shown.sum(1).clamp(min=1)
    share = (shown / counts[:, None])[..., None]

    def centred(rows: Tensor) -> Tensor:
        """Around the mean of the task, where the view is there."""
        return (rows - share.mT @ rows) * shown[..., None]

    products = left.products
    column = (share.mT @ products)[:, 0]
    lengths = products.diagonal(dim1=1, dim2=2) - 2 * column + (share[..., 0] * column).sum(1, True)
    # Where nothing is left over but rounding, no directions are looked for.
    something = (lengths * shown).sum(1) > NOTHING * left.whole.sum(1).clamp(min=TINY)
    width = min(DIRECTIONS, products.shape[-1])
    block = centred(left.start[..., :width])
    for _ in range(ITERATIONS):
        turned = centred(products @ block)
        block = orthonormal(torch.where(something[:, None, None], turned, block))
    values, turn = torch.linalg.eigh(block.mT @ centred(products @ block))
    values, turn = values.flip(-1), turn.flip(-1)
    rounding = torch.finfo(products.dtype).eps * products.shape[-1] * values[:, :1]
    values = torch.where(something[:, None] & (values > rounding), values, 0.0)
    out = (block @ turn) * values.sqrt()[:, None] * shown[..., None]
    missing = DIRECTIONS - width
    pad = torch.nn.functional.pad
    return pad(out, (0, missing)), left.seen, pad(values / counts[:, None], (0, missing))


@dataclass(frozen=True)
class Fold:
    """Base classes that play new ones, and the components of the others; of some views alone."""

    unknown: MultiViewData
    projection: Projection
    smallest: int  # rows of a class in pretended tasks
    device: Any = "cpu"  # where they are looked at

    @cached_property
    def left(self) -> tuple[LeftOver, ...]:
        """What is left over, view by view, of the classes that play new ones, in float64.

        Tasks are made of the same rows again and again, so these are multiplied once.
        """
        projection = map_tensors(self.projection, lambda tensor: tensor.to(self.device))
        rows = ViewTensors.of(self.unknown, self.device)
        return tuple(
            left_over(values.double(), rows.mask[:, view], view, projection, rows.has_nan)
            for view, values in enumerate(rows.views)
        )


def wide_views(projection: Projection) -> list[int]:
    """Views that have more features than components."""
    return [v for v, axes in enumerate(projection.axes) if axes.shape[0] > axes.shape[1]]


def play_new(
    base: MultiViewData, views: list[int], way: int, components: int, seed: int, device: Any = "cpu"
) -> list[Fold]:
    """Let some base classes, as many as a task has or a quarter, play new ones, fold by fold.

    Of scaled base samples and the views at these positions; nothing where there are too few.
    """
    seen = np.flatnonzero(base.mask[:, views].any(1))
    if not views or not len(seen):
        return []
    seen = seen[thinned_rows(base.codes[seen], MOST_ROWS)]
    rows = base[seen].select_views([base.view_names[view] for view in views])
    sizes = np.bincount(rows.codes)
    smallest = max(2, int(np.quantile(sizes, 0.25)))
    among = np.flatnonzero(sizes >= smallest)
    n_novel = min(len(sizes) - 1, len(among), max(way, len(sizes) // 4))
    if n_novel < 2:
        return []
    return [
        Fold(division.unknown, fit_projection(division.known, components, device), smallest, device)
        for division in divide(rows, n_novel, FOLDS, "directions", seed, among=among)
    ]


class Look(NamedTuple):
    """Pretended tasks, as many of every kind, in what one view leaves over of their rows.

    Attributes:
        left: of all rows that tasks are made of.
        rows: of the tasks, positions there, int64 [T, n].
        labels: their classes in the task, [T, n].
        seen: whether they show the view, bool [T, n].
    """

    left: LeftOver
    rows: Tensor
    labels: Tensor
    seen: Tensor


def learn_profile(
    folds: Sequence[Fold], views: Sequence[int], way: int, seed: int
) -> Profile | None:
    """Learn shares from classes that play new ones, in these views; None where nothing is found."""
    if not folds:
        return None
    way = min(way, len(folds[0].unknown.classes))
    counts = sorted({min(count, folds[0].smallest) for count in ROWS_PER_CLASS})
    found = []
    for count in counts:
        looks = [look for fold in folds for look in look_at(fold, way, count, seed)]
        device, size = looks[0].rows.device, looks[0].rows.numel() * looks[0].rows.shape[1]
        at_once = 1 if device.type == "cpu" else max(1, AT_ONCE // size)
        parts = [
            shares_of(looks[start : start + at_once], way, len(KINDS))
            for start in range(0, len(looks), at_once)
        ]
        shares, variance = (torch.cat(part) for part in zip(*parts, strict=True))
        found.append(shares.reshape(len(folds), len(views), 2, DIRECTIONS).mean(0))
    within, between = torch.stack(found).cpu().unbind(2)  # [R, views, J]
    whole = torch.stack([variance_of(look, len(KINDS)) for look in looks])
    rest = (variance / whole).mean(1).reshape(len(folds), len(views)).mean(0)
    kept = [v for v, share in enumerate(rest.tolist()) if share > LEAST_REST]
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


def look_at(fold: Fold, way: int, count: int, seed: int) -> list[Look]:
    """Tasks of a fold with so many rows of a class, view by view."""
    kinds = []
    for kind in KINDS:
        task = TaskSpec(way=way, shot=1, queries=count - 1, query_counts=kind)
        kinds.append(EpisodeSampler(fold.unknown, task, seed=seed).draw(0, TASKS))
    tasks = _joined(kinds)
    rows, labels, seen = (
        torch.from_numpy(
            np.concatenate([getattr(tasks, name + end) for name in ("support", "query")], axis=1)
        ).to(fold.device)
        for end in ("", "_labels", "_mask")
    )
    return [Look(left, rows, labels, seen[..., view]) for view, left in enumerate(fold.left)]


def shares_of(looks: Sequence[Look], way: int, kinds: int) -> tuple[Tensor, Tensor]:
    """Variance within classes and between their means, as shares of all, by analysis of variance.

    Means over the kinds of tasks, [looks, 2, J]; and the variance of rows of a kind along all the
    directions of their task, [looks, kinds].
    """
    rows, seen, variance = principal_rows(
        LeftOver.join([look.left.at(look.rows, look.seen) for look in looks])
    )
    labels = torch.cat([look.labels for look in looks])
    members = (labels[..., None] == torch.arange(way, device=labels.device)).to(rows)
    members = members * seen[..., None]
    counts = members.sum(1)  # [T, C]
    total, classes = counts.sum(1, keepdim=True), (counts > 0).sum(1, keepdim=True)
    means = members.mT @ rows / counts.clamp(min=1)[..., None]
    explained = (counts[..., None] * means.square()).sum(1)  # rows have mean zero
    within = (rows.square().sum(1) - explained) / (total - classes).clamp(min=1)
    freedom = (classes - 1).clamp(min=1)  # gaps may leave rows of one class only
    typical = (total - counts.square().sum(1, keepdim=True) / total.clamp(min=1)) / freedom
    between = (explained / freedom - within) / typical.clamp(min=1)
    tasks = len(looks[0].rows) // kinds
    within, between, variance = (  # [looks, kinds, J]
        part.reshape(len(looks), kinds, tasks, part.shape[-1]).sum(2)
        for part in (within, between, variance)
    )
    whole = variance.clamp(min=TINY)
    shares = torch.stack([within / whole, between / whole], dim=1)
    return shares.mean(2), (variance / tasks).sum(2)


def variance_of(look: Look, kinds: int) -> Tensor:
    """The variance of all rows of every kind of tasks, [kinds].

    That is the mean of their squares minus the square of their mean.
    """
    left = look.left
    times = left.whole.new_zeros(kinds, len(left.whole))
    place, drawn = (
        x.reshape(kinds, -1) for x in (look.rows, (look.seen & left.seen[look.rows]).to(times))
    )
    times = times.scatter_add_(1, place, drawn)
    times = times / times.sum(1, keepdim=True).clamp(min=1)
    middle = ((times @ left.products) * times).sum(1) + (times @ left.inside).square().sum(1)
    return (times @ left.whole - middle).clamp(min=TINY)


def _joined(parts: Sequence[Episodes]) -> Episodes:
    """Tasks of one shape and of the same classes, one after another."""
    found = {name: np.concatenate([getattr(part, name) for part in parts]) for name in PER_TASK}
    changes: dict[str, Any] = found
    return replace(parts[0], **changes)
