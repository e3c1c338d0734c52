"""The sentences of the paper's Section 5 that state numbers or orders, judged one by one.

A claim (`claims.toml`) has cases, sums of cells with a value per class split, and each has one of
three rules, written down before any evidence was seen. It holds when all of its cases do, or the
share that it names; it fails when too many are against it, corrected for the number of cases.
"""

import re
import tomllib
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import t as student

from fewview.datasets import get_spec
from fewview.evaluate import compare_paired
from reproduction.records import HERE, read_json, read_paper, read_results
from reproduction.run import load_studies

Array = NDArray[np.float64]
# Cell (`study/row@rate`) -> unit (seed and class split, or a task) -> accuracy in percent.
Evidence = Mapping[str, Mapping[Hashable, float]]
Pair = tuple[float, float]  # p-values, of what is stated and of the contrary
Rule = Callable[[Array], Pair]

HOLDS, FAILS, UNDECIDED, UNTESTED = "holds", "fails", "undecided", "not testable"
LEVEL = 0.05
# A number is ours when it is this near, in standard errors of one class split, and at least this
# share of at least so many class splits reaches it.
TYPICAL, REACHED, ENOUGH = 1.0, 0.25, 5
LAST_DIGIT = 0.006


def margins_tested(margins: Array) -> Pair:
    """Student's t test of margins that are positive where a sentence is right."""
    margins = margins.round(9)  # differences of differences leave rounding errors
    if len(margins) < 2:
        return 1.0, 1.0
    (pair,) = compare_paired([margins, np.zeros(len(margins))], ["margin", "none"])
    return (pair.p_t, 1.0) if pair.difference > 0 else (1.0, pair.p_t)


def order(values: Array, above: float = 0, below: float | None = None, allowed: float = 0) -> Pair:
    """Above a bound, or below it; a loss that is `allowed` must not be seen, a larger ruled out."""
    margins = values - above if below is None else below - values
    return margins_tested(margins + allowed)[0], margins_tested(margins)[1]


def near(values: Array, near: float, within: float) -> Pair:
    """Around a value: the margin is what is left to the nearer end of the range allowed."""
    side = 1.0 if values.mean() > near else -1.0
    return margins_tested(within - side * (values - near))


def number(values: Array, number: float, at_most: bool = False, one_split: bool = False) -> Pair:
    """A printed number of one class split, judged as one more draw from ours; or no more than it.

    Where ours are all of `one_split` too, they do not tell how far another one may be.
    """
    n, over = len(values), float(values.mean()) - number
    if n < 2:
        return 1.0, 1.0
    error = float(values.std(ddof=1)) * np.sqrt(1 + 1 / n)
    gap = max(abs(over) - LAST_DIGIT, 0.0)
    distance = gap / error if error else (np.inf if gap else 0.0)
    p = float(2 * student.sf(distance, n - 1))
    reached = values <= number + LAST_DIGIT if at_most else values >= number - LAST_DIGIT
    half = float(student.ppf(0.975, n - 1)) * error  # of the prediction interval
    usual = n >= ENOUGH and distance <= TYPICAL and reached.mean() >= REACHED and half < abs(number)
    yes, no = (0.0 if usual else 1.0), p
    if at_most:
        yes, no = min(yes, margins_tested(number - values)[0]), p if over > 0 else 1.0
    return yes, 1.0 if one_split else no


class Case(NamedTuple):
    """A sum of cells, each with its sign, and the rule for it."""

    terms: tuple[tuple[str, str], ...]
    rule: Rule
    digits: bool = False  # other features than the paper's cannot have them

    @property
    def label(self) -> str:
        """The sum as text."""
        return " ".join(f"{sign} {cell}".strip() for sign, cell in self.terms)

    def values(self, evidence: Evidence) -> Array:
        """One value per class split that all of its cells have; none without data."""
        cells = [evidence.get(cell, {}) for _, cell in self.terms]
        signs = [-1 if sign == "-" else 1 for sign, _ in self.terms]
        units = [unit for unit in cells[0] if all(unit in values for values in cells)]
        return np.array([np.dot(signs, [values[unit] for values in cells]) for unit in units])


class Judgement(NamedTuple):
    """What a claim comes to; `against` are the cases that are significantly not as stated."""

    verdict: str
    p: float | None = None
    against: tuple[str, ...] = ()


def judge(cases: Iterable[tuple[Case, Array]], share: float = 1.0) -> Judgement:
    """That enough cases are as stated is one hypothesis, that too many are not is another one."""
    there = [(case, *case.rule(values)) for case, values in cases if len(values)]
    if not there:
        return Judgement(UNTESTED)
    stated, contrary = (np.array([weighed[k] for weighed in there]) for k in (1, 2))
    needed = int(np.ceil(share * len(there) - 1e-9))
    p_yes, p_no = at_least(stated, needed), at_least(contrary, len(there) - needed + 1)
    verdict = FAILS if p_no <= LEVEL else HOLDS if p_yes <= LEVEL else UNDECIDED
    # That a number is typical is no test.
    typical = any(case.digits for case, *_ in there) and not p_yes
    p = p_no if verdict == FAILS or typical else min(p_yes, p_no)
    against = (case.label for case, _, p_case in there if p_case * len(there) <= LEVEL)
    return Judgement(verdict, p, tuple(against))


def at_least(p_values: Array, count: int) -> float:
    """The p-value of `count` or more of several effects being real (Benjamini and Heller 2008)."""
    return min(1.0, float((len(p_values) - count + 1) * np.sort(p_values)[count - 1]))


