"""The paper's tables beside ours: ours, paper, difference, inside our range over class splits?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from fewview.datasets._catalogue import get_spec, names
from fewview.ground._rows import Row
from fewview.paper._compute import Desk, Gathered, gather
from fewview.paper._printed import ABLATION, METHODS, TABLES, TRAINED, PaperTable, printed
from fewview.paper._sheets import Sheet, versions_line
from fewview.paper._studies import (
    Wish,
    ablation_method,
    data_of,
    has_data,
    is_stand_in,
    parts_of,
    reachable,
    typed,
)

COLUMNS = (
    "dataset", "method", "eta", "ours", "se", "paper", "paper_se", "difference", "range_low",
    "range_high", "inside", "splits", "episodes",
)  # fmt: skip
NOT_AVAILABLE = "not available"
UNREACHABLE = "unreachable"


@dataclass(frozen=True)
class Reproduced:
    """A table of the paper and our results for it.

    Attributes:
        table: what the paper prints.
        sheet: the comparison.
        gathered: the results behind it.
    """

    table: PaperTable
    sheet: Sheet
    gathered: tuple[Gathered, ...]


def make_table(name: str, wish: Wish, desk: Desk, command: str) -> Reproduced:
    """Compute (or look up) one of the nine tables and set it beside the paper's.

    Args:
        name: one of `paper.TABLES`.
        wish: how to run it.
        desk: where results live.
        command: what was typed, for the record.

    Returns:
        The comparison. Where the data are absent, ours stays empty and a note says how to get
        them.
    """
    table = TABLES[name]
    gathered: tuple[Gathered, ...] = ()
    notes: list[str] = []
    if has_data(name, wish):
        gathered = tuple(gather(part, desk) for part in parts_of(name, wish))
    else:
        notes.append(how_to_get(name, wish))
    sheet = compare(table, gathered, wish, command, notes)
    return Reproduced(table, sheet, gathered)


def how_to_get(name: str, wish: Wish) -> str:
    """Say which data a table needs and how to get them.

    Example:
        >>> how_to_get("animal", Wish()).startswith("data set 'animal' is not here. Get the MATLAB")
        True
    """
    dataset = data_of(name, wish) if name != "ablation" else "caltech102"
    if dataset not in names():
        return f"{dataset}: no such file"
    return (
        f"data set {dataset!r} is not here. {get_spec(dataset).how_to_get}. Put the file into the "
        "folder that --data-dir or $FEWVIEW_DATA names and run this command again"
    )


def compare(
    table: PaperTable,
    gathered: Sequence[Gathered],
    wish: Wish,
    command: str,
    notes: Sequence[str] = (),
) -> Sheet:
    """Set our results beside the paper's table.

    Args:
        table: of the paper.
        gathered: our results; whatever is not among them is shown as not available.
        wish: how they were run.
        command: what was typed.
        notes: to be told above the table.
    """
    remarks = list(notes)
    ablation = table.name == "ablation"
    if not ablation and is_stand_in(table.name, wish):
        spec = get_spec(data_of(table.name, wish))
        remarks.append(
            f"ours runs on the stand-in {spec.name} ({spec.note}): {spec.n_views} views instead "
            "of three, so digits cannot be compared; give your own features with --features"
        )
    if table.name == "ablation":
        methods = {row: ablation_method(row) for row in ABLATION}
        pairs = [(d, d, row) for d in table.datasets.values() for row in ABLATION]
    else:
        (reference,) = table.datasets.values()
        here = data_of(table.name, wish)
        methods = {row: typed(row, here, wish.preset) for row in METHODS}
        pairs = [(reference, here, row) for row in METHODS]
    rows = []
    for reference, here, method in pairs:
        views = get_spec(here).n_views if here in names() else _views(gathered)
        allowed = reachable(table.etas, views)
        for eta in table.etas:
            row = _find(gathered, here, methods[method], eta)
            rows.append(_line(table, reference, here, method, eta, row, eta in allowed))
    if gathered:
        computed = {row["method"] for row in rows if isinstance(row["ours"], float)}
        absent = [m for m in dict.fromkeys(row["method"] for row in rows) if m not in computed]
        if absent:
            remarks.append(f"no results of {', '.join(absent)}")
        broken = Counter((c.method, why) for part in gathered for c, why in part.failures)
        remarks += [f"{count} cells of {m} failed: {why}" for (m, why), count in broken.items()]
    if any(isinstance(row["ours"], float) and row["method"] in TRAINED for row in rows):
        remarks.append(f"{', '.join(TRAINED)} train networks; preset {wish.preset}")
    if any(row["ours"] == UNREACHABLE for row in rows):
        remarks.append(
            "unreachable: every sample keeps at least one view, so with two views the largest "
            "missing rate is 0.5"
        )
    stored = [result.versions for part in gathered for result in part.results.values()]
    return Sheet(
        name=table.name,
        title=f"{table.label}: {table.title}",
        columns=COLUMNS,
        rows=tuple(rows),
        protocol=protocol(gathered, wish),
        versions=versions_line(stored),
        command=command,
        notes=tuple(remarks),
        summary=(summarise(rows),),
    )


def _views(gathered: Sequence[Gathered]) -> int:
    """Views of a user's own data: as many as let the rates that were run be reached."""
    highest = max((cell.eta for part in gathered for cell in part.cells), default=0.5)
    views = 2
    while 1 - 1 / views < highest - 1e-9:
        views += 1
    return views


