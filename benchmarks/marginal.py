"""Time per task of Marginal against UGDA, in turns in one run, on every data set.

    python benchmarks/marginal.py                       # eight data sets, two cores
    python benchmarks/marginal.py --device cuda
    python benchmarks/marginal.py --datasets handwritten --forms --threads 1

One class split, missing rate 0.3, default settings, by the clock on the wall. A ratio is the median
over turns of Marginal's time over that of UGDA just before it; the least and the largest stand
beside it. `--forms` adds Marginal's other forms, and what they take to learn from base classes.
"""

from __future__ import annotations

import sys
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np
import torch
from common import accuracy, keep_table, parser, print_machine, print_table, tasks
from table import TABLES

from fewview.datasets import is_present
from fewview.engine._registry import create

FORMS = {
    "marginal": "marginal",
    "inductive": "marginal:transductive=false",
    "inductive, variational": "marginal:transductive=false:scoring=variational",
    "variational": "marginal:scoring=variational",
    "automatic settings": "marginal:settings=auto",
}


def seconds(score: Any, device: str) -> float:
    """By the clock on the wall, waiting for the device."""
    start = perf_counter()
    score()
    if device.startswith("cuda"):
        torch.cuda.synchronize()
    return perf_counter() - start


def main() -> None:
    options = parser(__doc__ or "")
    options.set_defaults(datasets=",".join(TABLES))
    options.add_argument("--episodes", type=int, default=400)
    options.add_argument("--repeats", type=int, default=5, help="turns")
    options.add_argument("--threads", type=int, default=None, help="default: all cores")
    options.add_argument("--forms", action="store_true", help="Marginal's other forms too")
    options.add_argument("--output", default=None, help="file for the documentation")
    arguments = options.parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    device, table = arguments.device, []
    print_machine(device)
    for name in arguments.datasets.split(","):
        if not is_present(name, arguments.data_dir):
            print(f"# {name} is not there", file=sys.stderr)
            continue
        data, base, task, episodes = tasks(
            name, 0, arguments.eta, 0, arguments.episodes, arguments.data_dir
        )
        texts = {"ugda": "ugda"} | (FORMS if arguments.forms else {"marginal": "marginal"})
        score, learnt = {}, {}
        for title, text in texts.items():
            method = create(text, device=device)
            prepared = method.prepare_base(base, task)
            learnt[title] = prepared.seconds
            score[title] = partial(method.score_episodes, data, episodes, prepared)
        hits = {title: accuracy(f().argmax(-1).numpy(), episodes) for title, f in score.items()}
        took: dict[str, list[float]] = {title: [] for title in score}
        for _ in range(arguments.repeats):
            for title, function in score.items():
                took[title].append(seconds(function, device))
        for title in score:
            ratios = np.array(took[title]) / np.array(took["ugda"])
            least = 1e3 * min(took[title]) / len(episodes)
            table.append(
                [name, title, f"{least:.3f}", f"{np.median(ratios):.2f}",
                 f"{ratios.min():.2f} to {ratios.max():.2f}", f"{hits[title]:.1f}",
                 f"{learnt[title]:.2f}"]
            )  # fmt: skip
            print("  ".join(table[-1]), file=sys.stderr, flush=True)
    header = (
        "data set", "method", "ms per task", "x UGDA", "over turns", "accuracy", "learning, s",
    )  # fmt: skip
    print_table(header, table)
    note = (
        f"{arguments.episodes} tasks of one class split, eta {arguments.eta}, default settings, "
        f"{arguments.repeats} turns, {torch.get_num_threads()} thread(s); the least milliseconds, "
        "and the median over turns of the time over that of UGDA just before it."
    )
    where = "a GPU" if device.startswith("cuda") else "a CPU"
    keep_table(arguments.output, f"Marginal beside UGDA on {where}", device, header, table, note)


if __name__ == "__main__":
    main()
