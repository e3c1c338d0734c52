"""How are queries classified? The contract in `base.py`, one file per method, the registry."""

from fewview.engine._contract import Method, Prepared, State, Tags
from fewview.engine._registry import create, expand, names, register

__all__ = ["Method", "Prepared", "State", "Tags", "create", "expand", "names", "register"]
