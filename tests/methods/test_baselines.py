"""The plain baselines: imputation and partial distances by hand, any scikit-learn classifier."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.impute import KNNImputer
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import SVC

from fewview import (
    Concat,
    EpisodeSampler,
    FewviewError,
    MultiViewData,
    PartialNN,
    TaskSpec,
    create,
    load,
)
from fewview.datasets import class_split
from fewview.methods.concat import PRETRAINED, Pretrained
from fewview.methods.estimator.fitted_base import learn_base
from fewview.methods.params import describe_params
from fewview.methods.registry import OPTIONAL, expand, get_entry, names

NAN = float("nan")
WIDTHS = {"colour": 5, "shape": 8, "sound": 6}


def made() -> tuple[MultiViewData, MultiViewData]:
    """Six base classes and four new ones of 20 samples, three views of one hidden space."""
    rng = np.random.default_rng(0)
    codes = np.repeat(np.arange(10), 20)
    hidden = 3 * rng.normal(size=(10, 4))[codes] + rng.normal(size=(200, 4))
    views = {
        name: hidden @ rng.normal(size=(4, width)) + 0.5 * rng.normal(size=(200, width))
        for name, width in WIDTHS.items()
    }
    data = MultiViewData(views, labels=np.array(list("abcdefghij"))[codes])
    return data[codes < 6], data[codes >= 6]


def with_gaps(data: MultiViewData) -> MultiViewData:
    mask = np.ones(data.mask.shape, dtype=bool)
    mask[::3, 0] = mask[1::3, 1] = mask[::2, 2] = False
    return data.with_mask(mask)


def test_partial_nn_without_shared_views_is_neutral() -> None:
    clf = PartialNN(scaling="none")
    clf.fit({"a": [[0.0], [4.0], [NAN]], "b": [[NAN], [NAN], [5.0]]}, ["x", "y", "z"])
    proba = clf.predict_proba({"a": [[1.0], [NAN]], "b": [[NAN], [5.0]]})
    # Distances 1, 9 and, for want of a shared view, their mean.
    assert proba[0].argsort().tolist() == [1, 2, 0]
    # Shares a view with one support only: nothing to compare.
    assert np.allclose(proba[1], 1 / 3)


class Spy(KNeighborsClassifier):  # type: ignore[misc]
    """Remembers what it was fitted to."""

    seen: Any = None

    def fit(self, X: Any, y: Any) -> Spy:
        Spy.seen = np.array(X)
        super().fit(np.nan_to_num(X), y)
        return self

    def predict_proba(self, X: Any) -> Any:
        return super().predict_proba(np.nan_to_num(X))


@pytest.mark.parametrize("with_base", [True, False])
@pytest.mark.parametrize("rule", ["mean", "base", "zero", "knn", "none"])
def test_imputation(rule: str, with_base: bool) -> None:
    base, novel = made()
    support = novel[[0, 1, 20, 21, 40, 41]]
    mask = np.ones((6, 3), dtype=bool)
    mask[0, 0] = mask[3, 0] = False
    mask[:, 2] = False  # a view that no support has
    support = support.with_mask(mask)
    clf = Concat(
        Spy(n_neighbors=1), impute=rule, base=base if with_base else None, scaling="none",
        dtype="float64",
    )  # fmt: skip
    clf.fit(support).predict(novel[2:4].with_mask(np.ones((2, 3), dtype=bool)))
    colour, sound = support.view("colour"), base.view("sound")
    # Supports are given to methods in an order of their own: by a view that all have.
    order = np.argsort(np.argsort(support.view("shape")[:, 0]))
    found = Spy.seen[np.argsort(Spy.seen[:, 5])][order]
    assert np.allclose(found[[1, 2, 4, 5], :5], colour[[1, 2, 4, 5]])
    assert np.allclose(found[:, 5:13], support.view("shape"))
    mean, base_mean = np.nanmean(colour, axis=0), base.view("colour").mean(axis=0)
    nobody = sound.mean(axis=0) if with_base else np.zeros(6)
    if rule == "mean":
        assert np.allclose(found[[0, 3], :5], mean)
        assert np.allclose(found[:, 13:], nobody)
    elif rule == "base":
        assert np.allclose(found[[0, 3], :5], base_mean if with_base else mean)
        assert np.allclose(found[:, 13:], nobody)
    elif rule == "zero":
        assert (found[[0, 3], :5] == 0).all()
        assert (found[:, 13:] == 0).all()
    elif rule == "none":
        assert np.isnan(found[[0, 3], :5]).all()
        assert (found[:, 13:] == 0).all()
    elif with_base:
        near = KNNImputer(n_neighbors=5).fit(np.concatenate(list(base.views.values()), axis=1))
        wanted = near.transform(np.concatenate(list(support.views.values()), axis=1))
        # Another distance (views count the same), so close but not equal.
        assert np.corrcoef(found[:, 13:].ravel(), wanted[:, 13:].ravel())[0, 1] > 0.9
    else:  # fewer than five supports have it: the mean of all that do
        assert np.allclose(found[[0, 3], :5], mean)


def test_imputation_by_the_nearest_in_shared_views() -> None:
    """Two base samples nearest to the support's own view lend theirs; those without it do not."""
    base = MultiViewData(
        {"a": [[0.0], [1.0], [2.0], [9.0]], "b": [[NAN], [10.0], [30.0], [70.0]]}, [0, 0, 1, 1]
    )
    clf = Concat(Spy(n_neighbors=1), impute="knn", n_neighbors=2, base=base, scaling="none")
    clf.fit({"a": [[0.1], [8.0]], "b": [[NAN], [5.0]]}, ["x", "y"]).predict({"a": [[0.0]]})
    assert sorted(Spy.seen.tolist()) == [[pytest.approx(0.1), 20.0], [8.0, 5.0]]


