"""Figures 3 to 7: their numbers, and drawing them; 3, 4 (b, c) and 6 look inside single tasks.

What is an accuracy of many tasks comes from the records; what is of single tasks is computed anew,
which takes seconds to minutes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from sklearn.manifold import TSNE

from fewview import EpisodeSampler, TaskSpec, create, load
from fewview.datasets import class_split, get_spec
from fewview.evaluate import Progress
from reproduction.run import Study

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")  # Okabe and Ito
MARKS = {"A": 1, "B": 5, "C": 30}  # iterations of Algorithm 1
LOOKS = {"anchor": ("o", 3), "query": ("o", 10), "support": ("s", 60), "centre": ("*", 90)}
CHUNK = 10  # tasks at once


def numbers(study: Study, results: pd.DataFrame) -> pd.DataFrame:
    """Accuracies of a figure: mean and deviation over class splits, or over repetitions."""
    some = results[results["study"].str.startswith(f"{study.name}/")]
    grouped = some.groupby(["study", "method", "eta"], sort=False)
    table = grouped["accuracy"].agg(accuracy="mean", deviation=lambda x: x.std(ddof=0), n="count")
    order = {(part.study, row): place for place, part in enumerate(study.parts)
             for row in part.methods}  # fmt: skip
    out = table.assign(episodes=grouped["episodes"].sum()).reset_index()
    places = [order[part, row] for part, row in zip(out["study"], out["method"], strict=True)]
    return out.iloc[np.argsort(places, kind="stable")]


def draw(study: Study, table: pd.DataFrame, losses: Mapping[str, Any]) -> Figure:
    """Draw figure 4 (a, b), 5 or 7 from its numbers."""
    figure = Figure(figsize=(7.2, 3.6), layout="constrained")
    if study.name == "figure4":
        left, right = figure.subplots(1, 2)
        wide = table.pivot(index="method", columns="study", values="accuracy")
        wide.loc[list(study.rows)].T.plot.bar(ax=left, color=COLOURS, rot=0, xlabel="", legend=False)
        left.legend(fontsize=7)
        left.set(title="(a) ablation", ylabel="accuracy (%)")
        for place, path in losses.items():
            right.semilogy(np.arange(1, len(path) + 1), np.mean(path, axis=1), label=place)
        right.set(title="(b) aggregation loss", xlabel="iteration", ylabel="loss per anchor")
        right.legend(fontsize=7)
        return figure
    panels = table["study"].unique() if study.name == "figure7" else table["eta"].unique()
    rows = 2 if study.name == "figure7" else 1
    for axis, panel in zip(figure.subplots(rows, len(panels) // rows).ravel(), panels, strict=True):
        here = table[(table["study"] == panel) | (table["eta"] == panel)]
        if study.name == "figure7":
            axis.errorbar(here["method"], here["accuracy"], here["deviation"], color=COLOURS[0])
            axis.set_title(panel.partition("/")[2], fontsize=8)
            continue
        for colour, (method, line) in zip(COLOURS, here.groupby("method", sort=False), strict=False):
            sizes = line["study"].str.partition("/")[2].astype(int)
            axis.errorbar(sizes, line["accuracy"], line["deviation"], color=colour, label=method)
        axis.set_xscale("log", base=2)
        axis.set(title=f"eta {panel:g}", xlabel="base classes", ylabel="accuracy (%)")
        axis.legend(fontsize=7)
    return figure


# ---------------------------------------------------------------------- single tasks


class Tasks:
    """The first tasks of class split 0 of a data set, the same ones that the tables use."""

    def __init__(self, dataset: str, eta: float, count: int = 1, way: int | None = None) -> None:
        spec, split, data = get_spec(dataset), class_split(dataset, 0), load(dataset)
        source = load(spec.base_from) if spec.base_from else data
        self.base = source[np.isin(np.asarray(source.labels), split.base)]
        self.novel = data[np.isin(np.asarray(data.labels), split.novel)]
        self.spec = TaskSpec(way=way or spec.way, shot=spec.shot, queries=spec.queries, eta=eta)
        self.episodes = EpisodeSampler(self.novel, self.spec, name=dataset).draw(0, count)

    def prepare(self, text: str) -> tuple[Any, Any, Any, Any]:
        """A method with the paper's scaling, what it learnt, its tasks, and labels of queries."""
        method: Any = create(text)
        paper = getattr(method, "paper_settings", {})
        method.set_params(**{name: paper[name] for name in ("scaling", "padding") if name in paper})
        prepared = method.prepare_for(self.base, self.novel, self.spec)
        batch = method.scaled(self.novel, prepared).gather(self.episodes)
        return method, prepared, batch.without_query_labels(), batch.query_labels.cpu().numpy()


