"""The paper's tables beside ours: ours, paper, difference, inside our range over class splits?

Here are the nine tables and what likely class splits give (`_likely_splits`); figures are drawn
elsewhere, sentences judged elsewhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import ceil
from statistics import fmean

from fewview.datasets._catalogue import get_spec, names
from fewview.datasets._splits import class_split
from fewview.ground._errors import FewviewError
from fewview.ground._rows import Row
from fewview.paper._compute import (
    Desk,
    Gathered,
    gather,
    gather_all,
    protocol_line,
    shown,
    versions_line,
)
from fewview.paper._likely_splits import (
    SHARE,
    Key,
    Likely,
    following_parts,
    numbers_of,
    paper_numbers,
    weigh,
)
from fewview.paper._printed import ABLATION, METHODS, TABLES, TRAINED, PaperTable, Printed, printed
from fewview.paper._recorded import options_of
from fewview.paper._sheets import Sheet
from fewview.paper._studies import (
    CANDIDATES,
    WEIGHING,
    Wish,
    data_of,
    has_data,
    parts_of,
    reachable,
)

COLUMNS = (
    "dataset", "method", "eta", "ours", "se", "likely", "paper", "paper_se", "difference",
    "range_low", "range_high", "inside", "splits", "episodes",
)  # fmt: skip
NOT_AVAILABLE = "not available"
UNREACHABLE = "unreachable"


def make_table(name: str, wish: Wish, desk: Desk, command: str) -> Sheet:
    """Compute (or look up) one of the nine tables and set it beside the paper's.

    Where the data are absent, or nothing is recorded, ours stays empty and a note says what to do.
    """
    notes = [] if has_data(name, wish) else [how_to_get(name, wish)]
    gathered: Sequence[Gathered] = ()
    if desk.recorded:
        try:
            gathered, notes = gather_all(name, wish, desk), []
        except FewviewError as error:
            if options_of(wish) or wish.only:  # the paper's numbers were not what was asked for
                raise
            notes = [str(error), *notes]
    elif not notes:
        gathered = shown(name, gather_all(name, wish, desk), wish, desk)
    likely = likely_means(name, wish, desk) if gathered else {}
    return compare(TABLES[name], gathered, wish, command, notes, likely)


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
    likely: Mapping[Key, float] | None = None,
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
                place = {"dataset": here, "method": method, "eta": eta}
                rows.append(ours | theirs | place | {"likely": (likely or {}).get((method, eta))})
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


def likely_means(name: str, wish: Wish, desk: Desk) -> dict[Key, float]:
    """What methods give on the likely class splits of a table, by weight, as far as it is known.

    Nothing is computed here: `fewview reproduce splits` does that.
    """
    if name not in CANDIDATES or wish.features is not None:
        return {}
    look = replace(desk, compute=False)
    if desk.recorded:
        every = _known("splits", replace(wish, only=()), look)
        found = [item for item in every if item.part.tag == (name,)]
    else:
        found = [gather(part, look) for part in parts_of("splits", wish) if part.tag == (name,)]
        found += [gather(part, look) for part in following_parts("splits", wish, found)]
    likely = weigh(found[0], paper_numbers(name)) if found else None
    if likely is None:
        return {}
    moments = {key: likely.moments(numbers_of(found, *key)) for key in paper_numbers(name)}
    return {key: triple[0] for key, triple in moments.items() if triple is not None}


def _known(name: str, wish: Wish, desk: Desk) -> list[Gathered]:
    """What is stored or recorded of a name; nothing where nothing is recorded."""
    try:
        return gather_all(name, wish, replace(desk, compute=False))
    except FewviewError:
        if desk.recorded:
            return []
        raise


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
    if here in names() and get_spec(here).same_as_paper == "stand-in":
        spec = get_spec(here)
        out.append(
            f"ours runs on the stand-in {spec.name} ({spec.note}): {spec.n_views} views instead "
            "of three, so digits cannot be compared; give your own features with --features"
        )
    elif here in names() and get_spec(here).same_as_paper == "recomputed":
        out.append(
            f"features of {here} are not the paper's ({get_spec(here).note}), so its numbers are a "
            "guide to ours and no more"
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
    if rounded := dict.fromkeys(label for item in gathered for label in item.rounded):
        out.append(f"{', '.join(rounded)}: factors of float32 products were rounded to TF32")
    if {"CPM", "CPM-GAN"} <= computed:
        out.append(
            "CPM-GAN has the numbers of CPM: gaps are filled as the paper says, so no view lacks "
            "and its discriminators have nothing to judge (docs/trained.md)"
        )
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
        return f"one class split, so there is no range over class splits; {mean}"
    return (
        f"the paper's number lies inside our range over class splits in {sum(judged)} of "
        f"{len(judged)} cells; {mean}"
    )


# ---------------------------------------------------------------------- likely class splits


LISTED = 10  # likely splits that are listed one by one, for the rows that weigh and for UGDA


def make_splits(wish: Wish, desk: Desk, command: str) -> Sheet:
    """Weigh class splits by the paper's own simple rows; set what all methods give there beside."""
    gathered = gather_all("splits", wish, desk)
    rows: list[Row] = []
    summary = []
    for first in gathered:
        (name,) = first.part.tag
        likely = weigh(first, paper_numbers(name)) if first.part.role == "candidates" else None
        if likely is None:
            continue
        found = [item for item in gathered if item.part.tag == (name,)]
        # The tables' class splits as far as they are known; the tables compute them.
        usual = _known(name, wish, desk)
        (dataset,) = first.part.grid.datasets
        for method in METHODS:
            for row in _split_rows(name, str(dataset), method, likely, found, usual):
                rows.append({"dataset": dataset, "method": method} | row)
        summary.append(_judge_splits(name, likely, found, usual))
    if not rows:
        raise FewviewError(
            "no class split has been weighed: of the methods asked for nothing is recorded or "
            "stored, or no data set is here; run 'fewview reproduce splits --compute', and see "
            "'fewview data list'"
        )
    etas = dict.fromkeys(f"{eta:g}" for eta in TABLES["cub"].etas)
    return Sheet(
        name="splits",
        title="Class splits that the paper may have used, and what methods give on them",
        columns=("dataset", "method", "class_splits", "weight", *etas),
        rows=rows,
        protocol=protocol_line(gathered, wish),
        versions=versions_line(gathered),
        command=command,
        notes=(
            f"weights: likelihood of each class split given the paper's rows of "
            f"{' and '.join(WEIGHING)} at all rates, and of nothing else; likely splits hold "
            f"{SHARE:.0%} of the weight, or are the heaviest ones",
            "rows: the paper; likely: mean over likely splits by weight, with the weight that was "
            "run; spread: deviation over them; mean of N: over N class splits; the heaviest "
            "splits by number and novel classes",
        ),
        summary=summary,
    )


