"""Independent checks of the few-shot methods: by hand, by other libraries, by fixed points."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from fewview import (
    BDCSPN,
    PTMAP,
    RFS,
    TIM,
    UGDA,
    AlphaTIM,
    Bavardage,
    Combined,
    EpisodeBatch,
    EpisodeSampler,
    FewviewError,
    FittedBase,
    Match,
    Method,
    MultiViewData,
    Paddle,
    PartialNN,
    Proto,
    State,
    TaskSpec,
    create,
)
from fewview.methods.bavardage import WithinClass
from fewview.methods.estimator.fitted_base import learn_base
from fewview.methods.ptmap import power_transform
from fewview.numerics.distances import class_means, squared_distances, unit_rows
from fewview.numerics.iterate import tensors_in

Array = Any
ONE = torch.ones(()).double()


def made(
    n_tasks: int = 5, way: int = 3, shot: int = 2, queries: int = 8, width: int = 12, seed: int = 0
) -> EpisodeBatch:
    """Clustered tasks of one complete view, float64; queries class by class."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    centres = 1.5 * draw(n_tasks, way, width)
    support = centres.repeat_interleave(shot, 1) + draw(n_tasks, way * shot, width)
    query = centres.repeat_interleave(queries, 1) + draw(n_tasks, way * queries, width)
    labels = torch.arange(way).repeat_interleave(shot).expand(n_tasks, -1)
    return batch_of(support, query, labels, way)


def batch_of(
    support: Tensor, query: Tensor, labels: Tensor, way: int, weights: Tensor | None = None
) -> EpisodeBatch:
    return EpisodeBatch(
        support=(support,),
        query=(query,),
        support_mask=torch.ones_like(support[..., :1], dtype=torch.bool),
        query_mask=torch.ones_like(query[..., :1], dtype=torch.bool),
        support_labels=labels,
        query_labels=None,
        seeds=torch.zeros(len(support), dtype=torch.int64),
        way=way,
        view_names=("x",),
        support_weights=weights,
    )


