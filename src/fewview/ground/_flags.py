"""An option of a command line, declared once for every command that has it.

The `fewview` command (typer) and the commands for bare machines (argparse, `python -m
fewview.evaluate`) are made from the same tables. Reading them loads nothing.
"""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Option:
    """An option: its flag is its name with dashes, unless `flags` says otherwise."""

    help: str
    kind: type = str  # bool: a switch, off by default
    default: Any = None
    metavar: str | None = None
    flags: tuple[str, ...] = ()
    several: bool = False  # may be given several times

    def flags_of(self, name: str) -> tuple[str, ...]:
        """What is typed for an option of this name."""
        return self.flags or (f"--{name.replace('_', '-')}",)


def add_options(parser: ArgumentParser, options: Mapping[str, Option]) -> None:
    """Declare options to a parser of the standard library."""
    for name, option in options.items():
        how: dict[str, Any] = {"action": "store_true"}
        if option.kind is not bool:
            how = {"type": option.kind, "default": option.default, "metavar": option.metavar}
            if option.several:
                how["action"] = "append"
        text = option.help.replace("%", "%%")
        parser.add_argument(*option.flags_of(name), dest=name, help=text, **how)


DATA_DIR = Option("Folder of data files. Default: $FEWVIEW_DATA, else the user's cache.")
DEVICE = Option("cpu, cuda or auto.", default="cpu")
FORCE = Option("Let -o replace an input, or write into a folder of inputs.", bool)
HTML = Option("Write one self-contained page too, to be opened in a browser.", metavar="FILE")
WIDE = Option("All columns, however narrow the terminal is.", bool)
JOBS = Option("Number of processes; they share the cores.", int, 1)

# How samples are read; names are those of the parameters of `MultiViewData.read`.
READING = {
    "labels": Option(
        "What holds the labels, by name: a column of the label file or of any table (folder), a "
        "column of obs (.h5ad, .h5mu), a variable (.mat) or an array (.npz).",
        metavar="NAME",
    ),
    "key": Option(
        "In folders of tables, the column that identifies a sample. Default: 'id', else the one "
        "that all tables have with another value in every row.",
        metavar="COLUMN",
    ),
    "partial_rows": Option(
        "Rows that are partly empty: 'keep' (a method fills the cells with what it learnt), "
        "'drop_view' (the view counts as missing there), 'mean' (fill with means of this file) or "
        "'error'.",
        default="keep",
    ),
    "disjoint": Option(
        "Tables that have no id in common are meant so: every sample has one view.", bool
    ),
}

# Tables in parts, a folder with a folder of tables for each.
PARTS = {
    "jobs": JOBS,
    "cluster": Option(
        "For a table in parts: work on the workers of this Dask scheduler, which see the same "
        "files under the same names (docs/large-tables.md).",
        metavar="ADDRESS",
    ),
}
BLOCK = {
    "block": Option(
        "For queries in parts: neighbours that a method may look at together; 1 is every query "
        "alone.",
        int,
        metavar="N",
    ),
}

# Predicting: where samples are, what is asked about them, and how it is written.
PREDICT = {
    "data": Option(
        "One folder or file with everything: labelled samples of known and of new classes, and "
        "unlabelled ones, which are classified into the new classes.",
        metavar="DATA",
    ),
    "new": Option(
        "With --data: the new classes. Default: those with at most 5 labelled samples.",
        metavar="A,B,...",
    ),
    "seconds": Option(
        "With --data and without --method: after this time no other method is tried.", float, 60.0
    ),
    "query": Option("Samples to classify.", metavar="DATA"),
    "model": Option("What 'fewview fit' wrote.", metavar="FILE"),
    "method": Option(
        "Instead of --model: a method that works without base classes; with --data, the method to "
        "use instead of the best one."
    ),
    "support": Option("A few labelled samples of every new class.", metavar="DATA"),
    "reject": Option(
        "Call queries that look like none of the classes unknown; the number is the share of known "
        "ones that may be rejected by mistake, such as 0.05.",
        float,
    ),
    "reject_label": Option("What rejected queries are called.", default="unknown"),
    "classes": Option(
        "What samples may be: of the new classes, or of all, the base classes too.",
        default="new",
        metavar="new|all",
    ),
    "sets": Option(
        "Add the column set: the classes that hold the true one with this probability, such as "
        "0.9.",
        float,
    ),
    "explain": Option(
        "Write reasons too: NAME.reasons.csv and NAME.reasons.png beside the output.", bool
    ),
    "html": HTML,
    "alone": Option(
        "Add the column probability_alone for every method that looks at queries together; "
        "marginal has it anyway, others take one more pass per query.",
        bool,
    ),
    "spreadsheet_safe": Option(
        "Put an apostrophe before texts that a spreadsheet would take for a formula (=, +, -, @); "
        "only in .csv.",
        bool,
    ),
    "device": DEVICE,
    "force": FORCE,
}

