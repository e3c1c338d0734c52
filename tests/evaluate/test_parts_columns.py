"""What the columns of a table in parts are: the same as those of the whole table."""

from __future__ import annotations

import io
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fewview import FewviewError, FewviewWarning, MultiViewData, create
from fewview.evaluate._progress import PlainProgress, Progress
from fewview.evaluate.parts._larger import gather_parts, predict_parts
from fewview.evaluate.parts._part_columns import reference_of, settled_by_all
from fewview.samples._columns import plain_columns
from fewview.samples._parts import TableParts

NUMBERS = plain_columns(["x", "cell"])
HOW: dict[str, Any] = {"jobs": 1, "cluster": None, "progress": Progress()}


def written(folder: Path, parts: list[list[str]]) -> TableParts:
    """A labelled table of one view, with a column of numbers and these cells beside it."""
    count = 0
    for number, cells in enumerate(parts):
        (folder / f"{number}").mkdir(parents=True)
        ids = range(count, count + len(cells))
        rows = [f"{k},{k * k % 7}.5,{cell}" for k, cell in zip(ids, cells, strict=True)]
        (folder / f"{number}" / "a.csv").write_text("\n".join(["id,x,cell", *rows]) + "\n")
        labels = [f"{k},{'pq'[k % 2]}" for k in ids]
        (folder / f"{number}" / "labels.csv").write_text("\n".join(["id,label", *labels]) + "\n")
        count += len(cells)
    return TableParts.open(folder)


def read(table: TableParts) -> MultiViewData:
    """All samples of a table in parts, in the form that its parts agree on."""
    reference, _ = reference_of(table, **HOW)
    table = TableParts(table.folders, table.ends, {**table.reading, "like": reference})
    return table.read(0, table.n_samples)


ISO, DOTTED = ["2024-05-31", "2024-06-02"], ["31.5.2024", "1.12.2023"]
DAY_FIRST, MONTH_FIRST, EITHER = ["29/12/2023"], ["12/29/2023"], ["1/2/2024", "2/1/2024"]
MANY_ISO = [f"2024-01-{day:02d}T{hour}:00" for day in range(1, 29) for hour in (10, 11)]


@pytest.mark.parametrize(
    "parts",
    [
        [ISO, DOTTED, DAY_FIRST],
        [DAY_FIRST, DOTTED, ISO],
        [ISO, MONTH_FIRST, ["31 May 2024"]],
        [EITHER, ISO, DAY_FIRST],
        [MONTH_FIRST, EITHER],
        [MANY_ISO, EITHER, DAY_FIRST],
        [[""], DAY_FIRST, ISO],
        [DAY_FIRST, MONTH_FIRST],
        [ISO, ["soon", "2024-05-31"]],
        [["Yes", "no"], ["maybe"]],
        [["yes"], ["maybe"]],
        [["yes", "no"], ["true"]],
        [["Yes", "no"], ["y e s"], ["1", "0"]],
        [["5 kg"], ["3 lb"]],
        [["5 kg"], ["many"]],
        [["5 kg"], ["3 kg"]],
        [["-"], [f"{k}.5" for k in range(20)]],
        [["-", "dry"], ["wet"]],
        [["dry"] * 3, ["1", "2"]],
        [[f"w{k}" for k in range(30)], [f"v{k}" for k in range(30)]],
        [[f"w{k}" for k in range(60)], ISO],
    ],
)
def test_parts_are_read_as_the_whole_is(tmp_path: Path, parts: list[list[str]]) -> None:
    whole = [cell for cells in parts for cell in cells]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FewviewWarning)  # numbers among words
        wanted = MultiViewData.read(written(tmp_path / "whole", [whole]).folders[0])
        one, found = read(written(tmp_path / "one", [whole])), read(written(tmp_path / "p", parts))
    for data in (one, found):
        # Views of numbers alone may have kinds, or none.
        assert data.kinds.get("a", NUMBERS) == wanted.kinds.get("a", NUMBERS)
        assert data.columns == wanted.columns
        np.testing.assert_array_equal(data.view("a"), wanted.view("a"))


