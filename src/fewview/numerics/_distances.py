"""Distances and simple geometry of the samples of many tasks at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fewview.numerics._batch import EpisodeBatch, as_they_lie, side_by_side

ROUNDING = 64  # last places
# Views that are narrower on average are copied side by side: products of narrow ones cost more.
NARROW = 256


def unit_rows(features: Tensor) -> Tensor:
    """Scale rows [..., width] to unit length; all-zero rows stay zero."""
    length: Tensor = torch.linalg.vector_norm(features, dim=-1, keepdim=True)
    return features / length.clamp(min=1e-12)


@dataclass(frozen=True)
class MovedUnitRows:
    """Rows of several views side by side, at unit length and then moved; none of them is copied.

    Row i is factor_i x_i + shift. Wide rows of many tasks take longer to copy than to multiply.

    Attributes:
        views: per view [tasks, n, width].
        factor: one over the length of every row, [tasks, n, 1]; of all-zero rows, anything.
        shift: [tasks, 1, all widths].
    """

    views: tuple[Tensor, ...]
    factor: Tensor
    shift: Tensor

    @classmethod
    def of(cls, views: Sequence[Tensor]) -> MovedUnitRows:
        """Rows at unit length, not moved."""
        whole = as_they_lie(views)
        if whole is None and sum(view.shape[-1] for view in views) < NARROW * len(views):
            whole = side_by_side(views)
        views = views if whole is None else [whole]
        sizes = [torch.linalg.vector_norm(view, dim=-1, keepdim=True) for view in views]
        length = sizes[0]
        if len(sizes) > 1:
            length = torch.linalg.vector_norm(torch.cat(sizes, dim=-1), dim=-1, keepdim=True)
        width = sum(view.shape[-1] for view in views)
        shift = views[0].new_zeros(len(views[0]), 1, width)
        return cls(tuple(views), 1 / length.clamp(min=1e-12), shift)

    def moved(self, shift: Tensor) -> MovedUnitRows:
        """The same rows moved by [tasks, 1, all widths]."""
        return replace(self, shift=self.shift + shift)

    def products(self, others: Tensor) -> Tensor:
        """Inner products with other rows [tasks, k, all widths], [tasks, n, k]."""
        widths = [view.shape[-1] for view in self.views]
        total = self.shift @ others.mT
        for part, view in zip(torch.split(others, widths, dim=-1), self.views, strict=True):
            total = torch.addcmul(total, self.factor, (part @ view.mT).mT)
        return total

    def cosines(self, others: Tensor) -> Tensor:
        """Cosines to other rows of unit length, as `products`."""
        known: Tensor | None = vars(self).get("length")
        if known is not None:
            return self.products(others) / known
        found = self.products(torch.cat((others, self.shift), dim=1))  # one more costs nothing
        still = (self.factor < 1e12).to(found)  # all-zero rows have no length before they move
        square = torch.add(still - self.shift @ self.shift.mT, found[..., -1:], alpha=2)
        vars(self)["length"] = length = square.clamp_(min=1e-24).sqrt_()
        return found[..., :-1] / length

    def sums(self, weights: Tensor) -> Tensor:
        """Weighted sums of the rows for weights [tasks, n, k], [tasks, k, all widths]."""
        scaled = (weights * self.factor).mT
        parts = [scaled @ view for view in self.views]
        total = parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)
        return torch.addcmul(total, weights.sum(1)[..., None], self.shift)


def centred_unit_rows(features: Tensor, middle: Tensor) -> Tensor:
    """`unit_rows` of what is left without the middle; zero where that is rounding only."""
    rest = features - middle
    size = torch.linalg.vector_norm(features, dim=-1, keepdim=True)
    length = torch.linalg.vector_norm(rest, dim=-1, keepdim=True)
    varies = length > rounding(features) * size
    return torch.where(varies, rest / length.clamp(min=1e-12), 0.0)


def rounding(features: Tensor) -> float:
    """Differences that are smaller, relative to what was subtracted, say nothing."""
    return ROUNDING * torch.finfo(features.dtype).eps


def isometric(support: Tensor, query: Tensor) -> tuple[Tensor, Tensor]:
    """Describe the samples of a task in fewer coordinates without changing any inner product.

    The rows of support and query span at most n = n_support + n_query dimensions. In an orthonormal
    basis of that span (QR of the transposed rows) all inner products and distances stay as they
    are, so methods that use nothing else give the same answers in r = min(n, width) dimensions.
    """
    count = support.shape[1] + query.shape[1]
    if count >= support.shape[2]:
        return support, query
    both = torch.cat((support, query), dim=1).transpose(1, 2)  # [T, D, n]
    upper = torch.linalg.qr(both).R.transpose(1, 2)  # [T, n, n]: row i describes sample i
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
    return members.transpose(1, 2) @ features / members.sum(1).clamp(min=1e-30)[..., None]


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
    cross = q @ c.transpose(1, 2)
    out = (q * q).sum(-1)[..., None] - 2 * cross + (c * c).sum(-1)[:, None]
    return out.clamp(min=0)


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
        # Shifted to a common middle, which keeps rounding at the size of the spread.
        middle = b.mean(1, keepdim=True)
        a, b = a - middle, b - middle
        sizes = (a * a).sum(-1)[..., None] + (b * b).sum(-1)[:, None]
        squares = sizes - 2 * a @ b.transpose(1, 2)
        squares = torch.where(squares > rounding(squares) * sizes, squares, 0.0)
        both = (left_mask[..., view, None] & right_mask[:, None, :, view]).to(squares)
        width = a.shape[-1]
        total = total + both * squares * (1.0 if weighting == "feature" else 1.0 / width)
        weight = weight + both * (width if weighting == "feature" else 1.0)
    return total / weight.clamp(min=1), weight > 0


def nearest_support(batch: EpisodeBatch) -> Tensor:
    """Minus the partial distance to the nearest support of every class, [tasks, n_query, way].

    Where a query and a support share no view, the mean over the pairs of the query that do, or of
    the task, stands in.
    """
    distances, shared = partial_distances(
        batch.query, batch.support, batch.query_mask, batch.support_mask
    )
    share = shared.to(distances)
    everyone = distances.sum((1, 2), keepdim=True) / share.sum((1, 2), keepdim=True).clamp(min=1)
    count = share.sum(2, keepdim=True)
    own = torch.where(count > 0, distances.sum(2, keepdim=True) / count.clamp(min=1), everyone)
    distances = torch.where(shared, distances, own)
    members = batch.one_hot() > 0  # [T, N_S, K]
    return -torch.where(members[:, None], distances[..., None], torch.inf).amin(2)


def nearest_supports(batch: EpisodeBatch, count: int) -> list[list[tuple[int, float]]]:
    """Numbers and partial distances of the supports nearest to each query of one task."""
    distances, shared = partial_distances(
        batch.query, batch.support, batch.query_mask, batch.support_mask
    )
    far = torch.where(shared, distances.sqrt(), torch.inf)[0].cpu()
    values, places = far.sort(dim=-1, stable=True)
    return [
        [(k, d) for k, d in zip(ks[:count], ds[:count], strict=True) if d != torch.inf]
        for ks, ds in zip(places.tolist(), values.tolist(), strict=True)
    ]
