"""Batched entropic optimal transport for many small problems: Sinkhorn scaling, made fast.

`sinkhorn` meets given class masses; `balanced_softmax` is pulled towards equal ones. Both are one
potential v per class, and the plan is softmax over classes of (logits + v).
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from fewview.numerics.iterate import iterate
from fewview.numerics.softmax import log_softmax, softmax


def sinkhorn(
    log_kernel: Tensor,
    columns: Tensor,
    *,
    tol: float = 1e-6,
    max_sweeps: int = 200,
    start: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Scale the rows of positive matrices to sum to one and their columns to given sums.

    A Sinkhorn sweep (Cuturi 2013) is v += log(columns / column sums); alone it can need thousands,
    so each one is followed by a Newton step on the same concave dual problem in the `way`
    potentials, kept where it lowers the error. Both have the same unique solution.

    Args:
        log_kernel: [tasks, n, way], for instance -cost / regularisation.
        columns: wanted column sums, [tasks, way], adding up to n.
        tol: largest error of a column sum, relative to the wanted one.
        max_sweeps: most sweeps.
        start: potentials v to start from, [tasks, way]; zeros when None.

    Returns:
        log_plan: [tasks, n, way], rows sum to one.
        v: [tasks, way], a good start for a similar kernel.

    Example:
        >>> plan, _ = sinkhorn(torch.tensor([[[3.0, 0.0], [2.0, 0.0]]]), torch.ones(1, 2))
        >>> plan.exp().sum(1).round(decimals=3)
        tensor([[1., 1.]])
    """
    if log_kernel.dtype == torch.float32:
        tol = max(tol, 1e-5)  # below, rounding decides
    eye = torch.eye(columns.shape[1], device=columns.device, dtype=columns.dtype)

    def step(carry: Any, kernel: Tensor, wanted: Tensor) -> tuple[Any, Tensor]:
        (x,) = carry
        x = x + wanted.log() - _column_sums(kernel, x)[0].log()
        sums, plan = _column_sums(kernel, x)
        # Newton: (diag(sums) - plan' plan) dx = wanted - sums. Constants in x do not matter, so a
        # multiple of the all-ones matrix makes it solvable, with a ridge against rounding.
        scale = sums.amax(1)[:, None, None]
        hessian = torch.diag_embed(sums) - plan.mT @ plan + scale / sums.shape[1]
        ridge = torch.finfo(x.dtype).eps * scale * eye
        move = torch.linalg.solve_ex(hessian + ridge, wanted - sums).result
        trial = x + move.nan_to_num(0.0).clamp(-20, 20)
        before, after = (
            ((found - wanted).abs() / wanted).amax(1)
            for found in (sums, _column_sums(kernel, trial)[0])
        )
        x = torch.where((after < before)[:, None], trial, x)
        return (x,), torch.minimum(before, after) <= tol

    v = torch.zeros_like(columns) if start is None else start
    v = iterate(step, (v,), (log_kernel, columns), max_iter=max_sweeps)
    v = v - v.mean(1, keepdim=True)
    return log_softmax(log_kernel + v[:, None]), v


def balanced_softmax(
    logits: Tensor,
    weight: float,
    *,
    tol: float = 1e-5,
    max_sweeps: int = 50,
    start: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Softmax over classes with class masses pulled towards equal ones.

    Entropic optimal transport whose rows sum to one and whose class marginal pays a
    Kullback-Leibler penalty (Chizat et al. 2018). With the penalty's weight written as
    `weight` / (1 - `weight`) = s, the potentials minimise the convex
    sum_q logsumexp_c(logits + v) + s sum_c b_c exp(-v_c / s), b_c = queries / classes. A round is a
    Newton step, or, where that does not lower the error, a damped Sinkhorn sweep
    v = weight (v + log b - log masses), which always does. `weight` 0 is the plain softmax, 1 is
    Sinkhorn balancing. Logits are [tasks, n_query, way]; the rest is as for `sinkhorn`.

    Example:
        >>> logits = torch.tensor([[[2.0, 0.0], [1.0, 0.0], [3.0, 0.0], [4.0, 0.0]]])
        >>> [round(balanced_softmax(logits, w)[0].exp()[..., 0].sum().item(), 1)
        ...  for w in (0.0, 0.5, 1.0)]
        [3.5, 3.0, 2.0]
    """
    n_tasks, n_query, way = logits.shape
    v = logits.new_zeros(n_tasks, way) if start is None else start
    if weight <= 0:
        return log_softmax(logits), v
    target = n_query / way
    if weight >= 1:
        return sinkhorn(logits, torch.full_like(v, target), start=v, max_sweeps=max_sweeps)
    strength = weight / (1 - weight)

    def sweep(x: Tensor, sums: Tensor) -> Tensor:
        return weight * (x + math.log(target) - sums.log())

    def step(carry: Any, kernel: Tensor) -> tuple[Any, Tensor]:
        x, sums, plan = carry
        swept = sweep(x, sums)
        error = (swept - x).abs().amax(1)
        wanted = target * (-x / strength).clamp(max=80).exp()
        hessian = torch.diag_embed(sums + wanted / strength) - plan.mT @ plan
        # Extreme logits make the system singular; the step is then no better and is not kept.
        move = torch.linalg.solve_ex(hessian, wanted - sums).result
        trial = x + move.nan_to_num(0.0).clamp(-10, 10)
        sums, plan = _column_sums(kernel, trial)
        worse = ~((sweep(trial, sums) - trial).abs().amax(1) < error)
        x = torch.where(worse[:, None], swept, trial)
        if x.is_cuda or bool(worse.any()):  # a GPU would wait to hear whether it must
            others = _column_sums(kernel, x)
            sums = torch.where(worse[:, None], others[0], sums)
            plan = torch.where(worse[:, None, None], others[1], plan)
        return (x, sums, plan), (sweep(x, sums) - x).abs().amax(1) <= tol

    x = iterate(step, (v, *_column_sums(logits, v)), (logits,), max_iter=max_sweeps)
    return log_softmax(logits + x[:, None]), x


def _column_sums(log_kernel: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Column sums [tasks, way] and the plan [tasks, n, way] for potentials v."""
    plan = softmax(log_kernel + v[:, None])
    return plan.sum(1).clamp(min=torch.finfo(plan.dtype).tiny), plan
