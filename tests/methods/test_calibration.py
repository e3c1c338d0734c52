"""Rejection, known beside new classes and prediction sets keep what they promise."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cdist
from scipy.special import softmax
from scipy.stats import multivariate_normal
from sklearn.metrics import roc_auc_score

from fewview import FewviewError, FewviewWarning, MultiViewData, TaskSpec, create, load_model
from fewview.episodes.batch import EpisodeBatch
from fewview.methods.estimator.class_fits import ClassMeans, class_fits, mean_distances
from fewview.methods.estimator.usual_values import LEVELS, UsualValues, honest_quantiles

WIDTHS = {"a": 6, "b": 4, "c": 8}
NAN = float("nan")


def world(seed: int, n_classes: int, per_class: int, gaps: float = 0.25) -> MultiViewData:
    """Classes from one population, so that base classes tell what is usual for new ones."""
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


def few_of_each(data: MultiViewData, shot: int) -> np.ndarray:
    """Which samples are among the first so many of their class."""
    return np.array([np.sum(data.codes[:n] == code) < shot for n, code in enumerate(data.codes)])


BASE = world(1, 24, 20)


def task_of(clf: Any, query: MultiViewData) -> EpisodeBatch:
    """The supports of a fitted estimator and some queries as one scaled task."""
    known = clf.tensors(clf.support_, clf.fitted_)
    asked = clf.tensors(query, clf.fitted_)
    return EpisodeBatch(
        support=tuple(view[None] for view in known.views),
        query=tuple(view[None] for view in asked.views),
        support_mask=known.mask[None],
        query_mask=asked.mask[None],
        support_labels=torch.from_numpy(clf.support_.codes)[None],
        query_labels=None,
        seeds=torch.zeros(1, dtype=torch.int64),
        way=len(clf.support_.classes),
        view_names=known.view_names,
    )


# ---------------------------------------------------------------------------- rejection


@pytest.mark.parametrize("name", ["proto", "ugda:n_anchors=3", "marginal"])
def test_queries_of_the_classes_are_rejected_as_often_as_wanted(name: str) -> None:
    method = create(name).fit_base(BASE)
    shares: dict[str, list[Any]] = {"own": [], "unknown": []}
    areas = []
    for seed in range(2, 8):
        data = world(seed, 8, 20)
        own, unknown = data[data.codes < 4], data[data.codes >= 4]
        few = few_of_each(own, 2)
        clf = method.fit(own[few])
        query = own[~few]
        shares["own"].append(clf.p_values(query))
        shares["unknown"].append(clf.p_values(unknown))
        fits = class_fits(clf, task_of(clf, MultiViewData.concat([query, unknown])), clf.fitted_)
        truth = np.repeat([0, 1], [len(query), len(unknown)])
        areas.append(roc_auc_score(truth, -fits[0].amax(-1).numpy()))
    own, unknown = (np.concatenate(parts) for parts in shares.values())
    assert np.mean(own < 0.05) < 0.08
    assert np.mean(own < 0.05) < np.mean(own < 0.2) < 0.25
    assert np.mean(unknown < 0.2) > np.mean(own < 0.2) + 0.3
    assert np.mean(areas) > 0.75


def test_rejected_queries_get_a_label_of_their_own() -> None:
    data = world(2, 3, 3)
    clf = create("proto").fit_base(BASE).fit(data)
    far = {view: np.full((2, width), 50.0) for view, width in WIDTHS.items()}
    assert clf.predict(far, reject=0.05).tolist() == ["unknown"] * 2
    assert clf.predict(far, reject=0.05, reject_label="other").tolist() == ["other"] * 2
    assert set(clf.predict(far).tolist()) <= set(clf.classes_.tolist())
    with pytest.raises(FewviewError, match="is a class itself"):
        clf.predict(far, reject=0.05, reject_label=clf.classes_[0])
    clf.fit(data.with_labels(data.codes))
    mixed = MultiViewData.concat([data[4:5].with_labels(None), MultiViewData(far)])
    answer = clf.predict(mixed, reject=0.05)
    assert answer.dtype.kind == "i"
    assert answer.tolist() == [1, -1, -1]


@pytest.mark.parametrize("share", [0, 1, -0.1, 1.5, "few", True, NAN])
def test_shares_are_checked(share: Any) -> None:
    data = world(2, 3, 3)
    clf = create("proto").fit_base(BASE).fit(data)
    with pytest.raises(FewviewError, match=r"reject is .* between 0 and 1"):
        clf.predict(data, reject=share)
    with pytest.raises(FewviewError, match=r"coverage is .* between 0 and 1"):
        clf.predict_set(data, coverage=share)


def test_base_classes_are_needed(tmp_path: Path) -> None:
    support = world(2, 3, 3)
    with pytest.raises(FewviewError, match="base classes and there are none"):
        create("proto").fit(support).predict(support, reject=0.05)
    with pytest.raises(FewviewError, match=r"at least 4 base classes.* has 3, 3 of that size"):
        create("proto").fit_base(BASE[BASE.codes < 3]).fit(support).p_values(support)
    first = BASE[(BASE.codes < 6) & few_of_each(BASE, 3)]
    with pytest.raises(FewviewError, match=r"2 of them with 4 samples or more.* has 6, 0 of"):
        create("proto").fit_base(first).fit(support).p_values(support)
    clf = create("proto").fit_base(world(5, 24, 20))  # of which nothing was asked before
    clf.save(tmp_path / "without.model", calibrate=False)
    clf.save(tmp_path / "with.model")
    without, kept = (load_model(tmp_path / f"{x}.model").fit(support) for x in ("without", "with"))
    np.testing.assert_array_equal(kept.p_values(support), clf.fit(support).p_values(support))
    with pytest.raises(FewviewError, match="was not learnt before this model was saved"):
        without.p_values(support)
    with pytest.raises(FewviewError, match="was not learnt before this model was saved"):
        without.fit(support, classes="all")
    with pytest.raises(FewviewError, match="was not learnt before this model was saved"):
        without.predict_set(support)


def test_nothing_is_calibrated_before_it_is_asked_for() -> None:
    clf = create("proto").fit_base(BASE).fit(world(2, 3, 3))
    before = dict(clf.base.calibrations)
    clf.predict_proba(world(2, 3, 4))
    assert clf.base.calibrations == before
    clf.p_values(world(2, 3, 4))
    kept = dict(clf.base.calibrations)
    clf.fit(world(3, 4, 2)).p_values(world(3, 4, 4))  # other supports: nothing is learnt again
    assert kept
    assert clf.base.calibrations == kept


def test_changed_parameters_are_learnt_from_again() -> None:
    support, query = world(2, 3, 2), world(2, 3, 9)
    fresh = create("proto", scaling="standard").fit_base(BASE).fit(support)
    clf = create("proto").fit_base(BASE).fit(support)
    clf.p_values(query)
    clf.set_params(scaling="standard").fit(support)
    np.testing.assert_array_equal(clf.p_values(query), fresh.p_values(query))


def test_a_base_set_in_parts_rejects_about_the_same() -> None:
    support, query = world(2, 3, 3), world(2, 3, 20)
    whole = create("proto").fit_base(BASE).fit(support).p_values(query)
    parts = create("proto").partial_fit_base(BASE[::2]).partial_fit_base(BASE[1::2])
    assert np.abs(parts.fit(support).p_values(query) - whole).mean() < 0.05


def test_supports_without_gaps_are_rejected_as_often_as_promised() -> None:
    """Tasks with gaps were promised, and now supports have all views.

    Each of 10 other classes in turn; views of 8 normal numbers around a class mean.
    """
    rng = np.random.default_rng(1)
    codes = np.repeat(np.arange(20), 30)
    views = {
        name: 2 * rng.normal(size=(20, 8))[codes] + rng.normal(size=(600, 8)) for name in "abc"
    }
    data = MultiViewData(views, codes)
    clf = create("proto").fit_base(data[codes < 10], task=TaskSpec(way=2, eta=0.5))
    shares = []
    for first in range(10, 20, 2):
        pair = data[(codes == first) | (codes == first + 1)]
        few = np.arange(len(pair)) % 30 < 3
        clf.fit(pair[few])
        shares.append(clf.p_values(pair[~few].with_labels(None)))
    assert np.mean(np.concatenate(shares) < 0.2) == pytest.approx(0.2, abs=0.06)


# ---------------------------------------------------------------------------- how well queries fit


def test_distances_to_class_means_by_hand() -> None:
    """Two views, one of two features; the first query shares no view with the second class."""
    clf = create("proto", scaling="none")
    clf.fit({"a": [[0.0], [4.0], [NAN]], "b": [[NAN] * 2, [1.0, 3.0], [2.0, 2.0]]}, ["x", "x", "y"])
    query = MultiViewData({"a": [[5.0], [5.0]], "b": [[NAN] * 2, [2.0, 4.0]]})
    found = mean_distances(task_of(clf, query), (2.0, 0.5))[0]
    a = (5 - 2) ** 2 / (2 * 1.5)  # to the mean of two supports
    b = (1 + 1) / 2 / (0.5 * 2)  # to the only one that has the view
    wanted = torch.tensor([[a, a], [(a + b) / 2, (0 + 4) / 2 / (0.5 * 2)]])
    assert torch.allclose(found, wanted)


def test_classes_of_any_number_of_supports_are_on_one_scale() -> None:
    """Of normal samples: views of any width and unit, one support or the mean of twenty."""
    rng = np.random.default_rng(0)
    codes = np.repeat(np.arange(40), 31)
    views = {
        name: unit * rng.normal(size=(len(codes), width))
        for name, unit, width in (("wide", 0.01, 300), ("narrow", 50.0, 3))
    }
    data = MultiViewData(views, codes)
    clf = create("proto", scaling="none").fit_base(data)
    for shot in (1, 20):
        rank = np.arange(len(data)) % 31
        clf.fit(MultiViewData(data[rank < shot].views, 1000 + data.labels[rank < shot]))
        for mask in ([True, False], [False, True]):
            rest = data[rank == 30].with_mask(np.array([mask] * 40))
            fits = class_fits(clf, task_of(clf, rest), clf.fitted_)[0]
            assert float(-fits.diagonal().mean()) == pytest.approx(1.0, abs=0.15)


def test_a_base_class_is_the_mean_of_its_samples() -> None:
    clf = create("proto").fit_base(BASE)
    means = ClassMeans.of(clf, BASE, clf.base)
    assert means.labels == tuple(BASE.classes.tolist())
    scaled = clf.base.scaling.transform(BASE)
    for code in (0, 17):
        own = scaled[BASE.codes == code]
        for view in range(3):
            rows = own.view(own.view_names[view])[own.mask[:, view]]
            np.testing.assert_allclose(means.means[view][code], rows.mean(0), atol=1e-5)


def test_marginal_compares_with_a_class_never_seen() -> None:
    """By hand: the density of a query given its class's support, over that of any sample."""
    clf = create("marginal", dtype="float64", rank=None).fit_base(world(1, 24, 20, 0.0))
    novel = world(2, 3, 3, 0.0)
    clf.fit(novel[few_of_each(novel, 1)])
    query, state = novel[1:2], clf.base.state
    batch = task_of(clf, query)
    rows = [
        state.projection.apply(part, mask)[0].numpy()
        for part, mask in ((batch.support, batch.support_mask), (batch.query, batch.query_mask))
    ]
    s, b, mean = (x.numpy() for x in (state.model.within, state.model.between, state.model.mean))
    unknown = multivariate_normal.logpdf(rows[1][0], mean, s + b)
    found = class_fits(clf, batch, clf.fitted_)[0, 0].numpy()
    for code, one in zip(batch.support_labels[0].tolist(), rows[0], strict=True):
        gain = b @ np.linalg.inv(s + b)
        centre, spread = mean + gain @ (one - mean), s + b - gain @ b
        wanted = multivariate_normal.logpdf(rows[1][0], centre, spread) - unknown
        assert found[code] == pytest.approx(wanted, rel=1e-6)


