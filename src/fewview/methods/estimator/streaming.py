"""Learning from a base set that comes in parts: `BaseStream`, with `update` and `merge`.

The first part fixes what must be known before anything can be summed: the scaling of the views
(and, for Marginal, their principal axes). Everything after that is sums over samples, which add up
in any order and on any number of machines, and a small, fair sample of the rows (`Reservoir`), from
which calibrations are learnt.
"""

from __future__ import annotations

import copy
import hashlib
from collections import Counter
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fewview.episodes.task import TaskSpec
from fewview.errors import FewviewError
from fewview.methods.base import Contract
from fewview.methods.estimator.fitted_base import (
    FittedBase,
    labelled,
    parameters_of,
    usual_task,
    view_spread,
)
from fewview.methods.estimator.row_keys import row_keys
from fewview.numerics.random_keys import UInt64Array, stream_key
from fewview.samples._data import MultiViewData
from fewview.samples._scaling import ViewScaling, fit_scaling

# Parameters that the first part fixes, where a method has them.
FIXED = ("scaling", "components")
MOST_CLASSES = 100  # in a bounded sample


class Statistics(Protocol):
    """Sums over scaled, labelled samples: what a method's state is made from."""

    def update(self, data: MultiViewData) -> Any:
        """Add samples."""

    def merge(self, other: Any) -> Any:
        """Return the statistics of both together."""


@dataclass(frozen=True, repr=False)
class BaseStream:
    """Statistics of a base set seen so far; every step returns a new stream.

    Attributes:
        scaling: fixed by the first part.
        reference: views and columns, no rows.
        parameters: of the method, as text.
        statistics: of the method; None where it learns nothing but the scaling.
        sums: per view, sum of the scaled rows, float64 [width].
        counts: per view, rows that have it.
        sample: a bounded number of the samples.
        classes: label -> samples.
        patterns: which views samples have -> samples.

    Example:
        >>> from fewview import UGDA
        >>> from fewview.datasets import make_few_shot
        >>> base = make_few_shot(seed=0)
        >>> start = BaseStream.start(UGDA(), base[::2])
        >>> parts = [start.update(part) for part in (base[:50], base[50:])]
        >>> parts[0].merge(parts[1]).n_samples == len(base)
        True
    """

    scaling: ViewScaling
    reference: MultiViewData
    parameters: Mapping[str, str]
    statistics: Statistics | None
    sums: tuple[Tensor, ...]
    counts: tuple[int, ...]
    sample: Reservoir
    classes: Mapping[Hashable, int] = field(default_factory=dict)
    patterns: Mapping[tuple[bool, ...], int] = field(default_factory=dict)

    @classmethod
    def start(cls, method: Contract, sample: MultiViewData) -> BaseStream:
        """Fix the scaling on a fair sample of the base set, usually the first part."""
        method.check()
        scaling = fit_scaling(sample, method.scaling)
        return cls(
            scaling,
            sample[:0],
            parameters_of(method),
            method.statistics(scaling.transform(sample, np.float64)),
            tuple(torch.zeros(width, dtype=torch.float64) for width in sample.view_dims.values()),
            (0,) * sample.n_views,
            Reservoir.empty(sample, getattr(method, "seed_", method.random_state)),
        )

    def __repr__(self) -> str:
        views = ", ".join(f"{view}[{width}]" for view, width in self.reference.view_dims.items())
        return (
            f"BaseStream({self.n_samples} samples, {len(self.classes)} classes, views: {views}, "
            f"{len(self.sample.rows)} rows kept)"
        )

    @property
    def n_samples(self) -> int:
        """Samples seen."""
        return sum(self.classes.values())

    def update(self, part: MultiViewData) -> BaseStream:
        """Add labelled samples; the stream before stays what it was."""
        part = labelled(part, "base", "this part of the base set has no labels; give y")
        part = part.like(self.reference, "this part of the base set")
        scaled = self.scaling.transform(part, None)
        statistics = copy.deepcopy(self.statistics)
        if statistics is not None:
            statistics.update(scaled)
        blocks = zip(scaled.views.values(), scaled.mask.T, strict=True)
        patterns = {(True,) * part.n_views: len(part)}
        if not part.mask.all():
            rows, times = np.unique(part.mask, axis=0, return_counts=True)
            patterns = dict(zip(map(tuple, rows.tolist()), times.tolist(), strict=True))
        classes = dict(zip(part.classes.tolist(), np.bincount(part.codes).tolist(), strict=True))
        return replace(
            self,
            statistics=statistics,
            sums=tuple(a + _column_sums(*b) for a, b in zip(self.sums, blocks, strict=True)),
            counts=tuple(np.add(self.counts, part.mask.sum(axis=0)).tolist()),
            classes=Counter(self.classes) + Counter(classes),
            patterns=Counter(self.patterns) + Counter(patterns),
            sample=self.sample.update(part),
        )

    def merge(self, other: BaseStream) -> BaseStream:
        """Put two streams together that were started alike, for instance on two machines."""
        if self.key != other.key:
            raise FewviewError(
                "these streams were scaled differently or have different seeds, so they do not "
                "add up; start both from the same sample"
            )
        statistics = self.statistics and self.statistics.merge(other.statistics)
        return replace(
            self,
            statistics=statistics,
            sums=tuple(a + b for a, b in zip(self.sums, other.sums, strict=True)),
            counts=tuple(np.add(self.counts, other.counts).tolist()),
            classes=Counter(self.classes) + Counter(other.classes),
            patterns=Counter(self.patterns) + Counter(other.patterns),
            sample=self.sample.merge(other.sample),
        )

    @property
    def key(self) -> str:
        """Content hash of what the first part fixed."""
        fixed = (self.scaling.rule, self.reference.view_dims, self.sample.seed)
        digest = hashlib.sha256(repr(fixed).encode())
        for part in (self.scaling.shift, self.scaling.factor):
            for view in sorted(part):
                digest.update(np.ascontiguousarray(part[view]).tobytes())
        return digest.hexdigest()

    def finish(self, method: Contract, task: TaskSpec | None = None) -> FittedBase:
        """Make what a method needs from the sums.

        Args:
            method: the one the stream was started for; parameters that the first part did not fix
                may have changed.
            task: what is learnt for; the usual one when None.
        """
        if not self.classes:
            raise FewviewError("no base sample has been seen yet; update the stream first")
        now = parameters_of(method)
        changed = [name for name in FIXED if now.get(name) != self.parameters.get(name)]
        if changed:
            raise FewviewError(
                f"the first part of this base set has fixed {changed[0]}="
                f"{self.parameters.get(changed[0])}; set it back, or begin again with all parts"
            )
        task = task or usual_task(self.skeleton())
        dtype, device, rows = method.torch_dtype, method.torch_device, self.sample.rows
        kept = self.scaling.transform(rows, np.float64)
        state = method.learn_from(self.statistics, task, self.sample.seed, kept)
        counted = repr((self.key, sorted(map(str, self.classes.items()))))
        means = zip(self.sums, self.counts, strict=True)
        return FittedBase(
            scaling=self.scaling,
            means=tuple((x / max(n, 1)).to(device=device, dtype=dtype) for x, n in means),
            state=state.to(device, dtype),
            reference=self.reference,
            task=task,
            method=type(method).__name__,
            parameters=now,
            seed=self.sample.seed,
            classes=tuple(self.classes),
            fingerprint=hashlib.sha256(counted.encode()).hexdigest(),
            rows=rows,
            spread=view_spread(kept),
            stream=self,
            n_samples=self.n_samples,
        )

    def skeleton(self) -> MultiViewData:
        """Samples with the classes and gaps of the stream, for what depends on those alone."""
        masks = np.array(_fewer(dict(sorted(self.patterns.items())), 10_000))
        labels = _fewer(self.classes, len(masks))
        # As many labels as masks, and every class among them.
        masks = np.resize(masks, (len(labels), masks.shape[1]))
        blocks = {view: np.zeros((len(masks), 1)) for view in self.reference.view_names}
        return MultiViewData(blocks, labels, mask=masks)


