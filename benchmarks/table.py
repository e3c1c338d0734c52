"""The table of `make bench`: how fast every job is, against its floor and the reference solver.

CPU:  python benchmarks/table.py
GPU:  PYTHONPATH=src:benchmarks python benchmarks/table.py --device cuda

Jobs are timed one after the other in one run, so that they share the state of the machine: episode
building, base statistics, the methods on the same episodes, then whole tables. With a GPU the same
episodes are scored on the CPU too and predictions compared (`--agree` of them). `--tables` runs
every table whose data are there. Results go to benchmarks/results/table-DEVICE.json and .md;
floors are explained in benchmarks/floors.py.
"""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import floors
import numpy as np
import torch
from common import accuracy, base_source, parser, predictions, tasks, timed
from floors import Cost, Rates
from memory import peak_memory

from fewview.datasets import class_split, get_spec, is_present, load
from fewview.engine._contract import kept_tensors, learn_base, scale_base
from fewview.engine._method import Method
from fewview.engine._registry import create
from fewview.episodes import EpisodeSampler, TaskSpec
from fewview.methods.marginal._covariances import MarginalStatistics
from fewview.methods.marginal._outside import DIRECTIONS
from fewview.methods.marginal._projection import fit_projection
from fewview.methods.marginal._rounds import Explaining
from fewview.methods.marginal._settings import Settings
from fewview.methods.ugda._base_statistics import BaseStatistics, is_dense
from fewview.methods.ugda._rectification import Objective
from fewview.numerics import ViewTensors, _again
from fewview.numerics._moments import ClassStatistics
from fewview.samples import largest_rate

RESULTS = Path(__file__).parent / "results"
TABLES = (
    "handwritten", "scene15", "cub_googlenet_doc2vec", "caltech102", "orl", "birds200",
    "tieredimagenet_tiny", "leaves100",
)  # fmt: skip
ETAS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
INDUCTIVE = "marginal:settings=default:transductive=false"
TRANSDUCTIVE = "marginal:settings=default"


@dataclass
class Row:
    """One line of the table.

    Attributes:
        job: what was done.
        dataset: on what.
        device: where.
        tasks: how many tasks, or 1.
        seconds: how long.
        floor: seconds that the answer needs at least, see floors.py; None where not counted.
        reference: seconds per task of UGDA's reference solver in the same run, if it ran.
        memory: peak on top of what was held before, bytes.
        accuracy: percent.
        note: anything else.
    """

    job: str
    dataset: str
    device: str
    tasks: int
    seconds: float
    floor: float | None = None
    reference: float | None = None
    memory: int = 0
    accuracy: float | None = None
    note: str = ""

    @property
    def per_second(self) -> float:
        """Tasks per second."""
        return self.tasks / self.seconds

    def cells(self) -> list[str]:
        """As text."""
        return [
            self.job,
            self.dataset,
            self.device,
            str(self.tasks),
            f"{self.seconds:.3g}",
            f"{self.per_second:.4g}",
            "" if self.reference is None else f"{self.reference * self.per_second:.3g}",
            "" if self.floor is None else f"{self.floor:.2g}",
            "" if self.floor is None else f"{self.seconds / self.floor:.3g}",
            f"{self.memory / 2**20:.0f}",
            "" if self.accuracy is None else f"{self.accuracy:.2f}",
            self.note,
        ]


HEADER = (
    "job", "data set", "device", "tasks", "seconds", "per second", "x reference", "floor, s",
    "x floor", "peak MiB", "accuracy", "note",
)  # fmt: skip


def measured(action: Callable[[], Any], device: str, repeats: int = 1) -> tuple[Any, float, int]:
    """Result, best seconds, peak memory of the first run."""
    with peak_memory(device) as peak:
        out, best = timed(action, device)
    for _ in range(repeats - 1):
        best = min(best, timed(action, device)[1])
    return out, best, peak.bytes


@contextmanager
def counted_evaluations() -> Iterator[list[int]]:
    """How many tasks are worked on inside the block, one entry per call.

    Of UGDA evaluations of the objective of ADSR, of Marginal rounds of an explanation.
    """
    usual, rounds, counts, first = Objective.of_logits, Explaining.believe, [], _again.FIRST

    def counting(self: Objective, logits: torch.Tensor, members: torch.Tensor) -> Any:
        counts.append(len(logits))
        return usual(self, logits, members)

    def counting_rounds(self: Explaining, now: Any, *found: torch.Tensor) -> Any:
        counts.append(int(found[-1].sum()))
        return rounds(self, now, *found)

    Objective.of_logits = counting  # type: ignore[method-assign]
    Explaining.believe = counting_rounds  # type: ignore[method-assign]
    _again.FIRST = sys.maxsize  # graphs are not counted
    try:
        yield counts
    finally:
        _again.FIRST = first
        Objective.of_logits = usual  # type: ignore[method-assign]
        Explaining.believe = rounds  # type: ignore[method-assign]


