"""The open world: thresholds from base classes, and queries that look like none of the classes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal
from sklearn.metrics import roc_auc_score

from fewview import FewviewError, FewviewWarning, MultiViewData, TaskSpec, load_model
from fewview.engine._checks import synthetic_data
from fewview.engine._method import Method
from fewview.engine.open_world._rejection import LEVELS, Thresholds, quantiles
from fewview.methods.marginal import Marginal
from fewview.methods.proto import Proto
from fewview.methods.ugda import UGDA
from fewview.numerics._distances import nearest_support

WIDTHS = {"a": 6, "b": 4, "c": 8}


def world(seed: int, n_classes: int, per_class: int) -> MultiViewData:
    """Classes from one population, so that base classes tell what is usual for new ones."""
    rng = np.random.default_rng(seed)
    mixing = {view: np.random.default_rng(k).normal(size=(5, w)) for k, (view, w) in
              enumerate(WIDTHS.items())}  # fmt: skip
    centres = 2.0 * rng.normal(size=(n_classes, 5))
    codes = np.repeat(np.arange(n_classes), per_class)
    hidden = centres[codes] + 0.6 * rng.normal(size=(len(codes), 5))
    views = {
        view: hidden @ mixing[view] + 0.5 * rng.normal(size=(len(codes), width))
        for view, width in WIDTHS.items()
    }
    mask = rng.random((len(codes), 3)) > 0.25
    mask[~mask.any(1), 0] = True
    return MultiViewData(views, [f"{seed}-{code}" for code in codes], mask=mask)


BASE = world(1, 24, 20)
METHODS: list[Method] = [Marginal(), Proto(), UGDA(n_anchors=3)]


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_known_queries_are_rejected_as_often_as_wanted(method: Method) -> None:
    method = method.fit_base(BASE)
    rates: dict[float, list[float]] = {0.05: [], 0.2: []}
    areas, caught = [], []
    for seed in range(2, 8):
        data = world(seed, 8, 20)
        known = data[data.codes < 4]
        rank = np.array([np.sum(known.codes[:row] == code) for row, code in enumerate(known.codes)])
        support, query = known[rank < 2], known[rank >= 2]
        strangers = data[data.codes >= 4]
        clf = method.fit(support)
        for rate, found in rates.items():
            found.append(clf.rejected(query, rate).mean())
        everyone = MultiViewData.concat([query, strangers])
        batch = clf.task_batch(everyone)
        fit = clf.typicality(batch, clf.prepared_.state)[0].amax(-1).numpy()
        truth = np.repeat([0, 1], [len(query), len(strangers)])
        areas.append(roc_auc_score(truth, -fit))
        caught.append(clf.rejected(strangers, 0.2).mean())
    assert np.mean(caught) > np.mean(rates[0.2]) + 0.3
    assert np.mean(rates[0.05]) < 0.08
    assert np.mean(rates[0.2]) < 0.25
    assert np.mean(rates[0.2]) > np.mean(rates[0.05])
    assert np.mean(areas) > 0.75


def test_predict_with_a_label_for_the_unknown() -> None:
    clf = Proto().fit_base(BASE).fit(world(2, 3, 3))
    far = {view: np.full((2, width), 50.0) for view, width in WIDTHS.items()}
    assert clf.predict(far, reject=0.05).tolist() == ["unknown", "unknown"]
    assert clf.predict(far, reject=0.05, reject_label=None).tolist() == ["unknown"] * 2
    assert clf.predict(far, reject=0.05, reject_label="other").tolist() == ["other", "other"]
    assert set(clf.predict(far).tolist()) <= set(clf.classes_.tolist())
    with pytest.raises(FewviewError, match="is a class itself"):
        clf.predict(far, reject=0.05, reject_label=clf.classes_[0])
    numbers = world(2, 3, 3)
    clf.fit(numbers.with_labels(numbers.codes))
    mixed = MultiViewData.concat([numbers[4:5].with_labels(None), MultiViewData(far)])
    answer = clf.predict(mixed, reject=0.05)
    assert answer.dtype.kind == "i"
    assert answer.tolist() == [1, -1, -1]


@pytest.mark.parametrize("rate", [0, 1, -0.1, 1.5, "few", True, float("nan")])
def test_rates_are_checked(rate: Any) -> None:
    clf = Proto().fit_base(BASE).fit(world(2, 3, 3))
    with pytest.raises(FewviewError, match="false-reject rate"):
        clf.predict(world(3, 2, 2), reject=rate)


def test_base_classes_are_needed() -> None:
    support = world(2, 3, 3)
    with pytest.raises(FewviewError, match="set on base classes and there are none"):
        Proto().fit(support).predict(support, reject=0.05)
    few = BASE[BASE.codes < 3]
    with pytest.raises(FewviewError, match=r"at least 4 base classes.*this model has 3"):
        Proto().fit_base(few).fit(support).predict(support, reject=0.05)
    first = np.concatenate([np.flatnonzero(BASE.codes == code)[:3] for code in range(6)])
    with pytest.raises(FewviewError, match=r"2 base classes with 4 samples or more; .* has 0"):
        Proto().fit_base(BASE[first]).fit(support).predict(support, reject=0.05)
    # A base set in parts keeps some samples for this; the smallest fits are single samples.
    streamed, whole = (Proto().partial_fit_base(BASE), Proto().fit_base(BASE))
    both = [
        clf.fit(support).thresholds().quantiles[..., LEVELS >= 0.05] for clf in (streamed, whole)
    ]
    assert np.abs(both[0] - both[1]).mean() < 0.1 * np.abs(both[1]).mean()
    before = streamed.predict(support, reject=0.05)
    # What was learnt stays; where nothing was, there is no way without samples.
    streamed.base = streamed.base.without_rows()
    assert (streamed.predict(support, reject=0.05) == before).all()
    streamed.base = replace(streamed.base, thresholds=None)
    with pytest.raises(FewviewError, match="rows are not here"):
        streamed.predict(support, reject=0.05)


def test_shares_are_those_of_quantiles() -> None:
    """Tables of a normal distribution, moved by 5 for two views: shares are its own quantiles."""
    values = np.random.default_rng(0).normal(size=5000)
    table = np.stack([np.quantile(values + shift, LEVELS) for shift in (0.0, 5.0)])
    limits = Thresholds((1,), table[None, None, None])
    asked = np.quantile(values, 0.05) + np.array([0.0, 5.0])
    shots, views = np.array([1, 9]), np.array([1, 2])
    np.testing.assert_allclose(limits.share_below(asked, shots, views), 0.05, atol=1e-3)
    # Of two classes, and of supports without gaps, there are tables of their own.
    whole = Thresholds(
        (1,), np.stack([table, table + 1, table + 2, table + 3]).reshape(2, 1, 2, 2, -1)
    )
    for way, gaps, shift in (
        (1, True, 0),
        (2, True, 1),
        (7, True, 1),
        (1, False, 2),
        (2, False, 3),
    ):
        found = whole.share_below(asked + shift, shots, views, way, not gaps)
        np.testing.assert_allclose(found, 0.05, atol=1e-3)


def test_supports_without_gaps_are_rejected_as_often_as_promised() -> None:
    """Tasks with gaps were promised: distances to supports that have all views are larger.

    Each of 10 other classes in turn; views of 8 normal numbers around a class mean.
    """
    rng = np.random.default_rng(1)
    codes = np.repeat(np.arange(20), 30)
    views = {
        name: 2 * rng.normal(size=(20, 8))[codes] + rng.normal(size=(600, 8)) for name in "abc"
    }
    data = MultiViewData(views, codes)
    clf = Proto().fit_base(data[codes < 10], task=TaskSpec(way=2, eta=0.5))
    shares = []
    for first in range(10, 20, 2):
        pair = data[(codes == first) | (codes == first + 1)]
        few = np.arange(len(pair)) % 30 < 3
        clf.fit(pair[few])
        shares.append(clf.fit_shares(pair[~few].with_labels(None)))
    assert np.mean(np.concatenate(shares) < 0.2) == pytest.approx(0.2, abs=0.06)


def test_marginal_compares_with_a_class_never_seen() -> None:
    """By hand: the density of a query given its class's support, over that of any sample."""
    base, novel = synthetic_data()
    clf = Marginal(dtype="float64", rank=None).fit_base(base)
    support, query = novel[::20], novel[1:2]
    clf.fit(support)
    state = clf.prepared_.state
    batch = clf.task_batch(query)
    rows = [
        state.projection.apply(part, mask)[0].numpy()
        for part, mask in ((batch.support, batch.support_mask), (batch.query, batch.query_mask))
    ]
    s, b, mean = (x.numpy() for x in (state.model.within, state.model.between, state.model.mean))
    unknown = multivariate_normal.logpdf(rows[1][0], mean, s + b)
    found = clf.typicality(batch, state)[0, 0].numpy()
    for code, one in zip(batch.support_labels[0].tolist(), rows[0], strict=True):
        gain = b @ np.linalg.inv(s + b)
        centre = mean + gain @ (one - mean)
        spread = s + b - gain @ b
        wanted = multivariate_normal.logpdf(rows[1][0], centre, spread) - unknown
        assert found[code] == pytest.approx(wanted, rel=1e-6)


