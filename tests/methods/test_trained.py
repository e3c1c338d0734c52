"""CPM, CPM-GAN, ICMSC and COMPLETER against closed forms, scipy, loops and one another."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.linalg
import torch
from torch import Tensor

import fewview.methods.completer as completer
import fewview.methods.cpm as cpm
import fewview.methods.icmsc as icmsc
import fewview.numerics._again as _again
from fewview import EpisodeSampler, TaskSpec, create
from fewview.engine._checks import Case, check_method, synthetic_data
from fewview.engine._registry import expand, get_entry, names
from fewview.engine._state import State
from fewview.engine._trained import TrainedMethod
from fewview.evaluate import Grid, run
from fewview.evaluate._grid import make_method
from fewview.evaluate._workbench import Workbench
from fewview.methods.proto import Proto
from fewview.numerics._batch import EpisodeBatch, ViewTensors, map_tensors
from fewview.numerics._networks import Epoch, watch_training
from fewview.numerics._padding import PADDINGS, fill
from fewview.samples import FewviewError, MultiViewData

TRAINED = ("completer", "cpm", "cpm-gan", "icmsc")
# Fewer epochs and narrower networks of the same method: checks are about form, not accuracy.
CHEAPER: dict[str, dict[str, Any]] = {
    "cpm": {"latent": 16, "epochs": 10, "query_epochs": 15},
    "cpm-gan": {"latent": 16, "epochs": 10, "query_epochs": 15, "discriminator_hidden": 8},
    "icmsc": {"width": 64, "epochs": (4, 8)},
    "completer": {"width": 32, "code": 16, "epochs": 20, "warm_up": 4},
}


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def tensor(*shape: int, seed: int = 0) -> Tensor:
    return torch.from_numpy(rng(seed).normal(size=shape))


def small_batch(eta: float = 0.3, n_tasks: int = 3, shot: int = 1, seed: int = 0) -> EpisodeBatch:
    """Tasks of the made data in float64, scaled."""
    case = Case(Proto(dtype="float64"), *synthetic_data(seed), n_tasks, n_tasks)
    return case.setting(case.task(eta=eta, shot=shot))[2].without_query_labels()


# ---------------------------------------------------------------------------- all four


def test_they_are_listed_and_left_out_of_all() -> None:
    assert {n for n in names() if get_entry(n).create().tags.trained} >= set(TRAINED)
    assert not set(TRAINED) & set(expand("all"))


@pytest.mark.parametrize("name", TRAINED)
def test_common_checks(name: str) -> None:
    check_method(create(name).set_params(**CHEAPER[name]))


@pytest.mark.parametrize("name", TRAINED)
def test_a_batch_of_one_equals_a_batch_of_many(name: str) -> None:
    """In float64, to rounding: networks of one task never see another."""
    method = create(name, dtype="float64").set_params(**CHEAPER[name])
    base, novel = synthetic_data()
    task = TaskSpec(way=3, shot=1, queries=4, eta=0.3)
    prepared = method.prepare_base(base, task)
    episodes = EpisodeSampler(novel, task).draw(0, 3)
    scaled = prepared.scaling.transform(novel, np.float64)
    batch = ViewTensors.of(scaled, dtype=torch.float64).gather(episodes).without_query_labels()
    many = method.embed(batch, prepared.state)
    one = method.embed(batch.tasks([1]), prepared.state)
    for found, wanted in ((one.support[0], many.support[0]), (one.query[0], many.query[0])):
        assert torch.allclose(found[0], wanted[1], atol=1e-7)
    assert many.view_names == ("latent",)


@pytest.mark.parametrize("name", TRAINED)
def test_training_lowers_the_loss(name: str) -> None:
    method = create(name, random_state=5)  # a seed of its own: nothing was prepared with it
    if name == "completer":
        method.set_params(**CHEAPER[name])
    seen: dict[str, list[Epoch]] = {}
    base, novel = synthetic_data()
    task = TaskSpec(way=3, shot=1, queries=8, eta=0.3)
    with watch_training(lambda epoch: seen.setdefault(epoch.stage, []).append(epoch)):
        prepared = method.prepare_base(base, task)
        method.score_episodes(novel, EpisodeSampler(novel, task).draw(0, 3), prepared)
    first = next(iter(seen.values()))
    numbers = list(range(0 if name.startswith("cpm") else 1, first[0].total + 1))
    assert [epoch.number for epoch in first] == numbers
    assert {epoch.method for epoch in first} == {name}
    start, end = float(first[0].loss.mean()), float(first[-1].loss.mean())
    # COMPLETER's contrastive loss needs more steps than these; its errors fall at once.
    errors = [e.parts["reconstruction"] if name == "completer" else e.loss for e in first]
    assert end < start
    assert float(errors[-1].mean()) < 0.5 * float(errors[0].mean())
    assert not first[0].loss.requires_grad
    for epochs in seen.values():
        for epoch in epochs:
            assert all(
                (part >= 0).all() and not part.requires_grad for part in epoch.parts.values()
            )
            if epoch.parts:
                assert torch.allclose(sum(epoch.parts.values(), torch.zeros(())), epoch.loss)
    if name == "completer":
        assert ["prediction" in epoch.parts for epoch in first] == [False] * 4 + [True] * 16


@pytest.mark.parametrize("name", TRAINED)
def test_they_can_be_trained_on_base_classes_or_in_the_task(name: str) -> None:
    """The other place than the default one, which `test_common_checks` has."""
    method = create(name).set_params(**CHEAPER[name])
    method.set_params(train_on="episode" if method.tags.needs_base else "base")
    assert method.tags.needs_base == (name != "completer")
    check_method(method, only=["estimator", "batch size"])


@pytest.mark.parametrize("name", TRAINED)
def test_networks_of_several_rates_are_trained_at_once_as_one_by_one(name: str) -> None:
    base = synthetic_data()[0]
    tasks = [TaskSpec(way=3, shot=1, queries=8, eta=eta) for eta in (0.0, 0.3, 0.5)]
    method = create(f"{name}:train_on=base", dtype="float64").set_params(**CHEAPER[name])
    if name == "completer":
        method.set_params(base_missing="task", epochs=4)
    alone = [method.prepare(base, task, 7) for task in tasks]
    together = method.prepare_each(base, tasks, 7)
    for one, other in zip(alone, together, strict=True):
        for wanted, found in zip(tensors_of(one), tensors_of(other), strict=True):
            assert torch.allclose(wanted, found, atol=1e-8)
    assert not torch.allclose(tensors_of(together[0])[0], tensors_of(together[2])[0], atol=1e-4)


def tensors_of(state: State) -> list[Tensor]:
    """All tensors of a state."""
    found: list[Tensor] = []
    map_tensors(state, lambda x: found.append(x) or x)  # type: ignore[func-returns-value]
    return found


@pytest.mark.parametrize(
    ("text", "times"),
    [("completer:base_missing=task:epochs=3", 2), ("icmsc:epochs=3+4", 6), ("proto", 6)],
)
def test_cells_of_what_trains_are_computed_together(
    text: str, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three rates of a class split in one go, with the numbers of one by one."""
    grid = Grid(
        datasets=("digits",), methods=(text,), etas=(0.0, 0.3, 0.5), splits=2, episodes=3,
        queries=8,
    )  # fmt: skip
    alone = {}
    for eta in grid.etas:  # a grid of one rate has nothing to put together
        alone |= run(replace(grid, etas=(eta,))).results
    calls = []
    plain = Workbench._ask
    monkeypatch.setattr(Workbench, "_ask", lambda *a: calls.append(0) or plain(*a))
    found = run(grid).results
    assert len(calls) == times
    assert found.keys() == alone.keys()
    for key, result in found.items():
        assert np.array_equal(result.metrics.accuracy, alone[key].metrics.accuracy)
        assert np.allclose(result.metrics.log_loss, alone[key].metrics.log_loss, atol=1e-4)
        assert result.seconds > 0


