"""How far does one answer travel? Functions called and changes of room on the way of a command.

Run: python benchmarks/travel.py [SOURCE]

Two commands are traced in processes of their own: `fewview predict` of one query from CSV tables
with a model of Marginal, and one cell of `fewview bench` (Proto on digits, eta 0.3, into a new
store). Counted are the different named functions of the package that are called, functions that
run while a module is imported left out, and, in the order of their first call, how often the next
one lies in another room (folder). SOURCE is another checkout's `src` folder, for comparison.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

HERE = Path(__file__).resolve().parent.parent / "src"
# Rooms that were one in the first version, which had eight: so its changes can be compared.
ONE_BEFORE = dict.fromkeys(("ground", "files", "samples"), "views")
ONE_BEFORE |= dict.fromkeys(("numerics", "engine"), "methods") | {"results": "evaluate"}
ONE_BEFORE |= dict.fromkeys(("drawing", "paper"), "report")
TABLES = {
    "base": (0, 6, 20),
    "support": (6, 3, 2),
    "query": (6, 1, 1),
}


def write_tables(folder: Path) -> None:
    """Base classes, supports of three new classes and one query: one CSV table per view."""
    import numpy as np

    centres = np.random.default_rng(0).normal(size=(9, 3)) * 3
    for name, (first, classes, each) in TABLES.items():
        (folder / name).mkdir()
        rng = np.random.default_rng(first + each)
        codes = np.repeat(np.arange(first, first + classes), each)
        hidden = centres[codes] + 0.3 * rng.normal(size=(len(codes), 3))
        for k, (view, width) in enumerate({"blood": 4, "scan": 6}.items()):
            block = hidden @ np.random.default_rng(k + 1).normal(size=(3, width))
            rows = [
                ",".join([f"{name}{n}", *(f"{x:.3f}" for x in row)]) for n, row in enumerate(block)
            ]
            header = ",".join(["id", *(f"{view}{c}" for c in range(width))])
            (folder / name / f"{view}.csv").write_text("\n".join([header, *rows]) + "\n")
        if name != "query":
            labels = [f"{name}{n},class {code}" for n, code in enumerate(codes)]
            (folder / name / "labels.csv").write_text("\n".join(["id,label", *labels]) + "\n")


def traced(source: Path, arguments: list[str]) -> list[str]:
    """The rooms of the functions that a command calls, in the order of first calls."""
    package = os.path.join(source, "fewview") + os.sep
    found: dict[tuple[str, str], str] = {}

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(package):
            return
        if code.co_name.startswith("<") or (code.co_filename, code.co_qualname) in found:
            return
        above = frame.f_back
        while above is not None:
            importing = above.f_code.co_name == "<module>"
            if importing and above.f_code.co_filename.startswith(package):
                return
            above = above.f_back
        place = code.co_filename[len(package) :].split(os.sep)
        found[code.co_filename, code.co_qualname] = place[0] if len(place) > 1 else "."

    from fewview.cli import main

    sys.argv = ["fewview", *arguments]
    sys.setprofile(note)
    try:
        main()
    except SystemExit as stop:
        if stop.code:
            raise
    finally:
        sys.setprofile(None)
    return list(found.values())


def changes(rooms: list[str]) -> int:
    """How often the next function lies in another room."""
    return sum(one != two for one, two in pairwise(rooms))


def main(source: Path) -> None:
    """Trace both commands."""
    environment = {**os.environ, "PYTHONPATH": str(source), "PYTHONWARNINGS": "ignore"}

    def run(*command: str) -> str:
        done = subprocess.run(
            [sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_tables(folder)
        run("-m", "fewview", "fit", "--base", "base", "-o", "base.model")
        for what, command in (
            ("predict", "predict --model base.model --support support --query query -o out.csv"),
            ("bench", "bench digits --methods proto --eta 0.3 --splits 1 --store new.sqlite"),
        ):
            told = run(__file__, "--trace", str(source), *command.split()).splitlines()[-1]
            print(f"{what:8} {told}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--trace"]:
        rooms = traced(Path(sys.argv[2]), sys.argv[3:])
        joined = changes([ONE_BEFORE.get(room, room) for room in rooms])
        print(
            f"{len(rooms)} functions, {changes(rooms)} changes of room "
            f"({joined} between the rooms of the first version)"
        )
    else:
        main(Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else HERE)
