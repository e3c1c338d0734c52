"""Marginal beyond base classes: directions of the task itself, shares of classes by evidence."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.special import logsumexp
from scipy.stats import multivariate_normal, norm

import fewview.methods.marginal._model as _model_module
import fewview.methods.marginal._rounds as _rounds_module
from fewview import EpisodeSampler, Marginal, MultiViewData, TaskSpec
from fewview.episodes.batch import ViewTensors
from fewview.methods.estimator.fitted_base import learn_base
from fewview.methods.marginal._model import (
    Evidence,
    Gaussians,
    about_the_task,
    gather_evidence,
    posterior,
    predictive_scores,
    prior_root,
    variational_scores,
)
from fewview.methods.marginal._outside import (
    LeftOver,
    Look,
    Outside,
    Profile,
    find_outside,
    learn_profile,
    leave_over,
    left_over,
    look_at,
    play_new,
    principal_rows,
    shares_of,
    variance_of,
    wide_views,
)
from fewview.methods.marginal._projection import Projection, fit_projection
from fewview.methods.marginal._remainder import Remainder, learn_remainder, unit_products
from fewview.methods.marginal._rounds import (
    BEYOND,
    BY_QUERIES,
    EVIDENCE,
    FACTORS,
    STAKE,
    TEMPERED,
    UNEVEN,
    Rule,
    _rounds,
    _weighed,
    calibrated,
    log_dirichlet,
    score_together,
)
from fewview.methods.marginal._settings import Settings
from fewview.numerics.iterate import map_tensors

WIDTH = 40


def text(n_classes: int, each: int, first: int = 0, seed: int = 0) -> MultiViewData:
    """Word counts where every class has eight words of its own among rare common ones."""
    rng = np.random.default_rng([seed, first])
    rates = np.full((n_classes, 400), 0.03)
    for code in range(n_classes):
        start = 8 * (first + code)
        rates[code, start : start + 8] = 0.7
    codes = np.repeat(np.arange(n_classes), each)
    views = {view: rng.poisson(rates[codes]).astype(np.float32) for view in ("title", "body")}
    for block in views.values():
        block[:, -1] = 1  # no row without a word
    return MultiViewData(views, labels=codes + first)


def drawn(data: MultiViewData, task: TaskSpec, n: int = 6, dtype: Any = torch.float64) -> Any:
    episodes = EpisodeSampler(data, task).draw(0, n)
    return ViewTensors.of(data, dtype=dtype).gather(episodes)


def accuracy(method: Marginal, base: MultiViewData, novel: MultiViewData, task: TaskSpec) -> float:
    episodes = EpisodeSampler(novel, task).draw(0, 40)
    scores = method.score_episodes(novel, episodes, learn_base(method, base, task))
    return float((scores.argmax(-1).numpy() == episodes.query_labels).mean())


# ---------------------------------------------------------------------------- directions


def test_rows_along_the_directions_of_what_is_left_over() -> None:
    rng = np.random.default_rng(0)
    scale = np.geomspace(3, 0.1, WIDTH)
    make = lambda n: rng.normal(size=(n, WIDTH)) * scale  # noqa: E731
    base = MultiViewData({"a": make(60)})
    novel = MultiViewData({"a": make(30)}, labels=np.repeat([0, 1, 2], 10))
    projection = fit_projection(base, 5)
    batch = drawn(novel, TaskSpec(way=3, shot=2, queries=7))
    rows, seen, variance = principal_rows(leave_over(batch, 0, projection))
    assert seen.all()
    axes = projection.axes[0].numpy()
    factor = np.linalg.norm(axes[:, 0])
    for task in range(len(rows)):
        whole = np.concatenate([batch.support[0][task], batch.query[0][task]])
        whole = (whole - whole.mean(0)) * factor
        unit = axes / factor
        rest = whole - whole @ unit @ unit.T
        expected = np.linalg.svd(rest, compute_uv=False)[: rows.shape[-1]]
        found = rows[task].norm(dim=0).numpy()
        # The leading directions have settled; the last ones of a subspace have not.
        np.testing.assert_allclose(found[:10], expected[:10], rtol=0.05)
        np.testing.assert_allclose(variance[task], found**2 / len(whole), rtol=1e-9)
        np.testing.assert_allclose(
            rows[task][:, :3] @ rows[task][:, :3].mT,
            rest @ np.linalg.svd(rest)[2][:3].T @ np.linalg.svd(rest)[2][:3] @ rest.T,
            atol=0.05 * expected[0] ** 2,
        )


def test_shares_by_analysis_of_variance() -> None:
    """Class means two apart with unit noise along one direction, by hand: within 1, between 4."""
    rng = np.random.default_rng(1)
    centres = rng.normal(size=400)
    centres *= 2 / centres.std()
    values = np.zeros((4000, 3))
    values[:, 1] = np.repeat(centres, 10) + rng.normal(size=4000)
    data = MultiViewData({"a": values}, labels=np.repeat(np.arange(400), 10))
    zeros = torch.zeros(3, dtype=torch.float64)
    axes = torch.eye(3, 1, dtype=torch.float64)
    projection = Projection((axes,), (zeros[:1],), (zeros,), (zeros[0],))
    rows = torch.from_numpy(values.copy())
    left = left_over(rows, torch.ones(4000, dtype=torch.bool), 0, projection)
    episodes = EpisodeSampler(data, TaskSpec(way=40, shot=1, queries=9)).draw(0, 8)
    rows, labels = (
        torch.from_numpy(np.concatenate([support, query], axis=1))
        for support, query in (
            (episodes.support, episodes.query),
            (episodes.support_labels, episodes.query_labels),
        )
    )
    look = Look(left, rows, labels, torch.ones_like(rows, dtype=torch.bool))
    shares, along = shares_of([look], 40, 1)
    within, between = shares[0, :, 0].tolist()
    assert float(along / variance_of(look, 1)) == pytest.approx(1, abs=0.02)
    assert between / within == pytest.approx(4, rel=0.15)
    # All variance is within or between; means of 40 classes vary 39/40 as much.
    assert within * (400 - 40) / 400 + between * 39 / 40 + within * 39 / 400 == pytest.approx(
        1, abs=0.01
    )


def made_up(seed: int = 0) -> tuple[torch.Tensor, ...]:
    """Rows, four of them supports, whether they are seen, and the variances of directions."""
    rng = np.random.default_rng(seed)
    seen = torch.from_numpy((rng.random((1, 9, 6)) > 0.3).astype(float))
    rows = torch.from_numpy(rng.normal(size=(1, 9, 6))) * seen
    within, between = torch.from_numpy(rng.uniform(0.2, 2, (2, 1, 6)))
    return rows, seen, within, between


def test_outside_normalisers_are_integrals() -> None:
    """Over class means, of what supports and weighted queries say about them."""
    given, shown, within, between = made_up()
    members = torch.nn.functional.one_hot(torch.tensor([[0, 0, 1, 2]])).double()
    weights = torch.from_numpy(np.random.default_rng(1).uniform(size=(1, 5, 3)))
    outside = Outside.of(given, shown, members, within, between)
    scores, (found,) = outside.variational(weights)
    rows, seen = given[0].numpy(), shown[0].numpy()
    counted = torch.cat([members, weights], 1)[0].numpy()

    def integral(j: int, label: int) -> float:
        s, b = float(within[0, j]), float(between[0, j])
        w = counted[:, label] * seen[:, j]
        total, sums, prior = w.sum(), w @ rows[:, j], norm(0, np.sqrt(b))
        return float(quad(
            lambda m: prior.pdf(m) * np.exp((sums * m - total * m * m / 2) / s), -20, 20
        )[0])  # fmt: skip

    for label in range(3):
        expected = sum(np.log(integral(j, label)) for j in range(6))
        assert float(found[label]) == pytest.approx(expected, abs=1e-6)
    # A score is the derivative of the normaliser in the weight of its query.
    for query in range(5):
        step = torch.zeros_like(weights)
        step[0, query] = 1e-6
        high, low = (outside.variational(weights + sign * step)[1][0] for sign in (1, -1))
        assert torch.allclose(scores[0, query], (high - low) / 2e-6, atol=1e-6)


def test_profile_between_sizes_and_for_other_ways() -> None:
    shares = torch.linspace(0, 1, 8, dtype=torch.float64).repeat(2, 1, 1)
    shares[1] += 1
    profile = Profile((0,), 3, torch.tensor([2.0, 8.0], dtype=torch.float64).log(), shares, shares)
    found, _ = profile.at(torch.tensor([[1.0, 2.0, 4.0, 8.0, 99.0]]), 3)
    found = found[0]
    assert found[:, 0].tolist() == pytest.approx([0, 0, 0.5, 1, 1], abs=1e-6)
    # Five classes differ along twice as many directions as three.
    wider, _ = profile.at(torch.tensor([[2.0]]), 5)
    assert wider[0, 0, [0, 2, 4]].tolist() == pytest.approx(found[1, [0, 1, 2]].tolist())


def test_narrow_views_have_no_outside() -> None:
    rng = np.random.default_rng(0)
    data = MultiViewData({"a": rng.normal(size=(80, 5))}, labels=np.repeat(np.arange(8), 10))
    projection = fit_projection(data, 64)
    assert wide_views(projection) == []
    assert play_new(data, [], 3, 64, 0) == []
    state = learn_base(Marginal(), data, TaskSpec(way=3)).state
    assert state.profile is None
    assert state.remainder is None


def test_folds_and_views_looked_at_together_are_what_they_are_alone() -> None:
    """As a GPU does."""
    folds = play_new(text(4, 30), [0, 1], 3, 16, 0)
    looks = [look for fold in folds for look in look_at(fold, 3, 8, 0)]
    assert len(looks) == 2 * len(folds)
    together = shares_of(looks, 3, 3)
    alone = zip(*(shares_of([look], 3, 3) for look in looks), strict=True)
    for found, parts in zip(together, alone, strict=True):
        torch.testing.assert_close(found, torch.cat(parts))


def test_noise_outside_is_left_alone() -> None:
    """Where the rest does not tell classes apart, directions get next to no share between them."""
    rng = np.random.default_rng(0)
    data = MultiViewData({"a": rng.normal(size=(400, 60))}, labels=np.repeat(np.arange(10), 40))
    folds = play_new(data, [0], 3, 20, 0)
    profile = learn_profile(folds, [0], 3, 0)
    assert profile is None or float(profile.between[-1].max()) < 0.1
    remainder = learn_remainder(folds, [0])
    assert remainder is None or float(remainder.share[0]) < 0.02


@pytest.mark.parametrize("eta", [0.0, 0.4])
def test_new_words_tell_new_classes_apart(eta: float) -> None:
    base, novel = text(4, 30), text(3, 40, first=10)
    task = TaskSpec(way=3, shot=1, queries=20, eta=eta)
    found = accuracy(Marginal(components=16), base, novel, task)
    without = accuracy(Marginal(components=16, structure="no cross-view"), base, novel, task)
    assert found > 0.85
    assert found > without + 0.15


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rows_that_leave_nothing_over_have_no_directions(dtype: Any) -> None:
    """Rows that are all alike, or lie in the components, as categories of few words do."""
    base = text(4, 30).select_views(["title"])
    projection = fit_projection(base, 16)
    batch = drawn(
        text(3, 12, first=10).select_views(["title"]), TaskSpec(way=3, queries=6), 3, dtype
    )
    axes, centre = projection.axes[0].to(dtype), projection.centre[0].to(dtype)
    alike = torch.full_like(batch.query[0][:1], 0.25)
    within = centre + torch.randn(1, 18, 16, dtype=dtype) @ axes.mT
    query = (torch.cat([alike, within, batch.query[0][2:]]),)
    support = (torch.cat([alike[:, :3], within[:, :3], batch.support[0][2:]]),)
    batch = replace(batch, query=query, support=support)
    projection = map_tensors(projection, lambda tensor: tensor.to(dtype))
    rows, _, variance = principal_rows(leave_over(batch, 0, projection))
    assert rows.isfinite().all()
    assert (variance[:2] == 0).all()
    assert (variance[2, :3] > 0).all()


def test_directions_do_not_depend_on_the_order_of_rows() -> None:
    base, novel = text(4, 30), text(3, 20, first=10)
    clf = Marginal(components=16, dtype="float64").fit_base(base, task=TaskSpec(way=3))
    clf.fit(novel[[0, 20, 40]])
    queries = np.setdiff1d(np.arange(60), [0, 20, 40])
    order = np.random.default_rng(0).permutation(len(queries))
    whole = clf.predict_proba(novel[queries])
    np.testing.assert_allclose(clf.predict_proba(novel[queries[order]]), whole[order], atol=1e-6)


def test_missing_views_have_no_place_outside() -> None:
    base, novel = text(4, 30), text(3, 20, first=10)
    projection = fit_projection(base, 16)
    profile = learn_profile(play_new(base, [0, 1], 3, 16, 0), [0, 1], 3, 0)
    assert profile is not None
    batch = drawn(novel, TaskSpec(way=3, queries=10, eta=0.4))
    left = {view: leave_over(batch, view, projection) for view in (0, 1)}
    outside = find_outside(left, batch.one_hot(), profile)
    half = outside.query.shape[-1] // 2
    for view, part in enumerate((slice(half), slice(half, None))):
        gone = ~batch.query_mask[..., view]
        assert (outside.query[gone][:, part] == 0).all()
        assert (outside.query_told[gone][:, part] == 0).all()


# ---------------------------------------------------------------------------- remainders


def remains(rows: Any, projection: Projection, view: int = 0) -> Any:
    """Coordinates of rows in an orthonormal basis of what the axes leave over, at length one."""
    axes = np.linalg.qr(projection.axes[view].numpy())[0]
    basis = np.linalg.svd(axes, full_matrices=True)[0][:, axes.shape[1] :]
    found = (rows - projection.centre[view].numpy()) @ basis
    return found / np.linalg.norm(found, axis=-1, keepdims=True)


def common_part(usual: float, freedom: float, rows: Any, codes: Any) -> float:
    """What unit rows of several classes have in common, after James and Stein, pair by pair."""
    products = [
        rows[i] @ rows[j] for i, j in combinations(range(len(rows)), 2) if codes[i] != codes[j]
    ]
    if not products:
        return usual
    classes = len(set(codes))
    variance = (1 - usual) ** 2 / freedom / (classes * (classes - 1) / 2)
    away = float(np.mean(products)) - usual
    return usual + max(0.0, 1 - variance / away**2) * away


@pytest.mark.parametrize(("shot", "usual", "share"), [(1, 0.0, 0.3), (3, 0.0, 0.6), (3, 0.5, 0.3)])
def test_remainders_are_scored_by_gaussian_densities(shot: int, usual: float, share: float) -> None:
    base, novel = text(4, 30), text(3, 20, first=10)
    base, novel = (data.select_views(["title", "body"]) for data in (base, novel))
    projection = fit_projection(base, 16)
    width = novel.views["title"].shape[1] - 16
    batch = drawn(novel, TaskSpec(way=3, shot=shot, queries=4, eta=0.4), n=2)
    numbers = (torch.tensor([x], dtype=torch.float64) for x in (usual, share, width))
    left = {0: leave_over(batch, 0, projection)}
    found = Remainder((0,), *numbers).predictive(left, batch.one_hot())
    moved = 0
    for task in range(2):
        seen = batch.support_mask[task, :, 0]
        rows = remains(batch.support[0][task, seen].numpy(), projection)
        codes = batch.support_labels[task, seen].numpy()
        offset = common_part(usual, width, rows, codes)
        moved += offset != usual
        # Rows of one class are as alike, and products vary as much, as without the change.
        within = (1 - share) * (1 - usual)
        between, freedom = max(0.0, 1 - offset - within), width * ((1 - offset) / (1 - usual)) ** 2
        within = 1 - offset - between
        for query, label in product(range(12), range(3)):
            if not batch.query_mask[task, query, 0]:
                assert float(found[task, query, label]) == 0
                continue
            x = remains(batch.query[0][task, query].numpy(), projection)
            rest = np.vstack([rows[codes == label], x])
            gram = rest @ rest.T - offset
            # As many directions as there is freedom, each a Gaussian over supports and query.
            cov = (within * np.eye(len(rest)) + between) / freedom

            def log_density(
                some: slice, cov: Any = cov, gram: Any = gram, freedom: float = freedom
            ) -> float:
                part = cov[some, some]
                fit = np.trace(np.linalg.solve(part, gram[some, some])) if len(part) else 0.0
                return float(-(freedom * np.linalg.slogdet(part)[1] + fit) / 2)

            expected = log_density(slice(None)) - log_density(slice(-1))
            expected -= log_density(slice(-1, None))
            assert float(found[task, query, label]) == pytest.approx(expected, rel=1e-8, abs=1e-7)
    assert bool(moved) == (shot == 3)  # one pair of a few says too little


def test_a_view_in_which_all_rows_are_alike_draws_no_query_to_the_classes_that_have_it() -> None:
    """Rows with much more in common than base classes had: it says nothing about a class."""
    rng = np.random.default_rng(0)
    common = rng.normal(size=200)
    rows = common + 0.5 * rng.normal(size=(5 + 40, 200))  # no class differs from another
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    products = torch.tensor(rows @ rows.T)[None]
    seen = torch.ones(1, 45, dtype=torch.bool)
    seen[0, 0] = False  # the support of the first class lacks the view
    left = LeftOver(
        seen, torch.zeros(1, 45, 1), products, torch.ones(1, 45).double(), torch.zeros(1, 45, 1)
    )
    numbers = (torch.tensor([x], dtype=torch.float64) for x in (0.05, 0.3, 100.0))
    found = Remainder((0,), *numbers).predictive({0: left}, torch.eye(5).double()[None])
    assert float(found[..., 0].abs().max()) == 0
    assert float(found[..., 1:].mean()) == pytest.approx(0, abs=0.5)


def test_remainders_learn_the_share_between_classes() -> None:
    """Outside six directions that all classes know, a sphere with a third between classes."""
    rng = np.random.default_rng(0)
    codes = np.repeat(np.arange(16), 40)
    rows = rng.normal(size=(16, 150))[codes] + np.sqrt(2) * rng.normal(size=(len(codes), 150))
    rows[:, :6] += 30 * rng.normal(size=(len(codes), 6))
    data = MultiViewData({"a": rows}, labels=codes)
    remainder = learn_remainder(play_new(data, [0], 5, 6, 0), [0])
    assert remainder is not None
    assert float(remainder.share[0]) == pytest.approx(1 / 3, abs=0.05)
    assert float(remainder.freedom[0]) == pytest.approx(144, rel=0.2)
    # The mean of the eleven other classes, which rows are seen from, is off by as much.
    assert float(remainder.offset[0]) == pytest.approx(1 / 33, abs=0.02)


def test_rows_inside_the_components_have_no_remainder() -> None:
    base = text(4, 30)
    projection = fit_projection(base, 16)
    axes, centre = projection.axes[0], projection.centre[0]
    inside = centre + torch.randn(5, 16, dtype=torch.float64) @ axes.mT
    rows = torch.stack([*inside, centre + torch.ones_like(centre)])
    left = left_over(rows, torch.ones(6, dtype=torch.bool), 0, projection)
    products, there = unit_products(left)
    assert there.tolist() == [False] * 5 + [True]
    assert (products[:5] == 0).all()
    assert (products[:, :5] == 0).all()
    assert float(products[5, 5]) == pytest.approx(1)


@pytest.mark.parametrize("eta", [0.0, 0.4])
def test_new_words_help_a_query_by_itself(eta: float) -> None:
    base, novel = text(4, 30), text(3, 40, first=10)
    task = TaskSpec(way=3, shot=1, queries=20, eta=eta)
    method = Marginal(components=16, transductive=False)
    found = accuracy(method, base, novel, task)
    method.set_params(structure="imputed" if eta == 0 else "no cross-view")
    assert found > accuracy(method, base, novel, task) + 0.1


# ---------------------------------------------------------------------------- shares of classes


@pytest.mark.parametrize("balance", [0.9, None])
def test_bound_is_below_the_evidence(balance: float | None) -> None:
    """All labellings of five queries, one after the other, give the evidence exactly."""
    rng = np.random.default_rng(3)
    within, between = np.eye(3) * 0.5, np.diag([2.0, 1.0, 0.5])
    model = Gaussians(
        torch.zeros(3, dtype=torch.float64), torch.tensor(within), torch.tensor(between), (3,)
    )
    support, query = rng.normal(size=(1, 2, 3)), rng.normal(size=(1, 5, 3)) * 1.5
    masks = [torch.ones(1, n, 1, dtype=torch.bool) for n in (2, 5)]
    evidence = gathered(model, torch.tensor(support), torch.tensor(query), *masks)
    members = torch.eye(2, dtype=torch.float64)[None]

    def log_fit(rows: Any) -> float:  # of one class, against noise around zero alone
        n = len(rows)
        cov = np.kron(np.eye(n), within) + np.kron(np.ones((n, n)), between)
        alone = np.kron(np.eye(n), within)
        flat = np.concatenate(rows)
        zero = np.zeros(len(flat))
        return float(multivariate_normal(zero, cov).logpdf(flat) -
                     multivariate_normal(zero, alone).logpdf(flat))  # fmt: skip

    terms = []
    for labels in product(range(2), repeat=5):
        masses = torch.tensor([[labels.count(0), labels.count(1)]], dtype=torch.float64)
        prior = -5 * np.log(2) if balance is not None else float(log_dirichlet(masses))
        fits = (
            log_fit([support[0, c], *(query[0, i] for i in range(5) if labels[i] == c)])
            for c in range(2)
        )
        terms.append(prior + sum(fits))
    start = torch.zeros(1, 5, 2, dtype=torch.float64)
    settings = Settings(temperature=1.0, anneal=1.0)
    bound = float(_rounds(evidence, members, start, settings, 20, (balance,))[1])
    assert bound < logsumexp(terms) + 1e-9
    assert bound > logsumexp(terms) - 3


def gathered(
    model: Gaussians, support: torch.Tensor, query: torch.Tensor, *masks: torch.Tensor
) -> Evidence:
    """What samples say, in coordinates as they come."""
    samples = torch.cat([support, query], dim=1)
    parts = [(slice(None), lambda: samples)]
    mask = torch.cat(masks, dim=1)
    return gather_evidence(model, parts, mask, support.shape[1], turns=False)[0]


def some_evidence(complete: bool) -> tuple[Evidence, torch.Tensor]:
    """What random samples of eight tasks with two classes say, and their supports' classes."""
    torch.manual_seed(5)
    root = torch.randn(7, 9, dtype=torch.float64)
    model = Gaussians(
        torch.randn(7, dtype=torch.float64),
        within=root @ root.T + torch.eye(7),
        between=root[:, :3] @ root[:, :3].T,
        dims=(4, 3),
    )
    samples = [torch.randn(8, n, 7, dtype=torch.float64) for n in (2, 12)]
    masks = [torch.ones(8, n, 2, dtype=torch.bool) for n in (2, 12)]
    if not complete:
        masks[1][:, ::3, 0], masks[1][:, 1::3, 1] = False, False
    members = torch.eye(2, dtype=torch.float64).expand(8, -1, -1)
    return gathered(model, *samples, *masks), members


