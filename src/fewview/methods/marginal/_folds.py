"""Tasks pretended from base classes, scored under many settings that share most of the work."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fewview.episodes._pretended import Fold
from fewview.episodes._sampler import Episodes
from fewview.methods.marginal._covariances import MarginalStatistics, Moments
from fewview.methods.marginal._model import Evidence, Kept
from fewview.methods.marginal._projection import Projection, fit_projection
from fewview.methods.marginal._rounds import (
    MarginalState,
    Rule,
    restructured,
    score_alone,
    score_together,
)
from fewview.methods.marginal._settings import Settings
from fewview.numerics._batch import ViewTensors
from fewview.samples._scaling import fit_scaling


class FoldScorer:
    """Scores the queries of pretended tasks, and keeps what settings share."""

    def __init__(self, rule: Rule, device: torch.device, dtype: torch.dtype) -> None:
        self.rule, self.device, self.dtype = rule, device, dtype
        # With the most components that were asked for; fewer are the first of them.
        self._projected: dict[Any, tuple[int, Moments, ViewTensors]] = {}
        # Evidence of the latest model, per fold and kind of task: temperature, annealing, balance
        # and calibration do not change it.
        self._latest: dict[Any, tuple[Any, tuple[Evidence, Tensor, Tensor]]] = {}
        # What balanced and unbalanced tasks of a fold share under the latest model.
        self._shared: tuple[Any, Kept] = (None, Kept())

    def __call__(self, settings: Settings, fold: Fold, episodes: Episodes) -> Tensor:
        """Scores [tasks, n_query, way] on the CPU."""
        step, most = (id(fold), settings.scaling), settings.components
        model_key = (*step, most, settings.shrinkage, settings.prior, settings.prior_detail)
        place = (id(fold), id(episodes))
        with torch.no_grad():
            if place not in self._latest or self._latest[place][0] != model_key:
                if step not in self._projected or self._projected[step][0] < most:
                    self._projected[step] = (most, *self.projected(fold, settings))
                moments, samples = leading(*self._projected[step][1:], most)
                model = restructured(moments, settings, self.rule.structure)
                state = MarginalState(Projection.identity(model.dims), model, settings)
                state = state.to(self.device, self.dtype)
                if self._shared[0] != model_key:
                    self._shared = (model_key, Kept())
                alone = score_alone(samples.gather(episodes), state, self.rule, self._shared[1])
                self._latest[place] = (model_key, alone)
            return score_together(*self._latest[place][1], settings, self.rule).cpu()

    def projected(self, fold: Fold, settings: Settings) -> tuple[Moments, ViewTensors]:
        """Moments of the classes that stay base classes, and the components of the others."""
        scaling = fit_scaling(fold.known, settings.scaling)
        known, unknown = (
            scaling.transform(part, np.float64) for part in (fold.known, fold.unknown)
        )
        projection = fit_projection(known, settings.components)
        samples = ViewTensors.of(unknown, dtype=torch.float64)
        rows = projection.apply(samples.views, samples.mask).to(self.device, self.dtype)
        views = torch.split(rows, list(projection.dims), dim=-1)
        components = ViewTensors(views, samples.mask.to(self.device), samples.view_names)
        return MarginalStatistics(projection).update(known).moments(), components


def leading(moments: Moments, samples: ViewTensors, components: int) -> tuple[Moments, ViewTensors]:
    """The first components of every view."""
    views = tuple(view[:, :components] for view in samples.views)
    return moments.leading(components), replace(samples, views=views)
