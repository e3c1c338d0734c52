from __future__ import annotations

import csv
import doctest
import importlib
import pickle
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

import fewview.datasets
from fewview.datasets import data_folder, get_spec, is_present, names, path_of
from fewview.datasets._catalogue import cache_folder
from fewview.samples import FewviewError

PAPER_TABLES = (
    "cub", "handwritten", "caltech102", "scene15", "animal", "orl", "tieredimagenet", "birds",
)  # fmt: skip

# samples, classes, widths, base/novel, way, queries: typed from the README of the data folder.
README = {
    "handwritten": (2000, 10, (76, 216, 64, 240, 47, 6), 6, 4, 3, 50),
    "cub_googlenet_doc2vec": (600, 10, (1024, 300), 6, 4, 3, 15),
    "scene15": (4485, 15, (20, 59), 8, 7, 3, 30),
    "orl": (400, 40, (4096, 3304, 6750), 25, 15, 5, 9),
    "caltech102": (6055, 102, (48, 40, 254, 1984, 512, 928), 80, 22, 5, 30),
    "tieredimagenet_tiny": (7380, 123, (1280, 1280), 61, 45, 5, 15),
    "birds200": (8000, 200, (1280, 1280), 61, 50, 5, 15),
    "leaves100": (1600, 100, (64, 64, 64), 60, 40, 5, 15),
    "animal": (10158, 50, (4096, 4096), 35, 15, 5, 15),
}

# latent width, anchors, learning rate, tasks per batch: as the authors' code sets them.
SCRIPTS = {
    "cub_googlenet_doc2vec": (1024, 100, 1e-2, 400),
    "handwritten": (512, 100, 1e-2, 400),
    "caltech102": (1024, 100, 1e-2, 200),
    "scene15": (512, 100, 1e-2, 400),
    "animal": (1024, 100, 1e-4, 100),
    "orl": (1024, 50, 1e-2, 50),
}


def test_all_sets_of_the_issue_are_there() -> None:
    assert set(names()) == set(README) | {"tieredimagenet", "digits"}
    assert len(names()) == len(set(names()))


@pytest.mark.parametrize("name", README)
def test_sizes_are_those_of_the_data_readme(name: str) -> None:
    samples, classes, widths, base, novel, way, queries = README[name]
    spec = get_spec(name)
    assert (spec.n_samples, spec.n_classes) == (samples, classes)
    assert tuple(spec.view_dims.values()) == widths
    assert (spec.n_base, spec.n_novel, spec.way, spec.queries) == (base, novel, way, queries)


@pytest.mark.parametrize("name", SCRIPTS)
def test_settings_are_those_of_the_authors_scripts(name: str) -> None:
    spec = get_spec(name)
    assert (
        spec.latent_dim, spec.n_anchors, spec.learning_rate, spec.tasks_per_batch
    ) == SCRIPTS[name]  # fmt: skip


def test_digits_setting_is_that_of_the_issue() -> None:
    spec = get_spec("digits")
    assert (spec.n_base, spec.n_novel, spec.way, spec.shot, spec.queries) == (6, 4, 3, 1, 30)
    assert spec.embedded


def test_original_tieredimagenet_is_described() -> None:
    spec = get_spec("tieredimagenet")
    assert (spec.n_base, spec.n_val, spec.n_novel, spec.n_classes) == (351, 97, 160, 608)
    assert spec.n_views == 3
    assert spec.fixed_split


@pytest.mark.parametrize("name", names())
def test_every_spec_is_complete_and_consistent(name: str) -> None:
    spec = get_spec(name)
    assert spec.name == name
    for text in (spec.title, spec.source, spec.licence, spec.citation, spec.how_to_get):
        assert text
        assert not text.endswith(".")  # they are put into sentences
    assert spec.way <= spec.n_novel
    own = spec.n_novel + spec.n_val + (0 if spec.base_from else spec.n_base)
    assert own <= spec.n_classes
    if spec.base_from:
        assert get_spec(spec.base_from).n_base == spec.n_base
        assert get_spec(spec.base_from).view_dims == spec.view_dims
    assert len(set(spec.view_names)) == spec.n_views >= 2
    assert spec.checksum is None or len(bytes.fromhex(spec.checksum)) == 32
    assert bool(spec.files) != spec.embedded
    assert spec.paper_table is None or spec.paper_table in PAPER_TABLES
    assert spec.fetchable == (name in ("handwritten", "leaves100"))
    assert not spec.fetchable or f"fewview data fetch {name}" in spec.how_to_get


