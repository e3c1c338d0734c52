"""Every chart: plain series in, a matplotlib figure out, for pages and for print alike.

Places and sizes are in points, 72 to the inch; a chart is about as wide as a phone, so that its
text stays readable there. Matplotlib is imported inside the functions, and figures are made without
pyplot: no window system, no global state, no leftover figures.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fewview.drawing._looks import COLOURS, GREY, INK, PAPER, RULE, SOFT, Look, look_at, looks
from fewview.drawing._small import runs
from fewview.errors import FewviewError
from fewview.ground._rows import Row
from fewview.ground._whole_files import replacing
from fewview.results._intervals import Ranking

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.ticker import Locator

WIDTH = 440.0
LETTERS, SMALL = 12.5, 10.5
Box = tuple[float, float, float, float]


@dataclass(frozen=True)
class Point:
    """One place of a series: where, its interval if any, and what a pointer resting there reads."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None
    words: str = ""


@dataclass(frozen=True)
class Series:
    """What is drawn of one method."""

    name: str
    look: Look
    points: tuple[Point, ...]
    shown: bool = True  # in colour and with its band; others are thin and grey until switched on
    joined: bool = True  # by a line
    labelled: bool = False  # the name is written beside the last point

    def without_intervals(self) -> Series:
        """The same, points alone."""
        points = (replace(point, low=None, high=None) for point in self.points)
        return replace(self, points=tuple(points))


@dataclass(frozen=True)
class Scale:
    """What is along an axis: a name, and values from low to high."""

    name: str
    low: float
    high: float
    pad: float = 0.0  # share of the range that is left free at both ends
    log: bool = False
    ticks: tuple[float, ...] = ()  # by default about five round values

    @property
    def ends(self) -> tuple[float, float]:
        """Where the axis begins and ends."""
        if self.log:
            return max(self.low, 1e-9) / 1.5, max(self.high, 1e-9) * 1.5
        spread = (self.high - self.low) or max(abs(self.high), 1.0) * 0.1
        pad = spread * (self.pad or 0.5 * (self.high <= self.low))
        return self.low - pad, self.high + pad

    def locator(self) -> Locator:
        """Where matplotlib is to put the ticks."""
        from matplotlib.ticker import FixedLocator, LogLocator, MaxNLocator

        if self.ticks:
            return FixedLocator(self.ticks)
        if not self.log:
            return MaxNLocator(5, steps=[1, 2, 5, 10])
        low, high = self.ends
        return LogLocator(subs=(1.0,) if high >= 100 * low else (1.0, 2.0, 5.0))


# ---------------------------------------------------------------------- pieces


def _paper(width: float, height: float) -> Figure:
    from matplotlib.figure import Figure

    return Figure(figsize=(width / 72, height / 72), dpi=72)


def _places(on: Axes | Figure) -> dict[str, Any]:
    """How places are counted: on axes by their numbers, on paper in points from the upper left."""
    from matplotlib.figure import Figure
    from matplotlib.transforms import Affine2D

    if not isinstance(on, Figure):
        return {}
    width, height = 72 * on.get_size_inches()
    # In shares of the figure, which move with it when a file is cut to what is drawn.
    return {"transform": Affine2D().scale(1 / width, -1 / height).translate(0, 1) + on.transFigure}


def _axes(figure: Figure, box: Box, across: Scale, up: Scale | None) -> Axes:
    """Axes between left, top, right and bottom."""
    width, height = 72 * figure.get_size_inches()
    left, top, right, bottom = box
    wide, high = right - left, bottom - top
    axes = figure.add_axes((left / width, 1 - bottom / height, wide / width, high / height))
    axes.patch.set_visible(False)
    axes.set_axisbelow(True)
    axes.spines[:].set_visible(False)
    for axis, scale, limit, x, y, angle in (
        (axes.xaxis, across, axes.set_xlim, 0.5, -33 / high, 0),
        (axes.yaxis, up, axes.set_ylim, -34 / wide, 0.5, 90),
    ):
        axis.set_visible(scale is not None)
        if scale is None:
            continue
        if scale.log:
            axes.set_xscale("log")
            axes.minorticks_off()
        limit(*scale.ends)
        axis.set_major_locator(scale.locator())
        axis.set_major_formatter("{x:g}")
        axis.grid(color=RULE, linewidth=1)
        axis.set_tick_params(length=0, pad=5, labelsize=LETTERS, labelcolor=INK)
        _write(axes, x, y, scale.name, color=SOFT, rotation=angle, rotation_mode="anchor",
               ha="center", va="baseline", transform=axes.transAxes)  # fmt: skip
    return axes


