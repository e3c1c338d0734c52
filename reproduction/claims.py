"""The sentences of the paper's Section 5 that state numbers or orders, judged one by one.

A claim (`claims.toml`) names cases; each is a sum of cells with a value per class split, and one of
three rules (order, near, number) says when it is as stated and when against it. The rules were
written down before any evidence was seen. A claim holds when all of its cases do, or the share that
it names; it fails when too many are against, which is corrected for the number of cases.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import t as student

from fewview.datasets import get_spec, names
from fewview.evaluate import compare_paired
from reproduction.records import HERE, read_json, read_paper, read_results
from reproduction.run import Study, load_studies

Array = NDArray[np.float64]
# Cell (`study/row@rate`) -> unit (seed and class split, or a task) -> accuracy in percent.
Evidence = Mapping[str, Mapping[Hashable, float]]

HOLDS, FAILS, UNDECIDED, UNTESTED = "holds", "fails", "undecided", "not testable"
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


Rule = Callable[[Array], Weight]


def margins_tested(margins: Array) -> Weight:
    """Student's t test of margins that are positive where a sentence is right."""
    margins = margins.round(9)  # differences of differences leave rounding errors
    mean = float(margins.mean())
    if len(margins) < 2:
        return Weight(1.0, 1.0, mean > 0)
    (pair,) = compare_paired([margins, np.zeros(len(margins))], ["margin", "none"])
    return Weight(pair.p_t if mean > 0 else 1.0, pair.p_t if mean < 0 else 1.0, mean > 0)


def order(
    values: Array, above: float = 0.0, below: float | None = None, allowed: float = 0.0
) -> Weight:
    """Above a bound, or below it.

    What may lose something (`allowed`) must show no loss and must rule out a larger one.
    """
    margins = values - above if below is None else below - values
    stated, none = margins_tested(margins + allowed), margins_tested(margins)
    return Weight(stated.stated, none.contrary, none.printed)


def near(values: Array, near: float, within: float) -> Weight:
    """Around a value: the margin is what is left to the nearer end of the range allowed."""
    side = 1.0 if values.mean() > near else -1.0
    return margins_tested(within - side * (values - near))


def number(values: Array, number: float, at_most: bool = False, one_split: bool = False) -> Weight:
    """A printed number of one class split, judged as one more draw from ours; or no more than it.

    Where ours are all of `one_split` too, they do not tell how far another one may be.
    """
    n, over = len(values), float(values.mean()) - number
    same = over <= LAST_DIGIT if at_most else abs(over) <= LAST_DIGIT
    if n < 2:
        return Weight(1.0, 1.0, same)
    error = float(values.std(ddof=1)) * np.sqrt(1 + 1 / n)
    gap = max(abs(over) - LAST_DIGIT, 0.0)
    distance = gap / error if error else (np.inf if gap else 0.0)
    p = float(2 * student.sf(distance, n - 1))
    reached = values <= number + LAST_DIGIT if at_most else values >= number - LAST_DIGIT
    half = float(student.ppf(0.975, n - 1)) * error  # of the prediction interval
    usual = n >= ENOUGH and distance <= TYPICAL and reached.mean() >= REACHED and half < abs(number)
    yes, no = (0.0 if usual else 1.0), p
    if at_most:
        yes, no = min(yes, margins_tested(number - values).stated), p if over > 0 else 1.0
    return Weight(yes, 1.0 if one_split else no, same)


class Case(NamedTuple):
    """A sum of cells (sign, `study/row`, rate or `low` or `high`) and the rule for it."""

    terms: tuple[tuple[int, str, str], ...]
    rule: Rule
    digits: bool = False  # other features than the paper's cannot have them

    @property
    def label(self) -> str:
        """The sum as text."""
        words = [f"{'-' if sign < 0 else '+'} {cell}@{rate}" for sign, cell, rate in self.terms]
        return " ".join(words).removeprefix("+ ")

    def values(self, evidence: Evidence) -> Array:
        """One value per class split that all of its cells have; none without data."""
        ends: dict[str, str] = {}
        if any(rate == "low" for _, _, rate in self.terms):
            rates = [{key.rpartition("@")[2] for key in evidence if key.startswith(f"{cell}@")}
                     for _, cell, _ in self.terms]  # fmt: skip
            common = sorted(set.intersection(*rates), key=float)
            ends = {"low": common[0], "high": common[-1]} if len(common) > 1 else {}
        cells = [(sign, evidence.get(f"{cell}@{ends.get(rate, rate)}", {}))
                 for sign, cell, rate in self.terms]  # fmt: skip
        units = [unit for unit in cells[0][1] if all(unit in values for _, values in cells)]
        return np.array([sum(sign * values[unit] for sign, values in cells) for unit in units])


