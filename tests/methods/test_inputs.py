"""What X may be for every method: arrays, frames, sparse matrices, MuData, NaN cells, new views."""

from __future__ import annotations

import warnings
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch
from torch import Tensor

from fewview import (
    EpisodeBatch,
    FewviewError,
    FewviewWarning,
    Method,
    MultiViewData,
    Proto,
    State,
    Tags,
    TaskSpec,
    create,
)
from fewview.datasets import make_few_shot

NAN = float("nan")
WIDTHS = {"shape": 5, "colour": 8, "sound": 3}
SAMPLES = make_few_shot(10, 20, WIDTHS, separation=3.0, seed=1)
NOVEL = SAMPLES[SAMPLES.codes >= 6]
Task = tuple[MultiViewData, MultiViewData]


# ---------------------------------------------------------------------------- what X may be


def frames(data: MultiViewData, key: bool) -> dict[str, Any]:
    """One frame for each view; with a key without the rows that are missing."""
    out = {}
    for index, (view, block) in enumerate(data.views.items()):
        columns = {f"{view}{c}": block[:, c] for c in range(block.shape[1])}
        rows = np.flatnonzero(data.mask[:, index]) if key else np.arange(len(data))
        if key:
            columns = {"id": np.array([f"s{row:03d}" for row in range(len(data))]), **columns}
        out[view] = pd.DataFrame({name: values[rows] for name, values in columns.items()})
    return out


@pytest.mark.parametrize("library", ["pandas", "polars"])
@pytest.mark.parametrize("key", [False, True])
def test_frames_give_the_answers_of_arrays(task: Task, library: str, key: bool) -> None:
    support, query = task
    assert support.labels is not None
    X, asked = frames(support, key), frames(query, key)
    if library == "polars":
        polars = pytest.importorskip("polars")
        X, asked = ({v: polars.from_pandas(f) for v, f in one.items()} for one in (X, asked))
    labels = support.labels.tolist()
    y = {f"s{row:03d}": label for row, label in enumerate(labels)} if key else labels
    wanted = Proto().fit(support).predict_proba(query)
    assert np.allclose(Proto().fit(X, y).predict_proba(asked), wanted)


@pytest.mark.parametrize("kind", ["csr_array", "coo_matrix", "dok_array"])
def test_sparse_views_give_the_answers_of_dense_ones(kind: str) -> None:
    make, few = getattr(scipy.sparse, kind), NOVEL[::3]
    rng = np.random.default_rng(0)
    blocks = {v: b * (rng.random(b.shape) < 0.5) for v, b in few.views.items()}
    sparse = {view: make(block) for view, block in blocks.items()}
    wanted = Proto().fit(blocks, few.labels).predict_proba(blocks)
    assert np.array_equal(Proto().fit(sparse, few.labels).predict_proba(sparse), wanted)
    one = make(blocks["shape"])
    wanted = Proto().fit(blocks["shape"], few.labels).predict_proba(blocks["shape"])
    assert np.array_equal(Proto().fit(one, few.labels).predict_proba(one), wanted)


def modalities(data: MultiViewData) -> dict[str, SimpleNamespace]:
    """Views as AnnData would have them, one of them sparse; ids are not sorted as text."""
    out = {}
    for index, view in enumerate(data.view_names):
        rows = np.flatnonzero(data.mask[:, index])
        block = np.asarray(data.view(view)[rows])
        out[view] = SimpleNamespace(
            X=scipy.sparse.csr_matrix(block) if view == "shape" else block,
            obs_names=pd.Index([f"cell{row}" for row in rows]),
            var_names=pd.Index([f"{view}{c}" for c in range(block.shape[1])]),
        )
    return out


def test_objects_like_mudata(task: Task) -> None:
    def container(data: MultiViewData) -> SimpleNamespace:
        names = pd.Index([f"cell{row}" for row in range(len(data))])
        obs = pd.DataFrame({"kind": data.labels}, index=names)
        return SimpleNamespace(mod=modalities(data), obs_names=names, obs=obs)

    support, query = task
    wanted = Proto().fit(support).predict_proba(query)
    clf = Proto().fit(container(support), "kind")
    assert np.allclose(clf.predict_proba(container(query)), wanted)
    with pytest.raises(FewviewError, match="no column 'tint'"):
        Proto().fit(container(support), "tint")


