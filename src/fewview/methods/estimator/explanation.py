"""Reasons: what each view says about a query, as arrays, as rows and as a picture.

Any method can be asked: a view is taken away from all queries, and what changes is its share of the
decision. Methods that know better (`Marginal`) fill in the same `Explanation` their own way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import softmax
from torch import Tensor

from fewview.episodes.batch import EpisodeBatch
from fewview.numerics.distances import partial_distances
from fewview.samples._data import MultiViewData

if TYPE_CHECKING:
    from fewview.methods.estimator.method import Method

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Explanation:
    """Why queries were decided as they were.

    Attributes:
        scores: log-scores, centred over classes, [n_query, way].
        contributions: what each view adds to them, [n_query, V, way]; over views, with
            `together`, they sum to `scores`, and a missing view adds exactly nothing.
        without: log-scores had the view been missing, [n_query, V, way]; where it is the only
            one a query has, nothing is known and all classes are equal.
        decided: class decided for, as position, [n_query].
        decided_without: class decided for without the view, [n_query, V]; -1 where the query
            has no other view.
        uncertainty: what supports leave open about a class mean: its posterior variance as a
            share of its variance before any support was seen, per class and view, [way, V];
            1 means that nothing is known. Empty for methods that cannot tell.
        view_names: names of the views.
        mask: which views queries have, bool [n_query, V].
        classes: labels of the classes, [way].
        ids: identifiers of the queries, or their row numbers.
        neighbours: per query, the base classes it was likened to, the nearest first; empty for
            methods that retrieve none.
        together: what looking at the other queries adds to `scores`, [n_query, way]; `without`
            and `decided_without` then are what supports by themselves say. Empty where the
            contributions of the views are the whole score.
        inductive: log-probabilities of every query as if it were the only one, [n_query, way];
            empty where queries are not looked at together, or where that was not asked for.
        nearest: per query, the nearest supports over shared views: identifier (None where
            supports have none), label, distance.
    """

    scores: FloatArray
    contributions: FloatArray
    without: FloatArray
    decided: NDArray[np.int64]
    decided_without: NDArray[np.int64]
    uncertainty: FloatArray
    view_names: tuple[str, ...]
    mask: NDArray[np.bool_] = field(default_factory=lambda: np.zeros((0, 0), dtype=bool))
    classes: tuple[Any, ...] = ()
    ids: tuple[Any, ...] = ()
    neighbours: tuple[tuple[Any, ...], ...] = ()
    together: FloatArray = field(default_factory=lambda: np.zeros((0, 0)))
    inductive: FloatArray = field(default_factory=lambda: np.zeros((0, 0)))
    nearest: tuple[tuple[tuple[Any, Any, float], ...], ...] = ()

    def __len__(self) -> int:
        return len(self.scores)

    def rearranged(self, rows: NDArray[np.intp], columns: NDArray[np.intp]) -> Explanation:
        """The same with query n in row `rows[n]` and class c in column `columns[c]` until now."""
        class_of, without = np.argsort(columns), self.decided_without[rows]
        return replace(
            self,
            scores=self.scores[rows][:, columns],
            contributions=self.contributions[rows][..., columns],
            without=self.without[rows][..., columns],
            decided=class_of[self.decided[rows]],
            decided_without=np.where(without < 0, -1, class_of[without]),
            uncertainty=self.uncertainty[columns] if self.uncertainty.size else self.uncertainty,
            neighbours=tuple(self.neighbours[row] for row in rows) if self.neighbours else (),
            together=self.together[rows][:, columns] if self.together.size else self.together,
        )

    def even(self, rows: NDArray[np.bool_]) -> Explanation:
        """The same with nothing said about some queries: all classes equal, the first decided."""
        told, other = ~rows[:, None], np.minimum(self.decided_without, 0)
        return replace(
            self,
            scores=self.scores * told,
            contributions=self.contributions * told[..., None],
            without=self.without * told[..., None],
            decided=np.where(rows, 0, self.decided),
            decided_without=np.where(rows[:, None], other, self.decided_without),
            together=self.together * told if self.together.size else self.together,
        )

    @property
    def runner_up(self) -> NDArray[np.int64]:
        """The second best class, as position, [n_query]."""
        others = np.array(self.scores)
        others[np.arange(len(others)), self.decided] = -np.inf
        return np.asarray(others.argmax(axis=1), dtype=np.int64)

    @property
    def margin(self) -> FloatArray:
        """Log-odds of the decided class against the runner-up, [n_query]."""
        return self._lead(self.scores)

    @property
    def support_of_views(self) -> FloatArray:
        """What each view adds to the margin, [n_query, V].

        With `support_of_other_queries`, rows sum to `margin`.
        """
        return self._lead(self.contributions)

    @property
    def support_of_other_queries(self) -> FloatArray:
        """What looking at the other queries adds to the margin, [n_query]."""
        return self._lead(self.together) if self.together.size else np.zeros(len(self))

    def _lead(self, parts: FloatArray) -> FloatArray:
        """Decided class minus runner-up in [n_query, ..., way]."""
        rows = np.arange(len(self))
        out: FloatArray = parts[rows, ..., self.decided] - parts[rows, ..., self.runner_up]
        return out

    def rows(self) -> list[dict[str, Any]]:
        """One dict per query: id, views, label, runner-up, margin, each view's part of it.

        Example:
            >>> from fewview import Proto
            >>> clf = Proto().fit({"a": [[0.0], [9.0]], "b": [[1.0], [5.0]]}, ["cat", "dog"])
            >>> row = clf.explain({"a": [[8.0]]}).rows()[0]
            >>> row["views"], row["label"], row["runner_up"], row["from_b"]
            ('a', 'dog', 'cat', 0.0)
        """
        probability, parts = softmax(self.scores, axis=1), self.support_of_views
        margins, seconds, others = self.margin, self.runner_up, self.support_of_other_queries
        out = []
        for n, decided in enumerate(self.decided.tolist()):
            views = [v for v, has in zip(self.view_names, self.mask[n], strict=True) if has]
            row: dict[str, Any] = {
                "id": self.ids[n],
                "views": "+".join(views),
                "label": self.classes[decided],
                "probability": float(probability[n, decided]),
                "runner_up": self.classes[seconds[n]],
                "margin": float(margins[n]),
            }
            for view, part in zip(self.view_names, parts[n].tolist(), strict=True):
                row[f"from_{view}"] = part
            if self.together.size:
                row["from_the_other_queries"] = float(others[n])
            for view, other in zip(self.view_names, self.decided_without[n].tolist(), strict=True):
                row[f"label_without_{view}"] = None if other < 0 else self.classes[other]
            if self.neighbours:
                row["nearest_base_classes"] = "+".join(map(str, self.neighbours[n]))
            out.append(row)
        return out

    def frame(self) -> Any:
        """`rows` as a pandas frame."""
        from pandas import DataFrame

        return DataFrame(self.rows())

    def plot(self, ax: Any = None) -> Any:
        """Draw what each view adds to the margin, one bar per query; returns the axes.

        Args:
            ax: matplotlib axes; new ones when None. At most 30 queries are drawn.
        """
        import matplotlib.pyplot as plt

        rows = self.rows()[:30]
        if ax is None:
            _, ax = plt.subplots(figsize=(8, 1.2 + 0.3 * max(len(rows), 3)), layout="constrained")
        bars = [(f"from_{view}", view, f"C{v}") for v, view in enumerate(self.view_names)]
        if self.together.size:
            bars.append(("from_the_other_queries", "the other queries", "0.7"))
        for sign in (1, -1):
            start = np.zeros(len(rows))
            for key, name, colour in bars:
                part = np.array([max(sign * row[key], 0.0) * sign for row in rows])
                label = name if sign == 1 else None
                ax.barh(range(len(rows)), part, left=start, color=colour, label=label)
                start += part
        ax.plot([row["margin"] for row in rows], range(len(rows)), "k|", ms=9, label="margin")
        ax.axvline(0.0, color="black", linewidth=0.8)
        names = [f"{row['id']}: {row['label']} (not {row['runner_up']})" for row in rows]
        ax.set_yticks(range(len(rows)), names)
        ax.invert_yaxis()
        ax.set_xlabel("log-odds of the decided class against the runner-up")
        # Beside the axes: looking for the best place inside takes long and warns.
        ax.legend(title="view", fontsize="small", loc="upper left", bbox_to_anchor=(1.0, 1.0))
        return ax


def explain(method: Method, query: MultiViewData, inductive: bool) -> Explanation:
    """Reasons for the decisions on some queries; see `Method.explain`."""
    fitted, support = method.fitted_, method.support_
    batch, rows, columns = method._task(query)
    found, by_itself = method.explain_batch(batch, fitted), None
    if method.looks_at_queries == "yes":
        with torch.no_grad():
            quick = method.scores_inductive(batch, fitted.state)
        if quick is not None or inductive:
            by_itself = method._inductive(batch) if quick is None else quick[0]
    if by_itself is not None and not found.together.size:
        own = explain_by_leaving_out(batch, lambda part: method._inductive(part)[None])
        own = replace(own, neighbours=found.neighbours)
        found = add_other_queries(own, method.score_batch(batch, fitted)[0])
    found = found.rearranged(rows, columns)
    lost = ~(batch.query_mask & batch.support_mask.any(1, keepdim=True)).any(-1)[0]
    if bool(lost.any()) and not method._links_views:
        found = found.even(lost.cpu().numpy()[rows])
        by_itself = None if by_itself is None else torch.where(lost[:, None], 0.0, by_itself)
    if by_itself is not None:
        logs = torch.log_softmax(by_itself.double().cpu(), dim=-1).numpy()[rows][:, columns]
        found = replace(found, inductive=logs)
    names, labels = fitted.classes, support.classes[support.codes].tolist()
    # Without identifiers supports have no names: their rows are not in the order of the user.
    known = [None] * len(labels) if support.ids is None else support.ids.tolist()
    near = _nearest_supports(batch, 3)
    return replace(
        found,
        nearest=tuple(
            tuple((known[k], labels[k], distance) for k, distance in near[row]) for row in rows
        ),
        mask=np.asarray(query.mask),
        classes=tuple(support.classes.tolist()),
        ids=tuple(range(len(query)) if query.ids is None else query.ids.tolist()),
        neighbours=tuple(
            tuple(names[index] if names else f"group {index}" for index in row)
            for row in found.neighbours
        ),
    )


def _nearest_supports(batch: EpisodeBatch, count: int) -> list[list[tuple[int, float]]]:
    """Numbers and partial distances of the supports nearest to each query of one task."""
    distances, shared = partial_distances(
        batch.query, batch.support, batch.query_mask, batch.support_mask
    )
    far = torch.where(shared, distances.sqrt(), torch.inf)[0].cpu()
    values, places = far.sort(dim=-1, stable=True)
    return [
        [(k, d) for k, d in zip(ks[:count], ds[:count], strict=True) if d != torch.inf]
        for ks, ds in zip(places.tolist(), values.tolist(), strict=True)
    ]


def explain_by_leaving_out(
    batch: EpisodeBatch, score: Callable[[EpisodeBatch], Tensor]
) -> Explanation:
    """Explain one task by taking every view away from all queries in turn.

    A view's contribution is what the score loses without it, and what the views then lack to the
    whole score is shared among them in equal parts. Queries that have no other view stay out of
    the task while it is taken away. `score` scores a task with its gaps, [1, n_query, way].
    """
    mask = batch.query_mask[0]
    whole = _centred(score(batch)[0])
    without = torch.zeros(batch.n_views, *whole.shape, dtype=torch.float64)
    for view in range(batch.n_views):
        rest = mask.clone()
        rest[:, view] = False
        stay = rest.any(-1)
        changed = (mask[:, view] & stay).cpu()
        without[view] = torch.where(stay.cpu()[:, None] | ~mask[:, view].cpu()[:, None], whole, 0.0)
        if bool(changed.any()):
            found = _centred(score(_with_queries(batch, stay, rest[stay]))[0])
            without[view, changed] = found[changed[stay.cpu()]]
    mask = mask.cpu()
    seen = mask.T[..., None].double()  # [V, N, 1]
    added = seen * (whole - without)
    rest_of_it = (whole - added.sum(0)) / seen.sum(0).clamp(min=1)
    contributions = added + seen * rest_of_it
    eye = torch.eye(batch.n_views, dtype=torch.bool)
    other = (mask & ~eye[:, None]).any(-1)  # [V, N]
    decided_without = torch.where(other, without.argmax(-1), -1)
    return Explanation(
        scores=whole.numpy(),
        contributions=contributions.transpose(0, 1).numpy(),
        without=without.transpose(0, 1).numpy(),
        decided=whole.argmax(-1).numpy(),
        decided_without=decided_without.T.numpy(),
        uncertainty=np.zeros((0, 0)),
        view_names=batch.view_names,
    )


def add_other_queries(found: Explanation, scores: Tensor) -> Explanation:
    """Reasons from the supports, completed to the scores [n_query, way] that decided."""
    whole = _centred(scores).numpy()
    return replace(
        found,
        scores=whole,
        together=whole - found.contributions.sum(1),
        decided=scores.argmax(-1).cpu().numpy(),
    )


def _centred(scores: Tensor) -> Tensor:
    logs = torch.log_softmax(scores.double().cpu(), dim=-1)
    return logs - logs.mean(-1, keepdim=True)


def _with_queries(batch: EpisodeBatch, rows: Tensor, mask: Tensor) -> EpisodeBatch:
    """The same task with some of its queries, and fewer views of them."""
    query = tuple(
        view[:, rows] * mask[None, :, index, None] for index, view in enumerate(batch.query)
    )
    return replace(batch, query=query, query_mask=mask[None], query_labels=None)
