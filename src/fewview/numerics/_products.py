"""Products of rows with themselves, and numpy's threads kept from those of torch.

The linear algebra of numpy and that of torch have threads of their own. On a machine with few cores
those of one wait, busily, while the other works: ten milliseconds whenever a product of numpy
follows one of torch. So products are left to torch, and what only numpy and scipy can do is done
with one thread.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from threadpoolctl import ThreadpoolController
from torch import Tensor

# Columns that are multiplied with those after them at once.
COLUMNS = 128


def products(rows: Tensor) -> Tensor:
    """rows' rows of rows [n, d], [d, d]; what lies below the diagonal is copied from above it.

    Example:
        >>> products(torch.tensor([[1.0, 2.0], [0.0, 3.0]])).tolist()
        [[1.0, 2.0], [2.0, 13.0]]
    """
    width = rows.shape[1]
    if rows.device.type != "cpu" or width <= 2 * COLUMNS:
        return rows.mT @ rows
    out = rows.new_empty(width, width)
    for start in range(0, width, COLUMNS):
        end = min(start + COLUMNS, width)
        torch.mm(rows[:, start:end].mT, rows[:, start:], out=out[start:end, start:])
        out[end:, start:end] = out[start:end, end:].mT
    return out


@contextmanager
def one_thread_of_numpy() -> Iterator[None]:
    """Inside, the linear algebra of numpy and scipy has one thread, in the whole process."""
    with ThreadpoolController().select(user_api="blas").limit(limits=1):
        yield
