"""What a GPU does: seconds, equal answers as on the CPU, and all tables in one run.

    python benchmarks/experiments/gpu.py [--jobs times,agree,kinds,tables] [--device cuda]

Jobs: `times` (tasks of every data set, best of three, and what learning from base classes takes),
`agree` (the same tasks on the CPU: share of equal predictions, largest difference of a
probability), `kinds` (every method, in both dtypes, on made-up data with counts, empty cells,
missing views and rows in reverse, here and on the CPU) and `tables` (ten class splits, six missing
rates, as `fewview bench` computes them). `--output FILE` keeps all lines as JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tools import SETS, accuracy, tasks, timed

from fewview import EpisodeSampler, MultiViewData, TaskSpec, create
from fewview.datasets import make_few_shot
from fewview.evaluate import Grid, run
from fewview.methods.estimator.fitted_base import learn_base
from fewview.methods.registry import names

ETAS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)


class Device:
    """Measures, prints every line, and keeps it."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.device = options, options.device
        self.methods = options.methods.split(",")
        self.cases = list(product(options.datasets.split(","), self.methods))
        self.found: list[dict[str, Any]] = []

    def tell(self, job: str, **what: Any) -> None:
        """Print one line and keep it."""
        self.found.append({"job": job, **what})
        texts = (f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in what.items())
        print(f"{job}: {', '.join(texts)}", flush=True)

    def times(self) -> None:
        """Seconds of learning from base classes and of scoring."""
        for name, text in self.cases:
            data, base, task, episodes = tasks(name, self.options.episodes)
            method = create(text, device=self.device)
            prepared, learning = timed(lambda m=method, b=base, t=task: learn_base(m, b, t))

            def score(m: Any = method, d: Any = data, e: Any = episodes, p: Any = prepared) -> Any:
                return m.score_episodes(d, e, p)

            scores, first = timed(score, self.device)
            again = min(timed(score, self.device)[1] for _ in range(3))
            self.tell("times", where=name, method=text, tasks=len(episodes), learning=learning,
                      first=first, again=again, accuracy=accuracy(scores, episodes))  # fmt: skip

    def agree(self) -> None:
        """Share of equal predictions on the CPU and here."""
        for name, text in self.cases:
            data, base, task, episodes = tasks(name, self.options.episodes)
            self.compare("agree", text, "float32", data, base, task, episodes, where=name)

    def kinds(self) -> None:
        """Every method on data of odd kinds."""
        base, novel = odd_data()
        task = TaskSpec(way=3, shot=2, queries=8, eta=0.2)
        episodes = EpisodeSampler(novel, task).draw(0, min(40, self.options.episodes))
        for text, dtype in product(names(), ("float32", "float64")):
            self.compare("kinds", text, dtype, novel, base, task, episodes)

    def compare(
        self, job: str, text: str, dtype: str, data: MultiViewData, base: MultiViewData,
        task: TaskSpec, episodes: Any, **what: Any,
    ) -> None:  # fmt: skip
        """One method on the CPU and here."""
        found = []
        for device in ("cpu", self.device):
            method = create(text, device=device, dtype=dtype)
            scores = method.score_episodes(data, episodes, learn_base(method, base, task))
            found.append(torch.softmax(scores.double(), -1))
        same = (found[0].argmax(-1) == found[1].argmax(-1)).double().mean()
        self.tell(job, **what, method=text, dtype=dtype, same=100 * float(same),
                  largest=float((found[0] - found[1]).abs().max()),
                  accuracy=accuracy(found[1], episodes))  # fmt: skip

    def tables(self) -> None:
        """All data sets, class splits and rates in one run."""
        grid = Grid(
            datasets=tuple(self.options.datasets.split(",")), methods=tuple(self.methods),
            etas=ETAS, splits=self.options.splits, device=self.device,
        )  # fmt: skip
        outcome, took = timed(lambda: run(grid), self.device)
        for name, text in self.cases:
            results = [result for result in outcome.results.values()
                       if (result.cell.dataset, result.cell.method) == (name, text)]  # fmt: skip
            mean = 100 * float(np.mean([result.metrics.accuracy.mean() for result in results]))
            self.tell("table", where=name, method=text, cells=len(results), accuracy=mean,
                      scoring=sum(result.seconds for result in results))  # fmt: skip
        self.tell("all tables", seconds=took, failures=len(outcome.failures))


def odd_data() -> tuple[MultiViewData, MultiViewData]:
    """A base and a novel set with all that rows may have, in reverse order."""
    rng = np.random.default_rng(0)
    found = []
    made = make_few_shot(n_per_class=30, views={"colour": 5, "shape": 8, "sound": 3})
    for data in (made[made.codes < 6], made[made.codes >= 6]):
        code = np.unique(data.labels, return_inverse=True)[1]
        views = {name: np.array(block) for name, block in data.views.items()}
        views["shape"][rng.random(views["shape"].shape) < 0.1] = np.nan
        views["counts"] = rng.poisson(0.1 + 0.3 * (np.arange(60) % 7 == code[:, None])) * 1.0
        views["one"] = code[:, None] % 2 + 0.3 * rng.normal(size=(len(code), 1))
        lost = rng.random((len(code), len(views))) < 0.15
        lost[:, 0] = False
        for column, name in zip(lost.T, views, strict=True):
            views[name] = np.where(column[:, None], np.nan, views[name])
        found.append(MultiViewData(views, data.labels, partial_rows="keep")[::-1])
    return found[0], found[1]


def main() -> None:
    """Run the jobs."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--jobs", default="times,agree,kinds,tables")
    options.add_argument("--device", default="cuda")
    options.add_argument("--datasets", default=",".join(SETS))
    options.add_argument("--methods", default="ugda,marginal")
    options.add_argument("--episodes", type=int, default=400)
    options.add_argument("--splits", type=int, default=10, help="class splits of a table")
    options.add_argument("--output", type=Path)
    arguments = options.parse_args()
    device = Device(arguments)
    print(f"# {' '.join(sys.argv)}, torch {torch.__version__}, {torch.get_num_threads()} threads")
    for job in arguments.jobs.split(","):
        getattr(device, job)()
    if arguments.output:
        arguments.output.write_text(json.dumps(device.found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
