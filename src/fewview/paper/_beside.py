"""The paper's tables beside ours: ours, paper, difference, inside our range over class splits?

Here are the nine tables and nothing else; figures are drawn elsewhere, sentences judged elsewhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import ceil

from fewview.datasets._catalogue import get_spec, names
from fewview.ground._errors import FewviewError
from fewview.ground._rows import Row
from fewview.paper._compute import Desk, Gathered, gather_all, protocol_line, shown, versions_line
from fewview.paper._printed import ABLATION, METHODS, TABLES, TRAINED, PaperTable, Printed, printed
from fewview.paper._recorded import options_of
from fewview.paper._sheets import Sheet
from fewview.paper._studies import Wish, data_of, has_data, reachable

COLUMNS = (
    "dataset", "method", "eta", "ours", "se", "paper", "paper_se", "difference", "range_low",
    "range_high", "inside", "splits", "episodes",
)  # fmt: skip
NOT_AVAILABLE = "not available"
UNREACHABLE = "unreachable"


def make_table(name: str, wish: Wish, desk: Desk, command: str) -> Sheet:
    """Compute (or look up) one of the nine tables and set it beside the paper's.

    Where the data are absent, or nothing is recorded, ours stays empty and a note says what to do.
    """
    notes = [] if has_data(name, wish) else [how_to_get(name, wish)]
    if desk.recorded:
        try:
            return compare(TABLES[name], gather_all(name, wish, desk), wish, command)
        except FewviewError as error:
            if options_of(wish) or wish.only:  # the paper's numbers were not what was asked for
                raise
            return compare(TABLES[name], (), wish, command, [str(error), *notes])
    gathered = () if notes else shown(name, gather_all(name, wish, desk), wish, desk)
    return compare(TABLES[name], gathered, wish, command, notes)


def how_to_get(name: str, wish: Wish) -> str:
    """Say which data a table needs and how to get them."""
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
    """Set our results beside the paper's table; what is not there is shown as not available."""
    rows = []
    for reference in table.datasets.values():
        here = reference if table.name == "ablation" else _runs_on(table, gathered, wish)
        views = get_spec(here).n_views if here in names() else _views(gathered)
        allowed = reachable(table.etas, views)
        for method in ABLATION if table.name == "ablation" else METHODS:
            for eta in table.etas:
                row = _find(gathered, here, method, eta)
                absent = NOT_AVAILABLE if eta in allowed else UNREACHABLE
                ours = {"ours": absent} if row is None else row | {"ours": row["accuracy"]}
                theirs = _theirs(printed().get((table.name, reference, method, eta)), row)
                rows.append(ours | theirs | {"dataset": here, "method": method, "eta": eta})
    return Sheet(
        name=table.name,
        title=f"{table.label}: {table.title}",
        columns=COLUMNS,
        rows=rows,
        protocol=protocol_line(gathered, wish),
        versions=versions_line(gathered),
        command=command,
        notes=(*notes, *_remarks(table, gathered, wish, rows)),
        summary=(summarise(rows),),
    )


def _runs_on(table: PaperTable, gathered: Sequence[Gathered], wish: Wish) -> str:
    """The data set of the results, which recorded ones know without looking for data."""
    return str(gathered[0].part.grid.datasets[0]) if gathered else data_of(table.name, wish)


def _views(gathered: Sequence[Gathered]) -> int:
    """Views of a user's own data: as many as let the rates that were run be reached."""
    highest = max((cell.eta for item in gathered for cell in item.cells), default=0.5)
    return max(2, ceil(1 / (1 - highest) - 1e-6))


def _find(gathered: Sequence[Gathered], dataset: str, method: str, eta: float) -> Row | None:
    found = (
        item.row(item.part.methods[method], eta)
        for item in gathered
        if dataset in item.part.grid.datasets and method in item.part.methods
    )
    return next(filter(None, found), None)


def _theirs(number: Printed | None, row: Row | None) -> Row:
    if number is None:
        return {}
    out: Row = {"paper": number.accuracy, "paper_se": number.standard_error}
    if row is not None:
        out["difference"] = row["accuracy"] - number.accuracy
        if row["split_low"] is not None:
            # Compared as printed: a bound equal to two decimals is inside.
            low, high = round(row["split_low"], 2), round(row["split_high"], 2)
            out["inside"] = low <= number.accuracy <= high
    return out


def _remarks(
    table: PaperTable, gathered: Sequence[Gathered], wish: Wish, rows: Sequence[Row]
) -> list[str]:
    """What a reader of the table has to know."""
    out = []
    here = "" if table.name == "ablation" else _runs_on(table, gathered, wish)
    if here in names() and get_spec(here).relation == "stand-in":
        spec = get_spec(here)
        out.append(
            f"ours runs on the stand-in {spec.name} ({spec.note}): {spec.n_views} views instead "
            "of three, so digits cannot be compared; give your own features with --features"
        )
    computed = {row["method"] for row in rows if isinstance(row["ours"], float)}
    if gathered:
        absent = [m for m in dict.fromkeys(row["method"] for row in rows) if m not in computed]
        if absent:
            out.append(f"no results of {', '.join(absent)}")
        broken = Counter((c.method, why) for item in gathered for c, why in item.failures)
        out += [f"{count} cells of {m} failed: {why}" for (m, why), count in broken.items()]
    if computed & {*TRAINED}:
        sizes = {"paper": "published sizes", "fast": "smaller than published; see --preset paper"}
        out.append(f"{', '.join(TRAINED)} train networks: {sizes[wish.sizes]}")
    if any(row["ours"] == UNREACHABLE for row in rows):
        out.append(
            "unreachable: every sample keeps at least one view, so with two views the largest "
            "missing rate is 0.5"
        )
    return out


def summarise(rows: Sequence[Row]) -> str:
    """Count cells where the paper's number lies inside our range over class splits."""
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
