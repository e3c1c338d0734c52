"""Combinations: one method's space, another method's decision.

`Combined(UGDA(), head=PTMAP())` runs the first phase of UGDA and gives its latent anchors and
queries to PT-MAP in place of supports and queries, as the rows PTMAP+UGDA and RFS+UGDA of the
paper's tables (no code was released for them).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from torch import Tensor

from fewview.episodes.batch import EpisodeBatch
from fewview.episodes.padding import FROM_QUERIES
from fewview.episodes.task import TaskSpec
from fewview.errors import FewviewError
from fewview.methods.base import State, Tags
from fewview.methods.estimator.method import Method
from fewview.methods.params import param
from fewview.methods.ptmap import PTMAP
from fewview.methods.registry import register
from fewview.methods.rfs import RFS
from fewview.methods.ugda import UGDA
from fewview.samples._data import MultiViewData

if TYPE_CHECKING:
    from fewview.methods.estimator.fitted_base import FittedBase


@dataclass(frozen=True)
class CombinedState(State):
    """What both parts learnt from base classes."""

    source: State
    head: State


@register("ptmap+ugda", head=PTMAP(power="signed"))
@register("rfs+ugda", head=RFS(), anchor_weight=None)
@dataclass(kw_only=True, eq=False, repr=False)
class Combined(Method):
    """Classify with `head` in the space of `source`.

    Args:
        source: the method whose `embed` is used. Its scaling is this method's.
        head: the method whose `scores` is used; it sees one complete view.
        anchor_weight: what the anchors of one support weigh together. 1 lets them count as one
            support: under PT-MAP, 100 anchors of weight one each would outvote the queries and pin
            the centres. None gives every anchor the weight of a support, the literal reading; so
            for RFS, whose regularisation is then 100 times weaker than in one-shot RFS. What the
            authors did is not known.
        rectified: give `head` the anchors after self-rectification (UGDA's Eq. 23) instead of
            those of its first phase. The paper says neither; see docs/ugda.md.

    Example:
        >>> from fewview import PTMAP, UGDA, Combined, load
        >>> data = load("digits")
        >>> base, novel = data[data.labels < 6], data[data.labels >= 6]
        >>> clf = Combined(UGDA(n_anchors=10), head=PTMAP(power="signed"), base=base)
        >>> clf.fit(novel[:12]).predict(novel[12:42]).shape
        (30,)
    """

    scaling: str = param("by-width")
    source: Method = field(default_factory=UGDA, kw_only=False)
    head: Method = field(default_factory=lambda: PTMAP(power="signed"))
    anchor_weight: float | None = param(1.0, above=0)
    rectified: bool = False

    small_batches = False

    @property
    def version(self) -> int:  # type: ignore[override]
        """It rises with the versions of both parts."""
        return self.source.version + self.head.version

    @property
    def tags(self) -> Tags:  # type: ignore[override]
        """Tags that follow from the parts; only the first phase of UGDA is used."""
        source, head = self.source.tags, self.head.tags
        return replace(
            head,
            needs_base=source.needs_base or head.needs_base,
            handles_missing=True,
            links_views=source.links_views,
            random=source.random or head.random,
            iterative=True,
            trained=source.trained or head.trained,
            depends_on=tuple(sorted({*source.depends_on, *head.depends_on})),
        )

    @property
    def looks_at_queries(self) -> str:
        """As the source fills gaps, which UGDA does in views that no base class has."""
        by_padding = not self.tags.transductive and self.source.padding in FROM_QUERIES
        return "by padding" if by_padding else super().looks_at_queries

    def check(self) -> None:
        """Check both parts, too."""
        super().check()
        for part in (self.source, self.head):
            if not isinstance(part, Method):
                raise FewviewError(f"a combination is made of methods, not {type(part).__name__}")
            part.check()
        name = type(self.source).__name__
        if not self.source.tags.handles_missing:
            raise FewviewError(f"{name} does not fill missing views; it cannot be a source")
        if self.rectified and not isinstance(self.source, UGDA):
            raise FewviewError(f"rectified=true is about UGDA's anchors; {name} has none")

    def learn(self, base: MultiViewData, task: TaskSpec, seed: int) -> CombinedState:
        """Let both parts learn from the base set."""
        source, head = self.source.learn(base, task, seed), self.head.learn(base, task, seed)
        return CombinedState(source, head)

    def learn_unlabelled(self, rows: MultiViewData, task: TaskSpec, seed: int) -> CombinedState:
        """Both parts do without base classes."""
        source = self.source.learn_unlabelled(rows, task, seed)
        return CombinedState(source, self.head.learn_unlabelled(rows, task, seed))

    def statistics(self, sample: MultiViewData) -> Any:
        """Statistics of `source`, where `head` needs none of its own."""
        if self.head.statistics(sample) is not None:
            return super().statistics(sample)  # which refuses
        return self.source.statistics(sample)

    def learn_from(
        self, statistics: Any, task: TaskSpec, seed: int, sample: MultiViewData | None
    ) -> CombinedState:
        """The state of `source`; `head` has none."""
        return CombinedState(self.source.learn_from(statistics, task, seed, sample), State())

    def padded(self, batch: EpisodeBatch, fitted: FittedBase) -> EpisodeBatch:
        """As `source` has it."""
        return self.source.padded(batch, fitted)

    def embed(self, batch: EpisodeBatch, state: State) -> EpisodeBatch:
        """The space of `source`, anchors weighted for `head`."""
        assert isinstance(state, CombinedState)
        latent = self.source.embed(batch, state.source)
        if self.rectified and isinstance(self.source, UGDA):
            latent = self.source.rectify_anchors(latent)
        weights, factor = latent.support_weights, self.anchor_weight
        weights = None if weights is None or factor is None else weights * factor
        return replace(latent, support_weights=weights)

    def scores(self, batch: EpisodeBatch, state: State) -> Tensor:
        """Scores of `head` on what `source` makes of the tasks, [tasks, n_query, way]."""
        assert isinstance(state, CombinedState)
        return self.head.scores(self.embed(batch, state), state.head)

    def bytes_per_task(self, n_support: int, n_query: int, dims: tuple[int, ...], way: int) -> int:
        """The source's memory, which is the larger part."""
        return self.source.bytes_per_task(n_support, n_query, dims, way)
