"""The methods that train networks: presets against each other, and against the paper.

`presets` (a GPU, about five minutes): `paper` against `fast` on one class split and one missing
rate per data set, and `paper` without missing views on handwritten; accuracies, seconds, how far
training brings the loss down, and how many predictions differ from Proto's.

    python benchmarks/trained.py presets --device cuda --episodes 100 --output trained

`splits` (two cores or a GPU): `fast` on three class splits at all missing rates, beside the
paper's rows.

    python benchmarks/trained.py splits --output trained

`choose` (a GPU, about four minutes): candidates for the `fast` settings beside those before, on
tasks made of base classes alone. Methods that train in the task get tasks of all base classes;
COMPLETER learns from some base classes and is tried on the others, on tasks with fewer ways where
there are few base classes.

    python benchmarks/trained.py choose --device cuda --jobs 6 --output trained

Rows are printed as they come and written to a JSON file in the output folder after each one. A
method that fails is written down as failed, and the others go on.
"""

from __future__ import annotations

import json
import os
import traceback
from collections import defaultdict
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch
from common import (
    accuracy,
    base_task,
    paper_accuracies,
    parser,
    predictions,
    print_machine,
    print_table,
    tasks,
    timed,
)

from fewview.datasets import get_spec
from fewview.engine._registry import create
from fewview.episodes import Episodes, EpisodeSampler, TaskSpec
from fewview.episodes._pretended import draw_folds
from fewview.numerics._networks import Epoch, watch_training
from fewview.samples import MultiViewData

METHODS = ("cpm", "cpm-gan", "icmsc", "completer")
ETAS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
# Candidates for the `fast` settings; the first of a method are those that came before, with which
# the others are compared. Every setting that was tried is written out, whatever `fast` is now.
CANDIDATES = {
    "completer": (
        "completer:code=64:alpha=9:learning_rate=0.001",
        "completer:code=64:alpha=9:learning_rate=0.003",
        "completer:code=32:alpha=9:learning_rate=0.001",
        "completer:code=16:alpha=9:learning_rate=0.001",
        "completer:code=16:alpha=9:learning_rate=0.003",
        "completer:code=64:alpha=9:learning_rate=0.003:batch=4096",
        "completer:code=16:alpha=9:learning_rate=0.003:batch=4096",
        "completer:code=64:alpha=1:learning_rate=0.001",
        "completer:code=32:alpha=1:learning_rate=0.001",
        "completer:code=16:alpha=1:learning_rate=0.001",
    ),
    "cpm": (
        "cpm:latent=64",
        "cpm:latent=128",
        "cpm:latent=256",
        "cpm:hidden=150:latent=128:dropout=0.1",
        "cpm:class_weight=10",
        "cpm:learning_rate=0.003:query_epochs=50",
    ),
    "cpm-gan": (
        "cpm-gan:adversarial_weight=0.01",
        "cpm-gan:adversarial_weight=0.1",
        "cpm-gan:adversarial_weight=0.03",
        "cpm-gan:adversarial_weight=0.003",
    ),
    "icmsc": (
        "icmsc:learning_rate=0.001:metric=euclidean",
        "icmsc:learning_rate=0.001:metric=euclidean:subspace_rate=0.0001",
        "icmsc:learning_rate=0.001:metric=euclidean:subspace_rate=0.001",
        "icmsc:learning_rate=0.003:metric=euclidean",
        "icmsc:learning_rate=0.01:metric=euclidean",
        "icmsc:learning_rate=0.001:metric=euclidean:width=256:view_width=128",
        "icmsc:learning_rate=0.001:metric=cosine",
        "icmsc:learning_rate=0.003:metric=cosine",
    ),
}
# A candidate replaces the first one where it is better by both: points, and standard errors.
LEAST_GAIN = (1.0, 1.5)
POINTS = 10  # of a loss curve that are written down


