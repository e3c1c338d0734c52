"""Figure 7: the hyper-parameters iter, N, N_F and k on caltech102 and cub."""

from __future__ import annotations

from collections.abc import Sequence

from fewview.ground._rows import Row
from fewview.paper._compute import Desk, Gathered, gather
from fewview.paper._pictures import Picture, dress, look, new_figure
from fewview.paper._sheets import Sheet, versions_line
from fewview.paper._studies import NEIGHBOURS, Wish, hyper_methods, parts_of

PANELS = {
    "iter": "iter (solver=adam)", "N": "N (solver=adam)", "N_F": "$N_F$", "k": "k",
}  # fmt: skip
COLUMNS = ("parameter", "dataset", "value", "accuracy", "se", "splits", "episodes", "solver")
SHORT = {"caltech102": "caltech102", "cub_googlenet_doc2vec": "cub"}


def make_figure(wish: Wish, desk: Desk, command: str) -> Picture:
    """Compute and draw figure 7."""
    return draw([gather(part, desk) for part in parts_of("figure7", wish)], wish, command)


def curve_rows(gathered: Sequence[Gathered], quick: bool) -> list[Row]:
    """One row per parameter, data set and value."""
    rows: list[Row] = []
    for part in gathered:
        dataset, panel = part.part.tag
        for value, method in hyper_methods(dataset, quick)[panel].items():
            row = part.row(method, 0.3)
            if row is not None:
                rows.append(
                    {"parameter": panel, "dataset": SHORT[dataset], "value": value,
                     "accuracy": row["accuracy"], "se": row["standard_error"],
                     "splits": row["n_splits"], "episodes": row["n_episodes"],
                     "solver": "adam" if "adam" in method else "exact"}
                )  # fmt: skip
    return rows


def draw(gathered: Sequence[Gathered], wish: Wish, command: str) -> Picture:
    """Draw four panels per data set; bars are standard errors over episodes."""
    rows = curve_rows(gathered, wish.quick)
    figure = new_figure(3.6)
    axes = figure.subplots(len(NEIGHBOURS), len(PANELS), sharey="row")
    for k, (line, dataset) in enumerate(zip(axes, NEIGHBOURS, strict=True)):
        for axis, (panel, title) in zip(line, PANELS.items(), strict=True):
            here = [
                row
                for row in rows
                if row["parameter"] == panel and row["dataset"] == SHORT[dataset]
            ]
            axis.errorbar(
                range(len(here)),
                [row["accuracy"] for row in here],
                yerr=[row["se"] for row in here],
                markersize=4, linewidth=1.3, elinewidth=0.7, capsize=1.5, **look(k),
            )  # fmt: skip
            axis.set_xticks(range(len(here)), [str(row["value"]) for row in here])
            left = axis is line[0]
            dress(axis, y=f"{SHORT[dataset]}\naccuracy (%)" if left else "", x=title)
    stored = [result.versions for part in gathered for result in part.results.values()]
    devices = sorted({d for part in gathered for d in part.devices}) or ["none"]
    shapes = "; ".join(
        f"{SHORT[part.part.tag[0]]} {part.part.tag[1]} {part.part.grid.splits} x "
        f"{part.part.grid.episodes}"
        for part in gathered
    )
    notes = ["with k = 0 or N_F = 0 there are no anchors: the padded or filled views themselves"]
    if wish.quick:
        notes.append("quick: Algorithm 1 with 128 latent dimensions and 25 anchors per support")
    elif wish.device == "cpu":
        notes.append("Algorithm 1 on caltech102 has few episodes on a CPU")
    sheet = Sheet(
        name="figure7",
        title="Fig. 7: the influence of iter, N, N_F and k, eta 0.3",
        columns=COLUMNS,
        rows=tuple(rows),
        protocol=f"{'quick: ' if wish.quick else ''}class splits x episodes: {shapes}; "
        f"device {' and '.join(devices)}",
        versions=versions_line(stored),
        command=command,
        notes=tuple(notes),
    )
    return Picture(sheet=sheet, figure=figure)
