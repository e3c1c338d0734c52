"""One table: its keys and its numbers, from a `.csv`, `.tsv`, `.parquet` or `.npy` file and back.

Text may be compressed (`.csv.gz`).

Cells of a csv file are separated by commas, or by semicolons or tabs, as spreadsheets write them
where commas are decimal points; then 3,5 is a number.

Parquet is a foreign binary format and is read in a process of its own (`_guarded.py`), and so is
compressed text, a few bytes of which may become more than memory holds. Keys from csv files, which
have `lines`, are texts that are still to be understood.
"""

from __future__ import annotations

import csv
import math
import re
import warnings
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import date
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from fewview.errors import FewviewError, FewviewWarning, check_dimensions, check_extra, shorten
from fewview.files._file_contents import DEFAULT_KEY, Keys
from fewview.files._guarded import load
from fewview.files._kinds import to_array, to_text
from fewview.files._limits import check_memory, naming
from fewview.files._npz import read_npy
from fewview.ground._words import MISSING, Texts, as_number, split_cells

# How text may be compressed, and what reads it; how else it may be, which is refused.
PACKED = {".gz": "gzip", ".bz2": "bz2", ".xz": "lzma"}
UNREAD = (".zst", ".zip", ".lz4", ".7z", ".br", ".snappy")
# Tables as text; what separates cells is found in their first line.
TEXTS = tuple(f"{kind}{packed}" for packed in ("", *PACKED) for kind in (".csv", ".tsv"))
TABLES = (*TEXTS, ".parquet", ".npy")
# Tables of spreadsheet programs, which are not read.
SHEETS = (".xlsx", ".xls", ".ods")
# The key of a table whose rows have no names: they are numbered.
NUMBERED = "(number of the row)"
# Numbers as they are written where cells are not separated by commas; the second kind has points
# between thousands alone.
DECIMAL_COMMA = re.compile(
    r"[+-]?((\d+|\d{1,3}(\.\d{3})+),\d+([eE][+-]?\d+)?|\d{1,3}(\.\d{3}){2,})"
)
# A number with one point that may stand between thousands.
THOUSANDS = re.compile(r"[+-]?\d{1,3}\.\d{3}")
# In so many lines a header is looked for below titles.
MOST_TITLES = 10
# After so many letters it is looked how much memory is left: as cells they may take 64 times that.
CHECKED = 1 << 16
# Columns of words, by their place.
Worded = dict[int, Texts]
# Keys (None for plain arrays), numbers [rows, width], names of columns where they have some, and
# what columns of words hold.
RawTable = tuple[Keys | None, NDArray[Any], tuple[str, ...] | None, Worded]


def ending(file: Path) -> str:
    """How the name of a table ends, in small letters.

    Example:
        >>> ending(Path("blood.CSV")), ending(Path("blood.csv.gz")), ending(Path("v1.5.parquet"))
        ('.csv', '.csv.gz', '.parquet')
    """
    last = file.suffix.lower()
    return Path(file.stem).suffix.lower() + last if last in (*PACKED, *UNREAD) else last


def bare_name(file: Path) -> str:
    """The name of a table without its ending: that of a view."""
    return file.name[: len(file.name) - len(ending(file))]


def is_unread(file: Path) -> bool:
    """Whether a file is a table that is compressed as none is read."""
    kind, last = Path(file.stem).suffix.lower(), file.suffix.lower()
    return kind in TABLES and last in (*PACKED, *UNREAD) and kind + last not in TEXTS


def why_unread(file: Path) -> str:
    """What to do about it."""
    listed = ", ".join(f".csv{packed}" for packed in PACKED)
    return f"{file.name} is a compressed table, of which {listed} are read; unpack it"


def read_table(file: Path, known: Mapping[str, Any] | None, key: str) -> RawTable:
    """Read the table of one view; `known` is what a note of fewview says about the view."""
    with naming(file):
        if file.suffix.lower() == ".npy":
            columns = None if known is None else known["columns"]
            return None, _read_array(file), None if columns is None else tuple(columns), {}
        texts: Worded
        if ending(file) in TEXTS:
            keys, block, names, texts = _read_csv_table(file, (known or {}).get("dtype"), key)
        else:
            content = _read_parquet(file, "", key)
            keys, block, names, texts = _as_raw(file, content)
        if known is None:
            block, names, texts = _without_blank_columns(block, names, texts)
        if not names:
            raise FewviewError(f"has no columns besides {key!r}; remove the file")
        unnamed = known is not None and known["columns"] is None
        return keys, block, None if unnamed else names, texts


