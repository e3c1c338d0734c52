"""Sections about the results of a store: who wins, curves, tables, ranks, time, trust.

Each function says one section in words, tables and drawings. What is true is worked out in
`_contents.py`; nothing here computes a result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fewview.datasets._catalogue import get_spec, names
from fewview.drawing._charts import (
    Point,
    Scale,
    Series,
    accuracy_chart,
    accuracy_series,
    chart,
    rank_diagram,
    rows_chart,
)
from fewview.drawing._looks import Look
from fewview.ground._rows import Row
from fewview.report._contents import Contents, Cost, costs, reliabilities
from fewview.report._elements import (
    Drawn,
    Entry,
    Section,
    Table,
    TableRow,
    capital,
    level,
    listed,
    picture,
    plural,
)
from fewview.results._comparing import Panel, Ranked, Winner, rank_panels, winner
from fewview.results._intervals import ALPHA

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Methods that are shown at first; the others are grey lines, or not there, until switched on.
N_SHOWN = 12
# Rows of the table of all results; larger stores are better read with 'fewview results'.
MAX_ROWS = 4000
Looks = dict[str, Look]


def _series(looks: Looks, name: str, points: Sequence[Point], **options: Any) -> Series:
    """A method as it is drawn everywhere on the page."""
    return Series(name, looks[name], tuple(points), name in list(looks)[:N_SHOWN], **options)


def _spec(panel: Panel) -> Any:
    """What is known of the data set, None if it is the user's own."""
    return get_spec(panel.cell.dataset) if panel.cell.dataset in names() else None


# ---------------------------------------------------------------------- curves and tables


def curves(contents: Contents, looks: Looks) -> Section:
    """Accuracy against the missing rate, drawn and in numbers."""
    parts = []
    for panel in contents.panels:
        words = [f"{capital(panel.task)}."]
        if spec := _spec(panel):
            views = f"{plural(spec.n_views, 'view')} ({', '.join(spec.view_names)})"
            usual = panel.cell.data_checksum == spec.checksum
            words.append(f"{spec.title}. {views}." + ("" if usual else " Not the usual file."))
        figure = (_curve if len(panel.etas) > 1 else _one_rate)(panel, looks)
        figures = [figure, *_differences(panel, looks)]
        parts.append(Section(panel.title, words, figures, [_rates(panel)]))
    several = any(len(panel.etas) > 1 for panel in contents.panels)
    title = "Accuracy against the missing rate" if several else "Accuracy"
    return Section(title, parts=parts, id="curves")


def _curve(panel: Panel, looks: Looks) -> Drawn:
    order, first, last = panel.methods, panel.etas[0], panel.etas[-1]
    best = order[0]
    ends = [panel.row(best, eta) for eta in (first, last)]
    told = " to ".join(f"{row['accuracy']:.1f} %" for row in ends if row is not None)
    rows = sorted(panel.rows, key=lambda row: order.index(row["method"]))
    series, *_ = accuracy_series(rows, looks, list(looks)[:N_SHOWN])
    return picture(
        accuracy_chart(rows, looks, list(looks)[:N_SHOWN]),
        f"Lines are means{_intervals(panel, 'the band of the chosen method')}; the grey dashed "
        f"line is chance, {100 / panel.cell.way:.0f} %.",
        series=series,
        axes=("missing rate", "accuracy (%)"),
        title=f"Accuracy against the missing rate on {panel.title}",
        description=(
            f"{plural(len(order), 'method')} from missing rate {first:.3g} to {last:.3g}. "
            f"The best on average, {best}, goes from {told}. The table after this figure has all "
            "numbers."
        ),
    )


def _intervals(panel: Panel, drawn: str) -> str:
    """What a caption says of intervals."""
    if all(row["ci_low"] is None for row in panel.rows):
        return " of one class split, which has no interval over splits"
    return f", {drawn} is the 95 % interval over class splits"


