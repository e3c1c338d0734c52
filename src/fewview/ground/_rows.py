"""Rows of plain values as text: aligned columns, CSV, JSON, Parquet, LaTeX, Markdown.

Results, predictions and sheets of the paper are all written by this one file.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from os import PathLike
from typing import Any

from fewview.errors import FewviewError
from fewview.ground._whole_files import replacing

Row = dict[str, Any]
Columns = dict[str, list[Any]]
# How texts begin that spreadsheets run.
FORMULA = ("=", "+", "-", "@", "\t", "\r")
FORMATS = ("table", "csv", "json", "parquet", "latex", "markdown")
_LATEX = {
    "\\": r"\textbackslash{}", "_": r"\_", "%": r"\%", "&": r"\&", "#": r"\#", "$": r"\$",
    "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
}  # fmt: skip


def plain_table(rows: Sequence[Row], columns: Sequence[str]) -> str:
    """Write rows as aligned text, for logs and machines without rich."""
    lines = [list(columns), *_texts(rows, columns)]
    aligned = []
    for column, texts in zip(columns, zip(*lines, strict=True), strict=True):
        width, right = max(map(len, texts)), _numeric(rows, column, truths=False)
        aligned.append([text.rjust(width) if right else text.ljust(width) for text in texts])
    return "\n".join("  ".join(line).rstrip() for line in zip(*aligned, strict=True))


def _texts(rows: Sequence[Row], columns: Sequence[str]) -> list[list[str]]:
    return [[cell_text(row.get(column)) for column in columns] for row in rows]


def _numeric(rows: Sequence[Row], column: str, truths: bool) -> bool:
    """Whether a column holds numbers and None alone; `truths` are numbers too where so said."""
    values = [row.get(column) for row in rows if truths or not isinstance(row.get(column), bool)]
    return len(values) == len(rows) and all(
        v is None or isinstance(v, (int, float)) for v in values
    )


def cell_text(value: Any) -> str:
    """Write one value for people: two decimals, nothing for None."""
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
    if format == "markdown":
        lines = [list(columns), ["---"] * len(columns), *_texts(rows, columns)]
        return "\n".join(
            "| " + " | ".join(text.replace("|", "\\|") for text in line) + " |" for line in lines
        )
    if format == "latex":
        kinds = "".join("r" if _numeric(rows, column, truths=True) else "l" for column in columns)
        lines = [[tex(text) for text in line] for line in _texts(rows, columns)]
        return booktabs([tex(column) for column in columns], lines, kinds)
    if format == "parquet":
        raise FewviewError("parquet is not text; give the name of a file with --output")
    raise FewviewError(f"--format {format}: use one of {', '.join(FORMATS)}")


def booktabs(header: Sequence[str], lines: Sequence[Sequence[str]], kinds: str) -> str:
    """A LaTeX table of entries that are LaTeX already; `kinds` aligns its columns.

    Example:
        >>> print(booktabs(["method", "0"], [["proto", "84.2"]], "lr"))
        % needs \\usepackage{booktabs}
        \\begin{tabular}{lr}
        \\toprule
        method & 0 \\\\
        \\midrule
        proto & 84.2 \\\\
        \\bottomrule
        \\end{tabular}
    """
    head, *body = (" & ".join(line) + r" \\" for line in [header, *lines])
    begin = [r"% needs \usepackage{booktabs}", rf"\begin{{tabular}}{{{kinds}}}", r"\toprule"]
    return "\n".join([*begin, head, r"\midrule", *body, r"\bottomrule", r"\end{tabular}"])


def save(
    rows: Sequence[Row], columns: Sequence[str], format: str, path: str | PathLike[str]
) -> None:
    """Write rows to a file in one of `FORMATS`, whole or not at all."""
    if format == "parquet":
        save_columns({name: [_flat(row.get(name)) for row in rows] for name in columns}, path)
        return
    text = render(rows, columns, format)
    with replacing(path) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")


def save_columns(columns: Mapping[str, Sequence[Any]], path: str | PathLike[str]) -> None:
    """Write columns of plain values to a .csv, .json or .parquet file, whole or not at all."""
    suffix = str(path).rpartition(".")[2].lower()
    if suffix == "parquet":
        try:
            import pyarrow
            from pyarrow import parquet
        except ImportError:
            raise FewviewError(
                "parquet needs pyarrow: pip install 'fewview[frames]', or write a .csv file"
            ) from None
        table = pyarrow.table({name: _arrow_column(cells) for name, cells in columns.items()})
        with replacing(path) as temporary:
            parquet.write_table(table, temporary)
        return
    lines = zip(*columns.values(), strict=True)
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        if suffix == "json":
            rows = [dict(zip(columns, line, strict=True)) for line in lines]
            file.write(json.dumps(rows, indent=1, default=_json_cell) + "\n")
        else:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(columns)
            writer.writerows(lines)


def _arrow_column(cells: Sequence[Any]) -> Any:
    """A column of a parquet file; values that no kind of column holds together are text."""
    import pyarrow

    whole = {*map(type, cells)} <= {int, type(None)}
    for kind in (None, pyarrow.uint64()) if whole else (None,):
        with suppress(OverflowError, pyarrow.ArrowException):
            return pyarrow.array(cells, kind)
    return pyarrow.array([None if cell is None else str(cell) for cell in cells])


def _json_cell(value: Any) -> Any:
    """What JSON does not know: numbers of numpy, and dates."""
    return value.item() if hasattr(value, "item") else str(value)


def by_row(columns: Columns) -> list[Row]:
    """The same values as one dict per row."""
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def as_written(columns: Columns, form: str, safe: bool = False) -> Columns:
    """Predictions as a file of this form has them; `safe` ones are run by no spreadsheet."""
    out = dict(columns)
    if form == "csv":
        out["rejected"] = ["true" if gone else "false" for gone in columns["rejected"]]
    elif form == "parquet":
        # Numbers and the word for rejected ones do not go into one column of a parquet file.
        out["label"] = [str(label) for label in columns["label"]]
    if not safe or form != "csv":
        return out
    return {_no_formula(name): [*map(_no_formula, cells)] for name, cells in out.items()}


def _no_formula(value: Any) -> Any:
    """Text that a spreadsheet shows and does not run."""
    return f"'{value}" if isinstance(value, str) and value[:1] in FORMULA else value


def _flat(value: Any) -> Any:
    return "; ".join(map(str, value)) if isinstance(value, (list, tuple)) else value


def tex(text: str) -> str:
    """Escape what LaTeX would read as commands."""
    return "".join(_LATEX.get(sign, sign) for sign in text)
