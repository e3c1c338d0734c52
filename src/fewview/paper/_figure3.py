"""Figure 3: the same task in the spaces of seven methods, by t-SNE. One file, one figure."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from fewview.engine._registry import names as method_names
from fewview.evaluate._workbench import versions
from fewview.ground._errors import FewviewError
from fewview.ground._rows import Row
from fewview.paper._compute import Desk, versions_line
from fewview.paper._embeddings import Cloud, latent_cloud, set_stage
from fewview.paper._pictures import (
    POINT_COLUMNS,
    SMALL,
    Picture,
    bare,
    class_legend,
    draw_map,
    new_figure,
)
from fewview.paper._sheets import Sheet
from fewview.paper._studies import MARGINAL, Wish, has_data

PANELS = {
    "Concat": "proto", "CPM": "cpm", "CPM-GAN": "cpm-gan", "COMPLETER": "completer",
    "ICMSC": "icmsc", "UGDA": "ugda", "Marginal": MARGINAL,
}  # fmt: skip


def make_figure3(wish: Wish, desk: Desk, command: str) -> Picture:
    """Draw figure 3 on animal where it is present, else on birds200."""
    dataset = "animal" if has_data("animal", wish) else "birds200"
    stage = set_stage(dataset, 0.3, wish)
    known = method_names()
    clouds: dict[str, Cloud] = {}
    troubles: dict[str, str] = {}
    for panel, text in PANELS.items():
        if text.partition(":")[0] not in known:
            continue
        try:
            clouds[panel] = latent_cloud(stage, text)
        except FewviewError:
            raise
        except Exception as error:  # one broken method must not cost the other panels
            troubles[panel] = f"failed: {type(error).__name__}: {error}"
    return draw_figure3(clouds, dataset, stage.task.way, stage.task.queries, command, troubles)


def draw_figure3(
    clouds: Mapping[str, Cloud],
    dataset: str,
    way: int,
    queries: int,
    command: str,
    troubles: Mapping[str, str] = MappingProxyType({}),
) -> Picture:
    """Draw the panels; `troubles` say why a method has no cloud, "not available" otherwise."""
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
            rows.append({"panel": panel, "note": troubles.get(panel, "not available")})
            continue
        points += draw_map(axis, f"{panel} ({cloud.accuracy:.0f} %)", *cloud.mapped(), panel=panel)
        rows.append(
            {"panel": panel, "shown": f"{cloud.kind}s and queries", "accuracy": cloud.accuracy,
             "nearest_is_own": cloud.own_nearest(), "note": ""}
        )  # fmt: skip
    axes[len(PANELS)].set_axis_off()
    class_legend(axes[len(PANELS)], way, ("support", "anchor", "query"), loc="center")
    stands_in = "the paper uses animal, which is not here; birds200 stands in for it"
    sheet = Sheet(
        name="figure3",
        title=f"Fig. 3: one task of {dataset} in the spaces of the methods, eta 0.3",
        columns=("panel", "shown", "accuracy", "nearest_is_own", "note"),
        rows=tuple(rows),
        protocol=(
            f"task 0 of class split 0 of {dataset}, {way}-way 1-shot, {queries} queries per class; "
            "t-SNE (perplexity 30, PCA start, seed 0) of supports or anchors and queries together"
        ),
        versions=versions_line((), versions()),
        command=command,
        notes=() if dataset == "animal" else (stands_in,),
        summary=(
            "accuracy: of the method on this task; nearest_is_own: queries whose nearest support "
            "or anchor in that space is of their class; both in percent",
        ),
    )
    return Picture(
        sheet=sheet, figure=figure, points=tuple(points), point_columns=("panel", *POINT_COLUMNS)
    )