def _write(on: Axes | Figure, x: float, y: float, text: str, **options: Any) -> None:
    """One line of text, on axes or on paper, whose dollar signs are no mathematics."""
    usual: dict[str, Any] = {"color": INK, "fontsize": LETTERS, "va": "center", "parse_math": False}
    on.text(x, y, _flat(text), **(_places(on) | usual | options))


def _line(on: Axes | Figure, x: Any, y: Any, **options: Any) -> None:
    """A line, on axes or on paper, solid and thin unless said otherwise; never cut off."""
    from matplotlib.lines import Line2D

    usual: dict[str, Any] = {"linestyle": "-", "linewidth": 1, "solid_capstyle": "butt"}
    on.add_artist(Line2D(x, y, clip_on=False, **(_places(on) | usual | options)))


def _flat(text: str) -> str:
    return " ".join(text.splitlines())


def _short(name: str, most: int) -> str:
    return name if len(name) <= most else name[: most - 1] + "…"


def _piece(kind: str, number: int, look: Look, *classes: str) -> str:
    """The name by which a page knows what a piece of a figure is, and whose."""
    return ".".join((kind, str(number), look.key, f"c{look.colour}", *classes))


def _draw(axes: Axes, number: int, one: Series, bands: bool = True, aside: float = 0.0) -> None:
    """Draw one method; bars of intervals stand aside from their points."""
    colour = COLOURS[one.look.colour] if one.shown else GREY

    def style(kind: str, **options: Any) -> dict[str, Any]:
        name = _piece(kind, number, one.look, *["on"] * one.shown)
        return options | {"gid": name, "color": colour, "zorder": 3 + number / 1000}

    low, high = axes.get_ylim()
    x, y = [p.x for p in one.points], np.clip([p.y for p in one.points], low, high)
    ends = [
        (p.x, *np.clip((p.low, p.high), low, high))
        for p in one.points
        if p.low is not None and p.high is not None
    ]
    if one.joined and bands and len(ends) > 1:
        at, under, over = zip(*ends, strict=True)
        faint = style("band", linewidth=0, alpha=0.1 if one.shown else 0.0)
        axes.fill([*at, *reversed(at)], [*over, *reversed(under)], **faint)
    elif ends:
        bars = np.array([[(at, under), (at, over), (at, np.nan)] for at, under, over in ends])
        thin = style("bar", linewidth=1.5) if bands else style("bar", linewidth=0.7, alpha=0.6)
        _line(axes, bars[..., 0].ravel() + aside, bars[..., 1].ravel(), **thin)
    if one.joined and len(x) > 1:
        dashed = one.look.line(2 if one.shown else 1) | {"marker": ""}
        _line(axes, x, y, **style("line", **dashed))
    words = "\n".join(_flat(p.words) for p in one.points)
    _line(axes, x, y, **style("mark", linestyle="", label=words, **one.look.mark()))


def _fill(axes: Axes, series: Sequence[Series], guides: Sequence[Box], bands: bool = True) -> None:
    """Draw dashed guides, then all methods, those in colour above the others."""
    for x1, y1, x2, y2 in guides:
        _line(axes, [x1, x2], [y1, y2], color=SOFT, linestyle=(0, (4, 4)), zorder=2)
    order = sorted(series, key=lambda one: one.shown)
    low, high = axes.get_xlim()
    for k, one in enumerate(order):
        # Bars stand side by side, so that they can be told apart.
        aside = 0.0 if bands else 0.03 * (high - low) * ((k + 0.5) / len(order) - 0.5)
        _draw(axes, k, one, bands, aside)
    _label(axes, order)


