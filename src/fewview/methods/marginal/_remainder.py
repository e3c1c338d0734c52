"""What the components of base classes leave over of a row, as evidence about a query by itself.

New classes may differ where base classes do not: in new words. One support shows few of them, so
the remainder of a view is believed as little as base classes that play new ones teach: rows are
Gaussian around class means in some number of directions, all alike, and class means have a share
of the variance. The three numbers that say so follow from inner products of rows, of one class and
of different ones (`Remainder`). Lengths of remainders say how unusual a row is, not which class it
is of, so rows are brought to length one; one that lies in the components has no remainder.

`_outside.py` has directions of a whole task. They are found from all its rows, so a query by
itself cannot have them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fewview.episodes.divide import thinned_rows
from fewview.methods.marginal._outside import LEAST_REST, TINY, Fold, LeftOver

# Rows of classes that play new ones, of which all pairs are looked at.
MOST_ROWS = 600
# A share between classes above this is taken for this.
MOST_SHARED = 0.95


@dataclass(frozen=True)
class Remainder:
    """How rows of new classes lie in what the components leave over, view by view.

    With x and y rows of different classes, x and z of one class, all of length one:

    Attributes:
        views: positions of the views that have such a remainder.
        offset: mean of x'y, which all new classes have in common, [views].
        share: of the variance 1 - offset that lies between classes, (mean of x'z - offset) /
            (1 - offset), [views].
        freedom: number of directions in which products vary as they do, (1 - offset)^2 over their
            variance, [views]. Products within a class vary more than the model has it; with the
            geometric mean of the two variances it says of a pair what a logistic regression on its
            product says, within a fifth (text, faces, birds and digits).
    """

    views: tuple[int, ...]
    offset: Tensor
    share: Tensor
    freedom: Tensor

    def predictive(self, left: Mapping[int, LeftOver], members: Tensor) -> Tensor:
        """log N(x; m, s + C) given supports, against a class without any: [T, N_Q, C].

        Of what views leave over of supports and queries; `members` says which class supports are
        of, [T, N_S, C].
        """
        count, n_support = len(self.views), members.shape[1]
        products, known = unit_products(LeftOver.join([left[view] for view in self.views]))
        # Tasks in one view after the other.
        usual, share, freedom = (
            part.repeat_interleave(len(members))[:, None]
            for part in (self.offset, self.share, self.freedom)
        )
        there = members.repeat(count, 1, 1) * known[:, :n_support, None]
        counts, sums = there.sum(1), products[..., :n_support] @ there
        offset = _of_the_task(usual[:, 0], freedom[:, 0], counts, sums[:, :n_support], there)
        size = 1 - offset  # [T, 1], as those that follow
        # Rows of one class are as alike as ever, and products vary as they do.
        shrunk = size / (1 - usual)
        share, freedom = (1 - (1 - share) / shrunk).clamp(min=0), freedom * shrunk.square()
        unknown = size / freedom  # s + b
        within, between = (1 - share) * unknown, share * unknown
        gain = between / (between * counts + within)  # class means are gain * sums
        spread = within + gain * within
        asked = sums[:, n_support:] - (offset * counts)[:, None]
        squares = (there * sums[:, :n_support]).sum(1) - offset * counts.square()
        fit = size * (1 / spread - 1 / unknown) + gain.square() * squares / spread
        fit = (fit + freedom * (spread / unknown).log())[:, None]
        out = ((gain / spread)[:, None] * asked - fit / 2) * known[:, n_support:, None]
        return out.reshape(count, len(members), *out.shape[1:]).sum(0)


def _of_the_task(
    offset: Tensor, freedom: Tensor, counts: Tensor, sums: Tensor, there: Tensor
) -> Tensor:
    """What all rows of a task have in common, from supports of different classes: [T, 1].

    Classes of another world than the base classes (birds, where the base set has everything) have
    more in common than base classes have; a class whose supports lack the view would lose all
    queries that have it to the others. Of what the mean over pairs of classes is away from
    `offset` so much is believed as James and Stein (1961) would.
    """
    pairs = (counts[:, :, None] * counts[:, None]).triu(1).sum((1, 2))
    products = (there.mT @ sums).triu(1).sum((1, 2))
    classes = (counts > 0).sum(1)
    away = products / pairs.clamp(min=1) - offset
    variance = (1 - offset).square() / freedom / (classes * (classes - 1) / 2).clamp(min=1)
    kept = (1 - variance / away.square().clamp(min=TINY)).clamp(min=0) * (pairs > 0)
    return (offset + kept * away).clamp(max=1 - LEAST_REST)[:, None]


def unit_products(left: LeftOver) -> tuple[Tensor, Tensor]:
    """Inner products [..., n, n] of remainders at length one, and which rows [..., n] have one."""
    length = left.products.diagonal(dim1=-2, dim2=-1)
    there = left.seen & (length > LEAST_REST * left.whole.clamp(min=TINY))
    factor = torch.where(there, length.clamp(min=TINY).rsqrt(), 0.0)
    return left.products * factor[..., None] * factor[..., None, :], there


def learn_remainder(folds: Sequence[Fold], views: Sequence[int]) -> Remainder | None:
    """Learn from classes that play new ones, in these views; None where they do not differ."""
    kept, table = [], []
    for place, view in enumerate(views):
        found = [pairs for fold in folds if (pairs := _inner_products(fold, place)) is not None]
        if not found:
            continue
        same, offset, variance = torch.stack(found).mean(0)
        if same > offset and offset < 1 - LEAST_REST:
            share = ((same - offset) / (1 - offset)).clamp(max=MOST_SHARED)
            kept.append(view)
            freedom = (1 - offset).square() / variance.clamp(min=TINY)
            table.append(torch.stack([offset, share, freedom]))
    if not kept:
        return None
    return Remainder(tuple(kept), *torch.stack(table, 1))


def _inner_products(fold: Fold, view: int) -> Tensor | None:
    """Mean inner products of remainders of one class and of two, and their variance: [3].

    None where too few rows have a remainder for that.
    """
    seen = np.flatnonzero(fold.unknown.mask[:, view])
    seen = seen[thinned_rows(fold.unknown.codes[seen], MOST_ROWS)]
    rows = torch.from_numpy(seen).to(fold.left[view].whole.device)
    products, there = unit_products(fold.left[view].at(rows[None], rows[None] >= 0))
    rows, products = rows[there[0]], products[0][there[0]][:, there[0]]
    codes = torch.from_numpy(fold.unknown.codes.copy()).to(rows.device)[rows]
    one_class = codes[:, None] == codes
    pairs = one_class & ~torch.eye(len(codes), dtype=torch.bool, device=codes.device)
    if not bool(pairs.any()) or not bool((~one_class).any()):
        return None
    same, others = products[pairs], products[~one_class]
    variance = same.std(correction=0) * others.std(correction=0)
    return torch.stack([same.mean(), others.mean(), variance]).cpu()
