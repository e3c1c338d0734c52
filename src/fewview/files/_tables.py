"""One table: its keys and its numbers, from a `.csv`, `.parquet` or `.npy` file and back.

Parquet is a foreign binary format and is read in a process of its own (`foreign.py`).
"""

from __future__ import annotations

import csv
import importlib.util
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import fewview.files._guarded as foreign
from fewview.files._kinds import to_array, to_text
from fewview.files._limits import naming
from fewview.files._npz import read_npy
from fewview.ground._errors import FewviewError, shorten
from fewview.samples._data import FloatArray, _as_float
from fewview.samples._joins import DEFAULT_KEY

TABLES = (".csv", ".parquet", ".npy")
MISSING = frozenset(
    {"", "NA", "N/A", "n/a", "na", "<NA>", "#N/A", "NULL", "null", "None", "NaN", "nan"}
)


@dataclass(frozen=True)
class RawKeys:
    """Keys as a file has them; from csv they are text that is still to be understood."""

    where: str
    values: list[Any]
    text: bool
    lines: list[int] | None = None


@dataclass(frozen=True)
class RawTable:
    """One view as a file has it: keys (None for plain arrays), block [rows, width], columns."""

    keys: RawKeys | None
    block: FloatArray
    columns: tuple[str, ...] | None


def read_table(file: Path, known: dict[str, Any] | None, parquet: Any = None) -> RawTable:
    """Read the table of one view.

    Args:
        file: a .csv, .parquet or .npy file.
        known: what the folder's manifest says about the view.
        parquet: what `read_parquet_files` gave for this file.
    """
    with naming(file):
        if file.suffix.lower() == ".npy":
            with file.open("rb") as stream:
                array = read_npy(stream, file.stat().st_size)
            if array.ndim != 2:
                raise FewviewError(
                    f"has {array.ndim} dimension(s); it must be 2-D, samples by features"
                )
            if array.dtype.kind == "U":
                raise FewviewError("holds text; features must be numbers")
            columns = None if known is None else known["columns"]
            return RawTable(None, _as_float(array), None if columns is None else tuple(columns))
        if file.suffix.lower() == ".csv":
            dtype = None if known is None else known["dtype"]
            table = _read_csv_table(file, dtype)
        else:
            _refuse_error(parquet)
            keys = RawKeys(file.name, parquet["ids"], text=False)
            table = RawTable(keys, _as_float(parquet["block"]), tuple(parquet["columns"]))
        if not table.columns:
            raise FewviewError("has no columns besides 'id'; remove the file")
        if known is not None and known["columns"] is None:
            return RawTable(table.keys, table.block, None)
        return table


def read_columns(file: Path, other: str | None, parquet: Any = None) -> tuple[RawKeys, list[Any]]:
    """Read the key and perhaps one more column of a csv or parquet file."""
    with naming(file):
        if file.suffix.lower() == ".npy":
            raise FewviewError("must be a .csv or .parquet file")
        if file.suffix.lower() == ".parquet":
            _refuse_error(parquet)
            return RawKeys(file.name, parquet["ids"], text=False), parquet["values"]
        lines = _csv_lines(file)
        _, header = next(lines)
        place = _place(header, DEFAULT_KEY)
        second = None if other is None else _place(header, other)
        rows = list(lines)
        ids = [cells[place] for _, cells in rows]
        values = [] if second is None else [cells[second] for _, cells in rows]
        return RawKeys(file.name, ids, text=True, lines=[number for number, _ in rows]), values


def _place(header: Sequence[str], name: str) -> int:
    if list(header).count(name) == 1:
        return list(header).index(name)
    if name in header:
        raise FewviewError(f"column {name!r} occurs twice; remove one")
    advice = "rename the column that identifies a sample" if name == DEFAULT_KEY else "rename it"
    for separator, called in ((";", "semicolons"), ("\t", "tabs")):
        if len(header) == 1 and separator in header[0]:
            advice = f"the file seems to be separated by {called}, save it with commas"
    raise FewviewError(f"no column {name!r} (it has {shorten(map(repr, header))}); {advice}")


