"""Base statistics of millions of rows from disk: time against its floors, and peak memory.

python benchmarks/streaming.py                         ten million rows x 512, 20 GB in /tmp
python benchmarks/streaming.py --rows 200000           a small one

A folder with one view and labels is written to --folder (removed afterwards, unless --keep), then
read once by itself, then gathered for Marginal and for UGDA. Every job runs in a process of its
own, so that its peak memory is its own; --cold drops the files from the page cache before each
job, so that reading means reading from the disk.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from time import perf_counter
from typing import Any

import floors
import numpy as np
from memory import peak_memory
from numpy.lib.format import open_memmap
from table import RESULTS, describe_machine

from fewview.engine._registry import create
from fewview.engine._streaming import BaseStream
from fewview.ground._draws import raw, stream_key
from fewview.methods.marginal._settings import Settings
from fewview.samples._parts import NpyFolder

METHODS = {"marginal": "marginal:settings=default", "ugda": "ugda"}
SAMPLE = 20_000


def write(folder: Path, rows: int, width: int, classes: int) -> None:
    """Rows of classes with different means and correlated features, in random order."""
    whole, folder = folder, folder.with_name(folder.name + ".part")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    means = rng.normal(size=(classes, width)).astype(np.float32)
    view = open_memmap(folder / "features.npy", "w+", np.float32, (rows, width))
    keys = raw(np.array(stream_key("streaming"), dtype=np.uint64), rows)
    labels = (keys % np.uint64(classes)).astype(np.int64)
    np.save(folder / "labels.npy", labels)
    # Noise is one long list of numbers read from changing places: drawing all would take longer
    # than everything that is measured here.
    pool = rng.normal(size=50_000 * width).astype(np.float32)
    size = 50_000
    for start in range(0, rows, size):
        stop = min(start + size, rows)
        shift = int(rng.integers(0, len(pool)))
        noise = np.roll(pool, shift)[: (stop - start) * width].reshape(-1, width)
        block = means[labels[start:stop]] + noise
        block[:, 1:] += 0.5 * block[:, :-1]
        view[start:stop] = block
        show("written", stop, rows)
    view.flush()
    folder.rename(whole)


def show(what: str, done: int, total: int) -> None:
    """One line that stays where it is."""
    end = "\n" if done >= total else "\r"
    print(f"{what} {done:,} of {total:,}", end=end, file=sys.stderr, flush=True)


def drop_cache(folder: Path) -> None:
    """Ask the system to forget these files, so that they are read from the disk again."""
    for file in folder.glob("*.npy"):
        descriptor = os.open(file, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def read_only(folder: NpyFolder) -> None:
    """The reading alone, into one piece of memory that is used again and again."""
    buffer = memoryview(bytearray(1 << 26))
    for file in (*folder.views.values(), folder.labels):
        with file.path.open("rb", buffering=0) as stream:
            while stream.readinto(buffer):
                pass


def one_job(job: str, path: str, rows: int | None, workers: int) -> dict[str, Any]:
    """Run one job in this process."""
    folder = NpyFolder.open(path)
    done = 0

    def progress(count: int) -> None:
        nonlocal done
        done += count
        show(job, done, folder.n_samples)

    method = create(METHODS.get(job, "ugda"))  # all libraries are loaded now
    with peak_memory() as peak:
        start = perf_counter()
        if job == "read":
            read_only(folder)
        else:
            sample = folder.sample(SAMPLE)
            stream = BaseStream.gather(method, folder.parts(rows), sample, progress, workers)
            assert stream.n_samples == folder.n_samples
        took = perf_counter() - start
    return {"seconds": took, "memory": peak.bytes, "total": peak.total}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rows", type=int, default=10_000_000)
    options.add_argument("--width", type=int, default=512)
    options.add_argument("--classes", type=int, default=100)
    options.add_argument("--part", type=int, default=None, help="rows of a part; default 128 MiB")
    options.add_argument("--workers", type=int, default=min(2, os.cpu_count() or 1))
    options.add_argument("--folder", default=tempfile.gettempdir())
    options.add_argument("--keep", action="store_true", help="leave the files there")
    options.add_argument("--cold", action="store_true", help="drop the page cache before each job")
    options.add_argument(
        "--output", default=None, help="folder of the results; of the page's if all ten million"
    )
    options.add_argument("--job", default=None, help=argparse.SUPPRESS)
    arguments = options.parse_args()
    path = Path(arguments.folder) / (
        f"fewview-{arguments.rows}x{arguments.width}-{arguments.classes}"
    )
    if arguments.job:
        print(json.dumps(one_job(arguments.job, str(path), arguments.part, arguments.workers)))
        return
    need = 4 * arguments.rows * arguments.width
    if not path.exists():
        free = shutil.disk_usage(arguments.folder).free
        if free < 1.1 * need:
            sys.exit(f"{need / 1e9:.1f} GB are needed in {arguments.folder}, {free / 1e9:.1f} free")
        write(path, arguments.rows, arguments.width, arguments.classes)
    try:
        rates = floors.measure_rates()
        counts = np.bincount(np.load(path / "labels.npy", mmap_mode="r")).tolist()
        width = arguments.width
        kept = min(Settings.components, width)
        cost = {
            "marginal": floors.marginal_statistics_cost(arguments.rows, [width], [kept]),
            "ugda": floors.class_statistics_cost(counts, width, dense=True),
        }
        found: dict[str, Any] = {}
        for job in ("read", *METHODS):
            if arguments.cold:
                drop_cache(path)
            run = subprocess.run(
                [sys.executable, __file__, *sys.argv[1:], "--job", job],
                stdout=subprocess.PIPE, text=True, check=True,
            )  # fmt: skip
            found[job] = json.loads(run.stdout)
            found[job]["floor"] = cost[job].operations / rates.product if job in cost else None
    finally:
        if not arguments.keep:
            shutil.rmtree(path)
    reading = found["read"]["seconds"]
    print(f"reading {need / 1e9:.1f} GB: {reading:.1f} s, {need / 1e9 / reading:.2f} GB/s")
    for job in METHODS:
        item = found[job]
        held = (item["total"] - item["memory"]) / 2**20
        item["slower"] = max(reading, item["floor"])
        print(
            f"{job}: {item['seconds']:.1f} s; matrix-product floor {item['floor']:.1f} s; "
            f"{item['seconds'] / item['slower']:.2f} times the slower of the two; peak "
            f"{item['memory'] / 2**20:.0f} MiB on top of the {held:.0f} of the libraries"
        )
    if arguments.output is None and arguments.rows < options.get_default("rows"):
        return
    folder = Path(arguments.output or RESULTS)
    folder.mkdir(parents=True, exist_ok=True)
    content = {
        "command": "python " + " ".join(sys.argv),
        "machine": describe_machine("cpu"),
        "rates": asdict(rates),
        "options": {k: v for k, v in vars(arguments).items() if k not in ("job", "output")},
        "bytes": need,
        "jobs": found,
    }
    (folder / "streaming.json").write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
