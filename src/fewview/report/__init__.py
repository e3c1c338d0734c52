"""How do people see it? Tables and figures made from result rows.

Nothing here computes a result: rows come from `evaluate/summary.py`. Matplotlib and rich are
imported by the functions that draw and print.
"""

from fewview.ground._rows import FORMATS, render
from fewview.results._summaries import pivot

__all__ = ["FORMATS", "pivot", "render"]
