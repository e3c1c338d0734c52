"""The picture at the top of the README, light and dark, from recorded results and embedded digits.

    python docs/_tools/picture.py        # writes docs/images/measured/first.svg and first-dark.svg

Left: of a task of three digits, for every class the first query with four of six views, and what
each view adds to the log-odds of the answer. Right: `benchmarks/results/other-data.json`, balanced
queries, one shot: the best two methods as they come, UGDA and what people try first. Data sets
whose missing rate is not set are left out.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from scipy.stats import t as student
from sklearn.datasets import load_digits

from fewview import EpisodeSampler, TaskSpec, create, load
from fewview.datasets import class_split
from fewview.drawing._looks import COLOURS, ON_DARK, PALETTE, looks
from fewview.engine._fitted import FittedBase, usual_task

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "images" / "measured"
RECORDED = ROOT / "benchmarks" / "results" / "other-data.json"
RATES = (0.0, 0.3, 0.5)
VIEWS = 4  # that a digit in the picture has
NAMES = {"concat-logistic": "logistic regression"}
ALWAYS = ("ugda", "concat-logistic")  # beside the best two: the paper's, and what people try first
FOR, AGAINST = "#3579bd", "#c2621b"


def curves() -> tuple[list[str], dict[str, np.ndarray]]:
    """Data sets, and accuracy [data sets, rates] of four methods, the best mean first."""
    records = json.loads(RECORDED.read_text(encoding="utf-8"))["records"]
    found = {
        (r["method"], r["dataset"], r["eta"]): r["accuracy"]
        for r in records
        if r["shot"] == 1 and r["queries"] == "balanced" and ":" not in r["method"]
    }
    methods = list(dict.fromkeys(method for method, _, _ in found))
    data = [
        name
        for name in dict.fromkeys(name for _, name, _ in found)
        if all((method, name, eta) in found for method in methods for eta in RATES)
    ]
    table = {m: np.array([[found[m, d, eta] for eta in RATES] for d in data]) for m in methods}
    ranked = sorted(table, key=lambda method: -table[method].mean())
    shown = dict.fromkeys((*ranked[:2], *ALWAYS))
    return data, {method: table[method] for method in ranked if method in shown}


def paired() -> tuple[str, str, np.ndarray, np.ndarray]:
    """The best two methods, their differences [data sets, rates], and half 95 % intervals."""
    _, table = curves()
    (first, one), (second, two) = list(table.items())[:2]
    difference = one - two
    error = difference.std(axis=0, ddof=1) / len(difference) ** 0.5
    return first, second, difference, student.ppf(0.975, len(difference) - 1) * error


def digits() -> list[dict[str, Any]]:
    """Three queries of one task: image, views, evidence and answer."""
    data, split = load("digits"), class_split("digits", 0)
    task = TaskSpec(way=3, shot=1, queries=10, eta=0.4)
    episode = EpisodeSampler(data, task, split.novel).draw(0, 1)
    support = data[episode.support[0]].with_mask(episode.support_mask[0])
    query = data[episode.query[0]].with_mask(episode.query_mask[0])
    base = data[np.isin(data.labels, split.base)]
    clf, usual = create("marginal"), usual_task(base)
    # `fit_base(base)` would learn to reject too, which takes most of its time.
    learnt = FittedBase.of(clf, base, usual, clf.prepare_base(base, usual))
    clf.fit_base(learnt).fit(support)
    found = clf.explain(query)
    images, rows = load_digits().images, []
    for label in clf.classes_.tolist():
        chosen = (query.labels == label) & (query.mask.sum(axis=1) == VIEWS)
        row = int(np.flatnonzero(chosen)[0])
        rows.append({
            "true": label, "image": images[episode.query[0][row]],
            "views": {v: b[episode.query[0][row]] for v, b in data.views.items()},
            "has": query.mask[row], "evidence": found.support_of_views[row],
            "others": float(found.support_of_other_queries[row]),
            "label": found.classes[found.decided[row]],
            "second": found.classes[found.runner_up[row]], "margin": float(found.margin[row]),
        })  # fmt: skip
    return rows


def draw(dark: bool) -> Figure:
    """The whole picture."""
    ink, soft, rule, paper = (PALETTE[k][dark] for k in ("ink", "soft", "rule", "paper"))
    figure = Figure(figsize=(11.4, 5.0), facecolor=paper)
    texts = {"color": ink, "fontsize": 10}
    _draw_digits(figure, ink, soft, texts)
    _draw_curves(figure, dark, ink, soft, rule, texts)
    return figure


def _draw_digits(figure: Figure, ink: str, soft: str, texts: dict[str, Any]) -> None:
    axes = figure.add_axes((0.01, 0.02, 0.55, 0.96))
    axes.set(xlim=(0, 11.2), ylim=(-9.1, 0.9))
    axes.axis("off")
    rows = digits()
    largest = max(max(abs(r["evidence"]).max(), abs(r["others"])) for r in rows)
    heads = [*rows[0]["views"], "others"]
    for k, name in enumerate(heads):
        text = "other\nqueries" if name == "others" else name
        axes.text(2.05 + 1.12 * k, 0.08, text, ha="center", va="bottom", **texts)
    axes.text(0.6, 0.08, "query", ha="center", va="bottom", **texts)
    axes.text(10.35, 0.08, "answer", ha="center", va="bottom", **texts)
    for number, row in enumerate(rows):
        top = -3.25 * number
        middle = top - 2.05  # of the evidence
        axes.imshow(row["image"], cmap="gray_r", extent=(0, 1.2, top - 1.2, top), aspect="auto")
        pairs = [*zip(row["views"].values(), row["has"], row["evidence"], strict=True)]
        for k, (values, there, value) in enumerate([*pairs, (None, True, row["others"])]):
            left = 1.6 + 1.12 * k
            if values is not None and there:
                side = int(np.ceil(len(values) ** 0.5))
                tile = np.full(side * side, np.nan)
                tile[: len(values)] = values
                place = (left, left + 0.9, top - 1.05, top - 0.15)
                axes.imshow(tile.reshape(side, side), cmap="Blues", extent=place, aspect="auto")
            elif values is not None:
                gap = Rectangle((left, top - 1.05), 0.9, 0.9, fill=False, ec=soft, hatch="////",
                                lw=1, ls="--")  # fmt: skip
                axes.add_patch(gap)
                told = {"ha": "center", "va": "bottom", "color": soft, "fontsize": 8}
                axes.text(left + 0.45, middle + 0.07, "missing", **told)
                continue
            size = 0.75 * value / largest
            bar = Rectangle((left + 0.2, middle), 0.5, size, fc=FOR if size > 0 else AGAINST, lw=0)
            if values is None:
                bar.set(fc="none", ec=soft, hatch="|||", lw=1)
            axes.add_patch(bar)
            end, side = (0.06, "bottom") if size > 0 else (-0.06, "top")
            axes.text(left + 0.45, middle + size + end, f"{value:+.1f}", ha="center", va=side,
                      color=ink, fontsize=8.5)  # fmt: skip
        axes.plot((1.6, 9.35), (middle, middle), color=soft, lw=0.8)
        mark = "" if row["label"] == row["true"] else f" (is {row['true']})"
        axes.text(10.35, top - 0.65, f"{row['label']}{mark}", ha="center", va="center",
                  color=ink, fontsize=22, fontweight="bold")  # fmt: skip
        axes.text(10.35, middle, f"not {row['second']}:\n{row['margin']:+.1f}", ha="center",
                  va="center", **texts)  # fmt: skip
        axes.text(0.6, middle, "evidence,\nlog-odds", ha="center", va="center", color=soft,
                  fontsize=8.5)  # fmt: skip
    axes.set_aspect("auto")
    axes.set(xlim=(0, 11.2), ylim=(-9.1, 0.9))


def _draw_curves(
    figure: Figure, dark: bool, ink: str, soft: str, rule: str, texts: dict[str, Any]
) -> None:
    data, table = curves()
    upper = figure.add_axes((0.635, 0.5, 0.215, 0.4))
    lower = figure.add_axes((0.635, 0.115, 0.215, 0.25))
    for axes in (upper, lower):
        axes.set_facecolor("none")
        axes.spines[["top", "right"]].set_visible(False)
        axes.spines[["left", "bottom"]].set_color(soft)
        axes.tick_params(colors=ink, labelsize=9)
        axes.set_xticks(RATES, [f"{100 * eta:.0f} %" for eta in RATES])
        axes.grid(axis="y", color=rule, lw=0.7)
        axes.set_xlim(-0.04, 0.54)
    colours = ON_DARK if dark else COLOURS
    known = looks(table)
    ends = {name: float(values.mean(axis=0)[-1]) for name, values in table.items()}
    low = -np.inf
    places = {}
    for name in sorted(ends, key=ends.__getitem__):  # labels one above the other
        low = places[name] = max(ends[name], low + 3.2)
    for name, values in table.items():
        look, means = known[name], values.mean(axis=0)
        style = look.line(2.2 if name == next(iter(table)) else 1.6) | {
            "color": colours[look.colour], "markersize": 6,
        }  # fmt: skip
        upper.plot(RATES, means, **style)
        upper.annotate(
            f"{NAMES.get(name, name)} {means[-1]:.0f}", (0.5, means[-1]), (0.56, places[name]),
            va="center", annotation_clip=False, color=style["color"], fontsize=10,
            fontweight="bold" if name == next(iter(table)) else "normal",
        )  # fmt: skip
    upper.set_title(f"accuracy in %, mean of {len(data)} data sets, one shot", loc="left", **texts)
    first, second, difference, half = paired()
    for row, name in zip(difference, data, strict=True):
        lower.plot(RATES, row, "o", ms=3.5, color=soft, alpha=0.8, lw=0)
        if row.min() == difference.min():
            lower.annotate(name, (RATES[int(row.argmin())], row.min()), (7, 0), va="center",
                           textcoords="offset points", color=soft, fontsize=8)  # fmt: skip
    colour = colours[known[first].colour]
    lower.errorbar(RATES, difference.mean(axis=0), half, fmt="o", color=colour, capsize=4, lw=2)
    lower.axhline(0, color=ink, lw=0.8)
    for eta, mean in zip(RATES, difference.mean(axis=0), strict=True):
        lower.annotate(f"{mean:+.1f}", (eta, mean), (8, 3), textcoords="offset points", color=ink,
                       fontsize=9)  # fmt: skip
    lower.set_title(f"{first} minus {second}, by data set; mean, 95 %", loc="left", **texts)
    lower.set_xlabel("views missing", **texts)


def write() -> list[Path]:
    """Write both pictures, the same bytes every time."""
    out = []
    for dark, name in ((False, "first.svg"), (True, "first-dark.svg")):
        with rc_context({"svg.hashsalt": "fewview", "hatch.linewidth": 0.7}):
            draw(dark).savefig(FOLDER / name, metadata={"Date": None})
        out.append(FOLDER / name)
    return out


if __name__ == "__main__":
    for path in write():
        print(f"written: {path.relative_to(ROOT)} ({path.stat().st_size / 1e3:.0f} kB)")
