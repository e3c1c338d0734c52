"""`fewview bench`: run a grid of data sets, class splits, missing rates and methods."""

from __future__ import annotations

import sys
from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fewview.cli._declared import takes
from fewview.cli._text import print_table, say, shows, suggest
from fewview.ground._flags import BENCH, READING, RUNNING

if TYPE_CHECKING:
    from fewview.evaluate._grid import Grid
    from fewview.evaluate._runner import Outcome
    from fewview.ground._rows import Row
    from fewview.samples._data import MultiViewData


@takes({**BENCH, **READING})
@shows(
    "fewview bench digits", "Proto on the embedded data",
    "fewview bench handwritten scene15 --methods proto,ptmap --eta 0,0.3,0.5", "a small grid",
    "fewview bench digits --methods all --jobs 2 --json out.json", "all methods, two processes",
    "fewview bench digits --methods proto:padding=zero,proto", "parameters after colons",
    "fewview bench handwritten --splits all --episodes 10", "all 210 class splits",
    "fewview bench handwritten --protocol paper --scaling paper --padding paper",
    "as in the paper: one split, 400 episodes",
    "fewview bench my_data.npz --query-counts dirichlet:2", "your own file, unbalanced queries",
    "fewview bench digits --methods marginal,proto --open-set", "are unknown classes noticed?",
)  # fmt: skip
def bench(
    datasets: Annotated[
        list[str],
        typer.Argument(
            help="Known data sets ('fewview data list'), .npz files or folders with one table per "
            "view.",
            metavar="DATASET...",
            show_default=False,
        ),
    ],
    **options: Any,
) -> None:
    """Run methods on few-shot tasks with missing views and report accuracy.

    Every data set x class split x missing rate x method is a cell. Finished cells are kept in a
    store: stop at any moment, run the same command again, and it goes on where it was. Accuracy
    comes with the standard error over episodes and, in brackets, with the lowest and highest class
    split.
    """
    from fewview.cli._bar import make_progress
    from fewview.evaluate._options import bench as run_bench
    from fewview.evaluate._options import make_grid, store_path
    from fewview.results._store import NO_STORE

    running = {name: options.pop(name) for name in RUNNING}
    store, json_path, open_set = running["store"], running["json_path"], running.pop("open_set")
    reading = {name: options.pop(name) for name in READING}
    grid = make_grid([_found(dataset, reading) for dataset in datasets], **options)
    if open_set:
        _open_set(grid, json_path)
        return
    try:
        rows, outcome = run_bench(grid, **running, progress=make_progress())
    except KeyboardInterrupt:
        stop_politely(store)
    show(rows)
    if json_path is not None:
        say(f"written: {json_path}")
    kept = store_path(store)
    named = "" if store is None else f" {store}"
    if kept != NO_STORE:
        say(f"results are kept in {kept}")
        suggest(f"fewview results{named} --compare, or fewview report{named} -o report.html")
    else:
        suggest("the same without --store none, to compare methods and to report")
    report_failures(outcome)


def _found(dataset: str, reading: dict[str, Any]) -> str | MultiViewData:
    """Read a user's own file or folder as the options say; leave all else to be found by name."""
    from pathlib import Path

    from fewview.cli._fit import read_samples
    from fewview.datasets._catalogue import names

    usual = all(reading[name] == option.default for name, option in READING.items()
                if option.kind is not bool) and not reading["disjoint"]  # fmt: skip
    path = Path(dataset).expanduser()
    if usual or dataset in names() or not path.exists():
        return dataset
    return read_samples(str(path), **reading).with_name(path.resolve().stem)


def _open_set(grid: Grid, json_path: str | None) -> None:
    """Run the open-set benchmark, print one table, write JSON."""
    from fewview.evaluate._open_set import run_open_set
    from fewview.evaluate._options import write_json

    rows = run_open_set(grid, lambda text: say(text))
    header = (
        "data set", "task", "eta", "method", "right among known %", "AUROC %",
        "precision at recall 0.9 %", "AUROC by probability %",
    )  # fmt: skip
    lines = [
        (
            row["dataset"],
            f"{row['way']}+{row['way']} classes, {row['shot']}-shot",
            f"{row['eta']:.2g}",
            row["method"],
            f"{row['accuracy']:.1f}",
            f"{row['auroc']:.1f} ±{row['auroc_error']:.1f}",
            f"{row['precision_at_recall_90']:.1f}",
            f"{row['auroc_of_probability']:.1f}",
        )
        for row in rows
    ]
    print_table(header, lines, right=(4, 5, 6, 7), drop=(7, 1))
    if json_path is not None:
        write_json(rows, json_path)
        say(f"written: {json_path}")


def stop_politely(store: str | None) -> None:
    """Say after Ctrl-C how to go on, and leave with the usual status."""
    from fewview.evaluate._options import stop_message

    say(stop_message(store))
    raise typer.Exit(130)


def report_failures(outcome: Outcome) -> None:
    """List cells that broke down; the others are fine, but the exit status is 1."""
    if outcome.failures:
        counts = Counter((cell.method, reason) for cell, reason in outcome.failures)
        say(f"{len(outcome.failures)} cell(s) failed, the others are stored:")
        for (method, reason), count in counts.most_common(10):
            say(f"  {method}: {count} x {reason}")
        raise typer.Exit(1)


def show(rows: list[Row]) -> None:
    """Print one table per data set."""
    from fewview.results._summaries import pivot

    narrow = "\n" if sys.stdout.isatty() else " "
    for k, table in enumerate(pivot(rows, narrow)):
        if k:
            print()
        last = len(table.header) - 1
        print_table(table.header, table.lines, title=table.title, right=range(1, last + 1),
                    drop=(last,))  # fmt: skip
