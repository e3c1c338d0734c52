"""Known and new classes together: one probability over both.

A base class is there as the mean of its samples, a new one by its few supports, and how well a
query fits either is the method's `typicality`. Which half it belongs to is a logistic regression on
the best fit of either half, learnt where base classes played new ones (`_playing.py`), both halves
being equally frequent.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import expit, log_softmax, softmax

from fewview.engine._contract import Contract
from fewview.engine._state import Prepared, State
from fewview.engine.open_world._playing import (
    MOST_WEIGHT,
    KnownMeans,
    Played,
    known_means,
    play,
)
from fewview.engine.open_world._rejection import LEVELS, Thresholds, by_views, set_thresholds
from fewview.episodes._task import TaskSpec
from fewview.ground._errors import FewviewError
from fewview.numerics._batch import EpisodeBatch
from fewview.samples._data import MultiViewData

# A number of shots with fewer queries of either half than this tells nothing.
FEWEST = 20
# Factors of fits that are tried for the probabilities of known classes, over the spread of fits.
FACTORS = np.geomspace(0.05, 50.0, 20)
FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Known(State):
    """Base classes that queries may belong to, beside new ones.

    Attributes:
        classes: their means as supports.
        shots: numbers of supports of a new class that the gate was learnt with.
        gate: weights of the best fit among new classes, among known ones, of the number of views,
            and a constant, float64 [shots, 4]: log-odds of being new.
        factor: of fits to known classes, for their probabilities.
        limits: what is still usual among known classes, for rejecting.
        joint: quantiles at `LEVELS` of the better share of both halves, see `joint_share`.
    """

    classes: KnownMeans
    shots: tuple[int, ...]
    gate: FloatArray
    factor: float
    limits: Thresholds
    joint: FloatArray

    def joint_share(
        self, new: FloatArray, best_known: FloatArray, views: NDArray[np.int64]
    ) -> FloatArray:
        """Share of samples, new or known, that fit worse the best class of either half, [n].

        From the same share among new classes alone. A query that fits one of many classes is more
        often usual somewhere than it would be in its own class.
        """
        out: FloatArray = np.interp(
            better_share(self.limits, new, best_known, views), self.joint, LEVELS
        )
        return out

    def halves(
        self, method: Contract, batch: EpisodeBatch, prepared: Prepared
    ) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """For the queries of one scaled task without known classes.

        Returns:
            new: probability of being new, [n].
            known: probabilities of the known classes if it is not, [n, C].
            best_new: fit to every new class, [n, way].
            best_known: best fit to known classes, [n].
        """
        with torch.no_grad():
            found = method.typicality(self.classes.added_to(batch), prepared.state)[0]
        fits = found.double().cpu().numpy()
        few, fits = fits[:, : batch.way], fits[:, batch.way :]
        counts = torch.bincount(batch.support_labels[0], minlength=batch.way).cpu().numpy()
        place = np.abs(float(np.median(counts)) - np.array(self.shots)).argmin()
        views = batch.query_mask[0].sum(-1).cpu().numpy()
        table = np.stack([few.max(1), fits.max(1), views, np.ones(len(few))], axis=1)
        return (
            expit(table @ self.gate[place]),
            softmax(self.factor * fits, axis=1),
            few,
            fits.max(1),
        )


def learn_known(method: Contract, base: MultiViewData, task: TaskSpec, prepared: Prepared) -> Known:
    """Learn from unscaled base classes, and what was prepared of them, to tell known from new."""
    settled = method.settled(prepared.state)
    found = play(settled, base, task)
    shots, gates = [], []
    for shot in np.unique(found.shots).tolist():
        rows = found.shots == shot
        if min(found.new[rows].sum(), (~found.new[rows]).sum()) >= FEWEST:
            shots.append(shot)
            gates.append(_gate(found, rows))
    if not shots:
        raise FewviewError(
            "known and new classes cannot be told apart: base classes have too few samples to hold "
            "some out; four classes with 6 samples or more are needed"
        )
    limits = Thresholds((MOST_WEIGHT,), np.array([by_views(found, ~found.new, base.n_views)]))
    usual = set_thresholds(settled, base, task)
    fits = usual.share_below(found.best_new, found.shots, found.views)
    better = better_share(limits, fits, found.best_known, found.views)
    # The careful one of both halves, so that neither is rejected more often than asked.
    joint = np.minimum(*(np.quantile(better[half], LEVELS) for half in (found.new, ~found.new)))
    means = known_means(method, base, prepared)
    return Known(means, tuple(shots), np.array(gates), _factor(found), limits, joint)


def better_share(
    limits: Thresholds, new: FloatArray, best_known: FloatArray, views: NDArray[np.int64]
) -> FloatArray:
    """The larger of the shares that fit worse, among new and among known classes, [n]."""
    known = limits.share_below(best_known, np.zeros(len(views)), views)
    return np.maximum(new, known)


def usual_known(
    method: Contract, base: MultiViewData, task: TaskSpec, prepared: Prepared
) -> Known | None:
    """`learn_known`; None where there are too few base classes or samples."""
    try:
        return learn_known(method, base, task, prepared)
    except FewviewError:
        return None  # asking for it later says why


def _gate(found: Played, rows: NDArray[np.bool_]) -> FloatArray:
    """Logistic regression of being new, both halves counting alike."""
    table = np.stack([found.best_new[rows], found.best_known[rows], found.views[rows]], axis=1)
    centre, scale = table.mean(axis=0), table.std(axis=0)
    scale[scale < 1e-12] = 1.0  # all queries may have as many views
    from sklearn.linear_model import LogisticRegression  # takes a second to load

    model = LogisticRegression(class_weight="balanced")
    model.fit((table - centre) / scale, found.new[rows])
    weights = model.coef_[0] / scale
    return np.append(weights, model.intercept_[0] - weights @ centre)


def _factor(found: Played) -> float:
    """The factor of fits with the likeliest known classes."""
    spread = max(float(np.std(np.concatenate([f.max(1) for f, _ in found.among_known]))), 1e-12)

    def loss(factor: float) -> float:
        parts = [
            -np.take_along_axis(log_softmax(factor * fits, axis=1), own[:, None], 1)[:, 0]
            for fits, own in found.among_known
        ]
        return float(np.concatenate(parts).mean())

    return float(min(FACTORS / spread, key=loss))
