"""Memories with a limit, what was used longest ago out first: cachetools' `LRUCache` and `cached`.

A machine that only computes may have numpy, scipy, scikit-learn and torch alone; there a few lines
stand in for the part of cachetools that is used.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from contextlib import AbstractContextManager
from functools import update_wrapper
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


def plain_cached(
    cache: Any, key: Callable[..., Hashable], lock: AbstractContextManager[Any]
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Stands in for `cachetools.cached`."""

    def remember(function: Callable[..., Any]) -> Callable[..., Any]:
        def answer(*given: Any, **named: Any) -> Any:
            question = key(*given, **named)
            with lock:
                if question in cache:
                    return cache[question]
            found = function(*given, **named)
            with lock:
                return cache.setdefault(question, found)

        answer.cache = cache  # type: ignore[attr-defined]
        return update_wrapper(answer, function)

    return remember


if TYPE_CHECKING:
    from cachetools import LRUCache, cached
else:
    try:
        from cachetools import LRUCache, cached
    except ImportError:
        LRUCache, cached = PlainLRUCache, plain_cached

__all__ = ["LRUCache", "cached"]
