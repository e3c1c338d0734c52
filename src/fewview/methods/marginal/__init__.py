"""Marginal, our own method: missing views integrated out of a Gaussian model.

projection -> statistics -> model (evidence, posterior, scores) -> balance -> method
"""

from fewview.methods.marginal._covariances import MarginalStatistics
from fewview.methods.marginal._imputer import MarginalImputer
from fewview.methods.marginal._marginal import Marginal, MarginalState

__all__ = ["Marginal", "MarginalImputer", "MarginalState", "MarginalStatistics"]
