"""How well queries fit classes, of few supports or of a whole base class, on one scale."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from fewview.episodes.batch import EpisodeBatch
from fewview.methods.base import Contract, State
from fewview.methods.estimator.fitted_base import FittedBase
from fewview.numerics.distances import class_means, squared_distances
from fewview.numerics.random_keys import raw, smallest, stream_key
from fewview.samples._data import MultiViewData

# The mean of a base class counts as so many supports at most: it is sure enough then, and classes
# of different sizes share their matrices.
MOST_WEIGHT = 20


def class_fits(method: Contract, batch: EpisodeBatch, fitted: FittedBase) -> Tensor:
    """How well queries fit every class, [tasks, n_query, way]; higher is more normal.

    It can be compared between queries. That is the method's `typicality`, or minus the distance to
    the mean of the class (`mean_distances`) where it has none of its own.
    """
    with torch.no_grad():
        found = method.typicality(batch, fitted.state)
    return -mean_distances(batch, fitted.spread) if found is None else found


def mean_distances(batch: EpisodeBatch, spread: Sequence[float]) -> Tensor:
    """Squared distance to the mean of every class, in units of the spread, [tasks, n_query, way].

    Where samples are s^2 from the centre of their class, the mean of n supports is s^2 / n from it.
    So |x - m|^2 / (s^2 (1 + 1 / n)) is about the same in every view, however wide it is and however
    it was scaled, for a class of one support and for the mean of a base class. Of these the mean is
    taken, over views that the query and the class share. Where they share none, the mean over
    classes of the query that do, or of the task, stands in.
    """
    members = batch.one_hot()
    total = number = members.new_zeros(())
    for view, (query, support) in enumerate(zip(batch.query, batch.support, strict=True)):
        weights = members * batch.support_mask[..., view, None]
        count = weights.sum(1)[:, None]  # [T, 1, K]
        far = squared_distances(query, class_means(support, weights)) / query.shape[-1]
        usual = spread[view] * (1 + 1 / count.clamp(min=1e-30))
        shared = batch.query_mask[..., view, None] & (count > 0)
        total = total + torch.where(shared, far / usual, 0.0)
        number = number + shared
    found, known = total / number.clamp(min=1), (number > 0).to(total)
    everyone = (known * found).sum((1, 2), keepdim=True) / known.sum((1, 2), keepdim=True).clamp(1)
    classes = known.sum(2, keepdim=True)
    own = torch.where(classes > 0, (known * found).sum(2, keepdim=True) / classes, everyone)
    return torch.where(known > 0, found, own)


@dataclass(frozen=True, eq=False)
class ClassMeans(State):
    """Base classes as supports: one row each, the mean of their scaled samples."""

    labels: tuple[int | float | str, ...]
    means: tuple[Tensor, ...]  # per view [C, width], zeros where no sample of the class has it
    mask: Tensor  # bool [C, V]
    weights: Tensor  # how many supports a mean counts as, [C]

    @classmethod
    def of(cls, method: Contract, data: MultiViewData, fitted: FittedBase) -> ClassMeans:
        """Of unscaled labelled samples; one sample of a class would be that sample itself."""
        sizes = np.bincount(data.codes, minlength=len(data.classes))
        kept = np.flatnonzero(sizes >= 2)
        some = data[np.isin(data.codes, kept)]
        rows = method.tensors(some, fitted)
        places = torch.from_numpy(np.searchsorted(kept, some.codes)).to(rows.mask.device)
        means, masks = [], []
        for view, block in enumerate(rows.views):
            known = ~block.isnan() & rows.mask[:, view, None]
            zeros = block.new_zeros(len(kept), block.shape[1])
            counts = zeros.index_add(0, places, known.to(block))
            sums = zeros.index_add(0, places, torch.where(known, block, 0.0))
            means.append((sums / counts.clamp(min=1)).cpu())
            masks.append((counts > 0).any(1).cpu())
        weights = torch.from_numpy(np.minimum(sizes[kept], MOST_WEIGHT)).float()
        labels = tuple(data.classes[kept].tolist())
        return cls(labels, tuple(means), torch.stack(masks, dim=1), weights)

    def some(self, most: int) -> ClassMeans:
        """At most so many of the classes."""
        keys = raw(np.array(stream_key("some known"), dtype=np.uint64), len(self.labels))
        keep = np.sort(smallest(keys, min(most, len(keys))))
        labels = tuple(self.labels[place] for place in keep)
        means = tuple(mean[keep] for mean in self.means)
        return ClassMeans(labels, means, self.mask[keep], self.weights[keep])

    def added_to(self, batch: EpisodeBatch) -> EpisodeBatch:
        """The tasks with these classes after their own."""
        means, mask = self.means, self.mask
        for view in batch.support[len(means) :]:  # that only supports have
            means = (*means, view.new_zeros(len(mask), view.shape[-1]))
            mask = torch.cat([mask, torch.zeros_like(mask[:, :1])], dim=1)

        def more(own: Tensor, other: Tensor) -> Tensor:
            return torch.cat([own, other.to(own).expand(batch.n_tasks, *other.shape)], dim=1)

        weights = batch.support_weights
        if weights is None:
            weights = torch.ones_like(batch.support_labels, dtype=batch.dtype)
        return replace(
            batch,
            support=tuple(map(more, batch.support, means)),
            support_mask=more(batch.support_mask, mask),
            support_labels=more(batch.support_labels, batch.way + torch.arange(len(mask))),
            support_weights=more(weights, self.weights),
            way=batch.way + len(mask),
        )
