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
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fewview import FewviewError, create, load
from fewview.datasets import class_split, get_spec, is_present, names
from fewview.evaluate import Grid, Outcome, Progress, standard_error
from fewview.evaluate import run as run_grid
from fewview.samples import largest_rate
from reproduction.records import HERE

STUDIES = HERE / "studies.toml"
# Of a recorded row that is computed again, in points of accuracy: rounding differs between kinds of
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
    base: tuple[int, ...] | None = None  # base classes, where they are fewer than all

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


@dataclass(frozen=True, kw_only=True)
class Study:
    """One table or figure: what it is called, its rows or lines, and the cells behind it."""

    name: str
    title: str
    table: int | None  # number of the paper's table by its TeX label
    rates: tuple[float, ...]
    methods: tuple[str, ...]
    parts: tuple[Part, ...]
    quick: tuple[int, int]
    options: Mapping[str, Any]  # as it stands in `studies.toml`

    @property
    def label(self) -> str:
        """Printed number first; tables print one higher than their TeX label."""
        if self.table is not None:
            return f"Table {self.table + 1} [tab:{self.table}]"
        return f"Fig. {self.name.removeprefix('figure')}"

    def planned(self, quick: bool = False, only: Sequence[str] = ()) -> list[Part]:
        """The parts to run; the quick protocol leaves out networks and Algorithm 1 (`adam`)."""
        out = []
        for part in self.parts:
            methods = {
                label: text
                for label, text in part.methods.items()
                if (not only or label in only) and not (quick and is_slow(text))
            }
            if methods and quick:
                splits = min(self.quick[0], part.splits if isinstance(part.splits, int) else 99)
                part = replace(part, splits=splits, episodes=min(self.quick[1], part.episodes))
            out += [replace(part, methods=methods)] if methods else []
        if not out:
            left = f" --only {','.join(only)}" if only else ""
            raise FewviewError(
                f"{self.name}{' --quick' if quick else ''}{left}: nothing to compute; its rows are "
                f"{', '.join(self.methods)}" if self.parts else f"{self.name}: see 'show --compute'"
            )  # fmt: skip
        return out


def is_slow(text: str) -> bool:
    """Whether a method takes seconds to minutes for a task: networks, and Algorithm 1 itself."""
    return bool(create(text).tags.trained) or "solver=adam" in text


def load_studies(path: Path = STUDIES) -> dict[str, Study]:
    """Read all studies; the first parts of their paths are data sets of other studies."""
    content = tomllib.loads(path.read_text(encoding="utf-8"))
    known = {
        name: entry["dataset"] for name, entry in content["study"].items() if "dataset" in entry
    }
    out = {}
    for name, entry in content["study"].items():
        entry = content["defaults"] | entry
        rows = entry.get("methods") or content["rows"] | entry.get("settings", {})
        parts = tuple(_parts(name, entry, rows, known, content["networks"]))
        every = dict.fromkeys(label for part in parts for label in part.methods)
        out[name] = Study(
            name=name, title=entry["title"], table=entry.get("table"), rates=tuple(entry["rates"]),
            methods=tuple(rows if "methods" in entry or "table" in entry else every), parts=parts,
            quick=tuple(entry.get("quick", (1, 1))), options=entry,
        )  # fmt: skip
    return out


def find_study(name: str, studies: Mapping[str, Study]) -> Study:
    """A study by its name."""
    try:
        return studies[name]
    except KeyError:
        raise FewviewError(f"no study called {name!r}; use one of {', '.join(studies)}") from None


def _parts(
    name: str,
    entry: Mapping[str, Any],
    rows: Mapping[str, str],
    known: Mapping[str, str],
    networks: Mapping[str, Any],
) -> Iterator[Part]:
    """The parts of one study."""

    def part(study: str, dataset: str, methods: Mapping[str, str], **more: Any) -> Part:
        own = entry | more
        views = get_spec(dataset).n_views if dataset in names() else 0
        rates = [eta for eta in entry["rates"] if not views or eta <= largest_rate(views) + 1e-9]
        return Part(
            study=study, dataset=dataset, methods=methods, rates=tuple(rates),
            splits=own["splits"], episodes=own["episodes"], seed=more.get("seed", 0),
            base=more.get("base"),
        )  # fmt: skip

    if "base_sizes" in entry:
        every = class_split(entry["dataset"], 0).base
        for seed, drawn in enumerate(entry["drawn"]):
            for size in entry["base_sizes"]:
                base = tuple(drawn[:size]) if size <= len(drawn) else every[:size]
                yield part(f"{name}/{size}", entry["dataset"], rows, seed=seed, base=base)
    elif "parts" in entry:
        for item in entry["parts"]:
            methods = item.get("methods", rows)
            if "pattern" in item:
                methods = {str(value): item["pattern"].format(value) for value in item["values"]}
            dataset = known[item["path"].partition("/")[0]]
            own = {key: item[key] for key in ("splits", "episodes") if key in item}
            yield part(f"{name}/{item['path']}", dataset, methods, **own)
    else:
        plain = {label: text for label, text in rows.items() if label not in networks["rows"]}
        yield part(name, entry["dataset"], plain)
        trained = {label: rows[label] for label in networks["rows"]}
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
    """Compute what the store lacks: rows to record, and the runs and settings that they name."""
    frames, runs, settings = [], {}, {}
    for part in parts:
        told = f"{part.study}: {', '.join(part.methods)}, {part.splits} x {part.episodes}"
        if progress is not None:
            progress.message(told)
        grid = part.grid(device, data_dir)
        outcome = run_grid(grid, store, jobs=jobs, progress=progress)
        if outcome.failures:
            cell, why = outcome.failures[0]
            raise FewviewError(
                f"{len(outcome.failures)} cells failed, the first: {cell.describe()}: {why}"
            )
        frames.append(_rows(part, outcome, runs, settings))
    return pd.concat(frames, ignore_index=True), runs, settings


