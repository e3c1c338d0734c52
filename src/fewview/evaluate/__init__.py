"""How is it found? Grids, the runner, executors; and what `fewview.results` offers.

Needs no typer, rich or matplotlib. Names are loaded on first use, so that reading a store does not
wait for torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fewview.ground._lazy import lazily

if TYPE_CHECKING:
    from fewview.evaluate._grid import Grid as Grid
    from fewview.evaluate._grid import plan as plan
    from fewview.evaluate._options import bench as bench
    from fewview.evaluate._options import make_grid as make_grid
    from fewview.evaluate._progress import PlainProgress as PlainProgress
    from fewview.evaluate._progress import Progress as Progress
    from fewview.evaluate._runner import Outcome as Outcome
    from fewview.evaluate._runner import run as run
    from fewview.results import Cell as Cell
    from fewview.results import EpisodeMetrics as EpisodeMetrics
    from fewview.results import Result as Result
    from fewview.results import Store as Store
    from fewview.results import average_ranks as average_ranks
    from fewview.results import compare as compare
    from fewview.results import compare_paired as compare_paired
    from fewview.results import compare_with_best as compare_with_best
    from fewview.results import measure as measure
    from fewview.results import rank as rank
    from fewview.results import split_interval as split_interval
    from fewview.results import standard_error as standard_error
    from fewview.results import summarise_stored as summarise_stored

_HOMES = {
    "Grid": "fewview.evaluate._grid",
    "Outcome": "fewview.evaluate._runner",
    "PlainProgress": "fewview.evaluate._progress",
    "Progress": "fewview.evaluate._progress",
    "bench": "fewview.evaluate._options",
    "make_grid": "fewview.evaluate._options",
    "plan": "fewview.evaluate._grid",
    "run": "fewview.evaluate._runner",
} | dict.fromkeys(
    (
        "Cell", "EpisodeMetrics", "Result", "Store", "average_ranks", "compare", "compare_paired",
        "compare_with_best", "measure", "rank", "split_interval", "standard_error",
        "summarise_stored",
    ),
    "fewview.results",
)  # fmt: skip
__all__ = [*_HOMES]  # noqa: PLE0604 - plain text, all of it
__getattr__ = lazily(__name__, _HOMES)
