"""CPM and CPM-GAN: cross partial multi-view networks (Zhang et al. 2019 and 2020).

Every sample has a latent vector h from which one linear network per view makes the views that the
sample has; a clustering loss pulls supports of a class together. CPM-GAN adds a discriminator per
view that judges the views that a support lacks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, cast

import torch
from torch import Tensor
from torch.nn.functional import leaky_relu, softplus

from fewview.episodes.batch import EpisodeBatch, latent_batch
from fewview.methods.base import State
from fewview.methods.networks.base import (
    NetworkMethod,
    all_samples,
    descend,
    draw_weights,
    report,
    xavier,
)
from fewview.methods.params import param
from fewview.methods.registry import register
from fewview.numerics.adam import make_adam
from fewview.numerics.iterate import map_tensors, tensors_in
from fewview.numerics.tensor_random import streams, uniform

# Rows of the published scripts; data sets without a script take the row `handwritten`.
COLUMNS = ("latent", "hidden", "learning_rate", "epochs", "query_epochs", "class_weight", "dropout")
SCRIPTS: dict[str, dict[str, Any]] = {
    name: dict(zip(COLUMNS, row, strict=True))
    for name, row in {
        "handwritten": (128, 150, 1e-2, 30, 20, 1.0, 0.1),
        "cub": (128, 0, 1e-3, 30, 300, 10.0, 0.0),
        "animal": (512, 0, 1e-3, 20, 100, 10.0, 0.0),
        "orl": (256, 300, 1e-3, 50, 100, 1.0, 0.1),
    }.items()
}
LATENT_RATE = 1e-2
STEPS = 5  # Adam steps on networks, and then on latent vectors, in an epoch


@dataclass(frozen=True)
class Samples:
    """Samples of many tasks, views side by side."""

    features: Tensor  # [tasks, n, D], zeros where missing
    observed: Tensor  # bool [tasks, n, V]
    names: tuple[str, ...]  # of the views
    widths: tuple[int, ...]  # of the views, D together

    @classmethod
    def of(cls, views: Sequence[Tensor], mask: Tensor, names: tuple[str, ...]) -> Samples:
        """Views [tasks, n, width] side by side."""
        return cls(torch.cat(tuple(views), -1), mask, names, tuple(x.shape[-1] for x in views))

    @cached_property
    def cells(self) -> Tensor:
        """Which features are observed, as floats [tasks, n, D]."""
        repeats = torch.tensor(self.widths, device=self.observed.device)
        cells = self.observed.repeat_interleave(repeats, dim=-1, output_size=sum(self.widths))
        return cells.to(self.features.dtype)


# -------------------------------------------------------------------------------- networks


def linear(
    seeds: Tensor, rows: int, columns: int, dtype: torch.dtype, *names: object
) -> tuple[Tensor, Tensor]:
    """Weights [tasks, rows, columns], uniform, and a bias [tasks, 1, columns] of zeros."""
    weights = draw_weights(seeds, xavier(rows, columns), (rows, columns), dtype, *names)
    return weights, weights.new_zeros(len(seeds), 1, columns)


@dataclass(frozen=True)
class Decoders(State):
    """One linear network per view, with one or two layers and no activation.

    The first layer is one for all views: weights [tasks, latent, V * hidden], or [tasks, latent, D]
    where there is no second one; that has [tasks, hidden, width] per view.
    """

    first: Tensor
    first_bias: Tensor
    second: tuple[tuple[Tensor, Tensor], ...] = ()  # per view weights and bias

    @classmethod
    def start(cls, samples: Samples, seeds: Tensor, latent: int, hidden: int) -> Decoders:
        """Networks ready to be trained."""

        def layers(place: int, rows: int, widths: tuple[int, ...]) -> list[tuple[Tensor, Tensor]]:
            views = zip(samples.names, widths, strict=True)
            return [linear(seeds, rows, width, dtype, "cpm", place, name) for name, width in views]

        dtype, ends = samples.features.dtype, samples.widths
        first = layers(1, latent, (hidden,) * len(ends) if hidden else ends)
        second = layers(2, hidden, ends) if hidden else []
        weights, bias = (torch.cat(part, -1) for part in zip(*first, strict=True))
        nets = cls(weights, bias, tuple(second))
        return map_tensors(nets, Tensor.requires_grad_)

    def decode(self, latent: Tensor) -> Tensor:
        """Views side by side [tasks, n, D] from latent vectors [tasks, n, latent]."""
        out = torch.baddbmm(self.first_bias, latent, self.first)
        if not self.second:
            return out
        parts = zip(out.chunk(len(self.second), dim=-1), self.second, strict=True)
        return torch.cat([torch.baddbmm(bias, part, w) for part, (w, bias) in parts], -1)

    def merged(self) -> Decoders:
        """The same map as a single layer, without gradients: it is quicker to infer with."""
        layers: Decoders = map_tensors(self, Tensor.detach)
        if not self.second:
            return layers
        tasks, width = self.first.shape[:2]
        origin = layers.decode(self.first.new_zeros(tasks, 1, width))
        unit = torch.eye(width, dtype=self.first.dtype, device=self.first.device)
        return Decoders(layers.decode(unit.expand(tasks, -1, -1)) - origin, origin)


@dataclass(frozen=True)
class Discriminators:
    """One network per view that tells observed views from made ones; leaky ReLU between layers."""

    layers: tuple[tuple[tuple[Tensor, Tensor], ...], ...]  # per view three weights and biases
    real: Samples  # all samples of the tasks

    @classmethod
    def start(cls, real: Samples, seeds: Tensor, hidden: tuple[int, int]) -> Discriminators:
        """Networks ready to be trained."""

        def layer(name: str, width: int, place: int) -> tuple[Tensor, Tensor]:
            rows, columns = (width, *hidden, 1)[place : place + 2]
            return linear(seeds, rows, columns, real.features.dtype, "cpm-gan", place, name)

        views = zip(real.names, real.widths, strict=True)
        layers = tuple(tuple(layer(*view, place) for place in range(3)) for view in views)
        return cls(map_tensors(layers, Tensor.requires_grad_), real)

    def judge(self, view: int, features: Tensor) -> Tensor:
        """Logits [tasks, n] that rows of one view are real."""
        for weights, bias in self.layers[view][:-1]:
            features = leaky_relu(torch.baddbmm(bias, features, weights), 0.2)
        weights, bias = self.layers[view][-1]
        return torch.baddbmm(bias, features, weights)[..., 0]

    def losses(self, made: Tensor, observed: Tensor, training: bool) -> Tensor:
        """Mean binary cross-entropy over made and real views, [tasks].

        Of the views [tasks, n, D] that decoders make of some samples, those that the samples lack
        are judged: by the discriminators in `training`, or by those who try to deceive them.
        `observed` is bool [tasks, n, V].
        """
        total, widths = made.new_zeros(len(made)), list(self.real.widths)
        parts = (torch.split(part, widths, -1) for part in (made, self.real.features))
        for view, (fake, real) in enumerate(zip(*parts, strict=True)):
            lacking = (~observed[..., view]).to(made.dtype)
            seen = self.real.observed[..., view].to(made.dtype)
            logits = self.judge(view, fake)
            loss = _mean(softplus(logits if training else -logits), lacking)
            if training:
                loss = loss + _mean(softplus(-self.judge(view, real)), seen)
            # Without a made or without a real view there is nothing to judge.
            total = total + loss * ((lacking.sum(1) > 0) & (seen.sum(1) > 0))
        return total


def _mean(values: Tensor, weights: Tensor) -> Tensor:
    return (values * weights).sum(1) / weights.sum(1).clamp(min=1)


# -------------------------------------------------------------------------------- losses


def reconstruction_loss(made: Tensor, samples: Samples) -> Tensor:
    """Sum of squared errors over observed views, [tasks]."""
    return ((made - samples.features).square() * samples.cells).sum((1, 2))


def class_loss(latent: Tensor, members: Tensor, one_shot: str = "clamp") -> Tensor:
    """Clustering loss of CPM, [tasks]: inner products must be largest within the own class.

    With F(n, c) the mean inner product of sample n with the other samples of class c, the loss is
    the sum over n of max(0, [c* is wrong] + F(n, c*) - F(n, y_n)), c* the class of the largest F.
    Where n is alone in its class, F(n, y_n) is 0 (`one_shot` `"clamp"`, a sum over nothing), the
    sample counts as a member of its class (`"self"`), or has no loss (`"skip"`).
    """
    products = latent @ latent.mT  # [T, n, n]
    count = members.sum(1, keepdim=True)  # [T, 1, way]
    own = members * products.diagonal(dim1=1, dim2=2)[..., None]
    if one_shot == "self":
        mean = products @ members / count.clamp(min=1)
    else:
        mean = (products @ members - own) / (count - members).clamp(min=1)
    best, place = mean.max(-1)
    right = (mean * members).sum(-1)
    wrong = 1.0 - members.gather(-1, place[..., None])[..., 0]
    loss = (wrong + best - right).clamp(min=0)
    if one_shot == "skip":
        loss = loss * ((count * members).sum(-1) > 1)
    return loss.sum(1)


def drop_entries(
    made: Tensor, samples: Samples, seeds: Tensor, share: float, *when: object
) -> Tensor:
    """Drop a share of the entries of views that were made, and scale the others up."""
    if not share:
        return made
    draws = []
    for name, width in zip(samples.names, samples.widths, strict=True):
        states = streams(seeds, "cpm", "dropout", *when, name)
        draws.append(uniform(states, (made.shape[1], width), made.dtype))
    return made * (torch.cat(draws, -1) >= share) / (1 - share)


# -------------------------------------------------------------------------------- training


def start_latent(samples: Samples, seeds: Tensor, width: int, stage: str) -> Tensor:
    """Latent vectors [tasks, n, width] that training begins with."""
    shape, dtype = (samples.features.shape[1], width), samples.features.dtype
    drawn = draw_weights(seeds, xavier(*shape), shape, dtype, "cpm", "latent", stage)
    return drawn.requires_grad_()


def train_decoders(
    batch: EpisodeBatch, how: Any, judges: Discriminators | None = None
) -> tuple[Decoders, Tensor]:
    """Train networks and latent vectors [tasks, n, latent] of supports in turns.

    `how` is a `CPM.resolved()`; CPM-GAN has `judges`.
    """
    samples = Samples.of(batch.support, batch.support_mask, batch.view_names)
    members, seeds = batch.one_hot(), batch.seeds
    decoders = Decoders.start(samples, seeds, how.latent, how.hidden)
    latent = start_latent(samples, seeds, how.latent, "support")
    adam_decoders = make_adam(list(tensors_in(decoders)), how.learning_rate)
    adam_latent = make_adam([latent], LATENT_RATE)
    if judges is not None:
        weights = list(tensors_in(judges.layers))
        adam_judges = make_adam(weights, how.discriminator_rate, betas=(0.5, 0.999))

    def make(*when: object) -> Tensor:
        return drop_entries(decoders.decode(latent), samples, seeds, how.dropout, *when)

    def losses(*when: object) -> tuple[Tensor, Tensor]:
        """Error of reconstruction, and what the discriminators say."""
        made = make(*when)
        error = reconstruction_loss(made, samples)
        if judges is None:
            return error, torch.zeros_like(error)
        return error, how.adversarial_weight * judges.losses(made, samples.observed, training=False)

    for epoch in range(how.epochs):
        if judges is not None:
            with torch.no_grad():
                made = make(epoch, "made")
            for _ in range(STEPS):
                descend(adam_judges, judges.losses(made, samples.observed, training=True))
        for step in range(STEPS):
            error, deceit = losses(epoch, step, "networks")
            descend(adam_decoders, error + deceit)
        for step in range(STEPS):
            error, deceit = losses(epoch, step, "latent")
            clusters = how.class_weight * class_loss(latent, members, how.one_shot)
            descend(adam_latent, error + clusters + deceit)
        # Without the adversarial part, which is a balance and nothing to be brought down.
        terms = {"reconstruction": error, "clustering": clusters}
        report(how.name, "networks", epoch + 1, how.epochs, error + clusters, **terms)
    return decoders.merged(), latent.detach()


def infer_latent(
    decoders: Decoders, samples: Samples, seeds: Tensor, how: Any, stage: str = "query"
) -> Tensor:
    """Latent vectors [tasks, n, latent] of new samples under fixed networks of a single layer.

    By reconstruction alone; `stage` names the random start, `how` is a `CPM.resolved()`.
    """
    latent = start_latent(samples, seeds, how.latent, stage)
    adam = make_adam([latent], how.learning_rate)
    for epoch in range(how.query_epochs):
        for step in range(STEPS):
            made = decoders.decode(latent)
            made = drop_entries(made, samples, seeds, how.dropout, epoch, step, stage)
            loss = reconstruction_loss(made, samples)
            descend(adam, loss)
        report(how.name, stage, epoch + 1, how.query_epochs, loss)
    return latent.detach()


@register("cpm")
@dataclass(kw_only=True, eq=False, repr=False)
class CPM(NetworkMethod):
    """Latent vectors from which one network per view makes the observed views.

    Networks and the supports' latent vectors are trained in every task, in turns, on
    reconstruction and a clustering loss; queries then get latent vectors under the fixed
    networks.

    Args:
        padding: by default `"class"`, a view that a support lacks and another support of its class
            has is filled with the class mean and counts as observed; other gaps stay gaps. See
            `NetworkMethod` for the others; the paper's rows have `"episode"`.
        preset: `"fast"` has networks of a single layer, latent vectors of 64 and no dropout, with
            the epochs and rates of the published row of Handwritten; `"paper"` is the published
            row `script`.
        metric: the published rule is `"inner"`, the largest mean inner product with the supports
            of a class; `"euclidean"` and `"cosine"` are the nearest prototype.
        train_on: `"episode"`, or `"base"`: networks trained on base classes with views missing as
            in the task, all latent vectors of a task inferred. It is not known which one the
            paper used; its numbers, below Proto in most cells, speak for the first.
        script: row of the published settings, for `preset="paper"`: `"handwritten"` (for all data
            sets without a row of their own), `"cub"`, `"animal"`, `"orl"`.
        one_shot: the published loss divides by zero where a sample is alone in its class; see
            `class_loss`. The default is the later correction by the same group of authors.
        latent: width of the latent vectors.
        hidden: width of the networks' hidden layer; 0 for a single layer.
        learning_rate: of the networks, and of the queries' latent vectors.
        epochs: of training; ten Adam steps each.
        query_epochs: of inferring queries; five Adam steps each.
        class_weight: of the clustering loss.
        dropout: share of made entries that are dropped, in training and for queries.

    Example:
        >>> from fewview import CPM
        >>> clf = CPM(epochs=5, query_epochs=5)
        >>> nan = float("nan")
        >>> clf = clf.fit({"a": [[-1.0], [1.0]], "b": [[1.0], [-1.0]]}, ["cat", "dog"])
        >>> clf.predict({"a": [[0.9], [nan], [-0.9]], "b": [[-0.9], [0.9], [nan]]}).shape
        (3,)
    """

    padding: str = param("class")
    metric: str = param("inner")
    script: str = param("handwritten", among=tuple(SCRIPTS))
    one_shot: str = param("clamp", among=("clamp", "self", "skip"))
    latent: int | None = param(None, least=1)
    hidden: int | None = param(None, least=0)
    learning_rate: float | None = param(None, above=0)
    epochs: int | None = param(None, least=1)
    query_epochs: int | None = param(None, least=1)
    class_weight: float | None = param(None, least=0)
    dropout: float | None = param(None, least=0, most=0.99)

    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "fast": SCRIPTS["handwritten"] | {"latent": 64, "hidden": 0, "dropout": 0.0},
        "paper": {},
    }

    def preset_values(self) -> dict[str, Any]:
        """What the preset says, and for `"paper"` the script."""
        script = SCRIPTS[self.script] if self.preset == "paper" else {}
        return {**script, **super().preset_values()}

    def discriminators(self, batch: EpisodeBatch) -> Discriminators | None:
        """Who judges made views; nobody here."""
        return None

    def bytes_per_task(self, n_support: int, n_query: int, dims: tuple[int, ...], way: int) -> int:
        """Networks with their moments, and a few copies of the views that were made."""
        how, n, width = self.resolved(), n_support + n_query, sum(dims)
        weights = how.latent * how.hidden * len(dims) + how.hidden * width + how.latent * width
        values = 6 * weights + 6 * n * (width + how.latent + how.hidden * len(dims))
        return int(values + 2 * n * width) * self.torch_dtype.itemsize

    def train(self, batch: EpisodeBatch) -> Decoders:
        """The networks alone: latent vectors of base samples are not needed again."""
        return train_decoders(batch, self.resolved(), self.discriminators(batch))[0]

    def embed(self, batch: EpisodeBatch, state: State) -> EpisodeBatch:
        """Latent vectors of supports and queries."""
        how, names, seeds = self.resolved(), batch.view_names, batch.seeds
        with torch.enable_grad():
            if self.train_on == "base":  # networks of one task, for all
                supports = Samples.of(batch.support, batch.support_mask, names)
                nets = cast(Decoders, state)
                decoders = map_tensors(nets, lambda one: one.expand(batch.n_tasks, -1, -1))
                support = infer_latent(decoders, supports, seeds, how, "support")
            else:
                decoders, support = train_decoders(batch, how, self.discriminators(batch))
            queries = Samples.of(batch.query, batch.query_mask, names)
            query = infer_latent(decoders, queries, seeds, how)
        return latent_batch(batch, support, query, batch.support_labels)


@register("cpm-gan")
@dataclass(kw_only=True, eq=False, repr=False)
class CPMGAN(CPM):
    """CPM with a discriminator per view that judges the views that supports lack.

    There is no code by its authors; this is CPM with non-saturating adversarial losses, means
    instead of sums. Real views are the observed ones of supports and queries, made ones those
    of supports that lack the view. Without missing views, and where `padding` fills all of
    them, there is nothing to judge: it is CPM, number for number.

    Args:
        adversarial_weight: of the loss of deceiving the discriminators; 0.1 for `"paper"`, 0.01
            for `"fast"`, whose larger steps would let this loss undo what supports have taught.
        discriminator_rate: learning rate of the discriminators, with betas 0.5 and 0.999.
        discriminator_hidden: width of their first hidden layer; the second is half as wide.

    The other parameters are those of `CPM`.

    Example:
        >>> from fewview import CPMGAN
        >>> CPMGAN(preset="paper").settings()["discriminator_hidden"]
        128
    """

    adversarial_weight: float | None = param(None, least=0)
    discriminator_rate: float = param(1e-3, above=0)
    discriminator_hidden: int | None = param(None, least=2)

    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "fast": CPM.presets["fast"] | {"discriminator_hidden": 64, "adversarial_weight": 0.01},
        "paper": CPM.presets["paper"] | {"discriminator_hidden": 128, "adversarial_weight": 0.1},
    }

    def discriminators(self, batch: EpisodeBatch) -> Discriminators | None:
        """One discriminator for each view, unless nothing is missing."""
        real = Samples.of(*all_samples(batch), batch.view_names)
        if bool(real.observed.all()):
            return None
        width = self.resolved().discriminator_hidden
        return Discriminators.start(real, batch.seeds, (width, width // 2))
