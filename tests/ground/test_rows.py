from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from fewview.errors import shorten
from fewview.ground._rows import cell_text, plain_table, render, save
from fewview.results._summaries import pivot
from fewview.samples import FewviewError


def row(**changes: object) -> dict[str, object]:
    values: dict[str, object] = {
        "dataset": "digits", "method": "proto", "way": 3, "shot": 1, "eta": 0.0, "accuracy": 84.15,
        "standard_error": 0.59, "split_low": 75.6, "split_high": 93.6, "n_episodes": 400,
        "seconds": 1.0, "seconds_base": 0.5, "ci_low": 80.0, "ci_high": 88.0, "n_splits": 10,
    }  # fmt: skip
    return values | changes


def test_pivot_is_sorted_by_mean_and_incomplete_methods_come_last() -> None:
    rows = [row(eta=e, method=m, accuracy=a) for e, m, a in [
        (0.0, "low", 50.0), (0.5, "low", 40.0), (0.0, "high", 80.0), (0.5, "high", 70.0),
        (0.0, "partial", 99.0),
    ]]  # fmt: skip
    (table,) = pivot(rows)
    assert [line[0] for line in table.lines] == ["high", "low", "partial"]
    assert table.header == ("method", "eta 0", "eta 0.5", "seconds")
    assert table.lines[2][2] == "-"


def test_fixed_split_has_no_spread() -> None:
    (table,) = pivot([row(split_low=None, split_high=None)])
    assert table.lines[0][1] == "84.2 ±0.6"


def test_csv_keeps_all_digits_and_quotes() -> None:
    text = render([row(method='a,"b"', accuracy=1 / 3)], ["method", "accuracy"], "csv")
    assert list(csv.reader(io.StringIO(text)))[1] == ['a,"b"', repr(1 / 3)]


def test_latex_is_escaped() -> None:
    text = render([row(method="a_b:c=50%")], ["method"], "latex")
    assert r"a\_b:c=50\%" in text


def test_unknown_format_is_named() -> None:
    with pytest.raises(FewviewError, match="use one of"):
        render([row()], ["method"], "word")


def test_parquet_round_trip(tmp_path: Path) -> None:
    from pyarrow import parquet

    save([row(), row(split_low=None)], ["method", "split_low"], "parquet", tmp_path / "a.parquet")
    assert parquet.read_table(tmp_path / "a.parquet").to_pydict() == {
        "method": ["proto", "proto"],
        "split_low": [75.6, None],
    }


def test_values_for_people() -> None:
    assert [cell_text(value) for value in (1.23456, None, 3, 0.00012, True, [1, 2])] == [
        "1.23", "", "3", "0.00012", "yes", "1; 2",
    ]  # fmt: skip
    assert shorten([1, 2, 3], limit=2) == "1, 2 and 1 more"


def test_numbers_are_aligned_to_the_right() -> None:
    rows = [{"method": "proto", "accuracy": 83.456}]
    assert plain_table(rows, ["method", "accuracy"]) == "method  accuracy\nproto      83.46"
