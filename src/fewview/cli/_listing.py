"""The list of methods, remembered between runs: making it loads torch and every method.

What was listed is kept in the cache folder under a hash of the files that it was made from, so a
changed file makes it anew. Nothing depends on it: a cache that cannot be read or written is passed
over.
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

import fewview
from fewview.datasets._catalogue import cache_folder
from fewview.ground._errors import FewviewError
from fewview.ground._whole_files import replacing

FILE = "methods.json"
Lines = list[list[str]]


def remembered(make: Callable[[], Lines], folder: Path | None = None) -> Lines:
    """Give what `make` gave last time, unless a file it depends on has changed.

    Args:
        make: makes the list.
        folder: where it is kept; by default the cache folder.
    """
    path = (folder or cache_folder(sys.platform)) / FILE
    key = sources_key()
    with suppress(OSError, ValueError, KeyError, TypeError):
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["key"] == key:
            return [[str(cell) for cell in line] for line in content["lines"]]
    lines = make()
    registry = sys.modules.get("fewview.engine._registry")
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
    rooms = ("numerics", "engine", "methods")
    files = [file for room in rooms for file in sorted((folder / room).rglob("*.py"))]
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
