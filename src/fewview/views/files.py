"""Samples on disk: `.npz` files and folders with one table per view.

`read` and `write` are the whole interface; formats live in two small registries, where MATLAB,
`.h5mu` and `.h5ad` will join them. Whatever is wrong with a file comes out as a `FewviewError`
that names it, and nothing is ever unpickled.

**`.npz`**: `view_<name>` arrays [samples, width] with NaN rows where a view is missing; optional
`y`, `ids`, `columns_<name>`, and any further per-row arrays such as `split`
(`read_npz_column`). `y` without `classes` holds the labels themselves. With `classes`, an integer
`y` holds positions in it and -1 for unlabelled samples; this is what `write` makes of all labels
but plain integers.

**Folder**: `<view>.csv`, `<view>.parquet` (a column `id`, the others are features; a sample that
lacks the view has no row) or `<view>.npy` (NaN rows where missing, rows in the order of `ids.csv`);
`labels.csv` or `labels.parquet` with columns `id` and `label`; optionally `ids.csv` or
`ids.parquet` with the samples in order. `write` adds `fewview.json`, which keeps what tables cannot
say (order of views, kinds of ids and labels, number types), so that reading gives back exactly what
was written. Without it, ids and labels in csv files are integers where all of them are written like
one, else text; empty cells, NA and NaN are missing; numbers are float32 where that loses nothing,
else float64.
"""

from __future__ import annotations

import csv
import json
import math
import os
import re
import shutil
import sys
import uuid
import zipfile
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from fewview.views.atomic import replacing
from fewview.views.data import PARTIAL_ROWS, FloatArray, MultiViewData, PartialRows, _as_float
from fewview.views.errors import FewviewError, shorten
from fewview.views.frames import DEFAULT_KEY, KeyedLabels, Keys, Table, join_tables

MANIFEST = "fewview.json"
LATER = {".mat": "MATLAB", ".h5mu": "MuData", ".h5ad": "AnnData"}
RESERVED = ("labels", "ids")
TABLES = (".csv", ".parquet", ".npy")
MISSING = frozenset(
    {"", "NA", "N/A", "n/a", "na", "<NA>", "#N/A", "NULL", "null", "None", "NaN", "nan"}
)
SUPPORTED = ".npz files, and folders with one .csv, .parquet or .npy file per view"


def read(path: str | PathLike[str], *, partial_rows: PartialRows = "error") -> MultiViewData:
    """Read samples from an `.npz` file or from a folder with one table per view.

    Args:
        path: the file or the folder.
        partial_rows: what to do with rows that are partly NaN; see `MultiViewData`.

    Returns:
        The samples, called after the file.

    Example:
        >>> import tempfile
        >>> file = Path(tempfile.mkdtemp()) / "pets.npz"
        >>> np.savez(file, view_image=np.ones((2, 3)), y=np.array([0, 1]))
        >>> read(file)
        MultiViewData(pets: 2 samples, views: image[3], 2 classes, 0.0% missing)
    """
    if partial_rows not in PARTIAL_ROWS:
        raise FewviewError(f"partial_rows={partial_rows!r} is not one of {', '.join(PARTIAL_ROWS)}")
    source = Path(path)
    suffix = source.suffix.lower()
    with _naming(source):
        if source.is_dir():
            return _read_folder(source, partial_rows)
        if not source.exists():
            raise FewviewError("no such file or folder; check the path")
        if suffix in _FILE_READERS:
            return _FILE_READERS[suffix](source, partial_rows)
        if suffix in TABLES:
            raise FewviewError(
                "one table is one view; give the folder that holds a table for every view"
            )
        raise FewviewError(_unsupported(suffix))


def write(data: MultiViewData, path: str | PathLike[str], *, format: str | None = None) -> None:
    """Write samples to an `.npz` file or to a new folder with one table per view.

    The result appears under its name only when it is complete. An existing file is replaced; an
    existing folder is not, unless it is empty. Labels and ids must be numbers or text.

    Args:
        data: the samples.
        path: the file or the folder.
        format: `"npz"`, `"csv"`, `"parquet"` or `"npy"`; by default `.npz` for names that end so
            and a folder of csv tables for names without an ending.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp()) / "pets"
        >>> data = MultiViewData({"image": [[1.0, 2.0]]}, labels=["cat"], ids=["tom"])
        >>> write(data, folder, format="csv")
        >>> print((folder / "image.csv").read_text(), end="")
        id,0,1
        tom,1.0,2.0
        >>> read(folder) == data
        True
    """
    target = Path(path)
    suffix = target.suffix.lower()
    with _naming(target):
        if format is None:
            if suffix and suffix != ".npz":
                raise FewviewError(
                    _unsupported(suffix)
                    if suffix not in TABLES
                    else f"name a folder and give format={suffix[1:]!r}; it gets a table per view"
                )
            format = "npz" if suffix else "csv"
        if format not in _WRITERS:
            raise FewviewError(
                f"unknown format {format!r}; the formats are {', '.join(_WRITERS)}"
                + (", others come later" if f".{format}" in LATER else "")
            )
        if format == "npz" and suffix != ".npz":
            raise FewviewError("the name must end in .npz for this format")
        _WRITERS[format](data, target)


