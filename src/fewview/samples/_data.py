"""What a sample is: `MultiViewData`, named feature blocks with rows that may be missing.

Everything in fewview that holds samples is one of these. It is immutable, knows its own missing
views, and can be sliced by rows, so that scikit-learn's splitters take it for an ordinary X. What
only some samples need (files, frames, summaries) is imported where it is used.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import chain
from os import PathLike
from types import EllipsisType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fewview.errors import FewviewError, FewviewWarning, check_word, shorten
from fewview.samples._blocks import (
    PARTIAL_ROWS,
    FloatArray,
    PartialRows,
    as_blocks,
    as_mask,
    frozen,
    settle_rows,
)
from fewview.samples._columns import Columns, merge_columns, plain_columns, recode
from fewview.samples._labels import as_ids, as_labels, encode_labels, rows_text

if TYPE_CHECKING:
    from fewview.files._file_contents import Contents, Tables
    from fewview.samples._overview import Summary

WHOLE = (slice(None), ...)  # an index that leaves nothing out


class MultiViewData:
    """Samples described by several named views, any of which may be missing for any sample.

    A missing view of a sample is an all-NaN row of that view's block; `mask[n, v]` is False there.
    NaN in other rows are empty cells, which methods fill with what they have learnt. Every sample
    has at least one view. Instances are immutable: the arrays are read-only.

    Columns of words become numbers: categories one column each (`leaf=dry`, `leaf=wet`), truth
    values 0 and 1, dates days since 1970, longer texts shares of their letters; see `kinds`.

    Args:
        views: dict of name -> array [n_samples, width], a list of such arrays (named `view0`,
            `view1`, ...), or one 2-D array (one view, `view0`). Blocks may be frames (their column
            names are kept; rows are matched by position, see `from_frames` for matching by key)
            or scipy sparse matrices.
        labels: one hashable label per sample; None or NaN where unknown.
        ids: unique sample identifiers.
        mask: boolean [n_samples, n_views]; False marks a view as missing whatever its block holds.
        columns: dict of view name -> column names, where known.
        partial_rows: what to do with a row that is partly NaN: `"keep"` (those cells are empty),
            `"error"`, `"drop_view"` (the view counts as missing for that sample) or `"mean"` (fill
            with the column's mean in these data).
        name: what to call this data in messages and reports.
        like: samples whose columns and categories were learnt before, usually the base set: words
            become the same numbers, and what does not fit is told.

    Example:
        >>> nan = float("nan")
        >>> data = MultiViewData(
        ...     {"image": [[1.0, 2.0], [nan, nan]], "text": [[5.0], [6.0]]}, labels=["cat", "dog"]
        ... )
        >>> data
        MultiViewData(2 samples, views: image[2], text[1], 2 classes, 25.0% of views missing)
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
    kinds: dict[str, Columns]
    name: str | None

    def __init__(
        self,
        views: Any,
        labels: Iterable[Hashable] | None = None,
        *,
        ids: Iterable[Hashable] | None = None,
        mask: Any = None,
        columns: Mapping[str, Sequence[str]] | None = None,
        partial_rows: PartialRows = "keep",
        name: str | None = None,
        like: MultiViewData | None = None,
    ) -> None:
        check_word(f"partial_rows={partial_rows!r}", partial_rows, PARTIAL_ROWS)
        known: Mapping[str, Columns] = {}
        if isinstance(views, MultiViewData):
            known = views.kinds if columns is None else {}
            columns = views.columns if columns is None else columns
            views = views.views
        learnt = {} if like is None else like.kinds
        blocks, self.columns, self.kinds = as_blocks(views, columns or {}, learnt)
        self.kinds |= known
        n_samples = len(next(iter(blocks.values())))
        self.ids = as_ids(ids, n_samples)
        given = as_mask(mask, n_samples, len(blocks))
        present = np.empty((n_samples, len(blocks)), dtype=bool)
        for index, (view, block) in enumerate(blocks.items()):
            blocks[view], present[:, index] = settle_rows(
                view,
                block,
                None if given is None else given[:, index],
                partial_rows,
                self.columns.get(view),
                lambda rows: rows_text(rows, self.ids),
            )
        empty = np.flatnonzero(~present.any(axis=1))
        if empty.size:
            raise FewviewError(
                f"{rows_text(empty, self.ids)}: no view at all; every sample needs at least one "
                "view, drop these samples"
            )
        self._views = blocks
        self.mask = frozen(present)
        self.labels = as_labels(labels, n_samples)
        self.name = name

    # ------------------------------------------------------------------ other ways to make one

    @classmethod
    def from_frames(
        cls,
        frames: Mapping[str, Any],
        labels: Any = None,
        *,
        key: str | None = None,
        partial_rows: PartialRows = "keep",
        name: str | None = None,
        like: MultiViewData | None = None,
        disjoint: bool = False,
    ) -> MultiViewData:
        """Join one table per view whose rows do not match (an outer join).

        Samples come sorted by key where keys can be compared, else in the order in which they first
        appear, so that the order of rows in the tables does not matter.

        Args:
            frames: dict of view name -> pandas, polars or other frame that narwhals knows. All
                columns but the key are features: numbers, words, truth values or dates.
            labels: a frame with the key and one more column, a pandas Series whose index is the
                key, or a dict id -> label; None for samples without a label.
            key: the column (or, in pandas, the index level) that identifies a sample; without it a
                column `id` does where there is one, else the pandas index.
            partial_rows: see the class.
            name: see the class.
            like: see the class.
            disjoint: tables that have no key in common are meant so.

        Example:
            >>> import pandas as pd
            >>> rna = pd.DataFrame({"id": ["a", "b"], "g1": [0.1, 0.2]})
            >>> scan = pd.DataFrame({"id": ["b", "c"], "s1": [1.0, 2.0]})
            >>> MultiViewData.from_frames({"rna": rna, "scan": scan}).ids.tolist()
            ['a', 'b', 'c']
        """
        from fewview.samples._frames import frame_tables

        tables = frame_tables(frames, labels, key, name)
        return cls.from_contents(tables, partial_rows, like, disjoint)

    @classmethod
    def from_contents(
        cls,
        contents: Contents | Tables,
        partial_rows: PartialRows = "keep",
        like: MultiViewData | None = None,
        disjoint: bool = False,
    ) -> MultiViewData:
        """Make samples of what a file says, or of tables that are still to be joined by key."""
        from fewview.files._file_contents import Tables
        from fewview.samples._joins import join_tables, tell_copies

        kinds: dict[str, Columns] = {}
        foreign = isinstance(contents, Tables) and not contents.trusted
        if isinstance(contents, Tables):
            learnt = None if like is None else like.kinds
            contents, kinds = join_tables(contents, partial_rows, learnt, disjoint)
        data = cls(**vars(contents), partial_rows=partial_rows).with_kinds(kinds)
        if foreign and data.labels is not None:
            tell_copies(data.codes, data.views, data.columns, kinds)
        return data

    @classmethod
    def unchecked(
        cls,
        views: Mapping[str, FloatArray],
        mask: NDArray[np.bool_],
        labels: NDArray[Any] | None = None,
        ids: NDArray[Any] | None = None,
        columns: dict[str, tuple[str, ...]] | None = None,
        name: str | None = None,
        kinds: dict[str, Columns] | None = None,
    ) -> MultiViewData:
        """Make samples of arrays that are right already and that nobody changes: nothing is copied.

        Whole rows of the views are NaN exactly where the mask is False.
        """
        out = cls.__new__(cls)
        out._views = {view: frozen(block) for view, block in views.items()}
        out.mask = frozen(mask)
        out.labels = None if labels is None else frozen(labels)
        out.ids = None if ids is None else frozen(ids)
        out.columns, out.name, out.kinds = columns or {}, name, kinds or {}
        return out

    @classmethod
    def read(
        cls,
        path: str | PathLike[str],
        *,
        partial_rows: PartialRows = "keep",
        labels: str | None = None,
        key: str | None = None,
        like: MultiViewData | None = None,
        disjoint: bool = False,
    ) -> MultiViewData:
        """Read samples from a file or from a folder with one table per view.

        Args:
            path: an `.npz`, `.mat`, `.h5mu` or `.h5ad` file, or the folder.
            partial_rows: what to do with rows that are partly NaN; see the class.
            labels: what holds the labels, by name: an array (`.npz`, by default `y`), a variable
                (`.mat`), a column of `obs` (`.h5mu`, `.h5ad`), or of the label file or any table
                (folder), by default `label`.
            key: in a folder, the column that identifies a sample: by default `id`, else the one
                that all tables have with another value in every row.
            like: samples whose columns and categories were learnt before; see the class.
            disjoint: tables that have no id in common are meant so: samples have one view each.

        Returns:
            The samples, called after the file.

        Example:
            >>> import tempfile
            >>> from pathlib import Path
            >>> file = Path(tempfile.mkdtemp()) / "pets.npz"
            >>> np.savez(file, view_image=np.ones((2, 3)), y=np.array([0, 1]))
            >>> MultiViewData.read(file)
            MultiViewData(pets: 2 samples, views: image[3], 2 classes, 0.0% of views missing)
        """
        from pathlib import Path

        from fewview.files._formats import read_contents
        from fewview.files._limits import naming

        check_word(f"partial_rows={partial_rows!r}", partial_rows, PARTIAL_ROWS)
        with naming(Path(path)):
            contents = read_contents(Path(path), labels, key)
            return cls.from_contents(contents, partial_rows, like, disjoint)

    def write(self, path: str | PathLike[str], *, format: str | None = None) -> None:
        """Write the samples to a file or to a new folder with one table per view.

        The result appears under its name only when it is complete. An existing file is replaced; an
        existing folder is not, unless it is empty. Labels and ids must be numbers or text. Reading
        gives back exactly what was written, whatever the format.

        Args:
            path: the file or the folder.
            format: one of `fewview.files.FORMATS`; by default that of the name's ending, and a
                folder of csv tables for names without an ending.

        Example:
            >>> import tempfile
            >>> from pathlib import Path
            >>> folder = Path(tempfile.mkdtemp()) / "pets"
            >>> data = MultiViewData({"image": [[1.0, 2.0]]}, labels=["cat"], ids=["tom"])
            >>> data.write(folder, format="csv")
            >>> print((folder / "image.csv").read_text(), end="")
            id,0,1
            tom,1.0,2.0
            >>> MultiViewData.read(folder) == data
            True
        """
        from pathlib import Path

        from fewview.files._file_contents import Contents
        from fewview.files._formats import write_contents
        from fewview.files._limits import naming

        labels = None if self.labels is None else self.labels.tolist()
        ids = None if self.ids is None else self.ids.tolist()
        contents = Contents(self._views, labels, ids, self.columns, self.name)
        with naming(Path(path)):
            write_contents(contents, Path(path), format)

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
        widths: dict[str, int] = {}
        columns: dict[str, tuple[str, ...]] = {}
        kinds = _merged_kinds(items)
        items = [item._recoded(kinds) for item in items]
        for item in items:
            for view, width in item.view_dims.items():
                if widths.setdefault(view, width) != width:
                    raise FewviewError(
                        f"view {view!r} is {widths[view]} wide in one part and {width} in another"
                    )
            for view, names in item.columns.items():
                if set(columns.setdefault(view, names)) != set(names):
                    raise FewviewError(f"view {view!r} has different columns in different parts")
        order = {
            view: plain_columns(names)
            for view, names in columns.items()
            if view not in kinds and any(i.columns.get(view, names) != names for i in items)
        }
        items = [item._recoded(order) for item in items]
        blocks = {
            view: np.concatenate([item._block(view, width) for item in items])
            for view, width in widths.items()
        }
        labels: list[Any] | None = None
        if any(item.labels is not None for item in items):
            known = ([None] * len(i) if i.labels is None else i.labels.tolist() for i in items)
            labels = [*chain.from_iterable(known)]
        held = [item.ids for item in items if item.ids is not None]
        ids: Any = None
        if len(held) == len(items):
            numbers = all(some.dtype == np.int64 for some in held)  # as an array, which is quick
            ids = np.concatenate(held) if numbers else [i for some in held for i in some.tolist()]
        out = cls(blocks, labels, ids=ids, columns=columns, name=items[0].name)
        return out.with_kinds(kinds)

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

    @cached_property
    def empty_cells(self) -> int:
        """Number of empty cells: NaN in rows of views that are not missing.

        Example:
            >>> MultiViewData({"a": [[1.0, float("nan")], [2.0, 3.0]]}).empty_cells
            1
        """
        total = 0
        for (view, block), present in zip(self._views.items(), self.mask.T, strict=True):
            if view in self.kinds:  # a word in a cell may be several numbers
                widths = [column.width for column in self.kinds[view]]
                block = block[:, np.cumsum([0, *widths[:-1]])]
            total += int(np.isnan(block[present]).sum())
        return total

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
            digest.update(np.ascontiguousarray(block).reshape(-1).view(np.uint8).data)
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
        out = np.concatenate([*self._views.values()], axis=1)
        return out if dtype is None else out.astype(dtype)

    def __getitem__(self, key: Any) -> MultiViewData:
        if isinstance(key, tuple):
            if not all(isinstance(p, (slice, EllipsisType)) and p in WHOLE for p in key[1:]):
                raise FewviewError(
                    "MultiViewData is indexed by rows only; use select_views() for columns"
                )
            key = key[0] if key else ...
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
        if isinstance(key, slice) and (key.step or 1) < 0:
            key = np.arange(self.n_samples)[key]  # torch takes no views of rows in reverse order
        ids = None if self.ids is None else self.ids[key]
        if ids is not None and not isinstance(key, slice):
            kept = np.asarray(key)
            if kept.dtype != bool and np.unique(kept % self.n_samples).size != kept.size:
                ids = None  # a bootstrap sample: its identifiers are not unique any more
        return self._changed(
            views={view: block[key] for view, block in self._views.items()},
            mask=self.mask[key],
            labels=None if self.labels is None else self.labels[key],
            ids=ids,
        )

    def _changed(self, **changes: Any) -> MultiViewData:
        """The same samples with other parts, which must be right."""
        kept = ("mask", "labels", "ids", "columns", "name", "kinds")
        parts = {name: getattr(self, name) for name in kept}
        return MultiViewData.unchecked(**{"views": self._views, **parts, **changes})

    def _checked(
        self, views: Any, columns: Mapping[str, Sequence[str]], mask: Any = None
    ) -> MultiViewData:
        """The same samples with other views, which are still to be checked."""
        out = MultiViewData(
            views, self.labels, ids=self.ids, mask=mask, columns=columns, name=self.name
        )
        return out.with_kinds(self.kinds)

    def select_views(self, names: Sequence[str]) -> MultiViewData:
        """Keep only these views, in this order; samples left without any view are an error.

        Example:
            >>> MultiViewData({"a": [[1.0]], "b": [[2.0]]}).select_views(["b"]).view_names
            ('b',)
        """
        chosen = {name: self.view(name) for name in names}
        if not chosen:
            raise FewviewError("select_views needs at least one view")
        columns = {view: self.columns[view] for view in chosen if view in self.columns}
        return self._checked(chosen, columns)

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
        given = as_mask(mask, self.n_samples, self.n_views)
        both = self.mask if given is None else self.mask & given
        return self._checked(self._views, self.columns, both)

    def with_labels(self, labels: Iterable[Hashable] | None) -> MultiViewData:
        """Return the same samples with other labels."""
        return self._changed(labels=as_labels(labels, self.n_samples))

    def with_name(self, name: str | None) -> MultiViewData:
        """Return the same samples under another name."""
        return self._changed(name=name)

    def with_kinds(self, kinds: Mapping[str, Columns]) -> MultiViewData:
        """Return the same samples with what their columns are, for views that are not all numbers.

        The numbers must have been made so.
        """
        if not kinds and not self.kinds:
            return self
        return self._changed(kinds={v: tuple(kinds[v]) for v in self._views if v in kinds})

    def without_ids(self) -> MultiViewData:
        """Return the same samples without identifiers: rows of two sets may share them."""
        return self._changed(ids=None)

    def like(
        self, reference: MultiViewData, what: str = "data", strict: bool = False
    ) -> MultiViewData:
        """Bring views and columns into the order of `reference`, matching by name.

        A view of the reference that is absent here is missing for all samples. Columns that the
        reference has and these samples have not are empty, other columns are left out, and both are
        told. A view that the reference does not have is left out and told; one of another width,
        without names of columns, is an error.

        Args:
            reference: usually the base set.
            what: how to call this data in messages ("support", "query").
            strict: take a view that the reference does not have for an error.

        Example:
            >>> base = MultiViewData({"a": [[1.0]], "b": [[2.0]]})
            >>> MultiViewData({"b": [[3.0]]}).like(base).mask.tolist()
            [[False, True]]
        """
        dims = reference.view_dims
        if (
            list(self.view_dims.items()) == list(dims.items())
            and (not self.columns or not reference.columns or self.columns == reference.columns)
            and all(self.kinds[view] == reference.kinds.get(view) for view in self.kinds)
        ):
            return self
        extra = [view for view in self.view_names if view not in dims]
        if extra:
            return self._without_views(extra, dims, what, strict).like(reference, what)
        arranged = self._in_column_order(reference, what)
        for view, width in arranged.view_dims.items():
            if width != dims[view]:
                raise FewviewError(
                    f"view {view!r}: {what} is {width} wide, the reference set {dims[view]}; "
                    "both must hold the same features"
                )
        blocks = {view: arranged._block(view, width) for view, width in dims.items()}
        return arranged._checked(blocks, reference.columns).with_kinds(reference.kinds)

    def _without_views(
        self, extra: Sequence[str], dims: Mapping[str, int], what: str, strict: bool
    ) -> MultiViewData:
        """Leave out views that a reference does not have, and tell it."""
        from difflib import get_close_matches

        near = [match for view in extra for match in get_close_matches(view, list(dims), n=1)]
        text = (
            f"{what} has a view {shorten(map(repr, extra))} that the reference set does not have "
            f"(it has {shorten(dims)})"
        )
        hint = f"; did you mean {near[0]!r}?" if near else ""
        kept = [view for view in self.view_names if view not in extra]
        if not kept:
            raise FewviewError(
                f"{text}, and no other; a table is the view that its file is called, so give a "
                f"folder with {shorten(f'{view}.csv' for view in dims)}{hint}"
            )
        if strict:
            raise FewviewError(f"{text}{hint or f'; drop it with drop_views({extra!r})'}")
        there = self.mask[:, [view in kept for view in self.view_names]].any(axis=1)
        if not there.all():
            rows = rows_text(np.flatnonzero(~there), self.ids)
            raise FewviewError(f"{text}, and {rows} no other; drop these samples{hint}")
        warnings.warn(f"{text}; it is left out{hint}", FewviewWarning, stacklevel=4)
        return self.select_views(kept)

    def _block(self, view: str, width: int) -> FloatArray:
        """The block of a view, rows of NaN where there is none."""
        if view in self._views:
            return self._views[view]
        return np.full((self.n_samples, width), np.nan, dtype=np.float32)

    def _in_column_order(self, reference: MultiViewData, what: str) -> MultiViewData:
        """Columns as in the reference, by name, where both sides have names."""
        wanted = {
            view: reference.kinds.get(view) or plain_columns(names)
            for view, names in reference.columns.items()
            if self.columns.get(view, names) != names
            or self.kinds.get(view) != reference.kinds.get(view)
        }
        return self._recoded(wanted, what)

    def _recoded(self, wanted: Mapping[str, Columns], what: str = "") -> MultiViewData:
        """The same samples with their columns as these, where they have names."""
        blocks, columns = dict(self._views), dict(self.columns)
        for view, known in wanted.items():
            names = columns.get(view)
            if names is None:
                continue
            mine = self.kinds.get(view) or plain_columns(names)
            if mine != known:
                blocks[view], columns[view] = recode(view, blocks[view], mine, known, what)
        if columns == self.columns:
            return self
        there = np.column_stack([~np.isnan(block).all(axis=1) for block in blocks.values()])
        empty = np.flatnonzero(~there.any(axis=1))
        if empty.size:
            raise FewviewError(
                f"{what or 'data'}: {rows_text(empty, self.ids)}: nothing is left of the columns "
                "that were learnt; drop these samples"
            )
        kinds = {view: wanted.get(view, self.kinds.get(view, ())) for view in columns}
        return self._changed(
            views=blocks, mask=there, columns=columns,
            kinds={v: cs for v, cs in kinds.items() if any(c.kind != "number" for c in cs)},
        )  # fmt: skip

    # ------------------------------------------------------------------ looks

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, MultiViewData):
            return NotImplemented
        return (
            list(self.view_dims.items()) == list(other.view_dims.items())
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
        empty = f", {self.empty_cells} empty cells" if self.empty_cells else ""
        return (
            f"MultiViewData({label}{self.n_samples} samples, views: {views}, {classes}, "
            f"{100 * self.missing_rate:.1f}% of views missing{empty})"
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


def _merged_kinds(items: Sequence[MultiViewData]) -> dict[str, Columns]:
    """What columns of several sets are, for views of which some column is not a number."""
    merged = {}
    for view in dict.fromkeys(view for item in items for view in item.kinds):
        parts = [item for item in items if view in item.columns]
        merged[view] = merge_columns(
            [item.kinds.get(view) or plain_columns(item.columns[view]) for item in parts]
        )
    return merged


def _same_array(one: NDArray[Any] | None, two: NDArray[Any] | None) -> bool:
    if one is None or two is None:
        return one is two
    return bool(one.tolist() == two.tolist())
