"""Reasons: what each view says about a query, and how sure the model is about class means."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fewview.episodes.batch import EpisodeBatch
from fewview.methods.estimator.explanation import Explanation
from fewview.methods.marginal._model import Gaussians, unique_patterns, view_sums
from fewview.methods.marginal._rounds import MarginalState, Rule, score_alone


def explain_queries(batch: EpisodeBatch, state: MarginalState, rule: Rule) -> Explanation:
    """Decompose the predictive scores of one task by view.

    The score is a function of the set of views used. A view's contribution is the mean of what it
    adds as the first view and what it adds as the last one, and what the views then lack to the
    whole score is shared among them in equal parts: with two views these are Shapley values.
    """
    n_views, n_query = batch.n_views, batch.n_query
    mask = batch.query_mask[0]
    eye = torch.eye(n_views, dtype=torch.bool, device=mask.device)
    # One task whose queries are the originals, each view alone, and all views but one.
    variants = torch.cat([mask[None], mask & eye[:, None], mask & ~eye[:, None]])  # [1+2V, N, V]
    repeated = tuple(view.repeat(1, len(variants), 1) for view in batch.query)
    asked = replace(batch, query=repeated, query_mask=variants.reshape(1, -1, n_views))
    # By themselves, whatever the settings: the scores that directions of the task have no part in.
    plain = replace(rule, structure="full", scoring="predictive", transductive=False)
    _, members, scores = score_alone(asked, state, plain)
    scores = scores[0].double() * state.settings.by_itself
    scores = scores - scores.mean(-1, keepdim=True)
    scores = scores.reshape(1 + 2 * n_views, n_query, batch.way)
    whole, alone, without = scores[0], scores[1 : 1 + n_views], scores[1 + n_views :]
    seen = mask.T[..., None].to(whole.dtype)  # [V, N, 1]
    added = seen * (alone + whole - without) / 2
    rest = (whole - added.sum(0)) / seen.sum(0).clamp(min=1)
    contributions = added + seen * rest
    other = (mask & ~eye[:, None]).any(-1)  # [V, N]
    decided_without = torch.where(other, without.argmax(-1), -1)
    return Explanation(
        scores=_array(whole),
        contributions=_array(contributions.transpose(0, 1)),
        without=_array(without.transpose(0, 1)),
        decided=whole.argmax(-1).cpu().numpy(),
        decided_without=decided_without.T.cpu().numpy(),
        uncertainty=_array(class_uncertainty(state.model, batch.support_mask[0], members[0])),
        view_names=batch.view_names,
    )


def class_uncertainty(model: Gaussians, support_mask: Tensor, members: Tensor) -> Tensor:
    """Posterior variance of class means as a share of the prior variance, [way, V].

    From the views that the supports have [N_S, V] and their weights in classes [N_S, way].
    """
    between = model.between.double()
    width, way = len(between), members.shape[1]
    information = torch.zeros(way, width, width, dtype=torch.float64, device=between.device)
    patterns, pattern = unique_patterns(support_mask)
    for index, views in enumerate(patterns):
        columns = model.columns(views)
        factor = torch.linalg.cholesky(model.within.double()[columns][:, columns])
        full = torch.zeros_like(between)
        full[columns[:, None], columns] = torch.cholesky_inverse(factor)
        weight = members[pattern == index].sum(0).double()
        information += weight[:, None, None] * full
    # inv(inv(B) + K) = R inv(I + R' K R) R' with R R' = B, which needs no inverse of B.
    values, vectors = torch.linalg.eigh(between)
    root = vectors * values.clamp(min=0).sqrt()
    identity = torch.eye(width, dtype=torch.float64, device=between.device)
    factor = torch.linalg.cholesky(identity + root.T @ information @ root)
    half = torch.linalg.solve_triangular(factor, root.T.expand(way, -1, -1), upper=False)
    after = half.mT @ half
    before = view_sums(between.diagonal(), model.dims).clamp(min=1e-30)
    return (view_sums(after.diagonal(dim1=-2, dim2=-1), model.dims) / before).clamp(0, 1)


def _array(tensor: Tensor) -> NDArray[np.float64]:
    return np.asarray(tensor.double().cpu())
