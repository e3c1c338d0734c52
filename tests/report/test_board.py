"""The frozen suite: what it says, its board worked out by hand, submissions good and bad."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sklearn
from scipy import stats
from sklearn.svm import SVC
from typer.testing import CliRunner

from fewview import Concat, FewviewError
from fewview.cli._app import app
from fewview.datasets._catalogue import get_spec
from fewview.datasets._catalogue import names as data_names
from fewview.engine._registry import create, enter, names
from fewview.evaluate._progress import Progress
from fewview.evaluate.suites._suite import FOLDER as SUITES
from fewview.evaluate.suites._suite import FORMS, Suite, read_suite
from fewview.report._board import (
    FOLDER,
    board_page,
    interval,
    label_of,
    make_board,
    read_submission,
    record_suite,
    remarks,
    run_suite,
    stored_suite,
    write_submission,
)

# What the example does, by another name.
RULE = "proto:scaling=scale:padding=episode"
DOCS = Path(__file__).parents[2] / "docs"
METHOD = '''
from fewview import Method, Tags
from fewview.numerics import class_means, squared_distances

class Mine(Method):
    """Nearest class mean."""

    tags = Tags()

    def scores(self, batch, state):
        support, query = batch.concatenated()
        return -squared_distances(query, class_means(support, batch.one_hot()))
'''


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Suite:
    """The suite's own form, made small: digits, two class splits, two tasks."""
    text = (SUITES / "fewview-1.toml").read_text(encoding="utf-8")
    text = text.replace("splits = [0, 1, 2, 3, 4]\nepisodes = 10", "splits = [0, 1]\nepisodes = 2")
    path = tmp_path_factory.mktemp("suite") / "tiny.toml"
    path.write_text(text.replace('["digits", "handwritten", "ccle"]', '["digits"]'))
    return read_suite("lite", path)


# ---------------------------------------------------------------------- what the file says


@pytest.mark.parametrize("form", FORMS)
def test_the_suite_is_of_known_things(form: str) -> None:
    suite = read_suite(form)
    assert set(suite.methods) == {one for one in names() if not create(one).tags.trained}
    assert len({panel.name for panel in suite.panels}) == len(suite.panels)
    for one in suite.data:
        assert one.panels, one.name
        if one.folder is None:
            assert one.name in data_names()
            assert str(get_spec(one.name).checksum).startswith(one.checksum)
    kinds = {(p.missing, p.query_counts, p.shot) for p in suite.panels}
    assert {missing for missing, _, _ in kinds} == {"uniform", "class", "patterns"}
    assert {counts for _, counts, _ in kinds} == {"balanced", "dirichlet:1", "dominant:0.8"}
    assert {shot for _, _, shot in kinds} == {1, 5}


def test_every_method_of_the_suite_is_on_the_board() -> None:
    suite = read_suite("lite")
    assert set(suite.methods) <= {line.label for line in make_board(suite).lines}


def test_lite_is_a_part_of_full() -> None:
    lite, full = read_suite("lite"), read_suite("full")
    assert set(lite.settings) <= set(full.settings)
    assert set(lite.splits) <= set(full.splits)


def test_data_that_are_not_here_are_skipped_with_a_reason(tmp_path: Path) -> None:
    grids, skipped = read_suite("lite").grids(["proto"], str(tmp_path))
    assert {grid.datasets[0] for _, grid in grids} == {"digits"}
    assert set(skipped) == {"handwritten", "ccle"}
    assert "'fewview data fetch handwritten' gets it" in skipped["handwritten"]
    assert "cannot be fetched (Cancer Cell Line Encyclopedia" in skipped["ccle"]


def test_novel_classes_without_their_base_set_are_skipped(tmp_path: Path) -> None:
    """birds200 has no base classes of its own; a run must not end because of that."""
    (tmp_path / "birds200.npz").write_bytes(b"")
    _, skipped = read_suite("full").grids(["proto"], str(tmp_path))
    assert skipped["birds200"].startswith("tieredimagenet_tiny is not here: 'fewview data info")


def test_processes_are_started_once_for_all_panels(tiny: Suite, tmp_path: Path) -> None:
    """Five panels and two processes: no others than two do the work, and none is left."""
    told = f"open(r'{tmp_path}/' + str(os.getpid()), 'w').close()"
    text = METHOD.replace("support, query =", f"import os; {told}; support, query =")
    (tmp_path / "mine.py").write_text(text)
    gathered, _ = run_suite(tiny, [f"{tmp_path}/mine.py:Mine"], store="none", jobs=2)
    assert sum(len(item.results) for item in gathered) == 18
    seen = [int(path.name) for path in tmp_path.iterdir() if path.name.isdigit()]
    seen.remove(os.getpid())  # which checked the method first
    assert len(seen) in (1, 2)  # the quicker one may have done it all
    for process in seen:
        with pytest.raises(ProcessLookupError):
            os.kill(process, 0)


