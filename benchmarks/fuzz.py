"""Damaged files of every format: does reading ever end in anything but data or a clear error?

    python benchmarks/fuzz.py [--cases 10000] [--seed 0] [--formats mat,h5ad] [--keep folder]

Takes valid files of every format (written by fewview, scipy, hdf5storage, anndata), damages their
bytes (flip, cut, insert, duplicate, splice, blank, gigantic sizes) and reads them. A case fails if
reading raises anything but a `FewviewError` that names the file, takes longer than the limit (5 s,
and up to 60 s where a process has to be started), grows
this process by more than 256 MiB, or changes the file. Foreign formats are read in one child
process that serves many files (`kept_reader`), so that a case takes milliseconds; a file that
crashes it or takes too long is read again in a process of its own, to be sure that it was that
file. Prints outcomes per format; failed cases are written to `--keep`.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import os
import re
import resource
import sys
import tempfile
import time
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import fewview.files._guarded as foreign
from fewview.files._limits import SECONDS
from fewview.samples import FewviewError, MultiViewData

# A file is its name in the folder -> bytes; formats of one file have one entry.
Files = dict[str, bytes]
LIMIT_SECONDS = 5.0
# A process that replaces a crashed one has to start first, which took 16 s on a machine with seven
# times more work than processors; the limit for the file itself is kept by the reader.
START_SECONDS = 60.0
LIMIT_GROWTH = 256 * 2**20
HUGE = (0x7FFFFFFF, 0xFFFFFFFF, 0x7FFFFFFFFFFFFFFF, 2**40, 10**9, 2**31, 2**16, 0xFFFF)


def sample(names: tuple[str, str] = ("X", "b")) -> MultiViewData:
    """Four samples with two views, gaps, names and text labels."""
    return MultiViewData(
        {names[0]: np.arange(12.0).reshape(4, 3), names[1]: np.ones((4, 2), np.float32)},
        ["p", None, "q", "p"],
        ids=["w", "x", "y", "z"],
        mask=[[True, False], [True, True], [False, True], [True, True]],
        columns={names[0]: ["c", "d", "e"]},
    )


def _contents(path: Path) -> Files:
    if path.is_dir():
        return {entry.name: entry.read_bytes() for entry in sorted(path.iterdir())}
    return {path.name: path.read_bytes()}


def seeds() -> dict[str, list[Files]]:
    """Valid files to start from, by format."""
    import anndata
    import hdf5storage
    import pandas as pd
    import scipy.io
    import scipy.sparse

    cells = np.empty((1, 2), dtype=object)
    cells[0, 0], cells[0, 1] = np.arange(12.0).reshape(4, 3), np.ones((4, 2), np.float32)
    texts = np.empty((4, 1), dtype=object)
    texts[:, 0] = ["p", "q", "p", "q"]
    numbers = np.array([[1], [2], [1], [2]])
    sparse = scipy.sparse.csc_matrix(np.eye(4, 3))
    plain = {"X": cells, "gt": numbers}
    out: dict[str, list[Files]] = {}
    with tempfile.TemporaryDirectory() as name, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        folder = Path(name)

        def made(file: str, make: Callable[[Path], Any]) -> Files:
            path = folder / file
            make(path)
            contents = _contents(path)
            if path.is_file():
                path.unlink()
            return contents

        def save73(content: dict[str, Any]) -> Callable[[Path], Any]:
            return lambda path: hdf5storage.savemat(str(path), content, format="7.3")

        def save(content: dict[str, Any], packed: bool) -> Callable[[Path], Any]:
            return lambda path: scipy.io.savemat(path, content, do_compression=packed)

        obs = pd.DataFrame(
            {"label": pd.Categorical(list("pqpq")), "n": pd.array([1, None, 2, 3], dtype="Int64")},
            index=list("wxyz"),
        )
        cell_data = anndata.AnnData(scipy.sparse.csr_matrix(np.eye(4, 3, dtype=np.float32)), obs)
        cell_data.obsm["f"] = pd.DataFrame({"k": [1.0, 2.0, 3.0, 4.0]}, index=list("wxyz"))
        data = sample()
        out["npz"] = [
            made("a.npz", data.write),
            made("a.npz", lambda p: np.savez(p, view_a=np.eye(3), y=np.array([0, 1, 2]))),
        ]
        out["mat v5"] = [
            made("a.mat", save({**plain, "s": {"f": 1.0}}, False)),
            made("a.mat", save({"a": sparse, "b": cells[0, 0], "Y": texts}, False)),
        ]
        out["mat v7"] = [made("a.mat", data.write), made("a.mat", save(plain, True))]
        out["mat v7.3"] = [
            made("a.mat", save73(plain)),
            made("a.mat", save73({"a": cells[0, 0], "b": cells[0, 1], "Y": texts})),
        ]
        out["h5ad"] = [made("a.h5ad", data.write), made("a.h5ad", cell_data.write_h5ad)]
        out["h5mu"] = [made("a.h5mu", sample(("a", "b")).write), made("a.h5mu", data.write)]
        for format in ("csv", "parquet", "npy"):
            with_note = made(format, lambda p, f=format: data.write(p, format=f))
            without = {file: text for file, text in with_note.items() if file != "fewview.json"}
            out[format] = [with_note, without]
    return out


# ------------------------------------------------------------------ damage


def _flip(content: bytearray, rng: np.random.Generator, other: bytes) -> None:
    for _ in range(int(rng.integers(1, 9))):
        content[rng.integers(len(content))] ^= 1 << int(rng.integers(8))


def _set(content: bytearray, rng: np.random.Generator, other: bytes) -> None:
    for _ in range(int(rng.integers(1, 4))):
        content[rng.integers(len(content))] = int(rng.choice([0, 1, 127, 128, 255]))


def _cut(content: bytearray, rng: np.random.Generator, other: bytes) -> None:
    del content[rng.integers(len(content)) :]


def _insert(content: bytearray, rng: np.random.Generator, other: bytes) -> None:
    place = int(rng.integers(len(content) + 1))
    content[place:place] = rng.bytes(int(rng.integers(1, 33)))


def _duplicate(content: bytearray, rng: np.random.Generator, other: bytes) -> None:
    start = int(rng.integers(len(content)))
    part = content[start : start + int(rng.integers(1, 513))]
    place = int(rng.integers(len(content) + 1))
    content[place:place] = part * int(rng.integers(1, 4))


def _splice(content: bytearray, rng: np.random.Generator, other: bytes) -> None:
    start, length = int(rng.integers(len(other))), int(rng.integers(1, 257))
    place = int(rng.integers(len(content)))
    content[place : place + length] = other[start : start + length]


def _blank(content: bytearray, rng: np.random.Generator, other: bytes) -> None:
    start = int(rng.integers(len(content)))
    length = min(int(rng.integers(1, 129)), len(content) - start)
    content[start : start + length] = bytes([int(rng.choice([0, 255]))]) * length


def _huge(content: bytearray, rng: np.random.Generator, other: bytes) -> None:
    """Sizes that lie: digits in text, little-endian numbers elsewhere."""
    digits = [match.span() for match in re.finditer(rb"[0-9]+", bytes(content))]
    if digits and rng.random() < 0.3:
        start, stop = digits[rng.integers(len(digits))]
        content[start:stop] = str(int(rng.choice(HUGE))).encode()
        return
    width = int(rng.choice([2, 4, 8]))
    value = int(rng.choice(HUGE)) % 2 ** (8 * width)
    place = int(rng.integers(max(1, len(content) - width))) // 4 * 4
    content[place : place + width] = value.to_bytes(width, "little")


DAMAGE: tuple[Callable[[bytearray, np.random.Generator, bytes], None], ...] = (
    _flip, _set, _cut, _insert, _duplicate, _splice, _blank, _huge,
)  # fmt: skip


def _damaged(content: bytes, rng: np.random.Generator, other: bytes) -> bytes:
    out = bytearray(content)
    for _ in range(int(rng.choice([1, 1, 1, 2, 3]))):
        if out:
            DAMAGE[rng.integers(len(DAMAGE))](out, rng, other or b"\0")
    return bytes(out)


def _inside(content: bytes, rng: np.random.Generator, other: bytes) -> bytes:
    """Damage one array of an `.npz` and pack it again, so that its checksum is right."""
    stream = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as source, zipfile.ZipFile(stream, "w") as target:
        chosen = rng.integers(len(source.namelist()))
        for place, name in enumerate(source.namelist()):
            part = source.read(name)
            target.writestr(name, _damaged(part, rng, other) if place == chosen else part)
    return stream.getvalue()


def damage(files: Files, others: list[Files], rng: np.random.Generator) -> Files:
    """Damage one of the files."""
    name = sorted(files)[rng.integers(len(files))]
    another = others[rng.integers(len(others))]
    other = another.get(name, next(iter(another.values())))
    method = _inside if name.endswith(".npz") and rng.random() < 0.6 else _damaged
    return {**files, name: method(files[name], rng, other)}


# ------------------------------------------------------------------ one case


@dataclass(frozen=True)
class Outcome:
    """What reading did: "data", "error", "memory", "time", "crash", or "FAILED" with a reason."""

    kind: str
    detail: str
    seconds: float


def _fingerprint(path: Path) -> str:
    digest = hashlib.sha256()
    for entry in sorted([path, *path.rglob("*")]):
        digest.update(entry.name.encode() + (entry.read_bytes() if entry.is_file() else b"/"))
    return digest.hexdigest()


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def read_case(files: Files, folder: Path) -> Outcome:
    """Write the files into an empty folder, read them, and judge what happened."""
    single = len(files) == 1 and not next(iter(files)).endswith((".csv", ".parquet", ".npy"))
    target = folder / (next(iter(files)) if single else "folder")
    if not single:
        target.mkdir()
    for name, content in files.items():
        (target if single else target / name).write_bytes(content)
    before, grown, start = _fingerprint(folder), _peak(), time.perf_counter()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            data = MultiViewData.read(target)
        kind, detail = "data", ""
        if not data.mask.any(axis=1).all():
            kind, detail = "FAILED", "a sample without any view"
    except FewviewError as error:
        detail = str(error)
        kind = "error"
        for word, mark in (
            ("memory", "needs more than"), ("time", "took longer than"), ("crash", "reader stop"),
        ):  # fmt: skip
            kind = word if mark in detail else kind
        if not detail.startswith(str(target)):
            kind, detail = "FAILED", f"the message does not name the file: {detail}"
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        kind, detail = "FAILED", f"{type(error).__name__}: {error}"
    seconds = time.perf_counter() - start
    own_process = any(name.endswith((".mat", ".h5ad", ".h5mu", ".parquet")) for name in files)
    if seconds > LIMIT_SECONDS + (START_SECONDS if own_process else 5.0):
        kind, detail = "FAILED", f"took {seconds:.1f} s ({detail})"
    if _peak() - grown > LIMIT_GROWTH:
        kind, detail = "FAILED", f"grew by {(_peak() - grown) / 2**20:.0f} MiB ({detail})"
    if _fingerprint(folder) != before:
        kind, detail = "FAILED", f"changed the file ({detail})"
    return Outcome(kind, detail, seconds)


def cases(format: str, start: list[Files], count: int, seed: int) -> Iterator[Files]:
    """Damaged files of one format, always the same for a seed."""
    for number in range(count):
        rng = np.random.default_rng([seed, number, *format.encode()])
        yield damage(start[number % len(start)], start, rng)


def run(format: str, start: list[Files], count: int, seed: int) -> Iterator[tuple[Files, Outcome]]:
    """Read damaged files of one format."""
    os.environ[SECONDS] = str(LIMIT_SECONDS)
    try:
        with tempfile.TemporaryDirectory() as name, foreign.kept_reader():
            for number, files in enumerate(cases(format, start, count, seed)):
                folder = Path(name) / str(number)
                folder.mkdir()
                yield files, read_case(files, folder)
    finally:
        os.environ.pop(SECONDS, None)


def alone(files: Files) -> Outcome:
    """Read in a process of its own."""
    os.environ[SECONDS] = str(LIMIT_SECONDS)
    try:
        with tempfile.TemporaryDirectory() as name:
            return read_case(files, Path(name))
    finally:
        os.environ.pop(SECONDS, None)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cases", type=int, default=10_000, help="in all, over the formats")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--formats", default="", help="comma-separated; default: all")
    parser.add_argument("--keep", type=Path, default=None, help="folder for failed cases")
    options = parser.parse_args()
    start = seeds()
    wanted = options.formats.split(",") if options.formats else list(start)
    each = -(-options.cases // len(wanted))
    kinds = ("data", "error", "memory", "time", "crash", "FAILED")
    print(f"{'format':<10}{'cases':>7}" + "".join(f"{kind:>8}" for kind in kinds) + "   slowest")
    failed = 0
    for format in wanted:
        count: Counter[str] = Counter()
        slowest = 0.0
        odd = []
        for number, (files, outcome) in enumerate(run(format, start[format], each, options.seed)):
            count[outcome.kind] += 1
            slowest = max(slowest, outcome.seconds)
            if outcome.kind in ("time", "crash", "FAILED"):
                odd.append((number, files, outcome))
            if number % 100 == 99 and sys.stderr.isatty():
                print(f"\r{format} {number + 1}/{each}", end="", file=sys.stderr, flush=True)
        notes = []
        for number, files, outcome in odd:
            again = alone(files)
            told = f"{again.kind}, {again.seconds:.1f} s"
            if again.kind == "FAILED":  # a failure like any other, whatever the first reading gave
                told += f", {again.detail}"
                count["FAILED"] += outcome.kind != "FAILED"
            notes.append(f"  {format} {number}: {outcome.detail} [alone: {told}]")
            if options.keep is not None:
                place = options.keep / f"{format.replace(' ', '_')}-{number}"
                place.mkdir(parents=True, exist_ok=True)
                for name, content in files.items():
                    (place / name).write_bytes(content)
        line = "".join(f"{count[kind]:>8}" for kind in kinds)
        print(f"{format:<10}{each:>7}{line}{slowest:>8.2f} s", flush=True)
        print("\n".join(notes[:40]), end="\n" if notes else "", flush=True)
        failed += count["FAILED"]
    print(f"peak memory of this process: {_peak() / 2**20:.0f} MiB")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
