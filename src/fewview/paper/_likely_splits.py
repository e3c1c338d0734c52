"""Which class split did the paper use? Weights of class splits, given rows that no setting moves.

The paper used one class split and does not say which. Its rows of Proto and Match are nearest
class means and nearest neighbours, without a setting of ours, so they tell which splits are
possible; UGDA's own row, and every row that is to be judged, is never looked at. The model was
written down before any split was weighed with it; what was changed after cub had been weighed, and
before any other method was run on a likely split, is said in brackets:

- All candidates are equally likely beforehand.
- The paper's twelve numbers (two methods, six missing rates) minus ours on a split are Gaussian
  around zero. Two things make them differ, and the covariance, the same for all splits, is their
  sum.
- Sampling: the paper's number is a mean over `PAPER_TASKS` tasks, so its printed standard error
  says how much one task scatters; ours is a mean over n tasks that scatter alike (8 to 13 points
  in both). The variance is se^2 (1 + PAPER_TASKS / n). Rates and methods share tasks, so these
  errors go together: over the tasks of the listed splits of cub, handwritten and scene15 the
  accuracies at neighbouring rates correlate by 0.63 to 0.78, five steps apart by 0.26 to 0.47, and
  the two methods at one rate by 0.54 to 0.99. The model has `SHARED` to the power of the steps,
  once more for the other method, for their side and for ours. Taken as independent the twelve
  would count one level twelve times.
- What we do not reproduce (features, scaling, who is padded with what) may move a method as a whole
  and, apart from that, every single number. Both by the same unknown allowance, one of
  `ALLOWANCES` points, equally likely beforehand; the likelihood of a split is the mean over them.
  (The first version fixed it at one point. Then the best split of cub fitted far better than its
  allowance, chi-squared 1.7 for twelve numbers, so the rows now decide how much is needed.)

Weights are these likelihoods, adding up to one. Many splits have much the same rows, so the weight
is spread, and what other methods give is a mean over likely splits with a spread of its own (25 of
them with the tables' episodes, not 10 with more, since splits differ more than episodes; of sets
with wide views ten episodes each, for the same reason and because they are slow). Where
even the best split is far off (`p_value`), weights only rank what does not fit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp
from scipy.stats import chi2

from fewview.paper._printed import TRAINED, Printed, printed
from fewview.paper._studies import WEIGHING, WIDE_EPISODES, Part, Wish, asked_for, table_parts

PAPER_TASKS = 400
SHARED = 0.75
ALLOWANCES = (0.25, 0.5, 1.0, 2.0)
# The likely splits: the heaviest up to this share of the weight, and no more than this many.
SHARE = 0.95
MOST = 25
MOST_TRAINED = 5

Numbers = NDArray[np.float64]
Key = tuple[str, float]  # method as printed, missing rate


class Found(Protocol):
    """Results of a part, computed now, stored or recorded."""

    @property
    def part(self) -> Part:
        """What was run."""
        ...

    def per_split(self, method: str, eta: float) -> dict[int, float]:
        """Mean accuracy in percent of every class split, for a method as typed."""
        ...


@dataclass(frozen=True)
class Likely:
    """How likely class splits are: number of the split -> weight, the heaviest first."""

    weights: Mapping[int, float]
    distance: float  # of the heaviest one, squared, in sampling errors alone
    n_numbers: int

    @property
    def p_value(self) -> float:
        """How often sampling alone takes numbers as far from the heaviest split as the paper's are.

        The best of many splits fits better than that by chance, so a small one is a misfit.
        """
        return float(chi2.sf(self.distance, self.n_numbers))

    @property
    def top(self) -> dict[int, float]:
        """The likely splits: the heaviest up to `SHARE` of the weight, at most `MOST`."""
        below = np.cumsum([0.0, *self.weights.values()])[:-1] < SHARE
        return dict([*self.weights.items()][: min(int(below.sum()), MOST)])

    def moments(self, numbers: Mapping[int, float]) -> tuple[float, float, float] | None:
        """Mean and deviation over the likely splits that have a number, by weight; their weight."""
        there = [split for split in self.top if split in numbers]
        if not there:
            return None
        weights = np.array([self.weights[split] for split in there])
        values = np.array([numbers[split] for split in there])
        mean = np.average(values, weights=weights)
        spread = np.sqrt(np.average((values - mean) ** 2, weights=weights))
        return float(mean), float(spread), float(weights.sum())


def paper_numbers(table: str) -> dict[Key, Printed]:
    """The numbers of one of the paper's tables of accuracies."""
    return {(m, eta): n for (name, _, m, eta), n in printed().items() if name == table}


