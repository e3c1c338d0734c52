"""How sure are we? Error bars that respect class splits, paired comparisons, average ranks.

Everything here is about arrays of numbers [splits, episodes] or [blocks, methods] and knows nothing
of data sets, methods or stores. Tests and distributions come from scipy.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fewview.errors import FewviewError

Float64Array = NDArray[np.float64]


def standard_error(values: ArrayLike) -> float:
    """Standard error over episodes as the paper has it: population deviation over sqrt(n).

    Args:
        values: one number per episode, any shape.

    Example:
        >>> standard_error([1.0, 3.0, 1.0, 3.0])
        0.5
    """
    array = np.asarray(values, dtype=np.float64)
    return float(array.std(ddof=0) / np.sqrt(array.size))


def split_interval(
    values: ArrayLike, level: float = 0.95, bounds: tuple[float, float] | None = None
) -> tuple[float, float]:
    """Interval of the mean over class splits: Student's t of the split means.

    Class splits are what is drawn independently; episodes of one split are not. Simulated with 2 to
    20 splits that differ like those of our data sets it covers as often as it says
    (`benchmarks/coverage.py`). One split says nothing about others, so there is no interval then.
    With `bounds`, where the interval or a split reaches an end of the scale, or the splits do not
    differ, Student's t is too sure: the interval is then at least Wilson's of as many trials as
    there are episodes, so that it always has a width.

    Args:
        values: [splits, episodes].
        level: coverage.
        bounds: lowest and highest possible value; the interval stays within. None if there are
            none.

    Returns:
        Lower and upper end; NaN with one split.

    Example:
        >>> low, high = split_interval([[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]])
        >>> round(low, 3), round(high, 3)
        (-0.484, 4.484)
        >>> low, high = split_interval([[1.0] * 20] * 5, bounds=(0.0, 1.0))
        >>> round(low, 3), round(high, 3)
        (0.963, 1.0)
    """
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 2 or not array.size:
        raise FewviewError(f"values must be [splits, episodes], not of shape {array.shape}")
    low, high = split_intervals(array[None], level, bounds)
    return float(low[0]), float(high[0])


def split_intervals(
    values: Float64Array, level: float = 0.95, bounds: tuple[float, float] | None = None
) -> tuple[Float64Array, Float64Array]:
    """Compute `split_interval` for many results at once, [results, splits, episodes]."""
    n_results, n_splits, n_episodes = values.shape
    if n_splits < 2:
        nothing = np.full(n_results, np.nan)
        return nothing, nothing
    means = values.mean(axis=2)
    mean = means.mean(axis=1)
    half = _half_width(means, level)
    low, high = mean - half, mean + half
    if bounds is None:
        return low, high
    least, most = bounds
    # Equal means differ in their last digits, because sums of floats do.
    touches = (low <= least) | (high >= most) | (half <= 1e-9 * (most - least))
    touches |= (means.min(axis=1) <= least) | (means.max(axis=1) >= most)
    bottom, top = wilson_interval((mean - least) / (most - least), n_splits * n_episodes, level)
    low = np.where(touches, np.minimum(low, least + (most - least) * bottom), low)
    high = np.where(touches, np.maximum(high, least + (most - least) * top), high)
    return np.maximum(low, least), np.minimum(high, most)


def _half_width(draws: Float64Array, level: float | Float64Array = 0.95) -> Float64Array:
    """Half of Student's t interval of the mean of draws [..., n]."""
    from scipy.special import stdtrit

    n = draws.shape[-1]
    half: Float64Array = stdtrit(n - 1, (1 + level) / 2) * draws.std(axis=-1, ddof=1) / np.sqrt(n)
    return half


def wilson_interval(
    share: Float64Array, trials: int, level: float = 0.95
) -> tuple[Float64Array, Float64Array]:
    """Compute Wilson's interval of a probability from a share of successes."""
    from scipy.special import ndtri

    z = ndtri((1 + level) / 2)
    centre = (share + z**2 / (2 * trials)) / (1 + z**2 / trials)
    spread = np.maximum(share * (1 - share), 0.0)  # a share may be above 1 by rounding
    half = z / (1 + z**2 / trials) * np.sqrt(spread / trials + (z / (2 * trials)) ** 2)
    return centre - half, centre + half


def holm(p_values: ArrayLike) -> Float64Array:
    """Adjust p-values for many tests by Holm's step-down method."""
    p = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(p, kind="stable")
    factors = np.arange(p.size, 0, -1)
    adjusted = np.minimum(np.maximum.accumulate(p[order] * factors), 1.0)
    out = np.empty_like(p)
    out[order] = adjusted
    return out


