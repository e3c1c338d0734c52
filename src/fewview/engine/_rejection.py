"""The open world: queries that look like none of the classes, and where to draw the line.

How well a query fits a class is a method's `typicality`. What is still usual is learnt from base
classes: some of them play new classes, and the fit of samples to their own class is noted, by the
number of shots and of views that a query has. A wanted false-reject rate is a quantile of that.
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

from fewview.engine._contract import Contract
from fewview.engine._state import Prepared, State
from fewview.episodes._pretended import divide, thinned
from fewview.episodes._sampler import Episodes, EpisodeSampler
from fewview.episodes._task import TaskSpec
from fewview.ground._errors import FewviewError, FewviewWarning
from fewview.ground._memory import LRUCache, cached
from fewview.samples._data import MultiViewData
from fewview.samples._masks import MissingRule
from fewview.samples._rates import largest_rate
from fewview.samples._scaling import fit_scaling

FEWEST_CLASSES = 4
FEWEST_SAMPLES = 4
FEWEST_LARGE = 2
N_FOLDS = 4
EPISODES = 8
QUERIES = 15
MOST_WAYS = 5
MOST_SAMPLES = 20_000
SHOTS = (1, 2, 3, 5, 10)
FEWEST_QUERIES = 50
# Dense where rates are wanted: small ones.
LEVELS = np.concatenate([np.linspace(0, 0.1, 101), np.linspace(0.11, 1.0, 90)])
FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Thresholds:
    """Quantiles of how well base samples fit their own class.

    Attributes:
        shots: numbers of supports per class that tasks were drawn with.
        quantiles: [shots, views, levels]: entry v - 1 is about queries with v views.
    """

    shots: tuple[int, ...]
    quantiles: FloatArray

    def at(self, rate: float, shots: NDArray[Any], n_views: NDArray[Any]) -> FloatArray:
        """Smallest typicality that is not rejected, by shots and views of the queries, [n]."""
        place = np.abs(np.asarray(shots)[:, None] - np.array(self.shots)).argmin(axis=1)
        rows = self.quantiles[place, np.asarray(n_views) - 1]  # [n, levels]
        return np.array([np.interp(rate, LEVELS, row) for row in rows], dtype=np.float64)


def check_reject(rate: Any) -> None:
    """Refuse what is no false-reject rate."""
    if isinstance(rate, bool) or not isinstance(rate, (int, float, np.floating)):
        raise FewviewError(f"reject is {rate!r}; give a false-reject rate such as 0.05")
    if not 0 < rate < 1:
        raise FewviewError(f"reject is {rate}; give a false-reject rate between 0 and 1")


def too_few_classes(n_classes: int, n_large: int = FEWEST_LARGE) -> str:
    """Why queries cannot be rejected with so few base classes; empty where they can be.

    `n_large` of them have enough samples to play new classes.
    """
    if n_classes < FEWEST_CLASSES:
        return (
            f"rejecting needs at least {FEWEST_CLASSES} base classes that play new ones; this "
            f"model has {n_classes}"
        )
    if n_large < FEWEST_LARGE:
        return (
            f"rejecting needs at least {FEWEST_LARGE} base classes with {FEWEST_SAMPLES} samples "
            f"or more; this model has {n_large}"
        )
    return ""


def _question(method: Contract, base: MultiViewData, task: TaskSpec) -> Hashable:
    return base.fingerprint, type(method), method.key(), task.missing, task.eta


@cached(LRUCache(16), key=_question, lock=Lock())
def set_thresholds(method: Contract, base: MultiViewData, task: TaskSpec) -> Thresholds:
    """Learn from unscaled base classes what is still usual; the same question is answered once.

    The method's automatic settings should be fixed by now; the task's gaps are what queries will
    have, among others.
    """
    n_classes = len(base.classes)
    sizes = np.bincount(base.codes, minlength=n_classes)
    large = np.flatnonzero(sizes >= FEWEST_SAMPLES)
    problem = too_few_classes(n_classes, len(large))
    if problem:
        raise FewviewError(problem)
    way = max(2, min(MOST_WAYS, n_classes // 3))
    found: dict[int, dict[int, list[FloatArray]]] = {}  # shots -> views -> parts
    divisions = divide(base, way, N_FOLDS, "rejection folds", among=large)
    for number, division in enumerate(divisions):
        prepared = _prepared(method, division.known, task)
        tensors = method.scaled(division.unknown, prepared)
        for shot in SHOTS:
            room = int(sizes[division.novel].min()) - shot
            if room < 2:
                continue
            shape = replace(
                task, way=len(division.novel), shot=shot, queries=min(QUERIES, room),
                query_counts="balanced",
            )  # fmt: skip
            for episodes in _with_gaps(division.unknown, shape, f"rejection {number}"):
                batch = tensors.gather(episodes)
                with torch.no_grad():
                    fit = method.typicality(batch.without_query_labels(), prepared.state)
                assert batch.query_labels is not None
                own = fit.gather(2, batch.query_labels[..., None])[..., 0].double().cpu().numpy()
                views = batch.query_mask.sum(-1).cpu().numpy()
                for count in np.unique(views).tolist():
                    found.setdefault(shot, {}).setdefault(count, []).append(own[views == count])
    shots = tuple(sorted(found))
    return Thresholds(shots, np.array([_by_views(found[shot], base.n_views) for shot in shots]))


def usual_thresholds(
    method: Contract, base: MultiViewData, task: TaskSpec, state: State
) -> Thresholds | None:
    """`set_thresholds` of a method that has learnt; None where there are too few base classes."""
    try:
        return set_thresholds(method.settled(state), base, task)
    except FewviewError:
        return None  # asking for it later says why


def _with_gaps(data: MultiViewData, task: TaskSpec, name: str) -> list[Episodes]:
    """Tasks whose supports have the task's own gaps, and whose queries have them, none, or many.

    Queries with any number of views should occur; supports should look as they will.
    """
    if not data.mask.all():
        # Samples come with their own gaps; drawing such gaps again would double them.
        task = replace(task, missing=MissingRule(), eta=0.0)
    usual = EpisodeSampler(data, task, name=name).draw(0, EPISODES)
    out = [usual]
    for eta in (0.0, 0.75 * largest_rate(data.n_views)) if data.n_views > 1 else ():
        other = replace(task, missing=MissingRule(), eta=eta)
        # The same samples: an episode's samples do not depend on its gaps.
        mask = EpisodeSampler(data, other, name=name).draw(0, EPISODES).query_mask
        out.append(replace(usual, query_mask=mask))
    return out


def _prepared(method: Contract, known: MultiViewData, task: TaskSpec) -> Prepared:
    if type(method).typicality is Contract.typicality:
        return Prepared(fit_scaling(known, method.row_scaling), None, State(), known[:0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FewviewWarning)
        return method.prepare_base(thinned(known, MOST_SAMPLES), task)


def _by_views(found: dict[int, list[FloatArray]], n_views: int) -> list[FloatArray]:
    """Quantiles for every number of views; the nearest number with enough queries stands in."""
    values = {count: np.concatenate(parts) for count, parts in found.items()}
    enough = [count for count, rows in values.items() if len(rows) >= FEWEST_QUERIES]
    enough = enough or sorted(values, key=lambda count: -len(values[count]))[:1]
    out = []
    for count in range(1, n_views + 1):
        nearest = min(enough, key=lambda other: (abs(other - count), -other))
        out.append(np.quantile(values[nearest], LEVELS))
    return out


def rejection_label(classes: NDArray[Any], wanted: Hashable) -> Hashable:
    """The label of rejected queries: -1 among numbers, else `"unknown"`, unless one is given."""
    usual = -1 if classes.dtype.kind in "iuf" else "unknown"
    label = usual if wanted is None else wanted
    if label in set(classes.tolist()):
        raise FewviewError(f"{label!r} is a class itself; give reject_label=... for rejected ones")
    return label


def with_label(predicted: NDArray[Any], rejected: NDArray[np.bool_], label: Any) -> NDArray[Any]:
    """Labels in which some are replaced; of objects where the kinds do not go together."""
    values = [
        label if gone else kept for kept, gone in zip(predicted.tolist(), rejected, strict=True)
    ]
    kinds = {type(value) for value in values}
    if kinds <= {int} or kinds <= {float} or kinds <= {str}:
        return np.array(values)
    out = np.empty(len(values), dtype=object)
    out[:] = values
    return out
