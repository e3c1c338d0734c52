from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from fewview.results._intervals import (
    average_ranks,
    compare_paired,
    compare_with_best,
    holm,
    split_interval,
    split_intervals,
    standard_error,
    wilcoxon_can_reject,
    wilson_interval,
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
        # One verdict, by ranks: twelve splits are enough for three comparisons.
        assert (pair.test, pair.p) == ("wilcoxon", pair.p_wilcoxon_holm)
        assert (pair.low > 0 or pair.high < 0) == pair.told_apart == (pair.p <= 0.05)
        # The interval is what the test does not reject, found by shifting and asking scipy.
        level = 0.05 * pair.p_wilcoxon / pair.p_wilcoxon_holm
        gap = means[i] - means[j]
        for end, inwards in ((pair.low, 1e-6), (pair.high, -1e-6)):
            assert stats.wilcoxon(gap - end - inwards).pvalue > level
            assert stats.wilcoxon(gap - end + inwards).pvalue <= level
        assert pair.p_wilcoxon == pytest.approx(stats.wilcoxon(means[i], means[j]).pvalue)
        assert pair.wins + pair.losses == 12
    np.testing.assert_allclose([p.p_t_holm for p in pairs], holm([p.p_t for p in pairs]))


def test_the_best_is_compared_with_all_others() -> None:
    rng = np.random.default_rng(6)
    # Twelve methods on five splits, the best far ahead: all pairs together could reject nothing.
    means = rng.normal(60, 8, size=5) + np.append(rng.normal(0, 2, size=(11, 5)), [[18.0] * 5], 0)
    names = list("abcdefghijkl")
    pairs = compare_with_best(means, names)
    assert [pair.one for pair in pairs] == ["l"] * 11
    assert {pair.two for pair in pairs} == set(names[:11])
    assert [pair.difference for pair in pairs] == sorted(pair.difference for pair in pairs)
    p = [stats.ttest_rel(means[11], means[names.index(pair.two)]).pvalue for pair in pairs]
    np.testing.assert_allclose([pair.p_t_holm for pair in pairs], holm(p))
    for pair in pairs:
        # Too few splits for ranks: the smallest p of Wilcoxon's test is 1/16.
        assert (pair.test, pair.p) == ("t", pair.p_t_holm)
        expected = stats.ttest_rel(means[11], means[names.index(pair.two)])
        low, high = expected.confidence_interval(1 - 0.05 * pair.p_t / pair.p_t_holm)
        assert (pair.low, pair.high) == (pytest.approx(low), pytest.approx(high))
        assert (pair.low > 0) == pair.told_apart
    assert pairs[0].told_apart
    assert compare_with_best(np.ones((1, 3)), ["a"]) == []


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
    # Two equal differences may be chance: two heads of two coins, or two tails.
    assert shifted.p_t == 0.5
    assert (same.low, same.high, shifted.low, shifted.high) == (0.0, 0.0, 0.0, 2.0)
    assert not shifted.told_apart
    (nearly,) = compare_paired([[10.1, 10.1 + 1e-13, 10.1], [0.0, 0.0, 0.0]], ["a", "b"])
    assert nearly.p_t == 0.25
    # Seven are not, 2 / 2^7.
    (often,) = compare_paired([[1.0] * 7, [0.0] * 7], ["a", "b"])
    assert (often.p, often.low, often.high) == (2 / 128, 1.0, 1.0)


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


def test_wilcoxon_decides_where_it_can() -> None:
    # The smallest p of n splits is 2 / 2^n: 2 / 1024 x 25 comparisons = 0.0488.
    assert wilcoxon_can_reject(10, 25)
    assert not wilcoxon_can_reject(10, 26)
    assert wilcoxon_can_reject(6, 1)
    assert not wilcoxon_can_reject(5, 1)


def test_a_rank_diagram_marks_who_is_not_told_apart_from_the_best() -> None:
    rng = np.random.default_rng(0)
    scores = 60 + rng.normal(size=(10, 1)) + 0.5 * rng.normal(size=(10, 4))
    scores += np.array([9.0, 0.0, 9.2, 5.0])
    ranking = average_ranks(scores, list("abcd"))
    assert set(ranking.names[:2]) == {"a", "c"}
    assert ranking.names[2:] == ("d", "b")
    assert {ranking.best, *ranking.tied} == {"a", "c"}
    assert ranking.runs() == [(0, 1)]
    assert ranking.test.startswith("Wilcoxon")
    # Which other methods are in the picture changes no verdict here.
    fewer = average_ranks(scores[:, [0, 2]], ["a", "c"])
    assert (fewer.best, fewer.tied) == (ranking.best, ranking.tied)
    # Neighbours in rank need not be neighbours in the verdict.
    apart = replace(ranking, names=("a", "b", "c", "d"), best="a", tied=("c",))
    assert apart.runs() == [(0, 0), (2, 2)]
    assert replace(ranking, tied=()).runs() == []


def test_interval_is_students_of_split_means() -> None:
    values = np.random.default_rng(2).normal(size=(3, 6, 20))
    low, high = split_intervals(values)
    for result, ends in zip(values, zip(low, high, strict=True), strict=True):
        means = result.mean(axis=1)
        expected = stats.t.interval(0.95, 5, loc=means.mean(), scale=stats.sem(means))
        np.testing.assert_allclose(ends, expected)
        np.testing.assert_allclose(split_interval(result), expected)


def test_one_split_has_no_interval() -> None:
    assert np.isnan(split_interval(np.random.default_rng(3).normal(size=(1, 400)))).all()


@pytest.mark.parametrize(("right", "trials"), [(6, 6), (0, 6), (100, 100), (37, 100), (0, 1)])
def test_wilson_against_scipy(right: int, trials: int) -> None:
    expected = stats.binomtest(right, trials).proportion_ci(0.95, method="wilson")
    found = wilson_interval(np.array([right / trials]), trials)
    np.testing.assert_allclose(np.ravel(found), [expected.low, expected.high], atol=1e-12)


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0, 0.3])
def test_splits_that_do_not_differ_have_an_interval(share: float) -> None:
    low, high = split_interval(np.full((2, 3), share), bounds=(0.0, 1.0))
    expected = stats.binomtest(round(6 * share), 6).proportion_ci(0.95, method="wilson")
    assert 0.0 <= low <= share <= high <= 1.0
    assert high - low > 0.3
    if share != 0.3:  # no share of six
        np.testing.assert_allclose([low, high], [expected.low, expected.high], atol=1e-12)


