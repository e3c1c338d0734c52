"""What a setting changes, beside the paper: a table of setting, before, after, paper.

    python benchmarks/as_in_the_paper.py trained --splits 3 --episodes 20
    python benchmarks/as_in_the_paper.py trained pool --preset paper --device cuda
    python benchmarks/as_in_the_paper.py sizes --recorded     # published sizes from the record

A comparison is a list of rows in `COMPARISONS`, each a method typed twice. Cells run like those of
`fewview bench`, with scaling and padding as in the paper, through a store: a run that is stopped
goes on where it was. The same tasks are given to both, so the error is that of the difference.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from common import keep_table, paper_accuracies, print_machine, print_table

from fewview.datasets import get_spec
from fewview.evaluate import Grid, run
from fewview.evaluate._progress import PlainProgress
from fewview.paper._printed import METHODS, SHORT
from fewview.paper._recorded import read
from fewview.paper._studies import Wish, typed
from fewview.samples._rates import largest_rate

SETS = ("handwritten", "cub_googlenet_doc2vec", "scene15")


@dataclass(frozen=True)
class Row:
    """One method on one data set at some missing rates, as it was before and as it is after."""

    setting: str
    dataset: str
    method: str  # as registered, for the paper's number
    before: str
    after: str
    etas: tuple[float, ...] = (0.3, 0.5)


def _typed(name: str, dataset: str, preset: str) -> str:
    """A method of the tables as `reproduce` types it."""
    return typed({ours: paper for paper, ours in METHODS.items()}[name], dataset, preset)


def trained(preset: str) -> Iterator[Row]:
    """Gaps as CPM, ICMSC and COMPLETER leave them, and filled as the paper says."""
    gaps = {"cpm": "class", "cpm-gan": "class", "icmsc": "none", "completer": "none"}
    for name, word in gaps.items():
        for dataset in SETS:
            text = _typed(name, dataset, preset)
            yield Row("gaps filled", dataset, name, f"{text}:padding={word}", text)


def pool(preset: str) -> Iterator[Row]:
    """COMPLETER trained on base classes, and on unlabelled samples of the novel classes."""
    for padding in ("none", "episode"):
        for dataset in SETS:
            text = f"{_typed('completer', dataset, preset)}:padding={padding}"
            after = f"{text}:train_on=unlabelled"
            setting = f"novel pool, padding {padding}"
            yield Row(setting, dataset, "completer", text, after, (0.0, 0.3, 0.5))


def sizes(preset: str) -> Iterator[Row]:
    """Our affordable sizes and the published ones; `preset` is not looked at."""
    for name in ("cpm", "cpm-gan", "icmsc", "completer"):
        for dataset in SETS:
            texts = (_typed(name, dataset, which) for which in ("fast", "paper"))
            yield Row("published sizes", dataset, name, *texts, (0.0, 0.3, 0.5))


def anchors(preset: str) -> Iterator[Row]:
    """Fig. 7: from no anchors, which is the original embeddings, to the usual hundred."""
    for dataset in ("caltech102", "cub_googlenet_doc2vec"):
        for setting, before in (("N_F 0 to 100", "n_anchors=0"), ("k 0 to 1", "n_neighbors=0")):
            yield Row(setting, dataset, "ugda", f"ugda:{before}", "ugda", (0.3,))


def printed(preset: str) -> Iterator[Row]:
    """Algorithm 1 with the ridge and the logit scale of the released code, and as printed."""
    for dataset in SETS:
        text = f"ugda:solver=adam:latent_dim={get_spec(dataset).latent_dim}"
        before = f"{text}:ridge=0.001:logit_scale=0.5"
        yield Row("as printed", dataset, "ugda", before, text, (0.0, 0.3, 0.5))


def rectifier(preset: str) -> Iterator[Row]:
    """The search of self-rectification stopped early, and as it is."""
    for dataset in (*SETS, "orl"):
        text = _typed("ugda", dataset, preset)
        before = f"{text}:rectify_tolerance=0.05:rectify_steps=30"
        yield Row("search goes on", dataset, "ugda", before, text, (0.0, 0.3, 0.5))


def combinations(preset: str) -> Iterator[Row]:
    """PT-MAP and RFS on the anchors of the first phase, and on rectified ones."""
    for name in ("ptmap+ugda", "rfs+ugda"):
        for dataset in SETS:
            yield Row("rectified", dataset, name, name, f"{name}:rectified=true", (0.0, 0.3, 0.5))


# name -> what is compared, for a preset of the methods that train networks
COMPARISONS: dict[str, Callable[[str], Iterator[Row]]] = {
    "trained": trained,
    "pool": pool,
    "sizes": sizes,
    "anchors": anchors,
    "printed": printed,
    "rectifier": rectifier,
    "combinations": combinations,
}


def recorded_means(row: Row, text: str, eta: float, options: Any) -> np.ndarray | None:
    """What the tables have recorded of these very tasks; None where they have not."""
    name = SHORT.get(row.dataset)
    for found in read(name, Wish()) if name else ():
        means = [found["split_means"].get(split) for split in range(options.splits)]
        same = found["method"] == text and found["eta"] == eta and None not in means
        if same and found["episodes"] == options.episodes * len(found["split_means"]):
            return np.array(means)
    return None


def split_means(row: Row, text: str, eta: float, options: Any) -> np.ndarray:
    """Mean accuracy in percent on every class split."""
    if options.recorded and (known := recorded_means(row, text, eta, options)) is not None:
        return known
    grid = Grid(
        datasets=(row.dataset,), methods=(text,), etas=(eta,), splits=options.splits,
        episodes=options.episodes, scaling="paper", padding="paper", device=options.device,
        data_dir=options.data_dir,
    )  # fmt: skip
    outcome = run(grid, options.store, progress=PlainProgress())
    for cell, why in outcome.failures:
        print(f"# {cell.describe()} failed: {why}")
    found = [outcome.results.get(cell.hash) for cell in outcome.cells]
    return np.array([np.nan if r is None else 100 * r.metrics.accuracy.mean() for r in found])


def main() -> None:
    """Run the comparisons that are named and print their table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="+", choices=(*COMPARISONS, "all"))
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--episodes", type=int, default=20)
    parser.add_argument("--datasets", default=None, help="these alone")
    parser.add_argument("--methods", default=None, help="these alone, separated by commas")
    parser.add_argument("--etas", default=None, help="these missing rates instead")
    parser.add_argument("--preset", default="fast", help="of methods that train networks, or paper")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--store", default="as_in_the_paper.sqlite")
    parser.add_argument("--data-dir", default=None, help="default: $FEWVIEW_DATA")
    parser.add_argument("--recorded", action="store_true", help="take what tables have recorded")
    parser.add_argument("--json", default=None, help="keep the table there")
    options = parser.parse_args()
    print_machine(options.device)
    names = COMPARISONS if "all" in options.names else dict.fromkeys(options.names)
    rows = [row for name in names for row in COMPARISONS[name](options.preset)]
    paper, table, gaps = paper_accuracies(), [], []
    for row in rows:
        chosen = ((row.dataset, options.datasets), (row.method, options.methods))
        if any(only is not None and name not in only.split(",") for name, only in chosen):
            continue
        etas = row.etas if options.etas is None else map(float, options.etas.split(","))
        for eta in etas:
            if eta > largest_rate(get_spec(row.dataset).n_views) + 1e-9:
                continue
            before, after = (split_means(row, t, eta, options) for t in (row.before, row.after))
            wanted = paper.get((row.dataset, row.method, eta))
            moved = after - before
            error = moved.std(ddof=1) / len(moved) ** 0.5 if len(moved) > 1 else np.nan
            if wanted is not None:
                gaps.append([abs(side.mean() - wanted) for side in (before, after)])
            table.append(
                [
                    row.setting, row.method, row.dataset, f"{eta:g}", f"{before.mean():.1f}",
                    f"{after.mean():.1f}", "-" if wanted is None else f"{wanted:.1f}",
                    f"{moved.mean():+.1f} +- {error:.1f}",
                ]
            )  # fmt: skip
    header = ("setting", "method", "data set", "eta", "before", "after", "paper", "change")
    print_table(header, table)
    title = f"What settings change: {', '.join(names)}"
    keep_table(options.json, title, options.device, header, table)
    if gaps:
        means = np.nanmean(gaps, axis=0)
        print(f"mean distance from the paper: {means[0]:.1f} before, {means[1]:.1f} after")


if __name__ == "__main__":
    main()
