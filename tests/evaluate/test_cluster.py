"""Cells on a Dask cluster: the same numbers, whatever happens to the workers."""

from __future__ import annotations

import json
import os
import pickle
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fewview.evaluate._cluster as client_side
import fewview.evaluate._cluster_worker as worker_side
from fewview import FewviewError, MultiViewData, Proto, __version__, create
from fewview.datasets import make_few_shot
from fewview.episodes.episodes import SAMPLER_VERSION
from fewview.evaluate import Grid, Store, make_grid, plan, run
from fewview.evaluate.__main__ import main
from fewview.evaluate._cluster import ClusterExecutor
from fewview.evaluate._cluster_worker import Answer, Job, Place, compute
from fewview.evaluate._progress import Progress
from fewview.evaluate._runner import Outcome
from fewview.evaluate.parts import _pieces
from fewview.evaluate.parts._larger import predict_parts
from fewview.ground._memory import LRUCache
from fewview.results._cells import Cell, Result
from fewview.samples._parts import TableParts

distributed = pytest.importorskip("distributed", reason="pip install fewview[cluster]")


def small(**changes: Any) -> Grid:
    options = {"methods": "proto", "eta": "0,0.5", "splits": 2, "episodes": 6} | changes
    return make_grid(["digits"], **options)


def toy() -> MultiViewData:
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(6), 12)
    centres = 3 * rng.normal(size=(6, 5))
    views = {view: centres[labels] + rng.normal(size=(72, 5)) for view in ("a", "b")}
    mask = np.ones((72, 2), dtype=bool)
    mask[::3, 0] = False
    return MultiViewData(views, [f"class {k}" for k in labels], mask=mask, name="toy")


def numbers(outcome: Outcome) -> dict[str, list[float]]:
    return {
        key: result.metrics.accuracy.tolist() + result.metrics.log_loss.tolist()
        for key, result in outcome.results.items()
    }


class Listener(Progress):
    def __init__(self) -> None:
        self.messages: list[str] = []

    def message(self, text: str) -> None:
        self.messages.append(text)


# ---------------------------------------------------------------------- workers as processes


