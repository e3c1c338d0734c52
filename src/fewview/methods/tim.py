"""TIM: transductive information maximisation (Boudiaf et al. 2020), by gradient steps or by ADM.

And alpha-TIM, the same with alpha-entropies for unbalanced queries (Veilleux et al. 2021).
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from fewview.engine._contract import TUNED
from fewview.engine._method import Method
from fewview.engine._parameters import choose
from fewview.engine._registry import register
from fewview.engine._state import State, Tags
from fewview.ground._errors import FewviewError
from fewview.numerics._batch import CACHED, EpisodeBatch
from fewview.numerics._distances import class_means, isometric, unit_rows
from fewview.numerics._optimise import minimise_adam
from fewview.numerics._softmax import log_softmax, softmax

SOLVERS = ("gd", "adm")
Weights = tuple[float, float, float]


def logits(features: Tensor, centres: Tensor, temperature: float) -> Tensor:
    """-(temperature / 2) |z - w_k|^2 without the term of z alone, [tasks, n, way]."""
    cross = features @ centres.transpose(1, 2)
    return temperature * (cross - 0.5 * (centres * centres).sum(-1)[:, None])


def entropy_slope(p: Tensor, alpha: float) -> Tensor:
    """Derivative of the entropy of p: Shannon's for alpha = 1, else that of the alpha-entropy.

    H_alpha(p) = (1 - sum_k p_k^alpha) / (alpha - 1) (Tsallis).
    """
    if alpha == 1:
        return -(p + 1e-12).log() - 1
    return -alpha / (alpha - 1) * p ** (alpha - 1)


def objective_slope(
    centres: Tensor,
    support: Tensor,
    query: Tensor,
    members: Tensor,
    *,
    temperature: float,
    weights: Weights,
    alpha: float = 1.0,
) -> Tensor:
    """Gradient in the centres of TIM's loss, [tasks, way, width], in closed form.

    L = l_ce CE(supports) - l_m H(mean_q p_q) + l_c mean_q H(p_q), (l_ce, l_m, l_c) = `weights`, of
    centres w [tasks, way, width] and samples z [tasks, n, width].
    """
    # Classes before samples, [T, K, n]: long rows are what a CPU is fast at.
    y = members.transpose(1, 2)
    half = 0.5 * (centres * centres).sum(-1, keepdim=True)
    p_s = torch.softmax(temperature * (centres @ support.transpose(1, 2) - half), dim=1)
    p_q = torch.softmax(temperature * (centres @ query.transpose(1, 2) - half), dim=1)
    # Derivatives in the logits; for the queries through those in the probabilities.
    g_s = weights[0] / y.sum((1, 2), keepdim=True) * (p_s * y.sum(1, keepdim=True) - y)
    marginal = entropy_slope(p_q.mean(2, keepdim=True), alpha)
    in_p = weights[2] * entropy_slope(p_q, alpha) - weights[1] * marginal
    g_q = p_q * (in_p - (p_q * in_p).sum(1, keepdim=True)) / query.shape[1]
    pull = torch.baddbmm(g_q @ query, g_s, support)
    return temperature * (pull - (g_s.sum(2) + g_q.sum(2))[..., None] * centres)


def alternate(
    support: Tensor,
    query: Tensor,
    members: Tensor,
    *,
    temperature: float = 15.0,
    weights: Weights = (0.1, 1.0, 0.1),
    n_iter: int = 150,
) -> tuple[Tensor, Tensor]:
    """TIM-ADM: closed-form updates of centres w and soft labels q in turn (Boudiaf et al., 3.2).

    With a = l_c, b = l_m / (l_m + 1), g = l_ce / (1 + l_c), r = n_support / n_query:
    q_ik ~ p_ik^(1+a) / (sum_i p_ik^(1+a))^b, rows normalised, and
    w_k = {g [sum_s y z + sum_s p (w - z)] + r [sum_q q z + sum_q p (w - z)]} / {g n_k + r sum_q q}.
    w is [tasks, way, width], q [tasks, n_query, way].
    """
    sharpness, balance = 1 + weights[2], weights[1] / (weights[1] + 1)
    ratio = (members.sum((1, 2)) / query.shape[1])[:, None, None]
    factor = weights[0] / (1 + weights[2])
    own = members.sum(-1, keepdim=True)  # [T, N_S, 1]
    centres = class_means(support, members)
    q = members.new_zeros(*query.shape[:2], members.shape[2])
    for _ in range(n_iter):
        p_s = own * softmax(logits(support, centres, temperature))
        log_p = sharpness * log_softmax(logits(query, centres, temperature))
        q = softmax(log_p - balance * torch.logsumexp(log_p, dim=1, keepdim=True))
        p_q = torch.exp(log_p / sharpness)
        # sum_i a_ik z_i + p_ik (w_k - z_i) = sum_i (a_ik - p_ik) z_i + (sum_i p_ik) w_k
        moved = factor * (members - p_s).transpose(1, 2) @ support
        moved = moved + ratio * (q - p_q).transpose(1, 2) @ query
        kept = factor * p_s.sum(1) + ratio[..., 0] * p_q.sum(1)
        mass = factor * members.sum(1) + ratio[..., 0] * q.sum(1)
        centres = (moved + kept[..., None] * centres) / mass[..., None]
    return centres, q


@register("tim-adm", solver="adm", scaling="by-width")
@register("tim")
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
        steps: Adam steps (1000 in the published scripts).
        adm_steps: rounds of `"adm"` (150 in the published code).
        reduce: whether `"gd"` works in as many dimensions as samples. It is faster where views
            are wide, but Adam is not invariant to rotations, so the run is a different one.

    Example:
        >>> from fewview.methods.tim import TIM
        >>> clf = TIM(solver="adm").fit([[1.0, 0.0], [0.0, 1.0]], ["x", "y"])
        >>> clf.predict([[3.0, 1.0], [1.0, 4.0], [2.0, 1.0], [1.0, 3.0]]).tolist()
        ['x', 'y', 'x', 'y']
    """

    solver: str = "gd"
    temperature: float = 15.0
    weights: tuple[float, float, float] = (0.1, 1.0, 0.1)
    learning_rate: float = 1e-4
    steps: int = 1000
    adm_steps: int = 150
    reduce: bool = False

    tags: ClassVar[Tags] = Tags(transductive=True, assumes_balance=True, iterative=True)
    tune_grid: ClassVar[dict[str, Any]] = {**TUNED, "temperature": (5.0, 15.0, 45.0)}
    paper_settings: ClassVar[dict[str, str]] = {"scaling": "scale", "padding": "zero"}
    # Kind of the entropies, see `entropy_slope`; alpha-TIM makes it a parameter.
    alpha: ClassVar[float] = 1.0

    def validate(self) -> None:
        """Check the solver."""
        super().validate()
        choose("solver", self.solver, SOLVERS)

    @property
    def rows_in_cache(self) -> int:
        """A thousand steps of gradient descent read all features again."""
        return 0 if self.solver == "adm" else CACHED

    def scores(self, batch: EpisodeBatch, state: State) -> Tensor:
        """Logits of the queries under the adapted centres."""
        support, query = (unit_rows(part) for part in batch.concatenated())
        if self.reduce or self.solver == "adm":
            support, query = isometric(support, query)
        members = batch.one_hot()
        centres = class_means(support, members)
        if batch.n_query > 1:
            centres = self.adapt(centres, support, query, members)
        return logits(query, centres, self.temperature)

    def adapt(self, centres: Tensor, support: Tensor, query: Tensor, members: Tensor) -> Tensor:
        """Move the centres, [tasks, way, width], by the chosen solver."""
        kind: dict[str, Any] = {"temperature": self.temperature, "weights": self.weights}
        if self.solver == "adm":
            return alternate(support, query, members, n_iter=self.adm_steps, **kind)[0]

        def slope(x: Tensor) -> Tensor:
            return objective_slope(x, support, query, members, alpha=self.alpha, **kind)

        return minimise_adam(slope, centres, learning_rate=self.learning_rate, steps=self.steps)


