"""How do people see results? One self-contained page of a store, and rows as text.

Nothing here computes a result: rows come from `results/`.
"""

from fewview.ground._rows import FORMATS, render
from fewview.report._page import write_report
from fewview.results._summaries import pivot

__all__ = ["FORMATS", "pivot", "render", "write_report"]
