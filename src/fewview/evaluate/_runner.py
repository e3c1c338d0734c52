"""Doing the work: cells are computed here or in worker processes, and written by the parent alone.

A `Workbench` lives in every process and keeps what cells share: data, base sets, scaled tensors,
choices of settings (what methods learn from base classes is kept by `Method.prepare_base`). Workers
are spawned, not forked, get a share of the cores each, and end when their parent does. A cluster is
another `Executor` (`cluster.py`) behind the same `run`.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import platform
import signal
import sys
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Generator, Hashable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from multiprocessing.connection import Connection, wait
from time import perf_counter
from typing import Any, Protocol

import torch

from fewview._version import __version__
from fewview.engine._contract import Method, Prepared
from fewview.episodes._sampler import Episodes, EpisodeSampler
from fewview.episodes._task import TaskSpec
from fewview.evaluate._grid import (
    Grid,
    Setting,
    make_method,
    plan,
    rows_of,
    settings,
    tune_candidates,
)
from fewview.evaluate._grid import units as units_of
from fewview.evaluate._progress import Progress
from fewview.evaluate._tuning import choose
from fewview.ground._errors import FewviewError
from fewview.numerics._batch import ViewTensors
from fewview.numerics._networks import watch_training
from fewview.results._cells import Cell, Result, content_hash
from fewview.results._metrics import EpisodeMetrics, join, measure
from fewview.results._store import MEMORY, NO_STORE, Store
from fewview.samples._data import MultiViewData

Choices = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Outcome:
    """What a run gave.

    Attributes:
        cells: the planned cells.
        results: by content hash; failed cells are absent.
        computed: number of cells computed now.
        reused: number of cells taken from the store.
        stale: number of computed cells that the store had from an older version.
        failures: cells that could not be computed, and why.
    """

    cells: tuple[Cell, ...]
    results: dict[str, Result]
    computed: int
    reused: int
    stale: int
    failures: tuple[tuple[Cell, str], ...]


def run(
    grid: Grid,
    store: str | os.PathLike[str] | None = None,
    *,
    jobs: int = 1,
    cluster: str | None = None,
    progress: Progress | None = None,
    wait_for_store: float | None = None,
) -> Outcome:
    """Run what the store does not have yet, and return all results of the grid.

    Args:
        grid: what to run.
        store: file of results; None or `"none"` keeps nothing.
        jobs: number of processes. 1 works in this process with all its threads.
        cluster: address of a Dask scheduler, for instance `"tcp://host:8786"`; its workers compute
            and this process writes. Leave `jobs` at 1 then.
        progress: is told how far the run is.
        wait_for_store: seconds to wait for another writer of the store; None waits as long as
            it takes.

    Returns:
        All results, computed now or before. Errors in the input are raised; a method that breaks
        down on a cell is listed among the failures, and the other cells go on.

    Example:
        >>> grid = Grid(datasets=("digits",), methods=("proto",), splits=2, episodes=5)
        >>> outcome = run(grid)
        >>> outcome.computed, len(outcome.results)
        (2, 2)
    """
    executor = make_executor(jobs, cluster)
    told = progress or Progress()
    cells = plan(grid)
    # The same cell may be asked for under two spellings of one method.
    unique = list({cell.hash: cell for cell in cells}.values())
    path = MEMORY if store is None or str(store) == NO_STORE else str(store)
    if path != MEMORY and os.path.exists(path):
        with Store(path, write=False) as reader:
            results = reader.get([cell.hash for cell in unique])
        if len(results) == len(unique):
            told.planned(len(unique), len(unique), 0)
            told.close()
            return Outcome(tuple(cells), results, 0, len(unique), 0, ())
    with Store(path, wait=wait_for_store, on_wait=told.message) as writer:
        # Whoever held the lock may have computed some of these cells meanwhile.
        results = writer.get([cell.hash for cell in unique])
        missing = [cell for cell in unique if cell.hash not in results]
        stale = len(writer.known_identities({cell.identity for cell in missing}))
        told.planned(len(unique), len(results), stale)
        failures: list[tuple[Cell, str]] = []
        reused = len(results)
        choices = writer.all_choices() if grid.tune else {}
        try:
            # Closed at once when this loop is left by an error: workers must not go on for nobody.
            with (
                watch_training(lambda epoch: told.training(epoch.describe())),
                closing(executor.work(grid, missing, choices, told.message)) as events,
            ):
                for event in events:
                    if event.result is not None:
                        writer.add(event.result)
                        results[event.cell.hash] = event.result
                        told.finished(event.result)
                    elif event.failure:
                        failures.append((event.cell, event.failure))
                        told.failed(event.cell, event.failure)
                    else:
                        told.started(event.cell)
                    for key, choice in event.choices.items():
                        writer.add_choice(key, choice)
        finally:
            told.close()
    return Outcome(tuple(cells), results, len(results) - reused, reused, stale, tuple(failures))


@dataclass(frozen=True)
class Event:
    """Something that happened to a cell: started (nothing set), finished, or failed."""

    cell: Cell
    result: Result | None = None
    failure: str = ""
    choices: Choices = field(default_factory=dict)


class Executor(Protocol):
    """Where cells are computed. The one who asks writes the store; an executor only reports."""

    def work(
        self, grid: Grid, cells: list[Cell], choices: Choices, tell: Callable[[str], None]
    ) -> Generator[Event, None, None]:
        """Compute cells and yield what happens to them, in any order.

        Args:
            grid: what the cells belong to.
            cells: in the order of `plan`.
            choices: settings chosen on base classes before, by key.
            tell: takes messages for people.
        """


def make_executor(jobs: int = 1, cluster: str | None = None) -> Executor:
    """Choose who computes: this process, several processes, or a cluster.

    Example:
        >>> make_executor(jobs=2)
        LocalExecutor(jobs=2)
    """
    if jobs < 1:
        raise FewviewError(f"jobs is {jobs}; give the number of processes, at least 1")
    if cluster is None:
        return LocalExecutor(jobs)
    if jobs > 1:
        raise FewviewError(
            f"--jobs {jobs} and --cluster {cluster}: give one of them; how many cells a cluster "
            "computes at once is a matter of its workers"
        )
    from fewview.evaluate._cluster import ClusterExecutor

    return ClusterExecutor(cluster)


# ---------------------------------------------------------------------- one process


class _Recent:
    """A small memory, least recently used out first."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._items: OrderedDict[Hashable, Any] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], Any]) -> Any:
        if key not in self._items:
            self._items[key] = make()
        self._items.move_to_end(key)
        while len(self._items) > self._size:
            self._items.popitem(last=False)
        return self._items[key]