def _label(axes: Axes, series: Sequence[Series]) -> None:
    """Write names beside points where nothing else is; nowhere, if there is no such place."""
    (left, bottom), (right, top) = axes.transAxes.transform([(0, 0), (1, 1)])
    places = [axes.transData.transform([(p.x, p.y) for p in one.points]) for one in series]
    taken = [(x - 4, y - 4, x + 4, y + 4) for some in places for x, y in some]
    for k, (one, some) in enumerate(zip(series, places, strict=True)):
        if not one.labelled:
            continue
        width = 6.6 * len(one.name)
        for side, share, dx, dy in (
            ("left", 0.0, 7, 0), ("right", 1.0, -7, 0), ("center", 0.5, 0, 12),
            ("center", 0.5, 0, -12),
        ):  # fmt: skip
            x, y = some[-1] + (dx, dy)
            start, end = x - share * width, x + (1 - share) * width
            free = all(
                end <= b[0] or start >= b[2] or y + 6 <= b[1] or y - 6 >= b[3] for b in taken
            )
            if free and left <= start and end <= right and bottom <= y - 6 and y + 6 <= top:
                taken.append((start, y - 6, end, y + 6))
                x, y = axes.transData.inverted().transform((x, y))
                name = _piece("label", k, one.look, *["on"] * one.shown)
                _write(axes, x, y, one.name, ha=side, fontsize=12, gid=name, zorder=3 + k / 1000)
                break


# ---------------------------------------------------------------------- charts of anything


def chart(
    series: Sequence[Series],
    across: Scale,
    up: Scale,
    *,
    guides: Sequence[Box] = (),
    height: float = 300.0,
    width: float = WIDTH,
) -> Figure:
    """Draw lines with bands, or points, over two axes; guides are dashed lines (x, y, x, y)."""
    figure = _paper(width, height)
    axes = _axes(figure, (46.0, 12.0, width - 14.0, height - 42.0), across, up)
    _fill(axes, series, guides)
    return figure


def rows_chart(
    series: Sequence[Series],
    across: Scale,
    *,
    joins: Sequence[tuple[int, int]] = (),
    above: str = "",
    guide: float | None = None,
    form: str = ".1f",
) -> Figure:
    """Draw one row per method, with a marker at the `y` of its one point.

    Rows from a first to a last one are joined by a thick line at the right, and words `above` the
    rows say what that means. A dashed line stands at the value `guide`, where bars begin then.
    `form` says how values are written.
    """
    top = 24.0 if above else 12.0
    left = min(max(7.0 * max(len(one.name) for one in series) + 14.0, 70.0), 200.0)
    right = WIDTH - 60.0 - 9.0 * bool(joins)
    bottom = top + 20.0 * len(series)
    figure = _paper(WIDTH, bottom + 40.0)
    axes = _axes(figure, (left, top, right, bottom), across, None)
    axes.set_ylim(len(series), 0)
    for k, one in enumerate(series):
        (point,) = one.points
        y, row = top + 20.0 * (k + 0.5), (k + 0.5, k + 0.5)
        colour = COLOURS[one.look.colour]
        look = one.look
        start = across.ends[0] if guide is None else guide
        _line(axes, (start, point.y), row, color=RULE, zorder=1)
        if point.low is not None and point.high is not None:
            _line(axes, (point.low, point.high), row, color=colour, linewidth=1.5,
                  gid=_piece("bar", k, look, "on"))  # fmt: skip
        value = f"{point.y:{form}}".replace("-", "\N{MINUS SIGN}")
        words = point.words or f"{one.name}: {value}"
        _line(axes, [point.y], row[:1], color=colour, label=_flat(words),
              gid=_piece("mark", k, look, "on"), **look.mark())  # fmt: skip
        _write(figure, left - 8, y, _short(one.name, 25), ha="right")
        _write(figure, right + 10, y, value)
    if guide is not None:
        _line(axes, [guide] * 2, [0, len(series)], color=SOFT, linestyle=(0, (4, 4)), zorder=2)
    for first, last in joins:
        ends = [top + 20.0 * (first + 0.2), top + 20.0 * (last + 0.8)]
        _line(figure, [right + 50.0] * 2, ends, color=INK, linewidth=4)
    if above:
        _write(figure, WIDTH - 8.0, 9, above, ha="right")
    return figure


