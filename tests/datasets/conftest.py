"""Fixtures of the data set tests: the folder of real data, where there is one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def real_data() -> Path:
    """Folder with the real data files; tests that need them are skipped without it."""
    beside = Path(__file__).resolve().parents[3] / "shared" / "data"
    candidates = [os.environ.get("FEWVIEW_DATA"), str(beside)]
    for candidate in candidates:
        if candidate and (Path(candidate) / "handwritten.npz").is_file():
            return Path(candidate)
    pytest.skip("real data sets are absent: neither $FEWVIEW_DATA nor ../shared/data has them")
