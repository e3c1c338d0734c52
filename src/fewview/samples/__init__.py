"""What is a sample? `MultiViewData`, missing-view masks, per-view scaling, file readers."""

from fewview.errors import FewviewError, FewviewWarning
from fewview.samples._data import MultiViewData
from fewview.samples._masks import MissingRule
from fewview.samples._rates import (
    CONVENTIONS,
    MissingRates,
    convert_rate,
    largest_rate,
    measure_rates,
)
from fewview.samples._scaling import SCALINGS, ViewScaling, fit_scaling

__all__ = [
    "CONVENTIONS",
    "SCALINGS",
    "FewviewError",
    "FewviewWarning",
    "MissingRates",
    "MissingRule",
    "MultiViewData",
    "ViewScaling",
    "convert_rate",
    "fit_scaling",
    "largest_rate",
    "measure_rates",
]
