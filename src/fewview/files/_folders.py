"""Folders with one table per view: which file is what, which ids and labels they mean.

`write_folder` adds `fewview.json`, which keeps what tables cannot say.
"""

from __future__ import annotations

import os
import re
import shutil
import uuid
import warnings
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fewview.errors import FewviewError, FewviewWarning, shorten
from fewview.files._file_contents import DEFAULT_KEY, Contents, KeyedLabels, Keys, Table, Tables
from fewview.files._guarded import kept_reader
from fewview.files._kinds import (
    UNFIT,
    Note,
    as_labels,
    from_text,
    infer,
    kind_of,
    label_kind,
    whole_numbers,
)
from fewview.files._limits import naming
from fewview.files._tables import (
    NUMBERED,
    SHEETS,
    TABLES,
    TEXTS,
    RawTable,
    bare_name,
    csv_header,
    ending,
    find_column,
    is_unread,
    read_columns,
    read_table,
    why_unread,
    write_csv_columns,
    write_parquet_columns,
)
from fewview.ground._words import Texts, number_text

NOTE = "fewview.json"
RESERVED = ("labels", "ids")
# Files by part, as Spark (part-00000-...), Dask (part.0) and DuckDB (data_0) write them.
PART_FILE = re.compile(r"(part|data)[-._]\d")
EXPORT = (
    "in Excel or LibreOffice save every sheet as CSV (File, Save As, CSV UTF-8), one file per "
    "view, into one folder"
)


def read_folder(path: Path, labels: str | None, key: str | None = None) -> Tables:
    """Read a folder with one table per view, or one table.

    `labels` is the column that holds them, by default `label`: of the label file where there is
    one, else of the tables. `key` is the column that identifies a sample, by default `id` or one
    that all tables have.
    """
    files = _table_files(path)
    label_file, id_file = (files.pop(name, None) for name in RESERVED)
    sheets = [entry for entry in path.iterdir() if is_sheet(entry)] if path.is_dir() else []
    if sheets and not files:
        raise FewviewError(f"{sheets[0].name} is a spreadsheet; {EXPORT}")
    inner = sorted(entry.name for entry in _inside(path) if _has_tables(entry))
    if inner and not files:
        beside = ", ".join(file.name for file in (label_file, id_file) if file)
        raise FewviewError(
            f"the folder has parts ({shorten(inner, 3)}) and {beside} beside them; every "
            "part has a file of its own, so divide it, or take it away"
            if beside
            else f"the folder has parts ({shorten(inner, 3)}), which 'predict --query' and "
            "'fit --base' take; give one folder with one table per view here"
        )
    if not files:
        raise FewviewError(
            "the folder has no tables; it needs one .csv, .tsv, .parquet or .npy file per view"
        )
    if sheets:
        names = shorten(sorted(sheet.name for sheet in sheets))
        warnings.warn(f"left out: {names}; {EXPORT}", FewviewWarning, stacklevel=2)
    if inner:
        warnings.warn(
            f"left out: the folders {shorten(inner, 3)}; where they are parts of one table, take "
            f"{shorten(sorted(file.name for file in files.values()), 3)} away from them",
            FewviewWarning,
            stacklevel=2,
        )
    note = _read_note(path / NOTE, files)
    if key is None:
        with kept_reader():
            key = _find_key([*files.values(), *(file for file in (id_file, label_file) if file)])
    views = [*note.views, *(view for view in files if view not in note.views)]
    inside = None  # the column of tables that holds labels
    with kept_reader():
        raw = {view: read_table(files[view], note.views.get(view), key) for view in views}
        order = None if id_file is None else read_columns(id_file, None, key)[0]
        if label_file is None or (labels is not None and not _has_column(label_file, labels)):
            inside = _label_column(raw, labels, label_file)
            label_file = None
        keyed = None
        if label_file is not None:
            column = _named_label(label_file, labels, key)
            keyed = read_columns(label_file, column, key)
            if note.ids is None:
                raw = _without_labels(raw, column, label_file.name)
        elif inside is not None:
            raw, keyed = _taken_out(raw, inside)
    sources = [*(found[0] for found in raw.values()), order, keyed[0] if keyed else None]
    typed = _id_reader([keys for keys in sources if keys is not None], note.ids)
    order = None if order is None else typed(order)
    found = None
    if keyed is not None:
        kind = note.labels if labels is None and inside is None else None
        found = KeyedLabels(typed(keyed[0]), _labels(*keyed, kind))
    known = note.ids is not None
    tables = {view: _table(files[view].name, raw[view], typed, order) for view in raw}
    empty = [view for view, table in tables.items() if not known and not table.keys.ids]
    nobody = len(empty) == len(tables)
    for view in empty:
        text = f"{files[view].name} has no rows"
        if nobody:
            raise FewviewError(f"{text}; add samples, or remove the file")
        warnings.warn(f"{text}; no sample has this view", FewviewWarning, stacklevel=5)
        del tables[view]
    name = (bare_name(path) if path.is_file() else path.resolve().name) or None
    return Tables(tables, found, order, trusted=known, named=note.ids != "none", name=name)


