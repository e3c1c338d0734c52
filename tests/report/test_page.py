"""The page of a store: what it says is true, what it shows is reachable, nothing is loaded."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fewview.datasets import get_spec
from fewview.evaluate import Grid, Store, plan, run
from fewview.evaluate._options import make_grid
from fewview.ground._flags import READING, RUNNING
from fewview.report._answers import answers
from fewview.report._contents import collect, costs, reliabilities
from fewview.report._examples import Example, example
from fewview.report._page import render, write_report
from fewview.report._provenance import commands
from fewview.report._queries import Closer, _why, look_closer
from fewview.results._cells import Cell, Result, example_cell
from fewview.results._comparing import Panel, rank_panels, winners
from fewview.results._metrics import EpisodeMetrics, measure
from fewview.samples import FewviewError

VOID = {"meta", "link", "input", "br", "hr", "img"}
METHODS = ("proto", "match", "bd-cspn")
ETAS = (0.0, 0.3, 0.5)


@dataclass
class Node:
    tag: str
    attributes: dict[str, str]
    parent: Node | None = None
    children: list[Node | str] = field(default_factory=list)

    def find(self, tag: str) -> list[Node]:
        nodes = [child for child in self.children if isinstance(child, Node)]
        return [n for child in nodes for n in [child, *child.find("*")] if tag in ("*", n.tag)]

    @property
    def text(self) -> str:
        return "".join(c if isinstance(c, str) else c.text for c in self.children)


class Reader(HTMLParser):
    """Reads a page into nodes, and fails where elements are not closed in order."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.root = self.here = Node("", {})
        self.feed(page)
        self.close()
        assert self.here is self.root, f"<{self.here.tag}> is not closed"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        node = Node(tag, {name: value or "" for name, value in attrs}, self.here)
        self.here.children.append(node)
        if tag not in VOID:
            self.here = node

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert tag == self.here.tag, f"</{tag}> closes <{self.here.tag}>"
        assert self.here.parent is not None
        self.here = self.here.parent

    def handle_data(self, data: str) -> None:
        self.here.children.append(data)


def read(page: str) -> Node:
    return Reader(page).root


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "results.sqlite"
    run(Grid(datasets=("digits",), methods=METHODS, etas=ETAS, splits=4, episodes=6), path)
    return path


@pytest.fixture(scope="module")
def results(store: Path) -> list[Result]:
    with Store(store, write=False) as reader:
        return reader.select()


@pytest.fixture(scope="module")
def page(store: Path) -> str:
    output = store.with_name("report.html")
    return write_report(store, output).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def tree(page: str) -> Node:
    return read(page)


def made(accuracy: list[float] | float = 0.5, **changes: Any) -> Result:
    """A result that stands for no run: accuracies of its episodes, changes of its cell."""
    values = np.atleast_1d(np.array(accuracy, dtype=float))
    metrics = EpisodeMetrics(values, values, 1 - values, 1 - values, np.ones((3, 15)))
    cell = example_cell(**({"stop": len(values)} | changes))
    return Result(cell=cell, metrics=metrics, seconds=0.1, seconds_base=0.01, host="here")


def split_of(k: int) -> dict[str, Any]:
    """Fields of a cell of class split k."""
    return {"novel": tuple("abcdefghij"[k : k + 4]), "split": k}


# ------------------------------------------------------------------ the page as a document


def test_nothing_is_loaded_from_elsewhere(page: str, tree: Node) -> None:
    for node in tree.find("*"):
        assert node.tag not in ("img", "iframe", "object", "embed", "base", "audio", "video")
        for name in ("src", "href", "xlink:href", "srcset", "action", "data"):
            if name in node.attributes:
                assert node.attributes[name].startswith(("#", "data:,")), node.attributes
    style = tree.find("style")[0].text
    assert "url(" not in style
    assert "@import" not in style
    assert len(tree.find("script")) == 1
    assert page.count("http://") + page.count("https://") == 0
    policy = next(n for n in tree.find("meta") if "http-equiv" in n.attributes)
    assert policy.attributes["content"].startswith("default-src 'none'")