# ---------------------------------------------------------------------------- quantiles


def test_shares_are_those_of_quantiles_and_the_nearest_group_stands_in() -> None:
    """Two groups of normal values, one moved by 5; a third is too small to count."""
    rng = np.random.default_rng(0)
    values, label = rng.normal(size=8000), np.repeat(np.arange(400), 20)
    group = np.repeat([1, 3], 4000)
    odd = np.append(group, 9)
    usual = UsualValues.of(
        np.append(values + 5 * (group == 3), 0.0), np.append(label, 400), [odd], fewest=50
    )
    assert usual.groups == ((1,), (3,))
    for key, shift in ((1, 0), (0, 0), (3, 5), (9, 5)):
        asked = np.quantile(values, [0.05, 0.5]) + shift
        np.testing.assert_allclose(usual.share_below(asked, [key]), [0.05, 0.5], atol=0.02)


def test_levels_hold_for_a_class_that_was_left_out() -> None:
    """With few classes that differ, plain quantiles promise too little; these keep their word."""
    rng = np.random.default_rng(0)
    honest, plain = [], []
    for _ in range(300):
        values = rng.normal(size=6)[:, None] + rng.normal(size=(6, 200))
        limits = honest_quantiles(values[:5].reshape(-1), np.repeat(np.arange(5), 200))
        for rate in (0.05, 0.2):
            honest.append(np.mean(values[5] < np.interp(rate, LEVELS, limits)) - rate)
            plain.append(np.mean(values[5] < np.quantile(values[:5], rate)) - rate)
    assert abs(np.mean(honest)) < 0.02
    assert np.mean(plain) > 0.02


