"""`python -m reproduction`: run, show, claims, page."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import pandas as pd

from fewview import FewviewError
from fewview.evaluate import PlainProgress
from reproduction import claims, figures, page, records, run, tables
from reproduction.likely_splits import likely_parts, weighed

HELP = """examples:
  python -m reproduction show cub             a table: ours beside the paper's, from records
  python -m reproduction show figure5 --output figure5.pdf
  python -m reproduction claims               the sentences of Section 5, judged
  python -m reproduction run cub --quick      compute a table in minutes, compare with the records
  python -m reproduction run --check 5        compute five recorded rows again
  python -m reproduction run cub --device cuda --record    the whole protocol, into the records
  python -m reproduction page --check         is docs/reproduction.md up to date?
studies: tables cub, handwritten, caltech102, scene15, animal, orl, tieredimagenet, birds, ablation;
figure3 to figure7; candidates (class splits that the paper may have used); likely/cub and others
(the rows of a table on the likely class splits)"""
# Command -> what it does, and its options: (names, help, more).
COMMANDS: dict[str, tuple[str, list[tuple[str, str, dict[str, Any]]]]] = {
    "run": ("Compute studies; what is in the store is not computed again.", [
        ("names", "studies, see below", {"nargs": "*"}),
        ("--quick", "one class split, no networks and no solver=adam", {"action": "store_true"}),
        ("--only", "some rows, for instance UGDA,Proto", {"default": ""}),
        ("--check", "compute so many recorded rows again", {"type": int, "default": 0}),
        ("--seed", "of the rows that --check draws", {"type": int, "default": 0}),
        ("--record", "put the rows into the records", {"action": "store_true"}),
        ("--store", "file of results (%(default)s)", {"default": "reproduction.sqlite"}),
        ("--device", "cpu (default), cuda or auto", {"default": "cpu"}),
        ("--jobs", "number of processes", {"type": int, "default": 1}),
        ("--output", "file to draw figure 3, 4 or 6 into: .pdf, .svg, .png", {}),
    ]),
    "show": ("Show a table or figure from the records.", [
        ("name", "a study, see below", {}),
        ("--format", "text by default", {"choices": tables.FORMATS, "default": "text"}),
        ("--output", "file to draw figure 4, 5 or 7 into: .pdf, .svg, .png", {}),
    ]),
    "claims": ("Judge what the paper says by the records.", [
        ("--format", "text by default", {"choices": tables.FORMATS, "default": "text"}),
    ]),
    "page": ("Write docs/reproduction.md from the records.", [
        ("--check", "only say whether it is up to date", {"action": "store_true"}),
    ]),
}  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; 0 done, 1 something differs, 2 wrong input, 130 stopped."""
    shape: Any = {"epilog": HELP, "formatter_class": argparse.RawDescriptionHelpFormatter}
    parser = argparse.ArgumentParser("python -m reproduction", description=__doc__, **shape)
    commands = parser.add_subparsers(dest="command", required=True, metavar="run|show|claims|page")
    for name, (text, options) in COMMANDS.items():
        command = commands.add_parser(name, help=text, description=text, **shape)
        for option, words, more in options:
            command.add_argument(option, help=words, **more)
    chosen = parser.parse_args(arguments)
    try:
        return {"run": _run, "show": _show, "claims": _claims, "page": _page}[chosen.command](
            chosen
        )
    except FewviewError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped; the same command goes on where it was", file=sys.stderr)
        return 130


def _run(options: argparse.Namespace) -> int:
    """Compute studies, and say whether they agree with the records."""
    progress, agree = PlainProgress(), True
    if not (options.check or options.names) or (options.record and options.quick):
        raise FewviewError(
            "give a study or --check N, and --record without --quick; see run --help"
        )
    for table in _compared(options, records.read_results(), progress):
        print(tables.written(table))
        agree &= bool((table["agrees"] == "yes").all())
    return int(not agree)


def _compared(
    options: argparse.Namespace, results: pd.DataFrame, progress: PlainProgress
) -> Iterator[pd.DataFrame]:
    """Everything that is asked for, computed and set beside the records."""
    if options.check:
        yield run.check(results, options.check, options.seed, options.device, progress)
    for name in options.names:
        study = run.find_study(name.removeprefix("likely/"))
        if name in figures.SINGLE and not options.quick:
            made, figure = figures.compute(study, progress)
            print(tables.written(pd.DataFrame(made["rows"], dtype=object)))
            if options.output:
                figure.savefig(options.output)
            if options.record:
                now = {"commit": run.current_commit(), "date": f"{datetime.now(UTC):%Y-%m-%d}"}
                records.write_json("tasks", {name: now | made})
        parts = study.planned(options.quick, [row for row in options.only.split(",") if row])
        if name.startswith("likely/"):
            printed = tables.printed_in(records.read_paper(), study)
            parts = list(likely_parts(study, weighed(study.name, results, printed)[0]))
        if parts:
            rows, by = run.run(parts, options.store, options.device, options.jobs, progress)
            if options.record:
                records.write_results(rows, by)
            yield run.beside_record(rows, results)


def _show(options: argparse.Namespace) -> int:
    """Print what is recorded of a study, or draw it."""
    study, results = run.find_study(options.name), records.read_results()
    some = results[results["study"].str.partition("/")[0] == study.name]
    told = [study.title, *([records.origin(some)] if len(some) else [])]
    kept = records.read_json("tasks").get(study.name, {})
    shown = []
    if "table" in study.options:
        shown.append(tables.beside_paper(results, records.read_paper(), study))
        told += [*tables.notes(shown[0]), tables.summarise(shown[0])]
    elif len(some):
        shown.append(figures.numbers(study, some))
    if kept:
        shown.append(pd.DataFrame(kept["rows"], dtype=object))
        told.append(f"single tasks: computed {kept['date']}, recorded in commit {kept['commit']}")
    if options.output:
        figures.draw(study, shown[0], kept.get("losses", {})).savefig(options.output)
    for table in shown:
        print(tables.written(table, options.format))
    print("\n".join(told), file=sys.stdout if options.format == "text" else sys.stderr)
    return 0


def _claims(options: argparse.Namespace) -> int:
    """Print all claims with their verdicts."""
    found = claims.recorded_verdicts().astype(object)
    print(tables.written(found, options.format))
    if options.format == "text":
        print(f"{claims.summary()} On stand-in features: {claims.counts(found, stand_in=True)}")
    return 0


def _page(options: argparse.Namespace) -> int:
    """Write the page, or say whether it is up to date."""
    text = page.build()
    if not options.check:
        page.PAGE.write_text(text, encoding="utf-8")
        print(page.PAGE)
    elif not page.PAGE.is_file() or page.PAGE.read_text(encoding="utf-8") != text:
        raise FewviewError(f"{page.PAGE} is not up to date: python -m reproduction page")
    return 0


if __name__ == "__main__":
    sys.exit(main())
