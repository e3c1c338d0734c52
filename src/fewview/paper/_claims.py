"""The sentences of the paper's Section 5 that state numbers or orders, judged one by one.

A claim is a sentence, the cases that it names and the rule of each, which is written down before
any evidence is seen. Evidence is a dictionary of accuracies by what they are about, each with its
values per class split. Why the rules are as they are is in docs/reproduction.md, "How claims are
judged".
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fewview._version import __version__
from fewview.datasets._catalogue import get_spec
from fewview.ground._rows import Row
from fewview.paper._compute import Desk, Gathered, gather_all, protocol_line, versions_line
from fewview.paper._printed import ABLATION, FEW_SHOT, RATES, SIX, TRAINED, printed
from fewview.paper._sheets import Sheet
from fewview.paper._studies import BASE_SIZES, NEIGHBOURS, Wish, data_of, hyper_methods
from fewview.paper._task_figures import AGGREGATED, loss_paths
from fewview.results._intervals import at_least, holm, paired_t, predict_one

Key = tuple[Hashable, ...]
Values = Mapping[int, float]
Evidence = Mapping[Key, Values]
Floats = NDArray[np.float64]
Pairs = Sequence[tuple[str, str]]  # of methods, the first of which should be the better one
Stated = Mapping[tuple[str, str], float]  # how much more accurate one method is than another

HOLDS, FAILS, OPEN, UNTESTED = "holds", "does not hold", "undecided", "not testable"
VERDICTS = (HOLDS, FAILS, OPEN, UNTESTED)
STAND_IN = "stand-in"

LEVEL = 0.05
# A number is ours when it is this near (in standard errors of one split) and this share of at
# least so many class splits reaches it.
TYPICAL, REACHED, ENOUGH = 1.0, 0.25, 5
AROUND = 10.0  # points
LARGE = 2.0  # points that accuracy rises "largely"; less is "stable"
SLIGHT = 1.0  # points that may be lost by what "does not hurt"
RIPPLE = 1.0  # percent of the first loss
ALMOST_ALL = 0.9
LAST_DIGIT = 0.006
COLUMNS = (
    "claim", "section", "ours", "data", "in_the_papers_tables", "p", "says", "numbers", "failing",
    "rule",
)  # fmt: skip
NOT_COMPUTED = (
    "only stored results were looked at, so here 'not testable' and 'no data' also mean: not "
    "computed yet"
)
BOTH = (("PTMAP+UGDA", "PTMAP"), ("RFS+UGDA", "RFS"))


# ---------------------------------------------------------------------- rules


class Weight(NamedTuple):
    """What a rule makes of a case: p-values of what it states and of the contrary, in words.

    `printed` is the bare arithmetic, for numbers that are printed without class splits.
    """

    stated: float
    contrary: float
    words: str
    printed: bool


@dataclass(frozen=True)
class Rule:
    """When a case is as stated and when it is not, in words and as a function of split values."""

    met: str
    broken: str
    weigh: Callable[[Floats], Weight] = field(compare=False)
    digits: bool = False  # about digits, which other features than the paper's cannot have


def _margins_tested(margins: Floats) -> Weight:
    """Student's t test of margins that are positive where a sentence is right."""
    margins = margins.round(9)  # differences of differences leave rounding errors
    mean = float(margins.mean())
    if len(margins) < 2:
        return Weight(1.0, 1.0, "no test", mean > 0)
    test = paired_t(margins[None])
    t, p = float(test.t[0]), float(test.p[0])
    words = f"t {t:.2f}, p {_p_text(p)}"
    return Weight(p if mean > 0 else 1.0, p if mean < 0 else 1.0, words, mean > 0)


def _p_text(p: float) -> str:
    return f"{p:.2g}" if p >= 0.001 else "<0.001"


ABOVE = Rule("is significantly above 0", "is significantly below 0", _margins_tested)


def near(stated: float, within: float = AROUND) -> Rule:
    """Around a number: the margin is what is left to the nearer end of the range allowed."""

    def weigh(values: Floats) -> Weight:
        side = 1.0 if values.mean() > stated else -1.0
        return _margins_tested(within - side * (values - stated))

    where = f"within {within:g} points of {stated:g}"
    return Rule(f"is significantly {where}", f"is significantly not {where}", weigh)


