"""Example episodes for a page: one real task per data set, its gaps and where its samples lie.

The data are read again, so this works where they are and is left out, with the reason, where they
are not. Nothing here enters a result.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fewview.ground._errors import FewviewError, FewviewWarning
from fewview.results._cells import Cell, Result
from fewview.results._comparing import Panel

if TYPE_CHECKING:
    from fewview.engine._method import Method
    from fewview.episodes._sampler import Episodes
    from fewview.evaluate._grid import Setting

# Strips of missing views per data set; more would be a wall.
MAX_STRIPS = 4


@dataclass(frozen=True)
class Picture:
    """Samples of an episode in the plane.

    Attributes:
        name: what the space is.
        places: [samples, 2] by t-SNE, supports first.
        note: how the features were made.
        method: whose predictions are shown.
        wrong: [samples], queries that it gets wrong there.
    """

    name: str
    places: Any
    note: str
    method: str
    wrong: Any


@dataclass(frozen=True)
class Example:
    """One episode of a panel.

    Attributes:
        eta: missing rate of the pictures.
        episode: its number in the class split.
        split: number of the class split.
        classes: names of its classes.
        views: names of the views.
        labels: [samples], class of every sample, supports first.
        n_support: number of supports.
        masks: (eta, [samples, views]) with samples of a class side by side.
        groups: (class, number of samples) in the order of the masks.
        method: the best method that can be run here.
        pictures: samples in the plane.
    """

    eta: float
    episode: int
    split: int
    classes: tuple[str, ...]
    views: tuple[str, ...]
    labels: Any
    n_support: int
    masks: list[tuple[float, Any]]
    groups: list[tuple[str, int]]
    method: str
    pictures: list[Picture]


def example(
    panel: Panel, data_dir: str | None = None, tell: Callable[[str], None] | None = None
) -> Example | str:
    """Draw and picture one episode of a panel.

    The class split is the first one, the missing rate the middle one, the method the best one
    that can be run here, and the episode the one of median accuracy.

    Args:
        panel: results on one data set.
        data_dir: folder of data files.
        tell: is told what is going on.

    Returns:
        The example, or the reason why there is none.
    """
    setting = _setting(panel.cell, data_dir)
    if isinstance(setting, str):
        return setting
    eta = panel.etas[len(panel.etas) // 2]
    chosen = _runnable(panel, eta)
    if chosen is None:
        return "none of its methods can be run again here"
    name, result, method = chosen
    if tell is not None:
        tell(f"example episode of {panel.title}")
    cell = result.cell
    accuracy = result.metrics.accuracy
    index = cell.start + int(np.argsort(accuracy, kind="stable")[len(accuracy) // 2])
    try:
        with warnings.catch_warnings():
            # Whoever ran the method was told already.
            warnings.simplefilter("ignore", FewviewWarning)
            return _example(panel, setting, cell, eta, index, name, method)
    except FewviewError as error:
        return str(error)


def _setting(cell: Cell, data_dir: str | None) -> Setting | str:
    """Find the data of a cell again, or say why not."""
    from fewview.datasets._catalogue import get_spec, names
    from fewview.evaluate._grid import Grid, settings

    if cell.dataset not in names():
        return "its own file is not known to this page"
    spec_base = None if cell.base == cell.dataset else cell.base
    if spec_base is not None and spec_base not in names():
        return "the file of its base classes is not known to this page"
    kind = cell.missing.partition("[")[0]
    if kind == "uniform" and kind != cell.missing:
        return "its missing rates differ from view to view"
    usual = get_spec(cell.dataset).base_from == spec_base
    try:
        (setting,) = settings(
            Grid(
                datasets=(cell.dataset,),
                methods=("proto",),
                etas=(cell.eta,),
                base=None if usual else spec_base,
                way=cell.way,
                shot=cell.shot,
                queries=cell.queries,
                query_counts=cell.query_counts,
                missing=kind,
                seed=cell.seed,
                data_dir=data_dir,
            )
        )
    except FewviewError as error:
        return str(error)
    same = setting.source.data.fingerprint == cell.data_checksum
    if not same or setting.base.data.fingerprint != cell.base_checksum:
        return "the data found here are not those that the results were computed on"
    return setting


def _runnable(panel: Panel, eta: float) -> tuple[str, Result, Method] | None:
    """The best method that can be made again with the very parameters that were stored."""
    from fewview.evaluate._grid import Grid, make_method

    for name in panel.methods:
        results = panel.results[name].get(eta, [])
        if not results or results[0].cell.tune:
            continue
        cell = min(results, key=lambda result: result.cell.split).cell
        grid = Grid(
            datasets=(cell.dataset,),
            methods=(cell.method,),
            scaling=cell.scaling,
            padding=cell.padding,
            dtype=cell.dtype,
            seed=cell.seed,
        )
        try:
            method = make_method(cell.method, grid)
        except (FewviewError, TypeError, ValueError):
            continue
        if not method.tags.trained and method.key() == cell.parameters:
            result = next(result for result in results if result.cell is cell)
            return name, result, method
    return None


def _example(
    panel: Panel, setting: Setting, cell: Cell, eta: float, index: int, name: str, method: Method
) -> Example:
    from fewview.engine._registry import create
    from fewview.episodes._sampler import EpisodeSampler
    from fewview.evaluate._grid import rows_of

    novel = rows_of(setting.source.data, cell.novel)
    base = rows_of(setting.base.data, cell.base_classes)
    task = replace(setting.task, eta=eta)

    def draw(rate: float) -> Episodes:
        shape = replace(setting.task, eta=rate)
        sampler = EpisodeSampler(novel, shape, seed=cell.seed, name=cell.dataset)
        return sampler.draw(index, index + 1)

    plain = create("proto")
    prepared = plain.prepare_base(base, task)
    tensors = plain.scaled(novel, prepared)
    pictures = []
    rates = [0.0, eta] if eta and not cell.missing.startswith("patterns") else [eta]
    for rate in rates:
        episodes = draw(rate)
        support, query = plain.padded(tensors.gather(episodes), prepared).concatenated()
        features = np.concatenate([support[0].numpy(), query[0].numpy()])
        gaps = "gaps filled with the mean of the episode" if rate else "nothing missing"
        wrong = _wrong(method, novel, base, task, episodes)
        note = f"views side by side, {gaps}"
        pictures.append(Picture(_rate_name(rate), _plane(features), note, name, wrong))
    latent = _latent(panel, novel, base, task, episodes)
    if latent is not None:
        pictures.append(latent)
    order, groups = _by_class(episodes)
    shown = _spread([rate for rate in panel.etas if rate > 0], MAX_STRIPS)
    masks = []
    for rate in shown:
        one = draw(rate)
        mask = np.concatenate([one.support_mask[0], one.query_mask[0]])
        masks.append((rate, mask[order]))
    classes = tuple(str(episodes.class_names[k]) for k in episodes.classes[0])
    return Example(
        eta=eta,
        episode=index,
        split=cell.split,
        classes=classes,
        views=episodes.view_names,
        labels=np.concatenate([episodes.support_labels[0], episodes.query_labels[0]]),
        n_support=episodes.support.shape[1],
        masks=masks,
        groups=[(f"class {classes[group]}", size) for group, size in groups],
        method=name,
        pictures=pictures,
    )


def _wrong(method: Method, novel: Any, base: Any, task: Any, episodes: Episodes) -> Any:
    """Which samples of an episode a method gets wrong, [samples]; supports are never wrong."""

    prepared = method.prepare_base(base, task)
    batch = method.scaled(novel, prepared).gather(episodes).without_query_labels()
    predicted = method.score_batch(batch, prepared).argmax(dim=-1)[0].cpu().numpy()
    right = np.zeros(episodes.support.shape[1], dtype=bool)
    return np.concatenate([right, predicted != episodes.query_labels[0]])


def _latent(panel: Panel, novel: Any, base: Any, task: Any, episodes: Episodes) -> Picture | None:
    """Where UGDA moves the queries, if the panel has it: its latent space without its anchors."""
    from fewview.engine._registry import create

    if not any(name.split(":")[0].split(" ")[0] == "ugda" for name in panel.results):
        return None
    ugda = create("ugda")
    prepared = ugda.prepare_base(base, task)
    batch = ugda.scaled(novel, prepared).gather(episodes).without_query_labels()
    moved = ugda.embed(ugda.padded(batch, prepared), prepared.state)
    anchors, labels = moved.support[0][0].numpy(), moved.support_labels[0].numpy()
    # A class is shown by the centre of its anchors: hundreds of anchors would hide the queries.
    centres = np.stack([anchors[labels == k].mean(axis=0) for k in range(moved.way)])
    support = centres[episodes.support_labels[0]]
    features = np.concatenate([support, moved.query[0][0].numpy()])
    note = "UGDA's latent space, the large markers being the centres of its anchors"
    wrong = _wrong(ugda, novel, base, task, episodes)
    return Picture(_rate_name(task.eta), _plane(features), note, "ugda", wrong)


def _rate_name(rate: float) -> str:
    return f"missing rate {rate:g}" if rate else "complete"


def _plane(features: Any) -> Any:
    """t-SNE of [samples, width] features; the same features always give the same picture."""
    from sklearn.manifold import TSNE

    n = len(features)
    if n < 4:
        return np.stack([np.arange(n), np.zeros(n)], axis=1).astype(float)
    settings = {"perplexity": min(20.0, (n - 1) / 3), "init": "pca", "random_state": 0}
    wide = min(features.shape) > 2
    settings |= {} if wide else {"init": "random"}
    return TSNE(n_components=2, **settings).fit_transform(np.asarray(features, dtype=np.float64))


def _by_class(episodes: Episodes) -> tuple[Any, list[tuple[int, int]]]:
    """Order of samples with those of a class side by side, supports first, and class sizes."""
    labels = np.concatenate([episodes.support_labels[0], episodes.query_labels[0]])
    order = np.argsort(labels, kind="stable")
    sizes = np.bincount(labels, minlength=episodes.way)
    return order, [(k, int(size)) for k, size in enumerate(sizes)]


def _spread(values: list[float], count: int) -> list[float]:
    """At most `count` values, evenly spread, first and last among them."""
    if len(values) <= count:
        return values
    places = np.linspace(0, len(values) - 1, count).round().astype(int)
    return [values[place] for place in places]
