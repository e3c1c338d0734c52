"""Anchor distribution self-rectification, and the classifier it gives.

The class centres of the latent anchors move to lower the cross-entropy of the anchors minus the
entropy of the queries' mean assignment. When the anchors are separable, and hundreds of anchors in
hundreds of dimensions are, this objective has no finite minimum: it falls towards -log K while the
centres grow, so every solver of it is a rule of early stopping. `fit_classifier` states its own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fewview.numerics.adam import minimise_adam
from fewview.numerics.lbfgs import minimise_lbfgs
from fewview.numerics.softmax import log_softmax
from fewview.numerics.tensor_random import normal, streams

TERMS = ("cross_entropy", "entropy")
# Gradients say nothing of how far there is to go: where latent distances are long, all scores are
# near 0 or 1 and every gradient is small from the start.
SEARCH: dict[str, Any] = {"tol": 1e-6, "max_search": 10}


def distance_logits(points: Tensor, centres: Tensor, temperature: float) -> Tensor:
    """Minus the squared distances |x - delta_c|^2 of Eq. 15 [eq:24], scaled: [tasks, n, K].

    A term of x alone is left out; no softmax over classes notices. The temperature is 1 as printed,
    0.5 in the released code.
    """
    logits = points @ centres.mT - 0.5 * (centres * centres).sum(-1)[:, None]
    return logits * (2 * temperature)


@dataclass(frozen=True)
class Objective:
    """The objective L_ce - L_se of Eq. 21 [eq:31], and its gradient in the centres."""

    anchors: Tensor  # [tasks, M, L]
    members: Tensor  # their one-hot labels [tasks, M, K]
    queries: Tensor  # [tasks, N_Q, L]
    terms: tuple[str, ...]  # those of `TERMS` that are on
    temperature: float

    @property
    def points(self) -> Tensor:
        """Anchors and queries, whichever count, [tasks, points, L]."""
        both = zip(TERMS, (self.anchors, self.queries), strict=True)
        return torch.cat([part for term, part in both if term in self.terms], dim=1)

    def floor(self, tol: float) -> float:
        """The value at which a search may stop; with `tol=0` the infimum, 0 - log K.

        The entropy alone has a minimum that is reached.
        """
        infimum = -math.log(self.members.shape[-1]) if "entropy" in self.terms else 0.0
        return infimum + (tol if "cross_entropy" in self.terms else min(tol, 1e-4))

    def at(self, centres: Tensor, points: Tensor, members: Tensor) -> tuple[Tensor, Tensor]:
        """Value [tasks] and gradient [tasks, K, L] at centres [tasks, K, L] of these tasks."""
        logits = distance_logits(points, centres, self.temperature)
        value, slope = self.of_logits(logits, members)
        gradient = slope.mT @ points - slope.sum(1)[..., None] * centres
        return value, gradient * (2 * self.temperature)

    def of_logits(self, logits: Tensor, members: Tensor) -> tuple[Tensor, Tensor]:
        """Value [tasks] and its derivative in the logits [tasks, points, K]."""
        # Relation scores of anchors (alpha) and of queries (beta), Eq. 16 [eq:25].
        log_p = log_softmax(logits)
        p = log_p.exp()
        value, slope, m = p.new_zeros(len(p)), torch.empty_like(p), 0
        if "cross_entropy" in self.terms:  # L_ce, Eq. 17 [eq:26]
            m = members.shape[1]
            value = value - (members * log_p[:, :m]).sum((1, 2)) / m
            slope[:, :m] = (p[:, :m] - members) / m
        if "entropy" in self.terms:
            queries = p[:, m:]
            zeta = queries.mean(1)  # Eq. 19 [eq:30]
            log_zeta = zeta.clamp(min=torch.finfo(zeta.dtype).tiny).log()[:, None]
            value = value + (zeta * log_zeta[:, 0]).sum(-1)  # minus L_se, Eq. 20 [eq:29]
            average = (queries * log_zeta).sum(-1, keepdim=True)
            slope[:, m:] = queries * (log_zeta - average) / queries.shape[1]
        return value, slope


@dataclass(frozen=True)
class LinearClassifier:
    """Logits (x - middle) . w_c + b_c."""

    weights: Tensor  # [tasks, K, L]
    offsets: Tensor  # [tasks, K]
    middle: Tensor  # [tasks, 1, L]

    def __call__(self, points: Tensor) -> Tensor:
        """Logits [tasks, N, K] of points [tasks, N, L]."""
        centred = (points - self.middle).to(self.weights.dtype)
        logits: Tensor = centred @ self.weights.mT + self.offsets[:, None]
        return logits.to(points.dtype)


def fit_classifier(
    objective: Objective, centres: Tensor, tol: float, max_iter: int
) -> LinearClassifier:
    """Minimise from centres [tasks, K, L] until a task's objective is within `tol` of its infimum.

    Where anchors cannot be told apart, the gradient or the number of iterations decides.

    Scores by distance to K centres are a linear classifier whose offsets are tied to the weights.
    In K - 1 or more dimensions the tie costs nothing: moving all centres together reaches any
    offsets. So the search runs over weights and free offsets, where the cross-entropy is convex;
    `centres_of` recovers the centres. Queries are better scored by the classifier: of classes that
    lie close together the centres end far away, and their squared lengths swallow the digits.
    """
    points, temperature = objective.points, objective.temperature
    middle = points.mean(1, keepdim=True)
    points, shifted = points - middle, centres - middle
    floor, width = objective.floor(tol), centres.shape[2]
    if width < centres.shape[1] - 1:
        # The centres themselves, in float64: so few dimensions are cheap, and it is not convex.
        given = points.double(), objective.members.double()
        found = minimise_lbfgs(
            objective.at, shifted.double(), *given, max_iter=max_iter, floor=floor, **SEARCH
        )
        offsets = -temperature * (found * found).sum(-1)
        return LinearClassifier(2 * temperature * found, offsets, middle)
    offsets = -temperature * (shifted * shifted).sum(-1)
    weights, unwhite = 2 * temperature * shifted, None
    # Below that, points in general position can be told apart whatever their labels (Cover 1965):
    # every solver stops early there, and whitening would only speed up the fit of noise.
    if objective.members.shape[1] > 2 * (width + 1):
        white, unwhite = _whitening(points)
        points, weights = points @ unwhite.mT, weights @ white
    x = torch.cat([points, torch.ones_like(points[..., :1])], dim=-1)
    start = torch.cat([weights, (offsets - offsets.mean(1, True))[..., None]], dim=-1)

    def function(theta: Tensor, x: Tensor, classes: Tensor) -> tuple[Tensor, Tensor]:
        value, slope = objective.of_logits(x @ theta.mT, classes.mT)
        return value, slope.mT @ x

    given = x, objective.members.mT.contiguous()
    theta = minimise_lbfgs(function, start, *given, max_iter=max_iter, floor=floor, **SEARCH)
    weights, offsets = theta[..., :-1], theta[..., -1]
    return LinearClassifier(weights if unwhite is None else weights @ unwhite, offsets, middle)


def _whitening(points: Tensor) -> tuple[Tensor, Tensor]:
    """A root of the covariance of centred points, [tasks, L, L], and its inverse."""
    covariance = points.mT @ points / points.shape[1]
    trace = covariance.diagonal(dim1=1, dim2=2).sum(-1)[:, None, None]
    eye = torch.eye(points.shape[2], dtype=points.dtype, device=points.device)
    ridge = 0.001 * trace + torch.finfo(points.dtype).tiny
    white = torch.linalg.cholesky(covariance + ridge * eye)  # lower
    # An inverse of a small matrix and a product: a fifth of the time of solving for points.
    return white, torch.linalg.solve_triangular(white, eye.expand_as(white), upper=False)


def rectify_with_lbfgs(objective: Objective, centres: Tensor, tol: float, max_iter: int) -> Tensor:
    """The centres [tasks, K, L] of the classifier that `fit_classifier` finds."""
    fit, double = fit_classifier(objective, centres, tol, max_iter), 2 * objective.temperature
    near = (centres - fit.middle).mean(1, keepdim=True)
    found = centres_of(fit.weights / double, fit.offsets / double, near) + fit.middle
    return found.to(centres.dtype)


def centres_of(weights: Tensor, offsets: Tensor, near: Tensor) -> Tensor:
    """Centres [tasks, K, L] whose distances give the same classifier as x . w_c + b_c.

    With c_k = w_k - mean w + near + v, -|x - c_k|^2 / 2 differs from x . w_k + b_k by a term of x
    alone when w_k . v + b_k + |w_k - mean w + near|^2 / 2 is the same for all k, which the
    shortest such v achieves; there is one where the w_k span K - 1 dimensions.
    """
    spread = weights - weights.mean(1, keepdim=True)
    placed = spread + near
    wanted = -(offsets + 0.5 * (placed * placed).sum(-1))
    wanted = (wanted - wanted.mean(1, keepdim=True)).double()
    gram = (spread @ spread.mT).double()
    solved = torch.linalg.pinv(gram, hermitian=True, rtol=1e-10) @ wanted[..., None]
    out: Tensor = placed + solved.to(weights.dtype).mT @ spread
    return out


def rectify_with_adam(objective: Objective, centres: Tensor, n_steps: int, rate: float) -> Tensor:
    """Take a fixed number of Adam steps, as the released code (1000 at rate 1e-2).

    Adam depends on the axes. The paper's latent axes come from random weights and mean nothing,
    while exact coordinates are ordered, so the steps are taken in randomly turned axes.
    """
    width, seed = centres.shape[-1], torch.zeros(1, dtype=torch.int64)
    gauss = normal(streams(seed, "rotation", width), (width, width), torch.float64)[0]
    q, r = torch.linalg.qr(gauss)
    turn: Tensor = (q * r.diagonal().sign()).to(centres)  # one fixed random orthogonal matrix
    points = objective.points

    def gradient(turned: Tensor) -> Tensor:
        return objective.at(turned @ turn, points, objective.members)[1] @ turn.T

    start = centres @ turn.T
    return minimise_adam(gradient, start, learning_rate=rate, n_steps=n_steps) @ turn
