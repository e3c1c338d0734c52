"""Tables in parts: the same digits whatever the parts and the workers, and nothing done twice."""

from __future__ import annotations

import gzip
import io
import json
import re
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest

import fewview.evaluate.parts._larger as larger
import fewview.evaluate.parts._pieces as pieces
from fewview import FewviewError, FewviewWarning, Method, MultiViewData, create
from fewview.datasets import make_few_shot
from fewview.evaluate._predictions import predict_table
from fewview.evaluate._progress import PlainProgress, Progress, Rows
from fewview.evaluate.parts._larger import gather_parts, predict_parts
from fewview.samples._parts import TableParts

QUIET = Progress()
SAMPLES = make_few_shot(10, 20, {"shape": 5, "colour": 8, "sound": 3}, seed=1)
BASE, NOVEL = SAMPLES[SAMPLES.codes < 6], SAMPLES[SAMPLES.codes >= 6]


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "MOST_ROWS", 32)
    monkeypatch.setattr(pieces, "SLOW_ROWS", 16)


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
    return numbered(MultiViewData.concat([NOVEL.without_ids()] * 3).with_labels(None))


@pytest.fixture
def fitted() -> Callable[[str], Method]:
    def make(text: str) -> Method:
        return create(text).fit_base(BASE).fit(NOVEL[::5])

    return make


def written(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.name[0] not in "._"}


def texts(folder: Path) -> str:
    """All parts of a folder of .csv files as one table."""
    parts = [written(folder)[name].decode().splitlines() for name in sorted(written(folder))]
    return "\n".join([parts[0][0], *(line for part in parts for line in part[1:])])


