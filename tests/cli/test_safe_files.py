"""Outputs never destroy inputs, a full disk ends in a sentence, labels are what they look like."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fewview import FewviewError, MultiViewData, create, load_model

Invoke = Callable[..., tuple[int, str, str]]


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folders base, support and query."""
    rng = np.random.default_rng(0)
    monkeypatch.chdir(tmp_path)
    for name, labels in (("base", [1, 2, 3, 4] * 5), ("support", [5, 6]), ("query", [5, 6] * 3)):
        block = np.array(labels)[:, None] + 0.1 * rng.normal(size=(len(labels), 2))
        ids = [f"{name}{row}" for row in range(len(labels))]
        MultiViewData({"a": block, "b": 2 * block}, labels, ids=ids).write(name, format="csv")
    return tmp_path


FIT = ("fit", "--base", "base", "--method", "proto")
PREDICT = ("predict", "--model", "a.model", "--support", "support", "--query", "query")


def contents(folder: Path) -> dict[str, bytes]:
    return {str(f): f.read_bytes() for f in sorted(folder.rglob("*")) if f.is_file()}


@pytest.mark.parametrize(
    "command",
    [
        (*FIT, "-o", "base/a.csv"),
        (*FIT, "-o", "base/new.model"),
        (*PREDICT, "-o", "query/a.csv"),
        (*PREDICT, "-o", "support/labels.csv"),
        (*PREDICT, "-o", "support/../query/predictions.csv"),
        ("predict", "--model", "p.csv", "--support", "support", "--query", "query", "-o", "p.csv"),
        ("data", "convert", "mine.npz", "mine.npz"),
        ("data", "convert", "base", "base/inside"),
    ],
)
def test_inputs_are_never_replaced(command: tuple[str, ...], invoke: Invoke, folders: Path) -> None:
    assert invoke(*FIT, "-o", "a.model")[0] == 0
    (folders / "p.csv").write_bytes((folders / "a.model").read_bytes())
    MultiViewData.read("base").write("mine.npz")
    before = contents(folders)
    code, _, errors = invoke(*command)
    assert code == 2
    assert "--force" in errors
    assert contents(folders) == before
    if command[-1] == "query/a.csv":
        assert invoke(*command, "--force")[0] == 0
        assert contents(folders) != before


@pytest.mark.skipif(sys.platform == "win32", reason="needs limits of the system")
def test_a_full_disk_ends_in_a_sentence(folders: Path) -> None:
    limited = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (300, 300));"
        "sys.argv[0] = 'fewview'; from fewview.cli import main; main()"
    )
    run = subprocess.run(
        [sys.executable, "-c", limited, *FIT, "-o", "a.model"], capture_output=True, text=True
    )
    assert run.returncode == 2, run.stderr
    assert "error: a.model: cannot write" in run.stderr
    assert "Traceback" not in run.stderr
    assert not list(folders.glob("*.model"))


def test_texts_that_spreadsheets_would_run(invoke: Invoke, folders: Path) -> None:
    assert invoke(*FIT, "-o", "a.model")[0] == 0
    for folder in ("support", "query"):
        file = folders / folder / "labels.csv"
        file.write_text(file.read_text().replace(",5", ",=1+1").replace(",6", ",@six"))
        (folders / folder / "fewview.json").unlink()
    assert invoke(*PREDICT, "-o", "p.csv")[0] == 0
    assert ",=1+1," in (folders / "p.csv").read_text()
    code, _, errors = invoke(*PREDICT, "-o", "p.csv", "--spreadsheet-safe")
    assert code == 0, errors
    text = (folders / "p.csv").read_text()
    assert ",'=1+1," in text
    assert ",'@six," in text
    assert ",=1+1" not in text
    assert "accuracy 100.0 %" in errors


def test_a_number_and_a_word_are_the_same_class() -> None:
    rows = [[0.0], [1.0], [2.0], [3.0]]
    clf = create("proto").fit_base(MultiViewData({"a": rows}, [1, 1, 2, 2]))
    with pytest.raises(FewviewError, match="class '1' is in the base set"):
        clf.fit(MultiViewData({"a": rows[:2]}, ["1", "x"]))


@pytest.mark.parametrize("name", ["ptmap+ugda", "marginal", "proto"])
def test_random_states_as_in_scikit_learn(name: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    base = MultiViewData({"a": rng.normal(size=(60, 3))}, np.repeat(list("pqrstu"), 10))
    support = MultiViewData({"a": rng.normal(size=(4, 3))}, list("xxyy"))
    query = MultiViewData({"a": rng.normal(size=(12, 3))})
    number = np.random.RandomState(7).randint(2**31 - 1)
    wanted = create(name, random_state=number).fit_base(base).fit(support).predict_proba(query)
    for state in (np.random.RandomState(7), None):
        clf = create(name).set_params(random_state=state).fit_base(base).fit(support)
        found = clf.predict_proba(query)
        assert np.array_equal(found, clf.predict_proba(query))
        if state is not None:
            assert np.array_equal(found, wanted)
        assert clf.get_params()["random_state"] is state
        clf.save(tmp_path / "a.model")
        assert np.array_equal(load_model(tmp_path / "a.model").predict_proba(query), found)
        assert isinstance(clf.fit(support).predict(query), np.ndarray)
    with pytest.raises(FewviewError, match="random_state is 'seven'"):
        create(name).set_params(random_state="seven").fit(support)
