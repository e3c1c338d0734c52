from __future__ import annotations

import csv
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fewview.samples import MultiViewData

Invoke = Callable[..., tuple[int, str, str]]
QUICK = ("--splits", "2", "--episodes", "5")


@pytest.fixture
def table(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    data = MultiViewData(
        {"a": rng.normal(size=(60, 4)), "b": rng.normal(size=(60, 3))},
        labels=np.repeat(["u", "v", "w", "x", "y"], 12),
    )
    data.write(tmp_path / "mine.npz")
    return tmp_path / "mine.npz"


def test_help_is_fast_and_light() -> None:
    script = (
        "import sys\n"
        "sys.argv = ['fewview', '--help']\n"
        "from fewview.cli import main\n"
        "try:\n    main()\n"
        "except SystemExit:\n    pass\n"
        "heavy = {'torch', 'sklearn', 'matplotlib', 'scipy', 'pandas'} & set(sys.modules)\n"
        "print('heavy:', sorted(heavy))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.rstrip().endswith("heavy: []")
    assert "fewview bench digits" in done.stdout


def test_version(invoke: Invoke) -> None:
    from fewview import __version__

    assert invoke("--version") == (0, f"fewview {__version__}\n", "")


def test_data_list_and_info(invoke: Invoke) -> None:
    from fewview.datasets import names

    code, out, _ = invoke("data", "list")
    assert code == 0
    assert all(name in out for name in names())
    assert "embedded" in out
    assert max(map(len, out.splitlines())) > 100  # not cut when the output is no terminal
    code, out, _ = invoke("data", "info", "handwritten")
    assert code == 0
    for fact in ("fou 76", "6 base, 4 novel", "3-way 1-shot, 50 queries", "CC BY 4.0"):
        assert fact in out


def test_data_show_and_convert(invoke: Invoke, table: Path) -> None:
    code, out, _ = invoke("data", "show", str(table))
    assert code == 0
    assert "60 samples" in out
    folder = table.parent / "tables"
    assert invoke("data", "convert", str(table), str(folder), "--format", "csv")[0] == 0
    back = table.parent / "back.npz"
    assert invoke("data", "convert", str(folder), str(back))[0] == 0
    assert MultiViewData.read(back).view_dims == {"a": 4, "b": 3}


def test_methods(invoke: Invoke) -> None:
    code, out, _ = invoke("methods")
    assert code == 0
    lines = {line.split()[0]: line for line in out.splitlines() if line.strip()}
    for name in ("proto", "ptmap", "cpm"):
        assert "for scaling" in lines[name]
    assert "needed" in lines["bavardage"]
    for name in ("marginal", "ugda", "ptmap+ugda", "concat-nn"):
        assert "learns from them if given" in lines[name]
    code, out, _ = invoke("methods", "proto")
    assert "padding=zero" in out
    assert invoke("methods", "nosuch")[0] == 2


def test_bench_writes_json_and_results_reads_the_store(invoke: Invoke, tmp_path: Path) -> None:
    store, out = str(tmp_path / "a.sqlite"), tmp_path / "a.json"
    code, text, errors = invoke(
        "bench", "digits", "--methods", "proto,match", "--eta", "0,0.5", *QUICK,
        "--store", store, "--json", str(out),
    )  # fmt: skip
    assert code == 0
    assert f"results are kept in {store}\nnext: fewview results {store} --compare" in errors
    assert text.startswith("digits: 3-way 1-shot, 2 class split")
    assert "8 trials: 0 already stored" in errors
    rows = json.loads(out.read_text())
    assert [(row["method"], row["eta"]) for row in rows] == [
        ("proto", 0.0), ("proto", 0.5), ("match", 0.0), ("match", 0.5),
    ]  # fmt: skip

    code, text, _ = invoke("results", store, "--format", "json")
    stored = json.loads(text)
    assert [row["accuracy"] for row in stored] == [row["accuracy"] for row in rows]
    assert {row["status"] for row in stored} == {"current"}
    code, text, _ = invoke("results", store, "--where", "eta<0.3", "--format", "csv")
    assert len(text.splitlines()) == 3
    for form, start in (
        ("markdown", "| dataset"),
        ("latex", "% digits: 3-way 1-shot"),
        ("table", "data"),
    ):
        assert invoke("results", store, "--format", form)[1].startswith(start)
    parquet = tmp_path / "a.parquet"
    assert invoke("results", store, "--format", "parquet", "--output", str(parquet))[0] == 0
    assert parquet.read_bytes()[:4] == b"PAR1"
    code, text, _ = invoke("results", store, "--level", "cell", "--format", "csv")
    assert len(text.splitlines()) == 9
    code, text, _ = invoke("results", store, "--level", "episode", "--format", "csv")
    assert len(text.splitlines()) == 41
    code, text, errors = invoke("results", store, "--compare", "--format", "json")
    assert "average ranks over 2 class splits" in errors
    assert "nan" not in errors  # Friedman's test needs three methods
    assert len(json.loads(text)) == 2
    diagram = tmp_path / "ranks.svg"
    assert invoke("results", store, "--diagram", str(diagram))[0] == 0
    assert diagram.read_text().startswith("<?xml")


def test_compared_rates_rise(invoke: Invoke, tmp_path: Path) -> None:
    store = str(tmp_path / "a.sqlite")
    for eta in ("0.5", "0"):
        command = ("bench", "digits", "--methods", "proto,match,rfs", "--eta", eta, *QUICK)
        assert invoke(*command, "--store", store)[0] == 0
    _, text, errors = invoke("results", store, "--compare", "--format", "json")
    # The best method against the two others, at each rate.
    assert [row["eta"] for row in json.loads(text)] == [0.0] * 2 + [0.5] * 2
    assert "Friedman p " in errors


def test_different_questions_are_told_apart(invoke: Invoke, tmp_path: Path) -> None:
    """Balanced and unbalanced tasks in one store are different rows and are not compared."""
    store = str(tmp_path / "a.sqlite")
    for counts in ("balanced", "dirichlet:2"):
        command = ("bench", "digits", "--methods", "proto,match", "--query-counts", counts, *QUICK)
        assert invoke(*command, "--store", store)[0] == 0
    rows = list(csv.DictReader(invoke("results", store, "--format", "csv")[1].splitlines()))
    assert {row["query_counts"] for row in rows} == {"balanced", "dirichlet:2"}
    pairs = json.loads(invoke("results", store, "--compare", "--format", "json")[1])
    assert [pair["dataset"] for pair in pairs] == [
        "digits (query counts balanced)", "digits (query counts dirichlet:2)",
    ]  # fmt: skip
    # Each difference is that of the means of its own rows.
    for pair in pairs:
        means = {
            row["method"]: float(row["accuracy"])
            for row in rows
            if row["query_counts"] in pair["dataset"]
        }
        assert pair["difference"] == pytest.approx(means[pair["one"]] - means[pair["two"]])
    assert "| query_counts |" in invoke("results", store, "--format", "markdown")[1]
    # Both are of one data set, so class splits are what ranks are taken over.
    assert "class splits" in invoke("results", store, "--compare")[2]
    # A method with another scaling is another method.
    balanced = ("results", store, "--where", "query_counts=balanced", "--compare")
    command = ("bench", "digits", "--methods", "proto", "--scaling", "standard", *QUICK)
    assert invoke(*command, "--store", store)[0] == 0
    pairs = json.loads(invoke(*balanced, "--format", "json")[1])
    names = {pair[side] for pair in pairs for side in ("one", "two")}
    usual = "proto (scaling by-width)"
    assert names == {usual, "proto (scaling standard)", "match"}


def test_advise_takes_known_data_sets(invoke: Invoke, tmp_path: Path) -> None:
    code, out, errors = invoke(
        "advise", "digits", "--methods", "proto", *QUICK, "-o", str(tmp_path / "a"),
    )  # fmt: skip
    assert code == 0, errors
    assert "digits: 4-way 1-shot" in out  # ten classes of one's own: six base, four new
    assert "Use " in out
    code, _, errors = invoke("advise", "digit", "-o", str(tmp_path / "b"))
    assert code == 2
    assert "did you mean digits?" in errors
    code, _, errors = invoke("advise", "digits", "--jobs", "0", "-o", str(tmp_path / "c"))
    assert code == 2
    assert "number of processes" in errors


def test_advise_says_whose_gaps_it_used(invoke: Invoke, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    mask = np.ones((60, 2), dtype=bool)
    mask[::4, 0] = False  # 15 of 120
    views = {"a": rng.normal(size=(60, 4)), "b": rng.normal(size=(60, 3))}
    labels = np.repeat(["u", "v", "w", "x", "y"], 12)
    MultiViewData(views, labels, mask=mask).write(tmp_path / "mine.npz")
    code, _, errors = invoke(
        "advise", str(tmp_path / "mine.npz"), "--methods", "proto", *QUICK, "-o",
        str(tmp_path / "a"),
    )  # fmt: skip
    assert code == 0, errors
    assert "lacks views" not in errors
    assert "12 % of views missing as in the data" in (tmp_path / "a" / "report.html").read_text()


def test_stale_results_are_marked(
    invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fewview.results._stale as stale
    from fewview.methods.proto import Proto

    store = str(tmp_path / "a.sqlite")
    assert invoke("bench", "digits", *QUICK, "--store", store)[0] == 0
    monkeypatch.setattr(Proto, "version", Proto.version + 1)
    stale._present_version.cache_clear()
    _, out, errors = invoke("results", store, "--format", "json")
    assert json.loads(out)[0]["status"] == "stale"
    assert "2 cell(s) are stale" in errors
    assert "2 of them stale" in invoke("bench", "digits", *QUICK, "--store", store)[2]
    _, out, _ = invoke("results", store, "--format", "json", "--where", "status=current")
    assert len(json.loads(out)) == 1
    stale._present_version.cache_clear()


def test_own_file(invoke: Invoke, table: Path) -> None:
    code, out, _ = invoke("bench", str(table), *QUICK, "--store", "none", "--eta", "0.3")
    assert code == 0
    assert out.startswith("mine: 2-way 1-shot")


def test_run_writes_table_and_plot(invoke: Invoke, tmp_path: Path) -> None:
    folder = tmp_path / "new" / "demo"
    code, out, _ = invoke(
        "run", "--output", str(folder), "--methods", "proto,match", "--splits", "2",
        "--episodes", "3", "--jobs", "1",
    )  # fmt: skip
    assert code == 0
    for name in ("accuracy.png", "accuracy.svg", "results.json", "results.sqlite"):
        assert f"written: {folder / name}" in out
        assert (folder / name).stat().st_size > 0
    assert "eta 0.5" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("bench", "nosuch"), "no data set 'nosuch'"),
        (("bench", "digit"), "did you mean digits?"),
        (("bench", "no/such/file.npz"), "no such file"),
        (("bench", "digits", "--methods", "nosuch"), "no method 'nosuch'"),
        (("bench", "digits", "--eta", "0.9"), "largest possible rate"),
        (("bench", "digits", "--json", "no/such/folder/out.json"), "does not exist"),
        (("bench", "digits", "--jobs", "0"), "number of processes"),
        (("data", "info", "nosuch"), "no data set"),
        (("data", "show", "no/such/file.npz"), "no/such/file.npz"),
        (("results", "no/such/store.sqlite"), "no such result store"),
        (("results", "x", "--format", "word"), "use one of table"),
        (("results", "x", "--format", "parquet"), "--output"),
        (("results", "x", "--level", "world"), "use one of group"),
    ],
)
def test_mistakes_are_one_message_and_status_2(
    invoke: Invoke, arguments: tuple[str, ...], message: str
) -> None:
    code, out, errors = invoke(*arguments)
    assert code == 2
    assert message in errors
    assert errors.startswith("error: ")
    assert len(errors.splitlines()) == 1
    assert out == ""


@pytest.mark.parametrize("arguments", [("bench",), ("bench", "--nosuch"), ("nosuch",)])
def test_wrong_usage_is_status_2(invoke: Invoke, arguments: tuple[str, ...]) -> None:
    code, _, errors = invoke(*arguments)
    assert code == 2
    assert "Traceback" not in errors


def test_no_half_written_output(invoke: Invoke, tmp_path: Path) -> None:
    broken = tmp_path / "broken.npz"
    broken.write_bytes(b"PK\x03\x04 this is no archive")
    code, _, errors = invoke("data", "convert", str(broken), str(tmp_path / "out.npz"))
    assert code == 2
    assert "broken.npz" in errors
    assert [path.name for path in tmp_path.iterdir()] == ["broken.npz"]
