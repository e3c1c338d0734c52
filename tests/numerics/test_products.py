"""Products of rows with themselves, and numpy with one thread."""

from __future__ import annotations

import pytest
import torch
from threadpoolctl import threadpool_info, threadpool_limits

from fewview.numerics._products import COLUMNS, one_thread_of_numpy, products


@pytest.mark.parametrize("width", [1, 2 * COLUMNS, 2 * COLUMNS + 1, 3 * COLUMNS + 7])
def test_products_are_those_of_all_columns_with_all(width: int) -> None:
    # Small whole numbers: every sum is exact, whatever the order.
    rows = torch.randint(-8, 9, (40, width), generator=torch.Generator().manual_seed(width))
    exact = torch.einsum("ni,nj->ij", rows, rows)
    for wanted in (torch.float32, torch.float64):
        found = products(rows.to(wanted))
        assert found.dtype == wanted
        assert torch.equal(found.long(), exact)


def test_products_of_other_layouts_and_of_no_rows() -> None:
    rows = torch.arange(3.0 * 300).reshape(3, 300)
    assert torch.equal(products(rows.T.contiguous().T), rows.T @ rows)
    assert torch.equal(products(torch.zeros(0, 300)), torch.zeros(300, 300))


def _threads() -> set[int]:
    return {found["num_threads"] for found in threadpool_info() if found["user_api"] == "blas"}


def test_numpy_gets_its_threads_back() -> None:
    with threadpool_limits(2, user_api="blas"):
        with one_thread_of_numpy():
            assert _threads() == {1}
            with one_thread_of_numpy():
                assert _threads() == {1}
            assert _threads() == {1}
        assert _threads() == {2}
        with pytest.raises(ValueError, match="piece"), one_thread_of_numpy():
            raise ValueError("piece")
        assert _threads() == {2}
