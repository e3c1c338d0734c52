"""Shared by the tests of pages about samples: a browser, and a task of the embedded digits."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from fewview import EpisodeSampler, TaskSpec, create, load
from fewview.datasets import class_split

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")
DRIVER = shutil.which("chromedriver")


@pytest.fixture(scope="module")
def driver() -> Iterator[Any]:
    if not BROWSER or not DRIVER:
        pytest.skip("no chromium and chromedriver here: apt-get install chromium chromium-driver")
    from selenium import webdriver
    from selenium.webdriver.chrome.options import Options
    from selenium.webdriver.chrome.service import Service

    options = Options()
    options.binary_location = str(BROWSER)
    for argument in (
        "headless=new",
        "no-sandbox",
        "disable-gpu",
        "disable-dev-shm-usage",
        "hide-scrollbars",
    ):
        options.add_argument(f"--{argument}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = webdriver.Chrome(options=options, service=Service(str(DRIVER)))
    yield browser
    browser.quit()


@pytest.fixture(scope="module")
def view(driver: Any) -> Callable[..., None]:
    """Open a page as wide as a phone or a desk, in light or dark."""

    def show(address: str, width: int = 1400, scheme: str = "light") -> None:
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        driver.get(address)

    return show


@pytest.fixture(scope="module")
def digits_task() -> Callable[..., Any]:
    """A method fitted to three digits, and queries with 40 % of their views missing."""

    def make(name: str = "marginal", queries: int = 10) -> Any:
        data, split = load("digits"), class_split("digits", 0)
        task = TaskSpec(way=3, shot=1, queries=queries, eta=0.4)
        episode = EpisodeSampler(data, task, split.novel).draw(4, 5)
        support = data[episode.support[0]].with_mask(episode.support_mask[0])
        query = data[episode.query[0]].with_mask(episode.query_mask[0])
        clf = create(name, base=data[np.isin(data.labels, split.base)]).fit(support)
        return clf, query

    return make
