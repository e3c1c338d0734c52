from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import balanced_accuracy_score, brier_score_loss, log_loss

from fewview.results._metrics import N_BINS, EpisodeMetrics, join, measure


@pytest.fixture
def drawn() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return 2 * rng.normal(size=(6, 40, 4)), rng.integers(0, 4, size=(6, 40))


def probabilities(scores: np.ndarray) -> np.ndarray:
    exp = np.exp(scores - scores.max(-1, keepdims=True))
    return exp / exp.sum(-1, keepdims=True)


def test_against_scikit_learn(drawn: tuple[np.ndarray, np.ndarray]) -> None:
    scores, labels = drawn
    got = measure(scores, labels)
    p = probabilities(scores)
    for t in range(len(labels)):
        predicted = scores[t].argmax(-1)
        assert got.accuracy[t] == pytest.approx((predicted == labels[t]).mean())
        assert got.balanced_accuracy[t] == pytest.approx(
            balanced_accuracy_score(labels[t], predicted)
        )
        assert got.log_loss[t] == pytest.approx(log_loss(labels[t], p[t], labels=range(4)))
        brier = sum(brier_score_loss(labels[t] == k, p[t, :, k]) for k in range(4))
        assert got.brier[t] == pytest.approx(brier)


def test_ece_by_definition(drawn: tuple[np.ndarray, np.ndarray]) -> None:
    scores, labels = drawn
    p = probabilities(scores).reshape(-1, 4)
    confidence, hit = p.max(1), p.argmax(1) == labels.ravel()
    expected = 0.0
    for k in range(N_BINS):
        inside = (confidence > k / N_BINS) & (confidence <= (k + 1) / N_BINS)
        if inside.any():
            expected += inside.mean() * abs(confidence[inside].mean() - hit[inside].mean())
    assert measure(scores, labels).ece == pytest.approx(expected)


def test_batches_join_to_the_whole(drawn: tuple[np.ndarray, np.ndarray]) -> None:
    scores, labels = drawn
    whole = measure(scores, labels)
    joined = join([measure(scores[:2], labels[:2]), measure(scores[2:], labels[2:])])
    np.testing.assert_array_equal(whole.accuracy, joined.accuracy)
    np.testing.assert_allclose(whole.bins, joined.bins)
    assert isinstance(joined, EpisodeMetrics)


def test_a_class_without_queries_does_not_count() -> None:
    scores = np.log([[[0.9, 0.05, 0.05], [0.2, 0.5, 0.3]]])
    got = measure(scores, np.array([[0, 0]]))
    assert got.balanced_accuracy.tolist() == [0.5]


def test_huge_scores_stay_finite() -> None:
    scores = np.array([[[0.0, -1e30], [-1e5, 0.0]]])
    got = measure(scores, np.array([[0, 0]]))
    assert np.isfinite(got.log_loss).all()
    assert got.bins[0].sum() == 2


@pytest.mark.parametrize("shape", [(1, 1, 3), (2, 5, 1), (3, 4, 2)])
def test_scores_are_left_as_they_are(shape: tuple[int, ...]) -> None:
    scores = np.random.default_rng(1).normal(size=shape)
    before = scores.copy()
    measure(scores, np.zeros(shape[:2], dtype=np.int64))
    np.testing.assert_array_equal(scores, before)
