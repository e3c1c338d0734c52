"""Where results live: one SQLite file, one writer, one transaction per finished cell.

Whoever writes holds a lock beside the file; a second writer waits for it. Readers need no lock. A
process that is killed loses the cells in flight and nothing else. Every row that is read is checked
(`_digests.py`); a damaged one is reported and counts as absent.
"""

from __future__ import annotations

import json
import os
import re
import socket
import sqlite3
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fewview.errors import FewviewError, FewviewWarning
from fewview.results._cells import Result
from fewview.results._digests import (
    ARRAYS,
    CELL,
    EXTRA,
    KEYS,
    MEANS,
    Damage,
    DamagedRowError,
    answers_from,
    answers_row,
    check_cell,
    digest_of,
    digests_of,
    result_from,
    rows_of,
)

if TYPE_CHECKING:
    from filelock import FileLock

    from fewview.results._metrics import Answers

SCHEMA_VERSION = 1
# What a damaged file leads to; the other errors of sqlite3 are slips of whoever calls it.
DAMAGE = (sqlite3.DatabaseError, UnicodeError)
REFUSED = {
    sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_MISUSE,
}  # fmt: skip
APPLICATION_ID = 0x66657776  # "fewv", so that a foreign SQLite file is recognised
NO_STORE = "none"
MEMORY = ":memory:"
TABLES = ("cells", "episodes", "choices")
# What is read of the two tables of results, and the names it goes by.
_COLUMNS = {name: f"cells.{name}" for name in (*KEYS, *CELL, *EXTRA)}
_COLUMNS |= {f"mean_{name}": f"cells.{name}" for name in MEANS}
_COLUMNS |= {name: f"episodes.{name}" for name in ARRAYS}
# File systems of the machine itself, where the shared memory of a write-ahead log works.
_LOCAL = ("ext2", "ext3", "ext4", "xfs", "btrfs", "tmpfs", "zfs", "f2fs", "overlay", "ramfs")

# Not accuracy: choosing class splits by their outcome would make the means lie.
FILTERS = (
    "dataset", "base", "split", "way", "shot", "queries", "query_counts", "missing", "eta",
    "method", "method_class", "method_version", "sampler_version", "scaling", "padding", "seed",
    "dtype", "device", "tune", "host", "created", "parameters", "hash",
)  # fmt: skip


def default_path() -> Path:
    """Where results go when nobody says: `$FEWVIEW_STORE`, else the user's cache folder."""
    from fewview.datasets._catalogue import cache_folder

    given = os.environ.get("FEWVIEW_STORE")
    return Path(given).expanduser() if given else cache_folder(sys.platform) / "results.sqlite"


