"""From cells to the numbers people read: one row per data set, method and missing rate.

These rows are the JSON of `fewview bench` and what tables and figures are made of. Keys may be
added, none is renamed.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fewview.ground._rows import Row
from fewview.results._cells import Cell, Result
from fewview.results._intervals import Float64Array, split_intervals, standard_error
from fewview.results._metrics import expected_calibration_error

# What the results of one row have in common; class splits and episodes are summed up.
GROUP = (
    "dataset", "base", "method", "tune", "scaling", "padding", "way", "shot", "queries",
    "query_counts", "missing", "eta", "seed", "dtype", "device", "n_episodes", "method_class",
    "method_version", "sampler_version", "data_checksum", "base_checksum", "fixed", "parameters",
)  # fmt: skip
# Fields of cells that rows have besides those of the task.
_TOLD = (
    "scaling", "padding", "base", "queries", "query_counts", "missing", "seed", "dtype", "device",
    "method_version",
)  # fmt: skip


def group_of(cell: Cell) -> tuple[Hashable, ...]:
    """Return what a cell shares with the others of its row."""
    return tuple(getattr(cell, name) for name in GROUP)


def summarise(groups: Iterable[Sequence[Result]]) -> list[Row]:
    """Sum every group of results, which differ in class split or repetition, up into one row.

    Accuracies and their errors are in percent; `split_low`, `split_high`, `ci_low` and `ci_high`
    (95 %, `split_interval`) are None where there is one class split.
    """
    rows: list[Row] = []
    shapes: dict[tuple[int, int], list[int]] = {}
    tables = []
    for results in groups:
        accuracies = [result.metrics.accuracy for result in results]
        # With a fixed class split all repetitions are one split.
        fixed = results[0].cell.fixed
        table = np.concatenate(accuracies)[None] if fixed else np.stack(accuracies)
        shapes.setdefault(table.shape, []).append(len(rows))
        tables.append(table)
        rows.append(_row(results, table))
    for (n_splits, _), places in shapes.items():
        if n_splits == 1:
            continue  # one class split says nothing about others
        low, high = split_intervals(np.stack([tables[k] for k in places]), bounds=(0.0, 1.0))
        for place, bottom, top in zip(places, low, high, strict=True):
            rows[place]["ci_low"], rows[place]["ci_high"] = 100 * float(bottom), 100 * float(top)
    return rows


def _row(results: Sequence[Result], table: Float64Array) -> Row:
    """All but the interval; `table` has accuracies [splits, episodes]."""
    cell = results[0].cell
    means = 100 * table.mean(axis=1)
    several = len(means) > 1
    bins = np.sum([result.metrics.bins for result in results], axis=0)

    def mean(name: str) -> float:
        return float(np.mean([getattr(result.metrics, name).mean() for result in results]))

    return {
        **{name: getattr(cell, name) for name in ("dataset", "method", "way", "shot", "eta")},
        "accuracy": 100 * float(table.mean()),
        "standard_error": 100 * standard_error(table),
        "split_low": float(means.min()) if several else None,
        "split_high": float(means.max()) if several else None,
        "n_episodes": int(table.size),
        "seconds": float(sum(result.seconds for result in results)),
        "seconds_base": float(sum(result.seconds_base for result in results)),
        "ci_low": None,
        "ci_high": None,
        "split_deviation": float(means.std(ddof=1)) if several else None,
        "n_splits": len(means),
        "balanced_accuracy": 100 * mean("balanced_accuracy"),
        "log_loss": mean("log_loss"),
        "brier": mean("brier"),
        "ece": expected_calibration_error(bins),
        **{name: getattr(cell, name) for name in _TOLD},
        "tuned": bool(cell.tune),
        "chosen": sorted({result.chosen for result in results if result.chosen}),
    }


def summarise_planned(cells: Sequence[Cell], results: dict[str, Result]) -> list[Row]:
    """Sum up the cells of a plan that have results, methods as typed, in the order of the plan."""
    groups: dict[Hashable, list[Result]] = {}
    for cell in cells:
        found = results.get(cell.hash)
        if found is not None:
            # The store may know this cell under another spelling of the same method.
            key = (cell.dataset, cell.method, cell.eta)
            groups.setdefault(key, []).append(replace(found, cell=cell))
    return summarise(groups.values())


def summarise_stored(results: Iterable[Result]) -> list[Row]:
    """Sum up whatever a store holds, one row per group of comparable cells.

    Settings chosen on base classes may differ between splits; they are one row all the same.

    Args:
        results: of a store.

    Returns:
        Rows as `fewview bench --json` writes them: accuracies and their errors in percent.

    Example:
        >>> from fewview.evaluate import Grid, run
        >>> outcome = run(Grid(datasets=("digits",), methods=("proto",), splits=2, episodes=5))
        >>> (row,) = summarise_stored(outcome.results.values())
        >>> row["method"], row["n_splits"], row["n_episodes"]
        ('proto', 2, 10)
    """
    groups: dict[Hashable, list[Result]] = {}
    for result in results:
        groups.setdefault(group_of(result.cell), []).append(result)
    return summarise(groups.values())


@dataclass(frozen=True)
class Pivot:
    """Accuracy of methods over missing rates on one data set."""

    title: str  # data set and task
    header: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]  # one per method, best mean accuracy first


def pivot(rows: Sequence[Row], line_break: str = " ") -> list[Pivot]:
    """Arrange rows as one table per data set: methods down, missing rates across.

    An entry reads `84.2 ±0.6 (76-94)`: accuracy in percent, standard error over episodes, lowest
    and highest class split.

    Args:
        rows: of `evaluate.bench`.
        line_break: what to put before the bracket; a line break makes narrow tables.

    Example:
        >>> row = {"dataset": "digits", "method": "proto", "way": 3, "shot": 1, "eta": 0.0,
        ...        "accuracy": 84.15, "standard_error": 0.59, "split_low": 75.6,
        ...        "split_high": 93.6, "n_episodes": 400, "n_splits": 10, "seconds": 1.0}
        >>> pivot([row])[0].lines
        (('proto', '84.2 ±0.6 (76-94)', '1.0'),)
    """
    out = []
    for dataset in dict.fromkeys(row["dataset"] for row in rows):
        here = [row for row in rows if row["dataset"] == dataset]
        etas = sorted({row["eta"] for row in here})
        lines = []
        for name in best_first(here):
            found = {row["eta"]: row for row in here if row["method"] == name}
            entries = [_entry(found.get(eta), line_break) for eta in etas]
            lines.append((name, *entries, f"{sum(row['seconds'] for row in found.values()):.1f}"))
        first = here[0]
        title = (
            f"{dataset}: {first['way']}-way {first['shot']}-shot, {first['n_splits']} class "
            f"split(s), {first['n_episodes']} episodes per entry"
        )
        header = ("method", *(f"eta {eta:.3g}" for eta in etas), "seconds")
        out.append(Pivot(title, header, tuple(lines)))
    return out


def best_first(rows: Sequence[Row]) -> list[str]:
    """Methods by mean accuracy; those that lack a missing rate cannot be compared and go last."""
    count = len({row["eta"] for row in rows})
    found: dict[str, dict[float, float]] = {}
    for row in rows:
        found.setdefault(row["method"], {})[row["eta"]] = row["accuracy"]

    def place(name: str) -> tuple[bool, float]:
        return len(found[name]) < count, -float(np.mean([*found[name].values()]))

    return sorted(found, key=place)


def _entry(row: Row | None, line_break: str) -> str:
    if row is None:
        return "-"
    text = f"{row['accuracy']:.1f} ±{row['standard_error']:.1f}"
    if row["split_low"] is None:
        return text
    return f"{text}{line_break}({row['split_low']:.0f}-{row['split_high']:.0f})"
