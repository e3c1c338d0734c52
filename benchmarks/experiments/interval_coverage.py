"""Does the 95 % interval cover as often as it says? Simulated, at 2 to 20 class splits.

    python benchmarks/experiments/interval_coverage.py [--trials 20000]

Accuracies of class splits are drawn, then those of their tasks; an interval is right if it has the
mean of the distribution that splits were drawn from. Spreads are those of our data sets: splits
differ by 2 to 10 points, tasks of one split by 8 to 10. Beside it stands Student's t alone.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

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


def covered(low: Array, high: Array, truth: float) -> float:
    return float(((low <= truth) & (truth <= high)).mean())


def simulate(case: str, splits: int, trials: int, seed: int = 0) -> tuple[float, float, float]:
    """Coverage of the interval and of t alone in percent, median width in points."""
    truth, draw = CASES[case]
    rng = np.random.default_rng([seed, splits])
    ends: list[tuple[Array, Array, Array, Array]] = []
    for first in range(0, trials, 2000):
        values = draw(rng, min(2000, trials - first), splits)
        ends.append((*split_intervals(values, bounds=(0.0, 1.0)), *split_intervals(values)))
    low, high, plain_low, plain_high = (np.concatenate(part) for part in zip(*ends, strict=True))
    shares = covered(low, high, truth), covered(plain_low, plain_high, truth)
    return 100 * shares[0], 100 * shares[1], 100 * float(np.median(high - low))


def main() -> None:
    """Print one line per case and number of class splits."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trials", type=int, default=20_000)
    trials = parser.parse_args().trials
    print(f"{'case':<26}{'splits':>7}{'covered %':>11}{'t alone %':>11}{'width':>8}")
    for case in CASES:
        for splits in SPLITS:
            covers, plain, width = simulate(case, splits, trials)
            print(f"{case:<26}{splits:>7}{covers:>11.1f}{plain:>11.1f}{width:>8.1f}", flush=True)


if __name__ == "__main__":
    main()