def parts(batch: EpisodeBatch, unit: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    """Supports, queries and memberships, rows of length one if wanted."""
    support, query = batch.concatenated()
    members = batch.one_hot()
    return (unit_rows(support), unit_rows(query), members) if unit else (support, query, members)


def with_fewer_queries(batch: EpisodeBatch, count: int) -> EpisodeBatch:
    return batch.with_queries(torch.arange(count))


SUPPORT = torch.tensor([[[2.0, 0.0], [0.0, 3.0], [-1.0, 0.0]]])
LABELS = torch.tensor([[0, 0, 1]])

# ---------------------------------------------------------------------------- by hand


def test_proto_by_hand() -> None:
    support = torch.tensor([[[0.0, 0.0], [2.0, 0.0], [5.0, 1.0]]])
    query = torch.tensor([[[1.0, 1.0], [3.0, 0.0]]])
    found = Proto().scores(batch_of(support, query, LABELS, 2), State())
    distances = torch.tensor([[[1.0, 16.0], [4.0, 5.0]]])  # to the means (1, 0) and (5, 1)
    assert torch.allclose(found.softmax(-1), (-distances).softmax(-1))


def test_match_by_hand() -> None:
    batch = batch_of(SUPPORT, torch.tensor([[[5.0, 0.0]]]), LABELS, 2)
    found = Match(temperature=2.0).scores(batch, State()).exp()
    e = np.exp([2.0, 0.0, -2.0])
    assert np.allclose(found[0, 0].numpy(), [(e[0] + e[1]) / e.sum(), e[2] / e.sum()])


def test_match_weights_supports() -> None:
    batch = made()
    support, query = batch.concatenated()
    weights = torch.linspace(0.2, 2.0, batch.n_support).double().expand(batch.n_tasks, -1)
    one, two = (
        Match().scores(batch_of(support, query, batch.support_labels, 3, factor * weights), State())
        for factor in (1.0, 2.0)
    )
    assert torch.allclose(one, two)
    assert torch.allclose(one.exp().sum(-1), ONE)
    e = weights[:, None] * torch.exp(10 * unit_rows(query) @ unit_rows(support).mT)
    assert torch.allclose(one.exp()[..., 1], e[..., 2:4].sum(-1) / e.sum(-1))


def test_partial_nn_by_hand() -> None:
    clf = PartialNN(scaling="none", temperature=3.0)
    clf.fit({"a": [[0.0], [4.0], [10.0]]}, ["x", "y", "y"])
    proba = clf.predict_proba({"a": [[1.0]]})[0]
    far = np.array([1.0, 9.0]) / 5  # the nearest of y is at 4; over their mean
    assert proba == pytest.approx(np.exp(-3 * far) / np.exp(-3 * far).sum())


# ---------------------------------------------------------------------------- BD-CSPN


def bd_cspn_by_hand(
    support: Array, query: Array, labels: Array, temperature: float, n_pseudo: int
) -> Array:
    """One task, sample by sample: cosines times the temperature, [n_query, way]."""

    def unit(x: Array) -> Array:
        return x / np.linalg.norm(x)

    z_s, z_q = [unit(x) for x in support], [unit(x) for x in query]
    way = labels.max() + 1
    means = [
        np.mean([z for z, k in zip(z_s, labels, strict=True) if k == c], 0) for c in range(way)
    ]
    if len(z_q) > 1:
        shift = np.mean(z_s, axis=0) - np.mean(z_q, axis=0)
        z_q = [z + shift for z in z_q]
        cosines = np.array([[unit(z) @ unit(p) for p in means] for z in z_q])
        joined = []
        for c in range(way):
            surest = np.argsort(-cosines[:, c]).tolist()
            mine = [q for q in surest if cosines[q].argmax() == c]
            mine = mine[:n_pseudo] if n_pseudo else mine
            group = [z for z, k in zip(z_s, labels, strict=True) if k == c]
            group += [z_q[q] for q in mine]
            w = np.array([np.exp(temperature * unit(z) @ unit(means[c])) for z in group])
            joined.append((w[:, None] * np.array(group)).sum(0) / w.sum())
        means = joined
    return temperature * np.array([[unit(z) @ unit(p) for p in means] for z in z_q])


@pytest.mark.parametrize("n_query", [1, 2, 24])
@pytest.mark.parametrize("n_pseudo", [0, 1, 4, 100])
def test_bd_cspn_is_plain_code(n_pseudo: int, n_query: int) -> None:
    batch = with_fewer_queries(made(shot=3), n_query)
    before = [view.clone() for view in (*batch.support, *batch.query)]
    found = BDCSPN(temperature=7.0, n_pseudo=n_pseudo).scores(batch, State())
    assert all(map(torch.equal, before, (*batch.support, *batch.query)))  # what is given stays
    for task in range(batch.n_tasks):
        wanted = bd_cspn_by_hand(
            batch.support[0][task].numpy(), batch.query[0][task].numpy(),
            batch.support_labels[task].numpy(), 7.0, n_pseudo,
        )  # fmt: skip
        assert np.allclose(found[task].numpy(), wanted)


def test_bd_cspn_on_paper_with_a_class_that_no_query_joins() -> None:
    support = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])
    query = torch.tensor([[[0.8, 0.6], [1.0, 0.1], [1.0, 0.0]]])
    found = BDCSPN(n_pseudo=1).rectified(support, query, torch.eye(2)[None])
    assert torch.allclose(found[0], torch.eye(2), atol=1e-6)
    query = torch.tensor([[[0.8, 0.6], [0.6, 0.8], [1.0, 0.0]]])
    found = BDCSPN().rectified(support, query, torch.eye(2)[None])
    w = np.exp([0.0, 10 * (0.8 - 1), 0.0])  # the support, then queries 0 and 2
    wanted = w @ np.array([[1, 0], [0.8, 0.6], [1, 0]]) / w.sum()
    assert np.allclose(found[0, 0].numpy(), wanted, atol=1e-6)


# ---------------------------------------------------------------------------- RFS


@pytest.mark.parametrize("shot", [1, 5])
@pytest.mark.parametrize("C", [0.1, 1.0, 100.0])
def test_logistic_regression_is_scikit_learns(shot: int, C: float) -> None:
    support, query, members = parts(made(shot=shot), unit=True)
    weights = torch.linspace(0.5, 2.0, support.shape[1], dtype=torch.float64)
    W, b = RFS(C=C).regression(support, members * weights[:, None])
    assert torch.allclose(b.sum(1), torch.zeros(5).double(), atol=1e-9)
    found = torch.softmax(query @ W.mT + b[:, None], dim=-1)
    labels = members[0].argmax(1).numpy()
    for task in range(len(support)):
        other = LogisticRegression(C=C, max_iter=10000, tol=1e-10)
        other.fit(support[task].numpy(), labels, sample_weight=weights.numpy())
        assert np.allclose(found[task].numpy(), other.predict_proba(query[task].numpy()), atol=1e-5)


