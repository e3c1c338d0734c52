"""Proto: the nearest class mean in the concatenated views (Snell, Swersky and Zemel 2017)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from fewview.episodes.batch import EpisodeBatch
from fewview.methods.base import State
from fewview.methods.estimator.method import Method
from fewview.methods.params import param
from fewview.methods.registry import register
from fewview.numerics.distances import class_means, relation


@register("proto")
@dataclass(kw_only=True, eq=False, repr=False)
class Proto(Method):
    """Nearest class mean by squared Euclidean distance; nothing is learnt from base classes.

    Views are padded, scaled and put side by side. With the padding `episode`, which takes means
    over the queries too, it is not inductive.

    Example:
        >>> import numpy as np
        >>> from fewview import Proto
        >>> clf = Proto().fit({"a": [[0.0], [9.0]], "b": [[1.0], [5.0]]}, ["cat", "dog"])
        >>> clf.predict({"a": [[8.0], [np.nan]], "b": [[5.0], [1.5]]}).tolist()
        ['dog', 'cat']
    """

    scaling: str = param("by-width")
    padding: str = param("zero", tune=("support", "base", "zero"))

    paper: ClassVar[dict[str, Any]] = {"scaling": "scale", "padding": "zero"}

    def scores(self, batch: EpisodeBatch, state: State) -> Tensor:
        """Minus the squared distance to every class mean, [tasks, n_query, way]."""
        support, query = batch.concatenated()
        return relation(query, class_means(support, batch.one_hot()))
