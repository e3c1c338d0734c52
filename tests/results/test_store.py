from __future__ import annotations

import multiprocessing
import os
import sqlite3
import subprocess
import sys
import time
import warnings
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fewview import FewviewWarning, create
from fewview.evaluate import Grid, run
from fewview.evaluate._progress import Progress
from fewview.results._cells import Cell, Result, content_hash, example_cell
from fewview.results._metrics import measure
from fewview.results._repairing import StoreState, check_store, repair_store
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
    assert content_hash({"b": 0.3, "a": ["x"]}) == content_hash({"a": ["x"], "b": 0.3})


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


def test_a_full_disk_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite itself says that there is no room: the file may have two pages."""
    from fewview.results import _store

    begin = _store._begin_writing

    def crowded(connection: sqlite3.Connection, file: Path) -> None:
        connection.execute("PRAGMA max_page_count = 2")
        begin(connection, file)

    monkeypatch.setattr(_store, "_begin_writing", crowded)
    with pytest.raises(FewviewError, match=r"no room left on the disk; .* run the same command"):
        Store(tmp_path / "a.sqlite")


def test_a_store_that_another_program_has_is_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, connect = tmp_path / "a.sqlite", sqlite3.connect
    Store(path).close()
    with closing(connect(path, isolation_level=None)) as other:
        other.execute("PRAGMA locking_mode=EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        other.execute("PRAGMA user_version = 1")
        monkeypatch.setattr(
            sqlite3, "connect", lambda *place, **more: connect(*place, **{**more, "timeout": 0.1})
        )
        for write in (False, True):
            with pytest.raises(FewviewError, match=r"cannot be used now \(.*locked.*no damage"):
                Store(path, write=write)


def test_a_slip_is_no_damage(tmp_path: Path) -> None:
    with Store(tmp_path / "a.sqlite") as store:
        assert store._connection is not None
        store._connection.close()
        with pytest.raises(sqlite3.ProgrammingError, match="closed"):
            store.select()


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


# ---------------------------------------------------------------------- damage


def damage(path: Path, statement: str, *values: object) -> None:
    """Change a file behind the store's back."""
    with sqlite3.connect(path) as connection:
        assert connection.execute(statement, values).rowcount == 1
    connection.close()


def filled(path: Path, count: int = 4) -> list[Result]:
    results = [result(seed, eta=seed / 10, split=seed) for seed in range(count)]
    with Store(path) as store:
        store.add(*results)
        store.add_choice("key", {"index": 1})
    return results


BY_ETA = "WHERE hash = (SELECT hash FROM cells WHERE eta = 0.1)"