def test_headings_are_in_order(tree: Node) -> None:
    levels = [int(n.tag[1]) for n in tree.find("*") if re.fullmatch("h[1-6]", n.tag)]
    assert levels.count(1) == 1
    assert levels[0] == 1
    assert all(later - earlier <= 1 for earlier, later in pairwise(levels))


def test_every_table_can_be_read_aloud(tree: Node) -> None:
    tables = tree.find("table")
    assert len(tables) >= 6
    for table in tables:
        assert len(table.find("caption")[0].text) > 15
        heads = table.find("thead")[0].find("th")
        assert all(head.attributes["scope"] == "col" for head in heads)
        for row in table.find("tbody")[0].find("tr"):
            cells = [child for child in row.children if isinstance(child, Node)]
            assert len(cells) == len(heads)
            assert cells[0].tag == "th"
            assert cells[0].attributes["scope"] == "row"
            assert all(cell.text.strip() for cell in cells)
        sortable = [head for head in heads if "aria-sort" in head.attributes]
        assert all(len(head.find("button")) == 1 for head in sortable)


def test_every_drawing_has_words_and_every_reference_a_target(tree: Node) -> None:
    drawings = tree.find("svg")
    assert len(drawings) > 6
    for drawing in drawings:
        if drawing.attributes.get("aria-hidden") != "true":
            assert drawing.attributes["role"] == "img"
            assert len(drawing.attributes["aria-label"]) > 40
    ids = [n.attributes["id"] for n in tree.find("*") if "id" in n.attributes]
    assert len(ids) == len(set(ids))
    for node in tree.find("*"):
        for name in ("aria-labelledby", "data-table"):
            if name in node.attributes:
                assert node.attributes[name] in ids
        if node.tag == "a":
            assert node.attributes["href"][1:] in ids
    fields = [node for tag in ("input", "select") for node in tree.find(tag)]
    assert fields
    assert all(node.parent is not None and node.parent.tag == "label" for node in fields)


def test_every_section_is_there_and_says_something(tree: Node) -> None:
    titles = [n.text for n in tree.find("h2")]
    assert titles == [
        "Which method to use", "Leaderboard", "Accuracy against the missing rate",
        "Where methods go wrong", "Calibration", "Ranks", "Time against accuracy",
        "Which views are missing", "Example episodes", "All results", "How this page was made",
    ]  # fmt: skip
    for section in tree.find("section"):
        assert section.find("p") or section.find("table") or section.find("svg")


def test_names_from_a_store_are_text_and_nothing_else() -> None:
    evil = "<img src=x onerror=alert(1)>&\"'</script><script>alert(2)</script>"
    found = [
        made([0.5, 0.6 + 0.01 * k], method=name, dataset=f"data {evil}", eta=eta, **split_of(k))
        for name in (evil, "proto")
        for eta in (0.0, 0.5)
        for k in range(3)
    ]
    page = render(collect(found), store=evil, title=evil, asked=["fewview", evil])
    tree = read(page)
    assert not tree.find("img")
    assert len(tree.find("script")) == 1
    assert tree.find("h1")[0].text == evil
    first = {
        row.find("th")[0].text.strip() for row in tree.find("table")[1].find("tbody")[0].find("tr")
    }
    assert first == {evil, "proto"}


# ------------------------------------------------------------------ what it says


def table_of(tree: Node, id: str) -> list[dict[str, str]]:
    """The rows of a table as {column: text}."""
    (table,) = [node for node in tree.find("table") if node.attributes["id"] == id]
    names = [head.text.strip() for head in table.find("thead")[0].find("th")]
    return [
        dict(zip(names, [c.text for c in row.children if isinstance(c, Node)], strict=True))
        for row in table.find("tbody")[0].find("tr")
    ]


