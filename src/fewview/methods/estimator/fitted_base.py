"""What a method has learnt from a base set: `FittedBase`, made by `learn_base`."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from numbers import Integral
from threading import Lock
from time import perf_counter
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fewview.episodes.task import TaskSpec
from fewview.errors import FewviewError, FewviewWarning, shorten
from fewview.methods.base import Contract, State
from fewview.methods.params import describe_params
from fewview.numerics.iterate import map_tensors
from fewview.samples._data import MultiViewData
from fewview.samples._masks import MissingRule
from fewview.samples._rates import largest_rate
from fewview.samples._scaling import ViewScaling, fit_scaling

# The last base sets that were learnt from: the same question is answered once.
KEPT = 4
_learnt: OrderedDict[Hashable, FittedBase] = OrderedDict()
_lock = Lock()


@dataclass(frozen=True, eq=False, kw_only=True)
class FittedBase:
    """A base set that a method has learnt from. It is immutable, so clones share it.

    Attributes:
        scaling: of the views, fitted on the base set.
        means: per view a tensor [width], of the scaled base set, for padding; None without one.
        spread: mean squared deviation of a feature of scaled samples, per view.
        state: what the method learnt, on its device.
        reference: views, columns and categories, no rows.
        task: what was learnt for.
        method: name of the class of the method.
        parameters: its parameters that change results, as text.
        seed: of everything random in learning.
        classes: the base classes; none where the rows had no labels.
        fingerprint: of the base set.
        rows: the base set, or the bounded sample of one that came in parts; None after loading.
        stream: the sums of a base set that came in parts.
        n_samples: size of the base set.
        seconds: time that learning took.
        calibrations: what `calibration.py` learnt, when it was asked for.

    Example:
        >>> from fewview import Proto
        >>> Proto().fit_base([[0.0], [1.0], [8.0], [9.0]], ["a", "a", "b", "b"]).base
        FittedBase(Proto, 4 samples, 2 classes, views: view0[1], rows kept)
    """

    scaling: ViewScaling
    means: tuple[Tensor, ...] | None
    state: State
    reference: MultiViewData
    task: TaskSpec
    method: str
    parameters: Mapping[str, str]
    seed: int = 0
    classes: tuple[Hashable, ...] = ()
    fingerprint: str = ""
    rows: MultiViewData | None = None
    stream: Any = None
    spread: tuple[float, ...] = ()
    n_samples: int = 0
    seconds: float = 0.0
    calibrations: dict[Hashable, State] = field(default_factory=dict)

    def __repr__(self) -> str:
        views = ", ".join(f"{view}[{width}]" for view, width in self.view_dims.items())
        kept = "rows kept" if self.rows is not None else "no rows"
        return (
            f"FittedBase({self.method}, {self.n_samples} samples, {len(self.classes)} classes, "
            f"views: {views}, {kept})"
        )

    def __deepcopy__(self, memo: Any) -> FittedBase:
        return self

    @property
    def view_dims(self) -> dict[str, int]:
        """Width of every view."""
        return self.reference.view_dims

    def to(self, device: Any) -> FittedBase:
        """The same with its tensors on another device."""
        means, state = map_tensors((self.means, self.state), lambda x: x.to(device))
        return replace(self, means=means, state=state)

    def changes(self, method: Contract) -> dict[str, str]:
        """Parameters of a method that differ from those this was learnt with."""
        if type(method).__name__ != self.method:
            return {"method": type(method).__name__}
        now = parameters_of(method)
        changed = {k: text for k, text in now.items() if self.parameters.get(k) != text}
        if isinstance(method.random_state, Integral) and method.random_state != self.seed:
            changed["random_state"] = str(method.random_state)
        return changed

    def fitted_for(self, method: Contract) -> FittedBase:
        """The same for a method whose parameters may have changed: learnt again if they have."""
        changed = self.changes(method)
        if not changed:
            return self.to(method.torch_device)
        listed = shorten(f"{name}={text}" for name, text in changed.items())
        if self.stream is not None:
            found: FittedBase = self.stream.finish(method, self.task)
            return found
        if self.rows is None:
            raise FewviewError(
                f"this base was fitted by {self.method} with other parameters, and its rows are "
                f"not here to learn again: {listed}; set them back, or call fit_base with the "
                "base set"
            )
        seed = method.random_state if isinstance(method.random_state, Integral) else self.seed
        unlabelled = not self.classes
        return learn_base(method, self.rows, self.task, int(seed), unlabelled=unlabelled)


def parameters_of(method: Contract) -> dict[str, str]:
    """Parameters that change what is learnt, as text; the seed is apart."""
    found = describe_params(method)
    found.pop("random_state", None)
    return found


def learn_base(
    method: Contract,
    data: MultiViewData,
    task: TaskSpec,
    seed: int = 0,
    *,
    unlabelled: bool = False,
) -> FittedBase:
    """Scale samples and let a method learn from them; the same question is answered once.

    Base samples all have labels. `unlabelled` samples, some of which may be supports with labels,
    still tell how views are scaled and vary (`learn_unlabelled`).
    """
    method.check()
    known = not unlabelled
    if known:
        labelled(data, "base", "the base set has no labels; base classes must be known")
    depends = tuple(
        (task.missing.describe(), task.eta) if name == "missing" else getattr(task, name)
        for name in sorted(method.tags.depends_on)
    )
    # The class itself: one that was defined again in a notebook learns again.
    own = type(method), tuple(parameters_of(method).items()), str(method.torch_device)
    key = (data.fingerprint, own, seed, depends, known)
    with _lock:
        if key in _learnt:
            _learnt.move_to_end(key)
            return replace(_learnt[key], task=task)
    found = learn_uncached(method, data, task, seed, known)
    with _lock:
        _learnt[key] = found
        while len(_learnt) > KEPT:
            _learnt.popitem(last=False)
    return found


def learn_uncached(
    method: Contract, data: MultiViewData, task: TaskSpec, seed: int, known: bool = True
) -> FittedBase:
    """`learn_base` that neither looks up nor keeps; samples have labels if they are `known`."""
    start = perf_counter()
    device, dtype = method.torch_device, method.torch_dtype
    scaling = fit_scaling(data, method.scaling, device)
    rows = scaling.transform(data, method.dtype, method.tags.handles_nan, device)
    if known:
        state = method.learn(rows, task, seed)
    elif method.tags.needs_base:
        raise FewviewError(
            f"{type(method).__name__} learns from base classes first: give labelled samples as "
            "base=..., or call fit_base(base) before fit"
        )
    else:
        state = method.learn_unlabelled(rows, task, seed)
    if not isinstance(state, State):
        raise TypeError(
            f"{type(method).__name__} learnt a {type(state).__name__}; it must give a State: a "
            "frozen dataclass under it, of tensors and plain values"
        )
    return FittedBase(
        scaling=scaling,
        means=view_means(rows, dtype, device) if known else None,
        spread=view_spread(rows),
        state=state.to(device, dtype),
        reference=data[:0],
        task=task,
        method=type(method).__name__,
        parameters=parameters_of(method),
        seed=seed,
        classes=tuple(data.classes.tolist()) if known else (),
        fingerprint=data.fingerprint,
        rows=data,
        n_samples=len(data),
        seconds=perf_counter() - start,
    )


def labelled(data: MultiViewData, called: str, without: str) -> MultiViewData:
    """Samples that must all have labels; the message `without` is for data without any."""
    if data.labels is None or not len(data.classes):
        raise FewviewError(without)
    unknown = np.flatnonzero(data.codes < 0)
    if len(unknown):
        raise FewviewError(f"{called} row {unknown[0]} has no label; label it or drop it")
    return data


def view_means(data: MultiViewData, dtype: torch.dtype, device: Any) -> tuple[Tensor, ...]:
    """Mean [width] of the present rows of every view."""
    means = []
    for index, block in enumerate(data.views.values()):
        present = data.mask[:, index]
        rows = block if present.all() else block[present]
        if np.isnan(rows).any():  # for a method that gets NaN cells
            rows = np.where(np.isnan(rows), np.nan_to_num(np.nanmean(rows, axis=0)), rows)
        mean = rows.mean(axis=0, dtype=np.float64) if len(rows) else np.zeros(block.shape[1])
        means.append(torch.as_tensor(mean, dtype=dtype, device=device))
    return tuple(means)


def view_spread(data: MultiViewData) -> tuple[float, ...]:
    """Mean squared deviation of a feature, per view; 1 for a view in which nothing varies."""
    found = []
    for block, present in zip(data.views.values(), data.mask.T, strict=True):
        rows = block if present.all() else block[present]
        rows = rows[:: 1 + len(rows) // 20_000].astype(np.float64)  # enough to tell
        square = float(np.nanvar(rows, axis=0).mean()) if len(rows) else 0.0
        found.append(square if square > 0 else 1.0)
    return tuple(found)


def usual_task(
    base: MultiViewData,
    *,
    way: int | None = None,
    shot: int | None = None,
    queries: int | None = None,
    eta: float | None = None,
) -> TaskSpec:
    """The task that a method learns for when nobody says which: a common case.

    One shot, 15 queries, min(5, (base classes - 2) // 2) ways but at least 2, and the gaps that the
    base set itself has; where it is complete, a missing rate of 0.3 as far as its views allow.
    """
    if way is None:
        n_classes = 0 if base.labels is None else len(base.classes)
        way = max(2, min(5, (n_classes - 2) // 2))
    rule = MissingRule()
    if eta is None and not base.mask.all():
        rule, eta = MissingRule.like(base.mask), base.missing_rate
    elif eta is None:
        eta = min(0.3, largest_rate(base.n_views))
    shot, queries = 1 if shot is None else shot, 15 if queries is None else queries
    return TaskSpec(way=way, shot=shot, queries=queries, eta=eta, missing=rule)


def refuse_overlap(base: Iterable[Any], novel: Iterable[Any]) -> None:
    """Raise an error if base and novel classes overlap."""
    # As texts: the number 1 of one table and the word "1" of another are the same class.
    known = {str(label) for label in base}
    overlap = [label for label in novel if str(label) in known]
    if overlap:
        raise FewviewError(
            f"class {shorten(map(repr, overlap))} is in the base set and among the supports; base "
            "and novel classes must not overlap"
        )


def add_views(method: Contract, fitted: FittedBase, support: MultiViewData) -> FittedBase:
    """What was learnt with views that only supports have, scaled by what supports say.

    For methods that learn nothing but the scaling.
    """
    known = fitted.reference.view_names
    new = [view for view in support.view_names if view not in known]
    if not new or all(view not in known for view in support.view_names):
        return fitted
    there = support.mask[:, [view in new for view in support.view_names]].any(axis=1)
    rows = support[there].select_views(new)
    near = [match for view in new for match in get_close_matches(view, known, n=1)]
    warnings.warn(
        f"view {shorten(map(repr, new))} is not in the base set; it is used, scaled by the "
        f"{len(rows)} support(s) that have it"
        + (f"; or did you mean {shorten(map(repr, near))}?" if near else ""),
        FewviewWarning,
        stacklevel=4,
    )
    scaling, means = fit_scaling(rows, fitted.scaling.rule), fitted.means
    scaled = scaling.transform(rows, method.dtype)
    if means is not None:
        means += view_means(scaled, method.torch_dtype, method.torch_device)
    merged = {
        name: getattr(fitted.scaling, name) | getattr(scaling, name)
        for name in ("shift", "factor", "rules", "means")
    }
    before = fitted.reference
    reference = MultiViewData.unchecked(
        {**before.views, **rows[:0].views},
        np.zeros((0, before.n_views + len(new)), dtype=bool),
        columns={**before.columns, **rows.columns},
        kinds={**before.kinds, **rows.kinds},
    )
    scaling = replace(fitted.scaling, **merged)
    spread = fitted.spread + view_spread(scaled)
    return replace(fitted, scaling=scaling, means=means, spread=spread, reference=reference)
