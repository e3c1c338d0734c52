"""What the columns of a table in parts are: what all parts say, whoever looks at them.

A column that holds numbers in the first part holds numbers, and a word later is a mistake. Of words
and empty columns one part tells little, so that all are looked at before anything is learnt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fewview.evaluate.parts._pieces import WORKERS, Job, in_runs, work_through
from fewview.files._folders import part_views
from fewview.samples._columns import (
    Columns,
    Seen,
    Told,
    expanded,
    looking,
    merge_seen,
    plain_columns,
)
from fewview.samples._data import MultiViewData
from fewview.samples._parts import TableParts


@dataclass
class Looking(Job):
    """See what the columns of parts are, each by itself; pieces are parts here."""

    def work(self, numbers: Sequence[int]) -> list[tuple[int, dict[str, Seen]]]:
        """What columns of some parts are, by view."""
        return [(number, _read(self.table, number)[1]) for number in numbers]

    def size(self, numbers: Sequence[int]) -> int:
        """Rows of some parts."""
        ends = (0, *self.table.ends)
        return sum(ends[number + 1] - ends[number] for number in numbers)


def _read(table: TableParts, number: int) -> tuple[MultiViewData, dict[str, Seen]]:
    """A part, and what is seen of its columns."""
    with looking() as told:
        part = table.part(number)
    return part, _seen(part, told)


def _seen(rows: MultiViewData, told: Told) -> dict[str, Seen]:
    """What is seen of columns that have names, and was told when they were read."""
    return {
        view: Seen.of(
            rows.view(view), rows.kinds.get(view) or plain_columns(names), told.get(view, {})
        )
        for view, names in rows.columns.items()
    }


def _look(table: TableParts, **how: Any) -> list[dict[str, Seen]]:
    """What columns are in every part, in the order of the parts; `how` as in `work_through`."""
    runs = in_runs(range(len(table.folders)), how["jobs"] if how["cluster"] is None else WORKERS)
    found = work_through(Looking(table, 1), runs, text="columns", **how)
    by_part = {number: seen for _, run in found for number, seen in run}
    return [by_part[number] for number in sorted(by_part)]


def _form(
    dims: Mapping[str, int], named: Mapping[str, tuple[str, ...]], columns: Mapping[str, Columns]
) -> MultiViewData:
    """No samples, with views of these widths and, where they have names, these columns."""
    widths = {view: sum(c.width for c in some) for view, some in columns.items()}
    names = {view: expanded(some) for view, some in columns.items()}
    return MultiViewData.unchecked(
        {v: np.empty((0, widths.get(v, dims[v])), dtype=np.float32) for v in dims},
        np.empty((0, len(dims)), dtype=bool),
        columns={**named, **names},
        kinds={v: some for v, some in columns.items() if any(c.kind != "number" for c in some)},
    )


def reference_of(table: TableParts, **how: Any) -> tuple[MultiViewData, type]:
    """What a base set in parts consists of, as no samples, and the kind of its labels."""
    seen: list[dict[str, Seen]] = []
    dims: dict[str, int] = {}
    kind: type | None = None
    for number, folder in enumerate(table.folders):
        if part_views(folder) <= dims.keys():  # a table without rows is no view of the part
            continue
        part, own = _read(table, number)
        seen.append(own)
        dims |= {view: width for view, width in part.view_dims.items() if view not in dims}
        kind = kind or next((type(label) for label in part.classes.tolist()), None)
    if not all(one.settled for part in seen for one in part.values()):
        seen = _look(table, **how)
    columns = {
        view: merge_seen(view, [part[view] for part in seen if view in part])
        for view in dims
        if any(view in part for part in seen)
    }
    return _form(dims, {}, columns), kind or str


def settled_by_all(supports: MultiViewData, table: TableParts, **how: Any) -> MultiViewData:
    """Supports without a base set, whose columns without a cell are what the queries say."""
    own = _seen(supports, {})
    if not any(seen.empty for seen in own.values()):
        return supports
    parts = _look(table, **how)
    columns = {}
    for view, seen in own.items():
        others = (part[view] for part in parts if view in part)
        merged = merge_seen(view, [seen.only(seen.empty), *others])
        told = {column.name: column for column in merged}
        columns[view] = tuple(told.get(column.name, column) for column in seen.columns)
    form = _form(supports.view_dims, supports.columns, columns)
    # Of a column without a cell the name alone may be what it was.
    return supports.like(form).with_kinds(form.kinds)
