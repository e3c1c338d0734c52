"""What the methods that train networks share: weights, steps, losses on observed cells, the head.

Networks are plain lists of tensors whose leading dimensions say whose they are ([tasks, ...] or
[tasks, views, ...]), so that one call trains as many networks as there are tasks. Weights start
from `methods/random.py`, keyed by the task's seed and by what they are for. Whoever wants to see
the training go on uses `watch_training`.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from fewview.engine._method import Method
from fewview.engine._parameters import choose
from fewview.engine._state import State, Tags
from fewview.episodes._task import TaskSpec
from fewview.ground._draws import combine, stream_key
from fewview.ground._errors import FewviewError
from fewview.numerics._batch import EpisodeBatch, ViewTensors
from fewview.numerics._distances import class_means, squared_distances
from fewview.numerics._tensor_draws import streams, uniform
from fewview.samples._data import MultiViewData

METRICS = ("euclidean", "cosine", "inner")
PRESETS = ("fast", "paper")
TRAIN_ON = ("episode", "base")

# ---------------------------------------------------------------------------- watching


@dataclass(frozen=True)
class Epoch:
    """How far a training is.

    Attributes:
        method: name of the method.
        stage: what is being trained.
        number: epochs of this stage done; where an epoch has many steps on all samples, 0 comes
            first and is the loss before training.
        total: epochs of this stage.
        loss: [tasks], before the last step; of one network for all tasks, [1]. Where a loss can
            be negative it is counted from the least value it could have.
        parts: terms of the loss by name, [tasks] each, as they count in it.
    """

    method: str
    stage: str
    number: int
    total: int
    loss: Tensor
    parts: Mapping[str, Tensor] = field(default_factory=dict)

    def describe(self) -> str:
        """Write it in one phrase.

        Example:
            >>> Epoch("cpm", "networks", 3, 30, torch.zeros(2)).describe()
            'cpm: networks, epoch 3 of 30'
        """
        return f"{self.method}: {self.stage}, epoch {self.number} of {self.total}"


Watcher = Callable[[Epoch], None]
_watcher: ContextVar[Watcher | None] = ContextVar("watcher", default=None)


@contextmanager
def watch_training(watcher: Watcher) -> Iterator[None]:
    """Have `watcher` called after every epoch of every training inside the block.

    Args:
        watcher: gets an `Epoch`.

    Example:
        >>> seen = []
        >>> with watch_training(lambda epoch: seen.append(epoch.number)):
        ...     tell(Epoch("cpm", "networks", 1, 30, torch.zeros(2)))
        >>> seen
        [1]
    """
    token = _watcher.set(watcher)
    try:
        yield
    finally:
        _watcher.reset(token)


def tell(epoch: Epoch) -> None:
    """Tell the watcher, if there is one, about an epoch."""
    watcher = _watcher.get()
    if watcher is not None:
        parts = {name: part.detach() for name, part in epoch.parts.items()}
        watcher(replace(epoch, loss=epoch.loss.detach(), parts=parts))


# ---------------------------------------------------------------------------- weights and steps


def draw_weights(
    seeds: Tensor, bound: float, shape: tuple[int, ...], dtype: torch.dtype, *names: object
) -> Tensor:
    """Draw weights uniform between -bound and bound, [tasks, *shape], ready to be trained.

    Args:
        seeds: int64 [tasks].
        bound: largest size of a weight; see `xavier`.
        shape: of the weights of one task.
        dtype: their float type.
        names: what they are for; other names give other numbers.

    Example:
        >>> weights = draw_weights(torch.arange(2), 0.1, (3, 4), torch.float32, "layer")
        >>> weights.shape, weights.requires_grad, bool(weights.abs().max() <= 0.1)
        (torch.Size([2, 3, 4]), True, True)
    """
    draws = uniform(streams(seeds, *names), shape, dtype)
    return draws.mul_(2 * bound).sub_(bound).requires_grad_()


def xavier(fan_in: int, fan_out: int) -> float:
    """Bound of uniform Xavier weights (Glorot and Bengio 2010).

    Example:
        >>> xavier(2, 4)
        1.0
    """
    return float((6.0 / max(1, fan_in + fan_out)) ** 0.5)


def make_adam(
    parameters: Sequence[Tensor], learning_rate: float, betas: tuple[float, float] = (0.9, 0.999)
) -> torch.optim.Adam:
    """Make an Adam for some tensors; every entry moves on its own, so tasks do not mix.

    `methods/optimise.py` has one for single tensors; the fused one of torch moves millions of
    weights ten times faster.
    """
    return torch.optim.Adam(list(parameters), lr=learning_rate, betas=betas, fused=True)


def descend(optimiser: torch.optim.Adam, loss: Tensor) -> None:
    """Move the optimiser's tensors, and no others, one step down the loss of every task.

    Args:
        optimiser: from `make_adam`.
        loss: [tasks].

    Example:
        >>> with torch.enable_grad():
        ...     weights = torch.ones(2, requires_grad=True)
        ...     descend(make_adam([weights], 0.1), weights**2)
        >>> [round(value, 3) for value in weights.tolist()]
        [0.9, 0.9]
    """
    parameters = [item for group in optimiser.param_groups for item in group["params"]]
    gradients = torch.autograd.grad(loss.sum(), parameters, allow_unused=True)
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient
    optimiser.step()
    for parameter in parameters:
        parameter.grad = None


# ---------------------------------------------------------------------------- observed cells


def masked_mean_square(difference: Tensor, observed: Tensor, width: Tensor | int) -> Tensor:
    """Mean of squares over the features of observed samples, zero where nothing is observed.

    Args:
        difference: [..., n, width].
        observed: float [..., n].
        width: number of features that count, where `difference` is padded with zeros.

    Example:
        >>> masked_mean_square(torch.tensor([[1.0, 3.0], [9.0, 9.0]]), torch.tensor([1.0, 0.0]), 2)
        tensor(5.)
    """
    squares = difference.square().sum(-1) * observed
    return squares.sum(-1) / (observed.sum(-1).clamp(min=1) * width)


def reduce_views(views: Sequence[Tensor], width: int) -> list[Tensor]:
    """Describe every view of a task by fewer features with (nearly) the same inner products.

    Features are principal axes without centring, at most as many as there are samples: with a
    `width` of that size or more the map is an isometry, with a smaller one the best of its rank.
    A discrete cosine transform then spreads the axes over all features: Adam moves every feature
    at the same pace, so one that carries nearly everything would be learnt last.

    Args:
        views: per view [tasks, n, width of the view], zeros where missing.
        width: most features that are kept; 0 leaves the views as they are.

    Returns:
        Per view [tasks, n, at most width].

    Example:
        >>> view = torch.tensor([[[3.0, 4.0, 0.0], [0.0, 0.0, 0.0]]])
        >>> reduced = reduce_views([view], 8)[0]
        >>> reduced.shape, round(float(reduced[0, 0].norm()), 4)
        (torch.Size([1, 2, 2]), 5.0)
    """
    out = []
    for view in views:
        n, features = view.shape[1:]
        keep = min(n, features, width)
        if width == 0 or keep == features:
            out.append(view)
            continue
        # In float64: squaring the features costs half of the digits.
        exact = view.double()
        if n <= features:
            values, vectors = torch.linalg.eigh(exact @ exact.mT)
            reduced = vectors * values.clamp(min=0).sqrt()[:, None]
        else:
            reduced = exact @ torch.linalg.eigh(exact.mT @ exact)[1]
        reduced = reduced.flip(-1)[..., :keep]
        # The sign of an axis is arbitrary, and not the same on every machine.
        largest = reduced.gather(1, reduced.abs().argmax(1, keepdim=True))
        reduced = reduced * torch.where(largest < 0, -1.0, 1.0)
        out.append((reduced @ _cosines(keep, reduced)).to(view.dtype))
    return out


def _cosines(size: int, like: Tensor) -> Tensor:
    """Orthogonal matrix [size, size] of the discrete cosine transform; its first row is flat."""
    steps = torch.arange(size, dtype=like.dtype, device=like.device)
    rows = torch.cos(steps[:, None] * (steps + 0.5) * (math.pi / size))
    rows[0] *= 0.5**0.5
    return rows.mul_(math.sqrt(2.0 / size))


def all_samples(batch: EpisodeBatch) -> tuple[list[Tensor], Tensor]:
    """Supports and then queries of every task: views [tasks, n, width], mask [tasks, n, V]."""
    views = [torch.cat(pair, 1) for pair in zip(batch.support, batch.query, strict=True)]
    return views, torch.cat([batch.support_mask, batch.query_mask], 1)


def masked_base(
    base: MultiViewData, task: TaskSpec, seed: int, device: torch.device, dtype: torch.dtype
) -> tuple[list[Tensor], Tensor]:
    """The base set with views missing as in the task.

    Args:
        base: scaled base samples.
        task: says how views go missing, and how many.
        seed: of the draw.
        device: where the tensors go.
        dtype: their float type.

    Returns:
        Views [1, n, width] with zeros where missing, and the mask [1, n, V].
    """
    states = combine(np.array([seed], dtype=np.uint64), stream_key("masked base"))
    drawn = task.missing.draw(
        states,
        len(base),
        len(base.view_names),
        task.eta,
        labels=np.asarray(base.codes)[None],
        present=np.asarray(base.mask)[None],
    )
    tensors = ViewTensors.of(base, device, dtype)
    mask = torch.from_numpy(drawn).to(device)
    views = [view[None] * mask[..., index, None] for index, view in enumerate(tensors.views)]
    return views, mask


# ---------------------------------------------------------------------------- the head


def prototype_scores(latent: EpisodeBatch, metric: str, temperature: float = 10.0) -> Tensor:
    """Score queries by their nearest class mean in the view `latent`: [tasks, n_query, way].

    Scores are brought to a common size, which changes probabilities and never predictions.

    Args:
        latent: tasks with a single view.
        metric: `"euclidean"` (minus squared distances over their mean), `"cosine"`, or
            `"inner"` (inner products over the length of the query and the mean length of the
            prototypes).
        temperature: times this.

    Example:
        >>> from fewview.engine._contract import latent_batch
        >>> from fewview.engine._checks import Case, synthetic_data
        >>> from fewview.methods.proto import Proto
        >>> case = Case(Proto(), *synthetic_data(), 2, 2)
        >>> batch = case.setting(case.task())[2]
        >>> latent = latent_batch(batch, *batch.concatenated(), batch.support_labels)
        >>> prototype_scores(latent, "cosine").shape
        torch.Size([2, 15, 3])
    """
    if metric not in METRICS:
        raise FewviewError(f"metric is {metric!r}; it must be one of {', '.join(METRICS)}")
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

    A subclass implements `embed`, and lists in `preset_settings` what a preset puts in place of
    parameters that are None.

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
        for name, value in self.settings().items():
            least = min(value) if isinstance(value, tuple) else value
            if least < 0 or (least == 0 and name not in self.may_be_zero):
                raise FewviewError(f"{name} is {value}; it must be positive")

    def setting(self, name: str) -> Any:
        """Value of a parameter: the one given, else the preset's."""
        value = getattr(self, name)
        return self.preset_settings[self.preset][name] if value is None else value

    def settings(self) -> dict[str, Any]:
        """All parameters that the preset has a say in."""
        return {name: self.setting(name) for name in self.preset_settings[self.preset]}

    @abstractmethod
    def embed(self, batch: EpisodeBatch, state: State) -> EpisodeBatch:
        """The tasks in the space of the trained networks."""

    def scores(self, batch: EpisodeBatch, state: State) -> Tensor:
        """Nearest prototype in the space of the networks."""
        return prototype_scores(self.embed(batch, state), self.metric)
