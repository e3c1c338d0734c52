"""Pieces of a long table, worked on here, in several processes or on a Dask cluster.

A piece is a range of rows that follows from the table and the method alone. So what is computed
does not depend on how many folders the table is divided into nor on who computes it; every piece
is computed with one thread for the same reason.
"""

from __future__ import annotations

import pickle
import re
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial
from typing import Any

from fewview._version import __version__
from fewview.errors import FewviewError, FewviewWarning
from fewview.evaluate._cluster import (
    POLL,
    ClusterExecutor,
    connect,
    scheduler_gone,
    workers_of,
)
from fewview.evaluate._cluster_worker import make_entrance, single_thread
from fewview.evaluate._executors import check_jobs, closed, started
from fewview.evaluate._progress import Progress, Rows
from fewview.files._guarded import kept_reader
from fewview.ground._memory import LRUCache
from fewview.samples._data import MultiViewData
from fewview.samples._parts import PART_BYTES, TableParts

# Rows of a piece, and of one of a method that computes every query or block anew: seconds, and not
# minutes, are lost with it.
MOST_ROWS, SLOW_ROWS = 1 << 16, 1 << 10
# Runs of pieces per worker: neighbours share the part of the table that lies on their border.
RUNS = 4
# A cluster is given runs of pieces as if it had so many workers.
WORKERS = 16