def test_nearest_support_by_hand() -> None:
    nan = float("nan")
    clf = Proto(scaling="none").fit(
        {"a": [[0.0], [4.0], [9.0]], "b": [[nan], [nan], [1.0]]}, ["x", "x", "y"]
    )
    query = MultiViewData({"a": [[5.0], [nan]], "b": [[3.0], [4.0]]})
    found = nearest_support(clf.task_batch(query))[0]
    # First: to x over view a alone min(25, 1); to y the mean over both views of 16 and 4.
    # Second shares no view with x: its distance to y, 9, stands in.
    assert torch.allclose(found, torch.tensor([[-1.0, -10.0], [-9.0, -9.0]]))


@pytest.mark.filterwarnings("ignore::fewview.FewviewWarning")
def test_what_is_learnt_again_can_reject_too(tmp_path: Path) -> None:
    """A changed parameter is learnt again by `fit`, thresholds with it."""
    path, again = tmp_path / "a.model", tmp_path / "b.model"
    support, query = world(2, 3, 2), world(2, 3, 9)
    fresh = Proto(scaling="standard").fit_base(BASE).fit(support)
    changed = Proto().fit_base(BASE).set_params(scaling="standard").fit(support)
    changed.save(path)
    Proto().fit_base(BASE).save(again, base_rows=True)
    loaded = load_model(again).set_params(scaling="standard").fit(support)
    loaded.save(again)
    wanted = fresh.rejected(query, 0.2)
    assert wanted.any()
    for clf in (changed, loaded, load_model(path), load_model(again)):
        assert (clf.rejected(query, 0.2) == wanted).all()


