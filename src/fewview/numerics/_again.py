"""The same small steps again and again: as CUDA graphs on a GPU, as they are elsewhere.

A step of dozens or a thousand small operations costs a GPU their launches, whatever their size.
Recorded once, they are one launch.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import torch
from torch import Tensor

# Times that a step is taken as it is before it is recorded: libraries load.
FIRST = 1


class _Record(NamedTuple):
    """A step that was written down, and where it leaves what it gives."""

    graph: Any
    out: Any


class Again:
    """Steps that are taken many times, in any order; on a GPU they are recorded and played again.

    A step takes a tuple of tensors, and then whatever tells kinds of steps apart. It gives such a
    tuple of the same shapes, or tensors by name, and may change other tensors in place. It must
    wait for nothing (no `bool` or `int` of a tensor, no shape that depends on values), look at
    nothing else that changes and bring nothing from the host. What is given back is written over by
    the next step. Where a step cannot be recorded, that is told and it is taken as on a CPU.

    Example:
        >>> def double(held):
        ...     return (2 * held[0],)
        >>> again = Again()
        >>> again(double, again(double, (torch.ones(2),)))
        (tensor([4., 4.]),)
    """

    def __init__(self) -> None:
        self._times: Counter[Hashable] = Counter()
        self._records: dict[Hashable, _Record | None] = {}
        self._places: dict[Hashable, tuple[Tensor, ...]] = {}
        self._given: Any = None

    def __call__(self, step: Callable[..., Any], held: Any, *kind: Hashable) -> Any:
        """Take one step."""
        shapes = tuple(tuple(tensor.shape) for tensor in held)
        key = (step, shapes, *kind)
        self._times[key] += 1
        if not held[0].is_cuda or self._times[key] <= FIRST:
            return step(held, *kind)
        places = self._places.get(shapes)
        if places is None:
            places = self._places[shapes] = tuple(tensor.clone() for tensor in held)
        elif held is not self._given:
            for place, tensor in zip(places, held, strict=True):
                place.copy_(tensor)
        if key not in self._records:
            self._records[key] = _recorded(step, _like(held, places), kind)
        record = self._records[key]
        if record is None:
            return step(held, *kind)
        record.graph.replay()
        if isinstance(record.out, dict):
            return record.out
        self._given = _like(held, places)
        return self._given


def _recorded(step: Callable[..., Any], held: Any, kind: tuple[Hashable, ...]) -> _Record | None:
    """Write down a step from what is held, to the same place where it gives such a tuple."""
    # torch hands out the same few streams in turn, to threads that prepare too, and what these ask
    # for would be written down with it; those of high priority nobody else takes.
    side = torch.cuda.Stream(priority=-1)  # type: ignore[no-untyped-call]
    graph = torch.cuda.CUDAGraph()
    side.wait_stream(torch.cuda.current_stream())
    try:
        with torch.cuda.stream(side):
            # Other threads may prepare something meanwhile.
            graph.capture_begin(capture_error_mode="thread_local")
            try:
                out = step(held, *kind)
                for place, tensor in zip(held, () if isinstance(out, dict) else out, strict=False):
                    if place is not tensor:
                        place.copy_(tensor)
            finally:
                graph.capture_end()
    except RuntimeError as error:
        warnings.warn(f"steps are not recorded: {error}", RuntimeWarning, stacklevel=4)
        return None
    torch.cuda.current_stream().wait_stream(side)
    return _Record(graph, out)


def _like(held: Any, tensors: tuple[Tensor, ...]) -> Any:
    """The same kind of tuple with other tensors."""
    return type(held)(*tensors) if hasattr(held, "_fields") else type(held)(tensors)
