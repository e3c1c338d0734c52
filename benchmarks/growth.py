"""How time and memory grow: one size at a time, the others held fixed.

python benchmarks/growth.py              about a quarter of an hour; writes docs/performance.md
python benchmarks/growth.py --quick      small sizes, to see that it works; writes no document

Data are drawn at random, since only sizes matter here. Every point is the best of a few runs, in
processor seconds of one thread; the exponent is the slope of log time over log size through the
upper half of the points, where fixed costs no longer hide it. Results go to
benchmarks/results/growth.json.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import torch
from memory import peak_memory
from table import RESULTS, TRANSDUCTIVE, describe_machine, forget
from threadpoolctl import threadpool_limits

from fewview.engine._registry import create
from fewview.episodes import EpisodeSampler, TaskSpec
from fewview.samples import MultiViewData

METHODS = {"ugda": "ugda", "marginal": TRANSDUCTIVE}


@dataclass(frozen=True)
class Size:
    """One setting; every curve changes one of these.

    Attributes:
        tasks: number of tasks.
        way: classes per task.
        queries: queries per class.
        views: number of views.
        width: features of a view.
        base_classes: number of base classes.
        per_class: base samples of a class.
        shots: supports of a class.
        empty: novel cells that are empty, in ten thousand.
    """

    tasks: int = 50
    way: int = 5
    queries: int = 15
    views: int = 3
    width: int = 64
    base_classes: int = 20
    per_class: int = 30
    shots: int = 1
    empty: int = 0


@dataclass(frozen=True)
class Curve:
    """What is changed, and what is timed: `score` tasks or `prepare` from base classes."""

    name: str
    title: str
    what: str
    sizes: tuple[Size, ...]
    values: tuple[int, ...]


def curves(quick: bool) -> list[Curve]:
    """All curves, from small to large."""

    def along(field: str, title: str, what: str, values: Iterable[int], **fixed: int) -> Curve:
        some = tuple(values)[:3] if quick else tuple(values)
        start = replace(Size(tasks=4) if quick else Size(), **fixed)
        sizes = tuple(replace(start, **{field: value}) for value in some)
        name = title.replace(" ", "-")
        shown = tuple(s.base_classes * s.per_class if field == "per_class" else v
                      for s, v in zip(sizes, some, strict=True))  # fmt: skip
        return Curve(name, title, what, sizes, shown)

    return [
        along("tasks", "tasks", "score", (25, 50, 100, 200, 400, 800)),
        along("way", "ways", "score", (2, 4, 8, 16, 32), tasks=10),
        along("queries", "queries per class", "score", (10, 20, 40, 80, 160, 320), tasks=20),
        along("views", "views", "score", (2, 4, 8, 12, 20, 30), tasks=20),
        along("shots", "supports of a class", "score", (1, 2, 4, 8, 16, 32), tasks=10),
        along("empty", "empty cells in 10 000", "score", (1, 10, 100, 1000, 5000), tasks=10),
        along("width", "features of a view", "score", (16, 64, 256, 1024, 4096), tasks=10),
        along("per_class", "base samples", "prepare", (50, 200, 800, 3200, 12800)),
        along(
            "base_classes", "base classes, preparing", "prepare",
            (100, 1000, 10_000, 100_000), per_class=4, width=16, views=2,
        ),
        along(
            "base_classes", "base classes, scoring", "score",
            (100, 1000, 10_000, 100_000), per_class=4, width=16, views=2,
        ),
    ]  # fmt: skip


def draw(size: Size) -> tuple[MultiViewData, MultiViewData]:
    """Base samples and novel samples of Gaussian classes."""
    rng = np.random.default_rng(0)
    out = []
    novel = (size.way + 2, size.shots + size.queries)
    first = 0
    for classes, per_class in ((size.base_classes, size.per_class), novel):
        labels = np.repeat(np.arange(first, first + classes), per_class)
        blocks = {}
        for view in range(size.views):
            means = rng.normal(size=(classes, size.width)).astype(np.float32)
            noise = rng.standard_normal((len(labels), size.width), dtype=np.float32)
            block = np.repeat(means, per_class, axis=0) + noise
            if out:
                block[rng.random(block.shape) < size.empty / 10_000] = np.nan
            blocks[f"view{view}"] = block
        out.append(MultiViewData(blocks, labels, partial_rows="keep"))
        first += classes
    return out[0], out[1]


def measure(size: Size, what: str, text: str, repeats: int) -> tuple[float, int]:
    """Best seconds and peak bytes of one point."""
    base, novel = draw(size)
    task = TaskSpec(size.way, size.shots, size.queries, eta=0.3 if size.views > 1 else 0.0)
    episodes = EpisodeSampler(novel, task, novel.classes.tolist()).draw(0, size.tasks)
    method = create(text)
    action: Callable[[], Any]
    if what == "prepare":
        _ = base.fingerprint  # once for a data set, not part of preparing

        def action() -> Any:
            forget()
            return method.prepare_base(base, task)
    else:
        prepared = method.prepare_base(base, task)
        method.score_episodes(novel, episodes[:1], prepared)

        def action() -> Any:
            return method.score_episodes(novel, episodes, prepared)

    with peak_memory() as peak:
        best = _seconds(action)
    for _ in range(repeats - 1):
        best = min(best, _seconds(action))
    return best, peak.bytes


def _seconds(action: Callable[[], Any]) -> float:
    """Processor time: of one thread, whoever else uses the machine."""
    begin = process_time()
    action()
    return process_time() - begin


def exponent(sizes: Iterable[float], values: Iterable[float]) -> float:
    """Slope of log value over log size through the upper half of the points (at least two)."""
    x, y = np.log(np.array(list(sizes))), np.log(np.maximum(np.array(list(values)), 1e-12))
    half = max(2, (len(x) + 1) // 2)
    return float(np.polyfit(x[-half:], y[-half:], 1)[0])


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--quick", action="store_true")
    options.add_argument("--repeats", type=int, default=2)
    options.add_argument("--curves", default=None, help="names, separated by commas; default all")
    options.add_argument(
        "--output", default=None, help="folder; of the page's results if not given"
    )
    arguments = options.parse_args()
    torch.set_num_threads(1)
    threadpool_limits(1)  # numpy has threads of its own, and those that wait count too
    folder = Path(arguments.output or (tempfile.mkdtemp() if arguments.quick else RESULTS))
    file = folder / "growth.json"
    found: dict[str, Any] = {}
    if arguments.curves and file.exists():  # the others stay as they are
        found = json.loads(file.read_text())["curves"]
    for curve in curves(arguments.quick):
        if arguments.curves and curve.name not in arguments.curves.split(","):
            continue
        for label, text in METHODS.items():
            points = []
            for size, value in zip(curve.sizes, curve.values, strict=True):
                seconds, peak = measure(size, curve.what, text, arguments.repeats)
                points.append({"size": value, "seconds": seconds, "memory": peak})
                print(f"{curve.title} {value}, {label}: {seconds:.4g} s, {peak / 2**20:.0f} MiB",
                      flush=True)  # fmt: skip
            slope = exponent((p["size"] for p in points), (p["seconds"] for p in points))
            found.setdefault(curve.name, {"title": curve.title, "methods": {}})
            found[curve.name]["methods"][label] = {"points": points, "exponent": slope}
            print(f"  exponent {slope:.2f}")
    folder.mkdir(parents=True, exist_ok=True)
    content = {
        "command": "python " + " ".join(sys.argv),
        "machine": describe_machine("cpu"),
        "fixed": vars(Size()),
        "curves": found,
    }
    file.write_text(json.dumps(content, indent=1) + "\n")
    print(f"saved {file}")
    if folder == RESULTS:
        import page

        page.write()


if __name__ == "__main__":
    main()
