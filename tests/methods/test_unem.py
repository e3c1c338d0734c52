"""UNEM: its rounds against plain numpy code, its gradient, and that learning helps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from fewview import (
    UNEM,
    EpisodeBatch,
    EpisodeSampler,
    FewviewWarning,
    MultiViewData,
    Paddle,
    State,
    TaskSpec,
    load,
)
from fewview.methods.estimator.fitted_base import learn_base
from fewview.methods.unem import Layers, Tasks, inner_products, total_variance

Array = Any


def by_hand(
    support: Array, query: Array, labels: Array, balance: Array, temperature: Array, scale: float
) -> Array:
    """One task, one sample after the other, in plain numpy: probabilities after the last round."""
    z_s, z_q, way = support * scale, query * scale, labels.max() + 1
    centres = np.stack([z_s[labels == k].mean(axis=0) for k in range(way)])
    shares = np.full(way, 1.0 / way)
    u = np.zeros((len(query), way))
    for lam, temp in zip(balance, temperature, strict=True):
        for q, z in enumerate(z_q):
            energy = np.array(
                [-((z - centres[k]) ** 2).sum() / 2 + lam * np.log(shares[k]) for k in range(way)]
            )
            e = np.exp((energy - energy.max()) / temp)
            u[q] = e / e.sum()
        shares = u.mean(axis=0) + 1e-6
        for k in range(way):
            top = z_s[labels == k].sum(axis=0) + (u[:, k, None] * z_q).sum(axis=0)
            centres[k] = top / ((labels == k).sum() + u[:, k].sum())
    return u


def random_tasks(n_tasks: int = 3, seed: int = 0) -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(seed)
    labels = np.array([0, 0, 1, 2, 2])
    return rng.normal(size=(n_tasks, 5, 4)), rng.normal(size=(n_tasks, 7, 4)), labels


def as_tensors(support: Array, query: Array, labels: Array) -> tuple[torch.Tensor, torch.Tensor]:
    members = torch.eye(3, dtype=torch.float64)[torch.from_numpy(labels)]
    products = inner_products(torch.from_numpy(support), torch.from_numpy(query))
    return products, members.expand(len(support), -1, -1)


def test_rounds_are_those_of_plain_code() -> None:
    support, query, labels = random_tasks()
    balance, temperature, scale = np.array([0.3, 1.7, 0.9]), np.array([1.0, 2.5, 1.2]), 1.4
    products, members = as_tensors(support, query, labels)
    layers = Layers(torch.tensor(balance), torch.tensor(temperature), torch.tensor(np.array(scale)))
    found = layers.unroll(products, members).exp().numpy()
    for task in range(len(support)):
        wanted = by_hand(support[task], query[task], labels, balance, temperature, scale)
        np.testing.assert_allclose(found[task], wanted, atol=1e-12)


def test_a_case_on_paper() -> None:
    """Supports at 0 and 2, queries at 0, 0 and 2; one round, then the second by hand.

    Round 1: the fit of a query at 0 is 0 and -2, so u = 1 / (1 + e^-2) = p for its class; the query
    at 2 mirrors it. Shares: (2 p + (1 - p)) / 3 = (1 + p) / 3 and (2 - p) / 3. Centres: class 0 has
    weight 1 + 1 + p and sum 2 (1 - p), class 1 has weight 1 + 2 - p and sum 2 + 2 p.
    """
    p = 1 / (1 + np.exp(-2.0))
    w0, w1 = 2 * (1 - p) / (2 + p), (2 + 2 * p) / (3 - p)
    log_odds = (w1**2 - w0**2) / 2 + 0.5 * np.log((1 + p) / (2 - p))  # of a query at 0
    support = torch.tensor([[[0.0], [2.0]]], dtype=torch.float64)
    query = torch.tensor([[[0.0], [0.0], [2.0]]], dtype=torch.float64)
    one = torch.ones((), dtype=torch.float64)
    layers = Layers(torch.tensor([9.0, 0.5]), torch.tensor([1.0, 1.0]), one)
    members = torch.eye(2, dtype=torch.float64)[None]
    found = layers.unroll(inner_products(support, query), members)[0]
    assert float(found[0, 0] - found[0, 1]) == pytest.approx(log_odds, abs=1e-5)


def test_many_equal_layers_are_paddle() -> None:
    """With lambda = T = 1 in every layer it is PADDLE, whose own code runs until nothing moves."""
    support, query, labels = random_tasks(seed=1)
    products, members = as_tensors(support, query, labels)
    ones = torch.ones(400, dtype=torch.float64)
    found = Layers(ones, ones, ones[0]).unroll(products, members).exp()
    paddle = Paddle(rescale="none").scores(batch_of(support, query, labels), State()).exp()
    np.testing.assert_allclose(found.numpy(), paddle.numpy(), atol=1e-3)


def batch_of(support: Array, query: Array, labels: Array) -> EpisodeBatch:
    n_tasks = len(support)
    return EpisodeBatch(
        (torch.from_numpy(support),), (torch.from_numpy(query),),
        torch.ones(n_tasks, len(labels), 1, dtype=torch.bool),
        torch.ones(n_tasks, query.shape[1], 1, dtype=torch.bool),
        torch.from_numpy(labels).expand(n_tasks, -1), None, torch.zeros(n_tasks).long(), 3, ("x",),
    )  # fmt: skip


def test_scores_are_those_of_the_layers_and_one_query_takes_the_first_alone() -> None:
    support, query, labels = random_tasks()
    layers = Layers(torch.tensor([0.3, 1.7]), torch.tensor([1.0, 2.5]), torch.tensor(1.4)).to(
        "cpu", torch.float64
    )
    for count, rounds in ((7, 2), (1, 1)):
        batch = batch_of(support, query[:, :count], labels)
        found = UNEM().scores(batch, layers).exp().numpy()
        for task in range(len(support)):
            wanted = by_hand(
                support[task], query[task, :count], labels,
                layers.balance[:rounds].numpy(), layers.temperature[:rounds].numpy(), 1.4,
            )  # fmt: skip
            np.testing.assert_allclose(found[task], wanted, atol=1e-6)


def test_gradient_by_differences() -> None:
    support, query, labels = random_tasks(6, seed=2)
    products, members = as_tensors(support, query, labels)
    answers = torch.from_numpy(np.random.default_rng(3).integers(0, 3, size=(6, 7)))
    tasks = Tasks(products, members, answers)
    raw = UNEM(n_layers=4).start(1.3, 1.0) + torch.linspace(-0.5, 0.5, 9, dtype=torch.float64)
    raw.requires_grad_()
    tasks.loss(raw).backward()  # type: ignore[no-untyped-call]
    assert raw.grad is not None
    step = 1e-6
    for number in range(len(raw)):
        moved = torch.zeros_like(raw)
        moved[number] = step
        with torch.no_grad():
            slope = float(tasks.loss(raw + moved) - tasks.loss(raw - moved)) / (2 * step)
        assert float(raw.grad[number]) == pytest.approx(slope, abs=1e-7)


def test_the_loss_is_the_cross_entropy_of_the_answers() -> None:
    support, query, labels = random_tasks(4, seed=5)
    products, members = as_tensors(support, query, labels)
    answers = np.random.default_rng(6).integers(0, 3, size=(4, 7))
    raw = torch.tensor([0.2, -0.4, 1.1, 0.3, -0.7], dtype=torch.float64)
    free = np.log1p(np.exp(raw[:4].numpy()))
    wanted = [
        by_hand(s, q, labels, free[:2], 1 + free[2:], float(raw[4].exp()))
        for s, q in zip(support, query, strict=True)
    ]
    likely = np.take_along_axis(np.array(wanted), answers[..., None], -1)
    found = Tasks(products, members, torch.from_numpy(answers)).loss(raw)
    assert float(found) == pytest.approx(-np.log(likely).mean())


def test_total_variance_is_half_the_mean_squared_distance() -> None:
    rng = np.random.default_rng(0)
    views = {"a": rng.normal(size=(50, 3)), "b": 3 * rng.normal(size=(50, 2))}
    far = ((np.hstack(list(views.values()))[:, None] - np.hstack(list(views.values()))) ** 2).sum(
        -1
    )
    assert total_variance(MultiViewData(views)) == pytest.approx(far.mean() / 2)
    mask = np.ones((50, 2), dtype=bool)
    mask[10:, 1] = False
    wanted = views["a"].var(0).sum() + views["b"][:10].var(0).sum()
    assert total_variance(MultiViewData(views, mask=mask)) == pytest.approx(wanted)
    assert total_variance(MultiViewData(np.ones((4, 2)))) == 1.0  # of no variance: any scale


def base_and_task() -> tuple[MultiViewData, TaskSpec]:
    data = load("digits")
    return data[data.labels < 7], TaskSpec(way=3, shot=1, queries=20, eta=0.3)


def test_learning_lowers_the_loss_on_tasks_that_took_no_part() -> None:
    base, task = base_and_task()
    scaled = learn_base(UNEM(n_steps=0), base, task).scaling.transform(base, "float64")
    variance = total_variance(scaled)
    seen, unseen = (UNEM().tasks_of(scaled, task, seed) for seed in (0, 99))
    before, after = (UNEM(n_steps=n).best_numbers(seen, variance) for n in (0, 60))
    with torch.no_grad():
        assert float(seen.loss(after)) < 0.95 * float(seen.loss(before))
        assert float(unseen.loss(after)) < 0.95 * float(unseen.loss(before))
        # It starts from the best of five scales.
        starts = [float(seen.loss(UNEM().start(d, variance))) for d in (0.6, 2.5, 10, 40, 160)]
        assert float(seen.loss(before)) == pytest.approx(min(starts))


def test_tasks_of_base_classes() -> None:
    """Half of equal shares, half of drawn ones; as many ways, shots and queries as there can be."""
    base, task = base_and_task()
    tasks = UNEM(n_tasks=6, padding="zero").tasks_of(base, task, 0)
    assert tasks.products.dtype == torch.float64
    assert tasks.products.shape == (6, 63, 63)
    assert tasks.members.shape == (6, 3, 3)
    counts = torch.stack([(tasks.answers == code).sum(1) for code in range(3)], 1)
    assert counts[:3].tolist() == [[20] * 3] * 3
    assert not (counts[3:] == 20).all(1).any()
    few = base[np.isin(base.labels, (0, 1))]
    tasks = UNEM(n_tasks=2).tasks_of(few, TaskSpec(way=5, shot=(1, 2, 2, 2, 2), queries=200), 0)
    assert tasks.members.shape[1:] == (4, 2)  # two ways, the most of the shots
    assert tasks.answers.shape[1] == 2 * 37  # at most 75 queries


@pytest.mark.parametrize(("scaling", "share"), [("scale", 0.9), ("by-width", 0.98)])
def test_learnt_numbers_say_better_how_sure_novel_classes_are(scaling: str, share: float) -> None:
    """Most where the stated numbers fit least: features of the paper's scaling."""
    data = load("digits")
    base, task = base_and_task()
    novel = data[data.labels >= 7]
    episodes = EpisodeSampler(novel, task, name="digits").draw(0, 40)

    def cross_entropy(method: UNEM) -> float:
        scores = method.score_episodes(novel, episodes, learn_base(method, base, task))
        labels = torch.from_numpy(episodes.query_labels)[..., None]
        return float(-scores.log_softmax(-1).gather(-1, labels).mean())

    stated = cross_entropy(UNEM(n_steps=0, scaling=scaling))
    assert cross_entropy(UNEM(scaling=scaling)) < share * stated


