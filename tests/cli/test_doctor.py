"""`fewview doctor`: versions, devices and folders."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import pytest

import fewview

Invoke = Callable[..., tuple[int, str, str]]


def test_versions_devices_and_folders(
    invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEWVIEW_STORE", str(tmp_path / "store.db"))
    code, out, _ = invoke("doctor", "--data-dir", str(tmp_path / "sets"))
    assert code == 0
    words = " ".join(out.split())
    assert f"fewview {fewview.__version__} on Python" in words
    assert f"numpy {version('numpy')}" in words
    assert "cpu" in words
    assert str(tmp_path / "sets") in out.replace("\n", "").replace(" ", "")
    assert str(tmp_path / "store.db") in out.replace("\n", "").replace(" ", "")
