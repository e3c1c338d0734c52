"""`fewview advise`: which method suits your own data."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fewview.cli._declared import DataDir, Jobs, takes
from fewview.cli._fit import read_samples
from fewview.cli._text import print_table, print_text, say, shows, suggest
from fewview.ground._flags import READING

if TYPE_CHECKING:
    from fewview.ground._rows import Row


@takes(READING)
@shows(
    "fewview advise my_tables/", "a folder with one CSV file per view and labels.csv",
    "fewview advise my_data.npz --shot 3", "three labelled samples per class",
    "fewview advise my_data.npz --methods marginal,ugda,proto", "some methods only",
    "fewview advise my_data.npz --query-counts dirichlet:2", "classes of unequal shares",
    "fewview advise handwritten --jobs 2", "a known data set, two processes",
)  # fmt: skip
def advise(
    data: Annotated[
        str,
        typer.Argument(
            help="Labelled samples: a file, a folder of tables, or a known data set "
            "('fewview data list')."
        ),
    ],
    shot: Annotated[int, typer.Option(help="Labelled samples per new class.")] = 1,
    way: Annotated[int | None, typer.Option(help="New classes per task. Default: up to 5.")] = None,
    queries: Annotated[
        int | None, typer.Option(help="Queries per class. Default: up to 15.")
    ] = None,
    query_counts: Annotated[
        str,
        typer.Option(
            help="Queries of a class: balanced, dirichlet:2 for shares that are drawn, or "
            "dominant:0.8 for one class with that share."
        ),
    ] = "balanced",
    methods: Annotated[
        str,
        typer.Option(help="Methods, as for 'fewview bench'; plain baselines are always added."),
    ] = "all",
    splits: Annotated[
        int, typer.Option(help="How often classes are divided into base and new ones.")
    ] = 5,
    episodes: Annotated[int, typer.Option(help="Tasks per division.")] = 20,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="DIR", help="Folder for results and report.")
    ] = "advice",
    seed: Annotated[int, typer.Option(help="Another seed gives other tasks.")] = 0,
    jobs: Jobs = 1,
    data_dir: DataDir = None,
    **reading: Any,
) -> None:
    """Try all methods and plain scikit-learn classifiers on your own data, and recommend one.

    Your classes take turns as base classes and as new ones; samples keep the gaps they have. Prints
    the recommendation and what to type next, then a ranked table with 95 % intervals and times, and
    writes the results and a report.
    """
    from pathlib import Path

    from fewview.cli._bar import make_progress
    from fewview.cli._bench import report_failures, stop_politely
    from fewview.datasets._catalogue import names
    from fewview.datasets._loading import load
    from fewview.evaluate._advice import give_advice
    from fewview.ground._whole_files import made_folder
    from fewview.report._page import write_report

    # A word is a data set, as for 'bench', unless it is a file: a slip then gets a suggestion.
    path = Path(data).expanduser()
    if data in names() or not (path.exists() or path.suffix or path.name != data):
        samples, name = load(data, data_dir), data
    else:
        samples, name = read_samples(data, **reading), path.resolve().stem
    samples = samples.with_name(name)
    if samples.labels is not None and (samples.codes < 0).any():
        unlabelled = int((samples.codes < 0).sum())
        say(f"{unlabelled} sample(s) without a label are left out")
        samples = samples[samples.codes >= 0]
    say(f"{samples}")
    folder = made_folder(output)
    store = folder / "results.sqlite"
    try:
        advice = give_advice(
            samples, methods=methods, shot=shot, way=way, queries=queries, splits=splits,
            episodes=episodes, query_counts=query_counts, seed=seed, store=str(store), jobs=jobs,
            progress=make_progress(),
        )  # fmt: skip
    except KeyboardInterrupt:
        stop_politely(str(store))
    command = f"fewview fit --base {data} --method {advice.method} -o base.model"
    print_text(advice.sentence)
    print(f"\n  {command}\n", flush=True)
    first = advice.rows[0]
    title = (
        f"{name}: {first['way']}-way {first['shot']}-shot, {first['queries']} queries per class, "
        f"{100 * samples.missing_rate:.0f} % of views missing as in the data, "
        f"{first['n_splits']} divisions of the classes, {first['n_episodes']} tasks"
    )
    header = ("rank", "method", "right %", "95 % interval", "ms per task", "base s")
    lines = [_line(rank, row) for rank, row in enumerate(advice.rows, start=1)]
    print_table(header, lines, title=title, right=(0, 2, 4, 5))
    own = samples.missing_rate
    gaps = f" ({100 * own:.0f} % of views missing as in the data, shown as rate 0)" if own else ""
    page = write_report(
        store, folder / "report.html", where=[f"dataset={name}"],
        title=f"Advice about {name}{gaps}: use {advice.method}", examples=False,
    )  # fmt: skip
    print(f"\nwritten: {page}")
    print(f"written: {store}")
    sys.stdout.flush()
    suggest(command)
    report_failures(advice.outcome)


def _line(rank: int, row: Row) -> tuple[str, ...]:
    interval = "-" if row["ci_low"] is None else f"{row['ci_low']:.1f} to {row['ci_high']:.1f}"
    return (
        str(rank),
        row["method"],
        f"{row['accuracy']:.1f}",
        interval,
        f"{1000 * row['seconds'] / row['n_episodes']:.1f}",
        f"{row['seconds_base'] / max(row['n_splits'], 1):.2f}",
    )
