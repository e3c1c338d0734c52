"""What trained methods share: views in fewer features, weights, masks, losses."""

import numpy as np
import pytest
import torch
from torch import Tensor

from fewview import TaskSpec
from fewview.engine._checks import synthetic_data
from fewview.numerics._networks import (
    draw_weights,
    masked_base,
    masked_mean_square,
    reduce_views,
)
from fewview.samples import MissingRule


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape))


def test_reduced_views_keep_inner_products() -> None:
    view = randn(2, 5, 40)
    view[:, 3] = 0.0
    (reduced,) = reduce_views([view], 64)
    assert reduced.shape == (2, 5, 5)
    assert torch.allclose(reduced @ reduced.mT, view @ view.mT)
    (cut,) = reduce_views([view], 2)
    values = torch.linalg.svdvals(view)
    error = torch.linalg.matrix_norm(cut @ cut.mT - view @ view.mT)
    assert torch.allclose(error, values[:, 2:].pow(4).sum(1).sqrt())  # Eckart and Young
    tall = randn(2, 30, 4)
    assert reduce_views([tall], 8)[0] is tall
    assert reduce_views([view], 0)[0] is view
    low = reduce_views([tall], 3)[0]
    error = torch.linalg.matrix_norm(low @ low.mT - tall @ tall.mT)
    assert torch.allclose(error, torch.linalg.svdvals(tall)[:, 3] ** 2)


def test_reduced_views_are_spread_by_a_cosine_transform() -> None:
    """The matrix of the transform written out, on random views."""
    for n, width in ((5, 40), (30, 7)):
        view = randn(3, n, width)
        keep = min(n, 6)
        steps = np.arange(keep)
        rows = np.cos(steps[:, None] * (steps + 0.5) * np.pi / keep) * (2 / keep) ** 0.5
        rows[0] *= 0.5**0.5
        (reduced,) = reduce_views([view], keep)
        u, values, _ = torch.linalg.svd(view, full_matrices=False)
        axes = u[..., :keep] * values[:, None, :keep]
        largest = axes.gather(1, axes.abs().argmax(1, keepdim=True))
        wanted = (axes * largest.sign()) @ torch.from_numpy(rows)
        assert torch.allclose(reduced, wanted, rtol=0, atol=1e-9)


def test_weights_are_uniform_and_belong_to_their_task() -> None:
    many = draw_weights(torch.arange(50), 0.3, (40, 5), torch.float64, "layer")
    one = draw_weights(torch.tensor([7]), 0.3, (40, 5), torch.float64, "layer")
    assert torch.equal(many[7:8], one)
    assert abs(float(many.detach().mean())) < 0.01
    assert float(many.detach().var()) == pytest.approx(0.3**2 / 3, rel=0.05)


def test_base_masks_follow_the_task() -> None:
    base, _ = synthetic_data()
    for rule, eta in ((MissingRule(), 0.3), (MissingRule(kind="class"), 0.2)):
        task = TaskSpec(way=3, eta=eta, missing=rule)
        views, mask = masked_base(base, task, 0, torch.device("cpu"), torch.float64)
        assert float((~mask).double().mean()) == pytest.approx(eta, abs=0.003)
        assert all(bool((view[~mask[..., index]] == 0).all()) for index, view in enumerate(views))
        assert bool((views[0][mask[..., 0]] != 0).any())


def test_mean_square_over_nothing_is_zero() -> None:
    assert float(masked_mean_square(torch.ones(3, 2), torch.zeros(3), 2)) == 0.0
