"""`.h5ad` and `.h5mu`: files of anndata and mudata are read, and what we write they read back."""

from __future__ import annotations

import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anndata
import h5py
import mudata
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fewview.errors import FewviewError, FewviewWarning
from fewview.files import kept_reader
from fewview.samples._data import MultiViewData

read, write = MultiViewData.read, MultiViewData.write

pytestmark = [
    pytest.mark.filterwarnings("ignore::UserWarning:anndata"),
    pytest.mark.filterwarnings("ignore::UserWarning:mudata"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


@pytest.fixture(autouse=True, scope="module")
def _one_process_for_all_foreign_files() -> Iterator[None]:
    with kept_reader():
        yield


COUNTS = np.array([[1.0, 0.0, 2.0], [0.0, 0.0, 3.0], [4.0, 5.0, 0.0], [0.0, 6.0, 0.0]], np.float32)
NAMES = ["w", "x", "y", "z"]


def observations() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "label": pd.Categorical(["B", "T", None, "B"], categories=["T", "B", "unused"]),
            "text": ["p", "q", "p", "q"],
            "whole": [1, 2, 1, 2],
            "float": [0.5, np.nan, 1.0, 2.0],
            "flag": [True, False, True, False],
            "maybe_whole": pd.array([1, None, 3, 1], dtype="Int64"),
            "maybe_flag": pd.array([True, None, False, True], dtype="boolean"),
            "grade": pd.Categorical([3, 1, 3, 2], ordered=True),
        },
        index=NAMES,
    )


COLUMNS: dict[str, list[Any]] = {
    "label": ["B", "T", None, "B"],
    "text": ["p", "q", "p", "q"],
    "whole": [1, 2, 1, 2],
    "float": [0.5, None, 1.0, 2.0],
    "flag": [True, False, True, False],
    "maybe_whole": [1, None, 3, 1],
    "maybe_flag": [True, None, False, True],
    "grade": [3, 1, 3, 2],
}


def one(matrix: Any = COUNTS) -> anndata.AnnData:
    return anndata.AnnData(matrix, obs=observations(), var=pd.DataFrame(index=["g1", "g2", "g3"]))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "cells.h5ad"


@pytest.fixture
def pair(tmp_path: Path) -> Path:
    """Two modalities with different samples, in different orders; v has only the second."""
    other = anndata.AnnData(
        np.array([[10.0, 11.0], [20.0, 21.0], [30.0, 31.0]]),
        obs=pd.DataFrame({"batch": ["b1", "b2", "b3"]}, index=["y", "v", "w"]),
        var=pd.DataFrame(index=["p1", "p2"]),
    )
    both = mudata.MuData({"rna": one(), "prot": other})
    both.obs["state"] = [f"s{name}" for name in both.obs_names]
    both.write(tmp_path / "both.h5mu")
    return tmp_path / "both.h5mu"


def labels_of(data: MultiViewData) -> list[Any]:
    assert data.labels is not None
    return list(data.labels.tolist())


# ------------------------------------------------------------------ files of anndata


@pytest.mark.parametrize("kind", [np.asarray, scipy.sparse.csr_matrix, scipy.sparse.csc_matrix])
@pytest.mark.parametrize("compression", [None, "gzip", "lzf"])
def test_matrices(kind: Any, compression: str | None, file: Path) -> None:
    one(kind(COUNTS)).write_h5ad(file, compression=compression)
    data = read(file)
    assert data.view_names == ("X",)
    np.testing.assert_array_equal(data.view("X"), COUNTS)
    assert data.view("X").dtype == np.float32
    assert data.columns == {"X": ("g1", "g2", "g3")}
    assert data.ids is not None
    assert data.ids.tolist() == NAMES
    assert labels_of(data) == COLUMNS["label"]
    assert data.name == "cells"


@pytest.mark.parametrize("column", COLUMNS)
def test_columns_of_every_kind(column: str, file: Path) -> None:
    one().write_h5ad(file)
    found = labels_of(read(file, labels=column))
    assert found == COLUMNS[column]
    assert [type(value) for value in found] == [type(value) for value in COLUMNS[column]]


