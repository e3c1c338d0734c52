"""Where numbers come from: commands that compute exactly the stored cells, versions, machines.

A store keeps cells, not what was typed; the commands are worked out from the cells and plan the
same cells again, whatever mixture of runs wrote them.
"""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from math import comb

import numpy as np

from fewview._version import __version__
from fewview.datasets._catalogue import get_spec, names
from fewview.errors import FewviewError
from fewview.report._contents import Contents
from fewview.report._elements import Section, Table, listed, plural
from fewview.results._cells import Cell, Result
from fewview.results._store import NO_STORE

Options = tuple[tuple[str, str], ...]
_FIRST = ("fewview", "python", "torch", "numpy", "scipy", "sklearn", "threads", "device")


def commands(results: Iterable[Result], store: str = NO_STORE) -> list[str]:
    """Write the `fewview bench` commands whose plan is made of these results.

    Where a store lacks some class splits or missing rates of a run that was stopped, the command
    is the one that completes it.

    Example:
        >>> from fewview.evaluate._grid import Grid, plan
        >>> grid = Grid(datasets=("digits",), methods=("proto",), etas=(0.0, 0.5), splits=2)
        >>> cells = [Result(cell=cell, metrics=None, seconds=0, seconds_base=0)
        ...          for cell in plan(grid)]
        >>> print(*commands(cells), sep="\\n")
        fewview bench digits --methods proto --eta 0,0.5 --splits 2 --episodes 40 --store none
    """
    found: dict[tuple[Options, str], dict[str, list[Cell]]] = {}
    for result in results:
        cell = result.cell
        by_method = found.setdefault((_options(cell), cell.dataset), {})
        by_method.setdefault(cell.method, []).append(cell)
    # Data sets that were run alike share a command, and so do methods.
    merged: dict[tuple[Options, tuple[str, ...], str, str], list[str]] = {}
    for (options, dataset), by_method in found.items():
        alike: dict[tuple[str, str], list[str]] = {}
        for method, cells in by_method.items():
            rates = sorted({cell.eta for cell in cells})
            etas = ",".join(np.format_float_positional(eta, trim="-") for eta in rates)
            splits = _splits(dataset, max(cell.split for cell in cells) + 1)
            alike.setdefault((etas, splits), []).append(method)
        for (etas, splits), methods in alike.items():
            merged.setdefault((options, tuple(methods), etas, splits), []).append(dataset)
    out = []
    for (options, some, etas, splits), datasets in merged.items():
        words = ["fewview", "bench", *datasets, "--methods", ",".join(some)]
        if ("--missing", "patterns") not in options:
            words += ["--eta", etas]
        words += ["--splits", splits, *(word for pair in options for word in pair if word)]
        out.append(shlex.join([*words, "--store", store]))
    return out


def _options(cell: Cell) -> Options:
    """Options of a run that differ from what is usual for the data set."""
    spec = get_spec(cell.dataset) if cell.dataset in names() else None
    usual = {
        "base": (spec.base_from if spec else None) or cell.dataset,
        "query-counts": "balanced", "missing": "uniform", "dtype": "float32", "device": "cpu",
        "seed": "0",
    }  # fmt: skip
    if spec is not None:
        usual |= {name: str(getattr(spec, name)) for name in ("way", "shot", "queries")}
    given = {
        "episodes": cell.n_episodes, "base": cell.base, "way": cell.way, "shot": cell.shot,
        "queries": cell.queries, "query-counts": cell.query_counts,
        "missing": cell.missing.partition("[")[0], "dtype": cell.dtype, "device": cell.device,
        "seed": cell.seed,
    }  # fmt: skip
    out = [(f"--{name}", str(v)) for name, v in given.items() if str(v) != usual.get(name)]
    default = _defaults(cell.method)
    for name, value in (("scaling", cell.scaling), ("padding", cell.padding)):
        # What a tuned run does not choose from was given, be it the usual value.
        fixed = bool(cell.tune) and f"{name}=" not in cell.tune and f"{name}=" not in cell.method
        if default is not None and (value != default[name] or fixed):
            out.append((f"--{name}", value))
    return (*out, ("--tune", "")) if cell.tune else tuple(out)


