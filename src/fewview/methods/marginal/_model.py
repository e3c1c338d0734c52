"""The Gaussian model: what samples with any views say about class means, and scores of queries.

Class means are m_c = mu0 + W z_c with z_c ~ N(0, I) and W W' = B, so everything happens in the k
coordinates z. A sample with views o enters through two things only: A_o = W' K_o W, the same for
all samples with those views, and g = W' K_o (x - mu0), where K_o holds inv(S_oo) on the observed
coordinates and zero elsewhere. Samples with weights r have the posterior

    precision = I + sum r A_o,   shift = sum r g,   mean of z_c = inv(precision) shift,

and the log of its normaliser, Z = (shift' inv(precision) shift - log det precision) / 2, is all
that scores are made of. The predictive score of a query is Z with the query added minus Z without
it: exactly log N(x_o; m_o, (S + C)_oo) up to a constant of the query. The variational score is the
derivative of Z in the weight of the query, at zero: the first-order part of the former.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn.functional import pad

from fewview.methods.marginal._inverse import cholesky, halves, invert_halves, times_halves
from fewview.methods.marginal._outside import Outside
from fewview.numerics._batch import map_tensors
from fewview.numerics._tensor_draws import streams, uniform

# Elements of the largest tensor made at once while queries are scored: what stays in the caches of
# a CPU. A GPU has none to mind; few large pieces keep it busy.
CHUNK, GPU_CHUNK = 1 << 21, 1 << 27
# The same of matrices that are inverted.
INVERTED = 1 << 20
# With more patterns than that, which takes seven views, none has a gain of its own.
MANY = 64
# So many standard deviations must the mean of a task be longer than that of as many base classes;
# of 1, 2, 5 and 8 the best on development sets (docs/marginal.md).
SURELY = 5.0


@dataclass(frozen=True)
class Gaussians:
    """The two-covariance model over the concatenated components of all views."""

    mean: Tensor  # mu0, [d]
    within: Tensor  # S, [d, d], positive definite
    between: Tensor  # B, [d, d], positive semi-definite
    dims: tuple[int, ...]  # components of every view

    def columns(self, views: Tensor) -> Tensor:
        """Positions of the coordinates of some views; `views` is bool [V]."""
        widths = torch.tensor(self.dims, device=views.device)
        return torch.repeat_interleave(views, widths).nonzero()[:, 0]


def view_sums(values: Tensor, dims: tuple[int, ...]) -> Tensor:
    """Sum over the coordinates of every view: [..., d] -> [..., V]."""
    parts = torch.split(values, list(dims), dim=-1)
    return torch.stack([part.sum(-1) for part in parts], dim=-1)


def unique_patterns(mask: Tensor) -> tuple[Tensor, Tensor]:
    """Patterns of views that occur, bool [P, V], and which of them each row of a mask [n, V] is."""
    n_views = mask.shape[1]
    if n_views > 62:
        return cast(tuple[Tensor, Tensor], torch.unique(mask, dim=0, return_inverse=True))
    # As numbers: sorting rows is many times slower.
    powers = 1 << torch.arange(n_views, device=mask.device)
    codes, pattern = torch.unique((mask * powers).sum(1), return_inverse=True)
    return (codes[:, None] & powers) > 0, pattern


def conditional_gains(
    model: Gaussians, mask: Tensor
) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
    """How missing views follow from present ones under S + B, for every pattern of a mask [n, V].

    Yields positions of the samples with the pattern, of their present and missing coordinates, and
    the gain [seen, gone]: the conditional mean is mu0 + (x - mu0)[seen] @ gain.
    """
    total = (model.within + model.between).double()
    patterns, pattern = unique_patterns(mask)
    for index, views in enumerate(patterns):
        seen, gone = model.columns(views), model.columns(~views)
        factor = cholesky(total[seen][:, seen])
        gain = torch.cholesky_solve(total[seen][:, gone], factor)
        yield (pattern == index).nonzero()[:, 0], seen, gone, gain


def filled_in(model: Gaussians, samples: Tensor, mask: Tensor) -> Tensor:
    """Replace missing views by their conditional means: [..., d], mask bool [..., V] -> [..., d].

    Nothing here uses it but an ablation: what is filled in is a guess, and this is what it costs
    to treat it as data.
    """
    flat, out = samples.flatten(0, -2), samples.flatten(0, -2).clone()
    for rows, seen, gone, gain in conditional_gains(model, mask.flatten(0, -2)):
        step = (flat[rows][:, seen] - model.mean[seen]) @ gain.to(flat.dtype)
        out[rows[:, None], gone] = model.mean[gone] + step
    return out.reshape(samples.shape)


@dataclass(frozen=True)
class Evidence:
    """What the samples of some tasks say about class means, in prior coordinates."""

    # A_o of every pattern that occurs, [P, k, k]; of tasks under several models [models, P, k, k].
    information: Tensor
    support: Tensor  # g of supports, [T, N_S, k]
    query: Tensor  # g of queries, [T, N_Q, k]
    support_pattern: Tensor  # int64 [T, N_S], positions in `information`
    query_pattern: Tensor  # int64 [T, N_Q]
    outside: Outside | None = None  # what directions of the tasks themselves say
    remainder: Tensor | None = None  # scores by what is left over of rows, [T, N_Q, C]
    sizes: tuple[int, ...] = ()  # tasks of every model, in order; empty of one model

    def tasks(self, key: Tensor) -> Evidence:
        """Return the evidence of some of the tasks, bool [T]."""
        names = ("support", "query", "support_pattern", "query_pattern")
        found: dict[str, Any] = {}
        if self.sizes:
            parts = torch.split(key, list(self.sizes))
            found["sizes"] = tuple(torch.stack([part.sum() for part in parts]).tolist())
        key = key.nonzero()[:, 0]  # once for all of them
        found |= {name: getattr(self, name)[key] for name in names}
        if self.outside is not None:
            found["outside"] = self.outside.tasks(key)
        if self.remainder is not None:
            found["remainder"] = self.remainder[key]
        return self._of_others(found)

    def repeated(self, times: int) -> Evidence:
        """The same with every task so many times, one after another."""
        if times == 1:
            return self
        names = ("support", "query", "support_pattern", "query_pattern", "outside", "remainder")
        found = {
            name: map_tensors(part, lambda tensor: tensor.repeat_interleave(times, dim=0))
            for name in names
            if (part := getattr(self, name)) is not None
        }
        return self._of_others({"sizes": tuple(times * size for size in self.sizes)} | found)

    def _of_others(self, found: Mapping[str, Any]) -> Evidence:
        """The same patterns in other samples; what was made of them is not made again."""
        out = replace(self, **found)
        vars(out).update({k: v for k, v in vars(self).items() if k in ("halves", "_both_sides")})
        return out

    def counts(self, members: Tensor, pattern: Tensor) -> Tensor:
        """Weight of every pattern in every class: members [T, N, C] -> [T, C, P]."""
        out = members.new_zeros(*members.shape[::2], self.information.shape[-3])
        index = pattern[:, None].expand(-1, members.shape[2], -1)
        return out.scatter_add_(2, index, members.transpose(1, 2).contiguous())

    @cached_property
    def halves(self) -> Tensor:
        """A_o of every pattern as `halves`, [..., P, 3, h, h]."""
        return halves(self.information)

    def precisions(self, counts: Tensor, first: int = 0) -> Tensor:
        """I + sum of counts A_o of beliefs with counts [n, C, P] about tasks from `first` on.

        As `halves`, [n C, 3, h, h].
        """
        out = self._multiplied(counts, self.halves.flatten(-3), first)
        out = out.reshape(-1, *self.halves.shape[-3:])
        out[:, :2].diagonal(dim1=-2, dim2=-1).add_(1.0)
        return out

    def traces(self, moments: Tensor, first: int = 0) -> Tensor:
        """Traces of products of A_o with moments [n, C, 3 h h], likewise: [n, C, P]."""
        return self._multiplied(moments, self._both_sides.mT, first)

    @cached_property
    def _both_sides(self) -> Tensor:
        """`halves`, flat, the corner that they have for two counted twice: [..., P, 3 h h]."""
        once = self.halves
        return torch.cat((once[..., :2, :, :], 2 * once[..., 2:, :, :]), dim=-3).flatten(-3)

    def shifted(self, mean: Tensor) -> Evidence:
        """The same with mu0 moved to W mean, [T, k]."""
        steps = self._multiplied(mean[:, None], self.information.transpose(-3, -2).flatten(-2))
        steps = steps.reshape(len(mean), -1, mean.shape[1])  # A_o mean, [T, P, k]
        found = {}
        for name in ("support", "query"):
            rows, pattern = getattr(self, name), getattr(self, f"{name}_pattern")
            found[name] = rows - steps.gather(1, pattern[..., None].expand_as(rows))
        return self._of_others(found)

    def _multiplied(self, left: Tensor, tables: Tensor, first: int = 0) -> Tensor:
        """[n, C, m] of tasks from `first` on times the [m, ...] of the model of the task."""
        if not self.sizes:
            return left @ tables
        ends = [end - first for end in accumulate(self.sizes)]
        parts = zip(pairwise([-first, *ends]), tables, strict=True)
        there = ((slice(max(low, 0), max(high, 0)), table) for (low, high), table in parts)
        return torch.cat([left[some] @ table for some, table in there])

    @staticmethod
    def join(parts: Sequence[Evidence]) -> Evidence:
        """The evidence of tasks under several models; what some do not have says nothing."""
        if len(parts) == 1:
            return parts[0]
        rank = max(part.support.shape[-1] for part in parts)
        most = max(len(part.information) for part in parts)

        def padded(tensor: Tensor, *ends: int) -> Tensor:
            """Zeros at the ends of the last axes."""
            spare = [end - size for end, size in zip(ends, tensor.shape[-len(ends) :], strict=True)]
            pad = [number for more in reversed(spare) for number in (0, more)]
            return torch.nn.functional.pad(tensor, pad)

        outside, remainder = None, None
        if any(part.outside is not None for part in parts):
            outside = Outside.join([part.outside or Outside.nothing(part.query, part.support)
                                    for part in parts])  # fmt: skip
        if any(part.remainder is not None for part in parts):
            way = next(p.remainder.shape[-1] for p in parts if p.remainder is not None)
            remainder = torch.cat(
                [p.query.new_zeros(*p.query.shape[:2], way) if p.remainder is None else p.remainder
                 for p in parts]
            )  # fmt: skip
        return Evidence(
            torch.stack([padded(part.information, most, rank, rank) for part in parts]),
            support=torch.cat([padded(part.support, rank) for part in parts]),
            query=torch.cat([padded(part.query, rank) for part in parts]),
            support_pattern=torch.cat([part.support_pattern for part in parts]),
            query_pattern=torch.cat([part.query_pattern for part in parts]),
            outside=outside,
            remainder=remainder,
            sizes=tuple(len(part.support) for part in parts),
        )


def prior_root(model: Gaussians, columns: Tensor, rank: int | None) -> Tensor:
    """W with W W' = B on some coordinates, [d_u, k], the most telling directions first.

    Directions are ordered by how far class means differ against the spread within classes; with
    `rank` only that many are kept, and the others say nothing about the class.
    """
    within = model.within[columns][:, columns].double()
    between = model.between[columns][:, columns].double()
    root = cholesky(within)
    half = torch.linalg.solve_triangular(root, between, upper=False)
    ratio = torch.linalg.solve_triangular(root, half.T, upper=False)
    values, vectors = torch.linalg.eigh((ratio + ratio.T) / 2)
    keep = values > 1e-9 * values[-1].clamp(min=1e-30)
    if rank is not None:
        keep[:-rank] = False
    if not bool(keep.any()):
        keep[-1] = True
    out: Tensor = root @ (vectors[:, keep] * values[keep].clamp(min=0).sqrt())
    return out.flip(1)


@dataclass
class Kept:
    """What `gather_evidence` need not compute again for more samples under the same model."""

    roots: dict[bytes, Tensor] = field(default_factory=dict)  # views that occur at all -> W
    # (these views, pattern) -> A_o and inv(S_oo) W.
    gains: dict[tuple[bytes, bytes], tuple[Tensor, Tensor]] = field(default_factory=dict)
    # Numbers that still may be kept; with many views there are thousands of patterns.
    room: int = 1 << 24

    def root(self, model: Gaussians, views: Tensor) -> Tensor:
        """The W of tasks in which these views occur, bool [V], zeros in the others: [d, k]."""
        part = self.roots[bytes(views.tolist())]
        out = part.new_zeros(sum(model.dims), part.shape[1])
        out[model.columns(views)] = part
        return out


def gather_evidence(
    model: Gaussians,
    support: Tensor,
    query: Tensor,
    support_mask: Tensor,
    query_mask: Tensor,
    rank: int | None = None,
    kept: Kept | None = None,
) -> Evidence:
    """Bring projected samples [T, N, d], masks [T, N, V], into prior coordinates, by pattern.

    For `rank` see `prior_root`; `kept` are results of earlier calls with this model and rank, which
    grow here.
    """
    mask = torch.cat([support_mask, query_mask], dim=1)
    samples = torch.cat([support, query], dim=1) - model.mean
    patterns, pattern = unique_patterns(mask.flatten(0, 1))
    kept = Kept(room=0) if kept is None else kept
    names = [bytes(row) for row in patterns.tolist()]
    occurring = patterns.any(0)
    whole, known = bytes(occurring.tolist()), model.columns(occurring)
    if whole not in kept.roots:
        kept.roots[whole] = prior_root(model, known, rank)
    root = kept.roots[whole]
    place = torch.full((sum(model.dims),), -1, device=samples.device)
    place[known] = torch.arange(len(known), device=samples.device)
    flat = samples.flatten(0, 1)
    shape = len(patterns), root.shape[1], root.shape[1]
    evidence, information = flat.new_zeros(len(flat), shape[1]), flat.new_zeros(shape)
    ends = torch.bincount(pattern, minlength=len(patterns)).cumsum(0).tolist()
    order = pattern.argsort(stable=True)
    # A GPU takes all patterns at once; one by one each would be a dozen launches.
    many = len(patterns) > MANY or samples.is_cuda
    if many:
        within = model.within[known][:, known].double()
        wide = torch.repeat_interleave(patterns, torch.tensor(model.dims, device=mask.device), 1)
        found_both = evidence_of_many(within, root, flat[:, known], wide[:, known], pattern)
        information, evidence = (found.to(flat.dtype) for found in found_both)
    for index, (start, end) in enumerate(() if many else pairwise([0, *ends])):
        columns, name = model.columns(patterns[index]), (whole, names[index])
        if not len(columns):
            continue
        found = kept.gains.get(name)
        if found is None:
            within, part = model.within[columns][:, columns], root[place[columns]]
            matrix, gain = information_of(within, part)
            found = matrix.to(flat.dtype), gain.to(flat.dtype)
            size = found[0].numel() + found[1].numel()
            if size <= kept.room:
                kept.gains[name] = found
                kept.room -= size
        information[index], gain = found
        rows = order[start:end]
        evidence[rows] = flat[rows][:, columns] @ gain
    evidence, pattern = evidence.reshape(*mask.shape[:2], -1), pattern.reshape(mask.shape[:2])
    n_support = support.shape[1]
    return Evidence(
        information,
        support=evidence[:, :n_support],
        query=evidence[:, n_support:],
        support_pattern=pattern[:, :n_support],
        query_pattern=pattern[:, n_support:],
    )


def evidence_of_many(
    within: Tensor, root: Tensor, samples: Tensor, present: Tensor, pattern: Tensor
) -> tuple[Tensor, Tensor]:
    """A_o of many patterns, [P, k, k], and g of samples [n, d], [n, k], in float64.

    `within` is S [d, d], `root` W [d, k], `present` says which coordinates a pattern has, bool
    [P, d], and `pattern` which one a sample has. A pattern costs the cube of what it has or of what
    it lacks, whichever is less: with P = inv(S), m what is missing and any values there,

        w' inv(S_oo) x = w' P x - (P w)_m' inv(P_mm) (P x)_m.
    """
    samples = samples.double() * present[pattern]
    information = root.new_zeros(len(present), root.shape[1], root.shape[1])
    evidence = root.new_zeros(len(samples), root.shape[1])
    lacks = 2 * present.sum(1) > present.shape[1]
    if bool(lacks.any()):
        precision = torch.cholesky_inverse(cholesky(within))
        told, seen = precision @ root, samples @ precision
        information[lacks] = root.T @ told
        here = lacks[pattern]
        evidence[here] = samples[here] @ told
        sides = [(-1.0, lacks, ~present, precision, told, seen)]
    else:
        sides = []
    sides.append((1.0, ~lacks, present, within, root, samples))
    counts = torch.bincount(pattern, minlength=len(present))
    order, starts = pattern.argsort(stable=True), counts.cumsum(0) - counts
    for sign, chosen, where, matrix, left, right in sides:
        sizes = where.sum(1)
        found = (chosen & (sizes > 0)).nonzero()[:, 0]
        found = found[sizes[found].argsort(stable=True)]
        for group in _in_chunks(found, sizes[found].tolist(), counts[found].tolist(), left):
            width, most = int(sizes[group].max()), int(counts[group].max())
            index = where[group].int().argsort(dim=1, descending=True, stable=True)[:, :width]
            square = matrix[index[:, :, None], index[:, None]]
            slots = torch.arange(most, device=index.device)
            rows = order[(starts[group, None] + slots).clamp(max=len(order) - 1)]
            both = torch.cat((left[index], right[rows[:, None], index[..., None]]), -1)
            if int(sizes[group[0]]) < width:  # they come in order of their size
                real = torch.arange(width, device=index.device) < sizes[group, None]
                square *= real[:, :, None] & real[:, None]
                square.diagonal(dim1=1, dim2=2)[~real] = 1.0
                both *= real[..., None]
            both = torch.linalg.solve_triangular(cholesky(square), both, upper=False)
            half, own = both.split((left.shape[1], most), -1)
            information[group] += sign * (half.mT @ half)
            taken = slots < counts[group, None]
            evidence[rows[taken]] += sign * (own.mT @ half)[taken]
    return information, evidence


def _in_chunks(
    patterns: Tensor, sizes: list[int], counts: list[int], left: Tensor
) -> Iterator[Tensor]:
    """Patterns in order of their size, so many at a time as make tensors of `CHUNK` numbers."""
    low, chunk = 0, GPU_CHUNK if left.is_cuda else CHUNK
    while low < len(sizes):
        high, most = low + 1, counts[low]
        while high < len(sizes):
            most = max(most, counts[high])
            wide = max(sizes[high], left.shape[1] + most)
            if (high + 1 - low) * sizes[high] * wide > chunk:
                break
            high += 1
        yield patterns[low:high]
        low = high


def information_of(within: Tensor, root: Tensor) -> tuple[Tensor, Tensor]:
    """W' inv(S) W and inv(S) W of the coordinates of one pattern, in float64."""
    factor = cholesky(within.double())
    seen = torch.linalg.solve_triangular(factor, root, upper=False)
    return seen.T @ seen, torch.linalg.solve_triangular(factor.T, seen, upper=True)


