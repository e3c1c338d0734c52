"""Folders of tables with words and empty cells, from folder to predictions: how many are right?

Run: python benchmarks/experiments/own_tables.py [FOLDER ...] [--splits 5] [--tasks 6] [--shot 3]

For every folder (by default soybean and ccle of the data folder) 5 classes are new, in several
class splits; of each a few samples keep their label, and some others are to be predicted. What
`fewview predict --data` does (divide, choose a method on the known classes, fit, predict) is
compared with standardised logistic regression, the nearest neighbour and gradient boosting, which
are trained on the same labelled samples of the new classes, with empty cells and missing views
filled with means. Queries are balanced, of unequal shares, or mostly of one class. The method is
chosen once per class split, since its choice sees known classes alone.
"""

from __future__ import annotations

import argparse
import csv
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fewview import EpisodeSampler, FewviewWarning, MultiViewData, TaskSpec, create
from fewview.datasets._catalogue import data_folder
from fewview.datasets._splits import draw_split
from fewview.evaluate._divided import choose_method, divide
from fewview.methods.estimator.fitted_base import usual_task

KINDS = ("balanced", "dirichlet:2", "dominant:0.8")
WAY, QUERIES = 5, 5
PLAIN: dict[str, Any] = {
    "logistic regression": LogisticRegression(max_iter=2000),
    "nearest neighbour": KNeighborsClassifier(1),
    "gradient boosting": GradientBoostingClassifier(random_state=0),
}


def transcript(folder: Path, scratch: Path, shot: int) -> None:
    """Run the command itself on a copy of a folder with most labels of new classes taken out."""
    data = MultiViewData.read(folder)
    sizes = dict(zip(data.classes.tolist(), np.bincount(data.codes).tolist(), strict=True))
    large = [label for label, size in sizes.items() if size >= shot + 2 * QUERIES]
    new = draw_split(large, len(large) - WAY, WAY, 0, 1, folder.name).novel
    copy = scratch / folder.name
    copy.mkdir()
    for file in folder.glob("*.csv"):
        (copy / file.name).write_text(file.read_text(encoding="utf-8"), encoding="utf-8")
    with (folder / "labels.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    held: dict[str, str] = {}
    seen: dict[str, int] = {}
    for row in rows:
        seen[row["label"]] = seen.get(row["label"], 0) + 1
        if row["label"] in new and seen[row["label"]] > shot:
            held[row["id"]], row["label"] = row["label"], ""
    with (copy / "labels.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, ["id", "label"])
        writer.writeheader()
        writer.writerows(rows)
    out = scratch / f"{folder.name}-predictions.csv"
    command = ["predict", "--data", folder.name, "--new", ",".join(new), "-o", out.name]
    print(f"$ fewview {' '.join(command)}", flush=True)
    start = perf_counter()
    run = subprocess.run(
        [sys.executable, "-m", "fewview", *command], cwd=scratch, text=True, capture_output=True
    )
    lines = [line for line in run.stderr.splitlines() if not line.startswith(("[", "warning:"))]
    print("\n".join(line for line in lines if " already stored, " not in line))
    print(run.stdout.rstrip())
    with out.open(encoding="utf-8") as file:
        right = [held[row["id"]] == row["label"] for row in csv.DictReader(file)]
    print(
        f"held-back labels: {100 * np.mean(right):.1f} % of {len(right)} right; "
        f"{perf_counter() - start:.0f} s in all\n",
        flush=True,
    )


def measure(folder: Path, splits: int, tasks: int, shot: int) -> None:
    """Print mean accuracy over tasks, for every kind of queries and every way to predict."""
    data = MultiViewData.read(folder).without_ids()
    assert data.labels is not None
    sizes = np.bincount(data.codes)
    large = data.classes[sizes >= shot + 2 * QUERIES].tolist()
    side = np.asarray(data, dtype=np.float64)
    ways = ("fewview predict --data", *PLAIN)
    right: dict[tuple[str, str], list[float]] = {(kind, way): [] for kind in KINDS for way in ways}
    chosen: list[str] = []
    for split in range(splits):
        novel = draw_split(large, len(large) - WAY, WAY, split, 0, folder.name).novel
        known = ~np.isin(data.labels, np.array(novel))
        clf = None
        for kind in KINDS:
            task = TaskSpec(way=WAY, shot=shot, queries=QUERIES, query_counts=kind)
            for episode in EpisodeSampler(data, task, novel, name=folder.name).draw(0, tasks):
                support, query = episode.support[0], episode.query[0]
                truth = data.labels[query]
                rows = np.concatenate([np.flatnonzero(known), support, query])
                labels = [*data.labels[rows[: -len(query)]], *[None] * len(query)]
                parts = divide(data[rows].with_labels(labels), [str(name) for name in novel])
                if clf is None:
                    with tempfile.TemporaryDirectory() as store:
                        advice, _ = choose_method(parts, 60.0, f"{store}/results.sqlite")
                    assert advice is not None
                    assert parts.base is not None
                    chosen.append(advice.method)
                    wish = usual_task(parts.base, way=WAY, shot=shot, queries=parts.queries)
                    clf = create(advice.method).fit_base(parts.base, task=wish)
                found = clf.fit(parts.support).predict(parts.query)
                right[kind, ways[0]].append(float(np.mean(found == truth)))
                fill = make_pipeline(SimpleImputer(keep_empty_features=True), StandardScaler())
                fill.fit(side[rows[: -len(query)]])
                for way, plain in PLAIN.items():
                    plain.fit(fill.transform(side[support]), data.labels[support])
                    guess = plain.predict(fill.transform(side[query]))
                    right[kind, way].append(float(np.mean(guess == truth)))
        print(f"{folder.name}: split {split} done, {chosen[-1]} was chosen", file=sys.stderr)
    print(f"\n{folder.name}: {splits * tasks} tasks of {WAY} new classes, {shot} shots, "
          f"{WAY * QUERIES} queries; chosen: {', '.join(chosen)}\n")  # fmt: skip
    print(f"| queries | {' | '.join(ways)} |\n|---|{'---|' * len(ways)}")
    for kind in KINDS:
        cells = []
        for way in ways:
            values = 100 * np.array(right[kind, way])
            error = values.std(ddof=1) / np.sqrt(len(values))
            cells.append(f"{values.mean():.1f} ±{error:.1f}")
        print(f"| {kind} | {' | '.join(cells)} |", flush=True)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--tasks", type=int, default=6)
    parser.add_argument("--shot", type=int, default=3)
    options = parser.parse_args()
    warnings.simplefilter("ignore", FewviewWarning)
    folders = options.folders or [Path(data_folder(None)) / name for name in ("soybean", "ccle")]
    with tempfile.TemporaryDirectory() as scratch:
        for folder in folders:
            transcript(folder, Path(scratch), options.shot)
    for folder in folders:
        measure(folder, options.splits, options.tasks, options.shot)


if __name__ == "__main__":
    main()
