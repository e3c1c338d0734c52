"""Match: attention over supports by cosine similarity (Vinyals et al. 2016, matching networks)."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from fewview.engine._contract import INDUCTIVE
from fewview.engine._method import Method
from fewview.engine._parameters import check_numbers
from fewview.engine._registry import register
from fewview.engine._state import State
from fewview.numerics._batch import EpisodeBatch
from fewview.numerics._distances import unit_rows


def attention_scores(support: Tensor, query: Tensor, members: Tensor, temperature: float) -> Tensor:
    """log sum_{s in c} a(q, s), a = softmax_s(temperature * cos(q, s)): [tasks, n_query, way]."""
    cosine = unit_rows(query) @ unit_rows(support).transpose(1, 2)  # [T, N_Q, N_S]
    logits = temperature * cosine + members.sum(-1).log()[:, None]
    own = torch.where(members > 0, 0.0, -torch.inf).to(logits)  # [T, N_S, K]
    by_class = torch.logsumexp(logits[..., None] + own[:, None], dim=2)
    return by_class - torch.logsumexp(logits, dim=2)[..., None]


@register("match")
class Match(Method):
    """Attention over the supports by cosine similarity of the concatenated views.

    Full-context embeddings need episodic training on base classes and are left out. With one shot
    the answer is the nearest support by cosine whatever the temperature.

    Args:
        temperature: factor of the cosine inside the softmax. The original has 1, a well-known
            re-implementation 100 with a ReLU; 10 is our choice.

    Example:
        >>> from fewview.methods.match import Match
        >>> clf = Match(scaling="none").fit([[1.0, 0.0], [0.0, 1.0]], ["x", "y"])
        >>> clf.predict([[5.0, 1.0]]).tolist()
        ['x']
    """

    scaling: str = "standard"
    padding: str = "base"
    temperature: float = 10.0

    tune_grid: ClassVar[dict[str, Any]] = {**INDUCTIVE, "temperature": (1.0, 10.0, 30.0)}
    paper_settings: ClassVar[dict[str, str]] = {"scaling": "scale", "padding": "zero"}

    def validate(self) -> None:
        """Check the temperature."""
        super().validate()
        check_numbers(self, positive=("temperature",))

    def bytes_per_task(self, n_support: int, n_query: int, dims: tuple[int, ...], way: int) -> int:
        """Features, and the attention of every query for every support and class."""
        attention = 3 * n_query * n_support * way * self.torch_dtype.itemsize
        return super().bytes_per_task(n_support, n_query, dims, way) + attention

    def scores(self, batch: EpisodeBatch, state: State) -> Tensor:
        """Logarithm of the attention that falls on every class."""
        support, query = batch.concatenated()
        return attention_scores(support, query, batch.one_hot(), self.temperature)
