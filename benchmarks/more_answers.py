"""Empty cells, known and new classes, sets of classes, a new sensor, advice: what comes of them.

    python benchmarks/more_answers.py cells|known|few-base|sets|sensor|advice
        [--datasets scene15,...] [--splits 2] [--tasks 10]
    python benchmarks/more_answers.py page

Every part prints its lines and keeps them in `benchmarks/results/more-answers.json`; `page` makes
`docs/more-answers.md` from that file alone. Parts are small enough for a laptop; more splits and
tasks make them surer. With few base classes one at a time
plays a new one: why too many queries were rejected was found on handwritten. How known classes are
told from new ones, and how much a new view counts, was chosen on other draws of these data sets.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg import block_diag
from scipy.stats import multivariate_normal
from sklearn.metrics import roc_auc_score

from fewview import EpisodeSampler, FewviewWarning, MultiViewData, TaskSpec, create
from fewview.datasets import class_split, get_spec, load
from fewview.datasets._catalogue import data_folder, names
from fewview.datasets._splits import draw_split
from fewview.engine._fitted import FittedBase
from fewview.evaluate._advice import GAIN, LEARNER, PLAIN, first_choice, give_advice
from fewview.methods.marginal import Marginal
from fewview.numerics._batch import EpisodeBatch
from fewview.results._intervals import compare_with_best
from fewview.results._metrics import expected_calibration_error

PAGE = Path(__file__).parents[1] / "docs" / "more-answers.md"
RECORD = Path(__file__).parent / "results" / "more-answers.json"
NAN = float("nan")
HEAD = """# More answers, measured

