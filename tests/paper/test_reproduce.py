"""The reproduction: the paper's numbers stand where they belong, and verdicts are what they say."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from scipy.io import savemat

import fewview
import fewview.datasets._catalogue as catalogue
from fewview.datasets import get_spec
from fewview.drawing._looks import COLOURS, look_of, looks
from fewview.evaluate._grid import Grid, plan
from fewview.evaluate._runner import run
from fewview.paper._beside import compare, make_table, summarise
from fewview.paper._claims import (
    ABOVE,
    ALMOST_ALL,
    CLAIMS,
    FAILS,
    HARMLESS,
    HOLDS,
    OPEN,
    UNTESTED,
    Case,
    Claim,
    Evidence,
    Key,
    Line,
    Rule,
    Values,
    conclude,
    judge_all,
    list_rules,
    loss_evidence,
    near,
    number,
    our_evidence,
    paper_evidence,
    table,
)
from fewview.paper._compute import (
    Desk,
    Gathered,
    NoResultsError,
    compute_all,
    gather,
    kinds_of,
    planned,
    shown,
    versions_line,
)
from fewview.paper._curves import draw_curves
from fewview.paper._embeddings import Cloud, tsne
from fewview.paper._make import MAKERS
from fewview.paper._pictures import Picture, look
from fewview.paper._printed import METHODS, TABLES
from fewview.paper._sheets import Sheet, entry
from fewview.paper._studies import (
    BASE_METHODS,
    BASE_SIZES,
    BEYOND,
    COMPARED,
    IMBALANCES,
    NAMES,
    NEIGHBOURS,
    QUICK_TRAINED,
    SHOTS,
    SMALL_SETS,
    Part,
    Wish,
    aggregator_methods,
    base_subset,
    block_pattern,
    data_of,
    expand_names,
    hyper_methods,
    is_stand_in,
    parts_of,
    solved_by,
    typed,
)
from fewview.paper._task_figures import (
    AGGREGATED,
    RECTIFICATIONS,
    Rectified,
    Way,
    draw_figure3,
    draw_figure4,
    draw_figure6,
    rectify,
)
from fewview.results._cells import Cell, Result, example_cell
from fewview.results._metrics import EpisodeMetrics
from fewview.results._store import Store
from fewview.samples import FewviewError

# Our own reading of the paper's tables: nothing of the code under test is used for it.
PRINTED = Path(fewview.__file__).parent / "datasets" / "data" / "tables.csv"
NUMBERS = {"cub": 1, "handwritten": 2, "caltech102": 3, "scene15": 4, "animal": 5, "orl": 6,
           "tieredimagenet": 7, "birds": 8, "ablation": 9}  # fmt: skip
HERE = {"Cub-googlenet-doc2vec": "cub_googlenet_doc2vec", "Handwritten": "handwritten",
        "Caltech102": "caltech102", "Scene15": "scene15", "Animal": "animal", "ORL": "orl",
        "tieredImagenet": "tieredimagenet_tiny",
        "tieredImagenet->Birds-200-2011": "birds200"}  # fmt: skip


def paper_rows(number: int) -> list[list[str]]:
    """[data set, method, eta, accuracy, standard error] as text, read line by line."""
    lines = PRINTED.read_text(encoding="utf-8").splitlines()
    assert lines[0] == "table,dataset,way,shot,views,method,eta,acc,se"
    cells = [line.split(",") for line in lines[1:]]
    return [[HERE[c[1]], *c[5:]] for c in cells if int(c[0]) == number]


def fake(part: Part, accuracy: Callable[[str, float, int], float]) -> Gathered:
    """Results of a part that were never computed: three queries in ten episodes."""
    cells: list[Cell] = []
    results = {}
    (dataset,) = part.grid.datasets
    for method in part.grid.methods:
        for eta in part.grid.etas:
            for split in range(part.n_splits):
                cell = example_cell(
                    dataset=dataset, method=method, parameters=method, eta=eta, split=split,
                    novel=(str(split),), seed=part.grid.seed, stop=part.grid.episodes,
                    base_checksum=str(part.tag), query_counts=part.grid.query_counts,
                )  # fmt: skip
                level = np.full(part.grid.episodes, accuracy(method, eta, split) / 100)
                metrics = EpisodeMetrics(level, level, level, level, bins=np.ones((3, 10)))
                cells.append(cell)
                results[cell.hash] = Result(
                    cell=cell, metrics=metrics, seconds=1.0, seconds_base=0.5,
                    versions='{"fewview": "0", "torch": "0"}',
                )  # fmt: skip
    return Gathered(part, tuple(cells), results)


def part_of(
    dataset: str,
    methods: dict[Any, str],
    role: str = "table",
    tag: tuple[Any, ...] = (),
    etas: tuple[float, ...] = (0.0, 0.5),
    splits: int = 2,
) -> Part:
    texts = tuple(methods.values())
    grid = Grid(datasets=(dataset,), methods=texts, etas=etas, splits=splits, episodes=2)
    return Part(role, grid, tag, methods)


# ------------------------------------------------------------------ tables


@pytest.mark.parametrize("name", NUMBERS)
def test_every_cell_of_the_paper_is_at_its_place(name: str, tmp_path: Path) -> None:
    sheet = compare(TABLES[name], (), Wish(data_dir=str(tmp_path)), "the command")
    expected = paper_rows(NUMBERS[name])
    assert len(expected) == (48 if name == "ablation" else 42 if name in ("tieredimagenet", "birds")
                             else 78)  # fmt: skip
    sheet.write(tmp_path)
    shown = {
        "csv": list(csv.DictReader((tmp_path / f"{name}.csv").open(encoding="utf-8"))),
        "markdown": markdown_rows((tmp_path / f"{name}.md").read_text(encoding="utf-8")),
        "text": text_rows(sheet.text()),
    }
    for form, rows in shown.items():
        places = [(row["dataset"], row["method"], row["eta"]) for row in rows]
        assert len(set(places)) == len(places), form
        found = dict(zip(places, rows, strict=True))
        for dataset, method, eta, accuracy, error in expected:
            row = found[dataset, method, eta]
            assert (row["paper"], row["paper_se"]) == (accuracy, error), (form, row)
        filled = sum(row["paper"] != "-" for row in rows)
        assert filled == len(expected), form  # and nothing that the paper does not print
        if name != "ablation":
            assert [row["method"] for row in rows[:: len(rows) // 13]] == list(METHODS)
    latex = (tmp_path / f"{name}.tex").read_text(encoding="utf-8")
    found = latex_cells(latex)
    for dataset, method, eta, accuracy, error in expected:
        place = (dataset, method) if name == "ablation" else (method,)
        assert found[*place, eta] == rf"{accuracy} {{\scriptsize $\pm$ {error}}}"
    assert sum(entry != "--" for entry in found.values()) == len(expected)
    for text in (sheet.text(), sheet.markdown(), latex, sheet.csv()):
        assert f"Table {NUMBERS[name] + 1} [tab:{NUMBERS[name]}]" in text
        assert "the command" in text


def latex_cells(text: str) -> dict[tuple[str, ...], str]:
    """What a pivoted table has of the paper: {(data set where several, method, eta): entry}."""
    lines = [line.removesuffix(r" \\").split(" & ") for line in text.splitlines() if " & " in line]
    head, *body = lines
    first = head.index("")
    out, here = {}, ()  # type: dict[tuple[str, ...], str], tuple[str, ...]
    for names, kind, entries in ((li[:first], li[first], li[first + 1 :]) for li in body):
        here = tuple(name.replace("\\", "") for name in names) if kind == "ours" else here
        if kind == "paper":
            out |= {(*here, eta): e for eta, e in zip(head[first + 1 :], entries, strict=True)}
    return out


def markdown_rows(text: str) -> list[dict[str, str]]:
    lines = [line.strip("| \n").split(" | ") for line in text.splitlines() if line[:1] == "|"]
    return [dict(zip(lines[0], line, strict=True)) for line in lines[2:]]


def text_rows(text: str) -> list[dict[str, str]]:
    lines = text.split("\n\n")[1].splitlines()
    split = [re.split(r" {2,}", line.strip()) for line in lines]
    return [dict(zip(split[0], line, strict=True)) for line in split[1:]]


def test_six_tenths_cannot_be_reached_with_two_views() -> None:
    sheet = compare(TABLES["birds"], (), Wish(), "x")
    words = {row["eta"]: row["ours"] for row in sheet.rows}
    assert words[0.6] == "unreachable"
    assert words[0.5] == "not available"
    assert any("stand-in birds200" in note for note in sheet.notes)


def test_ours_difference_and_range_are_computed_from_class_splits() -> None:
    # The paper: Proto on cub is 87.04 at eta 0 and 53.66 at 0.5.
    levels = {(0.0, 0): 80.0, (0.0, 1): 90.0, (0.5, 0): 40.0, (0.5, 1): 50.0}
    part = part_of("cub_googlenet_doc2vec", {"Proto": "proto"})
    sheet = compare(
        TABLES["cub"], [fake(part, lambda m, eta, split: levels[eta, split])], Wish(), "x"
    )
    first = next(row for row in sheet.rows if row["method"] == "Proto" and row["eta"] == 0.0)
    assert first["ours"] == pytest.approx(85.0)
    assert first["difference"] == pytest.approx(85.0 - 87.04)
    assert (first["range_low"], first["range_high"]) == (pytest.approx(80), pytest.approx(90))
    assert first["inside"] is True
    last = next(row for row in sheet.rows if row["method"] == "Proto" and row["eta"] == 0.5)
    assert last["inside"] is False
    assert "1 of 2 cells" in sheet.summary[0]
    assert "-2.04" in sheet.text()
    assert "no results of Match" in " ".join(sheet.notes)


def test_a_bound_that_is_equal_as_printed_is_inside() -> None:
    part = part_of("cub_googlenet_doc2vec", {"Proto": "proto"}, etas=(0.0,))
    levels = {0: 80.0, 1: 87.0364}
    sheet = compare(TABLES["cub"], [fake(part, lambda m, e, split: levels[split])], Wish(), "x")
    assert sheet.rows[0]["inside"] is True


def test_text_is_never_wrapped_and_has_two_decimals() -> None:
    note = "a very long note " * 30
    sheet = Sheet(name="a", title="t", columns=("x", "y"), rows=({"x": 1 / 3, "y": note},),
                  protocol="p", versions="v", command="c")  # fmt: skip
    assert f"0.33  {note.rstrip()}" in sheet.text()


def test_values_are_written_as_the_paper_does() -> None:
    values = (entry(85.698), entry(-3.4, "difference"), entry(0.1, "eta"), entry(None), entry(True))
    assert values == ("85.70", "-3.40", "0.1", "-", "yes")
    assert entry(0.00012, "value") == "0.00012"


def test_a_fixed_class_split_has_no_range() -> None:
    assert summarise([]) == "nothing to compare"
    assert summarise([{"difference": -1.0}, {"difference": 2.0}]) == (
        "one class split, so there is no range over class splits; mean absolute difference "
        "1.50 points over 2 cells"
    )


def test_versions_are_those_stored_with_the_results() -> None:
    stored = ('{"fewview": "1", "torch": "2", "threads": 2}', '{"fewview": "1", "torch": "3"}')
    assert versions_line((), *stored) == "fewview 1, torch 2 and 3"
    assert versions_line().startswith(f"fewview {fewview.__version__}, python 3.")


def test_method_settings_follow_the_authors_scripts() -> None:
    assert typed("UGDA", "orl") == "ugda:n_anchors=50"
    assert typed("RFS+UGDA", "orl") == "rfs+ugda:ugda__n_anchors=50"
    assert typed("UGDA", "caltech102") == "ugda"
    assert typed("CPM", "orl", "paper") == "cpm:preset=paper:script=orl"
    assert typed("ICMSC", "orl", "paper") == "icmsc:preset=paper"
    assert typed("CPM", "scene15") == "cpm:preset=paper"
    assert typed("CPM", "orl", "fast") == "cpm"


@pytest.mark.parametrize(
    ("text", "wish", "expected"),
    [
        ("ugda:n_anchors=50", Wish(), "ugda:n_anchors=50:rectifier=adam"),
        ("ugda", Wish(quick=True), "ugda"),
        ("ugda", Wish(solver="exact"), "ugda"),
        ("ugda:rectify=none", Wish(), "ugda:rectify=none"),
        ("rfs+ugda", Wish(), "rfs+ugda"),
        ("ugda:solver=adam", Wish(), "ugda:solver=adam"),
        ("proto", Wish(solver="adam"), "proto"),
        ("ugda", Wish(solver="reference"), "ugda:solver=reference:latent_dim=512"),
    ],
)
def test_tables_rectify_by_the_papers_steps(text: str, wish: Wish, expected: str) -> None:
    assert solved_by(wish, text, "scene15").startswith(expected)
    if wish.solver == "paper":
        assert solved_by(wish, text, "scene15") == expected


def test_rows_of_networks_have_the_published_sizes_unless_it_must_be_quick() -> None:
    sizes = {
        (quick, preset): Wish(quick=quick, preset=preset).sizes
        for quick in (False, True)
        for preset in (None, "fast", "paper")
    }
    assert sizes == {
        (False, None): "paper", (False, "fast"): "fast", (False, "paper"): "paper",
        (True, None): "fast", (True, "fast"): "fast", (True, "paper"): "paper",
    }  # fmt: skip


# ------------------------------------------------------------------ animal


@pytest.fixture
def small_animal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A file of the format of animal.mat: a cell array X, labels gt from 1; narrow views."""
    from dataclasses import replace

    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(1, 51), 17)
    centres = rng.normal(size=(51, 9))
    rows = centres[labels] + 0.3 * rng.normal(size=(len(labels), 9))
    cells = np.empty((1, 2), dtype=object)
    cells[0, 0], cells[0, 1] = rows[:, :5].T, rows[:, 5:].T
    savemat(tmp_path / "animal.mat", {"X": cells, "gt": labels[:, None]})
    spec = replace(get_spec("animal"), views=(("decaf", 5), ("vgg19", 4)), n_samples=len(labels))
    monkeypatch.setitem(catalogue._BY_NAME, "animal", spec)
    return tmp_path


