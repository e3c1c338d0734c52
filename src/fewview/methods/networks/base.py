"""What methods that train networks share: presets, what is trained on, the classifier, weights.

Networks are plain tensors whose first dimension says whose they are, [tasks, ...], so that one call
trains the networks of as many tasks. Weights start from `tensor_random.py`, keyed by the seed of
the task and by what they are for.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.fft import idct
from torch import Tensor

from fewview.episodes.batch import EpisodeBatch, ViewTensors, latent_batch
from fewview.episodes.padding import KEEPING, PADDINGS, fill
from fewview.episodes.task import TaskSpec
from fewview.methods.base import State, Tags
from fewview.methods.estimator.fitted_base import FittedBase
from fewview.methods.estimator.method import Method
from fewview.methods.params import param
from fewview.numerics.adam import take_step
from fewview.numerics.distances import class_means, squared_distances
from fewview.numerics.random_keys import combine, stream_key
from fewview.numerics.tensor_random import streams, uniform
from fewview.samples._data import MultiViewData

METRICS = ("euclidean", "cosine", "inner")
TRAIN_ON = ("episode", "base")

log = logging.getLogger("fewview")


@dataclass(kw_only=True, eq=False, repr=False)
class NetworkMethod(Method):
    """A method that trains networks and classifies by the nearest prototype in their space.

    A class below implements `train` and `embed`, and lists in `presets` what a preset puts in place
    of parameters that are None. Progress is one line an epoch in `logging.getLogger("fewview")`, at
    level INFO.

    Args:
        padding: `"none"` leaves gaps to the method; `"class"` fills those of supports that another
            support of the class can fill; any other rule fills all gaps, of base samples too, and
            what was filled counts as observed, in training and after. The paper says that it did
            so for all methods that it compares with (`"episode"`).
        preset: `"fast"`, affordable on two cores, or `"paper"`, the published sizes and epochs.
        metric: how a query is compared with a prototype, see `prototype_scores`.
        train_on: what the networks are trained on: `"episode"` (the task's own supports and
            queries) or `"base"` (base classes, with views missing as in the task).
    """

    # To train anew for every setting of a grid would take hours.
    scaling: str = param("scale", tune=())
    padding: str = param("none", among=(*KEEPING, *PADDINGS), tune=())
    preset: str = param("fast", among=("fast", "paper"))
    metric: str = param("euclidean", among=METRICS)
    train_on: str = param("episode", among=TRAIN_ON)

    version: ClassVar[int] = 3
    paper: ClassVar[dict[str, Any]] = {"scaling": "scale", "padding": "episode"}
    presets: ClassVar[dict[str, dict[str, Any]]] = {}

    @property
    def tags(self) -> Tags:  # type: ignore[override]
        """What follows from where the networks are trained."""
        episode = self.train_on == "episode"
        return Tags(
            transductive=episode,
            needs_base=self.train_on == "base",
            handles_missing=self.padding in KEEPING,
            random=True,
            trained=True,
            learns_from="unlabelled" if self.train_on == "unlabelled" else "base",
            depends_on=() if episode else ("missing",),
        )

    # ------------------------------------------------------------------ presets

    def preset_values(self) -> dict[str, Any]:
        """What the preset says, by parameter."""
        return self.presets[self.preset]

    def settings(self) -> dict[str, Any]:
        """Parameters that the preset has a say in: the value given, or the preset's where None."""
        usual = self.preset_values()
        return usual | {name: own for name in usual if (own := getattr(self, name)) is not None}

    def resolved_params(self) -> dict[str, Any]:
        """Parameters by name, with what the preset decides filled in."""
        return {**super().resolved_params(), **self.settings()}

    def resolved(self) -> Any:
        """The same method with `settings` as its parameters: how networks are trained."""
        return replace(self, **self.settings())

    # ------------------------------------------------------------------ learning

    def learn(self, base: MultiViewData, task: TaskSpec, seed: int) -> State:
        """Train the networks on these samples, unless they are trained in every task."""
        if self.train_on == "episode":
            return State()
        with torch.enable_grad():
            return self.train(self.base_batch(base, task, seed))

    def learn_unlabelled(self, rows: MultiViewData, task: TaskSpec, seed: int) -> State:
        """With `train_on="unlabelled"`, train the networks on all samples there are."""
        return self.learn(rows, task, seed) if self.train_on == "unlabelled" else State()

    def base_batch(self, base: MultiViewData, task: TaskSpec, seed: int) -> EpisodeBatch:
        """Base samples as networks see them: one task, gaps as in `task`, filled by `padding`.

        All are supports; where classes are not known, all are queries.
        """
        known = base.labels is not None and bool((base.codes >= 0).all())
        cut = len(base) if known else 0
        device = self.torch_device
        mask = torch.tensor(self.base_mask(base, task, seed)[None], device=device)
        rows = ViewTensors.of(base, device, self.torch_dtype).views
        views = [view[None] * mask[..., index, None] for index, view in enumerate(rows)]
        batch = EpisodeBatch(
            support=tuple(view[:, :cut] for view in views),
            query=tuple(view[:, cut:] for view in views),
            support_mask=mask[:, :cut],
            query_mask=mask[:, cut:],
            support_labels=torch.tensor(base.codes[None, :cut], device=device),
            query_labels=None,
            seeds=torch.full((1,), seed, device=device),
            way=max(1, len(base.classes)),
            view_names=base.view_names,
        )
        return fill(batch, self.padding)

    def base_mask(self, base: MultiViewData, task: TaskSpec, seed: int) -> NDArray[np.bool_]:
        """Which views of base samples networks see, [n, V]: some are missing as in the task."""
        states = combine(np.array([seed], dtype=np.uint64), stream_key("masked base"))
        labels = np.maximum(base.codes, 0)[None]  # samples without labels are of one class
        shape = len(base), base.n_views, task.eta
        drawn = task.missing.draw(states, *shape, labels=labels, present=base.mask[None])
        return np.asarray(drawn[0])

    @abstractmethod
    def train(self, batch: EpisodeBatch) -> State:
        """Networks [tasks, ...] trained on the samples of every task, as in `base_batch`."""

    # ------------------------------------------------------------------ classifying

    def padded(self, batch: EpisodeBatch, fitted: FittedBase) -> EpisodeBatch:
        """Fill missing views by the rule; what is filled counts as observed."""
        return fill(batch, self.padding, fitted.means)

    @abstractmethod
    def embed(self, batch: EpisodeBatch, state: State) -> EpisodeBatch:
        """The tasks in the space of the trained networks."""

    def scores(self, batch: EpisodeBatch, state: State) -> Tensor:
        """Nearest prototype in the space of the networks, [tasks, n_query, way]."""
        return prototype_scores(self.embed(batch, state), self.metric)

    def scores_inductive(self, batch: EpisodeBatch, state: State) -> Tensor | None:
        """`scores`, where the networks are there and supports alone fill gaps."""
        if self.tags.transductive or self.padding not in KEEPING:
            return None
        return self.scores(fill(batch, self.padding), state)


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


