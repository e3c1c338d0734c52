"""CPM, CPM-GAN, ICMSC and COMPLETER against closed forms, scipy, loops and one another."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.linalg
import torch
from torch import Tensor
from torch.nn.functional import batch_norm, binary_cross_entropy_with_logits, leaky_relu, mse_loss

from fewview import (
    EpisodeSampler,
    FewviewError,
    MissingRule,
    MultiViewData,
    State,
    TaskSpec,
    create,
)
from fewview.datasets import make_few_shot
from fewview.episodes.batch import EpisodeBatch
from fewview.episodes.padding import fill
from fewview.methods.estimator.fitted_base import learn_base
from fewview.methods.estimator.laws import check_method
from fewview.methods.networks import base, completer, cpm, icmsc
from fewview.methods.registry import expand, names
from fewview.numerics.iterate import tensors_in

# Fewer epochs and narrower networks of the same method.
SMALL: dict[str, dict[str, Any]] = {
    "cpm": {"latent": 16, "epochs": 10, "query_epochs": 15},
    "cpm-gan": {"latent": 16, "epochs": 10, "query_epochs": 15, "discriminator_hidden": 8},
    "icmsc": {"width": 64, "epochs": (4, 8)},
    "completer": {"width": 32, "code": 16, "epochs": 20, "warm_up": 4},
}
DATA = make_few_shot(10, 20, {"a": 5, "b": 8, "c": 3}, seed=1)
BASE, NOVEL = DATA[DATA.codes < 6], DATA[DATA.codes >= 6]


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def tensor(*shape: int, seed: int = 0) -> Tensor:
    return torch.from_numpy(rng(seed).normal(size=shape))


def small(name: str, **parameters: Any) -> Any:
    return create(name, dtype="float64").set_params(**{**SMALL[name.split(":")[0]], **parameters})


def task_of(eta: float = 0.3, shot: int = 1) -> TaskSpec:
    return TaskSpec(way=3, shot=shot, queries=4, eta=eta)


def scaled_tasks(method: Any, task: TaskSpec, n_tasks: int = 3) -> tuple[EpisodeBatch, Any]:
    """Tasks of new classes, and what the method learnt from the others."""
    fitted = learn_base(method, BASE, task)
    episodes = EpisodeSampler(NOVEL, task, name="networks").draw(0, n_tasks)
    return replace(method.tensors(NOVEL, fitted).gather(episodes), query_labels=None), fitted


def small_batch(eta: float = 0.3, n_tasks: int = 3, shot: int = 1) -> EpisodeBatch:
    return scaled_tasks(create("proto", dtype="float64"), task_of(eta, shot), n_tasks)[0]


def made_batch(views: list[Tensor], mask: Tensor, labels: Tensor | None = None) -> EpisodeBatch:
    """Supports alone: views [tasks, n, width], mask [tasks, n, V], labels [tasks, n]."""
    labels = torch.zeros(mask.shape[:2], dtype=torch.int64) if labels is None else labels
    return EpisodeBatch(
        support=tuple(views),
        query=tuple(view[:, :0] for view in views),
        support_mask=mask,
        query_mask=mask[:, :0],
        support_labels=labels,
        query_labels=None,
        seeds=torch.arange(len(mask)),
        way=int(labels.max()) + 1,
        view_names=tuple("abc"[: len(views)]),
    )


def supports_of(batch: EpisodeBatch) -> cpm.Samples:
    return cpm.Samples.of(batch.support, batch.support_mask, batch.view_names)


# ---------------------------------------------------------------------------- all four


def test_they_are_listed_and_left_out_of_all() -> None:
    assert set(SMALL) == {n for n in names() if create(n).tags.trained}
    assert not set(SMALL) & set(expand("all"))


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("train_on", ["episode", "base"])
def test_a_batch_of_one_equals_a_batch_of_many(name: str, train_on: str) -> None:
    """In float64, to rounding: networks of one task never see another."""
    method = small(name, train_on=train_on)
    assert method.tags.needs_base == (train_on == "base")
    batch, fitted = scaled_tasks(method, task_of())
    many, one = (method.embed(part, fitted.state) for part in (batch, batch.tasks([1])))
    for found, wanted in ((one.support[0], many.support[0]), (one.query[0], many.query[0])):
        assert torch.allclose(found[0], wanted[1], atol=1e-7)
    assert many.view_names == ("latent",)


@pytest.mark.parametrize("name", SMALL)
def test_training_lowers_the_loss_and_says_so(name: str, caplog: pytest.LogCaptureFixture) -> None:
    method = small(name, random_state=5) if name == "completer" else create(name)
    with caplog.at_level(logging.INFO, "fewview"):
        fitted = learn_base(method, BASE, task_of(), seed=5)  # not learnt before
        episodes = EpisodeSampler(NOVEL, task_of()).draw(0, 3)
        method.score_episodes(NOVEL, episodes, fitted)
    lines: list[Any] = [record.args for record in caplog.records]
    first = [line for line in lines if line[1] == lines[0][1]]  # of the first stage
    total = first[0][3]
    assert {line[0] for line in first} == {name}
    assert [line[2] for line in first] == [*range(1, total + 1)]
    assert first[-1][4] < first[0][4]
    assert f"epoch 1 of {total}: loss" in caplog.messages[0]
    if name == "completer":
        assert ["prediction" in line[5] for line in first] == [False] * 4 + [True] * 16


@pytest.mark.parametrize("name", SMALL)
def test_they_can_be_trained_in_the_other_place(name: str) -> None:
    """The default one is in `test_laws.py`."""
    method = small(name, train_on="episode" if create(name).tags.needs_base else "base")
    check_method(method, only=["estimator"])


@pytest.mark.parametrize("name", ["cpm", "cpm:train_on=base"])
def test_order_says_nothing_on_average(name: str) -> None:
    """Starts are drawn by place, so that single answers of CPM do change."""
    method = create(name)
    fitted = learn_base(method, BASE, task_of(shot=2))
    episodes = EpisodeSampler(NOVEL, task_of(shot=2)).draw(0, 60)
    batch = method.tensors(NOVEL, fitted).gather(episodes)
    rows = torch.from_numpy(rng().permutation(batch.n_query))
    shares = [
        float((method.score_batch(part, fitted).argmax(-1) == part.query_labels).double().mean())
        for part in (batch, batch.with_queries(rows))
    ]
    assert shares[0] > 0.55
    assert shares[0] == pytest.approx(shares[1], abs=0.05)


def filled_by_hand(batch: EpisodeBatch) -> EpisodeBatch:
    """One shot: every gap becomes the mean of its view over the task, and nothing is missing."""
    mask = torch.cat([batch.support_mask, batch.query_mask], 1)
    views = []
    for view, pair in enumerate(zip(batch.support, batch.query, strict=True)):
        x, seen = torch.cat(pair, 1), mask[..., view, None]
        mean = (x * seen).sum(1, keepdim=True) / seen.sum(1, keepdim=True)
        views.append(torch.where(seen, x, mean))
    return replace(
        batch,
        support=tuple(view[:, : batch.n_support] for view in views),
        query=tuple(view[:, batch.n_support :] for view in views),
        support_mask=torch.ones_like(batch.support_mask),
        query_mask=torch.ones_like(batch.query_mask),
    )


@pytest.mark.parametrize("name", SMALL)
def test_padded_views_count_as_observed(name: str) -> None:
    """As if the task had come without gaps; left as they are, gaps give other answers."""
    native, padded = small(name), small(name, padding="episode")
    assert native.tags.handles_missing
    assert not padded.tags.handles_missing
    assert native.paper["padding"] == "episode"
    batch, fitted = scaled_tasks(native, task_of(0.4))
    wanted = native.score_batch(filled_by_hand(batch), fitted)
    assert torch.allclose(padded.score_batch(batch, fitted), wanted, atol=1e-9)
    assert not torch.allclose(native.score_batch(batch, fitted), wanted, atol=1e-3)


def test_gaps_may_stay_only_where_a_method_can_have_them() -> None:
    assert [create(name).padding for name in SMALL] == ["class", "class", "none", "none"]
    for text in ("proto:padding=none", "ugda:padding=class", "cpm:padding=foam"):
        with pytest.raises(FewviewError, match="padding is"):
            create(text)


def test_networks_see_base_samples_with_gaps_of_the_task_filled() -> None:
    """Gaps of labelled samples get the mean of their class, of others the mean of all."""
    native, padded = (small("cpm", padding=padding) for padding in ("none", "episode"))
    for rule, eta in ((MissingRule(), 0.3), (MissingRule(kind="class"), 0.2)):
        task = replace(task_of(eta), missing=rule)
        for rows, groups in ((BASE, BASE.codes), (BASE.with_labels(None), np.zeros(len(BASE)))):
            gaps, filled = (method.base_batch(rows, task, 0) for method in (native, padded))
            side = "support" if rows is BASE else "query"
            mask = getattr(gaps, f"{side}_mask")[0].numpy()
            assert 1 - mask.mean() == pytest.approx(eta, abs=0.003)
            assert bool(getattr(filled, f"{side}_mask").all())
            for view, seen in enumerate(mask.T):
                before, after = (getattr(batch, side)[view][0] for batch in (gaps, filled))
                assert torch.equal(after[seen], before[seen])
                for row in np.flatnonzero(~seen)[:20]:
                    same = (groups == groups[row]) & seen
                    assert torch.allclose(after[row], before[same].mean(0))


def test_published_rows_of_cpm() -> None:
    rows = {"cub": ("query_epochs", 300), "orl:latent=7": ("latent", 7), "animal": ("hidden", 0)}
    for script, (key, value) in rows.items():
        assert create(f"cpm:preset=paper:script={script}").resolved_params()[key] == value


@pytest.mark.parametrize("name", SMALL)
def test_presets(name: str) -> None:
    fast, paper = (create(name, preset=preset).resolved_params() for preset in ("fast", "paper"))
    changed = {"preset"} | {key for key in fast if fast[key] != paper[key]}
    assert all(fast[key] is not None and paper[key] is not None for key in changed)
    assert np.sum(fast["epochs"]) <= min(100, np.sum(paper["epochs"]))
    for wrong in ({"preset": "slow"}, {"learning_rate": -1.0}, {"epochs": (0, 0)}):
        with pytest.raises(FewviewError, match=next(iter(wrong))):
            create(name, **wrong)


# ---------------------------------------------------------------------------- what they share


def test_reduced_views_keep_inner_products() -> None:
    view = tensor(2, 5, 40)
    view[:, 3] = 0.0
    (reduced,) = base.reduce_views([view], 64)
    assert reduced.shape == (2, 5, 5)
    assert torch.allclose(reduced @ reduced.mT, view @ view.mT)
    (cut,) = base.reduce_views([view], 2)
    error = torch.linalg.matrix_norm(cut @ cut.mT - view @ view.mT)
    values = torch.linalg.svdvals(view)
    assert torch.allclose(error, values[:, 2:].pow(4).sum(1).sqrt())  # Eckart and Young
    tall = tensor(2, 30, 4)
    assert base.reduce_views([tall], 8)[0] is tall
    assert base.reduce_views([view], 0)[0] is view
    low = base.reduce_views([tall], 3)[0]
    error = torch.linalg.matrix_norm(low @ low.mT - tall @ tall.mT)
    assert torch.allclose(error, torch.linalg.svdvals(tall)[:, 3] ** 2)


def test_reduced_views_are_spread_by_a_cosine_transform() -> None:
    """The matrix of the transform written out, on random views."""
    for n, width in ((5, 40), (30, 7)):
        view, keep = tensor(3, n, width), min(n, 6)
        steps = np.arange(keep)
        rows = np.cos(steps[:, None] * (steps + 0.5) * np.pi / keep) * (2 / keep) ** 0.5
        rows[0] *= 0.5**0.5
        u, values, _ = torch.linalg.svd(view, full_matrices=False)
        axes = u[..., :keep] * values[:, None, :keep]
        largest = axes.gather(1, axes.abs().argmax(1, keepdim=True))
        wanted = (axes * largest.sign()) @ torch.from_numpy(rows)
        assert torch.allclose(base.reduce_views([view], keep)[0], wanted, rtol=0, atol=1e-9)


def test_weights_are_uniform_and_belong_to_their_task() -> None:
    many = base.draw_weights(torch.arange(50), 0.3, (40, 5), torch.float64, "layer")
    one = base.draw_weights(torch.tensor([7]), 0.3, (40, 5), torch.float64, "layer")
    assert torch.equal(many[7:8], one)
    assert abs(float(many.mean())) < 0.01
    assert float(many.var()) == pytest.approx(0.3**2 / 3, rel=0.05)


@pytest.mark.parametrize("metric", ["euclidean", "cosine", "inner"])
def test_nearest_prototypes_by_a_loop(metric: str) -> None:
    labels = torch.tensor([[0, 1, 1, 2]])
    batch = made_batch([tensor(1, 4, 5)], torch.ones(1, 4, 1, dtype=torch.bool), labels)
    query = tensor(1, 7, 5, seed=1)
    best = base.prototype_scores(replace(batch, query=(query,)), metric).argmax(-1)[0]
    means = torch.stack([batch.support[0][0][labels[0] == k].mean(0) for k in range(3)])
    for row, x in enumerate(query[0]):
        fits = {
            "euclidean": [-float((x - mean).norm()) for mean in means],
            "cosine": [float(torch.cosine_similarity(x, mean, dim=0)) for mean in means],
            "inner": [float(x @ mean) for mean in means],
        }[metric]
        assert int(best[row]) == int(np.argmax(fits))


# ---------------------------------------------------------------------------- CPM


def alternating_least_squares(x: np.ndarray, cells: np.ndarray, width: int, start: int) -> float:
    """Smallest squared error of x ~ H W + b over observed cells, by solving for each in turn."""
    n, features = x.shape
    latent = rng(start).normal(size=(n, width))
    weights = np.zeros((width + 1, features))
    for _ in range(150):
        design = np.hstack([latent, np.ones((n, 1))])
        for column in range(features):
            rows = cells[:, column]
            weights[:, column] = np.linalg.lstsq(design[rows], x[rows, column], rcond=None)[0]
        for row in range(n):
            seen = cells[row]
            target = x[row, seen] - weights[-1, seen]
            latent[row] = np.linalg.lstsq(weights[:-1, seen].T, target, rcond=None)[0]
    made = latent @ weights[:-1] + weights[-1]
    return float((((made - x) ** 2) * cells).sum())


def test_one_layer_cpm_without_class_loss_is_alternating_least_squares() -> None:
    hidden, width = tensor(1, 14, 2, seed=1), 2
    views = [hidden @ tensor(1, 2, size, seed=size) for size in (4, 6)]
    views = [view + 0.3 * tensor(*view.shape, seed=view.shape[-1]) for view in views]
    mask = torch.ones(1, 14, 2, dtype=torch.bool)
    mask[0, :3, 0] = mask[0, 4:6, 1] = False
    batch = made_batch(views, mask)
    samples = supports_of(batch)
    own = create("cpm", latent=width, epochs=250, query_epochs=300, class_weight=0.0)
    how = own.resolved()
    decoders, latent = cpm.train_decoders(replace(batch, seeds=torch.tensor([3])), how)
    new = cpm.infer_latent(decoders, samples, torch.tensor([4]), how)
    loss = float(cpm.reconstruction_loss(decoders.decode(latent), samples))
    x, cells = samples.features[0].numpy(), samples.cells[0].numpy() > 0
    # Some starts end in a local minimum.
    wanted = min(alternating_least_squares(x, cells, width, start) for start in range(4))
    assert wanted < 0.2 * float((samples.features.square() * samples.cells).sum())
    assert loss == pytest.approx(wanted, rel=0.02)
    # New samples: pseudo-inverse of the weights of their observed views.
    weights, bias = decoders.first[0].numpy(), decoders.first_bias[0, 0].numpy()
    for row in (0, 5, 9):
        seen = cells[row]
        expected = (x[row, seen] - bias[seen]) @ np.linalg.pinv(weights[:, seen])
        assert new[0, row].numpy() == pytest.approx(expected, abs=1e-3)


def test_two_layers_merge_into_one() -> None:
    batch = made_batch([tensor(2, 5, 3), tensor(2, 5, 4)], torch.ones(2, 5, 2) > 0)
    decoders = cpm.Decoders.start(supports_of(batch), batch.seeds, 6, 7)
    with torch.no_grad():
        for bias in (decoders.first_bias, *(bias for _, bias in decoders.second)):
            bias.add_(1.5)
        latent = tensor(2, 5, 6, seed=2)
        merged = decoders.merged()
        assert not merged.second
        assert torch.allclose(merged.decode(latent), decoders.decode(latent))


def class_loss_by_loop(latent: Tensor, labels: Tensor, way: int) -> Tensor:
    """The loss of one task, word for word."""
    total = latent.new_zeros(())
    for n in range(len(latent)):
        means = []
        for label in range(way):
            others = [m for m in range(len(latent)) if m != n and labels[m] == label]
            products = [latent[n] @ latent[m] for m in others]
            means.append(sum(products) / max(1, len(products)) if products else total * 0.0)
        values = torch.stack([torch.as_tensor(mean) for mean in means])
        best = int(values.argmax())
        wrong = float(best != int(labels[n]))
        total = total + torch.relu(wrong + values[best] - values[labels[n]])
    return total


@pytest.mark.parametrize("shot", [1, 3])
def test_gradients_of_cpm_are_those_of_a_loop(shot: int) -> None:
    labels, n = torch.arange(3).repeat_interleave(shot).expand(2, -1), 3 * shot
    views = [tensor(2, n, 4, seed=1), tensor(2, n, 2, seed=2)]
    mask = torch.from_numpy(rng(4).random((2, n, 2)) < 0.7)
    mask[..., 0] |= ~mask[..., 1]
    mask[:, 0] = True
    batch = made_batch(views, mask, labels)
    samples = supports_of(batch)
    decoders = cpm.Decoders.start(samples, batch.seeds, 5, 6)
    latent = tensor(2, n, 5, seed=3).requires_grad_()
    loss = cpm.reconstruction_loss(decoders.decode(latent), samples)
    loss = loss + 3.0 * cpm.class_loss(latent, batch.one_hot())
    found = torch.autograd.grad(loss.sum(), [latent, *tensors_in(decoders)])
    for task in range(2):
        own = latent[task].detach().requires_grad_()
        parts = [item[task].detach().requires_grad_() for item in tensors_in(decoders)]
        first, first_bias, w1, b1, w2, b2 = parts
        total = 3.0 * class_loss_by_loop(own, labels[task], 3)
        for row in range(n):
            middle = own[row] @ first + first_bias[0]
            for view, (weights, bias) in enumerate(((w1, b1), (w2, b2))):
                if mask[task, row, view]:
                    made = middle[6 * view : 6 * view + 6] @ weights + bias[0]
                    total = total + (made - views[view][task, row]).square().sum()
        assert torch.allclose(total, loss[task])
        for got, wanted in zip(found, torch.autograd.grad(total, [own, *parts]), strict=True):
            assert torch.allclose(got[task], wanted)


def test_single_supports_in_the_class_loss() -> None:
    latent = torch.tensor([[[1.0, 0.0], [0.6, 0.8]]])
    members = torch.eye(2)[None]
    # F(n, own) is 0, 1 or left out; F(n, other) is 0.6 either way.
    for one_shot, wanted in (("clamp", 2 * 1.6), ("self", 0.0), ("skip", 0.0)):
        assert cpm.class_loss(latent, members, one_shot).item() == pytest.approx(wanted)
    assert cpm.class_loss(0.0 * latent, members, "self").item() <= 2.0


def test_dropout_keeps_the_mean() -> None:
    samples = supports_of(made_batch([torch.ones(1, 200, 50)], torch.ones(1, 200, 1) > 0))
    made = cpm.drop_entries(samples.features, samples, torch.tensor([1]), 0.1, 0, "networks")
    assert set(made.unique().tolist()) == {0.0, float(torch.ones(1) / (1 - 0.1))}
    assert float(made.mean()) == pytest.approx(1.0, abs=0.01)


# ---------------------------------------------------------------------------- CPM-GAN


def test_cpm_gan_is_cpm_without_missing_views() -> None:
    for eta, rule, same in ((0.0, "none", True), (0.4, "none", False), (0.4, "episode", True)):
        batch = fill(small_batch(eta=eta), rule)
        one, two = (small(name).embed(batch, State()).query[0] for name in ("cpm", "cpm-gan"))
        assert torch.equal(one, two) == same


def test_adversarial_losses_are_those_of_a_loop() -> None:
    views = [tensor(2, 5, 3, seed=1), tensor(2, 5, 2, seed=2)]
    mask = torch.tensor([[[1, 0], [0, 1], [1, 1], [1, 0], [1, 1]], [[1, 1]] * 5]) > 0
    judges = cpm.Discriminators.start(supports_of(made_batch(views, mask)), torch.arange(2), (4, 2))
    made = tensor(2, 5, 5, seed=3).requires_grad_()
    for training in (True, False):
        loss = judges.losses(made, mask, training)
        assert float(loss[1].detach()) == 0.0  # nothing is missing there
        total = torch.zeros(()).double()
        for view, columns in enumerate((slice(0, 3), slice(3, 5))):
            logits = []
            for x in (made[0, :, columns], views[view][0]):
                for place, (weights, bias) in enumerate(judges.layers[view]):
                    x = x @ weights[0] + bias[0]
                    x = leaky_relu(x, 0.2) if place < 2 else x
                logits.append(x[:, 0])
            seen = mask[0, :, view]
            fake, real = logits[0][~seen], logits[1][seen]
            target = torch.zeros_like(fake) if training else torch.ones_like(fake)
            total = total + binary_cross_entropy_with_logits(fake, target)
            if training:
                total = total + binary_cross_entropy_with_logits(real, torch.ones_like(real))
        assert torch.allclose(loss[0], total)
        (found,) = torch.autograd.grad(loss.sum(), made, retain_graph=True)
        (wanted,) = torch.autograd.grad(total, made)
        assert torch.allclose(found, wanted)


# ---------------------------------------------------------------------------- ICMSC


def scipy_correlations(one: np.ndarray, two: np.ndarray, top: int) -> float:
    """Canonical correlations with the published ridge, from inverse roots of covariances."""
    one, two = one - one.mean(0), two - two.mean(0)
    scale = len(one) - 1
    ridge = icmsc.RIDGE * np.eye(one.shape[1])
    first, second = (
        np.real(scipy.linalg.sqrtm(np.linalg.inv(x.T @ x / scale + ridge))) for x in (one, two)
    )
    values = scipy.linalg.svdvals(first @ (one.T @ two / scale) @ second)
    return float(np.sort(values)[::-1][:top].sum())


def test_correlations_against_scipy() -> None:
    projected = tensor(2, 3, 40, 4)
    projected[:, 1] += 0.8 * projected[:, 0]
    observed = torch.from_numpy(rng(2).random((2, 40, 3)) < 0.8)
    found = icmsc.pairwise_correlation(projected, observed.double(), top=2)
    for task in range(2):
        total = 0.0
        for left, right in ((0, 1), (0, 2), (1, 2)):
            both = observed[task, :, left] & observed[task, :, right]
            pair = (projected[task, view][both].numpy() for view in (left, right))
            total += scipy_correlations(*pair, top=2)
        assert float(found[task]) == pytest.approx(total, rel=1e-9)


def test_correlations_of_all_views_together() -> None:
    """With two complete views: one plus each canonical correlation (up to the ridge)."""
    projected = tensor(1, 2, 60, 3)
    projected[:, 1] += projected[:, 0]
    observed = torch.ones(1, 60, 2).double()
    pairs = icmsc.pairwise_correlation(100 * projected, observed, top=2)
    together = icmsc.generalised_correlation(100 * projected, observed, top=2)
    assert float(together) == pytest.approx(2 + float(pairs), abs=1e-5)


@pytest.mark.parametrize("function", [icmsc.pairwise_correlation, icmsc.generalised_correlation])
def test_gradients_of_correlations(function: Any) -> None:
    observed = torch.from_numpy(rng(2).random((1, 30, 3)) < 0.8).double()
    points = tensor(1, 3, 30, 3).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: function(x, observed, 2), (points,))


def subspace_loss_by_loop(
    parts: list[Tensor], views: list[Tensor], mask: Tensor, sizes: list[int]
) -> Tensor:
    """Second stage of one task, sample by sample, without correlations."""
    encoders, decoders, shares, expression = parts[:2], parts[2:4], parts[4], parts[5]
    n, total = len(mask), torch.zeros(()).double()
    codes = [torch.relu(x @ weights) for x, weights in zip(views, encoders, strict=True)]
    common = []
    for row in range(n):
        there = [view for view in range(2) if mask[row, view]]
        code = sum(shares[view] * codes[view][row] for view in there)
        common.append(code / sum(shares[view] for view in there))
    columns = [sum(expression[i, j].abs() for i in range(n) if i != j) for j in range(n)]
    for view in range(2):
        rows = [row for row in range(n) if mask[row, view]]
        for row in rows:
            made = sum(expression[row, other] * common[other] for other in range(n) if other != row)
            error = (made @ decoders[view] - views[view][row]).square().sum() / sizes[view]
            total = total + 0.5 * error / len(rows)
            total = total + 0.5 * (codes[view][row] - made).square().mean() / len(rows)
    squares = torch.stack([torch.as_tensor(column) ** 2 for column in columns])
    return total + squares.mean() + squares.sum().sqrt()


def test_gradients_of_icmsc_are_those_of_a_loop() -> None:
    mask = torch.tensor([[1, 1], [1, 0], [0, 1], [1, 1], [1, 0], [1, 1]]).expand(2, -1, -1) > 0
    batch = made_batch([tensor(2, 6, 9), tensor(2, 6, 3)], mask)
    views = [tensor(2, 6, 4, seed=1), tensor(2, 6, 3, seed=2)]  # the first one is reduced
    nets = icmsc.Autoencoders.start(batch, [4, 3], 5)
    expression = (0.1 * tensor(2, 6, 6, seed=3)).requires_grad_()
    # No pair of views has more samples than the head is wide: correlations are left out.
    loss, errors = icmsc.subspace_loss(
        nets, expression, views, mask.double(), [9, 3], create("icmsc").resolved()
    )
    assert torch.equal(loss, torch.stack(list(errors.values())).sum(0))
    wanted = [*nets.encoders, *nets.decoders, nets.shares, expression]
    found = torch.autograd.grad(loss.sum(), wanted)
    for task in range(2):
        parts = [item[task].detach().requires_grad_() for item in wanted]
        own = subspace_loss_by_loop(parts, [view[task] for view in views], mask[task], [9, 3])
        assert torch.allclose(own, loss[task], rtol=1e-6)
        for got, expected in zip(found, torch.autograd.grad(own, parts), strict=True):
            assert torch.allclose(got[task], expected, rtol=1e-5, atol=1e-9)


# ---------------------------------------------------------------------------- COMPLETER


def test_completer_recovers_a_missing_view() -> None:
    """Two views of one hidden point: the code of a lost view is predicted from the other one."""
    source = rng(1)
    hidden = source.uniform(-1, 1, size=(480, 2))
    views = {name: hidden @ source.normal(size=(2, width)) for name, width in (("a", 8), ("b", 6))}
    labels = np.repeat(np.arange(12), 40)
    data = MultiViewData(views, labels)
    base, novel = data[labels < 8], data[labels >= 8]
    task = TaskSpec(way=4, shot=1, queries=15, eta=0.0)
    episodes = EpisodeSampler(novel, task).draw(0, 4)
    shares = []
    for warm_up in (12, 60):  # with the second, predictors are never trained
        method = small("completer", epochs=60, batch=64, learning_rate=3e-3, warm_up=warm_up)
        fitted = learn_base(method, base, task)
        whole = method.tensors(novel, fitted).gather(episodes)
        lost = replace(
            whole,
            query=(whole.query[0], torch.zeros_like(whole.query[1])),
            query_mask=whole.query_mask & torch.tensor([True, False]),
        )
        true, made = (method.embed(batch, fitted.state).query[0] for batch in (whole, lost))
        assert torch.allclose(true[..., :16], made[..., :16])
        wanted, found = true[..., 16:], made[..., 16:]
        spread = (wanted - wanted.mean((0, 1))).square().sum()
        shares.append(float((found - wanted).square().sum() / spread))
    assert shares[0] < 0.6
    assert shares[1] > 1.0


def test_what_pairs_of_views_count() -> None:
    assert completer.pair_weights(2, "complete") == [1.0]
    assert completer.pair_weights(4, "core") == pytest.approx([0.25, 0.025, 0.025, 0.0, 0.0, 0.0])
    # Two views of two samples with a code each tell all of each other: 1 + 2 alpha times log 2.
    sure = torch.eye(2)
    found = completer.contrastive_loss(sure, sure, torch.ones(2), alpha=9.0)
    assert found.item() == pytest.approx(-19 * np.log(2))


def contrastive_by_loop(one: Tensor, two: Tensor) -> Tensor:
    joint = sum(torch.outer(a, b) for a, b in zip(one, two, strict=True)) / len(one)
    joint = (joint + joint.T) / 2
    total = torch.zeros(()).double()
    for i, j in np.ndindex(*joint.shape):
        left, right = joint[i].sum(), joint[:, j].sum()
        inside = torch.log(joint[i, j]) - 10 * torch.log(left) - 10 * torch.log(right)
        total = total - joint[i, j] * inside
    return total


def run_layers(layers: Any, place: int, task: int, rows: Tensor, softmax: bool) -> Tensor:
    """One network of one task by torch's own layers."""
    for layer in layers:
        rows = rows @ layer.weights[task, place]
        if layer.scale is None:
            rows = rows + layer.bias[task, place]
            continue
        scale, shift = layer.scale[task, place, 0], layer.bias[task, place, 0]
        rows = torch.relu(batch_norm(rows, None, None, scale, shift, training=True))
    return torch.softmax(rows, -1) if softmax else rows