# ---------------------------------------------------------------------- the board


def row(dataset: str, role: str, means: list[float], **more: Any) -> dict[str, Any]:
    return {
        "dataset": dataset, "role": role, "eta": 0.0, "accuracy": float(np.mean(means)),
        "split_means": dict(enumerate(means)), "episodes": 10 * len(means), **more,
    }  # fmt: skip


def test_an_interval_has_a_width_where_nothing_is_wrong() -> None:
    """All of 50 tasks right: Wilson's lower end is n / (n + z^2), z = 1.96."""
    mean, low, high = interval([row("a", "x", [100.0] * 5), row("a", "y", [100.0] * 5)])
    assert (mean, high) == (100.0, 100.0)
    assert low == pytest.approx(100 * 50 / (50 + stats.norm.ppf(0.975) ** 2))


def test_interval_of_one_data_set_is_students() -> None:
    """Two settings that share class splits: the split means of their average, by scipy."""
    rows = [row("a", "x", [60.0, 70.0, 80.0]), row("a", "y", [70.0, 72.0, 74.0])]
    means = np.array([65.0, 71.0, 77.0])
    low, high = stats.t.interval(0.95, 2, means.mean(), stats.sem(means))
    assert interval(rows) == pytest.approx((71.0, low, high))


def test_interval_of_two_data_sets_is_welchs() -> None:
    """Equal weights: the mean of two independent means, as in Welch's test of a difference."""
    one, two = np.array([60.0, 70.0, 80.0, 66.0]), np.array([20.0, 21.0, 25.0])
    mean, low, high = interval([row("a", "x", one.tolist()), row("b", "x", two.tolist())])
    test = stats.ttest_ind(one, -two, equal_var=False).confidence_interval(0.95)
    assert mean == pytest.approx((one.mean() + two.mean()) / 2)
    assert (low, high) == pytest.approx((test.low / 2, test.high / 2))


def test_runs_are_recorded_ranked_and_shown(tiny: Suite, tmp_path: Path) -> None:
    gathered, skipped = run_suite(tiny, ["proto", "ptmap", "match"], store="none")
    assert skipped == {}
    assert "27 rows recorded, 27 are there now" in record_suite(tiny, gathered, tmp_path)
    board = make_board(tiny, tmp_path)
    assert len(board.settings) == 9
    results = {
        (item.part.role, r.cell.eta, r.cell.method, r.cell.split): 100 * r.metrics.accuracy.mean()
        for item in gathered
        for r in item.results.values()
    }
    keys = sorted({(role, eta) for role, eta, _, _ in results})
    methods = ["proto", "ptmap", "match"]
    table = np.array([[[results[*k, m, s] for s in (0, 1)] for k in keys] for m in methods])
    for place, name in enumerate(methods):
        line = next(line for line in board.lines if line.label == name)
        assert line.mean == pytest.approx(table[place].mean(), abs=1e-3)
        others = np.delete(table, place, axis=0).round(4)
        mine = table[place].round(4)
        wins = (mine > others).mean() + 0.5 * (mine == others).mean()
        assert line.wins == pytest.approx(100 * wins)
        means = table.mean(axis=2).round(6)
        rank = np.mean([stats.rankdata(-means[:, k])[place] for k in range(len(keys))])
        assert line.rank == pytest.approx(rank, abs=0.12)  # recorded numbers are rounded
    assert [line.mean for line in board.lines] == sorted(
        (line.mean for line in board.lines), reverse=True
    )
    page = board_page(board)
    assert page.count("\n| ptmap |") == 2
    # One method again replaces its rows and no others.
    again, _ = run_suite(tiny, ["match"], store="none")
    assert "9 rows recorded, 27 are there now" in record_suite(tiny, again, tmp_path)


def test_a_method_that_lacks_settings_is_not_ranked(tiny: Suite, tmp_path: Path) -> None:
    gathered, _ = run_suite(tiny, ["proto", "match"], store="none")
    record_suite(tiny, gathered, tmp_path)
    path = tmp_path / "fewview-1-lite.csv"
    lines = path.read_text().splitlines()
    gone = next(k for k, line in enumerate(lines) if ",match," in line)
    path.write_text("\n".join(lines[:gone] + lines[gone + 1 :]) + "\n")
    board = make_board(tiny, tmp_path)
    assert [line.label for line in board.lines] == ["proto"]
    assert board.lacking == {"match": 1}


