"""Are all methods what they were, number by number? Two checkouts on one machine, in one session.

    python benchmarks/experiments/fine_record.py record FILE      # with the code of before
    python benchmarks/experiments/fine_record.py compare FILE     # with the code of now
    ... compare FILE --only '^(ugda|proto) (digits|ccle)'         # some methods and data sets

Processors round differently, so a record is compared on the machine it was made on and is never
committed. Recorded are, for every method on six data sets, three missing rates, one and five shots,
and complete, incomplete and unlabelled base sets: a hash of the scores' bytes, the most probable
class and its margin for every query of 100 tasks, and all probabilities of 10 tasks. Methods that
train networks have tiny settings; slow ones have fewer tasks. Tasks themselves are compared too.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import pickle
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[_name] = "1"  # before numpy and torch are imported: sums in one order

import numpy as np  # noqa: E402
import torch  # noqa: E402

# ------------------------------------------------------------------ what of fewview is used


def names() -> SimpleNamespace:
    """The Python names; a renamed one is one edit here."""
    import fewview
    from fewview.datasets import class_split

    return SimpleNamespace(
        load=fewview.load,
        read=fewview.MultiViewData.read,
        Data=fewview.MultiViewData,
        Task=fewview.TaskSpec,
        Sampler=fewview.EpisodeSampler,
        class_split=class_split,
        create=fewview.create,
    )


def scores_of(clf: Any, base: Any, task: Any, data: Any, episodes: Any) -> np.ndarray:
    """Scores of many tasks in batches, [tasks, queries, classes]."""
    if hasattr(clf, "prepare_base"):  # the first edition
        learnt = clf.prepare_base(base, task)
    else:
        learnt = clf.fit_base(base, task=task).base
    return np.asarray(clf.score_episodes(data, episodes, learnt))


# ------------------------------------------------------------------ what is recorded

DATASETS = {  # way, queries per class
    "digits": (3, 10), "scene15": (3, 10), "cub_googlenet_doc2vec": (3, 10), "leaves100": (5, 5),
    "newsgroups": (2, 10), "ccle": (4, 4),
}  # fmt: skip
FILES = {"newsgroups": "newsgroups.npz", "ccle": "ccle"}  # not known by name
TINY = {
    "completer": "completer:epochs=3:width=16:code=8",
    "cpm": "cpm:epochs=4:query_epochs=3:latent=8:hidden=16",
    "cpm-gan": "cpm-gan:epochs=4:query_epochs=3:latent=8:hidden=16",
    "icmsc": "icmsc:epochs=2+2:width=16",
}
SLOW = {  # fewer tasks, so that all takes less than ten minutes of one core
    **dict.fromkeys(("tim", "alpha-tim"), 5), "tim-adm": 50, "concat-logistic": 10,
    "concat-nn": 10, **dict.fromkeys(("ugda", "ptmap+ugda", "rfs+ugda"), 10), "marginal": 20,
    **dict.fromkeys(("concat-hgb", "ugda:solver=adam", *TINY), 2),
}  # fmt: skip


class Wanted(NamedTuple):
    """What may differ; None: anything may."""

    probability: float | None = None  # largest difference; 0 is every byte of the scores
    answers: float = 1.0  # least share of equal answers, where the margin was clear
    lower: float | None = None  # points of accuracy, mean over cells
    higher: float | None = None

    def __str__(self) -> str:
        parts = [] if self.answers == 0 else [f"answers {100 * self.answers:g} %"]
        if self.probability is not None:
            parts.append(f"probabilities {self.probability:g}" if self.probability else "bytes")
        if self.lower is not None:
            parts.append(f"accuracy {'-' if self.higher is None else '+-'}{self.lower}")
        return ", ".join(parts)


WANTED = {
    "tasks": Wanted(0.0),
    **dict.fromkeys(("proto", "match", "partial-nn", "class-impute", "rfs", "ptmap", "paddle",
                     "tim", "alpha-tim", "tim-adm", "unem", "bavardage", "bd-cspn"), Wanted(1e-5)),
    **dict.fromkeys(("concat-hgb", "concat-logistic", "concat-nn"), Wanted(0.0)),
    **dict.fromkeys(("ugda", "ptmap+ugda", "rfs+ugda"), Wanted(None, 0.999, 0.1, 0.1)),
    "ugda:solver=adam": Wanted(None, 0.0, 0.1, 0.1),
    **dict.fromkeys(TINY, Wanted(None, 0.99, 0.3, 0.3)),
    "marginal": Wanted(None, 0.0, 0.3),
}  # fmt: skip
TASKS, WITH_PROBABILITIES, BY_HAND = 100, 10, 3
CLEAR = 1e-5  # answers of a smaller margin may go either way


def digest(*arrays: Any) -> str:
    """The first digits of the sha256 of arrays with their shapes and types."""
    sha = hashlib.sha256()
    for array in map(np.ascontiguousarray, arrays):
        sha.update(f"{array.shape} {array.dtype}".encode())
        sha.update(array.tobytes())
    return sha.hexdigest()[:16]


def part(fw: Any, data: Any, rows: Any, mask: Any, labelled: bool) -> Any:
    """Some rows as a data set of their own, with the given views missing."""
    labels = np.asarray(data.labels)[rows].tolist() if labelled else None
    views = {view: np.asarray(block)[rows] for view, block in data.views.items()}
    return fw.Data(views, labels, mask=np.asarray(mask))


def thinned(mask: np.ndarray) -> np.ndarray:
    """Three views of ten missing, where a sample has another."""
    rng = np.random.default_rng(0)
    kept = mask & (rng.random(mask.shape) > 0.3)
    return np.where(kept.any(1, keepdims=True), kept, mask)


def cells(wanted: Callable[[str], bool]) -> Iterator[tuple[str, Callable[[], dict[str, Any]]]]:
    """Names of what is recorded, and how each is measured."""
    fw, folder = names(), Path(os.environ.get("FEWVIEW_DATA", ""))
    methods = [name for name in WANTED if name != "tasks"]
    for name, (way, queries) in DATASETS.items():
        if not any(wanted(f"{method} {name}") for method in WANTED):
            continue
        known = name not in FILES
        data = fw.load(name) if known else fw.read(folder / FILES[name])
        labels = np.asarray(data.labels)
        classes = np.unique(labels)
        novel = fw.class_split(name, 0).novel if known else classes[1::2].tolist()
        is_base = ~np.isin(labels, np.asarray(novel))
        if name == "leaves100":  # 60 classes say no more than 20, and take longer
            is_base &= np.isin(labels, np.unique(labels[is_base])[::3])
        rows, mask = np.flatnonzero(is_base), np.asarray(data.mask)
        bases = {
            "complete": part(fw, data, rows, mask[rows], True),
            "incomplete": part(fw, data, rows, thinned(mask[rows]), True),
            "unlabelled": part(fw, data, rows, mask[rows], False),
        }
        largest = 1 - 1 / mask.shape[1]
        for eta, shot in product((0.0, 0.3, largest), (1, 5)):
            task = fw.Task(way=way, shot=shot, queries=queries, eta=eta)
            drawn = fw.Sampler(data, task, novel)
            title = f"eta {eta:.2g} shot {shot}"
            if wanted(f"tasks {name}"):
                yield f"tasks {name} {title}", lambda d=drawn: {"hash": of_tasks(d.draw(0, TASKS))}
            for method, (kind, base) in product(methods, bases.items()):
                if not wanted(f"{method} {name}"):
                    continue
                if SLOW.get(method) == 2 and (eta, shot, kind) != (0.3, 1, "complete"):
                    continue  # seconds each

                def measure(method=method, base=base, kind=kind, task=task, drawn=drawn, data=data):
                    clf = fw.create(TINY.get(method, method))
                    if kind == "unlabelled":
                        episodes = drawn.draw(0, BY_HAND)
                        return summary(by_hand(fw, clf, base, data, episodes), episodes)
                    episodes = drawn.draw(0, min(TASKS, SLOW.get(method, TASKS)))
                    return summary(scores_of(clf, base, task, data, episodes), episodes)

                yield f"{method} {name} {kind} {title}", measure


def of_tasks(episodes: Any) -> str:
    """A hash of tasks, whatever the types of their whole numbers."""
    rows = [episodes.classes, episodes.support, episodes.support_labels, episodes.query]
    masks = [episodes.query_labels, episodes.support_mask, episodes.query_mask, episodes.seeds]
    return digest(*(np.asarray(array).astype(np.uint64) for array in (*rows, *masks)))


def by_hand(fw: Any, clf: Any, base: Any, data: Any, episodes: Any) -> np.ndarray:
    """Logarithms of probabilities as users get them: `fit_base`, `fit`, `predict_proba`."""
    clf.fit_base(base)
    found, way = [], int(np.max(episodes.support_labels)) + 1
    for t in range(len(episodes.support)):
        support = part(fw, data, episodes.support[t], episodes.support_mask[t], True)
        query = part(fw, data, episodes.query[t], episodes.query_mask[t], False)
        first = [list(episodes.support_labels[t]).index(number) for number in range(way)]
        names = np.asarray(support.labels)[first]  # of classes 0, 1, ... of the task
        order = np.searchsorted(np.asarray(clf.fit(support).classes_), names)
        found.append(np.asarray(clf.predict_proba(query))[:, order])
    return np.log(np.maximum(found, 1e-300))


def summary(scores: np.ndarray, episodes: Any) -> dict[str, Any]:
    """What is kept of the scores of a cell."""
    p = torch.softmax(torch.from_numpy(scores).double(), -1).numpy()
    best = np.sort(p, -1)
    return {
        "hash": digest(scores),
        "answers": p.argmax(-1).astype(np.uint8),
        "margin": (best[..., -1] - best[..., -2]).astype(np.float32),
        "probabilities": p[:WITH_PROBABILITIES].astype(np.float32),
        "right": float((p.argmax(-1) == np.asarray(episodes.query_labels)).mean()),
    }


def measured(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What a cell gives, or the kind of its error: some methods refuse some base sets."""
    try:
        return work()
    except Exception as error:
        return {"error": type(error).__name__, "said": str(error)}


