"""Queries of many tasks scored under fixed settings: alone first, then together, round by round.

The mathematics of one score is in `_model.py`; here is the order in which scores are used.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple, TypeVar, cast

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from fewview.episodes.batch import EpisodeBatch
from fewview.methods.base import CACHED_ROWS, State
from fewview.methods.marginal._covariances import Moments
from fewview.methods.marginal._empty_cells import Space, fill_cells, has_empty_cells, see_cells
from fewview.methods.marginal._model import (
    Evidence,
    Gaussians,
    Kept,
    Part,
    Posterior,
    about_the_task,
    filled_in,
    gather_evidence,
    posterior,
    predictive_scores,
    variational_scores,
    with_queries,
)
from fewview.methods.marginal._outside import (
    LeftOver,
    Outside,
    Profile,
    find_outside,
    leave_over,
    rows_of,
)
from fewview.methods.marginal._projection import Projection
from fewview.methods.marginal._remainder import Remainder
from fewview.methods.marginal._settings import Settings
from fewview.numerics._again import play
from fewview.numerics._cores import on_all_cores, share_of
from fewview.numerics.iterate import map_tensors
from fewview.numerics.sinkhorn import balanced_softmax
from fewview.numerics.softmax import log_softmax, softmax

# Share of the rounds over which the temperature rises to its full value.
RISE = 0.3
# Numbers in the covariances of a round up to which a GPU plays it again: more cost it more than
# their launches.
PLAYED = 1 << 26
# More of them make it worth while to go on with one of so many tasks, when the others have settled.
DIVIDED, FEWER = 1 << 24, 4
# Steps towards balance in a round that is played. They start where the last round ended and came
# within 0.05 of the potentials (five data sets); after the rounds there are as many as it takes.
STEPS = 2
# Times so many steps at the end, and what they then may still change.
LAST, ALIKE = 3, 1e-4
# A core has at least so many tasks: their rounds cost it a few dozen operations of each.
FEW_TASKS = 16
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


Seen = TypeVar("Seen")


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
    kept: Kept | None,
    views: Sequence[int],
    look: Callable[[EpisodeBatch, Mapping[int, LeftOver]], Seen],
    whole: bool = True,
) -> tuple[Evidence, list[Seen]]:
    """What the samples of some scaled tasks say about class means.

    `look` is shown some tasks after the others, and what is left over of these `views`; what it
    sees comes back too. Not `whole`, the evidence is for predictive scores alone.
    """
    found, empty = batch, has_empty_cells(batch)
    if empty and rule.structure == "imputed":
        found, empty = fill_cells(batch, space_of(state, "any class", kept)), False
    elif empty:
        known = (tuple(map(torch.nan_to_num, views)) for views in (batch.support, batch.query))
        found = replace(batch, support=next(known), query=next(known))
    mask = torch.cat([batch.support_mask, batch.query_mask], dim=1)
    projection, seen = state.projection, {}

    def components(tasks: slice, part: EpisodeBatch) -> Tensor:
        left = {view: leave_over(part, view, projection) for view in views}
        seen[tasks.start] = look(part, left)
        rows = part if found is batch else found.tasks(tasks)
        known = {} if empty else {view: of_view.inside for view, of_view in left.items()}
        of_views = [known[v] if v in known else rows_of(rows, v) for v in range(batch.n_views)]
        return state.projection.apply(of_views, mask[tasks], known)

    parts: list[Part] = []
    start = 0
    for part in pieces(batch):
        tasks = slice(start, start + part.n_tasks)
        parts.append((tasks, partial(components, tasks, part)))
        start = tasks.stop
    if rule.structure == "imputed":
        samples = torch.cat([make() for _, make in parts])
        filled = filled_in(state.model, samples, mask)
        parts, mask = [(slice(None), lambda: filled)], torch.ones_like(mask)
    # Rows with empty cells have matrices of their own, in which no coordinates are independent.
    out, root = gather_evidence(
        state.model, parts, mask, batch.n_support, rule.rank, kept, turns=not empty
    )
    if empty:
        out = see_cells(out, space_of(state, "within", kept), root, batch, whole)
    return out, [seen[start] for start in sorted(seen)]


def space_of(state: MarginalState, which: str, kept: Kept | None) -> Space:
    """What rows with empty cells are looked at in: `within` classes, or as of `any class`."""
    known = {} if kept is None else kept.spaces
    if which not in known:
        model = state.model
        covariance = model.within if which == "within" else model.within + model.between
        known[which] = Space.of(state.projection, covariance, model.mean)
    return cast(Space, known[which])


def score_alone(
    batch: EpisodeBatch, state: MarginalState, rule: Rule, kept: Kept | None = None
) -> tuple[Evidence, Tensor, Tensor]:
    """What the samples say, supports' weights, and the scores of every query by itself."""
    members, full = batch.one_hot(), rule.structure == "full"
    in_rounds = together(batch.n_query, rule)
    rest = state.remainder if full else None
    # Directions come from all rows of the task, so they take part in the rounds only.
    profile = state.profile if full and in_rounds else None
    empty = has_empty_cells(batch)

    def look(
        part: EpisodeBatch, left: Mapping[int, LeftOver]
    ) -> tuple[Tensor | None, Outside | None]:
        members = part.one_hot()
        remainder = None if rest is None else rest.predictive(left, members)
        if profile is None:
            return remainder, None
        if empty:
            projection, filled = state.projection, part
            if has_empty_cells(part):
                filled = fill_cells(part, space_of(state, "any class", kept))
            left = {view: leave_over(filled, view, projection) for view in profile.views}
        return remainder, find_outside(left, members, profile)

    views = {*(rest.views if rest else ()), *(profile.views if profile else ())}
    whole = in_rounds or rule.scoring != "predictive"
    evidence, seen = evidence_of(batch, state, rule, kept, sorted(views), look, whole)
    remainders, outsides = zip(*seen, strict=True)
    if rest is not None:
        evidence = replace(evidence, remainder=torch.cat(remainders))
    if in_rounds:
        likely = softmax(_by_supports(evidence, members, "variational"))
        evidence = about_the_task(evidence, members, likely)
    scores = _by_supports(evidence, members, rule.scoring)
    if profile is not None:
        evidence = replace(evidence, outside=Outside.join(outsides))
    return evidence, members, scores