def _without_blank_columns(
    block: NDArray[Any], names: tuple[str, ...], texts: Worded
) -> tuple[NDArray[Any], tuple[str, ...], Worded]:
    """Leave out columns without a name and without a cell, as spreadsheets write them."""
    kept = [k for k, name in enumerate(names)
            if name.strip() or k in texts or not np.isnan(block[:, k]).all()]  # fmt: skip
    if len(kept) == len(names):
        return block, names, texts
    inside = {kept.index(k): cells for k, cells in texts.items()}
    return block[:, kept], tuple(names[k] for k in kept), inside


def csv_header(file: Path) -> list[str]:
    """Names of the columns of a csv file."""
    with naming(file):
        header: list[str] = _text_of(file, load_header)["columns"]
        return header


def read_columns(file: Path, other: str | None, key: str = DEFAULT_KEY) -> tuple[Keys, list[Any]]:
    """Read the key and perhaps one more column of a csv or parquet file."""
    with naming(file):
        if file.suffix.lower() == ".npy":
            raise FewviewError("must be a .csv or .parquet file")
        if file.suffix.lower() == ".parquet":
            content = _read_parquet(file, other, key)
        else:
            content = _text_of(file, load_columns, other=other, key=key)
        return _keys(file, content), _listed(content["values"])


def _read_array(file: Path) -> NDArray[Any]:
    with file.open("rb") as stream:
        array: NDArray[Any] = read_npy(stream, file.stat().st_size)
    check_dimensions("", array.ndim, 2)
    if array.dtype.kind == "U":
        raise FewviewError("holds text; features must be numbers")
    return array


def find_column(header: Iterable[str], name: str) -> str | None:
    """A column by its name, else the only one that differs by spaces or large letters alone.

    Example:
        >>> find_column([" ID", "x"], "id"), find_column(["ID", "Id"], "id")
        (' ID', None)
    """
    names = list(header)
    alike = [other for other in names if other.strip().casefold() == name.strip().casefold()]
    return name if name in names else alike[0] if len(alike) == 1 else None


def _place(header: Sequence[str], name: str, file: Path | None = None) -> int:
    """Where a column is; `file` is the table as text, in which a header may stand further down."""
    found = find_column(header, name)
    if found is not None and list(header).count(found) == 1:
        return list(header).index(found)
    if found is not None:
        raise FewviewError(f"column {name!r} occurs twice; remove one")
    advice = (
        "name the column that identifies a sample with --key (key= in Python), the same in all "
        "tables"
        if name == DEFAULT_KEY
        else "name another with --key, the same in all tables, or with --labels"
    )
    if file is not None:
        with _opened(file) as stream:
            for line, text in enumerate(islice(stream, MOST_TITLES), 1):
                if find_column(text.replace('"', "").split(_separator(text)), name) is not None:
                    advice = f"line {line} has it, so delete the lines above that"
    raise FewviewError(f"no column {name!r} (it has {shorten(map(repr, header))}); {advice}")


def _opened(file: Path) -> IO[str]:
    """Open a table as text."""
    packed = PACKED.get(file.suffix.lower())
    opener: Any = open if packed is None else import_module(packed).open
    stream: IO[str] = opener(file, "rt", encoding="utf-8-sig", errors="surrogateescape", newline="")
    return stream


def _csv_lines(file: Path, key: str = DEFAULT_KEY) -> Iterator[tuple[int, list[str]]]:
    """Yield line number and cells, the header first; every line is as long as the header.

    Where the key is `NUMBERED`, numbers of rows are put before the cells.
    """
    width, count = None, 0
    points = Points()
    try:
        with _opened(file) as stream:
            separator = _separator(stream.readline())
            stream.seek(0)
            reader = csv.reader(_decoded(stream, file), strict=True, delimiter=separator)
            for cells in reader:
                if not any(cells) and ((len(cells) > 2 and key != NUMBERED) or not cells):
                    continue  # a blank line; one or two cells may be an id and a label
                if separator != ",":
                    points.look(reader.line_num, cells)
                    cells = [_with_point(cell) for cell in cells]
                if key == NUMBERED:
                    cells.insert(0, NUMBERED if width is None else str(count))
                    count += width is not None
                if width is None:
                    width = len(cells)
                if len(cells) != width:
                    raise FewviewError(
                        f"line {reader.line_num} has {len(cells)} cells, the header {width}; "
                        "correct the line"
                    )
                yield reader.line_num, cells
    except csv.Error as error:
        raise FewviewError(f"line {reader.line_num}: {error}; correct the line") from None
    if width is None:
        raise FewviewError("the file is empty; it needs a line with column names")
    points.check()


