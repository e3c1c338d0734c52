from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from fewview.results._intervals import (
    average_ranks,
    compare_paired,
    critical_difference,
    holm,
    split_interval,
    split_intervals,
    standard_error,
)
from fewview.samples import FewviewError


def test_standard_error_is_the_papers() -> None:
    values = np.random.default_rng(0).normal(size=(4, 25))
    assert standard_error(values) == pytest.approx(values.std(ddof=0) / 10)


def test_paired_comparison_against_scipy() -> None:
    means = np.random.default_rng(1).normal(size=(3, 12)) + np.array([[0.0], [0.5], [1.0]])
    pairs = compare_paired(means, ["a", "b", "c"])
    assert [(pair.one, pair.two) for pair in pairs] == [("a", "b"), ("a", "c"), ("b", "c")]
    for pair, (i, j) in zip(pairs, [(0, 1), (0, 2), (1, 2)], strict=True):
        expected = stats.ttest_rel(means[i], means[j])
        assert pair.p_t == pytest.approx(expected.pvalue)
        low, high = expected.confidence_interval(0.95)
        assert (pair.low, pair.high) == (pytest.approx(low), pytest.approx(high))
        assert pair.p_wilcoxon == pytest.approx(stats.wilcoxon(means[i], means[j]).pvalue)
        assert pair.wins + pair.losses == 12
    np.testing.assert_allclose([p.p_t_holm for p in pairs], holm([p.p_t for p in pairs]))


def test_paired_comparison_by_hand() -> None:
    # Differences 1, 2, 3: mean 2, deviation 1, t = 2 sqrt(3) = 3.464 with 2 degrees of freedom,
    # two-sided p = 1 - t / sqrt(t^2 + 2) = 0.0742. Ranks 1, 2, 3 all positive: p = 2 / 2^3.
    (pair,) = compare_paired([[1.0, 2.0, 3.0], [0.0, 0.0, 0.0]], ["a", "b"])
    assert pair.difference == 2.0
    assert pair.p_t == pytest.approx(1 - np.sqrt(12 / 14))
    assert pair.p_wilcoxon == pytest.approx(0.25)
    assert pair.p_t_holm == pair.p_t


@pytest.mark.filterwarnings("error")
def test_equal_and_constant_differences() -> None:
    same, shifted = compare_paired([[1.0, 2.0], [1.0, 2.0], [0.0, 1.0]], ["a", "b", "c"])[:2]
    assert (same.p_t, same.p_wilcoxon, same.difference) == (1.0, 1.0, 0.0)
    assert shifted.p_t == 0.0
    assert (same.low, same.high, shifted.low, shifted.high) == (0.0, 0.0, 1.0, 1.0)


def test_a_comparison_says_the_same_turned_round() -> None:
    (pair,) = compare_paired([[1.0, 2.0, 3.0, 0.0], [0.0, 0.0, 0.0, 1.0]], ["a", "b"])
    (other,) = compare_paired([[0.0, 0.0, 0.0, 1.0], [1.0, 2.0, 3.0, 0.0]], ["b", "a"])
    turned = replace(
        pair, one="b", two="a", difference=-pair.difference, low=-pair.high, high=-pair.low,
        wins=pair.losses, losses=pair.wins,
    )  # fmt: skip
    assert turned == other


def test_one_split_gives_no_test() -> None:
    (pair,) = compare_paired([[3.0], [1.0]], ["a", "b"])
    assert pair.difference == 2.0
    assert np.isnan([pair.p_t, pair.p_wilcoxon, pair.low, pair.p_t_holm]).all()


def test_holm_by_hand() -> None:
    # Sorted 0.01, 0.02, 0.03, 0.5: times 4, 3, 2, 1 = 0.04, 0.06, 0.06, 0.5.
    np.testing.assert_allclose(holm([0.5, 0.01, 0.03, 0.02]), [0.5, 0.04, 0.06, 0.06])
    assert holm([0.9, 0.8]).tolist() == [1.0, 1.0]


def test_average_ranks_by_hand_and_friedman() -> None:
    scores = [[9, 7, 7], [8, 9, 5], [9, 6, 5], [7, 6, 2]]
    ranking = average_ranks(scores, ["a", "b", "c"])
    assert ranking.names == ("a", "b", "c")
    assert ranking.ranks == (pytest.approx(1.25), pytest.approx(1.875), pytest.approx(2.875))
    assert ranking.p_friedman == pytest.approx(stats.friedmanchisquare(*np.array(scores).T).pvalue)


@pytest.mark.parametrize(("k", "q"), [(2, 1.960), (5, 2.728), (10, 3.164)])
def test_critical_difference_against_demsar(k: int, q: float) -> None:
    assert critical_difference(k, 10) == pytest.approx(q * np.sqrt(k * (k + 1) / 60), abs=2e-3)


def test_cliques_are_maximal_runs() -> None:
    ranking = average_ranks([[4, 3, 2, 1]] * 20, list("abcd"))
    assert ranking.critical_difference == pytest.approx(1.049, abs=0.01)
    assert ranking.cliques() == [(0, 1), (1, 2), (2, 3)]


def test_interval_is_the_same_every_time_and_blockwise(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(2).normal(size=(3, 6, 20))
    low, high = split_intervals(values)
    monkeypatch.setattr("fewview.results._intervals._LARGEST_KEPT", 10_000)
    low_again, high_again = split_intervals(values)
    np.testing.assert_allclose(low, low_again)
    np.testing.assert_allclose(high, high_again)
    assert split_interval(values[1]) == (pytest.approx(low[1]), pytest.approx(high[1]))


def test_interval_of_one_split_is_that_of_its_episodes() -> None:
    values = np.random.default_rng(3).normal(size=(1, 400))
    low, high = split_interval(values)
    half = 1.96 * values.std() / 20
    assert high - low == pytest.approx(2 * half, rel=0.1)


@pytest.mark.parametrize(
    ("n_splits", "between", "within", "least", "most"),
    [
        (10, 8.0, 8.0, 0.93, 0.985),  # like the real data sets: splits differ by many points
        (30, 8.0, 8.0, 0.93, 0.975),
        (10, 2.0, 10.0, 0.94, 1.0),  # mostly noise of episodes: on the safe side
        (1, 0.0, 8.0, 0.92, 0.98),
    ],
)
def test_coverage_by_simulation(
    n_splits: int, between: float, within: float, least: float, most: float
) -> None:
    rng = np.random.default_rng(4)
    n = 600
    values = between * rng.normal(size=(n, n_splits, 1))
    values = values + within * rng.normal(size=(n, n_splits, 40))
    low, high = split_intervals(values)
    covered = ((low <= 0) & (high >= 0)).mean()
    assert least <= covered <= most


def test_wrong_shapes_are_named() -> None:
    with pytest.raises(FewviewError, match="splits, episodes"):
        split_interval([1.0, 2.0])
    with pytest.raises(FewviewError, match="one row per name"):
        compare_paired([[1.0]], ["a", "b"])
    with pytest.raises(FewviewError, match="one column per name"):
        average_ranks([[1.0]], ["a", "b"])
