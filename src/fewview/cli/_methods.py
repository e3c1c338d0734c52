"""`fewview methods`: which methods there are, what they assume, what can be set."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from fewview.cli._text import examples, print_table

if TYPE_CHECKING:
    from fewview.engine._method import Method

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
    from fewview.cli._listing import remembered

    header = (
        "method", "class", "transductive", "base classes", "missing views", "assumes balance",
        "random draws", "trained", "version", "what it is",
    )  # fmt: skip
    # Where methods are loaded already, some may have been added by hand.
    loaded = "fewview.engine._registry" in sys.modules
    print_table(header, _lines() if loaded else remembered(_lines))


def _lines() -> list[list[str]]:
    """One line per method."""
    from fewview.engine._registry import get_entry, names

    lines = []
    for known in names():
        entry = get_entry(known)
        factory, method = entry.factory, entry.create()
        tags = method.tags
        lines.append(
            [
                known,
                factory.__name__,
                _yes(tags.transductive),
                _use_of_base(method),
                "handles" if tags.handles_missing else "padded",
                _yes(tags.assumes_balance),
                _yes(not tags.deterministic),
                _yes(tags.trained),
                str(factory.version),
                _first_line(factory.__doc__),
            ]
        )
    return lines


def _use_of_base(method: Method) -> str:
    """What base classes are to a method: needed, learnt from if there are any, or a scale only."""
    from fewview.engine._method import Method

    def learns(part: Method) -> bool:
        parts = [p for p in part.get_params(deep=False).values() if isinstance(p, Method)]
        if parts:
            return any(map(learns, parts))
        # A network that may do without base classes is trained on the task instead, and who
        # imputes nothing needs no donors.
        without = part.tags.trained or getattr(part, "impute", "") == "none"
        return type(part).prepare is not Method.prepare and not without

    if method.tags.needs_base:
        return "needed"
    return "learns from them if given" if learns(method) else "for scaling"


def _one(name: str) -> None:
    import inspect

    from fewview.engine._registry import create, get_entry

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
