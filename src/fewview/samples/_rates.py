"""What a missing rate is, how large it can be, and how others count it.

The missing rate eta is the share of missing (sample, view) cells among all cells of a task
(`MultiViewData.missing_rate`); every sample keeps at least one view, so eta <= 1 - 1/V.
`convert_rate` is the one place where the rates of others become ours and back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fewview.errors import FewviewError, check_word

BoolArray = NDArray[np.bool_]
COMPLEMENTS = {"present": "cells", "paired": "incomplete"}  # 1 minus the rate of the other
CONVENTIONS = ("cells", "present", "incomplete", "paired", "independent", "given back")


def largest_rate(n_views: int) -> float:
    """Return the largest missing rate that leaves every sample one view: 1 - 1/V.

    Args:
        n_views: V.

    Example:
        >>> largest_rate(2)
        0.5
    """
    return 1.0 - 1.0 / n_views


def check_rate(eta: float, n_views: int) -> float:
    """Return `eta`, or say what the largest possible missing rate is."""
    if not np.isfinite(eta) or eta < 0:
        raise FewviewError(f"missing rate {eta} is not a number from 0 to {largest_rate(n_views)}")
    if eta > largest_rate(n_views) + 1e-9:
        raise FewviewError(
            f"missing rate {eta:g} cannot be reached with {n_views} view(s): every sample keeps at "
            f"least one, so the largest possible rate is {largest_rate(n_views):.4g}"
        )
    return float(eta)


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
        check_word(f"missing rate convention {name!r}", name, CONVENTIONS)
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
    if given in COMPLEMENTS:
        rate, given = 1 - rate, COMPLEMENTS[given]
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
    if wanted in COMPLEMENTS:
        return 1 - _from_cells(eta, n_views, COMPLEMENTS[wanted], views_lost)
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
            below = _to_cells(middle, n_views, wanted, None) < eta
            low, high = (middle, high) if below else (low, middle)
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
