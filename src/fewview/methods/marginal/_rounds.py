"""Queries of many tasks scored under fixed settings: alone first, then together, round by round.

The mathematics of one score is in `_model.py`; here is the order in which scores are used.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from fewview.engine._state import State
from fewview.methods.marginal._covariances import Moments
from fewview.methods.marginal._empty_cells import fill_cells, has_empty_cells, see_cells
from fewview.methods.marginal._model import (
    Evidence,
    Gaussians,
    Kept,
    about_the_task,
    filled_in,
    gather_evidence,
    posterior,
    predictive_scores,
    variational_scores,
)
from fewview.methods.marginal._outside import LeftOver, Profile, find_outside, leave_over
from fewview.methods.marginal._projection import Projection
from fewview.methods.marginal._remainder import Remainder
from fewview.methods.marginal._settings import Settings
from fewview.numerics._again import Again
from fewview.numerics._batch import EpisodeBatch
from fewview.numerics._sinkhorn import PATIENCE, balanced_softmax
from fewview.numerics._softmax import log_softmax, softmax

# Share of the rounds over which the temperature rises to its full value.
RISE = 0.3
# Numbers in the covariances of a round up to which a GPU plays it again: more cost it more than
# their launches.
PLAYED = 1 << 26
# A task has settled when no responsibility changes by more than this; on base classes smaller
# values change accuracy by less than 0.1 points.
SETTLED = 0.1
# Error of class masses (of their logarithms) that is good enough before the last round.
LOOSE = 1e-3
# Two explanations of the queries are weighed in every task: class masses pulled this hard towards
# equal ones, and shares learnt from the queries, with so many more queries in every class. The
# second counts sigmoid(EVIDENCE log evidence ratio). To the bound of either is added what supports
# alone say of its answers: classes are not quite Gaussian, and many queries of one class would
# rather be taken apart. Shares have a power, as the likelihood of queries has one: at full power a
# class that few queries are sure of loses them all. Chosen on novel classes of five development
# sets (docs/marginal.md).
EVEN = 0.9
PSEUDO = 2.0
POWER = 0.7
EVIDENCE = 0.2
# Classes are not quite Gaussian, so that the difference of two bounds is as unsure as much is at
# stake: queries that change their class, times the nats by which supports tell the class of one,
# for every share that is free. Learnt shares must be ahead by so many roots of that, less what
# speaks for them beforehand, which decides where little is at stake.
STAKE = 2.2
UNEVEN = 10.0
# How sure a task is, in log odds of the mean of the largest probabilities of its queries: between
# what supports alone make it, which need no queries to be calibrated, and what queries together
# make it with a factor of `TEMPERED` times that of scores alone; and a little more, since queries
# together are right more often. Then the factors that this may ask for, and halvings to find one.
BY_QUERIES, BEYOND, TEMPERED = 0.4, 0.3, 0.7
FACTORS, HALVINGS = (0.05, 4.0), 14
# Directions of the task count so much more than the components of the base set: how rows of a new
# class spread along them was learnt from classes that play new ones, so they need less tempering.
BELIEVED = 1.5
# What is left over of supports and queries counts so much in the rounds, where directions of the
# task say part of it again; chosen on the same sets.
REPEATED = 0.5


@dataclass(frozen=True)
class MarginalState(State):
    """What Marginal learnt from base classes.

    Attributes:
        projection: preprocessing of every view.
        model: mean and covariances.
        settings: with which queries are scored.
        profile: of directions outside the projection; None where there are none to be used.
        remainder: what is outside, for queries by themselves; likewise.
    """

    projection: Projection
    model: Gaussians
    settings: Settings
    profile: Profile | None = None
    remainder: Remainder | None = None


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
    batch: EpisodeBatch,
    state: MarginalState,
    rule: Rule,
    kept: Kept | None = None,
    left: Mapping[int, LeftOver] | None = None,
) -> Evidence:
    """What the samples of some scaled tasks say about class means.

    Components of views that something is `left` over of are not computed again.
    """
    found, kept = batch, Kept(room=0) if kept is None else kept
    empty = has_empty_cells(batch)
    if empty and rule.structure == "imputed":
        found, empty = filled_cells(batch, state), False
    elif empty:
        known = (tuple(map(torch.nan_to_num, views)) for views in (batch.support, batch.query))
        found = replace(batch, support=next(known), query=next(known))
    inside = {view: torch.split(part.inside, [batch.n_support, batch.n_query], 1)
              for view, part in (left or {}).items() if not empty}  # fmt: skip
    support, query = (
        state.projection.apply(views, mask, {view: parts[k] for view, parts in inside.items()})
        for k, (views, mask) in enumerate(
            ((found.support, batch.support_mask), (found.query, batch.query_mask))
        )
    )
    support_mask, query_mask = batch.support_mask, batch.query_mask
    if rule.structure == "imputed":
        support = filled_in(state.model, support, support_mask)
        query = filled_in(state.model, query, query_mask)
        support_mask, query_mask = torch.ones_like(support_mask), torch.ones_like(query_mask)
    out = gather_evidence(state.model, support, query, support_mask, query_mask, rule.rank, kept)
    if not empty:
        return out
    views = batch.support_mask.any((0, 1)) | batch.query_mask.any((0, 1))
    return see_cells(out, state.model, kept.root(state.model, views), completed(state), batch)


def completed(state: MarginalState) -> Projection:
    """The projection with what empty cells need; earlier versions did not learn it."""
    return state.projection.with_rest((state.model.within + state.model.between).diagonal())


def filled_cells(batch: EpisodeBatch, state: MarginalState) -> EpisodeBatch:
    """The tasks with conditional means in empty cells, as they are without any."""
    if not has_empty_cells(batch):
        return batch
    return fill_cells(batch, completed(state), state.model)


def score_alone(
    batch: EpisodeBatch, state: MarginalState, rule: Rule, kept: Kept | None = None
) -> tuple[Evidence, Tensor, Tensor]:
    """What the samples say, supports' weights, and the scores of every query by itself."""
    members, left = batch.one_hot(), {}
    rest, profile = state.remainder, state.profile if together(batch.n_query, rule) else None
    if rule.structure != "full":
        rest = profile = None
    projection = completed(state)
    for view in {*(rest.views if rest else ()), *(profile.views if profile else ())}:
        left[view] = leave_over(batch, view, projection)
    evidence = evidence_of(batch, state, rule, kept, left)
    if rest is not None:
        evidence = replace(evidence, remainder=rest.predictive(left, members))
    if together(batch.n_query, rule):
        likely = softmax(_by_supports(evidence, members, "variational"))
        evidence = about_the_task(evidence, members, likely)
    scores = _by_supports(evidence, members, rule.scoring)
    if profile is not None:
        # These come from all rows of the task, so they take part in the rounds only.
        if has_empty_cells(batch):
            filled = filled_cells(batch, state)
            left = {view: leave_over(filled, view, projection) for view in profile.views}
        outside = find_outside(left, batch.way, batch.n_support, profile)
        evidence = replace(evidence, outside=outside)
    return evidence, members, scores


