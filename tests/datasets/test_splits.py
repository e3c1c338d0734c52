from __future__ import annotations

import hashlib
import json
from collections import Counter
from importlib.resources import files
from itertools import combinations
from math import comb
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fewview.datasets import (
    ClassSplit,
    all_splits,
    class_split,
    draw_split,
    get_spec,
    load,
    load_split_column,
    names,
)
from fewview.samples import FewviewError

SHIPPED = json.loads(files("fewview.datasets").joinpath("data", "splits.json").read_text())
DRAWN = ("cub_googlenet_doc2vec", "handwritten", "caltech102", "scene15", "orl", "leaves100")


@pytest.mark.parametrize("name", DRAWN)
@pytest.mark.parametrize("index", range(10))
def test_first_ten_splits_are_the_shipped_ones(name: str, index: int) -> None:
    split = class_split(name, index)
    assert set(split.base) == set(SHIPPED[name][index]["base"])
    assert set(split.novel) == set(SHIPPED[name][index]["novel"])
    assert split.index == index
    assert not split.fixed
    assert split.base_from is None


@pytest.mark.parametrize("index", range(10))
def test_birds_take_their_base_classes_from_the_other_set(index: int) -> None:
    split = class_split("birds200", index)
    assert set(split.novel) == set(SHIPPED["birds200"][index]["novel"])
    assert split.base_from == "tieredimagenet_tiny"
    assert split.base == tuple(range(61))


def test_base_classes_of_the_other_set_are_those_its_file_calls_base(real_data: Path) -> None:
    labels = load("tieredimagenet_tiny", real_data).labels
    parts = load_split_column("tieredimagenet_tiny", real_data)
    assert labels is not None
    assert parts is not None
    for part, count in (("base", 61), ("val", 17), ("novel", 45)):
        assert len(set(labels[parts == part])) == count
    assert class_split("birds200", 0).base == tuple(sorted(set(labels[parts == "base"].tolist())))
    fixed = class_split("tieredimagenet_tiny", 0)
    assert fixed.novel == tuple(sorted(set(labels[parts == "novel"].tolist())))


def test_a_fixed_split_is_the_same_for_every_index_and_seed() -> None:
    splits = {class_split("tieredimagenet_tiny", index, seed=index) for index in range(12)}
    assert len(splits) == 1
    split = splits.pop()
    assert split.fixed
    assert (len(split.base), len(split.novel)) == (61, 45)


@pytest.mark.parametrize("name", [n for n in names() if not get_spec(n).fixed_split])
def test_sizes_and_distinctness_beyond_the_shipped_splits(name: str) -> None:
    spec = get_spec(name)
    splits = [class_split(name, index) for index in range(25)]
    assert len({split.novel for split in splits}) == 25
    for index, split in enumerate(splits):
        assert split.index == index
        assert (len(split.base), len(split.novel)) == (spec.n_base, spec.n_novel)
        assert set(split.novel) <= set(range(spec.n_classes))
        assert list(split.novel) == sorted(split.novel)
        if spec.base_from is None:
            assert not set(split.base) & set(split.novel)


def test_seed_moves_drawn_splits_and_leaves_shipped_ones() -> None:
    assert class_split("handwritten", 9, seed=1) == class_split("handwritten", 9, seed=2)
    far = [class_split("caltech102", 10, seed=seed).novel for seed in range(3)]
    assert len(set(far)) == 3


def _reference_draw(name: str, seed: int, position: int, n_classes: int, n_novel: int) -> list[int]:
    """Draw number `position` of a stream in plain integers, by the definition of SplitMix64."""
    full = 2**64 - 1

    def mix(z: int) -> int:
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & full
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB & full
        return z ^ (z >> 31)

    text = "\x1f".join(["class split", name, str(seed)])
    key = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")
    state = mix(mix(position) ^ key)
    keys = [mix((state + (i + 1) * 0x9E3779B97F4A7C15) & full) for i in range(n_classes)]
    return sorted(sorted(range(n_classes), key=keys.__getitem__)[:n_novel])


