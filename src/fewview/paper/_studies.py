"""What has to be computed for each name: grids of cells, in full or by the quick protocol.

A name is a table, a figure, the claims, or one of the studies beyond the paper. Everything that is
an accuracy is a cell of a grid, so it goes through the store; nothing is drawn or printed here, and
numpy, scipy, scikit-learn and torch are enough.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np

from fewview.datasets._catalogue import get_spec, is_present
from fewview.datasets._catalogue import names as dataset_names
from fewview.datasets._loading import load
from fewview.datasets._splits import class_split
from fewview.engine._registry import names as method_names
from fewview.evaluate._grid import Grid
from fewview.evaluate._sources import find_source
from fewview.ground._draws import combine, raw, smallest, stream_key
from fewview.ground._errors import FewviewError
from fewview.methods.ugda._ugda import PRESETS
from fewview.paper._printed import ABLATION, METHODS, TABLES, TRAINED
from fewview.samples._data import MultiViewData
from fewview.samples._masks import MissingRule
from fewview.samples._rates import largest_rate

FIGURES = ("figure3", "figure4", "figure5", "figure6", "figure7")
BEYOND = ("imbalance", "shots", "missingness", "time")
NAMES = (*TABLES, *FIGURES, "claims", *BEYOND, "splits")

# Class splits x episodes per split; methods that train networks have fewer.
FULL = (10, 40)
FULL_TRAINED = (3, 20)
QUICK: dict[str, tuple[int, int]] = {
    "cub": (5, 20), "handwritten": (5, 20), "scene15": (5, 20), "caltech102": (3, 10),
    "animal": (2, 5), "orl": (3, 5), "tieredimagenet": (3, 10), "birds": (3, 10),
}  # fmt: skip
QUICK_TRAINED = {name: (2, 5 if name in ("cub", "handwritten", "scene15") else 2) for name in QUICK}

# Class splits that are weighed: all 210 of cub and handwritten, the first so many of the others
# (6435 of scene15, far more of the rest), of which 0 to 9 are listed and the rest drawn by seed.
CANDIDATES = {
    "cub": 210, "handwritten": 210, "caltech102": 100, "scene15": 1000, "animal": 100, "orl": 100,
}  # fmt: skip
# Episodes of the other methods on likely splits of wide views, where UGDA takes seconds for one.
WIDE_EPISODES = {"caltech102": 10, "animal": 10, "orl": 10}
# The rows that weigh them depend on no setting of ours. Never UGDA's own row: it is to be judged.
WEIGHING = ("Proto", "Match")

STAND_INS = {"tieredimagenet": "tieredimagenet_tiny", "birds": "birds200"}
BASE_SIZES = (2, 5, 10, 20, 40, 80)
BASE_REPETITIONS = 5
ITERATIONS = (1, 5, 10, 20, 30, 40)
STEPS = (1, 2, 5, 10, 15, 20)
ANCHORS = (0, 1, 10, 50, 100, 200)
NEIGHBOURS = {"caltech102": (0, 1, 2, 4, 8, 16), "cub_googlenet_doc2vec": (0, 1, 2, 3, 4, 6)}
SMALL_SETS = ("handwritten", "cub_googlenet_doc2vec", "scene15")
IMBALANCES = ("balanced", "dirichlet:10", "dirichlet:5", "dirichlet:2", "dirichlet:1")
SHOTS = (1, 2, 3, 5, 10)
# The solver of the tables: the aggregation solved exactly, then rectified by the paper's 1000 steps
# of Adam, because the fast search ends elsewhere in some cells (docs/paper-settings.md). The quick
# protocol has the fast one.
AS_PRINTED = "paper"
SOLVERS = (AS_PRINTED, *PRESETS)
# Its stated settings: choosing them needs more base classes than some studies have.
MARGINAL = "marginal"
BASE_METHODS = {"UGDA": "ugda", "w/o UGDA (Proto)": "proto", "Marginal": MARGINAL}
COMPARED = {
    "Proto": "proto", "RFS": "rfs", "PTMAP": "ptmap", "PADDLE": "paddle", "UGDA": "ugda",
    "Marginal": MARGINAL,
}  # fmt: skip
# Data sets that CPM-Nets has published settings for; the others take those of handwritten.
SCRIPTS = {"cub_googlenet_doc2vec": "cub", "animal": "animal", "orl": "orl"}


@dataclass(frozen=True, kw_only=True)
class Wish:
    """How a reproduction is to be run."""

    quick: bool = False  # the smaller protocol, minutes per name on two cores
    # "cpu", "cuda", "auto", or "any": whatever kind of device stored results come from, and the
    # best there is for the others.
    device: str = "cpu"
    data_dir: str | None = None
    features: str | None = None  # a user's own file in place of the data set of the one table
    base_features: str | None = None  # and of its base classes
    only: tuple[str, ...] = ()  # registered names of methods; empty for all
    planning: bool = False  # nothing is computed: data that are not here are planned for too
    # Of the methods that train networks: "paper" (the published sizes), "fast", or None for the
    # first of these and with `quick` the second.
    preset: str | None = None
    # Of UGDA, alone and in combinations, wherever a study does not name one itself.
    solver: str = AS_PRINTED

    def __post_init__(self) -> None:
        if self.solver not in SOLVERS:
            raise FewviewError(f"--solver {self.solver}: use {', '.join(SOLVERS)}")
        # Methods of any table or figure; what one of them has, it says itself.
        texts = (*METHODS.values(), *BASE_METHODS.values(), *COMPARED.values())
        known = dict.fromkeys(text.partition(":")[0] for text in texts)
        for name in self.only:
            if name not in known:
                raise FewviewError(
                    f"--only {name}: no table or figure has a method of that name (settings after "
                    "a colon are those of the table and are not given here); use "
                    f"{', '.join(known)}"
                )

    @property
    def sizes(self) -> str:
        """The preset of the methods that train networks."""
        return self.preset or ("fast" if self.quick else "paper")


@dataclass(frozen=True)
class Part:
    """One grid of a study; tables, figures and claims find their numbers by what it says of itself.

    `methods` are what the rows of a table or the lines of a figure are called -> methods as typed.
    """

    role: str
    grid: Grid
    tag: tuple[Any, ...] = ()  # tells the grids of one role apart: data set, shots, ...
    methods: Mapping[Any, str] = field(default_factory=dict)

    @property
    def n_splits(self) -> int:
        """How many class splits."""
        splits = self.grid.splits
        return len(splits) if isinstance(splits, tuple) else int(splits)

    def describe(self) -> str:
        """One line: data set, methods, missing rates, protocol."""
        grid = self.grid
        sets = ", ".join(d if isinstance(d, str) else d.name or "data" for d in grid.datasets)
        more = "".join(f" {value}" for value in self.tag)
        rates = " ".join(f"{eta:g}" for eta in grid.etas)
        return (
            f"{self.role}{more}: {sets}, eta {rates}, {self.n_splits} x {grid.episodes}, "
            f"{','.join(grid.methods)}"
        )


def _part(
    role: str,
    wish: Wish,
    dataset: str,
    protocol: tuple[int, int],
    tag: tuple[Any, ...],
    methods: Mapping[Any, str],
    etas: Sequence[float],
    **more: Any,
) -> Part:
    splits, episodes = protocol
    grid = Grid(
        datasets=(dataset,), methods=tuple(methods.values()), etas=tuple(etas), splits=splits,
        episodes=episodes, scaling="paper", padding="paper", device=wish.device,
        data_dir=wish.data_dir, **more,
    )  # fmt: skip
    return Part(role, grid, tag, methods)


def expand_names(words: Sequence[str]) -> tuple[str, ...]:
    """Read names as typed: `all` is everything, `beyond` the studies that the paper lacks."""
    groups = {
        "all": NAMES,
        "beyond": (*BEYOND, "splits"),
        "tables": tuple(TABLES),
        "figures": FIGURES,
    }
    out: list[str] = []
    for word in words:
        name = word.strip().lower()
        if name not in groups and name not in NAMES:
            raise FewviewError(
                f"no reproduction called {word!r}; use {', '.join(NAMES)}, {', '.join(groups)}"
            )
        out += groups.get(name, (name,))
    return tuple(dict.fromkeys(out))


def parts_of(name: str, wish: Wish) -> list[Part]:
    """List what has to be computed for a name; a data set that is absent is an error.

    Methods that are not available or not asked for are left out.
    """
    if name in BEYOND and wish.solver == AS_PRINTED:
        wish = replace(wish, solver="exact")
    if name == "splits":  # what weighs the class splits is needed whatever methods are asked for
        return _candidates(wish)
    return asked_for(_MAKERS[name](wish) if name in _MAKERS else table_parts(name, wish), wish)


def asked_for(parts: Sequence[Part], wish: Wish) -> list[Part]:
    """Leave out methods that are not available or not asked for."""
    known = [method for method in method_names() if not wish.only or method in wish.only]
    out = []
    for part in parts:
        dataset = cast(str, part.grid.datasets[0])
        methods = {
            label: solved_by(wish, text, dataset)
            for label, text in part.methods.items()
            if text.partition(":")[0] in known
        }
        if methods:
            grid = replace(part.grid, methods=tuple(methods.values()))
            out.append(replace(part, grid=grid, methods=methods))
    return out


# ---------------------------------------------------------------------- tables


def typed(method: str, dataset: str, preset: str = "paper") -> str:
    """Write a method of the paper's tables with the authors' settings for a data set.

    Methods that train networks have the published sizes, or those of another preset.
    """
    name = METHODS[method]
    if method in TRAINED:
        if preset == "fast":  # their own default
            return name
        script = SCRIPTS.get(dataset) if method.startswith("CPM") else None
        return f"{name}:preset={preset}" + (f":script={script}" if script else "")
    anchors = get_spec(dataset).n_anchors if dataset in dataset_names() else None
    if "ugda" not in name or anchors in (None, 100):
        return name
    return f"{name}:{'' if name == 'ugda' else 'ugda__'}n_anchors={anchors}"


def solved_by(wish: Wish, text: str, dataset: str) -> str:
    """Write a method with a solver of UGDA, in the authors' sizes for a data set."""
    name, _, settings = text.partition(":")
    if "ugda" not in name or "solver=" in settings or wish.solver == "exact":
        return text
    if wish.solver == AS_PRINTED:
        # Combinations put another classifier in place of the rectified one.
        rectified = name == "ugda" and "rectify=none" not in settings and not wish.quick
        return f"{text}:rectifier=adam" if rectified else text
    spec = get_spec(dataset) if dataset in dataset_names() else None
    more = {"solver": wish.solver}
    for size in ("latent_dim", "learning_rate", "tasks_per_batch"):
        if value := getattr(spec, size, None):
            more[size] = value
    part = "" if name == "ugda" else "ugda__"
    return ":".join([text, *(f"{part}{word}={value}" for word, value in more.items())])


