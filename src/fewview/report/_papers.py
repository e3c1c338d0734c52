"""What goes into a paper: tables in LaTeX, and figures as wide as one or two columns.

Type is 7 to 9 points whatever the width, and lines keep the looks that methods have everywhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from fewview.drawing._charts import (
    COLUMNS,
    Series,
    accuracy_chart,
    accuracy_series,
    for_print,
    rank_diagram,
    save_figure,
)
from fewview.drawing._looks import looks
from fewview.ground._rows import booktabs, tex
from fewview.ground._whole_files import made_folder, replacing
from fewview.report._contents import Contents, costs
from fewview.report._sections import difference_chart, time_chart
from fewview.results._cells import Result
from fewview.results._comparing import Panel, panels, rank_panels, winner

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RULE = "bold: highest mean of the column; underlined: not told apart from it (Wilcoxon, Holm)"


def latex_tables(results: Iterable[Result]) -> str:
    """One LaTeX table per data set and kind of task."""
    return "\n\n".join(map(latex_table, panels(results)))


def latex_table(panel: Panel) -> str:
    """Methods down, missing rates across; accuracy in percent with its standard error."""
    leaders = panel.leaders()

    def entry(name: str, eta: float) -> str:
        row = panel.row(name, eta)
        if row is None:
            return "--"
        best, tied = leaders.get(eta, ("", set()))
        text = f"{row['accuracy']:.1f}"
        text = rf"\textbf{{{text}}}" if name == best else text
        text = rf"\underline{{{text}}}" if name in tied else text
        return text + rf" {{\scriptsize $\pm$ {row['standard_error']:.1f}}}"

    lines = [[tex(name), *(entry(name, eta) for eta in panel.etas)] for name in panel.methods]
    head = ["missing rate", *(f"{eta:.3g}" for eta in panel.etas)]
    comment = (
        f"% {panel.title}: {panel.task}; accuracy (%) and standard error over episodes; {RULE}"
    )
    return f"{comment}\n{booktabs(head, lines, 'l' + 'r' * len(panel.etas))}"


def write_for_papers(contents: Contents, folder: str | PathLike[str]) -> list[Path]:
    """Write every figure of a page as PDF and SVG, one and two columns wide, and its tables."""
    place = made_folder(folder)
    out = []
    for width, inches in COLUMNS.items():
        for name, figure, legend in _figures(contents):
            for ending in ("pdf", "svg"):
                path = place / f"{name}-{width}.{ending}"
                fitted = for_print(figure, inches, legend) if ending == "pdf" else figure
                out += save_figure(fitted, path, cut=False)
    for panel in contents.panels:
        path = place / f"{_slug(panel.title)}.tex"
        with replacing(path) as temporary:
            temporary.write_text(latex_table(panel) + "\n", encoding="utf-8")
        out.append(path)
    return out


def _figures(contents: Contents) -> Iterator[tuple[str, Figure, list[Series]]]:
    """Name, figure and what its legend names, drawn anew every time."""
    known = looks(contents.methods)
    for panel in contents.panels:
        name, order = _slug(panel.title), panel.methods
        if len(panel.etas) > 1:
            rows = sorted(panel.rows, key=lambda row: order.index(row["method"]))
            series, *_ = accuracy_series(rows, known, order)
            figure = accuracy_chart(rows, known, order, band=order[0])
            yield f"{name}-accuracy", figure, list(series)
        found = winner(panel)
        if found is not None and found.pairs:
            yield f"{name}-differences", difference_chart(found, known)[0], []
        figure, series = time_chart(costs(panel), known)
        yield f"{name}-time", figure, series
    for ranked in rank_panels(contents.panels):
        figure = rank_diagram(ranked.ranking, ranked.unit, known)
        yield f"{_slug(ranked.title)}-ranks", figure, []


def _slug(title: str) -> str:
    return re.sub("[^A-Za-z0-9]+", "-", title).strip("-") or "data"