@pytest.mark.parametrize("rank", [None, 12])
def test_coordinates_that_are_independent_given_others(rank: int | None) -> None:
    """One wide view and two narrow ones: the same scores from another basis of the same prior."""
    generator = torch.Generator().manual_seed(8)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    root, other = draw(17, 20), draw(17, 17)
    model = Gaussians(draw(17), root @ root.T + torch.eye(17), other @ other.T, (1, 14, 2))
    mask = torch.rand(4, 16, 3, generator=generator) < 0.6
    mask[..., 1] |= ~mask.any(-1)
    wide = torch.repeat_interleave(mask, torch.tensor(model.dims), -1)
    samples = draw(4, 16, 17) * wide
    parts = [(slice(None), lambda: samples)]
    (turned, basis), (plain, usual) = (
        gather_evidence(model, parts, mask, 4, rank, turns=turns) for turns in (True, False)
    )
    assert turned.turned is not None
    assert plain.turned is None
    torch.testing.assert_close(basis @ basis.T, usual @ usual.T)
    own = len(turned.turned.loads)
    assert own == 8
    ends = turned.information[:, own:, own:]
    assert len(ends) == 7
    torch.testing.assert_close(ends, torch.diag_embed(ends.diagonal(dim1=1, dim2=2)))
    members = torch.eye(2, dtype=torch.float64).repeat(2, 1).expand(4, -1, -1)
    torch.testing.assert_close(
        predictive_scores(turned, members), predictive_scores(plain, members)
    )
    belief, known = (
        posterior(part, members, torch.full((4, 12, 2), 0.4, dtype=torch.float64))
        for part in (turned, plain)
    )
    for alike in (False, True):
        found = variational_scores(turned, belief, alike=alike)
        for one, wanted in zip(found, variational_scores(plain, known), strict=True):
            torch.testing.assert_close(one, wanted)


