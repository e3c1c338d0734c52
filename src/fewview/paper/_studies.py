"""What has to be computed for each name: grids of cells, in full or by the quick protocol.

A name is a table, a figure, the claims, or one of the studies beyond the paper. Everything that is
an accuracy is a cell of a grid, so it goes through the store; nothing is drawn or printed here, and
numpy, scipy, scikit-learn and torch are enough.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fewview.datasets._catalogue import get_spec, path_of
from fewview.datasets._loading import load
from fewview.datasets._splits import class_split
from fewview.engine._registry import names as method_names
from fewview.evaluate._grid import Grid
from fewview.evaluate._sources import find_source
from fewview.ground._draws import combine, raw, smallest, stream_key
from fewview.ground._errors import FewviewError
from fewview.paper._printed import ABLATION, METHODS, TABLES, TRAINED
from fewview.samples._data import MultiViewData
from fewview.samples._masks import MissingRule
from fewview.samples._rates import largest_rate

FIGURES = ("figure3", "figure4", "figure5", "figure6", "figure7")
BEYOND = ("imbalance", "shots", "missingness", "time")
NAMES = (*TABLES, *FIGURES, "claims", *BEYOND)

# Class splits x episodes per split.
FULL = (10, 40)
FULL_TRAINED = (3, 20)
QUICK: dict[str, tuple[int, int]] = {
    "cub": (5, 20), "handwritten": (5, 20), "scene15": (5, 20), "caltech102": (3, 10),
    "animal": (2, 5), "orl": (3, 5), "tieredimagenet": (3, 10), "birds": (3, 10),
}  # fmt: skip
QUICK_TRAINED: dict[str, tuple[int, int]] = {
    "cub": (2, 5), "handwritten": (2, 5), "scene15": (2, 5), "caltech102": (2, 2),
    "animal": (2, 2), "orl": (2, 2), "tieredimagenet": (2, 2), "birds": (2, 2),
}  # fmt: skip

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
# Its stated settings: choosing them needs more base classes than some studies have.
MARGINAL = "marginal:settings=default"
COMPARED = ("proto", "rfs", "ptmap", "paddle", "ugda", MARGINAL)


@dataclass(frozen=True, kw_only=True)
class Wish:
    """How a reproduction is to be run.

    Attributes:
        quick: the smaller protocol, minutes per name on two cores.
        device: `"cpu"`, `"cuda"`, `"auto"`, or `"any"`: whatever kind of device stored results
            come from, and the best there is for the others.
        data_dir: folder of data files.
        features: a user's own file in place of the data set of the one table asked for.
        base_features: and of its base classes.
        only: run these methods (registered names) alone; empty for all.
        preset: of the methods that train networks: `"fast"` or `"paper"`.
    """

    quick: bool = False
    device: str = "cpu"
    data_dir: str | None = None
    features: str | None = None
    base_features: str | None = None
    only: tuple[str, ...] = ()
    preset: str = "fast"

    def __post_init__(self) -> None:
        known = method_names()
        for name in self.only:
            if name not in known:
                raise FewviewError(
                    f"--only {name}: no registered method is called so (settings after a colon are "
                    f"those of the table and are not given here); use {', '.join(known)}"
                )


@dataclass(frozen=True)
class Part:
    """One grid of a study.

    Attributes:
        role: what it is for; figures and claims find their numbers by it.
        grid: what to run.
        tag: what varies between the grids of one role: numbers of base classes, shots, ...
    """

    role: str
    grid: Grid
    tag: tuple[Any, ...] = ()

    def describe(self) -> str:
        """One line: data set, methods, missing rates, protocol.

        Example:
            >>> Part("table", Grid(datasets=("digits",), methods=("proto",))).describe()
            'table: digits, eta 0, 10 x 40, proto'
        """
        grid = self.grid
        sets = ", ".join(d if isinstance(d, str) else d.name or "data" for d in grid.datasets)
        more = "".join(f" {value}" for value in self.tag)
        rates = " ".join(f"{eta:g}" for eta in grid.etas)
        return (
            f"{self.role}{more}: {sets}, eta {rates}, {grid.splits} x {grid.episodes}, "
            f"{','.join(grid.methods)}"
        )


def expand_names(words: Sequence[str]) -> tuple[str, ...]:
    """Read names as typed: `all` is everything, `beyond` the studies that the paper lacks.

    Example:
        >>> expand_names(["cub", "beyond", "cub"])
        ('cub', 'imbalance', 'shots', 'missingness', 'time')
    """
    groups = {"all": NAMES, "beyond": BEYOND, "tables": tuple(TABLES), "figures": FIGURES}
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

    Args:
        name: one of `NAMES`.
        wish: how to run it.

    Returns:
        Grids; methods that are not available are left out of them.
    """
    makers: dict[str, Callable[[Wish], list[Part]]] = {
        "ablation": _ablation, "figure3": lambda wish: [], "figure4": _aggregator,
        "figure5": _base_classes, "figure6": lambda wish: [], "figure7": _hyper_parameters,
        "claims": _claims, "imbalance": _imbalance, "shots": _shots, "missingness": _missingness,
        "time": _time,
    }  # fmt: skip
    found = makers[name](wish) if name in makers else table_parts(name, wish)
    kept = (_filtered(part, wish) for part in found)
    return [part for part in kept if part is not None]


