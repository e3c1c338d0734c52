"""How are queries classified? Methods alone: one file each, or a folder.

The contract that they fulfil and their registry, offered here too, are in `engine/`.
"""

from fewview.engine._contract import Method, Prepared, State, Tags
from fewview.engine._registry import create, expand, names, register

__all__ = ["Method", "Prepared", "State", "Tags", "create", "expand", "names", "register"]
