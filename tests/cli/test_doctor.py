"""`fewview doctor`: a sound installation passes; what is off is named, with what to do."""

from __future__ import annotations

import contextlib
import copy
import importlib.metadata
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fewview.cli.doctor import _trials
from fewview.results import Store

Invoke = Callable[..., tuple[int, str, str]]


def test_a_sound_installation(invoke: Invoke) -> None:
    code, out, errors = invoke("doctor")
    assert code == 0, out
    for word in ("torch", "cpu", "folder", "libraries", "models", "everything works"):
        assert word in out
    assert out.count("ok, ") == 7
    assert "OFF" not in out
    assert "next: fewview run" in errors


def test_old_and_missing_libraries(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_trials, "QUICK", ("proto",))
    needed = [
        "numpy>=99.1",
        "strange-library>=1.0",
        "scipy>=1.12",
        "dask>=2024.8; extra == 'cluster'",
    ]
    monkeypatch.setattr(importlib.metadata, "requires", lambda name: needed)
    with pytest.raises(_trials.FewviewError) as told:
        _trials.libraries()
    assert str(told.value).startswith("numpy ")
    assert str(told.value).endswith("needed is 99.1; strange-library is missing, needed is 1.0")
    code, out, _ = invoke("doctor")
    assert code == 1
    assert "OFF: numpy" in out
    assert "do: pip install --upgrade 'numpy>=99.1' 'strange-library>=1.0'" in " ".join(out.split())
    assert "1 trial(s) are off" in out


def test_other_digits_are_told(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    changed = copy.deepcopy(_trials.recorded())
    changed["numbers"]["proto"]["eta 0"][1] += 0.01
    changed["numbers"]["rfs"]["version"] = "77"
    monkeypatch.setattr(_trials, "recorded", lambda: changed)
    code, out, _ = invoke("doctor")
    assert code == 1
    assert "proto at eta 0: accuracy" in out
    assert "recorded is 77" in out
    assert "ptmap at" not in out
    assert "do: results of this installation are not those of others" in out
    made_with = " ".join(f"{name}=={version}" for name, version in changed["versions"].items())
    assert f"pip install {made_with}, and" in " ".join(out.split())


@pytest.mark.parametrize("full", [False, True])
def test_a_damaged_record_is_told(
    full: bool, invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "digits.json").write_text('{"grid": {')
    monkeypatch.setattr(_trials, "RECORD", tmp_path / "digits.json")
    monkeypatch.setattr(_trials, "examples", lambda: "left out here")
    code, out, _ = invoke("doctor", *(["--full"] if full else []))
    told = " ".join(out.split())
    assert code == 1
    assert "digits.json is damaged" in told
    assert f"do: {_trials.REINSTALL} " in told
    assert "1 trial(s) are off" in told


def test_a_changed_file_of_the_package_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As pip installs it: a list of files with checksums (PEP 376) beside the package."""
    home = tmp_path / "fewview-9.9.dist-info"
    home.mkdir()
    (tmp_path / "fewview").mkdir()
    (home / "METADATA").write_text("Metadata-Version: 2.1\nName: fewview\nVersion: 9.9\n")
    # sha256 of "one" and "two", by sha256sum, in the alphabet of the list
    (home / "RECORD").write_text(
        "fewview/a.py,sha256=dpLDrTVAu4A8Ags67mbNiIcSMjTqDG5xQ8Ct1z_0Me0,3\n"
        "fewview/b.json,sha256=P8TM_nRYcOLA2Z9x8w_wZWyN7dQcwdfT03aw2-aF4vM,3\n"
        "fewview-9.9.dist-info/RECORD,,\n"
    )
    (tmp_path / "fewview" / "a.py").write_text("one")
    (tmp_path / "fewview" / "b.json").write_text("two")
    monkeypatch.setattr(
        importlib.metadata, "distribution", lambda name: importlib.metadata.PathDistribution(home)
    )
    assert _trials.package() == "2 files are as installed, 0.0 MB"
    (tmp_path / "fewview" / "b.json").write_text("twa")
    with pytest.raises(_trials.FewviewError, match=r"1 file\(s\) are gone or changed: fewview/b\."):
        _trials.package()
    (tmp_path / "fewview" / "b.json").unlink()
    with pytest.raises(_trials.FewviewError, match="gone or changed"):
        _trials.package()


def test_a_library_that_cannot_be_imported_is_told(
    invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "strange_library.py").write_text("raise OSError('libgomp.so.1: cannot open')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(importlib.metadata, "requires", lambda name: ["strange_library>=1.0"])
    monkeypatch.setattr(_trials, "installed", lambda name: "1.2")
    monkeypatch.setattr(_trials, "QUICK", ("proto",))
    code, out, _ = invoke("doctor")
    assert code == 1
    assert "strange_library 1.2 cannot be imported (libgomp.so.1: cannot open)" in out
    assert "do: pip install --force-reinstall strange_library" in out


def test_a_crash_is_told_and_the_rest_goes_on(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> str:
        raise OSError("libgomp.so: cannot open")

    monkeypatch.setattr(_trials, "torch_works", broken)
    code, out, _ = invoke("doctor")
    assert code == 1
    assert "torch         OFF: OSError: libgomp.so: cannot open" in out
    assert out.count("ok, ") == 6


def test_extras_that_can_be_added(monkeypatch: pytest.MonkeyPatch) -> None:
    there = _trials.installed
    monkeypatch.setattr(_trials, "installed", lambda name: None if name == "dask" else there(name))
    listed = "numpy>=1.26", "dask>=2024.8; extra == 'cluster'", "pandas>=2.1; extra == 'frames'"
    monkeypatch.setattr(importlib.metadata, "requires", lambda name: listed)
    (line,) = _trials.missing_extras()
    assert line == "--cluster, cells on many machines: pip install 'fewview[cluster]'"
    assert _trials.libraries() == "2 libraries are new enough and can be imported"


@pytest.mark.parametrize(
    ("found", "least", "older"),
    [("1.26.0", "1.26", False), ("1.9", "1.12", True), ("2", "1.99.9", False),
     ("8.0", "8.0.1", True), ("2026.8.0", "2024.8", False), ("1.0.0rc1", "1.0", False)],
)  # fmt: skip
def test_versions_are_compared_as_numbers(found: str, least: str, older: bool) -> None:
    assert _trials.is_older(found, least) is older


def test_every_method_is_recorded_with_its_present_version() -> None:
    from fewview.evaluate import Grid, plan

    numbers: dict[str, Any] = _trials.recorded()["numbers"]
    assert set(_trials.QUICK) <= set(numbers)
    for cell in plan(Grid(datasets=("digits",), methods=tuple(numbers), splits=1)):
        assert cell.method_version == numbers[cell.method]["version"]


def test_a_folder_that_cannot_be_written_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FEWVIEW_STORE", str(tmp_path / "file" / "results.sqlite"))
    with pytest.raises(OSError, match="file"):
        _trials.folders()
    Store(tmp_path / "a.sqlite").close()
    monkeypatch.setenv("FEWVIEW_STORE", str(tmp_path / "a.sqlite"))
    with contextlib.closing(sqlite3.connect(tmp_path / "a.sqlite")) as connection:
        (count,) = connection.execute("SELECT count(*) FROM cells").fetchone()
    assert _trials.folders().startswith(f"{count} result(s) in ")
