"""Inverse aggregation by Adam: Algorithm 1 as printed, and the authors' released code.

Both minimise the aggregation loss (Eqs. 12 and 13) by alternating steps on a linear evaluator and
on the latent anchors, then place the queries with the evaluator frozen. The released code differs
from the paper in ways that change numbers; every difference is an option here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fewview.numerics._optimise import Adam
from fewview.numerics._tensor_draws import streams, uniform


@dataclass(frozen=True)
class EvaluatorOptions:
    """How the aggregation is run.

    Attributes:
        latent_dim: width L of the latent space.
        n_iter: outer iterations (`iter` in the paper), 30.
        n_steps: evaluator steps and anchor steps per iteration (N in the paper), 10.
        learning_rate: of Adam, 1e-2.
        update_evaluator: False is the ablation "w/o AEU" of Fig. 4.
        update_anchors: False is the ablation "w/o LAU" of Fig. 4.
        share_evaluator: `"task"`: one evaluator per task, as Algorithm 1. `"batch"`: one for all
            tasks of a batch, as the released code, so information flows between tasks.
        train_nets: `"all"` views' weights, or only the `"last"` view's, as the released code does
            by accident (its optimiser holds the last network only).
        reinit_first: draw all weights anew at every evaluator step of the first iteration, as the
            released code does.
        shared_adam: one Adam state for anchors and queries, as the released code: the queries
            start without bias correction and the anchors drift on while queries move.
        start_rows: how many latent rows the Xavier bound of their start counts. The paper does not
            say how latents start; the released code starts a whole batch of tasks as one matrix,
            which puts every latent near zero. A larger start stays in the evaluator's null space
            and drowns the signal.
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


def aggregate_with_adam(
    anchors: Tensor,
    queries: Tensor,
    view_dims: Sequence[int],
    seeds: Tensor,
    options: EvaluatorOptions,
    trace: Trace | None = None,
) -> tuple[Tensor, Tensor]:
    """Latent anchors and queries after Algorithm 1, lines 4 to 26.

    Args:
        anchors: [tasks, M, D], views side by side.
        queries: [tasks, N_Q, D].
        view_dims: widths of the views; they sum to D.
        seeds: int64 [tasks].
        options: see `EvaluatorOptions`.
        trace: called after every iteration with (iteration, loss [tasks], latent anchors,
            latent queries as they would be placed by least squares).

    Returns:
        [tasks, M, L] and [tasks, N_Q, L].
    """
    n_tasks, n_anchors, width = anchors.shape
    n_query, latent = queries.shape[1], options.latent_dim
    together = options.share_evaluator == "batch"
    rows = n_anchors + n_query if options.shared_adam else n_anchors
    crowd = n_tasks if together else 1
    z = _xavier(seeds, "latent", (rows, latent), options.start_rows, latent, anchors.dtype)
    owners = seeds[:1] if together else seeds
    weights = _draw_weights(owners, 0, latent, view_dims, anchors.dtype)
    bias = anchors.new_zeros(len(owners), 1, width)
    trained = slice(width - view_dims[-1], width) if options.train_nets == "last" else slice(None)
    adam_w = Adam(weights[..., trained], options.learning_rate)
    adam_b = Adam(bias[..., trained], options.learning_rate)
    adam_z = Adam(z, options.learning_rate)
    moving = z[:, :n_anchors]  # a view: what happens to it happens to z
    # Losses are means over anchors (and tasks): Adam forgets the scale, all but its epsilon.
    share = 2.0 / (n_anchors * crowd)
    for iteration in range(options.n_iter):
        if options.update_evaluator:
            for step in range(options.n_steps):
                if options.reinit_first and iteration == 0:
                    weights = _draw_weights(owners, step, latent, view_dims, anchors.dtype)
                residual = moving @ weights[..., trained]
                residual += bias[..., trained]
                residual -= anchors[..., trained]
                gradient = moving.transpose(1, 2) @ residual
                level = residual.sum(1, keepdim=True)
                if together:
                    gradient, level = gradient.sum(0, keepdim=True), level.sum(0, keepdim=True)
                adam_w.step(weights[..., trained], share * gradient)
                adam_b.step(bias[..., trained], share * level)
        if options.update_anchors:
            for _ in range(options.n_steps):
                gradient = torch.zeros_like(z)
                gradient[:, :n_anchors] = share * _pull(moving, anchors, weights, bias)
                adam_z.step(z, gradient)
        if trace is not None:
            residual = moving @ weights + bias - anchors
            placed = _least_squares(queries, weights, bias)
            trace(iteration, (residual**2).sum((1, 2)), moving.clone(), placed)
    share = 2.0 / (n_query * crowd)
    if options.shared_adam:
        for _ in range(options.n_iter):
            gradient = torch.zeros_like(z)
            gradient[:, n_anchors:] = share * _pull(z[:, n_anchors:], queries, weights, bias)
            adam_z.step(z, gradient)
        return z[:, :n_anchors], z[:, n_anchors:]
    h = _xavier(seeds, "queries", (n_query, latent), options.start_rows, latent, anchors.dtype)
    adam_h = Adam(h, options.learning_rate)
    for _ in range(options.n_iter):
        adam_h.step(h, share * _pull(h, queries, weights, bias))
    return z, h


def _pull(z: Tensor, target: Tensor, weights: Tensor, bias: Tensor) -> Tensor:
    """Half the gradient of |z W + b - target|^2 with respect to z."""
    residual = z @ weights
    residual += bias
    residual -= target
    return residual @ weights.transpose(1, 2)


def _least_squares(target: Tensor, weights: Tensor, bias: Tensor) -> Tensor:
    inverse = torch.linalg.pinv(weights.double()).to(target.dtype)
    placed: Tensor = (target - bias) @ inverse
    return placed


def _xavier(
    seeds: Tensor, name: str, shape: tuple[int, int], fan_in: int, fan_out: int, dtype: torch.dtype
) -> Tensor:
    """Uniform Xavier numbers [len(seeds), *shape] (Glorot and Bengio 2010)."""
    bound = (6.0 / (fan_in + fan_out)) ** 0.5
    out: Tensor = (uniform(streams(seeds, "evaluator", name), shape, dtype) * 2 - 1) * bound
    return out


def _draw_weights(
    owners: Tensor, step: int, latent: int, view_dims: Sequence[int], dtype: torch.dtype
) -> Tensor:
    """Weights of all views side by side, [owners, L, D], each view with its own Xavier bound."""
    parts = [
        _xavier(owners, f"weights {step} {view}", (latent, width), latent, width, dtype)
        for view, width in enumerate(view_dims)
    ]
    return torch.cat(parts, dim=-1)
