"""Distances and simple geometry against plain code, scipy and scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cdist
from sklearn.metrics.pairwise import nan_euclidean_distances
from torch import Tensor

from fewview.numerics.distances import (
    centred_unit_rows,
    class_means,
    isometric,
    overall_mean,
    partial_distances,
    relation,
    rounding,
    squared_distances,
    unit_rows,
)


def draw(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def test_unit_rows() -> None:
    found = unit_rows(torch.tensor([[3.0, 4.0], [0.0, 0.0], [-1e-9, 0.0]]))
    assert torch.allclose(found, torch.tensor([[0.6, 0.8], [0.0, 0.0], [-1.0, 0.0]]))
    rows = draw(4, 5, 6)
    assert torch.allclose(unit_rows(rows).square().sum(-1), torch.ones(4, 5).double())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_centred_unit_rows_have_no_direction_made_of_rounding(dtype: torch.dtype) -> None:
    rows = draw(3, 4, 6).to(dtype) + 5
    middle = draw(3, 1, 6, seed=1).to(dtype)
    assert torch.allclose(centred_unit_rows(rows, middle), unit_rows(rows - middle))
    eps = torch.finfo(dtype).eps
    assert rounding(rows) == 64 * eps
    # Sixty roundings from the middle are nothing, seventy are a direction.
    middle = torch.tensor([[[1024.0, 0.0]]], dtype=dtype)
    moves = torch.tensor([[[60.0, 0.0], [70.0, 0.0], [0.0, 60.0], [0.0, 70.0]]], dtype=dtype)
    rows = middle + 1024 * eps * moves
    found = centred_unit_rows(rows, middle)
    assert found.tolist() == [[[0.0, 0.0], [1.0, 0.0], [0.0, 0.0], [0.0, 1.0]]]


def test_class_means_by_hand() -> None:
    features = torch.tensor([[[0.0, 0.0], [2.0, 0.0], [5.0, 1.0]]])
    members = torch.tensor([[[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]])
    assert class_means(features, members).tolist() == [[[1.0, 0.0], [5.0, 1.0]]]
    weighted = members * torch.tensor([[[3.0], [1.0], [0.25]]])
    assert class_means(features, weighted).tolist() == [[[0.5, 0.0], [5.0, 1.0]]]
    assert overall_mean(features, weighted)[0, 0].tolist() == pytest.approx([13 / 17, 1 / 17])
    assert class_means(features, torch.zeros(1, 3, 2)).tolist() == [[[0.0, 0.0]] * 2]  # of nobody
    light = class_means(features.double(), 1e-20 * members.double())
    assert torch.allclose(light, class_means(features.double(), members.double()))


def test_overall_mean_of_tasks() -> None:
    features, members = draw(3, 5, 4), torch.rand(3, 5, 2, dtype=torch.float64)
    for task in range(3):
        wanted = np.average(features[task].numpy(), axis=0, weights=members[task].sum(1).numpy())
        assert np.allclose(overall_mean(features, members)[task, 0].numpy(), wanted)


def test_isometric_keeps_inner_products() -> None:
    support, query = draw(3, 4, 100), draw(3, 9, 100, seed=1)
    s, q = isometric(support, query)
    assert (s.shape, q.shape) == ((3, 4, 13), (3, 9, 13))
    assert torch.allclose(s @ q.mT, support @ query.mT)
    assert torch.allclose(q @ q.mT, query @ query.mT)
    for width in (13, 12):  # no fewer coordinates: as they are
        part = support[..., :width], query[..., :width]
        assert all(a is b for a, b in zip(isometric(*part), part, strict=True))
    assert isometric(support[..., :14], query[..., :14])[0].shape[2] == 13


@pytest.mark.parametrize(("offset", "dtype"), [(0, torch.float64), (1e4, torch.float32)])
def test_squared_distances_are_scipys(offset: float, dtype: torch.dtype) -> None:
    """Far from the origin too, where the expanded form would have no digit left."""
    queries = (draw(3, 7, 5) + offset).to(dtype)
    centres = (draw(3, 4, 5, seed=1) + offset).to(dtype)
    found = squared_distances(queries, centres)
    scores = relation(queries, centres)
    assert found.dtype == dtype
    for task in range(3):
        wanted = cdist(queries[task].double(), centres[task].double(), "sqeuclidean")
        assert np.allclose(found[task].numpy(), wanted, rtol=1e-5, atol=1e-5)
        # `relation` is minus that, but for a number of every query.
        rest = scores[task].double().numpy() + wanted
        assert np.allclose(rest - rest.mean(1, keepdims=True), 0, atol=1e-9 if not offset else 0.5)


def test_identical_rows_and_identical_classes() -> None:
    rows = draw(2, 4, 30) * 1e3 + 1e5
    assert float(squared_distances(rows, rows).min()) == 0.0  # never negative
    centres = rows[:, :1].expand(-1, 3, -1)
    for scores in (relation(rows, centres), squared_distances(rows, centres)):
        assert torch.equal(scores, scores[..., :1].expand_as(scores))  # level, to the last bit


def test_partial_distances_by_hand() -> None:
    left = [torch.tensor([[[0.0, 0.0]]]), torch.tensor([[[1.0]]]), torch.zeros(1, 1, 1)]
    right = [
        torch.tensor([[[3.0, 4.0], [0.0, 0.0], [0.0, 0.0], [3.0, 4.0]]]),
        torch.tensor([[[3.0], [0.0], [3.0], [0.0]]]),
        torch.tensor([[[1.0], [1.0], [1.0], [1.0]]]),
    ]
    mask = torch.tensor([[[True, True, False]]])
    others = torch.tensor(
        [[[True, True, True], [False, False, True], [False, True, True], [True, False, False]]]
    )
    for weighting, both, first in (("view", (25 / 2 + 4) / 2, 25 / 2), ("feature", 29 / 3, 25 / 2)):
        distances, shared = partial_distances(left, right, mask, others, weighting)
        assert shared.tolist() == [[[True, False, True, True]]]
        assert distances[0, 0].tolist() == pytest.approx([both, 0.0, 4.0, first])
    assert partial_distances(left, right, mask, others)[0][0, 0, 0] == (25 / 2 + 4) / 2


@pytest.mark.parametrize("size", [1e-6, 1e6])
def test_partial_distances_of_any_size(size: float) -> None:
    views, mask = [draw(2, 6, 3)], torch.ones(2, 6, 1, dtype=torch.bool)
    found, wanted = (
        partial_distances([x], [x], mask, mask)[0] for x in (size * views[0], views[0])
    )
    assert torch.allclose(found / size**2, wanted)
    assert float(found.min()) == 0


@pytest.mark.parametrize("offset", [0.0, 1e5])
def test_partial_distances_are_scikit_learns(offset: float) -> None:
    generator = np.random.default_rng(0)
    mask = generator.random((12, 3)) < 0.6
    blocks = [generator.normal(size=(12, d)) + offset for d in (2, 5, 3)]
    nan = np.concatenate(
        [np.where(mask[:, [v]], block, np.nan) for v, block in enumerate(blocks)], axis=1
    )
    views = [torch.from_numpy(np.where(mask[:, [v]], x, 0))[None] for v, x in enumerate(blocks)]
    there = torch.from_numpy(mask)[None]
    queries = [view[:, 4:] for view in views]
    found, shared = partial_distances(queries, views, there[:, 4:], there, "feature")
    wanted = nan_euclidean_distances(nan[4:], nan, squared=True) / nan.shape[1]
    assert (shared[0].numpy() == ~np.isnan(wanted)).all()
    assert np.allclose(found[0].numpy(), np.nan_to_num(wanted), atol=1e-9 + 1e-12 * offset**2)
    same = found[0].numpy()[np.arange(8), np.arange(8) + 4]
    assert same.tolist() == [0.0] * 8  # in whatever order products are added up


def test_masked_rows_are_not_looked_at() -> None:
    views = [draw(1, 5, 3), draw(1, 5, 2, seed=1)]
    mask = torch.tensor([[[True, True], [False, True], [True, False], [False, True], [True, True]]])
    before = partial_distances(views, views, mask, mask)[0]
    views[0] = torch.where(mask[..., :1], views[0], 0.0)
    views[1] = torch.where(mask[..., 1:], views[1], 7.0)
    assert torch.allclose(partial_distances(views, views, mask, mask)[0], before)