@pytest.mark.parametrize(
    "statement",
    [
        f"UPDATE cells SET method = 'prot' {BY_ETA}",
        f"UPDATE cells SET eta = 0.15 {BY_ETA}",
        f"UPDATE cells SET split = 7 {BY_ETA}",
        f"UPDATE cells SET seconds = 0.50001 {BY_ETA}",
        f"UPDATE cells SET novel = '[\"6\"' {BY_ETA}",
        f"UPDATE cells SET dataset = CAST(x'64ff' AS TEXT) {BY_ETA}",
        f"UPDATE cells SET digest = NULL {BY_ETA}",
        f"UPDATE cells SET hash = 'f' || substr(hash, 2) {BY_ETA}",
        f"UPDATE episodes SET accuracy = zeroblob(320) {BY_ETA}",
        f"UPDATE episodes SET bins = x'00' {BY_ETA}",
        f"DELETE FROM episodes {BY_ETA}",
        "DELETE FROM cells WHERE eta = 0.1",
    ],
)
def test_a_damaged_row_is_reported_and_left_out(statement: str, tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    results = filled(path)
    damage(path, statement)
    intact = {one.cell.hash for one in results} - {results[1].cell.hash}
    with Store(path, write=False) as store:
        # Also where it does not meet the condition any more, because that was damaged.
        for where in ([], ["eta<=0.12"]):
            with pytest.warns(
                FewviewWarning, match=r"damaged row\(s\) left out.*--check.*--repair"
            ):
                found = store.select(where)
            assert {one.cell.hash for one in found} <= intact
            assert len(found) == (1 if where else 3)
        assert set(store.get(intact)) == intact
    assert check_store(str(path)).damages
    state = repair_store(str(path))
    assert (state.n_intact, state.moved_to) == (3, tmp_path / "a.sqlite.damaged")
    assert state.moved_to.exists()
    assert check_store(str(path)) == StoreState(3, ())
    with Store(path, write=False) as store:
        assert {one.cell.hash for one in store.select()} == intact
        assert store.all_choices() == {"key": {"index": 1}}


def test_an_intact_store_is_not_repaired(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    filled(path)
    before = path.read_bytes()
    assert repair_store(str(path)) == StoreState(4, ())
    assert path.read_bytes() == before


def test_a_damaged_choice_is_made_again(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    filled(path)
    damage(path, "UPDATE choices SET choice = '{\"index\": 2}'")
    messages: list[str] = []
    with Store(path, on_damage=messages.append) as store:
        assert store.all_choices() == {}
    assert "1 damaged row(s)" in messages[0]


def test_pages_that_cannot_be_read_are_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    results = filled(path, 40)
    content = bytearray(path.read_bytes())
    start = (
        content.index((results[20].cell.hash + results[20].cell.identity).encode()) // 4096 * 4096
    )
    content[start : start + 8] = b"\xff" * 8
    path.write_bytes(content)
    with Store(path, write=False) as store, pytest.raises(FewviewError, match="--repair") as caught:
        store.select()
    assert str(path) in str(caught.value)
    assert 0 < repair_store(str(path)).n_intact < 40
    with Store(path, write=False) as store:
        found = store.select()
    # Pages hold few rows; the rest was reached.
    assert len(found) >= 30


def test_a_file_that_is_no_store_is_not_repaired(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    path.write_text("not a database" * 100)
    with pytest.raises(FewviewError, match="no result can be read"):
        repair_store(str(path))
    assert path.read_text() == "not a database" * 100
    assert [file.name for file in tmp_path.iterdir()] == ["a.sqlite", "a.sqlite.lock"]


def without_digests(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        for table in ("cells", "episodes", "choices"):
            connection.execute(f"ALTER TABLE {table} DROP COLUMN digest")
    connection.close()


def test_a_store_without_digests_is_checked_as_far_as_possible(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    results = filled(path)
    without_digests(path)
    damage(path, f"UPDATE episodes SET brier = zeroblob(320) {BY_ETA}")
    with Store(path, write=False) as store:
        with pytest.warns(FewviewWarning, match="1 damaged row"):
            assert len(store.select()) == 3
        assert store.all_choices() == {"key": {"index": 1}}
    # A writer gives digests to what passes the checks, and to nothing else.
    Store(path).close()
    with sqlite3.connect(path) as connection:
        for table, count in (("cells", 3), ("episodes", 3), ("choices", 1)):
            assert connection.execute(f"SELECT count(digest) FROM {table}").fetchone() == (count,)
    connection.close()
    damage(path, "UPDATE cells SET host = 'there' WHERE eta = 0.2")
    with Store(path, write=False) as store, pytest.warns(FewviewWarning, match="2 damaged row"):
        assert len(store.select()) == 2
    with Store(path, on_damage=lambda _: None) as store:
        store.add(results[1])
        assert set(store.get([results[1].cell.hash])) == {results[1].cell.hash}


def test_bench_computes_damaged_rows_again(tmp_path: Path) -> None:
    grid = Grid(datasets=("digits",), methods=("proto",), splits=3, episodes=4)
    path = tmp_path / "a.sqlite"
    first = run(grid, path)
    damage(path, "UPDATE episodes SET accuracy = zeroblob(32) WHERE rowid = 2")
    told = Told()
    again = run(grid, path, progress=told)
    assert (again.computed, again.reused) == (1, 2)
    assert len(told.messages) == 1
    assert "1 damaged row(s)" in told.messages[0]
    for key, one in first.results.items():
        np.testing.assert_array_equal(one.metrics.accuracy, again.results[key].metrics.accuracy)
    assert check_store(str(path)) == StoreState(3, ())


class Told(Progress):
    def __init__(self) -> None:
        self.messages: list[str] = []

    def message(self, text: str) -> None:
        self.messages.append(text)


def test_flipped_bits_are_never_silent(tmp_path: Path) -> None:
    """Forty copies with one bit flipped: the same results, or a word that some are damaged."""
    whole, copy = tmp_path / "whole.sqlite", tmp_path / "copy.sqlite"
    with Store(whole) as store:
        for number in range(60):
            store.add(result(number, split=number % 10, eta=number // 10 / 20))

    def plain(path: Path) -> dict[str, tuple[Any, bytes]]:
        with Store(path, write=False) as store:
            found = store.select()
        return {one.cell.hash: (one.cell, one.metrics.accuracy.tobytes()) for one in found}

    truth, told = plain(whole), 0
    bits = np.random.default_rng(7).integers(0, 8 * whole.stat().st_size, size=40)
    for bit in bits.tolist():
        for old in tmp_path.glob("copy.*"):
            old.unlink()
        content = bytearray(whole.read_bytes())
        content[bit // 8] ^= 1 << bit % 8
        copy.write_bytes(content)
        for repair in (False, True):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                try:
                    if repair:
                        repair_store(str(copy))
                    found = plain(copy)
                except FewviewError:
                    told += 1
                    continue
            assert found.items() <= truth.items()
            # After a repair what was damaged is gone, and is computed again.
            assert repair or len(found) == len(truth) or caught
            told += bool(caught)
    assert told > 5


def test_nothing_is_left_beside_a_store_that_was_read(tmp_path: Path) -> None:
    place = tmp_path / "results.sqlite"
    with Store(place) as store:
        store.add(result())
    with Store(place, write=False) as store:
        assert len(list(store.select([]))) == 1
    beside = {path.name for path in tmp_path.iterdir()}
    assert not beside & {"results.sqlite-wal", "results.sqlite-shm"}
