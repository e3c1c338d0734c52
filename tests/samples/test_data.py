"""MultiViewData: what it accepts, what it refuses, and that its parts are parts of its arrays."""

from __future__ import annotations

import pickle
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.model_selection import KFold, StratifiedKFold, train_test_split
from sklearn.utils import _safe_indexing

from fewview.errors import FewviewError, FewviewWarning
from fewview.samples._data import MultiViewData
from fewview.samples._labels import encode_labels

NAN = float("nan")
LABELS: tuple[Any, ...] = (None, 0, 1, -5, "cat", "", "1", 2.5, True, ("a", 1), frozenset({3}))


def made(seed: int, n: int) -> MultiViewData:
    """Random data with missing views, odd labels and text ids."""
    rng = np.random.default_rng(seed)
    mask = rng.random((n, 3)) < 0.6
    mask[np.arange(n), rng.integers(0, 3, n)] = True
    return MultiViewData(
        {f"v{i}": rng.normal(size=(n, i + 1)).astype("f4" if i % 2 else "f8") for i in range(3)},
        [LABELS[i] for i in rng.integers(0, len(LABELS), n)],
        ids=[f"s{i}" for i in rng.permutation(n)],
        mask=mask,
        columns={"v1": ["left", "right"]},
    )


def assert_rows(part: MultiViewData, whole: MultiViewData, key: Any) -> None:
    for view in whole.view_names:
        np.testing.assert_array_equal(part.view(view), whole.view(view)[key])
        assert part.view(view).dtype == whole.view(view).dtype
    np.testing.assert_array_equal(part.mask, whole.mask[key])
    assert part.labels is not None
    assert whole.labels is not None
    assert part.labels.tolist() == whole.labels[key].tolist()
    assert part.columns == whole.columns


# ------------------------------------------------------------------ parts


@st.composite
def keys(draw: st.DrawFn, n: int) -> Any:
    bound = st.one_of(st.none(), st.integers(-n - 2, n + 2))
    position = st.integers(-n, n - 1)
    return draw(
        st.one_of(
            st.builds(slice, bound, bound, st.sampled_from([None, 1, 2, 3, -1, -2])),
            st.lists(st.booleans(), min_size=n, max_size=n).map(np.array),
            st.lists(st.booleans(), min_size=n, max_size=n),
            st.lists(position, max_size=2 * n),
            st.lists(position, max_size=2 * n).map(lambda i: np.array(i, dtype=np.int32)),
            st.lists(position, max_size=n).map(tuple).map(list),
        )
    )


@settings(max_examples=150, deadline=None)
@given(st.data(), st.integers(0, 99), st.integers(1, 9), st.sampled_from(["", "...", ":"]))
def test_slicing_is_numpy_slicing(draw: st.DataObject, seed: int, n: int, more: str) -> None:
    data = made(seed, n)
    key = draw.draw(keys(n))
    part = {"": lambda: data[key], "...": lambda: data[key, ...], ":": lambda: data[key, :]}[more]()
    plain = key if isinstance(key, slice) else np.asarray(key)
    if not isinstance(plain, slice) and plain.size == 0:
        plain = plain.astype(np.int64)
    assert_rows(part, data, plain)
    assert data.ids is not None
    wanted = data.ids[plain].tolist()
    assert (part.ids is None) == (len(set(wanted)) < len(wanted))
    assert part.ids is None or part.ids.tolist() == wanted
    assert len(part) == len(wanted)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 99), st.integers(1, 9), st.data())
def test_one_row(seed: int, n: int, draw: st.DataObject) -> None:
    data = made(seed, n)
    row = draw.draw(st.integers(-n, n - 1))
    for part in (data[row], data[np.int16(row)], data[row, ...]):
        assert len(part) == 1
        assert_rows(part, data, [row])
        assert part.ids is not None
        assert part.ids[0] == data.ids[row]  # type: ignore[index]


