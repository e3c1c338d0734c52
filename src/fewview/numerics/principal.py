"""Principal axes of rows, by products of rows or of columns, whichever are fewer.

numpy and torch have threads of their own for linear algebra. On a machine with few cores those of
one wait, busily, while the other works: ten milliseconds whenever a product of numpy follows one of
torch. So products are left to torch, and what only scipy can do is done with one thread.
"""

from __future__ import annotations

import numpy as np
import torch
from threadpoolctl import ThreadpoolController
from torch import Tensor

from fewview.numerics.random_keys import stream_key, uniform


def principal_axes(centred: Tensor, components: int) -> tuple[Tensor, Tensor]:
    """Principal axes [width, at most components] of rows [n, width], and the variances along them.

    Without components, and where rows do not differ, the first feature.
    """
    n, width = centred.shape
    count = min(components, n, width)
    if count:
        values, found = _leading(centred, count)
        order = torch.argsort(values, descending=True, stable=True)[:count]
        values, found = values[order], found[:, order]
        # Directions in which base samples do not differ at all carry rounding errors only.
        kept = values > 1e-10 * values[0].clamp(min=torch.finfo(values.dtype).tiny)
        values, found = values[kept], found[:, kept]
        if len(values) and len(found) != width:  # of the samples: directions of features then
            found = centred.T @ (found / values.sqrt())
        if len(values):
            return found, values / n
    first = centred[:, :1]
    along = first.square().mean(0) if n else first.new_zeros(1)
    return torch.eye(width, 1, dtype=centred.dtype, device=centred.device), along


def _leading(centred: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Eigenvalues and eigenvectors, at least the leading ones, of X X' or X' X: the smaller one."""
    from scipy.sparse.linalg import LinearOperator, eigsh  # late: a third of scipy's start

    n, width = centred.shape
    side, on_cpu = min(n, width), centred.device.type == "cpu"
    if side <= 4000:
        # Formed once, the matrix of products is read from near memory in every step.
        matrix = products(centred.mT if n < width else centred)
        # Above this size Lanczos iteration is faster than a full decomposition.
        if not on_cpu or side <= max(600, 3 * count):
            values, vectors = torch.linalg.eigh(matrix)
            return values[-count:], vectors[:, -count:]
        operator = matrix.numpy()
    else:
        rows = centred.cpu().numpy()
        operator = LinearOperator(
            (width, width), matvec=lambda x: rows.T @ (rows @ x), dtype=np.float64
        )
    # A fixed start: the same axes on every machine.
    start = uniform(np.array(stream_key("principal axes"), dtype=np.uint64), operator.shape[0])
    with ThreadpoolController().select(user_api="blas").limit(limits=1):
        found = eigsh(operator, k=count, v0=start - 0.5)
    values, vectors = (torch.from_numpy(part).to(centred.device) for part in found)
    return values, vectors


def products(rows: Tensor) -> Tensor:
    """rows' rows of rows [n, d], [d, d]; what lies below the diagonal is copied from above it.

    Example:
        >>> products(torch.tensor([[1.0, 2.0], [0.0, 3.0]])).tolist()
        [[1.0, 2.0], [2.0, 13.0]]
    """
    width, columns = rows.shape[1], 128  # columns are multiplied with those after them at once
    if rows.device.type != "cpu" or width <= 2 * columns:
        return rows.mT @ rows
    out = rows.new_empty(width, width)
    for start in range(0, width, columns):
        end = min(start + columns, width)
        torch.mm(rows[:, start:end].mT, rows[:, start:], out=out[start:end, start:])
        out[end:, start:end] = out[start:end, end:].mT
    return out
