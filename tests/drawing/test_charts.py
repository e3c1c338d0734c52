"""Charts: the same figure for a file and for a page, true to its numbers, safe with any name."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.lines import Line2D

from fewview.drawing._charts import (
    Point,
    Scale,
    Series,
    accuracy_chart,
    accuracy_curves,
    chart,
    key,
    mask_strips,
    rank_diagram,
    rows_chart,
    save_figure,
    scatter,
)
from fewview.drawing._looks import COLOURS, GREY, look_at, look_of, looks
from fewview.drawing._svg import svg_element
from fewview.results._intervals import average_ranks
from fewview.samples import FewviewError

EVIL = "<b>&\"'$x_1$\n{%"


def row(**changes: Any) -> dict[str, Any]:
    values = {
        "dataset": "digits", "method": "proto", "way": 3, "shot": 1, "eta": 0.0, "accuracy": 84.15,
        "ci_low": 80.0, "ci_high": 88.0,
    }  # fmt: skip
    return values | changes


def curves(methods: tuple[str, ...] = ("proto", "match", "mine")) -> list[dict[str, Any]]:
    return [
        row(method=name, eta=eta, accuracy=84 - 40 * eta - k)
        for k, name in enumerate(methods)
        for eta in (0.0, 0.3, 0.5)
    ]


def element(figure: Any, **options: Any) -> Any:
    """The element of a page, read as strictly as XML is."""
    text = svg_element(figure, **({"title": "t", "description": "d"} | options))
    return ElementTree.fromstring(text)


def with_class(tree: Any, name: str, tag: str = "*") -> list[Any]:
    return [node for node in tree.iter() if name in node.get("class", "").split()
            and tag in ("*", node.tag)]  # fmt: skip


# ------------------------------------------------------------------ axes


def ticks_of(scale: Scale) -> list[float]:
    """Numbers that are written below a chart."""
    texts = element(chart([], scale, Scale("", 0, 1, ticks=(7.0,)))).iter("text")
    written = [(node.text or "").replace("\N{MINUS SIGN}", "-") for node in texts]
    return [float(text) for text in written if text not in ("", scale.name)]


@pytest.mark.parametrize(("low", "high"), [(0, 1), (33.3, 98.2), (5, 5), (-3, 1e-4), (1e-6, 3e-6)])
def test_axes_have_a_few_round_ticks_inside(low: float, high: float) -> None:
    scale = Scale("x", low, high)
    first, last = scale.ends
    ticks = ticks_of(scale)
    assert 2 <= len(ticks) <= 9
    assert all(first - 1e-9 <= tick <= last + 1e-9 for tick in ticks)
    (axes,) = chart([], scale, Scale("y", 0, 1)).axes
    assert axes.get_xlim() == (first, last)


def test_ticks_are_round() -> None:
    assert ticks_of(Scale("accuracy", 52.0, 97.0)) == [60, 70, 80, 90]
    assert ticks_of(Scale("seconds", 0.02, 30.0, log=True)) == [0.1, 1, 10]
    assert ticks_of(Scale("seconds", 3.0, 4.0, log=True)) == [2, 5]
    assert ticks_of(Scale("rate", 0.0, 0.5, ticks=(0.0, 0.3))) == [0, 0.3]


def test_a_logarithmic_axis_has_equal_steps() -> None:
    scale = Scale("x", 0.01, 100, log=True)
    (axes,) = chart([], scale, Scale("y", 0, 1)).axes
    places = [axes.transData.transform((tick, 0))[0] for tick in ticks_of(scale)]
    assert len(places) == 5
    assert np.diff(places) == pytest.approx(np.diff(places)[0])


# ------------------------------------------------------------------ what is drawn


def test_points_lie_where_their_numbers_say() -> None:
    points = (Point(0.0, 80.0, 75.0, 85.0, "a"), Point(0.5, 60.0, 55.0, 65.0, "b"))
    line = Series("proto", looks(["proto"])["proto"], points)
    tree = element(chart([line], Scale("rate", 0, 0.5), Scale("accuracy", 60, 80)))
    (group,) = with_class(tree, "series")
    assert group.get("class").split() == ["series", "c6", "on"]
    (marks,) = with_class(group, "mark")
    assert [(m.get("x"), m.get("y"), m[0].text) for m in marks] == [
        ("46", "12", "a"), ("426", "258", "b"),
    ]  # fmt: skip
    (drawn,) = with_class(group, "line")
    assert drawn.get("d") == "M46,12l380,246"
    (band,) = with_class(group, "band")  # what lies outside the axes is cut off
    assert band.get("d") == "M46,12l380,184.5v61.5l-380,-184.5z"


def test_a_method_looks_the_same_in_a_file_and_on_a_page() -> None:
    names = ("proto", "match", "mine")
    known = looks(names)
    saved = {
        tuple(line.get_gid().split(".")[2:4]): line.get_color()
        for axes in accuracy_curves(curves(names)).axes
        for line in axes.lines
        if (line.get_gid() or "").startswith("line.")
    }
    page = element(accuracy_chart(curves(names), known, names))
    for name in names:
        look = known[name]
        assert saved[look.key, f"c{look.colour}"] == COLOURS[look.colour]
        (group,) = [g for g in with_class(page, "series", "g") if g.get("data-m") == look.key]
        assert f"c{look.colour}" in group.get("class").split()


def test_methods_that_are_not_shown_are_grey_and_can_be_switched() -> None:
    known = looks(["proto", "match", "mine"])
    figure = accuracy_chart(curves(), known, ["match"])
    colours = {line.get_color() for line in figure.axes[0].lines if line.get_gid()}
    assert colours == {GREY, COLOURS[known["match"].colour]}
    groups = with_class(element(figure), "series", "g")
    assert [g.get("data-m") for g in groups][-1] == known["match"].key, "drawn last, on top"
    for group in groups:
        assert ("on" in group.get("class").split()) == (group.get("data-m") == known["match"].key)
        assert len(with_class(group, "band")) == 1
        assert len(with_class(group, "line")) == 1


def test_names_stand_beside_points_where_there_is_room() -> None:
    def points(gap: float) -> list[Series]:
        places = enumerate(("proto", "match"))
        return [
            Series(n, look_at(k, n), (Point(0.4, 0.5 + gap * k),), joined=False, labelled=True)
            for k, n in places
        ]

    for gap, count in ((0.3, 2), (0.0, 2)):
        tree = element(chart(points(gap), Scale("x", 0, 1), Scale("y", 0, 1)))
        labels = with_class(tree, "label")
        assert len(labels) == count
        assert len({(label.get("x"), label.get("y")) for label in labels}) == count
    crowd = [replaced for _ in range(5) for replaced in points(0.0)]
    labels = with_class(element(chart(crowd, Scale("x", 0, 1), Scale("y", 0, 1))), "label")
    assert len(labels) == 4, "one on each side, the others nowhere"


def test_ranks_are_rows_with_a_bar_beside_the_best() -> None:
    names = ["a", "b", "a-long-name:solver=reference,n_anchors=10"]
    ranking = average_ranks([[3, 2, 1], [2, 3, 1], [3, 2, 1]] * 3, names)
    tree = element(rank_diagram(ranking, "class splits"))
    texts = [node.text for node in tree.iter("text")]
    assert {"a", "1.33", "b", "1.67", "a-long-name:solver=refer…", "3.00"} <= set(texts)
    assert "bars: not told apart from a" in texts
    assert "average rank over 9 class splits (1 is best)" in texts
    joins = [node for node in tree.iter("path") if node.get("stroke-width") == "4"]
    assert len(joins) == 1
    assert ranking.tied == ("b",)
    titles = [node.text for node in tree.iter("title")]
    assert titles == ["a: 1.33", "b: 1.67", f"{names[2]}: 3.00"]
    switches = [group.get("data-m") for group in with_class(tree, "series")]
    assert switches == [look_of(name).key for name in names]


def test_rows_have_intervals() -> None:
    one = Series("proto", look_at(0), (Point(0, 50.0, 40.0, 60.0),))
    tree = element(rows_chart([one], Scale("accuracy", 40, 60)))
    assert len(with_class(tree, "bar")) == 1


def test_every_cell_of_a_mask_is_drawn_once() -> None:
    """Neighbours of a group as one box: boxes there and boxes missing have the cells' area."""
    mask = np.array([[True, False], [True, True], [False, True]])
    figure = mask_strips([("0.3", mask), ("0", mask | True)], ["a", "b"], [("one", 2), ("two", 1)])
    tree = element(figure)
    boxes = {name: "".join(node.get("d", "") for node in with_class(tree, name, "path"))
             for name in ("f-c0", "s-rule")}  # fmt: skip
    wide = (440 - 30 - 2 * 4) / 3  # of a sample, beside names of views and gaps of groups
    for name, cells, count in (("f-c0", 4 + 6, 7), ("s-rule", 2, 2)):
        widths = [float(w) for w in re.findall(r"M[^h]*h([\d.]+)v10h-[\d.]+z", boxes[name])]
        assert len(widths) == count
        assert sum(widths) == pytest.approx(cells * wide, abs=0.5)


