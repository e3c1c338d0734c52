"""Running what a reproduction needs: filling and reading the store, and saying how it was run.

A part's cells are looked up first, for the kind of device asked for; only what is not there is
computed. So results that another machine has computed are used here without its device.
"""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import groupby, zip_longest
from pathlib import Path
from typing import Any

from fewview._version import __version__
from fewview.datasets._catalogue import get_spec
from fewview.engine._registry import create
from fewview.engine._trained import TrainedMethod
from fewview.evaluate._executors import kept_workers
from fewview.evaluate._grid import Grid, plan
from fewview.evaluate._options import store_path
from fewview.evaluate._progress import Progress, describe_seconds
from fewview.evaluate._runner import run
from fewview.evaluate._workbench import PRODUCTS
from fewview.ground._errors import FewviewError
from fewview.ground._rows import Row
from fewview.paper._likely_splits import following_parts
from fewview.paper._printed import METHODS
from fewview.paper._recorded import (
    FOLDER,
    IDENTITY,
    RUNS,
    command_of,
    digest,
    identity,
    not_recorded,
    read,
    read_json,
    read_rows,
    stale,
    to_compute,
    told,
    with_short_names,
    write,
)
from fewview.paper._studies import WEIGHING, Part, Wish, is_here, parts_of
from fewview.results._cells import Cell, Result
from fewview.results._store import NO_STORE, Store
from fewview.results._summaries import summarise_planned

