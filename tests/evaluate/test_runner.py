from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fewview import (
    Episodes,
    EpisodeSampler,
    FewviewError,
    FewviewWarning,
    Marginal,
    MultiViewData,
    Proto,
)
from fewview.evaluate import Grid, Store, bench, make_grid, plan, run
from fewview.evaluate.__main__ import main
from fewview.evaluate._advice import give_advice
from fewview.evaluate._grid import class_names, make_method, pieces_of, rows_of, splits_of, units
from fewview.evaluate._progress import (
    PlainProgress,
    Progress,
    describe_plan,
    describe_seconds,
)
from fewview.evaluate._runner import Outcome
from fewview.evaluate._sources import find_source
from fewview.results._cells import Result
from fewview.results._metrics import measure
from fewview.results._repairing import check_store, repair_store
from fewview.results._summaries import summarise_planned

# Keys that every row has.
REQUIRED = (
    "dataset", "method", "way", "shot", "eta", "accuracy", "standard_error", "split_low",
    "split_high", "n_episodes", "seconds", "seconds_base",
)  # fmt: skip

SMALL = {"methods": "proto", "eta": "0,0.5", "splits": 2, "episodes": 6}


def small(**changes: object) -> Grid:
    return make_grid(["digits"], **(SMALL | changes))  # type: ignore[arg-type]


def test_memory_of_a_batch_is_for_every_method_and_in_no_key() -> None:
    grid = small(methods="proto,ptmap+ugda,bd-cspn:max_memory=3", max_memory=0.5)
    made = [make_method(text, grid) for text in grid.methods]
    assert [method.max_memory for method in made] == [0.5, 0.5, 3.0]
    assert made[1].get_params()["source__max_memory"] == 0.5
    usual = [cell.key() for cell in plan(replace(grid, max_memory=None))]
    assert [cell.key() for cell in plan(grid)] == usual
    with pytest.raises(FewviewError, match="max_memory is 0; it must be above 0"):
        plan(small(max_memory=0))


def numbers(outcome: Outcome) -> dict[str, list[float]]:
    return {
        key: result.metrics.accuracy.tolist() + result.metrics.log_loss.tolist()
        for key, result in outcome.results.items()
    }


def toy(name: str = "toy", n_classes: int = 6, gaps: bool = False) -> MultiViewData:
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(n_classes), 12)
    centres = 3 * rng.normal(size=(n_classes, 5))
    views = {view: centres[labels] + rng.normal(size=(len(labels), 5)) for view in ("a", "b")}
    mask = np.ones((len(labels), 2), dtype=bool)
    if gaps:
        mask[::3, 0] = False
    return MultiViewData(views, [f"class {k}" for k in labels], mask=mask, name=name)


def test_json_has_the_promised_keys(tmp_path: Path) -> None:
    rows, _ = bench(small(), store="none", json_path=tmp_path / "out.json")
    assert json.loads((tmp_path / "out.json").read_text()) == rows
    assert len(rows) == 2
    for row in rows:
        assert set(REQUIRED) <= set(row)
        assert row["n_episodes"] == 12
        assert row["split_low"] <= row["accuracy"] <= row["split_high"]
        assert row["ci_low"] <= row["accuracy"] <= row["ci_high"]
        assert row["seconds"] > 0
    assert rows[0]["accuracy"] > rows[1]["accuracy"]


