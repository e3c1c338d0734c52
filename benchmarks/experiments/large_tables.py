"""Predictions of a table larger than memory: rows per second against reading alone, peak memory.

    python benchmarks/experiments/large_tables.py [--rows 200000 --parts 4] [--empty 0.01]

Ten million rows in a hundred parts (1.3 GB) of two views, a fifth of the second one missing, are
written to --folder as Parquet. Then, in
processes of their own: pyarrow reads all files; fewview reads all parts; `fewview predict` answers
in two processes; and again on a Dask cluster of two workers, one of which is killed on the way. The
two outputs are compared byte by byte. Peak memory is that of the largest process of a job.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
from tools import print_table

from fewview.samples import MultiViewData

WIDTH, WAY, SHOT = 16, 5, 3
VIEWS = ("a", "b")
COLUMNS = [f"f{column}" for column in range(WIDTH)]


def write(folder: Path, rows: int, parts: int, empty: float) -> None:
    """Queries in parts, some of whose cells are empty, and supports of the same classes."""
    import pyarrow
    from pyarrow import parquet

    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    means = {view: 1.5 * rng.normal(size=(WAY, WIDTH)).astype(np.float32) for view in VIEWS}
    classes = np.repeat(np.arange(WAY), SHOT)
    support = {v: means[v][classes] + rng.normal(size=(len(classes), WIDTH)) for v in VIEWS}
    MultiViewData(
        {view: block.astype(np.float32) for view, block in support.items()},
        [f"class {code}" for code in classes], ids=[f"s{k}" for k in range(len(classes))],
        columns=dict.fromkeys(VIEWS, COLUMNS),
    ).write(folder / "support", format="parquet")  # fmt: skip
    edges = np.linspace(0, rows, parts + 1).astype(int)
    for part, (start, stop) in enumerate(pairwise(edges)):
        where = folder / "queries" / f"part-{part:04d}"
        where.mkdir(parents=True)
        ids, codes = np.arange(start, stop), rng.integers(0, WAY, stop - start)
        for view in VIEWS:
            block = means[view][codes] + rng.standard_normal((len(ids), WIDTH), dtype=np.float32)
            if empty:
                block[rng.random(block.shape) < empty] = np.nan
            has = np.ones(len(ids), bool) if view == "a" else rng.random(len(ids)) > 0.2
            columns = {"id": ids[has], **{n: block[has, k] for k, n in enumerate(COLUMNS)}}
            parquet.write_table(pyarrow.table(columns), where / f"{view}.parquet")


def read_with_pyarrow(folder: Path) -> None:
    """What reading alone takes at least."""
    from pyarrow import parquet

    for file in sorted((folder / "queries").glob("*/*.parquet")):
        parquet.read_table(file, use_threads=False)


def read_with_fewview(folder: Path) -> None:
    """The same as samples: joined by id, checked."""
    from fewview.files._guarded import kept_reader
    from fewview.samples._parts import TableParts

    table = TableParts.open(folder / "queries")
    with kept_reader():
        for number in range(len(table.folders)):
            table.part(number)


READERS: dict[str, Callable[[Path], None]] = {
    "pyarrow reads": read_with_pyarrow,
    "fewview reads": read_with_fewview,
}


def measured(command: list[str], during: Callable[[], None] | None = None) -> dict[str, float]:
    """Seconds of a command, and the peak of the largest process among it and its children."""
    script = (
        "import json, resource, subprocess, sys; code = subprocess.call(sys.argv[1:]);"
        "print('PEAK', resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss); sys.exit(code)"
    )
    start = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-c", script, *command], stdout=subprocess.PIPE)
    if during is not None:
        during()
    out, _ = process.communicate()
    took = time.perf_counter() - start
    text = out.decode()
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{text}")
    return {"seconds": took, "mib": int(text.split("PEAK")[1]) / 1024}


def predict(folder: Path, method: str, block: int, target: Path, *how: str) -> list[str]:
    """The command."""
    return [
        sys.executable, "-m", "fewview", "predict", "--method", method, "--support",
        str(folder / "support"), "--query", str(folder / "queries"), "-o", str(target), "--block",
        str(block), *how,
    ]  # fmt: skip


def on_a_cluster(
    folder: Path, command: Callable[[str], list[str]], target: Path
) -> dict[str, float]:
    """Two workers, one of which is killed when a fifth of the predictions is there."""
    file = folder / "scheduler.json"
    started = []

    def start(*what: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "dask", *what, "--scheduler-file", str(file)]
        process = subprocess.Popen(
            command, cwd=folder, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
        started.append(process)
        return process

    try:
        start("scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard")
        while not file.exists():
            time.sleep(0.1)
        workers = [
            start("worker", "--host", "127.0.0.1", "--nthreads", "1", "--no-nanny",
                  "--no-dashboard", "--memory-limit", "0", "--local-directory", str(folder))
            for _ in range(2)
        ]  # fmt: skip
        address = ""
        while not address:
            try:
                address = json.loads(file.read_text())["address"]
            except ValueError:
                time.sleep(0.1)

        def kill() -> None:
            parts = len(list((folder / "here.parquet").glob("part-*")))
            while len(list(target.glob("part-*"))) < max(1, parts // 5):
                time.sleep(0.1)
            workers[0].send_signal(signal.SIGKILL)
            print("killed one of two workers", file=sys.stderr)

        out = measured(command(address), kill)
        status = Path(f"/proc/{workers[1].pid}/status").read_text()
        peak = next(int(line.split()[1]) for line in status.splitlines() if "VmHWM" in line)
        return out | {"mib": max(out["mib"], peak / 1024)}
    finally:
        for process in started:
            process.kill()
            process.wait()


def same(one: Path, two: Path) -> bool:
    """Whether two outputs have the same parts with the same bytes."""
    names = sorted(file.name for file in one.glob("part-*"))
    return names == sorted(file.name for file in two.glob("part-*")) and all(
        (one / name).read_bytes() == (two / name).read_bytes() for name in names
    )


def main() -> None:
    """Write, read, predict twice, compare."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rows", type=int, default=10_000_000)
    options.add_argument("--parts", type=int, default=100)
    options.add_argument("--empty", type=float, default=0.0, help="share of cells that are empty")
    options.add_argument("--method", default="marginal")
    options.add_argument("--block", type=int, default=1)
    options.add_argument("--folder", default=None, help="default: a temporary one")
    options.add_argument("--reader", default=None, help=argparse.SUPPRESS)
    arguments = options.parse_args()
    if arguments.reader:
        READERS[arguments.reader](Path(arguments.folder))
        return
    folder = Path(arguments.folder or tempfile.mkdtemp(prefix="fewview-large-"))
    if not (folder / "queries").exists():
        write(folder, arguments.rows, arguments.parts, arguments.empty)
    found = {}
    try:
        for name in READERS:
            found[name] = measured(
                [sys.executable, __file__, "--reader", name, "--folder", str(folder)]
            )
        asked = (folder, arguments.method, arguments.block)
        here, there = folder / "here.parquet", folder / "there.parquet"
        found["predict, 2 processes"] = measured(predict(*asked, here, "--jobs", "2"))
        found["predict, 2 workers, 1 killed"] = on_a_cluster(
            folder, lambda address: predict(*asked, there, "--cluster", address), there
        )
        alone = found["fewview reads"]["seconds"]
        table = [
            [name, f"{row['seconds']:.1f}", f"{arguments.rows / row['seconds']:,.0f}",
             f"{row['mib']:.0f}", f"{row['seconds'] / alone:.2f}"]
            for name, row in found.items()
        ]  # fmt: skip
        header = ("job", "seconds", "rows per second", "peak MiB", "x reading")
        print_table(header, table)
        equal = "the same bytes" if same(here, there) else "DIFFERENT bytes"
        print(f"the two predictions have {equal}")
    finally:
        if arguments.folder is None:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