# -------------------------------------------------------------------------------- samples


def all_samples(batch: EpisodeBatch) -> tuple[list[Tensor], Tensor]:
    """Supports and then queries of every task: views [tasks, n, width], mask [tasks, n, V]."""
    views = [torch.cat(pair, 1) for pair in zip(batch.support, batch.query, strict=True)]
    return views, torch.cat([batch.support_mask, batch.query_mask], 1)


def with_codes(batch: EpisodeBatch, codes: Tensor) -> EpisodeBatch:
    """The tasks with codes [tasks, n_support + n_query, width] as their only view."""
    support, query = codes[:, : batch.n_support], codes[:, batch.n_support :]
    return latent_batch(batch, support, query, batch.support_labels)


def reduce_views(views: Sequence[Tensor], width: int) -> list[Tensor]:
    """Describe every view of a task by fewer features with (nearly) the same inner products.

    Features are principal axes without centring, at most as many as there are samples: with a
    `width` of that size or more the map is an isometry, with a smaller one the best of its rank.
    Views are [tasks, n, features]; a `width` of 0 leaves them as they are.

    Example:
        >>> reduce_views([torch.rand(3, 8, 50)], 16)[0].shape
        torch.Size([3, 8, 8])
    """
    return [_reduced(view, min(*view.shape[1:], width)) if width else view for view in views]


def _reduced(view: Tensor, keep: int) -> Tensor:
    n, features = view.shape[1:]
    if keep == features:
        return view
    # In float64: squaring the features costs half of the digits.
    exact = view.double()
    if n <= features:
        values, vectors = torch.linalg.eigh(exact @ exact.mT)
        axes = vectors * values.clamp(min=0).sqrt()[:, None]
    else:
        axes = exact @ torch.linalg.eigh(exact.mT @ exact)[1]
    axes = axes.flip(-1)[..., :keep]
    # The sign of an axis is arbitrary, and not the same on every machine.
    largest = axes.gather(1, axes.abs().argmax(1, keepdim=True))
    axes = axes * torch.where(largest < 0, -1.0, 1.0)
    # A cosine transform spreads the axes over all features: Adam moves every feature at the same
    # pace, so one that carries nearly everything would be learnt last.
    cosines = torch.from_numpy(idct(np.eye(keep), norm="ortho")).to(axes)
    reduced: Tensor = (axes @ cosines).to(view.dtype)
    return reduced


# -------------------------------------------------------------------------------- networks


def draw_weights(
    seeds: Tensor, bound: float, shape: tuple[int, ...], dtype: torch.dtype, *names: object
) -> Tensor:
    """Draw weights uniform between -bound and bound, [len(seeds), *shape]."""
    draws: Tensor = uniform(streams(seeds, *names), shape, dtype)
    return draws.mul_(2 * bound).sub_(bound)


def xavier(rows: int, columns: int) -> float:
    """Bound of uniform weights by Glorot and Bengio (2010)."""
    return float((6.0 / (rows + columns)) ** 0.5)


def descend(optimiser: torch.optim.Adam, loss: Tensor) -> None:
    """Move the optimiser's tensors, and no others, one step down the loss [tasks]."""
    parameters = [item for group in optimiser.param_groups for item in group["params"]]
    take_step(optimiser, torch.autograd.grad(loss.sum(), parameters, allow_unused=True))


def masked_mean_square(difference: Tensor, observed: Tensor, width: Tensor | int) -> Tensor:
    """Mean of squares [...] over observed samples, zero where nothing is observed.

    Differences are [..., n, features], of which `width` count: others are zeros.
    """
    squares = difference.square().sum(-1) * observed
    return squares.sum(-1) / (observed.sum(-1).clamp(min=1) * width)


def report(method: str, stage: str, epoch: int, epochs: int, loss: Tensor, **terms: Tensor) -> None:
    """Log one line about an epoch: the loss before its last step, and terms of it, [tasks] each."""
    if not log.isEnabledFor(logging.INFO):  # to read a loss is to wait for the device
        return
    found = {name: float(term.detach().mean()) for name, term in terms.items()}
    words = "".join(f", {name} {value:.4g}" for name, value in found.items())
    mean = float(loss.detach().mean())
    log.info("%s: %s, epoch %d of %d: loss %.4g%s", method, stage, epoch, epochs, mean, words)
