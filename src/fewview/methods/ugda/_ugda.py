"""UGDA, unified Gaussian dense-anchoring: the paper's method, all stages put together."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, cast

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from fewview.engine._contract import TUNED, latent_batch
from fewview.engine._explaining import Explanation
from fewview.engine._method import Method
from fewview.engine._parameters import check_numbers, choose, follow_preset, gather_options
from fewview.engine._registry import register
from fewview.engine._state import Prepared, State, Tags
from fewview.episodes._task import TaskSpec
from fewview.ground._errors import FewviewError, FewviewWarning, shorten
from fewview.methods.ugda._aggregation import aggregate_exactly
from fewview.methods.ugda._anchors import AnchorLaw
from fewview.methods.ugda._base_statistics import (
    BaseStatistics,
    StackedStatistics,
    is_dense,
    stack_statistics,
)
from fewview.methods.ugda._distribution import estimate_distribution, interpolate, nearest_classes
from fewview.methods.ugda._evaluator import EvaluatorOptions, Trace, aggregate_with_adam
from fewview.methods.ugda._groups import statistics_alone
from fewview.methods.ugda._rectification import (
    TERMS,
    Objective,
    fit_classifier,
    rectify_fast,
    rectify_with_adam,
    relation_logits,
)
from fewview.numerics._batch import EpisodeBatch
from fewview.numerics._distances import class_means
from fewview.numerics._moments import ClassStatistics
from fewview.numerics._padding import pad
from fewview.samples._data import MultiViewData

# Base classes that an explanation names.
EXPLAINED_NEIGHBOURS = 3
# Numbers in the anchors that a CPU draws and aggregates at once: more would leave its caches, and
# memory that large is asked of the system anew each time.
DRAWN = 1 << 22

# What parameters follow where they are None: the solver, and `rectify_steps` the rectifier.
PRINTED = {
    "mean_rule": "paper", "share_evaluator": "task", "train_nets": "all", "reinit_first": False,
    "shared_adam": False,
}  # fmt: skip
RELEASED = {
    "mean_rule": "code", "share_evaluator": "batch", "train_nets": "last", "reinit_first": True,
    "shared_adam": True,
}  # fmt: skip
# What the released code adds to the printed Eq. 9 (no ridge) and Eq. 15 (a scale of 1).
ADDED = {"ridge": 1e-3, "logit_scale": 0.5}
PRESETS: dict[str, dict[str, Any]] = {
    "exact": {**PRINTED, **ADDED, "rectifier": "fast", "latent_dim": None},
    "adam": {**PRINTED, "ridge": 0.0, "logit_scale": 1.0, "rectifier": "adam", "latent_dim": 512},
    "reference": {**RELEASED, **ADDED, "rectifier": "adam", "latent_dim": 512},
}
STEPS = {"fast": 100, "adam": 1000}
# Options that say how the evaluator is trained.
EVALUATOR_ONLY = ("share_evaluator", "train_nets", "reinit_first", "shared_adam")


@dataclass(frozen=True)
class UGDATrace:
    """What figures 4 and 6 of the paper are drawn from.

    Attributes:
        loss: aggregation loss per iteration, [iterations, tasks] (solvers `adam`, `reference`).
        anchors: iteration -> latent anchors [tasks, M, L].
        queries: iteration -> latent queries [tasks, N_Q, L] placed by least squares.
        final_anchors: latent anchors [tasks, M, L].
        final_queries: latent queries [tasks, N_Q, L].
        labels: labels of the anchors, int64 [tasks, M].
        centres: class centres before rectification [tasks, K, L].
        rectified: and after it.
    """

    loss: Tensor
    anchors: dict[int, Tensor]
    queries: dict[int, Tensor]
    final_anchors: Tensor
    final_queries: Tensor
    labels: Tensor
    centres: Tensor
    rectified: Tensor


@register("ugda")
class UGDA(Method):
    """Unified Gaussian dense-anchoring (Zhou, Guo, Hao, Hong and Luo 2023).

    Phase one (DGAI) gives every sample a Gaussian in every view from its nearest base classes,
    draws dense anchors around the supports, fills the queries' missing views, and brings all of it
    into one latent space. Phase two (ADSR) moves the class centres so that anchors are told apart
    and queries spread evenly over the classes.

    Without base classes, k-means groups of unlabelled rows play them (`fit_base` with samples that
    have no labels); without those too, anchors lie on the supports and gaps are padded.

    Args:
        n_neighbors: k, base classes retrieved per available view.
        n_anchors: N_F, anchors per support and view. Where this or k is 0 there are no anchors,
            and the original embeddings (padded views side by side) are classified by the nearest
            class mean, as in Fig. 7.
        ridge: variance added to every feature's Gaussian. None follows the solver: none under
            `adam`, as printed, and 1e-3 under `exact` and `reference`, as in the released code.
        solver: of the aggregation: `"exact"`, `"adam"` (Algorithm 1 as printed) or `"reference"`
            (the authors' released code with its differences from the paper).
        latent_dim: width L; None is full width for `exact` and 512 for the others.
        rectify: terms of ADSR that are on: `cross_entropy`, `entropy`, both, or none.
        logit_scale: 1 for softmax(-d^2) as printed, 0.5 for softmax(-d^2/2) as in the released
            code. None follows the solver as `ridge` does.
        rectifier: `"fast"` (L-BFGS with a stated stopping rule) or `"adam"`; None is `fast` for
            the solver `exact` and `adam` for the others.

        rectify_tolerance: of `fast`, which stops a task when its objective is this close to its
            infimum.
        rectify_steps: most iterations of `fast` (None is 100), or steps of Adam (None is 1000).
        rectify_rate: learning rate of ADSR under Adam.

        n_iter: outer iterations of the aggregation (`iter`); this and all that follows, but for
            `mean_rule`, is for the solvers `adam` and `reference`.
        n_steps: evaluator steps and anchor steps per iteration (N).
        learning_rate: of the aggregation.
        update_evaluator: False is the ablation "w/o AEU" of Fig. 4.
        update_anchors: False is the ablation "w/o LAU" of Fig. 4.
        tasks_per_batch: tasks that may share an evaluator. It also sets how near to zero latents
            start, which the paper does not say: the released code starts a whole batch of tasks
            as one matrix. A larger start stays in the evaluator's null space and drowns the signal.

        mean_rule: `"paper"`: an available view averages the sample with all its neighbours.
            `"code"`, as the released code: the sample has half of the weight. None, here and
            below, follows the solver: `reference` is the released code, the others the paper.
        share_evaluator: `"task"`: one evaluator per task, as Algorithm 1. `"batch"`: one for all
            tasks of a batch, as the released code, so information flows between tasks.
        train_nets: `"all"` views' weights, or only the `"last"` view's, as the released code does
            by accident (its optimiser holds the last network only).
        reinit_first: draw all weights anew at every evaluator step of the first iteration, as the
            released code does.
        shared_adam: one Adam state for anchors and queries, as the released code: the queries
            start without bias correction and the anchors drift on while queries move.

    Example:
        >>> import fewview
        >>> data = fewview.load("digits")
        >>> base, novel = data[data.labels < 6], data[data.labels >= 6]
        >>> clf = UGDA(base=base, n_anchors=20).fit(novel[:12])
        >>> clf.predict(novel[12:15]).shape
        (3,)
    """

    scaling: str = "by-width"
    n_neighbors: int = 1
    n_anchors: int = 100
    ridge: float | None = None
    solver: str = "exact"
    latent_dim: int | None = None
    rectify: tuple[str, ...] = TERMS
    logit_scale: float | None = None
    rectifier: str | None = None
    # of the rectifier
    rectify_tolerance: float = 1e-4
    rectify_steps: int | None = None
    rectify_rate: float = 1e-2
    # of the solvers that train an evaluator
    n_iter: int = 30
    n_steps: int = 10
    learning_rate: float = 1e-2
    update_evaluator: bool = True
    update_anchors: bool = True
    tasks_per_batch: int = 400
    # differences between the paper and the released code
    mean_rule: str | None = None
    share_evaluator: str | None = None
    train_nets: str | None = None
    reinit_first: bool | None = None
    shared_adam: bool | None = None

    version: ClassVar[int] = 2
    tags: ClassVar[Tags] = Tags(
        transductive=True,
        handles_missing=True,
        assumes_balance=True,
        deterministic=False,
        iterative=True,
        bridges_views=True,
    )
    tune_grid: ClassVar[dict[str, Any]] = {"scaling": TUNED["scaling"], "n_neighbors": (1, 2)}

    def validate(self) -> None:
        """Check hyper-parameters."""
        super().validate()
        choose("solver", self.solver, PRESETS)
        if isinstance(self.rectify, str):
            raise FewviewError(f"rectify is {self.rectify!r}; give a tuple of terms, or ()")
        for term in self.rectify:
            choose("rectify", term, TERMS)
        settings = follow_preset(self, PRESETS[self.solver])
        choose("mean_rule", settings["mean_rule"], ("paper", "code"))
        choose("rectifier", settings["rectifier"], STEPS)
        choose("share_evaluator", settings["share_evaluator"], ("task", "batch"))
        choose("train_nets", settings["train_nets"], ("all", "last"))
        if settings["ridge"] < 0:
            raise FewviewError(f"ridge is {self.ridge}; a variance cannot be negative")
        check_numbers(
            self,
            positive=("logit_scale", "learning_rate", "rectify_rate"),
            not_negative=("rectify_tolerance",),
            whole={
                "n_neighbors": 0, "n_anchors": 0, "n_iter": 0, "n_steps": 1, "tasks_per_batch": 1,
                "latent_dim": 1, "rectify_steps": 0,
            },
        )  # fmt: skip
        if self.solver == "exact":
            idle = [n for n in ("update_evaluator", "update_anchors") if not getattr(self, n)]
            idle += [n for n in EVALUATOR_ONLY if settings[n] != PRESETS["exact"][n]]
            if idle:
                raise FewviewError(
                    f"{idle[0]} is about the evaluator, which solver='exact' does not train; "
                    "choose solver=adam or solver=reference with it"
                )

    @property
    def has_anchors(self) -> bool:
        """Whether there are any; the paper classifies the original embeddings otherwise."""
        return self.n_neighbors > 0 and self.n_anchors > 0

    def settings(self) -> dict[str, Any]:
        """Parameters that follow the solver where they are None, resolved."""
        settings = follow_preset(self, PRESETS[self.solver])
        return {**settings, **follow_preset(self, {"rectify_steps": STEPS[settings["rectifier"]]})}

    def resolved_parameters(self) -> dict[str, Any]:
        """Parameters by name, with what follows from the solver filled in."""
        return {**super().resolved_parameters(), **self.settings()}

    def prepare(self, base: MultiViewData, task: TaskSpec, seed: int) -> BaseStatistics:
        """Mean and covariance of every base class and view."""
        return self.prepare_statistics(ClassStatistics.of(base), task, seed)

    def start_statistics(self, sample: MultiViewData) -> ClassStatistics:
        """Empty class statistics, for a base set in parts."""
        return ClassStatistics(sample.view_dims)

    def prepare_statistics(
        self,
        statistics: ClassStatistics,
        task: TaskSpec,
        seed: int,
        sample: MultiViewData | None = None,
    ) -> BaseStatistics:
        """Stack the statistics of base classes."""
        state = stack_statistics(statistics)
        view_names = list(statistics.view_dims)
        ridge = self.settings()["ridge"]
        drowned = [
            repr(view)
            for view, variance in zip(view_names, state.variances(), strict=True)
            if self.has_anchors and 0 < variance < 1e-3 * ridge
        ]
        if drowned:
            warnings.warn(
                f"the ridge {ridge:g} is more than 1000 times the variance of view "
                f"{shorten(drowned)}, whose anchors are then noise; scale the views or lower ridge",
                FewviewWarning,
                stacklevel=5,
            )
        for v, view in enumerate(view_names):
            known = int(state.available[:, v].sum())
            if 0 < known < self.n_neighbors:
                raise FewviewError(
                    f"n_neighbors is {self.n_neighbors}, but only {known} base class(es) have view "
                    f"{view!r}; lower n_neighbors to at most {known}"
                )
        return state

    def prepare_alone(self, rows: MultiViewData, task: TaskSpec, seed: int) -> BaseStatistics:
        """Groups of unlabelled rows in place of base classes, or the supports alone."""
        return statistics_alone(rows, seed)

    @property
    def joins(self) -> bool:
        """Not where tasks of a batch share an evaluator."""
        return super().joins and self.settings()["share_evaluator"] != "batch"

    def stack(self, states: Sequence[State]) -> StackedStatistics | None:
        """Base classes of all of them; where gaps are padded, each base set by itself."""
        found = [cast(BaseStatistics, state) for state in states]
        return StackedStatistics.of(found) if self.has_anchors else None

    def dense_anchoring(
        self, batch: EpisodeBatch, state: BaseStatistics, trace: Trace | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Phase one (DGAI): latent anchors [T, M, L], their labels [T, M], queries [T, N_Q, L]."""
        settings = self.settings()
        if not self.has_anchors or not bool(state.available.any(0).all()):
            # A view that no base class has gets no distribution: gaps are padded.
            means = tuple(_overall_mean(state, v) for v in range(batch.n_views))
            batch = pad(batch, self.padding, means)
        if not self.has_anchors:
            return torch.cat(batch.support, -1), batch.support_labels, torch.cat(batch.query, -1)
        how = (state, self.n_neighbors, settings["mean_rule"], batch.states)
        around_s = estimate_distribution(batch.support, batch.support_mask, *how)
        around_q = estimate_distribution(batch.query, batch.query_mask, *how)
        ridge = settings["ridge"]
        law = AnchorLaw(around_s, state, ridge)
        labels = batch.support_labels.repeat_interleave(self.n_anchors, dim=1)
        placed = torch.cat(interpolate(batch.query, batch.query_mask, around_q), dim=-1)
        if self.solver == "exact":
            size = len(placed)
            if not placed.is_cuda:
                size = max(1, DRAWN // (labels.shape[1] * placed.shape[-1]))
            parts = [slice(first, first + size) for first in range(0, len(placed), size)]
            found = [
                aggregate_exactly(
                    law.draw(batch.seeds, self.n_anchors, part),
                    placed[part],
                    settings["latent_dim"],
                    ridge > 0,
                )
                for part in parts
            ]
            latent = tuple(map(torch.cat, zip(*found, strict=True)))
        else:
            anchors = law.draw(batch.seeds, self.n_anchors)
            settings["start_rows"] = self.tasks_per_batch * (anchors.shape[1] + placed.shape[1])
            options = gather_options(EvaluatorOptions, self, settings)
            dims = [view.shape[-1] for view in batch.support]
            latent = aggregate_with_adam(anchors, placed, dims, batch.seeds, options, trace)
        return latent[0], labels, latent[1]

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
        return before, rectify_fast(objective, before, self.rectify_tolerance, steps)

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
        scale = self.settings()["logit_scale"]
        return centres, Objective(anchors, members, queries, terms, scale)

    def scores(self, batch: EpisodeBatch, state: State) -> Tensor:
        """Both phases, then the anchor-based classifier.

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
        return relation_logits(queries, centres, settings["logit_scale"])

    def embed(self, batch: EpisodeBatch, state: State) -> EpisodeBatch:
        """Latent anchors and queries of phase one; a support's anchors weigh one together."""
        anchors, labels, queries = self.dense_anchoring(batch, cast(BaseStatistics, state))
        share = batch.n_support / anchors.shape[1]
        weights = torch.full_like(anchors[..., 0], share)
        return latent_batch(batch, anchors, queries, labels, weights)

    def rectify_anchors(self, latent: EpisodeBatch) -> EpisodeBatch:
        """Shift every anchor that `embed` gives by the offset of its class, Eq. 23 [eq:34]."""
        (anchors, queries), labels = latent.concatenated(), latent.support_labels
        before, after = self.rectified_centres(anchors, labels, queries, latent.way)
        shift = (after - before).gather(1, labels[..., None].expand_as(anchors))
        return replace(latent, support=(anchors + shift,))

    def explain_batch(self, batch: EpisodeBatch, prepared: Prepared) -> Explanation:
        """Every view left out in turn, and the base classes that queries are likened to."""
        state = cast(BaseStatistics, prepared.state)
        found = super().explain_batch(batch, prepared)
        near = nearest_classes(batch.query, batch.query_mask, state, EXPLAINED_NEIGHBOURS)[0]
        return replace(found, neighbours=tuple(tuple(row) for row in near.tolist()))

    def trace(
        self, batch: EpisodeBatch, state: BaseStatistics, at: tuple[int, ...] = ()
    ) -> UGDATrace:
        """Run one batch and keep what happens on the way.

        Args:
            batch: scaled tasks.
            state: what `prepare` returned.
            at: iterations (from 0) at which latent anchors and queries are kept.
        """
        losses: list[Tensor] = []
        kept: dict[int, Tensor] = {}
        placed: dict[int, Tensor] = {}

        def note(iteration: int, loss: Tensor, anchors: Tensor, queries: Tensor) -> None:
            losses.append(loss)
            if iteration in at:
                kept[iteration], placed[iteration] = anchors, queries

        with torch.no_grad():
            anchors, labels, queries = self.dense_anchoring(batch, state, note)
            before, after = self.rectified_centres(anchors, labels, queries, batch.way)
        loss = torch.stack(losses) if losses else anchors.new_zeros(0, batch.n_tasks)
        return UGDATrace(loss, kept, placed, anchors, queries, labels, before, after)

    def bytes_per_task(self, n_support: int, n_query: int, dims: tuple[int, ...], way: int) -> int:
        """Anchors with their noise, dense covariances, Gram matrix and latent copies."""
        anchors = n_support * (self.n_anchors if self.has_anchors else 1)
        width = sum(dims)
        latent = self.settings()["latent_dim"] or min(anchors, width)
        floats = 4 * (anchors + n_query) * width + 3 * anchors**2 + 8 * (anchors + n_query) * latent
        floats += n_support * sum(6 * d * d for d in dims if is_dense(d, 0))
        if self.solver != "exact":
            floats += 2 * (anchors + n_query) * width + 5 * latent * width
        return floats * self.torch_dtype.itemsize

    def batch_size(self, n_support: int, n_query: int, dims: dict[str, int], way: int) -> int:
        """Tasks that go together; a shared evaluator fixes their number."""
        if self.solver != "exact" and self.settings()["share_evaluator"] == "batch":
            return self.tasks_per_batch
        return super().batch_size(n_support, n_query, dims, way)


def _overall_mean(state: BaseStatistics, view: int) -> Tensor:
    has = state.available[:, view]
    return state.means[view][has].mean(0) if bool(has.any()) else state.means[view][0]
