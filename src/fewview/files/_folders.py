"""Folders with one table per view: which file is what, which ids and labels they mean.

`write_folder` adds `fewview.json`, which keeps what tables cannot say.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fewview.files._kinds import from_text, infer, kind_of
from fewview.files._tables import (
    MISSING,
    TABLES,
    RawKeys,
    read_columns,
    read_parquet_files,
    read_table,
    write_csv_columns,
    write_parquet_columns,
)
from fewview.ground._errors import FewviewError
from fewview.samples._data import MultiViewData, PartialRows
from fewview.samples._joins import DEFAULT_KEY, KeyedLabels, Keys, Table, join_tables

MANIFEST = "fewview.json"
RESERVED = ("labels", "ids")


@dataclass(frozen=True)
class _Manifest:
    """What `fewview.json` says; without that file, nothing."""

    views: dict[str, dict[str, Any]] = field(default_factory=dict)
    ids: str | None = None
    labels: str | None = None
    known: bool = False


def read_folder(
    path: Path, partial_rows: PartialRows = "error", labels: str | None = None
) -> MultiViewData:
    """Read a folder with one table per view; see `fewview.files._formats`.

    Args:
        path: the folder.
        partial_rows: see `MultiViewData`.
        labels: the column of the label file that holds the labels; by default `label`.
    """
    files: dict[str, Path] = {}
    for entry in sorted(path.iterdir()):
        if entry.suffix.lower() not in TABLES or entry.name.startswith(".") or entry.is_dir():
            continue
        if not entry.is_file():  # a broken link, or a pipe that would never end
            raise FewviewError(f"{entry.name} is not a file; remove it")
        if entry.stem in files:
            raise FewviewError(
                f"{files[entry.stem].name} and {entry.name} would be the same view; remove one"
            )
        files[entry.stem] = entry
    label_file, id_file = (files.pop(name, None) for name in RESERVED)
    if not files:
        raise FewviewError(
            "the folder has no tables; it needs one .csv, .parquet or .npy file per view"
        )
    manifest = _read_manifest(path)
    for view in manifest.views:
        if view not in files:
            raise FewviewError(
                f"{MANIFEST} lists view {view!r}, whose table is not there; put it back, or delete "
                f"{MANIFEST} to have the folder read without it"
            )
    label_column = "label" if labels is None else labels
    if labels is not None and label_file is None:
        raise FewviewError(f"no file labels.csv with the column {labels!r}; add one")
    wanted: dict[Path, str | None] = dict.fromkeys(files.values(), "")
    wanted |= {file: None for file in (id_file,) if file is not None}
    wanted |= {file: label_column for file in (label_file,) if file is not None}
    parquet = read_parquet_files(
        {file: what for file, what in wanted.items() if file.suffix.lower() == ".parquet"}
    )
    order = read_columns(id_file, None, parquet.get(id_file))[0] if id_file else None
    views = [*manifest.views, *(view for view in files if view not in manifest.views)]
    tables = {
        view: read_table(files[view], manifest.views.get(view), parquet.get(files[view]))
        for view in views
    }
    raw_labels = None
    if label_file is not None:
        raw_labels = read_columns(label_file, label_column, parquet.get(label_file))
    sources = [table.keys for table in tables.values() if table.keys is not None]
    convert = _id_reader([*sources, *([raw_labels[0]] if raw_labels else [])], order, manifest)
    ordered = None if order is None else convert(order)
    joined: dict[str, Table] = {}
    for view, table in tables.items():
        where = files[view].name
        if table.keys is not None:
            keys = convert(table.keys)
        elif ordered is None:
            raise FewviewError(
                f"{where} has no ids; add ids.csv with a column 'id' and one line per row of the "
                "array"
            )
        elif len(ordered.ids) != len(table.block):
            raise FewviewError(
                f"{where} has {len(table.block)} rows, {ordered.where} {len(ordered.ids)} ids; "
                "they must match row by row"
            )
        else:
            keys = Keys(where, ordered.ids)
        if not keys.ids and not manifest.known:
            raise FewviewError(f"{where} has no rows; remove the file")
        joined[view] = Table(keys, table.block, table.columns)
    keyed = None
    if raw_labels is not None:
        kind = manifest.labels if labels is None else None
        keyed = KeyedLabels(convert(raw_labels[0]), _labels(*raw_labels, kind))
    data = join_tables(
        joined,
        keyed,
        order=ordered,
        trusted=manifest.known,
        partial_rows=partial_rows,
        name=path.resolve().name or None,
    )
    if manifest.ids == "none":
        data = data._with_rows(slice(None))
        data.ids = None
    return data


def _read_manifest(folder: Path) -> _Manifest:
    file = folder / MANIFEST
    if not file.exists():
        return _Manifest()
    kinds = ("int", "float", "bool", "str", "json")
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        views = {str(view["name"]): dict(view) for view in content["views"]}
        manifest = _Manifest(views, content["ids"], content["labels"], known=True)
        valid = (
            content["version"] == 1
            and manifest.ids in (*kinds, "none")
            and manifest.labels in (*kinds, None)
            and all(view["dtype"] in ("float32", "float64") for view in views.values())
            and all(_is_names(view["columns"]) for view in views.values())
        )
    except (ValueError, KeyError, TypeError, RecursionError):
        valid = False
    if not valid:
        raise FewviewError(
            f"{MANIFEST} is damaged or from another version of fewview; delete it to have the "
            "folder read without it"
        )
    return manifest


def _is_names(value: Any) -> bool:
    return value is None or (
        isinstance(value, list) and all(isinstance(name, str) for name in value)
    )


def _id_reader(
    sources: Sequence[RawKeys], order: RawKeys | None, manifest: _Manifest
) -> Callable[[RawKeys], Keys]:
    """Decide, over all tables together, how ids are to be understood."""
    everything = [*sources, *([order] if order is not None else [])]
    kind = {"none": "int", None: None}.get(manifest.ids, manifest.ids)
    as_text: Callable[[str], Hashable] = str
    if kind is None:
        typed = [value for keys in everything if not keys.text for value in keys.values]
        if not any(isinstance(value, str) for value in typed):
            as_text = infer(value for keys in everything if keys.text for value in keys.values)

    def convert(keys: RawKeys) -> Keys:
        values: list[Any] = []
        for index, value in enumerate(keys.values):
            try:
                if kind is not None and (keys.text or kind == "json"):
                    value = from_text(kind, value)
                elif keys.text:
                    value = as_text(value) if value else None
            except (ValueError, TypeError, RecursionError):
                line = f"line {keys.lines[index]}" if keys.lines else f"row {index}"
                raise FewviewError(
                    f"{keys.where}: {line} has id {value!r}, but {MANIFEST} says that ids are "
                    f"{kind}; correct it, or delete {MANIFEST}"
                ) from None
            values.append(value)
        return Keys(keys.where, values, keys.lines)

    return convert


def _labels(keys: RawKeys, values: Sequence[Any], kind: str | None) -> list[Hashable]:
    if kind is None:
        if not keys.text:
            return list(values)
        known = [None if value in MISSING else value for value in values]
        read_one = infer(known)
        return [None if value is None else read_one(value) for value in known]
    labels: list[Hashable] = []
    for index, value in enumerate(values):
        try:
            labels.append(from_text(kind, value) if keys.text or kind == "json" else value)
        except (ValueError, TypeError, RecursionError):
            line = f"line {keys.lines[index]}" if keys.lines else f"row {index}"
            raise FewviewError(
                f"{keys.where}: {line} has label {value!r}, but {MANIFEST} says that labels are "
                f"{kind}; correct it, or delete {MANIFEST}"
            ) from None
    return labels


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


def write_folder(data: MultiViewData, path: Path, suffix: str) -> None:
    """Write a new folder with one table per view, in files that end in `suffix`."""
    for view in data.view_names:
        if view in RESERVED:
            raise FewviewError(
                f"view {view!r} cannot be written to a folder, where {view}{suffix} has a meaning "
                "of its own; rename the view, or write an .npz file"
            )
        if suffix != ".npy" and DEFAULT_KEY in data.columns.get(view, ()):
            raise FewviewError(
                f"view {view!r} has a column 'id', which tables need for the sample; rename the "
                "column, or write an .npz file"
            )
    ids = list(range(len(data))) if data.ids is None else data.ids.tolist()
    id_kind = kind_of(ids, "id")
    label_kind = None
    if data.labels is not None:
        labels = data.labels.tolist()
        label_kind = kind_of((label for label in labels if label is not None), "label")
    manifest = {
        "version": 1,
        "views": [
            {
                "name": view,
                "dtype": block.dtype.name,
                "columns": list(data.columns[view]) if view in data.columns else None,
            }
            for view, block in data.views.items()
        ],
        "ids": "none" if data.ids is None else id_kind,
        "labels": label_kind,
    }
    write_columns = write_parquet_columns if suffix == ".parquet" else write_csv_columns
    side = ".parquet" if suffix == ".parquet" else ".csv"
    with _new_folder(path) as folder:
        (folder / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
        write_columns(folder / f"ids{side}", {"id": (id_kind, ids)}, None)
        if label_kind is not None:
            labelled = [index for index, label in enumerate(labels) if label is not None]
            pairs = {
                "id": (id_kind, [ids[index] for index in labelled]),
                "label": (label_kind, [labels[index] for index in labelled]),
            }
            write_columns(folder / f"labels{side}", pairs, None)
        for index, (view, block) in enumerate(data.views.items()):
            file = folder / f"{view}{suffix}"
            if file.exists():
                raise FewviewError(
                    f"this file system takes {file.name} for another view's file; rename the view"
                )
            if suffix == ".npy":
                with file.open("wb") as stream:
                    np.lib.format.write_array(stream, block, allow_pickle=False)
                continue
            present = np.flatnonzero(data.mask[:, index])
            names = data.columns.get(view, tuple(str(i) for i in range(block.shape[1])))
            keys = {"id": (id_kind, [ids[row] for row in present.tolist()])}
            write_columns(file, keys, (names, block[present]))
