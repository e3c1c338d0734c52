"""What users should know of their queries before they believe the answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fewview.episodes.batch import EpisodeBatch
from fewview.numerics.distances import partial_distances
from fewview.samples._data import MultiViewData

if TYPE_CHECKING:
    from fewview.methods.estimator.method import Method

# Share of queries that would have to change class for balance, above which users are told: by
# nearest supports, and by mean probabilities of queries taken one by one.
UNBALANCED, UNBALANCED_INDUCTIVE = 0.35, 0.27
# What answers lose in probability by queries taken one by one, above which users are told
# (`compare_inductive`). This and UNBALANCED_INDUCTIVE are what 99 of 100 balanced tasks of base
# classes stay below, and 95 of 100 on any data set (benchmarks/query_warnings.py).
CHANGED = 0.22
# Fewer queries per class tell little about all that.
FEWEST_PER_CLASS = 5


def diagnose(method: Method, query: MultiViewData) -> list[str]:
    """Sentences about queries; none where nothing is to be said."""
    name = type(method).__name__
    if method.looks_at_queries != "yes" or not len(query):
        return []
    if len(query) == 1:
        return [
            f"{name} looks at all queries together; with a single one it falls back to what the "
            "supports say"
        ]
    batch, _, columns = method._task(query)
    if batch.n_query < FEWEST_PER_CLASS * batch.way:
        return []
    said = []
    with torch.no_grad():
        found = method.scores_inductive(batch, method.fitted_.state)
    if found is None:
        # Distances over shared views: padded views draw queries to some classes by themselves.
        nearest = nearest_support(batch)[0].argmax(-1)
        shares = torch.bincount(nearest, minlength=batch.way).double() / batch.n_query
        limit, source = UNBALANCED, "by nearest support"
        advice = "a method that does not assume it may do better"
    else:
        inductive = found[0]
        scores = method.score_batch(batch, method.fitted_)[0]
        shares, lost = compare_inductive(inductive, scores)
        limit, source = UNBALANCED_INDUCTIVE, "by what the supports say about each one"
        advice = "compare with predict_proba(X, inductive=True)"
        if lost > CHANGED:
            other = float((scores.argmax(-1) != inductive.argmax(-1)).double().mean())
            said.append(
                f"{name} gives {100 * other:.0f} % of the queries another class than each would "
                f"get by itself, and by themselves these answers are {100 * float(lost):.0f} "
                f"points less probable; {advice}"
            )
    uneven = float((shares - 1 / batch.way).abs().sum()) / 2
    if method.tags.balanced and uneven > limit:
        listed = ", ".join(f"{100 * share:.0f} %" for share in shares.cpu()[columns][:10].tolist())
        wants = "assumes" if method.tags.balanced == 1 else "pulls towards"
        said.insert(
            0,
            f"{name} {wants} equally many queries of every class, and these look unbalanced "
            f"({listed} {source}); {advice}",
        )
    return said


def compare_inductive(inductive: Tensor, together: Tensor) -> tuple[Tensor, Tensor]:
    """Shares of classes by queries taken one by one, and how much together differs from that.

    Scores are [..., n_query, way]; shares are [..., way]. The difference is the mean probability
    that queries by themselves give to their best class beyond the one they get together: where the
    supports cannot decide between two classes, choosing the other one costs nothing.
    """
    p = torch.softmax(inductive.double(), dim=-1)
    taken = p.gather(-1, together.argmax(-1, keepdim=True))[..., 0]
    return p.mean(-2), (p.amax(-1) - taken).mean(-1)


def nearest_support(batch: EpisodeBatch) -> Tensor:
    """Minus the partial distance to the nearest support of every class, [tasks, n_query, way].

    Where a query and a support share no view, that class is farthest.
    """
    distances, shared = partial_distances(
        batch.query, batch.support, batch.query_mask, batch.support_mask
    )
    distances = torch.where(shared, distances, torch.inf)
    members = batch.one_hot() > 0  # [T, N_S, K]
    return -torch.where(members[:, None], distances[..., None], torch.inf).amin(2)
