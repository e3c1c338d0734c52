"""A by-product: missing views filled with their conditional mean, and how sure that is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.exceptions import NotFittedError
from torch import Tensor

from fewview.engine._parameters import check_numbers
from fewview.methods.marginal._covariances import MarginalStatistics
from fewview.methods.marginal._model import Gaussians, conditional_gains, filled_in
from fewview.methods.marginal._projection import Projection, fit_projection
from fewview.numerics._batch import ViewTensors
from fewview.samples._data import MultiViewData
from fewview.samples._inputs import as_data
from fewview.samples._scaling import ViewScaling, fit_scaling


@dataclass(kw_only=True, eq=False, repr=False)
class MarginalImputer(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Fill missing views with their conditional mean given the present ones.

    The Gaussian model of `Marginal`: a sample of an unknown class has covariance S + B. What lies
    outside the kept principal components of a view is filled with its mean; the variance counts
    it too.

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
        check_numbers(self, shares=("shrinkage",), whole={"components": 1})
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
        self.spare_: dict[str, NDArray[np.float64]] = {}
        for index, (view, block) in enumerate(scaled.views.items()):
            axes = self.projection_.axes[index].numpy()
            kept = block[scaled.mask[:, index]]
            if len(kept):
                rest = kept - kept.mean(0)
                rest = rest - rest @ axes @ np.linalg.pinv(axes)
                self.spare_[view] = rest.var(axis=0)
            else:
                self.spare_[view] = np.ones(block.shape[1])
        return self

    def transform(self, X: Any) -> MultiViewData:
        """Return the samples with every missing view filled in; present views are unchanged."""
        return self.conditional(X)[0]

    def conditional(self, X: Any) -> tuple[MultiViewData, dict[str, NDArray[np.float64]]]:
        """Conditional mean and variance of every feature.

        Args:
            X: samples with the views seen in `fit`.

        Returns:
            filled: the samples, complete.
            variances: view -> [n, width], zero where the view was present.
        """
        if not hasattr(self, "model_"):
            raise NotFittedError("this MarginalImputer is not fitted; call fit first")
        data = as_data(X).like(self.reference_, "samples")
        scaled = self.scaling_.transform(data, np.float64)
        tensors = ViewTensors.of(scaled, dtype=torch.float64)
        rows = self.projection_.apply(tensors.views, tensors.mask)
        mean, variance = self._conditional(rows, tensors.mask)
        filled, variances = {}, {}
        means = torch.split(mean, list(self.model_.dims), dim=1)
        for index, (view, block) in enumerate(data.views.items()):
            axes, shift = self.projection_.axes[index], self.projection_.shift[index]
            back = torch.linalg.pinv(axes)  # [components, width]
            centre = torch.linalg.lstsq(axes.T, shift[:, None]).solution[:, 0]
            guess = (means[index] @ back + centre).numpy()
            spread = torch.einsum("nij,ik,jk->nk", variance[index], back, back).numpy()
            factor = self.scaling_.factor[view]
            gone = ~data.mask[:, index]
            out = np.array(block, dtype=np.float64)
            out[gone] = guess[gone] / factor + self.scaling_.shift[view]
            filled[view] = out
            unsure = (spread.clip(min=0) + self.spare_[view]) / np.square(factor)
            variances[view] = np.where(gone[:, None], unsure, 0.0)
        return MultiViewData(filled, data.labels), variances

    def _conditional(self, rows: Tensor, mask: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Mean [n, d] and per view covariance [n, d_v, d_v] of components, pattern by pattern."""
        model = self.model_
        total, mean = model.within + model.between, filled_in(model, rows, mask)
        covariances = [torch.zeros(len(rows), w, w, dtype=rows.dtype) for w in model.dims]
        for members, seen, gone, gain in conditional_gains(model, mask):
            rest = torch.zeros_like(total)
            rest[gone[:, None], gone] = total[gone][:, gone] - total[gone][:, seen] @ gain
            for view, block in enumerate(torch.split(rest, list(model.dims))):
                own = torch.split(block, list(model.dims), dim=1)[view]
                covariances[view][members] = own
        return mean, covariances
