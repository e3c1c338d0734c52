"""Rejection, prediction sets, known beside new classes: how often they keep their promise.

    python benchmarks/experiments/calibration.py [--methods proto,ugda] [--sets digits,ccle]
        [--splits 3] [--tasks 6]

Base classes keep some samples apart, which are asked about as queries of known classes; three of
the novel classes get two supports each, the others are unknown. All numbers are percent: queries of
the three and of unknown classes rejected at 0.1; coverage and mean size (of the three classes) of
prediction sets at 0.9; accuracy on new and on known queries, and how much of the probability known
queries give to new classes, with `classes="all"`. Runs in both editions.
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any

import numpy as np
import torch

from fewview import EpisodeSampler, MultiViewData, TaskSpec, create, load
from fewview.datasets import class_split
from fewview.datasets._catalogue import data_folder

COLUMNS = ("rejected", "unknown", "coverage", "size", "new", "known", "new mass")


def divided(name: str, split: int) -> tuple[MultiViewData, list[Any]]:
    """Data, and the novel classes of a split: the published one, or a half drawn at random."""
    folder = next(iter(data_folder(None).glob(f"{name}*")), None)
    if folder is None or not folder.is_dir():
        data = load(name)
        return data, list(class_split(name, split).novel)
    data = MultiViewData.read(folder).without_ids()
    order = np.random.default_rng(split).permutation(len(data.classes))
    return data, data.classes[np.sort(order[: len(order) // 2])].tolist()


def part(data: MultiViewData, rows: np.ndarray, mask: np.ndarray) -> MultiViewData:
    """Some samples, with the gaps of an episode beside their own where a view is left."""
    some = data[rows]
    both = some.mask & mask
    return some.with_mask(np.where(both.any(1, keepdims=True), both, some.mask))


def sets_of(clf: Any, query: MultiViewData) -> np.ndarray:
    """Prediction sets at 0.9, bool [queries, classes], in either edition."""
    if hasattr(clf, "predict_set"):
        return np.asarray(clf.predict_set(query, 0.9))
    return np.array([[c in some for c in clf.classes_] for some in clf.predict_sets(query, 0.9)])


def measure(name: str, method: str, splits: int, tasks: int) -> dict[str, list[float]]:
    """Shares by column, over class splits and tasks."""
    found: dict[str, list[float]] = {column: [] for column in COLUMNS}
    for split in range(splits):
        data, novel = divided(name, split)
        is_new = np.isin(data.labels, novel)
        rows = np.flatnonzero(~is_new)
        rank = np.array([np.sum(data.codes[:n] == data.codes[n]) for n in rows])
        base, kept = rows[rank % 5 > 0], rows[rank % 5 == 0]
        clf = create(method).fit_base(data[base])
        room = int(np.bincount(data.codes)[np.isin(data.classes, novel)].min()) - 2
        task = TaskSpec(way=len(novel), shot=2, queries=min(15, room), eta=0.3)
        episodes = EpisodeSampler(data, task, novel, seed=split).draw(0, tasks)
        for t in range(tasks):
            few, own = episodes.support_labels[t] < 3, episodes.query_labels[t] < 3
            clf.fit(part(data, episodes.support[t][few], episodes.support_mask[t][few]))
            asked, mask = episodes.query[t], episodes.query_mask[t]
            query = part(data, asked, mask).with_labels(None)
            answers = np.asarray(clf.predict(query, reject=0.1)).tolist()
            gone = np.array([answer not in clf.classes_.tolist() for answer in answers])
            found["rejected"] += gone[own].tolist()
            found["unknown"] += gone[~own].tolist()
            inside = sets_of(clf, query[own])
            truth = data.labels[asked][own]
            found["coverage"] += inside[truth[:, None] == clf.classes_].tolist()
            found["size"] += inside.mean(1).tolist()
            clf.fit(part(data, episodes.support[t][few], episodes.support_mask[t][few]),
                    classes="all")  # fmt: skip
            old = np.random.default_rng(t).choice(kept, own.sum())
            both = np.r_[asked[own], old]
            proba = clf.predict_proba(
                part(data, both, np.r_[mask[own], mask[own]]).with_labels(None)
            )
            right = clf.classes_[proba.argmax(1)] == data.labels[both]
            found["new"] += right[: own.sum()].tolist()
            found["known"] += right[own.sum() :].tolist()
            found["new mass"] += proba[own.sum() :, :3].sum(1).tolist()
    return found


def main() -> None:
    """Print one line for every data set and method."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--methods", default="proto,ugda,rfs,marginal")
    parser.add_argument("--sets", default="digits,ccle")
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--tasks", type=int, default=6)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    print(f"{'':20}" + "".join(f"{column:>10}" for column in COLUMNS))
    for name in given.sets.split(","):
        for method in given.methods.split(","):
            start = time.process_time()
            found = measure(name, method, given.splits, given.tasks)
            means = [f"{100 * np.mean(found[column]):10.1f}" for column in COLUMNS]
            seconds = time.process_time() - start
            print(f"{name:10}{method:10}{''.join(means)}   {seconds:.0f} s", flush=True)


if __name__ == "__main__":
    main()
