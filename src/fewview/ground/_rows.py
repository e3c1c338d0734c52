"""Rows of plain values as text: aligned columns, CSV, JSON, Parquet, LaTeX, Markdown.

Results, predictions and sheets of the paper are all written by this one file.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from os import PathLike
from typing import Any

from fewview.ground._errors import FewviewError
from fewview.ground._whole_files import replacing

Row = dict[str, Any]
FORMATS = ("table", "csv", "json", "parquet", "latex", "markdown")
_LATEX = {
    "\\": r"\textbackslash{}", "_": r"\_", "%": r"\%", "&": r"\&", "#": r"\#", "$": r"\$",
    "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
}  # fmt: skip


def plain_table(rows: Sequence[Row], columns: Sequence[str]) -> str:
    """Write rows as aligned text, for logs and machines without rich.

    Example:
        >>> print(plain_table([{"method": "proto", "accuracy": 83.456}], ["method", "accuracy"]))
        method  accuracy
        proto      83.46
    """
    texts = [[cell_text(row.get(column)) for column in columns] for row in rows]
    numeric = [all(_is_number(row.get(column)) for row in rows) for column in columns]
    widths = [
        max(len(column), *(len(line[k]) for line in texts)) if texts else len(column)
        for k, column in enumerate(columns)
    ]
    lines = [list(columns), *texts]
    return "\n".join(
        "  ".join(
            text.rjust(width) if right else text.ljust(width)
            for text, width, right in zip(line, widths, numeric, strict=True)
        ).rstrip()
        for line in lines
    )


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, (int, float)) and not isinstance(value, bool))


def cell_text(value: Any) -> str:
    """Write one value for people: two decimals, nothing for None.

    Example:
        >>> cell_text(1.23456), cell_text(None), cell_text(3), cell_text(0.00012)
        ('1.23', '', '3', '0.00012')
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.2g}" if 0 < abs(value) < 0.005 else f"{value:.2f}"
    if isinstance(value, (list, tuple)):
        return "; ".join(map(str, value))
    return str(value)


def render(rows: Sequence[Row], columns: Sequence[str], format: str = "table") -> str:
    """Write rows as text.

    Args:
        rows: dicts.
        columns: which keys, in which order. JSON has all keys.
        format: `"table"`, `"csv"`, `"json"`, `"latex"` or `"markdown"`; numbers are rounded for
            people in the table, LaTeX and Markdown, and complete in the others.

    Example:
        >>> print(render([{"method": "proto", "accuracy": 84.15}], ["method", "accuracy"], "csv"))
        method,accuracy
        proto,84.15
    """
    if format == "table":
        return plain_table(rows, columns)
    if format == "json":
        return json.dumps(list(rows), indent=1)
    if format == "csv":
        buffer = io.StringIO()
        writer = csv.writer(buffer, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([_flat(row.get(column)) for column in columns] for row in rows)
        return buffer.getvalue().rstrip("\n")
    texts = [[cell_text(row.get(column)) for column in columns] for row in rows]
    if format == "markdown":
        lines = [list(columns), ["---"] * len(columns), *texts]
        return "\n".join(
            "| " + " | ".join(text.replace("|", "\\|") for text in line) + " |" for line in lines
        )
    if format == "latex":
        body = [" & ".join(tex(text) for text in line) + r" \\" for line in [list(columns), *texts]]
        kinds = "".join("r" if _numeric(rows, column) else "l" for column in columns)
        return "\n".join(
            [rf"\begin{{tabular}}{{{kinds}}}", r"\hline", body[0], r"\hline", *body[1:], r"\hline",
             r"\end{tabular}"]
        )  # fmt: skip
    if format == "parquet":
        raise FewviewError("parquet is not text; give the name of a file with --output")
    raise FewviewError(f"--format {format}: use one of {', '.join(FORMATS)}")


def save(
    rows: Sequence[Row], columns: Sequence[str], format: str, path: str | PathLike[str]
) -> None:
    """Write rows to a file, whole or not at all.

    Args:
        rows: dicts.
        columns: which keys; JSON has all of them.
        format: one of `FORMATS`.
        path: the file.
    """
    if format == "parquet":
        _save_parquet(rows, columns, path)
        return
    text = render(rows, columns, format)
    with replacing(path) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")


def _save_parquet(rows: Sequence[Row], columns: Sequence[str], path: str | PathLike[str]) -> None:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise FewviewError(
            "parquet needs pyarrow: pip install 'fewview[frames]', or choose --format csv"
        ) from None
    table = pyarrow.table({name: [_flat(row.get(name)) for row in rows] for name in columns})
    with replacing(path) as temporary:
        parquet.write_table(table, temporary)


def _flat(value: Any) -> Any:
    return "; ".join(map(str, value)) if isinstance(value, (list, tuple)) else value


def tex(text: str) -> str:
    """Escape what LaTeX would read as commands."""
    return "".join(_LATEX.get(sign, sign) for sign in text)


def _numeric(rows: Sequence[Row], column: str) -> bool:
    values = [row.get(column) for row in rows]
    return all(value is None or isinstance(value, (int, float)) for value in values)
