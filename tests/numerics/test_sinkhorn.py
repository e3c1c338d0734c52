"""Optimal transport of many small problems against POT, and its relaxed form against scipy."""

from __future__ import annotations

from typing import Any

import numpy as np
import ot
import pytest
import torch
from scipy.optimize import minimize
from scipy.special import logsumexp
from torch import Tensor

from fewview.numerics.sinkhorn import balanced_softmax, sinkhorn


def costs(*shape: int, seed: int = 1, dtype: torch.dtype = torch.float64) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (4 * torch.rand(*shape, generator=generator, dtype=torch.float64)).to(dtype)


@pytest.mark.parametrize("strength", [1.0, 10.0])
def test_sinkhorn_is_pots(strength: float) -> None:
    cost = costs(4, 30, 3)
    columns = torch.tensor([10.0, 12.0, 8.0], dtype=torch.float64).expand(4, 3)
    log_plan, v = sinkhorn(-strength * cost, columns, tol=1e-10)
    for task in range(4):
        wanted = ot.sinkhorn(
            np.ones(30), columns[task].numpy(), cost[task].numpy(), 1 / strength,
            numItermax=100000, stopThr=1e-12,
        )  # fmt: skip
        assert np.allclose(log_plan[task].exp().numpy(), wanted, atol=1e-7)
    assert torch.allclose(v.sum(1), torch.zeros(4).double(), atol=1e-9)
    assert torch.allclose((v[:, None] - strength * cost).log_softmax(-1), log_plan, atol=1e-12)
    # Its own potentials are the end of the search.
    more, _ = sinkhorn(-strength * cost, columns, tol=1e-10, max_sweeps=1, start=v)
    assert torch.allclose(more, log_plan, atol=1e-8)


def test_sinkhorn_of_one_task_equals_that_of_many() -> None:
    kernel = -8 * costs(6, 20, 4)
    columns = torch.tensor([2.0, 3.0, 5.0, 10.0]).double().expand(6, 4)
    many, v = sinkhorn(kernel, columns, tol=1e-9)
    for task in range(6):
        one, w = sinkhorn(kernel[task : task + 1], columns[:1], tol=1e-9)
        assert torch.allclose(one[0], many[task], atol=1e-12)
        assert torch.allclose(w[0], v[task], atol=1e-12)


def test_sinkhorn_where_plain_sweeps_are_slow() -> None:
    """Nearly all rows prefer the first column by far: plain sweeps crawl, Newton's steps do not."""
    cost = torch.tensor([[0.0, 3.9, 4.0]], dtype=torch.float64).repeat(20, 1)[None]
    cost = cost + 0.05 * torch.rand(1, 20, 3, generator=torch.Generator().manual_seed(0))
    columns = torch.full((1, 3), 20 / 3, dtype=torch.float64)
    log_plan, _ = sinkhorn(-10 * cost, columns, tol=1e-9, max_sweeps=15)
    assert torch.allclose(log_plan.exp().sum(1), columns, atol=1e-7)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", [1e-3, 1.0, 30.0, 1e3])
def test_sinkhorn_meets_the_sums_that_were_asked_for(size: float, dtype: torch.dtype) -> None:
    kernel = -size * costs(5, 40, 4, dtype=dtype)
    columns = torch.tensor([1.0, 4.0, 15.0, 20.0], dtype=dtype).expand(5, 4)
    log_plan, v = sinkhorn(kernel, columns, tol=1e-8, max_sweeps=2000)
    assert torch.isfinite(v).all()
    assert log_plan.dtype == dtype
    assert torch.allclose(log_plan.exp().sum(2), torch.ones(5, 40, dtype=dtype))
    if size < 1e3:  # beyond, float32 cannot tell, and masses are all or nothing
        error = ((log_plan.exp().sum(1) - columns).abs() / columns).max()
        assert float(error) < (1e-7 if dtype == torch.float64 else 3e-5)


@pytest.mark.parametrize("tol", [0.3, 0.03, 1e-3])
def test_sinkhorn_stops_where_every_sum_is_right_relative_to_itself(tol: float) -> None:
    columns = torch.tensor([0.05, 9.95, 30.0]).double().expand(200, 3)
    found, _ = sinkhorn(-6 * costs(200, 40, 3, seed=9), columns, tol=tol, max_sweeps=10**9)
    errors = ((found.exp().sum(1) - columns).abs() / columns).amax(1)
    assert float(errors.max()) <= tol
    assert float(errors.max()) > 0.01 * tol  # and not much later


def test_sinkhorn_with_few_sweeps_is_on_its_way() -> None:
    kernel, columns = -2 * costs(3, 12, 3), torch.full((3, 3), 4.0).double()

    def error(max_sweeps: int) -> float:
        found = sinkhorn(kernel, columns, tol=1e-12, max_sweeps=max_sweeps)[0].exp().sum(1)
        return float((found - columns).abs().max())

    none = float((kernel.softmax(-1).sum(1) - columns).abs().max())
    assert error(0) == pytest.approx(none)
    assert error(1) < 0.1 * none
    assert error(2) < 0.1 * error(1)
    assert error(9) < 1e-10


def test_one_class_takes_all() -> None:
    log_plan, v = sinkhorn(torch.randn(2, 5, 1), torch.full((2, 1), 5.0))
    assert log_plan.exp().tolist() == [[[1.0]] * 5] * 2
    assert v.tolist() == [[0.0], [0.0]]


