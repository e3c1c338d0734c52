"""One task seen from inside the methods: latent points of supports or anchors and of queries.

The maps of figures 3, 4 and 6 are made from these. One task takes seconds, so it is computed anew
each time and not stored.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fewview.engine._method import Method
from fewview.engine._state import Prepared
from fewview.episodes._sampler import Episodes, EpisodeSampler
from fewview.episodes._task import TaskSpec
from fewview.evaluate._grid import Grid, make_method, plan, rows_of, settings
from fewview.methods.marginal._model import filled_in
from fewview.numerics._batch import EpisodeBatch
from fewview.paper._studies import Wish
from fewview.samples._data import MultiViewData

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Stage:
    """A data set with one class split and one task, or several, drawn from it."""

    grid: Grid
    novel: MultiViewData
    base: MultiViewData
    task: TaskSpec
    episodes: Episodes

    def prepare(self, text: str) -> tuple[Method, Prepared, EpisodeBatch]:
        """Make a method as typed, let it learn from the base classes, and gather its tasks."""
        method = make_method(text, self.grid)
        prepared = method.prepare_for(self.base, self.novel, self.task)
        batch = method.scaled(self.novel, prepared).gather(self.episodes)
        return method, prepared, batch


def set_stage(
    dataset: str, eta: float, wish: Wish, *, way: int | None = None, count: int = 1
) -> Stage:
    """Draw the first tasks of class split 0, the same ones that the tables use."""
    usable = wish.device != "cpu" and torch.cuda.is_available()
    grid = Grid(
        datasets=(dataset,), methods=("proto",), etas=(eta,), way=way, splits=1, scaling="paper",
        padding="paper", device="cuda" if usable else "cpu", data_dir=wish.data_dir,
    )  # fmt: skip
    (cell,), (setting,) = plan(grid), settings(grid)
    novel = rows_of(setting.source.data, cell.novel)
    base = rows_of(setting.base.data, cell.base_classes)
    task = replace(setting.task, eta=eta)
    episodes = EpisodeSampler(novel, task, name=cell.dataset).draw(0, count)
    return Stage(grid, novel, base, task, episodes)


@dataclass(frozen=True)
class Cloud:
    """Latent points of one task: supports or anchors [M, L] and queries [N, L], with classes."""

    anchors: Floats
    anchor_labels: NDArray[np.int64]
    queries: Floats
    query_labels: NDArray[np.int64]
    accuracy: float = np.nan  # of the method on this task, in percent
    kind: str = "anchor"  # or "support"

    def own_nearest(self) -> float:
        """Share of queries, in percent, whose nearest support or anchor is of their class."""
        gaps = np.linalg.norm(self.queries[:, None] - self.anchors[None], axis=-1)
        return 100 * float((self.anchor_labels[gaps.argmin(1)] == self.query_labels).mean())

    def mapped(self, word: str = "query") -> tuple[Floats, NDArray[np.int64], list[str]]:
        """All points in the plane by t-SNE, with their classes and kinds."""
        places = tsne(np.concatenate([self.anchors, self.queries]))
        labels = np.concatenate([self.anchor_labels, self.query_labels])
        return places, labels, [self.kind] * len(self.anchors) + [word] * len(self.queries)


def latent_cloud(stage: Stage, text: str) -> Cloud:
    """Embed the first task of a stage with a method.

    A method without a latent space shows the padded views side by side; Marginal, which has none,
    shows its components with missing ones at their conditional mean, whitened within classes.
    """
    method, prepared, batch = stage.prepare(text)
    one = batch.tasks(slice(0, 1))
    blind = one.without_query_labels()
    with torch.no_grad():
        scores = method.score_batch(blind, prepared)
        if text.partition(":")[0] == "marginal" and type(method).embed is Method.embed:
            anchors, queries = _completed(blind, prepared)
            labels = one.support_labels
        else:
            latent = method.embed(method.padded(blind, prepared), prepared.state)
            anchors, queries = latent.concatenated()
            labels = latent.support_labels
    truth = cast(Tensor, one.query_labels)[0].cpu().numpy()
    hit = (scores.argmax(-1)[0].cpu().numpy() == truth).mean()
    kind = "anchor" if anchors.shape[1] > one.n_support else "support"
    return Cloud(
        plain(anchors[0]), labels[0].cpu().numpy(), plain(queries[0]), truth, 100 * float(hit),
        kind,
    )  # fmt: skip


def _completed(batch: EpisodeBatch, prepared: Prepared) -> tuple[Tensor, Tensor]:
    state: Any = prepared.state
    root = torch.linalg.cholesky(state.model.within.double())
    out = []
    for views, mask in ((batch.support, batch.support_mask), (batch.query, batch.query_mask)):
        rows = filled_in(state.model, state.projection.apply(views, mask), mask).double()
        out.append(torch.linalg.solve_triangular(root, rows.transpose(1, 2), upper=False))
    return out[0].transpose(1, 2), out[1].transpose(1, 2)


def plain(tensor: Tensor) -> Floats:
    """A tensor as a numpy array of doubles."""
    return tensor.double().cpu().numpy()


def tsne(points: Floats, perplexity: float = 30.0) -> Floats:
    """Map points [n, L] to the plane [n, 2] by t-SNE, the same way every time."""
    from sklearn.manifold import TSNE

    n = len(points)
    if n < 4:
        return np.stack([np.arange(n), np.zeros(n)], axis=1).astype(np.float64)
    centred = points - points.mean(0)
    if centred.shape[1] > 50:
        # Distances among n points live in n dimensions at most; 50 of them are usual for t-SNE.
        left, sizes, _ = np.linalg.svd(centred, full_matrices=False)
        centred = left[:, :50] * sizes[:50]
    spread = centred.std()
    model = TSNE(
        perplexity=min(perplexity, (n - 1) / 3), random_state=0, learning_rate="auto",
        init="pca" if centred.shape[1] > 2 else "random",
    )  # fmt: skip
    out: Floats = model.fit_transform(centred / (spread or 1.0)).astype(np.float64)
    return out