class Workbench:
    """Computes cells of one grid in one process.

    Args:
        grid: what the cells belong to.
        choices: settings chosen on base classes before, by key.

    Example:
        >>> grid = Grid(datasets=("digits",), methods=("proto",), splits=1, episodes=5)
        >>> result = Workbench(grid).evaluate(plan(grid)[0])
        >>> len(result.metrics), result.seconds > 0
        (5, True)
    """

    def __init__(self, grid: Grid, choices: Choices | None = None) -> None:
        self.grid = grid
        self.choices: Choices = dict(choices or {})
        self.new_choices: Choices = {}
        self._settings: dict[str, Setting] | None = None
        self._methods: dict[str, Method] = {}
        self._subsets = _Recent(4)
        self._tensors = _Recent(3)

    def evaluate(self, cell: Cell) -> Result:
        """Compute one cell."""
        data, base_data, task = self.materials(cell)
        novel = self._rows(data, cell.novel)
        base = self._rows(base_data, cell.base_classes)
        method = self._method(cell.method)
        seconds_base, chosen = 0.0, ""
        if cell.tune:
            method, chosen, seconds_base = self._tuned(cell, method, base, task)
        prepared = method.prepare_base(base, task)
        sampler = EpisodeSampler(novel, task, seed=cell.seed, name=cell.dataset)
        tensors = self._scaled(method, novel, base, prepared)
        metrics, seconds = score(method, tensors, sampler.draw(cell.start, cell.stop), prepared)
        return Result(
            cell=cell,
            metrics=metrics,
            seconds=seconds,
            seconds_base=seconds_base + prepared.seconds,
            chosen=",".join(filter(None, (chosen, method.describe_choice(prepared.state)))),
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            host=platform.node(),
            versions=versions(),
        )

    def attempt(self, cell: Cell) -> Event:
        """Compute one cell; a breakdown of the method becomes a failure."""
        try:
            result = self.evaluate(cell)
        except FewviewError:
            raise
        except Exception as error:
            return Event(cell, failure=f"{type(error).__name__}: {error}")
        choices, self.new_choices = self.new_choices, {}
        return Event(cell, result, choices=choices)

    def materials(self, cell: Cell) -> tuple[MultiViewData, MultiViewData, TaskSpec]:
        """What a cell is computed from: its data, the base set's data, the task."""
        if self._settings is None:
            self._settings = {item.source.name: item for item in settings(self.grid)}
        setting = self._settings[cell.dataset]
        return setting.source.data, setting.base.data, replace(setting.task, eta=cell.eta)

    def _method(self, text: str) -> Method:
        if text not in self._methods:
            self._methods[text] = make_method(text, self.grid)
        return self._methods[text]

    def _rows(self, data: MultiViewData, classes: tuple[str, ...]) -> MultiViewData:
        rows: MultiViewData = self._subsets.get(
            (data.fingerprint, classes), lambda: rows_of(data, classes)
        )
        return rows

    def _scaled(
        self, method: Method, novel: MultiViewData, base: MultiViewData, prepared: Prepared
    ) -> ViewTensors:
        """Novel samples, scaled, on the device: shared by all cells of a split and scaling."""
        # The scaling that was used: a method may have chosen another one than it was given.
        rule = prepared.scaling.rule
        key = (novel.fingerprint, base.fingerprint, rule, method.dtype, method.device)
        tensors: ViewTensors = self._tensors.get(key, lambda: scaled(method, novel, prepared))
        return tensors

    def _tuned(
        self, cell: Cell, method: Method, base: MultiViewData, task: TaskSpec
    ) -> tuple[Method, str, float]:
        from sklearn.base import clone

        listed = tune_candidates(cell.method, self.grid, method)
        key = choice_key(cell)
        if key not in self.choices:
            choice = choose(method, listed, base, task, _score_data, cell.seed)
            # Settings may be values that JSON does not know: remember which one, not what.
            self.choices[key] = self.new_choices[key] = {
                "index": listed.index(choice.parameters),
                "accuracy": list(choice.accuracy),
                "seconds": choice.seconds,
            }
        found = self.choices[key]
        parameters = listed[found["index"]]
        text = ",".join(f"{name}={value}" for name, value in sorted(parameters.items()))
        return clone(method).set_params(**parameters), text, float(found["seconds"])