@dataclass(frozen=True)
class Posterior:
    """Gaussian beliefs about class means, in natural coordinates.

    Their precisions are I + sum over patterns of counts A_o: k squared numbers for every class,
    which are made where they are needed and not kept.
    """

    counts: Tensor  # weight of every pattern, [T, C, P]
    shift: Tensor  # [T, C, k]


def posterior(
    evidence: Evidence, members: Tensor, responsibilities: Tensor | None = None
) -> Posterior:
    """Combine supports, weights [T, N_S, C], and, if given, queries, weights [T, N_Q, C]."""
    counts = evidence.counts(members, evidence.support_pattern)
    shift = members.transpose(1, 2) @ evidence.support
    if responsibilities is not None:
        counts = counts + evidence.counts(responsibilities, evidence.query_pattern)
        shift = shift + responsibilities.transpose(1, 2) @ evidence.query
    return Posterior(counts, shift)


def about_the_task(evidence: Evidence, members: Tensor, weights: Tensor) -> Evidence:
    """The same tasks with class means expected around a mean of the task, where they ask for one.

    Classes of another world than the base classes (birds, where the base set has everything) all
    lie to one side of mu0. Were they expected around it, a class whose supports lack a view would
    be thought far from where all rows have theirs. In prior coordinates a class mean has a squared
    length of one on average, and the mean of C of them of 1 / C. Where the mean of a task, in which
    all classes count the same, given supports and queries of these probabilities [T, N_Q, C], is
    longer by `SURELY` standard deviations, the task has an offset: the share of that mean that
    James and Stein (1961) would keep.
    """
    way, size = members.shape[-1], members.shape[1] + weights.shape[1]
    scale = size / way / (members.sum(1) + weights.sum(1))[:, None]
    pooled = ((part * scale).sum(-1, keepdim=True) for part in (members, weights))
    found = [
        (mean[:, 0], covariance[:, 0, :2].diagonal(dim1=-2, dim2=-1).sum((-2, -1)))
        for _, mean, covariance, _ in _solved(evidence, posterior(evidence, *pooled))
    ]
    mean, unknown = map(torch.cat, zip(*found, strict=True))
    known = (mean.shape[-1] - unknown).clamp(min=1e-12)  # coordinates
    mean = mean[:, : evidence.query.shape[-1]]
    usual = known / way * (1 + SURELY * (2 / known).sqrt())
    kept = (1 - usual / mean.square().sum(-1).clamp(min=1e-12)).clamp(min=0)
    if not bool((kept > 0).any()):
        return evidence
    return evidence.shifted(kept[:, None] * mean)