def mask_strips(
    strips: Sequence[tuple[str, Any]], views: Sequence[str], groups: Sequence[tuple[str, int]]
) -> Figure:
    """Draw which views are missing: samples across, views down.

    A strip is its name and a mask [samples, views]; a group is the name and number of consecutive
    samples.
    """
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path as Outline

    left = min(max(6.4 * max(map(len, views)) + 10, 30.0), 120.0)
    sizes = [size for _, size in groups]
    wide = (WIDTH - left - 4.0 * len(groups)) / max(sum(sizes), 1)
    group = np.repeat(np.arange(len(groups)), sizes)
    places = left + np.arange(sum(sizes)) * wide + 4.0 * group
    step = 11.0 * len(views) + 30.0
    height = 12.0 + step * len(strips)
    figure = _paper(WIDTH, height)
    small = {"fontsize": SMALL, "color": SOFT}
    box = np.array([(0, 0), (1, 0), (1, 10), (0, 10), (0, 0)])
    codes = [Outline.MOVETO, *[Outline.LINETO] * 3, Outline.CLOSEPOLY]
    starts = np.cumsum([0, *sizes[:-1]])
    for k, (name, mask) in enumerate(strips):
        top = 22.0 + step * k
        _write(figure, left, top - 10, name, color=SOFT)
        for row, view in enumerate(views):
            _write(figure, left - 5, top + 11.0 * row + 5.5, _short(view, 17), ha="right", **small)
        there = np.asarray(mask, dtype=bool).T
        outlines: dict[str, Any] = {}
        # Neighbours are drawn as one box, and told apart by lines across all views.
        for kind, cells in (("there", there), ("missing", ~there)):
            found = [
                np.array([places[start + first], top + 11.0 * v])
                + box * np.array([wide * (last - first), 1.0])
                for start, size in zip(starts, sizes, strict=True)
                for v, row in enumerate(cells[:, start : start + size])
                for first, last in runs(row)
            ]
            outlines[kind] = (np.reshape(found, (-1, 2)), codes * len(found))
        lines = [[(x, top), (x, top + 11.0 * len(views) - 1)] for x in places]
        outlines["apart"] = (np.reshape(lines, (-1, 2)), codes[:2] * len(lines))
        paints = {"there": (COLOURS[0], PAPER), "missing": ("none", RULE), "apart": ("none", PAPER)}
        for kind, (face, edge) in paints.items():
            paint: dict[str, Any] = {"facecolor": face, "edgecolor": edge, "linewidth": 0.4}
            outline = Outline(*outlines[kind])
            figure.add_artist(PathPatch(outline, **paint, **_places(figure)))
    for k, (name, size) in enumerate(groups):
        if size * wide >= 6.0 * len(name):
            middle = places[group == k].mean() + wide / 2
            _write(figure, middle, height - 12, name, ha="center", **small)
    return figure


def scatter(places: Any, groups: Any, labelled: Any, wrong: Any, side: float = 300.0) -> Figure:
    """Draw samples in the plane, [samples, 2], without axes: t-SNE has no units.

    Classes (`groups`) differ in colour and marker, labelled samples are larger and outlined, wrong
    ones ringed.
    """
    figure = _paper(side, side)
    ends = [1, side - 1]
    _line(figure, [*ends, *ends[::-1], 1], [1, 1, side - 1, side - 1, 1], color=RULE)
    low, high = np.min(places, axis=0), np.max(places, axis=0)
    shares = (np.asarray(places) - low) / np.where(high > low, high - low, 1.0)
    x, y = 6 + (side - 12) * (0.05 + 0.9 * shares.T * ((1,), (-1,)) + ((0,), (0.9,)))
    groups, labelled, wrong = (np.asarray(part) for part in (groups, labelled, wrong))
    for kind, large in (("query", False), ("support", True)):
        for group in np.unique(groups):
            chosen = (groups == group) & (labelled == large)
            look = look_at(int(group))
            style = look.mark(2.0 if large else 1.0) | {"markeredgecolor": INK}
            style |= {"markeredgewidth": 1.8} if large else {}
            _line(figure, x[chosen], y[chosen], linestyle="", color=COLOURS[look.colour],
                  gid=_piece("mark", int(group), look, "on", kind), **style)  # fmt: skip
    _line(figure, x[wrong], y[wrong], linestyle="", color=INK, marker="o", markersize=12.4,
          fillstyle="none", markeredgewidth=1.1)  # fmt: skip
    return figure


def key(look: Look, joined: bool = True) -> Figure:
    """The sample of a line, or the marker alone, that stands before a name in a legend."""
    width = 36.0 if joined else 16.0
    figure = _paper(width, 16)
    plain = Look(look.colour, look.marker, look.dash)  # no switch: a key keeps its colour
    if joined:
        style = plain.line(2) | {"marker": ""}
        _line(figure, [1, 35], [8, 8], gid=_piece("line", 0, plain, "on"), **style)
    _line(figure, [width / 2], [8], gid=_piece("mark", 0, plain, "on"),
          color=COLOURS[look.colour], **look.mark(1.0 if joined else 1.4))  # fmt: skip
    return figure


