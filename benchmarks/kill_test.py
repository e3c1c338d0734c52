"""The kill test: a grid that is killed with -9 three times and resumed equals an uninterrupted one.

    python benchmarks/kill_test.py [--jobs 2] [--seed 0] [--methods proto,match,ptmap]

Prints what was stored at every kill and exits with status 1 if a single number differs.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from fewview.results._store import Store
from fewview.samples import FewviewError


def command(options: argparse.Namespace, store: Path, out: Path) -> list[str]:
    return [
        sys.executable, "-m", "fewview.evaluate", "digits", "--methods", options.methods,
        "--eta", "0,0.1,0.2,0.3,0.4,0.5", "--splits", str(options.splits), "--episodes", "40",
        "--jobs", str(options.jobs), "--store", str(store), "--json", str(out),
    ]  # fmt: skip


def stored(path: Path) -> int:
    try:
        with Store(path, write=False) as store:
            return len(store)
    except FewviewError:
        return 0


def numbers(path: Path) -> list[dict[str, object]]:
    timing = ("seconds", "seconds_base")
    rows = json.loads(path.read_text())
    return [{key: value for key, value in row.items() if key not in timing} for row in rows]


def orphans_end(group: int, limit: float = 20.0) -> float:
    """Wait until no worker of a killed parent is left; return how long that took."""
    start = time.monotonic()
    while time.monotonic() - start < limit:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return time.monotonic() - start
        time.sleep(0.05)
    raise SystemExit("worker processes outlived their parent")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seed", type=int, default=None, help="of the moments; random by default")
    parser.add_argument("--methods", default="proto,match,ptmap")
    parser.add_argument("--splits", type=int, default=6)
    options = parser.parse_args()
    chance = random.Random(options.seed)
    folder = Path(tempfile.mkdtemp(prefix="fewview-kill-"))
    whole_store, whole = folder / "whole.sqlite", folder / "whole.json"
    start = time.monotonic()
    subprocess.run(command(options, whole_store, whole), check=True, capture_output=True)
    duration = time.monotonic() - start
    total = stored(whole_store)
    print(f"uninterrupted: {total} cells in {duration:.1f} s")
    store, out = folder / "killed.sqlite", folder / "killed.json"
    before = 0
    for kill in range(1, 4):
        # A moment in the middle of the work, not in the seconds that importing takes.
        target = chance.randint(before + 1, max(before + 1, kill * total // 4))
        process = subprocess.Popen(
            command(options, store, out), stderr=subprocess.DEVNULL, start_new_session=True
        )
        while stored(store) < target and process.poll() is None:
            time.sleep(0.01)
        time.sleep(chance.uniform(0.0, 0.1))
        if process.poll() is not None:
            print(f"kill {kill} came too late: the grid was finished")
            return 1
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        before = stored(store)
        left = orphans_end(process.pid)
        print(f"kill {kill}: {before} of {total} cells stored, workers gone after {left:.1f} s")
    subprocess.run(command(options, store, out), check=True, capture_output=True)
    equal = numbers(out) == numbers(whole)
    print(f"resumed: {stored(store)} cells; numbers {'equal' if equal else 'DIFFER'}")
    return 0 if equal and stored(store) == total else 1


if __name__ == "__main__":
    sys.exit(main())
