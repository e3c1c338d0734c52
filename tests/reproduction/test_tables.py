"""Every printed number at its place, ours beside it, and which class splits fit the paper."""

from __future__ import annotations

import csv
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import multivariate_normal

import reproduction
from fewview.datasets import class_split
from reproduction.likely_splits import ALLOWANCES, MOST, Likely, covariance, weigh, weighed
from reproduction.records import COLUMNS, read_paper, read_results, write_results
from reproduction.run import find_study, load_studies
from reproduction.tables import beside_paper, entry, printed_in, summarise, written

# Our own reading of the paper's tables: nothing of the code under test is used for it.
PRINTED = Path(reproduction.__file__).parent / "paper.csv"
NUMBERS = {"cub": 1, "handwritten": 2, "caltech102": 3, "scene15": 4, "animal": 5, "orl": 6,
           "tieredimagenet": 7, "birds": 8, "ablation": 9}  # fmt: skip
HERE = {"Cub-googlenet-doc2vec": "cub_googlenet_doc2vec", "Handwritten": "handwritten",
        "Caltech102": "caltech102", "Scene15": "scene15", "Animal": "animal", "ORL": "orl",
        "tieredImagenet": "tieredimagenet_tiny",
        "tieredImagenet->Birds-200-2011": "birds200"}  # fmt: skip
RATES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
KEYS = [(method, eta) for method in ("Proto", "Match") for eta in RATES]


def made(
    study: str, method: str, eta: float, accuracies: list[float], dataset: str
) -> pd.DataFrame:
    """Recorded rows that were never computed."""
    rows = [[study, method, eta, 0, split, 40, accuracy, 0.5, 1.0, "s", "r", dataset]
            for split, accuracy in enumerate(accuracies)]  # fmt: skip
    return pd.DataFrame(rows, columns=[*COLUMNS, "dataset"])


@pytest.mark.parametrize("name", NUMBERS)
def test_every_number_of_the_paper_is_at_its_place(name: str) -> None:
    lines = [line.split(",") for line in PRINTED.read_text(encoding="utf-8").splitlines()[1:]]
    expected = {(HERE[line[1]], line[5], line[6]): (line[7], line[8]) for line in lines
                if int(line[0]) == NUMBERS[name]}  # fmt: skip
    few = {"ablation": 48, "tieredimagenet": 42, "birds": 42}
    assert len(expected) == few.get(name, 78)
    study = find_study(name)
    assert f"Table {NUMBERS[name] + 1} [tab:{NUMBERS[name]}]" in study.title
    table = beside_paper(read_results(), read_paper(), study)
    text = written(table, "csv")
    found = {(row["dataset"], row["method"], row["eta"]): (row["paper"], row["paper_se"])
             for row in csv.DictReader(text.splitlines())}  # fmt: skip
    assert {key: pair for key, pair in found.items() if pair != ("-", "-")} == expected
    for form in ("text", "markdown", "latex"):
        other = written(table, form)
        assert all(accuracy in other for accuracy, _ in expected.values()), form


def test_ours_difference_and_range_are_computed_from_class_splits() -> None:
    # The paper: Proto on cub is 87.04 at eta 0 and 53.66 at 0.5.
    rows = [made("cub", "Proto", 0.0, [80.0, 87.0364], "cub_googlenet_doc2vec"),
            made("cub", "Proto", 0.5, [40.0, 50.0], "cub_googlenet_doc2vec")]  # fmt: skip
    table = beside_paper(pd.concat(rows), read_paper(), find_study("cub"))
    first, last = table.iloc[0], table.iloc[5]
    assert first["ours"] == pytest.approx(83.5182)
    assert first["difference"] == pytest.approx(83.5182 - 87.04)
    assert (first["low"], first["high"], first["splits"]) == (80.0, 87.0364, 2)
    assert first["inside"] == "yes", "a bound that is equal as printed is inside"
    assert last["inside"] == "no"
    assert "1 of 2 cells" in summarise(table)
    assert entry(first["difference"], "difference") == "-3.52"


