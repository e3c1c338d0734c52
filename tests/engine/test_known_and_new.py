"""Known and new classes together: one probability over both, calibrated between the halves."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fewview import FewviewError, MultiViewData, create, load_model
from fewview.engine.open_world._rejection import LEVELS, honest_quantiles

WIDTHS = {"a": 6, "b": 4, "c": 8}


def world(seed: int, n_classes: int, per_class: int, gaps: float = 0.2) -> MultiViewData:
    """Classes of one population; other draws of the same classes for the same seed."""
    rng = np.random.default_rng(seed)
    centres = 2.0 * rng.normal(size=(n_classes, 5))
    codes = np.repeat(np.arange(n_classes), per_class)
    hidden = centres[codes] + 0.6 * rng.normal(size=(len(codes), 5))
    views = {}
    for k, (view, width) in enumerate(WIDTHS.items()):
        mixing = np.random.default_rng(k).normal(size=(5, width))
        views[view] = hidden @ mixing + 0.5 * rng.normal(size=(len(codes), width))
    mask = rng.random((len(codes), 3)) > gaps
    mask[~mask.any(1), 0] = True
    return MultiViewData(views, [f"{seed}-{code}" for code in codes], mask=mask)


EVERYONE = world(1, 16, 30)
ASKED = np.arange(len(EVERYONE)) % 30 >= 20
BASE, OLD = EVERYONE[~ASKED], EVERYONE[ASKED]


def halves(seed: int) -> tuple[MultiViewData, MultiViewData]:
    """Supports of new classes, and queries of these."""
    new = world(seed, 4, 40)
    rank = np.arange(len(new)) % 40
    return new[rank < 3], new[rank >= 3]


@pytest.mark.parametrize("name", ["marginal", "proto"])
def test_both_halves_are_told_apart_and_probabilities_are_honest(name: str) -> None:
    method = create(name).fit_base(BASE)
    right, told, beside, sure, shares, found = [], [], [], [], [], []
    for seed in range(2, 6):
        support, query = halves(seed)
        clf = method.fit(support, classes="all")
        assert clf.classes_.tolist() == [*support.classes.tolist(), *BASE.classes.tolist()]
        for half in (OLD, query):
            proba = clf.predict_proba(half)
            np.testing.assert_allclose(proba.sum(1), 1, atol=1e-9)
            assert proba.shape == (len(half), 20)
            assert (clf.predict(half) == clf.classes_[proba.argmax(1)]).all()
            right.append(np.mean(clf.predict(half) == half.labels))
            if half is query:
                beside.append(right[-1])
            sure.append(proba.max(1).mean())
            found.append(np.mean((proba[:, :4].sum(1) > 0.5) == (half is query)))
            shares.append(proba[:, :4].sum(1).mean())
        told.append(method.fit(support).score(query))
    assert np.mean(found) > 0.85
    assert np.mean(beside) > np.mean(told) - 0.15  # who is told that queries are new
    assert abs(np.mean(sure) - np.mean(right)) < 0.1
    assert abs(np.mean(shares) - 0.5) < 0.08  # half of the queries are new


def test_new_classes_keep_their_digits_and_files_keep_known_ones(tmp_path: Path) -> None:
    support, query = halves(2)
    clf = create("marginal").fit_base(BASE)
    clf.save(tmp_path / "base.model")
    before = clf.fit(support).predict_proba(query)
    everyone = MultiViewData.concat([query, OLD])
    proba = clf.fit(support, classes="all").predict_proba(everyone)
    again = load_model(tmp_path / "base.model").fit(support, classes="all")
    assert np.array_equal(again.predict_proba(everyone), proba)
    assert np.array_equal(clf.fit(support).predict_proba(query), before)
    clf.fit(support, classes="all").save(tmp_path / "whole.model")
    whole = load_model(tmp_path / "whole.model")
    assert whole.classes_.tolist() == again.classes_.tolist()
    assert np.array_equal(whole.predict_proba(everyone), proba)
    rows = whole.predictions(everyone[:2], reject=0.05)
    assert [key for key in rows[0] if key.startswith("p_")] == [f"p_{c}" for c in whole.classes_]


def test_what_is_neither_is_rejected() -> None:
    method = create("marginal").fit_base(BASE)
    strangers = world(9, 4, 20)
    shares: dict[str, list[Any]] = {"new": [], "known": [], "neither": []}
    for seed in range(2, 10):
        support, query = halves(seed)
        clf = method.fit(support, classes="all")
        for half, data in zip(shares, (query, OLD, strangers), strict=True):
            shares[half].append(clf.fit_shares(data))
    for rate in (0.05, 0.2):
        found = {half: np.mean(np.concatenate(parts) < rate) for half, parts in shares.items()}
        assert max(found["new"], found["known"]) <= rate + 0.02
        assert found["neither"] > max(found["new"], found["known"]) + 0.2
    far = {view: np.full((1, width), 60.0) for view, width in WIDTHS.items()}
    assert clf.predict(far, reject=0.01).tolist() == ["unknown"]


def test_labels_of_other_kinds_and_wrong_wishes() -> None:
    base = BASE.with_labels(np.unique(BASE.labels, return_inverse=True)[1])
    support, query = halves(2)
    clf = create("proto").fit_base(base).fit(support, classes="all")
    assert clf.classes_.dtype == object
    assert set(clf.predict(MultiViewData.concat([query, OLD])).tolist()) & set(range(16))
    with pytest.raises(FewviewError, match="classes is 'both'"):
        clf.fit(support, classes="both")
    with pytest.raises(FewviewError, match="fit_base with labelled"):
        create("proto").fit(support, classes="all")
    few: Any = base[np.isin(base.labels, [0, 1])]
    with pytest.raises(FewviewError, match="at least 4 base classes"):
        create("proto").fit_base(few).fit(support, classes="all")


def test_levels_hold_for_a_class_that_was_left_out() -> None:
    """With few classes that differ, plain quantiles promise too little; these keep their word."""
    rng = np.random.default_rng(0)
    honest, plain = [], []
    for _ in range(300):
        centres = rng.normal(size=6)
        values = (centres[:, None] + rng.normal(size=(6, 200))).reshape(6, 200)
        label = np.repeat(np.arange(5), 200)
        limits = honest_quantiles(values[:5].reshape(-1), label)
        for rate in (0.05, 0.2):
            honest.append(np.mean(values[5] < np.interp(rate, LEVELS, limits)) - rate)
            plain.append(np.mean(values[5] < np.quantile(values[:5], rate)) - rate)
    assert abs(np.mean(honest)) < 0.02
    assert np.mean(plain) > 0.02


def test_one_view_is_enough_to_tell_halves_apart() -> None:
    """The number of views is then the same for all queries, and says nothing."""
    whole = world(1, 16, 30, 0.0).select_views(["c"])
    asked = np.arange(len(whole)) % 30 >= 20
    new = world(2, 4, 40, 0.0).select_views(["c"])
    few = np.arange(len(new)) % 40 < 3
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the regression has settled
        clf = create("proto").fit_base(whole[~asked]).fit(new[few], classes="all")
    for half, share in ((whole[asked], 0.0), (new[~few], 1.0)):
        assert abs(clf.predict_proba(half)[:, :4].sum(1).mean() - share) < 0.35
