"""COMPLETER: contrastive prediction of missing views (Lin et al. 2021; Lin et al. 2022 for V > 2).

One autoencoder per view whose codes are distributions, a loss that makes the codes of two views
tell of each other, and predictors from the code of one view to that of another. A missing view's
code is predicted from the views that are there; queries go to the nearest prototype of all codes
side by side. The networks are trained once on base classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations, permutations
from math import ceil
from typing import Any, ClassVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad as add_zeros

from fewview.episodes.batch import EpisodeBatch
from fewview.episodes.task import TaskSpec
from fewview.methods.base import State, Tags
from fewview.methods.networks.base import (
    TRAIN_ON,
    NetworkMethod,
    all_samples,
    descend,
    draw_weights,
    masked_mean_square,
    report,
    with_codes,
)
from fewview.methods.params import param
from fewview.methods.registry import register
from fewview.numerics.adam import make_adam
from fewview.numerics.iterate import map_tensors
from fewview.numerics.tensor_random import raw, streams, uniform
from fewview.samples._data import MultiViewData

ERROR_WEIGHT = 0.1  # of reconstruction and of prediction
OTHER_PAIRS = 0.1  # of a pair of views other than the first
MOMENTUM = 0.1  # of the running statistics of batch normalisation


# -------------------------------------------------------------------------------- networks


@dataclass(frozen=True)
class Layer(State):
    """A linear layer, batch-normalised unless it is the last of a network with softmax output.

    Of G networks, for views or pairs of views: weights [tasks, G, in, out], all else
    [tasks, G, 1, out]. Without a scale there is no normalisation and no ReLU; the bias is added
    after normalisation, which would remove it before.
    """

    weights: Tensor
    bias: Tensor
    scale: Tensor | None = None
    mean: Tensor | None = None
    variance: Tensor | None = None

    def __call__(self, x: Tensor, counted: Tensor | None, relu: bool = True) -> Tensor:
        """Apply the layer to x [tasks, G, n, in].

        Statistics of normalisation are taken over the samples in `counted` [tasks, G, n], which
        also moves the running ones; None uses the running ones.
        """
        out = x @ self.weights
        if self.scale is None or self.mean is None or self.variance is None:
            return out + self.bias
        mean, variance = self.mean, self.variance
        if counted is not None:
            # Products with a row of weights are several times faster than masked sums.
            row = counted[:, :, None]
            count = row.sum(3, keepdim=True)
            row = row / count.clamp(min=1)
            here = row @ out
            spread = (row @ out.square() - here.square()).clamp(min=0)
            # One sample has no spread: it is normalised by what was seen before.
            several = count > 1
            mean = torch.where(several, here, mean)
            variance = torch.where(several, spread, variance)
            with torch.no_grad():
                unbiased = spread * count / (count - 1).clamp(min=1)
                self.mean.lerp_(torch.where(several, here, self.mean), MOMENTUM)
                self.variance.lerp_(torch.where(several, unbiased, self.variance), MOMENTUM)
        factor = torch.rsqrt(variance + 1e-5) * self.scale
        out = torch.addcmul(self.bias - mean * factor, out, factor)
        return torch.relu(out) if relu else out


def start_layers(
    seeds: Tensor,
    dtype: torch.dtype,
    sizes: Sequence[Sequence[int]],
    names: Sequence[str],
    what: str,
    plain_end: bool,
) -> tuple[Layer, ...]:
    """Layers of G networks, with weights (and biases of plain ones) within 1 / sqrt(inputs).

    Every network has its widths in `sizes`, input first, and its name; inputs and outputs narrower
    than the widest one have weights of zero there. With `plain_end` the last layer has no
    normalisation.
    """
    layers = []
    for place in range(len(sizes[0]) - 1):
        rows, columns = (max(size[end] for size in sizes) for end in (place, place + 1))
        weights, biases = [], []
        for name, size in zip(names, sizes, strict=True):
            bound, shape = size[place] ** -0.5, (size[place], size[place + 1])
            key = ("completer", what, place, name)
            missing = (0, columns - shape[1], 0, rows - shape[0])
            weights.append(add_zeros(draw_weights(seeds, bound, shape, dtype, *key), missing))
            bias = draw_weights(seeds, bound, (1, shape[1]), dtype, *key, "bias")
            biases.append(add_zeros(bias, missing[:2]))
        weight, bias = torch.stack(weights, 1), torch.stack(biases, 1)
        zeros, ones = torch.zeros_like(bias), torch.ones_like(bias)
        layers.append(Layer(weight, zeros, ones, zeros.clone(), ones.clone()))
    return (*layers[:-1], Layer(weight, bias) if plain_end else layers[-1])


@dataclass(frozen=True)
class Networks(State):
    """Layers of V encoders, V decoders and V (V - 1) predictors in the order of `ordered_pairs`."""

    encoders: tuple[Layer, ...]
    decoders: tuple[Layer, ...]
    predictors: tuple[Layer, ...]
    relu_output: bool

    @classmethod
    def start(cls, batch: EpisodeBatch, how: Any) -> Networks:
        """Networks ready to be trained; predictors as wide as published, in parts of a code."""
        hidden, code, names = (how.width,) * 3, how.code, batch.view_names
        widths = [view.shape[-1] for view in batch.support]
        encoders = [(width, *hidden, code) for width in widths]
        decoders = [(code, *hidden, width) for width in widths]
        pairs = [f"{names[one]} to {names[two]}" for one, two in ordered_pairs(len(names))]
        predictors = [(code, code, 2 * code, code, 2 * code, code, code)] * len(pairs)
        layers = partial(start_layers, batch.seeds, batch.dtype)
        networks = cls(
            layers(encoders, names, "encoder", True),
            layers(decoders, names, "decoder", False),
            layers(predictors, pairs, "predictor", True) if pairs else (),
            how.scaling == "minmax",
        )
        for item in networks.parameters:
            item.requires_grad_()
        return networks

    @property
    def parameters(self) -> list[Tensor]:
        """What is trained."""
        layers = (*self.encoders, *self.decoders, *self.predictors)
        found = [(layer.weights, layer.bias, layer.scale) for layer in layers]
        return [item for layer in found for item in layer if item is not None]

    def encode(self, x: Tensor, counted: Tensor | None) -> Tensor:
        """Codes [tasks, V, n, code], distributions, of views [tasks, V, n, width]."""
        for layer in self.encoders:
            x = layer(x, counted)
        return torch.softmax(x, -1)

    def decode(self, codes: Tensor, counted: Tensor | None) -> Tensor:
        """Views [tasks, V, n, width] of codes."""
        for layer in self.decoders[:-1]:
            codes = layer(codes, counted)
        return self.decoders[-1](codes, counted, relu=self.relu_output)

    def predict(self, codes: Tensor, counted: Tensor | None) -> Tensor:
        """Predicted codes [tasks, pairs, n, code] of the second view of every ordered pair."""
        x = codes[:, [source for source, _ in ordered_pairs(codes.shape[1])]]
        for layer in self.predictors:
            x = layer(x, counted)
        return torch.softmax(x, -1)


def ordered_pairs(n_views: int) -> list[tuple[int, int]]:
    """All ordered pairs of different views."""
    return list(permutations(range(n_views), 2))


def complete(networks: Networks, x: Tensor, observed: Tensor, graph: str) -> Tensor:
    """Codes of all views side by side, [tasks, n, V * code]; those of missing ones predicted.

    A missing view's code is the mean of the predictions from all views that are there; with the
    graph `"core"`, views other than the first are predicted from the first, itself predicted if
    it is missing. Views are [tasks, V, n, width], `observed` [tasks, V, n].
    """
    codes = networks.encode(x, None)
    if not bool(observed.all()):
        made = _filled(networks, codes, observed, observed)
        if graph == "core":
            core = torch.zeros_like(observed)
            core[:, 0] = 1.0
            codes = torch.cat([made[:, :1], codes[:, 1:]], 1)
            made = _filled(networks, codes, torch.maximum(observed, core), core)
        codes = made
    return codes.transpose(1, 2).flatten(2)


def _filled(networks: Networks, codes: Tensor, known: Tensor, sources: Tensor) -> Tensor:
    """Put the mean prediction from `sources` in place of the codes that are not `known`."""
    predicted, pairs = networks.predict(codes, None), ordered_pairs(codes.shape[1])
    out = []
    for view in range(codes.shape[1]):
        places = [index for index, (_, target) in enumerate(pairs) if target == view]
        weight = sources[:, [pairs[index][0] for index in places], :, None]
        mean = (predicted[:, places] * weight).sum(1) / weight.sum(1).clamp(min=1)
        out.append(torch.where(known[:, view, :, None] > 0, codes[:, view], mean))
    return torch.stack(out, 1)


# -------------------------------------------------------------------------------- losses


def contrastive_loss(one: Tensor, two: Tensor, counted: Tensor, alpha: float) -> Tensor:
    """Minus the mutual information of the codes of two views, entropies counted alpha more times.

    Codes are distributions [..., n, code], `counted` [..., n] the samples that have both views; the
    answer [...] is zero where there are none.
    """
    joint = (one * counted[..., None]).mT @ two / counted.sum(-1).clamp(min=1)[..., None, None]
    joint = (joint + joint.mT) / 2  # [..., code, code]
    rows = joint.sum(-1, keepdim=True)
    least = torch.finfo(joint.dtype).eps
    joint, left, right = (item.clamp(min=least) for item in (joint, rows, rows.mT))
    inside = joint.log() - (1 + alpha) * (left.log() + right.log())
    return -(joint * inside).sum((-2, -1)) * (counted.sum(-1) > 0)


def pair_weights(n_views: int, graph: str) -> list[float]:
    """What the contrastive loss of every pair of views counts.

    Two views have weight one; the generalisation to more divides by their number, and counts the
    first pair ten times as much as the others.
    """
    share = 1.0 if n_views <= 2 else 1.0 / n_views
    return [
        share * (1.0 if pair == (0, 1) else OTHER_PAIRS) * (graph == "complete" or pair[0] == 0)
        for pair in combinations(range(n_views), 2)
    ]


def completer_loss(
    networks: Networks, x: Tensor, observed: Tensor, widths: Tensor, predict: bool, how: Any
) -> tuple[Tensor, dict[str, Tensor]]:
    """Loss of a mini-batch and its terms, [tasks] each, over samples that have the views needed.

    Terms are the error of reconstruction, the contrastive loss, and, if `predict`, that of
    prediction. Views are [tasks, V, n, width], zeros where missing and beyond `widths` [V];
    `observed` is float [tasks, V, n].
    """
    n_views = x.shape[1]
    codes = networks.encode(x, observed)
    inside = torch.arange(x.shape[-1], device=x.device) < widths[:, None, None]
    error = (networks.decode(codes, observed) - x) * inside
    made = masked_mean_square(error, observed, widths).sum(1) * (ERROR_WEIGHT / max(1, n_views - 2))
    terms = {"reconstruction": made}
    if n_views == 1:
        return made, terms
    left, right = map(list, zip(*combinations(range(n_views), 2), strict=True))
    both = observed[:, left] * observed[:, right]
    contrast = contrastive_loss(codes[:, left], codes[:, right], both, how.alpha)
    weights = x.new_tensor(pair_weights(n_views, how.graph))
    terms["contrastive"] = (contrast * weights).sum(1)
    if not predict:
        return made + terms["contrastive"], terms
    pairs = ordered_pairs(n_views)
    source, target = map(list, zip(*pairs, strict=True))
    both = observed[:, source] * observed[:, target]
    error = networks.predict(codes, both) - codes[:, target]
    errors = masked_mean_square(error, both, codes.shape[-1])
    if how.graph == "core":
        errors = errors * x.new_tensor([float(0 in pair) for pair in pairs])
    share = 1.0 if n_views == 2 else 1.0 / n_views
    terms["prediction"] = ERROR_WEIGHT * share * errors.sum(1)
    return made + terms["contrastive"] + terms["prediction"], terms


# -------------------------------------------------------------------------------- training


def train_networks(batch: EpisodeBatch, how: Any) -> Networks:
    """Train the networks of every task on its samples; `how` is a `COMPLETER.resolved()`.

    Where it `redraws`, further views go missing anew in every mini-batch.
    """
    networks, seeds = Networks.start(batch, how), batch.seeds
    adam = make_adam(networks.parameters, how.learning_rate)
    x, observed = stacked(batch)  # [T, V, n, width], [T, V, n]
    n, widths = x.shape[2], x.new_tensor([view.shape[-1] for view in batch.support])
    parts = ceil(n / how.batch)
    epochs = max(1, min(how.epochs, how.n_steps // parts))
    # Where epochs are cut short, the warm-up is cut in proportion.
    warm_up = how.warm_up * epochs / how.epochs
    for epoch in range(epochs):
        order = raw(streams(seeds, "completer", "order", epoch), n).argsort(dim=-1, stable=True)
        # Parts of nearly equal length: a short rest would make poor statistics.
        for number, rows in enumerate(order.tensor_split(parts, dim=1)):
            index = rows[:, None, :].expand(-1, x.shape[1], -1)
            part = x.gather(2, index[..., None].expand(-1, -1, -1, x.shape[-1]))
            seen = observed.gather(2, index)
            if how.redraws:
                seen = redrawn(seen, streams(seeds, "completer", "masks", epoch, number))
                part = part * seen[..., None]
            loss, terms = completer_loss(networks, part, seen, widths, epoch >= warm_up, how)
            descend(adam, loss)
        report("completer", "networks", epoch + 1, epochs, loss, **terms)
    return map_tensors(networks, Tensor.detach)


def stacked(batch: EpisodeBatch) -> tuple[Tensor, Tensor]:
    """Views in one tensor [tasks, V, n, largest width], with zeros, and masks [tasks, V, n]."""
    views, mask = all_samples(batch)
    most = max(view.shape[-1] for view in views)
    rows = [add_zeros(view, (0, most - view.shape[-1])) for view in views]
    return torch.stack(rows, 1), mask.mT.to(batch.dtype)


def redrawn(observed: Tensor, states: Tensor) -> Tensor:
    """Let further views go missing, at a random rate for every sample, which keeps at least one.

    One rate for the whole mini-batch would now and then leave next to no pair of views, and few
    pairs have even codes only if every sample has: the entropies would undo what codes tell. Masks
    are [tasks, V, n], the streams of random numbers [tasks].
    """
    n_views, n = observed.shape[1:]
    draws = uniform(states, (2 * n_views + 1, n), observed.dtype)
    guard, cells = draws[:, :n_views], draws[:, n_views:-1]
    chosen = (guard + observed).argmax(1, keepdim=True)  # an observed view of every sample
    # Of the views that are not guaranteed, a random share stays.
    stays = (cells < draws[:, -1:]).scatter(1, chosen, True)
    return observed * stays


@register("completer")
@dataclass(kw_only=True, eq=False, repr=False)
class COMPLETER(NetworkMethod):
    """Codes of all views, those of missing views predicted from the others.

    Every term of the loss uses all samples that have the views it needs; the published code
    trains on complete samples alone, of which there are next to none with six views. Decoders
    end with a ReLU where the scaling makes views non-negative, as published.

    Args:
        preset: `"fast"` is 128 wide, with at most 1000 steps and entropies that count once
            (`alpha`); `"paper"` is 1024 wide, with 500 epochs; see `presets`.
        metric: how a query is compared with a prototype; codes are short vectors on a simplex,
            for which `"cosine"` is the safer choice.
        train_on: `"base"`, once on base classes; `"episode"`, on the supports and queries of every
            task; or `"unlabelled"`, once on samples without labels, in an evaluation all samples
            of the novel classes: queries and other tasks are seen beforehand, also views that a
            task hides. It is not known which one the paper used.
        base_missing: how views go missing in base classes: `"task"`, as in the task, which is
            what the fall of the paper's curves with two views at a missing rate of 0.5 speaks
            for; or `"random"`, redrawn in every step at random rates, so that one training
            serves all rates. None takes the preset's: `"random"` for `"fast"`.
        graph: for more than two views, `"complete"` predicts a missing view from all others,
            `"core"` through the first view.
        width: of the hidden layers of encoders and decoders.
        code: width of a code.
        epochs: most epochs of training.
        warm_up: epochs before prediction counts.
        learning_rate: of Adam.
        batch: samples in a mini-batch.
        n_steps: most mini-batches; epochs and warm-up are shortened to keep to it.
        alpha: extra weight of the entropies of the codes in the contrastive loss. Codes that tell
            much of a sample look uneven in a small mini-batch, so a large weight keeps them
            nearly even for every sample.

    Example:
        >>> from fewview import COMPLETER, load
        >>> data = load("digits")
        >>> base, novel = data[data.labels < 6], data[data.labels >= 6]
        >>> clf = COMPLETER(base=base, epochs=1).fit(novel[:12])
        >>> clf.predict(novel[12:42]).shape
        (30,)
    """

    scaling: str = param("minmax")
    metric: str = param("cosine")
    train_on: str = param("base", among=(*TRAIN_ON, "unlabelled"))
    base_missing: str | None = param(None, among=("task", "random"))
    graph: str = param("complete", among=("complete", "core"))
    width: int | None = param(None, least=1)
    code: int | None = param(None, least=1)
    epochs: int | None = param(None, least=1)
    warm_up: int | None = param(None, least=0)
    learning_rate: float | None = param(None, above=0)
    batch: int | None = param(None, least=1)
    n_steps: int | None = param(None, least=1)
    alpha: float | None = param(None, least=0)

    paper: ClassVar[dict[str, Any]] = {"scaling": "minmax", "padding": "episode"}
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "fast": {
            "width": 128, "code": 32, "epochs": 100, "warm_up": 20, "learning_rate": 1e-3,
            "batch": 256, "n_steps": 1000, "alpha": 1.0, "base_missing": "random",
        },
        "paper": {
            "width": 1024, "code": 128, "epochs": 500, "warm_up": 100, "learning_rate": 1e-4,
            "batch": 256, "n_steps": 1_000_000, "alpha": 9.0, "base_missing": "task",
        },
    }  # fmt: skip

    @property
    def tags(self) -> Tags:  # type: ignore[override]
        """What follows from where the networks are trained, and at which missing rates."""
        return replace(super().tags, depends_on=()) if self.redraws else super().tags

    @property
    def redraws(self) -> bool:
        """Whether base samples miss other views in every step."""
        return self.train_on != "episode" and self.settings()["base_missing"] == "random"

    def bytes_per_task(self, n_support: int, n_query: int, dims: tuple[int, ...], way: int) -> int:
        """Activations; when trained in the task also networks, gradients and moments."""
        how, views = self.resolved(), len(dims)
        each = 3 * max(dims) + 8 * how.width + 8 * how.code * max(1, views - 1)
        values = (n_support + n_query) * views * each
        if self.train_on == "episode":
            layers = 2 * (max(dims) * how.width + 2 * how.width**2 + how.width * how.code)
            values = 6 * values + 5 * views * (layers + 12 * (views - 1) * how.code**2)
        return int(values) * self.torch_dtype.itemsize

    def base_mask(self, base: MultiViewData, task: TaskSpec, seed: int) -> NDArray[np.bool_]:
        """Which views networks see, [n, V]: all where masks are redrawn in every step."""
        return base.mask if self.redraws else super().base_mask(base, task, seed)

    def train(self, batch: EpisodeBatch) -> Networks:
        """All networks."""
        return train_networks(batch, self.resolved())

    def embed(self, batch: EpisodeBatch, state: State) -> EpisodeBatch:
        """Codes of supports and queries."""
        x, observed = stacked(batch)
        if self.train_on == "episode":
            with torch.enable_grad():
                state = self.train(batch)
        else:  # networks for all tasks: their samples in a row, as if of a single one
            x, observed = (item.transpose(0, 1).flatten(1, 2)[None] for item in (x, observed))
        codes = complete(cast(Networks, state), x, observed, self.graph)
        return with_codes(batch, codes.reshape(batch.n_tasks, -1, codes.shape[-1]))
