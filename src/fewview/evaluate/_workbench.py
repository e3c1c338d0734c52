"""Cells of a grid, computed one after another: a `Workbench` keeps what they share.

It lives in every process that computes: data, base sets, episodes and choices of settings are
shared by cells. Who drives it, here or elsewhere, is the business of executors.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from time import perf_counter
from typing import Any

import torch

from fewview._version import __version__
from fewview.episodes.batch import ViewTensors
from fewview.episodes.episodes import Episodes
from fewview.episodes.sampler import EpisodeSampler
from fewview.episodes.task import TaskSpec
from fewview.errors import FewviewError
from fewview.evaluate._grid import (
    Grid,
    brings_code,
    make_method,
    missing_rule,
    rows_of,
    sources_of,
    tune_candidates,
)
from fewview.evaluate._sources import Source
from fewview.evaluate._tuning import choose, learn_for
from fewview.ground._memory import LRUCache
from fewview.methods.estimator.fitted_base import FittedBase
from fewview.methods.estimator.method import Method
from fewview.results._cells import Cell, Result, content_hash
from fewview.results._metrics import Answers, measure
from fewview.samples._data import MultiViewData

# Fields of a cell that are those of its task.
TASK = ("way", "shot", "queries", "query_counts", "eta")
# Name, among versions, of how exact products are where that is not as usual.
PRODUCTS = "float32_products"
Choices = dict[str, dict[str, Any]]
Tell = Callable[[str], None]  # takes messages for people


@dataclass(frozen=True)
class Event:
    """Something that happened to a cell: started (nothing set), finished, or failed."""

    cell: Cell
    result: Result | None = None
    failure: str = ""
    choices: Choices = field(default_factory=dict)


Events = Generator[Event, None, None]


class Workbench:
    """Computes cells of one grid in one process; `choices` are those made before, by key."""

    def __init__(self, grid: Grid, choices: Choices | None = None) -> None:
        self.grid = grid
        self.choices: Choices = dict(choices or {})
        self.new_choices: Choices = {}
        self._methods: dict[str, Method] = {}
        self._subsets: LRUCache[Any, MultiViewData] = LRUCache(4)
        self._tensors: LRUCache[Any, tuple[ViewTensors, Any]] = LRUCache(3)
        self._drawn: LRUCache[Any, Episodes] = LRUCache(64)

    def evaluate(self, cell: Cell) -> Result:
        """Compute one cell."""
        data, base = self.materials(cell)[0], self._rows(self.materials(cell)[1], cell.base_classes)
        novel, method = self._rows(data, cell.novel), self._method(cell.method)
        task = TaskSpec(
            missing=missing_rule(self.grid.missing, data),
            **{name: getattr(cell, name) for name in TASK},
        )
        chosen, seconds_base = "", 0.0
        if cell.tune:
            method, chosen, seconds_base = self._tuned(cell, method, base, task)
        fitted = learn_for(method, base, novel, task)
        tensors, drawn = self._scaled(method, novel, fitted), self._episodes(cell, novel, task)
        # Code of somebody's own gets queries in an order that says nothing of their classes.
        episodes = drawn.shuffled_queries() if brings_code(method) else drawn
        if method.tags.learns_from == "tasks":
            state = method.learn_from_tasks(tensors, episodes, fitted.seed)
            fitted = replace(fitted, state=state)
        start = perf_counter()
        scores = method.score_episodes(tensors, episodes, fitted)
        seconds = perf_counter() - start
        answers, labels = None, episodes.query_labels
        if self.grid.keep_probabilities:
            said = torch.log_softmax(scores.double(), dim=-1).float()
            if episodes is not drawn:  # kept in the order that they are drawn in
                back = drawn.query_order().argsort(axis=1)
                said = said.take_along_dim(torch.from_numpy(back)[..., None], dim=1)
            answers = Answers(said.numpy(), drawn.query_labels)
        return Result(
            cell=cell,
            metrics=measure(scores.numpy(), labels),
            seconds=seconds,
            seconds_base=seconds_base + fitted.seconds,
            chosen=chosen,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            host=platform.node(),
            versions=versions(),
            answers=answers,
        )

    def attempt(self, cell: Cell) -> Iterator[Event]:
        """Compute a cell; a breakdown of the method becomes a failure of its cell."""
        try:
            result = self.evaluate(cell)
        except FewviewError:
            raise
        except Exception as error:
            yield Event(cell, failure=f"{type(error).__name__}: {error}")
            return
        choices, self.new_choices = self.new_choices, {}
        yield Event(cell, result, choices=choices)

    def materials(self, cell: Cell) -> tuple[MultiViewData, MultiViewData]:
        """What a cell is computed from: its data and those of its base classes."""
        return self._sources[cell.data_checksum].data, self._sources[cell.base_checksum].data

    @cached_property
    def _sources(self) -> dict[str, Source]:
        return sources_of(self.grid)

    def _method(self, text: str) -> Method:
        if text not in self._methods:
            self._methods[text] = make_method(text, self.grid)
        return self._methods[text]

    def _rows(self, data: MultiViewData, classes: tuple[str, ...]) -> MultiViewData:
        key = (data.fingerprint, classes)
        if key not in self._subsets:
            self._subsets[key] = rows_of(data, classes)
        return self._subsets[key]

    def _scaled(self, method: Method, novel: MultiViewData, fitted: FittedBase) -> ViewTensors:
        """Scaled data of the novel classes, shared by methods with the same scaling."""
        key = (
            novel.fingerprint, fitted.fingerprint, str(fitted.scaling.rule),
            json.dumps(fitted.scaling.rules, sort_keys=True), method.dtype,
            str(method.torch_device), method.tags.handles_nan,
        )  # fmt: skip
        if key not in self._tensors:
            self._tensors[key] = method.tensors(novel, fitted), fitted.scaling
        return self._tensors[key][0]

    def _episodes(self, cell: Cell, rows: MultiViewData, task: TaskSpec) -> Episodes:
        """The tasks of a cell, which are those of all methods."""
        fields = ("dataset", "data_checksum", "novel", *TASK, "seed", "start", "stop")
        key = tuple(getattr(cell, name) for name in fields)
        if key not in self._drawn:
            sampler = EpisodeSampler(rows, task, seed=cell.seed, name=cell.dataset)
            self._drawn[key] = sampler.draw(cell.start, cell.stop)
        return self._drawn[key]

    def _tuned(
        self, cell: Cell, method: Method, base: MultiViewData, task: TaskSpec
    ) -> tuple[Method, str, float]:
        from sklearn.base import clone

        listed = tune_candidates(cell.method, self.grid, method)
        key = choice_key(cell)
        if key not in self.choices:
            choice = choose(method, listed, base, task, cell.seed)
            self.choices[key] = self.new_choices[key] = choice
        found = self.choices[key]
        parameters = listed[found["index"]]
        text = ",".join(f"{name}={value}" for name, value in sorted(parameters.items()))
        return clone(method).set_params(**parameters), text, float(found["seconds"])


def choice_key(cell: Cell) -> str:
    """Key of the settings chosen for a cell, which depend on nothing but the base set."""
    kept = cell.key()
    for name in ("dataset", "data_checksum", "novel", "start", "stop", "sampler_version"):
        del kept[name]
    return content_hash(kept)


def versions() -> str:
    """Versions of what results may depend on, and the number of threads, as JSON."""
    import numpy
    import scipy
    import sklearn

    found = {module.__name__: module.__version__ for module in (numpy, scipy, sklearn, torch)}
    found |= {"fewview": __version__, "python": platform.python_version()}
    products = torch.get_float32_matmul_precision()
    if products != "highest":
        found[PRODUCTS] = products  # TF32 on a GPU, if "high"
    return json.dumps(found | {"threads": torch.get_num_threads()}, sort_keys=True)
