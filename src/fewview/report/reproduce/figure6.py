"""Figure 6: what self-rectification does to the class centres, on one 3-way task each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from fewview.evaluate.runner import versions
from fewview.evaluate.summary import Row
from fewview.methods.ugda.method import UGDA
from fewview.report.reproduce.drawing import Picture, bare, new_figure, scatter_map
from fewview.report.reproduce.embeddings import set_stage, tsne
from fewview.report.reproduce.sheets import Sheet, versions_line
from fewview.report.reproduce.studies import Wish

SETS = ("caltech102", "scene15")
PANELS = {
    "none": "without ADSR", "cross_entropy": "cross-entropy", "entropy": "entropy",
    "cross_entropy+entropy": "both",
}  # fmt: skip
COLUMNS = ("dataset", "rectification", "accuracy", "moved", "over_tasks", "tasks")


@dataclass(frozen=True)
class Rectified:
    """One task before and after rectification.

    Attributes:
        queries: latent queries [N, L], the same for all variants.
        labels: true classes [N].
        centres: variant -> class centres [K, L].
        accuracy: variant -> accuracy of nearest centre on this task, in percent.
        moved: variant -> mean distance that centres moved.
        over_tasks: variant -> mean accuracy over `n_tasks` tasks.
        n_tasks: number of tasks behind `over_tasks`.
    """

    queries: NDArray[np.float64]
    labels: NDArray[np.int64]
    centres: dict[str, NDArray[np.float64]]
    accuracy: dict[str, float]
    moved: dict[str, float]
    over_tasks: dict[str, float]
    n_tasks: int


def rectify(dataset: str, wish: Wish, n_tasks: int) -> Rectified:
    """Run UGDA with every choice of terms on the first tasks of class split 0."""
    stage = set_stage(dataset, 0.3, wish, way=3, count=n_tasks)
    centres, accuracy, moved, over_tasks = {}, {}, {}, {}
    queries: Any = None
    truth: Any = None
    for terms in PANELS:
        method, prepared, batch = stage.prepare(f"ugda:rectify={terms}")
        hits = []
        for k in range(n_tasks):
            one = batch.tasks(slice(k, k + 1))
            trace = cast(UGDA, method).trace(one.without_query_labels(), cast(Any, prepared.state))
            points = trace.final_queries[0].double().cpu().numpy()
            after = trace.rectified[0].double().cpu().numpy()
            labels = cast(Any, one.query_labels)[0].cpu().numpy()
            gaps = np.linalg.norm(points[:, None] - after[None], axis=-1)
            hits.append(100 * float((gaps.argmin(1) == labels).mean()))
            if k == 0:
                before = trace.centres[0].double().cpu().numpy()
                centres[terms] = after
                moved[terms] = float(np.linalg.norm(after - before, axis=-1).mean())
                queries, truth = points, labels
        accuracy[terms], over_tasks[terms] = hits[0], float(np.mean(hits))
    return Rectified(queries, truth, centres, accuracy, moved, over_tasks, n_tasks)


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
            start = f"{letter}{dataset}: " if k == 0 else ""
            bare(axis, f"{start}{title} ({task.accuracy[terms]:.0f} %)")
            axis.set_xlim(places[:, 0].min() - 2, places[:, 0].max() + 2)
            axis.set_ylim(places[:, 1].min() - 2, places[:, 1].max() + 2)
            rows.append(
                {"dataset": dataset, "rectification": title, "accuracy": task.accuracy[terms],
                 "moved": task.moved[terms], "over_tasks": task.over_tasks[terms],
                 "tasks": task.n_tasks}
            )  # fmt: skip
            points += [
                {"dataset": dataset, "panel": title, "kind": kind, "class": int(label),
                 "x": float(x), "y": float(y)}
                for kind, label, (x, y) in zip(kinds, labels, here, strict=True)
            ]  # fmt: skip
    sheet = Sheet(
        name="figure6",
        title="Fig. 6: class centres before and after self-rectification, 3-way, eta 0.3",
        columns=COLUMNS,
        rows=tuple(rows),
        protocol=(
            "drawn: task 0 of class split 0, 3-way 1-shot; t-SNE (perplexity 30) of the queries "
            "and of the centres of all four variants together, so that the panels share one map"
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
