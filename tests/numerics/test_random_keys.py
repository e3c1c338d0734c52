"""The counter-based generator: known answers, an independent implementation, simple statistics."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import kstest

from fewview.numerics.random_keys import combine, mix, raw, smallest, stream_key, uniform

# Published with the reference implementation of SplitMix64 (Vigna, splitmix64.c; Rosetta Code).
KNOWN_SEED = 1234567
KNOWN_ANSWERS = (
    6457827717110365317,
    3203168211198807973,
    9817491932198370423,
    4593380528125082431,
    16408922859458223821,
)
WORD = st.integers(0, 2**64 - 1)


def reference_stream(seed: int, count: int) -> list[int]:
    """SplitMix64 as its authors wrote it, in Python integers."""
    out, state = [], seed
    for _ in range(count):
        state = (state + 0x9E3779B97F4A7C15) % 2**64
        z = state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) % 2**64
        out.append(z ^ (z >> 31))
    return out


def test_known_answers_of_splitmix64() -> None:
    assert raw(np.uint64(KNOWN_SEED), 5).tolist() == list(KNOWN_ANSWERS)
    assert reference_stream(KNOWN_SEED, 5) == list(KNOWN_ANSWERS)


@settings(max_examples=60, deadline=None)
@given(st.lists(WORD, min_size=1, max_size=4), st.integers(1, 12))
def test_streams_equal_the_sequential_generator(seeds: list[int], count: int) -> None:
    found = raw(np.array(seeds, dtype=np.uint64), count)
    assert found.tolist() == [reference_stream(seed, count) for seed in seeds]


@settings(max_examples=40, deadline=None)
@given(st.lists(WORD, min_size=1, max_size=4), st.integers(1, 4), st.integers(1, 4))
def test_shape_and_length_of_a_draw_do_not_change_its_numbers(
    seeds: list[int], rows: int, columns: int
) -> None:
    states = np.array(seeds, dtype=np.uint64)
    block = raw(states, (rows, columns))
    assert block.shape == (len(seeds), rows, columns)
    assert (block.reshape(len(seeds), -1) == raw(states, rows * columns + 3)[:, :-3]).all()
    for index, seed in enumerate(seeds):
        assert (raw(np.uint64(seed), (rows, columns)) == block[index]).all()


@given(st.lists(WORD, min_size=2, max_size=20, unique=True))
def test_mix_is_one_to_one(values: list[int]) -> None:
    assert len(set(mix(np.array(values, dtype=np.uint64)).tolist())) == len(values)


def test_stream_key_is_the_hash_that_the_documentation_names() -> None:
    digest = hashlib.blake2b(b"digits\x1f0", digest_size=8).digest()
    assert stream_key("digits", 0) == int.from_bytes(digest, "little")
    assert stream_key("ab", "c") != stream_key("a", "bc")


def reference_mix(word: int) -> int:
    """The finaliser alone: the first number of the stream one golden step before."""
    return reference_stream((word - 0x9E3779B97F4A7C15) % 2**64, 1)[0]


@given(WORD, WORD)
def test_combine_mixes_the_state_joins_the_key_and_mixes(state: int, key: int) -> None:
    wanted = reference_mix(reference_mix(state) ^ key)
    assert combine(np.array([state], dtype=np.uint64), key).tolist() == [wanted]
    keys = np.array([key, 1], dtype=np.uint64)
    assert combine(np.uint64(state), keys).tolist()[0] == wanted


def test_combine_gives_unrelated_streams_per_purpose_and_per_state() -> None:
    states = np.arange(500, dtype=np.uint64)
    one, two = (combine(states, stream_key(name)) for name in ("one", "two"))
    assert len(set(one.tolist()) | set(two.tolist())) == 1000
    # Bits of neighbouring seeds agree half of the time: 64 x 500 coin flips, 5 standard deviations.
    same = sum(64 - int(a ^ b).bit_count() for a, b in zip(one.tolist(), two.tolist(), strict=True))
    assert abs(same - 32 * 500) < 5 * np.sqrt(64 * 500) / 2


def test_uniform_numbers_are_uniform_and_never_zero_or_one() -> None:
    u = uniform(np.arange(200, dtype=np.uint64), 250)
    assert u.min() > 0
    assert u.max() < 1
    assert kstest(u.ravel(), "uniform").pvalue > 1e-4
    across = np.corrcoef(u[:-1].ravel(), u[1:].ravel())[0, 1]
    assert abs(across) < 5 / np.sqrt(u[1:].size)


@given(WORD)
def test_uniform_numbers_are_the_upper_52_bits_of_the_words(seed: int) -> None:
    wanted = [((word >> 12) + 0.5) / 2**52 for word in reference_stream(seed, 6)]
    assert uniform(np.uint64(seed), (2, 3)).ravel().tolist() == wanted


def seed_whose_first_number_is(word: int) -> int:
    """Run one SplitMix64 step backwards: the inverse of every line of `reference_stream`."""

    def unshift(value: int, by: int) -> int:
        out = value
        for _ in range(64 // by + 1):
            out = value ^ (out >> by)
        return out

    z = unshift(word, 31) * pow(0x94D049BB133111EB, -1, 2**64) % 2**64
    z = unshift(z, 27) * pow(0xBF58476D1CE4E5B9, -1, 2**64) % 2**64
    return (unshift(z, 30) - 0x9E3779B97F4A7C15) % 2**64


@pytest.mark.parametrize("word", [0, 2**64 - 1, 2**63])
def test_uniform_is_open_at_both_ends_for_extreme_words(word: int) -> None:
    seed = seed_whose_first_number_is(word)
    assert reference_stream(seed, 1) == [word]
    assert 0 < uniform(np.uint64(seed), 1)[0] < 1


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 4).flatmap(
        lambda n: st.lists(
            st.lists(WORD, min_size=n + 3, max_size=n + 3, unique=True), min_size=1, max_size=4
        )
    ),
    st.integers(0, 9),
)
def test_smallest_is_a_sorted_prefix(keys: list[list[int]], count: int) -> None:
    found = smallest(np.array(keys, dtype=np.uint64), count)
    wanted = [sorted(range(len(row)), key=row.__getitem__)[:count] for row in keys]
    assert found.tolist() == wanted


@pytest.mark.parametrize("count", [1, 3, 7])
def test_a_shorter_draw_without_replacement_is_a_prefix_of_a_longer_one(count: int) -> None:
    keys = raw(np.arange(50, dtype=np.uint64), 12)
    assert (smallest(keys, count) == smallest(keys, 12)[:, :count]).all()


@pytest.mark.parametrize("count", [1, 4, 5])
def test_smallest_looks_along_the_last_axis_of_any_number(count: int) -> None:
    keys = raw(np.arange(6, dtype=np.uint64), 5)
    found = smallest(keys, count)
    assert (smallest(keys.reshape(2, 3, 5), count) == found.reshape(2, 3, count)).all()
    assert (smallest(keys[4], count) == found[4]).all()
