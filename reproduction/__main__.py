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
from reproduction import claims, figures, page, records, tables
from reproduction import run as running
from reproduction.likely_splits import likely_parts, recorded

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


def parser() -> argparse.ArgumentParser:
    """The command line."""
    shape: Any = {"epilog": HELP, "formatter_class": argparse.RawDescriptionHelpFormatter}
    out = argparse.ArgumentParser("python -m reproduction", description=__doc__, **shape)
    commands = out.add_subparsers(dest="command", required=True, metavar="run|show|claims|page")

    def add(name: str, text: str) -> Any:
        return commands.add_parser(name, help=text, description=text, **shape).add_argument

    option = add("run", "Compute studies; what is in the store is not computed again.")
    option("names", nargs="*", metavar="STUDY", help="what to compute, see below")
    option("--quick", action="store_true", help="few class splits and tasks, no networks")
    option("--only", default="", metavar="ROWS", help="some rows, for instance UGDA,Proto")
    option("--check", type=int, default=0, metavar="N", help="compute N recorded rows again")
    option("--seed", type=int, default=0, help="of the rows that --check draws")
    option("--record", action="store_true", help="put the rows into the records")
    option("--store", default="reproduction.sqlite", help="file of results (%(default)s)")
    option("--device", default="cpu", help="cpu, cuda or auto")
    option("--jobs", type=int, default=1, help="number of processes")
    option("--output", metavar="FILE", help="draw a figure of single tasks: .pdf, .svg, .png")
    option = add("show", "Show a table or figure from the records.")
    option("name", metavar="STUDY", help="what to show, see below")
    option("--format", choices=tables.FORMATS, default="text", help="(%(default)s)")
    option("--output", metavar="FILE", help="draw a figure: .pdf, .svg, .png")
    option = add("claims", "Judge what the paper says by the records.")
    option("--format", choices=tables.FORMATS, default="text", help="(%(default)s)")
    option = add("page", "Write docs/reproduction.md from the records.")
    option("--check", action="store_true", help="only say whether it is up to date")
    return out


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; 0 done, 1 something differs, 2 wrong input, 130 stopped."""
    options = parser().parse_args(arguments)
    commands = {"run": _run, "show": _show, "claims": _claims, "page": _page}
    try:
        return commands[options.command](options)
    except FewviewError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped; the same command goes on where it was", file=sys.stderr)
        return 130


def _run(options: argparse.Namespace) -> int:
    """Compute studies, and say whether they agree with the records."""
    progress, results = PlainProgress(), records.read_results()
    if not options.check and not options.names or options.record and options.quick:
        raise FewviewError(
            "give a study or --check N, and --record without --quick; see run --help"
        )
    agree = []
    for table in _compared(options, results, progress):
        print(tables.written(table))
        agree.append((table["agrees"] == "yes").all())
    return int(not all(agree))


def _compared(
    options: argparse.Namespace, results: pd.DataFrame, progress: PlainProgress
) -> Iterator[pd.DataFrame]:
    """Everything that is asked for, computed and set beside the records."""
    if options.check:
        yield running.check(results, options.check, seed=options.seed, device=options.device,
                            progress=progress)  # fmt: skip
    for name in options.names:
        study = running.find_study(name.removeprefix("likely/"))
        if name in figures.SINGLE and not options.quick:
            _single(study, options, progress)
        parts = study.planned(options.quick, [row for row in options.only.split(",") if row])
        if name.startswith("likely/"):
            printed = tables.printed_in(records.read_paper(), study)
            parts = list(likely_parts(study, recorded(study.name, results, printed)))
        if parts:
            rows, made = running.run(parts, options.store, device=options.device,
                                     jobs=options.jobs, progress=progress)  # fmt: skip
            if options.record:
                records.write_results(rows, made)
            yield running.beside_record(rows, results)


def _single(study: running.Study, options: argparse.Namespace, progress: PlainProgress) -> None:
    """Compute what a figure shows of single tasks."""
    found, figure = figures.compute(study, progress)
    print(tables.written(pd.DataFrame(found["rows"], dtype=object)))
    if options.output:
        figure.savefig(options.output)
    if options.record:
        made = {"commit": running.current_commit(), "date": f"{datetime.now(UTC):%Y-%m-%d}"}
        records.write_json("tasks", {study.name: made | found})


def _show(options: argparse.Namespace) -> int:
    """Print what is recorded of a study, or draw it."""
    study, results = running.find_study(options.name), records.read_results()
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
