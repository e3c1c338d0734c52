"""Which settings of Marginal are best on base classes alone, over many data sets?

Run: python benchmarks/marginal_settings.py [DATASET ...] [--splits 5] [--eta 0,0.3,0.5]
     [--jobs 8] [--json FILE]

Some base classes of a split play novel ones; novel classes are never
seen. Each line is one setting changed from the stated defaults: accuracy on balanced and on
Dirichlet(2) queries, averaged over data sets, and the difference per data set. The stated defaults
were chosen from this table. NAME@BASE takes the base classes of another data set.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from dataclasses import replace
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch
from common import base_task

from fewview import create
from fewview.episodes._pretended import draw_folds

SETS = ["handwritten", "scene15", "cub_googlenet_doc2vec", "leaves100", "orl", "caltech102"]
SETS.append("tieredimagenet_tiny")
# Changes of settings; those of the method itself (not a setting) carry a leading underscore.
VARIANTS: list[dict[str, Any]] = [
    {},
    *({"balance": value} for value in (0.0, 0.25, 0.75, 1.0)),
    *({"scaling": value} for value in ("standard", "scale")),
    *({"components": value} for value in (32, 128)),
    *({"shrinkage": value} for value in (0.03, 0.3)),
    *({"prior": value} for value in (0.25, 0.75, 0.95)),
    *(
        {"temperature": t, "anneal": a, "balance": b}
        for b, t, a in product((0.5, 1.0), (0.25, 0.5, 1.0), (0.2, 0.7, 1.0))
    ),
    *({"_n_iter": value} for value in (6, 20)),
    *({"_n_iter": value, "balance": 1.0} for value in (6, 20)),
    {"_scoring": "variational"},
    {"_transductive": False},
    {"_transductive": False, "_scoring": "variational"},
    *({"_transductive": False, "prior": v} for v in (0.25, 0.75)),
    *({"_transductive": False, "shrinkage": v} for v in (0.03, 0.3)),
    *({"_transductive": False, "scaling": v} for v in ("standard", "scale")),
]
FACTORS = np.geomspace(0.02, 4.0, 40)


def title(variant: dict[str, Any]) -> str:
    return ",".join(f"{k.strip('_')}={v}" for k, v in variant.items()) or "default"


def job(dataset: str, split: int, eta: float, n_iter: int) -> dict[str, Any]:
    """Accuracy of every variant on pretended tasks: variant -> [folds][balanced, dirichlet]."""
    torch.set_num_threads(1)
    began = perf_counter()
    name, _, other = dataset.partition("@")
    base, task = base_task(name, split, eta, other or None)
    folds = draw_folds(base, task, seed=split)
    default = create("marginal:settings=default").resolved()
    scorers: dict[str, Any] = {}
    out: dict[str, Any] = {}
    losses: dict[str, Any] = {}
    for variant in VARIANTS:
        extra = {k[1:]: v for k, v in variant.items() if k.startswith("_")}
        settings = {k: v for k, v in variant.items() if not k.startswith("_")}
        key = json.dumps(extra, sort_keys=True)
        if key not in scorers:
            method = create("marginal:settings=default")
            method.set_params(n_iter=n_iter)
            scorers[key] = method.set_params(**extra).fold_scorer()
        chosen = replace(default, calibration=1.0, **settings)
        rows, logs = [], np.zeros(len(FACTORS))
        for fold in folds:
            row = []
            for episodes in fold.episodes:
                scores = scorers[key](chosen, fold, episodes).double()
                labels = torch.from_numpy(episodes.query_labels)
                row.append(float((scores.argmax(-1) == labels).double().mean()))
                for index, factor in enumerate(FACTORS):
                    log_p = torch.log_softmax(factor * scores, dim=-1)
                    logs[index] -= float(log_p.gather(2, labels[..., None]).mean())
            rows.append(row)
        out[title(variant)] = rows
        losses[title(variant)] = float(FACTORS[int(logs.argmin())])
    return {
        "dataset": dataset,
        "split": split,
        "eta": eta,
        "accuracy": out,
        "calibration": losses,
        "seconds": perf_counter() - began,
    }


def report(results: list[dict[str, Any]]) -> None:
    sets = sorted({r["dataset"] for r in results})
    print("\nbest calibration factor (likelihood), median over splits, per data set and eta")
    for name in ("default", "balance=1.0", "balance=0.0", "transductive=False"):
        for eta in sorted({r["eta"] for r in results}):
            cells = [
                np.median(
                    [
                        r["calibration"][name]
                        for r in results
                        if (r["dataset"], r["eta"]) == (s, eta)
                    ]
                    or [np.nan]
                )
                for s in sets
            ]
            print(f"  {name:20s} eta {eta}: " + " ".join(f"{c:6.2f}" for c in cells))
    print(f"\ndifference from default in points (mean over etas), sets: {' '.join(sets)}")
    for column, kind in enumerate(("balanced", "dirichlet")):
        print(f"-- {kind} queries")
        for variant in results[0]["accuracy"]:
            cells = []
            for s in sets:
                gains = [
                    row[column] - start[column]
                    for r in results
                    if r["dataset"] == s
                    for row, start in zip(
                        r["accuracy"][variant], r["accuracy"]["default"], strict=True
                    )
                    if len(row) > column
                ]
                cells.append(100 * np.mean(gains) if gains else np.nan)
            print(
                f"{variant:58s} mean {np.nanmean(cells):+6.2f} | "
                + " ".join(f"{c:+6.2f}" for c in cells)
            )
    base = {s: [r for r in results if r["dataset"] == s] for s in sets}
    for s, rows in base.items():
        for eta in sorted({r["eta"] for r in rows}):
            part = [np.mean(r["accuracy"]["default"], axis=0) for r in rows if r["eta"] == eta]
            print(s, eta, "default:", 100 * np.mean([p[0] for p in part]).round(4))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("datasets", nargs="*", default=SETS)
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--eta", default="0,0.3,0.5")
    parser.add_argument("--n-iter", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json")
    parser.add_argument("--budget", type=float, default=1e9, help="seconds after which to stop")
    options = parser.parse_args()
    began = perf_counter()
    etas = [float(eta) for eta in options.eta.split(",")]
    jobs = list(product(range(options.splits), etas, options.datasets))
    results = []
    pool = ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn"))
    waiting = {pool.submit(job, s, split, eta, options.n_iter) for split, eta, s in jobs}
    while waiting and perf_counter() - began < options.budget:
        ready, waiting = wait(waiting, timeout=5, return_when=FIRST_COMPLETED)
        for done in ready:
            if done.exception() is not None:
                print(f"a job failed: {done.exception()}", file=sys.stderr, flush=True)
                continue
            last = done.result()
            results.append(last)
            print(
                f"{len(results)}/{len(jobs)} {last['dataset']} {last['split']} {last['eta']} "
                f"{last['seconds']:.0f} s",
                file=sys.stderr,
                flush=True,
            )
        if options.json and ready:
            Path(options.json).write_text(json.dumps(results))
    for process in list(pool._processes.values()):
        process.kill()
    print(f"{len(results)} of {len(jobs)} jobs in {perf_counter() - began:.0f} s", flush=True)
    report(results)
    sys.stdout.flush()
    os._exit(0)  # workers that were stopped early are not waited for


if __name__ == "__main__":
    main()