def test_drawn_splits_are_pinned() -> None:
    """Golden values: whoever changes the way splits are drawn changes everybody's results."""
    digits = [class_split("digits", index).novel for index in range(3)]
    assert digits == [(2, 4, 6, 7), (4, 5, 7, 8), (3, 4, 6, 7)]
    assert class_split("handwritten", 10).novel == (0, 2, 5, 6)


def test_drawn_splits_are_those_of_an_independent_generator() -> None:
    for index in range(3):  # three different ones, as the golden values show
        assert list(class_split("digits", index).novel) == _reference_draw(
            "digits", 0, index, 10, 4
        )
    mine = draw_split(range(30), 20, 10, 0, 5, "mine")
    assert list(mine.novel) == _reference_draw("mine", 5, 0, 30, 10)


def test_every_class_is_novel_equally_often() -> None:
    """Each of 10 classes is novel in 4/10 of the splits: 800 of 2000, standard error 22."""
    count: Counter[object] = Counter()
    for seed in range(2000):
        count.update(draw_split(range(10), 6, 4, 0, seed).novel)
    assert len(count) == 10
    assert all(690 < number < 910 for number in count.values())


def test_numbering_goes_through_all_splits_and_then_stops() -> None:
    drawn = {draw_split(range(5), 3, 2, index).novel for index in range(comb(5, 2))}
    assert drawn == set(combinations(range(5), 2))
    with pytest.raises(FewviewError, match=r"split 10 .*10 ways only; the last split is 9"):
        draw_split(range(5), 3, 2, 10)


def test_known_sets_go_through_all_splits_too() -> None:
    novel = {class_split("handwritten", index).novel for index in (*range(10), 209)}
    assert len(novel) == 11
    with pytest.raises(FewviewError, match=r"split 210 of 'handwritten'.*the last split is 209"):
        class_split("handwritten", 210)


@given(
    n_classes=st.integers(2, 12),
    data=st.data(),
    seed=st.integers(0, 2**63),
    kind=st.sampled_from([int, str]),
)
def test_drawing_ignores_order_and_repetition(
    n_classes: int, data: st.DataObject, seed: int, kind: type
) -> None:
    n_novel = data.draw(st.integers(1, n_classes))
    n_base = data.draw(st.integers(0, n_classes - n_novel))
    classes = [kind(number) for number in range(n_classes)]
    shuffled = data.draw(st.permutations(classes)) + classes[:1]
    split = draw_split(classes, n_base, n_novel, 0, seed)
    assert draw_split(shuffled, n_base, n_novel, 0, seed) == split
    assert draw_split(np.array(shuffled), n_base, n_novel, 0, seed) == split
    assert (len(split.base), len(split.novel)) == (n_base, n_novel)
    assert not set(split.base) & set(split.novel)
    assert set(split.base) | set(split.novel) <= set(classes)


def test_classes_may_be_anything_hashable() -> None:
    labels = ["a", 1, None, (2, 3), "a"]
    split = draw_split(labels, 1, 2)
    assert set(split.base + split.novel) == {"a", 1, (2, 3)}  # an unknown label is no class
    assert draw_split(labels[::-1], 1, 2) == split


def test_name_and_seed_tell_data_apart() -> None:
    one = draw_split(range(50), 30, 20, 0, 0, "mine")
    assert one.novel != draw_split(range(50), 30, 20, 0, 0, "yours").novel
    assert one.novel != draw_split(range(50), 30, 20, 0, 1, "mine").novel


@pytest.mark.parametrize(
    ("n_base", "n_novel", "message"),
    [(3, 3, "has only 5 classes"), (2, 0, "at least one novel"), (-1, 2, "negative")],
)
def test_impossible_sizes(n_base: int, n_novel: int, message: str) -> None:
    with pytest.raises(FewviewError, match=message):
        draw_split(range(5), n_base, n_novel)


@pytest.mark.parametrize("index", [-1, 1.5, "two", None])
def test_impossible_index(index: int) -> None:
    with pytest.raises(FewviewError, match="count from 0"):
        class_split("digits", index)


def test_all_splits() -> None:
    splits = all_splits(10, 6)
    assert len(splits) == comb(10, 4) == 210
    assert {split.novel for split in splits} == set(combinations(range(10), 4))
    assert all(set(split.base) | set(split.novel) == set(range(10)) for split in splits)
    assert [split.index for split in splits] == list(range(210))
    assert [split.novel for split in all_splits(["b", "a"], 1)] == [("b",), ("a",)]