class Processes:
    """A scheduler and workers as a user starts them, each a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "scheduler.json"
        self.started: list[subprocess.Popen[bytes]] = []
        self.start("scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard")
        deadline = time.monotonic() + 60
        while True:
            with suppress(OSError, ValueError):
                self.address: str = json.loads(self.file.read_text())["address"]
                return
            assert time.monotonic() < deadline, "the scheduler did not start"
            time.sleep(0.05)

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-m", "dask", *words, "--scheduler-file", str(self.file)],
            cwd=self.folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self.started.append(process)
        return process

    def worker(self, *words: str) -> subprocess.Popen[bytes]:
        return self.start(
            "worker", "--host", "127.0.0.1", "--nthreads", "1", "--no-nanny", "--no-dashboard",
            "--memory-limit", "0", "--local-directory", str(self.folder), *words,
        )  # fmt: skip

    def wait_for_workers(self, count: int) -> list[str]:
        with distributed.Client(self.address, set_as_default=False) as client:
            deadline = time.monotonic() + 60
            while len(found := client.nthreads()) != count:
                assert time.monotonic() < deadline, found
                time.sleep(0.1)
            return sorted(found)

    def stop(self) -> None:
        for process in reversed(self.started):
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    made = Processes(tmp_path_factory.mktemp("cluster"))
    try:
        made.worker()
        made.worker()
        made.wait_for_workers(2)
        yield made
    finally:
        made.stop()


def test_a_worker_dies_and_the_grid_completes(processes: Processes, tmp_path: Path) -> None:
    victim = processes.started[1]

    class Killer(Listener):
        seen = 0
        busy = 0

        def finished(self, result: Result) -> None:
            self.seen += 1
            if self.seen < 10 or self.busy == 2:
                return
            with distributed.Client(processes.address, set_as_default=False) as client:
                self.busy = sum(bool(tasks) for tasks in client.processing().values())
            if self.busy == 2:
                victim.send_signal(signal.SIGKILL)
                victim.wait()

    killer = Killer()
    grid = small(methods="proto,match,partial-nn", eta="0,0.2,0.4", splits=6, episodes=20)
    store = tmp_path / "a.sqlite"
    outcome = run(grid, store, cluster=processes.address, progress=killer)
    assert killer.busy == 2  # the killed one was in the middle of something
    assert victim.returncode == -signal.SIGKILL
    assert (outcome.computed, outcome.failures, killer.seen) == (54, (), 54)
    # Same batch size, same threads: equal digits.
    assert numbers(outcome) == numbers(run(grid))
    with Store(store, write=False) as reader:
        assert len(reader) == 54
    assert {json.loads(r.versions)["threads"] for r in outcome.results.values()} == {1}
    assert run(grid, store, cluster="tcp://nobody:1").reused == 54


def test_a_worker_of_another_version_is_refused(processes: Processes, tmp_path: Path) -> None:
    """After the test above one good worker is left."""
    preload = tmp_path / "older.py"
    preload.write_text("import fewview._version\nfewview._version.__version__ = '0.0.0'\n")
    (good,) = processes.wait_for_workers(1)
    processes.worker("--preload", str(preload))
    (bad,) = set(processes.wait_for_workers(2)) - {good}
    listener = Listener()
    outcome = run(small(splits=4), cluster=processes.address, progress=listener)
    assert outcome.computed == 8
    (message,) = listener.messages
    assert message == f"worker {bad} is refused: it has fewview 0.0.0; here it is {__version__}"

    store = tmp_path / "a.sqlite"
    run(small(), store)
    processes.started[2].kill()
    processes.wait_for_workers(1)
    with pytest.raises(FewviewError, match=r"all workers .* are refused") as error:
        run(small(splits=4), store, cluster=processes.address)
    for part in (bad, "fewview 0.0.0", f"here it is {__version__}", "Install the same versions"):
        assert part in str(error.value)
    with Store(store, write=False) as reader:
        assert len(reader) == 4


# ---------------------------------------------------------------------- workers as threads


@pytest.fixture(scope="module")
def threads() -> Iterator[Any]:
    """A cluster inside this process, where methods can be made to misbehave."""
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=False, protocol="tcp", host="127.0.0.1",
        dashboard_address=":0", memory_limit=0,
    ) as made:  # fmt: skip
        yield made


def at_rest(cluster: Any, seconds: float = 10) -> bool:
    deadline = time.monotonic() + seconds
    while cluster.scheduler.tasks and time.monotonic() < deadline:
        time.sleep(0.05)
    return not cluster.scheduler.tasks


def test_data_are_sent_once_and_to_all(threads: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Data that exist only in this process; its own memory of them is hidden from the workers."""
    sent = []
    monkeypatch.setattr(worker_side, "_data", LRUCache(16))
    usual = client_side._Run.send

    def send(self: Any, checksums: tuple[str, ...]) -> None:
        before = set(self.sent)
        usual(self, checksums)
        sent.extend(set(self.sent) - before)

    monkeypatch.setattr(client_side._Run, "send", send)
    data = toy()
    grid = replace(small(methods="proto,match", splits=5), datasets=(data,))
    grid = replace(grid, missing="patterns")
    outcome = run(grid, cluster=threads.scheduler_address)
    assert sent == [data.fingerprint]
    assert numbers(outcome) == numbers(run(grid))
    assert at_rest(threads)


def test_files_are_read_by_the_workers(threads: Any, tmp_path: Path) -> None:
    toy().write(tmp_path / "toy.npz")
    grid = replace(small(), datasets=(str(tmp_path / "toy.npz"),))
    monitor = Listener()
    outcome = run(grid, cluster=threads.scheduler_address, progress=monitor)
    assert numbers(outcome) == numbers(run(grid))
    place = Place(path=str(tmp_path / "toy.npz"))
    assert worker_side.find_data(outcome.cells[0].data_checksum, place) is not None


def test_base_from_other_data(threads: Any) -> None:
    grid = replace(small(), datasets=(toy(),), base=toy().with_labels(np.repeat(range(9), 8)))
    assert numbers(run(grid, cluster=threads.scheduler_address)) == numbers(run(grid))


