"""Is a stored row what was written? Rows carry digests, and a cell's key is its own digest.

A row of before there were digests is checked by what can be checked: its key, and the means that
were stored beside its numbers.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from operator import itemgetter
from typing import Any

import numpy as np

from fewview.results._cells import Cell, Result, content_hash
from fewview.results._metrics import PER_EPISODE, Answers, EpisodeMetrics

KINDS = {"str": "TEXT", "int": "INTEGER", "float": "REAL", "bool": "INTEGER"}
CELL = {item.name: KINDS.get(str(item.type), "TEXT") for item in fields(Cell)}
# Not what has a table of its own.
EXTRA = {
    item.name: KINDS[str(item.type)]
    for item in fields(Result)
    if item.name not in ("cell", "metrics", "answers")
}
MEANS = dict.fromkeys((*PER_EPISODE, "ece"), "REAL")
KEYS = {"hash": "TEXT", "identity": "TEXT"}
ARRAYS = (*PER_EPISODE, "bins")
_LISTS = ("base_classes", "novel")
# What the hash of the cell does not speak for.
_BESIDE_KEY = (*KEYS, *Cell.NOT_IN_KEY, *EXTRA, *(f"mean_{name}" for name in MEANS))
_MAKERS: dict[str, Callable[[Any], Any]] = {
    "TEXT": str,
    "INTEGER": int,
    "REAL": lambda x: float(x) + 0.0,
}
_beside_key, _blobs = itemgetter(*_BESIDE_KEY), itemgetter(*ARRAYS)
_key_names = tuple(name for name in CELL if name not in Cell.NOT_IN_KEY)
_key, _cell = itemgetter(*_key_names), itemgetter(*CELL)
# Means are sums of floats, whose order differs between builds of numpy.
_SAME_MEAN = 1e-13


class DamagedRowError(Exception):
    """A row is not what was written, and why."""


@dataclass(frozen=True)
class Damage:
    """Something in a store that cannot be trusted."""

    what: str  # which row, as far as it can be told
    why: str


def digest_of(plain: Sequence[Any], blobs: Sequence[bytes] = ()) -> str:
    """Digest of plain values, and of bytes after them."""
    text = json.dumps(plain).encode()
    return hashlib.blake2b(b"".join((text, *blobs)), digest_size=16).hexdigest()


def rows_of(result: Result) -> tuple[dict[str, Any], dict[str, Any]]:
    """Rows of the tables `cells` and `episodes`."""
    cell, metrics = result.cell, result.metrics
    values: dict[str, Any] = {name: getattr(cell, name) for name in (*CELL, *KEYS)}
    values |= {name: json.dumps(values[name]) for name in _LISTS}
    values |= {name: getattr(result, name) for name in EXTRA}
    values |= {f"mean_{name}": value for name, value in _means(metrics).items()}
    kinds = CELL | KEYS | EXTRA | {f"mean_{name}": kind for name, kind in MEANS.items()}
    # As SQLite gives them back (it has no -0.0), so that digests are the same.
    found = {name: _MAKERS[kinds[name]](value) for name, value in values.items()}
    found |= {
        name: np.ascontiguousarray(getattr(metrics, name), dtype="<f8").tobytes() for name in ARRAYS
    }
    digest, episodes_digest = digests_of(found)
    row = {name.removeprefix("mean_"): found[name] for name in kinds}
    blobs = {name: found[name] for name in ("hash", *ARRAYS)}
    return row | {"digest": digest}, blobs | {"digest": episodes_digest}


def answers_row(result: Result) -> dict[str, Any]:
    """Row of the table `answers`."""
    assert result.answers is not None
    scores = np.ascontiguousarray(result.answers.scores, dtype="<f4")
    labels = np.ascontiguousarray(result.answers.labels, dtype="<i4")
    row = {
        "hash": result.cell.hash,
        "shape": json.dumps(scores.shape),
        "scores": scores.tobytes(),
        "labels": labels.tobytes(),
    }
    return row | {"digest": _answers_digest(row)}


def answers_from(row: Mapping[str, Any]) -> Answers:
    """Probabilities and labels of a row of `answers`, if intact."""
    try:
        if row["digest"] != _answers_digest(row):
            raise DamagedRowError("its probabilities have changed")
        shape = tuple(json.loads(row["shape"]))
        scores = np.frombuffer(row["scores"], dtype="<f4").reshape(shape)
        labels = np.frombuffer(row["labels"], dtype="<i4").reshape(shape[:2])
    except (ValueError, TypeError):
        raise DamagedRowError("its probabilities cannot be read") from None
    return Answers(scores, labels.astype(np.int64))


def _answers_digest(row: Mapping[str, Any]) -> str:
    return digest_of([row["hash"], row["shape"]], (row["scores"], row["labels"]))


def digests_of(found: Mapping[str, Any]) -> tuple[str, str]:
    """Digests of the two rows of a result."""
    return digest_of(_beside_key(found)), digest_of([found["hash"]], _blobs(found))


def _means(metrics: EpisodeMetrics) -> dict[str, float]:
    return {name: float(getattr(metrics, name).mean()) for name in PER_EPISODE} | {
        "ece": metrics.ece
    }


def check_cell(found: dict[str, Any]) -> None:
    """Check the columns of `cells` in a row, and turn its lists into tuples."""
    try:
        given = _beside_key(found)
        for name in _LISTS:
            found[name] = tuple(json.loads(found[name]))
        key = dict(zip(_key_names, _key(found), strict=True))
        if content_hash(key) != found["hash"]:
            raise DamagedRowError("what the cell is does not fit its key")
        if found["digest"] is not None:
            if found["digest"] != digest_of(given):
                raise DamagedRowError("what was noted about the cell has changed")
        elif found["identity"] != content_hash(
            {name: value for name, value in key.items() if name not in Cell.VERSIONS}
        ):
            raise DamagedRowError("what the cell is does not fit its identity")
    except (ValueError, TypeError, RecursionError):
        raise DamagedRowError("what the cell is cannot be read") from None


def result_from(found: dict[str, Any]) -> Result:
    """Make the result of a row that holds all columns of `cells` and `episodes`, if intact."""
    check_cell(found)
    blobs = _blobs(found)
    if not all(isinstance(blob, bytes) for blob in blobs):
        raise DamagedRowError("its numbers are lost")
    if (found["digest"] is None) != (found["episodes_digest"] is None):
        raise DamagedRowError("a digest is lost")
    checked = found["digest"] is not None
    if checked and found["episodes_digest"] != digest_of([found["hash"]], blobs):
        raise DamagedRowError("its numbers have changed")
    try:
        arrays = {name: np.frombuffer(found[name], dtype="<f8") for name in ARRAYS}
        arrays["bins"] = arrays["bins"].reshape(3, -1)
        metrics = EpisodeMetrics(**arrays)
        if not checked:
            _check_means(metrics, found)
        cell = Cell(**dict(zip(CELL, _cell(found), strict=True)) | {"fixed": bool(found["fixed"])})
        cell.__dict__["hash"] = found["hash"]  # fills the cached property
        extra = {name: _MAKERS[kind](found[name]) for name, kind in EXTRA.items()}
    except (ValueError, TypeError):
        raise DamagedRowError("its numbers cannot be read") from None
    return Result(cell=cell, metrics=metrics, **extra)


def _check_means(metrics: EpisodeMetrics, found: Mapping[str, Any]) -> None:
    """Compare numbers without a digest with the means that were stored beside them."""
    if len({len(getattr(metrics, name)) for name in PER_EPISODE}) > 1:
        raise DamagedRowError("its numbers are not complete")
    with np.errstate(all="ignore"):
        for name, mean in _means(metrics).items():
            stored = found[f"mean_{name}"]
            if not abs(mean - stored) <= _SAME_MEAN * max(1.0, abs(stored)):
                raise DamagedRowError(f"its numbers do not have the stored mean of {name}")
