"""Minimisers that solve many independent problems at once, one per task.

`minimise_lbfgs` stops every task by itself, so that a batch of one equals a batch of many;
`minimise_adam` takes a fixed number of steps, as the methods that are defined by it do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.optim.adam import adam

from fewview.numerics._again import Again

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
    floor = -torch.inf if enough is None else enough

    def evaluate(point: Tensor) -> tuple[Tensor, Tensor]:
        value, gradient = function_and_gradient(point.reshape(shape))
        return value, gradient.reshape(tasks, -1)

    def turn(now: _Search) -> _Search:
        """Take a new direction, and a first look along it."""
        direction = -_inverse_hessian(now.gradient, now.pairs, now.used)
        slope = (direction * now.gradient).sum(1)
        # Rounding can spoil a direction; the steepest descent never is.
        bad = ~(slope < 0)
        direction = torch.where(bad[:, None], -now.gradient, direction)
        slope = torch.where(bad, -(now.gradient * now.gradient).sum(1), slope)
        first = 1.0 / now.gradient.norm(dim=1).clamp(min=1.0)
        now = now._replace(
            direction=direction,
            slope=slope,
            length=torch.where(now.begun, 1.0, first),
            low=torch.zeros_like(now.low),
            high=torch.full_like(now.high, torch.inf),
            best=now.x,
            best_value=now.value,
            best_gradient=now.gradient,
            found=torch.zeros_like(now.found),
            searching=now.active,
        )
        return look(now)

    def look(now: _Search) -> _Search:
        """Look how far to go, per task: doubling and bisection; others stay where they are."""
        trial = now.x + now.length[:, None] * now.direction
        value, gradient = evaluate(trial)
        # A NaN counts as too far.
        enough = value <= now.value + 1e-4 * now.length * now.slope
        flat = (gradient * now.direction).sum(1) >= 0.9 * now.slope
        # Any decrease is kept, should the search end before both conditions hold.
        take = now.searching & enough
        searching = now.searching & ~(enough & flat)
        high = torch.where(searching & ~enough, now.length, now.high)
        low = torch.where(searching & enough, now.length, now.low)
        middle = torch.where(torch.isinf(high), 2 * low, (low + high) / 2)
        return now._replace(
            best=torch.where(take[:, None], trial, now.best),
            best_value=torch.where(take, value, now.best_value),
            best_gradient=torch.where(take[:, None], gradient, now.best_gradient),
            found=now.found | take,
            searching=searching,
            high=high,
            low=low,
            length=torch.where(searching, middle, now.length),
        )

    def move(now: _Search) -> _Search:
        """Go there, and remember what that tells about the curvature."""
        step, change = now.best - now.x, now.best_gradient - now.gradient
        curvature = (step * change).sum(1)
        usable = now.found & (curvature > 1e-10 * (change * change).sum(1))
        pair = torch.stack([step, change], dim=1) * usable[:, None, None]
        # In floats a value near the minimum falls by rounding only; three such steps are the end.
        noise = 4 * torch.finfo(now.value.dtype).eps * now.value.abs().clamp(min=1.0)
        falls = now.value - now.best_value > noise
        quiet = torch.where(falls, 0, now.quiet + 1)
        active = now.found & (quiet < 3) & _above(now.best_gradient, now.best_value, tol)
        full = now.used.shape[1] == history
        return now._replace(
            x=now.best,
            value=now.best_value,
            gradient=now.best_gradient,
            pairs=torch.cat([now.pairs[:, 2 * full :], pair], dim=1),
            used=torch.cat([now.used[:, full:], usable[:, None]], dim=1),
            begun=torch.ones_like(now.begun),
            quiet=quiet,
            active=active & (now.best_value > floor),
        )

    x = start.reshape(tasks, -1).clone()
    value, gradient = evaluate(x)
    active = _above(gradient, value, tol) & (value > floor)
    nobody, nothing = torch.zeros_like(active), torch.zeros_like(value)
    slots = history if x.is_cuda else 0  # graphs have shapes that stay
    now = _Search(
        x, value, gradient, x.new_zeros(tasks, 2 * slots, x.shape[1]),
        torch.zeros(tasks, slots, dtype=torch.bool, device=x.device), nobody,
        torch.zeros_like(active, dtype=torch.int64), active, gradient, nothing, nothing, nothing,
        nothing, x, value, gradient, nobody, nobody,
    )  # fmt: skip
    again = Again()
    for _ in range(max_iter):
        if not bool(now.active.any()):
            break
        now = again(turn, now)
        for _ in range(max_search - 1):
            if not bool(now.searching.any()):
                break
            now = again(look, now)
        now = again(move, now)
    return now.x.reshape(shape).clone()


class _Search(NamedTuple):
    """Where tasks are, what they know of their functions, and how far they look along a line."""

    x: Tensor  # [tasks, n]
    value: Tensor  # [tasks]
    gradient: Tensor  # [tasks, n]
    pairs: Tensor  # steps and changes of the gradient in turn, the latest last, [tasks, 2 h, n]
    used: Tensor  # pairs that say something, bool [tasks, h]; the others are zero
    begun: Tensor  # bool [tasks]
    quiet: Tensor  # steps that decreased nothing but rounding, int64 [tasks]
    active: Tensor  # bool [tasks]
    direction: Tensor  # [tasks, n]
    slope: Tensor  # [tasks]
    length: Tensor  # the next to be tried
    low: Tensor  # too short
    high: Tensor  # too long
    best: Tensor  # so far, [tasks, n]
    best_value: Tensor
    best_gradient: Tensor
    found: Tensor  # whether there is any, bool [tasks]
    searching: Tensor  # bool [tasks]


def _above(gradient: Tensor, value: Tensor, tol: float) -> Tensor:
    return gradient.abs().amax(1) > tol * value.abs().clamp(min=1.0)


def _inverse_hessian(gradient: Tensor, pairs: Tensor, used: Tensor) -> Tensor:
    """Approximate inverse Hessian times gradient, [tasks, n]; see `_Search` for the rest.

    In the compact form of Byrd, Nocedal and Schnabel (1994), which is a few products of matrices
    where the usual two loops are dozens of small steps: with steps S, changes Y, R the upper
    triangle of S'Y, D its diagonal and the scale c of the newest pair,

        H = c + [S, c Y] [[R^-T (D + c Y'Y) R^-1, -R^-T], [-R^-1, 0]] [S, c Y]'.
    """
    tasks, history = used.shape
    if not history:
        return gradient
    products = (pairs @ pairs.mT).double()
    along = (pairs @ gradient[..., None])[..., 0].double().reshape(tasks, history, 2)
    by_step, by_change = along.unbind(-1)
    crossed, changes = products[:, ::2, 1::2], products[:, 1::2, 1::2]
    curvature = crossed.diagonal(dim1=1, dim2=2)
    triangle = crossed.triu() + torch.diag_embed((~used).double())
    # The scale of the newest pair that is used, task by task.
    newest = (used * torch.arange(1, history + 1, device=used.device)).argmax(1, keepdim=True)
    size = changes.diagonal(dim1=1, dim2=2).gather(1, newest)
    ratio = curvature.gather(1, newest) / size.clamp(min=1e-300)
    scale = torch.where(used.any(1, keepdim=True), ratio, 1.0)
    u = torch.linalg.solve_triangular(triangle, by_step[..., None], upper=True)
    right = curvature[..., None] * u + scale[..., None] * (changes @ u - by_change[..., None])
    w = torch.linalg.solve_triangular(triangle.mT, right, upper=False)
    factors = torch.cat([w, -scale[..., None] * u], dim=-1).reshape(tasks, 1, 2 * history)
    scaled = scale.to(gradient.dtype) * gradient
    return scaled + (factors.to(gradient.dtype) @ pairs)[:, 0]


def make_adam(
    parameters: Sequence[Tensor], learning_rate: float, betas: tuple[float, float] = (0.9, 0.999)
) -> torch.optim.Adam:
    """Adam (Kingma and Ba 2015) for some tensors; every entry moves on its own: tasks do not mix.

    The fused form is up to three times as fast. It moves the entries of a view of a larger tensor
    that are next to each other in memory, whoever they belong to, so such views are refused.
    """
    if not all(parameter.is_contiguous() for parameter in parameters):
        raise ValueError("Adam moves whole tensors, not views of them")
    recorded = bool(parameters) and parameters[0].device.type == "cuda"  # steps can be (`Again`)
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