class Points:
    """Whether points stand between thousands in some columns: then 1.329 is not between 1 and 2."""

    def __init__(self) -> None:
        self.header: list[str] | None = None
        self.doubtful: dict[int, tuple[int, str]] = {}  # line and cell of the first 1.329
        self.decimal: set[int] = set()  # columns with other points, as in 1.5
        self.commas: set[int] = set()  # columns with decimal commas
        self.small: set[int] = set()  # columns with numbers such as 930
        self.large: set[int] = set()  # columns with numbers such as 1329

    def look(self, line: int, cells: Sequence[str]) -> None:
        """Note what the cells of a line say."""
        if self.header is None:
            self.header = list(cells)
            return
        for place, cell in enumerate(cells):
            if cell.isdigit():
                (self.small if len(cell) < 4 else self.large).add(place)
            elif "," in cell:
                self.commas.add(place)
            elif "." in cell and THOUSANDS.fullmatch(cell.strip()):
                self.doubtful.setdefault(place, (line, cell))
            elif "." in cell:
                self.decimal.add(place)

    def check(self) -> None:
        """Refuse a column whose other cells say that its points may stand between thousands."""
        for place, (line, cell) in self.doubtful.items():
            likely = place in self.commas or (place in self.small and place not in self.large)
            if likely and place not in self.decimal and self.header is not None:
                raise FewviewError(
                    f"column {self.header[place]!r}, line {line} holds {cell!r}, whose point may "
                    "stand between thousands; write numbers without signs between thousands"
                )


def _decoded(stream: Iterable[str], file: Path) -> Iterator[str]:
    """Lines in which bytes that are no UTF-8 are read as spreadsheets in the West wrote them.

    Whoever keeps their cells is stopped before memory is used up.
    """
    told, unchecked = False, 0
    for line in stream:
        unchecked += len(line)
        if unchecked > CHECKED:
            check_memory()
            unchecked = 0
        if not line.isascii():
            try:
                line.encode()
            except UnicodeEncodeError:
                line = _western(line.encode(errors="surrogateescape"))
                if not told:
                    word = next((w for w in re.split(r"[,;\t]", line) if not w.isascii()), line)
                    warnings.warn(
                        f"{file.name} is not UTF-8; read as Latin-1 (Windows-1252), in which a "
                        f"cell is {shorten([word.strip()])!r}; save it as UTF-8 if that is wrong",
                        FewviewWarning,
                        stacklevel=2,
                    )
                told = True
        yield line


def _western(line: bytes) -> str:
    try:
        if b"\0" in line:  # two bytes a letter, or no text at all
            raise UnicodeDecodeError("cp1252", line, line.index(b"\0"), 1, "")
        return line.decode("cp1252")
    except UnicodeDecodeError as error:
        raise FewviewError(
            f"is neither UTF-8 nor Latin-1 text (byte 0x{line[error.start]:02x}); save it as UTF-8"
        ) from None


def _separator(line: str) -> str:
    """What separates the names of columns: the sign that occurs most outside quotes."""
    bare = re.sub(r'"[^"]*"', "", line)
    return max(",;\t", key=bare.count)


def _with_point(cell: str) -> str:
    """A cell with a decimal comma with a point in its place."""
    if ("," in cell or cell.count(".") > 1) and DECIMAL_COMMA.fullmatch(cell.strip()):
        return cell.replace(".", "").replace(",", ".")
    return cell


def _text_of(file: Path, reader: Callable[..., Any], **options: Any) -> Any:
    """What a function reads from a table as text; from a compressed one in the child process."""
    if ending(file) in (".csv", ".tsv"):
        return reader(file, 0, **options)
    return load(reader, [], "compressed csv", file, **options)


def _read_csv_table(
    file: Path, dtype: str | None, key: str
) -> tuple[Keys, NDArray[Any], tuple[str, ...], Worded]:
    return _as_raw(file, _text_of(file, load_text, dtype=dtype, key=key))


def _as_raw(file: Path, content: Any) -> tuple[Keys, NDArray[Any], tuple[str, ...], Worded]:
    texts = {int(place): cells for place, cells in content["texts"].items()}
    return _keys(file, content), content["block"], tuple(content["columns"]), texts


def load_header(path: Path, memory: int) -> dict[str, Any]:
    """Read the names of the columns of a table as text."""
    del memory  # text is bound by that of the process, here and below
    return {"columns": next(_csv_lines(path))[1]}


