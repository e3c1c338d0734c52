"""Files: exact round trips through every format, and one clear error for every bad file."""

from __future__ import annotations

import gzip
import io
import json
import os
import struct
import sys
import tempfile
import warnings
import zipfile
from collections.abc import Iterator
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import anndata.io
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.io
from hypothesis import given, settings
from hypothesis import strategies as st

import fewview.files._tables as tables
from fewview.errors import FewviewError, FewviewWarning
from fewview.files import kept_reader, npz_keys, read_npz_column
from fewview.samples._data import MultiViewData

read, write = MultiViewData.read, MultiViewData.write

NAN = float("nan")
FORMATS = ("npz", "mat", "h5ad", "h5mu", "csv", "parquet", "npy")
FOLDERS = ("csv", "parquet", "npy")


@pytest.fixture(autouse=True, scope="module")
def _one_process_for_all_foreign_files() -> Iterator[None]:
    with kept_reader():
        yield


def target(folder: Path, format: str) -> Path:
    return folder / ("data" if format in FOLDERS else f"data.{format}")


def there_and_back(data: MultiViewData, format: str) -> MultiViewData:
    with tempfile.TemporaryDirectory() as folder:
        path = target(Path(folder), format)
        write(data, path, format=format)
        assert [entry.name for entry in Path(folder).iterdir()] == [path.name]
        return read(path)


def assert_same(one: MultiViewData, two: MultiViewData) -> None:
    """Equal to the last bit, and of the same types."""
    assert one == two
    for view in one.view_names:
        assert one.view(view).dtype == two.view(view).dtype
        assert one.view(view).tobytes() == two.view(view).tobytes()
    for mine, yours in ((one.labels, two.labels), (one.ids, two.ids)):
        if mine is not None and yours is not None:
            assert list(map(type, mine.tolist())) == list(map(type, yours.tolist()))


# ------------------------------------------------------------------ round trips

TEXT = st.text(max_size=6)  # everything but surrogates: commas, quotes, line breaks, NULs
NAMES = st.text(
    st.characters(exclude_characters="/\\\0", exclude_categories=["Cs"]), min_size=1, max_size=5
).filter(lambda name: not name.startswith(".") and name not in ("labels", "ids"))
PLAIN = (
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.booleans(),
    TEXT,
    st.sampled_from(["1", "01", "NA", "", "nan", "true", " x ", "1.0", '"', "a,b", "\r", "é"]),
)
MIXED = st.one_of(*PLAIN, st.integers(-(2**90), 2**90), st.text(max_size=3).map("\ud800".__add__))


@st.composite
def datasets(draw: st.DrawFn) -> MultiViewData:
    n = draw(st.integers(0, 6))
    names = draw(st.lists(NAMES, min_size=1, max_size=3, unique_by=str.casefold))
    blocks: dict[str, Any] = {}
    columns: dict[str, list[str]] = {}
    mask = np.array(
        draw(
            st.lists(
                st.lists(st.booleans(), min_size=len(names), max_size=len(names)).filter(any),
                min_size=n,
                max_size=n,
            )
        ),
        dtype=bool,
    ).reshape(n, len(names))
    for name in names:
        width = draw(st.integers(1, 3))
        bits = draw(st.sampled_from([32, 64]))
        cells = st.floats(width=bits, allow_nan=False, allow_infinity=False)
        values = draw(st.lists(cells, min_size=n * width, max_size=n * width))
        blocks[name] = np.array(values, dtype=f"f{bits // 8}").reshape(n, width)
        if draw(st.booleans()):
            columns[name] = draw(
                st.lists(
                    # In tables these two, in any spelling, are the key and the labels.
                    TEXT.filter(
                        lambda c: c.strip().casefold() not in ("id", "label") and "\0" not in c
                    ),
                    min_size=width,
                    max_size=width,
                    unique=True,
                )
            )
    kinds = st.sampled_from([*PLAIN, MIXED])
    ids = labels = None
    if draw(st.booleans()):
        ids = draw(st.lists(draw(kinds), min_size=n, max_size=n, unique=True))
    if draw(st.booleans()):
        label = draw(kinds)
        if draw(st.booleans()):
            label = st.one_of(st.none(), label)
        labels = draw(st.lists(label, min_size=n, max_size=n))
    return MultiViewData(blocks, labels, ids=ids, mask=mask, columns=columns)


@pytest.mark.parametrize("format", FORMATS)
@settings(max_examples=40, deadline=None)
@given(data=datasets())
def test_round_trip(format: str, data: MultiViewData) -> None:
    assert_same(there_and_back(data, format), data)


LABELS: list[list[Any] | None] = [
    None,
    [None, None, None],
    [0, 5, -1],
    [2, None, -1],
    ["cat", "dog", "cat"],
    ["cat", None, ""],
    ["1", "2", "3"],
    [1.5, 2.0, None],
    [True, False, None],
    [1, True, 1.0],
    ["a", 1, None],
    ["NA", "nan", "x\n,\"y'"],
    ["nul\0", "a", "b"],
    [2**70, 1, 2],
    [2**63, 1, 2],
]


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("labels", LABELS, ids=repr)
def test_labels_round_trip(format: str, labels: Any) -> None:
    data = MultiViewData({"v": [[0.1], [1 / 3], [1e300]]}, labels, ids=["b", "a", "c"])
    assert_same(there_and_back(data, format), data)


@pytest.mark.parametrize("format", FORMATS)
def test_a_view_that_nobody_has(format: str) -> None:
    nothing = np.full((2, 3), np.nan, dtype=np.float32)
    data = MultiViewData({"b": nothing, "a": [[1.0], [2.0]]}, columns={"b": ["x", "y", "z"]})
    assert_same(there_and_back(data, format), data)


@pytest.mark.parametrize("format", FORMATS)
def test_extreme_numbers(format: str) -> None:
    for dtype in (np.float32, np.float64):
        limits = np.finfo(dtype)
        values = [limits.max, limits.tiny, limits.smallest_subnormal, -0.0, 0.1, 1 / 3]
        data = MultiViewData({"v": np.array([values], dtype=dtype)})
        assert_same(there_and_back(data, format), data)


@pytest.mark.parametrize("format", FORMATS)
def test_objects_are_refused_with_advice(format: str, tmp_path: Path) -> None:
    labelled = MultiViewData({"v": [[1.0]]}, [("a", 1)])
    with pytest.raises(FewviewError, match=r"label \('a', 1\) is a tuple.*with_labels"):
        write(labelled, target(tmp_path, format), format=format)
    named = MultiViewData({"v": [[1.0]]}, ids=[b"x"])
    with pytest.raises(FewviewError, match=r"id b'x' is a bytes.*str\(x\)"):
        write(named, target(tmp_path, format), format=format)
    assert not list(tmp_path.iterdir())


def test_npz_is_as_documented(tmp_path: Path) -> None:
    file = tmp_path / "a.npz"
    write(MultiViewData({"v": [[1.0], [2.0]]}, [7, 3], ids=["x", "y"]), file)
    with np.load(file, allow_pickle=False) as content:
        assert sorted(content.files) == ["ids", "view_v", "y"]
        assert content["y"].tolist() == [7, 3]
        assert content["ids"].tolist() == ["x", "y"]
    write(MultiViewData({"v": [[1.0], [2.0]]}, ["b", None]), file)
    with np.load(file, allow_pickle=False) as content:
        assert content["y"].tolist() == [0, -1]
        assert content["classes"].tolist() == ["b"]


