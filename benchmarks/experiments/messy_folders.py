"""Twelve folders of tables as people have them, and what `fewview predict --data` makes of them.

    python benchmarks/experiments/messy_folders.py [RESULT.csv] [--only REGEX] [--folders DIR]

Every folder is made from a data set of FEWVIEW_DATA with fixed seeds: three labelled samples of
every new class, many of the known ones, the other labels of new classes hidden and kept aside. The
command is typed as by somebody who has read one page; what it printed, how many answers are right
and how many it said to expect, seconds, and errors go to RESULT.csv, a row for each folder. A
sample without an answer counts as wrong. Where the ids are lost, rows are compared in their order.
"""

from __future__ import annotations

import argparse
import csv
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import fewview

SHOT = 3
FIELDS = (
    "folder", "made_of", "mess", "classes_known", "classes_new", "queries", "status", "ids",
    "right", "expected", "own_probabilities", "method", "seconds", "cpu_seconds", "lines", "said",
)  # fmt: skip


@dataclass
class Samples:
    """Tables by view (index: the id), the label of every sample, and which classes are new."""

    tables: dict[str, pd.DataFrame]
    labels: pd.Series
    new: list[str]
    hidden: pd.Series = field(default_factory=lambda: pd.Series(dtype=object))

    def shown(self) -> pd.Series:
        """The labels with those of the queries taken out."""
        return self.labels.mask(self.labels.index.isin(self.hidden.index), "")


def take(name: str, known: int, new: int, most: int, seed: int = 0) -> Samples:
    """Some classes of a data set, at most so many samples of each, a quarter of all rows lost."""
    path, rng = Path(os.environ["FEWVIEW_DATA"]) / name, np.random.default_rng(seed)
    if path.is_dir():  # words stay words
        labels = pd.read_csv(path / "labels.csv", index_col="id", dtype=str)["label"]
        files = [file for file in sorted(path.glob("*.csv")) if file.stem != "labels"]
        tables = {f.stem: pd.read_csv(f, index_col="id", dtype=str) for f in files}
    else:
        data = fewview.MultiViewData.read(path.with_suffix(".npz"))
        ids = [f"s{number:04d}" for number in range(len(data))]
        labels = pd.Series([f"class {label}" for label in data.labels], ids)
        tables = {
            view: pd.DataFrame(np.round(block, 4), ids).add_prefix(f"{view}_")
            for view, block in data.views.items()
        }
    sizes = labels.value_counts()
    large = sorted(sizes.index[sizes >= SHOT + 5])
    chosen = [str(label) for label in rng.permutation(large)[: known + new]]
    rows = pd.Index(
        np.concatenate([rng.permutation(labels.index[labels == label])[:most] for label in chosen])
    )
    labels = labels[rng.permutation(rows)]
    if not path.is_dir():  # those have gaps of their own
        lost = rng.random((len(labels), len(tables))) < 0.25
        lost[np.arange(len(labels)), rng.integers(len(tables), size=len(labels))] = False
        lost = pd.DataFrame(lost, labels.index, list(tables))
        tables = {view: table[~lost[view].reindex(table.index, fill_value=True)]
                  for view, table in tables.items()}  # fmt: skip
    tables = {
        view: table.loc[rng.permutation(table.index.intersection(labels.index))]
        for view, table in tables.items()
    }
    is_new = labels.isin(chosen[known:])
    supports = labels[is_new].groupby(labels[is_new]).head(SHOT).index
    hidden = labels[is_new & ~labels.index.isin(supports)]
    return Samples(tables, labels, chosen[known:], hidden)


def write(samples: Samples, folder: Path, ending: str = "csv", **how: Any) -> None:
    """One file per view and one of labels."""
    for view, table in samples.tables.items():
        table.to_csv(folder / f"{view}.{ending}", index_label="id", **how)
    labels = samples.shown().rename("label")
    labels.to_csv(folder / f"labels.{ending}", index_label="id", **{**how, "decimal": "."})


# ------------------------------------------------------------------ twelve kinds of mess
# Each writes a folder, and returns what is hidden in it and words for the command line.

Made = tuple[Samples, list[str]]


def plain(folder: Path) -> Made:
    """Rows in any order that do not match; nothing else."""
    samples = take("leaves100", 25, 5, 16)
    write(samples, folder)
    return samples, []


def words(folder: Path) -> Made:
    """Six tables of categorical words with empty cells."""
    samples = take("soybean", 11, 4, 40)
    write(samples, folder)
    return samples, []


def european(folder: Path) -> Made:
    """Semicolons, decimal commas, empty cells; ids of cell lines with spaces."""
    samples = take("ccle", 12, 4, 40)
    for view, table in samples.tables.items():
        numbers = table.apply(pd.to_numeric, errors="coerce")
        samples.tables[view] = numbers.rename(lambda name: name.replace("_", " "))
    for part in ("labels", "hidden"):
        setattr(samples, part, getattr(samples, part).rename(lambda name: name.replace("_", " ")))
    write(samples, folder, sep=";", decimal=",")
    return samples, []


