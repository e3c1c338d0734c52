"""Shared by the tests of pages: a browser."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest


def browser() -> Any:
    """Chromium without a window, or None where there is none."""
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    driver = shutil.which("chromedriver")
    if not program or not driver:
        return None
    from selenium import webdriver
    from selenium.webdriver.chrome.options import Options
    from selenium.webdriver.chrome.service import Service

    options = Options()
    options.binary_location = program
    for word in (
        "headless=new", "no-sandbox", "disable-gpu", "disable-dev-shm-usage", "hide-scrollbars",
    ):  # fmt: skip
        options.add_argument(f"--{word}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    # The driver's path is given, so that selenium does not look for one on the network.
    return webdriver.Chrome(options=options, service=Service(driver))


def open_page(driver: Any, address: str, width: int = 1400, scheme: str = "light") -> None:
    """Open a page as wide as a phone or a screen, in light or dark."""
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    driver.get(address)


@pytest.fixture(scope="module")
def driver() -> Iterator[Any]:
    found = browser()
    if found is None:
        pytest.skip("no chromium and chromedriver here: apt-get install chromium chromium-driver")
    yield found
    found.quit()


@pytest.fixture(scope="module")
def view(driver: Any) -> Callable[..., None]:
    """Open a page as wide as a phone or a screen, in light or dark."""
    return functools.partial(open_page, driver)
