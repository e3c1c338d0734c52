"""What a busy machine costs: the same command alone, and beside others that take some cores.

    python benchmarks/busy.py

Others are processes that count, as many as half of the cores, or as `--others` says. Threads of
torch that wait for each other either sleep soon, as fewview lets them (`ground/_waiting.py`), or
stay awake for milliseconds, as torch by itself does. The median of what passes from start to end.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from time import perf_counter

from common import keep_table, parser, print_machine, print_table

WAITS = {
    "asleep (fewview)": {"GOMP_SPINCOUNT": "1000"},
    "awake (torch)": {"GOMP_SPINCOUNT": "300000"},
}
COUNT = "n = 0\nwhile True: n += 1"


@contextmanager
def others(count: int) -> Iterator[None]:
    """Processes that take a core each."""
    command = [sys.executable, "-c", COUNT]
    running = [subprocess.Popen(command) for _ in range(count)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def main() -> None:
    options = parser(__doc__ or "")
    options.add_argument("--methods", default="ugda,marginal")
    options.add_argument("--episodes", type=int, default=40)
    options.add_argument("--repeats", type=int, default=3)
    options.add_argument("--others", type=int, default=None, help="default: half of the cores")
    options.add_argument("--output", default=None, help="file for the documentation")
    arguments = options.parse_args()
    print_machine("cpu")
    command = [
        sys.executable, "-m", "fewview.evaluate", *arguments.datasets.split(","), "--splits", "2",
        "--methods", arguments.methods, "--eta", str(arguments.eta),
        "--episodes", str(arguments.episodes), "--store", "none",
    ]  # fmt: skip
    if arguments.data_dir is not None:
        command += ["--data-dir", arguments.data_dir]
    busy = arguments.others or max(1, (os.cpu_count() or 1) // 2)
    table = []
    for how, said in WAITS.items():
        row = [how]
        for count in (0, busy):
            took = []
            with others(count):
                for _ in range(arguments.repeats):
                    begin = perf_counter()
                    subprocess.run(
                        command, env={**os.environ, **said}, check=True, capture_output=True
                    )
                    took.append(perf_counter() - begin)
            row.append(f"{median(took):.1f}")
        row.append(f"{float(row[2]) / float(row[1]):.1f}")
        table.append(row)
        print("  ".join(row), file=sys.stderr, flush=True)
    header = ("threads that wait are", "alone, s", f"beside {busy} other(s), s", "x")
    print_table(header, table)
    note = (
        f"{arguments.methods.replace(',', ' and ')} on {arguments.datasets.replace(',', ', ')}, "
        f"two class splits of {arguments.episodes} episodes, from the start of Python to its end, "
        f"{os.cpu_count()} cores, median of {arguments.repeats}. In Python, import fewview before "
        "torch, which reads once how its threads wait, or set GOMP_SPINCOUNT=1000."
    )
    keep_table(arguments.output, "On a busy machine", "cpu", header, table, note)


if __name__ == "__main__":
    main()
