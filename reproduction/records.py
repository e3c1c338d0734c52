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
# A row per cell and class split. `standard_error` is over all episodes of the cell's class splits,
# as the paper has it, so it is the same in each of them; accuracies are in percent.
COLUMNS = [
    "study", "method", "eta", "seed", "split", "episodes", "accuracy", "standard_error", "seconds",
    "settings", "run",
]  # fmt: skip
CANDIDATES = "class_splits"  # the file of what weighs class splits, one row per class split


def read_paper(path: Path = HERE / "paper.csv") -> pd.DataFrame:
    """What the paper prints: table (of the TeX label), dataset, method, eta, acc, se."""
    return pd.read_csv(path)


def read_results(folder: Path = RESULTS) -> pd.DataFrame:
    """All recorded rows, `COLUMNS` and the data set, which is the name of the file."""
    files = [path for path in sorted(folder.glob("*.csv")) if path.stem != CANDIDATES]
    if not files:
        raise FewviewError(
            f"{folder}: no recorded results; 'python -m reproduction run' makes some"
        )
    texts = {"settings": str, "run": str}
    read = [pd.read_csv(path, dtype=texts).assign(dataset=path.stem) for path in files]
    for path, frame in zip(files, read, strict=True):
        if list(frame.columns[:-1]) != COLUMNS:
            raise FewviewError(f"{path}: not a file of recorded results; columns: {COLUMNS}")
    return pd.concat(read, ignore_index=True)


def read_json(name: str, folder: Path = RESULTS) -> dict[str, Any]:
    """`runs` and `settings` of the rows by their short names, `data` checksums, or `tasks`."""
    path = folder / f"{name}.json"
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else {}


def write_json(name: str, new: Mapping[str, Any], folder: Path = RESULTS) -> None:
    """Add entries to one of these files."""
    known = read_json(name, folder) | dict(new)
    text = json.dumps(dict(sorted(known.items())), indent=1, ensure_ascii=False)
    (folder / f"{name}.json").write_text(text + "\n", encoding="utf-8")


def write_results(rows: pd.DataFrame, folder: Path = RESULTS) -> list[Path]:
    """Put new rows in the place of those of the same study and method; other rows stay."""
    folder.mkdir(parents=True, exist_ok=True)
    out = []
    for dataset, some in rows.groupby("dataset", sort=False):
        path = folder / f"{dataset}.csv"
        new = some[COLUMNS].astype({"eta": float})
        if path.is_file():
            old = pd.read_csv(path, dtype={"settings": str, "run": str})
            places = pd.MultiIndex.from_frame(new[["study", "method"]])
            kept = ~pd.MultiIndex.from_frame(old[["study", "method"]]).isin(places)
            new = pd.concat([old[kept], new])
        formats = {"accuracy": "{:.4f}", "standard_error": "{:.4f}", "seconds": "{:.3g}",
                   "eta": "{:g}"}  # fmt: skip
        for column, form in formats.items():
            new[column] = new[column].map(form.format)
        new.sort_values("study", kind="stable").to_csv(path, index=False, lineterminator="\n")
        out.append(path)
    return out


def origin(results: pd.DataFrame, folder: Path = RESULTS) -> dict[str, str]:
    """Where recorded rows come from: commits, dates, devices, versions and commands, as text."""
    known = read_json("runs", folder)
    runs = [known[key] for key in results["run"].unique() if key in known]
    versions = {
        f"{name} {version}"
        for run in runs
        for name in ("fewview", "python", "torch")
        for version in str(run["versions"].get(name, "?")).split(" and ")
    }
    days = sorted({run["date"] for run in runs})
    parts = {key: sorted({run[key] for run in runs}) for key in ("commit", "device", "command")}
    devices = sorted({kind for text in parts["device"] for kind in text.split(" and ")})
    return {
        "commit": ", ".join(parts["commit"]),
        "date": " to ".join(dict.fromkeys(days[:1] + days[-1:])),
        "device": " and ".join(devices),
        "versions": ", ".join(sorted(versions)),
        "command": "; ".join(parts["command"]),
    }
