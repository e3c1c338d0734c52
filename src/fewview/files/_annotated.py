"""`.h5ad` (AnnData) and `.h5mu` (MuData) files, element by element with anndata.

`docs/formats.md` says what is read as what. `write_*` add `uns/fewview`, a note with what the
formats cannot say. The class `MuData` is not used: it puts samples into an order of its own.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fewview._version import __version__
from fewview.errors import FewviewError, FewviewWarning, check_count, check_extra, shorten
from fewview.files._file_contents import Contents
from fewview.files._guarded import load_contents
from fewview.files._hdf5 import Node, opened
from fewview.files._kinds import UNFIT, Note, code_labels, from_text, kind_of, to_array, to_text
from fewview.files._limits import dense_matrix
from fewview.ground._whole_files import replacing

LABEL = "label"
NOTE = "fewview"
PARSERS = ("anndata.io", "h5py", "pandas")
PACKED = {"compression": "gzip", "shuffle": True}
COLUMNS = ("categorical", "nullable-integer", "nullable-boolean", "nullable-string-array")


def read_h5ad(path: Path, labels: str | None) -> Contents:
    """Read an `.h5ad` file in a child process; `labels` is the column of `obs` with the labels."""
    _check_library()
    return load_contents(load_h5ad, PARSERS, "AnnData", path, labels)


def read_h5mu(path: Path, labels: str | None) -> Contents:
    """Read an `.h5mu` file in a child process; `labels` is a column, or `modality:column`."""
    _check_library()
    return load_contents(load_h5mu, PARSERS, "MuData", path, labels)


def _check_library() -> None:
    check_extra(".h5ad and .h5mu files", "anndata", "omics")


# ------------------------------------------------------------------ reading, in the child process


def load_h5ad(path: Path, memory: int, labels: str | None) -> dict[str, Any]:
    """Read an `.h5ad` file (in the child process) into the fields of `Contents`."""
    with opened(path, memory) as file:
        _refuse_other(file, "anndata", "h5ad")
        aside = file.member("uns")
        obs = _Frame(_need(file, "obs"), aside if aside is not None and aside.is_group else None)
        views: dict[str, NDArray[Any]] = {}
        columns: dict[str, list[str]] = {}
        matrix = file.member("X")
        # Old files keep "no X" as an empty group, or as an empty data set.
        if matrix is not None and not _is_nothing(matrix):
            views["X"], _ = _matrix(matrix, len(obs.index))
            columns |= _variable_names(file, "X", views["X"].shape[1])
        blocks = file.member("obsm")
        if blocks is not None and not blocks.is_group:
            views |= _old_blocks(blocks, len(obs.index))
            blocks = None
        for name in [] if blocks is None else blocks.names():
            if name in views:
                raise FewviewError("obsm holds a block 'X' beside X itself; rename it")
            views[name], names = _matrix(_need(blocks, name), len(obs.index))
            if names is not None:
                columns[name] = names
        if not views:
            raise FewviewError("holds neither X nor blocks in obsm, so there is no view")
        return _content(file, views, columns, obs, labels)


def load_h5mu(path: Path, memory: int, labels: str | None) -> dict[str, Any]:
    """Read an `.h5mu` file (in the child process) into the fields of `Contents`."""
    with opened(path, memory) as file:
        _refuse_other(file, "MuData", "h5mu")
        axis = file.item.attrs.get("axis", 0)
        if axis != 0:
            raise FewviewError(
                f"its modalities share the other axis (axis={axis}), so that rows are not the same "
                "samples; fewview needs modalities of the same samples (axis=0)"
            )
        modalities = file.member("mod")
        if modalities is None or not modalities.is_group or not modalities.names():
            raise FewviewError("holds no modalities (group 'mod')")
        obs = _Frame(_need(file, "obs"))
        views: dict[str, NDArray[Any]] = {}
        columns: dict[str, list[str]] = {}
        parts: dict[str, tuple[_Frame, NDArray[Any]]] = {}
        for name in _modality_order(modalities):
            part = _need(modalities, name)
            own = _Frame(_need(part, "obs"))
            matrix = part.member("X")
            if matrix is None or _is_nothing(matrix):
                raise FewviewError(f"modality {name!r} has no X; remove the modality")
            block, _ = _matrix(matrix, len(own.index))
            rows = _rows(file, name, obs.index, own.index)
            parts[name] = (own, rows)
            if len(rows) * block.shape[1] * 8 > memory:
                raise MemoryError
            if block.dtype.kind != "f":
                block = block.astype(np.float64 if block.dtype.itemsize > 2 else np.float32)
            views[name] = np.full((len(rows), block.shape[1]), np.nan, dtype=block.dtype)
            views[name][rows >= 0] = block[rows[rows >= 0]]
            columns |= _variable_names(part, name, block.shape[1])
        return _content(file, views, columns, obs, labels, parts)


def _content(
    file: Node,
    views: dict[str, NDArray[Any]],
    columns: dict[str, list[str]],
    obs: _Frame,
    labels: str | None,
    parts: dict[str, tuple[_Frame, NDArray[Any]]] | None = None,
) -> dict[str, Any]:
    """Put together what was found, with what `uns/fewview` says about it."""
    note = _note(file) or Note(ids="str")
    views = {name: views[name] for name in note.views if name in views} | views
    for name in note.views.keys() & views:
        columns.pop(name, None)
        names = note.views[name]["columns"]
        if names is not None and len(names) == views[name].shape[1]:
            columns[name] = names
    ids = None
    if note.ids is not None and note.ids != "none":
        ids = [_typed(note.ids, value, "id") for value in obs.index]
    found = _labels(obs, parts or {}, labels, quiet=bool(note.views))
    if found is not None and note.labels == "json" and labels is None:
        found = [None if value is None else _typed("json", value, "label") for value in found]
    return {"views": views, "labels": found, "ids": ids, "columns": columns}


def _typed(kind: str, value: Any, what: str) -> Any:
    try:
        return from_text(kind, value)
    except UNFIT:
        raise FewviewError(
            f"{what} {value!r} does not fit uns/{NOTE}, which says that {what}s are {kind}; "
            f"remove uns/{NOTE}"
        ) from None


def _note(file: Node) -> Note | None:
    unstructured = file.member("uns")
    if unstructured is None or not unstructured.is_group:
        return None
    node = unstructured.member(NOTE)
    return None if node is None else Note.read(node.text(), f"uns/{NOTE}", "remove it")


def _refuse_other(file: Node, encoding: str, suffix: str) -> None:
    """Refuse a MuData file called .h5ad, and the other way round."""
    found = file.attribute("encoding-type")
    if isinstance(found, str) and found != encoding:
        raise FewviewError(f"holds {found} data; a .{suffix} file holds {encoding} data, rename it")


def _need(group: Node | None, name: str) -> Node:
    node = None if group is None else group.member(name)
    if node is None:
        where = "/" if group is None else group.name
        raise FewviewError(f"no group {name!r} in {where}; the file is incomplete")
    return node


def _element(node: Node) -> Any:
    """Let anndata read something that was looked through before."""
    from anndata.io import read_elem

    item = node.scanned()
    try:
        return read_elem(item)
    except (ValueError, KeyError) as error:
        raise FewviewError(
            f"{node.name} cannot be read ({error}); the file is damaged, get it again"
        ) from None
    except Exception as error:
        if type(error).__name__ != "IORegistryError":
            raise
        raise _unknown(node, str(error)) from None


def _unknown(node: Node, kind: object) -> FewviewError:
    return FewviewError(
        f"{node.name} is of a kind that fewview does not know ({kind}); views are dense or sparse "
        "matrices or data frames, columns numbers, text, categorical or nullable: remove it or "
        "convert it with anndata"
    )


class _Frame:
    """A data frame, of which only the columns that are needed are read."""

    def __init__(self, node: Node, names: Node | None = None) -> None:
        self.node = node
        self.aside = names  # where old files keep the names of categories
        if not node.is_group and node.item.dtype.names is None:
            raise FewviewError(f"{node.name} is no table; the file is damaged, get it again")

    @cached_property
    def _records(self) -> NDArray[Any] | None:
        """The rows, where they lie one after the other: so anndata wrote before version 0.7."""
        if self.node.is_group:
            return None
        self.node.check(1)
        records: NDArray[Any] = self.node.item[()]
        return records

    def _field(self, name: str) -> list[Any]:
        assert self._records is not None
        values = self._records[name]
        if values.ndim != 1 or values.dtype.kind not in "fiubSUO":
            raise _unknown(self.node, f"column {name!r} of {values.dtype}")
        return [v.decode("utf-8") if isinstance(v, bytes) else v for v in values.tolist()]

    @cached_property
    def index(self) -> list[Any]:
        if self._records is not None:
            own = self._records.dtype.names or ()
            return [
                str(v)
                for v in self._field(next(n for n in ("index", "_index", own[0]) if n in own))
            ]
        name = self.node.attribute("_index")
        node = self.node.member(name if isinstance(name, str) else "_index")
        if node is None:
            raise FewviewError(f"{self.node.name} has no index, so that its rows have no names")
        return _values(node)

    @property
    def names(self) -> list[str]:
        if self._records is not None:
            return [n for n in self._records.dtype.names or () if n not in ("index", "_index")]
        aside = (self.node.attribute("_index"), "_index", "__categories")
        return [name for name in self.node.names() if name not in aside]

    def column(self, name: str) -> list[Any]:
        if self._records is not None:
            values = self._field(name)
            node = None if self.aside is None else self.aside.member(f"{name}_categories")
            if node is None:
                return values
            known = node.values()
            if not all(isinstance(code, int) and -1 <= code < len(known) for code in values):
                raise FewviewError(f"{self.node.name}/{name} has codes that are no categories")
            return [None if code < 0 else known[code] for code in values]
        return _values(_need(self.node, name))


def _values(node: Node) -> list[Any]:
    """Read a column of a data frame; None where a value is unknown."""
    import pandas as pd

    if not node.is_group and "categories" not in node.item.attrs:
        return node.values()
    if not node.is_group:
        # Before version 0.8 of anndata the names lay in a group beside the columns.
        aside = Node(node.item.parent, node.memory).member("__categories")
        names = None if aside is None else aside.member(node.name.rsplit("/", 1)[-1])
        if names is None:
            raise FewviewError(f"{node.name} is categorical, but its categories are not there")
        codes, categories = node.values(), names.values()
        if not all(isinstance(code, int) and -1 <= code < len(categories) for code in codes):
            raise FewviewError(f"{node.name} has codes that are none of {len(categories)} names")
        return [None if code < 0 else categories[code] for code in codes]
    encoding = node.attribute("encoding-type")
    if encoding not in COLUMNS:
        raise _unknown(node, encoding)
    column = pd.Series(_element(node))
    return [
        None if unknown else value
        for value, unknown in zip(column.astype(object).tolist(), column.isna(), strict=True)
    ]


def _is_nothing(node: Node) -> bool:
    if node.is_group:
        return bool(node.attribute("encoding-type") == "null")
    return bool(node.item.shape is None)


def _old_blocks(node: Node, n_rows: int) -> dict[str, NDArray[Any]]:
    """Blocks of obsm as anndata wrote them before version 0.7: fields of one table."""
    if node.item.dtype.names is None:
        raise FewviewError(f"{node.name} is no table of blocks; the file is damaged, get it again")
    node.check(1)
    check_count(f"{node.name} has ", "rows", node.item.shape[0], n_rows)
    records = node.item[()]
    blocks = {name: np.asarray(records[name]) for name in records.dtype.names}
    for name, block in blocks.items():
        if block.ndim > 2 or block.dtype.kind not in "fiub":
            raise _unknown(node, f"block {name!r} of {block.dtype}")
    return {name: block.reshape(len(block), -1) for name, block in blocks.items()}


def _old_sparse(node: Node) -> NDArray[Any]:
    """A sparse matrix as anndata wrote it before version 0.7."""
    from scipy.sparse import csc_matrix, csr_matrix

    kinds = {"csr": csr_matrix, "csc": csc_matrix}
    kind, shape = node.attribute("h5sparse_format"), node.item.attrs.get("h5sparse_shape")
    if kind not in kinds or np.shape(shape) != (2,):
        raise _unknown(node, kind)
    matrix = kinds[kind](tuple(int(length) for length in shape))
    # Not through the constructor, which would fail in words of its own.
    matrix.data, matrix.indices, matrix.indptr = (
        _need(node, name).numbers(1) for name in ("data", "indices", "indptr")
    )
    return dense_matrix(node.name, matrix, node.memory)


def _matrix(node: Node, n_rows: int) -> tuple[NDArray[Any], list[str] | None]:
    """Read a block [rows, width], dense, sparse or a data frame, and its column names if any."""
    names = None
    encoding = node.attribute("encoding-type")
    if not node.is_group:
        block = node.numbers(2)
    elif encoding is None and "h5sparse_format" in node.item.attrs:
        block = _old_sparse(node)
    elif encoding in ("csr_matrix", "csc_matrix"):
        block = dense_matrix(node.name, _element(node), node.memory)
    elif encoding == "dataframe":
        block, names = _frame_block(node, n_rows)
    else:
        raise _unknown(node, encoding)
    check_count(f"{node.name} has ", "rows", len(block), n_rows)
    return block, names


def _frame_block(node: Node, n_rows: int) -> tuple[NDArray[Any], list[str]]:
    frame = _Frame(node)
    names = [str(name) for name in np.ravel(node.item.attrs.get("column-order", ()))]
    if sorted(names) != sorted(frame.names):
        raise FewviewError(f"{node.name} lists other columns than it has; the file is damaged")
    if len(names) * n_rows * 8 > node.memory:
        raise MemoryError
    block = np.empty((n_rows, len(names)))
    for place, name in enumerate(names):
        values = frame.column(name)
        if not all(value is None or isinstance(value, (bool, int, float)) for value in values):
            raise FewviewError(f"{node.name}/{name} holds text; features must be numbers")
        check_count(f"{node.name}/{name} has ", "rows", len(values), n_rows)
        block[:, place] = values  # None becomes NaN
    return block, names


def _variable_names(group: Node, view: str, width: int) -> dict[str, list[str]]:
    node = group.member("var")
    if node is None or (not node.is_group and node.item.dtype.names is None):
        return {}
    names = [str(name) for name in _Frame(node).index]
    if len(names) != width:
        raise FewviewError(f"{node.name} names {len(names)} columns, X has {width}")
    if names == [str(number) for number in range(width)]:
        return {}  # what anndata writes where there are no names
    if len(set(names)) != width:
        twice = next(name for place, name in enumerate(names) if name in names[:place])
        raise FewviewError(
            f"view {view!r}: the name {twice!r} occurs twice in {node.name}; make the names "
            "unique first (var_names_make_unique() in anndata)"
        )
    return {view: names}


def _modality_order(modalities: Node) -> list[str]:
    names = modalities.names()
    order = [str(name) for name in np.ravel(modalities.item.attrs.get("mod-order", ()))]
    return order if sorted(order) == sorted(names) else names


def _rows(file: Node, name: str, index: list[Any], own: list[Any]) -> NDArray[Any]:
    """Say which row of a modality every sample has, -1 where it has none."""
    maps = file.member("obsmap")
    node = None if maps is None else maps.member(name)
    if node is None:  # as in files of the first versions: rows are matched by their names
        place = {value: row for row, value in enumerate(own)}
        if len(place) != len(own):
            raise FewviewError(f"modality {name!r}: names of rows occur twice, and no obsmap")
        known = set(index)
        unknown = [value for value in own if value not in known]
        if unknown:
            raise FewviewError(f"modality {name!r}: {shorten(unknown)} not in obs")
        return np.array([place.get(value, -1) for value in index], dtype=np.int64)
    numbers = node.numbers()
    check_count(f"{node.name} has ", "entries", numbers.size, len(index))
    rows = np.ravel(numbers).astype(np.int64) - 1
    used = rows[rows >= 0]
    if (rows < -1).any() or (used >= len(own)).any():
        raise FewviewError(f"{node.name} names rows that modality {name!r} does not have")
    if len(np.unique(used)) != len(used):
        raise FewviewError(f"{node.name} gives one row of {name!r} to two samples")
    return rows


def _labels(
    obs: _Frame, parts: dict[str, tuple[_Frame, NDArray[Any]]], wanted: str | None, quiet: bool
) -> list[Any] | None:
    """Read labels from a column of `obs`, or in MuData of a modality's own."""
    sources = {name: (obs, name, np.arange(len(obs.index))) for name in obs.names}
    for part, (own, rows) in parts.items():
        for column in own.names:
            sources.setdefault(f"{part}:{column}", (own, column, rows))
    if wanted is None and LABEL not in sources:
        if sources and not quiet:
            warnings.warn(
                f"read without labels: obs has no column {LABEL!r}. Name the one that holds "
                f"them (labels=..., fewview data convert --labels ...): {shorten(sources, 20)}",
                FewviewWarning,
                stacklevel=2,
            )
        return None
    name = LABEL if wanted is None else wanted
    if name not in sources:
        found = f"it has {shorten(sources, 20)}" if sources else "it has no columns"
        raise FewviewError(f"obs has no column {name!r} for the labels; {found}")
    frame, column, rows = sources[name]
    values = frame.column(column)
    check_count(f"column {name!r} has ", "entries", len(values), len(frame.index), "rows")
    return [None if row < 0 else values[row] for row in rows.tolist()]


