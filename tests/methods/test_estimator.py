"""A method as a scikit-learn estimator: base sets, shots one by one, answers one by one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from fewview import (
    UGDA,
    Combined,
    EpisodeBatch,
    EpisodeSampler,
    FewviewError,
    FittedBase,
    Marginal,
    Method,
    MultiViewData,
    Proto,
    State,
    TaskSpec,
    create,
)
from fewview.datasets import make_few_shot
from fewview.methods.base import CACHED_ROWS, Contract
from fewview.methods.estimator.fitted_base import learn_base, usual_task

NAN = float("nan")
WIDTHS = {"shape": 5, "colour": 8, "sound": 3}
SAMPLES = make_few_shot(10, 20, WIDTHS, separation=3.0, seed=1)
BASE, NOVEL = SAMPLES[SAMPLES.codes < 6], SAMPLES[SAMPLES.codes >= 6]
Task = tuple[MultiViewData, MultiViewData]


# ---------------------------------------------------------------------------- scikit-learn's checks

# What the estimator does is written once, so that these stand for all; cheaper than usual.
CHECKED = (
    "proto", "match", "ptmap:n_iter=4", "rfs", "ugda:n_anchors=2", "marginal", "concat-logistic",
    "ptmap+ugda:source__n_anchors=2:head__n_iter=4",
)  # fmt: skip


def expected_failures(method: Method) -> dict[str, str]:
    subset, reasons = "check_methods_subset_invariance", {}
    if isinstance(method, type(create("match"))):
        reasons[subset] = "equal to seven digits of float32, not more"
    if method.tags.transductive:
        reasons[subset] = "an answer depends on the other queries, by design"
    if isinstance(method, type(create("ptmap"))):
        reasons["check_classifiers_train"] = "PT-MAP is made for features that are not negative"
    if isinstance(method, Combined):
        reasons["check_parameters_default_constructible"] = "a default that is made anew is a list"
    return reasons


@parametrize_with_checks(
    [create(text) for text in CHECKED], expected_failed_checks=expected_failures
)
@pytest.mark.filterwarnings("ignore")
def test_checks_of_scikit_learn(estimator: Any, check: Any) -> None:
    check(estimator)


def test_tools_of_scikit_learn(task: Task) -> None:
    data, folds = MultiViewData.concat(task), StratifiedKFold(3)
    clf = Marginal().fit_base(BASE)
    proba = cross_val_predict(clf, data, data.labels, cv=folds, method="predict_proba")
    assert proba.shape == (len(data), 4)
    assert np.mean(data.classes[proba.argmax(1)] == data.labels) > 0.8
    search = GridSearchCV(clf, {"shrinkage": [0.05, 0.3]}, cv=folds).fit(data, data.labels)
    assert search.best_score_ > 0.8
    assert (search.predict(data) == search.best_estimator_.predict(data)).all()
    X, y = NOVEL.view("shape"), NOVEL.labels
    assert make_pipeline(StandardScaler(), Proto()).fit(X, y).score(X, y) > 0.8


def test_score_takes_labels_from_the_data(task: Task) -> None:
    support, query = task
    clf = Proto().fit(support)
    right = clf.predict(query) == query.labels
    assert clf.score(query) == clf.score(query.with_labels(None), query.labels) == right.mean()
    weights = np.arange(len(query))
    assert clf.score(query, sample_weight=weights) == pytest.approx(
        weights[right].sum() / weights.sum()
    )
    with pytest.raises(FewviewError, match="no labels to compare with"):
        clf.score(query.with_labels(None))


# ---------------------------------------------------------------------------- shots and classes


@pytest.mark.parametrize("text", ["proto", "marginal", "ugda:n_anchors=5"])
def test_partial_fit_equals_fit(task: Task, text: str) -> None:
    support, query = task
    order = np.argsort(np.arange(len(support)) % 3, kind="stable")  # one shot after the other
    clf = create(text, base=BASE)
    for rows in np.array_split(order, 3):
        clf.partial_fit(support[rows])
    wanted = create(text, base=BASE).fit(support).predict_proba(query)
    assert np.array_equal(clf.predict_proba(query), wanted)


def test_partial_fit_one_class_after_the_other(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    support, query = task
    wanted = Marginal(base=BASE).fit(support).predict_proba(query)
    clf = Marginal().fit_base(BASE).partial_fit(support[support.codes == 0])
    monkeypatch.setattr(Marginal, "learn", None)  # base classes are not learnt from again
    with pytest.raises(FewviewError, match=f"only class '{support.classes[0]}' is known so far"):
        clf.predict(query)
    for code in (3, 1, 2):
        clf.partial_fit(support[support.codes == code])
    assert clf.classes_.tolist() == support.classes.tolist()
    assert np.array_equal(clf.predict_proba(query), wanted)
    with pytest.raises(FewviewError, match="must not overlap"):
        clf.partial_fit(BASE[:1])
    with pytest.raises(FewviewError, match="not among the given classes"):
        clf.partial_fit(support[:1], classes=["x"])
    assert len(clf.partial_fit(support[:2]).support_) == len(support) + 2


# ---------------------------------------------------------------------------- base sets


def test_the_usual_task() -> None:
    found = usual_task(BASE)
    assert (found.way, found.shot, found.queries, found.eta) == (2, 1, 15, 0.3)
    assert found.missing.kind == "uniform"
    holes = np.ones(BASE.mask.shape, dtype=bool)
    holes[::2, 0] = False
    partial = usual_task(BASE.with_mask(holes))
    assert (partial.missing.kind, partial.eta) == ("patterns", pytest.approx(1 / 6))
    many = MultiViewData(np.ones((30, 1)), labels=np.arange(30))
    assert (usual_task(many).way, usual_task(many).eta) == (5, 0.0)  # one view cannot be missing
    assert [usual_task(many[:n]).way for n in (3, 9, 10)] == [2, 3, 4]


def test_a_base_set_is_learnt_from_again_where_parameters_change(task: Task) -> None:
    support, query = task
    shape = TaskSpec(way=2, shot=3, eta=0.1)
    clf = Marginal().fit_base(BASE, task=shape)
    assert clf.base.task is shape
    assert clf.fit(support).fitted_ is clf.base
    before = clf.predict_proba(query)
    other = clone(clf).set_params(shrinkage=0.9).fit(support)
    assert other.fitted_.task is shape
    assert np.array_equal(
        other.predict_proba(query),
        Marginal(shrinkage=0.9).fit_base(BASE, task=shape).fit(support).predict_proba(query),
    )
    assert not np.allclose(other.predict_proba(query), before)
    assert np.array_equal(clone(clf).fit(support).predict_proba(query), before)


def test_the_scaling_of_a_combination_is_its_own(task: Task) -> None:
    support, query = task

    def combined(**parameters: Any) -> Combined:
        return Combined(UGDA(n_anchors=10), head=create("ptmap:scaling=standard"), **parameters)

    changed = combined().fit_base(BASE).set_params(scaling="standard").fit(support)
    fresh = combined(scaling="standard").fit_base(BASE).fit(support)
    assert changed.fitted_.scaling.rule == "standard"
    assert np.array_equal(changed.predict_proba(query), fresh.predict_proba(query))
    usual = combined().fit_base(BASE).fit(support)
    assert np.abs(usual.predict_proba(query) - fresh.predict_proba(query)).max() > 1e-3


def test_base_sets_are_given_in_four_ways(task: Task) -> None:
    support, query = task
    fitted = UGDA(n_anchors=3).fit_base(BASE).base
    assert isinstance(fitted, FittedBase)
    found = [
        clf.fit(support).predict_proba(query)
        for clf in (
            UGDA(n_anchors=3, base=BASE), UGDA(n_anchors=3, base=fitted),
            UGDA(n_anchors=3).fit_base(fitted),
            UGDA(n_anchors=3).fit_base(BASE.with_labels(None), BASE.labels),
        )
    ]  # fmt: skip
    for one in found[1:]:
        assert np.array_equal(one, found[0])
    with pytest.raises(FewviewError, match="must not overlap"):
        UGDA(base=fitted).fit(BASE)
    with pytest.raises(FewviewError, match="base row 2 has no label"):
        Proto().fit_base(BASE[:4], ["a", "b", None, "a"])


def test_a_random_state_that_is_no_number_is_drawn_from_once(task: Task) -> None:
    support, query = task
    clf = UGDA(n_anchors=3, random_state=np.random.RandomState(5))
    wanted = int(np.random.RandomState(5).randint(2**31 - 1))
    assert clf.fit_base(BASE).seed_ == wanted == clf.base.seed
    assert np.array_equal(
        clf.fit(support).predict_proba(query),
        UGDA(n_anchors=3, random_state=wanted, base=BASE).fit(support).predict_proba(query),
    )
    assert isinstance(clf.random_state, np.random.RandomState)


@pytest.mark.parametrize("text", ["marginal", "marginal:transductive=false", "ugda:n_anchors=10"])
@pytest.mark.parametrize("unlabelled", [False, True])
def test_without_base_classes(task: Task, text: str, unlabelled: bool) -> None:
    support, query = task
    clf = create(text)
    if unlabelled:
        clf.fit_base(BASE.with_labels(None))
        assert clf.base.classes == ()
    assert clf.fit(support).score(query) > 0.75


def test_unlabelled_rows_help() -> None:
    """Two views of one hidden thing: unlabelled pairs teach what a view says about the other."""
    rng = np.random.default_rng(0)
    mixing, right = rng.normal(size=(2, 4, 12)), []
    for _ in range(12):
        centres = 1.5 * rng.normal(size=(4, 4))

        def draw(codes: Any, centres: Any = centres) -> dict[str, Any]:
            hidden = centres[codes] + 0.5 * rng.normal(size=(len(codes), 4))
            noise = 3.0 * rng.normal(size=(2, len(codes), 12))
            return {view: hidden @ mixing[k] + noise[k] for k, view in enumerate("ab")}

        others = MultiViewData(draw(rng.integers(0, 4, 400)))
        has = np.array([[True, False], [False, True]] * 40)
        support = MultiViewData(draw(np.arange(4)), np.arange(4), mask=has[:4])
        codes = np.arange(80) % 4
        query = MultiViewData(draw(codes), codes, mask=~has)
        clf = Marginal(transductive=False)
        right.append(
            [clone(clf).fit(support).score(query), clf.fit_base(others).fit(support).score(query)]
        )
    # A query and its own class's support never share a view: without other rows it is a guess.
    without, with_them = np.mean(right, axis=0)
    assert without < 0.4
    assert with_them > without + 0.15


@pytest.mark.parametrize("base", [None, BASE.with_labels(None)], ids=["none", "unlabelled"])
def test_a_method_that_needs_base_classes_says_so(task: Task, base: MultiViewData | None) -> None:
    with pytest.raises(FewviewError, match="Bavardage learns from base classes first"):
        create("bavardage", base=base).fit(task[0])


# ---------------------------------------------------------------------------- one by one


@pytest.mark.parametrize(
    "text",
    ["marginal", "ptmap", "proto", "proto:padding=episode", "ugda:n_anchors=5", "partial-nn"],
)
def test_inductive_is_what_a_single_query_gets(task: Task, text: str) -> None:
    support, query = task
    clf = create(text, dtype="float64", max_memory=1e-4).fit_base(BASE).fit(support)
    query = query[:16]
    single = np.concatenate([clf.predict_proba(query[k : k + 1]) for k in range(len(query))])
    found = clf.predict_proba(query, inductive=True)
    np.testing.assert_allclose(found, single, atol=1e-6)
    # Proto looks at queries one by one, but the padding `episode` at all of them.
    same = np.allclose(found, clf.predict_proba(query), atol=1e-6)
    assert same == (clf.looks_at_queries == "-") == (text in ("partial-nn", "proto"))
    assert clf.predict_proba(query[:0], inductive=True).shape == (0, 4)


def test_queries_one_by_one_need_no_memory_of_their_square() -> None:
    # As pairs of 10 000 queries of 400 features these would be 160 GB.
    clf = create("ptmap").fit(MultiViewData(np.eye(4, 400), ["a", "b", "c", "d"]))
    found = clf.predict_proba(np.tile(np.eye(4, 400), (2500, 1)), inductive=True)
    assert found.argmax(1).tolist() == [0, 1, 2, 3] * 2500


# ---------------------------------------------------------------------------- batches


def test_batches_split_by_memory_do_not_matter() -> None:
    shape = TaskSpec(way=3, shot=1, queries=5, eta=0.3)
    episodes, found = EpisodeSampler(NOVEL, shape).draw(0, 12), []
    for gib in (1.0, 4e-6):
        method = create("ptmap", dtype="float64", max_memory=gib)
        found.append(method.score_episodes(NOVEL, episodes, learn_base(method, BASE, shape)))
    assert torch.allclose(*found, atol=1e-6)


@pytest.mark.parametrize(("card", "gib"), [(139, 16.0), (8, 4.0)])
def test_the_budget_of_a_batch_follows_from_the_kind_of_device(
    monkeypatch: pytest.MonkeyPatch, card: int, gib: float
) -> None:
    shape = (5, 75, (100,), 5)
    here = create("ptmap").batch_size(*shape)
    assert here == create("ptmap", max_memory=1.0).batch_size(*shape)
    # Rows of methods that do little else than read them stay in the caches of a CPU.
    assert create("proto").batch_size(*shape) == CACHED_ROWS // (4 * 80 * 100)
    assert create("proto", max_memory=1e-4).batch_size(*shape) == 1
    assert create("proto").batch_size(5, 75, (10**6,), 5) == 1
    monkeypatch.setattr(Contract, "torch_device", property(lambda _: torch.device("cuda")))
    properties = SimpleNamespace(total_memory=card * 2**30)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
    there = create("ptmap").batch_size(*shape)
    assert there == create("ptmap", max_memory=gib).batch_size(*shape) > here
    assert create("proto").batch_size(*shape) > CACHED_ROWS // (4 * 80 * 100)


@pytest.mark.parametrize(
    ("scores", "error", "message"),
    [
        (lambda q: torch.zeros(1, 4, q), TypeError, r"\[tasks, queries, classes\] = \(1, 80, 4\)"),
        (lambda q: torch.full((1, q, 4), NAN), FloatingPointError, "scores that are not finite"),
        (lambda q: "high", TypeError, "gave a str 'high'"),
    ],
)
def test_scores_that_are_none_are_named(scores: Any, error: Any, message: str) -> None:
    class Odd(Proto):
        def scores(self, batch: EpisodeBatch, state: State) -> Any:
            return scores(batch.n_query)

    with pytest.raises(error, match=message):
        Odd().fit(NOVEL[::5]).predict(NOVEL)


def test_a_state_that_is_none_is_named() -> None:
    class Dictionary(Proto):
        def learn(self, base: MultiViewData, task: TaskSpec, seed: int) -> Any:
            return {"mean": 0.0}

    with pytest.raises(TypeError, match="learnt a dict; it must give a State"):
        Dictionary().fit_base(BASE)