def at_least(p_values: ArrayLike, count: int) -> float:
    """Compute the p-value of `count` or more of several effects being real, whichever they are.

    The partial conjunction of Benjamini and Heller (2008) with Bonferroni's bound: `count` of 1 is
    the smallest p-value times their number, all of them are the largest p-value as it is.

    Example:
        >>> at_least([0.01, 0.04, 0.03], 3), at_least([0.01, 0.04, 0.03], 1)
        (0.04, 0.03)
    """
    p = np.sort(np.asarray(p_values, dtype=np.float64))
    return min(1.0, float((p.size - count + 1) * p[count - 1]))


class Prediction(NamedTuple):
    """Where a further number lies among some: distance in standard errors, p, half of 95 %."""

    distance: float
    p: float
    half_width: float


def predict_one(values: ArrayLike, number: float, rounding: float = 0.0) -> Prediction:
    """Tell how far a number lies from others if it was drawn like them, once.

    Its error is that of one more draw from a normal distribution whose mean and deviation are
    those of `values`: the deviation times sqrt(1 + 1/n), with Student's t of n - 1 degrees.

    Args:
        values: at least two numbers.
        number: the further one.
        rounding: a difference up to this is none.

    Example:
        >>> found = predict_one([1.0, 2.0, 3.0], 4.0)
        >>> round(found.distance, 4), round(found.p, 4), round(found.half_width, 4)
        (1.7321, 0.2254, 4.9683)
    """
    from scipy.special import stdtr

    array = np.asarray(values, dtype=np.float64)
    error = float(array.std(ddof=1)) * np.sqrt(1 + 1 / array.size)
    gap = number - float(array.mean())
    gap = np.sign(gap) * max(abs(gap) - rounding, 0.0)
    distance = float(gap / error) if error else float(np.sign(gap) * np.inf if gap else 0.0)
    p = float(2 * stdtr(array.size - 1, -abs(distance)))
    return Prediction(distance, p, float(_half_width(array) * np.sqrt(array.size + 1)))


ALPHA = 0.05
TESTS = {
    "wilcoxon": "Wilcoxon's signed-rank test with Holm's correction",
    "t": "the paired t test with Holm's correction, for want of blocks",
}


@dataclass(frozen=True)
class PairedComparison:
    """One method against another on the same episodes, class split by class split.

    Attributes:
        one: name of the first method.
        two: name of the second method.
        difference: mean over splits of (one - two).
        low: lower end of the interval of the difference that `test` gives, 95 % after Holm's
            correction: it is above 0 or `high` below exactly where `p` is at most 0.05 (but for
            ties, by Wilcoxon's test). NaN with one split.
        high: upper end.
        wins: number of splits where `one` is better.
        losses: number of splits where `two` is better.
        n_splits: number of splits.
        p_t: of the paired t test on split means; NaN with one split.
        p_wilcoxon: of the Wilcoxon signed-rank test on split means; NaN with one split.
        p_t_holm: `p_t`, corrected for all comparisons made together.
        p_wilcoxon_holm: `p_wilcoxon`, corrected likewise.
        test: which one decides, `"wilcoxon"` where there are splits enough for it to find
            anything after the correction, else `"t"`.
        p: the corrected p-value of that test.
    """

    one: str
    two: str
    difference: float
    low: float
    high: float
    wins: int
    losses: int
    n_splits: int
    p_t: float
    p_wilcoxon: float
    p_t_holm: float
    p_wilcoxon_holm: float
    test: str
    p: float

    @property
    def told_apart(self) -> bool:
        """The verdict that every table, sentence and diagram gives."""
        return self.p <= ALPHA


def compare_paired(means: ArrayLike, names: Sequence[str]) -> list[PairedComparison]:
    """Compare every pair of methods by their means on the same class splits.

    Args:
        means: [methods, splits], mean accuracy of every method on every split.
        names: of the methods.

    Returns:
        One comparison per pair, in the order of `names`; Holm's correction is over all of them.

    Example:
        >>> pairs = compare_paired([[3.0, 4.0, 6.0], [1.0, 3.0, 3.0]], ["a", "b"])
        >>> pairs[0].difference, pairs[0].wins, round(pairs[0].p_t, 4)
        (2.0, 3, 0.0742)
    """
    array = _checked(means, names)
    pairs = [(i, j) for i in range(len(names)) for j in range(i + 1, len(names))]
    return _compare(array, names, pairs)