def own_nearest(anchors: Any, labels: Any, queries: Any, truth: Any) -> float:
    """Share of queries, in percent, whose nearest anchor or support is of their class."""
    gaps = np.linalg.norm(queries[:, None] - anchors[None], axis=-1)
    return 100 * float((labels[gaps.argmin(1)] == truth).mean())


def tsne(points: Any) -> Any:
    """Map points [n, L] to the plane by t-SNE, the same way every time."""
    centred = points - points.mean(0)
    if centred.shape[1] > 50:  # as is usual before t-SNE
        left, sizes, _ = np.linalg.svd(centred, full_matrices=False)
        centred = left[:, :50] * sizes[:50]
    start = "pca" if centred.shape[1] > 2 else "random"
    model = TSNE(perplexity=min(30.0, (len(points) - 1) / 3), random_state=0, init=start)
    return model.fit_transform(centred / (centred.std() or 1.0))


def draw_map(axis: Any, title: str, groups: Mapping[str, tuple[Any, Any]]) -> None:
    """Draw points of some kinds, each with class labels, in one map; colour is the class."""
    places = tsne(np.concatenate([points for points, _ in groups.values()]))
    ends = np.cumsum([len(points) for points, _ in groups.values()])
    for kind, part in zip(groups, np.split(places, ends[:-1]), strict=True):
        shape, size = LOOKS[kind]
        colours = [COLOURS[int(label)] for label in groups[kind][1]]
        axis.scatter(*part.T, c=colours, marker=shape, s=size, edgecolors="black", linewidths=0.2)
    axis.set(xticks=[], yticks=[])
    axis.set_title(title, fontsize=8)


def compute(study: Study, progress: Progress) -> tuple[dict[str, Any], Figure]:
    """Compute and draw figure 3, 4 (b, c) or 6: what is recorded of it, and its maps."""
    figure = Figure(figsize=(7.2, 4.0), layout="constrained")
    return {"figure3": _spaces, "figure4": _aggregation, "figure6": _rectified}[study.name](
        study, figure, progress
    ), figure


def _spaces(study: Study, figure: Figure, progress: Progress) -> dict[str, Any]:
    """One task as the methods see it: supports or anchors with queries."""
    tasks = Tasks(study.options["dataset"], study.options["rates"][0])
    rows = []
    methods = progress.track(list(study.rows.items()), "spaces of figure 3")
    for axis, (panel, text) in zip(figure.subplots(2, 3).ravel(), methods, strict=True):
        method, prepared, batch, (truth,) = tasks.prepare(text)
        with torch.no_grad():
            hits = method.score_batch(batch, prepared).argmax(-1)[0].cpu().numpy() == truth
            latent = method.embed(method.padded(batch, prepared), prepared.state)
        anchors, queries = (x[0].double().cpu().numpy() for x in latent.concatenated())
        labels = latent.support_labels[0].cpu().numpy()
        kind = "anchor" if len(labels) > batch.n_support else "support"
        draw_map(axis, panel, {"query": (queries, truth), kind: (anchors, labels)})
        rows.append({"panel": panel, "shown": f"{kind}s and queries",
                     "accuracy": 100 * float(hits.mean()),
                     "nearest_is_own": own_nearest(anchors, labels, queries, truth)})  # fmt: skip
    return {"rows": rows}


