"""What a law is checked on: a method, small data, and comparisons of probabilities."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from sklearn.base import clone
from torch import Tensor

from fewview.episodes.batch import EpisodeBatch
from fewview.episodes.sampler import EpisodeSampler
from fewview.episodes.task import TaskSpec
from fewview.methods.estimator.fitted_base import FittedBase, learn_base
from fewview.methods.estimator.method import Method
from fewview.samples._data import MultiViewData

WAY, WIDTHS = 3, {"a": 5, "b": 8, "c": 3}


@dataclass(frozen=True)
class Case:
    """A method under test, and the data it is tested on: 6 base and 4 novel classes, 3 views."""

    method: Method
    base: MultiViewData
    novel: MultiViewData
    n_tasks: int

    @property
    def exact(self) -> bool:
        """Whether answers may be compared one by one."""
        return not self.method.tags.random

    def make(self, **parameters: Any) -> Method:
        """The method in float64 on the CPU, with some parameters changed."""
        settings: dict[str, Any] = {"dtype": "float64", "device": "cpu", **parameters}
        method: Method = clone(self.method).set_params(**settings)
        return method

    def setting(
        self, eta: float = 0.3, shot: Any = 2, **parameters: Any
    ) -> tuple[Method, FittedBase, EpisodeBatch]:
        """The method, what it learnt from the base set, and a batch of scaled tasks."""
        method, task = self.make(**parameters), TaskSpec(way=WAY, shot=shot, queries=5, eta=eta)
        fitted = learn_base(method, self.base, task)
        episodes = EpisodeSampler(self.novel, task, name="laws").draw(0, self.n_tasks)
        tensors = method.tensors(self.novel, fitted)
        if method.tags.learns_from == "tasks":
            fitted = replace(fitted, state=method.learn_from_tasks(tensors, episodes, 0))
        return method, fitted, tensors.gather(episodes)

    def task(self, gaps: bool = True) -> tuple[MultiViewData, MultiViewData]:
        """Two supports and six queries of three novel classes, for fit and predict."""
        rank = np.array([(self.novel.codes[:k] == c).sum() for k, c in enumerate(self.novel.codes)])
        few = self.novel.codes < WAY
        support, query = self.novel[few & (rank < 2)], self.novel[few & (rank >= 2) & (rank < 8)]
        if gaps:
            mask = np.ones((len(query), len(WIDTHS)), dtype=bool)
            mask[1::4, 0] = mask[2::4, 1] = mask[3::6, 2] = False
            query = query.with_mask(mask)
        return support, query


def proba(method: Method, fitted: FittedBase, batch: EpisodeBatch) -> Tensor:
    """Probabilities of one batch, [tasks, n_query, way], without its query labels."""
    scores = method.score_batch(replace(batch, query_labels=None), fitted)
    return torch.softmax(scores.double().cpu(), dim=-1)


def accuracy(found: Tensor, batch: EpisodeBatch) -> float:
    """In percent."""
    assert batch.query_labels is not None
    return 100 * float((found.argmax(-1) == batch.query_labels.cpu()).double().mean())


def agree(case: Case, one: Tensor, two: Tensor, labels: Tensor | None, what: str) -> None:
    """Probabilities are equal up to rounding; of a method that draws, accuracies are compared."""
    assert one.shape == two.shape, f"{what}: shape {tuple(two.shape)}, not {tuple(one.shape)}"
    tags = case.method.tags
    if not case.exact:
        assert labels is not None
        shares = [float((part.argmax(-1) == labels).double().mean()) for part in (one, two)]
        # Three standard errors of a difference, as if queries of a task were alike.
        allowed = 3 * (0.5 / case.n_tasks) ** 0.5
        assert abs(shares[0] - shares[1]) <= allowed, (
            f"{what}: accuracies {shares[0]:.2f}, {shares[1]:.2f}"
        )
        return
    tolerance = 1e-3 if tags.trained else 1e-5 if tags.iterative else 1e-8
    worst = float((one - two).abs().max()) if one.numel() else 0.0
    assert worst <= tolerance, f"{what}: probabilities move by up to {worst:.2g}"


def permutation(count: int) -> Tensor:
    """A fixed order of so many things that is not their own."""
    return torch.from_numpy(np.random.default_rng(count).permutation(count))


def picked(batch: EpisodeBatch, kind: str, rows: Any) -> EpisodeBatch:
    """The same tasks with some of their samples of a kind, `support` or `query`."""
    labels = getattr(batch, f"{kind}_labels")
    return replace(
        batch,
        **{
            kind: tuple(view[:, rows] for view in getattr(batch, kind)),
            f"{kind}_mask": getattr(batch, f"{kind}_mask")[:, rows],
            f"{kind}_labels": None if labels is None else labels[:, rows],
        },
    )
