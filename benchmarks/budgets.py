"""The default budget of a batch against 1 GiB, on the same episodes in one run.

python benchmarks/budgets.py --device cuda

Both are timed in turns, `--repeats` times, and the best of each counts; the last columns are the
ratio and the share of equal predictions. On a CPU the two are the same budget.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from common import parser, predictions, print_machine, print_table, tasks, timed

from fewview.engine._registry import create

BUDGETS = {"1 GiB": 1.0, "default": None}


def main() -> None:
    options = parser(__doc__ or "")
    options.add_argument("--methods", default="ugda,marginal")
    options.add_argument("--episodes", type=int, default=400)
    options.add_argument("--repeats", type=int, default=3)
    arguments = options.parse_args()
    print_machine(arguments.device)
    rows = []
    for name in arguments.datasets.split(","):
        data, base, task, episodes = tasks(
            name, 0, arguments.eta, 0, arguments.episodes, arguments.data_dir
        )
        for text in arguments.methods.split(","):
            best: dict[str, float] = {}
            found = {}
            for _ in range(arguments.repeats + 1):  # the first one warms up
                for budget, gib in BUDGETS.items():
                    method = create(text, device=arguments.device, max_memory=gib)
                    prepared = method.prepare_base(base, task)
                    found[budget], took = timed(
                        partial(predictions, method, data, prepared, episodes),
                        arguments.device,
                    )
                    best[budget] = min(took, best.get(budget, took))
            same = 100 * float(np.mean(found["1 GiB"] == found["default"]))
            rows.append(
                [name, text, *(f"{best[budget]:.3f}" for budget in BUDGETS),
                 f"{best['1 GiB'] / best['default']:.1f}", f"{same:.3f} %"]
            )  # fmt: skip
    header = ("data set", "method", *(f"{budget}, s" for budget in BUDGETS), "ratio", "same")
    print_table(header, rows)


if __name__ == "__main__":
    main()
