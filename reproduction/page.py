"""The page `docs/reproduction.md`: the words of `page.md.j2`, the numbers of the records."""

from typing import Any

import jinja2

from reproduction.claims import counts, recorded_verdicts, summary
from reproduction.likely_splits import weighed
from reproduction.records import HERE, origin, read_json, read_paper, read_results
from reproduction.run import load_studies
from reproduction.tables import beside_paper, entry, notes, printed_in, summarise

PAGE = HERE.parent / "docs" / "reproduction.md"
SETS = ("cub", "handwritten", "caltech102", "scene15", "orl")  # no stand-ins


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

    template = jinja2.Environment(undefined=jinja2.StrictUndefined, trim_blocks=True,
                                  lstrip_blocks=True, keep_trailing_newline=True)  # fmt: skip
    template.filters |= {"cell": _cell}
    return template.from_string((HERE / "page.md.j2").read_text(encoding="utf-8")).render(
        summary=summary(), claims=found.to_dict("records"), apart=counts(found, stand_in=True),
        origin=origin(results), tasks=read_json("tasks"), studies=studies, tables=tables,
        splits=splits, sets=SETS, notes=notes, summarise=summarise,
    )  # fmt: skip


def _cell(row: Any) -> str:
    """Ours, the range over class splits, and the paper's number."""
    ours = f"{row.ours:.1f}" if isinstance(row.ours, float) else "-"
    ours += f" ({row.low:.0f}-{row.high:.0f})" if entry(row.low) != "-" else ""
    paper = f"{row.paper:.1f}" if entry(row.paper) != "-" else "-"
    return f"{ours}<br>{f'*{paper} outside*' if row.inside == 'no' else paper}"
