"""Filling missing views before a method that cannot handle them, or is not to.

The paper pads a missing view with the mean of the same view over available samples of the same
label, "as much as possible". With one shot there is no such sample, and what matters is the
fallback; see `PADDINGS`. Query labels are never used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from fewview.episodes.batch import EpisodeBatch
from fewview.errors import FewviewError
from fewview.numerics.distances import class_means

PADDINGS = ("episode", "zero", "support", "base")
# Those that look at the queries of the task: an answer then depends on what else is asked.
FROM_QUERIES = ("episode",)
# For methods that handle gaps: all of them stay, or those that no support of the class can fill.
KEEPING = ("none", "class")


def pad(batch: EpisodeBatch, rule: str, base_means: Sequence[Tensor] | None = None) -> EpisodeBatch:
    """Fill the missing views of supports and queries; masks stay as they are.

    A support takes the mean of view v over the supports of its class that have it, and else the
    fallback; a query always takes the fallback:

    - `"episode"`: the mean of view v over the supports and queries that have it;
    - `"zero"`: zeros, the mean of a view under the scaling `scale`;
    - `"support"`: the mean over the supports that have it;
    - `"base"`: the mean over the base set, or without one over the supports that have it.

    Where nobody among these has the view, the base mean [width] of the view is taken, or zeros
    without a base set. Only `"episode"` looks at queries.
    """
    if rule not in PADDINGS:
        raise FewviewError(f"padding {rule!r} is not one of {', '.join(PADDINGS)}")
    members = batch.one_hot()
    if rule == "zero" and batch.n_support <= batch.way and bool(((members > 0).sum(1) <= 1).all()):
        return batch  # gaps are zeros already, and no support has another one of its class
    # Views that somebody lacks; the others are not touched.
    lacking = torch.stack([(~mask).flatten(0, 1).any(0) for mask in _masks(batch)]).tolist()
    if not any(map(any, lacking)):
        return batch
    supports, queries = list(batch.support), list(batch.query)
    for view, (x_s, x_q) in enumerate(zip(batch.support, batch.query, strict=True)):
        # Gaps are zeros already, which is all that queries need under that rule.
        fills_q = lacking[1][view] and rule != "zero"
        if not lacking[0][view] and not fills_q:
            continue
        m_s = batch.support_mask[..., view].to(x_s.dtype)  # [T, N_S]
        m_q = batch.query_mask[..., view].to(x_q.dtype)
        base = None if base_means is None else base_means[view].to(x_s)
        fallback = _fallback(rule, x_s, x_q, m_s, m_q, base)  # [T, d]
        if lacking[0][view]:
            seen = members * m_s[..., None]  # [T, N_S, K]
            known = seen.sum(1)[..., None] > 0  # [T, K, 1]
            means = torch.where(known, class_means(x_s, seen), fallback[:, None])  # [T, K, d]
            own = means.gather(1, batch.support_labels[..., None].expand(-1, -1, x_s.shape[-1]))
            supports[view] = torch.where(batch.support_mask[..., view, None], x_s, own)
        if fills_q:
            queries[view] = torch.where(batch.query_mask[..., view, None], x_q, fallback[:, None])
    return replace(batch, support=tuple(supports), query=tuple(queries))


def _masks(batch: EpisodeBatch) -> tuple[Tensor, Tensor]:
    return batch.support_mask, batch.query_mask


def fill(
    batch: EpisodeBatch, rule: str, base_means: Sequence[Tensor] | None = None
) -> EpisodeBatch:
    """Fill missing views and call what was filled observed; `rule` may be one of `KEEPING` too."""
    supports, queries = batch.support_mask, batch.query_mask
    if rule == "none" or (bool(supports.all()) and (rule == "class" or bool(queries.all()))):
        return batch
    if rule != "class":
        whole = pad(batch, rule, base_means)
        seen = torch.ones_like(supports), torch.ones_like(queries)
        return replace(whole, support_mask=seen[0], query_mask=seen[1])
    counts = batch.one_hot().mT @ supports.to(batch.dtype)  # [T, way, V]
    known = (counts > 0).gather(1, batch.support_labels[..., None].expand(-1, -1, batch.n_views))
    # What is filled with zeros here stays a gap.
    return replace(batch, support=pad(batch, "zero").support, support_mask=known)


def _fallback(
    rule: str, x_s: Tensor, x_q: Tensor, m_s: Tensor, m_q: Tensor, base: Tensor | None
) -> Tensor:
    """What a gap of one view is filled with where the class does not say, [tasks, width]."""
    zeros = x_s.new_zeros(x_s.shape[0], x_s.shape[-1])
    last = zeros if base is None else base.expand_as(zeros)
    if rule == "zero":
        return zeros
    if rule == "base" and base is not None:
        return last
    total, count = (m_s[:, None] @ x_s)[:, 0], m_s.sum(1, keepdim=True)
    if rule in FROM_QUERIES:
        total = total + (m_q[:, None] @ x_q)[:, 0]
        count = count + m_q.sum(1, keepdim=True)
    return torch.where(count > 0, total / count.clamp(min=1), last)
