"""UGDA, the paper's method (Section 4 and Algorithm 1), one file for each stage.

statistics -> distribution -> anchors -> aggregation or adam -> rectification -> method
"""

from fewview.methods.ugda.method import UGDA

__all__ = ["UGDA"]
