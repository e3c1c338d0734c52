"""Joining one table per view, with different rows, by a key.

The join knows nothing but keys and blocks of numbers; tables come from files and from frames
(`_frames.py`). A sample that a table does not have lacks that view.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date
from itertools import chain
from numbers import Number
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fewview.errors import FewviewError, FewviewWarning, shorten
from fewview.files._file_contents import Contents, KeyedLabels, Keys, Tables
from fewview.samples._blocks import FloatArray, PartialRows, as_float, numbered, settle_rows
from fewview.samples._columns import Columns, RawView, plain_columns
from fewview.samples._labels import in_order, is_rising

# Tables of so many rows share some, unless they are keyed differently; and classes of so many
# samples (so many classes) do not agree with a column by chance.
FEWEST_ROWS = 5
FEWEST_CLASSES = 3


def join_tables(
    given: Tables,
    partial_rows: PartialRows = "keep",
    like: Mapping[str, Columns] | None = None,
    disjoint: bool = False,
) -> tuple[Contents, dict[str, Columns]]:
    """Outer-join tables by their keys; `like` says what was learnt about columns before.

    Without an order samples are sorted where their keys can be compared, else in the order in which
    they first appear. Tables without a common key are an error unless they are to be `disjoint`.
    Returns what was joined, and what columns are where some are not numbers.
    """
    if not given.tables:
        raise FewviewError("no tables given; give at least one view")
    sources = [table.keys for table in given.tables.values()]
    labelled = None if given.labels is None else given.labels.keys
    extra = [keys for keys in (given.order, labelled) if keys is not None]
    quick = None if extra else _joined_numbers(sources)
    if quick is None:
        for keys in (*extra, *sources):
            _check_keys(keys)
        if not given.trusted:
            _check_kinds([*sources, *extra])
            _check_overlap(sources, disjoint)
            if not disjoint:
                _check_spelling(sources)
        ids: Any = _samples(sources, given.order)
        place = {value: index for index, value in enumerate(ids)}
        places: list[Any] = [[place[value] for value in keys.ids] for keys in sources]
    else:
        (ids, places), place = quick, {}
    blocks: dict[str, FloatArray] = {}
    columns = {view: t.columns for view, t in given.tables.items() if t.columns is not None}
    kinds: dict[str, Columns] = {}
    for (view, table), rows in zip(given.tables.items(), places, strict=True):
        block, known = table.block, (like or {}).get(view)
        names = table.columns or tuple(map(str, range(block.shape[1])))
        raw = RawView(view, block, names, table.texts, table.keys.row, given.name or "")
        if table.columns is not None and known is None and not given.trusted:
            raw = raw.checked()
            block, columns[view] = raw.block, tuple(raw.names)
        if raw.texts or (known and set(names) & {column.name for column in known}):
            block, columns[view], kinds[view] = numbered(raw, known)
        # Settled before the join, so that messages count rows as the user's table does.
        settled, _ = settle_rows(
            view, as_float(block), None, partial_rows, columns.get(view), table.keys.rows
        )
        blocks[view] = np.full((len(ids), settled.shape[1]), np.nan, dtype=settled.dtype)
        blocks[view][rows] = settled
    labels = None if given.labels is None else _joined_labels(given.labels, ids, place)
    return Contents(blocks, labels, ids if given.named else None, columns, given.name), kinds


def _joined_numbers(sources: Sequence[Keys]) -> tuple[NDArray[np.int64], list[Any]] | None:
    """The samples of long tables keyed by whole numbers, and where the rows of each belong.

    None where keys are anything else, one occurs twice, or a table shares none with the others:
    there is something to be told then, or a slower way to be gone.
    """
    if not all(keys.ids for keys in sources):
        return None
    if not all(k.numbers is not None or {*map(type, k.ids)} == {int} for k in sources):
        return None
    try:
        found = [
            np.array(keys.ids, dtype=np.int64) if keys.numbers is None else keys.numbers
            for keys in sources
        ]
    except OverflowError:
        return None
    # Most often one table has all samples, in order.
    ids = max(found, key=len)
    places = [np.searchsorted(ids[:-1], numbers) for numbers in found] if is_rising(ids) else []
    if not all((ids[rows] == numbers).all() for rows, numbers in zip(places, found, strict=False)):
        places = []
    if not places:
        ids = np.unique(np.concatenate(found))
        places = [np.searchsorted(ids, numbers) for numbers in found]
    times = [np.bincount(rows, minlength=len(ids)) for rows in places]
    counts, once = np.sum(times, axis=0), all(table.max() == 1 for table in times)
    alone = len(sources) > 1 and any(counts[rows].max() == 1 for rows in places)
    return None if alone or not once else (ids, places)


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
        listed = set(labels.keys.ids)
        repair = _repair(strange, [value for value in place if value not in listed])
        text = f"{labels.keys.where}: {_ids(strange)} in no table, which have {_ids(ids, 3)}"
        if repair or 2 * len(strange) >= len(listed):
            advice = "remove these labels, or check that labels and tables use the same keys"
            raise FewviewError(f"{text}; {repair or advice}")
        warnings.warn(f"{text}; left out", FewviewWarning, stacklevel=5)
    known = dict(zip(labels.keys.ids, labels.labels, strict=True))
    return [known.get(value) for value in ids]


def tell_copies(
    codes: NDArray[np.int64],
    views: Mapping[str, FloatArray],
    columns: Mapping[str, Sequence[str]],
    kinds: Mapping[str, Columns],
) -> None:
    """Tell columns that have one value in every class and another one in every other.

    Such a column is most likely the label under another name, which nothing must be learnt from.
    Few classes or few samples of each may have one by chance. `codes` are -1 without a label.
    """
    for view, block in views.items():
        names = columns.get(view, tuple(map(str, range(block.shape[1]))))
        start = 0
        for column in kinds.get(view) or plain_columns(names):
            part = block[:, start : start + column.width]
            start += column.width
            rows = np.flatnonzero((codes >= 0) & ~np.isnan(part).any(axis=1))
            values = part[rows].argmax(axis=1) if column.kind == "category" else part[rows, 0]
            n_classes = np.count_nonzero(np.bincount(codes[rows]))
            if column.kind == "words" or n_classes < FEWEST_CLASSES:
                continue
            first = np.unique(values[: 10 * FEWEST_ROWS * n_classes])  # tell nearly all others
            if len(rows) < FEWEST_ROWS * n_classes or len(first) > n_classes:
                continue
            if len(np.unique(values)) != n_classes:
                continue
            if len(set(zip(codes[rows].tolist(), values.tolist(), strict=True))) == n_classes:
                warnings.warn(
                    f"view {view!r}: the column {column.name!r} tells the class of every labelled "
                    "sample; take it out of the table if it is the label under another name",
                    FewviewWarning,
                    stacklevel=4,
                )


def _check_keys(keys: Keys) -> None:
    if {*map(type, keys.ids)} <= {int, str} and len({*keys.ids}) == len(keys.ids):
        return  # what long tables have
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
    # One value of every type will do.
    kinds = [{*map(_kind, {type(v): v for v in keys.ids}.values())} for keys in filled]
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


def _check_overlap(sources: Sequence[Keys], disjoint: bool) -> None:
    """Tables that share no key may be keyed differently, or be of samples with one view each.

    The first is an error where another way of writing keys makes them match, and where tables are
    long enough to share some by chance.
    """
    filled = [keys for keys in sources if keys.ids]
    if len(filled) < 2:
        return
    count = Counter(value for keys in filled for value in keys.ids)
    apart = [keys for keys in filled if all(count[value] == 1 for value in keys.ids)]
    if not apart or disjoint:
        return
    rest = [keys for keys in filled if keys not in apart] or apart[:1]
    lonely = [keys for keys in apart if keys not in rest]
    text = (
        "no sample is in two tables"
        if len(apart) == len(filled)
        else f"{lonely[0].where} shares no sample with the other tables"
    )
    shown = "; ".join(
        f"{keys.where} has {_ids(keys.ids, 3)}" for keys in filled if keys in (*lonely, *rest)
    )
    repairs = (_repair(one.ids, two.ids) for one in lonely for two in rest)
    repair = next((found for found in repairs if found), "")
    if repair or min(len(keys.ids) for keys in (lonely[0], rest[0])) >= FEWEST_ROWS:
        raise FewviewError(
            f"{text} ({shown}); {repair or 'check that all tables use the same keys'}. Give "
            "--disjoint (disjoint=True in Python) to go on where samples really have one view each"
        )
    warnings.warn(
        f"{text} ({shown}); check that all tables use the same keys", FewviewWarning, stacklevel=5
    )


def _check_spelling(sources: Sequence[Keys]) -> None:
    """Refuse keys that are written differently in some rows only: one sample would be two.

    Keys that some table tells apart are different ones, whatever they look like.
    """
    tables: dict[Any, list[str]] = {}
    for keys in sources:
        for value in keys.ids:
            tables.setdefault(value, []).append(keys.where)
    partly = [value for value, where in tables.items() if len(where) < len(sources)]
    if all(type(value) is int for value in partly):
        return
    for change, advice in REPAIRS:
        spelt: dict[str, list[Any]] = {}
        for value in partly:
            spelt.setdefault(change(str(value)), []).append(value)
        alike = [values for values in spelt.values() if len(values) > 1]
        alike = [values for values in alike if _differ([tables[value] for value in values])]
        if alike:
            one, two = alike[0][:2]
            raise FewviewError(
                f"id {one!r} in {tables[one][0]} and id {two!r} in {tables[two][0]} look like the "
                f"same sample; {advice} {len(alike)} more would match, so write all tables alike. "
                "Give --disjoint (disjoint=True in Python) to go on where they are different "
                "samples"
            )


def _differ(lists: Sequence[Sequence[str]]) -> bool:
    """Whether nothing is in two lists, or twice in one."""
    together = list(chain.from_iterable(lists))
    return len(set(together)) == len(together)


def _repair(one: Sequence[Any], two: Sequence[Any]) -> str:
    """Another way of writing keys by which some match, as advice; empty where there is none."""
    for change, advice in REPAIRS:
        first, second = ({change(str(value)) for value in values} for values in (one, two))
        matching = len(first & second)
        if matching:
            return f"{advice} {matching} of {len(first)} would match, so write all tables alike"
    return ""


def _whole(text: str) -> str:
    """A whole number without a point and zeros in front: 2000.0 and 02000 are 2000."""
    text = text.strip()
    head, point, tail = text.partition(".")
    digits = head if point and not tail.strip("0") else text
    return str(int(digits)) if digits.isascii() and digits.isdigit() else text


# Ways in which the same key is written differently, the likeliest first.
REPAIRS: tuple[tuple[Callable[[str], str], str], ...] = (
    (str.strip, "without the spaces around them"),
    (_whole, "as whole numbers (2000, not 2000.0 or 02000)"),
    (lambda text: _whole(text).casefold(), "in small letters"),
)


def _ids(values: Iterable[Any], limit: int = 5) -> str:
    items = [repr(value) for value in values]
    return f"{'id' if len(items) == 1 else 'ids'} {shorten(items, limit)}"