@pytest.mark.parametrize("ranges", [1, 4])
def test_of_many_patterns_those_of_some_tasks_are_enough(
    monkeypatch: pytest.MonkeyPatch, ranges: int
) -> None:
    evidence, members = some_evidence(complete=False)
    weights = torch.rand(8, 12, 2, dtype=torch.float64)
    # The last pattern is one that nobody has: with it there are more than a task has.
    more = torch.cat([evidence.information, 2 * evidence.information[:1]])
    evidence = replace(evidence, information=more)
    assert evidence.used(posterior(evidence, members).counts, 0) is None
    wanted, alone = (
        variational_scores(evidence, posterior(evidence, members, given))
        for given in (weights, None)
    )
    monkeypatch.setattr(_model_module, "MANY", 2)
    monkeypatch.setattr(_model_module, "RANGES", ranges)
    used = evidence.used(posterior(evidence, members).counts[3:4], 3)
    assert used is not None
    numbers = torch.arange(len(more))
    listed = [number for part in used for number in numbers[part].tolist()]
    wanted_ones = {*evidence.query_pattern[3].tolist(), *evidence.support_pattern[3].tolist()}
    assert listed == sorted({*listed})
    assert wanted_ones <= {*listed}
    assert len(listed) <= 2 * len(wanted_ones)
    monkeypatch.setattr(_model_module, "INVERTED", 1)  # task by task
    for given, expected in ((weights, wanted), (None, alone)):
        found = variational_scores(evidence, posterior(evidence, members, given))
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other)


