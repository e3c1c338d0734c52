"""Marginal on data of other kinds and queries of other counts, against rivals and against itself.

    python benchmarks/other_data.py --store other.sqlite [--datasets scene15,newsgroups]
        [--rivals tim-adm,ptmap | all] [--splits 3] [--episodes 20] [--json FILE] [--page FILE]
        [--join OTHER.json]

Every data set, three kinds of query counts, missing rates and shots: accuracy of Marginal, of
itself without the queries (`transductive=false`) and of the best rival in its best scaling (a
choice that favours rivals), and calibration errors. Rules, written before the first run: a cell is
won where Marginal is the best or at most one point below the best rival; and in the mean over the
rates of a data set it should nowhere be more than one point below itself without the queries.

What is in the store is not computed again. `--page` writes the tables as Markdown, from the JSON
file alone if nothing is to be computed (`--store none`). Parts of a large run (some data sets, some
rivals, `--no-own` without Marginal, on several devices) are put together by `--join`.
"""

from __future__ import annotations

import argparse
import json
import os
from collections import defaultdict
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from fewview.datasets._catalogue import names as data_sets
from fewview.engine import create
from fewview.evaluate import make_grid, run
from fewview.methods import names
from fewview.results._metrics import expected_calibration_error

KINDS = ("balanced", "dirichlet:1", "dominant:0.8")
RATES = (0.0, 0.3, 0.5)
SHOTS = (1, 5)
SCALINGS = ("", "unit", "standard+unit")  # the default, and two that text likes
SLOW = ("alpha-tim", "tim", "unem", "concat-hgb")  # ten times slower than others: only if named
ALONE = "marginal:transductive=false"
USUAL = (
    "handwritten", "scene15", "cub_googlenet_doc2vec", "leaves100", "orl", "caltech102",
    "tieredimagenet_tiny", "birds200", "newsgroups", "movies617", "wikipedia", "ccle",
)  # fmt: skip
# Classes and queries of a task where the catalogue does not say.
TASKS: dict[str, dict[str, Any]] = {
    "newsgroups": {"way": 2, "queries": 30},
    "movies617": {"way": 5, "queries": 6},
    "wikipedia": {"way": 4, "queries": 30},
    "ccle": {"way": 4, "queries": 6, "missing": "patterns"},
    "birds200": {"base": "tieredimagenet_tiny"},
}
# Queries of a class that five shots leave in small ones.
LEFT = {"orl": 5, "caltech102": 25, "leaves100": 11, "movies617": 2, "ccle": 5}
LEVEL = 1.0  # points
HEAD = """# Marginal on other data

Made by `python benchmarks/other_data.py` from `benchmarks/results/other-data.json`; nothing here is
written by hand. Accuracy in percent at missing rates 0 / 0.3 / 0.5 (ccle: the gaps it has), of
Marginal, of itself without the queries (alone), and of the best rival in the best of three
scalings, a choice that favours rivals.
{splits} class splits of {episodes} tasks: differences of two points are often chance.

Who ran where is at the end of the page. Methods that train networks were not run here, nor
concat-hgb, which is slow.

Stated values of Marginal were chosen on scene15, cub, newsgroups, movies617 and wikipedia, not on
the other sets ([more](marginal.md)). Classes of leaves100 are too small for unequal counts, so its
three kinds of queries are the same tasks.

"""


def rivals_of(text: str) -> list[str]:
    """Methods that train no network, or those named, each in its scalings."""
    listed = text.split(",")
    if text == "all":
        listed = [n for n in names() if n not in ("marginal", *SLOW) and not create(n).tags.trained]
    out = []
    for name, scaling in product([name for name in listed if name], SCALINGS):
        own = getattr(create(name), "scaling", None)
        if scaling and own is not None:
            out.append(f"{name}:scaling={scaling}")
        elif not scaling:
            out.append(name)
    return out


