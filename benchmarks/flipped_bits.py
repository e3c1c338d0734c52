"""What does a damaged store do? Flips random bits of a store, one at a time, and reads it again.

    python benchmarks/flipped_bits.py [--flips 400] [--store FILE]

Every damaged copy is read as `fewview results`, `bench` (which also writes) and `--repair` do.
Counts copies that gave the same results, that reported damage, that gave other results without a
word (must be none) and that ended in another error (must be none). Without --store the store is
made up; a store of before there were digests can be checked by its keys and means only.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from fewview.ground._errors import FewviewError, FewviewWarning
from fewview.results._cells import Result, example_cell
from fewview.results._metrics import measure
from fewview.results._repairing import repair_store
from fewview.results._store import Store

SAME, REPORTED, SILENT, CRASHED = "same results", "reported", "silently different", "traceback"
AGAIN = "absent, so computed again"
ENDS = ("", "-wal", "-shm", ".lock", ".holder", ".damaged", ".damaged-wal", ".damaged-shm")


def make_store(path: Path, n_cells: int = 120) -> None:
    rng = np.random.default_rng(0)
    with Store(path) as store:
        for number in range(n_cells):
            cell = example_cell(
                split=number % 10, eta=number // 10 / 20, novel=(str(number % 10), "7", "8")
            )
            metrics = measure(rng.normal(size=(40, 90, 3)), rng.integers(0, 3, size=(40, 90)))
            store.add(Result(cell=cell, metrics=metrics, seconds=rng.random(), seconds_base=0.1))
        for number in range(20):
            store.add_choice(f"{number:064d}", {"index": number, "accuracy": rng.random()})


def flip(path: Path, bit: int) -> None:
    with path.open("r+b") as file:
        file.seek(bit // 8)
        value = file.read(1)[0] ^ (1 << bit % 8)
        file.seek(bit // 8)
        file.write(bytes([value]))


def plain(results: list[Result]) -> dict[str, Any]:
    """Everything that people see of results, to be compared exactly."""
    out = {}
    for result in results:
        values = asdict(result)
        metrics = {name: array.tobytes() for name, array in values.pop("metrics").items()}
        out[result.cell.hash] = (values, metrics)
    return out


def read_all(path: Path) -> Any:
    with Store(path, write=False) as store:
        return plain(store.select()), store.all_choices()


def judge(function: Any, truth: Any, subset: bool = False) -> str:
    """Say how reading a damaged copy ended."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            found = function()
        except FewviewError as error:
            return REPORTED if "\n" not in str(error) else CRASHED
        except Exception:
            traceback.print_exc()
            return CRASHED
    told = any(issubclass(one.category, FewviewWarning) for one in caught)
    pairs = list(zip(found, truth, strict=True))
    if any(key not in right or some[key] != right[key] for some, right in pairs for key in some):
        return SILENT
    if all(len(some) == len(right) for some, right in pairs):
        return REPORTED if told else SAME
    return REPORTED if told else AGAIN if subset else SILENT


def trial(path: Path, truth: Any) -> dict[str, str]:
    """Read one damaged copy in the three ways; the last one repairs it."""

    def as_bench() -> Any:
        with Store(path, wait=0) as store:
            results = store.get(truth[0])
            store.known_identities(["0" * 64])
            return plain([*results.values()]), store.all_choices()

    def repaired() -> Any:
        repair_store(str(path))
        return read_all(path)

    with_where = plain([])

    def filtered() -> Any:
        with Store(path, write=False) as store:
            return plain(store.select(["eta>=0.3"])), with_where

    wanted = {key: value for key, value in truth[0].items() if value[0]["cell"]["eta"] >= 0.3}
    return {
        "results": judge(lambda: read_all(path), truth),
        "results --where": judge(filtered, (wanted, with_where)),
        "bench": judge(as_bench, truth, subset=True),
        "repair, results": judge(repaired, truth, subset=True),
    }


def run(flips: int, store: Path | None = None, seed: int = 0) -> dict[str, Counter[str]]:
    """Flip bits of a store, each in a fresh copy, and count how reading it ended."""
    counts: dict[str, Counter[str]] = {}
    with tempfile.TemporaryDirectory(prefix="fewview-bits-") as folder:
        whole, copy = Path(folder) / "whole.sqlite", Path(folder) / "copy.sqlite"
        if store is None:
            make_store(whole)
        else:
            shutil.copy(store, whole)
        truth = read_all(whole)
        bits = np.random.default_rng(seed).integers(0, 8 * whole.stat().st_size, size=flips)
        for bit in bits.tolist():
            for end in ENDS:
                Path(f"{copy}{end}").unlink(missing_ok=True)
            shutil.copy(whole, copy)
            flip(copy, bit)
            for way, ended in trial(copy, truth).items():
                counts.setdefault(way, Counter())[ended] += 1
                if ended in (SILENT, CRASHED):
                    print(f"bit {bit}: {way}: {ended}", file=sys.stderr)
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--flips", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--store", type=Path)
    options = parser.parse_args()
    counts = run(options.flips, options.store, options.seed)
    header = (SAME, REPORTED, AGAIN, SILENT, CRASHED)
    print(f"{'':<18}" + "".join(f"{name:>28}" for name in header))
    for way, found in counts.items():
        print(f"{way:<18}" + "".join(f"{found[name]:>28}" for name in header))
    sys.exit(any(found[SILENT] or found[CRASHED] for found in counts.values()))


if __name__ == "__main__":
    main()