def test_interval_stays_on_the_scale() -> None:
    means = np.array([0.9, 0.99, 0.97])
    low, high = split_interval(np.repeat(means[:, None], 400, axis=1), bounds=(0.0, 1.0))
    below, above = stats.t.interval(0.95, 2, loc=means.mean(), scale=stats.sem(means))
    assert above > 1
    assert (low, high) == (pytest.approx(below), 1.0)
    # In percent it is the same.
    percent = split_interval(np.repeat(100 * means[:, None], 400, axis=1), bounds=(0.0, 100.0))
    np.testing.assert_allclose(percent, [100 * low, 100.0])


@pytest.mark.parametrize("n_splits", [2, 3, 4, 5, 10, 20])
@pytest.mark.parametrize(("between", "within"), [(0.08, 0.08), (0.02, 0.10)])
def test_coverage_by_simulation(n_splits: int, between: float, within: float) -> None:
    # Splits and episodes differ as those of our data sets; 4000 trials: +- 0.7 of 95 %.
    rng = np.random.default_rng(4)
    n = 4000
    values = 0.6 + between * rng.normal(size=(n, n_splits, 1))
    values = values + within * rng.normal(size=(n, n_splits, 40))
    low, high = split_intervals(values, bounds=(0.0, 1.0))
    covered = ((low <= 0.6) & (high >= 0.6)).mean()
    assert 0.94 <= covered <= 0.96


@pytest.mark.parametrize("n_splits", [2, 3, 4, 5, 10, 20])
@pytest.mark.parametrize(("mean", "deviation"), [(0.97, 0.03), (0.998, 0.01)])
def test_coverage_near_the_end_of_the_scale(n_splits: int, mean: float, deviation: float) -> None:
    # Student's t alone covers 88 to 92 % and 32 to 62 % here.
    rng = np.random.default_rng(5)
    size = mean * (1 - mean) / deviation**2 - 1
    splits = rng.beta(mean * size, (1 - mean) * size, size=(1500, n_splits, 1))
    values = rng.binomial(75, np.broadcast_to(splits, (1500, n_splits, 40))) / 75
    low, high = split_intervals(values, bounds=(0.0, 1.0))
    assert ((low <= mean) & (high >= mean)).mean() >= 0.90
    assert (high - low).min() > 0


def test_wrong_shapes_are_named() -> None:
    with pytest.raises(FewviewError, match="splits, episodes"):
        split_interval([1.0, 2.0])
    with pytest.raises(FewviewError, match="one row per name"):
        compare_paired([[1.0]], ["a", "b"])
    with pytest.raises(FewviewError, match="one column per name"):
        average_ranks([[1.0]], ["a", "b"])