def test_any_classifier() -> None:
    base, novel = made()
    support, query = with_gaps(novel)[::8], novel[1::8]
    forest = RandomForestClassifier(20)  # has a length, and none before it is fitted
    for estimator in (SVC(), SVC(kernel="linear"), KNeighborsClassifier(1), forest, None):
        clf = Concat(estimator=estimator, base=base).fit(support)
        assert clf.score(query, query.labels) > 0.5
    two = novel[np.isin(novel.labels.astype(str), ["g", "h"])]
    assert Concat(estimator=SVC(), base=base).fit(two[::5]).score(two, two.labels) > 0.8
    with pytest.raises(FewviewError, match="not a scikit-learn classifier"):
        Concat(estimator="tree").fit(support)
    with pytest.raises(FewviewError, match="impute is 'foam'; it must be one of mean"):
        create("concat-nn:impute=foam")


def test_the_seed_of_a_classifier_is_that_of_the_task() -> None:
    """The same answers whenever it is asked, others for another seed; its own seed stays."""
    base, novel = made()
    support, query = novel[::8], novel[1::8]

    def asked(seed: int, own: int | None = None) -> Any:
        forest = RandomForestClassifier(5, random_state=own)
        clf = Concat(forest, base=base, random_state=seed)
        return clf.fit(support).predict_proba(query)

    assert (asked(0) == asked(0)).all()
    assert not (asked(0) == asked(1)).all()
    assert (asked(0, own=3) == asked(1, own=3)).all()


def test_concat_logistic_is_scikit_learns() -> None:
    rng = np.random.default_rng(0)
    x, q = rng.normal(size=(6, 4)), rng.normal(size=(5, 4))
    y = [0, 0, 1, 1, 2, 2]
    found = create("concat-logistic", scaling="none", dtype="float64").fit(x, y).predict_proba(q)
    assert np.allclose(found, LogisticRegression(max_iter=1000).fit(x, y).predict_proba(q))
    # Without probabilities, margins; of two classes there is one.
    for labels in (y, [0, 0, 0, 1, 1, 1]):
        clf = Concat(SVC(kernel="linear"), scaling="none", dtype="float64").fit(x, labels)
        other = SVC(kernel="linear").fit(x, labels)
        assert clf.predict(q).tolist() == other.predict(q).tolist()