def _by_supports(evidence: Evidence, members: Tensor, scoring: str) -> Tensor:
    """Scores of queries by what supports, weights [T, N_S, C], say: [T, N_Q, C]."""
    if scoring == "predictive":
        scores = predictive_scores(evidence, members)
    else:
        scores = variational_scores(evidence, posterior(evidence, members))[0]
    return scores if evidence.remainder is None else scores + evidence.remainder


def together(n_query: int, rule: Rule) -> bool:
    """Whether queries are used together: where that is wanted and possible."""
    return rule.transductive and n_query > 1 and rule.n_iter > 0


def score_together(
    evidence: Evidence, members: Tensor, scores: Tensor, settings: Settings, rule: Rule
) -> Tensor:
    """Use the queries together where that is wanted and possible; calibrate."""
    if not together(scores.shape[1], rule):
        return settings.by_itself * scores
    balances = (EVEN, None) if settings.balance is None else (settings.balance,)
    found, bound = _rounds(evidence, members, scores, settings, rule.n_iter, balances)
    if len(balances) == 1 and settings.calibration is not None:
        return settings.calibration * found[:, 0]
    alone = log_softmax(settings.alone * scores)
    out = found[:, 0] if len(balances) == 1 else _weighed(found, bound, scores, alone)
    if settings.calibration is not None:
        return settings.calibration * out
    return calibrated(out, alone, TEMPERED * settings.alone)


def _weighed(found: Tensor, bound: Tensor, scores: Tensor, alone: Tensor) -> Tensor:
    """The mixture of two explanations, log-probabilities [T, 2, N_Q, C] and their bounds [T, 2].

    `scores` are those by supports alone and `alone` their log-probabilities, [T, N_Q, C].
    """
    (even, learnt), (bound_even, bound_learnt) = found.unbind(1), bound.unbind(1)
    moved = learnt.exp() - even.exp()
    said = (moved * alone).sum((1, 2))
    best = scores.topk(min(2, scores.shape[-1]), dim=-1).values
    nats = (best[..., 0] - best[..., -1]).mean(1)
    stake = (scores.shape[-1] - 1) * nats * moved.abs().sum((1, 2)) / 2
    ahead = bound_learnt - bound_even + said + UNEVEN - STAKE * stake.sqrt()
    odds = EVIDENCE * ahead[:, None, None]
    return torch.logaddexp(even + logsigmoid(-odds), learnt + logsigmoid(odds))


