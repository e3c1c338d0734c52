"""Which classes are base and which are novel: class splits, the same for everybody.

Splits 0 to 9 of the known data sets are the ones shipped in `data/splits.json`; further ones, and
all splits of `digits` and of a user's own data, are drawn from a seed by sorting raw keys of the
counter-based generator. No two splits of a data set have the same novel classes.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from itertools import combinations
from math import comb
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fewview.datasets._catalogue import get_spec
from fewview.datasets._loading import load, load_split_column
from fewview.datasets._spec import DatasetSpec
from fewview.errors import FewviewError, shorten
from fewview.numerics.random_keys import combine, raw, smallest, stream_key

MAX_SPLITS = 10_000


@dataclass(frozen=True)
class ClassSplit:
    """Base and novel classes; they never overlap.

    Attributes:
        base: the base classes, in the order of the data's classes.
        novel: the novel classes, in the order of the data's classes.
        base_from: the data set that the base classes belong to, if not the novel classes' own.
        index: number of the split.
        fixed: the data set has this one split only.

    Example:
        >>> ClassSplit(base=(0, 1), novel=(1, 2))
        Traceback (most recent call last):
        ...
        fewview.FewviewError: class 1 is both base and novel; base and novel ...
    """

    base: tuple[Hashable, ...]
    novel: tuple[Hashable, ...]
    base_from: str | None = None
    index: int = 0
    fixed: bool = False

    def __post_init__(self) -> None:
        for what, classes in (("base", self.base), ("novel", self.novel)):
            if len(set(classes)) != len(classes):
                raise FewviewError(f"a class occurs twice among the {what} classes; name it once")
        both = [label for label in self.base if label in set(self.novel)]
        if both and self.base_from is None:
            many = "classes {} are" if len(both) > 1 else "class {} is"
            raise FewviewError(
                f"{many.format(shorten(both))} both base and novel; base and novel classes must "
                "not overlap"
            )
        if not self.novel:
            raise FewviewError("a class split needs at least one novel class")


def class_split(
    dataset: str | DatasetSpec,
    index: int = 0,
    labels: Iterable[Hashable] | None = None,
    *,
    seed: int = 0,
    data_dir: str | PathLike[str] | None = None,
) -> ClassSplit:
    """Return one class split of a known data set.

    Args:
        dataset: name or specification.
        index: number of the split. Sets with a fixed split return it whatever the number.
        labels: labels of the data at hand; given, all novel classes (and all base classes, unless
            they come from another set) must occur among them.
        seed: for splits that are drawn; splits 0 to 9 of the shipped list do not depend on it.
        data_dir: data folder, for sets whose split is written in their file only.

    Returns:
        The split; classes in ascending order.

    Example:
        >>> class_split("handwritten", 0).novel
        (0, 4, 8, 9)
        >>> split = class_split("birds200", 3)
        >>> len(split.novel), split.base_from, len(split.base)
        (50, 'tieredimagenet_tiny', 61)
        >>> class_split("digits", 0) == class_split("digits", 0) != class_split("digits", 1)
        True
    """
    spec = get_spec(dataset) if isinstance(dataset, str) else dataset
    number = _checked_index(index)
    listed = _shipped().get(spec.name, ())
    if spec.fixed_split:
        base, novel = listed[0] if listed else _split_in_file(spec, data_dir)
        number = 0
    elif number < len(listed):
        base, novel = listed[number]
    else:
        base, novel = _draw(
            tuple(range(spec.n_classes)),
            0 if spec.base_from else spec.n_base,
            spec.n_novel,
            number - len(listed),
            seed,
            spec.name,
            frozenset(known for _, known in listed),
        )
    if spec.base_from is not None:
        base = class_split(spec.base_from, 0, data_dir=data_dir).base
    if labels is not None:
        present = set(_classes_of(labels))
        needed = novel if spec.base_from else base + novel
        absent = [label for label in needed if label not in present]
        if absent:
            raise FewviewError(
                f"split {number} of {spec.name!r} needs classes {shorten(absent)}, which the data "
                "do not have; use the complete data set, or draw_split for a part of it"
            )
    return ClassSplit(base, novel, spec.base_from, number, spec.fixed_split)


def draw_split(
    classes: Iterable[Hashable],
    n_base: int,
    n_novel: int,
    index: int = 0,
    seed: int = 0,
    name: str = "data",
) -> ClassSplit:
    """Draw a class split of any data, the same for everybody who gives the same arguments.

    Splits of different numbers have different novel classes; a number beyond the last different
    one is an error.

    Args:
        classes: the classes, or the labels of all samples; order and repetition do not matter.
        n_base: number of base classes.
        n_novel: number of novel classes.
        index: number of the split.
        seed: another seed gives other splits.
        name: name of the data, so that different data get different splits.

    Example:
        >>> split = draw_split(["cat", "dog", "emu", "fox"], n_base=2, n_novel=2, index=1)
        >>> sorted(split.base + split.novel)
        ['cat', 'dog', 'emu', 'fox']
        >>> draw_split(["fox", "cat", "emu", "dog", "cat"], 2, 2, 1) == split
        True
    """
    known = _classes_of(classes)
    number = _checked_index(index)
    if n_novel < 1 or n_base < 0:
        raise FewviewError(
            f"n_base={n_base} and n_novel={n_novel}: at least one novel class is needed, and no "
            "number may be negative"
        )
    if n_base + n_novel > len(known):
        raise FewviewError(
            f"{n_base} base and {n_novel} novel classes asked for, but {name} has only "
            f"{len(known)} classes; ask for fewer"
        )
    base, novel = _draw(known, n_base, n_novel, number, seed, name, frozenset())
    return ClassSplit(base, novel, index=number)


def all_splits(
    classes: int | Iterable[Hashable], n_base: int, limit: int = MAX_SPLITS
) -> tuple[ClassSplit, ...]:
    """Enumerate every way to choose the base classes, all others being novel.

    Args:
        classes: the classes, or their number (then they are 0, 1, ...).
        n_base: number of base classes.
        limit: more splits than this are an error.

    Example:
        >>> splits = all_splits(10, 6)
        >>> len(splits), splits[0].novel
        (210, (6, 7, 8, 9))
    """
    known = tuple(range(classes)) if isinstance(classes, int) else _classes_of(classes)
    if not 0 <= n_base < len(known):
        raise FewviewError(
            f"n_base={n_base} of {len(known)} classes; it must be between 0 and {len(known) - 1}"
        )
    total = comb(len(known), n_base)
    if total > limit:
        raise FewviewError(
            f"{len(known)} classes have {total} splits with {n_base} base classes, more than the "
            f"limit of {limit}; take some of them: --splits 10, or draw_split in Python"
        )
    return tuple(
        ClassSplit(base, tuple(label for label in known if label not in set(base)), index=number)
        for number, base in enumerate(combinations(known, n_base))
    )


def _draw(
    classes: Sequence[Hashable],
    n_base: int,
    n_novel: int,
    index: int,
    seed: int,
    name: str,
    taken: Collection[tuple[Hashable, ...]],
) -> tuple[tuple[Hashable, ...], tuple[Hashable, ...]]:
    """Draw until the `index`-th split whose novel classes are new; returns base, novel."""
    different = comb(len(classes), n_novel)
    if index + len(taken) >= different:
        raise FewviewError(
            f"split {index + len(taken)} of {name!r}: {n_novel} of {len(classes)} classes can be "
            f"chosen in {different} ways only; the last split is {different - 1}"
        )
    key = stream_key("class split", name, seed)
    seen = set(taken)
    start = 0
    while True:
        # Numbers of a stream depend on its position alone, so drawing in blocks changes nothing.
        states = combine(np.arange(start, start + 64, dtype=np.uint64), key)
        for order in smallest(raw(states, len(classes)), n_novel + n_base):
            novel = _pick(classes, order[:n_novel])
            if novel in seen:
                continue
            if index == 0:
                return _pick(classes, order[n_novel:]), novel
            seen.add(novel)
            index -= 1
        start += 64


def _pick(classes: Sequence[Hashable], positions: NDArray[np.int64]) -> tuple[Hashable, ...]:
    return tuple(classes[position] for position in sorted(positions.tolist()))


@lru_cache(maxsize=1)
def _shipped() -> dict[str, tuple[tuple[tuple[Hashable, ...], tuple[Hashable, ...]], ...]]:
    """Read (base, novel) of every split in the package's `splits.json`, classes ascending."""
    text = files("fewview.datasets").joinpath("data", "splits.json").read_text(encoding="utf-8")
    content: dict[str, list[dict[str, Any]]] = json.loads(text)
    return {
        name: tuple(
            (tuple(sorted(entry.get("base", ()))), tuple(sorted(entry["novel"])))
            for entry in entries
        )
        for name, entries in content.items()
    }


