"""The sentences of the paper's Section 5 that state numbers or orders, judged one by one.

A claim (`claims.toml`) names cases; each is a sum of cells with a value per class split, and one of
three rules says when it is as stated and when it is against. Rules were written down before any
evidence was seen. A claim holds when all of its cases do, or the share that it names; it fails when
too many are against, which is searched for among all of them and corrected for their number.
"""

from __future__ import annotations

import re
import tomllib
import warnings
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import t as student
from scipy.stats import ttest_1samp

from fewview import FewviewError
from fewview.datasets import get_spec, names
from reproduction.records import HERE, read_json, read_paper, read_results
from reproduction.run import Study, load_studies

Array = NDArray[np.float64]
# Cell (`study/row@rate`) -> unit (seed and class split, or a task) -> accuracy in percent.
Evidence = Mapping[str, Mapping[Hashable, float]]

HOLDS, FAILS, UNDECIDED, UNTESTED = "holds", "fails", "undecided", "not testable"
VERDICTS = (HOLDS, FAILS, UNDECIDED, UNTESTED)
LEVEL = 0.05
# A number is ours when it is this near, in standard errors of one class split, and at least this
# share of at least so many class splits reaches it.
TYPICAL, REACHED, ENOUGH = 1.0, 0.25, 5
LAST_DIGIT = 0.006


class Weight(NamedTuple):
    """p-values of what is stated and of the contrary; `printed` is the bare arithmetic."""

    stated: float
    contrary: float
    printed: bool


class Rule(Protocol):
    """When values, one per class split, are as stated and when they are against it."""

    def weigh(self, values: Array) -> Weight:
        """Weigh the values."""
        ...


def margins_tested(margins: Array) -> Weight:
    """Student's t test of margins that are positive where a sentence is right.

    Where all are equal Student's t would be certain after two of them; then signs alone count.
    """
    margins = margins.round(9)  # differences of differences leave rounding errors
    mean, n = float(margins.mean()), len(margins)
    if n < 2:
        return Weight(1.0, 1.0, mean > 0)
    if np.ptp(margins) <= 1e-9 * np.abs(margins).max():
        p = 2.0 ** (1 - n) if mean else 1.0
    else:
        with warnings.catch_warnings():  # scipy warns of nearly constant margins
            warnings.simplefilter("ignore", RuntimeWarning)
            p = float(ttest_1samp(margins, 0.0).pvalue)
    return Weight(p if mean > 0 else 1.0, p if mean < 0 else 1.0, mean > 0)


@dataclass(frozen=True)
class Order:
    """Above a bound, or below it; a loss may be `allowed` if none is seen and a larger one ruled
    out.
    """

    above: float | None = None
    below: float | None = None
    allowed: float = 0.0

    def weigh(self, values: Array) -> Weight:
        """Weigh the values."""
        margins = values - (self.above or 0.0) if self.below is None else self.below - values
        stated, none = margins_tested(margins + self.allowed), margins_tested(margins)
        return Weight(stated.stated, none.contrary, none.printed)


@dataclass(frozen=True)
class Near:
    """Around a value: the margin is what is left to the nearer end of the range allowed."""

    near: float
    within: float

    def weigh(self, values: Array) -> Weight:
        """Weigh the values."""
        side = 1.0 if values.mean() > self.near else -1.0
        return margins_tested(self.within - side * (values - self.near))


@dataclass(frozen=True)
class Number:
    """A printed number of one class split, judged as one more draw from ours; or no more than it.

    Where ours are all of `one_split` too, they do not tell how far another one may be.
    """

    number: float
    at_most: bool = False
    one_split: bool = False

    def weigh(self, values: Array) -> Weight:
        """Weigh the values."""
        n, stated = len(values), self.number
        over = float(values.mean()) - stated
        same = over <= LAST_DIGIT if self.at_most else abs(over) <= LAST_DIGIT
        if n < 2:
            return Weight(1.0, 1.0, same)
        error = float(values.std(ddof=1)) * np.sqrt(1 + 1 / n)
        gap = np.sign(over) * max(abs(over) - LAST_DIGIT, 0.0)
        distance = float(gap / error) if error else float(np.sign(gap) * np.inf if gap else 0.0)
        p = float(2 * student.sf(abs(distance), n - 1))
        reached = values <= stated + LAST_DIGIT if self.at_most else values >= stated - LAST_DIGIT
        usual = (
            n >= ENOUGH
            and abs(distance) <= TYPICAL
            and float(reached.mean()) >= REACHED
            and float(student.ppf(0.975, n - 1)) * error < abs(stated)
        )
        yes, no = (0.0 if usual else 1.0), p
        if self.at_most:
            yes, no = min(yes, margins_tested(stated - values).stated), p if over > 0 else 1.0
        return Weight(yes, 1.0 if self.one_split else no, same)


