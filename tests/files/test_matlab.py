"""MATLAB files: those of scipy and hdf5storage are read, and what we write they read back."""

from __future__ import annotations

import struct
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import hdf5storage
import numpy as np
import pytest
import scipy.io
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.io.matlab import MatlabFunction

from fewview.errors import FewviewError, FewviewWarning
from fewview.files import kept_reader
from fewview.samples._data import MultiViewData

read, write = MultiViewData.read, MultiViewData.write

Save = Callable[[Path, dict[str, Any]], None]


@pytest.fixture(autouse=True, scope="module")
def _one_process_for_all_foreign_files() -> Iterator[None]:
    with kept_reader():
        yield


def save_v4(file: Path, content: dict[str, Any]) -> None:
    scipy.io.savemat(file, content, format="4")


def save_v5(file: Path, content: dict[str, Any]) -> None:
    scipy.io.savemat(file, content)


def save_v7(file: Path, content: dict[str, Any]) -> None:
    scipy.io.savemat(file, content, do_compression=True)


def save_v73(file: Path, content: dict[str, Any]) -> None:
    file.unlink(missing_ok=True)
    hdf5storage.savemat(str(file), content, format="7.3", oned_as="row")


SAVERS: list[Save] = [save_v5, save_v7, save_v73]
every_version = pytest.mark.parametrize("save", SAVERS, ids=lambda save: save.__name__)


def cells(*items: Any) -> Any:
    out = np.empty((1, len(items)), dtype=object)
    for index, item in enumerate(items):
        out[0, index] = item
    return out


def column(*values: Any) -> Any:
    return np.array(values).reshape(-1, 1)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "some.mat"


def labels_of(data: MultiViewData) -> list[Any]:
    assert data.labels is not None
    return list(data.labels.tolist())


WIDE = np.arange(12.0).reshape(3, 4)
NARROW = np.arange(6, dtype=np.float32).reshape(3, 2)


# ------------------------------------------------------------------ views and labels


@every_version
@pytest.mark.parametrize("name", ["Y", "y", "gt", "truelabel"])
@pytest.mark.parametrize("sideways", [False, True])
def test_cells_and_labels(save: Save, name: str, sideways: bool, file: Path) -> None:
    views = [WIDE.T, NARROW.T] if sideways else [WIDE, NARROW]
    save(file, {"X": cells(*views), name: column(1.0, 2.0, 1.0)})
    data = read(file)
    assert data.view_names == ("view0", "view1")
    np.testing.assert_array_equal(data.view("view0"), WIDE)
    np.testing.assert_array_equal(data.view("view1"), NARROW)
    assert data.view("view0").dtype == np.float64
    assert data.view("view1").dtype == np.float32
    assert labels_of(data) == [1, 2, 1]
    assert data.name == "some"


@every_version
def test_separate_variables(save: Save, file: Path) -> None:
    content = {"image": WIDE, "text": NARROW.T, "gt": column(3, 1, 3), "k": 10.0, "note": "hello"}
    save(file, content)
    data = read(file)
    assert set(data.view_names) == {"image", "text"}
    np.testing.assert_array_equal(data.view("image"), WIDE)
    np.testing.assert_array_equal(data.view("text"), NARROW)
    assert labels_of(data) == [3, 1, 3]


def test_version_4(file: Path) -> None:
    save_v4(file, {"image": WIDE, "gt": column(3.0, 1.0, 3.0)})
    np.testing.assert_array_equal(read(file).view("image"), WIDE)


@every_version
def test_whole_numbers_and_logical_values(save: Save, file: Path) -> None:
    save(file, {"X": cells(np.uint8(WIDE), NARROW > 2, np.int16(WIDE)), "y": np.int32([[5, 6, 5]])})
    data = read(file)
    np.testing.assert_array_equal(data.view("view0"), WIDE)
    np.testing.assert_array_equal(data.view("view1"), NARROW > 2)
    assert labels_of(data) == [5, 6, 5]


@every_version
def test_text_labels(save: Save, file: Path) -> None:
    names = np.empty((3, 1), dtype=object)
    names[:, 0] = ["cat", "cow and calf", "été"]
    save(file, {"X": cells(WIDE), "Y": names})
    assert labels_of(read(file)) == ["cat", "cow and calf", "été"]