def test_tasks_on_several_cores_are_tasks_on_one(monkeypatch: pytest.MonkeyPatch) -> None:
    evidence, members = some_evidence(complete=False)
    given = evidence, members, torch.randn(8, 12, 2, dtype=torch.float64)
    rule = Rule("predictive", transductive=True, n_iter=10, rank=None, structure="full")
    monkeypatch.setattr(_rounds_module, "FEW_TASKS", 3)
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            found.append(score_together(*given, Settings(), rule))
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    torch.testing.assert_close(*found)


@pytest.mark.parametrize("complete", [True, False])
def test_two_explanations_at_once_are_each_by_itself(complete: bool) -> None:
    evidence, members = some_evidence(complete)
    start, settings = torch.randn(8, 12, 2, dtype=torch.float64), Settings()
    given = evidence, members, start, settings, 10
    both = _rounds(*given, (0.9, None))
    for place, balance in enumerate((0.9, None)):
        alone = _rounds(*given, (balance,))
        for found, expected in zip(both, alone, strict=True):
            assert torch.allclose(found[:, place], expected[:, 0], atol=1e-10)


@pytest.mark.parametrize("divided", [0, 1 << 24])
def test_rounds_that_a_gpu_plays_again_are_the_same(
    monkeypatch: pytest.MonkeyPatch, divided: int
) -> None:
    """There nobody looks who is done, and at most once most are left behind."""
    monkeypatch.setattr(_rounds_module, "DIVIDED", divided)
    evidence, members = some_evidence(complete=False)
    start = 3 * torch.randn(8, 12, 2, dtype=torch.float64)
    given = evidence, members, start, Settings(), 10, (0.9, None)
    expected = _rounds(*given)
    monkeypatch.setattr(_rounds_module, "_worth_playing", lambda *_: True)
    for found, wanted in zip(_rounds(*given), expected, strict=True):
        assert torch.allclose(found, wanted, atol=1e-4)


