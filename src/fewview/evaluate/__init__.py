"""How is it found? Grids, the runner, executors; and what `fewview.results` offers.

Needs no typer, rich or matplotlib. Names that need torch are loaded on first use, so that reading a
store does not wait for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fewview.ground._lazy import lazily
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
    "Grid": "fewview.evaluate._grid",
    "Outcome": "fewview.evaluate._runner",
    "bench": "fewview.evaluate._options",
    "make_grid": "fewview.evaluate._options",
    "plan": "fewview.evaluate._grid",
    "run": "fewview.evaluate._runner",
}
__getattr__ = lazily(__name__, _HOMES)

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