def test_a_class_that_was_left_out_is_covered_as_promised() -> None:
    """Values end at 0, as log-probabilities below the best do."""
    rng = np.random.default_rng(0)
    for count in (5, 30):
        held: dict[float, list[float]] = {0.8: [], 0.9: [], 0.95: []}
        label = np.repeat(np.arange(count), 40)
        for _ in range(250):
            centres = 2 * rng.normal(size=count + 1)
            values = -np.maximum(centres[:, None] + rng.normal(size=(count + 1, 40)), 0)
            usual = UsualValues.of(
                values[:-1].reshape(-1), label, [np.zeros(len(label))], fewest=1, floor=False
            )
            shares = usual.share_below(values[-1], [0])
            for coverage, found in held.items():
                found.append(float(np.mean(shares >= 1 - coverage - 1e-9)))
        for coverage, found in held.items():
            assert np.mean(found) > coverage - 0.04, (count, coverage)
            if count == 30:
                assert np.mean(found) < coverage + 0.03, (count, coverage)


def test_where_classes_are_too_few_to_say_there_is_no_limit() -> None:
    """Three classes, one value each: the least is below the others, so a third is not covered."""
    usual = UsualValues.of(
        np.array([-3.0, -1.0, 0.0]), np.arange(3), [np.zeros(3)], fewest=1, floor=False
    )
    shares = usual.share_below(np.array([-1e9, -3.0, -1.0, 0.0]), [0])
    assert shares[0] >= 0.33  # in every set that covers 67 % or more
    assert (np.diff(shares) >= 0).all()
    assert shares[-1] == 1.0
    floor = UsualValues.of(np.array([-3.0, -1.0, 0.0]), np.arange(3), [np.zeros(3)], fewest=1)
    assert floor.share_below(np.array([-1e9]), [0]).tolist() == [0.0]


