"""Shared by all tests: where data are, where results go, and one thread per test process."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

# Before numpy and torch are imported: test processes share the cores (pytest -n), and results of
# the golden tests must not depend on the number of threads.
for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[_name] = "1"
os.environ.setdefault("MPLBACKEND", "Agg")

_shared = Path(__file__).resolve().parents[2] / "shared" / "data"
if _shared.is_dir():
    os.environ.setdefault("FEWVIEW_DATA", str(_shared))

# Never the user's own store.
_scratch = tempfile.TemporaryDirectory(prefix="fewview-tests-")
os.environ["FEWVIEW_STORE"] = str(Path(_scratch.name) / "results.sqlite")


def pytest_configure() -> None:
    import torch

    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of real data sets; tests that need it are skipped where it is absent."""
    folder = Path(os.environ.get("FEWVIEW_DATA", ""))
    if not os.environ.get("FEWVIEW_DATA") or not folder.is_dir():
        pytest.skip("no real data sets here: set FEWVIEW_DATA to the folder of .npz files")
    return folder


@pytest.fixture(autouse=True)
def same_methods() -> Iterator[None]:
    """No test sees a method that another one registered, whatever the order they run in."""
    from fewview.methods import registry

    entries, objects = dict(registry._entries), dict(registry._objects)
    yield
    known = registry._entries.items()
    # Methods of the package stay: their modules register them once, when they are loaded.
    later = {k: e for k, e in known if k in registry.METHODS | registry.OPTIONAL}
    registry._entries.clear()
    registry._entries.update(later | entries)
    registry._objects.clear()
    registry._objects.update(objects)
