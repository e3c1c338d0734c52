"""Predictions for, and base statistics of, tables that need not fit into memory.

Queries are answered alone or in blocks of a stated number of neighbours; predictions are written in
parts, which appear whole or not at all, so that a run that was stopped goes on where it was. A base
set is read twice: for a fair sample, which fixes the scaling, and for the sums.
"""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from fewview.errors import FewviewError, shorten
from fewview.evaluate._predictions import predict_table, quick_inductive
from fewview.evaluate._progress import Progress
from fewview.evaluate.parts._part_columns import reference_of
from fewview.evaluate.parts._pieces import (
    WORKERS,
    Job,
    check_workers,
    in_runs,
    rows_of_piece,
    work_through,
)
from fewview.ground._rows import Columns, as_written, save_columns
from fewview.ground._whole_files import made_folder, replacing, temporary_folder
from fewview.methods.estimator.method import Method, load_model
from fewview.methods.estimator.streaming import BaseStream, Reservoir
from fewview.samples._data import MultiViewData
from fewview.samples._parts import TableParts

# Queries that are answered one by one are computed so many at a time.
AT_ONCE = 4096
NOTE = "_fewview.json"
# Sums are gathered in so many portions at most, and added up in their order.
PORTIONS = 32
# ------------------------------------------------------------------ predictions


@dataclass
class Predicting(Job):
    """Predict the rows of pieces and write a file for each."""

    model: bytes
    target: Path
    block: int  # queries that are looked at together; 1: every one alone
    reject: float | None = None
    reject_label: str = "unknown"
    alone: bool = False
    sets: float | None = None
    safe: bool = False
    device: str = "cpu"

    @cached_property
    def method(self) -> Method:
        """The model with its supports."""
        with temporary_folder() as folder:
            file = folder / "sent.model"
            file.write_bytes(self.model)
            found: Method = load_model(file, device=self.device)
            return found

    def file_of(self, number: int) -> Path:
        """Where the predictions of a piece are written."""
        return self.target / f"part-{number:06d}{self.target.suffix.lower()}"

    def work(self, numbers: Sequence[int]) -> int:
        """Write the predictions of pieces that are not there; how many rows they have."""
        written = 0
        for number in numbers:
            if self.file_of(number).exists():
                continue
            columns = self.predict(number)
            form = self.target.suffix[1:].lower()
            save_columns(as_written(columns, form, self.safe), self.file_of(number))
            written += len(columns["id"])
        return written

    def predict(self, number: int) -> Columns:
        """Predictions of a piece, block by block."""
        rows = self.piece(number)
        if rows.ids is None:
            raise FewviewError("samples in parts need ids; add a column id to every table")
        together = self.block > 1 and self.method.looks_at_queries != "-"
        size = self.block if together else min(AT_ONCE, self.rows)
        out: Columns = {}
        for start in range(0, len(rows), size):
            found = predict_table(
                self.method,
                rows[start : start + size],
                self.reject,
                self.reject_label,
                inductive=self.alone,
                coverage=self.sets,
                transductive=together or self.method.looks_at_queries == "-",
            )
            for name, cells in found.items():
                out.setdefault(name, []).extend(cells)
        return out

    def note(self) -> dict[str, Any]:
        """What the folder of predictions is about: the same for the same command.

        `inputs` says for every piece which files it was made of.
        """
        ends = [(f.name, e) for f, e in zip(self.table.folders, self.table.ends, strict=True)]
        reading = {name: value for name, value in self.table.reading.items() if name != "like"}
        asked = (
            self.block,
            self.rows,
            self.reject,
            self.reject_label,
            self.alone,
            self.sets,
            self.safe,
            self.table.text_ids,
            self.table.unsigned_ids,
        )
        digest = hashlib.sha256(self.model)
        digest.update(repr((ends, sorted(reading.items()), asked)).encode())
        states = [sorted(map(_state, folder.glob("[!.]*"))) for folder in self.table.folders]
        inputs = []
        for start in range(0, self.table.n_samples, self.rows):
            last = min(start + self.rows, self.table.n_samples) - 1
            first, final = (bisect_right(self.table.ends, row) for row in (start, last))
            made_of = hashlib.sha256(repr(states[first : final + 1]).encode())
            inputs.append(made_of.hexdigest()[:16])
        return {"fewview": "predictions in parts", "samples": self.table.n_samples,
                "parts": self.count, "block": self.block, "sha256": digest.hexdigest(),
                "inputs": inputs}  # fmt: skip


