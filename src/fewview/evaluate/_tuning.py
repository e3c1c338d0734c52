"""Choosing a method's settings fairly: on episodes of base classes alone.

Every parameter may declare values to tune over (`param(tune=...)`). Some base classes are held out
as novel ones, the others stay base classes; the setting with the best accuracy over a few such
episodes is taken. Novel classes are never seen here: all these functions get is the base set.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from itertools import product
from time import perf_counter
from typing import Any

import numpy as np
from sklearn.base import clone

from fewview.episodes.divide import divide
from fewview.episodes.sampler import EpisodeSampler
from fewview.episodes.task import TaskSpec
from fewview.errors import FewviewError
from fewview.methods.estimator.fitted_base import FittedBase, learn_base
from fewview.methods.estimator.method import Method
from fewview.methods.params import rules_of
from fewview.results._metrics import measure
from fewview.samples._data import MultiViewData

TUNING_VERSION = 1
N_FOLDS = 4
EPISODES_PER_FOLD = 15


def candidates(method: Method, fixed: Collection[str] = ()) -> list[dict[str, Any]]:
    """List the settings to choose from, the present ones first; what is fixed stays."""
    rules = {name: rule.get("tune", ()) for name, rule in rules_of(type(method)).items()}
    choices = {name: rules[name] for name in sorted(rules) if rules[name] and name not in fixed}
    if not choices:
        return []
    present = {name: method.get_params(deep=True)[name] for name in choices}
    rest = (dict(zip(choices, values, strict=True)) for values in product(*choices.values()))
    # The present setting comes first, so that it wins a tie.
    return [present, *(setting for setting in rest if setting != present)]


def describe_tuning(settings: list[dict[str, Any]]) -> str:
    """Write the rule of choice in one line; part of a result's key."""
    if not settings:
        return ""
    values = {name: dict.fromkeys(str(s[name]) for s in settings) for name in sorted(settings[0])}
    listed = ",".join(f"{name}={'|'.join(options)}" for name, options in values.items())
    return f"{TUNING_VERSION}:{N_FOLDS}x{EPISODES_PER_FOLD}:{listed}"


def pretended_task(base: MultiViewData, task: TaskSpec) -> tuple[TaskSpec, int]:
    """The task as far as base classes allow it, and how many of them play novel ones."""
    n_classes = len(base.classes)
    if n_classes < 3:
        raise FewviewError(
            f"--tune holds base classes out and needs at least 3 of them; there are {n_classes}"
        )
    way = max(2, min(task.way, n_classes - 2))
    smallest_class = int(np.bincount(base.codes[base.codes >= 0]).min())
    shot = max(1, min(task.shots[0], smallest_class - 1))
    shape = replace(task, way=way, shot=shot, queries=min(task.queries, smallest_class - shot))
    return shape, max(way, min(n_classes // 2, n_classes - 2))


def learn_for(
    method: Method, base: MultiViewData, novel: MultiViewData, task: TaskSpec
) -> FittedBase:
    """What an evaluation lets a method learn before it is given tasks of the novel samples.

    That is the base set, and for a method that says so the novel samples without their labels.
    """
    if method.tags.learns_from == "unlabelled":
        rows = novel.with_labels(None)
        return learn_base(method, rows, task, method.random_state, unlabelled=True)
    return learn_base(method, base, task, method.random_state)


def choose(
    method: Method, settings: list[dict[str, Any]], base: MultiViewData, task: TaskSpec, seed: int
) -> dict[str, Any]:
    """Choose among settings, as `candidates` lists them, by accuracy on episodes of base classes.

    Gives the `index` of the best one, the `accuracy` of each, and the `seconds` that it took.
    Settings may be values that JSON does not know: it says which one, not what.
    """
    start = perf_counter()
    total = np.zeros(len(settings))
    shape, n_novel = pretended_task(base, task)
    divisions = divide(base, n_novel, N_FOLDS, "tuning folds", seed)
    for number, division in enumerate(divisions):
        sampler = EpisodeSampler(division.unknown, shape, seed=seed, name=f"tuning {number}")
        episodes = sampler.draw(0, EPISODES_PER_FOLD)
        for index, setting in enumerate(settings):
            candidate = clone(method).set_params(**setting)
            fitted = learn_for(candidate, division.known, division.unknown, shape)
            scores = candidate.score_episodes(division.unknown, episodes, fitted)
            total[index] += measure(scores.numpy(), episodes.query_labels).accuracy.mean()
    return {
        "index": int(total.argmax()),
        "accuracy": (total / N_FOLDS).tolist(),
        "seconds": perf_counter() - start,
    }
