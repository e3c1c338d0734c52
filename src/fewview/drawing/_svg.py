"""Drawings for a page: small SVG charts whose colours, fonts and looks come from the page's CSS.

Knows coordinates and text, nothing of results. Charts are drawn about as wide as a phone, so that
their text stays readable there; every chart has a title and a description that are read aloud.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

WIDTH = 440
Place = Callable[[float], float]
# Seven colours (CSS --c0 to --c6), four dashes, ten markers: 70 methods look different.
N_COLOURS = 7
DASHES = ("", "7 3", "2 2.5", "9 3 2 3")
MARKERS = (
    "M-3.6,0a3.6,3.6 0 1,0 7.2,0a3.6,3.6 0 1,0 -7.2,0z",
    "M-3.2,-3.2h6.4v6.4h-6.4z",
    "M0,-4.2L4,3H-4z",
    "M0,-4.6L4,0L0,4.6L-4,0z",
    "M0,4.2L4,-3H-4z",
    "M-1.4,-4h2.8v2.6h2.6v2.8h-2.6v2.6h-2.8v-2.6h-2.6v-2.8h2.6z",
    "M-4,-2.2L-2.2,-4L0,-1.8L2.2,-4L4,-2.2L1.8,0L4,2.2L2.2,4L0,1.8L-2.2,4L-4,2.2L-1.8,0z",
    "M-4.2,0L3,-4V4z",
    "M4.2,0L-3,-4V4z",
    "M0,-4.8L1.2,-1.5L4.6,-1.5L1.9,0.6L2.9,4L0,2L-2.9,4L-1.9,0.6L-4.6,-1.5L-1.2,-1.5z",
)


@dataclass(frozen=True)
class Point:
    """One place of a line: where, its interval if any, and what a pointer resting there reads."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None
    text: str = ""


@dataclass(frozen=True)
class Series:
    """What is drawn of one method.

    Attributes:
        look: number of its colour, dash and marker.
        name: of the method.
        points: from left to right.
        shown: in colour and with its band; the others are thin and grey until switched on.
        joined: whether a line joins the points.
        labelled: whether the name is written beside the last point.
    """

    look: int
    name: str
    points: tuple[Point, ...]
    shown: bool = True
    joined: bool = True
    labelled: bool = False


@dataclass(frozen=True)
class Axis:
    """An axis from `low` to `high`, with a name and where its ticks are."""

    name: str
    low: float
    high: float
    ticks: tuple[float, ...]
    log: bool = False

    def place(self, value: float, start: float, end: float) -> float:
        """Where a value lies between two ends of the drawing."""
        low, high, at = self.low, self.high, value
        if self.log:
            low, high, at = math.log10(low), math.log10(high), math.log10(max(value, 1e-12))
        return start + (at - low) / ((high - low) or 1.0) * (end - start)


def axis(name: str, low: float, high: float, n: int = 5, pad: float = 0.0) -> Axis:
    """Make an axis with about n round ticks that covers low to high.

    Args:
        name: what is along it.
        low: smallest value.
        high: largest value.
        n: how many ticks are wanted.
        pad: share of the range that is left free at both ends.

    Example:
        >>> axis("accuracy", 52.0, 97.0).ticks
        (60.0, 70.0, 80.0, 90.0)
    """
    spread = (high - low) or max(abs(high), 1.0) * 0.1
    low, high = low - pad * spread, high + pad * spread
    if high <= low:
        low, high = low - spread / 2, high + spread / 2
    rough = (high - low) / n
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * k for k in (1, 2, 5, 10) if power * k >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    ticks: list[float] = []
    while (first + len(ticks)) * step <= high + 1e-9 * step:
        ticks.append(round((first + len(ticks)) * step, 10))
    return Axis(name, low, high, tuple(ticks))


def log_axis(name: str, low: float, high: float) -> Axis:
    """Make a logarithmic axis with ticks at powers of ten (and between, where few).

    Example:
        >>> log_axis("seconds", 0.02, 30.0).ticks
        (0.1, 1.0, 10.0)
    """
    low, high = max(low, 1e-9) / 1.5, max(high, 1e-9) * 1.5
    exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [10.0**k for k in exponents if low <= 10.0**k <= high]
    if len(ticks) < 2:
        marks = (m * 10.0**k for k in exponents for m in (1, 2, 5))
        ticks = [mark for mark in marks if low <= mark <= high]
    return Axis(name, low, high, tuple(ticks), log=True)


def frame(title: str, description: str, height: float, body: str, width: float = WIDTH) -> Markup:
    """Put a drawing into an `svg` element that a screen reader reads as one image.

    Args:
        title: its name.
        description: what it shows, in words.
        height: in drawing units.
        body: elements, already escaped.
        width: in drawing units.
    """
    name = f"{escape(title)}. {escape(description)}"
    return Markup(
        f'<svg viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{name}" '
        f'class="chart">{body}</svg>'
    )