def _by_supports(evidence: Evidence, members: Tensor, scoring: str) -> Tensor:
    """Scores of queries by what supports, weights [T, N_S, C], say: [T, N_Q, C]."""
    if scoring == "predictive":
        scores = predictive_scores(evidence, members)
    else:
        scores = variational_scores(evidence, posterior(evidence, members), alike=True)[0]
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

    def explain(tasks: Tensor) -> tuple[Tensor, Tensor]:
        if len(scores) == len(tasks):
            return _rounds(evidence, members, scores, settings, rule.n_iter, balances)
        given = evidence.tasks(tasks), members[tasks], scores[tasks]
        return _rounds(*given, settings, rule.n_iter, balances)

    numbers = torch.arange(len(scores), device=scores.device)
    size = len(scores) if scores.is_cuda else max(FEW_TASKS, share_of(len(scores)))
    groups = on_all_cores(explain, torch.split(numbers, size), scores.device)
    found, bound = groups[0] if len(groups) == 1 else map(torch.cat, zip(*groups, strict=True))
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

    wanted = torch.lerp(_sureness(alone).logit(), _sureness(usual * scores).logit(), BY_QUERIES)
    wanted = torch.sigmoid(wanted + BEYOND)
    limits = tuple(torch.full_like(wanted, math.log(limit)) for limit in FACTORS)
    low, high = play(_Wanted.halve, _Wanted(scores, wanted), limits, HALVINGS)
    return cast(Tensor, ((low + high) / 2).exp()[:, None, None] * scores)


def _sureness(logits: Tensor) -> Tensor:
    """Mean over queries of their largest probability, [T]."""
    return softmax(logits).amax(-1).mean(1).clamp(max=1 - 1e-6)


