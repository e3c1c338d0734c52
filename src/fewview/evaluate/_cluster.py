"""Cells on an existing Dask cluster: hand out pieces of work, collect answers, survive losses.

This is the client's side; `_cluster_worker.py` is what happens inside a worker. The client alone
writes the store, so a run that is stopped, or loses its cluster, loses only the cells in flight.
"""

from __future__ import annotations

import asyncio
import pickle
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fewview._version import __version__
from fewview.errors import FewviewError
from fewview.evaluate._cluster_worker import Answer, Job, Place, checksums, make_entrance
from fewview.evaluate._grid import Grid, pieces_of, sources_of, units
from fewview.evaluate._workbench import Choices, Event, Events, Tell, choice_key
from fewview.methods.registry import pack_objects
from fewview.results._cells import Cell

DEPTH = 2  # pieces of work per thread of a worker: one computes, one waits
TARGET = 1.0  # seconds of work that are worth a message
PER_WORKER = 0.02  # the same per thread of the cluster: one client serves them all
SMALL = 0.2  # seconds of work that are not worth dividing among workers
BATCH = 100  # pieces handed out at once; answers to the first may say that cells are small
BUDGET = 10.0  # seconds after which a worker reports what it has
ATTEMPTS = 3
POLL = 0.02
WORKERS_EVERY = 1.0


@dataclass(frozen=True)
class ClusterExecutor:
    """Computes on the workers of a Dask scheduler."""

    address: str  # tcp://host:8786, or tls:// with certificates in Dask's configuration
    patience: float = 60.0  # seconds to wait for workers when there are none
    connect_timeout: float = 8.0

    def work(self, grid: Grid, cells: list[Cell], choices: Choices, tell: Tell) -> Events:
        """Compute cells on the cluster and yield what happens to them, in any order."""
        if not cells:
            return
        client = connect(self.address, self.connect_timeout)
        run = _Run(self, client, grid, cells, choices, tell)
        try:
            yield from run.events()
        except BaseException:
            run.cancel()
            raise
        finally:
            client.close(timeout=5)


def connect(address: str, timeout: float) -> Any:
    """Connect to a Dask scheduler as nobody's default client, or say what to do."""
    try:
        import distributed
    except ModuleNotFoundError as error:
        raise FewviewError(
            f"--cluster needs Dask, and {error.name} is not installed; pip install "
            "'fewview[cluster]', here and on the workers"
        ) from None
    make_client: Any = distributed.Client
    try:
        # In a thread of its own: a notebook has a loop in this one.
        with ThreadPoolExecutor(1) as thread:
            kind = thread.submit(asyncio.run, _who_answers(address, timeout)).result()
        if kind in ("Worker", "Nanny"):
            raise OSError(f"this is the address of a {kind.lower()}")
        return make_client(address, timeout=timeout, set_as_default=False, name="fewview")
    except Exception as error:  # Dask fails on addresses in any way it likes
        reason = str(error) or f"no answer within {timeout:g} s"
    raise FewviewError(
        f"no Dask scheduler answers at {address or repr(address)} ({reason}). Start one with "
        "'dask scheduler', workers with 'dask worker ADDRESS', and give the address it prints, "
        "for instance --cluster tcp://host:8786"
    )


def scheduler_gone(address: str, error: Exception) -> FewviewError:
    """The error of a cluster that ended, or cannot be reached any more, in the middle of work."""
    reason = str(error).partition("\n")[0].rstrip(".") or type(error).__name__
    return FewviewError(
        f"the Dask scheduler at {address} is gone ({reason}). What was finished is kept; start it "
        "again and run the same command"
    )


def workers_of(client: Any, address: str) -> dict[str, int]:
    """Threads of the workers by their addresses, or the error that the scheduler is gone."""
    try:
        if client.status != "running":
            raise OSError("connection lost")
        return dict(client.nthreads())
    except (OSError, TimeoutError) as error:
        raise scheduler_gone(address, error) from None


