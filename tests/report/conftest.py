"""Shared by the tests of pages: a browser."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

_spec = importlib.util.spec_from_file_location(
    "look", Path(__file__).parents[2] / "docs" / "_tools" / "look.py"
)
assert _spec is not None
assert _spec.loader is not None
look = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(look)


@pytest.fixture(scope="module")
def driver() -> Iterator[Any]:
    browser = look.browser()
    if browser is None:
        pytest.skip("no chromium and chromedriver here: apt-get install chromium chromium-driver")
    yield browser
    browser.quit()


@pytest.fixture(scope="module")
def view(driver: Any) -> Callable[..., None]:
    """Open a page as wide as a phone or a desk, in light or dark."""
    return functools.partial(look.view, driver)
