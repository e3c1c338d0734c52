"""UNEM, the method: tasks of base classes for its layers to be learnt on, and scores."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from fewview.engine._contract import TUNED
from fewview.engine._method import Method
from fewview.engine._parameters import check_numbers
from fewview.engine._registry import register
from fewview.engine._state import State, Tags
from fewview.episodes._sampler import EpisodeSampler
from fewview.episodes._task import TaskSpec
from fewview.ground._errors import FewviewError, FewviewWarning
from fewview.methods.unem._layers import Layers, Tasks, inner_products, learn, start, unroll
from fewview.numerics._batch import EpisodeBatch, ViewTensors
from fewview.numerics._padding import pad
from fewview.samples._data import MultiViewData
from fewview.samples._masks import MissingRule

# Class shares of the tasks that are learnt on, and most queries of one.
SHARES = ("balanced", "dirichlet:2")
MOST_QUERIES = 75
# Half the squared distance of two samples, on average, that the scale starts from: the first where
# nothing can be learnt, the best one where it can.
USUAL_DISTANCE = 10.0
DISTANCES = (0.6, 2.5, USUAL_DISTANCE, 40.0, 160.0)


@register("unem")
class UNEM(Method):
    """Unrolled generalised EM: balance and temperatures of its rounds are learnt on base classes.

    The Gaussian form (Zhou and others, CVPR 2025). A fixed number of rounds of soft k-means from
    the class means, as in PADDLE; each round has its own weight of the class shares and its own
    temperature. They and one factor of all features are learnt by gradient, on tasks of base
    classes like the task at hand, half of them with equal class shares, half with shares drawn from
    a Dirichlet distribution. With fewer than two base classes that are large enough, stated values
    are used and a warning says so. A single query is classified by the class means.

    Two things differ from the authors' code: the loss is the cross entropy of the assignments
    (there, a softmax is taken of them once more), and the scale starts from the best of five, since
    features here are of any size. The paper's number of layers could not be checked.

    Args:
        n_layers: rounds.
        n_tasks: tasks of base classes that are learnt on.
        n_steps: steps of Adam.
        learning_rate: of Adam, halved every 50 steps.

    Example:
        >>> from fewview import UNEM, load
        >>> data = load("digits")
        >>> base, novel = data[data.labels < 7], data[data.labels >= 7]
        >>> clf = UNEM(base=base).fit(novel[:30])
        >>> float((clf.predict(novel[30:90]) == novel.labels[30:90]).mean()) > 0.9
        True
    """

    scaling: str = "by-width"
    n_layers: int = 10
    n_tasks: int = 32
    n_steps: int = 60
    learning_rate: float = 0.1

    tags: ClassVar[Tags] = Tags(
        transductive=True, prepare_depends_on=("way", "shot", "queries", "missing")
    )
    tune_grid: ClassVar[dict[str, Any]] = dict(TUNED)
    paper_settings: ClassVar[dict[str, str]] = {"scaling": "scale", "padding": "episode"}

    def validate(self) -> None:
        """Check counts and the learning rate."""
        super().validate()
        check_numbers(
            self,
            positive=["learning_rate"],
            whole={"n_layers": 1, "n_tasks": 2, "n_steps": 0},
        )

    def prepare(self, base: MultiViewData, task: TaskSpec, seed: int) -> Layers:
        """Learn the numbers of the layers on tasks of base classes."""
        # In the order of their names: gaps are drawn by place, and answers must not depend on it.
        base = base.select_views(sorted(base.view_names))
        spread = _total_variance(base)
        scales = [(distance / spread) ** 0.5 for distance in DISTANCES]
        try:
            tasks = self._tasks(base, task, seed)
        except FewviewError as error:
            warnings.warn(
                f"unem: nothing can be learnt from the base classes ({error}); stated values are "
                "used",
                FewviewWarning,
                stacklevel=2,
            )
            return self._stated(spread)
        with torch.enable_grad():
            raw = learn(tasks, self.n_layers, scales, self.n_steps, self.learning_rate)
        return Layers.of(raw.to(self.torch_dtype))

    def prepare_alone(self, rows: MultiViewData, task: TaskSpec, seed: int) -> Layers:
        """Stated values: there are no base classes to learn from."""
        return self._stated(_total_variance(rows))

    def _stated(self, spread: float) -> Layers:
        scale = (USUAL_DISTANCE / spread) ** 0.5
        return Layers.of(start(self.n_layers, scale, torch.zeros((), dtype=self.torch_dtype)))

    def _tasks(self, base: MultiViewData, task: TaskSpec, seed: int) -> Tasks:
        """Balanced and unbalanced tasks of base classes, padded, in float64."""
        shot = max(task.shots)
        sizes = np.bincount(base.codes, minlength=len(base.classes))
        large = np.flatnonzero(sizes >= shot + 2)
        if len(large) < 2:
            raise FewviewError(
                f"{len(large)} of them have {shot + 2} samples or more; at least 2 are needed"
            )
        data = base[np.isin(base.codes, large)]
        way = min(task.way, len(large))
        queries = int(min(task.queries, max(2, MOST_QUERIES // way), sizes[large].min() - shot))
        shape = replace(task, way=way, shot=shot, queries=queries, query_counts="balanced")
        if task.missing.kind == "patterns" and not base.mask.all():
            # Base samples have their own gaps already; drawn ones on top would be too many.
            shape = replace(shape, missing=MissingRule(), eta=0.0)
        tensors = ViewTensors.of(data, self.torch_device, torch.float64)
        counts = tensors.mask.sum(0).clamp(min=1)
        means = [view.sum(0) / count for view, count in zip(tensors.views, counts, strict=True)]
        batches = []
        for shares in SHARES:
            kind = replace(shape, query_counts=shares)
            sampler = EpisodeSampler(data, kind, seed=seed, name="unem")
            drawn = tensors.gather(sampler.draw(0, self.n_tasks // 2))
            batches.append(pad(drawn, self.padding, means))
        # One batch of all: small tensors cost calls, not arithmetic.
        return Tasks(
            torch.cat([inner_products(*batch.concatenated()) for batch in batches]),
            torch.cat([batch.one_hot() for batch in batches]),
            torch.cat([b.query_labels for b in batches if b.query_labels is not None]),
        )

    def scores(self, batch: EpisodeBatch, state: State) -> Tensor:
        """Logarithm of the soft assignments after the last layer."""
        assert isinstance(state, Layers)
        if batch.n_query == 1:  # its own share would only confirm it
            state = Layers(state.balance[:1], state.temperature[:1], state.scale)
        return unroll(inner_products(*batch.concatenated()), batch.one_hot(), state)


def _total_variance(rows: MultiViewData) -> float:
    """Half the mean squared distance of two samples: the variances of all features together."""
    total = 0.0
    for view, block in enumerate(rows.views.values()):
        seen = np.asarray(block[rows.mask[:, view]], dtype=np.float64)
        total += float(seen.var(axis=0).sum()) if len(seen) else 0.0
    return total if total > 1e-12 else 1.0
