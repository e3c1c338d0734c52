"""Independent checks of the few-shot methods: by hand, by other libraries, by fixed points."""

import numpy as np
import ot
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from fewview import FewviewError, create
from fewview.methods.bavardage import mixture_step, soft_k_means
from fewview.methods.bd_cspn import rectified_prototypes
from fewview.methods.match import attention_scores
from fewview.methods.paddle import partition
from fewview.methods.ptmap import power_transform, transport
from fewview.methods.rfs import logistic_regression
from fewview.methods.tim import alternate, logits, objective_slope
from fewview.numerics._distances import (
    MovedUnitRows,
    class_means,
    isometric,
    squared_distances,
    unit_rows,
)
from fewview.numerics._sinkhorn import sinkhorn


def tasks(
    n_tasks: int = 5, way: int = 3, shot: int = 2, queries: int = 8, width: int = 12, seed: int = 0
) -> tuple[Tensor, Tensor, Tensor]:
    """Supports, queries and memberships of clustered tasks, float64."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    centres = 1.5 * draw(n_tasks, way, width)
    support = centres.repeat_interleave(shot, 1) + draw(n_tasks, way * shot, width)
    query = centres.repeat_interleave(queries, 1) + draw(n_tasks, way * queries, width)
    members = torch.eye(way, dtype=torch.float64).repeat_interleave(shot, 0)
    return support, query, members.expand(n_tasks, -1, -1).clone()


# ---------------------------------------------------------------------------- by hand


def test_proto_by_hand() -> None:
    means = class_means(torch.tensor([[[0.0, 0.0], [2.0, 0.0], [5.0, 1.0]]]), MEMBERS)
    assert means.tolist() == [[[1.0, 0.0], [5.0, 1.0]]]
    query = torch.tensor([[[1.0, 1.0], [3.0, 0.0]]])
    assert torch.allclose(squared_distances(query, means), torch.tensor([[[1.0, 16], [4, 5]]]))


def test_match_by_hand() -> None:
    support = torch.tensor([[[2.0, 0.0], [0.0, 3.0], [-1.0, 0.0]]])
    query = torch.tensor([[[5.0, 0.0]]])
    found = attention_scores(support, query, MEMBERS, temperature=2.0).exp()
    e = np.exp([2.0, 0.0, -2.0])
    assert np.allclose(found[0, 0].numpy(), [(e[0] + e[1]) / e.sum(), e[2] / e.sum()])


def test_match_weights_supports() -> None:
    support, query, members = tasks()
    members[:, 0] *= 0.25
    scores = attention_scores(support, query, members * 2, 5.0)
    assert torch.allclose(scores, attention_scores(support, query, members, 5.0))
    assert torch.allclose(scores.exp().sum(-1), torch.ones(()).double())


def unit(query: torch.Tensor) -> MovedUnitRows:
    return MovedUnitRows.of([query[..., :1], query[..., 1:]])


def test_moved_unit_rows_are_what_they_say() -> None:
    views = [torch.randn(2, 5, 3).double(), torch.randn(2, 5, 4).double()]
    for view in views:
        view[0, 1] = 0  # an all-zero row
    shift, others = torch.randn(2, 1, 7).double(), unit_rows(torch.randn(2, 4, 7).double())
    weights = torch.rand(2, 5, 4).double()
    rows = unit_rows(torch.cat(views, -1)) + shift
    found = MovedUnitRows.of(views).moved(shift)
    assert torch.allclose(found.products(others), rows @ others.mT)
    assert torch.allclose(found.cosines(others), unit_rows(rows) @ others.mT)
    assert torch.allclose(found.sums(weights), weights.mT @ rows)


def test_bd_cspn_by_hand() -> None:
    support = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])
    query = torch.tensor([[[0.8, 0.6], [0.6, 0.8], [1.0, 0.0]]])
    found = rectified_prototypes(support, unit(query), torch.eye(2)[None], sharpness=10.0)
    w = np.exp([0.0, 10 * (0.8 - 1), 0.0])  # the support, then queries 0 and 2
    wanted = (
        w[0] * np.array([1, 0]) + w[1] * np.array([0.8, 0.6]) + w[2] * np.array([1, 0])
    ) / w.sum()
    assert np.allclose(found[0, 0].numpy(), wanted, atol=1e-6)


def test_bd_cspn_keeps_the_most_confident_and_empty_classes() -> None:
    support = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])
    query = torch.tensor([[[0.8, 0.6], [1.0, 0.1], [1.0, 0.0]]])
    found = rectified_prototypes(support, unit(query), torch.eye(2)[None], 10.0, n_pseudo=1)
    assert torch.allclose(found[0, 0], torch.tensor([1.0, 0.0]), atol=1e-6)
    assert torch.equal(found[0, 1], support[0, 1])


MEMBERS = torch.tensor([[[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]])


# ---------------------------------------------------------------------------- by other libraries


@pytest.mark.parametrize("shot", [1, 5])
@pytest.mark.parametrize("C", [0.1, 1.0, 100.0])
def test_logistic_regression_is_scikit_learns(shot: int, C: float) -> None:
    support, query, members = tasks(shot=shot)
    support, query = unit_rows(support), unit_rows(query)
    weights = torch.linspace(0.5, 2.0, support.shape[1], dtype=torch.float64)
    members = members * weights[:, None]
    W, b = logistic_regression(support, members, C)
    found = torch.softmax(query @ W.transpose(1, 2) + b[:, None], dim=-1)
    labels = members[0].argmax(1).numpy()
    for task in range(len(support)):
        other = LogisticRegression(C=C, max_iter=10000, tol=1e-10)
        other.fit(support[task].numpy(), labels, sample_weight=weights.numpy())
        assert np.allclose(found[task].numpy(), other.predict_proba(query[task].numpy()), atol=1e-5)


def test_rfs_is_scikit_learns_through_the_estimator() -> None:
    rng = np.random.default_rng(0)
    x, q = rng.normal(size=(4, 30)), rng.normal(size=(9, 30))
    found = create("rfs", scaling="none", dtype="float64").fit(x, [0, 1, 2, 2]).predict_proba(q)
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    other = LogisticRegression(max_iter=10000, tol=1e-10).fit(unit, [0, 1, 2, 2])
    wanted = other.predict_proba(q / np.linalg.norm(q, axis=1, keepdims=True))
    assert np.allclose(found, wanted, atol=1e-5)


@pytest.mark.parametrize("strength", [1.0, 10.0])
def test_sinkhorn_is_pots(strength: float) -> None:
    generator = torch.Generator().manual_seed(1)
    cost = 4 * torch.rand(4, 30, 3, generator=generator, dtype=torch.float64)
    columns = torch.tensor([10.0, 12.0, 8.0], dtype=torch.float64).expand(4, 3)
    log_plan, v = sinkhorn(-strength * cost, columns, tol=1e-10)
    for task in range(4):
        wanted = ot.sinkhorn(
            np.ones(30), columns[task].numpy(), cost[task].numpy(), 1 / strength,
            numItermax=100000, stopThr=1e-12,
        )  # fmt: skip
        assert np.allclose(log_plan[task].exp().numpy(), wanted, atol=1e-7)
    # Its own potentials are the end of the search.
    again, _ = sinkhorn(-strength * cost, columns, tol=1e-10, max_sweeps=1, start=v)
    assert torch.allclose(again, log_plan, atol=1e-8)


def test_sinkhorn_where_plain_sweeps_are_slow() -> None:
    # Nearly all rows prefer the first column by far; plain sweeps crawl here.
    cost = torch.tensor([[0.0, 3.9, 4.0]], dtype=torch.float64).repeat(20, 1)[None]
    cost = cost + 0.05 * torch.rand(1, 20, 3, generator=torch.Generator().manual_seed(0))
    columns = torch.full((1, 3), 20 / 3, dtype=torch.float64)
    log_plan, _ = sinkhorn(-10 * cost, columns, tol=1e-9)
    assert torch.allclose(log_plan.exp().sum(1), columns, atol=1e-7)


def test_isometric_keeps_inner_products() -> None:
    support, query, _ = tasks(width=100)
    s, q = isometric(support, query)
    assert s.shape[2] == support.shape[1] + query.shape[1]
    assert torch.allclose(s @ q.transpose(1, 2), support @ query.transpose(1, 2))
    assert isometric(support[..., :4], query[..., :4])[0].shape[2] == 4


# ---------------------------------------------------------------------------- TIM


@pytest.mark.parametrize("alpha", [1.0, 2.0, 7.0])
def test_tim_gradient_is_autograds(alpha: float) -> None:
    support, query, members = (part.clone() for part in tasks())
    support, query = unit_rows(support), unit_rows(query)
    centres = class_means(support, members).requires_grad_()
    p_s = torch.softmax(logits(support, centres, 15.0), dim=-1)
    p = torch.softmax(logits(query, centres, 15.0), dim=-1)

    def entropy(x: Tensor) -> Tensor:
        if alpha == 1:
            return -(x * x.log()).sum(-1)
        return (1 - (x**alpha).sum(-1)) / (alpha - 1)

    cross = -(members * p_s.log()).sum(-1).mean(1)
    loss = 0.1 * cross - 1.0 * entropy(p.mean(1)) + 0.3 * entropy(p).mean(1)
    (wanted,) = torch.autograd.grad(loss.sum(), centres)
    found = objective_slope(
        centres.detach(), support, query, members,
        temperature=15.0, weights=(0.1, 1.0, 0.3), alpha=alpha,
    )  # fmt: skip
    assert torch.allclose(found, wanted, atol=1e-9)


def test_tim_adm_ends_at_a_fixed_point() -> None:
    support, query, members = tasks()
    support, query = unit_rows(support), unit_rows(query)

    def pull(n_iter: int) -> float:
        """How hard the samples pull the centres after some rounds."""
        centres, q = alternate(support, query, members, n_iter=n_iter)
        p_s = torch.softmax(logits(support, centres, 15.0), dim=-1)
        p_q = torch.softmax(logits(query, centres, 15.0), dim=-1)
        g, r = 0.1 / 1.1, support.shape[1] / query.shape[1]
        weights = torch.cat((g * (members - p_s), r * (q - p_q)), dim=1)
        samples = torch.cat((support, query), dim=1)
        force = weights.transpose(1, 2) @ samples - weights.sum(1)[..., None] * centres
        return float(force.abs().max())

    assert pull(3000) < min(1e-4, 0.02 * pull(1))
    assert pull(3000) < pull(300) < pull(30)
    # The soft labels belong to the centres.
    centres, q = alternate(support, query, members, n_iter=3000)
    sharp = torch.softmax(logits(query, centres, 15.0), dim=-1) ** 1.1
    wanted = sharp / sharp.sum(1, keepdim=True) ** 0.5
    assert torch.allclose(q, wanted / wanted.sum(-1, keepdim=True), atol=1e-4)


def test_tim_and_alpha_tim_refuse_what_they_cannot() -> None:
    with pytest.raises(FewviewError, match="alpha"):
        create("alpha-tim:alpha=1")
    with pytest.raises(FewviewError, match="gd"):
        create("alpha-tim:solver=adm")
    assert create("tim-adm").solver == "adm"
    assert create("tim").name == "tim"


# ---------------------------------------------------------------------------- PT-MAP


def test_power_transform_rules() -> None:
    x = torch.tensor([4.0, -9.0, 0.0])
    assert power_transform(x, "none") is x
    assert torch.allclose(power_transform(x, "signed"), torch.tensor([2.0, -3.0, 0.0]))
    assert torch.allclose(power_transform(x, "relu"), torch.tensor([2.0, 1e-3, 1e-3]), atol=1e-5)


def test_ptmap_ends_at_a_fixed_point_with_balanced_classes() -> None:
    support, query, members = tasks()
    support, query = unit_rows(support), unit_rows(query)
    log_plan, centres = transport(support, query, members, n_iter=400)
    plan = log_plan.exp()
    assert torch.allclose(plan.sum(2), torch.ones(()).double())
    assert torch.allclose(plan.sum(1), torch.tensor(8.0).double(), atol=1e-4)
    everyone = torch.cat((members, plan), dim=1)
    means = class_means(torch.cat((support, query), dim=1), everyone)
    assert torch.allclose(means, centres, atol=1e-5)
    # Within a column the plan orders queries by how much they prefer the class.
    cost = -10 * squared_distances(query, centres)
    ratio = log_plan - cost
    assert torch.allclose(ratio - ratio[..., :1], (ratio - ratio[..., :1])[:, :1].expand_as(ratio))


def test_ptmap_anchors_weigh_as_their_weights_say() -> None:
    support, query, members = tasks(shot=1)
    support, query = unit_rows(support), unit_rows(query)
    one = transport(support, query, members)[0]
    light = members.repeat_interleave(10, 1) / 10
    ten = transport(support.repeat_interleave(10, 1), query, light)[0]
    assert torch.allclose(one, ten, atol=1e-5)


# ---------------------------------------------------------------------------- PADDLE, BAVARDAGE


def description_length(
    u: Tensor, centres: Tensor, support: Tensor, query: Tensor, members: Tensor, penalty: float
) -> Tensor:
    """PADDLE's objective, [tasks]; see `partition`."""
    fit = 0.5 * (members * squared_distances(support, centres)).sum((1, 2))
    fit = fit + 0.5 * (u * squared_distances(query, centres)).sum((1, 2))
    shares = torch.xlogy(u.mean(1), u.mean(1)).sum(1)
    return fit - penalty * query.shape[1] * shares + torch.xlogy(u, u).sum((1, 2))


