"""The numbers on file: what the paper prints (`paper.csv`) and what was computed (`results/`)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from fewview import FewviewError

HERE = Path(__file__).parent
RESULTS = HERE / "results"
# A row per cell and class split, accuracies in percent. `standard_error` is over all episodes of
# the cell's class splits, as the paper has it, so it is the same in each of them.
COLUMNS = ["study", "method", "eta", "seed", "split", "episodes", "accuracy", "standard_error",
           "seconds", "settings", "run"]  # fmt: skip
FORMS = {"accuracy": "{:.4f}", "standard_error": "{:.4f}", "seconds": "{:.3g}", "eta": "{:g}"}


def read_paper() -> pd.DataFrame:
    """What the paper prints: table (number of the TeX label), dataset, method, eta, acc, se."""
    return pd.read_csv(HERE / "paper.csv")


def read_results(folder: Path = RESULTS) -> pd.DataFrame:
    """All recorded rows, `COLUMNS` and the data set, which is the name of the file."""
    texts = {"settings": str, "run": str}
    frames = [pd.read_csv(path, dtype=texts).assign(dataset=path.stem)
              for path in sorted(folder.glob("*.csv"))]  # fmt: skip
    if not frames or any(list(frame.columns[:-1]) != COLUMNS for frame in frames):
        raise FewviewError(f"{folder}: files of recorded results have {', '.join(COLUMNS)}")
    return pd.concat(frames, ignore_index=True)


def write_results(
    rows: pd.DataFrame, made: Mapping[str, Mapping[str, Any]], folder: Path = RESULTS
) -> None:
    """Put new rows in the place of those of the same study and method; other rows stay.

    `made` has the `runs` and `settings` that the rows name.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for dataset, new in rows.groupby("dataset", sort=False):
        path = folder / f"{dataset}.csv"
        texts = {name: new[name].map(form.format) for name, form in FORMS.items()}
        new = new[COLUMNS].assign(**texts)
        if path.is_file():
            old = pd.read_csv(path, dtype=str)
            same = set(zip(new["study"], new["method"], strict=True))
            kept = [pair not in same for pair in zip(old["study"], old["method"], strict=True)]
            new = pd.concat([old[kept], new])
        new.sort_values("study", kind="stable").to_csv(path, index=False, lineterminator="\n")
    for name, entries in made.items():
        write_json(name, entries, folder)


def read_json(name: str, folder: Path = RESULTS) -> dict[str, Any]:
    """`runs` and `settings` of the rows by their short names, or `tasks` of figures 3, 4, 6."""
    path = folder / f"{name}.json"
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else {}


def write_json(name: str, new: Mapping[str, Any], folder: Path = RESULTS) -> None:
    """Add entries to one of these files."""
    text = json.dumps(dict(sorted((read_json(name, folder) | dict(new)).items())), indent=1)
    (folder / f"{name}.json").write_text(text + "\n", encoding="utf-8")


def origin(results: pd.DataFrame) -> str:
    """Where rows come from: dates, devices, version, and the commits that they came in with."""
    known = read_json("runs")
    runs = [known[key] for key in results["run"].unique()]
    days = sorted(run["date"] for run in runs)
    devices = sorted({kind for run in runs for kind in run["device"].split(" and ")})
    versions = ", ".join(sorted({run["versions"]["fewview"] for run in runs}))
    when = " to ".join(dict.fromkeys((days[0], days[-1])))
    commits = ", ".join(sorted({run["commit"] for run in runs}))
    told = f"computed {when} on {' and '.join(devices)} with fewview {versions}"
    return f"{told}, recorded in commit {commits}"
