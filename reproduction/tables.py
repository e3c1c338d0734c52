"""The paper's tables beside ours, and how tables are written: text, Markdown, CSV, LaTeX."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

import pandas as pd

from fewview.datasets import get_spec, names
from fewview.samples import largest_rate
from reproduction.likely_splits import Key, means
from reproduction.run import Study

NEVER = "unreachable"  # every sample keeps at least one view
ABSENT = "not available"
FORMATS = ("text", "markdown", "csv", "latex")


def printed_in(
    paper: pd.DataFrame, study: Study, place: str = ""
) -> dict[Key, tuple[float, float]]:
    """Accuracy and standard error that the paper prints: row and rate -> number."""
    some = paper[paper["table"] == study.options["table"]]
    if place:
        some = some[some["dataset"].str.lower() == place]
    return {(row.method, row.eta): (row.acc, row.se) for row in some.itertuples()}


def beside_paper(results: pd.DataFrame, paper: pd.DataFrame, study: Study) -> pd.DataFrame:
    """A row per data set, row of the table and rate: ours, the paper's, range, inside or not.

    `likely` is ours on the class splits that the paper may have used. The range is over class
    splits; a bound that is equal to two decimals is inside. A set with one class split has none.
    """
    rows: list[dict[str, Any]] = []
    sets = {part.study: part.dataset for part in study.parts}
    for path, dataset in sets.items():
        printed = printed_in(paper, study, path.partition("/")[2])
        known = dataset in names()
        fixed, highest = False, 1.0
        if known:
            fixed, highest = get_spec(dataset).fixed_split, largest_rate(get_spec(dataset).n_views)
        ours = {
            key: some for key, some in results[results["study"] == path].groupby(["method", "eta"])
        }
        _, likely = means(study.name, results, printed)
        for method in study.rows:
            for eta in study.options["rates"]:
                row: dict[str, Any] = {"dataset": dataset, "method": method, "eta": eta}
                row["ours"] = ABSENT if eta <= highest + 1e-9 else NEVER
                some = ours.get((method, eta))
                if some is not None:
                    accuracies = [*some["accuracy"]]
                    row["ours"] = round(fmean(accuracies), 4)  # as many digits as are recorded
                    row |= {"se": some["standard_error"].iloc[0], "splits": 1 if fixed else len(some),
                            "episodes": int(some["episodes"].sum())}  # fmt: skip
                    if row["splits"] > 1:
                        row |= {"low": min(accuracies), "high": max(accuracies)}
                row["likely"] = likely.get((method, eta))
                if (method, eta) in printed:
                    row["paper"], row["paper_se"] = printed[method, eta]
                    if some is not None:
                        row["difference"] = row["ours"] - row["paper"]
                    if "low" in row:
                        inside = round(row["low"], 2) <= row["paper"] <= round(row["high"], 2)
                        row["inside"] = "yes" if inside else "no"
                rows.append(row)
    columns = ["dataset", "method", "eta", "ours", "se", "likely", "paper", "paper_se", "difference",
               "low", "high", "inside", "splits", "episodes"]  # fmt: skip
    return pd.DataFrame(rows, columns=columns, dtype=object)


def summarise(table: pd.DataFrame) -> str:
    """How many of the paper's numbers are inside our range, and how far ours are on average."""
    gaps = [abs(gap) for gap in table["difference"].dropna()]
    if not gaps:
        return "nothing to compare"
    judged = table["inside"].dropna()
    mean = f"mean absolute difference {sum(gaps) / len(gaps):.2f} points over {len(gaps)} cells"
    if judged.empty:
        return f"one class split, so there is no range over class splits; {mean}"
    return (
        f"the paper's number lies inside our range over class splits in {(judged == 'yes').sum()} "
        f"of {len(judged)} cells; {mean}"
    )


def notes(study: Study, table: pd.DataFrame) -> list[str]:
    """What a reader of a table has to know."""
    out = []
    for dataset in table["dataset"].unique():
        spec = get_spec(dataset) if dataset in names() else None
        words = {"stand-in": f"runs on the stand-in {dataset}, whose digits are not the paper's",
                 "recomputed": f"features of {dataset} were computed again by others"}  # fmt: skip
        if spec is not None and spec.relation in words and study.name != "ablation":
            out.append(f"{words[spec.relation]} ({spec.note})")
        if spec is not None and (table["ours"] == ABSENT).all():
            out.append(f"data set {dataset!r} is not given away. {spec.how_to_get}")
    if "CPM-GAN" in study.rows:
        out.append("CPM-GAN equals CPM: gaps are filled as the paper says, so no view lacks and its "
                   "discriminators have nothing to judge")  # fmt: skip
    if (table["ours"] == NEVER).any():
        out.append(
            "unreachable: every sample keeps a view, so with two views the rate is at most 0.5"
        )
    return out


# ---------------------------------------------------------------------- writing


def entry(value: Any, column: str = "") -> str:
    """A value as it is written: two decimals, differences signed, rates as the paper has them."""
    if value is None or value != value:
        return "-"
    if not isinstance(value, float):
        return str(value)
    if column == "difference":
        return f"{value:+.2f}"
    short = column == "eta" or 0 < abs(value) < 0.005
    return f"{value:.3g}" if short else f"{value:.2f}"


def written(table: pd.DataFrame, form: str = "text") -> str:
    """A table in one of `FORMATS`; LaTeX needs the package booktabs."""
    texts = pd.DataFrame({name: [entry(v, name) for v in table[name]] for name in table})
    if form == "csv":
        return str(texts.to_csv(index=False, lineterminator="\n"))
    if form == "latex":
        return str(texts.style.hide(axis="index").to_latex(hrules=True))
    lines = [list(texts.columns), *texts.to_numpy().tolist()]
    if form == "markdown":
        return markdown(lines[0], lines[1:])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    padded = ("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)
    return "\n".join(padded) + "\n"


def markdown(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A Markdown table of texts."""
    every = [head, ["---"] * len(head), *lines]
    return "".join(f"| {' | '.join(text.replace('|', '/') for text in line)} |\n" for line in every)
