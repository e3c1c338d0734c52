"""UGDA without base classes: k-means groups of unlabelled samples in their place.

Samples without labels still show where samples lie and how views go together. Without them anchors
collapse onto the supports, and gaps are padded.
"""

from __future__ import annotations

import numpy as np
from threadpoolctl import threadpool_limits

from fewview.methods.ugda.statistics import BaseStatistics, BaseSums
from fewview.numerics.moments import ClassStatistics
from fewview.samples._data import MultiViewData

MOST_GROUPS = 20


def group_statistics(rows: MultiViewData, seed: int) -> BaseStatistics:
    """Statistics from scaled samples; supports, which have labels, are left out."""
    unlabelled = rows[rows.codes < 0]
    if len(unlabelled) < 10:  # too few to say anything about groups: one class without any view
        return BaseStatistics.of(ClassStatistics(rows.view_dims, {0: {}}))
    from sklearn.cluster import KMeans  # takes long to load, and is needed here alone

    blocks = []
    for has, block in zip(unlabelled.mask.T, unlabelled.views.values(), strict=True):
        mean = block[has].mean(axis=0) if has.any() else np.zeros(block.shape[1])
        blocks.append(np.where(has[:, None], block, mean))
    n_groups = int(min(MOST_GROUPS, max(2, round((len(unlabelled) / 2) ** 0.5))))
    with threadpool_limits(1):
        groups = KMeans(n_groups, n_init=4, random_state=seed).fit_predict(np.hstack(blocks))
    sums = BaseSums(ClassStatistics(rows.view_dims)).update(unlabelled.with_labels(groups))
    return BaseStatistics.of(sums.found)
