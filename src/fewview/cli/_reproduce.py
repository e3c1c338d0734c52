"""`fewview reproduce`: the paper's tables, figures and claims, regenerated."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from fewview.cli._text import examples

if TYPE_CHECKING:
    from fewview.paper._compute import Desk
    from fewview.paper._studies import Wish

EPILOG = examples(
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
            "time; or the groups tables, figures, beyond, all.",
            metavar="NAME...",
            show_default=False,
        ),
    ],
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer class splits and episodes: minutes per name.")
    ] = False,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="DIR",
            help="Write tables (Markdown, CSV, LaTeX) and figures (PDF, SVG, PNG, CSV) there. "
            "Figures go to ./reproduction without it.",
        ),
    ] = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="List what is to be computed, and stop.")
    ] = False,
    device: Annotated[
        str,
        typer.Option(
            help="cpu, cuda or auto. Stored results of that kind of device are used without it; "
            "'any' takes stored results of any kind."
        ),
    ] = "cpu",
    jobs: Annotated[int, typer.Option(help="Number of processes; they share the cores.")] = 1,
    cluster: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Compute on the workers of this Dask scheduler."),
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(
            help="File of results; what it has is not computed again. Default: $FEWVIEW_STORE, "
            "else results.sqlite in the user's cache folder."
        ),
    ] = None,
    others: Annotated[
        list[str] | None,
        typer.Option(
            "--from",
            metavar="FILE",
            help="Another store; what is wanted is copied from it. May be given several times.",
            show_default=False,
        ),
    ] = None,
    stored: Annotated[
        bool,
        typer.Option(
            "--stored",
            help="Compute no accuracies; show what the store has. Maps and the loss of figure 4 "
            "(also in claims) are of a few tasks and made anew: minutes.",
        ),
    ] = False,
    only: Annotated[
        str, typer.Option(help="Run these methods alone, separated by commas.", show_default=False)
    ] = "",
    preset: Annotated[
        str, typer.Option(help="Of the methods that train networks: fast, or paper (slow).")
    ] = "fast",
    features: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Your own features for the one table named, in place of its data set (an .npz "
            "with views and labels; an array 'split' may mark base and novel rows).",
        ),
    ] = None,
    base_features: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Take the base classes from this file, with --features."),
    ] = None,
    data_dir: Annotated[
        str | None,
        typer.Option(help="Folder of data files. Default: $FEWVIEW_DATA, else the user's cache."),
    ] = None,
) -> None:
    """Regenerate the paper: its tables beside ours, its figures, its claims checked.

    Everything that is an accuracy goes through the store, so a run that is stopped goes on where it
    was, and results computed on another machine are used as they are. Tables show ours, the
    paper's, the difference, and whether the paper's number lies inside our range over class splits.
    """
    from fewview.cli._bar import make_progress
    from fewview.cli._bench import stop_politely
    from fewview.ground._errors import FewviewError
    from fewview.paper._compute import Desk
    from fewview.paper._printed import TABLES
    from fewview.paper._studies import Wish, expand_names

    wanted = expand_names(names)
    if features is not None and (len(wanted) != 1 or wanted[0] not in TABLES):
        raise FewviewError("--features goes with one table, for instance: reproduce birds")
    if preset not in ("fast", "paper"):
        raise FewviewError(f"--preset {preset}: use fast or paper")
    if features is None and base_features is not None:
        raise FewviewError("--base-features goes with --features; give both")
    wish = Wish(
        quick=quick, device=device, data_dir=data_dir, features=features,
        base_features=base_features, preset=preset,
        only=tuple(part.strip() for part in only.split(",") if part),
    )  # fmt: skip
    desk = Desk(
        store=store, others=tuple(others or ()), jobs=jobs, cluster=cluster,
        progress=make_progress(), compute=not stored,
    )  # fmt: skip
    if plan:
        _show_plan(wanted, wish, desk)
        return
    try:
        absent = _make_all(wanted, wish, desk, output, _command(wish, store, stored))
    except KeyboardInterrupt:
        stop_politely(store)
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
    from fewview.paper._compute import describe_plan

    print(
        plain_table(describe_plan(wanted, wish, desk), ("name", "cells", "stored", "left", "what"))
    )
    quick = " --quick" if wish.quick else ""
    print(
        "\non a machine with numpy, scipy, scikit-learn and torch alone: python -m "
        f"fewview.paper {' '.join(wanted)}{quick} --device cuda --store gpu.sqlite"
    )


def _command(wish: Wish, store: str | None, stored: bool) -> str:
    """The command that makes one product again, with a place for its name."""
    words = ["fewview reproduce {name}"]
    if wish.quick:
        words.append("--quick")
    for option in ("features", "base_features"):
        value = getattr(wish, option)
        if value is not None:
            words += [f"--{option.replace('_', '-')}", value]
    if wish.device != "cpu":
        words += ["--device", wish.device]
    if wish.preset != "fast":
        words += ["--preset", wish.preset]
    if wish.only:
        words += ["--only", ",".join(wish.only)]
    if store is not None:
        words += ["--store", store]
    if stored:
        words.append("--stored")
    return " ".join(words)