def test_npz_of_others(tmp_path: Path) -> None:
    file = tmp_path / "b.npz"
    half = np.array([[0.1, 1], [2, 3], [4, 5]], dtype=np.float16)
    counts = np.array([[1], [2], [3]], dtype=np.uint16)
    for save in (np.savez, np.savez_compressed):
        save(
            file,
            view_half=np.asfortranarray(half),
            view_count=counts,
            y=np.array([4, 4, -1], dtype=np.int16),
            split=np.array(["base", "val", "novel"]),
            other=np.zeros((3, 3, 3)),
        )
        data = read(file)
        assert data.name == "b"
        np.testing.assert_array_equal(data.view("half"), half)
        assert data.view("count").tolist() == [[1], [2], [3]]
        assert data.labels is not None
        assert data.labels.tolist() == [4, 4, -1]
        assert read_npz_column(file, "split").tolist() == ["base", "val", "novel"]
        assert npz_keys(file) == ("view_half", "view_count", "y", "split", "other")
    np.savez(file, view_a=counts, y=np.array([1, -1, 0]), classes=np.array(["p", "q"]))
    assert read(file).labels.tolist() == ["q", None, "p"]  # type: ignore[union-attr]
    np.savez(file, view_a=counts, y=np.array(["s", "t", "s"]), classes=np.array(["s", "t"]))
    assert read(file).labels.tolist() == ["s", "t", "s"]  # type: ignore[union-attr]
    np.savez(file, view_a=counts, y=np.array([1.0, np.nan, 2.0]))
    assert read(file).labels.tolist() == [1.0, None, 2.0]  # type: ignore[union-attr]


def test_columns_of_npz_that_are_not_columns(tmp_path: Path) -> None:
    file = tmp_path / "c.npz"
    np.savez(file, view_a=np.ones((2, 1)), split=np.array(["base"]), square=np.ones((2, 2)))
    with pytest.raises(FewviewError, match=r"c\.npz: no array 'sort'; it has view_a, split"):
        read_npz_column(file, "sort")
    with pytest.raises(FewviewError, match=r"c\.npz: split has 1 entries for 2 samples"):
        read_npz_column(file, "split")
    with pytest.raises(FewviewError, match="array square has 2 dimension"):
        read_npz_column(file, "square")
    with pytest.raises(FewviewError, match="no such file"):
        read_npz_column(tmp_path / "d.npz", "split")


def test_equal_data_make_equal_files(tmp_path: Path) -> None:
    data = MultiViewData({"v": [[1.0], [2.0]]}, ["a", None])
    write(data, tmp_path / "1.npz")
    write(data, tmp_path / "2.npz")
    assert (tmp_path / "1.npz").read_bytes() == (tmp_path / "2.npz").read_bytes()


# ------------------------------------------------------------------ folders made by hand


def put(folder: Path, **tables: str) -> Path:
    for name, content in tables.items():
        (folder / f"{name}.csv").write_text(content, encoding="utf-8", newline="")
    return folder


def test_folder_by_hand(tmp_path: Path) -> None:
    put(
        tmp_path,
        rna="g1,id,g2\n0.1,p2,0.2\r\n\n0.3,p10,1e3\n",
        scan="\ufeffid,s\np10,NA\np2,5\n",
        labels="id,label,remark\np2,ill,-\np10,,-\n",
    )
    (tmp_path / "README.md").write_text("ignored")
    data = read(tmp_path)
    assert data.view_names == ("rna", "scan")
    assert data.columns == {"rna": ("g1", "g2"), "scan": ("s",)}
    assert data.ids.tolist() == ["p10", "p2"]  # type: ignore[union-attr]
    assert data.view("rna").tolist() == [[0.3, 1000.0], [0.1, 0.2]]
    assert data.mask.tolist() == [[True, False], [True, True]]
    assert data.labels.tolist() == [None, "ill"]  # type: ignore[union-attr]
    assert data.view("rna").dtype == np.float64
    assert data.view("scan").dtype == np.float32


def test_ids_and_labels_of_csv_are_integers_where_all_are(tmp_path: Path) -> None:
    put(tmp_path, a="id,x\n10,1\n9,2\n", b="id,x\n9,1\n", labels="id,label\n9,3\n10,-4\n")
    data = read(tmp_path)
    assert data.ids.tolist() == [9, 10]  # type: ignore[union-attr]
    assert data.labels.tolist() == [3, -4]  # type: ignore[union-attr]
    put(tmp_path, b="id,x\n9,1\n007,1\n", labels="id,label\n9,3\n10,x\n")
    data = read(tmp_path)
    assert data.ids.tolist() == ["007", "10", "9"]  # type: ignore[union-attr]
    assert data.labels.tolist() == [None, "x", "3"]  # type: ignore[union-attr]


def test_mixed_folder(tmp_path: Path) -> None:
    put(tmp_path, a="id,x\n2,1\n1,2\n", ids="id\n1\n2\n3\n")
    np.save(tmp_path / "b.npy", np.array([[1, 2], [3, 4], [5, 6]]))
    pq.write_table(
        pa.table({"id": [3, 1], "flag": [True, False], "n": [1, 2]}), tmp_path / "c.parquet"
    )
    pq.write_table(pa.table({"id": [3], "label": ["z"]}), tmp_path / "labels.parquet")
    data = read(tmp_path)
    assert data.ids.tolist() == [1, 2, 3]  # type: ignore[union-attr]
    assert data.mask.tolist() == [[True, True, True], [True, True, False], [False, True, True]]
    assert data.view("c")[2].tolist() == [1.0, 1.0]
    assert data.labels.tolist() == [None, None, "z"]  # type: ignore[union-attr]


def test_parquet_nulls_and_folder_names_are_only_what_they_are(tmp_path: Path) -> None:
    folder = tmp_path / "year=2020"
    folder.mkdir()
    table = pa.table({"id": ["a", "b"], "x": pa.array([1, None]), "y": pa.array([2.0, None])})
    pq.write_table(table, folder / "v.parquet")
    pq.write_table(pa.table({"id": ["a", "b"], "z": [0.5, 1.5]}), folder / "w.parquet")
    data = read(folder)
    assert data.columns == {"v": ("x", "y"), "w": ("z",)}
    assert data.mask.tolist() == [[True, True], [False, True]]


def test_parquet_of_pandas_and_polars(tmp_path: Path) -> None:
    numbers = {"x": [0.1, 2.0, 3.0], "y": [1, 2, 3], "flag": [True, False, True]}
    pd.DataFrame({"id": ["a", "b", "c"], **numbers}).to_parquet(tmp_path / "one.parquet")
    pl.DataFrame({"id": ["c", "b"], "z": pl.Series([7, 8], dtype=pl.UInt8)}).write_parquet(
        tmp_path / "two.parquet", compression="zstd"
    )
    pl.DataFrame(
        {"id": ["a", "b"], "label": pl.Series(["p", "q"], dtype=pl.Categorical)}
    ).write_parquet(tmp_path / "labels.parquet")
    data = read(tmp_path)
    assert data.ids.tolist() == ["a", "b", "c"]  # type: ignore[union-attr]
    assert data.view("one").tolist() == [[0.1, 1, 1], [2, 2, 0], [3, 3, 1]]
    np.testing.assert_array_equal(data.view("two"), [[np.nan], [8], [7]])
    assert data.labels.tolist() == ["p", "q", None]  # type: ignore[union-attr]


def test_pandas_and_polars_read_what_we_write(tmp_path: Path) -> None:
    data = MultiViewData(
        {"a": [[0.1, 2.0], [NAN, NAN], [5.0, 6.0]], "b": [[1.0], [2.0], [3.0]]},
        ["p", None, "q"],
        ids=["x", "y", "z"],
        columns={"a": ["c", "d"]},
    )
    write(data, tmp_path / "f", format="parquet")
    write(data, tmp_path / "g", format="csv")
    wanted = {"id": ["x", "z"], "c": [0.1, 5.0], "d": [2.0, 6.0]}
    assert pd.read_parquet(tmp_path / "f" / "a.parquet").to_dict("list") == wanted
    assert pl.read_parquet(tmp_path / "f" / "a.parquet").to_dict(as_series=False) == wanted
    assert pd.read_csv(tmp_path / "g" / "a.csv").to_dict("list") == wanted
    assert pl.read_csv(tmp_path / "g" / "a.csv").to_dict(as_series=False) == wanted
    labels = {"id": ["x", "z"], "label": ["p", "q"]}
    assert pl.read_parquet(tmp_path / "f" / "labels.parquet").to_dict(as_series=False) == labels


