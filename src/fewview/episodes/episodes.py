"""A list of tasks: rows of a data set, masks and seeds."""

from __future__ import annotations

import json
from collections.abc import Hashable
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fewview.errors import FewviewError
from fewview.ground._whole_files import replacing
from fewview.numerics.random_keys import combine, raw, smallest, stream_key

SAMPLER_VERSION = 1
IntArray = NDArray[np.int64]
PER_TASK = {
    "classes": np.int64, "support": np.int64, "support_labels": np.int64, "query": np.int64,
    "query_labels": np.int64, "support_mask": np.bool_, "query_mask": np.bool_, "seeds": np.uint64,
}  # fmt: skip


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

    @property
    def missing_rate(self) -> float:
        """Realised share of missing cells over all tasks."""
        present = self.support_mask.sum() + self.query_mask.sum()
        return float(1.0 - present / (self.support_mask.size + self.query_mask.size))

    def save(self, path: str | PathLike[str]) -> None:
        """Write the episode list as JSON, to be read back by `load` on any machine."""
        if not all(isinstance(label, (str, int, float)) for label in self.class_names):
            raise FewviewError(f"{path}: class labels must be numbers or text to be saved as JSON")
        document = {"format": "fewview-episodes", "version": SAMPLER_VERSION}
        document |= {name: getattr(self, name).astype(object).tolist() for name in PER_TASK}
        document |= {name: list(getattr(self, name)) for name in ("class_names", "view_names")}
        document |= {"way": self.way, "dataset": self.dataset}
        with replacing(path) as temporary:
            temporary.write_text(json.dumps(document), encoding="utf-8")

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Episodes:
        """Read an episode list written by `save`."""
        try:
            document = json.loads(Path(path).read_text(encoding="utf-8"))
            if document["format"] != "fewview-episodes" or document["version"] > SAMPLER_VERSION:
                raise ValueError("another format")
            found = cls(
                **{k: np.array(document[k], dtype=dtype) for k, dtype in PER_TASK.items()},
                class_names=tuple(document["class_names"]),
                view_names=tuple(document["view_names"]),
                way=int(document["way"]),
                dataset=str(document["dataset"]),
            )
        except OSError as error:
            raise FewviewError(f"{path}: cannot read ({error.strerror})") from None
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
            raise FewviewError(
                f"{path} is not an episode list of this version of fewview ({error!r:.80}); write "
                "one with Episodes.save"
            ) from None
        if problem := found.problem():
            raise FewviewError(f"{path}: {problem}; the file was damaged or changed")
        return found

    def problem(self) -> str:
        """What does not fit together in these tasks; empty if everything does."""
        n_tasks, n_views = self.seeds.size, len(self.view_names)
        one_each = self.seeds.ndim == 1 and self.classes.shape == (n_tasks, self.way)
        if not n_tasks or not one_each or self.way < 2:
            return f"the tasks are not about {self.way} classes each"
        for kind in ("support", "query"):
            rows, codes, seen = (getattr(self, kind + end) for end in ("", "_labels", "_mask"))
            alike = codes.shape == rows.shape and seen.shape == (*rows.shape, n_views)
            if not alike or rows.ndim != 2 or len(rows) != n_tasks or not rows.size:
                return f"rows, labels and masks of {n_views} views do not match"
        samples = np.concatenate([self.support, self.query], axis=1)
        labels = np.concatenate([self.support_labels, self.query_labels], axis=1)
        mask = np.concatenate([self.support_mask, self.query_mask], axis=1)
        if not (self.classes.min() >= 0 and self.classes.max() < len(self.class_names)):
            return "a task is about a class that is not listed"
        if not (samples.min() >= 0 and labels.min() >= 0 and labels.max() < self.way):
            return "a row or a label is out of range"
        if not mask.any(axis=-1).all():
            return "a sample has no view"
        if (np.diff(np.sort(samples, axis=1), axis=1) == 0).any():
            return "a task has the same sample twice"
        if any(len(np.unique(row)) < self.way for row in self.support_labels):
            return "a class of a task has no support"
        return ""

    def query_order(self) -> IntArray:
        """An order of every task's queries that says nothing of their classes: [tasks, n_query]."""
        count = self.query.shape[1]
        return smallest(raw(combine(self.seeds, stream_key("order of queries")), count), count)

    def shuffled_queries(self) -> Episodes:
        """The same tasks with queries in `query_order`: class by class, their place would tell."""
        order = self.query_order()
        return replace(
            self,
            query=np.take_along_axis(self.query, order, axis=1),
            query_labels=np.take_along_axis(self.query_labels, order, axis=1),
            query_mask=np.take_along_axis(self.query_mask, order[..., None], axis=1),
        )
