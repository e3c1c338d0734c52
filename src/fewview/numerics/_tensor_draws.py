"""Random numbers inside methods: keyed by (task seed, stream name, index), in torch.

The generator of `ground/_draws.py` (SplitMix64 at random positions) in integer torch operations,
so that a batch of one equals a batch of many and a CPU equals a GPU. Nothing in `methods/` touches
a global generator.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import torch
from torch import Tensor

from fewview.ground._draws import GOLDEN, MIX_1, MIX_2, stream_key

# Numbers handled at once: small enough to stay in cache, which is where the time goes on a CPU.
CHUNK = 1 << 18
# A GPU has no such cache to mind; few large pieces keep it busy.
GPU_CHUNK = 1 << 24


def _signed(value: int) -> int:
    """Return the int64 with the same bits as an unsigned 64-bit integer."""
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >= 1 << 63 else value


def _mix_(state: Tensor) -> Tensor:
    """SplitMix64's finaliser, in place on int64."""
    for shift, factor in ((30, MIX_1), (27, MIX_2), (31, None)):
        shifted = state >> shift
        shifted &= (1 << (64 - shift)) - 1  # a logical shift: torch's is arithmetic
        state ^= shifted
        if factor is not None:
            state *= _signed(factor)
    return state


def streams(seeds: Tensor, *names: object) -> Tensor:
    """Derive one stream per seed for the purpose `names`.

    Args:
        seeds: int64 of any shape, usually [tasks].
        names: what the numbers are for.

    Returns:
        int64 of the same shape.

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
    if states.is_cuda and dtype == torch.float32 and (kernel := _pair_kernel()) is not None:
        _fill_with_pairs(out.view(-1, 2, half), flat, kernel)
    else:
        _fill_with_normals(out, flat)
    return out[:, :count].reshape(*states.shape, *shape)


def _fill_with_normals(out: Tensor, states: Tensor) -> None:
    """Write normal numbers [states, 2 n] of streams [states] in steps that every device has."""
    half, dtype = out.shape[1] // 2, out.dtype
    chunk = CHUNK if states.device.type == "cpu" else GPU_CHUNK
    rows = max(1, chunk // max(half, 1))
    columns = min(half, chunk)
    steps = torch.arange(1, half + 1, device=states.device) * _signed(GOLDEN)
    for top in range(0, states.numel(), rows):
        for left in range(0, half, columns):
            right = min(left + columns, half)
            bits = _mix_(states[top : top + rows, None] + steps[left:right])
            # Each 64-bit number gives a radius (upper half) and an angle (lower half).
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


# The two normal numbers of a 64-bit number, side by side in its bits: what `_fill_with_normals`
# does in twenty passes over memory, in one.
PAIR = f"""
template <typename T> T normal_pair(T state, T step) {{
    unsigned long long bits = (unsigned long long)state + (unsigned long long)step;
    bits = (bits ^ (bits >> 30)) * {MIX_1}ULL;
    bits = (bits ^ (bits >> 27)) * {MIX_2}ULL;
    bits ^= bits >> 31;
    float radius = ((float)(unsigned int)(bits >> 32) + 0.5f) * {2.0**-32!r}f;
    radius = sqrtf(fmaxf(-2.0f * logf(radius), 0.0f));
    float angle = (float)(unsigned int)bits * (float){2 * math.pi * 2.0**-32!r};
    unsigned long long first = __float_as_uint(radius * cosf(angle));
    unsigned long long second = __float_as_uint(radius * sinf(angle));
    return (T)(first | (second << 32));
}}
"""


def _fill_with_pairs(out: Tensor, states: Tensor, kernel: Callable[..., Tensor]) -> None:
    """Write the same numbers, out [states, 2, n], by one kernel of a GPU."""
    half = out.shape[2]
    steps = torch.arange(1, half + 1, device=states.device) * _signed(GOLDEN)
    rows, columns = max(1, GPU_CHUNK // max(half, 1)), GPU_CHUNK
    for top in range(0, len(states), rows):
        for left in range(0, half, columns):
            bits = kernel(states[top : top + rows, None], steps[left : left + columns])
            pairs = bits.view(torch.float32).reshape(len(bits), -1, 2)
            out[top : top + rows, :, left : left + columns] = pairs.mT


@lru_cache(maxsize=1)
def _pair_kernel() -> Callable[..., Tensor] | None:
    """The kernel, compiled at first use by what torch brings along; None where it cannot be."""
    try:
        kernel: Callable[..., Tensor] = torch.cuda.jiterator._create_jit_fn(PAIR)
        states = torch.arange(8, device="cuda")
        tried, expected = (torch.empty(8, 16, device="cuda") for _ in range(2))
        _fill_with_pairs(tried.view(8, 2, 8), states, kernel)
        _fill_with_normals(expected, states)
    except (RuntimeError, AttributeError):  # another kind of GPU, or a torch without a compiler
        return None
    return kernel if torch.allclose(tried, expected, atol=1e-5) else None
