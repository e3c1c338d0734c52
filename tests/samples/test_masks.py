"""Masks: exact counts, one view for everybody, and the laws they are said to follow."""

from __future__ import annotations

from collections import Counter
from decimal import ROUND_HALF_UP, Decimal
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2, chi2_contingency

from fewview.samples import FewviewError, MissingRule, largest_rate
from fewview.samples._masks import (
    draw_by_class,
    draw_patterns,
    draw_uniform,
    draw_view_rates,
    missing_count,
)
from fewview.samples._rates import check_rate

SEEDS = st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=4, unique=True).map(
    lambda values: np.array(values, dtype=np.uint64)
)
# Rates with two digits, so that "round half up" has one meaning in decimal and in binary.
CENTS = st.integers(0, 100)


def rounded(cents: int, cells: int) -> int:
    """Hundredths times cells, rounded half up in decimal arithmetic."""
    exact = Decimal(cents) / 100 * cells
    return int(exact.quantize(Decimal(1), rounding=ROUND_HALF_UP))


def chi_square(observed: Any, expected: Any) -> tuple[float, int]:
    observed, expected = np.asarray(observed, float), np.asarray(expected, float)
    return float(((observed - expected) ** 2 / expected).sum()), observed.size - 1


def assert_law(observed: Any, expected: Any) -> None:
    """Chi-square test with a chance of a false alarm of one in a million (and fixed seeds)."""
    statistic, freedom = chi_square(observed, expected)
    assert statistic < chi2.ppf(1 - 1e-6, freedom), (statistic, freedom)


# ------------------------------------------------------------------ exact counts


@settings(max_examples=120, deadline=None)
@given(SEEDS, st.integers(1, 12), st.integers(1, 6), CENTS)
def test_exactly_the_rounded_number_of_cells_is_missing(
    seeds: Any, n_samples: int, n_views: int, cents: int
) -> None:
    eta = cents / 100
    if eta > 1 - 1 / n_views:
        with pytest.raises(FewviewError, match="largest possible rate"):
            draw_uniform(seeds, n_samples, n_views, eta)
        return
    wanted = min(rounded(cents, n_samples * n_views), n_samples * (n_views - 1))
    labels = np.tile(np.arange(n_samples) % 3, (len(seeds), 1))
    for mask in (
        draw_uniform(seeds, n_samples, n_views, eta),
        draw_by_class(seeds, labels, n_views, eta, 2.0),
        MissingRule().draw(seeds, n_samples, n_views, eta),
        MissingRule("class").draw(seeds, n_samples, n_views, eta, labels=labels),
    ):
        assert mask.shape == (len(seeds), n_samples, n_views)
        assert mask.dtype == bool
        assert ((~mask).sum(axis=(1, 2)) == wanted).all()
        assert mask.any(axis=-1).all()


def test_rounding_never_takes_the_last_view() -> None:
    # 3 samples, 2 views, eta 1/2: 3 cells may go, one per sample; 0.5 x 5 rounds to 3 of 5 samples.
    assert missing_count(0.5, 5, 2) == 5
    assert missing_count(0.5, 3, 2) == 3
    assert missing_count(2 / 3, 7, 3) == 14
    assert (
        draw_uniform(np.arange(9, dtype=np.uint64), 7, 3, 2 / 3).sum(axis=-1).tolist()
        == [[1] * 7] * 9
    )


@pytest.mark.parametrize(
    ("n_views", "largest"), [(1, 0.0), (2, 0.5), (3, 2 / 3), (5, 0.8), (6, 5 / 6)]
)
def test_the_largest_rate(n_views: int, largest: float) -> None:
    assert largest_rate(n_views) == pytest.approx(largest)
    assert check_rate(largest, n_views) == largest
    with pytest.raises(FewviewError, match=f"largest possible rate is {largest:.4g}"):
        check_rate(largest + 0.01, n_views)


@pytest.mark.parametrize("eta", [-0.1, float("nan"), float("inf"), -float("inf")])
def test_a_rate_that_is_no_rate(eta: float) -> None:
    with pytest.raises(FewviewError, match="missing rate"):
        draw_uniform(np.zeros(1, dtype=np.uint64), 4, 2, eta)


@settings(max_examples=60, deadline=None)
@given(SEEDS, st.integers(1, 10), st.integers(2, 5), CENTS, CENTS, st.booleans())
def test_masks_of_growing_eta_are_nested(
    seeds: Any, n_samples: int, n_views: int, one: int, two: int, by_class: bool
) -> None:
    low, high = (min(rate / 100, 1 - 1 / n_views) for rate in sorted((one, two)))
    labels = np.tile(np.arange(n_samples) % 2, (len(seeds), 1))
    rule = MissingRule("class" if by_class else "uniform")
    less = rule.draw(seeds, n_samples, n_views, low, labels=labels)
    more = rule.draw(seeds, n_samples, n_views, high, labels=labels)
    assert not (more & ~less).any()


