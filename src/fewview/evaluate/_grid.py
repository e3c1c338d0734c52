"""What is to be run: a `Grid` of data sets, class splits, missing rates and methods, as cells.

Planning loads data and draws class splits but no episodes, so a mistake in a long command line
comes out before any work is done.
"""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Hashable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import chain, groupby
from typing import Any

import numpy as np

from fewview.datasets._splits import ClassSplit
from fewview.episodes.episodes import SAMPLER_VERSION
from fewview.episodes.sampler import EpisodeSampler
from fewview.episodes.task import TaskSpec
from fewview.errors import FewviewError, FewviewWarning
from fewview.evaluate._sources import Source, find_source
from fewview.evaluate._tuning import candidates, describe_tuning
from fewview.ground._own_code import is_foreign
from fewview.methods.estimator.method import Method
from fewview.methods.params import describe_params
from fewview.methods.registry import create, expand, get_entry, name_and_settings
from fewview.results._cells import Cell
from fewview.results._stale import version_key
from fewview.samples._data import MultiViewData
from fewview.samples._masks import KINDS, MissingRule
from fewview.samples._rates import check_rate

PROTOCOLS = ("splits", "paper")
OWN_GAPS = "lacks views of its own"


@dataclass(frozen=True, kw_only=True)
class Grid:
    """A benchmark: every data set x class split x missing rate x method.

    Args:
        datasets: known names, files or folders, or data in memory.
        methods: as on the command line, `name`, `name:parameter=value:...` or
            `package.module:Class`; or methods as objects, which get a name (`Concat[SVC]`).
        etas: missing rates.
        base: take base classes from this data set (name or file) instead.
        way: classes per task; the data set's usual number when None.
        shot: supports per class; likewise.
        queries: queries per class; likewise.
        splits: number of class splits (fewer are used where there are not so many), `"all"`, or
            the numbers of some class splits.
        episodes: episodes per split.
        query_counts: `"balanced"`, `"dirichlet:A"` or `"dominant:S"`, see `TaskSpec`.
        missing: `"uniform"`, `"patterns"` (those of the data), `"class"`, or a rule of your own.
        seed: of episodes, drawn splits and everything random in methods.
        scaling: for every method; `"paper"` is per method as in the paper; None leaves it to the
            methods. A parameter typed with a method wins.
        padding: likewise.
        device: `"cpu"`, `"cuda"` or `"auto"`.
        dtype: `"float32"` or `"float64"`.
        max_memory: GiB that a batch of tasks may take; None is what is usual on the device.
        tune: choose every method's declared settings on base classes.
        data_dir: folder of data files.
        keep_probabilities: keep what was said of every query too, for metrics to come.

    Example:
        >>> grid = Grid(datasets=("digits",), methods=("proto",), etas=(0.0, 0.5), splits=2)
        >>> [cell.describe() for cell in plan(grid)][1]
        'digits, split 1, 50 % of views missing, proto'
    """

    datasets: tuple[str | MultiViewData, ...]
    methods: tuple[Any, ...]
    etas: tuple[float, ...] = (0.0,)
    base: str | MultiViewData | None = None
    way: int | None = None
    shot: int | None = None
    queries: int | None = None
    splits: int | str | tuple[int, ...] = 10
    episodes: int = 40
    query_counts: str = "balanced"
    missing: str | MissingRule = "uniform"
    seed: int = 0
    scaling: str | None = None
    padding: str | None = None
    device: str = "cpu"
    dtype: str = "float32"
    max_memory: float | None = None
    tune: bool = False
    data_dir: str | None = None
    keep_probabilities: bool = False

    def __post_init__(self) -> None:
        if not self.datasets:
            raise FewviewError("no data set given; 'fewview data list' shows what there is")
        if not self.methods:
            raise FewviewError("no methods given; 'fewview methods' shows what there is")
        object.__setattr__(self, "methods", tuple(expand(self.methods)))
        if not self.etas:
            raise FewviewError("no missing rate given; try --eta 0,0.3,0.5")
        count = self.splits if isinstance(self.splits, int) else len(self.splits)
        if count < 1 or (isinstance(self.splits, str) and self.splits != "all"):
            raise FewviewError(
                f"splits is {self.splits!r}; give a number from 1 or 'all', or a tuple of numbers "
                "of class splits"
            )
        if self.episodes < 1:
            raise FewviewError(f"episodes is {self.episodes}; at least 1 per split is needed")
        if not isinstance(self.missing, MissingRule) and self.missing not in KINDS:
            raise FewviewError(f"missing is {self.missing!r}; use one of {', '.join(KINDS)}")