def beyond(bound: float, what: str, upwards: bool = True) -> Rule:
    """Above a bound, or below it."""
    words = ("above", "below") if upwards else ("below", "above")
    sign = 1.0 if upwards else -1.0
    met, broken = (f"is significantly {word} {what}" for word in words)
    return Rule(met, broken, lambda values: _margins_tested(sign * (values - bound)))


def _harmless(values: Floats) -> Weight:
    """Not worse: a loss that matters can be ruled out, and none is seen."""
    allowed, none = _margins_tested(values + SLIGHT), _margins_tested(values)
    words = f"above -{SLIGHT:g}: {allowed.words}; above 0: {none.words}"
    return Weight(allowed.stated, none.contrary, words, none.printed)


HARMLESS = Rule(
    f"is significantly above -{SLIGHT:g} point and not significantly below 0",
    "is significantly below 0",
    _harmless,
)


def number(stated: float, at_most: bool = False, one_split: bool = False) -> Rule:
    """A number of one class split, judged as one more draw from ours; or no more than it.

    Where ours are all of `one_split` too, they do not tell how far another one may be.
    """

    def weigh(values: Floats) -> Weight:
        mean, n = float(values.mean()), len(values)
        over = mean - stated
        same = over <= LAST_DIGIT if at_most else abs(over) <= LAST_DIGIT
        reached = values <= stated + LAST_DIGIT if at_most else values >= stated - LAST_DIGIT
        if n < 2:
            return Weight(1.0, 1.0, "no test", same)
        found = predict_one(values, stated, LAST_DIGIT)
        usual = (
            n >= ENOUGH
            and abs(found.distance) <= TYPICAL
            and float(reached.mean()) >= REACHED
            and found.half_width < abs(stated)
        )
        words = (
            f"{stated:g} is {found.distance:+.2f} standard errors of one split away, p "
            f"{_p_text(found.p)}, reached by {int(reached.sum())} of {n}"
        )
        yes, no = (0.0 if usual else 1.0), found.p
        if at_most:
            below = _margins_tested(stated - values)
            yes, no = min(yes, below.stated), (found.p if over > 0 else 1.0)
            words += f"; below it: {below.words}"
        return Weight(yes, 1.0 if one_split else no, words, same)

    typical = (
        f"the paper's number is at most {TYPICAL:g} standard error of one split away, at least "
        f"{REACHED:.0%} of at least {ENOUGH} splits reach it, and half the prediction interval is "
        "smaller than it"
    )
    if at_most:
        met, broken = f"is significantly below the paper's number, or {typical}", "above it"
    else:
        met, broken = f"is such that {typical}", "away from it"
    away = f"is significantly {broken} as one split goes"
    return Rule(met, "" if one_split else away, weigh, digits=True)


# ---------------------------------------------------------------------- weighing


@dataclass(frozen=True)
class Line:
    """A comparison to make: one cell, the difference of two, or the first two less the others."""

    label: str
    keys: Sequence[Key]
    rule: Rule = ABOVE
    signed: bool = True  # a difference, written with its sign

    @property
    def unit(self) -> str:
        """What its values are of; one fixed class split has repetitions in place of splits."""
        key = self.keys[0]
        if key[0] == "base classes" or key[:2] == ("table", "tieredimagenet"):
            return "repetitions"
        return "tasks" if str(key[0]).startswith("loss") else "splits"

    def dataset(self, wish: Wish) -> str:
        """The data set that it is about."""
        role, about, *_ = self.keys[0]
        if role == "base classes":
            return "caltech102"
        return data_of(str(about), wish) if role == "table" else str(about)


# A text is a remark for the reader.
Cases = Sequence[Line | str]


@dataclass(frozen=True)
class Case:
    """A line with its values, one per class split, repetition or task."""

    line: Line
    values: Floats

    @cached_property
    def weight(self) -> Weight:
        """What its rule makes of it."""
        return self.line.rule.weigh(self.values)

    @property
    def error(self) -> float | None:
        """Standard error of the mean; None of a single value."""
        n = len(self.values)
        return float(self.values.std(ddof=1) / np.sqrt(n)) if n > 1 else None

    def text(self) -> str:
        """The case in few words: mean, standard error, test, how many splits."""
        mean = self.values.mean()
        value = (
            f"{self.line.label} {mean:+.2f}"
            if self.line.signed
            else f"{self.line.label} {mean:.2f}"
        )
        if self.error is None:
            return f"{value} (one of the {self.line.unit}: no test)"
        how_many = f"{len(self.values)} {self.line.unit}"
        return f"{value} (se {self.error:.2f}, {self.weight.words}, {how_many})"

    def row(self, claim: str) -> Row:
        """The case as a row of numbers."""
        return {
            "claim": claim, "case": self.line.label, "mean": float(self.values.mean()),
            "se": self.error, "n": len(self.values), "unit": self.line.unit,
            "p_as_stated": self.weight.stated, "p_against": self.weight.contrary,
            "test": self.weight.words,
        }  # fmt: skip

    def plainly(self) -> str:
        """The number alone."""
        return f"{self.line.label} {self.values.mean():+.2f}"


