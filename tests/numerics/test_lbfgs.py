"""L-BFGS of many problems at once against scipy, by what it evaluates, and whatever the batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torch import Tensor

from fewview.numerics.lbfgs import minimise_lbfgs

ONES = torch.ones(()).double()


def rosenbrock(x: Tensor) -> tuple[Tensor, Tensor]:
    a, b = x[:, 0], x[:, 1]
    slope = torch.stack((-400 * a * (b - a * a) - 2 * (1 - a), 200 * (b - a * a)), dim=1)
    return 100 * (b - a * a) ** 2 + (1 - a) ** 2, slope


def quadratic(x: Tensor, matrix: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    slope = (matrix @ (x - target)[..., None])[..., 0]
    return 0.5 * (slope * (x - target)).sum(1), slope


def matrices(tasks: int, width: int, condition: float, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    basis = torch.linalg.qr(torch.randn(tasks, width, width, generator=generator).double()).Q
    values = torch.logspace(0, float(np.log10(condition)), width, dtype=torch.float64)
    return basis @ (values[:, None] * basis.mT), torch.randn(
        tasks, width, generator=generator
    ).double()


def test_rosenbrock_whatever_the_batch() -> None:
    start = torch.tensor([[-1.2, 1.0], [2.0, 2.0], [0.0, 0.0]], dtype=torch.float64)
    before = start.clone()
    found = minimise_lbfgs(rosenbrock, start, tol=1e-9)
    assert torch.allclose(found, ONES, atol=1e-6)
    assert torch.equal(start, before)
    for task in range(3):
        one = minimise_lbfgs(rosenbrock, start[task : task + 1], tol=1e-9)
        assert torch.equal(one, found[task : task + 1])


@pytest.mark.parametrize("history", [3, 10])
@pytest.mark.parametrize("condition", [1.0, 100.0, 1e3])
def test_quadratics_cost_about_what_they_cost_scipy(condition: float, history: int) -> None:
    matrix, target = matrices(3, 20, condition)
    for task in range(3):
        evaluated: list[int] = []

        def watched(x: Tensor, *given: Tensor, evaluated: list[int] = evaluated) -> Any:
            evaluated.append(1)
            return quadratic(x, *given)

        given = matrix[task : task + 1], target[task : task + 1]
        start = torch.zeros(1, 20).double()
        found = minimise_lbfgs(watched, start, *given, tol=1e-6, history=history, max_iter=5000)
        assert torch.allclose(found, given[1], atol=2e-6)

        def plain(x: Any, given: tuple[Tensor, ...] = given) -> Any:
            value, slope = quadratic(torch.from_numpy(x)[None], *given)
            return float(value), slope[0].numpy()

        other = minimize(
            plain, np.zeros(20), jac=True, method="L-BFGS-B",
            options={"gtol": 1e-6, "ftol": 0, "maxcor": history, "maxiter": 5000, "maxfun": 50000},
        )  # fmt: skip
        assert len(evaluated) < 1.3 * other.nfev + 8


def test_logistic_regression_of_many_tasks_is_scipys() -> None:
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(7, 40, 5, generator=generator).double()
    y = (torch.rand(7, 40, generator=generator) < 0.5).double() * 2 - 1

    def loss(w: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        margin = y * (x @ w[..., None])[..., 0]
        pull = -y * torch.sigmoid(-margin)
        value = torch.nn.functional.softplus(-margin).sum(1) + 0.5 * (w * w).sum(1)
        return value, (x.mT @ pull[..., None])[..., 0] + w

    found = minimise_lbfgs(loss, torch.zeros(7, 5).double(), x, y, tol=1e-10)
    for task in range(7):
        other = minimize(
            lambda w, t=task: float(loss(torch.from_numpy(w)[None], x[t : t + 1], y[t : t + 1])[0]),
            np.zeros(5),
            tol=1e-10,
        )
        assert np.allclose(found[task].numpy(), other.x, atol=1e-5)

    # Other shapes of the unknowns, as they come.
    def shaped_loss(w: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        value, slope = loss(w[..., 0], x, y)
        return value, slope[..., None]

    shaped = minimise_lbfgs(shaped_loss, torch.zeros(7, 5, 1).double(), x, y, tol=1e-10)
    assert torch.allclose(shaped[..., 0], found, atol=1e-8)


def watched(function: Any) -> tuple[Any, list[Tensor]]:
    """A function of one task, and the points at which it was asked."""
    points: list[Tensor] = []

    def asked(x: Tensor) -> Any:
        points.append(x[0].clone())
        return function(x)

    return asked, points


def bowl(x: Tensor) -> tuple[Tensor, Tensor]:
    return 0.5 * (x * x).sum(1), x


def test_the_first_step_is_one_gradient_of_length_one_at_most() -> None:
    for start, wanted in ((8.0, 7.0), (0.25, 0.0)):
        asked, points = watched(bowl)
        minimise_lbfgs(asked, torch.tensor([[start]]).double(), max_iter=1)
        assert [float(point) for point in points[:2]] == [start, wanted]


def test_a_step_goes_on_until_it_is_long_enough_and_turns_back_when_too_long() -> None:
    """Weak Wolfe conditions by doubling and bisection: of x^2 / 2 from 8 downhill.

    The slope must rise to 0.9 of itself: lengths below 0.8 (of 8) are too short. The value must
    fall by 1e-4 of what the slope promises: lengths above 16 (1 - 1e-4) are too long.
    """
    asked, points = watched(bowl)
    minimise_lbfgs(asked, torch.tensor([[8.0]]).double(), max_iter=1)
    # One gradient's length is enough at once: 7 has the slope 7 < 0.9 * 8.
    assert [float(point) for point in points] == [8.0, 7.0]
    asked, points = watched(lambda x: (1e-2 * bowl(x)[0], 1e-2 * bowl(x)[1]))
    minimise_lbfgs(asked, torch.tensor([[800.0]]).double(), tol=0.0, max_iter=1)
    # Slope 8, so lengths 1, 2, 4, ... of it are tried until 80 is passed: 800 - 128.
    assert [float(point) for point in points] == [800.0, *(800 - 2.0**k for k in range(8))]
    asked, points = watched(lambda x: (400 * bowl(x)[0], 400 * bowl(x)[1]))
    minimise_lbfgs(asked, torch.tensor([[0.125]]).double(), tol=0.0, max_iter=1)
    # Slope 50, first length 1 / 50: from 0.125 to -0.875 is too far, as is half of it; a quarter
    # is exactly at the mirror image, and an eighth (at 0) is right.
    assert [float(p) for p in points] == pytest.approx([0.125, -0.875, -0.375, -0.125, 0.0])


def test_not_a_number_is_too_far() -> None:
    """x - log x, whose minimum is at 1, is none at negative x."""

    def barrier(x: Tensor) -> tuple[Tensor, Tensor]:
        return (x - x.log()).sum(1), 1 - 1 / x

    start = torch.tensor([[0.5, 0.3], [1e-3, 9.0], [40.0, 1.5]]).double()
    assert torch.allclose(minimise_lbfgs(barrier, start, tol=1e-9), ONES, atol=1e-7)


def test_a_task_stops_where_its_gradient_is_small_against_its_value() -> None:
    matrix, target = matrices(4, 8, 30.0, seed=2)
    for lift, tol in ((0.0, 1e-3), (1e4, 1e-6)):

        def lifted(x: Tensor, *given: Tensor, lift: float = lift) -> tuple[Tensor, Tensor]:
            value, slope = quadratic(x, *given)
            return value + lift, slope

        found = minimise_lbfgs(lifted, torch.zeros(4, 8).double(), matrix, target, tol=tol)
        value, slope = lifted(found, matrix, target)
        limit = tol * value.abs().clamp(min=1)
        assert bool((slope.abs().amax(1) <= limit).all())
        # ... and not much later: the next digit was not asked for.
        assert bool((slope.abs().amax(1) > 1e-4 * limit).all())
    start = target.clone()
    assert torch.equal(minimise_lbfgs(quadratic, start, matrix, target), start)


@pytest.mark.parametrize(("dtype", "tol"), [(torch.float32, 1e-4), (torch.float64, 1e-7)])
def test_how_small_is_enough_by_itself(dtype: torch.dtype, tol: float) -> None:
    matrix, target = (part.to(dtype) for part in matrices(6, 8, 30.0, seed=4))
    found = minimise_lbfgs(quadratic, torch.zeros(6, 8, dtype=dtype), matrix, target)
    size = quadratic(found, matrix, target)[1].abs().amax(1)
    assert float(size.max()) < 2 * tol  # or its value falls by no more than rounding
    assert float(size.max()) > 1e-3 * tol


def test_three_steps_of_rounding_are_the_end() -> None:
    """A tolerance that float32 cannot reach is no endless search."""
    matrix, target = (part.float() for part in matrices(1, 6, 1e3, seed=5))
    evaluated = []

    def lifted(x: Tensor, *given: Tensor) -> tuple[Tensor, Tensor]:
        evaluated.append(1)
        value, slope = quadratic(x, *given)
        return value + 1e4, slope

    start = torch.zeros(1, 6)
    found = minimise_lbfgs(lifted, start, matrix, target, tol=0.0, max_iter=100000)
    assert len(evaluated) < 200
    assert float(quadratic(found, matrix, target)[0]) < 0.02


def test_a_value_at_the_floor_is_low_enough() -> None:
    """exp(-x) never reaches its infimum."""

    def fall(x: Tensor) -> tuple[Tensor, Tensor]:
        value = torch.exp(-x)
        return value[:, 0], -value

    start = torch.tensor([[0.0], [12.0]]).double()
    found = minimise_lbfgs(fall, start, tol=0.0, floor=1e-3)
    assert torch.exp(-found[0]) <= 1e-3
    assert torch.exp(-found[0]) > 1e-12
    assert found[1] == 12.0  # is there already
    exact = minimise_lbfgs(fall, start, tol=0.0, floor=float(torch.exp(-start[1])))
    assert exact[1] == 12.0


def test_most_steps_and_most_looks() -> None:
    for max_iter in (1, 2, 5):
        asked, points = watched(rosenbrock)
        start = torch.tensor([[-1.2, 1.0]]).double()
        found = minimise_lbfgs(asked, start, tol=0.0, max_iter=max_iter)
        longer, more = watched(rosenbrock)
        minimise_lbfgs(longer, start, tol=0.0, max_iter=max_iter + 1)
        assert len(points) < len(more)
        assert all(torch.equal(a, b) for a, b in zip(points, more, strict=False))
        values = [float(rosenbrock(point[None])[0]) for point in points]
        assert float(rosenbrock(found)[0]) == min(values)
    # A search that may look once takes any decrease that it sees, and stops where there is none.
    asked, points = watched(lambda x: (1e-2 * bowl(x)[0], 1e-2 * bowl(x)[1]))
    found = minimise_lbfgs(asked, torch.tensor([[800.0]]).double(), max_iter=1, max_search=3)
    assert [float(point) for point in points] == [800.0, 799.0, 798.0, 796.0]
    assert float(found) == 796.0
    asked, points = watched(lambda x: (400 * bowl(x)[0], 400 * bowl(x)[1]))
    found = minimise_lbfgs(asked, torch.tensor([[0.125]]).double(), max_search=2)
    assert len(points) == 3
    assert float(found) == 0.125


def test_functions_that_are_not_convex_still_fall() -> None:
    """Steps along negative curvature are not remembered, and the search goes on."""

    def waves(x: Tensor) -> tuple[Tensor, Tensor]:
        value = (torch.sin(3 * x) + 0.1 * x * x).sum(1)
        return value, 3 * torch.cos(3 * x) + 0.2 * x

    start = torch.linspace(-4, 4, 60).reshape(20, 3).double()
    found = minimise_lbfgs(waves, start, tol=1e-8)
    assert bool((waves(found)[1].abs().amax(1) < 1e-7).all())
    assert bool((waves(found)[0] <= waves(start)[0]).all())
    curvature = 0.2 - 9 * torch.sin(3 * found)
    assert bool((curvature > 0).all())  # minima, no saddles


def test_nobody_who_has_stopped_is_evaluated() -> None:
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
    assert torch.allclose(together, ONES, atol=1e-6)
    cost = sum(evaluated)
    single = [minimise_lbfgs(valley, start[k : k + 1], scale[k : k + 1], tol=1e-9) for k in (0, 9)]
    assert torch.equal(torch.cat(single), together[[0, 9]])
    counts = []
    for k in (0, 9):
        evaluated.clear()
        minimise_lbfgs(valley, start[k : k + 1], scale[k : k + 1], tol=1e-9)
        counts.append(len(evaluated))
    assert counts[0] < counts[1]
    assert cost == 9 * counts[0] + counts[1]


class OnGPU(Tensor):
    """A tensor that says that it is on a GPU."""

    @property
    def is_cuda(self) -> bool:  # type: ignore[override]
        return True


def test_on_a_gpu_the_history_has_its_places_from_the_start(monkeypatch: Any) -> None:
    """The same steps as on a CPU; a stand-in has no graphs."""

    def refuse() -> Any:
        raise RuntimeError

    monkeypatch.setattr(torch.cuda, "Stream", lambda priority: torch.cuda.current_stream())
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: type("S", (), {"wait_stream": id})())
    monkeypatch.setattr(torch.cuda, "CUDAGraph", object)
    monkeypatch.setattr(torch.cuda, "stream", lambda side: refuse())
    matrix, target = matrices(3, 20, 100.0, seed=6)
    start = torch.zeros(3, 20).double()
    wanted = minimise_lbfgs(quadratic, start, matrix, target, history=4)
    with pytest.warns(RuntimeWarning, match="not recorded"):
        found = minimise_lbfgs(quadratic, start.as_subclass(OnGPU), matrix, target, history=4)
    assert torch.allclose(found.as_subclass(Tensor), wanted, atol=1e-9)
    assert torch.allclose(wanted, target, atol=1e-6)
