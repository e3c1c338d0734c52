"""One cell after another: a `Workbench` computes cells and keeps what they share.

It lives in every process that computes: data, base sets and choices of settings are shared by cells
(what methods learn from base classes and scaled tensors are kept by the engine). Who drives
it, here or elsewhere, is the business of executors.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from time import perf_counter
from typing import Any

import torch

from fewview._version import __version__
from fewview.engine._contract import kept_tensors, learn_together
from fewview.engine._method import Method
from fewview.engine._state import Prepared
from fewview.engine._trained import TrainedMethod
from fewview.episodes._sampler import Episodes, EpisodeSampler
from fewview.episodes._task import TaskSpec
from fewview.evaluate._grid import (
    Grid,
    make_method,
    missing_rule,
    rows_of,
    sources_of,
    tune_candidates,
)
from fewview.evaluate._sources import Source
from fewview.evaluate._tuning import choose
from fewview.ground._errors import FewviewError
from fewview.ground._memory import LRUCache
from fewview.results._cells import Cell, Result, content_hash
from fewview.results._metrics import Answers, EpisodeMetrics, join, measure
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
        self._done: dict[str, Result] = {}  # computed with another cell
        self._subsets: LRUCache[Any, MultiViewData] = LRUCache(4)

    def evaluate(self, cell: Cell, later: Sequence[Cell] = ()) -> Result:
        """Compute one cell.

        `later` are those of the same data, class split and method that come next. Of a method that
        trains networks as many as fit its memory are computed with it and kept until asked for.
        """
        if cell.hash not in self._done:
            found = self._together([cell, *later])
            self._done = {result.cell.hash: result for result in found}
        return self._done.pop(cell.hash)

    def _together(self, cells: list[Cell]) -> list[Result]:
        """Compute the first of some cells, and as many of the others as go with it."""
        cell = cells[0]
        data, base_data = self.materials(cell)
        novel = self._rows(data, cell.novel)
        base = self._rows(base_data, cell.base_classes)
        method = self._method(cell.method)
        cells = cells[: _at_once(method, base, cell)]
        missing = missing_rule(self.grid.missing, data)
        tasks = [
            TaskSpec(missing=missing, **{name: getattr(one, name) for name in TASK})
            for one in cells
        ]
        seconds_base, chosen = 0.0, ""
        if cell.tune:
            method, chosen, seconds_base = self._tuned(cell, method, base, tasks[0])
        if len(cells) == 1 or not method.tags.prepare_depends_on:
            prepared = [method.prepare_for(base, novel, task) for task in tasks]
        else:
            method.validate()
            prepared = learn_together(method, base, tasks)
        episodes = [
            EpisodeSampler(novel, task, seed=one.seed, name=one.dataset).draw(one.start, one.stop)
            for one, task in zip(cells, tasks, strict=True)
        ]
        scored = score_each(method, novel, episodes, prepared, self.grid.keep_probabilities)
        return [
            Result(
                cell=one,
                metrics=metrics,
                seconds=seconds,
                seconds_base=seconds_base + learnt.seconds,
                chosen=",".join(filter(None, (chosen, method.describe_choice(learnt.state)))),
                created=datetime.now(UTC).isoformat(timespec="seconds"),
                host=platform.node(),
                versions=versions(),
                answers=answers,
            )
            for one, learnt, (metrics, seconds, answers) in zip(
                cells, prepared, scored, strict=True
            )
        ]

    def attempt(self, cell: Cell, later: Sequence[Cell] = ()) -> Event:
        """Compute one cell, see `evaluate`; a breakdown of the method becomes a failure."""
        try:
            result = self.evaluate(cell, later)
        except FewviewError:
            raise
        except Exception as error:
            return Event(cell, failure=f"{type(error).__name__}: {error}")
        choices, self.new_choices = self.new_choices, {}
        return Event(cell, result, choices=choices)

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


def _at_once(method: Method, base: MultiViewData, cell: Cell) -> int:
    """How many cells of a method that trains networks go together, and on a GPU of any method.

    A GPU is busy with many tasks only; elsewhere a cell that is done is worth more.
    """
    trains = isinstance(method, TrainedMethod)
    if cell.tune or method.tags.learns_novel or not (trains or method.torch_device.type == "cuda"):
        return 1
    if method.tags.prepare_depends_on:
        dims = tuple(base.view_dims.values())
        return method.trainings_at_once(len(base), dims) if trains else 1
    size = method.batch_size(
        cell.way * cell.shot, cell.way * cell.queries, base.view_dims, cell.way
    )
    return max(1, size // cell.n_episodes)


def score_each(
    method: Method,
    data: MultiViewData,
    episodes: Sequence[Episodes],
    prepared: Sequence[Prepared],
    keep: bool = False,
) -> list[tuple[EpisodeMetrics, float, Answers | None]]:
    """`score` for every list of episodes; those with the same preparation are scored together."""
    first = prepared[0]
    if len(episodes) == 1 or any(other is not first for other in prepared):
        pairs = zip(episodes, prepared, strict=True)
        return [score(method, data, some, learnt, keep) for some, learnt in pairs]
    whole = Episodes.joined(episodes)
    _, seconds, answers = score(method, data, whole, first, keep=True)
    assert answers is not None
    out, start = [], 0
    for some in episodes:
        part = slice(start, start := start + len(some))
        said = Answers(answers.scores[part], answers.labels[part])
        share = seconds * len(some) / len(whole)
        out.append((measure(said.scores, said.labels), share, said if keep else None))
    return out


def score(
    method: Method,
    data: MultiViewData,
    episodes: Episodes,
    prepared: Prepared,
    keep: bool = False,
) -> tuple[EpisodeMetrics, float, Answers | None]:
    """Score episodes batch by batch: their metrics, the seconds, and if wanted all answers."""
    kept_tensors(method, data, prepared)  # scaling is not scoring
    parts, said, seconds, begin = [], [], 0.0, perf_counter()
    for some, scores in method.score_in_batches(data, episodes, prepared):
        seconds += perf_counter() - begin
        parts.append(measure(scores.numpy(), some.query_labels))
        if keep:
            said.append(torch.log_softmax(scores.double(), dim=-1).float())
        begin = perf_counter()
    answers = Answers(torch.cat(said).numpy(), episodes.query_labels) if keep else None
    return join(parts), seconds, answers


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
