"""Batched entropic optimal transport for many small problems: Sinkhorn scaling, made fast.

`sinkhorn` meets given class masses; `balanced_softmax` is pulled towards equal ones.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fewview.numerics._softmax import log_softmax, softmax

# Steps between two looks who is done, on a GPU; of two or three, most tasks need no more.
PATIENCE = 3


def sinkhorn(
    log_kernel: Tensor,
    columns: Tensor,
    *,
    tol: float = 1e-6,
    max_sweeps: int = 200,
    start: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Scale the rows of positive matrices to sum to one and their columns to given sums.

    The plan is softmax_k(log_kernel + v) with one potential v_k per column. A Sinkhorn sweep
    (Cuturi 2013) is v += log(columns / column sums); alone it can need thousands of sweeps, so each
    one is followed by a Newton step on the same concave dual problem in the `way` potentials, which
    is kept where it lowers the error. Both have the same unique solution. Tasks stop one by one.

    Args:
        log_kernel: [tasks, n, way], for instance -cost / regularisation.
        columns: wanted column sums, [tasks, way], adding up to n.
        tol: largest error of a column sum, relative to the wanted one.
        max_sweeps: most sweeps.
        start: potentials v to start from, [tasks, way]; zeros when None.

    Returns:
        log_plan: [tasks, n, way], rows sum to one.
        v: [tasks, way], a good start for a similar kernel.
    """
    if log_kernel.dtype == torch.float32:
        tol = max(tol, 1e-5)  # below, rounding decides
    v = torch.zeros_like(columns) if start is None else start.clone()
    active = torch.arange(len(v), device=v.device)
    kernel, wanted, x = log_kernel, columns, v
    for _ in range(max_sweeps):
        x = x + wanted.log() - _column_sums(kernel, x)[0].log()
        sums, plan = _column_sums(kernel, x)
        # Newton: (diag(sums) - plan^T plan) dx = wanted - sums; constants in x do not matter, so
        # a multiple of the all-ones matrix makes it solvable.
        scale = sums.amax(1)[:, None, None]
        hessian = torch.diag_embed(sums) - plan.transpose(1, 2) @ plan + scale / sums.shape[1]
        ridge = torch.finfo(x.dtype).eps * scale * torch.eye(x.shape[1], device=x.device)
        move = torch.linalg.solve(hessian + ridge, wanted - sums)
        trial = x + move.nan_to_num(0.0).clamp(-20, 20)
        trial_sums, _ = _column_sums(kernel, trial)
        error, trial_error = (((s - wanted).abs() / wanted).amax(1) for s in (sums, trial_sums))
        x = torch.where((trial_error < error)[:, None], trial, x)
        still = torch.minimum(error, trial_error) > tol
        if not bool(still.all()):
            v[active] = x
            active, kernel, wanted, x = active[still], kernel[still], wanted[still], x[still]
            if not len(active):
                break
    v[active] = x
    v = v - v.mean(1, keepdim=True)
    return log_softmax(log_kernel + v[:, None]), v


def balanced_softmax(
    logits: Tensor,
    weight: float,
    *,
    tol: float = 1e-5,
    max_sweeps: int = 50,
    start: Tensor | None = None,
    looks: bool = True,
) -> tuple[Tensor, Tensor]:
    """Softmax over classes with class masses pulled towards equal ones.

    The plan is softmax_c(logits + v): entropic optimal transport whose rows sum to one and whose
    class marginal pays a Kullback-Leibler penalty (Chizat et al. 2018). With the penalty's weight
    written as `weight` / (1 - `weight`) = s, the potentials minimise the convex
    sum_q logsumexp_c(logits + v) + s sum_c b_c exp(-v_c / s), b_c = queries / classes. Each round
    is a Newton step, or, where that does not lower the error, a damped Sinkhorn sweep
    v = weight (v + log b - log masses), which always does. `weight` 0 is the plain softmax, 1 is
    Sinkhorn balancing.

    Logits are [tasks, n_query, way]; a task stops when the error of its potentials is below `tol`.
    On a GPU, where it costs a wait to hear of it, tasks go on a little longer. Without `looks`
    nobody asks: all take `max_sweeps` steps (where `weight` is below 1), and a GPU need not wait.
    The rest is as for `sinkhorn`.

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
    strength, patience = weight / (1 - weight), PATIENCE if logits.is_cuda else 1
    v, todo = v.clone(), torch.arange(n_tasks, device=v.device)
    kernel, x = logits, v.clone()
    sums, plan = _column_sums(kernel, x)
    for sweep in range(max_sweeps):
        swept = weight * (x + math.log(target) - sums.log())
        error = (swept - x).abs().amax(1)
        left = (error > tol).nonzero()[:, 0] if looks and (sweep + 1) % patience == 0 else todo
        if len(left) < len(todo):
            v[todo] = x
            todo, kernel, x = todo[left], kernel[left], x[left]
            if not len(left):
                break
            sums, plan, swept, error = sums[left], plan[left], swept[left], error[left]
        wanted = target * (-x / strength).clamp(max=80).exp()
        hessian = torch.diag_embed(sums + wanted / strength) - plan.transpose(1, 2) @ plan
        # Extreme logits make the system singular; the step is then no better and is not kept.
        move = torch.linalg.solve_ex(hessian, wanted - sums).result
        trial = x + move.nan_to_num(0.0).clamp(-10, 10)
        sums, plan = _column_sums(kernel, trial)
        after = (weight * (trial + math.log(target) - sums.log()) - trial).abs().amax(1)
        worse = ~(after < error)
        x = torch.where(worse[:, None], swept, trial)
        if x.is_cuda:  # which would wait to hear who
            others = _column_sums(kernel, swept)
            sums = torch.where(worse[:, None], others[0], sums)
            plan = torch.where(worse[:, None, None], others[1], plan)
            continue
        again = worse.nonzero()[:, 0]
        if len(again):
            sums[again], plan[again] = _column_sums(kernel[again], x[again])
    v[todo] = x
    return log_softmax(logits + v[:, None]), v


def _column_sums(log_kernel: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Column sums [tasks, way] and the plan [tasks, n, way] for potentials v."""
    plan = softmax(log_kernel + v[:, None])
    return plan.sum(1).clamp(min=torch.finfo(plan.dtype).tiny), plan
