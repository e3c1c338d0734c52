"""`make parity`: the checks from outside, where they are."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    if shutil.which("make") is None:
        pytest.skip("no make here")
    folder = tmp_path / "checkout"
    folder.mkdir()
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, folder)
    return folder


def make(checkout: Path, *words: str) -> list[str]:
    command = ["make", "-s", *words]
    done = subprocess.run(command, cwd=checkout, check=True, capture_output=True, text=True)
    return done.stdout.splitlines()


def test_without_the_checks_it_says_so_and_succeeds(checkout: Path) -> None:
    assert make(checkout, "parity") == ["skipped: no ../shared"]
    assert not (checkout / ".venv").exists()


def test_groups_are_passed_on(checkout: Path) -> None:
    tools = checkout.parent / "shared" / "tools"
    tools.mkdir(parents=True)
    (tools / "parity.py").touch()
    shown = make(checkout, "-n", "parity", "GROUPS=tasks reading")
    assert shown[-1].endswith("../shared/tools/parity.py tasks reading")
