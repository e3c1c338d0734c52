"""Figures that look inside single tasks: 3, the spaces of the methods; 4, the way of the inverse
anchor aggregator; 6, what self-rectification does to class centres.

The loss of figure 4 is also evidence for a claim; it is followed here alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from fewview.engine._registry import names as method_names
from fewview.evaluate._progress import Progress
from fewview.evaluate._workbench import versions
from fewview.ground._errors import FewviewError
from fewview.ground._rows import Row
from fewview.methods.ugda._ugda import UGDA
from fewview.paper._compute import (
    Desk,
    Gathered,
    NoResultsError,
    gather_all,
    lacking,
    nothing_left,
    protocol_line,
    versions_line,
)
from fewview.paper._embeddings import Cloud, Floats, latent_cloud, plain, set_stage, tsne
from fewview.paper._pictures import (
    MEDIUM,
    SMALL,
    Picture,
    bare,
    class_legend,
    draw_map,
    dress,
    look,
    new_figure,
)
from fewview.paper._printed import SHORT, TRAINED
from fewview.paper._recorded import read_json, stem
from fewview.paper._sheets import Sheet
from fewview.paper._studies import (
    MARGINAL,
    Wish,
    adam_solver,
    aggregator_methods,
    has_data,
    typed,
)

SPACES = {
    "Concat": "proto", "CPM": "cpm", "CPM-GAN": "cpm-gan", "COMPLETER": "completer",
    "ICMSC": "icmsc", "UGDA": "ugda", "Marginal": MARGINAL,
}  # fmt: skip
AGGREGATED = ("cub_googlenet_doc2vec", "scene15")
MARKS = {"A": 1, "B": 5, "C": 30}  # iterations
RECTIFIED = ("caltech102", "scene15")
RECTIFICATIONS = {
    "none": "without ADSR", "cross_entropy": "cross-entropy", "entropy": "entropy",
    "cross_entropy+entropy": "both",
}  # fmt: skip
CHUNK = 10  # tasks at once


# ---------------------------------------------------------------------- figure 3


def asked_spaces(wish: Wish) -> dict[str, str]:
    """The panels of figure 3 that are wanted: name -> method."""
    only = wish.only
    asked = {p: text for p, text in SPACES.items() if not only or text.partition(":")[0] in only}
    if not asked:
        raise nothing_left("figure3", wish, SPACES.values())
    return asked


def make_figure3(wish: Wish, desk: Desk, command: str) -> Picture:
    """Draw figure 3 on animal where it is present, else on birds200."""
    asked = asked_spaces(wish)
    dataset = "animal" if has_data("animal", wish) else "birds200"
    # One task does not need the published sizes, which train for minutes on a GPU.
    sizes = wish.preset or "fast"
    asked |= {panel: typed(panel, dataset, sizes) for panel in asked if panel in TRAINED}
    stage = set_stage(dataset, 0.3, wish)
    known = method_names()
    clouds: dict[str, Cloud] = {}
    troubles: dict[str, str] = {}
    for panel, text in desk.progress.track(list(asked.items()), "spaces of figure 3"):
        if text.partition(":")[0] not in known:
            continue
        try:
            clouds[panel] = latent_cloud(stage, text)
        except FewviewError:
            raise
        except Exception as error:  # one broken method must not cost the other panels
            troubles[panel] = f"failed: {type(error).__name__}: {error}"
    if not clouds:
        raise NoResultsError(f"figure3: nothing to show: {troubles or 'no method is available'}")
    told = (
        f"task 0 of class split 0 of {dataset}, {stage.task.way}-way 1-shot, {stage.task.queries} "
        f"queries per class; networks of the preset {sizes}"
    )
    return draw_figure3(clouds, dataset, stage.task.way, told, command, troubles, desk.progress)


def draw_figure3(
    clouds: Mapping[str, Cloud],
    dataset: str,
    way: int,
    told: str,
    command: str,
    troubles: Mapping[str, str] = MappingProxyType({}),
    progress: Progress | None = None,
) -> Picture:
    """Draw the panels; `told` says of what, `troubles` why a method has no cloud."""
    figure = new_figure(3.9)
    axes = figure.subplots(2, 4).ravel()
    rows: list[Row] = []
    points: list[Row] = []
    drawn = (progress or Progress()).track(list(SPACES), "maps of figure 3")
    for axis, panel in zip(axes, drawn, strict=False):
        cloud = clouds.get(panel)
        if cloud is None:
            bare(axis, panel)
            axis.text(0.5, 0.5, "not available", ha="center", transform=axis.transAxes,
                      fontsize=SMALL)  # fmt: skip
            rows.append({"panel": panel, "note": troubles.get(panel, "not available")})
            continue
        points += draw_map(axis, f"{panel} ({cloud.accuracy:.0f} %)", *cloud.mapped(), panel=panel)
        rows.append(
            {"panel": panel, "shown": f"{cloud.kind}s and queries", "accuracy": cloud.accuracy,
             "nearest_is_own": cloud.own_nearest(), "note": ""}
        )  # fmt: skip
    axes[len(SPACES)].set_axis_off()
    class_legend(axes[len(SPACES)], way, ("support", "anchor", "query"), loc="center")
    stands_in = "the paper uses animal, which is not here; birds200 stands in for it"
    sheet = Sheet(
        name="figure3",
        title=f"Fig. 3: one task of {dataset} in the spaces of the methods, eta 0.3",
        columns=("panel", "shown", "accuracy", "nearest_is_own", "note"),
        rows=rows,
        protocol=(
            f"{told}; t-SNE (perplexity 30, PCA start, seed 0) of supports or anchors and queries "
            "together"
        ),
        versions=versions_line((), versions()),
        command=command,
        notes=() if dataset == "animal" else (stands_in,),
        summary=(
            "accuracy: of the method on this task; nearest_is_own: queries whose nearest support "
            "or anchor in that space is of their class; both in percent",
        ),
    )
    return Picture(sheet=sheet, figure=figure, points=points)


# ---------------------------------------------------------------------- figure 4


@dataclass(frozen=True)
class Way:
    """How the aggregation of one data set goes.

    `loss` is the mean per anchor, [iterations, tasks]; `clouds` are the latent points of the first
    task after some iterations.
    """

    loss: Floats
    clouds: dict[int, Cloud]


def loss_paths(wish: Wish, desk: Desk, count: int) -> dict[str, Floats]:
    """Losses per anchor [iterations, tasks] of the data sets that are there, or recorded ones."""
    if desk.recorded:
        kept = read_json(desk.records / f"{stem('figure4', wish)}.json").get("losses", {})
        return {name: np.array(kept[name]) for name in AGGREGATED if name in kept}
    there = [dataset for dataset in AGGREGATED if has_data(SHORT[dataset], wish)]
    return {dataset: follow(dataset, wish, count, desk.progress).loss for dataset in there}


def follow(dataset: str, wish: Wish, count: int, progress: Progress) -> Way:
    """Run Algorithm 1 (`solver=adam`) on the first tasks of class split 0 at rate 0.5."""
    stage = set_stage(dataset, 0.5, wish, count=count)
    method, prepared, batch = stage.prepare(adam_solver(dataset, wish.quick))
    truth = cast(Any, batch.query_labels)[0].cpu().numpy()
    losses, clouds = [], {}
    for k in progress.track(range(count), f"loss of the aggregator on {SHORT[dataset]}, tasks"):
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


def needs_ugda(name: str, wish: Wish) -> None:
    """These figures are about UGDA alone."""
    if wish.only and "ugda" not in wish.only:
        raise nothing_left(name, wish, ["ugda"])


def make_figure4(wish: Wish, desk: Desk, command: str) -> Picture:
    """Compute and draw figure 4."""
    needs_ugda("figure4", wish)
    gathered = gather_all("figure4", wish, desk)
    count = 2 if wish.quick else 8
    if desk.recorded:
        paths = loss_paths(wish, desk, count)
        ways = {dataset: Way(path, {}) for dataset, path in paths.items()}
        drawn = draw_figure4(gathered, ways, wish, command)
        kept = read_json(desk.records / f"{stem('figure4', wish)}.json")
        # What is of the maps, and what is known of protocol and versions, is as recorded.
        rows = [*drawn.sheet.rows, *(row for row in kept.get("rows", ()) if row["part"] == "c")]
        known = {key: kept[key] for key in ("protocol", "versions") if key in kept}
        return replace(drawn, sheet=replace(drawn.sheet, rows=rows, **known))
    ways = {dataset: follow(dataset, wish, count, desk.progress) for dataset in AGGREGATED}
    return draw_figure4(gathered, ways, wish, command, desk.progress)


def draw_figure4(
    gathered: Sequence[Gathered],
    ways: Mapping[str, Way],
    wish: Wish,
    command: str,
    progress: Progress | None = None,
) -> Picture:
    """Draw the three parts: (a) ablation, (b) loss with marks A, B, C, (c) maps at the marks.

    Where there are no clouds, the maps are left out.
    """
    clouds = [cloud for way in ways.values() for cloud in way.clouds.values()]
    figure = new_figure(6.4 if clouds else 2.6)
    parts: Any = figure.subfigures(2, 1, height_ratios=(1.0, 1.75)) if clouds else (figure, None)
    top, bottom = parts
    left, right = top.subplots(1, 2)
    rows: list[Row] = []
    points: list[Row] = []
    _ablation(left, gathered, rows)
    _losses(right, ways, rows, points)
    if clouds:
        _maps(bottom, ways, rows, points, progress or Progress())
    count = max((way.loss.shape[1] for way in ways.values()), default=0)
    sheet = Sheet(
        name="figure4",
        title="Fig. 4: the inverse anchor aggregator on cub and scene15, eta 0.5",
        columns=("part", "dataset", "what", "value", "se", "splits", "episodes"),
        rows=rows,
        protocol=(
            f"(a) {protocol_line(gathered, wish)}; (b) mean of the first {count} tasks of class "
            "split 0, solver=adam; (c) the first of them, t-SNE with perplexity 30"
        ),
        versions=versions_line(gathered, versions()),
        command=command,
        notes=(
            "AEU: aggregation evaluator update; LAU: latent anchor update; 'exact solver' is ours "
            "and needs neither",
            *lacking(gathered, wish),
        ),
    )
    return Picture(sheet=sheet, figure=figure, points=points)


def _maps(
    place: Any,
    ways: Mapping[str, Way],
    rows: list[Row],
    points: list[Row],
    progress: Progress,
) -> None:
    axes = place.subplots(len(ways), len(MARKS), squeeze=False)
    panels = [(dataset, mark) for dataset in ways for mark in MARKS]
    drawn = zip(progress.track(panels, "maps of figure 4"), axes.ravel(), strict=True)
    for (dataset, mark), axis in drawn:
        name, iteration = SHORT[dataset], MARKS[mark]
        cloud = ways[dataset].clouds.get(iteration)
        if cloud is None:
            bare(axis, f"{name}, {mark}: not reached")
            continue
        word = "iteration" if iteration == 1 else "iterations"
        letter = "(c) " if axis is axes[0, 0] else ""
        points += draw_map(
            axis, f"{letter}{name}, {mark}: {iteration} {word}", *cloud.mapped("open query"),
            part="c", dataset=name, iteration=iteration,
        )  # fmt: skip
        what = f"queries whose nearest anchor is of their class at {mark} (%)"
        rows.append({"part": "c", "dataset": name, "value": cloud.own_nearest(), "what": what})
    clouds = [cloud for way in ways.values() for cloud in way.clouds.values()]
    classes = max(int(cloud.anchor_labels.max()) for cloud in clouds) + 1
    class_legend(
        place, classes, ("anchor", "open query"), loc="outside lower center", ncol=2 + classes
    )


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
    for k, label in enumerate(aggregator_methods(AGGREGATED[0])):
        if some := [row for row in here if row["label"] == label]:
            bars = axis.bar(
                [row["place"] + (k - 1.5) * 0.2 for row in some],
                [row["accuracy"] for row in some], 0.18, yerr=[row["se"] for row in some],
                color=look(k)["color"], hatch=hatches[k], edgecolor="black", linewidth=0.5,
                capsize=2, error_kw={"linewidth": 0.8}, label=label,
            )  # fmt: skip
            axis.bar_label(bars, fmt="%.1f", padding=1, fontsize=SMALL - 1)
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
        marks = {mark: at for mark, at in MARKS.items() if at <= len(mean)}
        axis.plot(
            iterations, mean, color=colour, linewidth=1.4, label=name, linestyle=("-", "--")[k],
            marker="o", markersize=5, markevery=[at - 1 for at in marks.values()],
        )  # fmt: skip
        axis.fill_between(
            iterations, way.loss.min(1), way.loss.max(1), color=colour, alpha=0.15, linewidth=0
        )
        for mark, at in marks.items():
            level = float(mean[at - 1])
            axis.annotate(mark, (at, level), textcoords="offset points", xytext=(5, 4),
                          fontsize=MEDIUM, fontweight="bold")  # fmt: skip
            what = f"loss per anchor at {mark} (iteration {at})"
            rows.append({"part": "b", "dataset": name, "value": level, "what": what})
        points += [
            {"part": "b", "dataset": name, "iteration": int(i), "loss": float(losses.mean())}
            | {f"task_{k + 1}": float(loss) for k, loss in enumerate(losses)}
            for i, losses in zip(iterations, way.loss, strict=True)
        ]
    dress(axis, "(b) aggregation loss", "iteration", "loss per anchor")
    if ways:
        axis.set_yscale("log")
        axis.legend(fontsize=SMALL, frameon=False, handlelength=4)


# ---------------------------------------------------------------------- figure 6


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


def rectify(dataset: str, wish: Wish, n_tasks: int, progress: Progress | None = None) -> Rectified:
    """Run UGDA with every choice of terms on the first tasks of class split 0.

    The task that is drawn is the one with the median gain of full rectification, so that it is
    neither the best nor the worst.
    """
    stage = set_stage(dataset, 0.3, wish, way=3, count=n_tasks)
    hits: dict[str, Floats] = {}
    centres: dict[str, Floats] = {}
    before = queries = labels = np.zeros(0)
    what = f"rectification of figure 6 on {dataset}, variants"
    for terms in (progress or Progress()).track(list(RECTIFICATIONS), what):
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
    needs_ugda("figure6", wish)
    count = 20 if wish.quick else 100
    found = {dataset: rectify(dataset, wish, count, desk.progress) for dataset in RECTIFIED}
    return draw_figure6(found, command)


def draw_figure6(found: Mapping[str, Rectified], command: str) -> Picture:
    """Draw four panels per data set; all four share one map, so that centres can be followed."""
    figure = new_figure(3.9)
    shared: dict[str, Any] = {"squeeze": False, "sharex": "row", "sharey": "row"}
    axes = figure.subplots(len(found), len(RECTIFICATIONS), **shared)
    rows: list[Row] = []
    points: list[Row] = []
    way = len(next(iter(found.values())).centres["none"])
    for letter, line, (dataset, task) in zip("ab", axes, found.items(), strict=False):
        centres = [task.centres[terms] for terms in RECTIFICATIONS]
        n_query = len(task.queries)
        queries, *moved = np.split(
            tsne(np.concatenate([task.queries, *centres])),
            n_query + way * np.arange(len(RECTIFICATIONS)),
        )
        kinds = ["query"] * n_query + ["centre"] * way
        for axis, (terms, title), places in zip(line, RECTIFICATIONS.items(), moved, strict=True):
            points += draw_map(
                axis, f"{title} ({task.accuracy[terms]:.0f} %)", np.concatenate([queries, places]),
                np.concatenate([task.labels, np.arange(way)]), kinds, dataset=dataset, panel=title,
            )  # fmt: skip
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
        rows=rows,
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
    return Picture(sheet=sheet, figure=figure, points=points)
