"""fewview: few-shot classification from several views when some views are missing.

Names are loaded on first use, so that `import fewview` takes no time.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fewview._version import __version__

if TYPE_CHECKING:
    from fewview.datasets import load
    from fewview.episodes import Episodes, EpisodeSampler, TaskSpec
    from fewview.episodes.batch import EpisodeBatch
    from fewview.methods.base import Method
    from fewview.methods.persistence import load_model
    from fewview.methods.proto import Proto
    from fewview.methods.registry import create
    from fewview.views import FewviewError, FewviewWarning, MissingRule, MultiViewData

_HOMES = {
    "EpisodeBatch": "fewview.episodes.batch",
    "EpisodeSampler": "fewview.episodes",
    "Episodes": "fewview.episodes",
    "FewviewError": "fewview.views",
    "FewviewWarning": "fewview.views",
    "Method": "fewview.methods.base",
    "MissingRule": "fewview.views",
    "MultiViewData": "fewview.views",
    "Proto": "fewview.methods.proto",
    "TaskSpec": "fewview.episodes",
    "create": "fewview.methods.registry",
    "load": "fewview.datasets",
    "load_model": "fewview.methods.persistence",
}

__all__ = [
    "EpisodeBatch",
    "EpisodeSampler",
    "Episodes",
    "FewviewError",
    "FewviewWarning",
    "Method",
    "MissingRule",
    "MultiViewData",
    "Proto",
    "TaskSpec",
    "__version__",
    "create",
    "load",
    "load_model",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'fewview' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