def test_rates_that_two_views_cannot_have_and_sets_with_one_class_split() -> None:
    rows = made("tieredimagenet", "Proto", 0.1, [50.0, 60.0], "tieredimagenet_tiny")
    table = beside_paper(rows, read_paper(), find_study("tieredimagenet")).set_index("eta")
    assert table.loc[0.6, "ours"].tolist() == ["unreachable"] * 13
    first = table.loc[0.1].iloc[0]
    assert (first["ours"], first["splits"]) == (55.0, 1)
    assert pd.isna(first["low"])


def test_new_rows_replace_their_own_and_no_others(tmp_path: Path) -> None:
    old = [made("cub", "Proto", 0.0, [80.0, 90.0], "a"), made("cub", "UGDA", 0.0, [70.0], "a"),
           made("orl", "Proto", 0.0, [60.0], "b")]  # fmt: skip
    write_results(pd.concat(old), {"runs": {"r": {"date": "then"}}}, tmp_path)
    write_results(made("cub", "Proto", 0.0, [85.5], "a"), {"runs": {"q": {}}}, tmp_path)
    found = read_results(tmp_path)
    assert list(zip(found["study"], found["method"], found["accuracy"], strict=True)) == [
        ("cub", "UGDA", 70.0), ("cub", "Proto", 85.5), ("orl", "Proto", 60.0),
    ]  # fmt: skip


def test_settings_follow_the_authors_scripts() -> None:
    studies = load_studies()
    assert studies["orl"].rows["UGDA"] == "ugda:n_anchors=50:rectifier=adam"
    assert studies["cub"].rows["CPM"] == "cpm:preset=paper:script=cub"
    assert studies["scene15"].rows["CPM"] == "cpm:preset=paper"
    plain, networks = studies["cub"].parts
    assert (plain.splits, plain.episodes) == (10, 40)
    assert (networks.splits, networks.episodes) == (3, 20)


def test_base_classes_of_figure_5_are_nested_and_never_novel() -> None:
    split = class_split("caltech102", 0)
    chosen = {(part.seed, part.study): set(part.base or ()) for part in find_study("figure5").parts}
    for seed in range(5):
        sets = [chosen[seed, f"figure5/{size}"] for size in (2, 5, 10, 20, 40, 80)]
        assert [len(one) for one in sets] == [2, 5, 10, 20, 40, 80]
        assert all(few < many for few, many in zip(sets, sets[1:], strict=False))
        assert sets[-1] == set(split.base)


# ---------------------------------------------------------------------- likely class splits


def levels(n_splits: int, spread: float, seed: int) -> pd.DataFrame:
    """Splits that differ in level and a little in shape."""
    rng = np.random.default_rng(seed)
    curve = np.tile([85.0, 77.0, 70.0, 62.0, 56.0, 51.0], 2)
    numbers = curve + spread * rng.normal(size=(n_splits, 1)) + rng.normal(size=(n_splits, 12))
    return pd.DataFrame(numbers, columns=pd.MultiIndex.from_tuples(KEYS))


def as_paper(
    numbers: np.ndarray, error: float = 0.5
) -> dict[tuple[str, float], tuple[float, float]]:
    return {key: (float(x), error) for key, x in zip(KEYS, numbers, strict=True)}


def test_numbers_of_one_split_are_attributed_to_it() -> None:
    ours = levels(60, 4.0, seed=1)
    likely = weigh(ours, as_paper(ours.loc[17].to_numpy() + 0.2), episodes=400)
    (first, weight), *others = likely.weights.items()
    assert first == 17
    assert weight > 0.9 > 0.1 > sum(weight for _, weight in others)
    assert likely.n_numbers == 12
    assert likely.p_value > 0.99


