"""A small, fair sample of a base set that comes in parts.

Sums are enough to learn from a base set, but calibration and thresholds are chosen on samples.
`Reservoir` keeps a bounded number of them: some classes, and some samples of each, decided by
hashes of labels and of values. So it is the same whatever the order of the parts and on however
many machines they were read, and a seed makes another sample.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from fewview.ground._draws import GOLDEN, UInt64Array, mix, raw, stream_key
from fewview.samples._data import MultiViewData

# Most classes, and most samples of each.
MOST_BASE_CLASSES = 100
PER_CLASS = 60
# Wide views leave room for fewer samples, but not for fewer than a task needs. Classes share it.
MOST_BYTES = 64 * 2**20
FEWEST = 4
# Rows that are hashed at once.
ROWS = 1024
EVERYTHING = np.iinfo(np.uint64).max


@dataclass(frozen=True, eq=False)
class Reservoir:
    """Samples kept so far; `update` and `merge` return a new one.

    Attributes:
        rows: the samples, those of the classes with the smallest hashes.
        keys: hash of every sample, uint64 [n]; a class keeps its smallest.
        seed: of all hashes.
    """

    rows: MultiViewData
    keys: UInt64Array
    seed: int = 0

    @classmethod
    def empty(cls, reference: MultiViewData, seed: int = 0) -> Reservoir:
        """Keep nothing yet, of samples like these."""
        return cls(reference[:0].without_ids(), np.zeros(0, np.uint64), seed)

    @property
    def per_class(self) -> int:
        """Most samples of a class; before there is any, what is certain however many come."""
        return self._share(len(self.rows.classes) or MOST_BASE_CLASSES)

    def _share(self, n_classes: int) -> int:
        """Most samples of a class where there are so many.

        It can only shrink as more classes come. So what a larger share has kept holds all that a
        smaller one keeps, and neither order nor parts matter.
        """
        width = sum(self.rows.view_dims.values())
        room = MOST_BYTES // max(1, 8 * width * min(n_classes, MOST_BASE_CLASSES))
        return int(np.clip(room, FEWEST, PER_CLASS))

    def update(self, part: MultiViewData) -> Reservoir:
        """Consider labelled samples."""
        keys = row_keys(part, self.seed)
        # Most samples of a long stream are above what their class has kept: they are not copied.
        wanted = np.flatnonzero(keys <= self._limits(part)[part.codes])
        return self._with(part[wanted].without_ids(), keys[wanted])

    def merge(self, other: Reservoir) -> Reservoir:
        """Put two together."""
        return self._with(other.rows, other.keys)

    def _limits(self, part: MultiViewData) -> UInt64Array:
        """Largest key that a sample of every class of a part may have, uint64 [classes]."""
        kept: dict[Hashable, UInt64Array] = {}
        if len(self.rows):
            for code, label in enumerate(self.rows.classes.tolist()):
                kept[label] = self.keys[self.rows.codes == code]
        full = len(kept) >= MOST_BASE_CLASSES
        last = max((_class_key(self.seed, label) for label in kept), default=0)
        limits = np.full(len(part.classes), EVERYTHING, np.uint64)
        for code, label in enumerate(part.classes.tolist()):
            if label not in kept:
                if full and _class_key(self.seed, label) > last:
                    limits[code] = 0
            elif len(kept[label]) >= self.per_class:
                limits[code] = kept[label].max()
        return limits

    def _with(self, rows: MultiViewData, keys: UInt64Array) -> Reservoir:
        if not len(rows):
            return self
        if len(self.rows):
            rows = MultiViewData.concat([self.rows, rows])
            keys = np.concatenate([self.keys, keys])
        labels = rows.classes.tolist()
        class_keys = np.array([_class_key(self.seed, label) for label in labels], dtype=np.uint64)
        rank = np.argsort(np.argsort(class_keys))[rows.codes]  # of the class of every sample
        order = np.lexsort((keys, rank))
        starts = np.searchsorted(rank[order], rank[order])
        place = np.arange(len(order)) - starts  # within the class
        share = self._share(len(labels))
        order = order[(place < share) & (rank[order] < MOST_BASE_CLASSES)]
        return replace(self, rows=rows[order], keys=keys[order])


@lru_cache(maxsize=200_000, typed=True)
def _class_key(seed: int, label: Hashable) -> int:
    return stream_key("class of a reservoir", seed, label)


def row_keys(data: MultiViewData, seed: int = 0) -> UInt64Array:
    """Hash of every sample by all of its values, uint64 [n]; identical samples have one hash."""
    state = np.full(len(data), stream_key("reservoir", seed), np.uint64)
    for view, (name, block) in enumerate(data.views.items()):
        if block.dtype.itemsize not in (4, 8):
            block = block.astype(np.float32)
        whole = block.shape[1] * block.dtype.itemsize % 8 == 0  # two float32 are hashed as one
        kind = np.uint64 if whole else np.uint32
        words = block.shape[1] * block.dtype.itemsize // np.dtype(kind).itemsize
        key = np.array(stream_key("reservoir", seed, name), np.uint64)
        factors = raw(key, words) | np.uint64(1)
        sums = np.zeros(len(data), np.uint64)
        # Whole numbers, so that the sum does not depend on how rows are cut into parts.
        for start in range(0, len(data), ROWS):
            rows = slice(start, start + ROWS)
            bits = np.ascontiguousarray(block[rows]).view(kind)
            sums[rows] = bits.astype(np.uint64, copy=False) @ factors
        sums[~data.mask[:, view]] = 0
        state = mix((state ^ mix(sums)) + np.uint64(GOLDEN))
    return state