@pytest.mark.parametrize("width", [3, 30])  # fewer and more than twice the supports
def test_rfs_is_scikit_learns_through_the_estimator(width: int) -> None:
    rng = np.random.default_rng(0)
    x, q = rng.normal(size=(4, width)), rng.normal(size=(9, width))
    found = create("rfs", scaling="none", dtype="float64").fit(x, [0, 1, 2, 2]).predict_proba(q)
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    other = LogisticRegression(max_iter=10000, tol=1e-10).fit(unit, [0, 1, 2, 2])
    wanted = other.predict_proba(q / np.linalg.norm(q, axis=1, keepdims=True))
    assert np.allclose(found, wanted, atol=1e-5)


# ---------------------------------------------------------------------------- TIM


def tim_loss(
    centres: Tensor, batch: EpisodeBatch, temperature: float, weights: Any, alpha: float
) -> Tensor:
    """The loss of the paper, [tasks], from distances."""
    support, query, members = parts(batch, unit=True)

    def entropy(x: Tensor) -> Tensor:
        if alpha == 1:
            return -(x * x.log()).sum(-1)
        return (1 - (x**alpha).sum(-1)) / (alpha - 1)

    p_s, p = (
        torch.softmax(-0.5 * temperature * torch.cdist(z, centres) ** 2, -1)
        for z in (support, query)
    )
    cross = -(members * p_s.log()).sum(-1).mean(1)
    l_ce, l_m, l_c = weights
    total: Tensor = l_ce * cross - l_m * entropy(p.mean(1)) + l_c * entropy(p).mean(1)
    return total


@pytest.mark.parametrize("alpha", [1.0, 2.0, 7.0])
def test_tim_gradient_is_autograds(alpha: float) -> None:
    batch = made()
    support, query, members = parts(batch, unit=True)
    centres = class_means(support, members).requires_grad_()
    weights = (0.1, 1.0, 0.3)
    (wanted,) = torch.autograd.grad(tim_loss(centres, batch, 9.0, weights, alpha).sum(), centres)
    kind: dict[str, Any] = {"temperature": 9.0, "weights": weights}
    method = TIM(**kind) if alpha == 1 else AlphaTIM(alpha=alpha, **kind)
    found = method.slope(centres.detach(), support, query, members)
    assert torch.allclose(found, wanted, atol=1e-9)


def test_tim_goes_down_and_scores_by_distance() -> None:
    batch = made()
    support, query, members = parts(batch, unit=True)
    start = class_means(support, members)
    method = TIM(n_steps=400, learning_rate=1e-3)
    centres = method.descend(start, support, query, members)
    kind = (15.0, (0.1, 1.0, 0.1), 1.0)
    assert bool((tim_loss(centres, batch, *kind) < tim_loss(start, batch, *kind) - 0.003).all())
    found = method.scores(batch, State())
    wanted = torch.softmax(-7.5 * torch.cdist(query, centres) ** 2, -1)
    assert torch.allclose(found.softmax(-1), wanted, atol=1e-9)
    # A single query moves nothing.
    single = method.scores(with_fewer_queries(batch, 1), State())
    wanted = torch.softmax(-7.5 * torch.cdist(query[:, :1], start) ** 2, -1)
    assert torch.allclose(single.softmax(-1), wanted)


def test_tim_in_fewer_dimensions_is_another_run_of_the_same() -> None:
    batch = made(width=200, queries=4)
    for n_steps in (0, 50):
        one, two = (
            TIM(reduce=reduce, n_steps=n_steps).scores(batch, State()) for reduce in (False, True)
        )
        assert torch.allclose(one.softmax(-1), two.softmax(-1), atol=0.05)
        assert torch.allclose(one, two, atol=1e-6) == (n_steps == 0)  # Adam depends on the axes