def data_of(name: str, wish: Wish) -> str:
    """The data set that a table runs on here: the paper's, a stand-in, or the user's own file."""
    if wish.features is not None:
        return wish.features
    (dataset,) = TABLES[name].datasets.values()
    if name in STAND_INS and not is_present(dataset, wish.data_dir):
        return STAND_INS[name]
    return dataset


def is_stand_in(name: str, wish: Wish) -> bool:
    """Whether a table runs on stand-in features, whose digits are not the paper's."""
    dataset = data_of(name, wish)
    return dataset in dataset_names() and get_spec(dataset).same_as_paper == "stand-in"


def has_data(name: str, wish: Wish) -> bool:
    """Whether the data of a table are there, or need not be."""
    sets = TABLES[name].datasets.values() if name == "ablation" else [data_of(name, wish)]
    return wish.planning or all(is_here(dataset, wish.data_dir) for dataset in sets)


def is_here(dataset: str, data_dir: str | None) -> bool:
    """Whether a data set, and that of its base classes, can be read."""
    if dataset not in dataset_names():
        return Path(dataset).expanduser().exists()
    needed = filter(None, (dataset, get_spec(dataset).base_from))
    return all(is_present(name, data_dir) for name in needed)


def reachable(etas: Sequence[float], n_views: int) -> tuple[float, ...]:
    """Missing rates that leave every sample a view."""
    return tuple(eta for eta in etas if eta <= largest_rate(n_views) + 1e-9)