def forget() -> None:
    """Empty the memory of prepared states, so that preparing is timed and not looked up."""
    for function in (learn_base, scale_base, kept_tensors):
        function.cache.clear()


def ranks_of(state: Any) -> list[int | None]:
    """Rows of the factors that anchors of a view are drawn through; None where dense."""
    if not isinstance(state, BaseStatistics):
        return []
    return [
        None if dense.numel() else int(factor.shape[1])
        for dense, factor in zip(state.covariances, state.factors, strict=True)
    ]


class Bench:
    """One run: rates of the machine, options, and the rows found so far."""

    def __init__(self, options: Any) -> None:
        self.options = options
        self.device: str = options.device
        self.rows: list[Row] = []
        self.rates: Rates = floors.measure_rates(self.device)

    def add(self, row: Row) -> Row:
        """Keep a row and show it."""
        self.rows.append(row)
        print("  ".join(cell for cell in row.cells() if cell), flush=True)
        return row

    def method(self, text: str, device: str | None = None, **parameters: Any) -> Method:
        """Make a method on the device of the run."""
        return create(
            text,
            device=device or self.device,
            max_memory=self.options.max_memory,
            **parameters,
        )

    # ------------------------------------------------------------------ pieces of the work

    def building(self, name: str) -> None:
        """Draw episodes and gather their tensors."""
        data, _, task, episodes = self.tasks(name)
        sampler = EpisodeSampler(data, task, class_split(name, 0).novel, name=name)
        tensors = ViewTensors.of(data, self.device)
        count = len(episodes)
        tensors.gather(sampler.draw(0, count))
        _, took, peak = measured(lambda: tensors.gather(sampler.draw(0, count)), self.device, 3)
        dims = list(data.view_dims.values())
        cost = floors.episodes_cost(count, task.way * task.shot + task.n_query, dims)
        floor = cost.seconds(self.rates)
        self.add(Row("episode building", name, self.device, count, took, floor, memory=peak))

    def statistics(self, name: str) -> None:
        """Sums over base classes, on the CPU whatever the device: they are gathered once."""
        _, base, _, _ = self.tasks(name)
        rates = self.rates if self.device == "cpu" else floors.measure_rates("cpu")
        _, scaled = scale_base(base, "scale")
        cost = Cost()
        for view, width in enumerate(base.view_dims.values()):
            counts = np.bincount(base.codes[base.mask[:, view]]).tolist()
            cost += floors.class_statistics_cost(counts, width, is_dense(width, max(counts)))
        _, took, peak = measured(lambda: ClassStatistics.of(scaled), "cpu", 3)
        floor = cost.seconds(rates)
        self.add(Row("base statistics, ugda", name, "cpu", 1, took, floor, memory=peak))
        _, scaled = scale_base(base, "standard+unit")
        projection = fit_projection(scaled, Settings.components)
        dims = list(base.view_dims.values())
        cost = floors.marginal_statistics_cost(len(base), dims, projection.dims)
        _, took, peak = measured(lambda: MarginalStatistics(projection).update(scaled), "cpu", 3)
        floor = cost.seconds(rates)
        self.add(Row("base statistics, marginal", name, "cpu", 1, took, floor, memory=peak))
        for text in ("ugda", TRANSDUCTIVE):
            forget()
            method = self.method(text)
            task = self.tasks(name)[2]
            _, took, peak = measured(
                lambda m=method, t=task: m.prepare_base(base, t),  # type: ignore[misc]
                self.device,
            )
            label = f"preparing, {text.partition(':')[0]}"
            self.add(Row(label, name, self.device, 1, took, memory=peak))

    def scoring(self, name: str) -> None:
        """All methods on the same episodes."""
        data, base, task, episodes = self.tasks(name)
        spec = get_spec(name)
        dims = list(data.view_dims.values())
        few = episodes[: self.options.reference_episodes]
        authors = {
            "latent_dim": spec.latent_dim,
            "learning_rate": spec.learning_rate,
            "tasks_per_batch": spec.tasks_per_batch or 400,
        }
        jobs: list[tuple[str, str, dict[str, Any], Any]] = [
            ("ugda reference", "ugda:solver=reference", authors, few),
            ("ugda adam", "ugda:solver=adam", authors, few),
            ("ugda exact, same episodes", "ugda", {}, few),
            ("ugda exact", "ugda", {}, episodes),
            ("marginal inductive", INDUCTIVE, {}, episodes),
            ("marginal transductive", TRANSDUCTIVE, {}, episodes),
            ("ptmap", "ptmap", {}, episodes),
            ("tim", "tim", {}, episodes[: min(len(episodes), 100)]),
            ("rfs", "rfs", {}, episodes),
        ]
        reference = None
        for job, text, parameters, chosen in jobs:
            if self.options.skip_reference and "solver" in text:
                continue
            method = self.method(text, **parameters)
            prepared = method.prepare_base(base, task)
            predictions(method, data, prepared, chosen[:2])  # libraries load, kernels are chosen
            slow = "solver" in text
            with counted_evaluations() as evaluations:
                found, took, peak = measured(
                    lambda m=method, p=prepared, e=chosen: predictions(m, data, p, e),  # type: ignore[misc]
                    self.device,
                )
            if not slow:
                again = measured(
                    lambda m=method, p=prepared, e=chosen: predictions(m, data, p, e),  # type: ignore[misc]
                    self.device,
                    self.options.repeats,
                )
                took = min(took, again[1])
            cost = self.cost(name, text, task, dims, prepared.state, sum(evaluations), len(chosen))
            if job == "ugda reference":
                reference = took / len(chosen)
            row = Row(
                job, name, self.device, len(chosen), took, cost.seconds(self.rates), reference,
                peak, accuracy(found, chosen),
            )  # fmt: skip
            if self.device != "cpu" and self.options.agree and not slow:
                row.note = self.agreement(text, data, base, task, chosen, found)
            self.add(row)

    def cost(
        self,
        name: str,
        text: str,
        task: TaskSpec,
        dims: list[int],
        state: Any,
        evaluations: int,
        count: int,
    ) -> Cost:
        """What the answers of `count` tasks need; evaluations, rounds are those of all of them."""
        shape = (task.way * task.shot, task.n_query, task.way, dims)
        if "solver" in text:
            latent = get_spec(name).latent_dim or 512
            ranks = ranks_of(state)
            trained = dims[-1] if "reference" in text else None
            steps = (100, latent, 30, 10, 1000)
            return floors.ugda_adam_cost(*shape, ranks, *steps, trained) * count
        if text == "ugda":
            per_task = evaluations / max(count, 1)
            return floors.ugda_exact_cost(*shape, ranks_of(state), 100, per_task) * count
        if text.startswith("marginal"):
            kept, left = list(state.model.dims), state.profile.views if state.profile else ()
            rank, rounds = min(128, sum(kept)), evaluations / max(count, 1)
            more = (rounds, left if rounds else (), DIRECTIONS)
            return floors.marginal_cost(*shape, kept, rank, task.eta, *more) * count
        if text == "tim":
            return floors.tim_cost(*shape, 1000) * count
        if text == "ptmap":
            return floors.ptmap_cost(*shape, 20) * count
        return floors.rfs_cost(*shape) * count

    def agreement(
        self, text: str, data: Any, base: Any, task: Any, episodes: Any, found: Any
    ) -> str:
        """Share of equal predictions on the CPU, and the difference in accuracy."""
        some = episodes[: self.options.agree]
        method = self.method(text, device="cpu")
        other = predictions(method, data, method.prepare_base(base, task), some)
        mine = found[: len(some)]
        same = 100 * float((other == mine).mean())
        gap = accuracy(mine, some) - accuracy(other, some)
        return f"{same:.3f} % of predictions as on the CPU, accuracy {gap:+.3f}"

    # ------------------------------------------------------------------ whole tables

    def whole_table(self, name: str, text: str) -> Row:
        """Every missing rate of the paper on every class split, base preparation included."""
        data = load(name, self.options.data_dir)
        spec = get_spec(name)
        source = base_source(name, data, self.options.data_dir)
        forget()
        etas = [eta for eta in ETAS if eta <= largest_rate(data.n_views) + 1e-9]
        count = self.options.table_episodes
        splits = 1 if spec.fixed_split else self.options.table_splits
        per_split = count // splits
        hits: list[float] = []
        seconds_base = 0.0
        cost = Cost()
        dims = list(data.view_dims.values())

        def run() -> None:
            nonlocal seconds_base, cost
            for split in range(splits):
                classes = class_split(name, split, data_dir=self.options.data_dir)
                base = source[np.isin(source.labels, classes.base)]
                for eta in etas:
                    task = TaskSpec(spec.way, spec.shot, spec.queries, eta=eta)
                    sampler = EpisodeSampler(data, task, classes.novel, name=name)
                    episodes = sampler.draw(split * per_split, (split + 1) * per_split)
                    method = self.method(text)
                    before = len(learn_base.cache)
                    prepared = method.prepare_base(base, task)
                    if len(learn_base.cache) != before:
                        seconds_base += prepared.seconds
                    with counted_evaluations() as evaluations:
                        found = predictions(method, data, prepared, episodes)
                    n, k = len(episodes), sum(evaluations)
                    cost += self.cost(name, text, task, dims, prepared.state, k, n)
                    cost += floors.episodes_cost(n, found.shape[1] + task.way * task.shot, dims)
                    hits.append(accuracy(found, episodes))

        _, took, peak = measured(run, self.device)
        label = "ugda exact" if text == "ugda" else "marginal"
        return self.add(
            Row(
                f"whole table, {label}", name, self.device, splits * per_split * len(etas), took,
                cost.seconds(self.rates), memory=peak, accuracy=float(np.mean(hits)),
                note=f"{len(etas)} missing rates, {splits} class split(s), base "
                f"{seconds_base:.2f} s of it",
            )
        )  # fmt: skip

    # ------------------------------------------------------------------ all of it

    def tasks(self, name: str) -> Any:
        """Data, base set, task and episodes of class split 0."""
        options = self.options
        return tasks(name, 0, options.eta, 0, options.episodes, options.data_dir)

    def run(self) -> None:
        """Every job on every chosen data set."""
        present = [
            name for name in self.options.datasets.split(",")
            if is_present(name, self.options.data_dir)
        ]  # fmt: skip
        for name in present:
            self.building(name)
            self.statistics(name)
            self.scoring(name)
        whole = TABLES if self.options.tables else ("handwritten",)
        found = [n for n in whole if is_present(n, self.options.data_dir)]
        total = 0.0
        for name in [] if self.options.no_tables else found:
            for text in ("ugda", TRANSDUCTIVE):
                total += self.whole_table(name, text).seconds
        if self.options.tables:
            note = f"{len(found)} tables, ugda and marginal"
            self.add(Row("all tables", "", self.device, 1, total, note=note))

    def save(self, command: str) -> None:
        """Write JSON for the documents and Markdown for people."""
        folder = Path(self.options.output or RESULTS)
        folder.mkdir(parents=True, exist_ok=True)
        kind = "cuda" if self.device.startswith("cuda") else self.device
        machine = describe_machine(self.device)
        content = {
            "command": command,
            "machine": machine,
            "rates": asdict(self.rates),
            "rows": [asdict(row) for row in self.rows],
        }
        (folder / f"table-{kind}.json").write_text(json.dumps(content, indent=1) + "\n")
        lines = [
            f"`{command}` on {machine}: matrix product {self.rates.product / 1e9:.0f} "
            f"giga-operations/s, copy {self.rates.copy / 1e9:.1f} GB/s.",
            "",
            *markdown(HEADER, [row.cells() for row in self.rows]),
        ]
        (folder / f"table-{kind}.md").write_text("\n".join(lines) + "\n")
        print(f"saved {folder / f'table-{kind}.md'}")


