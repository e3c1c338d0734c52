"""Reasons as HTML: one card per query with its views, probabilities, evidence and what-ifs.

The evidence of a query's own views stands apart from the pull of the other queries. Pages put cards
where they want them.
"""

from __future__ import annotations

from dataclasses import replace
from html import escape
from typing import TYPE_CHECKING

import numpy as np

from fewview.ground._markup import markup_table, share_bar, signed_bar, view_marks

if TYPE_CHECKING:
    from fewview.methods.estimator.explanation import Explanation, FloatArray

# Classes whose probabilities a card shows; the rest is summed up.
MOST_CLASSES = 6


def card(found: Explanation, row: int) -> str:
    """All that is known about the decision on one query."""
    found = _only(found, row)
    out = f'<div class="side">{_probabilities(found)}{_evidence(found)}</div>'
    if found.nearest:
        near = ", ".join(
            f"{'' if name is None else escape(str(name)) + ' '}"
            f"(<strong>{escape(str(label))}</strong>, {distance:.3g})"
            for name, label, distance in found.nearest[0]
        )
        near = near or "none, because it shares no view with any support"
        out += f"<p>Nearest supports over shared views, with their distance: {near}</p>"
    if found.neighbours:
        near = ", ".join(escape(str(name)) for name in found.neighbours[0])
        out += f"<p>Base classes it was likened to: {near}</p>"
    return out


def _only(found: Explanation, row: int) -> Explanation:
    """What an explanation says of one query."""
    of = slice(row, row + 1)
    return replace(
        found, scores=found.scores[of], contributions=found.contributions[of],
        without=found.without[of], decided=found.decided[of], mask=found.mask[of],
        decided_without=found.decided_without[of], together=found.together[of],
        inductive=found.inductive[of], nearest=found.nearest[of], neighbours=found.neighbours[of],
    )  # fmt: skip


def _probabilities(found: Explanation) -> str:
    together, alone = probabilities(found.scores)[0], None
    head = ["class", "probability"]
    if found.inductive.size:
        alone = probabilities(found.inductive)[0]
        head = ["class", "with the other queries", "without them"]
    order = np.argsort(-together, kind="stable")
    lines = []
    for k in order[:MOST_CLASSES]:
        shares = [together[k]] if alone is None else [together[k], alone[k]]
        bars = [share_bar(share, percent(share)) for share in shares]
        lines.append([escape(str(found.classes[k])), *bars])
    if len(order) > MOST_CLASSES:
        rest = order[MOST_CLASSES:]
        known = [together] if alone is None else [together, alone]
        lines.append([f"{len(rest)} others", *(percent(float(p[rest].sum())) for p in known)])
    return markup_table("Probabilities", head, lines)


def _evidence(found: Explanation) -> str:
    parts, pull = found.support_of_views[0], float(found.support_of_other_queries[0])
    margin = float(found.margin[0])
    largest = float(np.abs([*parts, pull, margin]).max())
    without = probabilities(found.without[0])

    def bar(value: float, kind: str = "") -> str:
        return signed_bar(value, largest, kind)

    lines = []
    for v, view in enumerate(found.view_names):
        if not found.mask[0, v]:
            lines.append([view_marks([view], [False]), "missing", ""])
            continue
        other = int(found.decided_without[0, v])
        answer = "nothing is left" if other < 0 else (
            f"{escape(str(found.classes[other]))} ({percent(float(without[v, other]))})"
        )  # fmt: skip
        if other >= 0 and other != int(found.decided[0]):
            answer = f"<strong>{answer}</strong>"
        lines.append([view_marks([view], [True]), bar(float(parts[v])), answer])
    sums = 1
    if found.together.size:
        sums = 3
        best = "the supports alone"
        if found.inductive.size:
            alone = probabilities(found.inductive)[0]
            best = f"{escape(str(found.classes[int(alone.argmax())]))} ({percent(alone.max())})"
        lines.append(["its own views", bar(float(parts.sum())), best])
        lines.append(["pull of the other queries", bar(pull, "others"), ""])
    lines.append(["all together", bar(margin), ""])
    first, second = (str(found.classes[int(k)]) for k in (found.decided[0], found.runner_up[0]))
    caption = f"Evidence: log-odds of {first} (right) against {second} (left)"
    words = "answer without it" + (", supports alone" if found.together.size else "")
    return markup_table(caption, ["view", "evidence", words], lines, left=(2,), sums=sums)


def probabilities(scores: FloatArray) -> FloatArray:
    """Probabilities of log-scores, over the last axis."""
    odds = np.exp(scores - scores.max(axis=-1, keepdims=True))
    out: FloatArray = odds / odds.sum(axis=-1, keepdims=True)
    return out


def percent(share: float) -> str:
    """A probability, never shown as certain where it is not."""
    if 0.999 <= share < 1:
        return "> 99.9 %"
    return "< 0.1 %" if 0 < share < 0.001 else f"{100 * share:.1f} %"
