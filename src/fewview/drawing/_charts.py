"""Figures of results, drawn with matplotlib and saved as PNG and SVG.

Matplotlib is imported inside the functions, and the figures are made without pyplot, so that no
window system, no global state and no leftover figures are involved.
"""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fewview.ground._errors import FewviewError
from fewview.ground._rows import Row
from fewview.ground._whole_files import replacing
from fewview.results._intervals import Ranking

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito's colours, told apart by most colour-blind people; yellow is too faint for lines.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "*")
STYLES = ("-", "--", ":", "-.")


def accuracy_curves(rows: Sequence[Row], title: str | None = None) -> Figure:
    """Draw accuracy against the missing rate, one panel per data set, one line per method.

    Bars are 95 % intervals over class splits; the legend lists methods from best to worst mean.

    Args:
        rows: of `evaluate.bench`.
        title: above the figure.

    Example:
        >>> row = {"dataset": "digits", "method": "proto", "eta": 0.0, "accuracy": 84.0,
        ...        "ci_low": 80.0, "ci_high": 88.0, "way": 3, "shot": 1}
        >>> len(accuracy_curves([row]).axes)
        1
    """
    from matplotlib.figure import Figure

    if not rows:
        raise FewviewError("no results to draw")
    datasets = list(dict.fromkeys(row["dataset"] for row in rows))
    totals: dict[str, list[float]] = {}
    for row in rows:
        totals.setdefault(row["method"], []).append(row["accuracy"])
    order = sorted(totals, key=lambda name: -sum(totals[name]) / len(totals[name]))
    looks = {name: _look(k) for k, name in enumerate(dict.fromkeys(r["method"] for r in rows))}
    width = 5.6 * min(len(datasets), 3) + 2.2
    n_rows = -(-len(datasets) // 3)
    height = max(4.2 * n_rows, 0.22 * len(order) + 1.0)
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(n_rows, min(len(datasets), 3), squeeze=False).ravel()
    handles: dict[str, Any] = {}
    for axis, dataset in zip(axes, datasets, strict=False):
        for name in order:
            here = [row for row in rows if row["dataset"] == dataset and row["method"] == name]
            here.sort(key=lambda row: float(row["eta"]))
            if not here:
                continue
            level = [row["accuracy"] for row in here]
            low = [max(0.0, row["accuracy"] - row["ci_low"]) for row in here]
            high = [max(0.0, row["ci_high"] - row["accuracy"]) for row in here]
            look = looks[name]
            etas = [row["eta"] for row in here]
            (handles[name],) = axis.plot(etas, level, markersize=4, linewidth=1.3, **look)
            # Bars stand side by side, so that they can be told apart.
            aside = 0.02 * ((order.index(name) + 0.5) / len(order) - 0.5)
            axis.errorbar(
                [eta + aside for eta in etas],
                level,
                yerr=[low, high],
                fmt="none",
                ecolor=look["color"],
                elinewidth=0.6,
                alpha=0.6,
            )
        first = next(row for row in rows if row["dataset"] == dataset)
        axis.axhline(100.0 / first["way"], color="0.6", linewidth=0.8, linestyle=":")
        axis.set_title(f"{dataset}, {first['way']}-way {first['shot']}-shot", fontsize=10)
        axis.set_xlabel("missing rate $\\eta$")
        axis.set_ylabel("accuracy (%)")
        axis.grid(alpha=0.25)
    for axis in axes[len(datasets) :]:
        axis.set_axis_off()
    figure.legend(
        [handles[name] for name in order if name in handles],
        [name for name in order if name in handles],
        loc="outside right center",
        fontsize=7,
        frameon=False,
    )
    if title:
        figure.suptitle(title, fontsize=11)
    return figure


def _look(index: int) -> dict[str, Any]:
    return {
        "color": COLOURS[index % len(COLOURS)],
        "marker": MARKERS[index % len(MARKERS)],
        "linestyle": STYLES[(index // len(COLOURS)) % len(STYLES)],
    }


def critical_difference_diagram(ranking: Ranking, blocks: str = "blocks") -> Figure:
    """Draw average ranks on a line, best on the left; bars join methods not told apart.

    Args:
        ranking: of `evaluate.average_ranks`.
        blocks: what was ranked, for the caption.

    Example:
        >>> from fewview.results._intervals import average_ranks
        >>> ranking = average_ranks([[3, 2, 1]] * 9, ["a", "b", "c"])
        >>> len(critical_difference_diagram(ranking).axes)
        1
    """
    from matplotlib.figure import Figure

    count = len(ranking.names)
    half = (count + 1) // 2
    cliques = ranking.cliques()
    top = 0.5 + 0.16 * len(cliques)
    height = top + 0.22 * half + 0.9
    figure = Figure(figsize=(7.5, height))
    axis = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axis.set_axis_off()
    axis.set_xlim(0, 7.5)
    axis.set_ylim(height, 0)
    left, right, line = 2.0, 5.5, 0.75

    def place(rank: float) -> float:
        return left + (rank - 1) / max(count - 1, 1) * (right - left)

    axis.plot([left, right], [line, line], color="black", linewidth=1)
    for tick in range(1, count + 1):
        axis.plot([place(tick)] * 2, [line - 0.07, line], color="black", linewidth=1)
        axis.text(place(tick), line - 0.1, str(tick), ha="center", va="bottom", fontsize=7)
    span = min(ranking.critical_difference, count - 1)
    axis.plot([left, place(1 + span)], [0.3, 0.3], color="black", linewidth=2)
    axis.text(left, 0.24, f"critical difference {ranking.critical_difference:.2f}", fontsize=8)
    for level, (first, last) in enumerate(cliques):
        y = line + 0.14 + 0.16 * level
        ends = [place(ranking.ranks[first]) - 0.04, place(ranking.ranks[last]) + 0.04]
        axis.plot(ends, [y, y], color=COLOURS[1], linewidth=3, solid_capstyle="butt")
    for k, (name, rank) in enumerate(zip(ranking.names, ranking.ranks, strict=True)):
        on_left = k < half
        row = k if on_left else count - 1 - k
        y = line + top - 0.3 + 0.22 * (row + 1)
        x = left - 0.2 if on_left else right + 0.2
        axis.plot([place(rank)] * 2 + [x], [line, y, y], color="0.3", linewidth=0.8)
        text = f"{name}  {rank:.2f}" if on_left else f"{rank:.2f}  {name}"
        edge = -0.05 if on_left else 0.05
        axis.text(x + edge, y, text, ha="right" if on_left else "left", va="center", fontsize=8)
    axis.text(
        3.75,
        height - 0.08,
        f"average rank over {ranking.n_blocks} {blocks}; bars join methods that Nemenyi's test at "
        f"{ranking.alpha:g} does not tell apart",
        ha="center",
        va="bottom",
        fontsize=7,
    )
    return figure


def save_figure(figure: Figure, path: str | PathLike[str]) -> list[Path]:
    """Save a figure; a path without ending is saved as both PNG and SVG.

    Args:
        figure: what to save.
        path: `name.png`, `name.svg`, `name.pdf`, or `name`.

    Returns:
        The files written, each whole or not at all.
    """
    from matplotlib import rc_context

    target = Path(path)
    known = (".png", ".svg", ".pdf")
    if target.suffix.lower() in known:
        files = [target]
    else:
        files = [target.with_name(target.name + ending) for ending in (".png", ".svg")]
    # The layout is settled once; settling it again for every file would move things a little.
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    for file in files:
        kind = file.suffix.lower()[1:]
        # Without a date and with fixed identifiers the same figure is the same file.
        metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind)
        with replacing(file) as temporary, rc_context({"svg.hashsalt": "fewview"}):
            figure.savefig(temporary, format=kind, dpi=160, metadata=metadata, bbox_inches="tight")
    return files
