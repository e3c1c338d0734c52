"""Do methods keep what they declare? Counted in float32, through `fit` and `predict_proba`.

    python benchmarks/declarations.py [--methods proto,ugda] [--json benchmarks/results/...]
    python benchmarks/declarations.py --bench      # the same on the path of a benchmark

Tasks of digits and of scene15 with a third of the views missing are asked again with their queries
one by one, with supports in another order, with queries in another order, and with classes renamed
so that they sort the other way round. Counted are queries that get another label; beside it stands
the largest change of a probability. A method that declares to look at queries together is not asked
one by one; one that does so by padding only is, to show what that costs.

A benchmark draws its tasks itself and always in the same order, so nothing there is put in order
first. `--bench` shows what another order would do: rounding, and draws that go by position. With
`--json`, rows of methods that are not asked now stay as they are.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
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
BENCH_COLUMNS = ("supports", "queries", "renamed")
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


def count_bench(text: str) -> tuple[dict[str, Count], str]:
    """The same through `score_episodes`, which takes samples as they come."""
    counts = {name: Count() for name in BENCH_COLUMNS}
    method = create(text)
    for name in SETS:
        data, split = load(name), class_split(name, 0)
        task = TaskSpec(way=3, shot=SHOT, queries=QUERIES, eta=ETA)
        prepared = method.prepare_base(data[np.isin(data.labels, split.base)], task)
        drawn = EpisodeSampler(data, task, split.novel).draw(0, TASKS)
        rng = np.random.default_rng(QUERIES)
        turned, mixed = rng.permutation(task.n_support), rng.permutation(task.n_query)
        changed = {
            "supports": replace(
                drawn, support=drawn.support[:, turned], support_mask=drawn.support_mask[:, turned],
                support_labels=drawn.support_labels[:, turned],
            ),
            "queries": replace(
                drawn, query=drawn.query[:, mixed], query_mask=drawn.query_mask[:, mixed],
                query_labels=drawn.query_labels[:, mixed],
            ),
            "renamed": replace(drawn, support_labels=task.way - 1 - drawn.support_labels),
        }  # fmt: skip

        def asked(episodes: Any, data: MultiViewData = data, prepared: Any = prepared) -> Array:
            scores = method.score_episodes(data, episodes, prepared).double()
            return np.asarray(scores.softmax(-1).numpy())

        wanted = asked(drawn)
        back = {"queries": np.s_[:, np.argsort(mixed)], "renamed": np.s_[..., ::-1]}
        for change, episodes in changed.items():
            found = asked(episodes)[back.get(change, np.s_[:])]
            counts[change].add(wanted.reshape(-1, task.way), found.reshape(-1, task.way))
    return counts, method.queries_together


def main() -> None:
    """Count, print and keep the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--methods", default="")
    parser.add_argument("--bench", action="store_true", help="on the path of a benchmark")
    parser.add_argument("--json", default=None)
    options = parser.parse_args()
    usual = [*names(), *MORE]
    if options.bench:
        usual = [name for name in names() if not create(name).tags.trained]
    texts = options.methods.split(",") if options.methods else usual
    columns = BENCH_COLUMNS if options.bench else COLUMNS
    rows = []
    for text in texts:
        start = perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            counts, declared = (count_bench if options.bench else count)(text)
        rows.append([text, declared, *(str(counts[name]) for name in columns)])
        print(f"{' | '.join(rows[-1])}  ({perf_counter() - start:.0f} s)", file=sys.stderr)
    header = ["method", "queries together", *columns]
    print_table(header, rows)
    if options.json:
        path, part = Path(options.json), "bench" if options.bench else "rows"
        kept = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        known = {row[0]: row for row in [*kept.get(part, []), *rows]}
        kept |= {
            "computed": datetime.now(UTC).date().isoformat(),
            part: [known[name] for name in sorted(known, key=lambda name: (":" in name, name))],
        }
        path.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
