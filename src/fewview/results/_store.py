"""Where results live: one SQLite file, one writer, one transaction per finished cell.

Whoever writes holds a lock beside the file; a second writer waits for it. Readers need no lock. A
process that is killed loses the cells in flight and nothing else.
"""

from __future__ import annotations

import json
import os
import re
import socket
import sqlite3
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fewview.ground._errors import FewviewError
from fewview.results._cells import Cell, Result
from fewview.results._metrics import PER_EPISODE, EpisodeMetrics

if TYPE_CHECKING:
    from filelock import FileLock

SCHEMA_VERSION = 1
APPLICATION_ID = 0x66657776  # "fewv", so that a foreign SQLite file is recognised
NO_STORE = "none"
MEMORY = ":memory:"
_LISTS = ("base_classes", "novel")
_KINDS = {"str": "TEXT", "int": "INTEGER", "float": "REAL", "bool": "INTEGER"}
_CELL = {item.name: _KINDS.get(str(item.type), "TEXT") for item in fields(Cell)}
_EXTRA = {item.name: _KINDS[str(item.type)] for item in fields(Result)[2:]}  # not cell, metrics
_ARRAYS = (*PER_EPISODE, "bins")
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

    Example:
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
    ) -> None:
        self.path = str(path)
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
                self._lock = _acquire(file, wait, on_wait)
                self._connection = sqlite3.connect(file, timeout=60)
                _begin_writing(self._connection, file)
            else:
                self._open_reader(file)
        except BaseException as error:
            self.close()
            if isinstance(error, sqlite3.Error):
                raise FewviewError(f"{file}: not a fewview result store ({error})") from None
            if isinstance(error, OSError):
                raise FewviewError(f"{file}: cannot open the store ({error.strerror})") from None
            raise

    def _open_reader(self, file: Path) -> None:
        """Open a store that is there, so that nothing can be written."""
        if not file.is_file():
            raise FewviewError(f"{file}: no such result store; 'fewview bench' writes one")
        place = f"{file.resolve().as_uri()}?mode=ro"
        self._connection = sqlite3.connect(place, uri=True, timeout=60)
        try:
            _check_schema(self._connection, file)
        except sqlite3.OperationalError:
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

    def add(self, result: Result) -> None:
        """Write one finished cell, in one transaction; the same cell again replaces itself."""
        cell, metrics = result.cell, result.metrics
        row: dict[str, Any] = {name: getattr(cell, name) for name in _CELL}
        row |= {name: json.dumps(row[name]) for name in _LISTS}
        row |= {name: getattr(result, name) for name in _EXTRA}
        row |= {name: float(getattr(metrics, name).mean()) for name in PER_EPISODE}
        row |= {"hash": cell.hash, "identity": cell.identity, "ece": metrics.ece}
        blobs: dict[str, Any] = {
            name: np.ascontiguousarray(getattr(metrics, name), dtype="<f8").tobytes()
            for name in _ARRAYS
        }
        self._write(cells=row, episodes=blobs | {"hash": cell.hash})

    def add_choice(self, key: str, choice: dict[str, Any]) -> None:
        """Remember what was chosen on base classes (plain values)."""
        self._write(choices={"key": key, "choice": json.dumps(choice)})

    def _write(self, **rows: dict[str, Any]) -> None:
        """Write a row into each of some tables, all or none."""
        try:
            with self.connection as connection:
                for table, row in rows.items():
                    marks = ", ".join(f":{name}" for name in row)
                    connection.execute(
                        f"INSERT OR REPLACE INTO {table} ({', '.join(row)}) VALUES ({marks})", row
                    )
        except sqlite3.OperationalError as error:
            raise FewviewError(
                f"{self.path}: cannot write the result ({error}); what was written before is safe"
            ) from None

    # ------------------------------------------------------------------ reading

    def __len__(self) -> int:
        return int(self.connection.execute("SELECT count(*) FROM cells").fetchone()[0])

    def all_choices(self) -> dict[str, dict[str, Any]]:
        """Return everything that was chosen on base classes before, by key."""
        rows = self.connection.execute("SELECT key, choice FROM choices")
        return {key: json.loads(choice) for key, choice in rows}

    def present(self, hashes: Iterable[str]) -> set[str]:
        """Say which of these cells are in the store."""
        return self._matching("hash", hashes)

    def known_identities(self, identities: Iterable[str]) -> set[str]:
        """Say which of these cells are in the store in any version."""
        return self._matching("identity", identities)

    def _matching(self, column: str, values: Iterable[str]) -> set[str]:
        clause, given = _one_of(column, values)
        rows = self.connection.execute(f"SELECT {column} FROM cells WHERE {clause}", given)
        return {row[0] for row in rows}

    def get(self, hashes: Iterable[str]) -> dict[str, Result]:
        """Return the results of these cells, by hash; absent ones are left out."""
        return {result.cell.hash: result for result in self._read(*_one_of("hash", hashes))}

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
        return list(self._read(clause, [value for _, values in parsed for value in values]))

    def _read(self, clause: str, values: Sequence[Any]) -> Iterator[Result]:
        names = (*_CELL, *_EXTRA, "hash", *_ARRAYS)
        columns = [f"{'episodes' if name in _ARRAYS else 'cells'}.{name}" for name in names]
        query = (
            f"SELECT {', '.join(columns)} FROM cells JOIN episodes USING (hash) "
            f"WHERE {clause} ORDER BY cells.rowid"
        )
        for row in self.connection.execute(query, values):
            found = dict(zip(names, row, strict=True))
            found |= {name: tuple(json.loads(found[name])) for name in _LISTS}
            found["fixed"] = bool(found["fixed"])
            cell = Cell(**{name: found[name] for name in _CELL})
            cell.__dict__["hash"] = found["hash"]  # fills the cached property
            arrays = {name: np.frombuffer(found[name], dtype="<f8") for name in _ARRAYS}
            arrays["bins"] = arrays["bins"].reshape(3, -1)
            extra = {name: found[name] for name in _EXTRA}
            yield Result(cell=cell, metrics=EpisodeMetrics(**arrays), **extra)


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
    columns = _CELL | _EXTRA | dict.fromkeys((*PER_EPISODE, "ece"), "REAL")
    cells = ", ".join(f"{name} {kind} NOT NULL" for name, kind in columns.items())
    blobs = ", ".join(f"{name} BLOB NOT NULL" for name in _ARRAYS)
    with connection:
        connection.execute("BEGIN IMMEDIATE")
        for statement in (
            f"CREATE TABLE cells (hash TEXT NOT NULL UNIQUE, identity TEXT NOT NULL, {cells})",
            f"CREATE TABLE episodes (hash TEXT NOT NULL UNIQUE, {blobs})",
            "CREATE TABLE choices (key TEXT NOT NULL UNIQUE, choice TEXT NOT NULL)",
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


def _acquire(file: Path, wait: float | None, on_wait: Callable[[str], None] | None) -> FileLock:
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
            if wait != 0 and on_wait is not None:
                on_wait(f"{file}: in use by {_holder(file)}; waiting until it is free")
            lock.acquire(timeout=-1 if wait is None else wait, poll_interval=0.2)
    except (Timeout, RuntimeError):  # a RuntimeError is the lock's word for waiting for oneself
        raise FewviewError(
            f"{file}: in use by {_holder(file)}; wait for it to end, or choose another --store"
        ) from None
    # Not in the lock's own file, which waiting processes may empty.
    since = datetime.now(UTC).isoformat(timespec="seconds")
    text = f"process {os.getpid()} on {socket.gethostname()} since {since}\n"
    Path(f"{file}.holder").write_text(text, encoding="utf-8")
    return lock


def _holder(file: Path) -> str:
    with suppress(OSError):
        return Path(f"{file}.holder").read_text(encoding="utf-8").strip() or "another process"
    return "another process"
