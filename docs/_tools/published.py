"""Pages and pictures made from recorded results: the paper's tables, figures and claims.

python docs/_tools/published.py                # writes docs/paper-*.md and docs/images/measured
python docs/_tools/published.py --records DIR --output DIR

Nothing on these pages is written by hand, and nothing is computed but the verdicts.
"""

from __future__ import annotations

import argparse
import json
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fewview.datasets._catalogue import get_spec
from fewview.drawing._charts import save_figure
from fewview.ground._errors import FewviewError
from fewview.paper._compute import Desk
from fewview.paper._make import make
from fewview.paper._pictures import Picture
from fewview.paper._printed import METHODS, TABLES, printed
from fewview.paper._recorded import FOLDER
from fewview.paper._sheets import Sheet, write_texts
from fewview.paper._studies import FIGURES, NAMES, Wish

DOCS = Path(__file__).resolve().parents[1]
PICTURES = "images/measured"
MEASURED = DOCS.parent / "benchmarks" / "results"
MADE_OF_BENCHMARKS = (
    "Made by `python docs/_tools/published.py` from `benchmarks/results/paper-*.json`, which the "
    "commands below write with `--json`. What they mean is in [UGDA in fewview](ugda.md) and "
    "[The paper regenerated](reproduction.md)."
)
# Whether data are here must change nothing on the pages.
WISH = Wish(data_dir="no-data-are-looked-for")
HOW = (
    "Made by `python docs/_tools/published.py` from the recorded results that come with fewview "
    "(`src/fewview/paper/recorded`); `fewview reproduce all` prints the same in the terminal. What "
    "the names mean and how to compute them is in [The paper regenerated](reproduction.md)."
)


def product(name: str, records: Path) -> Sheet | Picture | str:
    """What a name stands for, from recorded results, or why there is nothing."""
    try:
        desk = Desk(recorded=True, records=records)
        return make(name, WISH, desk, f"fewview reproduce {name}")
    except FewviewError as error:
        return str(error)


