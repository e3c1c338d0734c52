"""Base classes play new ones: how well queries then fit the classes that are there.

As many classes as possible stay known. With five base classes, two of which play new ones, the
model of the other three is surer than that of all five: that rejected twice as many as promised.
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import clone
from torch import Tensor

from fewview.engine._contract import Contract
from fewview.engine._state import Prepared, State
from fewview.episodes._pretended import divide, thinned
from fewview.episodes._sampler import Episodes, EpisodeSampler
from fewview.episodes._task import TaskSpec
from fewview.ground._draws import raw, stream_key
from fewview.ground._errors import FewviewError, FewviewWarning
from fewview.ground._memory import LRUCache, cached
from fewview.numerics._batch import EpisodeBatch, ViewTensors
from fewview.samples._data import MultiViewData
from fewview.samples._masks import MissingRule
from fewview.samples._rates import largest_rate
from fewview.samples._scaling import fit_scaling

FEWEST_CLASSES = 4
FEWEST_SAMPLES = 4
FEWEST_LARGE = 2
N_FOLDS = 4
# Folds where one class at a time plays a new one.
MOST_FOLDS = 9
EPISODES = 8
QUERIES = 15
MOST_WAYS = 5
MOST_SAMPLES = 20_000
SHOTS = (1, 2, 3, 5, 10)
# Of the classes that stay known: how many are looked at, samples of one that are held out, the
# share of them, and queries of a task that are drawn from those.
MOST_KNOWN, MOST_HELD, HELD_SHARE, KNOWN_QUERIES = 20, 15, 1 / 5, 10
# The mean of a known class counts as so many supports at most: it is sure enough then, and classes
# of different sizes share their matrices.
MOST_WEIGHT = 20
FloatArray = NDArray[np.float64]


def too_few_classes(n_classes: int, n_large: int = FEWEST_LARGE) -> str:
    """Why nothing can be learnt from so few base classes; empty where it can.

    `n_large` of them have enough samples to play new classes.
    """
    if n_classes < FEWEST_CLASSES:
        return (
            "rejecting, and telling known classes from new ones, needs at least "
            f"{FEWEST_CLASSES} base classes that play new ones; this model has {n_classes}"
        )
    if n_large < FEWEST_LARGE:
        return (
            "rejecting, and telling known classes from new ones, needs at least "
            f"{FEWEST_LARGE} base classes with {FEWEST_SAMPLES} samples or more; this model has "
            f"{n_large}"
        )
    return ""


@dataclass(frozen=True, eq=False)
class KnownMeans(State):
    """Base classes as supports: one row each, the mean of their scaled samples."""

    labels: tuple[Any, ...]
    means: tuple[Tensor, ...]  # per view [C, width], zeros where no sample of the class has it
    mask: Tensor  # bool [C, V]
    weights: Tensor  # how many supports a mean counts as, [C]

    def added_to(self, batch: EpisodeBatch) -> EpisodeBatch:
        """The tasks with these classes after their own."""
        count = len(self.labels)
        means, mask = self.means, self.mask
        for view in range(len(means), batch.n_views):  # that only supports have
            means = (*means, means[0].new_zeros(count, batch.support[view].shape[-1]))
            mask = torch.cat([mask, torch.zeros_like(mask[:, :1])], dim=1)

        def more(own: Tensor, other: Tensor) -> Tensor:
            return torch.cat([own, other.to(own).expand(batch.n_tasks, *other.shape)], dim=1)

        labels = batch.way + torch.arange(count)
        weights = torch.ones_like(batch.support_labels, dtype=batch.dtype)
        if batch.support_weights is not None:
            weights = batch.support_weights
        return replace(
            batch,
            support=tuple(map(more, batch.support, means)),
            support_mask=more(batch.support_mask, mask),
            support_labels=more(batch.support_labels, labels),
            support_weights=more(weights, self.weights),
            way=batch.way + count,
        )


def known_means(method: Contract, base: MultiViewData, prepared: Prepared) -> KnownMeans:
    """Means of base classes with at least two samples; one of a single sample would be a sample."""
    sizes = np.bincount(base.codes, minlength=len(base.classes))
    kept = np.flatnonzero(sizes >= 2)
    rows = method.scaled(base, prepared)
    codes = torch.from_numpy(np.searchsorted(kept, base.codes)).to(rows.mask.device)
    ours = torch.from_numpy(np.isin(base.codes, kept)).to(rows.mask.device)
    means, masks = [], []
    for view, block in enumerate(rows.views):
        known = ~block.isnan() & (rows.mask[:, view] & ours)[:, None]
        shape = (len(kept), block.shape[1])
        place = codes.clamp(max=len(kept) - 1)
        sums = block.new_zeros(shape).index_add_(0, place, torch.where(known, block, 0.0))
        counts = block.new_zeros(shape).index_add_(0, place, known.to(block))
        means.append(sums / counts.clamp(min=1))
        masks.append((counts > 0).any(1))
    weights = torch.from_numpy(np.minimum(sizes[kept], MOST_WEIGHT)).to(means[0])
    labels = tuple(base.classes[kept].tolist())
    return KnownMeans(labels, tuple(means), torch.stack(masks, dim=1), weights)


@dataclass(frozen=True, eq=False)
class Played:
    """Queries of tasks in which some base classes played new ones and others stayed known.

    Attributes:
        shots: supports of a new class in the task, [N].
        views: views that the query has, [N].
        label: its class among the base classes, [N].
        new: whether that class played a new one, [N].
        few: how well it fits the classes of the task, which have few supports, [N, W].
        known: how well it fits the classes that stayed known, -inf for one that is not there or
            has few supports in the task, [N, K].
        place: which of these columns, of both tables side by side, is its own class, [N].
        whole: whether the gaps of supports of the task were taken away, [N].
    """

    shots: NDArray[np.int64]
    views: NDArray[np.int64]
    label: NDArray[np.int64]
    new: NDArray[np.bool_]
    few: FloatArray
    known: FloatArray
    place: NDArray[np.int64]
    whole: NDArray[np.bool_]

    @property
    def own(self) -> FloatArray:
        """How well a query fits its own class, [N]."""
        both = np.concatenate([self.few, self.known], axis=1)
        out: FloatArray = np.take_along_axis(both, self.place[:, None], 1)[:, 0]
        return out

    def best_of(self, way: int) -> FloatArray:
        """How well a query fits the best of so many classes of the task, its own among them, [N].

        That of known classes for queries whose class stayed known is their own.
        """
        column = (self.place[:, None] + np.arange(way)) % self.few.shape[1]
        out: FloatArray = np.take_along_axis(self.few, column, 1).max(1)
        return np.where(self.new, out, self.own)


def _question(method: Contract, base: MultiViewData, task: TaskSpec) -> Hashable:
    return base.fingerprint, type(method), method.key(), task.missing, task.eta


@cached(LRUCache(16), key=_question, lock=Lock())
def play(method: Contract, base: MultiViewData, task: TaskSpec) -> Played:
    """Let unscaled base classes play new ones; the same question is answered once.

    The task's gaps are what queries will have, among others.
    """
    n_classes = len(base.classes)
    sizes = np.bincount(base.codes, minlength=n_classes)
    large = np.flatnonzero(sizes >= FEWEST_SAMPLES)
    problem = too_few_classes(n_classes, len(large))
    if problem:
        raise FewviewError(problem)
    if "transductive" in method.get_params(deep=False):
        # Only how well queries fit is asked for, so nothing is learnt about queries together.
        method = clone(method).set_params(transductive=False)
    way = max(1, min(MOST_WAYS, n_classes // 5))
    n_folds = N_FOLDS if way > 1 else min(len(large), MOST_FOLDS)
    count = EPISODES if way > 1 else EPISODES // 2
    most = min(MOST_KNOWN, n_classes)
    position = {label: code for code, label in enumerate(base.classes.tolist())}
    parts: list[tuple[NDArray[Any], ...]] = []
    for number, division in enumerate(
        divide(base, way, n_folds, "rejection folds", among=large, turns=True)
    ):
        known, held = _held_out(division.known)
        prepared = _prepared(method, known, task)
        stay = _some(known_means(method, thinned(known, MOST_SAMPLES), prepared))
        codes = np.array([position[label] for label in stay.labels])
        # A task has two classes at least; where one plays a new one, another is there for that.
        drawn = division.novel if way > 1 else np.append(
            division.novel, np.setdiff1d(large, division.novel)[number % (len(large) - 1)]
        )  # fmt: skip
        pool = base[np.isin(base.codes, drawn)]
        tensors = method.scaled(pool, prepared)
        truth = np.array([position[x] for x in held.classes.tolist()], dtype=np.int64)[held.codes]
        asked = method.scaled(held, prepared)
        usable = np.flatnonzero(np.isin(truth, codes))
        for shot in SHOTS:
            room = int(sizes[drawn].min()) - shot
            if room < 2:
                continue
            shape = replace(
                task, way=len(drawn), shot=shot, queries=min(QUERIES, room),
                query_counts="balanced",
            )  # fmt: skip
            tasks = with_gaps(pool, shape, f"rejection {number}", count)
            again = _with_whole_supports(tasks) if pool.mask.all() else []
            for turn, episodes in enumerate([*tasks, *again]):
                batch = tensors.gather(episodes)
                batch, rows = _with_known_queries(batch, asked, usable)
                with torch.no_grad():
                    fit = method.typicality(stay.added_to(batch), prepared.state)
                table = fit.double().cpu().numpy()  # [T, queries, drawn and known classes]
                named = np.array([position[name] for name in episodes.class_names])
                few_of = named[episodes.classes]  # [T, drawn]
                label = np.concatenate(
                    [np.take_along_axis(few_of, episodes.query_labels, 1), truth[rows]], axis=1
                )
                is_new = np.zeros(label.shape, dtype=bool)
                is_new[:, : episodes.query.shape[1]] = True
                everyone = np.concatenate([few_of, np.tile(codes, (len(few_of), 1))], axis=1)
                few = np.arange(everyone.shape[1]) < len(drawn)
                # A class of the task is there by its few supports, not by its mean too.
                twice = ~few & (everyone[:, :, None] == few_of[:, None]).any(-1)
                table = np.where(twice[:, None], -np.inf, table)
                mine = (everyone[:, None] == label[..., None]) & (few == is_new[..., None])
                mine &= ~twice[:, None]
                wanted = mine.any(-1) & (~is_new | np.isin(label, division.novel))
                tables = table[wanted][:, few], _padded(table[wanted][:, ~few], most)
                views = batch.query_mask.sum(-1).cpu().numpy()
                columns = (np.full(label.shape, shot), views, label, is_new)
                place = mine.argmax(-1)[wanted]
                whole = np.full(len(place), turn >= len(tasks))
                parts.append((*(column[wanted] for column in columns), *tables, place, whole))
    return Played(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _padded(table: FloatArray, width: int) -> FloatArray:
    return np.pad(table, ((0, 0), (0, width - table.shape[1])), constant_values=-np.inf)


def _held_out(known: MultiViewData) -> tuple[MultiViewData, MultiViewData]:
    """Samples to learn from, and of every class with enough of them some to ask about."""
    keys = raw(np.array(stream_key("held out"), dtype=np.uint64), len(known))
    out = np.zeros(len(known), dtype=bool)
    for code in range(len(known.classes)):
        rows = np.flatnonzero(known.codes == code)
        count = min(MOST_HELD, round(HELD_SHARE * len(rows))) if len(rows) >= FEWEST_SAMPLES else 0
        out[rows[np.argsort(keys[rows], kind="stable")[:count]]] = True
    return known[~out], known[out]


def _some(known: KnownMeans) -> KnownMeans:
    """At most `MOST_KNOWN` of the classes."""
    keys = raw(np.array(stream_key("some known"), dtype=np.uint64), len(known.labels))
    keep = torch.from_numpy(np.sort(np.argsort(keys, kind="stable")[:MOST_KNOWN]))
    return KnownMeans(
        tuple(known.labels[int(place)] for place in keep),
        tuple(means[keep] for means in known.means),
        known.mask[keep],
        known.weights[keep],
    )


def _with_known_queries(
    batch: EpisodeBatch, asked: ViewTensors, usable: NDArray[np.intp]
) -> tuple[EpisodeBatch, NDArray[np.intp]]:
    """The tasks with queries of known classes after their own, and which rows these are, [T, n].

    They get the gaps of other queries of the task, beside their own.
    """
    n_tasks, count = batch.n_tasks, min(KNOWN_QUERIES, len(usable))
    key = np.array(stream_key("known queries", count), dtype=np.uint64)
    draws = raw(key, n_tasks * max(len(usable), 1)).reshape(n_tasks, -1)
    rows = usable[np.argsort(draws[:, : len(usable)], axis=1, kind="stable")[:, :count]]
    index = torch.from_numpy(rows).to(batch.device)
    own = asked.mask[index]
    mask = own & batch.query_mask[:, torch.arange(count) % batch.n_query]
    mask = torch.where(mask.any(-1, keepdim=True), mask, own)
    query = tuple(
        torch.cat([view, torch.where(mask[..., v, None], block[index], 0.0)], dim=1)
        for v, (view, block) in enumerate(zip(batch.query, asked.views, strict=True))
    )
    everyone = torch.cat([batch.query_mask, mask], dim=1)
    empty = batch.empty_cells or asked.empty_cells
    whole = replace(batch, query=query, query_mask=everyone, query_labels=None, empty_cells=empty)
    return whole, rows


def with_gaps(
    data: MultiViewData, task: TaskSpec, name: str, count: int = EPISODES
) -> list[Episodes]:
    """Tasks whose supports have the task's own gaps, and whose queries have them, none, or many.

    Queries with any number of views should occur; supports should look as they will.
    """
    if not data.mask.all():
        # Samples come with their own gaps; drawing such gaps again would double them.
        task = replace(task, missing=MissingRule(), eta=0.0)
    usual = EpisodeSampler(data, task, name=name).draw(0, count)
    out = [usual]
    for eta in (0.0, 0.75 * largest_rate(data.n_views)) if data.n_views > 1 else ():
        other = replace(task, missing=MissingRule(), eta=eta)
        # The same samples: an episode's samples do not depend on its gaps.
        mask = EpisodeSampler(data, other, name=name).draw(0, count).query_mask
        out.append(replace(usual, query_mask=mask))
    return out


def _with_whole_supports(tasks: list[Episodes]) -> list[Episodes]:
    """The tasks again without gaps of supports, where gaps were drawn, but for the first kind.

    Whether the supports that will come have gaps is not known, and queries fit supports that have
    none otherwise.
    """
    if tasks[0].support_mask.all():
        return []
    return [replace(one, support_mask=np.ones_like(one.support_mask)) for one in tasks[1:]]


def _prepared(method: Contract, known: MultiViewData, task: TaskSpec) -> Prepared:
    if type(method).typicality is Contract.typicality:
        return Prepared(fit_scaling(known, method.scaling), None, State(), known[:0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FewviewWarning)
        return method.prepare_base(thinned(known, MOST_SAMPLES), task)
