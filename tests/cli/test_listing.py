"""The remembered list of methods: the same as a fresh one, made anew when a file changes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import fewview.cli._methods as listing
from fewview.cli._methods import remembered

SCRIPT = (
    "import sys\n"
    "sys.argv = ['fewview', 'methods']\n"
    "from fewview.cli import main\n"
    "try:\n    main()\n"
    "except SystemExit:\n    pass\n"
    "print('heavy:', sorted({'torch', 'sklearn', 'scipy', 'matplotlib'} & set(sys.modules)))\n"
)


def test_the_list_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []

    def make() -> list[list[str]]:
        made.append(1)
        return [["proto", "Proto"]]

    for _ in range(3):
        assert remembered(make, tmp_path) == [["proto", "Proto"]]
    assert len(made) == 1
    monkeypatch.setattr(listing, "sources_key", lambda: "another file")
    remembered(make, tmp_path)
    assert len(made) == 2
    (tmp_path / listing.LISTING).write_text("{not json")
    assert remembered(make, tmp_path) == [["proto", "Proto"]]
    assert len(made) == 3


def test_a_folder_that_cannot_be_written_does_no_harm(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert remembered(lambda: [["a"]], tmp_path / "file" / "below") == [["a"]]


def test_a_changed_file_changes_the_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "methods").mkdir()
    file = tmp_path / "methods" / "proto.py"
    file.write_text("1")
    monkeypatch.setattr("fewview.__file__", str(tmp_path / "__init__.py"))
    before = listing.sources_key()
    assert listing.sources_key() == before
    os.utime(file, ns=(1, 1))
    after = listing.sources_key()
    assert after != before
    (tmp_path / "methods" / "another.py").write_text("2")
    assert listing.sources_key() != after


def test_the_second_listing_loads_nothing_heavy(tmp_path: Path) -> None:
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "LOCALAPPDATA": str(tmp_path)}
    environment["HOME"] = str(tmp_path)
    runs = [
        subprocess.run(
            [sys.executable, "-c", SCRIPT],
            capture_output=True,
            text=True,
            check=True,
            env=environment,
        ).stdout.splitlines()
        for _ in range(2)
    ]
    assert runs[0][:-1] == runs[1][:-1]
    assert any(line.startswith("proto") for line in runs[1])
    assert "torch" in runs[0][-1]
    assert runs[1][-1] == "heavy: []"


def test_a_broken_package_is_named_and_left_out(tmp_path: Path) -> None:
    (tmp_path / "sick.py").write_text("raise RuntimeError('no such thing')\n")
    (tmp_path / "sick_methods-1.dist-info").mkdir()
    (tmp_path / "sick_methods-1.dist-info" / "METADATA").write_text("Name: sick-methods\n")
    points = tmp_path / "sick_methods-1.dist-info" / "entry_points.txt"
    points.write_text("[fewview.methods]\nsick = sick\n")
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "LOCALAPPDATA": str(tmp_path)}
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment |= {"HOME": str(tmp_path), "PYTHONPATH": path}
    for _ in range(2):  # nothing is remembered while something is broken
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT],
            capture_output=True,
            text=True,
            check=True,
            env=environment,
        )
        assert "the methods of 'sick' are left out" in done.stderr
        assert "RuntimeError: no such thing" in done.stderr
        assert "Traceback" not in done.stderr
        assert any(line.startswith("proto") for line in done.stdout.splitlines())
