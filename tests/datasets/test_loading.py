from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.io import savemat

from fewview.datasets import get_spec, load, load_split_column, names
from fewview.samples import FewviewError, MultiViewData

WITH_CHECKSUM = [name for name in names() if get_spec(name).checksum and get_spec(name).files]


def arrays_like(name: str, **changes: Any) -> dict[str, Any]:
    """Arrays of the right shapes for a data set, zeros but for the labels."""
    spec = get_spec(name)
    samples = spec.n_samples or 10 * spec.n_classes
    arrays: dict[str, Any] = {
        f"view_{view}": np.zeros((samples, width or 3), dtype=np.uint8)
        for view, width in spec.views
    }
    arrays["y"] = np.arange(samples) % spec.n_classes
    arrays.update(changes)
    return {key: array for key, array in arrays.items() if array is not None}


@pytest.mark.parametrize("name", WITH_CHECKSUM)
def test_real_data_are_what_the_catalogue_says(name: str, real_data: Path) -> None:
    if not (real_data / f"{name}.npz").is_file():
        pytest.skip(f"{name}.npz is not in {real_data}")
    spec = get_spec(name)
    data = load(name, real_data)
    assert data.name == name
    assert data.n_samples == spec.n_samples
    assert data.view_dims == spec.view_dims
    assert data.view_names == spec.view_names
    assert data.missing_rate == 0
    assert data.labels is not None
    assert data.labels.dtype.kind == "i"
    assert data.classes.tolist() == list(range(spec.n_classes))
    assert all(block.dtype == np.float32 for block in data.views.values())
    # Independently of the reader: the values of one view, straight from the file.
    with np.load(real_data / f"{name}.npz") as archive:
        view = spec.view_names[-1]
        assert np.array_equal(data.view(view), archive[f"view_{view}"].astype(np.float32))
        assert np.array_equal(data.labels, archive["y"])
    # An episode needs shot + queries samples of every class.
    assert np.bincount(data.codes).min() >= spec.shot + spec.queries


def test_loading_twice_gives_the_same_object(real_data: Path) -> None:
    assert load("scene15", real_data) is load("scene15", str(real_data))


def test_environment_names_the_folder(real_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEWVIEW_DATA", str(real_data))
    assert load("orl").n_samples == 400


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    """tieredimagenet has neither widths nor checksum, so that any small file will do."""
    path = tmp_path / "tieredimagenet.npz"
    np.savez(path, **arrays_like("tieredimagenet"))
    first = load("tieredimagenet", tmp_path)
    assert load("tieredimagenet", tmp_path) is first
    status = path.stat()
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 10**9))
    assert load("tieredimagenet", tmp_path) is not first


