"""Hashes of samples by their values, and the order of samples that follows from them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fewview.numerics.random_keys import GOLDEN, UInt64Array, mix, raw, stream_key
from fewview.samples._data import MultiViewData


def row_keys(data: MultiViewData, seed: int = 0) -> UInt64Array:
    """Hash of every sample by all of its values, uint64 [n]; identical samples have one hash."""
    state = np.full(len(data), stream_key("reservoir", seed), np.uint64)
    for view, (name, block) in enumerate(data.views.items()):
        if block.dtype.itemsize not in (4, 8):
            block = block.astype(np.float32)
        whole = block.shape[1] * block.dtype.itemsize % 8 == 0  # two float32 are hashed as one
        kind = np.uint64 if whole else np.uint32
        words = block.shape[1] * block.dtype.itemsize // np.dtype(kind).itemsize
        key = np.array(stream_key("reservoir", seed, name), np.uint64)
        factors = raw(key, words) | np.uint64(1)
        sums = np.zeros(len(data), np.uint64)
        # Whole numbers, so that the sum does not depend on how rows are cut into parts.
        for start in range(0, len(data), 1024):
            rows = slice(start, start + 1024)
            bits = np.ascontiguousarray(block[rows]).view(kind)
            sums[rows] = bits.astype(np.uint64, copy=False) @ factors
        sums[~data.mask[:, view]] = 0
        state = mix((state ^ mix(sums)) + np.uint64(GOLDEN))
    return state


def content_order(data: MultiViewData) -> NDArray[np.intp]:
    """An order of samples that depends on what they are, not on how they came."""
    with np.errstate(over="ignore"):
        blocks = {v: data.view(v).astype(np.float32) + 0.0 for v in sorted(data.view_names)}
    mask = data.mask[:, [data.view_names.index(view) for view in blocks]]
    return np.argsort(row_keys(MultiViewData.unchecked(blocks, mask)), kind="stable")


def in_order(data: MultiViewData) -> MultiViewData:
    """Samples in `content_order`: random numbers are keyed by position."""
    return data[content_order(data)]
