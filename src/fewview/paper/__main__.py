"""`python -m fewview.paper`: fill the store on a bare machine.

Needs numpy, scipy, scikit-learn and torch alone; tables and figures are made elsewhere from the
store, with `fewview reproduce`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence


def parser() -> argparse.ArgumentParser:
    """Make the parser of the options."""
    out = argparse.ArgumentParser(
        prog="python -m fewview.paper",
        description="Compute what 'fewview reproduce' shows, into a store.",
    )
    out.add_argument("names", nargs="+", metavar="NAME", help="cub, ..., figure5, claims, all")
    out.add_argument("--compute", action="store_true", help="the only thing done here; may be left")
    out.add_argument("--plan", action="store_true", help="list what is to be computed, and stop")
    out.add_argument("--quick", action="store_true", help="the smaller protocol")
    out.add_argument("--device", default="cpu", help="cpu, cuda, auto or any")
    out.add_argument("--jobs", type=int, default=1, help="number of processes")
    out.add_argument("--store", help="file of results")
    out.add_argument("--from", dest="others", action="append", default=[], metavar="FILE",
                     help="copy what is wanted from this store too")  # fmt: skip
    out.add_argument("--only", default="", help="these methods alone, separated by commas")
    out.add_argument("--preset", default="fast", help="of methods with networks: fast or paper")
    out.add_argument("--data-dir", help="folder of data files")
    return out


def main(arguments: Sequence[str] | None = None) -> int:
    """Fill a store; exit status 0 done, 1 some cells failed, 2 wrong input, 130 stopped."""
    options = parser().parse_args(arguments)
    from fewview.evaluate._options import stop_message
    from fewview.evaluate._progress import PlainProgress
    from fewview.ground._errors import FewviewError
    from fewview.ground._rows import plain_table
    from fewview.paper._compute import PLAN_COLUMNS, Desk, compute_all, describe_plan
    from fewview.paper._studies import Wish, expand_names

    try:
        wish = Wish(
            quick=options.quick, device=options.device, data_dir=options.data_dir,
            preset=options.preset,
            only=tuple(name for name in options.only.split(",") if name),
        )  # fmt: skip
        desk = Desk(
            store=options.store, others=tuple(options.others), jobs=options.jobs,
            progress=PlainProgress(),
        )  # fmt: skip
        names = expand_names(options.names)
        if options.plan:
            print(plain_table(describe_plan(names, wish, desk), PLAN_COLUMNS))
            return 0
        failures = compute_all(names, wish, desk)
    except FewviewError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(stop_message(options.store), file=sys.stderr)
        return 130
    print(f"done: {', '.join(names)} ({len(failures)} cells failed)")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
