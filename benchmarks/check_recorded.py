"""Check recorded results against a fresh run of a sample of them.

    python benchmarks/check_recorded.py --cells 20
    python benchmarks/check_recorded.py --cells 5 --seed 1 --splits 10 --seconds 120

Rows are drawn at random from those whose data are here and that are cheap enough. One class split
of each, or several, is computed again through the ordinary path, without a store. Its mean has to
be the recorded one to within a tolerance that is printed; exit status 1 when one is off.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Iterator
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from time import perf_counter
from typing import Any

from common import print_table

from fewview.datasets._catalogue import is_present
from fewview.engine._registry import create
from fewview.evaluate._runner import run
from fewview.ground._errors import FewviewError
from fewview.paper._compute import Gathered, kinds_of
from fewview.paper._recorded import FOLDER, read_rows, stale
from fewview.paper._studies import Part, Wish, parts_of

# Points of accuracy. Rounding differs between kinds of device, and with it the path of an
# optimiser; networks start from other random numbers there.
SAME_DEVICE, OTHER_DEVICE = 0.1, 0.5
NETWORKS = 6.0  # times as much for methods that train networks
OTHER_KIND = 20.0  # times as long as recorded, at most, on another kind of device
QUERIES = 2  # and never less than so many queries


def wish_of(stem: str, data_dir: str | None, device: str) -> Wish:
    """The options that a file's name tells: `cub--solver-adam`."""
    found: dict[str, Any] = {}
    known = {item.name for item in fields(Wish)}
    for word in stem.split("--")[1:]:
        name, _, value = word.partition("-")
        if name not in known:
            raise FewviewError(f"{stem}: no option --{name}")
        found[name] = value or True
    return Wish(data_dir=data_dir, device=device, **found)


@cache
def parts(name: str, wish: Wish) -> list[Part]:
    return parts_of(name, wish)


def part_of(stem: str, row: dict[str, Any], options: argparse.Namespace) -> Part | None:
    """The part of a study that a row was recorded from."""
    name, role = stem.partition("--")[0], row["role"]
    if role == "likely splits":  # a table's own rows, on class splits that were found likely
        (name, role) = (row["tag"][0], "table")
    for part in parts(name, wish_of(stem, options.data_dir, options.device)):
        same = (part.role, part.tag) == (role, row["tag"])
        if same and part.methods.get(row["label"]) == row["method"]:
            return part
    return None


def candidates(records: Path, options: argparse.Namespace) -> Iterator[tuple[str, dict[str, Any]]]:
    """Rows whose data are here and that can be computed in time."""
    (here, *_) = kinds_of(options.device)
    for path in sorted(records.glob("*.csv")):
        for row in read_rows(path):
            present = all(is_present(row[k], options.data_dir) for k in ("dataset", "base"))
            splits = min(options.splits, len(row["split_means"]))
            episodes = row["episodes"] / len(row["split_means"])
            slower = 1 if row["device"] == here else OTHER_KIND
            expected = (
                slower
                * splits
                * (row["seconds_per_episode"] * episodes + row["seconds_base_per_split"])
            )
            if present and expected <= options.seconds:
                yield path.stem, row


def tolerance(row: dict[str, Any], kind: str) -> float:
    """How far a mean over one class split may be from the recorded one, in points."""
    base = SAME_DEVICE if kind == row["device"] else OTHER_DEVICE
    if create(row["method"]).tags.trained:
        base *= NETWORKS
    queries = row["way"] * row["queries"] * row["episodes"] / len(row["split_means"])
    return max(base, 100 * QUERIES / queries)


def check(stem: str, row: dict[str, Any], options: argparse.Namespace) -> tuple[bool, list[str]]:
    """Compute class splits of a row again: whether they agree, and a line that tells."""
    line = [stem, str(row["label"]), row["dataset"], f"{row['eta']:g}", row["device"]]
    part = part_of(stem, row, options)
    why = stale([row], options.records)
    if part is None or why:
        return False, [*line, "-", "-", "-", "-", "-", why[0] if why else "no longer in the study"]
    start = perf_counter()
    # The rate as the study has it: patterns of missing views decide theirs themselves.
    etas = [eta for eta in part.grid.etas if abs(eta - row["eta"]) < 1e-6] or [row["eta"]]
    numbers = sorted(row["split_means"])
    chosen = random.Random(options.seed).sample(numbers, min(options.splits, len(numbers)))
    episodes = row["episodes"] // len(numbers)
    grid = replace(part.grid, methods=(row["method"],), etas=tuple(etas), splits=tuple(chosen),
                   episodes=episodes)  # fmt: skip
    outcome = run(grid)
    took = perf_counter() - start
    if outcome.failures:
        return False, [*line, "-", "-", "-", "-", f"{took:.1f}", outcome.failures[0][1]]
    now = Gathered(part, outcome.cells, outcome.results).per_split(row["method"], row["eta"])
    worst = max(now, key=lambda k: abs(now[k] - row["split_means"][k]))
    gap = now[worst] - row["split_means"][worst]
    allowed = tolerance(row, kinds_of(options.device)[0])
    good = abs(gap) <= allowed + 1e-4  # recorded means have four decimals
    numbers = [f"{row['split_means'][worst]:.3f}", f"{now[worst]:.3f}", f"{gap:+.3f}"]
    return good, [*line, *numbers, f"{allowed:.2f}", f"{took:.1f}", "yes" if good else "NO"]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cells", type=int, default=20, help="number of rows to check")
    parser.add_argument("--seed", type=int, default=0, help="another seed draws other rows")
    parser.add_argument("--splits", type=int, default=1, help="class splits of each row")
    parser.add_argument("--seconds", type=float, default=30, help="most expected of a row")
    parser.add_argument("--device", default="cpu", help="cpu, cuda or auto")
    parser.add_argument("--data-dir", default=None, help="default: $FEWVIEW_DATA")
    parser.add_argument("--records", type=Path, default=FOLDER, help="folder of recorded results")
    options = parser.parse_args()
    found = list(candidates(options.records, options))
    if not found:
        print(f"{options.records}: no recorded row whose data are here", file=sys.stderr)
        return 2
    chosen = random.Random(options.seed).sample(found, min(options.cells, len(found)))
    lines, bad = [], 0
    for number, (stem, row) in enumerate(chosen, 1):
        print(f"[{number}/{len(chosen)}] {stem} {row['label']} {row['eta']:g}", file=sys.stderr)
        good, line = check(stem, row, options)
        lines.append(line)
        bad += not good
    print_table(
        ("file", "line", "data set", "eta", "device", "recorded", "now", "difference", "tolerance",
         "seconds", "agrees"), lines,
    )  # fmt: skip
    print(
        f"{len(lines) - bad} of {len(lines)} rows agree ({len(found)} rows could be checked; "
        f"{options.splits} class split(s) of each, the worst one shown; seed {options.seed})"
    )
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