def test_absent_file_says_what_to_get_and_where_to_put_it(tmp_path: Path) -> None:
    with pytest.raises(FewviewError) as caught:
        load("handwritten", tmp_path)
    message = str(caught.value)
    for part in ("'handwritten'", str(tmp_path), "handwritten.npz", "fewview data fetch",
                 "multiple+features.zip", "--data-dir", "$FEWVIEW_DATA"):  # fmt: skip
        assert part in message


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"view_fou": np.zeros((2000, 75))}, "view 'fou' is 75 wide; it should be 76"),
        ({"view_fou": None}, "the views are fac, kar, pix, zer, mor"),
        ({"view_extra": np.zeros((2000, 1))}, "mor, extra"),
        ({"y": None}, "no labels"),
        ({"y": np.arange(2000) % 9}, "9 classes .* there should be 10, numbered from 0"),
        ({"y": np.arange(2000) % 10 + 1}, "10 classes .* numbered from 0"),
        ({"y": np.arange(1999) % 10}, "1999 .*2000"),
        ({}, "shapes are right but the values are not .*checksum"),
    ],
)
def test_files_that_differ_from_the_specification(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    np.savez_compressed(tmp_path / "handwritten.npz", **arrays_like("handwritten", **changes))
    with pytest.raises(FewviewError, match=message) as caught:
        load("handwritten", tmp_path)
    assert "handwritten.npz" in str(caught.value)
    assert "fewview data fetch handwritten" in str(caught.value)


def test_wrong_number_of_samples(tmp_path: Path) -> None:
    arrays = {key: array[:-10] for key, array in arrays_like("scene15").items()}
    np.savez_compressed(tmp_path / "scene15.npz", **arrays)
    with pytest.raises(FewviewError, match="4475 samples; there should be 4485"):
        load("scene15", tmp_path)


@pytest.mark.parametrize("content", [b"", b"not a zip", b"PK\x03\x04 cut short"])
def test_unreadable_files(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "orl.npz").write_bytes(content)
    with pytest.raises(FewviewError, match=r"orl\.npz") as caught:
        load("orl", tmp_path)
    assert "To get data set 'orl' again" in str(caught.value)


def test_truncated_file(tmp_path: Path) -> None:
    path = tmp_path / "orl.npz"
    np.savez(path, **arrays_like("orl"))
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(FewviewError, match=r"orl\.npz"):
        load("orl", tmp_path)


def test_pickles_are_refused(tmp_path: Path) -> None:
    labels = np.array([{"a": 1}] * 400, dtype=object)
    np.savez(tmp_path / "orl.npz", **arrays_like("orl", y=labels))
    with pytest.raises(FewviewError, match=r"orl\.npz"):
        load("orl", tmp_path)


def test_views_in_another_order_and_wider_numbers_are_put_right(
    tmp_path: Path, real_data: Path
) -> None:
    with np.load(real_data / "cub_googlenet_doc2vec.npz") as archive:
        arrays = {key: archive[key].astype(np.float64) for key in reversed(archive.files)}
    arrays["y"] = arrays["y"].astype(np.int64)
    np.savez(tmp_path / "cub_googlenet_doc2vec.npz", **arrays)
    data = load("cub_googlenet_doc2vec", tmp_path)
    assert data == load("cub_googlenet_doc2vec", real_data)
    assert data.view_names == ("googlenet", "doc2vec")


def test_labels_are_numbers_even_where_classes_have_names(tmp_path: Path) -> None:
    """Names sort otherwise than their numbers: class 0 is called z."""
    spec = get_spec("tieredimagenet")
    names_of_classes = np.array([f"{'z' if k == 0 else 'a'}{k:03d}" for k in range(608)])
    np.savez(
        tmp_path / "tieredimagenet.npz",
        **{f"view_{view}": np.arange(1216.0).reshape(608, 2) for view in spec.view_names},
        y=np.arange(608),
        classes=names_of_classes,
        split=np.array(["base"] * 608),
    )
    data = load("tieredimagenet", tmp_path)
    assert data.labels is not None
    assert data.labels.tolist() == list(range(608))


def test_split_column(real_data: Path) -> None:
    parts = load_split_column("tieredimagenet_tiny", real_data)
    assert parts is not None
    assert {part: int((parts == part).sum()) for part in ("base", "val", "novel")} == {
        "base": 61 * 60, "val": 17 * 60, "novel": 45 * 60,
    }  # fmt: skip
    assert load_split_column("orl", real_data) is None


def test_absent_split_column(tmp_path: Path) -> None:
    np.savez(tmp_path / "tieredimagenet.npz", **arrays_like("tieredimagenet"))
    with pytest.raises(FewviewError, match=r"no array 'split'.*To get data set 'tieredimagenet'"):
        load_split_column("tieredimagenet", tmp_path)


# ------------------------------------------------------------------ animal as a MATLAB file


@pytest.fixture
def small_animal(monkeypatch: pytest.MonkeyPatch) -> MultiViewData:
    """Make `animal` small for a test: 6 samples of 2 classes, widths 4 and 4."""
    from dataclasses import replace

    import fewview.datasets._catalogue as catalogue

    spec = replace(get_spec("animal"), views=(("decaf", 4), ("vgg19", 4)), n_samples=6, n_classes=2)
    monkeypatch.setitem(catalogue._BY_NAME, "animal", spec)
    rng = np.random.default_rng(0)
    blocks = {view: rng.normal(size=(6, 4)).astype(np.float32) for view in spec.view_names}
    return MultiViewData(blocks, [0, 0, 1, 1, 0, 1], name="animal")


def cells(*blocks: Any) -> Any:
    out = np.empty((1, len(blocks)), dtype=object)
    for index, block in enumerate(blocks):
        out[0, index] = block
    return out


@pytest.mark.parametrize("sideways", [False, True])
@pytest.mark.parametrize("others", [0, 5])
def test_matlab_file(
    tmp_path: Path, small_animal: MultiViewData, sideways: bool, others: int
) -> None:
    views = [np.float64(small_animal.view(view)) for view in small_animal.view_names]
    more = [np.zeros((6, 3 + extra % 2 * 6)) for extra in range(others)]
    blocks = [block.T if sideways else block for block in more + views]
    labels = np.array([[1, 1, 2, 2, 1, 2]]).T
    savemat(tmp_path / "animal.mat", {"X": cells(*blocks), "gt": labels})
    assert load("animal", tmp_path) == small_animal


def test_matlab_file_without_labels(tmp_path: Path, small_animal: MultiViewData) -> None:
    savemat(tmp_path / "animal.mat", {"X": cells(np.zeros((6, 4)))})
    with pytest.raises(FewviewError, match=r"animal\.mat: no labels; expected .* gt"):
        load("animal", tmp_path)


def test_matlab_file_without_the_views(tmp_path: Path, small_animal: MultiViewData) -> None:
    savemat(tmp_path / "animal.mat", {"X": cells(np.zeros((6, 4))), "gt": np.arange(6) % 2})
    with pytest.raises(FewviewError, match=r"no view 'vgg19' of width 4 in X .*are 4 wide"):
        load("animal", tmp_path)
    savemat(tmp_path / "animal.mat", {"X": np.zeros((6, 4)), "gt": np.arange(6) % 2})
    with pytest.raises(FewviewError, match="no view 'vgg19' of width 4"):
        load("animal", tmp_path)


def test_damaged_matlab_files(tmp_path: Path, small_animal: MultiViewData) -> None:
    path = tmp_path / "animal.mat"
    path.write_bytes(b"nothing of the kind" * 20)
    with pytest.raises(FewviewError, match=r"animal\.mat: is not a readable MATLAB file.*again"):
        load("animal", tmp_path)
    # The header of v7.3 files, and nothing behind it.
    path.write_bytes(b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM" + bytes(512))
    with pytest.raises(FewviewError, match=r"damaged MATLAB v7\.3 file"):
        load("animal", tmp_path)


def test_matlab_file_of_version_7_3(tmp_path: Path, small_animal: MultiViewData) -> None:
    import hdf5storage

    blocks = [np.float64(small_animal.view(view)) for view in small_animal.view_names]
    content = {"X": cells(*blocks), "gt": np.array([[1, 1, 2, 2, 1, 2]]).T}
    hdf5storage.savemat(str(tmp_path / "animal.mat"), content, format="7.3")
    assert load("animal", tmp_path) == small_animal