def _filtered(part: Part, wish: Wish) -> Part | None:
    """Leave out methods that are not available or not asked for."""
    known = set(method_names())
    names = [text.partition(":")[0] for text in part.grid.methods]
    kept = tuple(
        text
        for text, name in zip(part.grid.methods, names, strict=True)
        if name in known and (not wish.only or name in wish.only)
    )
    return replace(part, grid=replace(part.grid, methods=kept)) if kept else None


def _grid(wish: Wish, dataset: str | MultiViewData, protocol: tuple[int, int], **more: Any) -> Grid:
    splits, episodes = protocol
    return Grid(
        datasets=(dataset,), splits=splits, episodes=episodes, scaling="paper", padding="paper",
        device=wish.device, data_dir=wish.data_dir, **more,
    )  # fmt: skip


# ---------------------------------------------------------------------- tables


def typed(method: str, dataset: str, preset: str = "fast") -> str:
    """Write a method of the paper's tables with the authors' settings for a data set.

    Args:
        method: as printed.
        dataset: ours.
        preset: of the methods that train networks.

    Example:
        >>> typed("PTMAP+UGDA", "orl"), typed("UGDA", "cub_googlenet_doc2vec")
        ('ptmap+ugda:ugda__n_anchors=50', 'ugda')
        >>> typed("CPM", "orl", "paper"), typed("ICMSC", "orl", "paper")
        ('cpm:preset=paper:script=orl', 'icmsc:preset=paper')
    """
    name = METHODS[method]
    if method in TRAINED:
        if preset == "fast":  # their own default
            return name
        script = _SCRIPTS.get(dataset) if method.startswith("CPM") else None
        return f"{name}:preset={preset}" + (f":script={script}" if script else "")
    anchors = get_spec(dataset).n_anchors if dataset in _known() else None
    if "ugda" not in name or anchors in (None, 100):
        return name
    return f"{name}:{'' if name == 'ugda' else 'ugda__'}n_anchors={anchors}"


# Data sets that CPM-Nets has published settings for; the others take those of handwritten.
_SCRIPTS = {"cub_googlenet_doc2vec": "cub", "animal": "animal", "orl": "orl"}


def _known() -> tuple[str, ...]:
    from fewview.datasets._catalogue import names

    return names()


def data_of(name: str, wish: Wish) -> str:
    """The data set that a table runs on here: the paper's, a stand-in, or the user's own file.

    Example:
        >>> data_of("cub", Wish())
        'cub_googlenet_doc2vec'
    """
    if wish.features is not None:
        return wish.features
    (dataset,) = TABLES[name].datasets.values()
    if name in STAND_INS and not _is_there(dataset, wish):
        return STAND_INS[name]
    return dataset


def is_stand_in(name: str, wish: Wish) -> bool:
    """Whether a table runs on stand-in features, whose digits are not the paper's.

    Example:
        >>> is_stand_in("birds", Wish()), is_stand_in("birds", Wish(features="mine.npz"))
        (True, False)
    """
    dataset = data_of(name, wish)
    return dataset in _known() and get_spec(dataset).relation == "stand-in"