class Judgement(NamedTuple):
    """What a claim comes to: verdict, p-value of it, the numbers, and cases not as stated."""

    verdict: str
    p: float | None
    numbers: str
    failing: str


@dataclass(frozen=True)
class Claim:
    """One sentence of the paper and the comparisons that it makes, or `cases(evidence, *about)`."""

    name: str
    section: str
    says: str
    cases: Cases | Callable[..., Cases]
    about: Sequence[Any] = ()
    share: float = 1.0  # of the cases that must hold

    @property
    def in_tables(self) -> bool:
        """Whether the paper's own tables can be asked; these sections are about figures."""
        return self.section not in ("5.4.1a", "5.4.1b", "5.4.3")

    def _listed(self, evidence: Evidence) -> Cases:
        return self.cases(evidence, *self.about) if callable(self.cases) else self.cases

    def lines(self, evidence: Evidence) -> list[Line]:
        """The comparisons that it makes, whether evidence has them or not."""
        return [line for line in self._listed(evidence) if isinstance(line, Line)]

    @cached_property
    def rule(self) -> str:
        """How it is judged, said without any evidence of ours."""
        groups: dict[Rule, list[str]] = {}
        lines = self.lines(paper_evidence())
        for line in lines:
            groups.setdefault(line.rule, []).append(line.label)
        met = [f"{_some(labels)} {rule.met}" for rule, labels in groups.items()]
        broken = " or ".join(dict.fromkeys(rule.broken for rule in groups if rule.broken))
        wanted = against = ""
        if self.share < 1:
            wanted = f"{self.share:.0%} of the cases are as stated: "
            against = f"more than {1 - self.share:.0%} of the cases: one "
        elif len(lines) > 1:
            wanted, against = "every case is as stated: ", "any case "
        fails = f"does not hold when {against or 'it '}{broken}"
        if not broken:
            fails = (
                "never 'does not hold', as ours are of one class split and the paper's of another"
            )
        return (
            f"{len(lines)} {'cases' if len(lines) > 1 else 'case'} over {lines[0].unit}; holds "
            f"when {wanted}{', and '.join(met)}; {fails}; else undecided"
        )

    def judge(self, evidence: Evidence) -> Judgement:
        """Weigh our evidence by the rule."""
        remarks = [remark for remark in self._listed(evidence) if isinstance(remark, str)]
        return conclude(self.found(evidence), self.share, remarks)

    def found(self, evidence: Evidence) -> list[Case | str]:
        """Its cases; of those without data, what they are called."""
        return [weigh(evidence, line) or line.label for line in self.lines(evidence)]

    def as_printed(self, evidence: Evidence) -> Judgement:
        """Ask numbers without class splits, such as the paper's tables: arithmetic, no test."""
        found = [case for case in self.found(evidence) if isinstance(case, Case)]
        if not found:
            return Judgement(UNTESTED, None, "no data", "")
        failed = [case.plainly() for case in found if not case.weight.printed]
        enough = len(found) - len(failed) >= self.share * len(found) - 1e-9
        return Judgement(HOLDS if enough else FAILS, None, "", ", ".join(failed))


def _some(labels: Sequence[str]) -> str:
    """Labels in brackets, those in between left out where there are many."""
    return f"[{', '.join(labels if len(labels) <= 4 else [labels[0], '...', labels[-1]])}]"


def compared(evidence: Evidence, keys: Sequence[Key]) -> Values:
    """Values of one cell, of the difference of two, or of the first two less that of the others.

    Only class splits that all of them have count.
    """
    if len(keys) == 1:
        return evidence.get(keys[0], {})
    half = len(keys) // 2
    left, right = compared(evidence, keys[:half]), compared(evidence, keys[half:])
    return {split: left[split] - right[split] for split in left if split in right}


def weigh(evidence: Evidence, line: Line) -> Case | None:
    """Make a case of a line, None where its cells share no class split."""
    values = list(compared(evidence, line.keys).values())
    return Case(line, np.array(values)) if values else None


