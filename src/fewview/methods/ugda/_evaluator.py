"""Inverse aggregation by Adam: Algorithm 1 as printed, and the authors' released code.

Steps on a linear evaluator and on the latent anchors take turns, then the queries are placed with
the evaluator frozen. The released code differs from the paper in ways that change numbers; every
difference is an option here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fewview.numerics._networks import draw_weights, xavier
from fewview.numerics._optimise import make_adam, take_step


@dataclass(frozen=True)
class EvaluatorOptions:
    """How the aggregation is run; see the parameters of `UGDA`.

    Attributes:
        start_rows: how many latent rows the Xavier bound of their start counts.
    """

    latent_dim: int = 512
    n_iter: int = 30
    n_steps: int = 10
    learning_rate: float = 1e-2
    update_evaluator: bool = True
    update_anchors: bool = True
    share_evaluator: str = "task"
    train_nets: str = "all"
    reinit_first: bool = False
    shared_adam: bool = False
    start_rows: int = 400 * 450


Trace = Callable[[int, Tensor, Tensor, Tensor], None]


def aggregation_errors(latent: Tensor, features: Tensor, weights: Tensor, bias: Tensor) -> Tensor:
    """What the evaluator W, B leaves of the views: A W + B - F, [tasks, n, D].

    Its squares sum to the aggregation loss of the anchors A, Eq. 12 [eq:12], and with latent
    queries H and their completed views to that of the queries, Eq. 13 [eq:16].

    Args:
        latent: A or H, [tasks, n, L].
        features: F, the views side by side, [tasks, n, D].
        weights: [tasks or 1, L, D].
        bias: [tasks or 1, 1, D].
    """
    errors = latent @ weights
    errors += bias
    errors -= features
    return errors


def aggregate_with_adam(
    anchors: Tensor,
    queries: Tensor,
    view_dims: Sequence[int],
    seeds: Tensor,
    options: EvaluatorOptions,
    trace: Trace | None = None,
) -> tuple[Tensor, Tensor]:
    """Latent anchors [tasks, M, L] and queries [tasks, N_Q, L] after Algorithm 1, lines 4 to 26.

    Args:
        anchors: [tasks, M, D], views side by side.
        queries: [tasks, N_Q, D].
        view_dims: widths of the views; they sum to D.
        seeds: int64 [tasks].
        options: see `EvaluatorOptions`.
        trace: called after every iteration with (iteration, loss [tasks], latent anchors,
            latent queries as they would be placed by least squares).
    """
    n_tasks, n_anchors, width = anchors.shape
    n_query, latent, rate = queries.shape[1], options.latent_dim, options.learning_rate
    together = options.share_evaluator == "batch"
    owners = seeds[:1] if together else seeds
    crowd = n_tasks if together else 1

    def start_latents(name: str, rows: int) -> Tensor:
        bound = xavier(options.start_rows, latent)
        return _draw(seeds, bound, (rows, latent), anchors.dtype, name)

    def start_weights(step: int) -> tuple[Tensor, Tensor]:
        """Weights of all views side by side, [owners, L, D]: those that stay, those trained."""
        weights = [
            _draw(owners, xavier(latent, d), (latent, d), anchors.dtype, f"weights {step} {view}")
            for view, d in enumerate(view_dims)
        ]
        return torch.cat(weights, -1).tensor_split([fixed], dim=-1)  # type: ignore[return-value]

    def move(adam: torch.optim.Adam, z: Tensor, rows: slice, features: Tensor) -> None:
        """One step of some latent rows; the others of the same Adam have no gradient."""
        gradient = torch.zeros_like(z)
        # The loss is a mean over rows (and tasks): Adam forgets the scale, all but its epsilon.
        share = 2.0 / (features.shape[1] * crowd)
        errors = aggregation_errors(z[:, rows], features, weights, bias)
        gradient[:, rows] = share * errors @ weights.mT
        take_step(adam, [gradient])

    fixed = width - view_dims[-1] if options.train_nets == "last" else 0
    z = start_latents("latent", n_anchors + n_query if options.shared_adam else n_anchors)
    adam_z, first = make_adam([z], rate), slice(n_anchors)
    moving = z[:, first]  # a view: what happens to z happens to it
    frozen, trained = start_weights(0)
    trained = trained.contiguous()
    level = anchors.new_zeros(len(owners), 1, width - fixed)  # bias of the trained nets
    evaluator = make_adam([trained, level], rate)
    weights, bias = torch.cat([frozen, trained], -1), anchors.new_zeros(len(owners), 1, width)
    for iteration in range(options.n_iter):
        for step in range(options.n_steps if options.update_evaluator else 0):
            if options.reinit_first and iteration == 0:
                frozen, drawn = start_weights(step)
                trained.copy_(drawn)
            errors = aggregation_errors(moving, anchors[..., fixed:], trained, level)
            slopes = moving.mT @ errors, errors.sum(1, keepdim=True)
            if together:
                slopes = slopes[0].sum(0, keepdim=True), slopes[1].sum(0, keepdim=True)
            take_step(evaluator, [2.0 / (n_anchors * crowd) * slope for slope in slopes])
        weights, bias = torch.cat([frozen, trained], -1), torch.nn.functional.pad(level, (fixed, 0))
        for _ in range(options.n_steps if options.update_anchors else 0):
            move(adam_z, z, first, anchors)
        if trace is not None:
            loss = aggregation_errors(moving, anchors, weights, bias).square().sum((1, 2))
            placed = (queries - bias) @ torch.linalg.pinv(weights.double()).to(queries.dtype)
            trace(iteration, loss, moving.clone(), placed)
    if options.shared_adam:
        h, adam_h, rest = z, adam_z, slice(n_anchors, None)
    else:
        h, rest = start_latents("queries", n_query), slice(None)
        adam_h = make_adam([h], rate)
    for _ in range(options.n_iter):
        move(adam_h, h, rest, queries)
    return moving, h[:, rest]


def _draw(
    seeds: Tensor, bound: float, shape: tuple[int, int], dtype: torch.dtype, name: str
) -> Tensor:
    """Numbers uniform between -bound and bound, [len(seeds), *shape]."""
    return draw_weights(seeds, bound, shape, dtype, "evaluator", name).detach()