def numbers_of(found: Sequence[Found], method: str, eta: float) -> dict[int, float]:
    """Number of the split -> accuracy of a method of the paper, from whatever part has it."""
    out: dict[int, float] = {}
    for item in found:
        if method in item.part.methods:
            out |= item.per_split(item.part.methods[method], eta)
    return out


def weigh(found: Found, paper: Mapping[Key, Printed]) -> Likely | None:
    """Weigh the class splits that have all numbers of the weighing rows; None without any."""
    part = found.part
    keys = [(m, eta) for m in WEIGHING for eta in part.grid.etas if (m, eta) in paper]
    ours = [found.per_split(part.methods.get(m, ""), eta) for m, eta in keys]
    splits = [split for split in ours[0] if all(split in row for row in ours)] if ours else []
    if not splits:
        return None
    gaps = np.array([[row[s] - paper[key].accuracy for s in splits] for key, row in
                     zip(keys, ours, strict=True)])  # fmt: skip
    errors = {key: paper[key].standard_error for key in keys}
    allowed = [log_density(gaps, covariance(errors, part.grid.episodes, a)) for a in ALLOWANCES]
    likelihood = logsumexp(allowed, axis=0)
    weights = np.exp(likelihood - logsumexp(likelihood))
    order = np.argsort(-weights, kind="stable").tolist()
    best = gaps[:, order[0]]
    distance = best @ np.linalg.solve(covariance(errors, part.grid.episodes), best)
    return Likely({splits[k]: float(weights[k]) for k in order}, float(distance), len(keys))


def log_density(gaps: Numbers, spread: Numbers) -> Numbers:
    """Gaussian log-densities around zero, up to a constant; one per column."""
    distances = (gaps * np.linalg.solve(spread, gaps)).sum(axis=0)
    out: Numbers = -0.5 * (distances + np.linalg.slogdet(spread)[1])
    return out


def covariance(errors: Mapping[Key, float], episodes: int, allowance: float = 0.0) -> Numbers:
    """Covariance of the paper's numbers minus ours, given the paper's standard errors."""
    other = np.array([[one != two for two, _ in errors] for one, _ in errors])
    rates = np.array([eta for _, eta in errors])
    steps = np.rint(10 * np.abs(rates[:, None] - rates))
    se = np.array([*errors.values()])
    sampling = SHARED ** (steps + other) * np.outer(se, se) * (1 + PAPER_TASKS / episodes)
    out: Numbers = sampling + allowance**2 * (~other + np.eye(len(se)))
    return out


def following_parts(name: str, wish: Wish, first: Sequence[Found]) -> list[Part]:
    """What can be planned only after the first results: other methods on the likely splits."""
    if name != "splits":
        return []
    out = []
    for found in first:
        (table,) = found.part.tag
        likely = weigh(found, paper_numbers(table))
        if likely is None:
            continue
        for part in table_parts(table, wish):
            trained = any(method in TRAINED for method in part.methods)
            most = part.n_splits if wish.quick else MOST_TRAINED if trained else MOST
            splits = tuple(likely.top)[:most]
            episodes = min(part.grid.episodes, WIDE_EPISODES.get(table, part.grid.episodes))
            out.append(replace(
                part, role="likely splits",
                methods={m: text for m, text in part.methods.items() if m not in WEIGHING},
                grid=replace(part.grid, splits=splits, episodes=episodes),
            ))  # fmt: skip
    return asked_for(out, wish)
