"""How much do Marginal and UGDA lose when views of the base set are missing too?

    python benchmarks/experiments/incomplete_base.py [DATASET ...] [--missing 0.3] [--splits 5]

The same episodes are scored with the complete base set and with one that lacks a share of its
(sample, view) cells; every base sample keeps one view.
"""

from __future__ import annotations

import argparse

import numpy as np
import torch

from fewview import EpisodeSampler, MissingRule, TaskSpec, create
from fewview.datasets import class_split, get_spec, load
from fewview.methods.estimator.fitted_base import learn_base

SETS = ["handwritten", "scene15", "cub_googlenet_doc2vec"]
METHODS = ["marginal", "marginal:balance=1", "ugda"]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("datasets", nargs="*", default=SETS)
    parser.add_argument("--missing", type=float, default=0.3)
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--episodes", type=int, default=40)
    options = parser.parse_args()
    print(f"{'data set':22s} {'eta':>4s} {'method':36s} complete  incomplete  difference +- s.e.")
    for dataset in options.datasets:
        data, spec = load(dataset), get_spec(dataset)
        for eta in (0.0, 0.3):
            found: dict[str, list[tuple[float, float]]] = {text: [] for text in METHODS}
            for split in range(options.splits):
                classes = class_split(dataset, split)
                base = data[np.isin(data.labels, classes.base)]
                seeds = np.array([split], dtype=np.uint64)
                gaps = MissingRule().draw(seeds, len(base), base.n_views, options.missing)[0]
                task = TaskSpec(way=spec.way, shot=1, queries=spec.queries, eta=eta)
                sampler = EpisodeSampler(data, task, list(classes.novel), name=dataset)
                episodes = sampler.draw(0, options.episodes)
                labels = torch.from_numpy(episodes.query_labels)
                for text in METHODS:
                    method = create(text)
                    pair = []
                    for part in (base, base.with_mask(gaps)):
                        prepared = learn_base(method, part, task)
                        scores = method.score_episodes(data, episodes, prepared)
                        pair.append(100 * float((scores.argmax(-1) == labels).double().mean()))
                    found[text].append((pair[0], pair[1]))
            for text, pairs in found.items():
                whole, gappy = np.array(pairs).T
                step = gappy - whole
                error = step.std(ddof=1) / len(step) ** 0.5 if len(step) > 1 else float("nan")
                print(
                    f"{dataset:22s} {eta:4.1f} {text:36s} {whole.mean():8.1f}  {gappy.mean():10.1f}"
                    f"  {step.mean():+10.2f} +- {error:.2f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
