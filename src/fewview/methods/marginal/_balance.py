"""Responsibilities whose class masses are free, equal, or anything between."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fewview.numerics._sinkhorn import sinkhorn


def balanced_softmax(
    logits: Tensor,
    weight: float,
    *,
    tol: float = 1e-5,
    max_sweeps: int = 50,
    start: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Softmax over classes with class masses pulled towards equal ones.

    The plan is softmax_c(logits + v): entropic optimal transport whose rows sum to one and whose
    class marginal pays a Kullback-Leibler penalty (Chizat et al. 2018). With the penalty's weight
    written as `weight` / (1 - `weight`) = s, the potentials minimise the convex
    sum_q logsumexp_c(logits + v) + s sum_c b_c exp(-v_c / s), b_c = queries / classes. Each round
    is a Newton step, or, where that does not lower the error, a damped Sinkhorn sweep
    v = weight (v + log b - log masses), which always does. `weight` 0 is the plain softmax, 1 is
    Sinkhorn balancing.

    Args:
        logits: [tasks, n_query, way].
        weight: from 0 to 1.
        tol: largest error of log potentials at which a task stops.
        max_sweeps: most rounds.
        start: potentials to start from, [tasks, way].

    Returns:
        log_plan: [tasks, n_query, way], rows sum to one.
        v: [tasks, way], a good start for similar logits.

    Example:
        >>> logits = torch.tensor([[[2.0, 0.0], [1.0, 0.0], [3.0, 0.0], [4.0, 0.0]]])
        >>> [round(balanced_softmax(logits, w)[0].exp()[..., 0].sum().item(), 1)
        ...  for w in (0.0, 0.5, 1.0)]
        [3.5, 3.0, 2.0]
    """
    n_tasks, n_query, way = logits.shape
    v = logits.new_zeros(n_tasks, way) if start is None else start
    if weight <= 0:
        return torch.log_softmax(logits, dim=-1), v
    target = n_query / way
    if weight >= 1:
        return sinkhorn(logits, torch.full_like(v, target), start=v, max_sweeps=max_sweeps)
    strength = weight / (1 - weight)
    v, todo = v.clone(), torch.arange(n_tasks, device=v.device)
    kernel, x = logits, v.clone()
    sums, plan = _masses(kernel, x)
    for _ in range(max_sweeps):
        swept = weight * (x + math.log(target) - sums.log())
        error = (swept - x).abs().amax(1)
        open_tasks = error > tol
        if not bool(open_tasks.all()):
            v[todo] = x
            todo, kernel, x = todo[open_tasks], kernel[open_tasks], x[open_tasks]
            if not len(todo):
                break
            sums, plan = sums[open_tasks], plan[open_tasks]
            swept, error = swept[open_tasks], error[open_tasks]
        wanted = target * (-x / strength).clamp(max=80).exp()
        hessian = torch.diag_embed(sums + wanted / strength) - plan.transpose(1, 2) @ plan
        # Extreme logits make the system singular; the step is then no better and is not kept.
        move = torch.linalg.solve_ex(hessian, wanted - sums).result
        trial = x + move.nan_to_num(0.0).clamp(-10, 10)
        sums, plan = _masses(kernel, trial)
        after = (weight * (trial + math.log(target) - sums.log()) - trial).abs().amax(1)
        worse = ~(after < error)
        x = torch.where(worse[:, None], swept, trial)
        if bool(worse.any()):
            sums[worse], plan[worse] = _masses(kernel[worse], x[worse])
    v[todo] = x
    return torch.log_softmax(logits + v[:, None], dim=-1), v


def _masses(logits: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Class masses [tasks, way] and the plan [tasks, n_query, way] for potentials v."""
    plan = torch.softmax(logits + v[:, None], dim=-1)
    return plan.sum(1).clamp(min=torch.finfo(plan.dtype).tiny), plan