def completer_tasks(n_views: int, n: int) -> tuple[EpisodeBatch, Any]:
    """Two tasks with gaps, and small networks for them."""
    mask = torch.from_numpy(rng(3).random((2, n, n_views)) < 0.7)
    mask[..., 0] |= ~mask.any(-1)
    views = [tensor(2, n, 4 - view, seed=view).abs() for view in range(n_views)]
    views = [x * mask[..., view, None] for view, x in enumerate(views)]
    return made_batch(views, mask), create("completer", width=6, code=4, alpha=9.0).resolved()


@pytest.mark.parametrize("n_views", [2, 3])
def test_gradients_of_completer_are_those_of_a_loop(n_views: int) -> None:
    batch, how = completer_tasks(n_views, 9)
    networks, (x, observed) = completer.Networks.start(batch, how), completer.stacked(batch)
    widths, points = torch.tensor([4, 3, 2][:n_views]), x.clone().requires_grad_()
    loss, terms = completer.completer_loss(networks, points, observed, widths, True, how)
    (found,) = torch.autograd.grad(loss.sum(), points)
    for task in range(2):
        own, mask = x[task].clone().requires_grad_(), observed[task] > 0
        total = torch.zeros(()).double()
        codes: list[dict[int, Tensor]] = []
        for view, width in enumerate(widths.tolist()):
            rows = mask[view].nonzero()[:, 0].tolist()
            code = run_layers(networks.encoders, view, task, own[view, rows], True)
            codes.append(dict(zip(rows, code, strict=True)))
            made = run_layers(networks.decoders, view, task, code, False)[:, :width]
            squares = mse_loss(made, own[view, rows][:, :width])
            total = total + 0.1 * squares / max(1, n_views - 2)
        assert torch.allclose(total, terms["reconstruction"][task], rtol=1e-9)
        share = 1.0 if n_views == 2 else 1.0 / n_views
        for place, (one, two) in enumerate(completer.ordered_pairs(n_views)):
            both = sorted(set(codes[one]) & set(codes[two]))
            left, right = (torch.stack([codes[k][row] for row in both]) for k in (one, two))
            if one < two:
                weight = 1.0 if (one, two) == (0, 1) else 0.1
                total = total + share * weight * contrastive_by_loop(left, right)
            made = run_layers(networks.predictors, place, task, left, True)
            total = total + 0.1 * share * mse_loss(made, right)
        assert torch.allclose(total, loss[task], rtol=1e-9)
        (wanted,) = torch.autograd.grad(total, own)
        inside = mask[..., None] & (torch.arange(4) < widths[:, None, None])
        assert torch.allclose(found[task] * inside, wanted * inside, rtol=1e-6, atol=1e-10)


