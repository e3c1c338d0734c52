"""Pretended tasks: some base classes are held out as new ones, the others stay base classes.

`pretend` compares queries with new and known classes, `pretend_answers` asks for probabilities of
new ones. As many base classes as possible stay known. With five, two of which are held out, the
model of the other three is surer than that of all five: that rejected twice as many queries as
promised.
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable
from copy import copy
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax

from fewview.episodes.divide import divide, thinned
from fewview.episodes.episodes import Episodes
from fewview.episodes.sampler import EpisodeSampler
from fewview.episodes.task import TaskSpec
from fewview.errors import FewviewError, FewviewWarning
from fewview.methods.base import Contract
from fewview.methods.estimator.class_fits import ClassMeans, class_fits
from fewview.methods.estimator.fitted_base import FittedBase, learn_uncached
from fewview.methods.registry import create
from fewview.numerics.random_keys import raw, smallest, stream_key
from fewview.samples._data import MultiViewData
from fewview.samples._masks import MissingRule
from fewview.samples._rates import largest_rate

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

SHOTS = (1, 2, 3, 5, 10)
FEWEST_SAMPLES = 4  # of a base class that is held out
# Known classes that queries are compared with at most.
MOST_KNOWN = 20


@dataclass(frozen=True, eq=False)
class Pretended:
    """Queries of tasks in which some base classes were held out and others stayed known.

    Attributes:
        shots: supports of a held-out class in the task, [N].
        views: views that the query has, [N].
        label: its class among the base classes, [N].
        new: whether that class was held out, [N].
        whole: whether gaps of supports were taken away, [N].
        few: how well it fits the classes of the task, which have few supports; its own first where
            it is one of them, [N, W].
        known: how well it fits the classes that stayed known; its own first where it is one of
            them, -inf for one that is not there or has few supports in the task, [N, K].
    """

    shots: IntArray
    views: IntArray
    label: IntArray
    new: BoolArray
    whole: BoolArray
    few: FloatArray
    known: FloatArray

    @property
    def own(self) -> FloatArray:
        """How well a query fits its own class, [N]."""
        return np.where(self.new, self.few[:, 0], self.known[:, 0])


def too_few_classes(data: MultiViewData) -> str:
    """Why nothing can be learnt from these base classes; empty where it can."""
    sizes = np.bincount(data.codes[data.codes >= 0], minlength=len(data.classes))
    large = int((sizes >= FEWEST_SAMPLES).sum())
    if len(sizes) >= 4 and large >= 2:
        return ""
    return (
        "rejecting, and telling known classes from new ones, needs at least 4 base classes, 2 "
        f"of them with {FEWEST_SAMPLES} samples or more, which are held out as new ones; this "
        f"base set has {len(sizes)}, {large} of that size"
    )


def pretend(method: Contract, data: MultiViewData, task: TaskSpec, seed: int) -> Pretended:
    """Compare queries with classes in tasks of unscaled base classes, some of them held out.

    The gaps of `task` are what queries will have, among others.
    """
    sizes = np.bincount(data.codes, minlength=len(data.classes))
    large = np.flatnonzero(sizes >= FEWEST_SAMPLES)
    if problem := too_few_classes(data):
        raise FewviewError(problem)
    method = _compared_by(method)
    way = max(1, min(5, len(sizes) // 5))
    n_folds, count = (4, 8) if way > 1 else (min(len(large), 9), 4)
    parts: list[Pretended] = []
    divisions = divide(data, way, n_folds, "rejection folds", among=large, turns=True)
    for number, division in enumerate(divisions):
        known, apart = _kept_apart(division.known)
        fitted = _learnt(method, known, task, seed, 20_000)
        drawn = division.novel
        if way == 1:  # a task has two classes at least, so another one is there for that
            others = np.setdiff1d(large, drawn)
            drawn = np.append(drawn, others[number % len(others)])
        pool = data[np.isin(data.codes, drawn)]
        fold = _Fold(method, fitted, data.classes.tolist(), pool, apart)
        for shot in SHOTS:
            room = int(sizes[drawn].min()) - shot
            if room >= 2:
                shape = replace(task, way=len(drawn), shot=shot, queries=min(15, room))
                shape = replace(shape, query_counts="balanced")
                tasks = with_gaps(pool, shape, f"rejection {number}", count)
                whole = _with_whole_supports(tasks) if pool.mask.all() else []
                parts += [fold.compared(one, shot, division.novel, False) for one in tasks]
                parts += [fold.compared(one, shot, division.novel, True) for one in whole]
    columns = (np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(Pretended))
    return Pretended(*columns)


def _compared_by(method: Contract) -> Contract:
    """Who says how well queries fit, which is all that is asked for."""
    if type(method).typicality is Contract.typicality:
        # Distances in scaled views, by a method that learns nothing else: no network is trained.
        same = {name: getattr(method, name) for name in ("scaling", "device", "dtype")}
        scaled: Contract = create("proto", **same)
        return scaled
    if "transductive" in method.get_params(deep=False):  # nothing is learnt about queries together
        method = copy(method)
        method.set_params(transductive=False)
    return method


class _Fold:
    """One division of the base classes, learnt from: what queries are compared with."""

    def __init__(
        self,
        method: Contract,
        fitted: FittedBase,
        labels: list[Hashable],
        pool: MultiViewData,
        apart: MultiViewData,
    ) -> None:
        """Tasks are of `pool`, known queries were kept `apart`; `labels` are all base classes."""
        assert fitted.rows is not None
        self.method, self.fitted = method, fitted
        self.position = {label: code for code, label in enumerate(labels)}
        self.classes = ClassMeans.of(method, fitted.rows, fitted).some(MOST_KNOWN)
        self.codes = np.array([self.position[label] for label in self.classes.labels])
        asked = np.array([self.position[x] for x in apart.classes.tolist()], np.int64)[apart.codes]
        there = np.isin(asked, self.codes)
        self.start, self.asked, self.asked_codes = len(pool), apart[there], asked[there]
        both = MultiViewData.concat([pool.without_ids(), self.asked.without_ids()])
        self.tensors = method.tensors(both, fitted)

    def compared(self, episodes: Episodes, shot: int, novel: IntArray, whole: bool) -> Pretended:
        """Compare the queries of some tasks, and queries of known classes, with all classes.

        Of queries of the tasks those count whose class is `novel`.
        """
        drawn = np.array([self.position[name] for name in episodes.class_names])
        drawn = drawn[episodes.classes]  # [T, W]
        own = np.take_along_axis(drawn, episodes.query_labels, 1)
        episodes, asked = self._with_known_queries(episodes)
        label = np.concatenate([own, asked], axis=1)
        batch = self.classes.added_to(self.tensors.gather(episodes))
        fits = class_fits(self.method, replace(batch, query_labels=None), self.fitted)
        table = fits.double().cpu().numpy()
        few, known = np.split(table, [drawn.shape[1]], axis=2)  # [T, queries, W], [..., K]
        # A class of the task is there by its few supports, not by its mean too.
        twice = (self.codes == drawn[..., None]).any(1)
        known = np.where(twice[:, None], -np.inf, known)
        mine = (self.codes == label[..., None]) & ~twice[:, None]
        new = np.broadcast_to(np.arange(label.shape[1]) < own.shape[1], label.shape)
        wanted = np.where(new, np.isin(label, novel), mine.any(-1))
        more = (0, 0), (0, MOST_KNOWN - known.shape[2])
        return Pretended(
            shots=np.full(wanted.sum(), shot),
            views=batch.query_mask.sum(-1).cpu().numpy()[wanted],
            label=label[wanted],
            new=new[wanted],
            whole=np.full(wanted.sum(), whole),
            few=_own_first(few, drawn[:, None] == label[..., None])[wanted],
            known=np.pad(_own_first(known, mine)[wanted], more, constant_values=-np.inf),
        )

    def _with_known_queries(self, episodes: Episodes) -> tuple[Episodes, IntArray]:
        """The tasks with ten queries of known classes after their own, and classes of these.

        They get the gaps of other queries of the task, beside their own.
        """
        n_tasks, held = len(episodes), len(self.asked)
        count = min(10, held)
        draws = raw(np.array(stream_key("known queries", count), dtype=np.uint64), n_tasks * held)
        rows = smallest(draws.reshape(n_tasks, held), count)
        own = self.asked.mask[rows]
        mask = own & episodes.query_mask[:, np.arange(count) % episodes.query.shape[1]]
        mask = np.where(mask.any(-1, keepdims=True), mask, own)
        query = np.concatenate([episodes.query, self.start + rows], axis=1)
        both = np.concatenate([episodes.query_mask, mask], axis=1)
        return replace(episodes, query=query, query_mask=both), self.asked_codes[rows]


def _own_first(table: FloatArray, own: BoolArray) -> FloatArray:
    """Columns [..., n] in turn from the one that is a query's own, where one is."""
    order = (own.argmax(-1)[..., None] + np.arange(own.shape[-1])) % own.shape[-1]
    return np.take_along_axis(table, order, axis=-1)


