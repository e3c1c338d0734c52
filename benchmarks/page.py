"""Puts docs/performance.md together from benchmarks/results/*.json, and draws its figure.

python benchmarks/page.py
"""

from __future__ import annotations

import argparse
import json
import textwrap
from pathlib import Path
from typing import Any

from table import HEADER, RESULTS, Row, markdown

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "performance.md"
FIGURE = ROOT / "docs" / "images" / "measured" / "growth.svg"

INTRODUCTION = """\
# Speed and growth

How fast fewview is, against what the machine allows, and how time and memory grow with the job.
This page is written by `python benchmarks/page.py` from the measurements in
`benchmarks/results/`; every section names the command that measured it.
"""

FLOORS = """\
A *floor* is the least time that an answer needs on the machine of that run: the larger of
operations over the measured rate of a float32 matrix product and bytes over the measured rate of
a copy. `benchmarks/floors.py` has the formula of every job. It counts the matrix work and the
traffic that no way of computing the answer can avoid, and leaves out random numbers, softmax,
sorting and what lies between the steps; symmetric products count half. *x reference* is how many
tasks are done in the time of one task of UGDA's solver `reference`, which works as the authors'
released code does, in the same run. Peak memory is what a job adds to the process.
"""


def paragraph(text: str) -> str:
    """Wrapped to the width of a page."""
    return textwrap.fill(text, 98, break_long_words=False, break_on_hyphens=False)


def read(name: str) -> Any:
    """Results of one benchmark, None where it has not run."""
    file = RESULTS / f"{name}.json"
    return json.loads(file.read_text()) if file.exists() else None


def table_section(title: str, content: Any) -> list[str]:
    """The table of jobs."""
    rates = content["rates"]
    where = paragraph(
        f"`{content['command']}` on {content['machine']}. Matrix product "
        f"{rates['product'] / 1e9:,.0f} giga-operations per second, copy "
        f"{rates['copy'] / 1e9:,.1f} GB per second."
    )
    rows = [Row(**row).cells() for row in content["rows"]]
    return [f"## {title}", "", where, "", *markdown(HEADER, rows), ""]


def devices_section(content: Any) -> list[str]:
    """Seconds on a GPU with default settings, before and after, and all tables."""
    labels = list(dict.fromkeys(r["label"] for r in content["rows"] if r["job"] == "times"))
    found: dict[Any, dict[str, str]] = {}
    for row in content["rows"]:
        if row["job"] == "times":
            key = (row["data"], row["method"])
            text = f"{row['seconds']:.3f} ({row['times_floor']:,.0f})"
            found.setdefault(key, {})[row["label"]] = text
    rows = [[*key, *(texts.get(label, "") for label in labels)] for key, texts in found.items()]
    tables = ", ".join(
        f"{row['label']} {row['sets']} data sets {row['seconds']:.0f} s"
        for row in content["rows"] if row["job"] == "all tables"
    )  # fmt: skip
    many = "; ".join(
        f"{row['views']} views, {row['method']} {row['again']:.2f} s"
        for row in content["rows"] if row["job"] == "views"
    )  # fmt: skip
    return [
        "## Default settings on a GPU, before and after", "",
        paragraph(f"`{content['command']}` on {content['machine']}: seconds for 400 episodes of "
                  f"one class split, in brackets how many times the floor. {content['note']}."), "",
        *markdown(["data set", "method", *labels], rows), "",
        paragraph(f"All tables, six missing rates, UGDA and Marginal, one run: {tables}. 480 tasks "
                  f"of made-up data (5-way, 15 queries, 64 features a view): {many}."), "",
    ]  # fmt: skip


def profile_section(content: Any) -> list[str]:
    """How many times their floors methods take on a CPU, and what by the profiler."""
    found = {(row["job"], row["data"], row["method"]): row
             for row in content["rows"] if row["job"] in ("times", "launches")}  # fmt: skip
    rows = [
        [data, method, f"{row['seconds']:.3g}", f"{row['floor']:.2g}", f"{row['times_floor']:.1f}",
         found["launches", data, method]["host"]]
        for (job, data, method), row in found.items() if job == "times"
    ]  # fmt: skip
    header = ("data set", "method", "seconds", "floor, s", "x floor", "dearest operations")
    return [
        "## What stands between a CPU and the floors", "",
        paragraph(f"`{content['command']}` on {content['machine']}: seconds for the episodes of "
                  f"one class split, and what the profiler counts. {content['note']}"), "",
        *markdown(header, rows), "",
    ]  # fmt: skip


def kept_lines(name: str) -> list[str]:
    """A table that a benchmark kept (`common.keep_table`); nothing where it has not run."""
    content = read(name)
    if content is None:
        return []
    where = f"`{content['command']}` on {content['device']}, {content['computed']}."
    return [
        f"## {content['title']}", "", paragraph(" ".join([where, content.get("note", "")])), "",
        *markdown(content["columns"], content["rows"]), "",
    ]  # fmt: skip


