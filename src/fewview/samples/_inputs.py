"""What users pass as X and y, turned into `MultiViewData`.

Samples may be `MultiViewData`, one 2-D array or sparse matrix, a dict of arrays, frames or sparse
matrices, or an object that looks like MuData or AnnData. Labels are checked as scikit-learn does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.utils import assert_all_finite, check_array, column_or_1d
from sklearn.utils.multiclass import check_classification_targets

from fewview.errors import FewviewError
from fewview.files._file_contents import Keys, Table, Tables
from fewview.samples._data import MultiViewData
from fewview.samples._frames import index_kind


def as_data(X: Any, y: Any = None, like: MultiViewData | None = None) -> MultiViewData:
    """Turn what users pass as X (and y) into `MultiViewData`.

    `like` is a set whose columns and categories were learnt before.

    Frames in a dict are joined by key where they have one (a column `id` or an index of their
    own), else by position. A MuData-like object has `mod` (name -> AnnData-like), an AnnData-like
    one has `X`, `obs_names` and `var_names`; samples that a modality lacks miss that view.

    One sample may be given as a dict of dicts (column -> value), of 1-D arrays or of Series; a view
    that is None is missing.

    Labels are one per sample; for joined frames a dict, Series or frame with the keys; for a
    MuData-like object also the name of a column of `obs`.
    """
    if _is_one_sample(X):
        X = {view: _one_row(view, value) for view, value in X.items() if value is not None}
    if isinstance(X, MultiViewData):
        data = X
    elif issparse(X):  # before dicts: one of scipy's formats is a dict
        data = MultiViewData({"view0": _checked_array(X).tocsr()})
    elif isinstance(getattr(X, "mod", None), Mapping):
        data = _from_modalities(X.mod, X.obs_names)
        y = _column(X, y)
    elif all(hasattr(X, name) for name in ("X", "obs_names", "var_names")):
        data = _from_modalities({"view0": X}, X.obs_names)
        y = _column(X, y)
    elif isinstance(X, Mapping) and X and all(_has_key(frame) for frame in X.values()):
        return _from_keyed_frames(X, y, like)
    elif is_plain(X):
        data = MultiViewData(_checked_array(X))
    else:
        data = MultiViewData(X, like=like)
    return data if y is None else data.with_labels(as_labels(y))


@dataclass(frozen=True)
class _Row:
    """One row of a table, as a frame of any library would be."""

    columns: tuple[str, ...]
    values: tuple[Any, ...]

    def to_numpy(self) -> NDArray[Any]:
        out = np.empty((1, len(self.values)), dtype=object)
        out[0] = self.values
        return out


def _is_one_sample(X: Any) -> bool:
    """Whether X is a dict of rows: dicts of values, 1-D arrays or Series; None where missing."""
    if not isinstance(X, Mapping) or issparse(X):
        return False
    rows = [value for value in X.values() if value is not None]
    return bool(rows) and all(_is_row(value) for value in rows)


def _is_row(value: Any) -> bool:
    if hasattr(value, "columns") or issparse(value) or hasattr(value, "view_names"):
        return False
    if isinstance(value, Mapping):
        return all(np.ndim(cell) == 0 for cell in value.values())
    try:
        return np.ndim(value) == 1 and len(value) > 0 and np.ndim(value[0:1]) == 1
    except (ValueError, TypeError):
        return False


def _one_row(view: str, value: Any) -> Any:
    if isinstance(value, Mapping):
        return _Row(tuple(map(str, value)), tuple(value.values()))
    index = getattr(value, "index", None)
    if index is not None and not callable(index):  # a Series, which has names
        return _Row(tuple(map(str, index)), tuple(value.tolist()))
    return np.asarray(value)[None]


def is_plain(X: Any) -> bool:
    """Whether X is one 2-D array, list of rows or sparse matrix, without column names."""
    if issparse(X):
        return True
    if isinstance(X, (MultiViewData, Mapping, np.ma.MaskedArray)) or hasattr(X, "columns"):
        return False
    return not (isinstance(X, (list, tuple)) and len(X) > 0 and all(map(_is_table, X)))


def _is_table(value: Any) -> bool:
    if issparse(value) or hasattr(value, "columns"):
        return True
    try:
        return np.ndim(value) == 2
    except ValueError:
        return False


def _checked_array(X: Any) -> Any:
    """Check one array as every scikit-learn estimator does, with its messages."""
    try:
        return check_array(X, accept_sparse=True, dtype="numeric", input_name="X")
    except FewviewError:
        raise
    except ValueError as error:
        raise FewviewError(str(error)) from None


def as_labels(y: Any) -> Any:
    """Check labels: one per sample, finite, discrete."""
    if isinstance(y, (str, bytes)):
        raise FewviewError(f"labels are the text {y!r}; give one label per sample")
    array = np.asarray(y) if hasattr(y, "__array__") or hasattr(y, "shape") else None
    if array is None:
        values = list(y) if np.iterable(y) else y
        numbers = isinstance(values, list) and all(isinstance(value, float) for value in values)
        array = np.array(values) if numbers else None
    if array is None:
        return y
    try:
        array = column_or_1d(array, warn=True)
        if array.dtype.kind == "f":
            assert_all_finite(array, input_name="y", allow_nan=True)
            check_classification_targets(array[~np.isnan(array)])
    except ValueError as error:
        raise FewviewError(str(error)) from None
    return array


# ------------------------------------------------------------------ frames


def _has_key(value: Any) -> bool:
    """Whether a frame says which sample a row is: a column `id`, or an index of its own."""
    columns = getattr(value, "columns", None)
    if columns is None or issparse(value):
        return False
    if "id" in list(columns):
        return True
    index = getattr(value, "index", None)
    return index is not None and not callable(index) and index_kind(index) == "index"


def _from_keyed_frames(
    frames: Mapping[str, Any], y: Any, like: MultiViewData | None
) -> MultiViewData:
    """Join by key; rows keep their order where all tables have the same rows in the same order."""
    keyed = isinstance(y, Mapping) or hasattr(y, "columns")
    keyed = keyed or (hasattr(y, "index") and not isinstance(y, (list, tuple)))
    orders = [_keys(frame) for frame in frames.values()]
    same = all(order == orders[0] for order in orders)
    if y is not None and not keyed and not same:
        raise FewviewError(
            "the tables have different rows and are joined by key, so that a plain list of labels "
            "has no order to follow; give y as a dict id -> label, a Series or a frame with the key"
        )
    data = MultiViewData.from_frames(frames, labels=y if keyed else None, like=like)
    if same and data.ids is not None:
        place = {key: row for row, key in enumerate(data.ids.tolist())}
        data = data[np.array([place[key] for key in orders[0]], dtype=np.int64)]
    return data if y is None or keyed else data.with_labels(as_labels(y))


def _keys(frame: Any) -> list[Any]:
    column = frame["id"] if "id" in list(frame.columns) else frame.index
    return list(column.to_list() if hasattr(column, "to_list") else column)


# ------------------------------------------------------------------ MuData and AnnData


def _from_modalities(modalities: Mapping[str, Any], names: Any) -> MultiViewData:
    tables: dict[str, Table] = {}
    for view, part in modalities.items():
        block = part.X.toarray() if hasattr(part.X, "toarray") else np.asarray(part.X)
        keys = Keys(f"modality {str(view)!r}", [str(name) for name in part.obs_names])
        columns = tuple(str(name) for name in part.var_names)
        if block.ndim != 2 or block.shape != (len(keys.ids), len(columns)):
            raise FewviewError(
                f"{keys.where}: X has shape {block.shape}, its names say "
                f"({len(keys.ids)}, {len(columns)})"
            )
        tables[str(view)] = Table(keys, block.astype(np.float64), columns)
    order = Keys("obs_names", [str(name) for name in names])
    return MultiViewData.from_contents(Tables(tables, order=order, trusted=True))


def _column(X: Any, y: Any) -> Any:
    if not isinstance(y, str):
        return y
    obs = getattr(X, "obs", None)
    if obs is None or y not in list(obs.columns):
        raise FewviewError(f"obs has no column {y!r}; give its name or one label per sample")
    return list(obs[y])
