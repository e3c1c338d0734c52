"""`fewview results` and `fewview report`: look at a store, filter, compare, export, one page."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from fewview.cli._declared import DataDir, StoreFile, Wide
from fewview.cli._text import leads_to, print_table, say, shows

if TYPE_CHECKING:
    from fewview.ground._rows import Row
    from fewview.results._cells import Result

GROUP_COLUMNS = (
    "dataset", "base", "method", "method_version", "tuned", "scaling", "padding", "way", "shot",
    "queries", "query_counts", "missing", "eta", "seed", "dtype", "device", "accuracy",
    "standard_error", "ci_low", "ci_high", "split_low", "split_high", "n_splits", "n_episodes",
    "balanced_accuracy", "log_loss", "brier", "ece", "seconds", "seconds_base", "status",
)  # fmt: skip
CELL_COLUMNS = (
    "dataset", "base", "split", "novel", "method", "tune", "chosen", "scaling", "padding",
    "parameters", "method_version", "sampler_version", "way", "shot", "queries", "query_counts",
    "missing", "eta", "seed", "dtype", "device", "start", "stop", "accuracy",
    "balanced_accuracy", "log_loss", "brier", "ece", "seconds", "seconds_base", "created", "host",
    "status", "hash",
)  # fmt: skip
EPISODE_COLUMNS = (
    "dataset", "split", "novel", "method", "eta", "episode", "accuracy", "balanced_accuracy",
    "log_loss", "brier", "status", "hash",
)  # fmt: skip
COMPARE_COLUMNS = (
    "dataset", "eta", "one", "two", "difference", "low", "high", "wins", "losses", "n_splits",
    "p_t", "p_wilcoxon", "p_t_holm", "p_wilcoxon_holm", "test", "p", "verdict",
)  # fmt: skip
# What fits on a page: Markdown tables have these unless --columns says otherwise.
PAGE_COLUMNS = (
    "dataset", "method", "eta", "accuracy", "standard_error", "ci_low", "ci_high", "split_low",
    "split_high", "n_episodes",
)  # fmt: skip
# What tells groups apart; terminals and pages show those that differ.
KEYS = (
    "base", "method_version", "tuned", "scaling", "padding", "way", "shot", "queries",
    "query_counts", "missing", "seed", "dtype", "device", "n_splits", "status",
)  # fmt: skip
ONE_SPLIT = "no 95 % interval where there is one class split: it says nothing about others"
LEVELS = {"group": GROUP_COLUMNS, "cell": CELL_COLUMNS, "episode": EPISODE_COLUMNS}


@leads_to("fewview report {store} -o report.html")
@shows(
    "fewview results", "everything in the default store",
    "fewview results demo/results.sqlite --where 'eta<=0.3' --where 'method=proto|ptmap'",
    "some of it",
    "fewview results --where dataset=digits --format csv --output out.csv", "export",
    "fewview results --level cell --format json", "one row per class split",
    "fewview results --where eta=0.5 --compare", "paired tests and average ranks",
    "fewview results --diagram ranks.svg", "average ranks, and who is not told apart from the best",
    "fewview results demo/results.sqlite --check", "is every stored result what was written?",
)  # fmt: skip
def results(
    store: StoreFile = None,
    where: Annotated[
        list[str] | None,
        typer.Option(
            help="Condition such as 'dataset=digits', 'eta<=0.3', 'method~ugda' (contains), "
            "'method=proto|ptmap' (one of), 'status=current'. May be given several times.",
            show_default=False,
        ),
    ] = None,
    format: Annotated[
        str, typer.Option(help="table, csv, json, parquet, latex or markdown.")
    ] = "table",
    level: Annotated[
        str,
        typer.Option(help="One row per 'group' (over class splits), per 'cell' or per 'episode'."),
    ] = "group",
    columns: Annotated[
        str | None,
        typer.Option(help="Columns, separated by commas. Default: all (Markdown: some)."),
    ] = None,
    output: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write there instead of the terminal.")
    ] = None,
    compare: Annotated[
        bool,
        typer.Option(
            "--compare",
            help="Compare the best method with the others on the same splits, rank all.",
        ),
    ] = False,
    diagram: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Draw average ranks (.png, .svg or .pdf); bars join the best and those not told "
            "apart from it (Wilcoxon, Holm).",
        ),
    ] = None,
    wide: Wide = False,
    check: Annotated[
        bool,
        typer.Option("--check", help="List what is damaged in the store; status 1 if anything is."),
    ] = False,
    repair: Annotated[
        bool,
        typer.Option(
            "--repair",
            help="Drop what is damaged, so that it is computed again; the file of before is kept.",
        ),
    ] = False,
) -> None:
    """Show what a store holds; results of older method versions are marked stale.

    A terminal shows the columns that it has room for, and which method to use last; pipes and files
    get everything. LaTeX is one table per data set: methods down, missing rates across, the best
    bold, those not told apart from it underlined; with --columns, one line per row.
    """
    from fewview.errors import FewviewError
    from fewview.evaluate._options import store_path
    from fewview.ground._rows import FORMATS, render, save
    from fewview.ground._whole_files import replacing
    from fewview.report._papers import latex_tables
    from fewview.results._store import Store

    if check or repair:
        return _mend(store_path(store), repair)
    if format not in FORMATS:
        raise FewviewError(f"--format {format}: use one of {', '.join(FORMATS)}")
    if level not in LEVELS:
        raise FewviewError(f"--level {level}: use one of {', '.join(LEVELS)}")
    if format == "parquet" and output is None:
        raise FewviewError("parquet is not text; give the name of a file with --output")
    conditions = where or []
    wanted = [text for text in conditions if not text.strip().startswith("status")]
    with Store(store_path(store), write=False) as reader:
        found = reader.select(wanted)
    if not found:
        of_these = f" that meets {' and '.join(wanted)}" if wanted else ""
        raise FewviewError(
            f"{store_path(store)}: no result{of_these}; 'fewview bench --store ...' adds results"
        )
    found, status = _by_status(found, [text for text in conditions if text not in wanted])
    if compare or diagram:
        current = [result for result in found if status[result.cell.hash] != "stale"]
        from fewview.cli._bar import working

        with working("comparing"):
            rows, usual = _compare(current, diagram, quiet=not compare)
        if not compare:
            return
    else:
        rows, usual = _rows(found, status, level), LEVELS[level]
        if level == "group" and format == "markdown":
            usual = (*PAGE_COLUMNS[:2], *_differing(rows), *PAGE_COLUMNS[2:])
    shown = _chosen(columns, rows, usual)
    pivot = format == "latex" and level == "group" and not compare and columns is None
    current = [result for result in found if status[result.cell.hash] != "stale"]
    if output is not None:
        if pivot:
            with replacing(output) as temporary:
                temporary.write_text(latex_tables(current or found) + "\n", encoding="utf-8")
        else:
            save(rows, shown, format, output)
        say(f"written: {output} ({len(rows)} rows)")
    elif pivot:
        print(latex_tables(current or found))
    elif format == "table" and sys.stdout.isatty() and shown == GROUP_COLUMNS and not wide:
        _print_groups(rows)
    elif format == "table":
        _print(rows, shown, wide)
    else:
        print(render(rows, shown, format))
    if format == "table" and current and (compare or sys.stdout.isatty()):
        _answer(current)
    if any(row.get("ci_low", 0) is None for row in rows):
        say(ONE_SPLIT)
    n_stale = sum(value == "stale" for value in status.values())
    if n_stale:
        note = f"{n_stale} cell(s) are stale: stored by an older version; 'bench' recomputes them"
        say(note)


def _mend(path: str, repair: bool) -> None:
    """List what is damaged, and drop it."""
    from fewview.results._repairing import check_store, repair_store

    state = repair_store(path) if repair else check_store(path)
    for damage in state.damages:
        print(f"damaged: {damage.what}: {damage.why}")
    if state.moved_to is not None:
        say(f"{path}: {state.n_intact} intact result(s) kept; the file of before: {state.moved_to}")
    elif not state.damages:
        print(f"{path}: all {state.n_intact} result(s) are intact{state.note}")
    else:
        print(f"{path}: {state.n_intact} result(s) are intact; --repair drops what is damaged")
        raise typer.Exit(1)


def _by_status(found: list[Result], conditions: list[str]) -> tuple[list[Result], dict[str, str]]:
    from fewview.errors import FewviewError
    from fewview.results._stale import statuses

    status = statuses(found)
    for condition in conditions:
        _, sign, value = condition.partition("!=" if "!=" in condition else "=")
        if not sign or value.strip() not in ("current", "stale", "unknown"):
            raise FewviewError(f"condition {condition!r}: status is current, stale or unknown")
        found = [
            result
            for result in found
            if (status[result.cell.hash] == value.strip()) == (sign == "=")
        ]
    return found, {result.cell.hash: status[result.cell.hash] for result in found}


def _rows(found: list[Result], status: dict[str, str], level: str) -> list[Row]:
    from dataclasses import asdict

    from fewview.results._metrics import PER_EPISODE
    from fewview.results._summaries import group_of, summarise_stored

    if level == "group":
        first = {group_of(result.cell): result.cell.hash for result in found}
        rows = summarise_stored(found)
        for row, key in zip(rows, dict.fromkeys(group_of(r.cell) for r in found), strict=True):
            row["status"] = status[first[key]]
        return rows
    if level == "cell":
        out = []
        for result in found:
            means = {
                name: float(getattr(result.metrics, name).mean()) * (100 if "acc" in name else 1)
                for name in PER_EPISODE
            }
            extra = {
                name: getattr(result, name)
                for name in ("seconds", "seconds_base", "chosen", "created", "host")
            }
            out.append(
                asdict(result.cell)
                | means
                | extra
                | {"ece": result.metrics.ece, "hash": result.cell.hash}
                | {"status": status[result.cell.hash]}
            )
        return out
    return [
        {
            "dataset": result.cell.dataset,
            "split": result.cell.split,
            "novel": list(result.cell.novel),
            "method": result.cell.method,
            "eta": result.cell.eta,
            "episode": result.cell.start + k,
            "status": status[result.cell.hash],
            "hash": result.cell.hash,
        }
        | {
            name: float(getattr(result.metrics, name)[k]) * (100 if "acc" in name else 1)
            for name in PER_EPISODE
        }
        for result in found
        for k in range(len(result.metrics))
    ]


def _compare(
    found: list[Result], diagram: str | None, quiet: bool
) -> tuple[list[Row], tuple[str, ...]]:
    from pathlib import Path

    from fewview.results._comparing import comparisons, rank

    rankings = rank(found)
    for number, ranked in enumerate(rankings, start=1):
        ranking, several = ranked.ranking, len(rankings) > 1
        if diagram is not None:
            from fewview.drawing._charts import rank_diagram, save_figure

            path = Path(diagram)
            path = path.with_stem(f"{path.stem}-{number}") if several else path
            for file in save_figure(rank_diagram(ranking, ranked.unit), path):
                about = f" ({ranked.title})" if several else ""
                say(f"written: {file}{about}")
        if not quiet:
            friedman = ranking.p_friedman  # not defined for two methods
            test = "" if friedman != friedman else f" (Friedman p {friedman:.2g})"
            told = f"not told apart from {ranking.best}: {', '.join(ranking.tied) or 'none'}"
            say(
                (f"{ranked.title}: " if several else "")
                + f"average ranks over {ranking.n_blocks} {ranked.unit}{test}: "
                + ", ".join(
                    f"{name} {value:.2f}"
                    for name, value in zip(ranking.names, ranking.ranks, strict=True)
                )
                + f"; {told}, by {ranking.test}"
            )
        if ranked.left_out:
            listed = ", ".join(ranked.left_out)
            say(f"not ranked, because results are lacking: {listed}")
    compared = comparisons(found)
    left_out = dict.fromkeys(name for one in compared for name in one.left_out)
    if left_out and not quiet:
        say(
            "not compared everywhere, because class splits or missing rates are lacking: "
            + ", ".join(left_out)
        )
    rows = [row for one in compared for row in one.rows()]
    return rows, COMPARE_COLUMNS


def _chosen(columns: str | None, rows: list[Row], usual: tuple[str, ...]) -> tuple[str, ...]:
    from fewview.errors import FewviewError

    if columns is None:
        return usual
    wanted = tuple(part.strip() for part in columns.split(",") if part.strip())
    known = {*usual, *(rows[0] if rows else ())}
    for name in wanted:
        if name not in known and rows:
            raise FewviewError(f"--columns: no column {name!r}; there are {', '.join(known)}")
    return wanted


def _differing(rows: list[Row]) -> list[str]:
    """What tells groups apart that have the same data set, method and missing rate."""
    from fewview.ground._rows import cell_text

    found: dict[tuple[object, ...], set[str]] = {}
    for row in rows:
        for key in KEYS:
            place = (key, row["dataset"], row["method"], row["eta"])
            found.setdefault(place, set()).add(cell_text(row.get(key)))
    apart = {place[0] for place, values in found.items() if len(values) > 1}
    if any(row.get("status") != "current" for row in rows):
        apart.add("status")
    return [key for key in KEYS if key in apart]


def _print_groups(rows: list[Row]) -> None:
    """Print groups in few columns, for a terminal: numbers with their errors in one entry."""
    from fewview.ground._rows import cell_text

    keys = _differing(rows)
    header = ["dataset", "method", *keys, "eta", "accuracy", "95 %", "splits", "log-loss", "ECE"]
    lines = []
    for row in rows:
        low, high = row["split_low"], row["split_high"]
        lines.append(
            [
                row["dataset"],
                row["method"],
                *(cell_text(row.get(key)) for key in keys),
                f"{row['eta']:.3g}",
                f"{row['accuracy']:.1f} ±{row['standard_error']:.1f}",
                "" if low is None else f"{row['ci_low']:.1f}-{row['ci_high']:.1f}",
                "" if low is None else f"{low:.0f}-{high:.0f}",
                f"{row['log_loss']:.2f}",
                f"{row['ece']:.3f}",
            ]
        )
    last = len(header)
    drop = (last - 1, last - 2, last - 3)
    print_table(header, lines, right=range(2 + len(keys), last), drop=drop, wide=False)


def _answer(found: list[Result]) -> None:
    """Say which method to use, per data set, and what it is to the others."""
    from fewview.results._comparing import VERDICTS, panels, winner

    for panel in panels(found):
        best = winner(panel)
        if best is None or best.pair is None:
            continue
        pair = best.pair
        range_ = "" if pair.low != pair.low else f" ({pair.low:+.1f} to {pair.high:+.1f})"
        say(
            f"{panel.title}: use {best.best}, {best.accuracy:.1f} %, {pair.difference:+.1f} points "
            f"over {pair.two}{range_}"
        )
        for verdict, pairs in best.groups.items():
            if pairs:
                names = ", ".join(one.two for one in pairs)
                say(f"  {VERDICTS[verdict][0].lower()}{VERDICTS[verdict][1:]}: {names}")


def _print(rows: list[Row], columns: tuple[str, ...], wide: bool) -> None:
    from fewview.ground._rows import cell_text

    def text(name: str, value: object) -> str:
        sure = name.startswith("p_") and isinstance(value, float) and value > 0.99
        return "> 0.99" if sure else cell_text(value)  # a p of 1 claims what no test says

    lines = [[text(name, row.get(name)) for name in columns] for row in rows]
    right = [
        k
        for k, name in enumerate(columns)
        if all(isinstance(row.get(name), (int, float, type(None))) for row in rows)
    ]
    # Of a comparison, both tests and their raw levels are for those who look for them.
    extra = ("p_t", "p_wilcoxon", "p_t_holm", "p_wilcoxon_holm", "test", "losses", "n_splits")
    drop = [columns.index(name) for name in extra if name in columns]
    print_table(columns, lines, right=right, drop=drop, wide=wide)


@leads_to("open {output} in a browser, or fewview advise DATA for data of your own")
@shows(
    "fewview report demo/results.sqlite -o demo/report.html", "the demonstration's store",
    "fewview report --where 'eta<=0.3' --where 'dataset=digits|scene15'", "some of the results",
    "fewview report results.sqlite --no-examples", "without reading the data again",
    "fewview report demo/results.sqlite --figures paper/", "figures and tables for a paper",
)  # fmt: skip
def report(
    store: StoreFile = None,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="The page.")
    ] = "report.html",
    where: Annotated[
        list[str] | None,
        typer.Option(
            help="Condition on results, as for 'fewview results'. May be given several times.",
            show_default=False,
        ),
    ] = None,
    title: Annotated[
        str | None, typer.Option(help="Title of the page; by default it names the data sets.")
    ] = None,
    example_episodes: Annotated[
        bool,
        typer.Option(
            "--examples/--no-examples", help="Read the data again and show example episodes."
        ),
    ] = True,
    figures: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="Write the figures there too (PDF, SVG), one and two columns wide, and tables in "
            "LaTeX.",
        ),
    ] = None,
    data_dir: DataDir = None,
) -> None:
    """Write one HTML page: which method to use, a leaderboard, curves, wrong answers, tables.

    The page needs nothing else: no network, no other files. It reads well on a phone, in print, in
    the dark and with a screen reader.
    """
    from fewview.cli._bar import working
    from fewview.evaluate._options import store_path
    from fewview.report._page import write_report

    with working("making the page"):
        page = write_report(
            store_path(store),
            output,
            where=where or (),
            title=title,
            data_dir=data_dir,
            examples=example_episodes,
            figures=figures,
            tell=lambda text: say(text),
        )
    print(f"written: {page} ({page.stat().st_size / 1e6:.1f} MB)")
