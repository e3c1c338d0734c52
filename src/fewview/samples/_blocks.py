"""Blocks of numbers: whatever people pass as a view becomes a float array [n, d].

A missing view of a sample is a row of NaN, and NaN in other rows are empty cells. What to do with
those is decided here, in `settle_rows`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fewview.errors import FewviewError, check_count, check_dimensions
from fewview.ground._words import Texts, split_cells
from fewview.samples._columns import Columns, RawView, expanded
from fewview.samples._labels import repeated

BoolArray = NDArray[np.bool_]
FloatArray = NDArray[np.floating[Any]]
PartialRows = Literal["keep", "error", "drop_view", "mean"]
PARTIAL_ROWS: tuple[PartialRows, ...] = ("keep", "error", "drop_view", "mean")
Names = tuple[str, ...] | None


def as_blocks(
    views: Any, columns: Mapping[str, Sequence[str]], like: Mapping[str, Columns]
) -> tuple[dict[str, FloatArray], dict[str, tuple[str, ...]], dict[str, Columns]]:
    """Turn views into float arrays with the same number of rows.

    Returns them, the names of their columns where known, and what columns are where some are not
    numbers; `like` says what was learnt about columns before.
    """
    named = {view: as_block(view, value) for view, value in _named(views).items()}
    blocks = {view: block for view, (block, _, _) in named.items()}
    counts = {view: len(block) for view, block in blocks.items()}
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{view} {count}" for view, count in counts.items())
        raise FewviewError(
            f"views have different numbers of rows ({listed}); give NaN rows where a view is "
            "missing, or join tables by their keys with MultiViewData.from_frames"
        )
    for view in columns:
        if view not in blocks:
            raise FewviewError(f"columns given for view {view!r}, which does not exist")
    known: dict[str, tuple[str, ...]] = {}
    kinds: dict[str, Columns] = {}
    for view, (block, own, texts) in named.items():
        names = tuple(map(str, columns[view])) if view in columns else own
        if names is None and texts:
            names = tuple(map(str, range(block.shape[1])))
        if names is None:
            continue
        check_count(f"view {view!r}: ", "column names", len(names), block.shape[1], "columns")
        for name in repeated(names):
            raise FewviewError(f"view {view!r}: column {name!r} occurs twice; rename or drop one")
        known[view] = names
        if texts or (view in like and set(names) & {c.name for c in like[view]}):
            raw = RawView(view, block, names, texts)
            blocks[view], known[view], kinds[view] = numbered(raw, like.get(view))
    return blocks, known, kinds


def numbered(raw: RawView, like: Columns | None) -> tuple[FloatArray, tuple[str, ...], Columns]:
    """Make numbers of a view's words: the block, names of its columns, and what they are."""
    block, columns = raw.encode(like)
    names = expanded(columns)
    for name in repeated(names):
        raise FewviewError(f"view {raw.view!r}: two columns would be called {name!r}; rename one")
    return block, names, columns


def _named(views: Any) -> dict[str, Any]:
    """Give every view its name: that of a dict, else `view0`, `view1`, ..."""
    if isinstance(views, Mapping):
        named = {str(name): value for name, value in views.items()}
        if len(named) != len(views):
            raise FewviewError("two views have the same name")
    elif isinstance(views, (list, tuple)) and all(_dimensions(view) == 2 for view in views):
        named = {f"view{index}": value for index, value in enumerate(views)}
    else:
        found = _dimensions(views)
        if found != 2:
            raise FewviewError(
                "views must be a dict of 2-D arrays, a list of 2-D arrays or one 2-D array, not "
                f"{type(views).__name__} with "
                + ("rows of different lengths" if found is None else f"{found} dimensions")
            )
        named = {"view0": views}
    if not named:
        raise FewviewError("no views given; give at least one")
    for name in named:
        bad = any(sign in "/\\\0" or "\ud800" <= sign <= "\udfff" for sign in name)
        if not name or bad or name.startswith("."):
            raise FewviewError(f"view name {name!r} cannot be used as a file name; rename the view")
    return named


def _dimensions(value: Any) -> int | None:
    """Count dimensions; None for a ragged list."""
    try:
        return int(np.ndim(value))
    except ValueError:
        return None


def as_block(view: str, value: Any) -> tuple[FloatArray, Names, dict[int, Texts]]:
    """Turn whatever holds one view into a float array [n, d], its column names, and its words."""
    if hasattr(value, "view_names"):
        raise FewviewError(f"view {view!r} is itself a MultiViewData; give one of its views")
    columns = getattr(value, "column_names", getattr(value, "columns", None))
    names = tuple(str(column) for column in columns) if columns is not None else None
    if hasattr(value, "toarray"):
        value = value.toarray()
    elif isinstance(value, np.ma.MaskedArray):
        # A masked cell is an unknown one; np.asarray would bring back what the mask hides.
        if value.dtype.kind in "iub":
            value = value.astype(np.float64)
        value = value.filled(np.nan) if value.dtype.kind == "f" else value
    elif hasattr(value, "to_numpy"):
        value = value.to_numpy()
    try:
        array = np.asarray(value)
    except ValueError:
        raise FewviewError(f"view {view!r}: rows of different lengths") from None
    except OverflowError:
        raise FewviewError(f"view {view!r} holds a number too large for a float64") from None
    check_dimensions(f"view {view!r}", array.ndim, 2)
    if array.shape[1] == 0:
        raise FewviewError(f"view {view!r} has no columns; drop the view")
    texts: dict[int, Texts] = {}
    if array.dtype.kind in "UM" and names is not None:  # words need names, or nobody finds them
        array = np.where(array == array, array.astype(str), "").astype(object)
    if array.dtype == object:
        array, texts = _from_objects(view, array, names)
    if array.dtype.kind not in "fiub":
        raise FewviewError(
            f"view {view!r} holds {array.dtype} values; features must be numbers (words and dates "
            "are read from tables, whose columns have names)"
        )
    return as_float(array), names, texts