def conclude(
    cases: Sequence[Case | str], share: float = 1.0, remarks: Sequence[str] = ()
) -> Judgement:
    """Judge the cases that have data, together.

    That enough of them are as stated is one hypothesis (`at_least`); that too many are not is
    another, which is searched for among all of them, so its p-value grows with their number.
    """
    there = [case for case in cases if isinstance(case, Case)]
    absent = [case.partition(":")[0] for case in cases if isinstance(case, str)]
    missing = []
    if absent:
        names = ", ".join(dict.fromkeys(absent))
        missing = [f"{len(absent)} of {len(cases)} cases have no data ({names})"]
    if not there:
        return Judgement(UNTESTED, None, "; ".join(["no data", *remarks]), "")
    needed = int(np.ceil(share * len(there) - 1e-9))
    stated = [case.weight.stated for case in there]
    contrary = [case.weight.contrary for case in there]
    p_yes, p_no = at_least(stated, needed), at_least(contrary, len(there) - needed + 1)
    verdict = FAILS if p_no <= LEVEL else HOLDS if p_yes <= LEVEL else OPEN
    against = [p <= LEVEL for p in holm(contrary)]
    unsure = [not no and p > LEVEL for no, p in zip(against, stated, strict=True)]
    few = len(there) <= 6  # all numbers are shown, so names are enough
    named = []
    for word, chosen in (("against", against), (OPEN, unsure)):
        failing = [case for case, here in zip(there, chosen, strict=True) if here]
        texts = [case.line.label if few else case.text() for case in failing]
        named += [f"{word}: {', '.join(texts)}"] if texts else []
    if few:
        words = [case.text() for case in there]
    else:
        good = len(there) - sum(against) - sum(unsure)
        low, high = (choose(there, key=lambda c: c.values.mean()) for choose in (min, max))
        words = [
            f"{good} of {len(there)} cases as stated, {sum(against)} against, {sum(unsure)} "
            "undecided",
            f"from {low.text()} to {high.text()}",
        ]
    digits = any(case.line.rule.digits for case in there)
    # That a number is typical is no test.
    p = p_no if verdict == FAILS or (digits and not p_yes) else min(p_yes, p_no)
    return Judgement(verdict, p, "; ".join([*words, *missing, *remarks]), "; ".join(named))


# ---------------------------------------------------------------------- cells that speak


def table(name: str, method: str, eta: float) -> Key:
    """Key of a cell of one of the eight tables of accuracies."""
    return ("table", name, method, eta)


def _rates(evidence: Evidence, name: str, *methods: str) -> list[Any]:
    """Missing rates of a table that all the methods have."""
    found = [{key[3] for key in evidence if key[:3] == ("table", name, m)} for m in methods]
    return sorted(set.intersection(*found))


def _against(*others: str) -> Pairs:
    return [("UGDA", other) for other in others]


def _line(label: str, place: Key, one: Hashable, two: Hashable, rule: Rule = ABOVE) -> Line:
    """A difference of two cells that stand at the same place otherwise."""
    return Line(label, ((*place, one), (*place, two)), rule)


def _pair(name: str, eta: float, pair: tuple[str, str], label: str, rule: Rule = ABOVE) -> Line:
    """The difference of two methods in a cell of a table."""
    return Line(label, [table(name, method, eta) for method in pair], rule)


def _higher(eta: float, pairs: Pairs) -> Cases:
    """The first of each pair is more accurate, on all six sets."""
    return [_pair(name, eta, p, f"{name}: {p[0]} - {p[1]}") for name in SIX for p in pairs]


def _robust(evidence: Evidence, sets: Sequence[str], pairs: Pairs) -> Cases:
    """The first of each pair loses less from the lowest to the highest rate of both."""
    out: list[Line] = []
    for name in sets:
        for one, two in pairs:
            rates = _rates(evidence, name, one, two)
            ends = (rates[0], rates[-1]) if len(rates) > 1 else (np.nan, np.nan)  # in no evidence
            keys = [table(name, method, eta) for method in (two, one) for eta in ends]
            out.append(Line(f"{name}: {two} loses more than {one} by", keys))
    return out