def load_columns(path: Path, memory: int, other: str | None, key: str) -> dict[str, Any]:
    """Read the keys of a table as text, and perhaps one more column."""
    del memory
    lines = _csv_lines(path, key)
    _, header = next(lines)
    place = _place(header, key, path)
    second = None if other is None else _place(header, other, path)
    rows = list(lines)
    ids = [cells[place] for _, cells in rows]
    values = [] if second is None else [cells[second] for _, cells in rows]
    return {"ids": ids, "lines": [number for number, _ in rows], "values": values}


def load_text(path: Path, memory: int, dtype: str | None, key: str) -> dict[str, Any]:
    """Read the table of a view from text."""
    del memory
    lines = _csv_lines(path, key)
    _, header = next(lines)
    place = _place(header, key, path)
    columns = header[:place] + header[place + 1 :]
    ids: list[str] = []
    numbers: list[int] = []
    values = array("d")
    worded: set[int] = set()
    for number, cells in lines:
        numbers.append(number)
        ids.append(cells.pop(place))
        values.fromlist(_floats(cells, worded))
    block: NDArray[Any] = np.frombuffer(values).reshape(len(ids), len(columns))
    texts = _texts(path, key, place, worded) if worded else {}
    if dtype != "float64":
        with np.errstate(over="ignore"):
            narrow = block.astype(np.float32)
        if np.array_equal(narrow, block, equal_nan=True):
            block = narrow
    return {"ids": ids, "lines": numbers, "block": block, "columns": columns, "texts": texts}


def _texts(file: Path, key: str, place: int, worded: set[int]) -> Worded:
    """Read once more what columns of words hold; `place` is that of the key."""
    lines = _csv_lines(file, key)
    next(lines)
    cells = [cells[:place] + cells[place + 1 :] for _, cells in lines]
    return {k: split_cells(row[k] for row in cells)[1] or [] for k in sorted(worded)}


def _floats(cells: list[str], worded: set[int]) -> list[float]:
    """Numbers of a line, NaN where there is none; columns of words are put into `worded`."""
    try:
        numbers = [float(cell) for cell in cells]
        if "_" not in "".join(cells):  # float() takes 1_000 for a number; a table does not
            return numbers
    except ValueError:
        pass
    numbers = []
    for place, cell in enumerate(cells):
        text = cell.strip()
        try:
            numbers.append(math.nan if text in MISSING else as_number(text))
        except ValueError:
            numbers.append(math.nan)
            worded.add(place)
    return numbers


# ------------------------------------------------------------------ parquet


def _check_library() -> None:
    check_extra("parquet files", "pyarrow", "frames")


def _read_parquet(file: Path, wanted: str | None, key: str) -> Any:
    _check_library()
    return load(load_parquet, ["pyarrow.parquet"], "parquet", file, wanted=wanted, key=key)


def load_parquet(path: Path, memory: int, wanted: str | None, key: str) -> dict[str, Any]:
    """Read a parquet file (in the child process): its keys and the columns that are wanted.

    These are "" for the table of a view (all of them), None for the keys alone, or the name of one
    more column.
    """
    del memory  # arrays are bound by that of the process
    from pyarrow import ArrowNotImplementedError
    from pyarrow.parquet import ParquetFile

    try:
        # Not read_table, which reads meaning into folder names such as year=2020.
        with ParquetFile(path) as source:
            names = list(source.schema_arrow.names)
            # Columns of structures are chosen by leaf, so all are read and the rest is dropped;
            # keys alone are never one.
            alone = [key] if wanted is None and names.count(key) == 1 else None  # as it is written
            table = source.read(columns=alone, use_threads=False)
    except ArrowNotImplementedError as error:
        raise FewviewError(
            f"holds what this pyarrow cannot read ({error}), which need not be the fault of the "
            "file; update pyarrow, or write the file without that"
        ) from error
    place = _place(names, key)
    ids = _plain_values(table.column(0 if alone else place), key)
    if wanted == "":
        # Row numbers of a frame, which pandas writes where rows were chosen from it.
        spare = [n for n in names if n != names[place] and re.fullmatch(r"__index_level_\d+__", n)]
        table, names = table.drop_columns(spare), [n for n in names if n not in spare]
        place = _place(names, key)
        return {"ids": ids, **_parquet_features(table, names, place)}
    other = None if wanted is None else _place(names, wanted)
    values = [] if other is None else _plain_values(table.column(other), names[other])
    return {"ids": ids, "values": values}


def _keys(file: Path, content: Mapping[str, Any]) -> Keys:
    """Keys of a table: texts with their lines, or ids as `_plain_values` gave them."""
    ids = content["ids"]
    numbers = ids if isinstance(ids, np.ndarray) and ids.dtype == np.int64 else None
    return Keys(file.name, _listed(ids), content.get("lines"), numbers)