@every_version
def test_labels_per_view_must_agree(save: Save, file: Path) -> None:
    same = cells(column(1.0, 2.0, 2.0), column(1.0, 2.0, 2.0))
    save(file, {"X": cells(WIDE, NARROW), "truelabel": same})
    assert labels_of(read(file)) == [1, 2, 2]
    other = cells(column(1.0, 2.0, 2.0), column(1.0, 2.0, 1.0))
    save(file, {"X": cells(WIDE, NARROW), "truelabel": other})
    with pytest.raises(FewviewError, match="truelabel holds other labels for cell 2 than for cell"):
        read(file)


@every_version
def test_a_row_of_nan_is_a_missing_view(save: Save, file: Path) -> None:
    gap = WIDE.copy()
    gap[1] = np.nan
    save(file, {"X": cells(gap, NARROW), "gt": column(1.0, np.nan, 2.5)})
    data = read(file)
    assert data.mask.tolist() == [[True, True], [False, True], [True, True]]
    assert labels_of(data) == [1, None, 2.5]


@pytest.mark.parametrize("save", [save_v5, save_v7])
def test_sparse_matrices_of_version_5(save: Save, file: Path) -> None:
    save(file, {"X": cells(scipy.sparse.csc_matrix(WIDE)), "gt": column(1, 2, 3)})
    np.testing.assert_array_equal(read(file).view("view0"), WIDE)


def test_sparse_matrices_of_version_7_3(file: Path) -> None:
    """No library writes these; the layout is that of MATLAB's own files."""
    sparse = scipy.sparse.csc_matrix(WIDE)
    with h5py.File(file, "w", userblock_size=512) as content:
        group = content.create_group("image")
        group.attrs["MATLAB_class"] = np.bytes_("double")
        group.attrs["MATLAB_sparse"] = np.uint64(3)
        group["data"], group["ir"], group["jc"] = (
            sparse.data,
            sparse.indices.astype(np.uint64),
            sparse.indptr.astype(np.uint64),
        )
        content["gt"] = np.array([[1.0, 2.0, 3.0]])
        content["gt"].attrs["MATLAB_class"] = np.bytes_("double")
    np.testing.assert_array_equal(read(file).view("image"), WIDE)
    with h5py.File(file, "r+") as content:
        content["image/ir"][0] = 3
    with pytest.raises(FewviewError, match="/image is not a valid sparse matrix"):
        read(file)


@every_version
def test_the_variable_with_the_labels_by_name(save: Save, file: Path) -> None:
    save(file, {"X": cells(WIDE), "gt": column(1, 2, 3), "sex": column(7, 8, 9)})
    assert labels_of(read(file, labels="sex")) == [7, 8, 9]
    with pytest.raises(FewviewError, match=r"no variable 'age' for the labels; it has .*sex"):
        read(file, labels="age")
    with pytest.raises(FewviewError, match="variable X is 3 x 4; labels must be"):
        read(file, labels="X")


def test_the_names_of_views(file: Path) -> None:
    save_v5(file, {"X": cells(WIDE, NARROW), "view_names": cells("image", "text")})
    assert read(file).view_names == ("image", "text")
    save_v5(file, {"X": cells(WIDE, NARROW), "view_names": cells("image", "image")})
    with pytest.raises(FewviewError, match="1 different names for the 2 cells of X"):
        read(file)


# ------------------------------------------------------------------ which way up


SQUARE = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]])


