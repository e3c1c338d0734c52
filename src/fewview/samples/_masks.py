"""Which views go missing: samplers of masks [tasks, samples, views] with exact missing rates.

All of them draw from `views/random.py` with one stream per task, so a mask depends on its task
alone. The missing rate eta is the share of missing (sample, view) cells among all cells of the
task (`MultiViewData.missing_rate`); every sample keeps at least one view, so eta <= 1 - 1/V. Other
people count otherwise: `convert_rate` is the one place where their rates become ours and back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fewview.ground._draws import UInt64Array, combine, raw, stream_key, uniform
from fewview.ground._errors import FewviewError

BoolArray = NDArray[np.bool_]
KINDS = ("uniform", "patterns", "class")
CONVENTIONS = ("cells", "present", "incomplete", "paired", "independent", "given back")


def largest_rate(n_views: int) -> float:
    """Return the largest missing rate that leaves every sample one view: 1 - 1/V.

    Example:
        >>> largest_rate(2)
        0.5
    """
    return 1.0 - 1.0 / n_views


def check_rate(eta: float, n_views: int) -> float:
    """Return `eta`, or say what the largest possible missing rate is.

    Example:
        >>> check_rate(0.5, 2)
        0.5
    """
    if not np.isfinite(eta) or eta < 0:
        raise FewviewError(f"missing rate {eta} is not a number from 0 to {largest_rate(n_views)}")
    if eta > largest_rate(n_views) + 1e-9:
        raise FewviewError(
            f"missing rate {eta:g} cannot be reached with {n_views} view(s): every sample keeps at "
            f"least one, so the largest possible rate is {largest_rate(n_views):.4g}"
        )
    return float(eta)


def missing_count(eta: float, n_samples: int, n_views: int) -> int:
    """Number of missing cells of a task: eta x cells, rounded half up.

    Example:
        >>> missing_count(0.5, 3, 2)
        3
    """
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
        if self.kind not in KINDS:
            raise FewviewError(f"missing rule {self.kind!r} is not one of {', '.join(KINDS)}")
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
            if len(self.view_rates) != n_views:
                raise FewviewError(
                    f"{len(self.view_rates)} missing rates given for {n_views} views; give one each"
                )
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
    seeds: UInt64Array,
    n_samples: int,
    n_views: int,
    eta: float,
    present: BoolArray | None = None,
) -> BoolArray:
    """Draw masks with exactly round(eta x cells) missing cells, uniform given one kept view each.

    One guaranteed view per sample is drawn first; the missing cells are a uniformly random subset
    of the others. For one seed the masks of growing eta are nested.

    Example:
        >>> mask = draw_uniform(np.zeros(1, dtype=np.uint64), 4, 2, 0.5)
        >>> mask.sum(axis=-1).tolist()
        [[1, 1, 1, 1]]
    """
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

    Example:
        >>> labels = np.repeat([[0, 1]], 50, axis=1)
        >>> mask = draw_by_class(np.zeros(1, dtype=np.uint64), labels, 4, 0.3, 2.0)
        >>> int((~mask).sum())
        120
    """
    n_classes = int(labels.max()) + 1
    states = combine(seeds, stream_key("mask", "class"))
    u = uniform(states, (2, n_classes, n_views))
    normal = np.sqrt(-2 * np.log(u[:, 0])) * np.cos(2 * np.pi * u[:, 1])
    weight = np.exp(strength * normal)
    per_sample = np.take_along_axis(weight, labels[..., None], axis=1)
    cells = uniform(combine(seeds, stream_key("mask", "cells")), (labels.shape[1], n_views))
    waiting = -np.log(cells) / per_sample  # exponential waiting times; the smallest are dropped
    order = np.argsort(waiting.reshape(len(seeds), -1), axis=-1, kind="stable")
    ranks = np.empty_like(order)
    np.put_along_axis(ranks, order, np.arange(order.shape[-1])[None], axis=-1)
    return _drop_smallest(seeds, ranks.reshape(waiting.shape).astype(np.uint64), eta, present)