def test_paddle_objective_goes_down() -> None:
    support, query, members = tasks(queries=5)
    query = query[:, :11]  # unbalanced: 5, 5 and 1
    values = []
    for n_iter in range(1, 12):
        log_u, centres, _ = partition(support, query, members, n_iter=n_iter, tol=0.0)
        # `centres` belongs to the next round; both orders of the blocks go down.
        values.append(description_length(log_u.exp(), centres, support, query, members, 1.0))
    steps = torch.stack(values).diff(dim=0)
    assert bool((steps <= 1e-9).all())
    assert bool((steps[0] < 0).any())


def test_paddle_stops_by_task() -> None:
    support, query, members = tasks()
    many = partition(support, query, members)[0]
    one = partition(support[:1], query[:1], members[:1])[0]
    assert torch.allclose(one, many[:1], atol=1e-9)


def bound(samples: Tensor, members: Tensor, r: Tensor) -> Tensor:
    """Minus the evidence lower bound of BAVARDAGE's mixture without its constants, [tasks].

    With the means and shares at their best for r: sum r log r + precision / 2 (sum |x|^2 -
    sum_k b_k |m_k|^2) + d / 2 sum_k log b_k - log B(alpha_0 + counts of the queries).
    """
    precision, strength, concentration = 4.0, 10.0, 2.0
    everyone = torch.cat((members, r), dim=1)
    counts = strength + everyone.sum(1)
    means = everyone.transpose(1, 2) @ samples / counts[..., None]
    fit = (
        0.5
        * precision
        * (samples.square().sum((1, 2)) - (counts[..., None] * means**2).sum((1, 2)))
    )
    alpha = concentration + r.sum(1)
    shares = torch.lgamma(alpha).sum(1) - torch.lgamma(alpha.sum(1))
    return (
        torch.xlogy(r, r).sum((1, 2)) + fit + 0.5 * samples.shape[2] * counts.log().sum(1) - shares
    )


def test_bavardage_objective_goes_down() -> None:
    support, query, members = tasks(width=4)
    samples = 0.3 * torch.cat((support, query), dim=1)
    r = soft_k_means(0.3 * support, 0.3 * query, members, temperature=0.1, n_iter=1)
    values = [bound(samples, members, r)]
    for _ in range(15):
        r = mixture_step(
            samples, members, r, precision=4.0, strength=10.0, concentration=2.0, subspace=False
        ).exp()
        values.append(bound(samples, members, r))
    steps = torch.stack(values).diff(dim=0)
    assert bool((steps <= 1e-9).all())
    assert bool((steps[0] < 0).all())


def test_bavardage_subspace_does_not_depend_on_the_class_order() -> None:
    support, query, members = tasks()
    samples = torch.cat((support, query), dim=1)
    r = soft_k_means(support, query, members, 1.0, 2)
    settings = {"precision": 1.0, "strength": 10.0, "concentration": 0.0}
    one = mixture_step(samples, members, r, **settings)
    order = [2, 0, 1]
    two = mixture_step(samples, members[..., order], r[..., order], **settings)
    assert torch.allclose(two, one[..., order], atol=1e-9)
