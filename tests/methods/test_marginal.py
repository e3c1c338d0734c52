"""Marginal is exact: against direct Gaussian computation, and in what it must not depend on."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from fewview import EpisodeSampler, FewviewError, FewviewWarning, MultiViewData, TaskSpec, create
from fewview.episodes.batch import EpisodeBatch
from fewview.methods.estimator.fitted_base import learn_base
from fewview.methods.estimator.laws import check_method
from fewview.methods.estimator.streaming import BaseStream
from fewview.methods.marginal import Marginal, MarginalImputer, MarginalStatistics
from fewview.methods.marginal._covariances import Moments
from fewview.methods.marginal._inverse import (
    Turned,
    half_width,
    inverse,
    inverse_of,
    packed,
    unpacked,
)
from fewview.methods.marginal._marginal import MarginalState
from fewview.methods.marginal._model import Gaussians, Kept, evidence_of_many, gather_evidence
from fewview.methods.marginal._projection import fit_projection
from fewview.methods.marginal._unlabelled import gaussians_alone
from fewview.numerics.sinkhorn import balanced_softmax

EXACT: dict[str, Any] = {
    "transductive": False, "dtype": "float64", "rank": None,
    "temperature": 1.0,
}  # fmt: skip


NOVEL = ("ape", "bee", "cat", "dog")


def synthetic_data() -> tuple[MultiViewData, MultiViewData]:
    """Six base and four novel classes in three correlated views; the novel ones are far apart."""
    rng = np.random.default_rng(0)
    names = np.repeat(np.array([*(f"base{k}" for k in range(6)), *NOVEL], dtype=object), 20)
    centres = rng.normal(size=(10, 4))
    centres[6:] = 2.0 * np.linalg.qr(rng.normal(size=(4, 4)))[0]
    hidden = centres.repeat(20, axis=0) + 0.5 * rng.normal(size=(len(names), 4))
    views = {}
    for view, width in {"colour": 5, "shape": 8, "sound": 3}.items():
        mixing = rng.normal(size=(4, width))
        views[view] = 3.0 + hidden @ mixing + 0.3 * rng.normal(size=(len(names), width))
    data = MultiViewData(views, names)
    is_novel = np.isin(names.astype(str), NOVEL)
    return data[~is_novel], data[is_novel]


def setting(
    eta: float, shot: int = 1, **parameters: Any
) -> tuple[Marginal, Any, EpisodeBatch, torch.Tensor]:
    base, novel = synthetic_data()
    method = Marginal(**{**EXACT, **parameters})
    task = TaskSpec(way=3, shot=shot, queries=4, eta=eta)
    prepared = learn_base(method, base, task)
    batch = method.tensors(novel, prepared).gather(EpisodeSampler(novel, task).draw(0, 5))
    return method, prepared, batch, method.score_batch(batch, prepared)


def joint_log_density(model: Any, samples: np.ndarray, masks: np.ndarray) -> float:
    """Log-density of observed coordinates of samples of one class, from the joint Gaussian."""
    n, d = samples.shape
    covariance = np.kron(np.ones((n, n)), model.between.numpy())
    covariance += np.kron(np.eye(n), model.within.numpy())
    seen = np.repeat(masks, model.dims, axis=1).reshape(-1)
    values = (samples - model.mean.numpy()).reshape(-1)[seen]
    assert seen.size == n * d
    return float(multivariate_normal(cov=covariance[np.ix_(seen, seen)]).logpdf(values))


@pytest.mark.parametrize(("eta", "shot"), [(0.0, 1), (0.3, 1), (0.5, 3)])
def test_predictive_is_the_likelihood_ratio(eta: float, shot: int) -> None:
    """log p(query, supports of c) - log p(supports of c) - log p(query), by brute force."""
    _, prepared, batch, scores = setting(eta, shot)
    state = prepared.state
    support = state.projection.apply(batch.support, batch.support_mask).numpy()
    query = state.projection.apply(batch.query, batch.query_mask).numpy()
    for t in range(2):
        for q in (0, 5, 10):
            wanted = []
            one, one_mask = query[t, q : q + 1], batch.query_mask[t, q : q + 1].numpy()
            for c in range(3):
                own = (batch.support_labels[t] == c).numpy()
                few, few_mask = support[t, own], batch.support_mask[t, own].numpy()
                both = np.concatenate([few, one]), np.concatenate([few_mask, one_mask])
                wanted.append(
                    joint_log_density(state.model, *both)
                    - joint_log_density(state.model, few, few_mask)
                    - joint_log_density(state.model, one, one_mask)
                )
            found = scores[t, q].numpy()
            # Also the differences between classes, in the original (not z) coordinates.
            assert found - found.mean() == pytest.approx(wanted - np.mean(wanted), abs=1e-7)


def test_score_is_understood_and_the_classifier_keeps_its_score() -> None:
    assert clone(Marginal(scoring="variational")).get_params()["scoring"] == "variational"
    assert create("marginal:scoring=variational").scoring == "variational"
    assert callable(Marginal().score)


def test_variational_is_its_formula() -> None:
    method, prepared, batch, scores = setting(0.3, 2, scoring="variational")
    model = prepared.state.model
    s, b, mu = (part.numpy() for part in (model.within, model.between, model.mean))
    support = prepared.state.projection.apply(batch.support, batch.support_mask).numpy()[0]
    query = prepared.state.projection.apply(batch.query, batch.query_mask).numpy()[0]
    assert method.scoring == "variational"

    def precision(mask: torch.Tensor) -> np.ndarray:
        seen = np.flatnonzero(np.repeat(mask.numpy(), model.dims))
        out = np.zeros_like(s)
        out[np.ix_(seen, seen)] = np.linalg.inv(s[np.ix_(seen, seen)])
        return out

    columns = []
    for c in range(3):
        lam, h = np.linalg.inv(b), np.zeros(len(mu))
        for i in np.flatnonzero((batch.support_labels[0] == c).numpy()):
            k = precision(batch.support_mask[0, i])
            lam, h = lam + k, h + k @ (support[i] - mu)
        spread = np.linalg.inv(lam)
        mean = mu + spread @ h
        values = []
        for q in range(len(query)):
            k = precision(batch.query_mask[0, q])
            e = query[q] - mean
            values.append(-(e @ k @ e + np.trace(k @ spread)) / 2)
        columns.append(values)
    wanted = np.array(columns).T
    wanted -= wanted.mean(1, keepdims=True)
    found = (scores[0] - scores[0].mean(1, keepdim=True)).numpy()
    assert found == pytest.approx(wanted, abs=1e-7)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("count", "width"), [(1, 1), (3, 33), (40, 65), (150, 128)])
def test_inverse(count: int, width: int, dtype: torch.dtype) -> None:
    """Halves, odd widths and several chunks: as numpy's inverse and determinant, and symmetric."""
    root = np.random.default_rng(width).normal(size=(count, width, width))
    root *= np.geomspace(0.01, 3, width)
    matrices = np.eye(width) + root @ root.swapaxes(1, 2)
    inverses, log_sizes = inverse(torch.from_numpy(matrices).to(dtype))
    found = inverses.double().numpy()
    wanted = np.linalg.slogdet(matrices)[1]
    np.testing.assert_allclose(
        log_sizes, wanted, rtol=1e-4 if dtype == torch.float32 else 1e-12, atol=1e-6
    )
    expected = np.linalg.inv(matrices)
    tolerance = 1e-11 if dtype == torch.float64 else 1e-3
    assert np.abs(found - expected).max() < tolerance * np.abs(expected).max()
    assert np.abs(found - found.swapaxes(1, 2)).max() < tolerance * np.abs(expected).max()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("count", "width"), [(1, 1), (3, 33), (40, 65), (50, 128)])
