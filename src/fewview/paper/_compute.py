"""Running what a reproduction needs: filling and reading the store, and saying how it was run.

A part's cells are looked up first, for the kind of device asked for; only what is not there is
computed. So results that another machine has computed are used here without its device.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from fewview._version import __version__
from fewview.evaluate._grid import Grid, plan
from fewview.evaluate._options import store_path
from fewview.evaluate._progress import Progress
from fewview.evaluate._runner import run
from fewview.ground._errors import FewviewError
from fewview.ground._rows import Row
from fewview.paper._likely_splits import following_parts
from fewview.paper._studies import Part, Wish, parts_of
from fewview.results._cells import Cell, Result
from fewview.results._store import NO_STORE, Store
from fewview.results._summaries import summarise_planned

ANY_DEVICE = "any"
# Columns of sheets -> of `fewview bench`.
SHORT_COLUMNS = {
    "se": "standard_error", "range_low": "split_low", "range_high": "split_high",
    "splits": "n_splits", "episodes": "n_episodes",
}  # fmt: skip
PLAN_COLUMNS = ("name", "cells", "stored", "left", "what")


@dataclass(frozen=True, kw_only=True)
class Desk:
    """Where results come from and who computes them."""

    store: str | None = None  # a file, "none", or None for the default place
    others: tuple[str, ...] = ()  # further stores; what they have is copied into `store`
    jobs: int = 1
    cluster: str | None = None  # address of a Dask scheduler that computes instead
    progress: Progress = field(default_factory=Progress)
    compute: bool = True  # False only reads what is stored

    def __post_init__(self) -> None:
        for other in self.others:
            if not os.path.exists(other):
                raise FewviewError(f"--from {other}: there is no such file")

    @property
    def path(self) -> str:
        """The store as a path, or `none`."""
        return store_path(self.store)


def as_typed(options: Mapping[str, Any], progress: Progress) -> tuple[Wish, Desk]:
    """What is wanted and who computes it, from the options of a command line."""
    if options["preset"] not in ("fast", "paper"):
        raise FewviewError(f"--preset {options['preset']}: use fast or paper")
    wish = Wish(
        quick=options["quick"],
        device=options["device"],
        data_dir=options["data_dir"],
        features=options.get("features"),
        base_features=options.get("base_features"),
        preset=options["preset"],
        only=tuple(part.strip() for part in (options["only"] or "").split(",") if part),
    )
    desk = Desk(
        store=options["store"],
        others=tuple(options["others"] or ()),
        jobs=options["jobs"],
        cluster=options["cluster"],
        progress=progress,
        compute=not options.get("stored", False),
    )
    return wish, desk


@dataclass(frozen=True)
class Gathered:
    """What is known about a part: its planned cells, their results, and why cells failed."""

    part: Part
    cells: tuple[Cell, ...]
    results: dict[str, Result]
    failures: tuple[tuple[Cell, str], ...] = ()

    @cached_property
    def rows(self) -> list[Row]:
        """One row per data set, method and missing rate, as `fewview bench` has them and more."""
        labels = {text: label for label, text in self.part.methods.items()}
        return [
            row
            | {short: row[name] for short, name in SHORT_COLUMNS.items()}
            | {"label": labels.get(row["method"])}
            for row in summarise_planned(self.cells, self.results)
        ]

    def row(self, method: str, eta: float) -> Row | None:
        """The row of one method, as typed, and missing rate."""
        found = (r for r in self.rows if r["method"] == method and abs(r["eta"] - eta) < 1e-9)
        return next(found, None)

    def labelled(self) -> list[Row]:
        """The rows in the order of the part's lines, each of them by missing rate."""
        order = list(self.part.methods)
        return sorted(self.rows, key=lambda row: (order.index(row["label"]), row["eta"]))

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
    """Kinds of device whose stored results count, the preferred one first."""
    if device == ANY_DEVICE:
        return ("cuda", "cpu")
    if device == "auto":
        import torch

        return ("cuda",) if torch.cuda.is_available() else ("cpu",)
    return (device.partition(":")[0],)


def planned(grid: Grid) -> list[Cell]:
    """The cells of a grid as this machine would plan them, whatever device they are meant for."""
    (kind, *_) = kinds_of(grid.device)
    return [replace(cell, device=kind) for cell in plan(replace(grid, device="cpu"))]


def stored(
    cells: Sequence[Cell], device: str, paths: Sequence[str]
) -> tuple[list[Cell], dict[str, Result]]:
    """Look cells up in some stores: the cells, as found where they were, and results by hash."""
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


def _look_up(part: Part, desk: Desk) -> Gathered:
    """What the stores have of a part."""
    cells = planned(part.grid)
    found, results = stored(cells, part.grid.device, [desk.path, *desk.others])
    return Gathered(part, tuple(found), results)


