"""ICMSC: incomplete cross-modal subspace clustering (iCmSC, Wang et al. 2020), for few shots.

One autoencoder per view, a common code that averages the codes of the views a sample has, canonical
correlation between the views' codes, and a matrix that expresses every sample by the others. All of
it is trained on the supports and queries of a task; queries then go to the nearest prototype of
the common codes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, ClassVar, cast

import torch
from torch import Tensor

from fewview.episodes.batch import EpisodeBatch
from fewview.methods.base import State
from fewview.methods.networks.base import (
    NetworkMethod,
    all_samples,
    descend,
    draw_weights,
    masked_mean_square,
    reduce_views,
    report,
    with_codes,
)
from fewview.methods.params import param
from fewview.methods.registry import register
from fewview.numerics.adam import make_adam
from fewview.numerics.iterate import map_tensors, tensors_in

HEAD = 10  # width of the space in which views are correlated
RIDGE = 1e-3  # of covariances there, as published
# The matrix starts near its optimum, zero; larger steps would only make it jump around that.
EXPRESSION_RATE = 1e-4


@dataclass(frozen=True)
class Autoencoders(State):
    """Everything of iCmSC that is trained but the self-expression matrix."""

    encoders: tuple[Tensor, ...]  # per view [tasks, width of the view, width]
    decoders: tuple[Tensor, ...]  # per view [tasks, width, width of the view]
    head: Tensor  # [tasks, width, 10], one for all views
    shares: Tensor  # [tasks, V], what a view counts in the common code

    @classmethod
    def start(cls, batch: EpisodeBatch, widths: Sequence[int], width: int) -> Autoencoders:
        """Networks ready to be trained, for views of `widths` features and codes of `width`.

        Weights are uniform within 1 / sqrt(inputs), shares one half.
        """

        def draw(rows: int, columns: int, fan_in: int, *what: object) -> Tensor:
            shape = rows, columns
            return draw_weights(batch.seeds, fan_in**-0.5, shape, batch.dtype, "icmsc", *what)

        # Inputs as many as before views were reduced, so that reduced ones start with small codes.
        parts = list(zip(batch.view_names, widths, sizes_of(batch), strict=True))
        nets = cls(
            tuple(draw(size, width, fan_in, "encoder", name) for name, size, fan_in in parts),
            tuple(draw(width, size, width, "decoder", name) for name, size, _ in parts),
            draw(width, HEAD, width, "head"),
            batch.support[0].new_full((batch.n_tasks, batch.n_views), 0.5),
        )
        return map_tensors(nets, Tensor.requires_grad_)

    def encode(self, views: Sequence[Tensor]) -> list[Tensor]:
        """Codes of every view, per view [tasks, n, width]."""
        return [torch.relu(x @ weights) for x, weights in zip(views, self.encoders, strict=True)]

    def common(self, codes: Sequence[Tensor], observed: Tensor) -> Tensor:
        """Weighted mean of the codes of observed views, [tasks, n, width]."""
        weights = observed * self.shares[:, None]  # [T, n, V]
        total = weights.sum(-1, keepdim=True)
        # Every sample has a view; a total of zero could only come from the shares themselves.
        weights = weights / torch.where(total.abs() > 1e-12, total, 1.0)
        parts = zip(codes, weights.unbind(-1), strict=True)
        return torch.stack([code * weight[..., None] for code, weight in parts]).sum(0)


# -------------------------------------------------------------------------------- correlation


def _centred(projected: Tensor, observed: Tensor) -> tuple[Tensor, Tensor]:
    """Samples [..., n, d] about their mean, zero where `observed` [..., n, 1] is; their number."""
    count = observed.sum(-2, keepdim=True)
    mean = (projected * observed).sum(-2, keepdim=True) / count.clamp(min=1)
    return (projected - mean) * observed, count


def _whitening(covariance: Tensor) -> Tensor:
    """Lower Cholesky factor of a covariance with the published ridge, [..., d, d]."""
    size = covariance.diagonal(dim1=-2, dim2=-1).mean(-1)[..., None, None]
    # The ridge vanishes in rounding beside large features; then a relative one takes over.
    ridge = RIDGE + 100 * torch.finfo(covariance.dtype).eps * size.detach()
    unit = torch.eye(covariance.shape[-1], dtype=covariance.dtype, device=covariance.device)
    root: Tensor = torch.linalg.cholesky(covariance + ridge * unit)
    return root


def pairwise_correlation(projected: Tensor, observed: Tensor, top: int = 5) -> Tensor:
    """Sum of the `top` canonical correlations over all pairs of views, [tasks].

    A pair of views is compared on the samples that have both, and left out where these are not
    more than the dimensions: correlations are then one whatever the data. Samples are projected to
    [tasks, V, n, d], and `observed` [tasks, n, V].
    """
    pairs = list(combinations(range(projected.shape[1]), 2))
    if not pairs:
        return projected.new_zeros(len(projected))
    left, right = map(list, zip(*pairs, strict=True))
    both = (observed[..., left] * observed[..., right]).mT[..., None]  # [T, P, n, 1]
    (one, count), (two, _) = (_centred(projected[:, side], both) for side in (left, right))
    scale = (count - 1).clamp(min=1)
    first, second = (_whitening(part.mT @ part / scale) for part in (one, two))
    cross = torch.linalg.solve_triangular(first, one.mT @ two / scale, upper=False)
    cross = torch.linalg.solve_triangular(second, cross.mT, upper=False).mT
    with torch.no_grad():
        # The sum of the largest singular values has the gradient U V': no derivative of a
        # decomposition is needed, which would break down at equal values.
        u, _, vh = torch.linalg.svd(cross)
        direction = u[..., :top] @ vh[..., :top, :]
    enough = count[..., 0, 0] > projected.shape[-1]
    total: Tensor = ((cross * direction).sum((-2, -1)) * enough).sum(1)
    return total


def generalised_correlation(projected: Tensor, observed: Tensor, top: int = 5) -> Tensor:
    """Largest eigenvalues of the whitened covariance of all views together, summed, [tasks].

    Generalised canonical correlation (MAX-VAR): with two complete views the eigenvalues are one
    plus the canonical correlations. Arguments are those of `pairwise_correlation`.
    """
    centred, count = _centred(projected, observed.mT[..., None])  # [T, V, n, d]
    scale = (count - 1).clamp(min=1)
    root = _whitening(centred.mT @ centred / scale)
    white = torch.linalg.solve_triangular(root, centred.mT, upper=False) / scale.sqrt()
    white = white * (count > projected.shape[-1])
    white = white.flatten(1, 2)  # [T, V * d, n]
    together = white @ white.mT
    with torch.no_grad():
        vectors = torch.linalg.eigh(together)[1][..., -top:]
    total: Tensor = (together * (vectors @ vectors.mT)).sum((-2, -1))
    return total


CORRELATIONS = {"pairs": pairwise_correlation, "generalised": generalised_correlation}


# -------------------------------------------------------------------------------- training


def autoencoder_loss(
    nets: Autoencoders, views: Sequence[Tensor], observed: Tensor, sizes: Sequence[int]
) -> Tensor:
    """Loss of the first stage, [tasks]: half the mean squared error of every view.

    Means are over `sizes` features, those of the views before they were reduced.
    """
    codes = nets.encode(views)
    made = [code @ weights for code, weights in zip(codes, nets.decoders, strict=True)]
    parts = zip(made, views, observed.unbind(-1), sizes, strict=True)
    losses = [masked_mean_square(out - x, seen, size) for out, x, seen, size in parts]
    return 0.5 * torch.stack(losses).sum(0)


def subspace_loss(
    nets: Autoencoders,
    expression: Tensor,
    views: Sequence[Tensor],
    observed: Tensor,
    sizes: Sequence[int],
    how: Any,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Loss of the second stage, and the terms of it that are errors, [tasks] each.

    Errors are of reconstruction, of self-expression, and the size of the matrix `expression`
    [tasks, n, n], whose diagonal is ignored. The loss is their sum less the correlations.
    """
    codes = nets.encode(views)
    unit = torch.eye(expression.shape[-1], dtype=expression.dtype, device=expression.device)
    expression = expression * (1 - unit)
    expressed = expression @ nets.common(codes, observed)
    made = distance = expression.new_zeros(len(expression))
    parts = zip(codes, views, nets.decoders, observed.unbind(-1), sizes, strict=True)
    for code, x, weights, seen, size in parts:
        made = made + 0.5 * masked_mean_square(expressed @ weights - x, seen, size)
        distance = distance + 0.5 * masked_mean_square(code - expressed, seen, code.shape[-1])
    columns = expression.abs().sum(1).square()  # [T, n]
    entries = columns if how.penalty == "columns" else expression.square().flatten(1)
    # The root of a sum of squares has no derivative at zero.
    matrix = entries.mean(1) + (columns.sum(1) + 1e-12).sqrt()
    projected = torch.stack(codes, 1) @ nets.head[:, None]
    correlated = CORRELATIONS[how.correlation](projected, observed)
    errors = {"reconstruction": made, "expression": distance, "matrix": matrix}
    return made + distance + matrix - correlated, errors