ANY_DEVICE = "any"
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
    recorded: bool = False  # show the recorded results of a folder instead, without data or store
    records: Path = FOLDER
    expected: dict[str, float] = field(default_factory=dict)  # seconds by cell, of those to compute

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
    if options["preset"] not in (None, "fast", "paper"):
        raise FewviewError(f"--preset {options['preset']}: use fast or paper")
    wish = Wish(
        quick=options["quick"],
        device=options["device"],
        data_dir=options["data_dir"],
        features=options.get("features"),
        base_features=options.get("base_features"),
        preset=options["preset"],
        solver=options["solver"],
        only=tuple(part.strip() for part in (options["only"] or "").split(",") if part),
    )
    desk = Desk(
        store=options["store"],
        others=tuple(options["others"] or ()),
        jobs=options["jobs"],
        cluster=options["cluster"],
        progress=progress,
        compute=not options.get("stored", False),
        recorded=not options["compute"] and not options.get("stored", False),
        records=Path(options.get("records") or FOLDER),
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
            with_short_names(row) | {"label": labels.get(row["method"])}
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

    @property
    def versions(self) -> set[str]:
        """Versions stored with the results, as JSON."""
        return {result.versions for result in self.results.values()}

    @property
    def rounded(self) -> list[Any]:
        """Labels of methods whose products of float32 were less exact (see `versions`)."""
        found = {r.cell.method for r in self.results.values() if PRODUCTS in r.versions}
        return [label for label, text in self.part.methods.items() if text in found]

    @property
    def task(self) -> Row | None:
        """Data set, way, shot, queries, and whether there is one fixed class split."""
        names = ("dataset", "way", "shot", "queries", "fixed")
        return {name: getattr(self.cells[0], name) for name in names} if self.cells else None


@dataclass(frozen=True)
class Recalled(Gathered):
    """Recorded rows of a part, which need no data, no plan and no store."""

    recorded: tuple[Row, ...] = ()  # as `_recorded.read` gives them
    runs: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def rows(self) -> list[Row]:
        """One row per method and missing rate."""
        return [told(row) for row in self.recorded]

    def per_split(self, method: str, eta: float) -> dict[int, float]:
        """Mean accuracy in percent of every class split."""
        row = self.row(method, eta)
        return {} if row is None else dict(row["split_means"])

    @property
    def devices(self) -> tuple[str, ...]:
        """Kinds of device that the results come from."""
        return kinds_named(row["device"] for row in self.recorded)

    @property
    def versions(self) -> set[str]:
        """Versions recorded with the results, as JSON."""
        found = (self.runs.get(row["run"], {}).get("versions", {}) for row in self.recorded)
        return {json.dumps(versions, sort_keys=True) for versions in found}

    @property
    def rounded(self) -> list[Any]:
        """Labels of methods whose products of float32 were less exact (see `versions`)."""
        runs = {key for key, run in self.runs.items() if PRODUCTS in run.get("versions", {})}
        return list(dict.fromkeys(row["label"] for row in self.recorded if row["run"] in runs))

    @property
    def task(self) -> Row | None:
        """Data set, way, shot, queries, and whether there is one fixed class split."""
        return self.recorded[0] if self.recorded else None


def kinds_named(devices: Iterable[str]) -> tuple[str, ...]:
    """Each kind of device once, of some that are told one by one or as "cpu and cuda".

    Example:
        >>> kinds_named(["cuda", "cpu and cuda"])
        ('cpu', 'cuda')
    """
    return tuple(sorted({kind for device in devices for kind in device.split(" and ")}))


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


def _look_up_if_here(part: Part, desk: Desk) -> Gathered:
    """What the stores have of a part, no cells where its data are not here."""
    grid = part.grid
    here = all(is_here(data, grid.data_dir) for data in grid.datasets if isinstance(data, str))
    return _look_up(part, desk) if here else Gathered(part, (), {})


def gather(part: Part, desk: Desk) -> Gathered:
    """Find or compute the results of one part."""
    grid = part.grid
    cells = planned(grid)
    copied = _copy(cells, grid.device, desk)
    cells, results = stored(cells, grid.device, [desk.path, *desk.others])
    if not desk.compute:
        return Gathered(part, tuple(cells), results)
    complete = len({cell.hash for cell in cells}) == len(results)
    words = f": all {len(results)} cells are stored" if complete else ""
    left = sum(desk.expected.values())
    words += f" (about {describe_seconds(left)} left of all)" if left and not complete else ""
    desk.progress.message(f"{part.describe()}{words}{copied}")
    for cell in cells:
        desk.expected.pop(cell.hash, None)
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
    """Find or compute all that a name needs and what follows from that, or recall the record."""
    if desk.recorded:
        return list(recall(name, wish, desk.records))
    with kept_workers():
        return _found(name, wish, desk, gather)


def _found(
    name: str, wish: Wish, desk: Desk, find: Callable[[Part, Desk], Gathered]
) -> list[Gathered]:
    """The parts of a name, and those that follow from their results.

    What weighs class splits is taken from the record where `--only` asks for other methods alone.
    """
    known: dict[tuple[Any, ...], Gathered] = {}
    weighing = {METHODS[method] for method in WEIGHING}
    if name == "splits" and wish.only and not weighing & set(wish.only):
        usual = replace(wish, only=())
        rows = read(name, usual, desk.records)
        current = not stale((row for row in rows if row["role"] == "candidates"), desk.records)
        known = {
            item.part.tag: item
            for item in (recall(name, usual, desk.records) if rows and current else ())
            if item.part.role == "candidates" and set(item.part.methods) == set(WEIGHING)
        }
    first = [known.get(part.tag) or find(part, desk) for part in parts_of(name, wish)]
    return first + [find(part, desk) for part in following_parts(name, wish, first)]


class NoResultsError(FewviewError):
    """A table or figure has nothing to show."""


def shown(name: str, gathered: Sequence[Gathered], wish: Wish, desk: Desk) -> Sequence[Gathered]:
    """Return what was gathered for a name; it is an error when there is nothing to show in it."""
    if any(item.rows for item in gathered):
        return gathered
    if not gathered:
        parts = parts_of(name, replace(wish, only=()))
        raise nothing_left(name, wish, [text for part in parts for text in part.methods.values()])
    total = sum(len(item.cells) for item in gathered)
    failures = [why for item in gathered for _, why in item.failures]
    if failures:
        why = f"all of its {total} results failed; the first: {failures[0]}"
    else:
        why = f"none of its {total} results is in {desk.path}; --compute computes them"
    raise NoResultsError(f"{name}: nothing to show: {why}")


def nothing_left(name: str, wish: Wish, methods: Iterable[str]) -> NoResultsError:
    """Say that `--only` names none of the methods of a table or figure."""
    known = ", ".join(dict.fromkeys(text.partition(":")[0] for text in methods))
    return NoResultsError(
        f"{name}: nothing to show: --only {','.join(wish.only)} is none of its methods ({known})"
    )


def lacking(gathered: Sequence[Gathered], wish: Wish) -> list[str]:
    """Notes of a figure that has not all of its lines: which are missing."""
    out = [f"only {', '.join(wish.only)}: other lines are left out"] if wish.only else []
    gaps = []
    for item in gathered:
        place = " ".join(map(str, item.part.tag))
        for label, text in item.part.methods.items():
            rates = [f"{eta:g}" for eta in item.part.grid.etas if item.row(text, eta) is None]
            if rates:
                gaps.append(f"{place} {label} (eta {', '.join(rates)})".strip())
    return [*out, f"missing, no results: {'; '.join(gaps)}"] if gaps else out


# ---------------------------------------------------------------------- recorded results


def recall(name: str, wish: Wish, folder: Path = FOLDER) -> list[Recalled]:
    """The recorded parts of a name; nothing recorded is an error that says what to type."""
    every = read(name, wish, folder)
    names = {row["method"].partition(":")[0] for row in every}
    if every and wish.only and not names & set(wish.only):
        raise NoResultsError(
            f"{name}: nothing is recorded for --only {','.join(wish.only)}; recorded are "
            f"{', '.join(sorted(names))}; {to_compute(name, wish)}, if {name} has it"
        )
    rows = [
        row for row in every
        # What weighs class splits is needed whatever methods are asked for.
        if not wish.only or row["method"].partition(":")[0] in wish.only
        or row["role"] == "candidates"
    ]  # fmt: skip
    if not rows:
        raise not_recorded(name, wish, folder)
    runs = read_json(folder / RUNS)
    return [_recalled(tuple(some), runs) for _, some in groupby(rows, key=_same_part)]


def _same_part(row: Row) -> tuple[Any, ...]:
    """What rows of one part have in common."""
    own = tuple(row[name] for name in IDENTITY if name not in ("label", "eta"))
    if row["role"] == "candidates":  # weighed together, by those that all rows have
        return own
    return (*own, len(row["split_means"]), row["episodes"])


def _recalled(rows: tuple[Row, ...], runs: Mapping[str, Any]) -> Recalled:
    first, splits = rows[0], len(rows[0]["split_means"])
    methods = {row["label"]: row["method"] for row in rows}
    grid = Grid(
        datasets=(first["dataset"],), methods=tuple(methods.values()),
        etas=tuple(sorted({row["eta"] for row in rows})), way=first["way"], shot=first["shot"],
        queries=first["queries"], splits=splits, episodes=first["episodes"] // splits,
        query_counts=first["query_counts"], seed=first["seed"], scaling="paper", padding="paper",
    )  # fmt: skip
    part = Part(first["role"], grid, first["tag"], methods)
    return Recalled(part, (), {}, recorded=rows, runs=runs)


def record(name: str, wish: Wish, desk: Desk) -> str:
    """Write what the store has of a name into the folder of recorded results; say what was done.

    Rows are recorded that have at least a third of their class splits; a row tells which.
    """
    reader = replace(desk, compute=False, recorded=False)
    gathered = [item for item in gather_all(name, wish, reader) if not isinstance(item, Recalled)]
    # All that the study has, what was planned from its first results, and what is there of methods
    # that --only leaves out or of data sets that are not here.
    every = [(part, planned(part.grid)) for part in parts_of(name, replace(wish, only=()))]
    order = [key for part, cells in every for key in _identities(part, cells)]
    order += [key for item in gathered for key in _identities(item.part, item.cells)]
    here = {cell.dataset for _, cells in every for cell in cells}
    kept = read(name, wish, desk.records)
    order += [identity(row) for row in kept if wish.only or row["dataset"] not in here]
    order = list(dict.fromkeys(order))
    fresh, sources, short_of = recorded_rows(gathered, partial(command_of, wish))
    total = write(name, wish, fresh, order, sources, desk.records)
    short = f"; {short_of} not recorded: most of their cells are missing" if short_of else ""
    return f"{name}: {len(fresh)} rows recorded, {total} of {len(order)} are there now{short}"


def recorded_rows(
    gathered: Sequence[Gathered], command: Callable[[str], str]
) -> tuple[list[Row], tuple[dict[str, Any], dict[str, str]], int]:
    """Rows to record, their runs and settings by short names, and how many say too little.

    `command` is what computes them, for a kind of device.
    """
    fresh: list[Row] = []
    runs: dict[str, Any] = {}
    settings: dict[str, str] = {}
    too_few = 0
    for item in gathered:
        for row in item.rows:
            wanted = [c for c in item.cells if (c.method, c.eta) == (row["method"], row["eta"])]
            found = [item.results[c.hash] for c in wanted if c.hash in item.results]
            if 3 * len(found) < len(wanted):  # says too little; else the row tells its splits
                too_few += 1
                continue
            device = " and ".join(sorted({result.cell.device for result in found}))
            versions = _merged({result.versions for result in found})
            here = device if device in ("cpu", "cuda") else ANY_DEVICE
            run_of_it = {"versions": versions, "device": device, "command": command(here)}
            key = digest(json.dumps(run_of_it, sort_keys=True))
            runs[key] = run_of_it
            settings[digest(wanted[0].parameters)] = wanted[0].parameters
            fresh.append(
                dict(zip(IDENTITY, _identity(item.part, wanted[0]), strict=True))
                | {name: row[name] for name in ("method", "accuracy", "se", "balanced_accuracy")}
                | {"version": wanted[0].method_version, "settings": digest(wanted[0].parameters),
                   "low": row["split_low"], "high": row["split_high"],
                   "episodes": row["n_episodes"],
                   "split_means": item.per_split(row["method"], row["eta"]),
                   "seconds_per_episode": row["seconds"] / row["n_episodes"],
                   "seconds_base_per_split": row["seconds_base"] / len(found),
                   "device": device, "computed": max(result.created for result in found)[:10],
                   "data": wanted[0].data_checksum[:8], "run": key}
            )  # fmt: skip
    return fresh, (runs, settings), too_few


def _identity(part: Part, cell: Cell) -> tuple[Any, ...]:
    labels = {text: label for label, text in part.methods.items()}
    here = {"role": part.role, "tag": part.tag, "label": labels[cell.method]}
    return identity({name: here[name] if name in here else getattr(cell, name)
                     for name in IDENTITY})  # fmt: skip


def _identities(part: Part, cells: Sequence[Cell]) -> list[tuple[Any, ...]]:
    """Identities of the rows of a part, by line and then by missing rate."""
    places = {text: place for place, text in enumerate(part.methods.values())}
    ordered = sorted(cells, key=lambda cell: (cell.dataset, places[cell.method], cell.eta))
    return list(dict.fromkeys(_identity(part, cell) for cell in ordered))


def _merged(texts: Iterable[str]) -> dict[str, str]:
    """Versions of several results, those of a library one after another."""
    known: dict[str, set[str]] = {}
    for text in texts:
        for name, value in json.loads(text).items():
            known.setdefault(name, set()).update(str(value).split(" and "))
    return {name: " and ".join(sorted(known[name])) for name in sorted(known)}


def _place(cell: Cell) -> tuple[Any, ...]:
    return (cell.dataset, cell.split, cell.start, cell.method, cell.eta)


def _missing_grids(grid: Grid, cells: Sequence[Cell], results: dict[str, Result]) -> list[Grid]:
    """The grid, or with results of several kinds of device grids of what is missing alone.

    A method that lacks the same class splits at several rates has one grid for them.
    """
    if grid.device != "auto":
        return [grid]
    lacking: dict[tuple[str, float], list[int]] = {}
    for cell in cells:
        if cell.hash not in results:
            lacking.setdefault((cell.method, cell.eta), []).append(cell.split)
    alike: dict[tuple[str, tuple[int, ...]], list[float]] = {}
    for (method, eta), splits in lacking.items():
        alike.setdefault((method, tuple(dict.fromkeys(splits))), []).append(eta)
    whole = any(cell.fixed for cell in cells)  # repetitions of one class split have no numbers
    return [
        replace(grid, methods=(method,), etas=tuple(etas), splits=grid.splits if whole else splits)
        for (method, splits), etas in alike.items()
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
    """List the grids behind some names, of data that are not here too: rows of `PLAN_COLUMNS`."""
    rows: list[tuple[str, int, int, int, str]] = []
    wish = replace(wish, planning=True)
    for name in names:
        parts, why = _parts_or_why(name, wish)
        if why:
            rows.append((name, 0, 0, 0, why))
        for item in _found(name, wish, desk, _look_up_if_here) if parts else ():
            total, there = len({cell.hash for cell in item.cells}), len(item.results)
            note = ", recorded" if isinstance(item, Recalled) else ""
            if not total and not note:
                part = item.part
                total = len(part.methods) * len(part.grid.etas) * part.n_splits
                way = "fetch" if get_spec(data := str(part.grid.datasets[0])).fetchable else "info"
                note = f"; its data are not here ('fewview data {way} {data}')"
            rows.append((name, total, there, total - there, item.part.describe() + note))
    return [dict(zip(PLAN_COLUMNS, row, strict=True)) for row in rows]


# ---------------------------------------------------------------------- how long it takes

PROBE_SECONDS = 15.0  # at most so long are methods timed before a run
PROBE_EPISODES = 3
FEW_ROUNDS = 3


def announce(names: Sequence[str], wish: Wish, desk: Desk) -> None:
    """Say how long computing what is not stored will take here, before it starts.

    Some methods are timed on a few tasks. What was recorded of the others is scaled by how much
    slower or faster than recorded those were.
    """
    lacking: dict[str, tuple[Cell, Grid]] = {}
    there = 0
    for name in names:
        parts, _ = _parts_or_why(name, wish)
        for item in _found(name, wish, desk, _look_up) if parts else ():
            grid = item.part.grid
            lacking |= {c.hash: (c, grid) for c in item.cells if c.hash not in item.results}
            there += len(item.results)
    if not lacking:
        if there:
            desk.progress.message("all cells are stored, nothing is computed")
        return
    groups: dict[tuple[str, str], list[str]] = {}
    for key, (cell, _) in lacking.items():
        groups.setdefault((cell.dataset, cell.method), []).append(key)
    desk.progress.message(
        f"{len(lacking)} cells to compute; timing methods for at most {PROBE_SECONDS:.0f} s to see "
        "how long that takes"
    )
    known = _recorded_seconds(desk.records)
    here = {} if desk.cluster else _probe(groups, lacking, known)
    factors = [
        sum(here[group]) / sum(known[group]) for group in here if sum(known.get(group, ())) > 0
    ]
    factor = sorted(factors)[len(factors) // 2] if factors else 1.0
    unknown: set[str] = set()
    for group, keys in groups.items():
        method = _family(group[1])
        same = [other for other in here if _family(other[1]) == method]
        if group in here:
            per_episode, base = here[group]
        elif group in known:
            paired = [sum(here[one]) / sum(known[one]) for one in same if sum(known.get(one, ()))]
            scale = paired[0] if paired else factor
            per_episode, base = (scale * seconds for seconds in known[group])
        elif same:  # the same on another data set
            per_episode, base = here[next((o for o in same if o[0] == group[0]), same[0])]
        elif alike := [times for other, times in known.items() if _family(other[1]) == method]:
            per_episode, base = (
                factor * sum(some) / len(alike) for some in zip(*alike, strict=True)
            )
        else:
            unknown.add(method)
            continue
        bases = len({(lacking[key][0].split, lacking[key][0].seed) for key in keys})
        for key in keys:
            episodes = lacking[key][0].n_episodes
            desk.expected[key] = per_episode * episodes + base * bases / len(keys)
    slots = max(1, min(desk.jobs, os.cpu_count() or 1))
    for key in desk.expected:
        desk.expected[key] /= slots
    text = f"estimate: about {describe_seconds(sum(desk.expected.values()))} here"
    text += f" ({len(here)} methods timed{', others as recorded' if known else ''})"
    if desk.cluster:
        text = "estimate: as recorded, " + text.partition(": ")[2] + "; a cluster shares that"
    if unknown:
        text += f"; not counting {', '.join(sorted(unknown))}, of which no time is known"
    desk.progress.message(text)


def _family(method: str) -> str:
    """Methods that take about the same time: the name and the settings that make it slow."""
    slow = ("solver=", "latent_dim=", "preset=", "rectifier=")
    name, *settings = method.split(":")
    return ":".join([name, *(text for text in settings if text.startswith(slow))])


def _recorded_seconds(folder: Path) -> dict[tuple[str, str], tuple[float, float]]:
    """Seconds per episode and per preparation, by data set and method, of all recorded rows."""
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for path in sorted(folder.glob("*.csv")):
        for row in read_rows(path):
            times = (row["seconds_per_episode"], row["seconds_base_per_split"])
            found.setdefault((row["dataset"], row["method"]), []).append(times)
    return {
        group: (sum(a for a, _ in times) / len(times), sum(b for _, b in times) / len(times))
        for group, times in found.items()
    }


def _probe(
    groups: Mapping[tuple[str, str], Sequence[str]],
    lacking: Mapping[str, tuple[Cell, Grid]],
    known: Mapping[tuple[str, str], tuple[float, float]],
) -> dict[tuple[str, str], tuple[float, float]]:
    """Time one small cell per kind of method while there is time, the cheapest first."""
    out: dict[tuple[str, str], tuple[float, float]] = {}
    end = time.monotonic() + PROBE_SECONDS
    cheap = sorted(groups, key=lambda group: sum(known.get(group, (0.0,))))
    # In turns, for what trains or iterates would come too late after all others.
    slow = [group for group in cheap if _rounds(group[1])]
    turns = zip_longest((group for group in cheap if group not in slow), slow)
    order = [group for turn in turns for group in turn if group]
    # First every kind of method once, then on the other data sets.
    kinds = {_family(group[1]): group for group in reversed(order)}
    places = {(_family(group[1]), group[0]): group for group in reversed(order)}
    chosen = list(dict.fromkeys([*reversed(kinds.values()), *reversed(places.values())]))
    # The first one twice: once it loads what all need.
    for group in chosen[:1] + chosen:
        if time.monotonic() > end:
            break
        cell, grid = lacking[groups[group][0]]
        episodes = 1 if "solver=" in group[1] else min(PROBE_EPISODES, grid.episodes)
        few = replace(
            grid, etas=(cell.eta,), splits=1, episodes=episodes,
            device="auto" if grid.device == ANY_DEVICE else grid.device,
        )  # fmt: skip
        times = _timed(group[1], few)
        if times is not None:
            out[group] = times
    return out


def _rounds(text: str) -> dict[str, tuple[int, ...]]:
    """What a method repeats, by parameter: iterations of Algorithm 1, or epochs of networks."""
    method = create(text)
    if "solver=adam" in text or "solver=reference" in text:
        ugda: Any = getattr(method, "source", method)
        return {"n_iter" if ugda is method else "ugda__n_iter": (ugda.n_iter,)}
    settings = method.settings() if isinstance(method, TrainedMethod) else {}
    counts = {name: n for name, n in settings.items() if name in ("epochs", "query_epochs")}
    return {name: n if isinstance(n, tuple) else (n,) for name, n in counts.items()}


def _timed(method: str, grid: Grid) -> tuple[float, float] | None:
    """Seconds per episode and per preparation; None where the method fails.

    Of methods that repeat something many times few of these rounds are timed, after some that load
    what they need.
    """
    rounds = _rounds(method)
    total = min((count for counts in rounds.values() for count in counts), default=0)
    if total <= 1 + FEW_ROUNDS:
        return _timed_once(method, grid)
    settings = [text for text in method.split(":") if text.partition("=")[0] not in rounds]
    times = []
    for few in (2, 1, 1 + FEW_ROUNDS):  # never the same twice, for what was prepared is remembered
        shares = {name: [max(1, n * few // total) for n in ns] for name, ns in rounds.items()}
        typed = [f"{name}={'+'.join(map(str, counts))}" for name, counts in shares.items()]
        # Epochs before prediction counts are cheaper, and most come after them.
        typed += ["warm_up=0"] if method.startswith("completer") else []
        times.append(_timed_once(":".join([*settings, *typed]), grid))
    if times[1] is None or times[2] is None:
        return None
    per_episode, base = (
        one + (total - 1) * max(more - one, 0.0) / FEW_ROUNDS
        for one, more in zip(times[1], times[2], strict=True)
    )
    return per_episode, base


def _timed_once(method: str, grid: Grid) -> tuple[float, float] | None:
    found = run(replace(grid, methods=(method,))).results.values()
    times = [(result.seconds / result.cell.n_episodes, result.seconds_base) for result in found]
    return times[0] if times else None


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
    sets = {item.task["dataset"] for item in gathered if item.task}
    for item in gathered:
        if item.task:
            grid, task = item.part.grid, item.task
            kind = "repetitions of the one class split" if task["fixed"] else "class splits"
            text = f"{item.part.n_splits} {kind} x {grid.episodes} episodes"
            # Several sets are told apart by their names, one set by the methods run on it.
            names = [task["dataset"]] if len(sets) > 1 else grid.methods
            counts.setdefault(text, []).extend(name.partition(":")[0] for name in names)
            words = f"{task['way']}-way {task['shot']}-shot, {task['queries']} queries per class"
            tasks.setdefault(words, []).append(task["dataset"])
    return "; ".join(
        text if len(found) == 1 else f"{text} for {', '.join(dict.fromkeys(names))}"
        for found in (counts, tasks)
        for text, names in found.items()
    )


def versions_line(gathered: Sequence[Gathered] = (), *more: str) -> str:
    """Versions as stored with results and as `more` has them (JSON), or of this process."""
    known = _merged({text for item in gathered for text in item.versions}.union(more))
    if not known:
        return f"fewview {__version__}, python {platform.python_version()}"
    order = ("fewview", "python", "numpy", "scipy", "sklearn", "torch")
    return ", ".join(f"{name} {known[name]}" for name in order if name in known)