def test_nullable_strings(file: Path) -> None:
    data = one()
    data.obs["note"] = pd.array(["a", None, "c", "a"], dtype="string")
    with anndata.settings.override(allow_write_nullable_strings=True):
        data.strings_to_categoricals = lambda *_: None
        data.write_h5ad(file)
    with h5py.File(file) as content:
        assert content["obs/note"].attrs["encoding-type"] == "nullable-string-array"
    assert labels_of(read(file, labels="note")) == ["a", None, "c", "a"]


def test_blocks_of_obsm_are_views(file: Path) -> None:
    data = one()
    data.obsm["X_pca"] = np.array([[1.0, 2.0], [np.nan, np.nan], [5.0, 6.0], [7.0, 8.0]])
    data.obsm["clinic"] = pd.DataFrame(
        {"age": [30, 40, 50, 60], "dose": [0.1, 0.2, 0.3, 0.4]}, NAMES
    )
    data.obsm["peaks"] = scipy.sparse.csr_matrix(COUNTS)
    data.layers["raw"] = COUNTS * 2
    data.uns["anything"] = {"x": 1}
    data.write_h5ad(file)
    found = read(file)
    assert set(found.view_names) == {"X", "X_pca", "clinic", "peaks"}
    assert found.columns == {"X": ("g1", "g2", "g3"), "clinic": ("age", "dose")}
    np.testing.assert_array_equal(found.view("clinic"), data.obsm["clinic"].to_numpy())
    np.testing.assert_array_equal(found.view("peaks"), COUNTS)
    np.testing.assert_array_equal(found.view("X_pca"), data.obsm["X_pca"])
    assert not found.mask[1, found.view_names.index("X_pca")]


def test_obsm_alone(file: Path) -> None:
    anndata.AnnData(obs=pd.DataFrame(index=["a", "b"]), obsm={"q": np.ones((2, 2))}).write_h5ad(
        file
    )
    assert read(file).view_dims == {"q": 2}
    assert read(file).labels is None
    anndata.AnnData(obs=pd.DataFrame(index=["a", "b"])).write_h5ad(file)
    with pytest.raises(FewviewError, match="holds neither X nor blocks in obsm"):
        read(file)


def test_names_that_are_no_names(file: Path) -> None:
    anndata.AnnData(COUNTS).write_h5ad(file)
    assert read(file).columns == {}


def test_a_label_column_that_is_not_there(file: Path) -> None:
    one().write_h5ad(file)
    with pytest.raises(
        FewviewError, match=r"no column 'type' for the labels; it has flag, float, grade, label, m"
    ):
        read(file, labels="type")
    data = one()
    del data.obs["label"]
    data.write_h5ad(file)
    with pytest.warns(FewviewWarning, match=r"read without labels.*--labels \.\.\.\): flag, float"):
        assert read(file).labels is None


def test_columns_that_occur_twice(file: Path) -> None:
    anndata.AnnData(COUNTS, var=pd.DataFrame(index=["g", "g", "h"])).write_h5ad(file)
    with pytest.raises(FewviewError, match=r"view 'X': the name 'g' occurs twice.*make_unique"):
        read(file)


def test_categories_as_anndata_0_7_wrote_them(file: Path) -> None:
    """Codes with a reference to names that lie in a group aside."""
    one().write_h5ad(file)
    with h5py.File(file, "r+") as content:
        obs = content["obs"]
        del obs["label"]
        obs["label"] = np.array([1, 0, -1, 1], np.int8)
        obs["__categories/label"] = np.array(["T", "B"], dtype=object)
        obs["label"].attrs["categories"] = obs["__categories/label"].ref
    assert labels_of(read(file)) == COLUMNS["label"]


# ------------------------------------------------------------------ files of mudata