def test_the_headline_is_what_scipy_says(tree: Node, results: list[Result]) -> None:
    from scipy.stats import ttest_rel

    at = {name: {} for name in METHODS}  # type: dict[str, dict[int, float]]
    for result in results:
        if result.cell.eta == 0.3:
            at[result.cell.method][result.cell.split] = 100 * result.metrics.accuracy.mean()
    means = {name: np.array([at[name][k] for k in range(4)]) for name in METHODS}
    order = sorted(METHODS, key=lambda name: -means[name].mean())
    pairs = [(order[0], other) for other in order[1:]]
    p = {pair: float(ttest_rel(means[pair[0]], means[pair[1]]).pvalue) for pair in pairs}
    adjusted, largest = {}, 0.0
    for k, pair in enumerate(sorted(pairs, key=lambda pair: p[pair])):
        largest = max(largest, min(1.0, (len(pairs) - k) * p[pair]))
        adjusted[frozenset(pair)] = largest
    (row,) = [r for r in table_of(tree, "winners") if r["missing rate"] == "0.3"]
    assert row["best method"] == order[0]
    assert row["second best"] == order[1]
    difference = means[order[0]] - means[order[1]]
    assert row["accuracy (%)"] == f"{means[order[0]].mean():.1f}"
    assert row["ahead by (points)"] == f"{difference.mean():+.1f}"
    assert row["splits won"] == f"{(difference > 0).sum()} of 4"
    wanted = adjusted[frozenset(order[:2])]
    extreme = "< 0.001" if wanted < 0.001 else "> 0.99" if wanted > 0.99 else ""
    assert row["p (Holm)"] == (extreme or f"{wanted:.3f}")


def test_a_win_is_clear_only_if_every_other_method_is_told_apart() -> None:
    def panel(noisy: list[float]) -> Panel:
        levels = {
            "proto": [0.90, 0.91, 0.92, 0.93],
            "match": [0.80, 0.811, 0.82, 0.829],
            "ptmap": noisy,
        }
        found = [
            made(value, method=name, eta=0.0, **split_of(k))
            for name, values in levels.items()
            for k, value in enumerate(values)
        ]
        return collect(found).panels[0]

    (winner,) = winners(panel([0.20, 0.89, 0.10, 0.88]))
    assert (winner.best, winner.second, winner.clear) == ("proto", "match", True)
    assert winner.tied == ["ptmap"]
    (winner,) = winners(panel([0.50, 0.511, 0.52, 0.529]))
    assert winner.clear
    assert winner.tied == []


def test_a_method_that_has_hardly_begun_spoils_no_comparison() -> None:
    levels = {"proto": 0.9, "match": 0.7, "ptmap": 0.99}
    found = [
        made(level + 0.01 * k, method=name, eta=eta, **split_of(k))
        for name, level in levels.items()
        for eta in (0.0, 0.5)
        for k in range(4)
        if name != "ptmap" or (k == 0 and eta == 0)
    ]
    contents = collect(found)
    for winner in winners(contents.panels[0]):
        assert (winner.best, winner.n_splits, winner.left_out) == ("proto", 4, ["ptmap"])
    (ranked,) = rank_panels(contents.panels)
    assert ranked.left_out == ["ptmap"]
    assert ranked.ranking.names == ("proto", "match")
    text = read(render(contents)).text
    assert "class splits or missing rates are lacking: ptmap" in text
    assert "The store is not complete: 7 cells" in text


def test_ranks_over_data_sets_by_hand() -> None:
    levels = {"digits": (0.9, 0.8, 0.7), "scene15": (0.6, 0.5, 0.4), "orl": (0.7, 0.8, 0.6)}
    found = [
        made(level, method=name, dataset=dataset, eta=0.0, **split_of(k))
        for dataset, values in levels.items()
        for name, level in zip(METHODS, values, strict=True)
        for k in range(2)
    ]
    (ranked,) = rank_panels(collect(found).panels)
    assert dict(zip(ranked.ranking.names, ranked.ranking.ranks, strict=True)) == pytest.approx(
        {"proto": 4 / 3, "match": 5 / 3, "bd-cspn": 3.0}
    )
    assert ranked.ranking.n_blocks == 3


