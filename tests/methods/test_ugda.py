"""UGDA stage by stage: by hand, by loops written from the equations, by other libraries."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from torch import Tensor
from torch.nn.functional import one_hot

from fewview import (
    UGDA,
    Combined,
    EpisodeSampler,
    FewviewError,
    FewviewWarning,
    MultiViewData,
    Proto,
    TaskSpec,
    create,
)
from fewview.datasets.synthetic import make_few_shot
from fewview.episodes.batch import EpisodeBatch
from fewview.methods.estimator.fitted_base import FittedBase, learn_base
from fewview.methods.estimator.laws import check_method
from fewview.methods.params import describe_params
from fewview.methods.ugda.adam import aggregate_with_adam, draw_xavier
from fewview.methods.ugda.aggregation import aggregate_exactly, gram_coordinates, principal_scores
from fewview.methods.ugda.anchors import draw_anchors
from fewview.methods.ugda.distribution import (
    ViewDistribution,
    closest_classes,
    estimate,
    interpolate,
    nearest_classes,
    sum_over,
)
from fewview.methods.ugda.groups import group_statistics
from fewview.methods.ugda.rectification import (
    TERMS,
    Objective,
    centres_of,
    distance_logits,
    fit_classifier,
    rectify_with_adam,
    rectify_with_lbfgs,
)
from fewview.methods.ugda.statistics import BaseStatistics, BaseSums
from fewview.numerics.distances import class_means
from fewview.numerics.moments import ClassStatistics

Floats = NDArray[np.float64]
EMPTY = torch.empty(0)
SMALL = "ugda:n_anchors=10"
ADAM = "ugda:n_anchors=6:solver=adam:n_iter=5:rectify_steps=40:latent_dim=16"
REFERENCE = ADAM.replace("adam", "reference")
YES = torch.ones(1, 1, 2, dtype=torch.bool)  # both views of one sample are there


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def one(*rows: Any) -> Tensor:
    """One task: [1, N, d]."""
    return torch.tensor([list(rows)], dtype=torch.float64)


def known(*means: Any, available: Any = None, covariances: Any = None) -> BaseStatistics:
    """Base statistics with the given class means per view [C, d]."""
    stacked = tuple(torch.as_tensor(mean, dtype=torch.float64) for mean in means)
    if covariances is None:
        covariances = [torch.eye(m.shape[1]).double().expand(len(m), -1, -1) for m in stacked]
    if available is None:
        available = torch.ones(len(stacked[0]), len(stacked), dtype=torch.bool)
    return BaseStatistics(stacked, (EMPTY,) * len(stacked), tuple(covariances), available)


def spread_out(factors: Tensor, dense: bool) -> BaseStatistics:
    """Base statistics of one view with means zero and factors [C, r, d], in either form."""
    n_classes, _, width = factors.shape
    return BaseStatistics(
        (torch.zeros(n_classes, width).double(),),
        (EMPTY,) if dense else (factors,),
        (factors.mT @ factors,) if dense else (EMPTY,),
        torch.ones(n_classes, 1, dtype=torch.bool),
    )


def sets() -> tuple[MultiViewData, MultiViewData]:
    """Six base classes and four novel ones, three views."""
    data = make_few_shot(10, 20, {"colour": 6, "shape": 4, "sound": 5}, seed=1)
    return data[data.codes < 6], data[data.codes >= 6]


def easy_batch(method: UGDA, n_tasks: int = 6, eta: float = 0.3) -> tuple[EpisodeBatch, FittedBase]:
    base, novel = sets()
    task = TaskSpec(way=3, shot=2, queries=5, eta=eta)
    fitted = learn_base(method, base, task)
    episodes = EpisodeSampler(novel, task).draw(0, n_tasks)
    batch = method.tensors(novel, fitted).gather(episodes)
    return replace(batch, query_labels=None), fitted


def ugda(text: str, **parameters: Any) -> UGDA:
    method = create(text, **{"dtype": "float64", **parameters})
    assert isinstance(method, UGDA)
    return method


# ---------------------------------------------------------------------------- base statistics


def test_statistics_are_numpys() -> None:
    rng = np.random.default_rng(0)
    data = MultiViewData(
        {"narrow": 2 * rng.normal(size=(12, 3)) + 7, "wide": rng.normal(size=(12, 300))},
        labels=np.repeat([0, 1, 2], 4),
    )
    empty = ClassStatistics(data.view_dims)
    halves = [BaseSums(ClassStatistics(data.view_dims)).update(data[k::2]) for k in (0, 1)]
    whole = BaseSums(empty).update(data)
    for sums in (whole, halves[0].merge(halves[1])):
        state = BaseStatistics.of(sums.found)
        assert bool(state.available.all())
        # Narrow views as covariances, wide ones as factors: nothing of 300 x 300.
        assert [x.shape for x in state.covariances] == [(3, 3, 3), (0,)]
        assert [x.shape[0] for x in state.factors] == [0, 3]
        assert state.factors[1].shape[1] <= 4
        for c in range(3):
            rows = {view: block[data.codes == c] for view, block in data.views.items()}
            assert np.allclose(state.means[1][c].numpy(), rows["wide"].mean(0))
            covariance = np.cov(rows["narrow"], rowvar=False)
            assert np.allclose(state.covariances[0][c].numpy(), covariance)
            factor = state.factors[1][c].numpy()
            assert np.allclose(factor.T @ factor, np.cov(rows["wide"], rowvar=False))
        for v, rows in enumerate(data.views.values()):
            parts = [rows[data.codes == c] for c in range(3)]
            within = np.mean([part.var(0, ddof=1).mean() for part in parts])
            between = np.var([part.mean(0) for part in parts], axis=0).mean()
            assert state.variance(v) == pytest.approx(within + between)
            means = np.mean([part.mean(0) for part in parts], axis=0)
            assert np.allclose(state.overall_means()[v].numpy(), means)


def test_groups_of_samples_without_labels_stand_for_base_classes() -> None:
    rng = np.random.default_rng(0)
    blocks = rng.normal(size=(200, 3)) + 9 * np.repeat(np.eye(2, 3), 100, axis=0)
    assert len(group_statistics(MultiViewData(blocks), 0).available) == 10
    few = group_statistics(MultiViewData(blocks[:9]), 0)
    assert few.available.tolist() == [[False]]
    assert few.factors[0].shape == (1, 0, 3)


# ---------------------------------------------------------------------------- Eqs. 5 to 9 and 11


# Two views, four base classes: the first view puts them at 0, 1, 2, 10.
BASE = known([[0.0], [1.0], [2.0], [10.0]], [[0.0, 0.0], [8.0, 0.0], [0.0, 8.0], [8.0, 8.0]])


def near(views: tuple[Tensor, ...], mask: Any, base: BaseStatistics, k: int) -> list[int]:
    found = nearest_classes(views, torch.tensor([mask]), base, k)
    return list(found[0, 0].nonzero().flatten().tolist())


def test_neighbours_by_hand() -> None:
    x = (one([1.4]), one([7.0, 7.0]))
    assert near(x, [[True, False]], BASE, 1) == [1]
    assert near(x, [[False, True]], BASE, 1) == [3]
    assert near(x, [[True, True]], BASE, 1) == [1, 3]  # the union
    assert near(x, [[True, False]], BASE, 2) == [1, 2]
    assert near((one([9.0]), x[1]), [[True, True]], BASE, 1) == [3]  # counts a class once


def test_mean_and_covariance_by_hand() -> None:
    covariances = [
        torch.tensor([1.0, 2.0, 4.0, 8.0]).double()[:, None, None],
        torch.stack([c * torch.eye(2).double() for c in (1, 10, 100, 1000)]),
    ]
    base = replace(BASE, covariances=tuple(covariances))
    x, first = (one([1.4]), one([7.0, 7.0])), torch.tensor([[[True, False]]])
    # Neighbours 1 and 3: (1.4 + 1 + 10) / 3 and ((7, 7) + (8, 0) + (8, 8)) / 3.
    found = estimate(x, YES, base, 1)
    assert found.means[0][0, 0].tolist() == pytest.approx([12.4 / 3])
    assert found.means[1][0, 0].tolist() == pytest.approx([23 / 3, 5.0])
    assert found.near[0].tolist() == found.near[1].tolist() == [[[False, True, False, True]]]
    # The released code: half the sample, half the neighbours' mean.
    code = estimate(x, YES, base, 1, "code")
    assert code.means[0][0, 0].tolist() == pytest.approx([(1.4 + 5.5) / 2])
    assert code.means[1][0, 0].tolist() == pytest.approx([(7 + 8) / 2, (7 + 4) / 2])
    # Eq. 9: the mean of the neighbours' covariances, 5 and 505, in the variance of the anchors.
    drawn = draw_anchors(found, base, torch.tensor([1]), 20000, 0.0)[0]
    assert drawn.var(0).tolist() == pytest.approx([5.0, 505.0, 505.0], rel=0.05)
    # A missing view: the neighbours of the other view speak for it, under both rules.
    for rule in ("paper", "code"):
        out = estimate(x, first, base, 1, rule)
        assert out.means[0][0, 0].tolist() == pytest.approx([1.2])
        assert out.means[1][0, 0].tolist() == pytest.approx([8.0, 0.0])
    assert interpolate(x, first, out)[0, 0].tolist() == pytest.approx([1.4, 8.0, 0.0])


def test_base_classes_that_lack_a_view_are_skipped_for_it() -> None:
    lacks = torch.ones(4, 2, dtype=torch.bool)
    lacks[1, 0] = lacks[3, 1] = False
    base = replace(BASE, available=lacks)
    x = (one([1.4]), one([7.0, 7.0]))
    # Class 1 is nearest in the first view but lacks it; class 3 likewise in the second.
    assert near(x, [[True, False]], base, 1) == [2]
    assert near(x, [[False, True]], base, 1) in ([1], [2])  # a tie
    # A class found in one view is left out of the sums of a view that it lacks.
    x = (one([9.0]), one([1.0, 1.0]))  # finds 3 in the first view and 0 in the second
    out = estimate(x, YES, base, 1)
    assert out.means[0][0, 0].tolist() == pytest.approx([(9.0 + 10.0 + 0.0) / 3])
    assert out.means[1][0, 0].tolist() == pytest.approx([0.5, 0.5])
    assert out.near[1][0, 0].tolist() == [True, False, False, False]
    # Where all neighbours lack a missing view, every class that has it is asked.
    out = estimate(x, torch.tensor([[[True, False]]]), base, 1)
    assert out.means[1][0, 0].tolist() == pytest.approx([8 / 3, 8 / 3])


def test_a_view_without_base_leaves_the_sample_as_it_is() -> None:
    base = replace(BASE, available=torch.tensor([[True, False]]).expand(4, 2))
    x = (one([1.4], [0.0]), one([7.0, 7.0], [3.0, 4.0]))
    out = estimate(x, torch.tensor([[[True, True], [False, True]]]), base, 1)
    assert out.means[1].tolist() == x[1].tolist()
    assert not bool(out.near[1].any())
    # The second sample has nothing that the base set knows: all classes speak for its view.
    assert out.means[0][0, 1].tolist() == pytest.approx([13 / 4])


@pytest.mark.parametrize("rule", ["paper", "code"])
@pytest.mark.parametrize("k", [1, 3])
def test_distribution_is_a_loop_over_the_equations(rule: str, k: int) -> None:
    widths, n_classes = (2, 5, 3), 7
    base = known(*(3 + randn(n_classes, d, seed=d) for d in widths))
    x = tuple(3 + 2 * randn(4, 6, d, seed=10 + d) for d in widths)
    mask = torch.rand(4, 6, 3, generator=torch.Generator().manual_seed(0)) > 0.4
    mask[..., 0] |= ~mask.any(-1)
    found = estimate(x, mask, base, k, rule)
    close = closest_classes(x, mask, base, 3)
    for t, n in np.ndindex(4, 6):
        union: set[int] = set()
        squares = []
        for v in np.flatnonzero(mask[t, n]):
            distance = np.linalg.norm((x[v][t, n] - base.means[v]).numpy(), axis=1)
            union |= set(np.argsort(distance)[:k].tolist())
            squares.append(distance**2 / widths[v])
        assert close[t, n].tolist() == np.argsort(np.mean(squares, axis=0))[:3].tolist()
        for v in range(3):
            members = [base.means[v][j] for j in union]
            centre = torch.stack(members).mean(0)
            if not mask[t, n, v]:
                wanted = centre
            elif rule == "paper":
                wanted = torch.stack([*members, x[v][t, n]]).mean(0)
            else:
                wanted = (x[v][t, n] + centre) / 2
            assert torch.allclose(found.means[v][t, n], wanted)
            assert set(found.near[v][t, n].nonzero()[:, 0].tolist()) == union


def test_sum_over_some_is_a_product_with_zeros_and_ones() -> None:
    table = torch.rand(3, 4, 6, generator=torch.Generator().manual_seed(0)) > 0.5
    table[1, 2] = False  # nobody: zero
    values = randn(6, 5)
    assert torch.allclose(sum_over(table, values), table.double() @ values)


# ---------------------------------------------------------------------------- Eq. 10


def assert_law(draws: Tensor, mean: Tensor, covariance: Tensor) -> None:
    """Mean and covariance of draws [n, d] are the target's within 5 standard errors."""
    n = len(draws)
    variance = covariance.diagonal()
    assert bool(((draws.mean(0) - mean).abs() <= 5 * (variance / n).sqrt() + 1e-12).all())
    found = torch.from_numpy(np.cov(draws.numpy(), rowvar=False)).reshape(covariance.shape)
    error = ((torch.outer(variance, variance) + covariance**2) / n).sqrt()
    assert bool(((found - covariance).abs() <= 5 * error + 1e-12).all())
    assert torch.allclose(found.trace(), covariance.trace(), rtol=0.05)


