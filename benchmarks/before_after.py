"""Is another version of fewview slower? The same commands with both, in turn, as ratios.

Run: python benchmarks/before_after.py OTHER_SRC [--rounds 5] [--bench 2] [--tests 1]

OTHER_SRC is the `src` folder of another checkout, for instance of `git worktree add ../old COMMIT`.
Every command runs in a process of its own, once with each version and then again, so that a busy
machine is busy for both. Shown is the median over rounds of time here / time there, with the
smallest and largest: below 1 this version is faster. `--bench N` runs the table of `make bench` of
both checkouts N times in turn and compares it job by job, `--tests N` their test suites (minutes
each; they are not the same tests).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TypeVar

from travel import write_tables

Found = TypeVar("Found")
HERE = Path(__file__).resolve().parent.parent / "src"
MAIN = "import sys; from fewview.cli import main; main()"
BENCH = "bench digits --splits 4 --store none"
COMMANDS = {
    "--help": "--help",
    "methods ugda": "methods ugda",
    "data show digits": "data show digits",
    "bench: proto, rfs, ptmap": f"{BENCH} --methods proto,rfs,ptmap --eta 0,0.3,0.5 --episodes 100",
    "bench: ugda": f"{BENCH} --methods ugda --eta 0.3 --episodes 50",
    "bench: marginal": f"{BENCH} --methods marginal:settings=default --eta 0.3 --episodes 100",
    "bench: cpm": f"{BENCH} --methods cpm:epochs=5 --eta 0.3 --episodes 5",
    "bench: two processes": f"{BENCH} --methods proto,ptmap --eta 0,0.5 --jobs 2",
    "bench: 240 small cells": "bench digits --store new.sqlite --splits 20 --episodes 5 "
    "--methods proto,match,partial-nn --eta 0,0.1,0.3,0.5",
    "results --compare": "results kept.sqlite --compare",
    "report": "report kept.sqlite -o page.html",
    "fit": "fit --base base -o made.model --eta 0.3",
    "predict": "predict --model kept.model --support support --query query -o out.csv",
}
# What the commands above read; made once by the version that is compared with.
KEPT = (
    "bench digits --store kept.sqlite --splits 4 --methods proto,rfs,ptmap,ugda --eta 0,0.3,0.5",
    "fit --base base -o kept.model --eta 0.3",
)


def timed(source: Path, words: str, folder: Path) -> float:
    """Seconds of one command."""
    environment = os.environ | {"PYTHONPATH": str(source), "HOME": str(folder)}
    (folder / "new.sqlite").unlink(missing_ok=True)
    start = perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", MAIN, *words.split()],
        cwd=folder, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    seconds = perf_counter() - start
    if done.returncode:
        sys.exit(f"fewview {words} with {source} failed:\n{done.stderr}")
    return seconds


def test_seconds(source: Path) -> float:
    """Seconds of the test suite beside a source folder, as `make test` runs it."""
    environment = os.environ | {"PYTHONPATH": str(source)}
    start = perf_counter()
    words = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "loadfile", "tests"]
    subprocess.run(words, cwd=source.parent, env=environment, capture_output=True, check=False)
    return perf_counter() - start


def bench_seconds(source: Path, folder: Path, given: list[str]) -> dict[str, float]:
    """Seconds per task of every job in the table of `make bench`."""
    environment = os.environ | {"PYTHONPATH": str(source)}
    words = [sys.executable, "benchmarks/table.py", "--output", str(folder), *given]
    subprocess.run(words, cwd=source.parent, env=environment, capture_output=True, check=True)
    rows = json.loads((folder / "table-cpu.json").read_text())["rows"]
    return {f"{row['job']}, {row['dataset']}": row["seconds"] / row["tasks"] for row in rows}


def in_turn(
    rounds: int, measure: Callable[[Path], Found], other: Path
) -> tuple[list[Found], list[Found]]:
    """Measure this version and another in turn; which one begins changes every round."""
    found: dict[Path, list[Found]] = {HERE: [], other: []}
    for number in range(rounds):
        for source in (HERE, other) if number % 2 else (other, HERE):
            found[source].append(measure(source))
    return found[HERE], found[other]


def line(name: str, here: list[float], there: list[float]) -> str:
    """One row of the table."""
    ratios = [one / other for one, other in zip(here, there, strict=True)]
    return (
        f"{name:<44}{median(ratios):>6.2f}  ({min(ratios):.2f} to {max(ratios):.2f})"
        f"{median(here):>10.4g}{median(there):>10.4g}"
    )


def main() -> None:
    """Print one line per command."""
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("other", type=Path, help="the src folder of another checkout")
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--bench", type=int, default=0, help="rounds of the table of make bench")
    options.add_argument("--bench-options", default="", help="options of benchmarks/table.py")
    options.add_argument("--tests", type=int, default=0, help="rounds of the test suites")
    chosen = options.parse_args()
    other = chosen.other.resolve()
    print(f"{'command':<44}{'ratio':>6}  {'range':<16}{'here s':>6}{'there s':>10}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_tables(folder)
        for words in KEPT:
            timed(other, words, folder)
        for title, words in COMMANDS.items() if chosen.rounds else ():
            seconds = in_turn(chosen.rounds, partial(timed, words=words, folder=folder), other)
            print(line(title, *seconds), flush=True)
        given = chosen.bench_options.split()
        measure = partial(bench_seconds, folder=folder, given=given)
        here, there = in_turn(chosen.bench, measure, other)
        for job in here[0] if here else ():
            print(line(job, *([found[job] for found in side] for side in (here, there))))
    if chosen.tests:
        print(line("tests", *in_turn(chosen.tests, test_seconds, other)))


if __name__ == "__main__":
    main()
