"""Damaged files of every format: data or one clear error, soon, and the file as it was.

A small part of `benchmarks/fuzz.py`, always the same cases; the files in `damaged.json` are those
of its large run that crashed or hung the libraries below.
"""

from __future__ import annotations

import base64
import importlib.util
import json
import sys
import time
import zlib
from pathlib import Path
from types import ModuleType

import pytest

from fewview.files import kept_reader
from fewview.ground._errors import FewviewError
from fewview.samples._data import MultiViewData

read = MultiViewData.read

ROOT = Path(__file__).resolve().parents[2]
# Name -> bytes, compressed, as text: files that crash other programs are not left lying about.
DAMAGED: dict[str, str] = json.loads(Path(__file__).with_name("damaged.json").read_text())
FORMATS = ("npz", "mat v5", "mat v7", "mat v7.3", "h5ad", "h5mu", "csv", "parquet", "npy")
CASES = 40


def _load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("fuzz", ROOT / "benchmarks" / "fuzz.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["fuzz"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


fuzz = _load()


@pytest.fixture(scope="module")
def seeds() -> dict[str, list[dict[str, bytes]]]:
    found: dict[str, list[dict[str, bytes]]] = fuzz.seeds()
    assert tuple(found) == FORMATS
    return found


@pytest.mark.parametrize("format", FORMATS)
def test_damaged_files(
    format: str,
    seeds: dict[str, list[dict[str, bytes]]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fuzz, "LIMIT_SECONDS", 2.0)
    kinds = []
    with kept_reader():
        for number, (_, outcome) in enumerate(fuzz.run(format, seeds[format], CASES, seed=1)):
            assert outcome.kind != "FAILED", f"{format} {number}: {outcome.detail}"
            kinds.append(outcome.kind)
        for number, files in enumerate(seeds[format]):
            place = tmp_path / str(number)
            place.mkdir()
            assert fuzz.read_case(files, place).kind == "data"  # undamaged they are fine
    assert len(kinds) == CASES
    assert kinds.count("data") < CASES / 2  # else nothing was damaged


@pytest.mark.parametrize("name", sorted(DAMAGED))
def test_files_that_crashed_or_hung_a_library(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / name
    before = zlib.decompress(base64.b64decode(DAMAGED[name]))
    file.write_bytes(before)
    monkeypatch.setenv("FEWVIEW_READ_SECONDS", "1")
    start = time.perf_counter()
    with pytest.raises(FewviewError, match=r"reader stop|took longer than 1 s|is not a readable"):
        read(file)
    assert time.perf_counter() - start < 60
    assert file.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == [name]


def test_the_judge_sees_what_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The harness itself: each of these must be judged a failure."""

    def changing(path: Path) -> MultiViewData:
        path.write_bytes(b"changed")
        raise FewviewError(f"{path}: damaged")

    def wrong_error(path: Path) -> MultiViewData:
        raise KeyError(path)

    def nameless(path: Path) -> MultiViewData:
        raise FewviewError("damaged")

    def greedy(path: Path) -> MultiViewData:
        b"x" * (fuzz._peak() + fuzz.LIMIT_GROWTH + 2**27)
        raise FewviewError(f"{path}: damaged")

    def slow(path: Path) -> MultiViewData:
        monkeypatch.setattr(fuzz, "LIMIT_SECONDS", -10.0)
        raise FewviewError(f"{path}: damaged")

    for number, (reader, reason) in enumerate(
        (
            (changing, "changed the file"),
            (wrong_error, "KeyError"),
            (nameless, "does not name the file"),
            (greedy, "grew by"),
            (slow, "took"),
        )
    ):
        place = tmp_path / str(number)
        place.mkdir()
        monkeypatch.setattr(fuzz.MultiViewData, "read", reader)
        outcome = fuzz.read_case({"a.npz": b"x"}, place)
        assert outcome.kind == "FAILED"
        assert reason in outcome.detail
