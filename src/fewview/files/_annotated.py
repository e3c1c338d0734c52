"""`.h5ad` (AnnData) and `.h5mu` (MuData) files, by their specifications, with h5py alone.

**`.h5ad`**: `X` is a view called `X`, every block of `obsm` (array, sparse matrix or data frame) is
a view under its name; a row of NaN means that the sample lacks the view. **`.h5mu`**: the `X` of
every modality is a view; `obsmap` says which of its rows belongs to which sample, 0 that the sample
lacks the modality.

In both, `obs` names the samples, `var` the columns (names "0", "1", ... are no names), and labels
are a column of `obs`: `label`, or the one that is asked for; in `.h5mu` also `modality:column`, for
a column of a modality's own `obs`. Data frame columns may be numbers, text, categorical or
nullable; matrices dense, CSR or CSC. `layers`, `raw`, `obsp` and the like are not read.

`write_*` add `uns/fewview`, a JSON text with what the formats cannot say (order of views, kinds of
ids and labels, number types), so that reading gives back exactly what was written.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import fewview.files._guarded as foreign
import fewview.files._hdf5 as hdf5
from fewview.files._kinds import KINDS, code_labels, from_text, kind_of, to_array, to_text
from fewview.ground._errors import FewviewError, FewviewWarning, shorten
from fewview.ground._whole_files import replacing
from fewview.samples._data import MultiViewData, PartialRows

LABEL = "label"
MANIFEST = "fewview"


def read_h5ad(
    path: Path, partial_rows: PartialRows = "error", labels: str | None = None
) -> MultiViewData:
    """Read an `.h5ad` file, in a child process.

    Args:
        path: the file.
        partial_rows: see `MultiViewData`.
        labels: the column of `obs` with the labels; by default `label`, where there is one.
    """
    content = foreign.load("h5ad", [path], labels=labels)
    return MultiViewData(**content, partial_rows=partial_rows, name=path.stem)


def read_h5mu(
    path: Path, partial_rows: PartialRows = "error", labels: str | None = None
) -> MultiViewData:
    """Read an `.h5mu` file, in a child process.

    Args:
        path: the file.
        partial_rows: see `MultiViewData`.
        labels: the column of `obs` with the labels, or `modality:column`; by default `label`,
            where there is one.
    """
    content = foreign.load("h5mu", [path], labels=labels)
    return MultiViewData(**content, partial_rows=partial_rows, name=path.stem)


# ------------------------------------------------------------------ reading, in the child process


def import_parsers(paths: Sequence[Path]) -> None:
    """Import what reading needs, before limits hold (in the child process)."""
    del paths
    import h5py  # noqa: F401


def load_h5ad(paths: Sequence[Path], memory: int, labels: str | None) -> dict[str, Any]:
    """Read an `.h5ad` file (in the child process) into the arguments of `MultiViewData`."""
    with hdf5.opened(paths[0]) as file:
        _refuse_other(file, "anndata", "h5ad")
        obs = _frame(file, "obs")
        index = _index(obs, memory)
        views: dict[str, NDArray[Any]] = {}
        columns: dict[str, list[str]] = {}
        matrix = hdf5.member(file, "X")
        # Old files keep "no X" as an empty group, or as an empty data set.
        if matrix is not None and not _is_nothing(matrix):
            views["X"], _ = _matrix(matrix, len(index), memory)
            columns |= _variable_names(file, "X", views["X"].shape[1], memory)
        blocks = hdf5.member(file, "obsm")
        for name in _keys(blocks):
            if name in views:
                raise FewviewError("obsm holds a block 'X' beside X itself; rename it")
            views[name], names = _matrix(hdf5.member(blocks, name), len(index), memory)
            if names is not None:
                columns[name] = names
        if not views:
            raise FewviewError("holds neither X nor blocks in obsm, so there is no view")
        return _content(file, views, columns, index, _Labels(obs, None, {}), labels, memory)


def load_h5mu(paths: Sequence[Path], memory: int, labels: str | None) -> dict[str, Any]:
    """Read an `.h5mu` file (in the child process) into the arguments of `MultiViewData`."""
    with hdf5.opened(paths[0]) as file:
        _refuse_other(file, "MuData", "h5mu")
        axis = file.attrs.get("axis", 0)
        if axis != 0:
            raise FewviewError(
                f"its modalities share the other axis (axis={axis}), so that rows are not the same "
                "samples; fewview needs modalities of the same samples (axis=0)"
            )
        modalities = hdf5.member(file, "mod")
        if modalities is None or not hdf5.is_group(modalities) or not _keys(modalities):
            raise FewviewError("holds no modalities (group 'mod')")
        index = _index(_frame(file, "obs"), memory)
        views: dict[str, NDArray[Any]] = {}
        columns: dict[str, list[str]] = {}
        rows: dict[str, NDArray[Any]] = {}
        frames: dict[str, Any] = {}
        for name in _modality_order(modalities):
            part = hdf5.member(modalities, name)
            frames[name] = _frame(part, "obs")
            own = _index(frames[name], memory)
            matrix = hdf5.member(part, "X")
            if matrix is None or _is_nothing(matrix):
                raise FewviewError(f"modality {name!r} has no X; remove the modality")
            block, _ = _matrix(matrix, len(own), memory)
            rows[name] = _rows(file, name, index, own, memory)
            if len(index) * block.shape[1] * 8 > memory:
                raise MemoryError
            if block.dtype.kind != "f":
                wide = block.dtype.itemsize > 2
                block = block.astype(np.float64 if wide else np.float32)
            whole = np.full((len(index), block.shape[1]), np.nan, dtype=block.dtype)
            there = rows[name] >= 0
            whole[there] = block[rows[name][there]]
            views[name] = whole
            columns |= _variable_names(part, name, block.shape[1], memory)
        sources = _Labels(_frame(file, "obs"), frames, rows)
        return _content(file, views, columns, index, sources, labels, memory)


def _content(
    file: Any,
    views: dict[str, NDArray[Any]],
    columns: dict[str, list[str]],
    index: list[Any],
    sources: _Labels,
    labels: str | None,
    memory: int,
) -> dict[str, Any]:
    """Put together what was found, with what `uns/fewview` says about it."""
    manifest = _manifest(file, memory)
    ids: list[Any] | None = index
    kind = None
    if manifest is not None:
        order = [view["name"] for view in manifest["views"] if view["name"] in views]
        views = {name: views[name] for name in [*order, *(v for v in views if v not in order)]}
        for view in manifest["views"]:
            name = view["name"]
            if name not in views:
                continue
            columns.pop(name, None)
            if view["columns"] is not None and len(view["columns"]) == views[name].shape[1]:
                columns[name] = view["columns"]
        kind = manifest["labels"]
        ids = None
        if manifest["ids"] != "none":
            ids = [_known(manifest["ids"], value, "id") for value in index]
    found = sources.read(labels, memory, quiet=manifest is not None)
    if found is not None and kind == "json" and labels is None:
        found = [None if value is None else _known("json", value, "label") for value in found]
    return {"views": views, "labels": found, "ids": ids, "columns": columns}


def _known(kind: str, value: Any, what: str) -> Any:
    try:
        return from_text(kind, value)
    except (ValueError, TypeError, RecursionError):
        raise FewviewError(
            f"{what} {value!r} does not fit uns/{MANIFEST}, which says that {what}s are {kind}; "
            f"remove uns/{MANIFEST}"
        ) from None


def _manifest(file: Any, memory: int) -> dict[str, Any] | None:
    unstructured = hdf5.member(file, "uns")
    if unstructured is None or not hdf5.is_group(unstructured):
        return None
    item = hdf5.member(unstructured, MANIFEST)
    if item is None:
        return None
    try:
        manifest: dict[str, Any] = json.loads(hdf5.text(item, memory))
        valid = (
            manifest["version"] == 1
            and manifest["ids"] in (*KINDS, "none")
            and manifest["labels"] in (*KINDS, None)
            and all(isinstance(view["name"], str) for view in manifest["views"])
            and all(
                view["columns"] is None or all(isinstance(name, str) for name in view["columns"])
                for view in manifest["views"]
            )
        )
    except (ValueError, KeyError, TypeError, RecursionError):
        valid = False
    if not valid:
        raise FewviewError(
            f"uns/{MANIFEST} is damaged or from another version of fewview; remove it"
        )
    return manifest


def _refuse_other(file: Any, encoding: str, suffix: str) -> None:
    """Refuse a MuData file called .h5ad, and the other way round."""
    found = hdf5.attribute(file, "encoding-type")
    if isinstance(found, str) and found != encoding:
        raise FewviewError(f"holds {found} data; a .{suffix} file holds {encoding} data, rename it")


def _keys(group: Any) -> list[str]:
    if group is None:
        return []
    if not hdf5.is_group(group):
        raise FewviewError(f"{group.name} is not a group")
    return list(group.keys())


def _frame(group: Any, name: str) -> Any:
    frame = hdf5.member(group, name)
    if frame is None:
        raise FewviewError(f"no group {name!r} in {group.name}; the file is incomplete")
    if not hdf5.is_group(frame):
        raise FewviewError(
            f"{frame.name} is written in an old way; read the file with anndata and write it again"
        )
    return frame


def _index(frame: Any, memory: int) -> list[Any]:
    name = hdf5.attribute(frame, "_index")
    item = hdf5.member(frame, name if isinstance(name, str) else "_index")
    if item is None:
        raise FewviewError(f"{frame.name} has no index, so that its rows have no names")
    return _column(item, memory)


def _column_names(frame: Any) -> list[str]:
    index = hdf5.attribute(frame, "_index")
    return [name for name in _keys(frame) if name not in (index, "_index", "__categories")]


def _column(item: Any, memory: int, inside: bool = False) -> list[Any]:
    """Read a column of a data frame: numbers, text, categorical (not `inside` one) or nullable."""
    if not hdf5.is_group(item):
        codes = hdf5.values(item, memory)
        if "categories" not in item.attrs:
            return codes
        # Before version 0.8 of anndata the names lay in a group beside the columns.
        aside = hdf5.member(item.parent, "__categories")
        names = None if aside is None else hdf5.member(aside, item.name.rsplit("/", 1)[-1])
        if names is None:
            raise FewviewError(f"{item.name} is categorical, but its categories are not there")
        return _decoded(codes, hdf5.values(names, memory), item.name)
    encoding = hdf5.attribute(item, "encoding-type")
    if encoding == "categorical" and not inside:
        return _decoded(
            hdf5.values(_need(item, "codes"), memory),
            _column(_need(item, "categories"), memory, inside=True),
            item.name,
        )
    if encoding in ("nullable-integer", "nullable-boolean", "nullable-string-array"):
        found = hdf5.values(_need(item, "values"), memory)
        mask = hdf5.values(_need(item, "mask"), memory)
        if len(found) != len(mask):
            raise FewviewError(f"{item.name} has {len(found)} values, but a mask of {len(mask)}")
        return [None if unknown else value for value, unknown in zip(found, mask, strict=True)]
    raise FewviewError(f"{item.name} is of a kind that fewview does not know ({encoding!r})")


def _need(group: Any, name: str) -> Any:
    item = hdf5.member(group, name)
    if item is None:
        raise FewviewError(f"{group.name} has no {name}; the file is incomplete")
    return item


def _decoded(codes: list[Any], names: list[Any], where: str) -> list[Any]:
    for code in codes:
        if not isinstance(code, int) or not -1 <= code < len(names):
            raise FewviewError(f"{where} has the code {code} for {len(names)} categories")
    return [None if code < 0 else names[code] for code in codes]


def _is_nothing(item: Any) -> bool:
    if hdf5.is_group(item):
        return bool(hdf5.attribute(item, "encoding-type") == "null")
    return bool(item.shape is None)


def _matrix(item: Any, n_rows: int, memory: int) -> tuple[NDArray[Any], list[str] | None]:
    """Read a block [rows, width], dense, sparse or a data frame, and its column names if any."""
    names = None
    if not hdf5.is_group(item):
        block = hdf5.numbers(item, memory, 2)
    else:
        encoding = hdf5.attribute(item, "encoding-type")
        if encoding in ("csr_matrix", "csc_matrix"):
            block = _dense(item, encoding, memory)
        elif encoding == "dataframe":
            block, names = _frame_block(item, n_rows, memory)
        else:
            raise FewviewError(
                f"{item.name} is of a kind that fewview does not know ({encoding!r}); views are "
                "dense or sparse matrices or data frames, remove it or convert it with anndata"
            )
    if len(block) != n_rows:
        raise FewviewError(f"{item.name} has {len(block)} rows for {n_rows} samples")
    return block, names


def _dense(group: Any, encoding: str, memory: int) -> NDArray[Any]:
    shape = tuple(int(length) for length in np.ravel(group.attrs.get("shape", ())))
    if len(shape) != 2 or min(shape) < 0:
        raise FewviewError(f"{group.name} has the shape {shape}; it must have rows and columns")
    data = hdf5.numbers(_need(group, "data"), memory, 1)
    indices = hdf5.numbers(_need(group, "indices"), memory, 1)
    pointers = hdf5.numbers(_need(group, "indptr"), memory, 1)
    return dense_matrix(
        group.name, shape, data, indices, pointers, encoding == "csr_matrix", memory
    )


def dense_matrix(
    where: str,
    shape: tuple[int, int],
    data: NDArray[Any],
    indices: NDArray[Any],
    pointers: NDArray[Any],
    by_rows: bool,
    memory: int,
) -> NDArray[Any]:
    """Fill a compressed sparse matrix into a dense one, [rows, columns], after checking it.

    Args:
        where: how messages call it.
        shape: rows and columns.
        data: the entries that are stored; those that occur twice are added.
        indices: their columns (by rows) or rows (by columns).
        pointers: where in `data` every row (column) begins, and where the last one ends.
        by_rows: compressed by rows (CSR) rather than by columns (CSC).
        memory: how many bytes the result may take.

    Example:
        >>> dense_matrix(
        ...     "X", (2, 3), np.array([5.0, 6.0]), np.array([0, 2]), np.array([0, 1, 2]), True, 100
        ... ).tolist()
        [[5.0, 0.0, 0.0], [0.0, 0.0, 6.0]]
    """
    dtype = np.dtype(np.uint8) if data.dtype.kind == "b" else data.dtype
    major, minor = shape if by_rows else shape[::-1]
    valid = (
        indices.dtype.kind in "iu"
        and pointers.dtype.kind in "iu"
        and len(pointers) == major + 1
        and len(indices) == len(data)
        and pointers[0] == 0
        and pointers[-1] == len(data)
        and bool((pointers[1:] >= pointers[:-1]).all())
        and (len(indices) == 0 or (int(indices.min()) >= 0 and int(indices.max()) < minor))
    )
    if not valid:
        raise FewviewError(f"{where} is not a valid sparse matrix; the file is damaged")
    if major * minor * dtype.itemsize > memory:
        raise MemoryError
    out = np.zeros((major, minor), dtype=dtype)
    counts = (pointers[1:] - pointers[:-1]).astype(np.int64)
    places = np.repeat(np.arange(major), counts)
    np.add.at(out, (places, indices.astype(np.int64)), data.astype(dtype))
    return out if by_rows else out.T


def _frame_block(frame: Any, n_rows: int, memory: int) -> tuple[NDArray[Any], list[str]]:
    order = frame.attrs.get("column-order", ())
    names = [str(name) for name in np.ravel(order)]
    known = _column_names(frame)
    if sorted(names) != sorted(known):
        raise FewviewError(f"{frame.name} lists other columns than it has; the file is damaged")
    if len(names) * n_rows * 8 > memory:
        raise MemoryError
    columns = []
    for name in names:
        values = _column(hdf5.member(frame, name), memory)
        if not all(value is None or isinstance(value, (bool, int, float)) for value in values):
            raise FewviewError(f"{frame.name}/{name} holds text; features must be numbers")
        if len(values) != n_rows:
            raise FewviewError(f"{frame.name}/{name} has {len(values)} rows for {n_rows} samples")
        columns.append(np.array(values, dtype=np.float64))  # None becomes NaN
    return np.array(columns).T.reshape(n_rows, len(names)), names


def _variable_names(group: Any, view: str, width: int, memory: int) -> dict[str, list[str]]:
    frame = hdf5.member(group, "var")
    if frame is None or not hdf5.is_group(frame):
        return {}
    names = [str(name) for name in _index(frame, memory)]
    if len(names) != width:
        raise FewviewError(f"{frame.name} names {len(names)} columns, X has {width}")
    if names == [str(number) for number in range(width)]:
        return {}  # what anndata writes where there are no names
    if len(set(names)) != width:
        twice = next(name for place, name in enumerate(names) if name in names[:place])
        raise FewviewError(
            f"view {view!r}: the name {twice!r} occurs twice in {frame.name}; make the names "
            "unique first (var_names_make_unique() in anndata)"
        )
    return {view: names}


def _modality_order(modalities: Any) -> list[str]:
    names = _keys(modalities)
    order = [str(name) for name in np.ravel(modalities.attrs.get("mod-order", ()))]
    return order if sorted(order) == sorted(names) else names


def _rows(file: Any, name: str, index: list[Any], own: list[Any], memory: int) -> NDArray[Any]:
    """Say which row of a modality every sample has, -1 where it has none."""
    maps = hdf5.member(file, "obsmap")
    item = None if maps is None else hdf5.member(maps, name)
    if item is None:  # as in files of the first versions: rows are matched by their names
        place = {value: row for row, value in enumerate(own)}
        if len(place) != len(own):
            raise FewviewError(f"modality {name!r}: names of rows occur twice, and no obsmap")
        unknown = [value for value in own if value not in set(index)]
        if unknown:
            raise FewviewError(f"modality {name!r}: {shorten(unknown)} not in obs")
        return np.array([place.get(value, -1) for value in index], dtype=np.int64)
    numbers = hdf5.numbers(item, memory)
    if numbers.size != len(index) or numbers.dtype.kind not in "iu":
        raise FewviewError(f"{item.name} has {numbers.size} entries for {len(index)} samples")
    rows = np.ravel(numbers).astype(np.int64) - 1
    used = rows[rows >= 0]
    if (rows < -1).any() or (used >= len(own)).any():
        raise FewviewError(f"{item.name} names rows that modality {name!r} does not have")
    if len(np.unique(used)) != len(used):
        raise FewviewError(f"{item.name} gives one row of {name!r} to two samples")
    return rows


class _Labels:
    """Where labels may come from: `obs`, and in MuData also the `obs` of every modality."""

    def __init__(self, obs: Any, frames: dict[str, Any] | None, rows: dict[str, Any]) -> None:
        self.obs, self.frames, self.rows = obs, frames or {}, rows

    def names(self) -> list[str]:
        own = [
            f"{part}:{name}" for part in self.frames for name in _column_names(self.frames[part])
        ]
        mine = _column_names(self.obs)
        return [*mine, *(name for name in own if name not in mine)]

    def read(self, wanted: str | None, memory: int, quiet: bool) -> list[Any] | None:
        names = self.names()
        if wanted is None and LABEL not in names:
            if names and not quiet:
                warnings.warn(
                    f"read without labels: obs has no column {LABEL!r}. Name the one that holds "
                    f"them (labels=..., fewview data convert --labels ...): {shorten(names, 20)}",
                    FewviewWarning,
                    stacklevel=2,
                )
            return None
        name = LABEL if wanted is None else wanted
        if name not in names:
            raise FewviewError(
                f"obs has no column {name!r} for the labels; "
                + (f"it has {shorten(names, 20)}" if names else "it has no columns")
            )
        if name in _column_names(self.obs):
            return _column(hdf5.member(self.obs, name), memory)
        part, _, column = name.partition(":")
        if part not in self.frames or column not in _column_names(self.frames[part]):
            part, column = next(
                (part, name[len(part) + 1 :])
                for part in self.frames
                if name.startswith(f"{part}:") and name[len(part) + 1 :] in self.frames[part]
            )
        values = _column(hdf5.member(self.frames[part], column), memory)
        rows = self.rows[part].tolist()
        if any(row >= len(values) for row in rows):
            raise FewviewError(f"column {name!r} has only {len(values)} entries")
        return [None if row < 0 else values[row] for row in rows]


# ------------------------------------------------------------------ writing


def write_h5ad(data: MultiViewData, path: Path) -> None:
    """Write an `.h5ad` file: a view called `X` becomes `X`, the others blocks of `obsm`."""
    with replacing(path) as temporary, _created(temporary) as file:
        _encode(file, "anndata", "0.1.0")
        width = data.view_dims.get("X", 0)
        _write_frame(file, "obs", _written_ids(data), _written_labels(data))
        _write_frame(file, "var", _written_columns(data, "X", width), {})
        blocks = _group(file, "obsm")
        for view, block in data.views.items():
            _write_array(*((file, "X") if view == "X" else (blocks, view)), block)
        for name in ("layers", "obsp", "varm", "varp"):
            _group(file, name)
        _write_manifest(file, data)


def write_h5mu(data: MultiViewData, path: Path) -> None:
    """Write an `.h5mu` file: a modality per view, with the rows of the samples that have it."""
    from fewview._version import __version__

    ids = _written_ids(data)
    with replacing(path) as temporary:
        with _created(temporary, userblock_size=512) as file:
            _encode(file, "MuData", "0.1.0")
            file.attrs["encoder"] = "fewview"
            file.attrs["encoder-version"] = __version__
            file.attrs["axis"] = 0
            _write_frame(file, "obs", ids, _written_labels(data))
            every = {v: _written_columns(data, v, width) for v, width in data.view_dims.items()}
            _write_frame(file, "var", [name for names in every.values() for name in names], {})
            groups = {name: _group(file, name) for name in ("obsm", "varm", "obsmap", "varmap")}
            for name in ("obsp", "varp"):
                _group(file, name)
            modalities = file.create_group("mod")
            total, start = sum(data.view_dims.values()), 0
            for place, (view, block) in enumerate(data.views.items()):
                there = data.mask[:, place]
                part = modalities.create_group(view)
                _encode(part, "anndata", "0.1.0")
                _write_frame(part, "obs", [ids[row] for row in np.flatnonzero(there)], {})
                _write_frame(part, "var", every[view], {})
                _write_array(part, "X", block[there])
                for name in ("layers", "obsm", "obsp", "varm", "varp", "uns"):
                    _group(part, name)
                mine = np.zeros(total, dtype=bool)
                mine[start : start + block.shape[1]] = True
                start += block.shape[1]
                for axis, marks in (("obs", there), ("var", mine)):
                    numbers = np.where(marks, np.cumsum(marks), 0).astype(np.uint32)
                    _write_array(groups[f"{axis}map"], view, numbers)
                    _write_array(groups[f"{axis}m"], view, marks.reshape(-1, 1))
            modalities.attrs["mod-order"] = list(data.view_names)
            _write_manifest(file, data)
        with temporary.open("r+b") as stream:
            told = f"MuData (format-version=0.1.0;creator=fewview;creator-version={__version__})"
            stream.write(told.encode("ascii"))


def _created(path: Path, **options: Any) -> Any:
    import h5py

    return h5py.File(path, "w", **options)


def _encode(item: Any, kind: str, version: str) -> None:
    item.attrs["encoding-type"] = kind
    item.attrs["encoding-version"] = version


def _group(parent: Any, name: str) -> Any:
    group = parent.create_group(name)
    _encode(group, "dict", "0.1.0")
    return group


def _write_array(parent: Any, name: str, array: NDArray[Any]) -> None:
    options = {"compression": "gzip", "shuffle": True} if array.size > 64 else {}
    _encode(parent.create_dataset(name, data=array, **options), "array", "0.2.0")


def _write_texts(parent: Any, name: str, texts: Sequence[str]) -> None:
    import h5py

    values = np.array([*texts, None], dtype=object)[:-1]  # an array of objects even where empty
    item = parent.create_dataset(name, data=values, dtype=h5py.string_dtype())
    _encode(item, "string-array", "0.2.0")


def _write_frame(
    parent: Any, name: str, index: Sequence[str], columns: dict[str, tuple[Any, Any]]
) -> None:
    frame = parent.create_group(name)
    _encode(frame, "dataframe", "0.2.0")
    frame.attrs["_index"] = "_index"
    frame.attrs["column-order"] = list(columns)
    _write_texts(frame, "_index", index)
    for column, (codes, categories) in columns.items():
        if categories is None:
            _write_array(frame, column, codes)
            continue
        group = frame.create_group(column)
        _encode(group, "categorical", "0.2.0")
        group.attrs["ordered"] = False
        _write_array(group, "codes", codes)
        if categories.dtype.kind == "U":
            _write_texts(group, "categories", categories.tolist())
        else:
            _write_array(group, "categories", categories)


def _written_ids(data: MultiViewData) -> list[str]:
    ids = list(range(len(data))) if data.ids is None else data.ids.tolist()
    kind = kind_of(ids, "id")
    return [to_text(kind, value) for value in ids]


def _written_labels(data: MultiViewData) -> dict[str, tuple[Any, Any]]:
    """Plain integers as they are, all others categorical."""
    if data.labels is None:
        return {}
    kind, codes, classes = code_labels(data)
    if kind == "int" and -1 not in codes:
        return {LABEL: (to_array(kind, data.labels.tolist()), None)}
    size = next(t for t in (np.int8, np.int16, np.int32) if len(classes) <= np.iinfo(t).max)
    return {LABEL: (codes.astype(size), to_array(kind, classes))}


def _written_columns(data: MultiViewData, view: str, width: int) -> list[str]:
    names = list(data.columns.get(view, [f"{view}:{number}" for number in range(width)]))
    for name in names:
        if "\0" in name or any("\ud800" <= sign <= "\udfff" for sign in name):
            raise FewviewError(
                f"view {view!r}: column {name!r} has a sign that HDF5 cannot keep; rename it"
            )
    return names


def _write_manifest(file: Any, data: MultiViewData) -> None:
    labels = None if data.labels is None else code_labels(data)[0]
    manifest = {
        "version": 1,
        "views": [
            {
                "name": view,
                "columns": list(data.columns[view]) if view in data.columns else None,
            }
            for view in data.view_names
        ],
        "ids": "none" if data.ids is None else kind_of(data.ids.tolist(), "id"),
        "labels": labels,
    }
    item = _group(file, "uns").create_dataset(MANIFEST, data=json.dumps(manifest))
    _encode(item, "string", "0.2.0")