def gather(part: Part, desk: Desk) -> Gathered:
    """Find or compute the results of one part."""
    grid = part.grid
    cells = planned(grid)
    copied = _copy(cells, grid.device, desk)
    cells, results = stored(cells, grid.device, [desk.path, *desk.others])
    if not desk.compute:
        return Gathered(part, tuple(cells), results)
    complete = len({cell.hash for cell in cells}) == len(results)
    told = f": all {len(results)} cells are stored" if complete else ""
    desk.progress.message(f"{part.describe()}{told}{copied}")
    if complete:
        return Gathered(part, tuple(cells), results)
    if grid.device == ANY_DEVICE:
        grid = replace(grid, device="auto")
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


def gather_all(name: str, wish: Wish, desk: Desk) -> list[Gathered]:
    """Find or compute all that a name needs, and then what follows from that."""
    first = [gather(part, desk) for part in parts_of(name, wish)]
    return first + [gather(part, desk) for part in following_parts(name, wish, first)]


def _place(cell: Cell) -> tuple[Any, ...]:
    return (cell.dataset, cell.split, cell.start, cell.method, cell.eta)


def _missing_grids(grid: Grid, cells: Sequence[Cell], results: dict[str, Result]) -> list[Grid]:
    """The grid, or with results of several kinds of device one grid per method that lacks cells.

    Only what is missing may be computed then.
    """
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


def _parts_or_why(name: str, wish: Wish) -> tuple[list[Part], str]:
    """The grids behind a name, or none and what is wrong with it."""
    try:
        return parts_of(name, wish), ""
    except FewviewError as error:
        return [], str(error)


def compute_all(names: Sequence[str], wish: Wish, desk: Desk) -> list[tuple[Cell, str]]:
    """Compute everything that some names need, and nothing else; return what failed, and why."""
    failures: list[tuple[Cell, str]] = []
    for name in names:
        _, why = _parts_or_why(name, wish)
        if why:
            desk.progress.message(f"{name}: {why}")
        for item in () if why else gather_all(name, wish, desk):
            failures += item.failures
    return failures


def describe_plan(names: Sequence[str], wish: Wish, desk: Desk) -> list[Row]:
    """List the grids behind some names: rows of `PLAN_COLUMNS`."""
    rows: list[tuple[str, int, int, int, str]] = []
    for name in names:
        parts, why = _parts_or_why(name, wish)
        if why:
            rows.append((name, 0, 0, 0, why))
        found = [_look_up(part, desk) for part in parts]
        found += [_look_up(part, desk) for part in following_parts(name, wish, found)]
        for item in found:
            total, there = len({cell.hash for cell in item.cells}), len(item.results)
            rows.append((name, total, there, total - there, item.part.describe()))
    return [dict(zip(PLAN_COLUMNS, row, strict=True)) for row in rows]


# ---------------------------------------------------------------------- how it was run


def protocol_line(gathered: Sequence[Gathered], wish: Wish, shapes: str | None = None) -> str:
    """Describe how results were computed: `shapes`, or what the cells themselves say."""
    if shapes is None:
        if not gathered:
            return "nothing was run"
        shapes = f"{_shapes(gathered)}; scaling and padding per method as in the paper"
    devices = sorted({device for item in gathered for device in item.devices}) or ["none"]
    return f"{'quick: ' if wish.quick else ''}{shapes}; device {' and '.join(devices)}"


def _shapes(gathered: Sequence[Gathered]) -> str:
    """Class splits, episodes and tasks, each with the methods or data sets that have them."""
    counts: dict[str, list[str]] = {}
    tasks: dict[str, list[str]] = {}
    sets = {item.cells[0].dataset for item in gathered if item.cells}
    for item in gathered:
        for cell in item.cells[:1]:
            grid = item.part.grid
            kind = "repetitions of the one class split" if cell.fixed else "class splits"
            text = f"{item.part.n_splits} {kind} x {grid.episodes} episodes"
            # Several sets are told apart by their names, one set by the methods run on it.
            names = [cell.dataset] if len(sets) > 1 else grid.methods
            counts.setdefault(text, []).extend(name.partition(":")[0] for name in names)
            task = f"{cell.way}-way {cell.shot}-shot, {cell.queries} queries per class"
            tasks.setdefault(task, []).append(cell.dataset)
    return "; ".join(
        text if len(found) == 1 else f"{text} for {', '.join(dict.fromkeys(names))}"
        for found in (counts, tasks)
        for text, names in found.items()
    )


def versions_line(gathered: Sequence[Gathered] = (), *more: str) -> str:
    """Versions as stored with results and as `more` has them (JSON), or of this process."""
    texts = [result.versions for item in gathered for result in item.results.values()]
    known: dict[str, set[str]] = {}
    for text in {*texts, *more}:
        for name, value in json.loads(text).items():
            known.setdefault(name, set()).add(str(value))
    if not known:
        return f"fewview {__version__}, python {platform.python_version()}"
    order = ("fewview", "python", "numpy", "scipy", "sklearn", "torch")
    return ", ".join(
        f"{name} {' and '.join(sorted(known[name]))}" for name in order if name in known
    )
