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
from fewview.report._elements import capital
from fewview.report._sections import difference_chart, time_chart
from fewview.results._cells import Result
from fewview.results._comparing import Panel, panels, rank_panels, winner

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RULE = (
    "bold: highest mean of the column; underlined: not told apart from it over class splits "
    "(paired test, Holm's correction)"
)


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
    head = ["missing rate", *(rf"\multicolumn{{1}}{{c}}{{{eta:.3g}}}" for eta in panel.etas)]
    comment = (
        f"% {panel.title}: {panel.task}; accuracy (%) and standard error over episodes; {RULE}"
    )
    return f"{comment}\n{booktabs(head, lines, 'l' + 'r' * len(panel.etas))}"


def write_for_papers(contents: Contents, folder: str | PathLike[str]) -> list[Path]:
    """Write every figure of a page as PDF and SVG, one and two columns wide, and its tables.

    `example.tex` shows how they stand in a paper of two columns: `pdflatex example.tex`.
    """
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
        out.append(_written(path, latex_table(panel)))
    return [*out, _written(place / "example.tex", _example(contents.panels[0], out))]


def _written(path: Path, text: str) -> Path:
    with replacing(path) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")
    return path


def _example(panel: Panel, written: list[Path]) -> str:
    """A page in two columns with the first two figures and the first table."""
    drawn = [path.name for path in written if path.name.endswith("-single.pdf")][:2]
    told = {
        "accuracy": r"accuracy against the missing rate; the band is the 95\,\% interval over "
        "class splits of the best method, the dashed line chance.",
        "differences": "paired differences to the best method with the intervals that decide.",
        "time": "accuracy against time; named methods are not beaten in both.",
    }
    words = (
        rf"{tex(panel.title)}: {tex(panel.task)}. Accuracy (\%) $\pm$ standard error over "
        rf"episodes. {tex(capital(RULE))}."
    )
    lines = [
        r"% pdflatex example.tex",
        r"\documentclass[twocolumn,10pt]{article}",
        r"\usepackage[T1]{fontenc}",
        r"\usepackage{mathptmx,booktabs,graphicx}",
        r"\usepackage[letterpaper,textwidth=7.16in,textheight=9.4in,columnsep=0.16in]{geometry}",
        r"\setlength{\abovecaptionskip}{5pt}\setlength{\belowcaptionskip}{5pt}",
        r"\begin{document}",
        r"% Across both columns of a first page; on later ones \begin{table*} does it.",
        r"\makeatletter",
        r"\twocolumn[{\def\@captype{table}\centering\small",
        rf"\caption{{{words}}}",
        rf"\input{{{_slug(panel.title)}.tex}}\bigskip\par}}]",
        r"\makeatother",
    ]
    for number, name in enumerate(drawn):
        lines += [
            *([r"\newpage"] if number else []),
            r"\begin{figure}[t]\centering",
            rf"\includegraphics{{{name}}}",  # not resized: letters stay as large as drawn
            rf"\caption{{{tex(panel.title)}: {told[name.rsplit('-', 2)[1]]}}}",
            r"\end{figure}",
            "A figure stands at its own size, one column wide, so that its letters stay as large",
            "as they were drawn.",
        ]
    lines.append(r"\end{document}")
    return "\n".join(lines)


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