# ------------------------------------------------------------------ record and compare


def record(path: Path, wanted: Callable[[str], bool]) -> int:
    """Measure everything and write it down."""
    found: dict[str, Any] = {}
    spent: dict[str, float] = {}
    for name, work in cells(wanted):
        start = time.process_time()
        found[name] = measured(work)
        method = name.split()[0]
        spent[method] = spent.get(method, 0.0) + time.process_time() - start
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pickle.dumps(found))
    for method, seconds in spent.items():
        here = [cell for name, cell in found.items() if name.split()[0] == method]
        errors = sum("error" in cell for cell in here)
        print(f"{method}: {len(here)} cells, {errors} refused, {seconds:.1f} s of CPU")
    print(f"{len(found)} cells in {sum(spent.values()):.0f} s of CPU; written: {path} "
          f"({path.stat().st_size / 1e6:.0f} MB)")  # fmt: skip
    return 0


class Beside(NamedTuple):
    """A cell before and now."""

    equal: bool  # every byte of the scores
    apart: float = 0.0  # largest difference of a probability
    same: int = 0  # equal answers among those that were clear
    clear: int = 0
    change: float = 0.0  # of accuracy
    comparable: bool = True


def beside(name: str, old: dict[str, Any], new: dict[str, Any]) -> Beside:
    """Compare what two editions give for a cell; print why where they cannot be compared."""
    if "error" in old or "error" in new:
        alike = old.get("error") == new.get("error")
        if not alike:
            print(f"{name}: before {old.get('said', 'answers')}, now {new.get('said', 'answers')}")
        return Beside(alike, comparable=alike)
    equal = old["hash"] == new["hash"]
    if name.startswith("tasks "):
        return Beside(equal)
    if old["answers"].shape != new["answers"].shape:
        print(f"{name}: shapes {old['answers'].shape} and {new['answers'].shape}")
        return Beside(False, comparable=False)
    clear = old["margin"] >= CLEAR
    return Beside(
        equal,
        float(np.abs(old["probabilities"] - new["probabilities"]).max()),
        int((old["answers"] == new["answers"])[clear].sum()),
        int(clear.sum()),
        new["right"] - old["right"],
    )