def compare_with_best(means: ArrayLike, names: Sequence[str]) -> list[PairedComparison]:
    """Compare the method with the highest mean with every other one, the second best first.

    Holm's correction is over these comparisons alone: with few class splits that over all pairs
    could reject nothing, however far apart methods are. Levels are those of a best method that was
    named beforehand; as it is chosen on the same splits, some other one of 12 methods that are all
    alike is told apart in 10 to 15 % of cases (simulated, 5 and 10 splits), the second best
    hardly ever.

    Args:
        means: [methods, splits], mean accuracy of every method on every split.
        names: of the methods.

    Example:
        >>> pairs = compare_with_best([[1, 3, 3], [3, 4, 6], [2, 4, 4]], ["a", "b", "c"])
        >>> [(pair.one, pair.two) for pair in pairs]
        [('b', 'c'), ('b', 'a')]
    """
    array = _checked(means, names)
    # Equal means differ in their last digits; the first of them counts as the best.
    order = np.argsort(-array.mean(axis=1).round(9), kind="stable").tolist()
    return _compare(array, names, [(order[0], k) for k in order[1:]] if order else [])


def _checked(means: ArrayLike, names: Sequence[str]) -> Float64Array:
    array = np.asarray(means, dtype=np.float64)
    if array.ndim != 2 or array.shape[0] != len(names):
        raise FewviewError("means must be [methods, splits], one row per name")
    return array


def _compare(
    array: Float64Array, names: Sequence[str], pairs: list[tuple[int, int]]
) -> list[PairedComparison]:
    """Compare some pairs of methods, corrected for all of them together."""
    from scipy.stats import wilcoxon

    if not pairs:
        return []
    differences = np.stack([array[i] - array[j] for i, j in pairs])
    n = array.shape[1]
    p_t = p_w = p_t_holm = p_w_holm = low = high = np.full(len(pairs), np.nan)
    by_ranks = wilcoxon_can_reject(n, len(pairs))
    if n > 1:
        p_t = paired_t(differences).p
        p_w = np.array([wilcoxon(row).pvalue if row.any() else 1.0 for row in differences])
        p_t_holm, p_w_holm = holm(p_t), holm(p_w)
        # As much surer as the p-value is corrected, so that both give one verdict.
        p, corrected = (p_w, p_w_holm) if by_ranks else (p_t, p_t_holm)
        certain = ALPHA * np.divide(p, corrected, out=np.full(len(pairs), 1.0), where=p > 0)
        centre = differences.mean(axis=1)
        half = _half_width(differences, 1 - certain)
        # Equal differences have no spread to judge by; zero is inside where signs leave it open.
        half = np.where(_constant(differences) & (p > certain), np.abs(centre), half)
        low, high = centre - half, centre + half
        if by_ranks:
            ends = [_signed_rank_interval(*one) for one in zip(differences, certain, strict=True)]
            low, high = np.array(ends).T
    return [
        PairedComparison(
            one=names[i],
            two=names[j],
            difference=float(differences[k].mean()),
            low=float(low[k]),
            high=float(high[k]),
            wins=int((differences[k] > 0).sum()),
            losses=int((differences[k] < 0).sum()),
            n_splits=array.shape[1],
            p_t=float(p_t[k]),
            p_wilcoxon=float(p_w[k]),
            p_t_holm=float(p_t_holm[k]),
            p_wilcoxon_holm=float(p_w_holm[k]),
            test="wilcoxon" if by_ranks else "t",
            p=float((p_w_holm if by_ranks else p_t_holm)[k]),
        )
        for k, (i, j) in enumerate(pairs)
    ]


def wilcoxon_can_reject(n_splits: int, n_comparisons: int) -> bool:
    """Whether Wilcoxon's test finds a method that is ahead everywhere, after the correction.

    Its smallest p is 2 / 2^n: 10 class splits are enough for 25 comparisons, 5 for none.
    """
    return n_comparisons * 2.0 ** (1 - n_splits) <= ALPHA


def _signed_rank_interval(differences: Float64Array, level: float) -> tuple[float, float]:
    """All shifts of the differences that Wilcoxon's test does not reject at this level.

    Its ends are Walsh averages, counted from both sides by the quantile of the signed-rank
    statistic (Hollander and Wolfe 1999, section 3.3).
    """
    n = len(differences)
    first, second = np.triu_indices(n)
    walsh = np.sort((differences[first] + differences[second]) / 2)
    counts = np.ones(1)
    for rank in range(1, n + 1):  # in how many ways signs give every sum of ranks
        counts = np.pad(counts, (0, rank)) + np.pad(counts, (rank, 0))
    below = np.cumsum(counts) / 2.0**n
    # As many as may be left out on one side; more than none, or nothing could be rejected.
    out = int(np.searchsorted(below, level / 2 * (1 + 1e-12), side="right"))
    return float(walsh[max(out - 1, 0)]), float(walsh[len(walsh) - max(out, 1)])


