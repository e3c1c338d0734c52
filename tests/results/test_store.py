from __future__ import annotations

import multiprocessing
import os
import sqlite3
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fewview import create
from fewview.results._cells import Cell, Result, content_hash, example_cell
from fewview.results._metrics import measure
from fewview.results._stale import status, version_key
from fewview.results._store import Store, on_local_disk, parse_condition
from fewview.samples import FewviewError


def result(seed: int = 0, **changes: object) -> Result:
    cell = example_cell(**changes)
    rng = np.random.default_rng(seed)
    metrics = measure(rng.normal(size=(cell.n_episodes, 6, 3)), rng.integers(0, 3, (40, 6)))
    return Result(cell=cell, metrics=metrics, seconds=0.5, seconds_base=0.25, host="here")


def test_hash_is_of_the_canonical_key() -> None:
    cell = example_cell()
    assert cell.hash == content_hash(cell.key())
    assert set(cell.key()).isdisjoint(Cell.NOT_IN_KEY)
    # A fixed value: a change would orphan every stored result.
    assert content_hash({"b": 0.3, "a": ["x"]}) == (
        "a3f18dc86bdf752cc7630b3575f11b6aed3bec72ef0ee0b41cbf38e3cbbb4bb7"
    )


@pytest.mark.parametrize(
    "change",
    [
        {"data_checksum": "1"}, {"base_checksum": "1"}, {"base_classes": ("0",)},
        {"novel": ("1", "2", "3")}, {"way": 2}, {"shot": 5}, {"queries": 15},
        {"query_counts": "dirichlet:2"}, {"missing": "class[2]"}, {"eta": 0.5},
        {"method_class": "Match"}, {"parameters": "padding=zero"}, {"method_version": "2"},
        {"sampler_version": 2}, {"seed": 1}, {"dtype": "float64"}, {"device": "cuda"},
        {"start": 1}, {"stop": 41}, {"tune": "1"}, {"dataset": "other"},
    ],
)  # fmt: skip
def test_everything_that_matters_changes_the_hash(change: dict[str, object]) -> None:
    assert example_cell(**change).hash != example_cell().hash


@pytest.mark.parametrize("change", [{"method": "x"}, {"split": 3}, {"fixed": True}])
def test_what_is_for_people_does_not(change: dict[str, object]) -> None:
    assert example_cell(**change).hash == example_cell().hash


def test_round_trip(tmp_path: Path) -> None:
    one = result()
    with Store(tmp_path / "a.sqlite") as store:
        store.add(one)
        store.add_choice("key", {"index": 1})
    with Store(tmp_path / "a.sqlite", write=False) as store:
        assert len(store) == 1
        assert store.all_choices() == {"key": {"index": 1}}
        back = store.get([one.cell.hash, "0" * 64])[one.cell.hash]
    assert back.cell == one.cell
    assert back.cell.hash == one.cell.hash
    for name in ("accuracy", "balanced_accuracy", "log_loss", "brier", "bins"):
        np.testing.assert_array_equal(getattr(back.metrics, name), getattr(one.metrics, name))
    assert (back.seconds, back.seconds_base, back.host) == (0.5, 0.25, "here")


def test_writing_again_replaces() -> None:
    with Store() as store:
        store.add(result(0))
        store.add(result(1))
        (only,) = store.select()
    np.testing.assert_array_equal(only.metrics.accuracy, result(1).metrics.accuracy)


def test_older_versions_are_kept_and_recognised() -> None:
    with Store() as store:
        store.add(result(method_version="1"))
        newer = example_cell(method_version="2")
        assert store.present([newer.hash]) == set()
        assert store.known_identities([newer.identity]) == {newer.identity}
        store.add(result(method_version="2"))
        assert len(store) == 2


def test_conditions() -> None:
    with Store() as store:
        for eta in (0.0, 0.3, 0.5):
            store.add(result(eta=eta, method="proto"))
            store.add(result(eta=eta, method="ugda:k=1", parameters="k=1"))

        def count(*where: str) -> int:
            return len(store.select(where))

        assert count() == 6
        assert count("eta<=0.3") == 4
        assert count("eta = 0.5", "method=proto") == 1
        assert count("method~ugda") == 3
        assert count("method=proto|ugda:k=1") == 6
        assert count("method!=proto") == 3
        assert count("dataset!=digits|other") == 0


@pytest.mark.parametrize("text", ["eta", "colour=red", "eta; DROP TABLE cells=1"])
def test_wrong_conditions_are_named(text: str) -> None:
    with pytest.raises(FewviewError, match="condition"):
        parse_condition(text)


