"""Samples from disk, part by part: `TableParts`, a folder of folders of tables as one long table.

It need not fit into memory.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fewview.errors import FewviewError, shorten
from fewview.files._folders import check_parts, key_of, part_folders, sample_ids
from fewview.files._guarded import kept_reader
from fewview.files._kinds import whole_numbers, whole_text
from fewview.files._limits import naming
from fewview.files._tables import NUMBERED
from fewview.samples._data import MultiViewData
from fewview.samples._labels import as_ids, in_order, plain

# Bytes of rows that are read at once.
PART_BYTES = 1 << 27


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