def _csv_lines(file: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield line number and cells, the header first; every line is as long as the header."""
    width = None
    try:
        with file.open(encoding="utf-8-sig", newline="") as stream:
            reader = csv.reader(stream, strict=True)
            for cells in reader:
                if not cells:
                    continue  # a blank line
                if width is None:
                    width = len(cells)
                if len(cells) != width:
                    raise FewviewError(
                        f"line {reader.line_num} has {len(cells)} cells, the header {width}; "
                        "correct the line"
                    )
                yield reader.line_num, cells
    except UnicodeDecodeError as error:
        raise FewviewError(
            f"is not UTF-8 text (byte 0x{error.object[error.start]:02x}); save it as UTF-8"
        ) from None
    except csv.Error as error:
        raise FewviewError(f"line {reader.line_num}: {error}; correct the line") from None
    if width is None:
        raise FewviewError("the file is empty; it needs a line with column names")


def _read_csv_table(file: Path, dtype: str | None) -> RawTable:
    lines = _csv_lines(file)
    _, header = next(lines)
    place = _place(header, DEFAULT_KEY)
    columns = header[:place] + header[place + 1 :]
    ids: list[str] = []
    numbers: list[int] = []
    rows: list[NDArray[np.float64]] = []
    for number, cells in lines:
        numbers.append(number)
        ids.append(cells.pop(place))
        rows.append(np.array(_floats(cells, columns, number), dtype=np.float64))
    block: FloatArray = np.array(rows, dtype=np.float64).reshape(len(rows), len(columns))
    if dtype != "float64":
        with np.errstate(over="ignore"):
            narrow = block.astype(np.float32)
        if np.array_equal(narrow, block, equal_nan=True):
            block = narrow
    return RawTable(RawKeys(file.name, ids, text=True, lines=numbers), block, tuple(columns))


def _floats(cells: list[str], columns: Sequence[str], line: int) -> list[float]:
    try:
        numbers = [float(cell) for cell in cells]
        if "_" not in "".join(cells):  # float() takes 1_000 for a number; a table does not
            return numbers
    except ValueError:
        pass
    numbers = []
    for cell, column in zip(cells, columns, strict=True):
        text = cell.strip()
        try:
            if "_" in text:
                raise ValueError
            numbers.append(math.nan if text in MISSING else float(text))
        except ValueError:
            raise FewviewError(
                f"column {column!r}, line {line} holds {cell!r}; features must be numbers (encode "
                "the text or remove the column; leave unknown cells empty)"
            ) from None
    return numbers


# ------------------------------------------------------------------ parquet


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise FewviewError(
            "parquet files need pyarrow, which is not installed: pip install 'fewview[frames]'"
        ) from None
    return pyarrow, pyarrow.parquet


def read_parquet_files(files: Mapping[Path, str | None]) -> dict[Path, Any]:
    """Read parquet files of a folder in one child process.

    Args:
        files: file -> the columns wanted: "" for the table of a view (all of them), None for the
            keys alone, or the name of one more column.

    Returns:
        file -> what `read_table` and `read_columns` take.
    """
    if not files:
        return {}
    if importlib.util.find_spec("pyarrow") is None:
        _pyarrow()
    paths = list(files)
    with naming(paths[0] if len(paths) == 1 else paths[0].parent):
        contents = foreign.load("parquet", paths, wanted=list(files.values()))
    return dict(zip(paths, contents, strict=True))


def _refuse_error(parquet: Any) -> None:
    if "error" in parquet:
        raise FewviewError(parquet["error"])


def import_parsers(paths: Sequence[Path]) -> None:
    """Import what `load_parquet` needs, before limits hold (in the child process)."""
    del paths
    _pyarrow()


def load_parquet(paths: Sequence[Path], memory: int, wanted: Sequence[str | None]) -> list[Any]:
    """Read parquet files (in the child process); an error in one leaves the others."""
    del memory
    contents: list[Any] = []
    for path, name in zip(paths, wanted, strict=True):
        try:
            contents.append(_load_one_parquet(path, name))
        except FewviewError as error:
            contents.append({"error": str(error)})
    return contents


def _load_one_parquet(path: Path, wanted: str | None) -> dict[str, Any]:
    _, parquet = _pyarrow()
    try:
        # Not read_table, which reads meaning into folder names such as year=2020.
        with parquet.ParquetFile(path) as source:
            names = list(source.schema_arrow.names)
            place = _place(names, DEFAULT_KEY)
            if wanted == "":
                table = source.read(use_threads=False)
            else:
                other = None if wanted is None else _place(names, wanted)
                # Columns of structures are chosen by leaf, so the rest is dropped after reading.
                table = source.read(use_threads=False)
                values = [] if other is None else _plain_values(table.column(other), names[other])
                return {"ids": _plain_values(table.column(place), DEFAULT_KEY), "values": values}
    except (MemoryError, FewviewError):
        raise
    except Exception as error:
        raise FewviewError(
            f"is not a parquet file, or is damaged or cut short ({error}); get it again"
        ) from error
    return _parquet_features(table, names, place)


def _plain_values(column: Any, name: str) -> list[Any]:
    values: list[Any] = column.to_pylist()
    for row, value in enumerate(values):
        if value is not None and not isinstance(value, (bool, int, float, str, date)):
            raise FewviewError(
                f"column {name!r}, row {row} holds a {type(value).__name__}; ids and labels must "
                "be numbers, text or dates"
            )
    return values


def _parquet_features(table: Any, names: Sequence[str], place: int) -> dict[str, Any]:
    pyarrow, _ = _pyarrow()
    ids = _plain_values(table.column(place), DEFAULT_KEY)
    features: list[NDArray[Any]] = []
    columns: list[str] = []
    for index, name in enumerate(names):
        if index == place:
            continue
        column = table.column(index)
        kind = pyarrow.types
        if kind.is_null(column.type):
            column = column.cast(pyarrow.float32())
        elif kind.is_boolean(column.type):
            column = column.cast(pyarrow.uint8())
        elif not (kind.is_floating(column.type) or kind.is_integer(column.type)):
            values = column.to_pylist()
            row = next((i for i, value in enumerate(values) if value is not None), 0)
            raise FewviewError(
                f"column {name!r}, row {row} holds {values[row] if values else column.type!r}; "
                "features must be numbers (encode or remove the column)"
            )
        columns.append(name)
        features.append(column.to_numpy())
    block = np.column_stack(features) if features else np.empty((len(ids), 0))
    return {"ids": ids, "block": block, "columns": columns}


# ------------------------------------------------------------------ writing


Columns = dict[str, tuple[str, list[Any]]]
Block = tuple[Sequence[str], FloatArray]


def write_csv_columns(file: Path, columns: Columns, block: Block | None) -> None:
    """Write keys and features as text that gives the same numbers back."""
    names, features = block if block is not None else ((), None)
    with file.open("x", encoding="utf-8", newline="") as stream:
        stream.write(",".join(_cell(name) for name in (*columns, *names)) + "\n")
        texts = [[_cell(to_text(kind, v)) for v in values] for kind, values in columns.values()]
        for index, cells in enumerate(zip(*texts, strict=True)):
            if features is None:
                stream.write(",".join(cells) + "\n")
            else:
                # As float64, whose shortest text gives the same number back in any reader.
                row = features[index].astype(np.float64).tolist()
                stream.write(",".join((*cells, *map(repr, row))) + "\n")


def _cell(text: str) -> str:
    if text and not any(sign in text for sign in ',"\n\r') and text == text.strip():
        return text
    return '"' + text.replace('"', '""') + '"'


def write_parquet_columns(file: Path, columns: Columns, block: Block | None) -> None:
    """Write keys and features as a parquet file."""
    pyarrow, parquet = _pyarrow()
    arrays = []
    for kind, values in columns.values():
        array = to_array(kind, values)
        arrays.append(
            pyarrow.array(array.tolist(), type=pyarrow.string())
            if array.dtype.kind == "U"
            else pyarrow.array(array)
        )
    names = list(columns)
    if block is not None:
        names += block[0]
        arrays += [pyarrow.array(column) for column in block[1].T]
    try:
        parquet.write_table(pyarrow.Table.from_arrays(arrays, names=names), file)
    except pyarrow.ArrowException as error:
        raise FewviewError(f"{file.name} cannot be written ({error})") from error