def growth_section(content: Any, before: Any) -> list[str]:
    """Exponents, now and before, and every point."""
    fixed = ", ".join(f"{name} {value}" for name, value in content["fixed"].items())
    lines = [
        "## Growth", "",
        paragraph(
            f"`{content['command']}` on {content['machine']}. One size changes, the others are "
            f"held: {fixed} (fewer tasks in the slower curves). An exponent of 1 means that twice "
            "the size takes twice as long; it is fitted to the upper half of the points. "
            f"Before, dotted: {before['note']}"
        ),
        "", "![Seconds against size, one panel per curve](images/measured/growth.svg)", "",
    ]  # fmt: skip
    header = (
        "size that grows", "method", "from", "to", "seconds", "exponent", "exponent before",
        "peak MiB",
    )  # fmt: skip
    rows = []
    for name, curve in content["curves"].items():
        for method, found in curve["methods"].items():
            points = found["points"]
            earlier = before["curves"].get(name, {}).get("methods", {}).get(method)
            rows.append(
                [
                    curve["title"],
                    method,
                    f"{points[0]['size']:,}",
                    f"{points[-1]['size']:,}",
                    " ".join(f"{point['seconds']:.3g}" for point in points),
                    f"{found['exponent']:.2f}",
                    f"{earlier['exponent']:.2f}" if earlier else "",
                    " ".join(f"{point['memory'] / 2**20:.0f}" for point in points),
                ]
            )
    return [*lines, *markdown(header, rows), ""]


def streaming_section(content: Any) -> list[str]:
    """Base statistics from disk."""
    options = content["options"]
    reading = content["jobs"]["read"]["seconds"]
    lines = [
        "## Base classes from disk", "",
        paragraph(
            f"`{content['command']}` on {content['machine']}: {options['rows']:,} rows x "
            f"{options['width']} features of {options['classes']} classes, "
            f"{content['bytes'] / 1e9:.1f} GB. Reading the file alone takes {reading:.1f} s "
            f"({content['bytes'] / 1e9 / reading:.2f} GB per second)."
        ),
        "",
    ]  # fmt: skip
    header = (
        "statistics", "seconds", "matrix-product floor, s", "x the slower of reading and floor",
        "peak MiB on top of the libraries",
    )  # fmt: skip
    rows = [
        [
            name,
            f"{job['seconds']:.1f}",
            f"{job['floor']:.1f}",
            f"{job['seconds'] / job['slower']:.2f}",
            f"{job['memory'] / 2**20:.0f}",
        ]
        for name, job in content["jobs"].items()
        if name != "read"
    ]
    close = paragraph(
        "Rows are scaled in their own dtype. Products of deviations are float32, at most 8192 rows "
        "at a time, and are added up in float64: covariances differ from those of float64 products "
        "by about 1e-6 of the two standard deviations (`tests/engine/test_streaming.py` holds "
        "them to 1e-5). Scaling and Marginal's principal axes come from a sample of 20,000 rows."
    )
    return [*lines, *markdown(header, rows), "", close, ""]


def draw_growth(content: Any, before: Any) -> None:
    """One panel per curve, both axes logarithmic; how it was before is dotted."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "fewview"
    from matplotlib import pyplot as plt
    from matplotlib.ticker import LogLocator

    from fewview.drawing._looks import look_of

    found = content["curves"]
    columns = 2
    rows = -(-len(found) // columns)
    figure, axes = plt.subplots(rows, columns, figsize=(8.4, 3.0 * rows), squeeze=False)
    for axis in axes.flat[len(found) :]:
        axis.axis("off")
    for axis, (name, curve) in zip(axes.flat, found.items(), strict=False):
        sizes = sorted({p["size"] for line in curve["methods"].values() for p in line["points"]})
        for method, line in curve["methods"].items():
            points = line["points"]
            axis.loglog(
                [point["size"] for point in points],
                [point["seconds"] for point in points],
                label=f"{method} ({line['exponent']:.2f})",
                **(look_of(method).line(1.4) | {"markersize": 5}),
            )
            if name not in before["curves"]:
                continue
            points = before["curves"][name]["methods"][method]["points"]
            look = look_of(method).line(1.0) | {"marker": "", "linestyle": ":", "alpha": 0.8}
            axis.loglog([p["size"] for p in points], [p["seconds"] for p in points], **look)
        # A size that was measured stands below, at most five of them, written out.
        step = -(-len(sizes) // 5)
        axis.set_xticks(sizes[::step], [f"{size:,}" for size in sizes[::step]], minor=False)
        axis.minorticks_off()
        axis.yaxis.set_major_locator(LogLocator(subs=(1, 3)))
        axis.yaxis.set_major_formatter("{x:g}")
        axis.set_title(curve["title"], fontsize=11, loc="left")
        axis.set_ylabel("seconds", fontsize=10)
        axis.tick_params(labelsize=10)
        axis.grid(alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
        axis.legend(fontsize=9, frameon=False)
    figure.tight_layout()
    FIGURE.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(FIGURE, metadata={"Date": None})
    plt.close(figure)


def write() -> None:
    """Write the page from the results that are there."""
    lines = [INTRODUCTION, FLOORS]
    for name, title in (("table-cpu", "On a CPU"), ("table-cuda", "On a GPU")):
        content = read(name)
        if content is not None:
            lines += table_section(title, content)
    profile = read("devices-cpu")
    if profile is not None:
        lines += profile_section(profile)
    devices = read("devices-cuda")
    if devices is not None:
        lines += devices_section(devices)
    lines += [line for name in ("marginal-cpu", "marginal-cuda") for line in kept_lines(name)]
    growth, before = read("growth"), read("growth-before")
    if growth is not None:
        draw_growth(growth, before)
        lines += growth_section(growth, before)
    streaming = read("streaming")
    if streaming is not None:
        lines += streaming_section(streaming)
    lines += [
        line
        for name in ("large-tables", "large-tables-empty", "easyfsl", "starting", "busy")
        for line in kept_lines(name)
    ]
    note = RESULTS / "note.md"
    if note.exists():
        lines += [note.read_text()]
    PAGE.write_text("\n".join(lines).rstrip() + "\n")
    print(f"saved {PAGE}")


if __name__ == "__main__":
    argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0]).parse_args()
    write()