def test_a_sample_may_lack_a_modality(pair: Path) -> None:
    data = read(pair, labels="state")
    reference = mudata.read_h5mu(pair)
    assert data.view_names == ("rna", "prot")
    assert data.ids is not None
    assert data.ids.tolist() == reference.obs_names.tolist()
    assert labels_of(data) == reference.obs["state"].tolist()
    assert data.columns == {"rna": ("g1", "g2", "g3"), "prot": ("p1", "p2")}
    for view in data.view_names:
        part = reference.mod[view]
        there = data.mask[:, data.view_names.index(view)]
        assert data.ids[there].tolist() == [n for n in data.ids if n in part.obs_names]
        for name, row in zip(data.ids[there], data.view(view)[there], strict=True):
            np.testing.assert_array_equal(row, np.ravel(part[name].X))
    by_name = dict(zip(data.ids, data.mask.tolist(), strict=True))
    assert by_name["v"] == [False, True]
    assert by_name["x"] == [True, False]
    assert by_name["w"] == [True, True]


def test_labels_of_a_modality(pair: Path) -> None:
    data = read(pair, labels="prot:batch")
    assert data.ids is not None
    assert dict(zip(data.ids.tolist(), labels_of(data), strict=True)) == {
        "w": "b3", "x": None, "y": "b1", "z": None, "v": "b2",
    }  # fmt: skip
    with pytest.raises(FewviewError, match=r"no column 'prot:no'.*it has state, rna:flag"):
        read(pair, labels="prot:no")


def test_without_obsmap_rows_are_matched_by_name(pair: Path) -> None:
    before = read(pair, labels="state")
    with h5py.File(pair, "r+") as content:
        del content["obsmap"]
    assert read(pair, labels="state") == before


OBSMAPS: dict[str, tuple[list[int], str]] = {
    "row that is not there": ([1, 2, 3, 5, 0], "names rows that modality 'rna' does not have"),
    "row twice": ([1, 2, 3, 3, 0], "gives one row of 'rna' to two samples"),
    "too short": ([1, 2, 3], "has 3 entries for 5 samples"),
    "nothing for one sample": ([0, 2, 3, 0, 0], "no view at all"),
}


@pytest.mark.parametrize("case", OBSMAPS)
def test_bad_obsmap(case: str, pair: Path) -> None:
    numbers, message = OBSMAPS[case]
    with h5py.File(pair, "r+") as content:
        del content["obsmap/rna"]
        content["obsmap/rna"] = np.array(numbers, np.uint32)
    with pytest.raises(FewviewError, match=message):
        read(pair, labels="state")


def test_other_axes_are_refused(pair: Path) -> None:
    with h5py.File(pair, "r+") as content:
        content.attrs["axis"] = 1
    with pytest.raises(FewviewError, match="share the other axis"):
        read(pair)


def test_a_file_under_the_wrong_name(pair: Path, tmp_path: Path) -> None:
    one().write_h5ad(tmp_path / "a.h5mu")
    with pytest.raises(FewviewError, match=r"holds anndata data; a \.h5mu file holds MuData"):
        read(tmp_path / "a.h5mu")
    (tmp_path / "b.h5ad").write_bytes(pair.read_bytes())
    with pytest.raises(FewviewError, match="holds MuData data"):
        read(tmp_path / "b.h5ad")


# ------------------------------------------------------------------ hostile files


def broken(file: Path, change: str) -> None:
    one(scipy.sparse.csr_matrix(COUNTS)).write_h5ad(file)
    with h5py.File(file, "r+") as content:
        exec(change, {"content": content, "np": np, "h5py": h5py})