# ---------------------------------------------------------------------------- known beside new

EVERYONE = world(11, 16, 30, 0.2)
ASKED = np.arange(len(EVERYONE)) % 30 >= 20
KNOWN, OLD = EVERYONE[~ASKED], EVERYONE[ASKED]


def new_half(seed: int) -> tuple[MultiViewData, MultiViewData]:
    """Supports of new classes, and queries of these."""
    new = world(seed, 4, 40, 0.2)
    few = few_of_each(new, 3)
    return new[few], new[~few]


@pytest.mark.parametrize("name", ["marginal", "proto", "rfs"])
def test_known_is_told_from_new_and_probabilities_are_honest(name: str) -> None:
    method = create(name).fit_base(KNOWN)
    right: dict[str, list[Any]] = {"old": [], "new": [], "only new": []}
    sure, shares, found = [], [], []
    for seed in range(2, 6):
        support, query = new_half(seed)
        clf = method.fit(support, classes="all")
        assert clf.classes_.tolist() == [*support.classes.tolist(), *KNOWN.classes.tolist()]
        for half, data in (("old", OLD), ("new", query)):
            proba = clf.predict_proba(data)
            np.testing.assert_allclose(proba.sum(1), 1, atol=1e-9)
            assert proba.shape == (len(data), 20)
            assert (clf.predict(data) == clf.classes_[proba.argmax(1)]).all()
            right[half].append(np.mean(clf.predict(data) == data.labels))
            sure.append(proba.max(1).mean())
            found.append(np.mean((proba[:, :4].sum(1) > 0.5) == (half == "new")))
            shares.append(proba[:, :4].sum(1).mean())
        right["only new"].append(method.fit(support).score(query))
    assert np.mean(found) > 0.85
    assert np.mean(right["new"]) > np.mean(right["only new"]) - 0.15
    assert np.mean(right["old"]) > 0.75
    if name == "marginal":  # scores of the others are no probabilities even of new classes
        assert abs(np.mean(sure) - np.mean([right["old"], right["new"]])) < 0.1
    assert abs(np.mean(shares) - 0.5) < 0.08  # half of the queries are new


