"""The page of predictions: every sample with its views, probabilities, evidence and what-ifs.

A page stays small: of many samples those are shown that are worth looking at, and all are counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup

from fewview.ground._markup import histogram, share_bar
from fewview.ground._whole_files import replacing
from fewview.report._cards import card, percent, probabilities
from fewview.report._elements import plural
from fewview.report.pages._shell import make_page, piece

if TYPE_CHECKING:
    from fewview.methods.estimator.explanation import Explanation
    from fewview.methods.estimator.method import Method
    from fewview.samples._data import MultiViewData

# Samples that a page shows; about 3 kB each.
MOST_SAMPLES = 400
# One-query tasks that telling a query's own views from the others may take unasked.
MOST_TASKS = 5000


@dataclass(frozen=True)
class Sample:
    """One row of the table of samples, with its card."""

    number: int
    id: str
    label: str
    has: list[bool]
    lacks: str
    probability: float
    alone: float | None  # of the same answer, as if it were the only query
    alone_label: str
    second: str
    own: float
    pull: float | None
    margin: float
    true: str | None
    right: bool | None
    rejected: bool
    card: Markup

    @property
    def shares(self) -> list[tuple[float, str]]:
        """Its probability, and that alone where it is known, as numbers and texts."""
        known = [self.probability] if self.alone is None else [self.probability, self.alone]
        return [(round(share, 6), percent(share)) for share in known]

    @property
    def changed(self) -> bool:
        """Whether the other queries have changed the answer."""
        return self.alone is not None and self.alone_label != self.label and not self.rejected


@dataclass(frozen=True)
class Shown:
    """What a page of predictions shows: samples, and all of them counted."""

    samples: list[Sample]
    total: int
    classes: list[list[Markup | str]]
    views: list[list[Markup | str]]
    sure: Markup
    view_names: tuple[str, ...]
    labels: list[str]
    together: bool  # whether own views and the other queries are told apart
    mixed: bool  # whether they are in one sum
    alone: bool
    labelled: bool
    words: list[str]

    def markup(self) -> str:
        """What is shown, for a page that puts it in later."""
        return piece("show_overview", self) + piece("show_samples", self)


def reasons_for_page(method: Method, samples: MultiViewData, alone: bool = False) -> Explanation:
    """Reasons, with the pull of the other queries apart where that does not take long."""
    quick = len(samples) * (samples.n_views + 1) <= MOST_TASKS and not method.tags.trained
    return method.explain(samples.with_labels(None), inductive=alone or quick)


def shown_predictions(
    method: Method,
    rows: Sequence[dict[str, Any]],
    found: Explanation,
    labels: Sequence[Any] | None = None,
) -> Shown:
    """Put together what a page shows; `rows` are those of `predict_table`."""
    names = [str(label) for label in found.classes]
    p = probabilities(found.scores)
    best = found.decided
    n = np.arange(len(found))
    alone = probabilities(found.inductive) if found.inductive.size else None
    known = [None if true is None else str(true) for true in labels or [None] * len(found)]
    answers = [str(row["label"]) for row in rows]
    right = [None if true is None else true == answer
             for true, answer in zip(known, answers, strict=True)]  # fmt: skip
    order = _worth_looking_at(p[n, best], right)
    own, pull = found.support_of_views.sum(axis=1), found.support_of_other_queries
    together = bool(found.together.size)
    samples = [
        Sample(
            number=int(k), id=str(found.ids[k]), label=answers[k], has=found.mask[k].tolist(),
            lacks=", ".join(v for v, has in zip(found.view_names, found.mask[k], strict=True)
                            if not has),
            probability=float(p[k, best[k]]),
            alone=None if alone is None else float(alone[k, best[k]]),
            alone_label="" if alone is None else names[int(alone[k].argmax())],
            second=names[int(found.runner_up[k])], own=float(own[k]),
            pull=float(pull[k]) if together else None, margin=float(found.margin[k]),
            true=known[k], right=right[k], rejected=bool(rows[k]["rejected"]),
            card=Markup(card(found, int(k))),
        )
        for k in order[:MOST_SAMPLES].tolist()
    ]  # fmt: skip
    sure = p[n, best]
    counts = np.histogram(sure, bins=20, range=(0, 1))[0].tolist()
    spoken = (
        f"{int((sure >= 0.9).sum())} of {len(found)} answers have a probability of 90 % or more"
    )
    return Shown(
        samples, len(found), _by_class(names, answers, best, sure, alone, right),
        _by_view(found), Markup(histogram(counts, spoken)), found.view_names,
        list(dict.fromkeys([*names, *answers])), together,
        method.looks_at_queries == "yes" and not together, alone is not None,
        any(true is not None for true in known),
        _words(found, answers, alone, right, len(samples), spoken),
    )  # fmt: skip


def _worth_looking_at(sure: Any, right: Sequence[bool | None]) -> Any:
    """Wrong answers where labels are known, the surest first; then all others, the least sure."""
    wrong = np.array([value is False for value in right])
    return np.lexsort((np.where(wrong, -sure, sure), ~wrong))


def _by_class(
    names: list[str], answers: list[str], best: Any, sure: Any, alone: Any, right: Any
) -> list[list[Markup | str]]:
    changed = np.zeros(len(best), bool) if alone is None else alone.argmax(axis=1) != best
    out: list[list[Markup | str]] = []
    for name in dict.fromkeys([*names, *answers]):
        mine = np.array([answer == name for answer in answers])
        count = int(mine.sum())
        row: list[Markup | str] = [
            name,
            Markup(share_bar(count / max(len(best), 1), str(count))),
            percent(float(sure[mine].mean())) if count else "",
            percent(float(sure[mine].min())) if count else "",
        ]
        if alone is not None:
            row.append(str(int(changed[mine].sum())))
        if any(value is not None for value in right):
            mistakes = sum(value is False for value, one in zip(right, mine, strict=True) if one)
            row.append(str(mistakes))
        out.append(row)
    return out


def _by_view(found: Explanation) -> list[list[Markup | str]]:
    """How often a view is there, and how often the answer would be another without it."""
    out: list[list[Markup | str]] = []
    for v, view in enumerate(found.view_names):
        there = found.mask[:, v]
        other = found.decided_without[:, v]
        basis = found.decided
        if found.inductive.size and found.together.size:
            basis = found.inductive.argmax(axis=1)
        turned = int((there & (other >= 0) & (other != basis)).sum())
        only = int((there & (other < 0)).sum())
        share = 1 - float(there.mean()) if len(there) else 0.0
        missing = Markup(share_bar(share, percent(share), "others"))
        out.append([view, missing, str(turned), str(only)])
    return out


def _words(
    found: Explanation, answers: list[str], alone: Any, right: Any, shown: int, sure: str
) -> list[str]:
    out = [f"{sure}."]
    if alone is not None:
        changed = int((alone.argmax(axis=1) != found.decided).sum())
        out.append(
            f"The other queries have changed {plural(changed, 'answer')}: alone, these samples "
            "would have got another class."
        )
    known = [value for value in right if value is not None]
    if known:
        share = percent(sum(known) / len(known))
        out.append(f"Of {len(known)} samples with a label, {share} are right.")
    if shown < len(found):
        out.append(
            f"All {len(found):,} samples are counted here; {shown} are listed below: "
            + ("wrong answers, the surest first, then " if known else "")
            + "those that were least sure. The file of predictions has all."
        )
    return out


def write_predictions(
    output: str | PathLike[str],
    method: Method,
    samples: MultiViewData,
    rows: Sequence[dict[str, Any]],
    found: Explanation,
    *,
    command: str = "",
    expected: str = "",
    named: str = "",
) -> Path:
    """Write one self-contained page about predictions.

    Args:
        output: the page; written whole or not at all.
        method: the fitted method.
        samples: the queries; their labels are shown where they have some.
        rows: its `predictions`.
        found: its reasons, of `reasons_for_page`.
        command: what was typed, shown at the end.
        expected: how many are right, as far as that can be told; shown first.
        named: how the user named the method; its class when empty.
    """
    labels = None if samples.labels is None else samples.labels.tolist()
    shown = shown_predictions(method, rows, found, labels)
    supports = method.support_
    text = make_page(
        "prediction.html",
        title="Predictions with reasons",
        summary=(
            f"{plural(len(found), 'sample')} in {len(found.classes)} classes by "
            f"{named or type(method).__name__}, from {plural(len(supports), 'labelled sample')} "
            f"and {plural(len(found.view_names), 'view')}."
            + (f" {expected[:1].upper()}{expected[1:]}." if expected else "")
        ),
        shown=shown,
        command=command,
    )
    with replacing(output) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return Path(output)