def reachable(etas: Sequence[float], n_views: int) -> tuple[float, ...]:
    """Missing rates that leave every sample a view.

    Example:
        >>> reachable((0.4, 0.5, 0.6), 2)
        (0.4, 0.5)
    """
    return tuple(eta for eta in etas if eta <= largest_rate(n_views) + 1e-9)


def table_parts(
    name: str,
    wish: Wish,
    etas: Sequence[float] | None = None,
    splits: int | None = None,
    trained_splits: int | None = None,
) -> list[Part]:
    """Grids of one of the eight tables of accuracies: one of the methods that train networks.

    Args:
        name: the table.
        wish: how to run it.
        etas: some of the table's missing rates; all when None.
        splits: fewer class splits than the protocol has.
        trained_splits: likewise for the methods that train networks.
    """
    dataset = data_of(name, wish)
    # Reads the file: absent data are an error here, before any work.
    source = find_source(dataset, wish.data_dir, all_novel=wish.base_features is not None)
    table = TABLES[name]
    rates = reachable(table.etas if etas is None else etas, source.data.n_views)
    shape: dict[str, Any] = {}
    if wish.features is not None:
        known = get_spec(STAND_INS.get(name, next(iter(table.datasets.values()))))
        shape = {"way": known.way, "shot": known.shot, "queries": known.queries}
        shape["base"] = wish.base_features
    out = []
    plain = [method for method in METHODS if method not in TRAINED]
    for some, full, quick, most in (
        (plain, FULL, QUICK, splits), (TRAINED, FULL_TRAINED, QUICK_TRAINED, trained_splits)
    ):  # fmt: skip
        count, episodes = quick[name] if wish.quick else full
        protocol = (count if most is None else min(count, most), episodes)
        chosen = tuple(typed(method, dataset, wish.preset) for method in some)
        grid = _grid(wish, dataset, protocol, methods=chosen, etas=rates, **shape)
        out.append(Part("table", grid, (name,)))
    return out


def ablation_method(row: str) -> str:
    """Write a row of the ablation as a method.

    Example:
        >>> ablation_method("w/o L_ce")
        'ugda:rectify=entropy'
    """
    terms = ABLATION[row]
    return "ugda" if row == "Full ADSR" else f"ugda:rectify={terms}"


def _ablation(
    wish: Wish, etas: Sequence[float] | None = None, splits: int | None = None
) -> list[Part]:
    out = []
    for dataset in TABLES["ablation"].datasets.values():
        count, episodes = QUICK[dataset] if wish.quick else FULL
        protocol = (count if splits is None else min(count, splits), episodes)
        methods = tuple(ablation_method(row) for row in ABLATION)
        rates = tuple(TABLES["ablation"].etas if etas is None else etas)
        out.append(
            Part("ablation", _grid(wish, dataset, protocol, methods=methods, etas=rates),
                 (dataset,))
        )  # fmt: skip
    return out


# ---------------------------------------------------------------------- figures


def aggregator_methods(dataset: str) -> dict[str, str]:
    """Variants of the inverse anchor aggregator, Fig. 4 (a): label -> method.

    Example:
        >>> list(aggregator_methods("scene15"))
        ['full IAA', 'w/o AEU', 'w/o LAU', 'exact solver']
    """
    adam = f"ugda:solver=adam:latent_dim={get_spec(dataset).latent_dim}"
    return {
        "full IAA": adam,
        "w/o AEU": f"{adam}:update_evaluator=false",
        "w/o LAU": f"{adam}:update_anchors=false",
        "exact solver": "ugda",
    }


def _aggregator(wish: Wish) -> list[Part]:
    quick = {"cub_googlenet_doc2vec": (2, 2), "scene15": (4, 5)}
    return [
        Part(
            "aggregator",
            _grid(
                wish, dataset, quick[dataset] if wish.quick else (10, 20),
                methods=tuple(aggregator_methods(dataset).values()), etas=(0.5,),
            ),
            (dataset,),
        )
        for dataset in quick
    ]  # fmt: skip


