"""The `fewview` command and its sub-commands, put together."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from fewview.cli._advise import advise
from fewview.cli._bench import bench
from fewview.cli._data_sets import data_app
from fewview.cli._doctor import doctor
from fewview.cli._fit import fit, impute
from fewview.cli._methods import methods
from fewview.cli._predict import predict
from fewview.cli._run import run
from fewview.cli._stored import report, results
from fewview.cli._text import examples, paragraphs
from fewview.cli.serving._serve import serve

app = typer.Typer(
    name="fewview",
    help="Few-shot classification from several views when some views are missing.",
    epilog=examples(
        "fewview run", "the demonstration: every kind of method on the embedded digits",
        "fewview data list", "which data sets there are",
        "fewview methods", "which methods there are",
        "fewview advise my_data/", "which method suits your own data",
        "fewview serve", "a local page: drop tables, fit, predict, switch views off",
        "fewview bench digits --methods proto,ptmap --eta 0,0.3,0.5", "a benchmark",
        "fewview results", "everything computed so far",
        "fewview report -o report.html", "the same as one page",
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


def _plain(kind: Any) -> Any:
    """Help pages whose paragraphs fill the terminal, and whose switches have no type."""

    class Plain(kind):  # type: ignore[misc]
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            self.help: str = paragraphs(options.get("help") or "")

        def get_params(self, context: Any) -> Any:
            found = super().get_params(context)
            for option in found:
                if getattr(option, "is_flag", False):
                    option.display_type_rich = lambda ctx=None: None
            return found

    return Plain


app.add_typer(data_app, name="data")
for command in (
    methods, advise, fit, predict, impute, serve, bench, results, report, run, doctor,
):  # fmt: skip
    app.command(epilog=getattr(command, "epilog", None))(command)
for some in (app, data_app):
    some.info.cls = _plain(TyperGroup)
    for registered in some.registered_commands:
        registered.cls = _plain(TyperCommand)
