"""Minimisers that solve many independent problems at once, one per task.

`minimise_lbfgs` stops every task by itself, so that a batch of one equals a batch of many;
`minimise_adam` takes a fixed number of steps, as the methods that are defined by it do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.optim.adam import adam

FunctionAndGradient = Callable[[Tensor], tuple[Tensor, Tensor]]


def minimise_lbfgs(
    function_and_gradient: FunctionAndGradient,
    start: Tensor,
    *,
    tol: float | None = None,
    max_iter: int = 200,
    history: int = 10,
    max_search: int = 25,
    enough: float | None = None,
) -> Tensor:
    """Minimise one smooth function per task by L-BFGS (Nocedal and Wright 2006, algorithm 7.5).

    Steps satisfy the weak Wolfe conditions, found by bisection (Lewis and Overton 2013), so the
    functions need not be convex. A task stops when the largest entry of its gradient is below
    `tol * max(1, |f|)` (1e-7 in float64, 1e-4 in float32), when steps decrease its function by no
    more than rounding, or when its value is `enough`, for functions whose infimum is known but not
    attained. Functions take x [tasks, ...] and return values [tasks] and gradients [tasks, ...];
    entry t depends on x[t] alone.
    """
    if tol is None:
        tol = 1e-7 if start.dtype == torch.float64 else 1e-4
    tasks, shape = start.shape[0], start.shape
    x = start.reshape(tasks, -1).clone()

    def evaluate(point: Tensor) -> tuple[Tensor, Tensor]:
        value, gradient = function_and_gradient(point.reshape(shape))
        return value, gradient.reshape(tasks, -1)

    value, gradient = evaluate(x)
    steps: list[Tensor] = []
    changes: list[Tensor] = []
    inverses: list[Tensor] = []  # 1 / (step . change), zero where the pair is not used
    floor = -torch.inf if enough is None else enough
    active = _above(gradient, value, tol) & (value > floor)
    quiet = torch.zeros_like(active, dtype=torch.int64)
    for _ in range(max_iter):
        if not bool(active.any()):
            break
        direction = -_two_loop(gradient, steps, changes, inverses)
        slope = (direction * gradient).sum(1)
        # Rounding can spoil a direction; the steepest descent never is.
        bad = ~(slope < 0)
        direction = torch.where(bad[:, None], -gradient, direction)
        slope = torch.where(bad, -(gradient * gradient).sum(1), slope)
        first = 1.0 if steps else 1.0 / gradient.norm(dim=1).clamp(min=1.0)
        new_x, new_value, new_gradient, found = _weak_wolfe(
            evaluate, x, value, gradient, direction, slope, first, active, max_search
        )
        step, change = new_x - x, new_gradient - gradient
        curvature = (step * change).sum(1)
        usable = found & (curvature > 1e-10 * (change * change).sum(1))
        inverses.append(torch.where(usable, 1.0 / curvature.clamp(min=1e-30), 0.0))
        steps.append(step)
        changes.append(change)
        if len(steps) > history:
            del steps[0], changes[0], inverses[0]
        # In floats a value near the minimum falls by rounding only; three such steps are the end.
        noise = 4 * torch.finfo(value.dtype).eps * value.abs().clamp(min=1.0)
        quiet = torch.where(value - new_value > noise, torch.zeros_like(quiet), quiet + 1)
        x, value, gradient = new_x, new_value, new_gradient
        active = found & (quiet < 3) & _above(gradient, value, tol) & (value > floor)
    return x.reshape(shape)


def _above(gradient: Tensor, value: Tensor, tol: float) -> Tensor:
    return gradient.abs().amax(1) > tol * value.abs().clamp(min=1.0)


def _two_loop(
    gradient: Tensor, steps: list[Tensor], changes: list[Tensor], inverses: list[Tensor]
) -> Tensor:
    """Approximate inverse Hessian times gradient, [tasks, n]; skipped pairs have inverse zero."""
    out = gradient.clone()
    factors = []
    for step, change, inverse in zip(
        reversed(steps), reversed(changes), reversed(inverses), strict=True
    ):
        factor = inverse * (step * out).sum(1)
        factors.append(factor)
        out -= factor[:, None] * change
    # Scale by the newest pair that is used, task by task.
    scale = torch.ones_like(gradient[:, 0])
    for change, inverse in zip(changes, inverses, strict=True):
        size = inverse * (change * change).sum(1)
        scale = torch.where(inverse > 0, 1.0 / size.clamp(min=1e-30), scale)
    out *= scale[:, None]
    for step, change, inverse, factor in zip(
        steps, changes, inverses, reversed(factors), strict=True
    ):
        out += (factor - inverse * (change * out).sum(1))[:, None] * step
    return out


def _weak_wolfe(
    evaluate: FunctionAndGradient,
    x: Tensor,
    value: Tensor,
    gradient: Tensor,
    direction: Tensor,
    slope: Tensor,
    first: Tensor | float,
    active: Tensor,
    max_search: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Find a step per task by doubling and bisection; inactive tasks stay where they are."""
    low = torch.zeros_like(value)
    high = torch.full_like(value, torch.inf)
    length = torch.zeros_like(value) + first
    best = (x, value, gradient)
    found = torch.zeros_like(active)
    searching = active.clone()
    for _ in range(max_search):
        trial = x + length[:, None] * direction
        trial_value, trial_gradient = evaluate(trial)
        # A NaN counts as too far.
        enough = trial_value <= value + 1e-4 * length * slope
        flat = (trial_gradient * direction).sum(1) >= 0.9 * slope
        # Any decrease is kept, should the search end before both conditions hold.
        take = searching & enough
        best = (
            torch.where(take[:, None], trial, best[0]),
            torch.where(take, trial_value, best[1]),
            torch.where(take[:, None], trial_gradient, best[2]),
        )
        found = found | take
        searching = searching & ~(enough & flat)
        if not bool(searching.any()):
            break
        high = torch.where(searching & ~enough, length, high)
        low = torch.where(searching & enough, length, low)
        middle = torch.where(torch.isinf(high), 2 * low, (low + high) / 2)
        length = torch.where(searching, middle, length)
    return (*best, found)


