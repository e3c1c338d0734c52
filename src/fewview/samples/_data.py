"""What a sample is: `MultiViewData`, named feature blocks with rows that may be missing.

Everything in fewview that holds samples is one of these. It is immutable, knows its own missing
views, and can be sliced by rows, so that scikit-learn's splitters take it for an ordinary X.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import cached_property
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from fewview.ground._errors import FewviewError, shorten

if TYPE_CHECKING:
    from fewview.samples._overview import Summary

FloatArray = NDArray[np.floating[Any]]
PartialRows = Literal["error", "drop_view", "mean"]
PARTIAL_ROWS: tuple[PartialRows, ...] = ("error", "drop_view", "mean")


class MultiViewData:
    """Samples described by several named views, any of which may be missing for any sample.

    A missing view of a sample is an all-NaN row of that view's block; `mask[n, v]` is False there.
    Every sample has at least one view. Instances are immutable: the arrays are read-only.

    Args:
        views: dict of name -> array [n_samples, width], a list of such arrays (named `view0`,
            `view1`, ...), or one 2-D array (one view, `view0`). Blocks may be frames (their column
            names are kept; rows are matched by position, see `from_frames` for matching by key)
            or scipy sparse matrices.
        labels: one hashable label per sample; None or NaN where unknown.
        ids: unique sample identifiers.
        mask: boolean [n_samples, n_views]; False marks a view as missing whatever its block holds.
        columns: dict of view name -> column names, where known.
        partial_rows: what to do with a row that is partly NaN: `"error"`, `"drop_view"` (the view
            counts as missing for that sample) or `"mean"` (fill with the column's mean).
        name: what to call this data in messages and reports.

    Example:
        >>> nan = float("nan")
        >>> data = MultiViewData(
        ...     {"image": [[1.0, 2.0], [nan, nan]], "text": [[5.0], [6.0]]}, labels=["cat", "dog"]
        ... )
        >>> data
        MultiViewData(2 samples, views: image[2], text[1], 2 classes, 25.0% missing)
        >>> data.mask.tolist()
        [[True, True], [False, True]]
        >>> data[data.labels == "dog"].view("text").tolist()
        [[6.0]]
    """

    _views: dict[str, FloatArray]
    mask: NDArray[np.bool_]
    labels: NDArray[Any] | None
    ids: NDArray[Any] | None
    columns: dict[str, tuple[str, ...]]
    name: str | None

    def __init__(
        self,
        views: Any,
        labels: Iterable[Hashable] | None = None,
        *,
        ids: Iterable[Hashable] | None = None,
        mask: Any = None,
        columns: Mapping[str, Sequence[str]] | None = None,
        partial_rows: PartialRows = "error",
        name: str | None = None,
    ) -> None:
        if partial_rows not in PARTIAL_ROWS:
            raise FewviewError(
                f"partial_rows={partial_rows!r} is not one of {', '.join(PARTIAL_ROWS)}"
            )
        named = _named_blocks(views)
        if columns is None and isinstance(views, MultiViewData):
            columns = views.columns
        known_columns = {view: tuple(map(str, names)) for view, names in (columns or {}).items()}
        blocks: dict[str, FloatArray] = {}
        for view, value in named.items():
            block, names = _as_block(view, value)
            if names is not None:
                known_columns.setdefault(view, names)
            blocks[view] = block
        _check_row_counts(blocks)
        n_samples = next(iter(blocks.values())).shape[0]
        self.ids = _as_ids(ids, n_samples)
        given = _as_mask(mask, n_samples, len(blocks))
        present = np.empty((n_samples, len(blocks)), dtype=bool)
        for index, (view, block) in enumerate(blocks.items()):
            allowed = None if given is None else given[:, index]
            blocks[view], present[:, index] = _settle_rows(
                view,
                block,
                allowed,
                partial_rows,
                known_columns.get(view),
                lambda rows: _rows(rows, self.ids),
            )
        empty = np.flatnonzero(~present.any(axis=1))
        if empty.size:
            raise FewviewError(
                f"{_rows(empty, self.ids)}: no view at all; every sample needs at least one view, "
                "drop these samples"
            )
        for view, names in known_columns.items():
            if view not in blocks:
                raise FewviewError(f"columns given for view {view!r}, which does not exist")
            if len(names) != blocks[view].shape[1]:
                raise FewviewError(
                    f"view {view!r}: {len(names)} column names for {blocks[view].shape[1]} columns"
                )
            twice = _repeated(names)
            if twice:
                raise FewviewError(
                    f"view {view!r}: column {twice[0]!r} occurs twice; rename or drop one"
                )
        self._views = blocks
        self.mask = _frozen(present)
        self.columns = {view: known_columns[view] for view in blocks if view in known_columns}
        self.labels = _as_labels(labels, n_samples)
        self.name = name

    # ------------------------------------------------------------------ other ways to make one

    @classmethod
    def from_frames(
        cls,
        frames: Mapping[str, Any],
        labels: Any = None,
        *,
        key: str | None = None,
        partial_rows: PartialRows = "error",
        name: str | None = None,
    ) -> MultiViewData:
        """Join one table per view whose rows do not match (an outer join).

        Args:
            frames: dict of view name -> pandas or polars frame.
            labels: a frame with the key and one more column, a pandas Series whose index is the
                key, or a dict id -> label.
            key: the column that identifies a sample; without it a column `id` does where there is
                one, else the pandas index.
            partial_rows: see the class.
            name: see the class.

        Example:
            >>> import pandas as pd
            >>> rna = pd.DataFrame({"id": ["a", "b"], "g1": [0.1, 0.2]})
            >>> scan = pd.DataFrame({"id": ["b", "c"], "s1": [1.0, 2.0]})
            >>> MultiViewData.from_frames({"rna": rna, "scan": scan}).ids.tolist()
            ['a', 'b', 'c']
        """
        from fewview.samples._joins import join_frames

        return join_frames(frames, labels, key=key, partial_rows=partial_rows, name=name)

    @classmethod
    def read(
        cls,
        path: str | PathLike[str],
        *,
        partial_rows: PartialRows = "error",
        labels: str | None = None,
    ) -> MultiViewData:
        """Read a file (`.npz`, `.mat`, `.h5mu`, `.h5ad`) or a folder with one table per view.

        `labels` names the column or variable with the labels; see `fewview.files._formats.read`.
        """
        from fewview.files._formats import read

        return read(path, partial_rows=partial_rows, labels=labels)

    def write(self, path: str | PathLike[str], *, format: str | None = None) -> None:
        """Write a file (`.npz`, `.mat`, `.h5mu`, `.h5ad`) or a folder of tables (`format="csv"`,
        `"parquet"`, `"npy"`); see `fewview.files._formats.write`.
        """
        from fewview.files._formats import write

        write(self, path, format=format)

    @classmethod
    def concat(cls, parts: Iterable[MultiViewData]) -> MultiViewData:
        """Stack samples; a view that a part does not have is missing for all of its samples.

        Example:
            >>> one = MultiViewData({"a": [[1.0]]}, labels=[0])
            >>> two = MultiViewData({"b": [[2.0]]}, labels=[1])
            >>> MultiViewData.concat([one, two]).mask.tolist()
            [[True, False], [False, True]]
        """
        items = list(parts)
        if not items:
            raise FewviewError("concat needs at least one MultiViewData")
        names: dict[str, int] = {}
        for item in items:
            for view, width in item.view_dims.items():
                if names.setdefault(view, width) != width:
                    raise FewviewError(
                        f"view {view!r} is {names[view]} wide in one part and {width} in another"
                    )
        columns: dict[str, tuple[str, ...]] = {}
        for view in names:
            known = {item.columns[view] for item in items if view in item.columns}
            if len(known) > 1 and len({frozenset(c) for c in known}) > 1:
                raise FewviewError(f"view {view!r} has different columns in different parts")
            if known:
                columns[view] = next(i.columns[view] for i in items if view in i.columns)
        items = [item._in_column_order(columns) for item in items]
        blocks: dict[str, FloatArray] = {}
        for view, width in names.items():
            rows = [
                item._views.get(view, np.full((len(item), width), np.nan, dtype=np.float32))
                for item in items
            ]
            blocks[view] = np.concatenate(rows)
        labels: list[Hashable] | None = None
        if any(item.labels is not None for item in items):
            labels = []
            for item in items:
                labels += [None] * len(item) if item.labels is None else item.labels.tolist()
        ids = None
        if all(item.ids is not None for item in items):
            ids = [i for item in items if item.ids is not None for i in item.ids.tolist()]
        return cls(blocks, labels, ids=ids, columns=columns, name=items[0].name)

    # ------------------------------------------------------------------ what it holds

    @property
    def n_samples(self) -> int:
        """Number of samples."""
        return int(self.mask.shape[0])

    @property
    def n_views(self) -> int:
        """Number of views."""
        return int(self.mask.shape[1])

    @property
    def view_names(self) -> tuple[str, ...]:
        """Names of the views, in order."""
        return tuple(self._views)

    @property
    def view_dims(self) -> dict[str, int]:
        """Width of every view."""
        return {view: int(block.shape[1]) for view, block in self._views.items()}

    @property
    def views(self) -> dict[str, FloatArray]:
        """The blocks by name, each [n_samples, width], NaN rows where missing, read-only."""
        return dict(self._views)

    def view(self, name: str) -> FloatArray:
        """Return the block of one view, [n_samples, width]."""
        try:
            return self._views[name]
        except KeyError:
            raise FewviewError(f"no view {name!r}; the views are {shorten(self._views)}") from None

    @property
    def shape(self) -> tuple[int, int]:
        """(number of samples, total width): what scikit-learn asks an X for."""
        return self.n_samples, sum(self.view_dims.values())

    @property
    def ndim(self) -> int:
        """Always 2: samples by features."""
        return 2

    @property
    def missing_rate(self) -> float:
        """Share of missing (sample, view) cells, the paper's eta (Eq. 1 [eq:2])."""
        return float(1.0 - self.mask.mean()) if self.mask.size else 0.0

    @cached_property
    def _encoded(self) -> tuple[NDArray[Any], NDArray[np.int64]]:
        return encode_labels(self.labels, self.n_samples)

    @property
    def classes(self) -> NDArray[Any]:
        """The different labels that occur, sorted where they can be."""
        return self._encoded[0]

    @property
    def codes(self) -> NDArray[np.int64]:
        """Position of every sample's label in `classes`, -1 where it is unknown."""
        return self._encoded[1]

    @cached_property
    def fingerprint(self) -> str:
        """A content hash over views, labels and ids, the same on every machine."""
        digest = hashlib.sha256()
        for view, block in self._views.items():
            digest.update(f"{view}:{block.dtype.str}:{block.shape}".encode())
            digest.update(np.ascontiguousarray(block).tobytes())
        digest.update(np.packbits(self.mask).tobytes())
        for extra in (self.labels, self.ids):
            digest.update(repr(None if extra is None else extra.tolist()).encode())
        return digest.hexdigest()

    # ------------------------------------------------------------------ parts of it

    def __len__(self) -> int:
        return self.n_samples

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """All views side by side, NaN where a view is missing, for libraries that want one array.

        Example:
            >>> data = MultiViewData({"a": [[1.0], [2.0]], "b": [[3.0], [4.0]]})
            >>> np.asarray(data.with_mask([[True, False], [True, True]])).tolist()
            [[1.0, nan], [2.0, 4.0]]
        """
        if copy is False:
            raise ValueError("views lie in arrays of their own; one array is always a copy")
        blocks = []
        for index, block in enumerate(self.views.values()):
            kind = block.dtype if block.dtype.kind == "f" else np.float64
            rows = np.array(block, dtype=kind)
            rows[~self.mask[:, index]] = np.nan
            blocks.append(rows)
        out = np.concatenate(blocks, axis=1)
        return out if dtype is None else out.astype(dtype)

    def __getitem__(self, key: Any) -> MultiViewData:
        if isinstance(key, tuple):
            rest = key[1:]
            whole = (isinstance(part, slice) and part == slice(None) for part in rest)
            if not all(part is Ellipsis or full for part, full in zip(rest, whole, strict=True)):
                raise FewviewError(
                    "MultiViewData is indexed by rows only; use select_views() for columns"
                )
            key = key[0] if key else slice(None)
        if key is Ellipsis:
            key = slice(None)
        if isinstance(key, str):
            raise FewviewError(f"MultiViewData is indexed by rows; use .view({key!r})")
        if isinstance(key, (int, np.integer)) and not isinstance(key, bool):
            if not -self.n_samples <= key < self.n_samples:
                raise IndexError(f"row {key} of {self.n_samples} samples")
            key = slice(int(key), int(key) + 1) if key != -1 else slice(-1, None)
        elif not isinstance(key, slice):
            key = np.asarray(key)
            if key.dtype == bool and key.shape != (self.n_samples,):
                raise IndexError(f"boolean index of shape {key.shape} for {self.n_samples} samples")
            if key.size == 0 and key.dtype != bool:
                key = key.astype(np.int64)
            if key.ndim != 1:
                raise IndexError(f"row index has {key.ndim} dimensions; it must have one")
        return self._with_rows(key)

    def _with_rows(self, key: Any) -> MultiViewData:
        out = MultiViewData.__new__(MultiViewData)
        out._views = {view: _frozen(block[key]) for view, block in self._views.items()}
        out.mask = _frozen(self.mask[key])
        out.labels = None if self.labels is None else _frozen(self.labels[key])
        out.ids = None if self.ids is None else _frozen(self.ids[key])
        if out.ids is not None and not isinstance(key, slice):
            kept = np.asarray(key)
            if kept.dtype != bool and np.unique(kept % self.n_samples).size != kept.size:
                out.ids = None  # a bootstrap sample: its identifiers are not unique any more
        out.columns = self.columns
        out.name = self.name
        return out

    def select_views(self, names: Sequence[str]) -> MultiViewData:
        """Keep only these views, in this order; samples left without any view are an error.

        Example:
            >>> MultiViewData({"a": [[1.0]], "b": [[2.0]]}).select_views(["b"]).view_names
            ('b',)
        """
        chosen = {name: self.view(name) for name in names}
        if not chosen:
            raise FewviewError("select_views needs at least one view")
        return MultiViewData(
            chosen,
            self.labels,
            ids=self.ids,
            columns={view: self.columns[view] for view in chosen if view in self.columns},
            name=self.name,
        )

    def drop_views(self, names: Sequence[str]) -> MultiViewData:
        """Leave these views out; samples left without any view are an error."""
        for name in names:
            self.view(name)
        return self.select_views([view for view in self._views if view not in set(names)])

    def with_mask(self, mask: Any) -> MultiViewData:
        """Return the same samples with more views missing: the given mask and the present one.

        Example:
            >>> MultiViewData({"a": [[1.0]], "b": [[2.0]]}).with_mask([[True, False]]).missing_rate
            0.5
        """
        given = _as_mask(mask, self.n_samples, self.n_views)
        return MultiViewData(
            self._views,
            self.labels,
            ids=self.ids,
            mask=self.mask if given is None else self.mask & given,
            columns=self.columns,
            name=self.name,
        )

    def with_labels(self, labels: Iterable[Hashable] | None) -> MultiViewData:
        """Return the same samples with other labels."""
        out = self._with_rows(slice(None))
        out.labels = _as_labels(labels, self.n_samples)
        return out

    def with_name(self, name: str | None) -> MultiViewData:
        """Return the same samples under another name."""
        out = self._with_rows(slice(None))
        out.name = name
        return out

    def without_ids(self) -> MultiViewData:
        """Return the same samples without identifiers: rows of two sets may share them."""
        out = self._with_rows(slice(None))
        out.ids = None
        return out

    def like(self, reference: MultiViewData, what: str = "data") -> MultiViewData:
        """Bring views and columns into the order of `reference`, matching by name.

        A view of the reference that is absent here is missing for all samples. A view that the
        reference does not have, or one of another width or with other columns, is an error.

        Args:
            reference: usually the base set.
            what: how to call this data in messages ("support", "query").

        Example:
            >>> base = MultiViewData({"a": [[1.0]], "b": [[2.0]]})
            >>> MultiViewData({"b": [[3.0]]}).like(base).mask.tolist()
            [[False, True]]
        """
        dims = reference.view_dims
        if (
            self.view_dims == dims
            and self.view_names == reference.view_names
            and (not self.columns or not reference.columns or self.columns == reference.columns)
        ):
            return self
        for view, width in self.view_dims.items():
            if view not in dims:
                raise FewviewError(
                    f"{what} has a view {view!r} that the reference set does not have "
                    f"(it has {shorten(dims)}); drop it with drop_views([{view!r}])"
                )
            if width != dims[view]:
                raise FewviewError(
                    f"view {view!r}: {what} is {width} wide, the reference set {dims[view]}; "
                    "both must hold the same features"
                )
        arranged = self._in_column_order(reference.columns, what)
        blocks = {
            view: arranged._views.get(
                view, np.full((self.n_samples, width), np.nan, dtype=np.float32)
            )
            for view, width in dims.items()
        }
        return MultiViewData(
            blocks, self.labels, ids=self.ids, columns=reference.columns, name=self.name
        )

    def _in_column_order(
        self, columns: Mapping[str, tuple[str, ...]], what: str = "data"
    ) -> MultiViewData:
        """Reorder columns by name where both sides have names."""
        blocks = dict(self._views)
        new_columns = dict(self.columns)
        for view, wanted in columns.items():
            mine = self.columns.get(view)
            if mine is None or mine == wanted:
                continue
            if set(mine) != set(wanted):
                odd = sorted(set(mine) ^ set(wanted))
                raise FewviewError(
                    f"view {view!r}: columns of {what} differ from the reference set's "
                    f"({shorten(odd)}); both must have the same columns"
                )
            place = {column: index for index, column in enumerate(mine)}
            blocks[view] = _frozen(blocks[view][:, [place[column] for column in wanted]])
            new_columns[view] = wanted
        out = self._with_rows(slice(None))
        out._views = blocks
        out.columns = new_columns
        return out

    # ------------------------------------------------------------------ looks

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, MultiViewData):
            return NotImplemented
        return (
            self.view_dims == other.view_dims
            and self.view_names == other.view_names
            and self.n_samples == other.n_samples
            and self.columns == other.columns
            and all(
                np.array_equal(block, other._views[view], equal_nan=True)
                for view, block in self._views.items()
            )
            and _same_array(self.labels, other.labels)
            and _same_array(self.ids, other.ids)
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        views = ", ".join(f"{view}[{width}]" for view, width in self.view_dims.items())
        classes = "no labels" if self.labels is None else f"{len(self.classes)} classes"
        label = f"{self.name}: " if self.name else ""
        return (
            f"MultiViewData({label}{self.n_samples} samples, views: {views}, {classes}, "
            f"{100 * self.missing_rate:.1f}% missing)"
        )

    def _repr_html_(self) -> str:
        return self.summary().to_html()

    def summary(self) -> Summary:
        """Describe views, classes and the combinations of views that occur.

        Example:
            >>> print(MultiViewData({"a": [[1.0]], "b": [[2.0]]}, labels=["x"]).summary())
            ... # doctest: +ELLIPSIS
            1 sample...
        """
        from fewview.samples._overview import summarise

        return summarise(self)

    def plot_patterns(self, ax: Any = None) -> Any:
        """Draw which view combinations occur and how often (matplotlib); returns the axes."""
        return self.summary().plot(ax)


def encode_labels(
    labels: NDArray[Any] | None, n_samples: int
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Number labels of any hashable kind.

    Returns:
        classes: the different labels, sorted where they can be compared, else as they come.
        codes: int64 [n_samples], position in `classes`, -1 where the label is unknown.

    Example:
        >>> encode_labels(np.array(["b", "a", "b"]), 3)[1].tolist()
        [1, 0, 1]
    """
    if labels is None:
        return np.empty(0, dtype=object), np.full(n_samples, -1, dtype=np.int64)
    if labels.dtype != object:
        classes, codes = np.unique(labels, return_inverse=True)
        return classes, codes.astype(np.int64)
    seen: dict[Hashable, None] = dict.fromkeys(label for label in labels if label is not None)
    try:
        ordered = sorted(seen)  # type: ignore[type-var]
    except TypeError:
        ordered = list(seen)
    place = {label: index for index, label in enumerate(ordered)}
    encoded = np.array([-1 if label is None else place[label] for label in labels], dtype=np.int64)
    return _tidy(ordered), encoded


def _frozen(array: NDArray[Any]) -> NDArray[Any]:
    array = array.view()
    array.flags.writeable = False
    return array


def _named_blocks(views: Any) -> dict[str, Any]:
    if isinstance(views, MultiViewData):
        return dict(views.views)
    if isinstance(views, Mapping):
        named = {str(name): value for name, value in views.items()}
        if len(named) != len(views):
            raise FewviewError("two views have the same name")
    elif isinstance(views, (list, tuple)) and all(_dimensions(view) == 2 for view in views):
        named = {f"view{index}": value for index, value in enumerate(views)}
    else:
        if _dimensions(views) != 2:
            found = _dimensions(views)
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


def _as_block(view: str, value: Any) -> tuple[FloatArray, tuple[str, ...] | None]:
    """Turn whatever holds one view into a float array [n, d], and its column names."""
    if isinstance(value, MultiViewData):
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
        _refuse_text_columns(view, value, names)
        value = value.to_numpy()
    try:
        array = np.asarray(value)
    except ValueError:
        raise FewviewError(f"view {view!r}: rows of different lengths") from None
    except OverflowError:
        raise FewviewError(f"view {view!r} holds a number too large for a float64") from None
    if array.ndim != 2:
        raise FewviewError(
            f"view {view!r} has {array.ndim} dimension(s); it must be 2-D, samples by features"
        )
    if array.shape[1] == 0:
        raise FewviewError(f"view {view!r} has no columns; drop the view")
    if array.dtype == object:
        try:
            numbers = [_number(cell) for cell in array.flat]
            array = np.array(numbers, dtype=np.float64).reshape(array.shape)
        except (TypeError, ValueError, OverflowError):
            raise FewviewError(_text_message(view, array, names)) from None
    if array.dtype.kind not in "fiub":
        raise FewviewError(
            f"view {view!r} holds {array.dtype} values; features must be numbers "
            "(encode text and dates first)"
        )
    return _as_float(array), names


def _as_float(array: NDArray[Any]) -> FloatArray:
    """Choose float32, or float64 where float32 would lose digits or overflow; always a copy."""
    if array.dtype.kind in "iu" and array.dtype.itemsize > 2 and array.size:
        largest = max(abs(int(array.min())), abs(int(array.max())))
        if largest > 2**24:
            return array.astype(np.float64)
    # By kind and size, not by dtype: a big-endian float64 is not equal to np.float64.
    if array.dtype.kind == "f" and array.dtype.itemsize >= 8:
        return array.astype(np.float64)
    return array.astype(np.float32)


def _number(cell: Any) -> float:
    """Read one cell of an object array; text that looks like a number is still text."""
    if isinstance(cell, (str, bytes)):
        raise TypeError
    return float("nan") if _plain(cell) is None else float(cell)


def _refuse_text_columns(view: str, frame: Any, names: tuple[str, ...] | None) -> None:
    dtypes = getattr(frame, "dtypes", None)
    if names is None or dtypes is None:
        return
    for column, dtype in zip(names, list(dtypes), strict=False):
        text = str(dtype).lower()
        if text.startswith(("str", "utf8", "category", "categorical", "enum", "date", "time")):
            raise FewviewError(
                f"view {view!r}: column {column!r} holds {dtype} values; features must be numbers "
                "(encode or drop the column, or name it as the key)"
            )


def _text_message(view: str, array: NDArray[Any], names: tuple[str, ...] | None) -> str:
    for column in range(array.shape[1]):
        for row in range(array.shape[0]):
            try:
                _number(array[row, column])
            except (TypeError, ValueError, OverflowError):
                where = names[column] if names else column
                return (
                    f"view {view!r}: column {where!r}, row {row} holds {array[row, column]!r}; "
                    "features must be numbers (encode or drop the column)"
                )
    return f"view {view!r} holds values that are not numbers"


def _check_row_counts(blocks: Mapping[str, FloatArray]) -> None:
    counts = {view: block.shape[0] for view, block in blocks.items()}
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{view} {count}" for view, count in counts.items())
        raise FewviewError(
            f"views have different numbers of rows ({listed}); give NaN rows where a view is "
            "missing, or join tables by their keys with MultiViewData.from_frames"
        )


def _as_mask(mask: Any, n_samples: int, n_views: int) -> NDArray[np.bool_] | None:
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


def _settle_rows(
    view: str,
    block: FloatArray,
    allowed: NDArray[np.bool_] | None,
    partial_rows: PartialRows,
    names: tuple[str, ...] | None,
    called: Callable[[Any], str],
) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Decide which rows are present; `block` is a private copy and may be changed.

    `called` says in messages which rows are meant.
    """
    if allowed is not None:
        block[~allowed] = np.nan
    finite = np.isfinite(block)
    if not finite.all():
        missing = np.isnan(block)
        infinite = ~finite & ~missing
        if infinite.any():
            row, column = np.argwhere(infinite)[0].tolist()
            where = repr(names[column]) if names else str(column)
            raise FewviewError(
                f"view {view!r}: {called([row])}, column {where} is infinite; "
                "replace it by a number or by NaN for a missing view"
            )
        part = np.asarray(missing.any(axis=1) & ~missing.all(axis=1))
        if part.any():
            if partial_rows == "error":
                rows = np.flatnonzero(part)
                raise FewviewError(
                    f"view {view!r}: {called(rows)} partly NaN; a missing view is a row of NaN "
                    'only. Choose partial_rows="drop_view" to count the view as missing there or '
                    '"mean" to fill with the column means (on files: fewview data convert)'
                )
            if partial_rows == "drop_view":
                block[part] = np.nan
            else:
                with np.errstate(invalid="ignore"):
                    known = (~missing).sum(axis=0)
                    total = np.where(missing, 0.0, block).sum(axis=0, dtype=np.float64)
                means = total / np.maximum(known, 1)
                rows_, columns_ = np.nonzero(missing & part[:, None])
                unknown = columns_[np.equal(known[columns_], 0)]
                if unknown.size:
                    column = int(unknown[0])
                    where = repr(names[column]) if names else str(column)
                    raise FewviewError(
                        f"view {view!r}: column {where} is NaN in every row; drop the column"
                    )
                block[rows_, columns_] = means[columns_]
    present = ~np.isnan(block[:, 0]) if block.shape[0] else np.zeros(0, dtype=bool)
    block[~present] = np.nan  # one bit pattern of NaN, so that equal data have equal fingerprints
    return _frozen(block), present


def _as_ids(ids: Iterable[Hashable] | None, n_samples: int) -> NDArray[Any] | None:
    if ids is None:
        return None
    try:
        values = [_plain(value) for value in ids]
        hash(tuple(values))
    except TypeError:
        raise FewviewError(
            "ids must be one hashable identifier (a number, a text) per sample"
        ) from None
    if len(values) != n_samples:
        raise FewviewError(f"{len(values)} ids for {n_samples} samples")
    unknown = [row for row, value in enumerate(values) if value is None]
    if unknown:
        raise FewviewError(f"{_rows(unknown, None)}: no id; every sample needs one or none has")
    twice = _repeated(values)
    if twice:
        raise FewviewError(f"id {twice[0]!r} occurs more than once; ids must be unique")
    return _frozen(_tidy(values))


def _as_labels(labels: Iterable[Hashable] | None, n_samples: int) -> NDArray[Any] | None:
    if labels is None:
        return None
    try:
        values = [_plain(label) for label in labels]
    except TypeError:
        raise FewviewError(
            f"labels must be one label per sample, not {type(labels).__name__}"
        ) from None
    if len(values) != n_samples:
        raise FewviewError(f"{len(values)} labels for {n_samples} samples")
    for row, label in enumerate(values):
        try:
            hash(label)
        except TypeError:
            raise FewviewError(
                f"label of row {row} is a {type(label).__name__}; labels must be hashable"
            ) from None
    return _frozen(_tidy(values))


def _plain(label: Any) -> Hashable:
    """Unwrap numpy scalars, and turn NaN and missing markers into None."""
    if isinstance(label, np.generic):
        label = label.item()
    if label is None or type(label).__name__ in ("NAType", "NaTType"):
        return None
    if isinstance(label, float) and label != label:
        return None
    return label  # type: ignore[no-any-return]


def _tidy(values: Sequence[Any]) -> NDArray[Any]:
    """Make an array of one plain kind (int, float, bool, str) or else of objects."""
    plain = [_plain(value) for value in values]
    kinds = {type(value) for value in plain}
    if len(kinds) == 1:
        array = np.array(plain) if kinds <= {int, float, bool, str} else np.empty(0, dtype=object)
        wanted = {int: "iu", float: "f", bool: "b", str: "U"}.get(next(iter(kinds)), "")
        # numpy turns some integers into floats and drops NULs at the end of text: check.
        if array.dtype.kind in wanted and (array.dtype.kind != "U" or array.tolist() == plain):
            return array
    out = np.empty(len(values), dtype=object)
    for index, value in enumerate(values):
        out[index] = _plain(value)
    return out


def _repeated(values: Sequence[Any]) -> list[Any]:
    seen: set[Any] = set()
    return [value for value in values if value in seen or seen.add(value)]  # type: ignore[func-returns-value]


def _rows(rows: Any, ids: NDArray[Any] | None) -> str:
    rows = [int(row) for row in rows]
    text = f"row {rows[0]}" if len(rows) == 1 else f"rows {shorten(rows)}"
    if ids is not None:
        text += f" (id {shorten([ids[row] for row in rows])})"
    return text


def _same_array(one: NDArray[Any] | None, two: NDArray[Any] | None) -> bool:
    if one is None or two is None:
        return one is two
    return bool(one.tolist() == two.tolist())