def describe_machine(device: str) -> str:
    """The processor, its threads, torch."""
    name = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        name = next(line.partition(":")[2].strip() for line in lines if "model name" in line)
    except (OSError, StopIteration):
        pass
    if device.startswith("cuda"):
        name = f"{torch.cuda.get_device_name()} ({name})"
    return f"{name}, {torch.get_num_threads()} threads, torch {torch.__version__}"


def markdown(header: Any, rows: Any) -> list[str]:
    """Lines of a Markdown table."""
    return [
        "| " + " | ".join(header) + " |",
        "|" + "---|" * len(header),
        *("| " + " | ".join(row) + " |" for row in rows),
    ]


def main() -> None:
    options = parser(__doc__ or "")
    options.add_argument("--episodes", type=int, default=400)
    options.add_argument("--reference-episodes", type=int, default=20)
    options.add_argument("--table-episodes", type=int, default=400, help="per missing rate")
    options.add_argument(
        "--table-splits", type=int, default=10, help="class splits that share them; 1 as the paper"
    )
    options.add_argument("--repeats", type=int, default=2, help="runs of which the best counts")
    options.add_argument("--agree", type=int, default=100, help="episodes compared with the CPU")
    options.add_argument("--max-memory", type=float, default=None, help="GiB per batch of tasks")
    options.add_argument("--skip-reference", action="store_true")
    options.add_argument("--tables", action="store_true", help="every table whose data are there")
    options.add_argument("--no-tables", action="store_true")
    options.add_argument("--output", default=None, help="folder of the results")
    arguments = options.parse_args()
    bench = Bench(arguments)
    try:
        bench.run()
    finally:  # what a stopped run has measured is kept
        bench.save("python " + " ".join(sys.argv))


if __name__ == "__main__":
    main()