def test_a_square_view_lies_as_the_others_do(file: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        save_v5(file, {"X": cells(SQUARE, WIDE), "gt": column(1, 2, 3)})
        np.testing.assert_array_equal(read(file).view("view0"), SQUARE)
        save_v5(file, {"X": cells(SQUARE, WIDE.T), "gt": column(1, 2, 3)})
        np.testing.assert_array_equal(read(file).view("view0"), SQUARE.T)


def test_rows_of_a_square_view_are_samples_where_nothing_decides(file: Path) -> None:
    for views in ((SQUARE,), (SQUARE, WIDE, NARROW.T)):
        save_v5(file, {"X": cells(*views), "gt": column(1, 2, 3)})
        with pytest.warns(FewviewWarning, match="view0: as many rows as columns"):
            data = read(file)
        np.testing.assert_array_equal(data.view("view0"), SQUARE)
        np.testing.assert_array_equal(
            data.views[data.view_names[-1]][0], views[-1].T[0] if len(views) > 1 else SQUARE[0]
        )


def test_without_labels(file: Path) -> None:
    save_v5(file, {"X": cells(WIDE, NARROW)})
    assert read(file).view_dims == {"view0": 4, "view1": 2}
    save_v5(file, {"X": cells(WIDE.T, NARROW.T)})
    assert read(file).view_dims == {"view0": 4, "view1": 2}
    save_v5(file, {"X": cells(WIDE)})
    assert read(file).view_dims == {"view0": 4}
    save_v5(file, {"X": cells(WIDE, NARROW.T)})
    with pytest.raises(FewviewError, match="different numbers of rows and of columns"):
        read(file)


def test_matrices_that_do_not_fit_the_labels(file: Path) -> None:
    save_v5(file, {"X": cells(WIDE, np.ones((5, 6))), "gt": column(1, 2, 3)})
    with pytest.raises(FewviewError, match="view 'view1' is 5 x 6, but there are 3 labels"):
        read(file)
    save_v5(file, {"a": WIDE, "b": np.ones((5, 6)), "gt": column(1, 2, 3)})
    with pytest.warns(FewviewWarning, match="left out b"):
        assert read(file).view_names == ("a",)
    save_v5(file, {"b": np.ones((5, 6)), "gt": column(1, 2, 3)})
    with pytest.raises(
        FewviewError, match="no matrix with 3 rows or columns, as many as there are"
    ):
        read(file)


# ------------------------------------------------------------------ what is refused

BAD: dict[str, tuple[dict[str, Any], str]] = {
    "struct": ({"X": {"a": WIDE}, "gt": column(1, 2, 3)}, "X holds a struct.*'-struct'"),
    "struct in a cell": ({"X": cells({"a": WIDE})}, r"X\{1\} holds a struct"),
    "text in a cell": ({"X": cells(WIDE, "abc")}, r"X\{2\} is not a matrix of numbers"),
    "three dimensions": ({"X": cells(np.ones((2, 2, 2)))}, r"X\{1\} is not a matrix"),
    "complex numbers": ({"X": cells(WIDE * 1j)}, r"X\{1\} holds complex numbers"),
    "matrix of labels": ({"X": cells(WIDE), "gt": np.eye(3)}, "gt is 3 x 3; labels must be"),
    "two cell arrays": ({"a": cells(WIDE), "b": cells(WIDE)}, r"several cell arrays \(a, b\)"),
    "nothing": ({"note": "hello"}, "no cell array X and no matrix; it has note"),
    "infinity": ({"X": cells(WIDE + np.inf)}, "view 'view0': row 0, column"),
}  # fmt: skip


@every_version
@pytest.mark.parametrize("case", BAD)
def test_bad_content(case: str, save: Save, file: Path) -> None:
    content, message = BAD[case]
    save(file, content)
    with pytest.raises(FewviewError, match=message) as caught:
        read(file)
    assert str(caught.value).startswith(f"{file}: ")


def function_handle_file() -> bytes:
    """A v5 file with a variable f of class 16 (function handle), which scipy reads, not writes."""

    def element(kind: int, content: bytes) -> bytes:
        return struct.pack("<II", kind, len(content)) + content + bytes(-len(content) % 8)

    inner = b"".join(
        (
            element(6, struct.pack("<II", 6, 0)),  # flags: a double
            element(5, struct.pack("<ii", 1, 1)),  # dimensions
            element(1, b""),  # no name
            element(9, struct.pack("<d", 1.0)),
        )
    )
    handle = element(6, struct.pack("<II", 16, 0)) + element(5, struct.pack("<ii", 1, 1))
    handle += element(1, b"X") + element(14, inner)
    header = b"MATLAB 5.0 MAT-file".ljust(124) + b"\x00\x01IM"
    return header + element(14, handle)


def test_function_handles_are_refused(file: Path) -> None:
    file.write_bytes(function_handle_file())
    assert isinstance(scipy.io.loadmat(file)["X"], MatlabFunction)
    with pytest.raises(FewviewError, match="X holds a function handle, which is never read"):
        read(file)


def v73(file: Path, **content: tuple[Any, str]) -> None:
    with h5py.File(file, "w", userblock_size=512) as target:
        for name, (value, kind) in content.items():
            target[name] = value
            target[name].attrs["MATLAB_class"] = np.bytes_(kind)


def test_objects_of_version_7_3_are_refused(file: Path) -> None:
    v73(file, X=(np.ones((2, 2)), "function_handle"))
    with pytest.raises(FewviewError, match="X holds a function handle"):
        read(file)
    v73(file, X=(np.ones((1, 6), np.uint32), "string"))
    with h5py.File(file, "r+") as content:
        content["X"].attrs["MATLAB_object_decode"] = 3
    with pytest.raises(FewviewError, match="X holds an object"):
        read(file)


def test_nothing_outside_a_file_of_version_7_3_is_read(file: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(np.arange(12.0).tobytes())
    other = tmp_path / "other.h5"
    with h5py.File(other, "w") as content:
        content["X"] = WIDE
    with h5py.File(file, "w", userblock_size=512) as content:
        content["X"] = h5py.ExternalLink(str(other), "/X")
    with pytest.raises(FewviewError, match="/X is a link to somewhere else, which is never foll"):
        read(file)
    with h5py.File(file, "w", userblock_size=512) as content:
        content["loop"] = h5py.SoftLink("/loop")
    with pytest.raises(FewviewError, match="/loop is a link"):
        read(file)
    with h5py.File(file, "w", userblock_size=512) as content:
        content.create_dataset("X", (3, 4), "f8", external=[(str(secret), 0, 96)])
    with pytest.raises(FewviewError, match="/X keeps its values in another file"):
        read(file)
    with h5py.File(file, "w", userblock_size=512) as content:
        layout = h5py.VirtualLayout((3, 4), "f8")
        layout[:] = h5py.VirtualSource(str(other), "X", (3, 4))
        content.create_virtual_dataset("X", layout)
    with pytest.raises(FewviewError, match="/X keeps its values in another file"):
        read(file)


def test_references_that_lead_in_circles_or_nowhere(file: Path) -> None:
    with h5py.File(file, "w", userblock_size=512) as content:
        cell = content.create_dataset("X", (1, 1), h5py.ref_dtype)
        cell.attrs["MATLAB_class"] = np.bytes_("cell")
        cell[0, 0] = cell.ref
    with pytest.raises(FewviewError, match=r"X\{1\} is not a matrix|cell array in a cell array"):
        read(file)
    with h5py.File(file, "r+") as content:
        content["X"][0, 0] = h5py.Reference()
    with pytest.raises(FewviewError, match="/X has a cell that points nowhere"):
        read(file)


def test_gigantic_claims(file: Path) -> None:
    with h5py.File(file, "w", userblock_size=512) as content:
        content.create_dataset("X", (10**7, 10**6), "f8", chunks=(100, 100))
        content["X"].attrs["MATLAB_class"] = np.bytes_("double")
    with pytest.raises(FewviewError, match=r"needs more than 2\.0 GiB of memory.*READ_MEMORY"):
        read(file)


@pytest.mark.parametrize(
    "content",
    [b"", b"x", b"MATLAB 5.0 MAT-file".ljust(124) + b"\x00\x01IM", b"\x89HDF\r\n\x1a\n" * 100],
    ids=["empty", "one byte", "a header alone", "signatures"],
)
def test_foreign_bytes(content: bytes, file: Path) -> None:
    file.write_bytes(content)
    with pytest.raises(FewviewError, match=r"some\.mat: (is not a readable MATLAB|holds no var)"):
        read(file)


# ------------------------------------------------------------------ what we write


def sample() -> MultiViewData:
    return MultiViewData(
        {"image": WIDE, "text": NARROW},
        ["cat", None, "cow"],
        ids=["a", "b", "c"],
        mask=[[True, True], [True, False], [False, True]],
        columns={"image": ["p", "q", "r", "s"]},
    )


def test_scipy_reads_what_we_write(file: Path) -> None:
    data = sample()
    write(data, file)
    content = scipy.io.loadmat(file, simplify_cells=True)
    np.testing.assert_array_equal(content["X"][0], data.view("image"))
    np.testing.assert_array_equal(content["X"][1], data.view("text"))
    assert content["X"][1].dtype == np.float32
    assert content["Y"].tolist() == [1, 0, 2]
    assert content["classes"].tolist() == ["cat", "cow"]
    assert content["view_names"].tolist() == ["image", "text"]
    assert content["ids"].tolist() == ["a", "b", "c"]
    assert content["columns"][0].tolist() == ["p", "q", "r", "s"]


def test_what_we_write_is_read_without_our_own_note(file: Path) -> None:
    """As after a visit to MATLAB, where the variable `fewview` was lost."""
    data = sample().with_labels([4, 7, 4])
    write(data, file)
    content = {k: v for k, v in scipy.io.loadmat(file).items() if not k.startswith("_")}
    del content["fewview"]
    for save in SAVERS:
        save(file, content)
        again = read(file)
        assert again.view_names == data.view_names
        assert labels_of(again) == [4, 7, 4]
        for view in data.view_names:
            np.testing.assert_array_equal(again.view(view), data.view(view))


def test_damaged_notes(file: Path) -> None:
    for note in ("{", "[]", '{"version": 2}', '{"version": 1, "views": 3}', "[" * 5000):
        save_v5(file, {"X": cells(WIDE), "fewview": note})
        with pytest.raises(FewviewError, match="variable fewview is damaged"):
            read(file)
    write(sample(), file)
    content = {k: v for k, v in scipy.io.loadmat(file).items() if not k.startswith("_")}
    save_v5(file, {**content, "X": cells(WIDE)})
    with pytest.raises(FewviewError, match="X is not the cell array that variable fewview"):
        read(file)
    save_v5(file, {**content, "Y": column(1, 2, 3)})
    with pytest.raises(FewviewError, match="Y holds a number without a class"):
        read(file)
    assert labels_of(read(file, labels="Y")) == [1, 2, 3]


@every_version
@settings(max_examples=15, deadline=None)
@given(draw=st.data())
def test_values_and_shapes(save: Save, draw: st.DataObject) -> None:
    """Whatever numbers scipy and hdf5storage write, they come back as they are."""
    n, width = draw.draw(st.integers(2, 5)), draw.draw(st.integers(6, 8))
    dtype = draw.draw(st.sampled_from([np.float32, np.float64, np.uint8, np.int16]))
    elements: Any = (
        st.floats(allow_nan=False, allow_infinity=False, width=np.dtype(dtype).itemsize * 8)
        if np.dtype(dtype).kind == "f"
        else None
    )
    block = draw.draw(hnp.arrays(dtype, (n, width), elements=elements))
    codes = draw.draw(st.lists(st.integers(-5, 5), min_size=n, max_size=n))
    sideways = draw.draw(st.booleans())
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "a.mat"
        save(file, {"X": cells(block.T if sideways else block), "gt": column(*codes)})
        data = read(file)
    np.testing.assert_array_equal(data.view("view0"), block)
    assert labels_of(data) == codes


# ------------------------------------------------------------------ incomplete views


@every_version
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("whole", [False, True])
def test_an_index_of_present_samples(save: Save, file: Path, turned: bool, whole: bool) -> None:
    """Files of incomplete multi-view clustering: cell arrays `data` and `index`."""
    full = {"a": np.arange(12.0).reshape(6, 2), "b": np.arange(18.0).reshape(6, 3)}
    places = [[1, 2, 4, 6], [2, 3, 5]]
    blocks = []
    for block, place in zip(full.values(), places, strict=True):
        part = block if whole else block[np.array(place) - 1]
        blocks.append(part.T if turned else part)
    index = cells(*(np.array([place], dtype=float) for place in places))
    save(file, {"data": cells(*blocks), "index": index, "truelabel": column(1, 1, 1, 2, 2, 2)})
    data = read(file)
    assert data.mask.tolist() == [[s in p for p in places] for s in range(1, 7)]
    for view, block in zip(data.view_names, full.values(), strict=True):
        there = ~np.isnan(data.view(view)[:, 0])
        np.testing.assert_array_equal(data.view(view)[there], block[there])
    assert data.labels is not None
    assert data.labels.tolist() == [1, 1, 1, 2, 2, 2]


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ([1.0, 9.0], "lists sample 9, and there are 3 labels"),
        ([0.0, 1.0], "samples are counted from 1"),
        ([1.0, 1.0], "must list every sample once"),
        ([1.5, 2.0], "by whole numbers"),
        ([1.0], r"views do not fit .*index lists, of 3 \(view0 2 x 4 with 1\)"),
    ],
)
def test_a_wrong_index(file: Path, place: list[float], message: str) -> None:
    block = np.ones((2, 4))
    content = {"data": cells(block), "index": cells(np.array([place])), "gt": column(1, 2, 3)}
    save_v5(file, content)
    with pytest.raises(FewviewError, match=message):
        read(file)
