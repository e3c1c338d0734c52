"""Without base classes: supports and queries alone, through `fit` and `predict_proba`.

    python benchmarks/no_base.py [--datasets scene15,newsgroups,mine.npz] [--methods marginal,ptmap]
        [--shots 1,5] [--tasks 5]

Three classes with 15 queries each (fewer where classes are small), balanced queries and one class
with 80 % of them, missing rates 0 and 0.3: accuracy and calibration error in percent, means over a
data set. A data set is a known name, a file or a folder that `fewview` reads, with labels.
"""

from __future__ import annotations

import argparse
import os
import warnings
from itertools import product
from pathlib import Path

import numpy as np
from more_answers import calibration_error

from fewview import EpisodeSampler, FewviewWarning, MultiViewData, TaskSpec, create
from fewview.datasets import load
from fewview.datasets._catalogue import names

DEVELOPMENT = "scene15,cub_googlenet_doc2vec,newsgroups,movies617,wikipedia"
KINDS = ("balanced", "dominant:0.8")
RATES = (0.0, 0.3)


def read(name: str) -> MultiViewData:
    """A data set by its name, in the data folder or anywhere."""
    if name in names():
        return load(name)
    there = Path(os.environ.get("FEWVIEW_DATA", ".")) / f"{name}.npz"
    return MultiViewData.read(there if there.exists() else name)


def measure(data: MultiViewData, method: str, shot: int, tasks: int) -> tuple[float, float]:
    """Accuracy and calibration error, over kinds of queries and missing rates."""
    found = []
    sizes = np.bincount(data.codes[data.codes >= 0])
    large = [label for label, n in zip(data.classes, sizes, strict=True) if n >= shot + 3]
    queries = min(15, int(sizes[sizes >= shot + 3].min()) - shot)
    for kind, rate in product(KINDS, RATES):
        task = TaskSpec(way=3, shot=shot, queries=queries, query_counts=kind,
                        eta=min(rate, 1 - 1 / data.n_views))  # fmt: skip
        sure, right = [], []
        for episode in EpisodeSampler(data, task, large).draw(0, tasks):
            support = data[episode.support[0]].with_mask(episode.support_mask[0])
            query = data[episode.query[0]].with_mask(episode.query_mask[0])
            clf = create(method).fit(support)
            proba = clf.predict_proba(query.with_labels(None))
            sure.append(proba.max(1))
            right.append(clf.classes_[proba.argmax(1)] == query.labels)
        hits = np.concatenate(right)
        found.append((hits.mean(), calibration_error(np.concatenate(sure), hits)))
    accuracy, error = 100 * np.mean(found, axis=0)
    return float(accuracy), float(error)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--datasets", default=DEVELOPMENT)
    parser.add_argument("--methods", default="marginal,ptmap,tim-adm,proto")
    parser.add_argument("--shots", default="1,5")
    parser.add_argument("--tasks", type=int, default=5)
    options = parser.parse_args()
    warnings.simplefilter("ignore", FewviewWarning)
    methods = options.methods.split(",")
    for shot in map(int, options.shots.split(",")):
        table = []
        for name in options.datasets.split(","):
            data = read(name)
            table.append([measure(data, method, shot, options.tasks) for method in methods])
            told = ", ".join(f"{m} {a:.1f} ({e:.0f})" for m, (a, e) in zip(methods, table[-1],
                                                                          strict=True))  # fmt: skip
            print(f"{name}, {shot} shots: {told}", flush=True)
        means = np.mean(table, axis=0)
        told = ", ".join(f"{m} {a:.1f} ({e:.1f})" for m, (a, e) in zip(methods, means, strict=True))
        print(f"mean, {shot} shots: {told}", flush=True)


if __name__ == "__main__":
    main()