def _aggregation(study: Study, figure: Figure, progress: Progress) -> dict[str, Any]:
    """Algorithm 1 on the way: loss of some tasks, maps of the first after some iterations."""
    rows: list[dict[str, Any]] = []
    losses = {}
    axes = figure.subplots(2, len(MARKS))
    for line, part in zip(axes, study.parts, strict=True):
        place = part.study.partition("/")[2]
        count = study.options["tasks"]
        tasks = Tasks(part.dataset, study.options["rates"][0], count)
        method, prepared, batch, truth = tasks.prepare(part.methods["full IAA"])
        paths = []
        for k in progress.track(range(count), f"loss of figure 4 on {place}, tasks"):
            at = tuple(iteration - 1 for iteration in MARKS.values()) if k == 0 else ()
            trace = method.trace(batch.tasks(slice(k, k + 1)), prepared.state, at)
            paths.append((trace.loss / trace.labels.shape[1]).double().cpu().numpy()[:, 0])
            labels = trace.labels[0].cpu().numpy()
            for axis, (mark, iteration) in zip(line, MARKS.items() if at else (), strict=False):
                anchors, queries = (x[iteration - 1][0].double().cpu().numpy()
                                    for x in (trace.anchors, trace.queries))  # fmt: skip
                title = f"{place}, {mark}: iteration {iteration}"
                draw_map(axis, title, {"anchor": (anchors, labels), "query": (queries, truth[0])})
                rows.append({"part": "c", "dataset": place, "what": f"queries nearest to an own anchor at {mark} (%)",
                             "value": own_nearest(anchors, labels, queries, truth[0])})  # fmt: skip
        losses[place] = np.stack(paths, 1).tolist()
        means = np.mean(losses[place], axis=1)
        rows += [{"part": "b", "dataset": place, "what": f"loss per anchor at {mark} (iteration {iteration})",
                  "value": float(means[iteration - 1])} for mark, iteration in MARKS.items()]  # fmt: skip
    return {"rows": rows, "losses": losses}


def _rectified(study: Study, figure: Figure, progress: Progress) -> dict[str, Any]:
    """Class centres with every choice of terms, on the task with the median gain of both."""
    rows = []
    sets, count = study.options["datasets"], study.options["tasks"]
    axes = figure.subplots(len(sets), len(study.rows))
    for line, dataset in zip(axes, sets, strict=True):
        tasks = Tasks(dataset, study.options["rates"][0], count, way=3)
        found = {}
        for name in progress.track(list(study.rows), f"variants of figure 6 on {dataset}"):
            method, prepared, batch, truth = tasks.prepare(study.rows[name])
            traces = [method.trace(batch.tasks(slice(start, start + CHUNK)), prepared.state)
                      for start in range(0, count, CHUNK)]  # fmt: skip
            queries, before, after = (
                torch.cat([getattr(trace, part) for trace in traces]).double().cpu().numpy()
                for part in ("final_queries", "centres", "rectified")
            )
            gaps = np.linalg.norm(queries[:, :, None] - after[:, None], axis=-1)
            hits = 100 * (gaps.argmin(2) == truth).mean(1)
            found[name] = (hits, np.linalg.norm(after - before, axis=-1).mean(1), after, queries)
        gain = found["both"][0] - found["without ADSR"][0]
        task = int(np.argsort(gain, kind="stable")[(count - 1) // 2])
        for axis, (name, (hits, moved, after, queries)) in zip(line, found.items(), strict=True):
            groups = {"query": (queries[task], truth[task]), "centre": (after[task], range(3))}
            draw_map(axis, f"{dataset}: {name}", groups)
            rows.append({"dataset": dataset, "task": task, "rectification": name,
                         "accuracy": float(hits[task]), "moved": float(moved[task]),
                         "over_tasks": float(hits.mean()), "tasks": count})  # fmt: skip
    return {"rows": rows}
