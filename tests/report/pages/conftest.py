"""Shared by the tests of pages about samples: a task of the embedded digits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fewview import EpisodeSampler, TaskSpec, create, load
from fewview.datasets import class_split


@pytest.fixture(scope="module")
def digits_task() -> Callable[..., Any]:
    """A method fitted to three digits, and queries with 40 % of their views missing."""

    def make(name: str = "marginal", queries: int = 10) -> Any:
        data, split = load("digits"), class_split("digits", 0)
        task = TaskSpec(way=3, shot=1, queries=queries, eta=0.4)
        episode = EpisodeSampler(data, task, split.novel).draw(4, 5)
        support = data[episode.support[0]].with_mask(episode.support_mask[0])
        query = data[episode.query[0]].with_mask(episode.query_mask[0])
        clf = create(name, base=data[np.isin(data.labels, split.base)]).fit(support)
        return clf, query

    return make
