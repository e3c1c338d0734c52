"""Minimisers of many problems at once against algorithms as printed and torch's own."""

from typing import Any

import pytest
import torch
from torch import Tensor

from fewview.numerics._optimise import make_adam, minimise_adam, minimise_lbfgs, take_step


def adam_by_hand(gradient: Any, start: Tensor, rate: float, steps: int) -> Tensor:
    """Algorithm 1 of Kingma and Ba 2015, line by line."""
    x, first, second = start.clone(), torch.zeros_like(start), torch.zeros_like(start)
    for t in range(1, steps + 1):
        g = gradient(x)
        first = 0.9 * first + 0.1 * g
        second = 0.999 * second + 0.001 * g * g
        x = x - rate * (first / (1 - 0.9**t)) / ((second / (1 - 0.999**t)).sqrt() + 1e-8)
    return x


@pytest.mark.parametrize("shape", [(1, 3), (5, 3, 7), (2, 4, 33)])
def test_adam_is_the_published_algorithm_and_tasks_do_not_mix(shape: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(sum(shape))
    start, target = (torch.randn(*shape, generator=generator).double() for _ in range(2))
    curve = torch.rand(*shape, generator=generator).double() * 10 + 0.1

    def slope(x: Tensor, part: slice = slice(None)) -> Tensor:
        return curve[part] * (x - target[part]) ** 3

    found = minimise_adam(slope, start, learning_rate=0.05, steps=200)
    assert torch.allclose(found, adam_by_hand(slope, start, 0.05, 200), rtol=1e-10, atol=1e-10)
    alone = minimise_adam(lambda x: slope(x, slice(1)), start[:1], learning_rate=0.05, steps=200)
    assert torch.allclose(alone, found[:1], rtol=1e-12, atol=1e-12)
    # The same by single steps of an optimiser for several tensors at once.
    both = [start.clone(), start.clone()]
    adam = make_adam(both, 0.05)
    for _ in range(200):
        take_step(adam, [slope(both[0]), None])
    assert torch.allclose(both[0], found, rtol=1e-12, atol=1e-12)
    assert torch.equal(both[1], start)
    with pytest.raises(ValueError, match="not views"):
        make_adam([torch.zeros(2, 6)[:, :3]], 0.05)


def test_adam_is_torchs() -> None:
    x = torch.randn(3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    y = x.clone().requires_grad_()
    optimiser = torch.optim.Adam([y], lr=0.05)
    for _ in range(30):
        optimiser.zero_grad()
        (y**4 + y).sum().backward()
        optimiser.step()
    found = minimise_adam(lambda z: 4 * z**3 + 1, x, learning_rate=0.05, steps=30)
    assert torch.allclose(found, y.detach(), atol=1e-12)


def test_lbfgs_solves_rosenbrock_whatever_the_batch() -> None:
    start = torch.tensor([[-1.2, 1.0], [2.0, 2.0], [0.0, 0.0]], dtype=torch.float64)

    def rosenbrock(x: Tensor) -> tuple[Tensor, Tensor]:
        a, b = x[:, 0], x[:, 1]
        slope = torch.stack((-400 * a * (b - a * a) - 2 * (1 - a), 200 * (b - a * a)), dim=1)
        return 100 * (b - a * a) ** 2 + (1 - a) ** 2, slope

    found = minimise_lbfgs(rosenbrock, start, tol=1e-9)
    assert torch.allclose(found, torch.ones(()).double(), atol=1e-6)
    alone = minimise_lbfgs(rosenbrock, start[:1], tol=1e-9)
    assert torch.equal(alone, found[:1])


def test_lbfgs_evaluates_nobody_who_has_stopped() -> None:
    """A task that is hard to minimise does not make the others wait: they cost what they need."""
    scale = torch.tensor([1.0] * 9 + [1000.0], dtype=torch.float64)[:, None]
    start = torch.full((10, 2), -1.2, dtype=torch.float64)
    evaluated = []

    def valley(x: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
        evaluated.append(len(x))
        a, b = x[:, :1], x[:, 1:]
        value = scale * (b - a * a) ** 2 + (1 - a) ** 2
        slope = torch.cat((-4 * scale * a * (b - a * a) - 2 * (1 - a), 2 * scale * (b - a * a)), 1)
        return value[:, 0], slope

    together = minimise_lbfgs(valley, start, scale, tol=1e-9)
    assert torch.allclose(together, torch.ones(()).double(), atol=1e-6)
    cost = sum(evaluated)
    evaluated.clear()
    alone = [minimise_lbfgs(valley, start[k : k + 1], scale[k : k + 1], tol=1e-9) for k in (0, 9)]
    assert torch.equal(torch.cat(alone), together[[0, 9]])
    evaluated.clear()
    minimise_lbfgs(valley, start[:1], scale[:1], tol=1e-9)
    easy, hard = len(evaluated), cost - 9 * len(evaluated)
    evaluated.clear()
    minimise_lbfgs(valley, start[9:], scale[9:], tol=1e-9)
    assert easy < len(evaluated) == hard