def test_without_enough_base_classes_stated_values_are_used() -> None:
    base, task = base_and_task()
    with pytest.warns(FewviewWarning, match="nothing can be learnt from the base classes"):
        state = learn_base(UNEM(n_layers=3), base[base.labels == 0], task).state
    assert isinstance(state, Layers)
    stated = float(torch.nn.functional.softplus(torch.tensor(1.0)))
    np.testing.assert_allclose(state.balance, stated, rtol=1e-6)
    np.testing.assert_allclose(state.temperature, 1 + stated, rtol=1e-6)
    few = base[np.isin(base.labels, (0, 1))]  # two classes, fewer than the ways of the task
    assert not np.allclose(
        learn_base(UNEM(n_layers=3), few, task).state.balance,
        stated,  # type: ignore[attr-defined]
    )


def test_the_size_of_features_does_not_matter() -> None:
    """A factor of all features is learnt away: the scale starts from their own spread."""
    base, task = base_and_task()
    novel = load("digits")[load("digits").labels >= 7]
    episodes = EpisodeSampler(novel, task, name="digits").draw(0, 10)
    answers = []
    for factor in (1.0, 1000.0):
        one, two = (
            MultiViewData({k: v * factor for k, v in part.views.items()}, part.labels)
            for part in (base, novel)
        )
        method = UNEM(scaling="none")
        answers.append(method.score_episodes(two, episodes, learn_base(method, one, task)))
    assert float((answers[0].argmax(-1) == answers[1].argmax(-1)).double().mean()) > 0.99
