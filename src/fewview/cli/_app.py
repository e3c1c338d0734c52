"""The `fewview` command and its sub-commands, put together."""

from __future__ import annotations

from typing import Annotated

import typer

import fewview.cli._advise as advise
import fewview.cli._bench as bench
import fewview.cli._data_sets as data
import fewview.cli._doctor as doctor
import fewview.cli._fit as fit
import fewview.cli._methods as methods
import fewview.cli._predict as predict
import fewview.cli._report as report
import fewview.cli._reproduce as reproduce
import fewview.cli._run as run
import fewview.cli._stored as results
from fewview.cli._text import examples

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
        "fewview reproduce claims --quick", "what the paper says, checked",
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


app.add_typer(data.app, name="data")
app.command("methods", epilog=methods.EPILOG)(methods.methods)
app.command("advise", epilog=advise.EPILOG)(advise.advise)
app.command("fit", epilog=fit.EPILOG)(fit.fit)
app.command("predict", epilog=predict.EPILOG)(predict.predict)
app.command("bench", epilog=bench.EPILOG)(bench.bench)
app.command("results", epilog=results.EPILOG)(results.results)
app.command("reproduce", epilog=reproduce.EPILOG)(reproduce.reproduce)
app.command("report", epilog=report.EPILOG)(report.report)
app.command("run", epilog=run.EPILOG)(run.run)
app.command("doctor")(doctor.doctor)
