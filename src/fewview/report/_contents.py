"""What a page tells beyond comparisons, before any markup: what is shown, time, calibration.

Who is compared with whom, and what they are called, is settled in `results/_comparing.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fewview.errors import FewviewError
from fewview.results._cells import Result
from fewview.results._comparing import Panel, panels
from fewview.results._metrics import expected_calibration_error
from fewview.results._stale import STALE, UNKNOWN, statuses


@dataclass(frozen=True)
class Contents:
    """Everything that a page is made of."""

    panels: list[Panel]
    methods: list[str]  # of all panels, best mean place first; a method looks the same everywhere
    results: list[Result]  # what was read and is shown
    stale: int  # how many results of older versions were left out
    unknown: list[str]  # methods that this installation does not know; their results are shown


def collect(results: Sequence[Result]) -> Contents:
    """Sort results into panels; a store without current results is an error."""
    if not results:
        raise FewviewError(
            "there are no results to report; 'fewview bench' computes some, and 'fewview results' "
            "shows what a store holds"
        )
    status = statuses(results)
    current = [result for result in results if status[result.cell.hash] != STALE]
    if not current:
        raise FewviewError(
            f"all {len(results)} results are of older versions of their methods; compute them "
            "again with the same 'fewview bench' command"
        )
    unknown = {r.cell.method for r in current if status[r.cell.hash] == UNKNOWN}
    found = panels(current)
    return Contents(found, _order(found), current, len(results) - len(current), sorted(unknown))


def _order(panels: Sequence[Panel]) -> list[str]:
    """Methods by their mean place over panels, relative to the number of methods there."""
    places: dict[str, list[float]] = {}
    for panel in panels:
        for k, name in enumerate(panel.methods):
            places.setdefault(name, []).append((k + 1) / len(panel.methods))
    return sorted(places, key=lambda name: (float(np.mean(places[name])), name))


# ---------------------------------------------------------------------- time and calibration


@dataclass
class Cost:
    """What a method takes and gives in a panel: means over missing rates and class splits."""

    method: str
    milliseconds: float  # of scoring, per episode
    seconds_base: float  # of preparing from base classes, per class split
    accuracy: float  # percent
    complete: bool  # it has all missing rates of the panel; others are not comparable
    efficient: bool = False  # no other method is both faster and better


def costs(panel: Panel) -> list[Cost]:
    """Time and accuracy of the methods of a panel, fastest first."""
    found = []
    for name, by_eta in panel.results.items():
        results = [result for some in by_eta.values() for result in some]
        seconds = sum(r.seconds for r in results) / sum(len(r.metrics) for r in results)
        base = float(np.mean([r.seconds_base for r in results]))
        accuracy = float(np.mean([r["accuracy"] for r in panel.rows if r["method"] == name]))
        found.append(Cost(name, 1000 * seconds, base, accuracy, len(by_eta) == len(panel.etas)))
    found.sort(key=lambda cost: (cost.milliseconds, -cost.accuracy))
    best = -np.inf
    for cost in found:
        if cost.complete and cost.accuracy > best:
            cost.efficient, best = True, cost.accuracy
    return found


@dataclass(frozen=True)
class Reliability:
    """How far the probabilities of a method can be trusted, pooled over rates and splits."""

    method: str
    points: list[tuple[float, float, int]]  # mean probability, share right, queries of a bin
    error: float  # expected calibration error
    confidence: float  # mean probability of the predicted class
    accuracy: float  # share of right predictions
    log_loss: float
    brier: float


def reliabilities(panel: Panel, least: int = 20) -> list[Reliability]:
    """Reliability of the methods of a panel, best calibrated first.

    A bin with fewer queries than `least` says little and gives no point.
    """
    out = []
    for name, by_eta in panel.results.items():
        results = [result for some in by_eta.values() for result in some]
        bins = np.sum([result.metrics.bins for result in results], axis=0)
        total = max(float(bins[0].sum()), 1.0)
        points = [(float(p / n), float(hit / n), int(n)) for n, p, hit in bins.T if n >= least]
        sure, right = float(bins[1].sum()) / total, float(bins[2].sum()) / total
        log_loss = float(np.mean([r.metrics.log_loss.mean() for r in results]))
        brier = float(np.mean([r.metrics.brier.mean() for r in results]))
        error = expected_calibration_error(bins)
        out.append(Reliability(name, points, error, sure, right, log_loss, brier))
    return sorted(out, key=lambda one: one.error)
