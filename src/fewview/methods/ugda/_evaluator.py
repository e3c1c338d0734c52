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
    """How the aggregation is run; see the parameters of `UGDA`."""

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
    start_rows: int = 400 * 450  # how many latent rows the Xavier bound of their start counts


Trace = Callable[[int, Tensor, Tensor, Tensor], None]


def aggregation_errors(latent: Tensor, features: Tensor, weights: Tensor, bias: Tensor) -> Tensor:
    """What the evaluator W, B leaves of the views: A W + B - F, [tasks, n, D].

    Its squares sum to the aggregation loss of the anchors A, Eq. 12 [eq:12], and with latent
    queries H and their completed views to that of the queries, Eq. 13 [eq:16].
    """
    errors = latent @ weights
    errors += bias
    errors -= features
    return errors


class Evaluator:
    """Linear nets W [owners, L, D], B [owners, 1, D] from the latent space to the views.

    One owner per task, or one for all. With `train_nets="last"` the weights of the other views stay
    as they were drawn, without a bias.
    """

    def __init__(
        self, seeds: Tensor, view_dims: Sequence[int], options: EvaluatorOptions, like: Tensor
    ) -> None:
        self.together = options.share_evaluator == "batch"
        self.owners = seeds[:1] if self.together else seeds
        # Losses are means over rows (and tasks): Adam forgets the scale, all but its epsilon.
        self.crowd = len(seeds) if self.together else 1
        self.view_dims, self.latent, self.dtype = view_dims, options.latent_dim, like.dtype
        self.fixed = sum(view_dims[:-1]) if options.train_nets == "last" else 0
        self.frozen, drawn = self._drawn(0)
        self.trained = drawn.contiguous()
        self.level = like.new_zeros(len(self.owners), 1, sum(view_dims) - self.fixed)
        self.adam = make_adam([self.trained, self.level], options.learning_rate)

    def _drawn(self, step: int) -> tuple[Tensor, Tensor]:
        """Xavier weights that stay, and those that are trained."""
        parts = [
            _draw(self.owners, (self.latent, d), self.latent, self.dtype, f"weights {step} {view}")
            for view, d in enumerate(self.view_dims)
        ]
        weights = torch.cat(parts, -1)
        return weights[..., : self.fixed], weights[..., self.fixed :]

    def redraw(self, step: int) -> None:
        """Draw all weights anew; biases and the state of Adam stay."""
        self.frozen, drawn = self._drawn(step)
        self.trained.copy_(drawn)

    def nets(self) -> tuple[Tensor, Tensor]:
        """W and B of all views."""
        weights = torch.cat([self.frozen, self.trained], -1) if self.fixed else self.trained
        return weights, torch.nn.functional.pad(self.level, (self.fixed, 0))

    def update(self, latent: Tensor, features: Tensor) -> None:
        """One step of the trained nets down the aggregation loss."""
        errors = aggregation_errors(latent, features[..., self.fixed :], self.trained, self.level)
        slopes = [latent.mT @ errors, errors.sum(1, keepdim=True)]
        if self.together:
            slopes = [slope.sum(0, keepdim=True) for slope in slopes]
        share = 2.0 / (features.shape[1] * self.crowd)
        take_step(self.adam, [share * slope for slope in slopes])

    def place(self, adam: torch.optim.Adam, z: Tensor, rows: slice, features: Tensor) -> None:
        """One step of some latent rows; the others of the same Adam have no gradient."""
        weights, bias = self.nets()
        share = 2.0 / (features.shape[1] * self.crowd)
        gradient = torch.zeros_like(z)
        errors = aggregation_errors(z[:, rows], features, weights, bias)
        gradient[:, rows] = share * errors @ weights.mT
        take_step(adam, [gradient])


def aggregate_with_adam(
    anchors: Tensor,
    queries: Tensor,
    view_dims: Sequence[int],
    seeds: Tensor,
    options: EvaluatorOptions,
    trace: Trace | None = None,
) -> tuple[Tensor, Tensor]:
    """Latent anchors [tasks, M, L] and queries [tasks, N_Q, L] after Algorithm 1, lines 4 to 26.

    A trace is called after every iteration with its number, the loss [tasks], latent anchors, and
    latent queries as they would be placed by least squares.
    """
    n_anchors, n_query = anchors.shape[1], queries.shape[1]

    def start(name: str, rows: int) -> tuple[Tensor, torch.optim.Adam]:
        shape = (rows, options.latent_dim)
        latent = _draw(seeds, shape, options.start_rows, anchors.dtype, name)
        return latent, make_adam([latent], options.learning_rate)

    evaluator = Evaluator(seeds, view_dims, options, anchors)
    z, adam_z = start("latent", n_anchors + (n_query if options.shared_adam else 0))
    first, rest = slice(n_anchors), slice(n_anchors, None)
    latent = z[:, first]  # a view: what happens to z happens to it
    for iteration in range(options.n_iter):
        for step in range(options.n_steps if options.update_evaluator else 0):
            if options.reinit_first and iteration == 0:
                evaluator.redraw(step)
            evaluator.update(latent, anchors)
        for _ in range(options.n_steps if options.update_anchors else 0):
            evaluator.place(adam_z, z, first, anchors)
        if trace is not None:
            weights, bias = evaluator.nets()
            loss = aggregation_errors(latent, anchors, weights, bias).square().sum((1, 2))
            placed = (queries - bias) @ torch.linalg.pinv(weights.double()).to(queries.dtype)
            trace(iteration, loss, latent.clone(), placed)
    h, adam_h = z, adam_z
    if not options.shared_adam:
        h, adam_h = start("queries", n_query)
        rest = slice(None)
    for _ in range(options.n_iter):
        evaluator.place(adam_h, h, rest, queries)
    return latent, h[:, rest]


def _draw(
    seeds: Tensor, shape: tuple[int, int], fan_in: int, dtype: torch.dtype, name: str
) -> Tensor:
    """Uniform Xavier numbers [len(seeds), *shape]."""
    bound = xavier(fan_in, shape[1])
    return draw_weights(seeds, bound, shape, dtype, "evaluator", name).detach()