def _column_sums(block: NDArray[Any], present: NDArray[np.bool_]) -> Tensor:
    """Sum of the present rows in float64, a few rows at a time in their own dtype."""
    total = np.zeros(block.shape[1])
    for start in range(0, len(block), 1024):
        rows, has = block[start : start + 1024], present[start : start + 1024]
        rows = rows if has.all() else rows[has]
        total += np.ones(len(rows), rows.dtype) @ rows
    return torch.from_numpy(total)


def _fewer(counts: Mapping[Any, int], most: int) -> list[Any]:
    """At most about `most` keys in the same shares as the counts, every one at least once."""
    total = sum(counts.values())
    most = min(most, total)
    return [k for k, count in counts.items() for _ in range(max(1, round(count * most / total)))]


@dataclass(frozen=True, eq=False)
class Reservoir:
    """A bounded, fair sample of a base set; `update` and `merge` return a new one.

    It keeps some classes, and some samples of each, decided by hashes of labels and of values. So
    it is the same whatever the order of the parts and on however many machines they were read, and
    another seed makes another sample.

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

    def _most_of_a_class(self, n_classes: int) -> int:
        """Most samples of a class where there are so many: 60, fewer of wide views, at least 4.

        It can only shrink as more classes come. So what a larger share has kept holds all that a
        smaller one keeps, and neither order nor parts matter.
        """
        width = sum(self.rows.view_dims.values())
        room = 64 * 2**20 // max(1, 8 * width * min(n_classes, MOST_CLASSES))
        return int(np.clip(room, 4, 60))

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
        most = self._most_of_a_class(len(kept) or MOST_CLASSES)
        last = max((_class_key(self.seed, label) for label in kept), default=0)
        limits = np.full(len(part.classes), np.iinfo(np.uint64).max, np.uint64)
        for code, label in enumerate(part.classes.tolist()):
            if label not in kept:
                if len(kept) >= MOST_CLASSES and _class_key(self.seed, label) > last:
                    limits[code] = 0
            elif len(kept[label]) >= most:
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
        place = np.arange(len(order)) - np.searchsorted(rank[order], rank[order])  # in its class
        kept = (place < self._most_of_a_class(len(labels))) & (rank[order] < MOST_CLASSES)
        return replace(self, rows=rows[order[kept]], keys=keys[order[kept]])


@lru_cache(maxsize=200_000, typed=True)
def _class_key(seed: int, label: Hashable) -> int:
    return stream_key("class of a reservoir", seed, label)
