"""Verdicts by worked examples: Student's t test of three splits has p = 1 - t / sqrt(t^2 + 2)."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from reproduction.claims import (
    FAILS,
    HOLDS,
    UNDECIDED,
    UNTESTED,
    Case,
    Judgement,
    Rule,
    judge,
    load_claims,
    near,
    number,
    order,
    our_evidence,
    paper_evidence,
    verdicts,
)
from reproduction.records import read_results

CLAIMS = {claim.name: claim for claim in load_claims()}
# 4 5 6 have t = 5 sqrt(3) and p = 0.0131.
CLEAR, CONTRARY, UNSURE = (4.0, 5.0, 6.0), (-4.0, -5.0, -6.0), (1.0, 2.0, 3.0)
# Mean 20, deviation sqrt(2.5), so one split has the standard error sqrt(3); t(4) is 2.776, and
# half of the prediction interval 4.81.
FIVE = (18.0, 19.0, 20.0, 21.0, 22.0)


def judged(*cases: tuple[float, ...], rule: Rule = order, share: float = 1.0) -> Judgement:
    """Judge cases of one rule by their values per class split."""
    digits = isinstance(rule, partial) and rule.func is number
    listed = [(Case((("", f"case {k}", "0"),), rule, digits), np.array(values))
              for k, values in enumerate(cases)]  # fmt: skip
    return judge(listed, share)


def test_a_case_is_decided_by_the_paired_t_test() -> None:
    assert judged(CLEAR).verdict == HOLDS
    assert judged(CONTRARY).verdict == FAILS
    unsure = judged(UNSURE)  # t = 2 sqrt(3), and 4.30 is needed
    assert unsure.verdict == UNDECIDED
    assert unsure.p == pytest.approx(1 - 12**0.5 / 14**0.5)
    # With two splits t is 12.71 at least: 1.16 and 1 have t = 13.5, 1.2 and 1 have 11.
    assert judged((1.16, 1.0)).verdict == HOLDS
    assert judged((1.2, 1.0)).verdict == UNDECIDED
    assert judged((60.0,)).verdict == UNDECIDED, "one split is no test, whatever the difference"
    # Without variance signs alone count: 2 / 2^5 is above 0.05, 2 / 2^6 below.
    assert judged((1.0,) * 5).verdict == UNDECIDED
    assert judged((1.0,) * 6)[:2] == (HOLDS, 1 / 32)
    # No difference is none, but for rounding.
    assert judged((0.0, 0.0)).verdict == judged((0.3 - 0.1 - 0.2, 0.0)).verdict == UNDECIDED


def test_all_cases_must_hold_and_one_against_is_searched_among_all() -> None:
    assert judged(*[CLEAR] * 20).verdict == HOLDS  # no correction: all have to pass
    assert judged(*[CLEAR] * 20, UNSURE).verdict == UNDECIDED
    # 3 x 0.0131 is below 0.05, 4 x 0.0131 above.
    three = judged(CLEAR, CLEAR, CONTRARY)
    assert (three.verdict, three.against) == (FAILS, ("case 2@0",))
    assert three.p == pytest.approx(3 * (1 - 5 * 3**0.5 / 77**0.5))
    four = judged(CLEAR, CLEAR, CLEAR, CONTRARY)
    assert (four.verdict, four.against) == (UNDECIDED, ())


def test_almost_all_leaves_room_for_some() -> None:
    sure, wrong = (99.0, 100.0, 101.0), (-99.0, -100.0, -101.0)
    # Eleven of twelve are nine in ten.
    assert judged(*[sure] * 11, wrong, share=0.9).verdict == HOLDS
    assert judged(*[sure] * 10, UNSURE, wrong, share=0.9).verdict == UNDECIDED
    assert judged(*[sure] * 10, wrong, wrong, share=0.9).verdict == FAILS
    assert judged(*[sure] * 11, wrong).verdict == FAILS


def test_verdicts_by_simulation() -> None:
    # A sentence that is neither right nor wrong is called either way in five of a hundred cases,
    # and one of five such cases is called wrong no more often than that.
    rng = np.random.default_rng(0)
    one = [judged(tuple(rng.normal(size=10))).verdict for _ in range(1000)]
    five = [judged(*map(tuple, rng.normal(size=(5, 10)))).verdict for _ in range(300)]
    assert one.count(HOLDS) + one.count(FAILS) == pytest.approx(50, abs=21)  # three deviations
    assert five.count(FAILS) <= 0.025 * 300 + 3 * (0.025 * 300) ** 0.5
    assert five.count(HOLDS) == 0
    # The printed number is one more draw: it is said to be another one in five of a hundred.
    draws = rng.normal(50.0, 3.0, size=(1000, 11))
    rules = [partial(number, number=float(row[0])) for row in draws]
    found = [
        judged(tuple(row[1:]), rule=rule).verdict for row, rule in zip(draws, rules, strict=True)
    ]
    assert found.count(FAILS) == pytest.approx(50, abs=21)
    assert found.count(HOLDS) > 400


@pytest.mark.parametrize(
    ("stated", "values", "expected"),
    [
        (20.0, FIVE, HOLDS),
        (21.0, FIVE, HOLDS),  # 0.58 standard errors away, two of five reach it
        (21.7, FIVE, UNDECIDED),  # one of five reaches it
        (18.2, FIVE, UNDECIDED),  # 1.04 standard errors away
        (24.7, FIVE, UNDECIDED),
        (24.9, FIVE, FAILS),
        (15.1, FIVE, FAILS),  # far better than the paper is not its number either
        (20.0, FIVE[:4], UNDECIDED),  # too few splits to hold
        (20.0, (20.0,), UNDECIDED),
        (3.0, (1.0, 2.0, 3.0, 4.0, 5.0), UNDECIDED),  # 3 is less than 4.81
        (20.0, (20.003,) * 5, HOLDS),
        (20.0, (20.02,) * 5, FAILS),
    ],
)
def test_a_number_is_judged_as_one_more_class_split(
    stated: float, values: tuple[float, ...], expected: str
) -> None:
    assert judged(values, rule=partial(number, number=stated)).verdict == expected


def test_two_numbers_double_the_p_value() -> None:
    listed = [(Case((), partial(number, number=stated), True), np.array(FIVE))
              for stated in (24.9, 20.0)]  # fmt: skip
    assert judge(listed[:1]).verdict == FAILS
    assert judge(listed).verdict == UNDECIDED


def test_only_is_a_number_or_less() -> None:
    def verdict(stated: float, *values: float, one_split: bool = False) -> str:
        rule = partial(number, number=stated, at_most=True, one_split=one_split)
        return judged(values, rule=rule).verdict

    assert verdict(20.0, *FIVE) == HOLDS
    assert verdict(30.0, *FIVE) == HOLDS  # significantly less
    assert verdict(15.1, *FIVE) == FAILS
    assert verdict(15.1, *FIVE, one_split=True) == UNDECIDED
    assert verdict(17.0, *FIVE) == UNDECIDED
    assert verdict(21.0, *FIVE[:4]) == UNDECIDED  # 1.5 below, t = 2.3, and 3.18 is needed


def test_around_is_decided_from_the_nearer_end() -> None:
    rule = partial(near, near=50.0, within=10.0)
    assert judged((54.0, 55.0, 56.0), rule=rule).verdict == HOLDS  # 5 to the end, t = 8.66
    assert judged((44.0, 45.0, 46.0), rule=rule).verdict == HOLDS
    assert judged((57.0, 58.0, 59.0), rule=rule).verdict == UNDECIDED  # 2 to the end, t = 3.46
    assert judged((61.0, 62.0, 63.0), rule=rule).verdict == UNDECIDED
    assert judged((64.0, 65.0, 66.0), rule=rule).verdict == FAILS


def test_what_does_not_hurt_shows_no_loss_and_rules_out_one_of_a_point() -> None:
    rule = partial(order, allowed=1.0)
    assert judged((1.0, 2.0, 3.0), rule=rule).verdict == HOLDS  # above -1 by t = 5.2
    assert judged((0.0, 1.0, 2.0), rule=rule).verdict == UNDECIDED
    assert judged((-0.5, -0.51, -0.49), rule=rule).verdict == FAILS, "sure but small"


def test_every_sentence_is_there_and_none_is_testable_without_data() -> None:
    assert len(CLAIMS) == 38
    assert len(CLAIMS["complete-pml"].cases) == 24  # four methods, six sets
    assert {claim.judge({}).verdict for claim in CLAIMS.values()} == {UNTESTED}
    assert sum(claim.stands_in for claim in CLAIMS.values()) == 6


def test_splits_that_both_sides_share_are_compared() -> None:
    evidence = {
        "scene15/UGDA@0.5": {0: 60.0, 1: 61.0, 2: 62.0, 3: 0.0},
        "scene15/CPM@0.5": {2: 56.0, 1: 56.0, 0: 56.0},
    }
    found = CLAIMS["scene15-order"].judge(evidence)
    assert found.verdict == HOLDS
    assert found.p == pytest.approx(1 - 5 * 3**0.5 / 77**0.5)
    evidence["scene15/CPM@0.5"] = {0: 0.0}
    assert CLAIMS["scene15-order"].judge(evidence).verdict == UNDECIDED


def test_robustness_is_the_loss_from_the_lowest_to_the_highest_rate_of_both() -> None:
    levels = {"PTMAP": (50.0, 30.0), "UGDA": (60.0, 50.0)}  # 20 lost against 10
    evidence = {f"birds/{method}@{eta}": {k: level + 0.1 * k * (eta == "0.1") * (method == "UGDA")
                                          for k in range(3)}
                for method, pair in levels.items()
                for eta, level in zip(("0.1", "0.5"), pair, strict=True)}  # fmt: skip
    evidence["birds/UGDA@0.6"] = dict.fromkeys(range(3), 0.0)  # PT-MAP has no such rate
    assert CLAIMS["birds-robust"].judge(evidence).verdict == HOLDS
    del evidence["birds/PTMAP@0.5"]
    assert CLAIMS["birds-robust"].judge(evidence).verdict == UNTESTED


def test_the_papers_own_tables_contradict_two_of_its_sentences() -> None:
    found = {name: claim.judge(paper_evidence()) for name, claim in CLAIMS.items()}
    said = {name: judgement for name, judgement in found.items() if judgement.verdict != UNTESTED}
    assert {judgement.verdict for judgement in said.values()} == {HOLDS, FAILS}
    # PTMAP on caltech102 loses 3.00 points; and BD-CSPN is at 36.58, not around 50.
    assert {name: judgement.against for name, judgement in said.items()
            if judgement.verdict == FAILS} == {
        "combined-complete": ("caltech102/PTMAP+UGDA@0 - caltech102/PTMAP@0",),
        "fsl-around-50": ("cub/BD-CSPN@0.5",),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "cell", "value", "expected"),
    [
        ("scene15-order", "scene15/ICMSC@0.5", 63.0, FAILS),
        ("scene15-numbers", "scene15/CPM@0.5", 39.0, FAILS),
        ("ugda-cub-numbers", "cub/UGDA@0.5", 76.0, FAILS),
        ("ugda-cub-order", "cub/Proto@0.5", 80.0, FAILS),
        ("complete-pml", "orl/CPM@0", 99.0, FAILS),
        ("complete-fsl", "orl/TIM@0", 99.0, HOLDS),  # TIM is not in that sentence
        ("heavy-missing", "cub/CPM@0.5", 77.0, FAILS),
        ("combined-complete", "caltech102/PTMAP+UGDA@0", 60.0, HOLDS),
        ("fsl-around-50", "cub/BD-CSPN@0.5", 41.0, HOLDS),
        ("tiered-combined", "tieredimagenet/RFS+UGDA@0.1", 60.0, FAILS),  # a second of twelve
    ],
)
def test_one_changed_number_turns_a_claim_of_the_tables(
    name: str, cell: str, value: float, expected: str
) -> None:
    evidence = paper_evidence()
    evidence[cell] = dict.fromkeys(evidence[cell], value)
    assert CLAIMS[name].judge(evidence).verdict == expected


@pytest.mark.parametrize(
    ("levels", "expected"),
    [
        ({0: 50.0, 100: 60.0, 200: 60.5}, UNDECIDED),  # 1.5 to the end of 2 points, t = 2.6
        ({0: 50.0, 100: 60.0, 150: 0.0, 200: 60.5}, HOLDS),  # t = 13
        ({0: 56.0, 100: 60.0, 150: 0.0, 200: 60.0}, UNDECIDED),  # 4 points, t above 2 is 3.46
        ({0: 68.0, 100: 60.0, 150: 0.0, 200: 60.0}, FAILS),  # no rise: 4 x 0.0033
        ({0: 50.0, 100: 60.0, 150: 0.0, 200: 65.0}, FAILS),  # goes on rising
        ({0: 50.0, 200: 60.0}, UNTESTED),  # the paper's setting was not run
    ],
)
def test_rises_then_rests(levels: dict[int, float], expected: str) -> None:
    # Three splits: d points have t = d sqrt(3) among neighbours, 5 times that from 2nd to 4th.
    evidence = {
        f"figure7/{place}/N_F/{value}@0.3": {k: level + (k - 1) * spread for k in range(3)}
        for place in ("cub", "caltech102")
        for (value, level), spread in zip(levels.items(), (1.0, 0.0, 1.0, 0.2), strict=False)
    }
    assert CLAIMS["anchors"].judge(evidence).verdict == expected


def test_losses_fall_stably() -> None:
    steps = np.arange(1, 31)[:, None]
    tasks = np.array([[100.0, 101.0, 103.0, 99.0, 98.0, 102.0, 97.0, 104.0]])
    nothing = read_results()[:0]

    def verdict(losses: np.ndarray) -> str:
        evidence = our_evidence(nothing, {place: losses for place in ("cub", "scene15")})
        return CLAIMS["aggregator-loss"].judge(evidence).verdict

    assert verdict(tasks / steps) == HOLDS
    assert verdict(tasks / steps + 20 * (steps % 2)) == FAILS
    assert verdict(tasks / steps**2 + 0.5 * (steps % 2)) == HOLDS  # half a percent of the first
    assert verdict((tasks / steps)[:, :1]) == UNDECIDED  # one task
    assert verdict(tasks * (1 + 0.005 * steps)) == FAILS  # creeps up by less than a percent
    found = our_evidence(nothing, {"scene15": [[10.0, 10.0], [5.0, 4.0], [6.0, 1.0]]})
    assert found["figure4/scene15/loss rise@0.5"] == pytest.approx({0: 10.0, 1: 0.0})
    assert found["figure4/scene15/loss fall@0.5"] == pytest.approx({0: 40.0, 1: 90.0})


def test_numbers_on_stand_in_features_are_not_judged() -> None:
    found = verdicts(paper_evidence()).set_index("claim")
    assert found.loc["tiered-numbers", ["verdict", "features"]].tolist() == [UNTESTED, "stand-in"]
    assert found.loc["tiered-order", ["verdict", "features"]].tolist() == [HOLDS, "stand-in"]
    assert found.loc["scene15-numbers", "verdict"] == HOLDS
