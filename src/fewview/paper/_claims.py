"""The sentences of the paper's Section 5 that state numbers or orders, checked one by one.

A claim is a sentence, the cells that speak for it and a rule. Cells are looked up in evidence: a
dictionary of accuracies by what they are about, each with its values per class split (or
repetition). The same claim weighs our results and the paper's own tables; the rules and what
"around", "almost all" and the like mean are in docs/reproduction.md, "How claims are judged".
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from fewview.ground._rows import Row
from fewview.paper._compute import Desk, Gathered, gather_all, protocol_line, versions_line
from fewview.paper._printed import ABLATION, FEW_SHOT, RATES, SHORT, SIX, TRAINED, printed
from fewview.paper._sheets import Sheet
from fewview.paper._studies import BASE_SIZES, NEIGHBOURS, Wish, has_data
from fewview.paper._task_figures import AGGREGATED, follow

Key = tuple[Hashable, ...]
Values = Mapping[int, float]
Evidence = Mapping[Key, Values]
Rule = Callable[[float, float, float], bool]  # of mean, lowest and highest class split
Pairs = Sequence[tuple[str, str]]  # of methods, the first of which should be the better one
Stated = Mapping[tuple[str, str], float]  # how much more accurate one method is than another

AROUND = 10.0
ALMOST_ALL = 0.9
GAIN = 2.0
RIPPLE = 1.0  # percent of the first loss
LAST_DIGIT = 0.006
COLUMNS = ("claim", "section", "says", "ours", "in_the_papers_tables", "numbers")
NOT_COMPUTED = (
    "only stored results were looked at, so here 'not testable' and 'no data' also mean: not "
    "computed yet"
)
WORDS = {True: "held", False: "not held", None: "not testable"}
BOTH = (("PTMAP+UGDA", "PTMAP"), ("RFS+UGDA", "RFS"))


class Case(NamedTuple):
    """One comparison within a claim: the mean and range over class splits, and whether it holds."""

    label: str
    value: float
    holds: bool
    low: float
    high: float
    signed: bool = True  # a difference, written with its sign

    def text(self) -> str:
        """The case in few words, with its range where there are several splits."""
        spread = f" ({self.low:.2f} to {self.high:.2f})" if self.high > self.low else ""
        number = f"{self.value:+.2f}" if self.signed else f"{self.value:.2f}"
        return f"{self.label} {number}{spread}"


@dataclass(frozen=True)
class Line:
    """A comparison to make: one cell, the difference of two, or the first two less the others."""

    label: str
    keys: Sequence[Key]
    rule: Rule
    signed: bool = True


# Where there are no data a case is None, or says so itself.
Cases = Sequence[Line | Case | str | None]


class Judgement(NamedTuple):
    """What a claim comes to: True, False, or None where nothing can be tested; and the numbers."""

    verdict: bool | None
    numbers: str


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

    def judge(self, evidence: Evidence) -> Judgement:
        """Weigh evidence: ours or the paper's own."""
        cases = self.cases(evidence, *self.about) if callable(self.cases) else self.cases
        return conclude([weigh(evidence, case) for case in cases], self.share)


# ---------------------------------------------------------------------- weighing


def above(mean: float, low: float, high: float) -> bool:
    """The order holds: the mean difference is positive."""
    return mean > 0


def amounts_to(stated: float) -> Rule:
    """The stated number lies inside the range over class splits, to the last digit printed."""
    return lambda mean, low, high: low - LAST_DIGIT <= stated <= high + LAST_DIGIT


def near(stated: float) -> Rule:
    """The mean is around a stated number."""
    return lambda mean, low, high: abs(mean - stated) <= AROUND


def at_most(stated: float) -> Rule:
    """The mean is below a stated number, or that lies inside the range over repetitions."""
    return lambda mean, low, high: mean <= stated or amounts_to(stated)(mean, low, high)


