"""The `fewview` command and its sub-commands, put together."""

from __future__ import annotations

from typing import Annotated

import typer

from fewview.cli._advise import advise
from fewview.cli._bench import bench
from fewview.cli._data_sets import data_app
from fewview.cli._fit import fit
from fewview.cli._methods import methods
from fewview.cli._predict import predict
from fewview.cli._reproduce import reproduce
from fewview.cli._run import run
from fewview.cli._stored import report, results
from fewview.cli._text import examples
from fewview.cli.doctor._doctor import doctor
from fewview.cli.suite._commands import suite_app

app = typer.Typer(
    name="fewview",
    help="Few-shot classification from several views when some views are missing.",
    epilog=examples(
        "fewview run", "the demonstration: every kind of method on the embedded digits",
        "fewview data list", "which data sets there are",
        "fewview methods", "which methods there are",
        "fewview advise my_data/", "which method suits your own data",
        "fewview bench digits --methods proto,ptmap --eta 0,0.3,0.5", "a benchmark",
        "fewview results", "everything computed so far",
        "fewview report -o report.html", "the same as one page",
        "fewview reproduce claims", "what the paper says, checked",
        "fewview suite show", "the leaderboard of the frozen suite",
    ),
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)  # fmt: skip


def _version(value: bool) -> None:
    if value:
        from fewview._version import __version__

        typer.echo(f"fewview {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    pass


app.add_typer(data_app, name="data")
app.add_typer(suite_app, name="suite")
for command in (methods, advise, fit, predict, bench, results, reproduce, report, run, doctor):
    app.command(epilog=getattr(command, "epilog", None))(command)
