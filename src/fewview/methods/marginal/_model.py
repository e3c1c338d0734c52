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

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from itertools import accumulate, pairwise
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.nn.functional import pad

from fewview.methods.marginal._inverse import (
    ROUND,
    Halves,
    Inverse,
    Turned,
    TurnedInverse,
    cholesky,
    half_width,
    inverse_of,
    packed,
    unpacked,
)
from fewview.methods.marginal._outside import Outside
from fewview.numerics._cores import on_all_cores, share_of
from fewview.numerics.iterate import map_tensors
from fewview.numerics.tensor_random import streams, uniform

# Elements of the largest tensor made at once while queries are scored: what stays in the caches of
# a CPU. A GPU has none to mind; few large pieces keep it busy.
CHUNK, GPU_CHUNK = 1 << 19, 1 << 27
# The same of matrices that are inverted.
INVERTED = 1 << 20
# Of the coordinates at most this share may depend on each other, or turning them is not worth it.
OWN = 0.7
# With more patterns than that, which takes seven views, none has a gain of its own.
MANY = 64
# Ranges of patterns that are looked at one after the other.
RANGES = 4
# Which patterns, all of them where it is None.
Used = Sequence[slice | Tensor] | None
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
        return columns_of(views, self.dims)


def columns_of(views: Tensor, dims: tuple[int, ...]) -> Tensor:
    """Positions of the coordinates of some views, bool [V], of which each has so many."""
    widths = torch.tensor(dims, device=views.device)
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


