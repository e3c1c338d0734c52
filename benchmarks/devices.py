"""What a GPU does with default settings: seconds against floors, equal answers, launches, tables.

    PYTHONPATH=src:benchmarks python benchmarks/devices.py --jobs agree,times,prepare,tables

Jobs: `graphs` (UGDA's search with CUDA graphs and without), `times` (the episodes of every data
set, best of three, against the floor), `agree` (the same episodes on the CPU: share of equal
predictions, largest gap of a probability), `launches` (what the profiler counts: kernels, waits for
the device, the dearest operations), `prepare` (seconds that learning from base classes takes),
`tables` (every table, ten class splits, six missing rates, as `python -m fewview.evaluate` computes
them), `views` (480 made-up tasks with 12 and 30 views), `kinds` (answers of every method of this
package on made-up data with words, empty cells, gaps and rows in reverse, in both dtypes, here and
on the CPU) and `primitives` (batched linear algebra alone). Every line is printed when measured;
`--output FILE` has them as JSON.
"""

from __future__ import annotations

import json
import sys
import time
import traceback
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import floors
import numpy as np
import torch
from common import accuracy, parser, print_machine, tasks, timed
from growth import Size, draw
from table import ETAS, TABLES, Bench, counted_evaluations, forget

from fewview.datasets import is_present
from fewview.engine._checks import synthetic_data
from fewview.engine._registry import create, expand
from fewview.engine._state import DTYPES
from fewview.episodes import EpisodeSampler, TaskSpec
from fewview.evaluate import Grid, run
from fewview.numerics import _again
from fewview.numerics._batch import map_tensors
from fewview.samples import MultiViewData

METHODS = ("ugda", "marginal")


