"""The estimator face of a method: one task at a time, as scikit-learn users expect it.

`fit_base` takes known classes, `fit` a few labelled samples of new ones, `predict` the rest. What
a method does with them is in `base.py`; here are inputs, remembered supports, rejection, reasons
and files.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Hashable
from dataclasses import replace
from os import PathLike
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import NotFittedError
from torch import Tensor

from fewview.engine._fitted import FittedBase, refuse_overlap, usual_task
from fewview.engine._inputs import as_data, is_plain
from fewview.engine._rejection import (
    Thresholds,
    check_reject,
    rejection_label,
    set_thresholds,
    too_few_classes,
    with_label,
)
from fewview.engine._state import Prepared, State, Tags
from fewview.episodes._task import TaskSpec
from fewview.ground._draws import combine, stream_key
from fewview.ground._errors import FewviewError, FewviewWarning
from fewview.numerics._batch import EpisodeBatch, ViewTensors
from fewview.samples._data import MultiViewData
from fewview.samples._masks import MissingRule
from fewview.samples._scaling import fit_scaling

if TYPE_CHECKING:
    from fewview.engine._contract import Method
    from fewview.engine._explaining import Explanation
    from fewview.engine._streaming import BaseStream

# Share of queries that would have to change class for balance, above which users are warned.
UNBALANCED = 0.35
_thresholds: dict[Hashable, Thresholds] = {}
Self = TypeVar("Self", bound="Estimator")


class Estimator(ClassifierMixin, BaseEstimator, ABC):  # type: ignore[misc]
    """What every method does for a single task; `Method` adds the contract."""

    base: Any
    scaling: str
    random_state: int
    tags: ClassVar[Tags]
    classes_: NDArray[Any]
    prepared_: Prepared
    support_: MultiViewData

    @abstractmethod
    def validate(self) -> None:
        """Check hyper-parameters."""

    @abstractmethod
    def prepare_base(self, base: MultiViewData, task: TaskSpec) -> Prepared:
        """Scale a base set and learn from it."""

    @abstractmethod
    def prepare_alone(self, rows: MultiViewData, task: TaskSpec, seed: int) -> State:
        """Do without base classes."""

    @abstractmethod
    def score_batch(self, batch: EpisodeBatch, prepared: Prepared) -> Tensor:
        """Score one batch of scaled tasks."""

    @property
    @abstractmethod
    def torch_device(self) -> torch.device:
        """Where tensors live."""

    @property
    @abstractmethod
    def _torch_dtype(self) -> torch.dtype: ...

    @property
    @abstractmethod
    def _numpy_dtype(self) -> Any: ...

    # ------------------------------------------------------------------ base classes

    def fit_base(self: Self, base: Any, y: Any = None, task: TaskSpec | None = None) -> Self:
        """Take a base set and learn from it now; `fit` then only needs the supports.

        Args:
            base: base samples with labels, or without and `y` given. Samples without any labels
                still tell how views are scaled and vary; see `prepare_alone`.
            y: labels of the base samples.
            task: what automatic settings are chosen for; a common case when None, see
                `fewview.engine._fitted.usual_task`.
        """
        self.validate()
        if isinstance(base, FittedBase):
            base.prepared_for(self._method)
            self.base = base
            return self
        data = as_data(base, y)
        if data.labels is None:
            self._refuse_no_labels()
            self.base = data
            return self
        task = task or usual_task(data)
        prepared = self.prepare_base(data, task)
        self.base = FittedBase(
            method=type(self).__name__,
            key=self._method.key(),
            classes=tuple(data.classes.tolist()),
            fingerprint=data.fingerprint,
            task=task,
            prepared=prepared,
            rows=data,
            n_samples=len(data),
        )
        return self

    def fit_unlabelled(self: Self, rows: Any, task: TaskSpec | None = None) -> Self:
        """Learn from rows without labels now, so that what was learnt can be saved before `fit`.

        Unlike `fit_base` with such rows, supports are not counted among them later on.

        Args:
            rows: samples; labels are not looked at.
            task: what is learnt for; a common case when None.

        Examples:
            >>> from fewview.engine._checks import synthetic_data
            >>> from fewview.methods.marginal._marginal import Marginal
            >>> Marginal().fit_unlabelled(synthetic_data()[0]).base
            FittedBase(Marginal, 120 samples, 0 classes, views: ..., rows kept)
        """
        self.validate()
        self._refuse_no_labels()
        data = as_data(rows).with_labels(None)
        task = task or usual_task(data)
        self.base = FittedBase(
            method=type(self).__name__,
            key=self._method.key(),
            classes=(),
            fingerprint=data.fingerprint,
            task=task,
            prepared=self.prepare_rows(data, task),
            rows=data,
            n_samples=len(data),
        )
        return self

    def prepare_rows(self, rows: MultiViewData, task: TaskSpec) -> Prepared:
        """Scale rows that are not base classes and learn from them what they tell.

        Args:
            rows: unlabelled samples, supports or both, unscaled.
            task: shape of the task.
        """
        scaling = fit_scaling(rows, self.row_scaling)
        scaled = scaling.transform(rows, self._numpy_dtype)
        state = self.prepare_alone(scaled, task, self.random_state)
        return Prepared(scaling, None, state.to(self.torch_device, self._torch_dtype), rows[:0])

    def partial_fit_base(
        self: Self, base: Any, y: Any = None, task: TaskSpec | None = None
    ) -> Self:
        """Learn from one more part of the base set; of its rows a bounded sample is kept.

        The first part fixes the scaling of the views (and Marginal's principal axes), so it should
        be a fair sample. Automatic settings are chosen on the kept samples when `fit` is called
        next. See `fewview.engine._streaming.BaseStream` for several machines.

        Args:
            base: labelled base samples.
            y: their labels, unless `base` has them.
            task: what is learnt for; a common case when None.
        """
        from fewview.engine._streaming import BaseStream

        part = as_data(base, y)
        if isinstance(self.base, FittedBase) and self.base.stream is not None:
            stream = self.base.stream
        elif self.base is None:
            stream = BaseStream.start(self._method, part)
        else:
            raise FewviewError(
                "there is a base set already, and it did not come in parts, so nothing can be "
                "added to it; set base=None first to begin a new one"
            )
        self.base = stream.update(part).finish(self._method, task, choose=False)
        return self

    def use_base(self: Self, stream: BaseStream, task: TaskSpec | None = None) -> Self:
        """Take what a stream has gathered as the base set.

        Args:
            stream: of this method.
            task: what is learnt for; a common case when None.
        """
        self.base = stream.finish(self._method, task)
        return self

    # ------------------------------------------------------------------ new classes

    def fit(self: Self, X: Any, y: Any = None) -> Self:
        """Learn new classes from a few labelled samples.

        Args:
            X: supports: MultiViewData, one 2-D array or sparse matrix, a dict of arrays, frames or
                sparse matrices, or a MuData-like object.
            y: their labels, unless X has them.
        """
        self.validate()
        support = self._supports(X, y)
        if len(support.classes) < 2:
            raise FewviewError(
                "supports are of one class only; at least two are needed (use partial_fit to give "
                "them one after the other)"
            )
        self._note_features(X, support)
        return self._fit(support)

    def partial_fit(self: Self, X: Any, y: Any = None, classes: Any = None) -> Self:
        """Add shots or classes to what `fit` got, without learning from base classes again.

        Args:
            X: more supports, as for `fit`.
            y: their labels, unless X has them.
            classes: all labels that may come, where they are known; anything else is an error.
        """
        known = None
        if not hasattr(self, "support_"):
            self.validate()
            support = self._supports(X, y)
            self._note_features(X, support)
        else:
            self._check_features(X)
            more = self._supports(X, y).like(self.prepared_.reference, "support")
            support = MultiViewData.concat([self.support_.without_ids(), more.without_ids()])
            base = self._base_classes()
            if base is not None:
                refuse_overlap(base, support.classes.tolist())
                known = self.prepared_
        if classes is not None:
            strange = set(support.classes.tolist()) - set(np.asarray(classes).tolist())
            if strange:
                raise FewviewError(f"label {next(iter(strange))!r} is not among the given classes")
        return self._fit(support, known)

    def _base_classes(self) -> list[Any] | None:
        """Labels of the base set; None where there is none, or one without labels."""
        if self.base is None:
            return None
        if isinstance(self.base, FittedBase):
            return list(self.base.classes) or None
        base = as_data(self.base)
        return None if base.labels is None else base.classes.tolist()

    def _supports(self, X: Any, y: Any) -> MultiViewData:
        support = as_data(X, y)
        if support.labels is None:
            raise FewviewError(
                f"{type(self).__name__} requires y to be passed, but the target y is None: "
                "supports have no labels; give y, or labels in the MultiViewData"
            )
        if (support.codes < 0).any():
            row = int(np.flatnonzero(support.codes < 0)[0])
            raise FewviewError(f"support row {row} has no label; label it or drop it")
        return support

    def _fit(self: Self, support: MultiViewData, prepared: Prepared | None = None) -> Self:
        prepared = self._prepare_for(support) if prepared is None else prepared
        self.classes_ = support.classes
        self.prepared_ = prepared
        self.support_ = support.like(self.prepared_.reference, "support")
        return self

    def _prepare_for(self, support: MultiViewData) -> Prepared:
        if isinstance(self.base, FittedBase):
            self.base.refuse_overlap(support.classes.tolist())
            fitted = self.base.completed(self._method)
            self.base = fitted
            return fitted.prepared_for(self._method)
        counts = np.bincount(support.codes)
        task = TaskSpec(
            way=max(2, len(support.classes)),
            shot=int(counts.min()),
            eta=support.missing_rate,
            missing=MissingRule(kind="patterns", patterns=np.asarray(support.mask)),
        )
        rows = support
        if self.base is not None:
            base = as_data(self.base)
            if base.labels is not None:
                refuse_overlap(base.classes.tolist(), support.classes.tolist())
                return self.prepare_base(base, task)
            rows = MultiViewData.concat(
                [base.without_ids(), support.like(base[:0], "support").without_ids()]
            )
        self._refuse_no_labels()
        return self.prepare_rows(rows, task)

    def _refuse_no_labels(self) -> None:
        if self.tags.needs_base:
            raise FewviewError(
                f"{type(self).__name__} learns from base classes first: give labelled samples as "
                "base=..., or call fit_base(base) before fit"
            )

    def _note_features(self, X: Any, support: MultiViewData) -> None:
        self.n_features_in_ = support.shape[1]
        columns = support.columns.get("view0")
        if support.view_names == ("view0",) and columns is not None and hasattr(X, "columns"):
            self.feature_names_in_ = np.array(columns, dtype=object)
        else:
            self.__dict__.pop("feature_names_in_", None)

    def _check_features(self, X: Any) -> None:
        """scikit-learn's message where one array has another number of columns."""
        if is_plain(X) and self.support_.n_views == 1:
            from sklearn.utils.validation import _check_n_features

            try:
                _check_n_features(self, as_data(X).view("view0"), reset=False)
            except ValueError as error:
                raise FewviewError(str(error)) from None

    # ------------------------------------------------------------------ queries

    def _queries(self, X: Any) -> MultiViewData:
        if not hasattr(self, "prepared_"):
            raise NotFittedError(f"this {type(self).__name__} is not fitted; call fit first")
        if len(self.classes_) < 2:
            raise FewviewError(
                f"only class {self.classes_.tolist()[0]!r} is known so far; add another with "
                "partial_fit first"
            )
        self._check_features(X)
        return as_data(X).like(self.prepared_.reference, "query")

    def query_scores(self, X: Any) -> Tensor:
        """Scores of queries for the classes in `classes_`: [n_query, way], on the CPU."""
        query = self._queries(X)
        together = self.tags.transductive and getattr(self, "transductive", True)
        if len(query) == 1 and together:
            warnings.warn(
                f"{type(self).__name__} looks at all queries together; with a single one it falls "
                "back to what the supports say",
                FewviewWarning,
                stacklevel=3,
            )
        batch = self.task_batch(query)
        if self.tags.assumes_balance:
            self._warn_if_unbalanced(batch)
        return self.score_batch(batch, self.prepared_)[0].cpu()

    def task_batch(self, query: MultiViewData) -> EpisodeBatch:
        """The supports given to `fit` and some queries as one scaled task on the device."""
        query = query.like(self.prepared_.reference, "query")
        dtype = self._numpy_dtype
        scaling = self.prepared_.scaling
        both = [
            ViewTensors.of(scaling.transform(part, dtype), self.torch_device, self._torch_dtype)
            for part in (self.support_, query)
        ]
        seed = combine(np.array([self.random_state], dtype=np.uint64), stream_key("estimator"))
        return EpisodeBatch(
            support=tuple(view[None] for view in both[0].views),
            query=tuple(view[None] for view in both[1].views),
            support_mask=both[0].mask[None],
            query_mask=both[1].mask[None],
            support_labels=torch.from_numpy(self.support_.codes)[None].to(self.torch_device),
            query_labels=None,
            seeds=torch.from_numpy(seed.view(np.int64)).to(self.torch_device),
            way=len(self.classes_),
            view_names=query.view_names,
        )

    def _warn_if_unbalanced(self, batch: EpisodeBatch) -> None:
        """Warn where the nearest supports put most queries of one task into few classes."""
        from fewview.methods.partial_nn import PartialNN

        if batch.n_query < 5 * batch.way:
            return  # too few to tell
        # Distances over shared views: padded views draw queries to some classes by themselves.
        nearest = PartialNN().scores(batch, State())[0].argmax(-1)
        shares = torch.bincount(nearest, minlength=batch.way).double() / batch.n_query
        if float((shares - 1 / batch.way).abs().sum()) / 2 > UNBALANCED:
            text = ", ".join(f"{100 * share:.0f} %" for share in shares[:10].tolist())
            warnings.warn(
                f"{type(self).__name__} assumes equally many queries of every class, and these "
                f"look unbalanced ({text} by nearest support); a method that does not assume "
                "it may do better",
                FewviewWarning,
                stacklevel=4,
            )

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Class probabilities of queries, [n_query, way], columns as in `classes_`."""
        scores = self.query_scores(X).to(torch.float64)
        return torch.softmax(scores, dim=-1).numpy()

    def predict(
        self, X: Any, reject: float | None = None, reject_label: Hashable = None
    ) -> NDArray[Any]:
        """Labels of queries, [n_query].

        Answers come in the order of the rows. A dict of frames is joined by identifier first:
        answers then come in the order of `MultiViewData.from_frames(X).ids`.

        Args:
            X: queries, as for `fit`, without labels (labels are not looked at).
            reject: share of queries of known classes that may be rejected by mistake, such as
                0.05; queries that look like none of the classes get `reject_label`. The threshold
                is set on base classes. None rejects nothing.
            reject_label: what rejected queries are called; `"unknown"`, or -1 where labels are
                numbers, when None.
        """
        best = self.query_scores(X).argmax(-1).numpy()
        out: NDArray[Any] = self.classes_[best]
        if reject is None:
            return out
        label = rejection_label(self.classes_, reject_label)
        return with_label(out, self.rejected(X, reject), label)

    def rejected(self, X: Any, rate: float = 0.05) -> NDArray[np.bool_]:
        """Whether queries look like none of the classes, bool [n_query].

        Args:
            X: queries.
            rate: share of queries of known classes that may be rejected by mistake.
        """
        check_reject(rate)
        query = self._queries(X)
        limits = self.thresholds()
        with torch.no_grad():
            fit = self._method.typicality(self.task_batch(query), self.prepared_.state)[0]
        best, place = fit.double().cpu().max(-1)
        shots = np.bincount(self.support_.codes)[place.numpy()]
        limit = limits.at(rate, shots, query.mask.sum(axis=1))
        return np.asarray(best.numpy() < limit)

    def thresholds(self) -> Thresholds:
        """What is still usual among base classes, for every rate; learnt once per base set."""
        base = self.base
        if isinstance(base, FittedBase):
            if base.thresholds is not None and not base.changes(self._method):
                return base.thresholds
            rows, task = base.samples, base.task
            if rows is None or rows.labels is None:
                raise FewviewError(
                    too_few_classes(len(base.classes))
                    or "this base set has no thresholds for rejecting (fewer than 2 classes with "
                    "4 samples, or learnt in parts) and its rows are not here; call fit_base "
                    "with the base set"
                )
            state = base.prepared_for(self._method).state
        else:
            rows = None if base is None else as_data(base)
            if rows is None or rows.labels is None:
                raise FewviewError(
                    "a threshold for rejecting is set on base classes and there are none; give "
                    "base=..., or call fit_base(base) before fit"
                )
            task = usual_task(rows)
            fitted = hasattr(self, "prepared_")
            state = self.prepared_.state if fitted else self.prepare_base(rows, task).state
        method = self._method.settled(state)
        key = (rows.fingerprint, type(self).__qualname__, method.key(), task.missing, task.eta)
        if key not in _thresholds:
            _thresholds[key] = set_thresholds(method, rows, task)
        return _thresholds[key]

    def explain(self, X: Any) -> Explanation:
        """Say what every view contributed to the decision about every query.

        Args:
            X: queries, as for `predict`.

        Returns:
            An `Explanation`: `frame()`, `plot()`, or its arrays.

        Example:
            >>> from fewview.methods.proto import Proto
            >>> clf = Proto().fit({"a": [[0.0], [9.0]], "b": [[1.0], [5.0]]}, ["cat", "dog"])
            >>> clf.explain({"a": [[8.0], [1.0]], "b": [[5.0], [2.0]]}).rows()[1]["label"]
            'cat'
        """
        query = self._queries(X)
        found = self._method.explain_batch(self.task_batch(query), self.prepared_)
        names = self._base_classes()
        neighbours = tuple(
            tuple(f"group {index}" if names is None else names[index] for index in row)
            for row in found.neighbours
        )
        return replace(
            found,
            mask=np.asarray(query.mask),
            classes=tuple(self.classes_.tolist()),
            ids=tuple(range(len(query)) if query.ids is None else query.ids.tolist()),
            neighbours=neighbours,
        )

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Accuracy on labelled queries.

        Args:
            X: queries.
            y: their labels, unless X has them.
            sample_weight: one weight per query.
        """
        from sklearn.metrics import accuracy_score

        data = as_data(X, y)
        if data.labels is None:
            raise FewviewError("queries have no labels to compare with; give y")
        if (data.codes < 0).any():
            row = int(np.flatnonzero(data.codes < 0)[0])
            raise FewviewError(f"query row {row} has no label; drop it to compute an accuracy")
        predicted = self.predict(X)
        right = [a == b for a, b in zip(predicted.tolist(), data.labels.tolist(), strict=True)]
        return float(accuracy_score(np.ones(len(right), bool), right, sample_weight=sample_weight))

    # ------------------------------------------------------------------ files

    def save(
        self, path: str | PathLike[str], *, supports: bool = True, base_rows: bool = False
    ) -> None:
        """Write the method and what it learnt to one file; see `persistence.save_model`.

        Args:
            path: the file.
            supports: whether the supports given to `fit` are written.
            base_rows: whether base samples are written too; statistics alone otherwise.
        """
        from fewview.engine._saving import save_model

        save_model(self._method, path, supports=supports, base_rows=base_rows)

    @classmethod
    def load(cls, path: str | PathLike[str], *, device: str = "cpu") -> Any:
        """Read a model; on a particular method's class, any other method is an error.

        Args:
            path: a file that `save` wrote.
            device: where to put it.
        """
        from fewview.engine._saving import load_model

        method = load_model(path, device=device)
        if not isinstance(method, cls):
            raise FewviewError(f"{path}: a model of {type(method).__name__}, not of {cls.__name__}")
        return method

    @property
    def _method(self) -> Method:
        return cast("Method", self)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.non_deterministic = not self.tags.deterministic
        return tags