# ---------------------------------------------------------------------- charts of results


def accuracy_series(rows: Sequence[Row], known: dict[str, Look], shown: Sequence[str]) -> Any:
    """Series, axes and the line of chance of one data set."""
    chance = 100.0 / rows[0]["way"]
    etas = sorted({float(row["eta"]) for row in rows})
    series, values = [], [chance]
    for name in dict.fromkeys(row["method"] for row in rows):
        points = []
        here = [row for row in rows if row["method"] == name]
        for row in sorted(here, key=lambda row: float(row["eta"])):
            mean, low, high = row["accuracy"], row["ci_low"], row["ci_high"]
            words = f"{name}, missing rate {row['eta']:.3g}: {mean:.1f} %"
            if low is not None:
                words += f" ({low:.0f} to {high:.0f})"
            points.append(Point(row["eta"], mean, low, high, words))
            values += [mean, low, high] if name in shown and low is not None else [mean]
        series.append(Series(name, known[name], tuple(points), name in shown))
    up = Scale("accuracy (%)", max(0.0, min(values) - 2), min(100.0, max(values) + 2))
    ticks = tuple(etas) if len(etas) <= 7 else ()
    across = Scale("missing rate", etas[0], etas[-1], pad=0.02, ticks=ticks)
    first, last = across.ends
    return series, across, up, [(first, chance, last, chance)]


def accuracy_chart(
    rows: Sequence[Row], known: dict[str, Look], shown: Sequence[str], band: str | None = None
) -> Figure:
    """Draw accuracy against the missing rate on one data set, with 95 % intervals as bands.

    A page shows one band at a time; on paper that of the method `band` alone is drawn.
    """
    series, across, up, guides = accuracy_series(rows, known, shown)
    if band is not None:
        series = [one if one.name == band else one.without_intervals() for one in series]
    return chart(series, across, up, guides=guides, height=320)