def test_inverse_by_halves(count: int, width: int, dtype: torch.dtype) -> None:
    """As numpy's, with zeros at the ends."""
    rng = np.random.default_rng(width)
    root = rng.normal(size=(count, width, width)) * np.geomspace(0.01, 3, width)
    matrices, half = root @ root.swapaxes(1, 2), half_width(width)
    parts = unpacked(packed(torch.from_numpy(matrices).to(dtype)), half)
    for line in parts.diagonals():
        line.add_(1.0)
    matrices += np.eye(width)
    found, expected = inverse_of(parts), np.linalg.inv(matrices)
    tight = 1e-4 if dtype == torch.float32 else 1e-12
    np.testing.assert_allclose(found.log_size, np.linalg.slogdet(matrices)[1], tight, 1e-6)
    limit = (1e-3 if dtype == torch.float32 else 1e-11) * np.abs(expected).max()
    rows = rng.normal(size=(count, 2, 2 * half))
    rows[..., width:] = 0
    product = found.times(torch.from_numpy(rows).to(dtype)).double().numpy()
    assert np.abs(product[..., :width] - rows[..., :width] @ expected).max() < limit * width
    assert not product[..., width:].any()
    corner, side, end = (part.double().numpy() for part in found.halves())
    inner = min(half, width)
    assert np.abs(corner[:, :inner, :inner] - expected[:, :inner, :inner]).max() < limit
    gap = side[:, :inner, : width - inner] + expected[:, :inner, inner:]
    assert np.abs(gap).max(initial=0.0) < limit
    gap = end[:, : width - inner, : width - inner] - expected[:, inner:, inner:]
    assert np.abs(gap).max(initial=0.0) < limit
    spare = 2 * half - width  # what is at the ends is as unknown as before
    unknown = np.trace(expected, axis1=1, axis2=2) + spare
    np.testing.assert_allclose(found.unknown(), unknown, tight, limit)
    second = found.at(torch.tensor([count - 1, 0]))
    assert torch.equal(second.log_size, found.log_size[[count - 1, 0]])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("own", "others"), [(8, 1), (16, 30)])