class Curves:
    """Mean loss by stage and epoch, over batches of tasks, and of every part of a loss."""

    def __init__(self) -> None:
        self.seen: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))

    def __call__(self, epoch: Epoch) -> None:
        """Remember the first epochs, the last one, and some between."""
        if 1 < epoch.number < epoch.total and epoch.number % max(1, epoch.total // POINTS):
            return
        parts = {f"{epoch.stage}, {name}": part for name, part in epoch.parts.items()}
        for name, loss in {epoch.stage: epoch.loss, **parts}.items():
            self.seen[name][epoch.number].append(float(loss.mean()))

    def curves(self) -> dict[str, list[list[float]]]:
        """Pairs of epoch and loss, for every stage and part."""
        return {
            name: [[number, float(np.mean(losses))] for number, losses in sorted(curve.items())]
            for name, curve in self.seen.items()
        }


def ends(row: dict[str, Any]) -> dict[str, tuple[float, float]]:
    """First and last loss of every stage and part of a row."""
    return {name: (curve[0][1], curve[-1][1]) for name, curve in row["losses"].items()}


class Report:
    """Rows that are printed and written as they come, after those of an earlier run."""

    def __init__(self, path: Path, resume: bool) -> None:
        self.path = path
        self.rows: list[dict[str, Any]] = []
        if resume and path.exists():
            rows = json.loads(path.read_text(encoding="utf-8"))
            self.rows = [row for row in rows if "failure" not in row]
        path.parent.mkdir(parents=True, exist_ok=True)

    def add(self, row: dict[str, Any]) -> None:
        """Print a row and write all."""
        self.rows.append(row)
        print(describe(row), flush=True)
        self.path.write_text(json.dumps(self.rows, indent=1) + "\n", encoding="utf-8")


def describe(row: dict[str, Any]) -> str:
    """One line of a row."""
    head = f"{row['dataset']:<22} split {row['split']} eta {row['eta']:g} {row['method']:<30}"
    if "failure" in row:
        return f"{head} failed: {row['failure']}"
    losses = "  ".join(
        f"{stage} {first:.4g} -> {last:.4g} ({first / max(last, 1e-12):.3g} x)"
        for stage, (first, last) in ends(row).items()
    )
    paper = "" if row.get("paper") is None else f"  paper {row['paper']:.2f}"
    differs = f"  differs {row['differs']:.1f} %" if "differs" in row else ""
    base = f" + {row['seconds_base']:.2f} s base" if "seconds_base" in row else ""
    return (
        f"{head} {row['accuracy']:6.2f} %{paper}  proto {row['proto']:.2f}{differs}  "
        f"{row['seconds']:.2f} s{base}  {losses}"
    )


def text_of(name: str, preset: str, dataset: str) -> str:
    """A method as typed; CPM's published settings have a row of their own for Cub."""
    script = ":script=cub" if preset == "paper" and name.startswith("cpm") else ""
    script = script if dataset.startswith("cub") else ""
    return f"{name}:preset={preset}{script}"


def one(
    dataset: str,
    split: int,
    eta: float,
    text: str,
    arguments: Any,
    paper: dict[tuple[str, str, float], float],
) -> dict[str, Any]:
    """Run one method on one class split and one missing rate."""
    row: dict[str, Any] = {
        "dataset": dataset, "split": split, "eta": eta, "method": text, "device": arguments.device,
        "episodes": arguments.episodes,
    }  # fmt: skip
    try:
        data, base, task, episodes = tasks(
            dataset, split, eta, 0, arguments.episodes, arguments.data_dir
        )
        others = []
        for padding in ("zero", "episode"):
            proto = create(f"proto:padding={padding}")
            others.append(predictions(proto, data, proto.prepare_base(base, task), episodes))
        memory = 40.0 if arguments.device.startswith("cuda") else 1.0
        method = create(text, device=arguments.device, max_memory=memory)
        curves = Curves()
        with watch_training(curves):
            prepared, seconds_base = timed(
                lambda: method.prepare_base(base, task), arguments.device
            )
            found, seconds = timed(
                lambda: predictions(method, data, prepared, episodes), arguments.device
            )
        right = (found == episodes.query_labels).mean(1)
        row |= {
            "accuracy": accuracy(found, episodes),
            "standard_error": 100 * float(right.std() / len(right) ** 0.5),
            "paper": paper.get((dataset, method.name, eta)),
            "proto": accuracy(others[0], episodes),
            # The smaller one: Proto under neither padding may be what the method is.
            "differs": 100 * min(float((found != other).mean()) for other in others),
            "seconds": seconds,
            "seconds_base": seconds_base,
            "losses": curves.curves(),
        }
    except Exception as error:
        traceback.print_exc()
        row["failure"] = f"{type(error).__name__}: {error}"
    return row


def presets(arguments: Any, report: Report, paper: Any) -> None:
    """`paper` against `fast`; the longest trainings last, and none after the time is over."""
    plan = []
    for dataset in arguments.datasets.split(","):
        etas = (0.0, arguments.eta) if dataset == "handwritten" else (arguments.eta,)
        plan += [
            (
                name == "completer" and preset == "paper",
                dataset,
                eta,
                text_of(name, preset, dataset),
            )
            for eta in etas
            for name in arguments.methods.split(",")
            for preset in ("fast", "paper")
        ]
    start = perf_counter()
    for _, dataset, eta, text in sorted(plan, key=lambda item: item[0]):
        if perf_counter() - start > arguments.seconds:
            report.add(
                {"dataset": dataset, "split": 0, "eta": eta, "method": text, "failure": "no time"}
            )
            continue
        report.add(one(dataset, 0, eta, text, arguments, paper))
    rows = {(r["dataset"], r["eta"], r["method"]): r for r in report.rows if "failure" not in r}
    table = []
    for (dataset, eta, method), row in rows.items():
        fast = rows.get((dataset, eta, f"{method.split(':')[0]}:preset=fast"))
        if "preset=paper" not in method or fast is None:
            continue
        table.append(
            [
                dataset, f"{eta:g}", method.split(":")[0],
                f"{fast['accuracy']:.2f}", f"{row['accuracy']:.2f}",
                f"{fast['accuracy'] - row['accuracy']:+.2f}", _number(row["paper"]),
                f"{fast['proto']:.2f}",
                *(f"{r['seconds'] + r['seconds_base']:.1f}" for r in (fast, row)),
                *(f"{r['differs']:.1f} %" for r in (fast, row)),
                *(_ratios(r) for r in (fast, row)),
            ]
        )  # fmt: skip
    print_table(
        ("data set", "eta", "method", "fast", "paper preset", "difference", "the paper", "proto",
         "s fast", "s paper", "differs fast", "differs paper", "loss fast", "loss paper"),
        table,
    )  # fmt: skip


def _ratios(row: dict[str, Any]) -> str:
    """First over last loss of every stage; nothing where networks were trained before."""
    return ", ".join(
        f"{first / max(last, 1e-12):.3g}"
        for name, (first, last) in ends(row).items()
        if "," not in name
    )


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def splits(arguments: Any, report: Report, paper: Any) -> None:
    """`fast` beside the paper's rows, with our range over class splits."""
    for dataset in arguments.datasets.split(","):
        for split in range(arguments.splits):
            for name in arguments.methods.split(","):
                # All missing rates in a row: COMPLETER is trained once for them.
                for eta in ETAS:
                    text = text_of(name, "fast", dataset)
                    report.add(one(dataset, split, eta, text, arguments, paper))
    groups: dict[tuple[str, str, float], list[dict[str, Any]]] = defaultdict(list)
    for row in report.rows:
        if "failure" not in row:
            groups[row["dataset"], row["method"].split(":")[0], row["eta"]].append(row)
    table = []
    for (dataset, name, eta), rows in groups.items():
        found = [row["accuracy"] for row in rows]
        wanted = paper.get((dataset, name, eta))
        inside = wanted is not None and min(found) <= wanted <= max(found)
        proto = float(np.mean([row["proto"] for row in rows]))
        gap = paper.get((dataset, "proto", eta))
        table.append(
            [
                dataset, name, f"{eta:g}", f"{np.mean(found):.2f}",
                f"{min(found):.1f} to {max(found):.1f}", _number(wanted),
                "yes" if inside else "no", f"{np.mean(found) - proto:+.1f}",
                "" if wanted is None or gap is None else f"{wanted - gap:+.1f}",
                f"{np.mean([row['differs'] for row in rows]):.0f} %",
                f"{sum(row['seconds'] + row['seconds_base'] for row in rows):.1f}",
            ]
        )  # fmt: skip
    print_table(
        ("data set", "method", "eta", "ours", "over splits", "paper", "inside",
         "ours - Proto", "paper - Proto", "differs", "seconds"),
        table,
    )  # fmt: skip


def base_tasks(
    dataset: str, split: int, eta: float, arguments: Any, folds: bool
) -> list[tuple[MultiViewData, MultiViewData, TaskSpec, Episodes]]:
    """Base classes to learn from, classes that play novel, task and episodes, for every fold."""
    base, task = base_task(dataset, split, eta, data_dir=arguments.data_dir)
    count = arguments.episodes
    if not folds:
        task = replace(task, way=get_spec(dataset).way)
        sampler = EpisodeSampler(base, task, seed=split, name=f"choose {dataset}")
        return [(base, base, task, sampler.draw(0, count))]
    drawn = draw_folds(base, task, split, arguments.folds, 2 * count)
    return [(fold.known, fold.unknown, task, fold.episodes[0]) for fold in drawn]


def try_candidate(dataset: str, split: int, text: str, arguments: Any) -> list[dict[str, Any]]:
    """Rows of one candidate on base classes of one split, one row for each missing rate."""
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    rows = []
    memory = 4.0 if arguments.device.startswith("cuda") else 1.0
    for eta in map(float, arguments.etas.split(",")):
        row: dict[str, Any] = {"dataset": dataset, "split": split, "eta": eta, "method": text}
        try:
            method = create(text, device=arguments.device, max_memory=memory)
            correct, proto, seconds, curves = [], [], 0.0, Curves()
            for known, unknown, task, episodes in base_tasks(
                dataset, split, eta, arguments, method.tags.needs_base
            ):
                start = perf_counter()
                with watch_training(curves):
                    state = method.prepare_base(known, task)
                    found = predictions(method, unknown, state, episodes)
                seconds += perf_counter() - start
                correct.append((found == episodes.query_labels).mean(1))
                plain = create("proto:padding=zero")
                found = predictions(plain, unknown, plain.prepare_base(known, task), episodes)
                proto.append(accuracy(found, episodes))
            right = np.concatenate(correct)
            row |= {
                "accuracy": 100 * float(right.mean()),
                "standard_error": 100 * float(right.std() / len(right) ** 0.5),
                "folds": [100 * float(part.mean()) for part in correct],
                "episodes": len(right),
                "proto": float(np.mean(proto)),
                "seconds": seconds,
                "losses": curves.curves(),
            }
        except Exception as error:
            traceback.print_exc()
            row["failure"] = f"{type(error).__name__}: {error}"
        rows.append(row)
    return rows


def choose(arguments: Any, report: Report, paper: Any) -> None:
    """Candidates for the `fast` settings on base classes, all of one class split before the next.

    With `--jobs` above one, that many processes share the device: small networks leave it idle.
    """
    plan = [
        (dataset, split, text)
        for split in range(arguments.splits)
        for name in CANDIDATES
        if name in arguments.methods.split(",")
        for dataset in arguments.datasets.split(",")
        for text in CANDIDATES[name]
    ]
    known = {(row["dataset"], row["split"], row["method"]) for row in report.rows}
    plan = [item for item in plan if item not in known]
    start = perf_counter()
    if arguments.jobs == 1:
        for dataset, split, text in plan:
            if perf_counter() - start > arguments.seconds:
                break
            for row in try_candidate(dataset, split, text, arguments):
                report.add(row)
        choice_table(report.rows)
        return
    pool = ProcessPoolExecutor(arguments.jobs, mp_context=get_context("spawn"))
    waiting = {pool.submit(try_candidate, *item, arguments) for item in plan}
    while waiting and perf_counter() - start < arguments.seconds:
        ready, waiting = wait(waiting, timeout=2, return_when=FIRST_COMPLETED)
        for done in ready:
            if done.exception() is not None:
                print(f"a process failed: {done.exception()}", flush=True)
                continue
            for row in done.result():
                report.add(row)
    choice_table(report.rows)
    print(f"# {perf_counter() - start:.0f} s in all; rows are in {report.path}", flush=True)
    for process in list(pool._processes.values()):
        process.kill()
    os._exit(0)  # what was not started in time is not waited for


def choice_table(rows: list[dict[str, Any]]) -> None:
    """Differences of candidates from the first one, paired over data sets and splits."""
    found = {
        (row["method"], row["dataset"], row["split"], row["eta"]): row["accuracy"]
        for row in rows
        if "failure" not in row
    }
    sets = list(dict.fromkeys(key[1] for key in found))
    table = []
    for candidates in CANDIDATES.values():
        for text in candidates:
            cells, everything = [], []
            for dataset in sets:
                by_split = defaultdict(list)
                levels = []
                for (method, name, split, eta), value in found.items():
                    before = found.get((candidates[0], name, split, eta))
                    if (method, name) == (text, dataset) and before is not None:
                        by_split[split].append(value - before)
                        levels.append(value)
                gains = [float(np.mean(values)) for values in by_split.values()]
                everything.append(gains)
                cells.append(
                    f"{np.mean(levels):.1f} {np.mean(gains):+.1f} +- {spread(gains):.1f}"
                    if gains
                    else ""
                )
            if not any(everything):
                continue
            gain = float(np.mean([np.mean(gains) for gains in everything if gains]))
            error = spread([value for gains in everything for value in gains])
            better = gain >= LEAST_GAIN[0] and gain >= LEAST_GAIN[1] * error
            verdict = "before" if text == candidates[0] else "better" if better else ""
            number = sum(map(len, everything))
            table.append([text, *cells, f"{gain:+.2f}", f"{error:.2f}", str(number), verdict])
    print_table(("candidate", *sets, "gain", "error", "pairs", "verdict"), table)


def spread(values: list[float]) -> float:
    """Standard error of a mean; not a number for fewer than two values."""
    return float(np.std(values, ddof=1) / len(values) ** 0.5) if len(values) > 1 else float("nan")


def main() -> None:
    options = parser(__doc__ or "")
    options.add_argument("mode", choices=("presets", "splits", "choose"))
    options.add_argument("--methods", default=",".join(METHODS))
    options.add_argument("--episodes", type=int, default=None, help="100 for presets, else 20")
    options.add_argument("--splits", type=int, default=3)
    options.add_argument("--seconds", type=float, default=270, help="start no training later")
    options.add_argument("--etas", default="0,0.3", help="choose: missing rates")
    options.add_argument("--folds", type=int, default=2, help="choose: divisions of base classes")
    options.add_argument("--jobs", type=int, default=1, help="choose: processes")
    options.add_argument("--resume", action="store_true", help="choose: go on where it stopped")
    options.add_argument("--threads", type=int, default=None)
    options.add_argument("--output", default="trained", help="folder of the JSON file")
    arguments = options.parse_args()
    if arguments.episodes is None:
        arguments.episodes = 100 if arguments.mode == "presets" else 20
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    print_machine(arguments.device)
    report = Report(
        Path(arguments.output) / f"{arguments.mode}.json",
        resume=arguments.mode == "choose" and arguments.resume,
    )
    start = perf_counter()
    modes = {"presets": presets, "splits": splits, "choose": choose}
    modes[arguments.mode](arguments, report, paper_accuracies())
    print(f"# {perf_counter() - start:.0f} s in all; rows are in {report.path}")


if __name__ == "__main__":
    main()
