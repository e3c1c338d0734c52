"""Predictions as a table: the columns say what the method says."""

from __future__ import annotations

import numpy as np
import pytest

from fewview import FewviewError, MultiViewData, Proto, create
from fewview.datasets import make_few_shot
from fewview.evaluate._predictions import predict_table

SAMPLES = make_few_shot(10, 20, {"a": 5, "b": 8}, separation=3.0, seed=1)
BASE, NOVEL = SAMPLES[SAMPLES.codes < 6], SAMPLES[SAMPLES.codes >= 6]


def queries() -> MultiViewData:
    """Thirty queries with ids; every third lacks a view."""
    mask = np.ones((30, 2), dtype=bool)
    mask[::3, 0] = False
    blocks = {view: block[1:31] for view, block in NOVEL.views.items()}
    return MultiViewData(blocks, mask=mask, ids=[f"s{row}" for row in range(30)])


def test_columns_are_what_the_method_says() -> None:
    clf, query = create("marginal").fit_base(BASE).fit(NOVEL[31::5]), queries()
    found = predict_table(clf, query, reject=0.1, coverage=0.8, inductive=True)
    proba, best = clf.predict_proba(query), clf.predict_proba(query).argmax(1)
    assert query.ids is not None
    assert found["id"] == query.ids.tolist()
    assert found["views"] == ["b" if row % 3 == 0 else "a+b" for row in range(30)]
    for column, label in enumerate(clf.classes_):
        assert found[f"p_{label}"] == proba[:, column].round(6).tolist()
    assert found["label"] == clf.predict(query, reject=0.1).tolist()
    assert found["rejected"] == (clf.p_values(query) < 0.1).tolist()
    assert found["fit"] == pytest.approx(clf.p_values(query), abs=1e-4)
    single = clf.predict_proba(query, inductive=True)
    assert found["probability_alone"] == pytest.approx(single[np.arange(30), best], abs=1e-6)
    for row, inside in enumerate(clf.predict_set(query, 0.8)):
        order = np.argsort(-proba[row], kind="stable")
        assert found["set"][row] == "|".join(clf.classes_[order[inside[order]]])


def test_every_query_by_itself() -> None:
    clf = create("ptmap").fit_base(BASE).fit(NOVEL[::5])
    found = predict_table(clf, NOVEL, transductive=False)
    proba = clf.predict_proba(NOVEL, inductive=True)
    assert found["label"] == clf.classes_[proba.argmax(1)].tolist()
    assert "probability_alone" not in found


def test_without_ids_rows_are_numbered_and_labels_are_not_looked_at() -> None:
    clf = Proto().fit({"a": [[0.0], [9.0]]}, ["cat", "dog"])
    found = predict_table(clf, MultiViewData({"a": [[8.0], [1.0]]}, ["x", "y"]))
    assert found == {
        "id": [0, 1], "label": ["dog", "cat"], "p_cat": found["p_cat"], "p_dog": found["p_dog"],
        "views": ["a", "a"], "rejected": [False, False],
    }  # fmt: skip
    with pytest.raises(FewviewError, match="reject"):
        predict_table(clf, {"a": [[8.0]]}, reject=1.5)
