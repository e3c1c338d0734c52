"""`fewview methods`: which methods there are, what they assume, what can be set.

Making the list loads torch and every method, so it is remembered in the cache folder under a hash
of the files that it was made from: a changed file makes it anew. Nothing depends on it: a cache
that cannot be read or written is passed over.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

import fewview
from fewview.cli._declared import Wide
from fewview.cli._text import leads_to, print_table, print_text, shows
from fewview.datasets._catalogue import cache_folder
from fewview.errors import FewviewError
from fewview.ground._whole_files import replacing

LISTING = "methods.json"
Lines = list[list[str]]


@leads_to("fewview advise DATA, for what suits data of your own")
@shows(
    "fewview methods", "all of them",
    "fewview methods ptmap", "what one does, and its parameters",
)  # fmt: skip
def methods(
    name: Annotated[
        str | None, typer.Argument(help="Show one method with its parameters.", show_default=False)
    ] = None,
    wide: Wide = False,
) -> None:
    """List the methods and what they are: yes and no as their authors declared it."""
    if name is not None:
        _one(name)
        return
    header = (
        "method", "class", "queries together", "base classes", "missing views", "assumes balance",
        "random draws", "trained", "version", "what it is",
    )  # fmt: skip
    # Where methods are loaded already, some may have been added by hand.
    loaded = "fewview.methods.registry" in sys.modules
    lines = _lines() if loaded else remembered(_lines)
    print_table(header, lines, drop=(1, 8, 6, 7, 4, 5), text={3: 14, 9: 34}, wide=wide)


def _lines() -> Lines:
    """One line per method."""
    from fewview.methods.registry import get_entry, names

    lines = []
    for known in names():
        entry = get_entry(known)
        factory, method = entry.factory, entry.create()
        tags = method.tags
        lines.append(
            [
                known,
                factory.__name__,
                method.looks_at_queries,
                method.use_of_base,
                "handles" if tags.handles_missing else "padded",
                "partly" if 0 < tags.balanced < 1 else _yes(tags.balanced == 1),
                _yes(tags.random),
                _yes(tags.trained),
                str(method.version),
                _first_line(factory.__doc__),
            ]
        )
    return lines


def _one(name: str) -> None:
    import inspect

    from fewview.methods.params import rules_of
    from fewview.methods.registry import create, get_entry

    entry, method = get_entry(name), create(name)
    print(f"{name}: {entry.factory.__name__}, version {method.version}\n")
    _print_pages(inspect.cleandoc(entry.factory.__doc__ or ""))
    print("\nParameters as set by this name (type them after colons):")
    tuned = {k: r["tune"] for k, r in rules_of(entry.factory).items() if r.get("tune")}
    for key, value in sorted(method.get_params(deep=False).items()):
        if key != "base":
            options = "|".join(map(str, tuned[key])) if key in tuned else ""
            print(f"  {key}={value}" + (f"   (--tune tries {options})" if options else ""))


def _print_pages(text: str) -> None:
    """Print a docstring; on a terminal its paragraphs and items are broken where that ends."""
    for part in text.split("\n\n") if sys.stdout.isatty() else []:
        lines: list[str] = []
        for line in part.split("\n"):
            deep = len(line) - len(line.lstrip())
            goes_on = deep >= 8 or (not deep and line[:1] != "-")
            if lines and goes_on and ">>>" not in part:
                lines[-1] += " " + line.strip()
            else:
                lines.append(line)
        for line in lines:
            print_text(line, len(line) - len(line.lstrip()) + 4 * line.startswith(" "))
        print()
    if not sys.stdout.isatty():
        print(text)


def _yes(value: bool) -> str:
    return "yes" if value else "-"


def _first_line(text: str | None) -> str:
    return (text or "").strip().partition("\n")[0].rstrip(".")


def remembered(make: Callable[[], Lines], folder: Path | None = None) -> Lines:
    """Give what `make` gave last time, unless a file it depends on has changed."""
    path = (folder or cache_folder(sys.platform)) / LISTING
    key = sources_key()
    with suppress(OSError, ValueError, KeyError, TypeError):
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["key"] == key:
            return [[str(cell) for cell in line] for line in content["lines"]]
    lines = make()
    registry = sys.modules.get("fewview.methods.registry")
    if registry is not None and registry.broken:
        return lines  # a package could not be read; it may be mended next time
    with suppress(OSError, FewviewError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary:
            text = json.dumps({"key": key, "lines": lines})
            temporary.write_text(text, encoding="utf-8")
    return lines


def sources_key() -> str:
    """Hash of names, sizes and times of all files that methods come from, other packages' too."""
    folder = Path(fewview.__file__).parent
    packages = ("numerics", "episodes", "methods")
    files = [file for name in packages for file in sorted((folder / name).rglob("*.py"))]
    files.append(folder / "cli" / "_methods.py")
    parts = [fewview.__version__]
    for point in entry_points(group="fewview.methods"):
        parts.append(f"{point.name} {point.value}")
        with suppress(Exception):  # looking for a module runs the packages around it
            spec = find_spec(point.module)
            if spec is not None and spec.origin:
                files.append(Path(spec.origin))
    for file in files:
        with suppress(OSError):
            state = file.stat()
            parts.append(f"{file} {state.st_size} {state.st_mtime_ns}")
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()
