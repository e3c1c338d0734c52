"""CPM and CPM-GAN: cross partial multi-view networks (Zhang et al. 2019 and 2020).

Every sample has a latent vector h from which one linear network per view makes the views that the
sample has; a clustering loss pulls supports of a class together. CPM-GAN adds a discriminator per
view that judges the views that a support lacks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, cast

import torch
from torch import Tensor

from fewview.engine._contract import latent_batch
from fewview.engine._parameters import choose, gather_options
from fewview.engine._registry import register
from fewview.engine._state import State
from fewview.engine._trained import TrainedMethod
from fewview.numerics._batch import EpisodeBatch, map_tensors
from fewview.numerics._networks import (
    all_samples,
    descend,
    draw_weights,
    reduce_views,
    tell,
    xavier,
)
from fewview.numerics._optimise import make_adam
from fewview.numerics._tensor_draws import streams, uniform
from fewview.samples._data import MultiViewData

ONE_SHOT = ("clamp", "self", "skip")
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
    """Samples of many tasks: views side by side [tasks, n, D], which are observed [tasks, n, V].

    `widths` sum to D; `sizes` are those before views were reduced, for which weights start.
    """

    features: Tensor
    observed: Tensor
    widths: tuple[int, ...]
    sizes: tuple[int, ...]
    names: tuple[str, ...]

    @classmethod
    def of(
        cls, views: list[Tensor], mask: Tensor, names: tuple[str, ...], whole: list[Tensor]
    ) -> Samples:
        """Views [tasks, n, width] side by side; `whole` are the same before they were reduced."""
        widths, sizes = (tuple(int(v.shape[-1]) for v in part) for part in (views, whole))
        return cls(torch.cat(views, -1), mask, widths, sizes, names)

    @cached_property
    def cells(self) -> Tensor:
        """Which features are observed, as floats [tasks, n, D]."""
        repeats = torch.tensor(self.widths, device=self.observed.device)
        cells = self.observed.repeat_interleave(repeats, dim=-1, output_size=sum(self.widths))
        return cells.to(self.features.dtype)

    def rows(self, start: int, stop: int | None) -> Samples:
        """Some of the samples of every task."""
        return replace(
            self, features=self.features[:, start:stop], observed=self.observed[:, start:stop]
        )


@dataclass(frozen=True)
class Decoders(State):
    """One linear network per view, with one or two layers and no activation.

    The first layer is one for all views: weights [tasks, latent, V * hidden], or [tasks, latent, D]
    where there is no second one; that has [tasks, hidden, width] per view.
    """

    first: Tensor
    first_bias: Tensor
    second: tuple[Tensor, ...] = ()
    second_bias: tuple[Tensor, ...] = ()

    @property
    def parameters(self) -> list[Tensor]:
        """All tensors."""
        return [self.first, self.first_bias, *self.second, *self.second_bias]

    def decode(self, latent: Tensor) -> Tensor:
        """Views side by side [tasks, n, D] from latent vectors [tasks, n, latent]."""
        out = torch.baddbmm(self.first_bias, latent, self.first)
        if not self.second:
            return out
        parts = out.chunk(len(self.second), dim=-1)
        layers = zip(self.second_bias, parts, self.second, strict=True)
        return torch.cat([torch.baddbmm(bias, part, w) for bias, part, w in layers], -1)

    def merged(self) -> Decoders:
        """The same map as a single layer, without gradients."""
        layers = map_tensors(self, Tensor.detach)
        if not self.second:
            return layers
        tasks, latent = self.first.shape[:2]
        origin = layers.decode(self.first.new_zeros(tasks, 1, latent))
        unit = torch.eye(latent, dtype=self.first.dtype, device=self.first.device)
        return Decoders(layers.decode(unit.expand(tasks, -1, -1)) - origin, origin)


def start_decoders(samples: Samples, seeds: Tensor, latent: int, hidden: int) -> Decoders:
    """Networks with uniform Xavier weights and zero biases."""
    dtype, ends = samples.features.dtype, (samples.widths, samples.sizes)
    middle = ((hidden,) * len(samples.names),) * 2

    def weights(layer: int, rows: int, ends: tuple[tuple[int, ...], ...]) -> list[Tensor]:
        return [
            draw_weights(seeds, xavier(rows, size), (rows, width), dtype, "cpm", layer, name)
            for name, width, size in zip(samples.names, *ends, strict=True)
        ]

    def zeros(columns: int) -> Tensor:
        return samples.features.new_zeros(len(seeds), 1, columns).requires_grad_()

    first = torch.cat(weights(1, latent, middle if hidden else ends), -1).detach()
    layers = Decoders(first.requires_grad_(), zeros(first.shape[-1]))
    if not hidden:
        return layers
    second = tuple(weights(2, hidden, ends))
    return replace(layers, second=second, second_bias=tuple(map(zeros, samples.widths)))


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


@dataclass(frozen=True)
class Discriminators:
    """One network per view that tells observed from made views: width-128-64-1, leaky ReLU.

    Layers are per view (weights [tasks, in, out], bias [tasks, 1, out]); `real` are all samples of
    the tasks, `weight` is that of the adversarial loss beside the others, and `adam` moves layers.
    """

    layers: list[list[tuple[Tensor, Tensor]]]
    real: Samples
    weight: float
    adam: torch.optim.Adam

    @classmethod
    def start(
        cls, real: Samples, seeds: Tensor, hidden: tuple[int, int], weight: float, rate: float
    ) -> Discriminators:
        """Discriminators with uniform Xavier weights."""
        dtype = real.features.dtype

        def layer(view: int, place: int) -> tuple[Tensor, Tensor]:
            rows, columns = (real.widths[view], *hidden, 1)[place : place + 2]
            bound = xavier(*(real.sizes[view], *hidden, 1)[place : place + 2])
            key = ("cpm-gan", place, real.names[view])
            bias = real.features.new_zeros(len(seeds), 1, columns).requires_grad_()
            return draw_weights(seeds, bound, (rows, columns), dtype, *key), bias

        layers = [[layer(view, place) for place in range(3)] for view in range(len(real.names))]
        parameters = [item for view in layers for pair in view for item in pair]
        return cls(layers, real, weight, make_adam(parameters, rate, betas=(0.5, 0.999)))

    def judge(self, view: int, features: Tensor) -> Tensor:
        """Logits [tasks, n] that rows of one view are real."""
        for weights, bias in self.layers[view][:-1]:
            features = torch.nn.functional.leaky_relu(torch.baddbmm(bias, features, weights), 0.2)
        weights, bias = self.layers[view][-1]
        return torch.baddbmm(bias, features, weights)[..., 0]

    def losses(self, made: Tensor, samples: Samples, training: bool) -> Tensor:
        """Mean binary cross-entropy over made and real views, [tasks].

        Of the views [tasks, n, D] that decoders make of some samples, those that the samples lack
        are judged: by the discriminators in `training`, or by those who try to deceive them.
        """
        total, softplus = made.new_zeros(len(made)), torch.nn.functional.softplus
        fakes, reals = (
            torch.split(part, list(samples.widths), -1) for part in (made, self.real.features)
        )
        for view, (fake, real) in enumerate(zip(fakes, reals, strict=True)):
            lacking = (~samples.observed[..., view]).to(made.dtype)
            seen = self.real.observed[..., view].to(made.dtype)
            # Without a made or without a real view there is nothing to tell apart.
            both = (lacking.sum(1) > 0) & (seen.sum(1) > 0)
            logits = self.judge(view, fake)
            loss = _mean(softplus(logits if training else -logits), lacking)
            if training:
                loss = loss + _mean(softplus(-self.judge(view, real)), seen)
            total = total + loss * both
        return total


def _mean(values: Tensor, weights: Tensor) -> Tensor:
    return (values * weights).sum(1) / weights.sum(1).clamp(min=1)


@dataclass(frozen=True)
class Training:
    """How CPM is trained; see the parameters of `CPM`."""

    latent: int
    hidden: int
    learning_rate: float
    epochs: int
    query_epochs: int
    class_weight: float
    dropout: float
    one_shot: str
    name: str = "cpm"

    def dropped(self, made: Tensor, samples: Samples, seeds: Tensor, *when: object) -> Tensor:
        """Drop entries of the views that were made, at random, and scale the others up."""
        if not self.dropout:
            return made
        draws = []
        for name, width in zip(samples.names, samples.widths, strict=True):
            states = streams(seeds, "cpm", "dropout", *when, name)
            draws.append(uniform(states, (made.shape[1], width), made.dtype))
        return made * (torch.cat(draws, -1) >= self.dropout) / (1 - self.dropout)


def start_latent(samples: Samples, seeds: Tensor, how: Training, stage: str) -> Tensor:
    """Latent vectors [tasks, n, latent] that training begins with."""
    shape = (samples.features.shape[1], how.latent)
    dtype = samples.features.dtype
    return draw_weights(seeds, xavier(*shape), shape, dtype, "cpm", "latent", stage)


def train(
    samples: Samples,
    members: Tensor,
    seeds: Tensor,
    how: Training,
    adversary: Discriminators | None = None,
) -> tuple[Decoders, Tensor]:
    """Train networks and latent vectors [tasks, n, latent] in turns, five Adam steps each.

    `members` are one-hot labels [tasks, n, way]; CPM-GAN has an adversary.
    """
    decoders = start_decoders(samples, seeds, how.latent, how.hidden)
    latent = start_latent(samples, seeds, how, "support")
    adam_decoders = make_adam(decoders.parameters, how.learning_rate)
    adam_latent = make_adam([latent], LATENT_RATE)

    def losses(*when: object) -> tuple[Tensor, Tensor]:
        """Error of reconstruction, and what the discriminators say."""
        made = how.dropped(decoders.decode(latent), samples, seeds, *when)
        error = reconstruction_loss(made, samples)
        if adversary is None:
            return error, torch.zeros_like(error)
        return error, adversary.weight * adversary.losses(made, samples, training=False)

    def report(epochs: int, error: Tensor, clustering: Tensor) -> None:
        """Without the adversarial part, which is a balance and not something to be brought down."""
        parts = {"reconstruction": error, "clustering": clustering}
        tell(how.name, "networks", epochs, how.epochs, error + clustering, **parts)

    def clustering() -> Tensor:
        return how.class_weight * class_loss(latent, members, how.one_shot)

    with torch.no_grad():
        report(0, losses("start")[0], clustering())
    for epoch in range(how.epochs):
        if adversary is not None:
            with torch.no_grad():
                made = how.dropped(decoders.decode(latent), samples, seeds, epoch, "made")
            for _ in range(STEPS):
                descend(adversary.adam, adversary.losses(made, samples, training=True))
        for step in range(STEPS):
            descend(adam_decoders, torch.stack(losses(epoch, step, "networks")).sum(0))
        error = apart = latent.new_zeros(len(seeds))
        for step in range(STEPS):
            error, deceit = losses(epoch, step, "latent")
            apart = clustering()
            descend(adam_latent, error + apart + deceit)
        report(epoch + 1, error, apart)
    return decoders.merged(), latent.detach()


def infer(
    decoders: Decoders, samples: Samples, seeds: Tensor, how: Training, stage: str = "query"
) -> Tensor:
    """Latent vectors [tasks, n, latent] of new samples under fixed networks of a single layer.

    By reconstruction alone; `stage` names the random start.
    """
    latent = start_latent(samples, seeds, how, stage)
    adam = make_adam([latent], how.learning_rate)
    for epoch in range(how.query_epochs):
        loss = latent.new_zeros(len(seeds))
        for step in range(STEPS):
            made = how.dropped(decoders.decode(latent), samples, seeds, epoch, step, stage)
            loss = reconstruction_loss(made, samples)
            descend(adam, loss)
        tell(how.name, stage, epoch + 1, how.query_epochs, loss)
    return latent.detach()


@register("cpm")
class CPM(TrainedMethod):
    """Latent vectors from which one network per view makes the observed views.

    Networks and the supports' latent vectors are trained in every task, in turns, on
    reconstruction and a clustering loss; queries then get latent vectors under the fixed
    networks.

    Args:
        padding: by default `"class"`, a view that a support lacks and another support of its class
            has is filled with the class mean and counts as observed; other gaps stay gaps. See
            `TrainedMethod` for the others; the paper's rows have `"episode"`.
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
        view_width: most features of a view, by principal axes in the task; 0 keeps views whole,
            which is slower for wide views and better: Adam moves every feature alike, so the
            result is not the same after a rotation.

    Example:
        >>> from fewview.methods.cpm import CPM
        >>> clf = CPM(epochs=5, query_epochs=5)
        >>> nan = float("nan")
        >>> clf = clf.fit({"a": [[-1.0], [1.0]], "b": [[1.0], [-1.0]]}, ["cat", "dog"])
        >>> clf.predict({"a": [[0.9], [nan], [-0.9]], "b": [[-0.9], [0.9], [nan]]}).shape
        (3,)
    """

    padding: str = "class"
    metric: str = "inner"
    script: str = "handwritten"
    one_shot: str = "clamp"
    latent: int | None = None
    hidden: int | None = None
    learning_rate: float | None = None
    epochs: int | None = None
    query_epochs: int | None = None
    class_weight: float | None = None
    dropout: float | None = None
    view_width: int | None = None

    preset_settings: ClassVar[dict[str, dict[str, Any]]] = {
        "fast": {
            **SCRIPTS["handwritten"], "latent": 64, "hidden": 0, "dropout": 0.0, "view_width": 0,
        },
        "paper": {"view_width": 0},
    }  # fmt: skip
    may_be_zero: ClassVar[tuple[str, ...]] = ("view_width", "hidden", "class_weight", "dropout")

    def validate(self) -> None:
        """Check the script and the rule for single supports."""
        choose("script", self.script, SCRIPTS)
        super().validate()
        choose("one_shot", self.one_shot, ONE_SHOT)

    def preset_row(self) -> dict[str, Any]:
        """What the preset says, and for `"paper"` the script."""
        script = SCRIPTS[self.script] if self.preset == "paper" else {}
        return {**script, **super().preset_row()}

    def _adversary(self, real: Samples, seeds: Tensor) -> Discriminators | None:
        return None

    def bytes_per_task(self, n_support: int, n_query: int, dims: tuple[int, ...], way: int) -> int:
        """Networks with their moments, and a few copies of the views that were made."""
        n, width, settings = n_support + n_query, self.reduced_width(dims), self.settings()
        latent, hidden = settings["latent"], settings["hidden"]
        weights = latent * hidden * len(dims) + hidden * width + latent * width
        values = 6 * weights + 6 * n * (width + latent + hidden * len(dims)) + 2 * n * sum(dims)
        return int(values) * self.torch_dtype.itemsize

    def train_on_base(
        self, base: MultiViewData, views: list[Tensor], mask: Tensor, seeds: Tensor
    ) -> Decoders:
        """The networks alone: latent vectors of base samples are not needed again."""
        codes = torch.as_tensor(base.codes, device=self.torch_device)
        members = torch.nn.functional.one_hot(codes, len(base.classes)).to(views[0].dtype)
        samples = Samples.of(views, mask, base.view_names, views)
        how = gather_options(Training, self, self.settings())
        members = members.expand(len(seeds), -1, -1)
        return train(samples, members, seeds, how, self._adversary(samples, seeds))[0]

    def embed(self, batch: EpisodeBatch, state: State) -> EpisodeBatch:
        """Latent vectors of supports and queries."""
        how, ns = gather_options(Training, self, self.settings()), batch.n_support
        whole, mask = all_samples(batch)
        with torch.enable_grad():
            if self.train_on == "base":
                shared = cast(Decoders, state)  # networks [1, ...] of a single layer
                decoders = map_tensors(shared, lambda one: one.expand(batch.n_tasks, -1, -1))
                samples = Samples.of(whole, mask, batch.view_names, whole)
                support = infer(decoders, samples.rows(0, ns), batch.seeds, how, "support")
            else:
                views = reduce_views(whole, self.settings()["view_width"])
                samples = Samples.of(views, mask, batch.view_names, whole)
                adversary = self._adversary(samples, batch.seeds)
                decoders, support = train(
                    samples.rows(0, ns), batch.one_hot(), batch.seeds, how, adversary
                )
            query = infer(decoders, samples.rows(ns, None), batch.seeds, how)
        return latent_batch(batch, support, query, batch.support_labels)


@register("cpm-gan")
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
        >>> from fewview.methods.cpm import CPMGAN
        >>> CPMGAN(preset="paper").settings()["discriminator_hidden"]
        128
    """

    adversarial_weight: float | None = None
    discriminator_rate: float = 1e-3
    discriminator_hidden: int | None = None

    preset_settings: ClassVar[dict[str, dict[str, Any]]] = {
        "fast": {
            **CPM.preset_settings["fast"], "discriminator_hidden": 64, "adversarial_weight": 0.01,
        },
        "paper": {
            **CPM.preset_settings["paper"], "discriminator_hidden": 128, "adversarial_weight": 0.1,
        },
    }  # fmt: skip
    may_be_zero: ClassVar[tuple[str, ...]] = (*CPM.may_be_zero, "adversarial_weight")

    def _adversary(self, real: Samples, seeds: Tensor) -> Discriminators | None:
        if bool(real.observed.all()):
            return None
        settings = self.settings()
        width, weight = max(2, settings["discriminator_hidden"]), settings["adversarial_weight"]
        hidden = (width, width // 2)
        return Discriminators.start(real, seeds, hidden, weight, self.discriminator_rate)