@pytest.mark.parametrize(
    ("key", "error"),
    [
        (9, IndexError),
        (-5, IndexError),
        ([0, 9], IndexError),
        (np.ones(3, dtype=bool), IndexError),
        (np.zeros((2, 2), dtype=int), IndexError),
        ([0.5], IndexError),
        (True, IndexError),
        (None, IndexError),
        ("v0", FewviewError),
        ((0, 1), FewviewError),
        ((np.array([0, 1]), np.array([0, 1])), FewviewError),
    ],
)
def test_bad_index(key: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        made(0, 4)[key]


def test_whole_and_iteration() -> None:
    data = made(0, 4)
    assert data[...] == data[()] == data[:] == data
    assert MultiViewData.concat(list(data)) == data
    assert len(data[[]]) == 0
    assert len(data[[False] * 4]) == 0


def test_parts_stay_immutable() -> None:
    data = made(0, 4)
    for part in (data, data[1:], data[[0, 2]], data.select_views(["v0", "v1", "v2"])):
        for array in (*part.views.values(), part.mask, part.labels, part.ids):
            with pytest.raises(ValueError, match="read-only"):
                array[:] = 0  # type: ignore[index]


def test_input_is_neither_changed_nor_shared() -> None:
    block = np.arange(6.0).reshape(3, 2)
    kept = block.copy()
    data = MultiViewData({"a": block, "b": block}, mask=[[1, 0], [0, 1], [1, 1]])
    block[:] = -1
    np.testing.assert_array_equal(data.view("a")[0], kept[0])
    np.testing.assert_array_equal(kept, np.arange(6.0).reshape(3, 2))


# ------------------------------------------------------------------ scikit-learn


def test_sklearn_splitters() -> None:
    data = made(1, 12).with_labels([0, 1] * 6)
    assert data.labels is not None
    train, test, y_train, y_test = train_test_split(
        data, data.labels, test_size=4, random_state=0, stratify=data.labels
    )
    assert isinstance(train, MultiViewData)
    assert (len(train), len(test)) == (8, 4)
    assert train.labels.tolist() == y_train.tolist()
    assert test.labels.tolist() == y_test.tolist()
    assert sorted([*train.ids, *test.ids]) == sorted(data.ids)  # type: ignore[arg-type]
    for splitter in (KFold(3), StratifiedKFold(3)):
        seen = [i for _, test in splitter.split(data, data.labels) for i in test]
        assert sorted(seen) == list(range(12))


def test_sklearn_safe_indexing() -> None:
    data = made(2, 6)
    for key in ([0, 3], np.array([True] * 2 + [False] * 4), slice(1, 4)):
        assert _safe_indexing(data, key) == data[key]


# ------------------------------------------------------------------ together and apart


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 99), st.integers(1, 8), st.data())
def test_concat_undoes_slicing(seed: int, n: int, draw: st.DataObject) -> None:
    data = made(seed, n)
    cut = draw.draw(st.integers(0, n))
    assert MultiViewData.concat([data[:cut], data[cut:]]) == data
    assert MultiViewData.concat([data[cut:], data[:cut]]) == data[[*range(cut, n), *range(cut)]]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 99), st.integers(1, 8), st.permutations(["v0", "v1", "v2"]), st.data())
def test_select_and_drop(seed: int, n: int, order: list[str], draw: st.DataObject) -> None:
    data = made(seed, n)
    chosen = order[: draw.draw(st.integers(1, 3))]
    places = [data.view_names.index(view) for view in chosen]
    some = data[data.mask[:, places].any(axis=1)]
    part = some.select_views(chosen)
    assert part.view_names == tuple(chosen)
    for view in chosen:
        np.testing.assert_array_equal(part.view(view), some.view(view))
    np.testing.assert_array_equal(part.mask, some.mask[:, places])
    others = [view for view in data.view_names if view not in chosen]
    ordered = [view for view in data.view_names if view in chosen]
    assert some.drop_views(others) == some.select_views(ordered)
    if len(some) < n:
        with pytest.raises(FewviewError, match="no view at all"):
            data.select_views(chosen)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 99), st.integers(1, 8))
def test_with_mask(seed: int, n: int) -> None:
    data = made(seed, n)
    more = np.random.default_rng(seed).random((n, 3)) < 0.8
    keep = more & data.mask
    if keep.any(axis=1).all():
        out = data.with_mask(more)
        np.testing.assert_array_equal(out.mask, keep)
        for index, view in enumerate(data.view_names):
            np.testing.assert_array_equal(
                out.view(view)[keep[:, index]], data.view(view)[keep[:, index]]
            )
            assert np.isnan(out.view(view)[~keep[:, index]]).all()
    else:
        with pytest.raises(FewviewError, match="no view at all"):
            data.with_mask(more)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 99), st.integers(1, 8))
