"""Synthetic few-shot data: shares of missing views, separation of classes, and the division."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import fewview
from fewview import FewviewError, MultiViewData, load
from fewview.datasets import make_few_shot, split_few_shot


def same(one: MultiViewData, two: MultiViewData) -> bool:
    return one.fingerprint == two.fingerprint


@pytest.mark.parametrize("missing", [0.0, 0.1, 0.3, 0.5])
@pytest.mark.parametrize("views", [{"a": 3, "b": 2}, {"a": 1, "b": 2, "c": 5}])
def test_the_share_of_missing_views_is_exact(missing: float, views: dict[str, int]) -> None:
    data = make_few_shot(5, 8, views, missing=missing)
    cells = 5 * 8 * len(views)
    assert int((~data.mask).sum()) == round(missing * cells)
    assert data.mask.any(axis=1).all()
    assert data.view_dims == views
    assert np.unique(data.labels, return_counts=True)[1].tolist() == [8] * 5


def test_numbers_are_float32_and_follow_from_the_seed() -> None:
    one = make_few_shot(12, 5, missing=0.3, seed=3)
    assert {block.dtype for block in one.views.values()} == {np.dtype(np.float32)}
    assert same(one, make_few_shot(12, 5, missing=0.3, seed=3))
    assert not same(one, make_few_shot(12, 5, missing=0.3, seed=4))
    state = np.random.get_state()[1].tolist()  # noqa: NPY002 - the global generator is not touched
    make_few_shot()
    assert np.random.get_state()[1].tolist() == state  # noqa: NPY002


def share_between(data: MultiViewData) -> float:
    """The share of the variance of all columns that lies between classes."""
    rows, labels = np.asarray(data, dtype=float), data.labels
    assert labels is not None
    within = sum(((rows[labels == c] - rows[labels == c].mean(0)) ** 2).sum() for c in set(labels))
    return 1 - float(within) / float(((rows - rows.mean(0)) ** 2).sum())


def test_classes_are_as_far_apart_as_asked() -> None:
    """Of a column: 8 (separation² + 1) from the factors, noise² beside them, mixtures of mean 0."""
    for separation, noise in ((0.0, 1.0), (1.0, 1.0), (2.0, 1.0), (2.0, 4.0)):
        many = [
            share_between(make_few_shot(20, 200, separation=separation, noise=noise, seed=seed))
            for seed in range(5)
        ]
        between = 8 * separation**2
        expected = between / (between + 8 + noise**2)
        assert np.mean(many) == pytest.approx(expected, abs=0.04)


def test_one_covariance_is_shared_and_links_the_views() -> None:
    data = make_few_shot(3, 4000, {"a": 4, "b": 3}, seed=1)
    rows, labels = np.asarray(data, dtype=float), data.labels
    assert labels is not None
    per_class = [np.cov(rows[labels == label].T) for label in sorted(set(labels))]
    scale = np.abs(per_class[0]).max()
    for one, two in itertools.combinations(per_class, 2):
        assert np.abs(one - two).max() < 0.1 * scale
    assert np.abs(per_class[0][:4, 4:]).max() > 0.2 * scale


@pytest.mark.parametrize(
    "wrong", [{"n_classes": 0}, {"n_per_class": 0}, {"views": {"a": 0}}, {"missing": 0.9}]
)
def test_impossible_data_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(FewviewError):
        make_few_shot(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(("new", "shot", "seed"), [(4, 1, 0), (2, 5, 1), (9, 29, 2)])
def test_a_division_takes_every_sample_once(new: int, shot: int, seed: int) -> None:
    data = make_few_shot(missing=0.3, seed=seed)
    parts = split_few_shot(data, new=new, shot=shot, seed=seed)
    base, support, query = parts
    rows = np.concatenate([np.asarray(part) for part in parts])
    order, wanted = np.lexsort(rows.T), np.lexsort(np.asarray(data).T)
    np.testing.assert_array_equal(rows[order], np.asarray(data)[wanted])
    assert not set(base.classes) & set(support.classes)
    assert set(support.classes) == set(query.classes)
    assert len(support.classes) == new
    assert np.bincount(support.codes).tolist() == [shot] * new
    assert all(same(*two) for two in zip(parts, split_few_shot(data, new, shot, seed), strict=True))
    assert not same(support, split_few_shot(data, new, shot, seed + 1)[1])


def test_small_classes_and_samples_without_a_label_are_never_new() -> None:
    labels = [None, "x", "x", "y", "y", "y", "z", "z", "z", "w"]
    data = MultiViewData({"a": np.arange(10.0)[:, None]}, labels)
    for seed in range(10):
        base, support, query = split_few_shot(data, new=2, shot=2, seed=seed)
        assert sorted(set(support.classes)) == ["y", "z"]
        assert base.view("a").ravel().tolist() == [1, 2, 9]
        assert len(support) + len(query) == 6


@pytest.mark.parametrize(
    ("labels", "new", "shot", "said"),
    [
        (None, 2, 1, "no labels"),
        (["x", "x", "y", "y"], 2, 1, "a base class"),
        (["x", "y", "y", "z", "z"], 2, 2, "0 of them with at least 3 samples"),
        (["x", "x", "y", "y"], 1, 1, "new=1"),
        (["x", "x", "y", "y"], 2, 0, "shot=0"),
    ],
)
def test_what_cannot_be_divided_is_refused(
    labels: list[str] | None, new: int, shot: int, said: str
) -> None:
    data = MultiViewData({"a": np.arange(float(len(labels or [0])))[:, None]}, labels)
    with pytest.raises(FewviewError, match=said):
        split_few_shot(data, new=new, shot=shot)


def test_any_table_can_be_divided(data_dir: object) -> None:
    for data in (load("digits"), MultiViewData.read(f"{data_dir}/ccle")):
        base, support, query = split_few_shot(data, new=3, shot=2)
        clf = fewview.Marginal().fit_base(base).fit(support)
        assert clf.score(query) > 0.5
        assert set(clf.predict(query)) <= set(support.classes)
