"""Match: attention over supports by cosine similarity (Vinyals et al. 2016, matching networks)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from fewview.episodes.batch import EpisodeBatch
from fewview.methods.base import State
from fewview.methods.estimator.method import Method
from fewview.methods.params import param
from fewview.methods.registry import register
from fewview.numerics.distances import unit_rows


@register("match")
@dataclass(kw_only=True, eq=False, repr=False)
class Match(Method):
    """Attention over the supports by cosine similarity of the concatenated views.

    Full-context embeddings need episodic training on base classes and are left out. With one shot
    the answer is the nearest support by cosine whatever the temperature.

    Args:
        temperature: factor of the cosine inside the softmax. The original has 1, a well-known
            re-implementation 100 with a ReLU; 10 is our choice.

    Example:
        >>> from fewview import Match
        >>> clf = Match(scaling="none").fit([[1.0, 0.0], [0.0, 1.0]], ["x", "y"])
        >>> clf.predict([[5.0, 1.0]]).tolist()
        ['x']
    """

    scaling: str = param("standard")
    padding: str = param("base", tune=("support", "base", "zero"))
    temperature: float = param(10.0, above=0, tune=(1.0, 10.0, 30.0))

    paper: ClassVar[dict[str, Any]] = {"scaling": "scale", "padding": "zero"}

    def scores(self, batch: EpisodeBatch, state: State) -> Tensor:
        """log sum_{s in c} a(q, s), a = softmax_s(temperature cos(q, s)), [tasks, n_query, way]."""
        support, query = (unit_rows(part) for part in batch.concatenated())
        members = batch.one_hot()  # [T, N_S, K]
        logits = self.temperature * (query @ support.mT) + members.sum(-1).log()[:, None]
        # The log of 0 as -inf inside logsumexp: other classes then weigh exactly nothing.
        own = torch.where(members > 0, 0.0, -torch.inf).to(logits)
        by_class = torch.logsumexp(logits[..., None] + own[:, None], dim=2)
        return by_class - torch.logsumexp(logits, dim=2)[..., None]
