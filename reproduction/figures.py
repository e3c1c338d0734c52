"""Figures 3 to 7: accuracies from the records, and what is seen inside single tasks, made anew."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from sklearn.manifold import TSNE

from fewview import EpisodeSampler, FewviewError, TaskSpec, create, load
from fewview.datasets import class_split, get_spec
from fewview.evaluate import Progress
from fewview.methods.estimator.fitted_base import learn_base
from reproduction.run import Study, of_classes

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")  # Okabe and Ito
MARKS = {"A": 1, "B": 5, "C": 30}  # iterations of Algorithm 1
LOOKS = {"anchor": ("o", 3), "query": ("o", 10), "support": ("s", 60), "centre": ("*", 90)}


def numbers(study: Study, results: pd.DataFrame) -> pd.DataFrame:
    """Accuracies of a figure: mean and deviation over class splits, or over repetitions."""
    grouped = results.groupby(["study", "method", "eta"], sort=False)
    found = grouped["accuracy"].agg(accuracy="mean", deviation=lambda x: x.std(ddof=0), n="count")
    table = found.assign(episodes=grouped["episodes"].sum()).reset_index()
    order = [(part.study, row) for part in study.parts for row in part.methods]
    places = [order.index(pair) for pair in zip(table["study"], table["method"], strict=True)]
    return table.iloc[np.argsort(places, kind="stable")].astype({"n": object, "episodes": object})


def draw(study: Study, table: pd.DataFrame, losses: Mapping[str, Any]) -> Figure:
    """Draw figure 4 (a, b), 5 or 7 from its numbers."""
    if study.name not in ("figure4", "figure5", "figure7"):
        raise FewviewError(f"{study.name}: nothing to draw from records; see run --output")
    last = table["study"].str.partition("/")[2]
    table = table.assign(panel=last, x=table["method"], line="accuracy (%)")
    if study.name == "figure5":  # a panel for each rate, and lines over the number of base classes
        table = table.assign(
            panel=table["eta"].map("eta {:g}".format), x=last, line=table["method"]
        )
    panels = [*table["panel"].unique(), *(["loss per anchor"] if losses else [])]
    figure = Figure(figsize=(7.2, 3.8), layout="constrained")
    rows, style = len(panels) // 4 or 1, "o" if study.name == "figure4" else "o-"
    for axis, name in zip(figure.subplots(rows, len(panels) // rows).ravel(), panels, strict=True):
        here = table[table["panel"] == name]
        for colour, (label, some) in zip(COLOURS, here.groupby("line", sort=False), strict=False):
            axis.errorbar(some["x"], some["accuracy"], some["deviation"], None, style, color=colour,
                          label=label)  # fmt: skip
        for place, path in losses.items() if here.empty else ():
            axis.semilogy(np.arange(1, len(path) + 1), np.mean(path, axis=1), label=place)
        axis.set_title(name, fontsize=8)
        axis.tick_params(labelsize=6)
        axis.legend(fontsize=6)
    return figure


class Tasks:
    """The first tasks of class split 0 of a data set, the same ones that the tables use."""

    def __init__(self, dataset: str, eta: float, count: int = 1, way: int | None = None) -> None:
        spec, split, data = get_spec(dataset), class_split(dataset, 0), load(dataset)
        source = load(spec.base_from) if spec.base_from else data
        self.base, self.novel = of_classes(source, split.base), of_classes(data, split.novel)
        self.spec = TaskSpec(way=way or spec.way, shot=spec.shot, queries=spec.queries, eta=eta)
        self.episodes = EpisodeSampler(self.novel, self.spec, name=dataset).draw(0, count)

    def prepare(self, text: str) -> tuple[Any, Any, Any, Any]:
        """A method with the paper's scaling, what it learnt, its tasks, and labels of queries."""
        method: Any = create(text)
        method.set_params(**method.paper)
        fitted = learn_base(method, self.base, self.spec)
        batch = method.tensors(self.novel, fitted).gather(self.episodes)
        truth = batch.query_labels.cpu().numpy()
        return method, fitted, replace(batch, query_labels=None), truth


def own_nearest(anchors: Any, labels: Any, queries: Any, truth: Any) -> float:
    """Share of queries, in percent, whose nearest anchor or support is of their class."""
    gaps = np.linalg.norm(queries[:, None] - anchors[None], axis=-1)
    return 100 * float((labels[gaps.argmin(1)] == truth).mean())


def plane(*groups: Any) -> Any:
    """Groups of points in one t-SNE map, the same way every time."""
    points = np.concatenate(groups)
    model = TSNE(perplexity=min(30.0, (len(points) - 1) / 3), random_state=0)
    ends = np.cumsum([len(group) for group in groups])[:-1]
    return np.split(model.fit_transform(points / (points.std() or 1.0)), ends)


def draw_map(axis: Any, title: str, **groups: tuple[Any, Any]) -> None:
    """Draw mapped points of some kinds, with their classes as colours."""
    for kind, (places, labels) in groups.items():
        mark, size = LOOKS[kind]
        colours = [COLOURS[int(label)] for label in labels]
        axis.scatter(*places.T, c=colours, marker=mark, s=size, edgecolors="black", linewidths=0.2)
    axis.set(xticks=[], yticks=[])
    axis.set_title(title, fontsize=8)


