"""Tasks as tensors, against a plain loop over tasks, samples and views."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from fewview import (
    EpisodeBatch,
    Episodes,
    EpisodeSampler,
    FewviewError,
    MultiViewData,
    TaskSpec,
    create,
)
from fewview.episodes.batch import ViewTensors, latent_batch, side_by_side
from fewview.methods.estimator.fitted_base import learn_base


def made(gaps: bool = False) -> MultiViewData:
    rng = np.random.default_rng(0)
    mask = np.ones((40, 3), dtype=bool)
    if gaps:
        mask[::3, 0] = mask[1::3, 2] = False
    views = {
        "a": rng.normal(size=(40, 2)),
        "b": rng.normal(size=(40, 5)),
        "c": rng.normal(size=(40, 1)),
    }
    return MultiViewData(views, labels=np.repeat(["w", "x", "y", "z"], 10), mask=mask)


def drawn(data: MultiViewData, **parameters: Any) -> Episodes:
    task = TaskSpec(**{"way": 3, "shot": 2, "queries": 4, "eta": 0.4, **parameters})
    return EpisodeSampler(data, task).draw(0, 7)


@pytest.mark.parametrize("gaps", [False, True])
def test_gather_equals_a_plain_loop(gaps: bool) -> None:
    data = made(gaps)
    episodes = drawn(data)
    batch = ViewTensors.of(data, dtype=torch.float64).gather(episodes)
    zeros = 0
    for role in ("support", "query"):
        rows, mask = getattr(episodes, role), getattr(episodes, f"{role}_mask")
        for v, view in enumerate(data.view_names):
            block = getattr(batch, role)[v]
            assert block.shape == (*rows.shape, data.view_dims[view])
            for t in range(len(episodes)):
                for n, row in enumerate(rows[t]):
                    there = mask[t, n, v] and data.mask[row, v]
                    wanted = data.view(view)[row] if there else np.zeros(data.view_dims[view])
                    assert block[t, n].tolist() == wanted.tolist()
                    assert bool(getattr(batch, f"{role}_mask")[t, n, v]) == there
                    zeros += not there
    assert zeros > 0.3 * 7 * 18 * 3
    assert torch.equal(batch.support_labels, torch.from_numpy(episodes.support_labels))
    assert batch.query_labels is not None
    assert torch.equal(batch.query_labels, torch.from_numpy(episodes.query_labels))


def test_numbers_about_a_batch() -> None:
    data = made()
    batch = ViewTensors.of(data).gather(drawn(data, shot=(1, 2, 3)))
    assert (batch.n_tasks, batch.n_support, batch.n_query, batch.n_views, batch.way) == (
        7, 6, 12, 3, 3,
    )  # fmt: skip
    assert batch.dtype == torch.float32
    assert batch.device == torch.device("cpu")
    assert batch.view_names == ("a", "b", "c")


def test_seeds_keep_their_bits() -> None:
    data = made()
    episodes = drawn(data)
    batch = ViewTensors.of(data).gather(episodes)
    assert [seed % 2**64 for seed in batch.seeds.tolist()] == episodes.seeds.tolist()
    assert batch.seeds.dtype == torch.int64


def test_nan_never_enters_and_the_data_are_not_changed() -> None:
    data = made(gaps=True)
    before = data.fingerprint
    tensors = ViewTensors.of(data)
    kept = [view.clone() for view in tensors.views]
    first = tensors.gather(drawn(data))
    second = tensors.gather(drawn(data))
    for batch in (first, second):
        for block in (*batch.support, *batch.query):
            assert torch.isfinite(block).all()
    assert all(torch.equal(a, b) for a, b in zip(first.query, second.query, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(kept, tensors.views, strict=True))
    assert data.fingerprint == before


def test_some_of_the_tasks() -> None:
    data = made()
    episodes = drawn(data)
    tensors = ViewTensors.of(data)
    whole = tensors.gather(episodes)
    for key in (slice(2, 5), [4], torch.tensor([6, 0])):
        part = whole.tasks(key)
        index = key if isinstance(key, slice) else np.asarray(key)
        wanted = tensors.gather(episodes[index])
        assert part.n_tasks == wanted.n_tasks
        for name in ("support_mask", "query_mask", "support_labels", "query_labels", "seeds"):
            assert torch.equal(getattr(part, name), getattr(wanted, name))
        for name in ("support", "query"):
            for one, two in zip(getattr(part, name), getattr(wanted, name), strict=True):
                assert torch.equal(one, two)


def test_moving_changes_features_only() -> None:
    data = made()
    batch = replace(ViewTensors.of(data).gather(drawn(data)), support_weights=torch.ones(7, 6))
    moved = batch.to("cpu", torch.float64)
    assert moved.dtype == torch.float64
    assert moved.support_weights is not None
    assert moved.support_weights.dtype == torch.float64
    for name in ("support_labels", "query_labels", "seeds", "support_mask", "query_mask"):
        assert torch.equal(getattr(moved, name), getattr(batch, name))
        assert getattr(moved, name).dtype == getattr(batch, name).dtype
    assert batch.to().dtype == torch.float32
    assert batch.to("meta").device.type == "meta"
    assert batch.to(dtype=torch.float64).seeds.dtype == torch.int64


def test_some_of_the_queries() -> None:
    data = made(gaps=True)
    batch = ViewTensors.of(data).gather(drawn(data))
    rows = torch.tensor([5, 0, 7])
    part = batch.with_queries(rows)
    assert (part.n_query, part.n_support) == (3, batch.n_support)
    assert batch.query_labels is not None
    assert part.query_labels is not None
    assert torch.equal(part.query_labels, batch.query_labels[:, rows])
    single = batch.tasks(slice(2, 3)).one_by_one(rows)
    assert (single.n_tasks, single.n_query) == (3, 1)
    for number, row in enumerate(rows.tolist()):
        assert torch.equal(single.query_mask[number, 0], batch.query_mask[2, row])
        assert torch.equal(single.support_labels[number], batch.support_labels[2])
        assert int(single.seeds[number]) == int(batch.seeds[2])
        for view in range(batch.n_views):
            assert torch.equal(single.query[view][number, 0], batch.query[view][2, row])
            assert torch.equal(single.support[view][number], batch.support[view][2])
    bare = replace(batch, query_labels=None)
    assert bare.tasks(slice(0, 2)).to(dtype=torch.float64).query_labels is None
    assert bare.with_queries(rows).query_labels is None


def test_one_latent_view() -> None:
    data = made(gaps=True)
    batch = ViewTensors.of(data).gather(drawn(data))
    anchors, query = torch.zeros(7, 9, 4), torch.ones(7, 12, 4)
    labels, weights = torch.zeros(7, 9, dtype=torch.int64), torch.full((7, 9), 0.5)
    latent = latent_batch(batch, anchors, query, labels, weights)
    assert latent.view_names == ("latent",)
    assert (latent.n_support, latent.n_query, latent.n_views) == (9, 12, 1)
    assert bool(latent.support_mask.all() and latent.query_mask.all())
    assert latent.one_hot()[0, 0].tolist() == [0.5, 0.0, 0.0]


def test_membership_and_concatenation() -> None:
    batch = EpisodeBatch(
        support=(torch.tensor([[[1.0], [2.0], [3.0]]]), torch.tensor([[[4.0], [5.0], [6.0]]])),
        query=(torch.tensor([[[7.0]]]), torch.tensor([[[8.0]]])),
        support_mask=torch.ones(1, 3, 2, dtype=torch.bool),
        query_mask=torch.ones(1, 1, 2, dtype=torch.bool),
        support_labels=torch.tensor([[1, 0, 1]]),
        query_labels=None,
        seeds=torch.zeros(1, dtype=torch.int64),
        way=2,
        view_names=("a", "b"),
    )
    assert batch.one_hot().tolist() == [[[0, 1], [1, 0], [0, 1]]]
    weighted = replace(batch, support_weights=torch.tensor([[0.5, 2.0, 1.0]]))
    assert weighted.one_hot().tolist() == [[[0, 0.5], [2, 0], [0, 1]]]
    support, query = batch.concatenated()
    assert support.tolist() == [[[1, 4], [2, 5], [3, 6]]]
    assert query.tolist() == [[[7, 8]]]


def test_episodes_of_other_data_are_refused() -> None:
    data = made()
    episodes = drawn(data)
    with pytest.raises(FewviewError, match=r"episodes are about views \('a', 'b', 'c'\)"):
        ViewTensors.of(data.select_views(["b", "a", "c"])).gather(episodes)
    with pytest.raises(FewviewError, match="the data have 10 rows; they were drawn from another"):
        ViewTensors.of(data[:10]).gather(episodes)


def test_numbers_that_only_float64_can_hold() -> None:
    data = MultiViewData({"a": np.array([[1 + 2.0**-40], [1.0]])})
    assert ViewTensors.of(data, dtype=torch.float64).views[0][0].item() == 1 + 2.0**-40
    assert ViewTensors.of(data).views[0][0].item() == 1.0


def test_views_are_one_tensor_only_where_they_are_all_of_it_in_order() -> None:
    whole = torch.arange(2 * 3 * 9.0).reshape(2, 3, 9)
    a, b, c = torch.split(whole, [2, 3, 4], dim=-1)
    found = side_by_side((a, b, c))
    assert found.data_ptr() == whole.data_ptr()
    assert torch.equal(found, whole)
    for others in ((a, c, b), (a, b), (b, c), (a, b, c.clone()), (a[:1], b[:1], c[1:])):
        copied = side_by_side(others)
        assert torch.equal(copied, torch.cat(others, dim=-1))
        assert copied.data_ptr() != others[0].data_ptr()
    assert side_by_side((a[1:], b[1:], c[1:])).data_ptr() == whole[1:].data_ptr()


@pytest.mark.parametrize("name", ["proto", "marginal", "ugda", "unem"])
def test_rows_scaled_on_a_device_answer_alike(name: str) -> None:
    """`cpu:0` is the CPU by another name, on which rows take the way that they take to a GPU."""
    data = made(gaps=True)[::-1]
    base, novel = (data[np.isin(data.labels, classes)] for classes in (["w", "x"], ["y", "z"]))
    scores = []
    for device in ("cpu", "cpu:0"):
        method = create(name, device=device)
        task = TaskSpec(way=2, shot=1, queries=4)
        episodes = EpisodeSampler(novel, task).draw(0, 3)
        scores.append(method.score_episodes(novel, episodes, learn_base(method, base, task)))
    assert torch.isfinite(scores[0]).all()
    torch.testing.assert_close(scores[1], scores[0], rtol=1e-3, atol=1e-3)
