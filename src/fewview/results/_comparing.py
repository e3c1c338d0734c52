"""Which results may be compared, what they are called, who wins, who ranks where.

The command line, the page of a store and advice all ask here, so that they say the same. A `Panel`
holds results on the same episodes; a method that has hardly begun is left out of what it would
spoil, and named.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np

from fewview.errors import FewviewError
from fewview.ground._rows import Row
from fewview.results._cells import Cell, Result
from fewview.results._intervals import (
    Float64Array,
    PairedComparison,
    Ranking,
    average_ranks,
    compare_with_best,
)
from fewview.results._summaries import best_first, summarise

Unit = TypeVar("Unit", bound=Hashable)
# What makes tasks of one data set different questions, which are never compared or mixed.
TASK = (
    "base", "way", "shot", "queries", "query_counts", "missing", "seed", "n_episodes",
    "data_checksum", "base_checksum", "sampler_version",
)  # fmt: skip
# What makes one method, as typed, different ones. Parameters are too long to name.
VARIANT = ("scaling", "padding", "dtype", "device", "method_version")
# Points within which the interval of a difference must lie for two methods to count as level.
LEVEL = 2.0
# What a method is to the best one, and how that is said.
VERDICTS = {
    "better": "Clearly better than",
    "level": f"Level with, within {LEVEL:g} points",
    "open": "More class splits needed to tell from",
}


# ---------------------------------------------------------------------- names


def split_name(cell: Cell) -> str:
    """Name a class split: its novel classes; repetitions of a fixed one differ in episodes."""
    return ",".join(cell.novel) + f" {cell.start}"


def label(cell: Cell) -> str:
    """Name a method in comparisons: as typed, and `(tuned)` where its settings were chosen."""
    return f"{cell.method} (tuned)" if cell.tune else cell.method


def _told_apart(
    names: Sequence[str], cells: Sequence[Cell], fields: Sequence[str]
) -> Iterator[str]:
    """Add to the names of cells those fields in which cells of the same name differ."""
    seen: dict[tuple[str, str], set[Hashable]] = {}
    for name, cell in zip(names, cells, strict=True):
        for field in fields:
            seen.setdefault((name, field), set()).add(getattr(cell, field))
    for name, cell in zip(names, cells, strict=True):
        words = [
            f"{field.removeprefix('n_').replace('_', ' ')} {_short(getattr(cell, field))}"
            for field in fields
            if len(seen[name, field]) > 1
        ]
        yield f"{name} ({', '.join(words)})" if words else name


def _short(value: object) -> str:
    text = str(value)
    return text[:6] if len(text) == 64 else text  # a checksum


# ---------------------------------------------------------------------- panels


@dataclass(frozen=True)
class Panel:
    """Comparable results: the same data, task and episodes."""

    title: str  # the data set, and what tells it from other panels of the same set
    cell: Cell  # any of its cells, for what they share
    results: dict[str, dict[float, list[Result]]]  # {method: {eta: one per class split}}

    @cached_property
    def rows(self) -> list[Row]:
        """One per method and eta, as `summarise` makes them, `method` being the name here."""
        places = [(name, eta) for name in self.results for eta in sorted(self.results[name])]
        rows = summarise([self.results[name][eta] for name, eta in places])
        return [row | {"method": name} for row, (name, _) in zip(rows, places, strict=True)]

    @property
    def etas(self) -> list[float]:
        """All missing rates, rising."""
        return sorted({eta for by_eta in self.results.values() for eta in by_eta})

    @property
    def methods(self) -> list[str]:
        """Names of methods, best mean first; those that lack a missing rate come last."""
        return best_first(self.rows)

    @property
    def task(self) -> str:
        """The task in words."""
        cell = self.cell
        text = f"{cell.way}-way {cell.shot}-shot, {cell.queries} queries a class, "
        if cell.fixed:
            episodes = min(row["n_episodes"] for row in self.rows)
            return f"{text}the fixed class split, {episodes} episodes"
        counts = sorted({row["n_splits"] for row in self.rows})
        splits = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
        unit = "class split" + ("" if counts == [1] else "s")
        return f"{text}{splits} {unit} of {cell.n_episodes} episodes"

    def row(self, method: str, eta: float) -> Row | None:
        """The row of a method at a missing rate, None if there is none."""
        places = (row for row in self.rows if row["method"] == method and row["eta"] == eta)
        return next(places, None)

    def leaders(self) -> dict[float, tuple[str, set[str]]]:
        """Per missing rate the best method, and those that are not told apart from it."""
        return {
            one.eta: (one.best, set(one.tied) if one.n_splits > 1 else set())
            for one in winners(self)
            if one.eta is not None
        }

    def comparison(
        self, eta: float | None = None, among: Collection[str] | None = None
    ) -> Comparison:
        """Compare at one missing rate, None is the mean over all; `among` are the only methods."""
        table: dict[str, dict[tuple[str, float], float]] = {}
        for name, by_eta in self.results.items():
            if among is not None and name not in among:
                continue
            for rate, results in by_eta.items():
                if eta is None or rate == eta:
                    for result in results:
                        mean = 100 * float(result.metrics.accuracy.mean())
                        table.setdefault(name, {})[split_name(result.cell), rate] = mean
        names, units = fair(table)
        rates = sorted({rate for _, rate in units})
        counts = Counter(split for split, _ in units)
        whole = [split for split, count in counts.items() if count == len(rates)]
        names = names if whole else []
        means = [
            [np.mean([table[name][split, rate] for rate in rates]) for split in whole]
            for name in names
        ]
        asked = self.results if among is None else among
        left_out = [name for name in self.results if name in asked and name not in names]
        shaped = np.reshape(means, (len(names), len(whole)))
        return Comparison(self.title, eta, names, shaped, left_out)


def panels(results: Iterable[Result]) -> list[Panel]:
    """Sort results into panels; methods have the same names in all of them."""
    results = list(results)
    cells = [result.cell for result in results]
    names = _told_apart([label(cell) for cell in cells], cells, VARIANT)
    titles = _told_apart([cell.dataset for cell in cells], cells, TASK)
    found: dict[str, Panel] = {}
    numbered: dict[tuple[str, str], dict[str, str]] = {}
    for title, name, result in zip(titles, names, results, strict=True):
        cell = result.cell
        # A number must do where nothing but long parameters differ.
        known = numbered.setdefault((title, name), {})
        full = known.setdefault(cell.parameters, f"{name} #{len(known) + 1}" if known else name)
        panel = found.setdefault(title, Panel(title, cell, {}))
        panel.results.setdefault(full, {}).setdefault(cell.eta, []).append(result)
    return list(found.values())


# ---------------------------------------------------------------------- comparisons


def fair(units: Mapping[str, Iterable[Unit]]) -> tuple[list[str], list[Unit]]:
    """Choose methods and the units (class splits, rates) that all of them have.

    A method that has hardly begun would leave few units to compare anything on; so the choice
    is the one with most results, number of methods times number of shared units.
    """
    have = {name: list(dict.fromkeys(items)) for name, items in units.items()}
    best: tuple[list[str], list[Unit]] = ([], [])
    for least in sorted({len(items) for items in have.values()}):
        names = [name for name, items in have.items() if len(items) >= least]
        shared = set.intersection(*(set(have[name]) for name in names))
        alone = len(names) < 2 and len(have) > 1
        if shared and not alone and len(names) * len(shared) >= len(best[0]) * len(best[1]):
            best = (names, [unit for unit in have[names[0]] if unit in shared])
    return best


@dataclass(frozen=True)
class Comparison:
    """Methods of a panel on the class splits that all of them have."""

    panel: str  # its title
    eta: float | None  # None is the mean over all missing rates
    names: list[str]
    means: Float64Array  # accuracy in percent, [methods, splits]
    left_out: list[str]  # methods without all of these class splits

    def rows(self) -> list[Row]:
        """The best method beside every other one: the fields of `PairedComparison`."""
        return [
            {"dataset": self.panel, "eta": self.eta}
            | {key: None if value != value else value for key, value in asdict(pair).items()}
            | {"verdict": verdict(pair)}
            for pair in compare_with_best(self.means, self.names)  # NaN is no JSON
        ]


def comparisons(results: Iterable[Result]) -> list[Comparison]:
    """Compare methods per kind of task and missing rate."""
    return [panel.comparison(eta) for panel in panels(results) for eta in panel.etas]


def compare(results: Iterable[Result]) -> list[Row]:
    """Compare the best method with all others, per data set and missing rate.

    Differences are taken on the class splits that the methods share.

    A data set with several kinds of tasks counts as several, named by what differs
    (`scene15 (shot 5)`), and so does a method with several scalings or paddings
    (`proto (scaling standard)`). A method that has hardly begun is left out, as `rank` says.

    Args:
        results: of a store.

    Returns:
        Rows with `dataset`, `eta` and the fields of `PairedComparison`; Holm's correction, of
        p-values and intervals, is over the comparisons on one data set and missing rate.

    Example:
        >>> from fewview.evaluate import Grid, run
        >>> grid = Grid(datasets=("digits",), methods=("proto", "match"), splits=2, episodes=5)
        >>> (row,) = compare(run(grid).results.values())
        >>> row["dataset"], sorted([row["one"], row["two"]]), row["n_splits"]
        ('digits', ['match', 'proto'], 2)
    """
    return [row for one in comparisons(results) for row in one.rows()]


@dataclass(frozen=True)
class Winner(Comparison):
    """Who is best in a comparison, by how much, and how sure that is."""

    best: str  # has the highest mean accuracy on the shared class splits
    accuracy: float  # of the best, percent
    second: str | None
    pair: PairedComparison | None  # the best against the second
    pairs: list[PairedComparison]  # the best against every other one, the second first
    tied: list[str]  # not told apart from the best by the test, the second included
    n_splits: int
    n_methods: int

    @property
    def clear(self) -> bool:
        """Whether the best is told apart from the second at the usual level."""
        return self.pair is not None and self.pair.told_apart

    @property
    def groups(self) -> dict[str, list[PairedComparison]]:
        """The other methods by what the best is to them: `VERDICTS`, the nearest first."""
        out: dict[str, list[PairedComparison]] = {verdict: [] for verdict in VERDICTS}
        for pair in self.pairs:
            out[verdict(pair)].append(pair)
        return out


def verdict(pair: PairedComparison) -> str:
    """What the best method is to another: "better", "level" or "open" (`VERDICTS`).

    Better where the one test of comparisons tells them apart, level where its interval leaves no
    room for more than `LEVEL` points either way, open otherwise. Differences are in percent.
    """
    if pair.told_apart:
        return "better"
    return "level" if pair.low > -LEVEL and pair.high < LEVEL else "open"


def winner(panel: Panel, among: Collection[str] | None = None) -> Winner | None:
    """Say who wins in a panel over all missing rates, of some methods; None if nobody can."""
    eta = panel.etas[0] if len(panel.etas) == 1 else None
    found = panel.comparison(eta, among)
    return _winner(found) if found.names else None


def winners(panel: Panel) -> list[Winner]:
    """Say who wins in a panel: over all missing rates, then at each of them."""
    places = [None, *panel.etas] if len(panel.etas) > 1 else panel.etas
    found = [panel.comparison(eta) for eta in places]
    return [_winner(comparison) for comparison in found if comparison.names]


def _winner(found: Comparison) -> Winner:
    centre = found.means.mean(axis=1)
    pairs = compare_with_best(found.means, found.names)
    return Winner(
        **vars(found),
        best=pairs[0].one if pairs else found.names[0],
        accuracy=float(centre.max()),
        second=pairs[0].two if pairs else None,
        pair=pairs[0] if pairs else None,
        pairs=pairs,
        tied=[pair.two for pair in pairs if not pair.told_apart],
        n_splits=found.means.shape[1],
        n_methods=len(found.names),
    )


# ---------------------------------------------------------------------- ranks


@dataclass(frozen=True)
class Ranked:
    """A ranking, and what it is about.

    Attributes:
        title: the data set and kind of task, or all data sets.
        ranking: average ranks.
        unit: what the ranked blocks are, `"class splits"` or `"data sets"`.
        blocks: the same, with the names of the data sets.
        left_out: methods that lack too many results to be ranked.
    """

    title: str
    ranking: Ranking
    unit: str
    blocks: str
    left_out: list[str]


def rank(results: Iterable[Result]) -> list[Ranked]:
    """Average ranks of methods: over data sets where there are several, else over class splits.

    Class splits of one data set share its samples, so they are no independent blocks beside other
    data sets; with one data set they are all there is, and every kind of task has its own ranking.
    A method that has hardly begun would leave few blocks to rank the others on: the methods ranked
    are those with most results, number of methods times number of shared class splits and missing
    rates.

    Args:
        results: of a store.

    Returns:
        One ranking, or one per kind of task; an error where no two methods can be ranked.

    Example:
        >>> from fewview.evaluate import Grid, run
        >>> grid = Grid(datasets=("digits",), methods=("proto", "match"), splits=2, episodes=5)
        >>> (ranked,) = rank(run(grid).results.values())
        >>> sorted(ranked.ranking.names), ranked.ranking.n_blocks, ranked.unit
        (['match', 'proto'], 2, 'class splits')
    """
    found = rank_panels(panels(results))
    if not found:
        raise FewviewError("ranks need results of at least two methods on the same class splits")
    return found


def rank_panels(panels: Sequence[Panel]) -> list[Ranked]:
    """Rank the methods of panels, as `rank` does; nothing where there is nothing to rank."""
    compared = [panel.comparison() for panel in panels]
    if len({panel.cell.dataset for panel in panels}) > 1:
        table: dict[str, dict[str, list[float]]] = {}
        for panel, found in zip(panels, compared, strict=True):
            for name, row in zip(found.names, found.means, strict=True):
                by_set = table.setdefault(name, {})
                by_set.setdefault(panel.cell.dataset, []).append(float(row.mean()))
        names, blocks = fair(table)
        if len(names) > 1:
            scores = [[np.mean(table[name][block]) for name in names] for block in blocks]
            everyone = dict.fromkeys(name for panel in panels for name in panel.results)
            return [
                Ranked(
                    title="All data sets",
                    ranking=average_ranks(scores, names),
                    unit="data sets",
                    blocks=f"data sets ({', '.join(blocks)})",
                    left_out=[name for name in everyone if name not in names],
                )
            ]
    unit = "class splits"
    return [
        Ranked(found.panel, average_ranks(found.means.T, found.names), unit, unit, found.left_out)
        for found in compared
        if len(found.names) > 1
    ]
