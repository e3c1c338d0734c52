"""Episode lists as JSON: what is written is read back, and nothing else is believed."""

from __future__ import annotations

import copy
import json
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fewview.episodes import Episodes, EpisodeSampler, TaskSpec
from fewview.samples import FewviewError, MultiViewData


def drawn(labels: Any = ("cat", "dog", "emu"), **parameters: Any) -> Episodes:
    rng = np.random.default_rng(0)
    names = [label for label in labels for _ in range(10)]
    data = MultiViewData({"a": rng.normal(size=(30, 2)), "b": rng.normal(size=(30, 3))}, names)
    return EpisodeSampler(data, TaskSpec(way=2, eta=0.25, **parameters), name="set").draw(0, 4)


@pytest.mark.parametrize(
    "labels", [("cat", "dög", "emu 🐦"), (3, 1, 2), (0.5, 1.5, 2.5), (True, False, 7), ("1", 2, 3)]
)
@pytest.mark.parametrize("parameters", [{}, {"shot": (1, 3)}, {"query_counts": "dirichlet:2"}])
def test_a_saved_list_is_read_back(tmp_path: Path, labels: Any, parameters: Any) -> None:
    episodes = drawn(labels, queries=3, **parameters)
    episodes.save(tmp_path / "e.json")
    again = Episodes.load(tmp_path / "e.json")
    for name, value in vars(episodes).items():
        other = getattr(again, name)
        if isinstance(value, np.ndarray):
            assert other.dtype == value.dtype, name
            np.testing.assert_array_equal(other, value, err_msg=name)
        else:
            assert other == value, name
            assert list(map(type, other)) == list(map(type, value)) if name == "class_names" else 1


def test_large_seeds_keep_every_digit(tmp_path: Path) -> None:
    # Half of all seeds are above 2**63, where a mixed list would turn into floats.
    seeds = np.array([2**64 - 1, 5, 2**63 + 1, 2**53 + 1], dtype=np.uint64)
    episodes = replace(drawn(queries=2), seeds=seeds)
    episodes.save(tmp_path / "e.json")
    assert Episodes.load(tmp_path / "e.json").seeds.tolist() == episodes.seeds.tolist()


def test_a_list_of_a_later_version_is_refused(tmp_path: Path) -> None:
    drawn(queries=2).save(tmp_path / "e.json")
    document = json.loads((tmp_path / "e.json").read_text(encoding="utf-8"))
    (tmp_path / "e.json").write_text(json.dumps({**document, "version": 2, "episodes": {}}))
    with pytest.raises(FewviewError, match=r"e\.json: an episode list of version 2.*up to 1; inst"):
        Episodes.load(tmp_path / "e.json")


@pytest.mark.parametrize("label", [("a", 1), frozenset({1}), b"x"])
def test_labels_that_json_cannot_hold_are_refused(tmp_path: Path, label: Any) -> None:
    episodes = drawn((label, "dog", "emu"), queries=2)
    with pytest.raises(FewviewError, match="labels must be numbers or text"):
        episodes.save(tmp_path / "e.json")
    assert not list(tmp_path.iterdir())


def refuses(path: Path, text: str | bytes) -> str:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(FewviewError) as caught:
        Episodes.load(path)
    assert str(path) in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        "7",
        '"fewview-episodes"',
        "{}",
        '{"format": "fewview-episodes"}',
        '{"format": "fewview-episodes", "episodes": []}',
        '{"format": "other", "episodes": []}',
        '{"format": "fewview-episodes", "episodes": [1]}',
        '{"format": ["fewview-episodes"], "episodes": {}}',
        "[" * 200_000,
        '{"a":' * 200_000,
        b"\xff\xfe\x00\x01",
        b"\x80\x04\x95pickle",
        '{"format": "fewview-episodes", "way": 1' + "0" * 5000 + "}",
    ],
    ids=range(16),
)
def test_foreign_files_are_refused(tmp_path: Path, text: str | bytes) -> None:
    assert "is not an episode list written by fewview" in refuses(tmp_path / "x.json", text)


def test_missing_and_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(FewviewError, match="cannot read"):
        Episodes.load(tmp_path / "absent.json")
    with pytest.raises(FewviewError, match="cannot read"):
        Episodes.load(tmp_path)


def saved(tmp_path: Path) -> dict[str, Any]:
    drawn(queries=2).save(tmp_path / "good.json")
    document: dict[str, Any] = json.loads((tmp_path / "good.json").read_text())
    return document


@pytest.mark.parametrize("cut", [1, 100, 700, -3])
def test_a_truncated_file_is_refused(tmp_path: Path, cut: int) -> None:
    drawn(queries=2).save(tmp_path / "good.json")
    refuses(tmp_path / "x.json", (tmp_path / "good.json").read_bytes()[:cut])


def _set(key: str, value: Any) -> Any:
    def change(document: dict[str, Any]) -> None:
        document["episodes"][1][key] = value

    return change


def _share_a_sample(document: dict[str, Any]) -> None:
    document["episodes"][2]["query"][0] = document["episodes"][2]["support"][0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_set("seed", -1), "not an episode list"),
        (_set("seed", 2**64), "not an episode list"),
        (_set("seed", 1.5), "not an episode list"),
        (_set("seed", True), "not an episode list"),
        (_set("support", [0, -1]), "not an episode list"),
        (_set("support", [0.0, 1.0]), "not an episode list"),
        (_set("support", [0]), "not an episode list"),
        (_set("support", [0, float("nan")]), "not an episode list"),
        (_set("support_labels", [0, 2]), "support label is not below 2"),
        (_set("support_labels", [0, 0]), "a class of a task has no support"),
        (_set("query_labels", [0, 0, 1]), "not an episode list"),
        (_set("support_views", "11 00"), "a support sample has no view"),
        (_set("support_views", "11 1"), "not an episode list"),
        (_set("support_views", "11 1x"), "not an episode list"),
        (_set("support_views", "11 12"), "not an episode list"),
        (_set("support_views", 11), "not an episode list"),
        (_set("classes", [0, 3]), "a class that is not listed"),
        (_set("classes", [0, 1, 2]), "not an episode list"),
        (_share_a_sample, "same sample as support and query"),
        (lambda d: d.update(way=3), "not about 3 classes each"),
        (lambda d: d.update(way="two"), "not an episode list"),
        (lambda d: d.update(view_names=["a"]), "not of 1 views each"),
        (lambda d: d.update(view_names=None), "not an episode list"),
        (lambda d: [e.pop("query") for e in d["episodes"]], "not an episode list"),
        (lambda d: d["episodes"].clear(), ""),
    ],
)
def test_changed_lists_are_refused(tmp_path: Path, change: Any, message: str) -> None:
    document = saved(tmp_path)
    change(document)
    assert message in refuses(tmp_path / "x.json", json.dumps(document))


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
    if episodes is None:
        return
    assert episodes.support.min() >= 0
    assert episodes.query_mask.shape == (*episodes.query.shape, len(episodes.view_names))
    assert episodes.support_mask.any(axis=-1).all()