def test_inverse_where_most_coordinates_are_independent(
    own: int, others: int, dtype: torch.dtype
) -> None:
    """As numpy's, of precisions that are made of four patterns, two of them with the wide view."""
    rng = np.random.default_rng(own)
    side, lines = rng.normal(size=(own, others)), rng.uniform(0.1, 9, others)
    side[:, -1], lines[-1] = (0, 0) if others > 1 else (side[:, -1], lines[-1])  # tells nothing
    has = torch.tensor([False, True, False, True])
    information = np.zeros((4, own + others, own + others))
    for matrix, wide in zip(information, has.tolist(), strict=True):
        root = rng.normal(size=(own, 4))
        matrix[:own, :own] = root @ root.T
        if wide:
            matrix[:own, :own] += side / np.where(lines > 0, lines, 1) @ side.T
            matrix[:own, own:], matrix[own:, :own] = side, side.T
            matrix[own:, own:] = np.diag(lines)
    form = Turned.of(torch.from_numpy(information).to(dtype), has, own)
    counts = rng.uniform(0, 4, (6, 4))
    counts[0], counts[1, 1::2] = 0, 0
    precisions = np.eye(own + others) + np.einsum("np,pij->nij", counts, information)
    found, expected = form.inverse(torch.from_numpy(counts).to(dtype)), np.linalg.inv(precisions)
    tight = {"rtol": 1e-3, "atol": 1e-4} if dtype == torch.float32 else {"rtol": 1e-10}
    np.testing.assert_allclose(found.log_size, np.linalg.slogdet(precisions)[1], **tight)
    rows = rng.normal(size=(6, 3, own + others))
    product = found.times(torch.from_numpy(rows).to(dtype))
    np.testing.assert_allclose(product, rows @ expected, **tight | {"atol": 1e-3 * tight["rtol"]})
    np.testing.assert_allclose(found.unknown(), np.trace(expected, axis1=1, axis2=2), **tight)
    means = rng.normal(size=(6, own + others))
    moments = expected + means[:, :, None] * means[:, None]
    spread = found.at(torch.tensor([2, 5])).spread(torch.from_numpy(means[[2, 5]]).to(dtype))
    np.testing.assert_allclose(
        spread, np.einsum("pij,nij->np", information, moments[[2, 5]]), **tight
    )


@pytest.mark.parametrize("parameters", [{}, {"transductive": True}, {"rank": 4}])
def test_absent_view_is_dropped_view(parameters: dict[str, Any]) -> None:
    base, novel = synthetic_data()
    task = TaskSpec(way=3, shot=2, queries=4, eta=0.2)
    kept = ["colour", "sound"]
    episodes = EpisodeSampler(novel.select_views(kept), task).draw(0, 4)
    wide_mask = {}
    for what in ("support_mask", "query_mask"):
        narrow = getattr(episodes, what)
        wide_mask[what] = np.stack(
            [narrow[..., 0], np.zeros_like(narrow[..., 0]), narrow[..., 1]], axis=-1
        )
    wide = replace(episodes, view_names=novel.view_names, **wide_mask)
    method = Marginal(**{**EXACT, **parameters})
    few, many = base.select_views(kept), base
    narrow_scores = method.score_episodes(
        novel.select_views(kept), episodes, learn_base(method, few, task)
    )
    wide_scores = method.score_episodes(novel, wide, learn_base(method, many, task))
    assert torch.allclose(narrow_scores, wide_scores, atol=1e-7)
    # Beside a task that has the view, the answer stays the same.
    full = EpisodeSampler(novel, task).draw(0, 4)
    mixed = replace(
        wide,
        **{
            name: np.concatenate([getattr(wide, name), getattr(full, name)])
            for name in (
                "support", "query", "support_labels", "query_labels", "support_mask",
                "query_mask", "seeds", "classes",
            )
        },
    )  # fmt: skip
    both = method.score_episodes(novel, mixed, learn_base(method, many, task))
    assert torch.allclose(both[:4], wide_scores, atol=1e-7)


