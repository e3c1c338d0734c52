"""`python -m fewview.paper`: fill the store on a bare machine.

Needs numpy, scipy, scikit-learn and torch alone; tables and figures are made elsewhere from the
store, with `fewview reproduce`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fewview.ground._flags import FILLING, add_options
from fewview.ground._lazy import HARDLY_USED, postpone

if TYPE_CHECKING:
    from fewview.paper._compute import Desk
    from fewview.paper._studies import Wish


def parser() -> argparse.ArgumentParser:
    """Make the parser of the options, those of `fewview reproduce` that fill a store."""
    out = argparse.ArgumentParser(
        prog="python -m fewview.paper",
        description="Compute what 'fewview reproduce' shows, into a store.",
    )
    out.add_argument("names", nargs="+", metavar="NAME", help="cub, ..., figure5, claims, all")
    add_options(out, FILLING)
    return out


def record_all(names: Sequence[str], wish: Wish, desk: Desk) -> None:
    """Record what was computed, and the numbers of figures 3, 4 and 6, whose pictures are dropped.

    Drawing needs matplotlib; where it is not installed those are told and left out.
    """
    from importlib.util import find_spec

    from fewview.paper._make import PICTURED, make, record_rows, record_sheet

    for name in names:
        print(record_rows(name, wish, desk))
        if name in PICTURED and find_spec("matplotlib") is None:
            print(f"{name}: its sheet is not recorded, which needs matplotlib")
        elif name in PICTURED:
            print(record_sheet(name, make(name, wish, desk, ""), wish, desk))


def main(arguments: Sequence[str] | None = None) -> int:
    """Fill a store; exit status 0 done, 1 some cells failed, 2 wrong input, 130 stopped."""
    options = vars(parser().parse_args(arguments)) | {"compute": True}  # nothing else is done here
    from fewview.evaluate._options import answer
    from fewview.evaluate._progress import PlainProgress
    from fewview.ground._rows import plain_table
    from fewview.paper._compute import (
        PLAN_COLUMNS,
        announce,
        as_typed,
        compute_all,
        describe_plan,
    )
    from fewview.paper._studies import expand_names

    def work() -> int:
        wish, desk = as_typed(options, PlainProgress())
        names = expand_names(options["names"])
        if options["plan"]:
            print(plain_table(describe_plan(names, wish, desk), PLAN_COLUMNS))
            return 0
        announce(names, wish, desk)
        failures = compute_all(names, wish, desk)
        if options["record"]:
            record_all(names, wish, desk)
        print(f"done: {', '.join(names)} ({len(failures)} cells failed)")
        return 1 if failures else 0

    return answer(work, options["store"])


if __name__ == "__main__":
    postpone(*HARDLY_USED)
    sys.exit(main())
