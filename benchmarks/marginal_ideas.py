"""Ideas for a better Marginal, compared on base classes alone.

Run: python benchmarks/marginal_ideas.py [DATASET ...] [--splits 3] [--eta 0.3,0.5] [--jobs 2]
     [--only TEXT] [--json FILE]

Each idea is a small change of the method, written here and not in the library; an idea would be
kept if it helped on three data sets or more. Some base classes of a split play novel ones
so novel classes are never seen. Differences are in points, the mean over
folds, splits and missing rates, with the standard error over (data set, split, missing rate).

- tails: Student's t with so many degrees of freedom in place of the Gaussian within classes. Far
  samples count less for their class, and scores grow with the logarithm of the distance.
- scale: every class has its own factor of S, estimated from its queries, pulled towards 1.
- factors: S keeps its largest eigenvectors; the others share one variance per view.
- starts: four starts with perturbed scores; the one whose queries fit best is taken.
- views: the information of every view is tempered by its own factor before it is joined.
- spheres: covariances as they were before: S pulled to spheres, B to the covariance of samples.
- components, shrinkage, prior, prior_detail, scaling: other values of these settings.
- offset: all classes of a task may lie off the mean of base classes together, by that prior
  variance, in units of the one between classes.
- slow: of what queries say, only this share of the change is taken over in every round, with twice
  as many rounds, or so many.
"""

from __future__ import annotations

import argparse
import json
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import base_task
from torch import Tensor

from fewview import create
from fewview.episodes import Episodes
from fewview.episodes._pretended import draw_folds
from fewview.methods.marginal._covariances import Moments
from fewview.methods.marginal._folds import leading
from fewview.methods.marginal._marginal import Marginal
from fewview.methods.marginal._model import (
    Evidence,
    Gaussians,
    gather_evidence,
    posterior,
    predictive_scores,
    unique_patterns,
    variational_scores,
)
from fewview.methods.marginal._settings import Settings
from fewview.numerics._sinkhorn import balanced_softmax

SETS = ["handwritten", "scene15", "cub_googlenet_doc2vec", "leaves100", "orl", "caltech102"]
SETS.append("tieredimagenet_tiny")
# Components that are computed once; fewer are the first of them.
MOST = 256
IDEAS: list[dict[str, Any]] = [
    {},
    *({"tails": value} for value in (3.0, 10.0, 30.0, 100.0)),
    *({"scale": value} for value in (10.0, 100.0)),
    *({"factors": value} for value in (8, 16, 32)),
    {"starts": 4},
    *({"views": value} for value in (0.5, 0.7)),
    *({"spheres": value} for value in (64, 128)),
    *({"components": value} for value in (32, 64, 256)),
    *({"shrinkage": value} for value in (0.1, 0.2, 0.7)),
    *({"prior": value} for value in (0.3, 0.8, 1.0)),
    *({"prior_detail": value} for value in (0.0, 1.0)),
    *({"offset": value} for value in (1.0, 5.0)),
    {"slow": 0.2},
    {"slow": 0.5, "rounds": 10},
    # Last, because each begins with principal components of its own.
    {"scaling": "root+standard+unit"},
    {"scaling": "standard"},
    {"scaling": "scale"},
]

# Ideas are compared with class masses pulled half way to equal ones.
BALANCE = 0.5


def title(idea: dict[str, Any]) -> str:
    return ",".join(f"{key} {value}" for key, value in idea.items()) or "as it is"


def with_factors(model: Gaussians, count: int) -> Gaussians:
    """S with its largest eigenvectors, what they leave of every view's variance put on a sphere."""
    values, vectors = torch.linalg.eigh(model.within)
    kept = vectors[:, -count:] * values[-count:].clamp(min=0).sqrt()
    low = kept @ kept.T
    widths = torch.tensor(model.dims)
    rest = (model.within - low).diagonal()
    means = torch.stack([part.mean() for part in rest.split(list(model.dims))])
    return replace(model, within=low + torch.diag(means.clamp(min=1e-9).repeat_interleave(widths)))


def with_spheres(moments: Moments) -> Gaussians:
    """S a tenth of the way to a sphere in every view; B half of the covariance of samples."""
    size = moments.block_means(moments.total).clamp(min=1e-12)
    within = 0.9 * moments.within + 0.1 * torch.diag(moments.block_means(moments.within))
    total = 0.9 * moments.total + 0.1 * torch.diag(size)
    scale = (moments.block_means(moments.between) / size).clamp(min=0).sqrt()
    between = 0.5 * moments.between + 0.5 * scale[:, None] * total * scale
    return Gaussians(moments.mean, within + 1e-6 * torch.diag(size), between, moments.dims)


