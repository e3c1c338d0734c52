"""Recorded results: written from a store, merged, shown again without data, found out of date.

Nothing here depends on the numbers that the package has recorded.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fewview.engine._registry import create
from fewview.evaluate import Grid
from fewview.ground._errors import FewviewError
from fewview.paper import _compute as compute
from fewview.paper._beside import compare
from fewview.paper._claims import our_evidence, table
from fewview.paper._compute import Desk, announce, gather_all, recall, record
from fewview.paper._make import make, record_sheet
from fewview.paper._pictures import Picture
from fewview.paper._printed import TABLES
from fewview.paper._recorded import (
    COLUMNS,
    FOLDER,
    RUNS,
    SETTINGS,
    options_of,
    read_json,
    read_rows,
    stale,
    stem,
    write_json,
)
from fewview.paper._sheets import Sheet
from fewview.paper._studies import NAMES, Part, Wish

NOWHERE = "/nowhere/at/all"  # no data there


def table_of_digits(monkeypatch: pytest.MonkeyPatch, methods: dict[str, str]) -> None:
    """Let the table `cub` be about the digits that come with fewview."""
    from fewview.evaluate._grid import Grid

    def parts(name: str, wish: Wish) -> list[Part]:
        assert name == "cub"
        chosen = {k: v for k, v in methods.items() if not wish.only or v in wish.only}
        grid = Grid(
            datasets=("digits",), methods=tuple(chosen.values()), etas=(0.0, 0.5), splits=2,
            episodes=3, scaling="paper", padding="paper",
        )  # fmt: skip
        return [Part("table", grid, ("cub",), chosen)]

    monkeypatch.setattr(compute, "parts_of", parts)


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """A desk whose store has Proto and Match on the digits, and whose records are empty."""
    table_of_digits(monkeypatch, {"Proto": "proto", "Match": "match"})
    made = Desk(store=str(tmp_path / "a.sqlite"), records=tmp_path / "records")
    gather_all("cub", Wish(), made)
    return made


def test_recorded_rows_are_the_results_themselves(desk: Desk) -> None:
    (computed,) = gather_all("cub", Wish(), desk)
    assert "4 rows recorded, 4 of 4" in record("cub", Wish(), desk)
    (recalled,) = recall("cub", Wish(data_dir=NOWHERE), desk.records)
    for method in ("proto", "match"):
        for eta in (0.0, 0.5):
            one, two = computed.row(method, eta), recalled.row(method, eta)
            assert one is not None
            assert two is not None
            for name in ("accuracy", "standard_error", "range_low", "balanced_accuracy"):
                assert two[name] == pytest.approx(one[name], abs=1e-4)
            for name in ("splits", "n_episodes", "label", "dataset", "way", "queries", "device"):
                assert two[name] == one[name]
            means = computed.per_split(method, eta)
            assert recalled.per_split(method, eta) == pytest.approx(means, abs=1e-4)
    assert [row["label"] for row in recalled.labelled()] == ["Proto"] * 2 + ["Match"] * 2
    assert recalled.devices == computed.devices == ("cpu",)
    assert compute.versions_line([recalled]) == compute.versions_line([computed])
    lines = [compute.protocol_line([item], Wish()) for item in (computed, recalled)]
    assert lines[0] == lines[1]
    assert our_evidence([recalled])[table("cub", "Proto", 0.0)] == pytest.approx(
        computed.per_split("proto", 0.0), abs=1e-4
    )


def test_a_table_from_records_needs_no_data(desk: Desk) -> None:
    record("cub", Wish(), desk)
    shown = replace(desk, recorded=True)
    sheet = make("cub", Wish(data_dir=NOWHERE), shown, "the command")
    assert isinstance(sheet, Sheet)
    ours = {(row["method"], row["eta"]): row["ours"] for row in sheet.rows}
    assert isinstance(ours["Proto", 0.5], float)
    assert "recorded results, computed 20" in sheet.notes[0]
    assert "on cpu by 'fewview reproduce NAME --compute --device cpu'" in sheet.notes[0]
    assert "'fewview reproduce cub --compute' computes here" in sheet.notes[0]
    few = make("cub", Wish(only=("match",)), shown, "x")
    assert isinstance(few, Sheet)
    assert {row["method"] for row in few.rows if isinstance(row["ours"], float)} == {"Match"}


def test_rounded_products_are_told(desk: Desk, tmp_path: Path) -> None:
    torch.set_float32_matmul_precision("high")
    try:
        other = replace(desk, store=str(tmp_path / "b.sqlite"))
        (computed,) = gather_all("cub", Wish(only=("match",)), other)
    finally:
        torch.set_float32_matmul_precision("highest")
    assert computed.rounded == ["Match"]
    record("cub", Wish(), desk)
    record("cub", Wish(only=("match",)), other)
    sheet = make("cub", Wish(), replace(desk, recorded=True), "x")
    assert isinstance(sheet, Sheet)
    assert "Match: factors of float32 products were rounded to TF32" in sheet.notes


def test_nothing_of_a_sample_or_an_episode_is_recorded(desk: Desk) -> None:
    record("cub", Wish(), desk)
    for row in read_rows(desk.records / "cub.csv"):
        assert set(row) == set(COLUMNS)
        assert set(row["split_means"]) == {0, 1}  # of three episodes each


def test_a_new_row_replaces_its_own_and_no_other(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    record("cub", Wish(), desk)
    path = desk.records / "cub.csv"
    first = path.read_text(encoding="utf-8")
    record("cub", Wish(), desk)
    assert path.read_text(encoding="utf-8") == first  # nothing new, not a byte changes
    lines = first.splitlines()
    broken = [line.replace(",proto,1,", ",proto,0,") for line in lines]
    path.write_text("\n".join(broken) + "\n", encoding="utf-8")
    record("cub", Wish(only=("match",)), desk)
    versions = {row["label"]: row["version"] for row in read_rows(path)}
    assert versions == {"Proto": "0", "Match": "1"}
    record("cub", Wish(only=("proto",)), desk)
    assert path.read_text(encoding="utf-8") == first
    # A line that the study no longer has goes, with its settings.
    assert len(read_json(desk.records / SETTINGS)) == 2
    table_of_digits(monkeypatch, {"Match": "match"})
    record("cub", Wish(), desk)
    assert {row["label"] for row in read_rows(path)} == {"Match"}
    assert len(read_json(desk.records / SETTINGS)) == 1


def test_rows_of_data_sets_that_are_not_here_stay(desk: Desk) -> None:
    """The study still has them, only not on this machine."""
    record("cub", Wish(), desk)
    path = desk.records / "cub.csv"
    lines = path.read_text(encoding="utf-8").splitlines()
    other = [line.replace(",digits,digits,", ",orl,orl,") for line in lines[1:]]
    path.write_text("\n".join([*lines, *other]) + "\n", encoding="utf-8")
    assert "4 rows recorded, 8 of 8" in record("cub", Wish(), desk)
    assert path.read_text(encoding="utf-8").splitlines() == [*lines, *other]


def test_rows_with_cells_missing_are_not_recorded(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    table_of_digits(monkeypatch, {"Proto": "proto", "RFS": "rfs"})
    said = record("cub", Wish(), replace(desk, store="none", others=(desk.path,)))
    assert "2 rows recorded, 2 of 4" in said


def test_other_options_are_another_file(desk: Desk) -> None:
    wish = Wish(preset="paper", device="cuda", data_dir="x", only=("proto",))
    assert options_of(wish) == "--preset paper"
    assert stem("cub", wish) == "cub--preset-paper"
    assert stem("cub", Wish(quick=True)) == "cub--quick"
    record("cub", Wish(), desk)
    record("cub", Wish(quick=True), desk)
    assert {path.name for path in desk.records.iterdir()} == {
        "cub.csv", "cub--quick.csv", RUNS, SETTINGS,
    }  # fmt: skip
    with pytest.raises(FewviewError, match=r"cub --preset paper \(recorded: cub, cub--quick\)"):
        recall("cub", Wish(preset="paper"), desk.records)


def test_what_is_not_recorded_says_what_to_type(tmp_path: Path) -> None:
    desk = Desk(recorded=True, records=tmp_path)
    for name in ("figure3", "figure4", "figure5", "figure6", "shots", "claims"):
        with pytest.raises(FewviewError, match=f"'fewview reproduce {name} --compute' computes it"):
            make(name, Wish(), desk, "x")
    sheet = make("animal", Wish(data_dir=NOWHERE), desk, "x")
    assert isinstance(sheet, Sheet)
    assert "nothing is recorded for animal" in sheet.notes[0]
    assert "cell array X" in sheet.notes[1]  # how to get the data


def test_methods_that_a_record_does_not_have_are_an_error(desk: Desk, tmp_path: Path) -> None:
    record("cub", Wish(), desk)
    with pytest.raises(FewviewError, match="recorded are match, proto"):
        recall("cub", Wish(only=("rfs",)), desk.records)
    kept = {"title": "t", "columns": ["panel"], "protocol": "p", "versions": "v", "notes": [],
            "rows": [{"panel": "Concat"}, {"panel": "CPM"}], "summary": [], "command": "c",
            "device": "cpu", "computed": "2026-01-01"}  # fmt: skip
    for name in ("figure3", "figure6"):
        write_json(tmp_path / f"{name}.json", kept)
    shown = Desk(recorded=True, records=tmp_path)
    for name, method in (("figure3", "tim"), ("figure6", "proto")):
        with pytest.raises(FewviewError, match=f"--only {method} is none of its methods"):
            make(name, Wish(only=(method,)), shown, "x")
    sheet = make("figure3", Wish(only=("cpm",)), shown, "x")
    assert isinstance(sheet, Sheet)
    assert sheet.rows == [{"panel": "CPM"}]


def test_an_older_version_is_named(desk: Desk) -> None:
    record("cub", Wish(), desk)
    path = desk.records / "cub.csv"
    rows = read_rows(path)
    assert stale(rows, desk.records) == []
    path.write_text(path.read_text(encoding="utf-8").replace(",match,1,", ",match,0,"))
    assert stale(read_rows(path), desk.records) == ["match: recorded with version 0, now 1"]
    sheet = make("cub", Wish(), replace(desk, recorded=True), "x")
    assert isinstance(sheet, Sheet)
    assert "out of date: match: recorded with version 0, now 1" in sheet.notes
    known = read_json(desk.records / SETTINGS)
    changed = {key: text.replace("padding=zero", "padding=base") for key, text in known.items()}
    write_json(desk.records / SETTINGS, changed)
    assert stale(rows[:1], desk.records) == ["proto: recorded with padding=base, now padding=zero"]


def test_a_file_that_is_no_record_is_said(tmp_path: Path) -> None:
    (tmp_path / "cub.csv").write_text("a,b\n1,2\n")
    with pytest.raises(FewviewError, match="not a file of recorded results"):
        recall("cub", Wish(), tmp_path)
    (tmp_path / "figure3.json").write_text("{")
    with pytest.raises(FewviewError, match="not a JSON file"):
        make("figure3", Wish(), Desk(recorded=True, records=tmp_path), "x")


def test_figures_of_single_tasks_keep_their_sheet(tmp_path: Path) -> None:
    from matplotlib.figure import Figure

    sheet = Sheet(name="figure6", title="t", columns=("dataset", "accuracy"), protocol="p",
                  rows=({"dataset": "orl", "accuracy": 1 / 3},), versions="v", command="c",
                  summary=("s",))  # fmt: skip
    points = [{"dataset": "cub", "x": 1.0, "y": 2.0}]
    desk = Desk(records=tmp_path)
    picture = Picture(sheet=sheet, figure=Figure(), points=points)
    said = record_sheet("figure6", picture, Wish(), desk)
    assert said == "figure6: 1 rows of its sheet recorded"
    kept = json.loads((tmp_path / "figure6.json").read_text())
    assert "points" not in kept  # places of single samples
    shown = make("figure6", Wish(), replace(desk, recorded=True), "the command")
    assert isinstance(shown, Sheet)
    assert shown.rows == [{"dataset": "orl", "accuracy": 0.333333}]
    assert "needs the data: caltech102 and scene15" in shown.notes[1]


def test_the_loss_of_figure_4_is_recorded_for_the_claims(tmp_path: Path) -> None:
    from matplotlib.figure import Figure

    from fewview.paper._task_figures import loss_paths

    points = [{"part": "b", "dataset": "scene15", "iteration": k + 1, "loss": 2.0 / (k + 1),
               "task_1": 1.0 / (k + 1), "task_2": 3.0 / (k + 1)}
              for k in range(3)] + [{"part": "c", "dataset": "scene15", "x": 0.5}]  # fmt: skip
    rows = [{"part": "a", "value": 1.0}, {"part": "c", "value": 80.0}]
    sheet = Sheet(name="figure4", title="t", columns=("part", "value"), rows=rows, protocol="p",
                  versions="v", command="c")  # fmt: skip
    desk = Desk(records=tmp_path)
    record_sheet("figure4", Picture(sheet=sheet, figure=Figure(), points=points), Wish(), desk)
    assert [row["part"] for row in read_json(tmp_path / "figure4.json")["rows"]] == ["c"]
    paths = loss_paths(Wish(), replace(desk, recorded=True), 8)
    assert list(paths) == ["scene15"]
    assert paths["scene15"].tolist() == [[1.0, 3.0], [0.5, 1.5], [0.333333, 1.0]]


def test_an_estimate_comes_before_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fewview.evaluate._progress import Progress

    class Heard(Progress):
        def __init__(self) -> None:
            self.lines: list[str] = []

        def message(self, text: str) -> None:
            self.lines.append(text)

    monkeypatch.setattr(compute, "PROBE_SECONDS", 600.0)  # however busy the machine is
    table_of_digits(monkeypatch, {"Proto": "proto", "Match": "match", "CPM": "cpm"})
    heard = Heard()
    desk = Desk(store=str(tmp_path / "a.sqlite"), progress=heard, records=tmp_path / "records")
    announce(["cub"], Wish(), desk)
    assert "12 cells to compute" in heard.lines[0]
    assert "estimate: about" in heard.lines[-1]
    assert "(3 methods timed)" in heard.lines[-1]  # few epochs of the networks are
    assert "not counting" not in heard.lines[-1]
    assert len(desk.expected) == 12
    assert all(seconds > 0 for seconds in desk.expected.values())
    table_of_digits(monkeypatch, {"Proto": "proto", "Match": "match"})
    gather_all("cub", Wish(), desk)
    assert "left of all" in heard.lines[-1]
    assert len(desk.expected) == 4  # those of CPM, which is no longer in the table
    announce(["cub"], Wish(), desk)
    assert heard.lines[-1] == "all cells are stored, nothing is computed"


@pytest.mark.parametrize(
    ("method", "few", "many"),
    [
        ("cpm", ("epochs=1:query_epochs=1", "epochs=6:query_epochs=4"), 20),
        ("icmsc", ("epochs=1+3", "epochs=4+12"), 25),
        ("completer:epochs=50", ("epochs=1:warm_up=0", "epochs=4:warm_up=0"), 50),
        ("ugda:solver=adam", ("n_iter=1", "n_iter=4"), 30),
        ("rfs+ugda:ugda__solver=adam", ("ugda__n_iter=1", "ugda__n_iter=4"), 30),
    ],
)
def test_of_what_is_repeated_few_rounds_are_timed(
    method: str, few: tuple[str, str], many: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def timed_once(text: str, grid: Grid) -> tuple[float, float]:
        asked.append(text)
        return (0.5, 7.0) if len(asked) < 3 else (2.0, 7.0)

    monkeypatch.setattr(compute, "_timed_once", timed_once)
    # Half a second a round, and a preparation that no round makes longer.
    assert compute._timed(method, Grid(datasets=("digits",), methods=("proto",))) == pytest.approx(
        (0.5 * many, 7.0)
    )
    one, more = (f"{method.replace(':epochs=50', '')}:{text}" for text in few)
    assert asked[1:] == [one, more]
    assert len(set(asked)) == 3
    for text in asked:
        create(text)


@pytest.mark.parametrize("recorded_on", ["digits", "another"])
def test_an_estimate_scales_what_is_recorded(
    recorded_on: str, desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record("cub", Wish(), desk)
    # As if Match had been recorded as a hundred times slower than Proto, and Proto alone timed.
    groups = [("digits", "proto"), (recorded_on, "match")]
    known = dict(zip(groups, ((0.1, 0.0), (10.0, 0.0)), strict=True))
    monkeypatch.setattr(compute, "_recorded_seconds", lambda folder: known)
    monkeypatch.setattr(compute, "_probe", lambda *_: {groups[0]: (0.2, 0.0)})
    fresh = Desk(store=str(tmp_path / "b.sqlite"), records=desk.records)
    announce(["cub"], Wish(), fresh)
    # Two splits x two rates x three episodes, twice as slow here as recorded.
    assert sum(fresh.expected.values()) == pytest.approx(2 * 12 * (0.1 + 10.0))


# ------------------------------------------------------------------ what comes with the package


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.csv")), ids=lambda path: path.stem)
def test_recorded_files_can_be_read_and_are_named_after_a_study(path: Path) -> None:
    name = path.stem.partition("--")[0]
    assert name in NAMES
    rows = read_rows(path)
    runs, settings = read_json(FOLDER / RUNS), read_json(FOLDER / SETTINGS)
    for row in rows:
        assert row["run"] in runs
        assert row["settings"] in settings
        means = row["split_means"].values()
        assert sum(means) / len(means) == pytest.approx(row["accuracy"], abs=1e-3)
    if name in TABLES and path.stem == name:
        compare(TABLES[name], recall(name, Wish(data_dir=NOWHERE)), Wish(data_dir=NOWHERE), "x")


def test_recorded_results_are_small() -> None:
    assert sum(path.stat().st_size for path in FOLDER.glob("*")) < 4e6


def test_recorded_results_are_of_the_present_methods() -> None:
    """A method that changed: record its rows again (docs/reproduction.md), or it is told to all."""
    found = {
        f"{path.stem}: {text}"
        for path in sorted(FOLDER.glob("*.csv"))
        for text in stale(read_rows(path))
    }
    assert found == set()
