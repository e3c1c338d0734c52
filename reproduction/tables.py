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
    some = paper[paper["table"] == study.table]
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
        likely = means(study.name, results, printed)
        for method in study.methods:
            for eta in study.rates:
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
    if "CPM-GAN" in study.methods:
        out.append("CPM-GAN equals CPM: gaps are filled as the paper says, so no view lacks and its "
                   "discriminators have nothing to judge")  # fmt: skip
    if (table["ours"] == NEVER).any():
        out.append(
            "unreachable: every sample keeps a view, so with two views the rate is at most 0.5"
        )
    return out


# ---------------------------------------------------------------------- writing


def entry(value: Any, column: str = "") -> str:
    """A value as it is written: two decimals, a sign for differences, rates as the paper has them."""
    if value is None or value != value:
        return "-"
    if isinstance(value, tuple):
        return "; ".join(value) or "-"
    if not isinstance(value, float):
        return str(value)
    if column in ("eta", "p") or 0 < abs(value) < 0.005:
        return f"{value:.2g}" if column == "p" else f"{value:.3g}"
    return f"{value:+.2f}" if column == "difference" else f"{value:.2f}"


def written(table: pd.DataFrame, form: str = "text") -> str:
    """A table in one of `FORMATS`; LaTeX needs the package booktabs."""
    lines = [[entry(v, c) for c, v in zip(table.columns, row, strict=True)]
             for row in table.itertuples(index=False)]  # fmt: skip
    head = [str(column) for column in table.columns]
    if form == "csv":
        return pd.DataFrame(lines, columns=head).to_csv(index=False, lineterminator="\n")
    if form == "markdown":
        return markdown(head, lines)
    if form == "latex":
        return latex(table)
    widths = [max(map(len, column)) for column in zip(head, *lines, strict=True)]
    return "".join(
        "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
        + "\n"
        for line in [head, *lines]
    )


def markdown(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A Markdown table of texts."""
    every = [head, ["---"] * len(head), *lines]
    return "".join(f"| {' | '.join(text.replace('|', '/') for text in line)} |\n" for line in every)


def latex(table: pd.DataFrame) -> str:
    """Methods down, rates across where a table has them: ours with its error, and the paper's."""
    escaped = {"_": r"\_", "%": r"\%", "&": r"\&"}

    def tex(value: Any, column: str = "") -> str:
        return "".join(escaped.get(letter, letter) for letter in entry(value, column))

    if not {"ours", "eta", "paper"} <= set(table.columns):
        head = [tex(column) for column in table.columns]
        body = [[tex(v, c) for c, v in zip(table.columns, row, strict=True)]
                for row in table.itertuples(index=False)]  # fmt: skip
    else:
        head = ["data set", "method", "", *(f"{eta:g}" for eta in table["eta"].unique())]
        body = []
        for place, some in table.groupby(["dataset", "method"], sort=False):
            for who, value, error in (("ours", "ours", "se"), ("paper", "paper", "paper_se")):
                cells = [
                    rf"{row[value]:.2f} {{\scriptsize $\pm$ {row[error]:.2f}}}"
                    if isinstance(row[value], float) and row[value] == row[value] else "--"
                    for _, row in some.iterrows()
                ]  # fmt: skip
                body.append([*map(tex, place), who, *cells])
    rows = [r"\toprule", " & ".join(head) + r" \\", r"\midrule",
            *(" & ".join(line) + r" \\" for line in body), r"\bottomrule"]  # fmt: skip
    spec = "l" * len(head)
    return "\n".join([rf"\begin{{tabular}}{{{spec}}}", *rows, r"\end{tabular}"]) + "\n"
