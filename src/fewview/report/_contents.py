"""What a page tells, before any markup: results sorted into panels, compared, ranked, timed.

A `Panel` holds results that may be compared: the same data, task, episodes. What cannot be compared
fairly (older versions, methods that lack class splits) is left out of comparisons and named.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fewview.ground._errors import FewviewError
from fewview.ground._rows import Row
from fewview.results._cells import Cell, Result
from fewview.results._intervals import PairedComparison, Ranking, average_ranks, compare_paired
from fewview.results._metrics import expected_calibration_error
from fewview.results._stale import STALE, UNKNOWN, statuses
from fewview.results._summaries import label, split_name, summarise

ALPHA = 0.05
# Results that share these were computed on the same episodes.
_PANEL = (
    "dataset", "data_checksum", "base", "base_checksum", "way", "shot", "queries", "query_counts",
    "missing", "sampler_version", "seed", "n_episodes",
)  # fmt: skip
# How a panel is told from another one of the same data set, in words.
_WORDS = {
    "base": "base {}", "way": "{}-way", "shot": "{}-shot", "queries": "{} queries a class",
    "query_counts": "queries {}", "missing": "missing {}", "seed": "seed {}",
    "n_episodes": "{} episodes a split", "data_checksum": "data {:.6}",
    "base_checksum": "base data {:.6}", "sampler_version": "sampler {}",
}  # fmt: skip
_VARIANTS = ("scaling", "padding", "dtype", "device", "method_version", "parameters")


@dataclass(frozen=True)
class Panel:
    """Comparable results on one data set.

    Attributes:
        title: the data set, and what tells it from other panels of the same set.
        cell: any of its cells, for what they share.
        results: {method: {eta: results, one per class split}}.
        rows: one per method and eta, as `summarise` makes them, `method` being the label here.
    """

    title: str
    cell: Cell
    results: dict[str, dict[float, list[Result]]]
    rows: list[Row]

    @property
    def etas(self) -> list[float]:
        """All missing rates, rising."""
        return sorted({row["eta"] for row in self.rows})

    @property
    def methods(self) -> list[str]:
        """Labels of methods, best mean first; those that lack a missing rate come last."""

        def order(name: str) -> tuple[bool, float]:
            found = [row["accuracy"] for row in self.rows if row["method"] == name]
            return len(found) < len(self.etas), -float(np.mean(found))

        return sorted(self.results, key=order)

    @property
    def task(self) -> str:
        """The task in words."""
        cell = self.cell
        counts = sorted({row["n_splits"] for row in self.rows})
        splits = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
        unit = "class split" + ("" if counts == [1] else "s")
        text = f"{cell.way}-way {cell.shot}-shot, {cell.queries} queries a class, "
        if cell.fixed:
            n = sorted({row["n_episodes"] for row in self.rows})
            return f"{text}the fixed class split, {n[0]} episodes"
        return f"{text}{splits} {unit} of {cell.n_episodes} episodes"

    def row(self, method: str, eta: float) -> Row | None:
        """The row of a method at a missing rate, None if there is none."""
        found = [row for row in self.rows if row["method"] == method and row["eta"] == eta]
        return found[0] if found else None


@dataclass(frozen=True)
class Contents:
    """Everything that a page is made of.

    Attributes:
        panels: comparable results.
        methods: labels over all panels, best mean rank first; a method looks the same everywhere.
        results: what was read and is shown.
        stale: how many results of older versions were left out.
        unknown: methods that this installation does not know; their results are shown.
    """

    panels: list[Panel]
    methods: list[str]
    results: list[Result]
    stale: int
    unknown: list[str]


def collect(results: Sequence[Result]) -> Contents:
    """Sort results into panels.

    Args:
        results: of a store.

    Returns:
        The contents; a store without current results is an error that says what to do.

    Example:
        >>> collect([])
        Traceback (most recent call last):
        ...
        fewview.FewviewError: there are no results to report; 'fewview bench' ...
    """
    if not results:
        raise FewviewError(
            "there are no results to report; 'fewview bench' computes some, and 'fewview results' "
            "shows what a store holds"
        )
    status = statuses(results)
    current = [result for result in results if status[result.cell.hash] != STALE]
    if not current:
        raise FewviewError(
            f"all {len(results)} results are of older versions of their methods; compute them "
            "again with the same 'fewview bench' command"
        )
    unknown = {r.cell.method for r in current if status[r.cell.hash] == UNKNOWN}
    panels = _panels(current)
    return Contents(
        panels=panels,
        methods=_order(panels),
        results=current,
        stale=len(results) - len(current),
        unknown=sorted(unknown),
    )


def _panels(results: Sequence[Result]) -> list[Panel]:
    found: dict[tuple[Hashable, ...], list[Result]] = {}
    for result in results:
        found.setdefault(tuple(getattr(result.cell, key) for key in _PANEL), []).append(result)
    out = []
    for key, members in found.items():
        others = [other for other in found if other[0] == key[0]]
        varying = [k for k in range(1, len(_PANEL)) if len({other[k] for other in others}) > 1]
        words = [_WORDS[_PANEL[k]].format(key[k]) for k in varying]
        title = ", ".join([str(key[0]), *words])
        names = _labels(members)
        table: dict[str, dict[float, list[Result]]] = {}
        for result in members:
            name = names[_variant(result.cell)]
            table.setdefault(name, {}).setdefault(result.cell.eta, []).append(result)
        rows = summarise([table[name][eta] for name in table for eta in sorted(table[name])])
        order = [name for name in table for _ in table[name]]
        out.append(
            Panel(
                title=title,
                cell=members[0].cell,
                results=table,
                rows=[row | {"method": name} for row, name in zip(rows, order, strict=True)],
            )
        )
    return out


def _variant(cell: Cell) -> tuple[str, ...]:
    return (label(cell), *(str(getattr(cell, key)) for key in _VARIANTS))


def _labels(results: Sequence[Result]) -> dict[tuple[str, ...], str]:
    """Name every variant of a method; what tells variants apart is added where there are some."""
    variants = list(dict.fromkeys(_variant(result.cell) for result in results))
    out: dict[tuple[str, ...], str] = {}
    for variant in variants:
        alike = [other for other in variants if other[0] == variant[0]]
        words = [
            f"{key}={variant[k]}"
            for k, key in enumerate(_VARIANTS[:-1], start=1)
            if len({other[k] for other in alike}) > 1
        ]
        name = " ".join([variant[0], *words])
        # The parameters are long; a number must do where nothing else differs.
        taken = list(out.values()).count(name)
        out[variant] = name if not taken else f"{name} #{taken + 1}"
    return out


def _order(panels: Sequence[Panel]) -> list[str]:
    """Methods by their mean place over panels, relative to the number of methods there."""
    places: dict[str, list[float]] = {}
    for panel in panels:
        for k, name in enumerate(panel.methods):
            places.setdefault(name, []).append((k + 1) / len(panel.methods))
    return sorted(places, key=lambda name: (float(np.mean(places[name])), name))


# ---------------------------------------------------------------------- fair comparisons


def fair(units: Mapping[str, Iterable[Hashable]]) -> tuple[list[str], list[Hashable]]:
    """Choose methods and the units (class splits, rates) that all of them have.

    A method that has hardly begun would leave few units to compare anything on; so the choice
    is the one with most results, number of methods times number of shared units.

    Args:
        units: {method: its units}.

    Returns:
        Methods, and shared units in the order of the first method.

    Example:
        >>> fair({"a": [1, 2, 3], "b": [1, 2, 3], "late": [1]})
        (['a', 'b'], [1, 2, 3])
        >>> fair({"much": range(10), "b": [0, 1], "c": [0, 1], "d": [1, 0], "e": [0, 1]})
        (['much', 'b', 'c', 'd', 'e'], [0, 1])
    """
    have = {name: list(dict.fromkeys(items)) for name, items in units.items()}
    best: tuple[list[str], list[Hashable]] = ([], [])
    for least in sorted({len(items) for items in have.values()}):
        names = [name for name, items in have.items() if len(items) >= least]
        shared = set.intersection(*(set(have[name]) for name in names))
        alone = len(names) < 2 and len(have) > 1
        if shared and not alone and len(names) * len(shared) >= len(best[0]) * len(best[1]):
            best = (names, [unit for unit in have[names[0]] if unit in shared])
    return best


@dataclass(frozen=True)
class Winner:
    """Who is best at one place, by how much, and how sure that is.

    Attributes:
        panel: title of the panel.
        eta: missing rate; None is the mean over all of them.
        best: method with the highest mean accuracy on the shared class splits.
        accuracy: of it, percent.
        second: the next one, or None.
        pair: the paired comparison of the two, best first; None without a second.
        tied: methods that the test does not tell apart from the best, the second included.
        n_splits: number of shared class splits.
        n_methods: number of methods compared.
        left_out: methods without all of these class splits.
    """

    panel: str
    eta: float | None
    best: str
    accuracy: float
    second: str | None
    pair: PairedComparison | None
    tied: list[str]
    n_splits: int
    n_methods: int
    left_out: list[str]

    @property
    def clear(self) -> bool:
        """Whether the best is told apart from the second at the usual level."""
        return self.pair is not None and self.pair.p_t_holm < ALPHA


def winners(panel: Panel) -> list[Winner]:
    """Say who wins in a panel: over all missing rates, then at each of them.

    Args:
        panel: comparable results.
    """
    out = []
    places = [None, *panel.etas] if len(panel.etas) > 1 else panel.etas
    for eta in places:
        names, means = split_means(panel, eta)
        if names:
            out.append(_winner(panel, eta, names, means))
    return out


def split_means(panel: Panel, eta: float | None) -> tuple[list[str], Any]:
    """Mean accuracy of methods on class splits that all of them have.

    Args:
        panel: comparable results.
        eta: missing rate, or None for the mean over all rates.

    Returns:
        Methods, and accuracies in percent [methods, splits].
    """
    table: dict[str, dict[tuple[str, float], float]] = {}
    for name, by_eta in panel.results.items():
        for rate, results in by_eta.items():
            if eta is None or rate == eta:
                for result in results:
                    mean = 100 * float(result.metrics.accuracy.mean())
                    table.setdefault(name, {})[split_name(result.cell), rate] = mean
    names, shared = fair(table)
    units: list[tuple[str, float]] = [unit for unit in shared if isinstance(unit, tuple)]
    rates = sorted({rate for _, rate in units})
    counts = Counter(split for split, _ in units)
    whole = [split for split, n in counts.items() if n == len(rates)]
    means = [
        [float(np.mean([table[name][split, rate] for rate in rates])) for split in whole]
        for name in names
    ]
    return (names, np.array(means)) if whole else ([], np.zeros((0, 0)))


def _winner(panel: Panel, eta: float | None, names: list[str], means: Any) -> Winner:
    centre = means.mean(axis=1)
    order = np.argsort(-centre, kind="stable")
    best = names[order[0]]
    pairs = {}
    for pair in compare_paired(means, names, wilcoxon=False):
        if best in (pair.one, pair.two):
            pairs[pair.two if pair.one == best else pair.one] = _turned(pair, best)
    second = names[order[1]] if len(names) > 1 else None
    return Winner(
        panel=panel.title,
        eta=eta,
        best=best,
        accuracy=float(centre[order[0]]),
        second=second,
        pair=pairs[second] if second is not None else None,
        tied=[names[k] for k in order[1:] if not pairs[names[k]].p_t_holm < ALPHA],
        n_splits=means.shape[1],
        n_methods=len(names),
        left_out=[name for name in panel.results if name not in names],
    )


def _turned(pair: PairedComparison, one: str) -> PairedComparison:
    if pair.one == one:
        return pair
    return replace(
        pair,
        one=pair.two,
        two=pair.one,
        difference=-pair.difference,
        low=-pair.high,
        high=-pair.low,
        wins=pair.losses,
        losses=pair.wins,
    )


@dataclass(frozen=True)
class Ranked:
    """A ranking, what its blocks are, and which methods it leaves out."""

    title: str
    ranking: Ranking
    blocks: str
    left_out: list[str]


def rankings(contents: Contents) -> list[Ranked]:
    """Average ranks: over data sets where there are several, else over class splits.

    Class splits of one data set share its samples, so they are no independent blocks beside other
    data sets; with one data set they are all there is.
    """
    panels = contents.panels
    datasets = list(dict.fromkeys(panel.cell.dataset for panel in panels))
    out = []
    if len(datasets) > 1:
        table: dict[str, dict[str, list[float]]] = {}
        for panel in panels:
            names, means = split_means(panel, None)
            for name, row in zip(names, means, strict=True):
                found = table.setdefault(name, {}).setdefault(panel.cell.dataset, [])
                found.append(float(row.mean()))
        names, blocks = fair(table)
        if len(names) > 1:
            scores = [[np.mean(table[name][str(block)]) for name in names] for block in blocks]
            left_out = [name for name in contents.methods if name not in names]
            title = "All data sets"
            ranking = average_ranks(scores, names)
            return [Ranked(title, ranking, f"data sets ({', '.join(map(str, blocks))})", left_out)]
    for panel in panels:
        names, means = split_means(panel, None)
        if len(names) > 1:
            left_out = [name for name in panel.results if name not in names]
            ranking = average_ranks(means.T, names)
            out.append(Ranked(panel.title, ranking, "class splits", left_out))
    return out


# ---------------------------------------------------------------------- time and calibration


@dataclass(frozen=True)
class Cost:
    """What a method takes and gives in a panel: means over missing rates and class splits.

    Attributes:
        method: its label.
        milliseconds: of scoring, per episode.
        seconds_base: of preparing from base classes, per class split.
        accuracy: percent.
        efficient: no other method is both faster and better.
        complete: whether it has all missing rates of the panel; others are not comparable.
    """

    method: str
    milliseconds: float
    seconds_base: float
    accuracy: float
    efficient: bool
    complete: bool


def costs(panel: Panel) -> list[Cost]:
    """Time and accuracy of the methods of a panel, fastest first."""
    found = []
    for name, by_eta in panel.results.items():
        results = [result for some in by_eta.values() for result in some]
        episodes = sum(len(result.metrics) for result in results)
        found.append(
            Cost(
                method=name,
                milliseconds=1000 * sum(r.seconds for r in results) / episodes,
                seconds_base=float(np.mean([r.seconds_base for r in results])),
                accuracy=float(np.mean([r["accuracy"] for r in panel.rows if r["method"] == name])),
                efficient=False,
                complete=len(by_eta) == len(panel.etas),
            )
        )
    found.sort(key=lambda cost: (cost.milliseconds, -cost.accuracy))
    best, out = -np.inf, []
    for cost in found:
        ahead = cost.complete and cost.accuracy > best
        best = cost.accuracy if ahead else best
        out.append(replace(cost, efficient=ahead))
    return out


@dataclass(frozen=True)
class Reliability:
    """How far the probabilities of a method can be trusted, pooled over rates and splits.

    Attributes:
        method: its label.
        points: (mean probability, share right, queries) of every bin that has enough queries.
        error: expected calibration error.
        confidence: mean probability of the predicted class.
        accuracy: share of right predictions.
        log_loss: mean over episodes.
        brier: mean over episodes.
    """

    method: str
    points: list[tuple[float, float, int]]
    error: float
    confidence: float
    accuracy: float
    log_loss: float
    brier: float


def reliabilities(panel: Panel, least: int = 20) -> list[Reliability]:
    """Reliability of the methods of a panel, best calibrated first.

    Args:
        panel: comparable results.
        least: queries that a bin needs to be drawn; fewer say little.
    """
    out = []
    for name, by_eta in panel.results.items():
        results = [result for some in by_eta.values() for result in some]
        bins = np.sum([result.metrics.bins for result in results], axis=0)
        total = max(float(bins[0].sum()), 1.0)
        out.append(
            Reliability(
                method=name,
                points=[
                    (float(p / n), float(hit / n), int(n)) for n, p, hit in bins.T if n >= least
                ],
                error=expected_calibration_error(bins),
                confidence=float(bins[1].sum()) / total,
                accuracy=float(bins[2].sum()) / total,
                log_loss=float(np.mean([r.metrics.log_loss.mean() for r in results])),
                brier=float(np.mean([r.metrics.brier.mean() for r in results])),
            )
        )
    return sorted(out, key=lambda one: one.error)
