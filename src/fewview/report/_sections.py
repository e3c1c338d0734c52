"""Sections about the results of a store: who wins, curves, tables, the paper, ranks, time, trust.

Each function says one section in words, tables and drawings. What is true is worked out in
`_contents.py`; nothing here computes a result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fewview.datasets._catalogue import get_spec, names
from fewview.drawing._charts import (
    Point,
    Scale,
    Series,
    accuracy_chart,
    chart,
    rank_diagram,
    rows_chart,
)
from fewview.drawing._looks import Look
from fewview.ground._rows import Row
from fewview.paper._printed import METHODS as PAPER_METHODS
from fewview.paper._printed import TABLES as PAPER_TABLES
from fewview.paper._printed import printed
from fewview.report._contents import Contents, costs, reliabilities
from fewview.report._elements import (
    Drawn,
    Entry,
    Section,
    Table,
    TableRow,
    capital,
    extreme_level,
    level,
    listed,
    picture,
    plural,
)
from fewview.results._comparing import Panel, Ranked, Winner, rank_panels, winners
from fewview.results._intervals import ALPHA

# Methods in colour at first; the others are grey lines until switched on.
N_SHOWN = 6
# Rows of the table of all results; larger stores are better read with 'fewview results'.
MAX_ROWS = 4000
Looks = dict[str, Look]


def _series(looks: Looks, name: str, points: Sequence[Point], **options: Any) -> Series:
    """A method as it is drawn everywhere on the page."""
    return Series(name, looks[name], tuple(points), name in list(looks)[:N_SHOWN], **options)


def _spec(panel: Panel) -> Any:
    """What is known of the data set, None if it is the user's own."""
    return get_spec(panel.cell.dataset) if panel.cell.dataset in names() else None


# ---------------------------------------------------------------------- headline


def headline(contents: Contents) -> Section:
    """Who wins where, by how much, and how sure that is."""
    found = [(panel, winners(panel)) for panel in contents.panels]
    words = []
    if len(contents.panels) > 1:
        for ranked in rank_panels(contents.panels)[:1]:
            ranking = ranked.ranking
            words.append(
                f"Over {plural(ranking.n_blocks, 'data set')}, {ranking.names[0]} has the best "
                f"average rank, {ranking.ranks[0]:.2f} of {len(ranking.names)}."
            )
    if left_out := {name for _, some in found for winner in some for name in winner.left_out}:
        words.append(
            "Not compared everywhere, because class splits or missing rates are lacking: "
            f"{listed(sorted(left_out))}."
        )
    table = Table(
        "Who wins where: the most accurate method at every missing rate, and how far it is ahead "
        "of the second best. Differences are paired over class splits; p and the interval are of "
        "Wilcoxon's signed-rank test (of the paired t test where splits are too few for it), "
        "corrected by Holm's method for all methods compared with the best.",
        ("data set", "#missing rate", "best method", "#accuracy (%)", "second best",
         "#ahead by (points)", "#95 % interval", "#splits won", "#p (Holm)", "how sure"),
        [_winner_row(winner) for _, some in found for winner in some],
        id="winners",
    )  # fmt: skip
    findings = [_winner_words(some[0], panel) for panel, some in found if some]
    return Section("Headline", words, findings=findings, tables=[table], id="headline")


def _winner_row(winner: Winner) -> TableRow:
    rate = Entry("all, mean", -1.0)
    if winner.eta is not None:
        rate = Entry(f"{winner.eta:.3g}", winner.eta)
    ahead: TableRow = ["-", "-", "-", "-"]
    if pair := winner.pair:
        interval = f"{pair.low:+.1f} to {pair.high:+.1f}" if np.isfinite(pair.low) else "-"
        p = Entry("-")
        if np.isfinite(pair.p):
            p = Entry(extreme_level(pair.p) or f"{pair.p:.3f}", pair.p)
        ahead = [f"{pair.difference:+.1f}", interval, f"{pair.wins} of {pair.n_splits}", p]
    if pair is None:
        sure = "no other method"
    elif winner.n_splits < 2:
        sure = "one split: cannot be said"
    elif winner.tied:
        sure = "clear of the second only" if winner.clear else "may be chance"
    else:
        sure = "clear"
    best = [winner.best, f"{winner.accuracy:.1f}", winner.second or "-"]
    strong = winner.clear and not winner.tied
    return [winner.panel, rate, *best, *ahead, Entry(sure, strong=strong)]


