"""TIM: transductive information maximisation (Boudiaf et al. 2020), by gradient steps or by ADM.

And alpha-TIM, the same with alpha-entropies for unbalanced queries (Veilleux et al. 2021).
"""

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
from fewview.numerics.adam import minimise_adam
from fewview.numerics.distances import class_means, isometric, unit_rows
from fewview.numerics.softmax import log_softmax, softmax


@register("tim-adm", solver="adm", scaling="by-width")
@register("tim")
@dataclass(kw_only=True, eq=False, repr=False)
class TIM(Method):
    """Centres that fit the supports and make the queries' labels informative.

    Features are the concatenated views with unit rows; centres start at the class means. The loss
    is L = l_ce CE(supports) - l_m H(mean p) + l_c mean H(p); the middle term pulls towards equal
    class sizes. A single query is classified by the class means.

    Args:
        solver: `"gd"` takes Adam steps, as the published scripts do; `"adm"` alternates
            closed-form updates and is fast.
        temperature: factor tau of the squared distances.
        weights: (l_ce, l_m, l_c).
        learning_rate: of Adam.
        n_steps: Adam steps (1000 in the published scripts).
        n_iter: rounds of `"adm"` (150 in the published code).
        reduce: whether `"gd"` works in as many dimensions as samples. It is faster where views
            are wide, but Adam is not invariant to rotations, so the run is a different one.

    Example:
        >>> from fewview import TIM
        >>> clf = TIM(solver="adm").fit([[1.0, 0.0], [0.0, 1.0]], ["x", "y"])
        >>> clf.predict([[3.0, 1.0], [1.0, 4.0], [2.0, 1.0], [1.0, 3.0]]).tolist()
        ['x', 'y', 'x', 'y']
    """

    solver: str = param("gd", among=("gd", "adm"))
    temperature: float = param(15.0, above=0, tune=(5.0, 15.0, 45.0))
    weights: tuple[float, float, float] = param((0.1, 1.0, 0.1), least=0)
    learning_rate: float = param(1e-4, above=0)
    n_steps: int = param(1000, least=0)
    n_iter: int = param(150, least=0)
    reduce: bool = False

    tags: ClassVar[Tags] = Tags(transductive=True, balanced=1.0, iterative=True)
    paper: ClassVar[dict[str, Any]] = {"scaling": "scale", "padding": "zero"}
    # Kind of the entropies; alpha-TIM makes it a parameter.
    alpha: ClassVar[float] = 1.0

    @property
    def small_batches(self) -> bool:  # type: ignore[override]
        """A thousand Adam steps read all features again."""
        return self.solver == "gd"

    def scores(self, batch: EpisodeBatch, state: State) -> Tensor:
        """Logits of the queries under the adapted centres, [tasks, n_query, way]."""
        support, query = (unit_rows(part) for part in batch.concatenated())
        if self.reduce or self.solver == "adm":
            support, query = isometric(support, query)
        members = batch.one_hot()
        centres = class_means(support, members)
        if batch.n_query > 1:
            solve = self.alternate if self.solver == "adm" else self.descend
            centres = solve(centres, support, query, members)
        return self.logits(query, centres)

    def logits(self, features: Tensor, centres: Tensor) -> Tensor:
        """-(temperature / 2) |z - w_k|^2 without the term of z alone, [tasks, n, way]."""
        cross = features @ centres.mT
        return self.temperature * (cross - 0.5 * (centres * centres).sum(-1)[:, None])

    def descend(self, centres: Tensor, support: Tensor, query: Tensor, members: Tensor) -> Tensor:
        """Move the centres w [tasks, way, width] by Adam steps down the loss."""
        return minimise_adam(
            lambda w: self.slope(w, support, query, members),
            centres,
            learning_rate=self.learning_rate,
            n_steps=self.n_steps,
        )

    def slope(self, w: Tensor, support: Tensor, query: Tensor, members: Tensor) -> Tensor:
        """Gradient of the loss in the centres w, [tasks, way, width], in closed form."""
        l_ce, l_m, l_c = self.weights
        # Classes before samples, [T, K, n]: long rows are what a CPU is fast at.
        y = members.mT
        half = 0.5 * (w * w).sum(-1, keepdim=True)
        p_s = torch.softmax(self.temperature * (w @ support.mT - half), dim=1)
        p_q = torch.softmax(self.temperature * (w @ query.mT - half), dim=1)
        # Derivatives in the logits; for the queries through those in the probabilities.
        g_s = l_ce / y.sum((1, 2), keepdim=True) * (p_s * y.sum(1, keepdim=True) - y)
        marginal = entropy_slope(p_q.mean(2, keepdim=True), self.alpha)
        in_p = l_c * entropy_slope(p_q, self.alpha) - l_m * marginal
        g_q = p_q * (in_p - (p_q * in_p).sum(1, keepdim=True)) / query.shape[1]
        pull = torch.baddbmm(g_q @ query, g_s, support)
        return self.temperature * (pull - (g_s.sum(2) + g_q.sum(2))[..., None] * w)

    def alternate(self, w: Tensor, support: Tensor, query: Tensor, members: Tensor) -> Tensor:
        """TIM-ADM: closed-form updates of centres w and soft labels q in turn (their 3.2).

        With b = l_m / (l_m + 1), g = l_ce / (1 + l_c), r = n_support / n_query:
        q_ik ~ p_ik^(1 + l_c) / (sum_i p_ik^(1 + l_c))^b, rows normalised, and w_k =
        {g [sum_s y z + sum_s p (w - z)] + r [sum_q q z + sum_q p (w - z)]} / {g n_k + r sum_q q}.
        """
        l_ce, l_m, l_c = self.weights
        sharpness, balance, g = 1 + l_c, l_m / (l_m + 1), l_ce / (1 + l_c)
        r = (members.sum((1, 2)) / query.shape[1])[:, None, None]
        own = members.sum(-1, keepdim=True)  # [T, N_S, 1]
        for _ in range(self.n_iter):
            p_s = own * softmax(self.logits(support, w))
            log_p = sharpness * log_softmax(self.logits(query, w))
            q = softmax(log_p - balance * torch.logsumexp(log_p, dim=1, keepdim=True))
            p_q = torch.exp(log_p / sharpness)
            # sum_i a_ik z_i + p_ik (w_k - z_i) = sum_i (a_ik - p_ik) z_i + (sum_i p_ik) w_k
            moved = g * (members - p_s).mT @ support + r * (q - p_q).mT @ query
            kept = g * p_s.sum(1) + r[..., 0] * p_q.sum(1)
            mass = g * members.sum(1) + r[..., 0] * q.sum(1)
            w = (moved + kept[..., None] * w) / mass[..., None]
        return w


