"""What others call a missing rate: converters against counts by hand and full enumeration."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from fewview import FewviewError
from fewview.samples import CONVENTIONS, convert_rate, largest_rate, measure_rates
from fewview.samples._masks import draw_uniform


def keep_patterns(n_views: int) -> list[tuple[int, ...]]:
    return list(product((0, 1), repeat=n_views))


@pytest.mark.parametrize(
    ("rate", "n_views", "given", "views_lost", "cells"),
    [
        (0.4, 2, "incomplete", None, 0.2),  # 10 people, 4 lack one of 2 views: 4 of 20 cells
        (0.6, 2, "paired", None, 0.2),
        (0.4, 2, "incomplete", 1, 0.2),
        (0.6, 3, "incomplete", 1, 0.2),  # 5 people, 3 lack one of 3 views: 3 of 15 cells
        (0.6, 3, "incomplete", 2, 0.4),  # and if they lack two: 6 of 15 cells
        (0.5, 6, "incomplete", 3, 0.25),
        (0.3, 4, "present", None, 0.7),
        (0.5, 2, "independent", None, 1 / 3),  # kept 11, 01 or 10, equally likely: 2 of 6 cells
        (0.5, 2, "given back", None, 3 / 8),  # one in four comes back with one view: 3 of 8 cells
        (1.0, 5, "independent", None, 0.8),
        (1.0, 5, "given back", None, 0.8),
        (0.2775, 3, "incomplete", None, 0.1),  # 1 - 0.85**2
    ],
)  # fmt: skip
def test_rates_counted_by_hand(
    rate: float, n_views: int, given: str, views_lost: float | None, cells: float
) -> None:
    assert convert_rate(rate, n_views, given=given, views_lost=views_lost) == pytest.approx(cells)
    back = convert_rate(cells, n_views, wanted=given, views_lost=views_lost)
    assert back == pytest.approx(rate, abs=1e-6)


@pytest.mark.parametrize("n_views", [2, 3, 5])
@pytest.mark.parametrize("rate", [Fraction(1, 10), Fraction(1, 2), Fraction(9, 10)])
def test_independent_drops_by_enumeration(n_views: int, rate: Fraction) -> None:
    drawn_again = given_back = Fraction(0)
    for kept in keep_patterns(n_views):
        chance = Fraction(1)
        for view in kept:
            chance *= 1 - rate if view else rate
        lost = n_views - sum(kept)
        if lost < n_views:
            drawn_again += chance * lost
        given_back += chance * min(lost, n_views - 1)
    drawn_again /= 1 - rate**n_views
    for given, cells in (("independent", drawn_again), ("given back", given_back)):
        expected = float(cells / n_views)
        assert convert_rate(float(rate), n_views, given=given) == pytest.approx(expected)


@pytest.mark.parametrize("n_views", [2, 3, 4, 6])
def test_any_combination_alike_loses_half_the_views(n_views: int) -> None:
    possible = [kept for kept in keep_patterns(n_views) if 0 < sum(kept) < n_views]
    lost = np.mean([n_views - sum(kept) for kept in possible])
    assert lost == n_views / 2
    eta = convert_rate(0.7, n_views, given="paired", views_lost=float(lost))
    assert eta == pytest.approx(0.3 / 2)


@pytest.mark.parametrize(("n_views", "eta"), [(3, 0.1), (3, 0.5), (6, 0.3), (2, 0.4)])
def test_shares_of_complete_samples_are_those_of_drawn_masks(n_views: int, eta: float) -> None:
    mask = draw_uniform(np.arange(20, dtype=np.uint64), 1000, n_views, eta).reshape(-1, n_views)
    rates = measure_rates(mask)
    assert rates.cells == pytest.approx(eta)
    # 20 000 samples: four standard errors of a share
    tolerance = 4 * 0.5 / np.sqrt(len(mask))
    incomplete = convert_rate(eta, n_views, wanted="incomplete")
    assert rates.incomplete == pytest.approx(incomplete, abs=tolerance)
    # What was counted converts to what was counted, whatever the mask.
    by_counts = convert_rate(
        rates.incomplete, n_views, given="incomplete", views_lost=rates.views_lost
    )
    assert by_counts == pytest.approx(rates.cells)


@pytest.mark.parametrize("given", CONVENTIONS)
@pytest.mark.parametrize("wanted", CONVENTIONS)
def test_there_and_back(given: str, wanted: str) -> None:
    for eta in (0.0, 0.07, 0.33, 0.5, largest_rate(4)):
        start = convert_rate(eta, 4, wanted=given)
        there = convert_rate(start, 4, given=given, wanted=wanted)
        back = convert_rate(there, 4, given=wanted, wanted=given)
        # Near the largest rate "given back" hardly grows: compare cells.
        assert convert_rate(back, 4, given=given) == pytest.approx(eta, abs=1e-8)


def test_masks_counted_by_hand() -> None:
    rates = measure_rates(np.array([[1, 1, 1], [1, 0, 0], [0, 1, 1], [1, 1, 1], [0, 0, 1]], bool))
    assert rates.cells == pytest.approx(5 / 15)
    assert rates.incomplete == pytest.approx(3 / 5)
    assert rates.views_lost == pytest.approx(5 / 3)
    assert rates.per_view == pytest.approx((2 / 5, 2 / 5, 1 / 5))
    assert rates.n_samples == 5
    assert measure_rates([[True, True]]).views_lost == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rate": 0.2, "n_views": 2, "given": "per view"}, "not one of cells"),
        ({"rate": 1.2, "n_views": 2}, "share from 0 to 1"),
        ({"rate": float("nan"), "n_views": 2}, "share from 0 to 1"),
        ({"rate": 0.2, "n_views": 1}, "nothing can be missing"),
        ({"rate": 0.2, "n_views": 3, "given": "paired", "views_lost": 3}, "lacks 1 to 2"),
        ({"rate": 0.6, "n_views": 2, "wanted": "present"}, "largest possible rate is 0.5"),
        ({"rate": 0.1, "n_views": 3, "given": "present"}, "largest possible rate"),
        ({"rate": 0.5, "n_views": 3, "wanted": "paired", "views_lost": 1}, "cannot be missing"),
    ],
)  # fmt: skip
def test_impossible_rates_are_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(FewviewError, match=message):
        convert_rate(**arguments)  # type: ignore[arg-type]


def test_masks_without_rows_are_refused() -> None:
    with pytest.raises(FewviewError, match="at least one"):
        measure_rates(np.zeros((0, 2), bool))