def _winner_words(winner: Winner, panel: Panel) -> str:
    over = "averaged over missing rates" if winner.eta is None else f"at rate {winner.eta:.3g}"
    text = f"{winner.panel}: {winner.best} is best {over} with {winner.accuracy:.1f} %"
    pair = winner.pair
    if pair is None:
        return f"{text}; no other method was run."
    text += f", {pair.difference:.1f} points ahead of {pair.two}"
    unit = "repetition" if panel.cell.fixed else "class split"
    if winner.n_splits < 2:
        return f"{text}. With one {unit} nothing can be said about chance."
    text += (
        f" (95 % interval {pair.low:+.1f} to {pair.high:+.1f}, ahead on {pair.wins} of "
        f"{pair.n_splits} {unit}s, {level(pair.p)})"
    )
    if not winner.tied:
        return f"{text}: told apart from all {winner.n_methods - 1} others."
    return f"{text}. Not told apart from it: {listed(winner.tied)}."


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
        parts.append(Section(panel.title, words, [figure], [_rates(panel)]))
    several = any(len(panel.etas) > 1 for panel in contents.panels)
    title = "Accuracy against the missing rate" if several else "Accuracy"
    return Section(title, parts=parts, legend=len(contents.methods) > 1, id="curves")


def _curve(panel: Panel, looks: Looks) -> Drawn:
    order, first, last = panel.methods, panel.etas[0], panel.etas[-1]
    best = order[0]
    ends = [panel.row(best, eta) for eta in (first, last)]
    told = " to ".join(f"{row['accuracy']:.1f} %" for row in ends if row is not None)
    rows = sorted(panel.rows, key=lambda row: order.index(row["method"]))
    return picture(
        accuracy_chart(rows, looks, list(looks)[:N_SHOWN]),
        f"Lines are means{_intervals(panel, 'bands')}; the grey dashed line is chance, "
        f"{100 / panel.cell.way:.0f} %.",
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
    return f", {drawn} 95 % intervals over class splits"


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
        f"Markers are means{_intervals(panel, 'lines')}.",
        title=f"Accuracy on {panel.title}",
        description=(
            f"{plural(len(series), 'method')} at missing rate {eta:.3g}, best first: {best.name} "
            f"with {best.points[0].y:.1f} %."
        ),
    )


def _rates(panel: Panel) -> Table:
    """One row per method, one column per missing rate."""
    best = {
        eta: max(row["accuracy"] for row in panel.rows if row["eta"] == eta) for eta in panel.etas
    }

    def entry(row: Row | None) -> str | Entry:
        if row is None:
            return "-"
        text = f"{row['accuracy']:.1f} ±{row['standard_error']:.1f}"
        if row["split_low"] is not None:
            text += f" ({row['split_low']:.0f}-{row['split_high']:.0f})"
        return Entry(text, row["accuracy"], strong=row["accuracy"] == best[row["eta"]])

    several = any(row["split_low"] is not None for row in panel.rows)
    spread = "; in brackets the lowest and highest class split" if several else ""
    return Table(
        f"Accuracy in percent on {panel.title}, ± standard error over episodes{spread}. The "
        "highest mean of a column is bold.",
        ["method", *(f"#rate {eta:.3g}" for eta in panel.etas)],
        [[name, *(entry(panel.row(name, eta)) for eta in panel.etas)] for name in panel.methods],
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
    )
    return Section("All results", words, tables=[table], id="results-section")


# ---------------------------------------------------------------------- the paper


def against_paper(contents: Contents, looks: Looks) -> Section:
    """Our accuracies beside those that the paper prints."""
    found = {panel.title: _paper_part(panel, looks) for panel in contents.panels}
    parts = [part for part in found.values() if part is not None]
    words = [
        "The paper reports one class split with 400 episodes; ours are means over class splits, "
        "so a gap within the spread of our class splits says little. Scaling and padding are "
        "those of our run: '--protocol paper --scaling paper --padding paper' comes closest."
    ]
    if not parts:
        words = ["None of these data sets and methods is in the paper, in this setting."]
    elif absent := [title for title, part in found.items() if part is None]:
        words.append(f"Not in the paper, or not in this setting: {listed(absent)}.")
    return Section("Paper against ours", words, parts=parts, legend=bool(parts), id="paper")


