"""Which samples a task is made of: (data set, class split, episode index) -> always the same.

Samples are drawn by sorting raw keys of a counter-based generator, one stream per episode, so an
episode does not depend on the batch, the order or the machine it is drawn in. For one index the
samples do not depend on eta either, and the masks of growing eta are nested: curves over eta
compare like with like.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fewview.episodes.episodes import SAMPLER_VERSION, Episodes
from fewview.episodes.query_counts import capped_counts, dirichlet_counts, dominant_counts
from fewview.episodes.task import TaskSpec
from fewview.errors import FewviewError, shorten
from fewview.numerics.random_keys import combine, raw, smallest, stream_key
from fewview.samples._data import MultiViewData

IntArray = NDArray[np.int64]
MAX_REDRAWS = 1000


class EpisodeSampler:
    """Draws few-shot tasks with missing views from the novel classes of a data set.

    Args:
        data: labelled samples.
        task: shape of the tasks.
        classes: the novel classes; all labelled classes when None.
        seed: another seed gives other episodes of the same class split.
        name: name of the data set, part of what an episode is drawn from; `data.name` when None.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> data = MultiViewData(rng.normal(size=(40, 3)), labels=np.repeat([0, 1, 2, 3], 10))
        >>> sampler = EpisodeSampler(data, TaskSpec(way=2, shot=1, queries=5))
        >>> episodes = sampler.draw(0, 8)
        >>> episodes.support.shape, episodes.query.shape
        ((8, 2), (8, 10))
        >>> bool((sampler.draw(5, 8).query == episodes.query[5:]).all())
        True
    """

    def __init__(
        self,
        data: MultiViewData,
        task: TaskSpec,
        classes: Sequence[Hashable] | None = None,
        *,
        seed: int = 0,
        name: str | None = None,
    ) -> None:
        if data.labels is None:
            raise FewviewError("episodes need labelled data; this data set has no labels")
        known = {label: code for code, label in enumerate(data.classes.tolist())}
        wanted = list(known) if classes is None else list(classes)
        absent = [label for label in wanted if label not in known]
        if absent:
            raise FewviewError(f"class {shorten(map(repr, absent))} does not occur in the data")
        if len(set(wanted)) != len(wanted):
            raise FewviewError("a novel class is listed twice")
        if task.way > len(wanted):
            raise FewviewError(
                f"way is {task.way} but there are only {len(wanted)} novel classes; "
                f"lower --way to at most {len(wanted)}"
            )
        self.data = data
        self.task = task
        self.seed = seed
        self.name = name if name is not None else (data.name or "")
        # Sorted by code, so that the order in which classes are listed does not matter.
        codes = sorted(known[label] for label in wanted)
        self.class_names: tuple[Hashable, ...] = tuple(data.classes[codes].tolist())
        members = [np.flatnonzero(data.codes == code) for code in codes]
        self._sizes = np.array([len(rows) for rows in members])
        self._rows = np.full((len(members), int(self._sizes.max())), -1, dtype=np.int64)
        for index, rows in enumerate(members):
            self._rows[index, : len(rows)] = rows
        self._check_sizes()
        self._key = stream_key(
            "fewview episodes", SAMPLER_VERSION, self.name, list(map(str, self.class_names)), seed
        )

    def _check_sizes(self) -> None:
        balanced = self.task.query_counts == "balanced"
        need = max(self.task.shots) + (self.task.queries if balanced else 1)
        small = np.flatnonzero(self._sizes < need)
        if small.size:
            worst = int(small[self._sizes[small].argmin()])
            raise FewviewError(
                f"class {self.class_names[worst]!r} has {self._sizes[worst]} samples, but "
                f"{max(self.task.shots)} shot(s) and {need - max(self.task.shots)} queries per "
                f"class need {need}; lower --shot or --queries, or leave the class out"
            )

    def seeds(self, start: int, stop: int) -> NDArray[np.uint64]:
        """Return the seeds of episodes start..stop-1, uint64 [stop - start]."""
        return combine(np.arange(start, stop, dtype=np.uint64), self._key)

    def draw(self, start: int = 0, stop: int = 400) -> Episodes:
        """Draw episodes start, ..., stop - 1.

        The same index always gives the same episode, whatever range it is drawn in.
        """
        if not 0 <= start < stop:
            raise FewviewError(f"episodes {start} to {stop} is an empty range")
        task = self.task
        seeds = self.seeds(start, stop)
        largest = self._rows.shape[1]
        chosen = self._classes(seeds)
        counts, _ = self._query_counts(seeds, chosen)
        # One key per (class, member): an episode does not change when other classes do.
        step = chosen.astype(np.uint64) * np.uint64(stream_key("class step") | 1)
        keys = combine(seeds, stream_key("members"))[:, None] + step
        member_keys = raw(keys, largest) >> np.uint64(1)
        beyond = np.arange(largest) >= self._sizes[chosen][..., None]
        member_keys[beyond] = np.uint64(2**64 - 1)
        most = int(max(task.shots) + counts.max())
        order = smallest(member_keys, min(most, largest))
        rows = np.take_along_axis(self._rows[chosen], order, axis=-1)
        shots = np.array(task.shots)
        support_at = np.concatenate([np.arange(shot) for shot in task.shots])
        support_labels = np.repeat(np.arange(task.way), shots)
        n_tasks = len(seeds)
        support = rows[:, support_labels, support_at]
        every_class = np.tile(np.arange(task.way), n_tasks)
        query_labels = np.repeat(every_class, counts.reshape(-1)).reshape(n_tasks, task.n_query)
        starts = np.take_along_axis(counts.cumsum(axis=1) - counts, query_labels, axis=1)
        place = shots[query_labels] + np.arange(task.n_query) - starts
        query = rows[np.arange(n_tasks)[:, None], query_labels, place]
        labels = np.broadcast_to(support_labels, (n_tasks, task.n_support)).copy()
        samples = np.concatenate([support, query], axis=1)
        mask = task.missing.draw(
            seeds,
            samples.shape[1],
            self.data.n_views,
            task.eta,
            labels=np.concatenate([labels, query_labels], axis=1),
            present=None if self.data.mask.all() else self.data.mask[samples],
        )
        return Episodes(
            support=support,
            query=query,
            support_labels=labels,
            query_labels=query_labels,
            support_mask=mask[:, : task.n_support],
            query_mask=mask[:, task.n_support :],
            seeds=combine(seeds, stream_key("method")),
            classes=chosen,
            class_names=self.class_names,
            view_names=self.data.view_names,
            way=task.way,
            dataset=self.name,
        )

    def with_queries(self, queries: int) -> EpisodeSampler:
        """The same sampler with another number of queries per class."""
        task = replace(self.task, queries=queries)
        return EpisodeSampler(self.data, task, self.class_names, seed=self.seed, name=self.name)

    def capped(self, start: int, stop: int) -> NDArray[np.bool_]:
        """Whether classes of episodes start..stop-1 are too small for the counts that were drawn.

        What does not fit has then gone to the other classes, see `capped_counts`.
        """
        seeds = self.seeds(start, stop)
        return self._query_counts(seeds, self._classes(seeds))[1]

    def _classes(self, seeds: NDArray[np.uint64]) -> IntArray:
        """The classes of tasks in their order, [tasks, way]."""
        return smallest(raw(combine(seeds, stream_key("classes")), len(self._rows)), self.task.way)

    def _query_counts(
        self, seeds: NDArray[np.uint64], chosen: IntArray
    ) -> tuple[IntArray, NDArray[np.bool_]]:
        """Queries per class, [tasks, way], and whether they were capped.

        Dirichlet counts are redrawn until they fit the classes; where none of many draws did, the
        first is capped. Dominant ones are capped at once: drawn again they would be the same.
        """
        task = self.task
        alpha, share = task.dirichlet, task.dominant
        capped = np.zeros(len(seeds), dtype=bool)
        if alpha is None and share is None:
            return np.full(chosen.shape, task.queries, dtype=np.int64), capped
        room = self._sizes[chosen] - np.array(task.shots)
        if (room.sum(axis=1) < task.n_query).any():
            raise FewviewError(
                f"{task.n_query} queries per task are more than the classes hold; lower --queries"
            )
        if alpha is None:
            assert share is not None
            states = combine(seeds, stream_key("dominant class"))
            return dominant_counts(states, share, task.n_query, room)
        counts = np.zeros(chosen.shape, dtype=np.int64)
        first = counts
        open_tasks, attempt = np.arange(len(seeds)), 0
        while open_tasks.size and attempt < MAX_REDRAWS:
            # One draw, then two more, four: small classes take hundreds.
            tries = range(attempt, min(2 * attempt + 1, MAX_REDRAWS))
            states = combine(seeds[open_tasks], _count_keys(tries.stop)[tries.start :, None])
            drawn = dirichlet_counts(states.reshape(-1), alpha, task.way, task.n_query)
            drawn = drawn.reshape(len(tries), len(open_tasks), task.way)
            fits = (drawn <= room[open_tasks]).all(axis=2)
            counts[open_tasks] = drawn[fits.argmax(axis=0), np.arange(len(open_tasks))]
            first = counts.copy() if attempt == 0 else first
            open_tasks, attempt = open_tasks[~fits.any(axis=0)], tries.stop
        capped[open_tasks] = True
        counts[capped] = capped_counts(first[capped], room[capped])
        return counts, capped


@lru_cache(maxsize=16)
def _count_keys(stop: int) -> NDArray[np.uint64]:
    """Keys of the first `stop` draws of query counts."""
    keys = [stream_key("query counts", number) for number in range(stop)]
    return np.array(keys, dtype=np.uint64)