def test_only_what_fits_memory_is_trained_at_once() -> None:
    method = create("completer:preset=paper", max_memory=16.0)
    assert isinstance(method, TrainedMethod)
    caltech = (48, 40, 254, 1984, 512, 928)
    assert 6 <= method.trainings_at_once(4800, caltech) < 18
    method.set_params(max_memory=1.0)  # of a CPU
    assert method.trainings_at_once(4800, caltech) == 1


@pytest.mark.skipif(not torch.cuda.is_available(), reason="steps are recorded on a GPU alone")
def test_steps_that_are_played_again_are_the_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    base = synthetic_data()[0]
    task = TaskSpec(way=3, shot=1, queries=8, eta=0.3)
    method = create("completer", device="cuda").set_params(**CHEAPER["completer"])
    played = method.prepare(base, task, 7)
    monkeypatch.setattr(_again, "FIRST", 10**9)
    for wanted, found in zip(
        tensors_of(method.prepare(base, task, 7)), tensors_of(played), strict=True
    ):
        assert torch.allclose(wanted, found, atol=1e-3)


def filled_by_hand(batch: EpisodeBatch) -> EpisodeBatch:
    """One shot: every gap becomes the mean of its view over the task, and nothing is missing."""
    support, query = ([view.clone() for view in side] for side in (batch.support, batch.query))
    for task in range(batch.n_tasks):
        for view in range(batch.n_views):
            masks = batch.support_mask[task, :, view], batch.query_mask[task, :, view]
            parts = batch.support[view][task][masks[0]], batch.query[view][task][masks[1]]
            mean = torch.cat(parts).mean(0)
            for side, mask in zip((support, query), masks, strict=True):
                side[view][task][~mask] = mean
    return replace(
        batch,
        support=tuple(support),
        query=tuple(query),
        support_mask=torch.ones_like(batch.support_mask),
        query_mask=torch.ones_like(batch.query_mask),
    )