class Case(NamedTuple):
    """A sum of cells: sign, `study/row`, rate (or `low`, `high`), and the rule for it."""

    terms: tuple[tuple[int, str, str], ...]
    rule: Rule

    @property
    def label(self) -> str:
        """The case as it stands in `claims.toml`."""
        words = [f"{'-' if sign < 0 else '+'} {cell}@{rate}" for sign, cell, rate in self.terms]
        return " ".join(words).removeprefix("+ ")

    def values(self, evidence: Evidence, rates: Mapping[str, set[float]]) -> Array:
        """One value per class split that all of its cells have; none without data."""
        common = sorted(set.intersection(*(rates.get(cell, set()) for _, cell, _ in self.terms)))
        ends = {"low": common[0], "high": common[-1]} if len(common) > 1 else {}
        cells = [
            (sign, evidence.get(f"{cell}@{float(ends.get(rate, rate)):g}", {}))
            for sign, cell, rate in self.terms
            if rate in ends or rate not in ("low", "high")
        ]
        if len(cells) < len(self.terms):
            return np.zeros(0)
        units = [unit for unit in cells[0][1] if all(unit in values for _, values in cells)]
        return np.array([sum(sign * values[unit] for sign, values in cells) for unit in units])


class Judgement(NamedTuple):
    """What a claim comes to; `against` and `unsure` are the cases that are not as stated."""

    verdict: str
    p: float | None = None
    against: tuple[str, ...] = ()
    unsure: tuple[str, ...] = ()
    n_cases: int = 0  # that have data


@dataclass(frozen=True)
class Claim:
    """One sentence of the paper and its cases, of which a share must hold."""

    name: str
    section: str
    says: str
    cases: tuple[Case, ...]
    share: float = 1.0

    @property
    def studies(self) -> set[str]:
        """The studies that it is about."""
        return {cell.partition("/")[0] for case in self.cases for _, cell, _ in case.terms}

    @property
    def digits(self) -> bool:
        """Whether it is about digits, which other features than the paper's cannot have."""
        return any(isinstance(case.rule, Number) for case in self.cases)

    def judge(self, evidence: Evidence) -> Judgement:
        """Judge our results."""
        rates = rates_of(evidence)
        return judge([(c.label, c.rule, c.values(evidence, rates)) for c in self.cases], self.share)

    def as_printed(self, evidence: Evidence) -> Judgement:
        """Ask numbers without class splits, such as the paper's tables: arithmetic, no test."""
        rates = rates_of(evidence)
        found = [(c, v) for c in self.cases if len(v := c.values(evidence, rates))]
        wrong = tuple(
            f"{c.label} = {v.mean():+.2f}" for c, v in found if not c.rule.weigh(v).printed
        )
        if not found:
            return Judgement(UNTESTED)
        enough = len(found) - len(wrong) >= self.share * len(found) - 1e-9
        return Judgement(HOLDS if enough else FAILS, None, wrong, (), len(found))


def judge(cases: Iterable[tuple[str, Rule, Array]], share: float = 1.0) -> Judgement:
    """Judge cases together: label, rule and values of each.

    That enough of them are as stated is one hypothesis, that too many are not another one.
    """
    there = [(label, rule, rule.weigh(values)) for label, rule, values in cases if len(values)]
    if not there:
        return Judgement(UNTESTED)
    stated, contrary = (np.array([w[k] for _, _, w in there]) for k in (0, 1))
    needed = int(np.ceil(share * len(there) - 1e-9))
    p_yes, p_no = at_least(stated, needed), at_least(contrary, len(there) - needed + 1)
    verdict = FAILS if p_no <= LEVEL else HOLDS if p_yes <= LEVEL else UNDECIDED
    wrong = holm(contrary) <= LEVEL
    unsure = ~wrong & (stated > LEVEL)
    # That a number is typical is no test.
    digits = any(isinstance(rule, Number) for _, rule, _ in there)
    p = p_no if verdict == FAILS or (digits and not p_yes) else min(p_yes, p_no)
    labels = [label for label, _, _ in there]
    names = (tuple(x for x, here in zip(labels, chosen, strict=True) if here)
             for chosen in (wrong, unsure))  # fmt: skip
    return Judgement(verdict, p, *names, len(there))


def at_least(p_values: Array, count: int) -> float:
    """The p-value of `count` or more of several effects being real (Benjamini and Heller 2008)."""
    return min(1.0, float((len(p_values) - count + 1) * np.sort(p_values)[count - 1]))


def holm(p_values: Array) -> Array:
    """Adjust p-values for many tests by Holm's step-down method."""
    order = np.argsort(p_values, kind="stable")
    out = np.empty(len(order))
    factors = np.arange(len(order), 0, -1)
    out[order] = np.minimum(np.maximum.accumulate(p_values[order] * factors), 1.0)
    return out


# ---------------------------------------------------------------------- claims and evidence


def load_claims(path: Path = HERE / "claims.toml") -> list[Claim]:
    """Read all claims."""
    content = tomllib.loads(path.read_text(encoding="utf-8"))
    return [
        Claim(name, entry["section"], entry["says"], tuple(_cases(entry, content["lists"])),
              entry.get("share", 1.0))
        for name, entry in content["claim"].items()
    ]  # fmt: skip