def _listed(values: Any) -> list[Any]:
    """Values as `_plain_values` gave them, as plain ones."""
    return values.tolist() if isinstance(values, np.ndarray) else list(values)


def _plain_values(column: Any, name: str) -> list[Any] | NDArray[np.integer[Any]]:
    """The values of a column; whole numbers as an array, which travels much faster."""
    from pyarrow import types

    if types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if types.is_timestamp(column.type) and column.type.unit == "ns":
        column = _in_microseconds(column, name)
    if types.is_decimal(column.type):
        column = _whole_decimals(column)
    if types.is_integer(column.type) and not column.null_count:
        numbers: NDArray[np.integer[Any]] = column.to_numpy()
        huge = numbers.dtype == np.uint64 and (numbers >> 63).any()
        return numbers if huge else numbers.astype(np.int64)
    values: list[Any] = column.to_pylist()
    if types.is_decimal(column.type):  # there is no other kind for so large ones
        values = [int(v) if v is not None and v == v.to_integral_value() else v for v in values]
    if {*map(type, values)} <= {int, str}:  # what long tables have
        return values
    for row, value in enumerate(values):
        if value is not None and not isinstance(value, (bool, int, float, str, date)):
            raise FewviewError(
                f"column {name!r}, row {row} holds a {type(value).__name__}; ids and labels must "
                "be numbers, text or dates, and decimals whole"
            )
    return values


def _in_microseconds(column: Any, name: str) -> Any:
    """Times as finely as Python has them; two that differ by less would become one."""
    import pyarrow

    times = column.cast(pyarrow.int64()).fill_null(0).to_numpy()
    for row in np.flatnonzero(times % 1000)[:1].tolist():
        raise FewviewError(
            f"column {name!r}, row {row} holds {np.datetime64(int(times[row]), 'ns')}, and ids and "
            "labels can be times to the microsecond; write them as text, or as whole numbers"
        )
    return column.cast(pyarrow.timestamp("us", column.type.tz))


def _whole_decimals(column: Any) -> Any:
    """Decimals as whole numbers of 64 bits, where they are; else as they come."""
    import pyarrow

    with suppress(pyarrow.ArrowInvalid):
        return column.cast(pyarrow.int64())
    return column


def _parquet_features(table: Any, names: Sequence[str], place: int) -> dict[str, Any]:
    import pyarrow
    from pyarrow import types

    features: list[NDArray[Any]] = []
    texts: dict[str, Texts] = {}
    columns = [name for index, name in enumerate(names) if index != place]
    for name, column in zip(columns, table.remove_column(place).columns, strict=True):
        if types.is_null(column.type):
            column = column.cast(pyarrow.float32())
        elif types.is_boolean(column.type):
            column = column.cast(pyarrow.uint8())
        elif not (types.is_floating(column.type) or types.is_integer(column.type)):
            values = column.to_pylist()
            try:
                numbers, words = split_cells(values)
            except (TypeError, ValueError):
                row = next((i for i, value in enumerate(values) if value is not None), 0)
                raise FewviewError(
                    f"column {name!r}, row {row} holds {values[row] if values else column.type!r}; "
                    "features must be numbers, words or dates (encode or remove the column)"
                ) from None
            if words is not None:
                texts[str(len(features))] = words
            features.append(numbers)
            continue
        features.append(column.to_numpy())
    block = np.column_stack(features) if features else np.empty((table.num_rows, 0))
    return {"block": block, "columns": columns, "texts": texts}


# ------------------------------------------------------------------ writing


Columns = Mapping[str, tuple[str, Sequence[Any]]]
Block = tuple[Sequence[str], NDArray[Any]]


def write_csv_columns(file: Path, columns: Columns, block: Block | None = None) -> None:
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


def write_parquet_columns(file: Path, columns: Columns, block: Block | None = None) -> None:
    """Write keys and features as a parquet file."""
    _check_library()
    import pyarrow
    from pyarrow import parquet

    names, arrays = list(columns), []
    for kind, values in columns.values():
        array = to_array(kind, values)
        arrays.append(
            pyarrow.array(array.tolist(), type=pyarrow.string())
            if array.dtype.kind == "U"
            else pyarrow.array(array)
        )
    if block is not None:
        names += block[0]
        arrays += [pyarrow.array(column) for column in block[1].T]
    try:
        parquet.write_table(pyarrow.Table.from_arrays(arrays, names=names), file)
    except pyarrow.ArrowException as error:
        raise FewviewError(f"{file.name} cannot be written ({error})") from error
