"""Figure 4: the inverse anchor aggregator: its ablation, its loss, its anchors on the way.

The loss is also evidence for a claim; it is followed here alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from fewview.evaluate._workbench import versions
from fewview.ground._rows import Row
from fewview.methods.ugda._ugda import UGDA
from fewview.paper._compute import Desk, Gathered, gather_all, protocol_line, versions_line
from fewview.paper._embeddings import Cloud, Floats, plain, set_stage
from fewview.paper._pictures import (
    MEDIUM,
    POINT_COLUMNS,
    SMALL,
    Picture,
    bare,
    class_legend,
    draw_map,
    dress,
    look,
    new_figure,
)
from fewview.paper._printed import SHORT
from fewview.paper._sheets import Sheet
from fewview.paper._studies import Wish, adam_solver, aggregator_methods

SETS = ("cub_googlenet_doc2vec", "scene15")
MARKS = {"A": 1, "B": 5, "C": 30}  # iterations


@dataclass(frozen=True)
class Way:
    """How the aggregation of one data set goes.

    `loss` is the mean per anchor, [iterations, tasks]; `clouds` are the latent points of the first
    task after some iterations.
    """

    loss: Floats
    clouds: dict[int, Cloud]


def follow(dataset: str, wish: Wish, count: int) -> Way:
    """Run Algorithm 1 (`solver=adam`) on the first tasks of class split 0 at rate 0.5."""
    stage = set_stage(dataset, 0.5, wish, count=count)
    method, prepared, batch = stage.prepare(adam_solver(dataset))
    truth = cast(Any, batch.query_labels)[0].cpu().numpy()
    losses, clouds = [], {}
    for k in range(count):
        trace = cast(UGDA, method).trace(
            batch.tasks(slice(k, k + 1)).without_query_labels(),
            cast(Any, prepared.state),
            tuple(iteration - 1 for iteration in MARKS.values()) if k == 0 else (),
        )
        losses.append(plain(trace.loss / trace.labels.shape[1]))
        labels = trace.labels[0].cpu().numpy()
        for at, anchors in trace.anchors.items():
            queries = trace.queries[at]
            clouds[at + 1] = Cloud(plain(anchors[0]), labels, plain(queries[0]), truth)
    return Way(np.concatenate(losses, axis=1), clouds)


def make_figure4(wish: Wish, desk: Desk, command: str) -> Picture:
    """Compute and draw figure 4."""
    gathered = gather_all("figure4", wish, desk)
    ways = {dataset: follow(dataset, wish, 2 if wish.quick else 8) for dataset in SETS}
    return draw_figure4(gathered, ways, wish, command)


def draw_figure4(
    gathered: Sequence[Gathered], ways: Mapping[str, Way], wish: Wish, command: str
) -> Picture:
    """Draw the three parts: (a) ablation, (b) loss with marks A, B, C, (c) maps at the marks."""
    figure = new_figure(6.4)
    parts: Any = figure.subfigures(2, 1, height_ratios=(1.0, 1.75))
    top, bottom = parts
    left, right = top.subplots(1, 2)
    rows: list[Row] = []
    points: list[Row] = []
    _ablation(left, gathered, rows)
    _losses(right, ways, rows, points)
    axes = bottom.subplots(len(ways), len(MARKS), squeeze=False)
    for line, (dataset, way) in zip(axes, ways.items(), strict=True):
        name = SHORT[dataset]
        for axis, (mark, iteration) in zip(line, MARKS.items(), strict=True):
            cloud = way.clouds.get(iteration)
            if cloud is None:
                bare(axis, f"{name}, {mark}: not reached")
                continue
            word = "iteration" if iteration == 1 else "iterations"
            letter = "(c) " if axis is axes[0, 0] else ""
            points += draw_map(
                axis, f"{letter}{name}, {mark}: {iteration} {word}", *cloud.mapped("open query"),
                part="c", dataset=name, iteration=iteration,
            )  # fmt: skip
            rows.append(
                {"part": "c", "dataset": name, "value": cloud.own_nearest(),
                 "what": f"queries whose nearest anchor is of their class at {mark} (%)"}
            )  # fmt: skip
    clouds = [cloud for way in ways.values() for cloud in way.clouds.values()]
    classes = max(int(cloud.anchor_labels.max()) for cloud in clouds) + 1
    class_legend(
        bottom, classes, ("anchor", "open query"), loc="outside lower center", ncol=2 + classes
    )
    count = next(iter(ways.values())).loss.shape[1]
    sheet = Sheet(
        name="figure4",
        title="Fig. 4: the inverse anchor aggregator on cub and scene15, eta 0.5",
        columns=("part", "dataset", "what", "value", "se", "splits", "episodes"),
        rows=tuple(rows),
        protocol=(
            f"(a) {protocol_line(gathered, wish)}; (b) mean of the first {count} tasks of class "
            "split 0, solver=adam; (c) the first of them, t-SNE with perplexity 30"
        ),
        versions=versions_line(gathered, versions()),
        command=command,
        notes=(
            "AEU: aggregation evaluator update; LAU: latent anchor update; 'exact solver' is ours "
            "and needs neither",
        ),
    )
    return Picture(
        sheet=sheet, figure=figure, points=tuple(points),
        point_columns=("part", "dataset", "iteration", *POINT_COLUMNS, "loss"),
    )  # fmt: skip


def _ablation(axis: Any, gathered: Sequence[Gathered], rows: list[Row]) -> None:
    sets = [item.part.tag[0] for item in gathered]
    here = [
        row | {"part": "a", "dataset": SHORT[dataset], "what": f"accuracy, {row['label']} (%)",
               "value": row["accuracy"], "place": place}
        for place, (dataset, item) in enumerate(zip(sets, gathered, strict=True))
        for row in item.labelled()
    ]  # fmt: skip
    rows += here
    hatches = ("", "///", "...", "xx")
    for k, label in enumerate(aggregator_methods(SETS[0])):
        for row in here:
            if row["label"] != label:
                continue
            where, first = row["place"] + (k - 1.5) * 0.2, row["place"] == 0
            axis.bar(
                where, row["accuracy"], 0.18, yerr=row["se"], color=look(k)["color"],
                hatch=hatches[k], edgecolor="black", linewidth=0.5, capsize=2,
                error_kw={"linewidth": 0.8}, label=label if first else None,
            )  # fmt: skip
            axis.text(
                where, row["accuracy"] + row["se"] + 1, f"{row['accuracy']:.1f}", ha="center",
                fontsize=SMALL - 1,
            )  # fmt: skip
    axis.set_xticks(range(len(sets)), [SHORT[dataset] for dataset in sets])
    axis.set_ylim(0, 100)
    dress(axis, "(a) ablation of the aggregator", "", "accuracy (%)")
    axis.grid(axis="x", visible=False)
    if here:
        axis.legend(fontsize=SMALL, frameon=False, ncol=2, loc="upper right")


def _losses(axis: Any, ways: Mapping[str, Way], rows: list[Row], points: list[Row]) -> None:
    for k, (dataset, way) in enumerate(ways.items()):
        name, colour = SHORT[dataset], look(k)["color"]
        mean = way.loss.mean(1)
        iterations = np.arange(1, len(mean) + 1)
        axis.plot(
            iterations, mean, color=colour, linewidth=1.4, label=name, linestyle=("-", "--")[k]
        )
        axis.fill_between(
            iterations, way.loss.min(1), way.loss.max(1), color=colour, alpha=0.15, linewidth=0
        )
        for mark, iteration in MARKS.items():
            if iteration <= len(mean):
                level = mean[iteration - 1]
                axis.plot(iteration, level, color=colour, markersize=5, marker="o")
                axis.annotate(
                    mark, (iteration, level), textcoords="offset points", xytext=(5, 4),
                    fontsize=MEDIUM, fontweight="bold",
                )  # fmt: skip
                rows.append(
                    {"part": "b", "dataset": name, "value": float(level),
                     "what": f"loss per anchor at {mark} (iteration {iteration})"}
                )  # fmt: skip
        points += [
            {"part": "b", "dataset": name, "iteration": int(i), "loss": float(level)}
            for i, level in zip(iterations, mean, strict=True)
        ]
    axis.set_yscale("log")
    dress(axis, "(b) aggregation loss", "iteration", "loss per anchor")
    axis.legend(fontsize=SMALL, frameon=False)
