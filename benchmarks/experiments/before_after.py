"""Is another edition slower? Every method in both, in turn, as a ratio of CPU seconds a task.

    python benchmarks/experiments/before_after.py ../first [--methods all] [--sets digits,...]

Two processes of one thread, this checkout and the other, score the same 400 tasks (fewer of slow
methods) one after the other, so that a busy machine is busy for both. The least of the rounds
counts. Below 1 this edition is faster. The last line has the geometric mean, and what is slower
than 1.6 times and takes more than half a millisecond a task.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parents[2]
SHAPES = {"digits": (3, 15), "scene15": (3, 30), "cub_googlenet_doc2vec": (3, 15)}
LIMIT, FAST = 1.6, 0.5e-3


def serve() -> None:
    """In a process of one edition: answer lines of JSON with seconds a task."""
    import torch

    import fewview
    from fewview import EpisodeSampler, TaskSpec
    from fewview.datasets import class_split

    torch.set_num_threads(1)
    known: dict[str, Any] = {}
    for text in sys.stdin:
        asked = json.loads(text)
        name, (way, queries) = asked["set"], SHAPES[asked["set"]]
        if name not in known:
            data, split = fewview.load(name), class_split(name, 0)
            labels = np.array([str(label) for label in data.labels])
            parts = (data[np.isin(labels, [*map(str, part)])] for part in (split.base, split.novel))
            known[name] = tuple(parts)
        base, novel = known[name]
        task = TaskSpec(way=way, queries=queries, eta=0.3)
        episodes = EpisodeSampler(novel, task, name=name).draw(0, asked["tasks"])
        method = fewview.create(asked["method"])
        if hasattr(method, "prepare_base"):  # the first edition
            learnt = method.prepare_base(base, task)
        else:
            from fewview.methods.estimator.fitted_base import learn_base

            learnt = learn_base(method, base, task)
        method.score_episodes(novel, episodes[:2], learnt)  # libraries load
        start = process_time()
        method.score_episodes(novel, episodes, learnt)
        print(json.dumps((process_time() - start) / asked["tasks"]), flush=True)


def start(root: Path) -> subprocess.Popen[str]:
    """A process that serves with the source of a checkout."""
    python = root / ".venv" / "bin" / "python"
    environment = os.environ | {"PYTHONPATH": str(root / "src"), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [python if python.exists() else sys.executable, "-W", "ignore", __file__, "--serve", "."],
        env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


def ask(process: subprocess.Popen[str], **asked: Any) -> float:
    """Seconds a task."""
    assert process.stdin is not None
    assert process.stdout is not None
    print(json.dumps(asked), file=process.stdin, flush=True)
    return float(json.loads(process.stdout.readline() or sys.exit("a process broke down")))


def main() -> None:
    """Print a line for each method and data set."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("other", type=Path, help="the other checkout, with a .venv of its own")
    parser.add_argument("--methods", default="all")
    parser.add_argument("--sets", default=",".join(SHAPES))
    parser.add_argument("--tasks", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--serve", action="store_true")
    asked = parser.parse_args()
    if asked.serve:
        serve()
        return
    from fewview.methods.registry import expand

    here, there = start(HERE), start(asked.other.resolve())
    ratios, slow = [], []
    print(f"{'method':16s}{'data set':24s}{'ratio':>7s}{'here ms':>10s}{'there ms':>10s}")
    for method in expand(asked.methods):
        for name in asked.sets.split(","):
            one = ask(there, method=method, set=name, tasks=4)
            tasks = int(np.clip(3 / max(one, 1e-6), 4, asked.tasks))
            pairs = [
                [ask(process, method=method, set=name, tasks=tasks) for process in (there, here)]
                for _ in range(asked.rounds)
            ]
            before, after = np.min(pairs, axis=0)
            ratios.append(after / before)
            if ratios[-1] > LIMIT and after > FAST:
                slow.append(f"{method} on {name} ({ratios[-1]:.2f})")
            print(
                f"{method:16s}{name:24s}{ratios[-1]:7.2f}{1e3 * after:10.3f}{1e3 * before:10.3f}",
                flush=True,
            )
    mean = float(np.exp(np.mean(np.log(ratios))))
    print(f"geometric mean {mean:.2f}; above {LIMIT} and {1e3 * FAST} ms: {', '.join(slow) or '-'}")


if __name__ == "__main__":
    main()
