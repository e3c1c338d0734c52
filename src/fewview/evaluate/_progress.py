"""Telling people how far a grid is: the interface, and plain lines for logs.

The command line has a livelier one; this one needs nothing but a stream.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TextIO, TypeVar

from fewview.results._cells import Cell, Result

Item = TypeVar("Item")
# Share of trials after which the time left is told.
TELLING = 0.1


@contextmanager
def training_lines(show: Callable[[str], None]) -> Iterator[None]:
    """Inside, `show` gets what trainings of networks log: one line an epoch."""
    handler, logger = logging.Handler(logging.INFO), logging.getLogger("fewview")
    handler.emit = lambda record: show(record.getMessage())  # type: ignore[method-assign]
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)


@dataclass
class Rows:
    """How many rows of a table are done; whoever does them counts."""

    total: int
    done: int = 0

    def rate(self, seconds: float) -> str:
        """How many a second."""
        return f"{self.done / max(seconds, 1e-9):.0f} rows/s"


@dataclass
class Pace:
    """How long the rest takes, by what came after the first answer: that waited for a start."""

    total: int
    first: tuple[float, int] | None = None  # when it came, and how much was done then

    def left(self, now: float, done: int) -> str:
        """Words for it, when so much is done; none where nothing tells yet."""
        if self.first is None:
            self.first = now, done
        seconds, more = now - self.first[0], done - self.first[1]
        if not more:
            return ""
        return f"{describe_seconds(seconds / more * (self.total - done))} left"


class Progress:
    """What the runner tells; this one keeps quiet."""

    def message(self, text: str) -> None:
        """Something that people should know."""

    def planned(self, total: int, reused: int, stale: int) -> None:
        """The grid has `total` cells, `reused` of them are stored, `stale` are out of date."""

    def started(self, cell: Cell) -> None:
        """A cell is being worked on."""

    def training(self, text: str) -> None:
        """Networks are being trained in this process, and are so far."""

    def finished(self, result: Result) -> None:
        """A cell is done and stored."""

    def failed(self, cell: Cell, reason: str) -> None:
        """A cell could not be computed."""

    def track(self, items: Sequence[Item], text: str, rows: Rows | None = None) -> Iterator[Item]:
        """Give items one after another and tell how many are done; for work that is no cells.

        `rows` is told too where items are of many rows.
        """
        yield from items

    def close(self) -> None:
        """Nothing more will come."""


class PlainProgress(Progress):
    """One line now and then, on standard error if nowhere else: trials done, time left."""

    def __init__(self, stream: TextIO | None = None, interval: float = 2.0) -> None:
        self._stream = stream
        self._interval = interval
        self._last = float("-inf")
        self._total = self._done = self._new = 0
        self._start = time.monotonic()

    def message(self, text: str) -> None:
        """Write a line."""
        print(text, file=self._stream or sys.stderr, flush=True)

    def planned(self, total: int, reused: int, stale: int) -> None:
        """Say how much there is to do."""
        self._total, self._done, self._new = total, reused, 0
        self._start = time.monotonic()
        self.message(describe_plan(total, reused, stale))

    def training(self, text: str) -> None:
        """Write a line if the last one is old."""
        now = time.monotonic()
        if now - self._last >= 5 * self._interval:
            self._last = now
            self.message(text)

    def finished(self, result: Result) -> None:
        """Write a line if the last one is old enough, and for the last cell."""
        self._done += 1
        self._new += 1
        now = time.monotonic()
        if now - self._last < self._interval and self._done < self._total:
            return
        self._last = now
        left = ""
        # The first trials load and prepare everything: they tell nothing of the rest.
        if self._new >= TELLING * (self._new + self._total - self._done):
            seconds = (now - self._start) / self._new * (self._total - self._done)
            left = f"  ({describe_seconds(seconds)} left)"
        self.message(
            f"[{self._done}/{self._total}] {result.cell.describe()}: "
            f"{100 * result.metrics.accuracy.mean():.1f} %{left}"
        )

    def failed(self, cell: Cell, reason: str) -> None:
        """Write a line."""
        self._done += 1
        self.message(f"failed: {cell.describe()}: {reason}")

    def track(self, items: Sequence[Item], text: str, rows: Rows | None = None) -> Iterator[Item]:
        """Write a line before the first item, and then if the last line is old enough."""
        start = self._last = time.monotonic()
        self.message(f"{text}: {len(items)}" + (f", {rows.total} rows" if rows else ""))
        pace = Pace(rows.total if rows else len(items))
        for done, item in enumerate(items):
            now = time.monotonic()
            left = pace.left(now, rows.done if rows else done) if done else ""
            if done and now - self._last >= self._interval:
                self._last = now
                far = [f"{rows.done} of {rows.total} rows", rows.rate(now - start)] if rows else []
                told = ", ".join([*far, *([left] if left else [])])
                self.message(f"{text} [{done}/{len(items)}]" + (f" ({told})" if told else ""))
            yield item


def describe_plan(total: int, reused: int, stale: int) -> str:
    """Write what a run has before it."""
    text = f"{total} trials: {reused} already stored, {total - reused} to compute"
    return text + (f" ({stale} of them stale: stored by an older version)" if stale else "")


def describe_seconds(seconds: float) -> str:
    """Write a time in the unit that suits it."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