def calibrated(scores: Tensor, alone: Tensor, usual: float) -> Tensor:
    """Scores of queries together with a factor for every task.

    It follows from how sure they are with the `usual` factor, and how sure the log-probabilities
    by supports alone are, [T, N_Q, C].
    """

    def sureness(logits: Tensor) -> Tensor:
        return softmax(logits).amax(-1).mean(1).clamp(max=1 - 1e-6)

    wanted = torch.lerp(sureness(alone).logit(), sureness(usual * scores).logit(), BY_QUERIES)
    wanted = torch.sigmoid(wanted + BEYOND)
    low, high = (torch.full_like(wanted, math.log(limit)) for limit in FACTORS)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        below = sureness(middle.exp()[:, None, None] * scores) < wanted
        low, high = torch.where(below, middle, low), torch.where(below, high, middle)
    return ((low + high) / 2).exp()[:, None, None] * scores


class _Round(NamedTuple):
    """Where explanations of the queries of tasks stand between two rounds."""

    over: Tensor  # rounds that are, []
    scores: Tensor  # of queries, [T, N_Q, C]
    r: Tensor  # responsibilities that they follow from, likewise
    potentials: Tensor  # or log shares of classes, [T, C]
    bound: Tensor  # lower bounds of the log evidence, up to what no choice here changes, [T]
    moving: Tensor  # who has not settled, bool [T]


@dataclass
class Explaining:
    """Explanations of the queries of some tasks, round by round; see `_rounds`."""

    evidence: Evidence
    members: Tensor  # [T, N_S, C]
    free: Tensor  # tasks whose shares of classes are learnt, bool [T]
    held: Tensor  # positions of the others
    settings: Settings
    n_rise: float  # rounds until the temperature has its full value
    balance: float | None  # of those that are held

    def respond(self, now: _Round, looks: bool) -> tuple[Tensor, Tensor, Tensor]:
        """Log-responsibilities, what is to be given next time, and who still moves."""
        done = (now.over / self.n_rise).clamp(max=1)
        # With soft first answers the mean of every class would be drawn to a class with most
        # queries, which equal masses prevent; shares that are learnt start from what supports
        # alone say.
        start = torch.where(self.free, 1.0, self.settings.anneal)[:, None, None].to(now.scores)
        rising = torch.where(done < 1, start + (1 - start) * done, 1.0)
        logits = self.settings.temperature * rising * now.scores
        log_r, potentials = assign(logits, now.potentials, self.balance, self.held, LOOSE, looks)
        moving = (log_r.exp() - now.r).abs().amax((1, 2)) > SETTLED
        return log_r, potentials, now.moving & (moving | (done < 1))

    def believe(self, now: _Round, log_r: Tensor, potentials: Tensor, moving: Tensor) -> _Round:
        """The end of the round of those who still move; others stay as they are."""
        evidence, r = self.evidence, log_r.exp()
        weights = self.settings.temperature * r
        belief = posterior(evidence, self.members, weights)
        scores, normaliser = variational_scores(evidence, belief)
        if evidence.outside is not None:
            more, rest = evidence.outside.variational(self.members, weights)
            scores, normaliser = scores + BELIEVED * more, normaliser + BELIEVED * rest
        if evidence.remainder is not None:
            more = REPEATED * evidence.remainder
            scores, normaliser = scores + more, normaliser + (weights * more).sum(1)
        n_query, way = r.shape[1:]
        prior = torch.where(self.free, log_dirichlet(r.sum(1)), -n_query * math.log(way))
        bound = normaliser.sum(-1) - (r * log_r).sum((1, 2)) + prior
        cells = moving[:, None, None]
        return _Round(
            over=now.over + 1,
            scores=torch.where(cells, scores, now.scores),
            r=torch.where(cells, r, now.r),
            potentials=torch.where(moving[:, None], potentials, now.potentials),
            bound=torch.where(moving, bound, now.bound),
            moving=moving,
        )

    def step(self, now: _Round) -> _Round:
        """A round in which all stay together and nobody waits."""
        return self.believe(now, *self.respond(now, looks=False))

    def of_tasks(self, moving: Tensor) -> Explaining:
        """The same of some of the tasks, bool [T]."""
        free = self.free[moving]
        return replace(
            self,
            evidence=self.evidence.tasks(moving),
            members=self.members[moving],
            free=free,
            held=(~free).nonzero()[:, 0],
        )


