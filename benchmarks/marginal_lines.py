"""What stores of results say about Marginal: against the prototype, automatic settings, balance.

Run: python benchmarks/marginal_lines.py STORE [STORE ...]

The stores hold what the commands of docs/marginal.md computed (`fewview bench ... --store STORE`).
Differences are taken on the class splits that both sides have. Nothing is run here; what a store
lacks, or has from an older version of a method, is left out.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable

import numpy as np
from common import print_table

from fewview.results._cells import Result
from fewview.results._comparing import label, split_name
from fewview.results._stale import statuses
from fewview.results._store import Store
from fewview.samples import FewviewError

# Accuracy of the prototype with equal class masses, ten splits x 40 episodes or 3 x 40.
PROTOTYPE = {
    "scene15": {0.0: 83.7, 0.3: 78.0, 0.5: 74.7},
    "handwritten": {0.0: 98.9, 0.3: 97.0, 0.5: 92.7},
    "cub_googlenet_doc2vec": {0.0: 95.5, 0.3: 90.9, 0.5: 79.4},
    "leaves100": {0.0: 99.9, 0.3: 96.4, 0.5: 84.0},
    "caltech102": {0.0: 83.9, 0.3: 79.4, 0.5: 72.8},
    "tieredimagenet_tiny": {0.0: 83.2, 0.3: 80.1, 0.5: 79.2},
    "birds200": {0.0: 91.7, 0.3: 88.7, 0.5: 71.2},
    "orl": {0.0: 99.7, 0.1: 99.6, 0.3: 96.8},
}
AUTO, SOFT = "marginal", "marginal:settings=default"
FULL, ROOT = f"{SOFT}:balance=1", f"{SOFT}:scaling=root+standard+unit"
CURVE = {f"{ROOT}:balance=0": 0.0, f"{ROOT}:balance=0.25": 0.25, ROOT: 0.5}
CURVE |= {f"{ROOT}:balance=0.75": 0.75, f"{ROOT}:balance=1": 1.0}
Table = dict[tuple[str, float], dict[str, dict[str, float]]]


def gather(results: Iterable[Result], counts: str) -> Table:
    """Accuracies of one-shot tasks: (data set, missing rate) -> method -> class split."""
    out: Table = {}
    for result in results:
        cell = result.cell
        if cell.shot != 1 or cell.query_counts != counts:
            continue
        methods = out.setdefault((cell.dataset, cell.eta), {})
        accuracy = 100 * float(result.metrics.accuracy.mean())
        methods.setdefault(label(cell), {})[split_name(cell)] = accuracy
    return out


def differences(table: Table, one: str, two: str) -> dict[tuple[str, float], float]:
    """Mean difference of two methods on the class splits that both have, in points."""
    out = {}
    for place, methods in sorted(table.items()):
        shared = methods.get(one, {}).keys() & methods.get(two, {}).keys()
        if shared:
            out[place] = float(np.mean([methods[one][s] - methods[two][s] for s in shared]))
    return out


def show(title: str, found: dict[tuple[str, float], float]) -> None:
    """Print differences, a row for every data set, and their mean and range."""
    if not found:
        print(f"\n{title}: no cells")
        return
    etas = sorted({eta for _, eta in found})
    rows = [
        [data, *(f"{found[data, eta]:+.2f}" if (data, eta) in found else "" for eta in etas)]
        for data in dict.fromkeys(data for data, _ in found)
    ]
    values = np.array(list(found.values()))
    sets = [[v for (d, _), v in found.items() if d == row[0]] for row in rows]
    print(
        f"\n{title}: {len(values)} cells, mean {values.mean():+.2f} (mean over data sets "
        f"{np.mean([np.mean(part) for part in sets]):+.2f}), from {values.min():+.2f} to "
        f"{values.max():+.2f}"
    )
    print_table(["data set", *(f"eta {eta:g}" for eta in etas)], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("stores", nargs="+", metavar="STORE")
    options = parser.parse_args()
    results: list[Result] = []
    for path in options.stores:
        try:
            with Store(path, write=False) as store:
                results += store.select()
        except FewviewError as error:
            parser.error(str(error))
    status = statuses(results)
    results = [result for result in results if status[result.cell.hash] == "current"]
    equal, unequal = gather(results, "balanced"), gather(results, "dirichlet:2")

    against = {
        (data, eta): float(np.mean(list(equal[data, eta][FULL].values()))) - accuracy
        for data, row in PROTOTYPE.items()
        for eta, accuracy in row.items()
        if FULL in equal.get((data, eta), {})
    }
    show("full balance minus the prototype", against)
    print(f"within one point or above: {sum(v > -1 for v in against.values())} of {len(against)}")
    show("automatic settings minus the stated ones", differences(equal, AUTO, SOFT))
    show("the same, unequal classes", differences(unequal, AUTO, SOFT))
    show("soft balance minus full balance", differences(equal, SOFT, FULL))
    for other in ("ugda", "ptmap", "ugda (tuned)", "ptmap (tuned)"):
        for mine in (AUTO, SOFT, FULL, f"{ROOT}:balance=1"):
            show(f"{mine} minus {other}", differences(equal, mine, other))

    print("\nunequal classes (Dirichlet, 2), square roots of features, by the weight of balance")
    places = [p for p in sorted(unequal) if all(name in unequal[p] for name in CURVE)]
    if not places:
        print("no cells")
        return
    shared = {p: set.intersection(*(set(unequal[p][name]) for name in CURVE)) for p in places}
    rows = []
    for name, weight in CURVE.items():
        means = [float(np.mean([unequal[p][name][s] for s in shared[p]])) for p in places]
        rows.append([f"{weight:g}", *(f"{m:.1f}" for m in means), f"{np.mean(means):.2f}"])
    header = [f"{data} {eta:g} ({len(shared[data, eta])})" for data, eta in places]
    print_table(["balance", *header, "mean"], rows)


if __name__ == "__main__":
    main()