def accuracy_curves(rows: Sequence[Row], title: str | None = None) -> Figure:
    """Draw accuracy against the missing rate, one panel per data set, one line per method.

    Bars are 95 % intervals over class splits; the legend lists methods from best to worst mean.
    """
    from matplotlib.lines import Line2D

    if not rows:
        raise FewviewError("no results to draw")
    levels: dict[str, list[float]] = {}
    for row in rows:
        levels.setdefault(row["method"], []).append(row["accuracy"])
    order = sorted(levels, key=lambda name: -float(np.mean(levels[name])))
    known = looks(order)
    datasets = list(dict.fromkeys(row["dataset"] for row in rows))
    wide, high, head = min(len(datasets), 3), 344.0, 24.0 if title else 0.0
    figure = _paper(WIDTH * wide, head + high * -(-len(datasets) // wide))
    for k, dataset in enumerate(datasets):
        here = [row for row in rows if row["dataset"] == dataset]
        series, across, up, guides = accuracy_series(here, known, order)
        x, y = WIDTH * (k % wide), head + high * (k // wide)
        box = (x + 46.0, y + 28.0, x + WIDTH - 14.0, y + high - 42.0)
        axes = _axes(figure, box, across, up)
        _fill(axes, series, guides, bands=False)
        task = f"{dataset}, {here[0]['way']}-way {here[0]['shot']}-shot"
        axes.set_title(_flat(task), loc="left", color=INK, fontsize=LETTERS, parse_math=False)
    if title:
        _write(figure, 46.0, 12.0, title, fontsize=LETTERS + 1.5)
    legend = figure.legend(
        [Line2D([], [], **known[name].line(2)) for name in order], list(map(_flat, order)),
        loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=SMALL, frameon=False,
        handlelength=3.5, labelcolor=INK,
    )  # fmt: skip
    for text in legend.get_texts():
        text.set_parse_math(False)
    return figure


def rank_diagram(
    ranking: Ranking, blocks: str = "blocks", known: dict[str, Look] | None = None
) -> Figure:
    """Draw average ranks; bars at the right mark the best method and who is not told apart from it.

    `blocks` says what was ranked; `known` are looks that are settled already.
    """
    known = known or looks(ranking.names)
    count = len(ranking.names)
    series = [
        Series(name, known[name], (Point(0, rank),))
        for name, rank in zip(ranking.names, ranking.ranks, strict=True)
    ]
    name = f"average rank over {ranking.n_blocks} {blocks} (1 is best)"
    step = -(-count // 8)
    return rows_chart(
        series,
        Scale(name, 1.0, float(max(count, 2)), ticks=tuple(range(step, count + 1, step))),
        joins=ranking.runs(),
        form=".2f",
        above=f"bars: not told apart from {_short(ranking.best, 25)}"
        if ranking.tied
        else f"{_short(ranking.best, 25)} is told apart from all others",
    )


# Widths of columns in print, inches: one and two of an IEEE page; other styles are near.
COLUMNS = {"single": 3.5, "double": 7.16}


def for_print(figure: Figure, width: float, legend: Sequence[Series] = ()) -> Figure:
    """Make a chart as wide as a column, in inches, with letters of 7 to 9 points.

    Lines of the `legend` are named below the chart. The figure itself is changed.
    """
    from matplotlib.lines import Line2D
    from matplotlib.text import Text

    old_width, old_height = figure.get_size_inches()
    factor = width / old_width
    thin = min(max(factor, 0.6), 0.8)
    for text in figure.findobj(Text):
        if isinstance(text, Text):
            text.set_fontsize(min(float(text.get_fontsize()) * 7.0 / SMALL, 8.0))
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_tick_params(labelsize=7.5, pad=3)
            axis.label.set_fontsize(8.0)  # not smaller than the numbers along it
            axis.labelpad = 3.0
            axis.grid(linewidth=0.5)
    for line in figure.findobj(Line2D):
        if isinstance(line, Line2D) and line.get_gid():
            line.set_linewidth(line.get_linewidth() * thin)
            line.set_markersize(line.get_markersize() * thin)
    height = old_height * min(factor, 0.72)
    # In points: the line before a name, its letters, and the space after it.
    widest = 30.0 + 3.7 * max((len(one.name) for one in legend), default=0)
    columns = max(1, int((72 * width + 6) // widest))
    below = (11.0 * -(-len(legend) // columns) + 2.0) / 72 if legend else 0.0
    places = [axes.get_position(original=True).bounds for axes in figure.axes]
    figure.set_size_inches(width, height + below)
    for axes, (x, y, wide, high) in zip(figure.axes, places, strict=True):
        whole = height + below
        axes.set_position((x, (y * height + below) / whole, wide, high * height / whole))
    for text in figure.texts:  # letters shrink less than the paper: a long name may stick out
        box = text.get_window_extent()
        if box.x0 < 0:
            text.set_text(_short(text.get_text(), int(len(text.get_text()) * box.x1 / box.width)))
    if legend:
        keys = [Line2D([], [], **one.look.line(1.2)) for one in legend]
        for one in keys:
            one.set_markersize(one.get_markersize() * 0.6)
        names = figure.legend(
            keys, [_flat(one.name) for one in legend], loc="lower center", ncol=columns,
            fontsize=7, frameon=False, handlelength=3.2, handletextpad=0.4, labelcolor=INK,
            columnspacing=0.8, borderpad=0, borderaxespad=0.2, labelspacing=0.4,
        )  # fmt: skip
        for text in names.get_texts():
            text.set_parse_math(False)
    return figure


def save_figure(figure: Figure, path: str | PathLike[str], *, cut: bool = True) -> list[Path]:
    """Save a figure as `name.png`, `.svg` or `.pdf`, or as both PNG and SVG if there is no ending.

    It is cut to what is drawn, unless it has to stay as wide as it is. Returns the files written,
    each whole or not at all.
    """
    from matplotlib import rc_context

    target = Path(path)
    files = [target.with_name(target.name + ending) for ending in (".png", ".svg")]
    if target.suffix.lower() in (".png", ".svg", ".pdf"):
        files = [target]
    # The layout is settled once; settling it again for every file would move things a little.
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    for file in files:
        kind = file.suffix.lower()[1:]
        # Without a date and with fixed identifiers the same figure is the same file. Journals do
        # not take letters of type 3, which matplotlib writes by itself.
        metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind)
        settings: Any = {"svg.hashsalt": "fewview", "pdf.fonttype": 42}
        with replacing(file) as temporary, rc_context(settings):
            box = "tight" if cut else None
            figure.savefig(temporary, format=kind, dpi=160, metadata=metadata, bbox_inches=box)
    return files
