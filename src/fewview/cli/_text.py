"""Text on the terminal: tables, examples in help pages, lines that are never cut in a pipe."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from textwrap import wrap
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


def paragraphs(text: str) -> str:
    """Text without line breaks inside paragraphs: the terminal breaks them where it ends.

    Example:
        >>> paragraphs("One line\\nand more.\\n\\n    Another.")
        'One line and more.\\n\\nAnother.'
    """
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))


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
    """Let a command end by naming the next one.

    Names in braces are those of its options; what was not given is left out.
    """

    def wrap(command: Command) -> Command:
        @wraps(command)
        def ended(*arguments: Any, **options: Any) -> None:
            command(*arguments, **options)
            given = {name: "" if value is None else value for name, value in options.items()}
            suggest(text.format(**given).replace("  ", " "))

        return ended

    return wrap


def suggest(command: str) -> None:
    """End a command by naming the next one; for people, not for pipes."""
    say(f"next: {command}")


def print_table(
    header: Line,
    lines: Sequence[Line],
    *,
    title: str = "",
    right: Sequence[int] = (),
    drop: Sequence[int] = (),
    text: Mapping[int, int] | None = None,
    wide: bool | None = None,
) -> None:
    """Print a table: as wide as the terminal at most, whole in a pipe or a file.

    Args:
        header: column names.
        lines: cells as text.
        title: above the table.
        right: columns that are aligned to the right.
        drop: columns that a narrow terminal does without, the first ones first; then the last ones.
        text: columns of sentences, which may take several lines, and how narrow they may become.
        wide: print all columns on a terminal too; None if the command has no such option.
    """
    if wide or not sys.stdout.isatty():
        widths = [max(len(cell) for cell in column) for column in zip(header, *lines, strict=True)]
        if title:
            print(title)
        for line in [header, *lines]:
            texts = (
                cell.rjust(width) if k in right else cell.ljust(width)
                for k, (cell, width) in enumerate(zip(line, widths, strict=True))
            )
            print("  ".join(texts).rstrip())
        return
    from rich.markup import escape
    from rich.table import Table

    terminal = console()
    names = [
        name if k in (text or {}) else "\n".join(_broken(name, [line[k] for line in lines]))
        for k, name in enumerate(header)
    ]
    shown, gap = fitting(names, lines, terminal.width, drop, text or {})
    table = Table(title=escape(title) or None, title_justify="left", header_style="bold underline",
                  box=None, pad_edge=False, padding=(0, gap, 0, 0))  # fmt: skip
    for k in shown:
        justify: Any = "right" if k in right else "left"
        table.add_column(escape(names[k]), justify=justify, overflow="fold",
                         no_wrap=k not in (text or {}))  # fmt: skip
    for line in lines:
        table.add_row(*(escape(line[k]) for k in shown))
    terminal.print(table)
    if left_out := [name for k, name in enumerate(header) if k not in shown]:
        how = "a wider terminal or a pipe" if wide is None else "--wide or a pipe"
        say(f"left out for want of room: {', '.join(left_out)} ({how} shows all)")


def print_text(text: str, indent: int = 0, *, stderr: bool = False) -> None:
    """Print lines: broken between words on a terminal, what follows indented; whole in a pipe."""
    stream = sys.stderr if stderr else sys.stdout
    if stream.isatty():
        # Addresses stay whole, so that they can be copied.
        whole: dict[str, Any] = {"break_on_hyphens": False, "break_long_words": False}
        width, more = console(stderr).width, " " * indent
        lines = (wrap(line, width, subsequent_indent=more, **whole) for line in text.split("\n"))
        text = "\n".join("\n".join(some) for some in lines)
    print(text, file=stream, flush=stderr)


def _broken(name: str, cells: Sequence[str]) -> list[str]:
    """The name of a column in two lines, where that makes it narrower."""
    widest = max((len(part) for cell in cells for part in cell.split("\n")), default=0)
    half = wrap(name, max(widest, (len(name) + 1) // 2 + 1), break_long_words=False)
    return half if len(half) == 2 else [name]


def fitting(
    header: Line,
    lines: Sequence[Line],
    room: int,
    drop: Sequence[int],
    text: Mapping[int, int],
) -> tuple[list[int], int]:
    """Choose the columns that a terminal has room for, and the gap between them.

    Example:
        >>> fitting(["method", "rank", "accuracy"], [["proto", "1", "84.2"]], 18, [1], {})
        ([0, 2], 1)
    """
    widths = []
    for k, column in enumerate(zip(header, *lines, strict=True)):
        wide = max(len(part) for cell in column for part in cell.split("\n"))
        widths.append(min(wide, text.get(k, wide)))
    shown = list(range(len(header)))
    if sum(widths) + 2 * (len(widths) - 1) <= room:
        return shown, 2
    last = [k for k in reversed(shown) if k not in drop and k > 0]
    for k in (*drop, *last):
        if sum(widths[j] + 1 for j in shown) - 1 <= room:
            break
        shown.remove(k)
    return shown, 1


def say(text: str) -> None:
    """Tell people, not pipes, in lines that break between words."""
    print_text(text, stderr=True)