def _solved(evidence: Evidence, belief: Posterior) -> Iterator[tuple[int, Tensor, Tensor, Tensor]]:
    """Solve beliefs, so many tasks at a time as stay in the caches of a CPU.

    Yields the number of the first of n tasks, means [n, C, 2 h] and covariances of beliefs as
    `halves` [n, C, 3, h, h], and log determinants of their precisions [n, C].
    """
    n_tasks, way = belief.shift.shape[:2]
    half = evidence.halves.shape[-1]
    shifts = pad(belief.shift, (0, 2 * half - belief.shift.shape[-1]))
    size = max(1, (GPU_CHUNK if shifts.is_cuda else INVERTED) // (way * 4 * half**2))
    for first in range(0, n_tasks, size):
        counts, shift = (x[first : first + size] for x in (belief.counts, shifts))
        precision = evidence.precisions(counts, first)
        log_size = invert_halves(precision).reshape(shift.shape[:2])
        mean = times_halves(shift.flatten(0, 1)[:, None], precision).reshape(shift.shape)
        yield first, mean, precision.reshape(*shift.shape[:2], 3, half, half), log_size


def variational_scores(evidence: Evidence, belief: Posterior) -> tuple[Tensor, Tensor]:
    """-1/2 [(x - m)' K (x - m) + tr(K C)] without what is the same for all classes: [T, N_Q, C].

    Also the log normalisers Z of the beliefs, [T, C].
    """
    rank = belief.shift.shape[-1]
    if belief.counts.shape[2] == 1:  # everybody has all views that occur: there A_o is diagonal
        information = evidence.information.diagonal(dim1=-2, dim2=-1)
        precision = 1 + evidence._multiplied(belief.counts, information)
        mean, log_size = belief.shift / precision, precision.log().sum(-1)
        spread = evidence._multiplied(mean.square() + 1 / precision, information.mT)
    else:
        found = []
        for first, mean, moments, log_size in _solved(evidence, belief):
            upper, lower = mean.flatten(0, 1).chunk(2, dim=-1)
            ends = (upper, upper), (lower, lower), (upper, lower)
            for part, (left, right) in zip(moments.flatten(0, 1).unbind(1), ends, strict=True):
                part.addcmul_(left[..., None], right[:, None])  # C + m m'
            spread = evidence.traces(moments.flatten(-3), first)
            found.append((mean[..., :rank], spread, log_size))
        mean, spread, log_size = map(torch.cat, zip(*found, strict=True))
    normaliser = ((mean * belief.shift).sum(-1) - log_size) / 2
    index = evidence.query_pattern[..., None].expand(-1, -1, mean.shape[1])
    spread = spread.transpose(1, 2).gather(1, index)
    return evidence.query @ mean.transpose(1, 2) - spread / 2, normaliser


def predictive_scores(evidence: Evidence, members: Tensor) -> Tensor:
    """log N(x_o; m_o, (S + C)_oo) up to a constant per query: [T, N_Q, C].

    Beliefs about class means come from the supports alone, weights [T, N_S, C]. Classes with the
    same support patterns share their precision, so one factorisation serves all (class, query)
    pairs with the same patterns: with one shot a few thousand of them whatever the number of tasks.
    """
    belief = posterior(evidence, members)
    (n_tasks, way, rank), half = belief.shift.shape, evidence.halves.shape[-1]
    n_query, n_patterns = evidence.query.shape[1], belief.counts.shape[2]
    # And one more query that says nothing.
    shift = belief.shift[:, None] + pad(evidence.query, (0, 0, 0, 1))[:, :, None]
    shift = shift.reshape(-1, rank)
    # Numbers drawn for patterns add up to the same where the same patterns come together, also of
    # a query like the supports of another class and one of that class like these.
    seed = streams(torch.zeros(1, dtype=torch.int64), "pairs")
    drawn = uniform(seed, n_patterns, torch.float64)[0].to(shift.device)
    own = belief.counts.double() @ drawn
    firsts, kind = _first_of_its_kind(own.flatten())
    precision = evidence.precisions(belief.counts.flatten(0, 1)[firsts][None])
    information = pad(evidence.halves, (0, 0) * 3 + (0, 1))
    sums = pad(drawn[evidence.query_pattern], (0, 1))[..., None] + own[:, None]
    pairs, which = _first_of_its_kind(sums.flatten())
    out = shift.new_empty(len(shift))
    sizes = torch.bincount(which, minlength=len(pairs))
    # Groups of like size go together, so that little is padded.
    by_size = sizes.argsort(stable=True)
    rank_of = torch.empty_like(by_size)
    rank_of[by_size] = torch.arange(len(by_size), device=by_size.device)
    which = rank_of[which]
    pairs, sizes = pairs[by_size], sizes[by_size]
    task, number = pairs // ((n_query + 1) * way), pairs // way % (n_query + 1)
    kind = kind[task * way + pairs % way]
    pattern = pad(evidence.query_pattern, (0, 1), value=n_patterns)[task, number]
    order = which.argsort(stable=True)
    starts = sizes.cumsum(0) - sizes
    listed = sizes.tolist()
    low, end, chunk = 0, 0, GPU_CHUNK if shift.is_cuda else CHUNK
    while low < len(listed):
        high = low + 1
        while high < len(listed) and (high + 1 - low) * rank * max(rank, listed[high]) <= chunk:
            high += 1
        begin, end = end, end + sum(listed[low:high])
        rows = order[begin:end]
        group = which[rows] - low
        slot = torch.arange(begin, end, device=rows.device) - starts[low:high][group]
        padded = shift.new_zeros(high - low, listed[high - 1], 2 * half)
        padded[group, slot, :rank] = shift[rows]
        matrix = precision[kind[low:high]] + information[pattern[low:high]]
        log_size = invert_halves(matrix)
        found = (times_halves(padded, matrix) * padded).sum(-1)
        out[rows] = ((found - log_size[:, None]) / 2)[group, slot]
        low = high
    out = out.reshape(n_tasks, n_query + 1, way)
    return out[:, :-1] - out[:, -1:]


def _first_of_its_kind(numbers: Tensor) -> tuple[Tensor, Tensor]:
    """Positions of the first of every different number, and which of them everyone's is."""
    found, which = torch.unique(numbers, return_inverse=True)
    place = torch.arange(len(which), device=which.device)
    out = place.new_zeros(len(found))
    return out.scatter_reduce_(0, which, place, "amin", include_self=False), which
