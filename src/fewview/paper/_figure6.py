"""Figure 6: what self-rectification does to the class centres, on one 3-way task each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from fewview.evaluate._workbench import versions
from fewview.ground._rows import Row
from fewview.methods.ugda._ugda import UGDA
from fewview.paper._compute import Desk, versions_line
from fewview.paper._embeddings import Floats, plain, set_stage, tsne
from fewview.paper._pictures import (
    MEDIUM,
    POINT_COLUMNS,
    Picture,
    class_legend,
    draw_map,
    new_figure,
)
from fewview.paper._sheets import Sheet
from fewview.paper._studies import Wish

SETS = ("caltech102", "scene15")
PANELS = {
    "none": "without ADSR", "cross_entropy": "cross-entropy", "entropy": "entropy",
    "cross_entropy+entropy": "both",
}  # fmt: skip
CHUNK = 10  # tasks at once


@dataclass(frozen=True)
class Rectified:
    """Task `number` of `n_tasks`: latent queries [N, L], and every variant of rectification.

    Variants have class centres [K, L], the accuracy of the nearest centre in percent, the mean
    distance that centres moved, and their mean accuracy over all the tasks.
    """

    number: int
    n_tasks: int
    queries: Floats
    labels: NDArray[np.int64]
    centres: dict[str, Floats]
    accuracy: dict[str, float]
    moved: dict[str, float]
    over_tasks: dict[str, float]


def rectify(dataset: str, wish: Wish, n_tasks: int) -> Rectified:
    """Run UGDA with every choice of terms on the first tasks of class split 0.

    The task that is drawn is the one with the median gain of full rectification, so that it is
    neither the best nor the worst.
    """
    stage = set_stage(dataset, 0.3, wish, way=3, count=n_tasks)
    hits: dict[str, Floats] = {}
    centres: dict[str, Floats] = {}
    before = queries = labels = np.zeros(0)
    for terms in PANELS:
        # The paper's own rule: Adam on the centres.
        method, prepared, batch = stage.prepare(f"ugda:rectify={terms}:rectifier=adam")
        found = []
        for start in range(0, n_tasks, CHUNK):
            some = batch.tasks(slice(start, start + CHUNK)).without_query_labels()
            found.append(cast(UGDA, method).trace(some, cast(Any, prepared.state)))
        queries, before, after = (
            plain(torch.cat([getattr(trace, name) for trace in found]))
            for name in ("final_queries", "centres", "rectified")
        )
        labels = cast(Any, batch.query_labels).cpu().numpy()
        gaps = np.linalg.norm(queries[:, :, None] - after[:, None], axis=-1)
        hits[terms], centres[terms] = 100 * (gaps.argmin(2) == labels).mean(1), after
    gain = hits["cross_entropy+entropy"] - hits["none"]
    task = int(np.argsort(gain, kind="stable")[(n_tasks - 1) // 2])
    return Rectified(
        number=task,
        n_tasks=n_tasks,
        queries=queries[task],
        labels=labels[task],
        centres={terms: places[task] for terms, places in centres.items()},
        accuracy={terms: float(values[task]) for terms, values in hits.items()},
        moved={
            terms: float(np.linalg.norm(places[task] - before[task], axis=-1).mean())
            for terms, places in centres.items()
        },
        over_tasks={terms: float(values.mean()) for terms, values in hits.items()},
    )


def make_figure6(wish: Wish, desk: Desk, command: str) -> Picture:
    """Compute and draw figure 6."""
    count = 20 if wish.quick else 100
    return draw_figure6({dataset: rectify(dataset, wish, count) for dataset in SETS}, command)


def draw_figure6(found: Mapping[str, Rectified], command: str) -> Picture:
    """Draw four panels per data set; all four share one map, so that centres can be followed."""
    figure = new_figure(3.9)
    axes = figure.subplots(len(found), len(PANELS), squeeze=False)
    rows: list[Row] = []
    points: list[Row] = []
    way = len(next(iter(found.values())).centres["none"])
    for letter, line, (dataset, task) in zip("ab", axes, found.items(), strict=False):
        centres = [task.centres[terms] for terms in PANELS]
        n_query = len(task.queries)
        queries, *moved = np.split(
            tsne(np.concatenate([task.queries, *centres])), n_query + way * np.arange(len(PANELS))
        )
        everything = np.concatenate([queries, *moved])
        kinds = ["query"] * n_query + ["centre"] * way
        for axis, (terms, title), places in zip(line, PANELS.items(), moved, strict=True):
            points += draw_map(
                axis, f"{title} ({task.accuracy[terms]:.0f} %)", np.concatenate([queries, places]),
                np.concatenate([task.labels, np.arange(way)]), kinds, dataset=dataset, panel=title,
            )  # fmt: skip
            axis.set_xlim(everything[:, 0].min() - 2, everything[:, 0].max() + 2)
            axis.set_ylim(everything[:, 1].min() - 2, everything[:, 1].max() + 2)
            rows.append(
                {"dataset": dataset, "task": task.number, "rectification": title,
                 "accuracy": task.accuracy[terms], "moved": task.moved[terms],
                 "over_tasks": task.over_tasks[terms], "tasks": task.n_tasks}
            )  # fmt: skip
        line[0].set_ylabel(f"({letter}) {dataset}", fontsize=MEDIUM)
    class_legend(figure, way, ("centre", "query"), loc="outside lower center", ncol=2 + way)
    sheet = Sheet(
        name="figure6",
        title="Fig. 6: class centres before and after self-rectification, 3-way, eta 0.3",
        columns=("dataset", "task", "rectification", "accuracy", "moved", "over_tasks", "tasks"),
        rows=tuple(rows),
        protocol=(
            "drawn: of the first tasks of class split 0, 3-way 1-shot, the one with the median "
            "gain of full rectification (rectifier=adam, 1000 steps, as in the paper); t-SNE "
            "(perplexity 30) of the queries and of the centres of all four variants together, so "
            "that the panels share one map"
        ),
        versions=versions_line((), versions()),
        command=command,
        summary=(
            "accuracy: nearest centre on the task that is drawn; moved: mean distance that the "
            "centres moved; over_tasks: accuracy over the first tasks of class split 0",
        ),
    )
    return Picture(
        sheet=sheet, figure=figure, points=tuple(points),
        point_columns=("dataset", "panel", *POINT_COLUMNS),
    )  # fmt: skip