@pytest.mark.parametrize("ridge", [0.0, 0.3])
@pytest.mark.parametrize("dense", [True, False])
def test_sampler_has_the_right_law(dense: bool, ridge: float) -> None:
    # Classes of three samples in six dimensions: covariances of rank 2.
    factors = randn(3, 2, 6) * torch.tensor([1.0, 2.0, 0.5]).double()[:, None, None]
    base, covariances = spread_out(factors, dense), factors.mT @ factors
    # Two supports: one between classes 0 and 2, one at class 1.
    table = torch.tensor([[[True, False, True], [False, True, False]]])
    means = randn(1, 2, 6, seed=5)
    found = draw_anchors(
        ViewDistribution((means,), (table,)), base, torch.tensor([7]), 20000, ridge
    )
    assert found.shape == (1, 40000, 6)
    eye = ridge * torch.eye(6).double()
    assert_law(found[0, :20000], means[0, 0], (covariances[0] + covariances[2]) / 2 + eye)
    assert_law(found[0, 20000:], means[0, 1], covariances[1] + eye)
    # Supports are independent of each other.
    between = np.corrcoef(found[0, :20000].T.numpy(), found[0, 20000:].T.numpy())[:6, 6:]
    assert np.abs(between).max() < 5 / 20000**0.5


