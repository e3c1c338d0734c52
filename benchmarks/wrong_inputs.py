"""Forty kinds of wrong input, and what is printed: a table for docs/wrong-inputs.md.

Run: python benchmarks/wrong_inputs.py > docs/wrong-inputs.md

Every case is made in a folder of its own, and the command is run on it. A traceback, or an input
that is not what it was before, is a failure, and the script says so and ends with status 1.
"""

# ruff: noqa: E501
from __future__ import annotations

import hashlib
import io
import os
import re
import sys
import tempfile
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import numpy as np

from fewview.cli import main as fewview

FIT = "fit --base base --method proto -o a.model"
PREDICT = "predict --model a.model --support support --query query -o p.csv"
ONE = "predict --data all --method proto -o p.csv"
SHOW = "data show base"


def tables(folder: Path) -> None:
    """Folders base, support and query with the views blood and scan, and `all` of them."""
    rng = np.random.default_rng(0)
    parts = {"base": "PQRS", "support": "XY", "query": "XY"}
    centres = {name: 3 * rng.normal(size=5) for name in "PQRSXY"}
    lines: dict[str, list[str]] = {"blood": [], "scan": [], "labels": []}
    for part, classes in parts.items():
        own: dict[str, list[str]] = {"blood": [], "scan": [], "labels": []}
        for row, name in enumerate(classes * {"base": 10, "support": 2, "query": 6}[part]):
            sample = f"{part[0]}{row}"
            numbers = [f"{x:.4f}" for x in centres[name] + rng.normal(size=5)]
            own["blood"].append(f"{sample},{','.join(numbers[:3])},{'hay' if row % 2 else 'corn'}")
            own["scan"].append(f"{sample},{','.join(numbers[3:])}")
            own["labels"].append(f"{sample},{name}")
        (folder / part).mkdir()
        for view, rows in own.items():
            put(folder / part / f"{view}.csv", [HEAD[view], *rows])
            lines[view] += rows if (view, part) != ("labels", "query") else []
    (folder / "all").mkdir()
    for view, rows in lines.items():
        put(folder / "all" / f"{view}.csv", [HEAD[view], *rows])


HEAD = {"blood": "id,hb,crp,iron,diet", "scan": "id,area,depth", "labels": "id,label"}


def put(file: Path, rows: list[str]) -> None:
    """Write lines."""
    file.write_text("\n".join(rows) + "\n", encoding="utf-8")


def change(file: str, old: str, new: str, count: int = -1) -> Callable[[], None]:
    """Replace text in a file."""

    def act() -> None:
        path = Path(file)
        text = path.read_text(encoding="utf-8")
        assert old in text, (file, old)
        path.write_text(text.replace(old, new, count), encoding="utf-8")

    return act


def cells(
    file: str, act: Callable[[list[str]], list[str]], rows: slice = slice(None)
) -> Callable[[], None]:
    """Change the cells of some lines after the head."""

    def run() -> None:
        path = Path(file)
        head, *body = path.read_text(encoding="utf-8").splitlines()
        body[rows] = [",".join(act(line.split(","))) for line in body[rows]]
        put(path, [head, *body])

    return run


def write(file: str, content: str | bytes) -> Callable[[], object]:
    """Write a file."""
    data = content if isinstance(content, bytes) else content.encode()
    return lambda: Path(file).write_bytes(data)


def both(*acts: Callable[[], object]) -> Callable[[], None]:
    """Do one thing after another."""

    def run() -> None:
        for act in acts:
            act()

    return run


def nothing() -> None:
    """Leave everything as it is."""


def save_npz(**arrays: object) -> Callable[[], None]:
    """Write mine.npz."""
    return lambda: np.savez("mine.npz", **arrays)  # type: ignore[arg-type]


