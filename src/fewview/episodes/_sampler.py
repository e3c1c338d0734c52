"""Which samples a task is made of: (data set, class split, episode index) -> always the same.

Samples are drawn by sorting raw keys of a counter-based generator, one stream per episode, so an
episode does not depend on the batch, the order or the machine it is drawn in. For one index the
samples do not depend on eta either, and the masks of growing eta are nested: curves over eta
compare like with like.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from math import floor
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fewview.episodes._task import TaskSpec
from fewview.ground._draws import combine, raw, smallest, stream_key, uniform
from fewview.ground._errors import FewviewError, shorten
from fewview.ground._whole_files import replacing
from fewview.samples._data import MultiViewData

SAMPLER_VERSION = 1
IntArray = NDArray[np.int64]
MAX_REDRAWS = 1000
# What episodes say in numbers, in the order it has in files.
NUMBERS = ("classes", "support", "support_labels", "query", "query_labels")
PER_TASK = (*NUMBERS, "support_mask", "query_mask", "seeds")


@dataclass(frozen=True)
class Episodes:
    """A list of tasks as row numbers of a data set, their masks and their seeds.

    Attributes:
        support: int64 [tasks, n_support], rows of the data, class by class.
        query: int64 [tasks, n_query], rows of the data.
        support_labels: int64 [tasks, n_support], position of the class in the task.
        query_labels: int64 [tasks, n_query]; used for scoring only.
        support_mask: bool [tasks, n_support, V].
        query_mask: bool [tasks, n_query, V].
        seeds: uint64 [tasks], for random numbers inside methods.
        classes: int64 [tasks, way], which entries of `class_names` the task is about.
        class_names: the novel classes.
        view_names: the views the masks speak of.
        way: classes per task.
        dataset: name of the data set.
    """

    support: IntArray
    query: IntArray
    support_labels: IntArray
    query_labels: IntArray
    support_mask: NDArray[np.bool_]
    query_mask: NDArray[np.bool_]
    seeds: NDArray[np.uint64]
    classes: IntArray
    class_names: tuple[Hashable, ...]
    view_names: tuple[str, ...]
    way: int
    dataset: str = ""

    def __len__(self) -> int:
        return len(self.seeds)

    def __getitem__(self, key: int | slice | IntArray) -> Episodes:
        """Return some of the tasks; a single number gives a list of that one task."""
        if isinstance(key, (int, np.integer)):
            if not -len(self) <= key < len(self):
                raise IndexError(f"task {key} of {len(self)}")
            key = slice(int(key), int(key) + 1) if key != -1 else slice(-1, None)
        return replace(self, **{name: getattr(self, name)[key] for name in PER_TASK})

    @staticmethod
    def join(parts: Sequence[Episodes]) -> Episodes:
        """Tasks of one shape and of the same classes, one after another."""
        if len(parts) == 1:
            return parts[0]
        found: dict[str, Any] = {
            name: np.concatenate([getattr(part, name) for part in parts]) for name in PER_TASK
        }
        return replace(parts[0], **found)

    @property
    def missing_rate(self) -> float:
        """Realised share of missing cells over all tasks."""
        present = self.support_mask.sum() + self.query_mask.sum()
        return float(1.0 - present / (self.support_mask.size + self.query_mask.size))

    def save(self, path: str | PathLike[str]) -> None:
        """Write the episode list as JSON, to be read back by `load` on any machine."""
        if not all(isinstance(label, (str, int, float)) for label in self.class_names):
            raise FewviewError(f"{path}: class labels must be numbers or text to be saved as JSON")
        document = {
            "format": "fewview-episodes",
            "version": SAMPLER_VERSION,
            "dataset": self.dataset,
            "way": self.way,
            "view_names": list(self.view_names),
            "class_names": list(self.class_names),
            "episodes": [
                {
                    "seed": int(self.seeds[t]),
                    **{name: getattr(self, name)[t].tolist() for name in NUMBERS},
                    "support_views": _mask_text(self.support_mask[t]),
                    "query_views": _mask_text(self.query_mask[t]),
                }
                for t in range(len(self))
            ],
        }
        with replacing(path) as temporary:
            temporary.write_text(json.dumps(document, indent=1), encoding="utf-8")

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Episodes:
        """Read an episode list written by `save`."""
        try:
            document = json.loads(Path(path).read_text(encoding="utf-8"))
            if document["format"] != "fewview-episodes":
                raise KeyError("format")
            if document["version"] > SAMPLER_VERSION:
                raise FewviewError(
                    f"{path}: an episode list of version {document['version']}, this fewview reads "
                    f"up to {SAMPLER_VERSION}; install a newer one"
                )
            items = document["episodes"]

            def stack(key: str, dtype: Any = np.int64) -> NDArray[Any]:
                # By way of objects: seeds up to 2**64 - 1 would otherwise become floats.
                values = np.array([item[key] for item in items], dtype=object)
                if not all(type(value) is int and value >= 0 for value in values.flat):
                    raise TypeError(key)
                return values.astype(dtype)

            def masks(key: str) -> NDArray[np.bool_]:
                rows = [[list(map(("0", "1").index, row)) for row in i[key].split()] for i in items]
                return np.array(rows, dtype=bool)

            out = cls(
                **{name: stack(name) for name in NUMBERS},
                support_mask=masks("support_views"),
                query_mask=masks("query_views"),
                seeds=stack("seed", np.uint64),
                class_names=tuple(document["class_names"]),
                view_names=tuple(document["view_names"]),
                way=int(document["way"]),
                dataset=str(document["dataset"]),
            )
            wrong = _inconsistency(out)
        except FewviewError:
            raise
        except OSError as error:
            raise FewviewError(f"{path}: cannot read ({error.strerror})") from None
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
            raise FewviewError(
                f"{path} is not an episode list written by fewview; write one with Episodes.save"
            ) from None
        if wrong:
            raise FewviewError(f"{path}: {wrong}; the file was damaged or changed, write it again")
        return out


def query_order(episodes: Episodes) -> IntArray:
    """An order of the queries of every task that says nothing of their classes, from its seed.

    [tasks, n_query], where the queries of `mixed` were before.
    """
    count = episodes.query.shape[1]
    return smallest(raw(combine(episodes.seeds, stream_key("order of queries")), count), count)


def mixed(episodes: Episodes) -> Episodes:
    """The same tasks with queries in `query_order`: class by class, their place would tell."""
    order = query_order(episodes)
    return replace(
        episodes,
        query=np.take_along_axis(episodes.query, order, axis=1),
        query_labels=np.take_along_axis(episodes.query_labels, order, axis=1),
        query_mask=np.take_along_axis(episodes.query_mask, order[..., None], axis=1),
    )


def _inconsistency(episodes: Episodes) -> str | None:
    """Say what is wrong with an episode list that comes from a file, None if nothing is."""
    n_views, n_tasks, way = len(episodes.view_names), len(episodes), episodes.way
    if episodes.classes.shape != (n_tasks, way) or way < 2:
        return f"the tasks are not about {way} classes each"
    if (episodes.classes >= len(episodes.class_names)).any():
        return "a task is about a class that is not listed"
    for what in ("support", "query"):
        rows, labels = getattr(episodes, what), getattr(episodes, f"{what}_labels")
        mask = getattr(episodes, f"{what}_mask")
        if rows.ndim != 2 or len(rows) != n_tasks or labels.shape != rows.shape:
            return f"{what} rows and labels do not match"
        if mask.shape != (*rows.shape, n_views):
            return f"{what} views are not of {n_views} views each"
        if not mask.any(axis=-1).all():
            return f"a {what} sample has no view"
        if (labels >= way).any():
            return f"a {what} label is not below {way}"
    pairs = zip(episodes.support, episodes.query, strict=True)
    if any(np.intersect1d(support, query).size for support, query in pairs):
        return "a task has the same sample as support and query"
    if any(len(np.unique(labels)) < way for labels in episodes.support_labels):
        return "a class of a task has no support"
    return None


def _mask_text(mask: NDArray[np.bool_]) -> str:
    return " ".join("".join("1" if cell else "0" for cell in row) for row in mask)


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


def dominant_counts(
    states: NDArray[np.uint64], share: Fraction, total: int, room: IntArray
) -> tuple[IntArray, NDArray[np.bool_]]:
    """Give one class a share of `total` queries, rounded half up, the others equal parts.

    One stream per task puts its classes in an order: the first is the dominant one, and what is
    left over after equal parts goes to the next ones, one query each. A dominant class has at most
    as many as it holds (`room`, [tasks, way]), and the others equal parts of more; where these do
    not fit, see `capped_counts`. Counts [tasks, way], and whether classes were too small for them.
    """
    order = smallest(raw(states, room.shape[1]), room.shape[1])
    room = np.take_along_axis(room, order, axis=1)
    wanted = floor(share * total + Fraction(1, 2))
    most = np.minimum(room[:, :1], wanted)
    part, over = np.divmod(total - most, room.shape[1] - 1)
    in_order = np.concatenate([most, part + (np.arange(room.shape[1] - 1) < over)], axis=1)
    capped = (most[:, 0] < wanted) | (in_order > room).any(axis=1)
    counts = np.empty_like(in_order)
    np.put_along_axis(counts, order, capped_counts(in_order, room), axis=1)
    return counts, capped


def capped_counts(counts: IntArray, room: IntArray) -> IntArray:
    """Cap queries per class at what the classes hold, [tasks, way]; the sums stay.

    What does not fit is split over the other classes in proportion to their own counts (equally
    where these are all zero), again until everything fits, largest remainders rounded up. Whole
    numbers throughout, so that every machine rounds alike.
    """
    total = counts.sum(axis=1, keepdims=True)
    full = np.zeros(counts.shape, dtype=bool)
    while True:
        left = total - np.where(full, room, 0).sum(axis=1, keepdims=True)
        weight = np.where(full, 0, counts)
        weight = np.where(weight.any(axis=1, keepdims=True), weight, ~full)
        whole = np.maximum(weight.sum(axis=1, keepdims=True), 1)
        over = ~full & (weight * left > room * whole)
        if not over.any():
            break
        full |= over
    share, remainder = np.divmod(weight * left, whole)
    lacking = left[:, 0] - share.sum(axis=1)
    return np.where(full, room, share + _largest(remainder, lacking))


def _largest(remainder: NDArray[Any], count: IntArray) -> NDArray[np.bool_]:
    """Which entries of every row are its `count` largest; of equal ones the first."""
    order = np.argsort(-remainder, axis=1, kind="stable")
    rank = np.argsort(order, axis=1, kind="stable")
    return np.asarray(rank < count[:, None])


def dirichlet_counts(
    states: NDArray[np.uint64], alpha: float, way: int, total: int
) -> NDArray[np.int64]:
    """Split `total` queries over classes with Dirichlet proportions, largest remainders rounded up.

    One stream per task, uint64 [tasks]; counts are [tasks, way], and a class may get none.
    """
    from scipy.special import gammaincinv, gammaln

    u = uniform(states, way)
    gamma = gammaincinv(alpha, u)
    tiny = gamma.max(axis=1) < 1e-250
    if tiny.any():
        # A small alpha sends all of them to zero; there P(alpha, x) is x^alpha / Gamma(alpha + 1).
        logs = (np.log(u[tiny]) + gammaln(alpha + 1)) / alpha
        gamma[tiny] = np.exp(logs - logs.max(axis=1, keepdims=True))
    share = gamma / gamma.sum(axis=1, keepdims=True) * total
    counts = np.floor(share).astype(np.int64)
    lacking = total - counts.sum(axis=1)
    out: IntArray = counts + _largest(share - counts, lacking)
    return out