# A benchmark; names are those of the parameters of `make_grid` and `bench`.
BENCH = {
    "base": Option("Take the base classes from this data set (name or file) instead."),
    "methods": Option(
        "Methods separated by commas, parameters after colons: 'ptmap:padding=zero,proto'; 'all' "
        "is every method that trains no network; 'mine:MyMethod' is one in your file mine.py.",
        default="proto",
    ),
    "eta": Option("Missing rates, separated by commas.", default="0"),
    "way": Option("Classes per task; by default the data set's usual number.", int),
    "shot": Option("Labelled samples per class; by default as usual.", int),
    "queries": Option("Queries per class; by default as usual.", int),
    "splits": Option(
        "Number of class splits, or fewer where there are not so many; or 'all'. Default: 10."
    ),
    "episodes": Option("Episodes per class split. Default: 40.", int),
    "query_counts": Option(
        "Queries per class: 'balanced', 'dirichlet:2' for shares drawn from a Dirichlet "
        "distribution, or 'dominant:0.8' for one class with that share and equal other ones.",
        default="balanced",
    ),
    "missing": Option(
        "How views go missing: 'uniform', 'class' (classes lose views of their own) or 'patterns' "
        "(resample the gaps that the data have; eta then follows from them).",
        default="uniform",
    ),
    "seed": Option("Another seed gives other episodes.", int, 0),
    "scaling": Option(
        "For every method: scale, minmax, standard, unit, root+unit, standard+unit, "
        "root+standard+unit, by-width, natural (by what the entries of a view are), none, or "
        "'paper' (per method as in the paper). A parameter typed with a method wins."
    ),
    "padding": Option(
        "How missing views are filled for methods that need it, and for those that can have gaps "
        "or not (cpm, cpm-gan, icmsc, completer): episode, zero, support, base, or 'paper'. The "
        "latter also take none and class."
    ),
    "jobs": JOBS,
    "cluster": Option(
        "Compute on the workers of this Dask scheduler, for instance tcp://host:8786 "
        "(docs/cluster.md). Results are written here.",
        metavar="ADDRESS",
    ),
    "device": DEVICE,
    "dtype": Option("float32 or float64.", default="float32"),
    "max_memory": Option(
        "Memory that a batch of tasks may take; by default 1 GiB on a CPU and 16 on a GPU, or half "
        "of what it has.",
        float,
        metavar="GIB",
    ),
    "store": Option(
        "File of results; what it has is not computed again. 'none' keeps nothing. Default: "
        "$FEWVIEW_STORE, else results.sqlite in the user's cache folder."
    ),
    "tune": Option("Choose every method's settings on base classes.", bool),
    "keep_probabilities": Option(
        "Keep the probabilities of every query in the store too, so that a new metric needs no new "
        "run; cells that were stored without them are computed again.",
        bool,
    ),
    "open_set": Option(
        "Half of the classes of a task have no supports: how well are their queries found? Reports "
        "AUROC and precision at recall 0.9; results are not stored.",
        bool,
    ),
    "protocol": Option(
        "'splits': 10 class splits x 40 episodes; 'paper': 1 split x 400.", default="splits"
    ),
    "data_dir": DATA_DIR,
    "json_path": Option("Write the results there as JSON.", metavar="FILE", flags=("--json",)),
}
# Those that say how a grid is run; the others say what it is.
RUNNING = ("jobs", "cluster", "store", "open_set", "json_path")
