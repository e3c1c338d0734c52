"""What stands behind every method that trains networks: presets, where they are trained, the head.

The networks' own pieces (weights, steps, losses) are in `numerics/_networks.py`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from fewview.engine._contract import latent_batch
from fewview.engine._method import Method
from fewview.engine._parameters import check_numbers, choose, follow_preset
from fewview.engine._state import Prepared, State, Tags
from fewview.episodes._task import TaskSpec
from fewview.numerics._batch import EpisodeBatch, map_tensors
from fewview.numerics._distances import class_means, squared_distances
from fewview.numerics._networks import all_samples, masked_base
from fewview.numerics._padding import KEEPING, PADDINGS, fill
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
        padding: `"none"` leaves gaps to the method; `"class"` fills those of supports that another
            support of the class can fill; any other rule fills all gaps, of base samples too, and
            what was filled counts as observed, in training and after. The paper says that it did
            so for all methods that it compares with (`"episode"`).
    """

    padding: str = "none"
    preset: str = "fast"
    metric: str = "euclidean"
    train_on: str = "episode"

    version: ClassVar[int] = 3
    paddings: ClassVar[tuple[str, ...]] = (*KEEPING, *PADDINGS)
    paper_settings: ClassVar[dict[str, str]] = {"scaling": "scale", "padding": "episode"}
    # What `train_on` may be.
    places: ClassVar[tuple[str, ...]] = TRAIN_ON
    preset_settings: ClassVar[dict[str, dict[str, Any]]] = {}
    # Settings that zero switches off.
    may_be_zero: ClassVar[tuple[str, ...]] = ("view_width",)

    @property
    def tags(self) -> Tags:  # type: ignore[override]
        """Tags that follow from where the networks are trained."""
        episode = self.train_on == "episode"
        return Tags(
            transductive=episode,
            needs_base=self.train_on == "base",
            handles_missing=self.padding in KEEPING,
            deterministic=False,
            trained=True,
            prepare_depends_on=() if episode else ("missing",),
            learns_novel=self.train_on == "unlabelled",
        )

    def validate(self) -> None:
        """Check the preset, the metric, and that sizes and rates are possible."""
        super().validate()
        choose("preset", self.preset, PRESETS)
        choose("metric", self.metric, METRICS)
        choose("train_on", self.train_on, self.places)
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

    def padded(self, batch: EpisodeBatch, prepared: Prepared) -> EpisodeBatch:
        """Fill missing views by the rule; what is filled counts as observed."""
        return fill(batch, self.padding, prepared.base_means)

    def prepare(self, base: MultiViewData, task: TaskSpec, seed: int) -> State:
        """Unless they are trained in the task, train the networks on these samples."""
        return self.prepare_each(base, (task,), seed)[0]

    def prepare_each(
        self, base: MultiViewData, tasks: Sequence[TaskSpec], seed: int
    ) -> list[State]:
        """Train the networks of all tasks at once, each on samples with its own views missing."""
        if self.train_on == "episode":
            return [State() for _ in tasks]
        found = [self._filled(base, *self.base_samples(base, task, seed)) for task in tasks]
        views = [torch.cat(parts) for parts in zip(*(views for views, _ in found), strict=True)]
        mask = torch.cat([mask for _, mask in found])
        seeds = torch.full((len(tasks),), seed, device=self.torch_device)
        with torch.enable_grad():
            trained = self.train_on_base(base, views, mask, seeds)
        if len(tasks) == 1:
            return [trained]
        return [_of_task(trained, place) for place in range(len(tasks))]

    def trainings_at_once(self, n_samples: int, dims: tuple[int, ...]) -> int:
        """How many missing rates `prepare_each` should be given, where it trains for every one."""
        return 1

    def prepare_alone(self, rows: MultiViewData, task: TaskSpec, seed: int) -> State:
        """With `train_on="unlabelled"`, train the networks on all samples there are."""
        return self.prepare(rows, task, seed) if self.train_on == "unlabelled" else State()

    def _filled(
        self, base: MultiViewData, views: list[Tensor], mask: Tensor
    ) -> tuple[list[Tensor], Tensor]:
        """Fill gaps of base samples like those of supports, or of queries without labels."""
        known = base.labels is not None and bool((base.codes >= 0).all())
        n = len(base) if known else 0
        batch = fill(
            EpisodeBatch(
                support=tuple(view[:, :n] for view in views),
                query=tuple(view[:, n:] for view in views),
                support_mask=mask[:, :n],
                query_mask=mask[:, n:],
                support_labels=torch.as_tensor(base.codes[None, :n], device=mask.device),
                query_labels=None,
                seeds=torch.zeros(1, dtype=torch.int64, device=mask.device),
                way=max(1, len(base.classes)),
                view_names=base.view_names,
            ),
            self.padding,
        )
        return all_samples(batch)

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


def _of_task(state: State, place: int) -> State:
    """The networks of one of several tasks, whose tensors are [tasks, ...]."""
    return map_tensors(state, lambda whole: whole[place : place + 1].clone())


def with_codes(batch: EpisodeBatch, codes: Tensor) -> EpisodeBatch:
    """The tasks with codes [tasks, n_support + n_query, width] as their only view."""
    support, query = codes[:, : batch.n_support], codes[:, batch.n_support :]
    return latent_batch(batch, support, query, batch.support_labels)
