"""Joining one table per view, with different rows, by a key.

The join knows nothing but keys and blocks of numbers; tables come from files and from frames
(`_frames.py`). A sample that a table does not have lacks that view.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from numbers import Number
from typing import Any

import numpy as np

from fewview.files._file_contents import Contents, KeyedLabels, Keys, Tables
from fewview.ground._errors import FewviewError, FewviewWarning, shorten
from fewview.samples._blocks import FloatArray, PartialRows, as_float, numbered, settle_rows
from fewview.samples._columns import Columns, RawView
from fewview.samples._labels import in_order


def join_tables(
    given: Tables, partial_rows: PartialRows = "keep", like: Mapping[str, Columns] | None = None
) -> tuple[Contents, dict[str, Columns]]:
    """Outer-join tables by their keys; `like` says what was learnt about columns before.

    Without an order samples are sorted where their keys can be compared, else in the order in which
    they first appear. Returns what was joined, and what columns are where some are not numbers.
    """
    if not given.tables:
        raise FewviewError("no tables given; give at least one view")
    sources = [table.keys for table in given.tables.values()]
    labelled = None if given.labels is None else given.labels.keys
    extra = [keys for keys in (given.order, labelled) if keys is not None]
    for keys in (*extra, *sources):
        _check_keys(keys)
    if not given.trusted:
        _check_kinds([*sources, *extra])
        _check_overlap(sources)
    ids = _samples(sources, given.order)
    place = {value: index for index, value in enumerate(ids)}
    blocks: dict[str, FloatArray] = {}
    columns = {view: t.columns for view, t in given.tables.items() if t.columns is not None}
    kinds: dict[str, Columns] = {}
    for view, table in given.tables.items():
        block, known = table.block, (like or {}).get(view)
        names = table.columns or tuple(map(str, range(block.shape[1])))
        if table.texts or (known and set(names) & {column.name for column in known}):
            raw = RawView(view, block, names, table.texts, table.keys.row, given.name or "")
            block, columns[view], kinds[view] = numbered(raw, known)
        # Settled before the join, so that messages count rows as the user's table does.
        settled, _ = settle_rows(
            view, as_float(block), None, partial_rows, columns.get(view), table.keys.rows
        )
        blocks[view] = np.full((len(ids), settled.shape[1]), np.nan, dtype=settled.dtype)
        blocks[view][[place[value] for value in table.keys.ids]] = settled
    labels = None if given.labels is None else _joined_labels(given.labels, ids, place)
    return Contents(blocks, labels, ids if given.named else None, columns, given.name), kinds


def _samples(sources: Sequence[Keys], order: Keys | None) -> list[Any]:
    """List the samples of all tables, in order."""
    found: dict[Any, str] = {}
    for keys in sources:
        for value in keys.ids:
            found.setdefault(value, keys.where)
    if order is None:
        return in_order(found)
    listed = set(order.ids)
    unlisted = [value for value in found if value not in listed]
    if unlisted:
        raise FewviewError(
            f"{found[unlisted[0]]}: {_ids(unlisted)} not in {order.where}; add them there, or "
            "remove that file to have every sample taken"
        )
    return list(order.ids)


def _joined_labels(labels: KeyedLabels, ids: Sequence[Any], place: dict[Any, int]) -> list[Any]:
    strange = [value for value in labels.keys.ids if value not in place]
    if strange:
        raise FewviewError(
            f"{labels.keys.where}: {_ids(strange)} in no table; remove these labels, or check that "
            "labels and tables use the same keys"
        )
    known = dict(zip(labels.keys.ids, labels.labels, strict=True))
    return [known.get(value) for value in ids]


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
    filled = [keys for keys in sources if keys.ids]
    kinds = [{_kind(value) for value in keys.ids} for keys in filled]
    if len(set().union(*kinds)) < 2:
        return
    for keys, found in zip(filled, kinds, strict=True):
        if not found & kinds[0]:
            raise _unlike(filled[0], filled[0].ids[0], keys, keys.ids[0])
    written = {str(v): (keys, v) for keys in sources for v in keys.ids if not isinstance(v, str)}
    for keys in sources:
        for value in keys.ids:
            if isinstance(value, str) and value in written:
                raise _unlike(*written[value], keys, value)


def _unlike(one: Keys, value: Any, two: Keys, other: Any) -> FewviewError:
    return FewviewError(
        f"keys of different kinds: {_kind(value)} in {one.where} (such as {value!r}), "
        f"{_kind(other)} in {two.where} (such as {other!r}); convert one so that they match"
    )


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
            stacklevel=5,
        )
        return
    for keys in apart:
        warnings.warn(
            f"{keys.where} shares no sample with the other tables ({_ids(keys.ids, 2)}); check "
            "its keys",
            FewviewWarning,
            stacklevel=5,
        )


def _ids(values: Iterable[Any], limit: int = 5) -> str:
    items = [repr(value) for value in values]
    return f"{'id' if len(items) == 1 else 'ids'} {shorten(items, limit)}"
