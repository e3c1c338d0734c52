"""Recordings that are kept, with a stand-in for a GPU that takes steps when they are played."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from fewview.numerics import _again
from fewview.numerics._again import _Players, _Record


@dataclass(frozen=True)
class Factor:
    of: Tensor
    power: int = 1


def grow(factor: Factor, held: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    return held[0] * factor.of**factor.power, held[1] + 1


class Graph:
    """Plays a step in its place."""

    def __init__(self, step: Any, held: Any) -> None:
        self.step, self.held = step, held

    def replay(self) -> None:
        for place, tensor in zip(self.held, self.step(self.held), strict=True):
            place.copy_(tensor)


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The memories that recordings were made in; each of them takes a hundred bytes more."""
    made: list[Any] = []

    def record(step: Any, held: Any, kind: Any, pool: Any) -> _Record:
        made.append(pool)
        return _Record(Graph(step, held), None)

    monkeypatch.setattr(_again, "_recorded", record)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda: 100 * len(made))
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", object)
    return made


def start(size: int = 3) -> tuple[Tensor, Tensor]:
    return torch.ones(size), torch.zeros(())


def test_what_is_recorded_once_is_played_with_other_numbers(recorded: list[Any]) -> None:
    players = _Players(1 << 20)
    for number in (2.0, 3.0):
        held = start()
        for times, power in ((1, 1), (4, 5)):
            held = players.play(grow, Factor(torch.tensor(number)), held, times)
            assert held[0].tolist() == [number**power] * 3
        assert float(held[1]) == 5
    assert len(recorded) == 1
    # Other shapes, and other things than tensors, are other steps.
    assert players.play(grow, Factor(torch.tensor(2.0)), start(2), 2)[0].tolist() == [4, 4]
    assert players.play(grow, Factor(torch.tensor(2.0), 3), start(), 2)[0].tolist() == [64] * 3
    assert len(recorded) == 3
    assert len(set(map(id, recorded))) == 1  # one memory for all


def test_some_are_kept(recorded: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_again, "KEPT", 2)
    players = _Players(1 << 20)
    for size in (1, 2, 1, 3, 1, 2):  # the third takes the place of the second
        assert (
            players.play(grow, Factor(torch.tensor(2.0)), start(size), 3)[0].tolist() == [8] * size
        )
    assert len(recorded) == 4


def test_what_takes_too_much_memory_goes_together(recorded: list[Any]) -> None:
    """A recording has 100 bytes and 4 (1 + size + 1) of numbers."""
    players = _Players(250)
    for size in (1, 2, 3):  # 112, 228, and 348 are too many
        held = players.play(grow, Factor(torch.tensor(2.0)), start(size), 3)
    assert len(set(map(id, recorded))) == 1
    assert players.play(grow, Factor(torch.tensor(2.0)), start(4), 3)[0].tolist() == [8] * 4
    assert held[0].tolist() == [8] * 3  # nobody writes there any more
    players.play(grow, Factor(torch.tensor(2.0)), start(4), 3)
    assert len(recorded) == 4
    assert len(set(map(id, recorded))) == 2


def test_what_cannot_be_recorded_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []
    monkeypatch.setattr(_again, "_recorded", lambda *given: tried.append(given))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda: 0)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", object)
    players = _Players(1 << 20)
    for _ in range(2):
        assert players.play(grow, Factor(torch.tensor(2.0)), start(), 3)[0].tolist() == [8] * 3
    assert len(tried) == 2  # there may be room the next time