def test_there_is_one_way_from_episodes_to_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a benchmark runs, tuning included, is what `Method.score_episodes` gives."""
    usual, seen = Proto.score_episodes, []

    def note(self: Proto, data: Any, episodes: Episodes, fitted: Any) -> Any:
        seen.append(len(episodes))
        return usual(self, data, episodes, fitted)

    monkeypatch.setattr(Proto, "score_episodes", note)
    run(small(eta="0.5", splits=1))
    assert seen == [6]
    run(small(eta="0.5", splits=1, tune=True))
    assert len(seen) > 2
    assert seen[-1] == 6


def test_tasks_are_drawn_once_for_all_methods(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[tuple[int, int]] = []
    usual = EpisodeSampler.draw

    def draw(sampler: EpisodeSampler, start: int = 0, stop: int = 400) -> Episodes:
        drawn.append((start, stop))
        return usual(sampler, start, stop)

    alone = numbers(run(small())) | numbers(run(small(methods="rfs")))
    monkeypatch.setattr(EpisodeSampler, "draw", draw)
    together = numbers(run(small(methods="proto,rfs")))
    assert len(drawn) == 4  # two class splits, two missing rates
    assert together == alone


def test_base_classes_that_data_sets_share_are_learnt_once(monkeypatch: pytest.MonkeyPatch) -> None:
    usual, times = Marginal.learn, []

    def learn(self: Marginal, *given: Any) -> Any:
        times.append(1)
        return usual(self, *given)

    monkeypatch.setattr(Marginal, "learn", learn)
    base = toy("base").with_labels(np.repeat([f"other {k}" for k in range(9)], 8))
    grid = replace(small(methods="marginal"), datasets=(toy("a"), toy("b", 7)), base=base)
    assert len(run(grid).results) == 8
    assert times == [1]


def test_same_digits_twice() -> None:
    assert numbers(run(small())) == numbers(run(small()))


def test_another_batch_size_and_order_agree() -> None:
    usual = run(small())
    narrow = run(small(methods="proto:max_memory=0.0001"))
    assert set(usual.results) == set(narrow.results)
    for key, result in usual.results.items():
        other = narrow.results[key].metrics
        np.testing.assert_allclose(result.metrics.log_loss, other.log_loss, atol=1e-3)
        assert (result.metrics.accuracy == other.accuracy).mean() >= 0.999


def test_two_processes_agree() -> None:
    grid = small()
    alone, together = numbers(run(grid)), numbers(run(grid, jobs=2))
    assert alone.keys() == together.keys()
    for key, values in alone.items():
        np.testing.assert_allclose(values, together[key], atol=1e-3)


def test_a_stored_cell_is_not_computed_again(tmp_path: Path) -> None:
    store = tmp_path / "a.sqlite"
    first = run(small(), store)
    second = run(small(), store)
    more = run(small(eta="0,0.3,0.5"), store)
    assert (first.computed, first.reused) == (4, 0)
    assert (second.computed, second.reused) == (0, 4)
    assert (more.computed, more.reused) == (2, 4)
    assert numbers(first) == numbers(second)


def test_two_spellings_are_one_cell_and_two_rows(tmp_path: Path) -> None:
    rows, outcome = bench(small(methods="proto,proto:dtype=float32"), store="none")
    assert outcome.computed == 4
    assert [row["method"] for row in rows].count("proto:dtype=float32") == 2
    assert rows[0]["accuracy"] == rows[2]["accuracy"]


def test_probabilities_are_kept_on_request(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    grid = small(methods="proto,match")
    first = run(grid, path)
    kept = replace(grid, keep_probabilities=True)
    again = run(kept, path)
    # The numbers were there, the probabilities were not; nothing is out of date.
    assert (again.computed, again.reused, again.stale) == (8, 0, 0)
    assert run(kept, path, jobs=2).computed == 0
    assert run(grid, path).computed == 0
    with Store(path, write=False) as store:
        found = dict(store.answers(first.results))
    assert set(found) == set(first.results)
    for key, answers in found.items():
        metrics, result = measure(answers.scores, answers.labels), first.results[key]
        np.testing.assert_array_equal(metrics.accuracy, result.metrics.accuracy)
        np.testing.assert_allclose(metrics.brier, result.metrics.brier, atol=1e-5)


def test_damaged_probabilities_are_found_and_dropped(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    outcome = run(replace(small(), keep_probabilities=True), path)
    key = next(iter(outcome.results))
    with sqlite3.connect(path) as connection:
        (blob,) = connection.execute("SELECT scores FROM answers WHERE hash = ?", [key]).fetchone()
        turned = bytes([blob[0] ^ 1]) + blob[1:]
        connection.execute("UPDATE answers SET scores = ? WHERE hash = ?", [turned, key])
    connection.close()
    assert [one.why for one in check_store(str(path)).damages] == ["its probabilities have changed"]
    repair_store(str(path))
    with Store(path, write=False) as store:
        assert set(dict(store.answers(outcome.results))) == set(outcome.results) - {key}
        assert len(store) == 4
    assert run(replace(small(), keep_probabilities=True), path).computed == 1


def test_a_raised_version_is_stale_and_computed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "a.sqlite"
    run(small(), store)
    monkeypatch.setattr(Proto, "version", Proto.version + 1)
    again = run(small(), store)
    assert (again.computed, again.reused, again.stale) == (4, 0, 4)
    with Store(store, write=False) as reader:
        assert len(reader) == 8


def test_interrupted_run_goes_on(tmp_path: Path) -> None:
    class Impatient(Progress):
        def finished(self, result: Result) -> None:
            raise KeyboardInterrupt

    store = tmp_path / "a.sqlite"
    with pytest.raises(KeyboardInterrupt):
        run(small(), store, progress=Impatient())
    rest = run(small(), store)
    assert (rest.computed, rest.reused) == (3, 1)
    assert numbers(rest) == numbers(run(small()))


def test_a_method_that_breaks_down_does_not_stop_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    usual = Proto.scores

    def scores(self: Proto, batch: object, state: object) -> object:
        if self.padding == "zero":
            raise RuntimeError("broken")
        return usual(self, batch, state)  # type: ignore[arg-type]

    monkeypatch.setattr(Proto, "scores", scores)
    outcome = run(small(methods="proto:padding=zero,proto:padding=support"))
    assert len(outcome.failures) == 4
    assert outcome.failures[0][1] == "RuntimeError: broken"
    assert len(outcome.results) == 4
    assert len(summarise_planned(outcome.cells, outcome.results)) == 2


def test_progress_lines(capsys: pytest.CaptureFixture[str]) -> None:
    outcome = run(small(), progress=PlainProgress(interval=0))
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "4 trials: 0 already stored, 4 to compute"
    assert lines[-1].startswith("[4/4] digits, split 2, 50 % of views missing, proto: ")
    told = PlainProgress(interval=0)
    told.planned(30, 8, 0)
    for _ in range(3):
        told.finished(next(iter(outcome.results.values())))
    lines = capsys.readouterr().err.splitlines()[1:]
    # Of 22 new ones the first two tell nothing of the time left.
    assert [line.endswith(" left)") for line in lines] == [False, False, True]
    assert describe_plan(12, 4, 2).startswith("12 trials: 4 already stored, 8 to compute (2 of")
    assert [describe_seconds(t) for t in (12.3, 150, 9000)] == ["12 s", "2.5 min", "2.5 h"]


# ---------------------------------------------------------------------- planning


def test_plan_reuses_what_is_prepared() -> None:
    cells = plan(small(methods="proto,proto:scaling=standard,proto:padding=zero"))
    order = [(cell.split, cell.scaling, cell.method) for cell in cells]
    assert order == sorted(order, key=lambda item: (item[0], item[1]))
    assert [len(unit) for unit in units(cells)] == [2] * 6


def test_only_what_shares_its_learning_is_handed_out_together() -> None:
    """CPM learns for every rate or in every task anew, COMPLETER once for all rates."""
    shared, anew = (
        ("proto", "completer:train_on=base"),
        (
            "cpm",
            "cpm:train_on=base",
        ),
    )
    grid = small(methods=",".join((*shared, *anew)))
    cells = plan(grid)
    pieces = pieces_of(grid, cells, slots=2)
    assert [cell for piece in pieces for cell in piece] == cells
    assert {piece[0].method for piece in pieces if len(piece) == 2} == set(shared)
    assert {piece[0].method for piece in pieces if len(piece) == 1} == set(anew)
    # Too few pieces to go round, or settings to choose for every rate: cell by cell.
    assert len(pieces_of(grid, cells, slots=8)) == len(cells)
    tuned = replace(grid, tune=True)
    assert len(pieces_of(tuned, plan(tuned), slots=1)) == len(cells)


def test_classes_are_written_in_the_order_of_the_data() -> None:
    data = MultiViewData([[1.0], [2.0], [3.0]], labels=[10, 9, 10])
    assert class_names(data, [10, 9]) == ("9", "10")
    assert len(rows_of(data, ["10"])) == 2


def test_options_of_the_command_line() -> None:
    assert make_method("proto", small(scaling="paper", padding="paper")).padding == "zero"
    assert make_method("proto:padding=base", small(padding="zero")).padding == "base"
    assert make_method("proto", small(dtype="float64", seed=3)).random_state == 3
    grid = make_grid(["digits"], protocol="paper")
    assert (grid.splits, grid.episodes) == (1, 400)
    assert make_grid(["digits"], protocol="paper", episodes=7).episodes == 7


def test_scaling_is_a_key_and_not_a_name() -> None:
    one, two = (plan(small(scaling=rule))[0] for rule in ("scale", "standard"))
    assert one.method == two.method == "proto"
    assert one.hash != two.hash
    assert two.scaling == "standard"


def test_all_splits_are_enumerated() -> None:
    cells = plan(small(splits="all", eta="0"))
    assert len(cells) == 210
    assert len({cell.novel for cell in cells}) == 210
    # The first ten drawn splits are among them: their cells are shared.
    some = {cell.hash for cell in plan(small(splits=5, eta="0"))}
    assert some <= {cell.hash for cell in cells}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"eta": "0.9"}, "largest possible rate"),
        ({"eta": "a"}, "missing rates separated by commas"),
        ({"way": 9}, "only 4 novel classes"),
        ({"queries": 500}, "lower --shot or --queries"),
        ({"splits": "some"}, "number from 1 or 'all'"),
        ({"splits": 0}, "number from 1 or 'all'"),
        ({"episodes": 0}, "at least 1 per split"),
        ({"methods": "prot"}, "did you mean proto"),
        ({"methods": "proto:pading=zero"}, "did you mean padding"),
        ({"missing": "patterns"}, "no patterns"),
        ({"missing": "often"}, "use one of uniform"),
        ({"query_counts": "unfair"}, "dirichlet:2"),
        ({"scaling": "big"}, "use one of paper, scale"),
        ({"protocol": "mine"}, "use one of splits, paper"),
        ({"device": "toaster"}, "use 'cpu'"),
        ({"base": "digits"}, "is the data set itself"),
    ],
)
def test_mistakes_come_out_before_any_work(changes: dict[str, object], message: str) -> None:
    with pytest.raises(FewviewError, match=message):
        plan(small(**changes))


def test_jobs_must_be_positive() -> None:
    with pytest.raises(FewviewError, match="number of processes"):
        run(small(), jobs=0)


# ---------------------------------------------------------------------- a user's own data


def test_own_data_from_memory_and_from_a_file(tmp_path: Path) -> None:
    data = toy()
    data.write(tmp_path / "toy.npz")
    memory = run(replace(small(), datasets=(data,)))
    file = run(replace(small(), datasets=(str(tmp_path / "toy.npz"),)))
    assert [cell.describe() for cell in memory.cells] == [cell.describe() for cell in file.cells]
    cell = memory.cells[0]
    assert (len(cell.base_classes), len(cell.novel), cell.way, cell.queries) == (4, 2, 2, 11)
    assert cell.novel[0].startswith("class ")
    one, two = ([r.metrics.accuracy.tolist() for r in o.results.values()] for o in (memory, file))
    assert one == two


def test_sources_know_what_is_usual() -> None:
    digits, own = find_source("digits"), find_source(toy(n_classes=10))
    assert (digits.way, digits.n_base, digits.n_novel, digits.n_splits) == (3, 6, 4, 210)
    assert (own.n_base, own.n_novel, own.way, own.fitting_queries(1)) == (6, 4, 4, 11)
    assert [row[1:] for row in splits_of(small(), digits)] == [(0, 0, 6), (1, 0, 6)]


def test_patterns_of_the_data_decide_eta() -> None:
    outcome = run(replace(small(missing="patterns", eta="0,0.3"), datasets=(toy(gaps=True),)))
    assert {round(cell.eta, 3) for cell in outcome.cells} == {0.167}


def test_gaps_of_the_data_are_told_once() -> None:
    grid = make_grid([toy(gaps=True)], eta="0,0.1,0.4", splits=2, episodes=2)  # lacks 1/6
    with pytest.warns(FewviewWarning, match=r"lacks .* 0\.17 of all.*\(0, 0\.1\)") as caught:
        run(grid, "none")
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plan(make_grid([toy(gaps=True)], eta="0.4", splits=2, episodes=2))
        plan(make_grid([toy(gaps=True)], missing="patterns", splits=2, episodes=2))
        plan(make_grid([toy()], splits=2, episodes=2))


def test_as_many_class_splits_as_there_are_and_that_is_told_once() -> None:
    four = toy("four", n_classes=4)  # two of four classes: six ways
    grid = make_grid([four], methods="proto,match", eta="0,0.3", episodes=2)
    with pytest.warns(FewviewWarning, match=r"'four': 6 of the 10 class splits") as caught:
        rows, outcome = bench(grid, store="none")
    assert len(caught) == 1
    assert {row["n_splits"] for row in rows} == {6}
    assert len({cell.novel for cell in outcome.cells}) == 6
    with pytest.warns(FewviewWarning, match="210 of the 211"):
        cells = plan(make_grid(["digits"], splits=211, episodes=2))
    assert len({cell.novel for cell in cells}) == 210
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plan(make_grid([four], splits=6, episodes=2))


def test_classes_too_small_for_unequal_counts_are_told_once() -> None:
    # Twelve samples a class, one shot: eleven queries of each are all there are.
    options: dict[str, Any] = {
        "query_counts": "dirichlet:0.001",
        "way": 2,
        "splits": 2,
        "episodes": 2,
    }
    with pytest.warns(
        FewviewWarning, match=r"'toy': .* 'dirichlet:0.001' with 22 queries"
    ) as caught:
        outcome = run(make_grid([toy()], queries=11, **options), "none")
    assert len(caught) == 1
    assert not outcome.failures
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plan(make_grid([toy()], queries=5, **options))
    # 0.9 of 2 x 6 queries is 10.8, of 2 x 7 12.6.
    with pytest.warns(FewviewWarning, match="lower --queries to 6$"):
        plan(make_grid([toy()], queries=11, **options | {"query_counts": "dominant:0.9"}))


def test_advice_on_three_classes_with_gaps(capsys: pytest.CaptureFixture[str]) -> None:
    data = toy("three", n_classes=3, gaps=True)
    with pytest.warns(FewviewWarning, match="3 of the 5 class splits") as caught:
        advice = give_advice(data, methods="proto", episodes=2, progress=PlainProgress())
    assert len(caught) == 1  # the gaps are meant to be there
    assert [row["n_splits"] for row in advice.rows] == [3] * 4
    assert "17 % of views missing" in capsys.readouterr().err


def test_advice_on_one_division_says_nothing_of_chance() -> None:
    advice = give_advice(toy("one"), methods="proto,match", splits=1, episodes=2)
    assert len(advice.rows) == 5
    assert "nan" not in advice.sentence
    assert "not clearly worse" in advice.sentence


def test_base_from_other_data() -> None:
    target, other = toy("target", 3), toy("other", 6)
    grid = replace(small(), datasets=(target,), base=other, splits=3)
    outcome = run(grid)
    assert {cell.base for cell in outcome.cells} == {"other"}
    assert {len(cell.novel) for cell in outcome.cells} == {3}
    assert {len(cell.base_classes) for cell in outcome.cells} == {6}
    # One fixed split: repetitions redraw episodes, and there is no spread over splits.
    assert {(cell.start, cell.stop) for cell in outcome.cells} == {(0, 6), (6, 12), (12, 18)}
    row = summarise_planned(outcome.cells, outcome.results)[0]
    assert (row["split_low"], row["split_high"], row["n_splits"]) == (None, None, 1)
    assert row["n_episodes"] == 18


def test_base_with_other_views_is_named() -> None:
    other = toy("other").drop_views(["b"])
    with pytest.raises(FewviewError, match="view 'b'"):
        plan(replace(small(), datasets=(toy(),), base=other))


def test_split_written_in_a_file(tmp_path: Path) -> None:
    data = toy()
    parts = np.array(["base"] * 36 + ["val"] * 12 + ["novel"] * 24)
    path = tmp_path / "fixed.npz"
    np.savez(
        path,
        view_a=data.view("a"),
        view_b=data.view("b"),
        y=np.repeat(np.arange(6), 12),
        split=parts,
    )
    cell = plan(replace(small(), datasets=(str(path),)))[0]
    assert (cell.base_classes, cell.novel, cell.fixed) == (("0", "1", "2"), ("4", "5"), True)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (toy().with_labels(None), "no labels"),
        (toy(n_classes=2), "at least 3 are needed"),
    ],
)
def test_unfit_data_are_named(data: MultiViewData, message: str) -> None:
    with pytest.raises(FewviewError, match=message):
        plan(replace(small(), datasets=(data,)))


def test_dirichlet_queries_and_class_dependent_gaps() -> None:
    outcome = run(small(query_counts="dirichlet:2", missing="class", eta="0.5"))
    metrics = next(iter(outcome.results.values())).metrics
    assert not np.allclose(metrics.accuracy, metrics.balanced_accuracy)


# ---------------------------------------------------------------------- stopping it


def _command(store: Path, out: Path, jobs: int = 1) -> list[str]:
    return [
        sys.executable, "-m", "fewview.evaluate", "digits", "--methods", "proto,match,partial-nn",
        "--eta", "0,0.2,0.4", "--splits", "6", "--episodes", "20", "--store", str(store),
        "--json", str(out), "--jobs", str(jobs),
    ]  # fmt: skip


def _stored(store: Path) -> int:
    if not store.exists():
        return 0
    try:
        with Store(store, write=False) as reader:
            return len(reader)
    except FewviewError:
        return 0  # the file is being created


def _accuracies(path: Path) -> list[tuple[object, ...]]:
    rows = json.loads(path.read_text())
    return [(row["method"], row["eta"], row["accuracy"], row["log_loss"]) for row in rows]


def test_killed_and_resumed_equals_uninterrupted(tmp_path: Path) -> None:
    """A small version of benchmarks/kill_test.py: one kill -9 at a random cell."""
    store, out = tmp_path / "killed.sqlite", tmp_path / "killed.json"
    target = random.Random(7).randint(3, 25)
    process = subprocess.Popen(_command(store, out), stderr=subprocess.DEVNULL)
    while _stored(store) < target and process.poll() is None:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    kept = _stored(store)
    assert kept >= target or process.returncode == 0
    assert not out.exists() or process.returncode == 0
    resumed = subprocess.run(_command(store, out), capture_output=True, text=True, check=True)
    assert f"54 trials: {kept} already stored" in resumed.stderr
    whole = tmp_path / "whole.json"
    # In this process, which has one thread as the others do.
    assert main(_command(tmp_path / "whole.sqlite", whole)[3:]) == 0
    assert _accuracies(out) == _accuracies(whole)


@pytest.mark.skipif(os.name == "nt", reason="POSIX signals")
def test_ctrl_c_is_clean_and_leaves_no_workers(tmp_path: Path) -> None:
    store, out = tmp_path / "a.sqlite", tmp_path / "a.json"
    process = subprocess.Popen(
        _command(store, out, jobs=2), stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    while _stored(store) < 1 and process.poll() is None:
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode in (130, 0)
    assert "Traceback" not in errors
    nobody_is_left(process.pid)


def nobody_is_left(group: int) -> None:
    deadline = time.monotonic() + 20  # dead ones count until the system has cleared them away
    while time.monotonic() < deadline:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return
        time.sleep(0.1)
    pytest.fail("a worker process is left")


@pytest.mark.skipif(os.name == "nt", reason="POSIX signals")
def test_a_killed_parent_leaves_no_workers(tmp_path: Path) -> None:
    store = tmp_path / "a.sqlite"
    process = subprocess.Popen(
        _command(store, tmp_path / "a.json", jobs=2), stderr=subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip
    while _stored(store) < 1 and process.poll() is None:
        time.sleep(0.02)
    process.kill()
    process.wait()
    nobody_is_left(process.pid)


PARTS = """
from pathlib import Path
import numpy as np
import fewview.evaluate.parts._pieces as pieces
from fewview import MultiViewData, create
from fewview.evaluate._progress import Progress
from fewview.evaluate.parts._larger import predict_parts
from fewview.samples._parts import TableParts

