"""fewview: few-shot classification from several views when some views are missing.

Names are loaded on first use, so that `import fewview` takes no time.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from fewview._version import __version__ as __version__
from fewview.ground._lazy import lazily
from fewview.ground._waiting import wait_asleep

wait_asleep(os.environ)

if TYPE_CHECKING:
    from fewview.datasets._loading import load as load
    from fewview.engine._checks import check_method as check_method
    from fewview.engine._explaining import Explanation as Explanation
    from fewview.engine._fitted import FittedBase as FittedBase
    from fewview.engine._method import Method as Method
    from fewview.engine._method import load_model as load_model
    from fewview.engine._registry import create as create
    from fewview.engine._registry import register as register
    from fewview.engine._state import State as State
    from fewview.engine._state import Tags as Tags
    from fewview.engine._streaming import BaseStream as BaseStream
    from fewview.episodes._sampler import Episodes as Episodes
    from fewview.episodes._sampler import EpisodeSampler as EpisodeSampler
    from fewview.episodes._task import TaskSpec as TaskSpec
    from fewview.ground._errors import FewviewError as FewviewError
    from fewview.ground._errors import FewviewWarning as FewviewWarning
    from fewview.methods.bavardage import Bavardage as Bavardage
    from fewview.methods.bd_cspn import BDCSPN as BDCSPN
    from fewview.methods.class_impute import ClassImpute as ClassImpute
    from fewview.methods.combined import Combined as Combined
    from fewview.methods.completer import COMPLETER as COMPLETER
    from fewview.methods.concat import Concat as Concat
    from fewview.methods.cpm import CPM as CPM
    from fewview.methods.cpm import CPMGAN as CPMGAN
    from fewview.methods.icmsc import ICMSC as ICMSC
    from fewview.methods.marginal import Marginal as Marginal
    from fewview.methods.match import Match as Match
    from fewview.methods.paddle import Paddle as Paddle
    from fewview.methods.partial_nn import PartialNN as PartialNN
    from fewview.methods.proto import Proto as Proto
    from fewview.methods.ptmap import PTMAP as PTMAP
    from fewview.methods.rfs import RFS as RFS
    from fewview.methods.tim import TIM as TIM
    from fewview.methods.tim import AlphaTIM as AlphaTIM
    from fewview.methods.ugda import UGDA as UGDA
    from fewview.methods.unem import UNEM as UNEM
    from fewview.numerics._batch import EpisodeBatch as EpisodeBatch
    from fewview.samples._data import MultiViewData as MultiViewData
    from fewview.samples._masks import MissingRule as MissingRule

_HOMES = {
    "AlphaTIM": "fewview.methods.tim",
    "BDCSPN": "fewview.methods.bd_cspn",
    "BaseStream": "fewview.engine._streaming",
    "Bavardage": "fewview.methods.bavardage",
    "COMPLETER": "fewview.methods.completer",
    "CPM": "fewview.methods.cpm",
    "CPMGAN": "fewview.methods.cpm",
    "ClassImpute": "fewview.methods.class_impute",
    "Combined": "fewview.methods.combined",
    "Concat": "fewview.methods.concat",
    "EpisodeBatch": "fewview.numerics._batch",
    "EpisodeSampler": "fewview.episodes._sampler",
    "Episodes": "fewview.episodes._sampler",
    "Explanation": "fewview.engine._explaining",
    "FewviewError": "fewview.ground._errors",
    "FewviewWarning": "fewview.ground._errors",
    "FittedBase": "fewview.engine._fitted",
    "ICMSC": "fewview.methods.icmsc",
    "Marginal": "fewview.methods.marginal",
    "Match": "fewview.methods.match",
    "Method": "fewview.engine._method",
    "MissingRule": "fewview.samples._masks",
    "MultiViewData": "fewview.samples._data",
    "PTMAP": "fewview.methods.ptmap",
    "Paddle": "fewview.methods.paddle",
    "PartialNN": "fewview.methods.partial_nn",
    "Proto": "fewview.methods.proto",
    "RFS": "fewview.methods.rfs",
    "State": "fewview.engine._state",
    "TIM": "fewview.methods.tim",
    "Tags": "fewview.engine._state",
    "TaskSpec": "fewview.episodes._task",
    "UGDA": "fewview.methods.ugda",
    "UNEM": "fewview.methods.unem",
    "check_method": "fewview.engine._checks",
    "create": "fewview.engine._registry",
    "load": "fewview.datasets._loading",
    "load_model": "fewview.engine._method",
    "register": "fewview.engine._registry",
}
__all__ = ["__version__", *_HOMES]  # noqa: PLE0604 - plain text, all of it
__getattr__ = lazily(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted(__all__)