def make_adam(
    parameters: Sequence[Tensor], learning_rate: float, betas: tuple[float, float] = (0.9, 0.999)
) -> torch.optim.Adam:
    """Adam (Kingma and Ba 2015) for some tensors; every entry moves on its own: tasks do not mix.

    The fused form is up to three times as fast. It moves the entries of a view of a larger tensor
    that are next to each other in memory, whoever they belong to, so such views are refused.
    """
    if not all(parameter.is_contiguous() for parameter in parameters):
        raise ValueError("Adam moves whole tensors, not views of them")
    recorded = bool(parameters) and parameters[0].device.type == "cuda"  # steps can be (`Replay`)
    return torch.optim.Adam(
        list(parameters), lr=learning_rate, betas=betas, fused=True, capturable=recorded
    )


def take_step(optimiser: torch.optim.Adam, gradients: Sequence[Tensor | None]) -> None:
    """Move the optimiser's tensors against their gradients, in place; None leaves one alone."""
    parameters = [item for group in optimiser.param_groups for item in group["params"]]
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient
    optimiser.step()
    for parameter in parameters:
        parameter.grad = None


def minimise_adam(
    gradient: Callable[[Tensor], Tensor], start: Tensor, *, learning_rate: float, steps: int
) -> Tensor:
    """Take a fixed number of Adam steps from `start`; `gradient` takes and returns its shape."""
    x = start.clone(memory_format=torch.contiguous_format)
    first, second = torch.zeros_like(x), torch.zeros_like(x)
    count = torch.zeros((), device=x.device)  # float32, as the fused form wants it
    # The function behind `torch.optim.Adam`, whose object costs as much as a step of a small task.
    for _ in range(steps):
        adam(
            [x], [gradient(x)], [first], [second], [], [count], fused=True, lr=learning_rate,
            beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.0, amsgrad=False, maximize=False,
        )  # fmt: skip
    return x
