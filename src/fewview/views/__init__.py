"""What is a sample? `MultiViewData`, missing-view masks, per-view scaling, file readers."""

from fewview.views.data import MultiViewData
from fewview.views.errors import FewviewError, FewviewWarning
from fewview.views.masks import MissingRule, largest_rate
from fewview.views.scaling import SCALINGS, ViewScaling, fit_scaling

__all__ = [
    "SCALINGS",
    "FewviewError",
    "FewviewWarning",
    "MissingRule",
    "MultiViewData",
    "ViewScaling",
    "fit_scaling",
    "largest_rate",
]