def test_merged_statistics_equal_the_whole() -> None:
    base, _ = synthetic_data()
    mask = np.ones((len(base), 3), dtype=bool)
    mask[::3, 0] = mask[1::3, 2] = False
    for data in (base, base.with_mask(mask)):
        projection = fit_projection(data, 64)
        whole = MarginalStatistics(projection).update(data).moments()
        parts = [MarginalStatistics(projection).update(data[start::4]) for start in range(4)]
        merged = parts[3].merge(parts[1]).merge(parts[0].merge(parts[2])).moments()
        for name in ("mean", "within", "between", "total"):
            assert torch.allclose(getattr(whole, name), getattr(merged, name), atol=1e-10), name


def test_moments_of_complete_data() -> None:
    base, _ = synthetic_data()
    projection = fit_projection(base, 64)
    rows = projection.apply(
        [torch.from_numpy(block.copy()) for block in base.views.values()],
        torch.ones(len(base), 3, dtype=torch.bool),
    ).numpy()
    moments = MarginalStatistics(projection).update(base).moments()
    means = np.stack([rows[base.codes == c].mean(0) for c in range(6)])
    residual = rows - means[base.codes]
    assert moments.within.numpy() == pytest.approx(residual.T @ residual / (len(rows) - 6))
    assert moments.between.numpy() == pytest.approx(np.cov(means.T))
    assert moments.mean.numpy() == pytest.approx(means.mean(0), abs=1e-12)
    assert moments.total.numpy() == pytest.approx(np.cov(rows.T, bias=True))
    lengths = [rows[:, a:b] for a, b in ((0, 5), (5, 13), (13, 16))]
    assert [np.square(part).sum(1).mean() for part in lengths] == pytest.approx([1.0] * 3)


# ---------------------------------------------------------------------------- balance