def test_complete_samples_need_no_inverse() -> None:
    """With all views A is diagonal; a pattern that nobody has makes it be inverted as any other."""
    evidence, members = some_evidence(complete=True)
    spare = torch.cat([evidence.information, torch.eye(evidence.information.shape[-1])[None]])
    belief = posterior(evidence, members, torch.rand(8, 12, 2, dtype=torch.float64))
    more = replace(belief, counts=torch.nn.functional.pad(belief.counts, (0, 1)))
    found = variational_scores(evidence, belief)
    expected = variational_scores(replace(evidence, information=spare), more)
    for one, other in zip(found, expected, strict=True):
        assert torch.allclose(one, other, atol=1e-10)


def test_log_dirichlet_adds_up_to_one() -> None:
    masses = torch.tensor([[a, b, 4 - a - b] for a in range(5) for b in range(5 - a)])
    ways = torch.lgamma(torch.tensor(5.0)) - torch.lgamma(masses + 1.0).sum(1)
    assert float((log_dirichlet(masses.double()) + ways).exp().sum()) == pytest.approx(1)


def test_learnt_shares_need_more_evidence_where_more_is_at_stake() -> None:
    # Two tasks of three classes and four queries, by hand: one query changes its class.
    even = torch.full((2, 4, 3), 0.01, dtype=torch.float64)
    even[:, torch.arange(4), torch.tensor([0, 1, 2, 2])] = 0.98
    learnt = even.clone()
    learnt[:, 3] = torch.tensor([0.98, 0.01, 0.01], dtype=torch.float64)
    # Supports alone prefer the first class by two nats (task 0) and by 32 (task 1).
    scores = torch.zeros(2, 4, 3, dtype=torch.float64)
    scores[0, :, 0], scores[1, :, 0] = 2.0, 32.0
    alone = torch.log_softmax(0.1 * scores, dim=-1)
    bounds = torch.tensor([[0.0, 5.0]] * 2, dtype=torch.float64)
    found = _weighed(torch.stack([even, learnt], dim=1).log(), bounds, scores, alone).exp()
    for task, nats in enumerate((2.0, 32.0)):
        moved = 0.97  # of one query, from one class to another
        said = moved * 0.1 * nats
        ahead = 5.0 + said + UNEVEN - STAKE * np.sqrt(2 * nats * moved)
        weight = 1 / (1 + np.exp(-EVIDENCE * ahead))
        wanted = weight * 0.98 + (1 - weight) * 0.01
        assert found[task, 3, 0].item() == pytest.approx(wanted)
    assert found[1, 3, 0] < found[0, 3, 0]


