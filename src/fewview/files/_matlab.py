"""MATLAB `.mat` files, v4 to v7.2 with scipy and v7.3 (which is HDF5) with h5py.

First a file becomes variables, then it is decided which of them are views and labels and which way
up they lie (`docs/formats.md` has the rules). `write_matlab` adds `fewview`, a JSON text, so that
reading gives back exactly what was written.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fewview.errors import FewviewError, FewviewWarning, shorten
from fewview.files._file_contents import Contents
from fewview.files._guarded import load_contents
from fewview.files._hdf5 import Node, opened
from fewview.files._kinds import are_texts, code_labels, kind_of
from fewview.files._limits import dense_matrix
from fewview.ground._whole_files import replacing

LABELS = ("Y", "y", "gt", "truelabel", "labels", "label", "gnd", "truth")
CELLS = "X"
# Names in files of incomplete views: one matrix per view, and which samples its rows are.
DATA, INDEX = "data", "index"
VIEW_NAMES = "view_names"
NOTE = "fewview"
TOO_DEEP = "a cell array in a cell array in a cell array"


def read_matlab(path: Path, labels: str | None) -> Contents:
    """Read a `.mat` file in a child process; `labels` is the variable that holds them."""
    parsers = ["scipy.sparse", "h5py" if _is_hdf5(path) else "scipy.io"]
    return load_contents(load_matlab, parsers, "MATLAB", path, labels)


# ------------------------------------------------------------------ reading, in the child process


@dataclass(frozen=True)
class _Refused:
    """A value that is never a view or a label."""

    kind: str


# What a variable can be: numbers, a list of cells or of texts, one text, or refused.
_Value = Any


def load_matlab(path: Path, memory: int, labels: str | None) -> dict[str, Any]:
    """Read a `.mat` file (in the child process) into the fields of `Contents`."""
    variables = _variables_of_hdf5(path, memory) if _is_hdf5(path) else _variables(path, memory)
    if not variables:
        raise FewviewError("holds no variables")
    if isinstance(variables.get(NOTE), str):
        return _as_written(variables, labels)
    label_name, found = _find_labels(variables, labels)
    count = None if found is None else len(found)
    places = _find_places(variables)
    if places is not None:
        # Incomplete files: which samples the rows of every view are.
        name = next(name for name in (DATA, CELLS) if isinstance(variables.get(name), list))
        blocks = _cell_views(name, variables[name], variables.get(VIEW_NAMES))
        return {"views": _placed(blocks, places, count), "labels": found}
    views = _find_views(variables, label_name, count)
    return {"views": views, "labels": found}


def _find_places(variables: Mapping[str, _Value]) -> list[NDArray[Any]] | None:
    """The cell array `index` with the samples that every view has, beside `data` or `X`."""
    places = variables.get(INDEX)
    cells = next((variables[n] for n in (DATA, CELLS) if isinstance(variables.get(n), list)), None)
    if not isinstance(places, list) or cells is None or len(places) != len(cells):
        return None
    if not all(isinstance(p, np.ndarray) and p.size == max(p.shape, default=0) for p in places):
        return None
    return [np.ravel(place) for place in places]


def _placed(
    blocks: Mapping[str, NDArray[Any]], places: Sequence[NDArray[Any]], count: int | None
) -> dict[str, NDArray[Any]]:
    """Rows of NaN where a view has no sample.

    A view has a row (or a column) per sample that `index` lists, counted from 1, or one per sample,
    of which those that are not listed count as missing.
    """
    total = count or max(int(place.max(initial=0)) for place in places)
    wholes = []
    for number, place in enumerate(places):
        called, whole = f"{INDEX}{{{number + 1}}}", place.astype(np.int64)
        if (whole != place).any() or len(set(whole.tolist())) != len(whole):
            raise FewviewError(f"{called} must list every sample once, by whole numbers")
        if len(whole) and (whole.min() < 1 or whole.max() > total):
            raise FewviewError(
                f"{called} lists sample {int(whole.max())}, and there are {total} labels; samples "
                "are counted from 1"
            )
        wholes.append(whole)
    pairs = [*zip(blocks.items(), wholes, strict=True)]
    # All views lie alike: rows or columns for the samples that are listed, or for all.
    ways = [(every, side) for every in (False, True) for side in (0, 1)]
    fitting = [
        (every, side)
        for every, side in ways
        if all(b.shape[side] == (total if every else len(whole)) for (_, b), whole in pairs)
    ]
    if not fitting:
        listed = ", ".join(f"{v} {_size(b)} with {len(whole)}" for (v, b), whole in pairs)
        raise FewviewError(
            f"views do not fit the samples that {INDEX} lists, of {total} ({listed}); all must "
            "have a row, or all a column, for every listed sample or for every sample"
        )
    every, side = fitting[0]
    out: dict[str, NDArray[Any]] = {}
    for (view, block), whole in pairs:
        upright = block.T if side else block
        kind = block.dtype if block.dtype.kind == "f" else np.float64
        out[view] = np.full((total, upright.shape[1]), np.nan, dtype=kind)
        out[view][whole - 1] = upright[whole - 1] if every else upright
    return out


def _is_hdf5(path: Path) -> bool:
    with path.open("rb") as stream:
        head = stream.read(520)
    return head[512:] == b"\x89HDF\r\n\x1a\n" or head[:8] == b"\x89HDF\r\n\x1a\n"


# ------------------------------------------------------------------ variables of v4 to v7.2


def _variables(path: Path, memory: int) -> dict[str, _Value]:
    from scipy.io import loadmat

    try:
        content = loadmat(path)
    except NotImplementedError as error:
        if "HDF" not in str(error):
            raise
        raise FewviewError("is a damaged MATLAB v7.3 file; get it again") from None
    return {
        name: _value(item, memory) for name, item in content.items() if not name.startswith("__")
    }


def _value(item: Any, memory: int, depth: int = 0) -> _Value:
    from scipy.io.matlab import MatlabFunction, MatlabObject, MatlabOpaque

    if isinstance(item, MatlabFunction):
        return _Refused("a function handle")
    if isinstance(item, (MatlabObject, MatlabOpaque)):
        return _Refused("an object")
    if hasattr(item, "tocsc"):
        if item.dtype.kind not in "fiub":
            return _Refused("complex numbers")
        return dense_matrix("a sparse matrix", item.tocsc(copy=False), memory)
    if not isinstance(item, np.ndarray):
        return _Refused(f"a {type(item).__name__}")
    if item.dtype.names is not None:
        return _Refused("a struct")
    if item.dtype == object:
        if depth > 1:
            return _Refused(TOO_DEEP)
        return [_value(cell, memory, depth + 1) for cell in item.ravel(order="F")]
    if item.dtype.kind == "U":
        texts = [str(text) for text in item.ravel()]
        return texts[0] if len(texts) == 1 else texts if texts else ""
    if item.dtype.kind not in "fiub":
        return _Refused("complex numbers" if item.dtype.kind == "c" else f"{item.dtype} values")
    return np.asarray(item)


# ------------------------------------------------------------------ variables of v7.3


def _variables_of_hdf5(path: Path, memory: int) -> dict[str, _Value]:
    with opened(path, memory) as file:
        names = [name for name in file.names() if not name.startswith("#")]
        return {name: _hdf5_value(file, file.member(name)) for name in names}


def _hdf5_value(file: Node, node: Node | None, depth: int = 0) -> _Value:
    assert node is not None  # its name was listed
    item, kind = node.item, node.attribute("MATLAB_class")
    if "MATLAB_sparse" in item.attrs:
        return _hdf5_sparse(node)
    if kind == "function_handle":
        return _Refused("a function handle")
    if "MATLAB_object_decode" in item.attrs:
        return _Refused("an object")
    if node.is_group:
        return _Refused("a struct" if kind in ("struct", None) else f"a {kind}")
    if item.attrs.get("MATLAB_empty"):
        return _hdf5_empty(node, kind)
    if kind == "cell":
        return _Refused(TOO_DEEP) if depth > 1 else _hdf5_cells(file, node, depth)
    if item.dtype.kind not in "fiub":
        return _Refused("complex numbers" if item.dtype.names else f"{item.dtype} values")
    array = node.numbers().T
    if kind != "char":
        return array
    if array.dtype.kind != "u" or array.ndim != 2:
        raise FewviewError(f"{node.name} is not valid text; the file is damaged")
    lines = [line.astype("<u2").tobytes().decode("utf-16-le", "surrogatepass") for line in array]
    return lines[0] if len(lines) == 1 else [line.rstrip() for line in lines]


def _hdf5_empty(node: Node, kind: Any) -> _Value:
    lengths = [int(length) for length in node.numbers(1)]
    if kind in ("char", "cell"):
        return "" if kind == "char" else []
    if min(lengths, default=0) < 0 or 0 not in lengths:
        raise FewviewError(f"{node.name} is empty, but has the shape {lengths}")
    return np.empty(lengths)


def _hdf5_cells(file: Node, node: Node, depth: int) -> list[_Value]:
    import h5py

    if h5py.check_ref_dtype(node.item.dtype) is not h5py.Reference:
        raise FewviewError(f"{node.name} is a cell array without cells; the file is damaged")
    node.check()
    if node.item.size * 16 > node.memory:
        raise MemoryError
    cells = []
    # HDF5 is stored the other way round, so that its order is MATLAB's.
    for reference in np.ravel(node.item[()]):
        if not reference:
            raise FewviewError(f"{node.name} has a cell that points nowhere; get the file again")
        cells.append(_hdf5_value(file, Node(file.item[reference], node.memory), depth + 1))
    return cells


def _hdf5_sparse(node: Node) -> NDArray[Any]:
    from scipy.sparse import csc_array

    # MATLAB leaves out data and ir where all entries are zero.
    parts = [node.member(name) if node.is_group else None for name in ("data", "ir", "jc")]
    data, indices, pointers = (np.empty(0, np.int64) if p is None else p.numbers(1) for p in parts)
    matrix = csc_array((int(node.item.attrs["MATLAB_sparse"]), max(len(pointers) - 1, 0)))
    # Not through the constructor, which would fail in words of its own.
    matrix.data = data if data.size else np.empty(0)
    matrix.indices, matrix.indptr = indices, pointers
    return dense_matrix(node.name, matrix, node.memory)


# ------------------------------------------------------------------ what the variables mean


def _find_labels(
    variables: Mapping[str, _Value], wanted: str | None
) -> tuple[str | None, list[Any] | None]:
    if wanted is not None:
        if wanted not in variables:
            raise FewviewError(
                f"no variable {wanted!r} for the labels; it has {shorten(variables, 20)}"
            )
        return wanted, _as_labels(wanted, variables[wanted])
    reasons = []
    for name in LABELS:
        if name in variables:
            try:
                return name, _as_labels(name, variables[name])
            except FewviewError as error:
                reasons.append(error)
    # With a matrix called Y there may simply be no labels; other names mean labels.
    if reasons and not (len(reasons) == 1 and isinstance(variables.get("Y"), np.ndarray)):
        raise reasons[0]
    return None, None


def _as_labels(name: str, value: _Value) -> list[Any]:
    """Understand a row or a column of numbers or texts as labels."""
    if isinstance(value, _Refused):
        raise FewviewError(
            f"variable {name} holds {value.kind}; labels must be a row or a column of numbers or "
            "texts"
        )
    if isinstance(value, str):
        return [value]
    if isinstance(value, np.ndarray):
        if value.size != max(value.shape, default=0):
            raise FewviewError(
                f"variable {name} is {_size(value)}; labels must be a row or a column with one "
                "label per sample (for a 0/1 matrix, save the number of the class instead)"
            )
        return [_number(number) for number in value.ravel().tolist()]
    if all(isinstance(cell, str) for cell in value):
        return list(value)
    several = [_as_labels(name, cell) for cell in value]
    if all(len(labels) == 1 for labels in several):
        return [labels[0] for labels in several]
    first = [label if label == label else None for label in several[0]]
    for number, labels in enumerate(several):
        if [label if label == label else None for label in labels] != first:
            raise FewviewError(
                f"variable {name} holds other labels for cell {number + 1} than for cell 1; rows "
                "of the views must be the same samples, save one column of labels"
            )
    return several[0]


def _number(value: Any) -> Any:
    """MATLAB's numbers are doubles; whole ones are meant as integers."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _find_views(
    variables: Mapping[str, _Value], label_name: str | None, n_samples: int | None
) -> dict[str, NDArray[Any]]:
    others = {name: value for name, value in variables.items() if name != label_name}
    cells = {
        name: value
        for name, value in others.items()
        if isinstance(value, list) and name != VIEW_NAMES
        if not all(isinstance(cell, str) for cell in value)
    }
    if len(cells) > 1 and CELLS not in cells:
        raise FewviewError(
            f"several cell arrays ({shorten(cells)}); call the one that holds the views {CELLS}"
        )
    if cells:
        name = CELLS if CELLS in cells else next(iter(cells))
        return _upright(_cell_views(name, cells[name], variables.get(VIEW_NAMES)), n_samples)
    if isinstance(variables.get(CELLS), _Refused):
        raise _refusal(CELLS, variables[CELLS])
    arrays = {name: value for name, value in others.items() if isinstance(value, np.ndarray)}
    matrices = {
        name: value
        for name, value in arrays.items()
        if value.ndim == 2 and (value.size > 1 if n_samples is None else n_samples in value.shape)
    }
    if not matrices:
        for name, value in variables.items():
            if isinstance(value, _Refused):
                raise _refusal(name, value)
        counted = (
            ""
            if n_samples is None
            else (f" with {n_samples} rows or columns, as many as there are labels in {label_name}")
        )
        raise FewviewError(
            f"no cell array {CELLS} and no matrix{counted}; it has {shorten(variables, 20)}"
        )
    left = [name for name, value in arrays.items() if min(value.shape) > 1 and name not in matrices]
    if left:
        warnings.warn(
            f"left out {shorten(left)}: not as many rows or columns as labels ({n_samples})",
            FewviewWarning,
            stacklevel=2,
        )
    return _upright(matrices, n_samples)