def test_choices_of_settings_come_back(threads: Any, tmp_path: Path) -> None:
    grid = small(methods="proto", tune=True, splits=1, eta="0.3")
    outcome = run(grid, tmp_path / "a.sqlite", cluster=threads.scheduler_address)
    with Store(tmp_path / "a.sqlite", write=False) as reader:
        assert len(reader.all_choices()) == 1
    (result,) = outcome.results.values()
    (local,) = run(grid).results.values()
    assert result.chosen == local.chosen != ""
    np.testing.assert_array_equal(result.metrics.accuracy, local.metrics.accuracy)


def test_breakdowns_and_errors_are_reported_as_here(
    threads: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    usual = Proto.scores

    def scores(self: Proto, batch: Any, state: Any) -> Any:
        if self.padding == "base":
            raise RuntimeError("broken")
        if self.padding == "support":
            raise FewviewError("cannot be done")
        return usual(self, batch, state)

    monkeypatch.setattr(Proto, "scores", scores)
    grid = small(methods="proto:padding=base,proto")
    there, here = run(grid, cluster=threads.scheduler_address), run(grid)
    assert sorted(reason for _, reason in there.failures) == ["RuntimeError: broken"] * 4
    assert numbers(there) == numbers(here)

    store = tmp_path / "a.sqlite"
    run(small(splits=1), store)
    with pytest.raises(FewviewError, match="cannot be done"):
        run(small(methods="proto:padding=support"), store, cluster=threads.scheduler_address)
    with Store(store, write=False) as reader:
        assert len(reader) == 2
    assert at_rest(threads)


def test_ctrl_c_cancels_and_keeps_what_is_finished(threads: Any, tmp_path: Path) -> None:
    class Impatient(Progress):
        def finished(self, result: Result) -> None:
            raise KeyboardInterrupt

    store = tmp_path / "a.sqlite"
    with pytest.raises(KeyboardInterrupt):
        run(small(splits=6), store, cluster=threads.scheduler_address, progress=Impatient())
    assert at_rest(threads)
    rest = run(small(splits=6), store, cluster=threads.scheduler_address)
    assert (rest.computed, rest.reused) == (11, 1)


def test_a_cell_that_ends_workers_is_a_failure_and_the_rest_goes_on(
    threads: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What Dask raises when a task has ended several workers.
    killed = type("KilledWorker", (Exception,), {})
    enter = worker_side.make_entrance()

    def entrance(version: str, job: bytes, work: bytes, seconds: float, *data: Any) -> Any:
        if any(cell.method == "match" and cell.split == 1 for cell in pickle.loads(work)[0]):
            raise killed
        return enter(version, job, work, seconds, *data)

    monkeypatch.setattr(client_side, "make_entrance", lambda: entrance)
    grid = small(methods="proto,match", splits=3)
    outcome = run(grid, cluster=threads.scheduler_address)
    assert {(cell.method, cell.split) for cell, _ in outcome.failures} == {("match", 1)}
    assert "ended, one after another" in outcome.failures[0][1]
    assert outcome.computed == 10


def test_long_pieces_are_cut_and_small_ones_joined(
    threads: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    usual = client_side._Run.submit

    def submit(self: Any, pieces: Any, allowed: Any) -> None:
        sizes.extend(len(piece.cells) for piece in pieces)
        usual(self, pieces, allowed)

    monkeypatch.setattr(client_side._Run, "submit", submit)
    grid = small(splits=14, episodes=1)
    expected = numbers(run(grid))
    assert numbers(run(grid, cluster=threads.scheduler_address)) == expected
    assert sum(sizes) == 28  # every cell once
    assert max(sizes) > 2  # the two missing rates of a class split make a piece

    sizes.clear()
    for name, value in {"TARGET": 0.0, "PER_WORKER": 0.0, "BUDGET": 1e-9}.items():
        monkeypatch.setattr(client_side, name, value)  # a worker answers after every cell
    assert numbers(run(grid, cluster=threads.scheduler_address)) == expected
    assert sum(sizes) == 28 + 14  # the second cell of every piece is sent twice


# ---------------------------------------------------------------------- nobody there


def test_no_workers_is_said_after_a_while(tmp_path: Path) -> None:
    grid = small(splits=20)
    store = tmp_path / "a.sqlite"
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, processes=False, protocol="tcp", host="127.0.0.1",
        dashboard_address=":0", memory_limit=0,
    ) as cluster:  # fmt: skip
        listener = Listener()
        executor = ClusterExecutor(cluster.scheduler_address, patience=1.0)
        done: list[Cell] = []

        def work() -> None:
            with Store(store) as writer:
                for event in executor.work(grid, plan(grid), {}, listener.message):
                    if event.result is not None:
                        writer.add(event.result)
                        done.append(event.cell)
                        if len(done) == 3:
                            cluster.scale(0)
                            while cluster.scheduler.workers:
                                time.sleep(0.05)

        with pytest.raises(FewviewError, match="no workers for") as error:
            work()
    assert "dask worker tcp://" in str(error.value)
    assert "What was finished is stored" in str(error.value)
    assert "waiting 1 s" in listener.messages[0]
    assert run(grid, store).reused == len(done) >= 3


def test_a_scheduler_that_ends_is_said_and_what_is_written_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_pieces, "SLOW_ROWS", 8)
    samples = make_few_shot(10, 20, {"a": 5, "b": 8}, seed=1)
    base, novel = samples[samples.codes < 6], samples[samples.codes >= 6]
    queries = MultiViewData.concat([novel.without_ids()] * 4).with_labels(None)
    (tmp_path / "queries").mkdir()
    for number in range(8):
        rows = queries[number::8]
        ids = [*range(number * 1000, number * 1000 + len(rows))]
        part = MultiViewData(rows.views, mask=rows.mask, ids=ids)
        part.write(tmp_path / "queries" / f"part-{number}", format="csv")
    table, target = TableParts.open(tmp_path / "queries"), tmp_path / "answers.csv"
    clf = create("ptmap").fit_base(base).fit(novel[::5])
    made = Processes(tmp_path)

    class Ends(Progress):
        def track(self, items: Any, *others: Any) -> Iterator[Any]:
            for number, item in enumerate(items):
                if number == 1:
                    made.started[0].kill()
                    made.started[0].wait()
                yield item

    try:
        made.worker()
        made.wait_for_workers(1)
        with pytest.raises(FewviewError, match=r"scheduler at tcp.* is gone.*same command"):
            predict_parts(clf, table, target, block=8, cluster=made.address, progress=Ends())
    finally:
        made.stop()
    assert [*target.glob("part-*")]
    predict_parts(clf, table, target, block=8, progress=Progress())
    predict_parts(clf, table, tmp_path / "whole.csv", block=8, progress=Progress())
    for file in (tmp_path / "whole.csv").glob("part-*"):
        assert (target / file.name).read_bytes() == file.read_bytes()


def test_nobody_answers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ClusterExecutor("tcp://127.0.0.1:9").connect_timeout <= 10
    usual = client_side.connect
    monkeypatch.setattr(client_side, "connect", lambda address, _: usual(address, 1.0))
    begin = time.monotonic()
    words = ["digits", "--splits", "1", "--store", "none", "--cluster", "tcp://127.0.0.1:9"]
    assert main(words) == 2
    assert time.monotonic() - begin < 10
    errors = capsys.readouterr().err
    assert "no Dask scheduler answers at tcp://127.0.0.1:9" in errors
    assert "dask scheduler" in errors
    assert "Traceback" not in errors


@pytest.mark.parametrize("address", ["nonsense://x:1", "tcp://host:port", ""])
def test_impossible_addresses(address: str) -> None:
    code = f"from fewview.evaluate._cluster import connect; connect({address!r}, 2)"
    begin = time.monotonic()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert time.monotonic() - begin < 15
    assert "FewviewError: no Dask scheduler answers at" in done.stderr
    assert "Exception ignored" not in done.stderr  # a client that was never closed


def test_servers_that_are_no_scheduler() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        begin = time.monotonic()
        with pytest.raises(FewviewError, match=r"\(no answer within 1 s\)"):
            client_side.connect(f"tcp://127.0.0.1:{silent.getsockname()[1]}", 1)
        assert time.monotonic() - begin < 10
    with (
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=1, processes=False, protocol="tcp", host="127.0.0.1",
            dashboard_address=None,
        ) as cluster,
        pytest.raises(FewviewError, match="this is the address of a worker"),
    ):  # fmt: skip
        client_side.connect(cluster.workers[0].address, 2)