class PairedT(NamedTuple):
    """Student's t test of differences against zero: statistic and two-sided p."""

    t: Float64Array
    p: Float64Array


def paired_t(differences: Float64Array) -> PairedT:
    """Test every row of differences [pairs, splits], of two splits or more.

    Where all differences are equal, Student's t would be certain after two of them, which few tasks
    reach by chance: then their signs alone count, p = 2 / 2^n.
    """
    from scipy.stats import ttest_1samp

    with warnings.catch_warnings():
        # scipy warns of constant differences.
        warnings.simplefilter("ignore", RuntimeWarning)
        test = ttest_1samp(differences, 0.0, axis=1)
    # Equal results on all splits are no evidence of anything.
    some = differences.any(axis=1)
    p = np.where(_constant(differences), 2.0 ** (1 - differences.shape[1]), test.pvalue)
    return PairedT(np.where(some, test.statistic, 0.0), np.where(some, p, 1.0))


def _constant(differences: Float64Array) -> NDArray[np.bool_]:
    """Whether all differences of a row are equal but for rounding, and not zero."""
    size = np.abs(differences).max(axis=1)
    same: NDArray[np.bool_] = (np.ptp(differences, axis=1) <= 1e-9 * size) & (size > 0)
    return same


@dataclass(frozen=True)
class Ranking:
    """Average ranks of methods, rank 1 being best (Demsar 2006).

    Attributes:
        names: methods, best first.
        ranks: their average ranks.
        best: the method with the highest mean, which the others are compared with.
        tied: methods that are not told apart from it, in the order of `names`.
        test: what that is decided by, in words.
        p_friedman: of the hypothesis that all methods are alike; NaN where it cannot be tested.
        n_blocks: number of blocks ranked.
    """

    names: tuple[str, ...]
    ranks: tuple[float, ...]
    best: str
    tied: tuple[str, ...]
    test: str
    p_friedman: float
    n_blocks: int

    def runs(self) -> list[tuple[int, int]]:
        """Runs of neighbours (first, last), the best and those not told apart, for the diagram."""
        marked = [name == self.best or name in self.tied for name in self.names]
        out: list[tuple[int, int]] = []
        for k in (k for k, one in enumerate(marked) if one and self.tied):
            out = [*out[:-1], (out[-1][0], k)] if out and out[-1][1] == k - 1 else [*out, (k, k)]
        return out


def average_ranks(scores: ArrayLike, names: Sequence[str]) -> Ranking:
    """Rank methods in every block and average; ties share their ranks.

    Args:
        scores: [blocks, methods], higher is better. A block is what is taken to be independent:
            data sets, or the class splits of one data set.
        names: of the methods.

    Whether a method is told apart from the best is decided as everywhere (`compare_with_best`), by
    Wilcoxon's test where there are blocks enough, so it does not depend on the ranks of others.

    Example:
        >>> ranking = average_ranks([[3, 2, 1], [3, 1, 2], [3, 2, 1]], ["a", "b", "c"])
        >>> ranking.names, [round(rank, 2) for rank in ranking.ranks]
        (('a', 'b', 'c'), [1.0, 2.33, 2.67])
    """
    from scipy.stats import friedmanchisquare, rankdata

    array = np.asarray(scores, dtype=np.float64)
    if array.ndim != 2 or array.shape[1] != len(names) or not array.size:
        raise FewviewError("scores must be [blocks, methods], one column per name")
    ranks = rankdata(-array, axis=1).mean(axis=0)
    order = np.argsort(ranks, kind="stable")
    n_blocks, n_methods = array.shape
    p = float("nan")
    if n_methods > 2 and n_blocks > 1 and not (array == array[:, :1]).all():
        p = float(friedmanchisquare(*array.T).pvalue)
    pairs = compare_with_best(array.T, names)
    tied = {pair.two for pair in pairs if not pair.told_apart}
    return Ranking(
        names=tuple(names[k] for k in order),
        ranks=tuple(float(ranks[k]) for k in order),
        best=pairs[0].one if pairs else names[0],
        tied=tuple(names[k] for k in order if names[k] in tied),
        test=TESTS[pairs[0].test if pairs else "t"],
        p_friedman=p,
        n_blocks=n_blocks,
    )
