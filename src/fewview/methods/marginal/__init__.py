"""Marginal, our own method: missing views integrated out of a Gaussian model.

projection -> covariances -> model (evidence, posterior, scores) -> rounds -> folds -> marginal
"""

from fewview.methods.marginal._covariances import MarginalStatistics
from fewview.methods.marginal._imputer import MarginalImputer
from fewview.methods.marginal._marginal import Marginal
from fewview.methods.marginal._rounds import MarginalState

__all__ = ["Marginal", "MarginalImputer", "MarginalState", "MarginalStatistics"]
