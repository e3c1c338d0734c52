"""Running a grid: plan it, compute what the store lacks, write every result as it comes.

This process alone writes the store, whoever computes (`_executors.py`, `_cluster.py`).
"""

from __future__ import annotations

import os
from contextlib import closing
from dataclasses import dataclass

from fewview.errors import FewviewError
from fewview.evaluate._executors import Executor, HereExecutor, ProcessExecutor, check_jobs
from fewview.evaluate._grid import Grid, plan
from fewview.evaluate._progress import Progress, training_lines
from fewview.results._cells import Cell, Result
from fewview.results._store import MEMORY, NO_STORE, Store


@dataclass(frozen=True)
class Outcome:
    """What a run gave.

    Attributes:
        cells: the planned cells.
        results: by content hash; failed cells are absent.
        computed: number of cells computed now.
        reused: number of cells taken from the store.
        stale: number of computed cells that the store had from an older version.
        failures: cells that could not be computed, and why.
    """

    cells: tuple[Cell, ...]
    results: dict[str, Result]
    computed: int
    reused: int
    stale: int
    failures: tuple[tuple[Cell, str], ...]


def run(
    grid: Grid,
    store: str | os.PathLike[str] | None = None,
    *,
    jobs: int = 1,
    cluster: str | None = None,
    progress: Progress | None = None,
    wait_for_store: float | None = None,
) -> Outcome:
    """Run what the store does not have yet, and return all results of the grid.

    Args:
        grid: what to run.
        store: file of results; None or `"none"` keeps nothing.
        jobs: number of processes. 1 works in this process with all its threads.
        cluster: address of a Dask scheduler, for instance `"tcp://host:8786"`; its workers compute
            and this process writes. Leave `jobs` at 1 then.
        progress: is told how far the run is.
        wait_for_store: seconds to wait for another writer of the store; None waits as long as
            it takes.

    Returns:
        All results, computed now or before. Errors in the input are raised; a method that breaks
        down on a cell is listed among the failures, and the other cells go on.

    Example:
        >>> grid = Grid(datasets=("digits",), methods=("proto",), splits=2, episodes=5)
        >>> outcome = run(grid)
        >>> outcome.computed, len(outcome.results)
        (2, 2)
    """
    executor = make_executor(jobs, cluster)
    told = progress or Progress()
    cells = plan(grid)
    # The same cell may be asked for under two spellings of one method.
    unique = list({cell.hash: cell for cell in cells}.values())
    path = MEMORY if store is None or str(store) == NO_STORE else str(store)
    if path != MEMORY and os.path.exists(path):
        # What is damaged is told below, by whoever computes it again.
        with Store(path, write=False, on_damage=lambda _: None) as reader:
            results = _usable(reader, unique, grid)
        if len(results) == len(unique):
            told.planned(len(unique), len(unique), 0)
            told.close()
            return Outcome(tuple(cells), results, 0, len(unique), 0, ())
    tell = told.message
    with Store(path, wait=wait_for_store, on_wait=tell, on_damage=tell) as writer:
        # Whoever held the lock may have computed some of these cells meanwhile.
        results = _usable(writer, unique, grid)
        missing = [cell for cell in unique if cell.hash not in results]
        here = writer.present([cell.hash for cell in missing])  # without their probabilities
        older = {cell.identity for cell in missing if cell.hash not in here}
        stale = len(writer.known_identities(older))
        told.planned(len(unique), len(results), stale)
        failures: list[tuple[Cell, str]] = []
        reused = len(results)
        choices = writer.all_choices() if grid.tune else {}
        # Closed at once when this loop is left by an error: workers must not go on for nobody.
        with (
            closing(told),
            training_lines(told.training),
            closing(executor.work(grid, missing, choices, told.message)) as events,
        ):
            for event in events:
                if event.result is not None:
                    writer.add(event.result)
                    results[event.cell.hash] = event.result
                    told.finished(event.result)
                elif event.failure:
                    failures.append((event.cell, event.failure))
                    told.failed(event.cell, event.failure)
                else:
                    told.started(event.cell)
                for key, choice in event.choices.items():
                    writer.add_choice(key, choice)
    return Outcome(tuple(cells), results, len(results) - reused, reused, stale, tuple(failures))


def _usable(store: Store, cells: list[Cell], grid: Grid) -> dict[str, Result]:
    """Results that need not be computed again: with probabilities where these are to be kept."""
    found = store.get([cell.hash for cell in cells])
    if not grid.keep_probabilities:
        return found
    kept = store.have_answers(found)
    return {key: result for key, result in found.items() if key in kept}


def make_executor(jobs: int = 1, cluster: str | None = None) -> Executor:
    """Choose who computes: this process, several processes, or a cluster."""
    check_jobs(jobs)
    if cluster is None:
        return HereExecutor() if jobs == 1 else ProcessExecutor(jobs)
    if jobs > 1:
        raise FewviewError(
            f"--jobs {jobs} and --cluster {cluster}: give one of them; how many cells a cluster "
            "computes at once is a matter of its workers"
        )
    from fewview.evaluate._cluster import ClusterExecutor

    return ClusterExecutor(cluster)
