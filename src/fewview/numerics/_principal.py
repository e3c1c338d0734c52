"""Principal axes of rows, by products of rows or of columns, whichever are fewer."""

from __future__ import annotations

import numpy as np
import torch
from scipy.sparse.linalg import LinearOperator, eigsh
from torch import Tensor

from fewview.ground._draws import stream_key, uniform
from fewview.numerics._products import one_thread_of_numpy, products

# Above this size the leading axes are found by Lanczos iteration instead of a full decomposition.
DENSE_SIZE = 600
# Up to this size products of all features (or of all samples) are formed for that.
GRAM_SIZE = 4000


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
    n, width = centred.shape
    side, on_cpu = min(n, width), centred.device.type == "cpu"
    if side <= GRAM_SIZE:
        # Formed once, the matrix of products is read from near memory in every step.
        matrix = products(centred.mT if n < width else centred)
        if not on_cpu or side <= max(DENSE_SIZE, 3 * count):
            values, vectors = torch.linalg.eigh(matrix)
            return values[-count:], vectors[:, -count:]
        operator = matrix.numpy()
    else:
        rows = centred.cpu().numpy()
        operator = LinearOperator(
            (width, width), matvec=lambda x: rows.T @ (rows @ x), dtype=np.float64
        )
    start = uniform(np.array(stream_key("principal axes"), dtype=np.uint64), operator.shape[0])
    with one_thread_of_numpy():
        found = eigsh(operator, k=count, v0=start - 0.5)
    values, vectors = (torch.from_numpy(part).to(centred.device) for part in found)
    return values, vectors
