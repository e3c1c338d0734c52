"""PADDLE: clustering with a penalty on the number of classes in use (Martin et al. 2022)."""

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
from fewview.numerics._distances import class_means, isometric, rounding, squared_distances
from fewview.numerics._softmax import log_softmax

RESCALINGS = ("minmax", "none")
AUTHORS_WIDTH = 512  # of ResNet-18 features


def partition(
    support: Tensor,
    query: Tensor,
    members: Tensor,
    *,
    penalty: float = 1.0,
    n_iter: int = 1000,
    tol: float | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Block coordinate descent on PADDLE's objective, a description length.

    sum_{n,k} u_nk / 2 |z_n - w_k|^2 - lambda sum_k m_k log m_k + sum_{q,k} u_qk log u_qk, with
    m_k = mean_q u_qk; u of a support is its label. In turn u_qk = softmax_k(-|z_q - w_k|^2 / 2 +
    penalty * log m_k), and w_k = the mean of the supports of k and of the queries, weighted by u.
    The first round has no penalty. A task stops when no u moves by more than `tol`.

    Returns:
        log_u: [tasks, n_query, way].
        centres: [tasks, way, width], those that `log_u` was computed with.
        shares: the mean of u in the round before, [tasks, way].
    """
    if tol is None:
        tol = 1e-8 if query.dtype == torch.float64 else 1e-5
    samples = torch.cat((support, query), dim=1)
    centres = class_means(support, members)
    shares = query.new_ones(len(query), members.shape[2])
    log_u = query.new_full((*query.shape[:2], members.shape[2]), -torch.inf)
    active = torch.arange(len(query), device=query.device)
    for _ in range(n_iter):
        fit = -0.5 * squared_distances(query[active], centres[active])
        new = log_softmax(fit + penalty * shares[active].log()[:, None])
        still = ((new.exp() - log_u[active].exp()).abs() > tol).flatten(1).any(1)
        log_u[active] = new
        active, u = active[still], new[still].exp()
        if not len(active):
            break
        shares[active] = u.mean(1).clamp(min=1e-6)
        centres[active] = class_means(samples[active], torch.cat((members[active], u), dim=1))
    return log_u, centres, shares


@register("paddle")
class Paddle(Method):
    """Soft k-means from the class means, with class shares learnt: unequal shares are welcome.

    It is EM for Gaussians with identity covariance, so the size of the features matters. A single
    query is classified by the class means.

    Args:
        penalty: lambda / n_query, the weight of the class shares; 1 in the paper, which calls the
            method free of hyper-parameters.
        rescale: `"minmax"` divides every feature by its range over the queries of the task, as the
            authors' code does (the paper's text could not be checked), and multiplies all by
            sqrt(512 / width): the authors' features are 512 wide, and in narrower ones distances
            would be so small that one class takes all. `"none"` leaves features as they are.
        n_iter: most rounds (1000 in the authors' settings).

    Example:
        >>> from fewview.methods.paddle import Paddle
        >>> clf = Paddle(rescale="none", scaling="none").fit([[0.0], [9.0]], ["x", "y"])
        >>> clf.predict([[1.0], [0.5], [2.0], [8.0]]).tolist()
        ['x', 'x', 'x', 'y']
    """

    scaling: str = "by-width"
    penalty: float = 1.0
    rescale: str = "minmax"
    n_iter: int = 1000

    version: ClassVar[int] = 2
    tags: ClassVar[Tags] = Tags(transductive=True, iterative=True)
    tune_grid: ClassVar[dict[str, Any]] = {**TUNED, "rescale": RESCALINGS}
    paper_settings: ClassVar[dict[str, str]] = {"scaling": "scale", "padding": "episode"}

    def validate(self) -> None:
        """Check the rescaling."""
        super().validate()
        choose("rescale", self.rescale, RESCALINGS)

    def scores(self, batch: EpisodeBatch, state: State) -> Tensor:
        """Logarithm of the soft assignments."""
        support, query = batch.concatenated()
        members = batch.one_hot()
        if self.rescale == "minmax":
            low, high = query.amin(1, keepdim=True), query.amax(1, keepdim=True)
            spread = high - low
            # A feature that is the same in all queries varies by rounding once gaps were filled.
            varies = spread > rounding(query) * torch.maximum(low.abs(), high.abs())
            spread = torch.where(varies, spread, 1.0)
            factor = (AUTHORS_WIDTH / query.shape[2]) ** 0.5 / spread
            support, query = support * factor, query * factor
        if batch.n_query == 1:
            return -0.5 * squared_distances(query, class_means(support, members))
        support, query = isometric(support, query)
        return partition(support, query, members, penalty=self.penalty, n_iter=self.n_iter)[0]