def test_foreign_files_are_refused_and_left_alone(tmp_path: Path) -> None:
    text = tmp_path / "notes.sqlite"
    text.write_text("not a database, but long enough to look at" * 50)
    foreign = tmp_path / "other.sqlite"
    with sqlite3.connect(foreign) as connection:
        connection.execute("CREATE TABLE mine (x)")
    connection.close()
    for path in (text, foreign):
        before = path.read_bytes()
        for write in (True, False):
            with pytest.raises(FewviewError, match="not a fewview result store"):
                Store(path, write=write)
        assert path.read_bytes() == before
    with pytest.raises(FewviewError, match="no such result store"):
        Store(tmp_path / "absent.sqlite", write=False)


def test_newer_schema_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    Store(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(FewviewError, match="schema 99"):
        Store(path, write=False)


def test_second_writer_is_told_who_has_it(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    with Store(path), pytest.raises(FewviewError, match=r"in use by process \d+ on"):
        Store(path, wait=0)
    Store(path, wait=0).close()


def test_waiting_for_oneself_is_said(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    with Store(path), pytest.raises(FewviewError, match=r"in use by process \d+ on .* since 20"):
        Store(path)


def test_a_store_that_is_closed_leaves_no_name_behind(tmp_path: Path) -> None:
    with Store(tmp_path / "a.sqlite"):
        assert (tmp_path / "a.sqlite.holder").exists()
    assert not (tmp_path / "a.sqlite.holder").exists()


@pytest.mark.skipif(os.name == "nt", reason="POSIX signals")
def test_the_lock_is_free_when_its_holder_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    code = (
        "import sys, time\nfrom fewview.results._store import Store\n"
        "store = Store(sys.argv[1])\nprint('ready', flush=True)\ntime.sleep(60)"
    )
    holder = subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE)
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"ready\n"
    with pytest.raises(FewviewError, match=f"in use by process {holder.pid} on"):
        Store(path, wait=0.1)
    holder.kill()
    holder.wait()
    holder.stdout.close()
    messages: list[str] = []
    Store(path, wait=5, on_wait=messages.append).close()
    assert messages == []


def _hold(path: str, ready: Any) -> None:
    with Store(path) as store:
        store.add(result())
        ready.set()
        time.sleep(0.5)


def test_second_writer_waits(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    context = multiprocessing.get_context("fork")
    ready = context.Event()
    holder = context.Process(target=_hold, args=(str(path), ready))
    holder.start()
    assert ready.wait(30)
    messages: list[str] = []
    with Store(path, wait=30, on_wait=messages.append) as second:
        assert len(second) == 1
    holder.join()
    assert len(messages) == 1
    assert f"process {holder.pid}" in messages[0]
    assert "waiting" in messages[0]


def test_readers_need_no_lock(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    with Store(path) as writer:
        writer.add(result())
        with Store(path, write=False) as reader:
            assert len(reader) == 1


def _write_many(path: str, first: int) -> None:
    for eta in range(first, first + 5):
        with Store(path) as store:
            store.add(result(eta=eta / 100))


def test_two_processes_lose_nothing(tmp_path: Path) -> None:
    path = str(tmp_path / "a.sqlite")
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=_write_many, args=(path, k)) for k in (0, 50)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        assert process.exitcode == 0
    with Store(path, write=False) as store:
        assert len(store) == 10


def test_network_disks_get_no_write_ahead_log() -> None:
    mounts = "/dev/a / ext4 rw 0 0\nserver:/x /home nfs4 rw 0 0\n/dev/b /home/me/fast xfs rw 0 0\n"
    assert on_local_disk(Path("/tmp/a"), mounts)
    assert not on_local_disk(Path("/home/me/a"), mounts)
    assert on_local_disk(Path("/home/me/fast/a"), mounts)
    assert not on_local_disk(Path("/home/me/fast/a"), "")


def test_older_versions_and_unknown_methods_are_recognised() -> None:
    present = example_cell(method_version=version_key(create("proto")))
    assert status(present) == "current"
    assert status(replace(present, sampler_version=0)) == "stale"
    assert status(replace(present, method_version="0")) == "stale"
    assert status(replace(present, method="no-such-method")) == "unknown"
    assert status(replace(present, method_class="Match")) == "unknown"
    parts = create("rfs+ugda")
    assert "UGDA" in version_key(parts)
    assert version_key(parts).startswith(f"{parts.version}(")


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a folder where nothing is made")
def test_where_no_lock_can_be_made_nobody_waits() -> None:
    with pytest.raises(FewviewError, match="cannot open the store"):
        Store("/proc/nothing.sqlite")
