"""Joining tables by key: like a hand-made outer join, whatever library holds the tables."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fewview.errors import FewviewError, FewviewWarning
from fewview.samples._data import MultiViewData

NAN = float("nan")


def pandas_indexed(ids: list[Any], block: np.ndarray, columns: list[str]) -> Any:
    return pd.DataFrame(block, index=pd.Index(ids, dtype=object), columns=columns)


def pandas_keyed(ids: list[Any], block: np.ndarray, columns: list[str]) -> Any:
    frame = pd.DataFrame(block, columns=columns)
    frame.insert(len(columns) // 2, "id", ids)
    return frame


def polars_keyed(ids: list[Any], block: np.ndarray, columns: list[str]) -> Any:
    return pl.DataFrame({"id": ids, **{c: block[:, i] for i, c in enumerate(columns)}})


def arrow_keyed(ids: list[Any], block: np.ndarray, columns: list[str]) -> Any:
    return pa.table({"id": ids, **{c: block[:, i] for i, c in enumerate(columns)}})


KINDS = [pandas_indexed, pandas_keyed, polars_keyed, arrow_keyed]


@settings(max_examples=60, deadline=None)
@given(st.data(), st.integers(0, 999), st.booleans())
def test_join_equals_joining_by_hand(draw: st.DataObject, seed: int, text: bool) -> None:
    rng = np.random.default_rng(seed)
    pool: list[Any] = ["é", "b", "zz", "x y", "10", "9"] if text else [5, -3, 10, 9, 0, 2**40]
    frames: dict[str, Any] = {}
    truth: dict[str, dict[Any, np.ndarray]] = {}
    for view in ("rna", "scan", "note"):
        # The first key is in every table, so that the tables share something.
        ids = [*draw.draw(st.permutations(pool[1:]))[: draw.draw(st.integers(0, 5))], pool[0]]
        width = draw.draw(st.integers(1, 3))
        block = rng.normal(size=(len(ids), width))
        columns = [f"{view}{i}" for i in range(width)]
        kind = draw.draw(st.sampled_from(KINDS))
        frames[view] = kind(ids, block, columns)
        truth[view] = dict(zip(ids, block, strict=True))
    labels = {i: f"class {i}" for i in pool[:2] if any(i in rows for rows in truth.values())}
    before = {view: str(frame) for view, frame in frames.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        data = MultiViewData.from_frames(frames, labels)
    assert {view: str(frame) for view, frame in frames.items()} == before
    ids = sorted({i for rows in truth.values() for i in rows})
    assert data.ids is not None
    assert data.ids.tolist() == ids
    assert data.view_names == ("rna", "scan", "note")
    for index, (view, rows) in enumerate(truth.items()):
        assert data.columns[view] == tuple(f"{view}{i}" for i in range(data.view_dims[view]))
        for place, i in enumerate(ids):
            assert data.mask[place, index] == (i in rows)
            if i in rows:
                np.testing.assert_array_equal(data.view(view)[place], rows[i])
    assert data.labels is not None
    assert data.labels.tolist() == [labels.get(i) for i in ids]


def test_order_of_rows_and_library_do_not_matter() -> None:
    block = np.arange(6.0).reshape(3, 2)
    wanted = None
    for kind in KINDS:
        for order in ([0, 1, 2], [2, 0, 1]):
            frame = kind([["b", "a", "c"][i] for i in order], block[order], ["x", "y"])
            other = kind(["c", "b"], np.array([[1.0], [2.0]]), ["z"])
            data = MultiViewData.from_frames({"v": frame, "w": other})
            wanted = wanted or data
            assert data == wanted
            assert data.fingerprint == wanted.fingerprint


def test_ids_that_cannot_be_sorted_keep_their_order() -> None:
    one = pd.DataFrame({"x": [1.0, 2.0]}, index=pd.Index(["b", 3], dtype=object))
    two = pd.DataFrame({"y": [1.0, 2.0]}, index=pd.Index(["a", "b"], dtype=object))
    data = MultiViewData.from_frames({"v": one, "w": two})
    assert data.ids is not None
    assert data.ids.tolist() == ["b", 3, "a"]


def test_key_by_name() -> None:
    one = pl.DataFrame({"patient": [1, 2], "id": [0.5, 0.7]})
    two = pd.DataFrame({"y": [1.0]}, index=pd.Index([2], name="patient"))
    three = pd.DataFrame(
        {"z": [3.0]}, index=pd.MultiIndex.from_tuples([("s", 1)], names=["site", "patient"])
    )
    data = MultiViewData.from_frames({"a": one, "b": two, "c": three}, key="patient")
    assert data.ids is not None
    assert data.ids.tolist() == [1, 2]
    assert data.columns["a"] == ("id",)
    assert data.mask.tolist() == [[True, False, True], [True, True, False]]


def test_labels_of_every_kind() -> None:
    rna = pd.DataFrame({"g": [0.1, 0.2, 0.3]}, index=["a", "b", "c"])
    for labels in (
        {"a": "ill", "c": "well"},
        {"a": "ill", "b": None, "c": "well"},
        pd.Series(["ill", "well"], index=["a", "c"]),
        pd.Series(["ill", None, "well"], index=["a", "b", "c"], dtype="category"),
        pd.DataFrame({"id": ["c", "a"], "state": ["well", "ill"]}),
        pd.DataFrame({"state": ["well", "ill", pd.NA]}, index=["c", "a", "b"]),
        pl.DataFrame({"id": ["c", "a"], "state": ["well", "ill"]}),
        pl.DataFrame({"state": ["well", "ill"], "id": ["c", "a"]}).with_columns(
            pl.col("state").cast(pl.Categorical)
        ),
    ):
        data = MultiViewData.from_frames({"rna": rna}, labels)
        assert data.labels is not None
        assert data.labels.tolist() == ["ill", None, "well"]
    assert MultiViewData.from_frames({"rna": rna}).labels is None


def test_numbers_of_every_kind() -> None:
    frame = pd.DataFrame(
        {
            "id": [1, 2],
            "whole": [1, 2],
            "small": np.array([1, 2], dtype="u1"),
            "yes": [True, False],
            "nullable": pd.array([1.5, 2.5], dtype="Float64"),
            "arrow": pd.array([1, 2], dtype="int64[pyarrow]"),
            "object": pd.Series([1, 2.5], dtype=object),
            7: [0.5, 0.25],
        }
    )
    data = MultiViewData.from_frames({"v": frame})
    assert data.columns["v"] == ("whole", "small", "yes", "nullable", "arrow", "object", "7")
    assert data.view("v").tolist() == [[1, 1, 1, 1.5, 1, 1, 0.5], [2, 2, 0, 2.5, 2, 2.5, 0.25]]


def test_rows_of_nothing_are_missing_and_partial_rows_are_the_users_choice() -> None:
    one = pd.DataFrame({"x": [1.0, NAN], "y": [1.0, NAN]}, index=["a", "b"])
    two = pl.DataFrame({"id": ["a", "b"], "z": [1, None], "u": [2, 3]})
    with pytest.raises(FewviewError, match=r"view 'w': row 1 \(id b\) partly NaN"):
        MultiViewData.from_frames({"v": one, "w": two}, partial_rows="error")
    assert MultiViewData.from_frames({"v": one, "w": two}).empty_cells == 1
    data = MultiViewData.from_frames({"v": one, "w": two}, partial_rows="mean")
    assert data.mask.tolist() == [[True, True], [False, True]]
    with pytest.raises(FewviewError, match=r"row 1 \(id b\): no view at all"):
        MultiViewData.from_frames({"v": one})


def test_messages_count_rows_as_the_table_does() -> None:
    """Not as the join does, which sorts: b is row 0 of its table and row 1 of the join."""
    other = pd.DataFrame({"z": [1.0, 2.0]}, index=["a", "b"])
    partial = pd.DataFrame({"x": [1.0, 1.0], "y": [NAN, 1.0]}, index=["b", "a"])
    with pytest.raises(FewviewError, match=r"view 'v': row 0 \(id b\) partly NaN"):
        MultiViewData.from_frames({"v": partial, "w": other}, partial_rows="error")
    infinite = pd.DataFrame({"x": [float("inf"), 1.0]}, index=["b", "a"])
    with pytest.raises(FewviewError, match=r"view 'v': row 0 \(id b\), column 'x' is infinite"):
        MultiViewData.from_frames({"v": infinite, "w": other})


def test_row_numbers_as_keys() -> None:
    one, two = pd.DataFrame({"x": [1.0, 2.0]}), pd.DataFrame({"y": [3.0]})
    with pytest.warns(FewviewWarning, match="matched by row number"):
        data = MultiViewData.from_frames({"v": one, "w": two})
    assert data.mask.tolist() == [[True, True], [True, False]]
    keyed = pd.DataFrame({"id": [0, 5], "z": [1.0, 1.0]})
    with pytest.raises(FewviewError, match=r"view 'v' has no key column.*view 'k' has one"):
        MultiViewData.from_frames({"v": one, "k": keyed})


def test_a_table_apart_is_a_warning() -> None:
    frames = {
        "a": pd.DataFrame({"x": [1.0]}, index=["p"]),
        "b": pd.DataFrame({"x": [1.0]}, index=["p"]),
        "c": pd.DataFrame({"x": [1.0]}, index=["q"]),
    }
    with pytest.warns(FewviewWarning, match="view 'c' shares no sample"):
        assert len(MultiViewData.from_frames(frames)) == 2


def test_samples_with_one_view_each_are_a_warning(tmp_path: Path) -> None:
    (tmp_path / "blood.csv").write_text("id,x\nA1,1\n")
    (tmp_path / "scan.csv").write_text("id,y,z\nB1,2,3\n")
    with pytest.warns(
        FewviewWarning, match=r"in two tables \(blood\.csv has id 'A1'; scan\.csv has id 'B1'"
    ):
        data = MultiViewData.read(tmp_path)
    assert list(data.ids) == ["A1", "B1"]
    assert data.mask.tolist() == [[True, False], [False, True]]


GOOD = pd.DataFrame({"x": [1.0, 2.0]}, index=["a", "b"])
BAD: dict[str, tuple[Any, Any, str]] = {
    "nothing": ({}, None, "at least one table"),
    "not a dict": ([GOOD], None, "dict of view name"),
    "an array": ({"v": np.ones((2, 2))}, None, r"view 'v' is a ndarray; .*frame"),
    "a series": ({"v": pd.Series([1.0])}, None, "view 'v' is a Series"),
    "lazy": ({"v": pl.LazyFrame({"id": [1]})}, None, r"view 'v' is a lazy frame; collect\(\)"),
    "duplicate keys": (
        {"v": pd.DataFrame({"x": [1.0, 2.0, 3.0]}, index=["a", "b", "a"])},
        None,
        "view 'v': id 'a' occurs in row 0 and row 2; keep one",
    ),
    "duplicate keys in polars": (
        {"g": GOOD, "v": pl.DataFrame({"id": ["a", "a"], "x": [1, 2]})},
        None,
        "view 'v': id 'a' occurs in row 0 and row 1",
    ),
    "no key column": (
        {"v": pl.DataFrame({"name": ["a"], "x": [1.0]})},
        None,
        r"view 'v': no column 'id' \(it has 'name', 'x'\); set key=",
    ),
    "null key": (
        {"v": pl.DataFrame({"id": ["a", None], "x": [1, 2]})},
        None,
        "view 'v': row 1 has no key",
    ),
    "NaN key": (
        {"v": pd.DataFrame({"id": [1, NAN], "x": [1, 2]})},
        None,
        "view 'v': row 1 has no key",
    ),
    "list as key": ({"v": pl.DataFrame({"id": [[1]], "x": [1]})}, None, "key of row 0 is a list"),
    "lists of one": (
        {"v": pl.DataFrame({"id": ["a", "b"], "x": [[1], [2]]})},
        None,
        "view 'v'.*holds",
    ),
    "lists": (
        {"v": pl.DataFrame({"id": ["a", "b"], "x": [[1], [2, 3]]})},
        None,
        "view 'v'.*holds",
    ),
    "columns twice": (
        {"v": pd.DataFrame(np.ones((1, 2)), columns=["x", "x"])},
        None,
        "view 'v': column 'x' occurs twice",
    ),
    "no rows": ({"v": GOOD[:0], "w": GOOD}, None, "view 'v': the table has no rows"),
    "no columns": ({"v": GOOD[[]]}, None, "view 'v' has no columns"),
    "infinity": (
        {"v": GOOD.replace(2.0, np.inf)},
        None,
        r"view 'v': row 1 \(id b\), column 'x' is infinite",
    ),
    "kinds of keys": (
        {"v": pl.DataFrame({"id": [1], "x": [1.0]}), "w": pl.DataFrame({"id": ["1"], "x": [1.0]})},
        None,
        r"numbers in view 'v' \(such as 1\), text in view 'w' \(such as '1'\); convert",
    ),
    "kinds of keys in one table": (
        {
            "v": pd.DataFrame({"x": [1.0, 2.0]}, index=pd.Index([1, "a"], dtype=object)),
            "w": pd.DataFrame({"x": [1.0, 2.0]}, index=["1", "a"]),
        },
        None,
        "keys of different kinds",
    ),
    "kinds of keys of labels": ({"v": GOOD}, {1: "x"}, "text in view 'v'.*numbers in labels"),
    "labels of nobody": ({"v": GOOD}, {"a": 1, "z": 2}, "labels: id 'z' in no table"),
    "labels twice": (
        {"v": GOOD},
        pd.Series([1, 2], index=["a", "a"]),
        "labels: id 'a' occurs in row 0 and row 1",
    ),
    "labels without keys": ({"v": GOOD}, ["x", "y"], r"labels are a list;.*dict id -> label"),
    "labels in an array": ({"v": GOOD}, np.array([1, 2]), "labels are a ndarray"),
    "labels in a polars series": ({"v": GOOD}, pl.Series([1, 2]), "labels are a Series"),
    "two columns of labels": (
        {"v": GOOD},
        pd.DataFrame({"id": ["a"], "p": [1], "q": [2]}),
        r"labels have 2 columns besides the key \('p', 'q'\)",
    ),
    "no column of labels": ({"v": GOOD}, pd.DataFrame({"id": ["a"]}), "labels have 0 columns"),
    "unhashable label": ({"v": GOOD}, {"a": [1]}, "label of row 0 is a list"),
    "bad name of a view": ({"v/w": GOOD}, None, "view name 'v/w'"),
    "views of the same name": ({1: GOOD, "1": GOOD}, None, "view '1' is given twice"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_tables(case: str) -> None:
    frames, labels, message = BAD[case]
    with pytest.raises(FewviewError, match=message):
        MultiViewData.from_frames(frames, labels)


def test_bad_key() -> None:
    with pytest.raises(FewviewError, match=r"view 'v': no column 'who' \(it has 'x'\); check key="):
        MultiViewData.from_frames({"v": GOOD}, key="who")


def test_a_forgotten_key_column_is_not_taken_for_a_feature() -> None:
    one = pd.DataFrame({"patient": [1, 2, 3], "a": [0.1, 0.2, 0.3]})
    two = pd.DataFrame({"patient": [3, 2, 1], "b": [1.0, 2.0, 3.0]})
    with pytest.raises(FewviewError, match="key='patient'"):
        MultiViewData.from_frames({"one": one, "two": two})
    joined = MultiViewData.from_frames({"one": one, "two": two}, key="patient")
    assert joined.view("two").ravel().tolist() == [3.0, 2.0, 1.0]
    # A column that both tables share but that does not tell rows apart is a feature.
    one["patient"] = two["patient"] = [0.5, 0.5, 1.0]
    assert MultiViewData.from_frames({"one": one, "two": two}).view_dims == {"one": 2, "two": 2}