HOSTILE: dict[str, tuple[str, str]] = {
    "index beyond the matrix": ("content['X/indices'][0] = 3", "/X is not a valid sparse matrix"),
    "negative index": ("content['X/indices'][0] = -1", "/X is not a valid sparse matrix"),
    "pointers out of order": ("content['X/indptr'][1] = 5", "/X is not a valid sparse matrix"),
    "gigantic shape": (
        "content['X'].attrs['shape'] = [4, 10**12]", r"needs more than 2\.0 GiB of memory"),
    "gigantic array": (
        "del content['X']; content.create_dataset('X', (4, 10**12), 'f4', chunks=(1, 1000))",
        r"needs more than 2\.0 GiB of memory"),
    "text in X": ("del content['X']; content['X'] = [['a']] * 4", "/X holds text or references"),
    "rows": ("del content['X']; content['X'] = np.ones((3, 3))", "/X has 3 rows for 4 samples"),
    "unknown kind": ("content['X'].attrs['encoding-type'] = 'awkward-array'", "does not know"),
    "code without category": (
        "content['obs/label/codes'][0] = 9",
        r"/obs/label cannot be read \(codes need to be between -1 and len"),
    "categories in a circle": (
        "del content['obs/label/categories']; "
        "content['obs/label/categories'] = content['obs/label']",
        "/obs/label/categories leads in a circle"),
    "link to another file": (
        "del content['X']; content['X'] = h5py.ExternalLink('/etc/passwd', '/')",
        "/X is a link to somewhere else"),
    "link to another file below": (
        "del content['X/indices']; content['X/indices'] = h5py.ExternalLink('/etc/passwd', '/')",
        "/X/indices is a link to somewhere else"),
    "values in another file below": (
        "del content['X/data']; "
        "content['X'].create_dataset('data', (6,), 'f4', external=[('/etc/passwd', 0, 24)])",
        "/X/data keeps its values in another file"),
    "pointers beyond the arrays that end in nothing": (
        "content['X/indptr'][:] = [0, 10**6, 10**6, 10**6, 0]; content['X/data'].resize((0,)); "
        "content['X/indices'].resize((0,))",
        "/X is not a valid sparse matrix"),
    "a version of the future": (
        "content['obs/label'].attrs['encoding-version'] = '9.9.9'",
        "/obs/label is of a kind that fewview does not know"),
    "no obs": ("del content['obs']", "no group 'obs'"),
    "names of columns": (
        "del content['var/_index']; content['var/_index'] = ['a']", "names 1 columns, X has 3"),
    "damaged note": ("content['uns/fewview'] = '{'", "uns/fewview is damaged"),
    "note of the future": ("content['uns/fewview'] = '{\"version\": 2}'", "uns/fewview is damaged"),
}  # fmt: skip


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_files(case: str, file: Path) -> None:
    change, message = HOSTILE[case]
    broken(file, change)
    with pytest.raises(FewviewError, match=message) as caught:
        read(file)
    assert str(caught.value).startswith(f"{file}: ")


@pytest.mark.parametrize("suffix", [".h5ad", ".h5mu"])
def test_foreign_bytes(suffix: str, tmp_path: Path) -> None:
    file = tmp_path / f"a{suffix}"
    for content in (b"", b"MuData", b"PAR1" * 30, b"\x89HDF\r\n\x1a\n" + bytes(2000)):
        file.write_bytes(content)
        with pytest.raises(FewviewError, match=r"is not a readable (AnnData|MuData) file"):
            read(file)


# ------------------------------------------------------------------ what we write


def sample(view: str = "X") -> MultiViewData:
    return MultiViewData(
        {"text": np.arange(8.0).reshape(4, 2), view: COUNTS},
        ["cow", None, "cat", "cow"],
        ids=[7, 3, 5, 1],
        mask=[[True, True], [False, True], [True, False], [True, True]],
        columns={view: ["g1", "g2", "g3"]},
    )


def test_anndata_reads_what_we_write(file: Path) -> None:
    data = sample()
    write(data, file)
    found = anndata.read_h5ad(file)
    assert found.obs_names.tolist() == ["7", "3", "5", "1"]
    assert found.var_names.tolist() == ["g1", "g2", "g3"]
    np.testing.assert_array_equal(found.X, data.view("X"))
    np.testing.assert_array_equal(found.obsm["text"], data.view("text"))
    assert found.obs["label"].dtype == pd.CategoricalDtype(["cat", "cow"])
    assert [None if pd.isna(v) else v for v in found.obs["label"]] == ["cow", None, "cat", "cow"]


def test_through_anndata_and_back(file: Path, tmp_path: Path) -> None:
    data = sample()
    write(data, file)
    again = tmp_path / "again.h5ad"
    anndata.read_h5ad(file).write_h5ad(again)
    assert read(again) == data
    anndata.read_h5ad(file)[["1", "3"]].write_h5ad(again)
    assert read(again) == data[[3, 1]]