def _margins(
    evidence: Evidence, name: str, eta: float, stated: Stated, digits: bool = False
) -> Cases:
    """Differences of pairs of methods, as an order or as the numbers stated."""
    lines = [
        _pair(name, eta, (one, two), f"{one} - {two} (paper {amount:+.2f})", number(amount))
        if digits
        else _pair(name, eta, (one, two), f"{one} - {two}")
        for (one, two), amount in stated.items()
    ]
    rates = _rates(evidence, name, "UGDA")
    if eta <= 0.5 or not rates or any(weigh(evidence, line) for line in lines):
        return lines
    shown = [_pair(name, rates[-1], pair, " - ".join(pair)) for pair in stated]
    words = ", ".join(case.text() for line in shown if (case := weigh(evidence, line)))
    return [
        *lines,
        f"{name} at eta {eta:g} needs the three original views, the stand-in has two; at "
        f"{rates[-1]:g} on the stand-in: {words or 'nothing'}",
    ]


def _on_cub(label: str, method: str, rates: Sequence[float], rule: Rule) -> Line:
    """The accuracy of a method on cub at a rate, or what it loses between two rates."""
    return Line(label, [table("cub", method, eta) for eta in rates], rule, signed=False)


def _improved(evidence: Evidence, name: str) -> Cases:
    """UGDA improves PTMAP and RFS, rate by rate."""
    rates = _rates(evidence, name, "PTMAP") or RATES[1:]
    return [
        _pair(name, eta, pair, f"{' - '.join(pair)} at {eta:g}") for pair in BOTH for eta in rates
    ]


def _ablation(evidence: Evidence, *rows: str) -> Cases:
    """The full ADSR is more accurate than some rows of the ablation, rate by rate."""
    sets = ("caltech102", "scene15")
    there = [
        key for key in product(sets, RATES) if ("ablation", key[0], "Full ADSR", key[1]) in evidence
    ]
    return [
        Line(f"{dataset} {eta:g}: full - {row}",
             [("ablation", dataset, which, eta) for which in ("Full ADSR", row)])
        for dataset, eta in there or product(sets, RATES)
        for row in rows
    ]  # fmt: skip


def _rises_then_rests(panel: str, usual: int) -> Cases:
    """A hyper-parameter helps up to the paper's setting, and beyond it changes little."""
    out: list[Line] = []
    for dataset in NEIGHBOURS:
        place = ("hyper", dataset, panel)
        first, *_, last = hyper_methods(dataset, False)[panel]
        out += [
            _line(f"{dataset}: {panel} {first} to {usual}", place, usual, first,
                  beyond(LARGE, f"{LARGE:g} points")),
            _line(f"{dataset}: {panel} {usual} to {last}", place, last, usual, near(0.0, LARGE)),
        ]  # fmt: skip
    return out


# ---------------------------------------------------------------------- the sentences


_SCENE = dict(zip(_against(*TRAINED), (22.51, 22.33, 20.03, 18.97), strict=True))
_OTHERS = ("PTMAP", "RFS", "ICMSC", "COMPLETER")
_TIERED = dict(zip(_against(*_OTHERS), (17.67, 26.98, 38.50, 21.66), strict=True))
_CUB_3 = dict(zip(BOTH, (6.32, 25.56), strict=True))
_CUB_5 = dict(zip(BOTH, (20.65, 29.61), strict=True))
_TWO = (("base classes", 0.3, "UGDA", 2), ("base classes", 0.3, "w/o UGDA (Proto)", 2))

