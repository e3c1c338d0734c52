"""Is a stored result still what the code would compute? Versions of cells against the present code.

A method or the sampler raises its version when its results change; cells of older versions are
stale. They are shown as such and computed again, never deleted.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING

from fewview.episodes.episodes import SAMPLER_VERSION
from fewview.errors import FewviewError
from fewview.results._cells import Cell, Result

if TYPE_CHECKING:
    from fewview.methods.estimator.method import Method

CURRENT, STALE, UNKNOWN = "current", "stale", "unknown"


def version_key(method: Method) -> str:
    """Version of a method and of the methods that it is made of."""
    from fewview.methods.estimator.method import Method

    inner = "+".join(
        f"{type(part).__name__} {version_key(part)}"
        for part in method.get_params(deep=False).values()
        if isinstance(part, Method)
    )
    return f"{method.version}({inner})" if inner else str(method.version)


def status(cell: Cell) -> str:
    """Say whether a cell is `"current"`, `"stale"`, or of an `"unknown"` method."""
    version = _present_version(cell.method, cell.method_class)
    if version is None:
        return UNKNOWN
    same = version == cell.method_version and cell.sampler_version == SAMPLER_VERSION
    return CURRENT if same else STALE


@lru_cache(maxsize=1024)
def _present_version(text: str, method_class: str) -> str | None:
    from fewview.methods.registry import create, name_and_settings

    module, colon, _ = name_and_settings(text)[0].partition(":")
    if colon and module not in sys.modules:
        return None  # to look at results is to run nobody's code
    try:
        method = create(text)
    except (FewviewError, TypeError):
        return None
    return version_key(method) if type(method).__name__ == method_class else None


def statuses(results: Iterable[Result]) -> dict[str, str]:
    """Map content hashes to the status of their cells."""
    return {result.cell.hash: status(result.cell) for result in results}
