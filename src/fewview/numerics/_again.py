"""The same small steps again and again: as CUDA graphs on a GPU, as they are elsewhere.

A step of dozens of small operations costs a GPU their launches, whatever their size. Captured once,
a graph of them is one launch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

Held = TypeVar("Held", bound=tuple[Tensor, ...])
# Times that a step is taken as it is before it is captured: libraries load, some loops are short.
FIRST = 2


class Again:
    """Steps from tensors to tensors of the same shapes, taken in any order.

    A step must wait for nothing: no `bool` or `int` of a tensor, no shape that depends on values.
    What is given back is written over by the next step.

    Example:
        >>> def double(held):
        ...     return (2 * held[0],)
        >>> again = Again(double)
        >>> again(double, again(double, (torch.ones(2),)))
        (tensor([4., 4.]),)
    """

    def __init__(self, *steps: Callable[[Any], Any]) -> None:
        self._graphs: dict[Any, Any] = {}
        self._times = dict.fromkeys(steps, 0)
        self._held: tuple[Tensor, ...] | None = None
        self._given: Any = None

    def __call__(self, step: Callable[[Held], Held], held: Held) -> Held:
        """Take one step."""
        self._times[step] += 1
        if not held[0].is_cuda or self._times[step] <= FIRST:
            return step(held)
        if self._held is None:
            self._held = tuple(tensor.clone() for tensor in held)
        elif held is not self._given:
            for own, tensor in zip(self._held, held, strict=True):
                own.copy_(tensor)
        if step not in self._graphs:
            self._graphs[step] = self._captured(step, held)
        self._graphs[step].replay()
        self._given = given = _like(held, self._held)
        return cast(Held, given)

    def _captured(self, step: Callable[[Any], Any], like: Any) -> Any:
        """Write down a step from what is held to the same place."""
        assert self._held is not None
        graph, side = torch.cuda.CUDAGraph(), torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            # Other threads may prepare something meanwhile.
            graph.capture_begin(capture_error_mode="thread_local")
            for own, tensor in zip(self._held, step(_like(like, self._held)), strict=True):
                if own is not tensor:
                    own.copy_(tensor)
            graph.capture_end()
        torch.cuda.current_stream().wait_stream(side)
        return graph


def _like(held: Any, tensors: tuple[Tensor, ...]) -> Any:
    """The same kind of tuple with other tensors."""
    return type(held)(*tensors) if hasattr(held, "_fields") else type(held)(tensors)
