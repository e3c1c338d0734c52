"""Tables of results: a pivot for reading, and exports of rows as text in the usual formats.

Rows are dicts as `evaluate/summary.py` makes them; columns are chosen by name.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any

from fewview.ground._errors import FewviewError
from fewview.ground._whole_files import replacing
from fewview.results._summaries import Row, cell_text, plain_table

FORMATS = ("table", "csv", "json", "parquet", "latex", "markdown")
_LATEX = {
    "\\": r"\textbackslash{}", "_": r"\_", "%": r"\%", "&": r"\&", "#": r"\#", "$": r"\$",
    "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
}  # fmt: skip


@dataclass(frozen=True)
class Pivot:
    """Accuracy of methods over missing rates on one data set.

    Attributes:
        title: data set and task.
        header: column names.
        lines: one per method, best mean accuracy first.
    """

    title: str
    header: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]


def pivot(rows: Sequence[Row], line_break: str = " ") -> list[Pivot]:
    """Arrange rows as one table per data set: methods down, missing rates across.

    An entry reads `84.2 ±0.6 (76-94)`: accuracy in percent, standard error over episodes, lowest
    and highest class split.

    Args:
        rows: of `evaluate.bench`.
        line_break: what to put before the bracket; a line break makes narrow tables.

    Example:
        >>> row = {"dataset": "digits", "method": "proto", "way": 3, "shot": 1, "eta": 0.0,
        ...        "accuracy": 84.15, "standard_error": 0.59, "split_low": 75.6,
        ...        "split_high": 93.6, "n_episodes": 400, "n_splits": 10, "seconds": 1.0}
        >>> pivot([row])[0].lines
        (('proto', '84.2 ±0.6 (76-94)', '1.0'),)
    """
    out = []
    for dataset in dict.fromkeys(row["dataset"] for row in rows):
        here = [row for row in rows if row["dataset"] == dataset]
        etas = sorted({row["eta"] for row in here})
        methods: dict[str, dict[float, Row]] = {}
        for row in here:
            methods.setdefault(row["method"], {})[row["eta"]] = row

        lines = []
        for name in sorted(methods, key=lambda name: _order(methods[name], len(etas))):
            entries = [_entry(methods[name].get(eta), line_break) for eta in etas]
            seconds = sum(row["seconds"] for row in methods[name].values())
            lines.append((name, *entries, f"{seconds:.1f}"))
        first = here[0]
        title = (
            f"{dataset}: {first['way']}-way {first['shot']}-shot, {first['n_splits']} class "
            f"split(s), {first['n_episodes']} episodes per entry"
        )
        header = ("method", *(f"eta {eta:.3g}" for eta in etas), "seconds")
        out.append(Pivot(title, header, tuple(lines)))
    return out


def _order(found: dict[float, Row], count: int) -> tuple[bool, float]:
    """Best mean accuracy first; methods that lack a missing rate cannot be compared and go last."""
    return len(found) < count, -sum(float(row["accuracy"]) for row in found.values()) / len(found)


def _entry(row: Row | None, line_break: str) -> str:
    if row is None:
        return "-"
    text = f"{row['accuracy']:.1f} ±{row['standard_error']:.1f}"
    if row["split_low"] is None:
        return text
    return f"{text}{line_break}({row['split_low']:.0f}-{row['split_high']:.0f})"


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
        body = [
            " & ".join(_tex(text) for text in line) + r" \\" for line in [list(columns), *texts]
        ]
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


def _tex(text: str) -> str:
    return "".join(_LATEX.get(sign, sign) for sign in text)


def _numeric(rows: Sequence[Row], column: str) -> bool:
    values = [row.get(column) for row in rows]
    return all(value is None or isinstance(value, (int, float)) for value in values)