@pytest.mark.parametrize("name", TRAINED)
def test_padded_views_count_as_observed(name: str) -> None:
    """As if the task had come without gaps; left as they are, gaps give other answers."""
    batch = small_batch(eta=0.4)
    base = synthetic_data()[0]
    task = TaskSpec(way=3, shot=1, queries=8, eta=0.4)
    native = create(name, dtype="float64").set_params(**CHEAPER[name])
    padded = create(f"{name}:padding=episode", dtype="float64").set_params(**CHEAPER[name])
    whole = filled_by_hand(batch)
    # One state for both: of COMPLETER, the same networks.
    prepared = native.prepare_base(base, task)
    wanted = native.score_batch(whole, prepared)
    assert torch.allclose(padded.score_batch(batch, prepared), wanted, atol=1e-9)
    assert not torch.allclose(native.score_batch(batch, prepared), wanted, atol=1e-3)
    assert native.tags.handles_missing
    assert not padded.tags.handles_missing


@pytest.mark.parametrize("name", TRAINED)
def test_what_the_paper_s_padding_means_for_them(name: str) -> None:
    grid = Grid(datasets=("digits",), methods=(name,), scaling="paper", padding="paper")
    assert make_method(name, grid).padding == "episode"
    usual = make_method(name, replace(grid, scaling=None, padding=None))
    assert usual.padding == ("class" if name.startswith("cpm") else "none")
    assert make_method(f"{name}:padding=zero", grid).padding == "zero"
    check_method(create(f"{name}:padding=episode").set_params(**CHEAPER[name]), only=["estimator"])


def test_gaps_may_stay_only_where_a_method_can_have_them() -> None:
    for name in ("proto", "ugda"):
        with pytest.raises(FewviewError, match="leaves gaps"):
            create(f"{name}:padding=none")
    with pytest.raises(FewviewError, match="none, class, episode"):
        create("cpm:padding=foam")
    batch = small_batch(eta=0.5, n_tasks=4, shot=3)
    assert fill(batch, "none") is batch
    for rule in PADDINGS:
        assert bool(fill(batch, rule).support_mask.all())
        assert bool(fill(batch, rule).query_mask.all())


def test_networks_see_base_samples_filled_too() -> None:
    """Gaps of labelled samples get the mean of their class, of others the mean of all."""
    base = synthetic_data()[0]
    task = TaskSpec(way=3, shot=1, queries=8, eta=0.4)
    method = create("cpm:train_on=base:padding=episode", dtype="float64")
    assert isinstance(method, TrainedMethod)
    views, mask = method.base_samples(base, task, 0)
    for rows, groups in ((base, base.codes), (base.with_labels(None), np.zeros(len(base)))):
        filled, observed = method._filled(rows, views, mask)
        assert bool(observed.all())
        for view, (before, after) in enumerate(zip(views, filled, strict=True)):
            seen = mask[0, :, view].numpy()
            assert torch.equal(after[0][seen], before[0][seen])
            for row in np.flatnonzero(~seen)[:20]:
                same = (groups == groups[row]) & seen
                assert torch.allclose(after[0, row], before[0][same].mean(0))


def test_completer_may_learn_from_unlabelled_samples() -> None:
    base, novel = synthetic_data()
    text = "completer:train_on=unlabelled:" + ":".join(
        f"{key}={value}" for key, value in CHEAPER["completer"].items()
    )
    pooled = create(text)
    assert pooled.tags.learns_novel
    assert not pooled.tags.needs_base
    assert not create("completer").tags.learns_novel
    task = TaskSpec(way=3, shot=1, queries=4, eta=0.3)
    episodes = EpisodeSampler(novel, task).draw(0, 3)

    def answers(base: MultiViewData, pool: MultiViewData, text: str = text) -> Tensor:
        method = create(text)
        return method.score_episodes(novel, episodes, method.prepare_for(base, pool, task))

    # Neither base classes nor labels of the pool are looked at, and its samples are.
    wanted = answers(base, novel)
    relabelled = novel.with_labels(np.roll(novel.codes, 7))
    assert torch.equal(wanted, answers(base[:10], relabelled))
    assert not torch.allclose(wanted, answers(base, novel[::2]))
    # The same networks as the estimator has, whose samples come without labels.
    support = novel[np.sort(episodes.support[0])]
    one, two = (
        create(text).fit_unlabelled(rows, task).fit(support).predict_proba(novel[:30])
        for rows in (novel, relabelled)
    )
    np.testing.assert_array_equal(one, two)
    # A benchmark takes the same way.
    grid = Grid(datasets=("digits",), methods=(text,), etas=(0.3,), splits=1, episodes=2)
    (result,) = run(grid).results.values()
    assert result.seconds_base > 0
    with pytest.raises(FewviewError, match="train_on"):
        create("cpm:train_on=unlabelled")


