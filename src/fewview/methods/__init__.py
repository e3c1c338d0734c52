"""How are queries classified? One file or folder per method, and nothing else.

A method that is added here is written into `CATALOGUE`, so that it is found by its name without
loading the others; a method of your own needs nothing but `@register`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fewview.ground._lazy import lazily

if TYPE_CHECKING:
    from fewview.engine._method import Method as Method
    from fewview.engine._registry import create as create
    from fewview.engine._registry import expand as expand
    from fewview.engine._registry import names as names
    from fewview.engine._registry import register as register
    from fewview.engine._state import Prepared as Prepared
    from fewview.engine._state import State as State
    from fewview.engine._state import Tags as Tags

# Name of a method -> file or folder that it is in.
CATALOGUE = {
    "alpha-tim": "tim",
    "bavardage": "bavardage",
    "bd-cspn": "bd_cspn",
    "class-impute": "class_impute",
    "completer": "completer",
    "concat-hgb": "concat",
    "concat-logistic": "concat",
    "concat-nn": "concat",
    "cpm": "cpm",
    "cpm-gan": "cpm",
    "icmsc": "icmsc",
    "marginal": "marginal",
    "match": "match",
    "paddle": "paddle",
    "partial-nn": "partial_nn",
    "proto": "proto",
    "ptmap": "ptmap",
    "ptmap+ugda": "combined",
    "rfs": "rfs",
    "rfs+ugda": "combined",
    "tim": "tim",
    "tim-adm": "tim",
    "ugda": "ugda",
    "unem": "unem",
}
# The same of methods that need a package which fewview does not bring along: found by their names,
# and in no list.
OPTIONAL = {"tabicl": "concat", "tabpfn": "concat"}

_HOMES = {
    "Method": "fewview.engine._method",
    "Prepared": "fewview.engine._state",
    "State": "fewview.engine._state",
    "Tags": "fewview.engine._state",
    "create": "fewview.engine._registry",
    "expand": "fewview.engine._registry",
    "names": "fewview.engine._registry",
    "register": "fewview.engine._registry",
}
__all__ = ["CATALOGUE", "OPTIONAL", *_HOMES]  # noqa: PLE0604 - plain text, all of it
__getattr__ = lazily(__name__, _HOMES)
