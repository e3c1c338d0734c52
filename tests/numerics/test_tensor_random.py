"""Random numbers in torch: those of `random_keys`, in any batch, and of the right distribution."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import kstest

from fewview.numerics import random_keys
from fewview.numerics.tensor_random import normal, raw, streams, substreams, uniform

SEEDS = np.array([0, 1, 2**63 - 1, 2**63, 2**64 - 1, 88172645463325252], dtype=np.uint64)


def bits(words: np.ndarray) -> torch.Tensor:
    """The int64 with the same bits."""
    return torch.from_numpy(words.view(np.int64))


def words(tensor: torch.Tensor) -> np.ndarray:
    return tensor.numpy().view(np.uint64)


def test_streams_are_those_of_numpy() -> None:
    before = bits(SEEDS).clone()
    found = streams(before, "anchors", 3)
    wanted = random_keys.combine(SEEDS, random_keys.stream_key("anchors", 3))
    assert words(found).tolist() == wanted.tolist()
    assert torch.equal(before, bits(SEEDS))  # what is given stays
    assert streams(before.reshape(2, 3), "anchors", 3).tolist() == found.reshape(2, 3).tolist()


def test_substreams_are_a_mix_of_state_and_index() -> None:
    index = np.arange(5, dtype=np.uint64)
    states = bits(SEEDS).clone()
    found = substreams(states[:, None], bits(index))
    with np.errstate(over="ignore"):
        keys = random_keys.mix(index + np.uint64(random_keys.GOLDEN))
    wanted = random_keys.combine(SEEDS[:, None], keys[None])
    assert words(found).tolist() == wanted.tolist()
    assert torch.equal(states, bits(SEEDS))


def test_raw_numbers_are_those_of_numpy() -> None:
    found = raw(bits(SEEDS), 7)
    assert words(found).tolist() == random_keys.raw(SEEDS, 7).tolist()
    assert raw(bits(SEEDS).reshape(3, 2), 7).tolist() == found.reshape(3, 2, 7).tolist()


@pytest.mark.parametrize(("dtype", "digits"), [(torch.float32, 24), (torch.float64, 53)])
def test_uniform_numbers_are_the_upper_bits(dtype: torch.dtype, digits: int) -> None:
    found = uniform(bits(SEEDS), (4, 3), dtype)
    assert found.dtype == dtype
    assert found.shape == (6, 4, 3)
    wanted = (random_keys.raw(SEEDS, 12) >> np.uint64(64 - digits)) / 2.0**digits
    assert found.double().numpy().reshape(6, 12).tolist() == wanted.tolist()
    assert uniform(bits(SEEDS), 5).dtype == torch.float32
    many = uniform(torch.arange(300), 300, dtype).double().numpy().ravel()
    assert 0 <= many.min() < many.max() < 1
    assert kstest(many, "uniform").pvalue > 1e-4


def by_box_and_muller(seeds: np.ndarray, count: int) -> np.ndarray:
    """Half of the numbers are cosines, the others sines: the upper half of a word is a radius."""
    half = (count + 1) // 2
    found = random_keys.raw(seeds, half)
    radius = np.sqrt(-2 * np.log(((found >> np.uint64(32)) + 0.5) / 2.0**32))
    angle = 2 * np.pi * (found & np.uint64(2**32 - 1)) / 2.0**32
    return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)], axis=1)[:, :count]


@pytest.mark.parametrize("count", [1, 2, 7, 64])
def test_normal_numbers_are_box_and_mullers(count: int) -> None:
    found = normal(bits(SEEDS), count, torch.float64)
    np.testing.assert_allclose(found.numpy(), by_box_and_muller(SEEDS, count), atol=1e-12)
    single = normal(bits(SEEDS), count)
    assert single.dtype == torch.float32
    np.testing.assert_allclose(single.numpy(), found.numpy(), atol=3e-6)
    assert normal(bits(SEEDS), (1, count)).shape == (6, 1, count)
    assert torch.equal(normal(bits(SEEDS), (1, count))[:, 0], single)


@pytest.mark.parametrize(("rows", "count"), [(3, 2**18 + 2**17), (2, 2**19 + 7), (700, 900)])
def test_pieces_do_not_show(rows: int, count: int) -> None:
    """More numbers than are made at once, in a row or in many rows."""
    seeds = np.arange(rows, dtype=np.uint64)
    found = normal(bits(seeds), count, torch.float64).numpy()
    np.testing.assert_allclose(found, by_box_and_muller(seeds, count), atol=1e-12)


def test_a_batch_of_one_equals_a_batch_of_many() -> None:
    many = bits(SEEDS)
    for draw in (uniform, normal):
        found = draw(many, (3, 5))
        for number in range(len(SEEDS)):
            assert torch.equal(draw(many[number : number + 1], (3, 5))[0], found[number])
    assert normal(many[:0], 4).shape == (0, 4)
    assert normal(many, 0).shape == (6, 0)


def test_normal_numbers_are_normal_and_streams_unrelated() -> None:
    z = normal(streams(torch.arange(200), "noise"), 500, torch.float64).numpy()
    assert kstest(z.ravel(), "norm").pvalue > 1e-4
    other = normal(streams(torch.arange(200), "other"), 500, torch.float64).numpy()
    for a, b in ((z, other), (z[:-1], z[1:]), (z[:, :250], z[:, 250:])):
        assert abs(np.corrcoef(a.ravel(), b.ravel())[0, 1]) < 5 / np.sqrt(a.size)


def test_the_smallest_radius_is_finite_and_the_largest_is_zero_or_more() -> None:
    """The word of all zeros and that of all ones, by the state that leads to them."""

    def state_of(word: int) -> int:
        def unshift(value: int, by: int) -> int:
            out = value
            for _ in range(64 // by + 1):
                out = value ^ (out >> by)
            return out

        z = unshift(word, 31) * pow(random_keys.MIX_2, -1, 2**64) % 2**64
        z = unshift(z, 27) * pow(random_keys.MIX_1, -1, 2**64) % 2**64
        return (unshift(z, 30) - random_keys.GOLDEN) % 2**64

    states = bits(np.array([state_of(0), state_of(2**64 - 1)], dtype=np.uint64))
    assert words(raw(states, 1)).ravel().tolist() == [0, 2**64 - 1]
    for dtype in (torch.float32, torch.float64):
        found = normal(states, 2, dtype)
        assert found[0].tolist() == pytest.approx([np.sqrt(2 * 33 * np.log(2)), 0.0])
        assert torch.isfinite(found).all()
        assert float(found[1].abs().max()) < 1e-4
        assert 0 <= float(uniform(states, 1, dtype).max()) < 1
