"""A base set in parts: the sums of the whole, in bounded memory, and a fair sample of its rows."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

from fewview import (
    BaseStream,
    Concat,
    FewviewError,
    FewviewWarning,
    Marginal,
    MultiViewData,
    Proto,
    create,
    load_model,
)
from fewview.datasets import make_few_shot
from fewview.methods.estimator.fitted_base import learn_base
from fewview.methods.estimator.row_keys import row_keys
from fewview.methods.estimator.streaming import MOST_CLASSES, Reservoir

SAMPLES = make_few_shot(10, 20, {"shape": 5, "colour": 8, "sound": 3}, seed=1)
BASE, NOVEL = SAMPLES[SAMPLES.codes < 6], SAMPLES[SAMPLES.codes >= 6]
PER_CLASS = 60  # in a bounded sample of views that are not wide
pytestmark = pytest.mark.filterwarnings("ignore:Marginal takes the principal axes")


def samples(n: int, classes: int, missing: float = 0.2) -> MultiViewData:
    """Classes with means and covariances of their own far from 0, in random order, with gaps."""
    rng = np.random.default_rng(0)
    labels, blocks = rng.integers(0, classes, n), {}
    for view, width in {"image": 12, "text": 5}.items():
        means = 3 * rng.normal(size=(classes, width)) + 50
        mixing = rng.normal(size=(classes, width, width))
        noise = np.einsum("nd,nde->ne", rng.normal(size=(n, width)), mixing[labels])
        blocks[view] = (means[labels] + noise).astype(np.float32)
    mask = rng.random((n, 2)) >= missing
    mask[np.arange(n), rng.integers(0, 2, n)] = True
    return MultiViewData(blocks, labels, mask=mask)


def cut(data: MultiViewData, rows: int) -> list[MultiViewData]:
    return [data[start : start + rows] for start in range(0, len(data), rows)]


def summed(start: BaseStream, parts: list[MultiViewData]) -> BaseStream:
    for part in parts:
        start = start.update(part)
    return start


# ---------------------------------------------------------------------------- sums


@pytest.mark.parametrize("rows", [40, 333, 5000])
def test_statistics_of_classes_are_those_of_numpy(rows: int) -> None:
    data, method = samples(2000, 5), create("ugda")
    fitted = summed(BaseStream.start(method, data), cut(data, rows)).finish(method)
    scaled = fitted.scaling.transform(data, np.float64)
    state: Any = fitted.state
    for view, name in enumerate(data.view_names):
        for place, label in enumerate(fitted.classes):  # in the order in which they were seen
            block = scaled.view(name)[(data.labels == label) & data.mask[:, view]]
            spread = block.std(axis=0, ddof=1)
            gap = np.abs(state.means[view][place].double().numpy() - block.mean(axis=0))
            assert (gap / spread).max() < 1e-5
            gap = np.abs(state.covariances[view][place].double().numpy() - np.cov(block.T))
            assert (gap / np.outer(spread, spread)).max() < 1e-5
        block = scaled.view(name)[data.mask[:, view]]
        assert fitted.means is not None
        np.testing.assert_allclose(fitted.means[view], block.mean(axis=0), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("rows", [40, 333, 5000])
def test_marginal_learns_what_it_learns_from_the_whole(rows: int) -> None:
    data, method = samples(2000, 5), create("marginal")
    fitted = summed(BaseStream.start(method, data), cut(data, rows)).finish(method)
    found: Any = fitted.state
    wanted: Any = learn_base(create("marginal", dtype="float64"), data, fitted.task).state
    for name in ("mean", "within", "between"):
        one, two = getattr(found.model, name).double(), getattr(wanted.model, name)
        assert float((one - two).abs().max() / two.abs().max()) < 1e-5


@pytest.mark.parametrize("text", ["proto:padding=base", "marginal", "ugda:n_anchors=5"])
def test_parts_in_any_order_and_merged_answer_as_the_whole(text: str) -> None:
    holes = np.ones(BASE.mask.shape, dtype=bool)
    holes[::5, 0] = False
    base, support, query = BASE.with_mask(holes), NOVEL[::7], NOVEL[1::7]
    method = create(text, dtype="float64")
    start = BaseStream.start(method, base)
    order = np.random.default_rng(0).permutation(len(base))
    one, two, three = (start.update(base[rows]) for rows in np.array_split(order, 3))
    merged = three.merge(one).merge(two)
    assert (merged.n_samples, merged.classes) == (len(base), start.update(base).classes)
    clf = clone(method).fit_base(merged)
    assert clf.base.task.missing.kind == "patterns"
    found = clf.fit(support).predict_proba(query)
    wanted = clone(method).fit_base(base).fit(support).predict_proba(query)
    if method.tags.random:  # classes in another order draw other anchors
        assert np.mean(found.argmax(1) == wanted.argmax(1)) > 0.9
    else:
        np.testing.assert_allclose(found, wanted, atol=1e-6)


def test_the_first_part_may_be_all_that_scaling_is_fitted_on() -> None:
    support, query = NOVEL[::7], NOVEL[np.arange(len(NOVEL)) % 7 > 0]
    for name in ("proto", "ugda", "marginal"):
        clf = create(name)
        for part in (BASE[::2], BASE[1::2]):
            clf.partial_fit_base(part)
        whole = create(name, base=BASE).fit(support).predict(query)
        assert np.mean(clf.fit(support).predict(query) == whole) > 0.9
        assert clf.base.n_samples == len(BASE)


def test_a_stream_is_not_changed_by_what_is_added() -> None:
    data, method = samples(100, 3), create("ugda")
    first = BaseStream.start(method, data).update(data[:50])
    before = first.finish(method).state
    second = first.update(data[50:])
    with pytest.raises(FewviewError, match="no label"):
        first.update(data.with_labels(None))
    assert (first.n_samples, second.n_samples) == (50, 100)
    after: Any = first.finish(method).state
    for one, two in zip(before.means, after.means, strict=True):  # type: ignore[attr-defined]
        assert np.array_equal(one, two)


# ---------------------------------------------------------------------------- what is refused


def test_streams_that_were_started_differently_do_not_merge() -> None:
    one = BaseStream.start(Proto(), BASE).update(BASE[:9])
    for method, sample in ((Proto(), BASE[::2]), (Proto(random_state=1), BASE)):
        with pytest.raises(FewviewError, match="scaled differently or have different seeds"):
            one.merge(BaseStream.start(method, sample).update(BASE[9:]))


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(FewviewError, match="cannot learn from a base set in parts"):
        Concat().partial_fit_base(BASE)
    with pytest.raises(FewviewError, match="no base sample has been seen yet"):
        BaseStream.start(Proto(), BASE).finish(Proto())
    for method in (Marginal(base=BASE), create("ugda").fit_base(BASE)):
        with pytest.raises(FewviewError, match="there is a base set already"):
            method.partial_fit_base(BASE[:50])
    with pytest.warns(FewviewWarning, match="of 60 rows; 256 or more would be better"):
        BaseStream.start(Marginal(), BASE[::2])


# ---------------------------------------------------------------------------- the estimator


def test_classes_come_one_by_one_and_parameters_change() -> None:
    support, query = NOVEL[::7], NOVEL[1::7]
    clf = Marginal()
    for code in range(len(BASE.classes)):
        clf.partial_fit_base(BASE[BASE.codes == code])
    with pytest.raises(FewviewError, match="no label"):
        clf.partial_fit_base(BASE.with_labels(None))
    assert clf.base.n_samples == len(BASE)  # what failed is not counted
    before = clf.fit(support).predict_proba(query)
    # The sums are still here; what the first part fixed may not change.
    changed = clf.set_params(shrinkage=0.5).fit(support).predict_proba(query)
    assert not np.allclose(changed, before)
    with pytest.raises(FewviewError, match="first part of this base set has fixed components"):
        clf.set_params(components=2).fit(support)
    clf.set_params(components=None, shrinkage=Marginal().shrinkage)
    assert np.array_equal(clf.fit(support).predict_proba(query), before)
    more = clone(clf).partial_fit_base(BASE[:10])
    assert (more.base.n_samples, clf.base.n_samples) == (len(BASE) + 10, len(BASE))


@pytest.mark.parametrize("base_rows", [False, True])
def test_a_stream_is_saved_with_its_sample_only_where_asked(
    tmp_path: Path, base_rows: bool
) -> None:
    clf = create("ugda")
    for part in (BASE[::2], BASE[1::2]):
        clf.partial_fit_base(part)
    clf.save(tmp_path / "a.model", base_rows=base_rows, calibrate=False)  # sums become a state
    found = load_model(tmp_path / "a.model")
    assert (found.base.rows is not None) == base_rows
    assert found.base.n_samples == len(BASE)
    wanted = clf.fit(NOVEL[::7]).predict_proba(NOVEL[1::7])
    assert np.array_equal(found.fit(NOVEL[::7]).predict_proba(NOVEL[1::7]), wanted)


def test_the_usual_task_of_a_long_stream() -> None:
    """Ten million samples are not listed one by one to learn their classes and gaps."""
    data, method = samples(600, 12, missing=0.5), create("ugda")
    stream = BaseStream.start(method, data).update(data)
    longer = replace(
        stream,
        classes={label: 10**6 * count for label, count in stream.classes.items()},
        patterns={mask: 10**6 * count for mask, count in stream.patterns.items()},
    )
    task = longer.finish(method).task
    assert (task.way, task.missing.kind) == (5, "patterns")
    assert task.eta == pytest.approx(data.missing_rate, abs=0.01)
    assert task.missing.patterns is not None
    assert len(task.missing.patterns) < 20_000


# ---------------------------------------------------------------------------- the bounded sample


def kept(parts: list[MultiViewData], seed: int = 0) -> Reservoir:
    out = Reservoir.empty(parts[0], seed)
    for part in parts:
        out = out.update(part)
    return out


def wide(n: int, classes: int, width: int) -> MultiViewData:
    """Samples of many columns; nothing but their number and the few filled cells matter."""
    block = np.zeros((n, width), dtype=np.float32)
    block[:, :3] = np.random.default_rng(0).normal(size=(n, 3))
    return MultiViewData({"a": block}, np.arange(n) % classes)


@pytest.mark.parametrize(
    "data", [samples(4000, 3), samples(4000, 250), wide(400, 20, 30_000)],
    ids=["3 classes", "250 classes", "wide"],
)  # fmt: skip
def test_the_sample_is_the_same_in_any_order_and_number_of_parts(data: MultiViewData) -> None:
    whole = kept([data])
    for order in (
        np.argsort(data.codes, kind="stable"),
        np.random.default_rng(1).permutation(len(data)),
    ):
        parts = [data[rows] for rows in np.array_split(order, 7)]
        left, right = kept(parts[:2]), kept(parts[2:])
        for other in (kept(parts), kept(parts[::-1]), left.merge(right), right.merge(left)):
            assert np.array_equal(other.keys, whole.keys)
            assert other.rows == whole.rows
    assert not np.isin(kept([data], seed=1).keys, whole.keys).any()


def test_the_sample_is_bounded_in_classes_samples_and_bytes() -> None:
    many = kept(cut(samples(30_000, 300), 5000))
    assert np.bincount(many.rows.codes).tolist() == [PER_CLASS] * MOST_CLASSES
    few = kept(cut(samples(15_000, 2), 5000))
    assert np.bincount(few.rows.codes).tolist() == [PER_CLASS] * 2
    # 64 MiB of float64 among classes: 20 000 columns are 160 kB a row.
    for classes, most in ((8, 2**26 // (8 * 8 * 20_000)), (60, 2**26 // (60 * 8 * 20_000))):
        found = kept([wide((most + 10) * classes, classes, 20_000)])
        assert np.bincount(found.rows.codes).tolist() == [most] * classes
    assert np.bincount(kept([wide(40, 2, 10**6)]).rows.codes).tolist() == [4, 4]


def test_every_sample_is_kept_as_often() -> None:
    # 600 samples of one class, 60 kept, 300 seeds: 30 times each, give or take 5.2.
    values = np.sort(np.random.default_rng(0).normal(size=(600, 1)), axis=0)
    data = MultiViewData(values, labels=[0] * 600)
    times = np.zeros(600)
    for seed in range(300):
        times += np.isin(values[:, 0], kept([data], seed).rows.views["view0"][:, 0])
    assert times.sum() == 300 * PER_CLASS
    assert abs(times.std() - np.sqrt(300 * 0.1 * 0.9)) < 0.8
    assert abs(times[:300].mean() - 30) < 1.5  # neither large nor small values are preferred


@pytest.mark.parametrize("width", [2000, 7])
def test_sparse_rows_have_keys_of_their_own(width: int) -> None:
    rng = np.random.default_rng(0)
    values = np.where(rng.random((3000, width)) < 3 / width, rng.normal(size=(3000, width)), 0)
    values[np.arange(3000), rng.integers(0, width, 3000)] = rng.normal(size=3000)
    data = MultiViewData(values.astype(np.float32), labels=[0, 1, 2] * 1000)
    keys, whole = row_keys(data), kept([data])
    assert len(np.unique(keys)) == len(data)
    # About as many samples of every part are kept.
    counts = np.array(
        [np.isin(keys[a:b], whole.keys).sum() for a, b in pairwise(range(0, 3001, 375))]
    )
    mean = len(whole.keys) / 8
    assert np.abs(counts - mean).max() < 4 * mean**0.5


# ---------------------------------------------------------------------------- memory

PROBE = """
import resource
import numpy as np
from fewview import BaseStream, MultiViewData, create

rng, widest = np.random.default_rng(0), []

def part():
    rows = rng.random((2000, 128), dtype=np.float32)
    return MultiViewData({"image": rows}, rng.integers(0, 10, 2000))

for name in ("ugda", "marginal"):
    stream = BaseStream.start(create(name), part())
    for number in range(60):
        if number == 10:
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        stream = stream.update(part())
    print(stream.n_samples, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
"""


def test_memory_does_not_grow_with_the_number_of_parts() -> None:
    done = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, check=True)
    for line in done.stdout.splitlines():
        seen, grown = map(int, line.split())
        assert seen == 120_000
        assert grown < 8e6, f"{grown / 1e6:.0f} MB more for 50 parts of 1 MB"