def _state(file: Path) -> tuple[str, int, int]:
    """What changes when a file does."""
    found = file.stat()
    return file.name, found.st_size, found.st_mtime_ns


def check_asked(clf: Method, target: Path, block: int | None, options: Mapping[str, Any]) -> None:
    """Refuse what cannot be done whatever the queries are, which may take long to count."""
    if clf.looks_at_queries != "-" and block is None:
        raise FewviewError(
            f"{type(clf).__name__} looks at queries together, and these come in parts; say how "
            "many neighbours it may see at once (--block 1000), or --block 1 for every query alone"
        )
    if block is not None and block < 1:
        raise FewviewError(f"--block {block}: give a positive number")
    if target.is_file() or (target.is_symlink() and not target.exists()):
        raise FewviewError(
            f"{target} is no folder, and predictions in parts are one; remove it, or choose "
            "another name with -o"
        )
    if target.exists() and not (target / NOTE).exists():
        _refuse_others(target)
    reject, coverage = options.get("reject"), options.get("sets")
    predict_table(clf, clf.fitted_.reference, reject, coverage=coverage)  # of no queries


def _refuse_others(target: Path) -> None:
    """Refuse a folder that holds something else than predictions."""
    if any(entry.name[0] != "." for entry in target.iterdir()):
        raise FewviewError(f"{target} exists and is not empty; choose another name with -o")


def predict_parts(
    clf: Method,
    table: TableParts,
    target: Path,
    *,
    block: int | None = None,
    jobs: int = 1,
    cluster: str | None = None,
    progress: Progress,
    **options: Any,
) -> int:
    """Predict a long table with a fitted method and write the folder `target`, part by part.

    `target` ends in .csv, .json or .parquet, as its parts do. Parts that are there from an earlier
    run of the same command are kept. `options` are those of `Predicting`. Gives the rows written.
    """
    check_asked(clf, target, block, options)
    check_workers(jobs, cluster)
    block = 1 if block is None else block
    reference = clf.fitted_.reference
    table = replace(table, reading={**table.reading, "like": reference})
    with temporary_folder() as folder:
        clf.save(folder / "sent.model", base_rows=True)
        model = (folder / "sent.model").read_bytes()
    target = made_folder(target).absolute()
    anew = clf.looks_at_queries != "-" and not (quick_inductive(clf) and block == 1)
    size = rows_of_piece(reference, block, slow=anew)
    job = Predicting(table, size, model, target, block, **options)
    _begin(job, progress)
    left = [number for number in range(job.count) if not job.file_of(number).exists()]
    if len(left) < job.count:
        progress.message(f"{job.count - len(left)} of {job.count} parts are there already")
    runs = in_runs(left, jobs if cluster is None else WORKERS)
    how: dict[str, Any] = {"jobs": jobs, "cluster": cluster, "progress": progress}
    written = 0
    for _, rows in work_through(job, runs, text="parts", **how):
        written += rows
    missing = [number for number in left if not job.file_of(number).exists()]
    if missing:
        raise FewviewError(
            f"{job.file_of(missing[0])} is not there; do all workers see this folder under the "
            "same name?"
        )
    for half in target.glob(".part-*"):  # of runs and workers that were killed
        half.unlink(missing_ok=True)
    return written


