"""Where an error is: the lines of a table around the cell that a message is about.

Messages name the file, the line and often the column; the table is shown with that cell marked.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from html import escape
from pathlib import Path

from fewview.ground._markup import markup_table

AROUND = 2  # lines before and after
MOST_COLUMNS = 7
MOST_LETTERS = 30


def excerpt(message: str, files: Mapping[str, Path]) -> str:
    """The lines around the cell that a message is about, as HTML; empty where it names none."""
    file = _file(message, files)
    line = re.search(r"\blines? (\d+)", message)
    if file is None or line is None or file.suffix.lower() != ".csv":
        return ""
    wanted = int(line[1])
    header: list[str] = []
    found: list[tuple[int, list[str]]] = []
    with file.open(encoding="utf-8-sig", errors="replace", newline="") as stream:
        reader = csv.reader(stream)
        try:
            for cells in reader:
                if not header:
                    header = cells
                elif abs(reader.line_num - wanted) <= AROUND:
                    found.append((reader.line_num, cells))
                if reader.line_num > wanted + AROUND:
                    break
        except csv.Error:
            pass  # what could be read is shown
    named = re.search(r"column '([^']*)'", message)
    place = header.index(named[1]) if named and named[1] in header else None
    called = re.search(r"\bid '?([^' ),;]+)", message)
    if place is None and called:
        cells = dict(found).get(wanted, [])
        place = cells.index(called[1]) if called[1] in cells else None
    return _table(file.name, header, found, wanted, place)


def _file(message: str, files: Mapping[str, Path]) -> Path | None:
    """The file that a message names, or that holds the view it names."""
    named = [name for name in files if name in message]
    if named:
        return files[max(named, key=len)]
    views = {path.stem: path for path in files.values()}
    view = re.search(r"view '([^']*)'", message)
    return views.get(view[1]) if view else None


def _table(
    name: str, header: list[str], lines: list[tuple[int, list[str]]], wanted: int, place: int | None
) -> str:
    width = max([len(header), *(len(cells) for _, cells in lines)])
    # The first column, which names the sample, and those around the cell.
    first = max(1, min((place or 0) - MOST_COLUMNS // 2, width - MOST_COLUMNS))
    shown = sorted(
        {0, *range(first, min(first + MOST_COLUMNS, width))} | ({place} if place else set())
    )
    rows = []
    for number, cells in lines:
        row = [str(number)]
        for k in shown:
            text = cells[k] if k < len(cells) else ""
            text = escape(text if len(text) <= MOST_LETTERS else text[: MOST_LETTERS - 1] + "…")
            here = number == wanted and (k == place if place is not None else True)
            text = text or '<span class="aloud">empty</span>'
            row.append(f"<mark>{text}</mark>" if here else text)
        rows.append(row)
    heads = [header[k] if k < len(header) else "" for k in shown]
    return markup_table(f"{name}, around line {wanted}", ["line", *heads], rows, scroll=True)
