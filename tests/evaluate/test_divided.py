"""One table with everything in it: who is known, who is new, who is to be predicted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fewview import FewviewError, FewviewWarning, MultiViewData, create
from fewview.evaluate import _divided as divided_module
from fewview.evaluate._advice import Advice
from fewview.evaluate._divided import (
    CANDIDATES,
    choose_method,
    divide,
    expectation,
    fit_divided,
    in_more_ways,
)


def table(sizes: dict[str, int], unlabelled: int = 6) -> MultiViewData:
    """Classes that lie apart in two views, and samples without a label."""
    rng = np.random.default_rng(0)
    labels: list[str | None] = [name for name, count in sizes.items() for _ in range(count)]
    places = [float(list(sizes).index(name or "")) for name in labels]
    labels += [None] * unlabelled
    places += [float(len(sizes) - 1 - row % 2) for row in range(unlabelled)]
    centre = np.array(places)[:, None]
    views = {v: 5 * centre + rng.normal(size=(len(labels), 2)) for v in ("a", "b")}
    return MultiViewData(views, labels, ids=[f"s{row}" for row in range(len(labels))])


SIZES = {"p": 12, "q": 12, "r": 12, "s": 12, "t": 12, "x": 2, "y": 3}


def test_new_classes_are_named_or_have_fewest_samples() -> None:
    data = table(SIZES)
    for parts in (divide(data), divide(data, ["y", "x"])):
        assert parts.base is not None
        assert parts.base.classes.tolist() == list("pqrst")
        assert parts.support.classes.tolist() == ["x", "y"]
        assert (parts.way, parts.shot, parts.queries, len(parts.query)) == (2, 2, 3, 6)
        assert parts.query.labels is None
    assert divide(data).guessed
    assert divide(table({"x": 2, "y": 3})).base is None
    named = divide(data, ["p", "x"])
    assert named.base is not None
    assert named.base.classes.tolist() == list("qrsty")
    numbers = MultiViewData(np.ones((4, 1)), [1, 1, 2, None])
    assert divide(numbers, ["1.0", "2"]).support.classes.tolist() == [1, 2]
    assert divide(numbers, ["1", "2"]).support.classes.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("data", "new", "message"),
    [
        (table(SIZES).with_labels(None), None, "no sample has a label; .*--labels"),
        (
            table(SIZES),
            ["x", "Y"],
            r"--new Y: no labelled sample .*p \(12\)",
        ),
        (table(SIZES), ["x"], r"--new x: one class; at least two .*p \(12\)"),
        (table({"p": 9, "q": 9, "r": 9}), None, r"which classes are new\? .*--new .*p \(9\)"),
        (table(SIZES, 0), None, "every sample has a label"),
    ],
)
def test_what_is_wrong_is_said_with_the_flag(
    data: MultiViewData, new: list[str] | None, message: str
) -> None:
    with pytest.raises(FewviewError, match=message):
        divide(data, new)


def test_methods_are_tried_in_the_time_given(tmp_path: Path) -> None:
    parts = divide(table(SIZES))
    advice, remark = choose_method(parts, 0.0, str(tmp_path / "a.sqlite"))
    assert advice is not None
    assert [row["method"] for row in advice.rows] == ["marginal"]
    assert remark == f"not tried, for want of time: {', '.join(CANDIDATES[1:])}"
    assert all(row["shot"] == 2 and row["way"] == 2 for row in advice.rows)
    text = expectation(advice, parts, 0.9)
    assert f"expect about {advice.rows[0]['accuracy']:.0f} % right" in text
    assert "its own probabilities say 90 %" in text
    few = divide(table({"p": 12, "q": 12, "x": 2, "y": 3}))
    advice, remark = choose_method(few, 0.0, str(tmp_path / "b.sqlite"))
    assert advice is None
    assert "fewer than 3 known classes have 4 labelled samples" in remark
    assert "cannot be measured" in expectation(advice, few, 0.9)


def test_a_method_that_would_take_too_long_is_left_out_after_its_first_division(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Boosting on 10 000 columns took minutes beyond the time that was given."""
    clock = iter([0.0, 0.0, 1.0, 14.0, 14.0, 15.0, 99.0])
    monkeypatch.setattr(divided_module, "perf_counter", lambda: next(clock))
    asked: list[tuple[str, int]] = []

    def advise(base: MultiViewData, **options: Any) -> Advice:
        asked.append((options["methods"], options["splits"]))
        assert options["plain"] == ()
        return Advice([], "", "", None)  # type: ignore[arg-type]

    monkeypatch.setattr(divided_module, "give_advice", advise)
    _, remark = choose_method(divide(table(SIZES)), 60.0, str(tmp_path / "a.sqlite"))
    first, slow, quick, *rest = CANDIDATES
    assert asked == [
        (first, 5), (slow, 1), (quick, 1), (f"{first},{quick}", 5),
    ]  # fmt: skip
    assert remark == f"not tried, for want of time: {', '.join([slow, *rest])}"


