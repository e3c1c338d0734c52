"""fewview: few-shot classification from several views when some views are missing.

Names are loaded on first use, so that `import fewview` takes no time.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fewview._version import __version__

if TYPE_CHECKING:
    from fewview.datasets._loading import load
    from fewview.engine._contract import Method
    from fewview.engine._registry import create
    from fewview.engine._saving import load_model
    from fewview.episodes._sampler import Episodes, EpisodeSampler
    from fewview.episodes._task import TaskSpec
    from fewview.ground._errors import FewviewError, FewviewWarning
    from fewview.methods.proto import Proto
    from fewview.numerics._batch import EpisodeBatch
    from fewview.samples._data import MultiViewData
    from fewview.samples._masks import MissingRule

_HOMES = {
    "EpisodeBatch": "fewview.numerics._batch",
    "EpisodeSampler": "fewview.episodes",
    "Episodes": "fewview.episodes",
    "FewviewError": "fewview.samples",
    "FewviewWarning": "fewview.samples",
    "Method": "fewview.engine._contract",
    "MissingRule": "fewview.samples",
    "MultiViewData": "fewview.samples",
    "Proto": "fewview.methods.proto",
    "TaskSpec": "fewview.episodes",
    "create": "fewview.engine._registry",
    "load": "fewview.datasets",
    "load_model": "fewview.engine._saving",
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
