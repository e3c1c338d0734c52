"""Nearest neighbour by partial distance: compare two samples in the views that both have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from fewview.engine._contract import TUNED_SCALINGS, Method, State, Tags, choose
from fewview.engine._registry import register
from fewview.numerics._batch import EpisodeBatch

WEIGHTINGS = ("view", "feature")


def partial_distances(
    left: Sequence[Tensor],
    right: Sequence[Tensor],
    left_mask: Tensor,
    right_mask: Tensor,
    weighting: str = "view",
) -> tuple[Tensor, Tensor]:
    """Mean squared differences over the views that two samples share.

    Args:
        left: per view [tasks, n, width].
        right: per view [tasks, m, width].
        left_mask: bool [tasks, n, V].
        right_mask: bool [tasks, m, V].
        weighting: `"view"`: mean over shared views of the mean squared difference per feature;
            `"feature"`: every feature of the shared views counts the same.

    Returns:
        distances: [tasks, n, m], zero for pairs that share no view.
        shared: bool [tasks, n, m], whether they share one.

    Example:
        >>> one, two = torch.tensor([[[1.0], [2.0]]]), torch.tensor([[[4.0]]])
        >>> both = torch.ones(1, 2, 1, dtype=torch.bool)
        >>> partial_distances([one], [two], both, both[:, :1])[0].flatten().tolist()
        [9.0, 4.0]
    """
    total = weight = left[0].new_zeros(())
    for view, (a, b) in enumerate(zip(left, right, strict=True)):
        # Shifted to a common middle, which keeps rounding at the size of the spread.
        middle = b.mean(1, keepdim=True)
        a, b = a - middle, b - middle
        squares = (a * a).sum(-1)[..., None] + (b * b).sum(-1)[:, None]
        squares = (squares - 2 * a @ b.transpose(1, 2)).clamp(min=0)
        both = (left_mask[..., view, None] & right_mask[:, None, :, view]).to(squares)
        width = a.shape[-1]
        total = total + both * squares * (1.0 if weighting == "feature" else 1.0 / width)
        weight = weight + both * (width if weighting == "feature" else 1.0)
    return total / weight.clamp(min=1), weight > 0


@register("partial-nn")
@dataclass(kw_only=True, eq=False, repr=False)
class PartialNN(Method):
    """The class of the nearest support, compared in shared views only; nothing is filled in.

    A missing view neither attracts nor repels, unlike a view filled with a mean. Where a query
    and a support share no view, their distance is taken as the query's mean distance to the
    supports it does share a view with; a query that shares none with any support has equal scores
    for all classes.

    Args:
        weighting: `"view"` (views count the same, whatever their width) or `"feature"`.
        temperature: scores are minus the distance over the query's mean distance to the classes,
            times this; it changes probabilities, never predictions.

    Example:
        >>> from fewview.methods.partial_nn import PartialNN
        >>> nan = float("nan")
        >>> clf = PartialNN().fit({"a": [[0.0], [9.0]], "b": [[1.0], [nan]]}, ["cat", "dog"])
        >>> clf.predict({"a": [[8.0], [nan]], "b": [[1.0], [1.5]]}).tolist()
        ['dog', 'cat']
    """

    weighting: str = "view"
    temperature: float = 10.0

    tags: ClassVar[Tags] = Tags(handles_missing=True)
    tune_grid: ClassVar[dict[str, tuple[Any, ...]]] = {
        "scaling": TUNED_SCALINGS,
        "weighting": WEIGHTINGS,
    }

    def validate(self) -> None:
        """Check the weighting."""
        super().validate()
        choose("weighting", self.weighting, WEIGHTINGS)

    def scores(self, batch: EpisodeBatch, state: State) -> Tensor:
        """Minus the smallest partial distance to the supports of every class."""
        distances, shared = partial_distances(
            batch.query, batch.support, batch.query_mask, batch.support_mask, self.weighting
        )
        known = shared.sum(2, keepdim=True).clamp(min=1)
        neutral = (distances * shared).sum(2, keepdim=True) / known
        distances = torch.where(shared, distances, neutral)  # [T, N_Q, N_S]
        own = batch.one_hot() > 0  # [T, N_S, K]
        nearest = torch.where(own[:, None], distances[..., None], torch.inf).amin(2)
        size = nearest.mean(2, keepdim=True)
        return -self.temperature * nearest / torch.where(size > 0, size, 1.0)