def test_a_model_that_will_not_reject_says_so(tmp_path: Path) -> None:
    clf = Proto(base=BASE).fit(world(2, 3, 2))
    with pytest.warns(FewviewWarning, match=r"will not reject .* call fit_base\(base\) before fit"):
        clf.save(tmp_path / "a.model")


def test_a_view_that_never_varies_within_classes_does_not_decide_alone() -> None:
    """Categories are often the same in all samples of a class; a new class need not be like that.

    With no variance but a millionth, fits of such classes were a million below any other.
    """
    rng = np.random.default_rng(0)
    codes = np.repeat(np.arange(12), 12)
    views = {"a": codes[:, None] % 5 + 0.5 * rng.normal(size=(144, 4)),
             "flag": (codes[:, None] % 2 + np.zeros((144, 1)))}  # fmt: skip
    clf = Marginal().fit_base(MultiViewData(views, [f"b{code}" for code in codes]))
    labels = np.repeat(["x", "y"], 10)
    new = MultiViewData(
        {"a": np.where(labels == "x", 0, 3)[:, None] + 0.5 * rng.normal(size=(20, 4)),
         "flag": rng.integers(2, size=(20, 1)).astype(float)}, labels)  # fmt: skip
    few = np.arange(20) % 10 < 3
    clf.fit(new[few])
    fit = clf.typicality(clf.task_batch(new[~few]), clf.prepared_.state)[0].amax(-1)
    assert float(fit.min()) > -200
    assert clf.score(new[~few]) > 0.7


def test_quantiles_of_rising_values_are_those_of_numpy() -> None:
    rng = np.random.default_rng(0)
    for size in (1, 2, 3, 10, 257, 1000):
        values = np.sort(rng.normal(size=size))
        np.testing.assert_array_equal(quantiles(values, LEVELS), np.quantile(values, LEVELS))
