from __future__ import annotations

import cachetools
import numpy as np
import pytest

from fewview.ground._memory import LRUCache, PlainLRUCache


def test_cachetools_is_used_where_it_is() -> None:
    assert LRUCache is cachetools.LRUCache


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