def sizes_of(batch: EpisodeBatch) -> list[int]:
    """Widths of whole views."""
    return [view.shape[-1] for view in batch.support]


def train_autoencoders(batch: EpisodeBatch, views: Sequence[Tensor], how: Any) -> Autoencoders:
    """Train the autoencoders alone, and then everything together.

    Views are those of all samples, [tasks, n, width], reduced or not; `how` is `ICMSC.resolved()`.
    """
    observed, sizes = all_samples(batch)[1].to(batch.dtype), sizes_of(batch)
    nets = Autoencoders.start(batch, [view.shape[-1] for view in views], how.width)
    n, (alone, together) = views[0].shape[1], how.epochs
    expression = views[0].new_full((batch.n_tasks, n, n), 1e-4).requires_grad_()
    adam = make_adam([*nets.encoders, *nets.decoders], how.learning_rate)
    for epoch in range(alone):
        loss = autoencoder_loss(nets, views, observed, sizes)
        descend(adam, loss)
        report("icmsc", "autoencoders", epoch + 1, alone, loss)
    adam = make_adam(list(tensors_in(nets)), how.subspace_rate)
    adam.add_param_group({"params": [expression], "lr": EXPRESSION_RATE})
    for epoch in range(together):
        loss, errors = subspace_loss(nets, expression, views, observed, sizes, how)
        descend(adam, loss)
        report("icmsc", "subspace", epoch + 1, together, loss, **errors)
    return map_tensors(nets, Tensor.detach)