def adm_by_hand(support: Array, query: Array, labels: Array, weights: Any, rounds: int) -> Array:
    """TIM-ADM sample by sample, in the form of the paper: centres [way, width]."""
    l_ce, l_m, l_c = weights
    way = labels.max() + 1
    w = np.stack([support[labels == k].mean(0) for k in range(way)])

    def soft(z: Array) -> Array:
        e = np.exp([-7.5 * ((z - w[k]) ** 2).sum() for k in range(way)])
        return e / e.sum()

    for _ in range(rounds):
        p_s, p_q = np.array([soft(z) for z in support]), np.array([soft(z) for z in query])
        sharp = p_q ** (1 + l_c)
        q = sharp / sharp.sum(0) ** (l_m / (l_m + 1))
        q /= q.sum(1, keepdims=True)
        g, r = l_ce / (1 + l_c), len(support) / len(query)
        new = []
        for k in range(way):
            y = labels == k
            top = g * (support[y].sum(0) + (p_s[:, [k]] * (w[k] - support)).sum(0))
            top = top + r * ((q[:, [k]] * query).sum(0) + (p_q[:, [k]] * (w[k] - query)).sum(0))
            new.append(top / (g * y.sum() + r * q[:, k].sum()))
        w = np.stack(new)
    return w


@pytest.mark.parametrize("rounds", [0, 1, 3])
def test_tim_adm_is_plain_code(rounds: int) -> None:
    batch = made(n_tasks=2, queries=4)
    support, query, members = parts(batch, unit=True)
    weights = (0.2, 0.7, 0.3)
    method = TIM(solver="adm", n_iter=rounds, weights=weights)
    found = method.alternate(class_means(support, members), support, query, members)
    for task in range(2):
        labels = batch.support_labels[task].numpy()
        wanted = adm_by_hand(support[task].numpy(), query[task].numpy(), labels, weights, rounds)
        assert np.allclose(found[task].numpy(), wanted)


def test_tim_adm_comes_to_rest() -> None:
    batch = made()
    support, query, members = parts(batch, unit=True)

    def moved(n_iter: int) -> float:
        """How far the centres move in one more round."""
        start = class_means(support, members)
        one, two = (
            TIM(solver="adm", n_iter=n).alternate(start, support, query, members)
            for n in (n_iter, n_iter + 1)
        )
        return float((one - two).abs().max())

    assert moved(3000) < 1e-4
    assert moved(3000) < moved(300) < moved(30)


def test_tim_and_alpha_tim_refuse_what_they_cannot() -> None:
    with pytest.raises(FewviewError, match="alpha is 1; it must be above 1"):
        create("alpha-tim:alpha=1")
    with pytest.raises(FewviewError, match="solver is 'adm'; it must be one of gd"):
        create("alpha-tim:solver=adm")
    with pytest.raises(FewviewError, match=r"weights is .* 3 entries"):
        create("tim:weights=1+2")
    assert create("tim-adm").solver == "adm"
    assert create("tim").name == "tim"
    assert not create("tim-adm").small_batches
    assert create("alpha-tim").small_batches


# ---------------------------------------------------------------------------- PT-MAP


def test_power_transform_rules() -> None:
    x = torch.tensor([4.0, -9.0, 0.0])
    assert power_transform(x, "none") is x
    assert torch.allclose(power_transform(x, "signed"), torch.tensor([2.0, -3.0, 0.0]))
    assert torch.allclose(power_transform(x, "relu"), torch.tensor([2.0, 1e-3, 1e-3]), atol=1e-5)


@pytest.mark.parametrize("n_query", [1, 24])
def test_ptmap_features_are_centred_by_role_and_of_length_one(n_query: int) -> None:
    """Up to a rotation, which `isometric` is: inner products are those of plain code."""
    batch = with_fewer_queries(made(width=60), n_query)
    support, query = (part.abs().sqrt() * part.sign() for part in batch.concatenated())
    support, query = unit_rows(support), unit_rows(query)
    middle = support.mean(1, keepdim=True)
    support = unit_rows(support - middle)
    query = unit_rows(query - (query.mean(1, keepdim=True) if n_query > 1 else middle))
    s, q = PTMAP(power="signed").features(batch, batch.one_hot())
    assert s.shape[2] == batch.n_support + n_query
    assert torch.allclose(s @ q.mT, support @ query.mT)
    assert torch.allclose(s @ s.mT, support @ support.mT)


