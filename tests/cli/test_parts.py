"""Tables in parts on the command line: fit, predict, go on, and what is refused."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fewview import FewviewWarning, MultiViewData, load_model
from fewview.datasets import make_few_shot

Invoke = Callable[..., tuple[int, str, str]]
SAMPLES = make_few_shot(10, 20, {"shape": 5, "colour": 8, "sound": 3}, seed=1)
SAMPLES = SAMPLES[np.argsort(SAMPLES.codes, kind="stable")]  # class by class
BASE, NOVEL = SAMPLES[:120], SAMPLES[120:]


def numbered(data: MultiViewData, rows: slice) -> MultiViewData:
    """Some of the samples, with ids in the order of the rows."""
    labels = None if data.labels is None else data.labels[rows].tolist()
    views = {view: data.view(view)[rows] for view in data.view_names}
    ids = [*range(len(data))][rows]
    return MultiViewData(views, labels, mask=data.mask[rows], ids=ids)


def test_the_commands_take_parts(
    tmp_path: Path, invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    queries = NOVEL.with_labels(None)
    for name, data in {"base": BASE, "query": queries}.items():
        Path(name).mkdir()
        for part in range(3):
            numbered(data, slice(part * 45, part * 45 + 45)).write(f"{name}/{part}", format="csv")
    numbered(NOVEL, slice(0, None, 5)).write("support", format="csv")
    code, out, err = invoke("fit", "--base", "base", "-o", "a.model", "--method", "ugda")
    assert code == 0, err
    assert load_model("a.model").base.n_samples == len(BASE)
    asked = ("predict", "--model", "a.model", "--support", "support", "--query", "query", "-o")
    code, out, err = invoke(*asked, "p.csv")
    assert (code, "--block" in err) == (2, True)
    code, out, err = invoke(*asked, "p.csv", "--block", "60")
    assert (code, f"{len(queries)} of {len(queries)} predictions" in out) == (0, True), err
    lines = [line for file in Path("p.csv").glob("*.csv") for line in file.read_text().splitlines()]
    assert len(lines) == len(queries) + len([*Path("p.csv").glob("*.csv")])
    code, out, err = invoke(*asked, "p.csv", "--block", "60")
    assert (code, f"0 of {len(queries)} predictions" in out) == (0, True), err
    code, out, err = invoke(*asked, "p.csv", "--block", "60", "--explain")
    assert (code, "--explain and --html are for queries" in err) == (2, True)
    one = ("predict", "--method", "proto", "--support", "support", "--query", "support")
    code, out, err = invoke(*one, "-o", "o.csv", "--block", "3")
    assert (code, "--block is for queries in parts" in err) == (2, True)


def test_a_stopped_command_says_what_is_there(
    tmp_path: Path, invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fewview.evaluate.parts._larger as larger

    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(larger, "predict_parts", stop)
    Path("query").mkdir()
    for part in range(2):
        numbered(NOVEL, slice(part, None, 5)).write(f"query/{part}", format="csv")
    asked = ("predict", "--method", "proto", "--support", "query/0", "--query", "query")
    code, _, err = invoke(*asked, "-o", "p.csv")
    assert (code, "p.csv/ is whole, and the same command goes on" in err) == (130, True), err


def test_a_wrong_cluster_leaves_nothing_behind(
    tmp_path: Path, invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("distributed", reason="pip install fewview[cluster]")
    monkeypatch.chdir(tmp_path)
    Path("query").mkdir()
    for part in range(2):
        numbered(NOVEL, slice(part, None, 5)).write(f"query/{part}", format="csv")
    asked = ("predict", "--method", "proto", "--support", "query/0", "--query", "query")
    code, _, err = invoke(*asked, "-o", "p.csv", "--cluster", "http://127.0.0.1:1")
    assert (code, "no Dask scheduler answers at http" in err) == (2, True), err
    assert not Path("p.csv").exists()


def test_a_column_that_supports_leave_empty_is_what_queries_say(
    tmp_path: Path, invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = {
        "support": "1,1.5, 2,9.5,", "query/0": "3,1.6, 4,9.6,", "query/1": "5,1.7,dry 6,9.7,wet",
        "whole": "3,1.6, 4,9.6, 5,1.7,dry 6,9.7,wet",
    }  # fmt: skip
    for folder, lines in rows.items():
        Path(folder).mkdir(parents=True)
        Path(folder, "a.csv").write_text("\n".join(["id,x,leaf", *lines.split()]) + "\n")
    Path("support", "labels.csv").write_text("id,label\n1,low\n2,high\n")
    asked = ("predict", "--method", "proto", "--support", "support", "--query")
    code, _, err = invoke(*asked, "query", "-o", "p.csv")
    assert code == 0, err
    assert invoke(*asked, "whole", "-o", "whole.csv")[0] == 0
    assert Path("p.csv", "part-000000.csv").read_text() == Path("whole.csv").read_text()


@pytest.mark.skipif(os.name == "nt", reason="POSIX signals")
def test_a_scheduler_that_ends_a_command_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "q").mkdir()
    for part in range(40):
        own = numbered(NOVEL, slice(None)).with_labels(None)
        ids = [f"{part}-{row}" for row in range(len(own))]
        views = {view: own.view(view) for view in own.view_names}
        MultiViewData(views, mask=own.mask, ids=ids).write(tmp_path / "q" / str(part), format="csv")
    numbered(NOVEL, slice(0, None, 5)).write(tmp_path / "s", format="csv")
    (tmp_path / "scratch").mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", "fewview", "predict", "--method", "tim", "--support", "s",
         "--query", "q", "--block", "1", "-o", "p.csv"],
        stderr=subprocess.PIPE, text=True, cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(tmp_path / "scratch")},
    )  # fmt: skip
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("parts: "):
            break
    process.send_signal(signal.SIGTERM)
    errors = process.stderr.read()
    assert process.wait(timeout=60) == 130
    assert "stopped; what is in p.csv/ is whole" in errors
    assert "Traceback" not in errors
    assert not [*(tmp_path / "scratch").iterdir()]


def test_what_cannot_be_done_is_said_before_samples_are_counted(
    tmp_path: Path, invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("q").mkdir()
    for part in range(2):
        numbered(NOVEL, slice(part * 30, part * 30 + 30)).write(f"q/{part}", format="csv")
    numbered(NOVEL, slice(0, None, 5)).write("s", format="csv")
    numbered(BASE, slice(60)).write("base", format="csv")  # three classes
    code, _, err = invoke("fit", "--base", "base", "-o", "a.model", "--method", "proto")
    assert code == 0, err
    Path("file.csv").write_text("mine")
    Path("full.csv").mkdir()
    Path("full.csv", "mine.txt").touch()
    Path("link.csv").symlink_to("nowhere")
    asked = ("predict", "--model", "a.model", "--support", "s", "--query", "q")
    for more, said in (
        (("-o", "file.csv"), "is no folder"),
        (("-o", "link.csv"), "is no folder"),
        (("-o", "full.csv"), "is not empty"),
        (("-o", "p.csv", "--block", "0"), "give a positive number"),
        (("-o", "p.csv", "--sets", "0.9"), "base classes"),
    ):
        code, _, err = invoke(*asked, *more)
        assert (code, said in err) == (2, True), err
        assert "counting" not in err
    assert not Path("p.csv").exists()


@pytest.mark.parametrize(
    ("kind", "ids", "form", "wanted"),
    [
        ("uint64", [1, 2**63], "parquet", [1, 2**63]),
        ("decimal", [-1, 2**63], "parquet", ["-1", str(2**63)]),
        ("double", [1.0, 2.0], "json", [1, 2]),
        ("timestamp", [0, 10**6], "json", ["1970-01-01 00:00:00", "1970-01-01 00:00:01"]),
    ],
)
def test_ids_of_one_folder_are_written_as_they_are(
    tmp_path: Path, invoke: Invoke, kind: str, ids: list[int], form: str, wanted: list[object]
) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow.parquet import read_table, write_table

    kinds = {"decimal": pyarrow.decimal128(20, 0), "timestamp": pyarrow.timestamp("us")}
    keys = pyarrow.array(ids, kinds.get(kind, kind))
    for name, more in {"query": {}, "support": {"label": ["a", "b"]}}.items():
        (tmp_path / name).mkdir()
        table = pyarrow.table({"id": keys, "x": [1.0, 2.0], **more})
        write_table(table, tmp_path / name / "v.parquet")
    asked = ("--support", str(tmp_path / "support"), "--query", str(tmp_path / "query"))
    target = tmp_path / f"p.{form}"
    code, _, err = invoke("predict", "--method", "proto", *asked, "-o", str(target))
    assert code == 0, err
    rows = json.loads(target.read_text()) if form == "json" else read_table(target).to_pylist()
    assert [row["id"] for row in rows] == wanted


def test_a_part_that_is_not_there_is_refused(tmp_path: Path, invoke: Invoke) -> None:
    numbered(NOVEL, slice(0, None, 5)).write(tmp_path / "support", format="csv")
    (tmp_path / "query").mkdir()
    numbered(NOVEL, slice(9)).with_labels(None).write(tmp_path / "query" / "0", format="csv")
    (tmp_path / "query" / "1").mkdir()
    asked = ("predict", "--method", "proto", "--support", str(tmp_path / "support"), "--query")
    asked = (*asked, str(tmp_path / "query"), "-o", str(tmp_path / "p.csv"))
    with pytest.warns(FewviewWarning, match="query: left out, since empty: 1"):
        assert invoke(*asked)[0] == 0
    (tmp_path / "query" / "2").symlink_to(tmp_path / "unmounted")
    code, _, err = invoke(*asked)
    assert (code, "2 is a link to" in err) == (2, True), err