def _find(gathered: Sequence[Gathered], dataset: str, method: str, eta: float) -> Row | None:
    for part in gathered:
        if dataset in part.part.grid.datasets and method in part.part.grid.methods:
            row = part.row(method, eta)
            if row is not None:
                return row
    return None


def _line(
    table: PaperTable,
    reference: str,
    here: str,
    method: str,
    eta: float,
    row: Row | None,
    possible: bool,
) -> Row:
    number = printed().get((table.name, reference, method, eta))
    out: Row = {
        "dataset": here,
        "method": method,
        "eta": eta,
        "ours": (UNREACHABLE if not possible else NOT_AVAILABLE) if row is None else None,
        "paper": None if number is None else number.accuracy,
        "paper_se": None if number is None else number.standard_error,
    }
    if row is None:
        return out
    out |= {
        "ours": row["accuracy"],
        "se": row["standard_error"],
        "range_low": row["split_low"],
        "range_high": row["split_high"],
        "splits": row["n_splits"],
        "episodes": row["n_episodes"],
    }
    if number is not None:
        out["difference"] = row["accuracy"] - number.accuracy
        if row["split_low"] is not None:
            # Compared as printed: a bound equal to two decimals is inside.
            low, high = round(row["split_low"], 2), round(row["split_high"], 2)
            out["inside"] = low <= number.accuracy <= high
    return out


def protocol(gathered: Sequence[Gathered], wish: Wish) -> str:
    """Describe how results were computed, from the cells themselves."""
    if not gathered:
        return "nothing was run"
    shapes: dict[str, list[str]] = {}
    tasks: dict[str, list[str]] = {}
    sets = {part.cells[0].dataset for part in gathered if part.cells}
    for part in gathered:
        for cell in part.cells[:1]:
            grid = part.part.grid
            kind = "repetitions of the one class split" if cell.fixed else "class splits"
            text = f"{grid.splits} {kind} x {grid.episodes} episodes"
            # Several sets are told apart by their names, one set by the methods run on it.
            names_here = [cell.dataset] if len(sets) > 1 else grid.methods
            shapes.setdefault(text, []).extend(m.partition(":")[0] for m in names_here)
            task = f"{cell.way}-way {cell.shot}-shot, {cell.queries} queries per class"
            tasks.setdefault(task, []).append(cell.dataset)
    counts, shape = (_listed(found) for found in (shapes, tasks))
    devices = sorted({d for part in gathered for d in part.devices}) or ["none"]
    return (
        f"{'quick: ' if wish.quick else ''}{counts}; {shape}; scaling and padding per method as in "
        f"the paper; device {' and '.join(devices)}"
    )


def _listed(found: dict[str, list[str]]) -> str:
    if len(found) == 1:
        return next(iter(found))
    return "; ".join(f"{text} for {', '.join(dict.fromkeys(m))}" for text, m in found.items())


def summarise(rows: Sequence[Row]) -> str:
    """Count cells where the paper's number lies inside our range over class splits.

    Example:
        >>> summarise([{"inside": True, "difference": -1.0}, {"inside": False, "difference": 3.0}])
        "the paper's number lies inside our range over class splits in 1 of 2 cells; mean ..."
    """
    judged = [row["inside"] for row in rows if row.get("inside") is not None]
    gaps = [abs(row["difference"]) for row in rows if row.get("difference") is not None]
    if not gaps:
        return "nothing to compare"
    mean = f"mean absolute difference {sum(gaps) / len(gaps):.2f} points over {len(gaps)} cells"
    if not judged:
        return f"one fixed class split, so there is no range over class splits; {mean}"
    return (
        f"the paper's number lies inside our range over class splits in {sum(judged)} of "
        f"{len(judged)} cells; {mean}"
    )
