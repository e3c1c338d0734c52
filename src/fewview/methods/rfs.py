"""RFS: logistic regression on normalised features (Tian et al. 2020, "a good embedding...")."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from fewview.engine._contract import INDUCTIVE
from fewview.engine._method import Method
from fewview.engine._parameters import check_numbers
from fewview.engine._registry import register
from fewview.engine._state import State, Tags
from fewview.numerics._batch import EpisodeBatch
from fewview.numerics._distances import unit_rows
from fewview.numerics._optimise import minimise_lbfgs


def logistic_regression(
    features: Tensor, members: Tensor, C: float = 1.0, tol: float | None = None
) -> tuple[Tensor, Tensor]:
    """Solve min_{W,b} 1/2 |W|^2 + C sum_i w_i CE(softmax(W z_i + b), y_i) for every task.

    The problem of scikit-learn's LogisticRegression (L2 penalty, intercept not penalised), by
    batched L-BFGS: features z [tasks, n, width] and w_i in the column of y_i of `members`
    [tasks, n, way] give W [tasks, way, width] and b [tasks, way], with mean zero.
    """

    def loss_and_gradient(x: Tensor, features: Tensor, members: Tensor) -> tuple[Tensor, Tensor]:
        W, b, weights = x[..., :-1], x[..., -1], members.sum(-1)  # weights [T, n]
        logits = features @ W.transpose(1, 2) + b[:, None]  # [T, n, K]
        total = torch.logsumexp(logits, dim=-1)
        fit = (weights * total).sum(1) - (members * logits).sum((1, 2))
        error = weights[..., None] * torch.exp(logits - total[..., None]) - members
        slope_W = W + C * (error.transpose(1, 2) @ features)
        slope_b = C * error.sum(1)
        value = 0.5 * (W * W).sum((1, 2)) + C * fit
        return value, torch.cat((slope_W, slope_b[..., None]), dim=-1)

    start = features.new_zeros(len(features), members.shape[2], features.shape[2] + 1)
    solution = minimise_lbfgs(loss_and_gradient, start, features, members, tol=tol, max_iter=1000)
    # A constant added to all intercepts changes nothing; take the one that adds up to zero.
    b = solution[..., -1]
    return solution[..., :-1], b - b.mean(1, keepdim=True)


@register("rfs")
class RFS(Method):
    """Multinomial logistic regression on the unit-length concatenation of the views.

    In the original an embedding network is trained on base classes first; here the features are
    the given views. The best W lies in the span of the supports, so the problem is solved in that
    span where it is smaller than the width.

    Args:
        C: weight of the loss, which is a sum over supports. With many anchors in place of one
            support the regularisation is weaker by their number; give C = 1 / anchors to undo it.

    Example:
        >>> from fewview.methods.rfs import RFS
        >>> clf = RFS(scaling="none").fit([[1.0, 0.0], [0.0, 1.0]], ["x", "y"])
        >>> clf.predict([[5.0, 1.0]]).tolist()
        ['x']
    """

    scaling: str = "standard"
    padding: str = "base"
    C: float = 1.0

    tags: ClassVar[Tags] = Tags(iterative=True)
    tune_grid: ClassVar[dict[str, Any]] = {**INDUCTIVE, "C": (1.0, 10.0, 100.0)}
    paper_settings: ClassVar[dict[str, str]] = {"scaling": "scale", "padding": "episode"}

    def validate(self) -> None:
        """Check C."""
        super().validate()
        check_numbers(self, positive=("C",))

    def scores(self, batch: EpisodeBatch, state: State) -> Tensor:
        """Logits of the logistic regression."""
        support, query = (unit_rows(part) for part in batch.concatenated())
        if 2 * batch.n_support < support.shape[2]:
            basis, upper = torch.linalg.qr(support.transpose(1, 2))  # [T, D, N_S], [T, N_S, N_S]
            support, query = upper.transpose(1, 2), query @ basis
        W, b = logistic_regression(support, batch.one_hot(), self.C)
        return query @ W.transpose(1, 2) + b[:, None]
