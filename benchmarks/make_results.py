"""Everything that publishes accuracies, from the records in `benchmarks/results` alone.

    python benchmarks/make_results.py            # writes docs/results.md, README's blocks, pictures
    python benchmarks/make_results.py --check    # says what is out of date, and changes nothing

The words are in `benchmarks/templates`. A record of fewer than 40 tasks a class split is refused,
and so is a data set without a role.
"""

from __future__ import annotations

import csv
import io
import json
import re
import sys
import textwrap
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pandas as pd
from matplotlib import rc_context
from matplotlib.figure import Figure

from fewview import create
from fewview.datasets import get_spec, names
from fewview.results import compare_with_best, split_interval

ROOT = Path(__file__).resolve().parents[1]
TEMPLATES = Path(__file__).with_name("templates")
RESULTS = Path(__file__).with_name("results")
PICTURES = {
    False: "docs/images/measured/results.svg",
    True: "docs/images/measured/results-dark.svg",
}
RATES = (0.0, 0.3, 0.5)
NAMES = {
    "marginal": "Marginal", "tim-adm": "TIM-ADM", "ptmap": "PT-MAP", "ugda": "UGDA",
    "concat-logistic": "logistic regression", "proto": "nearest class mean",
}  # fmt: skip
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8c8c8c", "#b8860b")
SET = ["dataset", "role", "same_as_paper"]
HEAD = ("data set", "role", "same as paper")
END = "<!-- /results -->"
BLOCK = re.compile(rf"<!-- results:(\w+) -->\n(.*?){END}", re.DOTALL)
# Parts of README where a number with a point is no result: comments, code, links, versions.
PLAIN = re.compile(
    r"<!--.*?-->|```.*?```|^ {4}.*?$|`[^`]*`|\]\([^)]*\)|https?://\S+"
    r"|(?:Python|version|until|to) \d+\.\d+",
    re.DOTALL | re.MULTILINE,
)


# ---------------------------------------------------------------------- reading


def roles() -> dict[str, tuple[str, str]]:
    """Say of every data set its role, and whether it is the paper's."""
    known = {name: (get_spec(name).role, get_spec(name).same_as_paper) for name in names()}
    with RESULTS.with_name("roles.csv").open(encoding="utf-8") as file:
        return known | {r["dataset"]: (r["role"], r["same_as_paper"]) for r in csv.DictReader(file)}


def record(folder: Path = RESULTS / "accuracy") -> pd.DataFrame:
    """Read the record: one shot, balanced queries, methods as they come."""
    rows = pd.concat([pd.read_csv(path) for path in sorted(folder.glob("*.csv"))])
    rows = rows[rows.is_default & (rows.shot == 1) & (rows.query_counts == "balanced")]
    tasks = rows.groupby(["dataset", "method", "eta"]).n_tasks.agg(["min", "sum"])
    few = tasks[(tasks["min"] < 40) | (tasks["sum"] < 240)]  # four classes have 6 class splits
    if len(few):
        raise SystemExit(f"too few tasks to be published: {few.index[0]}")
    told = roles()
    if unknown := set(rows.dataset) - set(told):
        raise SystemExit(f"{min(unknown)} has no role in benchmarks/roles.csv")
    rows[SET[1:]] = [told[name] for name in rows.dataset]
    return rows


def held_out() -> pd.DataFrame:
    """Read what was measured on held-out sets, with the kind and base classes of every set."""
    lines = (RESULTS / "held-out.md").read_text(encoding="utf-8").splitlines()
    cells = [line.strip("| ").split(" | ") for line in lines if line.startswith("| ")][1:]
    kinds = {cell[0]: cell[4].removeprefix("old; ") for cell in cells}
    classes = {cell[0]: int(cell[2].split()[0]) for cell in cells}
    rows = pd.read_csv(RESULTS / "held-out.csv")
    rows = rows.rename(columns={"data_set": "dataset", "missing_rate": "eta"})
    rows["kind"], n = rows.dataset.map(kinds), rows.dataset.map(classes)
    rows["n_base"] = np.minimum((0.6 * n).round(), n - 2).astype(int)  # as `bench` splits them
    return rows.assign(role="held-out", same_as_paper="no")


# ---------------------------------------------------------------------- saying


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Write a Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def wide(rows: pd.DataFrame, *index: str) -> pd.DataFrame:
    """Arrange accuracies: methods across, best mean first; only those that ran everywhere."""
    found = rows.pivot_table(index=list(index), columns="method", values="accuracy")
    found = found.dropna(axis=1)
    return found[found.mean().sort_values(ascending=False).index]