def compared(evidence: Evidence, keys: Sequence[Key]) -> Values:
    """Values of one cell, of the difference of two, or of the first two less that of the others.

    Only class splits that all of them have count.
    """
    if len(keys) == 1:
        return evidence.get(keys[0], {})
    half = len(keys) // 2
    left, right = compared(evidence, keys[:half]), compared(evidence, keys[half:])
    return {split: left[split] - right[split] for split in left if split in right}


def weigh(evidence: Evidence, line: Line | Case | str | None) -> Case | str | None:
    """Make a case of a line, None where its cells share no class split; others stay as they are."""
    if not isinstance(line, Line):
        return line
    values = list(compared(evidence, line.keys).values())
    if not values:
        return None
    mean, low, high = float(np.mean(values)), min(values), max(values)
    return Case(line.label, mean, line.rule(mean, low, high), low, high, line.signed)


def conclude(cases: Sequence[Case | str | None], share: float = 1.0) -> Judgement:
    """Held when enough of the cases that can be tested hold, not testable when there are none."""
    there = [case for case in cases if isinstance(case, Case)]
    told = [case for case in cases if isinstance(case, str)]
    missing = [f"no data: {', '.join(told)}"] if told else []
    if len(there) < len(cases) and not told:
        missing = [f"{len(cases) - len(there)} of {len(cases)} cases have no data"]
    if not there:
        return Judgement(None, "".join(missing) or "no data")
    failed = [case for case in there if not case.holds]
    held = len(there) - len(failed)
    if len(there) <= 6:
        words = [case.text() for case in there]
    else:
        lowest, highest = (choose(there, key=lambda case: case.value) for choose in (min, max))
        words = [f"{held} of {len(there)} cases hold",
                 f"from {lowest.text()} to {highest.text()}"]  # fmt: skip
        if failed:
            shown = ", ".join(case.text() for case in failed[:8])
            more = f" and {len(failed) - 8} more" if len(failed) > 8 else ""
            words.append(f"not: {shown}{more}")
    return Judgement(held >= share * len(there) - 1e-9, "; ".join([*words, *missing]))


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


def _line(label: str, place: Key, one: Hashable, two: Hashable, rule: Rule = above) -> Line:
    """A difference of two cells that stand at the same place otherwise."""
    return Line(label, ((*place, one), (*place, two)), rule)


def _pair(name: str, eta: float, pair: tuple[str, str], label: str, rule: Rule = above) -> Line:
    """The difference of two methods in a cell of a table."""
    return Line(label, [table(name, method, eta) for method in pair], rule)


def _higher(eta: float, pairs: Pairs) -> Cases:
    """The first of each pair is more accurate, on all six sets."""
    return [_pair(name, eta, p, f"{name}: {p[0]} - {p[1]}") for name in SIX for p in pairs]


def _robust(evidence: Evidence, sets: Sequence[str], pairs: Pairs) -> Cases:
    """The first of each pair loses less from the lowest to the highest rate of both."""
    out: list[Line | None] = []
    for name in sets:
        for one, two in pairs:
            rates = _rates(evidence, name, one, two)
            ends = (rates[0], rates[-1]) if len(rates) > 1 else ()
            keys = [table(name, method, eta) for method in (two, one) for eta in ends]
            line = Line(f"{name}: {two} loses more than {one} by", keys, above)
            out.append(line if keys else None)
    return out


def _margins(
    evidence: Evidence, name: str, eta: float, stated: Stated, number: bool = False
) -> Cases:
    """Differences of pairs of methods, as an order or as the numbers stated, or what there is."""
    lines = [
        _pair(name, eta, (one, two), f"{one} - {two} (paper {amount:+.2f})", amounts_to(amount))
        if number
        else _pair(name, eta, (one, two), f"{one} - {two}")
        for (one, two), amount in stated.items()
    ]
    if any(weigh(evidence, line) for line in lines):
        return lines
    reason = f"{name} at eta {eta:g}"
    rates = _rates(evidence, name, "UGDA")
    if eta > 0.5 and rates:
        shown = [_pair(name, rates[-1], pair, " - ".join(pair)) for pair in stated]
        cases = [weigh(evidence, line) for line in shown]
        words = [case.text() for case in cases if isinstance(case, Case)]
        reason += (
            " (needs the three original views; the stand-in has two); at "
            f"{rates[-1]:g} on the stand-in: {', '.join(words) or 'nothing'}"
        )
    return [reason]