def table_parts(
    name: str,
    wish: Wish,
    etas: Sequence[float] | None = None,
) -> list[Part]:
    """Two grids of a table of accuracies: plain methods, and those that train networks.

    `etas` are some of the table's missing rates.
    """
    dataset = data_of(name, wish)
    if wish.planning and not is_here(dataset, wish.data_dir) and dataset in dataset_names():
        n_views = get_spec(dataset).n_views
    else:
        # Reads the file: absent data are an error here, before any work.
        source = find_source(dataset, wish.data_dir, all_novel=wish.base_features is not None)
        n_views = source.data.n_views
    table = TABLES[name]
    rates = reachable(table.etas if etas is None else etas, n_views)
    shape: dict[str, Any] = {}
    if wish.features is not None:
        known = get_spec(STAND_INS.get(name, next(iter(table.datasets.values()))))
        shape = {"way": known.way, "shot": known.shot, "queries": known.queries}
        shape["base"] = wish.base_features
    plain = [method for method in METHODS if method not in TRAINED]
    return [
        _part("table", wish, dataset, quick[name] if wish.quick else full, (name,),
              {method: typed(method, dataset, wish.sizes) for method in some}, rates, **shape)
        for some, full, quick in ((plain, FULL, QUICK), (TRAINED, FULL_TRAINED, QUICK_TRAINED))
    ]  # fmt: skip