@dataclass(frozen=True)
class Setting:
    """One data set of a grid with everything that is the same for all its cells."""

    source: Source
    base: Source
    task: TaskSpec
    etas: tuple[float, ...]

    def base_classes(self, split: ClassSplit) -> tuple[Hashable, ...]:
        """The base classes that go with a split of the novel classes' data set."""
        if self.base is self.source:
            return split.base
        return split.base if split.base_from == self.base.name else self.base.base_classes()


def settings(grid: Grid) -> list[Setting]:
    """Load the data sets of a grid and settle ways, shots, queries and missing rates."""
    out = []
    with ThreadPoolExecutor(min(len(grid.datasets), os.cpu_count() or 1)) as pool:
        find = partial(find_source, data_dir=grid.data_dir, all_novel=grid.base is not None)
        sources = list(pool.map(find, grid.datasets))
    for source in sources:
        base = source
        if grid.base is not None:
            base = find_source(grid.base, grid.data_dir, as_base=True)
            if base.data.fingerprint == source.data.fingerprint:
                raise FewviewError(
                    f"--base {base.name} is the data set itself; its own base classes are the "
                    "default, leave --base out"
                )
        elif source.base_from is not None:
            base = find_source(source.base_from, grid.data_dir)
        # Says which view is wrong while nothing has been computed yet.
        source.data[:0].like(base.data[:0], source.name, strict=True)
        out.append(Setting(source, base, *_task(grid, source)))
    name, count = Counter(setting.source.name for setting in out).most_common(1)[0]
    if count > 1:
        raise FewviewError(f"two data sets are called {name!r}; give each once")
    return out


def sources_of(grid: Grid) -> dict[str, Source]:
    """All data that a grid is computed from, by checksum."""
    sources = [one for setting in settings(grid) for one in (setting.source, setting.base)]
    return {source.data.fingerprint: source for source in sources}


def _task(grid: Grid, source: Source) -> tuple[TaskSpec, tuple[float, ...]]:
    rule = missing_rule(grid.missing, source.data)
    etas = tuple(dict.fromkeys(float(eta) for eta in grid.etas))
    if rule.patterns is not None:
        etas = (float(1.0 - rule.patterns.mean()),)  # the patterns decide, whatever was asked for
    for eta in etas:
        try:
            check_rate(eta, source.data.n_views)
        except FewviewError as error:
            raise FewviewError(f"data set {source.name!r}: {error}") from None
    shot = source.shot if grid.shot is None else grid.shot
    task = TaskSpec(
        way=source.way if grid.way is None else grid.way,
        shot=shot,
        queries=source.fitting_queries(shot) if grid.queries is None else grid.queries,
        missing=rule,
        query_counts=grid.query_counts,
    )
    return task, etas


def missing_rule(kind: str | MissingRule, data: MultiViewData) -> MissingRule:
    """Make the rule that a word of the command line stands for; a rule stands for itself."""
    if isinstance(kind, MissingRule):
        return kind
    if kind != "patterns":
        return MissingRule(kind)
    if data.mask.all():
        raise FewviewError(
            f"{data.name or 'the data'}: no view is missing anywhere, so there are no patterns to "
            "resample; use --missing uniform or class"
        )
    return MissingRule.like(data.mask)


def splits_of(grid: Grid, source: Source) -> list[tuple[ClassSplit, int, int, int]]:
    """List the class splits of a data set: split, its number, first and last episode.

    A number of splits is at most as many as there are; a warning says so. Where there is one fixed
    split, repetitions take further episodes of the same classes.
    """
    if grid.splits == "all":
        found = dict(enumerate(source.every_split()))
    else:
        numbers = grid.splits if isinstance(grid.splits, tuple) else range(int(grid.splits))
        ways = source.n_splits
        if isinstance(numbers, range) and ways is not None and len(numbers) > ways:
            warnings.warn(
                f"data set {source.name!r}: {ways} of the {len(numbers)} class splits asked for "
                f"are used; {source.n_novel} of {len(source.data.classes)} classes can be chosen "
                f"in {ways} ways only",
                FewviewWarning,
                stacklevel=3,
            )
            numbers = range(ways)
        found = {k: source.split(k, grid.seed) for k in numbers}
    step = grid.episodes if source.fixed else 0
    return [(split, k, k * step, k * step + grid.episodes) for k, split in found.items()]