def npz_keys(path: str | PathLike[str]) -> tuple[str, ...]:
    """List the names of the arrays in an `.npz` file.

    Example:
        >>> import tempfile
        >>> file = Path(tempfile.mkdtemp()) / "pets.npz"
        >>> np.savez(file, view_image=np.ones((2, 3)), split=np.array(["base", "novel"]))
        >>> npz_keys(file)
        ('view_image', 'split')
    """
    with _naming(Path(path)), _open_archive(Path(path)) as archive:
        return tuple(archive.members)


def read_npz_column(path: str | PathLike[str], key: str) -> NDArray[Any]:
    """Read one array with an entry per sample from an `.npz` file, such as `split`.

    Args:
        path: the file.
        key: the name of the array.

    Returns:
        A read-only array [samples] of numbers or text.

    Example:
        >>> import tempfile
        >>> file = Path(tempfile.mkdtemp()) / "pets.npz"
        >>> np.savez(file, view_image=np.ones((2, 3)), split=np.array(["base", "novel"]))
        >>> read_npz_column(file, "split").tolist()
        ['base', 'novel']
    """
    with _naming(Path(path)), _open_archive(Path(path)) as archive:
        if key not in archive.members:
            raise FewviewError(f"no array {key!r}; it has {shorten(archive.members, 12)}")
        column = archive.column(key)
        views = [name for name in archive.members if name.startswith("view_")]
        if views:
            n_samples = archive.shape(views[0])[:1]
            if column.shape != n_samples:
                raise FewviewError(f"{key} has {len(column)} entries for {n_samples[0]} samples")
        column.flags.writeable = False
        return column


