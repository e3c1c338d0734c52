"""`python -m fewview.evaluate`: `fewview bench` for a bare machine.

Needs numpy, scipy, scikit-learn and torch alone: no typer, no rich, no matplotlib.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence


def parser() -> argparse.ArgumentParser:
    """Make the parser of the options, those of `fewview bench`."""
    out = argparse.ArgumentParser(
        prog="python -m fewview.evaluate",
        description="Run a benchmark; the options are those of 'fewview bench'.",
    )
    out.add_argument("datasets", nargs="+", metavar="DATASET", help="known name, file or folder")
    out.add_argument("--base", help="take base classes from this data set")
    out.add_argument("--methods", default="proto", help="separated by commas; 'all' for all")
    out.add_argument("--eta", default="0", help="missing rates, separated by commas")
    for name in ("way", "shot", "queries"):
        out.add_argument(f"--{name}", type=int, help="by default the data set's usual one")
    out.add_argument("--splits", help="number of class splits, or 'all' (default 10)")
    out.add_argument("--episodes", type=int, help="episodes per split (default 40)")
    out.add_argument("--query-counts", default="balanced", help="balanced or dirichlet:2")
    out.add_argument("--missing", default="uniform", help="uniform, patterns or class")
    out.add_argument("--seed", type=int, default=0)
    out.add_argument("--scaling", help="for every method; 'paper' as in the paper")
    out.add_argument("--padding", help="for every method; 'paper' as in the paper")
    out.add_argument("--jobs", type=int, default=1, help="number of processes")
    out.add_argument("--cluster", metavar="ADDRESS", help="Dask scheduler, as tcp://host:8786")
    out.add_argument("--device", default="cpu", help="cpu, cuda or auto")
    out.add_argument("--dtype", default="float32", help="float32 or float64")
    out.add_argument("--store", help="file of results, or 'none'")
    out.add_argument("--tune", action="store_true", help="choose settings on base classes")
    out.add_argument("--protocol", default="splits", help="splits (10 x 40) or paper (1 x 400)")
    out.add_argument("--data-dir", help="folder of data files")
    out.add_argument("--json", dest="json_path", metavar="FILE", help="write results there")
    return out


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a benchmark from command-line arguments.

    Args:
        arguments: those of the process when None.

    Returns:
        Exit status: 0 done, 1 some cells failed, 2 wrong input, 130 stopped by Ctrl-C.
    """
    options = vars(parser().parse_args(arguments))
    from fewview.evaluate._options import COLUMNS, bench, make_grid, stop_message
    from fewview.evaluate._progress import PlainProgress
    from fewview.ground._errors import FewviewError
    from fewview.ground._rows import plain_table

    running = {name: options.pop(name) for name in ("store", "jobs", "cluster", "json_path")}
    try:
        grid = make_grid(options.pop("datasets"), **options)
        rows, outcome = bench(grid, progress=PlainProgress(), **running)
    except FewviewError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(stop_message(running["store"]), file=sys.stderr)
        return 130
    print(plain_table(rows, COLUMNS))
    return 1 if outcome.failures else 0


if __name__ == "__main__":
    sys.exit(main())
