"""The picture of the README shows recorded numbers, and is described where it stands."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def picture() -> Any:
    path = ROOT / "docs" / "_tools" / "picture.py"
    spec = importlib.util.spec_from_file_location("picture", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_curves_are_means_of_what_was_recorded(picture: Any) -> None:
    data, table = picture.curves()
    records = json.loads((ROOT / "benchmarks/results/other-data.json").read_text())["records"]
    assert len(table) == 4
    assert "ccle" not in data  # it has the gaps it has
    for method, values in table.items():
        for column, eta in enumerate((0.0, 0.3, 0.5)):
            found = [
                r["accuracy"]
                for r in records
                if (r["method"], r["eta"], r["shot"], r["queries"]) == (method, eta, 1, "balanced")
                and r["dataset"] in data
            ]
            assert len(found) == len(data)
            assert np.mean(found) == pytest.approx(values[:, column].mean())
    first, second, difference, half = picture.paired()
    means = [values.mean() for values in table.values()]
    assert means == sorted(means, reverse=True)
    assert [first, second] == list(table)[:2]
    assert difference.shape == (len(data), 3)
    assert (half > 0).all()


def test_digits_are_of_one_task_and_add_up(picture: Any) -> None:
    rows = picture.digits()
    assert len({row["true"] for row in rows}) == 3
    for row in rows:
        assert row["has"].sum() == 4
        assert (row["evidence"][~row["has"]] == 0).all()
        assert row["evidence"].sum() + row["others"] == pytest.approx(row["margin"])


def test_both_files_are_there_and_described() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for name in ("first.svg", "first-dark.svg"):
        path = f"docs/images/measured/{name}"
        assert path in text
        assert (ROOT / path).stat().st_size < 150_000
        assert ElementTree.parse(ROOT / path).getroot().tag.endswith("svg")
    assert len(re.findall(r'alt="[^"]{80,}"', text)) == 1