def test_accuracies_are_those_of_the_store(tree: Node, results: list[Result]) -> None:
    shown = {(r["method"], r["rate"]): float(r["accuracy"]) for r in table_of(tree, "results")}
    assert len(shown) == 9
    for (method, eta), value in shown.items():
        mine = [r for r in results if r.cell.method == method and r.cell.eta == float(eta)]
        wanted = 100 * np.mean([r.metrics.accuracy for r in mine])
        assert value == pytest.approx(wanted, abs=0.006)


def test_calibration_by_hand() -> None:
    # 40 queries, all given probability 0.8 for class 0, which is right for 30 of them.
    scores = np.log(np.tile([0.8, 0.2], (1, 40, 1)))
    metrics = measure(scores, np.array([[0] * 30 + [1] * 10]))
    result = replace(made(0.75), metrics=metrics)
    (one,) = reliabilities(collect([result]).panels[0])
    ((said, right, queries),) = one.points
    assert (said, right, queries) == (pytest.approx(0.8), pytest.approx(0.75), 40)
    assert one.error == pytest.approx(0.05)
    (row,) = table_of(read(render(collect([result]))), "calibration-0")
    assert row["too sure by"] == "+0.050"


def test_only_methods_that_none_beats_are_efficient() -> None:
    found = [
        replace(made([value], method=name, eta=0.0), seconds=seconds)
        for name, value, seconds in [
            ("proto", 0.6, 1.0), ("match", 0.5, 2.0), ("ptmap", 0.8, 3.0), ("rfs", 0.8, 4.0),
        ]
    ]  # fmt: skip
    table = costs(collect(found).panels[0])
    assert [cost.method for cost in table if cost.efficient] == ["proto", "ptmap"]
    assert table[0].milliseconds == pytest.approx(1000.0)


def test_the_card_answers_under_conditions() -> None:
    def some(levels: dict[str, float], counts: str) -> list[Result]:
        return [
            made([level, level + 0.04 * k * (1 - level)], method=name, padding="base",
                 query_counts=counts, **split_of(k))
            for name, level in levels.items() for k in range(5)
        ]  # fmt: skip

    levels = {"marginal": 0.95, "ptmap": 0.9, "concat-logistic": 0.85, "proto": 0.8, "mine": 0.2}
    found = some(levels, "balanced")
    (card,) = answers(collect(found)).cards
    said = {answer.when: answer for answer in card.answers}
    assert len(said) == 8
    # What a method looks at and learns from is what `fewview methods` says of it.
    for when, best in (
        ("", "marginal"),
        ("one-by-one", "concat-logistic"),  # ptmap and marginal look at all queries together
        ("no-base", "ptmap"),  # marginal and concat-logistic learn from base classes
        ("one-by-one no-base", "proto"),
    ):
        assert said[when].said.startswith(f"Use {best}: "), when
    assert "mine" in said["no-base"].note, "an unknown method is not said to fit"
    groups = dict(said[""].groups)
    assert [name for _, name, _ in groups["Clearly better than"]] == list(levels)[1:]
    assert said["skewed"].code.endswith(" --query-counts dirichlet:2")  # and results are kept
    found += some({"marginal": 0.6, "proto": 0.7}, "dirichlet:2")
    section = answers(collect(found))
    (card,) = section.cards
    said = {answer.when: answer for answer in card.answers}
    assert not section.words, "one data set is no ranking over data sets"
    assert card.title == "digits"
    assert said["skewed"].said.startswith("Use proto: ")
    assert said[""].said.startswith("Use marginal: ")


def test_the_leaderboard_by_hand() -> None:
    found = [
        made(levels[k], method=name, eta=0.0, **split_of(k))
        for name, levels in (("proto", [0.9, 0.8, 0.9, 0.8]), ("match", [0.7, 0.8, 0.95, 0.7]))
        for k in range(4)
    ]
    first, second = table_of(read(render(collect(found))), "leaders-0")
    assert (first["method"].strip(), first["mean accuracy (%)"]) == ("proto", "85.0")
    assert (first["rank"], first["wins"]) == ("1.38", "62 %")  # 2 won, 1 level, 1 lost of 4
    assert (second["rank"], second["wins"]) == ("1.62", "38 %")
    assert first["needs and assumes"] == "gaps filled from queries"


