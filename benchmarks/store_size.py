"""How fast is a large store? Writes 10 000 made-up cells, then opens, filters and exports them.

    python benchmarks/store_size.py [--cells 10000]

Prints seconds per step and the size of the file.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from fewview.cli._stored import GROUP_COLUMNS
from fewview.ground._rows import save
from fewview.results._cells import Result, example_cell
from fewview.results._metrics import measure
from fewview.results._store import Store
from fewview.results._summaries import summarise_stored


def timed(what: str, function: Callable[[], Any]) -> Any:
    start = time.perf_counter()
    out = function()
    print(f"{what:<34}{time.perf_counter() - start:8.2f} s")
    return out


def fill(path: Path, count: int) -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, size=(40, 90))
    with Store(path) as store:
        for number in range(count):
            split, rest = number % 10, number // 10
            eta, method = rest % 6, rest // 6
            cell = example_cell(
                novel=(f"{split}", "7", "8", "9"),
                split=split,
                eta=eta / 10,
                method=f"proto:parameter={method}",
                parameters=f"parameter={method}",
            )
            metrics = measure(rng.normal(size=(40, 90, 3)), labels)
            store.add(Result(cell=cell, metrics=metrics, seconds=0.1, seconds_base=0.1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cells", type=int, default=10_000)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="fewview-store-"))
    path = folder / "large.sqlite"
    timed(f"write {options.cells} cells", lambda: fill(path, options.cells))
    print(f"size {path.stat().st_size / 2**20:.1f} MiB")
    store = timed("open", lambda: Store(path, write=False))
    some = timed("filter: eta=0.3", lambda: store.select(["eta=0.3"]))
    print(f"  {len(some)} cells")
    every = timed("read all with episodes", lambda: store.select())
    rows = timed("sum up with intervals", lambda: summarise_stored(every))
    print(f"  {len(rows)} rows")
    for kind in ("csv", "json", "parquet"):
        timed(f"export {kind}", lambda k=kind: save(rows, GROUP_COLUMNS, k, folder / f"out.{k}"))
    store.close()


if __name__ == "__main__":
    main()