def test_a_missing_code_is_the_mean_of_the_predictions() -> None:
    batch, how = completer_tasks(3, 5)
    networks, (x, observed) = completer.Networks.start(batch, how), completer.stacked(batch)
    observed = torch.ones_like(observed)
    observed[0, 1, 2] = 0.0
    observed[0, 1:, 3] = 0.0
    with torch.no_grad():
        codes = networks.encode(x, None)
        pairs = completer.ordered_pairs(3)
        predicted = dict(zip(pairs, networks.predict(codes, None)[0], strict=True))
        out, core = (
            completer.complete(networks, x, observed, graph)[0].reshape(5, 3, 4)
            for graph in ("complete", "core")
        )
    assert torch.equal(out[0], codes[0, :, 0])
    assert torch.allclose(out[2, 1], (predicted[0, 1][2] + predicted[2, 1][2]) / 2)
    assert torch.allclose(out[3, 1], predicted[0, 1][3])
    assert torch.allclose(core[2, 1], predicted[0, 1][2])


def test_redrawn_masks_cover_all_rates_and_leave_every_sample_a_view() -> None:
    observed = torch.ones(200, 3, 40).double()
    observed[:, 0, :5] = 0.0
    mask = completer.redrawn(observed, torch.arange(200))
    assert bool((mask.sum(1) >= 1).all() and (mask <= observed).all())
    # One view is safe; with a share u of the others, one, two or three of three stay with
    # probabilities (1 - u)^2, 2 u (1 - u) and u^2, which are 1/3 each over all u.
    counts = torch.bincount(mask[:, :, 5:].sum(1).flatten().long(), minlength=4)
    assert (counts / counts.sum()).tolist() == pytest.approx([0, 1 / 3, 1 / 3, 1 / 3], abs=0.02)
    assert not torch.equal(mask, completer.redrawn(observed, torch.arange(1, 201)))


