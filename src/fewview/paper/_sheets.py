"""A sheet: a table with where it comes from, written as text, Markdown, CSV and LaTeX.

Every form names what it reproduces, the protocol, the versions and the command.
"""

from __future__ import annotations

import csv
import io
import json
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from fewview._version import __version__
from fewview.ground._rows import Row, plain_table, render, tex
from fewview.ground._whole_files import replacing


@dataclass(frozen=True, kw_only=True)
class Sheet:
    """One table of a reproduction.

    Attributes:
        name: of the files.
        title: what it reproduces, with label and printed number.
        columns: keys of the rows, in order.
        rows: values; numbers are written with two decimals, missing rates as they are.
        protocol: how the numbers were computed.
        versions: of what they depend on.
        command: what was typed.
        notes: anything that a reader has to know.
        summary: sentences below the table.
    """

    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    protocol: str
    versions: str
    command: str
    notes: tuple[str, ...] = ()
    summary: tuple[str, ...] = ()

    def head(self) -> list[str]:
        """Lines above the table."""
        return [
            self.title,
            f"protocol: {self.protocol}",
            f"versions: {self.versions}",
            f"command: {self.command}",
            *(f"note: {note}" for note in self.notes),
        ]

    def text_rows(self) -> list[Row]:
        """Rows with every value as text."""
        return [{name: entry(row.get(name), name) for name in self.columns} for row in self.rows]

    def text(self) -> str:
        """Plain text; no line is wrapped or cut."""
        lines = plain_table(self._aligned(), self.columns)
        return "\n".join([*self.head(), "", lines, "", *self.summary]).rstrip() + "\n"

    def _aligned(self) -> list[Row]:
        """Numbers as text of equal width, so that columns of numbers end at the same place."""
        rows = self.text_rows()
        for name in self.columns:
            if any(isinstance(row.get(name), (int, float)) for row in self.rows):
                width = max(len(row[name]) for row in rows)
                for row in rows:
                    row[name] = row[name].rjust(width)
        return rows

    def markdown(self) -> str:
        """A Markdown page."""
        title, *rest = self.head()
        lines = [f"- {line}" for line in rest]
        table = render(self.text_rows(), self.columns, "markdown")
        below = [part for line in self.summary for part in ("", line)]
        return "\n".join([f"# {title}", "", *lines, "", table, *below]) + "\n"

    def csv(self) -> str:
        """A CSV file without comment lines: where it comes from stands in the last columns."""
        buffer = io.StringIO()
        writer = csv.writer(buffer, lineterminator="\n")
        writer.writerow([*self.columns, "reproduces", "protocol", "versions", "command"])
        origin = [self.title, self.protocol, self.versions, self.command]
        for row in self.text_rows():
            writer.writerow([*(row[name] for name in self.columns), *origin])
        return buffer.getvalue()

    def latex(self) -> str:
        """A LaTeX table that may run over pages (package `longtable`)."""
        body = render(self.text_rows(), self.columns, "latex").splitlines()
        header, lines = body[2], body[4:-2]
        kinds = "".join(
            "r" if any(isinstance(row.get(n), (int, float)) for row in self.rows) else "l"
            for n in self.columns
        )
        comments = [f"% {line}" for line in self.head()]
        caption = tex(f"{self.title}. {self.protocol}.")
        return "\n".join(
            [*comments, r"% needs \usepackage{longtable}", rf"\begin{{longtable}}{{{kinds}}}",
             rf"\caption{{{caption}}}\\", r"\hline", header, r"\hline", r"\endhead", *lines,
             r"\hline", r"\end{longtable}"]
        ) + "\n"  # fmt: skip

    def write(self, folder: str | PathLike[str]) -> list[Path]:
        """Write Markdown, CSV and LaTeX into a folder, each whole or not at all."""
        out = []
        for ending, text in (("md", self.markdown()), ("csv", self.csv()), ("tex", self.latex())):
            path = Path(folder) / f"{self.name}.{ending}"
            path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(path) as temporary:
                temporary.write_text(text, encoding="utf-8")
            out.append(path)
        return out


def entry(value: Any, column: str = "") -> str:
    """Write a value: two decimals, a sign for differences, missing rates as the paper does.

    Example:
        >>> entry(85.698), entry(-3.4, "difference"), entry(0.1, "eta"), entry(None), entry(True)
        ('85.70', '-3.40', '0.1', '-', 'yes')
    """
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        if column == "eta" or (column == "value" and 0 < abs(value) < 0.005):
            return f"{value:.3g}"
        return f"{value:+.2f}" if column.startswith("difference") else f"{value:.2f}"
    return str(value)


def versions_line(stored: Sequence[str] = ()) -> str:
    """Versions of fewview, Python, numpy and torch, as stored with results, or of this process.

    Args:
        stored: JSON texts as `runner.versions` writes them.

    Example:
        >>> versions_line(['{"fewview": "1", "torch": "2"}', '{"fewview": "1", "torch": "3"}'])
        'fewview 1, torch 2 and 3'
    """
    known: dict[str, list[str]] = {}
    for text in dict.fromkeys(stored):
        for name, value in json.loads(text).items():
            if name != "threads" and value not in known.setdefault(name, []):
                known[name].append(str(value))
    if not known:
        return f"fewview {__version__}, python {platform.python_version()}"
    order = ("fewview", "python", "numpy", "scipy", "sklearn", "torch")
    return ", ".join(
        f"{name} {' and '.join(sorted(known[name]))}" for name in order if name in known
    )
