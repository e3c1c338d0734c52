"""Open pages of the built site in Chromium: console, pictures, width, search.

    make docs && python docs/_tools/look.py             # the tutorials and the first page
    python docs/_tools/look.py --axe axe.min.js start   # another page; accessibility too

Every page is opened at 1400 and 390 points, light and dark; what was seen is left in build/look.
Status 1 if a page has an error on its console, a picture that does not load, is wider than its
window, or breaks a rule of axe-core (a file of https://github.com/dequelabs/axe-core, which is not
part of this repository), or if the search finds nothing.
"""

from __future__ import annotations

import argparse
import base64
import functools
import http.server
import shutil
import sys
import threading
from pathlib import Path
from time import sleep
from typing import Any

SITE = Path(__file__).resolve().parents[2] / "build" / "docs"
PICTURES = SITE.parent / "look"
PAGES = ("index", "tutorials/omics", "tutorials/sensors", "tutorials/text")


def browser() -> Any:
    """A Chromium that nobody sees, or None where there is none; the tests of pages use it too."""
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


def view(driver: Any, address: str, width: int = 1400, scheme: str = "light") -> None:
    """Open a page as wide as a phone or a desk, in light or dark."""
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    driver.get(address)


def problems(driver: Any, axe: str) -> list[str]:
    """What is wrong with the page that is open."""
    out = [f"console: {entry['message']}" for entry in driver.get_log("browser")
           if entry["level"] in ("SEVERE", "WARNING")]  # fmt: skip
    out += driver.execute_script(
        "return [...document.images].filter(x => !x.complete || !x.naturalWidth)"
        ".map(x => 'no picture: ' + x.src)"
    )
    wide = driver.execute_script("return document.documentElement.scrollWidth - innerWidth")
    if wide > 0:
        out.append(f"{wide} points wider than the window")
    if axe:
        driver.execute_script(axe)
        found = driver.execute_async_script("axe.run().then(arguments[0])")
        out += [f"axe: {rule['id']}, {len(rule['nodes'])} times, such as "
                f"{rule['nodes'][0]['html'][:120]}" for rule in found["violations"]]  # fmt: skip
    return out


def main() -> int:
    """Look at pages and tell; 1 if anything is wrong."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pages", nargs="*", default=PAGES, help="such as start or tutorials/text")
    parser.add_argument("--axe", type=Path, help="axe.min.js, where you have it")
    given = parser.parse_args()
    axe = given.axe.read_text(encoding="utf-8") if given.axe else ""
    if not (SITE / "index.html").exists():
        sys.exit("no site here; first: make docs")
    shutil.rmtree(PICTURES, ignore_errors=True)
    PICTURES.mkdir(parents=True)
    serve = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(SITE))
    serve.func.log_message = lambda *_: None  # type: ignore[method-assign]
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), serve)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    home, wrong = f"http://127.0.0.1:{server.server_port}", 0
    driver = browser()
    if driver is None:
        sys.exit("no chromium and chromedriver here: apt-get install chromium chromium-driver")
    try:
        driver.set_script_timeout(120)
        for page in given.pages:
            for width, scheme in ((1400, "light"), (1400, "dark"), (390, "light"), (390, "dark")):
                view(driver, f"{home}/{page}.html", width, scheme)
                found = problems(driver, axe)
                wrong += len(found)
                height = driver.execute_script("return document.documentElement.scrollHeight")
                images = driver.execute_script("return document.images.length")
                print(f"{page} {width} {scheme}: {height} points high, {images} pictures, "
                      f"{len(found)} problems", *found, sep="\n    ", flush=True)  # fmt: skip
                name = f"{page.replace('/', '-')}-{width}-{scheme}.png"
                whole = {"captureBeyondViewport": True}
                seen = driver.execute_cdp_cmd("Page.captureScreenshot", whole)["data"]
                (PICTURES / name).write_bytes(base64.b64decode(seen))
        driver.get(f"{home}/search.html?q=marginal")
        sleep(3)  # pages come one by one
        hits = driver.execute_script(
            "return document.querySelectorAll('#search-results li').length"
        )
        print(f"search for 'marginal': {hits} pages")
        wrong += not hits
    finally:
        driver.quit()
        server.shutdown()
    print(f"{wrong} problems; pictures in {PICTURES}")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
