"""Empty cells, known and new classes, sets of classes, a new sensor, advice: what comes of them.

    python benchmarks/more_answers.py cells|known|sets|sensor|advice [--datasets scene15,...]
        [--splits 2] [--tasks 10] [--page docs/more-answers.md]

Every part prints its lines and keeps them in `benchmarks/results/more-answers.json`; `--page` makes
the page from that file alone. Parts are small enough for a laptop; more splits and tasks make them
surer. Nothing in the package was chosen on these numbers.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg import block_diag
from scipy.stats import multivariate_normal

from fewview import EpisodeSampler, FewviewWarning, MultiViewData, TaskSpec
from fewview.datasets import class_split, get_spec, load
from fewview.engine._fitted import FittedBase
from fewview.methods.marginal import Marginal
from fewview.numerics._batch import EpisodeBatch
from fewview.results._metrics import expected_calibration_error

RECORD = Path(__file__).parent / "results" / "more-answers.json"
NAN = float("nan")


def task_of(name: str, **changes: Any) -> TaskSpec:
    """The usual task of a data set, with fewer queries where classes are small."""
    spec = get_spec(name)
    given = {"way": spec.way, "shot": spec.shot, "queries": min(spec.queries, 15), **changes}
    return TaskSpec(**given)


def parted(name: str, split: int) -> tuple[MultiViewData, list[Any], MultiViewData]:
    """Data, novel classes and base samples of a class split."""
    data = load(name)
    classes = class_split(name, split)
    return data, list(classes.novel), data[np.isin(data.labels, classes.base)]


def say(text: str) -> None:
    """Tell how far it is."""
    print(text, file=sys.stderr, flush=True)


# ------------------------------------------------------------------ empty cells


class Filled(Marginal):
    """Marginal with base means in empty cells."""

    @property
    def tags(self) -> Any:  # type: ignore[override]
        """As any other method has it."""
        return replace(super().tags, reads_empty_cells=False)


def with_empty(data: MultiViewData, share: float, seed: int) -> MultiViewData:
    """The data with a share of all cells empty; every view keeps one cell of every row."""
    rng = np.random.default_rng(seed)
    views = {}
    for view, block in data.views.items():
        gone = rng.random(block.shape) < share
        gone[np.arange(len(block)), rng.integers(block.shape[1], size=len(block))] = False
        views[view] = np.where(gone, NAN, block)
    return MultiViewData(views, data.labels)


def feature_space(state: Any) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Mean and covariances within and between classes of all features, as the model is stated."""
    projection, model = state.projection, state.model
    loadings, rests = [], []
    for axes, spare in zip(projection.axes, projection.spare, strict=True):
        axes = axes.numpy()
        directions = axes / np.linalg.norm(axes[:, 0])
        loadings.append(np.linalg.pinv(axes).T)
        rests.append(float(spare) * (np.eye(len(axes)) - directions @ directions.T))
    loading = block_diag(*loadings)
    mean = np.concatenate([c.numpy() for c in projection.centre]) + loading @ model.mean.numpy()
    within = loading @ model.within.numpy() @ loading.T + block_diag(*rests)
    return mean, within, loading @ model.between.numpy() @ loading.T


def log_density(parts: tuple[NDArray[Any], ...], rows: NDArray[Any]) -> float:
    """Log-density of the cells that are there of rows of one class, by scipy."""
    mean, within, between = parts
    n = len(rows)
    covariance = np.kron(np.ones((n, n)), between) + np.kron(np.eye(n), within)
    values = (rows - mean).reshape(-1)
    seen = ~np.isnan(values)
    normal = multivariate_normal(cov=covariance[np.ix_(seen, seen)], allow_singular=True)
    return float(normal.logpdf(values[seen]))


def against_scipy(name: str, view: str, numbers: list[int]) -> float:
    """Largest difference of log-odds of one query with k empty cells from scipy's, over k."""
    data, novel, base = parted(name, 0)
    base, data = base.select_views([view]), data.select_views([view])
    # Fewer components than features, so that something is left over.
    clf = Marginal(transductive=False, dtype="float64", rank=None, calibration=1.0, components=64)
    clf.fit_base(base)
    chosen = [np.flatnonzero(data.labels == label)[:3] for label in novel[:2]]
    support = data[np.concatenate([rows[:2] for rows in chosen])]
    clf.fit(support)
    query = data[chosen[0][2:]]
    parts = feature_space(clf.prepared_.state)
    known = clf.scaled(clf.support_, clf.prepared_).views[0].numpy()
    worst = 0.0
    order = np.random.default_rng(0).permutation(query.view(view).shape[1])
    for k in numbers:
        cells = query.view(view).copy()
        cells[0, order[:k]] = NAN
        row = MultiViewData({view: cells})
        found = clf.query_scores(row)[0].numpy()
        values = clf.scaled(row, clf.prepared_).views[0].numpy()
        wanted = []
        for code in range(2):
            own = known[clf.support_.codes == code]
            joint = log_density(parts, np.concatenate([own, values]))
            wanted.append(joint - log_density(parts, own))
        worst = max(worst, abs((found[0] - found[1]) - (wanted[0] - wanted[1])))
        say(f"{name} {view}: {k} empty cells, log-odds {found[0] - found[1]:.4f}, "
            f"scipy {wanted[0] - wanted[1]:.4f}")  # fmt: skip
    return worst


