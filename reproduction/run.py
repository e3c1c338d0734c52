"""What has to be computed for a study, and computing it through the store of fewview.

A run that is stopped goes on where it was: finished cells are in the store.
"""

from __future__ import annotations

import hashlib
import json
import random
import subprocess
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fewview import FewviewError, create, load
from fewview.datasets import class_split, get_spec, is_present, names
from fewview.evaluate import Grid, Outcome, Progress, standard_error
from fewview.evaluate import run as run_grid
from fewview.samples import largest_rate
from reproduction.records import COLUMNS, HERE, read_json

# How far a recorded row that is computed again may be, in points: rounding differs between kinds of
# device, and networks start from other random numbers there. Never less than two queries.
SAME_DEVICE, OTHER_DEVICE, NETWORKS, QUERIES = 0.1, 0.5, 6.0, 2
SLOWER = 20.0  # times as long as recorded, at most, on another kind of device


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

    def grid(self, device: str = "cpu", data_dir: str | None = None) -> Grid:
        """The same as a benchmark of fewview."""
        base = None
        if self.base is not None:
            data = load(self.dataset, data_dir)
            base = data[np.isin(np.asarray(data.labels), self.base)]
        return Grid(
            datasets=(self.dataset,), methods=tuple(self.methods.values()), etas=self.rates,
            splits=self.splits, episodes=self.episodes, seed=self.seed, base=base,
            scaling="paper", padding="paper", device=device, data_dir=data_dir,
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
        table = self.options.get("table")
        number = f"Table {table + 1} [tab:{table}]" if table else f"Fig. {self.name[-1]}"
        return f"{number}: {self.options['title']}"

    def planned(self, quick: bool = False, only: Sequence[str] = ()) -> list[Part]:
        """The parts to run; the quick protocol leaves out networks and Algorithm 1 (`adam`)."""
        if unknown := set(only) - set(self.rows):
            raise FewviewError(f"{self.name} has no row {unknown}; it has {', '.join(self.rows)}")
        splits, episodes = self.options["quick"] if quick else (10**9, 10**9)
        out = []
        for part in self.parts:
            methods = {row: text for row, text in part.methods.items()
                       if (not only or row in only) and not (quick and is_slow(text))}  # fmt: skip
            if methods and isinstance(part.splits, int):
                few = {"splits": min(part.splits, splits), "episodes": min(part.episodes, episodes)}
                out.append(replace(part, methods=methods, **few))
        return out


def is_slow(text: str) -> bool:
    """Whether a method takes seconds to minutes for a task: networks, and Algorithm 1 itself."""
    return bool(create(text).tags.trained) or "solver=adam" in text


def read_studies() -> dict[str, Any]:
    """`studies.toml` as it stands."""
    return tomllib.loads((HERE / "studies.toml").read_text(encoding="utf-8"))


def load_studies() -> dict[str, Study]:
    """All tables and figures by name."""
    content = read_studies()
    out = {}
    for name, own in content["study"].items():
        entry = content["defaults"] | own
        rows = entry.get("methods") or content["rows"] | entry.get("settings", {})
        parts = tuple(_parts(name, entry, rows, content))
        if "patterns" in entry:
            rows = {row: text for part in parts for row, text in part.methods.items()}
        out[name] = Study(name, rows, parts, entry)
    return out


def find_study(name: str) -> Study:
    """A study by its name."""
    studies = load_studies()
    if name not in studies:
        raise FewviewError(f"no study called {name!r}; use one of {', '.join(studies)}")
    return studies[name]


def _parts(
    name: str, entry: Mapping[str, Any], rows: Mapping[str, str], content: Mapping[str, Any]
) -> Iterator[Part]:
    """The parts of one study."""

    def part(path: str, dataset: str, methods: Mapping[str, str], **more: Any) -> Part:
        views = get_spec(dataset).n_views if dataset in names() else 99
        rates = tuple(eta for eta in entry["rates"] if eta <= largest_rate(views) + 1e-9)
        shape = {"splits": entry["splits"], "episodes": entry["episodes"]} | more
        return Part(study=path, dataset=dataset, methods=methods, rates=rates, **shape)

    if "base_sizes" in entry:
        every = class_split(entry["dataset"], 0).base
        orders = json.loads((HERE / "base_classes.json").read_text(encoding="utf-8"))
        for seed, drawn in enumerate(orders):
            for size in entry["base_sizes"]:
                base = tuple(drawn if size <= len(drawn) else every)[:size]
                yield part(f"{name}/{size}", entry["dataset"], rows, seed=seed, base=base)
    elif "parts" in entry:
        for item in entry["parts"]:
            place, _, last = item["path"].partition("/")
            methods = {row: text.format(**item) for row, text in rows.items()}
            if "patterns" in entry:
                methods = {str(k): entry["patterns"][last].format(k) for k in item["values"]}
            shape = {key: item[key] for key in ("splits", "episodes") if key in item}
            dataset = content["study"][place]["dataset"]
            yield part(f"{name}/{item['path']}", dataset, methods, **shape)
    else:
        networks = dict(content["networks"])
        trained = {row: rows[row] for row in networks.pop("rows")}
        yield part(name, entry["dataset"], {r: t for r, t in rows.items() if r not in trained})
        yield part(name, entry["dataset"], trained, **networks)


# ---------------------------------------------------------------------- computing


def run(
    parts: Sequence[Part],
    store: str | Path | None,
    *,
    device: str = "cpu",
    jobs: int = 1,
    data_dir: str | None = None,
    progress: Progress | None = None,
) -> tuple[pd.DataFrame, dict[str, Any], dict[str, Any]]:
    """Compute what the store lacks: rows as they are recorded, their runs and their settings."""
    rows: list[list[Any]] = []
    runs: dict[str, Any] = {}
    settings: dict[str, Any] = {}
    for part in parts:
        (progress or Progress()).message(f"{part.study}: {', '.join(part.methods)}")
        outcome = run_grid(part.grid(device, data_dir), store, jobs=jobs, progress=progress)
        if outcome.failures:
            cell, why = outcome.failures[0]
            raise FewviewError(f"{len(outcome.failures)} failed, first {cell.describe()}: {why}")
        rows += _rows(part, outcome, runs, settings)
    return pd.DataFrame(rows, columns=[*COLUMNS, "dataset"]), runs, settings


def _rows(
    part: Part, outcome: Outcome, runs: dict[str, Any], settings: dict[str, Any]
) -> Iterator[list[Any]]:
    """The rows of one part; what made them is added to `runs` and `settings`."""
    labels = {text: row for row, text in part.methods.items()}
    commit = current_commit()
    for cell in outcome.cells:
        result = outcome.results[cell.hash]
        accuracy = result.metrics.accuracy
        made = {"method": cell.method, "version": cell.method_version,
                "parameters": cell.parameters}  # fmt: skip
        ran = {"commit": commit, "date": result.created[:10], "device": cell.device,
               "versions": json.loads(result.versions)}  # fmt: skip
        short = [hashlib.sha256(json.dumps(x, sort_keys=True).encode()).hexdigest()[:6]
                 for x in (made, ran)]  # fmt: skip
        settings[short[0]], runs[short[1]] = made, ran
        whole = [outcome.results[other.hash].metrics.accuracy for other in outcome.cells
                 if (other.method, other.eta) == (cell.method, cell.eta)]  # fmt: skip
        yield [part.study, labels[cell.method], cell.eta, cell.seed, cell.split, cell.n_episodes,
               100 * float(accuracy.mean()), 100 * standard_error(np.concatenate(whole)),
               result.seconds + result.seconds_base, *short, cell.dataset]  # fmt: skip


def current_commit() -> str:
    """The commit that is checked out, or that there is none."""
    words = ["git", "-C", str(HERE), "rev-parse", "--short=8", "HEAD"]
    found = subprocess.run(words, capture_output=True, text=True, check=False)
    return found.stdout.strip() or "unknown"


def check(
    results: pd.DataFrame,
    count: int,
    *,
    seed: int = 0,
    seconds: float = 30.0,
    device: str = "cpu",
    data_dir: str | None = None,
    progress: Progress | None = None,
) -> pd.DataFrame:
    """Compute some recorded rows again, without a store; column `agrees` says which are the same.

    Drawn are rows whose data are here and that take no longer than `seconds`, as far as is known.
    """
    parts = {(part.study, row, part.seed): part for study in load_studies().values()
             for part in study.parts for row in part.methods}  # fmt: skip
    kinds = {key: ran["device"] for key, ran in read_json("runs").items()}
    results = results.assign(same=results["run"].map(kinds) == device)
    here = [is_present(name, data_dir) for name in results["dataset"]]
    quick = results["seconds"] * np.where(results["same"], 1.0, SLOWER) <= seconds
    usable = results[here & quick]
    drawn = random.Random(seed).sample(range(len(usable)), min(count, len(usable)))
    lines = []
    for place in (progress or Progress()).track(drawn, "recorded rows computed again"):
        row = usable.iloc[place]
        # Candidates and likely splits have the rows of a table on other class splits.
        path = row.study.removeprefix("likely/").removeprefix("candidates/")
        part = parts[path, row.method, row.seed]
        text, spec = part.methods[row.method], get_spec(row.dataset)
        part = replace(part, methods={row.method: text}, rates=(float(row.eta),),
                       splits=(int(row.split),), episodes=int(row.episodes))  # fmt: skip
        now = float(run([part], None, device=device, data_dir=data_dir)[0]["accuracy"].iloc[0])
        allowed = SAME_DEVICE if row.same else OTHER_DEVICE
        allowed *= NETWORKS if create(text).tags.trained else 1.0
        allowed = max(allowed, 100 * QUERIES / (spec.way * spec.queries * part.episodes))
        gap = now - row.accuracy
        lines.append({"study": row.study, "method": row.method, "eta": row.eta, "split": row.split,
                      "recorded": row.accuracy, "now": now, "difference": gap, "tolerance": allowed,
                      "agrees": "yes" if abs(gap) <= allowed + 1e-4 else "no"})  # fmt: skip
    return pd.DataFrame(lines)