@register("icmsc")
@dataclass(kw_only=True, eq=False, repr=False)
class ICMSC(NetworkMethod):
    """Common codes of autoencoders that are correlated across views, per task.

    The published method clusters by its self-expression matrix; for few shots, as in the paper,
    queries are compared with supports in the learnt space instead. The decoders have no final
    ReLU: views are signed here.

    Args:
        preset: `"fast"` is 128 wide on views reduced to 64 principal axes of the task, with 100
            epochs; `"paper"` is 620 wide on whole views, with 200 epochs at a rate of 1e-4.
        metric: how a query is compared with a prototype; chosen on base classes.
        train_on: `"episode"`, or `"base"`: encoders trained on base classes with views missing as
            in the task. It is not known which one the paper used; the matrix over all samples
            speaks for the first.
        correlation: for more than two views, `"pairs"` sums canonical correlations over pairs of
            views, `"generalised"` correlates all views together. The published code has two.
        penalty: the published code penalises the squared sums of the `"columns"` of the matrix
            where it was to penalise its squared `"entries"`.
        width: of the codes.
        epochs: of the autoencoders alone, and of everything together.
        learning_rate: of the autoencoders alone.
        subspace_rate: of everything together. Self-expression pulls codes towards zero, all the
            way where this is large and no pair of views has enough samples to be correlated.
        view_width: most features of a view, by principal axes in the task; 0 keeps views whole.

    Example:
        >>> from fewview import ICMSC
        >>> nan = float("nan")
        >>> clf = ICMSC(epochs=(2, 2)).fit({"a": [[-1.0], [1.0]], "b": [[1.0], [-1.0]]}, [0, 1])
        >>> clf.predict({"a": [[0.9], [nan], [-0.9]], "b": [[-0.9], [0.9], [nan]]}).shape
        (3,)
    """

    metric: str = param("cosine")
    correlation: str = param("pairs", among=tuple(CORRELATIONS))
    penalty: str = param("columns", among=("columns", "entries"))
    width: int | None = param(None, least=1)
    epochs: tuple[int, int] | None = param(None, least=1)
    learning_rate: float | None = param(None, above=0)
    subspace_rate: float | None = param(None, above=0)
    view_width: int | None = param(None, least=0)

    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "fast": {
            "width": 128, "epochs": (25, 75), "learning_rate": 3e-3, "subspace_rate": 2e-4,
            "view_width": 64,
        },
        "paper": {
            "width": 620, "epochs": (50, 150), "learning_rate": 1e-4, "subspace_rate": 1e-4,
            "view_width": 0,
        },
    }  # fmt: skip

    def bytes_per_task(self, n_support: int, n_query: int, dims: tuple[int, ...], way: int) -> int:
        """Networks and the matrix with their moments, and a few copies of all codes."""
        how, n = self.resolved(), n_support + n_query
        features = sum(min(how.view_width or size, size) for size in dims)
        values = 10 * how.width * features + 8 * n * n
        values += 8 * n * (how.width * len(dims) + features)
        values += 6 * n * HEAD * len(dims) ** 2 + 2 * n * sum(dims)
        return int(values) * self.torch_dtype.itemsize

    def train(self, batch: EpisodeBatch) -> Autoencoders:
        """The autoencoders, on whole views."""
        return train_autoencoders(batch, all_samples(batch)[0], self.resolved())

    def embed(self, batch: EpisodeBatch, state: State) -> EpisodeBatch:
        """Common codes of supports and queries."""
        views, mask = all_samples(batch)
        if self.train_on == "episode":
            how = self.resolved()
            views = reduce_views(views, how.view_width)
            with torch.enable_grad():
                state = train_autoencoders(batch, views, how)
        nets = cast(Autoencoders, state)
        return with_codes(batch, nets.common(nets.encode(views), mask.to(batch.dtype)))