def plan(grid: Grid) -> list[Cell]:
    """Write a grid out as cells, in an order that reuses what was prepared.

    Args:
        grid: what to run.

    Returns:
        Cells by data set, class split, scaling, method, missing rate. Whatever could be found
        wrong without drawing episodes has been raised as an error.
    """
    methods = {text: make_method(text, grid) for text in dict.fromkeys(grid.methods)}
    ordered = sorted(methods, key=lambda text: methods[text].scaling)
    fields = {text: method_fields(methods[text], text, grid) for text in ordered}
    cells: list[Cell] = []
    for setting in settings(grid):
        source, base = setting.source, setting.base
        _warn_of_own_gaps(setting)
        told = False
        for split, number, start, stop in splits_of(grid, source):
            # Checks way, class sizes and classes.
            sampler = EpisodeSampler(
                source.data, setting.task, split.novel, seed=grid.seed, name=source.name
            )
            told = told or _warn_of_small_classes(sampler, source.name, start, stop)
            base_classes = setting.base_classes(split)
            if not base_classes:
                raise FewviewError(f"data set {source.name!r}: no base classes; give --base")
            common: dict[str, Any] = {
                "dataset": source.name,
                "data_checksum": source.data.fingerprint,
                "base": base.name,
                "base_checksum": base.data.fingerprint,
                "base_classes": class_names(base.data, base_classes),
                "novel": class_names(source.data, split.novel),
                "way": setting.task.way,
                "shot": setting.task.shots[0],
                "queries": setting.task.queries,
                "query_counts": grid.query_counts,
                "missing": setting.task.missing.describe(),
                "sampler_version": SAMPLER_VERSION,
                "seed": grid.seed,
                "start": start,
                "stop": stop,
                "split": number,
                "fixed": source.fixed,
            }
            cells += [
                Cell(eta=eta, method=text, **common, **fields[text])
                for text in ordered
                for eta in setting.etas
            ]
    return cells


def _warn_of_own_gaps(setting: Setting) -> None:
    """Say that gaps of the data stay, so that a smaller missing rate is not what is measured."""
    own = setting.source.data.missing_rate
    below = [eta for eta in setting.etas if eta < own]
    if below and setting.task.missing.patterns is None:
        listed = ", ".join(f"{eta:g}" for eta in below)
        warnings.warn(
            f"data set {setting.source.name!r} {OWN_GAPS}, {own:.2g} of all; a lower eta "
            f"({listed}) takes nothing more away, and tasks lack about {own:.2g}; "
            "--missing patterns draws gaps like those of the data and says so in the results",
            FewviewWarning,
            stacklevel=3,
        )


def _warn_of_small_classes(sampler: EpisodeSampler, name: str, start: int, stop: int) -> bool:
    """Say that classes are too small for unequal counts, by the first few tasks of a split."""
    task, stop = sampler.task, min(stop, start + 8)
    capped = sampler.capped(start, stop).any()
    if capped:
        # Dirichlet counts that are drawn again until they fit are nearer to equal as well.
        fewer = 0 if task.dominant is None else task.queries - 1
        while fewer and sampler.with_queries(fewer).capped(start, stop).any():
            fewer -= 1
        warnings.warn(
            f"data set {name!r}: classes are too small for query counts {task.query_counts!r} with "
            f"{task.n_query} queries a task; what does not fit goes to the other classes, and "
            "shares are nearer to equal than asked for; lower --queries"
            + (f" to {fewer}" if fewer else ""),
            FewviewWarning,
            stacklevel=3,
        )
    return bool(capped)


def method_fields(method: Method, text: str, grid: Grid) -> dict[str, Any]:
    """The fields of a cell that say which method runs and how."""
    return {
        "method_class": type(method).__name__,
        "method_version": version_key(method),
        "parameters": ",".join(f"{k}={v}" for k, v in describe_params(method).items()),
        "dtype": method.dtype,
        "device": method.torch_device.type,
        "scaling": method.scaling,
        "padding": method.padding,
        "tune": describe_tuning(tune_candidates(text, grid, method)) if grid.tune else "",
    }