def _rows(
    part: Part, outcome: Outcome, runs: dict[str, Any], settings: dict[str, Any]
) -> pd.DataFrame:
    """The rows of one part; what made them is added to `runs` and `settings`."""
    labels = {text: label for label, text in part.methods.items()}
    episodes: dict[tuple[str, float], list[Any]] = {}
    for cell in outcome.cells:
        found = outcome.results[cell.hash].metrics.accuracy
        episodes.setdefault((cell.method, cell.eta), []).append(found)
    rows = []
    for cell in outcome.cells:
        result = outcome.results[cell.hash]
        made = {"method": cell.method, "version": cell.method_version,
                "parameters": cell.parameters}  # fmt: skip
        here = {"versions": json.loads(result.versions), "device": cell.device,
                "date": result.created[:10], "commit": _commit(),
                "command": f"python -m reproduction run {part.study.partition('/')[0]}"}  # fmt: skip
        settings[short(made)], runs[short(here)] = made, here
        error = standard_error(np.concatenate(episodes[cell.method, cell.eta]))
        rows.append({
            "study": part.study, "method": labels[cell.method], "eta": cell.eta, "seed": cell.seed,
            "split": cell.split, "episodes": cell.n_episodes,
            "accuracy": 100 * float(result.metrics.accuracy.mean()),
            "standard_error": 100 * error, "seconds": result.seconds + result.seconds_base,
            "settings": short(made), "run": short(here), "dataset": cell.dataset,
        })  # fmt: skip
    return pd.DataFrame(rows)


def short(value: Mapping[str, Any]) -> str:
    """A short name of what made a row."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:6]


def _commit() -> str:
    """The commit that is checked out, or what there is to say without one."""
    words = ["git", "-C", str(HERE), "rev-parse", "--short=8", "HEAD"]
    found = subprocess.run(words, capture_output=True, text=True, check=False)
    return found.stdout.strip() or "unknown"


def today() -> str:
    """The date, UTC."""
    return datetime.now(UTC).date().isoformat()


# ---------------------------------------------------------------------- checking


def check(
    results: pd.DataFrame,
    runs: Mapping[str, Any],
    count: int,
    *,
    studies: Mapping[str, Study],
    seed: int = 0,
    seconds: float = 30.0,
    device: str = "cpu",
    data_dir: str | None = None,
    progress: Progress | None = None,
) -> pd.DataFrame:
    """Compute some recorded rows again, without a store; column `agrees` says which are the same.

    Drawn are rows whose data are here and that take no longer than `seconds`, as far as is known.
    """
    parts = {(p.study, label, p.seed): p for s in studies.values() for p in s.parts
             for label in p.methods}  # fmt: skip
    kinds = {key: run["device"] for key, run in runs.items()}
    factor = results["run"].map(lambda key: 1.0 if kinds.get(key) == device else SLOWER)
    here = results["dataset"].map({d: is_present(d, data_dir) for d in set(results["dataset"])})
    usable = results[here & (factor * results["seconds"] <= seconds)]
    drawn = random.Random(seed).sample(range(len(usable)), min(count, len(usable)))
    lines = []
    told = progress or Progress()
    for row in told.track([usable.iloc[k] for k in drawn], "recorded rows computed again"):
        part = parts.get((row.study.removeprefix("likely/"), row.method, row.seed))
        if part is None:
            raise FewviewError(f"{row.study}, {row.method}: no longer a row of any study")
        text = part.methods[row.method]
        part = replace(part, methods={row.method: text}, rates=(row.eta,),
                       splits=(int(row.split),), episodes=int(row.episodes))  # fmt: skip
        found, _, _ = run([part], None, device=device, data_dir=data_dir)
        allowed = SAME_DEVICE if kinds.get(row.run) == device else OTHER_DEVICE
        allowed *= NETWORKS if create(text).tags.trained else 1.0
        spec = get_spec(row.dataset)
        allowed = max(allowed, 100 * QUERIES / (spec.way * spec.queries * row.episodes))
        gap = float(found["accuracy"].iloc[0]) - row.accuracy
        lines.append({
            "study": row.study, "method": row.method, "eta": row.eta, "split": row.split,
            "recorded": row.accuracy, "now": row.accuracy + gap, "difference": gap,
            "tolerance": allowed, "agrees": abs(gap) <= allowed + 1e-4,
        })  # fmt: skip
    return pd.DataFrame(lines)
