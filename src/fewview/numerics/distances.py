"""Distances and simple geometry of the samples of many tasks at once."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def unit_rows(features: Tensor) -> Tensor:
    """Scale rows [..., width] to unit length; all-zero rows stay zero."""
    length: Tensor = torch.linalg.vector_norm(features, dim=-1, keepdim=True)
    return features / length.clamp(min=1e-12)


def centred_unit_rows(features: Tensor, middle: Tensor) -> Tensor:
    """`unit_rows` of what is left without the middle; zero where that is rounding only."""
    rest = features - middle
    size = torch.linalg.vector_norm(features, dim=-1, keepdim=True)
    length = torch.linalg.vector_norm(rest, dim=-1, keepdim=True)
    varies = length > rounding(features) * size
    return torch.where(varies, rest / length.clamp(min=1e-12), 0.0)


def rounding(features: Tensor) -> float:
    """Differences that are smaller, relative to what was subtracted, say nothing."""
    return 64 * torch.finfo(features.dtype).eps


def isometric(support: Tensor, query: Tensor) -> tuple[Tensor, Tensor]:
    """Describe the samples of a task in fewer coordinates without changing any inner product.

    The rows of support and query span at most n = n_support + n_query dimensions. In an orthonormal
    basis of that span (QR of the transposed rows) all inner products and distances stay as they
    are, so methods that use nothing else give the same answers in r = min(n, width) dimensions.
    """
    count = support.shape[1] + query.shape[1]
    if count >= support.shape[2]:
        return support, query
    both = torch.cat((support, query), dim=1).mT  # [T, D, n]
    upper = torch.linalg.qr(both).R.mT  # [T, n, n]: row i describes sample i
    return upper[:, : support.shape[1]], upper[:, support.shape[1] :]


def class_means(features: Tensor, members: Tensor) -> Tensor:
    """Mean of every class: [tasks, way, width].

    Args:
        features: [tasks, n, width].
        members: [tasks, n, way], membership weights.

    Example:
        >>> class_means(torch.tensor([[[1.0], [3.0]]]), torch.ones(1, 2, 1)).item()
        2.0
    """
    return members.mT @ features / members.sum(1).clamp(min=1e-30)[..., None]


def overall_mean(features: Tensor, members: Tensor) -> Tensor:
    """Mean [tasks, 1, width] of all samples, by their weights in all classes together."""
    weights = members.sum(-1, keepdim=True)  # [T, n, 1]
    return (weights * features).sum(1, keepdim=True) / weights.sum(1, keepdim=True)


def squared_distances(queries: Tensor, centres: Tensor) -> Tensor:
    """Squared Euclidean distances [tasks, n_query, way], in the expanded form.

    The expanded form needs no tensor of size queries x classes x width. Both sides are shifted to
    the mean of the centres first, which keeps its rounding error at the size of the spread.

    Args:
        queries: [tasks, n_query, width].
        centres: [tasks, way, width].

    Example:
        >>> squared_distances(torch.tensor([[[3.0, 4.0]]]), torch.zeros(1, 1, 2)).item()
        25.0
    """
    middle = centres.mean(1, keepdim=True)
    q, c = queries - middle, centres - middle
    out = (q * q).sum(-1)[..., None] - 2 * q @ c.mT + (c * c).sum(-1)[:, None]
    return out.clamp(min=0)


def relation(queries: Tensor, centres: Tensor) -> Tensor:
    """Minus the squared distance to every centre, but for what all classes share.

    [tasks, n_query, way]: 2 q.(c - m) - (c - m).(2 m + (c - m)) with m the mean of the centres. No
    query is centred, which would copy all of them, and classes without a difference are level.

    Example:
        >>> relation(torch.tensor([[[1.0]]]), torch.tensor([[[0.0], [4.0]]])).softmax(-1).argmax()
        tensor(0)
    """
    middle = centres.mean(1, keepdim=True)
    apart = centres - middle
    return 2 * queries @ apart.mT - (apart * (2 * middle + apart)).sum(-1)[:, None]


def partial_distances(
    left: Sequence[Tensor],
    right: Sequence[Tensor],
    left_mask: Tensor,
    right_mask: Tensor,
    weighting: str = "view",
) -> tuple[Tensor, Tensor]:
    """Mean squared differences over the views that two samples share.

    With the weighting `"view"`, the mean over shared views of the mean squared difference per
    feature; with `"feature"`, every feature of the shared views counts the same.

    Args:
        left: per view [tasks, n, width].
        right: per view [tasks, m, width].
        left_mask: bool [tasks, n, V].
        right_mask: bool [tasks, m, V].
        weighting: `"view"` or `"feature"`.

    Returns:
        Distances [tasks, n, m], zero for pairs that share no view, and whether they share one.
    """
    total = weight = left[0].new_zeros(())
    for view, (a, b) in enumerate(zip(left, right, strict=True)):
        middle = b.mean(1, keepdim=True)  # keeps rounding at the size of the spread
        a, b = a - middle, b - middle
        sizes = (a * a).sum(-1)[..., None] + (b * b).sum(-1)[:, None]
        squares = sizes - 2 * a @ b.mT
        # Identical rows are at distance 0 in whatever order products are added up.
        squares = torch.where(squares > rounding(squares) * sizes, squares, 0.0)
        both = (left_mask[..., view, None] & right_mask[:, None, :, view]).to(squares)
        width = a.shape[-1]
        total = total + both * squares * (1.0 if weighting == "feature" else 1.0 / width)
        weight = weight + both * (width if weighting == "feature" else 1.0)
    return total / weight.clamp(min=1), weight > 0
