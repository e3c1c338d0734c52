"""What has to be computed for a study, and computing it through the store of fewview.

A run that is stopped goes on where it was: finished cells are in the store.
"""

from __future__ import annotations

import json
import random
import subprocess
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from hashlib import sha256
from typing import Any

import numpy as np
import pandas as pd

from fewview import FewviewError, create, load
from fewview.datasets import class_split, get_spec, is_present
from fewview.evaluate import Grid, Progress, bench
from reproduction.records import COLUMNS, HERE

# How far computed rows may be from recorded ones, in points: rounding differs between machines, and
# networks start from other random numbers on another kind of device. Never less than two queries.
POINTS, NETWORKS, QUERIES = 0.5, 6.0, 2
CHEAP = 2.0  # recorded seconds of rows that `check` draws, which may be those of a GPU


@dataclass(frozen=True, kw_only=True)
class Part:
    """The cells of one data set and protocol; `study` is what their rows are recorded under."""

    study: str
    dataset: str
    methods: Mapping[str, str]  # row of a table or line of a figure -> method as typed
    rates: tuple[float, ...]
    splits: int | tuple[int, ...]
    episodes: int
    seed: int = 0
    base: tuple[Any, ...] | None = None  # base classes, where they are fewer than all

    def grid(self, device: str = "cpu") -> Grid:
        """The same as a benchmark of fewview."""
        base = None
        if self.base is not None:
            data = load(self.dataset)
            base = data[np.isin(np.asarray(data.labels), self.base)]
        return Grid(
            datasets=(self.dataset,), methods=tuple(self.methods.values()), etas=self.rates,
            splits=self.splits, episodes=self.episodes, seed=self.seed, base=base,
            scaling="paper", padding="paper", device=device,
        )  # fmt: skip


@dataclass(frozen=True)
class Study:
    """One table or figure: its rows or lines, the cells behind it, and its entry of the file."""

    name: str
    rows: Mapping[str, str]
    parts: tuple[Part, ...]
    options: Mapping[str, Any]

    @property
    def title(self) -> str:
        """What it is called, printed number first; tables print one higher than their label."""
        table, number = self.options.get("table"), self.name.replace("figure", "Fig. ")
        number = f"Table {table + 1} [tab:{table}]" if table else number
        return f"{number}: {self.options['title']}"

    def planned(self, quick: bool = False, only: Sequence[str] = ()) -> list[Part]:
        """The parts to run; quick are one class split, no networks, no Algorithm 1 (`adam`)."""
        if unknown := set(only) - set(self.rows):
            raise FewviewError(f"{self.name} has no row {unknown}; it has {', '.join(self.rows)}")
        out = []
        for part in self.parts:
            methods = {row: text for row, text in part.methods.items() if (not only or row in only)
                       and not (quick and (is_network(text) or "solver=adam" in text))}  # fmt: skip
            splits = 1 if quick else part.splits
            out += [replace(part, methods=methods, splits=splits)] if methods else []
        return out


def is_network(text: str) -> bool:
    """Whether a method trains networks."""
    return bool(create(text).tags.trained)


@cache
def load_studies() -> dict[str, Study]:
    """All tables and figures by name."""
    content = tomllib.loads((HERE / "studies.toml").read_text(encoding="utf-8"))
    content |= {"orders": json.loads((HERE / "base_classes.json").read_text(encoding="utf-8"))}
    out = {}
    for name, own in content["study"].items():
        entry = content["defaults"] | own
        rows = entry.get("methods") or content["rows"] | entry.get("settings", {})
        parts = []
        for path, methods, more in _parts(name, entry, rows, content):
            item = entry | more
            texts = {row: text.format(**item) for row, text in methods.items()}
            rates = tuple(eta for eta in entry["rates"] if eta not in entry.get("never", ()))
            parts.append(Part(study=path, dataset=item["dataset"], methods=texts, rates=rates,
                              splits=item["splits"], episodes=item["episodes"],
                              seed=item.get("seed", 0), base=item.get("base")))  # fmt: skip
        made = {row: text for part in parts for row, text in part.methods.items()}
        rows = made if "patterns" in entry else {row: made.get(row, rows[row]) for row in rows}
        out[name] = Study(name, rows, tuple(parts), entry)
    return out


def _parts(
    name: str, entry: Mapping[str, Any], rows: Mapping[str, str], content: Mapping[str, Any]
) -> Iterator[tuple[str, Mapping[str, str], Mapping[str, Any]]]:
    """The parts of one study: path, rows, and what is not as in the rest of the study."""
    if "base_sizes" in entry:
        every = class_split(entry["dataset"], 0).base
        for seed, drawn in enumerate(content["orders"]):
            for size in entry["base_sizes"]:
                base = tuple(drawn if size <= len(drawn) else every)[:size]
                yield f"{name}/{size}", rows, {"seed": seed, "base": base}
    elif "parts" in entry:
        for item in entry["parts"]:
            place, _, last = item["path"].partition("/")
            if "patterns" in entry:
                rows = {str(k): entry["patterns"][last].format(k) for k in item["values"]}
            more = {"dataset": content["study"][place]["dataset"]}
            yield f"{name}/{item['path']}", rows, item | more
    else:
        trained = {row: rows[row] for row in content["networks"]["rows"]}
        yield name, {row: text for row, text in rows.items() if row not in trained}, {}
        yield name, trained, content["networks"]