@pytest.mark.parametrize("scaling", ["by-width", "standard", "scale"])
def test_views_of_any_width_count_alike(scaling: str) -> None:
    """A view of 300 features beside one of 6, half of the samples without it (as ccle has them).

    Where a distance is a mean over features, unit rows of a wide view are fifty times nearer.
    """
    rng = np.random.default_rng(0)
    codes = np.repeat(np.arange(18), 30)
    views = {
        name: rng.normal(size=(18, width))[codes] + rng.normal(size=(len(codes), width))
        for name, width in (("narrow", 6), ("wide", 300))
    }
    mask = np.ones((len(codes), 2), dtype=bool)
    mask[rng.random(len(codes)) < 0.5, 0] = False
    data = MultiViewData(views, codes, mask=mask)
    rank = np.arange(len(codes)) % 30
    known = codes < 14
    clf = create("proto", scaling=scaling).fit_base(data[known & (rank < 20)])
    clf.fit(data[~known & (rank < 3)], classes="all")
    for half in (known, ~known):
        query = data[half & (rank >= 20)]
        assert np.mean(clf.predict(query) == query.labels) > 0.8


def test_new_classes_keep_their_digits_and_files_keep_known_ones(tmp_path: Path) -> None:
    support, query = new_half(2)
    clf = create("proto").fit_base(KNOWN)
    clf.save(tmp_path / "base.model")
    before = clf.fit(support).predict_proba(query)
    everyone = MultiViewData.concat([query, OLD])
    proba = clf.fit(support, classes="all").predict_proba(everyone)
    again = load_model(tmp_path / "base.model").fit(support, classes="all")
    np.testing.assert_array_equal(again.predict_proba(everyone), proba)
    np.testing.assert_array_equal(clf.fit(support).predict_proba(query), before)
    clf.fit(support, classes="all").save(tmp_path / "whole.model")
    whole = load_model(tmp_path / "whole.model")
    assert whole.classes_.tolist() == again.classes_.tolist()
    np.testing.assert_array_equal(whole.predict_proba(everyone), proba)


