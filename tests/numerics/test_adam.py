"""Adam of many problems at once against the algorithm as printed and torch's own."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from fewview.numerics.adam import make_adam, minimise_adam, take_step


def adam_by_hand(
    gradient: Any, start: Tensor, rate: float, steps: int, betas: tuple[float, float] = (0.9, 0.999)
) -> Tensor:
    """Algorithm 1 of Kingma and Ba 2015, line by line."""
    x, first, second = start.clone(), torch.zeros_like(start), torch.zeros_like(start)
    for t in range(1, steps + 1):
        g = gradient(x)
        first = betas[0] * first + (1 - betas[0]) * g
        second = betas[1] * second + (1 - betas[1]) * g * g
        corrected = (second / (1 - betas[1] ** t)).sqrt() + 1e-8
        x = x - rate * (first / (1 - betas[0] ** t)) / corrected
    return x


@pytest.mark.parametrize("shape", [(1, 3), (5, 3, 7), (2, 4, 33)])
def test_adam_is_the_published_algorithm_and_tasks_do_not_mix(shape: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(sum(shape))
    start, target = (torch.randn(*shape, generator=generator).double() for _ in range(2))
    curve = torch.rand(*shape, generator=generator).double() * 10 + 0.1
    before = start.clone()

    def slope(x: Tensor, part: slice = slice(None)) -> Tensor:
        return curve[part] * (x - target[part]) ** 3

    found = minimise_adam(slope, start, learning_rate=0.05, n_steps=200)
    assert torch.equal(start, before)
    assert torch.allclose(found, adam_by_hand(slope, start, 0.05, 200), rtol=1e-10, atol=1e-10)
    single = minimise_adam(lambda x: slope(x, slice(1)), start[:1], learning_rate=0.05, n_steps=200)
    assert torch.allclose(single, found[:1], rtol=1e-12, atol=1e-12)
    # The same by single steps of an optimiser for several tensors at once.
    both = [start.clone(), start.clone()]
    adam = make_adam(both, 0.05)
    for _ in range(200):
        take_step(adam, [slope(both[0]), None])
    assert torch.allclose(both[0], found, rtol=1e-12, atol=1e-12)
    assert torch.equal(both[1], start)
    assert both[0].grad is None


def test_small_gradients_and_no_steps() -> None:
    """Where the gradient is as small as epsilon, it counts."""
    start = torch.ones(3, dtype=torch.float64)

    def slope(x: Tensor) -> Tensor:
        return 1e-8 * torch.tensor([1.0, -2.0, 0.5]) * x

    found = minimise_adam(slope, start, learning_rate=0.1, n_steps=3)
    assert torch.allclose(found, adam_by_hand(slope, start, 0.1, 3), rtol=1e-9)
    assert torch.equal(minimise_adam(slope, start, learning_rate=0.1, n_steps=0), start)
    assert minimise_adam(lambda x: x, torch.ones(2, 6).mT, learning_rate=0.1, n_steps=1).shape == (
        6, 2,
    )  # fmt: skip


def test_other_betas() -> None:
    x = torch.randn(4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    wanted = adam_by_hand(lambda z: z**3, x, 0.02, 50, betas=(0.5, 0.9))
    adam = make_adam([x], 0.02, betas=(0.5, 0.9))
    for _ in range(50):
        take_step(adam, [x**3])
    assert torch.allclose(x, wanted, rtol=1e-10)


def test_adam_is_torchs() -> None:
    x = torch.randn(3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    y = x.clone().requires_grad_()
    optimiser = torch.optim.Adam([y], lr=0.05)
    for _ in range(30):
        optimiser.zero_grad()
        (y**4 + y).sum().backward()
        optimiser.step()
    found = minimise_adam(lambda z: 4 * z**3 + 1, x, learning_rate=0.05, n_steps=30)
    assert torch.allclose(found, y.detach(), atol=1e-12)


def test_views_are_refused() -> None:
    with pytest.raises(ValueError, match="not views"):
        make_adam([torch.zeros(2), torch.zeros(2, 6)[:, :3]], 0.05)