@dataclass(frozen=True)
class _Wanted:
    """Scores [T, N_Q, C] and how sure they shall be, [T]."""

    scores: Tensor
    sureness: Tensor

    def halve(self, limits: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """Bring limits of the logarithms of factors, [T] each, nearer together."""
        low, high = limits
        middle = (low + high) / 2
        below = _sureness(middle.exp()[:, None, None] * self.scores) < self.sureness
        return torch.where(below, middle, low), torch.where(below, high, middle)


class _Round(NamedTuple):
    """Where explanations of the queries of tasks stand between two rounds."""

    over: Tensor  # rounds that are, []
    scores: Tensor  # of queries, [T, N_Q, C]
    r: Tensor  # responsibilities that they follow from, likewise
    potentials: Tensor  # or log shares of classes, [T, C]
    normaliser: Tensor  # log normalisers of beliefs, of all classes, [T]
    moving: Tensor  # who has not settled, bool [T]


@dataclass(frozen=True)
class Explaining:
    """Explanations of the queries of some tasks, round by round; see `_rounds`."""

    evidence: Evidence  # of queries; what is left over counts as much as it does in the rounds
    supports: Posterior  # what supports alone say of class means
    free: Tensor  # tasks whose shares of classes are learnt, bool [T]
    start: Tensor  # share of the temperature that a task starts with, [T, 1, 1]
    settings: Settings
    n_rise: float  # rounds until the temperature has its full value
    balance: float | None  # of those that are not free

    def respond(self, now: _Round, looks: bool) -> tuple[Tensor, Tensor, Tensor]:
        """Log-responsibilities, what is to be given next time, and who still moves."""
        done = (now.over / self.n_rise).clamp(max=1)
        rising = self.settings.temperature * torch.lerp(self.start, torch.ones_like(done), done)
        log_r, potentials = assign(
            rising * now.scores, now.potentials, self.balance, self.free, LOOSE, looks
        )
        moving = (log_r.exp() - now.r).abs().amax((1, 2)) > SETTLED
        return log_r, potentials, now.moving & (moving | (done < 1))

    def believe(self, now: _Round, log_r: Tensor, potentials: Tensor, moving: Tensor) -> _Round:
        """The end of the round of those who still move; others stay as they are."""
        evidence, r = self.evidence, log_r.exp()
        weights = self.settings.temperature * r
        belief = with_queries(evidence, self.supports, weights)
        scores, normaliser = variational_scores(evidence, belief)
        if evidence.outside is not None:
            more, rest = evidence.outside.variational(weights)
            scores = torch.add(scores, more, alpha=BELIEVED)
            normaliser = torch.add(normaliser, rest, alpha=BELIEVED)
        normaliser = normaliser.sum(-1)
        if evidence.remainder is not None:
            scores = scores + evidence.remainder
            normaliser = normaliser + (weights * evidence.remainder).sum((1, 2))
        cells = moving[:, None, None]
        return _Round(
            over=now.over + 1,
            scores=torch.where(cells, scores, now.scores),
            r=torch.where(cells, r, now.r),
            potentials=torch.where(moving[:, None], potentials, now.potentials),
            normaliser=torch.where(moving, normaliser, now.normaliser),
            moving=moving,
        )

    def bound(self, now: _Round) -> Tensor:
        """Lower bounds of the log evidence, up to what no choice here changes, [T]."""
        n_query, way = now.r.shape[1:]
        even = -n_query * math.log(way)
        prior = torch.where(self.free, log_dirichlet(now.r.sum(1)), even)
        return now.normaliser - torch.xlogy(now.r, now.r).sum((1, 2)) + prior

    def step(self, now: _Round) -> _Round:
        """A round in which all stay together and nobody waits."""
        return self.believe(now, *self.respond(now, looks=False))

    def of_tasks(self, key: Tensor) -> Explaining:
        """The same of some of the tasks, int64 [n], rising."""
        return replace(
            self,
            evidence=self.evidence.tasks(key),
            supports=map_tensors(self.supports, lambda tensor: tensor[key]),
            free=self.free[key],
            start=self.start[key],
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
    launches, most of them stay, and a round is recorded and played again.

    Returns:
        log_r: log-probabilities of classes, [T, explanations, N_Q, C].
        bound: lower bounds of the log evidence, up to what no choice here changes, likewise.
    """
    kinds, (n_query, way) = len(balances), scores.shape[1:]
    shape, balance = (len(scores), kinds), next((b for b in balances if b is not None), None)
    supports = map_tensors(posterior(evidence, members), lambda x: x.repeat_interleave(kinds, 0))
    evidence = evidence.without_supports().repeated(kinds)
    if evidence.remainder is not None:
        evidence = evidence.of_others({"remainder": REPEATED * evidence.remainder})
    scores = scores.repeat_interleave(kinds, 0)
    # With soft first answers the mean of every class would be drawn to a class with most queries,
    # which equal masses prevent; shares that are learnt start from what supports alone say.
    starts = [1.0 if b is None else settings.anneal for b in balances]
    free, start = (
        torch.tensor(part).repeat(shape[0]).to(scores.device)
        for part in ([b is None for b in balances], starts)
    )
    these = Explaining(
        evidence, supports, free, start[:, None, None].to(scores), settings, RISE * n_iter, balance
    )
    now = _Round(
        scores.new_zeros(()), scores, torch.zeros_like(scores),
        scores.new_zeros(len(scores), way), scores.new_zeros(len(scores)), torch.ones_like(free),
    )  # fmt: skip
    worth = _worth_playing(evidence, way) and (balance or 0) < 1
    out = (_played if worth else _taken)(these, now, n_iter)
    found = _settled(settings.temperature * out.scores, out.potentials, balance, free, worth)
    return found.reshape(*shape, n_query, way), these.bound(out).reshape(shape)


def _taken(these: Explaining, now: _Round, n_iter: int) -> _Round:
    """Take rounds one after the other; tasks that have settled are left behind."""
    places, out = torch.arange(len(now.scores), device=now.scores.device), now
    for index in range(n_iter):
        log_r, potentials, moving = these.respond(now, looks=True)
        if index >= these.n_rise and not bool(moving.all()):
            out = _put_back(out, now, places)
            left = moving.nonzero()[:, 0]
            if not len(left):
                return out
            these, places = these.of_tasks(left), places[left]
            log_r, potentials, moving = log_r[left], potentials[left], moving[left]
            now = _of_tasks(now, left)
        now = these.believe(now, log_r, potentials, moving)
    return _put_back(out, now, places)


def _played(these: Explaining, now: _Round, n_iter: int) -> _Round:
    """Rounds that a GPU plays; where it has much to do, few that still move go on by themselves."""
    index = min(n_iter, math.ceil(these.n_rise))
    now = play(Explaining.step, these, now, index)
    out, places, count = now, None, len(now.scores)
    size = -(-count // FEWER)
    divides = not these.evidence.sizes and _numbers(these) > DIVIDED
    while index < n_iter:
        if divides and places is None and (moving := int(now.moving.sum())) <= size:
            if not moving:
                return now
            # With some that have settled, so that there are always as many.
            order = now.moving.logical_not().byte().argsort(stable=True)
            places, out = order[:size].sort().values, _Round(*(tensor.clone() for tensor in now))
            these, now = these.of_tasks(places), _of_tasks(now, places)
        now = play(Explaining.step, these, now, 1)
        index += 1
    return now if places is None else _put_back(out, now, places)


def _settled(
    logits: Tensor, potentials: Tensor, balance: float | None, free: Tensor, worth: bool
) -> Tensor:
    """Log-responsibilities at the end, with all the steps towards balance that they need."""
    if worth and balance is not None:
        start = logits, potentials, torch.zeros_like(potentials)
        log_r, _, change = play(_Balancing.step, _Balancing(logits, free, balance), start, LAST)
        if bool((change <= ALIKE).all()):
            return cast(Tensor, log_r.clone())
    return assign(logits, potentials, balance, free)[0]


@dataclass(frozen=True)
class _Balancing:
    """Scores that are brought towards balance, but in tasks that are free; see `assign`."""

    logits: Tensor
    free: Tensor
    balance: float

    def step(self, held: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """A few steps: log-responsibilities, potentials, and by how much these have changed."""
        before = held[1]
        log_r, after = assign(self.logits, before, self.balance, self.free, looks=False)
        after = torch.where(self.free[:, None], before, after)
        return log_r, after, (after - before).abs()


def _of_tasks(now: _Round, key: Tensor) -> _Round:
    """Of some of the tasks."""
    return _Round(now.over, *(tensor[key] for tensor in now[1:]))


def _numbers(these: Explaining) -> int:
    """Numbers in the covariances of a round."""
    return these.supports.shift.shape[:2].numel() * these.evidence.information.shape[-1] ** 2


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
    free: Tensor,
    tol: float = 1e-5,
    looks: bool = True,
) -> tuple[Tensor, Tensor]:
    """Log-responsibilities, and what is to be given next time.

    With a balance these are potentials, but in tasks that are `free`, bool [T]: there `POWER` times
    log shares of classes, the queries' masses with `PSEUDO` more in each. `looks` is of
    `balanced_softmax`, without which it takes few steps and nobody waits to hear who is free.
    """
    log_r = log_softmax(logits + potentials[:, None])
    masses = log_r.exp().sum(1) + PSEUDO
    following = POWER * (masses / masses.sum(1, keepdim=True)).log()
    if balance is None:
        return log_r, following
    if not looks:
        held = balanced_softmax(logits, balance, start=potentials, max_sweeps=STEPS)
        return (
            torch.where(free[:, None, None], log_r, held[0]),
            torch.where(free[:, None], following, held[1]),
        )
    rest = (~free).nonzero()[:, 0]
    log_r[rest], following[rest] = balanced_softmax(
        logits[rest], balance, start=potentials[rest], tol=tol
    )
    return log_r, following


def log_dirichlet(masses: Tensor) -> Tensor:
    """Log-probability of labels with these masses [T, C] where all shares are as likely."""
    way = masses.shape[1]
    total = torch.lgamma(masses.sum(1) + way)
    return torch.lgamma(masses + 1).sum(1) - total + math.lgamma(way)


def pieces(batch: EpisodeBatch) -> list[EpisodeBatch]:
    """The tasks of a batch; on a CPU so many at a time that their rows stay in its caches.

    For what reads rows several times and has little else to do.
    """
    count, rows = len(batch.seeds), sum(view.nbytes for view in (*batch.support, *batch.query))
    size = max(1, count * CACHED_ROWS // max(rows, 1))
    if batch.device.type != "cpu" or size >= count:
        return [batch]
    size = -(-count // -(-count // size))  # as many in each, for cores that work side by side
    return [batch.tasks(slice(start, start + size)) for start in range(0, count, size)]
