"""The page in a real browser: no errors, sorting, filtering, both widths, light and dark, aloud."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from fewview.evaluate import Grid, run
from fewview.report._page import write_report

PHONE, DESK = 390, 1400
View = Callable[..., None]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("browser")
    methods = ("proto", "match", "bd-cspn", "rfs", "ptmap", "partial-nn", "bavardage")
    grid = Grid(datasets=("digits",), methods=methods, etas=(0.0, 0.3), splits=3, episodes=3,
                keep_probabilities=True)  # fmt: skip
    run(grid, folder / "results.sqlite")
    return write_report(folder / "results.sqlite", folder / "report.html").resolve().as_uri()


@pytest.fixture
def opened(driver: Any, view: View, address: str) -> Any:
    view(address, DESK)
    return driver


def find(driver: Any, selector: str) -> list[Any]:
    return list(driver.find_elements("css selector", selector))


def column(driver: Any, table: str, number: int) -> list[str]:
    """Texts of a column in the rows that are shown."""
    script = """
        return Array.from(document.getElementById(arguments[0]).tBodies[0].rows)
            .filter((row) => row.offsetParent !== null)
            .map((row) => row.cells[arguments[1]].textContent)"""
    return list(driver.execute_script(script, table, number))


def test_the_page_weighs_little(address: str) -> None:
    assert Path(address.removeprefix("file://")).stat().st_size < 300_000


def test_there_are_no_errors_in_the_console(opened: Any) -> None:
    for button in find(opened, "button, input[type=checkbox], summary"):
        opened.execute_script("arguments[0].click()", button)
    assert [entry for entry in opened.get_log("browser") if entry["level"] != "INFO"] == []
    requested = "return performance.getEntriesByType('resource').map((entry) => entry.name)"
    loaded = opened.execute_script(requested)
    assert [name for name in loaded if not name.startswith("data:")] == []


def test_a_press_sorts_and_another_turns_round(opened: Any) -> None:
    before = column(opened, "results", 3)
    assert len(before) == 14
    head = find(opened, "#results thead th")[3]
    button = head.find_element("tag name", "button")
    assert head.get_attribute("aria-sort") == "none"
    button.click()
    assert head.get_attribute("aria-sort") == "descending"
    numbers = sorted((float(text) for text in before), reverse=True)
    assert [float(text) for text in column(opened, "results", 3)] == numbers
    button.send_keys("\ue007")  # the Enter key: sorting works without a mouse
    assert head.get_attribute("aria-sort") == "ascending"
    assert [float(text) for text in column(opened, "results", 3)] == numbers[::-1]
    names = find(opened, "#results thead th button")[0]
    names.click()
    assert head.get_attribute("aria-sort") == "none"
    assert column(opened, "results", 0) == sorted(column(opened, "results", 0))


def test_numbers_beside_words_are_sorted_by_value(opened: Any) -> None:
    rates = ["all, mean", "0", "0.3"]
    assert column(opened, "winners", 1) == rates
    for expected in (["0.3", "0", "all, mean"], rates):
        find(opened, "#winners thead button")[1].click()
        assert column(opened, "winners", 1) == expected


def test_filters_narrow_the_rows_down(opened: Any) -> None:
    from selenium.webdriver.support.ui import Select

    words = find(opened, ".filters input")[0]
    count = find(opened, ".filters .count")[0]
    assert count.get_attribute("role") == "status"
    words.send_keys("PROTO")
    assert column(opened, "results", 0) == ["proto", "proto"]
    assert count.text == "2 of 14 rows"
    words.send_keys(" digits nothing")
    assert column(opened, "results", 0) == []
    words.clear()
    assert count.text == "14 rows"
    Select(find(opened, ".filters select")[1]).select_by_visible_text("0.3")
    assert set(column(opened, "results", 2)) == {"0.3"}
    assert count.text == "7 of 14 rows"


def shown(driver: Any, selector: str) -> list[str]:
    """Texts of the nodes that can be seen."""
    return [node.text for node in find(driver, selector) if node.is_displayed()]


def test_conditions_change_the_answer(opened: Any) -> None:
    (before,) = shown(opened, ".card .said")
    boxes = find(opened, ".card input")
    assert len(boxes) == 3
    boxes[0].click()
    (alone,) = shown(opened, ".card .said")
    assert before != alone
    assert alone.startswith("Use ")
    (note,) = shown(opened, ".card .note")
    # These look at all queries together.
    assert all(name in note for name in ("bd-cspn", "ptmap", "bavardage"))
    boxes[0].click()
    assert shown(opened, ".card .said") == [before]
    boxes[2].click()
    assert "--query-counts dirichlet:2" in shown(opened, ".card pre")[0]
    assert opened.execute_script("return location.hash") == "#&when=skewed"


def test_the_leaderboard_steers_figures_and_tables(opened: Any) -> None:
    rows = find(opened, "#leaders tbody tr")
    assert len(rows) == 7
    box = find(opened, "#leaders input")[1]
    look, name = box.get_attribute("data-m"), box.get_attribute("value")
    series = find(opened, f'g.series[data-m="{look}"]')
    assert len(series) >= 5  # curves, differences, views, calibration, ranks, time
    assert name in column(opened, "results", 0)
    for on in (False, True):
        box.click()
        assert box.is_selected() == on
        assert all(("on" in one.get_attribute("class").split()) == on for one in series)
        assert (name in column(opened, "results", 0)) == on
        assert (name in column(opened, "curves-0", 0)) == on
        assert (name in shown(opened, "#calibration .head")) == on
        assert (name in shown(opened, "#wrong .head")) == on
        assert (name in shown(opened, "#curves .keys li")) == on
        address = opened.execute_script("return location.hash")
        assert (f"off={name}" in address) == (not on)
    # Only the chosen method has a band.
    bands = find(opened, "#curves g.series .band")
    assert len(bands) == 7
    assert sum(band.value_of_css_property("display") != "none" for band in bands) == 1
    assert "pick" in find(opened, f'#curves g[data-m="{look}"]')[0].get_attribute("class")


def test_the_address_brings_the_page_back(driver: Any, view: View, address: str) -> None:
    view("about:blank", DESK)
    driver.get(f"{address}#time&off=proto,rfs&pick=match&when=one-by-one&sort=results.3.ascending")
    off = [b.get_attribute("value") for b in find(driver, "#leaders input") if not b.is_selected()]
    assert sorted(off) == ["proto", "rfs"]
    assert find(driver, ".card input")[0].is_selected()
    assert "proto" not in column(driver, "results", 0)
    numbers = [float(text) for text in column(driver, "results", 3)]
    assert numbers == sorted(numbers)
    top = driver.execute_script("return document.getElementById('time').getBoundingClientRect().y")
    assert abs(top) < 300
    driver.execute_script("location.hash = '#curves'")  # as a link of the page does
    driver.execute_script("return new Promise((done) => setTimeout(done, 100))")
    assert driver.execute_script("return location.hash").startswith("#curves&off=")


def test_the_answer_leads_to_the_queries(opened: Any) -> None:
    """Whoever asks why a sample is got wrong finds it from the first screen, in one press."""
    (link,) = find(opened, ".card .after a")
    assert link.location["y"] < 900, "on the first screen"
    assert "Wrong answers, and why" in [node.text for node in find(opened, "nav a")]
    link.click()
    opened.execute_script("return new Promise((done) => setTimeout(done, 100))")
    top = "return document.querySelector('details.query').getBoundingClientRect().top"
    assert 0 <= opened.execute_script(top) < 400
    surest = [float(re.sub("[^0-9.]", "", text)) for text in
              shown(opened, "details.query summary > :nth-child(3)")]  # fmt: skip
    assert surest == sorted(surest, reverse=True)


def test_a_query_is_opened(opened: Any) -> None:
    queries = find(opened, "details.query")
    assert 1 <= len(queries) <= 12
    assert not shown(opened, "details.query table")
    find(opened, "details.query summary")[0].click()
    opened.execute_script("return new Promise((done) => setTimeout(done, 100))")
    tables = find(queries[0], "table")
    assert len(tables) == 3
    assert all(table.is_displayed() for table in tables)
    views = find(queries[0], "table:first-of-type tbody tr th")
    assert [node.text for node in views[:6]] == ["fou", "fac", "kar", "pix", "zer", "mor"]
    drawn, gaps = find(queries[0], "td svg"), find(queries[0], ".gap")
    assert len(drawn) + len(gaps) == 6 * 3
    assert all(node.size["height"] > 5 for node in drawn)
    has = len(find(queries[0], "summary .m i:not(.no)"))
    (line,) = find(queries[0], "p:first-of-type")[:1]
    assert re.match(rf"(\d of its {has}|All {has} of its) views speaks? for ", line.text)
    id = queries[0].get_attribute("id")
    assert opened.execute_script("return location.hash") == f"#{id}"
    said = [row.text.split()[0] for row in find(queries[0], f"#{id}-said tbody tr")]
    assert len(said) == 7


def test_a_phone_shows_an_opened_query_whole(driver: Any, view: View, address: str) -> None:
    view(address, PHONE)
    for query in find(driver, "details.query"):
        driver.execute_script("arguments[0].open = true", query)
    driver.execute_script("return new Promise((done) => setTimeout(done, 200))")
    assert driver.execute_script("return document.documentElement.scrollWidth") == PHONE
    # Text above a table that scrolls sideways is not cut off.
    cut = """
        return Array.from(document.querySelectorAll('caption'))
            .filter((node) => node.getBoundingClientRect().right > window.innerWidth)
            .map((node) => node.textContent)"""
    assert driver.execute_script(cut) == []


def test_a_few_methods_at_once(opened: Any) -> None:
    for name, count in (("the best three", 3), ("none", 0), ("all", 7)):
        (button,) = [b for b in find(opened, "#leaders .tools button") if b.text == name]
        button.click()
        assert sum(box.is_selected() for box in find(opened, "#leaders input")) == count
        assert len(column(opened, "curves-0", 0)) == count


def test_everything_is_reached_by_keys_alone(opened: Any) -> None:
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    def press(*keys: str) -> Any:
        for key in keys:
            ActionChains(opened).send_keys(key).perform()
        return opened.switch_to.active_element

    def walk(wanted: str, most: int = 400) -> Any:
        for _ in range(most):
            here = press(Keys.TAB)
            if opened.execute_script("return arguments[0].matches(arguments[1])", here, wanted):
                return here
        raise AssertionError(f"{wanted} is not reached")

    assert walk(".skip").text == "Skip to the answer"
    box = walk(".card input")
    press(Keys.SPACE)
    assert box.is_selected()
    box = walk("#leaders input")
    press(Keys.SPACE)
    assert not box.is_selected()
    press(Keys.SPACE)
    walk("#curves svg.chart")
    tip = find(opened, ".tip")[0]
    assert not tip.is_displayed()
    press(Keys.ARROW_RIGHT)
    first = tip.text
    assert "missing rate 0: " in first
    press(Keys.ARROW_RIGHT)
    assert "missing rate 0.3: " in tip.text
    press(Keys.ARROW_DOWN)
    assert tip.text.split(",")[0] != first.split(",")[0]
    press(Keys.ESCAPE)
    assert not tip.is_displayed()
    walk("#samples summary")
    press(Keys.ENTER)
    assert shown(opened, "details.query table")


def test_a_touch_finds_the_nearest_point(opened: Any) -> None:
    mark = find(opened, "#curves g.series.on .mark use")[0]
    script = """
        const box = arguments[0].getBoundingClientRect();
        arguments[0].closest('svg').dispatchEvent(new PointerEvent('pointerdown',
            {clientX: box.x + 9, clientY: box.y + 9, bubbles: true}))"""
    opened.execute_script("arguments[0].scrollIntoView({block: 'center'})", mark)
    opened.execute_script(script, mark)
    assert "missing rate" in shown(opened, ".tip")[0]


def test_figures_and_tables_are_saved(opened: Any) -> None:
    """Links, SVG, CSV and LaTeX: what a press would write to a file."""
    opened.execute_script("""
        URL.createObjectURL = (blob) => {
            blob.text().then((text) => { window.last = text; });
            return '#';
        };
        HTMLAnchorElement.prototype.click = function () { window.name_ = this.download; }""")

    def save(place: str, kind: str) -> tuple[str, str]:
        (button,) = [b for b in find(opened, f"{place} .tools button, {place} + .tools button")
                     if b.text == kind][:1]  # fmt: skip
        opened.execute_script("arguments[0].click()", button)
        opened.execute_script("return new Promise((done) => setTimeout(done, 50))")
        return tuple(opened.execute_script("return [window.name_, window.last]"))

    figures = find(opened, "figure[id]")
    assert len(figures) > 15
    assert all(len(find(figure, ".tools > *")) >= 2 for figure in figures)
    curve = "#curves figure:first-of-type"
    name, text = save(curve, "SVG")
    assert name.endswith(".svg")
    drawing = ElementTree.fromstring(text)
    assert drawing.get("width") == "88mm"
    strokes = {node.get("stroke") for node in drawing.iter()}
    assert len(strokes) > 5, "colours are written into the file"
    _, text = save(curve, "CSV")
    assert text.splitlines()[0] == "name,missing rate,accuracy (%),low,high"
    assert len(text.splitlines()) == 15
    _, text = save(curve, "LaTeX")
    assert text.count("\\addplot coordinates {(0,") == 7
    name, text = save(".scroll:has(#curves-0)", "LaTeX")
    assert name == "curves-0.tex"
    assert "\\toprule" in text
    assert "\\textbf{" in text
    assert text.count("\\\\\n") == 8


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [PHONE, DESK])
def test_the_page_fits_and_is_not_empty(
    driver: Any, view: View, address: str, width: int, scheme: str, tmp_path: Path
) -> None:
    from matplotlib.image import imread

    view(address, width, scheme)
    page = "document.documentElement"
    assert driver.execute_script(f"return {page}.scrollWidth") == width
    inside = """
        const wide = window.innerWidth;
        return Array.from(document.querySelectorAll('main *')).filter((node) =>
            !node.closest('.scroll, svg') && node.getBoundingClientRect().right > wide + 1)
            .map((node) => node.outerHTML.slice(0, 80))"""
    assert driver.execute_script(inside) == []
    told = driver.execute_script("return document.querySelector('#results').closest('.more')")
    assert told, "a table that is wider than its box says so"
    height = driver.execute_script(f"return {page}.scrollHeight")
    colours = set()
    for top in range(0, max(height - 300, 1), 1500):
        clip = {"x": 0, "y": top, "width": width, "height": min(1500, height - top), "scale": 1}
        options = {"format": "png", "captureBeyondViewport": True, "clip": clip}
        data = driver.execute_cdp_cmd("Page.captureScreenshot", options)["data"]
        pixels = imread(io.BytesIO(base64.b64decode(data)), format="png")[..., :3]
        assert pixels.shape[1] == width
        background = pixels[0, 0]
        assert (background.mean() > 0.9) == (scheme == "light")
        other = (np.abs(pixels - background) > 0.2).any(axis=-1)
        # No screenful is blank: text and drawings are in every 300 pixels of height.
        parts = np.array_split(other, max(1, len(other) // 300))
        assert [k for k, part in enumerate(parts) if not part.any()] == [], top
        colours |= set(map(tuple, (pixels[other] * 7).round().astype(int)))
    assert len(colours) > 30


def test_text_stands_out_from_its_background(driver: Any, view: View, address: str) -> None:
    """Contrast of at least 4.5 to 1 (WCAG 2, level AA) for running text, links and table text."""
    script = """
        return [
            'p', 'a', 'caption', 'td', 'thead button', 'figcaption', '.tools button', '.keys li'
        ].map(
            (selector) => getComputedStyle(document.querySelector('main ' + selector) ??
                document.querySelector(selector)).color
        ).concat([getComputedStyle(document.body).backgroundColor])"""
    for scheme in ("light", "dark"):
        view(address, DESK, scheme)
        values = [
            [int(part) / 255 for part in text[text.index("(") + 1 : -1].split(",")[:3]]
            for text in driver.execute_script(script)
        ]
        *texts, background = [_luminance(value) for value in values]
        for text in texts:
            light, dark = max(text, background), min(text, background)
            assert (light + 0.05) / (dark + 0.05) > 4.5


def _luminance(colour: list[float]) -> float:
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_what_a_screen_reader_gets(opened: Any) -> None:
    nodes = opened.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    by_role: dict[str, list[str]] = {}
    for node in nodes:
        if not node.get("ignored"):
            name = node.get("name", {}).get("value", "")
            by_role.setdefault(node["role"]["value"], []).append(name)
    headings = by_role["heading"]
    assert headings[0] == "Few-shot accuracy with missing views: digits"
    assert headings[1] == "Which method to use"
    assert by_role["table"][0].startswith("Who wins where: the most accurate method")
    assert by_role["columnheader"][:3] == ["data set", "missing rate", "best method"]
    assert by_role["rowheader"][0] == "digits"
    assert all(len(name) > 40 for name in by_role["image"])
    assert {"navigation", "main"} <= set(by_role)
    assert "Contains" in by_role["searchbox"][0]


def test_it_prints_on_paper(opened: Any) -> None:
    data = opened.execute_cdp_cmd("Page.printToPDF", {"printBackground": False})["data"]
    paper = base64.b64decode(data)
    assert paper.startswith(b"%PDF")
    assert 2 <= paper.count(b"/Type /Page\n") + paper.count(b"/Type /Page ") <= 40
    opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        size = {"width": 720, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        opened.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        hidden = find(opened, "nav, .filters, .tools, .card input")
        assert not any(node.is_displayed() for node in hidden)
        wide = "return document.documentElement.scrollWidth"
        assert opened.execute_script(wide) == 720
        colour = opened.execute_script("return getComputedStyle(document.body).backgroundColor")
        assert colour == "rgb(255, 255, 255)"
        for figure in find(opened, "#curves figure"):
            assert figure.value_of_css_property("break-inside") == "avoid"
        assert shown(opened, "#curves .keys li"), "on paper the legend stands in the figure"
    finally:
        opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
