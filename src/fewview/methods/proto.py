"""Proto: the nearest class mean in the concatenated views (Snell, Swersky and Zemel 2017)."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from fewview.engine._contract import INDUCTIVE
from fewview.engine._method import Method
from fewview.engine._registry import register
from fewview.engine._state import State
from fewview.numerics._batch import EpisodeBatch
from fewview.numerics._distances import class_means


@register("proto")
class Proto(Method):
    """Nearest class mean by squared Euclidean distance.

    Views are padded, scaled and put side by side; nothing is learnt from base classes. The score
    of class c is minus the squared distance of the query to the mean of the supports of c. With
    the padding `episode`, which takes means over the queries too, it is not inductive.

    Example:
        >>> import numpy as np
        >>> from fewview import Proto
        >>> clf = Proto().fit({"a": [[0.0], [9.0]], "b": [[1.0], [5.0]]}, ["cat", "dog"])
        >>> clf.predict({"a": [[8.0], [np.nan]], "b": [[5.0], [1.5]]}).tolist()
        ['dog', 'cat']
    """

    scaling: str = "by-width"
    padding: str = "zero"

    tune_grid = INDUCTIVE
    paper_settings: ClassVar[dict[str, str]] = {"scaling": "scale", "padding": "zero"}

    def scores(self, batch: EpisodeBatch, state: State) -> Tensor:
        """Minus the squared distance to every class mean, but for what all classes share.

        |q - m|^2 - |q - c|^2 = 2 (q - m).(c - m) - |c - m|^2 with m the mean of the class means c,
        summed over views: queries, which are many and wide, are read once and never copied.
        """
        members = batch.one_hot()
        total = batch.support[0].new_zeros(())
        for support, query in zip(*batch.blocks(), strict=True):
            means = class_means(support, members)
            middle = means.mean(1, keepdim=True)
            apart = means - middle  # [T, K, d]
            own = (apart * (2 * middle + apart)).sum(-1)[:, None]
            total = total + 2 * (query @ apart.mT) - own
        return total
