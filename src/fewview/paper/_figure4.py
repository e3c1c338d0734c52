"""Figure 4: the inverse anchor aggregator: its ablation, its loss, its anchors on the way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from fewview.datasets._catalogue import get_spec
from fewview.drawing._looks import COLOURS
from fewview.evaluate._runner import versions
from fewview.ground._rows import Row
from fewview.methods.ugda._ugda import UGDA
from fewview.paper._beside import protocol
from fewview.paper._compute import Desk, Gathered, gather
from fewview.paper._embeddings import set_stage, tsne
from fewview.paper._pictures import (
    MEDIUM,
    SMALL,
    Picture,
    bare,
    class_legend,
    dress,
    look,
    new_figure,
    scatter_map,
)
from fewview.paper._sheets import Sheet, versions_line
from fewview.paper._studies import Wish, aggregator_methods, parts_of

SETS = {"cub_googlenet_doc2vec": "cub", "scene15": "scene15"}
MARKS = {"A": 1, "B": 5, "C": 30}  # iterations
COLUMNS = ("part", "dataset", "what", "value", "se", "splits", "episodes")


@dataclass(frozen=True)
class Way:
    """How the aggregation of one data set goes.

    Attributes:
        loss: mean loss per anchor, [iterations, tasks].
        anchors: iteration -> latent anchors of the first task, [M, L].
        queries: iteration -> latent queries of the first task, [N, L].
        anchor_labels: [M].
        query_labels: [N].
    """

    loss: NDArray[np.float64]
    anchors: dict[int, NDArray[np.float64]]
    queries: dict[int, NDArray[np.float64]]
    anchor_labels: NDArray[np.int64]
    query_labels: NDArray[np.int64]


def follow(dataset: str, wish: Wish, count: int) -> Way:
    """Run Algorithm 1 (`solver=adam`) on the first tasks of class split 0 at rate 0.5."""
    stage = set_stage(dataset, 0.5, wish, count=count)
    text = f"ugda:solver=adam:latent_dim={get_spec(dataset).latent_dim}"
    method, prepared, batch = stage.prepare(text)
    at = tuple(iteration - 1 for iteration in MARKS.values())
    losses = []
    first: Any = None
    for k in range(count):
        one = batch.tasks(slice(k, k + 1))
        trace = cast(UGDA, method).trace(
            one.without_query_labels(), cast(Any, prepared.state), at if k == 0 else ()
        )
        losses.append(trace.loss / trace.labels.shape[1])
        first = trace if k == 0 else first
    plain = {
        name: {key + 1: value[0].double().cpu().numpy() for key, value in kept.items()}
        for name, kept in (("anchors", first.anchors), ("queries", first.queries))
    }
    truth = cast(torch.Tensor, batch.query_labels)[0]
    return Way(
        torch.cat(losses, dim=1).double().cpu().numpy(),
        plain["anchors"],
        plain["queries"],
        first.labels[0].cpu().numpy(),
        truth.cpu().numpy(),
    )


def make_figure(wish: Wish, desk: Desk, command: str) -> Picture:
    """Compute and draw figure 4."""
    gathered = [gather(part, desk) for part in parts_of("figure4", wish)]
    count = 2 if wish.quick else 8
    ways = {dataset: follow(dataset, wish, count) for dataset in SETS}
    return draw(gathered, ways, wish, command)


def draw(gathered: Sequence[Gathered], ways: dict[str, Way], wish: Wish, command: str) -> Picture:
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
        for axis, (mark, iteration) in zip(line, MARKS.items(), strict=True):
            if iteration not in way.anchors:
                bare(axis, f"{SETS[dataset]}, {mark}: not reached")
                continue
            anchors, queries = way.anchors[iteration], way.queries[iteration]
            places = tsne(np.concatenate([anchors, queries]))
            labels = np.concatenate([way.anchor_labels, way.query_labels])
            kinds = ["anchor"] * len(anchors) + ["open query"] * len(queries)
            scatter_map(axis, places, labels, kinds)
            word = "iteration" if iteration == 1 else "iterations"
            letter = "(c) " if dataset == next(iter(ways)) and mark == "A" else ""
            bare(axis, f"{letter}{SETS[dataset]}, {mark}: {iteration} {word}")
            near = _own(anchors, way.anchor_labels, queries, way.query_labels)
            rows.append(
                {"part": "c", "dataset": SETS[dataset], "value": near,
                 "what": f"queries whose nearest anchor is of their class at {mark} (%)"}
            )  # fmt: skip
            points += [
                {"part": "c", "dataset": SETS[dataset], "iteration": iteration, "kind": kind,
                 "class": int(label), "x": float(x), "y": float(y)}
                for kind, label, (x, y) in zip(kinds, labels, places, strict=True)
            ]  # fmt: skip
    classes = max(int(item.anchor_labels.max()) for item in ways.values()) + 1
    class_legend(
        bottom, classes, ("anchor", "open query"), loc="outside lower center", ncol=2 + classes
    )
    stored = [result.versions for part in gathered for result in part.results.values()]
    count = next(iter(ways.values())).loss.shape[1]
    sheet = Sheet(
        name="figure4",
        title="Fig. 4: the inverse anchor aggregator on cub and scene15, eta 0.5",
        columns=COLUMNS,
        rows=tuple(rows),
        protocol=(
            f"(a) {protocol(gathered, wish)}; (b) mean of the first {count} tasks of class split "
            "0, solver=adam; (c) the first of them, t-SNE with perplexity 30"
        ),
        versions=versions_line([*stored, versions()]),
        command=command,
        notes=(
            "AEU: aggregation evaluator update; LAU: latent anchor update; 'exact solver' is ours "
            "and needs neither",
        ),
    )
    return Picture(
        sheet=sheet, figure=figure, points=tuple(points),
        point_columns=("part", "dataset", "iteration", "kind", "class", "x", "y", "loss"),
    )  # fmt: skip


def _ablation(axis: Any, gathered: Sequence[Gathered], rows: list[Row]) -> None:
    found: dict[str, list[Row | None]] = {}
    sets = []
    for part in gathered:
        (dataset,) = part.part.tag
        sets.append(dataset)
        for label, method in aggregator_methods(dataset).items():
            row = part.row(method, 0.5)
            found.setdefault(label, []).append(row)
            if row is not None:
                rows.append(
                    {"part": "a", "dataset": SETS[dataset], "what": f"accuracy, {label} (%)",
                     "value": row["accuracy"], "se": row["standard_error"],
                     "splits": row["n_splits"], "episodes": row["n_episodes"]}
                )  # fmt: skip
    hatches = ("", "///", "...", "xx")
    for k, (label, entries) in enumerate(found.items()):
        for place, row in enumerate(entries):
            if row is None:
                continue
            where = place + (k - 1.5) * 0.2
            axis.bar(
                where, row["accuracy"], 0.18, yerr=row["standard_error"], color=COLOURS[k],
                hatch=hatches[k], edgecolor="black", linewidth=0.5, capsize=2,
                error_kw={"linewidth": 0.8}, label=label if place == 0 else None,
            )  # fmt: skip
            axis.text(
                where, row["accuracy"] + row["standard_error"] + 1, f"{row['accuracy']:.1f}",
                ha="center", fontsize=SMALL - 1,
            )  # fmt: skip
    axis.set_xticks(range(len(sets)), [SETS[dataset] for dataset in sets])
    axis.set_ylim(0, 100)
    dress(axis, "(a) ablation of the aggregator", "", "accuracy (%)")
    axis.grid(axis="x", visible=False)
    if found:
        axis.legend(fontsize=SMALL, frameon=False, ncol=2, loc="upper right")


def _losses(axis: Any, ways: dict[str, Way], rows: list[Row], points: list[Row]) -> None:
    for k, (dataset, way) in enumerate(ways.items()):
        mean = way.loss.mean(1)
        iterations = np.arange(1, len(mean) + 1)
        style = look(k)
        axis.plot(
            iterations, mean, color=style["color"], linewidth=1.4, label=SETS[dataset],
            linestyle=("-", "--")[k % 2],
        )  # fmt: skip
        axis.fill_between(
            iterations, way.loss.min(1), way.loss.max(1), color=style["color"], alpha=0.15,
            linewidth=0,
        )  # fmt: skip
        for mark, iteration in MARKS.items():
            if iteration <= len(mean):
                level = mean[iteration - 1]
                axis.plot(iteration, level, color=style["color"], markersize=5, marker="o")
                axis.annotate(
                    mark, (iteration, level), textcoords="offset points", xytext=(5, 4),
                    fontsize=MEDIUM, fontweight="bold",
                )  # fmt: skip
                rows.append(
                    {"part": "b", "dataset": SETS[dataset], "value": float(level),
                     "what": f"loss per anchor at {mark} (iteration {iteration})"}
                )  # fmt: skip
        points += [
            {"part": "b", "dataset": SETS[dataset], "iteration": int(i), "loss": float(level)}
            for i, level in zip(iterations, mean, strict=True)
        ]
    axis.set_yscale("log")
    dress(axis, "(b) aggregation loss", "iteration", "loss per anchor")
    axis.legend(fontsize=SMALL, frameon=False)


def _own(anchors: Any, anchor_labels: Any, queries: Any, query_labels: Any) -> float:
    gaps = np.linalg.norm(queries[:, None] - anchors[None], axis=-1)
    return 100 * float((anchor_labels[gaps.argmin(1)] == query_labels).mean())
