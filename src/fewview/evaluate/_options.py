"""The options of a benchmark as text, for every command line: parsing, running, writing JSON.

`fewview bench` and `python -m fewview.evaluate` are two faces of these functions.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fewview.episodes.padding import KEEPING, PADDINGS
from fewview.errors import FewviewError
from fewview.evaluate._grid import PROTOCOLS, Grid
from fewview.evaluate._progress import Progress
from fewview.evaluate._runner import Outcome, run
from fewview.ground._rows import Row
from fewview.ground._whole_files import check_writable, replacing
from fewview.methods.registry import expand
from fewview.results._store import NO_STORE, default_path
from fewview.results._summaries import summarise_planned
from fewview.samples._data import MultiViewData
from fewview.samples._scaling import SCALINGS

COLUMNS = (
    "dataset", "method", "way", "shot", "eta", "accuracy", "standard_error", "ci_low", "ci_high",
    "split_low", "split_high", "n_episodes", "seconds", "seconds_base",
)  # fmt: skip


def make_grid(
    datasets: Sequence[str | MultiViewData],
    *,
    methods: Any = "proto",
    eta: str = "0",
    splits: str | int | None = None,
    episodes: int | None = None,
    protocol: str = "splits",
    scaling: str | None = None,
    padding: str | None = None,
    dtype: str = "float32",
    **others: Any,
) -> Grid:
    """Make a grid from options as typed.

    Args:
        datasets: names, files or folders.
        methods: separated by commas; `all` is every method that trains no network. Or a list, of
            such texts and of methods as objects.
        eta: missing rates, separated by commas.
        splits: number of class splits or `all`; by default what the protocol says.
        episodes: episodes per split; likewise.
        protocol: `"splits"` (10 class splits x 40 episodes) or `"paper"` (1 x 400).
        scaling: for every method; `"paper"` as in the paper.
        padding: likewise.
        dtype: float type.
        others: further fields of `Grid`.

    Example:
        >>> grid = make_grid(["digits"], methods="proto", eta="0,0.5", protocol="paper")
        >>> grid.etas, grid.splits, grid.episodes
        ((0.0, 0.5), 1, 400)
    """
    for name, value, allowed in (
        ("protocol", protocol, PROTOCOLS),
        ("scaling", scaling, (None, "paper", *SCALINGS)),
        ("padding", padding, (None, "paper", *KEEPING, *PADDINGS)),
        ("dtype", dtype, ("float32", "float64")),
    ):
        if value not in allowed:
            listed = ", ".join(option for option in allowed if option is not None)
            raise FewviewError(f"--{name} {value}: use one of {listed}")
    usual_splits, usual_episodes = (1, 400) if protocol == "paper" else (10, 40)
    return Grid(
        datasets=tuple(dict.fromkeys(datasets)) if _all_text(datasets) else tuple(datasets),
        methods=tuple(expand(methods)),
        etas=parse_rates(eta),
        splits=usual_splits if splits is None else parse_splits(splits),
        episodes=usual_episodes if episodes is None else episodes,
        scaling=scaling,
        padding=padding,
        dtype=dtype,
        **others,
    )


def _all_text(values: Sequence[Any]) -> bool:
    return all(isinstance(value, str) for value in values)


def parse_rates(text: str) -> tuple[float, ...]:
    """Read missing rates separated by commas.

    Example:
        >>> parse_rates("0,0.3, 0.5")
        (0.0, 0.3, 0.5)
    """
    try:
        return tuple(float(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise FewviewError(
            f"--eta {text}: give missing rates separated by commas, for instance 0,0.3,0.5"
        ) from None


def parse_splits(value: str | int) -> int | str:
    """Read a number of class splits or `all`.

    Example:
        >>> parse_splits("10"), parse_splits("all")
        (10, 'all')
    """
    if value == "all":
        return "all"
    try:
        return int(value)
    except ValueError:
        raise FewviewError(f"--splits {value}: give a number from 1 or 'all'") from None


def store_path(store: str | None) -> str:
    """Turn the value of `--store` into a path, or `none`.

    Example:
        >>> store_path("none"), store_path("a.sqlite")
        ('none', 'a.sqlite')
    """
    if store is None or not store:
        return str(default_path())
    return NO_STORE if store == NO_STORE else str(Path(store).expanduser())


def stop_message(store: str | None) -> str:
    """What to tell after Ctrl-C.

    Example:
        >>> stop_message("none")
        'stopped; nothing was kept'
    """
    if store == NO_STORE:
        return "stopped; nothing was kept"
    return "stopped; finished cells are stored, run the same command again to continue"


def answer(work: Callable[[], int], store: str | None) -> int:
    """Exit status of a bare command: that of its work, 2 for wrong input, 130 after Ctrl-C."""
    try:
        return work()
    except FewviewError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(stop_message(store), file=sys.stderr)
        return 130


def bench(
    grid: Grid,
    *,
    store: str | None = None,
    jobs: int = 1,
    cluster: str | None = None,
    progress: Progress | None = None,
    json_path: str | os.PathLike[str] | None = None,
) -> tuple[list[Row], Outcome]:
    """Run a grid and sum it up: one row per data set, method and missing rate.

    Args:
        grid: what to run.
        store: file of results, `"none"`, or None for the default place.
        jobs: number of processes.
        cluster: address of a Dask scheduler that computes instead.
        progress: is told how far the run is.
        json_path: write the rows there too.

    Returns:
        The rows of the JSON, and what the run gave.

    Example:
        >>> grid = make_grid(["digits"], methods="proto", splits=2, episodes=5)
        >>> rows, outcome = bench(grid, store="none")
        >>> rows[0]["dataset"], rows[0]["n_episodes"], rows[0]["split_low"] is not None
        ('digits', 10, True)
    """
    if json_path is not None:
        check_writable(json_path)
    outcome = run(grid, store_path(store), jobs=jobs, cluster=cluster, progress=progress)
    rows = summarise_planned(outcome.cells, outcome.results)
    if json_path is not None:
        write_json(rows, json_path)
    return rows, outcome


def write_json(rows: Sequence[Row], path: str | os.PathLike[str]) -> None:
    """Write rows as a JSON list, whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(list(rows), indent=1) + "\n", encoding="utf-8")