def text(x: float, y: float, words: str, anchor: str = "start", kind: str = "") -> str:
    """One piece of text.

    Example:
        >>> text(1, 2, "a < b")
        '<text x="1" y="2">a &lt; b</text>'
    """
    place = "" if anchor == "start" else f' text-anchor="{anchor}"'
    style = f' class="{kind}"' if kind else ""
    return f'<text x="{_n(x)}" y="{_n(y)}"{place}{style}>{escape(words)}</text>'


def marker(look: int, x: float, y: float, words: str = "", size: float = 1.0) -> str:
    """The marker of a method at a place, with words for a pointer resting on it."""
    place = f"translate({_n(x)},{_n(y)})" + (f" scale({size:g})" if size != 1 else "")
    title = f"<title>{escape(words)}</title>" if words else ""
    shape = MARKERS[look % len(MARKERS)]
    return f'<path class="mark" d="{shape}" transform="{place}">{title}</path>'


def key(look: int) -> Markup:
    """The sample of a line that stands before a name in a legend."""
    line = f'<path class="line" d="M1,8H35"{_dash(look)}/>'
    return Markup(
        f'<svg viewBox="0 0 36 16" class="key series on {colour(look)}" aria-hidden="true">'
        f"{line}{marker(look, 18, 8)}</svg>"
    )


def swatch(look: int) -> Markup:
    """The marker that stands before the name of a class."""
    return Markup(
        f'<svg viewBox="0 0 16 16" class="swatch series on {colour(look)}" aria-hidden="true">'
        f"{marker(look, 8, 8, size=1.4)}</svg>"
    )


def colour(look: int) -> str:
    """Name of the CSS class that sets the colour of a look."""
    return f"c{look % N_COLOURS}"


def chart(
    series: Sequence[Series],
    across: Axis,
    up: Axis,
    *,
    title: str,
    description: str,
    guides: Sequence[tuple[float, float, float, float]] = (),
    height: float = 300,
) -> Markup:
    """Draw lines with bands, or points, over two axes.

    Args:
        series: one per method; shown ones are drawn last, above the others.
        across: the horizontal axis.
        up: the vertical axis.
        title: name of the drawing.
        description: what it shows, in words.
        guides: grey lines (x, y, x, y) in units of the axes.
        height: in drawing units.

    Example:
        >>> line = Series(0, "proto", (Point(0, 80), Point(0.5, 60)))
        >>> drawing = chart([line], axis("rate", 0, 0.5), axis("accuracy", 60, 80),
        ...                 title="a", description="b")
        >>> 'role="img"' in drawing, drawing.count('class="mark"')
        (True, 2)
    """
    left, right, top, bottom = 46.0, WIDTH - 14.0, 12.0, height - 42.0

    def x(value: float) -> float:
        return across.place(value, left, right)

    def y(value: float) -> float:
        return up.place(min(max(value, up.low), up.high), bottom, top)

    parts = []
    for tick in up.ticks:
        parts.append(f'<path class="grid" d="M{left:g},{_n(y(tick))}H{right:g}"/>')
        parts.append(text(left - 6, y(tick) + 4, f"{tick:g}", "end"))
    for tick in across.ticks:
        parts.append(f'<path class="grid" d="M{_n(x(tick))},{top:g}V{bottom:g}"/>')
        parts.append(text(x(tick), bottom + 16, f"{tick:g}", "middle"))
    parts.append(text((left + right) / 2, height - 8, across.name, "middle", "name"))
    parts.append(
        f'<text class="name" text-anchor="middle" transform="translate(12,'
        f'{_n((top + bottom) / 2)}) rotate(-90)">{escape(up.name)}</text>'
    )
    for x1, y1, x2, y2 in guides:
        path = f"M{_n(x(x1))},{_n(y(y1))}L{_n(x(x2))},{_n(y(y2))}"
        parts.append(f'<path class="guide" d="{path}"/>')
    taken: list[tuple[float, float, float, float]] = [
        (x(p.x) - 4, y(p.y) - 4, x(p.x) + 4, y(p.y) + 4)
        for one in series
        if not one.joined
        for p in one.points
    ]
    for one in sorted(series, key=lambda one: one.shown):
        inner = _band(one, x, y) if one.joined else _bars(one.points, x, y)
        if one.joined and len(one.points) > 1:
            path = "L".join(f"{_n(x(p.x))},{_n(y(p.y))}" for p in one.points)
            inner += f'<path class="line" d="M{path}"{_dash(one.look)}/>'
        inner += "".join(marker(one.look, x(p.x), y(p.y), p.text) for p in one.points)
        if one.labelled and one.points:
            last = one.points[-1]
            inner += _label(one.name, x(last.x), y(last.y), (left, top, right, bottom), taken)
        shown = " on" if one.shown else ""
        parts.append(f'<g class="series {colour(one.look)}{shown}" data-m="{one.look}">{inner}</g>')
    return frame(title, description, height, "".join(parts))