def test_a_closer_look_is_what_was_stored(store: Path, tmp_path: Path) -> None:
    path = tmp_path / "kept.sqlite"
    grid = Grid(datasets=("digits",), methods=METHODS, etas=ETAS, splits=2, episodes=4,
                keep_probabilities=True)  # fmt: skip
    run(grid, path)
    with Store(path, write=False) as reader:
        found = reader.select()
        (panel,) = collect(found).panels
        one = look_closer(panel, reader)
        kept = dict(reader.answers(r.cell.hash for r in found))
    assert isinstance(one, Closer)
    for name, counts in one.counts.items():
        mine = [r for r in found if r.cell.method == name]
        right = np.mean([r.metrics.accuracy for r in mine])
        assert counts.asked.sum() == len(mine) * 4 * 90
        assert counts.right.sum() / counts.asked.sum() == pytest.approx(right)
        assert np.trace(counts.said) == counts.right.sum()
        # At rate 0 every query has all six views, and two thirds of cells are at other rates.
        assert counts.asked[6] >= counts.asked.sum() / 3
        # Of three classes in a task, one is true: it and two others are counted as there.
        assert counts.both.sum() == 3 * counts.asked.sum()
    wrong = []
    for result in found:
        if result.cell.method == one.method and result.cell.eta == one.eta:
            scores, labels = kept[result.cell.hash].scores, kept[result.cell.hash].labels
            p = np.exp(scores - np.logaddexp.reduce(scores, axis=-1, keepdims=True))
            wrong += p.max(-1)[p.argmax(-1) != labels].tolist()
    assert one.n_wrong == len(wrong)
    shown = [float(q.probabilities[panel.methods.index(one.method)][2][0]) for q in one.questions]
    assert shown == sorted(shown, reverse=True)
    assert shown[0] == pytest.approx(max(wrong), abs=0.006)
    for question in one.questions:
        assert len(question.views) == 6
        has = [view["name"] for view in question.views if view["pictures"][0]["digits"]]
        assert sum(question.has) == len(has)
        assert all(
            (view["evidence"] is None) == (view["name"] not in has) for view in question.views
        )
    with Store(store, write=False) as reader:
        reason = look_closer(collect(reader.select()).panels[0], reader)
    assert "--keep-probabilities" in str(reason)


# ------------------------------------------------------------------ stores that are not as usual


def test_results_that_differ_in_the_task_are_kept_apart() -> None:
    found = [made([0.5, 0.6], shot=shot, **split_of(k)) for shot in (1, 5) for k in range(2)]
    titles = [panel.title for panel in collect(found).panels]
    assert titles == ["digits (shot 1)", "digits (shot 5)"]
    variants = [made([0.5, 0.6], scaling=s, parameters=f"scaling={s}") for s in ("scale", "none")]
    (panel,) = collect(variants).panels
    assert sorted(panel.results) == ["proto (scaling none)", "proto (scaling scale)"]


@pytest.mark.parametrize("n_splits", [1, 2])
@pytest.mark.parametrize("methods", [("proto",), ("proto", "match")])
@pytest.mark.parametrize("etas", [(0.3,), (0.0, 0.3)])
def test_small_stores_give_honest_pages(
    n_splits: int, methods: tuple[str, ...], etas: tuple[float, ...]
) -> None:
    found = [
        made([0.5, 0.6 + 0.1 * (name == "match")], method=name, eta=eta, **split_of(k))
        for name in methods
        for eta in etas
        for k in range(n_splits)
    ]
    text = read(render(collect(found))).find("main")[0].text
    assert ("no other method was run" in text) == (len(methods) == 1)
    assert ("Ranks need results of at least two methods" in text) == (len(methods) == 1)
    alone = len(methods) == 2 and n_splits == 1
    assert ("nothing can be said about chance" in text) == alone
    assert not re.search(r"\b(nan|inf|None(?! of))\b", text)


