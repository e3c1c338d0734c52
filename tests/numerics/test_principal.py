"""Principal axes are numpy's singular vectors, by whichever way they are found."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fewview.numerics.principal import principal_axes, products


def rows_of(n: int, width: int) -> torch.Tensor:
    """Centred rows whose axes differ clearly in their variances."""
    rng = np.random.default_rng(n + width)
    rank = min(n, width)
    sizes = 2.0 ** -np.minimum(np.arange(rank), 12)
    rows = rng.normal(size=(n, rank)) * sizes @ np.linalg.qr(rng.normal(size=(width, rank)))[0].T
    return torch.from_numpy(rows - rows.mean(0))


# By features, by samples, by a Lanczos iteration over products of features and of samples.
@pytest.mark.parametrize(("n", "width"), [(50, 7), (9, 200), (900, 700), (700, 1500)])
def test_axes_and_variances_are_numpys(n: int, width: int) -> None:
    rows = rows_of(n, width)
    axes, variances = principal_axes(rows, 5)
    _, sizes, wanted = np.linalg.svd(rows.numpy(), full_matrices=False)
    assert axes.shape == (width, 5)
    assert np.allclose(variances, sizes[:5] ** 2 / n)
    assert np.allclose(np.abs(wanted[:5] @ axes.numpy()), np.eye(5), atol=1e-6)
    again = principal_axes(rows, 5)
    assert torch.equal(axes, again[0])


def test_more_features_than_are_multiplied_at_once() -> None:
    """Above 4000 features and samples no matrix of products is made."""
    rng = np.random.default_rng(0)
    rows = torch.from_numpy(rng.normal(size=(4100, 2)) * [3.0, 1.0] @ rng.normal(size=(2, 4100)))
    rows -= rows.mean(0)
    axes, variances = principal_axes(rows, 2)
    # Rank two: the eigenvalues are those of the 2 x 2 problem.
    assert float(variances.sum()) == pytest.approx(float(rows.square().sum()) / 4100)
    assert torch.allclose(rows @ axes @ axes.T, rows, atol=1e-8)


def test_directions_in_which_rows_do_not_differ_are_dropped() -> None:
    rows = rows_of(50, 7)
    rows[:, 3:] = rows[:, :3] @ torch.ones(3, 4).double()
    axes, variances = principal_axes(rows, 7)
    assert axes.shape == (7, 3)
    assert bool((variances > 0).all())
    assert torch.allclose(axes.T @ axes, torch.eye(3).double())


def test_without_components_it_is_the_first_feature() -> None:
    rows = rows_of(50, 4)
    for found in (principal_axes(rows, 0), principal_axes(torch.zeros(5, 4).double(), 2)):
        assert found[0].T.tolist() == [[1.0, 0.0, 0.0, 0.0]]
    assert float(principal_axes(rows, 0)[1]) == pytest.approx(float(rows[:, 0].square().mean()))


@pytest.mark.parametrize("width", [1, 256, 257, 300, 520])
def test_products_are_the_whole_product(width: int) -> None:
    rows = torch.from_numpy(np.random.default_rng(width).normal(size=(40, width)))
    assert torch.allclose(products(rows), rows.T @ rows)
