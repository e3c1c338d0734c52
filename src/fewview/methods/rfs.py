"""RFS: logistic regression on normalised features (Tian et al. 2020, "a good embedding...")."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from fewview.episodes.batch import EpisodeBatch
from fewview.methods.base import State, Tags
from fewview.methods.estimator.method import Method
from fewview.methods.params import param
from fewview.methods.registry import register
from fewview.numerics.distances import unit_rows
from fewview.numerics.lbfgs import minimise_lbfgs


@register("rfs")
@dataclass(kw_only=True, eq=False, repr=False)
class RFS(Method):
    """Multinomial logistic regression on the unit-length concatenation of the views.

    In the original an embedding network is trained on base classes first; here the features are
    the given views.

    Args:
        C: weight of the loss, which is a sum over supports. With many anchors in place of one
            support the regularisation is weaker by their number; give C = 1 / anchors to undo it.

    Example:
        >>> from fewview import RFS
        >>> clf = RFS(scaling="none").fit([[1.0, 0.0], [0.0, 1.0]], ["x", "y"])
        >>> clf.predict([[5.0, 1.0]]).tolist()
        ['x']
    """

    scaling: str = param("standard")
    padding: str = param("base", tune=("support", "base", "zero"))
    C: float = param(1.0, above=0, tune=(1.0, 10.0, 100.0))

    tags: ClassVar[Tags] = Tags(iterative=True)
    paper: ClassVar[dict[str, Any]] = {"scaling": "scale", "padding": "episode"}
    small_batches: ClassVar[bool] = False

    def scores(self, batch: EpisodeBatch, state: State) -> Tensor:
        """Logits of the logistic regression, [tasks, n_query, way]."""
        support, query = (unit_rows(part) for part in batch.concatenated())
        if 2 * batch.n_support < support.shape[2]:  # the best W is in the span of the supports
            basis, upper = torch.linalg.qr(support.mT)  # [T, D, N_S], [T, N_S, N_S]
            support, query = upper.mT, query @ basis
        W, b = self.regression(support, batch.one_hot())
        return query @ W.mT + b[:, None]

    def regression(self, features: Tensor, members: Tensor) -> tuple[Tensor, Tensor]:
        """min_{W,b} 1/2 |W|^2 + C sum_i w_i CE(softmax(W z_i + b), y_i), as in scikit-learn.

        Features z [tasks, n, width] and w_i in the column of y_i of `members` [tasks, n, way] give
        W [tasks, way, width] and b [tasks, way].
        """
        start = features.new_zeros(len(features), members.shape[2], features.shape[2] + 1)
        found = minimise_lbfgs(self.loss_and_gradient, start, features, members, max_iter=1000)
        # A constant added to all intercepts changes nothing; take the one that adds up to zero.
        b = found[..., -1]
        return found[..., :-1], b - b.mean(1, keepdim=True)

    def loss_and_gradient(self, x: Tensor, z: Tensor, members: Tensor) -> tuple[Tensor, Tensor]:
        """The loss [tasks] and its gradient in x = (W, b), [tasks, way, width + 1]."""
        W, b, weights = x[..., :-1], x[..., -1], members.sum(-1)  # weights [T, n]
        logits = z @ W.mT + b[:, None]  # [T, n, K]
        total = torch.logsumexp(logits, dim=-1)
        fit = (weights * total).sum(1) - (members * logits).sum((1, 2))
        error = weights[..., None] * torch.exp(logits - total[..., None]) - members
        slope = torch.cat((W + self.C * (error.mT @ z), self.C * error.sum(1)[..., None]), dim=-1)
        return 0.5 * (W * W).sum((1, 2)) + self.C * fit, slope
