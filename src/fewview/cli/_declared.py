"""Options of commands as typer wants them, made from where they are declared.

A command with a table of options takes them by name (`takes`); options that several commands share
are types of parameters here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import Parameter, signature
from typing import Annotated, Any

import typer

from fewview.cli._text import Command
from fewview.ground._flags import DATA_DIR, DEVICE, FORCE, HTML, JOBS, Option


def typed(option: Option, name: str = "") -> Any:
    """What typer is told about an option."""
    flags = option.flags_of(name) if option.flags or option.kind is bool else ()
    shown = option.default is not None
    return typer.Option(*flags, help=option.help, metavar=option.metavar, show_default=shown)


def takes(options: Mapping[str, Option]) -> Callable[[Command], Command]:
    """Give a command these options in place of its `**options`."""

    def declare(command: Command) -> Command:
        own = signature(command, eval_str=True)
        kept = [p for p in own.parameters.values() if p.kind is not Parameter.VAR_KEYWORD]
        for name, option in options.items():
            kind: Any = list[str] if option.several else option.kind
            default = False if option.kind is bool else option.default
            hint: Any = Annotated[kind if default is not None else kind | None, typed(option, name)]
            kept.append(Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=hint))
        command.__signature__ = own.replace(parameters=kept)  # type: ignore[attr-defined]
        return command

    return declare


DataDir = Annotated[str | None, typed(DATA_DIR)]
Device = Annotated[str, typed(DEVICE)]
Force = Annotated[bool, typed(FORCE, "force")]
Html = Annotated[str | None, typed(HTML)]
Jobs = Annotated[int, typed(JOBS)]
StoreFile = Annotated[
    str | None, typer.Argument(help="File of results; by default where 'bench' keeps them.")
]