def choice_key(cell: Cell) -> str:
    """Key of the settings chosen for a cell, which depend on nothing but the base set.

    Example:
        >>> from fewview.results._cells import example_cell
        >>> choice_key(example_cell()) == choice_key(example_cell(novel=("6", "7", "8")))
        True
    """
    kept = cell.key()
    for name in ("dataset", "data_checksum", "novel", "start", "stop", "sampler_version"):
        del kept[name]
    return content_hash(kept)


def scaled(method: Method, data: MultiViewData, prepared: Prepared) -> ViewTensors:
    """Bring data into the base set's order of views, scale them and move them to the device."""
    dtype = getattr(torch, method.dtype)
    arranged = prepared.scaling.transform(data.like(prepared.reference), method.dtype)
    return ViewTensors.of(arranged, method.torch_device, dtype)


def score(
    method: Method, tensors: ViewTensors, episodes: Episodes, prepared: Prepared
) -> tuple[EpisodeMetrics, float]:
    """Score episodes batch by batch and keep their metrics only.

    Args:
        method: what scores.
        tensors: scaled data that the episodes index.
        episodes: tasks.
        prepared: what `Method.prepare_base` returned.

    Returns:
        Metrics per episode, and the seconds that scoring took.
    """
    dims = {
        name: int(view.shape[1])
        for name, view in zip(tensors.view_names, tensors.views, strict=True)
    }
    size = method.batch_size(episodes.support.shape[1], episodes.query.shape[1], dims, episodes.way)
    parts, seconds = [], 0.0
    for start in range(0, len(episodes), size):
        some = episodes[start : start + size]
        begin = perf_counter()
        batch = tensors.gather(some).without_query_labels()
        scores = method.score_batch(batch, prepared).cpu()
        seconds += perf_counter() - begin
        parts.append(measure(scores.numpy(), some.query_labels))
    return join(parts), seconds


def _score_data(
    method: Method, data: MultiViewData, episodes: Episodes, prepared: Prepared
) -> EpisodeMetrics:
    return score(method, scaled(method, data, prepared), episodes, prepared)[0]


def versions() -> str:
    """Versions of what results may depend on, and the number of threads, as JSON.

    Example:
        >>> "torch" in json.loads(versions())
        True
    """
    import numpy
    import scipy
    import sklearn

    return json.dumps(
        {
            "fewview": __version__,
            "python": platform.python_version(),
            "numpy": numpy.__version__,
            "scipy": scipy.__version__,
            "sklearn": sklearn.__version__,
            "torch": torch.__version__,
            "threads": torch.get_num_threads(),
        },
        sort_keys=True,
    )


# ---------------------------------------------------------------------- several processes


