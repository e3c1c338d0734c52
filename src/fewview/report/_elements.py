"""What a page is made of: sections with their words, figures and tables, before any markup.

Also the small words that several sections use: plurals, lists, levels of significance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from markupsafe import Markup

from fewview.drawing._charts import key
from fewview.drawing._looks import Look

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Entry(NamedTuple):
    """An entry of a table whose order is not that of its text, or that stands out."""

    text: str
    value: float | None = None
    strong: bool = False


TableRow = list[str | Entry]
Drawn = tuple[Markup, str]  # a drawing, and the words under or after it


@dataclass(frozen=True)
class Table:
    """A table of a page; the first entry of a row names the row."""

    caption: str  # what it shows, read first by a screen reader
    columns: Sequence[str]  # names; those of numbers begin with '#'
    rows: list[TableRow]
    id: str = ""  # for a table that is not in a part
    filters: tuple[int, ...] = ()  # columns that a choice narrows the rows down by

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
    findings: Sequence[str] = ()  # listed first
    code: Sequence[str] = ()  # commands
    signs: Sequence[Drawn] = ()  # markers and what they stand for
    legend: bool = False  # the switches of all methods stand here


def picture(figure: Figure, caption: str, *, title: str, description: str) -> Drawn:
    """A figure as it stands in a section, with the words under it and those read aloud."""
    from fewview.drawing._svg import svg_element

    return svg_element(figure, title, description), caption


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
