"""Pretended tasks: some base classes play novel ones, the others stay base classes.

What a method chooses (settings, calibration, thresholds) it chooses on tasks like these, so that
novel classes are never seen. Half of the tasks have balanced queries, half have class shares drawn
from a Dirichlet distribution.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fewview.episodes._sampler import Episodes, EpisodeSampler
from fewview.episodes._task import TaskSpec
from fewview.ground._draws import combine, raw, smallest, stream_key
from fewview.ground._errors import FewviewError
from fewview.samples._data import MultiViewData
from fewview.samples._masks import MissingRule

N_FOLDS = 6
EPISODES_PER_FOLD = 8
MOST_QUERIES = 75
MOST_BASE_CLASSES = 100
# Few samples would ask for more shrinkage and fewer components than the whole base set needs.
MOST_SAMPLES = 6000
SHARES = ("balanced", "dirichlet:2")


@dataclass(frozen=True, eq=False)
class Fold:
    """One division of base classes.

    Attributes:
        known: samples of classes that stay base classes.
        unknown: samples of classes that play novel ones.
        episodes: balanced and, where the classes are large enough, unbalanced tasks of `unknown`.
    """

    known: MultiViewData
    unknown: MultiViewData
    episodes: tuple[Episodes, ...]


def enough_classes(n_classes: int, way: int) -> bool:
    """Whether base classes can be divided into pretended tasks and a rest to learn from.

    Example:
        >>> enough_classes(8, 3), enough_classes(7, 3)
        (True, False)
    """
    return n_classes >= 2 * way + 2


def draw_folds(
    base: MultiViewData,
    task: TaskSpec,
    seed: int = 0,
    n_folds: int = N_FOLDS,
    episodes_per_fold: int = EPISODES_PER_FOLD,
) -> list[Fold]:
    """Divide base classes, and draw balanced and unbalanced tasks from the pretended novel ones.

    Args:
        base: base samples, unscaled.
        task: way, shot and missing views of the tasks; queries as far as the classes allow.
        seed: of folds and tasks.
        n_folds: how many divisions.
        episodes_per_fold: tasks of a division, both kinds together.

    Example:
        >>> data = MultiViewData(np.ones((80, 2)), labels=np.repeat(np.arange(8), 10))
        >>> fold = draw_folds(data, TaskSpec(way=3, queries=5))[0]
        >>> len(fold.known.classes), len(fold.unknown.classes), len(fold.episodes)
        (5, 3, 2)
    """
    n_classes = len(base.classes)
    if not enough_classes(n_classes, task.way):
        raise FewviewError(
            f"{n_classes} base classes are fewer than 2 x {task.way} ways + 2 = {2 * task.way + 2}"
        )
    sizes = np.bincount(base.codes, minlength=n_classes)
    shot = max(task.shots)
    if sizes.min() < shot + 1:
        raise FewviewError(f"a base class has {sizes.min()} samples, {shot} shot(s) need more")
    queries = int(min(task.queries, max(2, MOST_QUERIES // task.way), sizes.min() - shot))
    shape = replace(task, shot=shot, queries=queries, query_counts="balanced")
    if task.missing.kind == "patterns" and not base.mask.all():
        # Base samples have their own gaps already; drawn ones on top would be too many.
        shape = replace(shape, missing=MissingRule(), eta=0.0)
    states = combine(np.arange(n_folds, dtype=np.uint64), stream_key("marginal folds", seed))
    orders = smallest(raw(states, n_classes), n_classes)
    out = []
    for number, order in enumerate(orders.tolist()):
        order = order[:MOST_BASE_CLASSES]
        # As many classes as possible stay base classes: what is good with few of them may be bad
        # with more.
        novel, rest = order[: task.way], order[task.way :]
        unknown = base[np.isin(base.codes, novel)]
        # Unbalanced counts must fit the classes: the largest share is seldom above 0.8.
        room = int(np.sort(sizes[novel])[: task.way].sum() - shot * task.way)
        fewer = min(queries, max(1, room // (3 * task.way)))
        episodes = []
        for shares, wanted in zip(SHARES, (queries, fewer), strict=True):
            try:
                sampler = EpisodeSampler(
                    unknown,
                    replace(shape, query_counts=shares, queries=wanted),
                    seed=seed,
                    name=f"marginal {number}",
                )
                episodes.append(sampler.draw(0, max(1, episodes_per_fold // 2)))
            except FewviewError as error:
                if shares == "balanced":
                    raise FewviewError(
                        f"no tasks can be drawn from base classes: {error}"
                    ) from None
        known = thinned(base[np.isin(base.codes, rest)])
        out.append(Fold(known, unknown, tuple(episodes)))
    return out


def thinned(data: MultiViewData, most: int = MOST_SAMPLES) -> MultiViewData:
    """Keep at most so many samples, the same share of every class, two or more of each.

    Args:
        data: labelled samples.
        most: samples to keep, more where there are very many classes.

    Example:
        >>> data = MultiViewData(np.ones((9, 1)), labels=[0] * 6 + [1] * 3)
        >>> np.bincount(thinned(data, 6).codes).tolist()
        [4, 2]
    """
    if len(data) <= most:
        return data
    sizes = np.bincount(data.codes)
    share = most / len(data)
    keys = raw(np.array(stream_key("thinned"), dtype=np.uint64), len(data))
    keep = []
    for code in range(len(sizes)):
        rows = np.flatnonzero(data.codes == code)
        count = min(len(rows), max(2, round(share * len(rows))))
        keep.append(rows[smallest(keys[rows], count)])
    return data[np.sort(np.concatenate(keep))]
