"""The arithmetic of floors in the benchmarks: small cases counted by hand or by loops."""

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest


def load_floors() -> Any:
    path = Path(__file__).parents[1] / "benchmarks" / "floors.py"
    spec = importlib.util.spec_from_file_location("benchmark_floors", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


floors = load_floors()


def counted_product(rows: int, inner: int, columns: int) -> int:
    """Multiplications and additions of a product, one by one."""
    count = 0
    for _ in range(rows):
        for _ in range(columns):
            for _ in range(inner):
                count += 2
    return count


def test_products_are_counted() -> None:
    assert floors.product_cost(3, 4, 5).operations == counted_product(3, 4, 5)
    # One triangle with its diagonal of a 4 x 4 matrix has 10 entries.
    assert floors.symmetric_cost(3, 4).operations == 3 * 10 * 2
    assert floors.solve_cost(4, 2).operations == pytest.approx(2 * 2 * sum(range(5)), rel=0.3)


def test_a_floor_is_the_slower_of_work_and_traffic() -> None:
    rates = floors.Rates(product=100.0, copy=10.0)
    assert floors.Cost(200, 10).seconds(rates) == 2.0
    assert floors.Cost(200, 50).seconds(rates) == 5.0
    assert (floors.Cost(1, 2) + floors.Cost(10, 20)) * 2 == floors.Cost(22, 44)


def test_episodes_move_every_row_twice() -> None:
    assert floors.episodes_cost(10, 4, [3, 2]) == floors.Cost(0, 2 * 10 * 4 * 5 * 4)


def test_class_statistics() -> None:
    dense = floors.class_statistics_cost([5, 7], 3, dense=True)
    assert dense.operations == 12 * 3 * 4 + 12 * 3
    assert dense.bytes == 4 * (12 * 3 + 2 * 9)
    # Ten million rows of 512 features: 2.6 tera-operations.
    whole = floors.class_statistics_cost([100_000] * 100, 512, dense=True)
    assert whole.operations == pytest.approx(10**7 * 512 * 513, rel=0.01)
    kept = floors.class_statistics_cost([5, 7], 3, dense=False)
    assert kept.bytes == 4 * 2 * 12 * 3


def test_marginal_statistics() -> None:
    cost = floors.marginal_statistics_cost(10, [6, 4], [2, 3])
    by_hand = counted_product(10, 6, 2) + counted_product(10, 4, 3) + 10 * 5 * 6
    assert cost.operations == by_hand
    assert cost.bytes == 4 * 10 * 10


def test_ugda_in_few_dimensions_needs_no_gram_matrix() -> None:
    narrow = floors.ugda_exact_cost(3, 6, 3, [4, 2], [None, None], 10, evaluations=2)
    assert narrow.operations == 30 * (16 + 4) + 2 * 2 * counted_product(36, 6, 3)
    wide = floors.ugda_exact_cost(3, 6, 3, [40, 20], [None, 5], 10, evaluations=0)
    by_hand: float = 30 * 40**2 + counted_product(30, 5, 20)  # noise
    by_hand += 60 * 30 * 31 + counted_product(30, 60, 6)  # Gram matrix, queries
    by_hand += 30**3 / 3 + 30**2 * 6
    assert wide.operations == pytest.approx(by_hand)


def test_iterations_count() -> None:
    shape = (3, 6, 3, [4, 2])
    few, many = (
        floors.ugda_adam_cost(*shape, [None, None], 10, 5, n_iter, 10, 100) for n_iter in (1, 2)
    )
    more = 2 * 2 * counted_product(30, 5, 6) * 10 + 2 * counted_product(6, 5, 6)
    assert many.operations - few.operations == more
    assert floors.tim_cost(*shape, 7).operations == 14 * counted_product(9, 6, 3)


def test_rounds_of_marginal_count() -> None:
    def operations(*given: Any) -> float:
        return floors.marginal_cost(3, 6, 3, [4, 2], [2, 2], 3, *given).operations

    queries = 2 * counted_product(3, 6, 3)
    assert operations(0.0, 2) - operations(0.0, 1) == queries  # nothing to invert
    # Three classes: an inverse, and three patterns of two views, 3 x 4 operations each, twice.
    assert operations(0.5, 2) - operations(0.5, 1) == queries + 3 * (27 + 2 * 3 * 12)
    # Of a wide view and a narrow one, two coordinates are inverted; seven patterns more, and twice
    # products of two with seven.
    wide, wider = (
        floors.marginal_cost(3, 6, 3, [9, 1], [8, 1], 9, 0.5, rounds).operations
        for rounds in (1, 2)
    )
    each = 8 + 2 * (3 + 7) * 6 + 2 * counted_product(1, 2, 7)
    assert wider - wide == 2 * counted_product(3, 6, 9) + 3 * each
    # Nine rows of four features and two components, then times five directions.
    more = operations(0.5, 1, [0], 5) - operations(0.5, 1)
    assert more == (4 + 2) * 9 * 10 + 3 * counted_product(9, 9, 5)


def test_rates_are_measured() -> None:
    rates = floors.measure_rates("cpu", largest=512)
    # A core multiplies faster than 0.1 and slower than 10,000 giga-operations per second.
    assert 1e8 < rates.product < 1e13
    assert 1e7 < rates.copy < 1e12
