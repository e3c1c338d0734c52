"""Where numbers come from: commands that compute exactly the stored cells, versions, machines.

A store keeps cells, not what was typed; the commands are worked out from the cells and plan the
same cells again, whatever mixture of runs wrote them.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Sequence
from functools import lru_cache
from math import comb

from fewview.datasets._catalogue import get_spec, names
from fewview.ground._errors import FewviewError
from fewview.results._cells import Cell, Result
from fewview.results._store import NO_STORE

Options = tuple[tuple[str, str], ...]


def commands(results: Iterable[Result], store: str = NO_STORE) -> list[str]:
    """Write the `fewview bench` commands whose plan is made of these results.

    Where a store lacks some class splits or missing rates of a run that was stopped, the command
    is the one that completes it.

    Args:
        results: of a store.
        store: where the commands keep what they compute.

    Returns:
        Commands, arguments quoted for a shell.

    Example:
        >>> from fewview.evaluate._grid import Grid, plan
        >>> from fewview.results._cells import Result
        >>> grid = Grid(datasets=("digits",), methods=("proto",), etas=(0.0, 0.5), splits=2)
        >>> cells = [Result(cell=cell, metrics=None, seconds=0, seconds_base=0)
        ...          for cell in plan(grid)]
        >>> print(*commands(cells), sep="\\n")
        fewview bench digits --methods proto --eta 0,0.5 --splits 2 --episodes 40 --store none
    """
    found: dict[tuple[Options, str], dict[str, set[tuple[float, int]]]] = {}
    for result in results:
        cell = result.cell
        by_method = found.setdefault((_options(cell), cell.dataset), {})
        by_method.setdefault(cell.method, set()).add((cell.eta, cell.split))
    # Data sets that were run alike share a command, and so do methods.
    merged: dict[tuple[Options, tuple[str, ...], str, str], list[str]] = {}
    for (options, dataset), by_method in found.items():
        alike: dict[tuple[str, str], list[str]] = {}
        for method, units in by_method.items():
            etas = ",".join(_number(eta) for eta in sorted({eta for eta, _ in units}))
            splits = _splits(dataset, max(split for _, split in units) + 1)
            alike.setdefault((etas, splits), []).append(method)
        for (etas, splits), listed in alike.items():
            merged.setdefault((options, tuple(listed), etas, splits), []).append(dataset)
    out = []
    for (options, methods, etas, splits), datasets in merged.items():
        words = ["fewview", "bench", *datasets, "--methods", ",".join(methods)]
        if ("--missing", "patterns") not in options:
            words += ["--eta", etas]
        words += ["--splits", splits]
        for name, value in options:
            words += [name, value] if value else [name]
        out.append(shlex.join([*words, "--store", store]))
    return out


def _options(cell: Cell) -> Options:
    """Options of a run that differ from what is usual for the data set."""
    spec = get_spec(cell.dataset) if cell.dataset in names() else None
    usual_base = (spec.base_from if spec else None) or cell.dataset
    out = [("--episodes", str(cell.n_episodes))]
    if cell.base != usual_base:
        out.append(("--base", cell.base))
    for name in ("way", "shot", "queries"):
        value = getattr(cell, name)
        if spec is None or getattr(spec, name) != value:
            out.append((f"--{name}", str(value)))
    kind = cell.missing.partition("[")[0]
    usual = {"query_counts": "balanced", "missing": "uniform", "dtype": "float32", "device": "cpu"}
    given = {"query_counts": cell.query_counts, "missing": kind, "dtype": cell.dtype}
    given["device"] = cell.device
    out += [
        (f"--{name.replace('_', '-')}", value)
        for name, value in given.items()
        if value != usual[name]
    ]
    if cell.seed:
        out.append(("--seed", str(cell.seed)))
    default = _defaults(cell.method)
    for name, value in (("scaling", cell.scaling), ("padding", cell.padding)):
        # What a tuned run does not choose from was given, be it the usual value.
        fixed = bool(cell.tune) and f"{name}=" not in cell.tune and f"{name}=" not in cell.method
        if default is not None and (value != default[name] or fixed):
            out.append((f"--{name}", value))
    if cell.tune:
        out.append(("--tune", ""))
    return tuple(out)


@lru_cache(maxsize=1024)
def _defaults(method: str) -> dict[str, str] | None:
    from fewview.engine._registry import create

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


def _number(value: float) -> str:
    short = f"{value:g}"
    return short if float(short) == value else repr(value)


def missing_cells(results: Sequence[Result]) -> int:
    """How many cells lack in the rectangle of methods, missing rates and class splits per set.

    Example:
        >>> missing_cells([])
        0
    """
    sets: dict[tuple[Options, str], set[tuple[str, float, int]]] = {}
    for result in results:
        cell = result.cell
        key = (tuple(o for o in _options(cell) if o[0] not in ("--scaling", "--padding")),)
        sets.setdefault((*key, cell.dataset), set()).add((cell.method, cell.eta, cell.split))
    lacking = 0
    for cells in sets.values():
        sizes = [len({cell[k] for cell in cells}) for k in range(3)]
        lacking += sizes[0] * sizes[1] * sizes[2] - len(cells)
    return lacking


def versions(results: Iterable[Result]) -> list[tuple[str, str, int]]:
    """List programs and machines that computed results: (what, which, number of results).

    Example:
        >>> versions([])
        []
    """
    counts: dict[tuple[str, str], int] = {}
    for result in results:
        try:
            found = json.loads(result.versions)
        except ValueError:
            found = {}
        pairs = {str(name): str(value) for name, value in found.items()}
        pairs |= {"machine": result.host or "not recorded", "device": result.cell.device}
        pairs["day"] = result.created[:10] or "not recorded"
        for pair in pairs.items():
            counts[pair] = counts.get(pair, 0) + 1
    order = ("fewview", "python", "torch", "numpy", "scipy", "sklearn", "threads", "device")

    def place(name: str) -> tuple[int, str]:
        return (order.index(name) if name in order else len(order), name)

    rows = [(name, value, count) for (name, value), count in counts.items()]
    return sorted(rows, key=lambda row: (*place(row[0]), row[1]))