def _ablation(wish: Wish) -> list[Part]:
    methods = {row: f"ugda:rectify={terms}" for row, terms in ABLATION.items()}
    methods["Full ADSR"] = "ugda"
    return [
        _part("ablation", wish, dataset, QUICK[dataset] if wish.quick else FULL, (dataset,),
              methods, TABLES["ablation"].etas)
        for dataset in TABLES["ablation"].datasets.values()
    ]  # fmt: skip


# ---------------------------------------------------------------------- figures


def adam_solver(dataset: str, quick: bool = False) -> str:
    """UGDA as in the paper's Algorithm 1, with the data set's latent dimensions.

    The quick protocol makes it narrower: one task of cub takes minutes as it is.
    """
    if quick:
        return "ugda:solver=adam:latent_dim=128:n_anchors=25"
    return f"ugda:solver=adam:latent_dim={get_spec(dataset).latent_dim}"


def aggregator_methods(dataset: str, quick: bool = False) -> dict[str, str]:
    """Variants of the inverse anchor aggregator, Fig. 4 (a): label -> method."""
    adam = adam_solver(dataset, quick)
    return {
        "full IAA": adam,
        "w/o AEU": f"{adam}:update_evaluator=false",
        "w/o LAU": f"{adam}:update_anchors=false",
        "exact solver": "ugda",
    }


def _aggregator(wish: Wish) -> list[Part]:
    return [
        _part("aggregator", wish, dataset, (4, 2) if wish.quick else (10, 20), (dataset,),
              aggregator_methods(dataset, wish.quick), (0.5,))
        for dataset in ("cub_googlenet_doc2vec", "scene15")
    ]  # fmt: skip


def base_subset(size: int, repetition: int, data_dir: str | None = None) -> MultiViewData:
    """Some of caltech102's base classes of split 0, drawn at random; smaller ones are nested."""
    split = class_split("caltech102", 0)
    data = load("caltech102", data_dir)
    key = stream_key("base classes of figure 5", repetition)
    order = smallest(raw(combine(np.zeros(1, np.uint64), key), len(split.base)), len(split.base))
    chosen = [split.base[k] for k in order[0][:size].tolist()]
    return data[np.isin(data.labels, chosen)]  # type: ignore[arg-type]


def _base_classes(wish: Wish) -> list[Part]:
    absent = wish.planning and not is_here("caltech102", wish.data_dir)
    return [
        _part("base classes", wish, "caltech102", (1, 5 if wish.quick else 100),
              (size, repetition), BASE_METHODS, (0.1, 0.3), seed=repetition,
              base=None if absent else base_subset(size, repetition, wish.data_dir))
        for repetition in range(BASE_REPETITIONS)
        for size in BASE_SIZES
    ]  # fmt: skip


