"""What a person does on the local page: tables come in, are joined, looked at, fitted, asked.

Files lie in a temporary folder under names that were checked, and go when the session ends. One job
runs at a time, in a thread of its own, and tells how far it is.
"""

from __future__ import annotations

import re
import shlex
import threading
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from html import escape
from io import BufferedIOBase, StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from fewview.errors import FewviewError, FewviewWarning
from fewview.evaluate._divided import (
    FEW,
    USUAL,
    Divided,
    choose_method,
    divide,
    expectation,
    fit_divided,
)
from fewview.evaluate._predictions import predict_table
from fewview.evaluate._progress import Progress
from fewview.files._tables import csv_header
from fewview.ground._markup import markup_table, share_bar, view_marks
from fewview.ground._rows import by_row
from fewview.methods.registry import get_entry, names
from fewview.report._cards import card
from fewview.report.pages._excerpt import excerpt
from fewview.report.pages._prediction import reasons_for_page, shown_predictions
from fewview.samples._data import MultiViewData

if TYPE_CHECKING:
    from fewview.methods.estimator.explanation import Explanation
    from fewview.methods.estimator.method import Method
    from fewview.results._cells import Cell, Result

# What a file may be a part of; the keys are also names of folders.
SETS = {
    "tables": "everything",
    "base": "known classes",
    "support": "labelled samples of new classes",
    "query": "samples to classify",
}
TABLES = (".csv", ".tsv", ".parquet", ".npy")
WHOLE = (".npz", ".mat", ".h5ad", ".h5mu")
NAME = re.compile(r"\w[\w .()+-]{0,80}")
MOST_FILES = 60
# Joined samples that are shown before anything is fitted.
FIRST = 12
BEST = "best"
Given = tuple[MultiViewData, list[str]]  # samples, and what reading them warns of


@dataclass
class Job:
    """Work that goes on, and how far it is."""

    stages: list[str]
    stage: int = 0
    done: int = 0
    total: int = 0
    text: str = ""
    error: str = ""
    finished: bool = False
    started: float = field(default_factory=time.monotonic)

    def state(self) -> dict[str, Any]:
        """What the page is told."""
        return {
            "stages": self.stages, "stage": self.stage, "done": self.done, "total": self.total,
            "text": self.text, "error": self.error, "finished": self.finished,
            "seconds": round(time.monotonic() - self.started, 1),
        }  # fmt: skip


class _Told(Progress):
    """Passes on how many cells are done."""

    def __init__(self, job: Job) -> None:
        self._job = job

    def planned(self, total: int, reused: int, stale: int) -> None:
        self._job.done, self._job.total = reused, total

    def started(self, cell: Cell) -> None:
        self._job.text = cell.describe()

    def finished(self, result: Result) -> None:
        self._job.done += 1


@dataclass(frozen=True)
class Answered:
    """A fitted method and what it has said."""

    method: Method
    query: MultiViewData
    rows: list[dict[str, Any]]
    found: Explanation
    said: list[str]
    commands: list[str]

    @property
    def labels(self) -> list[Any] | None:
        """Labels that queries have after all."""
        return None if self.query.labels is None else list(self.query.labels.tolist())


