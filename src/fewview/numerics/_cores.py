"""Pieces of work side by side on the cores of a CPU."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import torch

# More threads than that wait for each other more than they work: Python runs one at a time between
# operations (16 cores: with four 2.4 times as fast as with one, with sixteen slower than that).
MOST = 4

Piece = TypeVar("Piece")
Found = TypeVar("Found")


def cores() -> int:
    """How many work side by side."""
    return min(torch.get_num_threads(), MOST)


def share_of(count: int) -> int:
    """How many of so many things a core has, if all have as many."""
    return -(-count // cores())


def on_all_cores(
    work: Callable[[Piece], Found], pieces: Iterable[Piece], device: torch.device
) -> list[Found]:
    """`[work(piece) for piece in pieces]`, on as many cores as torch may use, `MOST` at most.

    For batched linear algebra: of many small matrices LAPACK takes one after the other, and
    products of a piece that stays in a core's cache are too small to be shared. Every piece is
    worked on by one core, so that its digits do not depend on their number. A GPU takes one piece
    after the other.

    Example:
        >>> on_all_cores(torch.sum, torch.ones(3, 4), torch.device("cpu"))
        [tensor(4.), tensor(4.), tensor(4.)]
    """
    todo = list(pieces)
    if cores() == 1 or len(todo) == 1 or device.type != "cpu":
        return [work(piece) for piece in todo]
    found: dict[int, Found] = {}
    left = iter(range(len(todo)))

    def serve() -> None:
        # Not torch.set_num_threads: once that was called, even with the number that it had, torch
        # 2.13 fails in `torch.linalg.solve` of several matrices of 240 columns.
        mkl = _mkl()
        torch.get_num_threads()  # the first time in a thread, torch sets how many it may use
        with _openmp().limit(limits=1), torch.no_grad():
            mkl(1)
            try:
                for place in left:
                    found[place] = work(todo[place])
            finally:
                mkl(0)

    count = min(cores(), len(todo)) - 1
    with ThreadPoolExecutor(count, "piece") as pool:
        others = [pool.submit(serve) for _ in range(count)]
        try:
            serve()
        finally:
            for _ in left:  # after an error nobody begins another piece
                pass
    for other in others:
        other.result()
    return [found[place] for place in range(len(todo))]


@lru_cache(maxsize=1)
def _openmp() -> Any:
    """What sets how many threads of OpenMP the thread that asks may use."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="openmp")


@lru_cache(maxsize=1)
def _mkl() -> Callable[[int], object]:
    """The same for the MKL in torch, where there is one; 0 is as many as before."""
    for name in ("libtorch_cpu.so", "torch_cpu.dll"):
        file = Path(torch.__file__).parent / "lib" / name
        with suppress(OSError, AttributeError):
            found: Callable[[int], object] = ctypes.CDLL(str(file)).MKL_Set_Num_Threads_Local
            return found
    return lambda _: None