def test_what_is_neither_is_rejected() -> None:
    method = create("marginal").fit_base(KNOWN)
    strangers = world(9, 4, 20)
    shares: dict[str, list[Any]] = {"new": [], "known": [], "neither": []}
    for seed in range(2, 8):
        support, query = new_half(seed)
        clf = method.fit(support, classes="all")
        for half, data in zip(shares, (query, OLD, strangers), strict=True):
            shares[half].append(clf.p_values(data))
    for rate in (0.05, 0.2):
        found = {half: np.mean(np.concatenate(parts) < rate) for half, parts in shares.items()}
        assert max(found["new"], found["known"]) <= rate + 0.02
        assert found["neither"] > max(found["new"], found["known"]) + 0.2
    far = {view: np.full((1, width), 60.0) for view, width in WIDTHS.items()}
    assert clf.predict(far, reject=0.01).tolist() == ["unknown"]


def test_labels_of_other_kinds_and_wrong_wishes() -> None:
    base = KNOWN.with_labels(KNOWN.codes)
    support, query = new_half(2)
    clf = create("proto").fit_base(base).fit(support, classes="all")
    assert clf.classes_.dtype == object
    answers = clf.predict(MultiViewData.concat([query, OLD]).with_labels(None)).tolist()
    assert {type(answer) for answer in answers} == {int, str}
    with pytest.raises(FewviewError, match="classes is 'both'"):
        clf.fit(support, classes="both")
    with pytest.raises(FewviewError, match="base classes and there are none"):
        create("proto").fit(support, classes="all")
    with pytest.raises(FewviewError, match="at least 4 base classes"):
        create("proto").fit_base(base[base.codes < 2]).fit(support, classes="all")


