"""`fewview bench`: run a grid of data sets, class splits, missing rates and methods."""

from __future__ import annotations

import sys
from collections import Counter
from typing import TYPE_CHECKING, Annotated

import typer

from fewview.cli._text import examples, print_table

if TYPE_CHECKING:
    from fewview.evaluate._grid import Grid
    from fewview.evaluate._runner import Outcome
    from fewview.ground._rows import Row

EPILOG = examples(
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

DATASETS = Annotated[
    list[str],
    typer.Argument(
        help="Known data sets ('fewview data list'), .npz files or folders with one table per "
        "view.",
        metavar="DATASET...",
        show_default=False,
    ),
]


def bench(
    datasets: DATASETS,
    base: Annotated[
        str | None,
        typer.Option(help="Take the base classes from this data set (name or file) instead."),
    ] = None,
    methods: Annotated[
        str,
        typer.Option(
            help="Methods separated by commas, parameters after colons: "
            "'ptmap:padding=zero,proto'; 'all' is every method that trains no network."
        ),
    ] = "proto",
    eta: Annotated[str, typer.Option(help="Missing rates, separated by commas.")] = "0",
    way: Annotated[
        int | None, typer.Option(help="Classes per task; by default the data set's usual number.")
    ] = None,
    shot: Annotated[
        int | None, typer.Option(help="Labelled samples per class; by default as usual.")
    ] = None,
    queries: Annotated[
        int | None, typer.Option(help="Queries per class; by default as usual.")
    ] = None,
    splits: Annotated[
        str | None, typer.Option(help="Number of class splits, or 'all'. Default: 10.")
    ] = None,
    episodes: Annotated[
        int | None, typer.Option(help="Episodes per class split. Default: 40.")
    ] = None,
    query_counts: Annotated[
        str, typer.Option(help="Queries per class: 'balanced', or 'dirichlet:2' for unequal ones.")
    ] = "balanced",
    missing: Annotated[
        str,
        typer.Option(
            help="How views go missing: 'uniform', 'class' (classes lose views of their own) or "
            "'patterns' (resample the gaps that the data have; eta then follows from them)."
        ),
    ] = "uniform",
    seed: Annotated[int, typer.Option(help="Another seed gives other episodes.")] = 0,
    scaling: Annotated[
        str | None,
        typer.Option(
            help="For every method: scale, minmax, standard, unit, standard+unit, "
            "root+standard+unit, none, or 'paper' (per method as in the paper). A parameter typed "
            "with a method wins."
        ),
    ] = None,
    padding: Annotated[
        str | None,
        typer.Option(
            help="How methods that need complete data fill missing views: episode, zero, support, "
            "base, or 'paper'."
        ),
    ] = None,
    jobs: Annotated[int, typer.Option(help="Number of processes; they share the cores.")] = 1,
    cluster: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Compute on the workers of this Dask scheduler, for instance tcp://host:8786 "
            "(docs/cluster.md). Results are written here.",
        ),
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda or auto.")] = "cpu",
    dtype: Annotated[str, typer.Option(help="float32 or float64.")] = "float32",
    store: Annotated[
        str | None,
        typer.Option(
            help="File of results; what it has is not computed again. 'none' keeps nothing. "
            "Default: $FEWVIEW_STORE, else results.sqlite in the user's cache folder."
        ),
    ] = None,
    tune: Annotated[
        bool, typer.Option("--tune", help="Choose every method's settings on base classes.")
    ] = False,
    open_set: Annotated[
        bool,
        typer.Option(
            "--open-set",
            help="Half of the classes of a task have no supports: how well are their queries "
            "found? Reports AUROC and precision at recall 0.9; results are not stored.",
        ),
    ] = False,
    protocol: Annotated[
        str,
        typer.Option(help="'splits': 10 class splits x 40 episodes; 'paper': 1 split x 400."),
    ] = "splits",
    data_dir: Annotated[
        str | None,
        typer.Option(help="Folder of data files. Default: $FEWVIEW_DATA, else the user's cache."),
    ] = None,
    json: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write the results there as JSON.")
    ] = None,
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

    grid = make_grid(
        datasets, base=base, methods=methods, eta=eta, way=way, shot=shot, queries=queries,
        splits=splits, episodes=episodes, query_counts=query_counts, missing=missing, seed=seed,
        scaling=scaling, padding=padding, device=device, dtype=dtype, tune=tune,
        protocol=protocol, data_dir=data_dir,
    )  # fmt: skip
    if open_set:
        _open_set(grid, json)
        return
    try:
        rows, outcome = run_bench(
            grid,
            store=store,
            jobs=jobs,
            cluster=cluster,
            progress=make_progress(),
            json_path=json,
        )
    except KeyboardInterrupt:
        stop_politely(store)
    show(rows)
    if json is not None:
        print(f"written: {json}", file=sys.stderr)
    kept = store_path(store)
    if kept != NO_STORE:
        print(f"results are kept in {kept}", file=sys.stderr)
    report_failures(outcome)


def _open_set(grid: Grid, json: str | None) -> None:
    """Run the open-set benchmark, print one table, write JSON."""
    from fewview.evaluate._open_set import run_open_set
    from fewview.evaluate._options import write_json

    rows = run_open_set(grid, lambda text: print(text, file=sys.stderr))
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
    print_table(header, lines, right=(4, 5, 6, 7))
    if json is not None:
        write_json(rows, json)
        print(f"written: {json}", file=sys.stderr)


def stop_politely(store: str | None) -> None:
    """Say after Ctrl-C how to go on, and leave with the usual status."""
    from fewview.evaluate._options import stop_message

    print(stop_message(store), file=sys.stderr)
    raise typer.Exit(130)


def report_failures(outcome: Outcome) -> None:
    """List cells that broke down; the others are fine, but the exit status is 1."""
    if outcome.failures:
        counts = Counter((cell.method, reason) for cell, reason in outcome.failures)
        print(f"{len(outcome.failures)} cell(s) failed, the others are stored:", file=sys.stderr)
        for (method, reason), count in counts.most_common(10):
            print(f"  {method}: {count} x {reason}", file=sys.stderr)
        raise typer.Exit(1)


def show(rows: list[Row]) -> None:
    """Print one table per data set."""
    from fewview.results._summaries import pivot

    narrow = "\n" if sys.stdout.isatty() else " "
    for k, table in enumerate(pivot(rows, narrow)):
        if k:
            print()
        print_table(table.header, table.lines, title=table.title, right=range(1, len(table.header)))