def _learnt(
    method: Contract, known: MultiViewData, task: TaskSpec, seed: int, most: int
) -> FittedBase:
    """What a method learns from at most so many samples of classes that stay known."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FewviewWarning)
        return learn_uncached(method, thinned(known, most), task, seed)


def _kept_apart(known: MultiViewData) -> tuple[MultiViewData, MultiViewData]:
    """Samples to learn from, and a fifth of every class with enough of them to ask about."""
    keys = raw(np.array(stream_key("held out"), dtype=np.uint64), len(known))
    out = np.zeros(len(known), dtype=bool)
    for code in range(len(known.classes)):
        rows = np.flatnonzero(known.codes == code)
        count = min(15, round(len(rows) / 5)) if len(rows) >= FEWEST_SAMPLES else 0
        out[rows[smallest(keys[rows], count)]] = True
    return known[~out], known[out]


def with_gaps(data: MultiViewData, task: TaskSpec, name: str, count: int) -> list[Episodes]:
    """Tasks whose supports have the task's own gaps, and whose queries have them, none, or many.

    Queries with any number of views should occur; supports should look as they will.
    """
    own = data.missing_rate
    if own:  # samples come with their own gaps; drawing such gaps again would double them
        more = max(0.0, round((task.eta - own) / (1 - own), 1))
        task = replace(task, missing=MissingRule(), eta=min(more, largest_rate(data.n_views)))
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


def pretend_answers(
    method: Contract, data: MultiViewData, task: TaskSpec, seed: int
) -> tuple[FloatArray, IntArray, BoolArray]:
    """Ask for probabilities in tasks of unscaled base classes, with way, shot and gaps of `task`.

    Returns:
        Log-probability of the true class minus that of the most probable one, [N].
        The true class among the base classes, [N].
        Views that the query has, [N, V].
    """
    sizes, shot = np.bincount(data.codes, minlength=len(data.classes)), min(task.shots)
    large = np.flatnonzero(sizes >= shot + 2)
    # With fewer known classes the model would be another one.
    way = max(2, min(task.way, len(sizes) // 2))
    if len(sizes) < way + 2 or len(large) < way:
        raise FewviewError(
            "prediction sets are calibrated on base classes that are held out as new ones: at "
            f"least 4 of them, {way} with {shot + 2} samples or more, are needed; there are "
            f"{len(sizes)}, {len(large)} of that size"
        )
    position = {label: code for code, label in enumerate(data.classes.tolist())}
    below, labels, masks = [], [], []
    for number, fold in enumerate(divide(data, way, 6, "sets", among=large, turns=True)):
        fitted = _learnt(method, fold.known, task, seed, 6000)
        room = int(np.bincount(fold.unknown.codes).min()) - shot
        # Nobody knows the shares of classes among queries.
        for shares, most in (("balanced", room), ("dirichlet:2", max(1, room // 2))):
            shape = replace(task, way=way, shot=shot, queries=min(15, most), query_counts=shares)
            try:
                tasks = with_gaps(fold.unknown, shape, f"sets {number}", 6)
            except FewviewError:
                continue  # classes are too small for uneven shares
            for episodes in tasks:
                scores = method.score_episodes(fold.unknown, episodes, fitted).double().numpy()
                logs, true = log_softmax(scores, axis=-1), episodes.query_labels
                own = np.take_along_axis(logs, true[..., None], 2)[..., 0]
                below.append((own - logs.max(-1)).reshape(-1))
                codes = np.array([position[name] for name in episodes.class_names])
                labels.append(codes[np.take_along_axis(episodes.classes, true, 1)].reshape(-1))
                seen = episodes.query_mask & fold.unknown.mask[episodes.query]
                masks.append(seen.reshape(-1, data.n_views))
    return np.concatenate(below), np.concatenate(labels), np.concatenate(masks)