pieces.MOST_ROWS = 8
rows = MultiViewData({"a": np.ones((8000, 2))}, ids=[*range(8000)])
Path("q").mkdir()
rows.write("q/0", format="csv")
clf = create("proto").fit({"a": [[0.0, 1.0], [1.0, 0.0]]}, ["x", "y"])
predict_parts(clf, TableParts.open("q"), Path("p.csv"), jobs=2, progress=Progress())
"""


@pytest.mark.skipif(os.name == "nt", reason="POSIX signals")
def test_a_killed_parent_leaves_no_workers_on_parts(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", PARTS], cwd=tmp_path, stderr=subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip
    while not [*tmp_path.glob("p.csv/part-*")] and process.poll() is None:
        time.sleep(0.02)
    assert process.poll() is None
    process.kill()
    process.wait()
    nobody_is_left(process.pid)


SCRIPT = """
import os
from dataclasses import dataclass
from fewview import FewviewError, Proto, register
from fewview.evaluate import make_grid, run
from fewview.evaluate._executors import kept_workers

@register("mine")
@dataclass(kw_only=True, eq=False, repr=False)
class Mine(Proto):
    deed: str = "work"

    def scores(self, batch, state):
        if self.deed == "die":
            os.kill(os.getpid(), 9)
        if self.deed == "complain":
            raise FewviewError("cannot be done")
        return super().scores(batch, state)

