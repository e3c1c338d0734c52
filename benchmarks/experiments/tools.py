"""What the experiments share: tasks of a data set, a clock, a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

import numpy as np
import torch

from fewview import Episodes, EpisodeSampler, MultiViewData, TaskSpec, load
from fewview.datasets import class_split, get_spec

SETS = ("handwritten", "scene15", "cub_googlenet_doc2vec")


def tasks(
    name: str, count: int, *, split: int = 0, eta: float = 0.3
) -> tuple[MultiViewData, MultiViewData, TaskSpec, Episodes]:
    """Data, base samples, task shape and tasks of a class split, as `fewview bench` draws them."""
    data, spec = load(name), get_spec(name)
    classes = class_split(name, split)
    source = load(spec.base_from) if spec.base_from else data
    base = source[np.isin(source.labels, classes.base)]
    task = TaskSpec(way=spec.way, shot=spec.shot, queries=spec.queries, eta=eta)
    return data, base, task, EpisodeSampler(data, task, classes.novel).draw(0, count)


def timed(action: Callable[[], Any], device: str = "cpu") -> tuple[Any, float]:
    """Result and seconds, waiting for the device."""
    wait = torch.cuda.synchronize if device.startswith("cuda") else lambda: None
    wait()
    start = perf_counter()
    out = action()
    wait()
    return out, perf_counter() - start


def accuracy(scores: Any, episodes: Episodes) -> float:
    """Mean accuracy in percent."""
    return 100 * float((scores.argmax(-1).numpy() == episodes.query_labels).mean())


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Aligned columns."""
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    for row in [header, *rows]:
        print("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)))