def test_dask_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(FewviewError, match=r"pip install 'fewview\[cluster\]'"):
        run(small(), cluster="tcp://127.0.0.1:8786")


def test_jobs_or_cluster() -> None:
    with pytest.raises(FewviewError, match="give one of them"):
        run(small(), jobs=2, cluster="tcp://127.0.0.1:8786")


# ---------------------------------------------------------------------- inside a worker


def ask(
    grid: Grid, cells: list[Cell], places: dict[str, Place] | None = None, budget: float = 100.0
) -> Answer:
    known = {cell.data_checksum: Place(known="digits") for cell in cells}
    job = pickle.dumps(Job(grid, places or known))
    answer: Answer = pickle.loads(compute("worker", job, pickle.dumps((cells, {})), budget))
    return answer


def test_a_worker_stops_when_its_time_is_up() -> None:
    grid = small()
    assert len(ask(grid, plan(grid)).done) == 4
    assert len(ask(grid, plan(grid), budget=0.0).done) == 1


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (
            {"method_version": "99"},
            f"its method 'proto' has version {Proto.version}; here it is 99",
        ),
        ({"sampler_version": 99}, f"sampler has version {SAMPLER_VERSION}; here it is 99"),
        ({"parameters": "other"}, "has parameters"),
        ({"method": "of-my-own"}, "no method 'of-my-own'"),
    ],
)
def test_a_worker_with_other_methods_refuses(changes: dict[str, Any], reason: str) -> None:
    grid = small()
    answer = ask(grid, [replace(plan(grid)[0], **changes)])
    assert reason in answer.refused
    assert not answer.done


