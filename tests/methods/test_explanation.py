"""Reasons add up to the answers, and name what decided."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from fewview import FewviewWarning, MultiViewData, Proto, create
from fewview.datasets import make_few_shot, split_few_shot

NAN = float("nan")
BASE, SUPPORT, QUERY = split_few_shot(make_few_shot(seed=0, missing=0.3), new=4, shot=2, seed=0)
METHODS = ("proto", "ugda:n_anchors=5", "marginal", "ptmap")


@pytest.mark.parametrize("name", METHODS)
def test_contributions_add_up_to_the_answers(name: str) -> None:
    clf = create(name).fit_base(BASE).fit(SUPPORT)
    found, proba = clf.explain(QUERY), clf.predict_proba(QUERY)
    together = found.together if found.together.size else 0.0
    np.testing.assert_allclose(found.contributions.sum(1) + together, found.scores, atol=1e-6)
    shares = found.support_of_views.sum(1) + found.support_of_other_queries
    np.testing.assert_allclose(shares, found.margin, atol=1e-6)
    logs = np.log(proba)
    centred = logs - logs.mean(1, keepdims=True)
    np.testing.assert_allclose(found.scores, centred, atol=1e-4)
    assert (found.contributions[~QUERY.mask] == 0).all()
    assert (found.margin >= 0).all()
    assert found.classes == tuple(clf.classes_.tolist())
    assert (clf.classes_[found.decided] == clf.predict(QUERY)).all()
    single = QUERY.mask.sum(1) == 1
    has = QUERY.mask[single]
    assert (found.decided_without[single][has] == -1).all()


@pytest.mark.parametrize("name", ["proto", "marginal"])
def test_rows_and_frames_say_the_same(name: str) -> None:
    clf = create(name).fit_base(BASE).fit(SUPPORT)
    found = clf.explain(QUERY)
    frame, proba = found.frame(), clf.predict_proba(QUERY)
    assert frame.to_dict("records") == found.rows()
    assert frame["label"].tolist() == clf.predict(QUERY).tolist()
    np.testing.assert_allclose(frame["probability"], proba.max(1), atol=1e-6)
    np.testing.assert_allclose(frame.filter(regex="^from_").sum(axis=1), frame["margin"], atol=1e-6)
    assert ("from_the_other_queries" in frame) == (name == "marginal")
    views = np.array(QUERY.view_names)
    assert frame["views"].tolist() == ["+".join(views[has]) for has in QUERY.mask]
    second = clf.classes_[np.argsort(proba, axis=1)[:, -2]]
    assert (frame["runner_up"] == second).mean() > 0.99


def test_a_view_counts_by_what_the_scores_lose_without_it() -> None:
    """Proto by hand: the score without a view is that of a query that lacks it."""
    clf = Proto().fit_base(BASE).fit(SUPPORT)
    whole = QUERY[QUERY.mask.all(1)]
    found = clf.explain(whole)
    for view in range(whole.n_views):
        mask = whole.mask.copy()
        mask[:, view] = False
        logs = np.log(clf.predict_proba(whole.with_mask(mask)))
        wanted = logs - logs.mean(1, keepdims=True)
        np.testing.assert_allclose(found.without[:, view], wanted, atol=1e-5)
        assert (found.decided_without[:, view] == logs.argmax(1)).all()


@pytest.mark.parametrize("name", ["proto", "marginal", "ugda:n_anchors=5"])
def test_the_telling_view_gets_the_credit(name: str) -> None:
    """One view separates the classes, the other is the same for both."""
    rng = np.random.default_rng(0)
    codes = np.arange(40) % 2
    views = {
        "signal": 5.0 * codes[:, None] + 0.3 * rng.normal(size=(40, 2)),
        "noise": rng.normal(size=(40, 2)),
    }
    data = MultiViewData(views, np.array(["no", "yes"])[codes])
    parts = create(name).fit(data[:10]).explain(data[10:]).support_of_views
    assert np.mean(parts[:, 0] > parts[:, 1]) > 0.9


@pytest.mark.parametrize("name", ["proto", "ptmap", "marginal"])
def test_reasons_and_answers_agree_where_no_view_is_shared(name: str) -> None:
    data = MultiViewData({"a": [[0.0], [9.0], [NAN], [1.0]], "b": [[NAN], [NAN], [5.0], [2.0]]})
    clf, query = create(name).fit(data[:2], ["x", "y"]), data[2:]
    with pytest.warns(FewviewWarning, match="share no view"):
        proba = clf.predict_proba(query)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FewviewWarning)
        found = clf.explain(query, inductive=True)
    assert proba[0].tolist() == [0.5, 0.5]
    assert found.scores[0].tolist() == [0.0, 0.0]
    assert found.support_of_views[0].tolist() == [0.0, 0.0]
    assert found.classes[found.decided[0]] == clf.classes_[proba[0].argmax()] == "x"
    assert found.nearest[0] == ()


def test_the_pull_of_other_queries_is_told_where_it_is_asked_for() -> None:
    clf = create("ptmap").fit_base(BASE).fit(SUPPORT)
    assert not clf.explain(QUERY).together.size
    found = clf.explain(QUERY, inductive=True)
    assert found.together.shape == found.scores.shape
    wanted = np.log(clf.predict_proba(QUERY, inductive=True))
    np.testing.assert_allclose(found.inductive, wanted, atol=1e-5)
    centred = found.scores - found.together
    np.testing.assert_allclose(centred, wanted - wanted.mean(1, keepdims=True), atol=1e-4)


def test_nearest_base_classes_are_the_nearest_by_hand() -> None:
    clf = create("ugda:n_anchors=5").fit_base(BASE).fit(SUPPORT)
    found = clf.explain(QUERY)
    assert {len(row) for row in found.neighbours} == {3}
    complete = int(np.flatnonzero(QUERY.mask.all(1))[0])
    scaling = clf.base.scaling
    scaled, one = scaling.transform(BASE), scaling.transform(QUERY[complete])

    def apart(label: Any) -> float:
        rows = scaled[BASE.labels == label]
        return float(np.mean([
            np.mean((np.nanmean(rows.view(v)[rows.mask[:, k]], axis=0) - one.view(v)[0]) ** 2)
            for k, v in enumerate(BASE.view_names)
        ]))  # fmt: skip

    assert found.neighbours[complete][0] == min(BASE.classes.tolist(), key=apart)
    assert "nearest_base_classes" in found.rows()[0]


def test_nearest_supports_have_their_names_and_distances() -> None:
    views = {"a": [[0.0], [4.0], [9.0]], "b": [[NAN], [NAN], [1.0]]}
    support = MultiViewData(views, ["x", "x", "y"], ids=["one", "two", "three"])
    clf = Proto(scaling="none").fit(support)
    found = clf.explain(MultiViewData({"a": [[5.0], [NAN]], "b": [[3.0], [4.0]]}, ids=["q", "r"]))
    # Over shared views: 1 and 5 over view a alone, the root of (16 + 4) / 2 over both.
    first = [("two", "x", 1.0), ("three", "y", np.sqrt(10)), ("one", "x", 5.0)]
    assert [near[:2] for near in found.nearest[0]] == [near[:2] for near in first]
    np.testing.assert_allclose([n[2] for n in found.nearest[0]], [n[2] for n in first], rtol=1e-6)
    assert found.nearest[1] == (("three", "y", 3.0),)
    assert found.ids == ("q", "r")


def test_reasons_do_not_depend_on_the_order_of_queries() -> None:
    clf = create("marginal").fit_base(BASE).fit(SUPPORT)
    order = np.random.default_rng(0).permutation(len(QUERY))
    one, two = clf.explain(QUERY), clf.explain(QUERY[order])
    np.testing.assert_array_equal(one.contributions[order], two.contributions)
    np.testing.assert_array_equal(one.decided[order], two.decided)


def test_the_picture_has_a_bar_for_every_query_and_view() -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    found = Proto().fit_base(BASE).fit(SUPPORT).explain(QUERY[:5])
    axes = found.plot()
    assert len(axes.get_yticklabels()) == 5
    widths = np.zeros((5, QUERY.n_views))
    for number, bars in enumerate(axes.containers):
        widths[:, number % QUERY.n_views] += [bar.get_width() for bar in bars]
    np.testing.assert_allclose(widths, found.support_of_views, atol=1e-9)
    names = [text.get_text() for text in axes.get_legend().get_texts()]
    assert set(names) == {"margin", *QUERY.view_names}