def _cases(entry: Mapping[str, Any], lists: Mapping[str, Sequence[str]]) -> Iterator[Case]:
    """The cases of a claim, one for every choice of the words in braces."""
    for item in entry["cases"]:
        words = item | entry.get("also", {})
        text = words.pop("of", "")
        if worse_and_better := words.pop("loses", ()):
            text = "{0}@low - {0}@high - {1}@low + {1}@high".format(*worse_and_better)
        rule = next((kind for key, kind in RULES.items() if key in words), Order)(**words)
        holes = dict.fromkeys(re.findall(r"{(\w+)}", text))
        for chosen in product(*((entry.get(hole) or lists[hole]) for hole in holes)):
            filled = text.format(**dict(zip(holes, chosen, strict=True)))
            terms = re.findall(r"\s*([+-]?)\s*(.+?)@(\S+)", filled)
            yield Case(tuple((-1 if s == "-" else 1, cell, rate) for s, cell, rate in terms), rule)


RULES: dict[str, Any] = {"near": Near, "number": Number}


def rates_of(evidence: Evidence) -> dict[str, set[float]]:
    """The rates of every `study/row`."""
    out: dict[str, set[float]] = {}
    for key in evidence:
        cell, _, rate = key.rpartition("@")
        out.setdefault(cell, set()).add(float(rate))
    return out


def our_evidence(results: pd.DataFrame, losses: Mapping[str, Any] | None = None) -> Evidence:
    """Recorded rows as evidence, and the losses [iterations, tasks] of figure 4."""
    out: dict[str, dict[Hashable, float]] = {}
    columns = (results[name] for name in ("study", "method", "eta", "seed", "split", "accuracy"))
    for study, method, eta, seed, split, accuracy in zip(*columns, strict=True):
        out.setdefault(f"{study}/{method}@{eta:g}", {})[seed, split] = accuracy
    for place, path in (losses or {}).items():
        loss = np.array(path)
        rises = 100 * np.diff(loss, axis=0).max(0).clip(0) / loss[0]
        falls = 100 * (loss[0] - loss[-1]) / loss[0]
        for name, values in (("rise", rises), ("fall", falls)):
            out[f"figure4/{place}/loss {name}@0.5"] = dict(enumerate(values.tolist()))
    return out


def paper_evidence(paper: pd.DataFrame, studies: Mapping[str, Study]) -> Evidence:
    """The paper's own tables as evidence, one value each."""
    by_number = {study.table: study for study in studies.values() if study.table is not None}
    out: dict[str, dict[Hashable, float]] = {}
    for row in paper.itertuples():
        name = by_number[row.table].name
        place = f"{name}/{row.dataset.lower()}" if name == "ablation" else name
        out[f"{place}/{row.method}@{row.eta:g}"] = {0: row.acc}
    return out


def stands_in(claim: Claim, studies: Mapping[str, Study]) -> bool:
    """Whether a claim can be judged on other features than the paper's alone."""
    sets = {part.dataset for name in claim.studies for part in studies[name].parts}
    return any(name in names() and get_spec(name).relation == "stand-in" for name in sets)


def judge_all(
    claims: Sequence[Claim], evidence: Evidence, paper: Evidence, studies: Mapping[str, Study]
) -> pd.DataFrame:
    """A row per claim: verdict, whether on stand-in features, and what the paper's tables say."""
    rows = []
    for claim in claims:
        ours, stand_in = claim.judge(evidence), stands_in(claim, studies)
        if stand_in and claim.digits:
            ours = Judgement(UNTESTED)
        theirs = claim.as_printed(paper).verdict
        rows.append({
            "claim": claim.name, "section": claim.section, "verdict": ours.verdict,
            "stand_in": stand_in, "p": ours.p, "cases": ours.n_cases, "against": ours.against,
            "unsure": ours.unsure, "paper": "" if theirs == UNTESTED else theirs,
            "says": claim.says,
        })  # fmt: skip
    return pd.DataFrame(rows)


def recorded_verdicts(results: pd.DataFrame | None = None) -> pd.DataFrame:
    """All claims judged by the recorded results."""
    studies = load_studies()
    rows = read_results() if results is None else results
    losses = read_json("tasks").get("figure4", {}).get("losses", {})
    evidence, paper = our_evidence(rows, losses), paper_evidence(read_paper(), studies)
    return judge_all(load_claims(), evidence, paper, studies)


def counts(verdicts: pd.DataFrame, stand_in: bool = False) -> dict[str, int]:
    """How many claims have each verdict, of those on stand-in features or of the others."""
    some = verdicts[verdicts["stand_in"] == stand_in]["verdict"]
    return {verdict: int((some == verdict).sum()) for verdict in VERDICTS}


def summary(verdicts: pd.DataFrame | None = None) -> str:
    """The verdict in one sentence, for the README and the page."""
    found = counts(recorded_verdicts() if verdicts is None else verdicts)
    total = sum(found.values()) - found[UNTESTED]
    if not total:
        raise FewviewError("no claim can be judged: nothing is recorded")
    return (
        f"{found[HOLDS]} of {total} testable claims hold, {found[FAILS]} fail, "
        f"{found[UNDECIDED]} are undecided"
    )
