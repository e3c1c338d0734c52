"""How is it found? Grids, the runner, executors; and what `fewview.results` offers.

Needs no typer, rich or matplotlib. Names that need torch are loaded on first use, so that reading a
store does not wait for it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fewview.results import (
    Cell,
    EpisodeMetrics,
    Result,
    Store,
    average_ranks,
    compare,
    compare_paired,
    measure,
    rank,
    split_interval,
    standard_error,
    summarise_stored,
)

if TYPE_CHECKING:
    from fewview.evaluate._grid import Grid, plan
    from fewview.evaluate._options import bench, make_grid
    from fewview.evaluate._runner import Outcome, run

_HOMES = {
    "Grid": "_grid", "Outcome": "_runner", "bench": "_options", "make_grid": "_options",
    "plan": "_grid", "run": "_runner",
}  # fmt: skip

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