CLAIMS: tuple[Claim, ...] = (
    Claim("fsl-around-50", "5.3", "cub, eta 0.5: the accuracy of all compared FSL methods is "
          "around 50 %", [_on_cub(m, m, (0.5,), near(50.0)) for m in FEW_SHOT]),
    Claim("fsl-drop-40", "5.3", "cub: from eta 0 to 0.5 they all lose around 40 %",
          [_on_cub(m, m, (0.0, 0.5), near(40.0)) for m in FEW_SHOT]),
    Claim("ugda-cub-order", "5.3", "cub: UGDA loses less than every FSL method",
          _robust, (("cub",), _against(*FEW_SHOT))),
    Claim("ugda-cub-numbers", "5.3", "cub: UGDA keeps 76.69 % at eta 0.5 and loses only 18.90 %",
          [_on_cub("accuracy (paper 76.69)", "UGDA", (0.5,), number(76.69)),
           _on_cub("drop (paper 18.90)", "UGDA", (0.0, 0.5), number(18.90, at_most=True))]),
    Claim("robustness", "5.3", "UGDA is more robust to missing views than the FSL methods (it "
          "loses less from the lowest to the highest rate), on all six sets",
          _robust, (SIX, _against(*FEW_SHOT))),
    Claim("complete-fsl", "5.3", "eta 0: UGDA is more accurate than Proto, Match, RFS and BD-CSPN, "
          "on all six sets", _higher(0.0, _against("Proto", "Match", "RFS", "BD-CSPN"))),
    Claim("complete-pml", "5.3", "eta 0: UGDA is more accurate than CPM, CPM-GAN, ICMSC and "
          "COMPLETER, on all six sets", _higher(0.0, _against(*TRAINED))),
    Claim("heavy-missing", "5.3", "views heavily missing (eta 0.5): UGDA is more accurate than the "
          "PML methods, on all six sets", _higher(0.5, _against(*TRAINED))),
    Claim("scene15-order", "5.3", "scene15, eta 0.5: UGDA is more accurate than the four PML "
          "methods", _margins, ("scene15", 0.5, _SCENE)),
    Claim("scene15-numbers", "5.3", "... by 22.51, 22.33, 20.03 and 18.97 %",
          _margins, ("scene15", 0.5, _SCENE, True)),
    Claim("combined-cub-order", "5.3", "cub, eta 0.3: UGDA improves PTMAP and RFS",
          _margins, ("cub", 0.3, _CUB_3)),
    Claim("combined-cub-numbers", "5.3", "... from 76.96 to 83.28 % and from 57.03 to 82.59 %",
          _margins, ("cub", 0.3, _CUB_3, True)),
    Claim("combined-cub-heavy", "5.3", "cub, eta 0.5: UGDA improves PTMAP and RFS",
          _margins, ("cub", 0.5, _CUB_5)),
    Claim("combined-cub-heavy-numbers", "5.3", "... by 20.65 and 29.61 %",
          _margins, ("cub", 0.5, _CUB_5, True)),
    Claim("combined-robust", "5.3", "UGDA makes PTMAP and RFS more robust (they lose less), on all "
          "six sets", _robust, (SIX, BOTH)),
    Claim("combined-complete", "5.3", "even at eta 0 UGDA makes PTMAP and RFS more accurate, on "
          "all six sets", _higher(0.0, BOTH)),
    Claim("tiered-order", "5.4.1c", "tieredImagenet, eta 0.6: UGDA is more accurate than PTMAP, "
          "RFS, ICMSC and COMPLETER", _margins, ("tieredimagenet", 0.6, _TIERED)),
    Claim("tiered-numbers", "5.4.1c", "... by 17.67, 26.98, 38.50 and 21.66 %",
          _margins, ("tieredimagenet", 0.6, _TIERED, True)),
    Claim("tiered-robust", "5.4.1c", "tieredImagenet: UGDA is more robust than the others",
          _robust, (("tieredimagenet",), _against(*_OTHERS))),
    Claim("tiered-combined", "5.4.1c", "tieredImagenet: UGDA improves PTMAP and RFS at almost all "
          "rates", _improved, ("tieredimagenet",), ALMOST_ALL),
    Claim("birds-robust", "5.4.1c", "domain shift: UGDA is more robust than the compared methods",
          _robust, (("birds",), _against(*_OTHERS))),
    Claim("birds-combined", "5.4.1c", "domain shift: UGDA makes PTMAP and RFS more robust",
          _robust, (("birds",), BOTH)),
    *(Claim(f"aggregator-{short.lower()}", "5.4.1a",
            f"Fig. 4a: without the {update} update ({short}) accuracy drops",
            [_line(f"{dataset}: full - w/o {short}", ("aggregator", dataset), "full IAA",
                   f"w/o {short}") for dataset in AGGREGATED])
      for short, update in (("AEU", "evaluator"), ("LAU", "anchor"))),
    Claim("aggregator-loss", "5.4.1a", "Fig. 4b: the aggregation loss falls stably with the "
          "iterations",
          [line for d in AGGREGATED for line in (
              Line(f"{d}: largest rise of one iteration, % of the first loss", [("loss rise", d)],
                   beyond(RIPPLE, f"{RIPPLE:g} %", upwards=False), signed=False),
              Line(f"{d}: fall from first to last, % of the first", [("loss fall", d)]))]),
    Claim("base-more", "5.4.1b", "Fig. 5: more base classes give higher accuracy",
          [_line(f"eta {eta:g}: 80 - {size} classes", ("base classes", eta, "UGDA"), 80, size)
           for eta in (0.1, 0.3) for size in BASE_SIZES[:-1]]),
    Claim("base-five", "5.4.1b", "Fig. 5: from 80 to 5 base classes UGDA loses only 2.10 % at eta "
          "0.1 and 4.71 % at 0.3",
          [_line(f"eta {eta:g}: 80 - 5 classes (paper {stated:.2f})",
                 ("base classes", eta, "UGDA"), 80, 5,
                 number(stated, at_most=True, one_split=True))
           for eta, stated in ((0.1, 2.10), (0.3, 4.71))]),
    Claim("base-two-order", "5.4.1b", "Fig. 5: even with 2 base classes UGDA improves on the "
          "concatenation at eta 0.3", [Line("UGDA - concatenation", _TWO)]),
    Claim("base-two-number", "5.4.1b", "... by 15.92 %",
          [Line("UGDA - concatenation (paper +15.92)", _TWO, number(15.92, one_split=True))]),
    Claim("adsr-best", "5.4.2", "the full ADSR is best at every rate on both sets",
          _ablation, tuple(ABLATION)[1:]),
    Claim("adsr-ce", "5.4.2", "removing L_ce costs accuracy", _ablation, ("w/o L_ce",)),
    Claim("adsr-se", "5.4.2", "removing L_se costs accuracy", _ablation, ("w/o L_se",)),
    *(Claim(name, "5.4.3", f"Fig. 7: accuracy rises largely with {panel} at first, then stays",
            _rises_then_rests(panel, usual))
      for name, panel, usual in (("iter", "iter", 30), ("steps", "N", 10),
                                 ("anchors", "N_F", 100))),
    Claim("k-small-base", "5.4.3", "Fig. 7: a large k (6) hurts on cub, which has 6 base classes",
          [_line("cub_googlenet_doc2vec: k=1 - k=6", ("hyper", "cub_googlenet_doc2vec", "k"), 1,
                 6)]),
    Claim("k-large-base", "5.4.3", "Fig. 7: a larger k does not hurt on caltech102 (k=4 against 1)",
          [_line("caltech102: k=4 - k=1", ("hyper", "caltech102", "k"), 4, 1,
                 HARMLESS)]),
    Claim("k-number", "5.4.3", "... k=4 is only 0.7 % better than k=1",
          [_line("caltech102: k=4 - k=1 (paper +0.7)", ("hyper", "caltech102", "k"), 4, 1,
                 number(0.7, at_most=True))]),
)  # fmt: skip


