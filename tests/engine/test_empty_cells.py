"""Tables with words and empty cells through methods, models and files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from fewview import FewviewWarning, MultiViewData, create, load_model
from fewview.engine._contract import Contract
from fewview.engine._method import Method
from fewview.engine._state import State, Tags
from fewview.numerics._batch import EpisodeBatch

NAN = float("nan")


def plants(count: int, classes: list[str], seed: int) -> tuple[dict[str, pd.DataFrame], list[str]]:
    """Tables of words and numbers that tell classes apart."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(classes, count)
    place = np.array([sorted("abcdef").index(label) for label in labels])
    leaf = np.array(["dry", "wet", "old", "new", "hot", "raw"])[place]
    frame = pd.DataFrame({"leaf": leaf, "size": place + 0.1 * rng.normal(size=len(labels))})
    stem = pd.DataFrame({"long": 3.0 * place + rng.normal(size=len(labels)), "cut": "no"})
    frame.loc[rng.random(len(labels)) < 0.2, "size"] = NAN
    frame.loc[rng.random(len(labels)) < 0.2, "leaf"] = None
    frame.loc[frame.isna().all(axis=1), "size"] = 1.0
    return {"leaf": frame, "stem": stem}, labels.tolist()


@pytest.mark.parametrize("name", ["marginal", "proto", "ugda", "concat-logistic"])
def test_a_model_carries_what_it_needs_to_read_a_table(name: str, tmp_path: Path) -> None:
    frames, labels = plants(20, ["a", "b", "c", "d"], 0)
    clf = create(name).fit_base(MultiViewData(frames, labels))
    clf.save(tmp_path / "a.model", base_rows=True)
    again = load_model(tmp_path / "a.model")
    support, classes = plants(3, ["e", "f"], 1)
    query, _ = plants(5, ["e", "f"], 2)
    with pytest.warns(FewviewWarning, match=r"support: view 'leaf'|view 'leaf': .*leaf: 'hot'"):
        clf.fit(support, classes)
    with pytest.warns(FewviewWarning):
        again.fit(support, classes)
    with pytest.warns(FewviewWarning):
        assert np.array_equal(again.predict_proba(query), clf.predict_proba(query))
    # One query with one empty cell, columns in another order, and one column less.
    row = {"leaf": pd.DataFrame({"size": [NAN], "leaf": ["raw"]})}
    with pytest.warns(FewviewWarning):
        one = again.predict_proba(row)
    assert one.shape == (1, 2)
    assert np.isfinite(one).all()
    again.save(tmp_path / "b.model", base_rows=True)
    with pytest.warns(FewviewWarning):
        assert np.array_equal(load_model(tmp_path / "b.model").predict_proba(row), one)


def test_an_empty_cell_counts_as_the_mean_of_the_base_set() -> None:
    rng = np.random.default_rng(0)
    base = MultiViewData({"a": rng.normal(5, 2, (40, 3))}, np.repeat([0, 1, 2, 3], 10))
    mean = base.view("a").mean(axis=0)
    for name in ("ugda", "proto", "ptmap"):
        clf = (
            create(name, dtype="float64")
            .fit_base(base)
            .fit({"a": [[1.0, 2.0, 3.0], [9.0, 8.0, 7.0]]}, ["x", "y"])
        )
        empty = {"a": [[1.0, NAN, 4.0], [8.0, 9.0, NAN]]}
        filled = {"a": [[1.0, mean[1], 4.0], [8.0, 9.0, mean[2]]]}
        np.testing.assert_allclose(
            clf.predict_proba(empty), clf.predict_proba(filled), rtol=0, atol=1e-5
        )


class Cells(Method):
    """Says which cells of queries it saw empty."""

    tags = Tags(handles_missing=True, reads_empty_cells=True)

    def prepare(self, base: MultiViewData, task: object, seed: int) -> State:
        assert np.isnan(base.view("a")).any()
        return State()

    def scores(self, batch: EpisodeBatch, state: State) -> torch.Tensor:
        empty = batch.query[0].isnan().sum(-1, keepdim=True).to(batch.query[0].dtype)
        return torch.cat([empty, torch.zeros_like(empty)], dim=-1)


def test_a_method_may_see_which_cells_are_empty() -> None:
    base = MultiViewData({"a": [[1.0, NAN], [2.0, 3.0], [5.0, 1.0], [4.0, 4.0]]}, list("ppqq"))
    clf = Cells().fit_base(base).fit({"a": [[1.0, 2.0], [3.0, 4.0]]}, ["x", "y"])
    found = clf.query_scores({"a": [[NAN, 1.0], [1.0, 1.0]]})
    assert found[:, 0].tolist() == [1.0, 0.0]
    assert not Contract.tags.reads_empty_cells


def test_one_query_as_dicts_arrays_or_series() -> None:
    frames, labels = plants(20, ["a", "b", "c", "d"], 0)
    clf = create("proto").fit_base(MultiViewData(frames, labels))
    support = {
        "leaf": pd.DataFrame({"leaf": ["dry", "old"], "size": [4.0, 5.0]}),
        "stem": pd.DataFrame({"long": [12.0, 15.0], "cut": ["no", "no"]}),
    }
    clf.fit(support, ["e", "f"])
    rows = {"leaf": {"size": 4.1, "leaf": "dry"}, "stem": {"long": 12.2, "cut": "no"}}
    wanted = clf.predict_proba({view: pd.DataFrame([row]) for view, row in rows.items()})
    assert wanted[0, 0] > 0.5
    assert np.array_equal(clf.predict_proba(rows), wanted)
    series = {view: pd.Series(row) for view, row in rows.items()}
    assert np.array_equal(clf.predict_proba(series), wanted)
    numbers = MultiViewData({"leaf": pd.DataFrame([rows["leaf"]])}, like=clf.prepared_.reference)
    arrays = {"leaf": numbers.view("leaf")[0], "stem": None}
    assert np.array_equal(clf.predict_proba(arrays), clf.predict_proba({"leaf": rows["leaf"]}))
    assert clf.predictions({"leaf": rows["leaf"], "stem": None})[0]["views"] == "leaf"


def test_predictions_come_with_ids() -> None:
    rng = np.random.default_rng(0)
    base = MultiViewData({"a": rng.normal(size=(60, 3))}, np.repeat(list("pqrstu"), 10))
    query = MultiViewData({"a": rng.normal(size=(4, 3))}, ids=["k", "l", "m", "n"])
    clf = create("marginal").fit_base(base).fit({"a": rng.normal(size=(4, 3))}, list("xxyy"))
    rows = clf.predictions(query, reject=0.05)
    assert [row["id"] for row in rows] == ["k", "l", "m", "n"]
    proba = clf.predict_proba(query)
    for row, (one, two) in zip(rows, proba, strict=True):
        assert (row["p_x"], row["p_y"]) == (round(one, 6), round(two, 6))
        assert row["label"] in ("unknown" if row["rejected"] else "x" if one > two else "y")
        assert "probability_alone" in row
