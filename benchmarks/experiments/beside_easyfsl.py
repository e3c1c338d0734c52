"""easyfsl and fewview on the same tasks in one run: seconds, and how many times faster.

pip install --no-deps easyfsl==1.5.0            (this script installs nothing)
python benchmarks/experiments/beside_easyfsl.py

easyfsl's own code, one task after the other as its users call it: rows of the concatenated, scaled
views are picked, missing views are zero, then `process_support_set` and the forward call. fewview
gets the same scaled data and episodes with `padding=zero`. Both take as many steps (TIM) or rounds
(PT-MAP). The two take turns with one thread each, and the least processor time of each counts.
Predictions need not agree where the two define a method differently (sharpness of BD-CSPN, cosines
in TIM); the share that does is shown.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from time import process_time
from types import ModuleType
from typing import Any

import numpy as np
import torch
from tools import SETS, print_table, tasks
from torch import Tensor

from fewview import create
from fewview.methods.estimator.fitted_base import learn_base

STEPS, ROUNDS = 50, 10
OURS = {
    "proto": "proto",
    "bd-cspn": "bd-cspn:padding=zero",
    "tim": f"tim:padding=zero:n_steps={STEPS}",
    "ptmap": f"ptmap:padding=zero:n_iter={ROUNDS}",
}


class _Absent(ModuleType):
    """Networks of easyfsl need torchvision; its methods on features do not."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return object


def easyfsl_methods() -> dict[str, Callable[[], Any]]:
    """Makers of easyfsl's classifiers, by our names."""
    try:
        import torchvision  # noqa: F401
    except (ImportError, RuntimeError):
        for name in ("", ".feat_resnet12", ".predesigned_modules"):
            sys.modules[f"easyfsl.modules{name}"] = _Absent(f"easyfsl.modules{name}")
    try:
        from easyfsl import methods
    except ImportError:
        raise SystemExit("easyfsl is not installed; pip install --no-deps easyfsl==1.5.0") from None
    return {
        "proto": methods.PrototypicalNetworks,
        "bd-cspn": methods.BDCSPN,
        "tim": lambda: methods.TIM(fine_tuning_steps=STEPS),
        "ptmap": lambda: methods.PTMAP(fine_tuning_steps=ROUNDS),
    }


def one_by_one(make: Callable[[], Any], rows: Tensor, widths: list[int], episodes: Any) -> Tensor:
    """Scores of easyfsl for all tasks, [tasks, queries, way]."""
    out = []
    for task in range(len(episodes)):

        def features(index: Any, mask: Any) -> Tensor:
            here = torch.from_numpy(np.repeat(mask, widths, axis=1))
            return rows[torch.from_numpy(index)] * here

        method = make()
        labels = torch.from_numpy(episodes.support_labels[task])
        method.process_support_set(
            features(episodes.support[task], episodes.support_mask[task]), labels
        )
        out.append(method(features(episodes.query[task], episodes.query_mask[task])))
    return torch.stack(out)


def main() -> None:
    """Print one line per data set and method."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--datasets", default=",".join(SETS))
    options.add_argument("--methods", default=",".join(OURS))
    options.add_argument("--episodes", type=int, default=60)
    options.add_argument("--repeats", type=int, default=5, help="one for methods with steps")
    arguments = options.parse_args()
    theirs = easyfsl_methods()
    torch.set_num_threads(1)
    table = []
    for name in arguments.datasets.split(","):
        data, base, task, episodes = tasks(name, arguments.episodes)
        for text in arguments.methods.split(","):
            method = create(OURS[text])
            prepared = learn_base(method, base, task)
            tensors = method.tensors(data, prepared)
            rows = torch.cat(tensors.views, 1)
            widths = [view.shape[1] for view in tensors.views]
            best = {"easyfsl": np.inf, "fewview": np.inf}
            found = {}
            for _ in range(2 if text in ("tim", "ptmap") else arguments.repeats + 1):
                start = process_time()
                found["fewview"] = method.score_episodes(data, episodes, prepared).argmax(-1)
                middle = process_time()
                found["easyfsl"] = one_by_one(theirs[text], rows, widths, episodes).argmax(-1)
                best["fewview"] = min(best["fewview"], middle - start)
                best["easyfsl"] = min(best["easyfsl"], process_time() - middle)
            same = 100 * float((found["fewview"] == found["easyfsl"]).double().mean())
            table.append(
                [name, str(sum(widths)), text, *(f"{1e3 * best[k]:.1f}" for k in best),
                 f"{best['easyfsl'] / best['fewview']:.1f}", f"{same:.1f} %"]
            )  # fmt: skip
    header = ("data set", "features", "method", "easyfsl, ms", "fewview, ms", "x faster", "same")
    print_table(header, table)


if __name__ == "__main__":
    main()
