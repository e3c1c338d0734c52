"""When should Marginal warn that its queries are unbalanced, or that they change answers much?

Run: python benchmarks/query_warnings.py [DATASET ...]

Some base classes play novel ones (split 0, four divisions; 1 and 5 shots; no view missing and 0.3).
The limits are the smallest hundredths that at most 1 of 100 balanced tasks exceeds, and at most 5
of 100 on any one data set. Then, with the limits in use, how often tasks of every kind are warned
about, and accuracy together and alone with a warning and without.
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np
import torch

from fewview import EpisodeSampler, FewviewWarning, TaskSpec, create, load
from fewview.datasets import class_split
from fewview.engine._method import CHANGED, FEWEST_PER_CLASS, UNBALANCED_ALONE, compare_alone
from fewview.episodes._pretended import divide, thinned

SETS = ["scene15", "handwritten", "orl", "digits", "cub_googlenet_doc2vec", "leaves100"]
KINDS = ("balanced", "dirichlet:2", "dirichlet:1", "dominant:0.8")
TASKS = 20


def signs(dataset: str) -> dict[str, list[np.ndarray]]:
    """Per kind of queries: distance from equal shares, loss, accuracy together and alone."""
    data = load(dataset)
    assert data.labels is not None
    base = data[np.isin(data.labels, np.array(class_split(dataset, 0).base))]
    way = min(5, max(2, len(base.classes) // 2))
    novel = min(way + 3, len(base.classes) - 2) if len(base.classes) >= 8 else way
    method = create("marginal:settings=default")
    out: dict[str, list[np.ndarray]] = {}
    for number, part in enumerate(divide(base, novel, 4, "query warnings", most=60)):
        room = int(np.bincount(part.unknown.codes).min())
        for shot, eta, kind in ((s, e, k) for s in (1, 5) for e in (0.0, 0.3) for k in KINDS):
            task = TaskSpec(way, shot, min(15, room - shot), eta, query_counts=kind)
            prepared = method.prepare_base(thinned(part.known), task)
            sampler = EpisodeSampler(part.unknown, task, name=f"warnings {number}")
            if task.queries < FEWEST_PER_CLASS or sampler.capped(0, TASKS).any():
                continue  # nobody would be warned, or the classes are too small for this kind
            for episodes, batch in method.batches(part.unknown, sampler.draw(0, TASKS), prepared):
                together = method.score_batch(batch, prepared)
                with torch.no_grad():
                    alone = method.scores_alone(batch, prepared.state)
                assert alone is not None
                shares, lost = compare_alone(alone, together)
                labels = torch.from_numpy(episodes.query_labels)
                right = [(s.argmax(-1) == labels).double().mean(1) for s in (together, alone)]
                apart = (shares - 1 / way).abs().sum(-1) / 2
                out.setdefault(kind, []).append(torch.stack([apart, lost, *right]).numpy())
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("datasets", nargs="*", default=SETS)
    warnings.simplefilter("ignore", FewviewWarning)
    found: dict[str, list[np.ndarray]] = {}
    limits = []
    for dataset in parser.parse_args().datasets:
        parts = signs(dataset)
        for kind in parts:
            found.setdefault(kind, []).extend(parts[kind])
        limits.append(np.quantile(np.concatenate(parts["balanced"], axis=1)[:2], 0.95, axis=1))
        print(
            f"{dataset:22s} 95 %: shares {limits[-1][0]:.3f}, loss {limits[-1][1]:.3f}", flush=True
        )
    limits.append(np.quantile(np.concatenate(found["balanced"], axis=1)[:2], 0.99, axis=1))
    print(f"{'all':22s} 99 %: shares {limits[-1][0]:.3f}, loss {limits[-1][1]:.3f}")
    shares, loss = np.ceil(100 * np.max(limits, axis=0)) / 100
    print(f"limits: shares {shares} (in use {UNBALANCED_ALONE}), loss {loss} (in use {CHANGED})")
    for kind in KINDS:
        apart, lost, together, alone = np.concatenate(found[kind], axis=1)
        for told, which in (("warned", True), ("not warned", False)):
            rows = ((apart > UNBALANCED_ALONE) | (lost > CHANGED)) == which
            print(
                f"{kind:13s} {told:10s} {rows.mean():5.1%} of {len(rows):4d}: together "
                f"{100 * together[rows].mean():.1f}, alone {100 * alone[rows].mean():.1f}"
            )


if __name__ == "__main__":
    main()
