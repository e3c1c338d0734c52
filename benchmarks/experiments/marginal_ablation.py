"""Which settings of Marginal are best on base classes alone, over many data sets?

    python benchmarks/experiments/marginal_ablation.py [DATASET ...] [--splits 3] [--eta 0.3,0.5]

Some base classes are held out as new ones; novel classes are never seen. Every line is one change
of the default settings: mean difference in accuracy over data sets, on balanced and on Dirichlet(2)
queries, and the difference per data set. Then the calibration error for factors of the scores, for
queries together and alone. The default settings were chosen from such tables.
"""

from __future__ import annotations

import argparse
from itertools import product
from typing import Any

import numpy as np
import torch
from tools import SETS

from fewview import EpisodeSampler, MultiViewData, TaskSpec, create, load
from fewview.datasets import class_split, get_spec
from fewview.methods.estimator.fitted_base import learn_base
from fewview.results import measure

MORE = ("leaves100", "orl", "caltech102", "tieredimagenet_tiny")
ALONE = {"transductive": False}
VARIANTS: list[dict[str, Any]] = [
    {},
    *({"balance": value} for value in (0.0, 0.5, 1.0)),
    *({"scaling": value} for value in ("standard", "scale", "standard+unit")),
    *({"components": value} for value in (32, 64)),
    *({"shrinkage": value} for value in (0.2, 0.7)),
    *({"prior": value} for value in (0.25, 0.95)),
    *({"temperature": t, "anneal": a} for t, a in product((0.5, 1.0), (0.25, 1.0))),
    *({"n_iter": value} for value in (6, 20)),
    {"scoring": "variational"},
    ALONE,
    {**ALONE, "scoring": "variational"},
    *({**ALONE, "shrinkage": value} for value in (0.2, 0.7)),
]
FACTORS = (0.1, 0.17, 0.25, 0.35, 0.5, 0.7, 1.0)
SHARES = ("balanced", "dirichlet:2")


def divided(name: str, split: int, fold: int, eta: float) -> tuple[MultiViewData, list[Any]]:
    """Base samples to learn from, and tasks of the base classes that are held out."""
    data, spec = load(name), get_spec(name)
    base = data[np.isin(data.labels, class_split(name, split).base)]
    way = min(spec.way, (len(base.classes) - 2) // 2)
    order = np.random.default_rng([split, fold]).permutation(len(base.classes))
    held = np.isin(base.codes, order[: max(way, len(order) // 3)])
    unknown, eta = base[held], min(eta, 1 - 1 / base.n_views)
    episodes = [
        EpisodeSampler(
            unknown, TaskSpec(way=way, shot=spec.shot, queries=15, eta=eta, query_counts=shares)
        ).draw(0, 8)
        for shares in SHARES
    ]
    return base[~held], [(unknown, drawn) for drawn in episodes]


def scores_of(variant: dict[str, Any], known: MultiViewData, tasks: list[Any]) -> list[Any]:
    """Scores of a variant for tasks of each kind, and the true positions of classes."""
    method = create("marginal").set_params(**variant)
    out = []
    for data, episodes in tasks:
        task = TaskSpec(way=episodes.way, shot=1, queries=15)
        scores = method.score_episodes(data, episodes, learn_base(method, known, task))
        out.append((scores.double(), episodes.query_labels))
    return out


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("datasets", nargs="*", default=[*SETS, *MORE])
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--folds", type=int, default=4)
    parser.add_argument("--eta", default="0.3,0.5")
    options = parser.parse_args()
    hits: dict[tuple[str, str], list[list[float]]] = {}  # (variant, data set) -> by kind
    errors: dict[tuple[bool, str], list[list[float]]] = {}
    etas = [float(eta) for eta in options.eta.split(",")]
    for name, split, fold, eta in product(
        options.datasets, range(options.splits), range(options.folds), etas
    ):
        known, drawn = divided(name, split, fold, eta)
        for variant in VARIANTS:
            found = scores_of(variant, known, drawn)
            title = ", ".join(f"{key}={value}" for key, value in variant.items()) or "default"
            right = [float((s.argmax(-1).numpy() == y).mean()) for s, y in found]
            hits.setdefault((title, name), []).append([100 * share for share in right])
        for together, kind in product((True, False), range(len(SHARES))):
            plain = {"transductive": together, "calibration": 1.0}
            scores, labels = scores_of(plain, known, drawn[kind : kind + 1])[0]
            row = [measure((factor * scores).numpy(), labels).ece for factor in FACTORS]
            errors.setdefault((together, SHARES[kind]), []).append(row)
        print(f"# {name}, class split {split}, fold {fold}, eta {eta:g}", flush=True)
    for kind, shares in enumerate(SHARES):
        print(f"\naccuracy minus default in points, {shares} queries: mean, then by data set")
        for title in dict.fromkeys(title for title, _ in hits):
            gains = [
                np.mean([row[kind] for row in hits[title, name]])
                - np.mean([row[kind] for row in hits["default", name]])
                for name in options.datasets
            ]
            print(f"{title:44s}{np.mean(gains):+7.2f} |" + "".join(f"{g:+7.2f}" for g in gains))
    print("\ncalibration error for factors " + ", ".join(map(str, FACTORS)))
    for (together, shares), rows in errors.items():
        cells = "  ".join(f"{error:.3f}" for error in np.mean(rows, axis=0))
        print(f"{'together' if together else 'alone':10s}{shares:12s}{cells}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
