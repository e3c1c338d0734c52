"""How long Marginal takes to learn and to score episodes, against UGDA timed in the same run.

Run: python benchmarks/marginal.py [DATASET] [EPISODES]   (default: handwritten 400)

One class split, missing rate 0.3, default settings; the best of three runs after a short warm-up.
"""

from __future__ import annotations

from time import perf_counter

import numpy as np
import torch
from common import dataset_and_episodes

from fewview import EpisodeSampler, TaskSpec, create
from fewview.datasets import class_split, get_spec, load

METHODS = {
    "ugda (exact)": "ugda",
    "marginal, inductive": "marginal:settings=default:transductive=false",
    "marginal, inductive, variational score": (
        "marginal:settings=default:transductive=false:scoring=variational"
    ),
    "marginal, transductive": "marginal:settings=default",
    "marginal, automatic settings": "marginal:settings=auto",
    "marginal, transductive, variational score": "marginal:settings=default:scoring=variational",
}
REPEATS = 3


def main() -> None:
    dataset, episodes = dataset_and_episodes(__doc__)
    data, spec = load(dataset), get_spec(dataset)
    task = TaskSpec(way=spec.way, shot=1, queries=spec.queries, eta=0.3)
    novel = list(class_split(dataset, 0).novel)
    base = data[~np.isin(np.asarray(data.labels), novel)]
    drawn = EpisodeSampler(data, task, novel, name=dataset).draw(0, episodes)
    labels = torch.from_numpy(drawn.query_labels)
    print(f"{dataset}: {episodes} episodes, eta 0.3, {torch.get_num_threads()} thread(s)")
    reference = 0.0
    for title, text in METHODS.items():
        method = create(text)
        prepared = method.prepare_base(base, task)
        method.score_episodes(data, drawn[:4], prepared)
        times = []
        for _ in range(REPEATS):
            start = perf_counter()
            scores = method.score_episodes(data, drawn, prepared)
            times.append(perf_counter() - start)
        best = min(times)
        reference = reference or best
        accuracy = 100 * float((scores.argmax(-1) == labels).double().mean())
        print(
            f"{title:42s} {best:6.2f} s  {best / reference:5.2f} x UGDA  "
            f"accuracy {accuracy:.1f} %  (base {prepared.seconds:.2f} s)"
        )


if __name__ == "__main__":
    main()