def test_one_class_leaves_nothing_to_weigh() -> None:
    zero = torch.zeros(1, 3, 1)
    found = _weighed(torch.stack([zero, zero], dim=1), torch.zeros(1, 2), zero, zero)
    torch.testing.assert_close(found, zero)
    assert torch.isfinite(calibrated(zero, zero, 1.0)).all()


def sureness(logits: torch.Tensor) -> torch.Tensor:
    """Log odds of the mean of the largest probabilities."""
    return torch.softmax(logits, dim=-1).amax(-1).mean(1).logit()


def test_queries_together_are_a_little_surer_than_alone() -> None:
    rng = np.random.default_rng(0)
    scores = torch.from_numpy(rng.normal(size=(5, 30, 4)))
    scores = scores * torch.tensor([1, 3, 9, 1e6, 0])[:, None, None]
    alone = torch.log_softmax(torch.from_numpy(rng.normal(size=(5, 30, 4))), dim=-1)
    found = calibrated(scores, alone, 0.5)
    wanted = (1 - BY_QUERIES) * sureness(alone) + BY_QUERIES * sureness(0.5 * scores) + BEYOND
    np.testing.assert_allclose(sureness(found)[:3], wanted[:3], atol=2e-3)
    # Scores that are too sure whatever the factor stop at its limit; others stay without any.
    np.testing.assert_allclose(found[3] / scores[3], FACTORS[0], rtol=1e-3)
    assert torch.equal(found[4], scores[4])