def test_base_sets_of_several_notations_are_learnt_from(tmp_path: Path) -> None:
    day_first = ["29/12/2023", "3/1/2024", "2/1/2024"]
    cells = [["2024-05-31", "2024-06-02"] * 3, ["31.5.2024", "1.12.2023"] * 3, day_first * 2]
    whole = [cell for part in cells for cell in part]
    models = []
    for name, parts in {"one": [whole], "three": cells, "turned": [*cells[::-1]]}.items():
        table = written(tmp_path / name, parts)
        for jobs in (1, 2) if name == "three" else (1,):
            clf = create("proto")
            clf.fit_base(gather_parts(clf, table, jobs=jobs, progress=Progress()))
            clf.save(tmp_path / "a.model")
            models.append((tmp_path / "a.model").read_bytes())
    # Other rows have other numbers beside them in the last.
    assert models[0] == models[1] == models[2] != models[3]


def test_what_no_part_tells_is_refused(tmp_path: Path) -> None:
    table = written(tmp_path / "f", [["2024-05-31"], EITHER, EITHER[:1]])
    with pytest.raises(
        FewviewError, match=r"^view 'a': column 'cell' holds '1/2/2024', and no date of .*2024-05"
    ):
        reference_of(table, **HOW)


@pytest.mark.parametrize("many", [1, 2])
def test_cells_of_digits_and_signs_are_told_once(tmp_path: Path, many: int) -> None:
    cells = [[f"{k}/{k + part}" for k in range(30 * many)] for part in (40, 41)]
    table = written(tmp_path / "f", cells)
    with pytest.warns(
        FewviewWarning, match=r"column 'cell' holds '.*all its cells are dig"
    ) as told:
        reference_of(table, **HOW)
    assert len(told) == 1


def test_supports_say_what_their_columns_are_and_queries_the_others(tmp_path: Path) -> None:
    table = written(tmp_path / "q", [EITHER, ["2024-05-31"]])
    (tmp_path / "s").mkdir()
    for cell in ("29/12/2023", ""):
        (tmp_path / "s" / "a.csv").write_text(f"id,x,cell\n100,1,{cell}\n101,2,\n")
        (tmp_path / "s" / "labels.csv").write_text("id,label\n100,p\n101,q\n")
        supports = MultiViewData.read(tmp_path / "s")
        if cell:
            assert settled_by_all(supports, table, **HOW) is supports
            continue
        with pytest.raises(FewviewError, match="no date of the column tells"):
            settled_by_all(supports, table, **HOW)
        table = written(tmp_path / "r", [EITHER, ["29/12/2023"]])
        settled = settled_by_all(supports, table, **HOW)
        assert [c.levels for c in settled.kinds["a"]] == [(), ("day first",)]


def test_errors_name_a_part_once(tmp_path: Path) -> None:
    base = MultiViewData.read(written(tmp_path / "b", [ISO * 2]).folders[0])
    clf = create("proto", base=base).fit(base.with_labels("rsrs"))
    table = written(tmp_path / "q", [ISO, ["not a date"]])
    with pytest.raises(FewviewError, match=r"^\S+/q/1: view 'a': column 'cell' holds 'not a date'"):
        predict_parts(clf, table, tmp_path / "p.csv", progress=Progress())
    # Warnings have no file in front and say the part themselves.
    words = MultiViewData.read(written(tmp_path / "w", [["dry", "wet"] * 2]).folders[0])
    clf, told = create("proto", base=words).fit(words.with_labels("rsrs")), io.StringIO()
    table = written(tmp_path / "v", [["dry"], ["old"]])
    predict_parts(clf, table, tmp_path / "o.csv", progress=PlainProgress(told))
    assert "warning: 1: view 'a': 1 cell holds a category" in told.getvalue()