def with_tempered_views(model: Gaussians, power: float) -> Gaussians:
    """S whose blocks between views are kept, and whose own blocks grow for wide views.

    A view of d_v components counts as d_v^power of them.
    """
    widths = torch.tensor(model.dims, dtype=torch.float64)
    factor = (widths ** (1 - power)).repeat_interleave(torch.tensor(model.dims))
    root = (factor / factor.mean()).sqrt()
    return replace(model, within=root[:, None] * model.within * root)


def energies(model: Gaussians, samples: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """(x - mu0)' K_o (x - mu0) and the number of present coordinates of samples [T, N, d]."""
    flat = (samples - model.mean).flatten(0, 1)
    patterns, pattern = unique_patterns(mask.flatten(0, 1))
    out, sizes = flat.new_zeros(len(flat)), flat.new_zeros(len(flat))
    for index in range(len(patterns)):
        columns = model.columns(patterns[index])
        rows = (pattern == index).nonzero()[:, 0]
        factor = torch.linalg.cholesky(model.within[columns][:, columns])
        solved = torch.linalg.solve_triangular(factor, flat[rows][:, columns].T, upper=False)
        out[rows], sizes[rows] = solved.square().sum(0), float(len(columns))
    return out.reshape(mask.shape[:2]), sizes.reshape(mask.shape[:2])


def rounds(
    evidence: Evidence,
    members: Tensor,
    scores: Tensor,
    energy: Tensor,
    sizes: Tensor,
    settings: Settings,
    idea: dict[str, Any],
    n_iter: int = 10,
) -> tuple[Tensor, Tensor]:
    """The rounds of Marginal with an idea: scores, and how well the queries fit in every task."""
    tails, scale, offset, slow = (idea.get(n) for n in ("tails", "scale", "offset", "slow"))
    weight, taken = torch.ones_like(scores), torch.zeros_like(scores)
    common = evidence.query.new_zeros(len(scores), 1, evidence.query.shape[-1])
    way = scores.shape[2]
    if slow is not None:
        n_iter = idea.get("rounds", 2 * n_iter)
    for index in range(n_iter):
        done = min(1.0, index / (0.3 * n_iter))
        factor = settings.temperature * (settings.anneal + (1 - settings.anneal) * done)
        log_r, _ = balanced_softmax(factor * scores, BALANCE)
        r = log_r.exp()
        if slow is not None:
            taken = r = (1 - slow) * taken + slow * r
        belief = posterior(evidence, members, r * weight)
        if offset is not None:
            told = torch.einsum("tcp,pij->tcij", belief.counts, evidence.information)
            factor_of = torch.linalg.cholesky(told + torch.eye(told.shape[-1]))
            for _ in range(2):
                shift = (belief.shift + common)[..., None]
                means = torch.cholesky_solve(shift, factor_of)[..., 0]
                common = means.sum(1, keepdim=True) / (way + 1 / offset)
            belief = replace(belief, shift=belief.shift + common)
        scores = variational_scores(evidence, belief)[0]
        distance = (energy[..., None] - 2 * scores).clamp(min=1e-6)
        if tails is not None:
            weight = (tails + sizes[..., None]) / (tails + distance)
            scores = -(tails + sizes[..., None]) / 2 * (1 + distance / tails).log()
        if scale is not None:
            spread = (r * distance).sum(1) + scale * sizes.mean(1, keepdim=True)
            spread = spread / ((r * sizes[..., None]).sum(1) + scale * sizes.mean(1, keepdim=True))
            spread = spread / spread.mean(1, keepdim=True)
            scores = -(distance / spread[:, None] + sizes[..., None] * spread.log()[:, None]) / 2
    fit = torch.logsumexp(settings.temperature * scores, dim=-1).mean(1)
    return scores, fit


def score(
    settings: Settings, episodes: Episodes, idea: dict[str, Any], projected: tuple[Any, Any]
) -> Tensor:
    """Scores of the queries of pretended tasks with an idea."""
    chosen = {key: value for key, value in idea.items() if hasattr(settings, key)}
    settings = replace(settings, **chosen)
    components = idea.get("spheres", settings.components)
    moments, samples = leading(*projected, components)
    model = moments.shrunk(settings.shrinkage, settings.prior, settings.prior_detail)
    if "spheres" in idea:
        model = with_spheres(moments)
    if "factors" in idea:
        model = with_factors(model, idea["factors"])
    if "views" in idea:
        model = with_tempered_views(model, idea["views"])
    batch = samples.gather(episodes)
    support, query = (torch.cat(part, dim=-1).double() for part in (batch.support, batch.query))
    mask = torch.cat([batch.support_mask, batch.query_mask], dim=1)
    rows = torch.cat([support, query], dim=1)
    parts = [(slice(None), lambda: rows)]
    evidence, _ = gather_evidence(model, parts, mask, batch.n_support, 128)
    members = batch.one_hot().double()
    start = predictive_scores(evidence, members)
    energy, sizes = energies(model, query, batch.query_mask)
    best, fit = rounds(evidence, members, start, energy, sizes, settings, idea)
    generator = torch.Generator().manual_seed(0)
    for _ in range(idea.get("starts", 1) - 1):
        noise = torch.randn(start.shape, generator=generator, dtype=start.dtype)
        begin = start + noise * start.std(-1, keepdim=True) / 2
        other, other_fit = rounds(evidence, members, begin, energy, sizes, settings, idea)
        better = other_fit > fit
        best[better], fit[better] = other[better], other_fit[better]
    log_r, _ = balanced_softmax(settings.temperature * best, BALANCE)
    return log_r


def job(dataset: str, split: int, eta: float, only: str = "") -> dict[str, Any]:
    """Accuracy of ideas on pretended tasks: idea -> [folds][balanced, dirichlet]."""
    torch.set_num_threads(1)
    base, task = base_task(dataset, split, eta)
    method = create("marginal:settings=default:dtype=float64")
    assert isinstance(method, Marginal)
    settings = method.resolved()
    ideas = [idea for idea in IDEAS if not idea or only in title(idea)]
    out: dict[str, list[list[float]]] = {title(idea): [] for idea in ideas}
    for fold in draw_folds(base, task, seed=split):
        scaling = ""
        for idea in ideas:
            if idea.get("scaling", settings.scaling) != scaling:
                scaling = idea.get("scaling", settings.scaling)
                widest = replace(settings, components=MOST, scaling=scaling)
                projected = method.fold_scorer().projected(fold, widest)
            row = []
            for episodes in fold.episodes:
                found = score(settings, episodes, idea, projected).argmax(-1)
                labels = torch.from_numpy(episodes.query_labels)
                row.append(100 * float((found == labels).double().mean()))
            out[title(idea)].append(row)
    return {"dataset": dataset, "split": split, "eta": eta, "accuracy": out}


def report(results: list[dict[str, Any]]) -> None:
    sets = sorted({result["dataset"] for result in results})
    plain = title({})
    print(f"\ndifference in points from Marginal as it is; data sets: {' '.join(sets)}")
    for column, kind in enumerate(("balanced", "dirichlet")):
        print(f"-- {kind} queries")
        for name in results[0]["accuracy"]:
            gains: dict[str, list[float]] = {data: [] for data in sets}
            for result in results:
                pairs = zip(result["accuracy"][name], result["accuracy"][plain], strict=True)
                kept = [new[column] - old[column] for new, old in pairs if len(new) > column]
                if kept:
                    gains[result["dataset"]].append(float(np.mean(kept)))
            every = [value for values in gains.values() for value in values]
            error = np.std(every, ddof=1) / len(every) ** 0.5 if len(every) > 1 else np.nan
            cells = " ".join(f"{np.mean(values or [np.nan]):+6.2f}" for values in gains.values())
            print(f"{name:16s} mean {np.mean(every):+6.2f} +- {error:.2f} | {cells}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("datasets", nargs="*", default=SETS)
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--eta", default="0.3,0.5")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", default="", help="ideas with this in their name")
    parser.add_argument("--json")
    options = parser.parse_args()
    etas = [float(eta) for eta in options.eta.split(",")]
    jobs = list(product(range(options.splits), etas, options.datasets))
    results = []
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
        waiting = [pool.submit(job, name, split, eta, options.only) for split, eta, name in jobs]
        try:
            for done in as_completed(waiting):
                last = done.result()
                results.append(last)
                print(
                    f"{len(results)}/{len(jobs)} {last['dataset']} {last['split']} {last['eta']}",
                    flush=True,
                )
                if options.json:
                    Path(options.json).write_text(json.dumps(results))
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
    if results:
        report(results)


if __name__ == "__main__":
    main()
