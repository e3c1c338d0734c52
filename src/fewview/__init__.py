"""fewview: few-shot classification from several views when some views are missing.

Names are loaded on first use, so that `import fewview` takes no time.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

from fewview._version import __version__ as __version__
from fewview.ground._waiting import wait_asleep

wait_asleep(os.environ)

# Name -> the module that has it.
_HOMES = {
    "AlphaTIM": "fewview.methods.tim",
    "BDCSPN": "fewview.methods.bd_cspn",
    "BaseStream": "fewview.methods.estimator.streaming",
    "Bavardage": "fewview.methods.bavardage",
    "COMPLETER": "fewview.methods.networks.completer",
    "CPM": "fewview.methods.networks.cpm",
    "CPMGAN": "fewview.methods.networks.cpm",
    "ClassImpute": "fewview.methods.class_impute",
    "Combined": "fewview.methods.combined",
    "Concat": "fewview.methods.concat",
    "EpisodeBatch": "fewview.episodes.batch",
    "EpisodeSampler": "fewview.episodes.sampler",
    "Episodes": "fewview.episodes.episodes",
    "Explanation": "fewview.methods.estimator.explanation",
    "FewviewError": "fewview.errors",
    "FewviewWarning": "fewview.errors",
    "FittedBase": "fewview.methods.estimator.fitted_base",
    "ICMSC": "fewview.methods.networks.icmsc",
    "Marginal": "fewview.methods.marginal",
    "Match": "fewview.methods.match",
    "Method": "fewview.methods.estimator.method",
    "MissingRule": "fewview.samples._masks",
    "MultiViewData": "fewview.samples._data",
    "PTMAP": "fewview.methods.ptmap",
    "Paddle": "fewview.methods.paddle",
    "PartialNN": "fewview.methods.partial_nn",
    "Proto": "fewview.methods.proto",
    "RFS": "fewview.methods.rfs",
    "State": "fewview.methods.base",
    "TIM": "fewview.methods.tim",
    "Tags": "fewview.methods.base",
    "TaskSpec": "fewview.episodes.task",
    "UGDA": "fewview.methods.ugda",
    "UNEM": "fewview.methods.unem",
    "check_method": "fewview.methods.estimator.laws",
    "create": "fewview.methods.registry",
    "load": "fewview.datasets._loading",
    "load_model": "fewview.methods.estimator.method",
    "param": "fewview.methods.params",
    "register": "fewview.methods.registry",
}
__all__ = ["__version__", *_HOMES]  # noqa: PLE0604 - plain text, all of it


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'fewview' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