class Lost(NamedTuple):
    """What rows with few empty cells say less than others with their views: A_o - V'V, not A_o."""

    kind: Tensor  # of which kind queries are, -1 of none, int64 [T, N_Q]
    like: Tensor  # patterns that they would have with these cells, int64 [T, N_Q]
    less: Tensor  # V of every kind, zeros at the end, [kinds, m, k]
    counts: Tensor  # rows of V that are not zero, [kinds]

    @property
    def size(self) -> Tensor:
        """b of queries whose V has 2^(b - 1) rows at most; 0 where nothing is lost, [T, N_Q]."""
        bits = self.counts[self.kind].double().log2().ceil().long() + 1
        return torch.where(self.kind < 0, 0, bits)

    def of(self, kinds: Tensor) -> Tensor:
        """V of rows of these kinds, [n, m, k]."""
        return self.less[kinds, : int(self.counts[kinds].max())]


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
    turned: Turned | None = None  # the same as `information`, where coordinates are such
    lost: Lost | None = None  # how queries can be scored by themselves without matrices of theirs

    def tasks(self, key: Tensor) -> Evidence:
        """Return the evidence of some of the tasks, int64 [n], rising."""
        names = ("support", "query", "support_pattern", "query_pattern")
        found: dict[str, Any] = {name: getattr(self, name)[key] for name in names}
        found["lost"] = None
        if self.sizes:
            ends = torch.tensor([*accumulate(self.sizes)], device=key.device)
            before = torch.searchsorted(key, ends).tolist()
            found["sizes"] = tuple(high - low for low, high in pairwise([0, *before]))
        if self.outside is not None:
            found["outside"] = self.outside.tasks(key)
        if self.remainder is not None:
            found["remainder"] = self.remainder[key]
        return self.of_others(found)

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
        sizes = tuple(times * size for size in self.sizes)
        return self.of_others({"sizes": sizes, "lost": None} | found)

    def without_supports(self) -> Evidence:
        """The same of queries alone."""
        none = {"support": self.support[:, :0], "support_pattern": self.support_pattern[:, :0]}
        return self.of_others(none)

    def of_others(self, found: Mapping[str, Any]) -> Evidence:
        """The same patterns in other samples; what was made of them is not made again."""
        out = replace(self, **found)
        vars(out).update({k: v for k, v in vars(self).items() if k in ("_packed", "_both_sides")})
        return out

    def counts(self, members: Tensor, pattern: Tensor, known: Tensor | None = None) -> Tensor:
        """Weight of every pattern in every class: members [T, N, C] -> [T, C, P]; plus `known`."""
        shape = *members.shape[::2], self.information.shape[-3]
        out = members.new_zeros(shape) if known is None else known.clone()
        index = pattern[:, None].expand(-1, members.shape[2], -1)
        return out.scatter_add_(2, index, members.transpose(1, 2).contiguous())

    @property
    def half(self) -> int:
        """Columns of a half of matrices, where these are held by halves."""
        return half_width(self.information.shape[-1])

    @property
    def width(self) -> int:
        """Coordinates of beliefs that are solved, the last of them for nothing."""
        return self.information.shape[-1] if self.turned is not None else 2 * self.half

    @property
    def numbers(self) -> int:
        """Of the matrix of a belief, and what is made of it beside."""
        return self.width**2 if self.turned is None else 4 * len(self.turned.loads) ** 2

    @cached_property
    def _packed(self) -> Tensor:
        """A_o of every pattern as a row of numbers, [..., P, size]."""
        return packed(self.information)

    def inverse(self, counts: Tensor, first: int = 0, used: Used = None) -> Inverse | TurnedInverse:
        """Of the precisions I + sum of counts A_o of beliefs with counts [n, C, P]: n C of them.

        They are about tasks from `first` on. Of the patterns those `used` are looked at.
        """
        if self.turned is not None:
            return self.turned.inverse(counts.flatten(0, 1))
        return inverse_of(unpacked(self.precisions(counts, first, used), self.half))

    def with_one_more(self, counts: Tensor) -> Callable[[Tensor, Tensor], Inverse | TurnedInverse]:
        """Inverses, by kinds of beliefs and patterns, of precisions with counts [m, P] of a kind
        and one sample of a pattern more, or none where the pattern is P."""
        if self.turned is not None:
            one = pad(
                torch.eye(counts.shape[1], dtype=counts.dtype, device=counts.device), (0, 0, 0, 1)
            )
            turned = self.turned
            return lambda kind, pattern: turned.inverse(counts[kind] + one[pattern])
        known, more = self.precisions(counts[:, None]), pad(self._packed, (0, 0, 0, 1))
        return lambda kind, pattern: inverse_of(unpacked(known[kind] + more[pattern], self.half))

    def spread(
        self, inverse: Inverse | TurnedInverse, mean: Tensor, first: int, used: Used
    ) -> Tensor:
        """tr A_o (C + m m') for inverses C and means m [n, C, width]; likewise, [n, C, P]."""
        if isinstance(inverse, TurnedInverse):
            return inverse.spread(mean.flatten(0, 1)).reshape(*mean.shape[:2], -1)
        room = mean.new_empty(mean.shape[:2].numel(), self._packed.shape[-1])
        _add_squares(inverse.halves(), mean.flatten(0, 1), unpacked(room, self.half))
        return self.traces(room.reshape(*mean.shape[:2], -1), first, used)

    def used(self, counts: Tensor, first: int) -> Used:
        """Patterns of beliefs with counts [n, C, P], and of queries, of tasks from `first` on.

        None where there are not many, so that all of them are multiplied; a GPU would have to wait
        to hear which. Where most of them follow each other, as those of rows with empty cells do,
        they are ranges, which need not be copied.
        """
        if counts.is_cuda or self.sizes or self.turned or counts.shape[-1] <= MANY:
            return None
        there = counts.flatten(0, 1).any(0)
        there[self.query_pattern[first : first + len(counts)].flatten()] = True
        found = there.nonzero()[:, 0]
        breaks = found.diff().topk(min(RANGES - 1, len(found) - 1)).indices.sort().values.tolist()
        ends = [-1, *breaks, len(found) - 1]
        ranges = [slice(int(found[low + 1]), int(found[high]) + 1) for low, high in pairwise(ends)]
        covered = sum(part.stop - part.start for part in ranges)
        return ranges if covered <= 2 * len(found) else [found]

    def precisions(self, counts: Tensor, first: int = 0, used: Used = None) -> Tensor:
        """I + sum of counts A_o of beliefs with counts [n, C, P] about tasks from `first` on.

        As rows of numbers, [n C, size]. Of the patterns those `used` are looked at.
        """
        if used is None:
            out = self._multiplied(counts, self._packed, first).flatten(0, 1)
        else:
            flat = counts.flatten(0, 1)
            out = flat[:, used[0]] @ self._packed[used[0]]
            for part in used[1:]:
                out.addmm_(flat[:, part], self._packed[part])
        for diagonal in unpacked(out, self.half).diagonals():
            diagonal.add_(1.0)
        return out

    def traces(self, moments: Tensor, first: int = 0, used: Used = None) -> Tensor:
        """Traces of products of A_o with moments [n, C, size], whose side has its sign changed.

        Likewise: [n, C, P], zero where a pattern is not used.
        """
        if used is None:
            return self._multiplied(moments, self._both_sides.mT, first)
        out = moments.new_zeros(*moments.shape[:2], len(self.information))
        for part in used:
            out[..., part] = moments @ self._both_sides[part].mT
        return out

    @cached_property
    def _both_sides(self) -> Tensor:
        """`_packed`, the side with its sign changed and counted twice, as it is there for two."""
        out, square = self._packed.clone(), self.half**2
        out[..., square : 2 * square] *= -2
        return out

    def shifted(self, mean: Tensor) -> Evidence:
        """The same with mu0 moved to W mean, [T, k]."""
        steps = self._multiplied(mean[:, None], self.information.transpose(-3, -2).flatten(-2))
        steps = steps.reshape(len(mean), -1, mean.shape[1])  # A_o mean, [T, P, k]
        found = {}
        for name in ("support", "query"):
            rows, pattern = getattr(self, name), getattr(self, f"{name}_pattern")
            found[name] = rows - steps.gather(1, pattern[..., None].expand_as(rows))
        return self.of_others(found)

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
            way = next(p.outside.shift.shape[1] for p in parts if p.outside is not None)
            outside = Outside.join([p.outside or Outside.nothing(p.query, way) for p in parts])
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


