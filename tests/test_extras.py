"""Without an optional library its feature names the extra that brings it."""

from __future__ import annotations

import importlib.util
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from fewview import FewviewError, MultiViewData

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize(
    ("library", "extra"), [("pyarrow", "frames"), ("anndata", "omics"), ("distributed", "cluster")]
)
def test_without_an_extra_its_feature_names_it(
    library: str, extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fewview.evaluate._cluster import connect
    from fewview.ground._rows import save

    find = importlib.util.find_spec

    def not_there(name: str, package: str | None = None) -> Any:
        return None if name.partition(".")[0] == library else find(name, package)

    monkeypatch.setitem(sys.modules, library, None)  # importing it fails
    for place in ("fewview.errors.find_spec", "importlib.util.find_spec"):
        monkeypatch.setattr(place, not_there)
    (tmp_path / "a.h5ad").write_bytes(b"\x89HDF\r\n\x1a\n")
    deeds = {
        "pyarrow": lambda: save([{"a": 1}], ["a"], "parquet", tmp_path / "a.parquet"),
        "anndata": lambda: MultiViewData.read(tmp_path / "a.h5ad"),
        "distributed": lambda: connect("tcp://127.0.0.1:1", 0.1),
    }
    with pytest.raises(FewviewError, match=rf"fewview\[{extra}\]"):
        deeds[library]()


def test_messages_name_extras_that_exist() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    files = [*(ROOT / "src").rglob("*.py"), *(ROOT / "docs").glob("*.md")]
    named = {
        word
        for path in files
        for found in re.findall(r"fewview\[([\w,]+)\]", path.read_text(encoding="utf-8"))
        for word in found.split(",")
    }
    assert named <= set(project["optional-dependencies"])