def test_views_of_a_support_are_independent_and_repeat_from_the_seed() -> None:
    base, table = known(torch.zeros(2, 3), torch.zeros(2, 3)), torch.ones(1, 1, 2).bool()
    where = ViewDistribution((torch.zeros(1, 1, 3).double(),) * 2, (table,) * 2)
    found, twice, other = (
        draw_anchors(where, base, torch.tensor([seed]), 20000, 0.0) for seed in (3, 3, 4)
    )
    a, b = found.chunk(2, dim=-1)
    assert np.abs(np.corrcoef(a[0].T.numpy(), b[0].T.numpy())[:3, 3:]).max() < 5 / 20000**0.5
    assert torch.equal(found, twice)
    assert not torch.equal(found, other)


@pytest.mark.parametrize("dense", [True, False])
@pytest.mark.parametrize("ridge", [0.0, 1e-3])
def test_anchors_of_a_task_do_not_depend_on_the_batch(dense: bool, ridge: float) -> None:
    factors = randn(4, 5, 5)
    factors[1, 1:] = 0  # a class of rank one, whose covariance has no Cholesky factor
    factors[2] = 0  # and one without any spread
    base = spread_out(factors, dense)
    table = torch.eye(4).bool()[torch.tensor([[0, 0], [1, 2], [3, 0], [2, 3], [1, 3]])]
    table[3] = True  # everyone speaks
    means, seeds = randn(5, 2, 5, seed=1), torch.arange(5)
    many = draw_anchors(ViewDistribution((means,), (table,)), base, seeds, 8, ridge)
    for t in range(5):
        part = ViewDistribution((means[t : t + 1],), (table[t : t + 1],))
        single = draw_anchors(part, base, seeds[t : t + 1], 8, ridge)
        assert torch.allclose(single[0], many[t], atol=1e-9)


# ---------------------------------------------------------------------------- Eqs. 12 and 13


def aggregation_loss(anchors: Tensor, latent: Tensor) -> Tensor:
    """Smallest aggregation loss that these latent anchors allow, [tasks], by least squares."""
    a = anchors - anchors.mean(1, keepdim=True)
    z = latent - latent.mean(1, keepdim=True)
    fit = z @ torch.linalg.lstsq(z, a, driver="gelsd").solution
    return ((a - fit) ** 2).sum((1, 2))


def options(**parameters: Any) -> UGDA:
    """Parameters of the aggregation by Adam, with nothing left None."""
    method = UGDA(solver="adam", tasks_per_batch=1, **parameters)
    return replace(method, **method.settings())


def test_aggregation_by_adam_is_algorithm_1_by_autograd() -> None:
    anchors, queries, seeds = randn(1, 10, 8), randn(1, 4, 8, seed=1), torch.arange(1)
    own = options(latent_dim=4, n_iter=3, n_steps=2)
    found = aggregate_with_adam(anchors, queries, (5, 3), seeds, own)
    draw = [((10, 4), 14, "latent"), ((4, 4), 14, "queries")]
    draw += [((4, d), 4, f"weights 0 {v}") for v, d in enumerate((5, 3))]
    z, h, *nets = (draw_xavier(seeds, shape, fan, anchors.dtype, name) for shape, fan, name in draw)
    weights, bias = torch.cat(nets, dim=-1), torch.zeros(1, 1, 8).double()
    moved = [[weights, bias], [z], [h]]
    adam = [torch.optim.Adam([x.requires_grad_() for x in part], lr=1e-2) for part in moved]

    def step(which: int, latent: Tensor, features: Tensor) -> None:
        adam[which].zero_grad()
        loss = ((latent @ weights + bias - features) ** 2).sum() / features.shape[1]
        loss.backward()  # type: ignore[no-untyped-call]
        adam[which].step()

    for which in (0, 0, 1, 1) * 3:
        step(which, z, anchors)
    for _ in range(3):
        step(2, h, queries)
    assert torch.allclose(found[0], z)
    assert torch.allclose(found[1], h)