def is_sheet(file: Path) -> bool:
    """Whether a file is one of a spreadsheet program."""
    return file.suffix.lower() in SHEETS and file.name[0] not in "._~"


def part_folders(path: Path) -> list[Path]:
    """Folders of tables in a folder that has no table itself, by name: part-2 before part-10."""
    if not path.is_dir() or _table_files(path):
        return []
    for entry in path.iterdir():
        if entry.name[0] not in "._" and entry.is_symlink() and not entry.exists():
            raise FewviewError(
                f"{entry} is a link to {os.readlink(entry)}, which is not there; mount what it "
                "leads to, or remove the link"
            )

    def place(folder: Path) -> list[Any]:
        return [int(t) if t.isdecimal() else t for t in re.split(r"(\d+)", folder.name)]

    return sorted((folder for folder in _inside(path) if _tables_of_part(folder)), key=place)


def check_parts(path: Path, parts: Sequence[Path]) -> None:
    """Refuse a folder of parts of which some would be passed over, or that has one per view.

    Empty ones are told.
    """
    empty = []
    for folder in sorted(_inside(path)):
        if folder in parts:
            continue
        empty.append(folder.name)
        found = [entry.name for entry in folder.iterdir() if entry.name[0] not in "._"]
        if found:
            raise FewviewError(
                f"{folder} has no tables (it has {shorten(sorted(found))}), and every folder in "
                f"{path} is a part; put tables there, or take it away (folders whose names begin "
                "with _ are passed over)"
            )
    if empty:
        warnings.warn(
            f"{path}: left out, since empty: {shorten(empty)}", FewviewWarning, stacklevel=2
        )
    files = [file for part in parts for file in _tables_of_part(part).values()]
    if all(PART_FILE.match(file.name) for file in files):
        raise FewviewError(
            f"{path} has a folder for every view with a file for every part, such as "
            f"{files[0].relative_to(path)}; it needs a folder for every part with a file for every "
            f"view, such as part-0/{parts[0].stem}{ending(files[0])}, which have the same samples"
        )


def _inside(path: Path) -> list[Path]:
    """The folders in a folder, but for hidden ones and those that programs write for themselves."""
    entries = path.iterdir() if path.is_dir() else ()
    return [entry for entry in entries if entry.is_dir() and entry.name[0] not in "._"]


def _has_tables(folder: Path) -> bool:
    """Whether a folder has tables, right or wrong."""
    with suppress(OSError):
        return any(ending(entry) in TABLES for entry in folder.iterdir())
    return False


def _tables_of_part(folder: Path) -> dict[str, Path]:
    with naming(folder):
        return _table_files(folder)


def part_views(folder: Path) -> set[str]:
    """The views that a folder has tables of, by their names alone."""
    return {*_tables_of_part(folder)} - {*RESERVED}


def key_of(path: Path) -> str:
    """The column that identifies a sample in a folder of tables."""
    return _find_key([*_table_files(path).values()])


