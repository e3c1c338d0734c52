"""What the paper prints: its tables 2 to 10 cell by cell, and under which names they go here.

Nothing here is measured by us; the numbers come from `datasets/data/tables.csv`.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import NamedTuple

# The thirteen methods of the paper's tables, in the order printed: paper's name -> ours.
METHODS: dict[str, str] = {
    "Proto": "proto",
    "Match": "match",
    "TIM": "tim",
    "PTMAP": "ptmap",
    "RFS": "rfs",
    "BD-CSPN": "bd-cspn",
    "CPM": "cpm",
    "CPM-GAN": "cpm-gan",
    "ICMSC": "icmsc",
    "COMPLETER": "completer",
    "PTMAP+UGDA": "ptmap+ugda",
    "RFS+UGDA": "rfs+ugda",
    "UGDA": "ugda",
}
FEW_SHOT = ("Proto", "Match", "TIM", "PTMAP", "RFS", "BD-CSPN")
TRAINED = ("CPM", "CPM-GAN", "ICMSC", "COMPLETER")

# Rows of the ablation (tab:9): paper's name -> terms of self-rectification that are left.
ABLATION: dict[str, str] = {
    "Full ADSR": "cross_entropy+entropy",
    "w/o L_ce": "entropy",
    "w/o L_se": "cross_entropy",
    "w/o L_ce + w/o L_se": "none",
}

RATES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
_SHIFTED = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6)


@dataclass(frozen=True)
class PaperTable:
    """One table of the paper: `datasets` are the paper's names -> ours, `etas` missing rates."""

    name: str
    number: int  # of its TeX label, column `table` of `tables.csv`
    title: str
    datasets: dict[str, str]
    etas: tuple[float, ...] = RATES

    @property
    def label(self) -> str:
        """Printed number and TeX label; the notation table comes first, so they differ by one."""
        return f"Table {self.number + 1} [tab:{self.number}]"


TABLES: dict[str, PaperTable] = {
    table.name: table
    for table in (
        PaperTable("cub", 1, "Cub-googlenet-doc2vec, 3-way 1-shot 2-view",
                   {"Cub-googlenet-doc2vec": "cub_googlenet_doc2vec"}),
        PaperTable("handwritten", 2, "Handwritten, 3-way 1-shot 6-view",
                   {"Handwritten": "handwritten"}),
        PaperTable("caltech102", 3, "Caltech102, 5-way 1-shot 6-view",
                   {"Caltech102": "caltech102"}),
        PaperTable("scene15", 4, "Scene15, 3-way 1-shot 2-view", {"Scene15": "scene15"}),
        PaperTable("animal", 5, "Animal, 5-way 1-shot 2-view", {"Animal": "animal"}),
        PaperTable("orl", 6, "ORL, 5-way 1-shot 3-view", {"ORL": "orl"}),
        PaperTable("tieredimagenet", 7,
                   "tieredImagenet, 5-way 1-shot 3-view, dissimilar base classes",
                   {"tieredImagenet": "tieredimagenet"}, _SHIFTED),
        PaperTable("birds", 8,
                   "tieredImagenet -> Birds-200-2011, 5-way 1-shot 3-view, domain shift",
                   {"tieredImagenet->Birds-200-2011": "birds200"}, _SHIFTED),
        PaperTable("ablation", 9, "ablation of the anchor distribution self-rectification",
                   {"Caltech102": "caltech102", "Scene15": "scene15"}),
    )
}  # fmt: skip
SIX = ("cub", "handwritten", "caltech102", "scene15", "animal", "orl")
SHORT = {dataset: name for name in SIX for dataset in TABLES[name].datasets.values()}


class Printed(NamedTuple):
    """One number of the paper: accuracy and standard error, in percent."""

    accuracy: float
    standard_error: float


@cache
def printed() -> dict[tuple[str, str, str, float], Printed]:
    """The paper's numbers: (table, our data set, method as printed, eta) -> number."""
    text = files("fewview.datasets").joinpath("data", "tables.csv").read_text(encoding="utf-8")
    by_number = {table.number: table for table in TABLES.values()}
    out = {}
    for row in csv.DictReader(text.splitlines()):
        table = by_number[int(row["table"])]
        key = (table.name, table.datasets[row["dataset"]], row["method"], float(row["eta"]))
        out[key] = Printed(float(row["acc"]), float(row["se"]))
    return out
