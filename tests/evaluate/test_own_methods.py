"""Methods that a user brings: objects in Python, classes and objects in a file."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from fewview import Concat, FewviewError, Proto, create
from fewview.engine._registry import enter, expand, name_and_settings, names
from fewview.evaluate import Grid, bench, make_grid, plan, run
from fewview.evaluate._executors import kept_workers
from fewview.evaluate._runner import Outcome
from fewview.results._stale import status

FILE = '''
from sklearn.linear_model import LogisticRegression
from fewview import Concat, Proto, register

class Mine(Proto):
    """Scores times a number."""

    factor: float = 2.0

    def scores(self, batch, state):
        return self.factor * super().scores(batch, state)

@register("given-name")
class Named(Mine):
    """A method that the file registers."""

thing = Concat(LogisticRegression(C=0.5), impute="zero")
nothing = 3

if __name__ == "__main__":
    raise RuntimeError("a file that is read is not run as a script")
'''


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(FILE)
    return path


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


def test_a_pipeline_enters_and_scores_as_scikit_learn_does() -> None:
    pipeline = make_pipeline(StandardScaler(), SVC(kernel="linear", C=10.0))
    rows, outcome = bench(small([Concat(pipeline), "proto"]), store="none")
    assert sorted(row["method"] for row in rows) == ["Concat[StandardScaler+SVC]", "proto"]
    # The same tasks with scikit-learn alone.
    from fewview import EpisodeSampler, TaskSpec, load
    from fewview.datasets import class_split
    from fewview.samples._scaling import fit_scaling

    data, split = load("digits"), class_split("digits", 0)
    cell = next(c for c in outcome.cells if c.split == 0 and c.method != "proto")
    base, novel = (data[np.isin(data.labels, part)] for part in (split.base, split.novel))
    scaled = fit_scaling(base, "scale").transform(novel, "float32")
    rows_of = np.concatenate([scaled.views[name] for name in sorted(scaled.views)], axis=1)
    task = TaskSpec(way=cell.way, shot=cell.shot, queries=cell.queries)
    episodes = EpisodeSampler(novel, task, name="digits").draw(0, 3)
    found = outcome.results[cell.hash].metrics.accuracy
    for number in range(3):
        labels = novel.labels
        support, query = episodes.support[number], episodes.query[number]
        fitted = make_pipeline(StandardScaler(), SVC(kernel="linear", C=10.0)).fit(
            rows_of[support], labels[support]
        )
        right = (fitted.predict(rows_of[query]) == labels[query]).mean()
        assert found[number] == pytest.approx(right, abs=0.015)


def test_what_an_object_is_called() -> None:
    assert enter(Proto()) == "proto"
    assert enter(Proto) == "proto"
    assert enter(Concat()) == "Concat"
    one, two = Concat(SVC(C=1.5)), Concat(SVC(C=2.5))
    assert enter(one) == "Concat[SVC]" == enter(Concat(SVC(C=1.5)))
    assert enter(two) == "Concat[SVC]#2"
    assert create("Concat[SVC]#2").estimator.C == 2.5
    assert "Concat[SVC]" not in names()
    assert expand(["proto,match", Proto(padding="base")]) == [
        "proto", "match", "proto[padding=base]",
    ]  # fmt: skip


def test_an_object_is_the_same_cell_as_its_text() -> None:
    texts = plan(small("proto:padding=base,proto"))
    objects = plan(small([Proto(padding="base"), Proto()]))
    assert {cell.hash for cell in texts} == {cell.hash for cell in objects}


def test_what_was_set_in_an_object_wins_over_the_grid() -> None:
    for cell in plan(small([Proto(scaling="standard"), "proto"], scaling="minmax")):
        assert cell.scaling == ("minmax" if cell.method == "proto" else "standard")


def test_long_pipelines_are_not_cut_in_the_key() -> None:
    one, two = (
        Concat(make_pipeline(*(StandardScaler() for _ in range(60)), SVC(C=c))) for c in (1.5, 2.5)
    )
    assert one.key() != two.key()


@pytest.mark.parametrize(
    ("methods", "message"),
    [
        ([SVC()], r"SVC\(\) is a SVC, not a method of fewview; wrap .* as Concat\(SVC"),
        (LogisticRegression(), "wrap a scikit-learn classifier"),
        ([3], "3 is a int, not a method"),
        ([Proto(base=make_grid)], "has a base set of its own"),
        ([], "no methods given"),
    ],
)
def test_what_is_no_method(methods: Any, message: str) -> None:
    with pytest.raises(FewviewError, match=message):
        small(methods)


@pytest.mark.usefixtures("processes")
def test_objects_go_to_other_processes() -> None:
    grid = small([Concat(make_pipeline(StandardScaler(), SVC())), Proto(padding="zero")], splits=3)
    assert accuracies(run(grid, jobs=2)) == accuracies(run(grid))


# ---------------------------------------------------------------------- files


def test_methods_of_a_file(file: Path) -> None:
    texts = [f"{file}:Mine", f"{file}:Mine:factor=5", f"{file}:given-name", f"{file}:thing"]
    rows, _ = bench(small(",".join([*texts, "proto"])), store="none")
    found = {row["method"]: row["accuracy"] for row in rows}
    assert set(found) == {*texts, "proto"}
    assert found[texts[0]] == found[texts[1]] == found[texts[2]] == found["proto"]
    assert create(texts[1]).factor == 5  # type: ignore[attr-defined]
    assert create(texts[3]).impute == "zero"
    assert "mine.py" not in " ".join(names())


def test_names_with_colons() -> None:
    assert name_and_settings(r"C:\code\mine.py:Mine:k=3:j=4") == (
        r"C:\code\mine.py:Mine",
        ["k=3", "j=4"],
    )
    assert name_and_settings("mine.py:k=3") == ("mine.py", ["k=3"])
    assert name_and_settings("ptmap+ugda:ugda__n_anchors=5") == (
        "ptmap+ugda",
        ["ugda__n_anchors=5"],
    )


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("gone.py:Mine", None, "gone.py: no such file"),
        ("mine.py", FILE, r"say which method of the file, as .*:Mine \(it has: Mine, Named, thing"),
        ("mine.py:Mane", FILE, "has no method 'Mane'; did you mean Mine"),
        ("mine.py:nothing", FILE, "nothing is a int, not a method of fewview"),
        ("mine.py:LogisticRegression", FILE, r"wrap .* as Concat\(LogisticRegression\("),
        ("mine.py:Mine", "\nimport nowhere_at_all", r"ModuleNotFoundError: .* \(line 2\)"),
        ("mine.py:Mine", "x = = 3", "running it gave SyntaxError"),
        ("mine.py:Mine", "import sys\nsys.exit(3)", r"SystemExit: 3 \(line 2\)"),
        ("mine.py:A", "from fewview import Method\nclass A(Method): pass", "A cannot be made: "),
        (
            "mine.py:A",
            "from fewview import Proto, register\n@register('ptmap')\nclass A(Proto): pass",
            "two methods want the name 'ptmap'",
        ),
    ],
)
def test_what_is_wrong_with_a_file_is_said(
    name: str, text: str | None, message: str, tmp_path: Path
) -> None:
    if text is not None:
        (tmp_path / "mine.py").write_text(text)
    with pytest.raises(FewviewError, match=message):
        plan(small(f"{tmp_path}/{name}"))


def test_a_changed_file_is_not_taken_for_the_old_one(file: Path, tmp_path: Path) -> None:
    grid, store = small(f"{file}:Mine"), tmp_path / "results.sqlite"
    first = run(grid, store)
    assert (run(grid, store).computed, first.computed) == (0, 2)
    cell = first.cells[0]
    assert status(cell) == "current"
    file.write_text(FILE.replace("return self", "return -self"))
    assert status(cell) == "stale"
    second = run(grid, store)
    assert (second.computed, second.stale) == (2, 2)
    assert accuracies(second) != accuracies(first)
    file.unlink()
    assert status(cell) == "unknown"


def test_looking_at_results_runs_no_file(file: Path, tmp_path: Path) -> None:
    cell = plan(small(f"{file}:Mine"))[0]
    file.write_text(f"open({str(tmp_path / 'was run')!r}, 'w')")
    assert status(cell) == "stale"
    assert not (tmp_path / "was run").exists()


def test_a_file_may_import_its_neighbour(tmp_path: Path) -> None:
    (tmp_path / "neighbour_of_mine.py").write_text("factor = 3.0")
    (tmp_path / "mine.py").write_text(
        "from neighbour_of_mine import factor\nfrom fewview import Proto\n"
        "class Mine(Proto):\n    factor: float = factor\n"
    )
    assert create(f"{tmp_path}/mine.py:Mine").factor == 3.0  # type: ignore[attr-defined]


@pytest.mark.usefixtures("processes")
def test_files_go_to_other_processes_as_they_were(file: Path) -> None:
    grid = small([f"{file}:Mine", f"{file}:thing"], splits=3)
    here = run(grid)
    assert accuracies(run(grid, jobs=2)) == accuracies(here)


def test_methods_of_a_file_on_a_cluster(file: Path) -> None:
    """A worker that does not have the file gets the class itself."""
    import pickle

    from fewview.engine._registry import pack_own
    from fewview.evaluate._cluster_worker import Job, Place

    grid = small([f"{file}:Mine", Concat(SVC(C=7.0))])
    cells = plan(grid)
    here = accuracies(run(grid))
    job = pickle.dumps(Job(grid, {cells[0].data_checksum: Place("digits")}, pack_own(grid.methods)))
    file.unlink()
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
    done = subprocess.run(
        [sys.executable, "-c", program],
        input=pickle.dumps((job, pickle.dumps((cells, {})))),
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    lines = (line.split("\t") for line in done.stdout.decode().splitlines())
    assert {name: [float(number) for number in rest] for name, *rest in lines} == here


def test_what_cannot_be_sent_is_said(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import threading\nfrom fewview import Proto\nlock = threading.Lock()\n"
        "class Mine(Proto):\n"
        "    def scores(self, batch, state):\n"
        "        with lock:\n            return super().scores(batch, state)\n"
    )
    grid = small([f"{tmp_path}/mine.py:Mine"])
    assert run(grid).computed == 2
    with pytest.raises(FewviewError, match="cannot be sent to other processes"):
        run(grid, jobs=2)


# ---------------------------------------------------------------------- who looks at places

PLACE = """
import numpy as np
import torch
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.svm import SVC
from fewview import Concat, Method

