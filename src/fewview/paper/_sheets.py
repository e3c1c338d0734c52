"""A sheet: a table with where it comes from, written as text, Markdown, CSV and LaTeX.

Every form names what it reproduces, the protocol, the versions and the command.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from fewview.ground._rows import Row, booktabs, cell_text, plain_table, render, tex
from fewview.ground._whole_files import made_folder, replacing


@dataclass(frozen=True, kw_only=True)
class Sheet:
    """One table of a reproduction: `notes` stand above it, sentences of `summary` below."""

    name: str  # of the files
    title: str  # what it reproduces, with label and printed number
    columns: Sequence[str]
    rows: Sequence[Row]
    protocol: str  # how the numbers were computed
    versions: str
    command: str
    notes: Sequence[str] = ()
    summary: Sequence[str] = ()
    details: Sequence[Row] = ()  # written beside it, where they are more than can be read

    def head(self) -> list[str]:
        """Lines above the table."""
        return [
            self.title,
            f"protocol: {self.protocol}",
            f"versions: {self.versions}",
            f"command: {self.command}",
            *(f"note: {note}" for note in self.notes),
        ]

    def texts(self) -> list[Row]:
        """Rows as they are printed."""
        return [{name: entry(row.get(name), name) for name in self.columns} for row in self.rows]

    def numeric(self, column: str) -> bool:
        """Whether a column has numbers."""
        return any(isinstance(row.get(column), (int, float)) for row in self.rows)

    def text(self) -> str:
        """Plain text; no line is wrapped or cut, and numbers end at the same place."""
        rows = self.texts()
        for name in filter(self.numeric, self.columns):
            width = max(len(row[name]) for row in rows)
            for row in rows:
                row[name] = row[name].rjust(width)
        table = plain_table(rows, self.columns)
        return "\n".join([*self.head(), "", table, "", *self.summary]).rstrip() + "\n"

    def markdown(self) -> str:
        """A Markdown page."""
        title, *rest = self.head()
        lines = [f"- {line}" for line in rest]
        table = render(self.texts(), self.columns, "markdown")
        below = [part for line in self.summary for part in ("", line)]
        return "\n".join([f"# {title}", "", *lines, "", table, *below]) + "\n"

    def csv(self) -> str:
        """A CSV file without comment lines: where it comes from stands in the last columns."""
        origin = {
            "reproduces": self.title, "protocol": self.protocol, "versions": self.versions,
            "command": self.command,
        }  # fmt: skip
        rows = [row | origin for row in self.texts()]
        return render(rows, [*self.columns, *origin], "csv") + "\n"

    def latex(self) -> str:
        """A LaTeX table (package `booktabs`): pivoted over missing rates where it has them."""
        comments = [f"% {line}" for line in self.head()]
        table = render(self.texts(), self.columns, "latex")
        if {"method", "eta", "ours", "se", "paper"} <= set(self.columns):
            table = self._pivot()
        return "\n".join([*comments, table]) + "\n"

    def _pivot(self) -> str:
        """Methods down, rates across: ours with its error, the best bold, and the paper's."""
        places = [n for n in self.columns if n in ("dataset", "method") and self._differs(n)]
        etas = list(dict.fromkeys(row["eta"] for row in self.rows))
        rows = {(*(str(row.get(n)) for n in places), row["eta"]): row for row in self.rows}
        names = list(dict.fromkeys(key[:-1] for key in rows))

        def best(eta: Any, data: tuple[str, ...]) -> Any:
            here = [rows.get((*name, eta), {}).get("ours") for name in names if name[:-1] == data]
            return max((value for value in here if isinstance(value, float)), default=None)

        def shown(row: Row, whose: str, error: str, strong: bool) -> str:
            if not isinstance(row.get(whose), float):
                return "--"
            text = rf"\textbf{{{row[whose]:.2f}}}" if strong else f"{row[whose]:.2f}"
            spread = row.get(error)
            few = rf" {{\scriptsize $\pm$ {spread:.2f}}}" if isinstance(spread, float) else ""
            return text + few

        lines = []
        for name in names:
            found = [rows.get((*name, eta), {}) for eta in etas]
            tops = [best(eta, name[:-1]) for eta in etas]
            ours = [
                shown(row, "ours", "se", row.get("ours") == top)
                for row, top in zip(found, tops, strict=True)
            ]
            paper = [shown(row, "paper", "paper_se", strong=False) for row in found]
            lines.append([*map(tex, name), "ours", *ours])
            lines.append([*([""] * len(name)), "paper", *paper])
        head = [*places, "", *(entry(eta, "eta") for eta in etas)]
        return booktabs(list(map(tex, head)), lines, "l" * (len(places) + 1) + "r" * len(etas))

    def _differs(self, column: str) -> bool:
        return column == "method" or len({str(row.get(column)) for row in self.rows}) > 1

    def write(self, folder: str | PathLike[str]) -> list[Path]:
        """Write Markdown, CSV and LaTeX into a folder."""
        forms = {"md": self.markdown(), "csv": self.csv(), "tex": self.latex()}
        texts = {f"{self.name}.{end}": text for end, text in forms.items()}
        if self.details:
            texts[f"{self.name}_details.csv"] = csv_of(self.details)
        return write_texts(folder, texts)


def csv_of(rows: Sequence[Row]) -> str:
    """Rows as CSV, with all the columns that any of them has and six digits."""
    texts = [{k: f"{v:.6g}" if isinstance(v, float) else v for k, v in r.items()} for r in rows]
    return render(texts, list(dict.fromkeys(name for row in rows for name in row)), "csv") + "\n"


def write_texts(folder: str | PathLike[str], texts: Mapping[str, str]) -> list[Path]:
    """Write files (name -> text) into a folder, each whole or not at all."""
    place = made_folder(folder)
    for name, text in texts.items():
        with replacing(place / name) as temporary:
            temporary.write_text(text, encoding="utf-8")
    return [place / name for name in texts]


def entry(value: Any, column: str = "") -> str:
    """Write a value: two decimals, a sign for differences, missing rates as the paper does."""
    if isinstance(value, float):
        if column == "eta" or (column == "value" and 0 < abs(value) < 0.005):
            return f"{value:.3g}"
        return f"{value:+.2f}" if column.startswith("difference") else f"{value:.2f}"
    return "-" if value is None else cell_text(value)
