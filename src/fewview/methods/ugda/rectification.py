"""Anchor distribution self-rectification (Eqs. 14 to 23) and the classifier it gives (24 to 26).

The class centres of the latent anchors move to lower the cross-entropy of the anchors minus the
entropy of the queries' mean assignment. When the anchors are separable, and hundreds of anchors in
hundreds of dimensions are, this objective has no finite minimum: it falls towards -log K while the
centres grow, so every solver of it is a rule of early stopping. `rectify_fast` states its own.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fewview.methods.optimise import minimise_adam, minimise_lbfgs

TERMS = ("cross_entropy", "entropy")


def class_centres(anchors: Tensor, members: Tensor) -> Tensor:
    """Central anchors, Eq. 14 [eq:23]: [tasks, K, L].

    Args:
        anchors: [tasks, M, L].
        members: [tasks, M, K], one-hot.
    """
    return members.transpose(1, 2) @ anchors / members.sum(1)[..., None]


class Objective:
    """The objective of Eq. 21 [eq:31], L_ce - L_se, and its gradient in the centres.

    Args:
        anchors: [tasks, M, L].
        members: [tasks, M, K], one-hot.
        queries: [tasks, N_Q, L].
        terms: which of `TERMS` are on.
        logit_scale: relation scores are softmax(-logit_scale * squared distance): 1 as printed in
            Eq. 16 [eq:25], 0.5 in the released code.
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
        parts = ([anchors] if self.ce else []) + ([queries] if self.se else [])
        self.points = torch.cat(parts, dim=1) if parts else anchors[:, :0]
        self.scale = logit_scale

    @property
    def lowest(self) -> float:
        """The value that the objective cannot fall below: 0 - log K."""
        return -math.log(self.members.shape[-1]) if self.se else 0.0

    def __call__(self, centres: Tensor) -> tuple[Tensor, Tensor]:
        """Value [tasks] and gradient [tasks, K, L]."""
        # -|x - c|^2 without |x|^2, which is the same for all classes; Eqs. 15, 16 [eq:24, eq:25].
        logits = self.points @ centres.transpose(1, 2)
        logits = (logits - 0.5 * (centres * centres).sum(-1)[:, None]) * (2 * self.scale)
        log_p = torch.log_softmax(logits, dim=-1)
        p = log_p.exp()
        value = centres.new_zeros(centres.shape[0])
        slope = torch.empty_like(p)  # derivative in the logits
        m = self.n_anchors
        if self.ce:  # Eq. 17 [eq:26]
            value = value - (self.members * log_p[:, :m]).sum((1, 2)) / m
            slope[:, :m] = (p[:, :m] - self.members) / m
        if self.se:  # minus Eq. 20 [eq:29], with Eq. 19 [eq:30]
            queries = p[:, m:]
            zeta = queries.mean(1)
            log_zeta = zeta.clamp(min=torch.finfo(zeta.dtype).tiny).log()[:, None]
            value = value + (zeta * log_zeta[:, 0]).sum(-1)
            average = (queries * log_zeta).sum(-1, keepdim=True)
            slope[:, m:] = queries * (log_zeta - average) / max(queries.shape[1], 1)
        gradient = slope.transpose(1, 2) @ self.points - slope.sum(1)[..., None] * centres
        return value, gradient * (2 * self.scale)


def rectify_with_adam(objective: Objective, centres: Tensor, steps: int, rate: float) -> Tensor:
    """Take a fixed number of Adam steps, as the released code (1000 at rate 1e-2)."""
    return minimise_adam(lambda c: objective(c)[1], centres, learning_rate=rate, steps=steps)


def rectify_fast(objective: Objective, centres: Tensor, tolerance: float, max_iter: int) -> Tensor:
    """Minimise by L-BFGS until a task's objective is within `tolerance` of its lowest value.

    Where the anchors are not separable, the objective stays above that and the gradient decides.
    """
    return minimise_lbfgs(
        objective, centres, max_iter=max_iter, enough=objective.lowest + tolerance
    )


def rectify_anchors(anchors: Tensor, labels: Tensor, before: Tensor, after: Tensor) -> Tensor:
    """Shift every anchor by the offset of its class, Eqs. 22 and 23 [eq:33, eq:34].

    Args:
        anchors: [tasks, M, L].
        labels: int64 [tasks, M].
        before: centres [tasks, K, L].
        after: rectified centres [tasks, K, L].
    """
    offset = after - before
    return anchors + offset.gather(1, labels[..., None].expand(-1, -1, anchors.shape[-1]))


def classify(queries: Tensor, weights: Tensor, logit_scale: float) -> Tensor:
    """Log-probabilities up to a constant, Eqs. 25 and 26 [eq:36]: [tasks, N_Q, K].

    Args:
        queries: [tasks, N_Q, L].
        weights: classifier weights, the mean of the rectified anchors of every class (Eq. 24
            [eq:35]), which is the rectified centre; [tasks, K, L].
        logit_scale: see `Objective`.
    """
    logits = queries @ weights.transpose(1, 2) - 0.5 * (weights * weights).sum(-1)[:, None]
    return logits * (2 * logit_scale)