def test_samples_in_the_plane() -> None:
    places = np.array([[0.0, 0.0], [1.0, 1.0], [2.0, 0.5], [3.0, 3.0]])
    labelled, wrong = np.array([1, 0, 0, 0], bool), np.array([0, 0, 0, 1], bool)
    tree = element(scatter(places, np.array([0, 1, 1, 0]), labelled, wrong))
    assert len(with_class(tree, "support", "g")) == 1
    queries = with_class(tree, "query", "g")
    assert sum(len(with_class(g, "mark")[0]) for g in queries) == 3
    rings = with_class(tree, "s-ink", "g")
    assert len(rings) == 1
    same = np.zeros((3, 2))  # all at one place
    assert element(scatter(same, np.zeros(3, int), labelled[:3], wrong[:3])) is not None


# ------------------------------------------------------------------ elements of a page


def all_figures() -> dict[str, Any]:
    ranking = average_ranks([[3, 2, 1]] * 5, ["a", EVIL, "c"])
    evil = [(EVIL, np.array([[True, False]]))]
    return {
        "curves": accuracy_chart(curves(("proto", EVIL)), looks(["proto", EVIL]), [EVIL]),
        "panels": accuracy_curves(curves(("proto", EVIL)), EVIL),
        "ranks": rank_diagram(ranking, EVIL),
        "masks": mask_strips(evil, [EVIL, "b"], [(EVIL, 1)]),
        "plane": scatter(np.eye(2), np.arange(2), np.array([True, False]), np.array([0, 1], bool)),
        "key": key(look_at(9)),
        "swatch": key(look_at(9), joined=False),
    }