# ---------------------------------------------------------------------- evidence


def paper_evidence() -> dict[Key, Values]:
    """The paper's own tables as evidence, one value each."""
    return {
        ("ablation", dataset, method, eta) if name == "ablation" else table(name, method, eta): {
            0: number.accuracy
        }
        for (name, dataset, method, eta), number in printed().items()
    }


def our_evidence(gathered: Sequence[Gathered]) -> dict[Key, Values]:
    """Results as evidence."""
    out: dict[Key, Values] = {}
    for item in gathered:
        role, tag = item.part.role, item.part.tag
        for (label, text), eta in product(item.part.methods.items(), item.part.grid.etas):
            values = item.per_split(text, eta)
            key: Key = (role, *tag, label, eta)
            if role == "aggregator":
                key = (role, *tag, label)
            elif role == "hyper-parameters":
                key = ("hyper", *tag, label)
            elif role == "base classes":  # of one class split
                size, repetition = tag
                key = (role, eta, label, size)
                values = {repetition: values[0]} if values else {}
            if values:
                out[key] = {**out.get(key, {}), **values}
    return out


def _losses(wish: Wish, desk: Desk) -> dict[Key, Values]:
    """Of every task, the largest rise of its loss and how far it fell, in percent of the first."""
    out: dict[Key, Values] = {}
    for dataset, losses in loss_paths(wish, desk, 1 if wish.quick else 8).items():
        out |= loss_evidence(dataset, losses)
    return out


def loss_evidence(dataset: str, losses: Floats) -> dict[Key, Values]:
    """Losses [iterations, tasks] as evidence."""
    rises = 100 * np.diff(losses, axis=0).max(0).clip(0) / losses[0]
    falls = 100 * (losses[0] - losses[-1]) / losses[0]
    named = (("loss rise", rises), ("loss fall", falls))
    return {(name, dataset): dict(enumerate(map(float, values))) for name, values in named}