def _split_in_file(
    spec: DatasetSpec, data_dir: str | PathLike[str] | None
) -> tuple[tuple[Hashable, ...], tuple[Hashable, ...]]:
    """Read base and novel classes from the `split` column of the data set's own file."""
    parts, labels = load_split_column(spec.name, data_dir), load(spec.name, data_dir).labels
    assert parts is not None  # a fixed split
    assert labels is not None  # `load` has checked them
    found = {part: set(labels[parts == part].tolist()) for part in ("base", "val", "novel")}
    for one, two in combinations(found, 2):
        both = found[one] & found[two]
        if both:
            raise FewviewError(
                f"data set {spec.name!r}: class {min(both)} is both {one} and {two} in 'split'; "
                "a class belongs to one part only"
            )
    expected = {"base": spec.n_base, "val": spec.n_val, "novel": spec.n_novel}
    for part, count in expected.items():
        if len(found[part]) != count:
            raise FewviewError(
                f"data set {spec.name!r}: {len(found[part])} {part} classes in 'split'; there "
                f"should be {count}"
            )
    return tuple(sorted(found["base"])), tuple(sorted(found["novel"]))


def _classes_of(labels: Iterable[Hashable]) -> tuple[Hashable, ...]:
    """Return the different labels in an order that does not depend on the order of samples."""
    items = [item.item() if isinstance(item, np.generic) else item for item in labels]
    different: dict[Any, None] = dict.fromkeys(item for item in items if item is not None)
    try:
        return tuple(sorted(different))
    except TypeError:  # labels of several kinds
        return tuple(sorted(different, key=lambda label: (type(label).__name__, repr(label))))


def _checked_index(index: int) -> int:
    try:
        number = int(index)
    except (TypeError, ValueError):
        number = -1
    if number < 0 or number != index:
        raise FewviewError(f"split {index!r} is not a number of a class split; count from 0")
    return number
