"""What a cluster costs: time and bytes per cell, and a projection to 1000 workers.

    python benchmarks/cluster_overhead.py                      # 10 000 cells of almost no work
    python benchmarks/cluster_overhead.py --check 10,100,300   # the projection against real runs

Workers are threads of this process that talk over loopback TCP, so client, scheduler and workers
share one interpreter: on separate machines every number is smaller. A cell sleeps for as long as it
is said to compute, which lets one machine carry hundreds of workers.
"""

from __future__ import annotations

import argparse
import heapq
import pickle
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from common import print_table

import fewview.evaluate._cluster as client_side
from fewview.evaluate import Grid, Store, plan
from fewview.evaluate._cluster import DEPTH, PER_WORKER, SMALL, TARGET, ClusterExecutor
from fewview.results._cells import Cell, Result
from fewview.results._metrics import measure

EPISODES = 40


def make_sleeper(seconds: float) -> Callable[[], Callable[..., Any]]:
    """A stand-in for what workers do: sleep, and answer with numbers of the usual size."""

    def make_entrance() -> Callable[..., Any]:
        def fewview_sleep(version: str, job: bytes, work: bytes, budget: float, *data: Any) -> Any:
            import pickle
            import time

            from cluster_overhead import usual_metrics
            from distributed import get_worker

            from fewview.evaluate._cluster_worker import Answer
            from fewview.evaluate._workbench import Event
            from fewview.results._cells import Result

            answer = Answer(get_worker().address)
            begin = time.perf_counter()
            for cell in pickle.loads(work)[0]:
                if seconds:
                    time.sleep(seconds)
                metrics = pickle.loads(pickle.dumps(usual_metrics()))
                result = Result(cell=cell, metrics=metrics, seconds=1.0, seconds_base=1.0)
                answer.done.append(Event(cell, result))
                answer.seconds.append(seconds or 1e-4)
                if time.perf_counter() - begin > budget:
                    break
            return answer.worker, pickle.dumps(answer, protocol=pickle.HIGHEST_PROTOCOL)

        return fewview_sleep

    return make_entrance


_METRICS: list[Any] = []


def usual_metrics() -> Any:
    """Metrics of 40 episodes of a 3-way task; made once."""
    if not _METRICS:
        generator = np.random.default_rng(0)
        labels = np.tile(np.repeat(np.arange(3), 30), (EPISODES, 1))
        _METRICS.append(measure(generator.normal(size=(EPISODES, 90, 3)), labels))
    return _METRICS[0]


def many_cells(count: int) -> tuple[Grid, list[Cell]]:
    """Cells of one method on the embedded digits; they differ in the episodes they cover."""
    grid = Grid(datasets=("digits",), methods=("proto",), splits=1, episodes=EPISODES)
    first = plan(grid)[0]
    return grid, [
        replace(first, split=k, start=k * EPISODES, stop=(k + 1) * EPISODES) for k in range(count)
    ]


@contextmanager
def workers(count: int) -> Iterator[str]:
    """A cluster of single-thread workers inside this process."""
    import dask
    from distributed import LocalCluster

    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    # Every worker looks at the load of its machine twice a second; here it is the same for all.
    dask.config.set(
        {
            "distributed.comm.timeouts.connect": "120s",
            "distributed.admin.system-monitor.interval": "1h",
            "distributed.worker.profile.enabled": False,
        }
    )
    with LocalCluster(
        n_workers=count, threads_per_worker=1, processes=False, protocol="tcp", host="127.0.0.1",
        dashboard_address=":0", memory_limit=0, silence_logs=50,
    ) as cluster:  # fmt: skip
        yield cluster.scheduler_address