def test_weights_are_the_model_as_it_is_written_down() -> None:
    # By loops and scipy's density, from the words of the docstring alone.
    ours, n, error = levels(5, 1.0, seed=2), 50, 0.6
    paper = ours.loc[3].to_numpy() + np.linspace(-1, 1, 12)
    likelihood = np.zeros(5)
    for allowance in (0.25, 0.5, 1.0, 2.0):
        cov = np.zeros((12, 12))
        for a, (one, eta) in enumerate(KEYS):
            for b, (two, rate) in enumerate(KEYS):
                shared = 0.75 ** (round(abs(eta - rate) * 10) + (one != two))
                cov[a, b] = shared * error**2 * (1 + 400 / n)
                cov[a, b] += allowance**2 * ((one == two) + (a == b))
        likelihood += multivariate_normal(np.zeros(12), cov).pdf(paper - ours.to_numpy())
    found = weigh(ours, as_paper(paper, error), n)
    expected = dict(enumerate((likelihood / likelihood.sum()).tolist()))
    assert dict(found.weights) == pytest.approx(expected)
    assert list(found.weights.values()) == sorted(found.weights.values(), reverse=True)


def test_weights_are_calibrated() -> None:
    # If a paper's numbers do come from a split in the way of the model, a weight of 0.3 is right in
    # three of ten cases: the mean weight of the true split is the mean of the sum of squares.
    rng = np.random.default_rng(3)
    true, squares = [], []
    for _ in range(300):
        ours = levels(30, 3.0, seed=int(rng.integers(1 << 30)))
        spread = covariance(dict.fromkeys(KEYS, 0.5), 100, float(rng.choice(ALLOWANCES)))
        split = int(rng.integers(30))
        drawn = rng.multivariate_normal(ours.loc[split].to_numpy(), spread)
        likely = weigh(ours, as_paper(drawn), 100)
        true.append(likely.weights[split])
        squares.append(sum(weight**2 for weight in likely.weights.values()))
    error = np.std(np.subtract(true, squares)) / 300**0.5
    assert abs(np.mean(true) - np.mean(squares)) < 3 * error
    assert np.mean(true) > 0.15  # and it is worth something: chance is 0.03


def test_only_proto_and_match_are_looked_at() -> None:
    ours = levels(8, 3.0, seed=4)
    paper = as_paper(ours.loc[2].to_numpy())
    others = {("UGDA", eta): (1.0, 9.0) for eta in RATES}
    assert weigh(ours, others | paper, 100) == weigh(ours, paper, 100)
    ours.iloc[5, 3] = np.nan  # a split that lacks a number is left out
    assert 5 not in weigh(ours, paper, 100).weights


def test_likely_splits_are_the_heaviest_ones() -> None:
    likely = Likely({5: 0.6, 2: 0.3, 9: 0.06, 1: 0.03, 0: 0.01}, 1.0, 12)
    assert likely.top == {5: 0.6, 2: 0.3, 9: 0.06}
    # 0.6 and 0.06 of the weight have numbers: (0.6 * 90 + 0.06 * 79) / 0.66 = 89.
    assert likely.mean({5: 90.0, 9: 79.0, 1: 0.0}) == pytest.approx(89.0)
    assert likely.mean({0: 1.0}) is None
    assert len(Likely(dict.fromkeys(range(100), 0.01), 1.0, 12).top) == MOST


def test_likely_splits_are_read_from_records() -> None:
    results, study = read_results(), find_study("handwritten")
    likely, means = weighed("handwritten", results, printed_in(read_paper(), study))
    assert likely is not None
    assert len(likely.weights) == 210
    assert likely.p_value > 0.9
    # The means of the rows that weigh are near the paper's, by what they were chosen for.
    assert means["Proto", 0.3] == pytest.approx(61.97, abs=1.0)
    assert weighed("animal", results, {}) == (None, {})


@pytest.mark.parametrize("name", ["cub_googlenet_doc2vec", "handwritten"])
def test_the_numbered_splits_are_all_splits_once(name: str) -> None:
    found = [class_split(name, k).novel for k in range(210)]
    assert set(found) == set(combinations(range(10), 4))