def _cell_views(name: str, cells: Sequence[_Value], names: _Value) -> dict[str, NDArray[Any]]:
    called = [f"view{number}" for number in range(len(cells))]
    if isinstance(names, str):
        names = [names]
    if isinstance(names, list) and all(isinstance(text, str) and text for text in names):
        if len(names) != len(cells) or len(set(names)) != len(names):
            raise FewviewError(
                f"{VIEW_NAMES} has {len(set(names))} different names for the {len(cells)} cells of "
                f"{name}"
            )
        called = list(names)
    for number, cell in enumerate(cells):
        if isinstance(cell, _Refused):
            raise _refusal(f"{name}{{{number + 1}}}", cell)
        if not isinstance(cell, np.ndarray) or cell.ndim != 2:
            raise FewviewError(f"{name}{{{number + 1}}} is not a matrix of numbers")
    if not called:
        raise FewviewError(f"the cell array {name} is empty; it must hold one matrix per view")
    return dict(zip(called, cells, strict=True))


def _refusal(name: str, value: _Refused) -> FewviewError:
    advice = "save its fields as variables: save(file, '-struct', name)"
    if value.kind != "a struct":
        advice = "save plain matrices"
    return FewviewError(f"variable {name} holds {value.kind}, which is never read; {advice}")


