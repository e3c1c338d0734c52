"""The learning half of the estimator face: a base set, and a few labelled samples of new classes.

What is remembered of both is here; `Method` answers queries with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from numbers import Integral
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from fewview.engine._contract import Contract, labelled_data
from fewview.engine._fitted import FittedBase, refuse_overlap, usual_task
from fewview.engine._parameters import choose
from fewview.engine._reservoir import row_keys
from fewview.engine._state import Prepared
from fewview.engine._streaming import BaseStream
from fewview.engine.open_world._known import Known, learn_known
from fewview.engine.open_world._rejection import joined_labels
from fewview.engine.open_world._sets import SetLimits, learn_sets
from fewview.episodes._task import TaskSpec
from fewview.ground._errors import FewviewError
from fewview.samples._data import MultiViewData
from fewview.samples._inputs import as_data, is_plain
from fewview.samples._masks import MissingRule

Self = TypeVar("Self", bound="Fitting")
IntArray = NDArray[np.intp]


class _Learnt:
    """What `fit` leaves behind; not under `Parameters`, so that these are no parameters."""

    classes_: NDArray[Any]
    prepared_: Prepared
    support_: MultiViewData
    known_: Known | None  # base classes that queries may be of
    seed_: int  # what `random_state` stood for


class Fitting(_Learnt, Contract):
    """What a method takes before queries come."""

    # ------------------------------------------------------------------ base classes

    def fit_base(self: Self, base: Any, y: Any = None, task: TaskSpec | None = None) -> Self:
        """Take a base set and learn from it now; `fit` then only needs the supports.

        Args:
            base: base samples with labels, or without and `y` given. Samples without any labels
                still tell how views are scaled and vary; see `prepare_alone`.
            y: labels of the base samples.
            task: what is learnt for; a common case when None, see `usual_task`.
        """
        self.validate()
        if isinstance(base, FittedBase):
            base.fitted_for(self)  # refuses what does not go together
            self.base = base
            return self
        data = as_data(base, y)
        if data.labels is None:
            self._refuse_no_labels()
            self.base = data
            return self
        task = task or usual_task(data)
        with self._seeded(fresh=True):
            prepared = self.prepare_base(data, task)
            self.base = FittedBase.of(self, data, task, prepared, playing=True)
        return self

    @contextmanager
    def _seeded(self, fresh: bool = False) -> Iterator[None]:
        """Inside, `random_state` is a number: one that was drawn, where it is not.

        Unless it is to be a fresh one, it is the one that was drawn before.
        """
        given = self.random_state
        if isinstance(given, Integral):
            yield
            return
        drawn = getattr(self, "seed_", None)
        if isinstance(self.base, FittedBase) and self.base.method == type(self).__name__:
            drawn = int(self.base.parameters["random_state"])
        if fresh or drawn is None:
            drawn = int(check_random_state(given).randint(2**31 - 1))
        self.random_state = self.seed_ = drawn
        try:
            yield
        finally:
            self.random_state = given

    def fit_unlabelled(self: Self, rows: Any, task: TaskSpec | None = None) -> Self:
        """Learn from rows without labels now, so that what was learnt can be saved before `fit`.

        Unlike `fit_base` with such rows, supports are not counted among them later on.

        Args:
            rows: samples; labels are not looked at.
            task: what is learnt for; a common case when None.

        Examples:
            >>> from fewview import Marginal
            >>> from fewview.datasets import make_few_shot
            >>> Marginal().fit_unlabelled(make_few_shot(n_per_class=12)).base
            FittedBase(Marginal, 120 samples, 0 classes, views: ..., rows kept)
        """
        self.validate()
        self._refuse_no_labels()
        data = as_data(rows).with_labels(None)
        task = task or usual_task(data)
        with self._seeded(fresh=True):
            self.base = FittedBase.of(self, data, task, self.prepare_rows(data, task))
        return self

    def partial_fit_base(
        self: Self, base: Any, y: Any = None, task: TaskSpec | None = None
    ) -> Self:
        """Learn from one more part of the base set; of its rows a bounded sample is kept.

        The first part fixes the scaling of the views (and Marginal's principal axes), so it should
        be a fair sample. See `BaseStream` for several machines.

        Args:
            base: labelled base samples.
            y: their labels, unless `base` has them.
            task: what is learnt for; a common case when None.
        """
        with self._seeded():
            self._learn_part(as_data(base, y), task)
        return self

    def _learn_part(self, part: MultiViewData, task: TaskSpec | None) -> None:
        if isinstance(self.base, FittedBase) and isinstance(self.base.stream, BaseStream):
            stream = self.base.stream
        elif self.base is None:
            stream = BaseStream.start(self, part)
        else:
            raise FewviewError(
                "there is a base set already, and it did not come in parts, so nothing can be "
                "added to it; set base=None first to begin a new one"
            )
        self.base = stream.update(part).finish(self, task, prepare=False)

    def use_base(self: Self, stream: BaseStream, task: TaskSpec | None = None) -> Self:
        """Take what a stream of this method has gathered as the base set; `task` as above."""
        with self._seeded():
            self.base = stream.finish(self, task)
        return self

    def _refuse_no_labels(self) -> None:
        if self.tags.needs_base:
            raise FewviewError(
                f"{type(self).__name__} learns from base classes first: give labelled samples as "
                "base=..., or call fit_base(base) before fit"
            )

    def _base_classes(self) -> list[Any] | None:
        """Labels of the base set; None where there is none, or one without labels."""
        if self.base is None:
            return None
        if isinstance(self.base, FittedBase):
            return list(self.base.classes) or None
        base = as_data(self.base)
        return None if base.labels is None else base.classes.tolist()

    # ------------------------------------------------------------------ new classes

    def fit(self: Self, X: Any, y: Any = None, *, classes: str = "new") -> Self:
        """Learn new classes from a few labelled samples.

        Args:
            X: supports: MultiViewData, one 2-D array or sparse matrix, a dict of arrays, frames or
                sparse matrices, or a MuData-like object.
            y: their labels, unless X has them.
            classes: what queries may be: `"new"` for the classes of the supports, or `"all"` for
                these and the base classes, one probability over both. Which half a query is of is
                calibrated on base classes that play new ones, with halves of equal size.

        Example:
            >>> from fewview import Proto
            >>> from fewview.datasets import make_few_shot, split_few_shot
            >>> base, support, _ = split_few_shot(make_few_shot())
            >>> clf = Proto().fit_base(base).fit(support, classes="all")
            >>> clf.predict_proba(base[:3]).shape
            (3, 10)
        """
        self.validate()
        choose("classes", classes, ("new", "all"))
        support = self._supports(X, y)
        if len(support.classes) < 2:
            raise FewviewError(
                "supports are of one class only; at least two are needed (use partial_fit to give "
                "them one after the other)"
            )
        support = in_order(support)
        with self._seeded(fresh=not isinstance(self.base, FittedBase)):
            prepared = self._prepared_for(support)
        prepared = self.with_new_views(prepared, support)
        known = self._known(prepared) if classes == "all" else None
        return self._take(in_order(support.like(prepared.reference, "support")), prepared, known)

    def partial_fit(self: Self, X: Any, y: Any = None, classes: Any = None) -> Self:
        """Add shots or classes to what `fit` got, without learning from base classes again.

        Args:
            X: more supports, as for `fit`.
            y: their labels, unless X has them.
            classes: all labels that may come, where they are known; anything else is an error.
        """
        known = None  # what was learnt, where more supports do not change it
        if not hasattr(self, "support_"):
            self.validate()
            support = self._supports(X, y)
        else:
            self._check_features(X)
            more = self._supports(X, y).like(self.prepared_.reference, "support")
            support = MultiViewData.concat([self.support_.without_ids(), more.without_ids()])
            known = None if self._base_classes() is None else self.prepared_
        if classes is not None:
            strange = set(support.classes.tolist()) - set(np.asarray(classes).tolist())
            if strange:
                raise FewviewError(f"label {next(iter(strange))!r} is not among the given classes")
        support = in_order(support)
        with self._seeded():
            prepared = known or self._prepared_for(support)
        kept = getattr(self, "known_", None)
        return self._take(in_order(support.like(prepared.reference, "support")), prepared, kept)

    def _supports(self, X: Any, y: Any) -> MultiViewData:
        support = labelled_data(
            as_data(X, y, self._reference),
            None,
            "support",
            f"{type(self).__name__} requires y to be passed, but the target y is None: supports "
            "have no labels; give y, or labels in the MultiViewData",
        )
        refuse_overlap(self._base_classes() or (), support.classes.tolist())
        return support

    @property
    def _reference(self) -> MultiViewData | None:
        """Views, columns and categories of the base set; None without one."""
        if isinstance(self.base, FittedBase):
            return self.base.prepared.reference
        return None if self.base is None else as_data(self.base)[:0]

    def _take(
        self: Self, support: MultiViewData, prepared: Prepared, known: Known | None = None
    ) -> Self:
        """Remember supports and what goes with them."""
        self.classes_ = support.classes
        self.known_ = known
        if known is not None:
            self.classes_ = joined_labels(support.classes, known.classes.labels)
        self.prepared_ = prepared
        self.support_ = support.like(prepared.reference, "support")
        return self

    def _own_task(self, support: MultiViewData, n_views: int | None = None) -> TaskSpec:
        """The task that supports are of; as for base samples with the first `n_views` views."""
        mask = np.asarray(support.mask)[:, :n_views]
        mask = mask[mask.any(axis=1)]
        return TaskSpec(
            way=max(2, len(support.classes)),
            shot=int(np.bincount(support.codes).min()),
            eta=float(1 - mask.mean()),
            missing=MissingRule(kind="patterns", patterns=mask),
        )

    def _prepared_for(self, support: MultiViewData) -> Prepared:
        if isinstance(self.base, FittedBase):
            fitted = self.base = self.base.fitted_for(self)
            return fitted.prepared.to(self.torch_device)
        task = self._own_task(support)
        rows = support
        if self.base is not None:
            base = as_data(self.base)
            if base.labels is not None:
                return self.prepare_base(base, task)
            alike = support.like(base[:0], "support")
            rows = MultiViewData.concat([base.without_ids(), alike.without_ids()])
        self._refuse_no_labels()
        return self.prepare_rows(rows, task)

    def _known(self, prepared: Prepared) -> Known:
        """Base classes as classes of queries; `fit_base` has learnt that."""
        if isinstance(self.base, FittedBase) and self.base.known is not None:
            return self.base.known
        if isinstance(self.base, FittedBase):
            rows = self.base.samples
        else:
            rows = None if self.base is None else as_data(self.base)
        if rows is None or rows.labels is None:
            raise FewviewError(
                'classes="all" is about base classes and new ones, and what base classes look like '
                "is not here; call fit_base with labelled base samples"
            )
        task, learnt = usual_task(rows), prepared
        if isinstance(self.base, FittedBase):
            task, learnt = self.base.task, self.base.prepared
        with self._seeded():
            return learn_known(self, rows, task, learnt)

    def calibrate_sets(self: Self) -> Self:
        """Learn what `predict_sets` needs from the base set now, so that it is saved too.

        For the task that `fit_base` was given. `predict_sets` does it by itself where the base
        samples are here.

        Example:
            >>> from fewview import Proto
            >>> from fewview.datasets import make_few_shot, split_few_shot
            >>> base, _, _ = split_few_shot(make_few_shot())
            >>> Proto().fit_base(base).calibrate_sets().base.sets.way
            2
        """
        if not isinstance(self.base, FittedBase):
            raise FewviewError(
                "call fit_base first: sets of classes are calibrated on base classes"
            )
        fitted = self.base.fitted_for(self)
        self.base = replace(fitted, sets=self._learnt_sets(fitted.task))
        return self

    def _learnt_sets(self, task: TaskSpec | None = None) -> SetLimits:
        """Limits of sets for a task, or for the one that the supports are of."""
        if isinstance(self.base, FittedBase):
            rows = self.base.samples
        else:
            rows = None if self.base is None else as_data(self.base)
        if rows is None or rows.labels is None:
            raise FewviewError(
                "sets of classes are calibrated on base classes, and their samples are not here; "
                "call fit_base with them, and calibrate_sets before save ('fewview fit --sets')"
            )
        with self._seeded():
            task = task or self._own_task(self.support_, rows.n_views)
            found: SetLimits = learn_sets(self, rows, task)
        return found

    @property
    def n_features_in_(self) -> int:
        """Features of all views together, after `fit`."""
        return self.support_.shape[1]

    @property
    def feature_names_in_(self) -> NDArray[Any]:
        """Names of the columns where one table was given; as in scikit-learn, absent elsewhere."""
        columns = self.support_.columns.get("view0")
        if columns is None or self.support_.n_views > 1:
            raise AttributeError("the features have no names, or there are several views")
        return np.array(columns, dtype=object)

    def _check_features(self, X: Any) -> None:
        """scikit-learn's message where one array has another number of columns."""
        if is_plain(X) and self.support_.n_views == 1:
            from sklearn.utils.validation import _check_n_features

            try:
                _check_n_features(self, as_data(X).view("view0"), reset=False)
            except ValueError as error:
                raise FewviewError(str(error)) from None


def content_order(data: MultiViewData) -> IntArray:
    """An order of samples that depends on what they are, not on how they came."""
    with np.errstate(over="ignore"):
        blocks = {v: data.view(v).astype(np.float32) + 0.0 for v in sorted(data.view_names)}
    mask = data.mask[:, [data.view_names.index(view) for view in blocks]]
    return np.argsort(row_keys(MultiViewData.unchecked(blocks, mask)), kind="stable")


def in_order(support: MultiViewData) -> MultiViewData:
    """Supports as methods get them: draws are keyed by position, which follows from content."""
    return support[content_order(support)]