def verdict(means: pd.DataFrame, word: str) -> str:
    """Compare Marginal with its best rival on [class splits or data sets, methods]."""
    if len(means) < 2:
        return f"one {word}: no test"
    pairs = compare_with_best(means.to_numpy().T, list(means.columns))
    pair = next(pair for pair in pairs if "marginal" in (pair.one, pair.two))
    sure = pair.p <= 0.05 and (word == "class split" or len(means) >= 6)
    one, two = (NAMES.get(name, name) for name in (pair.one, pair.two))
    said = f"{one} is better than {two}" if sure else f"{one} is ahead of {two}, inconclusive"
    return f"{said} ({pair.difference:+.1f}; {pair.low:+.1f} to {pair.high:+.1f})"


def versions(recorded: dict[str, object]) -> str:
    """Say which methods have changed since they were measured."""
    other = {n: v for n, v in recorded.items() if str(create(n).version) != str(v)}
    told = [f"`{n}` (measured: version {v}, now {create(n).version})" for n, v in other.items()]
    changed = f"These methods have changed since: {', '.join(told)}."
    return changed if told else "No method has changed its `version` since."


def slashed(values: Iterable[float]) -> str:
    """Write numbers of the missing rates: 79.1 / 73.6 / 66.7."""
    return " / ".join(f"{value:.1f}" for value in values)


def kinds_of(rows: pd.DataFrame) -> str:
    """Say how many sets are the paper's."""
    counts = rows.groupby("dataset").same_as_paper.first().value_counts()
    parts = [f"{kind} {count}" for kind, count in counts.items()]
    return ", ".join(parts) if len(parts) > 1 else str(counts.index[0])


def entry(found: pd.DataFrame) -> str:
    """Write accuracy over class splits: mean, 95 % interval, lowest and highest class split."""
    means = found.accuracy.to_numpy()
    if len(means) < 2:
        return f"{means.mean():.1f}" if len(means) else "not run"
    per_task = np.repeat(means[:, None], found.n_tasks.min(), axis=1)
    low, high = split_interval(per_task, bounds=(0.0, 100.0))
    return f"{means.mean():.1f} [{low:.1f}, {high:.1f}] ({means.min():.0f} to {means.max():.0f})"


def readme_row(sets: str, rows: pd.DataFrame) -> list[str]:
    """Marginal, its best rival and UGDA in the mean over the sets of a role."""
    means = wide(rows, "dataset", "eta").groupby("eta").mean()
    rival = next(name for name in means if not name.startswith("marginal"))
    three = [slashed(means[name]) for name in ("marginal", rival, "ugda")]
    return [sets, kinds_of(rows), three[0], f"{NAMES[rival]} {three[1]}", three[2]]


def held_out_parts(rows: pd.DataFrame) -> dict[str, str]:
    """Make all that is said of held-out sets."""
    meta = json.loads((RESULTS / "held-out.json").read_text(encoding="utf-8"))
    rivals = rows[~rows.method.str.startswith("marginal")].method
    parts = {
        "commit": meta["commit"],
        "edition": meta["edition"],
        "held_out_versions": versions(meta["versions"]),
        "n_settings": str(rivals.nunique()),
        "n_methods": str(rivals.str.partition(":")[0].nunique()),
    }
    means = {}
    for counts, found in rows.groupby(rows.query_counts.str.partition(":")[0]):
        by_cell = wide(found, "dataset", "eta")
        others = by_cell[[name for name in by_cell if not name.startswith("marginal")]]
        best = others.idxmax(axis=1)
        about = found.groupby(SET)[["kind", "n_base"]].first().reset_index()
        cells = pd.DataFrame({
            "ours": by_cell.marginal, "gap": by_cell.marginal - others.max(axis=1),
            "rival": best + " " + others.max(axis=1).map("{:.1f}".format),
        }).reset_index().merge(about)  # fmt: skip
        lost = cells[cells.gap < -1]
        small = lost.n_base <= 4
        plain = lost.kind.str.contains("plain table") & ~small
        means[counts] = by_cell.groupby("eta").mean()
        both = pd.concat([by_cell[["marginal"]], others], axis=1)
        parts |= {
            f"{counts}_n": str(found.dataset.nunique()),
            f"{counts}_verdict": verdict(both.groupby("dataset").mean(), "data set"),
            f"{counts}_count": f"{len(cells) - len(lost)} of {len(cells)} cells; of the "
            f"{len(lost)} cells where it is further behind, {small.sum()} are of sets with two to "
            f"four base classes and {plain.sum()} more of plain tables",
            f"{counts}_lost": table(
                (*HEAD, "kind", "views missing", "Marginal", "best rival", "difference"),
                ([c.dataset, c.role, c.same_as_paper, c.kind, f"{100 * c.eta:.0f} %",
                  f"{c.ours:.1f}", c.rival, f"{c.gap:+.1f}"]
                 for c in cells[cells.gap < 0].sort_values("gap").itertuples()),
            ),
            f"{counts}_sets": table(
                (*HEAD, "kind", "base classes", "0 %", "30 %", "50 %"),
                ([*of, *(f"{c.ours:.1f} ({c.gap:+.1f}: {c.rival})" for c in one.itertuples())]
                 for of, one in cells.groupby([*SET, "kind", "n_base"])),
            ),
        }  # fmt: skip
    parts["means"] = table(
        ("role", "same as paper", "method", *(f"{counts} queries" for counts in means)),
        (["held-out", "no", f"`{name}`", *(slashed(mean[name]) for mean in means.values())]
         for name in means["balanced"]),
    )  # fmt: skip
    return parts


