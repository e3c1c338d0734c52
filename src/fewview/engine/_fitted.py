"""What is left of a base set after learning from it: `FittedBase`, and what it was learnt for.

It is immutable, so that `clone` and `GridSearchCV` share it. One that was read from a file has no
rows and refuses other parameters; one made by `fit_base` still has them and learns again.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fewview.engine._state import Prepared
from fewview.episodes._task import TaskSpec
from fewview.ground._errors import FewviewError, shorten
from fewview.samples._data import MultiViewData
from fewview.samples._masks import MissingRule
from fewview.samples._rates import largest_rate

if TYPE_CHECKING:
    from fewview.engine._contract import Method
    from fewview.engine._rejection import Thresholds
    from fewview.engine._streaming import BaseStream

# Missing rate that automatic settings are chosen for where the base set is complete.
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

    Args:
        base: the base set.
        way: classes per task.
        shot: supports per class.
        queries: queries per class.
        eta: missing rate, uniform over views.

    Example:
        >>> base = MultiViewData({"a": np.ones((9, 1)), "b": np.ones((9, 2))}, labels=range(9))
        >>> task = usual_task(base, queries=4)
        >>> task.way, task.shot, task.queries, task.eta
        (3, 1, 4, 0.3)
    """
    if way is None:
        way = max(2, min(USUAL_WAY, (len(base.classes) - 2) // 2))
    rule, rate = MissingRule(), eta
    if rate is None and not base.mask.all():
        # Sorted rows, so that the rule does not depend on the order of the samples.
        rows = np.asarray(base.mask)
        rule = MissingRule("patterns", patterns=rows[np.lexsort(rows.T[::-1])])
        rate = base.missing_rate
    elif rate is None:
        rate = min(USUAL_ETA, largest_rate(base.n_views))
    return TaskSpec(
        way=way,
        shot=1 if shot is None else shot,
        queries=15 if queries is None else queries,
        eta=rate,
        missing=rule,
    )


@dataclass(frozen=True, eq=False)
class FittedBase:
    """A base set that a method has learnt from.

    Attributes:
        method: name of the class of the method.
        key: all its parameters that change results, as `Method.key` writes them.
        classes: the base classes; none where the rows had no labels.
        fingerprint: of the base set.
        task: what settings were chosen for.
        prepared: scaling, means and state.
        rows: the base set itself; None where only what was learnt is known.
        thresholds: of rejection, by wanted false-reject rate; None where none were set yet.
        n_samples: size of the base set.
        sample: some of its samples, where it came in parts and the rows were not kept.
        stream: the sums of a base set that came in parts; not written to files.
        pending: the state is not made yet, because parts may still come.

    Example:
        >>> from fewview.methods.proto import Proto
        >>> clf = Proto().fit_base([[0.0], [1.0], [8.0], [9.0]], ["a", "a", "b", "b"])
        >>> clf.base
        FittedBase(Proto, 4 samples, 2 classes, views: view0[1], rows kept)
    """

    method: str
    key: str
    classes: tuple[Hashable, ...]
    fingerprint: str
    task: TaskSpec
    prepared: Prepared
    rows: MultiViewData | None = None
    thresholds: Thresholds | None = None
    n_samples: int = 0
    sample: MultiViewData | None = None
    stream: BaseStream | None = None
    pending: bool = False

    def __repr__(self) -> str:
        dims = self.prepared.reference.view_dims
        views = ", ".join(f"{view}[{width}]" for view, width in dims.items())
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

    def without_rows(self) -> FittedBase:
        """What was learnt alone, as a file holds it."""
        # Where the state is not made yet, the sums are all there is.
        stream = self.stream if self.pending else None
        return replace(self, rows=None, sample=None, stream=stream)

    def completed(self, method: Method) -> FittedBase:
        """The same for a method whose parameters may have changed, its state made from the sums.

        Only a base set that came in parts is changed. Its first part has fixed the scaling of the
        views and how many components they have.
        """
        changed = self.changes(method)
        if self.stream is None or not (self.pending or changed):
            return self
        fixed = [part for part in changed if part.partition("=")[0] in FIXED]
        if fixed or type(method).__name__ != self.method:
            raise FewviewError(
                f"the first part of this base set has fixed what cannot be changed now: "
                f"{shorten(fixed or changed)}; set it back, or begin again with all parts"
            )
        return self.stream.finish(method, self.task)

    @property
    def samples(self) -> MultiViewData | None:
        """Labelled base samples that things may be chosen on: the rows, or some of them."""
        return self.sample if self.rows is None else self.rows

    def refuse_overlap(self, classes: Any) -> None:
        """Raise an error if one of the novel classes is a base class."""
        refuse_overlap(self.classes, classes)

    def prepared_for(self, method: Method) -> Prepared:
        """What was learnt, for a method with the same parameters; learnt again from rows if not."""
        if self.stream is not None:
            return self.completed(method).prepared.to(method.torch_device)
        changed = self.changes(method)
        device = method.torch_device
        if not changed:
            return self.prepared.to(device)
        if self.rows is None:
            raise FewviewError(
                f"this base was fitted by {self.method} with other parameters, and its rows are "
                f"not here to learn again: {shorten(changed)}; set them back, or call fit_base "
                "with the base set"
            )
        if self.rows.labels is None:
            return method.prepare_rows(self.rows, self.task)
        return method.prepare_base(self.rows, self.task)

    def changes(self, method: Method) -> list[str]:
        """Parameters of a method that differ from those it was fitted with."""
        if type(method).__name__ != self.method:
            return [f"the method (now {type(method).__name__})"]
        before = set(self.key.split(","))
        return [part for part in method.key().split(",") if part not in before]


def refuse_overlap(base: Any, novel: Any) -> None:
    """Raise an error if base and novel classes overlap.

    Example:
        >>> refuse_overlap(["a"], ["a", "b"])
        Traceback (most recent call last):
        ...
        fewview.FewviewError: class 'a' is in the base set and among the supports; ...
    """
    overlap = set(base) & set(novel)
    if overlap:
        raise FewviewError(
            f"class {shorten(map(repr, overlap))} is in the base set and among the supports; base "
            "and novel classes must not overlap"
        )
