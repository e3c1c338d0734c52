"""Pretended tasks: some base classes play novel ones, the others stay base classes.

Whatever is chosen (settings, calibration, thresholds of rejection, `--tune`) is chosen on tasks
like these, so that novel classes are never seen. `divide` is the one place that makes such
divisions; `draw_folds` adds the tasks on which a method chooses its own settings, half of them with
balanced queries, half with class shares drawn from a Dirichlet distribution.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

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
class Division:
    """One division of base classes."""

    known: MultiViewData  # samples of classes that stay base classes
    unknown: MultiViewData  # samples of classes that play novel ones
    novel: NDArray[np.int64]  # those classes, as positions in the classes of the base set


def divide(
    base: MultiViewData,
    n_novel: int,
    n_folds: int,
    *words: Hashable,
    among: NDArray[np.int64] | None = None,
    most: int | None = None,
    turns: bool = False,
) -> Iterator[Division]:
    """Divide base classes a few times; the same words give the same divisions everywhere.

    Of the classes `among` which they may be (all when None), `n_novel` play novel ones; at `most`
    so many take part in one division. With `turns` no class plays a novel one twice before all
    have; else they are drawn anew for every division.
    """
    classes = np.arange(len(base.classes)) if among is None else among
    states = combine(np.arange(n_folds, dtype=np.uint64), stream_key(*words))
    orders = smallest(raw(states, len(classes)), len(classes))
    if turns:
        orders = np.stack([np.roll(orders[0], -n_novel * turn) for turn in range(n_folds)])
    for order in orders:
        novel = classes[order[:n_novel]]
        out = novel if most is None else np.concatenate([novel, classes[order[most:]]])
        stay = np.setdiff1d(np.arange(len(base.classes)), out)
        known, unknown = (base[np.isin(base.codes, part)] for part in (stay, novel))
        yield Division(known, unknown, novel)


@dataclass(frozen=True, eq=False)
class Fold(Division):
    """One division of base classes, and tasks of those that play novel ones."""

    # Balanced and, where the classes are large enough, unbalanced tasks of `unknown`.
    episodes: tuple[Episodes, ...]


def enough_classes(n_classes: int, way: int) -> bool:
    """Whether base classes can be divided into pretended tasks and a rest to learn from."""
    return n_classes >= 2 * way + 2


def draw_folds(
    base: MultiViewData,
    task: TaskSpec,
    seed: int = 0,
    n_folds: int = N_FOLDS,
    episodes_per_fold: int = EPISODES_PER_FOLD,
) -> list[Fold]:
    """Divide base classes, and draw balanced and unbalanced tasks from the pretended novel ones.

    Way, shot and missing views are those of the task, queries as many as the classes allow.

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
    # As many classes as possible stay base classes: what is good with few of them may be bad with
    # more.
    words = ("marginal folds", seed)
    divisions = divide(base, task.way, n_folds, *words, most=MOST_BASE_CLASSES)
    per_kind = max(1, episodes_per_fold // 2)
    out = []
    for number, division in enumerate(divisions):
        # Unbalanced counts must fit the classes: the largest share is seldom above 0.8.
        room = int(sizes[division.novel].sum() - shot * task.way)
        fewer = min(queries, max(1, room // (3 * task.way)))
        episodes = []
        for shares, wanted in zip(SHARES, (queries, fewer), strict=True):
            kind = replace(shape, query_counts=shares, queries=wanted)
            try:
                name = f"marginal {number}"
                sampler = EpisodeSampler(division.unknown, kind, seed=seed, name=name)
                if not sampler.capped(0, per_kind).any():
                    episodes.append(sampler.draw(0, per_kind))
            except FewviewError as error:
                message = f"no tasks can be drawn from base classes: {error}"
                raise FewviewError(message) from None
        known = thinned(division.known)
        out.append(Fold(known, division.unknown, division.novel, tuple(episodes)))
    return out


def thinned(data: MultiViewData, most: int = MOST_SAMPLES) -> MultiViewData:
    """Keep at most so many samples, the same share of every class, two or more of each.

    Example:
        >>> data = MultiViewData(np.ones((9, 1)), labels=[0] * 6 + [1] * 3)
        >>> np.bincount(thinned(data, 6).codes).tolist()
        [4, 2]
    """
    return data if len(data) <= most else data[thinned_rows(data.codes, most)]


def thinned_rows(codes: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """Positions that `thinned` keeps of samples of these classes, [n], rising."""
    if len(codes) <= most:
        return np.arange(len(codes))
    share = most / len(codes)
    keys = raw(np.array(stream_key("thinned"), dtype=np.uint64), len(codes))
    keep = []
    for code, size in enumerate(np.bincount(codes)):
        rows = np.flatnonzero(codes == code)
        count = min(size, max(2, round(share * size)))
        keep.append(rows[smallest(keys[rows], count)])
    return np.sort(np.concatenate(keep))
