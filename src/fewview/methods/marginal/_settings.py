"""The settings of Marginal, and choosing them on episodes of base classes alone.

Some base classes play the novel ones, the others stay base classes, a few times over. Half of the
pretended tasks have balanced queries, half have class shares drawn from a Dirichlet distribution.
Novel classes are never seen here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import one_hot

from fewview.episodes._pretended import MOST_BASE_CLASSES, Fold, draw_folds
from fewview.episodes._sampler import Episodes
from fewview.episodes._task import TaskSpec
from fewview.ground._errors import FewviewError
from fewview.samples._data import MultiViewData

# Tried one after the other, the present value always among them; a value may change several
# settings. The last is about queries that are used together. What is here helps on base
# classes of some of six data sets (benchmarks/experiments); what helps on none is not.
GRID: tuple[tuple[dict[str, Any], ...], ...] = (
    ({"scaling": "natural"}, {"scaling": "standard+unit"}, {"scaling": "standard"}),
    ({"components": 128}, {"components": 64}, {"components": 32}),
    ({"shrinkage": 0.4}, {"shrinkage": 0.2}, {"shrinkage": 0.7}),
    (
        {"prior": 0.65, "prior_detail": 0.5},
        {"prior": 0.65, "prior_detail": 0.0},
        {"prior": 0.65, "prior_detail": 1.0},
        {"prior": 0.3, "prior_detail": 0.5},
    ),
    (
        {"temperature": 0.5, "anneal": 0.2},
        {"temperature": 0.25, "anneal": 0.2},
        {"temperature": 1.0, "anneal": 0.2},
        {"temperature": 1.0, "anneal": 0.7},
    ),
)
TOGETHER = {"temperature", "anneal"}
# Settings of the model are tried where pretended base classes are at least so large a share of
# the real ones: with clearly fewer of them, fewer components and more shrinkage look better than
# they are.
LARGE_SHARE = 0.8
# A value must be better by so many standard errors over folds and by so much, or the present one
# stays: tasks of one fold share their classes, and chance differences between them are large. On
# folds that took no part in the choice, one or two standard errors gained more than none or three.
# For settings of the rounds one point is not enough: where novel classes are further from the base
# classes than those are from each other, a weaker balance that gains a point on base classes costs
# several (docs/marginal.md).
PATIENCE = 1.5
SMALLEST_GAIN = {"model": 0.01, "rounds": 0.02}
# Of the folds, so many decide whether a value is worth the others: most are not.
FIRST_FOLDS = 3
# Temperatures of the final scores that calibration chooses from.
CALIBRATIONS = tuple(float(value) for value in np.geomspace(0.05, 2.0, 38))


@dataclass(frozen=True)
class Settings:
    """Everything that `settings="auto"` chooses.

    The values here are the stated defaults, but for `alone`, see `Marginal.resolved`.
    """

    scaling: str = "natural"  # of every view, before its principal components
    components: int = 128  # most principal components of a view
    shrinkage: float = 0.4  # of the covariance within classes towards its diagonal in every view
    prior: float = 0.65  # share of what is assumed beforehand in the covariance of class means
    prior_detail: float = 0.5  # whether that is like samples (0) or like base classes (1)
    temperature: float = 0.5  # factor of scores inside the rounds
    anneal: float = 0.2  # share of `temperature` that the first round starts with
    balance: float | None = None  # 0 (class masses free) to 1 (equal); None: by evidence
    # Factor of the final scores; None: `alone`, or for queries together one for every task.
    calibration: float | None = None
    alone: float = 0.7  # factor of scores by supports alone; not chosen

    @property
    def by_itself(self) -> float:
        """Factor of the scores of a query by itself."""
        return self.alone if self.calibration is None else self.calibration


@dataclass(frozen=True)
class SettingsChoice:
    """What was chosen and why."""

    settings: Settings  # the choice
    accuracy: float  # of the pretended tasks with it; NaN where nothing was tried
    reason: str  # one sentence
    seconds: float = 0.0  # time it took


# Scores the queries of pretended tasks.
Scorer = Callable[[Settings, Fold, Episodes], Tensor]


def choose_settings(
    base: MultiViewData,
    task: TaskSpec,
    seed: int,
    score: Scorer,
    start: Settings,
    fixed: Collection[str] = (),
    transductive: bool = True,
) -> SettingsChoice:
    """Choose settings one at a time by mean accuracy on pretended tasks.

    A value replaces the present one where it is clearly better over several divisions of the base
    classes: with a few dozen tasks smaller differences are chance. Calibration comes last, by the
    Brier score on the balanced tasks. The base set is not scaled; settings that are `fixed` stay as
    they are in `start`, as do all where nothing can be tried.
    """
    began, settings = perf_counter(), start
    try:
        parts = draw_folds(base, task, seed)
    except FewviewError as error:
        kept = "" if start.scaling == Settings.scaling else f" (scaling {start.scaling} as given)"
        reason = f"settings are the defaults{kept}, not chosen: {error}"
        return SettingsChoice(settings, float("nan"), reason, perf_counter() - began)
    best = _accuracy(settings, parts, score)
    tried = 1
    possible = min(len(base.classes), MOST_BASE_CLASSES)
    large = min(len(part.known.classes) for part in parts) >= LARGE_SHARE * possible
    for values in GRID:
        names = values[0].keys()
        kind = "rounds" if names <= TOGETHER else "model"
        allowed = transductive if kind == "rounds" else large
        if names & set(fixed) or not allowed:
            continue
        options = [option for v in values if (option := replace(settings, **v)) != settings]
        tried += len(options)
        gains = [_gain(option, best, parts, score) for option in options]
        gain, option = max(zip(gains, options, strict=True), key=lambda pair: pair[0].mean())
        chance = PATIENCE * gain.std(ddof=1) / np.sqrt(len(gain))
        if gain.mean() > max(chance, SMALLEST_GAIN[kind]):
            settings, best = option, best + gain
    if "calibration" not in fixed:
        settings = replace(settings, calibration=_calibrate(settings, parts, score))
    reason = (
        f"chosen on {sum(len(e) for part in parts for e in part.episodes)} tasks of base "
        f"classes, {tried} settings tried"
    )
    return SettingsChoice(settings, float(best.mean()), reason, perf_counter() - began)


def _gain(
    option: Settings, best: NDArray[np.float64], parts: list[Fold], score: Scorer
) -> NDArray[np.float64]:
    """What an option gains in every fold, or in the first ones where it gains nothing there."""
    first = _accuracy(option, parts[:FIRST_FOLDS], score) - best[:FIRST_FOLDS]
    if first.mean() <= 0:
        return first
    rest = _accuracy(option, parts[FIRST_FOLDS:], score) - best[FIRST_FOLDS:]
    return np.concatenate([first, rest])


def _scored(
    settings: Settings, part: Fold, score: Scorer, kinds: int | None = None
) -> list[tuple[Tensor, Tensor]]:
    """Scores and labels of the queries of a fold: of all kinds of tasks, or of the first ones."""
    return [
        (score(settings, part, episodes).double(), torch.from_numpy(episodes.query_labels))
        for episodes in part.episodes[:kinds]
    ]


def _accuracy(settings: Settings, parts: list[Fold], score: Scorer) -> NDArray[np.float64]:
    """Accuracy in every fold, balanced and unbalanced tasks counting alike."""
    found = []
    for part in parts:
        right = [scores.argmax(-1) == labels for scores, labels in _scored(settings, part, score)]
        found.append(np.mean([float(kind.double().mean()) for kind in right]))
    return np.array(found)


def _calibrate(settings: Settings, parts: list[Fold], score: Scorer) -> float:
    """Factor of the final scores with the best Brier score on balanced tasks.

    The likelihood would be ruled by a few mistakes that the model is very sure of, and make
    everything else too unsure. So would unbalanced tasks, whose mistakes come from the balance that
    is assumed: probabilities are those of queries as `TaskSpec` draws them by default.
    """
    plain = replace(settings, calibration=1.0)
    scored = [item for part in parts for item in _scored(plain, part, score, kinds=1)]

    def brier(factor: float) -> float:
        losses = []
        for scores, labels in scored:
            wrong = torch.softmax(factor * scores, dim=-1) - one_hot(labels, scores.shape[-1])
            losses.append(wrong.square().sum(-1).mean())
        return float(torch.stack(losses).mean())

    return min(CALIBRATIONS, key=brier)
