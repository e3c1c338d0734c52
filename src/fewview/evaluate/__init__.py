"""How good is it, and how sure are we? Grids, the runner, the result store, statistics.

Needs numpy, scipy, scikit-learn and torch alone; names are loaded on first use, so that reading a
store does not wait for torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fewview.evaluate._grid import Grid, plan
    from fewview.evaluate._options import bench, make_grid
    from fewview.evaluate._runner import Outcome, run
    from fewview.results._cells import Cell, Result
    from fewview.results._comparing import compare, rank
    from fewview.results._intervals import (
        average_ranks,
        compare_paired,
        split_interval,
        standard_error,
    )
    from fewview.results._metrics import EpisodeMetrics, measure
    from fewview.results._store import Store
    from fewview.results._summaries import summarise_stored

_HOMES = {
    "Cell": "fewview.results._cells",
    "EpisodeMetrics": "fewview.results._metrics",
    "Grid": "fewview.evaluate._grid",
    "Outcome": "fewview.evaluate._runner",
    "Result": "fewview.results._cells",
    "Store": "fewview.results._store",
    "average_ranks": "fewview.results._intervals",
    "bench": "fewview.evaluate._options",
    "compare": "fewview.results._comparing",
    "compare_paired": "fewview.results._intervals",
    "make_grid": "fewview.evaluate._options",
    "measure": "fewview.results._metrics",
    "plan": "fewview.evaluate._grid",
    "rank": "fewview.results._comparing",
    "run": "fewview.evaluate._runner",
    "split_interval": "fewview.results._intervals",
    "standard_error": "fewview.results._intervals",
    "summarise_stored": "fewview.results._summaries",
}

__all__ = [
    "Cell",
    "EpisodeMetrics",
    "Grid",
    "Outcome",
    "Result",
    "Store",
    "average_ranks",
    "bench",
    "compare",
    "compare_paired",
    "make_grid",
    "measure",
    "plan",
    "rank",
    "run",
    "split_interval",
    "standard_error",
    "summarise_stored",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
