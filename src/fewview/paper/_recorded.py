"""Recorded results: the numbers behind tables, figures and claims, small files of the package.

One CSV file per name and set of options (`cub.csv`, `cub--solver-adam.csv`), a row per line of a
study and missing rate: means over a class split at the finest, nothing of a sample or an episode.
`runs.json` has versions and commands, `settings.json` the parameters of the methods, and a figure
that looks inside single tasks keeps its sheet as JSON.
"""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, fields
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from fewview.evaluate._grid import Grid, make_method
from fewview.ground._errors import FewviewError
from fewview.ground._rows import Row, render
from fewview.paper._printed import TABLES
from fewview.paper._sheets import write_texts
from fewview.paper._studies import Wish
from fewview.results._stale import version_key

FOLDER = Path(__file__).parent / "recorded"
RUNS, SETTINGS = "runs.json", "settings.json"
# Names that are made of what other names have.
MADE_OF = {"claims": (*TABLES, "figure4", "figure5", "figure7")}
# What tells a row from the others of its file; a new one replaces an old one.
IDENTITY = (
    "role", "tag", "label", "dataset", "base", "eta", "way", "shot", "queries", "query_counts",
    "missing", "seed", "fixed",
)  # fmt: skip
COLUMNS = (
    *IDENTITY, "method", "version", "settings", "accuracy", "se", "low", "high",
    "balanced_accuracy", "episodes", "split_means", "seconds_per_episode",
    "seconds_base_per_split", "device", "computed", "data", "run",
)  # fmt: skip
_WHOLE = ("way", "shot", "queries", "seed", "episodes")
_REAL = (
    "eta", "accuracy", "se", "low", "high", "balanced_accuracy", "seconds_per_episode",
    "seconds_base_per_split",
)  # fmt: skip
# Columns of sheets -> of `fewview bench`.
_SHORT = {
    "se": "standard_error", "range_low": "split_low", "range_high": "split_high",
    "splits": "n_splits", "episodes": "n_episodes",
}  # fmt: skip
# Of a wish, what changes no recorded number, or is chosen among recorded rows.
_NO_OPTION = ("device", "data_dir", "only", "features", "base_features", "planning")


# ---------------------------------------------------------------------- names of files


def options_of(wish: Wish) -> str:
    """The options of a wish that make its numbers others, as typed: `--solver adam`, or nothing."""
    words = []
    for item in fields(wish):
        value = getattr(wish, item.name)
        usual = item.default if item.default is not MISSING else None
        if item.name not in _NO_OPTION and value != usual:
            words += [f"--{item.name.replace('_', '-')}"] + ([] if value is True else [str(value)])
    return " ".join(words)


def command_of(wish: Wish, device: str) -> str:
    """The command that computes what is recorded, whatever its name."""
    words = ("fewview reproduce NAME --compute", options_of(wish), f"--device {device}")
    return " ".join(filter(None, words))


def stem(name: str, wish: Wish) -> str:
    """Name of the file of a name with the options of a wish, without its ending."""
    options = options_of(wish).replace(" --", "--").replace(" ", "-")
    return name + options


def listed(folder: Path = FOLDER) -> list[str]:
    """What is recorded: names of files without endings."""
    found = {path.stem for path in folder.glob("*.*") if path.name not in (RUNS, SETTINGS)}
    return sorted(found)


def not_recorded(name: str, wish: Wish, folder: Path = FOLDER) -> FewviewError:
    """The error where nothing is recorded for what was asked."""
    options = options_of(wish)
    chosen = f" --only {','.join(wish.only)}" if wish.only else ""
    there = sorted(found for found in listed(folder) if found.partition("--")[0] == name)
    known = f" (recorded: {', '.join(there)})" if there else ""
    return FewviewError(
        f"nothing is recorded for {name}{' ' if options else ''}{options}{chosen}{known}; "
        + to_compute(name, wish)
    )


def to_compute(name: str, wish: Wish) -> str:
    """What to type for results that are not recorded."""
    chosen = f"--only {','.join(wish.only)}" if wish.only else ""
    typed = " ".join(filter(None, (f"fewview reproduce {name}", options_of(wish), chosen)))
    return f"'{typed} --compute' computes it here"


# ---------------------------------------------------------------------- reading


def read(name: str, wish: Wish, folder: Path = FOLDER) -> list[Row]:
    """The recorded rows of a name, as `COLUMNS` say, in the order of the file."""
    if name in MADE_OF:
        return [row for one in MADE_OF[name] for row in read(one, wish, folder)]
    path = folder / f"{stem(name, wish)}.csv"
    return read_rows(path) if path.is_file() else []


def read_rows(path: Path) -> list[Row]:
    """The rows of one file."""
    with path.open(encoding="utf-8", newline="") as file:
        return [_parsed(row, path) for row in csv.DictReader(file)]


def _parsed(texts: Mapping[str, str], path: Path) -> Row:
    try:
        row: Row = {name: texts[name] for name in COLUMNS}
        row |= {name: int(row[name]) for name in _WHOLE}
        row |= {name: float(row[name]) if row[name] else None for name in _REAL}
        row["fixed"] = row["fixed"] == "yes"
        row["label"] = _number(row["label"])
        row["tag"] = tuple(_number(part) for part in row["tag"].split("|")) if row["tag"] else ()
        pairs = (part.split(":") for part in row["split_means"].split())
        row["split_means"] = {int(split): float(mean) for split, mean in pairs}
    except (KeyError, ValueError, TypeError) as error:
        raise FewviewError(f"{path}: not a file of recorded results ({error!r})") from None
    return row