@pytest.mark.parametrize("name", all_figures())
def test_an_element_is_small_and_says_no_more_than_it_should(name: str) -> None:
    text = svg_element(all_figures()[name], title=name, description="d")
    tree = ElementTree.fromstring(text)
    assert tree.get("aria-label") == f"{name}. d"
    tags = {node.tag for node in tree.iter()}
    assert tags <= {"svg", "g", "path", "use", "defs", "text", "title"}
    for node in tree.iter():
        allowed = {"class", "d", "transform", "x", "y", "href", "id", "data-m", "text-anchor"}
        allowed |= {"font-size", "stroke-width", "stroke-dasharray", "fill"}
        if node is not tree:
            assert set(node.keys()) <= allowed
        for number in re.findall(r"-?\d+\.\d+", f"{node.get('x', '')} {node.get('y', '')}"):
            assert len(number.partition(".")[2]) == 1
    ids = [node.get("id") for node in tree.iter() if node.get("id")]
    assert len(ids) == len(set(ids))
    other = svg_element(all_figures()[name], title="another", description="d")
    assert not any(one in other for one in ids)
    assert {node.get("href") for node in tree.iter("use")} == {f"#{one}" for one in ids}
    assert svg_element(all_figures()[name], name, "d") == text, "same again"
    if name in ("key", "swatch"):
        assert not ids, "a key stands in many places"
        assert 'aria-hidden="true"' in svg_element(all_figures()[name], kind="key")


def test_a_page_has_no_colours_of_its_own() -> None:
    figure = chart([], Scale("x", 0, 1), Scale("y", 0, 1))
    figure.add_artist(Line2D([0, 1], [0, 1], color="red"))
    with pytest.raises(ValueError, match="#ff0000: a page has the colours of"):
        svg_element(figure)


# ------------------------------------------------------------------ files


def test_figures_are_saved_and_repeatable(tmp_path: Path) -> None:
    rows = [row(eta=e, dataset=d) for e in (0.0, 0.5) for d in ("one", "two")]
    first = save_figure(accuracy_curves(rows, "title"), tmp_path / "a")
    assert [file.name for file in first] == ["a.png", "a.svg"]
    second = save_figure(accuracy_curves(rows, "title"), tmp_path / "b.svg")
    assert second[0].read_bytes() == first[1].read_bytes()
    ranking = average_ranks([[3, 2, 1]] * 5, ["a", "b", "a-long-name:solver=reference"])
    assert save_figure(rank_diagram(ranking), tmp_path / "c.pdf")[0].exists()
    with pytest.raises(FewviewError, match="no results"):
        accuracy_curves([])


def test_the_same_figure_is_saved_after_it_was_on_a_page(tmp_path: Path) -> None:
    figure = accuracy_chart(curves(), looks(["proto", "match", "mine"]), ["proto"])
    (before,) = save_figure(figure, tmp_path / "a.svg")
    svg_element(figure, "t", "d")
    (after,) = save_figure(figure, tmp_path / "b.svg")
    assert after.read_bytes() == before.read_bytes()


def test_what_is_on_paper_moves_with_the_axes_when_a_file_is_cut() -> None:
    figure = rank_diagram(average_ranks([[3, 2, 1]] * 5, ["a", "b", "c"]))
    assert len(figure.axes) == 1
    loose = [*figure.texts, *figure.artists]
    assert len(loose) >= 3 * 2 + 1  # names, values, and what the bars mean
    assert all(artist.get_transform().contains_branch(figure.transFigure) for artist in loose)


def test_panels_stand_side_by_side_and_the_best_is_first_in_the_legend() -> None:
    rows = [
        row(dataset=f"set {k}", method=name, eta=eta, accuracy=level)
        for k in range(4)
        for name, level in (("low", 50.0), ("high", 90.0))
        for eta in (0.0, 0.5)
    ]
    figure = accuracy_curves(rows, EVIL)
    assert len(figure.axes) == 4
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["high", "low"]