def test_a_fixed_split_has_repetitions() -> None:
    found = [
        made([0.5, 0.6], method=name, fixed=True, split=k, start=2 * k, stop=2 * k + 2, eta=0.0)
        for name in ("proto", "match")
        for k in range(3)
    ]
    text = read(render(collect(found))).text
    assert "the fixed class split, 6 episodes" in text


def test_stale_results_are_left_out_and_counted() -> None:
    found = [made([0.5, 0.6]), made([0.9, 0.9], sampler_version=0)]
    contents = collect(found)
    assert (len(contents.results), contents.stale) == (1, 1)
    assert "1 result of older versions" in read(render(contents)).text
    with pytest.raises(FewviewError, match="all 1 results are of older versions"):
        collect(found[1:])


def test_stores_that_cannot_be_reported(tmp_path: Path) -> None:
    page = tmp_path / "a.html"
    with pytest.raises(FewviewError, match="no such result store"):
        write_report(tmp_path / "none.sqlite", page)
    Store(tmp_path / "empty.sqlite").close()
    with pytest.raises(FewviewError, match="no results to report"):
        write_report(tmp_path / "empty.sqlite", page)
    (tmp_path / "text.sqlite").write_text("this is no store, but long enough to look like one")
    with pytest.raises(FewviewError, match="not a fewview result store"):
        write_report(tmp_path / "text.sqlite", page)
    with pytest.raises(FewviewError, match="does not exist"):
        write_report(tmp_path / "empty.sqlite", tmp_path / "no" / "folder.html")
    assert not list(tmp_path.glob("*.html*"))


def test_a_full_store_stays_small() -> None:
    names = [f"method-{k}" for k in range(20)]
    rates = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
    found = [
        made(list(0.5 + 0.3 * np.sin(np.arange(4) + k + m)), dataset=dataset, method=name, eta=eta,
             **split_of(k))
        for dataset in ("handwritten", "scene15", "caltech102", "orl", "leaves100", "digits",
                        "animal", "birds200", "tieredimagenet_tiny")
        for m, name in enumerate(names)
        for eta in rates
        for k in range(2)
    ]  # fmt: skip
    page = render(collect(found))
    assert len(table_of(read(page), "results")) == 9 * 20 * 6
    assert len(page.encode()) < 2_500_000


# ------------------------------------------------------------------ commands and examples


def planned(command: str) -> Iterator[Cell]:
    """Cells that a command line plans, through the real command line's options."""
    from typer.main import get_command

    from fewview.cli._app import app

    words = shlex.split(command)
    assert words[:2] == ["fewview", "bench"]
    group: Any = get_command(app)
    given = group.commands["bench"].make_context("bench", words[2:]).params
    for name in (*RUNNING, *READING):
        given.pop(name)
    yield from plan(make_grid(given.pop("datasets"), **given))


@pytest.mark.parametrize(
    "grids",
    [
        [Grid(datasets=("digits",), methods=METHODS, etas=ETAS, splits=3, episodes=6)],
        [
            Grid(datasets=("digits",), methods=("proto", "ptmap:power=signed"), scaling="minmax",
                 padding="zero", way=2, shot=3, queries=7, seed=4, dtype="float64", splits=2),
            Grid(datasets=("digits",), methods=("proto",), etas=(1 / 3,), splits=1),
        ],
        [Grid(datasets=("digits",), methods=("proto",), splits="all", episodes=2)],
        [Grid(datasets=("digits",), methods=("proto", "match"), missing="class", etas=(0.4,),
              query_counts="dirichlet:2", tune=True, splits=2)],
        [Grid(datasets=("digits",), methods=("proto", "match"), scaling="scale", tune=True,
              splits=2)],
        [Grid(datasets=("digits",), methods=("proto", "ptmap"), scaling="paper", padding="paper",
              splits=1, episodes=400)],
    ],
    ids=["plain", "two runs with many options", "all splits", "tuned", "tuned in part", "paper"],
)  # fmt: skip
def test_the_commands_on_the_page_plan_the_stored_cells(grids: list[Grid]) -> None:
    cells = [cell for grid in grids for cell in plan(grid)]
    found = [replace(made(), cell=cell) for cell in cells]
    again = [cell for line in commands(found) for cell in planned(line)]
    assert sorted(cell.hash for cell in again) == sorted(cell.hash for cell in cells)


