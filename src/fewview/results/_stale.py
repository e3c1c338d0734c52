"""Is a stored result still what the code would compute? Versions of cells against the present code.

A method or the sampler raises its version when its results change; cells of older versions are
stale. They are shown as such and computed again, never deleted.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING

from fewview.episodes._sampler import SAMPLER_VERSION
from fewview.ground._errors import FewviewError
from fewview.results._cells import Cell, Result

if TYPE_CHECKING:
    from fewview.engine._method import Method

CURRENT, STALE, UNKNOWN = "current", "stale", "unknown"


def version_key(method: Method, digest: str = "") -> str:
    """Version of a method, of the methods that it is made of, and of its own code if it has any."""
    from fewview.engine._method import Method

    parts = [value for value in method.get_params(deep=False).values() if isinstance(value, Method)]
    inner = "+".join(f"{type(part).__name__} {version_key(part)}" for part in parts)
    key = f"{method.version}({inner})" if inner else str(method.version)
    return f"{key} {digest}" if digest else key


def status(cell: Cell) -> str:
    """Say whether a cell is `"current"`, `"stale"`, or of an `"unknown"` method."""
    from fewview.engine._registry import is_in_file, present_digest

    digest = present_digest(cell.method)
    if digest is None:
        return UNKNOWN
    if is_in_file(cell.method):
        # Looking at results runs nobody's file: the version in it is part of its content.
        version: str | None = f"{cell.method_version.partition(' ')[0]} {digest}"
    else:
        version = _present_version(cell.method, cell.method_class, digest)
    if version is None:
        return UNKNOWN
    same = version == cell.method_version and cell.sampler_version == SAMPLER_VERSION
    return CURRENT if same else STALE


@lru_cache(maxsize=1024)
def _present_version(text: str, method_class: str, digest: str) -> str | None:
    from fewview.engine._registry import create

    try:
        method = create(text)
    except (FewviewError, TypeError):
        return None
    return version_key(method, digest) if type(method).__name__ == method_class else None


def statuses(results: Iterable[Result]) -> dict[str, str]:
    """Map content hashes to the status of their cells."""
    return {result.cell.hash: status(result.cell) for result in results}