class Judgement(NamedTuple):
    """What a claim comes to; `against` and `unsure` are the cases that are not as stated."""

    verdict: str
    p: float | None = None
    against: tuple[str, ...] = ()
    unsure: tuple[str, ...] = ()


def judge(cases: Iterable[tuple[Case, Array]], share: float = 1.0) -> Judgement:
    """Judge cases with their values together.

    That enough of them are as stated is one hypothesis, that too many are not is another one.
    """
    there = [(case, case.rule(values)) for case, values in cases if len(values)]
    if not there:
        return Judgement(UNTESTED)
    stated, contrary = (np.array([weight[k] for _, weight in there]) for k in (0, 1))
    needed = int(np.ceil(share * len(there) - 1e-9))
    p_yes, p_no = at_least(stated, needed), at_least(contrary, len(there) - needed + 1)
    verdict = FAILS if p_no <= LEVEL else HOLDS if p_yes <= LEVEL else UNDECIDED
    wrong = holm(contrary) <= LEVEL
    chosen = (wrong, ~wrong & (stated > LEVEL))
    # That a number is typical is no test.
    typical = any(case.digits for case, _ in there) and not p_yes
    p = p_no if verdict == FAILS or typical else min(p_yes, p_no)
    against, unsure = (tuple(case.label for (case, _), here in zip(there, some, strict=True) if here)
                       for some in chosen)  # fmt: skip
    return Judgement(verdict, p, against, unsure)


def at_least(p_values: Array, count: int) -> float:
    """The p-value of `count` or more of several effects being real (Benjamini and Heller 2008)."""
    return min(1.0, float((len(p_values) - count + 1) * np.sort(p_values)[count - 1]))


def holm(p_values: Array) -> Array:
    """Adjust p-values for many tests by Holm's step-down method."""
    places = np.argsort(p_values, kind="stable")
    out = np.empty(len(places))
    factors = np.arange(len(places), 0, -1)
    out[places] = np.minimum(np.maximum.accumulate(p_values[places] * factors), 1.0)
    return out


@dataclass(frozen=True)
class Claim:
    """One sentence of the paper and its cases, of which a share must hold."""

    name: str
    section: str
    says: str
    cases: tuple[Case, ...]
    share: float = 1.0

    def judge(self, evidence: Evidence) -> Judgement:
        """Judge our results."""
        return judge([(case, case.values(evidence)) for case in self.cases], self.share)

    def as_printed(self, evidence: Evidence) -> str:
        """Ask numbers without class splits, such as the paper's tables: arithmetic, no test."""
        found = [case.rule(values).printed for case in self.cases
                 if len(values := case.values(evidence))]  # fmt: skip
        if not found:
            return UNTESTED
        return HOLDS if sum(found) >= self.share * len(found) - 1e-9 else FAILS

    def stands_in(self, studies: Mapping[str, Study]) -> bool:
        """Whether it can be judged on other features than the paper's alone."""
        about = {cell.partition("/")[0] for case in self.cases for _, cell, _ in case.terms}
        sets = {part.dataset for name in about for part in studies[name].parts}
        return any(name in names() and get_spec(name).relation == "stand-in" for name in sets)


def load_claims() -> list[Claim]:
    """Read all claims."""
    content = tomllib.loads((HERE / "claims.toml").read_text(encoding="utf-8"))
    return [
        Claim(name, section, entry["says"], tuple(_cases(entry, content["lists"])),
              entry.get("share", 1.0))
        for section, entries in content["claim"].items()
        for name, entry in entries.items()
    ]  # fmt: skip