def turned_root(model: Gaussians, views: Tensor, root: Tensor) -> tuple[Tensor, int, int] | None:
    """W in coordinates of which all but some are independent given those, whatever is missing.

    None where these would be most. `root` is W on the coordinates of some views, bool [V]. With v
    the widest of them and r the others, all that is told about z by a sample without v lies in the
    span of W_r, and what one with v tells beyond what v tells by itself in the span of
    W_r - S_rv inv(S_vv) W_v. So outside those two, 2 d_r directions, samples with v tell the same
    whatever else they have, and the others nothing. Also the widest view, and the number of
    coordinates that come first.
    """
    widths = torch.where(views.cpu(), torch.tensor(model.dims), 0)
    widest = int(widths.argmax())
    width, count = root.shape[1], 2 * (len(root) - model.dims[widest])
    own = -(-count // ROUND) * ROUND
    if not 0 < own <= OWN * width:
        return None
    here = torch.zeros_like(views)
    here[widest] = True
    wide = torch.repeat_interleave(here[views], widths[views.cpu()].to(views.device))
    columns = model.columns(views)
    within = model.within[columns][:, columns].double()
    part, gain = information_of(within[wide][:, wide], root[wide])
    beyond = root[~wide] - within[~wide][:, wide] @ gain
    basis = torch.linalg.qr(torch.cat((root[~wide], beyond)).T, mode="complete").Q
    spare = basis[:, count:]
    spare = spare @ torch.linalg.eigh(spare.T @ part @ spare).eigenvectors
    return root @ torch.cat((basis[:, :count], spare), dim=1), widest, own


@dataclass
class Kept:
    """What `gather_evidence` need not compute again for more samples under the same model."""

    # Views that occur at all, and whether in one pattern only -> W, and where it is turned, the
    # widest view and how many coordinates come first.
    roots: dict[tuple[bytes, bool], tuple[Tensor, tuple[int, int] | None]] = field(
        default_factory=dict
    )
    # (what W is of, pattern) -> what the pattern tells, see `_told`.
    gains: dict[tuple[Any, bytes], tuple[Tensor, Tensor, Tensor]] = field(default_factory=dict)
    # Of empty cells, see `_empty_cells.Space`: under S, and under S + B.
    spaces: dict[str, Any] = field(default_factory=dict)
    # Numbers that still may be kept; with many views there are thousands of patterns.
    room: int = 1 << 24


# Some of the tasks, and what makes their samples.
Part = tuple[slice, Callable[[], Tensor]]


def gather_evidence(
    model: Gaussians,
    parts: Sequence[Part],
    mask: Tensor,
    n_support: int,
    rank: int | None = None,
    kept: Kept | None = None,
    turns: bool = True,
) -> tuple[Evidence, Tensor]:
    """Bring projected samples into prior coordinates, by pattern of views.

    Args:
        model: with which they are looked at.
        parts: some tasks after the others, and what makes their samples, [T', N, d], supports
            first.
        mask: of all of them, [T, N, V].
        n_support: supports of a task.
        rank: see `prior_root`.
        kept: results of earlier calls with this model and rank, which grow here.
        turns: whether coordinates may be those of `turned_root`.

    Returns:
        evidence: what the samples say.
        root: W, [d, k], zeros in views that nobody has.
    """
    patterns, flat = unique_patterns(mask.flatten(0, 1))
    pattern = flat.reshape(mask.shape[:2])
    kept = Kept(room=0) if kept is None else kept
    listed = patterns.tolist()  # a GPU is waited for once
    # In one pattern W as it is makes A_o diagonal.
    whole = bytes(map(any, zip(*listed, strict=True))), len(patterns) == 1 or not turns
    if whole not in kept.roots:
        occurring = patterns.any(0)
        known = model.columns(occurring)
        root = prior_root(model, known, rank)
        other = None if whole[1] else turned_root(model, occurring, root)
        out = root.new_zeros(sum(model.dims), root.shape[1])
        out[known] = root if other is None else other[0]
        kept.roots[whole] = out, None if other is None else other[1:]
    root, turned = kept.roots[whole]
    if len(patterns) > MANY:
        rows = torch.cat([make() for _, make in parts]).flatten(0, 1)
        known = model.columns(patterns.any(0))
        within = model.within[known][:, known].double()
        wide = torch.repeat_interleave(patterns, torch.tensor(model.dims, device=mask.device), 1)
        found = evidence_of_many(
            within, root[known], (rows - model.mean)[:, known], wide[:, known], flat
        )
        information, evidence = (part.to(rows.dtype) for part in found)
        evidence = evidence.reshape(*pattern.shape, -1)
    else:
        told = [
            _told(model, views, root, (whole, bytes(name)), kept)
            for views, name in zip(patterns, listed, strict=True)
        ]
        information = torch.stack([matrix for matrix, _, _ in told])
        evidence = _of_few(parts, pattern, [what for _, *what in told])
    found_evidence = Evidence(
        information,
        support=evidence[:, :n_support],
        query=evidence[:, n_support:],
        support_pattern=pattern[:, :n_support],
        query_pattern=pattern[:, n_support:],
        turned=None
        if turned is None
        else Turned.of(information, patterns[:, turned[0]], turned[1]),
    )
    return found_evidence, root


def _told(
    model: Gaussians, views: Tensor, root: Tensor, name: Any, kept: Kept
) -> tuple[Tensor, Tensor, Tensor]:
    """Of a pattern, bool [V]: A_o [k, k]; inv(S_oo) W, zeros in other coordinates, [d, k], which
    samples are to be multiplied with; and what is to be added then, [k]."""
    if name in kept.gains:
        return kept.gains[name]
    dtype, columns = model.mean.dtype, model.columns(views)
    matrix, part = information_of(model.within[columns][:, columns], root[columns])
    gain = torch.zeros_like(root, dtype=dtype)
    gain[columns] = part.to(dtype)
    found = matrix.to(dtype), gain, -model.mean @ gain
    size = found[0].numel() + found[1].numel()
    if size <= kept.room:
        kept.gains[name] = found
        kept.room -= size
    return found


def _of_few(parts: Sequence[Part], pattern: Tensor, gains: Sequence[Sequence[Tensor]]) -> Tensor:
    """g of samples [T, N, k] of a few patterns [T, N], by gains [d, k] and what is added, [k]."""
    out = gains[0][0].new_empty(*pattern.shape, gains[0][0].shape[1])

    def put(part: Part) -> None:
        tasks, make = part
        here = pattern[tasks].flatten()
        order = here.argsort(stable=True)
        rows = make().flatten(0, 1)[order]
        ends = torch.bincount(here, minlength=len(gains)).cumsum(0).tolist()
        found = out.new_empty(len(rows), out.shape[2])
        for (start, end), (gain, offset) in zip(pairwise([0, *ends]), gains, strict=True):
            if start < end:
                torch.addmm(offset, rows[start:end], gain, out=found[start:end])
        out[tasks].flatten(0, 1)[order] = found

    on_all_cores(put, parts, out.device)
    return out


class _Side(NamedTuple):
    """Patterns that are told by what they have, or by what they lack; see `evidence_of_many`."""

    sign: float
    chosen: Tensor  # which they are, bool [P]
    where: Tensor  # coordinates that they have or lack, bool [P, d]
    matrix: Tensor  # S or its inverse
    left: Tensor  # W, times that
    right: Tensor  # samples, likewise


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
    sides = [_Side(1.0, ~lacks, present, within, root, samples)]
    if bool(lacks.any()):
        precision = torch.cholesky_inverse(cholesky(within))
        told, seen = precision @ root, samples @ precision
        information[lacks] = root.T @ told
        here = lacks[pattern]
        evidence[here] = samples[here] @ told
        sides.append(_Side(-1.0, lacks, ~present, precision, told, seen))
    counts = torch.bincount(pattern, minlength=len(present))
    order, starts = pattern.argsort(stable=True), counts.cumsum(0) - counts

    def add(side: _Side, sizes: Tensor, group: Tensor) -> None:
        width, most = int(sizes[group].max()), int(counts[group].max())
        index = side.where[group].int().argsort(dim=1, descending=True, stable=True)[:, :width]
        square = torch.take(side.matrix, index[:, :, None] * len(within) + index[:, None])
        slots = torch.arange(most, device=index.device)
        rows = order[(starts[group, None] + slots).clamp(max=len(order) - 1)]
        both = torch.cat((side.left[index], side.right[rows[:, None], index[..., None]]), -1)
        if int(sizes[group[0]]) < width:  # they come in order of their size
            real = torch.arange(width, device=index.device) < sizes[group, None]
            square *= real[:, :, None] & real[:, None]
            square.diagonal(dim1=1, dim2=2)[~real] = 1.0
            both *= real[..., None]
        both = torch.linalg.solve_triangular(cholesky(square), both, upper=False)
        half, own = both.split((root.shape[1], most), -1)
        information[group] += side.sign * (half.mT @ half)
        taken = slots < counts[group, None]
        evidence[rows[taken]] += side.sign * (own.mT @ half)[taken]

    for side in sides:
        sizes = side.where.sum(1)
        found = (side.chosen & (sizes > 0)).nonzero()[:, 0]
        found = found[sizes[found].argsort(stable=True)]
        groups = in_chunks(found, sizes[found].tolist(), counts[found].tolist(), root.shape[1])
        on_all_cores(partial(add, side, sizes), groups, root.device)
    return information, evidence


def in_chunks(
    patterns: Tensor,
    sizes: list[int],
    counts: list[int],
    columns: int,
    on_gpu: int = GPU_CHUNK,
) -> Iterator[Tensor]:
    """Patterns in order of their size, so many at a time as make tensors of `CHUNK` numbers.

    Of a pattern there are size x (columns + rows) numbers, or the square of its size.
    """
    low, chunk = 0, on_gpu if patterns.is_cuda else CHUNK
    while low < len(sizes):
        high, most = low + 1, counts[low]
        while high < len(sizes):
            most = max(most, counts[high])
            wide = max(sizes[high], columns + most)
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
    out = Posterior(counts, members.transpose(1, 2) @ evidence.support)
    return out if responsibilities is None else with_queries(evidence, out, responsibilities)


def with_queries(evidence: Evidence, belief: Posterior, responsibilities: Tensor) -> Posterior:
    """Beliefs that queries, weights [T, N_Q, C], are added to."""
    return Posterior(
        evidence.counts(responsibilities, evidence.query_pattern, belief.counts),
        torch.baddbmm(belief.shift, responsibilities.transpose(1, 2), evidence.query),
    )


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

    def look(solved: _Solved) -> tuple[Tensor, Tensor]:
        return solved.mean[:, 0], solved.inverse.unknown()

    mean, unknown = _solve(evidence, posterior(evidence, *pooled), look)
    known = (mean.shape[-1] - unknown).clamp(min=1e-12)  # coordinates
    mean = mean[:, : evidence.query.shape[-1]]
    usual = known / way * (1 + SURELY * (2 / known).sqrt())
    kept = (1 - usual / mean.square().sum(-1).clamp(min=1e-12)).clamp(min=0)
    if not bool((kept > 0).any()):
        return evidence
    return evidence.shifted(kept[:, None] * mean)


class _Solved(NamedTuple):
    """Beliefs of n tasks that were solved."""

    first: int  # number of the first task
    used: Used  # patterns, see `Evidence.used`
    mean: Tensor  # [n, C, width]
    inverse: Inverse | TurnedInverse  # of n C precisions


def _solve(
    evidence: Evidence,
    belief: Posterior,
    use: Callable[[_Solved], tuple[Tensor, ...]],
    alike: bool = False,
) -> tuple[Tensor, ...]:
    """Solve beliefs, so many tasks at a time as stay in the caches of a CPU, and use them.

    Gives what `use` gives of all tasks. Where many precisions are `alike`, each is inverted once;
    a GPU would have to wait to hear which.
    """
    n_tasks, way = belief.shift.shape[:2]
    spare = evidence.width - belief.shift.shape[-1]
    shifts = pad(belief.shift, (0, spare)) if spare else belief.shift
    size = (GPU_CHUNK if shifts.is_cuda else INVERTED) // (way * evidence.numbers)
    size, shared = max(1, size if shifts.is_cuda else min(size, share_of(n_tasks))), None
    if alike and not shifts.is_cuda:
        drawn = _drawn(belief.counts.shape[2], shifts.device)
        firsts, kind = first_of_its_kind((belief.counts.double() @ drawn).flatten())
        if len(firsts) * 2 < len(kind):
            shared = evidence.inverse(belief.counts.flatten(0, 1)[firsts][:, None])

    def solve(first: int) -> tuple[Tensor, ...]:
        counts, shift = (x[first : first + size] for x in (belief.counts, shifts))
        used = evidence.used(counts, first)
        if shared is None:
            inverse = evidence.inverse(counts, first, used)
        else:
            inverse = shared.at(kind[first * way : (first + len(counts)) * way])
        mean = inverse.times(shift.flatten(0, 1)[:, None]).reshape(shift.shape)
        return use(_Solved(first, used, mean, inverse))

    done = on_all_cores(solve, range(0, n_tasks, size), shifts.device)
    return done[0] if len(done) == 1 else tuple(map(torch.cat, zip(*done, strict=True)))


@lru_cache(maxsize=8)
def _drawn(count: int, device: torch.device) -> Tensor:
    """A number for every pattern; they add up to the same where the same patterns come together."""
    seed = streams(torch.zeros(1, dtype=torch.int64), "pairs")
    return uniform(seed, count, torch.float64)[0].to(device)


def variational_scores(
    evidence: Evidence, belief: Posterior, alike: bool = False
) -> tuple[Tensor, Tensor]:
    """-1/2 [(x - m)' K (x - m) + tr(K C)] without what is the same for all classes: [T, N_Q, C].

    Also the log normalisers Z of the beliefs, [T, C]. Beliefs from supports only are often `alike`.
    """
    rank = belief.shift.shape[-1]
    if belief.counts.shape[2] == 1:  # everybody has all views that occur: there A_o is diagonal
        information = evidence.information.diagonal(dim1=-2, dim2=-1)
        precision = 1 + evidence._multiplied(belief.counts, information)
        mean, log_size = belief.shift / precision, precision.log().sum(-1)
        spread = evidence._multiplied(mean.square() + 1 / precision, information.mT)
    else:

        def use(solved: _Solved) -> tuple[Tensor, ...]:
            first, used, mean, inverse = solved
            spread = evidence.spread(inverse, mean, first, used)
            return mean[..., :rank], spread, inverse.log_size.reshape(mean.shape[:2])

        mean, spread, log_size = _solve(evidence, belief, use, alike)
    normaliser = ((mean * belief.shift).sum(-1) - log_size) / 2
    index = evidence.query_pattern[..., None].expand(-1, -1, mean.shape[1])
    spread = spread.transpose(1, 2).gather(1, index)
    return torch.baddbmm(spread, evidence.query, mean.transpose(1, 2), beta=-0.5), normaliser


def _add_squares(covariances: Halves, means: Tensor, out: Halves) -> None:
    """C + m m' with the sign of the side changed, as it is in `covariances`; means [n, 2 h]."""
    upper, lower = means.chunk(2, dim=-1)
    torch.addcmul(covariances.corner, upper[..., None], upper[:, None], out=out.corner)
    torch.addcmul(covariances.side, upper[..., None], lower[:, None], value=-1, out=out.side)
    torch.addcmul(covariances.end, lower[..., None], lower[:, None], out=out.end)


def predictive_scores(evidence: Evidence, members: Tensor) -> Tensor:
    """log N(x_o; m_o, (S + C)_oo) up to a constant per query: [T, N_Q, C].

    Beliefs about class means come from the supports alone, weights [T, N_S, C]. Classes with the
    same support patterns share their precision, so one factorisation serves all (class, query)
    pairs with the same patterns: with one shot a few thousand of them whatever the number of tasks.
    """
    belief = posterior(evidence, members)
    n_tasks, way, rank = belief.shift.shape
    n_query, n_patterns = evidence.query.shape[1], belief.counts.shape[2]
    # And one more query that says nothing.
    queries = pad(evidence.query, (0, 0, 0, 1)).flatten(0, 1)
    shifts = belief.shift.flatten(0, 1)
    # A query like the supports of another class and one of that class like these are one pair.
    drawn = _drawn(n_patterns, queries.device)
    own = belief.counts.double() @ drawn
    firsts, kind = first_of_its_kind(own.flatten())
    inverse_with = evidence.with_one_more(belief.counts.flatten(0, 1)[firsts])
    # Rows that lack few cells are with others that have their views and lack about as many.
    lost, patterns = evidence.lost, evidence.query_pattern
    bits = torch.zeros_like(patterns)
    if lost is not None:
        patterns, bits = torch.where(lost.kind < 0, patterns, lost.like), lost.size
    sums = pad(drawn[patterns] + math.pi * bits, (0, 1))[..., None] + own[:, None]
    pairs, which = first_of_its_kind(sums.flatten())
    out = queries.new_empty(len(which))
    sizes = torch.bincount(which, minlength=len(pairs))
    bits = pad(bits, (0, 1)).flatten()[pairs // way]
    # Groups of like size go together, so that little is padded.
    by_size = sizes.argsort(stable=True)
    by_size = by_size[bits[by_size].argsort(stable=True)]
    rank_of = torch.empty_like(by_size)
    rank_of[by_size] = torch.arange(len(by_size), device=by_size.device)
    which = rank_of[which]
    pairs, sizes = pairs[by_size], sizes[by_size]
    task, number = pairs // ((n_query + 1) * way), pairs // way % (n_query + 1)
    kind = kind[task * way + pairs % way]
    pattern = pad(patterns, (0, 1), value=n_patterns)[task, number]
    order = which.argsort(stable=True)
    starts = sizes.cumsum(0) - sizes
    listed, bits_of = sizes.tolist(), bits[by_size].tolist()
    lacking = None if lost is None else pad(lost.kind, (0, 1)).flatten()

    def answer(groups: range) -> None:
        """Pairs of patterns one after another, as rows of one tensor."""
        low, high = groups.start, groups.stop
        begin = int(starts[low])
        rows = order[begin : begin + sum(listed[low:high])]
        group = which[rows] - low
        slot = torch.arange(begin, begin + len(rows), device=rows.device) - starts[low + group]
        padded = out.new_zeros(high - low, listed[high - 1], evidence.width)
        asked = rows // way
        padded[group, slot, :rank] = (
            queries[asked] + shifts[asked // (n_query + 1) * way + rows % way]
        )
        inverse = inverse_with(kind[low:high], pattern[low:high])
        solved = inverse.times(padded)
        found = (((solved * padded).sum(-1) - inverse.log_size[:, None]) / 2)[group, slot]
        if lost is not None and lacking is not None and bits_of[low]:
            less = lost.of(lacking[asked])
            found += _without(less, inverse, (group, slot), solved[group, slot, :rank])
        out[rows] = found

    on_all_cores(answer, _alike(listed, bits_of, rank, out.is_cuda), out.device)
    out = out.reshape(n_tasks, n_query + 1, way)
    return out[:, :-1] - out[:, -1:]


def _alike(sizes: list[int], bits: list[int], rank: int, on_gpu: bool) -> Iterator[range]:
    """Groups of rows in order, with as many bits each, so many as make tensors of `CHUNK`."""
    low, chunk = 0, GPU_CHUNK if on_gpu else CHUNK
    while low < len(sizes):
        high, wide = low + 1, 1 << bits[low]
        while high < len(sizes) and bits[high] == bits[low]:
            if (high + 1 - low) * rank * max(rank, sizes[high] * wide) > chunk:
                break
            high += 1
        yield range(low, high)
        low = high


def _without(
    less: Tensor, inverse: Inverse | TurnedInverse, where: tuple[Tensor, Tensor], solved: Tensor
) -> Tensor:
    """What Z = (h' inv(M) h - log det M) / 2 gains as M loses V'V, by the lemma of Woodbury: [n].

    `less` is V of every row [n, m, k], `inverse` is of the M of every group, `solved` inv(M) h
    [n, k], and `where` has the groups of the rows and their places there.
    """
    group, slot = where
    count, width = less.shape[1:]
    wide = 2 * inverse.first.shape[-1]
    room = less.new_zeros(len(inverse.first), int(slot.max()) + 1, count, wide)
    room[group, slot, :, :width] = less
    told = inverse.times(room.flatten(1, 2)).reshape(room.shape)[group, slot, :, :width]
    eye = torch.eye(count, dtype=less.dtype, device=less.device)
    factor = cholesky(eye - told @ less.mT)
    along = torch.linalg.solve_triangular(factor, less @ solved[..., None], upper=False)[..., 0]
    gained: Tensor = along.square().sum(-1) / 2 - factor.diagonal(dim1=1, dim2=2).log().sum(-1)
    return gained


def first_of_its_kind(numbers: Tensor) -> tuple[Tensor, Tensor]:
    """Positions of the first of every different number, and which of them everyone's is."""
    found, which = torch.unique(numbers, return_inverse=True)
    place = torch.arange(len(which), device=which.device)
    out = place.new_zeros(len(found))
    return out.scatter_reduce_(0, which, place, "amin", include_self=False), which
