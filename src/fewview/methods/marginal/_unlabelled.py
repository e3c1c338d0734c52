"""Marginal without base classes: the Gaussians from unlabelled rows and the supports themselves.

How samples vary in all is known from any rows, queries too; how much of that is between classes is
not. So a stated share is taken to lie within classes, and supports correct it where a class has
several. Stated values were chosen on scene15, cub, newsgroups, movies617 and wikipedia without
their base classes (docs/marginal.md).
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from fewview.methods.marginal._covariances import MarginalStatistics, Moments
from fewview.methods.marginal._model import Gaussians
from fewview.methods.marginal._projection import Projection, fit_projection
from fewview.samples._data import MultiViewData

# Share of the variance of all samples that is taken to lie within classes, and how much of that is
# the same in all directions of a view: where samples vary most, it is classes that differ.
WITHIN_SHARE, ROUND = 0.5, 0.8
# Supports of a class up to which queries are looked at too, and the share of a sphere up to which
# they have something to say (of wide and sparse rows a few dozen tell nothing).
FEW, TELLING = 3, 0.5


def gaussians_alone(
    rows: MultiViewData, components: int, roundness: float = ROUND
) -> tuple[Projection, Gaussians]:
    """Projection and Gaussians from scaled rows, some or none of which have labels.

    The covariance T of all rows is shrunk towards a sphere in every view by the amount that is best
    for Gaussian rows (OAS, Chen et al. 2010), so that a handful of supports gives nearly spheres.
    Class means have the covariance (1 - s) T and samples s T around them, made rounder,
    s = `WITHIN_SHARE`; where classes have several supports, their f degrees of freedom are averaged
    in against as many as there are components.
    """
    projection, moments, amount = _spread(rows, components)
    size = moments.block_means(moments.total).clamp(min=1e-12)
    sphere = torch.diag((1 + 1e-6) * size)
    total = (1 - amount) * moments.total + amount * sphere + 1e-6 * sphere
    within = WITHIN_SHARE * ((1 - roundness) * total + roundness * sphere)
    labelled = rows[rows.codes >= 0]
    freedom = len(labelled) - len(labelled.classes)
    if freedom > 0:
        found = MarginalStatistics(projection).update(labelled).moments(one_class=True).within
        strength = len(total)
        within = (freedom * found + strength * within) / (freedom + strength)
    return projection, Gaussians(moments.mean, within, (1 - WITHIN_SHARE) * total, moments.dims)


def tell_something(rows: MultiViewData, components: int) -> bool:
    """Whether scaled rows are enough to say in which directions samples vary."""
    return _spread(rows, components)[2] <= TELLING


def _spread(rows: MultiViewData, components: int) -> tuple[Projection, Moments, float]:
    """Projection, moments of all rows as one class, and the share of a sphere to mix in."""
    projection = fit_projection(rows, components)
    everyone = rows.with_labels(np.zeros(len(rows), dtype=np.int64))
    moments = MarginalStatistics(projection).update(everyone).moments(one_class=True)
    return projection, moments, oas_shrinkage(moments.total, len(rows))


def beside(
    known: tuple[Projection, Gaussians], new: tuple[Projection, Gaussians]
) -> tuple[Projection, Gaussians]:
    """Two models of different views side by side, which say nothing about each other."""
    (first, one), (second, two) = known, new
    projection = Projection(
        first.axes + second.axes,
        first.shift + second.shift,
        first.centre + second.centre,
        first.spare + second.spare,
    )
    return projection, Gaussians(
        torch.cat([one.mean, two.mean]),
        _block_diagonal(one.within, two.within),
        _block_diagonal(one.between, two.between),
        one.dims + two.dims,
    )


def _block_diagonal(first: Tensor, second: Tensor) -> Tensor:
    out = first.new_zeros(len(first) + len(second), len(first) + len(second))
    out[: len(first), : len(first)], out[len(first) :, len(first) :] = first, second
    return out


def oas_shrinkage(covariance: Tensor, n: int) -> float:
    """Share of a sphere, 0 to 1, in the best estimate of a covariance [d, d] of n Gaussian rows."""
    width = len(covariance)
    squares = float((covariance @ covariance).diagonal().sum()) / width
    mean = float(covariance.diagonal().mean())
    # As scikit-learn's: mean squared entry and squared mean of the diagonal.
    alpha = squares / width
    top = alpha + mean**2
    bottom = (n + 1) * (alpha - mean**2 / width)
    return 1.0 if bottom <= 1e-12 * top else min(1.0, top / bottom)
