"""`fewview reproduce`: the paper's tables, figures and claims, regenerated."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fewview.cli._declared import takes
from fewview.cli._text import leads_to, print_table, print_text, say, shows
from fewview.ground._flags import REPRODUCE

if TYPE_CHECKING:
    from fewview.paper._compute import Desk
    from fewview.paper._sheets import Sheet
    from fewview.paper._studies import Wish


@leads_to("fewview reproduce claims, for what the paper says, checked")
@takes(REPRODUCE)
@shows(
    "fewview reproduce handwritten cub scene15", "three tables beside the paper's, as recorded",
    "fewview reproduce claims", "what the paper says, judged by recorded results",
    "fewview reproduce claims --rules", "how each sentence is judged",
    "fewview reproduce claims --quick --compute", "the same, computed here in minutes",
    "fewview reproduce figure5 -o out", "a figure: PDF, SVG, PNG, CSV, caption",
    "fewview reproduce all --plan", "what there is to compute, and what is stored",
    "fewview reproduce all --stored --device any --store gpu.sqlite -o out",
    "from results that another machine computed",
    "fewview reproduce birds --features mine.npz --base-features base.npz --compute",
    "your own features",
)  # fmt: skip
def reproduce(
    names: Annotated[
        list[str],
        typer.Argument(
            help="cub, handwritten, caltech102, scene15, animal, orl, tieredimagenet, birds, "
            "ablation, figure3 to figure7, claims; beyond the paper imbalance, shots, missingness, "
            "time, splits (class splits that the paper may have used); or the groups tables, "
            "figures, beyond, all.",
            metavar="NAME...",
            show_default=False,
        ),
    ],
    **options: Any,
) -> None:
    """Show the paper again: its tables beside ours, its figures, its claims checked.

    Recorded results come with fewview and are shown at once. With --compute everything that is an
    accuracy goes through the store, so a run that is stopped goes on where it was, and results
    computed on another machine are used as they are. Tables show ours, the paper's, the difference,
    and whether the paper's number lies inside our range over class splits.
    """
    from fewview.cli._bar import make_progress
    from fewview.cli._bench import stop_politely
    from fewview.ground._errors import FewviewError
    from fewview.paper._compute import announce, as_typed
    from fewview.paper._printed import TABLES
    from fewview.paper._studies import expand_names

    wanted = expand_names(names)
    if options["features"] is not None and (len(wanted) != 1 or wanted[0] not in TABLES):
        raise FewviewError("--features goes with one table, for instance: reproduce birds")
    if options["features"] is None and options["base_features"] is not None:
        raise FewviewError("--base-features goes with --features; give both")
    if options["rules"]:
        _show_rules(wanted, options["output"], options["wide"])
        return
    if options["compute"] and options["stored"]:
        raise FewviewError("--compute and --stored: give one of them")
    wish, desk = as_typed(options, make_progress())
    if options["plan"]:
        _show_plan(wanted, wish, desk)
        return
    if desk.recorded:
        _refuse(options)
    try:
        if desk.compute and not desk.recorded:
            announce(wanted, wish, desk)
        grouped = wanted != tuple(dict.fromkeys(names))
        absent = _make_all(wanted, wish, desk, options, grouped)
    except KeyboardInterrupt:
        stop_politely(options["store"])
    if absent and not grouped:
        raise typer.Exit(2)


def _refuse(options: dict[str, Any]) -> None:
    """Say that options which are about computing do nothing to recorded results."""
    from fewview.ground._errors import FewviewError

    for name in ("features", "store", "others", "device", "jobs", "cluster", "data_dir", "record"):
        option, value = REPRODUCE[name], options[name]
        if value and value != option.default:
            flag = option.flags_of(name)[0]
            raise FewviewError(
                f"{flag} does nothing to recorded results, which are shown now; add --compute to "
                "compute here, or --stored to show what a store has"
            )


def _make_all(
    wanted: tuple[str, ...], wish: Wish, desk: Desk, options: dict[str, Any], grouped: bool
) -> list[str]:
    """Make every product and print it; return the tables that have nothing of ours to show.

    What has nothing to show is an error, told when all the others are made; one of a group that is
    not recorded or has no data is told, and the others go on.
    """
    from fewview.ground._errors import FewviewError
    from fewview.paper._compute import NoResultsError
    from fewview.paper._make import make, record_rows, record_sheet
    from fewview.paper._pictures import Picture
    from fewview.paper._printed import TABLES
    from fewview.paper._recorded import MADE_OF
    from fewview.paper._sheets import Sheet

    absent: list[str] = []
    empty: list[str] = []
    shown = 0
    command, output = _command(options), options["output"]
    for name in wanted:
        try:
            # What is stored is recorded before maps and losses are made, which takes minutes.
            if options["record"] and (name in MADE_OF or not desk.compute):
                desk.progress.message(record_rows(name, wish, desk))
            if options["record"] and name in MADE_OF:
                continue
            product = make(name, wish, desk, command.format(name=name))
        except NoResultsError as error:
            empty.append(str(error))
            continue
        except FewviewError as error:
            if not grouped:
                raise
            desk.progress.message(f"{name}: {error}")
            continue
        sheet = product.sheet if isinstance(product, Picture) else product
        if name in TABLES and not any(isinstance(row["ours"], float) for row in sheet.rows):
            absent.append(name)
        files = []
        # Recorded figures are shown by their numbers; pictures are made where they are asked for.
        if isinstance(product, Picture) and (output is not None or not desk.recorded):
            files = product.write(output or "reproduction")
        elif isinstance(product, Sheet) and output is not None and name not in absent:
            files = product.write(output)
        print("\n" * bool(shown), end="")
        _print(sheet, options["wide"])
        shown += 1
        for file in files:
            say(f"written: {file}")
        if options["record"]:
            said = [record_rows(name, wish, desk)] if desk.compute else []
            for line in filter(None, [*said, record_sheet(name, product, wish, desk)]):
                desk.progress.message(line)
    if empty:
        raise FewviewError("\n".join(empty))
    return absent


def _print(sheet: Sheet, wide: bool) -> None:
    """Print a sheet; a terminal shows the columns that it has room for."""
    if wide or not sys.stdout.isatty():
        print(sheet.text(), end="", flush=True)
        return
    for line in sheet.head():
        print_text(line, 2)
    print()
    lines = [[row[name] for name in sheet.columns] for row in sheet.texts()]
    widest = {
        k: max((len(line[k]) for line in lines), default=0) for k in range(len(sheet.columns))
    }
    extra = (
        "range_low", "range_high", "inside", "episodes", "splits", "se", "paper_se", "likely",
        "rule", "failing", "numbers", "in_the_papers_tables", "p", "data",
    )  # fmt: skip
    print_table(
        sheet.columns, lines, wide=False,
        right=[k for k, name in enumerate(sheet.columns) if sheet.numeric(name)],
        drop=[sheet.columns.index(name) for name in extra if name in sheet.columns],
        text={k: 16 for k, width in widest.items() if width > 28},
    )  # fmt: skip
    for line in sheet.summary:
        print_text(line)


def _show_rules(wanted: tuple[str, ...], output: str | None, wide: bool) -> None:
    from fewview.ground._errors import FewviewError
    from fewview.paper._claims import list_rules

    if wanted != ("claims",):
        raise FewviewError("--rules goes with claims alone: fewview reproduce claims --rules")
    sheet = list_rules("fewview reproduce claims --rules")
    _print(sheet, wide)
    for file in [] if output is None else sheet.write(output):
        say(f"written: {file}")


def _show_plan(wanted: tuple[str, ...], wish: Wish, desk: Desk) -> None:
    from fewview.ground._rows import cell_text
    from fewview.paper._compute import PLAN_COLUMNS, describe_plan

    rows = describe_plan(wanted, wish, desk)
    lines = [[cell_text(row.get(name)) for name in PLAN_COLUMNS] for row in rows]
    print_table(PLAN_COLUMNS, lines, right=(1, 2, 3), text={4: 24})
    quick = " --quick" if wish.quick else ""
    print(
        "\non a machine with numpy, scipy, scikit-learn and torch alone: python -m "
        f"fewview.paper {' '.join(wanted)}{quick} --device cuda --store gpu.sqlite"
    )


def _command(options: dict[str, Any]) -> str:
    """The command that makes one product again, with a place for its name."""
    words = ["fewview reproduce {name}"]
    left_out = (
        "output",
        "plan",
        "jobs",
        "cluster",
        "others",
        "record",
        "records",
        "rules",
        "data_dir",
        "wide",
    )
    for name in (name for name in REPRODUCE if name not in left_out):
        option, value = REPRODUCE[name], options[name]
        if value and value != option.default:
            words += option.flags_of(name)
            words += [] if option.kind is bool else [str(value)]
    return " ".join(words)