@lru_cache(maxsize=1024)
def _defaults(method: str) -> dict[str, str] | None:
    from fewview.methods.registry import create

    try:
        made = create(method)
    except (FewviewError, TypeError):
        return None
    return {"scaling": made.scaling, "padding": made.padding}


def _splits(dataset: str, count: int) -> str:
    spec = get_spec(dataset) if dataset in names() else None
    if spec is not None and not spec.fixed_split and spec.n_base + spec.n_novel == spec.n_classes:
        return "all" if count == comb(spec.n_classes, spec.n_base) else str(count)
    return str(count)


def missing_cells(results: Sequence[Result]) -> int:
    """How many cells lack in the rectangle of methods, missing rates and class splits per set."""
    sets: dict[tuple[Options, str], set[tuple[str, float, int]]] = {}
    for result in results:
        cell = result.cell
        alike = tuple(o for o in _options(cell) if o[0] not in ("--scaling", "--padding"))
        sets.setdefault((alike, cell.dataset), set()).add((cell.method, cell.eta, cell.split))
    lacking = 0
    for cells in sets.values():
        methods, etas, splits = (len(set(column)) for column in zip(*cells, strict=True))
        lacking += methods * etas * splits - len(cells)
    return lacking


def versions(results: Iterable[Result]) -> list[tuple[str, str, int]]:
    """List programs and machines that computed results: (what, which, number of results)."""
    counts: Counter[tuple[str, str]] = Counter()
    for result in results:
        try:
            found = json.loads(result.versions)
        except ValueError:
            found = {}
        pairs = {str(name): str(value) for name, value in found.items()}
        pairs |= {"machine": result.host or "not recorded", "device": result.cell.device}
        pairs["day"] = result.created[:10] or "not recorded"
        counts.update(pairs.items())
    order = {name: place for place, name in enumerate(_FIRST)}
    rows = [(name, value, count) for (name, value), count in counts.items()]
    return sorted(rows, key=lambda row: (order.get(row[0], len(order)), row))


def how_made(contents: Contents, store: str, asked: Sequence[str]) -> Section:
    """The section that says how to make the page again, and from what it was made."""
    lines = commands(contents.results, store) + ([shlex.join(asked)] if asked else [])
    words = [
        f"These commands compute exactly the {len(contents.results):,} results shown and write "
        "this page; what the store has is not computed again."
    ]
    if own := sorted({p.cell.dataset for p in contents.panels if p.cell.dataset not in names()}):
        text = "data of your own, given as a file or folder; put its path there."
        words.append(f"{listed(own)}: {text}")
    if lacking := missing_cells(contents.results):
        words.append(
            f"The store is not complete: {plural(lacking, 'cell')} of the rectangle of methods, "
            "rates and class splits are lacking; the commands compute them too."
        )
    if contents.stale:
        text = "of older versions of methods were left out."
        words.append(f"{plural(contents.stale, 'result')} {text}")
    if contents.unknown:
        text = "Not known to this installation, shown as stored"
        words.append(f"{text}: {listed(contents.unknown)}.")
    now = datetime.now(UTC).isoformat(timespec="seconds")
    words.append(f"Page written by fewview {__version__} on {now}.")
    cells = {(p.cell.dataset, p.cell.data_checksum): p.cell for p in contents.panels}
    tables = [
        Table(
            "Programs and machines that computed the results.",
            ("what", "which", "#results"),
            [[what, which, str(count)] for what, which, count in versions(contents.results)],
            id="versions",
        ),
        Table(
            "Data sets by their checksums.",
            ("data set", "checksum", "base classes from"),
            [[name, check, cell.base] for (name, check), cell in cells.items()],
            id="data",
        ),
    ]
    return Section("How this page was made", words, tables=tables, code=lines, id="how")