def _number(text: str) -> str | int:
    return int(text) if text.isdecimal() else text


def read_json(path: Path) -> dict[str, Any]:
    """A JSON file of a dictionary; nothing where there is no file."""
    if not path.is_file():
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise FewviewError(f"{path}: not a JSON file ({error})") from None
    return dict(found)


def told(row: Row) -> Row:
    """A recorded row as rows of results are elsewhere (`results._summaries`)."""
    means = list(row["split_means"].values())
    splits = 1 if row["fixed"] else len(means)
    full = {
        "standard_error": row["se"], "split_low": row["low"], "split_high": row["high"],
        "n_splits": splits, "n_episodes": row["episodes"], "method_version": row["version"],
        "seconds": row["seconds_per_episode"] * row["episodes"],
        "seconds_base": row["seconds_base_per_split"] * len(means),
        "split_deviation": float(np.std(means, ddof=1)) if splits > 1 else None,
    }  # fmt: skip
    return with_short_names(row | full)


def with_short_names(row: Row) -> Row:
    """A row of results with the columns of sheets besides."""
    return row | {short: row[name] for short, name in _SHORT.items()}


# ---------------------------------------------------------------------- writing


def digest(text: str) -> str:
    """A short name of a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def write(
    name: str,
    wish: Wish,
    fresh: Sequence[Row],
    order: Sequence[tuple[Any, ...]],
    sources: tuple[Mapping[str, Any], Mapping[str, str]],
    folder: Path = FOLDER,
) -> int:
    """Merge new rows with those of a file, and say how many the file has now.

    `order` has the identities of all rows that the name has, in the order of the file; recorded
    rows that are no longer among them go. `sources` are runs and settings by their short names.
    """
    rows = {identity(row): row for row in read(name, wish, folder)}
    for row in fresh:
        old = rows.setdefault(identity(row), row)
        other = any(old[k] != row[k] for k in ("version", "settings", "data"))
        # Fewer class splits of the same are no news.
        if other or len(row["split_means"]) >= len(old["split_means"]):
            rows[identity(row)] = row
    kept = [rows[key] for key in order if key in rows]
    if kept:
        text = render(_written(kept), COLUMNS, "csv") + "\n"
        write_texts(folder, {f"{stem(name, wish)}.csv": text})
    for file, column, new in zip((RUNS, SETTINGS), ("run", "settings"), sources, strict=True):
        known = {**read_json(folder / file), **new}
        used = {text for path in folder.glob("*.csv") for text in _column(path, column)}
        write_json(folder / file, {key: known[key] for key in sorted(used & set(known))})
    return len(kept)


def identity(row: Row) -> tuple[Any, ...]:
    """What tells a row from the others of its file."""
    return tuple(round(row[name], 9) if name == "eta" else row[name] for name in IDENTITY)


def _written(rows: Iterable[Row]) -> list[Row]:
    return [
        row
        | {name: f"{row[name]:.4f}" if row[name] is not None else "" for name in
           ("accuracy", "se", "low", "high", "balanced_accuracy")}
        | {name: f"{row[name]:.4g}" for name in ("seconds_per_episode", "seconds_base_per_split")}
        | {"eta": f"{row['eta']:.10g}", "fixed": "yes" if row["fixed"] else "no",
           "tag": "|".join(map(str, row["tag"])),
           "split_means": " ".join(f"{k}:{mean:.4f}" for k, mean in row["split_means"].items())}
        for row in rows
    ]  # fmt: skip


def _column(path: Path, column: str) -> set[str]:
    with path.open(encoding="utf-8", newline="") as file:
        return {row[column] for row in csv.DictReader(file)}


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write a dictionary as JSON with a line per entry."""
    text = json.dumps(value, indent=1, ensure_ascii=False) + "\n"
    write_texts(path.parent, {path.name: text})


# ---------------------------------------------------------------------- out of date?


def stale(rows: Iterable[Row], folder: Path = FOLDER) -> list[str]:
    """Say of which methods recorded rows are no longer what would be computed, and why."""
    parameters = read_json(folder / SETTINGS)
    found: dict[str, str] = {}
    for row in rows:
        if row["method"] not in found:
            known = parameters.get(row["settings"], "")
            found[row["method"]] = _changed(row["method"], row["seed"], row["version"], known)
    return [f"{method}: {why}" for method, why in found.items() if why]


@lru_cache(maxsize=1024)
def _changed(text: str, seed: int, version: str, parameters: str) -> str:
    """What is different about a method now; nothing where it is the same."""
    grid = Grid(datasets=("digits",), methods=(text,), scaling="paper", padding="paper", seed=seed)
    try:
        method = make_method(text, grid)
    except (FewviewError, TypeError) as error:
        return f"recorded with version {version}, now it cannot be made ({error})"
    now = version_key(method)
    if now != version:
        return f"recorded with version {version}, now {now}"
    old, new = set(parameters.split(",")), set(method.key().split(","))
    if parameters and old != new:
        before, after = ", ".join(sorted(old - new)), ", ".join(sorted(new - old))
        return f"recorded with {before or 'less'}, now {after or 'less'}"
    return ""
