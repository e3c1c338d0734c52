"""The same small steps again and again: as CUDA graphs on a GPU, as they are elsewhere.

A step of dozens or a thousand small operations costs a GPU their launches, whatever their size.
Recorded once, they are one launch.
"""

from __future__ import annotations

import threading
import warnings
import weakref
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import fields, is_dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fewview.numerics.iterate import map_tensors

# Times that a step is taken as it is before it is recorded: libraries load.
FIRST = 1
# Recordings that a thread keeps for another time, in one part of so many of the memory of a device.
KEPT, PARTS = 8, 16
_thread = threading.local()


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


class _Player:
    """A step that was recorded with places of its own for all that it reads."""

    def __init__(self, step: Callable[..., Any], things: Any, held: Any, pool: Any) -> None:
        self.things = map_tensors(things, torch.clone)
        self.held = _like(held, tuple(tensor.clone() for tensor in held))
        before = torch.cuda.memory_reserved()
        self.record = _recorded(partial(step, self.things), self.held, (), pool)
        self._latest = weakref.ref(things)
        self.size = sum(tensor.nbytes for tensor in _tensors((self.things, self.held)))
        # What was set aside for it to play in, beyond what others do.
        self.more = max(0, torch.cuda.memory_reserved() - before)

    def play(self) -> None:
        """Take the step from what is held to there."""
        assert self.record is not None
        self.record.graph.replay()

    def take(self, things: Any, held: Any) -> None:
        """Copy what a step reads to its place, where it is not there already."""
        pairs = []
        if self._latest() is not things:
            pairs.append((self.things, things))
            self._latest = weakref.ref(things)
        if held is not self.held:
            pairs.append((self.held, held))
        for places, given in pairs:
            torch._foreach_copy_(_tensors(places), _tensors(given))


class _Players:
    """The recordings that a thread keeps; `room` is how many bytes they may take."""

    def __init__(self, room: int) -> None:
        self._room = room
        self._forget()

    def _forget(self) -> None:
        """Give back all memory."""
        self._kept: OrderedDict[Hashable, _Player] = OrderedDict()
        # One memory to play in: nothing of a recording lives longer than it plays. It is given back
        # when all of them are gone, so when they take too much, they go together.
        self._pool: Any = None
        self._pool_size = 0

    def play(self, step: Callable[[Any, Any], Any], things: Any, held: Any, times: int) -> Any:
        """See `play`; at least once."""
        key = step, _layout((things, held), [])
        if key not in self._kept:
            held, times = step(things, held), times - 1
            if not self._record(key, things, held):
                for _ in range(times):
                    held = step(things, held)
                return held
        self._kept.move_to_end(key)
        player = self._kept[key]
        player.take(things, held)
        for _ in range(times):
            player.play()
        return player.held

    def _record(self, key: tuple[Any, Hashable], things: Any, held: Any) -> bool:
        """Record a step and keep it, if that is possible."""
        if self._pool_size + sum(player.size for player in self._kept.values()) > self._room:
            self._forget()
        self._pool = self._pool or torch.cuda.graph_pool_handle()
        player = _Player(key[0], things, held, self._pool)
        if player.record is None:
            self._forget()  # there may be room the next time
            return False
        self._pool_size += player.more
        self._kept[key] = player
        while len(self._kept) > KEPT:
            self._kept.popitem(last=False)
        return True


def play(step: Callable[[Any, Any], Any], things: Any, held: Any, times: int) -> Any:
    """`held = step(things, held)` so many times, as `Again` takes steps.

    `things` is a dataclass of tensors, of such dataclasses and of what can be hashed, `held` a
    tuple of tensors; steps change neither. On a GPU a recording is kept for things of the same
    shapes: then nothing is launched but the copies of these and the recording. What is given back
    may be written over by the next call.

    Example:
        >>> from dataclasses import dataclass
        >>> @dataclass(frozen=True)
        ... class Factor:
        ...     of: torch.Tensor
        >>> play(lambda factor, held: (factor.of * held[0],), Factor(torch.tensor(3.0)),
        ...      (torch.ones(2),), 2)
        (tensor([9., 9.]),)
    """
    if not held[0].is_cuda or FIRST > 1:  # nothing is to be recorded
        for _ in range(times):
            held = step(things, held)
        return held
    if not times:
        return held
    if not hasattr(_thread, "players"):
        memory = torch.cuda.get_device_properties(held[0].device).total_memory
        _thread.players = _Players(memory // PARTS)
    return _thread.players.play(step, things, held, times)


def _layout(tree: Any, found: list[Tensor]) -> Hashable:
    """Shapes and all else that a tree of tensors consists of; its tensors are `found`."""
    if isinstance(tree, Tensor):
        found.append(tree)
        return tuple(tree.shape), tree.dtype, tree.device
    if is_dataclass(tree):
        return type(tree), *(_layout(getattr(tree, item.name), found) for item in fields(tree))
    if isinstance(tree, tuple):
        return type(tree), *(_layout(item, found) for item in tree)
    out: Hashable = tree
    return out


def _tensors(tree: Any) -> list[Tensor]:
    """Of a tree, in the order of its fields."""
    found: list[Tensor] = []
    _layout(tree, found)
    return found


def _recorded(
    step: Callable[..., Any], held: Any, kind: tuple[Hashable, ...], pool: Any = None
) -> _Record | None:
    """Write down a step from what is held, to the same place where it gives such a tuple.

    `pool` is a memory that recordings share which leave nothing there.
    """
    # torch hands out the same few streams in turn, to threads that prepare too, and what these ask
    # for would be written down with it; those of high priority nobody else takes.
    side = torch.cuda.Stream(priority=-1)  # type: ignore[no-untyped-call]
    graph = torch.cuda.CUDAGraph()
    side.wait_stream(torch.cuda.current_stream())
    try:
        with torch.cuda.stream(side):
            # Other threads may prepare something meanwhile.
            graph.capture_begin(pool=pool, capture_error_mode="thread_local")
            try:
                out = step(held, *kind)
                for place, tensor in zip(held, () if isinstance(out, dict) else out, strict=False):
                    if place is not tensor:
                        place.copy_(tensor)
            finally:
                graph.capture_end()
    except torch.cuda.OutOfMemoryError:
        # While steps are written down nothing is freed; there may be room the next time.
        torch.cuda.empty_cache()
        return None
    except RuntimeError as error:
        warnings.warn(f"steps are not recorded: {error}", RuntimeWarning, stacklevel=4)
        return None
    torch.cuda.current_stream().wait_stream(side)
    return _Record(graph, None if pool else out)


def _like(held: Any, tensors: tuple[Tensor, ...]) -> Any:
    """The same kind of tuple with other tensors."""
    return type(held)(*tensors) if hasattr(held, "_fields") else type(held)(tensors)
