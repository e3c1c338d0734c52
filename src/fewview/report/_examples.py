"""Example episodes of a page: one real task per data set, its gaps and where its samples lie.

The data are read again, so this works where they are and is left out, with the reason, where they
are not. Nothing here enters a result.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fewview.drawing._charts import mask_strips, scatter
from fewview.drawing._looks import look_at
from fewview.errors import FewviewError, FewviewWarning
from fewview.report._contents import Contents
from fewview.report._elements import Section, capital, listed, picture, sign
from fewview.results._cells import Cell, Result
from fewview.results._comparing import Panel

if TYPE_CHECKING:
    from fewview.episodes.episodes import Episodes
    from fewview.evaluate._grid import Setting
    from fewview.methods.estimator.method import Method

# Strips of missing views per data set; more would be a wall.
MAX_STRIPS = 2


@dataclass(frozen=True)
class Picture:
    """Samples of an episode in the plane, supports first."""

    name: str  # what the space is
    places: Any  # [samples, 2] by t-SNE
    note: str  # how the features were made
    method: str  # whose predictions are shown
    wrong: Any  # [samples], queries that it gets wrong there


@dataclass(frozen=True)
class Example:
    """One episode of a panel."""

    eta: float  # missing rate of the pictures
    episode: int  # its number in the class split
    split: int
    classes: tuple[str, ...]
    views: tuple[str, ...]
    labels: Any  # [samples], class of every sample, supports first
    n_support: int
    masks: list[tuple[float, Any]]  # missing rate, [samples, views] with classes side by side
    groups: list[tuple[str, int]]  # class and its number of samples, in the order of the masks
    method: str  # the best one that can be run here
    pictures: list[Picture]


def example(
    panel: Panel, data_dir: str | None = None, tell: Callable[[str], None] | None = None
) -> Example | str:
    """Draw and picture one episode of a panel, or say why not.

    The class split is the first one, the missing rate the middle one, the method the best one
    that can be run here, and the episode the one of median accuracy.
    """
    try:
        setting = setting_of(panel.cell, data_dir)
        eta = panel.etas[len(panel.etas) // 2]
        name, result, method = runnable(panel, eta)
        if tell is not None:
            tell(f"example episode of {panel.title}")
        accuracy = result.metrics.accuracy
        index = result.cell.start + int(np.argsort(accuracy, kind="stable")[len(accuracy) // 2])
        with warnings.catch_warnings():
            # Whoever ran the method was told already.
            warnings.simplefilter("ignore", FewviewWarning)
            return _example(panel, setting, result.cell, eta, index, name, method)
    except FewviewError as error:
        return str(error)


def setting_of(cell: Cell, data_dir: str | None) -> Setting:
    """Find the data of a cell again."""
    from fewview.datasets._catalogue import get_spec, names
    from fewview.evaluate._grid import Grid, settings

    if cell.dataset not in names():
        raise FewviewError("its own file is not known to this page")
    base = None if cell.base == cell.dataset else cell.base
    if base is not None and base not in names():
        raise FewviewError("the file of its base classes is not known to this page")
    kind = cell.missing.partition("[")[0]
    if kind == "uniform" and kind != cell.missing:
        raise FewviewError("its missing rates differ from view to view")
    (setting,) = settings(
        Grid(
            datasets=(cell.dataset,), methods=("proto",), etas=(cell.eta,), way=cell.way,
            shot=cell.shot, queries=cell.queries, query_counts=cell.query_counts, missing=kind,
            base=None if get_spec(cell.dataset).base_from == base else base, seed=cell.seed,
            data_dir=data_dir,
        )
    )  # fmt: skip
    found = (setting.source.data.fingerprint, setting.base.data.fingerprint)
    if found != (cell.data_checksum, cell.base_checksum):
        raise FewviewError("the data found here are not those that the results were computed on")
    return setting


def runnable(panel: Panel, eta: float) -> tuple[str, Result, Method]:
    """The best method that can be made again with the very parameters that were stored."""
    from fewview.evaluate._grid import Grid, make_method
    from fewview.methods.params import describe_params

    for name in panel.methods:
        results = panel.results[name].get(eta, [])
        if not results or results[0].cell.tune:
            continue
        result = min(results, key=lambda result: result.cell.split)
        cell = result.cell
        grid = Grid(
            datasets=(cell.dataset,), methods=(cell.method,), scaling=cell.scaling,
            padding=cell.padding, dtype=cell.dtype, seed=cell.seed,
        )  # fmt: skip
        try:
            method = make_method(cell.method, grid)
        except (FewviewError, TypeError, ValueError):
            continue
        texts = ",".join(f"{k}={v}" for k, v in describe_params(method).items())
        if not method.tags.trained and texts == cell.parameters:
            return name, result, method
    raise FewviewError("none of its methods can be run again here")


def _example(
    panel: Panel, setting: Setting, cell: Cell, eta: float, index: int, name: str, method: Method
) -> Example:
    from fewview.episodes.sampler import EpisodeSampler
    from fewview.evaluate._grid import rows_of
    from fewview.methods.estimator.fitted_base import learn_base
    from fewview.methods.registry import create

    novel = rows_of(setting.source.data, cell.novel)
    base = rows_of(setting.base.data, cell.base_classes)

    def draw(rate: float) -> Episodes:
        task = replace(setting.task, eta=rate)
        sampler = EpisodeSampler(novel, task, seed=cell.seed, name=cell.dataset)
        return sampler.draw(index, index + 1)

    def run(some: Method, episodes: Episodes) -> tuple[Any, Any, Any]:
        """What a method learnt, the task without its answers, and which samples it gets wrong."""
        fitted = learn_base(some, base, replace(setting.task, eta=eta))
        (batch,) = some.batches(some.tensors(novel, fitted), episodes)
        predicted = some.score_batch(batch, fitted).argmax(dim=-1)[0].cpu().numpy()
        right = np.zeros(episodes.support.shape[1], dtype=bool)  # supports are never wrong
        wrong = np.concatenate([right, predicted != episodes.query_labels[0]])
        return fitted, some.padded(batch, fitted), wrong

    def rate_name(rate: float) -> str:
        return f"missing rate {rate:g}" if rate else "complete"

    pictures = []
    for rate in [0.0, eta] if eta and not cell.missing.startswith("patterns") else [eta]:
        episodes = draw(rate)
        _, batch, _ = run(create("proto"), episodes)
        _, _, wrong = run(method, episodes)
        support, query = batch.concatenated()
        features = np.concatenate([support[0].numpy(), query[0].numpy()])
        gaps = "gaps filled with the mean of the episode" if rate else "nothing missing"
        note = f"views side by side, {gaps}"
        pictures.append(Picture(rate_name(rate), _tsne(features.astype(float)), note, name, wrong))
    if any(label.split(":")[0].split(" ")[0] == "ugda" for label in panel.results):
        ugda = create("ugda")
        fitted, batch, wrong = run(ugda, episodes)
        features = _latent(ugda.embed(batch, fitted.state), episodes)
        note = "UGDA's latent space, the large markers being the centres of its anchors"
        pictures.append(Picture(rate_name(eta), _tsne(features.astype(float)), note, "ugda", wrong))
    labels = np.concatenate([episodes.support_labels[0], episodes.query_labels[0]])
    order = np.argsort(labels, kind="stable")  # samples of a class side by side, supports first
    rates = [rate for rate in panel.etas if rate > 0]
    shown = np.unique(np.linspace(0, len(rates) - 1, MAX_STRIPS).round().astype(int))
    masks = []
    for rate in (rates[place] for place in shown if rates):
        one = draw(rate)
        mask = np.concatenate([one.support_mask[0], one.query_mask[0]])
        masks.append((rate, mask[order]))
    classes = tuple(str(episodes.class_names[k]) for k in episodes.classes[0])
    sizes = np.bincount(labels, minlength=episodes.way)
    groups = [(f"class {c}", int(size)) for c, size in zip(classes, sizes, strict=True)]
    n_support = episodes.support.shape[1]
    return Example(eta, index, cell.split, classes, episodes.view_names, labels, n_support, masks,
                   groups, name, pictures)  # fmt: skip


def _latent(moved: Any, episodes: Episodes) -> Any:
    """Where UGDA moves the samples, [samples, width].

    A class is shown by the centre of its anchors: hundreds of anchors would hide the queries.
    """
    anchors, labels = moved.support[0][0].numpy(), moved.support_labels[0].numpy()
    centres = np.stack([anchors[labels == k].mean(axis=0) for k in range(moved.way)])
    return np.concatenate([centres[episodes.support_labels[0]], moved.query[0][0].numpy()])


# ---------------------------------------------------------------------- sections


def _reasons(contents: Contents, examples: Sequence[Example | str]) -> list[str]:
    if not examples:
        return ["Left out: this page was made without reading the data again."]
    return [
        f"{panel.title}: left out, {reason.rstrip('.')}."
        for panel, reason in zip(contents.panels, examples, strict=True)
        if isinstance(reason, str)
    ]


def _shown(
    contents: Contents, examples: Sequence[Example | str]
) -> Iterator[tuple[Panel, Example]]:
    for panel, one in zip(contents.panels, examples, strict=False):
        if isinstance(one, Example):
            yield panel, one


def missing_views(contents: Contents, examples: Sequence[Example | str]) -> Section:
    """Which views are missing in the example episodes."""
    parts, complete = [], []
    for panel, one in _shown(contents, examples):
        if not one.masks:
            complete.append(panel.title)
            continue
        told = "; ".join(
            f"at {eta:.3g} a sample has {mask.sum(axis=1).mean():.1f} of {len(one.views)} views on "
            f"average and {int((mask.sum(axis=1) == 1).sum())} of {len(mask)} have only one"
            for eta, mask in one.masks
        )
        strips = [(f"missing rate {eta:.3g}", mask) for eta, mask in one.masks]
        figure = picture(
            mask_strips(strips, one.views, one.groups),
            f"Episode {one.episode} of class split {one.split}, missing rule {panel.cell.missing}: "
            "samples across, each class with its supports first, views down. Filled: there; "
            "empty: missing.",
            title=f"Missing views in an episode of {panel.title}",
            description=f"{capital(told)}.",
        )
        parts.append(Section(panel.title, [f"{capital(told)}."], [figure]))
    words = _reasons(contents, examples)
    if complete:
        words.append(f"Nothing is missing in the results on {listed(complete)}.")
    return Section("Which views are missing", words, parts=parts, id="missing")


def example_episodes(contents: Contents, examples: Sequence[Example | str]) -> Section:
    """Where the samples of the example episodes lie."""
    parts = []
    for panel, one in _shown(contents, examples):
        labelled = np.arange(len(one.labels)) < one.n_support
        n_query = len(one.labels) - one.n_support
        figures = []
        for shown in one.pictures:
            right = n_query - int(shown.wrong.sum())
            told = f"{shown.note}; {shown.method} gets {right} of {n_query} queries right."
            figures.append(
                picture(
                    scatter(shown.places, one.labels, labelled, shown.wrong),
                    f"{capital(shown.name)}: {told}",
                    title=f"An episode of {panel.title}, {shown.name}, {shown.note}",
                    description=(
                        f"t-SNE of {one.n_support} supports and {n_query} queries of classes "
                        f"{listed(one.classes)}; {told}"
                    ),
                )
            )
        words = [
            f"Episode {one.episode} of class split {one.split}: at missing rate {one.eta:.3g} the "
            f"one of median accuracy of {one.method}, the best method that can be run again here. "
            "Large outlined markers are the supports; rings mark queries that are got wrong."
        ]
        signs = [(sign(look_at(k), joined=False), f"class {c}") for k, c in enumerate(one.classes)]
        parts.append(Section(panel.title, words, figures, signs=signs))
    told = (
        "Each picture places the samples of one episode by t-SNE: near samples are alike, far "
        "distances mean nothing, and pictures cannot be laid over each other."
    )
    words = [told] * bool(parts) + _reasons(contents, examples)
    return Section("Example episodes", words, parts=parts, id="examples")


def _tsne(points: Any) -> Any:
    """Map points [n, L] to the plane by t-SNE, the same way every time."""
    from sklearn.manifold import TSNE

    n = len(points)
    if n < 4:
        return np.stack([np.arange(n), np.zeros(n)], axis=1).astype(np.float64)
    centred = points - points.mean(0)
    if centred.shape[1] > 50:  # as is usual before t-SNE
        left, sizes, _ = np.linalg.svd(centred, full_matrices=False)
        centred = left[:, :50] * sizes[:50]
    start = "pca" if centred.shape[1] > 2 else "random"
    model = TSNE(perplexity=min(20.0, (n - 1) / 3), random_state=0, init=start)
    return model.fit_transform(centred / (centred.std() or 1.0)).astype(np.float64)