class Claim(NamedTuple):
    """One sentence of the paper and its cases, of which a share must hold."""

    name: str
    section: str
    says: str
    cases: tuple[Case, ...]
    share: float = 1.0

    def judge(self, evidence: Evidence) -> Judgement:
        """Judge it by some evidence."""
        return judge([(case, case.values(evidence)) for case in self.cases], self.share)

    @property
    def stands_in(self) -> bool:
        """Whether it can be judged on other features than the paper's alone."""
        about = {cell.partition("/")[0] for case in self.cases for _, cell in case.terms}
        sets = {part.dataset for name in about for part in load_studies()[name].parts}
        return any(get_spec(name).same_as_paper == "stand-in" for name in sets)


def load_claims() -> list[Claim]:
    """Read all claims."""
    content = tomllib.loads((HERE / "claims.toml").read_text(encoding="utf-8"))
    out = []
    for section, entries in content["claim"].items():
        for name, (says, *items) in entries.items():
            cases = tuple(case for item in items for case in _cases(item, content["lists"]))
            out.append(Claim(name, section, says, cases, items[0].get("share", 1.0)))
    return out


def _cases(item: Mapping[str, Any], lists: Mapping[str, Sequence[str]]) -> Iterator[Case]:
    """The cases of one entry, one for every choice of the words in braces."""
    words = {key: item[key] for key in item if key not in ("of", "loses", "share", "numbers")}
    loses = "{0}@LOW - {0}@HIGH - {1}@LOW + {1}@HIGH"
    text = item["of"] if "of" in item else loses.format(*item["loses"])
    kind: Any = near if "near" in words else number if "numbers" in item else order
    holes = list(dict.fromkeys(re.findall(r"{(\w+)}", text)))
    for place, chosen in enumerate(product(*(lists[hole] for hole in holes))):
        filled = text.format(**dict(zip(holes, chosen, strict=True)))
        rates = load_studies()[filled.partition("/")[0]].parts[0].rates
        filled = filled.replace("LOW", f"{rates[0]:g}").replace("HIGH", f"{rates[-1]:g}")
        terms = tuple(re.findall(r"\s*([+-]?)\s*(.+?@\S+)", filled))
        told = {"number": item["numbers"][place]} if kind is number else {}
        yield Case(terms, partial(kind, **told, **words), kind is number)


def our_evidence(results: pd.DataFrame, losses: Mapping[str, Any] | None = None) -> Evidence:
    """Recorded rows as evidence, and the losses [iterations, tasks] of figure 4 in percent."""
    out: dict[str, dict[Hashable, float]] = {}
    for row in results.itertuples():
        cell = out.setdefault(f"{row.study}/{row.method}@{row.eta:g}", {})
        cell[row.seed, row.split] = row.accuracy
    for place, path in (losses or {}).items():
        loss = np.array(path) / np.array(path)[0]
        rises, falls = 100 * np.diff(loss, axis=0).max(0).clip(0), 100 * (1 - loss[-1])
        out[f"figure4/{place}/loss rise@0.5"] = dict(enumerate(rises.tolist()))
        out[f"figure4/{place}/loss fall@0.5"] = dict(enumerate(falls.tolist()))
    return out


def paper_evidence() -> dict[str, dict[Hashable, float]]:
    """The paper's own tables, as if a number were the same on 20 splits: signs alone decide."""
    studies = {study.options.get("table"): name for name, study in load_studies().items()}
    out: dict[str, dict[Hashable, float]] = {}
    for row in read_paper().itertuples():
        place = studies[row.table]
        place += f"/{row.dataset.lower()}" if place == "ablation" else ""
        out[f"{place}/{row.method}@{row.eta:g}"] = dict.fromkeys(range(20), row.acc)
    return out


def verdicts(evidence: Evidence) -> pd.DataFrame:
    """A row per claim: verdict, on which features, p, and what the paper's own tables say."""
    rows = []
    for claim in load_claims():
        found, stand_in = claim.judge(evidence), claim.stands_in
        if stand_in and any(case.digits for case in claim.cases):
            found = Judgement(UNTESTED)
        rows.append({
            "claim": claim.name, "section": claim.section, "verdict": found.verdict,
            "features": "stand-in" if stand_in else "paper's or recomputed", "p": found.p,
            "its own tables": claim.judge(paper_evidence()).verdict, "says": claim.says,
            "against": "; ".join(found.against),
        })  # fmt: skip
    return pd.DataFrame(rows)


def recorded_verdicts() -> pd.DataFrame:
    """All claims judged by the recorded results."""
    losses = read_json("tasks").get("figure4", {}).get("losses")
    return verdicts(our_evidence(read_results(), losses))


def counts(found: pd.DataFrame, stand_in: bool = False) -> dict[str, int]:
    """How many claims have each verdict, of those on stand-in features or of the others."""
    some = found.loc[(found["features"] == "stand-in") == stand_in, "verdict"]
    return {word: int((some == word).sum()) for word in (HOLDS, FAILS, UNDECIDED, UNTESTED)}


def summary() -> str:
    """The verdict in one sentence, for the README and the page."""
    holds, fails, undecided, _ = counts(recorded_verdicts()).values()
    told = f"{holds} of {holds + fails + undecided} testable claims hold"
    return f"{told}, {fails} fail, {undecided} are undecided."
