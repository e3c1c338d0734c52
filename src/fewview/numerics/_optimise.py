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

FunctionAndGradient = Callable[..., tuple[Tensor, Tensor]]

# Steps between two looks whether anybody still moves, on a GPU, where that means to wait.
PATIENCE = 4
# Share of the tasks that go on at which they leave the others behind.
LEFT = 0.7


def minimise_lbfgs(
    function_and_gradient: FunctionAndGradient,
    start: Tensor,
    *given: Tensor,
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
    attained. Functions take x [tasks, ...] and what is `given` about these tasks, tensors
    [tasks, ...], and return values [tasks] and gradients [tasks, ...]; entry t depends on entries t
    alone. Every task goes at its own pace: an evaluation serves all that have not stopped, whether
    they look how far to go or take a new direction.
    """
    if tol is None:
        tol = 1e-7 if start.dtype == torch.float64 else 1e-4
    shape, floor = start.shape[1:], -torch.inf if enough is None else enough

    def evaluate(point: Tensor) -> tuple[Tensor, Tensor]:
        value, gradient = function_and_gradient(point.reshape(-1, *shape), *given)
        return value, gradient.reshape(len(point), -1)

    def advance(now: _Search) -> _Search:
        """Look along the direction once; who has seen enough goes there and turns."""
        trial = now.x + now.length[:, None] * now.direction
        value, gradient = evaluate(trial)
        # Doubling and bisection; a NaN counts as too far.
        near = value <= now.value + 1e-4 * now.length * now.slope
        flat = (gradient * now.direction).sum(1) >= 0.9 * now.slope
        # Any decrease is kept, should the search end before both conditions hold.
        take = now.active & near
        best = torch.where(take[:, None], trial, now.best)
        best_value = torch.where(take, value, now.best_value)
        best_gradient = torch.where(take[:, None], gradient, now.best_gradient)
        found, looks = now.found | take, now.looks + 1
        high = torch.where(near, now.high, now.length)
        low = torch.where(near, now.length, now.low)
        middle = torch.where(torch.isinf(high), 2 * low, (low + high) / 2)
        goes = now.active & ((near & flat) | (looks >= max_search))

        # Those who go remember what that tells about the curvature.
        step, change = best - now.x, best_gradient - now.gradient
        curvature = (step * change).sum(1)
        usable = found & (curvature > 1e-10 * (change * change).sum(1))
        pair = torch.stack([step, change], dim=1) * usable[:, None, None]
        pairs, used = _remembered(now, goes, pair, usable, history)
        # In floats a value near the minimum falls by rounding only; three such steps are the end.
        noise = 4 * torch.finfo(value.dtype).eps * now.value.abs().clamp(min=1.0)
        quiet = torch.where(now.value - best_value > noise, 0, now.quiet + 1)
        steps = now.steps + 1
        on = found & (quiet < 3) & _above(best_gradient, best_value, tol) & (best_value > floor)
        gradient = torch.where(goes[:, None], best_gradient, now.gradient)
        turned, slope = _descent(gradient, pairs, used)
        return _Search(
            x=torch.where(goes[:, None], best, now.x),
            value=torch.where(goes, best_value, now.value),
            gradient=gradient,
            pairs=pairs,
            used=used,
            quiet=torch.where(goes, quiet, now.quiet),
            steps=torch.where(goes, steps, now.steps),
            active=torch.where(goes, on & (steps < max_iter), now.active),
            direction=torch.where(goes[:, None], turned, now.direction),
            slope=torch.where(goes, slope, now.slope),
            length=torch.where(goes, 1.0, middle),
            low=torch.where(goes, 0.0, low),
            high=torch.where(goes, torch.inf, high),
            looks=torch.where(goes, 0, looks),
            best=best,
            best_value=best_value,
            best_gradient=best_gradient,
            found=found & ~goes,
        )

    x = start.reshape(len(start), -1).clone()
    now = _Search.start(x, *evaluate(x), tol, floor, history if x.is_cuda else 0)
    again, out, places = Again(), x.clone(), torch.arange(len(x), device=x.device)
    for step in range(max_iter * max_search):
        if not x.is_cuda or step % PATIENCE == 0:
            on = now.active.nonzero()[:, 0]
            if not len(on):
                break
            if not x.is_cuda and len(on) <= LEFT * len(places):  # graphs have shapes that stay
                out[places] = now.x
                now, places = _Search(*(tensor[on] for tensor in now)), places[on]
                given = tuple(tensor[on] for tensor in given)
        now = again(advance, now)
    out[places] = now.x
    return out.reshape(start.shape)


class _Search(NamedTuple):
    """Where tasks are, what they know of their functions, and how far they look along a line."""

    x: Tensor  # [tasks, n]
    value: Tensor  # [tasks]
    gradient: Tensor  # [tasks, n]
    pairs: Tensor  # steps and changes of the gradient in turn, the latest last, [tasks, 2 h, n]
    used: Tensor  # pairs that say something, bool [tasks, h]; the others are zero
    quiet: Tensor  # steps that decreased nothing but rounding, int64 [tasks]
    steps: Tensor  # all of them, int64 [tasks]
    active: Tensor  # bool [tasks]
    direction: Tensor  # [tasks, n]
    slope: Tensor  # [tasks]
    length: Tensor  # the next to be tried
    low: Tensor  # too short
    high: Tensor  # too long
    looks: Tensor  # along this direction, int64 [tasks]
    best: Tensor  # so far, [tasks, n]
    best_value: Tensor
    best_gradient: Tensor
    found: Tensor  # whether there is any, bool [tasks]

    @staticmethod
    def start(
        x: Tensor, value: Tensor, gradient: Tensor, tol: float, floor: float, slots: int
    ) -> _Search:
        """At some points, with room for so many pairs."""
        active = _above(gradient, value, tol) & (value > floor)
        pairs = x.new_zeros(len(x), 2 * slots, x.shape[1])
        used = torch.zeros(len(x), slots, dtype=torch.bool, device=x.device)
        nobody, nothing = torch.zeros_like(active), torch.zeros_like(value)
        none = torch.zeros_like(active, dtype=torch.int64)
        direction, slope = _descent(gradient, pairs, used)
        length = 1.0 / gradient.norm(dim=1).clamp(min=1.0)
        return _Search(
            x, value, gradient, pairs, used, none, none, active, direction, slope, length, nothing,
            torch.full_like(value, torch.inf), none, x, value, gradient, nobody,
        )  # fmt: skip


def _remembered(
    now: _Search, goes: Tensor, pair: Tensor, usable: Tensor, history: int
) -> tuple[Tensor, Tensor]:
    """`pairs` and `used` with a pair [tasks, 2, n] more for those who go, at most `history`."""
    blank = now.used.new_zeros(len(goes), 0 if now.used.shape[1] == history else 1)
    older = now.pairs.new_zeros(len(goes), 2 * blank.shape[1], pair.shape[2])
    pairs, used = torch.cat([older, now.pairs], 1), torch.cat([blank, now.used], 1)
    later = torch.cat([pairs[:, 2:], pair], 1), torch.cat([used[:, 1:], usable[:, None]], 1)
    return torch.where(goes[:, None, None], later[0], pairs), torch.where(
        goes[:, None], later[1], used
    )


def _descent(gradient: Tensor, pairs: Tensor, used: Tensor) -> tuple[Tensor, Tensor]:
    """A direction downhill [tasks, n], and the slope along it."""
    direction = -_inverse_hessian(gradient, pairs, used)
    slope = (direction * gradient).sum(1)
    # Rounding can spoil a direction; the steepest descent never is.
    bad = ~(slope < 0)
    slope = torch.where(bad, -(gradient * gradient).sum(1), slope)
    return torch.where(bad[:, None], -gradient, direction), slope


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
    along = (gradient[:, None] @ pairs.mT).double().reshape(tasks, history, 2)
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