def test_mudata_reads_what_we_write(tmp_path: Path) -> None:
    data = sample("rna")
    file = tmp_path / "a.h5mu"
    write(data, file)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        found = mudata.read_h5mu(file)
    assert list(found.mod) == ["text", "rna"]
    # mudata puts samples into an order of its own, those of the first modality first.
    order = [["7", "3", "5", "1"].index(name) for name in found.obs_names]
    assert sorted(order) == [0, 1, 2, 3]
    assert found.mod["text"].obs_names.tolist() == ["7", "5", "1"]
    assert np.ravel(found.obsmap["text"]).tolist() == [[1, 0, 2, 3][row] for row in order]
    assert found.mod["rna"].var_names.tolist() == ["g1", "g2", "g3"]
    np.testing.assert_array_equal(found.mod["rna"].X, COUNTS[[0, 1, 3]])
    labels = [None if pd.isna(v) else v for v in found.obs["label"]]
    assert labels == [["cow", None, "cat", "cow"][row] for row in order]
    again = tmp_path / "again.h5mu"
    found.write(again)
    assert read(again) == data[order]


def test_what_we_write_has_the_layout_that_mudata_writes(tmp_path: Path) -> None:
    """Every group, data set and mark of mudata's own file of the same data, but for `encoder`."""
    data = sample("rna").with_labels(None)
    write(data, tmp_path / "a.h5mu")
    parts = {}
    for place, view in enumerate(data.view_names):
        there = data.mask[:, place]
        names = list(data.columns.get(view, [f"{view}:{i}" for i in range(data.view_dims[view])]))
        obs = pd.DataFrame(index=[str(i) for i in np.asarray(data.ids)[there]])
        parts[view] = anndata.AnnData(data.view(view)[there], obs, pd.DataFrame(index=names))
    mudata.MuData(parts).write(tmp_path / "b.h5mu")

    def layout(file: Path) -> dict[str, Any]:
        found: dict[str, Any] = {}
        with h5py.File(file) as content:
            content.visititems(
                lambda name, item: found.update(
                    {name: [item.attrs.get(f"encoding-{key}") for key in ("type", "version")]}
                )
            )
        # With pandas 3 mudata writes texts with a mask beside them; all readers know plain ones.
        masked = [name for name, (kind, _) in found.items() if kind == "nullable-string-array"]
        for name in masked:
            found[name] = ["string-array", "0.2.0"]
            del found[f"{name}/values"], found[f"{name}/mask"]
        return found

    mine = layout(tmp_path / "a.h5mu")
    del mine["uns/fewview"]
    assert mine == layout(tmp_path / "b.h5mu")


def test_without_the_extra(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(sample(), file)
    monkeypatch.setitem(sys.modules, "anndata", None)
    for call in (
        lambda: read(file),
        lambda: write(sample(), tmp_path / "b.h5ad"),
        lambda: write(sample("rna"), tmp_path / "b.h5mu"),
    ):
        with pytest.raises(FewviewError, match=r"anndata.*pip install 'fewview\[omics\]'"):
            call()
    assert [entry.name for entry in tmp_path.iterdir()] == [file.name]


def test_equal_data_make_equal_files(tmp_path: Path) -> None:
    for suffix in (".h5ad", ".h5mu"):
        for number in (1, 2):
            write(sample(), tmp_path / f"{number}{suffix}")
        one, two = (tmp_path / f"{number}{suffix}" for number in (1, 2))
        assert one.read_bytes() == two.read_bytes()


@settings(max_examples=20, deadline=None)
@given(draw=st.data())
def test_values_and_shapes(draw: st.DataObject) -> None:
    """Whatever numbers anndata writes, dense or sparse, they come back as they are."""
    n, width = draw.draw(st.integers(1, 5)), draw.draw(st.integers(1, 4))
    dtype = draw.draw(st.sampled_from([np.float32, np.float64]))
    cells = st.floats(allow_nan=False, allow_infinity=False, width=np.dtype(dtype).itemsize * 8)
    block = draw.draw(hnp.arrays(dtype, (n, width), elements=cells))
    kind = draw.draw(
        st.sampled_from([np.asarray, scipy.sparse.csr_matrix, scipy.sparse.csc_matrix])
    )
    text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=4)
    names = draw.draw(st.lists(text, min_size=n, max_size=n, unique=True))
    labels = draw.draw(st.lists(st.one_of(st.none(), text), min_size=n, max_size=n))
    obs = pd.DataFrame({"label": pd.Categorical(labels)}, index=names)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "a.h5ad"
        anndata.AnnData(kind(block), obs=obs).write_h5ad(file)
        data = read(file)
    np.testing.assert_array_equal(data.view("X"), block)
    assert data.ids is not None
    assert data.ids.tolist() == names
    assert labels_of(data) == labels