def base_subset(size: int, repetition: int, data_dir: str | None = None) -> MultiViewData:
    """Some of caltech102's base classes of split 0, drawn at random; smaller ones are nested.

    Args:
        size: number of base classes.
        repetition: another number gives another draw.
        data_dir: folder of data files.
    """
    split = class_split("caltech102", 0)
    data = load("caltech102", data_dir)
    key = stream_key("base classes of figure 5", repetition)
    order = smallest(raw(combine(np.zeros(1, np.uint64), key), len(split.base)), len(split.base))
    chosen = [split.base[k] for k in order[0][:size].tolist()]
    return data[np.isin(data.labels, chosen)]  # type: ignore[arg-type]


BASE_METHODS = {"UGDA": "ugda", "w/o UGDA (Proto)": "proto", "Marginal": MARGINAL}


def _base_classes(wish: Wish, etas: Sequence[float] = (0.1, 0.3)) -> list[Part]:
    return [
        Part(
            "base classes",
            _grid(
                wish, "caltech102", (1, 5 if wish.quick else 100),
                methods=tuple(BASE_METHODS.values()), etas=tuple(etas), seed=repetition,
                base=base_subset(size, repetition, wish.data_dir),
            ),
            (size, repetition),
        )
        for repetition in range(BASE_REPETITIONS)
        for size in BASE_SIZES
    ]  # fmt: skip


def hyper_methods(dataset: str, quick: bool) -> dict[str, dict[int, str]]:
    """Settings of Fig. 7: panel -> value -> method.

    The panels `iter` and `N` are about Algorithm 1, so they run under `solver=adam`; the quick
    protocol makes it narrower (128 latent dimensions, 25 anchors per support).

    Example:
        >>> hyper_methods("cub_googlenet_doc2vec", False)["k"][4]
        'ugda:n_neighbors=4'
    """
    adam = f"ugda:solver=adam:latent_dim={get_spec(dataset).latent_dim}"
    if quick:
        adam = "ugda:solver=adam:latent_dim=128:n_anchors=25"
    return {
        "iter": {value: f"{adam}:n_iter={value}" for value in ITERATIONS},
        "N": {value: f"{adam}:n_steps={value}" for value in STEPS},
        "N_F": {value: f"ugda:n_anchors={value}" for value in ANCHORS},
        "k": {value: f"ugda:n_neighbors={value}" for value in NEIGHBOURS[dataset]},
    }


def hyper_protocol(dataset: str, panel: str, wish: Wish) -> tuple[int, int]:
    """Class splits and episodes of a panel of Fig. 7; `adam` on caltech102 has fewer on a CPU."""
    slow = panel in ("iter", "N")
    if wish.quick:
        return (1, 3) if slow else (3, 10)
    if slow and dataset == "caltech102" and wish.device == "cpu":
        return (2, 2)
    return (5, 20) if slow else (10, 20)


def _hyper_parameters(wish: Wish) -> list[Part]:
    return [
        Part(
            "hyper-parameters",
            _grid(
                wish, dataset, hyper_protocol(dataset, panel, wish),
                methods=tuple(values.values()), etas=(0.3,),
            ),
            (dataset, panel),
        )
        for dataset in NEIGHBOURS
        for panel, values in hyper_methods(dataset, wish.quick).items()
    ]  # fmt: skip


# ---------------------------------------------------------------------- claims


# What the quick protocol computes of each table: enough for every sentence, and cells that the
# tables share.
_CLAIMS_QUICK: dict[str, dict[str, Any]] = {
    "cub": {"etas": (0.0, 0.3, 0.5), "splits": 2, "trained_splits": 2},
    "handwritten": {"etas": (0.0, 0.5), "splits": 2, "trained_splits": 1},
    "caltech102": {"etas": (0.0, 0.5), "splits": 2, "trained_splits": 1},
    "scene15": {"etas": (0.0, 0.5), "splits": 3, "trained_splits": 2},
    "animal": {"etas": (0.0, 0.5), "splits": 1, "trained_splits": 1},
    "orl": {"etas": (0.0, 0.5), "splits": 2, "trained_splits": 1},
    "tieredimagenet": {"etas": (0.1, 0.5), "splits": 2, "trained_splits": 1},
    "birds": {"etas": (0.1, 0.5), "splits": 2, "trained_splits": 1},
    "ablation": {"etas": (0.0, 0.3, 0.5), "splits": 3},
}