def cells(options: argparse.Namespace) -> dict[str, Any]:
    """Difference from scipy, and accuracy with a share of cells empty: integrated out or filled."""
    view, width = "fac", 216
    worst = against_scipy("handwritten", view, list(range(1, width)))
    print(f"one query with 1 to {width - 1} of {width} cells of {view} empty: log-odds differ from "
          f"scipy's by at most {worst:.1e}")  # fmt: skip
    rows = []
    for name in options.datasets or ["handwritten", "scene15", "cub_googlenet_doc2vec"]:
        for share in (0.0, 0.1, 0.3, 0.5, 0.7):
            right: dict[str, list[float]] = {"integrated": [], "filled": []}
            for split in range(options.splits):
                data, novel, base = parted(name, split)
                gaps = with_empty(data, share, split)
                methods = {"integrated": Marginal(), "filled": Filled()}
                for clf in methods.values():
                    clf.fit_base(base)
                for episode in EpisodeSampler(data, task_of(name), novel).draw(0, options.tasks):
                    for kind, clf in methods.items():
                        clf.fit(gaps[episode.support[0]])
                        right[kind].append(clf.score(gaps[episode.query[0]]))
            row = {
                "dataset": name,
                "empty": share,
                **{kind: 100 * float(np.mean(values)) for kind, values in right.items()},
            }
            rows.append(row)
            print(
                f"{name}, {100 * share:.0f} % of cells empty: {row['integrated']:.1f} integrated "
                f"out, {row['filled']:.1f} filled with means",
                flush=True,
            )
    return {"scipy": {"view": view, "width": width, "difference": worst}, "rows": rows}


# ------------------------------------------------------------------ known and new classes


RATES = (0.01, 0.05, 0.2)
KNOWN_SETS = ["handwritten", "scene15", "cub_googlenet_doc2vec", "leaves100"]


def known(options: argparse.Namespace) -> dict[str, Any]:
    """Both halves, with and without being told which; calibration; rejected shares."""
    rows = []
    for name in options.datasets or KNOWN_SETS:
        found: dict[str, list[float]] = {key: [] for key in (
            "new", "new_told", "known", "known_told", "half", "strangers_5",
            *(f"rejected_{100 * rate:.0f}" for rate in RATES))}  # fmt: skip
        sure, right = [], []
        for split in range(options.splits):
            data, novel, everyone = parted(name, split)
            # A fifth of every base class is asked about.
            rank = np.zeros(len(everyone), dtype=int)
            for code in range(len(everyone.classes)):
                own = np.flatnonzero(everyone.codes == code)
                rank[np.random.default_rng(split).permutation(own)] = (
                    np.arange(len(own)) * 5 // len(own)
                )
            base, old = everyone[rank > 0], everyone[rank == 0]
            clf = Marginal().fit_base(base)
            way = min(get_spec(name).way, max(2, len(novel) - 2))
            queries = min(15, int(np.bincount(data.codes).min()) - 3)
            task = task_of(name, way=way, shot=3, queries=queries)
            told_old = known_alone(clf, old)
            for number, episode in enumerate(
                EpisodeSampler(data, task, novel).draw(0, options.tasks)
            ):
                rng = np.random.default_rng(number)
                few, asked = data[episode.support[0]], data[episode.query[0]]
                pick = rng.permutation(len(old))[: len(asked)]
                some = old[pick]
                clf.fit(few)
                found["new_told"].append(clf.score(asked))
                found["known_told"].append(float(np.mean(told_old[pick] == some.labels)))
                clf.fit(few, classes="all")
                both = MultiViewData.concat([asked.without_ids(), some.without_ids()])
                proba = clf.predict_proba(both.with_labels(None))
                answers = clf.classes_[proba.argmax(1)]
                hit = np.array(
                    [str(a) == str(b) for a, b in zip(answers, both.labels, strict=True)]
                )
                is_new = np.arange(len(both)) < len(asked)
                found["new"].append(float(hit[is_new].mean()))
                found["known"].append(float(hit[~is_new].mean()))
                found["half"].append(float(np.mean((proba[:, :way].sum(1) > 0.5) == is_new)))
                sure.append(proba.max(1))
                right.append(hit)
                shares = clf.fit_shares(both.with_labels(None))
                for rate in RATES:
                    found[f"rejected_{100 * rate:.0f}"].append(float(np.mean(shares < rate)))
                taken = set(few.labels.tolist())
                others = data[np.isin(data.labels, [c for c in novel if c not in taken])]
                if len(others):
                    found["strangers_5"].append(float(np.mean(clf.rejected(others[:60], 0.05))))
        row: dict[str, Any] = {"dataset": name}
        row |= {key: 100 * float(np.mean(values)) for key, values in found.items() if values}
        row["ece"] = calibration_error(np.concatenate(sure), np.concatenate(right))
        rows.append(row)
        print(f"{name}: new classes {row['new']:.1f} % right ({row['new_told']:.1f} if told), "
              f"known {row['known']:.1f} ({row['known_told']:.1f}), half {row['half']:.1f}, "
              f"calibration error {row['ece']:.3f}; rejected at 1, 5, 20 %: "
              f"{row['rejected_1']:.1f}, {row['rejected_5']:.1f}, "
              f"{row['rejected_20']:.1f} (of strangers, at 5 %: "
              f"{row.get('strangers_5', NAN):.1f})", flush=True)  # fmt: skip
    return {"rows": rows}


