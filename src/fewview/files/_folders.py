"""Folders with one table per view: which file is what, which ids and labels they mean.

`write_folder` adds `fewview.json`, which keeps what tables cannot say.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from fewview.files._file_contents import DEFAULT_KEY, Contents, KeyedLabels, Keys, Table, Tables
from fewview.files._guarded import kept_reader
from fewview.files._kinds import UNFIT, Note, from_text, infer, kind_of, label_kind
from fewview.files._tables import (
    TABLES,
    RawTable,
    read_columns,
    read_table,
    write_csv_columns,
    write_parquet_columns,
)
from fewview.ground._errors import FewviewError
from fewview.ground._words import MISSING

NOTE = "fewview.json"
RESERVED = ("labels", "ids")


def read_folder(path: Path, labels: str | None) -> Tables:
    """Read a folder with one table per view.

    `labels` is the column of the label file that holds them, by default `label`.
    """
    files = _table_files(path)
    label_file, id_file = (files.pop(name, None) for name in RESERVED)
    if not files:
        raise FewviewError(
            "the folder has no tables; it needs one .csv, .parquet or .npy file per view"
        )
    if labels is not None and label_file is None:
        raise FewviewError(f"no file labels.csv with the column {labels!r}; add one")
    note = _read_note(path / NOTE, files)
    column = "label" if labels is None else labels
    views = [*note.views, *(view for view in files if view not in note.views)]
    with kept_reader():
        raw = {view: read_table(files[view], note.views.get(view)) for view in views}
        order = None if id_file is None else read_columns(id_file, None)[0]
        keyed = None if label_file is None else read_columns(label_file, column)
    sources = [*(found[0] for found in raw.values()), order, keyed[0] if keyed else None]
    typed = _id_reader([keys for keys in sources if keys is not None], note.ids)
    order = None if order is None else typed(order)
    found = None
    if keyed is not None:
        kind = note.labels if labels is None else None
        found = KeyedLabels(typed(keyed[0]), _labels(*keyed, kind))
    known = note.ids is not None
    tables = {view: _table(files[view].name, raw[view], typed, order, known) for view in views}
    name = path.resolve().name or None
    return Tables(tables, found, order, trusted=known, named=note.ids != "none", name=name)


def _table_files(folder: Path) -> dict[str, Path]:
    """Find the tables of a folder: name without ending -> file."""
    files: dict[str, Path] = {}
    for entry in sorted(folder.iterdir()):
        if entry.suffix.lower() not in TABLES or entry.name.startswith(".") or entry.is_dir():
            continue
        if not entry.is_file():  # a broken link, or a pipe that would never end
            raise FewviewError(f"{entry.name} is not a file; remove it")
        if entry.stem in files:
            raise FewviewError(
                f"{files[entry.stem].name} and {entry.name} would be the same view; remove one"
            )
        files[entry.stem] = entry
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
        plain = [value for keys in sources if keys.lines is None for value in keys.ids]
        if not any(isinstance(value, str) for value in plain):
            as_text = infer(value for keys in sources if keys.lines for value in keys.ids)

    def typed(keys: Keys) -> Keys:
        if kind is not None:
            return Keys(keys.where, _typed(keys, keys.ids, kind, "id"), keys.lines)
        if keys.lines is None:
            return keys
        return Keys(keys.where, [as_text(v) if v else None for v in keys.ids], keys.lines)

    return typed


def _labels(keys: Keys, values: Sequence[Any], kind: str | None) -> list[Any]:
    if kind is not None:
        return _typed(keys, values, kind, "label")
    if keys.lines is None:
        return list(values)
    known = [None if value in MISSING else value for value in values]
    as_text = infer(known)
    return [None if value is None else as_text(value) for value in known]


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


def _table(
    where: str, raw: RawTable, typed: Callable[[Keys], Keys], order: Keys | None, known: bool
) -> Table:
    """Give a table its keys: its own, or for plain arrays those of the file of ids."""
    keys, block, columns, texts = raw
    if keys is not None:
        keys = typed(keys)
    elif order is None:
        raise FewviewError(
            f"{where} has no ids; add ids.csv with a column 'id' and one line per row of the array"
        )
    elif len(order.ids) != len(block):
        raise FewviewError(
            f"{where} has {len(block)} rows, {order.where} {len(order.ids)} ids; they must match "
            "row by row"
        )
    else:
        keys = Keys(where, order.ids)
    if not keys.ids and not known:
        raise FewviewError(f"{where} has no rows; remove the file")
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