@dataclass
class Job(ABC):
    """A long table, its pieces, and what is to be done with them."""

    table: TableParts
    rows: int  # of a piece

    def __post_init__(self) -> None:
        self.kept: dict[int, MultiViewData] = {}

    def piece(self, number: int) -> MultiViewData:
        """The rows of a piece."""
        start = number * self.rows
        return self.table.read(start, min(start + self.rows, self.table.n_samples), self.kept)

    @abstractmethod
    def work(self, numbers: Sequence[int]) -> Any:
        """Do what is to be done with some pieces."""

    @property
    def count(self) -> int:
        """Number of pieces."""
        return -(-self.table.n_samples // self.rows)

    def size(self, numbers: Sequence[int]) -> int:
        """Rows of some pieces."""
        last = self.count * self.rows - self.table.n_samples if self.count - 1 in numbers else 0
        return len(numbers) * self.rows - last


def rows_of_piece(reference: MultiViewData, block: int = 1, slow: bool = False) -> int:
    """Rows of a piece by the method and the width of the views: whole blocks, 128 MiB at most."""
    width = 8 * sum(reference.view_dims.values())
    fitting = 1 << max(0, (PART_BYTES // max(1, width)).bit_length() - 1)
    return -(-min(SLOW_ROWS if slow else MOST_ROWS, fitting) // block) * block


def in_runs(numbers: Sequence[int], workers: int) -> list[list[int]]:
    """Neighbouring pieces together, a few runs for every worker."""
    if workers == 1:
        return [[number] for number in numbers]
    size = max(1, len(numbers) // (RUNS * workers))
    return [list(numbers[k : k + size]) for k in range(0, len(numbers), size)]


def check_workers(jobs: int, cluster: str | None) -> None:
    """Refuse a wrong number of processes or a cluster that does not answer, before any work."""
    check_jobs(jobs)
    if cluster is not None:
        connect(cluster, ClusterExecutor.connect_timeout).close(timeout=5)


def work_through(
    job: Job,
    runs: Sequence[list[int]],
    *,
    jobs: int = 1,
    cluster: str | None = None,
    progress: Progress,
    text: str,
    told: set[str] | None = None,
) -> Iterator[tuple[int, Any]]:
    """Yield the number of a run and what came of it, in any order.

    A run that a lost worker had is done by another; an error in the input ends everything. Warnings
    are told at the end, but for those that have been `told`; each is there once.
    """
    if not runs:
        return
    packed = pickle.dumps(job, protocol=pickle.HIGHEST_PROTOCOL)
    how: Callable[..., Iterator[tuple[int, bytes]]]
    if cluster is not None:
        how = partial(_on_cluster, cluster, progress)
    else:
        how = partial(_in_processes, jobs) if jobs > 1 and len(runs) > 1 else _here
    answers = how(packed, runs)
    rows = Rows(sum(job.size(run) for run in runs))
    told, warned = set() if told is None else told, dict[str, str]()
    for _ in progress.track(range(len(runs)), text, rows):
        number, answer = next(answers)
        found, problem, said = pickle.loads(answer)
        if problem is not None:
            raise FewviewError(problem)
        rows.done += job.size(runs[number])
        warned.update(said)
        yield number, found
    for kind, message in warned.items():
        if kind not in told:
            progress.message(f"warning: {message} (in one part or more)")
    told.update(warned)


def work(_: str, packed: bytes, numbers: Sequence[int]) -> bytes:
    """Work on some pieces with one thread; what was found, or why not, as bytes."""
    try:
        if packed not in _jobs:
            _jobs[packed] = pickle.loads(packed)
        with single_thread(), kept_reader(), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", FewviewWarning)
            found = _jobs[packed].work(numbers)
    except FewviewError as error:
        return pickle.dumps((None, str(error), {}))
    said = (str(entry.message) for entry in caught if issubclass(entry.category, FewviewWarning))
    # Those that differ in numbers alone are one.
    return pickle.dumps((found, None, {re.sub(r"[\d.]+", "#", text): text for text in said}))


_jobs: LRUCache[bytes, Job] = LRUCache(1)


def _here(packed: bytes, runs: Sequence[list[int]]) -> Iterator[tuple[int, bytes]]:
    with kept_reader():
        for number, run in enumerate(runs):
            yield number, work("", packed, run)


def _one_run(packed: bytes, number: int, run: list[int]) -> tuple[int, bytes]:
    return number, work("", packed, run)


def _in_processes(
    jobs: int, packed: bytes, runs: Sequence[list[int]]
) -> Iterator[tuple[int, bytes]]:
    from joblib import Parallel, delayed

    with started(threads=1):
        parallel = Parallel(jobs, return_as="generator_unordered", batch_size=1)
        answers = parallel(delayed(_one_run)(packed, k, run) for k, run in enumerate(runs))
    try:
        with closed(answers):
            yield from answers
    except BrokenProcessPool as error:
        codes = ", ".join(re.findall(r"\w+\(-?\d+\)", str(error))) or "exit code unknown"
        raise FewviewError(
            f"a process ended ({codes}; SIGKILL usually means that memory ran out); what was "
            "finished is kept: run the same command again, perhaps with fewer --jobs"
        ) from None


def _on_cluster(
    address: str, progress: Progress, packed: bytes, runs: Sequence[list[int]]
) -> Iterator[tuple[int, bytes]]:
    """Every run is a task of Dask's, which gives it to another worker where one is lost."""
    settings = ClusterExecutor(address)
    client = connect(address, settings.connect_timeout)
    entrance = make_entrance(__name__, "work")
    refused: dict[str, str] = {}

    def submit(number: int) -> Any:
        left = None
        if refused:
            left = [name for name in workers_of(client, address) if name not in refused]
        if left == []:
            listed = "; ".join(f"{name}: {why}" for name, why in refused.items())
            raise FewviewError(
                f"all workers of {address} are refused: {listed}. Install the same versions on the "
                "workers as here and start them again"
            )
        return client.submit(
            entrance, __version__, packed, runs[number], pure=False, workers=left, retries=2
        )

    try:
        waiting = {number: submit(number) for number in range(len(runs))}
        seen = time.monotonic()
        while waiting:
            workers = workers_of(client, address)
            done = [number for number, future in waiting.items() if future.status != "pending"]
            for number in done:
                future = waiting.pop(number)
                if future.status in ("lost", "cancelled"):
                    waiting[number] = submit(number)
                    continue
                if future.status == "error":
                    error = future.exception()
                    raise FewviewError(
                        f"workers of {address} failed ({type(error).__name__}: {error}). What was "
                        "finished is kept; run the same command again"
                    )
                worker, answer = future.result()
                if isinstance(answer, str):
                    progress.message(f"worker {worker} is refused: {answer}")
                    refused[worker] = answer
                    waiting[number] = submit(number)
                else:
                    yield number, answer
            if workers:
                seen = time.monotonic()
            elif time.monotonic() - seen > settings.patience:
                raise FewviewError(
                    f"{address} has had no workers for {settings.patience:.0f} s. What was "
                    f"finished is kept; start workers with 'dask worker {address}' and run the "
                    "same command again"
                )
            time.sleep(POLL)
    except (OSError, TimeoutError, CancelledError) as error:
        raise scheduler_gone(address, error) from None
    finally:
        client.close(timeout=5)