class Session:
    """Everything that one local page knows; `close` forgets it."""

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self._folder = TemporaryDirectory(prefix="fewview-serve-")
        self.place = Path(self._folder.name)
        for name in SETS:
            (self.place / name).mkdir()
        self._lock = threading.Lock()
        self._job: Job | None = None
        self._answered: Answered | None = None

    def close(self) -> None:
        """Forget everything."""
        self._folder.cleanup()

    # ------------------------------------------------------------------ files

    @property
    def files(self) -> dict[str, Path]:
        """Files that were given, by set and name."""
        return {
            f"{name}/{path.name}": path
            for name in SETS
            for path in sorted((self.place / name).iterdir())
        }

    def left(self, name: str) -> int:
        """Bytes that a file may have; it takes the place of an earlier one of this name."""
        others = (path.stat().st_size for other, path in self.files.items() if other != name)
        return self.most_bytes - sum(others)

    def add(self, name: str, stream: BufferedIOBase, size: int) -> None:
        """Take a file, called by its set and its name, which are never a path of the client's."""
        kind, _, plain = name.partition("/")
        suffix = Path(plain).suffix.lower()
        if kind not in SETS or not NAME.fullmatch(plain) or suffix not in (*TABLES, *WHOLE):
            raise FewviewError(
                f"{plain[:80]!r}: give {', '.join((*TABLES, *WHOLE))} files whose names have "
                "letters, digits, spaces and .()+- only"
            )
        if len(self.files) >= MOST_FILES and name not in self.files:
            raise FewviewError(f"there are {MOST_FILES} files already; remove some first")
        with self._lock:
            part = self.place / "coming"
            try:
                with part.open("wb") as file:
                    while size > 0:
                        piece = stream.read(min(size, 1 << 20))
                        if not piece:
                            raise FewviewError(f"{plain}: only a part of it came; give it again")
                        file.write(piece)
                        size -= len(piece)
                part.replace(self.place / kind / plain)
            finally:
                part.unlink(missing_ok=True)

    def remove(self, name: str) -> None:
        """Forget a file that was given."""
        with self._lock:
            if name in self.files:
                self.files[name].unlink()

    def forget(self) -> None:
        """Forget all files and answers."""
        if self._job is not None and not self._job.finished:
            raise FewviewError("something is being computed; wait until it is done")
        for name in self.files:
            self.remove(name)
        self._job = self._answered = None

    # ------------------------------------------------------------------ looking

    def look(self, labels: str | None, key: str | None) -> dict[str, Any]:
        """How the tables join and what is missing, or what is wrong and where."""
        out: dict[str, Any] = {
            "files": [[name, path.stat().st_size] for name, path in self.files.items()],
            "columns": self._columns(),
        }  # fmt: skip
        if not self.files:
            return out
        with self._lock:
            try:
                given = self._read(labels, key)
            except FewviewError as error:
                return out | self.explained(error)
        parts, notes = [], []
        for name, (data, told) in given.items():
            notes += [[note, excerpt(note, self._of(name))] for note in told]
            title = f"<h3>{escape(SETS[name])}</h3>" if len(given) > 1 else ""
            parts.append(
                f"{title}<p>{escape(data.summary().headline)}</p>{_joined(data)}<details><summary>"
                f"Missing views by class, combinations of views, values</summary>"
                f"{data.summary().markup()}</details>"
            )
        return out | {"notes": notes, "html": "".join(parts)} | self._roles(given)

    def _roles(self, given: Mapping[str, Given]) -> dict[str, Any]:
        """Who is base, support and query: classes to choose from, or what was given as what."""
        if "tables" not in given:
            lacking = [SETS[name] for name in ("support", "query") if name not in given]
            told = "; ".join(f"{SETS[name]}: {len(data)} samples, {len(data.classes)} classes"
                             for name, (data, _) in given.items())  # fmt: skip
            wanted = f" Still to come: {', '.join(lacking)}." if lacking else ""
            return {"roles": f"{told}.{wanted}", "classes": [], "ready": not lacking}
        data, _ = given["tables"]
        counts = np.bincount(data.codes[data.codes >= 0], minlength=len(data.classes)).tolist()
        sizes = dict(zip(data.classes.tolist(), counts, strict=True))
        few = [label for label, count in sizes.items() if count <= FEW]
        queries = int((data.codes < 0).sum())
        told = (
            f"{queries} samples have no label: these are the queries, which are classified into "
            "the new classes."
            if queries
            else "Every sample has a label, so nothing is left to classify; leave the label empty "
            "where it is unknown."
        )
        classes = [[str(k), n, len(few) > 1 and k in few] for k, n in sizes.items()]
        return {"roles": told, "classes": classes, "ready": queries > 0}

    def explained(self, error: FewviewError) -> dict[str, Any]:
        """An error for the page: its words, and the cell that it is about."""
        message = str(error).replace(f"{self.place}/", "")
        return {
            "error": message,
            "excerpt": excerpt(message, self._of(re.split("[/:]", message)[0])),
        }

    def _of(self, kind: str) -> dict[str, Path]:
        """Files of a set, by name."""
        return {path.name: path for path in self.files.values() if path.parent.name == kind}

    def _columns(self) -> list[str]:
        found: dict[str, None] = {}
        for path in self.files.values():
            if path.suffix.lower() in (".csv", ".tsv"):
                try:
                    found |= dict.fromkeys(csv_header(path))
                except FewviewError:
                    continue  # told when it is read
        return list(found)

    def _read(self, labels: str | None, key: str | None) -> dict[str, Given]:
        """All sets that were given, with what reading them warns of."""
        kinds = [name for name in SETS if self._of(name)]
        if "tables" in kinds and len(kinds) > 1:
            raise FewviewError(
                "some files are said to hold everything, others to be a part; remove one kind"
            )
        out: dict[str, Given] = {}
        for kind in kinds:
            like = out["base"][0][:0] if "base" in out else None
            out[kind] = _noting(partial(self._read_set, kind, labels, key, like))
        if "base" not in out and any(data.kinds for data, _ in out.values()) and len(out) > 1:
            raise FewviewError(
                "without known classes, words in tables are understood only together: give all "
                "tables as one set, labels empty where they are unknown"
            )
        return out

    def _read_set(
        self, kind: str, labels: str | None, key: str | None, like: MultiViewData | None
    ) -> MultiViewData:
        files = self._of(kind)
        whole = [path for path in files.values() if path.suffix.lower() in WHOLE]
        if whole and len(files) > 1:
            raise FewviewError(
                f"{whole[0].name} holds all views; remove the other files, or give tables only"
            )
        source = whole[0] if whole else self.place / kind
        try:
            return MultiViewData.read(source, labels=labels, key=key, like=like)
        except FewviewError:
            if kind != "query" or labels is None:
                raise  # labels of queries alone may be absent
            return MultiViewData.read(source, key=key, like=like).with_labels(None)

    def _divided(self, given: Mapping[str, Given], new: list[str]) -> Divided:
        if "tables" in given:
            return divide(given["tables"][0], new or None)
        parts = {name: data for name, (data, _) in given.items()}
        if "support" not in parts or "query" not in parts:
            raise FewviewError("labelled samples of new classes and samples to classify are needed")
        support = parts["support"]
        if support.labels is None:
            raise FewviewError(
                f"{SETS['support']} have no labels; add labels.csv, or name a column"
            )
        return Divided(parts.get("base"), support, parts["query"], False)

    # ------------------------------------------------------------------ fitting

    def start(
        self, labels: str | None, key: str | None, new: Sequence[str], method: str, seconds: float
    ) -> None:
        """Begin to fit and predict; `state` tells how far it is."""
        if method != BEST:
            get_entry(method)
        if self._job is not None and not self._job.finished:
            raise FewviewError("something is being computed already; wait until it is done")
        trying = ["trying methods on the known classes"] if method == BEST else []
        self._job = job = Job(["reading", *trying, "learning", "predicting", "finding reasons"])
        self._answered = None
        work = threading.Thread(
            target=self._work, args=(job, labels, key, list(new), method, seconds), daemon=True
        )
        work.start()

    def _work(
        self, job: Job, labels: str | None, key: str | None, new: list[str], method: str,
        seconds: float,
    ) -> None:  # fmt: skip
        try:
            with self._lock:
                answered, notes = _noting(
                    lambda: self._answer(job, labels, key, new, method, seconds)
                )
            answered.said.extend(notes)
            self._answered = answered
        except FewviewError as error:
            job.error = self.explained(error)["error"]
        except Exception as error:  # a page that waits for ever would be worse
            job.error = f"this went wrong: {type(error).__name__}: {error}"
        finally:
            job.finished = True

    def _answer(
        self, job: Job, labels: str | None, key: str | None, new: list[str], method: str,
        seconds: float,
    ) -> Answered:  # fmt: skip
        parts = self._divided(self._read(labels, key), new)
        said, advice, trying = [], None, method == BEST
        if trying:
            job.stage += 1
            with TemporaryDirectory() as folder:
                advice, remark = choose_method(parts, seconds, f"{folder}/r.sqlite", _Told(job))
            said += [text for text in (advice.sentence if advice else "", remark) if text]
            method = USUAL if advice is None else advice.method
            job.done = job.total = 0
        job.stage += 1
        job.text = f"{method} from {len(parts.support)} labelled samples of {parts.way} new classes"
        clf = fit_divided(parts, method)
        job.stage += 1
        query = parts.query.like(clf.fitted_.reference, "queries")
        rows = by_row(predict_table(clf, query))
        job.stage += 1
        found = reasons_for_page(clf, query)
        sure = float(np.mean([max(row[f"p_{c}"] for c in clf.classes_.tolist()) for row in rows]))
        said.append(
            expectation(advice, parts, sure)
            if trying
            else f"Its own probabilities say that {100 * sure:.0f} % are right; to have that "
            "measured on the known classes, let the best method be chosen."
        )
        commands = _commands(self.files, labels, key, parts, method)
        return Answered(clf, query, rows, found, said, commands)

    def state(self) -> dict[str, Any]:
        """How far the job is."""
        return self._job.state() if self._job is not None else {"stages": []}

    # ------------------------------------------------------------------ answers

    def _answers(self) -> Answered:
        if self._answered is None:
            raise FewviewError("nothing has been predicted yet")
        return self._answered

    def result(self) -> dict[str, Any]:
        """What was predicted, as a part of the page."""
        known = self._answers()
        shown = shown_predictions(known.method, known.rows, known.found, known.labels)
        return {
            "html": shown.markup(), "said": known.said, "views": list(known.query.view_names),
            "commands": known.commands,
        }  # fmt: skip

    def table(self) -> str:
        """Predictions as a table with commas."""
        import csv

        rows = self._answers().rows
        out = StringIO()
        writer = csv.DictWriter(out, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
        return out.getvalue()

    def what_if(
        self, off: Sequence[str], row: int | None, everywhere: Sequence[str] = ()
    ) -> dict[str, Any]:
        """Answers with views switched off, for one sample or for all.

        Samples that have no other view keep theirs. For one sample, views that are off
        `everywhere` stay so, and its answer is compared with the one it has then.
        """
        known = self._answers()
        strange = [view for view in (*off, *everywhere) if view not in known.query.view_names]
        if strange or (row is not None and not 0 <= row < len(known.query)):
            raise FewviewError("there is no such view or sample")
        usual, before = np.array(known.query.mask), known.rows
        usual[:, [known.query.view_names.index(view) for view in everywhere]] = False
        mask = usual.copy()
        places = [known.query.view_names.index(view) for view in off]
        rows = slice(None) if row is None else [row]
        mask[rows, places] = False
        bare = np.flatnonzero(~mask.any(axis=1))
        if row is not None and row in bare:
            raise FewviewError("the sample has no other view; leave one on")
        for some in (usual, mask):
            some[~some.any(axis=1)] = known.query.mask[~some.any(axis=1)]
        with self._lock:
            changed = known.query.with_mask(mask)
            (answers, found), notes = _noting(
                lambda: (
                    by_row(predict_table(known.method, changed)),
                    reasons_for_page(known.method, changed),
                )
            )
            if everywhere:
                before, _ = _noting(
                    lambda: by_row(predict_table(known.method, known.query.with_mask(usual)))
                )
        moved = [k for k, (new, old) in enumerate(zip(answers, before, strict=True))
                 if new["label"] != old["label"]]  # fmt: skip
        out: dict[str, Any] = {"notes": notes, "changed": len(moved), "total": len(answers)}
        if row is None:
            html = shown_predictions(known.method, answers, found, known.labels).markup()
            return out | {"html": html, "bare": len(bare)}
        new, old = answers[row], before[row]
        p = {k: (new[k], old[k]) for k in new if k.startswith("p_")}
        return out | {
            "label": str(new["label"]), "before": str(old["label"]),
            "probability": p[f"p_{new['label']}"][0], "was": p[f"p_{old['label']}"][1],
            "card": card(found, row),
        }  # fmt: skip


@cache
def choices() -> list[tuple[str, str]]:
    """Methods to choose from: the best, then all that train no network."""
    listed = [(name, name) for name in names() if not get_entry(name).factory().tags.trained]
    listed.sort(key=lambda pair: (pair[0] != "marginal", pair[0]))
    return [*listed, (BEST, "the best on the known classes (takes longer)")]


def _joined(data: MultiViewData) -> str:
    """How tables fit together, and the first samples."""
    count = data.mask.sum(axis=1)
    rows = []
    for v, view in enumerate(data.view_names):
        there = data.mask[:, v]
        shared = int((there & (count > 1)).sum())
        lacking = int((~there).sum())
        rows.append([
            escape(view), str(int(there.sum())), str(shared),
            str(int((there & (count == 1)).sum())),
            share_bar(lacking / max(len(data), 1), str(lacking), "others"),
        ])  # fmt: skip
    head = ["view", "samples", "also in another table", "in this table alone", "samples without it"]
    out = markup_table("How the tables join", head, rows, scroll=True)
    some = data[:FIRST]
    ids = range(len(some)) if some.ids is None else some.ids.tolist()
    labels = [None] * len(some) if some.labels is None else some.labels.tolist()
    lines = [
        [escape(str(name)), "" if label is None else escape(str(label)),
         view_marks(data.view_names, has)]
        for name, label, has in zip(ids, labels, some.mask.tolist(), strict=True)
    ]  # fmt: skip
    caption = f"The first {len(some)} of {len(data)} samples; missing views are hatched"
    return out + markup_table(
        caption, ["sample", "label", "views"], lines, left=(1, 2), scroll=True
    )


def _commands(
    files: dict[str, Path], labels: str | None, key: str | None, parts: Divided, method: str
) -> list[str]:
    """What to type for the same; the files are expected in folders of their own."""
    reading = [*(["--labels", labels] if labels else []), *(["--key", key] if key else [])]
    out: list[list[str]] = []
    source: dict[str, str] = {}
    for kind in dict.fromkeys(name.partition("/")[0] for name in files):
        mine = [path.name for path in files.values() if path.parent.name == kind]
        source[kind] = f"{kind}/"
        out += [["mkdir", kind], ["cp", *mine, f"{kind}/"]]
        if Path(mine[0]).suffix.lower() in WHOLE:
            source[kind] = f"{kind}/{mine[0]}"
    written = ["-o", "predictions.csv", "--html", "predictions.html"]
    if "tables" in source:
        new = ",".join(map(str, parts.support.classes.tolist()))
        out.append(["fewview", "data", "show", source["tables"], *reading])
        how = ["--data", source["tables"], *reading, "--new", new, "--method", method]
    else:
        how = ["--method", method]
        if parts.base is not None:
            task = ["--way", str(parts.way), "--shot", str(parts.shot)]
            task += ["--queries", str(parts.queries), "-o", "base.model"]
            out.append(["fewview", "fit", "--base", source["base"], *reading, "--method", method,
                        *task])  # fmt: skip
            how = ["--model", "base.model"]
        how += ["--support", source["support"], "--query", source["query"], *reading]
    return [shlex.join(words) for words in [*out, ["fewview", "predict", *how, *written]]]


def _noting(work: Callable[[], Any]) -> tuple[Any, list[str]]:
    """Do something, and collect what it warns of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", FewviewWarning)
        out = work()
    return out, list(dict.fromkeys(str(w.message) for w in caught
                                   if issubclass(w.category, FewviewWarning)))  # fmt: skip
