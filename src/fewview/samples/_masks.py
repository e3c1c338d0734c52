"""Which views go missing: samplers of masks [tasks, samples, views] with exact missing rates.

All of them draw from `ground/_draws.py` with one stream per task, so a mask depends on its task
alone. What a missing rate is, and how others count, is written in `_rates.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fewview.errors import FewviewError, check_count, check_word
from fewview.numerics.random_keys import UInt64Array, combine, raw, stream_key, uniform
from fewview.samples._rates import BoolArray, check_rate

KINDS = ("uniform", "patterns", "class")


def missing_count(eta: float, n_samples: int, n_views: int) -> int:
    """Number of missing cells of a task: eta x cells, rounded half up."""
    check_rate(eta, n_views)
    wanted = int(np.floor(eta * n_samples * n_views + 0.5 + 1e-9))
    return min(wanted, n_samples * (n_views - 1))


@dataclass(frozen=True, eq=False)
class MissingRule:
    """How views go missing in the samples of a task.

    Args:
        kind: `"uniform"` (every cell alike), `"patterns"` (resample the view combinations of real
            data; eta is not used) or `"class"` (every class of a task tends to lose views of its
            own: missingness that depends on the class).
        patterns: boolean [n, V] rows to resample, for `"patterns"`.
        view_rates: one missing rate per view instead of one rate for all, for `"uniform"`.
        strength: how different the classes are, for `"class"`: the standard deviation of the log
            odds that a class loses a view.

    Example:
        >>> seeds = np.arange(4, dtype=np.uint64)
        >>> mask = MissingRule().draw(seeds, n_samples=10, n_views=3, eta=0.3)
        >>> mask.shape, (~mask).sum(axis=(1, 2)).tolist()
        ((4, 10, 3), [9, 9, 9, 9])
    """

    kind: str = "uniform"
    patterns: BoolArray | None = None
    view_rates: tuple[float, ...] | None = None
    strength: float = 2.0

    def __post_init__(self) -> None:
        check_word(f"missing rule {self.kind!r}", self.kind, KINDS)
        if self.kind == "patterns" and self.patterns is None:
            raise FewviewError("missing rule 'patterns' needs the patterns of some data (a mask)")
        if self.kind != "patterns" and self.patterns is not None:
            raise FewviewError(f"missing rule {self.kind!r} takes no patterns; use 'patterns'")
        if self.kind != "uniform" and self.view_rates is not None:
            raise FewviewError(f"missing rule {self.kind!r} takes no rates per view; use 'uniform'")
        if not 0 <= self.strength < np.inf:
            raise FewviewError(f"strength is {self.strength}; it must be a number from 0 up")
        if self.patterns is not None:
            rows = np.array(self.patterns, dtype=bool)
            if rows.ndim != 2 or rows.size == 0:
                raise FewviewError("patterns must be boolean rows [n, views], at least one")
            if not rows.any(axis=1).all():
                raise FewviewError("a pattern has no view at all")
            rows.flags.writeable = False
            object.__setattr__(self, "patterns", rows)
        if self.view_rates is not None:
            object.__setattr__(self, "view_rates", tuple(float(rate) for rate in self.view_rates))

    @classmethod
    def like(cls, mask: BoolArray) -> MissingRule:
        """The gaps of some data, resampled; sorted, so that the order of samples does not matter.

        Args:
            mask: bool [samples, views].
        """
        rows = np.asarray(mask)
        return cls("patterns", patterns=rows[np.lexsort(rows.T[::-1])])

    def __eq__(self, other: object) -> bool:
        """Two rules are equal when they draw the same; arrays cannot be compared with `==`."""
        return isinstance(other, MissingRule) and self.describe() == other.describe()

    def __hash__(self) -> int:
        return hash(self.describe())

    def describe(self) -> str:
        """Write the rule in one short word or phrase; part of a result's key.

        Example:
            >>> MissingRule(view_rates=(0.1, 0.5)).describe()
            'uniform[0.1+0.5]'
        """
        if self.view_rates is not None:
            return f"uniform[{'+'.join(f'{rate:g}' for rate in self.view_rates)}]"
        if self.kind == "class":
            return f"class[{self.strength:g}]"
        if self.patterns is not None:
            rows = np.ascontiguousarray(self.patterns)
            return f"patterns[{stream_key(rows.shape, rows.tobytes().hex()):016x}]"
        return self.kind

    def draw(
        self,
        seeds: UInt64Array,
        n_samples: int,
        n_views: int,
        eta: float = 0.0,
        *,
        labels: NDArray[np.int64] | None = None,
        present: BoolArray | None = None,
    ) -> BoolArray:
        """Draw one mask per task.

        Args:
            seeds: uint64 [tasks].
            n_samples: samples of a task, supports and queries together.
            n_views: V.
            eta: missing rate.
            labels: [tasks, samples], needed by `"class"`.
            present: [tasks, samples, V], views that exist in the data at all. Cells that are
                missing there stay missing and count towards eta.

        Returns:
            Boolean [tasks, samples, V], True where the view is present.
        """
        seeds = np.asarray(seeds, dtype=np.uint64)
        if present is not None and present.all():
            present = None
        if self.kind == "patterns" and self.patterns is not None:
            if self.patterns.shape[1] != n_views:
                raise FewviewError(
                    f"patterns have {self.patterns.shape[1]} views, the data {n_views}"
                )
            mask = draw_patterns(seeds, n_samples, self.patterns)
            if present is not None:
                both = mask & present
                # A sample that would lose its last view keeps what the data have.
                mask = np.where(both.any(-1, keepdims=True), both, present)
            return mask
        if self.view_rates is not None:
            check_count("", "missing rates given", len(self.view_rates), n_views, "views")
            if present is not None:
                raise FewviewError(
                    "unequal rates per view are drawn on complete data only; this data set already "
                    "lacks views (use the missing rule 'patterns')"
                )
            return draw_view_rates(seeds, n_samples, self.view_rates)
        if self.kind == "class":
            if labels is None:
                raise FewviewError("missing rule 'class' needs the labels of the samples")
            return draw_by_class(seeds, labels, n_views, eta, self.strength, present)
        return draw_uniform(seeds, n_samples, n_views, eta, present)


def draw_uniform(
    seeds: UInt64Array, n_samples: int, n_views: int, eta: float, present: BoolArray | None = None
) -> BoolArray:
    """Draw masks with exactly round(eta x cells) missing cells, uniform given one kept view each.

    One guaranteed view per sample is drawn first; the missing cells are a uniformly random subset
    of the others. For one seed the masks of growing eta are nested.
    """
    if missing_count(eta, n_samples, n_views) == 0:
        shape = (len(seeds), n_samples, n_views)
        return np.ones(shape, dtype=bool) if present is None else present.copy()
    cells = raw(combine(seeds, stream_key("mask", "cells")), (n_samples, n_views))
    return _drop_smallest(seeds, cells >> np.uint64(1), eta, present)


def draw_by_class(
    seeds: UInt64Array,
    labels: NDArray[np.int64],
    n_views: int,
    eta: float,
    strength: float,
    present: BoolArray | None = None,
) -> BoolArray:
    """Draw masks where every class of a task tends to lose its own views; eta stays exact.

    Cells are dropped by weighted sampling without replacement (Efraimidis and Spirakis 2006), with
    weight exp(strength x z) and z standard normal per task, class and view.
    """
    n_classes = int(labels.max()) + 1
    states = combine(seeds, stream_key("mask", "class"))
    u = uniform(states, (2, n_classes, n_views))
    normal = np.sqrt(-2 * np.log(u[:, 0])) * np.cos(2 * np.pi * u[:, 1])
    weight = np.exp(strength * normal)
    per_sample = np.take_along_axis(weight, labels[..., None], axis=1)
    cells = uniform(combine(seeds, stream_key("mask", "cells")), (labels.shape[1], n_views))
    waiting = -np.log(cells) / per_sample  # exponential waiting times; the smallest are dropped
    ranks = waiting.reshape(len(seeds), -1).argsort(axis=-1, kind="stable").argsort(axis=-1)
    return _drop_smallest(seeds, ranks.reshape(waiting.shape).astype(np.uint64), eta, present)


def draw_view_rates(seeds: UInt64Array, n_samples: int, view_rates: Sequence[float]) -> BoolArray:
    """Draw masks with exactly round(rate_v x samples) missing rows in every view v.

    Possible when the views' shares of present rows sum to at least one view per sample. Where only
    rounding up would leave a sample without any view, the views rounded up the most give way.
    """
    rates = np.asarray(view_rates, dtype=np.float64)
    if ((rates < 0) | (rates > 1) | ~np.isfinite(rates)).any():
        raise FewviewError(f"missing rates per view must lie between 0 and 1, not {view_rates}")
    kept = n_samples - np.floor(rates * n_samples + 0.5 + 1e-9).astype(np.int64)
    lacking = n_samples - int(kept.sum())
    if lacking > 0 and rates.sum() <= len(rates) - 1 + 1e-9:
        rounded_up = (n_samples - kept) - rates * n_samples
        kept[np.argsort(-rounded_up, kind="stable")[:lacking]] += 1
    elif lacking > 0:
        raise FewviewError(
            f"missing rates per view {tuple(view_rates)} leave some sample without any view; the "
            f"rates must sum to at most {len(rates) - 1}"
        )
    # Guaranteed views: a quota per view in proportion to what it keeps, dealt to random samples.
    share = kept * (n_samples / kept.sum())
    quota = np.floor(share + 1e-9).astype(np.int64)
    for view in np.argsort(-(share - quota), kind="stable")[: n_samples - quota.sum()]:
        quota[view] += 1
    dealt = np.repeat(np.arange(len(rates)), quota)
    keys = raw(combine(seeds, stream_key("mask", "guaranteed")), n_samples)
    guaranteed = dealt[np.argsort(np.argsort(keys, axis=-1), axis=-1)]
    cells = raw(combine(seeds, stream_key("mask", "cells")), (n_samples, len(rates)))
    cells = (cells >> np.uint64(1)) | np.uint64(1 << 63)
    np.put_along_axis(cells, guaranteed[..., None], np.uint64(0), axis=-1)
    rank = np.argsort(np.argsort(cells, axis=1, kind="stable"), axis=1, kind="stable")
    out: BoolArray = rank < kept
    return out


def draw_patterns(seeds: UInt64Array, n_samples: int, patterns: BoolArray) -> BoolArray:
    """Give every sample the view combination of a randomly drawn row of `patterns`."""
    u = uniform(combine(seeds, stream_key("mask", "patterns")), n_samples)
    return patterns[np.minimum((u * len(patterns)).astype(np.int64), len(patterns) - 1)]


def _drop_smallest(
    seeds: UInt64Array, cells: UInt64Array, eta: float, present: BoolArray | None
) -> BoolArray:
    """Drop the cells with the smallest keys (below 2**63), never the guaranteed one of a sample."""
    n_tasks, n_samples, n_views = cells.shape
    count = missing_count(eta, n_samples, n_views)
    mask = np.ones(cells.shape, dtype=bool) if present is None else present.copy()
    if count == 0:
        return mask
    guard = raw(combine(seeds, stream_key("mask", "guaranteed")), (n_samples, n_views))
    if present is not None:
        guard = np.where(present, guard >> np.uint64(1), np.uint64(2**64 - 1))
        # Already missing: these go first, before any present cell whose key may be 0 as well.
        cells = np.where(present, cells + np.uint64(1), np.uint64(0))
    cells = cells.copy()
    np.put_along_axis(cells, guard.argmin(-1)[..., None], np.uint64(2**64 - 1), axis=-1)
    flat = cells.reshape(n_tasks, -1)
    dropped = np.argpartition(flat, count - 1, axis=-1)[:, :count]
    out = mask.reshape(n_tasks, -1)
    np.put_along_axis(out, dropped, False, axis=-1)
    return out.reshape(cells.shape)
