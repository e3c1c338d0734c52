"""UGDA, unified Gaussian dense-anchoring: the paper's method, all stages put together."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, cast

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from fewview.episodes.batch import EpisodeBatch, latent_batch
from fewview.episodes.padding import pad
from fewview.episodes.task import TaskSpec
from fewview.errors import FewviewError, FewviewWarning, shorten
from fewview.methods.base import State, Tags
from fewview.methods.estimator.method import Method
from fewview.methods.params import param
from fewview.methods.registry import register
from fewview.methods.ugda.adam import Note, aggregate_with_adam
from fewview.methods.ugda.aggregation import aggregate_exactly
from fewview.methods.ugda.anchors import draw_anchors
from fewview.methods.ugda.distribution import closest_classes, estimate, interpolate
from fewview.methods.ugda.groups import group_statistics
from fewview.methods.ugda.rectification import (
    TERMS,
    Objective,
    distance_logits,
    fit_classifier,
    rectify_with_adam,
    rectify_with_lbfgs,
)
from fewview.methods.ugda.statistics import DENSE_WIDTH, BaseStatistics, BaseSums
from fewview.numerics.distances import class_means
from fewview.numerics.moments import ClassStatistics
from fewview.samples._data import MultiViewData

if TYPE_CHECKING:
    from fewview.methods.estimator.explanation import Explanation
    from fewview.methods.estimator.fitted_base import FittedBase

# Numbers of anchors that are drawn and aggregated at once. On a CPU more would leave its caches,
# and memory that large is asked of the system anew each time.
DRAWN, DRAWN_ON_GPU = 1 << 22, 1 << 28

SOLVERS = ("exact", "adam", "reference")
# Parameter -> what it is under each of these where it is None.
PRESETS: dict[str, tuple[Any, Any, Any]] = {
    "ridge": (1e-3, 0.0, 1e-3),  # the released code adds it to the printed Eq. 9 [eq:9]
    "temperature": (0.5, 1.0, 0.5),  # and this factor to Eq. 15 [eq:24]
    "latent_dim": (None, 512, 512),
    "rectifier": ("fast", "adam", "adam"),
    "mean_rule": ("paper", "paper", "code"),
    "share_evaluator": ("task", "task", "batch"),
    "train_nets": ("all", "all", "last"),
    "reinit_first": (False, False, True),
    "shared_adam": (False, False, True),
}
STEPS = {"fast": 100, "adam": 1000}  # `rectify_steps` by rectifier
# Parameters that are about the evaluator, which the exact solver does not train.
EVALUATOR = (
    "update_evaluator", "update_anchors", "share_evaluator", "train_nets", "reinit_first",
    "shared_adam",
)  # fmt: skip


@dataclass(frozen=True)
class UGDATrace:
    """What happens on the way: figures 4 and 6 of the paper are drawn from it."""

    loss: Tensor  # aggregation loss [iterations, tasks] (solvers `adam` and `reference`)
    anchors: dict[int, Tensor]  # iteration -> latent anchors [tasks, M, L]
    queries: dict[int, Tensor]  # iteration -> latent queries [tasks, N_Q, L] by least squares
    final_anchors: Tensor  # [tasks, M, L]
    final_queries: Tensor  # [tasks, N_Q, L]
    labels: Tensor  # of the anchors, int64 [tasks, M]
    centres: Tensor  # of classes before rectification [tasks, K, L]
    rectified: Tensor  # and after it


@register("ugda")
@dataclass(kw_only=True, eq=False, repr=False)
class UGDA(Method):
    """Unified Gaussian dense-anchoring (Zhou, Guo, Hao, Hong and Luo 2023).

    Phase one (DGAI) gives every sample a Gaussian in every view from its nearest base classes,
    draws dense anchors around the supports, fills the queries' missing views, and brings all of it
    into one latent space. Phase two (ADSR) moves the class centres so that anchors are told apart
    and queries spread evenly over the classes. Without labelled base classes, k-means groups of
    unlabelled samples stand for them.

    Args:
        n_neighbors: k, base classes retrieved per available view.
        n_anchors: N_F, anchors per support and view. Where this or k is 0, the original embeddings
            are classified by the nearest class mean, as in Fig. 7.
        ridge: variance added to every feature's Gaussian. None, here and elsewhere, follows the
            solver, see `PRESETS`: `adam` is the paper as printed, `reference` the released code.
        solver: of the aggregation: `"exact"`, `"adam"` (Algorithm 1) or `"reference"`.
        latent_dim: width L; None is full width for `exact` and 512 for the others.
        rectify: terms of ADSR that are on: `cross_entropy`, `entropy`, both, or none.
        temperature: 1 for softmax(-d^2) as printed, 0.5 for softmax(-d^2/2) as released.
        rectifier: `"fast"` (L-BFGS with a stated stopping rule) or `"adam"`.
        rectify_tolerance: `fast` stops a task whose objective is this close to its infimum.
        rectify_steps: most iterations of `fast` (None is 100), or steps of Adam (None is 1000).
        rectify_rate: learning rate of ADSR under Adam.
        n_iter: outer iterations of the aggregation (`iter`); this and all that follows, but for
            `mean_rule`, is for the solvers `adam` and `reference`.
        n_steps: evaluator steps and anchor steps per iteration (N).
        learning_rate: of the aggregation.
        update_evaluator: False is the ablation "w/o AEU" of Fig. 4.
        update_anchors: False is the ablation "w/o LAU" of Fig. 4.
        tasks_per_batch: tasks that may share an evaluator. It also sets how near to zero latents
            start, which the paper does not say: a larger start stays in the evaluator's null space
            and drowns the signal.
        mean_rule: `"paper"`: an available view averages the sample with all its neighbours;
            `"code"`: the sample has half of the weight.
        share_evaluator: one evaluator per `"task"`, or per `"batch"`, where information flows
            between tasks.
        train_nets: `"all"` views' weights, or only the `"last"` view's, as the released code does
            by accident (its optimiser holds the last network only).
        reinit_first: draw weights anew at every evaluator step of the first iteration.
        shared_adam: one Adam state for anchors and queries: the queries start without bias
            correction and the anchors drift on while queries move.

    Example:
        >>> import fewview
        >>> data = fewview.load("digits")
        >>> base, novel = data[data.labels < 6], data[data.labels >= 6]
        >>> clf = UGDA(base=base, n_anchors=20).fit(novel[:12])
        >>> clf.predict(novel[12:15]).shape
        (3,)
    """

    scaling: str = param("by-width")
    padding: str = param("episode", tune=())
    n_neighbors: int = param(1, least=0, tune=(1, 2))
    n_anchors: int = param(100, least=0)
    ridge: float | None = param(None, least=0)
    solver: str = param("exact", among=SOLVERS)
    latent_dim: int | None = param(None, least=1)
    rectify: tuple[str, ...] = param(TERMS, among=TERMS)
    temperature: float | None = param(None, above=0)
    rectifier: str | None = param(None, among=tuple(STEPS))
    rectify_tolerance: float = param(1e-4, least=0)
    rectify_steps: int | None = param(None, least=0)
    rectify_rate: float = param(1e-2, above=0)
    n_iter: int = param(30, least=0)
    n_steps: int = param(10, least=1)
    learning_rate: float = param(1e-2, above=0)
    update_evaluator: bool = True
    update_anchors: bool = True
    tasks_per_batch: int = param(400, least=1)
    mean_rule: str | None = param(None, among=("paper", "code"))
    share_evaluator: str | None = param(None, among=("task", "batch"))
    train_nets: str | None = param(None, among=("all", "last"))
    reinit_first: bool | None = None
    shared_adam: bool | None = None

    version: ClassVar[int] = 2
    tags: ClassVar[Tags] = Tags(
        transductive=True, handles_missing=True, balanced=1.0, random=True, iterative=True,
        links_views=True,
    )  # fmt: skip
    small_batches: ClassVar[bool] = False  # many small steps would be taken for every batch

    def check(self) -> None:
        """Check hyper-parameters."""
        super().check()
        own, usual = self.resolved_params(), UGDA().resolved_params()
        idle = [name for name in EVALUATOR if own[name] != usual[name]]
        if self.solver == "exact" and idle:
            raise FewviewError(
                f"{idle[0]} is about the evaluator, which solver='exact' does not train; choose "
                "solver=adam or solver=reference with it"
            )

    def settings(self) -> dict[str, Any]:
        """Parameters that follow others where they are None, resolved."""
        which = SOLVERS.index(self.solver)
        found = {name: preset[which] for name, preset in PRESETS.items()}
        found |= {name: own for name in PRESETS if (own := getattr(self, name)) is not None}
        steps = STEPS[found["rectifier"]] if self.rectify_steps is None else self.rectify_steps
        return found | {"rectify_steps": steps}

    def resolved_params(self) -> dict[str, Any]:
        """Parameters by name, with what follows from the solver filled in."""
        return {**super().resolved_params(), **self.settings()}

    @property
    def has_anchors(self) -> bool:
        """Whether there are any; the paper classifies the original embeddings otherwise."""
        return self.n_neighbors > 0 and self.n_anchors > 0

    def learn(self, base: MultiViewData, task: TaskSpec, seed: int) -> BaseStatistics:
        """Mean and covariance of every base class and view."""
        return self.learn_from(self.statistics(base).update(base), task, seed, base)

    def statistics(self, sample: MultiViewData) -> BaseSums:
        """Empty sums by class and view."""
        return BaseSums(ClassStatistics(sample.view_dims))

    def learn_from(
        self, statistics: BaseSums, task: TaskSpec, seed: int, sample: MultiViewData | None
    ) -> BaseStatistics:
        """Stack the statistics of base classes; say what is left out."""
        state = BaseStatistics.of(statistics.found)
        views, counts = statistics.found.view_dims, state.available.sum(0).tolist()
        if not any(counts):
            raise FewviewError(
                "no base class has two samples of any view; UGDA needs covariances of base classes"
            )
        for view, known in zip(views, counts, strict=True):
            if 0 < known < self.n_neighbors:
                raise FewviewError(
                    f"n_neighbors is {self.n_neighbors}, but only {known} base class(es) have view "
                    f"{view!r}; lower n_neighbors to at most {known}"
                )
        for text in self._doubts(statistics.found, state):
            warnings.warn(text, FewviewWarning, stacklevel=6)
        return state

    def _doubts(self, sums: ClassStatistics, state: BaseStatistics) -> Iterator[str]:
        """What is left out, and a ridge that drowns a view, in sentences."""
        single = [
            f"{label} ({view})"
            for label, views in sums.classes.items()
            for view, moments in views.items()
            if moments.count < 2
        ]
        if single:
            yield (
                f"base class {shorten(single)}: one sample only, which has no covariance; the "
                "class is left out for that view"
            )
        views = list(enumerate(map(repr, sums.view_dims)))
        unknown = [view for v, view in views if not state.available[:, v].any()]
        if unknown:
            yield (
                f"no base class tells about view {shorten(unknown)}; it is used as it is, unscaled "
                "if no base sample has it"
            )
        ridge = self.settings()["ridge"] if self.has_anchors else 0.0
        drowned = [view for v, view in views if 0 < state.variance(v) < 1e-3 * ridge]
        if drowned:
            yield (
                f"the ridge {ridge:g} is more than 1000 times the variance of view "
                f"{shorten(drowned)}, whose anchors are then noise; scale the views or lower ridge"
            )

    def learn_unlabelled(self, rows: MultiViewData, task: TaskSpec, seed: int) -> BaseStatistics:
        """Groups of unlabelled samples in place of base classes, or the supports alone."""
        return group_statistics(rows, seed)

    def dense_anchoring(
        self, batch: EpisodeBatch, state: BaseStatistics, note: Note | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Phase one (DGAI): latent anchors [T, M, L], their labels [T, M], queries [T, N_Q, L]."""
        if not self.has_anchors or not bool(state.available.any(0).all()):
            # A view that no base class has gets no distribution: gaps are padded.
            batch = pad(batch, self.padding, state.overall_means())
        if not self.has_anchors:
            support, query = batch.concatenated()
            return support, batch.support_labels, query
        labels = batch.support_labels.repeat_interleave(self.n_anchors, dim=1)
        settings = self.settings()
        if self.solver == "exact":
            how = settings["latent_dim"], settings["ridge"] > 0
            parts = self._pieces(batch, state)
            found = [aggregate_exactly(*self.anchored(part, state), *how) for part in parts]
            anchors, queries = map(torch.cat, zip(*found, strict=True))
        else:
            dims, own = [view.shape[-1] for view in batch.support], replace(self, **settings)
            anchored = self.anchored(batch, state)
            anchors, queries = aggregate_with_adam(*anchored, dims, batch.seeds, own, note)
        return anchors, labels, queries

    def anchored(self, batch: EpisodeBatch, state: BaseStatistics) -> tuple[Tensor, Tensor]:
        """Anchors [T, M, D] of the supports, and queries [T, N_Q, D] with missing views filled."""
        settings = self.settings()
        how = state, self.n_neighbors, settings["mean_rule"]
        supports = estimate(batch.support, batch.support_mask, *how)
        queries = estimate(batch.query, batch.query_mask, *how)
        anchors = draw_anchors(supports, state, batch.seeds, self.n_anchors, settings["ridge"])
        return anchors, interpolate(batch.query, batch.query_mask, queries)

    def _pieces(self, batch: EpisodeBatch, state: BaseStatistics) -> Iterator[EpisodeBatch]:
        width = sum(view.shape[-1] for view in batch.support)
        neighbours = (batch.n_support + batch.n_query) * len(state.available)
        numbers = max(batch.n_support * self.n_anchors * width, neighbours)
        size = max(1, (DRAWN if batch.device.type == "cpu" else DRAWN_ON_GPU) // numbers)
        for start in range(0, batch.n_tasks, size):
            yield batch.tasks(slice(start, start + size))

    def rectified_centres(
        self, anchors: Tensor, labels: Tensor, queries: Tensor, way: int
    ) -> tuple[Tensor, Tensor]:
        """Phase two (ADSR): class centres before and after rectification, [T, K, L] each.

        The paper shifts every anchor by the offset of its class, delta*_c - delta_c (Eq. 22
        [eq:33]; `rectify_anchors` does), and takes the mean of the shifted anchors of a class as
        weights of the classifier (Eq. 24 [eq:35]): that is the rectified centre delta*_c itself.
        """
        before, objective = self._start(anchors, labels, queries, way)
        if objective is None:
            return before, before
        settings = self.settings()
        steps = settings["rectify_steps"]
        if settings["rectifier"] == "adam":
            return before, rectify_with_adam(objective, before, steps, self.rectify_rate)
        return before, rectify_with_lbfgs(objective, before, self.rectify_tolerance, steps)

    def _start(
        self, anchors: Tensor, labels: Tensor, queries: Tensor, way: int
    ) -> tuple[Tensor, Objective | None]:
        """Class centres, and the objective they are to be moved by, if any."""
        members = one_hot(labels, way).to(anchors.dtype)  # y_m, Eq. 18 [eq:27]
        centres = class_means(anchors, members)  # delta_c, Eq. 14 [eq:23]
        # The entropy of a single query's assignment would push it towards no class at all.
        terms = tuple(t for t in self.rectify if t != "entropy" or queries.shape[1] > 1)
        if not terms or not self.has_anchors:
            return centres, None
        temperature = self.settings()["temperature"]
        return centres, Objective(anchors, members, queries, terms, temperature)

    def scores(self, batch: EpisodeBatch, state: State) -> Tensor:
        """Both phases, then the anchor-based classifier, [tasks, n_query, way].

        Log-probabilities of every class given the query and the supports, of which the largest is
        the answer (Eq. 2 [eq:1]): the softmax of minus distances to its weights, Eq. 26 [eq:36].
        """
        anchors, labels, queries = self.dense_anchoring(batch, cast(BaseStatistics, state))
        settings = self.settings()
        start, objective = self._start(anchors, labels, queries, batch.way)
        if objective is not None and settings["rectifier"] == "fast":
            steps = settings["rectify_steps"]
            return fit_classifier(objective, start, self.rectify_tolerance, steps)(queries)
        _, centres = self.rectified_centres(anchors, labels, queries, batch.way)
        return distance_logits(queries, centres, settings["temperature"])

    def embed(self, batch: EpisodeBatch, state: State) -> EpisodeBatch:
        """Latent anchors and queries of phase one; a support's anchors weigh one together."""
        anchors, labels, queries = self.dense_anchoring(batch, cast(BaseStatistics, state))
        weights = torch.full_like(anchors[..., 0], batch.n_support / anchors.shape[1])
        return latent_batch(batch, anchors, queries, labels, weights)

    def rectify_anchors(self, latent: EpisodeBatch) -> EpisodeBatch:
        """Shift every anchor that `embed` gives by the offset of its class, Eq. 23 [eq:34]."""
        (anchors, queries), labels = latent.concatenated(), latent.support_labels
        before, after = self.rectified_centres(anchors, labels, queries, latent.way)
        shift = (after - before).gather(1, labels[..., None].expand_as(anchors))
        return replace(latent, support=(anchors + shift,))

    def explain_batch(self, batch: EpisodeBatch, fitted: FittedBase) -> Explanation:
        """Every view left out in turn, and the three base classes nearest to each query."""
        found, state = super().explain_batch(batch, fitted), cast(BaseStatistics, fitted.state)
        near = closest_classes(batch.query, batch.query_mask, state, 3)[0]
        return replace(found, neighbours=tuple(map(tuple, near.tolist())))

    def trace(self, batch: EpisodeBatch, state: State, at: tuple[int, ...] = ()) -> UGDATrace:
        """Run one batch of scaled tasks and keep what happens on the way.

        At the iterations `at` (from 0) latent anchors and queries are kept.
        """
        losses: list[Tensor] = []
        kept: dict[int, Tensor] = {}
        placed: dict[int, Tensor] = {}

        def note(iteration: int, loss: Tensor, anchors: Tensor, queries: Tensor) -> None:
            losses.append(loss)
            if iteration in at:
                kept[iteration], placed[iteration] = anchors, queries

        with torch.no_grad():
            found = self.dense_anchoring(batch, cast(BaseStatistics, state), note)
            before, after = self.rectified_centres(*found, batch.way)
        anchors, labels, queries = found
        loss = torch.stack(losses) if losses else anchors.new_zeros(0, batch.n_tasks)
        return UGDATrace(loss, kept, placed, anchors, queries, labels, before, after)

    def bytes_per_task(self, n_support: int, n_query: int, dims: tuple[int, ...], way: int) -> int:
        """Anchors with their noise, dense covariances, Gram matrix and latent copies."""
        anchors = n_support * (self.n_anchors if self.has_anchors else 1)
        width, rows = sum(dims), anchors + n_query
        latent = self.settings()["latent_dim"] or min(anchors, width)
        floats = 4 * rows * width + 3 * anchors**2 + 8 * rows * latent
        floats += n_support * sum(6 * d * d for d in dims if d <= DENSE_WIDTH)
        if self.solver != "exact":
            floats += 2 * rows * width + 5 * latent * width
        return floats * self.torch_dtype.itemsize

    def batch_size(self, n_support: int, n_query: int, dims: tuple[int, ...], way: int) -> int:
        """Tasks that go together; a shared evaluator fixes their number."""
        if self.solver != "exact" and self.settings()["share_evaluator"] == "batch":
            return self.tasks_per_batch
        return super().batch_size(n_support, n_query, dims, way)
