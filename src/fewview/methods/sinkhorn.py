"""Batched Sinkhorn scaling: entropic optimal transport for many small problems at once."""

from __future__ import annotations

import torch
from torch import Tensor


def sinkhorn(
    kernel: Tensor,
    rows: Tensor,
    columns: Tensor,
    *,
    tol: float = 1e-6,
    max_sweeps: int = 1000,
    start: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Scale the rows and columns of positive matrices to given sums (Cuturi 2013).

    Plan = diag(u) kernel diag(v) with u, v found by alternating u = rows / (kernel v) and
    v = columns / (kernel^T u). A task stops when its row sums are right within `tol` (relative);
    column sums are right by construction.

    Args:
        kernel: positive, [tasks, n, way], for instance exp(-cost / regularisation).
        rows: wanted row sums, [tasks, n].
        columns: wanted column sums, [tasks, way], with the same total as the rows.
        tol: largest relative error of a row sum.
        max_sweeps: most sweeps over rows and columns.
        start: v to start from, [tasks, way]; ones when None.

    Returns:
        plan: [tasks, n, way].
        v: [tasks, way], a good start for a similar kernel.

    Example:
        >>> plan, _ = sinkhorn(torch.rand(1, 6, 3) + 0.1, torch.ones(1, 6), torch.full((1, 3), 2.0))
        >>> torch.allclose(plan.sum(1), torch.full((1, 3), 2.0))
        True
    """
    tiny = torch.finfo(kernel.dtype).tiny
    v = torch.ones_like(columns) if start is None else start.clone()
    active = torch.arange(len(kernel), device=kernel.device)
    # Sweeps run on [tasks, way, n]: sums over the long axis are then contiguous.
    k, r, c, x = kernel.transpose(1, 2).contiguous(), rows, columns, v
    for sweep in range(max_sweeps):
        u = r / torch.einsum("tkn,tk->tn", k, x).clamp(min=tiny)
        x = c / torch.einsum("tkn,tn->tk", k, u).clamp(min=tiny)
        # Looking costs as much as a sweep, so look at every fourth only.
        if sweep % 4 == 3:
            sums = u * torch.einsum("tkn,tk->tn", k, x)
            open_tasks = ((sums - r).abs() > tol * r).any(1)
            if not bool(open_tasks.all()):
                v[active] = x
                active, k, r = active[open_tasks], k[open_tasks], r[open_tasks]
                c, x = c[open_tasks], x[open_tasks]
                if not len(active):
                    break
    v[active] = x
    u = rows / torch.einsum("tnk,tk->tn", kernel, v).clamp(min=tiny)
    plan = u[..., None] * kernel * v[:, None]
    return plan * (columns / plan.sum(1).clamp(min=tiny))[:, None], v