# ------------------------------------------------------------------ writing


def write_h5ad(contents: Contents, path: Path) -> None:
    """Write an `.h5ad` file: a view called `X` becomes `X`, the others blocks of `obsm`."""
    _check_library()
    blocks = dict(contents.views)
    matrix = blocks.pop("X", None)
    width = 0 if matrix is None else matrix.shape[1]
    obs = _frame(_written_ids(contents), _written_labels(contents))
    elements = _elements(obs, _frame(_written_columns(contents, "X", width)), matrix)
    with replacing(path) as temporary, _created(temporary, contents) as write:
        write("/", {**elements, "obsm": blocks}, "anndata")


def write_h5mu(contents: Contents, path: Path) -> None:
    """Write an `.h5mu` file: a modality per view, with the rows of the samples that have it."""
    _check_library()
    ids = np.array([*_written_ids(contents), None], dtype=object)[:-1]
    widths = {view: block.shape[1] for view, block in contents.views.items()}
    names = {view: _written_columns(contents, view, width) for view, width in widths.items()}
    owners = np.repeat(np.arange(len(widths)), list(widths.values()))
    # Of every modality: which samples it has, which columns of `var` are its own.
    there = {view: ~np.isnan(block).all(axis=1) for view, block in contents.views.items()}
    own = {view: owners == place for place, view in enumerate(widths)}
    modalities = {
        view: _elements(_frame(ids[there[view]]), _frame(names[view]), block[there[view]])
        for view, block in contents.views.items()
    }
    whole = {
        "obs": _frame(ids, _written_labels(contents)),
        "var": _frame([name for listed in names.values() for name in listed]),
        **{name: {} for name in ("uns", "obsp", "varp")},
    }
    for axis, marks in (("obs", there), ("var", own)):
        whole[f"{axis}m"] = {view: mark.reshape(-1, 1) for view, mark in marks.items()}
        whole[f"{axis}map"] = {
            view: np.where(mark, np.cumsum(mark), 0).astype(np.uint32)
            for view, mark in marks.items()
        }
    with replacing(path) as temporary:
        with _created(temporary, contents, userblock_size=512) as write:
            file = write("/", whole, "MuData")
            file.attrs.update({"encoder": "fewview", "encoder-version": __version__, "axis": 0})
            file.create_group("mod").attrs["mod-order"] = list(names)
            for view, elements in modalities.items():
                write(f"mod/{view}", elements, "anndata")
        with temporary.open("r+b") as stream:
            told = f"MuData (format-version=0.1.0;creator=fewview;creator-version={__version__})"
            stream.write(told.encode("ascii"))


