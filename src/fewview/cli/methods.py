"""`fewview methods`: which methods there are, what they assume, what can be set."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from fewview.cli.text import examples, print_table

EPILOG = examples(
    "fewview methods", "all of them",
    "fewview methods ptmap", "what one does, and its parameters",
)  # fmt: skip


def methods(
    name: Annotated[
        str | None, typer.Argument(help="Show one method with its parameters.", show_default=False)
    ] = None,
) -> None:
    """List the methods and what they are: yes and no as their authors declared it."""
    if name is not None:
        _one(name)
        return
    from fewview.cli.listing import remembered

    header = (
        "method", "class", "transductive", "base classes", "missing views", "assumes balance",
        "random draws", "trained", "version", "what it is",
    )  # fmt: skip
    # Where methods are loaded already, some may have been added by hand.
    loaded = "fewview.methods.registry" in sys.modules
    print_table(header, _lines() if loaded else remembered(_lines))


def _lines() -> list[list[str]]:
    """One line per method."""
    from fewview.methods.registry import get_entry, names

    lines = []
    for known in names():
        entry = get_entry(known)
        factory, tags = entry.factory, entry.create().tags
        lines.append(
            [
                known,
                factory.__name__,
                _yes(tags.transductive),
                "needed" if tags.needs_base else "for scaling",
                "handles" if tags.handles_missing else "padded",
                _yes(tags.assumes_balance),
                _yes(not tags.deterministic),
                _yes(tags.trained),
                str(factory.version),
                _first_line(factory.__doc__),
            ]
        )
    return lines


def _one(name: str) -> None:
    import inspect

    from fewview.methods.registry import create, get_entry

    entry, method = get_entry(name), create(name)
    print(f"{name}: {entry.factory.__name__}, version {entry.factory.version}\n")
    print(inspect.cleandoc(entry.factory.__doc__ or ""))
    print("\nParameters as set by this name (type them after colons):")
    tuned = entry.factory.tune_grid
    for key, value in sorted(method.get_params(deep=False).items()):
        if key != "base":
            options = "|".join(map(str, tuned[key])) if key in tuned else ""
            print(f"  {key}={value}" + (f"   (--tune tries {options})" if options else ""))


def _yes(value: bool) -> str:
    return "yes" if value else "-"


def _first_line(text: str | None) -> str:
    return (text or "").strip().partition("\n")[0].rstrip(".")