def test_ids_that_are_dates(tmp_path: Path) -> None:
    days = [date(2020, 1, 2), date(2020, 1, 1)]
    pq.write_table(pa.table({"id": days, "x": [1.0, 2.0]}), tmp_path / "a.parquet")
    data = read(tmp_path)
    assert data.ids.tolist() == sorted(days)  # type: ignore[union-attr]
    assert data.view("a").tolist() == [[2.0], [1.0]]


@pytest.mark.parametrize(
    ("column", "wanted"),
    [
        (pa.array([3.0, 1.0]), [1, 3]),
        (pa.array([3, 1.5]), [1.5, 3.0]),
        (pa.array([2**63 + 1, 1], pa.uint64()), [1, 2**63 + 1]),
        (pa.array([Decimal(3), Decimal(1)], pa.decimal128(20, 0)), [1, 3]),
        (pa.array([Decimal(3), Decimal(1)], pa.decimal128(38, 10)), [1, 3]),
        (pa.array([Decimal(10**30), Decimal(1)], pa.decimal128(38, 0)), [1, 10**30]),
        (pa.array([7, 5]).dictionary_encode(), [5, 7]),
        (pa.array([10**9, 0], pa.timestamp("ns")),
         [datetime(1970, 1, 1), datetime(1970, 1, 1, second=1)]),
    ],
)  # fmt: skip
def test_ids_of_parquet_are_what_they_say(
    tmp_path: Path, column: pa.Array, wanted: list[Any]
) -> None:
    pq.write_table(pa.table({"id": column, "x": [2.0, 1.0]}), tmp_path / "a.parquet")
    data = read(tmp_path)
    assert repr(data.ids.tolist()) == repr(wanted)  # type: ignore[union-attr]
    assert data.view("a").tolist() == [[1.0], [2.0]]


def test_floats_that_were_written_are_floats(tmp_path: Path) -> None:
    data = MultiViewData({"a": [[1.0], [2.0]]}, labels=[4.0, 5.0], ids=[1.0, 2.0])
    write(data, tmp_path / "f", format="parquet")
    found = read(tmp_path / "f")
    assert repr(found.ids.tolist()) == "[1.0, 2.0]"  # type: ignore[union-attr]
    assert found == data


def test_a_sample_has_one_id_whichever_table_has_floats(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1.0, 2.0], "x": [1.0, 2.0]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"id": [2, 3], "x": [1.0, 2.0]}), tmp_path / "b.parquet")
    assert repr(read(tmp_path).ids.tolist()) == "[1, 2, 3]"  # type: ignore[union-attr]


def test_a_table_may_be_added_to_a_written_folder(tmp_path: Path) -> None:
    folder = tmp_path / "f"
    write(MultiViewData({"z": [[1.0], [2.0]]}, ids=[2, 1]), folder)
    put(folder, a="id,x\n1,5\n", labels="id,label\n1,new\n")
    data = read(folder)
    assert data.view_names == ("z", "a")
    assert data.ids.tolist() == [2, 1]  # type: ignore[union-attr]
    assert data.labels.tolist() == [None, "new"]  # type: ignore[union-attr]
    put(folder, a="id,x\n3,5\n")
    with pytest.raises(FewviewError, match=r"a\.csv: id 3 not in ids\.csv"):
        read(folder)


def test_partial_rows_reach_the_files(tmp_path: Path) -> None:
    put(tmp_path, a="id,x,y\np,1,\nq,3,4\n")
    with pytest.raises(FewviewError, match=r"view 'a': line 2 \(id p\) partly NaN"):
        read(tmp_path, partial_rows="error")
    assert read(tmp_path).empty_cells == 1
    assert read(tmp_path, partial_rows="mean").view("a").tolist() == [[1.0, 4.0], [3.0, 4.0]]
    with pytest.raises(FewviewError, match="partial_rows='no'"):
        read(tmp_path, partial_rows="no")  # type: ignore[arg-type]


def test_tables_as_spreadsheets_write_them(tmp_path: Path) -> None:
    """Semicolons or tabs between cells, decimal commas, a mark at the beginning of the file."""
    (tmp_path / "a.csv").write_bytes(
        '\ufeffid;Größe;Ort;"Wert;2"\np;1,5;Ulm;-1.234,25\nq;2;"Bonn; Süd";3e0\n'.encode()
    )
    (tmp_path / "b.csv").write_text("id\tx\nq\t0,5\np\t1\n")
    data = MultiViewData.read(tmp_path)
    assert data.columns["a"] == ("Größe", "Ort=Bonn; Süd", "Ort=Ulm", "Wert;2")
    place = {name: row for row, name in enumerate(data.ids.tolist())}
    assert data.view("a")[place["p"]].tolist() == [1.5, 0, 1, -1234.25]
    assert data.view("a")[place["q"]].tolist() == [2, 1, 0, 3]
    assert data.view("b")[[place["p"], place["q"]], 0].tolist() == [1.0, 0.5]
    # With commas between cells, 1,5 in quotes is not taken for a number: it may be a thousand.
    (tmp_path / "b.csv").write_text('id,x\np,"1,5"\nq,"2,5"\n')
    with pytest.raises(FewviewError, match="write numbers with a point"):
        MultiViewData.read(tmp_path)


def test_one_table_is_a_data_set_and_its_rows_need_no_names(tmp_path: Path) -> None:
    file = tmp_path / "patients.csv"
    file.write_text("x,y,group\n1,7,a\n3,7,\n2,8,b\n")
    with pytest.warns(FewviewWarning, match="told apart by the number of their row"):
        data = MultiViewData.read(file, labels="group")
    assert data.ids.tolist() == [0, 1, 2]
    assert data.labels.tolist() == ["a", None, "b"]
    assert data.view("patients")[:, 0].tolist() == [1, 3, 2]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        named = MultiViewData.read(file, labels="group", key="x")
    assert sorted(named.ids.tolist()) == [1, 2, 3]
    np.save(tmp_path / "a.npy", np.ones((2, 2)))
    with pytest.raises(FewviewError, match="an array has no ids"):
        MultiViewData.read(tmp_path / "a.npy")


# ------------------------------------------------------------------ bad folders

CSV: dict[str, tuple[dict[str, str], str]] = {
    "empty file": ({"a": ""}, r"a\.csv: the file is empty"),
    "only a header": ({"a": "id,x\n"}, r"a\.csv has no rows"),
    "no id": (
        {"a": "x,y\n1,2\n", "b": "z,w\n1,2\n"},
        r"a\.csv: no column 'id' .*'y'\); name the column .*--key",
    ),
    "two ids": ({"a": "id,id\n1,2\n"}, r"a\.csv: column 'id' occurs twice"),
    "no features": ({"a": "id\n1\n"}, r"a\.csv: has no columns besides 'id'"),
    "duplicate ids": (
        {"a": "id,x\np,1\nq,2\np,3\n"},
        r"a\.csv: id 'p' occurs in line 2 and line 4; keep one row",
    ),
    "no id in a line": ({"a": "id,x\n,1\n"}, r"a\.csv: line 2 has no key"),
    "text": (
        {"a": "id,x\n" + "".join(f"p{k},{k}\n" for k in range(11)) + "q,abc\n"},
        r"view 'a': column 'x', line 13 holds 'abc', and most other cells hold numbers",
    ),
    "underscores": ({"a": "id,x\np,1_000\n"}, r"view 'a': column 'x', line 2 holds '1_000'"),
    "decimal commas": ({"a": 'id,x\np,"1,5"\n'}, r"view 'a': column 'x', line 2 holds '1,5'"),
    "infinity": ({"a": "id,x\np,inf\n"}, r"view 'a': line 2 \(id p\), column 'x' is infinite"),
    "too short a line": ({"a": "id,x\np\n"}, r"a\.csv: line 2 has 1 cells, the header 2"),
    "too long a line": ({"a": "id,x\np,1\nq,2,3\n"}, r"a\.csv: line 3 has 3 cells"),
    "open quote": ({"a": 'id,x\n"p,1\n'}, r"a\.csv: line \d: "),
    "bad quote": ({"a": 'id,x\n"p"q,1\n'}, r"a\.csv: line 2: "),
    "columns twice": ({"a": "id,x,x\np,1,2\n"}, r"view 'a': column 'x' occurs twice"),
    "no view for an id": ({"a": "id,x\np,1\n", "ids": "id\np\nq\n"}, r"\(id q\): no view at all"),
    "id that is not listed": ({"a": "id,x\np,1\n", "ids": "id\nq\n"}, r"a\.csv: id 'p' not in ids"),
    "labels of nobody": ({"a": "id,x\np,1\n", "labels": "id,label\nq,1\n"}, r"labels\.csv: id 'q'"),
    "labels twice": (
        {"a": "id,x\np,1\n", "labels": "id,label\np,1\np,2\n"},
        r"labels\.csv: id 'p' occurs in line 2 and line 3",
    ),
    "labels without label": (
        {"a": "id,x\np,1\n", "labels": "id,class,age\np,1,2\n"},
        r"labels\.csv: no column 'label'",
    ),
    "manifest": ({"a": "id,x\np,1\n", "fewview.json": "{}"}, r"fewview\.json is damaged"),
    "manifest that is not json": (
        {"a": "id,x\np,1\n", "fewview.json": '{"a":'},
        r"fewview\.json is damaged.*delete it",
    ),
    "no tables": ({}, "no tables; it needs one"),
}


