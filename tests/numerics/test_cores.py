"""Pieces of work on all cores."""

from __future__ import annotations

import threading

import pytest
import torch

from fewview.numerics._cores import on_all_cores, share_of

CPU = torch.device("cpu")


@pytest.fixture
def _two_threads() -> object:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("_two_threads")
def test_answers_come_in_order_and_pieces_are_worked_on_by_one_core_each() -> None:
    meet = threading.Barrier(2, timeout=30)  # both are there at once

    def work(number: int) -> tuple[int, int, bool]:
        if number < 2:
            meet.wait()
        return number, torch.get_num_threads(), torch.is_grad_enabled()

    found = on_all_cores(work, range(5), CPU)
    assert found == [(number, 1, False) for number in range(5)]
    assert torch.get_num_threads() == 2
    told = []
    later = threading.Thread(target=lambda: told.append(torch.get_num_threads()))
    later.start()
    later.join()
    assert told == [2]  # threads that start later have all cores too


@pytest.mark.usefixtures("_two_threads")
def test_an_error_in_a_piece_is_raised() -> None:
    def work(number: int) -> int:
        if number == 2:
            raise ValueError("piece 2")
        return number

    with pytest.raises(ValueError, match="piece 2"):
        on_all_cores(work, range(4), CPU)
    assert torch.get_num_threads() == 2


@pytest.mark.usefixtures("_two_threads")
def test_shares() -> None:
    assert [share_of(count) for count in (0, 1, 4, 5)] == [0, 1, 2, 3]