def test_all_splits_has_a_limit() -> None:
    with pytest.raises(FewviewError, match=r"more than the limit of 10000; take some"):
        all_splits(40, 25)
    assert len(all_splits(4, 2, limit=6)) == 6
    with pytest.raises(FewviewError, match="between 0 and 4"):
        all_splits(5, 5)


def test_overlap_is_an_error_within_one_set_only() -> None:
    with pytest.raises(FewviewError, match="class 2 is both base and novel"):
        ClassSplit(base=(1, 2), novel=(2, 3))
    with pytest.raises(FewviewError, match="classes 1, 2 are both"):
        ClassSplit(base=(1, 2), novel=(1, 2, 3))
    assert ClassSplit(base=(1, 2), novel=(2, 3), base_from="other").novel == (2, 3)
    with pytest.raises(FewviewError, match="twice among the novel"):
        ClassSplit(base=(1,), novel=(2, 2))
    with pytest.raises(FewviewError, match="at least one novel"):
        ClassSplit(base=(1,), novel=())


def test_data_that_lack_classes_of_the_split() -> None:
    split = class_split("handwritten", 0)
    assert class_split("handwritten", 0, labels=np.arange(10)) == split
    with pytest.raises(FewviewError, match=r"needs classes 8, 9, which the data do not have"):
        class_split("handwritten", 0, labels=range(8))
    assert class_split("birds200", 0, labels=class_split("birds200", 0).novel).base_from


def test_a_specification_is_accepted_for_a_name() -> None:
    assert class_split(get_spec("orl"), 4) == class_split("orl", 4)


def _write_tiered(folder: Path, parts: list[str]) -> None:
    """Write a tiny file in the place of the original tieredImageNet: one sample per class."""
    rng = np.random.default_rng(0)
    views = {
        f"view_{view}": rng.random((608, 2), dtype=np.float32)
        for view in get_spec("tieredimagenet").view_names
    }
    np.savez(folder / "tieredimagenet.npz", **views, y=np.arange(608), split=np.array(parts))


def test_split_written_in_the_file(tmp_path: Path) -> None:
    parts = ["novel"] * 160 + ["base"] * 351 + ["val"] * 97
    _write_tiered(tmp_path, parts)
    split = class_split("tieredimagenet", 7, data_dir=tmp_path)
    assert split.novel == tuple(range(160))
    assert split.base == tuple(range(160, 511))
    assert split.fixed
    assert split.index == 0


def test_split_in_the_file_with_wrong_counts(tmp_path: Path) -> None:
    _write_tiered(tmp_path, ["novel"] * 161 + ["base"] * 350 + ["val"] * 97)
    with pytest.raises(FewviewError, match=r"350 base classes in 'split'; there should be 351"):
        class_split("tieredimagenet", data_dir=tmp_path)


def test_split_in_the_file_with_a_class_in_two_parts(tmp_path: Path) -> None:
    views = {f"view_{v}": np.ones((609, 2)) for v in get_spec("tieredimagenet").view_names}
    parts = ["base"] * 351 + ["val"] * 97 + ["novel"] * 161
    y = [*range(608), 5]
    np.savez(tmp_path / "tieredimagenet.npz", **views, y=np.array(y), split=np.array(parts))
    with pytest.raises(FewviewError, match="class 5 is both base and novel in 'split'"):
        class_split("tieredimagenet", data_dir=tmp_path)


def test_split_in_the_file_with_unknown_part(tmp_path: Path) -> None:
    _write_tiered(tmp_path, ["test"] * 160 + ["base"] * 351 + ["val"] * 97)
    with pytest.raises(FewviewError, match=r"holds test; it must hold base, val, novel only"):
        class_split("tieredimagenet", data_dir=tmp_path)


def test_split_in_a_file_that_is_absent(tmp_path: Path) -> None:
    with pytest.raises(FewviewError, match=r"tieredimagenet.*not in"):
        class_split("tieredimagenet", data_dir=tmp_path)