def test_mudata_itself(task: Task) -> None:
    mudata, anndata = pytest.importorskip("mudata"), pytest.importorskip("anndata")

    def container(data: MultiViewData) -> Any:
        parts = {}
        for view, part in modalities(data).items():
            obs, var = pd.DataFrame(index=part.obs_names), pd.DataFrame(index=part.var_names)
            parts[view] = anndata.AnnData(part.X, obs=obs, var=var)
        return mudata.MuData(parts)

    support, query = task
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        given, asked = container(support), container(query)
    rows, place = ([int(name[4:]) for name in one.obs_names] for one in (given, asked))
    assert support.labels is not None
    clf = Proto().fit(given, support.labels[rows])
    wanted = Proto().fit(support).predict_proba(query)[place]
    assert np.allclose(clf.predict_proba(asked), wanted, atol=1e-6)


def test_one_query_as_dicts_series_and_arrays() -> None:
    leaf = pd.DataFrame({"tint": ["dry", "old", "dry", "old"], "size": [4.0, 5.0, 4.2, 5.1]})
    stem = pd.DataFrame({"long": [12.0, 15.0, 12.1, 14.9]})
    clf = Proto().fit({"leaf": leaf, "stem": stem}, ["e", "f", "e", "f"])
    rows = {"leaf": {"size": 4.1, "tint": "dry"}, "stem": {"long": 12.2}}
    wanted = clf.predict_proba({view: pd.DataFrame([row]) for view, row in rows.items()})
    assert wanted[0, 0] > 0.5
    assert np.array_equal(clf.predict_proba(rows), wanted)
    assert np.array_equal(clf.predict_proba({v: pd.Series(r) for v, r in rows.items()}), wanted)
    lacking = clf.predict_proba({"leaf": None, "stem": np.array([12.2])})
    assert np.array_equal(lacking, clf.predict_proba({"stem": rows["stem"]}))


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        ([[1.0], [2.0]], ["a"], "1 labels for 2 samples"),
        ([[1.0], [2.0]], "ab", "the text 'ab'"),
        ([[1.0], [2.0]], [0.5, 1.7], "Unknown label type: continuous"),
        ([[1.0], [NAN]], ["a", "b"], "contains NaN"),
        ([[1.0], ["x"]], ["a", "b"], "numeric"),
        ([[1.0], [2.0]], ["a", "a"], "of one class only"),
        ({"v": [[1.0], [2.0]]}, ["a", None], "row 1 has no label"),
        ({"v": [[1.0], [np.inf]]}, ["a", "b"], "infinite"),
        ({"v": [[1.0], [2.0]], "w": [[1.0]]}, ["a", "b"], "different numbers of rows"),
        ({"v": pd.DataFrame({"x": [3.0, 1.0]}, index=[3, 1]),
          "w": pd.DataFrame({"z": [3.0]}, index=[3])}, ["a", "b"], "no order to follow"),
    ],
)  # fmt: skip
def test_bad_input_is_named(X: Any, y: Any, message: str) -> None:
    with pytest.raises(FewviewError, match=message):
        Proto().fit(X, y)


def test_columns_are_matched_by_name() -> None:
    clf = Proto(scaling="none").fit(
        pd.DataFrame({"a": [0.0, 9.0], "b": [1.0, 5.0]}), ["cat", "dog"]
    )
    assert clf.feature_names_in_.tolist() == ["a", "b"]
    assert clf.predict(pd.DataFrame({"b": [5.0], "a": [8.0]})).tolist() == ["dog"]
    with pytest.warns(FewviewWarning, match=r"1 learnt column is not there.*'b'.*left out \('c'\)"):
        assert clf.predict(pd.DataFrame({"a": [1.0], "c": [2.0]})).tolist() == ["cat"]


def test_views_may_come_in_any_order_and_be_absent() -> None:
    clf = Proto().fit(NOVEL[::5])
    assert (
        clf.predict(NOVEL.select_views(["sound", "colour", "shape"])) == clf.predict(NOVEL)
    ).all()
    assert clf.predict(NOVEL.select_views(["shape"])).shape == (80,)


def test_answers_about_frames_come_in_the_order_of_identifiers() -> None:
    """Every query lies on a support, so that the right answer is known for every identifier."""
    clf = Proto(scaling="none").fit({"a": [[0.0], [9.0]], "b": [[0.0], [9.0]]}, ["low", "high"])
    asked = {
        "a": pd.DataFrame({"id": ["z", "x"], "value": [9.0, 0.0]}),
        "b": pd.DataFrame({"id": ["y", "x"], "value": [9.0, 0.0]}),
    }
    ids = MultiViewData.from_frames(asked).ids
    assert ids is not None
    wanted = {"x": "low", "y": "high", "z": "high"}
    assert clf.predict(asked).tolist() == [wanted[name] for name in ids]


