"""Cells of a table as numbers and as words: which is which is decided column by column.

A column is numbers unless a cell of it is a word or a date; then all its cells are texts. What the
texts mean (categories, truth values, dates, sentences) is decided in the next room.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import date
from typing import Any

import numpy as np
from numpy.typing import NDArray

MISSING = frozenset(
    {"", "NA", "N/A", "n/a", "na", "<NA>", "#N/A", "NULL", "null", "None", "NaN", "nan", "?"}
)
Texts = Sequence[str | None]


def split_cells(cells: Iterable[Any]) -> tuple[NDArray[np.float64], Texts | None]:
    """Read the cells of one column.

    Returns:
        numbers: float64, NaN where a cell is empty or no number.
        texts: all cells as texts, None where empty; None where all cells are numbers or empty.

    A cell that is neither a number nor a text, a date or empty is a TypeError.
    """
    values = list(cells)
    numbers = np.full(len(values), math.nan)
    worded = False
    for row, cell in enumerate(values):
        if isinstance(cell, date):  # and a time, which is one of these
            cell = values[row] = None if cell != cell else cell.isoformat()
        if isinstance(cell, str):
            text = values[row] = cell.strip()
            if text in MISSING:
                values[row] = None
                continue
            try:
                numbers[row] = as_number(text)
            except ValueError:
                worded = True
        elif isinstance(cell, bytes) or getattr(cell, "ndim", None):
            raise TypeError  # numpy 1 would take an array of one number for that number
        elif cell is None or type(cell).__name__ in ("NAType", "NaTType"):
            values[row] = None
        else:
            numbers[row] = float(cell)
    if not worded:
        return numbers, None
    return numbers, [_text(value) for value in values]


def as_number(text: str) -> float:
    """Read a number as tables have it, perhaps with a typographic minus; else a ValueError.

    Example:
        >>> as_number("\N{MINUS SIGN}1.5")
        -1.5
    """
    if "_" in text:  # float() takes 1_000 for a number; a table does not
        raise ValueError
    return float(text.replace("\N{MINUS SIGN}", "-"))


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return None if math.isnan(value) else number_text(float(value))


def number_text(value: float) -> str:
    """Write a number as a table would: without a point where it is whole."""
    return str(int(value)) if value.is_integer() else repr(value)
