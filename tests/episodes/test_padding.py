"""Missing views are filled by hand-worked rules, which never look at query labels."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from fewview import EpisodeBatch, FewviewError
from fewview.episodes.padding import PADDINGS, fill, pad

MEANS = (torch.tensor([-1.0]), torch.tensor([-2.0]))  # of the base set


def batch() -> EpisodeBatch:
    """Two views of width one; class 0 has supports 0 and 1, class 1 support 2; two queries."""
    return EpisodeBatch(
        support=(torch.tensor([[[1.0], [0.0], [0.0]]]), torch.tensor([[[5.0], [7.0], [9.0]]])),
        query=(torch.tensor([[[4.0], [0.0]]]), torch.tensor([[[0.0], [3.0]]])),
        support_mask=torch.tensor([[[True, True], [False, True], [False, True]]]),
        query_mask=torch.tensor([[[True, False], [False, True]]]),
        support_labels=torch.tensor([[0, 0, 1]]),
        query_labels=None,
        seeds=torch.tensor([0]),
        way=2,
        view_names=("a", "b"),
    )


@pytest.mark.parametrize(
    ("rule", "support_a", "query_a", "query_b"),
    [
        ("zero", [1.0, 1.0, 0.0], [4.0, 0.0], [0.0, 3.0]),
        ("episode", [1.0, 1.0, 2.5], [4.0, 2.5], [6.0, 3.0]),
        ("support", [1.0, 1.0, 1.0], [4.0, 1.0], [7.0, 3.0]),
        ("base", [1.0, 1.0, -1.0], [4.0, -1.0], [-2.0, 3.0]),
    ],
)
def test_padding_by_hand(
    rule: str, support_a: list[float], query_a: list[float], query_b: list[float]
) -> None:
    found = pad(batch(), rule, MEANS)
    assert found.support[0].flatten().tolist() == support_a
    assert found.support[1].flatten().tolist() == [5.0, 7.0, 9.0]
    assert found.query[0].flatten().tolist() == query_a
    assert found.query[1].flatten().tolist() == query_b
    assert torch.equal(found.support_mask, batch().support_mask)
    assert torch.equal(found.query_mask, batch().query_mask)


def test_without_a_base_set_supports_stand_in() -> None:
    found, wanted = pad(batch(), "base"), pad(batch(), "support")
    for one, two in zip(
        (*found.support, *found.query), (*wanted.support, *wanted.query), strict=True
    ):
        assert torch.equal(one, two)


def test_a_view_that_nobody_has_is_filled_with_the_base_mean() -> None:
    seen = torch.tensor([False, True])
    gone = replace(
        batch(), support_mask=batch().support_mask & seen, query_mask=batch().query_mask & seen
    )
    for rule in ("episode", "support", "base"):
        assert pad(gone, rule, MEANS).support[0].flatten().tolist() == [-1.0] * 3
        assert pad(gone, rule).query[0].flatten().tolist() == [0.0] * 2
    with pytest.raises(FewviewError, match="not one of"):
        pad(gone, "foam")


def test_supports_count_by_their_weight() -> None:
    data = replace(
        batch(),
        support_mask=torch.tensor([[[True, True], [True, True], [False, True]]]),
        support=(torch.tensor([[[1.0], [3.0], [0.0]]]), batch().support[1]),
        support_labels=torch.tensor([[0, 0, 0]]),
        support_weights=torch.tensor([[3.0, 1.0, 1.0]]),
    )
    assert pad(data, "zero").support[0][0, 2].item() == pytest.approx(1.5)


@pytest.mark.parametrize("rule", PADDINGS)
def test_what_is_filled_may_be_called_seen(rule: str) -> None:
    found, wanted = fill(batch(), rule, MEANS), pad(batch(), rule, MEANS)
    assert bool(found.support_mask.all() and found.query_mask.all())
    for view in range(2):
        assert torch.equal(found.support[view], wanted.support[view])
        assert torch.equal(found.query[view], wanted.query[view])


def test_gaps_that_stay() -> None:
    assert torch.equal(fill(batch(), "none").support_mask, batch().support_mask)
    found = fill(batch(), "class")
    # Support 1 has another support of its class with the view; support 2 and queries have none.
    assert found.support[0].flatten().tolist() == [1.0, 1.0, 0.0]
    assert found.support_mask[0, :, 0].tolist() == [True, True, False]
    assert torch.equal(found.query_mask, batch().query_mask)