@pytest.mark.parametrize(("n_anchors", "width"), [(12, 7), (8, 20)])
@pytest.mark.parametrize("latent_dim", [1, 3, None])
def test_exact_is_at_least_as_good_as_3000_steps_of_adam(
    n_anchors: int, width: int, latent_dim: int | None
) -> None:
    anchors = randn(1, n_anchors, width) @ randn(width, width, seed=1) + 2.0
    starts = 4  # the same problem from several starts
    anchors = anchors.expand(starts, -1, -1)
    queries = randn(starts, 3, width, seed=2)
    latent, _ = aggregate_exactly(anchors, queries, latent_dim, full_rank=True)
    exact = aggregation_loss(anchors, latent)
    rank = min(n_anchors - 1, width)
    centred = (anchors - anchors.mean(1, keepdim=True)).numpy()
    total = torch.from_numpy((centred**2).sum((1, 2)))
    # Eckart and Young: the squares of the singular values that are left out.
    values = np.linalg.svd(centred, compute_uv=False)[:, latent_dim or rank :]
    assert torch.allclose(exact, torch.from_numpy((values**2).sum(1)), atol=1e-9 * total[0])
    losses: list[Tensor] = []
    by_adam, _ = aggregate_with_adam(
        anchors, queries, (3, width - 3), torch.arange(starts),
        options(latent_dim=latent_dim or rank, n_iter=150),
        note=lambda i, loss, z, h: losses.append(loss),
    )  # fmt: skip
    assert len(losses) == 150  # of 10 evaluator and 10 anchor steps
    assert losses[-1].std() > 0  # the starts differ
    slack = 1e-9 * total
    assert bool((exact <= losses[-1] + slack).all())
    # Even with the evaluator that fits Adam's latent anchors best.
    assert bool((exact <= aggregation_loss(anchors, by_adam) + slack).all())
    # And Adam comes near: it is the same problem.
    assert bool((losses[-1] <= exact + 0.1 * total).all())


def distances(points: Floats) -> Floats:
    return ((points[:, None] - points[None]) ** 2).sum(-1)


def assert_isometric(
    anchors: Tensor, queries: Tensor, z: Tensor, h: Tensor, tolerance: float = 1e-9
) -> None:
    """Distances are those of the anchors and of the queries' projections on their affine span."""
    for t in range(len(anchors)):
        middle = anchors[t].double().mean(0).numpy()
        a, q = anchors[t].double().numpy() - middle, queries[t].double().numpy() - middle
        # Least squares by numpy: q is nearly a' x.
        projected = (a.T @ np.linalg.lstsq(a.T, q.T, rcond=None)[0]).T
        wanted = distances(np.concatenate([a, projected]))
        found = distances(torch.cat([z[t], h[t]]).double().numpy())
        assert np.abs(found - wanted).max() <= tolerance * wanted.max()


def centred(a: Tensor, q: Tensor) -> tuple[Tensor, Tensor]:
    centre = a.mean(1, keepdim=True)
    return a - centre, q - centre


@pytest.mark.parametrize(("n_anchors", "width"), [(30, 7), (8, 40), (12, 12), (12, 13)])
def test_exact_at_full_width_has_no_loss_and_keeps_distances(n_anchors: int, width: int) -> None:
    anchors, queries = 3 + randn(2, n_anchors, width), 3 + randn(2, 5, width, seed=1)
    for latent_dim in (None, 1000):
        for full_rank in (True, False):
            z, h = aggregate_exactly(anchors, queries, latent_dim, full_rank)
            assert_isometric(anchors, queries, z, h)
            assert bool((aggregation_loss(anchors, z) < 1e-9).all())


def test_gram_coordinates_of_anchors_that_repeat_each_other() -> None:
    anchors, queries = randn(3, 12, 40), randn(3, 4, 40, seed=1)
    anchors[1, 6:] = anchors[1, :6]  # one degenerate task among good ones
    a, q = centred(anchors, queries)
    z, h = gram_coordinates(a, q)
    assert_isometric(anchors, queries, z, h)
    # The good ones do not notice.
    single = gram_coordinates(a[:1], q[:1])
    assert torch.allclose(single[0], z[:1])
    assert torch.allclose(single[1], h[:1])
    assert all(bool((part == 0).all()) for part in gram_coordinates(torch.zeros_like(a), q))


@pytest.mark.parametrize("noise", [0.1, 1e-3, 1e-5])
def test_gram_coordinates_in_float32(noise: float) -> None:
    """Anchors near a few dimensions, hardly more features than anchors: the hard case."""
    anchors = randn(2, 60, 5) @ randn(5, 62, seed=1) + noise * randn(2, 60, 62, seed=2)
    anchors, queries = anchors.float(), randn(2, 4, 62, seed=3).float()
    z, h = gram_coordinates(*centred(anchors, queries))
    assert z.dtype == torch.float32
    assert_isometric(anchors, queries, z, h, tolerance=2e-3)