def hyper_methods(dataset: str, quick: bool) -> dict[str, dict[int, str]]:
    """Settings of Fig. 7: panel -> value -> method.

    The panels `iter` and `N` are about Algorithm 1, so they run under `solver=adam`; the quick
    protocol makes it narrower (128 latent dimensions, 25 anchors per support).
    """
    adam = adam_solver(dataset, quick)
    return {
        "iter": {value: f"{adam}:n_iter={value}" for value in ITERATIONS},
        "N": {value: f"{adam}:n_steps={value}" for value in STEPS},
        "N_F": {value: f"ugda:n_anchors={value}" for value in ANCHORS},
        "k": {value: f"ugda:n_neighbors={value}" for value in NEIGHBOURS[dataset]},
    }


def _hyper_parameters(wish: Wish) -> list[Part]:
    out = []
    for dataset in NEIGHBOURS:
        # Algorithm 1 is slow: it has fewer class splits and episodes, few on wide views.
        slow, usual = ((5, 4) if dataset == "caltech102" else (5, 20), (10, 20))
        if wish.quick:
            slow, usual = (1, 3), (3, 10)
        for panel, methods in hyper_methods(dataset, wish.quick).items():
            protocol = slow if panel in ("iter", "N") else usual
            tag = (dataset, panel)
            out.append(_part("hyper-parameters", wish, dataset, protocol, tag, methods, (0.3,)))
    return out


# ---------------------------------------------------------------------- claims


# What the quick protocol computes of each table, chosen by what it costs on two cores: missing
# rates, class splits x episodes, methods left out. Of the networks COMPLETER trains for minutes
# where there are many base samples, and TIM takes seconds per task of orl; sentences about them are
# judged by the other cases.
_SLOW = {"wide": ("TIM", *TRAINED), "networks": TRAINED, "completer": ("COMPLETER",), "none": ()}
_CLAIMS_QUICK: dict[str, tuple[tuple[float, ...], tuple[int, int], str]] = {
    "cub": ((0.0, 0.3, 0.5), (5, 4), "none"), "handwritten": ((0.0, 0.5), (5, 4), "completer"),
    "caltech102": ((0.0, 0.5), (3, 2), "networks"), "scene15": ((0.0, 0.5), (5, 4), "completer"),
    "animal": ((0.0, 0.5), (2, 2), "wide"), "orl": ((0.0, 0.5), (3, 2), "wide"),
    "tieredimagenet": ((0.1, 0.5), (3, 2), "networks"), "birds": ((0.1, 0.5), (3, 2), "networks"),
    "ablation": ((0.0, 0.3, 0.5), (3, 4), "none"),
}  # fmt: skip
_QUICK_NETWORKS = (2, 2)  # class splits x episodes
# Values of the panels of figure 7 that sentences speak of.
_TOLD = {"iter": (1, 30, 40), "N": (1, 10, 20), "N_F": (0, 100, 200), "k": (1, 4, 6)}


def _claims(wish: Wish) -> list[Part]:
    """Everything that the claims are about; the quick protocol takes a part of each table."""
    out: list[Part] = []
    for name in TABLES:
        if has_data(name, wish):
            parts = _ablation(wish) if name == "ablation" else table_parts(name, wish)
            out += [_quickly(name, part) for part in parts] if wish.quick else parts
    for make, needed in (
        (_aggregator, ("cub", "scene15")),
        (_base_classes, ("caltech102",)),
        (_hyper_parameters, ("caltech102", "cub")),
    ):
        if all(has_data(name, wish) for name in needed):
            out += [_told(part) for part in make(wish)] if wish.quick else make(wish)
    return [part for part in out if part.methods]


def _quickly(name: str, part: Part) -> Part:
    """The cells of a table that the quick protocol of the claims takes."""
    etas, (splits, episodes), slow = _CLAIMS_QUICK[name]
    if set(part.methods) & set(TRAINED):
        splits, episodes = _QUICK_NETWORKS
    methods = {label: text for label, text in part.methods.items() if label not in _SLOW[slow]}
    rates = tuple(eta for eta in part.grid.etas if eta in etas)
    return _with(part, methods, etas=rates, splits=splits, episodes=episodes)


