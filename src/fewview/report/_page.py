"""One self-contained page of a store: sections with their words, tables and drawings.

`write_report` is the way in. What the page says is worked out in `contents.py`, `provenance.py` and
`examples.py`, charts are drawn by `svg.py`, and `templates/` has the markup, style and script.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from os import PathLike
from pathlib import Path

import numpy as np
from markupsafe import Markup

import fewview.drawing._svg as svg
from fewview._version import __version__
from fewview.datasets._catalogue import get_spec, names
from fewview.ground._rows import Row
from fewview.ground._whole_files import replacing
from fewview.paper._printed import METHODS as PAPER_METHODS
from fewview.paper._printed import TABLES as PAPER_TABLES
from fewview.paper._printed import printed
from fewview.report._contents import Contents, collect, costs, rankings, reliabilities
from fewview.report._examples import Example, example
from fewview.report._provenance import commands, missing_cells, versions
from fewview.results._comparing import ALPHA, Panel, Ranked, Winner, winners
from fewview.results._intervals import Ranking
from fewview.results._store import Store

# Methods in colour at first; the others are grey lines until switched on.
N_SHOWN = 6
# Rows of the table of all results; larger stores are better read with 'fewview results'.
MAX_ROWS = 4000


@dataclass(frozen=True)
class Column:
    """A column of a table; `number` columns are aligned right and sorted by value."""

    name: str
    number: bool = False


@dataclass(frozen=True)
class Entry:
    """An entry of a table whose order is not that of its text."""

    text: str
    value: float | None = None
    strong: bool = False


@dataclass(frozen=True)
class Table:
    """A table of a page; the first entry of a row names the row.

    Attributes:
        id: of the element.
        caption: what it shows, read first by a screen reader.
        columns: in order.
        rows: entries, text or `Entry`.
        filters: columns that a choice narrows the rows down by.
    """

    id: str
    caption: str
    columns: tuple[Column, ...]
    rows: list[list[str | Entry]]
    filters: tuple[int, ...] = ()

    def choices(self, column: int) -> list[str]:
        """Distinct entries of a column, in the order of the rows."""
        texts = [_text(row[column]) for row in self.rows]
        return list(dict.fromkeys(texts))


@dataclass(frozen=True)
class Figure:
    """A drawing and the words under it."""

    drawing: Markup
    caption: str


@dataclass(frozen=True)
class Part:
    """A part of a section: heading, words, figures, tables."""

    id: str
    title: str
    words: list[str] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    keys: list[tuple[Markup, str]] = field(default_factory=list)


@dataclass(frozen=True)
class Section:
    """A section of the page; parts have headings of their own when there are several."""

    id: str
    title: str
    words: list[str] = field(default_factory=list)
    items: list[str] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    code: list[str] = field(default_factory=list)
    legend: bool = False


def write_report(
    store: str | PathLike[str],
    output: str | PathLike[str] = "report.html",
    *,
    where: Sequence[str] = (),
    title: str | None = None,
    data_dir: str | None = None,
    examples: bool = True,
    tell: Callable[[str], None] | None = None,
) -> Path:
    """Write one self-contained HTML page about the results of a store.

    Args:
        store: file of results.
        output: the page; written whole or not at all.
        where: conditions on results, as for `Store.select`.
        title: of the page; by default it names the data sets.
        data_dir: folder of data files, for example episodes.
        examples: read the data again and show example episodes.
        tell: is told what is going on.

    Returns:
        The file written.

    Example:
        >>> import tempfile
        >>> from fewview.evaluate._grid import Grid
        >>> from fewview.evaluate._runner import run
        >>> grid = Grid(datasets=("digits",), methods=("proto", "match"), splits=2, episodes=3)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = run(grid, f"{folder}/a.sqlite")
        ...     page = write_report(f"{folder}/a.sqlite", f"{folder}/a.html", examples=False)
        ...     page.read_text(encoding="utf-8").startswith("<!doctype html>")
        True
    """
    with replacing(output) as temporary:  # says now if the file cannot be written
        with Store(store, write=False) as reader:
            found = reader.select(where)
        contents = collect(found)
        told = tell or (lambda text: None)
        told(f"{len(contents.results)} results of {len(contents.panels)} data set(s)")
        shown = [example(panel, data_dir, tell) for panel in contents.panels] if examples else []
        asked = ["fewview", "report", str(store), "-o", str(output)]
        for condition in where:
            asked += ["--where", condition]
        text = render(contents, store=str(store), title=title, examples=shown, asked=asked)
        temporary.write_text(text, encoding="utf-8")
    return Path(output)


def render(
    contents: Contents,
    *,
    store: str = "results.sqlite",
    title: str | None = None,
    examples: Sequence[Example | str] = (),
    asked: Sequence[str] = (),
) -> str:
    """Make the page.

    Args:
        contents: of `collect`.
        store: name of the store, for the words.
        title: of the page.
        examples: one per panel, an example or the reason why there is none; empty leaves the
            section out and says so.
        asked: the command that made the page.

    Returns:
        HTML.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    # Everything is escaped unless it was built as markup here: names in a store are anybody's.
    environment = Environment(
        loader=PackageLoader("fewview.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.tests["entry"] = lambda value: isinstance(value, Entry)
    looks = {name: look for look, name in enumerate(contents.methods)}
    datasets = list(dict.fromkeys(panel.cell.dataset for panel in contents.panels))
    listed = ", ".join(datasets[:3]) + (f" and {len(datasets) - 3} more" if datasets[3:] else "")
    script = _file("script.js")
    sections = [
        _headline(contents),
        _curves(contents, looks),
        _everything(contents),
        _paper(contents, looks),
        _ranks(contents, looks),
        _time(contents, looks),
        _calibration(contents, looks),
        _missing(contents, examples),
        _examples(contents, examples),
        _provenance(contents, store, asked),
    ]
    return environment.get_template("page.html").render(
        title=title or f"Few-shot accuracy with missing views: {listed}",
        summary=_summary(contents, datasets),
        sections=sections,
        legend=[(look, name, svg.key(look), look < N_SHOWN) for name, look in looks.items()],
        style=Markup(_file("style.css")),
        script=Markup(script),
        script_hash=_hash(script),
    )


def _file(name: str) -> str:
    from importlib.resources import files

    folder = files("fewview.report").joinpath("templates")
    return folder.joinpath(name).read_text(encoding="utf-8")


def _hash(script: str) -> str:
    """What the page's own policy knows its script by; no other script runs."""
    digest = hashlib.sha256(script.encode()).digest()
    return "sha256-" + base64.b64encode(digest).decode()


def _text(entry: str | Entry) -> str:
    return entry.text if isinstance(entry, Entry) else entry


def _listed(items: Sequence[str], limit: int = 8) -> str:
    if len(items) > limit:
        return ", ".join(items[:limit]) + f" and {len(items) - limit} more"
    if len(items) < 2:
        return "".join(items)
    return ", ".join(items[:-1]) + " and " + items[-1]


def _plural(count: int, word: str) -> str:
    return f"{count} {word}" + ("" if count == 1 else "s")


def _summary(contents: Contents, datasets: Sequence[str]) -> str:
    episodes = sum(len(result.metrics) for result in contents.results)
    etas = {row["eta"] for panel in contents.panels for row in panel.rows}
    return (
        f"{_plural(len(datasets), 'data set')}, {_plural(len(contents.methods), 'method')}, "
        f"{_plural(len(etas), 'missing rate')}, {episodes:,} scored episodes."
    )


# ---------------------------------------------------------------------- headline


def _headline(contents: Contents) -> Section:
    items, rows = [], []
    left: set[str] = set()
    for panel in contents.panels:
        found = winners(panel)
        left.update(name for winner in found for name in winner.left_out)
        for winner in found:
            rows.append(_winner_row(winner))
        if found:
            items.append(_winner_words(found[0], panel))
    left_out = sorted(left)
    words = []
    for ranked in rankings(contents)[:1]:
        if len(contents.panels) > 1:
            best, rank = ranked.ranking.names[0], ranked.ranking.ranks[0]
            words.append(
                f"Over {_plural(ranked.ranking.n_blocks, 'data set')}, {best} has the best average "
                f"rank, {rank:.2f} of {len(ranked.ranking.names)}."
            )
    if left_out:
        words.append(
            f"Not compared everywhere, because class splits or missing rates are lacking: "
            f"{_listed(left_out)}."
        )
    table = Table(
        id="winners",
        caption=(
            "Who wins where: the most accurate method at every missing rate, and how far it is "
            "ahead of the second best. Differences are paired over class splits; p is of the "
            "paired t test, corrected by Holm's method for all pairs of methods compared there."
        ),
        columns=(
            Column("data set"),
            Column("missing rate", True),
            Column("best method"),
            Column("accuracy (%)", True),
            Column("second best"),
            Column("ahead by (points)", True),
            Column("95 % interval", True),
            Column("splits won", True),
            Column("p (Holm)", True),
            Column("how sure"),
        ),
        rows=rows,
    )
    return Section("headline", "Headline", words=words, items=items, tables=[table])


def _where(eta: float | None) -> Entry:
    return Entry("all, mean", -1.0) if eta is None else Entry(f"{eta:.3g}", eta)


def _p(value: float) -> Entry:
    if not np.isfinite(value):
        return Entry("-")
    return Entry("< 0.001" if value < 0.001 else f"{value:.3f}", value)


def _sure(winner: Winner) -> str:
    if winner.pair is None:
        return "no other method"
    if winner.n_splits < 2:
        return "one split: cannot be said"
    if not winner.tied:
        return "clear"
    return "clear of the second only" if winner.clear else "may be chance"


def _winner_row(winner: Winner) -> list[str | Entry]:
    pair = winner.pair
    interval = "-"
    if pair is not None and np.isfinite(pair.low):
        interval = f"{pair.low:+.1f} to {pair.high:+.1f}"
    return [
        winner.panel,
        _where(winner.eta),
        winner.best,
        f"{winner.accuracy:.1f}",
        winner.second or "-",
        f"{pair.difference:+.1f}" if pair else "-",
        interval,
        f"{pair.wins} of {pair.n_splits}" if pair else "-",
        _p(pair.p_t_holm) if pair else "-",
        Entry(_sure(winner), strong=winner.clear and not winner.tied),
    ]


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
    p = "p < 0.001" if pair.p_t_holm < 0.001 else f"p = {pair.p_t_holm:.2g}"
    text += (
        f" (95 % interval {pair.low:+.1f} to {pair.high:+.1f}, ahead on {pair.wins} of "
        f"{pair.n_splits} {unit}s, {p})"
    )
    if not winner.tied:
        return f"{text}: told apart from all {winner.n_methods - 1} others."
    return f"{text}. Not told apart from it: {_listed(winner.tied)}."


# ---------------------------------------------------------------------- curves and tables


def _look(looks: dict[str, int], name: str) -> tuple[int, bool]:
    look = looks[name]
    return look, look < N_SHOWN


def _curves(contents: Contents, looks: dict[str, int]) -> Section:
    parts = []
    for k, panel in enumerate(contents.panels):
        figure = _curve(panel, looks) if len(panel.etas) > 1 else _one_rate(panel, looks)
        words = [f"{panel.task[0].upper()}{panel.task[1:]}.", *_dataset_words(panel)]
        parts.append(
            Part(f"curve-{k}", panel.title, words, [figure], [_pivot(panel, f"accuracy-{k}")])
        )
    several = any(len(panel.etas) > 1 for panel in contents.panels)
    title = "Accuracy against the missing rate" if several else "Accuracy"
    return Section("curves", title, parts=parts, legend=len(contents.methods) > 1)


def _dataset_words(panel: Panel) -> list[str]:
    if panel.cell.dataset not in names():
        return []
    spec = get_spec(panel.cell.dataset)
    views = ", ".join(spec.view_names)
    text = f"{spec.title}. {_plural(spec.n_views, 'view')} ({views})."
    return [text if panel.cell.data_checksum == spec.checksum else f"{text} Not the usual file."]


def _interval(row: Row) -> tuple[float, float]:
    return max(0.0, float(row["ci_low"])), min(100.0, float(row["ci_high"]))


def _curve(panel: Panel, looks: dict[str, int]) -> Figure:
    series = []
    lows, highs = [100.0 / panel.cell.way], [100.0 / panel.cell.way]
    for name in panel.methods:
        rows = sorted(
            (row for row in panel.rows if row["method"] == name), key=lambda row: float(row["eta"])
        )
        points = []
        for row in rows:
            low, high = _interval(row)
            words = (
                f"{name}, missing rate {row['eta']:.3g}: {row['accuracy']:.1f} % "
                f"({low:.0f} to {high:.0f})"
            )
            points.append(svg.Point(row["eta"], row["accuracy"], low, high, words))
        look, shown = _look(looks, name)
        series.append(svg.Series(look, name, tuple(points), shown))
        lows += [p.y for p in points] + [p.low or 0.0 for p in points if shown]
        highs += [p.y for p in points] + [p.high or 0.0 for p in points if shown]
    etas = panel.etas
    up = svg.axis("accuracy (%)", max(0.0, min(lows) - 2), min(100.0, max(highs) + 2))
    across = svg.axis("missing rate", min(etas), max(etas), pad=0.02)
    if len(etas) <= 7:
        across = replace(across, ticks=tuple(etas))
    chance = 100.0 / panel.cell.way
    best, first, last = panel.methods[0], etas[0], etas[-1]
    ends = [panel.row(best, eta) for eta in (first, last)]
    told = " to ".join(f"{row['accuracy']:.1f} %" for row in ends if row is not None)
    drawing = svg.chart(
        series,
        across,
        up,
        title=f"Accuracy against the missing rate on {panel.title}",
        description=(
            f"{_plural(len(series), 'method')} from missing rate {first:.3g} to {last:.3g}. The "
            f"best on average, {best}, goes from {told}. The table after this figure has all "
            "numbers."
        ),
        guides=[(across.low, chance, across.high, chance)],
        height=320,
    )
    return Figure(
        drawing,
        f"Lines are means, bands 95 % intervals over class splits; the grey dashed line is chance, "
        f"{chance:.0f} %.",
    )


def _one_rate(panel: Panel, looks: dict[str, int]) -> Figure:
    bars = []
    for name in panel.methods:
        row = panel.row(name, panel.etas[0])
        if row is not None:
            bars.append(svg.Bar(looks[name], name, row["accuracy"], *_interval(row)))
    low = min(bar.low or 0.0 for bar in bars)
    across = svg.axis("accuracy (%)", low, max(bar.high or 0.0 for bar in bars), pad=0.03)
    drawing = svg.rows_chart(
        bars,
        across,
        title=f"Accuracy on {panel.title}",
        description=(
            f"{_plural(len(bars), 'method')} at missing rate {panel.etas[0]:.3g}, best first: "
            f"{bars[0].name} with {bars[0].value:.1f} %."
        ),
    )
    return Figure(drawing, "Markers are means, lines 95 % intervals over class splits.")


def _pivot(panel: Panel, id: str) -> Table:
    best = {
        eta: max(row["accuracy"] for row in panel.rows if row["eta"] == eta) for eta in panel.etas
    }
    rows: list[list[str | Entry]] = []
    for name in panel.methods:
        entries: list[str | Entry] = [name]
        for eta in panel.etas:
            row = panel.row(name, eta)
            if row is None:
                entries.append("-")
                continue
            text = f"{row['accuracy']:.1f} ±{row['standard_error']:.1f}"
            if row["split_low"] is not None:
                text += f" ({row['split_low']:.0f}-{row['split_high']:.0f})"
            entries.append(Entry(text, row["accuracy"], strong=row["accuracy"] == best[eta]))
        rows.append(entries)
    several = any(row["split_low"] is not None for row in panel.rows)
    spread = "; in brackets the lowest and highest class split" if several else ""
    return Table(
        id=id,
        caption=(
            f"Accuracy in percent on {panel.title}, ± standard error over episodes{spread}. The "
            "highest mean of a column is bold."
        ),
        columns=(
            Column("method"),
            *(Column(f"rate {eta:.3g}", True) for eta in panel.etas),
        ),
        rows=rows,
    )


def _everything(contents: Contents) -> Section:
    rows: list[list[str | Entry]] = []
    for panel in contents.panels:
        for name in panel.methods:
            for eta in panel.etas:
                row = panel.row(name, eta)
                if row is not None:
                    rows.append(_full_row(panel, row))
    words = [
        "Press a column's name to sort by it, and again to turn the order round. Seconds are "
        "sums over all episodes."
    ]
    if len(rows) > MAX_ROWS:
        words.append(
            f"The first {MAX_ROWS} of {len(rows)} rows; 'fewview results --format csv' has all."
        )
    columns = (
        "method", "data set", "rate", "accuracy", "± error", "95 % from", "to", "lowest split",
        "highest split", "balanced", "log-loss", "Brier", "ECE", "seconds", "preparing", "splits",
        "episodes", "scaling", "padding",
    )  # fmt: skip
    text = ("method", "data set", "scaling", "padding")
    table = Table(
        id="results",
        caption=(
            "All results: accuracies in percent, calibration error (ECE) of the predicted class, "
            "seconds of scoring and of preparing from base classes."
        ),
        columns=tuple(Column(name, name not in text) for name in columns),
        rows=rows[:MAX_ROWS],
        filters=(1, 2),
    )
    return Section("results-section", "All results", words=words, tables=[table])


def _full_row(panel: Panel, row: Row) -> list[str | Entry]:
    def number(key: str, digits: int = 1) -> str:
        return "-" if row[key] is None else f"{row[key]:.{digits}f}"

    return [
        row["method"],
        panel.title,
        f"{row['eta']:.3g}",
        number("accuracy", 2),
        number("standard_error", 2),
        number("ci_low"),
        number("ci_high"),
        number("split_low"),
        number("split_high"),
        number("balanced_accuracy", 2),
        number("log_loss", 3),
        number("brier", 3),
        number("ece", 3),
        f"{row['seconds']:.3g}",
        f"{row['seconds_base']:.3g}",
        str(row["n_splits"]),
        str(row["n_episodes"]),
        row["scaling"],
        row["padding"],
    ]


# ---------------------------------------------------------------------- the paper


def _paper(contents: Contents, looks: dict[str, int]) -> Section:
    ours_to_paper = {ours: paper for paper, ours in PAPER_METHODS.items()}
    parts = []
    absent = []
    for k, panel in enumerate(contents.panels):
        cell = panel.cell
        spec = get_spec(cell.dataset) if cell.dataset in names() else None
        table = PAPER_TABLES.get(spec.paper_table or "") if spec else None
        if spec is None or table is None or (cell.way, cell.shot) != (spec.way, spec.shot):
            absent.append(panel.title)
            continue
        dataset = next(iter(table.datasets.values()))
        rows: list[list[str | Entry]] = []
        series = []
        for name in panel.methods:
            paper_name = ours_to_paper.get(name.split(":")[0].split(" ")[0])
            points = []
            for eta in panel.etas:
                found = printed().get((table.name, dataset, paper_name or "", eta))
                row = panel.row(name, eta)
                if found is None or row is None:
                    continue
                rows.append(_paper_row(name, row, found.accuracy, found.standard_error))
                told = f"{name}, rate {eta:g}: paper {found.accuracy}, ours {row['accuracy']:.1f}"
                points.append(svg.Point(found.accuracy, row["accuracy"], text=told))
            if points:
                look, shown = _look(looks, name)
                series.append(svg.Series(look, name, tuple(points), shown, joined=False))
        if not rows:
            absent.append(panel.title)
            continue
        parts.append(_paper_part(k, panel, table.label, rows, series))
    words = [
        "The paper reports one class split with 400 episodes; ours are means over class splits, "
        "so a gap within the spread of our class splits says little. Scaling and padding are "
        "those of our run: '--protocol paper --scaling paper --padding paper' comes closest."
    ]
    if not parts:
        words = ["None of these data sets and methods is in the paper, in this setting."]
    elif absent:
        words.append(f"Not in the paper, or not in this setting: {_listed(absent)}.")
    return Section("paper", "Paper against ours", words=words, parts=parts, legend=bool(parts))


def _paper_row(name: str, row: Row, accuracy: float, error: float) -> list[str | Entry]:
    gap = row["accuracy"] - accuracy
    low, high = row["split_low"], row["split_high"]
    inside = "one split" if low is None else ("yes" if low <= accuracy <= high else "no")
    return [
        name,
        f"{row['eta']:.3g}",
        Entry(f"{accuracy:.2f} ±{error:.2f}", accuracy),
        Entry(f"{row['accuracy']:.2f} ±{row['standard_error']:.2f}", row["accuracy"]),
        Entry(f"{gap:+.1f}", gap),
        "-" if low is None else f"{low:.0f}-{high:.0f}",
        inside,
    ]


def _paper_part(
    k: int, panel: Panel, label: str, rows: list[list[str | Entry]], series: list[svg.Series]
) -> Part:
    spec = get_spec(panel.cell.dataset)
    relation = {
        "same": "The very arrays of the paper.",
        "recomputed": "The paper's images, views recomputed: digits cannot agree exactly.",
        "stand-in": "A stand-in for the paper's data: only the order of methods can be compared.",
    }[spec.relation]
    values = [v for one in series for p in one.points for v in (p.x, p.y)]
    low, high = min(values), max(values)
    gaps = [p.y - p.x for one in series for p in one.points]
    drawing = svg.chart(
        series,
        svg.axis("paper's accuracy (%)", low, high, pad=0.05),
        svg.axis("our accuracy (%)", low, high, pad=0.05),
        title=f"Our accuracy against the paper's on {panel.title}",
        description=(
            f"{len(gaps)} pairs of numbers; ours minus the paper's is {np.mean(gaps):+.1f} points "
            f"on average, from {min(gaps):+.1f} to {max(gaps):+.1f}."
        ),
        guides=[(low, low, high, high)],
        height=380,
    )
    table = Table(
        id=f"paper-{k}",
        caption=f"Accuracy in percent on {panel.title}: the paper's {label} against ours.",
        columns=(
            Column("method"),
            Column("rate", True),
            Column("paper", True),
            Column("ours", True),
            Column("ours minus paper", True),
            Column("our splits", True),
            Column("paper within our splits"),
        ),
        rows=rows,
    )
    figure = Figure(drawing, "One marker per method and missing rate; on the line both agree.")
    note = [relation] + ([f"Note: {spec.note}."] if spec.note else [])
    return Part(f"paper-part-{k}", panel.title, note, [figure], [table])


# ---------------------------------------------------------------------- ranks, time, calibration


def _ranks(contents: Contents, looks: dict[str, int]) -> Section:
    found = rankings(contents)
    if not found:
        return Section("ranks", "Ranks", words=["Ranks need results of at least two methods."])
    words = [
        "Rank 1 is the most accurate method of a block; ranks are averaged over blocks. Vertical "
        "bars at the right join methods that Nemenyi's test at 0.05 does not tell apart: their "
        "ranks differ by less than the critical difference drawn above."
    ]
    parts = [_rank_part(k, ranked, looks) for k, ranked in enumerate(found)]
    return Section("ranks", "Ranks", words=words, parts=parts)


def _rank_part(k: int, ranked: Ranked, looks: dict[str, int]) -> Part:
    ranking: Ranking = ranked.ranking
    count = len(ranking.names)
    bars = [
        svg.Bar(looks[name], name, rank)
        for name, rank in zip(ranking.names, ranking.ranks, strict=True)
    ]
    joins = ranking.cliques()
    drawing = svg.rows_chart(
        bars,
        svg.axis("average rank (1 is best)", 1.0, float(max(count, 2)), n=min(count, 8)),
        title=f"Critical-difference diagram: {ranked.title}",
        description=(
            f"Average ranks over {ranking.n_blocks} {ranked.blocks}, best first: "
            + ", ".join(f"{bar.name} {bar.value:.2f}" for bar in bars)
            + f". Critical difference {ranking.critical_difference:.2f}. "
            + (
                "Not told apart: "
                + "; ".join(f"{ranking.names[a]} to {ranking.names[b]}" for a, b in joins)
                if joins
                else "All are told apart"
            )
            + "."
        ),
        joins=joins,
        span=ranking.critical_difference,
        span_name=f"critical difference {ranking.critical_difference:.2f}",
    )
    p = ranking.p_friedman
    words = [f"Blocks: {ranking.n_blocks} {ranked.blocks}."]
    if np.isfinite(p):
        told = "differ" if p < ALPHA else "may all be alike"
        value = "p < 0.001" if p < 0.001 else f"p = {p:.2g}"
        words.append(f"Friedman's test: the methods {told} ({value}).")
    if ranking.critical_difference >= count - 1:
        words.append(
            "The critical difference is wider than the whole range of ranks: with so few blocks "
            "no two methods can be told apart by ranks."
        )
    if ranked.left_out:
        words.append(f"Not ranked, because results are lacking: {_listed(ranked.left_out)}.")
    return Part(f"rank-{k}", ranked.title, words, [Figure(drawing, "Best method first.")])


def _time(contents: Contents, looks: dict[str, int]) -> Section:
    parts = []
    for k, panel in enumerate(contents.panels):
        found = costs(panel)
        series = []
        for cost in found:
            look, shown = _look(looks, cost.method)
            told = f"{cost.method}: {cost.milliseconds:.3g} ms, {cost.accuracy:.1f} %"
            point = svg.Point(max(cost.milliseconds, 1e-6), cost.accuracy, text=told)
            marked = cost.efficient
            series.append(svg.Series(look, cost.method, (point,), shown, False, labelled=marked))
        efficient = [cost.method for cost in found if cost.efficient]
        times = [max(cost.milliseconds, 1e-6) for cost in found]
        values = [cost.accuracy for cost in found]
        drawing = svg.chart(
            series,
            svg.log_axis("milliseconds per episode", min(times), max(times)),
            svg.axis("accuracy (%)", min(values), max(values), pad=0.1),
            title=f"Time against accuracy on {panel.title}",
            description=(
                f"{_plural(len(found), 'method')}. No other method is both faster and more "
                f"accurate than {_listed(efficient)}."
            ),
        )
        table = Table(
            id=f"time-{k}",
            caption=(
                f"Time and accuracy on {panel.title}, means over missing rates; scoring per "
                "episode, preparing from base classes per class split."
            ),
            columns=(
                Column("method"),
                Column("scoring (ms per episode)", True),
                Column("preparing (s)", True),
                Column("accuracy (%)", True),
                Column("none faster and better"),
            ),
            rows=[
                [
                    cost.method,
                    f"{cost.milliseconds:.3g}",
                    f"{cost.seconds_base:.2g}",
                    f"{cost.accuracy:.1f}",
                    ("yes" if cost.efficient else "no") if cost.complete else "lacks rates",
                ]
                for cost in found
            ],
        )
        caption = "Up and left is better. Names stand beside methods that none beats in both."
        parts.append(Part(f"time-part-{k}", panel.title, [], [Figure(drawing, caption)], [table]))
    words = [
        "Wall-clock seconds of the machines that did the work, other work on them included; "
        "compare them within one machine only (see the last section)."
    ]
    legend = len(contents.methods) > 1
    return Section("time", "Time against accuracy", words=words, parts=parts, legend=legend)


def _calibration(contents: Contents, looks: dict[str, int]) -> Section:
    parts = []
    for k, panel in enumerate(contents.panels):
        found = reliabilities(panel)
        series = []
        for one in found:
            look, shown = _look(looks, one.method)
            points = tuple(
                svg.Point(p, hit, text=f"{one.method}: says {p:.2f}, right {hit:.2f} ({n} queries)")
                for p, hit, n in one.points
            )
            series.append(svg.Series(look, one.method, points, shown))
        drawing = svg.chart(
            series,
            svg.axis("probability given to the predicted class", 0.0, 1.0),
            svg.axis("share right", 0.0, 1.0),
            title=f"Reliability diagram on {panel.title}",
            description=(
                f"On the diagonal, probabilities are what they say; below it, a method is too "
                f"sure. The smallest calibration error is {found[0].method}'s, "
                f"{found[0].error:.3f}, the largest {found[-1].method}'s, {found[-1].error:.3f}."
            ),
            guides=[(0, 0, 1, 1)],
            height=400,
        )
        table = Table(
            id=f"calibration-{k}",
            caption=(
                f"Calibration on {panel.title}, pooled over missing rates and class splits: "
                "expected calibration error (ECE, 15 bins), mean probability of the predicted "
                "class, share of right predictions."
            ),
            columns=(
                Column("method"),
                Column("ECE", True),
                Column("probability", True),
                Column("share right", True),
                Column("too sure by", True),
                Column("log-loss", True),
                Column("Brier", True),
            ),
            rows=[
                [
                    one.method,
                    f"{one.error:.3f}",
                    f"{one.confidence:.3f}",
                    f"{one.accuracy:.3f}",
                    f"{one.confidence - one.accuracy:+.3f}",
                    f"{one.log_loss:.3f}",
                    f"{one.brier:.3f}",
                ]
                for one in found
            ],
        )
        caption = "Bins with fewer than 20 queries are not drawn. Below the diagonal: too sure."
        parts.append(
            Part(f"calibration-part-{k}", panel.title, [], [Figure(drawing, caption)], [table])
        )
    legend = len(contents.methods) > 1
    return Section("calibration", "Calibration", parts=parts, legend=legend)


# ---------------------------------------------------------------------- episodes


def _reasons(contents: Contents, examples: Sequence[Example | str]) -> list[str]:
    if not examples:
        return ["Left out: this page was made without reading the data again."]
    return [
        f"{panel.title}: left out, {reason.rstrip('.')}."
        for panel, reason in zip(contents.panels, examples, strict=True)
        if isinstance(reason, str)
    ]


def _missing(contents: Contents, examples: Sequence[Example | str]) -> Section:
    parts = []
    pairs = list(zip(contents.panels, examples, strict=False))
    for k, (panel, one) in enumerate(pairs):
        if isinstance(one, str) or not one.masks:
            continue
        strips = [(f"missing rate {eta:.3g}", mask.tolist()) for eta, mask in one.masks]
        told = "; ".join(
            f"at {eta:.3g} a sample has {mask.sum(axis=1).mean():.1f} of {len(one.views)} views on "
            f"average and {int((mask.sum(axis=1) == 1).sum())} of {len(mask)} have only one"
            for eta, mask in one.masks
        )
        drawing = svg.mask_strips(
            strips,
            one.views,
            one.groups,
            title=f"Missing views in an episode of {panel.title}",
            description=f"{told[0].upper()}{told[1:]}.",
        )
        caption = (
            f"Episode {one.episode} of class split {one.split}, missing rule {panel.cell.missing}: "
            "samples across, each class with its supports first, views down. Filled: there; "
            "empty: missing."
        )
        parts.append(Part(f"missing-{k}", panel.title, [f"{told[0].upper()}{told[1:]}."],
                          [Figure(drawing, caption)]))  # fmt: skip
    words = _reasons(contents, examples)
    complete = [p.title for p, one in pairs if not isinstance(one, str) and not one.masks]
    if complete:
        words.append(f"Nothing is missing in the results on {_listed(complete)}.")
    return Section("missing", "Which views are missing", words=words, parts=parts)


def _examples(contents: Contents, examples: Sequence[Example | str]) -> Section:
    parts = []
    for k, (panel, one) in enumerate(zip(contents.panels, examples, strict=False)):
        if isinstance(one, str):
            continue
        figures = []
        for picture in one.pictures:
            dots = [
                svg.Dot(float(x), float(y), int(label), s < one.n_support, bool(wrong))
                for s, ((x, y), label, wrong) in enumerate(
                    zip(picture.places, one.labels, picture.wrong, strict=True)
                )
            ]
            n_query = len(dots) - one.n_support
            right = n_query - sum(dot.wrong for dot in dots)
            told = f"{picture.method} gets {right} of {n_query} queries right"
            drawing = svg.scatter(
                dots,
                title=f"An episode of {panel.title}, {picture.name}",
                description=(
                    f"t-SNE of {one.n_support} supports and {n_query} queries of classes "
                    f"{_listed(one.classes)}; {picture.note}; {told}."
                ),
            )
            name = f"{picture.name[0].upper()}{picture.name[1:]}"
            figures.append(Figure(drawing, f"{name}: {picture.note}; {told}."))
        words = [
            f"Episode {one.episode} of class split {one.split}: at missing rate {one.eta:.3g} the "
            f"one of median accuracy of {one.method}, the best method that can be run again here. "
            "Large outlined markers are the supports; rings mark queries that are got wrong."
        ]
        keys = [(svg.swatch(k), f"class {name}") for k, name in enumerate(one.classes)]
        parts.append(Part(f"example-{k}", panel.title, words, figures, keys=keys))
    words = _reasons(contents, examples)
    if parts:
        words.insert(
            0,
            "Each picture places the samples of one episode by t-SNE: near samples are alike, far "
            "distances mean nothing, and pictures cannot be laid over each other.",
        )
    return Section("examples", "Example episodes", words=words, parts=parts)


# ---------------------------------------------------------------------- provenance


def _provenance(contents: Contents, store: str, asked: Sequence[str]) -> Section:
    import shlex

    lines = commands(contents.results, store)
    if asked:
        lines.append(shlex.join(asked))
    words = [
        f"These commands compute exactly the {len(contents.results):,} results shown and write "
        "this page; what the store has is not computed again."
    ]
    own = sorted({p.cell.dataset for p in contents.panels if p.cell.dataset not in names()})
    if own:
        words.append(
            f"{_listed(own)}: data of your own, given as a file or folder; put its path there."
        )
    lacking = missing_cells(contents.results)
    if lacking:
        words.append(
            f"The store is not complete: {_plural(lacking, 'cell')} of the rectangle of methods, "
            "rates and class splits are lacking; the commands compute them too."
        )
    if contents.stale:
        words.append(
            f"{_plural(contents.stale, 'result')} of older versions of methods were left out."
        )
    if contents.unknown:
        words.append(
            f"Not known to this installation, shown as stored: {_listed(contents.unknown)}."
        )
    checks = {
        (panel.cell.dataset, panel.cell.data_checksum): panel.cell for panel in contents.panels
    }
    tables = [
        Table(
            id="versions",
            caption="Programs and machines that computed the results.",
            columns=(Column("what"), Column("which"), Column("results", True)),
            rows=[[what, which, str(count)] for what, which, count in versions(contents.results)],
        ),
        Table(
            id="data",
            caption="Data sets by their checksums.",
            columns=(Column("data set"), Column("checksum"), Column("base classes from")),
            rows=[[name, check, cell.base] for (name, check), cell in checks.items()],
        ),
    ]
    now = datetime.now(UTC).isoformat(timespec="seconds")
    words.append(f"Page written by fewview {__version__} on {now}.")
    return Section("how", "How this page was made", words=words, tables=tables, code=lines)
