"""The contract of a method, and everything that is the same for all methods.

A method is a scikit-learn style classifier that implements one function, `scores`, over a batch of
tasks, and may implement `prepare` (what is learnt from base classes) and `embed` (its own space).
Scaling, padding, splitting a batch to fit memory, device and dtype are here; the estimator face
is in `estimator.py`.
"""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from dataclasses import Field, dataclass, field, fields, is_dataclass, replace
from inspect import get_annotations
from time import perf_counter
from typing import Any, ClassVar, dataclass_transform

import numpy as np
import torch
from sklearn.base import BaseEstimator
from torch import Tensor

from fewview.engine._estimator import Estimator
from fewview.engine._explaining import Explanation, explain_by_leaving_out
from fewview.engine._inputs import as_data
from fewview.engine._rejection import nearest_support
from fewview.engine._state import DTYPES, Prepared, State, Tags
from fewview.engine._streaming import Statistics, cannot_stream
from fewview.episodes._sampler import Episodes
from fewview.episodes._task import TaskSpec
from fewview.ground._errors import FewviewError
from fewview.numerics._batch import EpisodeBatch, ViewTensors
from fewview.numerics._padding import PADDINGS, pad
from fewview.samples._data import MultiViewData
from fewview.samples._scaling import SCALINGS, ViewScaling, fit_scaling

# What `--tune` tries.
TUNED_SCALINGS = ("scale", "standard", "standard+unit", "root+standard+unit")
Progress = Callable[[int], None]


class Cache:
    """A small memory of prepared states, least recently used out first."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.items: OrderedDict[Hashable, Any] = OrderedDict()
        self._lock = threading.Lock()  # a worker of a cluster may have several threads

    def get(self, key: Hashable, make: Callable[[], Any]) -> Any:
        with self._lock:
            if key in self.items:
                self.items.move_to_end(key)
                return self.items[key]
        value = make()
        with self._lock:
            self.items[key] = value
            while len(self.items) > self.size:
                self.items.popitem(last=False)
        return value


_prepared = Cache(16)
_scaled = Cache(4)
_tensors = Cache(2)


@dataclass_transform(kw_only_default=True, eq_default=False, field_specifiers=(field,))
class Parameters:
    """Makes a dataclass of every class under it: annotated attributes are its parameters.

    A value without annotation, where a class above has the parameter, is its new default.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        own = get_annotations(cls)
        above: tuple[Field[Any], ...] = fields(cls) if is_dataclass(cls) else ()
        changed = {f.name: f.type for f in above if f.name in vars(cls) and f.name not in own}
        cls.__annotations__ = {**changed, **own}
        dataclass(kw_only=True, eq=False, repr=False)(cls)


class Method(Parameters, Estimator):
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
    # What `scaling` may be.
    scalings: ClassVar[tuple[str, ...]] = SCALINGS
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

    def prepare_alone(self, rows: MultiViewData, task: TaskSpec, seed: int) -> State:
        """Do without base classes; nothing by default.

        Args:
            rows: all scaled samples there are: unlabelled ones, if any were given, and the
                supports with their labels.
            task: shape of the task.
            seed: of everything random.
        """
        return State()

    def start_statistics(self, sample: MultiViewData) -> Statistics | None:
        """Empty statistics that a base set in parts is added to; None where none are needed.

        Args:
            sample: scaled samples that fix what must be known first.
        """
        if type(self).prepare is not Method.prepare:
            raise cannot_stream(self)
        return None

    def prepare_statistics(self, statistics: Any, task: TaskSpec, seed: int) -> State:
        """Make the state from statistics, as `prepare` makes it from samples."""
        return State()

    @property
    def row_scaling(self) -> str:
        """The rule that rows are scaled by where nothing is chosen."""
        return self.scaling

    def scaling_for(self, sample: MultiViewData) -> str:
        """The scaling of a base set that comes in parts, from the first of them."""
        return self.row_scaling

    def chosen_on(self, rows: MultiViewData, task: TaskSpec, scaling: str) -> Method:
        """The same method with its automatic settings chosen on some unscaled base samples.

        Called before `prepare_statistics`, so whatever the statistics have fixed must stay, also
        the scaling that `scaling_for` gave. By default nothing is chosen.
        """
        return self

    def embed(self, batch: EpisodeBatch, state: State) -> EpisodeBatch:
        """The same tasks with one view `latent`; by default the padded views side by side."""
        support, query = batch.concatenated()
        return latent_batch(batch, support, query, batch.support_labels)

    def typicality(self, batch: EpisodeBatch, state: State) -> Tensor:
        """How well queries fit every class on a scale of its own, [tasks, n_query, way].

        Higher is better; unlike `scores`, it can be compared between queries, and it is what
        rejecting a query is decided by. By default, minus the partial distance to the nearest
        support of the class.

        Args:
            batch: scaled tasks with their gaps.
            state: what `prepare` returned.
        """
        return nearest_support(batch)

    def describe_choice(self, state: State) -> str:
        """Settings that were chosen automatically, `parameter=value` in sorted order; or empty."""
        return ""

    def settled(self, state: State) -> Method:
        """The same method with settings that were chosen automatically fixed."""
        return self

    def explain_batch(self, batch: EpisodeBatch, prepared: Prepared) -> Explanation:
        """Reasons for one scaled task; by default, every view is left out in turn."""
        return explain_by_leaving_out(batch, lambda part: self.score_batch(part, prepared))

    def bytes_per_task(self, n_support: int, n_query: int, dims: tuple[int, ...], way: int) -> int:
        """Working memory of one task; sets the batch size. Depends on shapes only."""
        return 4 * (n_support + n_query) * sum(dims) * self._torch_dtype.itemsize

    def validate(self) -> None:
        """Check hyper-parameters; called before any work. Subclasses add their own checks."""
        check_types(self)
        choose("scaling", self.scaling, self.scalings)
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
            scaling, scaled = scale_base(base, self.row_scaling, self._numpy_dtype)
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
        tensors = self._scaled_tensors(data, prepared)
        size = self.batch_size(
            episodes.support.shape[1],
            episodes.query.shape[1],
            prepared.reference.view_dims,
            episodes.way,
        )
        parts = []
        for start in range(0, len(episodes), size):
            batch = tensors.gather(episodes[start : start + size]).without_query_labels()
            parts.append(self.score_batch(batch, prepared).cpu())
            if progress is not None:
                progress(batch.n_tasks)
        return torch.cat(parts)

    def _scaled_tensors(self, data: MultiViewData, prepared: Prepared) -> ViewTensors:
        """Scale a data set and bring it to the device; cells of a grid share the answer."""
        dtype, device = self._numpy_dtype, self.torch_device

        def make() -> tuple[ViewTensors, Any]:
            scaled = prepared.scaling.transform(data.like(prepared.reference), dtype)
            # What the key is made of is kept too, or another object might get its identity.
            return ViewTensors.of(scaled, device, self._torch_dtype), (data, prepared.scaling)

        key = (id(data), id(prepared.scaling), self.dtype, str(device))
        return _tensors.get(key, make)[0]  # type: ignore[no-any-return]

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
        fewview.FewviewError: max_memory is 'much'; it must be a finite number
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
    "DTYPES",
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