@pytest.mark.parametrize("name", [n for n in names() if get_spec(n).paper_table])
def test_settings_agree_with_the_papers_tables(name: str) -> None:
    """Way, shot and number of views are printed in the captions, which paper.csv holds."""
    spec = get_spec(name)
    assert spec.paper_table is not None
    path = Path(__file__).parents[2] / "reproduction" / "paper.csv"
    number = str(PAPER_TABLES.index(spec.paper_table) + 1)
    rows = [row for row in csv.DictReader(path.open(encoding="utf-8")) if row["table"] == number]
    assert rows
    assert {(int(row["way"]), int(row["shot"])) for row in rows} == {(spec.way, spec.shot)}
    if spec.same_as_paper in ("yes", "recomputed"):
        assert {int(row["views"]) for row in rows} == {spec.n_views}


def test_specs_can_be_hashed_pickled_and_turned_into_plain_values() -> None:
    spec = get_spec("orl")
    assert pickle.loads(pickle.dumps(spec)) == spec
    assert hash(spec) == hash(pickle.loads(pickle.dumps(spec)))
    assert asdict(spec)["n_anchors"] == 50


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("handwriten", "handwritten"), ("CUB", "cub_googlenet_doc2vec"), ("Scene-15", "scene15"),
     ("birds", "birds200"), ("tieredimagenet-tiny", "tieredimagenet_tiny")],
)  # fmt: skip
def test_unknown_name_proposes_close_matches(typed: str, meant: str) -> None:
    with pytest.raises(FewviewError, match=rf"did you mean .*{meant}"):
        get_spec(typed)


def test_unknown_name_without_close_match_lists_all() -> None:
    with pytest.raises(FewviewError, match=r"no data set 'xyzzy'; known: cub_.*digits"):
        get_spec("xyzzy")


def test_folder_argument_then_environment_then_cache(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("FEWVIEW_DATA", str(tmp_path / "environment"))
    assert data_folder(tmp_path / "argument") == tmp_path / "argument"
    assert data_folder() == tmp_path / "environment"
    assert data_folder("~/x") == Path.home() / "x"
    monkeypatch.setenv("FEWVIEW_DATA", "")
    assert data_folder() == cache_folder(sys.platform)
    monkeypatch.delenv("FEWVIEW_DATA")
    assert data_folder() == cache_folder(sys.platform)


def test_cache_folder_follows_the_customs_of_each_system(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("LOCALAPPDATA", raising=False)
    assert cache_folder("linux") == tmp_path / ".cache" / "fewview"
    assert cache_folder("darwin") == tmp_path / "Library" / "Caches" / "fewview"
    assert cache_folder("win32") == tmp_path / "AppData" / "Local" / "fewview" / "Cache"
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere/cache")
    assert cache_folder("linux") == Path("/somewhere/cache/fewview")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")  # to be ignored, says the specification
    assert cache_folder("linux") == tmp_path / ".cache" / "fewview"
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "Local"))
    assert cache_folder("win32") == tmp_path / "Local" / "fewview" / "Cache"


def test_path_prefers_what_exists(tmp_path: Path) -> None:
    assert path_of("animal", tmp_path) == tmp_path / "animal.npz"
    assert not is_present("animal", tmp_path)
    (tmp_path / "animal.mat").touch()
    assert path_of("animal", tmp_path) == tmp_path / "animal.mat"
    assert is_present("animal", tmp_path)
    (tmp_path / "animal.npz").touch()
    assert path_of("animal", tmp_path) == tmp_path / "animal.npz"
    assert path_of("digits", tmp_path) is None
    assert is_present("digits", tmp_path)


def test_importing_the_room_is_light() -> None:
    code = (
        "import sys, fewview.datasets; "
        "print([m for m in ('torch', 'sklearn', 'matplotlib', 'pooch') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout.strip() == "[]"


def test_every_public_name_is_exported_and_documented() -> None:
    for name in fewview.datasets.__all__:
        assert getattr(fewview.datasets, name).__doc__


@pytest.mark.parametrize("module", ["spec", "catalogue", "digits", "loading", "splits", "fetching"])
def test_examples_in_docstrings(module: str) -> None:
    result = doctest.testmod(
        importlib.import_module(f"fewview.datasets._{module}"), optionflags=doctest.ELLIPSIS
    )
    assert result.attempted > 0
    assert result.failed == 0
