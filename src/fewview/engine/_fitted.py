"""What is left of a base set after learning from it: `FittedBase`, and what it was learnt for.

It is immutable, so that `clone` and `GridSearchCV` share it. One that was read from a file has no
rows and refuses other parameters; one made by `fit_base` still has them and learns again.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any, Protocol

from fewview.engine._contract import Contract
from fewview.engine._state import Prepared
from fewview.engine.open_world._known import Known, usual_known
from fewview.engine.open_world._rejection import Thresholds, usual_thresholds
from fewview.engine.open_world._sets import SetLimits
from fewview.episodes._task import TaskSpec
from fewview.ground._errors import FewviewError, shorten
from fewview.samples._data import MultiViewData
from fewview.samples._masks import MissingRule
from fewview.samples._rates import largest_rate

# Missing rate that is expected where the base set is complete.
USUAL_ETA = 0.3
USUAL_WAY = 5

# Parameters that the first part of a base set in parts fixes.
FIXED = ("scaling", "components", "random_state")


def usual_task(
    base: MultiViewData,
    *,
    way: int | None = None,
    shot: int | None = None,
    queries: int | None = None,
    eta: float | None = None,
) -> TaskSpec:
    """The task that a method learns for when nobody says which: a common case.

    One shot, 15 queries, min(5, (base classes - 2) // 2) ways but at least 2, and the gaps that the
    base set itself has; where it is complete, a missing rate of 0.3 as far as its views allow.
    """
    if way is None:
        way = max(2, min(USUAL_WAY, (len(base.classes) - 2) // 2))
    rule = MissingRule()
    if eta is None and not base.mask.all():
        rule, eta = MissingRule.like(base.mask), base.missing_rate
    elif eta is None:
        eta = min(USUAL_ETA, largest_rate(base.n_views))
    shot, queries = 1 if shot is None else shot, 15 if queries is None else queries
    return TaskSpec(way=way, shot=shot, queries=queries, eta=eta, missing=rule)


class Stream(Protocol):
    """Sums of a base set that came in parts; see `BaseStream`."""

    def finish(self, method: Contract, task: TaskSpec | None = None) -> FittedBase:
        """Make what a method needs from the sums."""


@dataclass(frozen=True, eq=False, kw_only=True)
class FittedBase:
    """A base set that a method has learnt from.

    Attributes:
        method: name of the class of the method.
        parameters: all its parameters that change results, as `Method.described` writes them.
        classes: the base classes; none where the rows had no labels.
        fingerprint: of the base set.
        task: what was learnt for.
        prepared: scaling, means and state.
        rows: the base set itself; None where only what was learnt is known.
        thresholds: of rejection, by wanted false-reject rate; None where there are none.
        known: base classes as classes of queries; None where that cannot be learnt.
        sets: limits of sets of classes; None unless they were asked for.
        n_samples: size of the base set.
        sample: some of its samples, where it came in parts and the rows were not kept.
        stream: the sums of a base set that came in parts; not written to files.
        pending: the state is not made yet, because parts may still come.

    Example:
        >>> from fewview import Proto
        >>> clf = Proto().fit_base([[0.0], [1.0], [8.0], [9.0]], ["a", "a", "b", "b"])
        >>> clf.base
        FittedBase(Proto, 4 samples, 2 classes, views: view0[1], rows kept)
    """

    method: str
    parameters: Mapping[str, str]
    classes: tuple[Hashable, ...]
    fingerprint: str
    task: TaskSpec
    prepared: Prepared
    rows: MultiViewData | None = None
    thresholds: Thresholds | None = None
    known: Known | None = None
    sets: SetLimits | None = None
    n_samples: int = 0
    sample: MultiViewData | None = None
    stream: Stream | None = None
    pending: bool = False

    @classmethod
    def of(
        cls,
        method: Contract,
        rows: MultiViewData,
        task: TaskSpec,
        prepared: Prepared,
        playing: bool = False,
    ) -> FittedBase:
        """What a method has learnt from rows; if they are `playing`, for an open world too."""
        thresholds = usual_thresholds(method, rows, task) if playing else None
        known = usual_known(method, rows, task, prepared, thresholds) if playing else None
        return cls(
            method=type(method).__name__,
            parameters=method.described(),
            classes=tuple(rows.classes.tolist()),
            fingerprint=rows.fingerprint,
            task=task,
            prepared=prepared,
            rows=rows,
            thresholds=thresholds,
            known=known,
            n_samples=len(rows),
        )

    def __repr__(self) -> str:
        views = ", ".join(f"{view}[{width}]" for view, width in self.view_dims.items())
        kept = "rows kept" if self.rows is not None else "no rows"
        return (
            f"FittedBase({self.method}, {self.n_samples} samples, {len(self.classes)} classes, "
            f"views: {views}, {kept})"
        )

    def __deepcopy__(self, memo: Any) -> FittedBase:
        return self  # immutable: clones share it

    @property
    def view_dims(self) -> dict[str, int]:
        """Width of every view."""
        return self.prepared.reference.view_dims

    @property
    def samples(self) -> MultiViewData | None:
        """Labelled base samples that things may be chosen on: the rows, or some of them."""
        return self.sample if self.rows is None else self.rows

    def without_rows(self) -> FittedBase:
        """What was learnt alone, as a file holds it."""
        # Where the state is not made yet, the sums are all there is.
        stream = self.stream if self.pending else None
        return replace(self, rows=None, sample=None, stream=stream)

    def changes(self, method: Contract) -> dict[str, str]:
        """Parameters of a method that differ from those it was fitted with."""
        if type(method).__name__ != self.method:
            return {"method": type(method).__name__}
        now = method.described()
        if not isinstance(method.random_state, Integral):
            now.pop("random_state", None)  # None or a generator: any number drawn will do
        return {name: text for name, text in now.items() if self.parameters.get(name) != text}

    def fitted_for(self, method: Contract) -> FittedBase:
        """The same for a method whose parameters may have changed: learnt again if they have."""
        changed = self.changes(method)
        if not changed and not self.pending:
            return self
        listed = shorten(f"{name}={text}" for name, text in changed.items())
        if self.stream is not None:
            if changed.keys() & {*FIXED, "method"}:
                raise FewviewError(
                    "the first part of this base set has fixed what cannot be changed now: "
                    f"{listed}; set it back, or begin again with all parts"
                )
            return self.stream.finish(method, self.task)
        if self.rows is None:
            raise FewviewError(
                f"this base was fitted by {self.method} with other parameters, and its rows are "
                f"not here to learn again: {listed}; set them back, or call fit_base with the "
                "base set"
            )
        learn = method.prepare_rows if self.rows.labels is None else method.prepare_base
        prepared = learn(self.rows, self.task)
        # For an open world: learnt again where it had been learnt.
        playing = self.thresholds is not None
        return FittedBase.of(method, self.rows, self.task, prepared, playing)


def refuse_overlap(base: Iterable[Any], novel: Iterable[Any]) -> None:
    """Raise an error if base and novel classes overlap."""
    # As texts: the number 1 of one table and the word "1" of another are the same class.
    known = {str(label) for label in base}
    overlap = [label for label in novel if str(label) in known]
    if overlap:
        raise FewviewError(
            f"class {shorten(map(repr, overlap))} is in the base set and among the supports; base "
            "and novel classes must not overlap"
        )
