"""How is it found? Grids, the runner, executors; and what `fewview.results` offers.

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

_OWN = {
    "Grid": "_grid",
    "Outcome": "_runner",
    "bench": "_options",
    "make_grid": "_options",
    "plan": "_grid",
    "run": "_runner",
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
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = f"{__name__}.{_OWN[name]}" if name in _OWN else "fewview.results"
    return getattr(import_module(home), name)