def difference_chart(found: Winner, looks: Looks) -> tuple[Figure, list[Series]]:
    """Draw how far every method is behind the best, class split by class split."""
    series, values = [], [0.0]
    for pair in found.pairs:
        low, high = (-end if np.isfinite(end) else None for end in (pair.high, pair.low))
        told = f"{pair.two} minus {pair.one}: {-pair.difference:+.1f} points"
        if low is not None and high is not None:
            told += f" ({low:+.1f} to {high:+.1f})"
            values += [low, high]
        values.append(-pair.difference)
        series.append(_series(looks, pair.two, [Point(0, -pair.difference, low, high, told)]))
    across = Scale(f"points behind {found.best}", min(values), max(values), pad=0.03)
    return rows_chart(series, across, guide=0.0, form="+.1f"), series


def _differences(panel: Panel, looks: Looks) -> list[Drawn]:
    """Paired differences to the best; none for one method."""
    found = winner(panel)
    if found is None or not found.pairs:
        return []
    figure, series = difference_chart(found, looks)
    return [
        picture(
            figure,
            f"Paired differences to {found.best} over class splits, means over missing rates, with "
            "the interval that decides (corrected for all comparisons): where it does not reach "
            "the dashed line, the method is clearly behind.",
            title=f"Paired differences to the best on {panel.title}",
            description=f"The nearest is {found.second}. The card at the top of the page has all.",
            series=series,
            axes=("", f"points behind {found.best}"),
            legend=False,
        )
    ]


def _one_rate(panel: Panel, looks: Looks) -> Drawn:
    (eta,) = panel.etas
    series, values = [], []
    for name in panel.methods:
        if row := panel.row(name, eta):
            mean, low, high = row["accuracy"], row["ci_low"], row["ci_high"]
            series.append(_series(looks, name, [Point(eta, mean, low, high)]))
            values += [mean] if low is None else [low, high]
    best = series[0]
    return picture(
        rows_chart(series, Scale("accuracy (%)", min(values), max(values), pad=0.03)),
        f"Markers are means{_intervals(panel, 'the line')}.",
        title=f"Accuracy on {panel.title}",
        series=series,
        axes=("missing rate", "accuracy (%)"),
        description=(
            f"{plural(len(series), 'method')} at missing rate {eta:.3g}, best first: {best.name} "
            f"with {best.points[0].y:.1f} %."
        ),
    )


def _rates(panel: Panel) -> Table:
    """One row per method, one column per missing rate."""
    leaders = panel.leaders()

    def entry(row: Row | None) -> str | Entry:
        if row is None:
            return "-"
        text = f"{row['accuracy']:.1f} ±{row['standard_error']:.1f}"
        if row["split_low"] is not None:
            text += f" ({row['split_low']:.0f}-{row['split_high']:.0f})"
        best, tied = leaders.get(row["eta"], ("", set()))
        return Entry(text, row["accuracy"], row["method"] == best, row["method"] in tied)

    several = any(row["split_low"] is not None for row in panel.rows)
    spread = "; in brackets the lowest and highest class split" if several else ""
    return Table(
        f"Accuracy in percent on {panel.title}, ± standard error over episodes{spread}. The "
        "highest mean of a column is bold; those that are not told apart from it are underlined.",
        ["method", *(f"#rate {eta:.3g}" for eta in panel.etas)],
        [[name, *(entry(panel.row(name, eta)) for eta in panel.etas)] for name in panel.methods],
        methods=panel.methods,
    )


# Columns of the table of all results: name, key of a row, format.
_COLUMNS = (
    ("#rate", "eta", ".3g"), ("#accuracy", "accuracy", ".2f"),
    ("#± error", "standard_error", ".2f"), ("#95 % from", "ci_low", ".1f"),
    ("#to", "ci_high", ".1f"), ("#lowest split", "split_low", ".1f"),
    ("#highest split", "split_high", ".1f"), ("#balanced", "balanced_accuracy", ".2f"),
    ("#log-loss", "log_loss", ".3f"), ("#Brier", "brier", ".3f"), ("#ECE", "ece", ".3f"),
    ("#seconds", "seconds", ".3g"), ("#preparing", "seconds_base", ".3g"),
    ("#splits", "n_splits", ""), ("#episodes", "n_episodes", ""), ("scaling", "scaling", ""),
    ("padding", "padding", ""),
)  # fmt: skip


