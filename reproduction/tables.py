"""The paper's tables beside ours, and how tables are written: text, Markdown, CSV, LaTeX."""

from statistics import fmean
from typing import Any

import pandas as pd

from fewview.datasets import get_spec
from reproduction.likely_splits import Printed, weighed
from reproduction.run import Study

NEVER, ABSENT = "unreachable", "not available"
FORMATS = ("text", "markdown", "csv", "latex")
COLUMNS = ["dataset", "method", "eta", "ours", "se", "likely", "paper", "paper_se", "difference",
           "low", "high", "inside", "splits", "episodes"]  # fmt: skip


def printed_in(paper: pd.DataFrame, study: Study, place: str = "") -> Printed:
    """Accuracy and standard error that the paper prints: row and rate -> number."""
    some = paper[paper["table"] == study.options.get("table")]
    some = some[some["dataset"].str.lower() == place] if place else some
    return {(row.method, row.eta): (row.acc, row.se) for row in some.itertuples()}


def beside_paper(results: pd.DataFrame, paper: pd.DataFrame, study: Study) -> pd.DataFrame:
    """A row per data set, row of the table and rate: ours, the paper's, inside our range or not.

    The range is over class splits; a bound that is equal to two decimals is inside.
    """
    rows: list[dict[str, Any]] = []
    for path, dataset in {part.study: part.dataset for part in study.parts}.items():
        printed = printed_in(paper, study, path.partition("/")[2])
        ours = dict(list(results[results["study"] == path].groupby(["method", "eta"])))
        _, likely = weighed(study.name, results, printed)
        for key in [(method, eta) for method in study.rows for eta in study.options["rates"]]:
            why = NEVER if key[1] in study.options.get("never", ()) else ABSENT
            row: dict[str, Any] = {"dataset": dataset, "method": key[0], "eta": key[1], "ours": why,
                                   "likely": likely.get(key)}  # fmt: skip
            if key in printed:
                row["paper"], row["paper_se"] = printed[key]
            if key in ours:
                found = [*ours[key]["accuracy"]]
                row["ours"] = round(fmean(found), 4)  # as many digits as are recorded
                row["se"] = ours[key]["standard_error"].iloc[0]
                row["splits"] = 1 if get_spec(dataset).fixed_split else len(found)
                row["episodes"] = int(ours[key]["episodes"].sum())
                if "paper" in row:
                    row["difference"] = row["ours"] - row["paper"]
                if row["splits"] > 1:
                    row["low"], row["high"] = min(found), max(found)
                if "paper" in row and "low" in row:
                    inside = round(row["low"], 2) <= row["paper"] <= round(row["high"], 2)
                    row["inside"] = "yes" if inside else "no"
            rows.append(row)
    return pd.DataFrame(rows, columns=COLUMNS, dtype=object)


def summarise(table: pd.DataFrame) -> str:
    """How many of the paper's numbers are inside our range, and how far ours are on average."""
    gaps, judged = table["difference"].dropna().abs(), table["inside"].dropna()
    if gaps.empty:
        return "nothing to compare"
    inside = "one class split, so there is no range over class splits"
    if len(judged):
        inside = "the paper's number lies inside our range over class splits in "
        inside += f"{(judged == 'yes').sum()} of {len(judged)} cells"
    return f"{inside}; mean absolute difference {gaps.mean():.2f} points over {len(gaps)} cells"


def notes(table: pd.DataFrame) -> list[str]:
    """What a reader of a table has to know."""
    specs = [get_spec(name) for name in table["dataset"].unique()]
    out = [f"{x.name} ({x.same_as_paper}): {x.note}" for x in specs if x.same_as_paper != "yes"]
    if (table["ours"] == ABSENT).all():
        out.append(f"data set {specs[0].name!r} is not public. {specs[0].how_to_get}")
    if (table["method"] == "CPM-GAN").any() and table["difference"].notna().any():
        out.append("CPM-GAN equals CPM: with gaps filled as the paper says, no view lacks")
    return out


def entry(value: Any, column: str = "") -> str:
    """A value as it is written: two decimals, differences signed, rates as the paper has them."""
    if value is None or value != value:
        return "-"
    if not isinstance(value, float):
        return str(value)
    if column == "difference":
        return f"{value:+.2f}"
    return f"{value:.3g}" if column == "eta" or 0 < abs(value) < 0.005 else f"{value:.2f}"


def written(table: pd.DataFrame, form: str = "text") -> str:
    """A table in one of `FORMATS`; LaTeX needs the package booktabs."""
    texts = pd.DataFrame({name: [entry(v, name) for v in table[name]] for name in table})
    if form == "csv":
        return str(texts.to_csv(index=False, lineterminator="\n"))
    if form == "latex":
        escaped = texts.rename(columns=lambda name: name.replace("_", r"\_"))
        return str(escaped.style.format(escape="latex").hide(axis="index").to_latex(hrules=True))
    lines = [list(texts.columns), *texts.to_numpy().tolist()]
    if form == "markdown":
        lines.insert(1, ["---"] * len(lines[0]))
        return "".join(f"| {' | '.join(line)} |\n" for line in lines)
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "".join("  ".join(map(str.ljust, line, widths)).rstrip() + "\n" for line in lines)