def recorded_parts(rows: pd.DataFrame) -> dict[str, str]:
    """Make all that is said of recorded sets."""
    lines, verdicts, means = [], [], []
    missing = sorted(set(roles()) - set(rows.dataset))
    ordered = rows.sort_values(["role", "dataset"], ascending=[False, True])
    for of, found in ordered.groupby(SET, sort=False):
        by_split = wide(found, "split")
        missing += [f"{of[0]} {name}" for name in NAMES if name not in by_split]
        for method in by_split:
            one = found[found.method == method]
            cells = [entry(one[one.eta == eta]) for eta in sorted(set(found.eta))]
            cells += ["gaps of its own"] * (3 - len(cells))
            lines.append([*of, NAMES[method], *cells, slashed(one.groupby("eta").ece.mean())])
        over = f"{len(by_split)} class split" + "s" * (len(by_split) > 1)
        verdicts.append([*of, over, verdict(by_split, "class split")])
    readme = []
    for role, some in ordered[ordered.missing_rule == "uniform"].groupby("role", sort=False):
        by_set, count = wide(some, "dataset", "eta"), some.dataset.nunique()
        of = [role, kinds_of(some)]
        for name in by_set:
            error = some[some.method == name].groupby("eta").ece.mean()
            accuracy = by_set[name].groupby("eta").mean()
            means.append([*of, count, NAMES[name], slashed(accuracy), slashed(error)])
        said = verdict(by_set.groupby("dataset").mean(), "data set")
        verdicts.append([f"**all {role}**", *of, f"{count} data sets", said])
        readme.append(readme_row(f"{role}: {', '.join(sorted(set(some.dataset)))}", some))
    split = rows[rows.method == "marginal"].groupby(["dataset", "eta"]).accuracy
    ranges = (split.max() - split.min())[split.count() > 1]
    digits = rows[rows.dataset == "digits"].groupby(["method", "eta"]).accuracy
    short = [
        [f"{NAMES[name]} (`{name}`)", *(f"{found.mean():.1f} ({found.min():.0f} to "
         f"{found.max():.0f})" for found in (digits.get_group((name, eta)) for eta in RATES))]
        for name in reversed(NAMES)
    ]  # fmt: skip
    recorded = rows.sort_values("method_version").groupby("method").method_version.first()
    return {
        "sets": table((*HEAD, "method", "0 %", "30 %", "50 %", "calibration error"), lines),
        "verdicts": table((*HEAD, "over", "verdict"), verdicts),
        "role_means": table((*HEAD[1:], "sets", "method", "accuracy", "calibration error"), means),
        "not_run": ", ".join(missing) or "nothing",
        "range": f"{ranges.median():.0f} points (from {ranges.min():.0f} to {ranges.max():.0f})",
        "record_versions": versions(dict(recorded)),
        "digits": table(("views missing", "0 %", "30 %", "50 %"), short),
        "digits_role": get_spec("digits").role,
        "digits_same": get_spec("digits").same_as_paper,
        "readme_recorded": "\n".join(f"| {' | '.join(row)} |" for row in readme),
    }