RULES = [
    MissingRule(),
    MissingRule("class"),
    MissingRule(view_rates=(0.5, 0.2, 0.1)),
    MissingRule("patterns", patterns=np.array([[1, 0, 1], [1, 1, 1], [0, 1, 0]], dtype=bool)),
]


@pytest.mark.parametrize(
    ("rule", "gaps"),
    # Rates per view are drawn on complete data only.
    [(rule, gaps) for rule in RULES for gaps in (False, True) if not (gaps and rule.view_rates)],
    ids=lambda value: value.describe() if isinstance(value, MissingRule) else f"gaps={value}",
)
def test_a_mask_depends_on_its_own_task_alone(rule: MissingRule, gaps: bool) -> None:
    seeds = np.arange(100, 130, dtype=np.uint64)
    labels = np.tile(np.repeat([0, 1, 2], 4), (30, 1))
    present = None
    if gaps:
        present = np.random.default_rng(0).random((30, 12, 3)) < 0.8
        present[..., 1] |= ~present.any(axis=-1)
    together = rule.draw(seeds, 12, 3, 0.4, labels=labels, present=present)
    for order in (np.arange(30)[::-1], np.array([17]), np.arange(5, 9)):
        part = None if present is None else present[order]
        alone = rule.draw(seeds[order], 12, 3, 0.4, labels=labels[order], present=part)
        assert (alone == together[order]).all()


# ------------------------------------------------------------------ natural gaps


