"""How good are the scores of some tasks? Per-episode metrics, reduced batch by batch.

Only sums leave this file: one number per episode and metric, and the counts of a reliability
diagram, so that a cell of any number of episodes takes little memory and little room in the store.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

Float64Array = NDArray[np.float64]
N_BINS = 15


@dataclass(frozen=True)
class EpisodeMetrics:
    """Metrics of a list of episodes.

    Attributes:
        accuracy: [episodes], share of queries classified rightly.
        balanced_accuracy: [episodes], mean recall over the classes that have queries.
        log_loss: [episodes], mean of minus the log-probability of the true class.
        brier: [episodes], mean squared distance of the probabilities to the truth, 0 to 2.
        bins: [3, 15], pooled over all queries, by the probability of the predicted class: number
            of queries, sum of those probabilities, number of right predictions.

    Example:
        >>> sure = np.array([[[9.0, 0.0], [0.0, 9.0]]])
        >>> measure(sure, np.array([[0, 0]])).accuracy.tolist()
        [0.5]
    """

    accuracy: Float64Array
    balanced_accuracy: Float64Array
    log_loss: Float64Array
    brier: Float64Array
    bins: Float64Array

    def __len__(self) -> int:
        return len(self.accuracy)

    @property
    def ece(self) -> float:
        """Expected calibration error: top label, 15 equal bins, pooled over all queries."""
        return expected_calibration_error(self.bins)


@dataclass(frozen=True, eq=False)
class Answers:
    """What was said of every query, from which any metric can be computed later.

    Attributes:
        scores: log-probabilities, float32 [episodes, queries, classes].
        labels: the true classes, [episodes, queries].

    Example:
        >>> sure = Answers(np.log([[[0.8, 0.2], [0.6, 0.4]]]), np.array([[0, 1]]))
        >>> measure(sure.scores, sure.labels).accuracy.tolist()
        [0.5]
    """

    scores: NDArray[Any]
    labels: NDArray[np.int64]


PER_EPISODE = tuple(item.name for item in fields(EpisodeMetrics) if item.name != "bins")


def measure(scores: NDArray[Any], labels: NDArray[np.int64]) -> EpisodeMetrics:
    """Compare scores with the truth.

    Args:
        scores: unnormalised log-probabilities [tasks, queries, classes].
        labels: the true classes [tasks, queries].

    Returns:
        One number per task and metric.

    Example:
        >>> scores = np.log([[[0.8, 0.2], [0.6, 0.4]]])
        >>> result = measure(scores, np.array([[0, 1]]))
        >>> result.log_loss.round(3).tolist(), result.brier.round(2).tolist()
        ([0.57], [0.4])
    """
    hit = np.argmax(scores, axis=-1) == labels
    # Classes first, [classes, tasks, queries]: numpy is slow along a last axis of a few.
    logits = np.array(np.moveaxis(scores, -1, 0), dtype=np.float64, order="C")
    logits -= logits.max(axis=0)
    probability = np.exp(logits)
    total = probability.sum(axis=0)
    probability /= total
    confidence = 1.0 / total  # that of the highest score
    truth = labels == np.arange(len(logits))[:, None, None]
    members = truth.sum(axis=2).T
    found = (truth & hit).sum(axis=2).T
    has_queries = members > 0
    recall = np.where(has_queries, found / np.maximum(members, 1), 0.0)
    loss = np.log(total) - np.take_along_axis(logits, labels[None], axis=0)[0]
    # Bins are open below and closed above, as in Naeini, Cooper and Hauskrecht (2015).
    place = np.clip(np.ceil(confidence * N_BINS).astype(np.int64) - 1, 0, N_BINS - 1).ravel()
    return EpisodeMetrics(
        accuracy=hit.mean(axis=1),
        balanced_accuracy=recall.sum(axis=1) / has_queries.sum(axis=1),
        log_loss=loss.mean(axis=1),
        brier=np.square(probability - truth).sum(axis=0).mean(axis=1),
        bins=np.stack(
            [
                np.bincount(place, minlength=N_BINS).astype(np.float64),
                np.bincount(place, weights=confidence.ravel(), minlength=N_BINS),
                np.bincount(place, weights=hit.ravel().astype(np.float64), minlength=N_BINS),
            ]
        ),
    )


def join(parts: Sequence[EpisodeMetrics]) -> EpisodeMetrics:
    """Put the metrics of consecutive batches of episodes together."""
    per_episode = {
        name: np.concatenate([getattr(part, name) for part in parts]) for name in PER_EPISODE
    }
    return EpisodeMetrics(**per_episode, bins=np.sum([part.bins for part in parts], axis=0))


def expected_calibration_error(bins: Float64Array) -> float:
    """Mean gap between probability and accuracy over bins, weighted by their queries."""
    total = bins[0].sum()
    return float(np.abs(bins[1] - bins[2]).sum() / total) if total else 0.0
