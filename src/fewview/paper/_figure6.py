"""Figure 6: what self-rectification does to the class centres, on one 3-way task each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from fewview.evaluate._workbench import versions
from fewview.ground._rows import Row
from fewview.methods.ugda._ugda import UGDA
from fewview.paper._embeddings import set_stage, tsne
from fewview.paper._pictures import (
    MEDIUM,
    Picture,
    bare,
    class_legend,
    new_figure,
    scatter_map,
)
from fewview.paper._sheets import Sheet, versions_line
from fewview.paper._studies import Wish

SETS = ("caltech102", "scene15")
PANELS = {
    "none": "without ADSR", "cross_entropy": "cross-entropy", "entropy": "entropy",
    "cross_entropy+entropy": "both",
}  # fmt: skip
COLUMNS = ("dataset", "task", "rectification", "accuracy", "moved", "over_tasks", "tasks")
CHUNK = 10  # tasks at once


@dataclass(frozen=True)
class Rectified:
    """One task before and after rectification.

    Attributes:
        number: of the task.
        queries: latent queries [N, L], the same for all variants.
        labels: true classes [N].
        centres: variant -> class centres [K, L].
        accuracy: variant -> accuracy of nearest centre on this task, in percent.
        moved: variant -> mean distance that centres moved.
        over_tasks: variant -> mean accuracy over `n_tasks` tasks.
        n_tasks: number of tasks behind `over_tasks`.
    """

    number: int
    queries: NDArray[np.float64]
    labels: NDArray[np.int64]
    centres: dict[str, NDArray[np.float64]]
    accuracy: dict[str, float]
    moved: dict[str, float]
    over_tasks: dict[str, float]
    n_tasks: int


def rectify(dataset: str, wish: Wish, n_tasks: int) -> Rectified:
    """Run UGDA with every choice of terms on the first tasks of class split 0.

    The task that is drawn is the one with the median gain of full rectification, so that it is
    neither the best nor the worst.
    """
    stage = set_stage(dataset, 0.3, wish, way=3, count=n_tasks)
    hits: dict[str, NDArray[np.float64]] = {}
    centres: dict[str, NDArray[np.float64]] = {}
    before = queries = labels = np.zeros(0)
    for terms in PANELS:
        # The paper's own rule: Adam on the centres.
        method, prepared, batch = stage.prepare(f"ugda:rectify={terms}:rectifier=adam")
        found = []
        for start in range(0, n_tasks, CHUNK):
            some = batch.tasks(slice(start, start + CHUNK)).without_query_labels()
            found.append(cast(UGDA, method).trace(some, cast(Any, prepared.state)))
        queries, before, after = (
            torch.cat([getattr(trace, name) for trace in found]).double().cpu().numpy()
            for name in ("final_queries", "centres", "rectified")
        )
        labels = cast(Any, batch.query_labels).cpu().numpy()
        gaps = np.linalg.norm(queries[:, :, None] - after[:, None], axis=-1)
        hits[terms], centres[terms] = 100 * (gaps.argmin(2) == labels).mean(1), after
    gain = hits["cross_entropy+entropy"] - hits["none"]
    task = int(np.argsort(gain, kind="stable")[(n_tasks - 1) // 2])
    return Rectified(
        number=task,
        queries=queries[task],
        labels=labels[task],
        centres={terms: places[task] for terms, places in centres.items()},
        accuracy={terms: float(values[task]) for terms, values in hits.items()},
        moved={
            terms: float(np.linalg.norm(places[task] - before[task], axis=-1).mean())
            for terms, places in centres.items()
        },
        over_tasks={terms: float(values.mean()) for terms, values in hits.items()},
        n_tasks=n_tasks,
    )


def make_figure(wish: Wish, command: str) -> Picture:
    """Compute and draw figure 6."""
    count = 20 if wish.quick else 100
    return draw({dataset: rectify(dataset, wish, count) for dataset in SETS}, command)


def draw(found: dict[str, Rectified], command: str) -> Picture:
    """Draw four panels per data set; all four share one map, so that centres can be followed."""
    figure = new_figure(3.9)
    axes = figure.subplots(len(found), len(PANELS), squeeze=False)
    rows: list[Row] = []
    points: list[Row] = []
    for line, (dataset, task) in zip(axes, found.items(), strict=True):
        stacked = np.concatenate([task.queries, *(task.centres[terms] for terms in PANELS)])
        places = tsne(stacked)
        n_query, way = len(task.queries), len(task.centres["none"])
        for k, (axis, (terms, title)) in enumerate(zip(line, PANELS.items(), strict=True)):
            here = np.concatenate(
                [places[:n_query], places[n_query + k * way : n_query + (k + 1) * way]]
            )
            labels = np.concatenate([task.labels, np.arange(way)])
            kinds = ["query"] * n_query + ["centre"] * way
            scatter_map(axis, here, labels, kinds)
            letter = "(a) " if dataset == next(iter(found)) else "(b) "
            bare(axis, f"{title} ({task.accuracy[terms]:.0f} %)")
            if k == 0:
                axis.set_ylabel(f"{letter}{dataset}", fontsize=MEDIUM)
            axis.set_xlim(places[:, 0].min() - 2, places[:, 0].max() + 2)
            axis.set_ylim(places[:, 1].min() - 2, places[:, 1].max() + 2)
            rows.append(
                {"dataset": dataset, "task": task.number, "rectification": title,
                 "accuracy": task.accuracy[terms],
                 "moved": task.moved[terms], "over_tasks": task.over_tasks[terms],
                 "tasks": task.n_tasks}
            )  # fmt: skip
            points += [
                {"dataset": dataset, "panel": title, "kind": kind, "class": int(label),
                 "x": float(x), "y": float(y)}
                for kind, label, (x, y) in zip(kinds, labels, here, strict=True)
            ]  # fmt: skip
    way = len(next(iter(found.values())).centres["none"])
    class_legend(figure, way, ("centre", "query"), loc="outside lower center", ncol=2 + way)
    sheet = Sheet(
        name="figure6",
        title="Fig. 6: class centres before and after self-rectification, 3-way, eta 0.3",
        columns=COLUMNS,
        rows=tuple(rows),
        protocol=(
            "drawn: of the first tasks of class split 0, 3-way 1-shot, the one with the median "
            "gain of full rectification (rectifier=adam, 1000 steps, as in the paper); t-SNE "
            "(perplexity 30) of the queries and of the centres of all four variants together, so "
            "that the panels share one map"
        ),
        versions=versions_line([versions()]),
        command=command,
        summary=(
            "accuracy: nearest centre on the task that is drawn; moved: mean distance that the "
            "centres moved; over_tasks: accuracy over the first tasks of class split 0",
        ),
    )
    return Picture(
        sheet=sheet, figure=figure, points=tuple(points),
        point_columns=("dataset", "panel", "kind", "class", "x", "y"),
    )  # fmt: skip
