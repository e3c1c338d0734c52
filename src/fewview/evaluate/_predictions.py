"""Predictions as a table: id, label, probabilities, views, rejected, prediction sets."""

from __future__ import annotations

from collections.abc import Hashable
from itertools import compress
from typing import Any

import numpy as np

from fewview.methods.estimator.calibration import check_share, rejection_label
from fewview.methods.estimator.method import Method
from fewview.samples._data import MultiViewData
from fewview.samples._inputs import as_data

Columns = dict[str, list[Any]]


def predict_table(
    method: Method,
    X: Any,
    reject: float | None = None,
    reject_label: Hashable = None,
    *,
    inductive: bool = False,
    coverage: float | None = None,
    transductive: bool = True,
) -> Columns:
    """Predictions of a fitted method by column.

    Args:
        method: a fitted method.
        X: queries, as for `Method.predict`.
        reject: share of queries of known classes that may be rejected by mistake.
        reject_label: what rejected queries are called.
        inductive: add `probability_alone`, that of the label for the query by itself, also where
            every query takes one more pass.
        coverage: add `set`, the classes that hold the true one with this probability.
        transductive: False answers every query as if it were the only one.

    Returns:
        Columns id (the number of the row without ids), label, p_<class>, views, rejected, with
        `reject` fit (the p-value), and for methods that look at all queries probability_alone.

    Example:
        >>> from fewview import Proto
        >>> clf = Proto().fit({"a": [[0.0], [9.0]]}, ["cat", "dog"])
        >>> predict_table(clf, {"a": [[8.0], [1.0]]})["label"]
        ['dog', 'cat']
    """
    reference = method.fitted_.reference if hasattr(method, "fitted_") else None
    query = as_data(X, like=reference).with_labels(None)
    looks = method.looks_at_queries == "yes"
    both = transductive and looks and (quick_inductive(method) or inductive)
    single = method.predict_proba(query, inductive=True) if both or not transductive else None
    proba = method.predict_proba(query) if transductive or single is None else single
    best = proba.argmax(axis=1)
    labels = method.classes_[best].tolist()
    gone, fits = [False] * len(query), None
    if reject is not None:
        check_share("reject", reject)
        fits = method.p_values(query)
        gone = (fits < reject).tolist()
        unknown = rejection_label(method.classes_, reject_label)
        labels = [unknown if g else label for g, label in zip(gone, labels, strict=True)]
    rounded = proba.round(6)
    out: Columns = {
        "id": [*range(len(query))] if query.ids is None else query.ids.tolist(),
        "label": labels,
        **{f"p_{c}": rounded[:, k].tolist() for k, c in enumerate(method.classes_.tolist())},
        "views": _views_of(query),
        "rejected": gone,
    }
    if fits is not None:
        out["fit"] = [round(float(fit), 4) for fit in fits]
    if coverage is not None:
        names = method.classes_.tolist()
        order = np.argsort(-proba, axis=1, kind="stable").tolist()
        inside = method.predict_set(query, coverage)
        out["set"] = [
            "|".join(str(names[k]) for k in row if has[k])
            for row, has in zip(order, inside, strict=True)
        ]
    if both and single is not None:
        out["probability_alone"] = single[np.arange(len(best)), best].round(6).tolist()
    return out


def quick_inductive(method: Method) -> bool:
    """Whether a method has a quick way to answer queries as if each were the only one."""
    return type(method).scores_inductive is not Method.scores_inductive


def _views_of(data: MultiViewData) -> list[str]:
    """Names of the views that every sample has; equal patterns are found as bytes, quickly."""
    packed = np.packbits(data.mask, axis=1)
    held, width = packed.tobytes(), packed.shape[1]
    keys = [held[start : start + width] for start in range(0, len(held), width)]
    names = {
        key: "+".join(compress(data.view_names, np.unpackbits(np.frombuffer(key, np.uint8))))
        for key in {*keys}
    }
    return [names[key] for key in keys]
