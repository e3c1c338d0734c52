"""Methods of one's own in benchmarks: objects in Python, classes and objects by import strings."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

import fewview.evaluate._advice as advising
from fewview import Concat, EpisodeSampler, FewviewError, Proto, TaskSpec, create, load
from fewview.datasets import class_split
from fewview.evaluate import Grid, Store, bench, make_grid, plan, run
from fewview.evaluate._advice import give_advice
from fewview.evaluate._cluster_worker import Job, Place
from fewview.evaluate._executors import kept_workers
from fewview.evaluate._open_set import run_open_set
from fewview.evaluate._runner import Outcome
from fewview.methods.registry import pack_objects
from fewview.results._stale import status
from fewview.samples import fit_scaling

MODULE = '''
import threading
from dataclasses import dataclass
import numpy as np
import torch
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.svm import SVC
from fewview import Concat, Method, Proto, param

@dataclass(kw_only=True, eq=False, repr=False)
class Mine(Proto):
    """Scores times a number."""

    factor: float = param(2.0, above=0)

    def scores(self, batch, state):
        return self.factor * super().scores(batch, state)

class Place(Method):
    """Class by class: the first queries are of the first class."""

    def scores(self, batch, state):
        at = torch.arange(batch.n_query) * batch.way // batch.n_query
        return torch.nn.functional.one_hot(at, batch.way).double().expand(batch.n_tasks, -1, -1)

    def typicality(self, batch, state):
        first = torch.arange(batch.n_query) < batch.n_query // 2
        return first.double()[:, None].expand(batch.n_tasks, -1, batch.way)

def place(x):
    return np.linspace(0, 1, len(x))[:, None]

pipeline = Concat(make_pipeline(FunctionTransformer(place), SVC(C=100.0)))
thing = Concat(SVC(C=0.5), impute="zero")
lock = threading.Lock()

class Locked(Proto):
    def scores(self, batch, state):
        with lock:
            return super().scores(batch, state)
'''
NUMBERS = count()


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module in the current folder, another one for every test."""
    name = f"mine_{next(NUMBERS)}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return name


@pytest.fixture(scope="module")
def processes() -> Iterator[None]:
    """Worker processes that tests share, since they take seconds to start."""
    with kept_workers():
        yield


def small(methods: Any, **changes: Any) -> Grid:
    return make_grid(["digits"], methods=methods, **{"splits": 2, "episodes": 3} | changes)


def accuracies(outcome: Outcome) -> dict[str, list[float]]:
    return {
        f"{result.cell.method} {result.cell.split}": result.metrics.accuracy.tolist()
        for result in outcome.results.values()
    }


# ---------------------------------------------------------------------- objects


def test_a_pipeline_scores_as_in_scikit_learn() -> None:
    pipeline = make_pipeline(StandardScaler(), SVC(kernel="linear", C=10.0))
    rows, outcome = bench(small([Concat(pipeline), "proto"]), store="none")
    (name,) = {row["method"] for row in rows} - {"proto"}
    data, split = load("digits"), class_split("digits", 0)
    cell = next(c for c in outcome.cells if c.split == 0 and c.method == name)
    base, novel = (data[np.isin(data.labels, part)] for part in (split.base, split.novel))
    scaled = fit_scaling(base, "scale").transform(novel, "float32")
    X = np.concatenate([scaled.views[name] for name in sorted(scaled.views)], axis=1)
    task = TaskSpec(way=cell.way, shot=cell.shot, queries=cell.queries)
    episodes = EpisodeSampler(novel, task, name="digits").draw(0, 3)
    found, labels = outcome.results[cell.hash].metrics.accuracy, novel.labels
    assert labels is not None
    for number in range(3):
        support, query = episodes.support[number], episodes.query[number]
        fitted = make_pipeline(StandardScaler(), SVC(kernel="linear", C=10.0))
        right = fitted.fit(X[support], labels[support]).predict(X[query]) == labels[query]
        assert found[number] == pytest.approx(right.mean(), abs=0.015)


def test_an_object_is_the_same_cell_as_its_text() -> None:
    texts = plan(small("proto:padding=base,proto"))
    objects = plan(small([Proto(padding="base"), Proto()]))
    assert {cell.hash for cell in texts} == {cell.hash for cell in objects}


def test_what_was_set_in_an_object_wins_over_the_grid() -> None:
    for cell in plan(small([Proto(scaling="standard"), "proto"], scaling="minmax")):
        assert cell.scaling == ("minmax" if cell.method == "proto" else "standard")


@pytest.mark.parametrize(
    ("methods", "message"),
    [([SVC()], "wrap a scikit-learn classifier"), ([3], "not a method"), ([], "no methods given")],
)
def test_what_is_no_method(methods: Any, message: str) -> None:
    with pytest.raises(FewviewError, match=message):
        small(methods)


# ---------------------------------------------------------------------- import strings


