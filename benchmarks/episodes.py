"""How long it takes to build episodes, against a plain loop over tasks timed in the same run.

Run: python benchmarks/episodes.py [DATASET] [EPISODES]   (default: handwritten 400)
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np
from common import dataset_and_episodes

from fewview.datasets import class_split, get_spec, is_present, load
from fewview.episodes import EpisodeSampler, TaskSpec
from fewview.numerics import ViewTensors
from fewview.samples import MultiViewData

REPEATS = 5


def naive(data: MultiViewData, task: TaskSpec, classes: tuple[Any, ...], count: int) -> list[Any]:
    """Draw tasks one by one with numpy's generator and collect their rows: the obvious way."""
    labels = np.asarray(data.labels)
    out = []
    for index in range(count):
        rng = np.random.default_rng(index)
        support, query = [], []
        for label in rng.choice(np.array(classes), task.way, replace=False):
            rows = rng.permutation(np.flatnonzero(labels == label))
            support.append(rows[: task.shots[0]])
            query.append(rows[task.shots[0] : task.shots[0] + task.queries])
        rows = np.concatenate(support + query)
        mask = np.ones((len(rows), data.n_views), dtype=bool)
        keep = rng.integers(0, data.n_views, len(rows))
        free = [(n, v) for n in range(len(rows)) for v in range(data.n_views) if v != keep[n]]
        for place in rng.choice(len(free), round(task.eta * mask.size), replace=False):
            mask[free[place]] = False
        views = []
        for v, block in enumerate(data.views.values()):
            part = block[rows].astype(np.float32)
            part[~mask[:, v]] = 0.0
            views.append(part)
        out.append((views, mask))
    return out


def best_of(action: Callable[[], Any]) -> float:
    times = []
    for _ in range(REPEATS):
        start = perf_counter()
        action()
        times.append(perf_counter() - start)
    return min(times)


def main() -> None:
    name, count = dataset_and_episodes(__doc__)
    if not is_present(name):
        print(f"{name} is not in the data folder; using the embedded digits", file=sys.stderr)
        name = "digits"
    data, spec, split = load(name), get_spec(name), class_split(name, 0)
    task = TaskSpec(spec.way, spec.shot, spec.queries, eta=0.3)
    sampler = EpisodeSampler(data, task, split.novel)
    tensors = ViewTensors.of(data)
    draw = best_of(lambda: sampler.draw(0, count))
    both = best_of(lambda: tensors.gather(sampler.draw(0, count)))
    loop = best_of(lambda: naive(data, task, split.novel, count))
    print(f"{count} episodes of {name}, {task.way}-way {task.shot}-shot, {task.n_query} queries")
    print(f"  drawn                   {draw:8.4f} s")
    print(f"  drawn and as tensors    {both:8.4f} s")
    print(f"  plain loop over tasks   {loop:8.4f} s   ({loop / both:.1f} times as long)")


if __name__ == "__main__":
    main()