def timed_run(
    address: str, grid: Grid, cells: list[Cell], seconds: float, target: float = TARGET
) -> tuple[float, float, int]:
    """Wall time and processor time of a run, and the number of messages that it took."""
    messages = 0
    usual_submit = client_side._Run.submit

    def submit(self: Any, pieces: Any, allowed: Any) -> None:
        nonlocal messages
        messages += len(pieces)
        usual_submit(self, pieces, allowed)

    patched = {"make_entrance": make_sleeper(seconds), "TARGET": target}
    if target < TARGET:
        patched["PER_WORKER"] = 0.0
    before = {name: getattr(client_side, name) for name in patched}
    for name, value in patched.items():
        setattr(client_side, name, value)
    client_side._Run.submit = submit  # type: ignore[method-assign]
    try:
        begin, processor = time.perf_counter(), time.process_time()
        events = ClusterExecutor(address).work(grid, cells, {}, print)
        done = sum(event.result is not None for event in events)
        wall, processor = time.perf_counter() - begin, time.process_time() - processor
    finally:
        client_side._Run.submit = usual_submit  # type: ignore[method-assign]
        for name, value in before.items():
            setattr(client_side, name, value)
    assert done == len(cells), done
    return wall, processor, messages


# ---------------------------------------------------------------------- what is measured


def print_bytes(grid: Grid, cells: list[Cell]) -> None:
    """Sizes of what is sent and received, without Dask's own frames of about 1 kB a message."""
    from distributed.protocol.pickle import dumps

    from fewview.evaluate._cluster_worker import Answer, Job, Place, make_entrance
    from fewview.evaluate._workbench import Event

    job = len(pickle.dumps(Job(grid, {cells[0].data_checksum: Place(known="digits")})))
    rows = []
    for count in (1, 6, 30):
        some = cells[:count]
        work = len(pickle.dumps((some, {})))
        answer = Answer("tcp://127.0.0.1:40000", seconds=[0.1] * count)
        for cell in some:
            result = Result(
                cell=cell, metrics=pickle.loads(pickle.dumps(usual_metrics())), seconds=0.1,
                seconds_base=0.1,
                created="2026-01-01T00:00:00+00:00", host="node-17", versions="x" * 130,
            )  # fmt: skip
            answer.done.append(Event(cell, result))
        back = len(pickle.dumps(answer))
        fixed = job + len(dumps(make_entrance()))
        rows.append([str(count), str(fixed + work), str(back)])
        rows[-1] += [f"{(fixed + work) / count:.0f}", f"{back / count:.0f}"]
    header = ["cells a message", "bytes sent", "received", "sent per cell", "received per cell"]
    print_table(header, rows)


def loopback_bytes() -> int:
    """Bytes that have passed the loopback device, both ways counted once."""
    for line in Path("/proc/net/dev").read_text().splitlines():
        if line.strip().startswith("lo:"):
            return int(line.split(":")[1].split()[0])
    return 0


def store_seconds(cells: list[Cell]) -> float:
    """Seconds to write one cell into a store on disk."""
    with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "a.sqlite") as store:
        begin = time.perf_counter()
        for cell in cells:
            store.add(Result(cell=cell, metrics=usual_metrics(), seconds=1.0, seconds_base=1.0))
        return (time.perf_counter() - begin) / len(cells)


def measure_overhead(count: int, n_workers: int) -> tuple[float, float, float]:
    """Processor time per message and per cell, and how much longer this machine takes for it.

    From runs with one and with many cells a message. A machine that others use takes longer.
    """
    grid, cells = many_cells(count)
    rows, taken = [], []
    with workers(n_workers) as address:
        timed_run(address, grid, cells[:50], 0.0)
        for label, target in (("one cell a message", 1e-6), ("joined, as usual", TARGET)):
            before = loopback_bytes()
            wall, processor, messages = timed_run(address, grid, cells, 0.0, target)
            moved = (loopback_bytes() - before) / count
            taken.append((processor, messages, wall))
            rows.append([label, str(count), str(messages), f"{wall:.1f}", f"{processor:.1f}"])
            rows[-1] += [f"{1e3 * processor / count:.2f}", f"{moved:.0f}"]
    header = ["", "cells", "messages", "wall s", "processor s", "ms per cell"]
    print_table([*header, "loopback bytes per cell"], rows)
    (one, messages, wall), (joined, joined_messages, _) = taken
    per_message = max(0.0, (one - joined) / (messages - joined_messages))
    per_cell = max(0.0, (joined - per_message * joined_messages) / count)
    print(f"so a message costs {1e3 * per_message:.2f} ms and a cell in it {1e3 * per_cell:.2f} ms")
    return per_message, per_cell, max(1.0, wall / one)


