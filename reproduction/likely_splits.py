"""Which class split did the paper use? Weights of class splits, given rows that no setting moves.

The paper used one class split and does not name it. Its rows of Proto and Match are nearest class
means and nearest neighbours, without a setting of ours, so they tell which splits are possible;
UGDA's own row, and every row that is to be judged, is never looked at. The model:

- All candidates are equally likely beforehand.
- The paper's twelve numbers minus ours on a split are Gaussian around zero. Two things make them
  differ, and the covariance is their sum.
- Sampling: the paper's number is a mean over `PAPER_TASKS` tasks with a printed standard error se,
  ours one over n tasks that scatter alike: variance se^2 (1 + PAPER_TASKS / n). Rates and methods
  share tasks: errors correlate by `SHARED` to the power of the steps between rates, once more for
  the other method. (Measured: 0.63 to 0.78 at neighbouring rates, 0.26 to 0.47 five steps apart.)
- What we do not reproduce (features, scaling, padding) may move a method as a whole and, apart from
  that, every single number, both by an unknown one of `ALLOWANCES` points, equally likely. The
  likelihood of a split is the mean over them.

Where even the best split is far off (`p_value`), weights only rank what does not fit.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import logsumexp
from scipy.stats import chi2

from reproduction.records import CANDIDATES, RESULTS
from reproduction.run import STUDIES, Part, Study

WEIGHING = ("Proto", "Match")
PAPER_TASKS = 400
SHARED = 0.75
ALLOWANCES = (0.25, 0.5, 1.0, 2.0)
# The likely splits: the heaviest up to this share of the weight, and no more than this many.
SHARE, MOST, MOST_NETWORKS = 0.95, 25, 5
Array = NDArray[np.float64]
Key = tuple[str, float]  # row of the paper's table, missing rate


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


def weigh(ours: pd.DataFrame, paper: Mapping[Key, tuple[float, float]], episodes: int) -> Likely:
    """Weigh class splits, the index of `ours`, whose columns are the keys of `paper`.

    `paper` has accuracy and standard error; only rows of `WEIGHING` are looked at.
    """
    keys = [key for key in paper if key[0] in WEIGHING]
    ours = ours[keys].dropna()
    gaps = (ours.to_numpy() - [paper[key][0] for key in keys]).T
    errors = {key: paper[key][1] for key in keys}
    likelihood = logsumexp([_density(gaps, covariance(errors, episodes, a)) for a in ALLOWANCES], 0)
    weights = np.exp(likelihood - logsumexp(likelihood))
    order = np.argsort(-weights, kind="stable")
    best = gaps[:, order[0]]
    distance = float(best @ np.linalg.solve(covariance(errors, episodes), best))
    splits = ours.index.to_numpy()
    return Likely({int(splits[k]): float(weights[k]) for k in order}, distance, len(keys))


def _density(gaps: Array, spread: Array) -> Array:
    """Gaussian log-densities around zero, up to a constant; one per column."""
    distances = (gaps * np.linalg.solve(spread, gaps)).sum(axis=0)
    out: Array = -0.5 * (distances + np.linalg.slogdet(spread)[1])
    return out


# ---------------------------------------------------------------------- from records


def recorded(table: str, paper: Mapping[Key, tuple[float, float]]) -> Likely | None:
    """The weights of the class splits of a table by what is recorded; None without a record."""
    path = RESULTS / f"{CANDIDATES}.csv"
    rows = pd.read_csv(path) if path.is_file() else pd.DataFrame({"table": []})
    rows = rows[rows["table"] == table].set_index("split")
    if rows.empty:
        return None
    columns = {name: _key(name) for name in rows.columns if "@" in name}
    return weigh(
        rows[[*columns]].set_axis([*columns.values()], axis=1), paper, rows["episodes"].iloc[0]
    )


def _key(name: str) -> Key:
    method, _, rate = name.partition("@")
    return method, float(rate)


def means(
    table: str, results: pd.DataFrame, paper: Mapping[Key, tuple[float, float]]
) -> dict[Key, float]:
    """What the rows of a table give on its likely class splits, as far as that is recorded."""
    likely = recorded(table, paper)
    if likely is None:
        return {}
    rows = pd.read_csv(RESULTS / f"{CANDIDATES}.csv")
    rows = rows[rows["table"] == table].set_index("split")
    numbers = {_key(name): dict(rows[name]) for name in rows.columns if "@" in name}
    ours = results[results["study"] == f"likely/{table}"]
    for key, some in ours.groupby(["method", "eta"]):
        numbers[key] = dict(zip(some["split"], some["accuracy"], strict=True))
    found = {key: likely.mean(values) for key, values in numbers.items()}
    return {key: value for key, value in found.items() if value is not None}


# ---------------------------------------------------------------------- computing


def candidate_parts(studies: Mapping[str, Study]) -> list[Part]:
    """Proto and Match on all candidates."""
    content = tomllib.loads(STUDIES.read_text(encoding="utf-8"))[CANDIDATES]
    return [
        replace(part, study=f"candidates/{name}", splits=count, episodes=content["episodes"],
                methods={row: part.methods[row] for row in WEIGHING})
        for name, count in content["candidates"].items()
        for part in studies[name].parts[:1]
    ]  # fmt: skip


def following_parts(study: Study, likely: Likely) -> Iterator[Part]:
    """The other rows of a table on its likely class splits; networks on fewer of them."""
    content = tomllib.loads(STUDIES.read_text(encoding="utf-8"))[CANDIDATES]
    plain = study.parts[0]
    for part in study.parts:
        most = MOST if part is plain else MOST_NETWORKS
        methods = {row: text for row, text in part.methods.items() if row not in WEIGHING}
        few = content["few_episodes"].get(study.name, part.episodes)
        yield replace(part, study=f"likely/{study.name}", splits=tuple(likely.top)[:most],
                      methods=methods, episodes=min(part.episodes, few))  # fmt: skip


def as_candidates(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows of candidates as their file has them: one per class split."""
    named = rows.assign(
        table=rows["study"].str.partition("/")[2],
        key=[f"{method}@{eta:g}" for method, eta in zip(rows["method"], rows["eta"], strict=True)],
    )
    order: Sequence[str] = [*dict.fromkeys(named["key"])]
    wide = named.pivot(
        index=["table", "split", "episodes", "run"], columns="key", values="accuracy"
    )
    out = wide[order].round(4).reset_index()
    return out[["table", "split", "episodes", *order, "run"]]