def sample_ids(path: Path, key: str) -> Sequence[Any] | NDArray[np.int64]:
    """What tells the samples of a folder of tables apart, in any order; nothing else is read."""
    files = _table_files(path)
    files.pop("labels", None)
    listed = files.pop("ids", None)
    note = _read_note(path / NOTE, files)
    tables = [listed] if listed else [*files.values()]
    for file in tables:
        if file.suffix.lower() == ".npy":
            raise FewviewError(_no_ids(file.name))
    with kept_reader():
        found = [read_columns(file, None, key)[0] for file in tables]
    if note.ids == "none":  # rows are numbered, in every folder anew
        return [(path.name, row) for row in found[0].ids]
    typed = _id_reader(found, note.ids)
    known = [typed(keys) for keys in found]
    numbers = [keys.numbers for keys in known if keys.numbers is not None]
    if len(numbers) == len(known):
        if all(np.array_equal(some, numbers[0]) for some in numbers[1:]):
            return numbers[0]
        together = np.sort(np.concatenate(numbers), kind="stable")  # quick where each is in order
        return np.delete(together, np.flatnonzero(together[1:] == together[:-1]))
    first, *others = (keys.ids for keys in known)
    return first if all(ids == first for ids in others) else [*set(first).union(*others)]


def _find_key(files: Sequence[Path]) -> str:
    """The column that identifies a sample: `id`, else one that all tables have without repeats."""
    csv_files = [file for file in files if ending(file) in TEXTS]
    headers = [csv_header(file) for file in csv_files]
    if len(csv_files) < len(files) or all(find_column(names, DEFAULT_KEY) for names in headers):
        return DEFAULT_KEY
    if len(files) < 2:  # any feature may differ in every row
        warnings.warn(
            "no column 'id'; samples are told apart by the number of their row (name a column with "
            "--key)",
            FewviewWarning,
            stacklevel=6,
        )
        return NUMBERED
    shared = [name for name in headers[0] if all(name in header for header in headers[1:])]
    for name in shared:
        found = [read_columns(file, None, name)[0].ids for file in csv_files]
        if all(all(ids) and len(set(ids)) == len(ids) for ids in found):
            warnings.warn(
                f"no column 'id'; samples are told apart by the column {name!r}, which every table "
                "has (name another with --key)",
                FewviewWarning,
                stacklevel=6,
            )
            return name
    return DEFAULT_KEY


def _has_column(file: Path, name: str) -> bool:
    """Whether a csv file has a column; others are asked when they are read."""
    return ending(file) not in TEXTS or find_column(csv_header(file), name) is not None


def _named_label(file: Path, labels: str | None, key: str) -> str:
    """The column of the label file: as said, `label`, or the only one beside the key."""
    if labels is not None or ending(file) not in TEXTS:
        return labels or "label"
    header = csv_header(file)
    rest = [name for name in header if name != find_column(header, key)]
    return rest[0] if len(rest) == 1 else "label"


