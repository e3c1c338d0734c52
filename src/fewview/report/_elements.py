"""What a page is made of: sections with their words, figures and tables, before any markup.

Also the small words that several sections use: plurals, lists, levels of significance.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from markupsafe import Markup

from fewview.drawing._charts import Point, Series, key
from fewview.drawing._looks import Look, look_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Entry(NamedTuple):
    """An entry of a table whose order is not that of its text, or that stands out."""

    text: str
    value: float | None = None
    strong: bool = False
    tied: bool = False  # not told apart from the strong one


TableRow = list[str | Entry]


@dataclass(frozen=True)
class Drawn:
    """A figure of a page: the drawing, the words under it, and the numbers it can be saved as."""

    drawing: Markup
    caption: str
    id: str = ""
    points: str = ""  # `points_of`
    keys: tuple[tuple[str, str], ...] = ()  # switch and name of every method in it
    switch: str = ""  # of the one method that it is about, with which it comes and goes
    title: str = ""  # above the drawing, where there are several


@dataclass(frozen=True)
class Table:
    """A table of a page; the first entry of a row names the row."""

    caption: str  # what it shows, read first by a screen reader
    columns: Sequence[str]  # names; those of numbers begin with '#'
    rows: list[TableRow]
    id: str = ""  # for a table that is not in a part
    filters: tuple[int, ...] = ()  # columns that a choice narrows the rows down by
    methods: Sequence[str] = ()  # whose rows these are: they come and go with their switches

    @cached_property
    def switches(self) -> list[str]:
        """What the rows are switched by."""
        return [look_of(name).key for name in self.methods]

    @cached_property
    def heads(self) -> list[tuple[str, bool]]:
        """Names of columns, and whether they hold numbers."""
        return [(name.lstrip("#"), name.startswith("#")) for name in self.columns]

    def choices(self, column: int) -> list[str]:
        """Distinct entries of a column, in the order of the rows."""
        entries = (row[column] for row in self.rows)
        return list(dict.fromkeys(e.text if isinstance(e, Entry) else e for e in entries))


@dataclass(frozen=True)
class Section:
    """A section of the page, or a part of one: heading, words, figures, tables."""

    title: str
    words: Sequence[str] = ()  # paragraphs
    figures: Sequence[Drawn] = ()
    tables: Sequence[Table] = ()
    parts: Sequence[Section] = ()  # each with one table at most
    id: str = ""  # for a section that is not a part of another one
    cards: Sequence[Card] = ()  # answers, first
    code: Sequence[str] = ()  # commands
    signs: Sequence[tuple[Markup, str]] = ()  # markers and what they stand for
    questions: Sequence[Question] = ()  # queries that can be opened


@dataclass(frozen=True)
class Answer:
    """What the card says under some conditions."""

    when: str  # keys of the switches that are on, in their order
    said: str
    groups: Sequence[tuple[str, Sequence[tuple[str, str, str]]]] = ()  # heading, (key, name, words)
    note: str = ""
    code: str = ""  # the command that would give an answer


@dataclass(frozen=True)
class Card:
    """The answer about one data set, with switches that change it."""

    title: str
    switches: Sequence[tuple[str, str]]  # key, words
    answers: Sequence[Answer]  # the first one is shown at first
    after: tuple[str, str] | None = None  # where to look next, and in which words


@dataclass(frozen=True)
class Question:
    """One query that was got wrong, and everything that says why."""

    id: str
    sample: str
    sure: str  # of the wrong answer
    has: Sequence[bool]  # views
    right: Sequence[str]  # methods that got it right
    words: Sequence[str]
    views: Sequence[dict[str, Any]]  # name, pictures (label, digits, per line) or None, evidence
    classes: Sequence[str]  # what was said, what is true, the others
    probabilities: Sequence[tuple[str, str, Sequence[str]]]  # key, method, of every class
    supports: Sequence[Sequence[str]]  # sample, class, distance, views shared


def picture(
    figure: Figure,
    caption: str,
    *,
    title: str,
    description: str,
    series: Sequence[Series] = (),
    axes: tuple[str, str] = ("x", "y"),
    switch: str = "",
    head: str = "",
    legend: bool = True,
) -> Drawn:
    """A figure as it stands in a section, with the words under it and those read aloud."""
    from fewview.drawing._svg import svg_element

    return Drawn(
        svg_element(figure, title, description),
        caption,
        name_of(title),
        points_of(series, axes),
        tuple((one.look.key, one.name) for one in series) if legend and not switch else (),
        switch,
        head,
    )


def name_of(title: str) -> str:
    """The name that a figure has in the page's address."""
    words = re.sub("[^a-z0-9]+", "-", title.lower()).strip("-")[:60]
    return f"{words}-{zlib.crc32(title.encode()):08x}"


def points_of(series: Sequence[Series], axes: tuple[str, str]) -> Markup:
    """The numbers of a figure as an attribute in single quotes, for saving them as CSV and LaTeX.

    JSON: names of the axes, then of every series its name and [x, y, low, high] of its points.
    """
    rows = [
        [one.name, *([_short(v) for v in _told(p)] for p in one.points)]
        for one in series
        if one.points
    ]
    return as_attribute([list(axes), *rows]) if rows else Markup("")


def as_attribute(value: Any) -> Markup:
    """JSON that can stand in an attribute in single quotes; quotes inside stay one letter long."""
    text = json.dumps(value, separators=(",", ":"))
    for sign, name in (("&", "&amp;"), ("'", "&#39;"), ("<", "&lt;"), (">", "&gt;")):
        text = text.replace(sign, name)
    return Markup(text)


def _told(p: Point) -> Sequence[float | None]:
    return (p.x, p.y) if p.low is None else (p.x, p.y, p.low, p.high)


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.5g}")


def sign(look: Look, joined: bool = True) -> Markup:
    """The line or the marker that stands before a name."""
    from fewview.drawing._svg import svg_element

    return svg_element(key(look, joined), kind="key" if joined else "swatch")


def listed(items: Sequence[str], limit: int = 8) -> str:
    """Items as in a sentence; of many only the first."""
    if len(items) > limit:
        return ", ".join(items[:limit]) + f" and {len(items) - limit} more"
    return " and ".join([", ".join(items[:-1]), items[-1]] if len(items) > 1 else items)


def plural(count: int, word: str) -> str:
    """A number of things."""
    return f"{count} {word}" + ("" if count == 1 else "s")


def capital(text: str) -> str:
    """A sentence begins with a capital."""
    return text[:1].upper() + text[1:]


def level(p: float) -> str:
    """A level of significance in a sentence."""
    return f"p {extreme}" if (extreme := extreme_level(p)) else f"p = {p:.2g}"


def extreme_level(p: float) -> str:
    """A level so near 0 or 1 that more digits would mean nothing, else empty."""
    return "< 0.001" if p < 0.001 else "> 0.99" if p > 0.99 else ""
