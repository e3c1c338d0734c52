"""Memories with a limit, what was used longest ago out first: cachetools' `LRUCache`.

A machine that only computes may have numpy, scipy, scikit-learn and torch alone; there a few lines
stand in for the part of cachetools that is used.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any


class PlainLRUCache(OrderedDict[Any, Any]):
    """Stands in for `cachetools.LRUCache`."""

    def __init__(self, maxsize: int) -> None:
        super().__init__()
        self.maxsize = maxsize

    def __getitem__(self, key: Hashable) -> Any:
        value = super().__getitem__(key)
        self.move_to_end(key)
        return value

    def __setitem__(self, key: Hashable, value: Any) -> None:
        super().__setitem__(key, value)
        self.move_to_end(key)
        while len(self) > self.maxsize:
            del self[next(iter(self))]


if TYPE_CHECKING:
    from cachetools import LRUCache
else:
    try:
        from cachetools import LRUCache
    except ImportError:
        LRUCache = PlainLRUCache

__all__ = ["LRUCache"]
