"""Does the 95 % interval cover as often as it says? Simulated, at 2 to 20 class splits.

    python benchmarks/coverage.py [--trials 20000]

Accuracies of class splits are drawn, then those of their episodes; an interval is right if it has
the mean of the distribution that splits were drawn from. Spreads are those of our data sets: splits
differ by 2 to 10 points, episodes of one split by 8 to 10. Next to the interval of fewview stands
the same one from scipy's t and its root finder, written independently, and Student's t alone.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from scipy.optimize import brentq

from fewview.results._intervals import split_intervals

SPLITS = (2, 3, 4, 5, 10, 20)
EPISODES, QUERIES = 40, 75
Array = NDArray[np.float64]
Draw = Callable[[np.random.Generator, int, int], Array]


def normal(mean: float, between: float, within: float) -> Draw:
    """Splits and episodes both normal, in shares."""

    def draw(rng: np.random.Generator, trials: int, splits: int) -> Array:
        centres = rng.normal(mean, between, size=(trials, splits, 1))
        return centres + rng.normal(0.0, within, size=(trials, splits, EPISODES))

    return draw


def counted(mean: float, between: float) -> Draw:
    """Splits follow a beta distribution; an episode counts right ones among its queries."""
    size = mean * (1 - mean) / between**2 - 1

    def draw(rng: np.random.Generator, trials: int, splits: int) -> Array:
        centres = rng.beta(mean * size, (1 - mean) * size, size=(trials, splits, 1))
        shape = (trials, splits, EPISODES)
        return rng.binomial(QUERIES, np.broadcast_to(centres, shape)) / QUERIES

    return draw


CASES: dict[str, tuple[float, Draw]] = {
    "splits 8, episodes 8": (0.7, normal(0.7, 0.08, 0.08)),
    "splits 2, episodes 10": (0.5, normal(0.5, 0.02, 0.10)),
    "counts, 70 %, splits 10": (0.7, counted(0.7, 0.10)),
    "counts, 90 %, splits 5": (0.9, counted(0.9, 0.05)),
    "counts, 97 %, splits 3": (0.97, counted(0.97, 0.03)),
    "counts, 99 %, splits 1": (0.99, counted(0.99, 0.01)),
    "counts, 99.8 %, splits 1": (0.998, counted(0.998, 0.01)),
}


def by_scipy(values: Array) -> tuple[float, float]:
    """The interval of one result [splits, episodes] with what scipy has."""
    means = [float(np.mean(split)) for split in values]
    mean, error = float(np.mean(means)), float(stats.sem(means))
    low, high = mean, mean
    if error > 1e-12:
        low, high = stats.t.interval(0.95, len(means) - 1, loc=mean, scale=error)
    if error <= 1e-12 or low <= 0 or high >= 1 or min(means) <= 0 or max(means) >= 1:
        # Wilson's ends are the probabilities that a score test just does not reject.
        def score(p: float) -> float:
            return (mean - p) ** 2 - stats.norm.ppf(0.975) ** 2 * p * (1 - p) / values.size

        low = min(low, brentq(score, 0.0, mean - 1e-9, xtol=1e-14) if score(0.0) > 0 else 0.0)
        high = max(high, brentq(score, mean + 1e-9, 1.0, xtol=1e-14) if score(1.0) > 0 else 1.0)
    return max(0.0, float(low)), min(1.0, float(high))


def covered(low: Array, high: Array, truth: float) -> float:
    return float(((low <= truth) & (truth <= high)).mean())


def simulate(case: str, splits: int, trials: int, by_hand: int, seed: int = 0) -> dict[str, float]:
    """Coverage of the interval, of scipy's for the first trials, of t alone; width in points."""
    truth, draw = CASES[case]
    rng = np.random.default_rng([seed, splits])
    low, high, plain_low, plain_high = (np.empty(trials) for _ in range(4))
    checked = np.empty((2, by_hand))
    for first in range(0, trials, 2000):
        part = slice(first, min(first + 2000, trials))
        values = draw(rng, part.stop - first, splits)
        low[part], high[part] = split_intervals(values, bounds=(0.0, 1.0))
        plain_low[part], plain_high[part] = split_intervals(values)
        for k in range(first, min(part.stop, by_hand)):
            checked[:, k] = by_scipy(values[k - first])
    same = np.abs(checked - np.stack([low, high])[:, :by_hand])
    return {
        "covered": covered(low, high, truth),
        "ours": covered(low[:by_hand], high[:by_hand], truth),
        "scipy": covered(*checked, truth),
        "apart": float(same.max()),
        "t alone": covered(plain_low, plain_high, truth),
        "width": 100 * float(np.median(high - low)),
        "narrowest": 100 * float((high - low).min()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=20_000)
    parser.add_argument("--by-hand", type=int, default=1000, help="of them with scipy's functions")
    options = parser.parse_args()
    header = (
        "covered %", "t alone %", "first ones: ours %", "scipy %", "largest gap (points)",
        "median width", "narrowest",
    )  # fmt: skip
    print(f"{'case':<26}{'splits':>7}" + "".join(f"{name:>22}" for name in header))
    for case in CASES:
        for splits in SPLITS:
            found = simulate(case, splits, options.trials, min(options.by_hand, options.trials))
            shares = (100 * found[name] for name in ("covered", "t alone", "ours", "scipy"))
            numbers = (*shares, 100 * found["apart"], found["width"], found["narrowest"])
            line = "".join(f"{number:>22.2g}" if k == 4 else f"{number:>22.1f}"
                           for k, number in enumerate(numbers))  # fmt: skip
            print(f"{case:<26}{splits:>7}{line}", flush=True)


if __name__ == "__main__":
    main()
