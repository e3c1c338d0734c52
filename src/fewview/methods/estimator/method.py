"""`Method`: a method as scikit-learn users expect it, one task at a time.

`fit_base` takes known classes, `fit` a few labelled samples of new ones, `predict` the rest.
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable
from copy import copy
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.exceptions import NotFittedError
from torch import Tensor

from fewview.episodes.batch import EpisodeBatch
from fewview.errors import FewviewError, FewviewWarning
from fewview.methods.estimator import calibration, diagnosis, explanation, saving
from fewview.methods.estimator.fitted_base import (
    FittedBase,
    labelled,
)
from fewview.methods.estimator.fitting import Fitting
from fewview.methods.estimator.row_keys import content_order
from fewview.numerics.random_keys import combine, stream_key
from fewview.samples._data import MultiViewData
from fewview.samples._inputs import as_data

IntArray = NDArray[np.intp]
FloatArray = NDArray[np.float64]


@dataclass(kw_only=True, eq=False, repr=False)
class Method(ClassifierMixin, Fitting):  # type: ignore[misc]
    """Base class of all methods; a method implements `scores`, and `learn` if it learns.

    Args:
        base: the base set; anything that `fit` accepts as X, with labels, or what `fit_base` made
            of it. Immutable, so `clone` and `GridSearchCV` share it.
        scaling: per-view scaling fitted on the base set (on the supports without one).
        padding: how missing views are filled for methods that cannot handle them.
        device: `"cpu"`, `"cuda"` or `"auto"`.
        dtype: `"float32"` or `"float64"`.
        max_memory: GiB that one batch of tasks may take; None means 1 on a CPU and 16 on a GPU.
        random_state: seed of everything random outside an episode list; None or a `RandomState`
            draws one whenever something is learnt, as in scikit-learn.

    Example:
        >>> class Undecided(Method):
        ...     def scores(self, batch, state):
        ...         return torch.zeros(batch.n_tasks, batch.n_query, batch.way)
        >>> Undecided().fit([[0.0], [9.0]], ["cat", "dog"]).predict_proba([[8.0]]).tolist()
        [[0.5, 0.5]]
    """

    # ------------------------------------------------------------------ queries

    def _queries(self, X: Any) -> MultiViewData:
        if not hasattr(self, "fitted_"):
            raise NotFittedError(f"this {type(self).__name__} is not fitted; call fit first")
        if len(self.support_.classes) < 2:
            raise FewviewError(
                f"only class {self.support_.classes.tolist()[0]!r} is known so far; add another "
                "with partial_fit first"
            )
        self._check_features(X)
        reference = self.fitted_.reference
        return as_data(X, like=reference).like(reference, "query")

    def _task(self, query: MultiViewData) -> tuple[EpisodeBatch, IntArray, IntArray]:
        """The supports and some queries as one task, in an order that follows from content alone.

        So neither the order of rows nor names of classes tell a method anything. With it come the
        row of every query, and the column of every class in `classes_`.
        """
        order = content_order(query)
        known, asked = self._supports, self.tensors(query[order], self.fitted_, "query")
        _, first = np.unique(self.support_.codes, return_index=True)
        columns = np.argsort(np.argsort(first))
        seed = combine(np.array([self.seed_], dtype=np.uint64), stream_key("estimator"))
        device = self.torch_device
        batch = EpisodeBatch(
            support=tuple(view[None] for view in known.views),
            query=tuple(view[None] for view in asked.views),
            support_mask=known.mask[None],
            query_mask=asked.mask[None],
            support_labels=torch.from_numpy(columns[self.support_.codes])[None].to(device),
            query_labels=None,
            seeds=torch.from_numpy(seed.view(np.int64)).to(device),
            way=len(self.support_.classes),
            view_names=known.view_names,
            has_nan=known.has_nan or asked.has_nan,
        )
        return batch, np.argsort(order), columns

    def _with_queries(self, query: MultiViewData) -> Self:
        """This method, or one that has learnt from queries too, where there is no base set."""
        if self.base is not None:
            return self
        task = self._own_task(self.support_)
        fitted = self.refit_with(self.fitted_, self.support_, query, task)
        if fitted is self.fitted_:
            return self
        knowing = copy(self)
        return knowing._remember(self.support_, fitted)

    @property
    def _links_views(self) -> bool:
        """Whether a base set has told it how views go together."""
        return self.tags.links_views and self.base is not None

    def _even_where_unrelated(self, batch: EpisodeBatch, scores: Tensor) -> Tensor:
        """Equal scores [n_query, way] for queries that share no view with any support.

        Whatever a method says of them comes from how gaps are filled, unless a base set has told
        it how views go together.
        """
        lost = unrelated(batch)
        if not bool(lost.any()):
            return scores
        told = (
            "their answers rest on what the base set tells of how views go together"
            if self._links_views
            else "all classes are equally probable for them, and the first one is predicted; give "
            "supports that have these views"
        )
        warnings.warn(
            f"{int(lost.sum())} of {len(lost)} queries share no view with any support; {told}",
            FewviewWarning,
            stacklevel=4,
        )
        return scores if self._links_views else torch.where(lost[:, None], 0.0, scores)

    def _inductive(self, batch: EpisodeBatch) -> Tensor:
        """Scores of the queries of one task, each as if it were the only one, [n_query, way]."""
        if not batch.n_query:
            return batch.support[0].new_zeros(0, batch.way)
        with torch.no_grad():
            found = self.scores_inductive(batch, self.fitted_.state)
        if found is not None:
            return found[0]
        dims = tuple(view.shape[-1] for view in batch.support)
        size = self.batch_size(batch.n_support, 1, dims, batch.way)
        rows = torch.arange(batch.n_query, device=batch.device)
        parts = (batch.one_by_one(rows[k : k + size]) for k in range(0, len(rows), size))
        return torch.cat([self.score_batch(part, self.fitted_) for part in parts])[:, 0]

    def predict_proba(self, X: Any, *, inductive: bool = False) -> FloatArray:
        """Class probabilities of queries, [n_query, classes], columns as in `classes_`.

        Args:
            X: queries, as for `fit`.
            inductive: answer every query as if it were the only one. That is what the supports say
                of it; methods that look at all queries together may say something else.

        Example:
            >>> from fewview import create
            >>> clf = create("ptmap").fit([[0.0], [9.0]], ["cat", "dog"])
            >>> clf.predict_proba([[8.0], [7.0], [1.0]], inductive=True).shape
            (3, 2)
        """
        query = self._queries(X)
        if self.known_ is not None:
            return calibration.proba_of_all(self, query, inductive)
        method = self if inductive else self._with_queries(query)
        batch, rows, columns = method._task(query)
        if inductive:
            scores = method._inductive(batch)
        else:
            scores = method.score_batch(batch, method.fitted_)[0]
        scores = method._even_where_unrelated(batch, scores).cpu()[rows][:, columns]
        return np.asarray(torch.softmax(scores.double(), dim=-1).numpy())

    def predict(
        self, X: Any, reject: float | None = None, reject_label: Hashable = None
    ) -> NDArray[Any]:
        """Labels of queries, [n_query], in the order of the rows.

        Args:
            X: queries, as for `fit`; labels are not looked at. A dict of frames is joined by
                identifier first: answers come in the order of `MultiViewData.from_frames(X).ids`.
            reject: share of queries of known classes that may be rejected by mistake, such as
                0.05; queries that look like none of the classes get `reject_label`. The threshold
                is learnt on base classes. None rejects nothing.
            reject_label: what rejected queries are called; `"unknown"`, or -1 where labels are
                numbers, when None.
        """
        best = self.predict_proba(X).argmax(-1)
        labels: NDArray[Any] = self.classes_[best]
        if reject is None:
            return labels
        calibration.check_share("reject", reject)
        label = calibration.rejection_label(self.classes_, reject_label)
        return calibration.with_label(labels, self.p_values(X) < reject, label)

    def predict_set(self, X: Any, coverage: float = 0.9) -> NDArray[np.bool_]:
        """Sets of classes that hold the true one with a stated probability, bool [n, classes].

        The limit is learnt on tasks of base classes that are held out as new ones, with the way,
        shots and gaps of these supports (conformal prediction). The promise is about queries on the
        whole, of new classes that differ as base classes do.

        Args:
            X: queries, as for `predict`.
            coverage: the probability, such as 0.9.

        Example:
            >>> from fewview import Proto
            >>> from fewview.datasets import make_few_shot, split_few_shot
            >>> base, support, query = split_few_shot(make_few_shot(seed=0), new=4, shot=1, seed=0)
            >>> Proto().fit_base(base).fit(support).predict_set(query[:5], 0.8).shape
            (5, 4)
        """
        query = self._queries(X)
        return calibration.inside_sets(self, self.predict_proba(query), query.mask, coverage)

    def p_values(self, X: Any) -> FloatArray:
        """Share of samples of a class that fit it worse than a query its best class, [n_query].

        A query is rejected where this is below the wanted rate.
        """
        return calibration.p_values(self, self._queries(X))

    def explain(self, X: Any, *, inductive: bool = False) -> explanation.Explanation:
        """Say what every view contributed to the decision about every query.

        Args:
            X: queries, as for `predict`.
            inductive: tell the evidence of a query's own views from the pull of the other queries
                also where every query then takes one more pass for each of its views.

        Example:
            >>> from fewview import Proto
            >>> clf = Proto().fit({"a": [[0.0], [9.0]], "b": [[1.0], [5.0]]}, ["cat", "dog"])
            >>> clf.explain({"a": [[8.0], [1.0]], "b": [[5.0], [2.0]]}).rows()[1]["label"]
            'cat'
        """
        return explanation.explain(self, self._queries(X), inductive)

    def explain_batch(self, batch: EpisodeBatch, fitted: FittedBase) -> explanation.Explanation:
        """Reasons for one scaled task; by default every view is left out in turn."""
        return explanation.explain_by_leaving_out(
            batch, lambda part: self.score_batch(part, fitted)
        )

    def diagnose(self, X: Any) -> list[str]:
        """What a user should know of these queries before believing the answers, in sentences.

        A single query for a method that looks at all of them together; queries that look unbalanced
        to one that assumes balance; answers that differ much from those to each query by itself.
        """
        return diagnosis.diagnose(self, self._queries(X))

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Accuracy on labelled queries.

        Args:
            X: queries.
            y: their labels, unless X has them.
            sample_weight: one weight per query.
        """
        without = "queries have no labels to compare with; give y"
        data = labelled(as_data(X, y), "query", without)
        truth = data.classes[data.codes].tolist()
        right = [a == b for a, b in zip(self.predict(X).tolist(), truth, strict=True)]
        return float(np.average(right, weights=sample_weight))

    # ------------------------------------------------------------------ files

    def save(
        self,
        path: str | PathLike[str],
        *,
        supports: bool = True,
        base_rows: bool = False,
        calibrate: bool = True,
    ) -> None:
        """Write the method and what it has learnt to one file, whole or not at all.

        Args:
            path: the file; an existing one is replaced.
            supports: False leaves the supports out; the file then waits for `fit`.
            base_rows: True writes the base samples too, so that parameters may change after
                loading.
            calibrate: learn now what rejecting, known classes and prediction sets need, where base
                samples are here: they are gone afterwards.

        Example:
            >>> import tempfile
            >>> from fewview import Proto, load_model
            >>> path = Path(tempfile.mkdtemp()) / "a.model"
            >>> Proto().fit([[0.0], [9.0]], ["cat", "dog"]).save(path)
            >>> load_model(path).predict([[8.0]]).tolist()
            ['dog']
        """
        saving.save_model(
            self, Path(path), supports=supports, base_rows=base_rows, calibrate=calibrate
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.non_deterministic = self.tags.random
        return tags


def unrelated(batch: EpisodeBatch) -> Tensor:
    """Queries of one task that share no view with any support, bool [n_query]."""
    return ~(batch.query_mask & batch.support_mask.any(1, keepdim=True)).any(-1)[0]


def load_model(path: str | PathLike[str], *, device: str = "cpu") -> Method:
    """Read a model that `Method.save` wrote; it gives the same digits as the one saved.

    Args:
        path: the file.
        device: where to put it.
    """
    method: Method = saving.load_model(Path(path), device)
    return method
