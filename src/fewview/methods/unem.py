"""UNEM: unrolled generalised EM, its layers learnt on base classes (Zhou and others, CVPR 2025).

Rounds need inner products of a task's samples only: a centre is a weighted mean of samples.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import softplus

from fewview.episodes.batch import EpisodeBatch, ViewTensors
from fewview.episodes.padding import pad
from fewview.episodes.sampler import EpisodeSampler
from fewview.episodes.task import TaskSpec
from fewview.errors import FewviewError, FewviewWarning
from fewview.methods.base import State, Tags
from fewview.methods.estimator.method import Method
from fewview.methods.params import param
from fewview.methods.registry import register
from fewview.numerics.softmax import log_softmax
from fewview.samples._data import MultiViewData
from fewview.samples._masks import MissingRule

# Half the squared distance of two samples, on average, that the scale starts from: the first where
# nothing can be learnt, the best one where it can.
USUAL_DISTANCE = 10.0
DISTANCES = (0.6, 2.5, USUAL_DISTANCE, 40.0, 160.0)


@dataclass(frozen=True)
class Layers(State):
    """What is learnt: one balance and one temperature per layer, and a factor of all features."""

    balance: Tensor  # lambda, [layers]
    temperature: Tensor  # T, [layers]
    scale: Tensor  # []

    @classmethod
    def of(cls, raw: Tensor) -> Layers:
        """From free numbers [2 * layers + 1]: balances, temperatures, the logarithm of the scale.

        As in the authors' code, the balance is softplus(x) and the temperature 1 + softplus(x), so
        that assignments are never harder than those of EM.
        """
        balance, temperature = softplus(raw[:-1]).chunk(2)
        return cls(balance, 1 + temperature, raw[-1].exp())

    def unroll(self, products: Tensor, members: Tensor) -> Tensor:
        """Logarithm of the assignments [tasks, n_query, way] after the last layer.

        Layer l is one round of PADDLE with lambda_l for its penalty and a temperature T_l: u_qk =
        softmax_k((-|z_q - w_k|^2 / 2 + lambda_l log m_k) / T_l), shares m_k = mean_q u_qk (equal
        at first), centres w_k = mean of supports and queries by u. Inner products of supports and
        then queries are [tasks, n, n], `members` of the supports [tasks, n_support, way].
        """
        n_support, way = members.shape[1:]
        own = products.diagonal(dim1=1, dim2=2)[:, n_support:, None]  # |z_q|^2
        # Of all samples in the centres, [T, n, K]: supports alone at first.
        u = products.new_zeros(len(products), own.shape[1], way)
        prior = products.new_zeros(len(products), 1, way)  # equal shares: any constant
        log_u = prior
        for balance, temperature in zip(self.balance, self.temperature, strict=True):
            weights = torch.cat((members, u), dim=1)
            weights = weights / weights.sum(1, keepdim=True).clamp(min=1e-30)
            across = products @ weights  # z_n . w_k
            lengths = (weights * across).sum(1, keepdim=True)  # |w_k|^2
            distances = (own - 2 * across[:, n_support:] + lengths).clamp(min=0)
            fit = -0.5 * self.scale**2 * distances
            log_u = log_softmax((fit + balance * prior) / temperature)
            u = log_u.exp()
            prior = (u.mean(1, keepdim=True) + 1e-6).log()
        return log_u


@dataclass(frozen=True)
class Tasks:
    """Tasks of base classes with answers."""

    products: Tensor  # of the samples, [tasks, n_support + n_query, n_support + n_query]
    members: Tensor  # of the supports, [tasks, n_support, way]
    answers: Tensor  # [tasks, n_query]

    def loss(self, raw: Tensor) -> Tensor:
        """Mean cross entropy of the answers; `raw` as in `Layers.of`."""
        log_u = Layers.of(raw).unroll(self.products, self.members)
        return -log_u.gather(-1, self.answers[..., None]).mean()


@register("unem")
@dataclass(kw_only=True, eq=False, repr=False)
class UNEM(Method):
    """Soft k-means from the class means, as in PADDLE, with a fixed number of learnt rounds.

    The Gaussian form. Each round has its own weight of the class shares and its own temperature.
    They and one factor of all features are learnt by gradient, on tasks of base classes like the
    task at hand, half of them with equal class shares, half with shares drawn from a Dirichlet
    distribution. With fewer than two base classes that are large enough, stated values are used
    and a warning says so. A single query is classified by the class means.

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

    scaling: str = param("by-width")
    n_layers: int = param(10, least=1)
    n_tasks: int = param(32, least=2)
    n_steps: int = param(60, least=0)
    learning_rate: float = param(0.1, above=0)

    tags: ClassVar[Tags] = Tags(transductive=True, depends_on=("way", "shot", "queries", "missing"))
    paper: ClassVar[dict[str, Any]] = {"scaling": "scale", "padding": "episode"}

    def scores(self, batch: EpisodeBatch, state: State) -> Tensor:
        """Logarithm of the soft assignments after the last layer, [tasks, n_query, way]."""
        assert isinstance(state, Layers)
        if batch.n_query == 1:  # its own share would only confirm it
            state = Layers(state.balance[:1], state.temperature[:1], state.scale)
        return state.unroll(inner_products(*batch.concatenated()), batch.one_hot())

    def learn(self, base: MultiViewData, task: TaskSpec, seed: int) -> Layers:
        """Learn the numbers of the layers on tasks of base classes."""
        # In the order of their names: gaps are drawn by place, and answers must not depend on it.
        base = base.select_views(sorted(base.view_names))
        try:
            tasks = self.tasks_of(base, task, seed)
        except FewviewError as error:
            warnings.warn(
                f"unem: nothing can be learnt from the base classes ({error}); stated values are "
                "used",
                FewviewWarning,
                stacklevel=2,
            )
            return self.learn_unlabelled(base, task, seed)
        with torch.enable_grad():
            return Layers.of(self.best_numbers(tasks, total_variance(base)).to(self.torch_dtype))

    def learn_unlabelled(self, rows: MultiViewData, task: TaskSpec, seed: int) -> Layers:
        """Stated values: there are no base classes to learn from."""
        return Layers.of(self.start(USUAL_DISTANCE, total_variance(rows)).to(self.torch_dtype))

    def start(self, distance: float, variance: float) -> Tensor:
        """Free numbers to start from, balance 1.31 and temperature 2.31; see `DISTANCES`."""
        raw = torch.ones(2 * self.n_layers + 1, dtype=torch.float64, device=self.torch_device)
        raw[-1] = torch.tensor((distance / variance) ** 0.5).log()
        return raw

    def best_numbers(self, tasks: Tasks, variance: float) -> Tensor:
        """The best free numbers met in some steps of Adam: steps of a fixed length overshoot."""
        with torch.no_grad():  # from the best scale
            raw = min(
                (self.start(d, variance) for d in DISTANCES), key=lambda x: float(tasks.loss(x))
            )
        raw = raw.requires_grad_()
        optimiser = torch.optim.Adam([raw], lr=self.learning_rate)
        best, lowest = raw.detach().clone(), float("inf")
        for step in range(self.n_steps + 1):
            value = tasks.loss(raw)
            if value.item() < lowest:
                best, lowest = raw.detach().clone(), value.item()
            if step < self.n_steps:
                (raw.grad,) = torch.autograd.grad(value, raw)
                optimiser.param_groups[0]["lr"] = self.learning_rate * 0.5 ** (step // 50)
                optimiser.step()
        return best

    def tasks_of(self, base: MultiViewData, task: TaskSpec, seed: int) -> Tasks:
        """Balanced and unbalanced tasks of scaled base classes, padded, in float64."""
        shot = max(task.shots)
        sizes = np.bincount(base.codes, minlength=len(base.classes))
        large = np.flatnonzero(sizes >= shot + 2)
        if len(large) < 2:
            raise FewviewError(
                f"{len(large)} of them have {shot + 2} samples or more; at least 2 are needed"
            )
        data = base[np.isin(base.codes, large)]
        way = min(task.way, len(large))
        queries = int(min(task.queries, max(2, 75 // way), sizes[large].min() - shot))
        shape = replace(task, way=way, shot=shot, queries=queries)
        if task.missing.kind == "patterns" and not base.mask.all():
            # Base samples have their own gaps already; drawn ones on top would be too many.
            shape = replace(shape, missing=MissingRule(), eta=0.0)
        tensors = ViewTensors.of(data, self.torch_device, torch.float64)
        counts = tensors.mask.sum(0).clamp(min=1)
        means = [view.sum(0) / count for view, count in zip(tensors.views, counts, strict=True)]
        batches = []
        for shares in ("balanced", "dirichlet:2"):
            kind = replace(shape, query_counts=shares)
            drawn = EpisodeSampler(data, kind, seed=seed, name="unem").draw(0, self.n_tasks // 2)
            batches.append(pad(tensors.gather(drawn), self.padding, means))
        # One batch of all: small tensors cost calls, not arithmetic.
        return Tasks(
            torch.cat([inner_products(*batch.concatenated()) for batch in batches]),
            torch.cat([batch.one_hot() for batch in batches]),
            torch.cat([b.query_labels for b in batches if b.query_labels is not None]),
        )


def inner_products(support: Tensor, query: Tensor) -> Tensor:
    """Inner products [tasks, n, n] of the samples of a task, supports first, about their mean."""
    samples = torch.cat((support, query), dim=1)
    samples = samples - samples.mean(1, keepdim=True)
    return samples @ samples.mT


def total_variance(rows: MultiViewData) -> float:
    """Half the mean squared distance of two samples: the variances of all features together."""
    total = 0.0
    for view, block in enumerate(rows.views.values()):
        seen = np.asarray(block[rows.mask[:, view]], dtype=np.float64)
        total += float(seen.var(axis=0).sum()) if len(seen) else 0.0
    return total if total > 1e-12 else 1.0
