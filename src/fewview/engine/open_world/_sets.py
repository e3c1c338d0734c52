"""Sets of classes that hold the truth with a stated probability (conformal prediction).

A set has the classes that are less than a limit below the most probable one, in log-probability.
The limit comes from tasks in which base classes play new ones: it is a quantile of how far their
true class was below, for every pattern of views that occurs often enough, else for the number of
views (Mondrian conformal prediction, Vovk et al. 2005). Queries of a class are alike, so what is
exchangeable are classes (hierarchical conformal prediction, Dunn et al. 2023, Lee et al. 2023). A
guarantee for any distribution would need sets of all classes beyond a coverage of K / (K + 1) with
K base classes. Instead every class in turn is held against the limit of the others, and the limit
is taken with which they are covered as often as asked in the mean, less a standard error, as the
jackknife does (Barber et al. 2021): no guarantee, but near what is asked.
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
from torch import Tensor

from fewview.engine._contract import Contract
from fewview.engine._state import State
from fewview.engine.open_world._playing import with_gaps
from fewview.engine.open_world._rejection import LEVELS
from fewview.episodes._pretended import divide, thinned
from fewview.episodes._sampler import Episodes, EpisodeSampler
from fewview.episodes._task import TaskSpec
from fewview.ground._errors import FewviewError, FewviewWarning
from fewview.ground._memory import LRUCache, cached
from fewview.samples._data import MultiViewData

N_FOLDS, EPISODES, QUERIES = 6, 6, 15
# Nobody knows the shares of classes among queries.
SHARES = ("balanced", "dirichlet:2")
# A pattern of views, or a number of them, with fewer queries is judged by more queries.
FEWEST_QUERIES = 100
MOST_SAMPLES = 6000
# Fewer classes cannot be held against each other. The largest distance below is stretched by these.
FEWEST_CLASSES = 3
STRETCHED = np.geomspace(1.0, 8.0, 40)[1:]
FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class SetLimits(State):
    """How far below the most probable class the true one was, by views.

    Attributes:
        patterns: those with limits of their own, bool [P, V].
        of_patterns: their limits at `LEVELS` of mistakes, [P, levels].
        of_counts: for queries with 1, 2, ... views, [V, levels].
        way: classes of the tasks they are from.
        shot: supports of a class.
    """

    patterns: Tensor
    of_patterns: FloatArray
    of_counts: FloatArray
    way: int
    shot: int

    def at(self, coverage: float, mask: NDArray[np.bool_]) -> FloatArray:
        """Limits of queries with these views, bool [n, V]: [n]; infinite where all is possible."""
        mask = mask[:, : len(self.of_counts)]  # without views that only supports have
        rows = self.of_counts[np.maximum(mask.sum(1), 1) - 1]
        for pattern, limits in zip(self.patterns.numpy(), self.of_patterns, strict=True):
            rows = np.where((mask == pattern).all(1)[:, None], limits, rows)
        out: FloatArray = rows[:, np.searchsorted(LEVELS, 1 - coverage + 1e-9, side="right") - 1]
        return out


def check_coverage(coverage: Any) -> None:
    """Refuse what is no probability of holding the truth."""
    number = isinstance(coverage, (int, float, np.floating)) and not isinstance(coverage, bool)
    if not number or not 0 < coverage < 1:
        raise FewviewError(f"coverage is {coverage!r}; give a number between 0 and 1, such as 0.9")


def _question(method: Contract, base: MultiViewData, task: TaskSpec) -> Hashable:
    asked = task.way, task.shots, task.missing, task.eta
    return base.fingerprint, type(method), method.key(), asked


@cached(LRUCache(16), key=_question, lock=Lock())
def learn_sets(method: Contract, base: MultiViewData, task: TaskSpec) -> SetLimits:
    """Learn from unscaled base classes; way, shot and gaps are those of the task."""
    sizes = np.bincount(base.codes, minlength=len(base.classes))
    shot = min(task.shots)
    large = np.flatnonzero(sizes >= shot + 2)
    # With fewer known classes the model would be another one.
    way = max(2, min(task.way, len(base.classes) // 2))
    if len(base.classes) < way + 2 or len(large) < way:
        raise FewviewError(
            "sets of classes are calibrated on base classes that play new ones: at least 4 of "
            f"them, {way} with {shot + 2} samples or more, are needed; there are "
            f"{len(base.classes)}, {len(large)} of that size"
        )
    below, masks, labels = [], [], []
    position = {label: code for code, label in enumerate(base.classes.tolist())}
    for number, division in enumerate(divide(base, way, N_FOLDS, "sets", among=large, turns=True)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FewviewWarning)
            prepared = method.prepare_base(thinned(division.known, MOST_SAMPLES), task)
        for episodes in _tasks(division.unknown, task, way, shot, f"sets {number}"):
            scores = method.score_episodes(division.unknown, episodes, prepared)
            table = torch.log_softmax(scores.double(), dim=-1).numpy()
            own = np.take_along_axis(table, episodes.query_labels[..., None], 2)[..., 0]
            below.append((table.max(-1) - own).reshape(-1))
            seen = episodes.query_mask & division.unknown.mask[episodes.query]
            masks.append(seen.reshape(-1, base.n_views))
            named = np.array([position[name] for name in episodes.class_names])
            codes = np.take_along_axis(episodes.classes, episodes.query_labels, 1)
            labels.append(named[codes].reshape(-1))
    parts = np.concatenate(below), np.concatenate(masks), np.concatenate(labels)
    return _limits(*parts, way, shot)


def _tasks(data: MultiViewData, task: TaskSpec, way: int, shot: int, name: str) -> list[Episodes]:
    """Balanced and uneven tasks with the gaps that queries may have."""
    room = int(np.bincount(data.codes).min()) - shot
    out = []
    for shares in SHARES:
        queries = min(QUERIES, room if shares == "balanced" else max(1, room // 2))
        shape = replace(task, way=way, shot=shot, queries=queries, query_counts=shares)
        try:
            EpisodeSampler(data, shape, name=name)
        except FewviewError:
            continue  # classes are too small for uneven shares
        out += with_gaps(data, shape, name, EPISODES)
    return out


def class_quantiles(values: FloatArray, label: NDArray[np.int64]) -> FloatArray:
    """Limits that queries of a class not among them exceed with the chance `LEVELS`, [levels].

    Every class in turn is held against limits of the others; the smallest limit is taken with which
    they are covered as often as asked, in the mean over classes less its standard error, since the
    classes to come are as few and differ as much. Where the largest value is not
    enough, it is stretched; infinite where nothing is, and for fewer than three classes.
    """
    classes = np.unique(label)
    if len(classes) < FEWEST_CLASSES:
        return np.full(len(LEVELS), np.inf)
    rows = []
    for one in classes:
        own, others = np.sort(values[label == one]), label != one
        limits = _rising_limits(values[others], label[others])
        rows.append(np.searchsorted(own, limits, side="right") / len(own))
    shares = np.array(rows)
    covered = shares.mean(0) - shares.std(0, ddof=1) / np.sqrt(len(classes))
    limits = np.append(_rising_limits(values, label), np.inf)
    return limits[np.searchsorted(np.maximum.accumulate(covered), 1 - LEVELS - 1e-9)]


def _rising_limits(values: FloatArray, label: NDArray[np.int64]) -> FloatArray:
    """Quantiles at 1 - `LEVELS`, rising, every class weighing the same; then stretched ones."""
    classes, place, counts = np.unique(label, return_inverse=True, return_counts=True)
    order = np.argsort(values, kind="stable")
    reached = np.cumsum((1 / counts)[place][order]) / len(classes)
    where = np.searchsorted(reached, 1 - LEVELS[::-1] - 1e-9)
    quantiles = values[order][np.minimum(where, len(values) - 1)]
    return np.concatenate([quantiles, quantiles[-1] * STRETCHED])


def _limits(
    below: FloatArray, masks: NDArray[np.bool_], labels: NDArray[np.int64], way: int, shot: int
) -> SetLimits:
    def limits(rows: NDArray[np.bool_]) -> FloatArray:
        return class_quantiles(below[rows], labels[rows])

    kinds, kind, counts = np.unique(masks, axis=0, return_inverse=True, return_counts=True)
    often = np.flatnonzero(counts >= FEWEST_QUERIES)
    number = masks.sum(1)
    everyone = np.ones(len(below), dtype=bool)
    of_counts = []
    for count in range(1, masks.shape[1] + 1):
        rows = number == count
        of_counts.append(limits(rows if rows.sum() >= FEWEST_QUERIES else everyone))
    own = [limits(kind.reshape(-1) == place) for place in often]
    return SetLimits(
        patterns=torch.from_numpy(kinds[often]),
        of_patterns=np.array(own).reshape(len(often), len(LEVELS)),
        of_counts=np.array(of_counts),
        way=way,
        shot=shot,
    )
