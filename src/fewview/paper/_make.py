"""One name, one product: who makes each table, each figure, the claims and the other studies.

The product comes from results computed here, from the store, or from recorded results; recording
them is done here too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

from fewview.paper._beside import make_splits, make_table
from fewview.paper._claims import make_claims
from fewview.paper._compute import Desk, kinds_named, kinds_of, record
from fewview.paper._curves import make_curves
from fewview.paper._pictures import Picture
from fewview.paper._printed import SHORT, TABLES
from fewview.paper._recorded import (
    MADE_OF,
    RUNS,
    command_of,
    not_recorded,
    options_of,
    read,
    read_json,
    stale,
    stem,
    write_json,
)
from fewview.paper._sheets import Sheet
from fewview.paper._studies import BEYOND, Wish
from fewview.paper._task_figures import (
    RECTIFIED,
    asked_spaces,
    make_figure3,
    make_figure4,
    make_figure6,
    needs_ugda,
)

MAKERS: dict[str, Callable[[Wish, Desk, str], Sheet | Picture]] = {
    **{name: partial(make_table, name) for name in TABLES},
    **{name: partial(make_curves, name) for name in ("figure5", "figure7", *BEYOND)},
    "figure3": make_figure3,
    "figure4": make_figure4,
    "figure6": make_figure6,
    "claims": make_claims,
    "splits": make_splits,
}
# Figures of single tasks: their pictures show samples, which are not recorded.
PICTURED = {
    "figure3": "animal or birds200 with tieredimagenet_tiny",
    "figure4": "cub_googlenet_doc2vec and scene15",
    "figure6": " and ".join(RECTIFIED),
}
_SHEET = ("title", "columns", "rows", "protocol", "versions", "notes", "summary")


def make(name: str, wish: Wish, desk: Desk, command: str) -> Sheet | Picture:
    """Make what a name stands for: computed, looked up or recorded; `command` is what was typed."""
    if desk.recorded and name in ("figure3", "figure6"):
        product: Sheet | Picture = _recorded_sheet(name, wish, desk, command)
    else:
        product = MAKERS[name](wish, desk, command)
    if not desk.recorded:
        return product
    notes = recorded_notes(name, wish, desk)
    if isinstance(product, Picture):
        sheet = replace(product.sheet, notes=(*notes, *product.sheet.notes))
        return replace(product, sheet=sheet)
    return replace(product, notes=(*notes, *product.notes))


def _recorded_sheet(name: str, wish: Wish, desk: Desk, command: str) -> Sheet:
    """The numbers of a figure of single tasks, without its picture."""
    kept = read_json(desk.records / f"{stem(name, wish)}.json")
    if not kept:
        raise not_recorded(name, wish, desk.records)
    panels = asked_spaces(wish) if name == "figure3" else ()
    if name == "figure6":
        needs_ugda(name, wish)
    kept["rows"] = [row for row in kept["rows"] if not panels or row["panel"] in panels]
    return Sheet(name=name, command=command, **{field: kept[field] for field in _SHEET})


def recorded_notes(name: str, wish: Wish, desk: Desk) -> list[str]:
    """Where recorded results come from, and which of them are out of date."""
    rows = read(name, wish, desk.records)
    kept = read_json(desk.records / f"{stem(name, wish)}.json")
    if not rows and not kept:
        return []
    runs = read_json(desk.records / RUNS)
    sheets = [kept] if kept else []
    days = sorted(item["computed"] for item in (*rows, *sheets))
    used = [runs[key] for key in dict.fromkeys(row["run"] for row in rows) if key in runs]
    used += sheets
    devices = kinds_named(run["device"] for run in used)
    by = sorted({run["command"] for run in used})
    out = [
        f"recorded results, computed {' to '.join(dict.fromkeys((days[0], days[-1])))} on "
        f"{' and '.join(devices)} by {' and '.join(repr(text) for text in by)}; 'fewview reproduce "
        f"{' '.join(filter(None, (name, options_of(wish))))} --compute' computes here"
    ]
    if name in PICTURED:
        out.append(
            f"{'the maps (c) show' if name == 'figure4' else 'the picture shows'} single samples "
            f"and {'are' if name == 'figure4' else 'is'} not recorded; --compute draws "
            f"{'them' if name == 'figure4' else 'it'} and needs the data: {PICTURED[name]}"
        )
    out += [f"out of date: {text}" for text in stale(rows, desk.records)]
    return out


# ---------------------------------------------------------------------- recording


def record_rows(name: str, wish: Wish, desk: Desk) -> str:
    """Record what the store has of a name; say what was done."""
    if name in MADE_OF:
        return f"{name}: made of what {', '.join(MADE_OF[name])} have recorded"
    return f"{name}: no grid" if name in ("figure3", "figure6") else record(name, wish, desk)


def record_sheet(name: str, product: Sheet | Picture, wish: Wish, desk: Desk) -> str:
    """Record the numbers of a figure of single tasks that was just made, and the loss of figure 4.

    Of other products there is nothing to record here.
    """
    if name not in PICTURED or not isinstance(product, Picture):
        return ""
    sheet = product.sheet
    kept = {field: getattr(sheet, field) for field in _SHEET}
    kept["rows"] = [
        {column: _rounded(row.get(column)) for column in sheet.columns if column in row}
        for row in sheet.rows
        if row.get("part") != "a"  # accuracies of a grid are among the rows of the file
    ]
    sets = {short: dataset for dataset, short in SHORT.items()}
    losses: dict[str, list[list[float]]] = {}
    for point in product.points:
        if point.get("part") == "b":
            tasks = [value for column, value in point.items() if column.startswith("task_")]
            losses.setdefault(sets[point["dataset"]], []).append([float(f"{v:.6g}") for v in tasks])
    if losses:
        kept["losses"] = losses
    (device, *_) = kinds_of("cpu" if wish.device == "cpu" else "auto")
    today = datetime.now(UTC).date().isoformat()
    kept |= {"command": command_of(wish, device), "device": device, "computed": today}
    write_json(desk.records / f"{stem(name, wish)}.json", kept)
    return f"{name}: {len(kept['rows'])} rows of its sheet recorded"


def _rounded(value: object) -> object:
    return float(f"{value:.6g}") if isinstance(value, float) else value