def _split_rows(
    name: str,
    dataset: str,
    method: str,
    likely: Likely,
    found: Sequence[Gathered],
    usual: Sequence[Gathered],
) -> Iterator[Row]:
    """The rows of one method: paper, likely splits, all splits, and single splits."""
    etas = TABLES[name].etas
    paper = paper_numbers(name)
    yield {"class_splits": "paper"} | {f"{eta:g}": paper[method, eta].accuracy for eta in etas}
    numbers = {eta: numbers_of(found, method, eta) for eta in etas}
    moments = {eta: likely.moments(numbers[eta]) for eta in etas}
    known = {eta: triple for eta, triple in moments.items() if triple is not None}
    if known:
        held = {"weight": min(triple[2] for triple in known.values())}
        yield {"class_splits": "likely"} | held | {f"{e:g}": t[0] for e, t in known.items()}
        if any(len(likely.top.keys() & numbers[eta].keys()) > 1 for eta in etas):
            yield {"class_splits": "spread"} | {f"{e:g}": t[1] for e, t in known.items()}
    # All candidates where they were run, else the class splits of the table.
    wide = numbers if method in WEIGHING else {e: _whole(usual, method, e) for e in etas}
    # Not sum, which adds otherwise from Python 3.12 on: a mean may lie between two printed ones.
    means = {f"{e:g}": fmean(row.values()) for e, row in wide.items() if row}
    if means:
        counts = [len(row) for row in wide.values() if row]
        several = " to ".join(map(str, dict.fromkeys((min(counts), max(counts)))))
        yield {"class_splits": f"mean of {several}"} | means
    if method in (*WEIGHING, "UGDA"):
        for split in [s for s in likely.top if any(s in row for row in numbers.values())][:LISTED]:
            novel = " ".join(map(str, class_split(dataset, split).novel))
            head = {"class_splits": f"split {split}: {novel}", "weight": likely.weights[split]}
            yield head | {f"{e:g}": row.get(split) for e, row in numbers.items()}


def _whole(usual: Sequence[Gathered], method: str, eta: float) -> dict[int, float]:
    """Accuracies on the class splits of a table, or none while some are missing."""
    numbers = numbers_of(usual, method, eta)
    # Recorded rows with fewer class splits than others are a part of their own.
    expected = sum(
        item.part.n_splits
        for item in usual
        if method in item.part.methods and item.row(item.part.methods[method], eta)
    )
    return numbers if len(numbers) == expected else {}


def _judge_splits(
    name: str, likely: Likely, found: Sequence[Gathered], usual: Sequence[Gathered]
) -> str:
    """How far the likely splits go, and how far from the paper UGDA is with and without them."""
    gaps: dict[str, list[float]] = {"class splits": [], "likely splits": []}
    for (method, eta), number in paper_numbers(name).items():
        if "UGDA" not in method:
            continue
        moments = likely.moments(numbers_of(found, method, eta))
        if moments is not None:
            gaps["likely splits"].append(moments[0] - number.accuracy)
        if usually := _whole(usual, method, eta):
            gaps["class splits"].append(sum(usually.values()) / len(usually) - number.accuracy)
    told = [
        f"{sum(values) / len(values):+.1f} over {where} ({len(values)} cells)"
        for where, values in gaps.items()
        if values
    ]
    ours = f"; UGDA and its combinations minus the paper: {', '.join(told)}" if told else ""
    return (
        f"{name}: {len(likely.weights)} class splits weighed, {len(likely.top)} likely ones hold "
        f"{sum(likely.top.values()):.2f} of the weight; the heaviest is chi-squared "
        f"{likely.distance:.1f} for {likely.n_numbers} numbers from the paper (p "
        f"{likely.p_value:.2g}){ours}"
    )
