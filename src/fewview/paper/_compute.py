"""Filling and reading the store for a reproduction.

A part's cells are looked up first, for the kind of device asked for; only what is not there is
computed. So results that another machine has computed are used here without its device.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from fewview.evaluate._grid import Grid, plan
from fewview.evaluate._options import store_path
from fewview.evaluate._progress import Progress
from fewview.evaluate._runner import run
from fewview.ground._errors import FewviewError
from fewview.ground._rows import Row
from fewview.paper._studies import Part, Wish
from fewview.results._cells import Cell, Result
from fewview.results._store import NO_STORE, Store
from fewview.results._summaries import summarise_planned

ANY_DEVICE = "any"


@dataclass(frozen=True, kw_only=True)
class Desk:
    """Where results come from and who computes them.

    Attributes:
        store: file of results, `"none"`, or None for the default place.
        others: further stores; what they have is copied into `store`.
        jobs: number of processes.
        cluster: address of a Dask scheduler that computes instead.
        progress: is told how far each grid is.
        compute: False only reads what is stored.
    """

    store: str | None = None
    others: tuple[str, ...] = ()
    jobs: int = 1
    cluster: str | None = None
    progress: Progress | None = None
    compute: bool = True

    def __post_init__(self) -> None:
        for other in self.others:
            if not os.path.exists(other):
                raise FewviewError(f"--from {other}: there is no such file")

    @property
    def path(self) -> str:
        """The store as a path, or `none`."""
        return store_path(self.store)


@dataclass(frozen=True)
class Gathered:
    """What is known about a part: its planned cells and their results."""

    part: Part
    cells: tuple[Cell, ...]
    results: dict[str, Result]
    failures: tuple[tuple[Cell, str], ...] = ()

    @cached_property
    def rows(self) -> list[Row]:
        """One row per data set, method and missing rate, as `fewview bench` has them."""
        return summarise_planned(self.cells, self.results)

    def row(self, method: str, eta: float) -> Row | None:
        """The row of one method, as typed, and missing rate."""
        for row in self.rows:
            if row["method"] == method and abs(row["eta"] - eta) < 1e-9:
                return row
        return None

    def per_split(self, method: str, eta: float) -> dict[int, float]:
        """Mean accuracy in percent of every class split."""
        return {
            cell.split: 100 * float(self.results[cell.hash].metrics.accuracy.mean())
            for cell in self.cells
            if cell.method == method and abs(cell.eta - eta) < 1e-9 and cell.hash in self.results
        }

    @property
    def devices(self) -> tuple[str, ...]:
        """Kinds of device that the results come from."""
        return tuple(sorted({result.cell.device for result in self.results.values()}))


def kinds_of(device: str) -> tuple[str, ...]:
    """Kinds of device whose stored results count, the preferred one first.

    Example:
        >>> kinds_of("cuda:0"), kinds_of("any")
        (('cuda',), ('cuda', 'cpu'))
    """
    if device == ANY_DEVICE:
        return ("cuda", "cpu")
    if device == "auto":
        import torch

        return ("cuda",) if torch.cuda.is_available() else ("cpu",)
    return (device.partition(":")[0],)


def planned(grid: Grid) -> list[Cell]:
    """The cells of a grid as this machine would plan them, whatever device they are meant for.

    Example:
        >>> grid = Grid(datasets=("digits",), methods=("proto",), splits=1, device="cuda")
        >>> [cell.device for cell in planned(grid)]
        ['cuda']
    """
    (kind, *_) = kinds_of(grid.device)
    return [replace(cell, device=kind) for cell in plan(replace(grid, device="cpu"))]


def stored(
    cells: Sequence[Cell], device: str, paths: Sequence[str]
) -> tuple[list[Cell], dict[str, Result]]:
    """Look cells up in some stores.

    Returns:
        The cells, each with the kind of device of its result where there is one, and the results
        by content hash.
    """
    results: dict[str, Result] = {}
    out = list(cells)
    open_places = dict(enumerate(cells))
    for path in paths:
        if path == NO_STORE or not os.path.exists(path):
            continue
        with Store(path, write=False) as reader:
            for kind in kinds_of(device):
                wanted = {k: replace(cell, device=kind) for k, cell in open_places.items()}
                found = reader.get(list({cell.hash for cell in wanted.values()}))
                for place, cell in wanted.items():
                    if cell.hash in found:
                        out[place] = cell
                        results[cell.hash] = found[cell.hash]
                        del open_places[place]
    return out, results


def gather(part: Part, desk: Desk) -> Gathered:
    """Find or compute the results of one part.

    Args:
        part: what is wanted.
        desk: where to look and who computes.

    Example:
        >>> part = Part("x", Grid(datasets=("digits",), methods=("proto",), splits=1, episodes=3))
        >>> gather(part, Desk(store="none")).row("proto", 0.0)["n_episodes"]
        3
    """
    device = part.grid.device
    cells = planned(part.grid)
    copied = _copy(cells, device, desk)
    cells, results = stored(cells, device, [desk.path, *desk.others])
    told = desk.progress or Progress()
    if len({cell.hash for cell in cells}) == len(results) or not desk.compute:
        if desk.compute:
            told.message(f"{part.describe()}: all {len(results)} cells are stored{copied}")
        return Gathered(part, tuple(cells), results)
    told.message(f"{part.describe()}{copied}")
    grid = part.grid
    if device == ANY_DEVICE:
        grid = replace(grid, device="auto")
    # With results from several kinds of device only what is missing may be computed.
    failures: list[tuple[Cell, str]] = []
    for piece in _missing_grids(grid, cells, results):
        outcome = run(
            piece, desk.path, jobs=desk.jobs, cluster=desk.cluster, progress=desk.progress
        )
        results |= outcome.results
        failures += outcome.failures
        by_place = {_place(cell): cell for cell in outcome.cells if cell.hash in outcome.results}
        cells = [by_place.get(_place(cell), cell) for cell in cells]
    return Gathered(part, tuple(cells), results, tuple(failures))


def _place(cell: Cell) -> tuple[Any, ...]:
    return (cell.dataset, cell.split, cell.start, cell.method, cell.eta)


def _missing_grids(grid: Grid, cells: Sequence[Cell], results: dict[str, Result]) -> list[Grid]:
    """The grid, or with stored results of several devices one grid per method that lacks cells."""
    if grid.device != "auto":
        return [grid]
    lacking: dict[str, set[float]] = {}
    for cell in cells:
        if cell.hash not in results:
            lacking.setdefault(cell.method, set()).add(cell.eta)
    return [
        replace(grid, methods=(method,), etas=tuple(eta for eta in grid.etas if eta in etas))
        for method, etas in lacking.items()
    ]


def _copy(cells: Sequence[Cell], device: str, desk: Desk) -> str:
    """Copy what other stores have into the store, so that it is all in one place."""
    if not desk.others or desk.path == NO_STORE:
        return ""
    _, here = stored(cells, device, [desk.path])
    _, there = stored(cells, device, desk.others)
    new = [result for key, result in there.items() if key not in here]
    if not new:
        return ""
    with Store(desk.path) as writer:
        for result in new:
            writer.add(result)
    return f" ({len(new)} copied from {', '.join(desk.others)})"


def compute_all(names: Sequence[str], wish: Wish, desk: Desk) -> list[tuple[Cell, str]]:
    """Compute everything that some names need, and nothing else.

    Args:
        names: of `studies.NAMES`.
        wish: how to run them.
        desk: where results go.

    Returns:
        Cells that failed, and why.
    """
    from fewview.paper._studies import parts_of

    told = desk.progress or Progress()
    failures: list[tuple[Cell, str]] = []
    for name in names:
        try:
            parts = parts_of(name, wish)
        except FewviewError as error:
            told.message(f"{name}: {error}")
            continue
        for part in parts:
            failures += gather(part, desk).failures
    return failures


def describe_plan(names: Sequence[str], wish: Wish, desk: Desk) -> list[Row]:
    """List the grids behind some names: cells, how many are stored, what is left.

    Returns:
        Rows with `name`, `cells`, `stored`, `left` and `what`.
    """
    from fewview.paper._studies import parts_of

    rows: list[Row] = []
    for name in names:
        try:
            parts = parts_of(name, wish)
        except FewviewError as error:
            rows.append({"name": name, "cells": 0, "stored": 0, "left": 0, "what": str(error)})
            continue
        for part in parts:
            cells = planned(part.grid)
            _, results = stored(cells, part.grid.device, [desk.path, *desk.others])
            total = len({cell.hash for cell in cells})
            rows.append(
                {"name": name, "cells": total, "stored": len(results),
                 "left": total - len(results), "what": part.describe()}
            )  # fmt: skip
    return rows
