"""The contract of a method, and everything that is the same for all methods.

A method is a scikit-learn style classifier that implements one function, `scores`, over a batch of
tasks, and may implement `prepare` (what is learnt from base classes) and `embed` (its own space).
Scaling, padding, splitting a batch to fit memory, device, dtype and the estimator face are here.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, fields, is_dataclass, replace
from time import perf_counter
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from torch import Tensor

from fewview.episodes import Episodes, TaskSpec
from fewview.episodes.batch import EpisodeBatch, ViewTensors
from fewview.methods.padding import PADDINGS, pad
from fewview.views import (
    SCALINGS,
    FewviewError,
    FewviewWarning,
    MissingRule,
    MultiViewData,
    ViewScaling,
    fit_scaling,
)
from fewview.views.errors import shorten
from fewview.views.random import combine, stream_key

# Share of queries that would have to change class for balance, above which users are warned.
UNBALANCED = 0.35
DTYPES = {"float32": torch.float32, "float64": torch.float64}
Self = TypeVar("Self", bound="Method")
Progress = Callable[[int], None]


@dataclass(frozen=True)
class Tags:
    """What a method is and needs, declared honestly.

    Attributes:
        transductive: looks at all queries of a task together.
        needs_base: cannot work without a base set.
        handles_missing: gets the batch with its gaps; otherwise views are padded before.
        assumes_balance: uses that every class has the same number of queries.
        deterministic: draws no random numbers.
        trained: trains neural networks; left out of `all`.
        prepare_depends_on: fields of the task that `prepare` looks at.
        iterative: stops by a numerical criterion; float32 runs may differ in a few predictions.
    """

    transductive: bool = False
    needs_base: bool = False
    handles_missing: bool = False
    assumes_balance: bool = False
    deterministic: bool = True
    trained: bool = False
    iterative: bool = False
    prepare_depends_on: tuple[str, ...] = ()


@dataclass(frozen=True)
class State:
    """What a method learnt from base classes: tensors and plain values, nothing else.

    Methods that prepare something subclass it. A method without `prepare` has this empty one.
    """

    def to(self, device: Any, dtype: torch.dtype | None = None) -> Any:
        """Move all tensors to a device, floats to a dtype."""
        return _move(self, device, dtype)


def _move(value: Any, device: Any, dtype: torch.dtype | None) -> Any:
    if isinstance(value, Tensor):
        return value.to(device=device, dtype=dtype if value.is_floating_point() else None)
    if isinstance(value, dict):
        return {key: _move(item, device, dtype) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_move(item, device, dtype) for item in value)
    if is_dataclass(value) and not isinstance(value, type):
        changes = {f.name: _move(getattr(value, f.name), device, dtype) for f in fields(value)}
        return replace(value, **changes)
    return value


@dataclass(frozen=True)
class Prepared:
    """A method's state together with the scaling and the means that go with it.

    Attributes:
        scaling: fitted on the base set.
        base_means: per view a tensor [width], of the scaled base set, for padding.
        state: what `prepare` returned, on the method's device.
        reference: the base set's views and columns (no rows), to match other data against.
        seconds: time that preparing took.
    """

    scaling: ViewScaling
    base_means: tuple[Tensor, ...] | None
    state: State
    reference: MultiViewData
    seconds: float = 0.0


class _Cache:
    """A small memory of prepared states, least recently used out first."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.items: OrderedDict[Hashable, Any] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], Any]) -> Any:
        if key in self.items:
            self.items.move_to_end(key)
            return self.items[key]
        value = self.items[key] = make()
        while len(self.items) > self.size:
            self.items.popitem(last=False)
        return value


_prepared = _Cache(16)
_scaled = _Cache(4)


