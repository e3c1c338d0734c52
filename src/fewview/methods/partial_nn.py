"""Nearest neighbour by partial distance: compare two samples in the views that both have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fewview.episodes.batch import EpisodeBatch
from fewview.methods.base import State, Tags
from fewview.methods.estimator.method import Method
from fewview.methods.params import param
from fewview.methods.registry import register
from fewview.numerics.distances import partial_distances


@register("partial-nn")
@dataclass(kw_only=True, eq=False, repr=False)
class PartialNN(Method):
    """The class of the nearest support, compared in shared views only; nothing is filled in.

    Where a query and a support share no view, their distance is taken as the query's mean distance
    to the supports it does share a view with.

    Args:
        weighting: `"view"` (views count the same, whatever their width) or `"feature"`.
        temperature: factor of minus the distance over the query's mean distance to the classes; it
            changes probabilities, never predictions.

    Example:
        >>> from fewview import PartialNN
        >>> nan = float("nan")
        >>> clf = PartialNN().fit({"a": [[0.0], [9.0]], "b": [[1.0], [nan]]}, ["cat", "dog"])
        >>> clf.predict({"a": [[8.0], [nan]], "b": [[1.0], [1.5]]}).tolist()
        ['dog', 'cat']
    """

    scaling: str = param("by-width")
    padding: str = param("episode", tune=())
    weighting: str = param("view", among=("view", "feature"), tune=("view", "feature"))
    temperature: float = param(10.0, above=0)

    tags: ClassVar[Tags] = Tags(handles_missing=True)

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