def _on_cub(label: str, method: str, rates: Sequence[float], rule: Rule) -> Line:
    """The accuracy of a method on cub at a rate, or what it loses between two rates."""
    return Line(label, [table("cub", method, eta) for eta in rates], rule, signed=False)


def _improved(evidence: Evidence, name: str) -> Cases:
    """UGDA improves PTMAP and RFS, rate by rate."""
    rates = _rates(evidence, name, "PTMAP")
    return [
        _pair(name, eta, pair, f"{' - '.join(pair)} at {eta:g}") for pair in BOTH for eta in rates
    ]


def _ablation(evidence: Evidence, *rows: str) -> Cases:
    """The full ADSR is more accurate than some rows of the ablation, rate by rate."""
    return [
        Line(f"{dataset} {eta:g}: full - {row}",
             [("ablation", dataset, which, eta) for which in ("Full ADSR", row)], above)
        for dataset in ("caltech102", "scene15")
        for eta in RATES
        if ("ablation", dataset, "Full ADSR", eta) in evidence
        for row in rows
    ]  # fmt: skip


def _loss_falls(evidence: Evidence) -> Cases:
    out: list[Case | None] = []
    for dataset in AGGREGATED:
        losses = evidence.get(("loss", dataset))
        if not losses:
            out.append(None)
            continue
        path = [losses[iteration] for iteration in sorted(losses)]
        steps = np.diff(path)
        rise = 100 * float(max(steps.max(), 0.0)) / path[0]
        label = (
            f"{dataset}: loss {path[0]:.3g} to {path[-1]:.3g}, {100 * np.mean(steps < 0):.0f} % of "
            "steps lower it, largest rise in % of the first loss"
        )
        out.append(Case(label, rise, rise <= RIPPLE and path[-1] < path[0], 0.0, 0.0, False))
    return out


def _rises_then_rests(evidence: Evidence, panel: str, usual: int) -> Cases:
    """A hyper-parameter helps up to the paper's setting, and beyond it changes little."""
    out: list[Line | None] = []
    for dataset in NEIGHBOURS:
        place = ("hyper", dataset, panel)
        values: list[Any] = sorted(key[3] for key in evidence if key[:3] == place)
        if usual not in values or len(values) < 3:
            out.append(None)
            continue
        first, last = values[0], values[-1]
        both = [
            _line(f"{dataset}: {panel} {first} to {usual}", place, usual, first,
                  lambda mean, *_: mean >= GAIN),
            _line(f"{dataset}: {panel} {usual} to {last}", place, last, usual,
                  lambda mean, *_: abs(mean) <= GAIN),
        ]  # fmt: skip
        out += both if all(weigh(evidence, line) for line in both) else [None]
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
          [_on_cub("accuracy (paper 76.69)", "UGDA", (0.5,), amounts_to(76.69)),
           _on_cub("drop (paper 18.90)", "UGDA", (0.0, 0.5), amounts_to(18.90))]),
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
          "iterations", _loss_falls),
    Claim("base-more", "5.4.1b", "Fig. 5: more base classes give higher accuracy",
          [_line(f"eta {eta:g}: 80 - {size} classes", ("base classes", eta, "UGDA"), 80, size)
           for eta in (0.1, 0.3) for size in BASE_SIZES[:-1]]),
    Claim("base-five", "5.4.1b", "Fig. 5: from 80 to 5 base classes UGDA loses only 2.10 % at eta "
          "0.1 and 4.71 % at 0.3",
          [_line(f"eta {eta:g}: 80 - 5 classes (paper {stated:.2f})",
                 ("base classes", eta, "UGDA"), 80, 5, at_most(stated))
           for eta, stated in ((0.1, 2.10), (0.3, 4.71))]),
    Claim("base-two-order", "5.4.1b", "Fig. 5: even with 2 base classes UGDA improves on the "
          "concatenation at eta 0.3", [Line("UGDA - concatenation", _TWO, above)]),
    Claim("base-two-number", "5.4.1b", "... by 15.92 %",
          [Line("UGDA - concatenation (paper +15.92)", _TWO, amounts_to(15.92))]),
    Claim("adsr-best", "5.4.2", "the full ADSR is best at every rate on both sets",
          _ablation, tuple(ABLATION)[1:]),
    Claim("adsr-ce", "5.4.2", "removing L_ce costs accuracy", _ablation, ("w/o L_ce",)),
    Claim("adsr-se", "5.4.2", "removing L_se costs accuracy", _ablation, ("w/o L_se",)),
    *(Claim(name, "5.4.3", f"Fig. 7: accuracy rises largely with {panel} at first, then stays",
            _rises_then_rests, (panel, usual))
      for name, panel, usual in (("iter", "iter", 30), ("steps", "N", 10),
                                 ("anchors", "N_F", 100))),
    Claim("k-small-base", "5.4.3", "Fig. 7: a large k (6) hurts on cub, which has 6 base classes",
          [_line("cub_googlenet_doc2vec: k=1 - k=6", ("hyper", "cub_googlenet_doc2vec", "k"), 1,
                 6)]),
    Claim("k-large-base", "5.4.3", "Fig. 7: a larger k does not hurt on caltech102 (k=4 against 1)",
          [_line("caltech102: k=4 - k=1", ("hyper", "caltech102", "k"), 4, 1)]),
    Claim("k-number", "5.4.3", "... k=4 is only 0.7 % better than k=1",
          [_line("caltech102: k=4 - k=1 (paper +0.7)", ("hyper", "caltech102", "k"), 4, 1,
                 at_most(0.7))]),
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