@pytest.mark.parametrize(("text", "block"), [("proto", None), ("marginal", 1), ("ptmap", 50)])
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
    for text, alone in (("proto", False), ("marginal", True)):
        clf = fitted(text)
        target = tmp_path / f"{text[:5]}.parquet"
        predict_parts(clf, table, target, block=1, progress=QUIET)
        found = _rows(target)
        wanted = predict_table(clf, queries, transductive=not alone)
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
    clf, found = fitted("marginal"), []
    for name, how in {"here": {}, "jobs": {"jobs": 2}, "cluster": {"cluster": threads}}.items():
        predict_parts(clf, table, tmp_path / f"{name}.csv", block=1, progress=QUIET, **how)
        found.append(written(tmp_path / f"{name}.csv"))
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize(
    ("text", "block", "rows"), [("proto", None, 32), ("marginal", 1, 32), ("ptmap", 1, 16),
                                ("marginal", 8, 16), ("tim", 24, 24)],
)  # fmt: skip
def test_pieces_are_small_where_answers_take_long(
    tmp_path: Path, queries: MultiViewData, fitted: Any, text: str, block: int | None, rows: int
) -> None:
    table = TableParts.open(divided(queries[:70], tmp_path / "q", 2))
    predict_parts(fitted(text), table, tmp_path / "p.csv", block=block, progress=QUIET)
    assert len(written(tmp_path / "p.csv")) == -(-70 // rows)


def test_rows_without_ids_are_told_from_repeated_ones(tmp_path: Path) -> None:
    for part in ("one", "two"):
        folder = tmp_path / "q" / part
        folder.mkdir(parents=True)
        names = [f"{part} {k}" for k in range(3)] + [None]
        frame = pandas.DataFrame({"id": names, "f0": [1.0, 2.0, 3.0, 4.0]})
        frame.to_parquet(folder / "blood.parquet", index=False)
    with pytest.raises(FewviewError, match=r"one has rows without a key \(column 'id'\)"):
        TableParts.open(tmp_path / "q")


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
    (tmp_path / "p.csv" / ".part-000002.csv.half.csv").touch()
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


@pytest.mark.parametrize("text", ["marginal", "ugda", "proto"])
def test_base_statistics_do_not_depend_on_the_number_of_parts(tmp_path: Path, text: str) -> None:
    base = numbered(BASE)
    models, answers = [], []
    for parts, how in ((1, {}), (5, {}), (5, {"jobs": 2})):
        folder = tmp_path / f"b{parts}"
        if not folder.exists():
            divided(base, folder, parts, "parquet")
        clf = create(text)
        clf.fit_base(gather_parts(clf, TableParts.open(folder), progress=QUIET, **how))
        clf.save(tmp_path / "a.model")
        models.append((tmp_path / "a.model").read_bytes())
        answers.append(clf.fit(NOVEL[::5]).predict_proba(NOVEL))
    assert models[0] == models[1] == models[2]
    # Few enough samples for all of them to be in the sample that fixes the scaling.
    whole = create(text).fit_base(base).fit(NOVEL[::5]).predict_proba(NOVEL)
    np.testing.assert_allclose(answers[0], whole, atol=2e-2)


# ---------------------------------------------------------------------- tables of other programs


def foreign(folder: Path, parts: dict[str, dict[str, str]]) -> Path:
    """Write parts as anybody would: part -> view -> lines of a .csv file, after the header."""
    for part, tables in parts.items():
        (folder / part).mkdir(parents=True)
        for view, lines in tables.items():
            head = "id,label" if view == "labels" else "id,x,y"
            (folder / part / f"{view}.csv").write_text("\n".join([head, *lines.split()]) + "\n")
    return folder


def answers(tmp_path: Path, parts: dict[str, dict[str, str]], form: str = "csv") -> str:
    """Predictions for parts, as one table."""
    support = foreign(
        tmp_path / "s", {"": {"a": "0,1,2 1,5,6", "b": "0,1,1 1,7,6", "labels": "0,one 1,two"}}
    )
    clf = create("proto").fit(MultiViewData.read(support))
    table = TableParts.open(foreign(tmp_path / "f", parts))
    predict_parts(clf, table, tmp_path / f"f.{form}", progress=QUIET)
    return texts(tmp_path / f"f.{form}") if form == "csv" else ""


FIRST = {"a": "3,1,2 4,5,6", "b": "3,1,1"}
SECOND = {"a": "5,1,3 6,5,5", "b": "5,2,1 6,7,7"}


def test_a_part_without_rows_is_passed_over(tmp_path: Path) -> None:
    found = answers(tmp_path, {"0": {"a": "", "b": ""}, "1": FIRST, "2": {"a": ""}, "3": SECOND})
    ids = [line.split(",")[0] for line in found.splitlines()]
    assert ids == ["id", "3", "4", "5", "6"]
    with pytest.raises(FewviewError, match="e has no samples"):
        TableParts.open(foreign(tmp_path / "e", {"0": {"a": ""}, "1": {"a": ""}}))


def test_views_and_columns_are_as_learnt_in_every_part(tmp_path: Path) -> None:
    plain = answers(tmp_path / "1", {"0": FIRST, "1": SECOND})
    foreign(tmp_path / "2" / "f", {"1": {"a": SECOND["a"]}})
    (tmp_path / "2" / "f" / "1" / "b.csv").write_text("y,more,id,x\n1,8,5,2\n7,9,6,7\n")
    assert answers(tmp_path / "2", {"0": FIRST}) == plain
    # A view that the first part lacks is in its place.
    found = answers(tmp_path / "3", {"0": {"b": SECOND["b"]}, "1": {"a": "7,1,1", "b": "7,1,1"}})
    assert [line.split(",")[4] for line in found.splitlines()] == ["views", "b", "b", "a+b"]
    with pytest.raises(FewviewError, match=r"f/1: view 'b': column 'x' holds 'high'"):
        answers(tmp_path / "4", {"0": FIRST, "1": {"a": "5,1,1", "b": "5,high,1"}})


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_ids_are_of_one_kind(tmp_path: Path, form: str) -> None:
    answers(tmp_path, {"0": FIRST, "1": {"a": "5b,1,2 6,5,6", "b": "6,1,1"}}, form)
    if form == "parquet":
        assert [row["id"] for row in _rows(tmp_path / "f.parquet")] == ["3", "4", "5b", "6"]
    assert TableParts.open(tmp_path / "f").read(0, 4).ids.tolist() == ["3", "4", "5b", "6"]  # type: ignore[union-attr]


def test_parts_of_two_formats_are_counted_by_id(tmp_path: Path) -> None:
    from fewview.files._tables import write_parquet_columns

    folder = foreign(tmp_path / "f", {"0": {"a": FIRST["a"]}})
    block = (["x", "y"], np.ones((2, 2)))
    write_parquet_columns(folder / "0" / "b.parquet", {"id": ("int", [3, 4])}, block)
    assert TableParts.open(folder).n_samples == 2


@pytest.mark.parametrize(
    ("parts", "match"),
    [
        ({"0": FIRST, "1": SECOND, "2": FIRST}, r"f/0 and .*f/2 both have samples with id 3, 4;"),
        ({"0": {"a": "x,1,2"}, "1": {"a": "y,1,2 x,1,2"}}, r"f/0 and .*f/1 both .* id 'x';"),
        ({"0": {"a": "5,1,2"}, "1": {"a": "y,1,2 5,1,2"}}, r"f/0 and .*f/1 both .* id '5';"),
        ({"0": FIRST, "more/1": SECOND}, r"f/more has no tables \(it has 1\), and every folder"),
        (
            {"a": {"part-0": "1,1,2", "part-1": "2,1,2"}, "b": {"part-0": "1,1,2"}},
            r"a folder for every view .* such as a/part-0.csv; .* such as part-0/a.csv",
        ),
    ],
)
def test_parts_that_would_be_misread_are_refused(
    tmp_path: Path, parts: dict[str, dict[str, str]], match: str
) -> None:
    with pytest.raises(FewviewError, match=match):
        TableParts.open(foreign(tmp_path / "f", parts))


def test_means_of_parts_are_refused(tmp_path: Path) -> None:
    folder = foreign(tmp_path / "f", {"0": FIRST, "1": SECOND})
    with pytest.raises(FewviewError, match="every part would have means of its own; choose keep"):
        TableParts.open(folder, partial_rows="mean")


def test_rows_without_names_are_refused(tmp_path: Path) -> None:
    folder = foreign(tmp_path / "f", {"0": {"a": ""}, "1": {"a": ""}})
    for part in ("0", "1"):
        (folder / part / "a.csv").write_text("x,y\n1,2\n")
    with (
        pytest.raises(FewviewError, match="samples in parts need ids"),
        pytest.warns(FewviewWarning),
    ):
        TableParts.open(folder)
    for part in ("0", "1"):
        (folder / part / "a.csv").unlink()
        np.save(folder / part / "a.npy", np.ones((2, 2)))
    with pytest.raises(FewviewError, match=r"f/0: a.npy has no ids; add ids.csv"):
        TableParts.open(folder)
    (folder / "0" / "a.csv").write_text("id,x\n1,2\n")
    with pytest.raises(FewviewError, match=r"f/0: a.csv and a.npy would be the same view"):
        TableParts.open(folder)


def test_changed_queries_are_answered_again(
    tmp_path: Path, fitted: Any, queries: MultiViewData
) -> None:
    folder = divided(queries, tmp_path / "q", 4)
    clf, target = fitted("proto"), tmp_path / "p.csv"
    target.mkdir()
    (target / "._fewview.json.half").touch()  # of a run that was killed
    predict_parts(clf, TableParts.open(folder), target, progress=QUIET)
    (folder / "part-0" / ".DS_Store").touch()
    assert predict_parts(clf, TableParts.open(folder), target, progress=QUIET) == 0
    before = written(target)
    lines = sorted((folder / "part-0").glob("[!i_l]*.csv"))[0]
    header, first, *rest = lines.read_text().splitlines()
    key, *cells = first.split(",")
    lines.write_text("\n".join([header, ",".join([key, *("7" for _ in cells)]), *rest]) + "\n")
    count = predict_parts(clf, TableParts.open(folder), target, progress=QUIET)
    assert 0 < count < len(queries)  # those of the pieces that the part is in
    predict_parts(clf, TableParts.open(folder), tmp_path / "anew.csv", progress=QUIET)
    assert written(target) == written(tmp_path / "anew.csv") != before
    # Other rows are other queries.
    (folder / "part-9").mkdir()
    (folder / "part-9" / lines.name).write_text(header + "\n9999," + ",".join(cells) + "\n")
    with pytest.raises(FewviewError, match="other queries"):
        predict_parts(clf, TableParts.open(folder), target, progress=QUIET)


def test_a_wrong_cell_costs_its_own_part_alone(
    tmp_path: Path, fitted: Any, queries: MultiViewData
) -> None:
    folder, target = divided(queries, tmp_path / "q", 4), tmp_path / "p.csv"
    file = sorted((folder / "part-3").glob("[!i_l]*.csv"))[0]
    right = file.read_text()
    lines = right.splitlines()
    file.write_text("\n".join([*lines[:-1], lines[-1].rsplit(",", 1)[0] + ",oops"]) + "\n")
    with pytest.raises(FewviewError, match="oops"):
        predict_parts(fitted("proto"), TableParts.open(folder), target, progress=QUIET)
    done = len(written(target))
    assert done > 0
    file.write_text(right)
    count = predict_parts(fitted("proto"), TableParts.open(folder), target, progress=QUIET)
    assert 0 < count < len(queries)
    predict_parts(fitted("proto"), TableParts.open(folder), tmp_path / "n.csv", progress=QUIET)
    assert written(target) == written(tmp_path / "n.csv")


def test_no_processes_are_refused(tmp_path: Path, fitted: Any, queries: MultiViewData) -> None:
    table = TableParts.open(divided(queries, tmp_path / "q", 2))
    with pytest.raises(FewviewError, match="jobs is 0"):
        predict_parts(fitted("proto"), table, tmp_path / "p.csv", jobs=0, progress=QUIET)


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_whole_numbers_are_one_id_however_they_are_written(tmp_path: Path, form: str) -> None:
    import pyarrow
    from pyarrow.parquet import write_table

    def write(folder: Path, ids: list[Any]) -> None:
        folder.mkdir(parents=True)
        if form == "csv":
            rows = "".join(f"{key},1,2\n" for key in ids)
            (folder / "a.csv").write_text("id,x,y\n" + rows)
        else:
            table = {"id": ids, "x": [1.0] * len(ids), "y": [2.0] * len(ids)}
            write_table(pyarrow.table(table), folder / "a.parquet")

    write(tmp_path / "f" / "0", [3, 4])
    write(tmp_path / "f" / "1", [5.0, 6.0])
    assert TableParts.open(tmp_path / "f").n_samples == 4
    write(tmp_path / "f" / "2", [4.0, 7.0])
    with pytest.raises(FewviewError, match=r"f/0 and .*f/2 both have samples with id ('4'|4);"):
        TableParts.open(tmp_path / "f")


def typed(folder: Path, parts: list[tuple[str, list[Any]]]) -> Path:
    """Parts of one view in Parquet, whose ids are of the kinds that are named."""
    import pyarrow
    from pyarrow.parquet import write_table

    for number, (kind, ids) in enumerate(parts):
        (folder / f"{number}").mkdir(parents=True)
        keys = pyarrow.array(ids).cast(kind) if kind == "double" else pyarrow.array(ids, kind)
        table = {"id": keys, "x": [1.0] * len(ids), "y": [2.0] * len(ids)}
        write_table(pyarrow.table(table), folder / f"{number}" / "a.parquet")
    return folder


HUGE = 2**63


@pytest.mark.parametrize(
    ("parts", "kind", "wanted"),
    [
        # A frame with a gap has numbers with a point.
        ([("int64", [3, 4]), ("double", [5, 30]), ("int64", [6])], "int64", [3, 4, 5, 30, 6]),
        ([("double", [3]), ("double", [5.0])], "int64", [3, 5]),
        ([("int64", [3]), ("double", [5.5, 30.0])], "string", ["3", "5.5", "30"]),
        ([("double", [30.0, 5e15]), ("string", ["a"])], "string", ["30", "5000000000000000", "a"]),
        ([("uint64", [1, HUGE]), ("uint64", [HUGE + 5])], "uint64", [1, HUGE, HUGE + 5]),
        # Every file has the same kind of column, whatever its own ids are.
        ([("int64", [*range(40)]), ("uint64", [HUGE])], "uint64", [*range(40), HUGE]),
        ([("int64", [-1]), ("uint64", [HUGE])], "string", ["-1", str(HUGE)]),
    ],
)
def test_ids_are_written_as_the_numbers_they_are(
    tmp_path: Path, fitted: Any, parts: Any, kind: str, wanted: list[Any]
) -> None:
    from pyarrow.parquet import read_schema

    support = foreign(tmp_path / "s", {"": {"a": "0,1,2 1,5,6", "labels": "0,one 1,two"}})
    clf = create("proto").fit(MultiViewData.read(support))
    table = TableParts.open(typed(tmp_path / "f", parts))
    target = tmp_path / "p.parquet"
    predict_parts(clf, table, target, progress=QUIET)
    assert {str(read_schema(target / name).field("id").type) for name in written(target)} == {kind}
    assert [row["id"] for row in _rows(target)] == wanted
    for form in ("csv", "json"):
        predict_parts(clf, table, tmp_path / f"p.{form}", progress=QUIET)
    found = [line.split(",")[0] for line in texts(tmp_path / "p.csv").splitlines()[1:]]
    assert found == [*map(str, wanted)]
    rows = [row for _, part in sorted(written(tmp_path / "p.json").items())
            for row in json.loads(part)]  # fmt: skip
    assert [row["id"] for row in rows] == wanted


@pytest.mark.parametrize(
    "parts",
    [
        [("int64", [1, 2**62]), ("uint64", [HUGE, 2**62])],
        [("decimal128(20, 0)", [7]), ("double", [7.0])],
        [("string", ["-1"]), ("int64", [-1])],
    ],
)
def test_one_number_is_one_id_in_columns_of_all_kinds(tmp_path: Path, parts: Any) -> None:
    import pyarrow

    parts = [(pyarrow.decimal128(20, 0) if "decimal" in kind else kind, ids) for kind, ids in parts]
    with pytest.raises(FewviewError, match=r"f/0 and .*f/1 both have samples with id"):
        TableParts.open(typed(tmp_path / "f", parts))


def test_negative_ids_are_repeated_in_parts_of_two_formats(tmp_path: Path) -> None:
    folder = typed(tmp_path / "f", [("int64", [-1, 5])])
    (folder / "1").mkdir()
    (folder / "1" / "a.csv").write_text("id,x,y\n-1,1,2\n7,1,2\n")
    with pytest.raises(FewviewError, match="both have samples with id -1;"):
        TableParts.open(folder)


def test_an_empty_part_does_not_decide_the_kind_of_ids(tmp_path: Path) -> None:
    day = datetime(2024, 5, 31)
    folder = typed(tmp_path / "f", [("int64", []), ("timestamp[us]", [day])])
    assert TableParts.open(folder).read(0, 1).ids.tolist() == [day]  # type: ignore[union-attr]


def test_times_that_would_be_cut_off_are_refused(tmp_path: Path) -> None:
    folder = typed(tmp_path / "f", [("timestamp[ns]", [1704067200000000000, 1704067200123456789])])
    with pytest.raises(FewviewError, match=r"row 1 holds 2024-01-01T00:00:00\.123456789, and ids"):
        TableParts.open(folder)


def test_parts_that_are_not_there(tmp_path: Path) -> None:
    folder = foreign(tmp_path / "f", {"0": FIRST})
    (folder / "1").symlink_to(foreign(tmp_path / "elsewhere", {"": SECOND}))
    assert TableParts.open(folder).n_samples == 4
    (folder / "2").mkdir()
    with pytest.warns(FewviewWarning, match="f: left out, since empty: 2"):
        assert TableParts.open(folder).n_samples == 4
    (folder / "_old").symlink_to(tmp_path / "nowhere")
    (folder / "3").symlink_to(tmp_path / "unmounted" / "3")
    with pytest.raises(FewviewError, match=r"f/3 is a link to .*unmounted/3, which is not there"):
        TableParts.open(folder)
    only = tmp_path / "only"
    only.mkdir()
    (only / "0").symlink_to(tmp_path / "unmounted" / "0")
    with pytest.raises(FewviewError, match=r"only/0 is a link to"):
        TableParts.found(only)


def test_row_numbers_of_a_frame_are_no_feature(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"id": [1, 2, 3], "x": [1.0, 2.0, 3.0]})
    frame[frame["x"] != 2].to_parquet(tmp_path / "a.parquet")
    found = MultiViewData.read(tmp_path)
    assert found.columns["a"] == ("x",)
    assert found.ids is not None
    assert found.ids.tolist() == [1, 3]