def test_ptmap_comes_to_rest_with_balanced_classes() -> None:
    batch = made()
    method = PTMAP(n_iter=400, power="signed")
    log_plan = method.scores(batch, State())
    plan = log_plan.exp()
    assert torch.allclose(plan.sum(2), ONE)
    assert torch.allclose(plan.sum(1), 8 * ONE, atol=1e-4)
    support, query = method.features(batch, batch.one_hot())
    everyone = torch.cat((batch.one_hot(), plan), dim=1)
    centres = class_means(torch.cat((support, query), dim=1), everyone)
    # A plan of entropic transport is its kernel times a factor of the row and one of the column.
    ratio = log_plan + 10 * squared_distances(query, centres)
    apart = ratio - ratio[..., :1]
    assert torch.allclose(apart, apart[:, :1].expand_as(apart), atol=1e-4)


def test_ptmap_moves_centres_by_its_step() -> None:
    """Two transports in plain numpy, by Sinkhorn sweeps until nothing moves."""
    batch = made(n_tasks=1)
    method = PTMAP(n_iter=1, step=0.35, regularisation=4.0, power="none")
    support, query = (part[0].numpy() for part in method.features(batch, batch.one_hot()))
    labels = batch.support_labels[0].numpy()

    def plan(centres: Array) -> Array:
        far = ((query[:, None] - centres[None]) ** 2).sum(-1)
        p = np.exp(-4 * far)
        for _ in range(5000):
            p = p / p.sum(0) * 8
            p = p / p.sum(1, keepdims=True)
        return p

    centres = np.stack([support[labels == k].mean(0) for k in range(3)])
    first = plan(centres)
    weights = np.concatenate([np.eye(3)[labels], first])
    target = weights.T @ np.concatenate([support, query]) / weights.sum(0)[:, None]
    wanted = plan(centres + 0.35 * (target - centres))
    assert np.allclose(method.scores(batch, State()).exp()[0].numpy(), wanted, atol=1e-5)
    single = with_fewer_queries(batch, 1)
    support, query = (part[0].numpy() for part in method.features(single, single.one_hot()))
    centres = np.stack([support[labels == k].mean(0) for k in range(3)])
    far = ((query[:, None] - centres[None]) ** 2).sum(-1)
    assert np.allclose(method.scores(single, State())[0].numpy(), -4 * far)


def test_ptmap_anchors_weigh_as_their_weights_say() -> None:
    batch = made(shot=1)
    support, query = batch.concatenated()
    one = PTMAP().scores(batch, State())
    labels, tenth = batch.support_labels.repeat_interleave(10, 1), torch.full((5, 30), 0.1).double()
    ten = PTMAP().scores(
        batch_of(support.repeat_interleave(10, 1), query, labels, 3, tenth), State()
    )
    assert torch.allclose(one, ten, atol=1e-5)


# ---------------------------------------------------------------------------- PADDLE


def description_length(u: Tensor, batch: EpisodeBatch, penalty: float) -> Tensor:
    """PADDLE's objective at the best centres for these assignments, [tasks]."""
    support, query, members = parts(batch)
    centres = class_means(torch.cat((support, query), 1), torch.cat((members, u), 1))
    fit = 0.5 * (members * squared_distances(support, centres)).sum((1, 2))
    fit = fit + 0.5 * (u * squared_distances(query, centres)).sum((1, 2))
    shares = torch.xlogy(u.mean(1), u.mean(1)).sum(1)
    return fit - penalty * query.shape[1] * shares + torch.xlogy(u, u).sum((1, 2))


@pytest.mark.parametrize("penalty", [0.3, 1.0])
def test_paddle_objective_goes_down(penalty: float) -> None:
    batch = with_fewer_queries(made(queries=5), 11)  # unbalanced: 5, 5 and 1
    values = []
    for n_iter in range(1, 12):
        method = Paddle(rescale="none", penalty=penalty, n_iter=n_iter)
        u = method.scores(batch, State()).exp()
        assert torch.allclose(u.sum(-1), ONE)
        values.append(description_length(u, batch, penalty))
    steps = torch.stack(values).diff(dim=0)
    assert bool((steps <= 1e-9).all())
    assert bool((steps[0] < 0).any())


def test_paddle_comes_to_rest_where_its_equations_hold() -> None:
    batch = made()
    support, query, members = parts(batch)
    u = Paddle(rescale="none", penalty=0.7).scores(batch, State()).exp()
    centres = class_means(torch.cat((support, query), 1), torch.cat((members, u), 1))
    fit = -0.5 * squared_distances(query, centres) + 0.7 * u.mean(1).clamp(min=1e-6).log()[:, None]
    assert torch.allclose(fit.softmax(-1), u, atol=1e-7)
    first = Paddle(rescale="none", n_iter=1).scores(batch, State()).exp()
    start = -0.5 * squared_distances(query, class_means(support, members))
    assert torch.allclose(first, start.softmax(-1))
    single = with_fewer_queries(batch, 1)
    assert torch.allclose(Paddle(rescale="none").scores(single, State()), start[:, :1])