def test_parameters_of_the_classifier_by_name() -> None:
    method = create("concat-logistic:estimator__C=0.5:impute=knn")
    assert method.get_params()["estimator__C"] == 0.5
    assert create("concat-logistic").get_params()["estimator__C"] == 1.0
    assert create("concat-hgb").impute == "none"
    assert Concat.name == "concat-logistic"


# ---------------------------------------------------------------------------- foundation models

# What both packages offer: a constructor with these names, fit, classes_, predict_proba, NaN.
STAND_IN = """
import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin

__version__ = "9.8"
calls = []

class {name}(ClassifierMixin, BaseEstimator):
    def __init__(self, *, n_estimators=8, random_state=42, device=None):
        self.n_estimators, self.random_state, self.device = n_estimators, random_state, device

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        self.X_, self.y_ = X, y
        calls.append((self.n_estimators, self.random_state, bool(np.isnan(X).any())))
        return self

    def predict_proba(self, X):
        gap = X[:, None] - self.X_[None]
        far = np.nanmean(np.where(np.isnan(gap), np.nan, gap**2), axis=2)
        near = np.stack([far[:, self.y_ == k].min(axis=1) for k in self.classes_], axis=1)
        p = np.exp(-10 * np.nan_to_num(near, nan=1.0))
        return p / p.sum(axis=1, keepdims=True)
"""


@pytest.fixture
def stand_ins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for package, name in PRETRAINED.items():
        (tmp_path / f"{package}.py").write_text(STAND_IN.replace("{name}", name))
        monkeypatch.delitem(sys.modules, package, raising=False)
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.parametrize("package", PRETRAINED)
def test_without_the_package_it_is_said_what_to_install(package: str) -> None:
    with pytest.raises(FewviewError, match=f"{package} is not installed; pip install {package}"):
        create(package)


def test_they_are_found_by_name_and_in_no_list() -> None:
    assert set(OPTIONAL) == set(PRETRAINED)
    assert not set(OPTIONAL) & {*names(), *expand("all")}
    assert get_entry("tabicl").factory is Concat


@pytest.mark.usefixtures("stand_ins")
@pytest.mark.parametrize(("text", "size"), [("tabicl", 8), ("tabpfn:estimator__n_estimators=2", 2)])
def test_the_interface_is_used_as_it_is(text: str, size: int) -> None:
    data, split = load("digits"), class_split("digits", 0)
    base, novel = (data[np.isin(data.labels, part)] for part in (split.base, split.novel))
    method = create(text)
    for eta in (0.0, 0.5):
        task = TaskSpec(way=3, queries=10, eta=eta)
        episodes = EpisodeSampler(novel, task).draw(0, 3)
        scores = method.score_episodes(novel, episodes, learn_base(method, base, task))
        right = scores.argmax(-1).numpy() == episodes.query_labels
        assert eta > 0 or right.mean() > 0.5
    calls = sys.modules[text.partition(":")[0]].calls
    assert {found for found, _, _ in calls} == {size}
    wanted = {int(seed % 2**32) for seed in episodes.seeds}
    assert {seed for _, seed, _ in calls} == wanted  # of the tasks
    assert {gaps for _, _, gaps in calls} == {False, True}  # missing views, as they are


@pytest.mark.usefixtures("stand_ins")
def test_the_version_of_the_package_is_part_of_what_results_depend_on() -> None:
    import tabicl  # type: ignore[import-not-found]  # noqa: F401

    assert "of tabicl 9.8" in describe_params(create("tabicl"))["estimator"]


@pytest.mark.usefixtures("stand_ins")
def test_an_estimator_like_any_other() -> None:
    clf = Concat(Pretrained("tabpfn"), impute="none").fit([[0.0], [9.0]], ["cat", "dog"])
    assert clf.predict([[8.0], [1.0]]).tolist() == ["dog", "cat"]
    np.testing.assert_allclose(clf.predict_proba([[8.0]]).sum(), 1)
