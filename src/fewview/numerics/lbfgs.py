"""L-BFGS for many independent problems at once; every task stops by itself.

A batch of one equals a batch of many. `minimise_lbfgs` goes through `iterate`, one evaluation a
round: some tasks look how far to go along a line, others take a new direction.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from fewview.numerics.iterate import iterate

FunctionAndGradient = Callable[..., tuple[Tensor, Tensor]]


def minimise_lbfgs(
    function_and_gradient: FunctionAndGradient,
    start: Tensor,
    *given: Tensor,
    tol: float | None = None,
    max_iter: int = 200,
    history: int = 10,
    max_search: int = 25,
    floor: float = -torch.inf,
) -> Tensor:
    """Minimise one smooth function per task by L-BFGS (Nocedal and Wright 2006, algorithm 7.5).

    Steps satisfy the weak Wolfe conditions, found by bisection (Lewis and Overton 2013), so the
    functions need not be convex. A task stops when the largest entry of its gradient is below
    `tol * max(1, |f|)`, when three steps decrease its function by no more than rounding, or when
    its value is at the `floor`, for functions whose infimum is known but not attained.

    Args:
        function_and_gradient: takes x [tasks, ...] and what is `given` about these tasks, returns
            values [tasks] and gradients [tasks, ...]; entry t depends on entries t alone.
        start: [tasks, ...].
        given: tensors [tasks, ...].
        tol: 1e-7 in float64 and 1e-4 in float32 when None.
        max_iter: most steps.
        history: pairs of steps and changes of the gradient that are remembered.
        max_search: most evaluations along one direction.
        floor: a value that is low enough.

    Example:
        >>> minimise_lbfgs(lambda x: (((x - 3) ** 2).sum(1), 2 * (x - 3)), torch.zeros(1, 2))
        tensor([[3., 3.]])
    """
    if tol is None:
        tol = 1e-7 if start.dtype == torch.float64 else 1e-4
    shape = start.shape[1:]

    def evaluate(point: Tensor, *given: Tensor) -> tuple[Tensor, Tensor]:
        value, gradient = function_and_gradient(point.reshape(-1, *shape), *given)
        return value, gradient.reshape(len(point), -1)

    def step(now: _Search, *given: Tensor) -> tuple[_Search, Tensor]:
        """Look along the direction once; who has seen enough goes there and turns."""
        value, gradient = evaluate(now.x + now.length[:, None] * now.direction, *given)
        now, enough = _look(now, value, gradient)
        goes = now.active & (enough | (now.looks >= max_search))
        going_on = _above(now.best_gradient, now.best_value, tol) & (now.best_value > floor)
        now = _go(now, goes, going_on & (now.steps + 1 < max_iter), history)
        return now, ~now.active

    x = start.reshape(len(start), -1).clone()
    # On a CPU the history grows slot by slot; a GPU wants shapes that stay.
    slots = history if x.is_cuda else 0
    first = _Search.start(x, *evaluate(x, *given), tol, floor, slots)
    found = iterate(step, first, given, max_iter=max_iter * max_search, drop=0.7)
    return found.reshape(start.shape)


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


def _look(now: _Search, value: Tensor, gradient: Tensor) -> tuple[_Search, Tensor]:
    """What was seen at `length` along the direction, and who has both Wolfe conditions there."""
    trial = now.x + now.length[:, None] * now.direction
    # Doubling and bisection; a NaN counts as too far.
    near = value <= now.value + 1e-4 * now.length * now.slope
    flat = (gradient * now.direction).sum(1) >= 0.9 * now.slope
    # Any decrease is kept, should the search end before both conditions hold.
    take = now.active & near
    low = torch.where(near, now.length, now.low)
    high = torch.where(near, now.high, now.length)
    seen = now._replace(
        best=torch.where(take[:, None], trial, now.best),
        best_value=torch.where(take, value, now.best_value),
        best_gradient=torch.where(take[:, None], gradient, now.best_gradient),
        found=now.found | take,
        looks=now.looks + 1,
        low=low,
        high=high,
        length=torch.where(torch.isinf(high), 2 * low, (low + high) / 2),
    )
    return seen, near & flat


def _go(now: _Search, goes: Tensor, going_on: Tensor, history: int) -> _Search:
    """Those who go move to the best point seen, remember the curvature, and turn downhill."""
    move, change = now.best - now.x, now.best_gradient - now.gradient
    curvature = (move * change).sum(1)
    usable = now.found & (curvature > 1e-10 * (change * change).sum(1))
    pair = torch.stack([move, change], dim=1) * usable[:, None, None]
    pairs, used = _remembered(now, goes, pair, usable, history)
    # In floats a value near the minimum falls by rounding only; three such steps are the end.
    noise = 4 * torch.finfo(now.value.dtype).eps * now.value.abs().clamp(min=1.0)
    quiet = torch.where(now.value - now.best_value > noise, 0, now.quiet + 1)
    gradient = torch.where(goes[:, None], now.best_gradient, now.gradient)
    turned, slope = _descent(gradient, pairs, used)
    return now._replace(
        x=torch.where(goes[:, None], now.best, now.x),
        value=torch.where(goes, now.best_value, now.value),
        gradient=gradient,
        pairs=pairs,
        used=used,
        quiet=torch.where(goes, quiet, now.quiet),
        steps=now.steps + goes,
        active=torch.where(goes, going_on & now.found & (quiet < 3), now.active),
        direction=torch.where(goes[:, None], turned, now.direction),
        slope=torch.where(goes, slope, now.slope),
        length=torch.where(goes, 1.0, now.length),
        low=torch.where(goes, 0.0, now.low),
        high=torch.where(goes, torch.inf, now.high),
        looks=torch.where(goes, 0, now.looks),
        found=now.found & ~goes,
    )


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