def test_nothing_recorded_is_said(tiny: Suite, tmp_path: Path) -> None:
    with pytest.raises(
        FewviewError, match="nothing is recorded for fewview-1-lite; 'fewview suite"
    ):
        make_board(tiny, tmp_path)


# ---------------------------------------------------------------------- submissions


@pytest.fixture(scope="module")
def sent(tiny: Suite, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sent")
    (folder / "mine.py").write_text(METHOD)
    store, text = str(folder / "store.sqlite"), f"{folder / 'mine.py'}:Mine"
    run_suite(tiny, [text], store=store)
    gathered, _ = stored_suite(tiny, [text], store, None, "cpu")
    assert write_submission(tiny, gathered, folder / "mine.json", "by hand") == 9
    return folder / "mine.json"


def test_a_name_of_the_board_is_refused_before_it_is_sent(tiny: Suite, tmp_path: Path) -> None:
    (tmp_path / "my file.py").write_text(METHOD.replace("class Mine", "class proto"))
    gathered, _ = run_suite(tiny, [f"{tmp_path}/my file.py:proto"], store="none")
    with pytest.raises(FewviewError, match="has a method 'proto' already; give your class another"):
        write_submission(tiny, gathered, tmp_path / "sent.json")
    assert not (tmp_path / "sent.json").exists()


def test_a_submission_stands_on_the_board(tiny: Suite, sent: Path, tmp_path: Path) -> None:
    record_suite(tiny, run_suite(tiny, [RULE], store="none")[0], tmp_path)
    board = make_board(tiny, tmp_path, [sent])
    mine, proto = sorted(board.lines, key=lambda line: line.label)
    assert (mine.label, mine.submitted, proto.submitted) == ("Mine", True, False)
    assert mine.mean == pytest.approx(proto.mean)  # it is the same rule
    assert (mine.wins, mine.rank) == (50.0, 1.5)
    assert mine.flags == ("by padding", "-", "-")
    assert "Mine (submitted)" in board_page(board)


PIPELINE = """
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.svm import SVC
from fewview import Concat

mine = Concat(make_pipeline(FunctionTransformer(lambda x: 2 * x), SVC(C=2.5)))
"""


def test_a_pipeline_says_what_it_is(tiny: Suite, tmp_path: Path) -> None:
    """In a file it has the digest of the file; from Python its parameters and versions."""
    (tmp_path / "mine.py").write_text(PIPELINE)
    texts = [f"{tmp_path}/mine.py:mine", enter(Concat(SVC(C=2.5)))]
    record_suite(tiny, run_suite(tiny, [RULE], store="none")[0], tmp_path)
    sent = [tmp_path / "one.json", tmp_path / "two.json"]
    for text, path in zip(texts, sent, strict=True):
        write_submission(tiny, run_suite(tiny, [text], store="none")[0], path)
    board = make_board(tiny, tmp_path, sent)
    lines = {line.label: line for line in board.lines}
    digest = hashlib.sha256(PIPELINE.encode()).hexdigest()[:12]
    assert lines["mine"].version == f"{Concat.version} {digest}"
    assert not lines["mine"].note
    (said,) = [text for text in remarks(board) if "no file" in text]
    assert said.startswith("* Concat[SVC]: no file of code: Concat(")
    assert "estimator=SVC(C=2.5, random_state=0)" in said
    assert f"scikit-learn {sklearn.__version__}" in said
    content = json.loads(sent[1].read_text())
    content["settings"] = content["runs"] = []
    sent[1].write_text(json.dumps(content))
    assert "does not say what" in " ".join(remarks(make_board(tiny, tmp_path, sent)))


def test_what_a_method_in_a_file_is_called() -> None:
    assert label_of("some/where/mine.py:Mine:k=3") == "Mine:k=3"
    assert label_of("proto:padding=zero") == "proto:padding=zero"


def change(**values: Any) -> Callable[[dict[str, Any]], None]:
    def apply(content: dict[str, Any]) -> None:
        content["rows"][0].update(values)

    return apply


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda c: c.update(suite="fewview-2"), "suite is 'fewview-2', not 'fewview-1'"),
        (lambda c: c.update(kind="x"), "kind is 'x'"),
        (lambda c: c.pop("rows"), "not a submission"),
        (lambda c: c.update(rows=[]), "no results"),
        (lambda c: c["rows"].pop(), "Mine lacks 1 settings"),
        (lambda c: c["rows"].append(dict(c["rows"][0])), "two rows for one setting"),
        (lambda c: c["methods"]["Mine"].update(flags=["<b>", "-", "-"]), "the flags of Mine"),
        (change(accuracy=99.9), "not the mean over class splits"),
        (change(split_means={"0": 150.0, "1": 150.0}, accuracy=150.0), "not between 0 and 100"),
        (change(split_means={"0": 50.0}, accuracy=50.0), r"class splits \[0\]; wanted \[0, 1\]"),
        (change(episodes=3), "episodes is 3; in the suite it is 4"),
        (change(data="deadbeef"), "data is 'deadbeef'"),
        (change(role="another"), "no such setting"),
        (change(eta=0.7), "0.7 is no missing rate"),
        (change(seconds_per_episode="soon"), "not a submission"),
    ],
)
def test_what_is_wrong_with_a_submission_is_said(
    damage: Callable[[dict[str, Any]], Any], message: str, tiny: Suite, sent: Path, tmp_path: Path
) -> None:
    content = json.loads(sent.read_text())
    damage(content)
    path = tmp_path / "bad.json"
    path.write_text(json.dumps(content))
    with pytest.raises(FewviewError, match=f"bad.json: .*{message}"):
        read_submission(path, tiny)