def compare(path: Path, wanted: Callable[[str], bool]) -> int:
    """Measure again and print a line per method; 1 if one is outside what is wanted."""
    before = pickle.loads(path.read_bytes())  # a file that `record` wrote on this machine
    rows: dict[str, list[Beside]] = {}
    for name, work in cells(wanted):
        if name not in before:
            sys.exit(f"{name} is not in {path}; record it with the same --only, or without")
        rows.setdefault(name.split()[0], []).append(beside(name, before[name], measured(work)))
    print("| method | cells | equal bytes | largest difference | equal answers | accuracy | wanted "
          "| |\n|---|---|---|---|---|---|---|---|")  # fmt: skip
    failed = 0
    for method, found in rows.items():
        limit, clear = WANTED[method], sum(cell.clear for cell in found)
        share = sum(cell.same for cell in found) / clear if clear else 1.0
        apart = max(cell.apart for cell in found)
        equal = float(np.mean([cell.equal for cell in found]))
        change = 100 * float(np.mean([cell.change for cell in found]))
        ok = all(cell.comparable for cell in found) and share >= limit.answers
        ok &= limit.probability is None or apart <= limit.probability
        ok &= limit.probability != 0 or equal == 1
        ok &= limit.lower is None or change >= -limit.lower
        ok &= limit.higher is None or change <= limit.higher
        failed += not ok
        numbers = f"{100 * equal:.1f} % | {apart:.1e} | {100 * share:.3f} % | {change:+.3f}"
        print(f"| {method} | {len(found)} | {numbers} | {limit} | {'ok' if ok else 'FAIL'} |")
    print(f"{len(rows) - failed} of {len(rows)} as wanted")
    return int(failed > 0)


def main() -> int:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("record", "compare"))
    parser.add_argument("file", type=Path, nargs="?", default=Path("/tmp/fewview-fine-record"))
    parser.add_argument("--only", default="", metavar="REGEX", help="of 'METHOD DATASET'")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", category=UserWarning)
    work = record if options.what == "record" else compare
    return work(options.file, lambda text: re.search(options.only, text) is not None)


if __name__ == "__main__":
    sys.exit(main())