def _band(one: Series, x: Place, y: Place) -> str:
    ends = [(p.x, p.low, p.high) for p in one.points if p.low is not None and p.high is not None]
    if len(ends) < 2:
        return _bars(one.points, x, y)
    over = [f"{_n(x(at))},{_n(y(high))}" for at, _, high in ends]
    under = [f"{_n(x(at))},{_n(y(low))}" for at, low, _ in reversed(ends)]
    return f'<path class="band" d="M{"L".join(over + under)}z"/>'


def _bars(points: Sequence[Point], x: Place, y: Place) -> str:
    return "".join(
        f'<path class="bar" d="M{_n(x(p.x))},{_n(y(p.low))}V{_n(y(p.high))}"/>'
        for p in points
        if p.low is not None and p.high is not None
    )


def _label(
    name: str,
    x: float,
    y: float,
    inside: tuple[float, float, float, float],
    taken: list[tuple[float, float, float, float]],
) -> str:
    """Write a name beside a point where nothing else is; nowhere, if there is no such place."""
    width, height = 6.6 * len(name), 12.0
    for anchor, at, base in (
        ("start", x + 7, y + 4),
        ("end", x - 7, y + 4),
        ("middle", x, y - 8),
        ("middle", x, y + 16),
    ):
        start = {"start": at, "end": at - width, "middle": at - width / 2}[anchor]
        box = (start, base - height + 2, start + width, base + 2)
        free = all(
            box[2] <= b[0] or box[0] >= b[2] or box[3] <= b[1] or box[1] >= b[3] for b in taken
        )
        if free and inside[0] <= box[0] and box[2] <= inside[2] and inside[1] <= box[1]:
            taken.append(box)
            return text(at, base, name, anchor, "label")
    return ""


@dataclass(frozen=True)
class Bar:
    """One row of a row chart: name, value, interval if any."""

    look: int
    name: str
    value: float
    low: float | None = None
    high: float | None = None


def rows_chart(
    bars: Sequence[Bar],
    across: Axis,
    *,
    title: str,
    description: str,
    joins: Sequence[tuple[int, int]] = (),
    span: float | None = None,
    span_name: str = "",
) -> Markup:
    """Draw one row per method with a marker at its value.

    Args:
        bars: rows from top to bottom.
        across: the axis of the values.
        title: name of the drawing.
        description: what it shows, in words.
        joins: (first, last) rows joined by a thick line at the right: not told apart.
        span: a length on the axis drawn above the rows as a yardstick.
        span_name: what the yardstick is.

    Example:
        >>> rows = [Bar(0, "a", 1.2), Bar(1, "b", 1.8)]
        >>> drawing = rows_chart(rows, axis("rank", 1, 2), title="t", description="d",
        ...                      joins=[(0, 1)])
        >>> drawing.count("join")
        1
    """
    step, top = 20.0, 34.0 if span is not None else 12.0
    longest = max((len(bar.name) for bar in bars), default=0)
    left = min(max(7.0 * longest + 14.0, 70.0), 200.0)
    right = WIDTH - 60.0 - 9.0 * len(joins)
    bottom = top + step * len(bars)
    height = bottom + 40.0

    def x(value: float) -> float:
        return across.place(value, left, right)

    parts = []
    for tick in across.ticks:
        parts.append(f'<path class="grid" d="M{_n(x(tick))},{top:g}V{bottom:g}"/>')
        parts.append(text(x(tick), bottom + 16, f"{tick:g}", "middle"))
    parts.append(text((left + right) / 2, height - 6, across.name, "middle", "name"))
    if span is not None:
        end = min(x(across.low + span), WIDTH - 14.0)
        parts.append(
            f'<path class="span" d="M{left:g},24H{_n(end)}M{left:g},20v8M{_n(end)},20v8"/>'
        )
        parts.append(text(left, 13, span_name))
    for k, bar in enumerate(bars):
        y = top + step * (k + 0.5)
        inner = f'<path class="lead" d="M{left:g},{_n(y)}H{_n(x(bar.value))}"/>'
        if bar.low is not None and bar.high is not None:
            inner += f'<path class="bar" d="M{_n(x(bar.low))},{_n(y)}H{_n(x(bar.high))}"/>'
        inner += marker(bar.look, x(bar.value), y, f"{bar.name}: {bar.value:.2f}")
        parts.append(f'<g class="series on {colour(bar.look)}">{inner}</g>')
        shown = bar.name if len(bar.name) <= 27 else bar.name[:26] + "…"
        parts.append(text(left - 8, y + 4, shown, "end"))
        parts.append(text(right + 8, y + 4, f"{bar.value:.2f}"))
    for k, (first, last) in enumerate(joins):
        at = right + 50.0 + 9.0 * k
        y1, y2 = top + step * (first + 0.2), top + step * (last + 0.8)
        parts.append(f'<path class="join" d="M{_n(at)},{_n(y1)}V{_n(y2)}"/>')
    return frame(title, description, height, "".join(parts))


