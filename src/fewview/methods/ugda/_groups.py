"""UGDA without base classes: groups of unlabelled rows in their place, or nothing at all.

Rows without labels still show where samples lie and how views go together: their k-means groups
play the base classes. Without such rows anchors collapse onto the supports, and gaps are padded.
"""

from __future__ import annotations

import warnings

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from fewview.ground._errors import FewviewWarning
from fewview.methods.ugda._base_statistics import BaseStatistics, stack_statistics
from fewview.numerics._moments import ClassStatistics
from fewview.samples._data import MultiViewData

# Fewer unlabelled rows than this say too little about groups.
FEWEST_ROWS = 10
MOST_GROUPS = 20


def statistics_alone(rows: MultiViewData, seed: int) -> BaseStatistics:
    """Statistics from scaled rows, supports or without labels, of which the latter are grouped."""
    unlabelled = rows[rows.codes < 0]
    if len(unlabelled) < FEWEST_ROWS:
        return nothing_known(rows.view_dims)
    from sklearn.cluster import KMeans  # takes long to load, and is needed here alone

    blocks = []
    for view, block in enumerate(unlabelled.views.values()):
        has = unlabelled.mask[:, view]
        mean = block[has].mean(axis=0) if has.any() else np.zeros(block.shape[1])
        blocks.append(np.where(has[:, None], block, mean))
    n_groups = int(min(MOST_GROUPS, max(2, round((len(unlabelled) / 2) ** 0.5))))
    with threadpool_limits(1):
        groups = KMeans(n_groups, n_init=4, random_state=seed).fit_predict(np.hstack(blocks))
    with warnings.catch_warnings():
        # Warnings about single samples speak of base classes, which these groups are not.
        warnings.simplefilter("ignore", FewviewWarning)
        return stack_statistics(ClassStatistics.of(unlabelled.with_labels(groups)))


def nothing_known(view_dims: dict[str, int]) -> BaseStatistics:
    """Statistics of one class that has no view at all."""
    widths = list(view_dims.values())
    return BaseStatistics(
        means=tuple(torch.zeros(1, width, dtype=torch.float64) for width in widths),
        factors=tuple(torch.zeros(1, 0, width, dtype=torch.float64) for width in widths),
        covariances=tuple(torch.empty(0) for _ in widths),
        available=torch.zeros(1, len(widths), dtype=torch.bool),
    )