def all_results(contents: Contents) -> Section:
    """One table of everything, to sort and to filter."""
    rows: list[TableRow] = [
        [
            name,
            panel.title,
            *("-" if row[key] is None else format(row[key], form) for _, key, form in _COLUMNS),
        ]
        for panel in contents.panels
        for name in panel.methods
        for eta in panel.etas
        if (row := panel.row(name, eta)) is not None
    ]
    words = [
        "Press a column's name to sort by it, and again to turn the order round. Seconds are "
        "sums over all episodes."
    ]
    if len(rows) > MAX_ROWS:
        words.append(
            f"The first {MAX_ROWS} of {len(rows)} rows; 'fewview results --format csv' has all."
        )
    table = Table(
        "All results: accuracies in percent, calibration error (ECE) of the predicted class, "
        "seconds of scoring and of preparing from base classes.",
        ["method", "data set", *(name for name, _, _ in _COLUMNS)],
        rows[:MAX_ROWS],
        id="results",
        filters=(1, 2),
        methods=[str(row[0]) for row in rows[:MAX_ROWS]],
    )
    return Section("All results", words, tables=[table], id="results-section")


# ---------------------------------------------------------------------- ranks, time, calibration


def ranks(contents: Contents, looks: Looks) -> Section:
    """Average ranks and which of them can be told apart."""
    parts = [_rank_part(ranked, looks) for ranked in rank_panels(contents.panels)]
    words = (
        "Rank 1 is the most accurate method of a block; ranks are averaged over blocks. Bars at "
        "the right mark the method with the best mean and those that are not told apart from it, "
        "by the test that the answer has too."
    )
    if not parts:
        words = "Ranks need results of at least two methods."
    return Section("Ranks", [words], parts=parts, id="ranks")


def _rank_part(ranked: Ranked, looks: Looks) -> Section:
    ranking = ranked.ranking
    pairs = zip(ranking.names, ranking.ranks, strict=True)
    told = f"{ranking.best} is told apart from all others by {ranking.test}"
    if ranking.tied:
        told = f"Not told apart from {ranking.best} by {ranking.test}: {listed(ranking.tied)}"
    series = [Series(n, looks[n], (Point(0, r),)) for n, r in zip(ranking.names, ranking.ranks,
                                                                 strict=True)]  # fmt: skip
    figure = picture(
        rank_diagram(ranking, known=looks),
        "Best method first.",
        series=series,
        axes=("", "average rank"),
        legend=False,
        title=f"Rank diagram: {ranked.title}",
        description=(
            f"Average ranks over {ranking.n_blocks} {ranked.blocks}, best first: "
            + ", ".join(f"{name} {rank:.2f}" for name, rank in pairs)
            + f". {told}."
        ),
    )
    words = [f"Blocks: {ranking.n_blocks} {ranked.blocks}. {told}."]
    if np.isfinite(ranking.p_friedman):
        alike = "differ" if ranking.p_friedman < ALPHA else "may all be alike"
        words.append(f"Friedman's test: the methods {alike} ({level(ranking.p_friedman)}).")
    if ranked.left_out:
        words.append(f"Not ranked, because results are lacking: {listed(ranked.left_out)}.")
    return Section(ranked.title, words, [figure])


def times(contents: Contents, looks: Looks) -> Section:
    """What accuracy costs."""
    words = (
        "Wall-clock seconds of the machines that did the work, other work on them included; "
        "compare them within one machine only (see the last section)."
    )
    parts = [_time_part(panel, looks) for panel in contents.panels]
    return Section("Time against accuracy", [words], parts=parts, id="time")