class Devices:
    """Measures and keeps what was measured."""

    def __init__(self, options: Any) -> None:
        self.options, self.device = options, options.device
        self.found: list[dict[str, Any]] = []
        self.methods = options.methods.split(",")
        self.names = [n for n in options.datasets.split(",") if is_present(n, options.data_dir)]

    def tell(self, job: str, **what: Any) -> None:
        """Print one line and keep it."""
        self.found.append({"label": self.options.label, "job": job, **what})
        texts = (f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in what.items())
        print(f"[{self.options.label}] {job}: {', '.join(texts)}", flush=True)

    def case(
        self, name: str, text: str, device: str | None = None
    ) -> tuple[Any, Callable[[], Any]]:
        """Episodes of class split 0, and what scores them."""
        options = self.options
        data, base, task, episodes = tasks(
            name, 0, options.eta, 0, options.episodes, options.data_dir, options.shot
        )
        method = create(text, device=device or self.device)
        prepared = method.prepare_base(base, task)
        case = (data, base, task, episodes, method, prepared)
        return case, lambda: method.score_episodes(data, episodes, prepared)

    # ------------------------------------------------------------------ jobs

    def graphs(self) -> None:
        """Whether CUDA graphs give what steps one by one give; none are used where they fail."""
        usual = _again.FIRST
        for name in self.names:
            score = self.case(name, "ugda")[1]
            _again.FIRST = sys.maxsize
            plain, slow = timed(score, self.device)
            _again.FIRST = usual
            try:
                found, _ = timed(score, self.device)
                took = timed(score, self.device)[1]
            except Exception:
                traceback.print_exc()
                _again.FIRST = usual = sys.maxsize
                continue
            gap = (torch.softmax(found, -1) - torch.softmax(plain, -1)).abs().max()
            self.tell("graphs", data=name, without=slow, seconds=took, largest_gap=float(gap))
        base = synthetic_data()[0]
        method = create("completer", device=self.device)

        def train(first: int) -> tuple[list[torch.Tensor], float]:
            _again.FIRST, found = first, []
            state, took = timed(lambda: method.prepare(base, TaskSpec(way=3), 7), self.device)
            _again.FIRST = usual
            map_tensors(state, lambda x: (found.append(x.double()), x)[1])
            return found, took

        (plain, slow), (played, took) = train(sys.maxsize), train(usual)
        gap = max(float((a - b).abs().max()) for a, b in zip(plain, played, strict=True))
        self.tell("graphs", data="synthetic", method="completer", without=slow, seconds=took,
                  largest_gap=gap)  # fmt: skip

    def times(self) -> None:
        """Seconds of the episodes with default settings, and how many times the floor that is."""
        rates = floors.measure_rates(self.device)
        self.tell("rates", product=rates.product / 1e9, copy=rates.copy / 1e9)
        counting = Bench.__new__(Bench)
        for name in self.names:
            for text in self.methods:
                (data, _, task, episodes, _, prepared), score = self.case(name, text)
                score()
                took = min(timed(score, self.device)[1] for _ in range(3))
                with counted_evaluations() as evaluations:
                    scores = score()
                cost = Bench.cost(
                    counting, name, text, task, list(data.view_dims.values()), prepared.state,
                    sum(evaluations), len(episodes),
                )  # fmt: skip
                floor = cost.seconds(rates)
                hits = accuracy(scores.argmax(-1).numpy(), episodes)
                self.tell(
                    "times", data=name, method=text, tasks=len(episodes), seconds=took,
                    floor=floor, times_floor=took / floor, accuracy=hits,
                )  # fmt: skip

    def agree(self) -> None:
        """Share of equal predictions on the CPU and here."""
        for name in self.names:
            for text in self.methods:
                (*_, episodes, _, _), score = self.case(name, text)
                here = score()
                there = self.case(name, text, "cpu")[1]()
                same = float((here.argmax(-1) == there.argmax(-1)).double().mean())
                gap = (torch.softmax(here.double(), -1) - torch.softmax(there.double(), -1)).abs()
                self.tell(
                    "agree", data=name, method=text, tasks=len(episodes), same=100 * same,
                    largest_gap=float(gap.max()),
                )  # fmt: skip

    def launches(self) -> None:
        """Kernels, waits and the dearest operations of one scoring."""
        for name in self.names:
            for text in self.methods:
                score = self.case(name, text)[1]
                score()
                self._profile("launches", score, data=name, method=text)

    def _profile(self, job: str, action: Callable[[], Any], **what: Any) -> None:
        from torch.profiler import ProfilerActivity, profile

        kinds = [ProfilerActivity.CPU]
        if self.device.startswith("cuda"):
            kinds.append(ProfilerActivity.CUDA)
        with profile(activities=kinds) as profiled:
            timed(action, self.device)
        rows = profiled.key_averages()
        calls = {row.key: row.count for row in rows}

        def count(*names: str) -> int:
            return sum(n for key, n in calls.items() if any(name in key for name in names))

        def device_ms(row: Any) -> float:
            return float(getattr(row, "self_device_time_total", 0.0)) / 1e3

        total = sum(row.self_cpu_time_total for row in rows)
        dearest = ", ".join(
            f"{row.key.removeprefix('aten::')} {row.self_cpu_time_total / total:.0%} ({row.count}x)"
            for row in sorted(rows, key=lambda r: -r.self_cpu_time_total)[:6]
        )
        self.tell(
            job, **what, host=dearest, kernels=count("LaunchKernel"),
            waits=count("StreamSynchronize", "DeviceSynchronize", "EventSynchronize"),
            copies=count("cudaMemcpyAsync"), item=calls.get("aten::item", 0),
            nonzero=calls.get("aten::nonzero", 0),
            device_ms=float(sum(device_ms(row) for row in rows)),
        )  # fmt: skip
        most = self.options.rows
        for title, key in (("device", device_ms), ("host", lambda r: r.self_cpu_time_total / 1e3)):
            for row in sorted(rows, key=key, reverse=True)[:most]:
                print(f"    {title} {key(row):9.2f} ms {row.count:6d} x {row.key[:70]}")

    def prepare(self) -> None:
        """Seconds of learning from base classes, the first time and again."""
        for name in self.names:
            for text in self.methods:
                _, base, task, _ = tasks(name, 0, 0.3, 0, 1, self.options.data_dir)
                method = create(text, device=self.device)

                def learn(m: Any = method, b: Any = base, t: Any = task) -> Any:
                    forget()
                    return m.prepare_base(b, t)

                took = [timed(learn, self.device)[1] for _ in range(2)]
                self.tell("prepare", data=name, method=text, first=took[0], again=took[1])
                if self.options.rows and text == "marginal":
                    self._profile("preparing", learn, data=name)

    def tables(self) -> None:
        """Every table: ten class splits, six missing rates, both methods, one run."""
        names = tuple(n for n in TABLES if is_present(n, self.options.data_dir))
        grid = Grid(
            datasets=names, methods=tuple(self.methods), etas=ETAS, splits=self.options.splits,
            episodes=self.options.table_episodes, device=self.device,
            data_dir=self.options.data_dir,
        )  # fmt: skip
        forget()
        outcome, took = timed(lambda: run(grid, jobs=self.options.processes), self.device)
        for name, text in product(names, self.methods):
            results = [
                result for result in outcome.results.values()
                if (result.cell.dataset, result.cell.method) == (name, text)
            ]  # fmt: skip
            learnt = {r.cell.split: r.seconds_base for r in results}
            by_rate = {
                eta: np.mean([r.metrics.accuracy.mean() for r in results if r.cell.eta == eta])
                for eta in ETAS
            }
            self.tell(
                "table", data=name, method=text, cells=len(results),
                scoring=sum(r.seconds for r in results), preparing=sum(learnt.values()),
                accuracy=100 * float(np.mean(list(by_rate.values()))),
                rates=" ".join(f"{100 * found:.2f}" for found in by_rate.values()),
            )  # fmt: skip
        self.tell("all tables", sets=len(names), seconds=took, failures=len(outcome.failures))

    def views(self) -> None:
        """Seconds of made-up tasks with many views; nearly all rows lack different ones."""
        for count in (12, 30):
            size = Size(tasks=480, views=count)
            base, novel = draw(size)
            task = TaskSpec(size.way, 1, size.queries, eta=0.3)
            episodes = EpisodeSampler(novel, task, novel.classes.tolist()).draw(0, size.tasks)
            for text in self.methods:
                method = create(text, device=self.device)
                prepared = method.prepare_base(base, task)

                score = partial(method.score_episodes, novel, episodes, prepared)
                first = timed(score, self.device)[1]
                scores, again = timed(score, self.device)
                self.tell(
                    "views", views=count, method=text, tasks=size.tasks, first=first, again=again,
                    accuracy=accuracy(scores.argmax(-1).numpy(), episodes),
                )  # fmt: skip

    def kinds(self) -> None:
        """Answers of every method here and on the CPU, of data of odd kinds, and of one query."""
        base, novel = odd_data()
        task = TaskSpec(way=3, shot=2, queries=8, eta=0.2)
        episodes = EpisodeSampler(novel, task).draw(0, self.options.episodes)
        support, query = (novel[rows[0]] for rows in (episodes.support, episodes.query))
        for text, dtype in product(expand("all"), DTYPES):
            found = []
            for device in ("cpu", self.device):
                method = create(text, device=device, dtype=dtype)
                scores = method.score_episodes(novel, episodes, method.prepare_base(base, task))
                face = method.fit_base(base).fit(support)
                alone = [face.predict_proba(part) for part in (query, query[:1])]
                found.append((torch.softmax(scores.double(), -1), *map(torch.tensor, alone)))
            tasks_there, tasks_here = found[0][0], found[1][0]
            gaps = [
                float((a.double() - b.double()).abs().max()) for a, b in zip(*found, strict=True)
            ]
            same = (tasks_here.argmax(-1) == tasks_there.argmax(-1)).double().mean()
            self.tell(
                "kinds", method=text, dtype=dtype, same=100 * float(same),
                accuracy=accuracy(tasks_here.argmax(-1).numpy(), episodes),
                largest_gap=gaps[0], of_face=gaps[1], of_one_query=gaps[2],
            )  # fmt: skip

    def primitives(self) -> None:
        """Batched linear algebra as Marginal and UGDA use it."""
        eye = torch.eye
        for batch, width in ((2000, 32), (8000, 32), (2000, 64), (2000, 128), (400, 300)):
            x = torch.randn(batch, width, width + 8, device=self.device)
            matrix = x @ x.mT / width + eye(width, device=self.device)
            factor = torch.linalg.cholesky_ex(matrix)[0]
            same = eye(width, device=self.device).expand_as(matrix)
            actions: dict[str, Callable[[], Any]] = {
                "cholesky": lambda m=matrix: torch.linalg.cholesky_ex(m),
                "triangular": lambda f=factor, s=same: torch.linalg.solve_triangular(
                    f, s, upper=False
                ),
                "inverse": lambda m=matrix: torch.linalg.inv_ex(m),
                "product": lambda m=matrix: m @ m,
            }
            if width <= 64:
                actions |= {
                    "eigh": lambda m=matrix: torch.linalg.eigh(m),
                    "qr": lambda m=matrix: torch.linalg.qr(m[:400]),
                    "cholesky_inverse": lambda f=factor: torch.cholesky_inverse(f[:2000]),
                    "solve": lambda m=matrix: torch.linalg.solve_ex(m, m[..., :1]),
                }
            found = {}
            for title, action in actions.items():
                action()
                found[title] = 1e3 * min(timed(action, self.device)[1] for _ in range(3))
            self.tell("primitives, ms", batch=batch, width=width, **found)
        small = torch.zeros(1000, device=self.device)

        def launch_many() -> None:
            for _ in range(1000):
                small.add_(1.0)

        launch_many()
        self.tell("a launch", microseconds=1e3 * timed(launch_many, self.device)[1])
        for side in (1000, 2000):
            rows = torch.randn(side, side + 10, device=self.device, dtype=torch.float64)
            gram = rows @ rows.T
            torch.linalg.eigh(gram)
            took = timed(lambda g=gram: torch.linalg.eigh(g), self.device)[1]
            self.tell("eigh of one, float64", side=side, seconds=took)


