"""Twelve recorded episodes: identical tasks are promised, on every machine and in every version.

`tests/golden/sampler.json` holds what version 1 of the sampler drew. It changes only together with
`SAMPLER_VERSION`, which is part of what results are stored under.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fewview import EpisodeSampler, MissingRule, MultiViewData, TaskSpec
from fewview.episodes.episodes import SAMPLER_VERSION

GOLDEN = json.loads(
    (Path(__file__).parents[1] / "golden" / "sampler.json").read_text(encoding="utf-8")
)
SIZES = {"ant": 14, "bee": 11, "cat": 17, "dog": 12, "elk": 13, "fox": 20}


def samples(gaps: bool) -> MultiViewData:
    """87 samples of six classes with four views; with gaps, every third lacks one view."""
    by_class = [name for name, size in SIZES.items() for _ in range(size)]
    labels = [by_class[(place * 31) % 87] for place in range(87)]
    mask = np.ones((87, 4), dtype=bool)
    if gaps:
        rows = np.arange(0, 87, 3)
        mask[rows, rows % 4] = False
    values = np.arange(87.0)[:, None]
    return MultiViewData(dict.fromkeys("wxyz", values), labels, mask=mask, name="golden")


def drawn(case: dict[str, Any]) -> dict[str, Any]:
    """The episode of a case, in plain values."""
    rule = MissingRule(**case.get("missing", {}))
    task = TaskSpec(**{**case["task"], "missing": rule})
    sampler = EpisodeSampler(
        samples(case.get("gaps", False)), task, case.get("classes"), seed=case.get("seed", 0)
    )
    episode = sampler.draw(case["index"], case["index"] + 1)
    fields = ("classes", "support", "support_labels", "query", "query_labels")
    out = {name: getattr(episode, name)[0].tolist() for name in fields}
    for name in ("support_mask", "query_mask"):
        rows = getattr(episode, name)[0].astype(int)
        out[name] = " ".join("".join(map(str, row)) for row in rows.tolist())
    return {"seed": int(episode.seeds[0]), **out}


def test_the_record_is_of_this_version() -> None:
    assert GOLDEN["version"] == SAMPLER_VERSION
    assert len(GOLDEN["episodes"]) == 12


@pytest.mark.parametrize("case", GOLDEN["episodes"], ids=lambda case: case["name"])
def test_an_episode_is_the_recorded_one(case: dict[str, Any]) -> None:
    assert drawn(case) == case["episode"]