# ---------------------------------------------------------------------- what is projected


def simulate(
    count: int, n_workers: int, seconds: float, per_message: float, per_cell: float
) -> float:
    """Wall time of a run by discrete events: one client, many workers, the rules of `cluster.py`.

    The client with its scheduler serves one message after another. Every worker has one message at
    work and one waiting; when it answers, it asks for the next.
    """
    left, clock, finish = count, 0.0, 0.0
    known = float("inf")  # when the first answer says how long cells are
    target = max(TARGET, PER_WORKER * n_workers)
    free = [0.0] * n_workers  # when a worker will have done all that it has
    asking = [(turn * 1e-9, worker) for turn in range(DEPTH) for worker in range(n_workers)]
    heapq.heapify(asking)
    while left:
        asked, worker = heapq.heappop(asking)
        clock = max(clock, asked)
        size = 1
        if clock >= known:
            share = max(left // (DEPTH * n_workers), int(SMALL / seconds))
            size = min(left, max(1, min(int(target / seconds), share)))
        left -= size
        clock += per_message + per_cell * size
        free[worker] = max(free[worker], clock) + size * seconds
        known = min(known, free[worker])
        finish = max(finish, free[worker])
        heapq.heappush(asking, (free[worker], worker))
    return max(finish, clock)


def print_projection(per_message: float, per_cell: float, n_workers: int) -> None:
    """Speed-up over one core, for cells of several lengths."""
    rows = []
    for seconds in (0.01, 0.03, 0.1, 0.3, 1.0, 10.0, 100.0):
        for cells_each in (10, 100):
            count = cells_each * n_workers
            wall = simulate(count, n_workers, seconds, per_message, per_cell)
            speed = count * seconds / wall
            rows.append([f"{seconds:g}", str(count), f"{wall:.1f}", f"{speed:.0f}"])
            rows[-1].append(f"{100 * speed / n_workers:.0f} %")
    print_table(["seconds per cell", "cells", "wall s", "speed-up", "of the workers used"], rows)


def print_check(counts: list[int], seconds: float, per_message: float, per_cell: float) -> None:
    """Real runs with sleeping cells beside the simulation."""
    rows = []
    for n_workers in counts:
        begin = time.perf_counter()
        with workers(n_workers) as address:
            started = time.perf_counter() - begin
            grid, cells = many_cells(8 * n_workers)
            timed_run(address, grid, cells[:n_workers], 0.0)
            wall, processor, messages = timed_run(address, grid, cells, seconds)
        said = simulate(len(cells), n_workers, seconds, per_message, per_cell)
        used = 100 * len(cells) * seconds / (n_workers * wall)
        rows.append([str(n_workers), f"{started:.0f}", str(len(cells)), str(messages)])
        rows[-1] += [f"{wall:.1f}", f"{processor:.1f}", f"{said:.1f}", f"{used:.0f} %"]
    header = ["workers", "start s", "cells", "messages", "real s", "processor s", "simulated s"]
    header.append("of the workers used")
    print_table(header, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cells", type=int, default=10_000)
    parser.add_argument("--workers", type=int, default=4, help="workers of the measurement")
    parser.add_argument("--project", type=int, default=1000, help="workers of the projection")
    parser.add_argument("--check", default="", help="numbers of workers to check, as 10,100,300")
    parser.add_argument("--seconds", type=float, default=5.0, help="length of a cell in the check")
    options = parser.parse_args()
    print(f"# {' '.join(sys.argv)}")
    grid, cells = many_cells(1000)
    print_bytes(grid, cells)
    print(f"\nstore: {1e3 * store_seconds(cells):.2f} ms per cell\n")
    per_message, per_cell, slow = measure_overhead(options.cells, options.workers)
    print(f"(this machine took {slow:.1f} s for a second of processor time)")
    print(f"\n{options.project} workers, simulated for an idle machine:")
    print_projection(per_message, per_cell, options.project)
    if options.check:
        print(f"\ncells of {options.seconds:g} s, real runs, simulated for this machine:")
        counts = [int(part) for part in options.check.split(",")]
        print_check(counts, options.seconds, slow * per_message, slow * per_cell)


if __name__ == "__main__":
    main()