def odd_data() -> tuple[MultiViewData, MultiViewData]:
    """A base and a novel set with all that rows may have, in reverse order."""
    base, novel = synthetic_data(per_class=30)
    rng = np.random.default_rng(0)
    found = []
    for data in (base, novel):
        code = np.unique(data.labels, return_inverse=True)[1]
        views = {name: np.array(block) for name, block in data.views.items()}
        views["shape"][rng.random(views["shape"].shape) < 0.1] = np.nan
        views["words"] = rng.poisson(0.1 + 0.3 * (np.arange(60) % 7 == code[:, None]))
        views["one"] = code[:, None] % 2 + 0.3 * rng.normal(size=(len(code), 1))
        views["colour"][:, 0] = 0.1
        gone = rng.random((len(code), len(views))) < 0.15
        gone[:, 0] = False
        for lost, name in zip(gone.T, views, strict=True):
            views[name] = np.where(lost[:, None], np.nan, views[name])
        found.append(MultiViewData(views, data.labels, partial_rows="keep")[::-1])
    return found[0], found[1]


def main() -> None:
    options = parser(__doc__ or "")
    options.set_defaults(device="cuda")
    options.add_argument("--jobs", default="graphs,times,agree,prepare,tables,launches")
    options.add_argument("--methods", default=",".join(METHODS))
    options.add_argument("--episodes", type=int, default=400)
    options.add_argument("--shot", type=int, default=None, help="supports of a class")
    options.add_argument("--splits", type=int, default=10, help="class splits of a table")
    options.add_argument("--table-episodes", type=int, default=40, help="of every cell")
    options.add_argument("--processes", type=int, default=1, help="that compute tables")
    options.add_argument("--rows", type=int, default=12, help="operations that a profile lists")
    options.add_argument("--label", default="now", help="what these lines are called")
    options.add_argument("--output", default=None)
    arguments = options.parse_args()
    print_machine(arguments.device)
    devices = Devices(arguments)
    begin = time.perf_counter()
    try:
        for job in arguments.jobs.split(","):
            getattr(devices, job)()
            print(f"# {job} done at {time.perf_counter() - begin:.1f} s", flush=True)
    finally:
        if arguments.output:
            Path(arguments.output).write_text(json.dumps(devices.found, indent=1) + "\n")


if __name__ == "__main__":
    main()