def test_a_worker_says_which_data_it_lacks(tmp_path: Path) -> None:
    grid = small()
    cell = replace(plan(grid)[0], data_checksum="f" * 64)
    places = {
        "f" * 64: Place(known="digits", data_dir=str(tmp_path)),
        cell.base_checksum: Place(known="digits"),
    }
    assert ask(grid, [cell], places).lacking == ("f" * 64,)
    found = worker_side.find_data(cell.base_checksum, Place(known="digits"))
    assert found is not None
    assert found.fingerprint == cell.base_checksum
    assert worker_side.find_data("f" * 64, Place(known="digits")) is None
    assert worker_side.find_data("f" * 64, Place(path=str(tmp_path / "absent.npz"))) is None


def test_libraries_that_a_worker_lacks_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    class Here:
        address = "tcp://10.0.0.7:4000"

    monkeypatch.setattr(distributed, "get_worker", Here)
    enter = worker_side.make_entrance()
    address, reason = enter("9.9", b"", b"", 1.0)
    assert address == "tcp://10.0.0.7:4000"
    assert reason == f"it has fewview {__version__}; here it is 9.9"
    monkeypatch.setitem(sys.modules, "torch", None)
    assert "torch cannot be imported there" in enter(__version__, b"", b"", 1.0)[1]
    monkeypatch.setitem(sys.modules, "fewview._version", None)
    assert "fewview is not installed there" in enter(__version__, b"", b"", 1.0)[1]


def test_threads_are_put_back() -> None:
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with worker_side.single_thread(), worker_side.single_thread():
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_the_entrance_needs_no_fewview_to_be_read() -> None:
    """A scheduler reads what passes through it; it may have Dask alone."""
    from distributed.protocol.pickle import dumps

    code = (
        "import pickle, sys; sys.modules['fewview'] = None; "
        "print(pickle.loads(sys.stdin.buffer.read()).__name__)"
    )
    sent = dumps(worker_side.make_entrance())
    out = subprocess.run([sys.executable, "-c", code], input=sent, capture_output=True, check=True)
    assert out.stdout.split() == [b"fewview_work"]
    assert os.linesep.encode() in out.stdout


def test_threads_of_one_worker_share_what_is_prepared() -> None:
    """Several threads at once, each with a workbench of its own, and the same digits."""
    from concurrent.futures import ThreadPoolExecutor

    grid = small(methods="proto,match,proto:scaling=standard", splits=6)
    cells = plan(grid)
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda cell: ask(grid, [cell]), cells))
    assert not [event.failure for answer in answers for event in answer.done if event.failure]
    expected = numbers(run(grid))
    for cell, answer in zip(cells, answers, strict=True):
        result = answer.done[0].result
        assert result is not None
        metrics = result.metrics
        assert metrics.accuracy.tolist() + metrics.log_loss.tolist() == expected[cell.hash]
