"""Nearest neighbour by partial distance: compare two samples in the views that both have."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from fewview.engine._contract import TUNED
from fewview.engine._method import Method
from fewview.engine._parameters import choose
from fewview.engine._registry import register
from fewview.engine._state import State, Tags
from fewview.numerics._batch import EpisodeBatch
from fewview.numerics._distances import partial_distances

WEIGHTINGS = ("view", "feature")


@register("partial-nn")
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

    scaling: str = "by-width"
    weighting: str = "view"
    temperature: float = 10.0

    tags: ClassVar[Tags] = Tags(handles_missing=True)
    tune_grid: ClassVar[dict[str, Any]] = {"scaling": TUNED["scaling"], "weighting": WEIGHTINGS}

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
