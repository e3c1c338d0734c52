"""How long commands take to start, against `python -c "import torch"`, in processor time.

python benchmarks/starting.py

Every command runs `--repeats` times in turn, and the least processor time of each counts, so that
other work on the machine does not; with one thread, since others that wait count too. The commands
do next to nothing once they have started.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from common import keep_table, print_table

from fewview.engine._checks import synthetic_data


def seconds(command: list[str]) -> float:
    """Processor time of a command and its children."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    usual = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    usual["OMP_NUM_THREADS"] = "1"
    subprocess.run([sys.executable, *command], capture_output=True, check=True, env=usual)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return sum(getattr(after, n) - getattr(before, n) for n in ("ru_utime", "ru_stime"))


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--repeats", type=int, default=5)
    options.add_argument("--output", default=None, help="file for the documentation")
    arguments = options.parse_args()
    repeats = arguments.repeats
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        base, novel = synthetic_data()
        base.write(folder / "base.npz")
        novel.write(folder / "novel.npz")
        run = ["-m", "fewview"]
        small = ["--splits", "1", "--episodes", "1", "--store", "none"]
        asked = ["--support", str(folder / "novel.npz"), "--query", str(folder / "novel.npz")]
        commands = {
            "import torch": ["-c", "import torch"],
            "fewview --help": [*run, "--help"],
            "fewview methods ugda": [*run, "methods", "ugda"],
            "fewview bench digits": [*run, "bench", "digits", "--methods", "proto", *small],
            "fewview predict": [*run, "predict", "--method", "proto", *asked, "-o",
                                str(folder / "o.csv")],
            "fewview fit": [*run, "fit", "--base", str(folder / "base.npz"), "--method", "proto",
                            "-o", str(folder / "a.model")],
        }  # fmt: skip
        best = dict.fromkeys(commands, float("inf"))
        for _ in range(repeats):
            for text, command in commands.items():
                best[text] = min(best[text], seconds(command))
    torch = best["import torch"]
    rows = [[text, f"{took:.2f}", f"{took / torch:.2f}"] for text, took in best.items()]
    header = ("command", "processor seconds", "x import torch")
    print_table(header, rows)
    keep_table(arguments.output, "Starting", "cpu", header, rows)


if __name__ == "__main__":
    main()
