"""The plain baselines: imputation and partial distances by hand, any scikit-learn classifier."""

import numpy as np
import pytest
import torch
from sklearn.impute import KNNImputer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics.pairwise import nan_euclidean_distances
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import SVC

from fewview import FewviewError, MultiViewData, create
from fewview.engine._checks import synthetic_data
from fewview.engine._fitting import content_order
from fewview.methods.concat import Concat
from fewview.methods.partial_nn import PartialNN
from fewview.numerics._distances import partial_distances

NAN = float("nan")


def views(data: MultiViewData) -> tuple[list[torch.Tensor], torch.Tensor]:
    blocks = [torch.from_numpy(np.nan_to_num(b))[None] for b in data.views.values()]
    return blocks, torch.from_numpy(np.array(data.mask))[None]


def holes(data: MultiViewData) -> MultiViewData:
    mask = np.ones(data.mask.shape, dtype=bool)
    mask[::3, 0] = mask[1::3, 1] = mask[::2, 2] = False
    return data.with_mask(mask)


def test_partial_distances_by_hand() -> None:
    a = MultiViewData({"x": [[0.0, 0.0]], "y": [[1.0]]})
    b = MultiViewData({"x": [[3.0, 4.0], [NAN, NAN]], "y": [[3.0], [NAN]], "z": [[1.0], [1.0]]})
    a = a.like(b)
    (left, m), (right, n) = views(a), views(b)
    distances, shared = partial_distances(left, right, m, n)
    assert shared.tolist() == [[[True, False]]]
    assert distances[0, 0, 0].item() == pytest.approx((25 / 2 + 4) / 2)
    distances, _ = partial_distances(left, right, m, n, "feature")
    assert distances[0, 0, 0].item() == pytest.approx((25 + 4) / 3)


def test_partial_distances_are_scikit_learns() -> None:
    _, novel = synthetic_data()
    data = holes(novel)
    blocks, mask = views(data)
    found, shared = partial_distances(blocks, blocks, mask, mask, "feature")
    stacked = np.concatenate(list(data.views.values()), axis=1)
    wanted = nan_euclidean_distances(stacked, squared=True) / stacked.shape[1]
    assert (shared[0].numpy() == ~np.isnan(wanted)).all()
    assert np.allclose(found[0].numpy(), np.nan_to_num(wanted), atol=1e-9)


def test_partial_nn_without_shared_views_is_neutral() -> None:
    clf = PartialNN(scaling="none")
    clf.fit({"a": [[0.0], [4.0], [NAN]], "b": [[NAN], [NAN], [5.0]]}, ["x", "y", "z"])
    proba = clf.predict_proba({"a": [[1.0], [NAN]], "b": [[NAN], [5.0]]})
    # Distances 1, 9 and, for want of a shared view, their mean.
    assert proba[0].argsort().tolist() == [1, 2, 0]
    # Shares a view with one support only: nothing to compare.
    assert np.allclose(proba[1], 1 / 3)


@pytest.mark.parametrize("rule", ["mean", "base", "zero", "knn", "none"])
def test_imputation(rule: str) -> None:
    base, novel = synthetic_data()
    support = novel[[0, 1, 20, 21, 40, 41]]
    mask = np.ones((6, 3), dtype=bool)
    mask[0, 0] = mask[3, 0] = False
    mask[:, 2] = False  # a view that no support has
    support = support.with_mask(mask)
    seen = {}

    class Spy(KNeighborsClassifier):
        def fit(self, X: np.ndarray, y: np.ndarray) -> "Spy":
            seen["X"] = np.array(X)
            super().fit(np.nan_to_num(X), y)
            return self

        def predict_proba(self, X: np.ndarray) -> np.ndarray:
            return super().predict_proba(np.nan_to_num(X))

    clf = Concat(
        estimator=Spy(n_neighbors=1), impute=rule, base=base, scaling="none", dtype="float64"
    )
    clf.fit(support).predict(novel[2:4])
    found = seen["X"][np.argsort(content_order(support))]
    colour = support.view("colour")
    assert np.allclose(found[[1, 2, 4, 5], :5], colour[[1, 2, 4, 5]])
    if rule == "mean":
        assert np.allclose(found[0, :5], np.nanmean(colour, axis=0))
        assert np.allclose(found[0, 13:], base.view("sound").mean(axis=0))
    elif rule == "base":
        assert np.allclose(found[0, :5], base.view("colour").mean(axis=0))
        assert np.allclose(found[0, 13:], base.view("sound").mean(axis=0))
    elif rule == "zero":
        assert (found[0, :5] == 0).all()
        assert (found[:, 13:] == 0).all()
    elif rule == "none":
        assert np.isnan(found[0, :5]).all()
        assert (found[:, 13:] == 0).all()
    else:
        near = KNNImputer(n_neighbors=5).fit(np.concatenate(list(base.views.values()), axis=1))
        wanted = near.transform(np.concatenate(list(support.views.values()), axis=1))
        # Another distance (views count the same), so close but not equal.
        assert np.abs(found - wanted).max() < 2.5
        assert np.corrcoef(found[:, 13:].ravel(), wanted[:, 13:].ravel())[0, 1] > 0.8


def test_any_classifier() -> None:
    base, novel = synthetic_data()
    support, query = holes(novel)[::8], novel[1::8]
    for estimator in (SVC(), SVC(kernel="linear"), KNeighborsClassifier(1)):
        clf = Concat(estimator=estimator, base=base).fit(support)
        assert clf.score(query, query.labels) > 0.5
    two = novel[np.isin(novel.labels.astype(str), ["ape", "bee"])]
    assert Concat(estimator=SVC(), base=base).fit(two[::5]).score(two, two.labels) > 0.8
    with pytest.raises(FewviewError, match="not a scikit-learn classifier"):
        Concat(estimator="tree").fit(support)


def test_concat_logistic_is_scikit_learns() -> None:
    rng = np.random.default_rng(0)
    x, q = rng.normal(size=(6, 4)), rng.normal(size=(5, 4))
    y = [0, 0, 1, 1, 2, 2]
    found = create("concat-logistic", scaling="none", dtype="float64").fit(x, y).predict_proba(q)
    assert np.allclose(found, LogisticRegression(max_iter=1000).fit(x, y).predict_proba(q))


def test_parameters_of_the_classifier_by_name() -> None:
    method = create("concat-logistic:estimator__C=0.5:impute=knn")
    assert method.get_params()["estimator__C"] == 0.5
    assert create("concat-logistic").get_params()["estimator__C"] == 1.0
    assert create("concat-hgb").impute == "none"