def time_chart(found: Sequence[Cost], looks: Looks) -> tuple[Figure, list[Series]]:
    """Draw accuracy against time, one point per method."""
    series = []
    for cost in found:
        told = f"{cost.method}: {cost.milliseconds:.3g} ms, {cost.accuracy:.1f} %"
        point = Point(max(cost.milliseconds, 1e-6), cost.accuracy, words=told)
        series.append(_series(looks, cost.method, [point], joined=False, labelled=cost.efficient))
    x, y = zip(*((one.points[0].x, one.points[0].y) for one in series), strict=True)
    across = Scale("milliseconds per episode", min(x), max(x), log=True)
    return chart(series, across, Scale("accuracy (%)", min(y), max(y), pad=0.1)), series


def _time_part(panel: Panel, looks: Looks) -> Section:
    found = costs(panel)
    drawn, series = time_chart(found, looks)
    figure = picture(
        drawn,
        "Up and left is better. Names stand beside methods that none beats in both.",
        series=series,
        axes=("milliseconds per episode", "accuracy (%)"),
        title=f"Time against accuracy on {panel.title}",
        description=(
            f"{plural(len(found), 'method')}. No other method is both faster and more accurate "
            f"than {listed([cost.method for cost in found if cost.efficient])}."
        ),
    )
    table = Table(
        f"Time and accuracy on {panel.title}, means over missing rates; scoring per episode, "
        "preparing from base classes per class split.",
        ("method", "#scoring (ms per episode)", "#preparing (s)", "#accuracy (%)",
         "none faster and better"),
        [
            [cost.method, f"{cost.milliseconds:.3g}", f"{cost.seconds_base:.2g}",
             f"{cost.accuracy:.1f}",
             ("yes" if cost.efficient else "no") if cost.complete else "lacks rates"]
            for cost in found
        ],
        methods=[cost.method for cost in found],
    )  # fmt: skip
    return Section(panel.title, [], [figure], [table])


def calibration(contents: Contents, looks: Looks) -> Section:
    """How far probabilities can be trusted."""
    parts = [_calibration_part(panel, looks) for panel in contents.panels]
    words = (
        "On the diagonal, probabilities are what they say; below it, a method is too sure. Bins "
        "with fewer than 20 queries are not drawn."
    )
    return Section("Calibration", [words], parts=parts, id="calibration")


def _calibration_part(panel: Panel, looks: Looks) -> Section:
    found = reliabilities(panel)
    ticks = (0.0, 0.5, 1.0)
    across, up = (Scale(name, 0.0, 1.0, ticks=ticks) for name in ("said", "right"))
    figures = []
    for one in found:
        points = [
            Point(p, hit, words=f"{one.method}: says {p:.2f}, right {hit:.2f} ({n} queries)")
            for p, hit, n in one.points
        ]
        series = [Series(one.method, looks[one.method], tuple(points))]
        gap = one.confidence - one.accuracy
        told = f"Calibration error {one.error:.3f}; {'too sure' if gap > 0 else 'not sure enough'}"
        figures.append(
            picture(
                chart(series, across, up, guides=[(0, 0, 1, 1)], height=200, width=210),
                f"{told} by {abs(gap):.3f}.",
                title=f"Reliability of {one.method} on {panel.title}",
                description=f"Share right against the probability said. {told} by {abs(gap):.3f}.",
                series=series,
                axes=("probability said", "share right"),
                switch=looks[one.method].key,
                head=one.method,
            )
        )
    table = Table(
        f"Calibration on {panel.title}, pooled over missing rates and class splits: expected "
        "calibration error (ECE, 15 bins), mean probability of the predicted class, share of "
        "right predictions.",
        ("method", "#ECE", "#probability", "#share right", "#too sure by", "#log-loss", "#Brier"),
        [
            [
                one.method,
                *(f"{value:.3f}" for value in (one.error, one.confidence, one.accuracy)),
                f"{one.confidence - one.accuracy:+.3f}",
                *(f"{value:.3f}" for value in (one.log_loss, one.brier)),
            ]
            for one in found
        ],
        methods=[one.method for one in found],
    )
    return Section(panel.title, [], figures, [table])