def make_method(text: str, grid: Grid) -> Method:
    """Make a method as typed, with what the grid says about all methods.

    A parameter typed with the method wins over the grid's scaling, padding, device and dtype.
    """
    method = create(text)
    typed = _typed(text)
    changes: dict[str, Any] = {}
    for name, value in (("scaling", grid.scaling), ("padding", grid.padding)):
        if value is not None and name not in typed:
            usual = method.paper.get(name, getattr(method, name))
            changes[name] = usual if value == "paper" else value
    everywhere = {
        "device": grid.device,
        "dtype": grid.dtype,
        "random_state": grid.seed,
        **({} if grid.max_memory is None else {"max_memory": grid.max_memory}),
    }
    for key in method.get_params(deep=True):
        # Methods made of methods carry these in their parts too.
        name = key.rpartition("__")[2]
        if name in everywhere and key not in typed:
            changes[key] = everywhere[name]
    method.set_params(**changes)
    method.check()
    return method


def brings_code(method: Method) -> bool:
    """Whether a method has code of somebody's own; its tasks come with queries mixed.

    Queries are drawn class by class, so that who looks at their places would know the answers.

    Example:
        >>> from fewview import Proto
        >>> class Mine(Proto):
        ...     __module__ = "mine"
        >>> brings_code(Proto()), brings_code(Mine())
        (False, True)
    """
    return is_foreign([type(method), *method.get_params().values()])


def tune_candidates(text: str, grid: Grid, method: Method) -> list[dict[str, Any]]:
    """Settings that `--tune` chooses from: what the user fixed stays fixed."""
    fixed = {name for name in ("scaling", "padding") if getattr(grid, name) is not None}
    return candidates(method, fixed=fixed | _typed(text))


def _typed(text: str) -> set[str]:
    """Parameters that were typed with a method, or set in one that is an object."""
    known, settings = name_and_settings(text)
    names = (part.partition("=")[0].strip() for part in settings)
    entry = get_entry(known)
    return {*names, *(entry.parameters if entry.own else ())}


def class_names(data: MultiViewData, classes: Iterable[Hashable]) -> tuple[str, ...]:
    """Write classes as text, in the order of the data's classes."""
    wanted = set(classes)
    named = zip(_class_texts(data), data.classes.tolist(), strict=True)
    return tuple(text for text, label in named if label in wanted)


def rows_of(data: MultiViewData, texts: Iterable[str]) -> MultiViewData:
    """Return the samples of some classes, given as `class_names` writes them."""
    return data[row_numbers(data, texts)]


def row_numbers(data: MultiViewData, texts: Iterable[str]) -> Any:
    """Where the samples of some classes are."""
    wanted = set(texts)
    codes = [code for code, text in enumerate(_class_texts(data)) if text in wanted]
    return np.flatnonzero(np.isin(data.codes, codes))


def _class_texts(data: MultiViewData) -> list[str]:
    labels = data.classes.tolist()
    texts = [str(label) for label in labels]
    return texts if len(set(texts)) == len(texts) else [repr(label) for label in labels]


def units(cells: list[Cell]) -> list[list[Cell]]:
    """Keep together the missing rates of one method and split, in the order of `plan`."""
    groups = groupby(cells, key=lambda cell: (cell.dataset, cell.split, cell.method))
    return [list(group) for _, group in groups]


def pieces_of(grid: Grid, cells: list[Cell], slots: int) -> list[list[Cell]]:
    """Cut cells into pieces of work for processes.

    Cells that share what is learnt from base classes stay together, if there are enough pieces to
    go round. The others are single cells, so that little is lost with a process.
    """
    whole = units(cells)
    # A choice of settings takes longer than all else and is made for every missing rate.
    if grid.tune or len(whole) < 2 * slots:
        return [[cell] for cell in cells]
    alone = {}
    for text in dict.fromkeys(grid.methods):
        tags = make_method(text, grid).tags
        # Learns for every missing rate anew, or trains networks in every task.
        alone[text] = "missing" in tags.depends_on or (tags.trained and not tags.needs_base)
    pieces = ([[cell] for cell in unit] if alone[unit[0].method] else [unit] for unit in whole)
    return list(chain.from_iterable(pieces))
