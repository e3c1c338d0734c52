"""One place compares and ranks: the command line and the page of a store say the same."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fewview.cli._app import app
from fewview.report._contents import collect
from fewview.results._cells import Result, example_cell
from fewview.results._comparing import (
    compare,
    fair,
    label,
    panels,
    rank,
    rank_panels,
    split_name,
    verdict,
    winner,
)
from fewview.results._intervals import PairedComparison
from fewview.results._metrics import EpisodeMetrics
from fewview.results._store import Store
from fewview.samples import FewviewError

LEVELS = {"proto": 0.9, "match": 0.7, "rfs": 0.99}


def made(method: str, k: int, **changes: Any) -> Result:
    """A result on class split k that stands for no run."""
    # Splits differ most where there is most to lose, so that differences have a spread.
    values = LEVELS[method] + np.array([0.0, 0.002, -0.001]) * (k + 1) * (1 - LEVELS[method])
    metrics = EpisodeMetrics(values, values, 1 - values, 1 - values, np.ones((3, 15)))
    cell = example_cell(
        **{
            "method": method, "method_class": "Made", "parameters": method, "split": k,
            "stop": len(values), "novel": tuple("abcdefghij"[k : k + 4]), **changes,
        }
    )  # fmt: skip
    return Result(cell=cell, metrics=metrics, seconds=0.1, seconds_base=0.01)


def command(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[str, str]:
    assert not app(["results", *words], prog_name="fewview", standalone_mode=False)
    told = capsys.readouterr()
    return told.out, told.err


def test_the_command_line_and_the_page_rank_the_same_methods_over_the_same_splits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two methods on four class splits and one that has hardly begun."""
    path = tmp_path / "a.sqlite"
    found = [made(name, k) for name in LEVELS for k in range(4) if name != "rfs" or k == 0]
    with Store(path) as store:
        for result in found:
            store.add(result)
    (ranked,) = rank_panels(collect(found).panels)
    assert ranked.left_out == ["rfs"]
    out, errors = command(capsys, str(path), "--compare", "--format", "json")
    (line,) = re.findall(r"average ranks over (\d+) class splits: (.*?); not told", errors)
    assert int(line[0]) == ranked.ranking.n_blocks == 4
    shown = [
        f"{n} {r:.2f}" for n, r in zip(ranked.ranking.names, ranked.ranking.ranks, strict=True)
    ]
    assert line[1].split(", ") == shown == ["proto 1.00", "match 2.00"]
    assert "not ranked, because results are lacking: rfs" in errors
    (pair,) = json.loads(out)
    assert (pair["one"], pair["two"], pair["n_splits"]) == ("proto", "match", 4)


def test_kinds_of_tasks_are_ranked_each_for_itself(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.sqlite"
    with Store(path) as store:
        for shot in (1, 5):
            for name in ("proto", "match"):
                for k in range(shot + 1):
                    store.add(made(name, k, shot=shot))
    _, errors = command(capsys, str(path), "--compare", "--diagram", str(tmp_path / "ranks.svg"))
    assert "digits (shot 1): average ranks over 2 class splits" in errors
    assert "digits (shot 5): average ranks over 6 class splits" in errors
    assert f"written: {tmp_path / 'ranks-2.svg'} (digits (shot 5))" in errors
    assert (tmp_path / "ranks-1.svg").exists()


def test_ranks_over_data_sets_leave_out_a_method_that_lacks_one() -> None:
    found = [
        made(name, k, dataset=dataset)
        for dataset in ("one", "two", "three")
        for name in LEVELS
        for k in range(2)
        if name != "rfs" or dataset == "one"
    ]
    (ranked,) = rank(found)
    assert (ranked.unit, ranked.blocks) == ("data sets", "data sets (one, two, three)")
    assert (ranked.ranking.names, ranked.left_out) == (("proto", "match"), ["rfs"])
    # Where it has all class splits it is compared.
    assert {row["dataset"] for row in compare(found) if "rfs" in (row["one"], row["two"])} == {
        "one"
    }


def test_a_method_that_has_hardly_begun_is_left_out() -> None:
    assert fair({"a": [1, 2, 3], "b": [1, 2, 3], "late": [1]}) == (["a", "b"], [1, 2, 3])
    few = {"much": range(10), "b": [0, 1], "c": [0, 1], "d": [1, 0], "e": [0, 1]}
    assert fair(few) == (["much", "b", "c", "d", "e"], [0, 1])


def test_nothing_to_rank_is_said() -> None:
    with pytest.raises(FewviewError, match="at least two methods"):
        rank([made("proto", 0)])
    with pytest.raises(FewviewError, match="same class splits"):
        rank([made("proto", 0), made("match", 1)])


def test_names_say_what_differs_and_nothing_else() -> None:
    assert label(example_cell(tune="1:4x15:padding=zero")) == "proto (tuned)"
    assert split_name(example_cell(novel=("6", "7"), start=40)) == "6,7 40"
    found = [
        made("proto", 0),
        made("proto", 0, scaling="none", dtype="float64"),
        made("match", 0, seed=1, parameters="random_state=1"),
        made("match", 0, parameters="a"),
        made("match", 0, parameters="b"),
        made("match", 0, dataset="other", data_checksum="a" * 64),
        made("match", 0, dataset="other", data_checksum="b" * 64),
    ]
    named = {panel.title: list(panel.results) for panel in panels(found)}
    assert named == {
        "digits (seed 0)": [
            "proto (scaling scale, dtype float32)", "proto (scaling none, dtype float64)",
            "match", "match #2",
        ],
        "digits (seed 1)": ["match"],
        "other (data checksum aaaaaa)": ["match"],
        "other (data checksum bbbbbb)": ["match"],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("p", "low", "high", "wanted"),
    [
        (0.01, 0.3, 4.0, "better"),
        (0.05, 0.0, 1.0, "better"),  # told apart, however little it is
        (0.3, -0.5, 1.9, "level"),
        (0.3, -0.5, 2.1, "open"),
        (0.9, -2.5, 0.4, "open"),
        (np.nan, np.nan, np.nan, "open"),  # one class split says nothing
    ],
)
def test_a_method_is_better_level_or_open(p: float, low: float, high: float, wanted: str) -> None:
    pair = PairedComparison("a", "b", 0.0, low, high, 0, 0, 9, p, p, p, p, "wilcoxon", p)
    assert verdict(pair) == wanted


def test_who_wins_among_some_methods() -> None:
    (panel,) = panels(made(name, k) for name in LEVELS for k in range(6))
    best = winner(panel)
    assert best is not None
    assert (best.best, [pair.two for pair in best.groups["better"]]) == ("rfs", ["proto", "match"])
    some = winner(panel, {"match", "proto"})
    assert some is not None
    assert (some.best, some.second, some.left_out) == ("proto", "match", [])
    assert winner(panel, ()) is None
