"""`Method`: a method as scikit-learn users expect it, one task at a time.

`fit_base` takes known classes, `fit` a few labelled samples of new ones (both in `_fitting.py`),
`predict` the rest. What a method does with them is its `Contract`; here are answers, rejection,
reasons and files, and nothing in the contract knows of them.
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable
from copy import copy
from dataclasses import replace
from itertools import compress
from numbers import Integral
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.exceptions import NotFittedError
from torch import Tensor

from fewview._version import __version__
from fewview.engine._contract import Contract, labelled_data
from fewview.engine._encoding import Reader, Writer, read_method, write_method
from fewview.engine._explaining import Explanation, add_other_queries, explain_by_leaving_out
from fewview.engine._fitted import FittedBase, usual_task
from fewview.engine._fitting import Fitting, content_order
from fewview.engine._saving import read_file, write_file
from fewview.engine.open_world._playing import too_few_classes
from fewview.engine.open_world._rejection import (
    Thresholds,
    check_reject,
    rejection_label,
    set_thresholds,
    with_label,
)
from fewview.engine.open_world._sets import check_coverage
from fewview.ground._draws import combine, stream_key
from fewview.ground._errors import FewviewError, FewviewWarning
from fewview.ground._rows import by_row
from fewview.numerics._batch import EpisodeBatch
from fewview.numerics._distances import nearest_support, nearest_supports
from fewview.samples._data import MultiViewData
from fewview.samples._inputs import as_data

# Share of queries that would have to change class for balance, above which users are warned: by
# nearest supports, and by mean probabilities of queries taken one by one.
UNBALANCED = 0.35
UNBALANCED_ALONE = 0.27
# What answers lose in probability by queries taken one by one, above which users are warned
# (`compare_alone`). This and UNBALANCED_ALONE are what 99 of 100 balanced tasks of base classes
# stay below, and 95 of 100 on any data set.
CHANGED = 0.22
# Fewer queries per class tell little about all that.
FEWEST_PER_CLASS = 5
# Supports that reasons name for every query.
NEAREST = 3
Self = TypeVar("Self", bound="Method")
IntArray = NDArray[np.intp]
FloatArray = NDArray[np.float64]


class Method(ClassifierMixin, Fitting):  # type: ignore[misc]
    """Base class of all methods; a method implements `scores`.

    A parameter is an annotated attribute with its default. `scores(batch, state)` gets a batch of
    tasks and what `prepare` learnt, and returns log-probabilities [tasks, n_query, way]; see the
    recipe in docs/add-a-method.md.

    Args:
        base: the base set; anything that `fit` accepts as X, with labels. Immutable, so `clone`
            and `GridSearchCV` share it.
        scaling: per-view scaling fitted on the base set (on the supports without one).
        padding: how missing views are filled for methods that cannot handle them.
        device: `"cpu"`, `"cuda"` or `"auto"`.
        dtype: `"float32"` or `"float64"`.
        max_memory: GiB that one batch of tasks may take; sets how many tasks go together. None
            means 1 on a CPU and 16 on a GPU (half of its memory where that is less).
        random_state: seed of everything random outside an episode list; None or a `RandomState`
            draws one whenever something is learnt, as in scikit-learn.

    Example:
        >>> import torch
        >>> class Undecided(Method):
        ...     def scores(self, batch, state):
        ...         return torch.zeros(batch.n_tasks, batch.n_query, batch.way)
        >>> Undecided().fit([[0.0], [9.0]], ["cat", "dog"]).predict_proba([[8.0]]).tolist()
        [[0.5, 0.5]]
    """

    # ------------------------------------------------------------------ queries

    def _queries(self, X: Any) -> MultiViewData:
        if not hasattr(self, "prepared_"):
            raise NotFittedError(f"this {type(self).__name__} is not fitted; call fit first")
        if len(self.support_.classes) < 2:
            raise FewviewError(
                f"only class {self.support_.classes.tolist()[0]!r} is known so far; add another "
                "with partial_fit first"
            )
        self._check_features(X)
        reference = self.prepared_.reference
        return as_data(X, like=reference).like(reference, "query")

    def query_scores(self, X: Any) -> Tensor:
        """Scores of queries for the new classes, in their order: [n_query, way], on the CPU."""
        query = self._queries(X)
        if len(query) == 1 and self.looks_together:
            warnings.warn(
                f"{type(self).__name__} looks at all queries together; with a single one it falls "
                "back to what the supports say",
                FewviewWarning,
                stacklevel=3,
            )
        knowing = self._told_by(query)
        batch, rows, columns = knowing._asked(query)
        scores = knowing.score_batch(batch, knowing.prepared_)[0]
        knowing._warn_of_queries(batch, scores, columns)
        return self._even_where_unrelated(batch, scores).cpu()[rows][:, columns]

    def _told_by(self: Self, query: MultiViewData) -> Self:
        """This method, or one that has learnt from queries too, where there is no base set."""
        if self.base is not None:
            return self
        found = self.told_by_queries(self.support_, query, self._own_task(self.support_))
        if found is None:
            return self
        knowing = copy(self)
        knowing.prepared_ = found
        return knowing

    def task_batch(self, query: MultiViewData) -> EpisodeBatch:
        """The supports given to `fit` and some queries as one scaled task on the device."""
        known = self.scaled(self.support_, self.prepared_, "support")
        asked = self.scaled(query, self.prepared_, "query")
        number = self.random_state if isinstance(self.random_state, Integral) else self.seed_
        seed = combine(np.array([number], dtype=np.uint64), stream_key("estimator"))
        return EpisodeBatch(
            support=tuple(view[None] for view in known.views),
            query=tuple(view[None] for view in asked.views),
            support_mask=known.mask[None],
            query_mask=asked.mask[None],
            support_labels=torch.from_numpy(self.support_.codes)[None].to(self.torch_device),
            query_labels=None,
            seeds=torch.from_numpy(seed.view(np.int64)).to(self.torch_device),
            way=len(self.support_.classes),
            view_names=known.view_names,
        )

    def _asked(self, query: MultiViewData) -> tuple[EpisodeBatch, IntArray, IntArray]:
        """`task_batch` with queries and classes in an order that follows from content alone.

        So neither the order of rows nor names of classes tell a method anything. With it come the
        row of every query, and the column of every class in `classes_`.
        """
        order = content_order(query)
        batch = self.task_batch(query[order])
        _, first = np.unique(self.support_.codes, return_index=True)
        columns = np.argsort(np.argsort(first))
        labels = torch.from_numpy(columns).to(self.torch_device)[batch.support_labels]
        return replace(batch, support_labels=labels), np.argsort(order), columns

    @property
    def looks_together(self) -> bool:
        """Whether answers to queries depend on the other queries, with these parameters."""
        return self.queries_together == "yes"

    @staticmethod
    def _unrelated(batch: EpisodeBatch) -> Tensor:
        """Queries of one task that share no view with any support, bool [n_query]."""
        return ~(batch.query_mask & batch.support_mask.any(1, keepdim=True)).any(-1)[0]

    @property
    def _relates_views(self) -> bool:
        """Whether a base set has told it how views go together."""
        return self.tags.bridges_views and self.base is not None

    def _even_where_unrelated(self, batch: EpisodeBatch, scores: Tensor) -> Tensor:
        """Equal scores [n_query, way] for queries that share no view with any support.

        Whatever a method says of them comes from how gaps are filled, unless a base set has told
        it how views go together.
        """
        lost = self._unrelated(batch)
        if not bool(lost.any()):
            return scores
        knows = self._relates_views
        warnings.warn(
            f"{int(lost.sum())} of {len(lost)} queries share no view with any support; "
            + (
                "their answers rest on what the base set tells of how views go together"
                if knows
                else "all classes are equally probable for them, and the first one is predicted; "
                "give supports that have these views"
            ),
            FewviewWarning,
            stacklevel=4,
        )
        return scores if knows else torch.where(lost[:, None], 0.0, scores)

    def _scores_alone(self, batch: EpisodeBatch) -> Tensor | None:
        """Scores of the queries of one task, each by itself, where there is a quick way."""
        with torch.no_grad():
            found = self.scores_alone(batch, self.prepared_.state)
        return None if found is None else found[0]

    def _warn_of_queries(self, batch: EpisodeBatch, scores: Tensor, columns: IntArray) -> None:
        """Warn where queries look unbalanced to who wants balance, or together say much else."""
        if not self.looks_together or batch.n_query < FEWEST_PER_CLASS * batch.way:
            return  # alone anyway, or too few to tell
        pull = self.tags.assumes_balance
        said = []
        alone = self._scores_alone(batch)
        if alone is None:
            # Distances over shared views: padded views draw queries to some classes by themselves.
            nearest = nearest_support(batch)[0].argmax(-1)
            shares = torch.bincount(nearest, minlength=batch.way).double() / batch.n_query
            limit, source = UNBALANCED, "by nearest support"
        else:
            shares, lost = compare_alone(alone, scores)
            limit, source = UNBALANCED_ALONE, "by what the supports say about each one"
            if lost > CHANGED:
                other = float((scores.argmax(-1) != alone.argmax(-1)).double().mean())
                said.append(
                    f"gives {100 * other:.0f} % of the queries another class than each would get "
                    f"alone, and alone its answers are {100 * float(lost):.0f} points less probable"
                )
        if pull and float((shares - 1 / batch.way).abs().sum()) / 2 > limit:
            text = ", ".join(
                f"{100 * share:.0f} %" for share in shares.cpu()[columns][:10].tolist()
            )
            wants = "assumes" if pull == 1 else "pulls towards"
            said.insert(
                0,
                f"{wants} equally many queries of every class, and these look unbalanced ({text} "
                f"{source})",
            )
        if said:
            advice = "a method that does not assume it may do better"
            if alone is not None:
                advice = "compare with proba_alone (column probability_alone of fewview predict)"
            warnings.warn(
                f"{type(self).__name__} {'; it '.join(said)}; {advice}",
                FewviewWarning,
                stacklevel=4,
            )

    def proba_alone(self, X: Any) -> NDArray[np.float64]:
        """Class probabilities of queries as if each were the only one, [n_query, way].

        This is what the supports say. `predict_proba` of methods that look at queries together may
        say something else; where they have no quick way (`scores_alone`), every query becomes a
        task of its own here, which takes longer.

        Args:
            X: queries, as for `predict`.

        Example:
            >>> from fewview import create
            >>> clf = create("ptmap").fit([[0.0], [9.0]], ["cat", "dog"])
            >>> clf.proba_alone([[8.0], [7.0], [1.0]]).shape
            (3, 2)
        """
        batch, places, columns = self._asked(self._queries(X))
        if not batch.n_query:
            return np.zeros((0, len(self.classes_)))
        return self._with_known(batch, self._alone(batch)[:, columns])[places]

    def _alone(self, batch: EpisodeBatch) -> FloatArray:
        """Probabilities of the queries of one task, each by itself, [n_query, way]."""
        scores = self._scores_alone(batch)
        scores = self._one_by_one(batch) if scores is None else scores
        scores = self._even_where_unrelated(batch, scores).cpu().double()
        proba: FloatArray = torch.softmax(scores, dim=-1).numpy()
        return proba

    def _one_by_one(self, batch: EpisodeBatch) -> Tensor:
        """Scores of the queries of one task, each in a task of its own, [n_query, way]."""
        dims = self.prepared_.reference.view_dims
        size = self.batch_size(batch.n_support, 1, dims, batch.way)
        rows = torch.arange(batch.n_query, device=batch.device)
        parts = (batch.one_by_one(rows[k : k + size]) for k in range(0, len(rows), size))
        return torch.cat([self.score_batch(part, self.prepared_) for part in parts])[:, 0]

    @property
    def alone_is_quick(self) -> bool:
        """Whether there is a quick way to answer queries as if each were the only one."""
        return type(self).scores_alone is not Contract.scores_alone

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Class probabilities of queries, [n_query, classes], columns as in `classes_`."""
        if getattr(self, "known_", None) is not None:
            return self._proba_of_all(self._queries(X))
        scores = self.query_scores(X).to(torch.float64)
        return torch.softmax(scores, dim=-1).numpy()

    def _proba_of_all(self, query: MultiViewData) -> FloatArray:
        """Probabilities of new and known classes.

        Queries that look new are used together, where a method does so; the others would be in
        their way.
        """
        batch, places, columns = self._asked(query)
        if not batch.n_query:
            return np.zeros((0, len(self.classes_)))
        assert self.known_ is not None
        new = self.known_.halves(self, batch, self.prepared_)[0]
        alone = self._scores_alone(batch) if self.looks_together else None
        if alone is None:
            scores = self.score_batch(batch, self.prepared_)[0]
        else:
            scores, rows = alone.clone(), torch.from_numpy(np.flatnonzero(new >= 0.5))
            rows = rows.to(batch.device)
            if len(rows):
                scores[rows] = self.score_batch(batch.with_queries(rows), self.prepared_)[0]
        scores = self._even_where_unrelated(batch, scores).cpu()
        proba: FloatArray = torch.softmax(scores.double(), dim=-1)[:, columns].numpy()
        return self._with_known(batch, proba)[places]

    def _with_known(self, batch: EpisodeBatch, proba: FloatArray) -> FloatArray:
        """Probabilities of new classes beside those of known ones, where these are asked for."""
        known = getattr(self, "known_", None)
        if known is None:
            return proba
        new, others, _, _ = known.halves(self, batch, self.prepared_)
        return np.concatenate([new[:, None] * proba, (1 - new)[:, None] * others], axis=1)

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
        if getattr(self, "known_", None) is not None:
            best = self.predict_proba(X).argmax(-1)
        else:
            best = self.query_scores(X).argmax(-1).numpy()
        out: NDArray[Any] = self.classes_[best]
        if reject is None:
            return out
        label = rejection_label(self.classes_, reject_label)
        return with_label(out, self.rejected(X, reject), label)

    def predict_sets(self, X: Any, coverage: float = 0.9) -> list[list[Any]]:
        """Sets of classes that hold the true one with a stated probability.

        The limit is set on tasks in which base classes play new ones, with the way, shots and gaps
        of these supports, for every pattern of views (conformal prediction). The promise is about
        queries on the whole, of new classes that differ as base classes do; K of these can show
        K / (K + 1) at most, and sets have all classes beyond.

        Args:
            X: queries, as for `predict`.
            coverage: the probability, such as 0.9.

        Returns:
            For every query its classes, the most probable one first; never none.

        Example:
            >>> from fewview import Proto
            >>> from fewview.datasets import make_few_shot, split_few_shot
            >>> base, support, query = split_few_shot(make_few_shot())
            >>> clf = Proto().fit_base(base).fit(support)
            >>> len(clf.predict_sets(query[:3], 0.8))
            3
        """
        query = self._queries(X)
        return self._sets_of(self.predict_proba(X), np.asarray(query.mask), coverage)

    def _sets_of(
        self, proba: FloatArray, mask: NDArray[np.bool_], coverage: float
    ) -> list[list[Any]]:
        check_coverage(coverage)
        if getattr(self, "known_", None) is not None:
            raise FewviewError(
                'sets are calibrated for new classes alone; fit with classes="new" for them'
            )
        kept = self.base.sets if isinstance(self.base, FittedBase) else None
        if kept is None:
            kept = self._learnt_sets()
        limits = kept.at(coverage, mask)
        if np.isinf(limits).any():
            warnings.warn(
                f"a coverage of {coverage:g} is more than so few base classes can show, so sets of "
                f"{int(np.isinf(limits).sum())} of {len(limits)} queries have all classes; ask for "
                "less, or give more base classes",
                FewviewWarning,
                stacklevel=4,
            )
        logs = np.log(np.maximum(proba, 1e-300))
        inside = logs >= logs.max(1, keepdims=True) - limits[:, None] - 1e-12
        order, names = np.argsort(-proba, axis=1, kind="stable"), self.classes_.tolist()
        return [
            [names[place] for place in row if has[place]]
            for row, has in zip(order.tolist(), inside, strict=True)
        ]

    def predictions(
        self,
        X: Any,
        reject: float | None = None,
        reject_label: Hashable = None,
        *,
        alone: bool = False,
        sets: float | None = None,
    ) -> list[dict[str, Any]]:
        """One row per query: its id, label, probabilities and views, as the command line writes it.

        Args:
            X: queries, as for `predict`.
            reject: see `predict`.
            reject_label: see `predict`.
            alone: add `probability_alone` also where every query takes one more pass.
            sets: add `set`, the classes that hold the true one with this probability, with `|`
                between them; see `predict_sets`.

        Returns:
            Dicts with the keys id (the number of the row without ids), label, p_<class>, views,
            rejected, with `reject` fit (see `fit_shares`), and for methods that look at queries
            together probability_alone.

        Example:
            >>> from fewview import Proto
            >>> clf = Proto().fit({"a": [[0.0], [9.0]]}, ["cat", "dog"])
            >>> clf.predictions({"a": {"0": 8.0}})[0]["label"]
            'dog'
        """
        return by_row(self.prediction_columns(X, reject, reject_label, alone=alone, sets=sets))

    def prediction_columns(
        self,
        X: Any,
        reject: float | None = None,
        reject_label: Hashable = None,
        *,
        alone: bool = False,
        sets: float | None = None,
        together: bool = True,
    ) -> dict[str, list[Any]]:
        """`predictions` by column; without `together`, every query as if it were the only one.

        Example:
            >>> from fewview import Proto
            >>> clf = Proto().fit({"a": [[0.0], [9.0]]}, ["cat", "dog"])
            >>> clf.prediction_columns({"a": [[8.0], [1.0]]})["label"]
            ['dog', 'cat']
        """
        query = as_data(X, like=self.prepared_.reference if hasattr(self, "prepared_") else None)
        query = query.with_labels(None)
        both = together and self.looks_together and (self.alone_is_quick or alone)
        by_itself = self.proba_alone(query) if both or not together else None
        proba = self.predict_proba(query) if together or by_itself is None else by_itself
        best = proba.argmax(axis=1)
        labels = self.classes_[best].tolist()
        gone, fits = [False] * len(query), None
        if reject is not None:
            check_reject(reject)
            fits = self.fit_shares(query)
            gone = (fits < reject).tolist()
            unknown = rejection_label(self.classes_, reject_label)
            labels = [unknown if g else label for g, label in zip(gone, labels, strict=True)]
        rounded = proba.round(6)
        out = {
            "id": [*range(len(query))] if query.ids is None else query.ids.tolist(),
            "label": labels,
            **{f"p_{c}": rounded[:, k].tolist() for k, c in enumerate(self.classes_.tolist())},
            "views": _views_of(query),
            "rejected": gone,
        }
        if fits is not None:
            out["fit"] = [round(float(fit), 4) for fit in fits]
        if sets is not None:
            known = np.asarray(query.like(self.prepared_.reference, "query").mask)
            out["set"] = ["|".join(map(str, some)) for some in self._sets_of(proba, known, sets)]
        if both and by_itself is not None:
            taken = by_itself[np.arange(len(best)), best]
            out["probability_alone"] = taken.round(6).tolist()
        return out

    def rejected(self, X: Any, rate: float = 0.05) -> NDArray[np.bool_]:
        """Whether queries look like none of the classes, bool [n_query].

        Args:
            X: queries.
            rate: share of queries of known classes that may be rejected by mistake.
        """
        check_reject(rate)
        return np.asarray(self.fit_shares(X) < rate)

    def fit_shares(self, X: Any) -> NDArray[np.float64]:
        """Share of samples of a class that fit it worse than a query its best class, [n_query].

        A query is rejected where this is below the wanted rate; with known classes too, where it
        is below for the best of either half.

        Args:
            X: queries.
        """
        query = self._queries(X)
        limits, known = self.thresholds(), getattr(self, "known_", None)
        batch, views = self.task_batch(query), query.mask.sum(axis=1)
        if known is None:
            with torch.no_grad():
                fit = self.typicality(batch, self.prepared_.state)[0].double().cpu().numpy()
        else:
            _, _, fit, best_known = known.halves(self, batch, self.prepared_)
        shots = np.bincount(self.support_.codes)[fit.argmax(1)]
        whole = bool(self.support_.mask.all())
        out = limits.share_below(fit.max(1), shots, views, fit.shape[1], whole)
        return out if known is None else known.joint_share(out, best_known, views)

    def thresholds(self) -> Thresholds:
        """What is still usual among base classes, for every rate; `fit_base` has learnt it."""
        if isinstance(self.base, FittedBase):
            base = self.base.fitted_for(self)
            if base.thresholds is not None:
                return base.thresholds
            rows, task = base.samples, base.task
            if rows is None or rows.labels is None:
                raise FewviewError(
                    too_few_classes(len(base.classes))
                    or "this base set has no thresholds for rejecting (fewer than 2 classes with "
                    "4 samples, or not learnt by fit_base) and its rows are not here; call "
                    "fit_base with the base set"
                )
        else:
            rows = None if self.base is None else as_data(self.base)
            if rows is None or rows.labels is None:
                raise FewviewError(
                    "a threshold for rejecting is set on base classes and there are none; give "
                    "base=..., or call fit_base(base) before fit"
                )
            task = usual_task(rows)
        with self._seeded():
            limits: Thresholds = set_thresholds(self, rows, task)
        return limits

    def explain(self, X: Any, *, alone: bool = False) -> Explanation:
        """Say what every view contributed to the decision about every query.

        Args:
            X: queries, as for `predict`.
            alone: tell the evidence of a query's own views from the pull of the other queries also
                where every query then takes one more pass for each of its views.

        Returns:
            An `Explanation`: `frame()`, `plot()`, or its arrays.

        Example:
            >>> from fewview import Proto
            >>> clf = Proto().fit({"a": [[0.0], [9.0]], "b": [[1.0], [5.0]]}, ["cat", "dog"])
            >>> clf.explain({"a": [[8.0], [1.0]], "b": [[5.0], [2.0]]}).rows()[1]["label"]
            'cat'
        """
        query = self._queries(X)
        batch, rows, columns = self._asked(query)
        found = self.explain_batch(batch, self.prepared_)
        apart = self.looks_together and (self.alone_is_quick or alone)
        if apart and not found.together.size:
            own = replace(explain_by_leaving_out(batch, lambda part: self._one_by_one(part)[None]),
                          neighbours=found.neighbours)  # fmt: skip
            found = add_other_queries(own, self.score_batch(batch, self.prepared_)[0])
        found = found.rearranged(rows, columns)
        lost = self._unrelated(batch).cpu().numpy()[rows]
        if lost.any() and not self._relates_views:
            found = found.even(lost)
        names = self._base_classes()
        labels = self.support_.classes[self.support_.codes].tolist()
        # Without identifiers supports have no names: their rows are not in the order of the user.
        ids = self.support_.ids
        known = [None] * len(labels) if ids is None else ids.tolist()
        near = nearest_supports(batch, NEAREST)
        return replace(
            found,
            alone=np.log(self._alone(batch)[rows][:, columns].clip(min=1e-300))
            if apart
            else found.alone,
            nearest=tuple(
                tuple((known[k], labels[k], distance) for k, distance in near[row]) for row in rows
            ),
            mask=np.asarray(query.mask),
            classes=tuple(self.support_.classes.tolist()),
            ids=tuple(range(len(query)) if query.ids is None else query.ids.tolist()),
            neighbours=tuple(
                tuple(f"group {index}" if names is None else names[index] for index in row)
                for row in found.neighbours
            ),
        )

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Accuracy on labelled queries.

        Args:
            X: queries.
            y: their labels, unless X has them.
            sample_weight: one weight per query.
        """
        from sklearn.metrics import accuracy_score

        data = labelled_data(X, y, "query", "queries have no labels to compare with; give y")
        labels = data.classes[data.codes].tolist()
        right = [a == b for a, b in zip(self.predict(X).tolist(), labels, strict=True)]
        return float(accuracy_score(np.ones(len(right), bool), right, sample_weight=sample_weight))

    # ------------------------------------------------------------------ files

    def save(
        self, path: str | PathLike[str], *, supports: bool = True, base_rows: bool = False
    ) -> None:
        """Write the method and what it has learnt to one file, whole or not at all.

        What was learnt from base classes is written as statistics. Supports are samples, and are
        written where `fit` was called, because predictions are made from them. Saving learns
        nothing (but for a base set that came in parts and was not asked for anything yet): call
        `fit_base` first if queries are to be rejected later.

        Args:
            path: the file; an existing one is replaced.
            supports: False leaves the supports out; the file then waits for `fit`.
            base_rows: True writes the base samples too, so that parameters may change after
                loading; of a base set that came in parts, the samples that were kept.

        Example:
            >>> import tempfile
            >>> from fewview import Proto
            >>> path = Path(tempfile.mkdtemp()) / "a.model"
            >>> Proto().fit([[0.0], [9.0]], ["cat", "dog"]).save(path)
            >>> load_model(path).predict([[8.0]]).tolist()
            ['dog']
        """
        with self._seeded():
            self._write(Path(path), supports, base_rows)

    def _write(self, path: Path, supports: bool, base_rows: bool) -> None:
        base = self._learnt_base()
        fitted = hasattr(self, "support_") and supports
        if base is None and not fitted:
            raise FewviewError(
                "nothing has been learnt that could be saved; call fit_base or fit first"
            )
        if base is not None and base.prepared.state.holds_rows and not base_rows:
            raise FewviewError(
                f"{type(self).__name__} keeps base samples themselves, and models are saved "
                "without samples unless asked; give base_rows=True (--base-rows) if they may be "
                "in the file"
            )
        # Views that only supports have are not part of what was learnt from base classes.
        alone = fitted and (
            base is None
            or base.prepared.reference.view_names != self.prepared_.reference.view_names
        )
        known = getattr(self, "known_", None) if fitted else None
        if base is not None and known is not None:
            base = replace(base, known=known)
        writer = Writer()
        document = {
            "written_by": f"fewview {__version__}",
            "method": write_method(self),
            "base": None if base is None else writer.base(base, base_rows),
            "prepared": writer.prepared(self.prepared_, "alone") if alone else None,
            "support": writer.data(self.support_, "support") if fitted else None,
            "classes": "new" if known is None else "all",
        }
        write_file(path, document, writer.arrays)

    def _learnt_base(self) -> FittedBase | None:
        """What there is to write about base classes."""
        base = self.base
        if base is None:
            return None
        if not isinstance(base, FittedBase):
            if not hasattr(self, "prepared_"):
                raise FewviewError(
                    "nothing has been learnt from the base set yet; call fit_base or fit first"
                )
            rows = as_data(base)
            if rows.labels is not None and not too_few_classes(len(rows.classes)):
                warnings.warn(
                    "the saved model will not reject queries: thresholds are learnt by fit_base; "
                    "call fit_base(base) before fit if it should",
                    FewviewWarning,
                    stacklevel=4,
                )
            return FittedBase.of(self, rows, usual_task(rows), self.prepared_)
        if base.stream is not None:
            return base.fitted_for(self)  # the sums are all there is
        changed = base.changes(self)
        if changed:
            listed = ", ".join(f"{name}={text}" for name, text in changed.items())
            raise FewviewError(
                f"parameters have changed since the base set was learnt from ({listed}); call "
                "fit_base or fit again before save"
            )
        return base

    @classmethod
    def load(cls, path: str | PathLike[str], *, device: str = "cpu") -> Any:
        """Read a model; on a particular method's class, any other method is an error.

        Args:
            path: a file that `save` wrote.
            device: where to put it.
        """
        method = load_model(path, device=device)
        if not isinstance(method, cls):
            raise FewviewError(f"{path}: a model of {type(method).__name__}, not of {cls.__name__}")
        return method

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.non_deterministic = not self.tags.deterministic
        return tags


def _views_of(data: MultiViewData) -> list[str]:
    """Names of the views that every sample has; rows are told apart as bytes, which is quick."""
    packed = np.packbits(data.mask, axis=1)
    held, width = packed.tobytes(), packed.shape[1]
    keys = [held[start : start + width] for start in range(0, len(held), width)]
    names = {
        key: "+".join(compress(data.view_names, np.unpackbits(np.frombuffer(key, np.uint8))))
        for key in {*keys}
    }
    return [names[key] for key in keys]


def compare_alone(alone: Tensor, together: Tensor) -> tuple[Tensor, Tensor]:
    """Shares of classes by queries taken one by one, and how much together differs from that.

    Scores are [..., n_query, way]; shares are [..., way]. The difference is the mean probability
    that queries alone give to their best class beyond the one they get together: where the
    supports cannot tell two classes apart, choosing the other one costs nothing.
    """
    p = torch.softmax(alone.double(), dim=-1)
    taken = p.gather(-1, together.argmax(-1, keepdim=True))[..., 0]
    return p.mean(-2), (p.amax(-1) - taken).mean(-1)


def load_model(path: str | PathLike[str], *, device: str = "cpu") -> Method:
    """Read a model that `Method.save` wrote; it gives the same digits as the one saved.

    Args:
        path: the file.
        device: where to put it.
    """
    arrays, document = read_file(Path(path))
    reader = Reader(arrays)
    try:
        method = read_method(document["method"])
        assert isinstance(method, Method)
        method.set_params(device=device)
        written = document["method"]
        if method.version != written["version"]:
            warnings.warn(
                f"saved by version {written['version']} of {written['name']}, and this is version "
                f"{method.version}; answers may differ",
                FewviewWarning,
                stacklevel=2,
            )
        if document["base"] is not None:
            # Written together, so fitted with these parameters, however later versions write them.
            method.base = replace(reader.base(document["base"]), parameters=method.described())
        if document["support"] is not None:
            alone = document["prepared"]
            prepared = method.base.prepared if alone is None else reader.prepared(alone)
            known = method.base.known if document["classes"] == "all" else None
            method._take(reader.data(document["support"]), prepared.to(method.torch_device), known)
        return method
    except FewviewError as error:
        raise FewviewError(f"{path}: {error}") from None
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, RuntimeError) as error:
        raise FewviewError(
            f"{path}: not a model that this version can read ({type(error).__name__}: {error})"
        ) from None