def test_shrunk_covariances_by_hand() -> None:
    """Two views of 2 and 1 components: every number worked out from the formulas."""
    moments = Moments(
        mean=torch.zeros(3, dtype=torch.float64),
        within=torch.tensor([[4.0, 1, 2], [1, 2, 0], [2, 0, 8]], dtype=torch.float64),
        between=torch.tensor([[9.0, 0, 3], [0, 1, 0], [3, 0, 2]], dtype=torch.float64),
        total=torch.tensor([[16.0, 0, 4], [0, 4, 0], [4, 0, 9]], dtype=torch.float64),
        dims=(2, 1),
        classes=torch.tensor([1e6, 1e6]),
        rows=torch.tensor([1e6, 1e6]),
    )
    model = moments.shrunk(0.4, 0.5, 1.0)
    # The view's sphere has variance 3: its diagonal becomes 0.4 / 8 of the way to 3.
    expected = [[3.95, 0.6, 1.2], [0.6, 2.05, 0.0], [1.2, 0.0, 8.0]]
    np.testing.assert_allclose(model.within, expected, atol=2e-5)
    # So many classes: their variances 9, 1, 2 are believed. The correlation of samples between the
    # first and the last component is 4 / (4 x 3), of which nine tenths are kept.
    third = 0.5 * 3 + 0.5 * 0.9 / 3 * np.sqrt(9 * 2)
    expected = [[9.0, 0, third], [0, 1, 0], [third, 0, 2]]
    np.testing.assert_allclose(model.between, expected, atol=1e-4)
    # Without detail, and with two classes, from which nothing can be told, the first view shares
    # its 10 as samples do, 16 to 4.
    few = replace(moments, classes=torch.tensor([2.0, 2.0]))
    for found in (moments.apart(0.0), few.apart(1.0)):
        np.testing.assert_allclose(found, [8, 2, 2], rtol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_balance_weight(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    logits = 4 * torch.randn(6, 20, 4, generator=generator, dtype=dtype)
    logits[..., 0] += 3
    free, balanced = (balanced_softmax(logits, w)[0].exp() for w in (0.0, 1.0))
    assert torch.allclose(free, torch.softmax(logits, -1))
    assert torch.allclose(balanced.sum(1), torch.full((6, 4), 5.0, dtype=dtype), atol=1e-3)
    gaps = []
    for weight in (0.0, 0.1, 0.5, 0.9, 0.99, 1.0):
        log_plan, v = balanced_softmax(logits, weight)
        plan = log_plan.exp()
        assert torch.allclose(plan.sum(-1), torch.ones(6, 20, dtype=dtype), atol=1e-5)
        gaps.append(float((plan.sum(1) - 5).abs().sum()))
        if 0 < weight < 1:  # the fixed point of the damped sweep
            again = weight * (v + torch.log(5 / plan.sum(1)))
            assert torch.allclose(v, again, atol=1e-3)
            unseen = balanced_softmax(logits, weight, max_sweeps=12)[1]
            assert torch.allclose(v, unseen, atol=1e-3)
    assert gaps == sorted(gaps, reverse=True)


def test_balance_of_extreme_logits() -> None:
    logits = torch.full((1, 3, 3), -1e6)
    logits[..., 0] = 1e6
    for weight in (0.0, 0.5, 0.95, 1.0):
        assert bool(torch.isfinite(balanced_softmax(logits, weight)[1]).all())


# ---------------------------------------------------------------------------- odd base sets


def fit_and_score(base: MultiViewData, novel: MultiViewData, **parameters: Any) -> float:
    task = TaskSpec(way=3, shot=1, queries=5, eta=min(0.3, 1 - 1 / novel.n_views))
    method = Marginal(**parameters)
    episodes = EpisodeSampler(novel, task).draw(0, 20)
    scores = method.score_episodes(novel, episodes, learn_base(method, base, task))
    assert bool(torch.isfinite(scores).all())
    return float((scores.argmax(-1) == torch.from_numpy(episodes.query_labels)).double().mean())


def test_incomplete_base_set() -> None:
    base, novel = synthetic_data()
    generator = np.random.default_rng(0)
    mask = generator.random((len(base), 3)) > 0.3
    mask[~mask.any(1), 0] = True
    complete, incomplete = fit_and_score(base, novel), fit_and_score(base.with_mask(mask), novel)
    assert incomplete > complete - 0.1
    never_together = np.zeros_like(mask)
    never_together[np.arange(len(base)), np.arange(len(base)) % 3] = True
    assert fit_and_score(base.with_mask(never_together), novel) > 0.5
    # A view that no base sample has says nothing.
    nobody = np.ones_like(mask)
    nobody[:, 1] = False
    assert fit_and_score(base.with_mask(nobody), novel) > 0.4


def test_few_base_classes_and_samples() -> None:
    base, novel = synthetic_data()
    assert fit_and_score(base[base.codes < 2], novel) > 0.45
    first_two = np.concatenate([np.flatnonzero(base.codes == c)[:2] for c in range(6)])
    assert fit_and_score(base[first_two], novel) > 0.45
    first = np.concatenate([np.flatnonzero(base.codes == c)[:1] for c in range(6)])
    fit_and_score(base[first], novel)
    with pytest.warns(FewviewWarning, match="one class"):
        assert fit_and_score(base[base.codes == 0], novel) > 0.45


def test_singular_features() -> None:
    base, novel = synthetic_data()
    rng = np.random.default_rng(1)

    def odd(data: MultiViewData) -> MultiViewData:
        shape = data.view("shape")
        views = {
            "twice": np.concatenate([shape, shape, np.ones((len(data), 3))], axis=1),
            "narrow": data.view("colour")[:, :1],
            "constant": np.ones((len(data), 2)),
            "wide": rng.normal(size=(len(data), 300)) + np.repeat(shape, 38, axis=1)[:, :300],
        }
        return MultiViewData(views, data.labels)

    for scaling in ("standard+unit", "standard", "scale"):
        assert fit_and_score(odd(base), odd(novel), scaling=scaling) > 0.45
        assert fit_and_score(odd(base), odd(novel), scaling=scaling, shrinkage=0.0) > 0.33


def test_a_wide_constant_view() -> None:
    """Wide enough for the principal axes to be found by iteration, and with nothing to find."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(7), 100)
    narrow = rng.normal(size=(700, 3)) + 4 * rng.normal(size=(7, 3))[labels]
    data = MultiViewData({"a": narrow, "b": np.full((700, 700), 0.1)}, labels=labels)
    scores = []
    for part in (data, data.select_views(["a"])):
        base, novel = part[labels < 4], part[labels >= 4]
        method = Marginal(base=base).fit(novel[::50])
        scores.append(method.score(novel, novel.labels))
    assert scores[0] == scores[1] > 0.5


def test_thirty_views() -> None:
    base, novel = synthetic_data()

    def many(data: MultiViewData) -> MultiViewData:
        block = np.concatenate(list(data.views.values()), axis=1)
        views = {f"v{i}": block[:, [i % 16, (i * 5 + 1) % 16]] for i in range(30)}
        return MultiViewData(views, data.labels)

    assert fit_and_score(many(base), many(novel)) > 0.6


@pytest.mark.parametrize("structure", ["no between", "diagonal", "no cross-view"])
def test_ablations(structure: str) -> None:
    assert fit_and_score(*synthetic_data(), structure=structure) > 0.45


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"balance": 2}, "balance is 2"),
        ({"balance": "some"}, "balance is 'some'"),
        ({"scoring": "best"}, "scoring is 'best'"),
        ({"components": 0}, "components is 0"),
        ({"prior_detail": 1.5}, "prior_detail is 1.5"),
        ({"temperature": 0.0}, "temperature is 0"),
    ],
)
def test_bad_parameters(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(FewviewError, match=message):
        Marginal(**parameters).check()


def test_common_checks_of_variants() -> None:
    for parameters in ({"balance": 1.0}, {"transductive": False}, {"scoring": "variational"}):
        check_method(Marginal(**parameters), n_tasks=6)


def test_rows_alone_are_half_within_and_half_between_classes() -> None:
    rows = np.random.default_rng(0).normal(size=(200, 3)) * [3.0, 2.0, 1.0]
    _, model = gaussians_alone(MultiViewData({"a": rows}), 64, 0.0)
    assert torch.allclose(model.within, model.between)
    # As much in all, and of that four fifths the same in all directions.
    _, rounder = gaussians_alone(MultiViewData({"a": rows}), 64)
    sphere = model.within.trace() / 3 * torch.eye(3, dtype=torch.float64)
    expected = 0.2 * model.within + 0.8 * sphere
    assert torch.allclose(rounder.within, expected, rtol=1e-5)
    assert torch.equal(rounder.between, model.between)


def test_views_without_variance_keep_a_place() -> None:
    flat = MultiViewData({"a": [[0.0, 1.0], [2.0, 1.0], [4.0, 1.0]], "b": [[1.0], [1.0], [1.0]]})
    assert fit_projection(flat, 64).dims == (1, 1)


def test_scaling_follows_the_entries_also_in_parts() -> None:
    base, _ = synthetic_data()
    task = TaskSpec(way=2, shot=1, queries=6)
    positive = MultiViewData(
        {k: np.exp(2 * np.tile(v, 2)) for k, v in base.views.items()}, base.labels
    )
    method = Marginal(components=8, shrinkage=0.4, prior=0.65, temperature=0.5)
    stream = BaseStream.start(method, positive).update(positive)
    assert all(stream.scaling.rooted(view) for view in positive.view_names)
    state = stream.finish(method, task).state
    assert isinstance(state, MarginalState)
    assert state.settings == method.resolved(len(positive.classes))


def test_what_tasks_share_does_not_change_their_evidence() -> None:
    """The same numbers, whether gains of patterns are kept, made anew, or find no more room."""
    generator = torch.Generator().manual_seed(3)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    root, other = draw(6, 6), draw(6, 6)
    model = Gaussians(draw(6), root @ root.T + torch.eye(6), other @ other.T, (2, 3, 1))
    keepers = [Kept(), Kept(room=0), Kept(room=120)]
    for n_tasks in (2, 3):
        mask = torch.rand(n_tasks, 7, 3, generator=generator) < 0.6
        samples = draw(n_tasks, 7, 6)
        whole = [(slice(None), lambda samples=samples: samples)]
        divided = [(slice(k, k + 1), lambda row=row: row[None]) for k, row in enumerate(samples)]
        without, _ = gather_evidence(model, whole, mask, 2)
        for kept, parts in zip(keepers, (whole, divided, divided), strict=True):
            with_it, _ = gather_evidence(model, parts, mask, 2, kept=kept)
            for name in ("information", "support", "query"):
                torch.testing.assert_close(getattr(with_it, name), getattr(without, name))
    some, none, few = (len(kept.gains) for kept in keepers)
    assert some > few > none == 0
    assert sum(a.numel() + b.numel() for a, b, _ in keepers[2].gains.values()) <= 120


@pytest.mark.parametrize("widths", [(300, 200), (60, 80, 40), (2, 5, 9, 12, 16)])
@pytest.mark.parametrize("transductive", [True, False])
def test_wide_views_may_have_different_numbers_of_components(
    widths: tuple[int, ...], transductive: bool
) -> None:
    """Fewer base samples than features, and of each view another number is there."""
    rng = np.random.default_rng(len(widths))

    def draw(first: int, classes: int, count: int, missing: float) -> MultiViewData:
        labels = np.repeat(np.arange(first, first + classes), count)
        blocks = {}
        for view, width in enumerate(widths):
            middles = rng.normal(size=(classes, width))
            rows = np.repeat(middles, count, axis=0) + rng.normal(size=(len(labels), width))
            rows[rng.random(len(labels)) < (missing if view else 0)] = np.nan
            blocks[f"v{view}"] = rows
        return MultiViewData(blocks, labels)

    base, novel = draw(0, 6, 6, 0.3), draw(6, 3, 6, 0.2)
    clf = Marginal(transductive=transductive).fit_base(base)
    clf.fit(novel[::6])
    queries = novel[np.arange(len(novel)) % 6 > 0]
    assert (clf.predict(queries) == queries.labels).mean() > 0.6


# ---------------------------------------------------------------------------- reasons


def test_explanations_add_up() -> None:
    base, novel = synthetic_data()
    mask = np.ones((len(novel), 3), dtype=bool)
    mask[::2, 1] = False
    mask[1::5, 0] = mask[1::5, 1] = False
    novel = novel.with_mask(mask)
    support = np.concatenate([np.flatnonzero(novel.codes == c)[:2] for c in range(4)])
    query = np.setdiff1d(np.arange(len(novel)), support)[:20]
    clf = Marginal(base=base, **EXACT).fit(novel[support])
    reasons = clf.explain(novel[query])
    scores = np.log(clf.predict_proba(novel[query]))
    assert reasons.scores == pytest.approx(scores - scores.mean(1, keepdims=True), abs=1e-8)
    assert reasons.contributions.sum(1) == pytest.approx(reasons.scores, abs=1e-8)
    assert np.all(reasons.contributions[~novel.mask[query]] == 0)
    assert (clf.classes_[reasons.decided] == clf.predict(novel[query])).all()
    for place, view in enumerate(novel.view_names):
        kept = [name for name in novel.view_names if name != view]
        rows = [i for i, q in enumerate(query) if np.delete(novel.mask[q], place).any()]
        without = novel[query[rows]].select_views(kept)
        wanted = clf.predict(without.like(novel[:0]))
        assert (clf.classes_[reasons.decided_without[rows, place]] == wanted).all()
        others = np.setdiff1d(np.arange(len(query)), rows)
        assert (reasons.decided_without[others, place] == -1).all()
    assert reasons.uncertainty.shape == (4, 3)
    assert ((reasons.uncertainty > 0) & (reasons.uncertainty <= 1)).all()


# ---------------------------------------------------------------------------- the imputer


def test_imputer_is_the_conditional_gaussian() -> None:
    rng = np.random.default_rng(0)
    joint = rng.normal(size=(5, 5))
    rows = rng.normal(size=(4000, 5)) @ joint + 2.0
    data = MultiViewData({"a": rows[:, :3], "b": rows[:, 3:]})
    imputer = MarginalImputer(shrinkage=0.0).fit(data)
    mask = np.ones((10, 2), dtype=bool)
    mask[:5, 1] = mask[5:, 0] = False
    filled, variances = imputer.conditional(data[:10].with_mask(mask))
    covariance, mean = np.cov(rows.T), rows.mean(0)
    gain = np.linalg.solve(covariance[:3, :3], covariance[:3, 3:])
    assert filled.view("b")[:5] == pytest.approx(
        mean[3:] + (rows[:5, :3] - mean[:3]) @ gain, abs=1e-2
    )
    left = np.diag(covariance[3:, 3:] - covariance[3:, :3] @ gain)
    assert variances["b"][:5] == pytest.approx(np.tile(left, (5, 1)), rel=1e-2, abs=1e-3)
    assert (variances["b"][5:] == 0).all()
    assert filled.view("a")[:5] == pytest.approx(rows[:5, :3])
    assert filled.missing_rate == 0


def test_imputer_is_a_transformer() -> None:
    base, novel = synthetic_data()
    mask = np.ones((len(novel), 3), dtype=bool)
    mask[::2, 1] = mask[1::3, 0] = False
    holes = novel.with_mask(mask)
    filled = clone(MarginalImputer(components=6)).fit(base).transform(holes)
    gone = ~mask[:, 1]
    error = np.square(filled.view("shape")[gone] - novel.view("shape")[gone]).mean()
    assert error < 0.5 * novel.view("shape")[gone].var(axis=0).mean()
    with pytest.raises(NotFittedError):
        MarginalImputer().transform(holes)
    assert MarginalImputer().fit_transform(holes).missing_rate == 0


def test_the_imputer_in_a_pipeline_of_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    a = rng.normal(size=(90, 3)) + np.repeat(np.arange(3), 30)[:, None] * 4
    mask = rng.random((90, 2)) < 0.7
    mask[~mask.any(1)] = True
    data = MultiViewData({"a": a, "b": a[:, :2] * 2}, mask=mask)
    labels = np.repeat(np.arange(3), 30)
    model = make_pipeline(MarginalImputer(), LogisticRegression()).fit(data, labels)
    assert (model.predict(data) == labels).mean() > 0.9
    for wrong in ({"shrinkage": 3.0}, {"components": 0}):
        with pytest.raises(FewviewError, match=next(iter(wrong))):
            MarginalImputer(**wrong).fit(data)


@pytest.mark.parametrize("rate", [0.0, 0.3, 0.7])
def test_the_evidence_of_many_patterns_is_that_of_each_alone(rate: float) -> None:
    """Against inv(S_oo) of every pattern, by numpy; whichever side of a pattern is the smaller."""
    rng = np.random.default_rng(3)
    dims, rank, count = (3, 1, 4, 2, 5, 2, 3, 4), 6, 90
    width = sum(dims)
    rows = rng.normal(size=(60, width))
    within, root = rows.T @ rows / 60, rng.normal(size=(width, rank))
    masks = rng.random((count, len(dims))) >= rate
    masks[0] = False  # somebody has nothing that the others have
    masks[1:20] = masks[20]  # and many have the same
    patterns, pattern = np.unique(masks, axis=0, return_inverse=True)
    present = np.repeat(patterns, dims, axis=1)
    samples = 100 + rng.normal(size=(count, width))  # what is missing may hold anything
    information, evidence = evidence_of_many(
        *map(torch.from_numpy, (within, root, samples, present, pattern.reshape(-1)))
    )
    for index, has in enumerate(present):
        gain = np.linalg.solve(within[np.ix_(has, has)], root[has])
        np.testing.assert_allclose(information[index], root[has].T @ gain, rtol=1e-8, atol=1e-9)
        mine = pattern.reshape(-1) == index
        wanted = samples[mine][:, has] @ gain
        np.testing.assert_allclose(evidence[mine], wanted, rtol=1e-8, atol=1e-7)


def test_many_views_are_scored_as_few_are(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(12), 12)
    means = rng.normal(size=(12, 9, 3))
    views = {f"v{k}": means[labels, k] + rng.normal(size=(len(labels), 3)) for k in range(9)}
    data = MultiViewData(views, labels)
    base, novel = data[labels < 8], data[labels >= 8]
    task = TaskSpec(way=3, shot=1, queries=5, eta=0.4)
    episodes = EpisodeSampler(novel, task).draw(0, 12)
    found = []
    for most in (0, 10**9):
        monkeypatch.setattr("fewview.methods.marginal._model.MANY", most)
        method = Marginal()
        found.append(method.score_episodes(novel, episodes, learn_base(method, base, task)))
    assert torch.allclose(*(torch.softmax(scores, -1) for scores in found), atol=1e-4)


def without_base(shot: int, seed: int) -> tuple[MultiViewData, MultiViewData]:
    """Supports and queries of three classes, each a little higher in eight columns of its own."""
    rng = np.random.default_rng(seed)
    truth = np.repeat([0, 1, 2], shot + 15)
    rows = rng.normal(size=(len(truth), 24))
    rows += 1.5 * (truth[:, None] == np.arange(24) // 8)
    place = np.tile(np.arange(shot + 15), 3)
    data = MultiViewData({"a": rows}, labels=truth.tolist())
    return data[place < shot], data[place >= shot]


@pytest.mark.parametrize("shot", [1, 3])
def test_without_base_classes_queries_tell_how_samples_vary(shot: int) -> None:
    """Any two are 1.5 sqrt(16) = 6 deviations apart: the best rule errs less than once in 100."""
    together, alone = [], []
    for seed in range(6):
        support, query = without_base(shot, seed)
        clf = Marginal().fit(support)
        together.append(clf.score(query))
        alone.append(
            np.mean(
                clf.predict_proba(query.with_labels(None), inductive=True).argmax(1) == query.labels
            )
        )
    assert np.mean(together) > 0.95
    assert np.mean(together) > np.mean(alone) + (0.1 if shot == 1 else 0)


def test_what_queries_tell_depends_on_neither_order_nor_names() -> None:
    support, query = without_base(1, 0)
    proba = Marginal().fit(support).predict_proba(query.with_labels(None))
    order = np.random.default_rng(0).permutation(len(query))
    mixed = Marginal().fit(support).predict_proba(query[order].with_labels(None))
    np.testing.assert_allclose(mixed, proba[order], atol=1e-5)
    renamed = support.with_labels(["cba"[label] for label in support.labels])
    other = Marginal().fit(renamed).predict_proba(query.with_labels(None))
    np.testing.assert_allclose(other[:, ::-1], proba, atol=1e-5)


def test_queries_tell_nothing_where_supports_are_many_or_rows_too_wide() -> None:
    task = TaskSpec(way=3)

    def told(support: MultiViewData, query: MultiViewData, **parameters: Any) -> bool:
        clf = Marginal(**parameters).fit(support)
        return clf.refit_with(clf.fitted_, support, query, task) is not clf.fitted_

    assert told(*without_base(1, 0))
    assert not told(*without_base(4, 0))  # supports are enough
    rng = np.random.default_rng(0)
    noise = MultiViewData({"a": rng.normal(size=(48, 400))}, labels=[0, 1, 2] * 16)
    assert not told(noise[:3], noise[3:])  # as good as a sphere
    assert not told(*without_base(1, 0), transductive=False)
