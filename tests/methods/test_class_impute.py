"""Class-aware imputation against plain numpy code, and a case on paper."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from fewview import ClassImpute, EpisodeBatch, MultiViewData, TaskSpec
from fewview.methods.class_impute import BaseClasses

Array = Any
nan = np.nan


def distance(a: list[Array | None], b: list[Array | None]) -> float | None:
    """Mean over views that both have of the mean squared difference; None if there is none."""
    parts = [
        np.mean((x - y) ** 2) for x, y in zip(a, b, strict=True) if x is not None and y is not None
    ]
    return float(np.mean(parts)) if parts else None


def softmax(x: Array) -> Array:
    e = np.exp(x - np.max(x))
    return e / e.sum()


def by_hand(
    support: list[list[Array | None]],
    labels: list[int],
    query: list[list[Array | None]],
    base: list[list[Array | None]],
    strength: float,
    temperature: float,
    rounds: int,
) -> Array:
    """Probabilities of one task, sample by sample; a missing view is None."""
    way, n_views = max(labels) + 1, len(support[0])
    groups = [[s for s, k in zip(support, labels, strict=True) if k == c] for c in range(way)]

    def mean(rows: list[Array | None]) -> Array | None:
        there = [row for row in rows if row is not None]
        return np.mean(there, axis=0) if there else None

    means = [[mean([s[v] for s in group]) for v in range(n_views)] for group in groups]
    lenders = means + base
    centres: list[list[Array | None]] = []
    for k in range(way):
        others = [j for j in range(len(lenders)) if j != k]
        far = [distance(means[k], lenders[j]) for j in others]
        usual = np.mean([d for d in far if d is not None])
        weights = softmax(
            np.array([-temperature * (usual if d is None else d) / usual for d in far])
        )
        centre: list[Array | None] = []
        for v in range(n_views):
            lent = [(w, lenders[j][v]) for w, j in zip(weights, others, strict=True)]
            lent = [(w, x) for w, x in lent if x is not None]
            borrowed = sum(w * x for w, x in lent) / sum(w for w, _ in lent)
            have = [s[v] for s in groups[k] if s[v] is not None]
            expected = (sum(have) + strength * borrowed) / (len(have) + strength)
            filled = [s[v] if s[v] is not None else expected for s in groups[k]]
            centre.append(np.mean(filled, axis=0))
        centres.append(centre)
    out = []
    for q in query:
        full = q
        for number in range(rounds + 1):
            far = np.array([distance(full, centre) for centre in centres])
            p = softmax(-temperature * far / far.mean())
            if number < rounds:
                full = [
                    x if x is not None else sum(p[k] * centres[k][v] for k in range(way))
                    for v, x in enumerate(q)
                ]
        out.append(p)
    return np.array(out)


@pytest.mark.parametrize("rounds", [0, 1, 4])
@pytest.mark.parametrize("n_base", [0, 3])
def test_scores_are_those_of_plain_code(rounds: int, n_base: int) -> None:
    rng = np.random.default_rng(rounds + 10 * n_base)
    widths, labels = (3, 5, 2), [0, 0, 1, 1, 2, 2]
    rows = [rng.normal(size=(6 + 8 + n_base, d)) for d in widths]
    there = np.ones((6 + 8 + n_base, 3), dtype=bool)
    there[[0, 1], 1] = False  # class 0 has no sample of the second view
    there[2, 0] = there[5, 2] = there[6, 0] = there[7, 1] = there[8, [0, 2]] = False
    if n_base:
        there[14, 2] = False
    lists = [[x[i] if there[i, v] else None for v, x in enumerate(rows)] for i in range(len(there))]
    wanted = by_hand(lists[:6], labels, lists[6:14], lists[14:], 0.7, 4.0, rounds)
    tensors = [torch.from_numpy(np.where(there[:, v, None], x, 0.0)) for v, x in enumerate(rows)]
    mask = torch.from_numpy(there)
    batch = EpisodeBatch(
        tuple(x[None, :6] for x in tensors), tuple(x[None, 6:14] for x in tensors),
        mask[None, :6], mask[None, 6:14], torch.tensor([labels]), None, torch.zeros(1).long(), 3,
        ("a", "b", "c"),
    )  # fmt: skip
    method = ClassImpute(strength=0.7, temperature=4.0, n_iter=rounds, dtype="float64")
    base = BaseClasses(tuple(x[14:] for x in tensors), mask[14:])
    found = torch.softmax(method.scores(batch, base), -1)[0].numpy()
    np.testing.assert_allclose(found, wanted, atol=1e-12)


def test_a_case_on_paper() -> None:
    """Class "b" lacks the second view; the base class that is like it has 8 there, the other 0.

    In the first view b lies at 4, on the first base class and as far from the second (at -4) and
    from a (at 0) as can be told: with a sharp softmax it borrows 8. A query with 7 in the second
    view alone is then b's.
    """
    base = MultiViewData(
        {"x": [[4.0], [4.0], [-4.0], [-4.0]], "y": [[8.0], [8.0], [0.0], [0.0]]}, [0, 0, 1, 1]
    )
    clf = ClassImpute(base=base, scaling="none", temperature=50.0)
    clf.fit({"x": [[0.0], [4.0]], "y": [[1.0], [nan]]}, ["a", "b"])
    assert clf.predict({"x": [[nan], [nan]], "y": [[7.0], [2.0]]}).tolist() == ["b", "a"]
    clf = ClassImpute(scaling="none").fit({"x": [[0.0], [4.0]], "y": [[1.0], [nan]]}, ["a", "b"])
    # Without base classes b can borrow from nobody but a, and the second view says nothing.
    assert clf.predict_proba({"x": [[nan]], "y": [[7.0]]}) == pytest.approx(0.5)


def test_means_of_base_classes() -> None:
    rng = np.random.default_rng(0)
    codes = np.repeat([0, 1, 2], 4)
    blocks = {"a": rng.normal(size=(12, 2)), "b": rng.normal(size=(12, 3))}
    mask = np.ones((12, 2), dtype=bool)
    mask[[0, 1, 6], 0] = mask[8:, 1] = False
    base = MultiViewData(blocks, labels=codes, mask=mask)
    state = ClassImpute(dtype="float64").learn(base, TaskSpec(), 0)
    assert state.has.tolist() == [[True, True], [True, True], [True, False]]
    for view, block in enumerate(blocks.values()):
        for code in range(3):
            rows = (codes == code) & mask[:, view]
            wanted = block[rows].mean(0) if rows.any() else np.zeros(block.shape[1])
            np.testing.assert_allclose(state.means[view][code].numpy(), wanted, atol=1e-6)
