"""UGDA, the paper's method (Section 4 and Algorithm 1), one file per stage.

statistics -> distribution -> anchors -> aggregation or evaluator -> rectification -> method
"""

from fewview.methods.ugda._ugda import UGDA, UGDATrace

__all__ = ["UGDA", "UGDATrace"]
