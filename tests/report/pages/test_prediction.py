"""The page of predictions: its numbers are those of the method, and it works in a real browser."""

from __future__ import annotations

import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fewview import MultiViewData, create
from fewview.evaluate._predictions import predict_table
from fewview.ground._rows import by_row
from fewview.report.pages._prediction import (
    MOST_SAMPLES,
    reasons_for_page,
    shown_predictions,
    write_predictions,
)

PHONE, DESK = 390, 1400


def make_page(folder: Path, clf: Any, query: MultiViewData) -> Path:
    found = reasons_for_page(clf, query)
    rows = by_row(predict_table(clf, query))
    return write_predictions(folder / "page.html", clf, query, rows, found, command="fewview x")


@pytest.fixture(scope="module")
def address(digits_task: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> str:
    clf, query = digits_task()
    return make_page(tmp_path_factory.mktemp("page"), clf, query).resolve().as_uri()


@pytest.mark.parametrize("name", ["marginal", "ptmap", "proto"])
def test_numbers_are_those_of_the_method(digits_task: Callable[..., Any], name: str) -> None:
    clf, query = digits_task(name)
    found = reasons_for_page(clf, query)
    rows = by_row(predict_table(clf, query))
    shown = shown_predictions(clf, rows, found, query.labels.tolist())
    proba, alone = clf.predict_proba(query), clf.predict_proba(query, inductive=True)
    labels = clf.predict(query)
    assert len(shown.samples) == shown.total == len(query)
    for sample in shown.samples:
        row = sample.number
        assert sample.label == str(labels[row])
        assert sample.probability == pytest.approx(proba[row].max(), abs=1e-6)
        assert sample.right == (labels[row] == query.labels[row])
        assert sample.has == query.mask[row].tolist()
        if name == "proto":
            assert sample.alone is sample.pull is None
            continue
        code = proba[row].argmax()
        assert sample.alone == pytest.approx(alone[row, code], abs=1e-6)
        # Own views are what the method says of the sample by itself; the rest is the others.
        second = np.argsort(-proba[row])[1]
        own = np.log(alone[row, code] / alone[row, second])
        assert sample.own == pytest.approx(own, abs=1e-3)
        assert sample.own + (sample.pull or 0.0) == pytest.approx(sample.margin, abs=1e-6)
    wrong = [s.probability for s in shown.samples if s.right is False]
    assert wrong == sorted(wrong, reverse=True)
    assert [s.right for s in shown.samples[: len(wrong)]] == [False] * len(wrong)


def test_nearest_supports_are_over_shared_views() -> None:
    views = {"a": [[0.0], [1.0], [9.0]], "b": [[5.0], [9.0], [0.0]]}
    support = MultiViewData(views, ["x", "x", "y"], ids=["s0", "s1", "s2"],
                            mask=[[True, True], [True, False], [True, True]])  # fmt: skip
    clf = create("proto", scaling="none").fit(support)
    query = MultiViewData({"a": [[2.0]], "b": [[9.0]]})
    near = clf.explain(query).nearest[0]
    # By hand: s1 shares a alone (distance 1), s0 both ((2^2 + 4^2) / 2), s2 both ((7^2 + 9^2) / 2).
    assert [(name, label) for name, label, _ in near] == [("s1", "x"), ("s0", "x"), ("s2", "y")]
    assert [d for _, _, d in near] == pytest.approx([1.0, 10.0**0.5, 65.0**0.5])


def test_names_are_escaped(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>"
    view = "<script>"
    support = MultiViewData({view: [[0.0], [9.0]]}, [evil, "'\"&"], ids=[evil, "b"])
    clf = create("proto").fit(support)
    query = MultiViewData({view: [[1.0], [8.0]]}, ids=["<b>", "&amp;"])
    text = make_page(tmp_path, clf, query).read_text()
    assert text.count("<script>") == 1  # its own
    assert "<b>" not in text


def test_a_page_of_many_samples_stays_small(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    codes = np.arange(10_006) % 3
    views = {f"v{k}": codes[:, None] + rng.normal(size=(len(codes), 2)) for k in range(4)}
    data = MultiViewData(views, codes)
    clf = create("proto").fit(data[:6])
    query = data[6:].with_labels(None)
    page = make_page(tmp_path, clf, query)
    text = page.read_text()
    assert page.stat().st_size < 2_000_000
    assert text.count('<tr class="card"') == MOST_SAMPLES
    assert "All 10,000 samples are counted here; 400 are listed below: those that were" in text
    margins = [float(m) for m in re.findall(r'<td class="n">([+-]\d+\.\d\d)</td></tr>', text)]
    least_sure = np.argsort(clf.predict_proba(query).max(1), kind="stable")[:MOST_SAMPLES]
    shown = clf.explain(query).margin[least_sure]
    assert margins == pytest.approx(shown.round(2), abs=0.011)


class Loads(HTMLParser):
    """Collects what a page would load from elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [v or "" for k, v in attrs if k in ("src", "href", "action", "onclick")]


def test_nothing_is_loaded(address: str) -> None:
    text = Path(address.removeprefix("file://")).read_text()
    parser = Loads()
    parser.feed(text)
    assert parser.found == ["data:,", "#main"]
    assert "default-src 'none'" in text


# ---------------------------------------------------------------------- in a browser


def ids(driver: Any) -> list[str]:
    script = """return Array.from(document.querySelector('#samples').tBodies)
        .filter((body) => !body.hidden).map((body) => body.rows[0].cells[0].textContent)"""
    return list(driver.execute_script(script))


def test_sorting_filtering_and_opening_by_keyboard(
    driver: Any, view: Callable[..., None], address: str
) -> None:
    view(address)
    assert len(ids(driver)) == 30
    heads = driver.find_elements("css selector", "#samples > thead th")
    names = [head.text.split("\n")[0].strip(" ↕↑↓") for head in heads]
    place = names.index("probability")
    heads[place].find_element("tag name", "button").send_keys("\ue007")
    script = """return Array.from(document.querySelector('#samples').tBodies).map(
        (body) => parseFloat(body.rows[0].cells[arguments[0]].dataset.v))"""
    values = driver.execute_script(script, place)
    assert values == sorted(values, reverse=True)
    # A card is closed, opens by a key, and moves with its row.
    button = driver.find_elements("css selector", "#samples button.open")[0]
    card = driver.find_element("id", button.get_attribute("aria-controls"))
    assert not card.is_displayed()
    button.send_keys(" ")
    assert button.get_attribute("aria-expanded") == "true"
    assert "pull of the other queries" in card.text
    assert "missing" in card.text
    heads[place].find_element("tag name", "button").click()
    assert card.is_displayed()
    # Filters narrow down, and say how far.
    from selenium.webdriver.support.ui import Select

    lacks = driver.find_element("css selector", "[data-on=lacks]")
    Select(lacks).select_by_visible_text("fou")
    count = len(ids(driver))
    assert 0 < count < 30
    status = driver.find_element("css selector", ".filters .count")
    assert status.text == f"{count} of 30 samples"
    driver.find_element("css selector", "[data-on=changed]").click()
    assert len(ids(driver)) <= count
    assert [entry for entry in driver.get_log("browser") if entry["level"] != "INFO"] == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [PHONE, DESK])
def test_it_fits(
    driver: Any, view: Callable[..., None], address: str, width: int, scheme: str
) -> None:
    view(address, width, scheme)
    for button in driver.find_elements("css selector", "button.open")[:3]:
        driver.execute_script("arguments[0].click()", button)
    assert driver.execute_script("return document.documentElement.scrollWidth") == width
    wide = """return Array.from(document.querySelectorAll('.inside')).filter(
        (node) => node.offsetParent && node.scrollWidth > node.clientWidth + 1).length"""
    assert driver.execute_script(wide) == 0, "cards need no scrolling"
    colour = driver.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert (colour == "rgb(255, 255, 255)") == (scheme == "light")
