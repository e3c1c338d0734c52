"""Cells, alone or together: a `Workbench` computes them and keeps what they share.

It lives in every process that computes: data, base sets and choices of settings are shared by cells
(what methods learn from base classes and scaled tensors are kept by the engine). Who drives
it, here or elsewhere, is the business of executors.
"""

from __future__ import annotations

import json
import math
import os
import platform
import sys
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from itertools import chain, groupby, islice
from threading import Lock
from typing import Any, NamedTuple, TypeGuard

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from fewview._version import __version__
from fewview.engine._contract import kept_tensors, learn_together
from fewview.engine._method import Method
from fewview.engine._state import Work
from fewview.engine._trained import TrainedMethod
from fewview.episodes._sampler import Episodes, EpisodeSampler, mixed, query_order
from fewview.episodes._task import TaskSpec
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
from fewview.evaluate._tuning import choose
from fewview.ground._errors import FewviewError, FewviewWarning
from fewview.ground._memory import LRUCache
from fewview.results._cells import Cell, Result, content_hash
from fewview.results._metrics import Answers, join, measure
from fewview.samples._data import MultiViewData

# Fields of a cell that are those of its task.
TASK = ("way", "shot", "queries", "query_counts", "eta")
# Base sets that are learnt from ahead of the batches that need them: as many as a table has, on a
# GPU as many as a quarter of its memory holds, up to those of six tables; and how many at once.
AHEAD, FAR_AHEAD, THREADS = 10, 60, 3
# Seconds after which one thread lets another go on. Python's 5 ms make whoever launches kernels
# wait for those who prepare; with a tenth of a millisecond all are busy waking up.
TURN = 1e-3
# Name, among versions, of how exact products are where that is not as usual.
PRODUCTS = "float32_products"
# Cells of masks of one cell's tasks above which these are drawn again for every method.
MASKS = 1 << 16
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


class _Asked(NamedTuple):
    """What a cell asks for: who answers what, settings that were chosen, and the seconds so far."""

    method: Method
    work: Work
    chosen: str
    seconds_base: float


class _Ahead:
    """What was begun ahead of who takes it: a few units at a time, in their order."""

    def __init__(
        self,
        units: Iterator[tuple[Cell, ...]],
        begin: Callable[[tuple[Cell, ...]], Future[list[_Asked]]],
        count: int,
    ) -> None:
        self._later, self._begin = units, begin
        self._begun = {unit: begin(unit) for unit in islice(units, count)}

    def take(self, unit: tuple[Cell, ...]) -> Future[list[_Asked]] | None:
        """What was begun for a unit, None where nothing was; another one begins in its place."""
        found = self._begun.pop(unit, None)
        if found is not None:
            self._begun |= {unit: self._begin(unit) for unit in islice(self._later, 1)}
        return found

    def drop(self, units: Iterable[tuple[Cell, ...]]) -> None:
        """Forget units that nobody will take."""
        for unit in units:
            if (found := self.take(unit)) is not None:
                found.cancel()


