"""Class statistics: those of numpy, the same in parts as in one pass, and never too large."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fewview.numerics.moments import ClassStatistics, ViewMoments

LABELS = ["ant", "bee", "cow"]


class Samples:
    """Random samples of three classes on an offset; a third of the cells is missing."""

    def __init__(self, n: int, seed: int, widths: tuple[int, ...] = (3, 8)) -> None:
        rng = np.random.default_rng(seed)
        self.codes = rng.choice(3, size=n)
        self.views = {
            f"v{d}": 5.0 + rng.normal(size=(n, d)) @ rng.normal(size=(d, d)) for d in widths
        }
        self.mask = rng.random((n, len(widths))) > 0.3
        self.mask[np.arange(n), rng.integers(len(widths), size=n)] = True
        self.dims = {view: block.shape[1] for view, block in self.views.items()}

    def add(self, statistics: ClassStatistics, rows: Any = slice(None)) -> ClassStatistics:
        views = {view: block[rows] for view, block in self.views.items()}
        present, labels = np.unique(self.codes[rows], return_inverse=True)
        return statistics.update(views, self.mask[rows], labels, [LABELS[c] for c in present])

    def statistics(self, rows: Any = slice(None)) -> ClassStatistics:
        return self.add(ClassStatistics(self.dims), rows)


def of(rows: Any) -> ViewMoments:
    return ViewMoments.of(torch.from_numpy(rows))


def assert_same(found: ClassStatistics, wanted: ClassStatistics) -> None:
    assert set(found.classes) == set(wanted.classes)
    for label, views in wanted.classes.items():
        assert set(found.classes[label]) == set(views)
        for view, moments in views.items():
            other = found.classes[label][view]
            assert other.count == moments.count
            assert torch.allclose(other.mean, moments.mean)
            assert torch.allclose(other.scatter(), moments.scatter())
            # Memory is that of the samples or of the features, whichever are fewer.
            assert other.root.shape[0] <= min(other.count, other.root.shape[1])
            assert torch.allclose(other.root.T @ other.root, moments.scatter())


# ---------------------------------------------------------------------------- numpy


@pytest.mark.parametrize("n", [2, 5, 9, 200])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_moments_are_numpys(n: int, dtype: Any) -> None:
    rows = (np.random.default_rng(n).normal(size=(n, 9)) + 3.0).astype(dtype)
    moments, tolerance = of(rows), 1e-12 if dtype == np.float64 else 1e-5
    assert moments.count == n
    assert np.allclose(moments.mean.numpy(), rows.mean(0, dtype=np.float64), atol=1e-12)
    wanted = np.cov(rows.astype(np.float64), rowvar=False)
    assert np.allclose(moments.covariance().numpy(), wanted, atol=tolerance)


def test_blocks_of_rows_add_up() -> None:
    rows = np.random.default_rng(0).normal(size=(20_000, 3)) + 100.0
    assert np.allclose(of(rows).covariance().numpy(), np.cov(rows, rowvar=False))


def test_statistics_are_numpys_by_class_and_view() -> None:
    data = Samples(120, seed=0)
    statistics = data.statistics()
    for code, label in enumerate(LABELS):
        for index, (view, block) in enumerate(data.views.items()):
            rows = block[(data.codes == code) & data.mask[:, index]]
            moments = statistics.classes[label][view]
            assert moments.count == len(rows)
            assert np.allclose(moments.mean.numpy(), rows.mean(0))
            assert np.allclose(moments.covariance().numpy(), np.cov(rows, rowvar=False))


def test_one_sample_has_no_covariance() -> None:
    moments = of(np.array([[1.0, 2.0]]))
    assert moments.mean.tolist() == [1.0, 2.0]
    with pytest.raises(ValueError, match="single sample"):
        moments.covariance()


@pytest.mark.parametrize("scale", [1e-12, 1e12])
def test_scales(scale: float) -> None:
    rows = scale * np.random.default_rng(0).normal(size=(7, 4))
    for moments in (of(rows), of(rows[:3]).merge(of(rows[3:])), of(rows[:5]).with_rows(
        torch.from_numpy(rows[5:]))):  # fmt: skip
        assert np.allclose(moments.covariance() / scale**2, np.cov(rows / scale, rowvar=False))


def test_far_from_zero_keeps_its_digits() -> None:
    """A variance of one at a mean of 1e8 would be lost in a sum of squares."""
    rows = 1e8 + np.random.default_rng(0).normal(size=(50, 3))
    parts = of(rows[:1])
    for row in rows[1:]:
        parts = parts.merge(of(row[None]))
    for moments in (parts, of(rows)):
        assert np.allclose(moments.covariance(), np.cov(rows, rowvar=False), rtol=1e-6)


def test_float32_far_from_zero_is_corrected_for_its_rounded_mean() -> None:
    rows = (1e4 + np.random.default_rng(0).normal(size=(4000, 2))).astype(np.float32)
    wanted = np.cov(rows.astype(np.float64), rowvar=False)
    assert np.allclose(of(rows).covariance(), wanted, atol=1e-6)


# ---------------------------------------------------------------------------- parts


@settings(max_examples=40, deadline=None)
@given(
    n=st.integers(1, 40),
    seed=st.integers(0, 2**32 - 1),
    cuts=st.lists(st.integers(0, 40), max_size=6),
    widths=st.sampled_from([(3, 8), (1,), (30, 2)]),
)
def test_merged_parts_are_the_whole(
    n: int, seed: int, cuts: list[int], widths: tuple[int, ...]
) -> None:
    data = Samples(n, seed, widths)
    whole = data.statistics()
    ends = [0, *sorted(min(cut, n) for cut in cuts), n]
    chunks = [slice(a, b) for a, b in pairwise(ends) if b > a]
    stream = ClassStatistics(data.dims)
    for chunk in chunks:
        assert data.add(stream, chunk) is stream
    assert_same(stream, whole)
    # Machines that finish in any order.
    merged = ClassStatistics(data.dims)
    for index in np.random.default_rng(seed).permutation(len(chunks)):
        merged = merged.merge(data.statistics(chunks[index]))
    assert_same(merged, whole)


def test_a_long_stream_of_single_samples_stays_small() -> None:
    rows = np.random.default_rng(0).normal(size=(40, 500))
    moments = of(rows[:1])
    for row in rows[1:]:
        moments = moments.with_rows(torch.from_numpy(row[None]))
    assert moments.root.shape == (39, 500)
    assert np.allclose((moments.root.T @ moments.root).numpy() / 39, np.cov(rows, rowvar=False))


def test_no_square_matrix_where_samples_are_fewer_than_features() -> None:
    assert of(np.ones((3, 4000))).spread.shape == (3, 4000)
    tall = of(np.random.default_rng(0).normal(size=(100, 4)))
    assert tall.root.shape == tall.merge(tall).root.shape == (4, 4)


def test_merge_leaves_its_parts_as_they_were() -> None:
    a, b = Samples(20, 0).statistics(), Samples(20, 1).statistics()
    before, count = a.classes["ant"]["v3"].mean.clone(), a.classes["ant"]["v3"].count
    both = a.merge(b)
    assert torch.equal(a.classes["ant"]["v3"].mean, before)
    assert both.classes["ant"]["v3"].count == count + b.classes["ant"]["v3"].count
    with pytest.raises(ValueError, match="cannot merge"):
        a.merge(Samples(10, 0, (3, 9)).statistics())


def test_a_view_that_a_class_never_showed_is_absent() -> None:
    views = {"a": np.array([[1.0], [2.0]]), "b": np.array([[np.nan], [3.0]])}
    mask = np.array([[True, False], [True, True]])
    found = ClassStatistics({"a": 1, "b": 1}).update(views, mask, np.array([0, 1]), ["x", "y"])
    assert [set(views) for views in found.classes.values()] == [{"a"}, {"a", "b"}]