def _begin(job: Predicting, progress: Progress) -> None:
    """Note what a folder of predictions is about, or see that it is about the same.

    Predictions of queries whose files have changed since are removed, to be made again.
    """
    file, note = job.target / NOTE, job.note()
    if file.exists():
        try:
            found = json.loads(file.read_text(encoding="utf-8"))
            before = found.pop("inputs")
        except (ValueError, LookupError, AttributeError):
            found, before = {}, []
        now = {name: value for name, value in note.items() if name != "inputs"}
        same = found == now and len(before) == len(note["inputs"])
        if not same and any(job.target.glob("part-*")):
            raise FewviewError(
                f"{job.target} holds predictions of another command (other queries, supports, "
                "model or options); choose another name with -o, or remove the folder"
            )
        pairs = zip(before, note["inputs"], strict=True) if same else ()
        changed = [number for number, (old, new) in enumerate(pairs) if old != new]
        stale = [job.file_of(number) for number in changed if job.file_of(number).exists()]
        for old_file in stale:
            old_file.unlink()
        if stale:
            progress.message(f"{len(stale)} of {job.count} parts are made again: files of their "
                             "queries have changed")  # fmt: skip
    else:
        _refuse_others(job.target)
    with replacing(file) as temporary:
        temporary.write_text(json.dumps(note, indent=1) + "\n", encoding="utf-8")


# ------------------------------------------------------------------ base sets


@dataclass
class Sampling(Job):
    """Find a fair sample of a labelled table; the same whatever the order of its rows."""

    seed: int
    kind: type  # of labels

    def work(self, numbers: Sequence[int]) -> Reservoir:
        """The sample of some pieces."""
        kept: Reservoir | None = None
        for number in numbers:
            rows = _wide(self.piece(number))
            self.check(rows)
            kept = (kept or Reservoir.empty(rows, self.seed)).update(rows)
        assert kept is not None
        return kept

    def check(self, rows: MultiViewData) -> None:
        """Every sample has a label, and all are numbers or all are text."""
        bare = np.flatnonzero(rows.codes < 0)
        if bare.size:
            which = "" if rows.ids is None else f" (id {shorten(rows.ids[bare].tolist())})"
            raise FewviewError(
                f"samples of the base set have no label{which}; drop or label them, with "
                "labels.csv in every part or a column that is named with --labels (a base set "
                "without any labels cannot come in parts: give one folder or file)"
            )
        for label in rows.classes.tolist():
            if type(label) is not self.kind:
                raise FewviewError(
                    f"labels are {self.kind.__name__} in the first part and "
                    f"{type(label).__name__} in another (such as {label!r}), so that a class would "
                    "be two; write them alike, with a letter in every label that is a number"
                )


@dataclass
class Summing(Job):
    """Add up what a method learns from base classes."""

    start: BaseStream

    def work(self, numbers: Sequence[int]) -> BaseStream:
        """The sums of some pieces."""
        stream = self.start
        for number in numbers:
            stream = stream.update(_wide(self.piece(number)))
        return stream


def _wide(rows: MultiViewData) -> MultiViewData:
    """The same samples in float64; whether a file can do with float32 differs from part to part."""
    views = {view: block.astype(np.float64) for view, block in rows.views.items()}
    return MultiViewData.unchecked(
        views, rows.mask, rows.labels, rows.ids, rows.columns, rows.name, rows.kinds
    )


def gather_parts(
    method: Method,
    table: TableParts,
    *,
    jobs: int = 1,
    cluster: str | None = None,
    progress: Progress,
) -> BaseStream:
    """What a method learns from a base set in parts."""
    check_workers(jobs, cluster)
    told: set[str] = set()  # what all readings of the parts have to tell
    how: dict[str, Any] = {"jobs": jobs, "cluster": cluster, "progress": progress, "told": told}
    reference, kind = reference_of(table, **how)
    table = replace(table, reading={**table.reading, "like": reference})
    size = rows_of_piece(reference)
    sampling = Sampling(table, size, method.random_state, kind)
    portion = max(1, -(-sampling.count // PORTIONS))
    numbers = range(sampling.count)
    runs = [list(numbers[k : k + portion]) for k in range(0, sampling.count, portion)]
    sample: Reservoir | None = None
    for _, found in work_through(sampling, runs, text="sample", **how):
        sample = found if sample is None else sample.merge(found)
    assert sample is not None
    # Pieces have names of their own, of which one happened to be read first.
    start = BaseStream.start(method, sample.rows.with_name(None))
    total: BaseStream | None = None
    next_one, early = 0, dict[int, BaseStream]()
    for number, found in work_through(Summing(table, size, start), runs, text="sums", **how):
        early[number] = found
        while next_one in early:  # always in the same order, for the same digits
            stream = early.pop(next_one)
            total = stream if total is None else total.merge(stream)
            next_one += 1
    assert total is not None
    return total