class Workbench:
    """Computes cells of one grid in one process; `choices` are those made before, by key."""

    def __init__(self, grid: Grid, choices: Choices | None = None) -> None:
        self.grid = grid
        self.choices: Choices = dict(choices or {})
        self.new_choices: Choices = {}
        self._methods: dict[str, Method] = {}
        self._subsets: LRUCache[Any, MultiViewData] = LRUCache(4)
        self._fingerprints: LRUCache[Any, str] = LRUCache(1024)
        self._drawn: LRUCache[Any, Episodes] = LRUCache(512)
        self._lock = Lock()
        self._turns: defaultdict[Hashable, Lock] = defaultdict(Lock)
        self._ahead: _Ahead | None = None

    def evaluate(self, cells: Sequence[Cell]) -> Iterator[Result]:
        """Compute cells in batches that span them; see `Workbench.panels`."""
        keep = self.grid.keep_probabilities
        told: list[tuple[str, float]] = []

        def works() -> Iterator[Work]:
            for asked in chain([first], others):
                told.append((asked.chosen, asked.seconds_base))
                yield asked.work

        others = self._asked(_units(cells))
        first = next(others)
        mix = brings_code(first.method)
        answered = first.method.score_in_batches(works())
        for number, parts in groupby(answered, key=lambda part: part.number):
            metrics, said, labels, seconds = [], [], [], 0.0
            for part in parts:
                labels.append(part.episodes.query_labels)
                metrics.append(measure(part.scores.numpy(), labels[-1]))
                seconds += part.seconds
                if keep:
                    said.append(torch.log_softmax(part.scores.double(), dim=-1).float())
                    if mix:  # kept in the order that they are drawn in
                        back = query_order(part.episodes).argsort(axis=1)
                        labels[-1] = np.take_along_axis(labels[-1], back, axis=1)
                        said[-1] = said[-1].take_along_dim(torch.from_numpy(back)[..., None], dim=1)
            chosen, seconds_base = told[number]
            yield Result(
                cell=cells[number],
                metrics=join(metrics),
                seconds=seconds,
                seconds_base=seconds_base,
                chosen=chosen,
                created=datetime.now(UTC).isoformat(timespec="seconds"),
                host=platform.node(),
                versions=versions(),
                answers=Answers(torch.cat(said).numpy(), np.concatenate(labels)) if keep else None,
            )

    def _ask(self, cells: Sequence[Cell]) -> list[_Asked]:
        """Prepare for cells with the same base classes, and draw their tasks."""
        data, base = self.materials(cells[0])[0], self._base(cells[0])
        # Base classes of another data set are the same in all class splits.
        novel = [self._rows(data, cell.novel) for cell in cells]
        method = self._method(cells[0].method)
        missing = missing_rule(self.grid.missing, data)
        tasks = [
            TaskSpec(missing=missing, **{name: getattr(cell, name) for name in TASK})
            for cell in cells
        ]
        seconds_base, chosen = 0.0, ""
        if cells[0].tune:
            method, chosen, seconds_base = self._tuned(cells[0], method, base, tasks[0])
        with self._turn(cells[0]):
            if len(cells) > 1 and _trains_each_rate(method):
                prepared = learn_together(method, base, tasks)
            else:
                prepared = [
                    method.prepare_for(base, rows, task)
                    for rows, task in zip(novel, tasks, strict=True)
                ]
        mix = brings_code(method)

        def draw(cell: Cell, rows: MultiViewData, task: TaskSpec) -> Episodes:
            episodes = self._episodes(cell, rows, task)
            return mixed(episodes) if mix else episodes

        return [
            _Asked(
                method,
                Work(
                    rows,
                    draw(cell, rows, task),
                    learnt,
                    kept_tensors(method, rows, learnt)[0],
                ),
                chosen,
                seconds_base + learnt.seconds,
            )
            for cell, rows, task, learnt in zip(cells, novel, tasks, prepared, strict=True)
        ]

    @contextmanager
    def looking_ahead(self, panels: Sequence[Sequence[Cell]]) -> Iterator[None]:
        """Inside, other threads prepare for the next base sets of panels while one is scored.

        For methods that join tasks: elsewhere scoring has all cores, and a cell its own digits.
        """
        units = [
            unit
            for panel in panels
            if not panel[0].tune and self._method(panel[0].method).joins
            for unit in _units(panel)
        ]
        if len(units) < 2:
            yield
            return
        largest = max(math.prod(source.data.shape) for source in self._sources.values())
        far = AHEAD
        devices = {self._method(unit[0].method).torch_device for unit in units}
        gpus = [device for device in devices if device.type == "cuda"]
        for device in gpus:
            # torch loads the linear algebra of a GPU at its first use, which must not be by
            # several threads at once ("lazy wrapper should be called at most once").
            torch.linalg.eigh(torch.eye(2, device=device))
            room = torch.cuda.get_device_properties(device).total_memory // 4
            far = min(FAR_AHEAD, max(AHEAD, room // (12 * largest)))  # three copies, float32
        cores = os.cpu_count() or 1
        count = max(1, min(THREADS, cores // 2))
        each, usual, turn = max(1, cores // count), torch.get_num_threads(), sys.getswitchinterval()

        def begin() -> None:
            torch.set_num_threads(each)
            for device in gpus:  # a queue of its own, or all would wait for what others asked for
                torch.cuda.set_stream(torch.cuda.Stream(device))  # type: ignore[no-untyped-call]

        def ask(unit: tuple[Cell, ...]) -> list[_Asked]:
            found = self._ask(unit)
            for device in gpus:  # who takes it finds all of it there
                torch.cuda.current_stream(device).synchronize()
            return found

        pool = ThreadPoolExecutor(count, initializer=begin)
        self._ahead = _Ahead(iter(units), lambda unit: pool.submit(ask, unit), far)
        sys.setswitchinterval(TURN)
        try:
            with threadpool_limits(each):  # all of them together have the cores
                yield
        finally:
            self._ahead = None
            pool.shutdown(cancel_futures=True)
            sys.setswitchinterval(turn)
            torch.set_num_threads(usual)

    def _asked(self, units: Sequence[tuple[Cell, ...]]) -> Iterator[_Asked]:
        """What the cells of class splits ask for, prepared ahead where somebody does."""
        try:
            for unit in units:
                begun = None if self._ahead is None else self._ahead.take(unit)
                yield from self._ask(unit) if begun is None else begun.result()
        finally:
            if self._ahead is not None:
                self._ahead.drop(units)

    def panels(self, cells: Sequence[Cell]) -> list[list[Cell]]:
        """Cells that go through batches together, those that take a GPU longest first.

        While these are scored Python has time to prepare for the others, whose scoring is little
        else than Python; and else in the order of their first cells.

        Those of one data set, method and shape of tasks: class splits, missing rates and seeds. Of
        a method that trains networks for every missing rate, those of a class split, as many as it
        trains at once. A method whose tasks do not join, and one whose settings are chosen, has
        cells of their own.
        """
        found: dict[Hashable, list[Cell]] = {}
        begun: Counter[Hashable] = Counter()  # cells of a class split that are trained together
        for cell in cells:
            method = self._method(cell.method)
            shape = tuple(getattr(cell, name) for name in TASK if name != "eta")
            key: tuple[Hashable, ...] = (cell.data_checksum, cell.method, shape)
            if cell.tune or not (method.joins or _trains_each_rate(method)):
                key = (cell.hash,)
            elif not method.joins:
                key = (*key, cell.base_checksum, cell.base_classes, cell.novel)
                number, begun[key] = begun[key], begun[key] + 1
                key = (*key, number // self._trainings_at_once(method, cell))
            found.setdefault(key, []).append(cell)
        return sorted(found.values(), key=self._batches, reverse=True)

    def _batches(self, panel: Sequence[Cell]) -> float:
        """Batches that the tasks of a panel fill, 0 where they do not join."""
        cell, method = panel[0], self._method(panel[0].method)
        if not method.joins:
            return 0.0
        samples = (cell.way * cell.shot, cell.way * cell.queries)
        size = method.batch_size(*samples, self.materials(cell)[0].view_dims, cell.way)
        return sum(one.stop - one.start for one in panel) / size

    def _trainings_at_once(self, method: TrainedMethod, cell: Cell) -> int:
        base = self._base(cell)
        return method.trainings_at_once(len(base), tuple(base.view_dims.values()))

    def attempt(self, cells: Sequence[Cell]) -> Iterator[Event]:
        """Compute cells together; a breakdown of the method becomes a failure of its cell."""
        done = 0
        try:
            for result in self.evaluate(cells):
                done += 1
                choices, self.new_choices = self.new_choices, {}
                yield Event(result.cell, result, choices=choices)
        except Exception as error:
            if len(cells) > 1:  # whose fault it is, each one tells by itself
                warnings.warn(
                    f"{cells[0].method} on {cells[0].dataset}: {len(cells) - done} cells are "
                    f"computed one by one, because together they gave {type(error).__name__}: "
                    f"{error}",
                    FewviewWarning,
                    stacklevel=2,
                )
                for cell in cells[done:]:
                    yield from self.attempt([cell])
            elif isinstance(error, FewviewError):
                raise
            else:
                yield Event(cells[0], failure=f"{type(error).__name__}: {error}")

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

    def _turn(self, cell: Cell) -> Lock:
        """Held while something is learnt: data sets that share base classes learn it once."""
        with self._lock:
            return self._turns[cell.method, cell.base_checksum, cell.base_classes]

    def _rows(self, data: MultiViewData, classes: tuple[str, ...]) -> MultiViewData:
        key = (data.fingerprint, classes)
        with self._lock:
            if key in self._subsets:
                return self._subsets[key]
        found = rows_of(data, classes)  # others may go on meanwhile
        with self._lock:
            if key in self._fingerprints:  # read all of it once, not again for every method
                vars(found)["fingerprint"] = self._fingerprints[key]
            return self._subsets.setdefault(key, found)

    def _base(self, cell: Cell) -> MultiViewData:
        """The base set of a cell."""
        data = self.materials(cell)[1]
        found = self._rows(data, cell.base_classes)
        fingerprint = found.fingerprint
        with self._lock:
            self._fingerprints[data.fingerprint, cell.base_classes] = fingerprint
        return found

    def _episodes(self, cell: Cell, rows: MultiViewData, task: TaskSpec) -> Episodes:
        """The tasks of a cell, which are those of all methods."""
        fields = ("dataset", "data_checksum", "novel", *TASK, "seed", "start", "stop")
        key = tuple(getattr(cell, name) for name in fields)
        with self._lock:
            if key in self._drawn:
                return self._drawn[key]
        sampler = EpisodeSampler(rows, task, seed=cell.seed, name=cell.dataset)
        found = sampler.draw(cell.start, cell.stop)
        if len(self.grid.methods) > 1 and found.support_mask.size + found.query_mask.size < MASKS:
            with self._lock:
                self._drawn[key] = found
        return found

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


def _units(cells: Sequence[Cell]) -> list[tuple[Cell, ...]]:
    """Cells one after another that have the same base classes."""
    return [tuple(found) for _, found in groupby(cells, key=lambda cell: cell.base_classes)]


def choice_key(cell: Cell) -> str:
    """Key of the settings chosen for a cell, which depend on nothing but the base set."""
    kept = cell.key()
    for name in ("dataset", "data_checksum", "novel", "start", "stop", "sampler_version"):
        del kept[name]
    return content_hash(kept)


def _trains_each_rate(method: Method) -> TypeGuard[TrainedMethod]:
    """Whether a method trains networks on base classes for every missing rate anew."""
    if not isinstance(method, TrainedMethod) or method.tags.learns_novel:
        return False
    return bool(method.tags.prepare_depends_on)


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