class Place(Method):
    '''Class by class: the first queries are of the first class.'''

    name = "place"

    def scores(self, batch, state):
        at = torch.arange(batch.n_query) * batch.way // batch.n_query
        return torch.nn.functional.one_hot(at, batch.way).double().expand(batch.n_tasks, -1, -1)

    def typicality(self, batch, state):
        first = torch.arange(batch.n_query) < batch.n_query // 2
        return first.double()[:, None].expand(batch.n_tasks, -1, batch.way)

def place(x):
    return np.linspace(0, 1, len(x))[:, None]

pipeline = Concat(make_pipeline(FunctionTransformer(place), SVC(C=100.0)))
"""


@pytest.fixture
def places(tmp_path: Path) -> Path:
    path = tmp_path / "places.py"
    path.write_text(PLACE)
    return path


def test_places_of_queries_tell_nothing(places: Path) -> None:
    """Three classes: who knows nothing but places is right in a third, and was always."""
    grid = small(f"{places}:Place,{places}:pipeline", episodes=100)
    rows, _ = bench(grid, store="none")
    # 200 tasks of 45 queries or more: a standard error below 0.6 points.
    assert {row["accuracy"] == pytest.approx(100 / 3, abs=3.0) for row in rows} == {True}


def test_places_tell_nothing_to_objects_and_in_advice(
    places: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fewview.evaluate._advice as advising
    from fewview import load
    from fewview.evaluate._advice import give_advice
    from fewview.ground._own_code import load_file

    # One of the baselines that always take part is enough beside it, and boosting takes long.
    monkeypatch.setattr(advising, "PLAIN", ("concat-nn",))
    brought = load_file(places).Place
    advice = give_advice(load("digits"), methods=[brought()], splits=2, episodes=60)
    found = {row["method"]: row for row in advice.rows}["place"]
    assert found["accuracy"] == pytest.approx(100 / found["way"], abs=4.0)


def test_places_tell_nothing_of_unknown_classes(places: Path) -> None:
    from fewview.evaluate._open_set import run_open_set

    (row,) = run_open_set(small(f"{places}:Place", way=2, episodes=60))
    assert row["auroc"] == pytest.approx(50.0, abs=4.0)


def test_mixed_queries_are_the_same_tasks(file: Path, tmp_path: Path) -> None:
    """What is kept of every query has the order of the draw, as that of other methods."""
    from fewview.results import Store

    path = tmp_path / "results.sqlite"
    outcome = run(small([f"{file}:Mine", "proto"], keep_probabilities=True), path)
    with Store(path, write=False) as store:
        cells = {cell.hash: cell for cell in outcome.cells}
        kept = {(cells[key].method, cells[key].split): a for key, a in store.answers(cells)}
    for split in (0, 1):
        mine, proto = kept[f"{file}:Mine", split], kept["proto", split]
        assert np.array_equal(mine.labels, proto.labels)
        said = [np.asarray(one.scores) for one in (mine, proto)]
        assert np.array_equal(said[0].argmax(-1), said[1].argmax(-1))


# ---------------------------------------------------------------------- functions in pipelines

FUNCTIONS = """
import sys
import numpy as np
from functools import partial
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.svm import SVC
from fewview import Concat
from fewview.engine._registry import enter, get_entry