def _rounds(
    evidence: Evidence,
    members: Tensor,
    scores: Tensor,
    settings: Settings,
    n_iter: int,
    balances: Sequence[float | None],
) -> tuple[Tensor, Tensor]:
    """Rounds of expectation maximisation; a task stops when its queries have settled.

    The likelihood of queries is raised to the power `temperature`, in what they say about class
    means as in what class means say about them: they are not as sure as the model makes them.
    Class masses are pulled to equal ones as far as a balance says; with None the shares of classes
    are learnt with the rest. There is an explanation for each of the `balances`, of which at most
    one is a number; the same task under each of them counts as so many tasks here.

    Tasks that have settled are left behind. On a GPU, where a round of few tasks costs its
    launches, they stay, and a round is recorded and played again.

    Returns:
        log_r: log-probabilities of classes, [T, explanations, N_Q, C].
        bound: lower bounds of the log evidence, up to what no choice here changes, likewise.
    """
    kinds, (n_query, way) = len(balances), scores.shape[1:]
    shape, balance = (len(scores), kinds), next((b for b in balances if b is not None), None)
    evidence = evidence.repeated(kinds)
    members, scores = (x.repeat_interleave(kinds, dim=0) for x in (members, scores))
    free = torch.tensor([b is None for b in balances]).repeat(shape[0])
    held = (~free).nonzero()[:, 0].to(scores.device)
    rise, free = RISE * n_iter, free.to(scores.device)
    these = Explaining(evidence, members, free, held, settings, rise, balance)
    now = _Round(
        scores.new_zeros(()), scores, torch.zeros_like(scores),
        scores.new_zeros(len(scores), way), scores.new_zeros(len(scores)), torch.ones_like(free),
    )  # fmt: skip
    played = _worth_playing(evidence, way) and (balance or 0) < 1
    again, places, out = Again(), torch.arange(len(scores), device=scores.device), now
    for index in range(n_iter):
        if played:
            now = again(these.step, now)
            continue
        log_r, potentials, moving = these.respond(now, looks=True)
        if index >= rise and not bool(moving.all()):
            out = _put_back(out, now, places)
            these, left = these.of_tasks(moving), moving.nonzero()[:, 0]
            if not len(left):
                break
            places, log_r, potentials = places[left], log_r[left], potentials[left]
            now = _Round(now.over, *(tensor[left] for tensor in now[1:]))
            moving = moving[left]
        now = these.believe(now, log_r, potentials, moving)
    out = now if len(now.scores) == len(scores) else _put_back(out, now, places)
    logits = settings.temperature * out.scores
    found = assign(logits, out.potentials, balance, held)[0]
    return found.reshape(*shape, n_query, way), out.bound.reshape(shape)


def _worth_playing(evidence: Evidence, way: int) -> bool:
    """Whether rounds are so small that a GPU spends its time on launches."""
    rows = evidence.query
    return rows.is_cuda and len(rows) * way * rows.shape[-1] ** 2 <= PLAYED


def _put_back(out: _Round, now: _Round, places: Tensor) -> _Round:
    """What all tasks have come to, given those at some places."""
    if len(places) == len(out.scores):
        return now
    for whole, part in zip(out[1:], now[1:], strict=True):
        whole[places] = part
    return out


def assign(
    logits: Tensor,
    potentials: Tensor,
    balance: float | None,
    held: Tensor,
    tol: float = 1e-5,
    looks: bool = True,
) -> tuple[Tensor, Tensor]:
    """Log-responsibilities, and what is to be given next time.

    With a balance these are potentials, in tasks that are `held` to it, at these positions; in all
    others, `POWER` times log shares of classes, the queries' masses with `PSEUDO` more in each.
    `looks` is of `balanced_softmax`, without which it takes few steps.
    """
    log_r = log_softmax(logits + potentials[:, None])
    masses = log_r.exp().sum(1) + PSEUDO
    following = POWER * (masses / masses.sum(1, keepdim=True)).log()
    if balance is not None:
        sweeps = {} if looks else {"max_sweeps": PATIENCE}
        log_r[held], following[held] = balanced_softmax(
            logits[held], balance, start=potentials[held], tol=tol, looks=looks, **sweeps
        )
    return log_r, following


def log_dirichlet(masses: Tensor) -> Tensor:
    """Log-probability of labels with these masses [T, C] where all shares are as likely."""
    way = masses.shape[1]
    total = torch.lgamma(masses.sum(1) + way)
    return torch.lgamma(masses + 1).sum(1) - total + math.lgamma(way)
