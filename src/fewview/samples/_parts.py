"""Samples from disk, part by part: folders that need not fit into memory.

`NpyFolder` has one file per view, [n_samples, width] in float32 or float64, a row of NaN where the
view is missing, and `labels.npy` with one whole number or text per sample. Files are read in order,
never mapped into memory, and the next part is read while the present one is worked on.
`TableParts` is a folder of folders of tables, read as one long table.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fewview.files._folders import check_parts, key_of, part_folders, sample_ids
from fewview.files._guarded import kept_reader
from fewview.files._kinds import whole_numbers, whole_text
from fewview.files._limits import naming
from fewview.files._npz import npy_header
from fewview.files._tables import NUMBERED
from fewview.ground._errors import FewviewError, shorten
from fewview.samples._data import MultiViewData
from fewview.samples._labels import as_ids, in_order, plain

# Bytes of one part, unless its number of rows is given.
PART_BYTES = 1 << 27


@dataclass(frozen=True)
class ArrayFile:
    """Where the numbers of one `.npy` file lie: `offset` bytes after its start."""

    path: Path
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    offset: int

    @classmethod
    def open(cls, path: Path) -> ArrayFile:
        """Read the header; nothing else is touched."""
        if not path.exists():
            raise FewviewError(f"{path} does not exist; write it with numpy.save")
        try:
            with path.open("rb") as file:
                shape, fortran, dtype = npy_header(file)
                offset = file.tell()
        except (FewviewError, OSError) as error:
            raise FewviewError(f"{path} is not a .npy file: {error.__cause__ or error}") from None
        if fortran and len(shape) > 1:
            raise FewviewError(
                f"{path} holds columns one after the other; save numpy.ascontiguousarray of it"
            )
        needed = offset + math.prod(shape) * dtype.itemsize
        if path.stat().st_size < needed:
            raise FewviewError(f"{path} is cut short: {path.stat().st_size} of {needed} bytes")
        return cls(path, shape, dtype, offset)

    def rows(self, start: int, stop: int) -> NDArray[Any]:
        """Read rows start to stop into memory."""
        width = math.prod(self.shape[1:])
        offset, count = self.offset + start * width * self.dtype.itemsize, (stop - start) * width
        out = np.fromfile(self.path, self.dtype, count, offset=offset)
        if out.size < count:
            raise FewviewError(f"{self.path} ended early; was it changed while read?")
        return out.reshape(stop - start, *self.shape[1:])


@dataclass(frozen=True)
class NpyFolder:
    """A folder with one `.npy` file per view, in alphabetical order, and `labels.npy`.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as name:
        ...     np.save(f"{name}/image.npy", np.ones((5, 2), dtype=np.float32))
        ...     np.save(f"{name}/labels.npy", np.array([0, 1, 0, 1, 2]))
        ...     folder = NpyFolder.open(name)
        ...     [len(part) for part in folder.parts(rows=2)]
        [2, 2, 1]
    """

    path: Path
    views: dict[str, ArrayFile]
    labels: ArrayFile

    @classmethod
    def open(cls, path: str | PathLike[str]) -> NpyFolder:
        """Look at the headers of all files and check that they go together."""
        folder = Path(path)
        names = sorted(file.stem for file in folder.glob("*.npy") if file.stem != "labels")
        if not names:
            raise FewviewError(f"{folder} has no views; it needs one .npy file per view")
        views = {name: ArrayFile.open(folder / f"{name}.npy") for name in names}
        labels = ArrayFile.open(folder / "labels.npy")
        if len(labels.shape) != 1 or labels.dtype.kind not in "iuU":
            raise FewviewError(
                f"{labels.path} must hold one whole number or text per sample, not an array "
                f"{list(labels.shape)} of {labels.dtype}"
            )
        for name, view in views.items():
            if len(view.shape) != 2 or view.dtype not in (np.float32, np.float64):
                raise FewviewError(
                    f"{view.path} must be [n_samples, width] in float32 or float64, not "
                    f"{list(view.shape)} of {view.dtype}"
                )
            if view.shape[0] != labels.shape[0]:
                raise FewviewError(
                    f"view {name!r} has {view.shape[0]} rows, labels.npy {labels.shape[0]}"
                )
        return cls(folder, views, labels)

    @property
    def n_samples(self) -> int:
        """Number of samples."""
        return self.labels.shape[0]

    def read(self, start: int, stop: int) -> MultiViewData:
        """Read samples start to stop."""
        try:
            return _part(
                {name: view.rows(start, stop) for name, view in self.views.items()},
                self.labels.rows(start, stop),
                self.path.name,
            )
        except FewviewError as error:
            raise FewviewError(f"{self.path}, samples {start} to {stop - 1}: {error}") from None

    def parts(
        self, rows: int | None = None, start: int = 0, stop: int | None = None
    ) -> Iterator[MultiViewData]:
        """Yield the samples in order; the next part is read ahead.

        A part has `rows` samples, by default as many as take 128 MiB.
        """
        if rows is None:
            width = sum(view.shape[1] * view.dtype.itemsize for view in self.views.values())
            rows = max(1, PART_BYTES // width)
        if rows < 1:
            raise FewviewError(f"a part of {rows} rows; give a positive number")
        end = self.n_samples if stop is None else min(stop, self.n_samples)
        with ThreadPoolExecutor(1) as reader:
            ahead: deque[Future[MultiViewData]] = deque()
            for first in range(start, end + rows, rows):
                if first < end:
                    ahead.append(reader.submit(self.read, first, min(first + rows, end)))
                if first > start:
                    # Taken off before it is yielded: no part stays in memory with the next two.
                    yield ahead.popleft().result()

    def sample(self, count: int, pieces: int = 64) -> MultiViewData:
        """Read about `count` samples in `pieces` runs that are spread evenly over the files."""
        if count >= self.n_samples:
            return self.read(0, self.n_samples)
        run = max(1, -(-count // pieces))
        starts = np.linspace(0, self.n_samples - run, max(1, count // run)).astype(int)
        return MultiViewData.concat([self.read(s, s + run) for s in starts.tolist()])


@dataclass(frozen=True)
class TableParts:
    """A folder of folders, each with one table per view, as one long table.

    Samples are in the order of the folders' names, and inside a folder in that of their ids. What
    is read does not depend on how many folders the samples are divided into.

    Attributes:
        folders: one per part that has samples.
        ends: number of samples up to the end of every part.
        reading: options of `MultiViewData.read`; parts are brought into the form of `like`.
        text_ids: no kind of number holds the ids of all parts, so that all are taken for texts.
        unsigned_ids: all are whole numbers without a sign, of which some need the 64th bit.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as name:
        ...     for part in (1, 2):
        ...         rows = MultiViewData({"a": [[1.0], [part]]}, ids=[10 * part, 10 * part + 1])
        ...         rows.write(f"{name}/part-{part}", format="csv")
        ...     parts = TableParts.open(name)
        ...     parts.n_samples, parts.read(1, 3).ids.tolist()
        (4, [11, 20])
    """

    folders: tuple[Path, ...]
    ends: tuple[int, ...]
    reading: Mapping[str, Any]
    text_ids: bool = False
    unsigned_ids: bool = False

    @classmethod
    def found(cls, path: str | PathLike[str] | None) -> bool:
        """Whether a path is a folder of folders of tables."""
        return path is not None and bool(part_folders(Path(path)))

    @classmethod
    def open(cls, path: str | PathLike[str], **reading: Any) -> TableParts:
        """Look at the ids of all parts; `reading` is for `MultiViewData.read`."""
        folders = part_folders(Path(path))
        if not folders:
            raise FewviewError(f"{path} has no parts; it needs folders with one table per view")
        check_parts(Path(path), folders)
        if reading.get("partial_rows") == "mean":
            raise FewviewError(
                "--partial-rows mean: every part would have means of its own; choose keep (a "
                "method fills the cells with what it learnt), drop_view or error"
            )
        with kept_reader():
            key = reading.get("key") or key_of(folders[0])
            if key == NUMBERED:
                raise FewviewError(
                    f"{folders[0]} has no column 'id', and samples in parts need ids; add one to "
                    "every table, or name another column with --key"
                )
            counts, kinds, spans, whole = [], set[type](), [], list[int]()
            for folder in folders:
                ids = _ids(folder, key)
                counts.append(len(ids))
                if not isinstance(ids, np.ndarray) and None in ids:
                    raise FewviewError(
                        f"{folder} has rows without a key (column {key!r}); fill it in or drop them"
                    )
                if len(ids):
                    kinds |= {int} if isinstance(ids, np.ndarray) else {*map(type, ids)}
                    whole += _ends(ids)
                    hashes = _hashes(ids)
                    spans.append((int(hashes.min()), int(hashes.max())))
            signed = all(map(_is_signed, whole))
            unsigned = not signed and all(0 <= number < 2**64 for number in whole)
            texts = len(kinds) > 1 or not (signed or unsigned)
            spans.sort()
            if texts or any(one[1] >= two[0] for one, two in pairwise(spans)):
                _refuse_repeats(folders, key, texts)
        if not spans:
            raise FewviewError(f"{path} has no samples; add some")
        filled = [k for k, count in enumerate(counts) if count]
        ends = np.cumsum([counts[k] for k in filled]).tolist()
        absolute = (folders[k].absolute() for k in filled)
        reading = {**reading, "key": key}
        return cls(tuple(absolute), tuple(ends), reading, texts, unsigned and not texts)

    @property
    def n_samples(self) -> int:
        """Number of samples."""
        return self.ends[-1]

    def part(self, number: int) -> MultiViewData:
        """Read one part."""
        folder = self.folders[number]
        data = MultiViewData.read(folder, **self.reading)
        counted = self.ends[number] - (self.ends[number - 1] if number else 0)
        if len(data) != counted:
            raise FewviewError(
                f"{folder} has {len(data)} samples and had {counted} before; it has been changed, "
                "so begin again with another output"
            )
        if data.ids is not None and (self.text_ids or data.ids.dtype.kind in "fO"):
            ids = data.ids.tolist()
            with naming(folder):
                alike = map(whole_text, ids) if self.text_ids else _as_whole(ids)
                data = _with_ids(data, as_ids(alike, counted))
        like = self.reading.get("like")
        if like is None:
            return data
        with naming(folder):
            return data.like(like, str(folder))

    def read(
        self, start: int, stop: int, kept: dict[int, MultiViewData] | None = None
    ) -> MultiViewData:
        """Read samples start to stop; parts that the next ones begin in are left in `kept`."""
        kept = {} if kept is None else kept
        first, last = (bisect_right(self.ends, row) for row in (start, stop - 1))
        rows = []
        for number in range(first, last + 1):
            part = kept.pop(number, None)
            if part is None:
                kept.clear()  # at most one part stays in memory beside what is asked for
                part = self.part(number)
            begin = self.ends[number] - len(part)
            rows.append(part[max(0, start - begin) : stop - begin])
            if self.ends[number] > stop:
                kept[number] = part
        found = rows[0] if len(rows) == 1 else MultiViewData.concat(rows)
        if self.unsigned_ids and found.ids is not None:
            # As numbers of numpy, which say what they are: else some of the files of predictions
            # that are made of them would have another kind of column than the others.
            own = np.array([*found.ids.astype(np.uint64)], dtype=object)
            return _with_ids(found, own)
        return found


def _with_ids(data: MultiViewData, ids: NDArray[Any] | None) -> MultiViewData:
    return MultiViewData.unchecked(
        data.views, data.mask, data.labels, ids, data.columns, data.name, data.kinds
    )


def _ids(folder: Path, key: str) -> Sequence[Any] | NDArray[np.int64]:
    with naming(folder):
        found = sample_ids(folder, key)
        return found if isinstance(found, np.ndarray) else _as_whole(found)


def _as_whole(ids: Sequence[Any]) -> Sequence[Any] | NDArray[np.int64]:
    """Ids as integers where they are whole numbers, whatever a note says that they were."""
    numbers = whole_numbers(ids)
    return ids if numbers is None else numbers


def _ends(ids: Sequence[Any] | NDArray[np.int64]) -> list[int]:
    """The smallest and the largest of those that are whole numbers."""
    if isinstance(ids, np.ndarray):
        return [int(ids.min()), int(ids.max())]
    whole = [value for value in ids if type(value) is int]
    return [min(whole), max(whole)] if whole else []


def _is_signed(number: int) -> bool:
    """Whether arrays of 64 bits with a sign hold it."""
    return -(2**63) <= number < 2**63


def _hashes(ids: Iterable[Any]) -> NDArray[np.int64]:
    return ids if isinstance(ids, np.ndarray) else np.fromiter(map(_hash, ids), np.int64)


def _hash(value: Any) -> int:
    """The hash of an id; numbers that an array may have in another part are themselves."""
    return value if type(value) is int and _is_signed(value) else hash(value)


def _refuse_repeats(folders: Sequence[Path], key: str, texts: bool) -> None:
    """Refuse an id that two parts have; eight bytes a sample are in memory, not the ids.

    Where ids are taken for texts, 3 and 3.0 are one: a frame with a gap has the latter.
    """

    def ids(folder: Path) -> Iterable[Any]:
        return map(whole_text, _ids(folder, key)) if texts else _ids(folder, key)

    hashes = [_hashes(ids(folder)) for folder in folders]
    everything = np.sort(np.concatenate(hashes))
    for value in np.unique(everything[1:][everything[1:] == everything[:-1]]):
        first, *others = (folder for folder, own in zip(folders, hashes, strict=True)
                          if value in own)  # fmt: skip
        for other in others:
            both = {*ids(first)}.intersection(ids(other))
            if both:
                raise FewviewError(
                    f"{first} and {other} both have samples with id "
                    f"{shorten(map(repr, in_order(map(plain, both))))}; keep one row per sample"
                )


def _part(views: dict[str, NDArray[Any]], labels: NDArray[Any], name: str) -> MultiViewData:
    """Samples from arrays that nobody else holds: checked in one pass and not copied."""
    mask = np.ones((len(labels), len(views)), dtype=bool)
    careful = False
    with np.errstate(all="ignore"):
        for index, block in enumerate(views.values()):
            # One sum per row tells whether anything in it is not finite, at the speed of memory.
            odd = np.flatnonzero(~np.isfinite(np.einsum("ij->i", block)))
            mask[odd, index] = False
            careful |= not np.isnan(block[odd]).all()
    if careful or not mask.any(axis=1).all() or labels.dtype.kind == "u":
        return MultiViewData(views, labels, name=name)  # says what is wrong, if something is
    return MultiViewData.unchecked(views, mask, labels, name=name)