def test_completer_trained_on_unlabelled_samples_passes_the_checks() -> None:
    check_method(create("completer:train_on=unlabelled").set_params(**CHEAPER["completer"]))


@pytest.mark.parametrize("name", TRAINED)
def test_presets(name: str) -> None:
    fast, paper = (create(name, preset=preset).settings() for preset in ("fast", "paper"))  # type: ignore[attr-defined]
    widths = {"width", "latent", "hidden", "code", "view_width"} & set(fast)
    assert widths
    assert all(fast[width] <= 256 for width in widths)
    assert np.sum(fast["epochs"]) <= 100
    assert np.sum(fast["epochs"]) <= np.sum(paper["epochs"])
    with pytest.raises(FewviewError, match="preset"):
        create(name, preset="slow")
    with pytest.raises(FewviewError, match="must be positive"):
        create(name, learning_rate=-1.0)


def test_published_rows_of_cpm() -> None:
    assert create("cpm:preset=paper:script=cub").settings()["query_epochs"] == 300  # type: ignore[attr-defined]
    assert create("cpm:preset=paper:script=orl:latent=7").settings()["latent"] == 7  # type: ignore[attr-defined]
    assert create("cpm:preset=paper").settings()["hidden"] == 150  # type: ignore[attr-defined]


# ---------------------------------------------------------------------------- CPM


def cpm_samples(views: list[Tensor], mask: Tensor) -> cpm.Samples:
    widths = tuple(view.shape[-1] for view in views)
    names = tuple(f"view{index}" for index in range(len(views)))
    return cpm.Samples(torch.cat(views, -1), mask, widths, widths, names)


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
    samples = cpm_samples(views, mask)
    how = cpm.Training(width, 0, 1e-2, 250, 300, 0.0, 0.0, "clamp")
    with torch.enable_grad():
        decoders, latent = cpm.train(samples, torch.ones(1, 14, 1).double(), torch.tensor([3]), how)
        again = cpm.infer(decoders, samples, torch.tensor([4]), how)
    loss = float(cpm.reconstruction_loss(decoders.decode(latent), samples))
    x, cells = samples.features[0].numpy(), samples.cells[0].numpy() > 0
    # Some starts end in a local minimum.
    wanted = min(alternating_least_squares(x, cells, width, start) for start in range(4))
    start = float((samples.features.square() * samples.cells).sum())
    assert wanted < 0.2 * start
    assert loss == pytest.approx(wanted, rel=0.02)
    # New samples: pseudo-inverse of the weights of their observed views.
    weights, bias = decoders.first[0].numpy(), decoders.first_bias[0, 0].numpy()
    for row in (0, 5, 9):
        seen = samples.cells[0, row].numpy() > 0
        target = samples.features[0, row].numpy()[seen] - bias[seen]
        expected = target @ np.linalg.pinv(weights[:, seen])
        assert again[0, row].numpy() == pytest.approx(expected, abs=1e-3)


def test_two_layers_merge_into_one() -> None:
    samples = cpm_samples([tensor(2, 5, 3), tensor(2, 5, 4)], torch.ones(2, 5, 2, dtype=torch.bool))
    decoders = cpm.start_decoders(samples, torch.arange(2), 6, 7)
    with torch.no_grad():
        for bias in (decoders.first_bias, *decoders.second_bias):
            bias.add_(1.5)
        latent = tensor(2, 5, 6, seed=2)
        assert torch.allclose(decoders.merged().decode(latent), decoders.decode(latent))


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
    labels = torch.arange(3).repeat_interleave(shot).expand(2, -1)
    members = torch.nn.functional.one_hot(labels, 3).double()
    n = 3 * shot
    views = [tensor(2, n, 4, seed=1), tensor(2, n, 2, seed=2)]
    mask = torch.from_numpy(rng(4).random((2, n, 2)) < 0.7)
    mask[..., 0] |= ~mask[..., 1]
    mask[:, 0] = True
    samples = cpm_samples(views, mask)
    decoders = cpm.start_decoders(samples, torch.arange(2), 5, 6)
    latent = tensor(2, n, 5, seed=3).requires_grad_()
    loss = cpm.reconstruction_loss(decoders.decode(latent), samples)
    loss = loss + 3.0 * cpm.class_loss(latent, members)
    found = torch.autograd.grad(loss.sum(), [latent, *decoders.parameters])
    for task in range(2):
        own = latent[task].detach().requires_grad_()
        parts = [item[task].detach().requires_grad_() for item in decoders.parameters]
        first, first_bias, w1, w2, b1, b2 = parts
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
    assert cpm.class_loss(latent, members, "clamp").item() == pytest.approx(2 * 1.6)
    assert cpm.class_loss(latent, members, "self").item() == pytest.approx(0.0)
    assert cpm.class_loss(latent, members, "skip").item() == pytest.approx(0.0)
    assert cpm.class_loss(0.0 * latent, members, "self").item() <= 2.0


