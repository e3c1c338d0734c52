"""A by-product: what is missing filled with its conditional mean, and how sure that is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.exceptions import NotFittedError

from fewview.episodes.batch import ViewTensors
from fewview.errors import FewviewError
from fewview.methods.marginal._covariances import MarginalStatistics
from fewview.methods.marginal._empty_cells import Space, conditional_rows, rows_with_empty
from fewview.methods.marginal._model import Gaussians
from fewview.methods.marginal._projection import Projection, fit_projection
from fewview.samples._columns import Columns
from fewview.samples._data import MultiViewData
from fewview.samples._inputs import as_data
from fewview.samples._scaling import ViewScaling, fit_scaling


@dataclass(kw_only=True, eq=False, repr=False)
class MarginalImputer(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Fill missing views and empty cells with their conditional mean given all that is there.

    The Gaussian model of `Marginal`: a sample of an unknown class has covariance S + B, and outside
    the kept principal components of a view a sphere, as `_empty_cells.py` states.
    `Marginal.impute` does the same with what a model has learnt.

    Args:
        components: most principal components of a view.
        shrinkage: of covariances towards their diagonal, and a little to a sphere in every view.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> a = rng.normal(size=(60, 2))
        >>> data = MultiViewData({"a": a, "b": a @ [[1.0], [2.0]]}, labels=np.repeat([0, 1], 30))
        >>> imputer = MarginalImputer(shrinkage=0.01).fit(data)
        >>> mask = np.array([[True, False]])
        >>> filled = imputer.transform(data[:1].with_mask(mask))
        >>> bool(abs(filled.view("b") - data[:1].view("b")).max() < 0.2)
        True
    """

    components: int = 64
    shrinkage: float = 0.1

    def fit(self, X: Any, y: Any = None) -> MarginalImputer:
        """Learn how views go together.

        Args:
            X: samples, some of which may lack views.
            y: their labels; without labels all samples count as one population.
        """
        if not (0 <= self.shrinkage <= 1 and self.components >= 1):
            raise FewviewError(
                f"shrinkage={self.shrinkage}, components={self.components}: give a share from 0 to "
                "1, and at least one component"
            )
        data = as_data(X, y)
        self.scaling_: ViewScaling = fit_scaling(data, "standard")
        scaled = self.scaling_.transform(data, np.float64)
        self.projection_: Projection = fit_projection(scaled, self.components)
        # Only the sum S + B is needed, so every sample may be of the same class.
        rows = scaled.with_labels(np.zeros(len(data), dtype=np.int64))
        statistics = MarginalStatistics(self.projection_).update(rows)
        moments = statistics.moments(one_class=True)
        self.model_: Gaussians = moments.shrunk(self.shrinkage, 0.0)
        self.reference_ = data[:0]
        return self

    def transform(self, X: Any) -> MultiViewData:
        """Return the samples with all that is missing filled in; what is there is unchanged."""
        return self.conditional(X)[0]

    def conditional(self, X: Any) -> tuple[MultiViewData, dict[str, NDArray[np.float64]]]:
        """Conditional mean and variance of every feature.

        Args:
            X: samples with the views seen in `fit`.

        Returns:
            filled: the samples, complete.
            variances: view -> [n, width], zero where the cell was there.
        """
        if not hasattr(self, "model_"):
            raise NotFittedError("this MarginalImputer is not fitted; call fit first")
        data = as_data(X).like(self.reference_, "samples")
        filled, deviations = impute(data, self.scaling_, self.projection_, self.model_)
        return filled, {view: np.square(block) for view, block in deviations.views.items()}


def impute(
    data: MultiViewData, scaling: ViewScaling, projection: Projection, model: Gaussians
) -> tuple[MultiViewData, MultiViewData]:
    """The samples with missing views and empty cells filled in, and standard deviations of that.

    The class of a sample is not known, so it has the covariance S + B. Deviations are zero where a
    cell was there.
    """
    scaled = ViewTensors.of(scaling.transform(data, np.float64, True), dtype=torch.float64)
    which = rows_with_empty(scaled.views, scaled.mask) | ~scaled.mask.all(1)
    variances = tuple(map(torch.zeros_like, scaled.views))
    space = Space.of(projection, model.within + model.between, model.mean)
    means = conditional_rows(space, scaled.views, scaled.mask, which, variances=variances)
    filled, deviations = {}, {}
    for view, mean, variance in zip(data.view_names, means, variances, strict=True):
        block = np.asarray(data.view(view), dtype=np.float64)
        gone = np.isnan(block)
        guess, unsure = scaling.undo(view, mean.numpy(), variance.numpy(), block)
        guess, unsure = _as_chances(guess, unsure, data.kinds.get(view, ()))
        filled[view] = np.where(gone, guess, block)
        deviations[view] = np.where(gone, np.sqrt(unsure), 0.0)
    there = np.ones_like(data.mask)
    return tuple(  # type: ignore[return-value]
        MultiViewData.unchecked(views, there, data.labels, data.ids, data.columns, data.name)
        for views in (filled, deviations)
    )


def _as_chances(
    means: NDArray[np.float64], variances: NDArray[np.float64], columns: Columns
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Means [n, width] as probabilities where columns hold categories or truth values.

    A Gaussian knows nothing of limits: what is below zero is cut off, and categories are divided by
    their sum (all alike where nothing is left). A cell that is one with probability p has the
    variance p (1 - p).
    """
    start = 0
    for column in columns:
        here = slice(start, start := start + column.width)
        if column.kind not in ("category", "boolean"):
            continue
        chance = means[:, here].clip(0, 1)
        if column.kind == "category":
            whole = chance.sum(axis=1, keepdims=True)
            chance = np.where(whole > 0, chance, 1.0) / np.where(whole > 0, whole, column.width)
        means[:, here], variances[:, here] = chance, chance * (1 - chance)
    return means, variances
