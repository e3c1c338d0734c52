"""The learning half of the estimator: a base set, and a few labelled samples of new classes."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from fewview.episodes.batch import ViewTensors
from fewview.episodes.task import TaskSpec
from fewview.errors import FewviewError, check_word
from fewview.methods.base import Contract
from fewview.methods.estimator import calibration
from fewview.methods.estimator.fitted_base import (
    FittedBase,
    add_views,
    labelled,
    learn_base,
    refuse_overlap,
    usual_task,
)
from fewview.methods.estimator.row_keys import in_order
from fewview.methods.estimator.streaming import BaseStream
from fewview.samples._data import MultiViewData
from fewview.samples._inputs import as_data, is_plain
from fewview.samples._masks import MissingRule


class Learnt:
    """What `fit` leaves behind; no dataclass, so that these are no parameters."""

    classes_: NDArray[Any]  # the new classes, and the base classes with classes="all"
    fitted_: FittedBase
    support_: MultiViewData  # in an order that follows from content
    seed_: int  # what `random_state` stood for
    known_: calibration.KnownClasses | None
    _supports: ViewTensors  # scaled once, in `fit`


@dataclass(kw_only=True, eq=False, repr=False)
class Fitting(Learnt, Contract):
    """What a method takes before queries come, and what it keeps of it."""

    # ------------------------------------------------------------------ base classes

    def fit_base(self, base: Any, y: Any = None, task: TaskSpec | None = None) -> Self:
        """Learn from a base set now; `fit` then only needs the supports.

        Args:
            base: base samples with labels, or without and `y` given; a `FittedBase`; a
                `BaseStream` of this method. Samples without any labels still tell how views are
                scaled and vary.
            y: labels of the base samples.
            task: what is learnt for; a common case when None, see `usual_task`.
        """
        self.check()
        if isinstance(base, FittedBase):
            self.base = base.fitted_for(self)
            return self
        self._draw_seed(fresh=True)
        if isinstance(base, BaseStream):
            self.base = base.finish(self, task)
            return self
        data = as_data(base, y)
        unlabelled = data.labels is None
        task = task or usual_task(data)
        self.base = learn_base(self, data, task, self.seed_, unlabelled=unlabelled)
        return self

    def partial_fit_base(self, base: Any, y: Any = None) -> Self:
        """Learn from one more part of the base set; of its rows a bounded sample is kept.

        The first part fixes the scaling of the views (and Marginal's principal axes), so it should
        be a fair sample. What is summed becomes a state at the next `fit`; see `BaseStream` for
        several machines.

        Args:
            base: labelled base samples.
            y: their labels, unless `base` has them.
        """
        part = as_data(base, y)
        stream = self.base.stream if isinstance(self.base, FittedBase) else self.base
        if self.base is None:
            self._draw_seed(fresh=True)
            stream = BaseStream.start(self, part)
        elif not isinstance(stream, BaseStream):
            raise FewviewError(
                "there is a base set already, and it did not come in parts, so nothing can be "
                "added to it; set base=None first to begin a new one"
            )
        self.base = stream.update(part)
        return self

    def _draw_seed(self, fresh: bool) -> None:
        """What `random_state` stands for: itself, or a number that is drawn from it."""
        given = self.random_state
        if isinstance(given, Integral):
            self.seed_ = int(given)
        elif fresh or not hasattr(self, "seed_"):
            self.seed_ = int(check_random_state(given).randint(2**31 - 1))

    # ------------------------------------------------------------------ new classes

    def fit(self, X: Any, y: Any = None, *, classes: str = "new") -> Self:
        """Learn new classes from a few labelled samples.

        Args:
            X: supports: MultiViewData, one 2-D array or sparse matrix, a dict of arrays, frames or
                sparse matrices, or a MuData-like object.
            y: their labels, unless X has them.
            classes: what queries may be: `"new"` for the classes of the supports, or `"all"` for
                these and the base classes, one probability over both.

        Example:
            >>> from fewview import Proto
            >>> from fewview.datasets import make_few_shot, split_few_shot
            >>> base, support, query = split_few_shot(make_few_shot(seed=0), new=4, shot=1, seed=0)
            >>> clf = Proto().fit_base(base).fit(support, classes="all")
            >>> clf.predict_proba(base[:3]).shape
            (3, 10)
        """
        self.check()
        check_word(f"classes is {classes!r}; it", classes, ("new", "all"))
        support = self._labelled_supports(X, y)
        if len(support.classes) < 2:
            raise FewviewError(
                "supports are of one class only; at least two are needed (use partial_fit to give "
                "them one after the other)"
            )
        self._draw_seed(fresh=not isinstance(self.base, FittedBase))
        support = in_order(support)
        fitted = self.add_views(self._fitted_for(support), support)
        known = calibration.known_classes(self, fitted) if classes == "all" else None
        return self._remember(support, fitted, known)

    def partial_fit(self, X: Any, y: Any = None, classes: Any = None) -> Self:
        """Add shots or classes to what `fit` got, without learning from base classes again.

        Args:
            X: more supports, as for `fit`.
            y: their labels, unless X has them.
            classes: all labels that may come, where they are known; anything else is an error.
        """
        self.check()
        support = self._labelled_supports(X, y)
        fitted = None
        if hasattr(self, "support_"):
            self._check_features(X)
            more = support.like(self.fitted_.reference, "support").without_ids()
            support = MultiViewData.concat([self.support_.without_ids(), more])
            fitted = self.fitted_ if self._base_classes() is not None else None
        if classes is not None:
            strange = set(support.classes.tolist()) - set(np.asarray(classes).tolist())
            if strange:
                raise FewviewError(f"label {next(iter(strange))!r} is not among the given classes")
        self._draw_seed(fresh=False)
        support = in_order(support)
        known = getattr(self, "known_", None)
        return self._remember(support, fitted or self._fitted_for(support), known)

    def _labelled_supports(self, X: Any, y: Any) -> MultiViewData:
        base, like = self.base, None
        if isinstance(base, (FittedBase, BaseStream)):
            like = base.reference
        elif base is not None:
            like = as_data(base)[:0]
        support = labelled(
            as_data(X, y, like),
            "support",
            f"{type(self).__name__} requires y to be passed, but the target y is None: supports "
            "have no labels; give y, or labels in the MultiViewData",
        )
        refuse_overlap(self._base_classes() or (), support.classes.tolist())
        return support

    def _base_classes(self) -> tuple[Any, ...] | None:
        """Labels of the base set; None where there is none, or one without labels."""
        if self.base is None:
            return None
        if isinstance(self.base, (FittedBase, BaseStream)):
            return tuple(self.base.classes) or None
        base = as_data(self.base)
        return None if base.labels is None else tuple(base.classes.tolist())

    def _fitted_for(self, support: MultiViewData) -> FittedBase:
        """What was learnt from the base set, or what the supports tell where there is none."""
        if isinstance(self.base, BaseStream):
            self.base = self.base.finish(self)
        if isinstance(self.base, FittedBase) and (self.base.classes or self.base.rows is None):
            self.base = found = self.base.fitted_for(self)
            return found
        task, rows = self._own_task(support), support
        if self.base is not None:
            base = self.base.rows if isinstance(self.base, FittedBase) else as_data(self.base)
            assert base is not None
            if base.labels is not None:
                return learn_base(self, base, task, self.seed_)
            alike = support.like(base[:0], "support")  # they tell how views vary, too
            rows = MultiViewData.concat([base.without_ids(), alike.without_ids()])
        return learn_base(self, rows, task, self.seed_, unlabelled=True)

    def _own_task(self, support: MultiViewData) -> TaskSpec:
        """The task that supports are of."""
        mask = np.asarray(support.mask)
        return TaskSpec(
            way=max(2, len(support.classes)),
            shot=int(np.bincount(support.codes).min()),
            eta=float(1 - mask.mean()),
            missing=MissingRule(kind="patterns", patterns=mask),
        )

    def _remember(
        self,
        support: MultiViewData,
        fitted: FittedBase,
        known: calibration.KnownClasses | None = None,
    ) -> Self:
        """Keep supports, scaled, and what goes with them."""
        self.support_ = in_order(support.like(fitted.reference, "support"))
        self.fitted_, self.known_ = fitted, known
        self.classes_ = self.support_.classes
        if known is not None:
            self.classes_ = calibration.as_labels([*self.classes_.tolist(), *known.labels])
        self._supports = self.tensors(self.support_, fitted, "support")
        return self

    def add_views(self, fitted: FittedBase, support: MultiViewData) -> FittedBase:
        """What was learnt, with views that only supports have; where nothing but scaling is."""
        learns = type(self).learn is not Contract.learn or self.tags.needs_base
        return fitted if learns else add_views(self, fitted, support)

    def _check_features(self, X: Any) -> None:
        """scikit-learn's message where one array has another number of columns."""
        if is_plain(X) and self.support_.n_views == 1:
            width = as_data(X).shape[1]
            if width != self.n_features_in_:
                raise FewviewError(
                    f"X has {width} features, but {type(self).__name__} is expecting "
                    f"{self.n_features_in_} features as input"
                )

    @property
    def n_features_in_(self) -> int:
        """Features of all views together, after `fit`."""
        if not hasattr(self, "support_"):
            raise AttributeError("n_features_in_ is there after fit")
        return self.support_.shape[1]

    @property
    def feature_names_in_(self) -> NDArray[Any]:
        """Names of the columns where one table was given; as in scikit-learn, absent elsewhere."""
        columns = self.support_.columns.get("view0")
        if columns is None or self.support_.n_views > 1:
            raise AttributeError("the features have no names, or there are several views")
        return np.array(columns, dtype=object)