CASES: list[tuple[str, Callable[[], object], str]] = [
    ("empty cells in a table", cells("query/blood.csv", lambda c: [c[0], "", *c[2:]]), PREDICT),
    ("a word in a column of numbers", cells("base/blood.csv", lambda c: [c[0], "high", *c[2:]], slice(3, 4)), SHOW),
    ("decimal commas", cells("base/scan.csv", lambda c: [c[0], '"' + c[1].replace(".", ",") + '"', c[2]]), SHOW),
    ("an infinite number", cells("base/scan.csv", lambda c: [c[0], "inf", c[2]], slice(1)), SHOW),
    ("a category that was never seen", cells("query/blood.csv", lambda c: [*c[:-1], "fish"]), PREDICT),
    ("a word where numbers were learnt", cells("query/scan.csv", lambda c: [c[0], "far", c[2]]), PREDICT),
    ("a column is not there", change("query/scan.csv", "depth", "width"), PREDICT),
    ("none of the columns is there", change("query/scan.csv", "id,area,depth", "id,u,v"), PREDICT),
    ("a new sensor in the supports", both(lambda: Path("support/new.csv").write_text(Path("support/scan.csv").read_text()), lambda: Path("query/new.csv").write_text(Path("query/scan.csv").read_text())), PREDICT),
    ("a view only in the base set", both(lambda: Path("support/scan.csv").unlink(), lambda: Path("query/scan.csv").unlink()), PREDICT),
    ("a misspelt view", lambda: Path("query/scan.csv").rename("query/scans.csv"), PREDICT),
    ("ids with spaces in one table", cells("base/scan.csv", lambda c: [f" {c[0]} ", *c[1:]]), SHOW),
    ("ids 0.0, 1.0 against 0, 1", both(cells("base/blood.csv", lambda c: [c[0][1:], *c[1:]]), cells("base/labels.csv", lambda c: [c[0][1:], *c[1:]]), cells("base/scan.csv", lambda c: [c[0][1:] + ".0", *c[1:]])), SHOW),
    ("an id twice", cells("base/scan.csv", lambda c: ["b0", *c[1:]], slice(2, 3)), SHOW),
    ("no id in a row", cells("base/scan.csv", lambda c: ["", *c[1:]], slice(2, 3)), SHOW),
    ("no column id anywhere", both(*(change(f"base/{v}.csv", "id,", "who,", 1) for v in HEAD)), SHOW),
    ("a key that is no column", nothing, f"{SHOW} --key mouse"),
    ("labels of nobody", cells("base/labels.csv", lambda c: ["zz", *c[1:]], slice(1)), SHOW),
    ("a label column that is not there", nothing, f"{SHOW} --labels grop"),
    ("no labels at all", lambda: Path("support/labels.csv").unlink(), PREDICT),
    ("a base class among the supports", change("support/labels.csv", "X", "P"), PREDICT),
    ("supports of one class", change("support/labels.csv", "Y", "X"), PREDICT),
    ("a sample without any view", both(cells("query/blood.csv", lambda c: [c[0], "", "", "", ""], slice(1)), cells("query/scan.csv", lambda c: [c[0], "", ""], slice(1))), PREDICT),
    ("a line that is too short", change("base/scan.csv", "b3,", "b3\nb99,", 1), SHOW),
    ("thousands with commas", cells("base/scan.csv", lambda c: [c[0], '"1,234.5"', *c[2:]]), SHOW),
    ("not UTF-8", write("base/scan.csv", "id,gr\xf6sse\nb0,1\n".encode("latin-1")), SHOW),
    ("an empty file", write("base/scan.csv", ""), SHOW),
    ("no such folder", nothing, "data show nowhere/"),
    ("an array instead of a folder", lambda: np.save("a.npy", np.ones((3, 2))), "data show a.npy"),
    ("a pickle in an .npz", save_npz(view_a=np.array([[{}]], dtype=object)), "data show mine.npz"),
    ("an .npz that was cut", both(save_npz(view_a=np.ones((9, 9))), lambda: Path("mine.npz").write_bytes(Path("mine.npz").read_bytes()[:200])), "data show mine.npz"),
    ("a model that was cut", lambda: Path("a.model").write_bytes(Path("a.model").read_bytes()[:-9]), PREDICT),
    ("a model that was altered", lambda: flip(Path("a.model")), PREDICT),
    ("-o on an input", nothing, "predict --model a.model --support support --query query -o query/blood.csv"),
    ("-o into a folder of inputs", nothing, "fit --base base --method proto -o base/new.model"),
    ("-o on the file that is converted", save_npz(view_a=np.ones((3, 2))), "data convert mine.npz mine.npz"),
    ("--new of a class that is not there", nothing, f"{ONE} --new X,Z"),
    ("everything has a label", lambda: put(Path("all/labels.csv"), [HEAD["labels"], *(f"{line.split(',')[0]},{'XYPQ'[k % 4]}" for k, line in enumerate(Path("all/blood.csv").read_text().splitlines()[1:]))]), f"{ONE} --new X,Y"),
    ("--data and --query", nothing, f"{ONE} --query query"),
    ("a method that does not exist", nothing, "fit --base base --method margnal -o b.model"),
]  # fmt: skip


def flip(file: Path) -> None:
    """Alter the last byte of a file."""
    content = file.read_bytes()
    file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))


def run(command: str) -> tuple[int, str]:
    """Exit status, and what a command prints but for its usual words."""
    told, errors, code = io.StringIO(), io.StringIO(), 0
    sys.argv = ["fewview", *command.split()]
    try:
        with redirect_stdout(told), redirect_stderr(errors):
            fewview()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except Exception as error:
        return 99, f"Traceback: {error!r}"
    lines = errors.getvalue().splitlines()
    said = [line for line in lines if line.startswith(("error:", "warning:", "queries:", "view "))]
    return code, " ".join(dict.fromkeys(said)) or told.getvalue().splitlines()[-1]


def hashes() -> dict[str, str]:
    """Contents of all inputs."""
    return {
        str(file): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(Path().rglob("*"))
        if file.is_file() and file.name not in ("p.csv", "b.model")
    }


def main() -> None:
    """Print the table."""
    bad: list[str] = []
    print("# Wrong inputs\n")
    print(
        f"What {len(CASES)} kinds of wrong input lead to, written by\n"
        "`python benchmarks/wrong_inputs.py`. Status 0 means that the command went on, with a word where\n"
        "one is due; 2 that it refused. In no case is an input changed.\n"
    )
    print("| wrong | command | status | what is printed |\n|---|---|---|---|")
    before = Path.cwd()
    for name, act, command in CASES:
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            tables(Path())
            status, said = run(FIT)
            assert status == 0, said
            act()
            inputs = hashes()
            status, said = run(command)
            if status not in (0, 2) or hashes() != inputs:
                bad.append(name)
            os.chdir(before)
        # Times are in the file, so that its size differs from run to run.
        said = re.sub(r"\d+ bytes instead of \d+", "N bytes instead of M", said)
        said = said.replace("|", "\\|").replace("<", "&lt;").replace(folder, "")
        print(f"| {name} | `{command}` | {status} | {said} |", flush=True)
    if bad:
        print(f"failed: {', '.join(bad)}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
