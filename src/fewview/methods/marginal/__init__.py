"""Marginal, our own method: missing views integrated out of a Gaussian model.

projection -> statistics -> model (evidence, posterior, scores) -> balance -> method
"""

from fewview.methods.marginal.imputer import MarginalImputer
from fewview.methods.marginal.method import Marginal, MarginalState
from fewview.methods.marginal.statistics import MarginalStatistics

__all__ = ["Marginal", "MarginalImputer", "MarginalState", "MarginalStatistics"]
