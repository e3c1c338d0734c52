"""How many queries every class of a task has: Dirichlet shares, or one dominant class."""

from __future__ import annotations

from fractions import Fraction
from math import floor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fewview.numerics.random_keys import raw, smallest, uniform

IntArray = NDArray[np.int64]


def dominant_counts(
    states: NDArray[np.uint64], share: Fraction, total: int, room: IntArray
) -> tuple[IntArray, NDArray[np.bool_]]:
    """Give one class a share of `total` queries, rounded half up, the others equal parts.

    One stream per task puts its classes in an order: the first is the dominant one, and what is
    left over after equal parts goes to the next ones, one query each. A dominant class has at most
    as many as it holds (`room`, [tasks, way]), and the others equal parts of more; where these do
    not fit, see `capped_counts`. Counts [tasks, way], and whether classes were too small for them.
    """
    order = smallest(raw(states, room.shape[1]), room.shape[1])
    room = np.take_along_axis(room, order, axis=1)
    wanted = floor(share * total + Fraction(1, 2))
    most = np.minimum(room[:, :1], wanted)
    part, over = np.divmod(total - most, room.shape[1] - 1)
    in_order = np.concatenate([most, part + (np.arange(room.shape[1] - 1) < over)], axis=1)
    capped = (most[:, 0] < wanted) | (in_order > room).any(axis=1)
    counts = np.empty_like(in_order)
    np.put_along_axis(counts, order, capped_counts(in_order, room), axis=1)
    return counts, capped


def capped_counts(counts: IntArray, room: IntArray) -> IntArray:
    """Cap queries per class at what the classes hold, [tasks, way]; the sums stay.

    What does not fit is split over the other classes in proportion to their own counts (equally
    where these are all zero), again until everything fits, largest remainders rounded up. Whole
    numbers throughout, so that every machine rounds alike.
    """
    total = counts.sum(axis=1, keepdims=True)
    full = np.zeros(counts.shape, dtype=bool)
    while True:
        left = total - np.where(full, room, 0).sum(axis=1, keepdims=True)
        weight = np.where(full, 0, counts)
        weight = np.where(weight.any(axis=1, keepdims=True), weight, ~full)
        whole = np.maximum(weight.sum(axis=1, keepdims=True), 1)
        over = ~full & (weight * left > room * whole)
        if not over.any():
            break
        full |= over
    share, remainder = np.divmod(weight * left, whole)
    lacking = left[:, 0] - share.sum(axis=1)
    return np.where(full, room, share + _largest(remainder, lacking))


def _largest(remainder: NDArray[Any], count: IntArray) -> NDArray[np.bool_]:
    """Which entries of every row are its `count` largest; of equal ones the first."""
    order = np.argsort(-remainder, axis=1, kind="stable")
    rank = np.argsort(order, axis=1, kind="stable")
    return np.asarray(rank < count[:, None])


def dirichlet_counts(states: NDArray[np.uint64], alpha: float, way: int, total: int) -> IntArray:
    """Split `total` queries over classes with Dirichlet proportions, largest remainders rounded up.

    One stream per task, uint64 [tasks]; counts are [tasks, way], and a class may get none.
    """
    from scipy.special import gammaincinv, gammaln

    u = uniform(states, way)
    gamma = gammaincinv(alpha, u)
    tiny = gamma.max(axis=1) < 1e-250
    if tiny.any():
        # A small alpha sends all of them to zero; there P(alpha, x) is x^alpha / Gamma(alpha + 1).
        logs = (np.log(u[tiny]) + gammaln(alpha + 1)) / alpha
        gamma[tiny] = np.exp(logs - logs.max(axis=1, keepdims=True))
    share = gamma / gamma.sum(axis=1, keepdims=True) * total
    counts = np.floor(share).astype(np.int64)
    lacking = total - counts.sum(axis=1)
    out: IntArray = counts + _largest(share - counts, lacking)
    return out
