"""Batched entropic optimal transport for many small problems: Sinkhorn scaling, made fast."""

from __future__ import annotations

import torch
from torch import Tensor


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

    Example:
        >>> log_plan, _ = sinkhorn(torch.randn(1, 6, 3), torch.full((1, 3), 2.0))
        >>> torch.allclose(log_plan.exp().sum(1), torch.full((1, 3), 2.0), atol=1e-4)
        True
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
    return torch.log_softmax(log_kernel + v[:, None], dim=-1), v


def _column_sums(log_kernel: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Column sums [tasks, way] and the plan [tasks, n, way] for potentials v."""
    plan = torch.softmax(log_kernel + v[:, None], dim=-1)
    return plan.sum(1).clamp(min=torch.finfo(plan.dtype).tiny), plan