def _claims(wish: Wish) -> list[Part]:
    """Everything that the claims are about; the quick protocol takes a part of each table."""
    out: list[Part] = []
    for name in TABLES:
        some: dict[str, Any] = _CLAIMS_QUICK.get(name, {}) if wish.quick else {}
        if has_data(name, wish):
            make_table = _ablation if name == "ablation" else partial(table_parts, name)
            out += make_table(wish, **some)
    for make, needed in (
        (_aggregator, ("cub", "scene15")),
        (_base_classes, ("caltech102",)),
        (_hyper_parameters, ("caltech102", "cub")),
    ):
        if all(has_data(name, wish) for name in needed):
            out += make(wish)
    return out


def has_data(name: str, wish: Wish) -> bool:
    """Whether the data of a table are there.

    Example:
        >>> has_data("cub", Wish(data_dir="no/such/folder"))
        False
    """
    own = list(TABLES[name].datasets.values())
    sets = own if name == "ablation" else [data_of(name, wish)]
    needed = [*sets, *(get_spec(s).base_from for s in sets if s in _known())]
    return all(_is_there(dataset, wish) for dataset in needed if dataset is not None)


def _is_there(dataset: str, wish: Wish) -> bool:
    if dataset not in _known():
        return Path(dataset).expanduser().exists()
    path = path_of(dataset, wish.data_dir)
    return get_spec(dataset).embedded or (path is not None and path.is_file())


# ---------------------------------------------------------------------- beyond the paper


def _small(wish: Wish) -> tuple[int, int]:
    return (3, 10) if wish.quick else FULL


def _imbalance(wish: Wish) -> list[Part]:
    return [
        Part(
            "imbalance",
            _grid(
                wish, dataset, _small(wish), methods=COMPARED, etas=(0.3,), query_counts=counts
            ),
            (dataset, counts),
        )
        for dataset in SMALL_SETS
        for counts in IMBALANCES
    ]  # fmt: skip


def _shots(wish: Wish) -> list[Part]:
    out = []
    for dataset in SMALL_SETS:
        for shot in SHOTS:
            # As in the authors' scripts, the anchors of a class are 100 whatever the shots.
            methods = tuple(
                f"ugda:n_anchors={100 // shot}" if m == "ugda" and shot > 1 else m for m in COMPARED
            )
            grid = _grid(wish, dataset, _small(wish), methods=methods, etas=(0.3,), shot=shot)
            out.append(Part("shots", grid, (dataset, shot)))
    return out


def block_pattern(n_views: int) -> MissingRule:
    """Views that go missing together: three samples in five lose the second half of the views.

    With an even number of views the missing rate is 0.3.

    Example:
        >>> round(float(1 - block_pattern(6).patterns.mean()), 6)
        0.3
    """
    rows = np.ones((5, n_views), dtype=bool)
    rows[2:, n_views - n_views // 2 :] = False
    return MissingRule("patterns", patterns=rows)


def missing_kinds(dataset: str) -> dict[str, str | MissingRule]:
    """Kinds of missingness at rate 0.3.

    Example:
        >>> list(missing_kinds("scene15"))
        ['uniform', 'class-dependent', 'patterns']
    """
    return {
        "uniform": "uniform",
        "class-dependent": "class",
        "patterns": block_pattern(get_spec(dataset).n_views),
    }


def _missingness(wish: Wish) -> list[Part]:
    return [
        Part(
            "missingness",
            _grid(wish, dataset, _small(wish), methods=COMPARED, etas=(0.3,), missing=rule),
            (dataset, kind),
        )
        for dataset in SMALL_SETS
        for kind, rule in missing_kinds(dataset).items()
    ]


def _time(wish: Wish) -> list[Part]:
    """The tables' own cells at rate 0.3, and Marginal beside them."""
    out = []
    for name in ("handwritten", "cub", "scene15"):
        parts = table_parts(name, wish, etas=(0.3,))
        plain = parts[0].grid
        out += [*parts, Part("table", replace(plain, methods=(MARGINAL,)), (name,))]
    return out
