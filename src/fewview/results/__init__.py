"""What was found, and how sure are we? Cells, metrics, the store, summaries, comparisons.

Needs no torch: a store is read and compared in an instant.
"""

from fewview.results._cells import Cell, Result
from fewview.results._comparing import Ranked, compare, rank
from fewview.results._intervals import (
    PairedComparison,
    Ranking,
    average_ranks,
    compare_paired,
    compare_with_best,
    split_interval,
    standard_error,
)
from fewview.results._metrics import EpisodeMetrics, measure
from fewview.results._store import Store
from fewview.results._summaries import pivot, summarise_stored

__all__ = [
    "Cell",
    "EpisodeMetrics",
    "PairedComparison",
    "Ranked",
    "Ranking",
    "Result",
    "Store",
    "average_ranks",
    "compare",
    "compare_paired",
    "compare_with_best",
    "measure",
    "pivot",
    "rank",
    "split_interval",
    "standard_error",
    "summarise_stored",
]
