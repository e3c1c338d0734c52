"""Who computes the cells of a grid: the interface, this process, several processes.

An executor only reports what happens; the one who asks writes the store. Processes are joblib's:
they get a share of the cores each and end with this one, however it ends. A cluster is the third
executor (`_cluster.py`).
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import pickle
import re
import signal
import sys
import threading
import time
import warnings
from collections.abc import Iterable, Iterator
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fewview.errors import FewviewError
from fewview.evaluate._grid import Grid, pieces_of
from fewview.evaluate._workbench import Choices, Event, Events, Tell, Workbench
from fewview.methods.registry import pack_objects, unpack_objects
from fewview.results._cells import Cell


class Executor(Protocol):
    """Where cells are computed."""

    def work(self, grid: Grid, cells: list[Cell], choices: Choices, tell: Tell) -> Events:
        """Compute cells, given in the order of `plan`, and yield what happens, in any order."""


class HereExecutor:
    """Computes in this process, with all its threads."""

    def work(self, grid: Grid, cells: list[Cell], choices: Choices, tell: Tell) -> Events:
        """Compute cells in their order."""
        workbench = Workbench(grid, choices)
        for cell in cells:
            yield Event(cell)
            yield from workbench.attempt(cell)


@dataclass(frozen=True)
class ProcessExecutor:
    """Computes in several processes of this machine."""

    jobs: int

    def work(self, grid: Grid, cells: list[Cell], choices: Choices, tell: Tell) -> Events:
        """Hand out pieces in the order of their cells; a piece reports when it is done."""
        from joblib import Parallel, cpu_count, delayed, effective_n_jobs

        pieces = pieces_of(grid, cells, self.jobs)
        jobs = effective_n_jobs(min(self.jobs, max(1, len(pieces))))
        if jobs == 1:
            yield from HereExecutor().work(grid, cells, choices, tell)
            return
        packed = pickle.dumps((pack_objects(grid.methods), pickle.dumps((grid, choices))))
        # As an array, joblib lets all processes read one copy where it is large.
        job = sha256(packed).hexdigest(), np.frombuffer(packed, np.uint8)
        waiting = dict(enumerate(pieces))
        tasks = [delayed(_compute)(*item, *job) for item in waiting.items()]
        for piece in pieces[:jobs]:
            yield Event(piece[0])
        with kept_workers():
            # Another number of processes would be other processes.
            jobs = _workers.count = max(jobs, min(_workers.count, effective_n_jobs(self.jobs)))
            with started(max(1, cpu_count() // jobs)):
                parallel = Parallel(
                    jobs, return_as="generator_unordered", batch_size=1, pre_dispatch="n_jobs"
                )
                answers = parallel(tasks)
            try:
                with closed(answers):
                    for done, (number, events, error) in enumerate(answers):
                        del waiting[number]
                        yield from events
                        if error is not None:
                            raise error
                        if jobs + done < len(pieces):
                            yield Event(pieces[jobs + done][0])
            except BrokenProcessPool as error:
                raise FewviewError(_died(islice(waiting.values(), jobs), str(error))) from None


@dataclass
class _Workers:
    """Processes that joblib keeps for us: how many, and how many blocks want them kept."""

    count: int = 0
    blocks: int = 0


_workers = _Workers()


@contextmanager
def kept_workers() -> Iterator[None]:
    """Let the processes of a grid serve the next grid too; they end with the outermost block.

    A process takes seconds to start, which is longer than many a grid.
    """
    from joblib.externals.loky import get_reusable_executor

    _workers.blocks += 1
    try:
        yield
    finally:
        _workers.blocks -= 1
        if not _workers.blocks and _workers.count:
            _workers.count = 0
            get_reusable_executor(reuse=True).shutdown(kill_workers=True)


@contextmanager
def started(threads: int) -> Iterator[None]:
    """Let processes that joblib starts meanwhile be ours: `threads` each, ending with this one."""
    from joblib import parallel_config

    ready: dict[str, Any] = {"initializer": _begin, "initargs": (os.getpid(),)}
    with _deaf_to_interrupts(), parallel_config("loky", inner_max_num_threads=threads, **ready):
        yield


@contextmanager
def closed(answers: Any) -> Iterator[None]:
    """Stop joblib when the block ends, without a word about what it is in the middle of."""
    try:
        yield
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            answers.close()


def check_jobs(jobs: int) -> None:
    """Refuse a number of processes that is none."""
    if jobs < 1:
        raise FewviewError(f"jobs is {jobs}; give the number of processes, at least 1")


def _died(pieces: Iterable[list[Cell]], reason: str) -> str:
    """What to say when a worker has ended: pieces are begun in order, so it had one of these."""
    where = " or ".join(piece[0].describe() for piece in pieces)
    codes = ", ".join(re.findall(r"\((-?\d+)\)", reason)) or "unknown"
    return (
        f"a worker process ended at {where} (exit code {codes}; -9 usually means that memory ran "
        "out: lower --jobs). What was finished is stored"
    )


@contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """Let processes that start meanwhile not notice Ctrl-C, which goes to the whole group."""
    if threading.current_thread() is not threading.main_thread():
        yield  # Python lets no other thread say what a signal does
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before or signal.SIG_DFL)


# ---------------------------------------------------------------------- in a worker process

_bench: tuple[str, Workbench] | None = None  # and which grid it is for


def _begin(parent: int) -> None:
    """Make a worker process ready."""
    import joblib.externals.loky.process_executor as loky

    # Again: one that replaces another is not started by the parent's main thread.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Loky ends a worker that grows by 300 MB, taking data that are kept for a leak, and collects
    # garbage every second where it cannot measure; what is loaded by now is none.
    loky._MAX_MEMORY_LEAK_SIZE = sys.maxsize
    gc.freeze()
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: int) -> None:
    """A parent that was killed cannot tell its workers; they watch it instead."""
    if sys.platform == "win32":
        watched = multiprocessing.parent_process()
        assert watched is not None
        watched.join()
    else:
        while os.getppid() == parent:
            time.sleep(0.5)
    os._exit(1)


def _compute(
    number: int, piece: list[Cell], digest: str, job: NDArray[np.uint8]
) -> tuple[int, list[Event], FewviewError | None]:
    """Compute the cells of a piece; an error in the input ends it, what was done before counts."""
    global _bench
    events: list[Event] = []
    try:
        if _bench is None or _bench[0] != digest:
            methods, made = pickle.loads(job.data)
            unpack_objects(methods)
            _bench = digest, Workbench(*pickle.loads(made))
        bench = _bench[1]
        for cell in piece:
            events.extend(bench.attempt(cell))
    except FewviewError as error:
        return number, events, error
    return number, events, None