def compute(study: Study, progress: Progress) -> tuple[dict[str, Any], Figure]:
    """Compute figure 3, 4 (b, c) or 6: what is recorded of it, and its maps."""
    figure = Figure(figsize=(7.2, 4.0), layout="constrained")
    makers = {"figure3": _spaces, "figure4": _aggregation, "figure6": _rectified}
    return makers[study.name](study, figure, progress), figure


def _plain(tensor: Any) -> Any:
    return tensor.double().cpu().numpy()


def _spaces(study: Study, figure: Figure, progress: Progress) -> dict[str, Any]:
    """One task as the methods see it: supports or anchors with queries."""
    tasks = Tasks(study.options["dataset"], study.options["rates"][0])
    rows = []
    panels = zip(figure.subplots(2, 3).ravel(), study.rows.items(), strict=True)
    for axis, (panel, text) in progress.track(list(panels), "spaces of figure 3"):
        method, fitted, batch, (truth,) = tasks.prepare(text)
        with torch.no_grad():
            hits = _plain(method.score_batch(batch, fitted).argmax(-1)[0]) == truth
            latent = method.embed(method.padded(batch, fitted), fitted.state)
        anchors, queries = (_plain(part[0]) for part in latent.concatenated())
        labels = latent.support_labels[0].cpu().numpy()
        kind = "anchor" if len(labels) > batch.n_support else "support"
        asked, known = plane(queries, anchors)
        draw_map(axis, panel, **{"query": (asked, truth), kind: (known, labels)})
        own = own_nearest(anchors, labels, queries, truth)
        rows.append({"panel": panel, "shown": f"{kind}s and queries",
                     "accuracy": 100 * float(hits.mean()), "nearest_is_own": own})  # fmt: skip
    return {"rows": rows}


def _aggregation(study: Study, figure: Figure, progress: Progress) -> dict[str, Any]:
    """Algorithm 1 on the way: loss of some tasks, maps of the first after some iterations."""
    rows, losses = [], {}
    at = tuple(iteration - 1 for iteration in MARKS.values())
    for line, part in zip(figure.subplots(2, len(MARKS)), study.parts, strict=True):
        place, count = part.study.partition("/")[2], study.options["tasks"]
        tasks = Tasks(part.dataset, study.options["rates"][0], count)
        method, fitted, batch, truth = tasks.prepare(part.methods["full IAA"])
        few = progress.track([batch.tasks(slice(k, k + 1)) for k in range(count)], f"loss, {place}")
        traces = [method.trace(one, fitted.state, at) for one in few]
        first, labels = traces[0], traces[0].labels[0].cpu().numpy()
        loss = np.stack([_plain(trace.loss)[:, 0] for trace in traces], 1) / len(labels)
        losses[place] = loss.tolist()
        for axis, (mark, iteration) in zip(line, MARKS.items(), strict=True):
            kept = (first.anchors, first.queries)
            anchors, queries = (_plain(found[iteration - 1][0]) for found in kept)
            known, asked = plane(anchors, queries)
            groups = {"anchor": (known, labels), "query": (asked, truth[0])}
            draw_map(axis, f"{place}, {mark}: iteration {iteration}", **groups)
            own = own_nearest(anchors, labels, queries, truth[0])
            rows.append({"dataset": place, "mark": mark, "iteration": iteration, "own nearest": own,
                         "loss per anchor": loss[iteration - 1].mean()})  # fmt: skip
    return {"rows": rows, "losses": losses}


def _rectified(study: Study, figure: Figure, progress: Progress) -> dict[str, Any]:
    """Class centres with every choice of terms, on the task with the median gain of both."""
    rows = []
    sets, count = study.options["datasets"], study.options["tasks"]
    for line, dataset in zip(figure.subplots(len(sets), len(study.rows)), sets, strict=True):
        tasks = Tasks(dataset, study.options["rates"][0], count, way=3)
        found = {}
        for name in progress.track(list(study.rows), f"variants of figure 6 on {dataset}"):
            method, fitted, batch, truth = tasks.prepare(study.rows[name])
            some = [batch.tasks(slice(k, k + 10)) for k in range(0, count, 10)]
            traces = [method.trace(few, fitted.state) for few in some]
            queries, before, after = (
                _plain(torch.cat([getattr(trace, part) for trace in traces]))
                for part in ("final_queries", "centres", "rectified")
            )
            gaps = np.linalg.norm(queries[:, :, None] - after[:, None], axis=-1)
            hits = 100 * (gaps.argmin(2) == truth).mean(1)
            found[name] = (hits, np.linalg.norm(after - before, axis=-1).mean(1), after)
        gain = found["both"][0] - found["without ADSR"][0]
        task = int(np.argsort(gain, kind="stable")[(count - 1) // 2])
        # One map for all, so that the centres can be followed.
        asked, *places = plane(queries[task], *(after[task] for _, _, after in found.values()))
        for axis, name, centres in zip(line, found, places, strict=True):
            hits, moved, _ = found[name]
            groups = {"query": (asked, truth[task]), "centre": (centres, range(3))}
            draw_map(axis, f"{dataset}: {name}", **groups)
            rows.append({"dataset": dataset, "task": task, "rectification": name,
                         "accuracy": float(hits[task]), "moved": float(moved[task]),
                         "over_tasks": float(hits.mean()), "tasks": count})  # fmt: skip
    return {"rows": rows}