def find_study(name: str) -> Study:
    """A study by its name."""
    if name not in load_studies():
        raise FewviewError(f"no study called {name!r}; use one of {', '.join(load_studies())}")
    return load_studies()[name]


def run(
    parts: Sequence[Part], store: str = "none", device: str = "cpu", jobs: int = 1,
    progress: Progress | None = None,
) -> tuple[pd.DataFrame, dict[str, dict[str, Any]]]:  # fmt: skip
    """Compute what the store lacks: rows as they are recorded, and what they name as made by."""
    rows: list[list[Any]] = []
    made: dict[str, dict[str, Any]] = {"settings": {}, "runs": {}}
    commit = current_commit()
    for part in parts:
        (progress or Progress()).message(f"{part.study}: {', '.join(part.methods)}")
        means, outcome = bench(part.grid(device), store=store, jobs=jobs, progress=progress)
        if outcome.failures:
            cell, why = outcome.failures[0]
            raise FewviewError(f"{len(outcome.failures)} failed, first {cell.describe()}: {why}")
        labels = {text: row for row, text in part.methods.items()}
        errors = {(row["method"], row["eta"]): row["standard_error"] for row in means}
        for cell in outcome.cells:
            result = outcome.results[cell.hash]
            about = {
                "settings": {"method": cell.method, "version": cell.method_version,
                             "parameters": cell.parameters},
                "runs": {"commit": commit, "date": result.created[:10], "device": cell.device,
                         "versions": json.loads(result.versions)},
            }  # fmt: skip
            texts = {name: json.dumps(one, sort_keys=True) for name, one in about.items()}
            short = {name: sha256(text.encode()).hexdigest()[:6] for name, text in texts.items()}
            for name, key in short.items():
                made[name][key] = about[name]
            rows.append([part.study, labels[cell.method], cell.eta, cell.seed, cell.split,
                         cell.n_episodes, 100 * float(result.metrics.accuracy.mean()),
                         errors[cell.method, cell.eta], result.seconds + result.seconds_base,
                         *short.values(), cell.dataset])  # fmt: skip
    return pd.DataFrame(rows, columns=[*COLUMNS, "dataset"]), made


def current_commit() -> str:
    """The commit that is checked out, or that there is none."""
    words = ["git", "-C", str(HERE), "rev-parse", "--short=8", "HEAD"]
    found = subprocess.run(words, capture_output=True, text=True, check=False)
    return found.stdout.strip() or "unknown"


def beside_record(rows: pd.DataFrame, results: pd.DataFrame) -> pd.DataFrame:
    """Computed rows beside the recorded ones of the same class splits, mean over these."""
    keys = ["study", "method", "eta"]
    both = rows.merge(results, on=[*keys, "seed", "split", "dataset"], suffixes=("", "_old"))
    lines = []
    for key, some in both.groupby(keys, sort=False):
        now, old = some["accuracy"].mean(), some["accuracy_old"].mean()
        text = find_study(key[0].removeprefix("likely/").partition("/")[0]).rows[key[1]]
        query = 100 / (some["episodes"].sum() * get_spec(some["dataset"].iloc[0]).queries)
        allowed = max(POINTS * (NETWORKS if is_network(text) else 1), QUERIES * query)
        agrees = "yes" if abs(now - old) <= allowed else "no"
        lines.append([*key, len(some), now, old, now - old, allowed, agrees])
    columns = [*keys, "splits", "now", "recorded", "difference", "tolerance", "agrees"]
    return pd.DataFrame(lines, columns=columns, dtype=object)


def check(
    results: pd.DataFrame, count: int, seed: int = 0, device: str = "cpu",
    progress: Progress | None = None,
) -> pd.DataFrame:  # fmt: skip
    """Compute some cheap recorded rows whose data are here again, without a store."""
    parts = {(part.study, row, part.seed): part for study in load_studies().values()
             for part in study.parts for row in part.methods}  # fmt: skip
    usable = results[[is_present(name) for name in results["dataset"]]]
    usable = usable[usable["seconds"] <= CHEAP]
    drawn = random.Random(seed).sample(range(len(usable)), min(count, len(usable)))
    lines = []
    for place in (progress or Progress()).track(drawn, "recorded rows computed again"):
        row = usable.iloc[place]
        part = parts[row.study.removeprefix("likely/"), row.method, row.seed]
        part = replace(part, study=row.study, methods={row.method: part.methods[row.method]},
                       rates=(float(row.eta),), splits=(int(row.split),),
                       episodes=int(row.episodes))  # fmt: skip
        lines.append(beside_record(run([part], device=device)[0], results))
    return pd.concat(lines, ignore_index=True)
