"""Joining one table per view, with different rows, into one `MultiViewData` by a key.

The join itself knows nothing but keys and float blocks, so that the file readers use it too;
`join_frames` puts pandas, polars and other frames in front of it, through narwhals, which is
imported only there.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from numbers import Number
from typing import Any

import numpy as np

from fewview.ground._errors import FewviewError, FewviewWarning, shorten
from fewview.samples._data import (
    FloatArray,
    MultiViewData,
    PartialRows,
    _as_block,
    _plain,
    _settle_rows,
)

DEFAULT_KEY = "id"


@dataclass(frozen=True)
class Keys:
    """What identifies the rows of one table.

    Args:
        where: how messages call the table: `view 'rna'`, or the name of a file.
        ids: one key per row.
        lines: the line of the file that each row stands on, where there is a file.
    """

    where: str
    ids: Sequence[Any]
    lines: Sequence[int] | None = None

    def row(self, index: int) -> str:
        """Say where a row is, for messages."""
        return f"row {index}" if self.lines is None else f"line {self.lines[index]}"

    def rows(self, indices: Iterable[int]) -> str:
        """Say where some rows are and what they are called, for messages."""
        places = [int(index) for index in indices]
        word = "row" if self.lines is None else "line"
        found = shorten(places if self.lines is None else [self.lines[i] for i in places])
        called = shorten([self.ids[index] for index in places])
        return f"{word if len(places) == 1 else word + 's'} {found} (id {called})"


@dataclass(frozen=True)
class Table:
    """One view before the join: float block [rows, width], its keys and its column names."""

    keys: Keys
    block: FloatArray
    columns: tuple[str, ...] | None = None


@dataclass(frozen=True)
class KeyedLabels:
    """One label per key."""

    keys: Keys
    labels: Sequence[Hashable]


def join_tables(
    tables: Mapping[str, Table],
    labels: KeyedLabels | None = None,
    *,
    order: Keys | None = None,
    trusted: bool = False,
    partial_rows: PartialRows = "error",
    name: str | None = None,
) -> MultiViewData:
    """Outer-join tables by their keys; a sample that a table does not have lacks that view.

    Args:
        tables: view name -> table.
        labels: labels by key; samples without one get None.
        order: the samples in the order wanted. Without it they are sorted where they can be
            compared, else in the order in which they first appear.
        trusted: the keys are known to belong together, so that keys of different kinds and tables
            that share no key are as meant.
        partial_rows: see `MultiViewData`.
        name: see `MultiViewData`.

    Example:
        >>> left = Table(Keys("view 'a'", ["x", "y"]), np.array([[1.0], [2.0]]))
        >>> right = Table(Keys("view 'b'", ["y"]), np.array([[3.0]]))
        >>> data = join_tables({"a": left, "b": right})
        >>> data.ids.tolist(), data.mask.tolist()
        (['x', 'y'], [[True, False], [True, True]])
    """
    if not tables:
        raise FewviewError("no tables given; give at least one view")
    sources = [table.keys for table in tables.values()]
    extra = [part for part in (order, labels.keys if labels else None) if part is not None]
    for keys in (*extra, *sources):
        _check_keys(keys)
    if not trusted:
        _check_kinds([*sources, *extra])
        _check_overlap(sources)
    found: dict[Any, str] = {}
    for keys in sources:
        for value in keys.ids:
            found.setdefault(value, keys.where)
    if order is None:
        ids = _in_order(found)
    else:
        ids = list(order.ids)
        unlisted = set(found).difference(ids)
        if unlisted:
            first = next(value for value in found if value in unlisted)
            raise FewviewError(
                f"{found[first]}: {_ids(v for v in found if v in unlisted)} not in {order.where}; "
                "add them there, or remove that file to have every sample taken"
            )
    place = {value: index for index, value in enumerate(ids)}
    blocks: dict[str, FloatArray] = {}
    for view, table in tables.items():
        block = np.full((len(ids), table.block.shape[1]), np.nan, dtype=table.block.dtype)
        # Settled before the join, so that messages count rows as the user's table does.
        settled, _ = _settle_rows(
            view, table.block.copy(), None, partial_rows, table.columns, table.keys.rows
        )
        block[[place[value] for value in table.keys.ids]] = settled
        blocks[view] = block
    joined: list[Hashable] | None = None
    if labels is not None:
        strange = [value for value in labels.keys.ids if value not in place]
        if strange:
            raise FewviewError(
                f"{labels.keys.where}: {_ids(strange)} in no table; remove these labels, or check "
                "that labels and tables use the same keys"
            )
        known = dict(zip(labels.keys.ids, labels.labels, strict=True))
        joined = [known.get(value) for value in ids]
    return MultiViewData(
        blocks,
        joined,
        ids=ids,
        columns={view: t.columns for view, t in tables.items() if t.columns is not None},
        partial_rows=partial_rows,
        name=name,
    )


def join_frames(
    frames: Mapping[str, Any],
    labels: Any = None,
    *,
    key: str | None = None,
    partial_rows: PartialRows = "error",
    name: str | None = None,
) -> MultiViewData:
    """Outer-join one frame per view; see `MultiViewData.from_frames`.

    Samples come sorted by key where keys can be compared, else in the order in which they first
    appear, so that the order of rows in the tables does not matter.

    Args:
        frames: view name -> pandas, polars or other frame that narwhals knows. All columns but the
            key are features and must be numbers.
        labels: a frame (the key and one more column), a pandas Series whose index is the key, or a
            dict key -> label; None for samples without a label.
        key: the column (or, in pandas, the index level) that identifies a sample. Without it the
            column `id` does where there is one, else the pandas index. A plain row number as the
            index is refused where a column of all tables looks like a forgotten key.
        partial_rows: see `MultiViewData`.
        name: see `MultiViewData`.

    Returns:
        The samples of all tables, with the keys as `ids`.

    Example:
        >>> import pandas as pd
        >>> rna = pd.DataFrame({"g1": [0.1, 0.2]}, index=["b", "a"])
        >>> scan = pd.DataFrame({"s1": [1.0], "s2": [2.0]}, index=["b"])
        >>> data = join_frames({"rna": rna, "scan": scan}, labels={"a": "ill"})
        >>> data.ids.tolist(), data.labels.tolist(), data.columns["scan"]
        (['a', 'b'], ['ill', None], ('s1', 's2'))
    """
    if not isinstance(frames, Mapping) or not frames:
        raise FewviewError(
            "from_frames needs a dict of view name -> table with at least one table, such as "
            '{"rna": frame}'
        )
    tables: dict[str, Table] = {}
    kinds: dict[str, str] = {}
    for view, frame in frames.items():
        where = f"view {str(view)!r}"
        if str(view) in tables:
            raise FewviewError(f"{where} is given twice; rename one")
        keys, features, kinds[where] = _split_key(where, frame, key)
        if not keys.ids:
            raise FewviewError(f"{where}: the table has no rows; drop the view")
        _check_features(keys, features)
        try:
            block, columns = _as_block(str(view), features)
        except FewviewError:
            raise
        except Exception as error:  # a frame library may fail in its own ways on odd columns
            raise FewviewError(
                f"{where}: its columns cannot be turned into numbers ({error})"
            ) from error
        tables[str(view)] = Table(keys, block, columns)
    if len(tables) > 1 and set(kinds.values()) == {"row numbers"}:
        _refuse_forgotten_key(tables)
    keyed = None
    if labels is not None:
        keyed, kinds["labels"] = _read_labels(labels, key)
    _check_row_numbers(kinds, [len(table.keys.ids) for table in tables.values()])
    return join_tables(tables, keyed, partial_rows=partial_rows, name=name)


# ------------------------------------------------------------------ keys


def _check_keys(keys: Keys) -> None:
    rows: dict[Any, int] = {}
    for index, value in enumerate(keys.ids):
        if value is None:
            raise FewviewError(
                f"{keys.where}: {keys.row(index)} has no key; fill it in or drop the row"
            )
        try:
            first = rows.setdefault(value, index)
        except TypeError:
            raise FewviewError(
                f"{keys.where}: the key of {keys.row(index)} is a {type(value).__name__}; keys "
                "must be numbers or text"
            ) from None
        if first != index:
            raise FewviewError(
                f"{keys.where}: id {value!r} occurs in {keys.row(first)} and {keys.row(index)}; "
                "keep one row per sample"
            )


def _kind(value: Any) -> str:
    if isinstance(value, Number):
        return "numbers"
    if isinstance(value, str):
        return "text"
    return "dates" if isinstance(value, date) else f"{type(value).__name__} values"


def _check_kinds(sources: Sequence[Keys]) -> None:
    """Refuse keys that could never match: the number 1 in one table, the text '1' in another."""
    examples: list[tuple[Keys, dict[str, Any]]] = []
    for keys in sources:
        first: dict[str, Any] = {}
        for value in keys.ids:
            first.setdefault(_kind(value), value)
        if first:
            examples.append((keys, first))
    if len({kind for _, kinds in examples for kind in kinds}) < 2:
        return

    def refuse(one: Keys, value: Any, two: Keys, other: Any) -> None:
        raise FewviewError(
            f"keys of different kinds: {_kind(value)} in {one.where} (such as {value!r}), "
            f"{_kind(other)} in {two.where} (such as {other!r}); convert one so that they match"
        )

    for keys, kinds in examples[1:]:
        before, earlier = examples[0]
        if not kinds.keys() & earlier.keys():
            refuse(before, next(iter(earlier.values())), keys, next(iter(kinds.values())))
    written = {str(v): (keys, v) for keys in sources for v in keys.ids if not isinstance(v, str)}
    for keys in sources:
        for value in keys.ids:
            if isinstance(value, str) and value in written:
                refuse(*written[value], keys, value)


def _check_overlap(sources: Sequence[Keys]) -> None:
    """Tables that share no key may be keyed differently, or be of samples with one view each."""
    filled = [keys for keys in sources if keys.ids]
    if len(filled) < 2:
        return
    count = Counter(value for keys in filled for value in keys.ids)
    apart = [keys for keys in filled if all(count[value] == 1 for value in keys.ids)]
    if len(apart) == len(filled):
        listed = "; ".join(f"{keys.where} has {_ids(keys.ids, 2)}" for keys in filled[:4])
        warnings.warn(
            f"no sample is in two tables ({listed}); check that all tables use the same keys",
            FewviewWarning,
            stacklevel=4,
        )
        return
    for keys in apart:
        warnings.warn(
            f"{keys.where} shares no sample with the other tables ({_ids(keys.ids, 2)}); check "
            "its keys",
            FewviewWarning,
            stacklevel=4,
        )


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


def _in_order(values: Iterable[Any]) -> list[Any]:
    items = list(values)
    try:
        return sorted(items)
    except TypeError:
        return items


def _ids(values: Iterable[Any], limit: int = 5) -> str:
    items = [repr(value) for value in values]
    return f"{'id' if len(items) == 1 else 'ids'} {shorten(items, limit)}"


# ------------------------------------------------------------------ frames


def _split_key(where: str, frame: Any, key: str | None) -> tuple[Keys, Any, str]:
    """Take the key off a frame.

    Returns:
        the keys, the rest as a narwhals frame, and what the key was: "column", "index" or
        "row numbers".
    """
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
        return Keys(where, _list(level.tolist())), table, _index_kind(index)
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


def _index_kind(index: Any) -> str:
    plain = type(index).__name__ == "RangeIndex" and (index.start, index.step) == (0, 1)
    return "row numbers" if plain and index.name is None else "index"


def _list(values: Iterable[Any]) -> list[Any]:
    return [_plain(value) for value in values]


def _distinct(where: str, names: Sequence[str]) -> list[str]:
    for name, count in Counter(names).items():
        if count > 1:
            raise FewviewError(f"{where}: column {name!r} occurs twice; rename or drop one")
    return list(names)


def _check_features(keys: Keys, features: Any) -> None:
    """Refuse text, dates and the like by column, with the first value as a witness."""
    import narwhals as nw

    for column, dtype in features.schema.items():
        if dtype.is_numeric() or dtype in (nw.Boolean, nw.Object, nw.Unknown):
            continue  # objects are read cell by cell later
        for index, value in enumerate(_list(features.get_column(column).to_list())):
            if value is not None:
                raise FewviewError(
                    f"{keys.where}: column {column!r}, {keys.row(index)} (id {keys.ids[index]!r}) "
                    f"holds {value!r}; features must be numbers (encode or drop the column, or "
                    "name it as the key)"
                )
        raise FewviewError(
            f"{keys.where}: column {column!r} holds {dtype} values and all are missing; drop it"
        )


def _read_labels(labels: Any, key: str | None) -> tuple[KeyedLabels, str]:
    import narwhals as nw

    if isinstance(labels, Mapping):
        return KeyedLabels(Keys("labels", _list(labels)), list(labels.values())), "dict"
    native = nw.to_native(labels, pass_through=True)
    if nw.dependencies.is_pandas_like_series(native):
        keys = Keys("labels", _list(native.index.tolist()))
        return KeyedLabels(keys, native.tolist()), _index_kind(native.index)
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
