"""Anchor distribution self-rectification, and the classifier it gives.

The class centres of the latent anchors move to lower the cross-entropy of the anchors minus the
entropy of the queries' mean assignment. When the anchors are separable, and hundreds of anchors in
hundreds of dimensions are, this objective has no finite minimum: it falls towards -log K while the
centres grow, so every solver of it is a rule of early stopping. `rectify_fast` states its own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from fewview.numerics._optimise import FunctionAndGradient, minimise_adam, minimise_lbfgs
from fewview.numerics._softmax import log_softmax
from fewview.numerics._tensor_draws import normal, streams

TERMS = ("cross_entropy", "entropy")
GRADIENT = 1e-6  # the largest entry at which a search ends


def relation_logits(points: Tensor, centres: Tensor, logit_scale: float) -> Tensor:
    """Minus the squared distances |x - delta_c|^2 of Eq. 15 [eq:24], scaled: [tasks, n, K].

    A term of x alone is left out; no softmax over classes notices. The scale is 1 as printed, 0.5
    in the released code.
    """
    logits = points @ centres.transpose(1, 2) - 0.5 * (centres * centres).sum(-1)[:, None]
    return logits * (2 * logit_scale)


class Objective:
    """The objective L_ce - L_se of Eq. 21 [eq:31], and its gradient in the centres.

    Of anchors [tasks, M, L], their one-hot labels [tasks, M, K] and queries [tasks, N_Q, L];
    `terms` says which of `TERMS` are on.
    """

    def __init__(
        self,
        anchors: Tensor,
        members: Tensor,
        queries: Tensor,
        terms: tuple[str, ...],
        logit_scale: float,
    ) -> None:
        self.ce = "cross_entropy" in terms
        self.se = "entropy" in terms
        self.members = members
        self.n_anchors = anchors.shape[1] if self.ce else 0
        self.parts = ([anchors] if self.ce else []) + ([queries] if self.se else [])
        self.scale = logit_scale

    @cached_property
    def points(self) -> Tensor:
        """Anchors and queries, whichever count, [tasks, points, L]."""
        return torch.cat(self.parts, dim=1)

    @property
    def lowest(self) -> float:
        """The value that the objective cannot fall below: 0 - log K."""
        return -math.log(self.members.shape[-1]) if self.se else 0.0

    def enough(self, tolerance: float) -> float:
        """The value at which a search may stop; the entropy alone has a minimum that is reached."""
        return self.lowest + (tolerance if self.ce else min(tolerance, 1e-4))

    def of_logits(self, logits: Tensor, members: Tensor) -> tuple[Tensor, Tensor]:
        """Value [tasks] and its derivative in the logits [tasks, points, K]."""
        # Relation scores of anchors (alpha) and of queries (beta), Eq. 16 [eq:25].
        log_p = log_softmax(logits)
        p = log_p.exp()
        value = p.new_zeros(p.shape[0])
        slope = torch.empty_like(p)
        m = self.n_anchors
        if self.ce:  # L_ce, Eq. 17 [eq:26]
            value = value - (members * log_p[:, :m]).sum((1, 2)) / m
            slope[:, :m] = (p[:, :m] - members) / m
        if self.se:
            queries = p[:, m:]
            zeta = queries.mean(1)  # Eq. 19 [eq:30]
            log_zeta = zeta.clamp(min=torch.finfo(zeta.dtype).tiny).log()[:, None]
            value = value + (zeta * log_zeta[:, 0]).sum(-1)  # minus L_se, Eq. 20 [eq:29]
            average = (queries * log_zeta).sum(-1, keepdim=True)
            slope[:, m:] = queries * (log_zeta - average) / queries.shape[1]
        return value, slope

    def __call__(self, centres: Tensor) -> tuple[Tensor, Tensor]:
        """Value [tasks] and gradient [tasks, K, L] at centres [tasks, K, L]."""
        return self.at(centres, self.points, self.members)

    def at(self, centres: Tensor, points: Tensor, members: Tensor) -> tuple[Tensor, Tensor]:
        """The same of given points and members."""
        value, slope = self.of_logits(relation_logits(points, centres, self.scale), members)
        gradient = slope.transpose(1, 2) @ points - slope.sum(1)[..., None] * centres
        return value, gradient * (2 * self.scale)


def rectify_with_adam(objective: Objective, centres: Tensor, steps: int, rate: float) -> Tensor:
    """Take a fixed number of Adam steps, as the released code (1000 at rate 1e-2).

    Adam depends on the axes. The paper's latent axes come from random weights and mean nothing,
    while exact coordinates are ordered, so the steps are taken in randomly turned axes.
    """
    turn = random_rotation(centres.shape[-1], centres)

    def gradient(turned: Tensor) -> Tensor:
        return objective(turned @ turn)[1] @ turn.T

    out = minimise_adam(gradient, centres @ turn.T, learning_rate=rate, steps=steps)
    return out @ turn


def random_rotation(width: int, like: Tensor) -> Tensor:
    """One fixed random orthogonal matrix [width, width] on the device and dtype of `like`."""
    seed = torch.zeros(1, dtype=torch.int64)
    gauss = normal(streams(seed, "rotation", width), (width, width), torch.float64)[0]
    q, r = torch.linalg.qr(gauss)
    turn: Tensor = (q * r.diagonal().sign()).to(device=like.device, dtype=like.dtype)
    return turn


@dataclass(frozen=True)
class LinearClassifier:
    """Logits (x - middle) . w_c + b_c."""

    weights: Tensor  # [tasks, K, L]
    offsets: Tensor  # [tasks, K]
    middle: Tensor  # [tasks, 1, L]

    def __call__(self, points: Tensor) -> Tensor:
        """Logits [tasks, N, K] of points [tasks, N, L]."""
        centred = (points - self.middle).to(self.weights.dtype)
        logits: Tensor = centred @ self.weights.transpose(1, 2) + self.offsets[:, None]
        return logits.to(points.dtype)


def rectify_fast(objective: Objective, centres: Tensor, tolerance: float, max_iter: int) -> Tensor:
    """Minimise from some centres until a task's objective is within `tolerance` of its infimum.

    Where anchors cannot be told apart, the gradient or the number of iterations decides.
    """
    fit, double = fit_classifier(objective, centres, tolerance, max_iter), 2 * objective.scale
    near = (centres - fit.middle).mean(1, keepdim=True)
    found = centres_of(fit.weights / double, fit.offsets / double, near) + fit.middle
    return found.to(centres.dtype)


def fit_classifier(
    objective: Objective, centres: Tensor, tolerance: float, max_iter: int
) -> LinearClassifier:
    """Run the search of `rectify_fast`; the classifier that its centres give.

    Scores by distance to K centres are a linear classifier, x . w_c + b_c, whose offsets are tied
    to the weights. In K - 1 or more dimensions the tie costs nothing: moving all centres together
    reaches any offsets. So the search runs over weights and free offsets, where the cross-entropy
    is convex; `centres_of` recovers the centres. L-BFGS does not depend on the axes. Where there
    are more than twice as many anchors as dimensions, points are whitened first. Below that, points
    in general position can be told apart whatever their labels (Cover 1965): every solver stops
    early there, and whitening would only speed up the fit of noise. In fewer than K - 1 dimensions
    the centres themselves are moved.

    Queries are better scored by the classifier than by the distances: of classes that lie close
    together the centres end far away, and their squared lengths swallow the digits that matter.
    """
    if centres.shape[2] < centres.shape[1] - 1:
        return _fit_few_dimensions(objective, centres, tolerance, max_iter)
    scale, size = objective.scale, sum(part.shape[1] for part in objective.parts)
    width = centres.shape[2]
    x = centres.new_empty(len(centres), size, width + 1)
    x[..., width] = 1.0  # for the offsets
    inside = x[..., :width]
    torch.cat(objective.parts, dim=1, out=inside)
    middle = inside.mean(1, keepdim=True)
    inside -= middle
    unwhite = None
    if objective.members.shape[1] > 2 * x.shape[2]:
        covariance = inside.transpose(1, 2) @ inside / x.shape[1]
        trace = covariance.diagonal(dim1=1, dim2=2).sum(-1)[:, None, None]
        eye = torch.eye(width, dtype=x.dtype, device=x.device)
        floor = 0.001 * trace + torch.finfo(x.dtype).tiny
        white = torch.linalg.cholesky(covariance + floor * eye)  # lower
        # An inverse of a small matrix and a product: a fifth of the time of solving for points.
        unwhite = torch.linalg.solve_triangular(white, eye.expand_as(white), upper=False)
        inside.copy_(inside @ unwhite.mT)

    shifted = centres - middle
    offsets = -scale * (shifted * shifted).sum(-1)
    weights = 2 * scale * shifted
    turned = weights if unwhite is None else weights @ white
    start = torch.cat([turned, (offsets - offsets.mean(1, True))[..., None]], dim=-1)

    def function_and_gradient(theta: Tensor, x: Tensor, classes: Tensor) -> tuple[Tensor, Tensor]:
        value, slope = objective.of_logits(x @ theta.transpose(1, 2), classes.mT)
        return value, slope.transpose(1, 2) @ x

    enough = objective.enough(tolerance)
    theta = _descend(
        function_and_gradient, start, (x, objective.members.mT.contiguous()), enough, max_iter
    )
    weights, offsets = theta[..., :-1], theta[..., -1]
    if unwhite is not None:
        weights = weights @ unwhite
    return LinearClassifier(weights, offsets, middle)


def _descend(
    function: FunctionAndGradient,
    start: Tensor,
    given: tuple[Tensor, ...],
    enough: float,
    max_iter: int,
) -> Tensor:
    # Gradients say nothing of how far there is to go: where latent distances are long, all scores
    # are near 0 or 1 and every gradient is small from the start.
    return minimise_lbfgs(
        function, start, *given, max_iter=max_iter, max_search=10, tol=GRADIENT, enough=enough
    )


def _fit_few_dimensions(
    objective: Objective, centres: Tensor, tolerance: float, max_iter: int
) -> LinearClassifier:
    """Move the centres, in float64: so few dimensions are cheap and the problem is not convex."""
    middle = objective.points.mean(1, keepdim=True)
    given = (objective.points - middle).double(), objective.members.double()
    start = (centres - middle).double()
    found = _descend(objective.at, start, given, objective.enough(tolerance), max_iter)
    offsets = -objective.scale * (found * found).sum(-1)
    return LinearClassifier(2 * objective.scale * found, offsets, middle)


def centres_of(weights: Tensor, offsets: Tensor, near: Tensor) -> Tensor:
    """Centres whose distances give the same classifier as x . w_c + b_c.

    With c_k = w_k - mean w + near + v, -|x - c_k|^2 / 2 differs from x . w_k + b_k by a term of x
    alone when w_k . v + b_k + |w_k - mean w + near|^2 / 2 is the same for all k, which the
    shortest such v achieves; there is one where the w_k span K - 1 dimensions.
    """
    spread = weights - weights.mean(1, keepdim=True)
    placed = spread + near
    wanted = -(offsets + 0.5 * (placed * placed).sum(-1))
    wanted = (wanted - wanted.mean(1, keepdim=True)).double()
    gram = (spread @ spread.transpose(1, 2)).double()
    solved = torch.linalg.pinv(gram, hermitian=True, rtol=1e-10) @ wanted[..., None]
    out: Tensor = placed + solved.to(weights.dtype).transpose(1, 2) @ spread
    return out