@dataclass(kw_only=True, eq=False, repr=False)
class Method(ClassifierMixin, BaseEstimator, ABC):  # type: ignore[misc]
    """Base class of all methods; a method implements `scores`.

    Args:
        base: the base set; anything that `fit` accepts as X, with labels. Immutable, so `clone`
            and `GridSearchCV` share it.
        scaling: per-view scaling fitted on the base set (on the supports without one).
        padding: how missing views are filled for methods that cannot handle them.
        device: `"cpu"`, `"cuda"` or `"auto"`.
        dtype: `"float32"` or `"float64"`.
        max_memory: GiB that one batch of tasks may take; sets how many tasks go together.
        random_state: seed of everything random outside an episode list.
    """

    base: Any = None
    scaling: str = "scale"
    padding: str = "episode"
    device: str = "cpu"
    dtype: str = "float32"
    max_memory: float = 1.0
    random_state: int = 0

    name: ClassVar[str] = ""
    version: ClassVar[int] = 1
    tags: ClassVar[Tags] = Tags()
    # Settings that `--tune` may choose from on base classes: parameter -> values.
    tune_grid: ClassVar[dict[str, tuple[Any, ...]]] = {}
    # What `--scaling paper` and `--padding paper` mean for this method (methods.md 0.3).
    paper_settings: ClassVar[dict[str, str]] = {"scaling": "scale"}

    # ------------------------------------------------------------------ what a method implements

    @abstractmethod
    def scores(self, batch: EpisodeBatch, state: State) -> Tensor:
        """Unnormalised log-probabilities [tasks, n_query, way] of the queries."""

    def prepare(self, base: MultiViewData, task: TaskSpec, seed: int) -> State:
        """Learn from the scaled base set; nothing by default."""
        return State()

    def embed(self, batch: EpisodeBatch, state: State) -> EpisodeBatch:
        """The same tasks with one view `latent`; by default the padded views side by side."""
        support, query = batch.concatenated()
        return latent_batch(batch, support, query, batch.support_labels)

    def bytes_per_task(self, n_support: int, n_query: int, dims: tuple[int, ...], way: int) -> int:
        """Working memory of one task; sets the batch size. Depends on shapes only."""
        return 4 * (n_support + n_query) * sum(dims) * self._torch_dtype.itemsize

    def validate(self) -> None:
        """Check hyper-parameters; called before any work. Subclasses add their own checks."""
        check_types(self)
        choose("scaling", self.scaling, SCALINGS)
        choose("padding", self.padding, PADDINGS)
        choose("dtype", self.dtype, tuple(DTYPES))
        if not self.max_memory > 0:
            raise FewviewError(f"max_memory is {self.max_memory}; give a positive number of GiB")

    # ------------------------------------------------------------------ many tasks at once

    def prepare_base(self, base: MultiViewData, task: TaskSpec) -> Prepared:
        """Scale the base set and learn from it; memoised by what the answer depends on.

        Args:
            base: base classes only, unscaled.
            task: the task that settings are chosen for, where a method does that.
        """
        self.validate()
        depends = tuple(
            (name, _task_field(task, name)) for name in sorted(self.tags.prepare_depends_on)
        )
        device = str(self.torch_device)
        key = (base.fingerprint, type(self).__qualname__, self.key(), device, depends)

        def make() -> Prepared:
            start = perf_counter()
            if base.labels is None or len(base.classes) == 0:
                raise FewviewError("the base set has no labels; base classes must be known")
            if (base.codes < 0).any():
                row = int(np.flatnonzero(base.codes < 0)[0])
                raise FewviewError(f"row {row} of the base set has no label; drop or label it")
            scaling, scaled = scale_base(base, self.scaling, self._numpy_dtype)
            state = self.prepare(scaled, task, self.random_state)
            return Prepared(
                scaling=scaling,
                base_means=_view_means(scaled, self._torch_dtype, self.torch_device),
                state=state.to(self.torch_device, self._torch_dtype),
                reference=base[:0],
                seconds=perf_counter() - start,
            )

        return _prepared.get(key, make)  # type: ignore[no-any-return]

    def score_episodes(
        self,
        data: MultiViewData,
        episodes: Episodes,
        prepared: Prepared,
        progress: Progress | None = None,
    ) -> Tensor:
        """Score the queries of an episode list, split into batches that fit `max_memory`.

        Args:
            data: the unscaled data set that the episodes index.
            episodes: tasks.
            prepared: what `prepare_base` returned.
            progress: called with the number of tasks done since the last call.

        Returns:
            Float tensor on the CPU, [tasks, n_query, way].
        """
        scaled = prepared.scaling.transform(data.like(prepared.reference), self._numpy_dtype)
        tensors = ViewTensors.of(scaled, self.torch_device, self._torch_dtype)
        size = self.batch_size(
            episodes.support.shape[1], episodes.query.shape[1], scaled.view_dims, episodes.way
        )
        parts = []
        for start in range(0, len(episodes), size):
            batch = tensors.gather(episodes[start : start + size]).without_query_labels()
            parts.append(self.score_batch(batch, prepared).cpu())
            if progress is not None:
                progress(batch.n_tasks)
        return torch.cat(parts)

    def score_batch(self, batch: EpisodeBatch, prepared: Prepared) -> Tensor:
        """Pad if needed and score one batch of scaled tasks: [tasks, n_query, way]."""
        if batch.n_query == 0:
            return batch.support[0].new_zeros(batch.n_tasks, 0, batch.way)
        with torch.no_grad():
            out = self.scores(self.padded(batch, prepared), prepared.state)
        if not bool(torch.isfinite(out).all()):
            raise FloatingPointError(
                f"{type(self).__name__} gave scores that are not finite; please report this"
            )
        return out

    def padded(self, batch: EpisodeBatch, prepared: Prepared) -> EpisodeBatch:
        """Fill missing views unless the method handles them itself."""
        if self.tags.handles_missing:
            return batch
        return pad(batch, self.padding, prepared.base_means)

    def batch_size(self, n_support: int, n_query: int, dims: dict[str, int], way: int) -> int:
        """Tasks that go together: a function of shapes and `max_memory`, never of free memory."""
        need = self.bytes_per_task(n_support, n_query, tuple(dims.values()), way)
        return max(1, int(self.max_memory * 2**30 // max(need, 1)))

    # ------------------------------------------------------------------ the estimator face

    def fit_base(self: Self, base: Any, y: Any = None, task: TaskSpec | None = None) -> Self:
        """Take a base set and learn from it now; `fit` then only needs the supports.

        Args:
            base: base samples with labels, or without and `y` given.
            y: labels of the base samples.
            task: what automatic settings are chosen for; a common case when None.
        """
        self.base = as_data(base, y)
        self.prepare_base(self.base, task or TaskSpec(way=max(2, min(5, len(self.base.classes)))))
        return self

    def fit(self: Self, X: Any, y: Any = None) -> Self:
        """Learn new classes from a few labelled samples.

        Args:
            X: supports: MultiViewData, dict of arrays, or one 2-D array.
            y: their labels, unless X has them.
        """
        self.validate()
        support = as_data(X, y)
        if support.labels is None:
            raise FewviewError("supports have no labels; give y, or labels in the MultiViewData")
        if (support.codes < 0).any():
            row = int(np.flatnonzero(support.codes < 0)[0])
            raise FewviewError(f"support row {row} has no label; label it or drop it")
        if len(support.classes) < 2:
            raise FewviewError("supports are of one class only; at least two are needed")
        if self.base is None and self.tags.needs_base:
            raise FewviewError(
                f"{type(self).__name__} learns from base classes first: give base=..., or call "
                "fit_base(base) before fit"
            )
        self.classes_ = support.classes
        self.n_features_in_ = support.shape[1]
        self.prepared_ = self._prepare_for(support)
        self.support_ = support.like(self.prepared_.reference, "support")
        return self

    def _prepare_for(self, support: MultiViewData) -> Prepared:
        counts = np.bincount(support.codes)
        task = TaskSpec(
            way=len(support.classes),
            shot=int(counts.min()),
            eta=support.missing_rate,
            missing=MissingRule(kind="patterns", patterns=np.asarray(support.mask)),
        )
        if self.base is not None:
            base = as_data(self.base)
            overlap = set(base.classes.tolist()) & set(support.classes.tolist())
            if overlap:
                raise FewviewError(
                    f"class {shorten(map(repr, overlap))} is in the base set and among the "
                    "supports; base and novel classes must not overlap"
                )
            return self.prepare_base(base, task)
        scaling = fit_scaling(support, self.scaling)
        return Prepared(scaling, None, State(), support[:0])

    def query_scores(self, X: Any) -> Tensor:
        """Scores of queries for the classes in `classes_`: [n_query, way], on the CPU."""
        if not hasattr(self, "prepared_"):
            from sklearn.exceptions import NotFittedError

            raise NotFittedError(f"this {type(self).__name__} is not fitted; call fit first")
        query = as_data(X).like(self.prepared_.reference, "query")
        if len(query) == 1 and self.tags.transductive:
            warnings.warn(
                f"{type(self).__name__} looks at all queries together; with a single one it falls "
                "back to what the supports say",
                FewviewWarning,
                stacklevel=3,
            )
        batch = self.task_batch(query)
        if self.tags.assumes_balance:
            self._warn_if_unbalanced(batch)
        return self.score_batch(batch, self.prepared_)[0].cpu()

    def task_batch(self, query: MultiViewData) -> EpisodeBatch:
        """The supports given to `fit` and some queries as one scaled task on the device."""
        query = query.like(self.prepared_.reference, "query")
        dtype = self._numpy_dtype
        scaling = self.prepared_.scaling
        both = [
            ViewTensors.of(scaling.transform(part, dtype), self.torch_device, self._torch_dtype)
            for part in (self.support_, query)
        ]
        seed = combine(np.array([self.random_state], dtype=np.uint64), stream_key("estimator"))
        return EpisodeBatch(
            support=tuple(view[None] for view in both[0].views),
            query=tuple(view[None] for view in both[1].views),
            support_mask=both[0].mask[None],
            query_mask=both[1].mask[None],
            support_labels=torch.from_numpy(self.support_.codes)[None].to(self.torch_device),
            query_labels=None,
            seeds=torch.from_numpy(seed.view(np.int64)).to(self.torch_device),
            way=len(self.classes_),
            view_names=query.view_names,
        )

    def _warn_if_unbalanced(self, batch: EpisodeBatch) -> None:
        """Warn where the nearest supports put most queries of one task into few classes."""
        from fewview.methods.partial_nn import PartialNN

        if batch.n_query < 5 * batch.way:
            return  # too few to tell
        # Distances over shared views: padded views draw queries to some classes by themselves.
        nearest = PartialNN().scores(batch, State())[0].argmax(-1)
        shares = torch.bincount(nearest, minlength=batch.way).double() / batch.n_query
        if float((shares - 1 / batch.way).abs().sum()) / 2 > UNBALANCED:
            text = ", ".join(f"{100 * share:.0f} %" for share in shares[:10].tolist())
            warnings.warn(
                f"{type(self).__name__} assumes equally many queries of every class, and these "
                f"look unbalanced ({text} by nearest support); a method that does not assume "
                "it may do better",
                FewviewWarning,
                stacklevel=4,
            )

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Class probabilities of queries, [n_query, way], columns as in `classes_`."""
        scores = self.query_scores(X).to(torch.float64)
        return torch.softmax(scores, dim=-1).numpy()

    def predict(self, X: Any) -> NDArray[Any]:
        """Labels of queries, [n_query]."""
        best = self.query_scores(X).argmax(-1).numpy()
        out: NDArray[Any] = self.classes_[best]
        return out

    # ------------------------------------------------------------------ small things

    def spell_parameter(self, name: str) -> str:
        """Turn a parameter as written on the command line into the one `set_params` knows."""
        return name

    def key(self) -> str:
        """All resolved parameters that change results, in sorted order, as one string."""
        return parameter_key(self)

    @property
    def torch_device(self) -> torch.device:
        """The device that `device` stands for on this machine."""
        if self.device == "auto":
            return torch.device("cuda" if torch.cuda.is_available() else "cpu")
        try:
            device = torch.device(self.device)
        except RuntimeError:
            raise FewviewError(f"device {self.device!r}: use 'cpu', 'cuda' or 'auto'") from None
        if device.type == "cuda" and not torch.cuda.is_available():
            raise FewviewError("device 'cuda': no CUDA device is available here; use 'cpu'")
        return device

    @property
    def _torch_dtype(self) -> torch.dtype:
        return DTYPES[self.dtype]

    @property
    def _numpy_dtype(self) -> Any:
        return np.dtype(self.dtype).type


# Parameters that say where and from what, not how: they are keys of their own in a result.
_NOT_IN_KEY = ("base", "device", "max_memory")


def parameter_key(method: Method) -> str:
    """Write all resolved parameters of a method in sorted order, scaling and padding included.

    Example:
        >>> from fewview.methods.proto import Proto
        >>> parameter_key(Proto())
        'dtype=float32,padding=episode,random_state=0,scaling=scale'
    """
    parts = []
    for name, value in sorted(method.get_params(deep=False).items()):
        if name in _NOT_IN_KEY:
            continue
        if isinstance(value, Method):
            value = f"{type(value).__name__}({parameter_key(value)})"
        elif isinstance(value, BaseEstimator):
            value = " ".join(repr(value).split())
        elif isinstance(value, tuple):
            value = "+".join(map(str, value)) or "none"
        parts.append(f"{name}={value}")
    return ",".join(parts)


def check_types(method: Method) -> None:
    """Check that parameters declared as numbers or truth values are that, and finite.

    Example:
        >>> from fewview.methods.proto import Proto
        >>> check_types(Proto(max_memory="much"))
        Traceback (most recent call last):
        ...
        fewview.views.errors.FewviewError: max_memory is 'much'; it must be a finite number
    """
    for item in fields(method):
        kinds = [kind.strip() for kind in str(item.type).split("|")]
        value = getattr(method, item.name)
        if not set(kinds) <= {"int", "float", "bool", "None"} or (
            value is None and "None" in kinds
        ):
            continue
        if "bool" in kinds:
            right, wanted = isinstance(value, (bool, np.bool_)), "true or false"
        elif "float" in kinds:
            number = isinstance(value, (int, float, np.integer, np.floating))
            right = number and not isinstance(value, bool) and bool(np.isfinite(value))
            wanted = "a finite number"
        else:
            right = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
            wanted = "a whole number"
        if not right:
            raise FewviewError(f"{item.name} is {value!r}; it must be {wanted}")


def _task_field(task: TaskSpec, name: str) -> Hashable:
    if name == "missing":
        return task.missing.describe(), task.eta
    value: Hashable = getattr(task, name)
    return value


def choose(name: str, value: Any, allowed: Iterable[Any]) -> None:
    """Raise an error that lists the allowed values unless `value` is one of them.

    Example:
        >>> choose("solver", "exact", ("exact", "adam"))
    """
    options = tuple(allowed)
    if value not in options:
        raise FewviewError(f"{name} is {value!r}; it must be one of {', '.join(map(str, options))}")


def as_data(X: Any, y: Any = None) -> MultiViewData:
    """Turn what users pass as X (and y) into `MultiViewData`.

    Example:
        >>> as_data([[1.0, 2.0], [3.0, 4.0]], ["a", "b"]).classes.tolist()
        ['a', 'b']
    """
    data = X if isinstance(X, MultiViewData) else MultiViewData(X)
    return data if y is None else data.with_labels(y)


def latent_batch(
    batch: EpisodeBatch,
    support: Tensor,
    query: Tensor,
    labels: Tensor,
    weights: Tensor | None = None,
) -> EpisodeBatch:
    """Make a batch with the single view `latent`, complete, for `embed`.

    Args:
        batch: the tasks that were embedded.
        support: [tasks, n, width], supports or anchors.
        query: [tasks, n_query, width].
        labels: int64 [tasks, n].
        weights: [tasks, n] or None.
    """
    return replace(
        batch,
        support=(support,),
        query=(query,),
        support_mask=torch.ones((*support.shape[:2], 1), dtype=torch.bool, device=support.device),
        query_mask=torch.ones((*query.shape[:2], 1), dtype=torch.bool, device=query.device),
        support_labels=labels,
        view_names=("latent",),
        support_weights=weights,
    )


def scale_base(
    base: MultiViewData, rule: str, dtype: Any = np.float32
) -> tuple[ViewScaling, MultiViewData]:
    """Fit a scaling on a base set and apply it; shared by methods that use the same one."""

    def make() -> tuple[ViewScaling, MultiViewData]:
        scaling = fit_scaling(base, rule)
        return scaling, scaling.transform(base, dtype)

    key = (base.fingerprint, rule, np.dtype(dtype).str)
    return _scaled.get(key, make)  # type: ignore[no-any-return]


def _view_means(data: MultiViewData, dtype: torch.dtype, device: Any) -> tuple[Tensor, ...]:
    means = []
    for index, block in enumerate(data.views.values()):
        rows = block[data.mask[:, index]]
        mean = rows.mean(axis=0, dtype=np.float64) if len(rows) else np.zeros(block.shape[1])
        means.append(torch.from_numpy(np.asarray(mean)).to(device=device, dtype=dtype))
    return tuple(means)


__all__ = [
    "EpisodeBatch",
    "Method",
    "Prepared",
    "State",
    "Tags",
    "as_data",
    "choose",
    "latent_batch",
    "parameter_key",
    "scale_base",
]