Made by `python benchmarks/more_answers.py page` from `benchmarks/results/more-answers.json`;
nothing here is written by hand. Parts are small (a few class splits and tasks, in the record, as is
the version of `marginal`; rows without one are of versions 6 and 7), so that differences of two
points are often chance."""


def task_of(name: str, **changes: Any) -> TaskSpec:
    """The usual task of a data set, with fewer queries where classes are small."""
    given: dict[str, Any] = {"way": 3, "shot": 1, "queries": 15}
    if name in names():
        spec = get_spec(name)
        given |= {"way": spec.way, "shot": spec.shot, "queries": min(spec.queries, 15)}
    return TaskSpec(**(given | changes))


def parted(name: str, split: int) -> tuple[MultiViewData, list[Any], MultiViewData]:
    """Data, novel classes and base samples of a class split."""
    if name in names():
        data, classes = load(name), class_split(name, split)
        known = load(get_spec(name).base_from or name)
        return data, list(classes.novel), known[np.isin(known.labels, classes.base)]
    folder = Path(data_folder(None))
    path = folder / name if (folder / name).is_dir() else folder / f"{name}.npz"
    data = MultiViewData.read(path).without_ids().with_name(name)
    data = data[(np.bincount(data.codes) >= 10)[data.codes]]
    labels = data.classes.tolist()
    n_base = min(round(0.6 * len(labels)), len(labels) - 2)
    divided = draw_split(labels, n_base, len(labels) - n_base, split, 0, name)
    known = np.isin(data.labels.astype(str), [str(label) for label in divided.base])
    return data, list(divided.novel), data[known]


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
OPEN_SETS = [*KNOWN_SETS, "soybean", "ccle"]


def known(options: argparse.Namespace) -> dict[str, Any]:
    """Both halves, with and without being told which; calibration; rejected shares."""
    rows = []
    for name in options.datasets or OPEN_SETS:
        found: dict[str, list[float]] = {key: [] for key in (
            "new", "new_told", "known", "known_told", "half", "strangers_5", "area",
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
            way = min(task_of(name).way, max(2, len(novel) - 2))
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
                    some = others[rng.permutation(len(others))[:60]]
                    fits = clf.fit_shares(some.with_labels(None))
                    found["strangers_5"].append(float(np.mean(fits < 0.05)))
                    truth = np.repeat([True, False], [len(shares), len(fits)])
                    area = roc_auc_score(truth, np.concatenate([shares, fits]))
                    found["area"].append(area)
        row: dict[str, Any] = {"dataset": name}
        row |= {key: 100 * float(np.mean(values)) for key, values in found.items() if values}
        row["ece"] = calibration_error(np.concatenate(sure), np.concatenate(right))
        rows.append(row)
        print(f"{name}: new classes {row['new']:.1f} % right ({row['new_told']:.1f} if told), "
              f"known {row['known']:.1f} ({row['known_told']:.1f}), half {row['half']:.1f}, "
              f"calibration error {row['ece']:.3f}; rejected at 1, 5, 20 %: "
              f"{row['rejected_1']:.1f}, {row['rejected_5']:.1f}, "
              f"{row['rejected_20']:.1f} (of strangers, at 5 %: "
              f"{row.get('strangers_5', NAN):.1f}, area {row.get('area', NAN):.1f})",
              flush=True)  # fmt: skip
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


# ------------------------------------------------------------------ sets of classes


COVERAGES = (0.8, 0.9, 0.95)


def sets(options: argparse.Namespace) -> dict[str, Any]:
    """How often sets hold the true class, and how large they are, by the number of views."""
    rows = []
    for name in options.datasets or KNOWN_SETS:
        held: dict[tuple[float, int], list[bool]] = {}
        sizes: dict[float, list[int]] = {coverage: [] for coverage in COVERAGES}
        right: list[bool] = []
        for split in range(options.splits):
            data, novel, base = parted(name, split)
            task = task_of(name, eta=0.3)
            clf = Marginal().fit_base(base, task=task).calibrate_sets()
            for kind in ("balanced", "dirichlet:2"):
                queries = task.queries if kind == "balanced" else max(2, task.queries // 2)
                shape = replace(task, query_counts=kind, queries=queries)
                for episode in EpisodeSampler(data, shape, novel).draw(0, options.tasks):
                    clf.fit(data[episode.support[0]].with_mask(episode.support_mask[0]))
                    asked = data[episode.query[0]].with_mask(episode.query_mask[0])
                    for coverage in COVERAGES:
                        found = clf.predict_sets(asked.with_labels(None), coverage)
                        for chosen, label, count in zip(
                            found, asked.labels.tolist(), asked.mask.sum(1).tolist(), strict=True
                        ):
                            held.setdefault((coverage, count), []).append(label in chosen)
                            sizes[coverage].append(len(chosen))
                    right += [one[0] == label for one, label in zip(found, asked.labels.tolist(),
                                                                    strict=True)]  # fmt: skip
        row: dict[str, Any] = {"dataset": name, "way": task_of(name).way,
                               "right": 100 * float(np.mean(right)), "coverage": {}}  # fmt: skip
        for coverage in COVERAGES:
            everyone = [x for (c, _), values in held.items() if c == coverage for x in values]
            counted = sorted((n, values) for (c, n), values in held.items() if c == coverage)
            by_views = {count: 100 * float(np.mean(values)) for count, values in counted}
            row["coverage"][f"{100 * coverage:.0f}"] = {
                "found": 100 * float(np.mean(everyone)), "by_views": by_views,
                "size": float(np.mean(sizes[coverage])),
            }  # fmt: skip
        rows.append(row)
        print(f"{name}: " + "; ".join(
            f"asked {asked} %, found {entry['found']:.1f} ("
            + ", ".join(f"{count} views {value:.1f}" for count, value in entry["by_views"].items())
            + f"), {entry['size']:.2f} of {row['way']} classes"
            for asked, entry in row["coverage"].items()), flush=True)  # fmt: skip
    return {"rows": rows}


# ------------------------------------------------------------------ a new sensor


def sensor(options: argparse.Namespace) -> dict[str, Any]:
    """A view that only supports and queries have: accuracy without it and with it."""
    rows = []
    for name in options.datasets or ["handwritten", "scene15", "cub_googlenet_doc2vec"]:
        for view in load(name).view_names:
            right: dict[tuple[str, str], list[float]] = {}
            for split in range(options.splits):
                data, novel, base = parted(name, split)
                others = [other for other in data.view_names if other != view]
                queries = min(15, int(np.bincount(data.codes).min()) - 5)
                task = task_of(name, shot=5, queries=queries)
                for method in SENSOR_METHODS:
                    clf = create(method).fit_base(base.select_views(others))
                    for episode in EpisodeSampler(data, task, novel).draw(0, options.tasks):
                        few, asked = data[episode.support[0]], data[episode.query[0]]
                        for kind, views in (("without", others), ("with", list(data.view_names))):
                            clf.fit(few.select_views(views))
                            score = clf.score(asked.select_views(views))
                            right.setdefault((method, kind), []).append(score)
            for method in SENSOR_METHODS:
                row = {"dataset": name, "view": view, "method": method,
                       **{kind: 100 * float(np.mean(right[method, kind]))
                          for kind in ("without", "with")}}  # fmt: skip
                rows.append(row)
                print(f"{name}, {view} is new, {method}: {row['without']:.1f} without it, "
                      f"{row['with']:.1f} with it", flush=True)  # fmt: skip
    return {"rows": rows}


SENSOR_METHODS = ("proto", "bd-cspn", "marginal")


# ------------------------------------------------------------------ advice


KINDS = ("balanced", "dirichlet:2", "dominant:0.8")
ADVICE_SETS = ["handwritten", "scene15", "cub_googlenet_doc2vec", "leaves100", "orl", "caltech102",
               "tieredimagenet_tiny", "birds200", "newsgroups", "movies617", "wikipedia", "ccle",
               "soybean"]  # fmt: skip
CANDIDATES = ("marginal", "proto", "ugda", "ptmap", "bd-cspn")
LEVEL = 1.0


def advice(options: argparse.Namespace) -> dict[str, Any]:
    """Whether what `advise` says about base classes is within a point of the best on new ones."""
    rows = []
    for name in options.datasets or ADVICE_SETS:
        for kind in KINDS:
            for split in range(options.splits):
                data, novel, base = parted(name, split)
                smallest = int(np.bincount(data.codes[data.codes >= 0]).min())
                # As many new classes as base classes can play, and queries that all have.
                play = len(base.classes) - min(round(0.6 * len(base.classes)),
                                               len(base.classes) - 2)  # fmt: skip
                way = max(2, min(5, play, len(novel)))
                queries = max(2, min(15, (smallest - 1) // (1 if kind == "balanced" else way)))
                said = give_advice(
                    base.without_ids().with_name(name), methods=",".join(CANDIDATES), shot=1,
                    way=way, queries=queries, splits=3, episodes=options.tasks, query_counts=kind,
                    seed=split, plain=options.plain.split(","),
                )  # fmt: skip
                task = TaskSpec(way=way, shot=1, queries=queries, query_counts=kind)
                # Other tasks in every split: the classes of some sets are always the same.
                first, last = (2 * options.tasks * number for number in (split, split + 1))
                episodes = EpisodeSampler(data, task, novel).draw(first, last)
                truth = {}
                for row in said.rows:
                    clf = create(row["method"])
                    prepared = clf.prepare_for(base, data[np.isin(data.labels, novel)], task)
                    scores = clf.score_episodes(data, episodes, prepared)
                    hits = scores.argmax(-1).numpy() == episodes.query_labels
                    truth[row["method"]] = round(100 * float(hits.mean()), 3)
                tried: dict[str, list[float]] = {}
                for result in said.outcome.results.values():
                    mean = 100 * float(np.mean(result.metrics.accuracy))
                    tried.setdefault(result.cell.method, []).append(round(mean, 3))
                rows.append(with_choice({
                    "dataset": name, "kind": kind, "split": split, "way": way, "queries": queries,
                    "classes": len(base.classes), "left": min(
                        len(result.cell.base_classes) for result in said.outcome.results.values()
                    ), "tried": tried, "truth": truth,
                }))  # fmt: skip
                print(f"{name}, {kind}, split {split}: {rows[-1]['chosen']} "
                      f"{rows[-1]['accuracy']:.1f}, best {rows[-1]['best']} "
                      f"{rows[-1]['best_accuracy']:.1f}", flush=True)  # fmt: skip
    for kind in KINDS:
        met = [row["level"] for row in rows if row["kind"] == kind]
        print(f"{kind}: the first choice is within {LEVEL:g} point of the best in {sum(met)} of "
              f"{len(met)}")  # fmt: skip
    return {"rows": rows}


def with_choice(row: dict[str, Any]) -> dict[str, Any]:
    """A row with what `advise` chooses from what was tried, and how good that is on new classes."""
    means = {method: float(np.mean(values)) for method, values in row["tried"].items()}
    order = sorted(means, key=lambda method: -means[method])
    splits = np.array([row["tried"][method] for method in order])
    margins = {pair.two: (pair.low, pair.high) for pair in compare_with_best(splits, order)}
    gain = GAIN * (1 / row["left"] - 1 / row["classes"])
    chosen = first_choice({method: means[method] for method in order}, margins, gain)
    truth = row["truth"]
    best = max(truth, key=lambda method: truth[method])
    level = truth[chosen] >= truth[best] - LEVEL
    return {**row, "chosen": chosen, "accuracy": truth[chosen], "best": best,
            "best_accuracy": truth[best], "level": level}  # fmt: skip


PARTS: dict[str, Callable[[argparse.Namespace], dict[str, Any]]] = {
    "cells": cells, "known": known, "few-base": few_base, "sets": sets, "sensor": sensor,
    "advice": advice,
}  # fmt: skip


def keep(part: str, found: dict[str, Any], file: Path) -> None:
    """Put rows into the record; rows of data sets that were computed before are replaced."""
    record = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    new = {row["dataset"] for row in found["rows"]}
    before = [row for row in record.get(part, {}).get("rows", []) if row["dataset"] not in new]
    record[part] = {**record.get(part, {}), **found, "rows": before + found["rows"]}
    parts = [f"{json.dumps(name)}: {one_row_a_line(part)}" for name, part in record.items()]
    file.write_text("{\n" + ",\n".join(parts) + "\n}\n", encoding="utf-8")


def one_row_a_line(part: dict[str, Any]) -> str:
    """A part of the record as JSON, with a line for every row."""
    rows = ",\n".join(json.dumps(row) for row in part["rows"])
    rest = "".join(f"{json.dumps(k)}: {json.dumps(v)}, " for k, v in part.items() if k != "rows")
    return f'{{{rest}"rows": [\n{rows}\n]}}'


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=[*PARTS, "page"])
    parser.add_argument("--datasets", type=lambda text: text.split(","), default=None)
    parser.add_argument("--splits", type=int, default=2)
    parser.add_argument("--tasks", type=int, default=10)
    parser.add_argument("--plain", default=",".join(PLAIN), help="of advice: plain classifiers")
    parser.add_argument("--output", type=Path, default=PAGE, help="of page")
    parser.add_argument("--record", type=Path, default=RECORD, help="where rows are kept")
    parser.add_argument("--join", type=Path, nargs="*", default=[], metavar="FILE",
                        help="of page: records of other machines, taken in first")  # fmt: skip
    options = parser.parse_args()
    warnings.simplefilter("ignore", FewviewWarning)
    if options.part == "page":
        for file in options.join:
            for part, found in json.loads(file.read_text(encoding="utf-8")).items():
                keep(part, found, options.record)
        record = json.loads(options.record.read_text(encoding="utf-8"))
        options.output.write_text(page(record), encoding="utf-8")
        return
    found = PARTS[options.part](options)
    size = {"splits": options.splits, "tasks": options.tasks, "version": Marginal.version}
    found["rows"] = [{**row, **size} for row in found["rows"]]
    keep(options.part, found, options.record)


def table(header: list[str], lines: list[list[Any]]) -> str:
    """A table in Markdown; numbers with one digit."""
    texts = [[f"{x:.1f}" if isinstance(x, float) else str(x) for x in line] for line in lines]
    rows = [header, ["---"] * len(header), *texts]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def page(record: dict[str, Any]) -> str:
    """The page, from the record alone."""
    out = [HEAD]
    if "cells" in record:
        part, scipy = record["cells"], record["cells"]["scipy"]
        out.append(
            f"## Empty cells\n\nOne query of handwritten with 1 to {scipy['width'] - 1} of the "
            f"{scipy['width']} cells of `{scipy['view']}` empty: log-odds differ from scipy's "
            f"Gaussian by at most {scipy['difference']:.1e}. Accuracy of `marginal` (one shot, no "
            "view missing) with a share of all cells of supports and queries empty, integrated out "
            "or filled with means of the base set:\n"
        )
        lines = [[r["dataset"], f"{100 * r['empty']:.0f} %", r["integrated"], r["filled"]]
                 for r in part["rows"]]  # fmt: skip
        out.append(table(["data set", "empty cells", "integrated out", "filled"], lines))
    if "known" in record:
        out.append(
            '## Known and new classes\n\n`fit(..., classes="all")`, three shots, as many '
            "queries of base classes (held out) as of new ones. Accuracy on either half, and if "
            "told which half; share of queries put into the right half; calibration error over "
            "all; shares of queries of these classes that are rejected where 1, 5, 20 % are "
            "asked for, and at 5 % of queries of other new classes, and the area under the curve "
            "of the former against the latter:\n"
        )
        lines = [[r["dataset"], r["new"], r["new_told"], r["known"], r["known_told"], r["half"],
                  f"{r['ece']:.3f}", r["rejected_1"], r["rejected_5"], r["rejected_20"],
                  r.get("strangers_5", ""), r.get("area", "")]
                 for r in record["known"]["rows"]]  # fmt: skip
        out.append(table(["data set", "new", "told", "known", "told", "half", "error", "1 %",
                          "5 %", "20 %", "others", "area"], lines))  # fmt: skip
    if "few-base" in record:
        out.append(
            "Rejected shares with five base classes, one to three shots, missing rate 0.3 (before: "
            "9 and 35 % of handwritten where 5 and 20 % were asked for; the cause was looked for "
            "on that set):\n"
        )
        lines = [[r["dataset"], r["rejected_1"], r["rejected_5"], r["rejected_20"]]
                 for r in record["few-base"]["rows"]]  # fmt: skip
        out.append(table(["data set", "1 %", "5 %", "20 %"], lines))
    if record.get("sets", {}).get("rows"):
        out.append(
            "## Sets of classes\n\nHow often sets hold the true class where 80, 90, 95 % are asked "
            "for, in all and by the number of views that the query has, and how many classes a set "
            "has; one shot, missing rate 0.3, balanced and Dirichlet(2) queries. A set holds one "
            "class at least, so it has the truth no less often than the most probable class is "
            "right:\n"
        )
        lines = [
            [r["dataset"], r.get("right", ""), f"{asked} %", entry["found"],
             ", ".join(f"{c}: {v:.1f}" for c, v in entry["by_views"].items()),
             f"{entry['size']:.2f} of {r['way']}"]
            for r in record["sets"]["rows"] for asked, entry in r["coverage"].items()
        ]  # fmt: skip
        out.append(
            table(["data set", "right", "asked", "found", "by views", "classes in a set"], lines)
        )
    if "sensor" in record:
        out.append(
            "## A new sensor\n\nA view that the base set lacks and supports and queries have, five "
            "shots; accuracy without it and with it. It is scaled and, by `marginal`, modelled by "
            "what the supports say about it:\n"
        )
        lines = [[r["dataset"], r["view"], r["method"], r["without"], r["with"]]
                 for r in record["sensor"]["rows"]]  # fmt: skip
        out.append(table(["data set", "new view", "method", "without", "with"], lines))
    if "advice" in record:
        rows = [with_choice(row) for row in record["advice"]["rows"]]
        short = sorted({r["dataset"] for r in rows if PLAIN[-1] not in r["tried"]})
        draws = sorted({(r["splits"], r["tasks"]) for r in rows})
        met = {kind: [r["level"] for r in rows if r["kind"] == kind] for kind in KINDS}
        out.append(
            f"## Advice\n\n`advise` on base classes alone, among {', '.join(CANDIDATES)} and plain "
            f"classifiers; accuracy of its first choice and of the best on new classes. Within "
            f"{LEVEL:g} point of the best: "
            + "; ".join(f"{kind} {sum(m)} of {len(m)}" for kind, m in met.items())
            + "; points below the best on the mean: "
            + f"{np.mean([r['best_accuracy'] - r['accuracy'] for r in rows]):.1f}. "
            + " and ".join(f"{splits} class splits of {2 * tasks} tasks" for splits, tasks in draws)
            + (f"; without {PLAIN[-1]}, which is slow, on {', '.join(short)}" if short else "")
            + f". `{LEARNER}` is credited with the base classes that it could not learn from while "
            "they played new ones; by how much was chosen on scene15, cub, newsgroups, movies617 "
            "and wikipedia.\n"
        )
        lines = [[r["dataset"], r["kind"], r["chosen"], r["accuracy"], r["best"],
                  r["best_accuracy"]] for r in rows]  # fmt: skip
        out.append(table(["data set", "queries", "first choice", "", "best", ""], lines))
    whole = "\n\n".join(part.rstrip() for part in out)
    lines = (x if x.startswith("|") else fill(x, 100) for x in whole.splitlines())
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
