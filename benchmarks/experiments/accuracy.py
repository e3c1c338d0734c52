"""The record of accuracies that every published number is made from.

    python benchmarks/experiments/accuracy.py record [--store FILE] [--data-dir DIR]
        [--datasets digits,orl] [--methods proto,marginal] [--quick]

Runs what the store lacks (stop it at any moment and start it again) and writes one file for each
data set, `benchmarks/results/accuracy/<set>.csv`: a row for every class split, missing rate and
method, nothing per sample. `settings.json` beside them resolves `settings_id`. Rows of other
methods that the file has already stay. `--quick` (2 splits x 5 tasks) writes to `build/accuracy`.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from fewview import FewviewWarning, MultiViewData, load
from fewview.datasets import data_folder, names
from fewview.evaluate import PlainProgress, Result, make_grid, plan, run
from fewview.results import EpisodeMetrics

ROOT = Path(__file__).resolve().parents[2]
RECORD = ROOT / "benchmarks" / "results" / "accuracy"
QUICK = ROOT / "build" / "accuracy"
# The cheapest come first.
SETS = (
    "digits", "dermatology", "epilepsy", "satimage", "ering", "libras", "scene15", "wikipedia",
    "arrhythmia", "soybean", "ccle", "webkb", "leaves100", "proteinfold", "handwritten",
    "newsgroups", "movies617", "citeseer", "cub_googlenet_doc2vec", "orl", "tieredimagenet_tiny",
    "birds200", "caltech102",
)  # fmt: skip
METHODS = ("proto", "tim-adm", "ptmap", "ugda", "concat-logistic", "marginal")
RATES = (0.0, 0.3, 0.5)
FEW_SPLITS = {"epilepsy": 6, "webkb": 6}  # four classes can be split in no more ways
KEY = (
    "dataset", "features", "way", "shot", "query_counts", "missing_rule", "eta", "seed", "method",
)  # fmt: skip
COLUMNS = (
    "dataset", "features", "way", "shot", "query_counts", "missing_rule", "eta", "seed", "split",
    "method", "settings_id", "is_default", "method_version", "sampler_version", "accuracy", "ece",
    "log_loss", "n_tasks", "ms_per_task", "device", "data_sha256", "fewview_version", "date",
)  # fmt: skip


def find(name: str, folder: Path) -> tuple[str, MultiViewData]:
    """Say under which name or path `bench` finds a data set, and read it."""
    if name in names():
        return name, load(name, folder)
    path = folder / name if (folder / name).is_dir() else folder / f"{name}.npz"
    return str(path), MultiViewData.read(path)


def settings_id(method_class: str, parameters: str) -> str:
    """Name resolved parameters: the start of a content hash."""
    return hashlib.sha256(f"{method_class} {parameters}".encode()).hexdigest()[:8]


def pooled(results: Sequence[Result]) -> EpisodeMetrics:
    """Put repetitions of one class split together; they differ in their tasks."""
    parts = [result.metrics for result in results]
    per_task = [item.name for item in fields(EpisodeMetrics) if item.name != "bins"]
    joined = {name: np.concatenate([getattr(part, name) for part in parts]) for name in per_task}
    return EpisodeMetrics(**joined, bins=np.sum([part.bins for part in parts], axis=0))


def row_of(
    results: Sequence[Result], data: MultiViewData, defaults: Mapping[str, str]
) -> dict[str, str]:
    """One row of the record, from the repetitions of one class split.

    `defaults` has the resolved parameters of methods as they come, by name.
    """
    cell, metrics = results[0].cell, pooled(results)
    method = cell.method.partition(":")[0]
    seconds = sum(result.seconds for result in results)
    as_found = cell.eta == 0 and not data.mask.all()
    values: dict[str, Any] = {
        **{name: getattr(cell, name) for name in COLUMNS if hasattr(cell, name)},
        "features": "+".join(data.views),
        "missing_rule": "as found" if as_found else cell.missing,
        "split": 0 if cell.fixed else cell.split,
        "method": method,
        "settings_id": settings_id(cell.method_class, cell.parameters),
        "is_default": str(cell.parameters == defaults[method]).lower(),
        "accuracy": f"{100 * metrics.accuracy.mean():.3f}",
        "ece": f"{100 * metrics.ece:.2f}",
        "log_loss": f"{metrics.log_loss.mean():.4f}",
        "n_tasks": len(metrics),
        "ms_per_task": f"{1000 * seconds / len(metrics):.2f}",
        "data_sha256": cell.data_checksum[:16],
        "fewview_version": json.loads(results[0].versions)["fewview"],
        "date": results[0].created[:10],
    }
    return {name: str(values[name]) for name in COLUMNS}


def key_of(row: Mapping[str, str]) -> tuple[str | int, ...]:
    """What a row is about; the defaults of a method are one thing, whatever they were before."""
    settings = "" if row["is_default"] == "true" else row["settings_id"]
    return (*(row[name] for name in KEY), settings, int(row["split"]))


def write(
    folder: Path,
    name: str,
    data: MultiViewData,
    results: Iterable[Result],
    defaults: Mapping[str, str],
) -> Path:
    """Add results to the file of a data set and to `settings.json`; the same cell is replaced."""
    folder.mkdir(parents=True, exist_ok=True)
    path, resolved = folder / f"{name}.csv", folder / "settings.json"
    known = json.loads(resolved.read_text(encoding="utf-8")) if resolved.exists() else {}
    rows = {}
    if path.exists():
        with path.open(encoding="utf-8", newline="") as file:
            rows = {key_of(row): row for row in csv.DictReader(file)}

    def place(result: Result) -> tuple[Any, ...]:
        cell = result.cell
        return cell.method, cell.eta, 0 if cell.fixed else cell.split

    for _, group in groupby(sorted(results, key=place), key=place):
        found = list(group)
        row = row_of(found, data, defaults)
        rows[key_of(row)] = row
        cell = found[0].cell
        known[row["settings_id"]] = {"class": cell.method_class, "parameters": cell.parameters}
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows[key] for key in sorted(rows))
    resolved.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    return path


def record(arguments: argparse.Namespace) -> None:
    """Run and write one data set after another."""
    folder = Path(arguments.data_dir) if arguments.data_dir else data_folder()
    methods = arguments.methods.split(",")
    for name in arguments.datasets.split(","):
        place, data = find(name, folder)
        splits, tasks = (2, 5) if arguments.quick else (FEW_SPLITS.get(name, 10), 40)
        rates = RATES if data.mask.all() else RATES[:1]
        grid = make_grid(
            [place], methods=methods, eta=",".join(map(str, rates)), shot=1, splits=splits,
            episodes=tasks, data_dir=str(folder),
        )  # fmt: skip
        plain = replace(grid, methods=tuple(m.partition(":")[0] for m in methods))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FewviewWarning)  # gaps of the data's own are meant
            defaults = {cell.method: cell.parameters for cell in plan(plain)}
            outcome = run(grid, arguments.store, progress=PlainProgress(interval=30.0))
        results = outcome.results.values()
        path = write(QUICK if arguments.quick else RECORD, name, data, results, defaults)
        failed = "".join(f"\n  failed: {c.describe()}: {why}" for c, why in outcome.failures)
        print(f"{path.relative_to(ROOT)}: {outcome.computed} cells computed, "
              f"{outcome.reused} taken from the store{failed}", flush=True)  # fmt: skip


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("command", choices=["record"])
    parser.add_argument("--store", default=str(ROOT / "build" / "accuracy.sqlite"))
    parser.add_argument("--data-dir", help="default: $FEWVIEW_DATA")
    parser.add_argument("--datasets", default=",".join(SETS))
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--quick", action="store_true", help="a trial; never published")
    record(parser.parse_args())


if __name__ == "__main__":
    main()
