"""The sampler: always the same episode, correct labels, no sample twice, the stated laws."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import beta, chi2, kstest

from fewview import (
    Episodes,
    EpisodeSampler,
    FewviewError,
    MissingRule,
    MultiViewData,
    TaskSpec,
    load,
)
from fewview.datasets import class_split
from fewview.episodes.episodes import PER_TASK, SAMPLER_VERSION
from fewview.episodes.query_counts import capped_counts, dirichlet_counts, dominant_counts


def made(
    sizes: tuple[int, ...] = (12, 9, 15, 10), n_views: int = 3, gaps: bool = False
) -> MultiViewData:
    """Classes a, b, c, ... of the given sizes, rows shuffled, five rows without a label."""
    rng = np.random.default_rng(len(sizes))
    labels = [chr(97 + index) for index, size in enumerate(sizes) for _ in range(size)]
    labels = [*labels, *[None] * 5]
    labels = [labels[index] for index in rng.permutation(len(labels))]
    mask = np.ones((len(labels), n_views), dtype=bool)
    if gaps:
        mask = rng.random(mask.shape) < 0.85
        mask[np.arange(len(labels)), rng.integers(0, n_views, len(labels))] = True
    views = {f"v{view}": rng.normal(size=(len(labels), view + 1)) for view in range(n_views)}
    return MultiViewData(views, labels, mask=mask, name="made")


def assert_same(one: Episodes, two: Episodes) -> None:
    for name in PER_TASK:
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name), err_msg=name)
    for name in ("class_names", "view_names", "way", "dataset"):
        assert getattr(one, name) == getattr(two, name)


def assert_valid(episodes: Episodes, data: MultiViewData, task: TaskSpec) -> None:
    """Everything that is true of every episode, checked task by task in plain Python."""
    assert data.labels is not None
    assert episodes.support.shape == (len(episodes), sum(task.shots))
    assert episodes.query.shape == (len(episodes), task.way * task.queries)
    for t in range(len(episodes)):
        support, query = episodes.support[t].tolist(), episodes.query[t].tolist()
        assert len({*support, *query}) == len(support) + len(query), "a sample occurs twice"
        classes = [episodes.class_names[index] for index in episodes.classes[t]]
        assert len(set(classes)) == task.way
        for rows, codes in (
            (support, episodes.support_labels[t]),
            (query, episodes.query_labels[t]),
        ):
            assert [data.labels[row] for row in rows] == [classes[code] for code in codes]
        shots = [episodes.support_labels[t].tolist().count(code) for code in range(task.way)]
        assert tuple(shots) == task.shots
        for rows, mask in ((support, episodes.support_mask[t]), (query, episodes.query_mask[t])):
            assert mask.any(axis=1).all()
            assert not (mask & ~data.mask[rows]).any()
    assert len(set(episodes.seeds.tolist())) == len(episodes)


TASKS = st.builds(
    lambda way, shot, queries, cents, kind, counts: TaskSpec(
        way=way,
        shot=shot if way != 3 or shot != 2 else (2, 1, 3),
        queries=queries,
        eta=cents / 100,
        missing=MissingRule(kind),
        query_counts=counts,
    ),
    st.integers(2, 4),
    st.integers(1, 3),
    st.integers(1, 5),
    st.integers(0, 66),
    st.sampled_from(["uniform", "class"]),
    st.sampled_from(["balanced", "dirichlet:2", "dirichlet:0.5", "dominant:0.6"]),
)


# ------------------------------------------------------------------ what every episode is


@settings(max_examples=60, deadline=None)
@given(TASKS, st.integers(0, 10**9), st.booleans())
def test_episodes_are_what_they_should_be(task: TaskSpec, start: int, gaps: bool) -> None:
    data = made(gaps=gaps)
    episodes = EpisodeSampler(data, task).draw(start, start + 6)
    assert_valid(episodes, data, task)
    cells = (task.n_support + task.n_query) * 3
    wanted = min(int(np.floor(task.eta * cells + 0.5 + 1e-9)), cells * 2 // 3)
    for t in range(6):
        samples = np.concatenate([episodes.support[t], episodes.query[t]])
        natural = int((~data.mask[samples]).sum())
        missing = int((~episodes.support_mask[t]).sum() + (~episodes.query_mask[t]).sum())
        assert missing == max(natural, wanted)


@settings(max_examples=40, deadline=None)
@given(TASKS, st.integers(0, 10**6), st.integers(1, 9), st.integers(0, 8), st.booleans())
def test_an_episode_is_the_same_in_any_range_order_and_batch(
    task: TaskSpec, start: int, length: int, offset: int, gaps: bool
) -> None:
    data = made(gaps=gaps)
    sampler = EpisodeSampler(data, task)
    together = sampler.draw(start, start + length)
    index = start + offset % length
    alone = EpisodeSampler(data, task).draw(index, index + 1)
    assert_same(alone, together[offset % length])
    assert_same(sampler.draw(start, start + length), together)


@settings(max_examples=30, deadline=None)
@given(TASKS, st.integers(0, 66))
def test_samples_do_not_depend_on_the_missing_rate_or_rule(task: TaskSpec, cents: int) -> None:
    data = made()
    first = EpisodeSampler(data, task).draw(0, 5)
    other = TaskSpec(task.way, task.shot, task.queries, cents / 100, query_counts=task.query_counts)
    second = EpisodeSampler(data, other).draw(0, 5)
    for name in PER_TASK:
        if "mask" not in name:
            np.testing.assert_array_equal(getattr(first, name), getattr(second, name))


def test_masks_over_eta_are_nested() -> None:
    data = made()
    before = None
    for eta in (0.0, 0.1, 0.3, 0.5, 2 / 3):
        episodes = EpisodeSampler(data, TaskSpec(way=3, queries=5, eta=eta)).draw(0, 20)
        mask = np.concatenate([episodes.support_mask, episodes.query_mask], axis=1)
        assert episodes.missing_rate == pytest.approx(eta, abs=0.5 / (18 * 3))
        assert before is None or not (mask & ~before).any()
        before = mask


def test_the_order_in_which_classes_are_listed_does_not_matter() -> None:
    data, task = made(), TaskSpec(way=2, queries=3)
    one = EpisodeSampler(data, task, ["d", "a", "c"]).draw(0, 8)
    assert_same(one, EpisodeSampler(data, task, ("c", "d", "a")).draw(0, 8))
    assert one.class_names == ("a", "c", "d")


def test_seed_name_and_class_split_change_the_episodes() -> None:
    data, task = made(), TaskSpec(way=2, queries=3)
    variants = [
        EpisodeSampler(data, task),
        EpisodeSampler(data, task, seed=1),
        EpisodeSampler(data, task, name="other"),
        EpisodeSampler(data, task, ["a", "b", "c"]),
    ]
    seeds = np.concatenate([sampler.draw(0, 50).seeds for sampler in variants])
    assert len(set(seeds.tolist())) == 200


def test_seeds_are_all_different() -> None:
    sampler = EpisodeSampler(made(), TaskSpec(way=2, queries=1))
    assert len(set(sampler.draw(0, 20_000).seeds.tolist())) == 20_000


def test_another_process_draws_the_same() -> None:
    code = (
        "from fewview.datasets import class_split, load\n"
        "from fewview import EpisodeSampler, TaskSpec\n"
        "data = load('digits')\n"
        "sampler = EpisodeSampler(data, TaskSpec(3, 1, 30, 0.3), class_split('digits', 0).novel)\n"
        "e = sampler.draw(37, 39)\n"
        "print(e.support.tolist(), e.query.sum(), e.query_mask.sum(), e.seeds.tolist())"
    )
    environment = {"PYTHONHASHSEED": "1", "PATH": ""}
    run = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    data = load("digits")
    sampler = EpisodeSampler(data, TaskSpec(3, 1, 30, 0.3), class_split("digits", 0).novel)
    here = sampler.draw(0, 60)[37:39]
    shown = (
        f"{here.support.tolist()} {here.query.sum()} {here.query_mask.sum()} {here.seeds.tolist()}"
    )
    assert run.stdout == shown + "\n"


# ------------------------------------------------------------------ worked out


def words(seed: int, count: int) -> list[int]:
    """SplitMix64 in Python integers."""
    return [scramble((seed + (i + 1) * 0x9E3779B97F4A7C15) % 2**64) for i in range(count)]


def scramble(z: int) -> int:
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) % 2**64
    return z ^ (z >> 31)


def key_of(*parts: object) -> int:
    text = "\x1f".join(map(str, parts)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")


def stream(state: int, *parts: object) -> int:
    return scramble(scramble(state) ^ key_of(*parts))


@pytest.mark.parametrize("index", [0, 1, 399, 10**12])
def test_an_episode_can_be_worked_out_by_hand(index: int) -> None:
    """The recipe of docs/architecture.md in plain Python, without numpy."""
    data = made()
    task = TaskSpec(way=3, shot=2, queries=4, eta=0.4)
    found = EpisodeSampler(data, task, seed=7).draw(index, index + 1)
    assert data.labels is not None
    names = ["a", "b", "c", "d"]
    seed = stream(index, "fewview episodes", SAMPLER_VERSION, "made", names, 7)
    keys = words(stream(seed, "classes"), 4)
    classes = sorted(range(4), key=keys.__getitem__)[:3]
    assert found.classes.tolist() == [classes]
    support, query = [], []
    for c in classes:
        rows = [row for row, label in enumerate(data.labels) if label == names[c]]
        start = (stream(seed, "members") + c * (key_of("class step") | 1)) % 2**64
        keys = words(start, len(rows))
        order = sorted(range(len(rows)), key=keys.__getitem__)
        support += [rows[place] for place in order[:2]]
        query += [rows[place] for place in order[2:6]]
    assert found.support.tolist() == [support]
    assert found.query.tolist() == [query]
    guard = words(stream(seed, "mask", "guaranteed"), 18 * 3)
    kept = {(n, min(range(3), key=lambda v: guard[3 * n + v])) for n in range(18)}
    keys = words(stream(seed, "mask", "cells"), 18 * 3)
    free = [(n, v) for n in range(18) for v in range(3) if (n, v) not in kept]
    missing = sorted(free, key=lambda cell: keys[3 * cell[0] + cell[1]])[:22]  # 0.4 x 54 = 21.6
    mask = [[(n, v) not in missing for v in range(3)] for n in range(18)]
    assert found.support_mask.tolist() == [mask[:6]]
    assert found.query_mask.tolist() == [mask[6:]]
    assert found.seeds.tolist() == [stream(seed, "method")]


# ------------------------------------------------------------------ laws


def assert_equally_often(counts: Any) -> None:
    """Chi-square test of equal frequencies, a false alarm in a million (seeds are fixed)."""
    counts = np.asarray(counts, dtype=float)
    statistic = ((counts - counts.mean()) ** 2 / counts.mean()).sum()
    assert statistic < chi2.ppf(1 - 1e-6, counts.size - 1)


def test_classes_and_their_order_are_drawn_equally_often() -> None:
    episodes = EpisodeSampler(made(), TaskSpec(way=2, queries=1)).draw(0, 12_000)
    pairs, counts = np.unique(episodes.classes @ [10, 1], return_counts=True)
    assert len(pairs) == 4 * 3
    assert_equally_often(counts)


def test_samples_of_a_class_are_drawn_equally_often_in_each_role() -> None:
    data = made()
    episodes = EpisodeSampler(data, TaskSpec(way=2, shot=2, queries=3)).draw(0, 6000)
    for role in ("support", "query"):
        for position in (0, 1):  # first and second of a class are not special
            rows = getattr(episodes, role)[:, position]
            for label in "abcd":
                members = np.flatnonzero(data.labels == label)
                counts = [(rows == row).sum() for row in members]
                assert_equally_often(counts)


def test_dirichlet_counts_have_the_moments_of_the_distribution() -> None:
    # A component of a symmetric Dirichlet has mean 1/K and variance (1/K)(1 - 1/K)/(K alpha + 1).
    tasks, way, total = 6000, 4, 4000
    for alpha in (0.5, 2.0, 20.0):
        counts = dirichlet_counts(np.arange(tasks, dtype=np.uint64), alpha, way, total)
        assert (counts.sum(axis=1) == total).all()
        assert (counts >= 0).all()
        share = counts / total
        deviation = np.sqrt((1 / way) * (1 - 1 / way) / (way * alpha + 1))
        assert abs(share.mean(axis=0) - 1 / way).max() < 5 * deviation / np.sqrt(tasks)
        np.testing.assert_allclose(share.std(axis=0), deviation, rtol=0.06)
        # Each marginal is Beta(alpha, (K - 1) alpha); rounding to 1/4000 is invisible to the test.
        assert kstest(share[:, 0], beta(alpha, (way - 1) * alpha).cdf).pvalue > 1e-5


@pytest.mark.parametrize("alpha", [1e-300, 1e-6, 1e-3, 1e-2, 1e3, 1e12, 1e300])
def test_extreme_dirichlet_parameters(alpha: float) -> None:
    counts = dirichlet_counts(np.arange(300, dtype=np.uint64), alpha, 3, 30)
    assert (counts.sum(axis=1) == 30).all()
    assert (counts >= 0).all()
    if alpha <= 1e-3:  # almost everything goes to one class, each as often as the others
        assert (counts.max(axis=1) >= 29).mean() > 0.95
        assert min(np.bincount(counts.argmax(axis=1), minlength=3)) > 60
    if alpha >= 1e12:
        assert (counts == 10).all()


def test_dirichlet_counts_are_redrawn_until_the_classes_suffice() -> None:
    small = MultiViewData(np.ones((25, 2)), labels=np.repeat([0, 1, 2], [7, 6, 12]))
    large = MultiViewData(np.ones((300, 2)), labels=np.repeat([0, 1, 2], 100))
    task = TaskSpec(way=3, shot=1, queries=5, query_counts="dirichlet:1")
    episodes = EpisodeSampler(small, task, name="x").draw(0, 300)
    room = np.array([6, 5, 11])
    counts = np.stack([(episodes.query_labels == code).sum(axis=1) for code in range(3)], axis=1)
    assert (counts <= room[episodes.classes]).all()
    # A task whose first draw fits keeps it: the small and the large data set agree there.
    free = EpisodeSampler(large, task, name="x").draw(0, 300)
    wished = np.stack([(free.query_labels == code).sum(axis=1) for code in range(3)], axis=1)
    fits = (wished <= room[episodes.classes]).all(axis=1)
    assert 0 < fits.sum() < 300
    assert (counts[fits] == wished[fits]).all()


def counts_of(episodes: Episodes) -> Any:
    """Queries of every class of the tasks, [tasks, way]."""
    codes = np.arange(episodes.way)
    return (episodes.query_labels[:, :, None] == codes).sum(axis=1)


@pytest.mark.parametrize(
    ("counts", "room", "wanted"),
    [
        ([3, 0, 9], [3, 1, 9], [3, 0, 9]),  # all of it fits
        ([30, 5, 5, 5], [9, 20, 20, 20], [9, 12, 12, 12]),  # 36 in three equal parts
        # 16 as 6 : 3 : 1 is 9.6, 4.8, 1.6: two are rounded up, of the equal .6 the first.
        ([10, 6, 3, 1], [4, 20, 20, 20], [4, 10, 5, 1]),
        ([8, 0, 0], [5, 2, 9], [5, 2, 1]),  # 3 over classes that had none: equal parts
        ([10, 5, 0], [3, 6, 20], [3, 6, 6]),  # the second is full as well, 6 are left
        ([45, 0, 0, 0, 0], [9, 9, 9, 9, 9], [9, 9, 9, 9, 9]),
        ([20, 20], [1, 39], [1, 39]),
    ],
)
def test_counts_are_capped_at_what_classes_hold(
    counts: list[int], room: list[int], wanted: list[int]
) -> None:
    found = capped_counts(np.array([counts, counts]), np.array([room, room]))
    assert found.tolist() == [wanted, wanted]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), min_size=2, max_size=6))
def test_capped_counts_fit_and_keep_their_sum(pairs: list[tuple[int, int]]) -> None:
    counts, room = np.array(pairs).T[:, None]
    room = room + (room.sum() < counts.sum()) * counts
    found = capped_counts(counts, room)
    assert (found <= room).all()
    assert (found >= np.minimum(counts, room)).all()  # a class never loses what fits
    assert found.sum() == counts.sum()


def ten_samples_a_class() -> MultiViewData:
    """Forty classes of ten samples, as in orl."""
    return MultiViewData(np.ones((400, 1)), labels=np.repeat(np.arange(40), 10), name="tens")


def test_where_no_drawn_counts_fit_the_first_are_capped() -> None:
    one = MultiViewData(np.ones((42, 1)), labels=np.repeat([0, 1], [2, 40]))
    sampler = EpisodeSampler(one, TaskSpec(way=2, shot=1, queries=20, query_counts="dirichlet:1e6"))
    episodes = sampler.draw(0, 6)  # equal counts, of which 1 and 39 fit
    assert sampler.capped(0, 6).all()
    assert (np.sort(counts_of(episodes), axis=1) == [1, 39]).all()
    # Nine queries of five classes with nine samples to spare: there is one way to do it.
    task = TaskSpec(way=5, shot=1, queries=9, query_counts="dirichlet:1")
    episodes = EpisodeSampler(ten_samples_a_class(), task).draw(0, 20)
    assert_valid(episodes, ten_samples_a_class(), task)
    assert (counts_of(episodes) == 9).all()


def test_some_tasks_may_be_capped_and_the_others_keep_what_was_drawn() -> None:
    # 40 of 45 places are wanted: few draws leave at most five empty.
    data, task = ten_samples_a_class(), TaskSpec(way=5, queries=8, query_counts="dirichlet:1")
    sampler = EpisodeSampler(data, task)
    episodes, capped = sampler.draw(0, 60), sampler.capped(0, 60)
    assert 0 < capped.sum() < 60
    assert_valid(episodes, data, task)
    keys = [key_of("query counts", attempt) for attempt in range(1000)]
    for index, (counts, gave_up) in enumerate(zip(counts_of(episodes), capped, strict=True)):
        seed = int(sampler.seeds(index, index + 1)[0])
        states = np.array([scramble(scramble(seed) ^ key) for key in keys], dtype=np.uint64)
        drawn = dirichlet_counts(states, 1.0, 5, 40)
        fitting = drawn[(drawn <= 9).all(axis=1)]
        assert len(fitting) == 0 if gave_up else (counts == fitting[0]).all()
        if gave_up:
            assert counts.tolist() == capped_counts(drawn[:1], np.full((1, 5), 9))[0].tolist()


@pytest.mark.parametrize(
    ("share", "total", "room", "wanted"),
    [
        ("0.8", 75, 99, [60, 4, 4, 4, 3]),  # 15 over four classes
        ("0.8", 45, 99, [36, 3, 2, 2, 2]),
        ("0.5", 5, 99, [3, 1, 1, 0, 0]),  # 2.5 is rounded up
        ("0.7", 5, 99, [4, 1, 0, 0, 0]),  # 3.5 likewise, exactly, whatever 0.7 * 5 is in floats
        ("1", 10, 99, [10, 0, 0, 0, 0]),
        ("0.2", 10, 99, [2, 2, 2, 2, 2]),
        # Ten samples a class, one shot: of 12 and 3 nine fit, and six are divided by four.
        ("0.8", 15, 9, [9, 2, 2, 1, 1]),
        ("0.8", 10, 9, [8, 1, 1, 0, 0]),
        ("0.8", 45, 9, [9, 9, 9, 9, 9]),
    ],
)
def test_dominant_counts(share: str, total: int, room: int, wanted: list[int]) -> None:
    states = np.arange(200, dtype=np.uint64)
    counts, capped = dominant_counts(states, Fraction(share), total, np.full((200, 5), room))
    for state, found, small in zip(states.tolist(), counts.tolist(), capped.tolist(), strict=True):
        keys = words(state, 5)
        order = sorted(range(5), key=keys.__getitem__)
        assert [found[place] for place in order] == wanted
        assert small == (Fraction(share) * total + Fraction(1, 2) >= room + 1)


def test_small_classes_beside_a_dominant_one_are_capped_too() -> None:
    # 12 of 16 and 2, 2; two classes hold one each, so that the dominant one has the rest.
    states = np.arange(50, dtype=np.uint64)
    for place in range(3):
        room = np.ones((50, 3), dtype=np.int64)
        room[:, place] = 30
        counts, capped = dominant_counts(states, Fraction(3, 4), 16, room)
        assert capped.all()
        assert (counts == np.where(np.arange(3) == place, 14, 1)).all()


def test_the_dominant_class_is_drawn_by_every_task_for_itself() -> None:
    data = MultiViewData(np.ones((400, 1)), labels=np.repeat(np.arange(4), 100), name="large")
    task = TaskSpec(way=3, queries=10, query_counts="dominant:0.8")
    sampler = EpisodeSampler(data, task)
    counts = counts_of(sampler.draw(0, 3000))
    assert not sampler.capped(0, 3000).any()
    assert (np.sort(counts, axis=1) == [3, 3, 24]).all()
    assert_equally_often(np.bincount(counts.argmax(axis=1)))
    seed = int(sampler.seeds(7, 8)[0])
    keys = words(stream(seed, "dominant class"), 3)
    assert counts[7].argmax() == min(range(3), key=keys.__getitem__)
    # The same supports, and the same queries as far as both tasks have them.
    even = EpisodeSampler(data, TaskSpec(way=3, queries=10)).draw(0, 50)
    skewed = sampler.draw(0, 50)
    np.testing.assert_array_equal(even.support, skewed.support)
    for t in range(50):
        assert len(np.intersect1d(even.query[t], skewed.query[t])) == 10 + 3 + 3


def test_dominant_tasks_of_small_classes_are_valid() -> None:
    data, task = ten_samples_a_class(), TaskSpec(way=5, queries=3, query_counts="dominant:0.8")
    episodes = EpisodeSampler(data, task).draw(0, 40)
    assert_valid(episodes, data, task)
    assert (np.sort(counts_of(episodes), axis=1) == [1, 1, 2, 2, 9]).all()


# ------------------------------------------------------------------ real data with gaps, bad input


def test_gaps_of_the_data_stay_and_count() -> None:
    data = made(gaps=True)
    episodes = EpisodeSampler(data, TaskSpec(way=3, queries=4, eta=0.0)).draw(0, 30)
    np.testing.assert_array_equal(episodes.support_mask, data.mask[episodes.support])
    np.testing.assert_array_equal(episodes.query_mask, data.mask[episodes.query])
    assert episodes.missing_rate > 0


def test_unlabelled_samples_are_never_drawn() -> None:
    data = made()
    episodes = EpisodeSampler(data, TaskSpec(way=4, shot=1, queries=8)).draw(0, 200)
    used = np.unique(np.concatenate([episodes.support.ravel(), episodes.query.ravel()]))
    assert (data.codes[used] >= 0).all()
    assert len(used) == (data.codes >= 0).sum()


@pytest.mark.parametrize(
    ("data", "parameters", "classes", "message"),
    [
        (made().with_labels(None), {"way": 2}, None, "no labels"),
        (made(), {"way": 5}, None, r"way is 5 .* only 4 novel classes.*at most 4"),
        (made(), {"way": 3}, ["a", "b"], "only 2 novel classes"),
        (made(), {"way": 2}, ["a", "zebra"], "class 'zebra' does not occur"),
        (made(), {"way": 2}, ["a", "b", "a"], "listed twice"),
        (
            made(),
            {"way": 2, "shot": 4, "queries": 6},
            None,
            r"class 'b' has 9 samples, but 4 shot\(s\) and 6 queries per class need 10",
        ),
        (made(), {"way": 2, "shot": (1, 9), "queries": 1}, None, "class 'b' has 9 samples"),
        (made().with_labels([None] * 51), {"way": 2}, None, "only 0 novel classes"),
    ],
)
def test_impossible_tasks_are_errors_that_say_why(
    data: MultiViewData, parameters: dict[str, Any], classes: Any, message: str
) -> None:
    with pytest.raises(FewviewError, match=message):
        EpisodeSampler(data, TaskSpec(**parameters), classes)


def test_impossible_draws_are_errors_that_say_why() -> None:
    data = made()
    with pytest.raises(FewviewError, match=r"largest possible rate is 0\.6667"):
        EpisodeSampler(data, TaskSpec(way=2, queries=2, eta=0.7)).draw(0, 1)
    for start, stop in ((3, 3), (4, 3), (-1, 3)):
        with pytest.raises(FewviewError, match="empty range"):
            EpisodeSampler(data, TaskSpec(way=2, queries=2)).draw(start, stop)
    tight = TaskSpec(way=2, shot=1, queries=13, query_counts="dirichlet:2")
    with pytest.raises(FewviewError, match="more than the classes hold; lower --queries"):
        EpisodeSampler(data, tight).draw(0, 50)


# ------------------------------------------------------------------ parts of a list


def test_indexing_gives_lists_of_tasks() -> None:
    episodes = EpisodeSampler(made(), TaskSpec(way=2, queries=2)).draw(0, 6)
    assert_same(episodes[2], episodes[2:3])
    assert_same(episodes[-1], episodes[5:])
    assert_same(episodes[np.array([4, 1])][0], episodes[4])
    assert [len(one) for one in episodes] == [1] * 6
    for wrong in (6, -7):
        with pytest.raises(IndexError, match="of 6"):
            episodes[wrong]
