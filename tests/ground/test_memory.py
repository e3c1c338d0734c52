from __future__ import annotations

from threading import Lock

import cachetools
import numpy as np
import pytest

from fewview.ground._memory import LRUCache, PlainLRUCache, cached, plain_cached


def test_cachetools_is_used_where_it_is() -> None:
    assert LRUCache is cachetools.LRUCache
    assert cached is cachetools.cached


@pytest.mark.parametrize("size", [1, 3, 8])
def test_the_plain_one_keeps_what_cachetools_keeps(size: int) -> None:
    rng = np.random.default_rng(size)
    plain, other = PlainLRUCache(size), cachetools.LRUCache(size)
    for key, write in zip(rng.integers(0, 12, 400).tolist(), rng.random(400) < 0.5, strict=True):
        assert (key in plain) == (key in other)
        if write:
            plain[key] = other[key] = key
        elif key in plain:
            assert plain[key] == other[key]
        assert sorted(plain) == sorted(other)
        assert len(plain) <= size


@pytest.mark.parametrize("remember", [cachetools.cached, plain_cached])
def test_the_same_question_is_answered_once(remember) -> None:  # type: ignore[no-untyped-def]
    asked: list[int] = []
    kind = cachetools.LRUCache if remember is cachetools.cached else PlainLRUCache

    @remember(kind(2), key=lambda number, word="": number % 10, lock=Lock())
    def ask(number: int, word: str = "") -> int:
        asked.append(number)
        return number

    assert [ask(1), ask(11, word="x"), ask(2), ask(1), ask(3), ask(2)] == [1, 1, 2, 1, 3, 2]
    assert asked == [1, 2, 3, 2]
    assert ask.__name__ == "ask"
    ask.cache.clear()
    assert ask(11) == 11
