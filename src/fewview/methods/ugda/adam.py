"""Inverse aggregation by Adam: Algorithm 1 as printed, and the authors' released code.

Steps on a linear evaluator and on the latent anchors take turns, then the queries are placed with
the evaluator frozen. The released code differs from the paper in ways that change numbers; every
difference is an option of `UGDA`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from fewview.numerics.adam import make_adam, take_step
from fewview.numerics.tensor_random import streams, uniform

# Called after every iteration with its number, the loss [tasks], latent anchors and queries.
Note = Callable[[int, Tensor, Tensor, Tensor], None]


def aggregate_with_adam(
    anchors: Tensor,
    queries: Tensor,
    view_dims: Sequence[int],
    seeds: Tensor,
    options: Any,
    note: Note | None = None,
) -> tuple[Tensor, Tensor]:
    """Latent anchors [tasks, M, L] and queries [tasks, N_Q, L] by Algorithm 1, lines 4 to 26.

    Anchors are [tasks, M, D], queries [tasks, N_Q, D], seeds [tasks]; options are the parameters of
    `UGDA`, none of them None. What is noted of queries is where least squares would place them.
    """
    n_anchors, n_query = anchors.shape[1], queries.shape[1]
    # The bound of the start counts latent rows as the released code does, whose tasks of a batch
    # are one matrix.
    start_rows = options.tasks_per_batch * (n_anchors + n_query)

    def start(name: str, rows: int) -> tuple[Tensor, torch.optim.Adam]:
        latent = draw_xavier(seeds, (rows, options.latent_dim), start_rows, anchors.dtype, name)
        return latent, make_adam([latent], options.learning_rate)

    evaluator = Evaluator(seeds, view_dims, options, anchors)
    z, adam_z = start("latent", n_anchors + (n_query if options.shared_adam else 0))
    first, rest = slice(n_anchors), slice(n_anchors, None)
    latent = z[:, first]  # a view: what happens to z happens to it
    for iteration in range(options.n_iter):
        for step in range(options.n_steps if options.update_evaluator else 0):
            if options.reinit_first and iteration == 0:
                evaluator.draw(step)
            evaluator.update(latent, anchors)
        for _ in range(options.n_steps if options.update_anchors else 0):
            evaluator.place(adam_z, z, first, anchors)
        if note is not None:
            loss = evaluator.errors(latent, anchors).square().sum((1, 2))
            back = torch.linalg.pinv(evaluator.weights.double()).to(queries.dtype)
            note(iteration, loss, latent.clone(), (queries - evaluator.bias) @ back)
    h, adam_h = z, adam_z
    if not options.shared_adam:
        h, adam_h = start("queries", n_query)
        rest = slice(None)
    for _ in range(options.n_iter):
        evaluator.place(adam_h, h, rest, queries)
    return latent, h[:, rest]


class Evaluator:
    """Linear nets W [owners, L, D], B [owners, 1, D] from the latent space to the views.

    One owner per task, or one for all. With `train_nets="last"` the weights of the other views stay
    as they were drawn, without a bias.
    """

    def __init__(self, seeds: Tensor, dims: Sequence[int], options: Any, like: Tensor) -> None:
        self.together = options.share_evaluator == "batch"
        self.owners = seeds[:1] if self.together else seeds
        # Losses are means over rows (and tasks): Adam forgets the scale, all but its epsilon.
        self.crowd = len(seeds) if self.together else 1
        self.dims, self.latent = dims, options.latent_dim
        self.net = like.new_zeros(len(self.owners), self.latent + 1, sum(dims))
        self.weights, self.bias = self.net[:, :-1], self.net[:, -1:]
        self.trained = slice(sum(dims[:-1]) if options.train_nets == "last" else 0, None)
        self.adam = make_adam([self.net], options.learning_rate)
        self.draw(0)

    def draw(self, step: int) -> None:
        """Draw all weights; biases and the state of Adam stay."""
        for v, part in enumerate(torch.split(self.weights, list(self.dims), dim=-1)):
            shape, name = (self.latent, part.shape[-1]), f"weights {step} {v}"
            part.copy_(draw_xavier(self.owners, shape, self.latent, part.dtype, name))

    def errors(self, latent: Tensor, features: Tensor, part: slice = slice(None)) -> Tensor:
        """What the evaluator leaves of (a part of) the views: A W + B - F, [tasks, n, D].

        Its squares sum to the aggregation loss of the anchors A, Eq. 12 [eq:12], and with latent
        queries H and their completed views to that of the queries, Eq. 13 [eq:16].
        """
        errors = latent @ self.weights[..., part]
        errors += self.bias[..., part]
        errors -= features[..., part]
        return errors

    def update(self, latent: Tensor, features: Tensor) -> None:
        """One step of the trained nets down the aggregation loss."""
        errors = self.errors(latent, features, self.trained)
        slope = torch.cat([latent.mT @ errors, errors.sum(1, keepdim=True)], dim=1)
        if self.together:
            slope = slope.sum(0, keepdim=True)
        # Adam does not move what never had a gradient.
        gradient = torch.zeros_like(self.net)
        gradient[..., self.trained] = 2.0 / (features.shape[1] * self.crowd) * slope
        take_step(self.adam, [gradient])

    def place(self, adam: torch.optim.Adam, z: Tensor, rows: slice, features: Tensor) -> None:
        """One step of some latent rows; the others of the same Adam have no gradient."""
        gradient = torch.zeros_like(z)
        errors = self.errors(z[:, rows], features)
        gradient[:, rows] = 2.0 / (features.shape[1] * self.crowd) * errors @ self.weights.mT
        take_step(adam, [gradient])


def draw_xavier(
    seeds: Tensor, shape: tuple[int, int], fan_in: int, dtype: torch.dtype, name: str
) -> Tensor:
    """Uniform numbers [len(seeds), *shape] within the bound of Glorot and Bengio (2010)."""
    bound = (6.0 / (fan_in + shape[1])) ** 0.5
    return uniform(streams(seeds, "evaluator", name), shape, dtype).mul_(2 * bound).sub_(bound)
