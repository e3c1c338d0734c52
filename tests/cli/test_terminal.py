"""What commands print on a terminal of 80 columns: nothing is wider, the answer comes last."""

from __future__ import annotations

import io
import re
import shutil
import sys
from pathlib import Path

import pytest

from fewview.cli._app import app
from fewview.cli._text import fitting, print_table
from fewview.evaluate import Grid, run

BENCH = "bench digits --methods proto,match --eta 0,0.1,0.2,0.3,0.4,0.5 --splits 2 --episodes 2"
COMMANDS = (
    "methods", "methods marginal", "methods ugda", "data list", "data info digits",
    "data show TABLES", "data convert TABLES OUT/a.npz", "results STORE",
    "results STORE --compare", "results STORE --level cell", f"{BENCH} --store none",
    "report STORE -o OUT/page.html --no-examples", "fit --base KNOWN --method proto -o OUT/model",
    "predict --data TABLES --new e,f --method proto --explain --html OUT/p.html -o OUT/p.csv",
    "impute TABLES -o OUT/filled", "doctor",
)  # fmt: skip


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def tables(folder: Path, labelled: int = 22) -> None:
    """Six classes of four samples in three views with long names; not all have a label."""
    folder.mkdir()
    labels = [f"s{k:02d},{'abcdef'[k // 4] if k < labelled else ''}" for k in range(24)]
    (folder / "labels.csv").write_text("\n".join(["id,label", *labels]))
    for v, view in enumerate(("blood values of the first week", "scan of the second", "words")):
        rows = [f"s{k:02d},{k // 4 + v},{k % 4 * 0.1}" for k in range(24) if k % 5 != v]
        (folder / f"{view}.csv").write_text("\n".join(["id,one,two", *rows]))


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with results of five methods at two rates."""
    path = tmp_path_factory.mktemp("stored") / "store.db"
    methods = ("proto", "match", "ptmap", "rfs", "bd-cspn:scaling=scale:padding=episode")
    grid = Grid(
        datasets=("digits",), methods=methods, etas=(0.0, 0.5), splits=3, episodes=3, queries=5
    )
    run(grid, path)
    return path


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, stored: Path) -> object:
    shutil.copy(stored, tmp_path / "store.db")
    tables(tmp_path / "tables of a study with a long name")
    tables(tmp_path / "known", labelled=24)
    monkeypatch.chdir(tmp_path)

    def show(command: str) -> tuple[list[str], list[str]]:
        out, errors = Terminal(), Terminal()
        monkeypatch.setenv("COLUMNS", "80")
        monkeypatch.setenv("NO_COLOR", "1")
        monkeypatch.setenv("TERM", "dumb")
        monkeypatch.setattr(sys, "stdout", out)
        monkeypatch.setattr(sys, "stderr", errors)
        given = {
            "STORE": "store.db", "KNOWN": "known", "TABLES": "tables of a study with a long name"
        }  # fmt: skip
        words = [given.get(word, word) for word in command.replace("OUT/", "").split()]
        app(words, prog_name="fewview", standalone_mode=False)
        plain = [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", s.getvalue()) for s in (out, errors)]
        return plain[0].splitlines(), plain[1].splitlines()

    return show


@pytest.mark.parametrize("command", [*COMMANDS, "--help", "bench --help", "predict --help"])
def test_nothing_is_wider_than_the_terminal(shown: object, command: str) -> None:
    out, errors = shown(command)  # type: ignore[operator]
    assert out
    told = [line.rpartition("\r")[2] for line in errors]  # a bar is drawn over and over
    assert [line for line in [*out, *told] if len(line.rstrip()) > 80] == []


def test_the_answer_comes_last_and_wide_shows_all(shown: object) -> None:
    out, errors = shown("results STORE --compare")  # type: ignore[operator]
    assert "p_wilcoxon" not in out[0]
    assert any(line.startswith("left out for want of room: ") for line in errors)
    (place,) = [k for k, line in enumerate(errors) if line.startswith("digits: use ")]
    assert any("to tell from: " in line for line in errors[place:])
    assert any(line.startswith("next: ") for line in errors[-2:])
    out, _ = shown("results STORE --compare --wide")  # type: ignore[operator]
    assert "p_wilcoxon_holm" in out[0]
    assert len(out[0]) > 80


def test_columns_are_dropped_in_the_order_that_is_asked_for() -> None:
    header, lines = ["name", "a" * 10, "b" * 10, "c" * 10], [["x", "1", "2", "3"]]
    assert fitting(header, lines, 80, [2], {}) == ([0, 1, 2, 3], 2)
    assert fitting(header, lines, 37, [2], {}) == ([0, 1, 2, 3], 1)
    assert fitting(header, lines, 30, [2], {}) == ([0, 1, 3], 1)
    assert fitting(header, lines, 20, [2], {}) == ([0, 1], 1), "then from the right"
    assert fitting(header, lines, 3, [2], {}) == ([0], 1), "the names of rows stay"
    assert fitting(header, lines, 30, [2], {3: 3}) == ([0, 1, 2, 3], 1), "sentences are broken"


def test_a_pipe_gets_every_column(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["one", "two" * 60], [["a", "b"]], drop=[1])
    assert capsys.readouterr().out == f"one  {'two' * 60}\na    b\n"