def entropy_slope(p: Tensor, alpha: float) -> Tensor:
    """Derivative of the entropy of p: Shannon's for alpha = 1, else that of the alpha-entropy."""
    if alpha == 1:
        return -(p + 1e-12).log() - 1
    return -alpha / (alpha - 1) * p ** (alpha - 1)


@register("alpha-tim")
@dataclass(kw_only=True, eq=False, repr=False)
class AlphaTIM(TIM):
    """TIM whose two entropies are alpha-entropies, which pull less towards equal class sizes.

    L = CE(supports) - H_a(mean p) + mean H_a(p), H_a(p) = (1 - sum_k p_k^a) / (a - 1) (Tsallis);
    the cross-entropy stays Shannon's and all three weights are one, as in the authors' settings for
    Dirichlet queries. Temperature, Adam and number of steps are TIM's.

    Args:
        alpha: kind of the entropies, above 1. The authors' settings are 2 for one shot and 7 for
            five shots and more.

    Example:
        >>> from fewview import AlphaTIM
        >>> clf = AlphaTIM(n_steps=50).fit([[1.0, 0.0], [0.0, 1.0]], ["x", "y"])
        >>> clf.predict([[3.0, 1.0], [2.0, 1.0], [1.0, 3.0]]).tolist()
        ['x', 'x', 'y']
    """

    solver: str = param("gd", among=("gd",))  # no closed form is known for another one
    temperature: float = param(15.0, tune=())
    weights: tuple[float, float, float] = param((1.0, 1.0, 1.0))
    alpha: float = param(2.0, above=1, tune=(2.0, 5.0, 7.0))  # type: ignore[misc]

    tags: ClassVar[Tags] = Tags(transductive=True, iterative=True)