def test_two_views_without_rows_are_missing(tmp_path: Path) -> None:
    parts = {"0": {"a": "3,1,2", "b": "", "c": ""}, "1": {"a": "4,1,2", "b": "4,1,1", "c": ""}}
    folder = foreign(tmp_path / "f", parts)
    with pytest.warns(FewviewWarning, match="no sample has this view"):
        found = TableParts.open(folder).read(0, 2)
    assert len(found) == 2


@pytest.mark.parametrize(
    ("labels", "match"),
    [
        ("3,1 4,", r"no label \(id 4\); .* in every part"),
        ("3,1 4,2", r"labels are str in the first part and int in another \(such as 1\)"),
    ],
)
def test_labels_of_a_base_set_are_alike(tmp_path: Path, labels: str, match: str) -> None:
    parts = {"0": {"a": "1,1,2 2,5,6", "labels": "1,1 2,A"}, "1": {"a": "3,1,2 4,5,6"}}
    parts["1"]["labels"] = labels
    with pytest.raises(FewviewError, match=match):
        gather_parts(create("ugda"), TableParts.open(foreign(tmp_path, parts)), progress=QUIET)


def test_base_statistics_do_not_depend_on_the_digits_of_neighbours(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    block = rng.normal(size=(300, 3))
    block[:50] = block[:50].astype(np.float32)  # for which float32 will do in a part of their own
    rows = MultiViewData({"a": block}, rng.integers(0, 2, 300).tolist(), ids=[*range(300)])
    models = []
    for cut in (40, 100):
        for number, part in enumerate((rows[:cut], rows[cut:])):
            folder = tmp_path / f"{cut}" / f"{number}"
            folder.parent.mkdir(exist_ok=True)
            part.write(folder, format="csv")
            (folder / "fewview.json").unlink()
        clf = create("ugda")
        table = TableParts.open(tmp_path / f"{cut}")
        clf.fit_base(gather_parts(clf, table, progress=QUIET))
        clf.save(tmp_path / "a.model")
        models.append((tmp_path / "a.model").read_bytes())
    assert models[0] == models[1]


def test_a_base_set_needs_no_ids(tmp_path: Path) -> None:
    for number, part in enumerate((BASE[:50], BASE[50:])):
        part.without_ids().write(tmp_path / f"{number}", format="csv")
    clf = create("ugda")
    assert gather_parts(clf, TableParts.open(tmp_path), progress=QUIET).n_samples == len(BASE)


def test_a_base_set_has_the_views_of_all_parts(tmp_path: Path) -> None:
    late = "5,1,2 6,5,6"
    parts = {"0": {"b": "1,1,2 2,5,6", "labels": "1,x 2,y"}, "1": {"b": "3,1,2", "labels": "3,x"}}
    parts["2"] = {"a": late, "b": late, "labels": "5,x 6,y"}
    clf = create("ugda")
    table = TableParts.open(foreign(tmp_path / "f", parts))
    clf.fit_base(gather_parts(clf, table, progress=QUIET))
    assert clf.base.reference.view_dims == {"b": 2, "a": 2}


def test_compressed_parts_are_parts(tmp_path: Path) -> None:
    plain = answers(tmp_path / "1", {"0": FIRST, "1": SECOND})
    folder = foreign(tmp_path / "2" / "f", {"1": SECOND})
    for file in [*folder.glob("1/*.csv")]:
        with gzip.open(f"{file}.gz", "wb") as stream:
            stream.write(file.read_bytes())
        file.unlink()
    assert answers(tmp_path / "2", {"0": FIRST}) == plain


# ---------------------------------------------------------------------- what columns are


def worded(folder: Path, leaves: list[list[str]], labels: bool = True) -> Path:
    """Parts of one view with a column of numbers and one of words, which differ in each."""
    count = 0
    for number, cells in enumerate(leaves):
        (folder / f"{number}").mkdir(parents=True)
        rows = [f"{count + k},{(count + k) % 7}.5,{leaf}" for k, leaf in enumerate(cells)]
        (folder / f"{number}" / "a.csv").write_text("\n".join(["id,x,leaf", *rows]) + "\n")
        if labels:
            named = [f"{count + k},{'pq'[k % 2]}" for k in range(len(cells))]
            file = folder / f"{number}" / "labels.csv"
            file.write_text("\n".join(["id,label", *named]) + "\n")
        count += len(cells)
    return folder


@pytest.mark.parametrize(
    ("leaves", "kind", "levels"),
    [
        ([[""] * 4, ["dry", "wet"] * 4], "category", ("dry", "wet")),
        ([["dry"] * 4, ["wet"] * 4], "category", ("dry", "wet")),
        ([[""] * 4, ["3", "4"] * 4], "number", ()),
        ([[""] * 4, ["yes", "no"] * 4], "boolean", ("no", "yes")),
        ([[""] * 4, ["2024-05-31"] * 4], "date", ()),
        ([["dry"] * 4, ["1", "2"] * 2], "category", ("1", "2", "dry")),
        ([[f"w{k}" for k in range(30)], [f"v{k}" for k in range(30)]], "words", ()),
    ],
)
def test_what_columns_are_all_parts_say(
    tmp_path: Path, leaves: list[list[str]], kind: str, levels: tuple[str, ...]
) -> None:
    table = TableParts.open(worded(tmp_path / "f", leaves))
    models = []
    for how in ({}, {"jobs": 2}):
        clf = create("ugda")
        clf.fit_base(gather_parts(clf, table, progress=QUIET, **how))
        column = {"a": ()} | clf.base.reference.kinds
        found = [(c.kind, c.levels) for c in column["a"] if c.name == "leaf"] or [("number", ())]
        assert found == [(kind, levels)]
        clf.save(tmp_path / "a.model")
        models.append((tmp_path / "a.model").read_bytes())
    assert models[0] == models[1]


def test_numbers_of_the_first_part_are_numbers(tmp_path: Path) -> None:
    table = TableParts.open(worded(tmp_path / "f", [["1"] * 4, ["dry"] * 4]))
    with pytest.raises(FewviewError, match=r"f/1: view 'a': column 'leaf' holds 'dry'"):
        gather_parts(create("ugda"), table, progress=QUIET)
    many = [["dry"] * 4, [f"{k}.5" for k in range(20)]]
    table = TableParts.open(worded(tmp_path / "g", many))
    with pytest.raises(FewviewError, match="holds numbers in some parts and words such as 'dry'"):
        gather_parts(create("ugda"), table, progress=QUIET)


def test_a_table_without_rows_says_nothing_of_its_view(tmp_path: Path) -> None:
    parts = {"0": {"a": "1,1,2 2,5,6", "b": "", "labels": "1,x 2,y"}}
    parts["1"] = {"a": "3,1,2 4,5,6", "b": "3,1,2 4,5,6", "labels": "3,x 4,y"}
    clf, table = create("ugda"), TableParts.open(foreign(tmp_path / "f", parts))
    with pytest.warns(FewviewWarning):
        clf.fit_base(gather_parts(clf, table, progress=QUIET))
    assert clf.base.reference.view_dims == {"a": 2, "b": 2}


def test_progress_is_told_in_rows(tmp_path: Path, queries: MultiViewData, fitted: Any) -> None:
    table = TableParts.open(divided(queries, tmp_path / "q", 3))
    told = io.StringIO()
    progress = PlainProgress(told, interval=0.0)
    predict_parts(fitted("proto"), table, tmp_path / "p.csv", progress=progress)
    count, rows = -(-len(queries) // 32), len(queries)
    assert f"parts: {count}, {rows} rows\n" in told.getvalue()
    assert re.search(rf"parts \[2/{count}\] \(64 of {rows} rows, \d+ rows/s, \d+ s left\)",
                     told.getvalue())  # fmt: skip
    (tmp_path / "p.csv" / f"part-{count - 1:06d}.csv").unlink()
    predict_parts(fitted("proto"), table, tmp_path / "p.csv", progress=progress)
    assert f"parts: 1, {rows - 32 * (count - 1)} rows\n" in told.getvalue()


def test_progress_of_parts_without_rows() -> None:
    told, rows = io.StringIO(), Rows(8)
    for number in PlainProgress(told, interval=0.0).track(range(3), "columns", rows):
        rows.done += (0, 8, 0)[number]
    assert "columns [1/3] (0 of 8 rows, 0 rows/s)" in told.getvalue()
    assert "columns [2/3] (8 of 8 rows, " in told.getvalue()


def test_a_folder_without_predictions_is_free(
    tmp_path: Path, fitted: Any, queries: MultiViewData
) -> None:
    folder, target = divided(queries, tmp_path / "q", 2), tmp_path / "p.csv"
    file = sorted((folder / "part-0").glob("[!i_l]*.csv"))[0]
    right = file.read_text()
    header, first, *rest = right.splitlines()
    file.write_text("\n".join([header, first.replace(",", ",oops", 1), *rest]) + "\n")
    with pytest.raises(FewviewError, match="oops"):
        predict_parts(fitted("proto"), TableParts.open(folder), target, progress=QUIET)
    file.write_text(right)
    (folder / "part-1").rename(tmp_path / "gone")  # other queries than those that were refused
    rows = predict_parts(fitted("proto"), TableParts.open(folder), target, progress=QUIET)
    assert rows == TableParts.open(folder).n_samples
    (tmp_path / "gone").rename(folder / "part-1")
    with pytest.raises(FewviewError, match="predictions of another command"):
        predict_parts(fitted("proto"), TableParts.open(folder), target, progress=QUIET)


def test_parts_where_none_are_expected(tmp_path: Path) -> None:
    folder = foreign(tmp_path / "f", {"0": FIRST, "1": SECOND})
    with pytest.raises(FewviewError, match=r"has parts \(0, 1\), which 'predict --query' and"):
        MultiViewData.read(folder)
    (folder / "labels.csv").write_text("id,label\n3,one\n")
    with pytest.raises(FewviewError, match=r"has parts \(0, 1\) and labels.csv beside them; every"):
        MultiViewData.read(folder)
    (folder / "list.csv").write_text("id,x\n3,1\n")
    with pytest.warns(FewviewWarning, match=r"left out: the folders 0, 1; .* take list.csv away"):
        MultiViewData.read(folder)


@pytest.mark.parametrize("jobs", [1, 2])
def test_warnings_of_processes_are_told_once(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], jobs: int
) -> None:
    folder = worded(tmp_path / "f", [["dry", "wet"] * 6, ["dry", "wet"] * 6, ["wet"] * 12])
    for part in (1, 2):
        file = folder / f"{part}" / "a.csv"
        header, *rows = file.read_text().splitlines()
        rows = [f"{row},{k}" for k, row in enumerate(rows)]
        file.write_text("\n".join([f"{header},more", *rows]) + "\n")
    told = io.StringIO()
    how: dict[str, Any] = {"progress": PlainProgress(told), "jobs": jobs}
    gather_parts(create("ugda"), TableParts.open(folder), **how)
    assert told.getvalue().count("column 'more' counts the rows") == 1
    assert told.getvalue().count("1 column is new and left out ('more') (in one part or") == 1
    assert "FewviewWarning" not in capfd.readouterr().err
