"""What the benchmark scripts share: tasks of a data set, timing, a table."""

from __future__ import annotations

import argparse
import json
import platform
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch

from fewview.datasets import class_split, get_spec, load
from fewview.engine._method import Method
from fewview.engine._state import Prepared
from fewview.episodes import Episodes, EpisodeSampler, TaskSpec
from fewview.samples import MultiViewData

EXACT_SETS = ("handwritten", "scene15", "cub_googlenet_doc2vec")


def parser(description: str) -> argparse.ArgumentParser:
    """A parser with the options that all scripts have."""
    out = argparse.ArgumentParser(description=description)
    out.add_argument("--datasets", default=",".join(EXACT_SETS))
    out.add_argument("--data-dir", default=None, help="default: $FEWVIEW_DATA")
    out.add_argument("--eta", type=float, default=0.3)
    out.add_argument("--device", default="cpu")
    return out


def tasks(
    name: str,
    split: int,
    eta: float,
    start: int,
    stop: int,
    data_dir: str | None = None,
    shot: int | None = None,
) -> tuple[MultiViewData, MultiViewData, TaskSpec, Episodes]:
    """Data, base set, task shape and episodes of one class split, as `fewview bench` draws them.

    Without `shot` there are as many supports of a class as usual.
    """
    data = load(name, data_dir)
    spec = get_spec(name)
    classes = class_split(name, split, data_dir=data_dir)
    source = base_source(name, data, data_dir)
    base = source[np.isin(source.labels, classes.base)]
    task = TaskSpec(way=spec.way, shot=shot or spec.shot, queries=spec.queries, eta=eta)
    return data, base, task, EpisodeSampler(data, task, classes.novel).draw(start, stop)


def base_source(name: str, data: MultiViewData, data_dir: str | None = None) -> MultiViewData:
    """The data set that the base classes of a data set come from: itself, or another one."""
    other = get_spec(name).base_from
    return load(other, data_dir) if other else data


def timed(function: Callable[[], Any], device: str = "cpu") -> tuple[Any, float]:
    """Result and seconds, waiting for the device."""
    if device.startswith("cuda"):
        torch.cuda.synchronize()
    start = perf_counter()
    out = function()
    if device.startswith("cuda"):
        torch.cuda.synchronize()
    return out, perf_counter() - start


def predictions(
    method: Method, data: MultiViewData, prepared: Prepared, episodes: Episodes
) -> np.ndarray:
    """Predicted class positions [tasks, queries]."""
    return method.score_episodes(data, episodes, prepared).argmax(-1).numpy()


def print_machine(device: str) -> None:
    """One line that says where the numbers come from."""
    name = torch.cuda.get_device_name() if device.startswith("cuda") else platform.processor()
    print(
        f"# {' '.join(sys.argv)}\n# torch {torch.__version__}, {torch.get_num_threads()} threads, "
        f"device {device} {name}"
    )


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Aligned columns."""
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    for row in [header, *rows]:
        print("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)))


def keep_table(
    path: str | None, title: str, device: str, header: Sequence[str], rows: Sequence[Sequence[str]],
    note: str = "",
) -> None:  # fmt: skip
    """Keep a table for the documentation, with the command and the machine it comes from."""
    if path is None:
        return
    name = torch.cuda.get_device_name() if device.startswith("cuda") else "CPU"
    kept = {
        "title": title,
        "command": " ".join(["python", *_without_places(sys.argv)]),
        "device": f"{name}, torch {torch.__version__}",
        "computed": datetime.now(UTC).date().isoformat(),
        "columns": list(header),
        "rows": [list(row) for row in rows],
        **({"note": note} if note else {}),
    }
    Path(path).write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _without_places(words: Sequence[str]) -> list[str]:
    """A command without the files that it writes, which are elsewhere on every machine."""
    return [
        word
        for before, word in zip(["", *words], words, strict=False)
        if not {before, word} & {"--json", "--store", "--output"}
    ]