def test_paddle_stops_by_task() -> None:
    batch = made()
    many = Paddle().scores(batch, State())
    for task in range(5):
        assert torch.allclose(
            Paddle().scores(batch.tasks([task]), State()), many[[task]], atol=1e-9
        )


def test_paddle_divides_by_the_range_over_the_queries() -> None:
    """But not by a range of rounding, which is all that filled gaps have."""
    batch = made(width=4)
    support, query = batch.concatenated()
    query = torch.cat((query, torch.full_like(query[..., :1], 0.1)), -1)
    query[:, ::2, -1] += 1e-17 + 1e-16
    support = torch.cat((support, torch.full_like(support[..., :1], 0.3)), -1)
    spread = query.amax(1, keepdim=True) - query.amin(1, keepdim=True)
    spread[..., -1] = 1.0
    for count, divisor in ((24, spread), (1, 1.0)):  # one query has no range
        wide = with_fewer_queries(batch_of(support, query, batch.support_labels, 3), count)
        factor = np.sqrt(512 / 5) / divisor
        scaled = batch_of(support * factor, wide.query[0] * factor, batch.support_labels, 3)
        found = Paddle(rescale="minmax").scores(wide, State())
        assert torch.allclose(found, Paddle(rescale="none").scores(scaled, State()), atol=1e-7)


# ---------------------------------------------------------------------------- BAVARDAGE


def bound(samples: Tensor, members: Tensor, r: Tensor) -> Tensor:
    """Minus the evidence lower bound of BAVARDAGE's mixture without its constants, [tasks].

    With the means and shares at their best for r: sum r log r + precision / 2 (sum |x|^2 -
    sum_k b_k |m_k|^2) + d / 2 sum_k log b_k - log B(alpha_0 + counts of the queries).
    """
    precision, strength, concentration = 4.0, 10.0, 2.0
    everyone = torch.cat((members, r), dim=1)
    counts = strength + everyone.sum(1)
    means = everyone.mT @ samples / counts[..., None]
    size = samples.square().sum((1, 2)) - (counts[..., None] * means**2).sum((1, 2))
    alpha = concentration + r.sum(1)
    shares = torch.lgamma(alpha).sum(1) - torch.lgamma(alpha.sum(1))
    width = 0.5 * samples.shape[2] * counts.log().sum(1)
    return torch.xlogy(r, r).sum((1, 2)) + 0.5 * precision * size + width - shares


def test_bavardage_objective_goes_down() -> None:
    support, query, members = parts(made(width=4))
    samples = 0.3 * torch.cat((support, query), dim=1)
    r = (-0.1 * squared_distances(query, class_means(support, members))).softmax(-1)
    values = [bound(samples, members, r)]
    method = Bavardage(strength=10.0, concentration=2.0, subspace=False)
    for _ in range(15):
        r = method.round(samples, members, r, 4.0).exp()
        values.append(bound(samples, members, r))
    steps = torch.stack(values).diff(dim=0)
    assert bool((steps <= 1e-9).all())
    assert bool((steps[0] < 0).all())


def test_bavardage_in_its_subspace() -> None:
    """The same as in all dimensions, but for what is at right angles to differences of means."""
    support, query, members = parts(made())
    samples = torch.cat((support, query), dim=1)
    r = (-squared_distances(query, class_means(support, members))).softmax(-1)
    method = Bavardage(concentration=0.0)
    one = method.round(samples, members, r, 1.0)
    order = [2, 0, 1]
    two = method.round(samples, members[..., order], r[..., order], 1.0)
    assert torch.allclose(two, one[..., order], atol=1e-9)
    everyone = torch.cat((members, r), dim=1)
    counts = 10 + everyone.sum(1)
    means = everyone.mT @ samples / counts[..., None]
    # Of distances to means, what is at right angles is the same for all of them; d is 2.
    wanted = -0.5 * squared_distances(query, means) - 1 / counts[:, None]
    assert torch.allclose(one, wanted.log_softmax(-1), atol=1e-9)