def test_supports_are_filled_from_their_own_class_only() -> None:
    batch = small_batch(eta=0.5, n_tasks=6, shot=3)
    filled = fill(batch, "class")
    for task in range(6):
        for row in range(9):
            for view in range(3):
                same = batch.support_labels[task] == batch.support_labels[task, row]
                seen = same & batch.support_mask[task, :, view]
                x = batch.support[view][task]
                known = bool(seen.any())
                assert bool(filled.support_mask[task, row, view]) == known
                if known and not batch.support_mask[task, row, view]:
                    assert torch.allclose(filled.support[view][task, row], x[seen].mean(0))
    assert not bool(filled.support_mask.equal(batch.support_mask))
    assert torch.equal(filled.query_mask, batch.query_mask)


def test_dropout_is_always_on_and_keeps_the_mean() -> None:
    samples = cpm_samples([torch.ones(1, 200, 50)], torch.ones(1, 200, 1, dtype=torch.bool))
    how = cpm.Training(4, 4, 0.1, 1, 1, 0.0, 0.1, "clamp")
    made = how.dropped(torch.ones(1, 200, 50), samples, torch.tensor([1]), 0, "networks")
    assert set(made.unique().tolist()) == {0.0, float(torch.ones(1) / (1 - 0.1))}
    assert float(made.mean()) == pytest.approx(1.0, abs=0.01)


# ---------------------------------------------------------------------------- CPM-GAN


def test_cpm_gan_is_cpm_without_missing_views() -> None:
    for eta, rule, same in ((0.0, "none", True), (0.4, "none", False), (0.4, "episode", True)):
        batch = fill(small_batch(eta=eta), rule)
        spaces = [
            create(name, dtype="float64", epochs=6, query_epochs=5).embed(batch, State())
            for name in ("cpm", "cpm-gan")
        ]
        for one, two in zip(*((space.support[0], space.query[0]) for space in spaces), strict=True):
            assert torch.equal(one, two) == same


def test_a_complete_task_among_others_is_not_touched_by_the_discriminators() -> None:
    complete, partial = small_batch(eta=0.0), small_batch(eta=0.4)
    mixed = replace(
        partial,
        support=tuple(
            torch.cat([a[:1], b[1:]])
            for a, b in zip(complete.support, partial.support, strict=True)
        ),
        query=tuple(
            torch.cat([a[:1], b[1:]]) for a, b in zip(complete.query, partial.query, strict=True)
        ),
        support_mask=torch.cat([complete.support_mask[:1], partial.support_mask[1:]]),
        query_mask=torch.cat([complete.query_mask[:1], partial.query_mask[1:]]),
        support_labels=torch.cat([complete.support_labels[:1], partial.support_labels[1:]]),
        seeds=torch.cat([complete.seeds[:1], partial.seeds[1:]]),
    )
    plain, adversarial = (
        create(name, dtype="float64", epochs=6, query_epochs=5).embed(mixed, State()).query[0]
        for name in ("cpm", "cpm-gan")
    )
    assert torch.allclose(plain[0], adversarial[0], atol=1e-12)
    assert not torch.allclose(plain[1], adversarial[1], atol=1e-6)