def _told(part: Part) -> Part:
    """The cells of a figure that sentences speak of, by the quick protocol."""
    if part.role == "hyper-parameters":
        panel = part.tag[1]
        values = {label: text for label, text in part.methods.items() if label in _TOLD[panel]}
        shape = {"splits": 3, "episodes": 1 if panel in ("iter", "N") else 4}
        return _with(part, values, **shape)
    if part.role == "base classes":
        methods = {label: text for label, text in part.methods.items() if label != "Marginal"}
        chosen = methods if part.tag[0] in (2, 5, 80) else {}
        return _with(part, chosen, episodes=3)
    return part


def _with(part: Part, methods: Mapping[Any, str], **changes: Any) -> Part:
    """A part with other methods, and a grid that goes with them."""
    if not methods:
        return replace(part, methods={})
    return replace(
        part, methods=methods, grid=replace(part.grid, methods=tuple(methods.values()), **changes)
    )


# ---------------------------------------------------------------------- beyond the paper


def block_pattern(n_views: int) -> MissingRule:
    """Views that go missing together: three samples in five lose the second half of the views.

    With an even number of views the missing rate is 0.3.
    """
    rows = np.ones((5, n_views), dtype=bool)
    rows[2:, n_views - n_views // 2 :] = False
    return MissingRule("patterns", patterns=rows)


def _varied(role: str, wish: Wish) -> list[Part]:
    """One grid per small data set and value of what is varied: queries, shots or missingness."""
    out = []
    for dataset in SMALL_SETS:
        kinds = {"uniform": "uniform", "class-dependent": "class",
                 "patterns": block_pattern(get_spec(dataset).n_views)}  # fmt: skip
        options: dict[str, dict[Any, dict[str, Any]]] = {
            "imbalance": {counts: {"query_counts": counts} for counts in IMBALANCES},
            "shots": {shot: {"shot": shot} for shot in SHOTS},
            "missingness": {kind: {"missing": rule} for kind, rule in kinds.items()},
        }
        for value, more in options[role].items():
            methods = COMPARED
            if role == "shots" and value > 1:
                # As in the authors' scripts, the anchors of a class are 100 whatever the shots.
                methods = COMPARED | {"UGDA": f"ugda:n_anchors={100 // value}"}
            protocol = (3, 10) if wish.quick else FULL
            tag = (dataset, value)
            out.append(_part(role, wish, dataset, protocol, tag, methods, (0.3,), **more))
    return out


def _candidates(wish: Wish) -> list[Part]:
    """The rows that weigh class splits, on all candidates; the quick protocol takes a fifth."""
    return [
        _part("candidates", wish, dataset, (count // 5, 20) if wish.quick else (count, 100),
              (name,), {method: typed(method, dataset) for method in WEIGHING}, TABLES[name].etas)
        for name, count in CANDIDATES.items()
        if has_data(name, wish)
        for dataset in TABLES[name].datasets.values()
    ]  # fmt: skip


def _time(wish: Wish) -> list[Part]:
    """The tables' own cells at rate 0.3, and Marginal beside them."""
    out = []
    for name in ("handwritten", "cub", "scene15"):
        parts = table_parts(name, wish, etas=(0.3,))
        grid = replace(parts[0].grid, methods=(MARGINAL,))
        out += [*parts, Part("table", grid, (name,), {"Marginal": MARGINAL})]
    return out


# Names that are not one of the eight tables of accuracies; figures 3 and 6 are of single tasks.
_MAKERS: dict[str, Callable[[Wish], list[Part]]] = {
    "ablation": _ablation, "figure3": lambda wish: [], "figure4": _aggregator,
    "figure5": _base_classes, "figure6": lambda wish: [], "figure7": _hyper_parameters,
    "claims": _claims, "time": _time,
    **{role: partial(_varied, role) for role in ("imbalance", "shots", "missingness")},
}  # fmt: skip
