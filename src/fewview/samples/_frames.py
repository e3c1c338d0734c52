"""Tables out of pandas, polars and other frames, through narwhals, which is imported only here.

What the key of a frame is, which of its columns are features, and what labels may look like.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from fewview.errors import FewviewError, FewviewWarning, shorten
from fewview.files._file_contents import DEFAULT_KEY, KeyedLabels, Keys, Table, Tables
from fewview.samples._blocks import as_block
from fewview.samples._labels import plain, repeated


def frame_tables(
    frames: Mapping[str, Any], labels: Any, key: str | None, name: str | None
) -> Tables:
    """Take the keys off frames; see `MultiViewData.from_frames`.

    A plain row number as the index is refused where a column of all tables looks like a forgotten
    key.
    """
    if not isinstance(frames, Mapping) or not frames:
        raise FewviewError(
            "from_frames needs a dict of view name -> table with at least one table, such as "
            '{"rna": frame}'
        )
    import narwhals as nw

    tables: dict[str, Table] = {}
    kinds: dict[str, str] = {}
    for view, frame in frames.items():
        where = f"view {str(view)!r}"
        if str(view) in tables:
            raise FewviewError(f"{where} is given twice; rename one")
        keys, features, kinds[where] = _split_key(where, frame, key)
        if not keys.ids:
            raise FewviewError(f"{where}: the table has no rows; drop the view")
        native = nw.to_native(features, pass_through=True)
        if nw.dependencies.is_pandas_dataframe(native):
            features = native  # narwhals makes numbers of dates beside whole numbers with gaps
        try:
            block, columns, texts = as_block(str(view), features)
        except FewviewError:
            raise
        except Exception as error:  # a frame library may fail in its own ways on odd columns
            raise FewviewError(
                f"{where}: its columns cannot be turned into numbers ({error})"
            ) from error
        tables[str(view)] = Table(keys, block, columns, texts)
    if len(tables) > 1 and set(kinds.values()) == {"row numbers"}:
        _refuse_forgotten_key(tables)
    keyed = None
    if labels is not None:
        keyed, kinds["labels"] = _read_labels(labels, key)
    _check_row_numbers(kinds, [len(table.keys.ids) for table in tables.values()])
    return Tables(tables, keyed, name=name)


def _check_row_numbers(kinds: Mapping[str, str], counts: Sequence[int]) -> None:
    """Row numbers are keys only where every table has nothing else."""
    numbered = [where for where, kind in kinds.items() if kind == "row numbers"]
    named = [where for where, kind in kinds.items() if kind == "column"]
    if numbered and named:
        raise FewviewError(
            f"{numbered[0]} has no key column, only row numbers, while {named[0]} has one; add the "
            "key column or set it as the index"
        )
    if len(numbered) > 1 and len(numbered) == len(kinds) and len(set(counts)) > 1:
        warnings.warn(
            "tables of different lengths are matched by row number, since they have neither a "
            "column 'id' nor an index of their own; give key= if that is not meant",
            FewviewWarning,
            stacklevel=4,
        )


def _split_key(where: str, frame: Any, key: str | None) -> tuple[Keys, Any, str]:
    """Take the key off a frame; it was a "column", the "index" or mere "row numbers"."""
    import narwhals as nw

    frame = nw.to_native(frame, pass_through=True)
    index = None
    if nw.dependencies.is_pandas_like_dataframe(frame):
        # narwhals knows no index, and wants column names that are text and differ.
        index = frame.index
        frame = frame.set_axis(_distinct(where, [str(name) for name in frame.columns]), axis=1)
    elif hasattr(frame, "collect") and not hasattr(frame, "shape"):
        raise FewviewError(f"{where} is a lazy frame; collect() it first")
    try:
        table = nw.from_native(frame, eager_only=True)
    except (TypeError, ValueError) as error:
        if isinstance(error, ValueError):
            raise FewviewError(f"{where}: {error}") from None
        raise FewviewError(
            f"{where} is a {type(frame).__name__}; give a pandas or polars frame (for plain arrays "
            "use MultiViewData itself)"
        ) from None
    columns = _distinct(where, table.columns)
    wanted = key if key is not None else DEFAULT_KEY
    if wanted in columns:
        ids = _list(table.get_column(wanted).to_list())
        return Keys(where, ids), table.drop(wanted), "column"
    if index is not None and (key is None or key in index.names):
        level = index if key is None or index.nlevels == 1 else index.get_level_values(key)
        return Keys(where, _list(level.tolist())), table, index_kind(index)
    hint = "set key= to the column that identifies a sample" if key is None else "check key="
    raise FewviewError(
        f"{where}: no column {wanted!r} (it has {shorten(map(repr, columns))}); {hint}"
    )


def _refuse_forgotten_key(tables: Mapping[str, Table]) -> None:
    """Tables matched by row number alone, although a column of all of them looks like a key."""
    columns = [table.columns or () for table in tables.values()]
    for column in columns[0]:
        if not all(column in names for names in columns):
            continue
        values = [t.block[:, (t.columns or ()).index(column)] for t in tables.values()]
        if all(np.unique(v).size == v.size and (v == np.round(v)).all() for v in values):
            raise FewviewError(
                f"column {column!r} is in every table, with another whole number in every row, and "
                f"the tables have no other key; give key={column!r} to match rows by it, or rename "
                "it if it is a feature"
            )


def index_kind(index: Any) -> str:
    """Say whether a pandas index says something, or only numbers rows."""
    plain = type(index).__name__ == "RangeIndex" and (index.start, index.step) == (0, 1)
    return "row numbers" if plain and index.name is None else "index"


def _list(values: Iterable[Any]) -> list[Any]:
    return [plain(value) for value in values]


def _distinct(where: str, names: Sequence[str]) -> list[str]:
    for name in repeated(names):
        raise FewviewError(f"{where}: column {name!r} occurs twice; rename or drop one")
    return list(names)


def _read_labels(labels: Any, key: str | None) -> tuple[KeyedLabels, str]:
    import narwhals as nw

    if isinstance(labels, Mapping):
        return KeyedLabels(Keys("labels", _list(labels)), list(labels.values())), "dict"
    native = nw.to_native(labels, pass_through=True)
    if nw.dependencies.is_pandas_like_series(native):
        keys = Keys("labels", _list(native.index.tolist()))
        return KeyedLabels(keys, native.tolist()), index_kind(native.index)
    if not hasattr(native, "columns"):
        raise FewviewError(
            f"labels are a {type(labels).__name__}; tables are joined by key, so give labels with "
            "their keys: a frame, a pandas Series or a dict id -> label"
        )
    keys, rest, kind = _split_key("labels", native, key)
    if len(rest.columns) != 1:
        raise FewviewError(
            f"labels have {len(rest.columns)} columns besides the key"
            + (f" ({shorten(map(repr, rest.columns))})" if rest.columns else "")
            + "; give the key and one column with the labels"
        )
    return KeyedLabels(keys, rest.get_column(rest.columns[0]).to_list()), kind
