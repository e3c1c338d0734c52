"""The words of the contract: what a method is (`Tags`) and what it learnt (`State`, `Prepared`).

Plain frozen values without behaviour, so that every other file of this room may use them.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from fewview.episodes._sampler import Episodes
from fewview.numerics._batch import ViewTensors, map_tensors
from fewview.samples._data import MultiViewData
from fewview.samples._scaling import ViewScaling

DTYPES = {"float32": torch.float32, "float64": torch.float64}


@dataclass(frozen=True)
class Tags:
    """What a method is and needs, declared honestly.

    Attributes:
        transductive: looks at all queries of a task together, however gaps are filled.
        needs_base: cannot work without a base set.
        handles_missing: gets the batch with its gaps; otherwise views are padded before.
        assumes_balance: uses that every class has the same number of queries; a number between 0
            and 1 where answers are pulled towards that, but not forced.
        deterministic: draws no random numbers.
        trained: trains neural networks; left out of `all`.
        prepare_depends_on: fields of the task that `prepare` looks at.
        iterative: stops by a numerical criterion; float32 runs may differ in a few predictions.
        reads_empty_cells: gets empty cells of present views as NaN, in `prepare` and in the batch;
            otherwise they are filled with the means of their columns in the base set.
        learns_novel: learns beforehand from samples of the novel classes without their labels,
            those of other tasks and the queries to come among them; base classes are not used.
        bridges_views: learns from a base set how views go together, so that it can answer a query
            that shares no view with any support.
    """

    transductive: bool = False
    needs_base: bool = False
    handles_missing: bool = False
    assumes_balance: float = False
    deterministic: bool = True
    trained: bool = False
    iterative: bool = False
    prepare_depends_on: tuple[str, ...] = ()
    learns_novel: bool = False
    reads_empty_cells: bool = False
    bridges_views: bool = False


@dataclass(frozen=True)
class State:
    """What a method learnt from base classes: tensors and plain values, nothing else.

    Methods that prepare something subclass it. A method without `prepare` has this empty one.
    """

    @property
    def holds_rows(self) -> bool:
        """Whether base samples themselves are part of it; such a state is saved only if asked."""
        return any(
            isinstance(value, State) and value.holds_rows
            for value in (getattr(self, item.name) for item in fields(self))
        )

    def to(self, device: Any, dtype: torch.dtype | None = None) -> Any:
        """Move all tensors to a device, floats to a dtype."""
        return map_tensors(
            self, lambda x: x.to(device=device, dtype=dtype if x.is_floating_point() else None)
        )


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

    def to(self, device: Any) -> Prepared:
        """Return the same with its tensors on another device."""
        means, state = map_tensors((self.base_means, self.state), lambda x: x.to(device))
        return replace(self, base_means=means, state=state)


@dataclass(frozen=True)
class Work:
    """Tasks to be answered: episodes of unscaled data, and what was learnt for them.

    `rows` are these data scaled, where that was done beforehand.
    """

    data: MultiViewData
    episodes: Episodes
    prepared: Prepared
    rows: ViewTensors | None = None


@dataclass(frozen=True)
class Answered:
    """Some tasks of the work with a number: their scores [tasks, n_query, way], on the CPU.

    `seconds` are those of the whole batch, by the share of its tasks.
    """

    number: int
    episodes: Episodes
    scores: Tensor
    seconds: float
