"""How good is each value of a method's parameter on base classes alone?

Run: python benchmarks/base_choices.py METHOD PARAMETER VALUES [DATASET ...]
     for example: python benchmarks/base_choices.py bavardage precision none,4,16,64 handwritten

Defaults that the papers leave open are chosen from such a table: some base classes play novel ones
so novel classes are never seen. Mean over splits and missing rates.
"""

from __future__ import annotations

import argparse
from itertools import product

import numpy as np
import torch
from common import base_task

from fewview import create
from fewview.episodes._pretended import draw_folds

SETS = ["handwritten", "scene15", "cub_googlenet_doc2vec"]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("method")
    parser.add_argument("parameter")
    parser.add_argument("values", help="separated by commas")
    parser.add_argument("datasets", nargs="*", default=SETS)
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--eta", default="0,0.3,0.5")
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    values = options.values.split(",")
    methods = [
        create(f"{options.method}:{options.parameter}={value}").set_params(device=options.device)
        for value in values
    ]
    print(f"{'data set':24s} {'queries':10s}" + "".join(f"{value:>9s}" for value in values))
    for dataset in options.datasets:
        right: dict[str, list[list[float]]] = {"balanced": [], "dirichlet": []}
        for split, eta in product(range(options.splits), options.eta.split(",")):
            base, task = base_task(dataset, split, float(eta))
            for fold in draw_folds(base, task, seed=split):
                states = [method.prepare_base(fold.known, task) for method in methods]
                for kind, episodes in zip(right, fold.episodes, strict=False):
                    labels = torch.from_numpy(episodes.query_labels)
                    row = []
                    for method, state in zip(methods, states, strict=True):
                        scores = method.score_episodes(fold.unknown, episodes, state)
                        row.append(float((scores.cpu().argmax(-1) == labels).double().mean()))
                    right[kind].append(row)
        for kind, rows in right.items():
            if rows:
                cells = "".join(f"{100 * x:9.1f}" for x in np.mean(rows, axis=0))
                print(f"{dataset:24s} {kind:10s}{cells}", flush=True)


if __name__ == "__main__":
    main()
