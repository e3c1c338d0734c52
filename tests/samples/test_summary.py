"""The summary counts right, and its text, HTML and picture survive odd names."""

from __future__ import annotations

import math
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fewview.samples._data import MultiViewData
from fewview.samples._overview import MAX_PATTERNS, summarise

NAN = float("nan")


def small() -> MultiViewData:
    return MultiViewData(
        {
            "image": [[1.0, 2.0], [NAN, NAN], [-3.0, 4.0], [0.0, 0.0]],
            "<text> & $more$": [[5.0], [6.0], [NAN], [7.0]],
            "never\nseen": np.full((4, 3), NAN),
        },
        ["cat", "dog", None, "cat"],
        name="pets",
    )


def many(n_views: int = 6, n: int = 400) -> MultiViewData:
    rng = np.random.default_rng(0)
    mask = rng.random((n, n_views)) < 0.5
    mask[~mask.any(axis=1), 0] = True
    return MultiViewData({f"v{i}": np.ones((n, 1)) for i in range(n_views)}, mask=mask)


def test_counts() -> None:
    summary = small().summary()
    assert (summary.name, summary.n_samples, summary.n_complete) == ("pets", 4, 0)
    assert (summary.n_classes, summary.smallest_class, summary.largest_class) == (2, 1, 2)
    assert summary.unlabelled == 1
    assert summary.missing_rate == pytest.approx(0.5)
    image, text, never = summary.views
    assert (image.name, image.width, image.present) == ("image", 2, 3)
    assert (image.missing_rate, image.minimum, image.maximum) == (0.25, -3.0, 4.0)
    assert (text.present, text.maximum) == (3, 7.0)
    assert never.present == 0
    assert math.isnan(never.minimum)
    assert summary.patterns == (
        ((True, True, False), 2),
        ((True, False, False), 1),
        ((False, True, False), 1),
    )
    assert summary.frequencies == (0.5, 0.25, 0.25)
    with pytest.raises(AttributeError):
        summary.n_samples = 5  # type: ignore[misc]


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 4).flatmap(lambda v: st.lists(st.tuples(*[st.booleans()] * v).filter(any))))
def test_patterns_are_what_the_mask_holds(rows: list[tuple[bool, ...]]) -> None:
    n_views = len(rows[0]) if rows else 2
    mask = np.array(rows, dtype=bool).reshape(len(rows), n_views)
    views = {f"v{i}": np.ones((len(rows), 1)) for i in range(n_views)}
    data = MultiViewData(views, mask=mask)
    summary = summarise(data)
    assert dict(summary.patterns) == {row: rows.count(row) for row in rows}
    counts = [count for _, count in summary.patterns]
    assert counts == sorted(counts, reverse=True)
    assert sum(counts) == len(rows)
    assert sum(summary.frequencies) == pytest.approx(1.0 if rows else 0.0)
    assert summary.n_complete == sum(map(all, rows))
    assert summarise(data[::-1]).patterns == summary.patterns
    assert str(summary).startswith(f"{len(rows)} sample")
    assert "<table" in summary.to_html()


def test_text_is_aligned() -> None:
    lines = str(small().summary()).splitlines()
    assert lines[0].startswith("4 samples (pets), 3 views, 2 classes")
    table = lines[2:6]
    assert len({len(line) for line in table}) == 1
    assert table[3].startswith("never\\nseen")
    assert table[3].split()[-2:] == ["-", "-"]
    assert "no labels" in str(MultiViewData([[1.0]]).summary())
    assert "other combinations in" in str(many().summary())


class Checker(HTMLParser):
    """Counts headers and notes whether every element that was opened is closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.scopes: list[str | None] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        self.seen.append(tag)
        if tag == "th":
            self.scopes.append(dict(attrs).get("scope"))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_html() -> None:
    data = small()
    html = data._repr_html_()
    assert html == data.summary()._repr_html_()
    checker = Checker()
    checker.feed(html)
    assert checker.open == []
    # Views, missing views by class, patterns, and the columns of each view.
    assert checker.seen.count("table") == checker.seen.count("caption") == 6
    assert set(checker.scopes) == {"col", "row"}
    assert "text" not in checker.seen  # the view <text> is escaped
    assert "&lt;text&gt; &amp; $more$" in html
    assert "http" not in html
    assert "<script" not in MultiViewData([[1.0]], name="<script>").summary().to_html()
    assert "other combinations in" in many().summary().to_html()


def test_classes_and_columns_are_counted() -> None:
    known = small().summary().profile
    assert known is not None
    # Both cats have image and text, the dog has no image, nobody has the third view.
    assert known.classes == (("cat", 2, (0.0, 0.0, 1.0)), ("dog", 1, (1.0, 0.0, 1.0)))
    first = known.columns[0][0]
    assert (first.name, first.minimum, first.maximum) == ("0", -3.0, 1.0)
    assert first.mean == pytest.approx(-2 / 3)  # of 1, -3 and 0
    assert sum(first.counts) == 3
    assert known.columns[2][0].counts == ()
    wide = MultiViewData({"a": np.arange(90.0).reshape(3, 30)}).summary().profile
    assert wide is not None
    assert (len(wide.columns[0]), wide.n_columns) == (20, (30,))
    many_rows = MultiViewData({"a": np.arange(25_000.0)[:, None]}).summary().profile
    assert many_rows is not None
    assert 5_000 < many_rows.n_rows <= 10_000
    assert max(many_rows.values[0]) - min(many_rows.values[0]) <= 1  # even, as the numbers are


def test_columns_of_words_are_told_as_they_were() -> None:
    frame = pd.DataFrame({"leaf": ["wet", "wet", "dry", None], "size": [1.0, 2.0, 3.0, 4.0]})
    known = MultiViewData.from_frames({"plant": frame}).summary().profile
    assert known is not None
    leaf, size = known.columns[0]
    assert (leaf.kind, leaf.empty, leaf.common) == ("category", 0.25, "wet 67%, dry 33%")
    assert (size.mean, size.counts[0]) == (2.5, 1)


def test_picture() -> None:
    ax = small().plot_patterns()
    assert [bar.get_height() for bar in ax.patches] == [2, 1, 1]
    assert "image" in [tick.get_text() for tick in ax.get_yticklabels()]
    ax.figure.canvas.draw()


def test_picture_in_given_axes_with_many_patterns() -> None:
    from matplotlib.figure import Figure

    figure = Figure()
    mine = figure.subplots(1, 2)[1]
    summary = many().summary()
    assert len(summary.patterns) > MAX_PATTERNS
    ax = summary.plot(mine)
    assert ax is mine
    heights = [bar.get_height() for bar in ax.patches]
    assert len(heights) == MAX_PATTERNS + 1
    assert sum(heights) == 400
    assert f"{len(summary.patterns) - MAX_PATTERNS} others" in [
        text.get_text() for text in ax.texts
    ]
    figure.canvas.draw()


def test_picture_of_nothing() -> None:
    MultiViewData({"a": np.empty((0, 2))}).plot_patterns().figure.canvas.draw()
