"""Which data a grid runs on: known data sets by name, a user's own files, or data in memory.

A `Source` puts the three behind one face: samples, default task, class splits.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from math import comb
from pathlib import Path

import numpy as np

from fewview.datasets._catalogue import get_spec, names
from fewview.datasets._loading import load
from fewview.datasets._splits import ClassSplit, all_splits, class_split, draw_split
from fewview.errors import FewviewError
from fewview.samples._data import MultiViewData

# Share of base classes in a user's own data, about that of the paper's sets.
BASE_SHARE = 0.6


@dataclass(frozen=True)
class Source:
    """Data and what is usually done with them."""

    name: str  # shown in results, and part of what episodes are drawn from
    data: MultiViewData
    known: bool  # one of `fewview.datasets.names()`
    n_base: int
    n_novel: int
    way: int
    shot: int
    queries: int | None  # None: as many as fit, at most 15
    base_from: str | None = None  # the data set that base classes come from, if not this one
    given: ClassSplit | None = None  # written in a user's file
    data_dir: str | None = None

    @property
    def fixed(self) -> bool:
        """Whether there is one class split only, so that repetitions redraw episodes alone."""
        return self.given is not None or (self.known and get_spec(self.name).fixed_split)

    def split(self, index: int, seed: int = 0) -> ClassSplit:
        """Return one class split; a fixed one whatever the index."""
        if self.given is not None:
            return self.given
        classes = self.data.classes.tolist()
        if self.known:
            return class_split(self.name, index, classes, seed=seed, data_dir=self.data_dir)
        return draw_split(classes, self.n_base, self.n_novel, index, seed, self.name)

    @property
    def n_splits(self) -> int | None:
        """In how many ways the classes can be split; None where repetitions take other episodes."""
        return None if self.fixed else comb(len(self.data.classes), self.n_novel)

    def every_split(self) -> tuple[ClassSplit, ...]:
        """Enumerate all class splits, where that is feasible."""
        if self.fixed:
            return (self.split(0),)
        classes = self.data.classes.tolist()
        if self.base_from is not None or self.n_base + self.n_novel != len(classes):
            raise FewviewError(
                f"data set {self.name!r} cannot be enumerated with --splits all: its novel classes "
                "are a sample of its classes; give a number of splits"
            )
        return all_splits(classes, self.n_base)

    def fitting_queries(self, shot: int) -> int:
        """Queries per class when the user gives none."""
        if self.queries is not None:
            return self.queries
        smallest = int(np.bincount(self.data.codes[self.data.codes >= 0]).min())
        if smallest <= shot:
            raise FewviewError(
                f"{self.name}: the smallest class has {smallest} sample(s), which leaves no "
                f"queries beside {shot} shot(s); lower --shot or leave the class out"
            )
        return min(15, smallest - shot)

    def base_classes(self) -> tuple[Hashable, ...]:
        """Classes that this data set lends to another one as base classes."""
        return self.split(0).base if self.fixed else tuple(self.data.classes.tolist())


def find_source(
    dataset: str | MultiViewData,
    data_dir: str | None = None,
    *,
    all_novel: bool = False,
    as_base: bool = False,
) -> Source:
    """Find data by name, by file or folder, or take them as they are.

    With `all_novel` base classes come from elsewhere, so all classes of a user's own data are novel
    ones; with `as_base` the data only lend their classes, so few of them will do.
    """
    if isinstance(dataset, MultiViewData):
        return _own(dataset, dataset.name or "data", None, all_novel, as_base)
    if dataset not in names() and Path(dataset).expanduser().exists():
        path = Path(dataset).expanduser()
        data = MultiViewData.read(path)
        return _own(data, path.stem, _split_in_file(path, data), all_novel, as_base)
    if dataset not in names() and ("/" in dataset or "\\" in dataset or Path(dataset).suffix):
        raise FewviewError(f"{dataset}: no such file or folder")
    spec = get_spec(dataset)
    usual = ("n_base", "n_novel", "way", "shot", "queries", "base_from")
    return Source(
        name=spec.name,
        data=load(spec.name, data_dir),
        known=True,
        data_dir=data_dir,
        **{name: getattr(spec, name) for name in usual},
    )


def _own(
    data: MultiViewData, name: str, given: ClassSplit | None, all_novel: bool, as_base: bool
) -> Source:
    if data.labels is None:
        raise FewviewError(f"{name}: no labels; episodes are drawn from labelled samples")
    classes = data.classes.tolist()
    if all_novel and given is None:
        given = ClassSplit((), tuple(classes), fixed=True)
    if given is None and len(classes) < 3 and not as_base:
        raise FewviewError(
            f"{name}: {len(classes)} class(es); at least 3 are needed, one base class and two "
            "novel ones (or give base classes from other data with --base)"
        )
    n_base = min(round(BASE_SHARE * len(classes)), len(classes) - 2)
    n_novel = len(classes) - n_base
    if given is not None:
        n_base, n_novel = len(given.base), len(given.novel)
    return Source(
        name=name,
        data=data,
        known=False,
        n_base=n_base,
        n_novel=n_novel,
        way=max(2, min(5, n_novel)),
        shot=1,
        queries=None,
        given=given,
    )


def _split_in_file(path: Path, data: MultiViewData) -> ClassSplit | None:
    """Read the optional column `split` (base, val or novel per row) of an `.npz` file."""
    from fewview.files._npz import npz_keys, read_npz_column

    if path.suffix.lower() != ".npz" or "split" not in npz_keys(path) or data.labels is None:
        return None
    parts = read_npz_column(path, "split").astype(str)
    if parts.shape != (len(data),):
        raise FewviewError(f"{path}: array 'split' must have one entry per row")
    found = {part: set(data.labels[parts == part].tolist()) for part in ("base", "novel")}
    classes = data.classes.tolist()
    base, novel = (tuple(c for c in classes if c in found[part]) for part in ("base", "novel"))
    if not base or not novel:
        raise FewviewError(f"{path}: array 'split' must mark rows 'base' and rows 'novel'")
    return ClassSplit(base, novel, fixed=True)