def test_gram_coordinates_in_float32_where_cholesky_succeeds_but_is_poor() -> None:
    anchors = 0.2 * randn(1, 200, 10) @ randn(10, 210, seed=1) / 20**0.5
    anchors = (anchors + 3e-3 * randn(1, 200, 210, seed=2)).float()
    queries = 0.2 * randn(1, 20, 210, seed=3).float()
    z, h = gram_coordinates(*centred(anchors, queries))
    assert_isometric(anchors, queries, z, h, tolerance=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_principal_scores_keep_thin_directions(dtype: torch.dtype) -> None:
    """A direction of 1e-4 of the largest extent is still one that queries have."""
    extents = torch.tensor([1.0, 1.0, 1e-4]).double()
    turn = torch.linalg.qr(randn(20, 3)).Q
    queries = (randn(2, 4, 3, seed=2) @ turn.T).to(dtype)
    anchors = ((randn(2, 9, 3, seed=1) * extents) @ turn.T).to(dtype)
    z, h = principal_scores(*centred(anchors, queries), 3)
    assert_isometric(anchors, queries, z, h, tolerance=1e-2)
    # Ten thousand times thinner, it is rounding, and dropped.
    thin = ((randn(2, 9, 3, seed=1) * extents**3) @ turn.T).to(dtype)
    z, h = principal_scores(*centred(thin, queries), 3)
    assert z[..., 2].abs().max() == h[..., 2].abs().max() == 0


@pytest.mark.parametrize("width", [6, 30])
def test_principal_scores_are_pca(width: int) -> None:
    a, q = centred(2 + randn(2, 9, width), randn(2, 4, width, seed=1))
    z, h = principal_scores(a, q, 3)
    for t in range(2):
        _, _, axes = np.linalg.svd(a[t].numpy(), full_matrices=False)
        for found, points in ((z, a), (h, q)):
            wanted = points[t].numpy() @ axes[:3].T
            assert np.allclose(np.abs(found[t].numpy()), np.abs(wanted))


# ---------------------------------------------------------------------------- Eqs. 14 to 21


def latent_task(
    n_tasks: int = 3, way: int = 3, per_class: int = 8, width: int = 4
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Latent anchors, their labels, memberships, and queries of overlapping classes."""
    centres = randn(n_tasks, way, width)
    anchors = centres.repeat_interleave(per_class, 1)
    anchors = anchors + randn(*anchors.shape, seed=1)
    queries = centres.repeat_interleave(5, 1) + randn(n_tasks, 5 * way, width, seed=2)
    labels = torch.arange(way).repeat_interleave(per_class).expand(n_tasks, -1)
    return anchors, labels, one_hot(labels, way).double(), queries


def value_at(objective: Objective, centres: Tensor) -> tuple[Tensor, Tensor]:
    return objective.at(centres, objective.points, objective.members)


def softmax(values: Floats) -> Floats:
    shifted: Floats = np.exp(values - values.max())
    return shifted / shifted.sum()


def looped_objective(
    anchors: Tensor, labels: Tensor, queries: Tensor, centres: Tensor, terms: Any, factor: float
) -> list[float]:
    """Eqs. 15 to 21 as printed, one number at a time."""
    out = []
    parts = (x.numpy() for x in (anchors, labels, queries, centres))
    for chi, y, h, delta in zip(*parts, strict=True):
        way, value = len(delta), 0.0
        if "cross_entropy" in terms:
            for m in range(len(chi)):
                sigma = np.array([np.sum((chi[m] - delta[c]) ** 2) for c in range(way)])
                value -= np.log(softmax(-factor * sigma)[y[m]]) / len(chi)
        if "entropy" in terms:
            zeta = np.zeros(way)
            for n in range(len(h)):
                zeta += softmax(-factor * np.array([np.sum((h[n] - d) ** 2) for d in delta]))
            zeta /= len(h)
            value -= -np.sum(zeta * np.log(zeta))
        out.append(float(value))
    return out


@pytest.mark.parametrize("temperature", [0.5, 1.0])
@pytest.mark.parametrize("terms", [TERMS, ("cross_entropy",), ("entropy",)])
def test_objective_is_the_equations_and_its_gradient_autograds(
    terms: tuple[str, ...], temperature: float
) -> None:
    anchors, labels, members, queries = latent_task()
    centres = (class_means(anchors, members) + 0.3 * randn(3, 3, 4, seed=9)).requires_grad_()
    objective = Objective(anchors, members, queries, terms, temperature)
    with torch.no_grad():
        value, gradient = value_at(objective, centres)
    still = centres.detach()
    wanted = looped_objective(anchors, labels, queries, still, terms, temperature)
    assert value.tolist() == pytest.approx(wanted)
    relation = [
        torch.softmax(-temperature * ((x[:, :, None] - centres[:, None]) ** 2).sum(-1), dim=-1)
        for x in (anchors, queries)
    ]
    loss = torch.zeros(()).double()
    if "cross_entropy" in terms:
        loss = loss - (members * relation[0].log()).sum() / anchors.shape[1]
    if "entropy" in terms:
        zeta = relation[1].mean(1)
        loss = loss + (zeta * zeta.log()).sum()
    (slope,) = torch.autograd.grad(loss, centres)
    assert torch.allclose(gradient, slope)
    assert objective.floor(0.0) == pytest.approx(-np.log(3) if "entropy" in terms else 0.0)
    assert bool((value >= objective.floor(0.0)).all())


def test_objective_at_its_extremes() -> None:
    """Probabilities that underflow give no NaN (the released code has no guard for them)."""
    anchors, _, members, queries = latent_task()
    far = class_means(anchors, members)
    far[:, 2] += 1e6
    for part in value_at(Objective(anchors, members, queries, TERMS, 0.5), far):
        assert bool(torch.isfinite(part).all())


@pytest.mark.parametrize("terms", [TERMS, ("cross_entropy",), ("entropy",)])
@pytest.mark.parametrize("width", [1, 2, 4, 40])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_the_search_keeps_its_rule(terms: tuple[str, ...], width: int, dtype: torch.dtype) -> None:
    """Fewer dimensions than the classes need (1, 2), whitened (4), separable (40)."""
    anchors, _, members, queries = (
        part.to(dtype) if part.is_floating_point() else part
        for part in latent_task(n_tasks=8, way=4, width=width)
    )
    if width == 40:
        anchors, queries = 0.1 * anchors, 0.1 * queries
    objective = Objective(anchors, members, queries, terms, 0.5)
    start = class_means(anchors, members)
    found = rectify_with_lbfgs(objective, start, 1e-4, 30)
    assert found.dtype == dtype
    before, after = value_at(objective, start)[0], value_at(objective, found)[0]
    slack = 1e-9 if dtype == torch.float64 else 1e-3
    assert bool((after <= before + slack).all())
    assert bool((after < before - 5e-4).any())
    # The stated rule: a task stops within the tolerance of the infimum, and not far below.
    stopped = value_at(objective, rectify_with_lbfgs(objective, start, 0.05, 30))[0]
    assert bool((stopped <= before + slack).all())
    if width == 40:  # separable: the infimum is within reach
        assert bool((stopped <= objective.floor(0.05) + slack).all())
        assert bool((after <= stopped + slack).all())
        assert "cross_entropy" not in terms or bool((stopped > after + 1e-3).all())
    # No steps, no change.
    same = rectify_with_lbfgs(objective, start, 0.05, 0)
    assert torch.allclose(value_at(objective, same)[0], before, atol=1e-4)
    # The search of one task does not depend on the others.
    single = Objective(anchors[:1], members[:1], queries[:1], terms, 0.5)
    if dtype == torch.float64:
        by_itself = rectify_with_lbfgs(single, start[:1], 1e-4, 30)
        assert torch.allclose(by_itself, found[:1], atol=1e-5 * float(found.abs().max()))
    # Classifier and centres say the same.
    if dtype == torch.float64:
        scores = fit_classifier(objective, start, 0.05, 30)(queries)
        centres = rectify_with_lbfgs(objective, start, 0.05, 30)
        wanted = torch.log_softmax(distance_logits(queries, centres, 0.5), dim=-1)
        assert torch.allclose(torch.log_softmax(scores, dim=-1), wanted, atol=1e-6)


def test_without_entropy_it_is_logistic_regression() -> None:
    """Overlapping classes: the cross-entropy has a minimum, scikit-learn's without a penalty."""
    anchors, labels, members, queries = latent_task(per_class=40)
    objective = Objective(anchors, members, queries, ("cross_entropy",), 0.5)
    start = class_means(anchors, members)
    found = rectify_with_lbfgs(objective, start, 0.0, 300)
    value, gradient = value_at(objective, found)
    assert gradient.abs().max() < 0.05 * value_at(objective, start)[1].abs().max()
    for t in range(3):
        other = LogisticRegression(C=np.inf, tol=1e-10, max_iter=10000)
        other.fit(anchors[t].numpy(), labels[t].numpy())
        proba = other.predict_proba(anchors[t].numpy())
        best = -np.log(proba[np.arange(len(proba)), labels[t].numpy()]).mean()
        assert best - 1e-9 <= value[t].item() <= best + 1e-3
        mine = distance_logits(queries[t : t + 1], found[t : t + 1], 0.5)[0].softmax(-1)
        assert np.allclose(mine.numpy(), other.predict_proba(queries[t].numpy()), atol=0.05)


def test_stretched_axes_do_not_slow_the_search() -> None:
    """Points are whitened where anchors are many: near the minimum after few steps."""
    anchors, _, members, queries = latent_task(per_class=40)
    stretch = torch.tensor([1.0, 0.3, 0.1, 0.05]).double()
    anchors, queries = anchors * stretch, queries * stretch
    objective = Objective(anchors, members, queries, ("cross_entropy",), 0.5)
    start = class_means(anchors, members)
    few, many = (rectify_with_lbfgs(objective, start, 0.0, n) for n in (12, 300))
    assert bool((value_at(objective, few)[0] < value_at(objective, many)[0] + 1e-3).all())


def test_both_rectifiers_lower_the_same_objective() -> None:
    anchors, _, members, queries = latent_task(per_class=40)
    objective = Objective(anchors, members, queries, TERMS, 0.5)
    start = class_means(anchors, members)
    fast = value_at(objective, rectify_with_lbfgs(objective, start, 0.0, 200))[0]
    adam = value_at(objective, rectify_with_adam(objective, start, 2000, 1e-2))[0]
    assert torch.allclose(fast, adam, atol=5e-3)
    assert bool((adam < value_at(objective, start)[0] - 0.01).all())


@pytest.mark.parametrize("width", [2, 3, 30])
def test_centres_of_a_linear_classifier(width: int) -> None:
    weights, offsets = randn(4, 3, width), 3 * randn(4, 3, seed=1)
    middle, x = randn(4, 1, width, seed=2), randn(4, 20, width, seed=3)
    centres = centres_of(weights, offsets, middle)
    linear = x @ weights.mT + offsets[:, None]
    by_distance = -0.5 * ((x[:, :, None] - centres[:, None]) ** 2).sum(-1)
    assert torch.allclose(linear - linear[..., :1], by_distance - by_distance[..., :1])
    # Centres that need no move stay: their own classifier gives them back.
    other = 5 + randn(4, 3, width, seed=4)
    own = centres_of(other, -0.5 * (other**2).sum(-1), other.mean(1, keepdim=True))
    assert torch.allclose(own, other)


# ---------------------------------------------------------------------------- the method


@pytest.mark.parametrize("text", [SMALL, ADAM, f"{SMALL}:latent_dim=1"])
def test_scores_are_distances_to_the_mean_of_rectified_anchors(text: str) -> None:
    """Eqs. 22 to 26, anchor by anchor."""
    method = ugda(text)
    batch, fitted = easy_batch(method)
    latent = method.embed(batch, fitted.state)
    moved = method.rectify_anchors(latent)
    trace = method.trace(batch, fitted.state)
    for t, m in ((0, 0), (1, 9), (5, 23)):
        c = int(trace.labels[t, m])
        shift = trace.rectified[t, c] - trace.centres[t, c]
        assert torch.allclose(moved.support[0][t, m], trace.final_anchors[t, m] + shift)
    assert torch.equal(moved.query[0], latent.query[0])
    weights = class_means(moved.support[0], one_hot(trace.labels, 3).double())
    assert torch.allclose(weights, trace.rectified)
    distance = ((trace.final_queries[:, :, None] - weights[:, None]) ** 2).sum(-1)
    # Eq. 16 as printed has no factor; `exact` and `reference` follow the released code.
    wanted = torch.softmax(-(1.0 if text == ADAM else 0.5) * distance, dim=-1)
    found = torch.softmax(method.score_batch(batch, fitted), dim=-1)
    assert torch.allclose(found, wanted, atol=1e-6)


def test_a_head_gets_anchors_that_weigh_as_one_support_together() -> None:
    method = ugda(SMALL)
    batch, fitted = easy_batch(method)
    latent = method.embed(batch, fitted.state)
    assert latent.support[0].shape[:2] == (6, 60)
    assert latent.query[0].shape[:2] == (6, 15)
    assert bool(latent.support_mask.all() & latent.query_mask.all())
    assert torch.equal(latent.support_labels[:, ::10], batch.support_labels)
    assert torch.allclose(latent.one_hot().sum((1, 2)), torch.full((6,), 6.0).double())
    # Nearest means of rectified anchors are UGDA itself.
    both = Combined(source=UGDA(n_anchors=10), head=Proto(), rectified=True, dtype="float64")
    state = learn_base(both, sets()[0], fitted.task)
    wanted = method.score_batch(batch, fitted).argmax(-1)
    assert torch.equal(both.score_batch(batch, state).argmax(-1), wanted)


@pytest.mark.parametrize("rectifier", ["fast", "adam"])
def test_single_terms_lower_their_own_term(rectifier: str) -> None:
    results = {}
    for terms in ("cross_entropy", "entropy", "cross_entropy+entropy", "none"):
        method = ugda(f"{SMALL}:rectify={terms}:rectifier={rectifier}:rectify_rate=0.1")
        method.set_params(rectify_steps=200, rectify_tolerance=0.0)
        batch, fitted = easy_batch(method)
        trace = method.trace(batch, fitted.state)
        members = one_hot(trace.labels, 3).double()
        parts = [
            Objective(trace.final_anchors, members, trace.final_queries, (term,), 0.5)
            for term in TERMS
        ]
        results[terms] = [float(value_at(part, trace.rectified)[0].mean()) for part in parts]
    for index, term in enumerate(TERMS):
        assert results[term][index] < results["none"][index]
    assert sum(results["cross_entropy+entropy"]) < sum(results["none"])
    assert len({round(sum(result), 9) for result in results.values()}) == 4


@pytest.mark.parametrize("text", ["ugda:n_anchors=0", "ugda:n_neighbors=0"])
@pytest.mark.parametrize("eta", [0.0, 0.3])
def test_without_anchors_the_original_embeddings_are_classified(text: str, eta: float) -> None:
    """As the paper says of its Fig. 7: what Proto does, whatever the base classes are."""
    method, proto = ugda(text), create("proto", dtype="float64", padding="episode")
    batch, fitted = easy_batch(method, eta=eta)
    wanted = proto.score_batch(batch, learn_base(proto, sets()[0], fitted.task))
    found = method.score_batch(batch, fitted)
    assert torch.allclose(torch.softmax(found, -1), torch.softmax(0.5 * wanted, -1))
    anchors, labels, _ = method.dense_anchoring(batch, fitted.state)
    assert anchors.shape[1] == batch.n_support
    assert torch.equal(labels, batch.support_labels)


def test_a_single_query_has_no_entropy_term() -> None:
    both, ce = ugda(SMALL), ugda(f"{SMALL}:rectify=cross_entropy")
    batch, fitted = easy_batch(both)
    only = batch.with_queries(torch.tensor([0]))
    assert torch.equal(both.score_batch(only, fitted), ce.score_batch(only, fitted))
    assert not torch.equal(both.score_batch(batch, fitted), ce.score_batch(batch, fitted))


@pytest.mark.parametrize("solver", ["adam", "reference"])
def test_trace(solver: str) -> None:
    method = ugda(f"ugda:n_anchors=6:solver={solver}:latent_dim=16:n_iter=12:rectify_steps=30")
    batch, fitted = easy_batch(method, n_tasks=4)
    trace = method.trace(batch, fitted.state, at=(0, 5, 11))
    assert trace.loss.shape == (12, 4)
    assert set(trace.anchors) == set(trace.queries) == {0, 5, 11}
    assert trace.anchors[5].shape == trace.final_anchors.shape == (4, 36, 16)
    assert trace.queries[5].shape == trace.final_queries.shape == (4, 15, 16)
    assert trace.centres.shape == trace.rectified.shape == (4, 3, 16)
    assert not torch.equal(trace.anchors[0], trace.anchors[5])
    # Under `reference` the anchors drift on with the queries.
    assert torch.equal(trace.anchors[11], trace.final_anchors) == (solver == "adam")
    if solver == "adam":
        assert bool((trace.loss[-1] < 0.2 * trace.loss[0]).all())
    # Tracing looks, and changes nothing.
    wanted = distance_logits(trace.final_queries, trace.rectified, 1.0 if solver == "adam" else 0.5)
    assert torch.equal(method.score_batch(batch, fitted), wanted)


def test_ablations_of_the_aggregation() -> None:
    losses = {}
    changes = {"full": {}, "AEU": {"update_evaluator": False}, "LAU": {"update_anchors": False}}
    for left_out, change in changes.items():
        method = ugda(ADAM.replace("n_iter=5", "n_iter=12"), **change)
        batch, fitted = easy_batch(method, n_tasks=4)
        trace = method.trace(batch, fitted.state, at=(0, 11))
        losses[left_out] = float(trace.loss[-1].mean())
        moved = not torch.equal(trace.anchors[0], trace.anchors[11])
        assert moved == (left_out != "LAU")
    assert losses["full"] < min(losses["AEU"], losses["LAU"])


@pytest.mark.parametrize(
    "change",
    ["mean_rule=paper", "share_evaluator=task", "train_nets=all", "reinit_first=false",
     "shared_adam=false", "rectifier=fast", "tasks_per_batch=2", "learning_rate=0.001",
     "temperature=1", "update_evaluator=false", "update_anchors=false", "n_steps=3",
     "rectify_rate=0.1", "ridge=0.1"],
)  # fmt: skip
def test_every_option_of_the_reference_changes_results(change: str) -> None:
    plain, other = ugda(REFERENCE), ugda(f"{REFERENCE}:{change}")
    batch, fitted = easy_batch(plain, n_tasks=4)
    a, b = plain.score_batch(batch, fitted), other.score_batch(batch, fitted)
    assert bool(torch.isfinite(b).all())
    assert not torch.allclose(a, b, atol=1e-6)
    assert describe_params(plain) != describe_params(other)


def test_a_shared_evaluator_lets_information_flow_between_tasks() -> None:
    for sharing, flows in (("batch", True), ("task", False)):
        method = ugda(ADAM, share_evaluator=sharing)
        batch, fitted = easy_batch(method, n_tasks=3)
        many = method.score_batch(batch, fitted)[:1]
        single = method.score_batch(batch.tasks(slice(0, 1)), fitted)
        assert torch.allclose(many, single, atol=1e-6) != flows


def test_a_shared_evaluator_fixes_the_batch() -> None:
    shape = 3, 45, (10, 2000), 3
    assert create("ugda:solver=reference:tasks_per_batch=7").batch_size(*shape) == 7
    assert create("ugda:tasks_per_batch=7").batch_size(*shape) > 7
    assert create("ugda:solver=adam:tasks_per_batch=7").batch_size(*shape) > 7


def test_only_the_last_net_is_trained_by_the_reference() -> None:
    anchors, queries = randn(2, 10, 8), randn(2, 4, 8, seed=1)
    small = {"latent_dim": 4, "n_iter": 20, "update_anchors": False}
    results = [
        aggregate_with_adam(
            anchors, queries, (5, 3), torch.arange(2), options(train_nets=nets, **small)
        )
        for nets in ("all", "last")
    ]
    # Latent anchors did not move, so only queries feel the evaluator.
    assert torch.equal(results[0][0], results[1][0])
    assert not torch.allclose(results[0][1], results[1][1])


@pytest.mark.parametrize("text", [ADAM, f"{SMALL}:latent_dim=4", f"{SMALL}:n_neighbors=3:ridge=0"])
def test_laws_of_other_settings(text: str) -> None:
    only = ["tasks apart", "query labels unread", "gaps unread", "precision and device"]
    check_method(create(text), only=only, n_tasks=6)


def test_explanations_name_the_nearest_base_classes() -> None:
    base, novel = sets()
    clf = ugda(SMALL, base=base, scaling="none").fit(novel[np.argsort(novel.codes)][::10])
    # A sample of a base class is nearest to that class, most of the time.
    found = clf.explain(base[:30]).neighbours
    assert {len(row) for row in found} == {3}
    labels = base.classes[base.codes[:30]].tolist()
    hits = [row[0] == label for row, label in zip(found, labels, strict=True)]
    assert np.mean(hits) > 0.8


# ---------------------------------------------------------------------------- parameters


def test_what_is_none_follows_the_solver() -> None:
    found = create("ugda:solver=reference").resolved_params()
    assert found.items() >= {
        "mean_rule": "code", "train_nets": "last", "share_evaluator": "batch",
        "reinit_first": True, "shared_adam": True, "rectifier": "adam", "rectify_steps": 1000,
        "latent_dim": 512, "ridge": 1e-3, "temperature": 0.5,
    }.items()  # fmt: skip
    printed = create("ugda:solver=adam").resolved_params()
    assert (printed["ridge"], printed["temperature"], printed["mean_rule"]) == (0.0, 1.0, "paper")
    written_out = "ugda:mean_rule=paper:rectifier=fast:rectify_steps=100:train_nets=all:ridge=0.001"
    assert describe_params(create(written_out)) == describe_params(create("ugda"))
    assert describe_params(create("ugda:rectify=none"))["rectify"] == "none"
    assert create("ugda:rectify=cross_entropy+entropy").rectify == TERMS
    # A word for the solver leaves the other parameters as they are.
    method = clone(UGDA(solver="adam", n_iter=3)).set_params(solver="reference")
    assert (method.n_iter, method.settings()["train_nets"]) == (3, "last")


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("solver=magic", "exact, adam, reference"),
        ("rectify=colour", "cross_entropy, entropy"),
        ("n_anchors=-1", "at least 0"),
        ("update_anchors=false", "solver=adam"),
        ("train_nets=last", "solver=adam"),
        ("latent_dim=0", "at least 1"),
        ("ridge=-0.1", "at least 0"),
        ("temperature=0", "above 0"),
    ],
)
def test_bad_settings(setting: str, message: str) -> None:
    with pytest.raises(FewviewError, match=message):
        create(f"ugda:{setting}")


