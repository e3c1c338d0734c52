"""Marginal: a Gaussian model of classes and views whose missing views are integrated out."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, cast

import numpy as np
import torch
from sklearn.exceptions import NotFittedError
from torch import Tensor

from fewview.episodes.batch import EpisodeBatch
from fewview.episodes.task import TaskSpec
from fewview.errors import FewviewWarning
from fewview.ground._memory import LRUCache
from fewview.methods.base import Tags
from fewview.methods.estimator.explanation import Explanation, add_other_queries
from fewview.methods.estimator.fitted_base import FittedBase, add_views, learn_base, usual_task
from fewview.methods.estimator.method import Method
from fewview.methods.estimator.row_keys import content_order
from fewview.methods.marginal._covariances import MarginalStatistics
from fewview.methods.marginal._empty_cells import column_filled, has_empty_cells
from fewview.methods.marginal._imputer import impute
from fewview.methods.marginal._model import Evidence, Kept, predictive_scores
from fewview.methods.marginal._outside import (
    DIRECTIONS,
    LeftOver,
    learn_profile,
    play_new,
    wide_views,
)
from fewview.methods.marginal._projection import fit_projection
from fewview.methods.marginal._reasons import explain_queries
from fewview.methods.marginal._remainder import learn_remainder
from fewview.methods.marginal._rounds import (
    MarginalState,
    Rule,
    evidence_of,
    restructured,
    score_alone,
    score_together,
    together,
)
from fewview.methods.marginal._settings import Settings
from fewview.methods.marginal._unlabelled import FEW, beside, gaussians_alone, tell_something
from fewview.methods.params import param
from fewview.methods.registry import register
from fewview.samples._data import MultiViewData
from fewview.samples._inputs import as_data

# Factors of scores by supports alone where calibration is not chosen: those with the smallest
# calibration error on base classes at missing rate 0.3 (benchmarks/experiments). Three
# data sets with 6 to 9 base classes want larger ones than three with 30 to 80; between nothing was
# measured. By whether there are many classes; None where that is not known.
MANY_CLASSES = 20
ALONE = {None: 0.5, False: 0.7, True: 0.4}
# Components without base classes, where nothing but a few rows tells how they vary; and how much
# less sure answers are where unlabelled rows or queries have told it.
COMPONENTS_ALONE, UNTOLD = 64, 0.5
# How much a view counts that only supports have: it is taken to be independent of the others in a
# class, so that all of it would count twice what they say too. Of 1, 1/2, 1/4 this was best on
# scene15 and cub (new classes, five shots; with one shot they are level).
NEW_VIEW = 0.5
# Matrices that a row with empty cells has while it is scored; and how many tasks with such rows go
# together at most, since a GPU multiplies the matrices of all of them with the weights of each.
MATRICES, TOGETHER = 4, 64
# Settings that are parameters too.
GIVEN = tuple(field.name for field in fields(Settings) if field.name != "alone")


# What batches under one state share, by (state, rank); a state is kept too, so that its identity
# stays its. Base classes that are held out have a state for each fold, ask it some forty times and
# never come back to it.
_scoring: Any = LRUCache(16)
_calibrating: Any = LRUCache(1)


def _kept(cache: Any, state: MarginalState, rank: int | None) -> Kept:
    key = id(state), rank
    if key not in cache:
        cache[key] = Kept(room=1 << 23), state
    found: Kept = cache[key][0]
    return found


@register("marginal")
@dataclass(kw_only=True, eq=False, repr=False)
class Marginal(Method):
    """Classify from any views: missing ones are integrated out, not filled in.

    Class means are Gaussian around a common mean and samples are Gaussian around their class mean;
    both covariances come from base classes: probabilistic linear discriminant analysis (Ioffe 2006;
    Prince and Elder 2007) in its two-covariance form. A sample without some views contributes the
    marginal of its Gaussian over the views it has, exactly (Ghahramani and Jordan 1993). Queries
    are used together, in rounds of expectation maximisation, in the spirit of BAVARDAGE (Hu et al.
    2023). Two explanations of them are weighed task by task by their evidence: equally many queries
    of every class, and shares that are learnt with the rest. What tells new classes apart may lie
    outside the principal components of the base classes (new words): there the rows of a task have
    directions of their own, and base classes that play new ones tell how much of those to believe.

    Without base classes the covariances come from unlabelled rows (`fit_base` with samples that
    have no labels) and the supports.

    Two scores: `"predictive"`, the default, is the exact log-likelihood of the query given the
    supports of a class, the log-likelihood ratio of the model; it knows how unsure a class mean
    is in views that its supports lack. For queries alone it was ahead of `"variational"`, the
    cheaper first-order part of it, where we compared them (one split of handwritten and scene15,
    eta 0.3); used together it is well ahead on handwritten, and the two are level on scene15.
    Inside the rounds the variational
    score is used in both cases, because a query is itself part of what is known about its class
    there, and the predictive score would count it twice; the predictive one sets where they start.

    Args:
        scaling: of views before their principal components. `"natural"` goes by what the entries of
            a view are (counts of words, histograms, signed measurements), see `fit_scaling`.
        components: most principal components of a view.
        shrinkage: of the covariance within classes towards its diagonal (an eighth of it towards
            a sphere) in the principal components of every view, 0 to 1.
        prior: share of what is assumed beforehand in the covariance of class means, 0 to 1.
        prior_detail: 0 to 1. What is assumed is that class means differ in every component as
            samples do (0) or as those of base classes do, as far as their number lets one tell
            (1); across components they go together as samples do.
        temperature: power of the likelihood of queries in the rounds, so that a query counts for
            less than a support; for queries alone, factor of their scores.
        anneal: share of `temperature` that the first round starts with.
        balance: 0 (classes are equally likely, their masses free) to 1 (equal masses), the same in
            all tasks; `"auto"` weighs equal against learnt shares in every task.
        calibration: factor of the final scores. None: queries alone have the stated one; used
            together they have one for every task, that makes them a little surer than alone.
        scoring: `"predictive"` or `"variational"`.
        transductive: whether queries are used together; False classifies each one alone.
        n_iter: most rounds; a task stops early when its queries have settled.
        rank: most directions in which class means differ; None keeps all, and the time of a round
            grows with its cube. 64 loses up to 10 points on cub. 256 gains one or two with full
            balance and few gaps where there are many base classes, and loses up to 8 with soft
            balance on classes of another world (docs/marginal.md).
        structure: `"full"`, or an ablation: `"no between"` (class means may lie anywhere,
            a wide sphere per view), `"diagonal"` (S), `"no cross-view"` (blocks of S and B),
            `"imputed"` (missing views are filled in with their conditional means, then taken as
            data).

    What is None has a stated value: 128 components, shrinkage 0.4, prior 0.65 with detail 0.5,
    temperature 0.5, anneal 0.2, for queries alone calibration 0.7 (0.4 with 20 base classes or
    more), which were the best or near it on base classes of six data sets.

    Example:
        >>> import fewview
        >>> data = fewview.load("digits")
        >>> base, novel = data[data.labels < 6], data[data.labels >= 6]
        >>> clf = Marginal(base=base).fit(novel[:12])
        >>> clf.predict(novel[12:15]).shape
        (3,)
    """

    scaling: str = param("natural")
    components: int | None = param(None, least=1)
    shrinkage: float | None = param(None, least=0, most=1)
    prior: float | None = param(None, least=0, most=1)
    prior_detail: float | None = param(None, least=0, most=1)
    temperature: float | None = param(None, above=0)
    anneal: float | None = param(None, least=0, most=1)
    balance: float | str = param("auto", among=("auto",), least=0, most=1)
    calibration: float | None = param(None, above=0)
    scoring: str = param("predictive", among=("predictive", "variational"))
    transductive: bool = True
    n_iter: int = param(10, least=0)
    rank: int | None = param(128, least=1)
    structure: str = param(
        "full", among=("full", "no between", "diagonal", "no cross-view", "imputed")
    )

    version: ClassVar[int] = 11
    paper: ClassVar[dict[str, Any]] = {"scaling": "natural"}
    small_batches: ClassVar[bool] = False

    @property
    def tags(self) -> Tags:  # type: ignore[override]
        """Only how many classes a task has changes what is learnt."""
        return Tags(
            transductive=self.transductive,
            handles_missing=True,
            balanced=self._pull if self.transductive else 0.0,
            iterative=True,
            links_views=True,
            handles_nan=True,
            depends_on=("way",),
        )

    @property
    def _pull(self) -> float:
        """Towards equal shares of classes; weighed task by task it is between none and all."""
        balance = self.resolved().balance
        return 0.5 if balance is None else balance

    # ------------------------------------------------------------------ settings

    def fixed(self) -> dict[str, Any]:
        """Settings that were given."""
        given = {name: getattr(self, name) for name in GIVEN}
        given = {name: value for name, value in given.items() if value not in (None, "auto")}
        if "balance" in given:
            given["balance"] = float(given["balance"])
        if not self.transductive and self.temperature is not None:
            given.setdefault("calibration", self.temperature)
        return given

    def resolved(self, n_classes: int | None = None) -> Settings:
        """The given settings, and stated ones; calibration follows the number of base classes."""
        many = None if n_classes is None else n_classes >= MANY_CLASSES
        return replace(Settings(alone=ALONE[many]), **self.fixed())

    @property
    def _rule(self) -> Rule:
        return Rule(**{item.name: getattr(self, item.name) for item in fields(Rule)})

    # ------------------------------------------------------------------ the method

    def learn(self, base: MultiViewData, task: TaskSpec, seed: int) -> MarginalState:
        """Projection, mean and covariances."""
        if len(base.classes) < 2:
            warnings.warn(
                "Marginal: the base set has one class; how much classes differ is assumed, as it "
                "is without base classes",
                FewviewWarning,
                stacklevel=4,
            )
            return self.learn_unlabelled(base, task, seed)
        base = column_filled(base)
        projection = fit_projection(base, self.resolved().components, self.torch_device)
        statistics = MarginalStatistics(projection, device=self.torch_device).update(base)
        return self.learn_from(statistics, task, seed, base)

    def statistics(self, sample: MultiViewData) -> MarginalStatistics:
        """Empty statistics in the principal axes of a sample, for a base set in parts."""
        components = self.resolved().components
        if len(sample) < 2 * components:
            warnings.warn(
                "Marginal takes the principal axes of a base set in parts from a sample of it, "
                f"here of {len(sample)} rows; {2 * components} or more would be better. Start "
                f"with a larger sample or first part; 'fewview fit', which samples 60 "
                "rows of a class at most and fewer of wide views, uses all where the base set is "
                "one folder",
                FewviewWarning,
                stacklevel=4,
            )
        return MarginalStatistics(fit_projection(sample, components))

    def learn_from(
        self,
        statistics: MarginalStatistics,
        task: TaskSpec,
        seed: int,
        sample: MultiViewData | None,
    ) -> MarginalState:
        """The model from sums."""
        settings, projection = self.resolved(len(statistics.labels)), statistics.projection
        model = restructured(statistics.moments(), settings, self.structure)
        if sample is None:
            return MarginalState(projection, model, settings)
        wide = wide_views(projection)
        components, device = settings.components, self.torch_device
        folds = play_new(sample, wide, task.way, components, seed, device)
        profile = learn_profile(folds, wide, task.way, seed) if self.transductive else None
        return MarginalState(projection, model, settings, profile, learn_remainder(folds, wide))

    def add_views(self, fitted: FittedBase, support: MultiViewData) -> FittedBase:
        """What was learnt, and views that only supports have, as if there were no base set."""
        out = add_views(self, fitted, support)
        known = fitted.reference.view_names
        new = [view for view in out.reference.view_names if view not in known]
        if not new:
            return out
        there = support.mask[:, [view in new for view in support.view_names]].any(axis=1)
        rows = out.scaling.transform(support[there].select_views(new), np.float64, True)
        axes, more = gaussians_alone(column_filled(rows), COMPONENTS_ALONE, 0.0)
        more = replace(more, within=more.within / NEW_VIEW)
        state = cast(MarginalState, fitted.state).to("cpu", torch.float64)
        projection, model = beside((state.projection, state.model), (axes, more))
        state = replace(state, projection=projection, model=model)
        return replace(out, state=state.to(self.torch_device, self.torch_dtype))

    def learn_unlabelled(self, rows: MultiViewData, task: TaskSpec, seed: int) -> MarginalState:
        """The model from unlabelled rows and supports."""
        found = gaussians_alone(column_filled(rows), self._components_alone)
        settings = self.resolved()
        if (rows.codes < 0).any():
            settings = replace(settings, alone=UNTOLD * settings.alone)
        return MarginalState(*found, settings)

    @property
    def _components_alone(self) -> int:
        return COMPONENTS_ALONE if self.components is None else self.components

    def refit_with(
        self, fitted: FittedBase, support: MultiViewData, query: MultiViewData, task: TaskSpec
    ) -> FittedBase:
        """Without base classes and with few supports, queries tell how samples vary."""
        few = len(support) <= FEW * len(support.classes)
        if not (few and together(len(query), self._rule)):
            return fitted
        asked = query[content_order(query)].with_labels(None)  # whatever their order
        rows = MultiViewData.concat([support.without_ids(), asked.without_ids()])
        found = learn_base(self, rows, task, self.seed_, unlabelled=True)
        scaled = found.scaling.transform(rows, self.dtype, True)
        told = tell_something(column_filled(scaled), self._components_alone)
        return found if told else fitted

    def scores(self, batch: EpisodeBatch, state: MarginalState) -> Tensor:  # type: ignore[override]
        """Calibrated log-probabilities; a query alone is classified by the supports."""
        size = batch.n_support + batch.n_query
        most = min(TOGETHER, max(1, self._rows_with_empty(state) // size))
        if batch.n_tasks > most and has_empty_cells(batch):
            numbers = torch.arange(batch.n_tasks, device=batch.device)
            parts = torch.split(numbers, most)
            return torch.cat([self.scores(batch.tasks(part), state) for part in parts])
        # Tasks that lack different views altogether are different models: a view that nobody has
        # must not decide which directions are kept.
        kinds = batch.support_mask.any(1) | batch.query_mask.any(1)
        kinds, kind = torch.unique(kinds, dim=0, return_inverse=True)
        if len(kinds) == 1:
            return self._scores([batch], state)
        rows = [(kind == index).nonzero()[:, 0] for index in range(len(kinds))]
        out = batch.support[0].new_empty(batch.n_tasks, batch.n_query, batch.way)
        out[torch.cat(rows)] = self._scores([batch.tasks(some) for some in rows], state)
        return out

    def _scores(self, parts: Sequence[EpisodeBatch], state: MarginalState) -> Tensor:
        """Scores of tasks with one set of views after another; rounds take all of them together."""
        kept = _kept(_scoring, state, self.rank)
        found = [score_alone(batch, state, self._rule, kept) for batch in parts]
        evidence, members, scores = zip(*found, strict=True)
        joined = Evidence.join(evidence), torch.cat(members), torch.cat(scores)
        return score_together(*joined, state.settings, self._rule)

    def _rows_with_empty(self, state: MarginalState) -> int:
        """Rows with empty cells that go together: nearly every one has matrices of its own."""
        widest = sum(state.model.dims)
        rank = min(widest, self.rank or widest)
        return max(1, int(self._batch_bytes // (MATRICES * rank**2 * self.torch_dtype.itemsize)))

    def scores_inductive(self, batch: EpisodeBatch, state: MarginalState) -> Tensor:  # type: ignore[override]
        """By the supports alone; as for a single query, but for views that no support has."""
        most = self._rows_with_empty(state)
        if batch.n_tasks == 1 and batch.n_query > most and has_empty_cells(batch):
            parts = torch.split(torch.arange(batch.n_query, device=batch.device), most)
            found = [self.scores_inductive(batch.with_queries(rows), state) for rows in parts]
            return torch.cat(found, dim=1)
        rule = replace(self._rule, transductive=False)
        alone = score_alone(batch, state, rule, _kept(_scoring, state, self.rank))
        return score_together(*alone, state.settings, rule)

    def bytes_per_task(self, n_support: int, n_query: int, dims: tuple[int, ...], way: int) -> int:
        """Projected samples, one precision and its inverse per class, information of patterns."""
        samples = n_support + n_query
        kept = [min(width, self.resolved().components) for width in dims]
        rank = min(sum(kept), self.rank or sum(kept))
        possible: int = (1 << min(len(dims), 30)) - 1
        patterns = min(samples, possible)
        shared = possible < 1024  # the same few patterns in every task
        floats = 2 * samples * (sum(dims) + 2 * sum(kept) + way * rank) + 6 * way * rank**2
        floats += way * patterns + (0 if shared else 2 * patterns * rank**2)
        floats += 2 * samples**2 + 8 * samples * DIRECTIONS * len(dims)  # outside the components
        return floats * self.torch_dtype.itemsize

    # ------------------------------------------------------------------ reasons

    def explain_batch(self, batch: EpisodeBatch, fitted: FittedBase) -> Explanation:
        """Decompose predictive scores by view.

        By the supports alone (the inductive form) the score of a query is a sum over what its
        views add, one after the other. What the scores that decide have beyond that, as queries
        are used together, is `Explanation.together`.
        """
        state = cast(MarginalState, fitted.state)
        with torch.no_grad():
            found = explain_queries(batch, state, self._rule)
            if (self.transductive, self.scoring, self.structure) == (False, "predictive", "full"):
                return found
            return add_other_queries(found, self.score_batch(batch, fitted)[0])

    def impute(self, X: Any) -> tuple[MultiViewData, MultiViewData]:
        """Fill in missing views and empty cells, and say how sure that is.

        A filled cell is the mean of its Gaussian given all that the sample has, whatever its class,
        with what was learnt from base classes; `fit_base` or `fit` comes first.
        Where rows were scaled to unit length, the length of a view that is missing is taken to be
        the usual one.

        Args:
            X: samples, as for `predict`.

        Returns:
            filled: the samples, complete; what was there is unchanged, ids and labels are kept.
            deviations: the standard deviation of every cell, zero where it was there.

        Example:
            >>> import fewview
            >>> data = fewview.load("digits")
            >>> clf = Marginal().fit_base(data[200:])
            >>> gaps = data[:5].with_mask([[True] * 2 + [False] * (data.n_views - 2)] * 5)
            >>> filled, deviations = clf.impute(gaps)
            >>> filled.missing_rate, bool(deviations.views[data.view_names[-1]].min() > 0)
            (0.0, True)
        """
        fitted = self.fitted_ if hasattr(self, "fitted_") else self._learnt()
        state = cast(MarginalState, fitted.to("cpu").state)
        data = as_data(X, like=fitted.reference).like(fitted.reference, "samples")
        return impute(data, fitted.scaling, state.projection, state.model)

    def _learnt(self) -> FittedBase:
        """What there is before `fit`."""
        if self.base is None:
            raise NotFittedError("nothing has been learnt; call fit_base or fit first")
        if isinstance(self.base, FittedBase):
            return self.base.fitted_for(self)
        base = as_data(self.base)
        self._draw_seed(fresh=True)
        return learn_base(self, base, usual_task(base), self.seed_, unlabelled=base.labels is None)

    def typicality(self, batch: EpisodeBatch, state: MarginalState) -> Tensor:  # type: ignore[override]
        """Log-likelihood ratio of every class against one that was never seen.

        A class without supports has its mean anywhere around the common one, so its predictive
        score is that of a sample of an unknown class.
        """
        members = batch.one_hot()
        members = torch.cat([members, torch.zeros_like(members[..., :1])], dim=-1)
        rest = state.remainder if self.structure == "full" else None

        def look(part: EpisodeBatch, left: Mapping[int, LeftOver]) -> list[Tensor]:
            return [] if rest is None else [rest.predictive(left, part.one_hot())]

        kept = _kept(_calibrating, state, self.rank)
        views = rest.views if rest else ()
        evidence, seen = evidence_of(batch, state, self._rule, kept, views, look, whole=False)
        scores = predictive_scores(evidence, members)
        out = scores[..., :-1] - scores[..., -1:]
        if rest is None:
            return out
        more = torch.cat([found for part in seen for found in part])
        if batch.support_weights is not None:
            # Means of base classes: what tells those apart is in the components.
            few = (members[..., :-1].amax(1) <= 1)[:, None]
            more = more * few
        return out + more