def test_bavardage_learns_the_spread_inside_base_classes() -> None:
    """Directions in which classes vary less are stretched, up to a limit."""
    rng = np.random.default_rng(0)
    codes = np.repeat(np.arange(10), 40)
    centres = rng.normal(size=(10, 3))[codes]
    rows = 100 + centres + rng.normal(size=(400, 3)) * [2.0, 1.0, 0.01]
    base = MultiViewData({"a": rows[:, :2], "b": rows[:, 2:]}, labels=codes)
    state = Bavardage(largest_scale=3.0).learn(base, TaskSpec(way=2), 0)
    assert isinstance(state, WithinClass)
    unit = unit_rows(torch.from_numpy(rows - rows.mean(0)))
    inside = unit - class_means(unit[None], torch.eye(10).double()[codes][None])[0][codes]
    values, axes = torch.linalg.eigh(inside.mT @ inside / 400)
    scale = (3 * values).rsqrt().clamp(max=3.0)
    wanted = axes @ torch.diag(scale) @ axes.mT
    assert torch.allclose(state.mean, torch.from_numpy(rows.mean(0)))
    assert torch.allclose(state.whiten(torch.eye(3).double()), wanted, atol=1e-8)
    assert state.largest == 3.0
    assert len(state.scales) == 2  # the third direction takes the largest factor


def test_bavardage_takes_missing_views_as_the_mean_of_the_class() -> None:
    rng = np.random.default_rng(1)
    codes = np.repeat([0, 1, 2], 5)
    views = {"a": rng.normal(size=(15, 2)), "b": rng.normal(size=(15, 3))}
    mask = np.ones((15, 2), dtype=bool)
    mask[[0, 7, 8], 0] = mask[10:, 1] = False  # class 2 never shows the view b
    data = MultiViewData(views, labels=codes, mask=mask)
    filled = {name: block.copy() for name, block in views.items()}
    filled["a"][0] = views["a"][1:5].mean(0)
    filled["a"][[7, 8]] = views["a"][[5, 6, 9]].mean(0)
    filled["b"][10:] = views["b"][:10].mean(0)
    found, wanted = (
        Bavardage().learn(one, TaskSpec(way=2), 0) for one in (data, MultiViewData(filled, codes))
    )
    assert torch.allclose(found.mean, wanted.mean)
    eye = torch.eye(5).double()
    assert torch.allclose(found.whiten(eye), wanted.whiten(eye))


def test_bavardage_starts_from_soft_k_means() -> None:
    """With whitening that changes nothing, and one round, in plain numpy."""
    batch = made(n_tasks=1, width=5)
    width = 5
    state = WithinClass(
        torch.zeros(width).double(), torch.zeros(width, 0).double(), torch.zeros(0).double(), 1.0
    )
    method = Bavardage(n_iter_start=2, n_iter=1, temperature=3.0, subspace=False, precision=2.0)
    support, query, members = (part[0].numpy() for part in parts(batch, unit=True))
    weights = members
    for _ in range(2):
        samples = support if len(weights) == len(support) else np.concatenate([support, query])
        centres = weights.T @ samples / weights.sum(0)[:, None]
        r = np.exp(-3 * ((query[:, None] - centres[None]) ** 2).sum(-1))
        r /= r.sum(1, keepdims=True)
        weights = np.concatenate([members, r])
    samples = np.concatenate([support, query])[None]
    wanted = method.round(*map(torch.from_numpy, (samples, members[None], r[None])), 2.0)
    assert torch.allclose(method.scores(batch, state), wanted)
    usual = Bavardage(n_iter_start=2, n_iter=1, temperature=3.0, subspace=False)
    wanted = usual.round(*map(torch.from_numpy, (samples, members[None], r[None])), width)
    assert torch.allclose(usual.scores(batch, state), wanted)


# ---------------------------------------------------------------------------- combinations


def base_and_novel() -> tuple[MultiViewData, MultiViewData]:
    rng = np.random.default_rng(0)
    codes = np.repeat(np.arange(9), 12)
    centres = 2 * rng.normal(size=(9, 4))
    views = {
        name: (centres @ rng.normal(size=(4, width)))[codes] + rng.normal(size=(108, width))
        for name, width in (("a", 6), ("b", 3))
    }
    mask = np.ones((108, 2), dtype=bool)
    mask[::5, 0] = mask[1::5, 1] = False
    data = MultiViewData(views, labels=codes, mask=mask)
    return data[codes < 6], data[codes >= 6]