def as_float(array: NDArray[Any]) -> FloatArray:
    """Choose float32, or float64 where float32 would lose digits or overflow; always a copy."""
    # By kind and size, not by dtype: a big-endian float64 is not equal to np.float64.
    wide = array.dtype.kind == "f" and array.dtype.itemsize >= 8
    if array.dtype.kind in "iu" and array.dtype.itemsize > 2 and array.size:
        wide = max(abs(int(array.min())), abs(int(array.max()))) > 2**24
    return array.astype(np.float64 if wide else np.float32)


def _from_objects(
    view: str, array: NDArray[Any], names: Names
) -> tuple[FloatArray, dict[int, Texts]]:
    """Read an array of objects column by column: numbers, and the texts of columns of words."""
    out = np.empty(array.shape)
    texts: dict[int, Texts] = {}
    for column in range(array.shape[1]):
        try:
            if names is None and any(isinstance(cell, (str, date)) for cell in array[:, column]):
                raise TypeError
            out[:, column], found = split_cells(array[:, column])
        except (TypeError, ValueError, OverflowError):
            odd = (row for row, cell in enumerate(array[:, column]) if _is_odd(cell, names))
            row = next(odd, 0)
            raise FewviewError(
                f"view {view!r}: column {names[column] if names else column!r}, row {row} "
                f"holds {array[row, column]!r}; features must be numbers"
                + (", words or dates" if names else "")
                + " (encode or drop the column)"
            ) from None
        if found is not None:
            texts[column] = found
    return out, texts


def _is_odd(cell: Any, names: Names) -> bool:
    if names is None and isinstance(cell, (str, date)):
        return True
    try:
        split_cells([cell])
    except (TypeError, ValueError, OverflowError):
        return True
    return False


def as_mask(mask: Any, n_samples: int, n_views: int) -> BoolArray | None:
    """Check a mask [samples, views], True where a view is present."""
    if mask is None:
        return None
    try:
        array = np.asarray(mask)
    except ValueError:
        raise FewviewError("mask has rows of different lengths") from None
    if array.shape != (n_samples, n_views):
        raise FewviewError(
            f"mask has shape {array.shape}; it must be [samples, views] = ({n_samples}, {n_views})"
        )
    if array.dtype != bool and not np.isin(array, (0, 1)).all():
        raise FewviewError("mask must be boolean: True where a view is present")
    return array.astype(bool)


def settle_rows(
    view: str,
    block: FloatArray,
    allowed: BoolArray | None,
    partial_rows: PartialRows,
    names: Names,
    called: Callable[[Any], str],
) -> tuple[FloatArray, BoolArray]:
    """Decide which rows are present; `block` is a private copy and may be changed.

    Rows that are not `allowed` are taken for missing; `called` says in messages which rows are
    meant. Returns the block, read-only, and which rows it has.
    """
    if allowed is not None:
        block[~allowed] = np.nan
    finite = np.isfinite(block)
    if not finite.all():
        missing = np.isnan(block)
        infinite = ~finite & ~missing
        if infinite.any():
            row, column = np.argwhere(infinite)[0].tolist()
            raise FewviewError(
                f"view {view!r}: {called([row])}, column {_column(names, column)} is infinite; "
                "replace it by a number or by NaN for a missing view"
            )
        block[missing] = np.nan  # one bit pattern, so that equal data have equal fingerprints
        part = np.asarray(missing.any(axis=1) & ~missing.all(axis=1))
        if part.any() and partial_rows != "keep":
            if partial_rows == "error":
                raise FewviewError(
                    f"view {view!r}: {called(np.flatnonzero(part))} partly NaN; a missing view is "
                    'a row of NaN only. Choose partial_rows="keep" to let cells be empty, '
                    '"drop_view" to count the view as missing there or "mean" to fill with the '
                    "column means (--partial-rows on command lines)"
                )
            if partial_rows == "drop_view":
                block[part] = np.nan
            else:
                _fill_with_means(view, block, missing, part, names)
        return frozen(block), np.asarray(~np.isnan(block).all(axis=1))
    return frozen(block), np.ones(len(block), dtype=bool)


def _fill_with_means(
    view: str, block: FloatArray, missing: BoolArray, part: BoolArray, names: Names
) -> None:
    known = (~missing).sum(axis=0)
    total = np.where(missing, 0.0, block).sum(axis=0, dtype=np.float64)
    means = total / np.maximum(known, 1)
    rows, columns = np.nonzero(missing & part[:, None])
    unknown = columns[np.equal(known[columns], 0)]
    if unknown.size:
        raise FewviewError(
            f"view {view!r}: column {_column(names, int(unknown[0]))} is NaN in every row; drop "
            "the column"
        )
    block[rows, columns] = means[columns]


def _column(names: Names, column: int) -> str:
    return repr(names[column]) if names else str(column)


def frozen(array: NDArray[Any]) -> NDArray[Any]:
    """Return the same numbers as an array that cannot be written to."""
    array = array.view()
    array.flags.writeable = False
    return array
