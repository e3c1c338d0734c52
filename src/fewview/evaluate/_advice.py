"""Which method suits somebody's own data? Cross-validation over classes, and one sentence.

Classes of the data take turns as base and as new classes, with the gaps that the samples really
have. What comes out is a ranking with intervals, and a recommendation that says how sure it is.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, isnan, nan
from typing import Any

from fewview.errors import FewviewError, FewviewWarning
from fewview.evaluate._grid import OWN_GAPS
from fewview.evaluate._options import bench, make_grid
from fewview.evaluate._progress import Progress
from fewview.evaluate._runner import Outcome
from fewview.ground._rows import Row
from fewview.methods.registry import create, expand
from fewview.results._cells import Cell, Result
from fewview.results._comparing import compare
from fewview.samples._data import MultiViewData

# It learns from base classes, and fewer of them are left while others play new classes. On new
# classes of the development sets it is ahead of what it showed by about this many points times
# (1 / classes left - 1 / classes), more than other methods are, which gain nothing.
LEARNER, GAIN = "marginal", 60.0
MUCH_FASTER = 5  # times, to be worth a word
# What a practitioner would do without this package. Of those that are level the first is taken.
PLAIN = ("concat-logistic", "concat-nn", "concat-hgb")


@dataclass(frozen=True)
class Advice:
    """A ranking of methods on somebody's data."""

    rows: list[Row]  # one per method, the recommended one, then the best first, as of `bench`
    method: str  # the recommended one, as typed
    sentence: str  # why
    outcome: Outcome  # everything that was computed


def give_advice(
    data: MultiViewData,
    *,
    methods: Any = "all",
    plain: Sequence[str] = PLAIN,
    shot: int = 1,
    way: int | None = None,
    queries: int | None = None,
    splits: int = 5,
    episodes: int = 20,
    query_counts: str = "balanced",
    seed: int = 0,
    store: str = "none",
    jobs: int = 1,
    progress: Progress | None = None,
) -> Advice:
    """Cross-validate methods on labelled data, with the gaps they have, and recommend one.

    The plain scikit-learn baselines take part, or those that `plain` names. Classes are divided
    into base and new ones `splits` times; fewer, with a warning, if there are not so many ways.
    What is None is chosen: up to 5 classes a task, up to 15 queries a class. `query_counts` is as
    for a benchmark.
    """
    wanted = dict.fromkeys([*expand(methods), *plain])
    # Eta 0 takes nothing away: samples keep the gaps that they really have.
    grid = make_grid(
        [data], methods=list(wanted), eta="0", way=way, shot=shot, queries=queries,
        splits=splits, episodes=episodes, seed=seed, query_counts=query_counts,
    )  # fmt: skip
    told: Any = _OwnRate(progress or Progress(), round(data.missing_rate, 2))
    with warnings.catch_warnings():
        # Keeping the gaps of the data is what is wanted here.
        warnings.filterwarnings("ignore", f".*{OWN_GAPS}", FewviewWarning)
        rows, outcome = bench(grid, store=store, jobs=jobs, progress=told)
    if not rows:
        raise FewviewError(f"no method ran through: {outcome.failures[0][1]}")
    rows = sorted(rows, key=lambda row: (-round(row["accuracy"], 9), row["seconds"]))
    # In this order, so that of equal methods the same one is the best in comparisons.
    order = [row["method"] for row in rows]
    ranked = sorted(outcome.results.values(), key=lambda result: order.index(result.cell.method))
    pairs = compare(ranked)
    left = min(len(result.cell.base_classes) for result in ranked)
    gain = GAIN * (1 / left - 1 / len(data.classes))
    accuracies = {row["method"]: row["accuracy"] for row in rows}
    chosen = first_choice(accuracies, _margins(order[0], pairs), gain)
    rows.insert(0, rows.pop(order.index(chosen)))
    sentence = recommend(rows, pairs)
    failed = {cell.method: reason for cell, reason in outcome.failures}
    for method, reason in failed.items():
        sentence += f" {method} is not among them, since it failed: {reason}."
    return Advice(rows, rows[0]["method"], sentence, outcome)


