"""COMPLETER: contrastive prediction of missing views (Lin et al. 2021; Lin et al. 2022 for V > 2).

One autoencoder per view whose codes are distributions, a loss that makes the codes of two views
tell of each other, and predictors from the code of one view to that of another. A missing view's
code is predicted from the views that are there; queries go to the nearest prototype of all codes
side by side. The networks are trained once on base classes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations, permutations
from typing import Any, ClassVar, cast

import torch
from torch import Tensor

from fewview.engine._parameters import choose, gather_options
from fewview.engine._registry import register
from fewview.engine._state import State, Tags
from fewview.engine._trained import TRAIN_ON, TrainedMethod, with_codes
from fewview.episodes._task import TaskSpec
from fewview.numerics._again import Again
from fewview.numerics._batch import EpisodeBatch, ViewTensors, map_tensors
from fewview.numerics._networks import (
    all_samples,
    descend,
    draw_weights,
    masked_mean_square,
    tell,
)
from fewview.numerics._optimise import make_adam
from fewview.numerics._tensor_draws import raw, streams, uniform
from fewview.samples._data import MultiViewData

GRAPHS = ("complete", "core")
MISSING = ("task", "random")
ALPHA = 9.0  # weight of the entropies in the contrastive loss
ERROR_WEIGHT = 0.1  # of reconstruction and of prediction
OTHER_PAIRS = 0.1  # of a pair of views other than the first
MOMENTUM = 0.1  # of the running statistics of batch normalisation


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
    sizes: Sequence[Sequence[int]],
    names: Sequence[str],
    what: str,
    plain_end: bool,
    dtype: torch.dtype,
) -> tuple[Layer, ...]:
    """Layers of G networks, with weights (and biases of plain ones) within 1 / sqrt(inputs).

    Every network has its widths in `sizes`, input first, and its name; inputs and outputs narrower
    than the widest one have weights of zero there. With `plain_end` the last layer has no
    normalisation.
    """
    layers = []
    for place in range(len(sizes[0]) - 1):
        rows = max(size[place] for size in sizes)
        columns = max(size[place + 1] for size in sizes)
        weights, biases = [], []
        for name, size in zip(names, sizes, strict=True):
            bound, shape = size[place] ** -0.5, (size[place], size[place + 1])
            key = ("completer", what, place, name)
            drawn = draw_weights(seeds, bound, shape, dtype, *key).detach()
            missing = (0, columns - shape[1], 0, rows - shape[0])
            weights.append(torch.nn.functional.pad(drawn, missing))
            bias = draw_weights(seeds, bound, (1, shape[1]), dtype, *key, "bias").detach()
            biases.append(torch.nn.functional.pad(bias, missing[:2]))
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
        x = codes[:, _columns(ordered_pairs(codes.shape[1]), codes.device)[0]]
        for layer in self.predictors:
            x = layer(x, counted)
        return torch.softmax(x, -1)


def ordered_pairs(n_views: int) -> list[tuple[int, int]]:
    """All ordered pairs of different views."""
    return list(permutations(range(n_views), 2))


def _columns(pairs: Sequence[tuple[int, int]], device: torch.device) -> tuple[Tensor, Tensor]:
    """First and second of every pair, to index with."""
    return _kept(tuple(one for one, _ in pairs), device), _kept(tuple(b for _, b in pairs), device)


@lru_cache(maxsize=256)
def _kept(
    values: tuple[float, ...], device: torch.device, dtype: torch.dtype | None = None
) -> Tensor:
    """Constants on a device, brought there once."""
    return torch.tensor(values, device=device, dtype=dtype)


def contrastive_loss(one: Tensor, two: Tensor, counted: Tensor, alpha: float = ALPHA) -> Tensor:
    """Minus the mutual information of the codes of two views, entropies counted alpha more times.

    Codes are distributions [..., n, code], `counted` [..., n] the samples that have both views; the
    answer [...] is zero where there are none.
    """
    joint = (one * counted[..., None]).mT @ two
    joint = joint / counted.sum(-1).clamp(min=1)[..., None, None]
    joint = (joint + joint.mT) / 2
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


def least_loss(n_views: int, code: int, graph: str, alpha: float = ALPHA) -> float:
    """What no loss can be below: all codes used alike and views that tell all of each other."""
    return -(1 + 2 * alpha) * math.log(code) * sum(pair_weights(n_views, graph))


def completer_loss(
    networks: Networks,
    x: Tensor,
    observed: Tensor,
    widths: Tensor,
    predict: bool,
    graph: str = "complete",
    alpha: float = ALPHA,
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
    parts = {"reconstruction": made}
    if n_views == 1:
        return made, parts
    left, right = _columns([*combinations(range(n_views), 2)], x.device)
    weights = _kept(tuple(pair_weights(n_views, graph)), x.device, x.dtype)
    both = observed[:, left] * observed[:, right]
    contrast = contrastive_loss(codes[:, left], codes[:, right], both, alpha)
    parts["contrastive"] = (contrast * weights).sum(1)
    loss = made + parts["contrastive"]
    if not predict:
        return loss, parts
    share = 1.0 if n_views == 2 else 1.0 / n_views
    ordered = ordered_pairs(n_views)
    source, target = _columns(ordered, x.device)
    both = observed[:, source] * observed[:, target]
    error = networks.predict(codes, both) - codes[:, target]
    errors = masked_mean_square(error, both, codes.shape[-1])
    if graph == "core":
        errors = errors * _kept(tuple(float(0 in p) for p in ordered), x.device, x.dtype)
    parts["prediction"] = ERROR_WEIGHT * share * errors.sum(1)
    return loss + parts["prediction"], parts


def complete(networks: Networks, x: Tensor, observed: Tensor, graph: str = "complete") -> Tensor:
    """Codes of all views side by side, [tasks, n, V * code]; those of missing ones predicted.

    A missing view's code is the mean of the predictions from all views that are there; with the
    graph `"core"`, views other than the first are predicted from the first, itself predicted if
    it is missing. Views are [tasks, V, n, width], `observed` [tasks, V, n].
    """
    codes = networks.encode(x, None)
    if x.shape[1] > 1 and not bool(observed.all()):
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
    predicted = networks.predict(codes, None)
    out = []
    pairs = ordered_pairs(codes.shape[1])
    for view in range(codes.shape[1]):
        places = [index for index, pair in enumerate(pairs) if pair[1] == view]
        weight = sources[:, [pairs[index][0] for index in places], :, None]
        mean = (predicted[:, places] * weight).sum(1) / weight.sum(1).clamp(min=1)
        out.append(torch.where(known[:, view, :, None] > 0, codes[:, view], mean))
    return torch.stack(out, 1)


@dataclass(frozen=True)
class Training:
    """How COMPLETER is trained; see the parameters of `COMPLETER`."""

    width: int
    code: int
    epochs: int
    warm_up: int
    learning_rate: float
    batch: int
    steps: int
    alpha: float
    graph: str
    relu_output: bool


def start_networks(
    seeds: Tensor, widths: Sequence[int], names: Sequence[str], how: Training, dtype: torch.dtype
) -> Networks:
    """Networks before training; predictors are as wide as published, in proportion to the code."""
    hidden, code = (how.width,) * 3, how.code
    encoders = [(width, *hidden, code) for width in widths]
    decoders = [(code, *hidden, width) for width in widths]
    pairs = [f"{names[one]} to {names[two]}" for one, two in ordered_pairs(len(names))]
    predictors = [(code, code, 2 * code, code, 2 * code, code, code)] * len(pairs)
    networks = Networks(
        start_layers(seeds, encoders, names, "encoder", True, dtype),
        start_layers(seeds, decoders, names, "decoder", False, dtype),
        start_layers(seeds, predictors, pairs, "predictor", True, dtype) if pairs else (),
        how.relu_output,
    )
    for item in networks.parameters:
        item.requires_grad_()
    return networks


def train(
    x: Tensor,
    observed: Tensor,
    widths: Sequence[int],
    names: Sequence[str],
    seeds: Tensor,
    how: Training,
    redraw: bool = False,
) -> Networks:
    """Train the networks of every task.

    Views are [tasks, V, n, width], zeros beyond `widths`, and `observed` [tasks, V, n]. With
    `redraw`, further views go missing anew in every mini-batch, at rates drawn at random.
    """
    networks = start_networks(seeds, widths, names, how, x.dtype)
    adam = make_adam(networks.parameters, how.learning_rate)
    sizes = x.new_tensor(list(widths))
    n = x.shape[2]
    epochs = max(1, min(how.epochs, how.steps // math.ceil(n / how.batch)))
    # Where epochs are cut short, the warm-up is cut in proportion.
    warm_up = how.warm_up * epochs / how.epochs
    least = least_loss(len(widths), how.code, how.graph, how.alpha)

    def step(drawn: tuple[Tensor, ...], predict: bool) -> dict[str, Tensor]:
        rows, *states = drawn
        index = rows[:, None, :].expand(-1, x.shape[1], -1)
        part = x.gather(2, index[..., None].expand(-1, -1, -1, x.shape[-1]))
        seen = observed.gather(2, index)
        if states:
            seen = redrawn(seen, *states)
            part = part * seen[..., None]
        loss, parts = completer_loss(networks, part, seen, sizes, predict, how.graph, how.alpha)
        descend(adam, loss)
        return {"loss": loss.detach()} | {k: v.detach() for k, v in parts.items()}

    again = Again()
    for epoch in range(epochs):
        losses = []
        order = raw(streams(seeds, "completer", "order", epoch), n).argsort(dim=-1, stable=True)
        # Parts of nearly equal length: a short rest would make poor statistics.
        for number, rows in enumerate(order.tensor_split(math.ceil(n / how.batch), dim=1)):
            drawn: tuple[Tensor, ...] = (rows.contiguous(),)
            if redraw:
                drawn = (*drawn, streams(seeds, "completer", "masks", epoch, number))
            losses.append(map_tensors(again(step, drawn, epoch >= warm_up), Tensor.clone))
        means = {key: torch.stack([part[key] for part in losses]).mean(0) for key in losses[0]}
        for key in {"loss", "contrastive"} & set(means):
            means[key] = means[key] - least
        tell("completer", "networks", epoch + 1, epochs, **means)
    return map_tensors(networks, Tensor.detach)


def redrawn(observed: Tensor, states: Tensor) -> Tensor:
    """Let further views go missing, at a random rate for every sample, which keeps at least one.

    One rate for the whole mini-batch would now and then leave next to no pair of views, and few
    pairs have even codes only if every sample has: the entropies would undo what codes tell. Masks
    are [tasks, V, n], the streams of random numbers [tasks].
    """
    n_views, n = observed.shape[1:]
    if n_views == 1:
        return observed
    draws = uniform(states, (2 * n_views + 1, n), observed.dtype)
    guard, cells = draws[:, :n_views], draws[:, n_views:-1]
    chosen = (guard + observed).argmax(1, keepdim=True)  # an observed view of every sample
    # Of the views that are not guaranteed, a random share stays.
    stays = (cells < draws[:, -1:]).scatter(1, chosen, True)
    return observed * stays


@register("completer")
class COMPLETER(TrainedMethod):
    """Codes of all views, those of missing views predicted from the others.

    Every term of the loss uses all samples that have the views it needs; the published code
    trains on complete samples alone, of which there are next to none with six views. Decoders
    end with a ReLU where the scaling makes views non-negative, as published.

    Args:
        preset: `"fast"` has layers 128 wide, codes of 32, at most 100 epochs or 1000 steps at a
            rate of 1e-3, predictors from a fifth of them on, and entropies that count once
            (`alpha`); `"paper"` has layers 1024 wide, codes of 128, 500 epochs at 1e-4 and
            predictors from epoch 100 on.
        metric: how a query is compared with a prototype; codes are short vectors on a simplex,
            for which `"cosine"` is the safer choice.
        train_on: `"base"`, one training on base classes; `"episode"`, on the supports and queries
            of every task; or `"unlabelled"`, one training on samples without labels
            (`fit_unlabelled`), in an evaluation all samples of the novel classes, with gaps of
            their own: queries and other tasks are seen beforehand, also views that a task hides.
            It is not known which one the paper used.
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
        steps: most mini-batches; epochs and warm-up are shortened to keep to it.
        alpha: extra weight of the entropies of the codes in the contrastive loss, 9 as published
            and for `"paper"`, 1 for `"fast"`. Codes that tell much of a sample look uneven in a
            small mini-batch, so a large weight keeps them nearly even for every sample.

    Example:
        >>> import fewview
        >>> from fewview.methods.completer import COMPLETER
        >>> data = fewview.load("digits")
        >>> base, novel = data[data.labels < 6], data[data.labels >= 6]
        >>> clf = COMPLETER(base=base, epochs=1).fit(novel[:12])
        >>> clf.predict(novel[12:42]).shape
        (30,)
    """

    scaling: str = "minmax"
    metric: str = "cosine"
    train_on: str = "base"
    base_missing: str | None = None
    graph: str = "complete"
    width: int | None = None
    code: int | None = None
    epochs: int | None = None
    warm_up: int | None = None
    learning_rate: float | None = None
    batch: int | None = None
    steps: int | None = None
    alpha: float | None = None

    paper_settings: ClassVar[dict[str, str]] = {"scaling": "minmax", "padding": "episode"}
    places: ClassVar[tuple[str, ...]] = (*TRAIN_ON, "unlabelled")
    preset_settings: ClassVar[dict[str, dict[str, Any]]] = {
        "fast": {
            "width": 128, "code": 32, "epochs": 100, "warm_up": 20, "learning_rate": 1e-3,
            "batch": 256, "steps": 1000, "alpha": 1.0,
        },
        "paper": {
            "width": 1024, "code": 128, "epochs": 500, "warm_up": 100, "learning_rate": 1e-4,
            "batch": 256, "steps": 1_000_000, "alpha": 9.0,
        },
    }  # fmt: skip
    may_be_zero: ClassVar[tuple[str, ...]] = ("warm_up", "alpha")

    @property
    def tags(self) -> Tags:  # type: ignore[override]
        """Tags that follow from where the networks are trained, and at which missing rates."""
        tags = super().tags
        return tags if self._missing == "task" else replace(tags, prepare_depends_on=())

    @property
    def _missing(self) -> str:
        return self.base_missing or ("random" if self.preset == "fast" else "task")

    def validate(self) -> None:
        """Check the graph and how views go missing in base classes."""
        super().validate()
        choose("graph", self.graph, GRAPHS)
        choose("base_missing", self._missing, MISSING)

    @property
    def relu_output(self) -> bool:
        """Whether decoders end with a ReLU."""
        return self.scaling == "minmax"

    def bytes_per_task(self, n_support: int, n_query: int, dims: tuple[int, ...], way: int) -> int:
        """Activations; when trained in the task also networks and their moments."""
        values = self._values(n_support + n_query, dims)
        if self.train_on == "episode":
            values = self._training_values(values, dims)
        return values * self.torch_dtype.itemsize

    def trainings_at_once(self, n_samples: int, dims: tuple[int, ...]) -> int:
        """As many as a batch of tasks may take memory."""
        values = self._values(min(n_samples, self.settings()["batch"]), dims)
        values = self._training_values(values, dims) + n_samples * len(dims) * max(dims)
        return max(1, int(self.batch_bytes // (values * self.torch_dtype.itemsize)))

    def _values(self, n: int, dims: tuple[int, ...]) -> int:
        """Numbers that n samples take on their way through the networks."""
        views, settings = len(dims), self.settings()
        each = 3 * max(dims) + 8 * settings["width"] + 8 * settings["code"] * max(1, views - 1)
        return int(n * views * each)

    def _training_values(self, values: int, dims: tuple[int, ...]) -> int:
        """The same with gradients, and networks with theirs and their moments."""
        views, settings = len(dims), self.settings()
        width, code = settings["width"], settings["code"]
        layers = 2 * (max(dims) * width + 2 * width * width + width * code)
        return int(6 * values + 5 * views * (layers + 6 * (views - 1) * 2 * code * code))

    def base_samples(
        self, base: MultiViewData, task: TaskSpec, seed: int
    ) -> tuple[list[Tensor], Tensor]:
        """Whole views where masks are redrawn in every step."""
        if self._missing == "task":
            return super().base_samples(base, task, seed)
        tensors = ViewTensors.of(base, self.torch_device, self.torch_dtype)
        return [view[None] for view in tensors.views], tensors.mask[None]

    def _train(
        self, x: Tensor, observed: Tensor, widths: list[int], names: Sequence[str], seeds: Tensor
    ) -> Networks:
        redraw = self.train_on != "episode" and self._missing == "random"
        how = gather_options(Training, self, self.settings())
        return train(x, observed, widths, names, seeds, how, redraw)

    def train_on_base(
        self, base: MultiViewData, views: list[Tensor], mask: Tensor, seeds: Tensor
    ) -> Networks:
        """All networks."""
        return self._train(*_stacked(views, mask), base.view_names, seeds)

    def embed(self, batch: EpisodeBatch, state: State) -> EpisodeBatch:
        """Codes of supports and queries."""
        x, observed, widths = _stacked(*all_samples(batch))
        if self.train_on != "episode":
            # Networks for all tasks: their samples in a row, as if of a single task.
            x, observed = (item.transpose(0, 1).flatten(1, 2)[None] for item in (x, observed))
        else:
            with torch.enable_grad():
                state = self._train(x, observed, widths, batch.view_names, batch.seeds)
        codes = complete(cast(Networks, state), x, observed, self.graph)
        return with_codes(batch, codes.reshape(batch.n_tasks, -1, codes.shape[-1]))


def _stacked(views: Sequence[Tensor], mask: Tensor) -> tuple[Tensor, Tensor, list[int]]:
    """Views in one tensor [tasks, V, n, width], padded with zeros; masks [tasks, V, n]; widths."""
    widths = [int(view.shape[-1]) for view in views]
    pads = [torch.nn.functional.pad(view, (0, max(widths) - view.shape[-1])) for view in views]
    return torch.stack(pads, 1), mask.mT.to(views[0].dtype), widths
