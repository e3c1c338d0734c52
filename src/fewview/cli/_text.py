"""Text on the terminal: tables, examples in help pages, lines that are never cut in a pipe."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

Line = Sequence[str]
Command = Callable[..., None]


def examples(*pairs: str) -> str:
    """Write examples for the end of a help page: command, what it does, command, ...

    Example:
        >>> print(examples("fewview run", "the demonstration"))
        Examples:
        <BLANKLINE>
          [bold]fewview run[/bold]  (the demonstration)
    """
    lines = [
        f"  [bold]{command.replace('[', chr(92) + '[')}[/bold]  ({meaning})"
        for command, meaning in zip(pairs[::2], pairs[1::2], strict=True)
    ]
    return "\n\n".join(["Examples:", *lines])


def shows(*pairs: str) -> Callable[[Command], Command]:
    """Give a command examples for the end of its help page."""

    def attach(command: Command) -> Command:
        command.epilog = examples(*pairs)  # type: ignore[attr-defined]
        return command

    return attach


def console(stderr: bool = False) -> Console:
    """Make a console; in a pipe or a file its lines are as long as they need to be."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else 10_000
    return Console(stderr=stderr, width=width, soft_wrap=False, highlight=False)


def leads_to(text: str) -> Callable[[Command], Command]:
    """Let a command end by naming the next one; names in braces are those of its options."""

    def wrap(command: Command) -> Command:
        @wraps(command)
        def ended(*arguments: Any, **options: Any) -> None:
            command(*arguments, **options)
            suggest(text.format(**options))

        return ended

    return wrap


def suggest(command: str) -> None:
    """End a command by naming the next one; for people, not for pipes."""
    print(f"next: {command}", file=sys.stderr)


def print_table(
    header: Line, lines: Sequence[Line], *, title: str = "", right: Sequence[int] = ()
) -> None:
    """Print a table: framed on a terminal, plain aligned columns elsewhere.

    Args:
        header: column names.
        lines: cells as text.
        title: above the table.
        right: columns that are aligned to the right.
    """
    if not sys.stdout.isatty():
        widths = [max(len(text) for text in column) for column in zip(header, *lines, strict=True)]
        if title:
            print(title)
        for line in [header, *lines]:
            texts = (
                text.rjust(width) if k in right else text.ljust(width)
                for k, (text, width) in enumerate(zip(line, widths, strict=True))
            )
            print("  ".join(texts).rstrip())
        return
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=escape(title) or None, title_justify="left", header_style="bold")
    for k, name in enumerate(header):
        table.add_column(escape(name), justify="right" if k in right else "left", overflow="fold")
    for line in lines:
        table.add_row(*(escape(text) for text in line))
    console().print(table)
