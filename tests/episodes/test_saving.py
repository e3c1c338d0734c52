"""Lists of tasks as JSON: what is written is read back; damaged and foreign files are refused."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fewview import Episodes, EpisodeSampler, FewviewError, MultiViewData, TaskSpec
from fewview.episodes.episodes import PER_TASK


def drawn(labels: Any = ("cat", "dog", "emu"), **parameters: Any) -> Episodes:
    rng = np.random.default_rng(0)
    names = [label for label in labels for _ in range(10)]
    data = MultiViewData({"a": rng.normal(size=(30, 2)), "b": rng.normal(size=(30, 3))}, names)
    task = TaskSpec(way=2, eta=0.25, **{"queries": 2, **parameters})
    return EpisodeSampler(data, task, name="set").draw(0, 4)


@pytest.mark.parametrize(
    "labels", [("cat", "dög", "emu 🐦"), (3, 1, 2), (0.5, 1.5, 2.5), (True, False, 7), ("1", 2, 3)]
)
@pytest.mark.parametrize("parameters", [{}, {"shot": (1, 3)}, {"query_counts": "dirichlet:2"}])
def test_a_saved_list_is_read_back(tmp_path: Path, labels: Any, parameters: Any) -> None:
    episodes = drawn(labels, **{"queries": 3, **parameters})
    episodes.save(tmp_path / "e.json")
    found = Episodes.load(tmp_path / "e.json")
    for name, value in vars(episodes).items():
        other = getattr(found, name)
        if name in PER_TASK:
            assert other.dtype == value.dtype, name
            np.testing.assert_array_equal(other, value, err_msg=name)
        else:
            assert other == value, name
    assert list(map(type, found.class_names)) == list(map(type, episodes.class_names))


def test_large_seeds_keep_every_digit(tmp_path: Path) -> None:
    # Half of all seeds are above 2**63, where a mixed list would turn into floats.
    seeds = np.array([2**64 - 1, 5, 2**63 + 1, 2**53 + 1], dtype=np.uint64)
    replace(drawn(), seeds=seeds).save(tmp_path / "e.json")
    assert Episodes.load(tmp_path / "e.json").seeds.tolist() == seeds.tolist()


@pytest.mark.parametrize("label", [("a", 1), frozenset({1}), b"x"])
def test_labels_that_json_cannot_hold_are_refused(tmp_path: Path, label: Any) -> None:
    with pytest.raises(FewviewError, match="labels must be numbers or text"):
        drawn((label, "dog", "emu")).save(tmp_path / "e.json")
    assert not list(tmp_path.iterdir())


# ---------------------------------------------------------------------- what is refused


def refused(path: Path, text: str | bytes) -> str:
    """The message, which names the file."""
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(FewviewError) as caught:
        Episodes.load(path)
    assert str(path) in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "", "null", "[]", "7", '"fewview-episodes"', "{}", '{"format": "fewview-episodes"}',
        '{"format": "fewview-episodes", "version": 1, "seeds": []}',
        '{"format": "other", "version": 1}', '{"format": ["fewview-episodes"], "version": 1}',
        "[" * 200_000, '{"a":' * 200_000, b"\xff\xfe\x00\x01", b"\x80\x04\x95pickle",
        '{"format": "fewview-episodes", "version": 1, "way": 1' + "0" * 5000 + "}",
    ],
    ids=range(15),
)  # fmt: skip
def test_foreign_files_are_refused(tmp_path: Path, text: str | bytes) -> None:
    found = refused(tmp_path / "x.json", text)
    assert "is not an episode list of this version of fewview" in found
    assert len(found) < 400


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    for path in (tmp_path / "absent.json", tmp_path):
        with pytest.raises(FewviewError, match="cannot read"):
            Episodes.load(path)


def saved(folder: Path) -> dict[str, Any]:
    drawn().save(folder / "good.json")
    document: dict[str, Any] = json.loads((folder / "good.json").read_text())
    return document


@pytest.mark.parametrize("cut", [1, 100, 700, -3])
def test_a_truncated_file_is_refused(tmp_path: Path, cut: int) -> None:
    saved(tmp_path)
    refused(tmp_path / "x.json", (tmp_path / "good.json").read_bytes()[:cut])


def put(*place: Any, value: Any) -> Callable[[Any], None]:
    def change(document: Any) -> None:
        for key in place[:-1]:
            document = document[key]
        document[place[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (put("version", value=2), "another format"),
        (put("seeds", 1, value=-1), "is not an episode list"),
        (put("seeds", 1, value=2**64), "is not an episode list"),
        (put("support", 1, value=[0]), "is not an episode list"),
        (put("support", 1, value=[0, None]), "is not an episode list"),
        (put("support", 1, 0, value=-1), "a row or a label is out of range"),
        (put("support_labels", 1, value=[0, 2]), "a row or a label is out of range"),
        (put("support_labels", 1, value=[0, 0]), "a class of a task has no support"),
        (put("support_mask", 1, 0, value=[False, False]), "a sample has no view"),
        (put("classes", 1, value=[0, 3]), "about a class that is not listed"),
        (put("classes", value=[[0, 1]]), "not about 2 classes each"),
        (put("query_labels", value=[[0, 0, 1]] * 4), "do not match"),
        (put("query_mask", value=True), "do not match"),
        (put("support", value=7), "do not match"),
        (put("view_names", value=["a"]), "masks of 1 views do not match"),
        (put("view_names", value=None), "is not an episode list"),
        (put("way", value=3), "not about 3 classes each"),
        (put("way", value="two"), "is not an episode list"),
        (lambda d: put("query", 2, 0, value=d["support"][2][0])(d), "the same sample twice"),
        (lambda d: d.pop("query"), "is not an episode list"),
        (lambda d: [d[name].clear() for name in PER_TASK], ""),
    ],
    ids=range(21),
)
def test_changed_lists_are_refused(tmp_path: Path, change: Any, message: str) -> None:
    document = saved(tmp_path)
    change(document)
    assert message in refused(tmp_path / "x.json", json.dumps(document))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_whatever_is_in_the_file_the_answer_is_a_list_or_a_clear_error(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("hostile")
    document = copy.deepcopy(saved(folder))
    place: Any = document
    while True:  # walk to a random spot and put something else there
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = data.draw(st.sampled_from(keys))
        inner = place[key]
        if isinstance(inner, (dict, list)) and inner and data.draw(st.integers(0, 3)):
            place = inner
            continue
        place[key] = data.draw(JSON)
        break
    path = folder / "x.json"
    path.write_text(json.dumps(document))
    episodes = None
    with suppress(FewviewError):  # nothing else may come out
        episodes = Episodes.load(path)
    if episodes is not None:
        assert episodes.problem() == ""
        assert episodes.support.min() >= 0
        assert episodes.query_mask.shape == (*episodes.query.shape, len(episodes.view_names))
        assert episodes.support_mask.any(axis=-1).all()


# ---------------------------------------------------------------------- the order of queries


def test_queries_in_an_order_that_says_nothing_of_their_classes() -> None:
    episodes = drawn(queries=8)
    order, mixed = episodes.query_order(), episodes.shuffled_queries()
    for number in range(len(episodes)):
        assert sorted(order[number]) == list(range(16))
        for name in ("query", "query_labels", "query_mask"):
            wanted = getattr(episodes, name)[number][order[number]]
            np.testing.assert_array_equal(getattr(mixed, name)[number], wanted)
        # Every task has an order of its own, the same whatever tasks come with it.
        np.testing.assert_array_equal(episodes[number].query_order()[0], order[number])
    assert len({tuple(row) for row in order.tolist()}) == len(episodes)
    assert mixed.problem() == ""
