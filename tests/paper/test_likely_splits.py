"""Which class split the paper may have used: weights are likelihoods, of two rows and no others."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import multivariate_normal

import fewview.paper._studies as studies
from fewview.datasets import class_split
from fewview.evaluate._grid import Grid, plan
from fewview.paper._beside import compare, likely_means, make_splits
from fewview.paper._compute import Desk, describe_plan, recall, record
from fewview.paper._likely_splits import (
    ALLOWANCES,
    MOST,
    SHARE,
    Likely,
    covariance,
    following_parts,
    numbers_of,
    paper_numbers,
    weigh,
)
from fewview.paper._printed import METHODS, TABLES, Printed
from fewview.paper._studies import Part, Wish, parts_of
from fewview.samples import FewviewError

RATES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
KEYS = [(method, eta) for method in ("Proto", "Match") for eta in RATES]


@dataclass
class MadeUp:
    """Accuracies [split, number] of Proto and Match, in the order of `KEYS`; notes who asks."""

    numbers: np.ndarray
    episodes: int = 100
    asked: set[str] = field(default_factory=set)

    @property
    def part(self) -> Part:
        methods = {"Proto": "proto", "Match": "match", "UGDA": "ugda"}
        grid = Grid(datasets=("cub_googlenet_doc2vec",), methods=("proto", "match"), etas=RATES,
                    splits=len(self.numbers), episodes=self.episodes)  # fmt: skip
        return Part("candidates", grid, ("cub",), methods)

    def per_split(self, method: str, eta: float) -> dict[int, float]:
        self.asked.add(method)
        column = KEYS.index(({"proto": "Proto", "match": "Match"}[method], eta))
        return dict(enumerate(self.numbers[:, column].tolist()))


def levels(n_splits: int, spread: float, seed: int) -> np.ndarray:
    """Splits that differ in level and a little in shape."""
    rng = np.random.default_rng(seed)
    curve = np.tile([85.0, 77.0, 70.0, 62.0, 56.0, 51.0], 2)
    return curve + spread * rng.normal(size=(n_splits, 1)) + rng.normal(size=(n_splits, 12))


def as_paper(numbers: np.ndarray, error: float = 0.5) -> dict[tuple[str, float], Printed]:
    return {key: Printed(float(x), error) for key, x in zip(KEYS, numbers, strict=True)}


def test_numbers_of_one_split_are_attributed_to_it() -> None:
    ours = levels(60, 4.0, seed=1)
    likely = weigh(MadeUp(ours, episodes=400), as_paper(ours[17] + 0.2))
    assert likely is not None
    first, *others = likely.weights.items()
    assert first[0] == 17
    assert first[1] > 0.9 > 0.1 > sum(weight for _, weight in others)
    assert likely.n_numbers == 12
    assert likely.p_value > 0.99


def test_weights_are_the_model_as_it_is_written_down() -> None:
    # By loops and scipy's density, from the words of the docstring alone.
    ours, n, error = levels(5, 1.0, seed=2), 50, 0.6
    paper = ours[3] + np.linspace(-1, 1, 12)
    likelihood = np.zeros(5)
    for allowance in (0.25, 0.5, 1.0, 2.0):
        cov = np.zeros((12, 12))
        for a, (one, eta) in enumerate(KEYS):
            for b, (two, rate) in enumerate(KEYS):
                shared = 0.75 ** (round(abs(eta - rate) * 10) + (one != two))
                cov[a, b] = shared * error**2 * (1 + 400 / n)
                cov[a, b] += allowance**2 * ((one == two) + (a == b))
        likelihood += multivariate_normal(np.zeros(12), cov).pdf(paper - ours)
    found = weigh(MadeUp(ours, n), as_paper(paper, error))
    assert found is not None
    expected = dict(enumerate((likelihood / likelihood.sum()).tolist()))
    assert dict(found.weights) == pytest.approx(expected)
    assert sum(found.weights.values()) == pytest.approx(1.0)
    assert list(found.weights.values()) == sorted(found.weights.values(), reverse=True)


def test_weights_are_calibrated() -> None:
    # If a paper's numbers do come from a split in the way of the model, a weight of 0.3 is right in
    # three of ten cases: the mean weight of the true split is the mean of the sum of squares.
    rng = np.random.default_rng(3)
    true, squares = [], []
    for _ in range(400):
        ours = levels(30, 3.0, seed=int(rng.integers(1 << 30)))
        spread = covariance(dict.fromkeys(KEYS, 0.5), 100, float(rng.choice(ALLOWANCES)))
        split = int(rng.integers(30))
        likely = weigh(MadeUp(ours), as_paper(rng.multivariate_normal(ours[split], spread)))
        assert likely is not None
        true.append(likely.weights[split])
        squares.append(sum(weight**2 for weight in likely.weights.values()))
    error = np.std(np.subtract(true, squares)) / 20
    assert abs(np.mean(true) - np.mean(squares)) < 3 * error
    assert np.mean(true) > 0.15  # and it is worth something: chance is 0.03


def test_only_proto_and_match_are_looked_at() -> None:
    ours = levels(8, 3.0, seed=4)
    found = MadeUp(ours)
    paper = as_paper(ours[2])
    plain = weigh(found, paper)
    others = {(m, eta): Printed(1.0, 9.0) for m in METHODS for eta in RATES}
    assert weigh(found, others | paper) == plain
    assert found.asked == {"proto", "match"}
    assert len(paper_numbers("cub")) == 78
    assert paper_numbers("cub")["UGDA", 0.5].accuracy == 76.69


def test_likely_splits_are_the_heaviest_ones() -> None:
    likely = Likely({5: 0.6, 2: 0.3, 9: 0.06, 1: 0.03, 0: 0.01}, 1.0, 12)
    assert SHARE == 0.95
    assert likely.top == {5: 0.6, 2: 0.3, 9: 0.06}
    # 0.6 and 0.06 of the weight have numbers: (0.6 * 90 + 0.06 * 79) / 0.66 = 89.
    mean, spread, held = likely.moments({5: 90.0, 9: 79.0, 1: 0.0}) or (0.0, 0.0, 0.0)
    assert (mean, held) == (pytest.approx(89.0), pytest.approx(0.66))
    assert spread == pytest.approx(((0.6 * 1 + 0.06 * 100) / 0.66) ** 0.5)
    assert likely.moments({0: 1.0}) is None
    assert len(Likely(dict.fromkeys(range(100), 0.01), 1.0, 12).top) == MOST


def test_splits_that_lack_a_number_are_left_out() -> None:
    class Broken(MadeUp):
        def per_split(self, method: str, eta: float) -> dict[int, float]:
            out = super().per_split(method, eta)
            return out if eta != 0.3 else {k: v for k, v in out.items() if k != 2}

    ours = levels(4, 3.0, seed=5)
    likely = weigh(Broken(ours), as_paper(ours[2]))
    assert likely is not None
    assert set(likely.weights) == {0, 1, 3}
    assert weigh(Broken(ours[2:3]), {}) is None


@pytest.mark.parametrize("name", ["cub_googlenet_doc2vec", "handwritten"])
def test_the_numbered_splits_are_all_splits_once(name: str) -> None:
    found = [class_split(name, k).novel for k in range(210)]
    assert set(found) == set(combinations(range(10), 4))


def test_a_grid_runs_particular_splits() -> None:
    some = Grid(datasets=("digits",), methods=("proto",), splits=(17, 3), episodes=5)
    every = Grid(datasets=("digits",), methods=("proto",), splits=20, episodes=5)
    by_number = {cell.split: cell.hash for cell in plan(every)}
    assert [(cell.split, cell.hash) for cell in plan(some)] == [(k, by_number[k]) for k in (17, 3)]
    with pytest.raises(FewviewError, match="splits is"):
        Grid(datasets=("digits",), methods=("proto",), splits=())
    with pytest.raises(FewviewError, match="count from 0"):
        plan(Grid(datasets=("digits",), methods=("proto",), splits=(-1,)))


def test_a_table_has_a_column_for_likely_splits() -> None:
    sheet = compare(TABLES["cub"], (), Wish(), "x", likely={("UGDA", 0.5): 77.125})
    shown = {(row["method"], row["eta"]): row["likely"] for row in sheet.rows}
    assert shown["UGDA", 0.5] == 77.125
    assert shown["UGDA", 0.4] is None
    assert "likely" in sheet.columns


def test_the_study_from_end_to_end(
    data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(studies, "CANDIDATES", {"cub": 20})  # a fifth of it
    wish = Wish(quick=True, data_dir=str(data_dir), only=("rfs",))
    desk = Desk(store=str(tmp_path / "s.sqlite"))
    # Nothing is known: the first half alone can be planned, and there is nothing to show.
    (row,) = describe_plan(["splits"], wish, desk)
    assert (row["cells"], row["stored"]) == (4 * 12, 0)
    assert likely_means("cub", wish, desk) == {}
    with pytest.raises(FewviewError, match="no class split has been weighed"):
        make_splits(wish, Desk(store=desk.store, compute=False), "x")

    sheet = make_splits(wish, desk, "the command")
    first, second = describe_plan(["splits"], wish, desk)
    assert (first["left"], second["left"]) == (0, 0)
    # RFS was run on the likely splits alone, on the cells that the table would have.
    (part,) = parts_of("splits", wish)
    assert part.methods == {"Proto": "proto", "Match": "match"}
    rows = {(row["method"], row["class_splits"]): row for row in sheet.rows}
    assert rows["UGDA", "paper"]["0.5"] == 76.69
    assert ("UGDA", "likely") not in rows
    singles = [row for (m, text), row in rows.items() if m == "Proto" and text[:5] == "split"]
    held = sum(row["weight"] for row in singles)
    assert rows["Proto", "likely"]["weight"] == pytest.approx(held)
    expected = sum(row["weight"] * row["0.3"] for row in singles) / held
    assert rows["Proto", "likely"]["0.3"] == pytest.approx(expected)
    number = int(singles[0]["class_splits"].split(":")[0].split()[1])
    novel = class_split("cub_googlenet_doc2vec", number).novel
    assert singles[0]["class_splits"] == f"split {number}: {' '.join(map(str, novel))}"
    assert rows["Proto", "mean of 4"]["0.5"] > 40
    assert "4 class splits weighed" in sheet.summary[0]
    # Who asks for other methods alone has the class splits weighed by the record.
    kept = Desk(store=desk.store, records=tmp_path)
    record("splits", replace(wish, only=("proto", "match")), kept)
    empty = Desk(store=str(tmp_path / "other.sqlite"), records=tmp_path)
    one, two = describe_plan(["splits"], wish, empty)
    assert one["cells"] == 0
    assert one["what"].endswith(", recorded")
    assert two == second | {"stored": 0, "left": second["cells"]}
    all_of_it = describe_plan(["splits"], replace(wish, only=("rfs", "proto")), empty)
    assert [row["left"] for row in all_of_it] == [4 * 12]
    # A row that was stopped earlier than the others leaves those that all of them have.
    path = tmp_path / "splits--quick.csv"
    text = path.read_text(encoding="utf-8")
    last = re.search(r" 3:[0-9.]+", text)
    assert last is not None
    path.write_text(text.replace(last[0], "", 1), encoding="utf-8")
    (item,) = recall("splits", replace(wish, only=("proto", "match")), tmp_path)
    weighed = weigh(item, paper_numbers("cub"))
    assert weighed is not None
    assert set(weighed.weights) == {0, 1, 2}
    # The tables print the same means.
    means = likely_means("cub", wish, desk)
    assert means["RFS", 0.3] == pytest.approx(rows["RFS", "likely"]["0.3"])
    assert {method for method, _ in means} == {"Proto", "Match", "RFS"}


def test_other_methods_run_on_likely_splits_only(data_dir: Path) -> None:
    ours = levels(40, 4.0, seed=6)
    found = MadeUp(np.concatenate([np.full((1, 12), 10.0), ours]))  # split 0 is impossible
    plain, trained = following_parts("splits", Wish(data_dir=str(data_dir)), [found])
    paper = weigh(found, paper_numbers("cub"))
    assert paper is not None
    assert plain.grid.splits == tuple(paper.top)
    assert trained.grid.splits == tuple(paper.top)[: len(trained.grid.splits)]
    assert 0 not in plain.grid.splits
    assert not {"Proto", "Match"} & {*plain.methods, *trained.methods}
    assert {*plain.methods, *trained.methods} == {*METHODS} - {"Proto", "Match"}
    (only,) = following_parts("splits", Wish(data_dir=str(data_dir), only=("ugda",)), [found])
    assert only.methods == {"UGDA": "ugda:rectifier=adam"}
    assert following_parts("cub", Wish(), [found]) == []
    assert numbers_of([found], "PTMAP", 0.0) == {}