def test_a_calibration_that_is_given_is_a_factor() -> None:
    base, novel = text(6, 20), text(3, 12, first=6)
    task = TaskSpec(way=3, shot=1, queries=8)
    episodes = EpisodeSampler(novel, task).draw(0, 4)
    found = []
    for factor in (0.5, 1.0, None):
        method = Marginal(calibration=factor, dtype="float64")
        prepared = learn_base(method, base, task)
        scores = method.score_episodes(novel, episodes, prepared)
        found.append(torch.log_softmax(scores, dim=-1))
    torch.testing.assert_close(torch.log_softmax(2 * found[0], dim=-1), found[1])
    assert torch.equal(found[1].argmax(-1), found[2].argmax(-1))  # only how sure they are differs
    alone = Marginal(transductive=False, dtype="float64")
    scores = alone.score_episodes(novel, episodes, learn_base(alone, base, task))
    factor = TEMPERED * alone.resolved(len(base.classes)).alone
    wanted = (1 - BY_QUERIES) * sureness(scores) + BY_QUERIES * sureness(factor * found[1]) + BEYOND
    torch.testing.assert_close(sureness(found[2]), wanted, atol=5e-3, rtol=0)


@pytest.mark.parametrize("counts", ["balanced", "dirichlet:1", "dominant:0.8"])
def test_queries_together_are_no_worse_than_alone(counts: str) -> None:
    rng = np.random.default_rng(5)
    labels = np.repeat(np.arange(14), 40)
    hidden = rng.normal(size=(14, 6))[labels] * 1.6 + rng.normal(size=(len(labels), 6))
    views = {
        name: hidden @ rng.normal(size=(6, 9)) + 0.3 * rng.normal(size=(len(labels), 9))
        for name in ("a", "b")
    }
    data = MultiViewData(views, labels)
    base, novel = data[labels < 9], data[labels >= 9]
    task = TaskSpec(way=3, shot=1, queries=12, eta=0.2, query_counts=counts)
    together = accuracy(Marginal(), base, novel, task)
    alone = accuracy(Marginal(transductive=False), base, novel, task)
    assert together > alone - 0.01
    if counts == "dominant:0.8":
        assert together > accuracy(Marginal(balance=1.0), base, novel, task) + 0.1


