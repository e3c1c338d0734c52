"""Figures of accuracies against something that varies: figures 5 and 7, and beyond the paper
the imbalance of queries, shots, the kind of missingness, and time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fewview.ground._rows import Row
from fewview.paper._compute import (
    Desk,
    Gathered,
    gather_all,
    lacking,
    protocol_line,
    shown,
    versions_line,
)
from fewview.paper._pictures import SMALL, Picture, dress, look, method_legend, new_figure
from fewview.paper._printed import METHODS, SHORT
from fewview.paper._sheets import Sheet
from fewview.paper._studies import (
    BASE_METHODS,
    COMPARED,
    IMBALANCES,
    NEIGHBOURS,
    SHOTS,
    SMALL_SETS,
    Wish,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def make_curves(name: str, wish: Wish, desk: Desk, command: str) -> Picture:
    """Compute and draw `figure5`, `figure7` or one of the studies beyond the paper."""
    gathered = shown(name, gather_all(name, wish, desk), wish, desk)
    return draw_curves(name, gathered, wish, command)


class Drawn(NamedTuple):
    """A figure and what its sheet says; `protocol` is None where the usual line will do."""

    figure: Figure
    title: str
    columns: str
    rows: Sequence[Row]
    notes: Sequence[str]
    protocol: str | None = None


def draw_curves(name: str, gathered: Sequence[Gathered], wish: Wish, command: str) -> Picture:
    """Draw one of them from its results."""
    drawn = _DRAWERS[name](gathered, wish)
    sheet = Sheet(
        name=name,
        title=drawn.title,
        columns=drawn.columns.split(),
        rows=drawn.rows,
        protocol=drawn.protocol or protocol_line(gathered, wish),
        versions=versions_line(gathered),
        command=command,
        notes=(*drawn.notes, *lacking(gathered, wish)),
    )
    return Picture(sheet=sheet, figure=drawn.figure)


def _line(
    axis: Axes,
    places: Sequence[float],
    rows: Sequence[Row],
    style: Mapping[str, Any],
    joined: bool = True,
) -> Any:
    """Draw one line of accuracies; bars are standard errors over episodes."""
    return axis.errorbar(
        places, [row["accuracy"] for row in rows], yerr=[row["se"] for row in rows], markersize=4,
        linewidth=1.3 if joined else 0, elinewidth=0.8, capsize=1.5, **style,
    )  # fmt: skip


def _dress(axis: Axes, ticks: dict[Any, str], title: str, x: str, y: str = "accuracy (%)") -> None:
    """Write below the axis what was varied; only the first panel of a row says what is shown."""
    axis.set_xticks(list(ticks), list(ticks.values()))
    place = axis.get_subplotspec()
    dress(axis, title, x, y if place is not None and place.is_first_col() else "")


# ---------------------------------------------------------------------- figure 5


def _base_classes(gathered: Sequence[Gathered], wish: Wish) -> Drawn:
    """Two panels, eta 0.1 and 0.3; bands are one standard deviation over repetitions each way."""
    found: dict[tuple[float, str, int], list[Row]] = {}
    for item in gathered:
        for row in item.rows:
            found.setdefault((row["eta"], row["label"], item.part.tag[0]), []).append(row)
    order = list(BASE_METHODS)
    rows: list[Row] = []
    for eta, label, size in sorted(found, key=lambda key: (key[0], order.index(key[1]), key[2])):
        here = found[eta, label, size]
        levels = [row["accuracy"] for row in here]
        rows.append(
            {"eta": eta, "method": label, "base_classes": size, "accuracy": float(np.mean(levels)),
             "deviation": float(np.std(levels)), "repetitions": len(levels),
             "episodes": sum(row["episodes"] for row in here)}
        )  # fmt: skip
    figure = new_figure(2.6)
    etas = sorted({row["eta"] for row in rows}) or [0.1, 0.3]
    sizes = sorted({row["base_classes"] for row in rows})
    axes = figure.subplots(1, len(etas), sharey=True, squeeze=False)[0]
    for axis, eta in zip(axes, etas, strict=True):
        for label in order:
            here = [row for row in rows if (row["eta"], row["method"]) == (eta, label)]
            if not here:
                continue
            names = ("base_classes", "accuracy", "deviation")
            x, y, band = np.array([[row[name] for row in here] for name in names])
            x, style = np.log2(x), look(label, line=True)
            axis.plot(x, y, markersize=4, linewidth=1.3, label=label, **style)
            axis.fill_between(x, y - band, y + band, color=style["color"], alpha=0.18, linewidth=0)
        ticks = {np.log2(size): str(size) for size in sizes}
        _dress(axis, ticks, f"caltech102, $\\eta$ = {eta:g}", "number of base classes")
    if rows:
        axes[0].legend(fontsize=SMALL, frameon=False)
    repetitions = len({item.part.tag[1] for item in gathered})
    protocol = (
        f"{protocol_line(gathered, wish)}; novel classes of split 0; {repetitions} repetitions, "
        "each with base classes drawn at random from the 80 and tasks of its own"
    )
    notes = (
        "the paper has 400 tasks per repetition",
        "Marginal has its stated settings, as they cannot be chosen on few base classes",
        "the paper's text: from 80 to 5 base classes UGDA loses 2.10 points at eta 0.1 and 4.71 "
        "at 0.3; with 2 it gains 15.92 over the concatenation at 0.3",
    )
    return Drawn(
        figure, "Fig. 5: accuracy against the number of base classes, caltech102",
        "eta method base_classes accuracy deviation repetitions episodes", rows, notes, protocol,
    )  # fmt: skip


# ---------------------------------------------------------------------- figure 7


def _hyper_parameters(gathered: Sequence[Gathered], wish: Wish) -> Drawn:
    """Four panels per data set: iter, N, N_F and k."""
    panels = {"iter": "iter (solver=adam)", "N": "N (solver=adam)", "N_F": "$N_F$", "k": "k"}
    rows = [
        row | {"parameter": item.part.tag[1], "dataset": SHORT[item.part.tag[0]],
               "value": row["label"],
               "solver": "adam" if "solver=adam" in row["method"] else "exact"}
        for item in gathered
        for row in item.labelled()
    ]  # fmt: skip
    figure = new_figure(3.6)
    axes = figure.subplots(len(NEIGHBOURS), len(panels), sharey="row")
    for k, (line, dataset) in enumerate(zip(axes, NEIGHBOURS, strict=True)):
        name = SHORT[dataset]
        for axis, (panel, title) in zip(line, panels.items(), strict=True):
            here = [row for row in rows if (row["parameter"], row["dataset"]) == (panel, name)]
            _line(axis, range(len(here)), here, look(k))
            ticks = {place: str(row["value"]) for place, row in enumerate(here)}
            _dress(axis, ticks, "", title, f"{name}\naccuracy (%)")
    shapes = "; ".join(
        f"{SHORT[item.part.tag[0]]} {item.part.tag[1]} {item.part.grid.splits} x "
        f"{item.part.grid.episodes}"
        for item in gathered
    )
    notes = ["with k = 0 or N_F = 0 there are no anchors: the padded or filled views themselves"]
    if wish.quick:
        notes.append("quick: Algorithm 1 with 128 latent dimensions and 25 anchors per support")
    elif wish.device == "cpu":
        notes.append("Algorithm 1 on caltech102 has few episodes on a CPU")
    return Drawn(
        figure, "Fig. 7: the influence of iter, N, N_F and k, eta 0.3",
        "parameter dataset value accuracy se splits episodes solver", rows, notes,
        protocol_line(gathered, wish, f"class splits x episodes: {shapes}"),
    )  # fmt: skip


# ---------------------------------------------------------------------- beyond the paper


class Varied(NamedTuple):
    """A study beyond the paper: what is varied, how its values are written, what to know."""

    title: str
    x: str
    ticks: dict[Any, str]
    note: str


VARIED = {
    "imbalance": Varied(
        "Accuracy against imbalance of the queries, eta 0.3",
        "Dirichlet parameter of the class sizes",
        {"balanced": "equal"} | {v: v.removeprefix("dirichlet:") for v in IMBALANCES[1:]},
        "smaller parameters are less balanced; UGDA and PTMAP assume equal class sizes",
    ),
    "shots": Varied(
        "Accuracy against shots, eta 0.3",
        "supports per class",
        {shot: str(shot) for shot in SHOTS},
        "UGDA has 100 anchors per class whatever the shots, as in the authors' scripts",
    ),
    "missingness": Varied(
        "Accuracy against the kind of missingness, eta 0.3",
        "",
        {"uniform": "uniform", "class-dependent": "by class", "patterns": "patterns"},
        "uniform: every cell alike; by class: every class tends to lose views of its own; "
        "patterns: three samples in five lose the second half of the views together",
    ),
}


def _varied(name: str, gathered: Sequence[Gathered], wish: Wish) -> Drawn:
    """One panel per data set: accuracy against what is varied, one line per method."""
    study = VARIED[name]
    values = list(study.ticks)
    rows = [
        row
        | {"dataset": SHORT[item.part.tag[0]], "varied": item.part.tag[1], "method": row["label"]}
        for item in gathered
        for row in item.rows
    ]
    figure = new_figure(2.7)
    handles: dict[str, Any] = {}
    joined = name != "missingness"  # kinds have no order
    for axis, dataset in _panels(figure):
        for k, method in enumerate(COMPARED):
            here = [row for row in rows if (row["dataset"], row["method"]) == (dataset, method)]
            if here:
                aside = (0.05 if joined else 0.1) * (k - (len(COMPARED) - 1) / 2)
                places = [values.index(row["varied"]) + aside for row in here]
                handles[method] = _line(axis, places, here, look(method, line=joined), joined)
        axis.set_xlim(-0.4, len(values) - 0.6)
        _dress(axis, dict(enumerate(study.ticks.values())), dataset, study.x)
    method_legend(figure, handles, len(handles) or 1)
    return Drawn(
        figure, f"Beyond the paper: {study.title}",
        "dataset varied method accuracy se balanced_accuracy range_low range_high splits episodes",
        rows, [study.note],
    )  # fmt: skip


def _panels(figure: Figure) -> list[tuple[Axes, str]]:
    """One panel for each of the small data sets."""
    axes = figure.subplots(1, len(SMALL_SETS), sharey=True)
    return list(zip(axes, (SHORT[dataset] for dataset in SMALL_SETS), strict=True))


def _time(gathered: Sequence[Gathered], wish: Wish) -> Drawn:
    """Accuracy against milliseconds per episode, one panel per data set."""
    rows = [
        row | {"dataset": SHORT[row["dataset"]], "method": row["label"],
               "ms_per_episode": 1000 * row["seconds"] / row["episodes"],
               "seconds_base_per_split": row["seconds_base"] / max(row["splits"], 1),
               "device": " and ".join(item.devices)}
        for item in gathered
        for row in item.rows
    ]  # fmt: skip
    figure = new_figure(3.2)
    handles: dict[str, Any] = {}
    order = [*METHODS, "Marginal"]
    for axis, dataset in _panels(figure):
        for row in sorted(rows, key=lambda row: order.index(row["method"])):
            if row["dataset"] == dataset:
                (handles[row["method"]],) = axis.plot(
                    row["ms_per_episode"], row["accuracy"], linestyle="none", markersize=6,
                    markeredgecolor="black", markeredgewidth=0.4, **look(row["method"]),
                )  # fmt: skip
        axis.set_xscale("log")
        y = "accuracy (%)" if dataset == SHORT[SMALL_SETS[0]] else ""
        dress(axis, dataset, "milliseconds per episode", y)
    method_legend(figure, handles, 7)
    note = (
        "up and to the left is better; times are those stored with the results, on the machine "
        "and number of threads that computed them; learning from base classes is not in them"
    )
    return Drawn(
        figure, "Beyond the paper: Time against accuracy, eta 0.3",
        "dataset method accuracy se ms_per_episode seconds_base_per_split device episodes", rows,
        [note],
    )  # fmt: skip


_DRAWERS: dict[str, Callable[[Sequence[Gathered], Wish], Drawn]] = {
    "figure5": _base_classes,
    "figure7": _hyper_parameters,
    "time": _time,
    **{name: partial(_varied, name) for name in VARIED},
}
