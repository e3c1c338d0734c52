"""Which factor of Marginal's scores is calibrated best on base classes?

Run: python benchmarks/marginal_calibration.py [DATASET ...] [--eta 0.3] [--splits 2]

Some base classes play novel ones. For every factor: expected calibration
error and Brier score, for queries used together and for queries alone, balanced and Dirichlet(2).
The stated factors, used where calibration is not chosen, come from the means in the last lines.
"""

from __future__ import annotations

import argparse

import numpy as np
import torch
from common import base_task

from fewview import create
from fewview.episodes._pretended import draw_folds
from fewview.results._metrics import measure

SETS = ["handwritten", "scene15", "cub_googlenet_doc2vec", "leaves100", "orl"]
SETS.append("tieredimagenet_tiny")
FACTORS = (0.1, 0.17, 0.25, 0.35, 0.5, 0.7, 1.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("datasets", nargs="*", default=SETS)
    parser.add_argument("--eta", type=float, default=0.3)
    parser.add_argument("--splits", type=int, default=2)
    options = parser.parse_args()
    total: dict[tuple[str, str], list[list[tuple[float, float]]]] = {}
    print("ECE / Brier for factors " + ", ".join(map(str, FACTORS)))
    for dataset in options.datasets:
        for use in ("together", "alone"):
            method = create(f"marginal:settings=default:transductive={use == 'together'}")
            settings = method.set_params(calibration=1.0).resolved()
            found: dict[str, list[tuple[torch.Tensor, np.ndarray]]] = {}
            for split in range(options.splits):
                base, task = base_task(dataset, split, options.eta)
                score = method.fold_scorer()
                for fold in draw_folds(base, task, split):
                    kinds = zip(("balanced", "dirichlet"), fold.episodes, strict=False)
                    for kind, episodes in kinds:
                        scores = score(settings, fold, episodes).double()
                        found.setdefault(kind, []).append((scores, episodes.query_labels))
            for kind, parts in found.items():
                scores = torch.cat([part.flatten(0, 1) for part, _ in parts])[None]
                labels = np.concatenate([part.ravel() for _, part in parts])[None]
                row = []
                for factor in FACTORS:
                    metrics = measure((factor * scores).numpy(), labels)
                    row.append((metrics.ece, float(metrics.brier.mean())))
                total.setdefault((use, kind), []).append(row)
                cells = "  ".join(f"{ece:.3f}/{brier:.3f}" for ece, brier in row)
                print(f"{dataset:22s} {use:9s} {kind:10s} {cells}", flush=True)
    for (use, kind), rows in total.items():
        cells = "  ".join(f"{ece:.3f}/{brier:.3f}" for ece, brier in np.mean(rows, axis=0))
        print(f"{'mean':22s} {use:9s} {kind:10s} {cells}")


if __name__ == "__main__":
    main()
