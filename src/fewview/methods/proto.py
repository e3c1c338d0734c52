"""Proto: the nearest class mean in the concatenated views (Snell, Swersky and Zemel 2017)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from fewview.engine._contract import TUNED_SCALINGS, Method, State, Tags
from fewview.engine._registry import register
from fewview.numerics._batch import EpisodeBatch


def class_means(features: Tensor, members: Tensor) -> Tensor:
    """Mean of every class: [tasks, way, width].

    Args:
        features: [tasks, n, width].
        members: [tasks, n, way], membership weights.

    Example:
        >>> import torch
        >>> class_means(torch.tensor([[[1.0], [3.0]]]), torch.ones(1, 2, 1)).item()
        2.0
    """
    return members.transpose(1, 2) @ features / members.sum(1).clamp(min=1e-30)[..., None]


def squared_distances(queries: Tensor, centres: Tensor) -> Tensor:
    """Squared Euclidean distances [tasks, n_query, way], in the expanded form.

    The expanded form needs no tensor of size queries x classes x width. Both sides are shifted to
    the mean of the centres first, which keeps its rounding error at the size of the spread.

    Args:
        queries: [tasks, n_query, width].
        centres: [tasks, way, width].

    Example:
        >>> import torch
        >>> squared_distances(torch.tensor([[[3.0, 4.0]]]), torch.zeros(1, 1, 2)).item()
        25.0
    """
    middle = centres.mean(1, keepdim=True)
    q, c = queries - middle, centres - middle
    cross = q @ c.transpose(1, 2)
    out = (q * q).sum(-1)[..., None] - 2 * cross + (c * c).sum(-1)[:, None]
    return out.clamp(min=0)


@register("proto")
@dataclass(kw_only=True, eq=False, repr=False)
class Proto(Method):
    """Nearest class mean by squared Euclidean distance.

    Views are padded, scaled and put side by side; nothing is learnt from base classes. The score
    of class c is minus the squared distance of the query to the mean of the supports of c. Note
    that the padding `episode` takes means over the queries too.

    Example:
        >>> import numpy as np
        >>> from fewview import Proto
        >>> clf = Proto().fit({"a": [[0.0], [9.0]], "b": [[1.0], [5.0]]}, ["cat", "dog"])
        >>> clf.predict({"a": [[8.0], [np.nan]], "b": [[5.0], [1.5]]}).tolist()
        ['dog', 'cat']
    """

    tags: ClassVar[Tags] = Tags()
    tune_grid: ClassVar[dict[str, tuple[Any, ...]]] = {
        "scaling": TUNED_SCALINGS,
        "padding": ("episode", "zero"),
    }
    paper_settings: ClassVar[dict[str, str]] = {"scaling": "scale", "padding": "zero"}

    def scores(self, batch: EpisodeBatch, state: State) -> Tensor:
        """Minus the squared distance to every class mean."""
        support, query = batch.concatenated()
        return -squared_distances(query, class_means(support, batch.one_hot()))