@pytest.mark.parametrize("case", CSV)
def test_bad_csv(case: str, tmp_path: Path) -> None:
    tables, message = CSV[case]
    put(tmp_path, **{name: text for name, text in tables.items() if "." not in name})
    for name, text in tables.items():
        if "." in name:
            (tmp_path / name).write_text(text)
    with pytest.raises(FewviewError, match=message) as caught:
        read(tmp_path)
    assert str(tmp_path) in str(caught.value)


def test_csv_that_is_not_utf8(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes("id,gr\xf6\xdfe\nM\xfcller,1\nz\u20ac,2\n".encode("cp1252"))
    with pytest.warns(
        FewviewWarning, match=r"a\.csv is not UTF-8; .*Latin-1.* cell is 'gr\xf6\xdfe'"
    ):
        data = read(tmp_path)
    assert data.ids.tolist() == ["M\xfcller", "z\u20ac"]
    assert data.columns["a"] == ("gr\xf6\xdfe",)
    for wrong in ("id,x\n\xfc,1\n".encode("utf-16"), b"id,x\n\x81\xfc,1\n"):
        (tmp_path / "a.csv").write_bytes(wrong)
        with pytest.raises(FewviewError, match=r"a\.csv: is neither UTF-8 nor Latin-1"):
            read(tmp_path)
    (tmp_path / "a.csv").write_bytes(bytes(range(256)))
    with pytest.raises(FewviewError, match=r"a\.csv: "):
        read(tmp_path)


def test_tables_with_tabs(tmp_path: Path) -> None:
    put(tmp_path, a="id,x,label\np,1.5,u\nq,2,v\n")
    wanted = read(tmp_path)
    (tmp_path / "a.csv").unlink()
    (tmp_path / "a.tsv").write_text("id\tx\tlabel\np\t1.5\tu\nq\t2\tv\n")
    assert read(tmp_path) == wanted.with_name(tmp_path.name)
    assert read(tmp_path / "a.tsv").labels.tolist() == ["u", "v"]


def test_spreadsheets_are_to_be_exported(tmp_path: Path) -> None:
    (tmp_path / "b.xlsx").write_bytes(b"PK")
    for place in (tmp_path, tmp_path / "b.xlsx"):
        with pytest.raises(FewviewError, match=r"is a spreadsheet; in Excel .* CSV UTF-8"):
            read(place)
    put(tmp_path, a="id,x\np,1\n")
    with pytest.warns(FewviewWarning, match=r"left out: b\.xlsx; in Excel"):
        assert read(tmp_path).view_names == ("a",)


def test_the_same_view_twice(tmp_path: Path) -> None:
    put(tmp_path, a="id,x\np,1\n")
    np.save(tmp_path / "a.npy", np.ones((1, 1)))
    with pytest.raises(FewviewError, match=r"a\.csv and a\.npy would be the same view"):
        read(tmp_path)


def test_table_gone_from_a_written_folder(tmp_path: Path) -> None:
    write(MultiViewData({"a": [[1.0]], "b": [[2.0]]}), tmp_path / "f")
    (tmp_path / "f" / "b.csv").unlink()
    with pytest.raises(FewviewError, match=r"fewview\.json lists view 'b'"):
        read(tmp_path / "f")


def test_edited_folder_that_contradicts_itself(tmp_path: Path) -> None:
    write(MultiViewData({"a": [[1.0]]}, [1], ids=[1]), tmp_path / "f")
    put(tmp_path / "f", labels="id,label\n1,x\n")
    with pytest.raises(FewviewError, match=r"labels\.csv: line 2 has label 'x'.*int"):
        read(tmp_path / "f")
    put(tmp_path / "f", labels="id,label\ny,1\n")
    with pytest.raises(FewviewError, match=r"labels\.csv: line 2 has id 'y'.*int"):
        read(tmp_path / "f")


def test_bad_npy_folders(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.ones((2, 2)))
    with pytest.raises(FewviewError, match=r"a\.npy has no ids; add ids\.csv"):
        read(tmp_path)
    put(tmp_path, ids="id\np\nq\nr\n")
    with pytest.raises(FewviewError, match=r"a\.npy has 2 rows, ids\.csv 3 ids"):
        read(tmp_path)
    put(tmp_path, ids="id\np\np\n")
    with pytest.raises(FewviewError, match=r"ids\.csv: id 'p' occurs in line 2 and line 3"):
        read(tmp_path)
    put(tmp_path, ids="id\np\nq\n")
    for array, message in (
        (np.ones(2), r"a\.npy: has 1 dimension"),
        (np.array([["x"], ["y"]]), r"a\.npy: holds text"),
        (np.array([[1], [None]]), r"a\.npy: holds pickled Python objects"),
        (np.array([[1j], [1j]]), r"a\.npy: holds complex"),
        (np.zeros(2, dtype=[("ä", "f8")]), r"a\.npy: holds "),
        (np.zeros(2, dtype=[("日", "f8")]), r"a\.npy: is not a numpy array"),
    ):
        np.save(tmp_path / "a.npy", array, allow_pickle=True)
        with pytest.raises(FewviewError, match=message):
            read(tmp_path)
    for content in (b"", b"\x93NUMPY", b"id,x\n1,2\n"):
        (tmp_path / "a.npy").write_bytes(content)
        with pytest.raises(FewviewError, match=r"a\.npy: is not a numpy array, or is damaged"):
            read(tmp_path)


def test_bad_parquet(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    for content in (b"", b"PAR1", b"id,x\n1,2\n", b"PAR1" + bytes(100) + b"PAR1"):
        file.write_bytes(content)
        with pytest.raises(FewviewError, match=r"a\.parquet: is not a readable parquet file"):
            read(tmp_path)
    for table, message in (
        ({"x": [1.0]}, r"a\.parquet: no column 'id'"),
        ({"id": ["p"]}, r"a\.parquet: has no columns besides"),
        ({"id": ["p", "q"], "x": [None, [1]]}, r"a\.parquet: column 'x', row 1 holds \[1\]"),
        ({"id": ["p", "p"], "x": [1, 2]}, r"a\.parquet: id 'p' occurs in row 0 and row 1"),
        ({"id": ["p", None], "x": [1, 2]}, r"a\.parquet: row 1 has no key"),
        (
            {"id": [[1]], "x": [1]},
            r"a\.parquet: column 'id', row 0 holds a list; ids and labels must",
        ),
        (
            {"id": pa.array([Decimal(1), Decimal("1.5")]), "x": [1, 2]},
            r"a\.parquet: column 'id', row 1 holds a Decimal; .* decimals whole",
        ),
        (
            {"id": pa.array([0, 1], pa.timestamp("ns", "UTC")), "x": [1, 2]},
            r"a\.parquet: column 'id', row 1 holds 1970-01-01T00:00:00\.000000001, and ids",
        ),
    ):
        pq.write_table(pa.table(table), file)
        with pytest.raises(FewviewError, match=message):
            read(tmp_path)
    pq.write_table(pa.table({"id": [1, 2], "x": [1, 2]}), file)
    put(tmp_path, b="id,x\np,1\n")
    with pytest.raises(FewviewError, match=r"numbers in a\.parquet.*text in b\.csv"):
        read(tmp_path)


def test_parquet_without_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = MultiViewData({"a": [[1.0]]})
    write(data, tmp_path / "f", format="parquet")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for call in (
        lambda: read(tmp_path / "f"),
        lambda: write(data, tmp_path / "g", format="parquet"),
    ):
        with pytest.raises(FewviewError, match=r"pip install 'fewview\[frames\]'"):
            call()
    assert not (tmp_path / "g").exists()


def test_csv_and_npy_need_no_frames(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("pyarrow", "pandas", "polars", "narwhals"):
        monkeypatch.setitem(sys.modules, module, None)
    data = MultiViewData({"a": [[1.0]]}, ["x"])
    for format in ("npz", "csv", "npy"):
        assert there_and_back(data, format) == data


# ------------------------------------------------------------------ bad .npz files


def archive(**members: Any) -> bytes:
    stream = io.BytesIO()
    np.savez(stream, **members)
    return stream.getvalue()


def zipped(name: str, content: bytes, kind: int = zipfile.ZIP_STORED) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", kind) as file:
        file.writestr(name, content)
    return stream.getvalue()


def npy(shape: tuple[int, ...], descr: str = "<f8", content: bytes = b"") -> bytes:
    """An array with a header that may lie."""
    stream = io.BytesIO()
    header = {"descr": descr, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(stream, header)
    return stream.getvalue() + content


ONE = np.ones((2, 1))
NPZ: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "is not an .npz file"),
    "foreign": (b"GIF89a" + bytes(200), "is not an .npz file, or is damaged or cut short"),
    "text": (b"id,x\n1,2\n", "is not an .npz file"),
    "an npy": (npy((0, 1)), "is not an .npz file"),
    "no arrays": (zipped("hello.txt", b"hello"), r"no array is called view_<name> \(it has none\)"),
    "no views": (archive(x=ONE, y=ONE), r"no array is called view_<name> \(it has x, y\)"),
    "one dimension": (archive(view_a=np.ones(3)), "array view_a has 1 dimension"),
    "three dimensions": (archive(view_a=np.ones((1, 1, 1))), "array view_a has 3 dimension"),
    "text view": (archive(view_a=np.array([["x"]])), "view 'a' holds <U1 values"),
    "pickled view": (archive(view_a=np.array([[None]])), "array view_a holds pickled Python obj"),
    "pickled labels": (archive(view_a=ONE, y=np.array([1, "x"], object)), "array y holds pickled"),
    "bytes as labels": (archive(view_a=ONE, y=np.array([b"p", b"q"])), r"array y holds \|S1"),
    "row counts": (archive(view_a=ONE, view_b=np.ones((3, 1))), "a 2, b 3"),
    "number of labels": (archive(view_a=ONE, y=np.ones(3)), "y has 3 labels for 2 samples"),
    "shape of labels": (archive(view_a=ONE, y=np.ones((2, 1))), "array y has 2 dimension"),
    "code without class": (
        archive(view_a=ONE, y=np.array([0, 1]), classes=np.array(["p"])),
        "y of row 1 is 1, which is no position in the 1 classes",
    ),
    "code below -1": (
        archive(view_a=ONE, y=np.array([0, -2]), classes=np.array(["p"])),
        "y of row 1 is -2",
    ),
    "number of ids": (archive(view_a=ONE, ids=np.arange(3)), "3 ids for 2 samples"),
    "duplicate ids": (archive(view_a=ONE, ids=np.array(["p", "p"])), "id 'p' occurs more than"),
    "number of columns": (archive(view_a=ONE, columns_a=np.array(["p", "q"])), "2 column names"),
    "columns of numbers": (archive(view_a=ONE, columns_a=np.ones(1)), "must hold text"),
    "unknown kind": (
        archive(view_a=ONE, ids=np.array(["1", "2"]), ids_kind=np.array("yaml")),
        "ids_kind is 'yaml'",
    ),
    "bad json": (
        archive(view_a=ONE, ids=np.array(["[1]", "2"]), ids_kind=np.array("json")),
        "array ids holds text that is not json",
    ),
    "bad characters": (
        archive(view_a=ONE, ids=np.frombuffer(b"\xff" * 8, dtype="<U1")),
        "array ids holds bytes that are not text",
    ),
    "infinity": (archive(view_a=np.array([[np.inf]])), "view 'a': row 0, column 0 is infinite"),
    "bad name of a view": (zipped("view_../a.npy", npy((0, 1))), r"view name '\.\./a'"),
    "a gigantic array": (
        zipped("view_a.npy", npy((10**12, 10**6))),
        "array view_a claims shape .* does not fit its 0 bytes",
    ),
    "a gigantic packed array": (
        zipped("view_a.npy", npy((10**9, 10**9)), zipfile.ZIP_DEFLATED),
        "array view_a claims shape",
    ),
    "negative shape": (zipped("view_a.npy", npy((-1, -1), "<f8", bytes(8))), "claims shape"),
    "too few bytes": (zipped("view_a.npy", npy((2, 2), "<f8", bytes(31))), "claims shape"),
    "too many bytes": (zipped("view_a.npy", npy((2, 2), "<f8", bytes(33))), "claims shape"),
    "not an array": (zipped("view_a.npy", b"hello"), "array view_a is not a numpy array"),
    "a header without end": (
        zipped("view_a.npy", b"\x93NUMPY\x01\x00\xff\xff" + b"(" * 70000),
        "array view_a is not a numpy array",
    ),
    "header of the future": (zipped("view_a.npy", b"\x93NUMPY\x09\x00" + bytes(9)), "array view_a"),
}


@pytest.mark.parametrize("case", NPZ)
def test_bad_npz(case: str, tmp_path: Path) -> None:
    content, message = NPZ[case]
    file = tmp_path / "bad.npz"
    file.write_bytes(content)
    with pytest.raises(FewviewError, match=message) as caught:
        read(file)
    assert str(caught.value).startswith(f"{file}: ")


def test_npz_that_claims_to_unpack_to_anything(tmp_path: Path) -> None:
    """The directory of the archive lies about the size, together with the header."""
    size = 10**13
    content = bytearray(zipped("view_a.npy", npy((size // 8, 1)), zipfile.ZIP_DEFLATED))
    header = len(npy((size // 8, 1)))
    entry = content.index(b"PK\x01\x02")
    content[entry + 24 : entry + 28] = struct.pack("<I", min(header + size, 2**32 - 2))
    file = tmp_path / "bomb.npz"
    file.write_bytes(content)
    with pytest.raises(FewviewError, match="array view_a claims an impossible size"):
        read(file)


def sample_bytes() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "a.npz"
        mask = [[True, False], [True, True], [False, True], [True, True]]
        data = MultiViewData(
            {"a": np.arange(8.0).reshape(4, 2), "b": np.ones((4, 1))},
            ["p", None, "q", "p"],
            ids=["w", "x", "y", "z"],
            mask=mask,
            columns={"a": ["c", "d"]},
        )
        data.write(file)
        return file.read_bytes()


def outcome(path: Path) -> str:
    """Either a valid object or a FewviewError that names the file; anything else escapes."""
    try:
        data = read(path)
    except FewviewError as error:
        message = str(error)
    else:
        assert data.mask.any(axis=1).all()
        return "data"
    assert message.startswith(str(path))
    return "error"


def test_truncated_npz(tmp_path: Path) -> None:
    content = sample_bytes()
    file = tmp_path / "a.npz"
    for cut in np.random.default_rng(0).choice(len(content), 100, replace=False):
        file.write_bytes(content[:cut])
        assert outcome(file) == "error"


def test_flipped_bytes_in_npz(tmp_path: Path) -> None:
    content = sample_bytes()
    rng = np.random.default_rng(1)
    file = tmp_path / "a.npz"
    seen = []
    for position in rng.choice(len(content), 200, replace=False):
        changed = bytearray(content)
        changed[position] ^= int(rng.integers(1, 256))
        file.write_bytes(changed)
        seen.append(outcome(file))
    assert seen.count("error") > 100


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_flipped_bytes_inside_an_array(draw: st.DataObject) -> None:
    """Damage that the checksum of the archive does not see."""
    array = bytearray(npy((3, 2), "<f8", np.arange(6.0).tobytes()))
    for _ in range(draw.draw(st.integers(1, 3))):
        array[draw.draw(st.integers(0, len(array) - 1))] = draw.draw(st.integers(0, 255))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "a.npz"
        file.write_bytes(zipped("view_a.npy", bytes(array)))
        outcome(file)


@settings(max_examples=60, deadline=None)
@given(st.data(), st.sampled_from(FOLDERS))
def test_damaged_folders(draw: st.DataObject, format: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "f"
        data = MultiViewData({"a": [[1.0], [2.0]], "b": [[1.0], [2.0]]}, ["p", None], ids=[1, 2])
        write(data, folder, format=format)
        file = draw.draw(st.sampled_from(sorted(folder.iterdir())))
        content = bytearray(file.read_bytes())
        position = draw.draw(st.integers(0, len(content) - 1))
        if draw.draw(st.booleans()):
            del content[position:]
        else:
            content[position] ^= draw.draw(st.integers(1, 255))
        file.write_bytes(content)
        outcome(folder)


def test_a_note_that_does_not_say_the_type_of_numbers(tmp_path: Path) -> None:
    data = MultiViewData({"a": [[1.0], [2.0]]}, ids=[1, 2])
    write(data, tmp_path / "f", format="csv")
    note = tmp_path / "f" / "fewview.json"
    note.write_text(note.read_text().replace('"dtype": "float32",', ""))
    assert read(tmp_path / "f") == data


# ------------------------------------------------------------------ names and places


def test_other_formats(tmp_path: Path) -> None:
    data = MultiViewData({"a": [[1.0]]})
    file = tmp_path / "x.csv"
    file.write_text("id,x\n")
    with pytest.raises(FewviewError, match="has no rows"):
        read(file)
    with pytest.raises(FewviewError, match="format='csv'"):
        write(data, file)
    for call in (lambda: write(data, tmp_path / "y.xyz"), lambda: read(tmp_path / "y.xyz")):
        (tmp_path / "y.xyz").touch()
        with pytest.raises(
            FewviewError, match=r"'\.xyz' are not supported; supported are \.npz, \.mat, \.h5mu"
        ):
            call()
    with pytest.raises(FewviewError, match=r"unknown format 'xls'; the formats are npz, mat, h5mu"):
        write(data, tmp_path / "y", format="xls")
    for format in ("npz", "mat", "h5mu", "h5ad"):
        with pytest.raises(FewviewError, match=rf"must end in \.{format}"):
            write(data, tmp_path / "y", format=format)


def test_pipes_are_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.npz")
    with pytest.raises(FewviewError, match="neither a file nor a folder"):
        read(tmp_path / "a.npz")
    (tmp_path / "f").mkdir()
    os.mkfifo(tmp_path / "f" / "a.csv")
    with pytest.raises(FewviewError, match=r"a\.csv is not a file"):
        read(tmp_path / "f")


def test_labels_by_name(tmp_path: Path) -> None:
    np.savez(
        tmp_path / "a.npz", view_a=np.ones((2, 1)), y=np.array([0, 1]), sex=np.array(["f", "m"])
    )
    assert read(tmp_path / "a.npz", labels="sex").labels.tolist() == ["f", "m"]  # type: ignore[union-attr]
    with pytest.raises(FewviewError, match=r"no array 'age' for the labels; it has view_a, y, sex"):
        read(tmp_path / "a.npz", labels="age")
    folder = tmp_path / "f"
    folder.mkdir()
    put(folder, a="id,x\n1,5\n", labels="id,label,sex\n1,p,f\n")
    assert read(folder).labels.tolist() == ["p"]  # type: ignore[union-attr]
    assert read(folder, labels="sex").labels.tolist() == ["f"]  # type: ignore[union-attr]
    with pytest.raises(FewviewError, match=r"--labels age: neither labels\.csv nor a table has"):
        read(folder, labels="age")
    (folder / "labels.csv").unlink()
    with pytest.raises(FewviewError, match=r"--labels sex: no table has a column 'sex'"):
        read(folder, labels="sex")


def test_reading_nothing(tmp_path: Path) -> None:
    for path in (tmp_path / "no.npz", tmp_path / "no", tmp_path / "no" / "a.npz", "\0.npz"):
        with pytest.raises(FewviewError, match="no such file or folder"):
            read(path)


def test_default_formats(tmp_path: Path) -> None:
    data = MultiViewData({"a": [[1.0]]})
    write(data, tmp_path / "f")
    assert (tmp_path / "f" / "a.csv").exists()
    write(data, tmp_path / "G.NPZ")
    assert read(tmp_path / "G.NPZ") == data
    write(data, tmp_path / "name.with.dots", format="csv")
    assert read(str(tmp_path / "name.with.dots")).name == "name.with.dots"


def test_writing_where_something_is(tmp_path: Path) -> None:
    old, new = MultiViewData({"a": [[1.0]]}), MultiViewData({"a": [[2.0]]})
    write(old, tmp_path / "a.npz")
    write(new, tmp_path / "a.npz")
    assert read(tmp_path / "a.npz") == new
    (tmp_path / "f").mkdir()
    write(old, tmp_path / "f")
    with pytest.raises(FewviewError, match="exists and is not empty"):
        write(new, tmp_path / "f")
    assert read(tmp_path / "f") == old
    with pytest.raises(FewviewError, match="is a file"):
        write(new, tmp_path / "a.npz", format="csv")
    (tmp_path / "d.npz").mkdir()
    with pytest.raises(FewviewError, match="is a folder"):
        write(new, tmp_path / "d.npz")


@pytest.mark.parametrize("format", FORMATS)
def test_writing_where_nothing_can_be(format: str, tmp_path: Path) -> None:
    data = MultiViewData({"a": [[1.0]]})
    (tmp_path / "file").write_text("x")
    for place in ("no", "file", "x" * 300):
        with pytest.raises(FewviewError):
            write(data, target(tmp_path / place, format), format=format)
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_names_that_folders_cannot_have(tmp_path: Path) -> None:
    for view in ("labels", "ids"):
        with pytest.raises(FewviewError, match=f"view '{view}' cannot be written to a folder"):
            write(MultiViewData({view: [[1.0]]}), tmp_path / "f")
    keyed = MultiViewData({"a": [[1.0]]}, columns={"a": ["id"]})
    for format in ("csv", "parquet"):
        with pytest.raises(FewviewError, match="view 'a' has a column 'id'"):
            write(keyed, tmp_path / "f", format=format)
    for format in ("npz", "npy"):
        assert there_and_back(keyed, format) == keyed
    long = MultiViewData({"x" * 300: [[1.0]]})
    with pytest.raises(FewviewError):
        write(long, tmp_path / "f")
    odd = MultiViewData({"a": [[1.0]]}, columns={"a": ["\ud800"]})
    for format in ("csv", "parquet"):
        with pytest.raises(FewviewError):
            write(odd, tmp_path / "f", format=format)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("stop", [KeyboardInterrupt, OSError, MemoryError])
def test_interrupted_writing_leaves_nothing(
    format: str, stop: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = MultiViewData({"a": [[1.0]], "b": [[2.0]]}, ["x"])

    def fail(*_: Any, **__: Any) -> None:
        raise stop("stopped")

    if format in ("npz", "npy"):
        monkeypatch.setattr(np.lib.format, "write_array", fail)
    elif format == "csv":
        monkeypatch.setattr(tables, "_cell", fail)
    elif format == "mat":
        monkeypatch.setattr(scipy.io, "savemat", fail)
    elif format in ("h5ad", "h5mu"):
        monkeypatch.setattr(anndata.io, "write_elem", fail)
    else:
        monkeypatch.setattr(pq, "write_table", fail)
    wanted = KeyboardInterrupt if stop is KeyboardInterrupt else FewviewError
    with pytest.raises(wanted):
        write(data, target(tmp_path, format), format=format)
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root reads anything")
def test_unreadable_file(tmp_path: Path) -> None:
    file = tmp_path / "a.npz"
    write(MultiViewData({"a": [[1.0]]}), file)
    file.chmod(0)
    with pytest.raises(FewviewError, match="Permission denied"):
        read(file)


def test_files_get_ordinary_permissions(tmp_path: Path) -> None:
    data = MultiViewData({"a": [[1.0]]})
    (tmp_path / "plain").write_text("x")
    (tmp_path / "folder").mkdir()
    write(data, tmp_path / "a.npz")
    write(data, tmp_path / "f")
    for mine, plain in (("a.npz", "plain"), ("f/a.csv", "plain"), ("f", "folder")):
        assert (tmp_path / mine).stat().st_mode == (tmp_path / plain).stat().st_mode


def test_manifest_is_small_and_plain(tmp_path: Path) -> None:
    write(MultiViewData({"a": [[1.0]]}, ["x"], ids=[5]), tmp_path / "f")
    content = json.loads((tmp_path / "f" / "fewview.json").read_text())
    assert content == {
        "version": 1,
        "views": [{"name": "a", "dtype": "float64", "columns": None}],
        "ids": "int",
        "labels": "str",
    }


def test_the_methods_of_data(tmp_path: Path) -> None:
    data = MultiViewData({"a": [[1.0]]}, ["x"])
    data.write(tmp_path / "a.npz")
    assert MultiViewData.read(tmp_path / "a.npz") == data


# ------------------------------------------------------------------ keys and labels in tables


def test_the_key_and_the_labels_may_be_any_column(tmp_path: Path) -> None:
    put(
        tmp_path,
        blood="mouse,group,x\nm1,A,1\nm2,B,2\nm3,,3\n",
        scan="mouse,y\nm3,6\nm1,5\nm2,4\n",
    )
    data = read(tmp_path, key="mouse", labels="group")
    assert data.ids is not None
    assert data.ids.tolist() == ["m1", "m2", "m3"]
    assert data.labels is not None
    assert data.labels.tolist() == ["A", "B", None]
    assert data.view_dims == {"blood": 1, "scan": 1}
    with pytest.warns(FewviewWarning, match="told apart by the column 'mouse'"):
        assert read(tmp_path, labels="group") == data
    with pytest.raises(FewviewError, match=r"--labels grop: no table .*did you mean 'group'\?"):
        read(tmp_path, key="mouse", labels="grop")
    with pytest.raises(FewviewError, match=r"scan\.csv: no column 'group' .*--key, the same"):
        read(tmp_path, key="group")


def test_labels_in_two_tables_must_agree(tmp_path: Path) -> None:
    put(tmp_path, a="id,label,x\np,1,1\nq,,2\n", b="id,label,y\np,1,1\nq,2,2\n")
    data = read(tmp_path)
    assert data.labels is not None
    assert data.labels.tolist() == [1, 2]
    put(tmp_path, b="id,label,y\np,3,1\nq,2,2\n")
    with pytest.raises(FewviewError, match=r"b\.csv: line 2 has label '3', and a\.csv has '1'"):
        read(tmp_path)


def test_labels_in_a_parquet_table(tmp_path: Path) -> None:
    table = {"id": ["p", "q", "r"], "x": [1.0, 2.0, 3.0], "label": [4, 5, None]}
    pq.write_table(pa.table(table), tmp_path / "a.parquet")
    data = read(tmp_path)
    assert data.labels is not None
    assert data.labels.tolist() == [4, 5, None]
    assert data.view_dims == {"a": 1}


def test_the_only_other_column_of_a_label_file(tmp_path: Path) -> None:
    put(tmp_path, a="id,x\np,1\nq,2\n", labels="id,illness\np,gout\nq,ague\n")
    data = read(tmp_path)
    assert data.labels is not None
    assert data.labels.tolist() == ["gout", "ague"]


@pytest.mark.parametrize(
    ("ids", "repair"),
    [
        ([" s1 ", " s2 "], "without the spaces around them 2 of 2 would match"),
        (["2000.0", "2001.0"], "as whole numbers"),
        (["S1", "s2"], "in small letters"),
    ],
)
def test_ids_that_match_in_no_row(tmp_path: Path, ids: list[str], repair: str) -> None:
    other = ["s1", "s2"] if not ids[0].startswith("2") else ["2000", "2001"]
    if ids[0] == "S1":
        ids = ["S1", "S2"]
    put(
        tmp_path,
        a="id,x\n" + "".join(f"{name},1\n" for name in ids),
        b="id,y\n" + "".join(f"{name},1\n" for name in other),
    )
    with pytest.raises(FewviewError) as error:
        read(tmp_path)
    message = str(error.value)
    assert "no sample is in two tables" in message
    assert repr(ids[0]) in message
    assert repr(other[1]) in message
    assert repair in message
    assert "--disjoint" in message
    assert len(read(tmp_path, disjoint=True)) == 4


def test_long_tables_without_a_common_id_are_an_error(tmp_path: Path) -> None:
    put(
        tmp_path,
        a="id,x\n" + "".join(f"p{k},1\n" for k in range(5)),
        b="id,y\n" + "".join(f"q{k},1\n" for k in range(5)),
    )
    with pytest.raises(FewviewError, match=r"a\.csv has ids 'p0', 'p1', 'p2' and 2 more"):
        read(tmp_path)
    assert len(read(tmp_path, disjoint=True)) == 10


def test_labels_that_match_in_no_row(tmp_path: Path) -> None:
    put(tmp_path, a="id,x\n1,1\n2,1\n", labels="id,label\n1.0,A\n2.0,B\n")
    with pytest.raises(FewviewError, match=r"labels\.csv: ids '1\.0'.*as whole numbers .*2 of 2"):
        read(tmp_path)


@pytest.mark.parametrize(
    ("other", "repair"),
    [
        ("s1 ", "without the spaces around them 1 more would match"),
        ("S1", "in small letters"),
    ],
)
def test_ids_that_match_in_some_rows_only(tmp_path: Path, other: str, repair: str) -> None:
    put(tmp_path, a="id,x\ns1,1\ns2,1\ns3,1\n", b=f"id,y\n{other},1\ns2,1\n")
    with pytest.raises(FewviewError) as error:
        read(tmp_path)
    assert f"id 's1' in a.csv and id {other!r} in b.csv look like the same" in str(error.value)
    assert repair in str(error.value)
    assert len(read(tmp_path, disjoint=True)) == 4
    # A table that has both tells them apart.
    put(tmp_path, a=f"id,x\ns1,1\n{other},1\ns3,1\n", b=f"id,y\n{other},1\ns4,1\n")
    assert len(read(tmp_path)) == 4


def test_labels_as_other_programs_write_them(tmp_path: Path) -> None:
    """Spaces around them, whole numbers with a point beside empty cells, other letters."""
    put(tmp_path, a="id,x\n1,1\n2,1\n3,1\n", labels="id,label\n1,gout \n2,gout\n3, \n")
    labels = read(tmp_path).labels
    assert labels is not None
    assert labels.tolist() == ["gout", "gout", None]
    put(tmp_path, a="id,x\n1,1\n2,1\n3,1\n", labels="id,label\n1,3.0\n2,\n3,4.0\n")
    labels = read(tmp_path).labels
    assert labels is not None
    assert labels.tolist() == [3, None, 4]
    (tmp_path / "labels.csv").unlink()
    frame = pd.DataFrame({"id": [1, 2, 3], "label": [3.0, np.nan, 4.0]})
    frame.to_parquet(tmp_path / "labels.parquet")
    labels = read(tmp_path).labels
    assert labels is not None
    assert labels.tolist() == [3, None, 4]
    (tmp_path / "labels.parquet").unlink()
    put(tmp_path, a="id,x\n1,1\n2,1\n3,1\n", labels="id,label\n1,Gout\n2,gout\n3,gout\n")
    with pytest.warns(FewviewWarning, match=r"classes 'Gout' \(1\) and 'gout' \(2\) differ in"):
        assert len(read(tmp_path).classes) == 2


def test_names_of_key_and_labels_may_have_large_letters_and_spaces(tmp_path: Path) -> None:
    put(tmp_path, a="ID,x,Label\np,1,gout\nq,2,\n", b=" id,y\nq,3\np,4\n")
    data = read(tmp_path)
    assert data.ids is not None
    assert data.labels is not None
    assert data.ids.tolist() == ["p", "q"]
    assert data.columns == {"a": ("x",), "b": ("y",)}
    assert data.labels.tolist() == ["gout", None]
    assert read(tmp_path / "a.csv").view_dims == {"a": 1}
    (tmp_path / "b.csv").unlink()
    pd.DataFrame({"Id": ["q", "p"], "y": [3.0, 4.0]}).to_parquet(tmp_path / "b.parquet")
    assert read(tmp_path) == data
    # Which of two is meant cannot be known.
    put(tmp_path, a="ID,Id,x\np,r,1\n")
    with pytest.raises(FewviewError, match=r"no column 'id' \(it has 'ID', 'Id', 'x'\)"):
        read(tmp_path)


def test_labels_that_a_table_repeats_are_no_feature(tmp_path: Path) -> None:
    put(tmp_path, a="id,x,label\np,1,u\nq,2,\n", labels="id,label\np,u\nq,v\n")
    with pytest.warns(FewviewWarning, match=r"'label' of view 'a' is left out: .* labels\.csv"):
        data = read(tmp_path)
    assert data.columns == {"a": ("x",)}
    assert data.labels is not None
    assert data.labels.tolist() == ["u", "v"]


@pytest.mark.parametrize("codes", [("7", "8", "9"), ("dry", "wet", "old")])
def test_a_column_that_is_the_label_under_another_name_is_told(
    tmp_path: Path, codes: tuple[str, ...]
) -> None:
    def text(rows: int) -> str:
        cells = [f"{row},{codes[row % 3]},{row % 2},{'uvw'[row % 3]}" for row in range(rows)]
        return "id,code,half,label\n" + "".join(f"{line}\n" for line in cells)

    put(tmp_path, a=text(15))
    with pytest.warns(FewviewWarning, match="column 'code' tells the class of every") as told:
        read(tmp_path)
    assert len(told) == 1
    put(tmp_path, a=text(6))  # so few may agree by chance
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read(tmp_path)


def test_a_table_without_rows_is_a_view_that_nobody_has(tmp_path: Path) -> None:
    put(tmp_path, a="id,x\np,1\n", b="id,y\n")
    with pytest.warns(FewviewWarning, match=r"b\.csv has no rows; no sample has this view"):
        assert read(tmp_path).view_names == ("a",)


def test_some_labels_of_nobody_are_left_out(tmp_path: Path) -> None:
    put(tmp_path, a="id,x\np,1\nq,2\n", labels="id,label\np,u\nq,v\nr,u\n")
    with pytest.warns(FewviewWarning, match=r"labels\.csv: id 'r' in no table.*; left out"):
        assert len(read(tmp_path)) == 2


# ------------------------------------------------------------------ as spreadsheets write them


def written(folder: Path, text: str) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "a.csv").write_text(text, encoding="utf-8")
    return folder


def test_lines_and_columns_without_a_cell_are_left_out(tmp_path: Path) -> None:
    """A line of separators was a sample without a key, and two columns had the same name."""
    data = MultiViewData.read(written(tmp_path / "t", "id,x,,\np,1,,\n,,,\nq,2,,\n,,,\n"))
    assert data.columns["a"] == ("x",)
    assert data.ids.tolist() == ["p", "q"]  # type: ignore[union-attr]
    data = MultiViewData.read(written(tmp_path / "u", "id,word,,x\np,a,,1\nq,b,,2\n"))
    assert data.columns["a"] == ("word=a", "word=b", "x")


def test_lines_above_the_header_are_named(tmp_path: Path) -> None:
    folder = written(tmp_path / "t", "Oils of Italy\n\nid,x\np,1\nq,2\n")
    with pytest.raises(FewviewError, match=r"no column 'id'.*line 3 has it, so delete the lines"):
        MultiViewData.read(folder, key="id")


@pytest.mark.parametrize("cells", ["1.329;930", "1.329;12,5", "12,5;1.329"])
def test_points_that_may_stand_between_thousands_are_refused(tmp_path: Path, cells: str) -> None:
    """They were read as 1.329 and 930, of which one is wrong by a factor of 1000."""
    one, two = cells.split(";")
    folder = written(tmp_path / "t", f"id;x\np;{one}\nq;{two}\n")
    with pytest.raises(FewviewError, match=r"'x', line \d holds '1.329', whose point may stand"):
        MultiViewData.read(folder)


@pytest.mark.parametrize(
    ("cells", "numbers"),
    [("1.329;0.5", [1.329, 0.5]), ("1.329;2000", [1.329, 2000]), ("1.234.567;3", [1234567, 3]),
     ("1.234,5;-3,25", [1234.5, -3.25])],
)  # fmt: skip
def test_points_and_commas_that_leave_no_doubt(
    tmp_path: Path, cells: str, numbers: list[float]
) -> None:
    one, two = cells.split(";")
    data = MultiViewData.read(written(tmp_path / "t", f"id;x\np;{one}\nq;{two}\n"))
    np.testing.assert_allclose(data.view("a")[:, 0], numbers)


@pytest.mark.parametrize(("packed", "module"), tables.PACKED.items())
def test_compressed_text_is_read_like_text(packed: str, module: str, tmp_path: Path) -> None:
    opener = pytest.importorskip(module).open
    plain = {"a": "id,x,leaf\n1,0.5,dry\n2,,wet\n", "labels": "id,label\n1,one\n2,two\n"}
    for name, text in plain.items():
        (tmp_path / "plain").mkdir(exist_ok=True)
        (tmp_path / "packed").mkdir(exist_ok=True)
        (tmp_path / "plain" / f"{name}.csv").write_text(text)
        with opener(tmp_path / "packed" / f"{name}.csv{packed}", "wt", encoding="utf-8") as stream:
            stream.write(text)
    found = read(tmp_path / "packed")
    assert found == read(tmp_path / "plain")
    assert found.view_names == ("a",)
    assert read(tmp_path / "packed" / f"a.csv{packed}").view_names == ("a",)
    file = tmp_path / "packed" / f"a.csv{packed}"
    for damage in (file.read_bytes()[:20], b"no such thing"):
        file.write_bytes(damage)
        with pytest.raises(FewviewError, match=rf"a.csv{packed}: .*damaged or cut short"):
            read(tmp_path / "packed")


def test_a_little_compressed_text_does_not_fill_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with gzip.open(tmp_path / "a.csv.gz", "wb") as stream:
        stream.write(b"id,x\n" + b"12,12\n" * 2_000_000)
    assert (tmp_path / "a.csv.gz").stat().st_size < 100_000
    monkeypatch.setenv("FEWVIEW_READ_MEMORY", "100M")
    monkeypatch.setenv("FEWVIEW_READ_SECONDS", "300")  # a busy machine may take more than 30
    with pytest.raises(FewviewError, match=r"a.csv.gz: needs more than 0.1 GiB .*READ_MEMORY"):
        read(tmp_path)


def test_other_compressed_tables_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv.zst").touch()
    for path in (tmp_path, tmp_path / "a.csv.zst"):
        with pytest.raises(
            FewviewError, match=r"a.csv.zst is a compressed table, of which .csv.gz"
        ):
            read(path)
    (tmp_path / "a.csv").write_text("id,x\n1,2\n")  # of which the other is a copy
    assert read(tmp_path).view_names == ("a",)
    (tmp_path / "a.csv.gz").touch()
    with pytest.raises(FewviewError, match=r"a.csv and a.csv.gz would be the same view"):
        read(tmp_path)