def _upright(blocks: Mapping[str, NDArray[Any]], n_samples: int | None) -> dict[str, NDArray[Any]]:
    """Turn views so that samples are rows."""
    if n_samples is None:
        rows = {block.shape[0] for block in blocks.values()}
        if len(rows) > 1 and len({block.shape[1] for block in blocks.values()}) > 1:
            listed = ", ".join(f"{name} {_size(block)}" for name, block in blocks.items())
            raise FewviewError(
                f"views have different numbers of rows and of columns ({listed}), and there are no "
                f"labels ({', '.join(LABELS[:4])}) to say what a sample is"
            )
        return {name: block if len(rows) == 1 else block.T for name, block in blocks.items()}
    for name, block in blocks.items():
        if n_samples not in block.shape:
            raise FewviewError(
                f"view {name!r} is {_size(block)}, but there are {n_samples} labels; one side must "
                "be as long as the labels"
            )
    square = [name for name, block in blocks.items() if block.shape[0] == block.shape[1]]
    sideways = {
        name: block.shape[1] == n_samples for name, block in blocks.items() if name not in square
    }
    agreed = len(set(sideways.values())) == 1
    if square and not agreed and n_samples > 1:
        warnings.warn(
            f"{shorten(square)}: as many rows as columns ({n_samples}), so that nothing says which "
            "are the samples; rows are taken for samples, save the matrix transposed if that is "
            "wrong",
            FewviewWarning,
            stacklevel=2,
        )
    lying = agreed and all(sideways.values())
    return {name: block.T if sideways.get(name, lying) else block for name, block in blocks.items()}