@register("alpha-tim")
class AlphaTIM(TIM):
    """TIM whose two entropies are alpha-entropies, which pull less towards equal class sizes.

    L = CE(supports) - H_a(mean p) + mean H_a(p) with H_a(p) = (1 - sum_k p_k^a) / (a - 1); the
    cross-entropy stays Shannon's and all three weights are one, as in the authors' settings for
    Dirichlet queries. Temperature, Adam and number of steps are TIM's.

    Args:
        alpha: kind of the entropies, above 1. The authors' settings are 2 for one shot and 7 for
            five shots and more.

    Example:
        >>> from fewview.methods.tim import AlphaTIM
        >>> clf = AlphaTIM(steps=50).fit([[1.0, 0.0], [0.0, 1.0]], ["x", "y"])
        >>> clf.predict([[3.0, 1.0], [2.0, 1.0], [1.0, 3.0]]).tolist()
        ['x', 'x', 'y']
    """

    weights: tuple[float, float, float] = (1.0, 1.0, 1.0)
    alpha: float = 2.0  # type: ignore[misc]

    tags: ClassVar[Tags] = Tags(transductive=True, iterative=True)
    tune_grid: ClassVar[dict[str, Any]] = {**TUNED, "alpha": (2.0, 5.0, 7.0)}

    def validate(self) -> None:
        """Check alpha and the solver."""
        super().validate()
        if not self.alpha > 1:
            raise FewviewError(f"alpha is {self.alpha}; it must be above 1 (use TIM for 1)")
        if self.solver != "gd":
            raise FewviewError("alpha-TIM has closed-form updates for no solver but 'gd'")
