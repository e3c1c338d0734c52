"""The one loop for everything that converges task by task."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

Tree = TypeVar("Tree")
# Rounds between two looks at who has settled on a GPU: every look waits for the device.
LOOK_EVERY = 4
# Rounds that a GPU takes before it records one: libraries load, and short loops never pay.
PLAIN_ROUNDS = 4


def iterate(
    step: Callable[..., tuple[Any, Tensor]],
    carry: Any,
    given: tuple[Any, ...] = (),
    *,
    max_iter: int,
    drop: float = 1.0,
) -> Tensor:
    """Repeat `carry, settled = step(carry, *given)` until every task has settled.

    On a CPU settled tasks leave the batch. On a GPU, where small steps cost their launches whatever
    their size, all tasks stay, settled ones are held as they are, and the round is recorded once as
    a CUDA graph; there a step must not wait for the device (no `bool` or `int` of a tensor) and
    must keep the shapes of the carry.

    Args:
        step: one round for all tasks of the batch; entries t of its results depend on entries t
            alone. `settled` is bool [tasks].
        carry: (named) tuple of tensors [tasks, ...]; the first one is the answer.
        given: what a step reads and never changes: trees of tensors [tasks, ...].
        max_iter: most rounds.
        drop: settled tasks leave the batch when at most this share of it goes on; below 1 a step
            must leave those who have settled as they are.

    Returns:
        The first tensor of the carry, [tasks, ...]; of a task as it was when it settled.

    Example:
        >>> def halve(carry, least):  # until at most `least`
        ...     x = carry[0] / 2
        ...     return (x,), x <= least
        >>> iterate(halve, (torch.tensor([8.0, 1.0]),), (torch.ones(2),), max_iter=10)
        tensor([1.0000, 0.5000])
    """
    if carry[0].is_cuda:
        return _iterate_on_gpu(step, carry, given, max_iter)
    # Only the answer is written back: other parts of a carry may change their shapes on the way.
    whole: Tensor = carry[0].clone()
    places = None
    for _ in range(max_iter):
        carry, settled = step(carry, *given)
        left = (~settled).nonzero()[:, 0]
        if len(left) > drop * len(settled) or len(left) == len(settled):
            continue
        whole[slice(None) if places is None else places] = carry[0]
        places = left if places is None else places[left]
        if not len(left):
            return whole
        carry, given = take(carry, left), take(given, left)
    whole[slice(None) if places is None else places] = carry[0]
    return whole


def take(tree: Any, rows: Any) -> Any:
    """Some of the tasks of all tensors in (named) tuples and dataclasses."""
    return map_tensors(tree, lambda tensor: tensor[rows])


def map_tensors(tree: Tree, change: Callable[[Tensor], Tensor]) -> Tree:
    """The same dataclasses, tuples, lists and dictionaries with every tensor in them changed."""
    out: Any = tree
    if isinstance(tree, Tensor):
        out = change(tree)
    elif isinstance(tree, dict):
        out = {key: map_tensors(item, change) for key, item in tree.items()}
    elif isinstance(tree, (list, tuple)):
        parts = [map_tensors(item, change) for item in tree]
        out = type(tree)(*parts) if hasattr(tree, "_fields") else type(tree)(parts)
    elif is_dataclass(tree) and not isinstance(tree, type):
        found = {f.name: map_tensors(getattr(tree, f.name), change) for f in fields(tree)}
        out = replace(tree, **found)
    return cast(Tree, out)


def tensors_in(tree: Any) -> Iterator[Tensor]:
    """All tensors of a tree, in the order of its fields."""
    found: list[Tensor] = []
    map_tensors(tree, lambda tensor: found.append(tensor) or tensor)  # type: ignore[func-returns-value]
    return iter(found)


def _iterate_on_gpu(
    step: Callable[..., tuple[Any, Tensor]], carry: Any, given: tuple[Any, ...], max_iter: int
) -> Tensor:
    """`iterate` with shapes that stay, the round recorded once."""
    held = map_tensors(carry, torch.clone)
    settled = torch.zeros(len(carry[0]), dtype=torch.bool, device=carry[0].device)

    def take_round() -> None:
        new, done = step(held, *given)
        pairs = list(zip(tensors_in(held), tensors_in(new), strict=True))
        # All of it before anything is written: a step may hand on what was in another place.
        after = [torch.where(settled.view(-1, *[1] * (x.dim() - 1)), x, y) for x, y in pairs]
        for (place, _), tensor in zip(pairs, after, strict=True):
            place.copy_(tensor)
        settled.logical_or_(done)

    advance: Callable[[], None] = take_round
    for number in range(max_iter):
        if number == PLAIN_ROUNDS:
            advance = _recorded(take_round)
        advance()
        if (number + 1) % LOOK_EVERY == 0 and bool(settled.all()):
            break
    answer: Tensor = held[0]
    return answer


def _recorded(work: Callable[[], None]) -> Callable[[], None]:
    """Work on fixed places in memory as a CUDA graph, or as it is where that cannot be."""
    # torch hands out the same few streams in turn, to other threads too, and what these ask for
    # would be recorded with it; those of high priority nobody else takes.
    side = torch.cuda.Stream(priority=-1)  # type: ignore[no-untyped-call]
    graph = torch.cuda.CUDAGraph()
    side.wait_stream(torch.cuda.current_stream())
    try:
        with torch.cuda.stream(side):
            # Other threads may be busy meanwhile.
            graph.capture_begin(capture_error_mode="thread_local")
            try:
                work()
            finally:
                graph.capture_end()
    except torch.cuda.OutOfMemoryError:
        torch.cuda.empty_cache()  # while steps are recorded nothing is freed
        return work
    except RuntimeError as error:
        warnings.warn(f"steps are not recorded: {error}", RuntimeWarning, stacklevel=4)
        return work
    torch.cuda.current_stream().wait_stream(side)
    return graph.replay