# ---------------------------------------------------------------------------- bad input


def changed(data: MultiViewData, change: Any) -> MultiViewData:
    views = {view: change(view, np.asarray(x, dtype=float)) for view, x in data.views.items()}
    return MultiViewData(views, data.labels)


def widened(factor: float = 1.0, width: int = 300) -> tuple[MultiViewData, MultiViewData]:
    """The data in views wider than classes are large: the factor form of the sampler."""
    rng = np.random.default_rng(0)
    mixing = {view: rng.normal(size=(d, width)) for view, d in sets()[0].view_dims.items()}
    base, novel = (changed(part, lambda v, x: factor * (x @ mixing[v])) for part in sets())
    return base, novel


def accuracy(
    base: MultiViewData, novel: MultiViewData, text: str = SMALL, n_tasks: int = 12, **more: Any
) -> float:
    """Accuracy over a few tasks with missing views; scores are finite or an error is raised."""
    method = create(text, **more)
    task = TaskSpec(way=3, shot=1, queries=6, eta=0.3)
    episodes = EpisodeSampler(novel, task).draw(0, n_tasks)
    scores = method.score_episodes(novel, episodes, learn_base(method, base, task))
    return float((scores.argmax(-1) == torch.from_numpy(episodes.query_labels)).double().mean())


