"""Queries of many tasks scored under fixed settings: alone first, then together, round by round.

The mathematics of one score is in `_model.py`; here is the order in which scores are used.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fewview.engine._state import State
from fewview.methods.marginal._covariances import Moments
from fewview.methods.marginal._model import (
    Evidence,
    Gaussians,
    Kept,
    filled_in,
    gather_evidence,
    posterior,
    predictive_scores,
    variational_scores,
)
from fewview.methods.marginal._projection import Projection
from fewview.methods.marginal._settings import Settings
from fewview.numerics._batch import EpisodeBatch
from fewview.numerics._sinkhorn import balanced_softmax

# Share of the rounds over which the temperature rises to its full value.
RISE = 0.3
# A task has settled when no responsibility changes by more than this; on base classes smaller
# values change accuracy by less than 0.1 points.
SETTLED = 0.1
# Error of class masses (of their logarithms) that is good enough before the last round.
LOOSE = 1e-3


@dataclass(frozen=True)
class MarginalState(State):
    """What Marginal learnt from base classes.

    Attributes:
        projection: preprocessing of every view.
        model: mean and covariances.
        settings: with which queries are scored.
    """

    projection: Projection
    model: Gaussians
    settings: Settings


@dataclass(frozen=True)
class Rule:
    """How queries are scored whatever the settings; see the parameters of `Marginal`."""

    scoring: str
    transductive: bool
    n_iter: int
    rank: int | None
    structure: str


def restructured(moments: Moments, settings: Settings, structure: str) -> Gaussians:
    """Shrink the covariances, and take away what an ablation leaves out."""
    model = moments.shrunk(settings.shrinkage, settings.prior, settings.prior_detail)
    if structure in ("full", "imputed"):
        return model
    within, between = model.within, model.between
    if structure == "no between":
        between = torch.diag(10 * moments.block_means(moments.total).clamp(min=1e-12))
    elif structure == "diagonal":
        within = torch.diag(within.diagonal())
    else:
        widths = torch.tensor(model.dims)
        view = torch.arange(len(widths)).repeat_interleave(widths)
        same_view = view[:, None] == view
        within, between = within * same_view, between * same_view
    return replace(model, within=within, between=between)


def evidence_of(
    batch: EpisodeBatch, state: MarginalState, rule: Rule, kept: Kept | None = None
) -> Evidence:
    """What the samples of some scaled tasks say about class means."""
    support = state.projection.apply(batch.support, batch.support_mask)
    query = state.projection.apply(batch.query, batch.query_mask)
    support_mask, query_mask = batch.support_mask, batch.query_mask
    if rule.structure == "imputed":
        support = filled_in(state.model, support, support_mask)
        query = filled_in(state.model, query, query_mask)
        support_mask, query_mask = torch.ones_like(support_mask), torch.ones_like(query_mask)
    return gather_evidence(state.model, support, query, support_mask, query_mask, rule.rank, kept)


def score_alone(
    batch: EpisodeBatch, state: MarginalState, rule: Rule, kept: Kept | None = None
) -> tuple[Evidence, Tensor, Tensor]:
    """What the samples say, supports' weights, and the scores of every query by itself."""
    evidence, members = evidence_of(batch, state, rule, kept), batch.one_hot()
    if rule.scoring == "predictive":
        return evidence, members, predictive_scores(evidence, members)
    return evidence, members, variational_scores(evidence, posterior(evidence, members))


def score_together(
    evidence: Evidence, members: Tensor, scores: Tensor, settings: Settings, rule: Rule
) -> Tensor:
    """Use the queries together where that is wanted and possible; calibrate."""
    if not rule.transductive or scores.shape[1] == 1 or rule.n_iter == 0:
        return settings.calibration * scores
    scores = _rounds(evidence, members, scores, settings, rule.n_iter)
    log_r, _ = balanced_softmax(settings.temperature * scores, settings.balance)
    return settings.calibration * log_r


def _rounds(
    evidence: Evidence, members: Tensor, scores: Tensor, settings: Settings, n_iter: int
) -> Tensor:
    """Rounds of expectation maximisation; a task stops when its queries have settled."""
    out = scores.clone()
    open_tasks = torch.arange(len(out), device=out.device)
    before, potentials = torch.zeros_like(scores), scores.new_zeros(len(out), out.shape[2])
    for index in range(n_iter):
        done = min(1.0, index / (RISE * n_iter))
        factor = settings.temperature * (settings.anneal + (1 - settings.anneal) * done)
        log_r, potentials = balanced_softmax(
            factor * scores, settings.balance, start=potentials, tol=LOOSE
        )
        r = log_r.exp()
        moving = (r - before).abs().amax((1, 2)) > SETTLED
        if done == 1.0 and not bool(moving.all()):
            open_tasks, r, potentials = open_tasks[moving], r[moving], potentials[moving]
            evidence, members = evidence.tasks(moving), members[moving]
            if not len(open_tasks):
                break
        scores = variational_scores(evidence, posterior(evidence, members, r))
        out[open_tasks], before = scores, r
    return out
