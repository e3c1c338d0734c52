"""How the figures look and how they are saved: vector files, the numbers behind them, a caption.

Sized for two columns of print, with colours and marks that colour-blind people can tell apart.
Matplotlib is imported inside the functions.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fewview.drawing._charts import save_figure
from fewview.drawing._looks import COLOURS, MARKERS
from fewview.ground._rows import Row
from fewview.ground._whole_files import replacing
from fewview.paper._sheets import Sheet

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH = 7.16  # inches, two columns of an IEEE page
SMALL, MEDIUM = 7, 8


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A figure with what stands behind it.

    Attributes:
        sheet: the numbers that are printed; its title, protocol and command belong to the figure.
        figure: the drawing.
        points: everything that is drawn, where that is more than the sheet; may be empty.
        point_columns: keys of the points.
    """

    sheet: Sheet
    figure: Figure
    points: tuple[Row, ...] = ()
    point_columns: tuple[str, ...] = ()

    def write(self, folder: str | PathLike[str]) -> list[Path]:
        """Write PDF, SVG and PNG, the numbers as CSV, and a Markdown page with the caption."""
        place = Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        out = []
        for ending in ("pdf", "svg", "png"):
            out += save_figure(self.figure, place / f"{self.sheet.name}.{ending}")
        texts = {f"{self.sheet.name}.csv": self.sheet.csv()}
        if self.points:
            texts[f"{self.sheet.name}_points.csv"] = self._points()
        page = f"![{self.sheet.name}]({self.sheet.name}.svg)\n\n"
        texts[f"{self.sheet.name}.md"] = page + self.sheet.markdown()
        for name, text in texts.items():
            with replacing(place / name) as temporary:
                temporary.write_text(text, encoding="utf-8")
            out.append(place / name)
        return out

    def _points(self) -> str:
        buffer = io.StringIO()
        writer = csv.writer(buffer, lineterminator="\n")
        writer.writerow(self.point_columns)
        for row in self.points:
            values = [row.get(name) for name in self.point_columns]
            writer.writerow([f"{v:.6g}" if isinstance(v, float) else v for v in values])
        return buffer.getvalue()


def new_figure(height: float, width: float = WIDTH) -> Figure:
    """An empty figure of print size.

    Example:
        >>> new_figure(2.0).get_size_inches().tolist()
        [7.16, 2.0]
    """
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def dress(axis: Axes, title: str = "", x: str = "", y: str = "") -> None:
    """Title, labels, faint grid, small letters."""
    if title:
        axis.set_title(title, fontsize=MEDIUM)
    axis.set_xlabel(x, fontsize=MEDIUM)
    axis.set_ylabel(y, fontsize=MEDIUM)
    axis.tick_params(labelsize=SMALL)
    axis.grid(alpha=0.25, linewidth=0.5)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)


def bare(axis: Axes, title: str = "") -> None:
    """An axis for a t-SNE map, whose coordinates mean nothing."""
    axis.set_xticks([])
    axis.set_yticks([])
    axis.margins(0.06)
    for spine in axis.spines.values():
        spine.set_linewidth(0.5)
        spine.set_color("0.5")
    if title:
        axis.set_title(title, fontsize=SMALL)


def look(index: int) -> dict[str, Any]:
    """Colour and mark of a line.

    Example:
        >>> look(0)["marker"]
        'o'
    """
    return {"color": COLOURS[index % len(COLOURS)], "marker": MARKERS[index % len(MARKERS)]}


# One look per method, the same in all figures.
_ORDER = (
    "UGDA", "Proto", "Marginal", "PTMAP", "RFS", "PADDLE", "TIM", "Match", "BD-CSPN", "CPM",
    "CPM-GAN", "ICMSC", "COMPLETER", "PTMAP+UGDA", "RFS+UGDA",
)  # fmt: skip


def look_of(method: str) -> dict[str, Any]:
    """Colour and mark of a method.

    Example:
        >>> look_of("UGDA") == look(0), look_of("w/o UGDA (Proto)") == look_of("Proto")
        (True, True)
    """
    name = "Proto" if method.endswith("(Proto)") else method
    return look(_ORDER.index(name))


def scatter_map(
    axis: Axes,
    places: Any,
    labels: Any,
    kinds: Sequence[str],
) -> None:
    """Draw a map of one task: colour and mark by class.

    Args:
        axis: where to.
        places: [n, 2].
        labels: class of every point, [n].
        kinds: `"query"`, `"support"`, `"anchor"`, `"centre"` or `"open query"` for every point.
    """
    import numpy as np

    style: dict[str, dict[str, Any]] = {
        "anchor": {"s": 3, "alpha": 0.45, "linewidths": 0},
        "query": {"s": 11, "alpha": 0.9, "linewidths": 0},
        "open query": {"s": 22, "facecolors": "white", "edgecolors": "black", "linewidths": 0.7},
        "support": {"s": 75, "edgecolors": "black", "linewidths": 1.1},
        "centre": {"s": 95, "edgecolors": "black", "linewidths": 1.2},
    }
    kind_of = np.asarray(kinds)
    for kind in ("anchor", "query", "open query", "support", "centre"):
        for label in np.unique(labels):
            chosen = (kind_of == kind) & (np.asarray(labels) == label)
            if chosen.any():
                here = dict(style[kind])
                colour = COLOURS[int(label) % len(COLOURS)]
                if kind == "open query":
                    here["edgecolors"] = colour
                else:
                    here["color"] = colour
                axis.scatter(
                    places[chosen, 0], places[chosen, 1], marker=MARKERS[int(label)], **here
                )


def class_legend(place: Any, way: int, kinds: Sequence[str], **where: Any) -> None:
    """Say what marks and colours mean.

    Args:
        place: a figure or an axis.
        way: number of classes.
        kinds: of `scatter_map`.
        where: options of the legend.
    """
    from matplotlib.lines import Line2D

    sizes = {"support": 8, "centre": 8, "anchor": 2, "query": 4, "open query": 5}
    handles = []
    for kind in kinds:
        edged = kind in ("support", "centre", "open query")
        handles.append(
            Line2D(
                [], [], marker="o", linestyle="none", markersize=sizes[kind],
                markerfacecolor="white" if kind == "open query" else "0.45",
                markeredgecolor="black" if edged else "0.45", markeredgewidth=0.9,
                label=kind.removeprefix("open "),
            )
        )  # fmt: skip
    handles += [
        Line2D([], [], marker=MARKERS[k], color=COLOURS[k], linestyle="none", markersize=5,
               label=f"class {k + 1}")
        for k in range(way)
    ]  # fmt: skip
    place.legend(handles=handles, fontsize=SMALL, frameon=False, **where)
