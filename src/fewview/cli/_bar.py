"""A progress bar on the terminal: cells done, the present cell, rate, time left."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from fewview.evaluate._progress import (
    Item,
    PlainProgress,
    Progress,
    Rows,
    describe_plan,
    training_lines,
)
from fewview.results._cells import Cell, Result


def make_progress() -> Progress:
    """Choose a bar on a terminal and plain lines elsewhere."""
    return BarProgress() if sys.stderr.isatty() else PlainProgress()


@contextmanager
def working(text: str) -> Iterator[None]:
    """Show on a terminal that something goes on and for how long, and what trainings log.

    In a pipe nothing is written, but a line now and then while networks are trained.
    """
    if not sys.stderr.isatty():
        plain = PlainProgress()
        with training_lines(plain.training):
            yield
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        SpinnerColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.progress import Progress as Bar

    bar = Bar(
        SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(bar_width=20),
        TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(),
        console=Console(stderr=True, highlight=False), transient=True,
    )  # fmt: skip
    task = bar.add_task(text, total=None)
    with bar, training_lines(lambda line: bar.update(task, description=line)):
        yield


class BarProgress(Progress):
    """A bar drawn by rich on standard error."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            SpinnerColumn,
            TextColumn,
            TimeRemainingColumn,
        )
        from rich.progress import Progress as Bar

        self._console = Console(stderr=True, highlight=False)
        self._bar = Bar(
            SpinnerColumn(),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(),
            TextColumn("{task.description}", markup=False),
            console=self._console,
            transient=True,
        )
        self._task: Any = None
        self._cell = ""
        self._total = 0

    def message(self, text: str) -> None:
        """Write a line above the bar."""
        self._console.print(text, markup=False)

    def planned(self, total: int, reused: int, stale: int) -> None:
        """Start the bar."""
        self.message(describe_plan(total, reused, stale))
        self._total = total - reused
        if self._total:
            # Only new cells count, so that rate and time left are right after a restart.
            self._task = self._bar.add_task("starting", total=self._total, rate="")
            self._bar.start()

    def started(self, cell: Cell) -> None:
        """Show the present cell."""
        self._cell = cell.describe()
        self._bar.update(self._task, description=self._cell)

    def training(self, text: str) -> None:
        """Show how far the training of the present cell is."""
        self._bar.update(self._task, description=f"{self._cell}  {text}")

    def finished(self, result: Result) -> None:
        """Move the bar."""
        self._advance()

    def failed(self, cell: Cell, reason: str) -> None:
        """Move the bar and say what went wrong."""
        self.message(f"failed: {cell.describe()}: {reason}")
        self._advance()

    def _advance(self) -> None:
        task = self._bar.tasks[0]
        rate = (task.completed + 1) / max(task.elapsed or 0.0, 1e-9)
        self._bar.update(self._task, advance=1, rate=f"{rate:.3g} trials/s")

    def track(self, items: Sequence[Item], text: str, rows: Rows | None = None) -> Iterator[Item]:
        """A bar of its own, with the time left."""
        task = self._bar.add_task(text, total=rows.total if rows else len(items), rate="")
        self._bar.start()
        start = time.monotonic()
        try:
            for done, item in enumerate(items, 1):
                yield item
                rate = rows.rate(time.monotonic() - start) if rows else ""
                self._bar.update(task, completed=rows.done if rows else done, rate=rate)
        finally:
            self._bar.stop()
            self._bar.remove_task(task)

    def close(self) -> None:
        """Remove the bar."""
        self._bar.stop()
        if self._task is not None:  # the next grid has a bar of its own
            self._bar.remove_task(self._task)
            self._task = None
