"""Figure 3: the same task in the spaces of seven methods, by t-SNE."""

from __future__ import annotations

import numpy as np

from fewview.evaluate.runner import versions
from fewview.evaluate.summary import Row
from fewview.methods.registry import names as method_names
from fewview.report.reproduce.drawing import (
    COLOURS,
    MARKERS,
    SMALL,
    Picture,
    bare,
    new_figure,
    scatter_map,
)
from fewview.report.reproduce.embeddings import Cloud, latent_cloud, set_stage, tsne
from fewview.report.reproduce.sheets import Sheet, versions_line
from fewview.report.reproduce.studies import Wish, has_data

PANELS = {
    "Concat": "proto", "CPM": "cpm", "CPM-GAN": "cpm-gan", "COMPLETER": "completer",
    "ICMSC": "icmsc", "UGDA": "ugda", "Marginal": "marginal",
}  # fmt: skip
COLUMNS = ("panel", "shown", "accuracy", "nearest_is_own", "note")


def make_figure(wish: Wish, command: str) -> Picture:
    """Draw figure 3 on animal where it is present, else on birds200."""
    dataset = "animal" if has_data("animal", wish) else "birds200"
    stage = set_stage(dataset, 0.3, wish)
    known = method_names()
    clouds = {panel: latent_cloud(stage, text) for panel, text in PANELS.items() if text in known}
    return draw(clouds, dataset, stage.task.way, stage.task.queries, command)


def draw(clouds: dict[str, Cloud], dataset: str, way: int, queries: int, command: str) -> Picture:
    """Draw the panels; methods without a cloud are shown as not available.

    Args:
        clouds: panel -> latent points.
        dataset: for the caption.
        way: classes of the task.
        queries: per class.
        command: what was typed.
    """
    figure = new_figure(3.9)
    axes = figure.subplots(2, 4).ravel()
    rows: list[Row] = []
    points: list[Row] = []
    for axis, panel in zip(axes, PANELS, strict=False):
        cloud = clouds.get(panel)
        if cloud is None:
            bare(axis, panel)
            axis.text(0.5, 0.5, "not available", ha="center", transform=axis.transAxes,
                      fontsize=SMALL)  # fmt: skip
            rows.append({"panel": panel, "note": "not available"})
            continue
        places = tsne(np.concatenate([cloud.anchors, cloud.queries]))
        labels = np.concatenate([cloud.anchor_labels, cloud.query_labels])
        kinds = [cloud.kind] * len(cloud.anchors) + ["query"] * len(cloud.queries)
        scatter_map(axis, places, labels, kinds)
        bare(axis, f"{panel} ({cloud.accuracy:.0f} %)")
        rows.append(
            {"panel": panel, "shown": f"{cloud.kind}s and queries", "accuracy": cloud.accuracy,
             "nearest_is_own": cloud.own_nearest(), "note": ""}
        )  # fmt: skip
        points += [
            {"panel": panel, "kind": kind, "class": int(label), "x": float(x), "y": float(y)}
            for kind, label, (x, y) in zip(kinds, labels, places, strict=True)
        ]
    _legend(axes[len(PANELS)], way)
    sheet = Sheet(
        name="figure3",
        title=f"Fig. 3: one task of {dataset} in the spaces of the methods, eta 0.3",
        columns=COLUMNS,
        rows=tuple(rows),
        protocol=(
            f"task 0 of class split 0 of {dataset}, {way}-way 1-shot, {queries} queries per class; "
            "t-SNE (perplexity 30, PCA start, seed 0) of supports or anchors and queries together"
        ),
        versions=versions_line([versions()]),
        command=command,
        notes=(
            ("the paper uses animal, which is not here; birds200 stands in for it",)
            if dataset != "animal"
            else ()
        ),
        summary=(
            "accuracy: of the method on this task; nearest_is_own: queries whose nearest support "
            "or anchor in that space is of their class; both in percent",
        ),
    )
    return Picture(
        sheet=sheet, figure=figure, points=tuple(points),
        point_columns=("panel", "kind", "class", "x", "y"),
    )  # fmt: skip


def _legend(axis: object, way: int) -> None:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

    assert isinstance(axis, Axes)
    axis.set_axis_off()
    grey = {"color": "0.45", "linestyle": "none"}
    handles = [
        Line2D([], [], marker="o", markersize=8, markeredgecolor="black", label="support", **grey),
        Line2D([], [], marker="o", markersize=2, label="anchor", **grey),
        Line2D([], [], marker="o", markersize=4, label="query", **grey),
    ]
    handles += [
        Line2D([], [], marker=MARKERS[k], color=COLOURS[k], linestyle="none", markersize=5,
               label=f"class {k + 1}")
        for k in range(way)
    ]  # fmt: skip
    axis.legend(handles=handles, loc="center", fontsize=SMALL, frameon=False)