def power(p):
    return lambda x: factor * np.abs(x) ** p

def times(x, by):
    return by * x

for factor in map(float, sys.argv[1:]):
    for made in (power(2), power(3), partial(times, by=2), partial(times, by=3)):
        method = Concat(make_pipeline(FunctionTransformer(made), SVC()))
        print(method.key(), get_entry(enter(method)).digest, sep="|")
"""


def pipelines_of_a_process(*factors: str) -> list[str]:
    """Keys and digests of pipelines that no file has, as a process of its own sees them."""
    command = [sys.executable, "-c", FUNCTIONS, *factors]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_pipelines_with_functions_have_keys_that_last() -> None:
    both, again = pipelines_of_a_process("1", "2"), pipelines_of_a_process("1")
    first, other = both[:4], both[4:]
    assert first == again
    assert len({line.partition("|")[0] for line in first}) == 4
    assert " at 0x" not in " ".join(first)
    # What the functions use from around them is part of them, for who uses it.
    assert [one != two for one, two in zip(first, other, strict=True)] == [True, True, False, False]


def test_a_pipeline_with_a_function_is_found_again(places: Path, tmp_path: Path) -> None:
    grid, store = small(f"{places}:pipeline"), tmp_path / "results.sqlite"
    assert run(grid, store).computed == 2
    program = (
        "import sys\nfrom fewview.evaluate import make_grid, run\n"
        "grid = make_grid(['digits'], methods=sys.argv[1], splits=2, episodes=3)\n"
        "print(run(grid, sys.argv[2]).computed)"
    )
    command = [sys.executable, "-c", program, f"{places}:pipeline", str(store)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0"]


def test_a_pipeline_in_a_file_is_known_by_its_file(file: Path) -> None:
    (cell, _) = plan(small(f"{file}:thing"))
    assert status(cell) == "current"
    file.write_text(FILE.replace("C=0.5", "C=0.6"))
    assert status(cell) == "stale"


def test_code_that_no_file_has_is_said_to_be_forgotten(tmp_path: Path) -> None:
    from fewview.evaluate._progress import Progress

    def told(method: Any, store: Any) -> str:
        said: list[str] = []
        progress = Progress()
        progress.message = said.append  # type: ignore[method-assign]
        run(small([method]), store, progress=progress)
        return " ".join(said)

    space: dict[str, Any] = {"__name__": "a_notebook"}
    exec("from fewview import Proto\nclass Cell(Proto):\n    name = 'of-a-cell'", space)
    said = told(space["Cell"](), tmp_path / "results.sqlite")
    assert "of-a-cell: its code is in no file" in said
    assert "mine.py:Mine" in said
    assert not told(space["Cell"](), "none")
    assert not told("proto", tmp_path / "results.sqlite")
