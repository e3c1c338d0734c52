"""PADDLE: clustering with a penalty on the number of classes in use (Martin et al. 2022)."""

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
from fewview.numerics.distances import class_means, isometric, rounding, squared_distances
from fewview.numerics.iterate import iterate
from fewview.numerics.softmax import log_softmax

AUTHORS_WIDTH = 512  # of ResNet-18 features


@register("paddle")
@dataclass(kw_only=True, eq=False, repr=False)
class Paddle(Method):
    """Soft k-means from the class means, with class shares learnt: unequal shares are welcome.

    Block coordinate descent on a description length, with u of a support its label,
    `sum_{n,k} u_nk / 2 |z_n - w_k|^2 - lambda sum_k m_k log m_k + sum_{q,k} u_qk log u_qk`. It is
    EM for Gaussians with identity covariance, so the size of the features matters. A single query
    is classified by the class means.

    Args:
        penalty: lambda / n_query, the weight of the class shares; 1 in the paper, which calls the
            method free of hyper-parameters.
        rescale: `"minmax"` divides every feature by its range over the queries of the task, as the
            authors' code does (the paper's text could not be checked), and multiplies all by
            sqrt(512 / width): the authors' features are 512 wide, and in narrower ones distances
            would be so small that one class takes all. `"none"` leaves features as they are.
        n_iter: most rounds (1000 in the authors' settings).

    Example:
        >>> from fewview import Paddle
        >>> clf = Paddle(rescale="none", scaling="none").fit([[0.0], [9.0]], ["x", "y"])
        >>> clf.predict([[1.0], [0.5], [2.0], [8.0]]).tolist()
        ['x', 'x', 'x', 'y']
    """

    scaling: str = param("by-width")
    penalty: float = 1.0
    rescale: str = param("minmax", among=("minmax", "none"), tune=("minmax", "none"))
    n_iter: int = param(1000, least=1)

    version: ClassVar[int] = 2
    tags: ClassVar[Tags] = Tags(transductive=True, iterative=True)
    paper: ClassVar[dict[str, Any]] = {"scaling": "scale", "padding": "episode"}
    small_batches: ClassVar[bool] = False

    def scores(self, batch: EpisodeBatch, state: State) -> Tensor:
        """Logarithm of the soft assignments, [tasks, n_query, way]."""
        support, query = batch.concatenated()
        members = batch.one_hot()
        if self.rescale == "minmax":
            low, high = query.amin(1, keepdim=True), query.amax(1, keepdim=True)
            spread = high - low
            # A feature that is the same in all queries varies by rounding once gaps were filled.
            varies = spread > rounding(query) * torch.maximum(low.abs(), high.abs())
            factor = (AUTHORS_WIDTH / query.shape[2]) ** 0.5 / torch.where(varies, spread, 1.0)
            support, query = support * factor, query * factor
        if batch.n_query == 1:
            return -0.5 * squared_distances(query, class_means(support, members))
        support, query = isometric(support, query)
        # The first round has no penalty.
        log_u = log_softmax(-0.5 * squared_distances(query, class_means(support, members)))
        given = query, torch.cat((support, query), dim=1), members
        return iterate(self.step, (log_u,), given, max_iter=self.n_iter - 1)

    def step(
        self, carry: tuple[Tensor], query: Tensor, samples: Tensor, members: Tensor
    ) -> tuple[tuple[Tensor], Tensor]:
        """One round: shares m [tasks, way], centres w [tasks, way, width], assignments u."""
        u = carry[0].exp()
        shares = u.mean(1, keepdim=True).clamp(min=1e-6)
        centres = class_means(samples, torch.cat((members, u), dim=1))
        fit = -0.5 * squared_distances(query, centres)
        log_u = log_softmax(fit + self.penalty * shares.log())
        tol = 1e-8 if u.dtype == torch.float64 else 1e-5
        return (log_u,), ~((log_u.exp() - u).abs() > tol).flatten(1).any(1)