@contextmanager
def _created(
    path: Path, contents: Contents, **options: Any
) -> Iterator[Callable[[str, Any, str], Any]]:
    """Open a new file; what is yielded writes nested dicts into it. The note comes last."""
    import h5py
    from anndata.io import write_elem

    with h5py.File(path, "w", **options) as file:

        def write(place: str, elements: dict[str, Any], kind: str) -> Any:
            # Later anndatas take a name in a group, not a path.
            folder, _, name = place.partition("/")
            where, called = (file[folder], name) if folder else (file, place)
            write_elem(where, called, elements, dataset_kwargs=PACKED)
            file[place].attrs["encoding-type"] = kind
            return file[place]

        yield write
        write_elem(file["uns"], NOTE, Note.of(contents).write())


def _elements(obs: Any, var: Any, matrix: NDArray[Any] | None) -> dict[str, Any]:
    """What an AnnData object consists of, where it has nothing but a matrix."""
    empty: dict[str, Any] = {name: {} for name in ("layers", "obsm", "obsp", "varm", "varp", "uns")}
    return {"obs": obs, "var": var, **empty, **({} if matrix is None else {"X": matrix})}


def _frame(index: Any, columns: dict[str, Any] | None = None) -> Any:
    import pandas as pd

    return pd.DataFrame(columns or {}, index=pd.Index(index, dtype=object))


def _written_ids(contents: Contents) -> list[str]:
    kind = kind_of(contents.keys, "id")
    return [to_text(kind, value) for value in contents.keys]


def _written_labels(contents: Contents) -> dict[str, Any]:
    """Plain integers as they are, all others categorical."""
    import pandas as pd

    if contents.labels is None:
        return {}
    kind, codes, classes = code_labels(contents.labels)
    if classes is None:
        return {LABEL: codes}
    dtype = object if kind in ("str", "json") else None
    categories = pd.Index(to_array(kind, classes).tolist(), dtype=dtype)
    return {LABEL: pd.Categorical.from_codes(codes, categories)}


def _written_columns(contents: Contents, view: str, width: int) -> list[str]:
    names = list(contents.columns.get(view, [f"{view}:{number}" for number in range(width)]))
    for name in names:
        if "\0" in name or any("\ud800" <= sign <= "\udfff" for sign in name):
            raise FewviewError(
                f"view {view!r}: column {name!r} has a sign that HDF5 cannot keep; rename it"
            )
    return names