def available_cores() -> int:
    """Number of cores that this process may use.

    Example:
        >>> available_cores() >= 1
        True
    """
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@dataclass(frozen=True)
class LocalExecutor:
    """Computes on this machine: in this process, or in several."""

    jobs: int = 1

    def work(
        self, grid: Grid, cells: list[Cell], choices: Choices, tell: Callable[[str], None]
    ) -> Generator[Event, None, None]:
        """Compute cells in their order; with several processes, in pieces."""
        if not cells:
            return
        if self.jobs == 1:
            workbench = Workbench(grid, choices)
            for cell in cells:
                yield Event(cell)
                yield workbench.attempt(cell)
            return
        yield from _work_in_processes(grid, pieces_of(grid, cells, self.jobs), self.jobs, choices)


def pieces_of(grid: Grid, cells: list[Cell], slots: int) -> list[list[Cell]]:
    """Cut cells into pieces that share what is learnt from base classes, if there are enough.

    Example:
        >>> grid = Grid(datasets=("digits",), methods=("proto",), etas=(0.0, 0.5), splits=4)
        >>> [len(pieces_of(grid, plan(grid), slots)) for slots in (2, 8)]
        [4, 8]
    """
    pieces = units_of(cells)
    # A choice of settings takes longer than all else and is made for every missing rate.
    shared = not grid.tune and len(pieces) >= 2 * slots
    return pieces if shared else units_of(cells, shared=False)


@dataclass
class _Worker:
    process: Any
    pipe: Connection
    current: Cell | None = None


def _work_in_processes(
    grid: Grid, pieces: Sequence[list[Cell]], jobs: int, choices: Choices
) -> Iterator[Event]:
    """Hand pieces of work to processes as they become idle; yield what they report."""
    context = multiprocessing.get_context("spawn")
    threads = max(1, available_cores() // jobs)
    waiting = deque(pieces)
    workers: list[_Worker] = []
    try:
        with _environment(OMP_NUM_THREADS=str(threads), MKL_NUM_THREADS=str(threads)):
            for _ in range(min(jobs, len(pieces))):
                here, there = context.Pipe()
                process = context.Process(
                    target=_worker_main, args=(there, grid, threads, choices), daemon=True
                )
                process.start()
                there.close()
                workers.append(_Worker(process, here))
        busy = {worker.pipe: worker for worker in workers}
        while busy:
            for pipe in wait(list(busy)):
                assert isinstance(pipe, Connection)
                worker = busy[pipe]
                try:
                    message = pipe.recv()
                except (EOFError, ConnectionError):
                    raise FewviewError(_died(worker)) from None
                if isinstance(message, Event):
                    worker.current = message.cell
                    yield message
                elif isinstance(message, BaseException):
                    raise message
                elif waiting:
                    pipe.send(waiting.popleft())
                else:
                    pipe.send(None)
                    del busy[pipe]
    finally:
        for worker in workers:
            worker.process.join(timeout=0.5 if worker.pipe.closed else 0)
            if worker.process.is_alive():
                worker.process.terminate()
        for worker in workers:
            worker.process.join(timeout=5)
            worker.pipe.close()


def _died(worker: _Worker) -> str:
    worker.process.join(timeout=5)
    where = f" at {worker.current.describe()}" if worker.current else " while it was starting"
    return (
        f"a worker process ended{where} (exit code {worker.process.exitcode}; -9 usually means "
        "that memory ran out: lower --jobs). What was finished is stored"
    )


def _worker_main(pipe: Connection, grid: Grid, threads: int, choices: Choices) -> None:
    """Life of a worker: ask for work, report every cell, until there is none."""
    # Ctrl-C goes to the whole group of processes; the parent decides what happens.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _end_with_parent()
    from threadpoolctl import threadpool_limits

    torch.set_num_threads(threads)
    try:
        with threadpool_limits(limits=threads):
            workbench = Workbench(grid, choices)
            pipe.send("idle")
            while (piece := pipe.recv()) is not None:
                for cell in piece:
                    pipe.send(Event(cell))
                    pipe.send(workbench.attempt(cell))
                pipe.send("idle")
    except (BrokenPipeError, EOFError, ConnectionError):
        sys.exit(1)
    except Exception as error:
        message = str(error) if isinstance(error, FewviewError) else repr(error)
        pipe.send(error if isinstance(error, FewviewError) else RuntimeError(message))


def _end_with_parent() -> None:
    """A parent that was killed cannot tell its workers; they watch it instead."""
    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def _environment(**values: str) -> Iterator[None]:
    """Set environment variables for processes started meanwhile."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
