"""Random numbers that are the same on every machine, in any order and in any batch size.

A counter-based generator: SplitMix64 (Steele, Lea and Flood 2014) read at random positions. The
state of a stream is a hash of what the numbers are for; number `i` of a stream is the mix of
`state + (i + 1) * golden`. `tensor_random.py` has the same in torch. Every digit that was ever
published depends on this file and on the words in `stream_key`: neither may change.
"""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

GOLDEN = 0x9E3779B97F4A7C15
MIX_1 = 0xBF58476D1CE4E5B9
MIX_2 = 0x94D049BB133111EB

UInt64Array = NDArray[np.uint64]


def mix(state: UInt64Array) -> UInt64Array:
    """Finish one SplitMix64 step: scramble 64-bit states of any shape."""
    state = np.asarray(state, dtype=np.uint64)
    with np.errstate(over="ignore"):  # wrapping around is the point; numpy warns for scalars only
        state = (state ^ (state >> np.uint64(30))) * np.uint64(MIX_1)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(MIX_2)
    out: UInt64Array = state ^ (state >> np.uint64(31))
    return out


def stream_key(*parts: object) -> int:
    """Hash what a stream is for into a 64-bit integer, the same on every machine."""
    text = "\x1f".join(str(part) for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def combine(states: UInt64Array, key: int | UInt64Array) -> UInt64Array:
    """Derive one stream per state for the purpose `key` (a `stream_key`, or many of them)."""
    return mix(mix(np.asarray(states, dtype=np.uint64)) ^ np.asarray(key, dtype=np.uint64))


def raw(states: UInt64Array, count: int | tuple[int, ...]) -> UInt64Array:
    """Draw raw 64-bit numbers: shape [*states.shape, *count]."""
    shape = (count,) if isinstance(count, int) else tuple(count)
    size = int(np.prod(shape, dtype=np.int64))
    steps = np.arange(1, size + 1, dtype=np.uint64) * np.uint64(GOLDEN)
    states = np.asarray(states, dtype=np.uint64)
    return mix(states[..., None] + steps).reshape(*states.shape, *shape)


def uniform(states: UInt64Array, count: int | tuple[int, ...]) -> NDArray[np.float64]:
    """Draw numbers uniform on the open interval (0, 1), 52 bits each."""
    bits = raw(states, count) >> np.uint64(12)  # with 53 bits the largest would round to 1
    return (bits.astype(np.float64) + 0.5) * 2.0**-52


def smallest(keys: UInt64Array, count: int) -> NDArray[np.int64]:
    """Return the positions of the `count` smallest keys along the last axis, smallest first.

    This is how samples are drawn without replacement: sorting raw keys is stable across versions
    of numpy, `Generator.permutation` is not promised to be.
    """
    if count < keys.shape[-1]:
        chosen = np.argpartition(keys, count, axis=-1)[..., :count]
        order = np.argsort(np.take_along_axis(keys, chosen, -1), axis=-1, kind="stable")
        out: NDArray[np.int64] = np.take_along_axis(chosen, order, -1)
        return out
    return np.argsort(keys, axis=-1, kind="stable")
