"""`fewview reproduce` from the outside."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Invoke = Callable[..., tuple[int, str, str]]


@pytest.fixture
def invoke(invoke: Invoke) -> Invoke:
    """Run `fewview reproduce`: exit status, standard output, standard error."""
    return lambda *arguments: invoke("reproduce", *arguments)


def test_a_table_goes_to_stdout_and_to_files(
    invoke: Invoke, tmp_path: Path, data_dir: Path
) -> None:
    arguments = ("scene15", "--quick", "--only", "proto,match", "--store",
                 str(tmp_path / "a.sqlite"), "-o", str(tmp_path / "out"))  # fmt: skip
    code, out, err = invoke(*arguments, "--compute")
    assert code == 0, err
    assert "Table 5 [tab:4]" in out
    assert "command: fewview reproduce scene15 --compute --quick --store" in out
    assert "estimate: about" in err
    (line,) = [line for line in out.splitlines() if line.split()[:3] == ["scene15", "Match", "0.5"]]
    assert "43.04" in line  # the paper's
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "scene15.md", "scene15.csv", "scene15.tex",
    }  # fmt: skip
    assert "not available" in invoke(*arguments[:-2], "--stored")[1]
    again = invoke(*arguments, "--compute")
    assert again[1] == out
    assert "to compute" not in again[2]


def test_absent_data_are_explained(invoke: Invoke, tmp_path: Path) -> None:
    code, out, _ = invoke(
        "animal", "--compute", "--data-dir", str(tmp_path), "--store", "none",
        "-o", str(tmp_path / "out"),
    )  # fmt: skip
    assert code == 2
    assert not (tmp_path / "out").exists()
    assert "animal.mat" in out
    assert "89.86" in out  # the paper's UGDA at eta 0


def test_claims_exit_with_zero_whatever_they_find(invoke: Invoke, tmp_path: Path) -> None:
    code, out, err = invoke("claims", "--compute", "--data-dir", str(tmp_path), "--store", "none")
    assert code == 0, err
    assert "32 claims on the paper's or recomputed data: holds 0, does not hold 0" in out
    assert "6 claims on stand-in data: holds 0, does not hold 0, undecided 0" in out
    assert "caltech102: PTMAP+UGDA - PTMAP -3.00" in out  # false in the paper's own table


def test_rules_are_listed_without_data(invoke: Invoke, tmp_path: Path) -> None:
    code, out, err = invoke("claims", "--rules", "--data-dir", str(tmp_path), "-o", str(tmp_path))
    assert code == 0, err
    lines = [line for line in out.splitlines() if "else undecided" in line]
    assert len(lines) == 38
    assert "is significantly above 0" in out
    assert (tmp_path / "rules.md").exists()
    assert invoke("claims", "cub", "--rules")[0] == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("figure7", "--compute", "--only", "proto"), "--only proto is none of its methods (ugda)"),
        (("figure4", "--compute", "--only", "proto"), "--only proto is none of its methods (ugda)"),
        (("figure6", "--compute", "--only", "proto"), "--only proto is none of its methods (ugda)"),
        (
            ("figure3", "--compute", "--only", "tim"),
            "--only tim is none of its methods (proto, cpm,",
        ),
        (
            ("ablation", "--compute", "--only", "proto"),
            "--only proto is none of its methods (ugda)",
        ),
        (("figure5", "--stored"), "figure5: nothing to show: none of its 180 results is in"),
        (("figure7", "--stored"), "figure7: nothing to show: none of"),
        (("scene15", "--stored"), "scene15: nothing to show: none of"),
        (("birds", "--stored"), "birds: nothing to show: none of"),
        (("imbalance", "--stored"), "imbalance: nothing to show: none of"),
        (("shots", "--stored"), "shots: nothing to show: none of"),
        (("missingness", "--stored"), "missingness: nothing to show: none of"),
        (("time", "--stored"), "time: nothing to show: none of"),
    ],
)
def test_nothing_to_show_is_an_error_and_nothing_is_written(
    invoke: Invoke, arguments: tuple[str, ...], message: str, tmp_path: Path, data_dir: Path
) -> None:
    places = ("--store", str(tmp_path / "a.sqlite"), "-o", str(tmp_path / "out"))
    code, out, err = invoke(*arguments, *places)
    assert code == 2
    assert message in err
    assert out == ""
    assert not (tmp_path / "out").exists()


def test_the_other_names_are_made_when_one_has_nothing_to_show(
    invoke: Invoke, tmp_path: Path, data_dir: Path
) -> None:
    places = ("--store", str(tmp_path / "a.sqlite"), "-o", str(tmp_path / "out"))
    code, out, err = invoke(
        "figure7", "scene15", "--compute", "--quick", "--only", "match", *places
    )
    assert code == 2
    assert "figure7: nothing to show" in err
    assert "Table 5 [tab:4]" in out
    assert {path.stem for path in (tmp_path / "out").iterdir()} == {"scene15"}


def test_plan_lists_cells_and_computes_nothing(
    invoke: Invoke, tmp_path: Path, data_dir: Path
) -> None:
    store = tmp_path / "a.sqlite"
    code, out, _ = invoke("scene15", "--plan", "--device", "cuda", "--store", str(store))
    assert code == 0
    assert "proto,match,tim" in out
    assert "python -m fewview.paper scene15" in out
    assert not store.exists()


def test_a_plan_needs_no_data(invoke: Invoke, tmp_path: Path) -> None:
    where = ("--data-dir", str(tmp_path), "--store", str(tmp_path / "a.sqlite"))
    code, out, err = invoke("all", "--plan", *where)
    assert code == 0, err
    cells: dict[str, list[int]] = {}
    for line in out.splitlines()[1:]:
        if len(words := line.split()) > 4 and words[1].isdigit():
            cells.setdefault(words[0], []).append(int(words[1]))
    # Nine plain methods and four networks, 6 rates, 10 and 3 class splits.
    assert cells["cub"] == [9 * 6 * 10, 4 * 6 * 3]
    assert sum(cells["figure5"]) > 0
    assert {"claims", "splits", "time"} <= set(cells)
    assert "its data are not here ('fewview data fetch handwritten')" in out
    assert "its data are not here ('fewview data info caltech102')" in out
    assert not list(tmp_path.iterdir())


def test_class_splits_are_weighed_by_what_is_recorded(invoke: Invoke) -> None:
    code, out, err = invoke("splits", "--only", "ugda")
    assert code == 0, err
    ugda = [line for line in out.splitlines() if line.split()[:3] == ["orl", "UGDA", "likely"]]
    assert len(ugda) == 1
    assert "on cpu and cuda by" in out
    assert "cpu and cpu" not in out
    code, _, err = invoke("cub", "--only", "bavardage")
    assert code == 2
    assert "no table or figure has a method of that name" in err
    assert "marginal" in err
    assert "class-impute" not in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("figure8",), "no reproduction called 'figure8'"),
        (("cub", "orl", "--features", "x.npz"), "--features goes with one table"),
        (("cub", "--base-features", "x.npz"), "--base-features goes with --features"),
        (("cub", "--from", "nowhere.sqlite"), "--from nowhere.sqlite: there is no such file"),
        (("cub", "--store", "a.sqlite"), "--store does nothing to recorded results"),
        (("cub", "--record"), "add --compute to compute here, or --stored"),
        (("cub", "--compute", "--stored"), "give one of them"),
        (("cub", "--only", "ugda:k=2"), "--only ugda:k=2: no table or figure has a method"),
    ],
)
def test_wrong_input_is_one_message(
    invoke: Invoke, arguments: tuple[str, ...], message: str
) -> None:
    code, _, err = invoke(*arguments)
    assert code == 2
    assert message in err


def test_own_features_take_the_place_of_the_stand_in(invoke: Invoke, tmp_path: Path) -> None:
    import numpy as np

    from fewview.samples import MultiViewData

    rng = np.random.default_rng(0)
    for name, classes in (("mine", 8), ("base", 6)):
        labels = np.repeat(np.arange(classes), 17)
        blocks = {view: rng.normal(size=(len(labels), 3)) for view in "abc"}
        MultiViewData(blocks, labels=labels).write(tmp_path / f"{name}.npz")
    code, out, err = invoke(
        "birds", "--compute", "--quick", "--only", "rfs", "--store", str(tmp_path / "a.sqlite"),
        "--features", str(tmp_path / "mine.npz"), "--base-features", str(tmp_path / "base.npz"),
    )  # fmt: skip
    assert code == 0, err
    assert "stand-in" not in out
    (line,) = [line for line in out.splitlines() if line.split()[1:3] == ["RFS", "0.6"]]
    assert "not available" not in line  # three views reach 0.6
    assert "35.37" in line


def test_the_computing_part_needs_no_terminal_or_drawing_libraries(
    tmp_path: Path, data_dir: Path
) -> None:
    absent = ["typer", "rich", "matplotlib", "pooch", "h5py", "safetensors", "jinja2",
              "pandas", "pyarrow", "polars", "dask", "distributed"]  # fmt: skip
    store = str(tmp_path / "a.sqlite")
    script = (
        "import sys\n"
        f"for name in {absent!r}:\n    sys.modules[name] = None\n"
        "from fewview.paper.__main__ import main\n"
        "sys.exit(main(['--compute', 'scene15', '--quick', '--only', 'proto', '--store', "
        f"{store!r}]))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "done: scene15 (0 cells failed)" in done.stdout


def test_what_is_computed_can_be_recorded_and_shown_without_data(
    invoke: Invoke, tmp_path: Path, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = ("--quick", "--records", str(tmp_path / "records"))
    store = ("--store", str(tmp_path / "a.sqlite"))
    code, computed, err = invoke("scene15", "--only", "proto", "--compute", *where, *store)
    assert code == 0, err
    assert not (tmp_path / "records").exists()  # nothing is recorded unasked
    code, _, err = invoke("scene15", "claims", "--stored", "--record", *where, *store)
    assert code == 0, err
    assert "scene15: 6 rows recorded, 6 of 78 are there now" in err
    assert "claims: made of what cub," in err
    monkeypatch.setenv("FEWVIEW_DATA", str(tmp_path / "no data"))
    code, shown, err = invoke("scene15", "--only", "proto", *where)
    assert code == 0, err
    assert "note: recorded results, computed 20" in shown
    lines = [[line for line in text.splitlines() if line.startswith("scene15  Proto")]
             for text in (computed, shown)]  # fmt: skip
    assert len(lines[0]) == 6
    assert lines[0] == lines[1]
    code, _, err = invoke("scene15", "--only", "rfs", *where)
    assert code == 2
    assert "'fewview reproduce scene15 --quick --only rfs --compute' computes it here" in err


def test_work_that_is_no_cells_tells_how_far_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    from fewview.cli._bar import BarProgress
    from fewview.evaluate._progress import PlainProgress, Progress

    for progress in (Progress(), PlainProgress(interval=0.0), BarProgress()):
        assert list(progress.track("abc", "maps")) == ["a", "b", "c"]
        # Twice, and after a grid: each has a bar of its own.
        progress.planned(2, 1, 0)
        progress.close()
        assert list(progress.track([1, 2], "losses")) == [1, 2]
    err = capsys.readouterr().err
    assert "maps: 3" in err
    assert "maps [2/3] (0 s left)" in err
