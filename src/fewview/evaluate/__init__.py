"""How good is it, and how sure are we? Grids, the runner, the result store, statistics.

Needs numpy, scipy, scikit-learn and torch alone; names are loaded on first use, so that reading a
store does not wait for torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fewview.evaluate.cells import Cell, Result
    from fewview.evaluate.grid import Grid, plan
    from fewview.evaluate.metrics import EpisodeMetrics, measure
    from fewview.evaluate.options import bench, make_grid
    from fewview.evaluate.runner import Outcome, run
    from fewview.evaluate.statistics import (
        average_ranks,
        compare_paired,
        split_interval,
        standard_error,
    )
    from fewview.evaluate.store import Store
    from fewview.evaluate.summary import compare, rank, summarise_stored

_HOMES = {
    "Cell": "cells",
    "EpisodeMetrics": "metrics",
    "Grid": "grid",
    "Outcome": "runner",
    "Result": "cells",
    "Store": "store",
    "average_ranks": "statistics",
    "bench": "options",
    "compare": "summary",
    "compare_paired": "statistics",
    "make_grid": "options",
    "measure": "metrics",
    "plan": "grid",
    "rank": "summary",
    "run": "runner",
    "split_interval": "statistics",
    "standard_error": "statistics",
    "summarise_stored": "summary",
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
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
