"""Class statistics: those of numpy, the same in parts as in one pass, and never too large."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fewview import FewviewError, MultiViewData
from fewview.numerics._moments import ClassStatistics, ViewMoments


def labelled(n: int, seed: int, widths: tuple[int, ...] = (3, 8)) -> MultiViewData:
    """Random samples of three classes on an offset; a third of the cells is missing."""
    rng = np.random.default_rng(seed)
    labels = rng.choice(["ant", "bee", "cow"], size=n)
    views = {f"v{d}": 5.0 + rng.normal(size=(n, d)) @ rng.normal(size=(d, d)) for d in widths}
    mask = rng.random((n, len(widths))) > 0.3
    mask[np.arange(n), rng.integers(len(widths), size=n)] = True
    return MultiViewData(views, labels).with_mask(mask)


def assert_same(found: ClassStatistics, wanted: ClassStatistics) -> None:
    assert found.view_dims == wanted.view_dims
    assert set(found.classes) == set(wanted.classes)
    for label, views in wanted.classes.items():
        assert set(found.classes[label]) == set(views)
        for view, moments in views.items():
            other = found.classes[label][view]
            assert other.count == moments.count
            assert torch.allclose(other.mean, moments.mean)
            assert torch.allclose(other.root.T @ other.root, moments.root.T @ moments.root)


def assert_small(statistics: ClassStatistics) -> None:
    for views in statistics.classes.values():
        for moments in views.values():
            rows, width = moments.root.shape
            assert rows <= min(moments.count, width)


# ---------------------------------------------------------------------------- numpy


@pytest.mark.parametrize("n", [2, 5, 9, 200])
def test_moments_are_numpys(n: int) -> None:
    rows = np.random.default_rng(n).normal(size=(n, 9)) + 3.0
    moments = ViewMoments.of(torch.from_numpy(rows))
    assert moments.count == n
    assert np.allclose(moments.mean.numpy(), rows.mean(0))
    assert np.allclose(moments.covariance().numpy(), np.cov(rows, rowvar=False))


def test_statistics_are_numpys_by_class_and_view() -> None:
    data = labelled(120, seed=0)
    statistics = ClassStatistics.of(data)
    assert data.labels is not None
    for label in ("ant", "bee", "cow"):
        for index, (view, block) in enumerate(data.views.items()):
            rows = block[(data.labels == label) & data.mask[:, index]]
            moments = statistics.classes[label][view]
            assert moments.count == len(rows)
            assert np.allclose(moments.mean.numpy(), rows.mean(0))
            assert np.allclose(moments.covariance().numpy(), np.cov(rows, rowvar=False))
    assert_small(statistics)


def test_one_sample_has_no_covariance() -> None:
    moments = ViewMoments.of(torch.tensor([[1.0, 2.0]]))
    assert moments.mean.tolist() == [1.0, 2.0]
    with pytest.raises(FewviewError, match="single sample"):
        moments.covariance()


@pytest.mark.parametrize("scale", [1e-12, 1e12])
def test_scales(scale: float) -> None:
    rows = np.random.default_rng(0).normal(size=(7, 4))
    whole = ViewMoments.of(torch.from_numpy(scale * rows))
    parts = ViewMoments.of(torch.from_numpy(scale * rows[:3])).merge(
        ViewMoments.of(torch.from_numpy(scale * rows[3:]))
    )
    for moments in (whole, parts):
        found = moments.covariance().numpy() / scale**2
        assert np.allclose(found, np.cov(rows, rowvar=False))


def test_far_from_zero_keeps_its_digits() -> None:
    """A variance of one at a mean of 1e8 would be lost in a sum of squares."""
    rows = 1e8 + np.random.default_rng(0).normal(size=(50, 3))
    parts = ViewMoments.of(torch.from_numpy(rows[:1]))
    for row in rows[1:]:
        parts = parts.merge(ViewMoments.of(torch.from_numpy(row[None])))
    assert np.allclose(parts.covariance().numpy(), np.cov(rows, rowvar=False), rtol=1e-6)


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
    data = labelled(n, seed, widths)
    whole = ClassStatistics.of(data)
    ends = [0, *sorted(min(cut, n) for cut in cuts), n]
    chunks = [data[a:b] for a, b in pairwise(ends) if b > a]
    # A stream.
    stream = ClassStatistics(data.view_dims)
    for chunk in chunks:
        assert stream.update(chunk) is stream
        assert_small(stream)
    assert_same(stream, whole)
    # Machines that finish in any order.
    order = np.random.default_rng(seed).permutation(len(chunks))
    merged = ClassStatistics(data.view_dims)
    for index in order:
        merged = merged.merge(ClassStatistics.of(chunks[index]))
    assert_same(merged, whole)
    assert_small(merged)


def test_a_long_stream_of_single_samples_stays_small() -> None:
    rows = np.random.default_rng(0).normal(size=(40, 500))
    data = MultiViewData({"wide": rows}, labels=["x"] * 40)
    stream = ClassStatistics(data.view_dims)
    for index in range(40):
        stream.update(data[index : index + 1])
    root = stream.classes["x"]["wide"].root
    assert root.shape == (39, 500)
    assert np.allclose((root.T @ root).numpy() / 39, np.cov(rows, rowvar=False))


def test_no_square_matrix_where_samples_are_fewer_than_features() -> None:
    data = MultiViewData({"wide": np.ones((6, 4000))}, labels=["x"] * 3 + ["y"] * 3)
    statistics = ClassStatistics.of(data)
    assert statistics.classes["x"]["wide"].root.shape == (3, 4000)
    # And no more than d rows where they are more.
    tall = ViewMoments.of(torch.randn(100, 4, generator=torch.Generator().manual_seed(0)))
    assert tall.root.shape == (4, 4)
    assert tall.merge(tall).root.shape == (4, 4)


def test_merge_leaves_its_parts_alone() -> None:
    a, b = ClassStatistics.of(labelled(20, 0)), ClassStatistics.of(labelled(20, 1))
    before = a.classes["ant"]["v3"].mean.clone()
    both = a.merge(b)
    assert torch.equal(a.classes["ant"]["v3"].mean, before)
    assert both.classes["ant"]["v3"].count == (
        a.classes["ant"]["v3"].count + b.classes["ant"]["v3"].count
    )


def test_a_view_a_class_never_showed_is_absent() -> None:
    data = MultiViewData({"a": [[1.0], [2.0]], "b": [[np.nan], [3.0]]}, labels=["x", "y"])
    statistics = ClassStatistics.of(data)
    assert set(statistics.classes["x"]) == {"a"}
    assert set(statistics.classes["y"]) == {"a", "b"}


def test_other_views_are_refused() -> None:
    statistics = ClassStatistics.of(labelled(10, 0))
    other = labelled(10, 0, (3, 9))
    with pytest.raises(FewviewError, match="new samples have"):
        statistics.update(other)
    with pytest.raises(FewviewError, match="cannot merge"):
        statistics.merge(ClassStatistics.of(other))


def test_samples_without_labels_are_refused() -> None:
    data = labelled(4, 0).with_labels(None)
    with pytest.raises(FewviewError, match="label"):
        ClassStatistics.of(data)