def picture(panels: dict[str, pd.DataFrame], dark: bool) -> str:
    """Draw accuracy against missing views for every role, as SVG."""
    ink = "#e6e6e6" if dark else "#222222"
    figure = Figure(figsize=(10, 3.4), facecolor="none")
    figure.subplots_adjust(0.06, 0.28, 0.98, 0.9, wspace=0.08)
    axes = figure.subplots(1, len(panels), sharey=True)
    said = []
    for ax, (role, rows) in zip(axes, panels.items(), strict=True):
        means = wide(rows, "dataset", "eta").groupby("eta").mean()
        for (method, name), colour in zip(NAMES.items(), COLOURS, strict=True):
            if method in means:
                said.append(f"{role}, {name}: {slashed(means[method])}")
                ax.plot(100 * means.index, means[method], "o-", color=colour, label=name)
        ax.set_title(f"{role}, {rows.dataset.nunique()} sets", color=ink, fontsize=11)
        ax.set_xlabel("% of views missing", color=ink)
        ax.set(xticks=[0, 30, 50], facecolor="none")
        ax.tick_params(colors=ink)
        ax.grid(axis="y", color=ink, alpha=0.2)
        ax.spines[["top", "right"]].set_visible(False)
        ax.spines[["left", "bottom"]].set_color(ink)
    axes[0].set_ylabel("accuracy in %", color=ink)
    lines, labels = axes[-1].get_legend_handles_labels()
    figure.legend(lines, labels, ncols=6, loc="lower center", frameon=False, labelcolor=ink)
    out = io.StringIO()
    with rc_context({"svg.hashsalt": "fewview", "svg.fonttype": "none"}):
        figure.savefig(out, format="svg", metadata={
            "Date": None, "Creator": None, "Description": "; ".join(said),
        })  # fmt: skip
    return re.sub(r"[ \t]+$", "", out.getvalue(), flags=re.MULTILINE)


# ---------------------------------------------------------------------- files


@cache
def paper_verdict(present: str) -> str:
    """Take the paper's verdict from `reproduction`; without it what stands there stays."""
    sys.path.insert(0, str(ROOT))
    try:
        from reproduction.claims import summary
    except ImportError:
        return present
    rows = "Rows that are not reproduced: [reproduction](docs/reproduction.md)."
    return f"The paper: {summary()} {rows}"


def wrapped(text: str) -> str:
    """Break the lines of paragraphs; tables, titles and markup stay as they are."""
    parts = (part.strip() for part in text.strip().split("\n\n"))
    return "\n\n".join(p if p[:1] in "|#<" else textwrap.fill(p, 100) for p in parts) + "\n"


def outputs(root: Path = ROOT) -> dict[str, str]:
    """Make the text of every file, by its path below `root`, whose README is filled."""
    held, recorded = held_out(), record()
    balanced = held[held.query_counts == "balanced"]
    complete = recorded[recorded.missing_rule == "uniform"]
    panels = {
        "held-out": balanced,
        **{r: complete[complete.role == r] for r in ("seen", "development")},
    }
    parts = held_out_parts(held) | recorded_parts(recorded)
    sets = f"held-out: {parts['balanced_n']} sets, listed in [results](docs/results.md)"
    head = ("data sets", "same as paper", "Marginal", "best rival", "UGDA")
    readme = (root / "README.md").read_text(encoding="utf-8")
    present = dict(BLOCK.findall(readme))
    parts["readme_roles"] = (
        f"{table(head, [readme_row(sets, balanced)])}\n{parts['readme_recorded']}"
    )
    parts["paper"] = paper_verdict(present.get("paper", ""))
    filled = (TEMPLATES / "readme.md").read_text(encoding="utf-8").format(**parts)
    blocks = {name: wrapped(text) for name, text in BLOCK.findall(filled)}
    if missing := sorted(set(blocks) ^ set(present)):
        raise SystemExit(f"README.md and templates/readme.md: only one has the block {missing[0]}")
    readme = BLOCK.sub(lambda m: m[0][: -len(END) - len(m[2])] + blocks[m[1]] + END, readme)
    page = (TEMPLATES / "results.md").read_text(encoding="utf-8").format(**parts)
    pictures = {path: picture(panels, dark) for dark, path in PICTURES.items()}
    return {"README.md": readme, "docs/results.md": wrapped(page), **pictures}


def told(text: str) -> list[str]:
    """Say what is compared: of a picture its description, as drawing differs by version."""
    if not text.startswith("<?xml"):
        return text.splitlines()
    return [part.strip() for part in ElementTree.fromstring(text).itertext() if part.strip()]


def problems(root: Path = ROOT) -> list[str]:
    """List what is out of date, and numbers of README that no record stands behind."""
    found = [
        f"{name} is out of date; 'make results' writes it"
        for name, text in outputs(root).items()
        if not (root / name).exists() or told((root / name).read_text("utf-8")) != told(text)
    ]
    readme = PLAIN.sub(" ", BLOCK.sub(" ", (root / "README.md").read_text(encoding="utf-8")))
    return found + [
        f"README.md: {number} stands outside the blocks that are made from records"
        for number in re.findall(r"\d+\.\d+", readme)
    ]


def main() -> int:
    """Write, or check."""
    if "--check" in sys.argv:
        found = problems()
        print("\n".join(found) or "published results are up to date")
        return bool(found)
    for name, text in outputs().items():
        (ROOT / name).write_text(text, encoding="utf-8")
        print(f"written: {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
