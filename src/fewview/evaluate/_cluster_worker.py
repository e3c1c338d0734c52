"""What happens inside a worker of a cluster: find the data, check versions, compute some cells.

Workers know nothing beforehand. Every piece of work brings the few hundred bytes that describe the
grid; data come from the worker's own data folder, by checksum, or are sent once by the client. What
a method learns from base classes stays in the worker's memory, as in any other process.
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

from fewview.datasets._loading import load
from fewview.episodes.episodes import SAMPLER_VERSION
from fewview.errors import FewviewError
from fewview.evaluate._grid import Grid, method_fields
from fewview.evaluate._workbench import Event, Workbench
from fewview.ground._memory import LRUCache
from fewview.methods.registry import unpack_objects
from fewview.results._cells import Cell
from fewview.samples._data import MultiViewData


@dataclass(frozen=True)
class Place:
    """Where a worker may find some data: a known name, a path, or nowhere."""

    known: str | None = None
    path: str | None = None
    data_dir: str | None = None


@dataclass(frozen=True)
class Job:
    """What all cells of a run share. Small, because every piece of work carries it."""

    grid: Grid  # without the data
    places: dict[str, Place]  # where data may be found, by checksum
    own: bytes = b""  # methods that workers do not find by themselves


@dataclass
class Answer:
    """What a worker reports of a piece of work."""

    worker: str  # its address
    refused: str = ""  # why this worker must not compute cells of this run
    lacking: tuple[str, ...] = ()  # checksums of data that the worker does not have
    error: str = ""  # in the input; ends the run
    done: list[Event] = field(default_factory=list)  # in order; fewer than sent when time is up
    seconds: list[float] = field(default_factory=list)  # per computed cell


def checksums(cells: Sequence[Cell]) -> list[str]:
    """Which data some cells are computed from."""
    return sorted({sum_ for cell in cells for sum_ in (cell.data_checksum, cell.base_checksum)})


def make_entrance(module: str = __name__, function: str = "compute") -> Callable[..., Any]:
    """Make the function that is sent to workers and calls a function of fewview there.

    It is sent by value, since a scheduler or a worker may have another fewview or none. So it must
    not use anything of this module, and what it answers must be readable without fewview: an
    address and either a text, why the worker is refused, or what the function answers, as bytes.
    """

    def fewview_work(version: str, *given: Any) -> Any:
        from importlib import import_module

        from distributed import get_worker

        address = get_worker().address
        try:
            from fewview._version import __version__ as present
        except ImportError:
            return address, f"fewview is not installed there; here it is {version}"
        if present != version:
            return address, f"it has fewview {present}; here it is {version}"
        try:
            import torch  # noqa: F401

            wanted = getattr(import_module(module), function)
        except ImportError as error:
            return address, f"{error.name or 'a library'} cannot be imported there ({error})"
        return address, wanted(address, *given)

    return fewview_work


def compute(address: str, job: bytes, work: bytes, budget: float, *data: MultiViewData) -> bytes:
    """Compute some cells in one thread, and begin none after `budget` seconds but the first.

    `job` is a pickled `Job`, `work` pickled cells and choices of settings, `data` what the client
    sent; the answer is a pickled `Answer`.
    """
    for item in data:
        _keep(item.fingerprint, item)
    cells, choices = pickle.loads(work)
    answer = Answer(address)
    bench = _workbench(job)
    try:
        answer.refused = bench.refusal(cells)
        answer.lacking = () if answer.refused else bench.lacking(cells)
        if answer.refused or answer.lacking:
            cells = []
        bench.choices.update(choices)
        with single_thread():
            for cell in cells:
                start = perf_counter()
                answer.done.extend(bench.attempt(cell))
                answer.seconds.append(perf_counter() - start)
                if sum(answer.seconds) > budget:
                    break
    except FewviewError as error:
        answer.error = str(error)
    return pickle.dumps(answer, protocol=pickle.HIGHEST_PROTOCOL)


# ---------------------------------------------------------------------- what a worker keeps

_lock = threading.Lock()
_data: LRUCache[str, MultiViewData] = LRUCache(16)
# Workers may have several threads; a workbench belongs to one.
_thread = threading.local()


def _keep(checksum: str, data: MultiViewData) -> MultiViewData:
    with _lock:
        _data[checksum] = data
    return data


def find_data(checksum: str, place: Place) -> MultiViewData | None:
    """Find data in memory or in the files of this machine; None if they are not there."""
    with _lock:
        kept = _data.get(checksum)
    name = place.known or place.path
    if kept is not None or name is None:
        return kept
    for folder in dict.fromkeys((place.data_dir, None)):
        # Not here, or another version of it: the client has the right one.
        with suppress(FewviewError, OSError):
            data = load(name, folder) if place.known else MultiViewData.read(name)
            if data.fingerprint == checksum:
                return _keep(checksum, data)
    return None


def _workbench(job: bytes) -> RemoteWorkbench:
    kept: LRUCache[bytes, RemoteWorkbench] = _thread.__dict__.setdefault("kept", LRUCache(2))
    if job not in kept:
        kept[job] = RemoteWorkbench(pickle.loads(job))
    return kept[job]


class RemoteWorkbench(Workbench):
    """A workbench that has no grid of data sets before it, only cells and data by checksum."""

    def __init__(self, job: Job) -> None:
        super().__init__(job.grid)
        self._places = job.places
        self._lacks = ""
        try:
            unpack_objects(job.own)
        except FewviewError as error:
            self._lacks = str(error)

    def materials(self, cell: Cell) -> tuple[MultiViewData, MultiViewData]:
        """What a cell is computed from: its data and those of its base classes."""
        wanted = (cell.data_checksum, cell.base_checksum)
        data, base = (find_data(checksum, self._places[checksum]) for checksum in wanted)
        if data is None or base is None:
            raise FewviewError(f"{cell.describe()}: the data are gone from this worker")
        return data, base

    def lacking(self, cells: Sequence[Cell]) -> tuple[str, ...]:
        """Checksums of data that this machine does not have."""
        return tuple(c for c in checksums(cells) if find_data(c, self._places[c]) is None)

    def refusal(self, cells: Sequence[Cell]) -> str:
        """Say why results of this worker would not be those that the cells stand for, or nothing.

        A method or the sampler may be of another version although fewview is of the same, for
        instance in a checkout or in a package of one's own.
        """
        kinds = {(cell.sampler_version, cell.method): cell for cell in cells}
        return self._lacks or next(filter(None, map(self._difference, kinds.values())), "")

    def _difference(self, cell: Cell) -> str:
        if cell.sampler_version != SAMPLER_VERSION:
            return (
                f"its episode sampler has version {SAMPLER_VERSION}; here it is "
                f"{cell.sampler_version}"
            )
        try:
            present = method_fields(self._method(cell.method), cell.method, self.grid)
        except FewviewError as error:
            return str(error)
        for name, there in present.items():
            if there != (here := getattr(cell, name)):
                what = name.replace("method_", "")
                return f"its method {cell.method!r} has {what} {there}; here it is {here}"
        return ""


# ---------------------------------------------------------------------- threads

_threads: dict[str, Any] = {"inside": 0, "limits": None}


@contextmanager
def single_thread() -> Iterator[None]:
    """Compute with one thread per cell: a worker's threads each have a cell of their own.

    Libraries count threads for the whole process, so the first cell in sets them to one and the
    last cell out puts back what was there.
    """
    import torch
    from threadpoolctl import threadpool_limits

    with _lock:
        if _threads["inside"] == 0:
            count = torch.get_num_threads()
            _threads["limits"] = threadpool_limits(limits=1), count
        _threads["inside"] += 1
    torch.set_num_threads(1)  # in every thread: some libraries count them per thread
    try:
        yield
    finally:
        with _lock:
            _threads["inside"] -= 1
            if _threads["inside"] == 0:
                limits, count = _threads["limits"]
                limits.restore_original_limits()
                torch.set_num_threads(count)