def draw_view_rates(seeds: UInt64Array, n_samples: int, view_rates: Sequence[float]) -> BoolArray:
    """Draw masks with exactly round(rate_v x samples) missing rows in every view v.

    Possible when the views' shares of present rows sum to at least one view per sample. Where only
    rounding up would leave a sample without any view, the views rounded up the most give way.

    Example:
        >>> mask = draw_view_rates(np.zeros(1, dtype=np.uint64), 10, [0.8, 0.2])
        >>> (~mask).sum(axis=1).tolist()
        [[8, 2]]
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
    """Give every sample the view combination of a randomly drawn row of `patterns`.

    Example:
        >>> rows = np.array([[True, False]])
        >>> draw_patterns(np.zeros(2, dtype=np.uint64), 3, rows).all(axis=(0, 1)).tolist()
        [True, False]
    """
    u = uniform(combine(seeds, stream_key("mask", "patterns")), n_samples)
    rows = np.minimum((u * len(patterns)).astype(np.int64), len(patterns) - 1)
    out: BoolArray = patterns[rows]
    return out


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


# ---------------------------------------------------------------- what others call a missing rate


def convert_rate(
    rate: float,
    n_views: int,
    *,
    given: str = "cells",
    wanted: str = "cells",
    views_lost: float | None = None,
) -> float:
    """Convert a missing rate from one convention to another.

    Args:
        rate: the rate as the convention `given` counts it, 0 to 1.
        n_views: V, at least 2.
        given, wanted: one of `CONVENTIONS`. `"cells"`: missing (sample, view) cells among all
            cells, the missing rate eta of fewview. `"present"`: present cells among all cells.
            `"incomplete"`: samples that lack some view. `"paired"`: samples that have all views.
            `"independent"`: every view of every sample is dropped with this probability, and a
            sample left with none is drawn again. `"given back"`: the same, but a sample left with
            none gets one of its views back.
        views_lost: for `"incomplete"` and `"paired"`, how many views an incomplete sample lacks on
            average, 1 to V - 1. V / 2 where it keeps any of the possible combinations, each as
            likely as the other. None: as many as in masks drawn by `draw_uniform`. Two views leave
            no choice: it is 1.

    Returns:
        The rate as `wanted` counts it: exact in expectation; for masks drawn by `draw_uniform`,
        in the limit of many samples.

    Examples:
        Half of all samples lack one of their two views, so a quarter of all cells is missing:

        >>> convert_rate(0.5, 2, given="incomplete")
        0.25

        The largest rate with three views leaves every sample one of them:

        >>> round(convert_rate(1.0, 3, given="given back"), 4)
        0.6667
        >>> convert_rate(0.3, 3, wanted="paired")
        0.3025
    """
    for name in (given, wanted):
        if name not in CONVENTIONS:
            raise FewviewError(
                f"missing rate convention {name!r} is not one of {', '.join(CONVENTIONS)}"
            )
    if n_views < 2:
        raise FewviewError(f"with {n_views} view(s) nothing can be missing; give 2 or more")
    if not 0 <= rate <= 1:
        raise FewviewError(f"rate is {rate}; give a share from 0 to 1")
    if views_lost is not None and not 1 <= views_lost <= n_views - 1:
        raise FewviewError(
            f"views_lost is {views_lost}; an incomplete sample of {n_views} views lacks 1 to "
            f"{n_views - 1} of them"
        )
    if given == wanted:
        return float(rate)
    eta = check_rate(_to_cells(rate, n_views, given, views_lost), n_views)
    return float(
        np.round(_from_cells(min(eta, largest_rate(n_views)), n_views, wanted, views_lost), 12)
    )


def _to_cells(rate: float, n_views: int, given: str, views_lost: float | None) -> float:
    if given == "present":
        return 1 - rate
    if given == "paired":
        return _to_cells(1 - rate, n_views, "incomplete", views_lost)
    if given == "incomplete":
        if views_lost is not None:
            return rate * views_lost / n_views
        # A sample is complete when none of its V - 1 cells that are not guaranteed is dropped.
        dropped = 1 - (1 - rate) ** (1 / (n_views - 1))
        return float(dropped * largest_rate(n_views))
    if given == "independent":
        empty = rate**n_views
        return (rate - empty) / (1 - empty) if rate < 1 else largest_rate(n_views)
    if given == "given back":
        return rate - rate**n_views / n_views
    return rate


def _from_cells(eta: float, n_views: int, wanted: str, views_lost: float | None) -> float:
    if wanted == "present":
        return 1 - eta
    if wanted == "paired":
        return 1 - _from_cells(eta, n_views, "incomplete", views_lost)
    if wanted == "incomplete":
        if views_lost is None:
            dropped = eta / largest_rate(n_views)
            return 1 - (1 - dropped) ** (n_views - 1)
        if eta * n_views > views_lost + 1e-9:
            raise FewviewError(
                f"{eta:.4g} of all cells cannot be missing when samples lack {views_lost:g} of "
                f"{n_views} views at most on average"
            )
        return min(eta * n_views / views_lost, 1.0)
    if wanted in ("independent", "given back"):
        low, high = 0.0, 1.0  # both grow with the rate: halve the interval
        for _ in range(60):
            middle = (low + high) / 2
            if _to_cells(middle, n_views, wanted, None) < eta:
                low = middle
            else:
                high = middle
        return high
    return eta


@dataclass(frozen=True)
class MissingRates:
    """The missing rate of a mask, as different people count it.

    Args:
        cells: missing cells among all cells; eta, as fewview counts.
        incomplete: samples that lack some view, among all samples.
        views_lost: mean number of views that an incomplete sample lacks; 0 if there is none.
        per_view: samples that lack the view, for each view.
        n_samples: samples counted.
    """

    cells: float
    incomplete: float
    views_lost: float
    per_view: tuple[float, ...]
    n_samples: int


def measure_rates(mask: BoolArray | Sequence[Sequence[bool]]) -> MissingRates:
    """Count a mask in every convention that can be counted.

    Args:
        mask: boolean [samples, V], True where the view is present; `MultiViewData.mask`.

    Example:
        >>> rates = measure_rates([[True, True], [True, False], [False, True], [True, False]])
        >>> rates.cells, rates.incomplete, rates.views_lost, rates.per_view
        (0.375, 0.75, 1.0, (0.25, 0.5))
    """
    rows = np.asarray(mask, dtype=bool)
    if rows.ndim != 2 or rows.size == 0:
        raise FewviewError("a mask has rows [samples, views], at least one of each")
    incomplete = ~rows.all(axis=1)
    lost = (~rows).sum(axis=1)
    return MissingRates(
        cells=float((~rows).mean()),
        incomplete=float(incomplete.mean()),
        views_lost=float(lost[incomplete].mean()) if incomplete.any() else 0.0,
        per_view=tuple(float(share) for share in (~rows).mean(axis=0)),
        n_samples=len(rows),
    )
