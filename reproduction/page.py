"""The page `docs/reproduction.md`: the words of `page.md.j2`, the numbers of the records."""

from __future__ import annotations

from typing import Any

import jinja2
import pandas as pd

from reproduction.claims import counts, recorded_verdicts, summary
from reproduction.likely_splits import weighed
from reproduction.records import HERE, origin, read_json, read_paper, read_results
from reproduction.run import load_studies
from reproduction.tables import beside_paper, entry, notes, printed_in, summarise

PAGE = HERE.parent / "docs" / "reproduction.md"
SETS = ("cub", "handwritten", "caltech102", "scene15", "orl")  # no stand-ins
EXACT = ("cub", "handwritten", "scene15")  # the paper's own arrays


def build() -> str:
    """The whole page."""
    results, paper, found = read_results(), read_paper(), recorded_verdicts()
    studies = {name: study for name, study in load_studies().items() if "table" in study.options}
    tables = {name: beside_paper(results, paper, study) for name, study in studies.items()}
    splits = []
    for name in SETS:
        printed = printed_in(paper, studies[name])
        likely, means = weighed(name, results, printed)
        gaps = [mean - printed[key][0] for key, mean in means.items() if "UGDA" in key[0]]
        usual = tables[name][tables[name]["method"].str.contains("UGDA")]["difference"]
        splits.append((name, likely, usual.mean(), sum(gaps) / len(gaps)))

    def column(row: str, names: tuple[str, ...], what: str) -> list[pd.Series]:
        some = (tables[name] for name in names)
        return [t[(t["method"] == row) | (row == "all rows")][what].dropna() for t in some]

    template = jinja2.Environment(undefined=jinja2.StrictUndefined, trim_blocks=True,
                                  lstrip_blocks=True, keep_trailing_newline=True)  # fmt: skip
    template.filters |= {"cell": _cell}
    return template.from_string((HERE / "page.md.j2").read_text(encoding="utf-8")).render(
        summary=summary(), claims=found.to_dict("records"), apart=counts(found, stand_in=True),
        origin=origin(results), tasks=read_json("tasks"), studies=studies, tables=tables,
        splits=splits, gaps=lambda row: [gap.mean() for gap in column(row, SETS, "difference")],
        inside=lambda row: pd.concat(column(row, EXACT, "inside")), notes=notes,
        summarise=summarise,
    )  # fmt: skip


def _cell(row: Any) -> str:
    """Ours, the range over class splits, and the paper's number."""
    ours = f"{row.ours:.1f}" if isinstance(row.ours, float) else "-"
    ours += f" ({row.low:.0f}-{row.high:.0f})" if entry(row.low) != "-" else ""
    paper = f"{row.paper:.1f}" if entry(row.paper) != "-" else "-"
    return f"{ours}<br>{f'*{paper} outside*' if row.inside == 'no' else paper}"