# ---------------------------------------------------------------------------- where classes lie


def far_tasks(offset: float, n_tasks: int = 4) -> tuple[Gaussians, Evidence]:
    """Tasks of three classes in two views with gaps, all of them moved along W by an offset."""
    rng = np.random.default_rng(5)
    mean = torch.tensor(rng.normal(size=12))
    factor = torch.tensor(rng.normal(size=(12, 12))) / 4
    between = factor @ factor.T + 0.1 * torch.eye(12, dtype=torch.float64)
    model = Gaussians(mean, 0.2 * torch.eye(12, dtype=torch.float64), between, (6, 6))
    root = torch.linalg.cholesky(between)
    classes = torch.tensor(rng.normal(size=(n_tasks, 3, 12))) / 2 + offset
    codes = torch.arange(33) % 3
    rows = (
        mean + classes[:, codes] @ root.T + 0.4 * torch.tensor(rng.normal(size=(n_tasks, 33, 12)))
    )
    mask = torch.tensor(rng.random((n_tasks, 33, 2)) < 0.7)
    mask[..., 0] |= ~mask.any(-1)
    wide = mask.repeat_interleave(6, -1)
    rows = rows * wide
    evidence = gathered(model, rows[:, :3], rows[:, 3:], mask[:, :3], mask[:, 3:])
    return model, evidence


def test_a_mean_of_the_task_is_another_mean_of_the_model() -> None:
    model, _ = far_tasks(0.0, 1)
    rng = np.random.default_rng(6)
    step = torch.tensor(rng.normal(size=12))
    root = prior_root(model, torch.arange(12), None)
    moved = replace(model, mean=model.mean + root @ step)
    rows = torch.tensor(rng.normal(size=(1, 5, 12)))
    masks = torch.tensor([[[1, 1], [1, 0], [0, 1], [1, 1], [0, 1]]]).bool()
    rows = rows * masks.repeat_interleave(6, -1)
    plain, wanted = (
        gathered(m, rows[:, :2], rows[:, 2:], masks[:, :2], masks[:, 2:]) for m in (model, moved)
    )
    found = plain.shifted(step[None])
    assert torch.allclose(found.support, wanted.support)
    assert torch.allclose(found.query, wanted.query)


def test_only_classes_of_another_world_have_a_mean_of_their_own() -> None:
    _, near = far_tasks(0.0)
    members = torch.eye(3, dtype=torch.float64).expand(4, 3, 3)
    weights = torch.eye(3, dtype=torch.float64).repeat(10, 1).expand(4, 30, 3)
    assert about_the_task(near, members, weights) is near
    _, far = far_tasks(3.0)
    found = about_the_task(far, members, weights)
    assert float(found.query.norm()) < 0.7 * float(far.query.norm())
    chosen = torch.tensor([1])
    one = about_the_task(far.tasks(chosen), members[chosen], weights[chosen])
    assert torch.allclose(one.query[0], found.query[1])  # whatever other tasks there are