def test_the_example_is_the_stored_episode(results: list[Result]) -> None:
    panel = collect(results).panels[0]
    one = example(panel)
    assert isinstance(one, Example)
    assert (one.eta, one.split) == (0.3, 0)
    stored = next(
        r.metrics.accuracy
        for r in results
        if (r.cell.method, r.cell.eta, r.cell.split) == (one.method, 0.3, 0)
    )
    complete, gaps = one.pictures
    queries = len(gaps.wrong) - one.n_support
    assert 1 - gaps.wrong.sum() / queries == pytest.approx(stored[one.episode], abs=1e-9)
    assert sorted(stored)[len(stored) // 2] == stored[one.episode]
    assert complete.places.shape == gaps.places.shape == (len(one.labels), 2)
    for eta, mask in one.masks:
        assert (~mask).mean() == pytest.approx(eta, abs=1 / mask.size)
        assert mask.any(axis=1).all()
    assert sum(size for _, size in one.groups) == len(one.labels)


def test_without_data_the_page_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEWVIEW_DATA", str(tmp_path))
    spec = get_spec("handwritten")
    known = made([0.5, 0.6], dataset="handwritten", base="handwritten", queries=spec.queries)
    own = made([0.5, 0.6], dataset="mine", base="mine")
    changed = made([0.5, 0.6], data_checksum="1" * 64)
    for result, reason in (
        (known, "handwritten.npz"),
        (own, "its own file is not known"),
        (changed, "not those that the results were computed on"),
    ):
        contents = collect([result])
        found = example(contents.panels[0])
        assert isinstance(found, str)
        assert reason in found
        with Store(tmp_path / "none.sqlite") as store:
            closer = look_closer(contents.panels[0], store)
        text = read(render(contents, examples=[found], closer=[closer])).text
        assert text.count(f"{contents.panels[0].title}: left out, ") == 3


# ------------------------------------------------------------------ the command


def test_the_command_writes_the_page_and_run_ends_with_it(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from fewview.cli._app import app

    output = tmp_path / "some.html"
    words = ["report", str(store), "-o", str(output), "--where", "eta<=0.3", "--no-examples"]
    assert not app(words, prog_name="fewview", standalone_mode=False)
    assert f"written: {output}" in capsys.readouterr().out
    page = read(output.read_text(encoding="utf-8"))
    assert {row["rate"] for row in table_of(page, "results")} == {"0", "0.3"}
    assert "this page was made without reading the data again" in page.text
    folder = tmp_path / "demo"
    words = ["run", "--output", str(folder), "--methods", "proto,match", "--splits", "2"]
    app([*words, "--episodes", "2", "--jobs", "1"], prog_name="fewview", standalone_mode=False)
    out = capsys.readouterr().out
    assert out.splitlines()[-1] == f"report: {folder / 'report.html'}"
    assert "marginal" in out[out.index("left out to save time:") :]
    assert (folder / "report.html").stat().st_size > 50_000


def test_why_an_answer_is_wrong_says_what_leaving_a_view_out_does() -> None:
    evidence = {"a": 2.0, "b": -0.5}
    right = _why(evidence, 0.0, {"a": "9", "b": "8"}, "8", "9")
    assert "8 rather than 9, most of all a (+2.00)" in right
    assert right.endswith("Without a the answer would be right.")
    third = _why(evidence, 1.0, {"a": "0", "b": "0"}, "8", "9")
    assert third.endswith("Without a and b it would be 0: wrong too.")
    same = _why(evidence, 0.0, {"a": "8", "b": "8"}, "8", "9")
    assert same.endswith("without any one of them the answer would be the same.")
