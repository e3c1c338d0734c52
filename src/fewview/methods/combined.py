"""Combinations: one method's space, another method's decision.

`Combined(UGDA(), head=PTMAP())` runs the first phase of UGDA and gives its latent anchors and
queries to PT-MAP in place of supports and queries, as the rows PTMAP+UGDA and RFS+UGDA of the
paper's tables (no code was released for them).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, cast

from torch import Tensor

from fewview.engine._method import Method
from fewview.engine._parameters import check_numbers
from fewview.engine._registry import register
from fewview.engine._state import Prepared, State, Tags
from fewview.episodes._task import TaskSpec
from fewview.ground._errors import FewviewError
from fewview.methods.ptmap import PTMAP
from fewview.methods.rfs import RFS
from fewview.methods.ugda._ugda import UGDA
from fewview.numerics._batch import EpisodeBatch
from fewview.numerics._padding import FROM_QUERIES
from fewview.samples._data import MultiViewData


@dataclass(frozen=True)
class CombinedState(State):
    """What both parts learnt from base classes."""

    source: State
    head: State


# What parts say of scaling is not used; it is written down because it is in the key of a result.
UNUSED: dict[str, Any] = {"scaling": "scale", "padding": "episode"}


@register("ptmap+ugda", head=PTMAP(power="signed", **UNUSED))
@register("rfs+ugda", head=RFS(**UNUSED), anchor_weight=None)
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
        >>> import fewview
        >>> data = fewview.load("digits")
        >>> base, novel = data[data.labels < 6], data[data.labels >= 6]
        >>> clf = Combined(UGDA(n_anchors=10), head=PTMAP(power="signed"), base=base)
        >>> clf.fit(novel[:12]).predict(novel[12:42]).shape
        (30,)
    """

    scaling: str = "by-width"
    source: Any = field(default_factory=lambda: UGDA(scaling="scale"), kw_only=False)
    head: Any = field(default_factory=lambda: PTMAP(power="signed", **UNUSED))
    anchor_weight: float | None = 1.0
    rectified: bool = False

    @property
    def tags(self) -> Tags:  # type: ignore[override]
        """Tags that follow from the parts; only the first phase of UGDA is used."""
        head: Tags = self.head.tags
        return replace(
            head,
            needs_base=self.source.tags.needs_base or head.needs_base,
            handles_missing=True,
            deterministic=self.source.tags.deterministic and head.deterministic,
            iterative=True,
            trained=self.source.tags.trained or head.trained,
            bridges_views=self.source.tags.bridges_views,
        )

    @property
    def pads_from_queries(self) -> bool:
        """As the source fills gaps, which UGDA does in views that no base class has."""
        return self.source.padding in FROM_QUERIES

    def validate(self) -> None:
        """Check both parts."""
        super().validate()
        for part in (self.source, self.head):
            if not isinstance(part, Method):
                raise FewviewError(f"a combination is made of methods, not {type(part).__name__}")
            part.validate()
        if not self.source.tags.handles_missing:
            raise FewviewError(
                f"{type(self.source).__name__} cannot be the source of a combination: its space "
                "does not fill missing views"
            )
        check_numbers(self, positive=("anchor_weight",))
        if self.rectified and not isinstance(self.source, UGDA):
            raise FewviewError(
                f"rectified=true is about UGDA's anchors; {type(self.source).__name__} has none"
            )

    def spell_parameter(self, name: str) -> str:
        """`ugda__n_anchors` is `source__n_anchors`, `ptmap__step` is `head__step`."""
        part, double, parameter = name.partition("__")
        if double:
            for place in ("source", "head"):
                if part == getattr(self, place).name:
                    return f"{place}__{parameter}"
        return name

    def prepare(self, base: MultiViewData, task: TaskSpec, seed: int) -> CombinedState:
        """Let both parts learn from the base set."""
        return CombinedState(
            self.source.prepare(base, task, seed), self.head.prepare(base, task, seed)
        )

    def prepare_alone(self, rows: MultiViewData, task: TaskSpec, seed: int) -> CombinedState:
        """Both parts do without base classes."""
        return CombinedState(
            self.source.prepare_alone(rows, task, seed), self.head.prepare_alone(rows, task, seed)
        )

    def start_statistics(self, sample: MultiViewData) -> Any:
        """Statistics of `source`, where `head` needs none of its own."""
        if self.head.start_statistics(sample) is not None:
            raise self.cannot_stream()
        return self.source.start_statistics(sample)

    def prepare_statistics(
        self, statistics: Any, task: TaskSpec, seed: int, sample: MultiViewData | None = None
    ) -> CombinedState:
        """The state of `source`; `head` has none."""
        source = self.source.prepare_statistics(statistics, task, seed, sample)
        return CombinedState(source, State())

    def padded(self, batch: EpisodeBatch, prepared: Prepared) -> EpisodeBatch:
        """As `source` has it."""
        return cast(EpisodeBatch, self.source.padded(batch, prepared))

    def embed(self, batch: EpisodeBatch, state: State) -> EpisodeBatch:
        """The space of `source`, anchors weighted for `head`."""
        latent: EpisodeBatch = self.source.embed(batch, cast(CombinedState, state).source)
        if self.rectified:
            latent = self.source.rectify_anchors(latent)
        if self.anchor_weight is None:
            return replace(latent, support_weights=None)
        if latent.support_weights is None:
            return latent
        return replace(latent, support_weights=latent.support_weights * self.anchor_weight)

    def scores(self, batch: EpisodeBatch, state: State) -> Tensor:
        """Scores of `head` on what `source` makes of the tasks."""
        latent = self.embed(batch, state)
        return cast(Tensor, self.head.scores(latent, cast(CombinedState, state).head))

    def bytes_per_task(self, n_support: int, n_query: int, dims: tuple[int, ...], way: int) -> int:
        """The source's memory, which is the larger part."""
        return int(self.source.bytes_per_task(n_support, n_query, dims, way))
