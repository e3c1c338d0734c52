"""`fewview data convert` and `show` between all formats."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import anndata
import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from fewview.cli._app import app
from fewview.errors import FewviewError, FewviewWarning
from fewview.files import kept_reader
from fewview.samples._data import MultiViewData

TARGETS = ("a.npz", "a.mat", "a.h5ad", "a.h5mu", "csv", "parquet", "npy")


@pytest.fixture(autouse=True, scope="module")
def _one_process_for_all_foreign_files() -> Iterator[None]:
    with kept_reader():
        yield


def call(*words: str | Path) -> str:
    result = CliRunner().invoke(app, ["data", *map(str, words)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def convert(source: Path, target: Path) -> None:
    options = [] if target.suffix else ["--format", target.name]
    assert f"written: {target}" in call("convert", source, target, *options)


def sample() -> MultiViewData:
    return MultiViewData(
        {"rna": np.arange(12.0).reshape(4, 3) / 7, "X": np.ones((4, 2), np.float32)},
        ["p", None, "q", "p"],
        ids=[9, 8, 7, 6],
        mask=[[True, False], [True, True], [False, True], [True, True]],
        columns={"rna": ["c", "d", "e"]},
    )


def test_from_every_format_to_every_other(tmp_path: Path) -> None:
    """A round tour in both directions, and every format from and to .npz."""
    data = sample()
    start = tmp_path / "start.npz"
    data.write(start)
    tour = [start]
    for number, target in enumerate((*TARGETS, *reversed(TARGETS), *TARGETS[::2], *TARGETS[1::2])):
        folder = tmp_path / str(number)
        folder.mkdir()
        tour.append(folder / target)
    for source, target in pairwise(tour):
        convert(source, target)
        assert MultiViewData.read(target) == data, f"{source} -> {target}"


def test_labels_by_name(tmp_path: Path) -> None:
    file = tmp_path / "cells.h5ad"
    obs = pd.DataFrame({"cell_type": ["T", "B"], "donor": ["d1", "d2"]}, index=["x", "y"])
    anndata.AnnData(np.eye(2, dtype=np.float32), obs).write_h5ad(file)
    with pytest.warns(FewviewWarning, match="cell_type, donor"):
        assert "no labels" in call("show", file)
    assert "2 classes" in call("show", file, "--labels", "cell_type")
    assert "2 classes" in call("convert", file, tmp_path / "a.npz", "--labels", "donor")
    assert MultiViewData.read(tmp_path / "a.npz").classes.tolist() == ["d1", "d2"]
    with pytest.raises(FewviewError, match="no column 'age' for the labels; it has cell_type, don"):
        call("convert", file, tmp_path / "b.npz", "--labels", "age")
    assert not (tmp_path / "b.npz").exists()


def test_show_as_a_page(tmp_path: Path) -> None:
    sample().write(tmp_path / "a.npz")
    assert "written: " in call("show", tmp_path / "a.npz", "--html", tmp_path / "a.html")
    text = (tmp_path / "a.html").read_text()
    assert "Missing views by class" in text
    assert "script-src 'none'" in text
    assert "<script" not in text
    with pytest.raises(FewviewError, match="is an input"):
        call("show", tmp_path / "a.npz", "--html", tmp_path / "a.npz")


def test_info_says_the_role_and_whether_it_is_the_papers(tmp_path: Path) -> None:
    sample().write(tmp_path / "a.h5mu")
    lines = [" ".join(line.split()) for line in call("info", "orl").splitlines()]
    assert "role: seen" in lines
    assert any(line.startswith("same as paper: recomputed") for line in lines)
    assert "role:" not in call("info", tmp_path / "a.h5mu")  # a user's own data have none


def test_info_of_a_file_shows_it(tmp_path: Path) -> None:
    sample().write(tmp_path / "a.h5mu")
    found, wanted = (call(name, tmp_path / "a.h5mu") for name in ("info", "show"))
    assert found.partition("next: ")[0] == wanted.partition("next: ")[0]
