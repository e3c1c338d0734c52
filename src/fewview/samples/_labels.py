"""Labels and ids of samples: any hashable values in, tidy arrays out, and labels as numbers.

NaN, None and the missing markers of frame libraries all mean that a label is unknown.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fewview.errors import FewviewError, check_count, shorten


def plain(value: Any) -> Hashable:
    """Unwrap numpy scalars, and turn NaN and missing markers into None."""
    if isinstance(value, np.generic):
        value = value.item()
    unknown = type(value).__name__ in ("NAType", "NaTType")
    unknown = unknown or (isinstance(value, float) and value != value)
    return None if unknown else value


def _plain_values(values: Iterable[Any]) -> list[Hashable]:
    """`plain` of all; whole numbers and texts, which long tables have, are so already."""
    given = list(values)
    return given if set(map(type, given)) <= {int, str} else [plain(value) for value in given]


def as_labels(labels: Iterable[Hashable] | None, n_samples: int) -> NDArray[Any] | None:
    """Make an array of one label per sample, None where it is unknown."""
    if labels is None:
        return None
    try:
        values = _plain_values(labels)
    except TypeError:
        raise FewviewError(
            f"labels must be one label per sample, not {type(labels).__name__}"
        ) from None
    check_count("", "labels", len(values), n_samples)
    for row, label in enumerate(values):
        try:
            hash(label)
        except TypeError:
            raise FewviewError(
                f"label of row {row} is a {type(label).__name__}; labels must be hashable"
            ) from None
    return _tidy(values)


def as_ids(ids: Iterable[Hashable] | None, n_samples: int) -> NDArray[Any] | None:
    """Make an array of one identifier per sample, all known and different."""
    if ids is None:
        return None
    if isinstance(ids, np.ndarray) and ids.dtype == np.int64 and _all_different(ids, n_samples):
        return _tidy(ids)
    try:
        values = _plain_values(ids)
        hash(tuple(values))
    except TypeError:
        raise FewviewError(
            "ids must be one hashable identifier (a number, a text) per sample"
        ) from None
    check_count("", "ids", len(values), n_samples)
    unknown = [row for row, value in enumerate(values) if value is None]
    if unknown:
        raise FewviewError(f"{rows_text(unknown)}: no id; every sample needs one or none has")
    twice = repeated(values)
    if twice:
        raise FewviewError(f"id {twice[0]!r} occurs more than once; ids must be unique")
    return _tidy(values)


def is_rising(numbers: NDArray[np.int64]) -> bool:
    """Whether every number is larger than the one before."""
    return bool((numbers[1:] > numbers[:-1]).all())


def _all_different(numbers: NDArray[np.int64], count: int) -> bool:
    return len(numbers) == count and (is_rising(numbers) or is_rising(np.sort(numbers)))


def encode_labels(
    labels: NDArray[Any] | None, n_samples: int
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Number labels of any hashable kind.

    Returns:
        classes: the different labels, sorted where they can be compared, else as they come.
        codes: int64 [n_samples], position in `classes`, -1 where the label is unknown.
    """
    if labels is None:
        return np.empty(0, dtype=object), np.full(n_samples, -1, dtype=np.int64)
    if labels.dtype != object:
        classes, codes = np.unique(labels, return_inverse=True)
        return classes, codes.astype(np.int64)
    ordered = in_order(dict.fromkeys(label for label in labels if label is not None))
    place = {label: index for index, label in enumerate(ordered)} | {None: -1}
    encoded = np.array([place[label] for label in labels], dtype=np.int64)
    return _tidy(ordered), encoded


def in_order(values: Iterable[Any]) -> list[Any]:
    """Sort values where they can be compared, else leave them as they come."""
    items = list(values)
    try:
        return sorted(items)
    except TypeError:
        return items


def repeated(values: Iterable[Any]) -> list[Any]:
    """Those that have occurred before."""
    seen: set[Any] = set()
    return [value for value in values if value in seen or seen.add(value)]  # type: ignore[func-returns-value]


def rows_text(rows: Iterable[int], ids: NDArray[Any] | None = None) -> str:
    """Say which rows are meant, for messages."""
    places = [int(row) for row in rows]
    text = f"row {places[0]}" if len(places) == 1 else f"rows {shorten(places)}"
    return text if ids is None else f"{text} (id {shorten([ids[row] for row in places])})"


def _tidy(values: Sequence[Any] | NDArray[Any]) -> NDArray[Any]:
    """Make a read-only array of one plain kind (int, float, bool, str) or else of objects."""
    if isinstance(values, np.ndarray):
        array = values.copy()
        array.flags.writeable = False
        return array
    kinds = {type(value) for value in values}
    kind = next(iter(kinds)) if len(kinds) == 1 else object
    wanted = {int: "iu", float: "f", bool: "b", str: "U"}.get(kind, "")
    array = np.array(values) if wanted else np.empty(0, dtype=object)
    # numpy turns some integers into floats and drops NULs at the end of text: check.
    if array.dtype.kind not in wanted or (kind is str and array.tolist() != list(values)):
        array = np.empty(len(values), dtype=object)
        for index, value in enumerate(values):
            array[index] = value
    array.flags.writeable = False
    return array
