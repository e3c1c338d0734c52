"""Base sets in parts and from disk: the same statistics as in memory, in bounded memory."""

import subprocess
import sys
from dataclasses import fields, is_dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.lib.format import open_memmap

from fewview import FewviewError, FewviewWarning, MultiViewData, create
from fewview.engine._reservoir import MOST_BASE_CLASSES, MOST_BYTES, PER_CLASS, Reservoir
from fewview.engine._streaming import BaseStream
from fewview.methods.marginal._marginal import MarginalState
from fewview.methods.ugda._base_statistics import BaseStatistics
from fewview.samples._parts import NpyFolder
from fewview.samples._scaling import SCALINGS, fit_scaling

WIDTHS = {"image": 12, "text": 5}


def samples(n: int, classes: int, dtype: type = np.float32, missing: float = 0.2) -> MultiViewData:
    """Classes with their own means and covariances on an offset, in random order, with gaps."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, classes, n)
    blocks = {}
    for view, width in WIDTHS.items():
        means = 3 * rng.normal(size=(classes, width)) + 50
        mixing = rng.normal(size=(classes, width, width))
        noise = np.einsum("nd,nde->ne", rng.normal(size=(n, width)), mixing[labels])
        blocks[view] = (means[labels] + noise).astype(dtype)
    mask = rng.random((n, 2)) >= missing
    mask[np.arange(n), rng.integers(0, 2, n)] = True
    return MultiViewData(blocks, labels).with_mask(mask)


def written(data: MultiViewData, folder: Path) -> NpyFolder:
    assert data.labels is not None
    folder.mkdir()
    for view, block in data.views.items():
        np.save(folder / f"{view}.npy", block)
    np.save(folder / "labels.npy", data.labels)
    return NpyFolder.open(folder)


# ---------------------------------------------------------------------------- files


@pytest.mark.parametrize("rows", [1, 7, 100, 1000])
def test_parts_are_the_samples_in_order(tmp_path: Path, rows: int) -> None:
    data = samples(100, 4)
    parts = list(written(data, tmp_path / "base").parts(rows))
    assert [len(part) for part in parts[:-1]] == [rows] * (len(parts) - 1)
    assert MultiViewData.concat(parts) == data


def test_a_stretch_of_the_files(tmp_path: Path) -> None:
    data = samples(50, 3)
    folder = written(data, tmp_path / "base")
    assert MultiViewData.concat(folder.parts(4, start=10, stop=31)) == data[10:31]
    assert len(folder.sample(20, pieces=5)) == 20
    assert folder.sample(1000) == data


def test_texts_as_labels(tmp_path: Path) -> None:
    data = samples(20, 3).with_labels([f"class {i % 3}" for i in range(20)])
    (part,) = written(data, tmp_path / "base").parts()
    assert part == data


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        ("labels", np.zeros(9, dtype=int), "labels.npy 9"),
        ("labels", np.zeros(10), "whole number or text"),
        ("labels", np.zeros((10, 1), dtype=int), "whole number or text"),
        ("image", np.zeros((10, 2), dtype=np.int8), "float32 or float64"),
        ("image", np.zeros(10), "float32 or float64"),
        ("image", np.asfortranarray(np.zeros((10, 2))), "ascontiguousarray"),
    ],
)
def test_wrong_files_are_named(tmp_path: Path, name: str, array: np.ndarray, message: str) -> None:
    np.save(tmp_path / "image.npy", np.zeros((10, 2)))
    np.save(tmp_path / "labels.npy", np.zeros(10, dtype=int))
    np.save(tmp_path / f"{name}.npy", array)
    with pytest.raises(FewviewError, match=message):
        NpyFolder.open(tmp_path)


def test_broken_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(FewviewError, match="no views"):
        NpyFolder.open(tmp_path)
    np.save(tmp_path / "image.npy", np.zeros((10, 2)))
    with pytest.raises(FewviewError, match=r"labels\.npy does not exist"):
        NpyFolder.open(tmp_path)
    (tmp_path / "labels.npy").write_bytes(b"not an array")
    with pytest.raises(FewviewError, match=r"not a \.npy file"):
        NpyFolder.open(tmp_path)
    np.save(tmp_path / "labels.npy", np.zeros(10, dtype=int))
    whole = (tmp_path / "image.npy").read_bytes()
    (tmp_path / "image.npy").write_bytes(whole[:-8])
    with pytest.raises(FewviewError, match="cut short"):
        NpyFolder.open(tmp_path)


def test_bad_numbers_are_named(tmp_path: Path) -> None:
    block = np.zeros((10, 2), dtype=np.float32)
    block[7, 1] = np.inf
    np.save(tmp_path / "image.npy", block)
    np.save(tmp_path / "labels.npy", np.zeros(10, dtype=int))
    parts = NpyFolder.open(tmp_path).parts(5)
    next(parts)
    with pytest.raises(FewviewError, match=r"samples 5 to 9.*infinite"):
        next(parts)


def test_numbers_whose_sum_is_too_large_are_fine(tmp_path: Path) -> None:
    np.save(tmp_path / "image.npy", np.full((3, 2), 3e38, dtype=np.float32))
    np.save(tmp_path / "labels.npy", np.zeros(3, dtype=int))
    (part,) = NpyFolder.open(tmp_path).parts()
    assert part.mask.all()


# ---------------------------------------------------------------------------- quick scaling


@pytest.mark.parametrize("rule", SCALINGS)
@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_quick_scaling_is_the_careful_one(rule: str, offset: float) -> None:
    rng = np.random.default_rng(1)
    block = (offset + rng.normal(size=(300, 40)) * rng.uniform(0.1, 10, 40)).astype(np.float32)
    block[5] = np.nan
    data = MultiViewData([block, np.ones((300, 1))])
    scaling = fit_scaling(data, rule)
    quick = scaling.transform(data, None).view("view0")
    careful = scaling.transform(data, np.float64).view("view0")
    assert quick.dtype == np.float32
    assert np.array_equal(np.isnan(quick), np.isnan(careful))
    has = data.mask[:, 0]
    largest = np.abs(careful[has]).max(axis=1, keepdims=True)
    assert (np.abs(quick - careful)[has] / largest).max() < 2e-6


def test_quick_scaling_of_extreme_numbers() -> None:
    block = np.array([[3e38, 1e38], [1e-30, 2e-30], [0.0, 0.0]], dtype=np.float32)
    data = MultiViewData(block)
    scaling = fit_scaling(data, "unit")
    quick, careful = (scaling.transform(data, d).view("view0") for d in (None, np.float32))
    assert np.allclose(quick, careful, rtol=1e-6)


# ---------------------------------------------------------------------------- statistics


@pytest.mark.parametrize("rows", [40, 333, 5000])
def test_class_statistics_from_disk_are_those_in_memory(tmp_path: Path, rows: int) -> None:
    data = samples(2000, 5)
    method = create("ugda")
    folder = written(data, tmp_path / "base")
    fitted = BaseStream.gather(method, folder.parts(rows), sample=data).finish(method)
    found = fitted.prepared.state
    wanted = create("ugda", dtype="float64").prepare_base(data, fitted.task).state
    assert isinstance(found, BaseStatistics)
    assert isinstance(wanted, BaseStatistics)
    # Classes come in the order in which they were seen.
    order = np.argsort(np.array(fitted.classes))
    for view in range(2):
        spread = wanted.covariances[view].diagonal(dim1=1, dim2=2).sqrt()
        gap = (found.means[view].double()[order] - wanted.means[view]).abs() / spread
        assert float(gap.max()) < 1e-5
        gap = (found.covariances[view].double()[order] - wanted.covariances[view]).abs()
        assert float((gap / (spread[:, :, None] * spread[:, None])).max()) < 1e-5


@pytest.mark.parametrize("rows", [40, 333, 5000])
def test_marginal_from_disk_is_that_in_memory(tmp_path: Path, rows: int) -> None:
    data = samples(2000, 5)
    method = create("marginal")
    folder = written(data, tmp_path / "base")
    fitted = BaseStream.gather(method, folder.parts(rows), sample=data).finish(method)
    found = fitted.prepared.state
    exact = create("marginal", dtype="float64")
    wanted = exact.prepare_base(data, fitted.task).state
    assert isinstance(found, MarginalState)
    assert isinstance(wanted, MarginalState)
    for name in ("mean", "within", "between"):
        one, two = getattr(found.model, name).double(), getattr(wanted.model, name)
        assert float((one - two).abs().max() / two.abs().max()) < 1e-5


def test_a_base_set_from_disk_classifies(tmp_path: Path) -> None:
    data = samples(1500, 8)
    base, novel = data[data.codes < 5], data[data.codes >= 5]
    folder = written(base, tmp_path / "base")
    for name in ("ugda", "marginal", "proto"):
        method, whole = create(name), create(name)
        method.use_base(BaseStream.gather(method, folder.parts(100), sample=base))
        whole.fit_base(base)
        for clf in (method, whole):
            clf.fit(novel[:30])
        one, two = (clf.predict_proba(novel[30:90]) for clf in (method, whole))
        assert (one.argmax(1) == two.argmax(1)).mean() > 0.98


def test_progress_and_earlier_streams(tmp_path: Path) -> None:
    data = samples(100, 3)
    done: list[int] = []
    method = create("ugda")
    BaseStream.gather(method, written(data, tmp_path / "base").parts(30), progress=done.append)
    assert done == [30, 30, 30, 10]
    first = BaseStream.start(method, data).update(data[:50])
    second = first.update(data[50:])
    assert (first.n_samples, second.n_samples) == (50, 100)
    again = BaseStream.start(method, data).update(data[:50])
    for label, views in first.statistics.classes.items():  # type: ignore[union-attr]
        for view, moments in views.items():
            other = again.statistics.classes[label][view]  # type: ignore[union-attr]
            assert torch.equal(moments.scatter(), other.scatter())


@pytest.mark.parametrize("name", ["ugda", "marginal", "proto"])
def test_workers_find_the_same(name: str) -> None:
    data = samples(900, 4, np.float64)
    method = create(name, dtype="float64")
    parts = [data[start : start + 100] for start in range(0, 900, 100)]
    done: list[int] = []
    one = BaseStream.gather(method, parts, data)
    three = BaseStream.gather(method, parts, data, done.append, workers=3)
    assert done == [100] * 9
    assert three.classes == one.classes
    assert three.patterns == one.patterns
    states = [stream.finish(method).prepared.state for stream in (one, three)]
    order = np.argsort([list(one.classes).index(label) for label in three.classes])
    for mine, other in zip(*(flat_tensors(state) for state in states), strict=True):
        same = mine.shape == other.shape
        assert same
        if name == "ugda" and len(mine) == 4:
            other = other[order]
        assert torch.allclose(mine, other, atol=1e-9)
    with pytest.raises(FewviewError, match="0 workers"):
        BaseStream.gather(method, parts, workers=0)


def flat_tensors(value: object) -> list[torch.Tensor]:
    """All float tensors of a state, in order."""
    if isinstance(value, torch.Tensor):
        return [value] if value.is_floating_point() else []
    if isinstance(value, tuple):
        return [item for part in value for item in flat_tensors(part)]
    if is_dataclass(value):
        return [t for item in fields(value) for t in flat_tensors(getattr(value, item.name))]
    return []


def test_nothing_to_gather() -> None:
    with pytest.raises(FewviewError, match="no parts"):
        BaseStream.gather(create("ugda"), [])


def test_the_usual_task_of_a_long_stream() -> None:
    """Ten million samples are not listed one by one to learn their classes and gaps."""
    data = samples(600, 12, missing=0.5)
    stream = BaseStream.gather(create("ugda"), [data])
    longer = replace(
        stream,
        classes={label: 10**6 * count for label, count in stream.classes.items()},
        patterns={mask: 10**6 * count for mask, count in stream.patterns.items()},
    )
    long = longer.skeleton()
    assert len(long) < 20_000
    assert set(long.classes.tolist()) == set(range(12))
    assert long.missing_rate == pytest.approx(data.missing_rate, abs=0.01)


# ---------------------------------------------------------------------------- samples kept


def wide(n: int, classes: int, width: int = 20_004) -> MultiViewData:
    """Samples of many columns; nothing but their number and the few filled cells matter."""
    block = np.zeros((n, width), dtype=np.float32)
    block[:, :3] = np.random.default_rng(0).normal(size=(n, 3))
    return MultiViewData({"a": block}, np.arange(n) % classes)


def kept(parts: list[MultiViewData]) -> Reservoir:
    out = Reservoir.empty(parts[0])
    for part in parts:
        out = out.update(part)
    return out


def test_classes_of_wide_views_share_the_room() -> None:
    row = 8 * 20_004
    for classes, most in ((2, PER_CLASS), (8, MOST_BYTES // (8 * row)), (60, 6)):
        sample = kept([wide((most + 10) * classes, classes)])
        assert np.bincount(sample.rows.codes).tolist() == [most] * classes
        assert row * len(sample.rows) <= MOST_BYTES
    # Up to this width all classes that there may be have all the samples that they may have.
    narrow = MOST_BYTES // (8 * MOST_BASE_CLASSES * PER_CLASS)
    for width, most in ((narrow, PER_CLASS), (narrow + 30, PER_CLASS - 2)):
        assert Reservoir.empty(wide(1, 1, width)).per_class == most
        assert kept([wide(130, 2, width)]).per_class == PER_CLASS


def test_samples_of_wide_views_do_not_depend_on_the_order_of_classes() -> None:
    data = wide(400, 20, 30_000)  # 13 of each in the end, and all 20 of the first before
    whole = kept([data])
    assert np.bincount(whole.rows.codes).tolist() == [13] * 20
    sorted_rows = np.argsort(data.codes, kind="stable")
    cuts = np.array_split(sorted_rows, 9)
    one_by_one = kept([data[cut] for cut in cuts])
    turned = kept([data[cut] for cut in cuts[::-1]])
    few, many = kept([data[cut] for cut in cuts[:1]]), kept([data[cut] for cut in cuts[1:]])
    for other in (one_by_one, turned, few.merge(many), many.merge(few)):
        np.testing.assert_array_equal(other.keys, whole.keys)
        assert other.rows == whole.rows


def test_a_sample_that_is_small_for_axes_is_told_as_what_it_is() -> None:
    data = samples(100, 4)
    with pytest.warns(
        FewviewWarning, match="base set in parts .* of 100 rows; 256 or more"
    ) as told:
        BaseStream.start(create("marginal"), data)
    (said,) = [str(entry.message) for entry in told]
    assert "Start with a larger sample or first part; 'fewview fit', which" in said
    assert f"samples {PER_CLASS} rows of a class at most and fewer of wide views" in said
    assert "from the first" not in said


# ---------------------------------------------------------------------------- memory

PROBE = """
import resource, sys
from fewview import create
from fewview.engine._streaming import BaseStream
from fewview.samples._parts import NpyFolder

folder = NpyFolder.open(sys.argv[1])
for name in ("ugda", "marginal"):
    method = create(name)
    BaseStream.gather(method, folder.parts(2000, stop=4000))  # everything is loaded once
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    stream = BaseStream.gather(method, folder.parts(2000), sample=folder.sample(2000))
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(stream.n_samples, (after - before) * 1024)
"""


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    n, width = 100_000, 128
    block = open_memmap(tmp_path / "image.npy", "w+", np.float32, (n, width))
    rng = np.random.default_rng(0)
    for start in range(0, n, 10_000):
        block[start : start + 10_000] = rng.random((10_000, width), dtype=np.float32)
    block.flush()
    np.save(tmp_path / "labels.npy", rng.integers(0, 10, n))
    run = subprocess.run(
        [sys.executable, "-c", PROBE, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert block.nbytes > 50e6
    for line in run.stdout.splitlines():
        seen, grown = map(int, line.split())
        assert seen == n
        assert grown < 15e6, f"{grown / 1e6:.0f} MB more for {block.nbytes / 1e6:.0f} MB"