def western(folder: Path) -> Made:
    """Tabs, Latin-1, names of columns with letters beyond ASCII, the label in one of the tables."""
    samples = take("dermatology", 4, 2, 40)
    clinical = samples.tables["clinical"].rename(columns=lambda name: f"Größe {name}")
    clinical = clinical.reindex(samples.labels.index)  # without a row there is no label
    samples.tables["clinical"] = clinical.assign(**{"Diagnose": samples.shown()})
    for view, table in samples.tables.items():
        table.to_csv(folder / f"{view}.tsv", sep="\t", index_label="id", encoding="latin-1")
    return samples, ["--labels", "Diagnose"]


def units(folder: Path) -> Made:
    """Numbers with their unit in every cell, and percent."""
    samples = take("handwritten", 6, 4, 40)
    del samples.tables["pix"], samples.tables["fac"]
    for view, unit in (("mor", " mm"), ("zer", " %")):
        table = samples.tables[view]
        samples.tables[view] = table.apply(lambda column, u=unit: column.map("{:g}".format) + u)
    keep = samples.labels.index[
        samples.labels.index.isin(pd.concat([*samples.tables.values()], axis=1).index)
    ]
    samples.labels, samples.hidden = samples.labels[keep], samples.hidden.filter(keep)
    write(samples, folder)
    return samples, []


def one_table(folder: Path) -> Made:
    """One wide table, its label called Diagnosis, its key 'Patient ID', a date and a remark."""
    samples = take("arrhythmia", 6, 3, 60)
    table = pd.concat(samples.tables.values(), axis=1).reindex(samples.labels.index)
    day = pd.to_datetime("2021-01-04") + pd.to_timedelta(np.arange(len(table)) % 200, unit="D")
    remark = np.where(np.arange(len(table)) % 7, "", "see letter of the ward, call again")
    table.insert(0, "seen on", day.strftime("%d.%m.%Y"))
    table = table.assign(Diagnosis=samples.shown(), Remark=remark)
    table.to_csv(folder / "export 2021.csv", index_label="Patient ID")
    return samples, ["--labels", "Diagnosis"]


def excel_names(folder: Path) -> Made:
    """Files as a spreadsheet saves them: spaces in names, byte order marks, empty last rows."""
    samples = take("wikipedia", 6, 4, 40)
    files = {"image": "Image features (1).csv", "text": "Text FINAL v2.csv"}
    blanks = {"image": "\r\n".join(["," * 128] * 3), "text": "\r\n".join(["," * 10] * 2)}
    for view, table in samples.tables.items():
        text = table.to_csv(index_label="ID ", lineterminator="\r\n") + blanks[view]
        (folder / files[view]).write_text(text, encoding="utf-8-sig", newline="")
    labels = samples.shown().rename(" Label")
    labels.to_csv(folder / "labels.csv", index_label="ID", encoding="utf-8-sig")
    return samples, []


def sentinels(folder: Path) -> Made:
    """-999 where nothing was measured, a column without a name that counts rows."""
    samples = take("satimage", 4, 2, 60)
    rng = np.random.default_rng(1)
    for view, table in samples.tables.items():
        samples.tables[view] = table.mask(rng.random(table.shape) < 0.05, -999.0)
    for view, table in samples.tables.items():
        numbered = table.rename_axis("id").reset_index()
        numbered.to_csv(folder / f"{view}.csv", index_label="")
    samples.shown().rename("label").to_csv(folder / "labels.csv", index_label="id")
    return samples, []


def few_known(folder: Path) -> Made:
    """Only two known classes; the key has a name of its own in every table."""
    samples = take("epilepsy", 2, 2, 60)
    for number, (view, table) in enumerate(samples.tables.items()):
        table.to_csv(folder / f"{view}.csv", index_label=f"sensor {number} id")
    samples.shown().rename("label").to_csv(folder / "labels.csv", index_label="id")
    return samples, []


def other_labels(folder: Path) -> Made:
    """Labels in 'classes.csv' under 'kind', hidden ones as '?', and a file of notes."""
    samples = take("webkb", 2, 2, 60)
    for view, table in samples.tables.items():
        table.loc[:, (table != 0).any()].astype(int).to_csv(
            folder / f"{view}.csv", index_label="id"
        )
    labels = samples.shown().replace("", "?").rename("kind")
    labels.to_csv(folder / "classes.csv", index_label="id")
    (folder / "notes.txt").write_text("Counted in May; ask Ada about the anchors.\n")
    return samples, ["--labels", "kind"]