def calibration_error(confidence: NDArray[Any], correct: NDArray[Any]) -> float:
    """Expected calibration error of ten bins of equal width."""
    place = np.minimum((10 * confidence).astype(int), 9)
    bins = [np.bincount(place, weights, 10) for weights in (None, confidence, correct)]
    return expected_calibration_error(np.array(bins, dtype=np.float64))


def known_alone(clf: Marginal, queries: MultiViewData) -> NDArray[Any]:
    """The known class of every query, if told that it is of one."""
    assert isinstance(clf.base, FittedBase)
    assert clf.base.known is not None
    means, prepared = clf.base.known.classes, clf.base.prepared
    asked = clf.scaled(queries.with_labels(None), prepared)
    empty = tuple(view.new_zeros(1, 0, view.shape[1]) for view in asked.views)
    batch = EpisodeBatch(
        support=empty,
        query=tuple(view[None] for view in asked.views),
        support_mask=asked.mask.new_zeros(1, 0, asked.mask.shape[1]),
        query_mask=asked.mask[None],
        support_labels=torch.zeros(1, 0, dtype=torch.int64),
        query_labels=None,
        seeds=torch.zeros(1, dtype=torch.int64),
        way=0,
        view_names=asked.view_names,
    )
    fits = clf.typicality(means.added_to(batch), prepared.state)[0]
    return np.array(means.labels)[fits.argmax(-1).numpy()]


def few_base(options: argparse.Namespace) -> dict[str, Any]:
    """Rejected shares of new-class queries with five base classes."""
    rows = []
    for name in options.datasets or ["handwritten", "scene15", "orl"]:
        data = load(name)
        shares: list[NDArray[Any]] = []
        for repeat in range(options.splits * 2):
            order = np.random.default_rng(repeat).permutation(len(data.classes))
            clf = Marginal().fit_base(data[np.isin(data.codes, order[:5])])
            queries = min(15, int(np.bincount(data.codes).min()) - 3)
            task = task_of(name, way=3, shot=1 + repeat % 3, queries=queries, eta=0.3)
            novel = data.classes[order[5:8]].tolist()
            for episode in EpisodeSampler(data, task, novel).draw(0, 4):
                clf.fit(data[episode.support[0]].with_mask(episode.support_mask[0]))
                asked = data[episode.query[0]].with_mask(episode.query_mask[0])
                shares.append(clf.fit_shares(asked.with_labels(None)))
        row = {"dataset": name}
        row |= {f"rejected_{100 * r:.0f}": 100 * float(np.mean(np.concatenate(shares) < r))
                for r in RATES}  # fmt: skip
        rows.append(row)
        print(f"{name}, five base classes: rejected at 1, 5, 20 %: {row['rejected_1']:.1f}, "
              f"{row['rejected_5']:.1f}, {row['rejected_20']:.1f}", flush=True)  # fmt: skip
    return {"rows": rows}


PARTS: dict[str, Callable[[argparse.Namespace], dict[str, Any]]] = {
    "cells": cells, "known": known, "few-base": few_base,
}  # fmt: skip


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--datasets", type=lambda text: text.split(","), default=None)
    parser.add_argument("--splits", type=int, default=2)
    parser.add_argument("--tasks", type=int, default=10)
    options = parser.parse_args()
    warnings.simplefilter("ignore", FewviewWarning)
    found = PARTS[options.part](options)
    record = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}
    record[options.part] = {"splits": options.splits, "tasks": options.tasks, **found}
    RECORD.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