def test_a_base_class_with_one_sample_is_left_out() -> None:
    base, novel = sets()
    label = base.classes[3]
    alone = np.flatnonzero(base.codes == 3)
    kept = base[np.setdiff1d(np.arange(len(base)), alone[1:])]
    with pytest.warns(FewviewWarning, match=rf"{label} .*one sample only"):
        found = learn_base(ugda(SMALL), kept, TaskSpec(way=3)).state
    assert isinstance(found, BaseStatistics)
    assert found.available[3].tolist() == [False] * 3
    firsts = base[np.unique(base.codes, return_index=True)[1]]
    with pytest.raises(FewviewError, match="no base class has two samples"):
        accuracy(firsts, novel)


def test_more_neighbours_than_base_classes_are_refused() -> None:
    base, novel = sets()
    assert accuracy(base, novel, "ugda:n_anchors=10:n_neighbors=6") > 0.5
    with pytest.raises(FewviewError, match=r"n_neighbors is 7, but only 6 .*'colour'"):
        accuracy(base, novel, "ugda:n_anchors=10:n_neighbors=7")
    # Counted view by view.
    mask = np.ones((len(base), 3), dtype=bool)
    mask[base.codes < 3, 1] = False
    with pytest.raises(FewviewError, match=r"only 3 base class\(es\) have view 'shape'"):
        accuracy(base.with_mask(mask), novel, "ugda:n_anchors=10:n_neighbors=4")
    assert accuracy(base.with_mask(mask), novel, "ugda:n_anchors=10:n_neighbors=3") > 0.5


