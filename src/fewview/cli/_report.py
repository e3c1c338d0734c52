"""`fewview report`: one self-contained page about a store."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from fewview.cli._text import examples

EPILOG = examples(
    "fewview report demo/results.sqlite -o demo/report.html", "the demonstration's store",
    "fewview report --where 'eta<=0.3' --where 'dataset=digits|scene15'", "some of the results",
    "fewview report results.sqlite --no-examples", "without reading the data again",
)  # fmt: skip


def report(
    store: Annotated[
        str | None,
        typer.Argument(help="File of results; by default where 'bench' keeps them."),
    ] = None,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="The page.")
    ] = "report.html",
    where: Annotated[
        list[str] | None,
        typer.Option(
            help="Condition on results, as for 'fewview results'. May be given several times.",
            show_default=False,
        ),
    ] = None,
    title: Annotated[
        str | None, typer.Option(help="Title of the page; by default it names the data sets.")
    ] = None,
    example_episodes: Annotated[
        bool,
        typer.Option(
            "--examples/--no-examples", help="Read the data again and show example episodes."
        ),
    ] = True,
    data_dir: Annotated[
        str | None,
        typer.Option(help="Folder of data files. Default: $FEWVIEW_DATA, else the user's cache."),
    ] = None,
) -> None:
    """Write one HTML page: who wins, curves, tables, ranks, time, calibration, episodes.

    The page needs nothing else: no network, no other files. It reads well on a phone, in print, in
    the dark and with a screen reader.
    """
    from fewview.evaluate._options import store_path
    from fewview.report._page import write_report

    page = write_report(
        store_path(store),
        output,
        where=where or (),
        title=title,
        data_dir=data_dir,
        examples=example_episodes,
        tell=lambda text: print(text, file=sys.stderr),
    )
    print(f"written: {page} ({page.stat().st_size / 1e6:.1f} MB)")