def make_claims(wish: Wish, desk: Desk, command: str) -> Sheet:
    """Compute (or look up) what the claims are about, and judge them."""
    gathered = gather_all("claims", wish, desk)
    evidence = our_evidence(gathered)
    if not wish.only:
        evidence |= _losses(wish, desk)
    return judge_all(evidence, gathered, wish, command, () if desk.compute else (NOT_COMPUTED,))


def list_rules(command: str) -> Sheet:
    """List how every claim is judged; nothing is looked up or computed."""
    rows = [
        {"claim": claim.name, "section": claim.section, "says": claim.says, "rule": claim.rule}
        for claim in CLAIMS
    ]
    return Sheet(
        name="rules",
        title="How each claim of the paper's Section 5 is judged",
        columns=("claim", "section", "says", "rule"),
        rows=rows,
        protocol="nothing is computed: the rules are part of the program",
        versions=f"fewview {__version__}",
        command=command,
        notes=NOTES,
    )


NOTES = (
    f"significantly: Student's t test over class splits that both sides share, two-sided p at most "
    f"{LEVEL:g}; 'does not hold' is corrected for the number of cases (Holm), 'holds' needs no "
    "correction because all cases have to pass; one value alone is never tested",
    "one split away: distance to our mean over our deviation between class splits times "
    "sqrt(1 + 1/n), because the paper's number is of one class split",
    "tieredimagenet and figure 5 have one class split: their units are repetitions, and the "
    "verdict speaks of its classes alone; the loss is followed on tasks of one class split",
    "the paper's tables are asked by arithmetic alone, since they have one value per cell",
    "on stand-in features an order is judged and counted apart, digits are not testable",
)


def data_kind(claim: Claim, evidence: Evidence, wish: Wish) -> str:
    """Whose features a claim was judged on: the paper's, recomputed ones, or a stand-in's."""
    lines = claim.lines(evidence)
    used = [line for line in lines if weigh(evidence, line)] or lines
    found = {get_spec(line.dataset(wish)).same_as_paper for line in used}
    if STAND_IN in found:
        return STAND_IN
    words = {"yes": "paper's", "recomputed": "recomputed"}
    return " and ".join(word for kind, word in words.items() if kind in found)


def judge_all(
    evidence: Evidence,
    gathered: Sequence[Gathered],
    wish: Wish,
    command: str,
    notes: Sequence[str] = (),
) -> Sheet:
    """Judge every claim by our evidence and, where they can be asked, by the paper's tables."""
    theirs = paper_evidence()
    rows: list[Row] = []
    details: list[Row] = []
    counts = {
        where: dict.fromkeys(VERDICTS, 0) for where in ("the paper's or recomputed", STAND_IN)
    }
    for claim in CLAIMS:
        ours, data = claim.judge(evidence), data_kind(claim, evidence, wish)
        details += [
            case.row(claim.name) for case in claim.found(evidence) if isinstance(case, Case)
        ]
        stands_in = data == STAND_IN
        if stands_in and any(line.rule.digits for line in claim.lines(evidence)):
            ours = ours._replace(verdict=UNTESTED, failing="")
        counts[STAND_IN if stands_in else "the paper's or recomputed"][ours.verdict] += 1
        asked, failing = "-", ours.failing
        if claim.in_tables:
            paper = claim.as_printed(theirs)
            asked = paper.verdict
            if paper.verdict == FAILS:
                failing = "; ".join(filter(None, [failing, f"paper's tables: {paper.failing}"]))
        verdict = f"{STAND_IN}: {ours.verdict}" if stands_in else ours.verdict
        p = None if ours.p is None else _p_text(ours.p)
        entries = (claim.name, claim.section, verdict, data, asked, p, claim.says, ours.numbers,
                   failing or None, claim.rule)  # fmt: skip
        rows.append(dict(zip(COLUMNS, entries, strict=True)))
    used = [item for item in gathered if item.rows]
    shapes = sorted({(item.part.n_splits, item.part.grid.episodes) for item in used})
    text = ", ".join(f"{splits} x {episodes}" for splits, episodes in shapes) or "none"
    return Sheet(
        name="claims",
        title="Claims of the paper's Section 5 that state numbers or orders",
        columns=COLUMNS,
        rows=rows,
        protocol=protocol_line(used, wish, f"class splits x episodes {text}"),
        versions=versions_line(gathered),
        command=command,
        notes=(*NOTES, *notes),
        details=details,
        summary=tuple(
            f"{sum(words.values())} claims on {where} data: "
            + ", ".join(f"{word} {count}" for word, count in words.items())
            for where, words in counts.items()
        ),
    )
