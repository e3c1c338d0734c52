"""`python -m reproduction`: computing, going on after a stop, checking, showing, the page."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from fewview.evaluate import Progress
from fewview.results import Result
from reproduction import claims, figures, page, run
from reproduction.__main__ import main
from reproduction.records import COLUMNS, origin, read_json, read_results
from reproduction.run import Part, beside_record, find_study, load_studies


class Stopping(Progress):
    """Stops a run as a user does, after some cells."""

    def __init__(self, after: int) -> None:
        self.left, self.reused = after, 0

    def planned(self, total: int, reused: int, stale: int) -> None:
        self.reused += reused

    def finished(self, result: Result) -> None:
        self.left -= 1
        if not self.left:
            raise KeyboardInterrupt


def small() -> Part:
    """A small table of the embedded data set."""
    return Part(study="small", dataset="digits", methods={"Proto": "proto", "PTMAP": "ptmap"},
                rates=(0.0, 0.5), splits=2, episodes=5)  # fmt: skip


def test_a_small_table_is_computed_and_goes_on_after_a_stop(tmp_path: Path) -> None:
    whole, made = run.run([small()])
    assert list(whole.columns) == [*COLUMNS, "dataset"]
    assert len(whole) == 2 * 2 * 2
    assert set(whole["method"]) == {"Proto", "PTMAP"}
    assert whole["accuracy"].between(20, 100).all()
    assert set(whole["run"]) == set(made["runs"])
    assert {made["settings"][key]["method"] for key in whole["settings"]} == {"proto", "ptmap"}
    assert all(re.fullmatch("[0-9a-f]{8}|unknown", one["commit"]) for one in made["runs"].values())
    # The same tasks for both methods: one draw of episodes per class split and rate.
    store = tmp_path / "store.sqlite"
    with pytest.raises(KeyboardInterrupt):
        run.run([small()], str(store), progress=Stopping(after=3))
    second = Stopping(after=99)
    again, _ = run.run([small()], str(store), progress=second)
    assert second.reused == 3
    assert second.left == 99 - 5, "what is stored is not computed again"
    assert again["accuracy"].tolist() == whole["accuracy"].tolist()


def test_rows_are_compared_with_those_of_the_same_class_splits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    study = replace(find_study("cub"), rows={"Proto": "proto", "PTMAP": "ptmap"})
    monkeypatch.setattr(run, "find_study", lambda name: study)
    rows, _ = run.run([small()])
    same = beside_record(rows, rows)
    assert same["agrees"].tolist() == ["yes"] * 4
    assert same["difference"].tolist() == [0.0] * 4
    wrong = rows.assign(accuracy=rows["accuracy"] + 5.0)
    assert beside_record(rows, wrong)["agrees"].tolist() == ["no"] * 4


def test_recorded_rows_can_be_computed_again(data_dir: Path) -> None:
    few = read_results().query("study == 'scene15' and method in ['Proto', 'Match']")
    found = run.check(few, 2)
    assert found["agrees"].tolist() == ["yes", "yes"]


def test_every_recorded_row_belongs_to_a_study_and_says_what_made_it() -> None:
    results, runs, settings = read_results(), read_json("runs"), read_json("settings")
    known = {(part.study, row) for study in load_studies().values()
             for part in study.parts for row in part.methods}  # fmt: skip
    pairs = zip(results["study"].str.removeprefix("likely/"), results["method"], strict=True)
    assert set(pairs) <= known
    assert set(results["run"]) == set(runs)
    assert set(results["settings"]) == set(settings)
    assert all({"commit", "date", "device", "versions"} <= set(one) for one in runs.values())
    # A row's settings are those that the study has now.
    for study in load_studies().values():
        for part in study.parts:
            some = results[results["study"] == part.study]
            for row, text in part.methods.items():
                made = {settings[key]["method"] for key in some[some["method"] == row]["settings"]}
                # When figure 5 was recorded Marginal could choose its settings; these were stated.
                assert made <= {text, f"{text}:settings=default"}, (part.study, row)


def test_the_quick_protocol_leaves_out_what_is_slow() -> None:
    parts = find_study("cub").planned(quick=True)
    assert [(part.splits, part.episodes) for part in parts] == [(1, 40)]
    assert set(parts[0].methods) == set(find_study("cub").rows) - {
        "CPM", "CPM-GAN", "ICMSC", "COMPLETER",
    }  # fmt: skip
    for part in find_study("figure7").planned(quick=True):
        assert part.study.rpartition("/")[2] in ("N_F", "k"), "iter and N are of Algorithm 1"


def test_the_page_is_up_to_date_and_begins_with_the_verdict(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert main(["page", "--check"]) == 0, "run python -m reproduction page"
    text = page.PAGE.read_text(encoding="utf-8")
    first = text.split("\n\n")[1]
    assert first.startswith(claims.summary())
    assert re.match(r"\d+ of 32 testable claims hold, \d+ fail, \d+ are undecided\.", first)
    words = [line for line in text.splitlines() if not line.startswith("|")]
    assert len(" ".join(words).split()) < 1800
    changed = tmp_path / "reproduction.md"
    changed.write_text(text.replace("82.1", "82.2"), encoding="utf-8")
    monkeypatch.setattr(page, "PAGE", changed)
    assert main(["page", "--check"]) == 2
    assert "not up to date" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["cub", "animal", "ablation", "figure3", "figure4", "figure6"])
def test_what_is_recorded_is_shown(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", name]) == 0
    out = capsys.readouterr().out
    assert find_study(name).title in out
    assert ("recorded in commit" in out) == (name != "animal")


@pytest.mark.parametrize("name", ["figure4", "figure5", "figure7"])
def test_figures_are_drawn_from_records(name: str, tmp_path: Path) -> None:
    path = tmp_path / f"{name}.svg"
    assert main(["show", name, "--format", "csv", "--output", str(path)]) == 0
    assert ElementTree.parse(path).getroot().tag.endswith("svg")
    results = read_results()
    table = figures.numbers(find_study(name), results[results["study"].str.startswith(name)])
    (panels,) = {len(figures.draw(find_study(name), table, {}).axes)}
    assert panels == {"figure4": 2, "figure5": 2, "figure7": 8}[name]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["show", "table2"], "no study called 'table2'; use one of cub, "),
        (["run", "nothing"], "no study called 'nothing'"),
        (["run"], "give a study"),
        (["run", "cub", "--quick", "--record"], "--record without --quick"),
        (["run", "cub", "--only", "UGDA,Nobody"], "cub has no row"),
        (["run", "likely/animal"], "no class split is weighed"),
        (["show", "cub", "--output", "a.pdf"], "nothing to draw"),
    ],
)
def test_wrong_input_is_told(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    assert told in capsys.readouterr().err


def test_help_has_the_commands_that_people_need(capsys: pytest.CaptureFixture[str]) -> None:
    for words in ([], ["run"], ["show"], ["claims"], ["page"]):
        with pytest.raises(SystemExit, match="0"):
            main([*words, "--help"])
        assert "python -m reproduction run cub --quick" in capsys.readouterr().out


def test_single_tasks_are_those_of_the_tables(data_dir: Path) -> None:
    study = find_study("figure4")
    tasks = figures.Tasks("scene15", 0.5, count=2)
    method, prepared, batch, truth = tasks.prepare("proto")
    scores: Any = method.score_batch(batch, prepared).argmax(-1).cpu().numpy()
    part = replace(find_study("scene15").parts[0], rates=(0.5,), splits=1, episodes=2,
                   methods={"Proto": "proto"})  # fmt: skip
    assert 100 * (scores == truth).mean() == pytest.approx(run.run([part])[0]["accuracy"][0])
    assert study.options["tasks"] == 8
    # Two anchors and three queries on a line: the first two queries are nearest to their own.
    import numpy as np

    anchors, queries = np.array([[0.0], [10.0]]), np.array([[1.0], [9.0], [4.0]])
    own = figures.own_nearest(anchors, np.array([0, 1]), queries, np.array([0, 1, 1]))
    assert own == pytest.approx(200 / 3)
    assert "recorded in commit" in origin(read_results())
