"""Do methods keep what they declare? Counted in float32, through `fit` and `predict_proba`.

    python benchmarks/declarations.py [--methods proto,ugda] [--json benchmarks/results/...]

Tasks of digits and of scene15 with a third of the views missing are asked again with their queries
one by one, with supports in another order, with queries in another order, and with classes renamed
so that they sort the other way round. Counted are queries that get another label; beside it stands
the largest change of a probability. A method that declares to look at queries together is not asked
one by one; one that does so by padding only is, to show what that costs.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from common import print_table
from numpy.typing import NDArray

from fewview import EpisodeSampler, MultiViewData, TaskSpec, create, load
from fewview.datasets import class_split
from fewview.engine import names
from fewview.engine._method import Method

SETS = ("digits", "scene15")
ETA, SHOT, QUERIES = 1 / 3, 2, 10
TASKS, TRAINED_TASKS = 10, 2
COLUMNS = ("one by one", "supports", "queries", "renamed")
# Where gaps are filled from queries, and what the other preset of a method does.
MORE = ("proto:padding=episode", "rfs:padding=episode", "match:padding=episode")
Array = NDArray[np.float64]


@dataclass
class Count:
    """Answers compared, labels that differ, and the largest change of a probability."""

    answers: int = 0
    labels: int = 0
    largest: float = 0.0

    def add(self, one: Array, two: Array) -> None:
        """Compare probabilities [n_query, way]."""
        self.answers += len(one)
        self.labels += int((one.argmax(1) != two.argmax(1)).sum())
        self.largest = max(self.largest, float(np.abs(one - two).max()))

    def __str__(self) -> str:
        return f"{self.labels} of {self.answers}, {self.largest:.0e}" if self.answers else ""


def asked_again(
    clf: Callable[[], Method], support: MultiViewData, query: MultiViewData, alone: bool
) -> tuple[Array, dict[str, Array]]:
    """Probabilities of a task, and the same after every change, brought back to its order."""
    wanted = clf().fit(support).predict_proba(query)
    rng = np.random.default_rng(len(query))
    turned, mixed = rng.permutation(len(support)), rng.permutation(len(query))
    found = {
        "supports": clf().fit(support[turned]).predict_proba(query),
        "queries": clf().fit(support).predict_proba(query[mixed])[np.argsort(mixed)],
    }
    assert support.labels is not None
    kinds = sorted(set(support.labels.tolist()))
    other = {kind: f"new {chr(ord('z') - place)}" for place, kind in enumerate(kinds)}
    renamed = support.with_labels([other[kind] for kind in support.labels.tolist()])
    found["renamed"] = clf().fit(renamed).predict_proba(query)[:, ::-1]
    if alone:
        fitted = clf().fit(support)
        rows = [fitted.predict_proba(query[[row]]) for row in range(len(query))]
        found["one by one"] = np.concatenate(rows)
    return wanted, found


def count(text: str) -> tuple[dict[str, Count], str]:
    """Counts of one method over all tasks, and what it declares."""
    counts = {name: Count() for name in COLUMNS}
    for name in SETS:
        data, split = load(name), class_split(name, 0)
        base = data[np.isin(data.labels, split.base)]
        task = TaskSpec(way=3, shot=SHOT, queries=QUERIES, eta=ETA)
        known = create(text)
        declared = known.queries_together
        known.fit_base(base, task=task)
        tasks = TRAINED_TASKS if known.tags.trained else TASKS
        for one in EpisodeSampler(data, task, split.novel).draw(0, tasks):
            support = data[one.support[0]].with_mask(one.support_mask[0])
            query = data[one.query[0]].with_mask(one.query_mask[0]).with_labels(None)

            def made(base: Any = known.base) -> Method:
                return create(text, base=base)

            wanted, found = asked_again(made, support, query, declared != "yes")
            for change, answers in found.items():
                counts[change].add(wanted, answers)
    return counts, declared


def main() -> None:
    """Count, print and keep the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--methods", default="")
    parser.add_argument("--json", default=None)
    options = parser.parse_args()
    texts = options.methods.split(",") if options.methods else [*names(), *MORE]
    rows = []
    for text in texts:
        start = perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            counts, declared = count(text)
        rows.append([text, declared, *(str(counts[name]) for name in COLUMNS)])
        print(f"{' | '.join(rows[-1])}  ({perf_counter() - start:.0f} s)", file=sys.stderr)
    header = ["method", "queries together", *COLUMNS]
    print_table(header, rows)
    if options.json:
        kept = {
            "command": " ".join(["python", *sys.argv]),
            "computed": datetime.now(UTC).date().isoformat(),
            "columns": header,
            "rows": rows,
        }
        Path(options.json).write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