def test_equality(seed: int, n: int) -> None:
    data = made(seed, n)
    same = made(seed, n)
    assert data == same
    assert data.fingerprint == same.fingerprint
    assert pickle.loads(pickle.dumps(data)) == data
    assert data != data.with_labels(None)
    assert data != data.with_labels(["other"] * n)
    assert data != data.select_views(["v2", "v1", "v0"])
    assert data.with_name("x") == data
    assert data != "data"
    row, view = np.argwhere(data.mask)[0]
    name = data.view_names[view]
    block = data.view(name).copy()
    block[row] += 1
    other = MultiViewData({**data.views, name: block}, data.labels, ids=data.ids)
    assert other != data
    assert other.fingerprint != data.fingerprint


def test_nan_bits_do_not_matter() -> None:
    odd = np.array([0x7FF8000000000001], dtype=np.uint64).view(np.float64).reshape(1, 1)
    one = MultiViewData({"a": odd, "b": [[1.0]]})
    two = MultiViewData({"a": [[NAN]], "b": [[1.0]]})
    assert one.fingerprint == two.fingerprint


def test_data_of_data_keeps_columns() -> None:
    data = made(0, 3)
    assert MultiViewData(data, data.labels, ids=data.ids) == data


# ------------------------------------------------------------------ like


def test_like_matches_views_and_columns_by_name() -> None:
    base = MultiViewData(
        {"a": [[1.0, 2.0]], "b": [[3.0]], "c": [[4.0]]}, columns={"a": ["x", "y"], "c": ["z"]}
    )
    query = MultiViewData(
        {"c": [[9.0]], "a": [[20.0, 10.0]]}, columns={"a": ["y", "x"]}, labels=["q"], ids=[7]
    )
    out = query.like(base)
    assert out.view_names == base.view_names
    assert out.view("a").tolist() == [[10.0, 20.0]]
    assert out.mask.tolist() == [[True, False, True]]
    assert out.labels.tolist() == ["q"]  # type: ignore[union-attr]
    assert out.ids.tolist() == [7]  # type: ignore[union-attr]
    assert base.like(base) is base


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 99), st.integers(1, 6), st.permutations(["v0", "v1", "v2"]), st.booleans())
def test_like_undoes_any_order(seed: int, n: int, order: list[str], swap: bool) -> None:
    data = made(seed, n)
    other = data.select_views(order)
    if swap:
        views = other.views
        views["v1"] = views["v1"][:, ::-1]
        columns = {"v1": ["right", "left"]}
        other = MultiViewData(views, data.labels, ids=data.ids, columns=columns)
    assert other.like(data) == data


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ({"d": [[1.0]]}, "query has a view 'd'"),
        ({"a": [[1.0]]}, "view 'a': query is 1 wide"),
    ],
)
def test_like_refuses(query: Any, message: str) -> None:
    base = MultiViewData({"a": [[1.0, 2.0]], "b": [[3.0]]})
    with pytest.raises(FewviewError, match=message):
        MultiViewData(query).like(base, "query")


def test_like_tells_of_other_columns_and_keeps_the_width() -> None:
    base = MultiViewData({"a": [[1.0, 2.0]]}, columns={"a": ["x", "y"]})
    query = MultiViewData({"a": [[7.0, 5.0]]}, columns={"a": ["z", "x"]})
    with pytest.warns(FewviewWarning, match=r"1 learnt column .*'y'.*1 column is new .*'z'"):
        alike = query.like(base, "query")
    assert alike.columns == base.columns
    assert np.array_equal(alike.view("a"), [[5.0, NAN]], equal_nan=True)
    other = MultiViewData({"a": [[1.0]]}, columns={"a": ["u"]})
    with pytest.raises(FewviewError, match=r"view 'a': query has none of the columns .*'x', 'y'"):
        other.like(base, "query")


# ------------------------------------------------------------------ what goes in