def zeros_lost(folder: Path) -> Made:
    """Twelve tables; in half of them a spreadsheet made 7 of the id 0007."""
    samples = take("proteinfold", 16, 5, 20)
    for part in ("labels", "hidden"):
        setattr(samples, part, getattr(samples, part).rename(lambda name: name[1:]))
    for number, (view, table) in enumerate(samples.tables.items()):
        table = table.rename(lambda name, n=number: name[1:] if n % 2 else str(int(name[1:])))
        table.to_csv(folder / f"{view}.csv", index_label="id")
    samples.shown().rename("label").to_csv(folder / "labels.csv", index_label="id")
    return samples, []


def repeated(folder: Path) -> Made:
    """Some samples measured twice, a constant column, a column of one value per row, odd blanks."""
    samples = take("libras", 9, 4, 24)
    rng = np.random.default_rng(1)
    for view, table in samples.tables.items():
        table = table.assign(
            device="K7", barcode=[f"b{n:05d}" for n in rng.permutation(len(table))]
        )
        text = table.astype(str)
        text[text.columns[3]] = " " + text[text.columns[3]] + " "
        twice = text.sample(4, random_state=1)
        samples.tables[view] = pd.concat([text, twice])
    write(samples, folder)
    return samples, []


FOLDERS: dict[str, tuple[str, Callable[[Path], Made]]] = {
    work.__name__: (name, work)
    for name, work in {
        "leaves100": plain, "soybean": words, "ccle": european, "dermatology": western,
        "handwritten": units, "arrhythmia": one_table, "wikipedia": excel_names,
        "satimage": sentinels, "epilepsy": few_known, "webkb": other_labels,
        "proteinfold": zeros_lost, "libras": repeated,
    }.items()
}  # fmt: skip


# ------------------------------------------------------------------ run and write down


def key(name: object) -> str:
    """An id however a table writes it: without spaces around it and leading zeros."""
    text = " ".join(str(name).split())
    return text.lstrip("0") if text.isdigit() else text


def run(title: str, folder: Path) -> dict[str, Any]:
    """Make a folder, run the command on it, and say what came of it."""
    made_of, work = FOLDERS[title]
    folder.mkdir(parents=True)
    samples, more = work(folder)
    out = folder.with_suffix(".predictions.csv")
    new = ",".join(samples.new)
    command = ["predict", "--data", str(folder), "--new", new, *more, "-o", str(out)]
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "fewview", *command], capture_output=True, text=True
    )
    seconds, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    said = (done.stderr + done.stdout).replace(str(folder.parent) + "/", "").splitlines()
    row = {
        "folder": title, "made_of": made_of, "mess": (work.__doc__ or "").splitlines()[0],
        "classes_known": samples.labels.nunique() - len(samples.new),
        "classes_new": len(samples.new), "queries": len(samples.hidden),
        "status": "refused" if done.returncode else "answers", "seconds": f"{seconds:.0f}",
        "cpu_seconds": f"{after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime:.0f}",
        "lines": len(said),
    }  # fmt: skip
    if done.returncode:
        errors = [line for line in said if line.startswith("error")] or said[-1:]
        return row | {"said": " ".join(errors)[:300]}
    with out.open(encoding="utf-8") as file:
        answers = {key(answer["id"]): answer["label"] for answer in csv.DictReader(file)}
    kept = any(key(name) in answers for name in samples.hidden.index)
    found = [answers.get(key(name)) for name in samples.hidden.index]
    if not kept:  # rows were numbered: the answers come in their order
        found = list(answers.values())
    right = [answer == label for answer, label in zip(found, samples.hidden, strict=True)]
    text = "\n".join(said)
    expected = re.search(r"expect about (\d+) %", text)
    more_ways = re.search(r"classes that would be (\d+) %", text)
    own = re.search(r"own probabilities say (\d+) %", text)
    method = re.search(r"learning from all of them with (\S+)", text)
    return row | {
        "ids": "kept" if kept else "lost",
        "right": f"{100 * np.mean(right):.1f}",
        "expected": (more_ways or expected or ["", ""])[1],
        "own_probabilities": (own or ["", ""])[1],
        "method": (method or ["", ""])[1],
        "said": " | ".join(line for line in said if line.startswith("warning"))[:300],
    }


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("result", type=Path, nargs="?", default=Path("build/messy.csv"))
    parser.add_argument("--only", default="", metavar="REGEX")
    parser.add_argument("--folders", type=Path, help="keep the folders here; it must not exist")
    options = parser.parse_args()
    options.result.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch, options.result.open("w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        writer.writeheader()
        for title in FOLDERS:
            if re.search(options.only, title):
                row = run(title, (options.folders or Path(scratch)) / title)
                writer.writerow(row)
                file.flush()
                print(*(f"{name}={row[name]}" for name in FIELDS if name in row), flush=True)


if __name__ == "__main__":
    main()
