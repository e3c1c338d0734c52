"""Class-aware imputation, for gaps that depend on the class (after Chen and others, AAAI 2025)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fewview.episodes.batch import EpisodeBatch, ViewTensors
from fewview.episodes.task import TaskSpec
from fewview.methods.base import State, Tags
from fewview.methods.estimator.method import Method
from fewview.methods.params import param
from fewview.methods.registry import register
from fewview.numerics.distances import class_means, partial_distances
from fewview.samples._data import MultiViewData


@dataclass(frozen=True)
class BaseClasses(State):
    """Means of base classes, which others may borrow from."""

    means: tuple[Tensor, ...]  # per view [C, width]
    has: Tensor  # bool [C, V], whether any sample of the class has the view


@register("class-impute")
@dataclass(kw_only=True, eq=False, repr=False)
class ClassImpute(Method):
    """Gaps are filled by class, where a class has few samples of a view with help of others.

    The idea is that of RIML ("Biased Incomplete Multi-View Learning", AAAI 2025), of which only the
    abstract could be read: an association of classes lets those that lack a view refer to those
    that have it. That method draws several imputations and trains a network; here are expected
    values and the nearest class mean.

    How much class k borrows from class l is a softmax of minus their distance in the views that
    both have, over base classes and the other classes of the task. The expected value of a view in
    class k is the mean of its supports that have it and of `strength` borrowed ones. Supports are
    filled by their class; a query by the expected values under its class probabilities, which are
    computed again `n_iter` times. Views count the same, whatever their width.

    Args:
        strength: how many supports the borrowed mean counts for.
        temperature: of both softmaxes, of minus the distance over its mean.
        n_iter: rounds of filling queries.

    Example:
        >>> from fewview import ClassImpute
        >>> nan = float("nan")
        >>> clf = ClassImpute().fit({"a": [[0.0], [9.0]], "b": [[1.0], [nan]]}, ["cat", "dog"])
        >>> clf.predict({"a": [[8.0], [1.0]], "b": [[nan], [1.0]]}).tolist()
        ['dog', 'cat']
    """

    scaling: str = param("by-width")
    padding: str = param("episode", tune=())
    strength: float = param(1.0, above=0, tune=(0.3, 1.0, 3.0))
    temperature: float = param(10.0, above=0)
    n_iter: int = param(3, least=0)

    tags: ClassVar[Tags] = Tags(handles_missing=True, links_views=True)

    def learn(self, base: MultiViewData, task: TaskSpec, seed: int) -> BaseClasses:
        """Means of all base classes in all views."""
        rows = ViewTensors.of(base, dtype=torch.float64)
        members = torch.eye(len(base.classes), dtype=torch.float64)[torch.from_numpy(base.codes)]
        own = members[..., None] * rows.mask[:, None]  # [n, C, V]
        means = [class_means(x[None], own[None, ..., v])[0] for v, x in enumerate(rows.views)]
        return BaseClasses(tuple(means), own.sum(0) > 0)

    def scores(self, batch: EpisodeBatch, state: State) -> Tensor:
        """Minus the distance to the filled class means, over its mean, times the temperature."""
        centres, known = self.filled_means(batch, state)
        everyone, mask = known[:, None].expand(-1, batch.way, -1), batch.query_mask & known[:, None]
        views = batch.query
        for number in range(self.n_iter + 1):
            far, _ = partial_distances(views, centres, mask, everyone)
            size = far.mean(-1, keepdim=True)
            scores = -self.temperature * far / torch.where(size > 0, size, 1.0)
            if number < self.n_iter:  # fill queries by their class probabilities
                likely = torch.softmax(scores, -1)
                views = tuple(
                    torch.where(batch.query_mask[..., view, None], rows, likely @ centre)
                    for view, (rows, centre) in enumerate(zip(batch.query, centres, strict=True))
                )
                mask = known[:, None].expand(-1, batch.n_query, -1)
        return scores

    def filled_means(self, batch: EpisodeBatch, state: State) -> tuple[list[Tensor], Tensor]:
        """Means of filled classes, per view [T, K, width], and who has any: bool [T, V]."""
        own = batch.one_hot()[..., None] * batch.support_mask[:, :, None]  # [T, N_S, K, V]
        total, counts = batch.one_hot().sum(1)[..., None], own.sum(1)  # [T, K, 1], [T, K, V]
        means = [class_means(x, own[..., v]) for v, x in enumerate(batch.support)]
        lenders, lend = means, counts > 0
        if isinstance(state, BaseClasses):
            pairs = zip(means, state.means, strict=True)
            lenders = [torch.cat((x, y.expand(batch.n_tasks, -1, -1)), dim=1) for x, y in pairs]
            lend = torch.cat(
                (lend, state.has.expand(batch.n_tasks, -1, -1)), dim=1
            )  # [T, K + C, V]
        weights = self.association(means, lenders, counts > 0, lend)
        centres = []
        for view, mean in enumerate(means):
            given = weights * lend[:, None, :, view]
            borrowed = given @ lenders[view] / given.sum(-1, keepdim=True).clamp(min=1e-30)
            count = counts[..., view, None]
            strength = self.strength * lend[..., view].any(1)[:, None, None]
            expected = (count * mean + strength * borrowed) / (count + strength).clamp(min=1e-30)
            centres.append((count * mean + (total - count) * expected) / total)
        return centres, lend.any(1)

    def association(
        self, means: Sequence[Tensor], lenders: Sequence[Tensor], has: Tensor, lend: Tensor
    ) -> Tensor:
        """How much every class borrows from which, [T, K, K + C]; from itself nothing."""
        far, shared = partial_distances(means, lenders, has, lend)
        itself = torch.eye(far.shape[1], far.shape[2], dtype=torch.bool, device=far.device)
        shared = shared & ~itself
        size = (far * shared).sum(-1, keepdim=True) / shared.sum(-1, keepdim=True).clamp(min=1)
        # Those that share no view are as far as the usual one.
        near = -self.temperature * torch.where(shared, far, size) / torch.where(size > 0, size, 1.0)
        return torch.softmax(near.masked_fill(itself, -torch.inf), -1).nan_to_num(0.0)