def test_ways_to_give_views() -> None:
    import pandas as pd
    import polars as pl
    import pyarrow as pa
    from scipy import sparse

    block = [[1.0, 2.0], [3.0, 4.0]]
    table = {"x": [1.0, 3.0], "y": [2.0, 4.0]}
    wanted = np.array(block)
    for views in (
        block,
        np.array(block),
        [np.array(block)],
        (block,),
        sparse.csr_matrix(block),
        [sparse.coo_array(block)],
        {"view0": np.asfortranarray(block)},
        {"view0": np.array(block, dtype=object)},
        {"view0": np.array(block, dtype=">f8")},
        {"view0": np.ma.array(block)},
    ):
        data = MultiViewData(views)
        assert data.view_names == ("view0",)
        np.testing.assert_array_equal(data.view("view0"), wanted)
        assert data.columns == {}
    for frame in (pd.DataFrame(table), pl.DataFrame(table), pa.table(table)):
        data = MultiViewData({"a": frame})
        np.testing.assert_array_equal(data.view("a"), wanted)
        assert data.columns == {"a": ("x", "y")}


def test_no_digit_is_lost() -> None:
    for value, dtype in (
        (0.1, "<f8"),
        (0.1, ">f8"),
        (2**24 + 1, "i8"),
        (2**31 - 1, ">u4"),
        (65535, "u2"),
        (0.5, "f2"),
        (True, "?"),
    ):
        block = np.array([[value]], dtype=dtype)
        assert MultiViewData({"a": block}).view("a")[0, 0] == block[0, 0]


def test_missing_markers_of_frames() -> None:
    import pandas as pd
    import polars as pl

    other = [[1.0], [2.0]]
    for frame in (
        pd.DataFrame({"x": pd.array([1, None], dtype="Int64")}),
        pd.DataFrame({"x": pd.Series([1, pd.NA], dtype=object)}),
        pd.DataFrame({"x": [1.0, None]}),
        pl.DataFrame({"x": [1, None]}),
        np.ma.array([[1], [5]], mask=[[False], [True]]),
    ):
        data = MultiViewData({"a": frame, "b": other})
        assert data.mask.tolist() == [[True, True], [False, True]]


def test_partial_rows() -> None:
    views = {"a": [[1.0, 2.0], [3.0, NAN], [NAN, NAN]], "b": [[1.0]] * 3}
    with pytest.raises(FewviewError, match=r"view 'a': row 1 .*partly NaN.*drop_view"):
        MultiViewData(views, partial_rows="error")
    kept = MultiViewData(views)
    assert kept.mask[:, 0].tolist() == [True, True, False]
    assert kept.empty_cells == 1
    assert "1 empty cell" in str(kept.summary())
    dropped = MultiViewData(views, partial_rows="drop_view")
    assert dropped.mask[:, 0].tolist() == [True, False, False]
    filled = MultiViewData(views, partial_rows="mean")
    assert filled.view("a")[1].tolist() == [3.0, 2.0]
    assert filled.mask[:, 0].tolist() == [True, True, False]
    with pytest.raises(FewviewError, match="partial_rows"):
        MultiViewData(views, partial_rows="guess")  # type: ignore[arg-type]


def test_labels_and_ids_are_kept_as_they_are() -> None:
    values: list[Any] = ["a", "a\0", 2**63, -1, 2**70, 1.5, ("t", 1)]
    for pair in (["a", "a\0"], [2**63, -1], [2**70, 1], ["x", 3], [0.5, 1.5], values):
        data = MultiViewData({"v": [[1.0]] * len(pair)}, pair, ids=pair)
        assert data.labels.tolist() == pair  # type: ignore[union-attr]
        assert data.ids.tolist() == pair  # type: ignore[union-attr]
        assert [type(label) for label in data.labels.tolist()] == list(map(type, pair))  # type: ignore[union-attr]


def test_unknown_labels() -> None:
    import pandas as pd

    labels = [1, None, NAN, np.nan, pd.NA, pd.NaT, np.float64("nan"), 2]
    data = MultiViewData({"v": np.ones((8, 1))}, labels)
    assert data.codes.tolist() == [0, -1, -1, -1, -1, -1, -1, 1]
    assert data.classes.tolist() == [1, 2]


@given(st.lists(st.sampled_from(["b", "a", None, "c"]), min_size=1, max_size=9))
def test_codes_point_to_labels(labels: list[Any]) -> None:
    data = MultiViewData({"v": np.ones((len(labels), 1))}, labels)
    assert [None if c < 0 else data.classes[c] for c in data.codes] == labels
    assert data.classes.tolist() == sorted({label for label in labels if label is not None})


