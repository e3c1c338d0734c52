"""Beyond the paper, in the same style: imbalance of queries, shots, missingness, time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fewview.ground._rows import Row
from fewview.paper._beside import protocol
from fewview.paper._compute import Desk, Gathered, gather
from fewview.paper._pictures import SMALL, Picture, dress, look_of, new_figure
from fewview.paper._printed import METHODS
from fewview.paper._sheets import Sheet, versions_line
from fewview.paper._studies import (
    COMPARED,
    IMBALANCES,
    SHOTS,
    SMALL_SETS,
    Wish,
    missing_kinds,
    parts_of,
)

SHORT = {"handwritten": "handwritten", "cub_googlenet_doc2vec": "cub", "scene15": "scene15"}
PRINTED = {ours: theirs for theirs, ours in METHODS.items()} | {
    "paddle": "PADDLE", "marginal": "Marginal",
}  # fmt: skip
COLUMNS = (
    "dataset", "varied", "method", "accuracy", "se", "balanced_accuracy", "range_low",
    "range_high", "splits", "episodes",
)  # fmt: skip
TIME_COLUMNS = (
    "dataset", "method", "accuracy", "se", "ms_per_episode", "seconds_base_per_split", "device",
    "episodes",
)  # fmt: skip


def make_figure(name: str, wish: Wish, desk: Desk, command: str) -> Picture:
    """Compute and draw one of the studies.

    Args:
        name: `"imbalance"`, `"shots"`, `"missingness"` or `"time"`.
        wish: how to run it.
        desk: where results live.
        command: what was typed.
    """
    gathered = [gather(part, desk) for part in parts_of(name, wish)]
    return (
        draw_time(gathered, wish, command)
        if name == "time"
        else draw(name, gathered, wish, command)
    )


def curve_rows(gathered: Sequence[Gathered]) -> list[Row]:
    """One row per data set, varied value and method."""
    rows: list[Row] = []
    for part in gathered:
        dataset, varied = part.part.tag
        for row in part.rows:
            rows.append(
                {"dataset": SHORT[dataset], "varied": varied,
                 "method": PRINTED[row["method"].partition(":")[0]],
                 "accuracy": row["accuracy"], "se": row["standard_error"],
                 "balanced_accuracy": row["balanced_accuracy"],
                 "range_low": row["split_low"], "range_high": row["split_high"],
                 "splits": row["n_splits"], "episodes": row["n_episodes"]}
            )  # fmt: skip
    return rows


def draw(name: str, gathered: Sequence[Gathered], wish: Wish, command: str) -> Picture:
    """Draw one panel per data set: accuracy against what is varied, one line per method."""
    words: dict[str, tuple[str, str, list[Any], Callable[[Any], str]]] = {
        "imbalance": (
            "Accuracy against imbalance of the queries, eta 0.3",
            "Dirichlet parameter of the class sizes",
            list(IMBALANCES),
            lambda value: str(value).removeprefix("dirichlet:").replace("balanced", "equal"),
        ),
        "shots": ("Accuracy against shots, eta 0.3", "supports per class", list(SHOTS), str),
        "missingness": (
            "Accuracy against the kind of missingness, eta 0.3",
            "",
            list(missing_kinds("scene15")),
            lambda value: str(value).replace("class-dependent", "by class"),
        ),
    }
    title, x_label, values, write = words[name]
    rows = curve_rows(gathered)
    figure = new_figure(2.7)
    axes = figure.subplots(1, len(SMALL_SETS), sharey=True)
    methods = [PRINTED[method.partition(":")[0]] for method in COMPARED]
    handles: dict[str, Any] = {}
    for axis, dataset in zip(axes, (SHORT[d] for d in SMALL_SETS), strict=True):
        for k, method in enumerate(methods):
            line = [r for r in rows if r["dataset"] == dataset and r["method"] == method]
            if not line:
                continue
            aside = (0.1 if name == "missingness" else 0.05) * (k - (len(methods) - 1) / 2)
            handles[method] = axis.errorbar(
                [values.index(row["varied"]) + aside for row in line],
                [row["accuracy"] for row in line],
                yerr=[row["se"] for row in line],
                markersize=4, linewidth=1.2 if name != "missingness" else 0, elinewidth=0.8,
                capsize=1.5, **look_of(method),
            )  # fmt: skip
        axis.set_xticks(range(len(values)), [write(value) for value in values])
        axis.set_xlim(-0.4, len(values) - 0.6)
        dress(axis, dataset, x_label, "accuracy (%)" if axis is axes[0] else "")
    figure.legend(
        list(handles.values()), list(handles), loc="outside lower center", ncol=len(handles) or 1,
        fontsize=SMALL, frameon=False,
    )  # fmt: skip
    notes = {
        "imbalance": (
            "smaller parameters are less balanced; UGDA and PTMAP assume equal class sizes",
        ),
        "shots": ("UGDA has 100 anchors per class whatever the shots, as in the authors' scripts",),
        "missingness": (
            "uniform: every cell alike; by class: every class tends to lose views of its own; "
            "patterns: three samples in five lose the second half of the views together",
        ),
    }[name]
    return Picture(sheet=_sheet(name, title, COLUMNS, rows, gathered, wish, command, notes),
                   figure=figure)  # fmt: skip


def draw_time(gathered: Sequence[Gathered], wish: Wish, command: str) -> Picture:
    """Draw accuracy against milliseconds per episode, one panel per data set, eta 0.3."""
    rows: list[Row] = []
    for part in gathered:
        for row in part.rows:
            rows.append(
                {"dataset": SHORT[row["dataset"]],
                 "method": PRINTED[row["method"].partition(":")[0]],
                 "accuracy": row["accuracy"], "se": row["standard_error"],
                 "ms_per_episode": 1000 * row["seconds"] / row["n_episodes"],
                 "seconds_base_per_split": row["seconds_base"] / max(row["n_splits"], 1),
                 "device": " and ".join(part.devices), "episodes": row["n_episodes"]}
            )  # fmt: skip
    figure = new_figure(3.2)
    axes = figure.subplots(1, len(SMALL_SETS), sharey=True)
    order = [*METHODS, "Marginal"]
    present = [method for method in order if any(row["method"] == method for row in rows)]
    handles: dict[str, Any] = {}
    for axis, dataset in zip(axes, (SHORT[d] for d in SMALL_SETS), strict=True):
        for method in present:
            for row in rows:
                if row["dataset"] == dataset and row["method"] == method:
                    (handles[method],) = axis.plot(
                        row["ms_per_episode"], row["accuracy"], linestyle="none", markersize=6,
                        markeredgecolor="black", markeredgewidth=0.4, **look_of(method),
                    )  # fmt: skip
        axis.set_xscale("log")
        dress(axis, dataset, "milliseconds per episode", "accuracy (%)" if axis is axes[0] else "")
    figure.legend(
        list(handles.values()), list(handles), loc="outside lower center", ncol=7,
        fontsize=SMALL, frameon=False,
    )  # fmt: skip
    notes = (
        "up and to the left is better; times are those stored with the results, on the machine "
        "and number of threads that computed them; learning from base classes is not in them",
    )
    title = "Time against accuracy, eta 0.3"
    return Picture(
        sheet=_sheet("time", title, TIME_COLUMNS, rows, gathered, wish, command, notes),
        figure=figure,
    )


def _sheet(
    name: str,
    title: str,
    columns: tuple[str, ...],
    rows: Sequence[Row],
    gathered: Sequence[Gathered],
    wish: Wish,
    command: str,
    notes: tuple[str, ...],
) -> Sheet:
    stored = [result.versions for part in gathered for result in part.results.values()]
    return Sheet(
        name=name,
        title=f"Beyond the paper: {title}",
        columns=columns,
        rows=tuple(rows),
        protocol=protocol(gathered, wish),
        versions=versions_line(stored),
        command=command,
        notes=notes,
    )