def measure(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """One record for every cell and method: means over class splits."""
    folder = Path(arguments.data_dir or os.environ["FEWVIEW_DATA"])
    methods = [*(["marginal", ALONE] if arguments.own else []), *rivals_of(arguments.rivals)]
    out = []
    asked = (text.split(",") for text in (arguments.datasets, arguments.shots, arguments.kinds))
    for name, shot_text, kind in product(*asked):
        shot = int(shot_text)
        task = TASKS.get(name, {})
        natural = task.get("missing") == "patterns"
        rates = "0" if natural else ",".join(str(rate) for rate in RATES)
        own = folder / name if (folder / name).is_dir() else folder / f"{name}.npz"
        fewer = {"queries": LEFT[name]} if shot == 5 and name in LEFT else {}
        grid = make_grid(
            [name if name in data_sets() else str(own)], methods=methods, eta=rates, shot=shot,
            query_counts=kind, splits=arguments.splits, episodes=arguments.episodes,
            device=arguments.device, **(task | fewer),
        )  # fmt: skip
        outcome = run(grid, arguments.store, jobs=arguments.jobs)
        cells: dict[Any, list[Any]] = defaultdict(list)
        for result in outcome.results.values():
            cells[result.cell.method, result.cell.eta].append(result.metrics)
        for (method, eta), found in cells.items():
            means = [float(np.mean(metrics.accuracy)) for metrics in found]
            bins = np.sum([metrics.bins for metrics in found], axis=0)
            out.append({
                "dataset": name, "shot": shot, "queries": kind, "eta": eta, "method": method,
                "accuracy": round(100 * float(np.mean(means)), 2), "splits": len(means),
                "ece": round(expected_calibration_error(bins), 4),
            })  # fmt: skip
        print(f"{name}, {shot} shot(s), {kind}: {len(found)} class splits", flush=True)
    return out


def page(records: list[dict[str, Any]]) -> str:
    """What the rules say, and all cells, as Markdown."""
    cells: dict[Any, dict[str, dict[str, Any]]] = defaultdict(dict)
    for item in records:
        key = (item["dataset"], item["shot"], item["queries"], item["eta"])
        cells[key][item["method"]] = item
    groups: dict[Any, list[Any]] = defaultdict(list)
    for key in cells:
        groups[key[:3]].append(key)
    lines = [
        "| data set | shots | queries | Marginal | alone | best rival | error of calibration |",
        "|---|---|---|---|---|---|---|",
    ]
    won, lost, below = 0, [], []
    for (name, shot, kind), keys in groups.items():
        texts: list[list[str]] = [[], [], []]
        gaps, errors = [], []
        for key in keys:
            here = cells[key]
            ours, alone = here["marginal"]["accuracy"], here[ALONE]["accuracy"]
            gaps.append(ours - alone)
            errors.append(here["marginal"]["ece"])
            texts[0].append(f"{ours:.1f}")
            texts[1].append(f"{alone:.1f}")
            others = [item for item in here.values() if not item["method"].startswith("marginal")]
            if not others:
                continue
            best = max(others, key=lambda item: item["accuracy"])
            texts[2].append(f"{best['accuracy']:.1f} {best['method'].replace(':scaling=', ' ')}")
            if ours >= best["accuracy"] - LEVEL:
                won += 1
            else:
                lost.append(
                    f"| {name} | {shot} | {kind} | {key[3]:.2g} | {ours:.1f} | {texts[2][-1]} "
                    f"| {reason(best['method'], kind)} |"
                )
        if np.mean(gaps) < -LEVEL:
            below.append(f"- {name}, {shot} shots, {kind}: {np.mean(gaps):+.1f}")
        lines.append(
            f"| {name} | {shot} | {kind} | "
            + " | ".join(" / ".join(text) for text in texts)
            + f" | {100 * np.mean(errors):.1f} |"
        )
    total = won + len(lost)
    head = []
    if total:
        head = [f"Best or within {LEVEL:g} point of the best rival in {won} of {total} cells.", ""]
    head += [
        f"More than {LEVEL:g} point below itself without the queries, in the mean over the rates",
        f"of a data set, in {len(below)} of {len(groups)} groups" + (":" if below else "."),
        *(["", *below] if below else []),
    ]
    out = [*head, "", *lines]
    if lost:
        out += ["", "Cells that are not won:", ""]
        out += [
            "| data set | shots | queries | rate | Marginal | best rival | reason |",
            "|---|---|---|---|---|---|---|",
        ]
        out += lost
    return "\n".join(out) + "\n"


def reason(rival: str, kind: str) -> str:
    """Why a rival may be ahead, as far as what it declares says so."""
    tags = create(rival).tags
    if kind == "balanced" and tags.assumes_balance:
        return "takes it as given that queries are balanced"
    if not tags.transductive:
        return "looks at every query by itself: here others mislead"
    return "looks at queries together in another way"


def who_ran(records: list[dict[str, Any]]) -> str:
    """Of every rival and data set, how many of its kinds of tasks it was run on."""
    ran: dict[tuple[str, str], set[Any]] = defaultdict(set)
    for item in records:
        name = item["method"].partition(":")[0]
        ran[name, item["dataset"]].add((item["shot"], item["queries"]))
    sets = list(dict.fromkeys(data for _, data in ran))
    lines = [
        "", "## Who ran where", "",
        "Kinds of tasks (shots and kinds of queries) out of those that Marginal was run on.", "",
        f"| rival | {' | '.join(sets)} |", "|---|" + "---|" * len(sets),
    ]  # fmt: skip
    for rival in sorted({name for name, _ in ran} - {"marginal"}):
        shares = (
            f"{len(ran[rival, d] & ran['marginal', d])}/{len(ran['marginal', d])}" for d in sets
        )
        lines.append(f"| {rival} | {' | '.join(shares)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure, write, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--datasets", default=",".join(USUAL))
    parser.add_argument("--shots", default=",".join(map(str, SHOTS)))
    parser.add_argument("--kinds", default=",".join(KINDS), help="of query counts")
    parser.add_argument("--rivals", default="all", help="'' for none")
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--episodes", type=int, default=20)
    parser.add_argument("--store", default="other.sqlite")
    parser.add_argument("--data-dir", default=None, help="default: $FEWVIEW_DATA")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--own", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--join", type=Path, nargs="*", default=[], help="other such JSON files")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--page", type=Path)
    arguments = parser.parse_args()
    meta = {name: getattr(arguments, name) for name in ("splits", "episodes", "rivals")}
    if arguments.store == "none" and not arguments.join:
        kept = json.loads(arguments.json.read_text())
        meta, records = kept["settings"], kept["records"]
    else:
        records = [] if arguments.store == "none" else measure(arguments)
        for path in arguments.join:
            records += json.loads(path.read_text())["records"]
        if arguments.json:
            lines = ",\n".join(json.dumps(item) for item in records)
            arguments.json.write_text(
                f'{{"settings": {json.dumps(meta)}, "records": [\n{lines}\n]}}\n'
            )
    if not arguments.own:
        return
    text = page(records)
    if arguments.page:
        arguments.page.write_text(HEAD.format(**meta) + text + who_ran(records))
    print(text)


if __name__ == "__main__":
    main()