def test_unlabelled_data_has_no_classes() -> None:
    assert encode_labels(None, 2)[1].tolist() == [-1, -1]
    assert len(MultiViewData([[1.0]]).classes) == 0


# ------------------------------------------------------------------ bad input


class Named(dict):  # type: ignore[type-arg]
    """Arguments of the constructor."""


BAD: dict[str, tuple[Named, str]] = {
    "row counts": (
        Named(views={"a": np.ones((2, 1)), "b": np.ones((3, 1))}),
        r"a 2, b 3.*from_frames",
    ),
    "no view at all": (
        Named(views={"a": [[1.0], [NAN]]}, ids=["x", "y"]),
        r"row 1 \(id y\): no view at all.*drop",
    ),
    "partly NaN with ids": (
        Named(views={"a": [[1.0, NAN]]}, ids=["p"], partial_rows="error"),
        r"view 'a': row 0 \(id p\) partly NaN",
    ),
    "infinity": (Named(views={"a": [[1.0], [np.inf]]}), r"view 'a': row 1, column 0 is infinite"),
    "infinity in a named column": (
        Named(views={"a": [[-np.inf]]}, columns={"a": ["x"]}),
        r"column 'x' is infinite",
    ),
    "text": (Named(views={"a": [["one"]]}), r"view 'a' holds .*numbers"),
    "text in an object array": (
        Named(views={"a": np.array([[1.0, "one"]], dtype=object)}),
        r"view 'a': column 1, row 0 holds 'one'",
    ),
    "numbers written as text": (
        Named(views={"a": np.array([["1"]], dtype=object)}),
        r"view 'a': column 0, row 0 holds '1'",
    ),
    "dates": (Named(views={"a": np.array([["2020-01-01"]], dtype="M8[D]")}), "view 'a' holds"),
    "complex": (Named(views={"a": [[1j]]}), "view 'a' holds complex"),
    "too large": (Named(views={"a": [[10**400, 1.0]]}), "view 'a'"),
    "duplicate ids": (Named(views=np.ones((2, 1)), ids=["x", "x"]), "id 'x' occurs more than once"),
    "missing id": (Named(views=np.ones((2, 1)), ids=["x", None]), "row 1: no id"),
    "number of ids": (Named(views=np.ones((2, 1)), ids=["x"]), "1 ids for 2 samples"),
    "unhashable ids": (Named(views=np.ones((1, 1)), ids=[["x"]]), "ids must be one hashable"),
    "ids not a list": (Named(views=np.ones((1, 1)), ids=5), "ids must be"),
    "number of labels": (Named(views=np.ones((2, 1)), labels=[1]), "1 labels for 2 samples"),
    "unhashable labels": (Named(views=np.ones((1, 1)), labels=[[1]]), "label of row 0 is a list"),
    "labels not a list": (Named(views=np.ones((1, 1)), labels=5), "labels must be"),
    "mask shape": (Named(views=np.ones((2, 1)), mask=[[True]]), r"mask has shape \(1, 1\)"),
    "ragged mask": (Named(views=np.ones((2, 1)), mask=[[True], []]), "mask has rows"),
    "mask of numbers": (Named(views=np.ones((1, 1)), mask=[[2]]), "mask must be boolean"),
    "ragged rows": (Named(views={"a": [[1.0], [1.0, 2.0]]}), "view 'a': rows of different lengths"),
    "ragged list": (Named(views=[[1.0], [1.0, 2.0]]), "rows of different lengths"),
    "one dimension": (Named(views={"a": [1.0]}), r"view 'a' has 1 dimension"),
    "three dimensions": (Named(views=np.ones((1, 1, 1))), "3 dimensions"),
    "no columns": (Named(views={"a": np.ones((2, 0))}), "view 'a' has no columns"),
    "no views": (Named(views={}), "no views given"),
    "no list": (Named(views=[]), "no views given"),
    "not data": (Named(views=None), "NoneType"),
    "data as a view": (Named(views={"a": MultiViewData([[1.0]])}), "view 'a' is itself"),
    "bad name": (Named(views={"../a": [[1.0]]}), r"view name '\.\./a'"),
    "empty name": (Named(views={"": [[1.0]]}), "view name ''"),
    "name that is not text": (Named(views={"\ud800": [[1.0]]}), "view name"),
    "same name": (Named(views={1: [[1.0]], "1": [[1.0]]}), "same name"),
    "number of column names": (Named(views=[[1.0]], columns={"view0": ["x", "y"]}), "2 column nam"),
    "columns twice": (Named(views=[[1.0, 2]], columns={"view0": ["x", "x"]}), "'x' occurs twice"),
    "columns of no view": (Named(views=[[1.0]], columns={"b": ["x"]}), "view 'b'"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input(case: str) -> None:
    arguments, message = BAD[case]
    with pytest.raises(FewviewError, match=message):
        MultiViewData(**arguments)


def test_words_in_frames_of_any_kind() -> None:
    import pandas as pd
    import polars as pl

    table = {"x": [1.0, 2.0], "sex": ["f", "m"]}
    for frame in (pd.DataFrame(table), pl.DataFrame(table)):
        data = MultiViewData({"a": frame})
        assert data.columns["a"] == ("x", "sex=f", "sex=m")
        assert data.view("a").tolist() == [[1.0, 1.0, 0.0], [2.0, 0.0, 1.0]]
    data = MultiViewData({"a": pd.DataFrame(table).astype("category")})
    assert data.view("a").tolist() == [[1.0, 1.0, 0.0], [2.0, 0.0, 1.0]]
    when = pd.to_datetime(["1970-01-02", None, "1971-01-01"])
    days = MultiViewData({"a": pd.DataFrame({"when": when, "x": 1})})
    assert np.array_equal(days.view("a")[:, 0], [1.0, NAN, 365.0], equal_nan=True)


@pytest.mark.parametrize("mask", [[[True, True]], [[True] * 3] * 3, [["x"] * 3] * 4, [[7] * 3] * 4])
def test_with_mask_refuses(mask: Any) -> None:
    with pytest.raises(FewviewError, match="mask"):
        made(0, 4).with_mask(mask)


def test_concat_refuses() -> None:
    one = MultiViewData({"a": [[1.0]]}, ids=["x"], columns={"a": ["p"]})
    with pytest.raises(FewviewError, match="at least one"):
        MultiViewData.concat([])
    with pytest.raises(FewviewError, match="view 'a' is 1 wide"):
        MultiViewData.concat([one, MultiViewData({"a": [[1.0, 2.0]]})])
    with pytest.raises(FewviewError, match="different columns"):
        MultiViewData.concat([one, MultiViewData({"a": [[1.0]]}, columns={"a": ["q"]})])
    with pytest.raises(FewviewError, match="id 'x'"):
        MultiViewData.concat([one, one])


def test_concat_orders_columns_by_name() -> None:
    one = MultiViewData({"a": [[1.0, 2.0]]}, columns={"a": ["p", "q"]})
    two = MultiViewData({"a": [[4.0, 3.0]]}, columns={"a": ["q", "p"]})
    assert MultiViewData.concat([one, two]).view("a").tolist() == [[1.0, 2.0], [3.0, 4.0]]


def test_unknown_views() -> None:
    data = made(0, 3)
    for call in (data.view, lambda v: data.select_views([v]), lambda v: data.drop_views([v])):
        with pytest.raises(FewviewError, match=r"no view 'zz'; the views are v0, v1, v2"):
            call("zz")
    with pytest.raises(FewviewError, match="at least one view"):
        data.drop_views(["v0", "v1", "v2"])


# ------------------------------------------------------------------ looks and imports


def test_empty_data() -> None:
    data = MultiViewData({"a": np.empty((0, 3))}, [], ids=[])
    assert (len(data), data.missing_rate, data.shape) == (0, 0.0, (0, 3))
    assert "0 samples" in repr(data)


def test_import_is_light() -> None:
    code = (
        "import sys, fewview.samples, fewview.files._formats, fewview.samples._joins, "
        "fewview.samples._overview; print([m for m in ('torch', 'sklearn', 'scipy', 'pandas', "
        "'polars', 'pyarrow', 'narwhals', 'matplotlib') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_samples_that_never_saw_a_file_load_no_file_formats() -> None:
    probe = (
        "import sys, fewview\n"
        "fewview.MultiViewData({'a': [[1.0]]}, labels=[0])[[0]].with_labels([1])\n"
        "print(*[m for m in sys.modules if m.startswith('fewview.files.')])"
    )
    run = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert run.stdout.split() == []