# ---------------------------------------------------------------------------- NaN cells


@pytest.mark.parametrize("name", ["proto", "ptmap", "ugda"])
def test_a_nan_cell_counts_as_the_mean_of_the_base_set(name: str) -> None:
    rng = np.random.default_rng(0)
    base = MultiViewData({"a": rng.normal(5, 2, (40, 3))}, np.repeat([0, 1, 2, 3], 10))
    mean = base.view("a").mean(axis=0)
    clf = create(name, dtype="float64").fit_base(base)
    clf.fit({"a": [[1.0, 2.0, 3.0], [9.0, 8.0, 7.0]]}, ["x", "y"])
    found = clf.predict_proba({"a": [[1.0, NAN, 4.0], [8.0, 9.0, NAN]]})
    wanted = clf.predict_proba({"a": [[1.0, mean[1], 4.0], [8.0, 9.0, mean[2]]]})
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5)


class Cells(Method):
    """Says how many cells of a query are NaN."""

    tags = Tags(handles_missing=True, handles_nan=True)

    def learn(self, base: MultiViewData, task: TaskSpec, seed: int) -> State:
        assert np.isnan(base.view("a")).any()
        return State()

    def scores(self, batch: EpisodeBatch, state: State) -> Tensor:
        count = batch.query[0].isnan().sum(-1, keepdim=True).to(batch.dtype)
        assert batch.has_nan == bool(count.any())
        return torch.cat([count, torch.zeros_like(count)], dim=-1)


def test_a_method_may_see_which_cells_are_nan() -> None:
    base = MultiViewData({"a": [[1.0, NAN], [2.0, 3.0], [5.0, 1.0], [4.0, 4.0]]}, list("ppqq"))
    clf = Cells().fit_base(base).fit({"a": [[1.0, 2.0], [3.0, 4.0]]}, ["x", "y"])
    odds = np.log(clf.predict_proba({"a": [[NAN, 1.0], [1.0, 1.0]]}))
    # Neither class is more probable for its number.
    assert np.abs(odds[:, 0] - odds[:, 1]).tolist() == pytest.approx([1.0, 0.0])


# ---------------------------------------------------------------------------- views without a base


@pytest.fixture
def sensor() -> tuple[MultiViewData, MultiViewData, MultiViewData]:
    """Base classes with a view of noise, new ones with a sensor that tells them apart."""
    rng = np.random.default_rng(0)
    base = MultiViewData({"a": rng.normal(size=(60, 3))}, np.repeat(list("pqrstu"), 10))
    labels = np.repeat(["x", "y"], 20)
    place = 100 + 10 * (labels == "y")[:, None] + rng.normal(size=(40, 2))
    new = MultiViewData({"a": rng.normal(size=(40, 3)), "sensor": place}, labels)
    keep = np.arange(40) % 20 < 3
    return base, new[keep], new[~keep]


@pytest.mark.parametrize(
    "name", ["proto", "match", "partial-nn", "ptmap", "bd-cspn", "tim-adm", "marginal"]
)
def test_a_view_that_base_classes_lack_is_used(name: str, sensor: Any) -> None:
    base, support, query = sensor
    clf = create(name).fit_base(base)
    with pytest.warns(FewviewWarning, match="view 'sensor' is not in the base set; it is used"):
        clf.fit(support)
    without = create(name).fit_base(base).fit(support.drop_views(["sensor"]))
    assert clf.score(query) > 0.9
    assert without.score(query.drop_views(["sensor"])) < 0.75
    assert clf.predict(query.drop_views(["sensor"])[:3]).shape == (3,)  # a query may lack it


@pytest.mark.parametrize("name", ["ugda", "ptmap+ugda"])
def test_or_it_is_left_out_and_told(name: str, sensor: Any) -> None:
    base, support, query = sensor
    clf = create(name).fit_base(base)
    with pytest.warns(FewviewWarning, match="support has a view 'sensor' .*it is left out"):
        clf.fit(support)
    with pytest.warns(FewviewWarning, match="query has a view 'sensor' .*it is left out"):
        found = clf.predict_proba(query)
    known = create(name).fit_base(base).fit(support.drop_views(["sensor"]))
    assert np.array_equal(found, known.predict_proba(query.drop_views(["sensor"])))
    with pytest.raises(FewviewError, match="query has a view 'sensor'"):
        known.predict(query.select_views(["sensor"]))
    with pytest.raises(FewviewError, match=r"'sensor'.*row 0 no other; drop these samples"):
        known.predict(query.with_mask([[row > 0, True] for row in range(len(query))]))