def without(data: MultiViewData, view: int) -> MultiViewData:
    mask = np.ones((len(data), 3), dtype=bool)
    mask[:, view] = False
    return data.with_mask(mask)


@pytest.mark.parametrize("text", [SMALL, ADAM, REFERENCE, "ugda:n_anchors=0"])
def test_a_view_that_the_base_set_lacks(text: str) -> None:
    base, novel = sets()
    with pytest.warns(FewviewWarning, match="'sound'"):
        found = accuracy(without(base, 2), novel, text)
    assert found > 0.45
    with pytest.warns(FewviewWarning, match="'sound'"):  # and one that nobody has
        assert accuracy(without(base[1:], 2), without(novel, 2), text) > 0.45
    assert accuracy(base, without(novel, 0), text) > 0.45  # or the tasks lack


def test_gaps_of_a_view_that_the_base_set_lacks_are_padded() -> None:
    """Nothing scales that view; a gap filled with zeros would lie far from all samples."""
    base, novel = sets()
    far = changed(novel, lambda v, x: x + (1000.0 if v == "sound" else 0.0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FewviewWarning)
        near_zero = accuracy(without(base, 2), novel, dtype="float64")
        assert accuracy(without(base, 2), far, dtype="float64") >= near_zero - 0.02


@pytest.mark.parametrize("ridge", [0.0, 1e-3])
@pytest.mark.parametrize("text", [SMALL, ADAM])
@pytest.mark.parametrize("wide", [False, True])
def test_duplicate_base_rows(text: str, ridge: float, wide: bool) -> None:
    base, novel = widened() if wide else sets()
    firsts = np.unique(base.codes, return_index=True)[1]
    twins = base[np.repeat(firsts, 5)]  # every class five times one sample
    assert accuracy(twins, novel, text, ridge=ridge, n_tasks=6) > 0.45


def test_a_ridge_that_drowns_the_views_is_told() -> None:
    base, _ = sets()
    small = changed(base, lambda v, x: 1e-6 * x if v == "sound" else x)
    with pytest.warns(FewviewWarning, match=r"ridge 0.001 .*'sound'"):
        learn_base(create(SMALL, scaling="none"), small, TaskSpec(way=3))
    with warnings.catch_warnings():
        warnings.simplefilter("error", FewviewWarning)
        learn_base(create(SMALL), small, TaskSpec(way=3))
        learn_base(create(f"{SMALL}:ridge=0", scaling="none"), small, TaskSpec(way=3))


@pytest.mark.parametrize("text", [SMALL, f"{SMALL}:ridge=0:scaling=none"])
@pytest.mark.parametrize("factors", [(1e-12,) * 3, (1e12,) * 3, (1e-6, 1.0, 1e6)])
def test_units(text: str, factors: tuple[float, ...]) -> None:
    """The same answers where views are scaled, finite and good ones elsewhere."""
    base, novel = sets()
    units = dict(zip(base.view_names, factors, strict=True))
    parts = [changed(part, lambda v, x: x * units[v]) for part in (base, novel)]
    found = accuracy(*parts, text)
    if "none" not in text:
        assert found == pytest.approx(accuracy(base, novel, text), abs=0.01)
    elif len(set(factors)) == 1:
        assert found > 0.5