def _paper_part(panel: Panel, looks: Looks) -> Section | None:
    spec, cell = _spec(panel), panel.cell
    table = PAPER_TABLES.get(spec.paper_table or "") if spec else None
    if table is None or (cell.way, cell.shot) != (spec.way, spec.shot):
        return None
    paper_names = {ours: paper for paper, ours in PAPER_METHODS.items()}
    dataset = next(iter(table.datasets.values()))
    rows: list[TableRow] = []
    series = []
    for name in panel.methods:
        paper_name = paper_names.get(name.split(":")[0].split(" ")[0], "")
        points = []
        for eta in panel.etas:
            found = printed().get((table.name, dataset, paper_name, eta))
            row = panel.row(name, eta)
            if found is None or row is None:
                continue
            paper, ours = found.accuracy, row["accuracy"]
            within = ["-", "one split"]
            if row["split_low"] is not None:
                low, high = row["split_low"], row["split_high"]
                within = [f"{low:.0f}-{high:.0f}", "yes" if low <= paper <= high else "no"]
            rows.append(
                [
                    name,
                    f"{eta:.3g}",
                    Entry(f"{paper:.2f} ±{found.standard_error:.2f}", paper),
                    Entry(f"{ours:.2f} ±{row['standard_error']:.2f}", ours),
                    Entry(f"{ours - paper:+.1f}", ours - paper),
                    *within,
                ]
            )
            told = f"{name}, rate {eta:g}: paper {paper}, ours {ours:.1f}"
            points.append(Point(paper, ours, words=told))
        if points:
            series.append(_series(looks, name, points, joined=False))
    if not rows:
        return None
    pairs = np.array([(point.x, point.y) for one in series for point in one.points])
    gaps = pairs[:, 1] - pairs[:, 0]
    low, high = float(pairs.min()), float(pairs.max())
    across, up = (
        Scale(f"{whose} accuracy (%)", low, high, pad=0.05) for whose in ("paper's", "our")
    )
    figure = picture(
        chart(series, across, up, guides=[(low, low, high, high)], height=380),
        "One marker per method and missing rate; on the line both agree.",
        title=f"Our accuracy against the paper's on {panel.title}",
        description=(
            f"{len(gaps)} pairs of numbers; ours minus the paper's is {gaps.mean():+.1f} points on "
            f"average, from {gaps.min():+.1f} to {gaps.max():+.1f}."
        ),
    )
    relation = {
        "same": "The very arrays of the paper.",
        "recomputed": "The paper's images, views recomputed: digits cannot agree exactly.",
        "stand-in": "A stand-in for the paper's data: only the order of methods can be compared.",
    }[spec.relation]
    numbers = Table(
        f"Accuracy in percent on {panel.title}: the paper's {table.label} against ours.",
        ("method", "#rate", "#paper", "#ours", "#ours minus paper", "#our splits",
         "paper within our splits"),
        rows,
    )  # fmt: skip
    words = [relation] + ([f"Note: {spec.note}."] if spec.note else [])
    return Section(panel.title, words, [figure], [numbers])


# ---------------------------------------------------------------------- ranks, time, calibration


def ranks(contents: Contents, looks: Looks) -> Section:
    """Average ranks and which of them can be told apart."""
    parts = [_rank_part(ranked, looks) for ranked in rank_panels(contents.panels)]
    words = (
        "Rank 1 is the most accurate method of a block; ranks are averaged over blocks. Bars at "
        "the right mark the method with the best mean and those that are not told apart from it, "
        "by the test that the headline has too."
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
    figure = picture(
        rank_diagram(ranking, known=looks),
        "Best method first.",
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
    legend = len(contents.methods) > 1
    return Section("Time against accuracy", [words], parts=parts, legend=legend, id="time")


def _time_part(panel: Panel, looks: Looks) -> Section:
    found = costs(panel)
    series = []
    for cost in found:
        told = f"{cost.method}: {cost.milliseconds:.3g} ms, {cost.accuracy:.1f} %"
        point = Point(max(cost.milliseconds, 1e-6), cost.accuracy, words=told)
        series.append(_series(looks, cost.method, [point], joined=False, labelled=cost.efficient))
    x, y = zip(*((one.points[0].x, one.points[0].y) for one in series), strict=True)
    figure = picture(
        chart(
            series,
            Scale("milliseconds per episode", min(x), max(x), log=True),
            Scale("accuracy (%)", min(y), max(y), pad=0.1),
        ),
        "Up and left is better. Names stand beside methods that none beats in both.",
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
    )  # fmt: skip
    return Section(panel.title, [], [figure], [table])


def calibration(contents: Contents, looks: Looks) -> Section:
    """How far probabilities can be trusted."""
    parts = [_calibration_part(panel, looks) for panel in contents.panels]
    return Section("Calibration", parts=parts, legend=len(contents.methods) > 1, id="calibration")


def _calibration_part(panel: Panel, looks: Looks) -> Section:
    found = reliabilities(panel)
    series = []
    for one in found:
        points = [
            Point(p, hit, words=f"{one.method}: says {p:.2f}, right {hit:.2f} ({n} queries)")
            for p, hit, n in one.points
        ]
        series.append(_series(looks, one.method, points))
    across = Scale("probability given to the predicted class", 0.0, 1.0)
    best, worst = found[0], found[-1]
    figure = picture(
        chart(series, across, Scale("share right", 0.0, 1.0), guides=[(0, 0, 1, 1)], height=400),
        "Bins with fewer than 20 queries are not drawn. Below the diagonal: too sure.",
        title=f"Reliability diagram on {panel.title}",
        description=(
            "On the diagonal, probabilities are what they say; below it, a method is too sure. The "
            f"smallest calibration error is {best.method}'s, {best.error:.3f}, the largest "
            f"{worst.method}'s, {worst.error:.3f}."
        ),
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
    )
    return Section(panel.title, [], [figure], [table])