def _cases(entry: Mapping[str, Any], lists: Mapping[str, Sequence[str]]) -> Iterator[Case]:
    """The cases of a claim, one for every choice of the words in braces."""
    for item in entry["cases"]:
        words = item | entry.get("also", {})
        text = words.pop("of", "")
        if rows := words.pop("loses", ()):
            text = "{0}@low - {0}@high - {1}@low + {1}@high".format(*rows)
        kind: Any = near if "near" in words else number if "number" in words else order
        holes = list(dict.fromkeys(re.findall(r"{(\w+)}", text)))
        for chosen in product(*((entry.get(hole) or lists[hole]) for hole in holes)):
            filled = text.format(**dict(zip(holes, chosen, strict=True)))
            found = re.findall(r"\s*([+-]?)\s*(.+?)@(\S+)", filled)
            terms = tuple((-1 if sign == "-" else 1, cell, rate) for sign, cell, rate in found)
            yield Case(terms, partial(kind, **words), kind is number)


def our_evidence(results: pd.DataFrame, losses: Mapping[str, Any] | None = None) -> Evidence:
    """Recorded rows as evidence, and the losses [iterations, tasks] of figure 4 in percent."""
    out: dict[str, dict[Hashable, float]] = {}
    columns = (results[name] for name in ("study", "method", "eta", "seed", "split", "accuracy"))
    for study, method, eta, seed, split, accuracy in zip(*columns, strict=True):
        out.setdefault(f"{study}/{method}@{eta:g}", {})[seed, split] = accuracy
    for place, path in (losses or {}).items():
        loss = np.array(path)
        rises = 100 * np.diff(loss, axis=0).max(0).clip(0) / loss[0]
        falls = 100 * (loss[0] - loss[-1]) / loss[0]
        out[f"figure4/{place}/loss rise@0.5"] = dict(enumerate(rises.tolist()))
        out[f"figure4/{place}/loss fall@0.5"] = dict(enumerate(falls.tolist()))
    return out


def paper_evidence(paper: pd.DataFrame, studies: Mapping[str, Study]) -> Evidence:
    """The paper's own tables as evidence, one value each."""
    by_number = {study.table: name for name, study in studies.items()}
    out: dict[str, dict[Hashable, float]] = {}
    for row in paper.itertuples():
        name = by_number[row.table]
        place = f"{name}/{row.dataset.lower()}" if name == "ablation" else name
        out[f"{place}/{row.method}@{row.eta:g}"] = {0: row.acc}
    return out


def verdicts(results: pd.DataFrame, losses: Mapping[str, Any] | None = None) -> pd.DataFrame:
    """A row per claim: verdict, on which features, p, and what the paper's own tables say."""
    studies = load_studies()
    ours, theirs = our_evidence(results, losses), paper_evidence(read_paper(), studies)
    rows = []
    for claim in load_claims():
        found, stand_in = claim.judge(ours), claim.stands_in(studies)
        if stand_in and any(case.digits for case in claim.cases):
            found = Judgement(UNTESTED)
        in_paper = claim.as_printed(theirs)
        rows.append({
            "claim": claim.name, "section": claim.section, "verdict": found.verdict,
            "features": "stand-in" if stand_in else "paper's or recomputed", "p": found.p,
            "in the paper's tables": "-" if in_paper == UNTESTED else in_paper,
            "says": claim.says, "against": found.against, "unsure": found.unsure,
        })  # fmt: skip
    return pd.DataFrame(rows)


def recorded_verdicts() -> pd.DataFrame:
    """All claims judged by the recorded results."""
    return verdicts(read_results(), read_json("tasks").get("figure4", {}).get("losses"))


def counts(found: pd.DataFrame, stand_in: bool = False) -> dict[str, int]:
    """How many claims have each verdict, of those on stand-in features or of the others."""
    some = found.loc[(found["features"] == "stand-in") == stand_in, "verdict"]
    return {word: int((some == word).sum()) for word in (HOLDS, FAILS, UNDECIDED, UNTESTED)}


def summary() -> str:
    """The verdict in one sentence, for the README and the page."""
    holds, fails, undecided, _ = counts(recorded_verdicts()).values()
    total = holds + fails + undecided
    return f"{holds} of {total} testable claims hold, {fails} fail, {undecided} are undecided."