async def _who_answers(address: str, timeout: float) -> str:
    """What a server of Dask's calls itself.

    Asked before there is a client: one that fails to connect prints a traceback when Python ends,
    and waits without an end for a server that is not Dask's.
    """
    import distributed

    dask: Any = distributed  # which has no complete types
    arguments = dask.Security().get_connection_args("client")
    server = dask.rpc(address, timeout=timeout, connection_args=arguments)
    try:
        return str((await asyncio.wait_for(server.identity(), timeout))["type"])
    finally:
        await server.close_rpc()


@dataclass(eq=False)
class _Piece:
    """Cells that one worker is asked to compute in one go."""

    cells: list[Cell]
    worker: str | None = None  # has learnt from these base classes already
    allowed: list[str] | None = None  # None: any worker
    attempts: int = 0
    future: Any = None
    overdue: bool = False


class _Run:
    """One grid on one cluster."""

    def __init__(
        self,
        executor: ClusterExecutor,
        client: Any,
        grid: Grid,
        cells: list[Cell],
        choices: Choices,
        tell: Tell,
    ) -> None:
        import distributed

        as_completed: Any = distributed.as_completed  # Dask has no complete types
        self.executor, self.client, self.tell = executor, client, tell
        self.grid, self.choices = grid, dict(choices)
        texts = [Path(item) for item in (*grid.datasets, grid.base) if isinstance(item, str)]
        paths = {path.stem: str(path.expanduser().absolute()) for path in texts}
        self.sources = sources_of(grid)
        places = {
            checksum: Place(one.name if one.known else None, paths.get(one.name), grid.data_dir)
            for checksum, one in self.sources.items()
        }
        # A device is chosen here and not by every worker for itself: it is part of a cell.
        device = cells[0].device if grid.device == "auto" else grid.device
        plain = replace(grid, datasets=("sent",), base=None, data_dir=None, device=device)
        own = pack_objects(grid.methods)
        self.job = pickle.dumps(Job(plain, places, own), protocol=pickle.HIGHEST_PROTOCOL)
        self.entrance = make_entrance()
        self.completed = as_completed(loop=client.loop, with_results=True, raise_errors=False)
        self.running: dict[str, _Piece] = {}
        self.workers: dict[str, int] = {}
        self.refused: dict[str, str] = {}
        self.sent: dict[str, Any] = {}  # futures of data that some worker did not have
        self.costs: dict[tuple[str, str], float] = {}
        self.looked = self.empty_since = float("-inf")
        self.look()
        self.waiting = deque(_Piece(part) for part in pieces_of(grid, cells, self.slots))

    @property
    def usable(self) -> dict[str, int]:
        """Threads by address of the workers that may compute."""
        return {name: count for name, count in self.workers.items() if name not in self.refused}

    @property
    def slots(self) -> int:
        """Cells that the cluster computes at once."""
        return max(1, sum(self.usable.values()))

    def events(self) -> Iterator[Event]:
        """Hand out and collect until all is done."""
        while self.waiting or self.running:
            self.look()
            yield from self.hand_out()
            answers = self.completed.next_batch(block=False)
            if not answers:
                time.sleep(POLL)
            for future, outcome in answers:
                piece = self.running.pop(future.key, None)
                if piece is not None:
                    yield from self.take(piece, future.status, outcome)

    # ------------------------------------------------------------------ workers

    def look(self) -> None:
        """See which workers there are, now and then; give up when there are none for long."""
        now = time.monotonic()
        if now - self.looked < WORKERS_EVERY:
            return
        self.looked = now
        self.workers = workers_of(self.client, self.executor.address)
        self.free_the_stranded()
        if self.usable:
            self.empty_since = float("-inf")
        elif self.workers:
            listed = "; ".join(f"{name}: {why}" for name, why in self.refused.items())
            raise FewviewError(
                f"all workers of {self.executor.address} are refused: {listed}. Install the same "
                "versions on the workers as here and start them again"
            )
        elif self.empty_since == float("-inf"):
            self.empty_since = now
            self.tell(
                f"no workers at {self.executor.address}; waiting {self.executor.patience:.0f} s "
                f"for one (start one with 'dask worker {self.executor.address}')"
            )
        elif now - self.empty_since > self.executor.patience:
            raise FewviewError(
                f"{self.executor.address} has had no workers for {now - self.empty_since:.0f} s. "
                "What was finished is stored; start workers with "
                f"'dask worker {self.executor.address}' and run the same command again"
            )

    def free_the_stranded(self) -> None:
        """Take back pieces bound to workers that are gone, and those that ended without a word."""
        for name, piece in list(self.running.items()):
            gone = piece.allowed is not None and self.workers.keys().isdisjoint(piece.allowed)
            if piece.overdue or gone:
                del self.running[name]
                self.client.cancel([piece.future], force=True)
                self.again(piece)
            piece.overdue = piece.future.status not in ("pending", "finished")

    def refuse(self, worker: str, reason: str) -> None:
        """Give no further work to a worker."""
        if worker not in self.refused:
            self.refused[worker] = reason
            self.tell(f"worker {worker} is refused: {reason}")
            self.looked = float("-inf")  # perhaps it was the only one

    # ------------------------------------------------------------------ handing out

    def hand_out(self) -> Iterator[Event]:
        """Keep every thread of every worker supplied, and no more than that."""
        usable = self.usable
        room = min(BATCH, DEPTH * self.slots - len(self.running)) if usable else 0
        groups: dict[tuple[str, str | None], list[_Piece]] = {}
        share = sum(len(piece.cells) for piece in self.waiting) // (DEPTH * self.slots)
        for _ in range(room):
            if not self.waiting:
                break
            piece = self.next_piece(share)
            worker = piece.worker if piece.worker in usable else None
            groups.setdefault((piece.cells[0].dataset, worker), []).append(piece)
            yield Event(piece.cells[0])
        for (_, worker), pieces in groups.items():
            allowed = [worker] if worker else list(usable) if self.refused else None
            self.submit(pieces, allowed)

    def next_piece(self, share: int) -> _Piece:
        """Take the next piece, with small neighbours up to enough seconds or a share of cells."""
        piece = self.waiting.popleft()
        seconds = self.cost(piece)
        # Seconds of work that a message should carry, so that the client keeps up.
        target = max(TARGET, PER_WORKER * self.slots)
        while self.waiting and piece.worker is None and piece.attempts == 0:
            other = self.waiting[0]
            seconds += self.cost(other)
            if (
                seconds > target
                or (len(piece.cells) + len(other.cells) > share and seconds > SMALL)
                or other.worker is not None
                or other.attempts
                or other.cells[0].dataset != piece.cells[0].dataset
            ):
                break
            piece = _Piece(piece.cells + self.waiting.popleft().cells)
        return piece

    def cost(self, piece: _Piece) -> float:
        """Seconds that a piece will take, judged by what came back; many where nothing has."""
        return sum(self.costs.get((cell.dataset, cell.method), BUDGET) for cell in piece.cells)

    def submit(self, pieces: list[_Piece], allowed: list[str] | None) -> None:
        """Send pieces of one data set in one message."""
        data = [self.sent[one] for one in checksums(pieces[0].cells) if one in self.sent]
        works = []
        for piece in pieces:
            keys = {choice_key(cell) for cell in piece.cells} if self.grid.tune else set()
            known = {key: self.choices[key] for key in keys & self.choices.keys()}
            works.append(pickle.dumps((piece.cells, known), protocol=pickle.HIGHEST_PROTOCOL))
        budget = max(BUDGET, 2 * TARGET, 2 * PER_WORKER * self.slots)
        version, job, seconds, *sent = (
            [item] * len(pieces) for item in (__version__, self.job, budget, *data)
        )
        futures = self.client.map(
            self.entrance, version, job, works, seconds, *sent,
            key="fewview", workers=allowed, pure=False,
        )  # fmt: skip
        for piece, future in zip(pieces, futures, strict=True):
            piece.future, piece.allowed = future, allowed
            self.running[future.key] = piece
        self.completed.update(futures)

    # ------------------------------------------------------------------ collecting

    def take(self, piece: _Piece, status: str, outcome: Any) -> Iterator[Event]:
        """Turn what came back for a piece into events, or put the piece back."""
        if status != "finished":  # or its data were lost with a worker, or the scheduler is gone
            said = RuntimeError(f"Dask says {status}")
            yield from self.broken(piece, outcome[1] if status == "error" else said)
            return
        worker, content = outcome
        if isinstance(content, str):
            self.refuse(worker, content)
            self.again(piece)
            return
        answer: Answer = pickle.loads(content)
        if answer.refused:
            self.refuse(worker, answer.refused)
        if answer.lacking:
            self.send(answer.lacking)
        for event, seconds in zip(answer.done, answer.seconds, strict=True):
            key = (event.cell.dataset, event.cell.method)
            self.costs[key] = 0.7 * self.costs.get(key, seconds) + 0.3 * seconds
            self.choices.update(event.choices)
            yield event
        if answer.error:
            raise FewviewError(answer.error)
        self.go_on(piece, len(answer.done), worker)

    def go_on(self, piece: _Piece, done: int, worker: str) -> None:
        """Put back what a worker had no time for."""
        if not done:
            self.again(piece)
        elif not self.waiting:
            # Others will soon be idle: better learn from base classes twice than let them wait.
            self.waiting.extend(_Piece([cell]) for cell in piece.cells[done:])
        else:
            first, *others = units(piece.cells[done - 1 :])
            self.waiting.extendleft(_Piece(unit) for unit in reversed(others))
            if len(first) > 1:  # stays where base classes are learnt already
                self.waiting.appendleft(_Piece(first[1:], worker))

    def broken(self, piece: _Piece, error: BaseException) -> Iterator[Event]:
        """Try again what Dask could not do; a cell that keeps ending workers is a failure."""
        piece.attempts += 1
        killed = type(error).__name__ == "KilledWorker"
        self.looked = float("-inf")
        # Data whose last holder is gone are sent again when a worker asks for them.
        self.sent = {key: data for key, data in self.sent.items() if data.status == "finished"}
        if len(piece.cells) > 1 and (killed or piece.attempts >= ATTEMPTS):
            self.waiting.extendleft(_Piece([cell], attempts=1) for cell in reversed(piece.cells))
        elif not killed and piece.attempts < ATTEMPTS:
            self.again(piece)
        else:
            reason = f"{type(error).__name__}: {error}"
            if killed:
                reason = "the workers that computed it ended, one after another (memory?)"
            for cell in piece.cells:
                yield Event(cell, failure=reason)

    def again(self, piece: _Piece) -> None:
        """Put a piece back to the front."""
        self.waiting.appendleft(_Piece(piece.cells, attempts=piece.attempts))

    # ------------------------------------------------------------------ data

    def send(self, lacking: tuple[str, ...]) -> None:
        """Send data to all workers, once; pieces that need them refer to them from then on."""
        for checksum in lacking:
            if checksum not in self.sent:
                data, workers = self.sources[checksum].data, list(self.usable)
                with suppress(OSError, TimeoutError):  # the workers may have gone meanwhile
                    self.sent[checksum] = self.client.scatter(
                        data, workers=workers, broadcast=True, hash=False
                    )

    def cancel(self) -> None:
        """Stop what has not begun; cells that are being computed end by themselves."""
        self.completed.clear()
        futures = [piece.future for piece in self.running.values()]
        if futures and self.client.status == "running":
            self.client.cancel(futures, force=True)
        self.running.clear()
