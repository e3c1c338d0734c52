"""Which class split did the paper use? Weights of class splits, given rows that no setting moves.

The paper used one class split and does not name it. Its rows of Proto and Match have no setting of
ours, so they tell which splits are possible; a row that is to be judged is never looked at. All
candidates are equally likely beforehand, and the paper's twelve numbers minus ours on a split are
Gaussian around zero. The covariance is a sum. Sampling: se^2 (1 + PAPER_TASKS / n) for a printed
standard error se and our n tasks; rates and methods share tasks, so errors correlate by `SHARED` to
the power of the steps between rates, once more for the other method. What we do not reproduce
(features, scaling, padding): a method as a whole and every number may be off by an unknown one of
`ALLOWANCES` points. Where even the best split is far off (`p_value`), weights only rank misfits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import logsumexp
from scipy.stats import chi2

from fewview import FewviewError
from reproduction.run import Part, Study, find_study

WEIGHING = ("Proto", "Match")
PAPER_TASKS = 400
SHARED = 0.75
ALLOWANCES = (0.25, 0.5, 1.0, 2.0)
# The likely splits: the heaviest up to this share of the weight, and no more than this many.
SHARE, MOST, MOST_NETWORKS = 0.95, 25, 5
Array = NDArray[np.float64]
Key = tuple[str, float]  # row of the paper's table, missing rate
Printed = Mapping[Key, tuple[float, float]]  # accuracy and standard error


@dataclass(frozen=True)
class Likely:
    """How likely class splits are: number of the split -> weight, the heaviest first."""

    weights: Mapping[int, float]
    distance: float  # of the heaviest one, squared, in sampling errors alone
    n_numbers: int

    @property
    def p_value(self) -> float:
        """How often sampling alone takes numbers as far from the heaviest split as the paper's."""
        return float(chi2.sf(self.distance, self.n_numbers))

    @property
    def top(self) -> dict[int, float]:
        """The likely splits."""
        below = np.cumsum([0.0, *self.weights.values()])[:-1] < SHARE
        return dict([*self.weights.items()][: min(int(below.sum()), MOST)])

    def mean(self, numbers: Mapping[int, float]) -> float | None:
        """Mean by weight over the likely splits that have a number; None without any."""
        there = [split for split in self.top if split in numbers]
        weights = [self.weights[split] for split in there]
        return float(np.average([numbers[k] for k in there], weights=weights)) if there else None


def covariance(errors: Mapping[Key, float], episodes: int, allowance: float = 0.0) -> Array:
    """Covariance of the paper's numbers minus ours, given the paper's standard errors."""
    other = np.array([[one != two for two, _ in errors] for one, _ in errors])
    rates = np.array([eta for _, eta in errors])
    steps = np.rint(10 * np.abs(rates[:, None] - rates))
    se = np.array([*errors.values()])
    sampling = SHARED ** (steps + other) * np.outer(se, se) * (1 + PAPER_TASKS / episodes)
    out: Array = sampling + allowance**2 * (~other + np.eye(len(se)))
    return out


def weigh(ours: pd.DataFrame, paper: Printed, episodes: int) -> Likely:
    """Weigh class splits, the index of `ours`, by its columns of `WEIGHING`, keys of `paper`."""
    keys = [key for key in paper if key[0] in WEIGHING]
    ours = ours[keys].dropna()
    gaps = (ours.to_numpy() - [paper[key][0] for key in keys]).T
    errors = {key: paper[key][1] for key in keys}

    def density(spread: Array) -> Array:
        """Gaussian log-densities around zero, up to a constant; one per class split."""
        out: Array = -0.5 * (gaps * np.linalg.solve(spread, gaps)).sum(axis=0)
        return out - 0.5 * np.linalg.slogdet(spread)[1]

    likelihood = logsumexp([density(covariance(errors, episodes, a)) for a in ALLOWANCES], 0)
    weights = np.exp(likelihood - logsumexp(likelihood))
    order = np.argsort(-weights, kind="stable")
    best = gaps[:, order[0]]
    distance = float(best @ np.linalg.solve(covariance(errors, episodes), best))
    return Likely({int(ours.index[k]): float(weights[k]) for k in order}, distance, len(keys))


def weighed(
    table: str, results: pd.DataFrame, paper: Printed
) -> tuple[Likely | None, dict[Key, float]]:
    """The recorded weights of a table's class splits, and what its rows give on the likely ones."""
    some = results[results["study"] == f"candidates/{table}"]
    if some.empty:
        return None, {}
    ours = some.pivot(index="split", columns=["method", "eta"], values="accuracy")
    likely = weigh(ours, paper, int(some["episodes"].iloc[0]))
    every = pd.concat([some, results[results["study"] == f"likely/{table}"]])
    found = {key: likely.mean(dict(zip(rows["split"], rows["accuracy"], strict=True)))
             for key, rows in every.groupby(["method", "eta"])}  # fmt: skip
    return likely, {key: mean for key, mean in found.items() if mean is not None}


def likely_parts(study: Study, likely: Likely | None) -> Iterator[Part]:
    """The other rows of a table on its likely class splits; networks on fewer of them."""
    if likely is None:
        raise FewviewError(f"{study.name}: no class split is weighed; run candidates --record")
    listed = find_study("candidates").options["parts"]
    few = {item["path"]: item["few"] for item in listed if "few" in item}
    for part, most in zip(study.parts, (MOST, MOST_NETWORKS), strict=True):
        methods = {row: text for row, text in part.methods.items() if row not in WEIGHING}
        yield replace(
            part,
            study=f"likely/{study.name}",
            splits=tuple(likely.top)[:most],
            episodes=min(part.episodes, few.get(study.name, 99)),
            methods=methods,
        )
