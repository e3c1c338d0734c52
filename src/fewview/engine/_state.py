"""The words of the contract: what a method is (`Tags`) and what it learnt (`State`, `Prepared`).

Plain frozen values without behaviour, so that every other file of this room may use them.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import torch
from torch import Tensor

from fewview.samples._data import MultiViewData
from fewview.samples._scaling import ViewScaling

DTYPES = {"float32": torch.float32, "float64": torch.float64}


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

    @property
    def holds_rows(self) -> bool:
        """Whether base samples themselves are part of it; such a state is saved only if asked."""
        return any(
            isinstance(value, State) and value.holds_rows
            for value in (getattr(self, item.name) for item in fields(self))
        )

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

    def to(self, device: Any) -> Prepared:
        """Return the same with its tensors on another device."""
        means = None if self.base_means is None else tuple(m.to(device) for m in self.base_means)
        return replace(self, base_means=means, state=self.state.to(device))