# ---------------------------------------------------------------------------- relaxed


def by_scipy(logits: Any, weight: float) -> Any:
    """Minimise the convex function of the potentials that the docstring names."""
    n_query, way = logits.shape
    strength, target = weight / (1 - weight), n_query / way

    def objective(v: Any) -> float:
        fit = logsumexp(logits + v, axis=1).sum()
        return float(fit + strength * target * np.exp(-v / strength).sum())

    found = minimize(objective, np.zeros(way), method="BFGS", options={"gtol": 1e-9})
    scores = logits + found.x
    return np.exp(scores - logsumexp(scores, axis=1, keepdims=True))


@pytest.mark.parametrize("weight", [0.1, 0.5, 0.9, 0.99])
def test_balanced_softmax_minimises_its_function(weight: float) -> None:
    logits = -3 * costs(4, 25, 3, seed=3) + torch.tensor([2.0, 0.0, -1.0]).double()
    log_plan, v = balanced_softmax(logits, weight, tol=1e-10)
    for task in range(4):
        wanted = by_scipy(logits[task].numpy(), weight)
        assert np.allclose(log_plan[task].exp().numpy(), wanted, atol=1e-5)
    # The potentials are those of a damped Sinkhorn sweep that changes nothing.
    masses = log_plan.exp().sum(1)
    swept = weight * (v + np.log(25 / 3) - masses.log())
    assert torch.allclose(swept, v, atol=1e-9)
    more, _ = balanced_softmax(logits, weight, tol=1e-10, max_sweeps=1, start=v)
    assert torch.allclose(more, log_plan, atol=1e-9)


def test_the_weight_goes_from_softmax_to_equal_masses() -> None:
    logits = -3 * costs(2, 30, 3, seed=5) + torch.tensor([3.0, 0.0, 0.0]).double()
    plain, v = balanced_softmax(logits, 0.0)
    assert torch.allclose(plain, logits.log_softmax(-1), atol=1e-12)
    assert v.tolist() == [[0.0] * 3] * 2
    equal = balanced_softmax(logits, 1.0)[0]
    wanted = sinkhorn(logits, torch.full((2, 3), 10.0).double())[0]
    assert torch.allclose(equal, wanted, atol=1e-9)
    first = [
        float(balanced_softmax(logits, w)[0].exp()[..., 0].sum(1).max())
        for w in (0.0, 0.2, 0.5, 0.8, 0.95, 1.0)
    ]
    assert first == sorted(first, reverse=True)
    assert first[0] > 12
    assert first[-1] == pytest.approx(10, abs=1e-4)
    near = balanced_softmax(logits, 1 - 1e-6, tol=1e-9)[0]
    assert torch.allclose(near.exp(), equal.exp(), atol=1e-4)


@pytest.mark.parametrize(("size", "weight"), [(10, 0.3), (50, 0.7), (50, 0.99), (100, 0.95)])
def test_sweeps_take_over_where_newton_does_not_help(size: float, weight: float) -> None:
    """Of many tasks some need them; all get to the fixed point of the damped sweep."""
    logits = -size * costs(400, 20, 3, seed=7) / 4
    log_plan, v = balanced_softmax(logits, weight, tol=1e-9, max_sweeps=100)
    swept = weight * (v + np.log(20 / 3) - log_plan.exp().sum(1).log())
    assert torch.allclose(swept, v, atol=2e-9, rtol=0)


@pytest.mark.parametrize("size", [0.0, 1.0, 50.0, 1e4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_balanced_softmax_of_any_size_and_of_one_task(size: float, dtype: torch.dtype) -> None:
    """Extreme logits make Newton's equations singular; sweeps still go down."""
    logits = -size * costs(5, 20, 3, seed=7, dtype=dtype)
    many, v = balanced_softmax(logits, 0.7, max_sweeps=200)
    assert torch.isfinite(v).all()
    assert torch.allclose(many.exp().sum(-1), torch.ones(5, 20, dtype=dtype))
    one = torch.cat([balanced_softmax(part, 0.7, max_sweeps=200)[0] for part in logits.split(1)])
    assert torch.allclose(one.exp(), many.exp(), atol=1e-5)
    swept = 0.7 * (v + np.log(20 / 3) - many.exp().sum(1).log())
    if size < 1e4:
        assert torch.allclose(swept, v, atol=3e-5)


class OnGPU(Tensor):
    """A tensor that says that it is on a GPU."""

    @property
    def is_cuda(self) -> bool:  # type: ignore[override]
        return True


def test_on_a_gpu_nobody_waits_to_hear_whether_a_sweep_is_needed() -> None:
    """At most four rounds: a stand-in has no graphs."""
    logits = -20 * costs(4, 25, 3, seed=3)
    start = torch.zeros(4, 3).double()
    wanted, v = balanced_softmax(logits, 0.9, max_sweeps=4, start=start)
    found, w = balanced_softmax(logits, 0.9, max_sweeps=4, start=start.as_subclass(OnGPU))
    assert torch.allclose(found.as_subclass(Tensor), wanted, atol=1e-12)
    assert torch.allclose(w.as_subclass(Tensor), v, atol=1e-12)
