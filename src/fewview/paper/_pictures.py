"""How the figures look and how they are saved: vector files, the numbers behind them, a caption.

Sized for two columns of print, with colours and marks that colour-blind people can tell apart.
Matplotlib is imported inside the functions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fewview.drawing._charts import COLUMNS, save_figure
from fewview.drawing._looks import COLOURS, look_at, looks
from fewview.ground._rows import Row
from fewview.paper._sheets import Sheet, csv_of, write_texts

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH = COLUMNS["double"]  # inches
SMALL, MEDIUM = 7, 8


def look(of: int | str, line: bool = False) -> dict[str, Any]:
    """Colour and mark of a number, or of a method: those of every other chart; dashes of a line."""
    if isinstance(of, str):
        of = "proto" if of.endswith("(Proto)") else of
        found = looks([of])[of]
    else:
        found = look_at(of)
    style = {"color": COLOURS[found.colour], "marker": found.marker}
    return style | ({"linestyle": found.line(1.3)["linestyle"]} if line else {})


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A figure with what stands behind it.

    `sheet` has the numbers that are printed; its title, protocol and command belong to the figure.
    `points` are everything that is drawn, where that is more than the sheet.
    """

    sheet: Sheet
    figure: Figure
    points: Sequence[Row] = ()

    def write(self, folder: str | PathLike[str]) -> list[Path]:
        """Write PDF, SVG and PNG, the numbers as CSV, and a Markdown page with the caption.

        Two columns of print wide, and `NAME-single` one column, whose panels stand one below
        another; the figure is in that form afterwards.
        """
        name = self.sheet.name
        Path(folder).mkdir(parents=True, exist_ok=True)
        out = []
        for ending in ("pdf", "svg", "png"):
            out += save_figure(self.figure, Path(folder) / f"{name}.{ending}")
        if stacked(self.figure):
            for ending in ("pdf", "svg"):
                path = Path(folder) / f"{name}-single.{ending}"
                out += save_figure(self.figure, path, cut=False)
        texts = {f"{name}.csv": self.sheet.csv()}
        if self.points:
            texts[f"{name}_points.csv"] = csv_of(self.points)
        texts[f"{name}.md"] = f"![{name}]({name}.svg)\n\n" + self.sheet.markdown()
        return out + write_texts(folder, texts)


def new_figure(height: float) -> Figure:
    """An empty figure of print size."""
    from matplotlib.figure import Figure

    return Figure(figsize=(WIDTH, height), layout="constrained")


def stacked(figure: Figure) -> bool:
    """Arrange the panels of a figure for one column of print; False if it has no grid of panels."""
    axes = [axis for axis in figure.axes if axis.get_subplotspec() is not None]
    grids = {axis.get_subplotspec().get_gridspec() for axis in axes}  # type: ignore[union-attr]
    if len(grids) != 1:
        return False
    before = grids.pop()
    columns = 1 if before.ncols <= 2 else 2
    rows = -(-len(axes) // columns)
    grid = figure.add_gridspec(rows, columns)
    named = ""
    for k, axis in enumerate(axes):
        # Panels of one row share the name of their axis and the numbers beside it.
        named = axis.get_ylabel() or named
        axis.set_subplotspec(grid[k // columns, k % columns])
        if axis.axison and len(axis.get_yticks()):
            axis.tick_params(labelleft=True)
            axis.set_ylabel(named if k % columns == 0 else "", fontsize=MEDIUM)
    for legend in figure.legends:
        legend.set_ncols(2)
    width = COLUMNS["single"]
    figure.set_layout_engine("constrained")
    figure.set_size_inches(width, rows * (0.62 if columns == 1 else 0.45) * width + 0.3)
    return True


def dress(axis: Axes, title: str = "", x: str = "", y: str = "") -> None:
    """Title, labels, faint grid, small letters."""
    if title:
        axis.set_title(title, fontsize=MEDIUM)
    axis.set_xlabel(x, fontsize=MEDIUM)
    axis.set_ylabel(y, fontsize=MEDIUM)
    axis.tick_params(labelsize=SMALL)
    axis.grid(alpha=0.25, linewidth=0.5)
    axis.spines[["top", "right"]].set_visible(False)


def bare(axis: Axes, title: str) -> None:
    """An axis for a t-SNE map, whose coordinates mean nothing."""
    axis.set(xticks=[], yticks=[])
    axis.margins(0.06)
    axis.spines[:].set(linewidth=0.5, color="0.5")
    axis.set_title(title, fontsize=SMALL)


def method_legend(figure: Figure, handles: Mapping[str, Any], columns: int) -> None:
    """Name the lines or marks of methods below a figure."""
    figure.legend(
        list(handles.values()), list(handles), loc="outside lower center", ncol=columns,
        fontsize=SMALL, frameon=False,
    )  # fmt: skip


# Kinds of points in the map of a task, in the order that they are drawn.
_KINDS: dict[str, dict[str, Any]] = {
    "anchor": {"s": 3, "alpha": 0.45, "linewidths": 0},
    "query": {"s": 11, "alpha": 0.9, "linewidths": 0},
    "open query": {"s": 22, "facecolors": "white", "linewidths": 0.7},
    "support": {"s": 75, "edgecolors": "black", "linewidths": 1.1},
    "centre": {"s": 95, "edgecolors": "black", "linewidths": 1.2},
}
_LEGEND_SIZES = {"support": 8, "centre": 8, "anchor": 2, "query": 4, "open query": 5}


def draw_map(
    axis: Axes, title: str, places: Any, labels: Any, kinds: Sequence[str], **tags: Any
) -> list[Row]:
    """Draw a map of one task, colour and mark by class; return its points, each with the tags."""
    bare(axis, title)
    for kind, style in _KINDS.items():
        for label in np.unique(labels):
            chosen = (np.asarray(kinds) == kind) & (labels == label)
            if chosen.any():
                here = style | look(int(label))
                if kind == "open query":
                    here["edgecolors"] = here.pop("color")
                axis.scatter(*places[chosen].T, **here)
    return [
        {**tags, "kind": kind, "class": int(label), "x": float(x), "y": float(y)}
        for kind, label, (x, y) in zip(kinds, labels, places, strict=True)
    ]


def class_legend(place: Any, way: int, kinds: Sequence[str], **where: Any) -> None:
    """Say what marks and colours of a map mean, on a figure or an axis."""
    from matplotlib.lines import Line2D

    handles = [
        Line2D(
            [], [], marker="o", linestyle="none", markersize=_LEGEND_SIZES[kind],
            markerfacecolor="white" if kind == "open query" else "0.45",
            markeredgecolor="0.45" if kind in ("anchor", "query") else "black",
            markeredgewidth=0.9, label=kind.removeprefix("open "),
        )
        for kind in kinds
    ]  # fmt: skip
    handles += [
        Line2D([], [], linestyle="none", markersize=5, label=f"class {k + 1}", **look(k))
        for k in range(way)
    ]
    place.legend(handles=handles, fontsize=SMALL, frameon=False, **where)
