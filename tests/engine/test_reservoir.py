"""The bounded sample of a base set in parts: fair, the same in any order, and used."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone

from fewview import create
from fewview.engine._checks import synthetic_data
from fewview.engine._reservoir import MOST_BASE_CLASSES, MOST_BYTES, PER_CLASS, Reservoir, row_keys
from fewview.engine._streaming import BaseStream
from fewview.methods.marginal import Marginal
from fewview.samples import FewviewError, MultiViewData


def some(n: int, classes: int, seed: int = 0) -> MultiViewData:
    rng = np.random.default_rng(seed)
    labels = [f"class {code}" for code in rng.integers(0, classes, n)]
    mask = rng.random((n, 2)) < 0.8
    mask[~mask.any(1)] = True
    return MultiViewData(
        {"a": rng.normal(size=(n, 3)), "b": rng.normal(size=(n, 12))}, labels, mask=mask
    )


def gathered(parts: list[MultiViewData], seed: int = 0) -> Reservoir:
    out = Reservoir.empty(parts[0], seed)
    for part in parts:
        out = out.update(part)
    return out


@pytest.mark.parametrize("classes", [3, 250])
def test_the_same_in_any_order_and_number_of_parts(classes: int) -> None:
    data = some(4000, classes)
    whole = gathered([data])
    order = np.random.default_rng(1).permutation(len(data))
    cuts = np.array_split(order, 7)
    apart = gathered([data[cut] for cut in cuts])
    left, right = (gathered([data[cut] for cut in half]) for half in (cuts[:2], cuts[2:]))
    for other in (apart, left.merge(right), right.merge(left)):
        assert (other.keys == whole.keys).all()
        assert other.rows.labels.tolist() == whole.rows.labels.tolist()  # type: ignore[union-attr]
        for view in "ab":
            np.testing.assert_array_equal(other.rows.views[view], whole.rows.views[view])
    assert (gathered([data], seed=1).keys[:5] != whole.keys[:5]).any()


def test_bounded_in_classes_samples_and_bytes() -> None:
    many = gathered([some(5000, 300, seed) for seed in range(4)])
    counts = np.bincount(many.rows.codes)
    assert len(counts) == MOST_BASE_CLASSES
    assert counts.max() <= PER_CLASS
    few = gathered([some(5000, 2, seed) for seed in range(3)])
    assert np.bincount(few.rows.codes).tolist() == [PER_CLASS, PER_CLASS]
    wide = MultiViewData(np.zeros((2, 50_000)), labels=[0, 1])
    assert 4 <= Reservoir.empty(wide).per_class < PER_CLASS
    assert Reservoir.empty(wide).per_class * 50_000 * 8 * MOST_BASE_CLASSES <= MOST_BYTES * 3


def test_every_sample_is_as_likely() -> None:
    # 600 samples of one class, 60 kept, 300 seeds: 30 times each, give or take 5.2.
    rng = np.random.default_rng(0)
    data = MultiViewData(np.sort(rng.normal(size=(600, 1)), axis=0), labels=[0] * 600)
    values = data.views["view0"][:, 0]
    times = np.zeros(600)
    for seed in range(300):
        kept = gathered([data], seed).rows.views["view0"][:, 0]
        times += np.isin(values, kept)
    assert times.sum() == 300 * PER_CLASS
    assert abs(times.std() - np.sqrt(300 * 0.1 * 0.9)) < 0.8
    # Neither large nor small values are preferred.
    assert abs(times[:300].mean() - 30) < 1.5


def streamed(method: Marginal, base: MultiViewData, n_parts: int) -> Marginal:
    # The first part fixes scaling and axes; the others come in some order.
    for part in np.array_split(np.arange(len(base)), n_parts):
        method.partial_fit_base(base[part])
    return method


def test_what_came_in_parts_is_learnt_from_when_supports_come() -> None:
    base, novel = synthetic_data()
    method = Marginal()
    stream = BaseStream.start(method, base).update(base[1::2])
    method.base = stream.finish(method, prepare=False)
    method.partial_fit_base(base[::2])
    assert method.base.pending
    method.fit(novel[::7])
    assert not method.base.pending


def test_a_stream_can_reject_and_its_sample_is_saved_if_asked(tmp_path: Path) -> None:
    base, novel = synthetic_data()
    method = create("ugda")
    for half in (base[::2], base[1::2]):
        method.partial_fit_base(half)
    method.fit(novel[::7])
    far = MultiViewData({name: 50 + block for name, block in novel[1::7].views.items()})
    assert method.rejected(far).all()
    for base_rows in (False, True):
        method.save(tmp_path / "a.model", base_rows=base_rows)
        again = type(method).load(tmp_path / "a.model")
        assert (again.base.sample is not None) == base_rows
        assert again.rejected(far).all()
        np.testing.assert_array_equal(
            again.predict_proba(novel[1::7]), method.predict_proba(novel[1::7])
        )


def test_saving_a_base_set_in_parts_chooses_first(tmp_path: Path) -> None:
    base, _ = synthetic_data()
    method = streamed(Marginal(), base, 2)
    method.save(tmp_path / "a.model")
    again = Marginal.load(tmp_path / "a.model")
    assert not again.base.pending
    wanted = method.base.fitted_for(method).prepared.state.settings
    assert again.base.prepared.state.settings == wanted


def test_a_part_without_labels_is_refused() -> None:
    base, _ = synthetic_data()
    method = streamed(Marginal(), base, 1)
    with pytest.raises(FewviewError, match="no label"):
        method.partial_fit_base(MultiViewData(base.views))


@pytest.mark.parametrize("width", [2000, 7])
def test_sparse_rows_are_told_apart(width: int) -> None:
    rng = np.random.default_rng(0)
    values = np.where(rng.random((3000, width)) < 3 / width, rng.normal(size=(3000, width)), 0)
    values[np.arange(3000), rng.integers(0, width, 3000)] = rng.normal(size=3000)
    data = MultiViewData(values.astype(np.float32), labels=[0, 1, 2] * 1000)
    whole = gathered([data])
    assert len(np.unique(row_keys(data))) == len(data)
    assert len(whole.keys) == 3 * whole.per_class
    parts = [data[part] for part in np.array_split(np.arange(3000), 8)]
    for order in (parts, parts[::-1]):
        assert (gathered(order).keys == whole.keys).all()
    # About as many samples of every part are kept.
    kept = [np.isin(row_keys(part), whole.keys).sum() for part in parts]
    mean = len(whole.keys) / 8
    assert max(abs(count - mean) for count in kept) < 4 * mean**0.5


def test_classes_may_come_one_by_one() -> None:
    base, novel = synthetic_data()
    method = Marginal()
    for code in range(len(base.classes)):
        method.partial_fit_base(base[base.codes == code])
    assert method.base.n_samples == len(base)
    with pytest.raises(FewviewError, match="no label"):
        method.partial_fit_base(MultiViewData(base.views))
    assert method.base.n_samples == len(base)  # what failed is not counted
    method.fit(novel[::7])
    before = method.predict_proba(novel[1::7])
    # Parameters may change: the sums are still here. What the first part fixed may not.
    method.set_params(shrinkage=0.5).fit(novel[::7])
    assert not np.allclose(method.predict_proba(novel[1::7]), before)
    with pytest.raises(FewviewError, match="first part of this base set has fixed"):
        method.set_params(components=2).fit(novel[::7])
    clone_of = clone(method.set_params(components=None))
    clone_of.partial_fit_base(base[:10])
    assert clone_of.base.n_samples == len(base) + 10


def test_a_whole_base_set_is_not_replaced_by_a_part() -> None:
    base, _ = synthetic_data()
    for method in (Marginal(base=base), create("ugda").fit_base(base)):
        with pytest.raises(FewviewError, match="there is a base set already"):
            method.partial_fit_base(base[:50])


def test_streams_with_other_seeds_do_not_merge() -> None:
    base, _ = synthetic_data()
    one, two = (
        BaseStream.start(create("proto", random_state=s), base).update(base) for s in (0, 1)
    )
    with pytest.raises(FewviewError, match="different seeds"):
        one.merge(two)