@settings(max_examples=100, deadline=None)
@given(
    SEEDS,
    st.integers(1, 10),
    st.integers(2, 5),
    CENTS,
    st.floats(0.3, 1),
    st.booleans(),
    st.integers(0, 9),
)
def test_cells_that_the_data_lack_stay_missing_and_count(
    seeds: Any, n: int, n_views: int, cents: int, share: float, by_class: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    present = rng.random((len(seeds), n, n_views)) < share
    np.put_along_axis(present, rng.integers(0, n_views, (len(seeds), n, 1)), True, axis=-1)
    cents = min(cents, int(100 * (1 - 1 / n_views)))
    rule = MissingRule("class" if by_class else "uniform")
    labels = np.tile(np.arange(n) % 2, (len(seeds), 1))
    mask = rule.draw(seeds, n, n_views, cents / 100, labels=labels, present=present)
    assert not (mask & ~present).any()
    assert mask.any(axis=-1).all()
    wanted = min(rounded(cents, n * n_views), n * (n_views - 1))
    natural = (~present).sum(axis=(1, 2))
    assert ((~mask).sum(axis=(1, 2)) == np.maximum(natural, wanted)).all()


def test_the_argument_is_not_changed() -> None:
    present = np.ones((2, 5, 3), dtype=bool)
    present[0, 0, 0] = False
    before = present.copy()
    for rule in (MissingRule(), RULES[3]):
        rule.draw(np.arange(2, dtype=np.uint64), 5, 3, 0.5, present=present)
        assert (present == before).all()
    everything = np.ones((2, 5, 3), dtype=bool)
    given_none = MissingRule().draw(np.arange(2, dtype=np.uint64), 5, 3, 0.5)
    given_all = MissingRule().draw(np.arange(2, dtype=np.uint64), 5, 3, 0.5, present=everything)
    assert (given_none == given_all).all()


# ------------------------------------------------------------------ laws


def exact_law(n_samples: int, n_views: int, count: int) -> dict[bytes, float]:
    """Probability of every mask, by enumeration: guaranteed views first, then the dropped cells."""
    law: Counter[bytes] = Counter()
    guaranteed_choices = list(product(range(n_views), repeat=n_samples))
    for guaranteed in guaranteed_choices:
        free = [(n, v) for n in range(n_samples) for v in range(n_views) if v != guaranteed[n]]
        subsets = list(combinations(free, count))
        for subset in subsets:
            mask = np.ones((n_samples, n_views), dtype=bool)
            for cell in subset:
                mask[cell] = False
            law[mask.tobytes()] += 1 / len(guaranteed_choices) / len(subsets)
    return law


@pytest.mark.parametrize(("n_samples", "n_views", "count"), [(2, 2, 1), (2, 3, 2), (3, 2, 2)])
def test_uniform_masks_follow_the_law_that_they_are_defined_by(
    n_samples: int, n_views: int, count: int
) -> None:
    draws = 20_000
    masks = draw_uniform(
        np.arange(draws, dtype=np.uint64), n_samples, n_views, count / (n_samples * n_views)
    )
    found = Counter(mask.tobytes() for mask in masks)
    law = exact_law(n_samples, n_views, count)
    assert set(found) <= set(law)
    assert_law([found[key] for key in law], [draws * law[key] for key in law])


def test_every_cell_is_missing_equally_often() -> None:
    # By symmetry a cell is missing with probability eta; over independent tasks that is a
    # binomial count. 24 cells at 5.5 standard deviations: a false alarm in a million.
    draws, eta = 20_000, 0.5
    missing = (~draw_uniform(np.arange(draws, dtype=np.uint64), 6, 4, eta)).sum(axis=0)
    deviation = np.sqrt(draws * eta * (1 - eta))
    assert abs(missing - draws * eta).max() < 5.5 * deviation


def test_patterns_come_with_their_frequencies() -> None:
    rows = np.array([[1, 1], [1, 0], [1, 0], [0, 1], [1, 0], [1, 1]], dtype=bool)
    masks = MissingRule("patterns", patterns=rows).draw(np.arange(500, dtype=np.uint64), 40, 2)
    found = Counter(tuple(row) for row in masks.reshape(-1, 2).tolist())
    expected = {(True, True): 2 / 6, (True, False): 3 / 6, (False, True): 1 / 6}
    assert set(found) == set(expected)
    assert_law([found[key] for key in expected], [20_000 * share for share in expected.values()])


def test_patterns_on_data_with_gaps_never_take_the_last_view() -> None:
    rule = MissingRule("patterns", patterns=np.array([[True, False, False]]))
    present = np.ones((1, 2, 3), dtype=bool)
    present[0, 1] = [False, True, True]
    mask = rule.draw(np.zeros(1, dtype=np.uint64), 2, 3, present=present)
    assert mask.tolist() == [[[True, False, False], [False, True, True]]]


def dependence(masks: Any, labels: Any) -> float:
    """Mean over tasks and views of the chi-square statistic of missingness against class."""
    statistics = []
    for mask, label in zip(masks, labels, strict=True):
        for view in range(mask.shape[1]):
            table = [
                [(label[mask[:, view] == state] == c).sum() for c in np.unique(label)]
                for state in (True, False)
            ]
            if min(map(sum, table)) > 0:
                statistics.append(chi2_contingency(table, correction=False).statistic)
    return float(np.mean(statistics))


def test_missingness_by_class_depends_on_the_class() -> None:
    seeds = np.arange(120, dtype=np.uint64)
    labels = np.tile(np.repeat([0, 1, 2], 30), (len(seeds), 1))
    free = {
        name: dependence(rule.draw(seeds, 90, 4, 0.3, labels=labels), labels)
        for name, rule in {
            "uniform": MissingRule(),
            "strength 0": MissingRule("class", strength=0.0),
            "strength 0.5": MissingRule("class", strength=0.5),
            "strength 2": MissingRule("class"),
        }.items()
    }
    # Without dependence the statistic has mean n / (n - 1) x (classes - 1) = 2.02 given the
    # margins; 480 values with standard deviation about 2 give a standard error of 0.1.
    assert abs(free["uniform"] - 2) < 0.6
    assert abs(free["strength 0"] - 2) < 0.6
    assert free["strength 0.5"] > 4
    assert free["strength 2"] > 15


def test_missingness_by_class_is_a_matter_of_views_not_of_bad_classes() -> None:
    seeds = np.arange(300, dtype=np.uint64)
    labels = np.tile(np.repeat([0, 1], 20), (len(seeds), 1))
    masks = MissingRule("class").draw(seeds, 40, 4, 0.4, labels=labels)
    rate = 1 - masks.reshape(300, 2, 20, 4).mean(axis=2)  # [tasks, classes, views]
    # Over tasks no class and no view is special: 300 draws of a rate with deviation below 0.5.
    assert abs(rate.mean(axis=0) - 0.4).max() < 5 * 0.5 / np.sqrt(300)
    # Within a task the two classes lose different views.
    assert abs(rate[:, 0] - rate[:, 1]).mean() > 0.25


# ------------------------------------------------------------------ rates per view


@settings(max_examples=100, deadline=None)
@given(SEEDS, st.integers(1, 25), st.lists(CENTS, min_size=1, max_size=5))
def test_rates_per_view_are_exact(seeds: Any, n: int, cents: list[int]) -> None:
    rates = tuple(rate / 100 for rate in cents)
    if sum(cents) > 100 * (len(cents) - 1):
        missing = sum(rounded(rate, n) for rate in cents)
        if missing > n * (len(cents) - 1):
            with pytest.raises(FewviewError, match=f"sum to at most {len(cents) - 1}"):
                draw_view_rates(seeds, n, rates)
        return
    mask = MissingRule(view_rates=rates).draw(seeds, n, len(rates))
    assert mask.any(axis=-1).all()
    found = (~mask).sum(axis=1)
    wanted = np.array([rounded(rate, n) for rate in cents])
    if wanted.sum() <= n * (len(cents) - 1):
        assert (found == wanted).all()
    else:  # rounding up would leave a sample without any view: some views round down instead
        exact = np.array(cents) / 100 * n
        assert (abs(found - exact) < 1).all()
        assert (found.sum(axis=1) == n * (len(cents) - 1)).all()


def test_rates_that_only_rounding_makes_impossible() -> None:
    # Half of three samples in each of two views: 1.5 and 1.5 cannot both round up.
    mask = draw_view_rates(np.arange(5, dtype=np.uint64), 3, (0.5, 0.5))
    assert sorted((~mask).sum(axis=1)[0].tolist()) == [1, 2]
    assert mask.any(axis=-1).all()


def test_rates_per_view_treat_samples_alike() -> None:
    draws = 8000
    mask = draw_view_rates(np.arange(draws, dtype=np.uint64), 10, (0.6, 0.3, 0.5))
    missing = (~mask).sum(axis=0)
    for view, rate in enumerate((0.6, 0.3, 0.5)):
        deviation = np.sqrt(draws * rate * (1 - rate))
        assert abs(missing[:, view] - draws * rate).max() < 5.5 * deviation


# ------------------------------------------------------------------ the rule as an object


def test_wrong_rules_are_errors_that_say_why() -> None:
    seeds = np.zeros(1, dtype=np.uint64)
    rows = np.array([[True, False]])
    for message, make in {
        "not one of uniform, patterns, class": lambda: MissingRule("often"),
        "needs the patterns": lambda: MissingRule("patterns"),
        "takes no patterns": lambda: MissingRule(patterns=rows),
        "takes no rates per view": lambda: MissingRule("class", view_rates=(0.1, 0.2)),
        "takes no rates": lambda: MissingRule("patterns", patterns=rows, view_rates=(0.1,)),
        "strength is nan": lambda: MissingRule("class", strength=float("nan")),
        "strength is -1": lambda: MissingRule("class", strength=-1),
        "no view at all": lambda: MissingRule("patterns", patterns=np.zeros((1, 2), bool)),
        "at least one": lambda: MissingRule("patterns", patterns=np.zeros((0, 2), bool)),
        "patterns have 2 views, the data 3": lambda: MissingRule("patterns", patterns=rows).draw(
            seeds, 4, 3
        ),
        "2 missing rates given for 3 views": lambda: MissingRule(view_rates=(0.1, 0.2)).draw(
            seeds, 4, 3
        ),
        "between 0 and 1": lambda: MissingRule(view_rates=(1.1, 0.2)).draw(seeds, 4, 2),
        "needs the labels": lambda: MissingRule("class").draw(seeds, 4, 3, 0.1),
        "complete data only": lambda: MissingRule(view_rates=(0.1, 0.2)).draw(
            seeds, 2, 2, present=np.array([[[True, False], [True, True]]])
        ),
    }.items():
        with pytest.raises(FewviewError, match=message):
            make()


def test_rules_are_equal_when_they_draw_the_same() -> None:
    one, two = np.array([[True, False]]), np.array([[True, True]])
    rules = [
        *RULES,
        MissingRule("class", strength=1.0),
        MissingRule("patterns", patterns=one),
        MissingRule("patterns", patterns=two),
        MissingRule(view_rates=(0.1, 0.2)),
        MissingRule(view_rates=(0.2, 0.1)),
    ]
    assert len(set(rules)) == len({rule.describe() for rule in rules}) == len(rules)
    assert MissingRule("patterns", patterns=one) == MissingRule("patterns", patterns=one.copy())
    assert MissingRule(view_rates=[0.1, 0.2]) == MissingRule(view_rates=(0.1, 0.2))  # type: ignore[arg-type]
    assert MissingRule() != "uniform"


def test_patterns_of_a_rule_are_a_copy_of_its_own() -> None:
    rows = np.array([[True, False]])
    rule = MissingRule("patterns", patterns=rows)
    rows[:] = True
    assert draw_patterns(np.zeros(1, dtype=np.uint64), 1, rule.patterns).tolist() == [  # type: ignore[arg-type]
        [[True, False]]
    ]
