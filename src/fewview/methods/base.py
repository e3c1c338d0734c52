"""The contract of a method: what its author writes, and how a batch of tasks is run with it.

A method is a dataclass of hyper-parameters with two functions: `learn(base) -> State` and
`scores(batch, state) -> [tasks, n_query, way]`. Scaling, padding, batches that fit memory, device
and dtype are here and nowhere else. The scikit-learn estimator is in `estimator/`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from numbers import Integral
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator
from torch import Tensor

from fewview.episodes.batch import EpisodeBatch, ViewTensors, latent_batch
from fewview.episodes.episodes import Episodes
from fewview.episodes.padding import FROM_QUERIES, PADDINGS, pad
from fewview.episodes.task import TaskSpec
from fewview.errors import FewviewError
from fewview.methods.params import check_params, param
from fewview.numerics.iterate import map_tensors
from fewview.samples._data import MultiViewData
from fewview.samples._scaling import SCALINGS

if TYPE_CHECKING:
    from fewview.methods.estimator.fitted_base import FittedBase

# Rows of one batch on a CPU, in bytes: what stays in a cache is read several times faster.
CACHED_ROWS = 8 * 2**20


@dataclass(frozen=True)
class Tags:
    """What a method is and needs, declared honestly.

    Attributes:
        transductive: scores look at all queries of a task together, however gaps are filled.
        needs_base: cannot work without labelled base classes.
        handles_missing: gets the batch with its gaps; otherwise it is padded before.
        handles_nan: gets empty cells of present views as NaN, in `learn` and in the batch;
            otherwise they are filled with the means of their columns in the base set.
        links_views: the base set tells how views go together, so that it can answer a query that
            shares no view with any support.
        balanced: 1 assumes equally many queries of every class, 0.5 is drawn to it.
        random: draws random numbers.
        iterative: stops by a numerical criterion; float32 runs may differ in a few predictions.
        trained: trains networks; left out of `all`.
        learns_from: `"base"`; `"unlabelled"`: samples of the novel classes without their labels;
            `"tasks"`: the tasks themselves (`learn_from_tasks`).
        depends_on: fields of the task that `learn` looks at.
    """

    transductive: bool = False
    needs_base: bool = False
    handles_missing: bool = False
    handles_nan: bool = False
    links_views: bool = False
    balanced: float = 0.0
    random: bool = False
    iterative: bool = False
    trained: bool = False
    learns_from: str = "base"
    depends_on: tuple[str, ...] = ()


@dataclass(frozen=True)
class State:
    """What a method learnt: a frozen dataclass of tensors, tuples, plain values and other States.

    A method that learns subclasses it; one without `learn` has this empty one.
    """

    holds_rows: ClassVar[bool] = False  # base samples are part of it; saved only where asked for

    def to(self, device: Any, dtype: torch.dtype | None = None) -> Self:
        """Move all tensors to a device, floats to a dtype."""
        moved: Self = map_tensors(
            self, lambda x: x.to(device=device, dtype=dtype if x.is_floating_point() else None)
        )
        return moved


@dataclass(kw_only=True, eq=False, repr=False)
class Contract(BaseEstimator, ABC):  # type: ignore[misc]
    """What a method is to everything that runs it; a class below has the same decorator."""

    base: Any = None
    scaling: str = param(
        "scale", among=SCALINGS, tune=("scale", "standard", "standard+unit", "by-width")
    )
    padding: str = param("episode", among=PADDINGS, tune=("episode", "zero"))
    device: str = "cpu"
    dtype: str = param("float32", among=("float32", "float64"))
    max_memory: float | None = param(None, above=0)
    random_state: Any = 0

    name: ClassVar[str] = ""
    version: ClassVar[int] = 1  # raised when results change
    tags: ClassVar[Tags] = Tags()  # or a property, where it follows from parameters
    paper: ClassVar[dict[str, Any]] = {"scaling": "scale"}  # parameters of the paper's row
    small_batches: ClassVar[bool] = True  # at most `CACHED_ROWS` at a time on a CPU

    # ------------------------------------------------------------------ what a method implements

    @abstractmethod
    def scores(self, batch: EpisodeBatch, state: State) -> Tensor:
        """Unnormalised log-probabilities [tasks, n_query, way] of the queries."""

    def learn(self, base: MultiViewData, task: TaskSpec, seed: int) -> State:
        """Learn from scaled, labelled base samples; nothing by default."""
        return State()

    def learn_unlabelled(self, rows: MultiViewData, task: TaskSpec, seed: int) -> State:
        """Learn without base classes: from unlabelled rows and supports, whatever there is."""
        return State()

    # ------------------------------------------------------------------ what some methods replace

    def learn_from_tasks(self, tensors: ViewTensors, episodes: Episodes, seed: int) -> State:
        """Learn from the tasks that are to be scored, where `tags.learns_from == "tasks"`."""
        return State()

    def statistics(self, sample: MultiViewData) -> Any:
        """Empty sums of a base set in parts (`update`, `merge`); None where nothing is summed.

        `sample` are scaled samples that fix what must be known first.
        """
        if type(self).learn is not Contract.learn:
            raise FewviewError(
                f"{type(self).__name__} cannot learn from a base set in parts; call fit_base with "
                "all of it (ugda, marginal, proto can)"
            )
        return None

    def learn_from(
        self, statistics: Any, task: TaskSpec, seed: int, sample: MultiViewData | None
    ) -> State:
        """Make the state from sums, and a sample for what sums do not tell."""
        return State()

    def embed(self, batch: EpisodeBatch, state: State) -> EpisodeBatch:
        """The same tasks with one view `latent`; by default the padded views side by side."""
        support, query = batch.concatenated()
        return latent_batch(batch, support, query, batch.support_labels)

    def typicality(self, batch: EpisodeBatch, state: State) -> Tensor | None:
        """How well queries fit every class, [tasks, n_query, way]; higher is more normal.

        Unlike `scores` it can be compared between queries, and it is what rejecting a query is
        decided by. None stands for minus the distance to the class mean over shared views
        (`class_fits.mean_distances`). The batch comes with its gaps.
        """
        return None

    def scores_inductive(self, batch: EpisodeBatch, state: State) -> Tensor | None:
        """`scores` of every query as if it were the only one; None where there is no quick way."""
        tags = self.tags
        return None if tags.transductive or not tags.handles_missing else self.scores(batch, state)

    def padded(self, batch: EpisodeBatch, fitted: FittedBase) -> EpisodeBatch:
        """Fill missing views unless the method handles them itself."""
        return batch if self.tags.handles_missing else pad(batch, self.padding, fitted.means)

    def refit_with(
        self, fitted: FittedBase, support: MultiViewData, query: MultiViewData, task: TaskSpec
    ) -> FittedBase:
        """What supports and queries tell where there is no base set; by default nothing more."""
        return fitted

    def bytes_per_task(self, n_support: int, n_query: int, dims: tuple[int, ...], way: int) -> int:
        """Working memory of one task; sets the batch size. Depends on shapes only."""
        pairs = 3 * n_query * n_support * way
        return self.torch_dtype.itemsize * (4 * (n_support + n_query) * sum(dims) + pairs)

    def resolved_params(self) -> dict[str, Any]:
        """Parameters by name; a class in which some follow from others fills those in."""
        return dict(self.get_params(deep=False))

    def check(self) -> None:
        """Check hyper-parameters before any work; a method with rules between them adds its own."""
        check_params(self)
        state = self.random_state
        known = isinstance(state, (Integral, np.random.RandomState)) or state is None
        if not known or isinstance(state, bool):
            raise FewviewError(
                f"random_state is {state!r}; it must be a whole number, None or a RandomState"
            )
        _ = self.torch_device  # an impossible device is an error now, not when it is used

    # ------------------------------------------------------------------ many tasks at once

    def tensors(self, data: MultiViewData, fitted: FittedBase, what: str = "data") -> ViewTensors:
        """Data (`what` in messages) in the base set's order of views, scaled, on the device."""
        known = data.like(fitted.reference, what)

        def scale(view: str, block: Any) -> Any:
            return fitted.scaling.apply(view, block, self.dtype, self.tags.handles_nan)

        return ViewTensors.of(known, self.torch_device, self.torch_dtype, scale)

    def batches(self, tensors: ViewTensors, episodes: Episodes) -> Iterator[EpisodeBatch]:
        """Episodes as scaled tasks without answers, so many at a time as fit memory."""
        dims = tuple(view.shape[1] for view in tensors.views)
        shape = episodes.support.shape[1], episodes.query.shape[1], dims, episodes.way
        size = self.batch_size(*shape)
        for start in range(0, len(episodes), size):
            batch = tensors.gather(episodes[start : start + size])
            yield replace(batch, query_labels=None)

    def score_episodes(
        self, data: MultiViewData | ViewTensors, episodes: Episodes, fitted: FittedBase
    ) -> Tensor:
        """Scores of all queries of all tasks on the CPU, [tasks, n_query, way]."""
        tensors = data if isinstance(data, ViewTensors) else self.tensors(data, fitted)
        parts = [self.score_batch(b, fitted).cpu() for b in self.batches(tensors, episodes)]
        return torch.cat(parts)

    def score_batch(self, batch: EpisodeBatch, fitted: FittedBase) -> Tensor:
        """Pad if needed and score one batch of scaled tasks: [tasks, n_query, way]."""
        batch = self.padded(batch, fitted)
        if batch.n_query == 0:
            return batch.support[0].new_zeros(batch.n_tasks, 0, batch.way)
        with torch.no_grad():
            out = self.scores(batch, fitted.state)
        name, wanted = type(self).__name__, (batch.n_tasks, batch.n_query, batch.way)
        if not isinstance(out, Tensor) or tuple(out.shape) != wanted:
            found = f"of shape {tuple(out.shape)}" if hasattr(out, "shape") else f"{out!r:.40}"
            raise TypeError(
                f"{name}.scores gave a {type(out).__name__} {found}; it must give a tensor "
                f"[tasks, queries, classes] = {wanted}"
            )
        if not bool(torch.isfinite(out).all()):
            raise FloatingPointError(
                f"{name} gave scores that are not finite: it divides by zero or takes the "
                "logarithm of zero somewhere; if it is a method of fewview, please report this"
            )
        return out

    def batch_size(self, n_support: int, n_query: int, dims: tuple[int, ...], way: int) -> int:
        """Tasks that go together: a function of shapes and `max_memory`, never of free memory."""
        most = int(self._batch_bytes // max(self.bytes_per_task(n_support, n_query, dims, way), 1))
        if self.small_batches and self.torch_device.type == "cpu":
            rows = (n_support + n_query) * sum(dims) * self.torch_dtype.itemsize
            most = min(most, CACHED_ROWS // max(rows, 1))
        return max(1, most)

    @property
    def _batch_bytes(self) -> float:
        """Bytes that a batch may take: `max_memory`, or what is usual on this kind of device.

        1 GiB on a CPU, since large batches leave its caches. 16 GiB on a GPU, where small batches
        are nothing but launches, and half of what it has at most: of its memory, not of what others
        left free.
        """
        if self.max_memory is not None:
            return self.max_memory * 2**30
        device = self.torch_device
        if device.type != "cuda":
            return 2.0**30
        return min(2.0**34, torch.cuda.get_device_properties(device).total_memory / 2)

    # ------------------------------------------------------------------ words for people, devices

    @property
    def looks_at_queries(self) -> str:
        """Whether an answer depends on the other queries: "yes", "by padding", or "-" where not."""
        if self.tags.transductive:
            return "yes"
        by_padding = self.padding in FROM_QUERIES and not self.tags.handles_missing
        return "by padding" if by_padding else "-"

    @property
    def use_of_base(self) -> str:
        """What base classes are to it: "needed", "learns from them if given", "for scaling"."""
        if self.tags.needs_base:
            return "needed"
        learns = type(self).learn is not Contract.learn and not self.tags.trained
        return "learns from them if given" if learns else "for scaling"

    @property
    def torch_device(self) -> torch.device:
        """The device that `device` stands for on this machine."""
        if self.device == "auto":
            return torch.device("cuda" if torch.cuda.is_available() else "cpu")
        try:
            device = torch.device(self.device)
        except (RuntimeError, TypeError):
            raise FewviewError(f"device {self.device!r}: use 'cpu', 'cuda' or 'auto'") from None
        if device.type == "cuda" and not torch.cuda.is_available():
            raise FewviewError("device 'cuda': no CUDA device is available here; use 'cpu'")
        return device

    @property
    def torch_dtype(self) -> torch.dtype:
        """`dtype` as torch knows it."""
        return torch.float64 if self.dtype == "float64" else torch.float32
