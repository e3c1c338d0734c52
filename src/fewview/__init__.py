"""fewview: few-shot classification from several views when some views are missing.

Names are loaded on first use, so that `import fewview` takes no time.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

from fewview._version import __version__ as __version__
from fewview.ground._waiting import wait_asleep

wait_asleep(os.environ)

if TYPE_CHECKING:
    from fewview.datasets._loading import load as load
    from fewview.episodes.batch import EpisodeBatch as EpisodeBatch
    from fewview.episodes.episodes import Episodes as Episodes
    from fewview.episodes.sampler import EpisodeSampler as EpisodeSampler
    from fewview.episodes.task import TaskSpec as TaskSpec
    from fewview.errors import FewviewError as FewviewError
    from fewview.errors import FewviewWarning as FewviewWarning
    from fewview.methods.base import State as State
    from fewview.methods.base import Tags as Tags
    from fewview.methods.bavardage import Bavardage as Bavardage
    from fewview.methods.bd_cspn import BDCSPN as BDCSPN
    from fewview.methods.class_impute import ClassImpute as ClassImpute
    from fewview.methods.combined import Combined as Combined
    from fewview.methods.concat import Concat as Concat
    from fewview.methods.estimator.explanation import Explanation as Explanation
    from fewview.methods.estimator.fitted_base import FittedBase as FittedBase
    from fewview.methods.estimator.laws import check_method as check_method
    from fewview.methods.estimator.method import Method as Method
    from fewview.methods.estimator.method import load_model as load_model
    from fewview.methods.estimator.streaming import BaseStream as BaseStream
    from fewview.methods.marginal import Marginal as Marginal
    from fewview.methods.match import Match as Match
    from fewview.methods.networks.completer import COMPLETER as COMPLETER
    from fewview.methods.networks.cpm import CPM as CPM
    from fewview.methods.networks.cpm import CPMGAN as CPMGAN
    from fewview.methods.networks.icmsc import ICMSC as ICMSC
    from fewview.methods.paddle import Paddle as Paddle
    from fewview.methods.params import param as param
    from fewview.methods.partial_nn import PartialNN as PartialNN
    from fewview.methods.proto import Proto as Proto
    from fewview.methods.ptmap import PTMAP as PTMAP
    from fewview.methods.registry import create as create
    from fewview.methods.registry import register as register
    from fewview.methods.rfs import RFS as RFS
    from fewview.methods.tim import TIM as TIM
    from fewview.methods.tim import AlphaTIM as AlphaTIM
    from fewview.methods.ugda import UGDA as UGDA
    from fewview.methods.unem import UNEM as UNEM
    from fewview.samples._data import MultiViewData as MultiViewData
    from fewview.samples._masks import MissingRule as MissingRule

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