def test_adversarial_losses_are_those_of_a_loop() -> None:
    views = [tensor(2, 5, 3, seed=1), tensor(2, 5, 2, seed=2)]
    mask = torch.tensor([[[1, 0], [0, 1], [1, 1], [1, 0], [1, 1]], [[1, 1]] * 5]) > 0
    real = cpm_samples(views, mask)
    judges = cpm.Discriminators.start(real, torch.arange(2), (4, 2), 0.1, 1e-3)
    made = tensor(2, 5, 5, seed=3).requires_grad_()
    for training in (True, False):
        loss = judges.losses(made, real, training)
        assert float(loss[1].detach()) == 0.0  # nothing is missing there
        total = torch.zeros(()).double()
        for view, columns in enumerate((slice(0, 3), slice(3, 5))):
            logits = []
            for rows in (made[0, :, columns], views[view][0]):
                x = rows
                for place, (weights, bias) in enumerate(judges.layers[view]):
                    x = x @ weights[0] + bias[0]
                    x = torch.nn.functional.leaky_relu(x, 0.2) if place < 2 else x
                logits.append(x[:, 0])
            seen = mask[0, :, view]
            fake = logits[0][~seen]
            entropy = torch.nn.functional.binary_cross_entropy_with_logits
            target = torch.zeros_like(fake) if training else torch.ones_like(fake)
            total = total + entropy(fake, target)
            if training:
                total = total + entropy(logits[1][seen], torch.ones(int(seen.sum())).double())
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
    first = np.real(scipy.linalg.sqrtm(np.linalg.inv(one.T @ one / scale + ridge)))
    second = np.real(scipy.linalg.sqrtm(np.linalg.inv(two.T @ two / scale + ridge)))
    values = scipy.linalg.svdvals(first @ (one.T @ two / scale) @ second)
    return float(np.sort(values)[::-1][:top].sum())


def test_correlations_against_scipy() -> None:
    projected = tensor(2, 3, 40, 4)
    projected[:, 1] += 0.8 * projected[:, 0]
    observed = torch.from_numpy(rng(2).random((2, 40, 3)) < 0.8).double()
    found = icmsc.pairwise_correlation(projected, observed, top=2)
    for task in range(2):
        total = 0.0
        for left, right in ((0, 1), (0, 2), (1, 2)):
            both = (observed[task, :, left] * observed[task, :, right]).numpy() > 0
            total += scipy_correlations(
                projected[task, left].numpy()[both], projected[task, right].numpy()[both], 2
            )
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


def test_pairs_with_too_few_samples_are_left_out() -> None:
    observed = torch.ones(1, 20, 2).double()
    observed[0, 4:, 1] = 0.0
    projected = tensor(1, 2, 20, 4).requires_grad_()
    loss = icmsc.pairwise_correlation(projected, observed, top=2)
    assert float(loss.detach()) == 0.0
    assert float(torch.autograd.grad(loss.sum(), projected)[0].abs().max()) == 0.0


def subspace_loss_by_loop(
    parts: list[Tensor], views: list[Tensor], mask: Tensor, sizes: list[int]
) -> Tensor:
    """Second stage of one task, sample by sample, correlations apart."""
    encoders, decoders, shares, expression = parts[:2], parts[2:4], parts[4], parts[5]
    n = len(mask)
    common = []
    for row in range(n):
        weight = sum(shares[view] for view in range(2) if mask[row, view])
        code = sum(
            shares[view] * torch.relu(views[view][row] @ encoders[view])
            for view in range(2)
            if mask[row, view]
        )
        common.append(code / weight)
    total = torch.zeros(()).double()
    columns = [sum(expression[i, j].abs() for i in range(n) if i != j) for j in range(n)]
    for view in range(2):
        rows = [row for row in range(n) if mask[row, view]]
        for row in rows:
            made = sum(expression[row, other] * common[other] for other in range(n) if other != row)
            code = torch.relu(views[view][row] @ encoders[view])
            error = (made @ decoders[view] - views[view][row]).square().sum() / sizes[view]
            total = total + 0.5 * error / len(rows)
            total = total + 0.5 * (code - made).square().mean() / len(rows)
    squares = torch.stack([torch.as_tensor(column) ** 2 for column in columns])
    return total + squares.mean() + squares.sum().sqrt()


