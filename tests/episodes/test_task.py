"""TaskSpec: what it derives and what it refuses."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from fewview import FewviewError, MissingRule, TaskSpec


def test_counts_follow_from_way_shot_and_queries() -> None:
    task = TaskSpec(way=3, shot=2, queries=7)
    assert (task.shots, task.n_support, task.n_query) == ((2, 2, 2), 6, 21)
    unequal = TaskSpec(way=3, shot=(1, 4, 2), queries=7)
    assert (unequal.shots, unequal.n_support, unequal.n_query) == ((1, 4, 2), 7, 21)
    assert TaskSpec(way=2, shot=[1, 4]) == TaskSpec(way=2, shot=(1, 4))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "alpha", "share"),
    [
        ("balanced", None, None),
        ("dirichlet:2", 2.0, None),
        ("dirichlet:0.5", 0.5, None),
        ("dominant:0.8", None, Fraction(4, 5)),
        ("dominant:1", None, Fraction(1)),
        ("dominant:0.2", None, Fraction(1, 5)),  # an equal share of five classes
    ],
)
def test_query_counts_are_read(text: str, alpha: float | None, share: Fraction | None) -> None:
    task = TaskSpec(query_counts=text)
    assert (task.dirichlet, task.dominant) == (alpha, share)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"way": 1}, "way is 1; a task needs at least 2 classes"),
        ({"way": -3}, "way is -3"),
        ({"way": 3, "shot": (1, 2)}, "2 shots given for 3 classes"),
        ({"shot": 0}, "shot must be at least 1"),
        ({"way": 2, "shot": (1, 0)}, "shot must be at least 1"),
        ({"queries": 0}, "queries is 0"),
        *(
            ({"query_counts": text}, "use 'balanced', 'dirichlet:2'")
            for text in (
                "dirichlet", "dirichlet:", "dirichlet:x", "dirichlet:-1", "dirichlet:0",
                "dirichlet:nan", "dirichlet:inf", "gamma:2", "", "Balanced", "dominant",
                "dominant:", "dominant:x", "dominant:nan", "dominant:inf", "dominant:-0.8",
                "dominant:0", "dominant:1/0",
            )
        ),
        ({"query_counts": "dominant:1.01"}, "one of 5 classes is between 1/5 and 1"),
        ({"query_counts": "dominant:0.19"}, "one of 5 classes is between 1/5 and 1"),
        ({"way": 2, "query_counts": "dominant:0.4"}, "one of 2 classes is between 1/2 and 1"),
    ],
)  # fmt: skip
def test_wrong_tasks_are_errors_that_say_why(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(FewviewError, match=message):
        TaskSpec(**parameters)


def test_tasks_can_be_compared_and_hashed_whatever_their_missing_rule() -> None:
    rows = np.array([[True, False], [True, True]])
    tasks = [
        TaskSpec(eta=0.3, missing=MissingRule("patterns", patterns=rows)),
        TaskSpec(eta=0.3, missing=MissingRule("patterns", patterns=rows.copy())),
        TaskSpec(eta=0.3),
        TaskSpec(eta=0.3, missing=MissingRule("class")),
    ]
    assert tasks[0] == tasks[1] != tasks[2]
    assert len(set(tasks)) == 3
