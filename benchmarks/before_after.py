"""Is another version of fewview slower? The same commands with both, in turn, as ratios.

    python benchmarks/before_after.py OTHER_SRC [--rounds 5]

OTHER_SRC is the `src` folder of another checkout, for instance of `git worktree add ../old COMMIT`.
Every command runs in a process of its own, once with each version and then again, so that a busy
machine is busy for both. Shown is the median over rounds of time here / time there, with the
smallest and largest: below 1 this version is faster.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter

import numpy as np

HERE = Path(__file__).resolve().parent.parent / "src"
MAIN = "import sys; from fewview.cli import main; main()"
BENCH = "bench digits --splits 4 --store none"
COMMANDS = {
    "--help": "--help",
    "methods ugda": "methods ugda",
    "data show digits": "data show digits",
    "bench: proto, rfs, ptmap": f"{BENCH} --methods proto,rfs,ptmap --eta 0,0.3,0.5 --episodes 100",
    "bench: ugda": f"{BENCH} --methods ugda --eta 0.3 --episodes 50",
    "bench: marginal": f"{BENCH} --methods marginal --eta 0.3 --episodes 100",
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


def write_tables(folder: Path) -> None:
    """Base classes, supports of three new classes and one query: one CSV table per view."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(9, 10)) * 3
    for name, codes in {
        "base": np.repeat(np.arange(6), 20), "support": np.arange(6, 9), "query": np.array([6]),
    }.items():  # fmt: skip
        (folder / name).mkdir()
        rows = centres[codes] + rng.normal(size=(len(codes), 10))
        for view, block in {"blood": rows[:, :4], "scan": rows[:, 4:]}.items():
            lines = [",".join([f"{name}{n}", *map(str, row)]) for n, row in enumerate(block)]
            head = ",".join(["id", *(f"{view}{column}" for column in range(block.shape[1]))])
            (folder / name / f"{view}.csv").write_text("\n".join([head, *lines]) + "\n")
        if name != "query":
            labels = [f"{name}{n},class {code}" for n, code in enumerate(codes)]
            (folder / name / "labels.csv").write_text("\n".join(["id,label", *labels]) + "\n")


def in_turn(
    rounds: int, measure: Callable[[Path], float], other: Path
) -> tuple[list[float], list[float]]:
    """Measure this version and another in turn; which one begins changes every round."""
    found: dict[Path, list[float]] = {HERE: [], other: []}
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
    chosen = options.parse_args()
    other = chosen.other.resolve()
    print(f"{'command':<44}{'ratio':>6}  {'range':<16}{'here s':>6}{'there s':>10}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_tables(folder)
        for words in KEPT:
            timed(other, words, folder)
        for title, words in COMMANDS.items():
            seconds = in_turn(chosen.rounds, partial(timed, words=words, folder=folder), other)
            print(line(title, *seconds), flush=True)


if __name__ == "__main__":
    main()