CHEATS = """
import torch
from fewview import Method

class Place(Method):
    name = "place"
    def scores(self, batch, state):
        at = torch.arange(batch.n_query) * batch.way // batch.n_query
        return torch.nn.functional.one_hot(at, batch.way).double().expand(batch.n_tasks, -1, -1)

class Peek(Method):
    name = "peek"
    def scores(self, batch, state):
        if batch.query_labels is None:
            return torch.zeros(batch.n_tasks, batch.n_query, batch.way)
        return torch.nn.functional.one_hot(batch.query_labels, batch.way).double()
"""


@pytest.mark.parametrize(("name", "check"), [("Place", "query order"), ("Peek", "query labels")])
def test_who_knows_the_answers_is_refused(
    tiny: Suite, tmp_path: Path, name: str, check: str
) -> None:
    (tmp_path / "cheats.py").write_text(CHEATS)
    with pytest.raises(FewviewError, match=f"fails the check '{check}'.*takes no such method"):
        run_suite(tiny, [f"{tmp_path}/cheats.py:{name}"], store="none")


def test_a_name_that_nobody_knows_is_an_error_at_once(tiny: Suite) -> None:
    told: list[str] = []
    progress = Progress()
    progress.message = told.append  # type: ignore[method-assign]
    with pytest.raises(FewviewError, match="nobody"):
        run_suite(tiny, ["proto", "nobody"], store="none", progress=progress)
    assert not told


# ---------------------------------------------------------------------- what is recorded here


def test_recorded_results_are_of_the_suite() -> None:
    suite = read_suite("lite")
    board = make_board(suite)
    assert {setting[:2] for setting in board.settings} == set(suite.settings)
    assert len(board.settings) == 20
    own = {line.label for line in board.lines if not line.submitted}
    assert {"proto", "ptmap", "unem"} <= own <= set(names())


@pytest.mark.parametrize(("form", "file"), [("lite", "leaderboard"), ("full", "leaderboard-full")])
def test_the_page_is_what_is_recorded(form: str, file: str) -> None:
    page = (DOCS / f"{file}.md").read_text(encoding="utf-8")
    assert page == board_page(make_board(read_suite(form))), (
        f"fewview suite show --form {form} --output docs/{file}.md"
    )
    assert f"--form {form} --output docs/{file}.md" in " ".join(page.split())


def test_commands(tmp_path: Path) -> None:
    runner = CliRunner()
    shown = runner.invoke(app, ["suite", "show"])
    assert shown.exit_code == 0, shown.output
    assert "proto" in shown.output
    page = tmp_path / "page.md"
    assert runner.invoke(app, ["suite", "show", "--output", str(page)]).exit_code == 0
    assert page.read_text().startswith("# Leaderboard")
    wrong = runner.invoke(app, ["suite", "show", "--lite", "--form", "full"])
    assert isinstance(wrong.exception, FewviewError)
    unknown = runner.invoke(app, ["suite", "show", "--data", "mnist"])
    assert "--data mnist: fewview-1-lite has digits" in str(unknown.exception)
    none = runner.invoke(app, ["suite", "submit", "--store", str(tmp_path / "none.sqlite")])
    assert "say which method" in str(none.exception)
    options = ["--methods", "proto", "--store", str(tmp_path / "none.sqlite")]
    early = runner.invoke(app, ["suite", "submit", *options])
    assert "no such store; first: fewview suite run --form lite" in str(early.exception)
    assert FOLDER.is_dir()
