"""What stands behind every method: the contract, running it on tasks, its estimator face.

A method's author needs `Method`, `State`, `Tags` and `register`, which `fewview` exports too; names
are loaded on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fewview.ground._lazy import lazily

if TYPE_CHECKING:
    from fewview.engine._checks import CHECKS as CHECKS
    from fewview.engine._checks import check_method as check_method
    from fewview.engine._method import Method as Method
    from fewview.engine._method import load_model as load_model
    from fewview.engine._registry import create as create
    from fewview.engine._registry import names as names
    from fewview.engine._registry import register as register
    from fewview.engine._state import Prepared as Prepared
    from fewview.engine._state import State as State
    from fewview.engine._state import Tags as Tags

_HOMES = {
    "CHECKS": "fewview.engine._checks",
    "Method": "fewview.engine._method",
    "Prepared": "fewview.engine._state",
    "State": "fewview.engine._state",
    "Tags": "fewview.engine._state",
    "check_method": "fewview.engine._checks",
    "create": "fewview.engine._registry",
    "load_model": "fewview.engine._method",
    "names": "fewview.engine._registry",
    "register": "fewview.engine._registry",
}
__all__ = [*_HOMES]  # noqa: PLE0604 - plain text, all of it
__getattr__ = lazily(__name__, _HOMES)
