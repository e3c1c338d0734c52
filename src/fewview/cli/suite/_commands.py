"""`fewview suite run`, `show` and `submit`: the frozen suite, its board, an entry for it."""

from __future__ import annotations

from typing import Any

import typer

from fewview.cli._declared import takes
from fewview.cli._text import examples, print_table, say
from fewview.ground._flags import SUITE_RUN, SUITE_SHOW, SUITE_SUBMIT

suite_app = typer.Typer(
    help="The frozen suite fewview-1: run it, show the leaderboard, submit a method.",
    no_args_is_help=True,
    epilog=examples(
        "fewview suite show", "the leaderboard, from recorded results",
        "fewview suite run --methods mine.py:Mine", "your own method, the lite form",
        "fewview suite submit --methods mine.py:Mine -o mine.json", "one file to send",
        "fewview suite show --with mine.json", "the leaderboard with it",
        "fewview suite run --form full --device cuda", "everything, for a large machine",
        "fewview suite run --methods marginal --record", "one row recorded again",
    ),
)  # fmt: skip


@suite_app.command()
@takes(SUITE_RUN)
def run(**options: Any) -> None:
    """Run methods on the suite; what the store has is not computed again.

    The lite form takes about ten minutes on two cores with all methods that train no network. Data
    that are not here are skipped, and said to be.
    """
    from collections import Counter
    from pathlib import Path

    from fewview.cli._bar import make_progress
    from fewview.cli._bench import stop_politely
    from fewview.engine._registry import expand
    from fewview.evaluate.suites._suite import read_suite
    from fewview.report._board import FOLDER, record_suite, run_suite

    suite = read_suite(_form(options))
    methods = expand(options["methods"] or list(suite.methods))
    try:
        gathered, skipped = run_suite(
            suite, methods, progress=make_progress(),
            **{name: options[name] for name in ("store", "jobs", "cluster", "device", "data_dir")},
        )  # fmt: skip
    except KeyboardInterrupt:
        stop_politely(options["store"])
    rows = [row | {"panel": item.part.role} for item in gathered for row in item.rows]
    header = ("data set", "panel", "eta", *(method for method in methods))
    keys = list(dict.fromkeys((r["dataset"], r["panel"], round(r["eta"], 4)) for r in rows))
    found = {(r["dataset"], r["panel"], round(r["eta"], 4), r["method"]): r for r in rows}
    lines = [
        (
            data, panel, f"{eta:.2g}",
            *(
                f"{found[data, panel, eta, m]['accuracy']:.1f}"
                if (data, panel, eta, m) in found else ""
                for m in methods
            ),
        )
        for data, panel, eta in keys
    ]  # fmt: skip
    print_table(header, lines, right=range(2, len(header)))
    if skipped:
        say(f"skipped, as said above: {', '.join(skipped)}")
    if options["record"]:
        records = options["records"]
        say(record_suite(suite, gathered, Path(records) if records else FOLDER))
    failures = [(cell.method, why) for item in gathered for cell, why in item.failures]
    for (method, why), count in Counter(failures).most_common(10):
        say(f"failed: {method}: {count} x {why}")
    if failures:
        raise typer.Exit(1)


@suite_app.command()
@takes(SUITE_SHOW)
def show(**options: Any) -> None:
    """Show the leaderboard, from the results that come with fewview and those submitted."""
    from pathlib import Path

    from fewview.evaluate.suites._suite import read_suite
    from fewview.ground._whole_files import check_writable, replacing
    from fewview.report._board import (
        FOLDER,
        HEADER,
        board_page,
        board_table,
        make_board,
        remarks,
    )

    suite, records = read_suite(_form(options)), options["records"]
    data = [name.strip() for name in (options["data"] or "").split(",") if name.strip()]
    folder = Path(records) if records else FOLDER
    board = make_board(suite, folder, options["with_files"] or (), data)
    if options["output"] is not None:
        check_writable(options["output"])
        with replacing(options["output"]) as temporary:
            temporary.write_text(board_page(board), encoding="utf-8")
        say(f"written: {options['output']}")
        return
    title = (
        f"{suite.name}, {suite.form}: {len(board.settings)} settings, {len(suite.splits)} class "
        f"splits x {suite.episodes} tasks each"
    )
    print_table(HEADER, board_table(board), title=title, right=range(1, 7),
                drop=(6, 9, 8, 7), wide=options["wide"])  # fmt: skip
    for text in remarks(board):
        print(text)


@suite_app.command()
@takes(SUITE_SUBMIT)
def submit(**options: Any) -> None:
    """Write the results of your method to one file, to be sent as a pull request.

    All settings of the form on data that are here must be in the store: run the suite first.
    """
    from pathlib import Path

    from fewview.engine._registry import expand
    from fewview.evaluate._options import store_path
    from fewview.evaluate.suites._suite import read_suite
    from fewview.ground._errors import FewviewError
    from fewview.report._board import SUBMITTED, stored_suite, write_submission

    suite = read_suite(_form(options))
    if not options["methods"]:
        raise FewviewError("say which method is to be submitted: --methods mine.py:Mine")
    methods = expand(options["methods"])
    store = store_path(options["store"])
    first = f"first: fewview suite run --form {suite.form} --methods {options['methods']!r}"
    if not Path(store).exists():
        raise FewviewError(f"{store}: no such store; {first}")
    gathered, skipped = stored_suite(
        suite, methods, options["store"], options["data_dir"], options["device"]
    )
    lacking = sum(len({c.hash for c in item.cells}) - len(item.results) for item in gathered)
    if lacking:
        raise FewviewError(f"{lacking} cells are not in the store; {first}")
    output = options["output"] or f"{suite.title}-{methods[0].rpartition(':')[2]}.json"
    rows = write_submission(suite, gathered, output, options["note"] or "")
    say(f"written: {output} ({rows} rows)")
    say(
        f"add it to src/fewview/report/boards/{SUBMITTED}/ as {suite.title}-NAME.json, with the "
        "file of your method in the pull request"
    )
    if skipped:
        say(
            f"without {', '.join(skipped)}, which are not here: the board ranks the method when "
            "somebody who has them has run it on them"
        )


def _form(options: dict[str, Any]) -> str:
    from fewview.ground._errors import FewviewError

    form = options["form"] or "lite"
    if options.get("lite") and form != "lite":
        raise FewviewError(f"--lite and --form {form}: give one of them")
    return str(form)
