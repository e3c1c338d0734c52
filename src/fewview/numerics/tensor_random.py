"""Random numbers inside methods: keyed by (task seed, stream name, index), in torch.

The generator of `random_keys.py` in integer torch operations, so that a batch of one equals a batch
of many and a CPU equals a GPU. No method touches a global generator.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fewview.numerics.random_keys import GOLDEN, MIX_1, MIX_2, stream_key


def streams(seeds: Tensor, *names: object) -> Tensor:
    """Derive one stream per seed for the purpose `names`; int64, the shape of `seeds`.

    Example:
        >>> streams(torch.arange(3), "anchors").shape
        torch.Size([3])
    """
    return _mix_(_mix_(seeds.clone()) ^ _signed(stream_key(*names)))


def substreams(states: Tensor, index: Tensor) -> Tensor:
    """Derive a stream per (state, index); the shapes are broadcast."""
    return _mix_(_mix_(states.clone()) ^ _mix_(index + _signed(GOLDEN)))


def raw(states: Tensor, count: int) -> Tensor:
    """Draw raw 64-bit numbers as int64, [*states.shape, count]."""
    steps = torch.arange(1, count + 1, device=states.device) * _signed(GOLDEN)
    return _mix_(states[..., None] + steps)


def uniform(
    states: Tensor, shape: int | tuple[int, ...], dtype: torch.dtype = torch.float32
) -> Tensor:
    """Draw uniform numbers on [0, 1), `[*states.shape, *shape]`.

    Example:
        >>> bool((uniform(torch.arange(4), 100) < 1).all())
        True
    """
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    bits = raw(states, math.prod(shape))
    digits = 24 if dtype == torch.float32 else 53
    bits >>= 64 - digits
    bits &= (1 << digits) - 1
    return (bits.to(dtype) * 2.0**-digits).reshape(*states.shape, *shape)


def normal(
    states: Tensor, shape: int | tuple[int, ...], dtype: torch.dtype = torch.float32
) -> Tensor:
    """Draw standard normal numbers, `[*states.shape, *shape]` (Box and Muller 1958).

    Example:
        >>> z = normal(torch.arange(10), 1000)
        >>> bool(abs(z.mean()) < 0.05) and bool(abs(z.std() - 1) < 0.05)
        True
    """
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    count = math.prod(shape)
    half = (count + 1) // 2
    flat = states.reshape(-1)
    out = torch.empty((flat.numel(), 2 * half), dtype=dtype, device=states.device)
    # On a CPU few numbers at a time stay in its cache, which is where the time goes; a GPU has no
    # such cache and wants large pieces.
    chunk = 1 << (18 if states.device.type == "cpu" else 24)
    rows, columns = max(1, chunk // max(half, 1)), max(1, min(half, chunk))
    steps = torch.arange(1, half + 1, device=states.device) * _signed(GOLDEN)
    for top in range(0, flat.numel(), rows):
        for left in range(0, half, columns):
            right = min(left + columns, half)
            bits = _mix_(flat[top : top + rows, None] + steps[left:right])
            # A 64-bit number gives a radius (its upper half, + 0.5: never the log of 0) and an
            # angle (its lower half).
            radius = ((bits >> 32) & 0xFFFFFFFF).to(dtype)
            radius += 0.5
            radius *= 2.0**-32
            radius.log_().mul_(-2.0).clamp_(min=0.0).sqrt_()
            bits &= 0xFFFFFFFF
            angle = bits.to(dtype)
            angle *= 2 * math.pi * 2.0**-32
            block = out[top : top + rows]
            torch.mul(radius, angle.cos(), out=block[:, left:right])
            torch.mul(radius, angle.sin_(), out=block[:, half + left : half + right])
    return out[:, :count].reshape(*states.shape, *shape)


def _mix_(state: Tensor) -> Tensor:
    """SplitMix64's finaliser, in place on int64."""
    for shift, factor in ((30, MIX_1), (27, MIX_2), (31, None)):
        shifted = state >> shift
        shifted &= (1 << (64 - shift)) - 1  # a logical shift: torch's is arithmetic
        state ^= shifted
        if factor is not None:
            state *= _signed(factor)
    return state


def _signed(value: int) -> int:
    """Return the int64 with the same bits as an unsigned 64-bit integer."""
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >= 1 << 63 else value
