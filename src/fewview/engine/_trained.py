"""What stands behind every method that trains networks: presets, where they are trained, the head.

The networks' own pieces (weights, steps, losses) are in `numerics/_networks.py`.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import torch
from torch import Tensor

from fewview.engine._contract import latent_batch
from fewview.engine._method import Method
from fewview.engine._parameters import check_numbers, choose, follow_preset
from fewview.engine._state import State, Tags
from fewview.episodes._task import TaskSpec
from fewview.numerics._batch import EpisodeBatch
from fewview.numerics._distances import class_means, squared_distances
from fewview.numerics._networks import masked_base
from fewview.samples._data import MultiViewData

METRICS = ("euclidean", "cosine", "inner")
PRESETS = ("fast", "paper")
TRAIN_ON = ("episode", "base")


def prototype_scores(latent: EpisodeBatch, metric: str, temperature: float = 10.0) -> Tensor:
    """Score queries by their nearest class mean in the view `latent`: [tasks, n_query, way].

    Scores are brought to a common size, which changes probabilities and never predictions. The
    metric is `"euclidean"` (minus squared distances over their mean), `"cosine"`, or `"inner"`
    (inner products over the length of the query and the mean length of the prototypes).
    """
    query = latent.query[0]
    prototypes = class_means(latent.support[0], latent.one_hot())
    if metric == "euclidean":
        distances = squared_distances(query, prototypes)
        size = distances.mean(-1, keepdim=True)
        return -temperature * distances / torch.where(size > 0, size, 1.0)
    lengths = prototypes.norm(dim=-1)[:, None]
    if metric == "inner":
        lengths = lengths.mean(-1, keepdim=True)
    size = query.norm(dim=-1, keepdim=True) * lengths
    return temperature * (query @ prototypes.mT) / torch.where(size > 0, size, 1.0)


class TrainedMethod(Method):
    """A method that trains networks and classifies by the nearest prototype in their space.

    A subclass implements `embed` and `train_on_base`, and lists in `preset_settings` what a preset
    puts in place of parameters that are None.

    Args:
        preset: `"fast"`, affordable on two cores, or `"paper"`, the published sizes and epochs.
        metric: how the head compares a query with a prototype, one of `METRICS`.
        train_on: what the networks are trained on: `"episode"` (the task's own supports and
            queries) or `"base"` (base classes, with views missing as in the task).
    """

    preset: str = "fast"
    metric: str = "euclidean"
    train_on: str = "episode"

    preset_settings: ClassVar[dict[str, dict[str, Any]]] = {}
    # Settings that zero switches off.
    may_be_zero: ClassVar[tuple[str, ...]] = ("view_width",)

    @property
    def tags(self) -> Tags:  # type: ignore[override]
        """Tags that follow from where the networks are trained."""
        base = self.train_on == "base"
        return Tags(
            transductive=not base,
            needs_base=base,
            handles_missing=True,
            deterministic=False,
            trained=True,
            prepare_depends_on=("missing",) if base else (),
        )

    def validate(self) -> None:
        """Check the preset, the metric, and that sizes and rates are possible."""
        super().validate()
        choose("preset", self.preset, PRESETS)
        choose("metric", self.metric, METRICS)
        choose("train_on", self.train_on, TRAIN_ON)
        settings = self.settings()
        check_numbers(
            settings,
            positive=[name for name in settings if name not in self.may_be_zero],
            not_negative=[name for name in settings if name in self.may_be_zero],
        )

    def preset_row(self) -> dict[str, Any]:
        """What the preset says."""
        return self.preset_settings[self.preset]

    def settings(self) -> dict[str, Any]:
        """All parameters that the preset has a say in: the value given, else the preset's."""
        return follow_preset(self, self.preset_row())

    def reduced_width(self, dims: tuple[int, ...]) -> int:
        """Features of all views together after `view_width` was applied to each."""
        most = self.settings()["view_width"] or max(dims)
        return sum(min(most, size) for size in dims)

    def prepare(self, base: MultiViewData, task: TaskSpec, seed: int) -> State:
        """With `train_on="base"`, train the networks on base classes."""
        if self.train_on != "base":
            return State()
        views, mask = self.base_samples(base, task, seed)
        with torch.enable_grad():
            seeds = torch.tensor([seed], device=self.torch_device)
            return self.train_on_base(base, views, mask, seeds)

    def base_samples(
        self, base: MultiViewData, task: TaskSpec, seed: int
    ) -> tuple[list[Tensor], Tensor]:
        """Base samples as the networks see them: views [1, n, width], mask [1, n, V]."""
        return masked_base(base, task, seed, self.torch_device, self.torch_dtype)

    @abstractmethod
    def train_on_base(
        self, base: MultiViewData, views: list[Tensor], mask: Tensor, seeds: Tensor
    ) -> State:
        """Networks trained on base samples; `views` and `mask` are from `base_samples`."""

    @abstractmethod
    def embed(self, batch: EpisodeBatch, state: State) -> EpisodeBatch:
        """The tasks in the space of the trained networks."""

    def scores(self, batch: EpisodeBatch, state: State) -> Tensor:
        """Nearest prototype in the space of the networks."""
        return prototype_scores(self.embed(batch, state), self.metric)


def with_codes(batch: EpisodeBatch, codes: Tensor) -> EpisodeBatch:
    """The tasks with codes [tasks, n_support + n_query, width] as their only view."""
    support, query = codes[:, : batch.n_support], codes[:, batch.n_support :]
    return latent_batch(batch, support, query, batch.support_labels)