def test_animal_runs_where_its_file_is(small_animal: Path) -> None:
    wish = Wish(quick=True, data_dir=str(small_animal), only=("proto", "ugda"))
    made = make_table("animal", wish, Desk(store=str(small_animal / "a.sqlite")), "x")
    ours = {row["method"]: row for row in made.rows if row["eta"] == 0.0}
    assert ours["Proto"]["ours"] > 60  # classes are far apart
    assert ours["UGDA"]["paper"] == 89.86
    assert ours["TIM"]["ours"] == "not available"
    assert "Table 6 [tab:5]" in made.title


def test_a_quick_table_says_that_networks_are_small(
    small_animal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(QUICK_TRAINED, "animal", (1, 1))
    wish = Wish(quick=True, data_dir=str(small_animal), only=("cpm",))
    made = make_table("animal", wish, Desk(store=str(small_animal / "a.sqlite")), "x")
    assert any("train networks: smaller than published" in note for note in made.notes)
    wish = Wish(data_dir=str(small_animal), only=("cpm",))
    (part,) = parts_of("animal", wish)
    assert part.grid.methods == ("cpm:preset=paper:script=animal",)


def test_animal_says_how_to_get_it_where_it_is_not(tmp_path: Path) -> None:
    sheet = make_table("animal", Wish(data_dir=str(tmp_path)), Desk(store="none"), "x")
    assert "cell array X" in sheet.notes[0]
    assert len(sheet.rows) == 78


# ------------------------------------------------------------------ the store


def small_part(device: str = "cpu") -> Part:
    grid = Grid(datasets=("digits",), methods=("proto", "match"), splits=2, episodes=3,
                device=device)  # fmt: skip
    return Part("x", grid)


def as_if_on_a_gpu(path: Path, target: Path, methods: tuple[str, ...] = ("proto", "match")) -> None:
    """Copy results with the device of their cells changed."""
    from dataclasses import replace

    with Store(path, write=False) as reader, Store(target) as writer:
        for result in reader.select():
            if result.cell.method in methods:
                writer.add(replace(result, cell=replace(result.cell, device="cuda")))


def test_results_of_a_gpu_are_used_without_one(tmp_path: Path) -> None:
    run(small_part().grid, tmp_path / "cpu.sqlite")
    as_if_on_a_gpu(tmp_path / "cpu.sqlite", tmp_path / "gpu.sqlite")
    found = gather(small_part("cuda"), Desk(store=str(tmp_path / "gpu.sqlite")))
    assert found.devices == ("cuda",)
    assert len(found.results) == 4
    copied = gather(
        small_part("cuda"),
        Desk(store=str(tmp_path / "new.sqlite"), others=(str(tmp_path / "gpu.sqlite"),)),
    )
    assert len(copied.results) == 4
    with Store(tmp_path / "new.sqlite", write=False) as reader:
        assert len(reader) == 4


def test_cells_are_planned_as_the_gpu_machine_plans_them(monkeypatch: pytest.MonkeyPatch) -> None:
    methods = ("proto", "ugda:n_anchors=7", "ptmap+ugda:ugda__n_anchors=7")
    grid = Grid(datasets=("digits",), methods=methods, splits=2, episodes=3, device="cuda")
    here = [cell.hash for cell in planned(grid)]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert here == [cell.hash for cell in plan(grid)]


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is here")
def test_a_missing_cell_of_a_gpu_needs_one(tmp_path: Path) -> None:
    with pytest.raises(FewviewError, match="no CUDA device"):
        gather(small_part("cuda"), Desk(store=str(tmp_path / "a.sqlite")))


def test_kinds_of_devices() -> None:
    assert (kinds_of("cuda:0"), kinds_of("any")) == (("cuda",), ("cuda", "cpu"))


def test_any_device_computes_only_what_no_device_has(tmp_path: Path) -> None:
    run(small_part().grid, tmp_path / "cpu.sqlite")
    as_if_on_a_gpu(tmp_path / "cpu.sqlite", tmp_path / "gpu.sqlite", ("proto",))
    found = gather(small_part("any"), Desk(store=str(tmp_path / "gpu.sqlite")))
    kinds = {cell.method: cell.device for cell in found.cells}
    assert kinds["proto"] == "cuda"
    assert len(found.results) == 4
    with Store(tmp_path / "gpu.sqlite", write=False) as reader:
        assert [result.cell.method for result in reader.select()].count("proto") == 2
    assert found.row("proto", 0.0) is not None
    assert set(found.per_split("match", 0.0)) == {0, 1}


def test_computing_twice_computes_once(tmp_path: Path, data_dir: Path) -> None:
    wish = Wish(quick=True, data_dir=str(data_dir), only=("match",))
    desk = Desk(store=str(tmp_path / "a.sqlite"))
    assert compute_all(["scene15"], wish, desk) == []
    with Store(tmp_path / "a.sqlite", write=False) as reader:
        created = [result.created for result in reader.select()]
    assert len(created) == 5 * 6
    compute_all(["scene15"], wish, desk)
    with Store(tmp_path / "a.sqlite", write=False) as reader:
        assert [result.created for result in reader.select()] == created


# ------------------------------------------------------------------ what there is to run


def test_names() -> None:
    assert expand_names(["Cub", "beyond", "cub"]) == ("cub", *BEYOND, "splits")
    assert set(MAKERS) == set(NAMES)
    assert set(expand_names(["all"])) == {
        *NUMBERS, *(f"figure{k}" for k in range(3, 8)), "claims", *BEYOND, "splits",
    }  # fmt: skip
    with pytest.raises(FewviewError, match="figure9"):
        expand_names(["figure9"])


def test_full_protocol_of_a_table(data_dir: Path) -> None:
    parts = parts_of("handwritten", Wish(data_dir=str(data_dir)))
    plain = parts[0].grid
    assert (plain.splits, plain.episodes) == (10, 40)
    assert (plain.scaling, plain.padding) == ("paper", "paper")
    assert plain.etas == (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
    for part in parts[1:]:
        assert (part.grid.splits, part.grid.episodes) == (3, 20)
        names = ("cpm", "cpm-gan", "icmsc", "completer")
        assert set(part.grid.methods) == {f"{name}:preset=paper" for name in names}


def test_base_classes_of_figure5_are_nested_and_never_novel(data_dir: Path) -> None:
    from fewview.datasets import class_split

    novel = set(class_split("caltech102", 0).novel)
    drawn = [set(base_subset(size, 1, str(data_dir)).classes.tolist()) for size in BASE_SIZES]
    assert [len(classes) for classes in drawn] == list(BASE_SIZES)
    for small, large in pairwise(drawn):
        assert small < large
    assert not drawn[-1] & novel
    assert drawn[0] != set(base_subset(2, 2, str(data_dir)).classes.tolist())


def test_a_part_is_told_in_one_line() -> None:
    part = Part("table", Grid(datasets=("digits",), methods=("proto",)), ("a", 2))
    assert part.describe() == "table a 2: digits, eta 0, 10 x 40, proto"


def test_own_features_are_no_stand_in() -> None:
    assert data_of("cub", Wish()) == "cub_googlenet_doc2vec"
    assert is_stand_in("birds", Wish())
    assert not is_stand_in("birds", Wish(features="mine.npz"))


def test_block_pattern_loses_three_tenths() -> None:
    for views in (2, 6):
        pattern = block_pattern(views).patterns
        assert pattern is not None
        assert 1 - pattern.mean() == pytest.approx(0.3)
        assert pattern.any(axis=1).all()


# ------------------------------------------------------------------ claims


def claim_of(name: str) -> Claim:
    (claim,) = [claim for claim in CLAIMS if claim.name == name]
    return claim


def verdict(name: str, evidence: Evidence) -> str:
    return claim_of(name).judge(evidence).verdict


def case(*values: float, rule: Rule = ABOVE, label: str = "a") -> Case:
    return Case(Line(label, [("table", "cub")], rule), np.array(values))


# With three splits p = 1 - t / sqrt(t^2 + 2): 4 5 6 have t = 5 sqrt(3) and p = 0.0131.
CLEAR, CONTRARY, UNSURE = (4.0, 5.0, 6.0), (-4.0, -5.0, -6.0), (1.0, 2.0, 3.0)


def test_every_claim_has_a_rule_that_needs_no_evidence() -> None:
    assert len(CLAIMS) == len({claim.name for claim in CLAIMS}) == 38
    for claim in CLAIMS:
        assert claim.rule.endswith("else undecided"), claim.name
        assert "does not hold" in claim.rule
    assert "24 cases over splits" in claim_of("complete-pml").rule  # four methods, six sets
    assert "within 10 points of 50" in claim_of("fsl-around-50").rule
    assert "90% of the cases" in claim_of("tiered-combined").rule
    assert "over repetitions" in claim_of("tiered-order").rule
    sheet = list_rules("the command")
    assert [row["claim"] for row in sheet.rows] == [claim.name for claim in CLAIMS]


def test_nothing_is_testable_without_data() -> None:
    assert {claim.judge({}).verdict for claim in CLAIMS} == {UNTESTED}


def test_the_papers_own_tables_contradict_two_of_its_sentences() -> None:
    found = {
        claim.name: claim.as_printed(paper_evidence()).verdict
        for claim in CLAIMS
        if claim.in_tables
    }
    # PTMAP on caltech102 loses 3.00 points; and BD-CSPN is at 36.58, not around 50.
    assert sorted(name for name, word in found.items() if word == FAILS) == [
        "combined-complete", "fsl-around-50",
    ]  # fmt: skip
    assert set(found.values()) == {HOLDS, FAILS}
    complete = claim_of("combined-complete").as_printed(paper_evidence())
    assert complete.failing == "caltech102: PTMAP+UGDA - PTMAP -3.00"


@pytest.mark.parametrize(
    ("name", "change", "expected"),
    [
        ("scene15-order", {("scene15", "ICMSC", 0.5): 63.0}, False),
        ("scene15-numbers", {("scene15", "CPM", 0.5): 39.0}, False),
        ("ugda-cub-numbers", {("cub", "UGDA", 0.5): 76.0}, False),
        ("ugda-cub-order", {("cub", "Proto", 0.5): 80.0}, False),
        ("complete-pml", {("orl", "CPM", 0.0): 99.0}, False),
        ("complete-fsl", {("orl", "TIM", 0.0): 99.0}, True),  # TIM is not in that sentence
        ("heavy-missing", {("cub", "CPM", 0.5): 77.0}, False),
        ("combined-complete", {("caltech102", "PTMAP+UGDA", 0.0): 60.0}, True),
        ("fsl-around-50", {("cub", "BD-CSPN", 0.5): 41.0}, True),
        ("tiered-combined", {("tieredimagenet", "RFS+UGDA", 0.1): 60.0}, False),
    ],
)
def test_one_changed_number_turns_a_claim_of_the_tables(
    name: str, change: dict[tuple[str, str, float], float], expected: bool
) -> None:
    evidence = paper_evidence()
    for (place, method, eta), value in change.items():
        assert table(place, method, eta) in evidence
        evidence[table(place, method, eta)] = {0: value}
    assert claim_of(name).as_printed(evidence).verdict == (HOLDS if expected else FAILS)


def test_orders_are_judged_on_the_class_splits_that_both_sides_share() -> None:
    evidence: dict[Key, Values] = {
        table("scene15", "UGDA", 0.5): {0: 60.0, 1: 61.0, 2: 62.0, 3: 0.0},
        table("scene15", "CPM", 0.5): {2: 56.0, 1: 56.0, 0: 56.0},
    }
    found = claim_of("scene15-order").judge(evidence)
    assert found.verdict == HOLDS
    assert found.p == pytest.approx(1 - 5 * 3**0.5 / 77**0.5)
    assert "UGDA - CPM +5.00 (se 0.58, t 8.66, p 0.013, 3 splits)" in found.numbers
    assert "3 of 4 cases have no data (UGDA - CPM-GAN, UGDA - ICMSC, UGDA" in found.numbers
    evidence[table("scene15", "CPM", 0.5)] = {0: 0.0}
    alone = claim_of("scene15-order").judge(evidence)
    assert alone.verdict == OPEN  # one split is no test, whatever the difference
    assert "+60.00 (one of the splits: no test)" in alone.numbers


def test_a_case_is_decided_by_the_paired_t_test() -> None:
    assert conclude([case(*CLEAR)]).verdict == HOLDS
    assert conclude([case(*CONTRARY)]).verdict == FAILS
    unsure = conclude([case(*UNSURE)])  # t = 2 sqrt(3), and 4.30 is needed
    assert unsure.verdict == OPEN
    assert unsure.p == pytest.approx(1 - 12**0.5 / 14**0.5)
    assert unsure.numbers == "a +2.00 (se 0.58, t 3.46, p 0.074, 3 splits)"
    assert unsure.failing == "undecided: a"
    # With two splits t is 12.71 at least: 1.16 and 1 have t = 13.5, 1.2 and 1 have 11.
    assert conclude([case(1.16, 1.0)]).verdict == HOLDS
    assert conclude([case(1.2, 1.0)]).verdict == OPEN
    # Without variance signs alone count: 2 / 2^5 is above 0.05, 2 / 2^6 below.
    assert conclude([case(*[1.0] * 5)]).verdict == OPEN
    six = conclude([case(*[1.0] * 6)])
    assert (six.verdict, six.p) == (HOLDS, 1 / 32)
    # No difference is none.
    assert conclude([case(0.0, 0.0)]).verdict == OPEN
    assert conclude([case(0.3 - 0.1 - 0.2, 0.0)]).verdict == OPEN


def test_all_cases_must_hold_and_one_against_is_searched_among_all() -> None:
    assert conclude([case(*CLEAR)] * 20).verdict == HOLDS  # no correction: all have to pass
    assert conclude([*[case(*CLEAR)] * 20, case(*UNSURE)]).verdict == OPEN
    # 3 x 0.0131 is below 0.05, 4 x 0.0131 above.
    three = conclude([case(*CLEAR), case(*CLEAR), case(*CONTRARY, label="bad")])
    assert three.verdict == FAILS
    assert three.p == pytest.approx(3 * (1 - 5 * 3**0.5 / 77**0.5))
    assert three.failing == "against: bad"
    four = conclude([*[case(*CLEAR)] * 3, case(*CONTRARY, label="bad")])
    assert four.verdict == OPEN
    assert four.failing == "undecided: bad"
    seven = conclude([*[case(*CLEAR)] * 6, case(-99.0, -100.0, -101.0, label="bad")])
    assert seven.failing == "against: bad -100.00 (se 0.58, t -173.21, p <0.001, 3 splits)"
    assert seven.numbers.startswith("6 of 7 cases as stated, 1 against, 0 undecided; from bad")


def test_almost_all_leaves_room_for_some() -> None:
    sure, wrong = case(99.0, 100.0, 101.0), case(-99.0, -100.0, -101.0)
    # Eleven of twelve are nine in ten.
    assert conclude([*[sure] * 11, wrong], ALMOST_ALL).verdict == HOLDS
    assert conclude([*[sure] * 10, case(*UNSURE), wrong], ALMOST_ALL).verdict == OPEN
    assert conclude([*[sure] * 10, wrong, wrong], ALMOST_ALL).verdict == FAILS
    assert conclude([*[sure] * 11, wrong]).verdict == FAILS


# Mean 20, deviation sqrt(2.5), so one split has the standard error sqrt(3); t(4) is 2.776, and
# half of the prediction interval 4.81.
FIVE = (18.0, 19.0, 20.0, 21.0, 22.0)


@pytest.mark.parametrize(
    ("stated", "values", "expected"),
    [
        (20.0, FIVE, HOLDS),
        (21.0, FIVE, HOLDS),  # 0.58 standard errors away, two of five reach it
        (21.7, FIVE, OPEN),  # one of five reaches it
        (18.2, FIVE, OPEN),  # 1.04 standard errors away
        (24.7, FIVE, OPEN),
        (24.9, FIVE, FAILS),
        (15.1, FIVE, FAILS),  # far better than the paper is not its number either
        (20.0, FIVE[:4], OPEN),  # too few splits to hold
        (20.0, (20.0,), OPEN),
        (3.0, (1.0, 2.0, 3.0, 4.0, 5.0), OPEN),  # 3 is less than 4.81: hardly told from none
        (20.0, (20.003,) * 5, HOLDS),
        (20.0, (20.02,) * 5, FAILS),
    ],
)
def test_a_number_is_judged_as_one_more_class_split(
    stated: float, values: tuple[float, ...], expected: str
) -> None:
    assert conclude([case(*values, rule=number(stated))]).verdict == expected


def test_a_number_says_how_far_it_is_and_who_reaches_it() -> None:
    # (22 - 20) / sqrt(3) is 1.15; Student's t of 4 degrees gives 0.31 beyond it on both sides.
    text = case(*FIVE, rule=number(22.0)).text()
    assert "22 is +1.15 standard errors of one split away, p 0.31, reached by 1 of 5" in text
    two = [case(*FIVE, rule=number(24.9)), case(*FIVE, rule=number(20.0))]
    assert conclude(two).verdict == OPEN  # two numbers: p is doubled


def test_only_is_a_number_or_less() -> None:
    def judged(stated: float, *values: float, one_split: bool = False) -> str:
        rule = number(stated, at_most=True, one_split=one_split)
        return conclude([case(*values, rule=rule)]).verdict

    assert judged(20.0, *FIVE) == HOLDS
    assert judged(30.0, *FIVE) == HOLDS  # significantly less
    assert judged(15.1, *FIVE) == FAILS
    assert judged(15.1, *FIVE, one_split=True) == OPEN
    assert judged(17.0, *FIVE) == OPEN
    assert judged(21.0, *FIVE[:4]) == OPEN  # four splits: 1.5 below, t = 2.3, and 3.18 is needed


def test_around_is_decided_from_the_nearer_end() -> None:
    def judged(*values: float) -> str:
        return conclude([case(*values, rule=near(50.0))]).verdict

    assert judged(54.0, 55.0, 56.0) == HOLDS  # 5 to the end at 60, t = 8.66
    assert judged(44.0, 45.0, 46.0) == HOLDS
    assert judged(57.0, 58.0, 59.0) == OPEN  # 2 to the end, t = 3.46
    assert judged(61.0, 62.0, 63.0) == OPEN
    assert judged(64.0, 65.0, 66.0) == FAILS


def test_cases_without_data_are_counted() -> None:
    found = conclude([case(*CLEAR), "orl: x", "orl: y"])
    assert found.verdict == HOLDS
    assert found.numbers.endswith("; 2 of 3 cases have no data (orl)")
    assert conclude(["x"], remarks=["why"]) == (UNTESTED, None, "no data; why", "")


def curve(panel: str, values: dict[int, float]) -> Evidence:
    """Three splits: d points have t = d sqrt(3) among neighbours, 5 times that from 2nd to 4th."""
    return {
        ("hyper", dataset, panel, value): {k: level + (k - 1) * spread for k in range(3)}
        for dataset in NEIGHBOURS
        for (value, level), spread in zip(values.items(), (1.0, 0.0, 1.0, 0.2), strict=False)
    }


@pytest.mark.parametrize(
    ("levels", "expected"),
    [
        ({0: 50.0, 100: 60.0, 200: 60.5}, OPEN),  # 1.5 to the end of 2 points, t = 2.6
        ({0: 50.0, 100: 60.0, 150: 0.0, 200: 60.5}, HOLDS),  # t = 13
        ({0: 53.0, 100: 60.0, 150: 0.0, 200: 60.0}, HOLDS),
        ({0: 56.0, 100: 60.0, 150: 0.0, 200: 60.0}, OPEN),  # 4 points, t above 2 is 3.46
        ({0: 59.0, 100: 60.0, 150: 0.0, 200: 60.0}, OPEN),
        ({0: 68.0, 100: 60.0, 150: 0.0, 200: 60.0}, FAILS),  # no rise: 4 x 0.0033
        ({0: 50.0, 100: 60.0, 150: 0.0, 200: 65.0}, FAILS),  # goes on rising
        ({0: 50.0, 200: 60.0}, UNTESTED),  # the paper's setting was not run
    ],
)
def test_rises_then_rests(levels: dict[int, float], expected: str) -> None:
    assert verdict("anchors", curve("N_F", levels)) == expected


def test_neighbours() -> None:
    assert verdict("k-small-base", curve("k", {1: 80.0, 6: 75.0})) == HOLDS
    assert verdict("k-small-base", curve("k", {1: 70.0, 6: 70.5})) == OPEN
    assert verdict("k-small-base", curve("k", {1: 70.0, 6: 75.0})) == FAILS
    # Not worse by a point needs t of 4.30, that is 1.48 points above.
    assert verdict("k-large-base", curve("k", {1: 47.0, 4: 49.0})) == HOLDS
    assert verdict("k-large-base", curve("k", {1: 47.0, 4: 48.0})) == OPEN
    assert verdict("k-large-base", curve("k", {1: 47.0, 4: 44.0})) == FAILS
    assert verdict("k-number", curve("k", {1: 47.0, 4: 44.0})) == HOLDS  # less than 0.7 better
    assert verdict("k-number", curve("k", {1: 47.0, 4: 47.7})) == OPEN
    assert verdict("k-number", curve("k", {1: 47.0, 4: 57.0})) == FAILS
    # A loss that is sure but small does not pass as harmless.
    assert conclude([case(-0.5, -0.51, -0.49, rule=HARMLESS)]).verdict == FAILS


def test_base_class_claims() -> None:
    def evidence(at_two: float, at_five: float, proto: float) -> Evidence:
        level = {2: at_two, 5: at_five, 10: 45.0, 20: 45.5, 40: 46.0, 80: 47.0}
        noise = (-0.2, -0.1, 0.0, 0.1, 0.2)
        out: dict[Key, Values] = {
            ("base classes", eta, "UGDA", size): {
                k: value + (size < 80) * noise[k] for k in range(5)
            }
            for eta in (0.1, 0.3)
            for size, value in level.items()
        }
        out["base classes", 0.3, "w/o UGDA (Proto)", 2] = dict.fromkeys(range(5), proto)
        return out

    good = evidence(44.0, 45.5, 28.1)
    assert verdict("base-more", good) == HOLDS
    assert verdict("base-five", good) == HOLDS
    assert verdict("base-two-order", good) == HOLDS
    assert verdict("base-two-number", good) == HOLDS  # 15.7 to 16.1 has 15.92 in it
    bad = evidence(48.0, 40.0, 49.0)
    assert verdict("base-more", bad) == FAILS
    assert verdict("base-five", bad) == OPEN  # of one class split: the paper's may be another
    assert verdict("base-two-order", bad) == FAILS
    assert verdict("base-two-number", bad) == OPEN


def test_loss_and_aggregator_claims() -> None:
    sets = ("cub_googlenet_doc2vec", "scene15")
    steps = np.arange(1, 31)[:, None]
    tasks = np.array([[100.0, 101.0, 103.0, 99.0, 98.0, 102.0, 97.0, 104.0]])

    def judged(losses: np.ndarray) -> str:
        return verdict("aggregator-loss", {k: v for s in sets for k, v in
                                           loss_evidence(s, losses).items()})  # fmt: skip

    assert judged(tasks / steps) == HOLDS
    assert judged(tasks / steps + 20 * (steps % 2)) == FAILS
    assert judged(tasks / steps**2 + 0.5 * (steps % 2)) == HOLDS  # half a percent of the first loss
    assert judged((tasks / steps)[:, :1]) == OPEN  # one task
    assert judged(tasks * (1 + 0.005 * steps)) == FAILS  # creeps up by less than a percent
    found = loss_evidence("scene15", np.array([[10.0, 10.0], [5.0, 4.0], [6.0, 1.0]]))
    assert found["loss rise", "scene15"] == pytest.approx({0: 10.0, 1: 0.0})
    assert found["loss fall", "scene15"] == pytest.approx({0: 40.0, 1: 90.0})
    parts: dict[Key, Values] = {
        ("aggregator", s, label): {k: level + 0.1 * k * (level > 70) for k in range(3)}
        for s in sets
        for label, level in (("full IAA", 70.0), ("w/o AEU", 75.0))
    }
    assert verdict("aggregator-aeu", parts) == FAILS
    assert verdict("aggregator-lau", parts) == UNTESTED


def test_stand_ins_are_a_category_of_their_own() -> None:
    levels = {"PTMAP": 50.0, "RFS": 40.0, "ICMSC": 30.0, "COMPLETER": 45.0, "UGDA": 60.0}
    evidence: dict[Key, Values] = {
        table("tieredimagenet", method, eta): {
            k: level - 10 * eta * (method != "UGDA") + (k - 1) / 10 * (method == "UGDA")
            for k in range(3)
        }
        for method, level in levels.items()
        for eta in (0.1, 0.6)
    }
    evidence |= {table("cub", "UGDA", 0.5): {0: 76.0}}

    def rows(wish: Wish) -> dict[str, Any]:
        sheet = judge_all(evidence, [], wish, "x")
        counts = [int(line.partition(" ")[0]) for line in sheet.summary]
        assert sum(counts) == len(CLAIMS)
        return {row["claim"]: row for row in sheet.rows} | {"apart": counts[1]}

    sheet = judge_all(evidence, [], Wish(data_dir="nowhere"), "x")
    row = next(row for row in sheet.details if row["case"] == "UGDA - PTMAP")
    # 60 +- 0.1 against 50 less six points at eta 0.6.
    assert (row["mean"], row["n"], row["unit"]) == (pytest.approx(16.0), 3, "repetitions")
    assert row["se"] == pytest.approx(0.1 / 3**0.5)
    found = rows(Wish(data_dir="nowhere"))
    assert found["apart"] == 6
    assert found["tiered-order"]["ours"] == "stand-in: holds"
    assert found["tiered-order"]["data"] == "stand-in"
    assert "3 repetitions" in found["tiered-order"]["numbers"]
    assert found["tiered-numbers"]["ours"] == "stand-in: not testable"
    assert "UGDA - PTMAP (paper +17.67) +1" in found["tiered-numbers"]["numbers"]
    assert found["birds-robust"]["ours"] == "stand-in: not testable"
    assert (found["ugda-cub-numbers"]["ours"], found["ugda-cub-numbers"]["data"]) == (
        OPEN, "paper's",
    )  # fmt: skip
    assert found["complete-pml"]["data"] == "paper's and recomputed"
    assert found["base-five"]["data"] == "recomputed"


def test_evidence_is_read_from_results() -> None:
    gathered = [
        fake(part_of("orl", {"UGDA": "ugda:n_anchors=50", "Proto": "proto"}, tag=("orl",)),
             lambda m, eta, split: 90 - 40 * eta + split - 10 * (m == "proto")),
        fake(part_of("scene15", {"Full ADSR": "ugda", "w/o L_ce + w/o L_se": "ugda:rectify=none"},
                     "ablation", ("scene15",)),
             lambda m, eta, split: 60.0 + split / 10 if m == "ugda" else 50.0),
        fake(part_of("caltech102", BASE_METHODS, "base classes", (5, 3), (0.3,), 1),
             lambda m, eta, split: 44.0),
        fake(part_of("scene15", aggregator_methods("scene15"), "aggregator",
                     ("scene15",), (0.5,)), lambda m, eta, split: 58.0),
        fake(part_of("caltech102", hyper_methods("caltech102", True)["k"],
                     "hyper-parameters", ("caltech102", "k"), (0.3,)), lambda m, eta, split: 47.0),
    ]  # fmt: skip
    found = our_evidence(gathered)
    assert found[table("orl", "UGDA", 0.5)] == pytest.approx({0: 70.0, 1: 71.0})
    assert found[table("orl", "Proto", 0.0)] == pytest.approx({0: 80.0, 1: 81.0})
    assert found["ablation", "scene15", "w/o L_ce + w/o L_se", 0.0] == pytest.approx(
        {0: 50.0, 1: 50.0}
    )
    assert found["base classes", 0.3, "UGDA", 5] == pytest.approx({3: 44.0})
    assert found["aggregator", "scene15", "w/o LAU"] == pytest.approx({0: 58.0, 1: 58.0})
    assert found["hyper", "caltech102", "k", 4] == pytest.approx({0: 47.0, 1: 47.0})
    sheet = judge_all(found, gathered, Wish(quick=True), "x")
    words = {row["claim"]: row["ours"] for row in sheet.rows}
    assert words["adsr-best"] == HOLDS
    assert words["tiered-order"] == "stand-in: not testable"
    assert len(sheet.rows) == len(CLAIMS)


# ------------------------------------------------------------------ figures


def check_picture(picture: Picture, folder: Path) -> None:
    """Vector files are sound, letters can be read in print, colours are the safe ones."""
    files = {path.suffix: path for path in picture.write(folder)}
    assert {".pdf", ".svg", ".csv", ".md"} <= set(files)
    name = picture.sheet.name
    assert (folder / f"{name}.pdf").read_bytes().startswith(b"%PDF")
    ElementTree.parse(folder / f"{name}.svg")
    rows = list(csv.DictReader(io.StringIO(picture.sheet.csv())))
    assert rows
    assert rows[0]["command"] == "the command"
    sizes = [text.get_fontsize() for axis in picture.figure.axes for text in axis.texts]
    for axis in picture.figure.axes:
        sizes += [axis.title.get_fontsize(), axis.xaxis.label.get_fontsize()]
        for line in axis.lines:
            assert line.get_color() in (*COLOURS, "black", "0.6") or line.get_linestyle() == "None"
    assert min(sizes) >= 6
    assert picture.figure.get_size_inches()[0] <= 7.2
    # Panels that are one grid are also stacked for one column of print.
    single = folder / f"{name}-single.svg"
    assert single.exists() == (not picture.figure.subfigs)
    if single.exists():
        width = ElementTree.parse(single).getroot().get("width") or ""
        assert float(width.removesuffix("pt")) == pytest.approx(72 * 3.5)


def cloud(seed: int, anchors: int = 2) -> Cloud:
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(2), anchors // 2)
    kind = "anchor" if anchors > 2 else "support"
    queries = rng.normal(size=(8, 3))
    return Cloud(
        rng.normal(size=(anchors, 3)), labels, queries, np.repeat(np.arange(2), 4), 75.0, kind
    )


def test_methods_look_the_same_everywhere() -> None:
    same = looks(["ugda"])["ugda"]
    assert look("UGDA") == {"color": COLOURS[same.colour], "marker": same.marker}
    assert look("w/o UGDA (Proto)") == look("Proto")
    dashes = [look(name, line=True)["linestyle"] for name in ("UGDA", "ptmap+ugda")]
    assert dashes[0] == "-"
    assert dashes[1] == look_of("ptmap+ugda").line(1.3)["linestyle"] != "-"


def test_maps_are_plane_and_the_same_every_time() -> None:
    points = np.random.default_rng(0).normal(size=(12, 60))
    assert tsne(points).shape == (12, 2)
    assert (tsne(points) == tsne(points)).all()


def test_nearest_anchors() -> None:
    places = np.array([[0.0], [9.0]])
    assert Cloud(places, np.arange(2), places + 1, np.arange(2)).own_nearest() == 100
    assert Cloud(places, np.arange(2), places + 1, np.array([0, 0])).own_nearest() == 50


def test_figure3(tmp_path: Path) -> None:
    clouds = {"Concat": cloud(0), "UGDA": cloud(1, 8)}
    picture = draw_figure3(clouds, "birds200", 2, "one task", "the command", {"CPM": "failed: oh"})
    check_picture(picture, tmp_path)
    notes = {row["panel"]: row["note"] for row in picture.sheet.rows}
    assert len(notes) == 7
    assert (notes["Concat"], notes["CPM"], notes["ICMSC"]) == ("", "failed: oh", "not available")
    assert sum(row["panel"] == "UGDA" for row in picture.points) == 16
    assert any("animal" in note for note in picture.sheet.notes)


def test_figure4(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(3), 4)

    def way() -> Way:
        kept = {k: rng.normal(size=(12, 3)) for k in (1, 5, 30)}
        loss = np.outer(1 / np.arange(1, 31), np.ones(2))
        return Way(loss, {k: Cloud(rows, labels, rows, labels) for k, rows in kept.items()})

    gathered = [
        fake(part_of(dataset, aggregator_methods(dataset), "aggregator",
                     (dataset,), (0.5,)), lambda m, eta, split: 60.0)
        for dataset in AGGREGATED
    ]  # fmt: skip
    ways = {dataset: way() for dataset in AGGREGATED}
    picture = draw_figure4(gathered, ways, Wish(quick=True), "the command")
    check_picture(picture, tmp_path)
    assert len(picture.figure.axes) == 2 + 6
    values = {(r["part"], r["dataset"], r["what"]): r["value"] for r in picture.sheet.rows}
    assert values["b", "cub", "loss per anchor at B (iteration 5)"] == pytest.approx(0.2)
    assert values["a", "scene15", "accuracy, w/o AEU (%)"] == pytest.approx(60.0)
    # Anchors and queries are the same points here, so every nearest anchor is of the own class.
    assert values["c", "cub", "queries whose nearest anchor is of their class at C (%)"] == 100


def test_figure5(tmp_path: Path) -> None:
    gathered = [
        fake(
            part_of("caltech102", BASE_METHODS, "base classes", (size, r),
                    (0.1, 0.3), 1),
            lambda m, eta, split, size=size, r=r: 40 + size / 8 + r,
        )
        for size in BASE_SIZES
        for r in (0, 2)
    ]  # fmt: skip
    picture = draw_curves("figure5", gathered, Wish(), "the command")
    check_picture(picture, tmp_path)
    row = next(
        r for r in picture.sheet.rows
        if (r["eta"], r["method"], r["base_classes"]) == (0.3, "UGDA", 80)
    )  # fmt: skip
    assert row["accuracy"] == pytest.approx(51.0)
    assert row["deviation"] == pytest.approx(1.0)
    assert len(picture.sheet.rows) == 2 * 3 * 6


def test_figure6(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    task = Rectified(
        number=3, queries=rng.normal(size=(9, 4)), labels=np.repeat(np.arange(3), 3),
        centres={terms: rng.normal(size=(3, 4)) for terms in RECTIFICATIONS},
        accuracy=dict.fromkeys(RECTIFICATIONS, 50.0), moved=dict.fromkeys(RECTIFICATIONS, 1.0),
        over_tasks=dict.fromkeys(RECTIFICATIONS, 55.0), n_tasks=4,
    )  # fmt: skip
    picture = draw_figure6({"caltech102": task, "scene15": task}, "the command")
    check_picture(picture, tmp_path)
    assert len(picture.figure.axes) == 8
    queries = [
        [(p["x"], p["y"]) for p in picture.points if p["panel"] == panel and p["kind"] == "query"]
        for panel in RECTIFICATIONS.values()
    ]
    assert queries[0] == queries[3]  # the panels share one map


def test_figure6_draws_the_task_of_median_gain(data_dir: Path) -> None:
    found = rectify("scene15", Wish(data_dir=str(data_dir)), 5)
    assert found.moved["none"] == 0
    assert set(found.accuracy) == set(RECTIFICATIONS)
    assert found.queries.shape[0] == 90
    assert found.centres["none"].shape[0] == 3


def fake_figure7() -> list[Gathered]:
    """All grids of figure 7, with accuracies that depend on the class split alone."""
    return [
        fake(part_of(dataset, values, "hyper-parameters", (dataset, panel),
                     (0.3,)), lambda m, eta, split: 50.0 + split)
        for dataset in NEIGHBOURS
        for panel, values in hyper_methods(dataset, True).items()
    ]  # fmt: skip


def test_figure7(tmp_path: Path) -> None:
    picture = draw_curves("figure7", fake_figure7(), Wish(quick=True), "the command")
    check_picture(picture, tmp_path)
    assert len(picture.figure.axes) == 8
    assert {row["parameter"] for row in picture.sheet.rows} == {"iter", "N", "N_F", "k"}
    assert {row["solver"] for row in picture.sheet.rows if row["parameter"] == "N"} == {"adam"}
    assert len(picture.sheet.rows) == 2 * 4 * 6


def test_a_figure_says_which_lines_are_missing() -> None:
    whole = fake_figure7()
    assert not any(
        "missing" in note for note in draw_curves("figure7", whole, Wish(), "x").sheet.notes
    )
    first = whole[0]
    kept = {key: r for key, r in first.results.items() if not r.cell.method.endswith("n_iter=30")}
    gathered = [Gathered(first.part, first.cells, kept), *whole[1:]]
    picture = draw_curves("figure7", gathered, Wish(only=("ugda",)), "x")
    assert picture.sheet.notes[-2:] == (
        "only ugda: other lines are left out",
        "missing, no results: caltech102 iter 30 (eta 0.3)",
    )
    with pytest.raises(NoResultsError, match="all of its 24 results failed; the first: broke"):
        shown("x", [Gathered(first.part, first.cells[:1] * 24, {}, ((first.cells[0], "broke"),))],
              Wish(), Desk())  # fmt: skip


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("imbalance", IMBALANCES),
        ("shots", SHOTS),
        ("missingness", ("uniform", "class-dependent", "patterns")),
    ],
)
def test_studies_beyond_the_paper(name: str, values: tuple[Any, ...], tmp_path: Path) -> None:
    gathered = [
        fake(part_of(dataset, COMPARED, name, (dataset, value), (0.3,)),
             lambda m, eta, split: 60.0 + len(m))
        for dataset in SMALL_SETS
        for value in values
    ]  # fmt: skip
    picture = draw_curves(name, gathered, Wish(), "the command")
    check_picture(picture, tmp_path)
    assert len(picture.sheet.rows) == 3 * len(values) * len(COMPARED)
    assert {row["accuracy"] for row in picture.sheet.rows if row["method"] == "UGDA"} == {64.0}


def test_time_against_accuracy(tmp_path: Path) -> None:
    gathered = [
        fake(part_of(dataset, {"Proto": "proto", "UGDA": "ugda"}, "table", (dataset,), (0.3,)),
             lambda m, eta, split: 60.0)
        for dataset in SMALL_SETS
    ]  # fmt: skip
    picture = draw_curves("time", gathered, Wish(), "the command")
    check_picture(picture, tmp_path)
    # Two splits of one second each, over four episodes.
    assert {row["ms_per_episode"] for row in picture.sheet.rows} == {500.0}
