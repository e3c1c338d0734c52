"""Small pieces of geometry that several methods share: unit rows and isometric reduction."""

from __future__ import annotations

import torch
from torch import Tensor


def unit_rows(features: Tensor) -> Tensor:
    """Scale rows [..., width] to unit length; all-zero rows stay zero.

    Example:
        >>> unit_rows(torch.tensor([3.0, 4.0])).tolist()
        [0.6000000238418579, 0.800000011920929]
    """
    length: Tensor = torch.linalg.vector_norm(features, dim=-1, keepdim=True)
    return features / length.clamp(min=1e-12)


def isometric(support: Tensor, query: Tensor) -> tuple[Tensor, Tensor]:
    """Describe the samples of a task in fewer coordinates without changing any inner product.

    The rows of support and query span at most n = n_support + n_query dimensions. In an orthonormal
    basis of that span (QR of the transposed rows) all inner products and distances stay as they
    are, so methods that use nothing else give the same answers in min(n, width) dimensions.

    Args:
        support: [tasks, n_support, width].
        query: [tasks, n_query, width].

    Returns:
        The same rows as [tasks, n_support, r] and [tasks, n_query, r], r = min(n, width); unchanged
        where that saves nothing.

    Example:
        >>> s, q = isometric(torch.ones(1, 1, 50), 2 * torch.ones(1, 1, 50))
        >>> s.shape, round(float(s[0] @ q[0].T))
        (torch.Size([1, 1, 2]), 100)
    """
    count = support.shape[1] + query.shape[1]
    if count >= support.shape[2]:
        return support, query
    both = torch.cat((support, query), dim=1).transpose(1, 2)  # [T, D, n]
    upper = torch.linalg.qr(both).R.transpose(1, 2)  # [T, n, n]: row i describes sample i
    return upper[:, : support.shape[1]], upper[:, support.shape[1] :]