def test_gradients_of_icmsc_are_those_of_a_loop() -> None:
    views = [tensor(2, 6, 4, seed=1), tensor(2, 6, 3, seed=2)]
    mask = torch.tensor([[1, 1], [1, 0], [0, 1], [1, 1], [1, 0], [1, 1]]).expand(2, -1, -1) > 0
    nets = icmsc.start_autoencoders(views, [9, 3], ["a", "b"], torch.arange(2), 5)
    expression = (0.1 * tensor(2, 6, 6, seed=3)).requires_grad_()
    # No pair of views has more samples than the head is wide: correlations are left out.
    loss, errors = icmsc.subspace_loss(
        nets, expression, views, mask.double(), [9, 3], "pairs", "columns"
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


def test_common_code_of_a_sample_with_one_view_is_that_view_s() -> None:
    views = [tensor(1, 4, 3, seed=1), tensor(1, 4, 2, seed=2)]
    nets = icmsc.start_autoencoders(views, [3, 2], ["a", "b"], torch.arange(1), 5)
    observed = torch.tensor([[[1, 0], [0, 1], [1, 1], [1, 1]]]).double()
    codes = nets.encode(views)
    common = nets.common(codes, observed)
    assert torch.allclose(common[0, 0], codes[0][0, 0])
    assert torch.allclose(common[0, 1], codes[1][0, 1])
    assert torch.allclose(common[0, 2], (codes[0][0, 2] + codes[1][0, 2]) / 2)


# ---------------------------------------------------------------------------- COMPLETER


def test_completer_recovers_a_missing_view() -> None:
    """Two views of one hidden point: the code of a lost view is predicted from the other one."""
    source = rng(1)
    hidden = source.uniform(-1, 1, size=(480, 2))
    views = {name: hidden @ source.normal(size=(2, width)) for name, width in (("a", 8), ("b", 6))}
    labels = np.repeat(np.arange(12), 40)
    data = MultiViewData(views, labels)
    base, novel = data[labels < 8], data[labels >= 8]
    small = {"width": 32, "code": 16, "epochs": 60, "batch": 64, "learning_rate": 3e-3}
    method = create("completer", dtype="float64", warm_up=12, **small)
    task = TaskSpec(way=4, shot=1, queries=15, eta=0.0)
    prepared = method.prepare_base(base, task)
    episodes = EpisodeSampler(novel, task).draw(0, 4)
    scaled = prepared.scaling.transform(novel, np.float64)
    whole = ViewTensors.of(scaled, dtype=torch.float64).gather(episodes).without_query_labels()
    gone = torch.tensor([True, False])
    lost = replace(
        whole,
        query=(whole.query[0], torch.zeros_like(whole.query[1])),
        query_mask=whole.query_mask & gone,
    )
    true, made = (method.embed(batch, prepared.state).query[0] for batch in (whole, lost))
    code = true.shape[-1] // 2
    assert torch.allclose(true[..., :code], made[..., :code])
    wanted, found = true[..., code:], made[..., code:]
    spread = (wanted - wanted.mean((0, 1))).square().sum()
    assert float((found - wanted).square().sum() / spread) < 0.6
    # A network whose predictors were never trained does not do this.
    late = create("completer", dtype="float64", warm_up=60, **small)
    state = late.prepare_base(base, task).state
    true, made = (late.embed(batch, state).query[0][..., code:] for batch in (whole, lost))
    spread = (true - true.mean((0, 1))).square().sum()
    assert float((made - true).square().sum() / spread) > 1.0


def test_what_pairs_of_views_count_and_the_least_loss() -> None:
    assert completer.pair_weights(2, "complete") == [1.0]
    assert completer.pair_weights(4, "core") == pytest.approx([0.25, 0.025, 0.025, 0.0, 0.0, 0.0])
    # Two views of two samples with a code each tell all of each other.
    sure = torch.eye(2)
    found = completer.contrastive_loss(sure, sure, torch.ones(2), alpha=9.0)
    assert found.item() == pytest.approx(completer.least_loss(2, 2, "complete"))


def contrastive_by_loop(one: Tensor, two: Tensor) -> Tensor:
    joint = sum(torch.outer(a, b) for a, b in zip(one, two, strict=True)) / len(one)
    joint = (joint + joint.T) / 2
    total = torch.zeros(()).double()
    for i in range(len(joint)):
        for j in range(len(joint)):
            left, right = joint[i].sum(), joint[:, j].sum()
            total = total - joint[i, j] * (
                torch.log(joint[i, j]) - 10 * torch.log(left) - 10 * torch.log(right)
            )
    return total


@pytest.mark.parametrize("n_views", [2, 3])
def test_gradients_of_completer_are_those_of_a_loop(n_views: int) -> None:
    widths = [4, 3, 2][:n_views]
    n = 9
    how = completer.Training(6, 4, 1, 0, 1e-3, 256, 9, 9.0, "complete", True)
    names = ["a", "b", "c"][:n_views]
    networks = completer.start_networks(torch.arange(2), widths, names, how, torch.float64)
    x = tensor(2, n_views, n, 4).abs()
    for view, width in enumerate(widths):
        x[:, view, :, width:] = 0.0
    mask = torch.from_numpy(rng(3).random((2, n_views, n)) < 0.7)
    mask[:, 0] |= ~mask.any(1)
    x = x * mask[..., None]
    points = x.clone().requires_grad_()
    loss, parts = completer.completer_loss(
        networks, points, mask.double(), torch.tensor(widths), predict=True
    )
    (found,) = torch.autograd.grad(loss.sum(), points)

    def run(layers: Any, place: int, task: int, rows: Tensor, softmax: bool) -> Tensor:
        for layer in layers:
            rows = rows @ layer.weights[task, place]
            if layer.scale is None:
                rows = rows + layer.bias[task, place]
                continue
            scale, shift = layer.scale[task, place, 0], layer.bias[task, place, 0]
            rows = torch.nn.functional.batch_norm(rows, None, None, scale, shift, training=True)
            rows = torch.relu(rows)
        return torch.softmax(rows, -1) if softmax else rows

    pairs = completer.ordered_pairs(n_views)
    for task in range(2):
        own = x[task].clone().requires_grad_()
        total = torch.zeros(()).double()
        codes: list[dict[int, Tensor]] = []
        for view, width in enumerate(widths):
            rows = mask[task, view].nonzero()[:, 0].tolist()
            code = run(networks.encoders, view, task, own[view, rows], True)
            codes.append(dict(zip(rows, code, strict=True)))
            made = run(networks.decoders, view, task, code, False)[:, :width]
            squares = torch.nn.functional.mse_loss(made, own[view, rows][:, :width])
            total = total + 0.1 * squares / max(1, n_views - 2)
        assert torch.allclose(total, parts["reconstruction"][task], rtol=1e-9)
        share = 1.0 if n_views == 2 else 1.0 / n_views
        for place, (one, two) in enumerate(pairs):
            both = sorted(set(codes[one]) & set(codes[two]))
            left = torch.stack([codes[one][row] for row in both])
            right = torch.stack([codes[two][row] for row in both])
            if one < two:
                weight = 1.0 if (one, two) == (0, 1) else 0.1
                total = total + share * weight * contrastive_by_loop(left, right)
            made = run(networks.predictors, place, task, left, True)
            total = total + 0.1 * share * torch.nn.functional.mse_loss(made, right)
        assert torch.allclose(total, loss[task], rtol=1e-9)
        (wanted,) = torch.autograd.grad(total, own)
        inside = mask[task][..., None] & (torch.arange(4) < torch.tensor(widths)[:, None, None])
        assert torch.allclose(found[task] * inside, wanted * inside, rtol=1e-6, atol=1e-10)


def test_a_missing_code_is_the_mean_of_the_predictions() -> None:
    how = completer.Training(6, 4, 1, 0, 1e-3, 256, 9, 9.0, "complete", True)
    networks = completer.start_networks(
        torch.arange(1), [3, 3, 3], ["a", "b", "c"], how, torch.float64
    )
    x = tensor(1, 3, 5, 3)
    observed = torch.ones(1, 3, 5).double()
    observed[0, 1, 2] = 0.0
    observed[0, 1:, 3] = 0.0
    with torch.no_grad():
        codes = networks.encode(x, None)
        predicted = dict(
            zip(completer.ordered_pairs(3), networks.predict(codes, None)[0], strict=True)
        )
        out = completer.complete(networks, x, observed).reshape(1, 5, 3, 4)
        core = completer.complete(networks, x, observed, "core").reshape(1, 5, 3, 4)
    assert torch.equal(out[0, 0], codes[0, :, 0])
    assert torch.allclose(out[0, 2, 1], (predicted[0, 1][2] + predicted[2, 1][2]) / 2)
    assert torch.allclose(out[0, 3, 1], predicted[0, 1][3])
    assert torch.allclose(core[0, 2, 1], predicted[0, 1][2])


def test_redrawn_masks_cover_all_rates_and_leave_every_sample_a_view() -> None:
    observed = torch.ones(200, 3, 40).double()
    observed[:, 0, :5] = 0.0
    mask = completer.redrawn(observed, torch.arange(200))
    assert bool((mask.sum(1) >= 1).all())
    assert bool((mask <= observed).all())
    # One view is safe; with a share u of the others, one, two or three of three stay with
    # probabilities (1 - u)^2, 2 u (1 - u) and u^2, which are 1/3 each over all u.
    counts = torch.bincount(mask[:, :, 5:].sum(1).flatten().long(), minlength=4)
    assert (counts / counts.sum()).tolist() == pytest.approx([0, 1 / 3, 1 / 3, 1 / 3], abs=0.02)
    assert not torch.equal(mask, completer.redrawn(observed, torch.arange(1, 201)))


def test_completer_is_prepared_once_or_for_every_missing_rate() -> None:
    assert create("completer").tags.prepare_depends_on == ()
    assert create("completer:preset=paper").tags.prepare_depends_on == ("missing",)
    assert create("completer:base_missing=task").tags.prepare_depends_on == ("missing",)
    assert create("completer:preset=paper:base_missing=random").tags.prepare_depends_on == ()