def _label_column(raw: Mapping[str, RawTable], labels: str | None, file: Path | None) -> str | None:
    """The column of the tables that holds labels; asked for and not there is an error."""
    column = "label" if labels is None else labels
    names = dict.fromkeys(name for table in raw.values() for name in table[2] or ())
    if found := find_column(names, column):
        return found
    if labels is None:
        return None
    where = "no table" if file is None else f"neither {file.name} nor a table"
    near = get_close_matches(labels, list(names), n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"the columns are {shorten(names)}"
    raise FewviewError(f"--labels {labels}: {where} has a column {labels!r}; {hint}")


def _taken_out(
    raw: Mapping[str, RawTable], column: str
) -> tuple[dict[str, RawTable], tuple[Keys, list[Any]]]:
    """Take the labels out of tables that hold them; where two tables say something, it agrees."""
    rest: dict[str, RawTable] = {}
    known: dict[Any, tuple[str | None, str, int | None]] = {}
    for view, (keys, block, names, texts) in raw.items():
        if keys is None or names is None or column not in names:
            rest[view] = (keys, block, names, texts)
            continue
        place = names.index(column)
        values: Texts = texts.get(place) or [
            None if np.isnan(value) else number_text(float(value)) for value in block[:, place]
        ]
        for row, (sample, label) in enumerate(zip(keys.ids, values, strict=True)):
            before = known.get(sample)
            if before is not None and label is not None and before[0] not in (None, label):
                raise FewviewError(
                    f"{keys.where}: {keys.row(row)} has label {label!r}, and {before[1]} has "
                    f"{before[0]!r} for the same sample; correct one"
                )
            if before is None or before[0] is None:
                known[sample] = (label, keys.where, keys.lines[row] if keys.lines else None)
        others = {k - (k > place): cells for k, cells in texts.items() if k != place}
        if len(names) > 1:
            narrow = np.delete(block, place, axis=1)
            rest[view] = (keys, narrow, (*names[:place], *names[place + 1 :]), others)
    if not rest:
        raise FewviewError(f"the tables have no columns besides the labels {column!r}")
    found = [label for label, _, _ in known.values()]
    lines = [line for _, _, line in known.values() if line is not None]
    if len(lines) == len(known):  # still texts, as from a label file
        return rest, (Keys("labels", list(known), lines), found)
    return rest, (Keys("labels", list(known)), found)


def _without_labels(raw: dict[str, RawTable], column: str, label_file: str) -> dict[str, RawTable]:
    """Tables without a copy of the labels, which would be taken for a feature."""
    names = dict.fromkeys(name for table in raw.values() for name in table[2] or ())
    found = find_column(names, column)
    have = [view for view, table in raw.items() if table[0] and found in (table[2] or ())]
    if found is None or not have:
        return raw
    warnings.warn(
        f"the column {found!r} of view {shorten(map(repr, have))} is left out: labels are those "
        f"of {label_file}",
        FewviewWarning,
        stacklevel=6,
    )
    return _taken_out(raw, found)[0]


def _table_files(folder: Path) -> dict[str, Path]:
    """Find the tables of a folder: name without ending -> file; one table is itself."""
    if folder.is_file():
        name = bare_name(folder)
        return {"table" if name in RESERVED else name: folder}
    files: dict[str, Path] = {}
    unread: dict[str, Path] = {}
    for entry in sorted(folder.iterdir()):
        if entry.name.startswith(".") or entry.is_dir():
            continue
        name = bare_name(entry)
        if is_unread(entry):
            unread[name] = entry
        if ending(entry) not in TABLES:
            continue
        if not entry.is_file():  # a broken link, or a pipe that would never end
            raise FewviewError(f"{entry.name} is not a file; remove it")
        if name in files:
            raise FewviewError(
                f"{files[name].name} and {entry.name} would be the same view; remove one"
            )
        files[name] = entry
    for name, entry in unread.items():
        if name not in files:  # else it is a copy
            raise FewviewError(why_unread(entry))
    return files


def _read_note(file: Path, files: dict[str, Path]) -> Note:
    if not file.exists():
        return Note()
    try:
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        text = ""
    note = Note.read(text, NOTE, "delete it to have the folder read without it")
    for view in note.views:
        if view not in files:
            raise FewviewError(
                f"{NOTE} lists view {view!r}, whose table is not there; put it back, or delete "
                f"{NOTE} to have the folder read without it"
            )
    return note


def _id_reader(sources: Sequence[Keys], noted: str | None) -> Callable[[Keys], Keys]:
    """Decide, over all tables together, how ids are to be understood."""
    kind = "int" if noted == "none" else noted
    as_text: Callable[[str], Hashable] = str
    if kind is None:
        unsure = [keys for keys in sources if keys.lines is None and keys.numbers is None]
        plain = set().union(*(map(type, keys.ids) for keys in unsure))
        if not any(issubclass(kind, str) for kind in plain):
            as_text = infer(value for keys in sources if keys.lines for value in keys.ids)

    def typed(keys: Keys) -> Keys:
        if kind is not None:
            return replace(keys, ids=_typed(keys, keys.ids, kind, "id"))
        if keys.lines is None and keys.numbers is None:
            numbers = whole_numbers(keys.ids)
            return keys if numbers is None else replace(keys, ids=numbers.tolist(), numbers=numbers)
        if keys.lines is None:
            return keys
        return Keys(keys.where, [as_text(v) if v else None for v in keys.ids], keys.lines)

    return typed


def _labels(keys: Keys, values: Sequence[Any], kind: str | None) -> list[Any]:
    if kind is not None:
        return _typed(keys, values, kind, "label")
    labels = as_labels(values)
    counts = Counter(label for label in labels if isinstance(label, str))
    spelt: dict[str, list[str]] = {}
    for label in counts:
        spelt.setdefault(label.casefold(), []).append(label)
    for alike in spelt.values():
        if len(alike) > 1:
            listed = " and ".join(f"{label!r} ({counts[label]})" for label in sorted(alike))
            warnings.warn(
                f"classes {listed} differ in large letters only; they are taken for different "
                "ones, so write them alike if they are the same",
                FewviewWarning,
                stacklevel=6,
            )
    return labels


def _typed(keys: Keys, values: Sequence[Any], kind: str, what: str) -> list[Any]:
    """Understand ids or labels as the note says; those of parquet files are typed already."""
    if keys.lines is None and kind != "json":
        return list(values)
    out: list[Any] = []
    for index, value in enumerate(values):
        try:
            out.append(from_text(kind, value))
        except UNFIT:
            raise FewviewError(
                f"{keys.where}: {keys.row(index)} has {what} {value!r}, but {NOTE} says that "
                f"{what}s are {kind}; correct it, or delete {NOTE}"
            ) from None
    return out


def _no_ids(where: str) -> str:
    return f"{where} has no ids; add ids.csv with a column 'id' and one line per row of the array"


def _table(where: str, raw: RawTable, typed: Callable[[Keys], Keys], order: Keys | None) -> Table:
    """Give a table its keys: its own, or for plain arrays those of the file of ids."""
    keys, block, columns, texts = raw
    if keys is not None:
        keys = typed(keys)
    elif order is None:
        raise FewviewError(_no_ids(where))
    elif len(order.ids) != len(block):
        raise FewviewError(
            f"{where} has {len(block)} rows, {order.where} {len(order.ids)} ids; they must match "
            "row by row"
        )
    else:
        keys = Keys(where, order.ids)
    return Table(keys, block, columns, texts)


# ------------------------------------------------------------------ writing


@contextmanager
def _new_folder(target: Path) -> Iterator[Path]:
    """Yield a temporary folder beside `target`, which takes its name when the block succeeds."""
    if not target.parent.is_dir():
        raise FewviewError(f"the folder {target.parent} does not exist; create it first")
    if target.exists() and not target.is_dir():
        raise FewviewError("is a file; choose another name for the folder, or remove it")
    if target.exists() and any(target.iterdir()):
        raise FewviewError("the folder exists and is not empty; choose another name, or remove it")
    temporary = target.parent / f".fewview-{uuid.uuid4().hex}"
    try:
        temporary.mkdir()
        yield temporary
        if target.exists():
            target.rmdir()
        os.rename(temporary, target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def write_folder(contents: Contents, path: Path, suffix: str) -> None:
    """Write a new folder with one table per view, in files that end in `suffix`."""
    for view in contents.views:
        if view in RESERVED:
            raise FewviewError(
                f"view {view!r} cannot be written to a folder, where {view}{suffix} has a meaning "
                "of its own; rename the view, or write an .npz file"
            )
        if suffix != ".npy" and DEFAULT_KEY in contents.columns.get(view, ()):
            raise FewviewError(
                f"view {view!r} has a column 'id', which tables need for the sample; rename the "
                "column, or write an .npz file"
            )
    ids = contents.keys
    kind, note = kind_of(ids, "id"), Note.of(contents)
    write_columns = write_parquet_columns if suffix == ".parquet" else write_csv_columns
    side = ".parquet" if suffix == ".parquet" else ".csv"
    with _new_folder(path) as folder:
        (folder / NOTE).write_text(note.write(indent=2) + "\n", encoding="utf-8")
        write_columns(folder / f"ids{side}", {"id": (kind, ids)})
        if contents.labels is not None:
            labelled = {
                key: label
                for key, label in zip(ids, contents.labels, strict=True)
                if label is not None
            }
            labels = (label_kind(contents.labels), [*labelled.values()])
            write_columns(folder / f"labels{side}", {"id": (kind, [*labelled]), "label": labels})
        for view, block in contents.views.items():
            file = folder / f"{view}{suffix}"
            if file.exists():
                raise FewviewError(
                    f"this file system takes {file.name} for another view's file; rename the view"
                )
            if suffix == ".npy":
                with file.open("wb") as stream:
                    np.lib.format.write_array(stream, block, allow_pickle=False)
                continue
            present = np.flatnonzero(~np.isnan(block).all(axis=1))
            names = contents.columns.get(view, [str(number) for number in range(block.shape[1])])
            keys = {"id": (kind, [ids[row] for row in present.tolist()])}
            write_columns(file, keys, (names, block[present]))