def first_choice(
    accuracies: Mapping[str, float], margins: Mapping[str, tuple[float, float]], gain: float = 0.0
) -> str:
    """The method to recommend, of some that are ranked.

    Args:
        accuracies: in percent, the highest first.
        margins: by how many points the first is ahead of others, as intervals; NaN if unknown.
        gain: points that `marginal` will have more, with all classes to learn from.

    Example:
        >>> first_choice({"proto": 80.0, "marginal": 78.0}, {}, gain=3.0)
        'marginal'
        >>> found = {"concat-hgb": 80.0, "concat-logistic": 79.5}
        >>> first_choice(found, {"concat-logistic": (-0.5, 1.5)})
        'concat-logistic'
    """
    leader = next(iter(accuracies))
    if accuracies.get(LEARNER, -inf) + gain >= accuracies[leader]:
        return LEARNER
    if leader in PLAIN and PLAIN[0] in margins and not margins[PLAIN[0]][0] > 0:
        return PLAIN[0]
    return leader


class _OwnRate:
    """Progress that shows the missing rate of the data in place of eta 0."""

    def __init__(self, told: Progress, rate: float) -> None:
        self._told, self._rate = told, rate

    def __getattr__(self, name: str) -> Any:
        return getattr(self._told, name)

    def started(self, cell: Cell) -> None:
        self._told.started(replace(cell, eta=self._rate))

    def finished(self, result: Result) -> None:
        self._told.finished(replace(result, cell=replace(result.cell, eta=self._rate)))

    def failed(self, cell: Cell, reason: str) -> None:
        self._told.failed(replace(cell, eta=self._rate), reason)


def recommend(rows: list[Row], pairs: list[Row]) -> str:
    """Recommend the first of some ranked methods, in one sentence; `pairs` are of `compare`."""
    best = rows[0]
    name = best["method"]
    text = f"Use {name}: {best['accuracy']:.1f} % of queries right"
    if best["ci_low"] is None:
        text += " (no interval: the classes were divided once)"
    else:
        text += f" (95 % interval {best['ci_low']:.1f} to {best['ci_high']:.1f})"
    text += f" in {best['way']}-way {best['shot']}-shot tasks like yours"
    ahead = max(rows, key=lambda row: row["accuracy"])
    if ahead["accuracy"] > best["accuracy"]:
        gap = ahead["accuracy"] - best["accuracy"]
        text += f"; {ahead['method']} is {gap:.1f} points ahead here, " + (
            f"which may be chance, and {name} is the simplest of them"
            if name in PLAIN
            else f"but {name} gains more from the classes that could not be learnt from meanwhile"
        )
    margins = _margins(name, pairs)
    plain = next((row for row in rows if row["method"] in PLAIN), None)
    if name in PLAIN:
        text += ", and no special method is ahead of this plain classifier"
    elif plain is not None and plain is not ahead:
        gap = best["accuracy"] - plain["accuracy"]
        text += f", {gap:.1f} points above the best plain classifier ({plain['method']}"
        low, high = margins.get(plain["method"], (nan, nan))
        text += ")" if isnan(low) else f"; 95 % interval {low:.1f} to {high:.1f})"
    worse = {p["two"] for p in pairs if p["one"] == name and p["verdict"] == "better"}
    compared = [row for row in rows[1:] if row["method"] in margins]
    if level := [row for row in compared if row["method"] not in worse]:
        listed = ", ".join(row["method"] for row in level[:3])
        more = f" and {len(level) - 3} more" if len(level) > 3 else ""
        text += f"; {listed}{more} {'is' if len(level) == 1 else 'are'} not clearly worse"
        quick = min(level, key=lambda row: row["seconds"])
        # Seconds of a few tasks vary from run to run: no number is made of them.
        if best["seconds"] > MUCH_FASTER * quick["seconds"]:
            text += f", and {quick['method']} is much faster"
    if pull := create(name).tags.balanced:
        text += "; it assumes that every class has about as many queries as the others"
        text += "" if pull == 1 else ", though not strictly"
    return text + "."


def _margins(best: str, pairs: list[Row]) -> dict[str, tuple[float, float]]:
    """By how many points one is ahead of those it was compared with: intervals, NaN if unknown."""
    out = {}
    for pair in pairs:
        low, high = (nan if pair[end] is None else pair[end] for end in ("low", "high"))
        if pair["one"] == best:
            out[pair["two"]] = (low, high)
        elif pair["two"] == best:
            out[pair["one"]] = (-high, -low)
    return out
