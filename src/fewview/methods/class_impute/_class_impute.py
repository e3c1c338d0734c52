"""Class-aware imputation, for gaps that depend on the class (after Chen and others, AAAI 2025)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from fewview.engine._contract import TUNED
from fewview.engine._method import Method
from fewview.engine._parameters import check_numbers
from fewview.engine._registry import register
from fewview.engine._state import State, Tags
from fewview.episodes._task import TaskSpec
from fewview.numerics._batch import EpisodeBatch, ViewTensors
from fewview.numerics._distances import class_means, partial_distances
from fewview.samples._data import MultiViewData


@dataclass(frozen=True)
class BaseClasses(State):
    """Means of base classes, which others may borrow from."""

    means: tuple[Tensor, ...]  # per view [C, width]
    has: Tensor  # bool [C, V], whether any sample of the class has the view


@register("class-impute")
class ClassImpute(Method):
    """Gaps are filled by class, where a class has few samples of a view with help of others.

    The idea is that of RIML ("Biased Incomplete Multi-View Learning", Chen, Xu, Guan, Zhao and Liu,
    AAAI 2025), whose abstract alone could be read: an association of classes lets those that lack
    a view refer to those that have it. This is not that method: it draws several imputations and
    trains a network, here are expected values and the nearest class mean.

    How much class k borrows from class l is a softmax of minus their distance in the views that
    both have, over base classes and the other classes of the task. The expected value of a view in
    class k is the mean of its supports that have it and of `strength` borrowed ones. Supports are
    filled by their class; a query by the expected values under its class probabilities, which are
    computed again `n_iter` times. Views count the same, whatever their width.

    Args:
        strength: how many supports the borrowed mean counts for.
        sharpness: of both softmaxes, of minus the distance over its mean.
        n_iter: rounds of filling queries.

    Example:
        >>> from fewview import ClassImpute
        >>> nan = float("nan")
        >>> clf = ClassImpute().fit({"a": [[0.0], [9.0]], "b": [[1.0], [nan]]}, ["cat", "dog"])
        >>> clf.predict({"a": [[8.0], [1.0]], "b": [[nan], [1.0]]}).tolist()
        ['dog', 'cat']
    """

    scaling: str = "by-width"
    strength: float = 1.0
    sharpness: float = 10.0
    n_iter: int = 3

    tags: ClassVar[Tags] = Tags(handles_missing=True, bridges_views=True)
    tune_grid: ClassVar[dict[str, Any]] = {
        "scaling": TUNED["scaling"],
        "strength": (0.3, 1.0, 3.0),
    }

    def validate(self) -> None:
        """Check strength, sharpness and rounds."""
        super().validate()
        check_numbers(self, positive=("strength", "sharpness"), whole={"n_iter": 0})

    def prepare(self, base: MultiViewData, task: TaskSpec, seed: int) -> BaseClasses:
        """Means of all base classes in all views."""
        rows = ViewTensors.of(base, dtype=torch.float64)
        members = torch.eye(len(base.classes), dtype=torch.float64)[torch.from_numpy(base.codes)]
        own = members[..., None] * rows.mask[:, None]  # [n, C, V]
        means = [class_means(x[None], own[None, ..., v])[0] for v, x in enumerate(rows.views)]
        kept = tuple(mean.to(self.torch_dtype) for mean in means)
        return BaseClasses(kept, own.sum(0) > 0)

    def scores(self, batch: EpisodeBatch, state: State) -> Tensor:
        """Minus the distance to the filled class means, over its mean, times the sharpness."""
        own = batch.one_hot()[..., None] * batch.support_mask[:, :, None]  # [T, N_S, K, V]
        counts = own.sum(1)  # [T, K, V]
        means = [class_means(x, own[..., v]) for v, x in enumerate(batch.support)]
        lenders, lend = means, counts > 0
        if isinstance(state, BaseClasses):
            tasks = (batch.n_tasks, -1, -1)
            pairs = zip(means, state.means, strict=True)
            lenders = [torch.cat((mean, more.expand(tasks)), dim=1) for mean, more in pairs]
            lend = torch.cat((lend, state.has.expand(tasks)), dim=1)  # [T, K + C, V]
        weights = self._association(means, lenders, counts > 0, lend)
        total = batch.one_hot().sum(1)  # [T, K]
        centres = []
        for view, mean in enumerate(means):
            given = weights * lend[:, None, :, view]
            borrowed = given @ lenders[view] / given.sum(-1, keepdim=True).clamp(min=1e-30)
            count = counts[..., view, None]
            strength = self.strength * lend[..., view].any(1)[:, None, None]
            expected = (count * mean + strength * borrowed) / (count + strength).clamp(min=1e-30)
            gaps = total[..., None] - count
            centres.append((count * mean + gaps * expected) / total[..., None])
        return self._answers(batch, centres, lend.any(1))

    def _association(
        self, means: list[Tensor], lenders: list[Tensor], has: Tensor, lend: Tensor
    ) -> Tensor:
        """How much every class borrows from which, [T, K, K + C]; from itself nothing."""
        far, shared = partial_distances(means, lenders, has, lend)
        itself = torch.eye(len(means[0][0]), far.shape[-1], dtype=torch.bool, device=far.device)
        shared = shared & ~itself
        size = (far * shared).sum(-1, keepdim=True) / shared.sum(-1, keepdim=True).clamp(min=1)
        # Those that share no view are as far as the usual one.
        near = -self.sharpness * torch.where(shared, far, size) / torch.where(size > 0, size, 1.0)
        return torch.softmax(near.masked_fill(itself, -torch.inf), -1).nan_to_num(0.0)

    def _answers(self, batch: EpisodeBatch, centres: list[Tensor], known: Tensor) -> Tensor:
        """Fill queries by their class probabilities and compare, `n_iter` times."""
        mask, views = batch.query_mask & known[:, None], list(batch.query)
        everyone = known[:, None].expand(-1, batch.way, -1)
        for rounds in range(self.n_iter + 1):
            far, _ = partial_distances(views, centres, mask, everyone)
            size = far.mean(-1, keepdim=True)
            scores = -self.sharpness * far / torch.where(size > 0, size, 1.0)
            if rounds == self.n_iter:
                break
            likely = torch.softmax(scores, -1)
            for view, (rows, centre) in enumerate(zip(batch.query, centres, strict=True)):
                views[view] = torch.where(batch.query_mask[..., view, None], rows, likely @ centre)
            mask = known[:, None].expand(-1, batch.n_query, -1)
        return scores
