"""Learning from a base set that comes in parts: `BaseStream`, with `update` and `merge`.

The first part fixes what must be known before anything can be summed: the scaling of the views
(and, for Marginal, their principal axes). Everything after that is sums over samples, which add up
in any order and on any number of machines.
"""

from __future__ import annotations

import copy
import functools
import hashlib
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits
from torch import Tensor

from fewview.engine._contract import Contract
from fewview.engine._fitted import FittedBase, usual_task
from fewview.engine._reservoir import Reservoir
from fewview.engine._state import Prepared, State
from fewview.engine.open_world._rejection import usual_thresholds
from fewview.episodes._task import TaskSpec
from fewview.ground._errors import FewviewError
from fewview.samples._data import MultiViewData
from fewview.samples._scaling import ViewScaling, fit_scaling

# Rows whose sum is taken at once.
ROWS = 1024
# Samples that stand for all of them where only their classes and gaps count.
SKELETON = 10_000


class Statistics(Protocol):
    """Sums over scaled, labelled samples that merge: what a method's state is made from."""

    def update(self, data: MultiViewData) -> Any:
        """Add samples."""

    def merge(self, other: Any) -> Any:
        """Return the statistics of both together."""


@dataclass(frozen=True)
class BaseStream:
    """Statistics of a base set seen so far; every step returns a new stream.

    Attributes:
        scaling: fixed by the first part.
        reference: views and columns, no rows.
        statistics: of the method; None where it learns nothing but the scaling.
        sums: per view, sum of the scaled rows, float64 [width].
        counts: per view, rows that have it.
        classes: label -> samples.
        patterns: which views samples have -> samples.
        sample: a bounded number of the samples, for thresholds.

    Example:
        >>> from fewview import UGDA
        >>> from fewview.datasets import make_few_shot
        >>> base = make_few_shot(n_per_class=12)
        >>> start = BaseStream.start(UGDA(), base[::2])
        >>> parts = [start.update(part) for part in (base[:50], base[50:])]
        >>> parts[0].merge(parts[1]).n_samples
        120
    """

    scaling: ViewScaling
    reference: MultiViewData
    statistics: Statistics | None
    sums: tuple[Tensor, ...]
    counts: tuple[int, ...]
    sample: Reservoir
    classes: Mapping[Hashable, int] = field(default_factory=dict)
    patterns: Mapping[tuple[bool, ...], int] = field(default_factory=dict)

    @classmethod
    def start(cls, method: Contract, sample: MultiViewData) -> BaseStream:
        """Fix the scaling on a fair sample of the base set, usually the first part."""
        method.validate()
        scaling = fit_scaling(sample, method.scaling)
        scaled = scaling.transform(sample, np.float64)
        return cls(
            scaling,
            sample[:0],
            method.start_statistics(scaled),
            tuple(torch.zeros(width, dtype=torch.float64) for width in sample.view_dims.values()),
            (0,) * sample.n_views,
            Reservoir.empty(sample, method.random_state),
        )

    @property
    def n_samples(self) -> int:
        """Samples seen."""
        return sum(self.classes.values())

    def update(self, part: MultiViewData) -> BaseStream:
        """Add labelled samples."""
        return self._with_own_statistics()._grown(part)

    def _with_own_statistics(self) -> BaseStream:
        """A private copy: earlier streams stay what they were."""
        return replace(self, statistics=copy.deepcopy(self.statistics))

    def _grown(self, part: MultiViewData) -> BaseStream:
        """Add samples, to statistics that nobody else holds."""
        part = part.like(self.reference, "this part of the base set")
        if part.labels is None or (part.codes < 0).any():
            raise FewviewError("a sample of the base set has no label; drop it or label it")
        scaled = self.scaling.transform(part, None)
        if self.statistics is not None:
            self.statistics.update(scaled)
        blocks = zip(scaled.views.values(), scaled.mask.T, strict=True)
        return self._added(
            sums=[torch.from_numpy(_column_sums(block, present)) for block, present in blocks],
            counts=part.mask.sum(axis=0).tolist(),
            classes=_counted(part.classes, np.bincount(part.codes)),
            patterns={(True,) * part.n_views: len(part)}
            if part.mask.all()
            else _counted(*np.unique(part.mask, axis=0, return_counts=True)),
            sample=self.sample.update(part),
        )

    def _added(
        self,
        sums: Iterable[Tensor],
        counts: Iterable[int],
        classes: Mapping[Hashable, int],
        patterns: Mapping[tuple[bool, ...], int],
        **changes: Any,
    ) -> BaseStream:
        """More sums and counts, and other things changed."""
        return replace(
            self,
            sums=tuple(a + b for a, b in zip(self.sums, sums, strict=True)),
            counts=tuple(a + b for a, b in zip(self.counts, counts, strict=True)),
            classes=Counter(self.classes) + Counter(classes),
            patterns=Counter(self.patterns) + Counter(patterns),
            **changes,
        )

    @classmethod
    def gather(
        cls,
        method: Contract,
        parts: Iterable[MultiViewData],
        sample: MultiViewData | None = None,
        progress: Callable[[int], None] | None = None,
        workers: int = 1,
    ) -> BaseStream:
        """Go through all parts of a base set once; one part per worker is in memory.

        Args:
            method: with its parameters.
            parts: labelled samples, for instance `NpyFolder.open(path).parts()`.
            sample: what fixes the scaling (and Marginal's axes); the first part when None.
            progress: called with the number of samples after every part.
            workers: threads that take turns, each with one core and sums of its own, which are
                merged in the end. The answer depends on their number only by rounding.
        """
        if workers < 1:
            raise FewviewError(f"{workers} workers; give a positive number")
        streams: list[BaseStream] = []
        pending: dict[int, Future[BaseStream]] = {}

        def finish(worker: int) -> None:
            if worker in pending:
                before = streams[worker].n_samples
                streams[worker] = pending.pop(worker).result()
                if progress is not None:
                    progress(streams[worker].n_samples - before)

        # Products of this size are too small to share; threads of the library would only wait.
        with ThreadPoolExecutor(workers) as pool, threadpool_limits(1):
            for index, part in enumerate(parts):
                if not streams:
                    first = cls.start(method, part if sample is None else sample)
                    streams = [first._with_own_statistics() for _ in range(workers)]
                worker = index % workers
                finish(worker)
                pending[worker] = pool.submit(streams[worker]._grown, part)
            for worker in sorted(pending):
                finish(worker)
        if not streams:
            raise FewviewError("the base set has no parts; give at least one")
        return functools.reduce(cls.merge, streams)

    def merge(self, other: BaseStream) -> BaseStream:
        """Put two streams together that were started alike, for instance on two machines."""
        if self.key != other.key:
            raise FewviewError(
                "these streams were scaled differently or have different seeds, so they do not "
                "add up; start both from the same sample"
            )
        statistics = None
        if self.statistics is not None:
            statistics = self.statistics.merge(other.statistics)
        return self._added(
            other.sums,
            other.counts,
            other.classes,
            other.patterns,
            statistics=statistics,
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

    def finish(
        self, method: Contract, task: TaskSpec | None = None, *, prepare: bool = True
    ) -> FittedBase:
        """Make what a method needs from the sums.

        Args:
            method: the one the stream was started for, with the same parameters.
            task: what is learnt for; the usual one when None.
            prepare: make the state now. False puts that off until it is used, which is better
                while parts still come.
        """
        if not self.classes:
            raise FewviewError("no base sample has been seen yet; update the stream first")
        task = task or usual_task(self.skeleton())
        dtype, device = method.torch_dtype, method.torch_device
        state, thresholds = State(), None
        if prepare:
            kept = self.scaling.transform(self.sample.rows, np.float64)
            state = method.prepare_statistics(self.statistics, task, method.random_state, kept)
            thresholds = usual_thresholds(method, self.sample.rows, task)
        means = tuple(
            (total / max(count, 1)).to(device=device, dtype=dtype)
            for total, count in zip(self.sums, self.counts, strict=True)
        )
        counted = repr((self.key, sorted(map(str, self.classes.items()))))
        return FittedBase(
            method=type(method).__name__,
            parameters=method.described(),
            classes=tuple(self.classes),
            fingerprint=hashlib.sha256(counted.encode()).hexdigest(),
            task=task,
            prepared=Prepared(self.scaling, means, state.to(device, dtype), self.reference),
            thresholds=thresholds,
            n_samples=self.n_samples,
            sample=self.sample.rows,
            stream=self,
            pending=not prepare,
        )

    def skeleton(self) -> MultiViewData:
        """Samples with the classes and gaps of the stream, for what depends on those alone."""
        masks = np.array(_thinned(dict(sorted(self.patterns.items())), SKELETON))
        labels = _thinned(self.classes, len(masks))
        # As many labels as masks, and every class among them.
        masks = np.resize(masks, (len(labels), masks.shape[1]))
        blocks = {view: np.zeros((len(masks), 1)) for view in self.reference.view_names}
        return MultiViewData(blocks, labels, mask=masks)


def _column_sums(block: NDArray[Any], present: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Sum of the present rows in float64, a few rows at a time in their own dtype."""
    total = np.zeros(block.shape[1])
    for start in range(0, len(block), ROWS):
        rows, has = block[start : start + ROWS], present[start : start + ROWS]
        rows = rows if has.all() else rows[has]
        total += np.ones(len(rows), rows.dtype) @ rows
    return total


def _thinned(counts: Mapping[Any, int], most: int) -> list[Any]:
    """At most about `most` keys in the same shares as the counts, every one at least once."""
    total = sum(counts.values())
    most = min(most, total)
    return [k for k, count in counts.items() for _ in range(max(1, round(count * most / total)))]


def _counted(rows: NDArray[Any], times: NDArray[Any]) -> dict[Any, int]:
    """Labels, or patterns [n, V], and how often each occurs."""
    keys = rows.tolist() if rows.ndim == 1 else map(tuple, rows.tolist())
    return dict(zip(keys, times.tolist(), strict=True))