# ------------------------------------------------------------------ before version 0.7


def old_file(path: Path, sparse: str | None) -> None:
    """A file as anndata 0.6 wrote it: tables of records, categories in `uns`."""
    import scipy.sparse

    block = np.array([[1.0, 0.0, 2.0], [0.0, 3.0, 0.0], [4.0, 0.0, 0.0], [0.0, 0.0, 5.0]])
    obs = np.zeros(4, dtype=[("index", "S2"), ("kind", "i1"), ("depth", "f8")])
    obs["index"], obs["kind"], obs["depth"] = [b"c1", b"c2", b"c3", b"c4"], [0, 1, -1, 1], 2.5
    var = np.zeros(3, dtype=[("index", "S2"), ("n", "i8")])
    var["index"] = [b"g1", b"g2", b"g3"]
    obsm = np.zeros(4, dtype=[("X_pca", "f8", (2,))])
    obsm["X_pca"] = np.arange(8.0).reshape(4, 2)
    with h5py.File(path, "w") as file:
        file["obs"], file["var"], file["obsm"] = obs, var, obsm
        file["uns/kind_categories"] = np.array([b"B", b"T"])
        if sparse is None:
            file["X"] = block
            return
        matrix = (
            scipy.sparse.csr_matrix(block) if sparse == "csr" else scipy.sparse.csc_matrix(block)
        )
        group = file.create_group("X")
        group.attrs["h5sparse_format"], group.attrs["h5sparse_shape"] = sparse, block.shape
        for name in ("data", "indices", "indptr"):
            group[name] = getattr(matrix, name)


@pytest.mark.parametrize("sparse", [None, "csr", "csc"])
def test_files_of_anndata_before_0_7(tmp_path: Path, sparse: str | None) -> None:
    import anndata

    file = tmp_path / "old.h5ad"
    old_file(file, sparse)
    data = MultiViewData.read(file, labels="kind")
    assert data.labels is not None
    assert data.labels.tolist() == ["B", "T", None, "T"]
    assert data.ids is not None
    assert data.ids.tolist() == ["c1", "c2", "c3", "c4"]
    assert data.columns == {"X": ("g1", "g2", "g3")}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        known = anndata.read_h5ad(file)
    dense = known.X if sparse is None else known.X.toarray()
    np.testing.assert_array_equal(data.view("X"), dense)
    np.testing.assert_array_equal(data.view("X_pca"), known.obsm["X_pca"])
    assert [x if isinstance(x, str) else None for x in known.obs["kind"]] == data.labels.tolist()


def test_damaged_files_of_anndata_before_0_7(tmp_path: Path) -> None:
    file = tmp_path / "old.h5ad"
    old_file(file, "csr")
    with h5py.File(file, "a") as content:
        content["X/indptr"][-1] = 99
    with pytest.raises(FewviewError, match="not a valid sparse matrix"):
        MultiViewData.read(file, labels="kind")
    old_file(file, None)
    with h5py.File(file, "a") as content:
        rows = content["obs"][()]
        rows["kind"] = 7
        del content["obs"]
        content["obs"] = rows
    with pytest.raises(FewviewError, match="obs/kind has codes that are no categories"):
        MultiViewData.read(file, labels="kind")
