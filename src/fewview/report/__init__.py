"""How do people see it? Tables and figures made from result rows.

Nothing here computes a result: rows come from `evaluate/summary.py`. Matplotlib and rich are
imported by the functions that draw and print.
"""

from fewview.report._rows import FORMATS, pivot, render

__all__ = ["FORMATS", "pivot", "render"]