def test_completer_is_trained_once_or_for_every_missing_rate() -> None:
    for text, depends in (
        ("completer", ()),
        ("completer:preset=paper", ("missing",)),
        ("completer:base_missing=task", ("missing",)),
        ("completer:preset=paper:base_missing=random", ()),
        ("completer:train_on=episode", ()),
    ):
        assert create(text).tags.depends_on == depends
    once, each = (small("completer", base_missing=m, epochs=2) for m in ("random", "task"))
    for method, same in ((once, True), (each, False)):
        states = [method.learn(BASE, task_of(eta), 0) for eta in (0.0, 0.5)]
        one, two = (torch.cat([x.flatten() for x in tensors_in(state)]) for state in states)
        assert torch.equal(one, two) == same


def test_completer_may_learn_from_unlabelled_samples() -> None:
    pooled = small("completer", train_on="unlabelled")
    assert pooled.tags.learns_from == "unlabelled"
    assert not pooled.tags.needs_base
    assert create("completer").tags.learns_from == "base"
    with pytest.raises(FewviewError, match="train_on"):
        create("cpm:train_on=unlabelled")
    episodes = EpisodeSampler(NOVEL, task_of()).draw(0, 3)

    def answers(rows: MultiViewData) -> Tensor:
        fitted = learn_base(pooled, rows, task_of(), unlabelled=True)
        return pooled.score_episodes(NOVEL, episodes, fitted)

    # Labels are not looked at, and other samples teach something else.
    wanted = answers(NOVEL.with_labels(None))
    assert not torch.allclose(wanted, answers(NOVEL[::2].with_labels(None)))
    untrained = learn_base(small("cpm"), NOVEL.with_labels(None), task_of(), unlabelled=True)
    assert untrained.state == State()
    check_method(pooled, only=["estimator", "depends on"])