# ------------------------------------------------------------------ errors


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Put the name of the file in front of messages, and let nothing but FewviewError out."""
    try:
        yield
    except FewviewError as error:
        message = str(error)
        if message.startswith(str(path)):
            raise
        raise FewviewError(f"{path}: {message}") from error.__cause__
    except MemoryError:
        raise FewviewError(f"{path}: does not fit into memory") from None
    except (OSError, ValueError) as error:  # ValueError: names that the file system cannot have
        reason = getattr(error, "strerror", None) or error
        raise FewviewError(f"{path}: {reason}") from error


def _unsupported(suffix: str) -> str:
    if suffix in LATER:
        return f"{LATER[suffix]} files ({suffix}) are not supported yet; supported are {SUPPORTED}"
    return f"files ending in {suffix!r} are not supported; supported are {SUPPORTED}"


# ------------------------------------------------------------------ ids and labels as plain values


def _kind_of(values: Iterable[Any], what: str) -> str:
    """Say how labels or ids can be stored: int, float, bool, str, or json for anything mixed.

    json also takes what the plain kinds would change: integers beyond 64 bits, text with a NUL at
    its end (numpy drops it) or with lone surrogates (not UTF-8).
    """
    kinds: set[type] = set()
    exact = True
    for value in values:
        kinds.add(type(value))
        if type(value) is str:
            exact = exact and "\0" not in value and not re.search("[\ud800-\udfff]", value)
        elif type(value) is int:
            exact = exact and -(2**63) <= value < 2**63
        elif type(value) not in (bool, float):
            advice = (
                "data.with_labels([None if x is None else str(x) for x in data.labels])"
                if what == "label"
                else "ids=[str(x) for x in data.ids]"
            )
            raise FewviewError(
                f"{what} {value!r} is a {type(value).__name__}; files hold numbers and text only, "
                f"convert first: {advice}"
            )
    if len(kinds) > 1 or not exact:
        return "json"
    return next(iter(kinds)).__name__ if kinds else "str"


def _to_text(kind: str, value: Any) -> str:
    if kind == "json" or kind == "bool":
        return json.dumps(value)
    return repr(value) if kind == "float" else str(value)


def _from_text(kind: str, text: str) -> Hashable:
    """Undo `_to_text`; ValueError where the text is not of that kind."""
    if kind == "str":
        return text
    if kind in ("json", "bool"):
        value = json.loads(text)
        if not isinstance(value, (bool, int, float, str)):
            raise ValueError(text)
        return value
    return int(text) if kind == "int" else float(text)


def _to_array(kind: str, values: Sequence[Any]) -> NDArray[Any]:
    if kind == "json":
        values = [json.dumps(value) for value in values]
    dtypes: dict[str, type] = {"int": np.int64, "float": np.float64, "bool": np.bool_}
    return np.array(values, dtype=dtypes.get(kind, np.str_))


_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,17}")


def _infer(texts: Iterable[str | None]) -> Callable[[str], Hashable]:
    """Read texts as integers where all are written like one, else as they are."""
    known = [text for text in texts if text is not None]
    if known and all(_INTEGER.fullmatch(text) for text in known):
        return int
    return str


# ------------------------------------------------------------------ .npy and .npz


def _read_npy(stream: IO[bytes], size: int, header_only: bool = False) -> Any:
    """Read one array, never a pickle, and never more memory than there are bytes.

    Args:
        stream: at the start of the array.
        size: how many bytes the array takes with its header.
        header_only: return the shape instead.
    """
    try:
        version = np.lib.format.read_magic(stream)
        if version == (1, 0):
            shape, fortran, dtype = np.lib.format.read_array_header_1_0(stream)
        elif version == (2, 0):
            shape, fortran, dtype = np.lib.format.read_array_header_2_0(stream)
        else:
            raise ValueError(f"version {version}")
        start = stream.tell()
    except Exception as error:  # foreign bytes make header parsers fail in any way they like
        raise FewviewError(f"is not a numpy array, or is damaged ({error})") from error
    if dtype.hasobject:
        raise FewviewError(
            "holds pickled Python objects, which are never read since they can run code; "
            "save it as numbers or text, for instance array.astype(str)"
        )
    if dtype.kind not in "fiubU":
        raise FewviewError(f"holds {dtype} values; save it as numbers or text")
    count = math.prod(shape)
    if any(length < 0 for length in shape) or count * dtype.itemsize != size - start:
        raise FewviewError(
            f"claims shape {shape} of {dtype}, which does not fit its {size - start} bytes; the "
            "file is damaged or cut short, get it again"
        )
    if header_only:
        return shape
    content = stream.read()
    if len(content) != size - start:
        raise FewviewError("is cut short; get the file again")
    if not count:
        return np.empty(shape, dtype)
    if dtype.kind == "U":
        # numpy fails with a SystemError on numbers that are no characters, so look before.
        signs = np.frombuffer(content, np.dtype(np.uint32).newbyteorder(dtype.byteorder))
        if signs.max() > sys.maxunicode:
            raise FewviewError("holds bytes that are not text; the file is damaged")
    return np.ndarray(shape, dtype, buffer=content, order="F" if fortran else "C")


@dataclass(frozen=True)
class _Archive:
    """An open `.npz` file."""

    zip: zipfile.ZipFile
    size: int
    members: dict[str, zipfile.ZipInfo]

    def _read(self, key: str, header_only: bool) -> Any:
        info = self.members[key]
        # Deflate shrinks by a factor of 1032 at most, so more than that cannot be true.
        if info.compress_size > self.size or info.file_size > 1100 * info.compress_size + 1024:
            raise FewviewError(f"array {key} claims an impossible size; the file is damaged")
        try:
            with self.zip.open(info) as stream:
                return _read_npy(stream, info.file_size, header_only)
        except FewviewError as error:
            raise FewviewError(f"array {key} {error}") from error.__cause__
        except MemoryError:
            raise
        except Exception as error:  # zipfile, zlib, struct and more, depending on the damage
            raise FewviewError(f"array {key} is damaged ({error}); get the file again") from error

    def array(self, key: str) -> NDArray[Any]:
        array: NDArray[Any] = self._read(key, header_only=False)
        return array

    def shape(self, key: str) -> tuple[int, ...]:
        shape: tuple[int, ...] = self._read(key, header_only=True)
        return shape

    def column(self, key: str, kinds: str = "fiubU") -> NDArray[Any]:
        """Read an array with one entry per something."""
        array = self.array(key)
        if array.ndim != 1:
            raise FewviewError(f"array {key} has {array.ndim} dimension(s); it must have one")
        if array.dtype.kind not in kinds:
            raise FewviewError(f"array {key} holds {array.dtype} values; it must hold text")
        return array


@contextmanager
def _open_archive(path: Path) -> Iterator[_Archive]:
    if not path.is_file():
        raise FewviewError("no such file; check the path")
    try:
        archive = zipfile.ZipFile(path)
    except OSError:
        raise
    except Exception as error:  # BadZipFile, but also struct.error, NotImplementedError, ...
        raise FewviewError(
            f"is not an .npz file, or is damaged or cut short ({error}); get it again, or write it "
            "with MultiViewData.write or numpy.savez"
        ) from error
    with archive:
        members = {
            info.filename[: -len(".npy")]: info
            for info in archive.infolist()
            if info.filename.endswith(".npy")
        }
        yield _Archive(archive, path.stat().st_size, members)


def _read_npz(path: Path, partial_rows: PartialRows) -> MultiViewData:
    with _open_archive(path) as archive:
        names = [key[len("view_") :] for key in archive.members if key.startswith("view_")]
        if not names:
            raise FewviewError(
                f"no array is called view_<name> (it has {shorten(archive.members) or 'none'}); "
                "name the features of each view so, and the labels y"
            )
        blocks = {name: archive.array(f"view_{name}") for name in names}
        for name, block in blocks.items():
            if block.ndim != 2:
                raise FewviewError(
                    f"array view_{name} has {block.ndim} dimension(s); it must be 2-D, samples by "
                    "features"
                )
        columns = {
            name: archive.column(f"columns_{name}", "U").tolist()
            for name in names
            if f"columns_{name}" in archive.members
        }
        ids = _npz_values(archive, "ids") if "ids" in archive.members else None
        labels = _npz_labels(archive, len(blocks[names[0]]))
    return MultiViewData(
        blocks, labels, ids=ids, columns=columns, partial_rows=partial_rows, name=path.stem
    )


def _npz_values(archive: _Archive, key: str) -> list[Any]:
    """Read ids or classes, which are plain or, where they are of mixed kinds, json texts."""
    values: list[Any] = archive.column(key).tolist()
    if f"{key}_kind" not in archive.members:
        return values
    kind = archive.array(f"{key}_kind").tolist()
    if kind != "json":
        raise FewviewError(f"{key}_kind is {kind!r}; only 'json' is known")
    try:
        return [_from_text("json", value) for value in values]
    except (ValueError, TypeError, RecursionError):
        raise FewviewError(f"array {key} holds text that is not json") from None


def _npz_labels(archive: _Archive, n_samples: int) -> list[Any] | None:
    if "y" not in archive.members:
        return None
    y = archive.column("y")
    if len(y) != n_samples:
        raise FewviewError(f"y has {len(y)} labels for {n_samples} samples; give one per row")
    if "classes" not in archive.members or y.dtype.kind not in "iu":
        return list(y.tolist())
    classes = _npz_values(archive, "classes")
    wrong = np.flatnonzero((y < -1) | (y >= len(classes)))
    if wrong.size:
        raise FewviewError(
            f"y of row {wrong[0]} is {y[wrong[0]]}, which is no position in the {len(classes)} "
            "classes (-1 for unlabelled samples)"
        )
    return [None if code < 0 else classes[code] for code in y.tolist()]


def _write_npz(data: MultiViewData, path: Path) -> None:
    arrays: dict[str, NDArray[Any]] = {}
    for view, block in data.views.items():
        arrays[f"view_{view}"] = block
        if view in data.columns:
            names = list(data.columns[view])
            arrays[f"columns_{view}"] = np.array(names, dtype=np.str_)
            if arrays[f"columns_{view}"].tolist() != names:
                raise FewviewError(f"view {view!r}: a column name ends in NUL; rename it")
    if data.ids is not None:
        ids = data.ids.tolist()
        kind = _kind_of(ids, "id")
        arrays["ids"] = _to_array(kind, ids)
        if kind == "json":
            arrays["ids_kind"] = np.array("json")
    if data.labels is not None:
        labels = data.labels.tolist()
        kind = _kind_of((label for label in labels if label is not None), "label")
        if kind == "int" and None not in labels:
            arrays["y"] = _to_array(kind, labels)
        else:
            classes, codes = data.classes.tolist(), data.codes
            if kind == "json":
                # Coded by what is written, so that 1, 1.0 and True stay what they are.
                texts = [None if label is None else json.dumps(label) for label in labels]
                unique = dict.fromkeys([None, *texts])
                place = {text: index - 1 for index, text in enumerate(unique)}
                codes = np.array([place[text] for text in texts], dtype=np.int64)
                classes = [json.loads(text) for text in unique if text is not None]
            arrays["y"] = codes
            arrays["classes"] = _to_array(kind, classes)
            if kind == "json":
                arrays["classes_kind"] = np.array("json")
    with replacing(path) as temporary, zipfile.ZipFile(temporary, "w") as archive:
        for key, array in arrays.items():
            # A fixed date makes equal data equal files.
            info = zipfile.ZipInfo(f"{key}.npy", date_time=(1980, 1, 1, 0, 0, 0))
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = 0o644 << 16
            with archive.open(info, "w", force_zip64=True) as stream:
                np.lib.format.write_array(stream, array, allow_pickle=False)


# ------------------------------------------------------------------ folders: what is in them


@dataclass(frozen=True)
class _Manifest:
    """What `fewview.json` says; without that file, nothing."""

    views: dict[str, dict[str, Any]] = field(default_factory=dict)
    ids: str | None = None
    labels: str | None = None
    known: bool = False


@dataclass(frozen=True)
class _RawKeys:
    """Keys as a file has them; from csv they are text that is still to be understood."""

    where: str
    values: list[Any]
    text: bool
    lines: list[int] | None = None


@dataclass(frozen=True)
class _RawTable:
    keys: _RawKeys | None
    block: FloatArray
    columns: tuple[str, ...] | None


def _read_folder(path: Path, partial_rows: PartialRows) -> MultiViewData:
    files: dict[str, Path] = {}
    for entry in sorted(path.iterdir()):
        if entry.suffix.lower() not in TABLES or entry.name.startswith(".") or entry.is_dir():
            continue
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
    order = _read_keys(id_file) if id_file else None
    views = [*manifest.views, *(view for view in files if view not in manifest.views)]
    tables = {view: _read_table(files[view], manifest.views.get(view)) for view in views}
    raw_labels = _read_label_file(label_file) if label_file else None
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
    labels = None
    if raw_labels is not None:
        labels = KeyedLabels(convert(raw_labels[0]), _labels(*raw_labels, manifest.labels))
    data = join_tables(
        joined,
        labels,
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
    sources: Sequence[_RawKeys], order: _RawKeys | None, manifest: _Manifest
) -> Callable[[_RawKeys], Keys]:
    """Decide, over all tables together, how ids are to be understood."""
    everything = [*sources, *([order] if order is not None else [])]
    kind = {"none": "int", None: None}.get(manifest.ids, manifest.ids)
    as_text: Callable[[str], Hashable] = str
    if kind is None:
        typed = [value for keys in everything if not keys.text for value in keys.values]
        if not any(isinstance(value, str) for value in typed):
            as_text = _infer(value for keys in everything if keys.text for value in keys.values)

    def convert(keys: _RawKeys) -> Keys:
        values: list[Any] = []
        for index, value in enumerate(keys.values):
            try:
                if kind is not None and (keys.text or kind == "json"):
                    value = _from_text(kind, value)
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


def _labels(keys: _RawKeys, values: Sequence[Any], kind: str | None) -> list[Hashable]:
    if kind is None:
        if not keys.text:
            return list(values)
        known = [None if value in MISSING else value for value in values]
        read_one = _infer(known)
        return [None if value is None else read_one(value) for value in known]
    labels: list[Hashable] = []
    for index, value in enumerate(values):
        try:
            labels.append(_from_text(kind, value) if keys.text or kind == "json" else value)
        except (ValueError, TypeError, RecursionError):
            line = f"line {keys.lines[index]}" if keys.lines else f"row {index}"
            raise FewviewError(
                f"{keys.where}: {line} has label {value!r}, but {MANIFEST} says that labels are "
                f"{kind}; correct it, or delete {MANIFEST}"
            ) from None
    return labels


# ------------------------------------------------------------------ folders: tables of each format


def _read_table(file: Path, known: dict[str, Any] | None) -> _RawTable:
    with _naming(file):
        if file.suffix.lower() == ".npy":
            with file.open("rb") as stream:
                array = _read_npy(stream, file.stat().st_size)
            if array.ndim != 2:
                raise FewviewError(
                    f"has {array.ndim} dimension(s); it must be 2-D, samples by features"
                )
            if array.dtype.kind == "U":
                raise FewviewError("holds text; features must be numbers")
            columns = None if known is None else known["columns"]
            return _RawTable(None, _as_float(array), None if columns is None else tuple(columns))
        if file.suffix.lower() == ".csv":
            dtype = None if known is None else known["dtype"]
            table = _read_csv_table(file, dtype)
        else:
            table = _read_parquet_table(file)
        if not table.columns:
            raise FewviewError("has no columns besides 'id'; remove the file")
        if known is not None and known["columns"] is None:
            return _RawTable(table.keys, table.block, None)
        return table


def _read_keys(file: Path) -> _RawKeys:
    with _naming(file):
        keys, _ = _read_columns(file, None)
        return keys


def _read_label_file(file: Path) -> tuple[_RawKeys, list[Any]]:
    with _naming(file):
        return _read_columns(file, "label")


def _read_columns(file: Path, other: str | None) -> tuple[_RawKeys, list[Any]]:
    """Read the key and perhaps one more column of a csv or parquet file."""
    if file.suffix.lower() == ".npy":
        raise FewviewError("must be a .csv or .parquet file")
    if file.suffix.lower() == ".parquet":
        table = _parquet(file)
        names = list(table.column_names)
        ids = table.column(_place(names, DEFAULT_KEY)).to_pylist()
        values = [] if other is None else table.column(_place(names, other)).to_pylist()
        return _RawKeys(file.name, ids, text=False), values
    lines = _csv_lines(file)
    _, header = next(lines)
    place = _place(header, DEFAULT_KEY)
    second = None if other is None else _place(header, other)
    rows = list(lines)
    ids = [cells[place] for _, cells in rows]
    values = [] if second is None else [cells[second] for _, cells in rows]
    return _RawKeys(file.name, ids, text=True, lines=[number for number, _ in rows]), values


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


def _read_csv_table(file: Path, dtype: str | None) -> _RawTable:
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
    return _RawTable(_RawKeys(file.name, ids, text=True, lines=numbers), block, tuple(columns))


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


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise FewviewError(
            "parquet files need pyarrow, which is not installed: pip install 'fewview[frames]'"
        ) from None
    return pyarrow, pyarrow.parquet


def _parquet(file: Path) -> Any:
    _, parquet = _pyarrow()
    try:
        # Not read_table, which reads meaning into folder names such as year=2020.
        with parquet.ParquetFile(file) as source:
            return source.read()
    except MemoryError:
        raise
    except Exception as error:
        raise FewviewError(
            f"is not a parquet file, or is damaged or cut short ({error}); get it again"
        ) from error


def _read_parquet_table(file: Path) -> _RawTable:
    pyarrow, _ = _pyarrow()
    table = _parquet(file)
    names = list(table.column_names)
    place = _place(names, DEFAULT_KEY)
    ids = table.column(place).to_pylist()
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
    keys = _RawKeys(file.name, ids, text=False)
    block = np.column_stack(features) if features else np.empty((len(ids), 0))
    return _RawTable(keys, _as_float(block), tuple(columns))


# ------------------------------------------------------------------ folders: writing


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


def _write_folder(data: MultiViewData, path: Path, suffix: str) -> None:
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
    id_kind = _kind_of(ids, "id")
    label_kind = None
    if data.labels is not None:
        labels = data.labels.tolist()
        label_kind = _kind_of((label for label in labels if label is not None), "label")
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
    write_columns = _write_parquet_columns if suffix == ".parquet" else _write_csv_columns
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


_Columns = dict[str, tuple[str, list[Any]]]
_Block = tuple[Sequence[str], FloatArray]


def _write_csv_columns(file: Path, columns: _Columns, block: _Block | None) -> None:
    names, features = block if block is not None else ((), None)
    with file.open("x", encoding="utf-8", newline="") as stream:
        stream.write(",".join(_cell(name) for name in (*columns, *names)) + "\n")
        texts = [[_cell(_to_text(kind, v)) for v in values] for kind, values in columns.values()]
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


def _write_parquet_columns(file: Path, columns: _Columns, block: _Block | None) -> None:
    pyarrow, parquet = _pyarrow()
    arrays = []
    for kind, values in columns.values():
        array = _to_array(kind, values)
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


_FILE_READERS: dict[str, Callable[[Path, PartialRows], MultiViewData]] = {".npz": _read_npz}
_WRITERS: dict[str, Callable[[MultiViewData, Path], None]] = {
    "npz": _write_npz,
    "csv": lambda data, path: _write_folder(data, path, ".csv"),
    "parquet": lambda data, path: _write_folder(data, path, ".parquet"),
    "npy": lambda data, path: _write_folder(data, path, ".npy"),
}