def paragraphs(lines: Sequence[str]) -> str:
    """A list with lines of readable length."""
    wrap = textwrap.TextWrapper(
        98, initial_indent="- ", subsequent_indent="  ", break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip
    return "\n".join(wrap.fill(line) for line in lines)


def paragraph(text: str) -> str:
    """Text with lines of readable length."""
    return textwrap.fill(text, 98, break_long_words=False, break_on_hyphens=False)


def section(sheet: Sheet, table: str, above: str = "") -> str:
    """One product: title, where it comes from, perhaps a picture, its table, what it sums up to."""
    _, protocol, versions, command, *notes = sheet.head()
    told = [protocol, versions, command, *notes]
    if any("nothing is recorded" in note for note in notes):
        told = notes
    below = [paragraph(line) for line in sheet.summary]
    return "\n\n".join(filter(None, [f"## {sheet.title}", paragraphs(told), above, table, *below]))


# ---------------------------------------------------------------------- tables


def tables_page(records: Path) -> str:
    """The nine tables, all cells: ours beside the paper's."""
    intro = (
        "Each entry has ours in percent with the standard error over episodes, the lowest and "
        "highest class split, then the paper's number and by how much ours is above it (*in "
        "italics* where it lies outside our range over class splits). Where the paper has no such "
        "row or ours is missing there is a dash."
    )
    short = (
        "In short: cells where both have a number, of these the paper's inside our range over "
        "class splits, and how far ours are from the paper's on average, over all class splits and "
        "over the [likely ones](reproduction.md#which-class-split-did-the-paper-use). On other "
        "features than the paper's its digits are not to be met; of orl no class split fits."
    )
    sheets = {}
    for name in TABLES:
        made = product(name, records)
        if not isinstance(made, Sheet):
            raise TypeError(f"{name}: a table is a sheet, not {made!r}")
        sheets[name] = made
    parts = ["# The paper's tables beside ours", paragraph(HOW), paragraph(short), in_short(sheets)]
    parts += [paragraph(intro), *(section(made, matrix(made.rows)) for made in sheets.values())]
    return "\n\n".join(parts) + "\n"


def in_short(sheets: Mapping[str, Sheet]) -> str:
    """A line for every table: on whose features, and how near it comes."""
    words = {"yes": "the paper's"}
    body = []
    for name, sheet in sheets.items():
        both = [row for row in sheet.rows if row.get("difference") is not None]
        likely = [row for row in sheet.rows if None not in (row.get("likely"), row.get("paper"))]
        kinds = {get_spec(row["dataset"]).same_as_paper for row in sheet.rows}
        near = [abs(row["likely"] - row["paper"]) for row in likely]
        body.append([
            name,
            " and ".join(sorted(words.get(kind, kind) for kind in kinds)) if both else "not here",
            f"{len(both)}",
            f"{sum(bool(row.get('inside')) for row in both)}" if both else "-",
            f"{np.mean([abs(row['difference']) for row in both]):.1f}" if both else "-",
            f"{np.mean(near):.1f} ({len(near)} cells)" if near else "-",
        ])  # fmt: skip
    head = ["table", "features", "cells", "inside", "distance", "on likely splits"]
    return table_lines(head, body)


def matrix(rows: Sequence[dict[str, Any]]) -> str:
    """Methods down, missing rates across."""
    several = len({row["dataset"] for row in rows}) > 1
    etas = list(dict.fromkeys(row["eta"] for row in rows))
    lines: dict[str, list[str]] = {}
    for row in rows:
        label = f"{row['dataset']}, {row['method']}" if several else row["method"]
        lines.setdefault(label, []).append(entry(row))
    head = ["method", *(f"eta {eta:g}" for eta in etas)]
    body = [[label, *entries] for label, entries in lines.items()]
    return table_lines(head, body)


def table_lines(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    """A Markdown table of texts."""
    return "\n".join(f"| {' | '.join(line)} |" for line in [head, ["---"] * len(head), *body])


def entry(row: dict[str, Any]) -> str:
    """Ours, the range over class splits, and the paper's."""
    out = []
    if isinstance(row["ours"], float):
        out.append(f"**{row['ours']:.2f}** ±{row['se']:.2f}")
        if row["range_low"] is not None:
            out.append(f"{row['range_low']:.1f} to {row['range_high']:.1f}")
    else:
        out.append("unreachable" if row["ours"] == "unreachable" else "-")
    if row.get("likely") is not None:
        out.append(f"likely splits {row['likely']:.2f}")
    if row.get("paper") is None:
        out.append("paper -")
    else:
        gap = f" ({row['difference']:+.2f})" if row.get("difference") is not None else ""
        text = f"paper {row['paper']:.2f}{gap}"
        out.append(f"*{text}*" if row.get("inside") is False else text)
    return "<br>".join(out)


# ---------------------------------------------------------------------- figures and claims


def plain_section(sheet: Sheet, above: str = "") -> str:
    """A product whose table is shown as it is."""
    lines = [line for line in sheet.markdown().splitlines() if line.startswith("|")]
    return section(sheet, "\n".join(lines), above)


def figures_page(records: Path, pictures: Path | None = None) -> str:
    """Figures that recorded means can draw, and the numbers of the others; pictures into a folder.

    A name that is neither a table nor the claims is shown here.
    """
    parts = ["# The paper's figures, and studies beyond it", paragraph(HOW)]
    missing = []
    for name in (*FIGURES, *(n for n in NAMES if n not in (*TABLES, *FIGURES, "claims"))):
        made = product(name, records)
        if isinstance(made, str):
            missing.append(name)
        elif isinstance(made, Picture):
            if pictures is not None:
                pictures.mkdir(parents=True, exist_ok=True)
                save_figure(made.figure, pictures / f"{name}.svg")
            parts.append(plain_section(made.sheet, f"![{name}]({PICTURES}/{name}.svg)"))
        else:
            parts.append(plain_section(made))
    if missing:
        parts.append(paragraph(f"Nothing is recorded yet of {', '.join(missing)}."))
    return "\n\n".join(parts) + "\n"


def claims_page(records: Path) -> str:
    """All sentences with their verdicts."""
    parts = ["# The paper's claims, judged", paragraph(HOW)]
    made = product("claims", records)
    parts.append(plain_section(made) if isinstance(made, Sheet) else paragraph(str(made)))
    return "\n\n".join(parts) + "\n"


# What was changed, by what scripts of benchmarks/ call it: point of the list below, in words.
CHANGES = {
    "gaps filled": (1, "gaps left as they are -> filled as the paper says"),
    "N_F 0 to 100": (2, "N_F 0 (original embeddings) -> 100"),
    "k 0 to 1": (2, "k 0 (original embeddings) -> 1"),
    "rectified": (5, "anchors of phase one -> rectified anchors"),
    "novel pool, padding none": (5, "trained on base classes -> on novel samples; gaps left"),
    "novel pool, padding episode": (5, "trained on base classes -> on novel samples; gaps filled"),
    "published sizes": (5, "affordable sizes -> published sizes"),
}
POINTS = (
    "Missing views of the compared methods.",
    "No anchors (N_F = 0) and no neighbours (k = 0) classify the original embeddings.",
    "Self-rectification by our fast search, and by the paper's 1000 steps of Adam.",
    "Ridge and logit scale: of the released code, and as printed (none, and 1).",
    "Combinations on rectified anchors; where COMPLETER is trained; sizes of networks.",
)
SETTINGS_INTRO = (
    "One row per setting, method, data set and missing rate: accuracy in percent before and after, "
    "the paper's number, and the change with its standard error over class splits (point 3: over "
    "tasks) where both had the same tasks. Numbers are means over class splits of ours, the "
    "paper's is of one that is not known. What became the rule of the tables is what the paper "
    "says, or what its printed equations say, never what is nearest to its numbers. Points:"
)


def settings_page(measured: Path = MEASURED) -> str:
    """One table of what settings change, then what scripts of benchmarks/ have kept of solvers."""
    files = sorted(measured.glob("paper-*.json"))
    kept = {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in files}
    numbers = {
        (dataset, METHODS[method], f"{eta:g}"): f"{number.accuracy:.1f}"
        for (table, dataset, method, eta), number in printed().items()
        if table != "ablation"
    }
    letters = dict(zip(kept, "abcdefghijklmnop", strict=False))
    body = sorted(
        ([str(point), what, method, dataset, eta, before, after,
          numbers.get((dataset, method, eta), "-"), change, letters[name]]
         for name, found in kept.items()
         for point, what, method, dataset, eta, before, after, change in changes(found)),
        key=lambda row: row[0],
    )  # fmt: skip
    used = {row[-1] for row in body}
    head = ["point", "setting", "method", "data set", "eta", "before", "after", "paper", "change",
            "by"]  # fmt: skip
    told = [
        f"{letters[name]}: `{found['command']}` ({found['device']}, {found['computed']})"
        for name, found in kept.items()
        if letters[name] in used
    ]
    parts = ["# The paper's settings, one by one", paragraph(MADE_OF_BENCHMARKS)]
    parts += ["## Before and after, beside the paper", paragraph(SETTINGS_INTRO)]
    parts += ["\n".join(f"{k}. {text}" for k, text in enumerate(POINTS, 1))]
    parts += [table_lines(head, body), paragraphs(told)]
    for name, found in kept.items():
        if name.startswith("paper-changes"):
            continue
        told = [f"command: {found['command']}", f"{found['device']}, {found['computed']}"]
        notes = [paragraph(note) for note in found.get("notes", ())]
        table = table_lines(found["columns"], found["rows"])
        parts += [f"## {found['title']}", paragraphs(told), *notes, table]
    return "\n\n".join(parts) + "\n"


def changes(found: dict[str, Any]) -> Iterator[tuple[Any, ...]]:
    """What a kept table says of changes: point, words, method, set, eta, before, after, change."""
    columns, rows = found["columns"], found["rows"]
    if columns[0] == "setting":
        for setting, method, dataset, eta, before, after, _, change in rows:
            yield *CHANGES[setting], method, dataset, eta, before, after, change.replace("+- ", "±")
    elif "ridge and scale" in columns:
        ours = {(*row[:3], *row[4:6]): float(row[6].partition(" ")[0]) for row in rows}
        for (dataset, eta, split, solver, how), before in ours.items():
            if how == "released":
                after = ours[dataset, eta, split, solver, "printed"]
                what = f"of the released code -> as printed; solver {solver}, class split {split}"
                pair = (f"{before:.1f}", f"{after:.1f}", f"{after - before:+.1f}")
                yield 4, what, "ugda", dataset, eta, *pair
    elif "what they differ in" not in found["title"]:
        by = {tuple(row[:4]): row for row in rows}
        for (dataset, eta, rule, rectifier), row in by.items():
            if rectifier == "fast":
                gap, error = row[5].split(" ±")
                before, after = (float(one[4]) for one in (row, by[dataset, eta, rule, "adam"]))
                what = f"fast -> 1000 steps of Adam; mean rule of the {rule}"
                change = f"{-float(gap):+.1f} ±{float(error):.1f}"
                yield 3, what, "ugda", dataset, eta, f"{before:.1f}", f"{after:.1f}", change


def pages(records: Path = FOLDER, pictures: Path | None = None) -> dict[str, str]:
    """All pages: name -> text."""
    return {
        "paper-tables.md": tables_page(records),
        "paper-figures.md": figures_page(records, pictures),
        "paper-claims.md": claims_page(records),
        "paper-settings.md": settings_page(),
    }


def main() -> int:
    """Write the pages and pictures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--records", type=Path, default=FOLDER, help="folder of recorded results")
    parser.add_argument("--output", type=Path, default=DOCS, help="folder of the pages")
    options = parser.parse_args()
    for file in write_texts(options.output, pages(options.records, options.output / PICTURES)):
        print(file)
    return 0


if __name__ == "__main__":
    sys.exit(main())
