"""The sentences of the paper's Section 5 that state numbers or orders, checked one by one.

Every claim is a function of evidence: a dictionary of accuracies by what they are about, each with
its values per class split (or repetition). The same function judges our results and the paper's own
tables. Rules, stated once: an order holds when the mean difference over the class splits that both
sides share has the right sign in every case named; a number holds when it lies inside our range
over class splits; "around" is within 10 points, "almost all" is nine in ten, "largely at first,
then stable" is at least 2 points up to the paper's setting and at most 2 points beyond it; a loss
falls "stably" when no iteration raises it by more than 1 % of where it began. A claim is not
testable only where its data are absent.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fewview.ground._rows import Row
from fewview.paper._compute import Desk, Gathered, gather
from fewview.paper._printed import ABLATION, FEW_SHOT, METHODS, SIX, TRAINED, printed
from fewview.paper._sheets import Sheet, versions_line
from fewview.paper._studies import (
    BASE_METHODS,
    BASE_SIZES,
    Wish,
    ablation_method,
    aggregator_methods,
    hyper_methods,
    parts_of,
    typed,
)

Key = tuple[Hashable, ...]
Values = Mapping[int, float]
Evidence = Mapping[Key, Values]

AROUND = 10.0
ALMOST_ALL = 0.9
GAIN = 2.0
RIPPLE = 1.0  # percent of the first loss
COLUMNS = ("claim", "section", "says", "ours", "in_the_papers_tables", "numbers")
NOT_COMPUTED = (
    "only stored results were looked at, so here 'not testable' and 'no data' also mean: not "
    "computed yet"
)
WORDS = {True: "held", False: "not held", None: "not testable"}
RATES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
PML = TRAINED
COMBINED = {"PTMAP": "PTMAP+UGDA", "RFS": "RFS+UGDA"}


@dataclass(frozen=True)
class Case:
    """One comparison within a claim.

    Attributes:
        label: what is compared.
        value: the mean.
        holds: whether it is as claimed.
        low: lowest class split.
        high: highest class split.
        signed: whether it is a difference, written with its sign.
    """

    label: str
    value: float
    holds: bool
    low: float
    high: float
    signed: bool = True

    def text(self) -> str:
        """The case in few words, with its range where there are several splits."""
        spread = f" ({self.low:.2f} to {self.high:.2f})" if self.high > self.low else ""
        number = f"{self.value:+.2f}" if self.signed else f"{self.value:.2f}"
        return f"{self.label} {number}{spread}"


@dataclass(frozen=True)
class Judgement:
    """What a claim comes to.

    Attributes:
        verdict: True, False, or None where nothing can be tested.
        numbers: the numbers, in words.
    """

    verdict: bool | None
    numbers: str


@dataclass(frozen=True)
class Claim:
    """One sentence of the paper.

    Attributes:
        name: short.
        section: of the paper.
        says: what it says.
        judge: weighs evidence.
        in_tables: whether the paper's own tables can be asked.
    """

    name: str
    section: str
    says: str
    judge: Callable[[Evidence], Judgement]
    in_tables: bool = True


# ---------------------------------------------------------------------- weighing


def difference(evidence: Evidence, one: Key, two: Key) -> Values | None:
    """`one` minus `two` on the class splits that both have; None where there are none.

    Example:
        >>> difference({("a",): {0: 5.0, 1: 6.0}, ("b",): {1: 4.0}}, ("a",), ("b",))
        {1: 2.0}
    """
    left, right = evidence.get(one), evidence.get(two)
    if left is None or right is None:
        return None
    shared = {split: left[split] - right[split] for split in left if split in right}
    return shared or None


def case(
    label: str,
    values: Values,
    holds: Callable[[float, float, float], bool],
    signed: bool = True,
) -> Case:
    """Make a case from values per class split; `holds` gets mean, lowest and highest."""
    numbers = list(values.values())
    mean, low, high = float(np.mean(numbers)), min(numbers), max(numbers)
    return Case(label, mean, holds(mean, low, high), low, high, signed)


def above(mean: float, low: float, high: float) -> bool:
    """The order holds: the mean difference is positive."""
    return mean > 0


def amounts_to(stated: float, tolerance: float = 0.006) -> Callable[[float, float, float], bool]:
    """The stated number lies inside the range over class splits, to the last digit printed."""

    def holds(mean: float, low: float, high: float) -> bool:
        return low - tolerance <= stated <= high + tolerance

    return holds


def near(stated: float) -> Callable[[float, float, float], bool]:
    """The mean is around a stated number."""

    def holds(mean: float, low: float, high: float) -> bool:
        return abs(mean - stated) <= AROUND

    return holds


def at_most(stated: float) -> Callable[[float, float, float], bool]:
    """The mean is below a stated number, or that lies inside the range over repetitions."""

    def holds(mean: float, low: float, high: float) -> bool:
        return mean <= stated or low - 0.006 <= stated <= high + 0.006

    return holds


def conclude(
    cases: Sequence[Case | None], wanted: Sequence[str] | None = None, share: float = 1.0
) -> Judgement:
    """Weigh the cases of a claim.

    Args:
        cases: None where there are no data.
        wanted: names of what is missing, for the text.
        share: how many of the cases must hold; 1 for all.

    Returns:
        Held when enough of the cases that can be tested hold, not testable when there are none.

    Example:
        >>> conclude([Case("a", 1.0, True, 1.0, 1.0), None]).numbers
        'a +1.00; 1 of 2 cases have no data'
    """
    there = [item for item in cases if item is not None]
    gaps = len(cases) - len(there)
    missing = f"{gaps} of {len(cases)} cases have no data" if gaps else ""
    if wanted:
        missing = f"no data: {', '.join(wanted)}"
    if not there:
        return Judgement(None, missing or "no data")
    failed = [item for item in there if not item.holds]
    verdict = len(there) - len(failed) >= share * len(there) - 1e-9
    if len(there) <= 6:
        words = [item.text() for item in there]
    else:
        lowest = min(there, key=lambda item: item.value)
        highest = max(there, key=lambda item: item.value)
        words = [f"{len(there) - len(failed)} of {len(there)} cases hold",
                 f"from {lowest.text()} to {highest.text()}"]  # fmt: skip
        if failed:
            shown = ", ".join(item.text() for item in failed[:8])
            more = f" and {len(failed) - 8} more" if len(failed) > 8 else ""
            words.append(f"not: {shown}{more}")
    return Judgement(verdict, "; ".join([*words, *([missing] if missing else [])]))


def table(name: str, method: str, eta: float) -> Key:
    """Key of a cell of one of the eight tables of accuracies."""
    return ("table", name, method, eta)


def _over(
    evidence: Evidence, pairs: Iterable[tuple[str, Key, Key]], holds: Any = above
) -> list[Case | None]:
    out = []
    for label, one, two in pairs:
        found = difference(evidence, one, two)
        out.append(None if found is None else case(label, found, holds))
    return out


def _rates(evidence: Evidence, name: str, method: str) -> set[Any]:
    return {key[3] for key in evidence if key[:3] == ("table", name, method)}


def _less_lost(
    evidence: Evidence, sets: Sequence[str], pairs: Sequence[tuple[str, str]]
) -> list[Case | None]:
    """How much less the first of a pair loses from the lowest to the highest rate of both."""
    out: list[Case | None] = []
    for name in sets:
        for one, two in pairs:
            rates = sorted(_rates(evidence, name, one) & _rates(evidence, name, two))
            lost = [
                difference(evidence, table(name, method, rates[0]), table(name, method, rates[-1]))
                for method in (one, two)
                if len(rates) > 1
            ]
            mine, theirs = lost if len(lost) == 2 else (None, None)
            shared = {
                split: theirs[split] - value
                for split, value in (mine or {}).items()
                if theirs is not None and split in theirs
            }
            label = f"{name}: {two} loses more than {one} by"
            out.append(case(label, shared, above) if shared else None)
    return out


# ---------------------------------------------------------------------- the sentences


def _all_higher(one: str, others: Sequence[str], eta: float, sets: Sequence[str] = SIX) -> Any:
    def judge(evidence: Evidence) -> Judgement:
        return conclude(_over(evidence, (
            (f"{name}: {one} - {other}", table(name, one, eta), table(name, other, eta))
            for name in sets for other in others
        )))  # fmt: skip

    return judge


def _margins(name: str, eta: float, stated: Mapping[tuple[str, str], float], number: bool) -> Any:
    """Differences of pairs of methods at one place, as an order or as the numbers stated."""

    def judge(evidence: Evidence) -> Judgement:
        cases: list[Case | None] = []
        for (one, two), amount in stated.items():
            label = f"{one} - {two}" + (f" (paper {amount:+.2f})" if number else "")
            rule = amounts_to(amount) if number else above
            keys = (label, table(name, one, eta), table(name, two, eta))
            cases += _over(evidence, [keys], rule)
        if any(item is not None for item in cases):
            return conclude(cases)
        reason = f"{name} at eta {eta:g}"
        rates = _rates(evidence, name, "UGDA")
        if eta > 0.5 and rates:
            reason += " (needs the three original views; the stand-in has two)"
            highest = max(rates)
            shown = _over(evidence, (
                (f"{one} - {two}", table(name, one, highest), table(name, two, highest))
                for one, two in stated
            ))  # fmt: skip
            words = [item.text() for item in shown if item is not None]
            reason += f"; at {highest:g} on the stand-in: {', '.join(words) or 'nothing'}"
        return conclude(cases, [reason])

    return judge


def _around(eta_from: float | None, eta: float, stated: float) -> Any:
    def judge(evidence: Evidence) -> Judgement:
        cases: list[Case | None] = []
        for method in FEW_SHOT:
            if eta_from is None:
                values = evidence.get(table("cub", method, eta))
            else:
                values = difference(
                    evidence, table("cub", method, eta_from), table("cub", method, eta)
                )
            cases.append(None if not values else case(method, values, near(stated), False))
        return conclude(cases)

    return judge


def _ugda_on_cub(evidence: Evidence) -> Judgement:
    level = evidence.get(table("cub", "UGDA", 0.5))
    lost = difference(evidence, table("cub", "UGDA", 0.0), table("cub", "UGDA", 0.5))
    return conclude([
        None if not level else case("accuracy (paper 76.69)", level, amounts_to(76.69), False),
        None if not lost else case("drop (paper 18.90)", lost, amounts_to(18.90), False),
    ])  # fmt: skip


def _improved_rates(name: str) -> Any:
    def judge(evidence: Evidence) -> Judgement:
        rates = sorted(_rates(evidence, name, "PTMAP"))
        pairs = [
            (f"{both} - {alone} at {eta:g}", table(name, both, eta), table(name, alone, eta))
            for alone, both in COMBINED.items()
            for eta in rates
        ]
        return conclude(_over(evidence, pairs), share=ALMOST_ALL)

    return judge


def _aggregator(without: str) -> Any:
    def judge(evidence: Evidence) -> Judgement:
        return conclude(_over(evidence, (
            (f"{dataset}: full - {without}", ("aggregator", dataset, "full IAA"),
             ("aggregator", dataset, without))
            for dataset in ("cub_googlenet_doc2vec", "scene15")
        )))  # fmt: skip

    return judge


def _loss_falls(evidence: Evidence) -> Judgement:
    cases: list[Case | None] = []
    for dataset in ("cub_googlenet_doc2vec", "scene15"):
        losses = evidence.get(("loss", dataset))
        if not losses:
            cases.append(None)
            continue
        path = [losses[iteration] for iteration in sorted(losses)]
        steps = np.diff(path)
        rise = 100 * float(max(steps.max(), 0.0)) / path[0]
        label = (
            f"{dataset}: loss {path[0]:.3g} to {path[-1]:.3g}, {100 * np.mean(steps < 0):.0f} % of "
            "steps lower it, largest rise in % of the first loss"
        )
        cases.append(Case(label, rise, rise <= RIPPLE and path[-1] < path[0], 0.0, 0.0, False))
    return conclude(cases)


def _base(eta: float, label: str, size: int) -> Key:
    return ("base classes", eta, label, size)


def _more_base_classes(evidence: Evidence) -> Judgement:
    return conclude(_over(evidence, (
        (f"eta {eta:g}: {BASE_SIZES[-1]} - {size} classes", _base(eta, "UGDA", BASE_SIZES[-1]),
         _base(eta, "UGDA", size))
        for eta in (0.1, 0.3) for size in BASE_SIZES[:-1]
    )))  # fmt: skip


def _few_base_classes(evidence: Evidence) -> Judgement:
    cases: list[Case | None] = []
    for eta, stated in ((0.1, 2.10), (0.3, 4.71)):
        label = f"eta {eta:g}: 80 - 5 classes (paper {stated:.2f})"
        keys = (label, _base(eta, "UGDA", 80), _base(eta, "UGDA", 5))
        cases += _over(evidence, [keys], at_most(stated))
    return conclude(cases)


def _two_base_classes(number: bool) -> Any:
    def judge(evidence: Evidence) -> Judgement:
        label = "UGDA - concatenation" + (" (paper +15.92)" if number else "")
        keys = (label, _base(0.3, "UGDA", 2), _base(0.3, "w/o UGDA (Proto)", 2))
        return conclude(_over(evidence, [keys], amounts_to(15.92) if number else above))

    return judge


def _ablation(rows: Sequence[str]) -> Any:
    def judge(evidence: Evidence) -> Judgement:
        return conclude(_over(evidence, (
            (f"{dataset} {eta:g}: full - {row}", ("ablation", dataset, "Full ADSR", eta),
             ("ablation", dataset, row, eta))
            for dataset in ("caltech102", "scene15")
            for eta in RATES
            if ("ablation", dataset, "Full ADSR", eta) in evidence
            for row in rows
        )))  # fmt: skip

    return judge


def _rises_then_rests(panel: str, usual: int) -> Any:
    def judge(evidence: Evidence) -> Judgement:
        cases: list[Case | None] = []
        for dataset in ("caltech102", "cub_googlenet_doc2vec"):
            values = sorted(
                key[3]
                for key in evidence
                if key[:3] == ("hyper", dataset, panel)  # type: ignore[type-var]
            )
            keys = [("hyper", dataset, panel, value) for value in values]
            if usual not in values or len(values) < 3:
                cases.append(None)
                continue
            setting = ("hyper", dataset, panel, usual)
            rise = difference(evidence, setting, keys[0])
            rest = difference(evidence, keys[-1], setting)
            if rise is None or rest is None:
                cases.append(None)
                continue
            cases += [
                case(f"{dataset}: {panel} {values[0]} to {usual}", rise, lambda m, *_: m >= GAIN),
                case(
                    f"{dataset}: {panel} {usual} to {values[-1]}",
                    rest,
                    lambda m, *_: abs(m) <= GAIN,
                ),
            ]
        return conclude(cases)

    return judge


def _neighbours(dataset: str, one: int, two: int, rule: Any, extra: str = "") -> Any:
    def judge(evidence: Evidence) -> Judgement:
        keys = (
            f"{dataset}: k={one} - k={two}{extra}",
            ("hyper", dataset, "k", one),
            ("hyper", dataset, "k", two),
        )
        return conclude(_over(evidence, [keys], rule))

    return judge


def _robust(sets: Sequence[str], pairs: Sequence[tuple[str, str]]) -> Any:
    def judge(evidence: Evidence) -> Judgement:
        return conclude(_less_lost(evidence, sets, pairs))

    return judge


_SCENE = {("UGDA", "CPM"): 22.51, ("UGDA", "CPM-GAN"): 22.33, ("UGDA", "ICMSC"): 20.03,
          ("UGDA", "COMPLETER"): 18.97}  # fmt: skip
_TIERED = {("UGDA", "PTMAP"): 17.67, ("UGDA", "RFS"): 26.98, ("UGDA", "ICMSC"): 38.50,
           ("UGDA", "COMPLETER"): 21.66}  # fmt: skip
_CUB_3 = {("PTMAP+UGDA", "PTMAP"): 6.32, ("RFS+UGDA", "RFS"): 25.56}
_CUB_5 = {("PTMAP+UGDA", "PTMAP"): 20.65, ("RFS+UGDA", "RFS"): 29.61}
_OTHERS = ("PTMAP", "RFS", "ICMSC", "COMPLETER")
_BOTH = tuple((both, alone) for alone, both in COMBINED.items())

CLAIMS: tuple[Claim, ...] = (
    Claim("fsl-around-50", "5.3", "cub, eta 0.5: the accuracy of all compared FSL methods is "
          "around 50 %", _around(None, 0.5, 50.0)),
    Claim("fsl-drop-40", "5.3", "cub: from eta 0 to 0.5 they all lose around 40 %",
          _around(0.0, 0.5, 40.0)),
    Claim("ugda-cub-order", "5.3", "cub: UGDA loses less than every FSL method",
          _robust(("cub",), [("UGDA", other) for other in FEW_SHOT])),
    Claim("ugda-cub-numbers", "5.3", "cub: UGDA keeps 76.69 % at eta 0.5 and loses only 18.90 %",
          _ugda_on_cub),
    Claim("robustness", "5.3", "UGDA is more robust to missing views than the FSL methods (it "
          "loses less from the lowest to the highest rate), on all six sets",
          _robust(SIX, [("UGDA", other) for other in FEW_SHOT])),
    Claim("complete-fsl", "5.3", "eta 0: UGDA is more accurate than Proto, Match, RFS and BD-CSPN, "
          "on all six sets", _all_higher("UGDA", ("Proto", "Match", "RFS", "BD-CSPN"), 0.0)),
    Claim("complete-pml", "5.3", "eta 0: UGDA is more accurate than CPM, CPM-GAN, ICMSC and "
          "COMPLETER, on all six sets", _all_higher("UGDA", PML, 0.0)),
    Claim("heavy-missing", "5.3", "views heavily missing (eta 0.5): UGDA is more accurate than the "
          "PML methods, on all six sets", _all_higher("UGDA", PML, 0.5)),
    Claim("scene15-order", "5.3", "scene15, eta 0.5: UGDA is more accurate than the four PML "
          "methods", _margins("scene15", 0.5, _SCENE, False)),
    Claim("scene15-numbers", "5.3", "... by 22.51, 22.33, 20.03 and 18.97 %",
          _margins("scene15", 0.5, _SCENE, True)),
    Claim("combined-cub-order", "5.3", "cub, eta 0.3: UGDA improves PTMAP and RFS",
          _margins("cub", 0.3, _CUB_3, False)),
    Claim("combined-cub-numbers", "5.3", "... from 76.96 to 83.28 % and from 57.03 to 82.59 %",
          _margins("cub", 0.3, _CUB_3, True)),
    Claim("combined-cub-heavy", "5.3", "cub, eta 0.5: UGDA improves PTMAP and RFS",
          _margins("cub", 0.5, _CUB_5, False)),
    Claim("combined-cub-heavy-numbers", "5.3", "... by 20.65 and 29.61 %",
          _margins("cub", 0.5, _CUB_5, True)),
    Claim("combined-robust", "5.3", "UGDA makes PTMAP and RFS more robust (they lose less), on all "
          "six sets", _robust(SIX, _BOTH)),
    Claim("combined-complete", "5.3", "even at eta 0 UGDA makes PTMAP and RFS more accurate, on "
          "all six sets",
          lambda evidence: conclude(_over(evidence, (
              (f"{name}: {both} - {alone}", table(name, both, 0.0), table(name, alone, 0.0))
              for name in SIX for alone, both in COMBINED.items()
          )))),
    Claim("tiered-order", "5.4.1c", "tieredImagenet, eta 0.6: UGDA is more accurate than PTMAP, "
          "RFS, ICMSC and COMPLETER", _margins("tieredimagenet", 0.6, _TIERED, False)),
    Claim("tiered-numbers", "5.4.1c", "... by 17.67, 26.98, 38.50 and 21.66 %",
          _margins("tieredimagenet", 0.6, _TIERED, True)),
    Claim("tiered-robust", "5.4.1c", "tieredImagenet: UGDA is more robust than the others",
          _robust(("tieredimagenet",), [("UGDA", other) for other in _OTHERS])),
    Claim("tiered-combined", "5.4.1c", "tieredImagenet: UGDA improves PTMAP and RFS at almost all "
          "rates", _improved_rates("tieredimagenet")),
    Claim("birds-robust", "5.4.1c", "domain shift: UGDA is more robust than the compared methods",
          _robust(("birds",), [("UGDA", other) for other in _OTHERS])),
    Claim("birds-combined", "5.4.1c", "domain shift: UGDA makes PTMAP and RFS more robust",
          _robust(("birds",), _BOTH)),
    Claim("aggregator-aeu", "5.4.1a", "Fig. 4a: without the evaluator update (AEU) accuracy drops",
          _aggregator("w/o AEU"), False),
    Claim("aggregator-lau", "5.4.1a", "Fig. 4a: without the anchor update (LAU) accuracy drops",
          _aggregator("w/o LAU"), False),
    Claim("aggregator-loss", "5.4.1a", "Fig. 4b: the aggregation loss falls stably with the "
          "iterations", _loss_falls, False),
    Claim("base-more", "5.4.1b", "Fig. 5: more base classes give higher accuracy",
          _more_base_classes, False),
    Claim("base-five", "5.4.1b", "Fig. 5: from 80 to 5 base classes UGDA loses only 2.10 % at eta "
          "0.1 and 4.71 % at 0.3", _few_base_classes, False),
    Claim("base-two-order", "5.4.1b", "Fig. 5: even with 2 base classes UGDA improves on the "
          "concatenation at eta 0.3", _two_base_classes(False), False),
    Claim("base-two-number", "5.4.1b", "... by 15.92 %", _two_base_classes(True), False),
    Claim("adsr-best", "5.4.2", "the full ADSR is best at every rate on both sets",
          _ablation(tuple(ABLATION)[1:])),
    Claim("adsr-ce", "5.4.2", "removing L_ce costs accuracy", _ablation(("w/o L_ce",))),
    Claim("adsr-se", "5.4.2", "removing L_se costs accuracy", _ablation(("w/o L_se",))),
    Claim("iter", "5.4.3", "Fig. 7: accuracy rises largely with iter at first, then stays",
          _rises_then_rests("iter", 30), False),
    Claim("steps", "5.4.3", "Fig. 7: accuracy rises largely with N at first, then stays",
          _rises_then_rests("N", 10), False),
    Claim("anchors", "5.4.3", "Fig. 7: accuracy rises largely with N_F at first, then stays",
          _rises_then_rests("N_F", 100), False),
    Claim("k-small-base", "5.4.3", "Fig. 7: a large k (6) hurts on cub, which has 6 base classes",
          _neighbours("cub_googlenet_doc2vec", 1, 6, above), False),
    Claim("k-large-base", "5.4.3", "Fig. 7: a larger k does not hurt on caltech102 (k=4 against 1)",
          _neighbours("caltech102", 4, 1, above), False),
    Claim("k-number", "5.4.3", "... k=4 is only 0.7 % better than k=1",
          _neighbours("caltech102", 4, 1, at_most(0.7), " (paper +0.7)"), False),
)  # fmt: skip


# ---------------------------------------------------------------------- evidence


def paper_evidence() -> dict[Key, Values]:
    """The paper's own tables as evidence, one value each.

    Example:
        >>> paper_evidence()[table("cub", "UGDA", 0.5)]
        {0: 76.69}
    """
    out: dict[Key, Values] = {}
    for (name, dataset, method, eta), number in printed().items():
        key = ("ablation", dataset, method, eta) if name == "ablation" else table(name, method, eta)
        out[key] = {0: number.accuracy}
    return out


def our_evidence(
    gathered: Sequence[Gathered], quick: bool, preset: str = "fast"
) -> dict[Key, Values]:
    """Results as evidence."""
    out: dict[Key, Values] = {}
    for item in gathered:
        part = item.part
        if part.role == "table":
            (dataset,) = part.grid.datasets
            texts = {typed(method, str(dataset), preset): method for method in METHODS}
            for text in part.grid.methods:
                for eta in part.grid.etas:
                    values = item.per_split(text, eta)
                    if values and text in texts:
                        out[table(part.tag[0], texts[text], eta)] = values
        elif part.role == "ablation":
            for row in ABLATION:
                for eta in part.grid.etas:
                    _put(out, ("ablation", part.tag[0], row, eta), item, ablation_method(row), eta)
        elif part.role == "aggregator":
            for label, text in aggregator_methods(part.tag[0]).items():
                _put(out, ("aggregator", part.tag[0], label), item, text, 0.5)
        elif part.role == "hyper-parameters":
            dataset, panel = part.tag
            for value, text in hyper_methods(dataset, quick)[panel].items():
                _put(out, ("hyper", dataset, panel, value), item, text, 0.3)
        elif part.role == "base classes":
            size, repetition = part.tag
            for label, text in BASE_METHODS.items():
                for eta in part.grid.etas:
                    for accuracy in item.per_split(text, eta).values():
                        key = _base(eta, label, size)
                        out[key] = {**out.get(key, {}), repetition: accuracy}
    return out


def _put(out: dict[Key, Values], key: Key, item: Gathered, text: str, eta: float) -> None:
    values = item.per_split(text, eta)
    if values:
        out[key] = values


def make_claims(wish: Wish, desk: Desk, command: str) -> Sheet:
    """Compute (or look up) what the claims are about, and judge them.

    Args:
        wish: how to run it.
        desk: where results live.
        command: what was typed.
    """
    gathered = [gather(part, desk) for part in parts_of("claims", wish)]
    evidence = our_evidence(gathered, wish.quick, wish.preset)
    if not wish.only:
        evidence |= _losses(wish)
    notes = [] if desk.compute else [NOT_COMPUTED]
    return judge_all(evidence, gathered, wish, command, notes)


def _losses(wish: Wish) -> dict[Key, Values]:
    from fewview.paper._figure4 import SETS, follow
    from fewview.paper._studies import has_data

    out: dict[Key, Values] = {}
    for dataset, name in SETS.items():
        if has_data(name, wish):
            path = follow(dataset, wish, 1 if wish.quick else 8).loss.mean(1)
            out["loss", dataset] = {k + 1: float(loss) for k, loss in enumerate(path)}
    return out


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
        ours = claim.judge(evidence)
        paper = claim.judge(theirs) if claim.in_tables else None
        numbers = ours.numbers
        if paper is not None and paper.verdict is False:
            numbers += f" | paper's tables: {paper.numbers}"
        rows.append(
            {"claim": claim.name, "section": claim.section, "says": claim.says,
             "ours": WORDS[ours.verdict],
             "in_the_papers_tables": "-" if paper is None else WORDS[paper.verdict],
             "numbers": numbers}
        )  # fmt: skip
    counts = [sum(row["ours"] == word for row in rows) for word in WORDS.values()]
    used = [item for item in gathered if item.results]
    shapes = sorted({(int(g.part.grid.splits), g.part.grid.episodes) for g in used})
    devices = sorted({device for item in used for device in item.devices})
    protocol = (
        f"{'quick: ' if wish.quick else ''}class splits x episodes "
        f"{', '.join(f'{splits} x {episodes}' for splits, episodes in shapes) or 'none'}; "
        f"device {' and '.join(devices) or 'none'}"
    )
    stored = [result.versions for item in gathered for result in item.results.values()]
    return Sheet(
        name="claims",
        title="Claims of the paper's Section 5 that state numbers or orders",
        columns=COLUMNS,
        rows=tuple(rows),
        protocol=protocol,
        versions=versions_line(stored),
        command=command,
        notes=(
            "an order holds when the mean difference over shared class splits has the right sign "
            "in every case; a number holds when it lies inside our range over class splits; around "
            "is within 10 points; almost all is nine in ten; a loss falls stably when no iteration "
            "raises it by more than 1 % of the first; ranges over splits in brackets",
            *notes,
        ),
        summary=(
            f"{counts[0]} held, {counts[1]} not held, {counts[2]} not testable of {len(rows)}",
        ),
    )
