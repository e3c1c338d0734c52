"""Rejection, known beside new classes, prediction sets: three answers learnt on pretended tasks.

How well a query fits a class is a number (`class_fits`), and so is how far a class is below the
most probable one. What is still usual (`UsualValues`) is learnt from base classes that are held out
as new ones (`pretend`), at the first call that needs it, and kept in `FittedBase.calibrations`.
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import expit, log_softmax, softmax

from fewview.episodes.batch import EpisodeBatch
from fewview.episodes.task import TaskSpec
from fewview.errors import FewviewError, FewviewWarning
from fewview.methods.base import Contract, State
from fewview.methods.estimator.class_fits import ClassMeans, class_fits
from fewview.methods.estimator.fitted_base import FittedBase, usual_task
from fewview.methods.estimator.pretend import (
    BoolArray,
    FloatArray,
    IntArray,
    Pretended,
    pretend,
    pretend_answers,
)
from fewview.methods.estimator.usual_values import LEVELS, LOWEST, UsualValues
from fewview.samples._data import MultiViewData
from fewview.samples._rates import largest_rate

if TYPE_CHECKING:
    from fewview.methods.estimator.method import Method


def learn_thresholds(found: Pretended) -> UsualValues:
    """How well samples fit the best of 1, 2, ... few-shot classes, their own among them.

    Groups are by whether supports have all views, shots, number of classes, number of views.
    """
    few, ways = found.few[found.new], found.few.shape[1]
    values = np.concatenate([few[:, : way + 1].max(1) for way in range(ways)])
    whole, shots, views, label = (
        np.tile(column[found.new], ways)
        for column in (found.whole, found.shots, found.views, found.label)
    )
    way = np.repeat(np.arange(1, ways + 1), len(few))
    return UsualValues.of(values, label, [whole, shots, way, views], fewest=50)


# ------------------------------------------------------------------ known beside new classes


@dataclass(frozen=True, eq=False)
class KnownClasses(State):
    """Base classes that queries may belong to, beside new ones.

    Which half a query belongs to is a logistic regression on the difference of the best fits of
    either half, both being equally frequent. A weight for either half and one for the number of
    views were tried: with few base classes they say more of the model that lacks one of them than
    of the one that is used.

    Attributes:
        classes: their means as supports.
        shots: numbers of supports of a new class that the gate was learnt with.
        gate: size of fits, weight of the difference and a constant, float64 [shots, 3]: log-odds of
            being new, see `log_odds`.
        factor: of fits to known classes, for their probabilities.
        usual: fits to the own class, by number of views.
        joint: quantiles at `LEVELS` of the larger share of both halves, see `joint_share`.
    """

    classes: ClassMeans
    shots: tuple[int, ...]
    gate: FloatArray
    factor: float
    usual: UsualValues
    joint: FloatArray

    @property
    def labels(self) -> tuple[Hashable, ...]:
        """Labels of the known classes."""
        return self.classes.labels

    @classmethod
    def of(
        cls, found: Pretended, classes: ClassMeans, thresholds: UsualValues
    ) -> KnownClasses | None:
        """Learn to tell known from new; None where there are too few queries of either half."""
        gates = {}
        for shot in np.unique(found.shots).tolist():
            rows = found.shots == shot
            if min(found.new[rows].sum(), (~found.new[rows]).sum()) >= 20:
                gates[shot] = _learn_gate(found, rows)
        if not gates:
            return None
        old, best = ~found.new, found.few.max(1)
        usual = UsualValues.of(found.own[old], found.label[old], [found.views[old]], fewest=50)
        columns = [found.whole, found.shots, found.few.shape[1], found.views]
        share = np.maximum(
            thresholds.share_below(best, columns),
            usual.share_below(found.known.max(1), [found.views]),
        )
        # The careful one of both halves, so that neither is rejected more often than asked.
        joint = np.minimum(np.quantile(share[found.new], LEVELS), np.quantile(share[old], LEVELS))
        gate = np.array(list(gates.values()))
        return cls(classes, tuple(gates), gate, _learn_factor(found), usual, joint)

    def joint_share(self, new: FloatArray, best_known: FloatArray, views: IntArray) -> FloatArray:
        """Share of samples, new or known, that fit worse the best class of either half, [n].

        From the same share among new classes only. A query that fits one of many classes is more
        often usual somewhere than it would be in its own class.
        """
        share = np.maximum(new, self.usual.share_below(best_known, [views]))
        return np.asarray(np.interp(share, self.joint, LEVELS))

    def halves(self, fits: FloatArray, batch: EpisodeBatch) -> tuple[FloatArray, FloatArray]:
        """Probability [n] of being new, and of every known class if a query is not, [n, C].

        `fits` are of the queries of one task to new and to known classes, [n, way + C].
        """
        few, known = np.split(fits, [batch.way], axis=1)
        counts = torch.bincount(batch.support_labels[0], minlength=batch.way).cpu().numpy()
        place = np.abs(float(np.median(counts)) - np.array(self.shots)).argmin()
        new = expit(log_odds(self.gate[place], few.max(1), known.max(1)))
        return new, softmax(self.factor * known, axis=1)


def log_odds(gate: FloatArray, best_new: FloatArray, best_known: FloatArray) -> FloatArray:
    """Log-odds of being new, [n], from the best fit of either half.

    Fits are brought together at both ends (areas of the hyperbolic sine): a category that base
    classes do not have makes some of them huge.
    """
    size, weight, constant = gate
    step = np.arcsinh(best_new / size) - np.arcsinh(best_known / size)
    return np.asarray(weight * step + constant)


def _learn_gate(found: Pretended, rows: BoolArray) -> FloatArray:
    """Logistic regression of being new, both halves counting alike."""
    from sklearn.linear_model import LogisticRegression  # half a second, for no other answer

    size = max(float(np.median(np.abs(found.own[rows]))), 1e-12)
    best = found.few[rows].max(1), found.known[rows].max(1)
    table = log_odds(np.array([size, 1.0, 0.0]), *best)
    scale = max(float(table.std()), 1e-12)
    gate = LogisticRegression(C=1, class_weight="balanced", solver="newton-cholesky", tol=1e-8)
    gate.fit(table[:, None] / scale, found.new[rows])
    return np.array([size, gate.coef_[0, 0] / scale, gate.intercept_[0]])


def _learn_factor(found: Pretended) -> float:
    """The factor of fits with the likeliest known classes."""
    fits = found.known[~found.new]
    spread = max(float(np.std(fits.max(1))), 1e-12)

    def loss(factor: float) -> float:
        return -float(log_softmax(factor * fits, axis=1)[:, 0].mean())

    return float(min(np.geomspace(0.05, 50.0, 20) / spread, key=loss))


# ------------------------------------------------------------------ learnt when asked for


def _base_of(method: Contract, fitted: FittedBase) -> FittedBase:
    """What was learnt from the base set, without views that only supports have."""
    return method.base if isinstance(method.base, FittedBase) else fitted


def _rows(base: FittedBase, what: str) -> MultiViewData:
    """Labelled base samples."""
    if not base.classes:
        raise FewviewError(
            f"{what} is learnt from labelled base classes and there are none; give base=..., or "
            "call fit_base(base) before fit"
        )
    if base.rows is None and len(base.classes) < 4:
        raise FewviewError(
            f"{what} is learnt from at least 4 base classes, and this model has {len(base.classes)}"
        )
    if base.rows is None:
        raise FewviewError(
            f"{what} was not learnt before this model was saved, and its base samples are not "
            "here; call fit_base with them, or save with calibrate=True"
        )
    return base.rows


def _learnt(method: Contract, fitted: FittedBase, kind: str, what: str) -> Any:
    """Thresholds or known classes; both are learnt at the first call, then kept."""
    base = _base_of(method, fitted)
    task = base.task
    if not isinstance(method.base, FittedBase) and base.rows is not None and base.classes:
        task = usual_task(base.rows)  # the task of the supports is another at every `fit`
    gaps = task.eta, task.missing.describe()
    if (kind, *gaps) not in base.calibrations:
        rows = _rows(base, what)
        found = pretend(method, rows, task, base.seed)
        thresholds = learn_thresholds(found)
        base.calibrations["thresholds", *gaps] = thresholds
        known = KnownClasses.of(found, ClassMeans.of(method, rows, base), thresholds)
        if known is not None:
            base.calibrations["known", *gaps] = known
    return base.calibrations.get((kind, *gaps))


def known_classes(method: Contract, fitted: FittedBase) -> KnownClasses:
    """Base classes as classes of queries."""
    found: KnownClasses | None = _learnt(method, fitted, "known", 'what classes="all" needs')
    if found is None:
        raise FewviewError(
            "known classes cannot be told from new ones: base classes have too few samples to "
            "hold some out; four classes with 6 samples or more are needed"
        )
    return found


def _pattern_columns(mask: BoolArray) -> list[IntArray]:
    """The number of views of queries, and which they are, as numbers: [n] both; mask is [n, V]."""
    return [mask.sum(1), mask @ (1 << np.arange(mask.shape[1]))]


def _limits(method: Contract, fitted: FittedBase, task: TaskSpec) -> UsualValues:
    """Limits of prediction sets for tasks like this one, or like the nearest one that was saved."""
    base = _base_of(method, fitted)
    # Rates by tenths, and gaps at random: limits serve all supports of one way, shot and rate.
    eta = min(round(task.eta, 1), largest_rate(base.reference.n_views))
    wanted = task.way, min(task.shots), eta
    kept = [key[1:] for key in base.calibrations if isinstance(key, tuple) and key[0] == "sets"]
    if wanted not in kept and base.rows is None and kept:
        wanted = min(kept, key=lambda one: [abs(a - b) for a, b in zip(one, wanted, strict=True)])
    elif wanted not in kept:
        rows = _rows(base, "how large prediction sets must be")
        task = TaskSpec(way=task.way, shot=min(task.shots), eta=eta)
        below, label, views = pretend_answers(method, rows, task, base.seed)
        columns = _pattern_columns(views)
        found = UsualValues.of(below, label, columns, fewest=100, floor=False)
        base.calibrations["sets", *wanted] = found
    return cast(UsualValues, base.calibrations["sets", *wanted])


def calibrate_all(method: Method, fitted: FittedBase) -> None:
    """Learn what rejecting, known classes and prediction sets need, as far as base classes allow.

    Sets are for the task of the supports, or the one that was learnt for. Those of networks, which
    would have to be trained six times, are not learnt before they are asked for.
    """
    with suppress(FewviewError):
        known_classes(method, fitted)
    if not method.tags.trained:
        supports = getattr(method, "support_", None)
        with suppress(FewviewError):
            _limits(method, fitted, method._own_task(supports) if supports else fitted.task)


# ------------------------------------------------------------------ answers


def _fits(method: Method, batch: EpisodeBatch, known: KnownClasses | None) -> FloatArray:
    """How well the queries of one task fit its classes, then known ones, [n, way (+ C)]."""
    both = batch if known is None else known.classes.added_to(batch)
    fits: FloatArray = class_fits(method, both, method.fitted_)[0].double().cpu().numpy()
    return fits


def p_values(method: Method, query: MultiViewData) -> FloatArray:
    """Share of samples of a class that fit it worse than a query its best class, [n_query].

    With known classes too, where it is below for the best of either half.
    """
    known = method.known_
    thresholds: UsualValues = _learnt(
        method, method.fitted_, "thresholds", "a threshold for rejecting"
    )
    batch, rows, _ = method._task(query)
    fits = _fits(method, batch, known)
    few, counts = fits[:, : batch.way], torch.bincount(batch.support_labels[0]).cpu().numpy()
    views = batch.query_mask[0].sum(-1).cpu().numpy()
    columns = [bool(batch.support_mask.all()), counts[few.argmax(1)], batch.way, views]
    share = thresholds.share_below(few.max(1), columns)
    if known is not None:
        share = known.joint_share(share, fits[:, batch.way :].max(1), views)
    return share[rows]


def proba_of_all(method: Method, query: MultiViewData, inductive: bool) -> FloatArray:
    """Probabilities of new and known classes, [n_query, classes].

    Queries that look new are used together, where a method does so; the others would be in their
    way.
    """
    known = method.known_
    assert known is not None
    batch, rows, columns = method._task(query)
    if not batch.n_query:
        return np.zeros((0, len(method.classes_)))
    new, others = known.halves(_fits(method, batch, known), batch)
    scores = method._inductive(batch) if inductive else None
    if scores is None and method.tags.transductive:
        with torch.no_grad():
            quick = method.scores_inductive(batch, method.fitted_.state)
        if quick is not None:
            scores, together = quick[0].clone(), torch.from_numpy(np.flatnonzero(new >= 0.5))
            if len(together):
                part = batch.with_queries(together.to(batch.device))
                scores[together] = method.score_batch(part, method.fitted_)[0]
    if scores is None:
        scores = method.score_batch(batch, method.fitted_)[0]
    scores = method._even_where_unrelated(batch, scores).cpu()
    proba = softmax(scores.double().numpy(), axis=-1)[:, columns]
    both = np.concatenate([new[:, None] * proba, (1 - new)[:, None] * others], axis=1)
    return both[rows]


def inside_sets(method: Method, proba: FloatArray, mask: BoolArray, coverage: float) -> BoolArray:
    """Classes in the prediction sets, bool [n, classes].

    Args:
        method: fitted.
        proba: probabilities of the classes, [n, classes].
        mask: views that queries have, bool [n, V].
        coverage: probability that the true class is in the set.
    """
    check_share("coverage", coverage)
    if method.known_ is not None:
        raise FewviewError(
            'sets are calibrated for new classes only; fit with classes="new" for them'
        )
    usual = _limits(method, method.fitted_, method._own_task(method.support_))
    logs = np.log(np.maximum(proba, 1e-300))
    below = logs - logs.max(1, keepdims=True)
    n_views = _base_of(method, method.fitted_).reference.n_views  # supports may have more
    columns, least = _pattern_columns(mask[:, :n_views]), 1 - coverage - 1e-9
    lost = usual.share_below(np.full(len(proba), LOWEST), columns) >= least
    if lost.any():
        warnings.warn(
            f"a coverage of {coverage:g} is more than so few base classes can show, so the sets of "
            f"{int(lost.sum())} of {len(lost)} queries have all classes; ask for less, or give "
            "more base classes",
            FewviewWarning,
            stacklevel=3,
        )
    every = [np.repeat(column, proba.shape[1]) for column in columns]
    share = usual.share_below(below.reshape(-1), every).reshape(below.shape)
    return np.asarray((share >= least) | (below == 0))


def check_share(name: str, value: Any) -> None:
    """Refuse what is no share between 0 and 1."""
    number = isinstance(value, (int, float, np.floating)) and not isinstance(value, bool)
    if not number or not 0 < value < 1:
        raise FewviewError(f"{name} is {value!r}; give a share between 0 and 1, such as 0.05")


def rejection_label(classes: NDArray[Any], wanted: Hashable) -> Hashable:
    """The label of rejected queries: -1 among numbers, else `"unknown"`, unless one is given."""
    usual = -1 if classes.dtype.kind in "iuf" else "unknown"
    label = usual if wanted is None else wanted
    if label in set(classes.tolist()):
        raise FewviewError(f"{label!r} is a class itself; give reject_label=... for rejected ones")
    return label


def with_label(predicted: NDArray[Any], rejected: BoolArray, label: Any) -> NDArray[Any]:
    """Labels in which some are replaced; of objects where the kinds do not go together."""
    return as_labels(
        [label if gone else kept for kept, gone in zip(predicted.tolist(), rejected, strict=True)]
    )


def as_labels(values: list[Any]) -> NDArray[Any]:
    """An array of labels; of objects where the kinds do not go together."""
    kinds = {type(value) for value in values}
    if kinds <= {int} or kinds <= {float} or kinds <= {str}:
        return np.array(values)
    out = np.empty(len(values), dtype=object)
    out[:] = values
    return out
