"""The one loop, against a plain loop over tasks, on a CPU and with a stand-in for a GPU."""

from __future__ import annotations

import sys
import warnings
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from fewview.numerics.iterate import iterate, map_tensors, take, tensors_in


class Carry(NamedTuple):
    value: Tensor  # [tasks]
    rounds: Tensor  # [tasks]


@dataclass(frozen=True)
class Given:
    factor: Tensor
    limits: dict[str, Any]
    power: int = 1


def make(tasks: int = 6) -> tuple[Carry, Given]:
    start = torch.tensor([8.0, 1.0, 300.0, 2.0, 1e6, 8.0])[:tasks]
    factor = torch.tensor([0.5, 0.5, 0.25, 0.5, 0.9, 0.25])[:tasks]
    limits = {"least": [torch.full_like(start, 1.5)], "name": "limit"}
    return Carry(start, torch.zeros_like(start)), Given(factor, limits)


def shrink(carry: Carry, given: Given) -> tuple[Carry, Tensor]:
    """Times a factor until below a limit; who is below stays as it is."""
    (least,) = given.limits["least"]
    goes = carry.value >= least
    value = torch.where(goes, carry.value * given.factor**given.power, carry.value)
    return Carry(value, carry.rounds + goes), value < least


def by_hand(carry: Carry, given: Given, max_iter: int) -> list[float]:
    out = []
    for value, factor in zip(carry.value, given.factor, strict=True):
        for _ in range(max_iter):
            if value < 1.5:
                break
            value = value * factor
        out.append(float(value))
    return out


@pytest.mark.parametrize("drop", [1.0, 0.7, 0.34, 0.0])
@pytest.mark.parametrize("max_iter", [0, 1, 2, 3, 5, 8, 1000])
def test_every_task_ends_where_it_would_by_itself(max_iter: int, drop: float) -> None:
    carry, given = make()
    found = iterate(shrink, carry, (given,), max_iter=max_iter, drop=drop)
    assert found.tolist() == by_hand(carry, given, max_iter)
    assert carry.value.tolist() == [8.0, 1.0, 300.0, 2.0, 1e6, 8.0]  # what is given stays
    for task in range(6):
        one = iterate(
            shrink, take(carry, [task]), (take(given, [task]),), max_iter=max_iter, drop=drop
        )
        assert torch.equal(one, found[[task]])


def test_settled_tasks_leave_and_the_loop_ends_with_the_last() -> None:
    carry, given = make()
    needed = {}
    for drop in (1.0, 0.4, 0.0):
        sizes: list[int] = []

        def watched(carry: Carry, given: Given, sizes: list[int] = sizes) -> Any:
            sizes.append(len(carry.value))
            assert len(given.factor) == len(given.limits["least"][0]) == sizes[-1]
            return shrink(carry, given)

        iterate(watched, carry, (given,), max_iter=1000, drop=drop)
        needed[drop] = sizes
    # Rounds that the tasks need: 3, 1, 4, 1, 128 (0.9^128 < 1.5e-6 < 0.9^127), 2.
    assert needed[1.0] == [6, 4, 3, 2, *[1] * 124]
    assert needed[0.4] == [6, 6, 6, *[2] * 125]  # 2 of 6 are few enough, 1 of 2 is not
    assert needed[0.0] == [6] * 128


def test_what_settles_after_it_was_above_is_written_back_to_its_place() -> None:
    """Places of places: the third task leaves first, the first one second, the second one last."""

    def count(carry: tuple[Tensor], wanted: Tensor) -> tuple[tuple[Tensor], Tensor]:
        value = carry[0] + 1
        return (value,), value[:, 0] >= wanted

    wanted = torch.tensor([2, 3, 1, 9])
    found = iterate(count, (torch.zeros(4, 2),), (wanted,), max_iter=5)
    assert found.tolist() == [[2, 2], [3, 3], [1, 1], [5, 5]]


def test_other_parts_of_the_carry_may_grow() -> None:
    def remember(carry: tuple[Tensor, Tensor], wanted: Tensor) -> Any:
        value, history = carry
        return (value + 1, torch.cat((history, value[:, None]), 1)), value + 1 >= wanted

    carry = torch.zeros(3), torch.zeros(3, 0)
    found = iterate(remember, carry, (torch.tensor([1.0, 3.0, 2.0]),), max_iter=9)
    assert found.tolist() == [1, 3, 2]


def test_trees_of_tensors() -> None:
    carry, given = make()
    tree = {"a": (carry, [given]), "b": "text"}
    found = map_tensors(tree, lambda x: x + 1)
    assert found["b"] == "text"
    assert isinstance(found["a"][0], Carry)
    assert isinstance(found["a"][1][0], Given)
    assert torch.equal(found["a"][0].value, carry.value + 1)
    assert torch.equal(found["a"][1][0].limits["least"][0], given.limits["least"][0] + 1)
    assert found["a"][1][0].limits["name"] == "limit"
    assert take(given, slice(1, 3)).factor.tolist() == [0.5, 0.25]
    assert map_tensors(Given, torch.neg) is Given  # a class is no tree
    listed = list(tensors_in(tree))
    wanted = [carry.value, carry.rounds, given.factor, given.limits["least"][0]]
    assert all(one is two for one, two in zip(listed, wanted, strict=True))


# ---------------------------------------------------------------------------- a GPU's way