@pytest.mark.usefixtures("processes")
def test_import_strings_and_objects_here_and_in_processes(module: str) -> None:
    texts = [f"{module}:Mine", f"{module}:Mine:factor=5", f"{module}:thing"]
    svc = Concat(make_pipeline(StandardScaler(), SVC()))
    grid = small([",".join(texts), "proto", svc], splits=3)
    here = accuracies(run(grid))
    for split in range(3):
        own = {str(here[f"{text} {split}"]) for text in (*texts[:2], "proto")}
        assert len(own) == 1  # scores times a number: the same answers
    assert create(texts[1]).get_params()["factor"] == 5
    assert accuracies(run(grid, jobs=2)) == here


def test_a_worker_that_does_not_have_the_module_gets_the_class(module: str, tmp_path: Path) -> None:
    grid = small([f"{module}:Mine", Concat(SVC(C=7.0))])
    cells, here = plan(grid), accuracies(run(grid))
    known = {cells[0].data_checksum: Place("digits")}
    job = pickle.dumps(Job(grid, known, pack_objects(grid.methods)))
    program = (
        "import pickle, sys\n"
        "from fewview.evaluate._cluster_worker import compute\n"
        "job, work = pickle.load(sys.stdin.buffer)\n"
        "answer = pickle.loads(compute('there', job, work, 60.0))\n"
        "assert not answer.refused and not answer.error, (answer.refused, answer.error)\n"
        "for e in answer.done:\n"
        "    print(f'{e.cell.method} {e.cell.split}', *e.result.metrics.accuracy.tolist(),"
        " sep='\\t')\n"
    )
    (tmp_path / "elsewhere").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", program], input=pickle.dumps((job, pickle.dumps((cells, {})))),
        capture_output=True, check=False, cwd=tmp_path / "elsewhere",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()
    lines = (line.split("\t") for line in done.stdout.decode().splitlines())
    assert {name: [float(number) for number in rest] for name, *rest in lines} == here


def test_what_cannot_be_sent_is_said(module: str) -> None:
    grid = small([f"{module}:Locked"])
    assert run(grid).computed == 2
    with pytest.raises(FewviewError, match="cannot be sent to other processes"):
        run(grid, jobs=2)


def test_another_process_finds_the_stored_results(module: str, tmp_path: Path) -> None:
    """A pipeline with a function of its own has a key that lasts."""
    store, texts = tmp_path / "results.sqlite", f"{module}:pipeline,{module}:Mine"
    assert run(small(texts), store).computed == 4
    program = (
        "import sys\nfrom fewview.evaluate import make_grid, run\n"
        "grid = make_grid(['digits'], methods=sys.argv[1], splits=2, episodes=3)\n"
        "print(run(grid, sys.argv[2]).computed)"
    )
    command = [sys.executable, "-c", program, texts, str(store)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.split() == ["0"]


# ---------------------------------------------------------------------- who looks at places


def test_places_of_queries_tell_nothing(module: str) -> None:
    """Three classes: who knows nothing but places is right in a third."""
    rows, _ = bench(small(f"{module}:Place,{module}:pipeline", episodes=100), store="none")
    # 200 tasks of 45 queries or more: a standard error below 0.6 points.
    assert [row["accuracy"] for row in rows] == pytest.approx([100 / 3] * 2, abs=3.0)


def test_places_tell_nothing_in_advice(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # One of the baselines that always take part is enough beside it, and boosting takes long.
    monkeypatch.setattr(advising, "PLAIN", ("concat-nn",))
    brought = create(f"{module}:Place")
    advice = give_advice(load("digits"), methods=[brought], splits=2, episodes=60)
    found = {row["method"]: row for row in advice.rows}["Place"]
    assert found["accuracy"] == pytest.approx(100 / found["way"], abs=4.0)


def test_places_tell_nothing_of_unknown_classes(module: str) -> None:
    (row,) = run_open_set(small(f"{module}:Place", way=2, episodes=60))
    assert row["auroc"] == pytest.approx(50.0, abs=4.0)


def test_mixed_queries_are_the_same_tasks(module: str, tmp_path: Path) -> None:
    """What is kept of every query has the order of the draw, as that of other methods."""
    path = tmp_path / "results.sqlite"
    outcome = run(small([f"{module}:Mine", "proto"], keep_probabilities=True), path)
    with Store(path, write=False) as store:
        cells = {cell.hash: cell for cell in outcome.cells}
        kept = {(cells[key].method, cells[key].split): a for key, a in store.answers(cells)}
    for split in (0, 1):
        mine, proto = kept[f"{module}:Mine", split], kept["proto", split]
        assert np.array_equal(mine.labels, proto.labels)
        said = [np.asarray(one.scores) for one in (mine, proto)]
        assert np.array_equal(said[0].argmax(-1), said[1].argmax(-1))


def test_looking_at_results_runs_nobodys_code(module: str, tmp_path: Path) -> None:
    cell = plan(small(f"{module}:Mine"))[0]
    assert status(cell) == "current"
    (tmp_path / "elsewhere.py").write_text("raise RuntimeError('was run')")
    assert status(replace(cell, method="elsewhere:Mine")) == "unknown"
