"""`python -m fewview.evaluate`: `fewview bench` for a bare machine.

Needs numpy, scipy, scikit-learn and torch alone: no typer, no rich, no matplotlib.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from fewview.ground._flags import BENCH, RUNNING, add_options
from fewview.ground._lazy import HARDLY_USED, postpone


def parser() -> argparse.ArgumentParser:
    """Make the parser of the options, those of `fewview bench`."""
    out = argparse.ArgumentParser(
        prog="python -m fewview.evaluate",
        description="Run a benchmark; the options are those of 'fewview bench'.",
    )
    out.add_argument("datasets", nargs="+", metavar="DATASET", help="known name, file or folder")
    add_options(out, BENCH)
    return out


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a benchmark; exit status 0 done, 1 some cells failed, 2 wrong input, 130 stopped."""
    options = vars(parser().parse_args(arguments))
    from fewview.evaluate._options import COLUMNS, answer, bench, make_grid, write_json
    from fewview.evaluate._progress import PlainProgress
    from fewview.ground._rows import plain_table

    running = {name: options.pop(name) for name in RUNNING}

    def work() -> int:
        grid = make_grid(options.pop("datasets"), **options)
        if running.pop("open_set"):
            from fewview.evaluate._open_set import run_open_set

            found = run_open_set(grid, lambda text: print(text, file=sys.stderr))
            print(plain_table(found, tuple(found[0])))
            if running["json_path"] is not None:
                write_json(found, running["json_path"])
            return 0
        rows, outcome = bench(grid, progress=PlainProgress(), **running)
        print(plain_table(rows, COLUMNS))
        return 1 if outcome.failures else 0

    return answer(work, running["store"])


if __name__ == "__main__":
    postpone(*HARDLY_USED)
    sys.exit(main())