class OnGPU(Tensor):
    """A tensor that says that it is on a GPU."""

    @property
    def is_cuda(self) -> bool:  # type: ignore[override]
        return True


class Graph:
    """Stands in for a CUDA graph: what is recorded is not done, what is replayed is."""

    made: list[Graph]
    recording = False
    error: Exception | None = None

    def __init__(self) -> None:
        self.plays = 0
        Graph.made.append(self)

    def capture_begin(self, capture_error_mode: str) -> None:
        assert capture_error_mode == "thread_local"  # other threads may be busy meanwhile
        if Graph.error is not None:
            raise Graph.error
        self.work = sys._getframe(1).f_locals["work"]
        Graph.recording = True

    def capture_end(self) -> None:
        Graph.recording = False

    def replay(self) -> None:
        self.plays += 1
        self.work()


class Stream:
    def wait_stream(self, other: Any) -> None:
        assert isinstance(other, Stream)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> type[Graph]:
    Graph.made, Graph.error, Graph.recording = [], None, False
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    # Of a high priority, which nobody else takes.
    monkeypatch.setattr(torch.cuda, "Stream", lambda priority: {-1: Stream()}[priority])
    monkeypatch.setattr(torch.cuda, "current_stream", Stream)
    monkeypatch.setattr(torch.cuda, "stream", lambda side: nullcontext())
    return Graph


def grow(carry: Carry, given: Given) -> tuple[Carry, Tensor]:
    """As `shrink`, but those who have settled are moved too: the loop has to hold them."""
    if Graph.recording:
        return carry, torch.zeros(len(carry.value), dtype=torch.bool)
    assert len(carry.value) == 6  # shapes stay
    value = carry.value * given.factor
    return Carry(value, carry.rounds + 1), value < given.limits["least"][0]


@pytest.mark.parametrize("max_iter", [0, 1, 2, 3, 4, 5, 6, 9, 1000])
def test_on_a_gpu_settled_tasks_are_held_and_rounds_are_recorded(
    gpu: type[Graph], max_iter: int
) -> None:
    carry, given = make()
    carry = carry._replace(value=torch.tensor([8.0, 2.0, 300.0, 2.0, 1e6, 8.0]))
    placed = carry._replace(value=carry.value.as_subclass(OnGPU))
    found = iterate(grow, placed, (given,), max_iter=max_iter)
    assert found.tolist() == by_hand(carry, given, max_iter)
    assert torch.equal(carry.value, placed.value)
    # The first rounds are taken as they are, one is recorded, and every fourth looks who settled.
    assert len(gpu.made) == (max_iter > 4)
    assert sum(graph.plays for graph in gpu.made) == max(0, min(max_iter, 128) - 4)


def test_on_a_gpu_the_loop_ends_when_all_have_settled(gpu: type[Graph]) -> None:
    calls = []

    def count(carry: tuple[Tensor], wanted: Tensor) -> tuple[tuple[Tensor], Tensor]:
        calls.append(1)
        return (carry[0] + 1,), carry[0] + 1 >= wanted

    start = (torch.zeros(2).as_subclass(OnGPU),)
    assert iterate(count, start, (torch.tensor([3.0, 2.0]),), max_iter=50).tolist() == [3, 2]
    assert len(calls) == 4  # the next look after three rounds
    assert not gpu.made


@pytest.mark.usefixtures("gpu")
def test_on_a_gpu_tensors_of_any_shape_are_held() -> None:
    def double(carry: Any, wanted: Tensor) -> Any:
        rows, blocks = carry
        return (2 * rows, blocks + rows[..., None]), rows[:, 0] * 2 >= wanted

    start = torch.ones(3, 2).as_subclass(OnGPU), torch.zeros(3, 2, 4)
    found = iterate(double, start, (torch.tensor([2.0, 8.0, 4.0]),), max_iter=4)
    assert found.tolist() == [[2, 2], [8, 8], [4, 4]]


@pytest.mark.usefixtures("gpu")
def test_on_a_gpu_a_step_may_hand_on_what_was() -> None:
    """Places are written when all that goes there is known."""

    def remember(carry: tuple[Tensor, Tensor]) -> tuple[tuple[Tensor, Tensor], Tensor]:
        before, last = carry
        return (before + last, before), before > 100

    start = torch.tensor([1.0, 2.0]), torch.tensor([1.0, 1.0])
    wanted = iterate(remember, start, max_iter=4)
    assert wanted.tolist() == [8.0, 13.0]  # Fibonacci's numbers
    placed = start[0].as_subclass(OnGPU), start[1]
    assert iterate(remember, placed, max_iter=4).tolist() == wanted.tolist()


@pytest.mark.parametrize("full", [False, True])
def test_what_cannot_be_recorded_is_done_as_it_is(
    gpu: type[Graph], monkeypatch: pytest.MonkeyPatch, full: bool
) -> None:
    emptied = []
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: emptied.append(1))
    gpu.error = torch.cuda.OutOfMemoryError() if full else RuntimeError("not now")
    carry, given = make()
    carry = carry._replace(value=torch.tensor([8.0, 2.0, 300.0, 2.0, 1e6, 8.0]))
    placed = carry._replace(value=carry.value.as_subclass(OnGPU))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = iterate(grow, placed, (given,), max_iter=200)
    assert found.tolist() == by_hand(carry, given, 200)
    assert len(gpu.made) == 1
    assert [str(one.message) for one in said] == (
        [] if full else ["steps are not recorded: not now"]
    )
    assert len(emptied) == full