with kept_workers():  # new ones for every deed would take most of the time
    for deed in ("work", "complain", "die"):
        try:
            grid = make_grid(["digits"], methods=f"mine:deed={deed}", splits=3, episodes=2)
            outcome = run(grid, jobs=2)
            print(outcome.computed, outcome.failures)
        except FewviewError as error:
            print(error)
"""


@pytest.mark.skipif(os.name == "nt", reason="POSIX signals")
def test_methods_of_a_script_in_processes(tmp_path: Path) -> None:
    """The script needs no guard; what happens in a worker process is told here."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True)
    worked, complained, died = done.stdout.strip().splitlines()
    assert worked == "3 ()"
    assert complained == "cannot be done"
    assert "digits, split 1, 0 % of views missing, mine:deed=die" in died
    assert "exit code -9" in died
    assert "Traceback" not in done.stderr


GRIDS = """
import os
from fewview import Proto, register
from fewview.evaluate import make_grid, run
from fewview.evaluate._executors import kept_workers

@register("mine")
class Mine(Proto):
    def scores(self, batch, state):
        open(f"{os.environ['SEEN']}/{os.getpid()}", "w").close()
        return super().scores(batch, state)

def some(**more):
    run(make_grid(["digits"], methods="mine", episodes=2, **more), jobs=2)
    return len(os.listdir(os.environ["SEEN"]))

print(os.getpid())
print(some(splits=3, eta="0,0.2,0.5"))
with kept_workers():
    print(*[some(splits=2, eta=eta) for eta in ("0", "0.1", "0.2", "0.3", "0.4")])
    print(some(splits=1))
"""


def test_processes_are_kept_over_grids(tmp_path: Path) -> None:
    """Two for a grid, two for five grids in a block; a single cell is computed in this one."""
    (tmp_path / "seen").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", GRIDS], capture_output=True, text=True,
        env=os.environ | {"SEEN": str(tmp_path / "seen")},
    )  # fmt: skip
    here, one, five, alone = done.stdout.splitlines()
    assert int(one) in (1, 2)  # the quicker one may have done it all
    assert int(five.split()[-1]) - int(one) in (1, 2)
    assert int(alone) == int(five.split()[-1]) + 1
    assert here in {path.name for path in (tmp_path / "seen").iterdir()}


def rows_of_grid(grid: Grid) -> list[dict[str, Any]]:
    return bench(grid, store="none")[0]