class Store:
    """Results by content hash of their cells.

    Args:
        path: the file; `":memory:"` keeps results for the life of this object only.
        write: whether to write; a writer creates the file and holds its lock until `close`.
        wait: seconds to wait for another writer; None waits as long as it takes, 0 not at all.
        on_wait: called once with a message when waiting begins.
        on_damage: called with a message when rows were damaged and left out; a warning without.
        salvage: open for reading whatever the file says it is.

    Example:
        >>> import numpy as np
        >>> from fewview.results._cells import example_cell
        >>> from fewview.results._metrics import measure
        >>> metrics = measure(np.zeros((40, 6, 3)), np.zeros((40, 6), dtype=np.int64))
        >>> with Store() as store:
        ...     store.add(Result(cell=example_cell(), metrics=metrics, seconds=1, seconds_base=2))
        ...     [result.cell.method for result in store.select(["eta<=0.3"])]
        ['proto']
    """

    def __init__(
        self,
        path: str | os.PathLike[str] = MEMORY,
        *,
        write: bool = True,
        wait: float | None = None,
        on_wait: Callable[[str], None] | None = None,
        on_damage: Callable[[str], None] | None = None,
        salvage: bool = False,
    ) -> None:
        self.path = str(path)
        self._on_damage = on_damage or _warn
        self.has_digests = True
        self._begun = False
        self._lock: FileLock | None = None
        self._connection: sqlite3.Connection | None = None
        if self.path == MEMORY:
            self._connection = sqlite3.connect(MEMORY)
            _create(self._connection)
            return
        file = Path(self.path)
        try:
            if write:
                file.parent.mkdir(parents=True, exist_ok=True)
                self._lock = acquire(file, wait, on_wait)
                self._connection = sqlite3.connect(file, timeout=60)
                _begin_writing(self._connection, file)
                self._begun = True
                self._fill_digests()
            else:
                self._open_reader(file, salvage)
                self.has_digests = all("digest" in self._columns(table) for table in TABLES)
        except BaseException as error:
            self.close()
            if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL:
                raise FewviewError(
                    f"{file}: no room left on the disk; what was written is safe: make room, "
                    "or choose another file, and run the same command again"
                ) from None
            if isinstance(error, DAMAGE):
                _raise_if_refused(error, file)
                raise FewviewError(
                    f"{file}: not a fewview result store, or a damaged one ({error}); choose "
                    f"another file, or save what can be read: fewview results {file} --repair"
                ) from None
            if isinstance(error, OSError):
                raise FewviewError(f"{file}: cannot open the store ({error.strerror})") from None
            raise

    def _open_reader(self, file: Path, salvage: bool) -> None:
        """Open a store that is there, so that nothing can be written."""
        if not file.is_file():
            raise FewviewError(f"{file}: no such result store; 'fewview bench' writes one")
        place = f"{file.resolve().as_uri()}?mode=ro"
        self._connection = sqlite3.connect(place, uri=True, timeout=60)
        if salvage:
            return
        try:
            _check_schema(self._connection, file)
        except sqlite3.OperationalError as error:
            code = getattr(error, "sqlite_errorcode", 0)
            if code & 255 in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                raise
            # Where the folder cannot be written, the log cannot be shared: take the file as it is.
            self._connection.close()
            self._connection = sqlite3.connect(f"{place}&immutable=1", uri=True, timeout=60)
            _check_schema(self._connection, file)

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file and let the next writer in."""
        if self._connection is not None:
            if self._begun:
                # Readers of a store in this mode leave no files beside it. One that reads just now
                # keeps it as it is.
                with suppress(sqlite3.Error):
                    self._connection.execute("PRAGMA busy_timeout=0")
                    self._connection.execute("PRAGMA journal_mode=DELETE")
            self._connection.close()
            self._connection = None
        if self._lock is not None:
            Path(f"{self.path}.holder").unlink(missing_ok=True)
            self._lock.release()  # its file stays, removing it would race
            self._lock = None

    @property
    def connection(self) -> sqlite3.Connection:
        """The open connection."""
        if self._connection is None:
            raise FewviewError(f"{self.path}: the store is closed")
        return self._connection

    # ------------------------------------------------------------------ writing

    def add(self, *results: Result) -> None:
        """Write finished cells, in one transaction; the same cell again replaces itself."""
        rows = [rows_of(result) for result in results]
        kept = [answers_row(result) for result in results if result.answers is not None]
        if kept:  # made when first needed: most stores have none
            self.connection.execute(
                "CREATE TABLE IF NOT EXISTS answers (hash TEXT NOT NULL UNIQUE, shape TEXT NOT "
                "NULL, scores BLOB NOT NULL, labels BLOB NOT NULL, digest TEXT NOT NULL)"
            )
        cells = [row for row, _ in rows]
        self._write(cells=cells, episodes=[blobs for _, blobs in rows], answers=kept)

    def add_choice(self, key: str, choice: dict[str, Any]) -> None:
        """Remember what was chosen on base classes (plain values)."""
        text = json.dumps(choice)
        self._write(choices=[{"key": key, "choice": text, "digest": digest_of([key, text])}])

    def _write(self, **rows: list[dict[str, Any]]) -> None:
        """Write rows into some tables, all or none."""
        try:
            with self.connection as connection:
                for table, some in rows.items():
                    for row in some:
                        marks = ", ".join(f":{name}" for name in row)
                        connection.execute(
                            f"INSERT OR REPLACE INTO {table} ({', '.join(row)}) VALUES ({marks})",
                            row,
                        )
        except sqlite3.Error as error:
            raise FewviewError(
                f"{self.path}: cannot write the result ({error}); what was written before is safe"
            ) from None

    def _fill_digests(self) -> None:
        """Give rows of an older fewview their digests, as far as they can be checked."""
        with self.connection as connection:
            for table in TABLES:
                if "digest" not in self._columns(table):
                    connection.execute(f"ALTER TABLE {table} ADD COLUMN digest TEXT")
            for found in list(self._scan("cells.digest IS NULL")):
                with suppress(DamagedRowError):
                    result_from(dict(found))
                    for table, digest in zip(TABLES, digests_of(found), strict=False):
                        place = (digest, found["hash"])
                        connection.execute(f"UPDATE {table} SET digest = ? WHERE hash = ?", place)
            rows = connection.execute("SELECT key, choice FROM choices WHERE digest IS NULL")
            for key, choice in rows.fetchall():
                with suppress(ValueError):
                    json.loads(choice)
                    place = (digest_of([key, choice]), key)
                    connection.execute("UPDATE choices SET digest = ? WHERE key = ?", place)

    # ------------------------------------------------------------------ reading

    @contextmanager
    def _one_sentence(self) -> Iterator[None]:
        """Say what to do where SQLite cannot read the file."""
        try:
            yield
        except DAMAGE as error:
            _raise_if_refused(error, self.path)
            raise FewviewError(
                f"{self.path}: the store is damaged ({error}); 'fewview results {self.path} "
                "--repair' keeps what can be read, the rest is computed again"
            ) from None

    def _fetch(self, query: str, values: Sequence[Any] = ()) -> list[Any]:
        with self._one_sentence():
            return self.connection.execute(query, values).fetchall()

    def _columns(self, table: str) -> set[str]:
        return {row[1] for row in self.connection.execute(f"PRAGMA table_info({table})")}

    def __len__(self) -> int:
        return int(self._fetch("SELECT count(*) FROM cells")[0][0])

    def all_choices(self) -> dict[str, dict[str, Any]]:
        """Return everything that was chosen on base classes before, by key."""
        choices, damages = self.read_choices()
        self._report(damages)
        return choices

    def read_choices(self) -> tuple[dict[str, dict[str, Any]], list[Damage]]:
        """Return what was chosen on base classes by key, and what is damaged."""
        choices, damages = {}, []
        digest = "digest" if self.has_digests else "NULL"
        for key, choice, kept in self._fetch(f"SELECT key, choice, {digest} FROM choices"):
            try:
                if kept is not None and kept != digest_of([key, choice]):
                    raise ValueError
                choices[key] = json.loads(choice)
            except (ValueError, TypeError):
                damages.append(Damage(f"choice of settings {str(key)[:12]}", "it has changed"))
        return choices, damages

    def present(self, hashes: Iterable[str]) -> set[str]:
        """Say which of these cells are in the store."""
        return self._matching("hash", hashes)

    def known_identities(self, identities: Iterable[str]) -> set[str]:
        """Say which of these cells are in the store in any version."""
        return self._matching("identity", identities)

    def _matching(self, column: str, values: Iterable[str]) -> set[str]:
        clause, given = _one_of(column, values)
        return {row[0] for row in self._fetch(f"SELECT {column} FROM cells WHERE {clause}", given)}

    def answers(self, hashes: Iterable[str]) -> Iterator[tuple[str, Answers]]:
        """Give probabilities and labels of every query of these cells, one cell after another.

        Cells whose probabilities were not kept (`bench --keep-probabilities`) are left out.

        Args:
            hashes: of cells, for instance `result.cell.hash`.

        Example:
            >>> from fewview.evaluate import Grid, run
            >>> grid = Grid(datasets=("digits",), methods=("proto",), splits=1, episodes=2,
            ...             keep_probabilities=True)
            >>> result, = run(grid).results.values()
            >>> with Store() as store:
            ...     store.add(result)
            ...     [found.scores.shape for _, found in store.answers([result.cell.hash])]
            [(2, 90, 3)]
        """
        damages = []
        for key in dict.fromkeys(hashes):
            for row in self._answer_rows("hash = ?", [key]):
                try:
                    yield key, answers_from(row)
                except DamagedRowError as error:
                    damages.append(Damage(f"cell {key[:12]}", str(error)))
        self._report(damages)

    def have_answers(self, hashes: Iterable[str]) -> set[str]:
        """Say for which of these cells intact probabilities are kept."""
        return {key for key, _ in self.answers(hashes)}

    def read_answers(self) -> tuple[dict[str, Answers], list[Damage]]:
        """Return all intact probabilities by hash of their cells, and what is damaged."""
        kept, damages = {}, []
        for row in self._answer_rows():
            try:
                kept[row["hash"]] = answers_from(row)
            except DamagedRowError as error:
                damages.append(Damage(f"cell {str(row['hash'])[:12]}", str(error)))
        return kept, damages

    def _answer_rows(self, where: str = "1", given: Sequence[Any] = ()) -> list[dict[str, Any]]:
        if not self._columns("answers"):
            return []
        names = ("hash", "shape", "scores", "labels", "digest")
        query = f"SELECT {', '.join(names)} FROM answers WHERE {where}"
        return [dict(zip(names, row, strict=True)) for row in self._fetch(query, given)]

    def get(self, hashes: Iterable[str]) -> dict[str, Result]:
        """Return the results of these cells, by hash; absent ones are left out."""
        where, given = _one_of("hash", hashes)
        out, damages = {}, []
        with self._one_sentence():
            for found in self._scan(where, given):
                try:
                    out[found["hash"]] = result_from(found)
                except DamagedRowError as error:
                    damages.append(damage_of(found, error))
        self._report(damages)
        return out

    def select(self, where: Sequence[str] = ()) -> list[Result]:
        """Return results that meet all conditions, in the order they were written.

        Args:
            where: conditions such as `"dataset=digits"`, `"eta<=0.3"`, `"method~ugda"` (contains),
                `"method=proto|ugda"` (one of).

        Example:
            >>> Store().select(["method=proto", "eta<=0.3"])
            []
            >>> Store().select(["colour=red"])
            Traceback (most recent call last):
            ...
            fewview.FewviewError: condition 'colour=red': no column 'colour'; ...
        """
        parsed = [parse_condition(condition) for condition in where]
        clause = " AND ".join(part for part, _ in parsed) or "1"
        given = [value for _, values in parsed for value in values]
        results, damages = self.read_all(clause, given)
        self._report(damages)
        return results

    def read_all(
        self, clause: str = "1", values: Sequence[Any] = ()
    ) -> tuple[list[Result], list[Damage]]:
        """Return intact results that meet a condition, and all that is damaged.

        Every cell is looked at, also those that do not meet the condition: a damaged one might.
        """
        # Before cells are read, because a writer may add some meanwhile.
        with_numbers = {row[0] for row in self._fetch("SELECT hash FROM episodes")}
        results: dict[str, Result] = {}
        damages = []
        with self._one_sentence():
            for found in self._scan(wanted=clause, values=values):
                with_numbers.discard(found["hash"])
                try:
                    if found["wanted"]:
                        results[found["hash"]] = result_from(found)
                    else:
                        check_cell(found)
                except DamagedRowError as error:
                    damages.append(damage_of(found, error))
        damages += [
            Damage(f"cell {str(key)[:12]}", "lost") for key in sorted(with_numbers, key=str)
        ]
        return [*results.values()], damages

    def _scan(
        self,
        where: str = "1",
        given: Sequence[Any] = (),
        *,
        wanted: str = "1",
        values: Sequence[Any] = (),
        order: str = "cells.rowid",
    ) -> Iterator[dict[str, Any]]:
        """Read rows as they are; numbers of episodes only of those that are wanted."""
        digests = [f"{table}.digest" if self.has_digests else "NULL" for table in TABLES[:2]]
        names = (*_COLUMNS, "digest", "episodes_digest", "wanted")
        query = (
            f"SELECT {', '.join(_COLUMNS.values())}, {', '.join(digests)}, {wanted} FROM cells "
            f"LEFT JOIN episodes ON episodes.hash = cells.hash AND {wanted} "
            f"WHERE {where} ORDER BY {order}"
        )
        given = [*values, *values, *given]
        try:
            for row in self.connection.execute(query, given):
                yield dict(zip(names, row, strict=True))
        except sqlite3.OperationalError as error:
            if "decode" not in str(error):
                raise
            # A letter is damaged: read again without taking offence, digests find it.
            self.connection.text_factory = lambda text: text.decode(errors="surrogateescape")
            for row in self.connection.execute(query, given):
                yield dict(zip(names, row, strict=True))

    def salvage(self) -> tuple[list[Result], list[Damage]]:
        """Return every intact result that can be reached, also where SQLite gives up."""
        results: dict[str, Result] = {}
        damages: dict[str, Damage] = {}

        def read(*where: Any, **order: str) -> None:
            try:
                for found in self._scan(*where, **order):
                    try:
                        results[found["hash"]] = result_from(found)
                    except DamagedRowError as error:
                        damages[found["hash"]] = damage_of(found, error)
            except (sqlite3.Error, UnicodeError) as error:
                damages.setdefault(str(error), Damage("file", str(error)))

        read()
        if damages:  # perhaps some can be reached in other ways
            read(order="cells.rowid DESC")
            keys: set[str] = set()
            for table in TABLES[:2]:
                with suppress(sqlite3.Error, UnicodeError):
                    keys.update(r[0] for r in self.connection.execute(f"SELECT hash FROM {table}"))
            for key in sorted(keys - results.keys() - damages.keys(), key=str):
                read("cells.hash = ?", [key])
        return [*results.values()], [
            damage for key, damage in damages.items() if key not in results
        ]

    def _report(self, damages: Sequence[Damage]) -> None:
        """Say in one sentence that something is damaged."""
        if damages:
            self._on_damage(
                f"{self.path}: {len(set(damages))} damaged row(s) left out; 'fewview results "
                f"{self.path} --check' lists them, --repair drops them; 'bench' computes them again"
            )


def damage_of(found: dict[str, Any], error: Exception) -> Damage:
    """Describe a damaged row."""
    about = f"{found['dataset']} split {found['split']} eta {found['eta']} {found['method']}"
    return Damage(f"cell {str(found['hash'])[:12]} ({about})", str(error))


def _warn(text: str) -> None:
    warnings.warn(text, FewviewWarning, stacklevel=4)


def _one_of(column: str, values: Iterable[str]) -> tuple[str, list[str]]:
    """A condition with one parameter for all values, because SQLite limits their number."""
    return f"cells.{column} IN (SELECT value FROM json_each(?))", [json.dumps(list(values))]


def parse_condition(text: str) -> tuple[str, list[Any]]:
    """Turn `column operator value` into SQL with parameters."""
    parts = re.fullmatch(r"(.*?)(!=|<=|>=|[=<>~])(.*)", text, re.DOTALL)
    if parts is None:
        raise FewviewError(
            f"condition {text!r}: write column, operator, value, for instance eta<=0.3 "
            "(operators != <= >= = < > ~)"
        )
    column, operator, value = map(str.strip, parts.groups())
    if column not in FILTERS:
        raise FewviewError(
            f"condition {text!r}: no column {column!r}; there are {', '.join(FILTERS)}"
        )
    place = f"cells.{column}"
    if operator == "~":
        return f"instr({place}, ?) > 0", [value]
    if operator in ("=", "!=") and "|" in value and column != "tune":
        options = [_number_or_text(part.strip()) for part in value.split("|")]
        negation = "NOT " if operator == "!=" else ""
        return f"{place} {negation}IN ({','.join('?' * len(options))})", options
    return f"{place} {operator} ?", [_number_or_text(value)]


def _number_or_text(text: str) -> int | float | str:
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return text


# ---------------------------------------------------------------------- opening the file


def _begin_writing(connection: sqlite3.Connection, file: Path) -> None:
    """Make a new store, or check that this is one."""
    empty = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
    if not empty:
        _check_schema(connection, file)
    mode, care = ("WAL", "NORMAL") if on_local_disk(file) else ("DELETE", "FULL")
    connection.execute(f"PRAGMA journal_mode={mode}")
    connection.execute(f"PRAGMA synchronous={care}")
    if empty:
        _create(connection)


def _raise_if_refused(error: BaseException, file: Path | str) -> None:
    """Say what the machine or another process refuses, which is no damage; let slips through."""
    if isinstance(error, (sqlite3.ProgrammingError, sqlite3.NotSupportedError)):
        raise error
    code = getattr(error, "sqlite_errorcode", None)
    if code is not None and code & 255 in REFUSED:  # the other bits say more precisely which
        raise FewviewError(
            f"{file}: cannot be used now ({error}), which is no damage; see whether another "
            "program has it, its folder can be written and its disk answers, then try again"
        ) from None


def _check_schema(connection: sqlite3.Connection, file: Path) -> None:
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if application != APPLICATION_ID:
        raise FewviewError(f"{file}: not a fewview result store; choose another file for --store")
    if version != SCHEMA_VERSION:
        raise FewviewError(
            f"{file}: a store of schema {version}, this fewview knows {SCHEMA_VERSION}; "
            "use the fewview that wrote it, or another file for --store"
        )


def _create(connection: sqlite3.Connection) -> None:
    columns = CELL | EXTRA | MEANS
    cells = ", ".join(f"{name} {kind} NOT NULL" for name, kind in columns.items())
    blobs = ", ".join(f"{name} BLOB NOT NULL" for name in ARRAYS)
    with connection:
        connection.execute("BEGIN IMMEDIATE")
        for statement in (
            f"CREATE TABLE cells (hash TEXT NOT NULL UNIQUE, identity TEXT NOT NULL, {cells}, "
            "digest TEXT)",
            f"CREATE TABLE episodes (hash TEXT NOT NULL UNIQUE, {blobs}, digest TEXT)",
            "CREATE TABLE choices (key TEXT NOT NULL UNIQUE, choice TEXT NOT NULL, digest TEXT)",
            "CREATE INDEX cells_identity ON cells (identity)",
            "CREATE INDEX cells_place ON cells (dataset, method, eta)",
            f"PRAGMA application_id = {APPLICATION_ID}",
            f"PRAGMA user_version = {SCHEMA_VERSION}",
        ):
            connection.execute(statement)


def on_local_disk(file: Path, mounts: str | None = None) -> bool:
    """Say whether a file is certainly on a disk of this machine; if in doubt, it is not."""
    if mounts is None:
        try:
            mounts = Path("/proc/self/mounts").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return False
    lines = [line.split() for line in mounts.splitlines()]
    kinds = {parts[1].replace("\\040", " "): parts[2] for parts in lines if len(parts) > 2}
    place = file.resolve()
    mounted = (str(folder) for folder in (place, *place.parents) if str(folder) in kinds)
    return kinds.get(next(mounted, ""), "") in _LOCAL


# ---------------------------------------------------------------------- one writer at a time

_taken: dict[str, tuple[FileLock, int]] = {}  # by whom in this process: lock and thread


def acquire(file: Path, wait: float | None, on_wait: Callable[[str], None] | None) -> FileLock:
    """Take the lock `<file>.lock`, which the operating system frees when a process ends."""
    from filelock import FileLock, Timeout

    place = f"{file}.lock"
    # Where it cannot be made, the lock would wait for ever.
    os.close(os.open(place, os.O_RDWR | os.O_CREAT, 0o666))
    lock = FileLock(place, thread_local=False)  # whoever closes the store frees it
    try:
        try:
            lock.acquire(timeout=0)
        except Timeout:
            held, thread = _taken.get(os.path.realpath(place), (lock, 0))
            if wait is None and held.is_locked and thread == threading.get_ident():
                raise  # for ever: only this thread could free it
            if wait != 0 and on_wait is not None:
                on_wait(f"{file}: in use by {_holder(file)}; waiting until it is free")
            lock.acquire(timeout=-1 if wait is None else wait, poll_interval=0.2)
    except (Timeout, RuntimeError):  # later filelocks say of waiting for oneself: RuntimeError
        raise FewviewError(
            f"{file}: in use by {_holder(file)}; wait for it to end, or choose another --store"
        ) from None
    _taken[os.path.realpath(place)] = (lock, threading.get_ident())
    # Not in the lock's own file, which waiting processes may empty.
    since = datetime.now(UTC).isoformat(timespec="seconds")
    text = f"process {os.getpid()} on {socket.gethostname()} since {since}\n"
    Path(f"{file}.holder").write_text(text, encoding="utf-8")
    return lock


def _holder(file: Path) -> str:
    with suppress(OSError):
        return Path(f"{file}.holder").read_text(encoding="utf-8").strip() or "another process"
    return "another process"