def _size(block: NDArray[Any]) -> str:
    return " x ".join(map(str, block.shape))


def _as_written(variables: Mapping[str, _Value], wanted: str | None) -> dict[str, Any]:
    """Read what `write_matlab` wrote."""
    try:
        note = json.loads(variables[NOTE])
        names, columns = note["views"], note["columns"]
        valid = (
            note["version"] == 1
            and are_texts(names)
            and len(set(names)) == len(names)
            and set(columns) <= set(names)
            and all(are_texts(listed) for listed in columns.values())
            and _are_plain(note["ids"])
            and _are_plain(note["classes"])
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        valid = False
    if not valid:
        raise FewviewError(
            f"variable {NOTE} is damaged or from another version of fewview; remove it"
        )
    cells = variables.get(CELLS)
    if not isinstance(cells, list) or len(cells) != len(names):
        raise FewviewError(f"{CELLS} is not the cell array that variable {NOTE} describes")
    views = _cell_views(CELLS, cells, names)
    labels = None
    if wanted is not None:
        labels = _find_labels(variables, wanted)[1]
    elif note["labels"]:
        found = variables.get(LABELS[0])
        if not isinstance(found, np.ndarray) or found.dtype.kind not in "iu":
            raise FewviewError(f"{LABELS[0]} does not hold the labels that {NOTE} describes")
        labels = found.ravel().tolist()
        if note["classes"] is not None:
            classes = [None, *note["classes"]]
            if not all(0 <= code < len(classes) for code in labels):
                raise FewviewError(f"{LABELS[0]} holds a number without a class in {NOTE}")
            labels = [classes[code] for code in labels]
    return {"views": views, "labels": labels, "ids": note["ids"], "columns": columns}


def _are_plain(values: Any) -> bool:
    return values is None or (
        isinstance(values, list) and all(isinstance(v, (bool, int, float, str)) for v in values)
    )


# ------------------------------------------------------------------ writing


def write_matlab(contents: Contents, path: Path) -> None:
    """Write a `.mat` file (v7): views in the cell array `X`, samples as rows, labels in `Y`.

    `Y` holds whole numbers as they are; other labels are numbered from 1 in the order of `classes`,
    with 0 for unknown ones.
    """
    from scipy.io import savemat
    from scipy.io.matlab import MatWriteError

    for view, block in contents.views.items():
        if block.nbytes >= 2**31:
            raise FewviewError(
                f"view {view!r} takes {block.nbytes / 2**30:.1f} GiB, more than the 2 GiB of a "
                "variable in this format; write .npz or .h5mu"
            )
    names = list(contents.views)
    variables: dict[str, Any] = {
        CELLS: _cell_array(list(contents.views.values()), row=True),
        VIEW_NAMES: _cell_array(names, row=True),
    }
    note: dict[str, Any] = {
        "version": 1,
        "views": names,
        "columns": {view: list(listed) for view, listed in contents.columns.items()},
        "ids": contents.ids,
        "labels": contents.labels is not None,
        "classes": None,
    }
    if contents.columns:
        named = [_cell_array(list(contents.columns.get(view, ()))) for view in names]
        variables["columns"] = _cell_array(named, row=True)
    if contents.ids is not None:
        variables["ids"] = _column_of(contents.ids, kind_of(contents.ids, "id"))
    if contents.labels is not None:
        kind, codes, classes = code_labels(contents.labels)
        variables[LABELS[0]] = codes.reshape(-1, 1) + (0 if classes is None else 1)
        if classes is not None:
            variables["classes"] = _column_of(classes, kind)
            note["classes"] = classes
    variables[NOTE] = json.dumps(note)
    with replacing(path) as temporary:
        try:
            savemat(temporary, variables, appendmat=False, do_compression=True)
        except MatWriteError as error:
            raise FewviewError(f"cannot be written as a MATLAB file ({error})") from error


def _column_of(values: Sequence[Any], kind: str) -> NDArray[Any]:
    if kind in ("int", "float", "bool"):
        return np.array(values).reshape(-1, 1)
    texts = values if kind == "str" else [json.dumps(value) for value in values]
    return _cell_array(list(texts))


def _cell_array(items: Sequence[Any], row: bool = False) -> NDArray[Any]:
    cells = np.empty((1, len(items)) if row else (len(items), 1), dtype=object)
    for number, item in enumerate(items):
        # MATLAB's text knows no lone surrogates; JSON in `fewview` keeps them.
        escaped = isinstance(item, str) and any("\ud800" <= sign <= "\udfff" for sign in item)
        cells.flat[number] = json.dumps(item) if escaped else item
    return cells
