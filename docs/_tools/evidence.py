"""The page on what methods declare and which settings they have, from measured results.

    python docs/_tools/evidence.py                 # writes docs/evidence.md

Nothing on it is written by hand but the words around the tables.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parents[1]
MEASURED = DOCS.parent / "benchmarks" / "results"
TOP = """\
# Declarations and settings

Made by `python docs/_tools/evidence.py` from `benchmarks/results/declarations.json` and
`scalings.json`.

## Do methods keep what they declare?

Whether a method looks at all queries of a task together is in `fewview methods`, on every page of a
method and in Python (`method.queries_together`): `yes`, `-` for one by one, or `by padding` where a
method itself takes queries one by one but gaps are filled from all of them (`padding=episode`, the
filling that the paper describes, is no longer the default of methods that take queries one by one).

Below, tasks of digits and scene15 with a third of the views missing are asked again, in float32,
through `fit` and `predict_proba`: with queries one by one, with supports in another order, with
queries in another order, and with classes renamed so that they sort the other way round. Counted
are queries that get another label; after it stands the largest change of a probability. Samples are
put in an order of their own before a method sees them, by a hash of their values, and so are
classes: random draws, keyed by position, then follow from what the samples are.

`rfs+ugda` says `by padding` because UGDA fills views that no base class has; here all classes have
all views. A query that shares no view with any support gets equal probabilities and a warning from
every method but those that a base set has told how views go together (tag `bridges_views`).
"""
BENCH = """\
### On the path of a benchmark

A benchmark draws its tasks itself, supports and queries always in the same order, so it puts
nothing in order first. This is what another order would do there, in float32. Methods that draw
random numbers for supports (UGDA's anchors) get other draws at another position, as they would with
another seed: that is the first column of `ugda` and what is made of it, and float64 does not
change it. So do the trees of `concat-hgb`, which draw features class by class. All other changes
are rounding, in `ugda` grown by its rectification. To key draws by content on this path too would
give every recorded number of the reproduction another draw, for no user's benefit.
"""
MIDDLE = """\
## The scaling of every method, before and after

Until now all of these had the scaling `scale` of the paper, and gaps were filled from the task. The
rule, written before the first run: the best mean accuracy on pretended tasks of base classes of
class split 0 of three development sets, complete and with half the views missing, among the four
scalings that `--tune` tries and, for methods that take queries one by one, the fillings that do not
look at queries. What a method had stays unless another setting is more than half a point better.
Where `root+standard+unit` won, the default is `by-width`: the same, but `standard` for views of
fewer than six features, whose rows of unit length say too little (of one feature, its sign). The
development sets have none; this was added after the choice, when narrow tables were looked at.
Novel classes were not looked at, and no other data set. `concat-hgb` keeps `scale`: its trees ask
for the order of values alone, column by column, so that `standard` gives nearly the same, and rows
of unit length are on average no better. Methods that train networks keep theirs, and Marginal
chooses its own on the base classes it is given. `--scaling paper --padding paper` have the
paper's.

Accuracy in percent, before -> after, on base classes of the development sets:
"""


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def in_words(setting: dict[str, str]) -> str:
    """A setting as it is typed."""
    return " ".join(f"{name}={value}" for name, value in setting.items())


def scalings(kept: dict[str, Any]) -> str:
    """Every method's setting before and after, and what it is worth."""
    rows = []
    for name, found in kept["methods"].items():
        best, settings, numbers = found["best"], found["settings"], found["accuracy"]
        means = [sum(row[k] for row in numbers.values()) / len(numbers) for k in (0, best)]
        changed = in_words(settings[best]) if best else "unchanged"
        cells = [f"{row[0]:.1f} -> {row[best]:.1f}" for row in numbers.values()]
        mean = f"**{means[0]:.1f} -> {means[1]:.1f}**"
        rows.append([f"`{name}`", in_words(settings[0]), changed, mean, *cells])
    places = list(next(iter(kept["methods"].values()))["accuracy"])
    return table(["method", "before", "after", "mean", *places], rows)


def pages() -> dict[str, str]:
    """Name of the page -> its text."""
    declared, chosen = (
        json.loads((MEASURED / f"{name}.json").read_text(encoding="utf-8"))
        for name in ("declarations", "scalings")
    )
    header = ["method", "queries together", "one by one", "supports", "queries", "renamed"]
    rows = [[f"`{row[0]}`", *row[1:]] for row in declared["rows"]]
    parts = (
        TOP,
        table(header, rows),
        BENCH,
        table(
            ["method", "queries together", "supports", "queries", "renamed"],
            [[f"`{row[0]}`", *row[1:]] for row in declared["bench"]],
        ),
        "Measured with `python benchmarks/declarations.py` and its option `--bench` "
        f"(last {declared['computed']}).\n",
        MIDDLE,
        scalings(chosen),
        f"Measured with `python benchmarks/scalings.py` (last {chosen['computed']}).\n",
    )
    return {"evidence.md": "\n".join(parts)}


if __name__ == "__main__":
    for page, text in pages().items():
        (DOCS / page).write_text(text, encoding="utf-8")
