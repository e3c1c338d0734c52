"""Results of every method on `digits` change only together with the method's version.

When a change of results is meant, raise `version` on the method's class and write the file again:

    python tests/methods/test_golden.py [name ...]
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fewview import EpisodeSampler, TaskSpec, create, load
from fewview.engine._registry import names

FILE = Path(__file__).with_name("golden.json")
N_EPISODES = 4
TASK = TaskSpec(way=3, shot=1, queries=10, eta=0.3)
NOVEL = (1, 4, 6, 9)
# Smaller networks and fewer epochs. In float64 a change of inputs by 1e-13, or another number of
# threads, changes scores by less than 1e-10.
SMALLER: dict[str, dict[str, Any]] = {
    "cpm": {"latent": 16, "epochs": 10, "query_epochs": 10},
    "cpm-gan": {"latent": 16, "epochs": 10, "query_epochs": 10, "discriminator_hidden": 8},
    "icmsc": {"width": 32, "epochs": (10, 20), "view_width": 32},
    "completer": {"width": 32, "code": 8, "epochs": 12, "warm_up": 3, "learning_rate": 3e-3},
}


def summary(name: str) -> dict[str, Any]:
    """Version, mean accuracy and mean log-probability of the true class over a few episodes."""
    data = load("digits")
    assert data.labels is not None
    novel = [label for label in data.classes.tolist() if int(label) in NOVEL]
    base = data[~np.isin(data.labels, novel)]
    method = create(name, dtype="float64").set_params(**SMALLER.get(name, {}))
    episodes = EpisodeSampler(data, TASK, novel, name="digits").draw(0, N_EPISODES)
    scores = method.score_episodes(data, episodes, method.prepare_base(base, TASK))
    labels = torch.from_numpy(episodes.query_labels)
    true = torch.log_softmax(scores, dim=-1).gather(2, labels[..., None])
    return {
        "version": method.version,
        "accuracy": round(float((scores.argmax(-1) == labels).double().mean()), 3),
        "log_probability": round(float(true.mean()), 3),
    }


def known() -> dict[str, dict[str, Any]]:
    return json.loads(FILE.read_text()) if FILE.exists() else {}  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", names())
def test_golden(name: str) -> None:
    golden = known().get(name)
    again = f"python tests/methods/test_golden.py {name}"
    assert golden is not None, f"{name} has no golden result; write it with: {again}"
    found = summary(name)
    if found["version"] != golden["version"]:
        pytest.fail(f"{name} has a new version; write its golden result with: {again}")
    for key, tolerance in (("accuracy", 0.0091), ("log_probability", 0.0021)):
        # One query of 120, or a digit in the third place, may differ between machines.
        assert found[key] == pytest.approx(golden[key], abs=tolerance), (
            f"{name} gives another {key}; if that is meant, raise its `version` and run: {again}"
        )


def test_no_stale_golden() -> None:
    assert set(known()) <= set(names())


if __name__ == "__main__":
    chosen = sys.argv[1:] or names()
    results = {key: value for key, value in known().items() if key in names()}
    results |= {name: summary(name) for name in chosen}
    FILE.write_text(json.dumps(dict(sorted(results.items())), indent=1) + "\n")
