"""`fewview run`: the main job on the embedded data, for a first look."""

from __future__ import annotations

from typing import Annotated

import typer

from fewview.cli._text import leads_to, print_text, shows

TITLE = "fewview on the embedded digits: few-shot accuracy with missing views"
ETAS = "0,0.1,0.2,0.3,0.4,0.5"
# Every kind of method, without the slow ones whose kind another one shows: concat-logistic stands
# for concat-hgb, tim-adm for tim and alpha-tim, bavardage for paddle, ptmap+ugda for rfs+ugda;
# methods that train networks take minutes.
METHODS = (
    "proto,match,partial-nn,concat-logistic,rfs,bd-cspn,ptmap,tim-adm,bavardage,ugda,ptmap+ugda,"
    "marginal"
)


@leads_to("fewview results {output}/results.sqlite --compare")
@shows(
    "fewview run", "into the folder 'demo'",
    "fewview run --output first-look --jobs 1", "elsewhere, in one process",
    "fewview results demo/results.sqlite --compare", "then: which differences are real?",
)  # fmt: skip
def run(
    output: Annotated[
        str,
        typer.Option(metavar="DIR", help="Folder for report, plot, JSON, store; made if absent."),
    ] = "demo",
    methods: Annotated[
        str, typer.Option(help="Methods, as for 'fewview bench'; 'all' adds the slow ones.")
    ] = METHODS,
    splits: Annotated[int, typer.Option(help="Number of class splits.")] = 10,
    episodes: Annotated[int, typer.Option(help="Episodes per class split.")] = 5,
    jobs: Annotated[
        int | None, typer.Option(help="Number of processes. Default: one per core, at most 4.")
    ] = None,
) -> None:
    """Benchmark every kind of method on the embedded digits over missing rates 0 to 0.5.

    Prints a table and saves a report (one HTML page), an accuracy-against-missing-rate plot (PNG
    and SVG), the numbers (JSON) and the store in the output folder. Takes about a minute on
    two cores; a second run finds its results in the store.
    """
    from pathlib import Path

    from joblib import cpu_count

    from fewview.cli._bar import make_progress
    from fewview.cli._bench import report_failures, show, stop_politely
    from fewview.drawing._charts import accuracy_curves, save_figure
    from fewview.evaluate._options import bench, make_grid
    from fewview.ground._whole_files import made_folder
    from fewview.methods.registry import expand
    from fewview.report._page import write_report

    folder = made_folder(output)
    grid = make_grid(["digits"], methods=methods, eta=ETAS, splits=splits, episodes=episodes,
                     keep_probabilities=True)  # fmt: skip
    store = str(folder / "results.sqlite")
    if jobs is None:
        jobs = min(4, cpu_count())
    try:
        rows, outcome = bench(
            grid,
            store=store,
            jobs=jobs,
            progress=make_progress(),
            json_path=folder / "results.json",
        )
    except KeyboardInterrupt:
        stop_politely(store)
    show(rows)
    title = "Few-shot accuracy when views go missing (95 % intervals over class splits)"
    files = save_figure(accuracy_curves(rows, title), folder / "accuracy")
    print()
    left_out = [name for name in expand("all") if name not in expand(methods)]
    if left_out:
        listed = ", ".join(left_out)
        print_text(f"left out to save time: {listed} ('--methods all' has them), trained networks")
    for file in [*files, folder / "results.json", Path(store)]:
        print(f"written: {file}")
    if rows:
        page = write_report(store, folder / "report.html", title=TITLE)
        print(f"report: {page.resolve()}")
    report_failures(outcome)
