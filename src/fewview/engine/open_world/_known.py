"""Known and new classes together: one probability over both.

A base class is there as the mean of its samples, a new one by its few supports, and how well a
query fits either is the method's `typicality`. Which half it belongs to is a logistic regression on
the difference of the best fits of either half, learnt where base classes played new ones
(`_playing.py`), both halves being equally frequent. Fits are brought together at both ends (areas
of the hyperbolic sine): a category that base classes do not have makes some of them huge. A weight
for either half and one for the number of views were tried: with few base classes they say more of
the model that lacks one of them than of the one that is used.
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
# Most steps to the gate; half a dozen are enough.
NEWTON_STEPS = 50
FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Known(State):
    """Base classes that queries may belong to, beside new ones.

    Attributes:
        classes: their means as supports.
        shots: numbers of supports of a new class that the gate was learnt with.
        gate: size of fits, weight of the difference and a constant, float64 [shots, 3]: log-odds of
            being new, see `log_odds`.
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
        best_new, best_known = few.max(1), fits.max(1)
        new = expit(log_odds(self.gate[place], best_new, best_known))
        return new, softmax(self.factor * fits, axis=1), few, best_known


def log_odds(gate: FloatArray, best_new: FloatArray, best_known: FloatArray) -> FloatArray:
    """Log-odds of being new, [n], from the best fit of either half."""
    size, weight, constant = gate
    step = np.arcsinh(best_new / size) - np.arcsinh(best_known / size)
    out: FloatArray = weight * step + constant
    return out


def learn_known(
    method: Contract,
    base: MultiViewData,
    task: TaskSpec,
    prepared: Prepared,
    usual: Thresholds | None = None,
) -> Known:
    """Learn from unscaled base classes, and what was prepared of them, to tell known from new.

    `usual` are the thresholds of `set_thresholds`, where they are there already.
    """
    found = play(method, base, task)
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
    table = by_views(found, found.own, ~found.new, base.n_views)
    limits = Thresholds((MOST_WEIGHT,), np.array([[[table]]]))
    usual = usual or set_thresholds(method, base, task)
    fits = np.empty(len(found.new))
    for whole in (False, True):
        rows = found.whole == whole
        args = found.few.max(1)[rows], found.shots[rows], found.views[rows]
        fits[rows] = usual.share_below(*args, found.few.shape[1], whole)
    better = better_share(limits, fits, found.known.max(1), found.views)
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
    method: Contract,
    base: MultiViewData,
    task: TaskSpec,
    prepared: Prepared,
    usual: Thresholds | None = None,
) -> Known | None:
    """`learn_known`; None where there are too few base classes or samples."""
    try:
        return learn_known(method, base, task, prepared, usual)
    except FewviewError:
        return None  # asking for it later says why


def _gate(found: Played, rows: NDArray[np.bool_]) -> FloatArray:
    """Logistic regression of being new, both halves counting alike, by Newton's method."""
    size = max(float(np.median(np.abs(found.own[rows]))), 1e-12)
    best = found.few[rows].max(1), found.known[rows].max(1)
    table = log_odds(np.array([size, 1.0, 0.0]), *best)
    scale = max(float(table.std()), 1e-12)
    new = found.new[rows].astype(np.float64)
    counts = np.where(new == 1, 1 / new.mean(), 1 / (1 - new).mean()) / 2
    about = np.stack([table / scale, np.ones_like(table)], axis=1)
    ridge = np.array([1.0, 0.0])  # a weight of size one costs half

    def loss(gate: FloatArray) -> float:
        odds = about @ gate
        return float(counts @ (np.logaddexp(0, odds) - new * odds) + ridge @ gate**2 / 2)

    gate, value = np.zeros(2), loss(np.zeros(2))
    for _ in range(NEWTON_STEPS):
        likely = expit(about @ gate)
        slope = about.T @ (counts * (likely - new)) + ridge * gate
        bend = (about.T * (counts * likely * (1 - likely))) @ about + np.diag(ridge)
        step = np.linalg.solve(bend + 1e-12 * np.eye(2), slope)
        while loss(gate - step) > value and np.abs(step).max() > 1e-12:
            step = step / 2
        gate, before, value = gate - step, value, loss(gate - step)
        if before - value <= 1e-14 * abs(before):
            break
    return np.array([size, gate[0] / scale, gate[1]])


def _factor(found: Played) -> float:
    """The factor of fits with the likeliest known classes."""
    fits = found.known[~found.new]
    own = found.place[~found.new, None] - found.few.shape[1]
    spread = max(float(np.std(fits.max(1))), 1e-12)

    def loss(factor: float) -> float:
        return -float(np.take_along_axis(log_softmax(factor * fits, axis=1), own, 1).mean())

    return float(min(FACTORS / spread, key=loss))