def mask_strips(
    strips: Sequence[tuple[str, Sequence[Sequence[bool]]]],
    views: Sequence[str],
    groups: Sequence[tuple[str, int]],
    *,
    title: str,
    description: str,
) -> Markup:
    """Draw which views are missing: one strip per missing rate, samples across, views down.

    Args:
        strips: (name, mask [samples][views]) per missing rate.
        views: names of the views.
        groups: (name, number of samples) of consecutive samples.
        title: name of the drawing.
        description: what it shows, in words.

    Example:
        >>> drawing = mask_strips([("0.5", [[True, False]])], ["a", "b"], [("class", 1)],
        ...                       title="t", description="d")
        >>> drawing.count('class="gone"')
        1
    """
    cell, gap = 11.0, 30.0
    left = min(max(6.4 * max(map(len, views)) + 10, 30.0), 120.0)
    n = max(len(strips[0][1]), 1)
    wide = (WIDTH - 4.0 - left - 4.0 * (len(groups) - 1)) / n
    starts, at = [], left
    for _, size in groups:
        starts.append(at)
        at += size * wide + 4.0
    places = [starts[g] + k * wide for g, (_, size) in enumerate(groups) for k in range(size)]
    parts, y = [], 16.0
    for name, mask in strips:
        parts.append(text(left, y, name, kind="name"))
        top = y + 6.0
        here, gone = "", ""
        for v, view in enumerate(views):
            row = top + cell * v
            shown = view if len(view) <= 17 else view[:16] + "…"
            parts.append(text(left - 5, row + 9, shown, "end", "small"))
            for s, place in enumerate(places):
                box = f"M{_n(place)},{_n(row)}h{_n(wide)}v{cell - 1:g}h-{_n(wide)}z"
                if mask[s][v]:
                    here += box
                else:
                    gone += box
        parts.append(f'<path class="here" d="{here}"/><path class="gone" d="{gone}"/>')
        y = top + cell * len(views) + gap - 6.0
    low = y - gap + 16.0
    for (label, size), start in zip(groups, starts, strict=True):
        if size * wide >= 6.0 * len(label):
            parts.append(text(start + size * wide / 2, low + 2, label, "middle", "small"))
    return frame(title, description, low + 10.0, "".join(parts))


@dataclass(frozen=True)
class Dot:
    """One sample in the plane: its class, whether it is labelled, whether it was got wrong."""

    x: float
    y: float
    group: int
    labelled: bool = False
    wrong: bool = False


def scatter(dots: Sequence[Dot], *, title: str, description: str, side: float = 300) -> Markup:
    """Draw samples in the plane, without axes: t-SNE has no units.

    Args:
        dots: samples; classes differ in colour and marker, labelled ones are larger and outlined.
        title: name of the drawing.
        description: what it shows, in words.
        side: of the square, in drawing units.

    Example:
        >>> dots = [Dot(0, 0, 0, labelled=True), Dot(1, 1, 1, wrong=True)]
        >>> scatter(dots, title="t", description="d").count("wrong")
        1
    """
    xs, ys = [d.x for d in dots], [d.y for d in dots]
    across = axis("", min(xs, default=0.0), max(xs, default=1.0), pad=0.06)
    up = axis("", min(ys, default=0.0), max(ys, default=1.0), pad=0.06)
    parts = [f'<rect class="field" x="1" y="1" width="{side - 2:g}" height="{side - 2:g}"/>']
    for dot in sorted(dots, key=lambda dot: dot.labelled):
        x, y = across.place(dot.x, 6, side - 6), up.place(dot.y, side - 6, 6)
        kind = "support" if dot.labelled else "query"
        inner = marker(dot.group, x, y, size=2.0 if dot.labelled else 1.0)
        if dot.wrong:
            inner += f'<circle class="wrong" cx="{_n(x)}" cy="{_n(y)}" r="6.2"/>'
        parts.append(f'<g class="series on {kind} {colour(dot.group)}">{inner}</g>')
    return frame(title, description, side, "".join(parts), width=side)


def _dash(look: int) -> str:
    dash = DASHES[look // N_COLOURS % len(DASHES)]
    return f' stroke-dasharray="{dash}"' if dash else ""


def _n(value: float) -> str:
    """A coordinate with one decimal, short."""
    return f"{value:.1f}".rstrip("0").rstrip(".")
