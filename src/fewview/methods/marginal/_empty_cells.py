"""Empty cells: a view of which some features are unknown, integrated out exactly.

In the features of a view the model is x = centre + s Q z + e. Its components z are those of the
Gaussian model, s Q the axes turned back, and e is what they leave over: a sphere of variance r^2 in
all directions outside Q, learnt from what the base samples leave over, the same for all classes. A
complete row then says x @ axes = z and nothing more. Let a row lack the cells m, t be what it would
say with the centre in their place, A = Q_m' and G = 1 - A'A. The cells that are there say

    y = (1 + A inv(G) A') t = z + noise,   of covariance R = (r / s)^2 A inv(G) A',

and exactly nothing else. So under any covariance S of z, with K = inv(S) and D = (r / s) A,

    inv(S + R) = K - Z'Z,   inv(S + R) y = K t + Z'u,   L L' = G + D'K D,   Z = inv(L) D'K,
    u = inv(L) ((s / r) A' - D'K) t,

by the lemma of Woodbury (1950): a correction of as many rows as cells are empty, or as the view has
components where these are fewer. G may be singular: a direction of z is not told of at all. Rows go
side by side, and those that lack the same cells are one pattern.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fewview.episodes.batch import EpisodeBatch
from fewview.methods.marginal._inverse import cholesky
from fewview.methods.marginal._model import (
    MANY,
    Evidence,
    Lost,
    columns_of,
    first_of_its_kind,
    in_chunks,
    unique_patterns,
)
from fewview.methods.marginal._projection import Projection
from fewview.numerics._cores import on_all_cores
from fewview.numerics.tensor_random import streams, uniform
from fewview.samples._data import MultiViewData

# Added to products of rows of axes, so that these have Cholesky factors.
ROUNDED = 1e-13
# Rows of a pattern; of those that have more, as of tables that are filled in, some at a time.
ROWS = 1 << 10
# Where a row lacks less than this part of the coordinates, a correction is quicker than a matrix.
FEW = 4
# Numbers of a tensor that is made at once on a GPU, where there are half a dozen of these.
ON_GPU = 1 << 25
# Odd: makes one number of 64 bits of two (Knuth's MMIX).
MULTIPLIER = 6364136223846793005
# Numbers of inverses that are kept.
ROOM = 1 << 22


def has_empty_cells(batch: EpisodeBatch) -> bool:
    """Whether a present cell is NaN: sums tell, at the speed of memory, where it is not known."""
    views = (*batch.support, *batch.query)
    if not batch.has_nan or not torch.stack([view.sum() for view in views]).isnan().any():
        return False
    return any(bool(view.isnan().any()) for view in views)


def column_filled(data: MultiViewData) -> MultiViewData:
    """Base samples with the means of their columns in empty cells."""
    if not any(
        np.isnan(block[data.mask[:, v]]).any() for v, block in enumerate(data.views.values())
    ):
        return data
    blocks = {}
    for index, (view, block) in enumerate(data.views.items()):
        empty = np.isnan(block) & data.mask[:, index, None]
        if empty.any():
            known = np.where(data.mask[:, index, None] & ~empty, block, 0.0)
            count = (data.mask[:, index, None] & ~empty).sum(axis=0)
            block = np.where(empty, known.sum(axis=0) / np.maximum(count, 1), block)
        blocks[view] = block
    return MultiViewData.unchecked(
        blocks, data.mask, data.labels, data.ids, data.columns, data.name
    )


@dataclass(frozen=True)
class Space:
    """Features and components of all views under one covariance, in float64."""

    projection: Projection
    covariance: Tensor  # of components, [d, d]
    mean: Tensor  # [d]
    inverses: dict[bytes, Tensor] = field(default_factory=dict)  # K, by views that are there

    @classmethod
    def of(cls, projection: Projection, covariance: Tensor, mean: Tensor) -> Space:
        """With axes [width, components] that are orthonormal but for their length."""
        fields = ("axes", "shift", "centre", "spare")
        parts = {name: tuple(t.double() for t in getattr(projection, name)) for name in fields}
        turned = []
        for axes in parts["axes"]:
            # Those of float32 are not quite: one step of Newton's towards what is.
            gram = axes.T @ axes / axes[:, 0].square().sum()
            eye = torch.eye(len(gram), dtype=gram.dtype, device=gram.device)
            turned.append(axes @ (1.5 * eye - 0.5 * gram))
        projection = Projection(**(parts | {"axes": tuple(turned)}))
        return cls(projection, covariance.double(), mean.double())

    @cached_property
    def sizes(self) -> list[Tensor]:
        """1 / s^2 of every view."""
        return [axes[:, 0].square().sum() for axes in self.projection.axes]

    @cached_property
    def directions(self) -> list[Tensor]:
        """Q of every view."""
        pairs = zip(self.projection.axes, self.sizes, strict=True)
        return [axes / size.sqrt() for axes, size in pairs]

    @cached_property
    def rests(self) -> list[Tensor]:
        """(r / s)^2 of every view; where nothing is outside the axes any number will do."""
        parts = zip(self.projection.axes, self.projection.spare, self.sizes, strict=True)
        return [
            torch.ones_like(spare) if axes.shape[0] == axes.shape[1] else (spare * size).clamp(1e-9)
            for axes, spare, size in parts
        ]

    @cached_property
    def places(self) -> list[slice]:
        """Where the components of every view are."""
        return [slice(*ends) for ends in pairwise(accumulate(self.projection.dims, initial=0))]

    def inverse(self, views: Tensor) -> Tensor:
        """K of some views, bool [V], zeros in others."""
        name = bytes(views.tolist())
        if name in self.inverses:
            return self.inverses[name]
        here = columns_of(views, self.projection.dims)
        out = torch.zeros_like(self.covariance)
        found = torch.cholesky_inverse(cholesky(self.covariance[here][:, here]))
        out[here[:, None], here] = found
        if (len(self.inverses) + 1) * out.numel() <= ROOM:
            self.inverses[name] = out
        return out


class Lacking(NamedTuple):
    """Some patterns of cells and their rows, those of a pattern beside each other, [p, most]."""

    kinds: Tensor  # numbers of the patterns, [p]
    rows: Tensor  # positions, [p, most]
    real: Tensor  # whether there is such a row, bool [p, most]
    present: Tensor  # views that are there, bool [p, V]
    empty: tuple[Tensor, ...]  # cells of these, bool [p, width]
    inverse: Tensor  # K, [d, d]
    step: Tensor  # t less the mean, [p, most, d]
    less: Tensor  # Z, [p, m, d]
    more: Tensor  # u, [p, m, most]

    def told(self) -> Tensor:
        """inv(S + R) times y less the mean, [p, most, d]."""
        return self.step @ self.inverse + self.more.mT @ self.less


@dataclass(frozen=True)
class Patterns:
    """Rows with empty cells, by the views and cells that they lack."""

    space: Space
    views: tuple[Tensor, ...]  # of these rows, [n, width], NaN in empty cells
    present: Tensor  # views of every pattern, bool [P, V]
    firsts: Tensor  # one row of every pattern, [P]
    counts: Tensor  # rows of every pattern, [P]
    kind: Tensor  # of which pattern rows are, [n]
    places: Tensor  # of these rows among all, [n]

    @classmethod
    def of(cls, space: Space, views: tuple[Tensor, ...], mask: Tensor, which: Tensor) -> Patterns:
        """Those of the rows `which`, bool [n]; per view [n, width], and a mask [n, V]."""
        places = which.nonzero()[:, 0]
        views, mask = tuple(view[places] for view in views), mask[places]
        firsts, kind = kinds_of_rows(views, mask)
        counts = torch.bincount(kind, minlength=len(firsts))
        if len(places) > ROWS and bool((counts > ROWS).any()):
            order = kind.argsort(stable=True)
            place = torch.empty_like(kind)  # among rows of the kind
            place[order] = torch.arange(len(kind), device=kind.device)
            place -= (counts.cumsum(0) - counts)[kind]
            firsts, kind = first_of_its_kind(kind * len(kind) + place // ROWS)
            counts = torch.bincount(kind, minlength=len(firsts))
        return cls(space, views, mask[firsts], firsts, counts, kind, places)

    @cached_property
    def order(self) -> Tensor:
        """Rows, pattern by pattern, [n]."""
        return self.kind.argsort(stable=True)

    @cached_property
    def starts(self) -> Tensor:
        """Where the rows of every pattern begin in that order, [P]."""
        return self.counts.cumsum(0) - self.counts

    @cached_property
    def sizes(self) -> Tensor:
        """Rows that Z of every pattern has, [P]."""
        widths = torch.tensor(self.space.projection.dims, device=self.present.device)
        cells = [view[self.firsts].isnan().sum(1) for view in self.views]
        lost = torch.minimum(torch.stack(cells, 1), widths)
        return torch.where(self.present, lost, 0 if self.groups is not None else widths).sum(1)

    @cached_property
    def groups(self) -> tuple[Tensor, Tensor] | None:
        """Patterns of views, bool [G, V], and of which every pattern of cells is, [P].

        None where there are many, so that views that are not there are lost as cells are.
        """
        found = unique_patterns(self.present)
        return found if len(found[0]) <= MANY else None

    def each(self, use: Callable[[Lacking], None]) -> None:
        """Let `use` see all patterns, some at a time, each of them once."""
        if not len(self.firsts):
            return
        everything = torch.ones_like(self.present[:1]), torch.zeros_like(self.firsts)
        groups, group = everything if self.groups is None else self.groups
        total = torch.maximum(self.sizes, self.counts)
        most = max(len(self.space.mean), sum(view.shape[1] for view in self.views))
        pieces = []
        for number, there in enumerate(groups):
            own = (group == number).nonzero()[:, 0]
            own = own[total[own].argsort(stable=True)]
            known = there.tolist(), self.space.inverse(there)
            sizes, counts = total[own].tolist(), self.counts[own].tolist()
            for some in in_chunks(own, sizes, counts, most, ON_GPU):
                pieces.append((*known, some))
        on_all_cores(lambda piece: use(self.lacking(*piece)), pieces, self.present.device)

    def lacking(self, there: list[bool], inverse: Tensor, some: Tensor) -> Lacking:
        """What some patterns tell, [p]; `there` are the views that K, [d, d], is of."""
        space, present = self.space, self.present[some]
        slots = torch.arange(int(self.counts[some].max()), device=some.device)
        real = slots < self.counts[some, None]
        starts = self.starts[some, None]
        rows = self.order[torch.where(real, starts + slots, starts)]
        empty, told, parts = [], [], []
        for v, view in enumerate(self.views):
            own = present[:, v, None]
            empty.append(view[self.firsts[some]].isnan() & own)
            known = torch.nan_to_num(view[rows].double() - space.projection.centre[v])
            told.append((known @ space.projection.axes[v]) * own[..., None])
            if there[v]:
                lost = rows_of_axes(space.directions[v], empty[v])
                parts.append((v, lost if bool(own.all()) else _or_all(lost, own[..., None])))
        step = torch.cat(told, -1) - space.mean
        scale = {v: space.rests[v].sqrt() for v, _ in parts}
        seen = torch.cat([scale[v] * (part.mT @ inverse[space.places[v]]) for v, part in parts], 1)
        right = torch.cat([part.mT @ told[v].mT / scale[v] for v, part in parts], 1)
        square, start = seen.new_empty(*seen.shape[:2], seen.shape[1]), 0
        for v, part in parts:
            here = slice(start, start := start + part.shape[2])
            square[..., here] = scale[v] * (seen[..., space.places[v]] @ part)
            square[:, here, here] -= part.mT @ part
            square[:, here, here].diagonal(dim1=1, dim2=2).add_(1.0)
        both = torch.cat((seen, right - seen @ step.mT), -1)
        both = torch.linalg.solve_triangular(cholesky(square), both, upper=False)
        less, more = torch.split(both, [len(inverse), len(slots)], -1)
        return Lacking(
            some, self.places[rows], real, present, tuple(empty), inverse, step, less, more
        )


def kinds_of_rows(views: tuple[Tensor, ...], mask: Tensor) -> tuple[Tensor, Tensor]:
    """One row of every kind, [P], and of which kind rows are, [n]: that lack the same.

    Kinds are told by sums of whole numbers that are drawn for every cell, exact in float64: to sort
    rows is many times slower. That two have the same sums is a chance of less than one in 2^60.
    """
    widths = [mask.shape[1], *(view.shape[1] for view in views)]
    largest = 2.0 ** (52 - sum(widths).bit_length())
    drawn = uniform(streams(torch.arange(2), "cells"), sum(widths), torch.float64)
    numbers = torch.split((drawn * largest).floor().T.to(mask.device), widths)
    sums = mask.double() @ numbers[0]
    for view, present, own in zip(views, mask.T, numbers[1:], strict=True):
        sums += (view.isnan() & present[:, None]).double() @ own
    first, second = sums.long().T
    firsts, kind = first_of_its_kind(MULTIPLIER * first + second)
    order = firsts.argsort()  # kinds of neighbours have numbers that are neighbours
    return firsts[order], order.argsort()[kind]


def rows_of_axes(axes: Tensor, cells: Tensor) -> Tensor:
    """A [p, k, m] of orthonormal axes [width, k] and empty cells, bool [p, width].

    Zeros in spare columns. Where more cells are empty than there are axes, another A with the same
    A A' and as many columns as axes.
    """
    counts = cells.sum(1)
    most = int(counts.max())
    index = cells.int().argsort(dim=1, descending=True, stable=True)[:, :most]
    real = torch.arange(most, device=cells.device) < counts[:, None]
    found = axes[index] * real[..., None]
    if most <= axes.shape[1]:
        return found.mT
    eye = torch.eye(axes.shape[1], dtype=axes.dtype, device=axes.device)
    return cholesky(found.mT @ found + ROUNDED * eye)


def _or_all(lost: Tensor, present: Tensor) -> Tensor:
    """A [p, k, m], m at least k, or all components where a view is not `present`, [p, 1, 1]."""
    width = lost.shape[1]
    lost = torch.nn.functional.pad(lost, (0, max(0, width - lost.shape[2])))
    return torch.where(present, lost, torch.eye(*lost.shape[1:]).to(lost))


def rows_with_empty(views: tuple[Tensor, ...], mask: Tensor) -> Tensor:
    """Rows that have a view with an empty cell, bool [n]; per view [n, width], a mask [n, V]."""
    found = [view.isnan().any(-1) & mask[:, v] for v, view in enumerate(views)]
    return torch.stack(found).any(0)


def see_cells(
    evidence: Evidence, space: Space, root: Tensor, batch: EpisodeBatch, whole: bool = True
) -> Evidence:
    """The evidence of tasks in which rows with empty cells say what their cells say.

    `space` has the covariance within classes. `evidence` is right for all other rows, and `root`
    the W that it was made with, [d, k]. Not `whole`, queries with few empty cells have no matrix of
    their own, which predictive scores need not.
    """
    views, mask = _all_rows(batch)
    patterns = Patterns.of(space, views, mask, rows_with_empty(views, mask))
    if not len(patterns.firsts):
        return evidence
    root, known, here = root.double(), evidence.information, batch.n_support
    numbers = torch.cat([evidence.support, evidence.query], 1)
    like = torch.cat([evidence.support_pattern, evidence.query_pattern], 1)
    kind = torch.full_like(like, -1)
    kind.flatten()[patterns.places] = patterns.kind
    few = patterns.sizes <= root.shape[1] // FEW
    if patterns.groups is None:
        few = torch.zeros_like(few)
        everything = (root.T @ space.inverse(torch.ones_like(mask[0])) @ root).to(known)
    own = ~few | whole
    own[kind[:, :here][kind[:, :here] >= 0]] = True
    of_own, of_few = own.cumsum(0) - 1, few.cumsum(0) - 1
    information = known.new_empty(int(own.sum()), *known.shape[1:])
    most = int(patterns.sizes[few].max()) if bool(few.any()) else 0
    thin = known.new_zeros(int(few.sum()), most, root.shape[1])

    def put(some: Lacking) -> None:
        less, kinds = (some.less @ root).to(known), some.kinds
        rows = some.rows[some.real]
        numbers.flatten(0, 1)[rows] = (some.told() @ root)[some.real].to(numbers)
        mine = own[kinds]
        # Before cells are lost a row says what the views that it has say.
        first = like.flatten()[some.rows[mine, 0]]
        before = known[first] if patterns.groups is not None else everything
        information[of_own[kinds[mine]]] = before - less[mine].mT @ less[mine]
        less, kinds = less[few[kinds]], kinds[few[kinds]]
        index = (less == 0).all(-1).int().argsort(dim=1, stable=True)[:, :most, None]
        thin[of_few[kinds], : index.shape[1]] = less.gather(1, index.expand(-1, -1, less.shape[2]))

    patterns.each(put)
    found = (kind >= 0) & own[kind]
    pattern = torch.where(found, len(known) + of_own[kind], like)
    losing = torch.where((kind >= 0) & few[kind], of_few[kind], -1)[:, here:]
    return replace(
        evidence,
        information=torch.cat([known, information]),
        support=numbers[:, :here],
        query=numbers[:, here:],
        support_pattern=pattern[:, :here],
        query_pattern=pattern[:, here:],
        lost=Lost(losing, like[:, here:], thin, patterns.sizes[few]) if most else None,
    )


def _all_rows(batch: EpisodeBatch) -> tuple[tuple[Tensor, ...], Tensor]:
    """Supports and queries of all tasks, one after the other, and their mask."""
    pairs = zip(batch.support, batch.query, strict=True)
    mask = torch.cat([batch.support_mask, batch.query_mask], 1).flatten(0, 1)
    return tuple(torch.cat(pair, 1).flatten(0, 1) for pair in pairs), mask


def conditional_rows(
    space: Space,
    views: tuple[Tensor, ...],
    mask: Tensor,
    which: Tensor,
    *,
    variances: tuple[Tensor, ...] | None = None,
) -> tuple[Tensor, ...]:
    """Rows with conditional means in what is missing, in the `space` of samples of any class.

    Per view [n, width], NaN in empty cells; the mask [n, V] says which views are there, `which`,
    bool [n], the rows to be filled in. Where `variances` are given, zeros of the same shapes,
    views that are not there are filled in too, and those of what is filled in are written there.
    """
    total = space.covariance
    filled = tuple(view.to(torch.float64, copy=True) for view in views)
    along_with = []  # how components, and what they leave over, go with those of all views
    for place, size, spare in zip(space.places, space.sizes, space.projection.spare, strict=True):
        along_with.append(total[:, place] / size)
        along_with[-1][place].diagonal().sub_(spare)

    @cache  # of every K once
    def explained(inverse: Tensor) -> tuple[Tensor, ...]:
        return tuple(some.T @ inverse @ some for some in along_with)

    def fill(some: Lacking) -> None:
        told = some.told()
        latent = space.mean + told @ total
        rows, number = some.rows[some.real], some.real.nonzero()[:, 0]
        for v, axes in enumerate(space.projection.axes):
            gone, place = some.empty[v], space.places[v]
            if variances is not None:
                gone = gone | ~some.present[:, v, None]
            if not bool(gone.any()):
                continue
            size, spare = space.sizes[v], space.projection.spare[v]
            along = latent[..., place] / size - spare * told[..., place]
            guess = space.projection.centre[v] + along[some.real] @ axes.T
            filled[v][rows] = torch.where(gone[number], guess, filled[v][rows])
            if variances is None:
                continue
            less = some.less @ along_with[v]
            known = explained(some.inverse)[v] - less.mT @ less
            own = ((axes @ (total[place, place] / size**2 - known)) * axes).sum(-1)
            own = own + spare * (1 - axes.square().sum(1) / size).clamp(min=0)
            variances[v][rows] = torch.where(gone, own.clamp(min=0), 0.0)[number]

    Patterns.of(space, views, mask, which).each(fill)
    return filled


def fill_cells(batch: EpisodeBatch, space: Space) -> EpisodeBatch:
    """The same tasks with conditional means in empty cells; views that are missing stay so."""
    views, mask = _all_rows(batch)
    rows = conditional_rows(space, views, mask, rows_with_empty(views, mask))
    here, shape = batch.n_support, (batch.n_tasks, batch.n_support + batch.n_query, -1)
    whole = [
        torch.where(present[:, None], row.to(view), 0.0).reshape(shape)
        for row, view, present in zip(rows, batch.support, mask.T, strict=True)
    ]
    return replace(
        batch,
        support=tuple(view[:, :here] for view in whole),
        query=tuple(view[:, here:] for view in whole),
    )
