"""The open world, measured: do methods notice queries of classes that no support shows?

As in the usual few-shot open-set benchmark: as many unknown as known classes and 15 queries of
each; accuracy on the known ones, and how well unknown queries are found by `typicality`, which is
what `predict(reject=...)` uses, and by the largest probability.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from itertools import product

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax
from sklearn.metrics import precision_recall_curve, roc_auc_score

from fewview.datasets._splits import ClassSplit
from fewview.episodes.batch import EpisodeBatch
from fewview.episodes.episodes import Episodes
from fewview.episodes.sampler import EpisodeSampler
from fewview.episodes.task import TaskSpec
from fewview.errors import FewviewError
from fewview.evaluate._grid import (
    Grid,
    Setting,
    brings_code,
    class_names,
    make_method,
    rows_of,
    settings,
    splits_of,
)
from fewview.evaluate._tuning import learn_for
from fewview.ground._rows import Row
from fewview.methods.estimator.class_fits import class_fits
from fewview.methods.estimator.method import Method
from fewview.results._intervals import standard_error

QUERIES = 15
RECALL = 0.9
FloatArray = NDArray[np.float64]
COLUMNS = (
    "dataset", "method", "way", "shot", "eta", "accuracy", "auroc", "auroc_error",
    "precision_at_recall_90", "auroc_of_probability", "n_episodes",
)  # fmt: skip


@dataclass(frozen=True)
class OpenSetMetrics:
    """Metrics of some episodes, one number each."""

    accuracy: FloatArray  # share of known queries classified rightly
    auroc: FloatArray  # area under the curve of finding unknown queries by typicality
    precision_at_recall_90: FloatArray  # of rejected queries when 90 % of the unknown ones are
    auroc_of_probability: FloatArray  # the same area, by the largest probability


def precision_at_recall(unknown: NDArray[np.bool_], strangeness: FloatArray) -> float:
    """Best precision among thresholds that find at least 90 % of the unknown queries."""
    precision, recall, _ = precision_recall_curve(unknown, strangeness)
    return float(precision[recall >= RECALL].max())


def measure_open_set(
    scores: FloatArray, typicality: FloatArray, labels: NDArray[np.int64], way: int
) -> OpenSetMetrics:
    """Compare scores and typicality, both [tasks, queries, way], with the truth.

    Labels [tasks, queries] are `way` or more for queries of unknown classes.
    """
    right = scores.argmax(-1) == labels
    odd, unsure = -typicality.max(-1), -softmax(scores, axis=-1).max(-1)
    found = [
        (
            right[t][~unknown].mean(),
            roc_auc_score(unknown, odd[t]),
            precision_at_recall(unknown, odd[t]),
            roc_auc_score(unknown, unsure[t]),
        )
        for t, unknown in enumerate(labels >= way)
    ]
    return OpenSetMetrics(*np.array(found).T)


def run_open_set(grid: Grid, tell: Callable[[str], None] | None = None) -> list[Row]:
    """Run a grid as an open-set benchmark: a row per data set, missing rate and method, in percent.

    Where there are not twice as many novel classes as ways, half of them are known. 15 queries per
    class unless given. Results are not stored.
    """
    rows: list[Row] = []
    for setting in settings(grid):
        for eta, text in product(setting.etas, dict.fromkeys(grid.methods)):
            parts: list[OpenSetMetrics] = []
            for split, _, start, stop in splits_of(grid, setting.source):
                task = _task(grid, setting, split, eta)
                sampler = EpisodeSampler(setting.source.data, task, split.novel, seed=grid.seed)
                method, episodes = make_method(text, grid), sampler.draw(start, stop)
                if brings_code(method):
                    episodes = episodes.shuffled_queries()
                parts.append(_score(method, setting, split, task, episodes))
                if tell is not None:
                    tell(
                        f"{setting.source.name} eta {eta:g} {text}: split {len(parts)}, AUROC "
                        f"{100 * parts[-1].auroc.mean():.1f}"
                    )
            rows.append(_row(setting, task, text, parts))
    return rows


def _task(grid: Grid, setting: Setting, split: ClassSplit, eta: float) -> TaskSpec:
    """Twice as many classes: the first half is known."""
    way = min(setting.task.way, len(split.novel) // 2)
    if way < 2:
        raise FewviewError(
            f"data set {setting.source.name!r}: {len(split.novel)} novel classes; an open set "
            "takes 4 or more, two known and two unknown"
        )
    data = setting.source.data
    counts = np.bincount(data.codes[data.codes >= 0]).tolist()
    sizes = dict(zip(data.classes.tolist(), counts, strict=True))
    smallest = min(sizes[name] for name in split.novel)
    shot = max(setting.task.shots)
    queries = min(QUERIES, smallest - shot) if grid.queries is None else grid.queries
    return replace(setting.task, way=2 * way, shot=shot, queries=max(1, queries), eta=eta)


def _score(
    method: Method, setting: Setting, split: ClassSplit, task: TaskSpec, episodes: Episodes
) -> OpenSetMetrics:
    way, n_support = task.way // 2, task.way // 2 * max(task.shots)
    base, novel = (
        rows_of(data, class_names(data, classes))
        for data, classes in (
            (setting.base.data, setting.base_classes(split)), (setting.source.data, split.novel)
        )
    )  # fmt: skip
    fitted = learn_for(method, base, novel, replace(task, way=way))
    tensors = method.tensors(setting.source.data, fitted)
    scores, fits = [], []
    for tasks in method.batches(tensors, episodes):
        batch = _known_half(tasks, way, n_support)
        scores.append(method.score_batch(batch, fitted).double().cpu().numpy())
        fits.append(class_fits(method, batch, fitted).double().cpu().numpy())
    return measure_open_set(
        np.concatenate(scores), np.concatenate(fits), episodes.query_labels, way
    )


def _known_half(batch: EpisodeBatch, way: int, n_support: int) -> EpisodeBatch:
    """The same tasks without the supports of unknown classes, which come last."""
    return replace(
        batch,
        support=tuple(view[:, :n_support] for view in batch.support),
        support_mask=batch.support_mask[:, :n_support],
        support_labels=batch.support_labels[:, :n_support],
        way=way,
    )


def _row(setting: Setting, task: TaskSpec, text: str, parts: list[OpenSetMetrics]) -> Row:
    pooled = {
        item.name: 100 * np.concatenate([getattr(part, item.name) for part in parts])
        for item in fields(OpenSetMetrics)
    }
    means = {name: float(values.mean()) for name, values in pooled.items()}
    return {
        "dataset": setting.source.name,
        "method": text,
        "way": task.way // 2,
        "shot": max(task.shots),
        "eta": task.eta,
        "accuracy": means["accuracy"],
        "auroc": means["auroc"],
        "auroc_error": standard_error(pooled["auroc"]),
        "precision_at_recall_90": means["precision_at_recall_90"],
        "auroc_of_probability": means["auroc_of_probability"],
        "n_episodes": len(pooled["auroc"]),
        "n_splits": len(parts),
        "missing": setting.task.missing.describe(),
    }
