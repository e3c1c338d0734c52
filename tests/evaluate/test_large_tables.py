"""Tables in parts: the same digits whatever the parts and the workers, and nothing done twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fewview.evaluate.parts._larger as larger
import fewview.evaluate.parts._pieces as pieces
from fewview import FewviewError, MultiViewData, create
from fewview.engine._checks import synthetic_data
from fewview.engine._method import Method
from fewview.evaluate._progress import Progress
from fewview.evaluate.parts._larger import gather_parts, predict_parts
from fewview.samples._parts import TableParts

QUIET = Progress()


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "MOST_ROWS", 32)


def numbered(data: MultiViewData) -> MultiViewData:
    """The same samples with ids in the order of the rows."""
    labels = None if data.labels is None else data.labels.tolist()
    views = {view: data.view(view).astype(np.float64) for view in data.view_names}
    return MultiViewData(views, labels, mask=data.mask, ids=[*range(1000, 1000 + len(data))])


def divided(data: MultiViewData, folder: Path, parts: int, form: str = "csv") -> Path:
    """Write samples in parts of unequal sizes."""
    folder.mkdir()
    cuts = sorted(np.random.default_rng(parts).choice(len(data) - 2, parts - 1, False) + 1)
    for number, (start, stop) in enumerate(zip([0, *cuts], [*cuts, len(data)], strict=True)):
        data[int(start) : int(stop)].write(folder / f"part-{number}", format=form)
    return folder


@pytest.fixture
def queries() -> MultiViewData:
    _, novel = synthetic_data()
    return numbered(MultiViewData.concat([novel.without_ids()] * 3).with_labels(None))


@pytest.fixture
def fitted() -> Callable[[str], Method]:
    def make(text: str) -> Method:
        base, novel = synthetic_data()
        return create(text).fit_base(base).fit(novel[::5])

    return make


def written(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.name[0] != "_"}


def texts(folder: Path) -> str:
    """All parts of a folder of .csv files as one table."""
    parts = [written(folder)[name].decode().splitlines() for name in sorted(written(folder))]
    return "\n".join([parts[0][0], *(line for part in parts for line in part[1:])])


@pytest.mark.parametrize(
    ("text", "block"), [("proto", None), ("marginal:settings=default", 1), ("ptmap", 50)]
)
def test_digits_do_not_depend_on_the_number_of_parts(
    tmp_path: Path, queries: MultiViewData, fitted: Any, text: str, block: int | None
) -> None:
    found = []
    for parts in (1, 4, 11):
        table = TableParts.open(divided(queries, tmp_path / f"q{parts}", parts))
        target = tmp_path / f"p{parts}.csv"
        count = predict_parts(fitted(text), table, target, block=block, progress=QUIET)
        assert count == len(queries)
        found.append(written(target))
    assert len(found[0]) == -(-len(queries) // pieces.rows_of_piece(queries, block or 1)) > 1
    assert found[0] == found[1] == found[2]


def test_answers_are_those_of_the_whole_table(
    tmp_path: Path, queries: MultiViewData, fitted: Any
) -> None:
    table = TableParts.open(divided(queries, tmp_path / "q", 3, "parquet"))
    for text, alone in (("proto", False), ("marginal:settings=default", True)):
        clf = fitted(text)
        target = tmp_path / f"{text[:5]}.parquet"
        predict_parts(clf, table, target, block=1, progress=QUIET)
        found = _rows(target)
        wanted = clf.prediction_columns(queries, together=not alone)
        assert [row["id"] for row in found] == wanted["id"]
        assert [row["views"] for row in found] == wanted["views"]
        columns = [name for name in wanted if name.startswith("p_")]
        got = np.array([[row[name] for name in columns] for row in found])
        np.testing.assert_allclose(got, np.array([wanted[c] for c in columns]).T, atol=1e-4)


def _rows(folder: Path) -> list[dict[str, Any]]:
    from pyarrow.parquet import read_table

    return [
        row for name in sorted(written(folder)) for row in read_table(folder / name).to_pylist()
    ]


def test_blocks_are_what_a_method_sees(tmp_path: Path, queries: MultiViewData, fitted: Any) -> None:
    table = TableParts.open(divided(queries, tmp_path / "q", 5))
    clf = fitted("ptmap")
    predict_parts(clf, table, tmp_path / "p.csv", block=50, progress=QUIET)
    labels = [line.split(",")[1] for line in texts(tmp_path / "p.csv").splitlines()[1:]]
    wanted = [clf.predict(queries[start : start + 50]) for start in range(0, len(queries), 50)]
    assert labels == np.concatenate(wanted).astype(str).tolist()


def test_processes_and_clusters_write_the_same(
    tmp_path: Path, queries: MultiViewData, fitted: Any, threads: str
) -> None:
    table = TableParts.open(divided(queries, tmp_path / "q", 3))
    clf, found = fitted("marginal:settings=default"), []
    for name, how in {"here": {}, "jobs": {"jobs": 2}, "cluster": {"cluster": threads}}.items():
        predict_parts(clf, table, tmp_path / f"{name}.csv", block=1, progress=QUIET, **how)
        found.append(written(tmp_path / f"{name}.csv"))
    assert found[0] == found[1] == found[2]


@pytest.fixture
def threads() -> Iterator[str]:
    """Two workers in this process."""
    distributed = pytest.importorskip("distributed", reason="pip install fewview[cluster]")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=False, protocol="tcp", host="127.0.0.1",
        dashboard_address=None,
    ) as cluster:  # fmt: skip
        yield cluster.scheduler_address


def test_a_stopped_run_goes_on(
    tmp_path: Path, queries: MultiViewData, fitted: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = TableParts.open(divided(queries, tmp_path / "q", 3))
    clf = fitted("proto")
    predict_parts(clf, table, tmp_path / "whole.csv", progress=QUIET)
    real, done = larger.save_columns, []

    def save(columns: Any, path: Path) -> None:
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(path)
        real(columns, path)

    monkeypatch.setattr(larger, "save_columns", save)
    with pytest.raises(KeyboardInterrupt):
        predict_parts(clf, table, tmp_path / "p.csv", progress=QUIET)
    assert len(written(tmp_path / "p.csv")) == 2
    monkeypatch.setattr(larger, "save_columns", real)
    count = predict_parts(clf, table, tmp_path / "p.csv", progress=QUIET)
    assert count == len(queries) - 2 * pieces.MOST_ROWS
    assert written(tmp_path / "p.csv") == written(tmp_path / "whole.csv")
    with pytest.raises(FewviewError, match="predictions of another command"):
        predict_parts(fitted("match"), table, tmp_path / "p.csv", progress=QUIET)


def test_what_is_wrong_is_said(tmp_path: Path, queries: MultiViewData, fitted: Any) -> None:
    folder = divided(queries, tmp_path / "q", 3)
    table = TableParts.open(folder)
    with pytest.raises(FewviewError, match=r"PTMAP looks at queries together.*--block 1000"):
        predict_parts(fitted("ptmap"), table, tmp_path / "p.csv", progress=QUIET)
    with pytest.raises(FewviewError, match="--block 0"):
        predict_parts(fitted("ptmap"), table, tmp_path / "p.csv", block=0, progress=QUIET)
    (tmp_path / "here.csv").mkdir()
    (tmp_path / "here.csv" / "mine").touch()
    with pytest.raises(FewviewError, match="is not empty"):
        predict_parts(fitted("proto"), table, tmp_path / "here.csv", progress=QUIET)
    for file in (folder / "part-1").glob("*.csv"):
        file.write_text("\n".join(file.read_text().splitlines()[:-1]) + "\n")
    with pytest.raises(FewviewError, match=r"part-1 has .* samples and had"):
        predict_parts(fitted("proto"), table, tmp_path / "p.csv", progress=QUIET)
    with pytest.raises(FewviewError, match="has no parts"):
        TableParts.open(folder / "part-1")


# ---------------------------------------------------------------------- base sets


@pytest.mark.parametrize("text", ["marginal:settings=default", "ugda", "proto"])
def test_base_statistics_do_not_depend_on_the_number_of_parts(tmp_path: Path, text: str) -> None:
    base, novel = synthetic_data()
    base = numbered(base)
    models, answers = [], []
    for parts, how in ((1, {}), (5, {}), (5, {"jobs": 2})):
        folder = tmp_path / f"b{parts}"
        if not folder.exists():
            divided(base, folder, parts, "parquet")
        clf = create(text)
        clf.use_base(gather_parts(clf, TableParts.open(folder), progress=QUIET, **how))
        clf.save(tmp_path / "a.model")
        models.append((tmp_path / "a.model").read_bytes())
        answers.append(clf.fit(novel[::5]).predict_proba(novel))
    assert models[0] == models[1] == models[2]
    # Few enough samples for all of them to be in the sample that fixes the scaling.
    whole = create(text).fit_base(base).fit(novel[::5]).predict_proba(novel)
    np.testing.assert_allclose(answers[0], whole, atol=2e-2)
