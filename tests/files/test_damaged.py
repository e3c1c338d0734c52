"""Damaged files of every format: data or one clear error, soon, and the file as it was.

Forty damaged copies per format, always the same; the files in `damaged.json` crashed or hung the
libraries below in a larger run.
"""

from __future__ import annotations

import base64
import io
import json
import resource
import time
import warnings
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fewview import FewviewError, MultiViewData
from fewview.files import kept_reader

Files = dict[str, bytes]  # names in a folder; formats of one file have one entry
# Name -> bytes, compressed, as text: files that crash other programs are not left lying about.
DAMAGED: dict[str, str] = json.loads(Path(__file__).with_name("damaged.json").read_text())
FORMATS = ("npz", "mat v5", "mat v7", "mat v7.3", "h5ad", "h5mu", "csv", "parquet", "npy")
CASES = 40
# A process that replaces a crashed one has to start first, on a machine that may be busy.
LIMIT_SECONDS, START_SECONDS, LIMIT_GROWTH = 2.0, 60.0, 256 * 2**20
HUGE = (0x7FFFFFFF, 0xFFFFFFFF, 0x7FFFFFFFFFFFFFFF, 2**40, 10**9, 2**31, 2**16, 0xFFFF)


def whole_files(format: str, folder: Path) -> list[Files]:
    """Valid files to start from: of fewview, and of another writer where there is one."""
    views = {"a": np.arange(12.0).reshape(4, 3), "b": np.ones((4, 2), np.float32)}
    gaps = [[True, False], [True, True], [False, True], [True, True]]
    data = MultiViewData(
        views, ["p", None, "q", "p"], ids=list("wxyz"), mask=gaps, columns={"a": ["c", "d", "e"]}
    )
    numbers = np.array([[1], [2], [1], [2]])
    if format in ("csv", "parquet", "npy"):
        place = folder / "folder"
        data.write(place, format=format)
        found = {path.name: path.read_bytes() for path in place.iterdir()}
        return [found, {name: text for name, text in found.items() if name != "fewview.json"}]
    if format == "npz":
        data.write(folder / "1.npz")
        np.savez(folder / "2.npz", view_a=np.eye(3), y=np.array([0, 1, 2]))
    elif format == "mat v7.3":
        import hdf5storage

        hdf5storage.savemat(str(folder / "1.mat"), {**views, "gt": numbers}, format="7.3")
    elif format.startswith("mat"):
        import scipy.io

        packed = format == "mat v7"
        scipy.io.savemat(folder / "1.mat", {**views, "gt": numbers}, do_compression=packed)
        cells = np.array([[None, None]], dtype=object)
        cells[0, 0], cells[0, 1] = views.values()
        scipy.io.savemat(folder / "2.mat", {"X": cells, "gt": numbers}, do_compression=packed)
    else:
        data.write(folder / f"1.{format}")
    return [{path.name: path.read_bytes()} for path in sorted(folder.iterdir())]


def damaged(content: bytes, rng: np.random.Generator) -> bytes:
    """Damage bytes in one to three places: flip, cut, insert, repeat, blank, sizes that lie."""
    out = bytearray(content)
    for kind in rng.choice(6, rng.integers(1, 4)):
        if not out:
            break
        place = int(rng.integers(len(out)))
        length = min(int(rng.integers(1, 257)), len(out) - place)
        if kind == 0:
            out[place] ^= 1 << int(rng.integers(8))
        elif kind == 1:
            del out[place:]
        elif kind == 2:
            out[place:place] = rng.bytes(length)
        elif kind == 3:
            out[place:place] = out[place : place + length]
        elif kind == 4:
            out[place : place + length] = bytes([int(rng.choice([0, 255]))]) * length
        else:
            width = int(rng.choice([2, 4, 8]))
            value = int(rng.choice(HUGE)) % 2 ** (8 * width)
            out[place // 4 * 4 : place // 4 * 4 + width] = value.to_bytes(width, "little")
    return bytes(out)


def repacked(content: bytes, rng: np.random.Generator) -> bytes:
    """Damage one array of an `.npz` and pack it again, so that its checksum is right."""
    stream = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as source, zipfile.ZipFile(stream, "w") as target:
        chosen = rng.integers(len(source.namelist()))
        for place, name in enumerate(source.namelist()):
            part = source.read(name)
            target.writestr(name, damaged(part, rng) if place == chosen else part)
    return stream.getvalue()


def read(files: Files, folder: Path) -> MultiViewData | None:
    """Data, or None after one error that names the file; anything else fails the test."""
    folder.mkdir()
    target = folder / next(iter(files))
    if len(files) > 1:
        target = folder / "tables"
        target.mkdir()
    for name, content in files.items():
        (target / name if len(files) > 1 else target).write_bytes(content)
    peak, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
    data, told = None, str(target)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            data = MultiViewData.read(target)
    except FewviewError as error:
        told = str(error)
    assert told.startswith(str(target))
    assert data is None or data.mask.any(axis=1).all()
    assert time.perf_counter() - start < LIMIT_SECONDS + START_SECONDS
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak
    assert grown * 1024 < LIMIT_GROWTH
    left: dict[str, Any] = {path.name: path.read_bytes() for path in folder.rglob("*.*")}
    assert left == files
    return data


@pytest.mark.parametrize("format", FORMATS)
def test_damaged_files(format: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEWVIEW_READ_SECONDS", str(LIMIT_SECONDS))
    (tmp_path / "whole").mkdir()
    start, readable = whole_files(format, tmp_path / "whole"), 0
    with kept_reader():
        for number, files in enumerate(start):
            assert read(files, tmp_path / f"whole {number}") is not None
        for number in range(CASES):
            rng = np.random.default_rng([1, number])
            files = start[number % len(start)]
            name = sorted(files)[rng.integers(len(files))]
            act = repacked if name.endswith(".npz") and rng.random() < 0.6 else damaged
            changed = {**files, name: act(files[name], rng)}
            readable += read(changed, tmp_path / str(number)) is not None
    assert readable < CASES / 2  # else nothing was damaged


@pytest.mark.parametrize("name", sorted(DAMAGED))
def test_files_that_crashed_or_hung_a_library(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEWVIEW_READ_SECONDS", "1")
    content = zlib.decompress(base64.b64decode(DAMAGED[name]))
    assert read({name: content}, tmp_path / "one") is None
