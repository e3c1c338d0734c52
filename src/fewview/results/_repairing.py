"""What is damaged in a store, and how is it made whole? `fewview results --check` and `--repair`.

A repair writes everything that is intact into a new file and keeps the old one beside it, whatever
is wrong: rows, indices, pages that SQLite cannot read.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fewview.errors import FewviewError
from fewview.results._cells import Result
from fewview.results._digests import Damage
from fewview.results._store import Store, acquire


@dataclass(frozen=True)
class StoreState:
    """What was found in a store."""

    n_intact: int
    damages: tuple[Damage, ...]
    note: str = ""  # on how sure this is
    moved_to: Path | None = None  # where the file of before is, if it was replaced


def check_store(path: str) -> StoreState:
    """Look at every row and page of a store."""
    return _read(path)[0]


def repair_store(path: str) -> StoreState:
    """Write what is intact into a new file; without damage nothing is done."""
    file = Path(path)
    if not file.is_file():
        raise FewviewError(f"{file}: no such result store; 'fewview bench' writes one")
    lock = acquire(file, 0, None)
    fresh, aside = Path(f"{file}.repaired"), _free(file)
    try:
        state, results, choices = _read(path)
        if not state.damages:
            return state
        if not results:
            raise FewviewError(
                f"{file}: no result can be read; if this is a result store, move it away, and "
                "'fewview bench' computes everything again"
            )
        _remove(fresh)
        with Store(fresh) as writer:
            writer.add(*results)
            for key, choice in choices.items():
                writer.add_choice(key, choice)
        # What a log holds belongs to the file of before.
        for end in ("-wal", "-shm", ""):
            with suppress(FileNotFoundError):
                os.replace(f"{file}{end}", f"{aside}{end}")
        os.replace(fresh, file)
        return replace(state, moved_to=aside)
    finally:
        _remove(fresh)
        Path(f"{file}.holder").unlink(missing_ok=True)
        lock.release()


def _read(path: str) -> tuple[StoreState, list[Result], dict[str, dict[str, Any]]]:
    """Everything that can be read, and everything that is wrong."""
    damages: list[Damage] = []
    try:
        Store(path, write=False).close()
    except FewviewError as error:
        if not Path(path).is_file():
            raise
        damages.append(Damage("file", str(error).removeprefix(f"{path}: ")))
    try:
        store = Store(path, write=False, salvage=True)
    except FewviewError:
        return StoreState(0, tuple(damages)), [], {}
    choices: dict[str, dict[str, Any]] = {}
    with store:
        results, found = store.salvage()
        damages += found
        try:
            damages += store.read_all()[1]
            choices, found = store.read_choices()
            damages += found
            kept, found = store.read_answers()
            damages += found
            results = [replace(one, answers=kept.get(one.cell.hash)) for one in results]
        except FewviewError as error:
            damages.append(Damage("file", str(error).removeprefix(f"{path}: ")))
        try:
            problems = [row[0] for row in store.connection.execute("PRAGMA integrity_check(20)")]
        except (sqlite3.Error, UnicodeError) as error:
            problems = [str(error)]
        damages += [Damage("file", text) for text in problems if text != "ok"]
        note = "" if store.has_digests else " as far as can be told: older rows have no digests"
    return StoreState(len(results), tuple(dict.fromkeys(damages)), note), results, choices


def _free(file: Path) -> Path:
    """A name beside the file that nothing has."""
    number, place = 1, Path(f"{file}.damaged")
    while place.exists():
        number += 1
        place = Path(f"{file}.damaged{number}")
    return place


def _remove(file: Path) -> None:
    for end in ("", ".lock", ".holder", "-wal", "-shm"):
        Path(f"{file}{end}").unlink(missing_ok=True)