def latent_of(method: Combined) -> tuple[EpisodeBatch, EpisodeBatch, FittedBase]:
    """Five tasks as the combination sees them and in its space, and what it learnt."""
    base, novel = base_and_novel()
    task = TaskSpec(way=3, shot=2, queries=4, eta=0.3)
    fitted = learn_base(method, base, task)
    episodes = EpisodeSampler(novel, task).draw(0, 5)
    (batch,) = method.batches(method.tensors(novel, fitted), episodes)
    return batch, method.embed(batch, fitted.state), fitted


def test_a_combination_is_the_head_in_the_space_of_the_source() -> None:
    source, head = UGDA(n_anchors=7), PTMAP(power="none")
    method = Combined(source, head=head, scaling="scale")
    batch, latent, fitted = latent_of(method)
    anchors = source.embed(batch, fitted.state.source)
    assert torch.equal(anchors.support[0], latent.support[0])
    assert torch.equal(anchors.query[0], latent.query[0])
    assert anchors.n_support == 7 * 6
    wanted = head.scores(anchors, State())
    assert torch.equal(method.score_batch(batch, fitted), wanted)
    single = learn_base(source, fitted.rows, fitted.task)
    own = source.embed(batch, single.state)
    assert fitted.scaling.rule != single.scaling.rule  # the scaling is the combination's
    assert own.support[0].shape == anchors.support[0].shape


@pytest.mark.parametrize("weight", [None, 1.0, 0.25])
def test_anchors_of_a_combination_weigh_what_is_said(weight: float | None) -> None:
    _, latent, _ = latent_of(Combined(UGDA(n_anchors=5), anchor_weight=weight))
    if weight is None:
        assert latent.support_weights is None
    else:
        assert torch.allclose(latent.support_weights, torch.full((5, 30), weight / 5))
    assert latent.support_labels.flatten().bincount().tolist() == [50, 50, 50]


def test_rectified_anchors_are_moved_by_class() -> None:
    before, after = (
        latent_of(Combined(UGDA(n_anchors=5), rectified=flag))[1] for flag in (False, True)
    )
    shift = after.support[0] - before.support[0]
    for task in range(5):
        for code in range(3):
            own = shift[task][before.support_labels[task] == code]
            assert torch.allclose(own, own[:1].expand_as(own), atol=1e-5)
            assert float(own.abs().max()) > 1e-4


@pytest.mark.parametrize("parts", [(UGDA(n_anchors=5), RFS()), (UGDA(n_anchors=5), Paddle())])
def test_a_combination_learns_from_a_base_set_in_parts(parts: tuple[Method, Method]) -> None:
    base, _ = base_and_novel()
    method, task = Combined(parts[0], head=parts[1]), TaskSpec(way=3)
    sums = method.statistics(base).update(base)
    found = method.learn_from(sums, task, 0, base)
    whole = method.learn(base, task, 0)
    for one, two in zip(tensors_in(found), tensors_in(whole), strict=True):
        assert torch.allclose(one, two, equal_nan=True)
    with pytest.raises(FewviewError, match="cannot learn from a base set in parts"):
        Combined(head=Bavardage()).statistics(base)
    with pytest.raises(FewviewError, match="cannot learn from a base set in parts"):
        Combined(head=UGDA()).statistics(base)


def test_what_a_combination_is_follows_from_its_parts() -> None:
    for head, looks in ((PTMAP(), True), (RFS(), False)):
        tags = Combined(head=head).tags
        assert tags.transductive == looks
        assert tags.needs_base == UGDA().tags.needs_base
        assert tags.links_views
        assert tags.handles_missing
        assert tags.random == UGDA().tags.random
    assert Combined(head=Bavardage()).tags.needs_base
    assert create("ptmap+ugda:source__n_anchors=7").source.n_anchors == 7
    assert create("rfs+ugda").anchor_weight is None
    with pytest.raises(FewviewError, match="Proto does not fill missing views"):
        create("ptmap+ugda", source=Proto())
    with pytest.raises(FewviewError, match="made of methods, not int"):
        Combined(head=3).check()
    with pytest.raises(FewviewError, match="about UGDA's anchors; PartialNN has none"):
        Combined(PartialNN(), rectified=True).check()
    with pytest.raises(FewviewError, match="step is 0; it must be above 0"):
        Combined(head=PTMAP(step=0)).check()
