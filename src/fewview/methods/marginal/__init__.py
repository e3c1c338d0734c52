"""Marginal, our own method: missing views integrated out of a Gaussian model.

projection -> statistics -> model (evidence, posterior, scores) -> balance -> method
"""

from fewview.methods.marginal.method import Marginal

__all__ = ["Marginal"]