def test_one_view_is_enough_to_tell_halves_apart() -> None:
    """The number of views is then the same for all queries, and says nothing."""
    whole = world(11, 16, 30, 0.0).select_views(["c"])
    new = world(2, 4, 40, 0.0).select_views(["c"])
    few = few_of_each(new, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the regression has settled
        clf = create("proto").fit_base(whole[~ASKED]).fit(new[few], classes="all")
    for half, share in ((whole[ASKED], 0.0), (new[~few], 1.0)):
        assert abs(clf.predict_proba(half)[:, :4].sum(1).mean() - share) < 0.35


# ---------------------------------------------------------------------------- prediction sets


def overlapping(seed: int, n_classes: int, per_class: int) -> MultiViewData:
    """Classes that overlap, one view that tells more than the other, and gaps."""
    rng = np.random.default_rng(seed)
    codes = np.repeat(np.arange(n_classes), per_class)
    hidden = rng.normal(size=(n_classes, 3))[codes] + 0.6 * rng.normal(size=(len(codes), 3))
    views = {}
    for k, (view, width) in enumerate({"a": 5, "b": 3}.items()):
        mixing = np.random.default_rng(k).normal(size=(3, width))
        noise = (0.3, 1.5)[k] * rng.normal(size=(len(codes), width))
        views[view] = hidden @ mixing + noise
    mask = rng.random((len(codes), 2)) > 0.3
    mask[~mask.any(1), 1] = True
    return MultiViewData(views, [f"{seed}-{code}" for code in codes], mask=mask)


@pytest.mark.parametrize("name", ["proto", "marginal:transductive=false", "ptmap"])
def test_coverage_by_pattern_is_what_was_asked_for(name: str) -> None:
    method = create(name).fit_base(overlapping(1, 40, 20))
    held: dict[tuple[float, str], list[bool]] = {}
    sizes: dict[float, list[float]] = {0.8: [], 0.95: []}
    for seed in range(2, 32):
        data = overlapping(seed, 4, 20)
        few = few_of_each(data, 2)
        clf = method.fit(data[few])
        query = data[~few]
        best = clf.predict_proba(query).argmax(1)
        for coverage in sizes:
            inside = clf.predict_set(query, coverage)
            assert inside.shape == (len(query), 4)
            assert inside[np.arange(len(query)), best].all()
            sizes[coverage].append(inside.sum(1).mean())
            for row, mask, label in zip(inside, query.mask, query.labels, strict=True):
                key = coverage, "+".join(np.array(["a", "b"])[mask])
                held.setdefault(key, []).append(bool(row[clf.classes_ == label][0]))
    for (coverage, pattern), values in held.items():
        # Thirty tasks of four classes, which differ: a few points are chance.
        assert coverage - 0.07 < np.mean(values), (coverage, pattern)
        assert np.mean(values) < max(coverage + 0.1, 0.97), (coverage, pattern)
    assert np.mean(sizes[0.8]) < np.mean(sizes[0.95]) < 4


def test_sets_are_kept_in_files_and_with_other_supports(tmp_path: Path) -> None:
    base, data = overlapping(1, 12, 20), overlapping(2, 3, 12)
    clf = create("proto").fit_base(base).fit(data[::4])
    query = data[1::4]
    sets = clf.predict_set(query, 0.9)
    clf.save(tmp_path / "a.model")
    again = load_model(tmp_path / "a.model")
    np.testing.assert_array_equal(again.predict_set(query, 0.9), sets)
    # Another number of shots: the nearest limits that were kept serve.
    other = again.fit(data[::2]).predict_set(query, 0.9)
    assert other.shape == sets.shape
    few = create("proto").fit_base(base[np.isin(base.codes, [0, 1])]).fit(data[::4])
    with pytest.raises(FewviewError, match="at least 4 of them"):
        few.predict_set(query)
    with pytest.raises(FewviewError, match="sets are calibrated for new classes only"):
        clf.fit(data[::4], classes="all").predict_set(query)


def test_more_than_base_classes_can_show_is_told() -> None:
    """Of 4 base classes, 2 are held out in turn: nothing is known of one query in a hundred."""
    data = overlapping(2, 3, 12)
    clf = create("proto").fit_base(overlapping(1, 4, 20)).fit(data[::4])
    assert clf.predict_set(data[1::4], 0.6).mean() < 1
    with pytest.warns(FewviewWarning, match=r"0\.99\d* is more than so few base classes can show"):
        inside = clf.predict_set(data[1::4], 0.995)
    assert inside.all(1).any()


def test_set_limits_by_hand() -> None:
    """A set holds the classes whose log-probability is not too far below the best one."""
    clf = create("proto").fit_base(overlapping(1, 12, 20))
    data = overlapping(2, 3, 12)
    clf.fit(data[::4])
    query = data[1::4]
    logs = np.log(clf.predict_proba(query))
    below = logs - logs.max(1, keepdims=True)
    inside = clf.predict_set(query, 0.9)
    for row, pattern in enumerate(query.mask):
        # All queries with these views have one limit: no class outside is above one inside.
        alike = (query.mask == pattern).all(1)
        assert below[row][inside[row]].min() > below[alike][~inside[alike]].max(initial=-np.inf)


def test_class_means_are_the_nearest_by_scipy() -> None:
    """Of complete samples in one view: the order of fits is that of Euclidean distances."""
    data, base = (world(seed, 5, 20, 0.0).select_views(["c"]) for seed in (3, 4))
    few = few_of_each(data, 4)
    clf = create("proto", scaling="none").fit_base(base).fit(data[few])
    query = data[~few]
    centres = np.array([data[few & (data.codes == c)].view("c").mean(0) for c in range(5)])
    fits = class_fits(clf, task_of(clf, query), clf.fitted_)[0].numpy()
    far = cdist(query.view("c"), centres, "sqeuclidean")
    np.testing.assert_allclose(-fits * clf.fitted_.spread[0] * 8 * 1.25, far, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(softmax(-far, axis=1), clf.predict_proba(query), atol=1e-4)


def test_models_of_one_base_set_share_what_was_learnt() -> None:
    support = world(2, 3, 3)
    first = create("proto").fit_base(BASE).fit(support)
    first.p_values(support)
    second = create("proto").fit_base(BASE)
    assert second.base.calibrations is first.base.calibrations
    other = create("proto").fit_base(BASE, task=TaskSpec(way=3, eta=0.6))
    assert not np.array_equal(other.fit(support).p_values(support), first.p_values(support))
    bare = replace(first.base, calibrations={}, rows=None)
    first.base = bare
    with pytest.raises(FewviewError, match="not learnt"):
        first.fit(support).p_values(support)
