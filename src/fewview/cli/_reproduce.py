"""`fewview reproduce`: the paper's tables, figures and claims, regenerated."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fewview.cli._declared import takes
from fewview.cli._text import shows
from fewview.ground._flags import REPRODUCE

if TYPE_CHECKING:
    from fewview.paper._compute import Desk
    from fewview.paper._studies import Wish


@takes(REPRODUCE)
@shows(
    "fewview reproduce handwritten cub scene15", "three tables beside the paper's",
    "fewview reproduce claims --quick", "what the paper says, checked; minutes",
    "fewview reproduce figure5 -o out", "a figure: PDF, SVG, PNG, CSV, caption",
    "fewview reproduce all --plan", "what there is to compute, and what is stored",
    "fewview reproduce all --device cuda --store gpu.sqlite -o out",
    "from results that a GPU computed; none is needed here if all are there",
    "fewview reproduce birds --features mine.npz --base-features base.npz", "your own features",
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
    """Regenerate the paper: its tables beside ours, its figures, its claims checked.

    Everything that is an accuracy goes through the store, so a run that is stopped goes on where it
    was, and results computed on another machine are used as they are. Tables show ours, the
    paper's, the difference, and whether the paper's number lies inside our range over class splits.
    """
    from fewview.cli._bar import make_progress
    from fewview.cli._bench import stop_politely
    from fewview.ground._errors import FewviewError
    from fewview.paper._compute import as_typed
    from fewview.paper._printed import TABLES
    from fewview.paper._studies import expand_names

    wanted = expand_names(names)
    if options["features"] is not None and (len(wanted) != 1 or wanted[0] not in TABLES):
        raise FewviewError("--features goes with one table, for instance: reproduce birds")
    if options["features"] is None and options["base_features"] is not None:
        raise FewviewError("--base-features goes with --features; give both")
    wish, desk = as_typed(options, make_progress())
    if options["plan"]:
        _show_plan(wanted, wish, desk)
        return
    try:
        absent = _make_all(wanted, wish, desk, options["output"], _command(options))
    except KeyboardInterrupt:
        stop_politely(options["store"])
    if absent and "all" not in names and "tables" not in names:
        raise typer.Exit(2)


def _make_all(
    wanted: tuple[str, ...], wish: Wish, desk: Desk, output: str | None, command: str
) -> list[str]:
    """Make every product and print it; return the names whose data are absent."""
    from fewview.paper._make import make
    from fewview.paper._pictures import Picture
    from fewview.paper._printed import TABLES
    from fewview.paper._studies import has_data

    absent = [name for name in wanted if name in TABLES and not has_data(name, wish)]
    for number, name in enumerate(wanted):
        product = make(name, wish, desk, command.format(name=name))
        files = []
        if isinstance(product, Picture):
            files = product.write(output or "reproduction")
        elif output is not None:
            files = product.write(output)
        sheet = product.sheet if isinstance(product, Picture) else product
        print(("\n" if number else "") + sheet.text(), end="", flush=True)
        for file in files:
            print(f"written: {file}", file=sys.stderr)
    return absent


def _show_plan(wanted: tuple[str, ...], wish: Wish, desk: Desk) -> None:
    from fewview.ground._rows import plain_table
    from fewview.paper._compute import PLAN_COLUMNS, describe_plan

    print(plain_table(describe_plan(wanted, wish, desk), PLAN_COLUMNS))
    quick = " --quick" if wish.quick else ""
    print(
        "\non a machine with numpy, scipy, scikit-learn and torch alone: python -m "
        f"fewview.paper {' '.join(wanted)}{quick} --device cuda --store gpu.sqlite"
    )


def _command(options: dict[str, Any]) -> str:
    """The command that makes one product again, with a place for its name."""
    words = ["fewview reproduce {name}"]
    told = ("quick", "features", "base_features", "device", "preset", "only", "store", "stored")
    for name in told:
        option, value = REPRODUCE[name], options[name]
        if value and value != option.default:
            words += option.flags_of(name)
            words += [] if option.kind is bool else [value]
    return " ".join(words)