def _losses(wish: Wish) -> dict[Key, Values]:
    out: dict[Key, Values] = {}
    for dataset in AGGREGATED:
        if has_data(SHORT[dataset], wish):
            path = follow(dataset, wish, 1 if wish.quick else 8).loss.mean(1)
            out["loss", dataset] = {k + 1: float(loss) for k, loss in enumerate(path)}
    return out


def make_claims(wish: Wish, desk: Desk, command: str) -> Sheet:
    """Compute (or look up) what the claims are about, and judge them."""
    gathered = gather_all("claims", wish, desk)
    evidence = our_evidence(gathered)
    if not wish.only:
        evidence |= _losses(wish)
    return judge_all(evidence, gathered, wish, command, () if desk.compute else (NOT_COMPUTED,))


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
    for claim in CLAIMS:
        ours, paper = claim.judge(evidence), claim.judge(theirs)
        contradicted = claim.in_tables and paper.verdict is False
        numbers = ours.numbers + f" | paper's tables: {paper.numbers}" * contradicted
        asked = WORDS[paper.verdict] if claim.in_tables else "-"
        entries = (claim.name, claim.section, claim.says, WORDS[ours.verdict], asked, numbers)
        rows.append(dict(zip(COLUMNS, entries, strict=True)))
    held, failed, untested = (sum(row["ours"] == word for row in rows) for word in WORDS.values())
    used = [item for item in gathered if item.results]
    shapes = sorted({(item.part.n_splits, item.part.grid.episodes) for item in used})
    counts = ", ".join(f"{splits} x {episodes}" for splits, episodes in shapes) or "none"
    return Sheet(
        name="claims",
        title="Claims of the paper's Section 5 that state numbers or orders",
        columns=COLUMNS,
        rows=rows,
        protocol=protocol_line(used, wish, f"class splits x episodes {counts}"),
        versions=versions_line(gathered),
        command=command,
        notes=(
            "an order holds when the mean difference over shared class splits has the right sign "
            "in every case; a number holds when it lies inside our range over class splits; around "
            "is within 10 points; almost all is nine in ten; a loss falls stably when no iteration "
            "raises it by more than 1 % of the first; ranges over splits in brackets",
            *notes,
        ),
        summary=(f"{held} held, {failed} not held, {untested} not testable of {len(rows)}",),
    )