@pytest.mark.parametrize("separation", [0.5, 1.5, 3.0])
@pytest.mark.parametrize("way", [3, 5, 10])
def test_accuracy_in_more_ways_is_that_of_equal_gaussians(separation: float, way: int) -> None:
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(200_000, way))
    scores[:, 0] += separation
    right = scores.argmax(1) == 0
    pair = scores[:, 0] > scores[:, 1]
    assert in_more_ways(float(pair.mean()), 2, way) == pytest.approx(right.mean(), abs=0.01)
    assert in_more_ways(float(right.mean()), way, way) == pytest.approx(right.mean(), abs=1e-6)


def test_three_known_classes_are_enough_to_try_methods(tmp_path: Path) -> None:
    """Two of them play new ones, and one is left to learn from."""
    rng = np.random.default_rng(0)
    codes = np.repeat(np.arange(5), 12)
    labels = np.repeat(np.array(["p", "q", "r", "x", "y"], dtype=object), 12)
    labels[(codes > 2) & (np.arange(60) % 12 > 2)] = None
    views = {"a": rng.normal(size=(60, 4)) + 3 * codes[:, None], "b": rng.normal(size=(60, 3))}
    parts = divide(MultiViewData(views, labels.tolist()), ["x", "y"])
    advice, _ = choose_method(parts, 0.0, str(tmp_path / "results.sqlite"))
    assert advice is not None
    assert "marginal" in [row["method"] for row in advice.rows]


def test_a_view_that_known_classes_lack_is_a_new_sensor() -> None:
    """It was missing for all of the base set, so that nothing of it was used."""
    data = table(SIZES)
    new = np.array([label in ("x", "y", None) for label in data.labels.tolist()])  # type: ignore[union-attr]
    sensor = np.where(new, 1.0, np.nan)[:, None]
    only_queries = np.where(data.codes < 0, 1.0, np.nan)[:, None]
    more = MultiViewData(
        {**data.views, "sensor": sensor, "late": only_queries}, data.labels, ids=data.ids
    )
    parts = divide(more, ["x", "y"])
    assert parts.base is not None
    assert parts.base.view_names == ("a", "b")
    assert parts.support.view_names == ("a", "b", "sensor")
    with pytest.warns(FewviewWarning, match="'sensor' is not in the base set; it is used"):
        clf = fit_divided(parts, "proto")
    with pytest.warns(FewviewWarning, match="'late' that the reference set does not have"):
        clf.predict(parts.query)


@pytest.mark.parametrize("classes", ["new", "all"])
def test_a_divided_table_is_fitted_as_by_hand(classes: str) -> None:
    parts = divide(table(SIZES))
    clf = fit_divided(parts, "proto", classes=classes)
    other = create("proto").fit_base(parts.base, task=clf.base.task)
    other.fit(parts.support, classes=classes)
    assert (clf.base.task.way, clf.base.task.shot, clf.base.task.queries) == (2, 2, 3)
    np.testing.assert_array_equal(clf.predict_proba(parts.query), other.predict_proba(parts.query))
    np.testing.assert_array_equal(clf.p_values(parts.query), other.p_values(parts.query))
