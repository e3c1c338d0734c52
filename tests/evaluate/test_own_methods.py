"""Methods that a user brings: objects in Python, classes and objects in a file."""

from __future__ import annotations

import subprocess
import sys
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
