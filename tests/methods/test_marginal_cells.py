"""Empty cells in Marginal are integrated out exactly: against scipy's Gaussians of features."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.linalg import block_diag
from scipy.stats import multivariate_normal
from sklearn.exceptions import NotFittedError

from fewview import MultiViewData, TaskSpec
from fewview.episodes.batch import EpisodeBatch
from fewview.methods.estimator.fitted_base import learn_base
from fewview.methods.marginal import Marginal, _empty_cells
from fewview.samples._scaling import fit_scaling

NAN = float("nan")
WIDTHS = {"a": 7, "b": 5, "c": 9}
EXACT: dict[str, Any] = {
    "transductive": False, "dtype": "float64", "rank": None,
    "calibration": 1.0,
}  # fmt: skip


def world(n_classes: int, per_class: int, seed: int) -> MultiViewData:
    """Views that share what is hidden, each with noise of its own."""
    rng = np.random.default_rng(seed)
    mixing = np.random.default_rng(99)
    hidden = np.repeat(2.0 * rng.normal(size=(n_classes, 4)), per_class, axis=0)
    hidden = hidden + 0.7 * rng.normal(size=hidden.shape)
    views = {
        view: hidden @ mixing.normal(size=(4, width))
        + 3.0
        + 0.6 * rng.normal(size=(len(hidden), width))
        for view, width in WIDTHS.items()
    }
    return MultiViewData(views, 100 * seed + np.repeat(np.arange(n_classes), per_class))


def feature_space(state: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean, covariance within and between classes of all features, as the model is stated."""
    projection, model = state.projection, state.model
    loadings, rests = [], []
    for axes, spare in zip(projection.axes, projection.spare, strict=True):
        axes = axes.numpy()
        directions = axes / np.linalg.norm(axes[:, 0])
        loadings.append(np.linalg.pinv(axes).T)
        rests.append(float(spare) * (np.eye(len(axes)) - directions @ directions.T))
    loading = block_diag(*loadings)
    mean = np.concatenate([c.numpy() for c in projection.centre]) + loading @ model.mean.numpy()
    within = loading @ model.within.numpy() @ loading.T + block_diag(*rests)
    return mean, within, loading @ model.between.numpy() @ loading.T


def log_density(parts: tuple[np.ndarray, ...], rows: np.ndarray) -> float:
    """Log-density of the cells that are there of rows of one class, [n, features]."""
    mean, within, between = parts
    n = len(rows)
    covariance = np.kron(np.ones((n, n)), between) + np.kron(np.eye(n), within)
    values = (rows - mean).reshape(-1)
    seen = ~np.isnan(values)
    covariance = covariance[np.ix_(seen, seen)]
    # Complete rows have directions that the model says nothing of where nothing is left over.
    return float(multivariate_normal(cov=covariance, allow_singular=True).logpdf(values[seen]))


def one_task(
    method: Marginal, prepared: Any, support: MultiViewData, query: MultiViewData
) -> EpisodeBatch:
    known, asked = method.tensors(support, prepared), method.tensors(query, prepared)
    return EpisodeBatch(
        support=tuple(view[None] for view in known.views),
        query=tuple(view[None] for view in asked.views),
        support_mask=known.mask[None],
        query_mask=asked.mask[None],
        support_labels=torch.from_numpy(support.codes)[None],
        query_labels=None,
        seeds=torch.zeros(1, dtype=torch.int64),
        way=len(support.classes),
        view_names=known.view_names,
        has_nan=True,
    )


def rows_of(views: tuple[torch.Tensor, ...], mask: torch.Tensor) -> np.ndarray:
    """All features side by side, NaN where nothing is there."""
    parts = [
        np.where(mask[0, :, v, None].numpy(), view[0].numpy(), NAN) for v, view in enumerate(views)
    ]
    return np.concatenate(parts, axis=1)


@pytest.fixture(params=["by views", "together"])
def grouping(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows by the views that they have, or all together, as where there are many such patterns."""
    if request.param == "together":
        monkeypatch.setattr(_empty_cells, "MANY", 0)


@pytest.mark.usefixtures("grouping")
@pytest.mark.parametrize("components", [3, 128])
@pytest.mark.parametrize("scaling", ["standard", "natural"])
def test_a_query_with_k_empty_cells_is_the_exact_marginal(components: int, scaling: str) -> None:
    method = Marginal(**EXACT, components=components, scaling=scaling)
    prepared = learn_base(method, world(12, 20, 0), TaskSpec(way=3))
    # What is left over of whole rows is evidence of its own (test_marginal_queries.py).
    state = replace(prepared.state, remainder=None)
    prepared = replace(prepared, state=state)
    novel, rng = world(3, 12, 1), np.random.default_rng(2)
    support = novel[np.arange(36) % 12 < 2]
    # All numbers of empty cells, from one to all but one, in all views or in one of them.
    query = novel[np.arange(36) % 12 >= 2][:30]
    total = sum(WIDTHS.values())
    cells = np.concatenate(list(query.views.values()), axis=1)
    for row in range(30):
        cells[row, rng.permutation(total)[:row] if row < total else rng.permutation(7)[:3]] = NAN
    cells[25:, 7:12] = NAN  # and a whole view beside
    query = MultiViewData(dict(zip(WIDTHS, np.split(cells, [7, 12], axis=1), strict=True)))
    few = np.concatenate(list(support.views.values()), axis=1)
    few[[0, 3], [1, 9]] = NAN
    few[4, 7:11] = NAN
    support = MultiViewData(
        dict(zip(WIDTHS, np.split(few, [7, 12], axis=1), strict=True)), support.labels
    )
    batch = one_task(method, prepared, support, query)
    found = method.score_batch(batch, prepared)[0].numpy()
    parts = feature_space(state)
    known = rows_of(batch.support, batch.support_mask)
    asked = rows_of(batch.query, batch.query_mask)
    assert {int(np.isnan(row).sum()) for row in asked} >= set(range(total - 1))
    for row, values in enumerate(asked):
        wanted = []
        for label in range(3):
            own = known[support.codes == label]
            joint = log_density(parts, np.concatenate([own, values[None]]))
            wanted.append(joint - log_density(parts, own) - log_density(parts, values[None]))
        got = found[row] - found[row].mean()
        assert got == pytest.approx(np.array(wanted) - np.mean(wanted), abs=2e-6), row


def test_rows_are_of_a_kind_where_they_lack_the_same() -> None:
    """In the order of their first rows; cells of views that are not there do not count."""
    rng = np.random.default_rng(0)
    views = tuple(
        torch.from_numpy(np.where(rng.random((400, width)) < 0.3, NAN, 1.0)) for width in (2, 3)
    )
    mask = torch.from_numpy(rng.random((400, 2)) < 0.7)
    firsts, kind = _empty_cells.kinds_of_rows(views, mask)
    seen: dict[bytes, int] = {}
    for row in range(400):
        lacks = [(view[row].isnan() & mask[row, v]).numpy() for v, view in enumerate(views)]
        name = np.concatenate([mask[row].numpy(), *lacks]).tobytes()
        assert seen.setdefault(name, len(seen)) == kind[row]
        assert firsts[kind[row]] <= row
    assert len(firsts) == len(seen)
    assert firsts.tolist() == sorted(firsts.tolist())


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_few_empty_cells_are_a_correction(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of rows that lack little no matrix is made, and queries may come in pieces."""
    clf = Marginal(dtype=dtype).fit_base(world(16, 20, 0))
    data, rng = world(4, 30, 1), np.random.default_rng(3)
    views = {
        view: np.where(rng.random(block.shape) < 0.08, NAN, block)
        for view, block in data.views.items()
    }
    views["b"][::7] = NAN
    gaps = MultiViewData(views, data.labels)
    clf.fit(gaps[::10])
    found = clf.predict_proba(gaps, inductive=True), clf.p_values(gaps)
    clf.max_memory = 2.0**-16  # a few rows at a time
    pieces = clf.predict_proba(gaps, inductive=True)
    clf.max_memory = None
    monkeypatch.setattr(_empty_cells, "FEW", 10_000)
    tolerance = 1e-9 if dtype == "float64" else 2e-5
    np.testing.assert_allclose(pieces, found[0], atol=tolerance)
    for one, other in zip(
        (clf.predict_proba(gaps, inductive=True), clf.p_values(gaps)), found, strict=True
    ):
        np.testing.assert_allclose(one, other, atol=tolerance)


def test_rows_without_empty_cells_have_the_same_digits_beside_others() -> None:
    method = Marginal(**EXACT)
    prepared = learn_base(method, world(12, 20, 0), TaskSpec(way=3))
    novel = world(3, 8, 1)
    support, query = novel[::4], novel[1::4]
    batch = one_task(method, prepared, support, query)
    broken = batch.query[0].clone()
    broken[0, 0, 2] = NAN
    other = replace(batch, query=(broken, *batch.query[1:]))
    plain, changed = method.score_batch(batch, prepared)[0], method.score_batch(other, prepared)[0]
    np.testing.assert_allclose(changed[1:], plain[1:], rtol=0, atol=1e-9)
    assert not torch.allclose(changed[0], plain[0])


@pytest.mark.parametrize("structure", ["full", "imputed", "diagonal"])
def test_queries_together_with_empty_cells(structure: str) -> None:
    """Rounds, directions outside the components and ablations all take empty cells."""
    base, novel = world(12, 20, 0), world(3, 20, 1)
    rng = np.random.default_rng(0)
    views = {view: block.copy() for view, block in novel.views.items()}
    for block in views.values():
        block[rng.random(block.shape) < 0.2] = NAN
        block[np.isnan(block).all(axis=1), 0] = 3.0
    gaps = MultiViewData(views, novel.labels)
    clf = Marginal(structure=structure, components=2).fit_base(base).fit(gaps[::10])
    rest = np.arange(60) % 10 > 0
    assert clf.score(gaps[rest]) > max(0.7, clf.score(novel[rest]) - 0.15)
    assert np.isfinite(clf.explain(gaps[rest]).contributions).all()
    assert clf.predict(gaps[rest], reject=0.05).shape == (54,)


def test_exact_beats_means_where_cells_are_empty() -> None:
    """Half of the cells empty: knowing so is better than taking means for what was measured."""
    right: dict[str, list[float]] = {"exact": [], "means": []}
    method = Marginal().fit_base(world(12, 20, 0))
    means = {view: block.mean(axis=0) for view, block in world(12, 20, 0).views.items()}
    for seed in range(1, 9):
        novel, rng = world(4, 12, seed), np.random.default_rng(seed)
        views = {view: block.copy() for view, block in novel.views.items()}
        for block in views.values():
            block[rng.random(block.shape) < 0.6] = NAN
            block[np.isnan(block).all(axis=1), 0] = 3.0
        gaps = MultiViewData(views, novel.labels)
        filled = MultiViewData(
            {v: np.where(np.isnan(b), means[v], b) for v, b in views.items()}, novel.labels
        )
        support = np.arange(48) % 12 == 0
        for name, data in (("exact", gaps), ("means", filled)):
            clf = method.fit(data[support])
            right[name].append(clf.score(data[~support]))
    assert np.mean(right["exact"]) > np.mean(right["means"]) + 0.3


def holes() -> MultiViewData:
    """Samples with ids that lack cells, a view, or both."""
    data, rng = world(3, 4, 5), np.random.default_rng(1)
    views = {view: block.copy() for view, block in data.views.items()}
    views["b"][:4] = NAN
    views["a"][3:8][rng.random((5, 7)) < 0.5] = NAN
    views["c"][6:][rng.random((6, 9)) < 0.7] = NAN
    return MultiViewData(views, data.labels, ids=[f"s{row}" for row in range(12)])


def test_rows_of_a_pattern_are_filled_in_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clf = Marginal(**EXACT).fit_base(world(12, 20, 0))
    data = world(3, 40, 5)
    views = {view: block.copy() for view, block in data.views.items()}
    views["a"][:90, 2:4] = NAN  # of one pattern
    views["b"][::5, 1] = NAN
    gaps = MultiViewData(views)
    whole = clf.impute(gaps)
    monkeypatch.setattr(_empty_cells, "ROWS", 7)
    for one, other in zip(clf.impute(gaps), whole, strict=True):
        for view, block in other.views.items():
            np.testing.assert_allclose(one.view(view), block, rtol=1e-12, atol=1e-12)


@pytest.mark.usefixtures("grouping")
@pytest.mark.parametrize("components", [3, 128])
def test_imputed_cells_are_the_conditional_gaussian(components: int) -> None:
    """Means and deviations against the conditional of the Gaussian of all features, S + B."""
    clf = Marginal(**EXACT, components=components, scaling="standard").fit_base(world(12, 20, 0))
    data = holes()
    filled, deviations = clf.impute(data)
    assert filled.ids.tolist() == data.ids.tolist()
    assert filled.labels.tolist() == data.labels.tolist()
    mean, within, between = feature_space(clf.base.state)
    scaling = clf.base.scaling
    factor, shift = (
        np.concatenate([getattr(scaling, part)[view] for view in WIDTHS])
        for part in ("factor", "shift")
    )
    mean, covariance = mean / factor + shift, (within + between) / factor / factor[:, None]
    rows, found, unsure = (
        np.concatenate([part.view(view) for view in WIDTHS], axis=1)
        for part in (data, filled, deviations)
    )
    for row, guess, deviation in zip(rows, found, unsure, strict=True):
        gone = np.isnan(row)
        assert np.array_equal(guess[~gone], row[~gone])
        assert not deviation[~gone].any()
        # pinv: where nothing is left over, complete views are Gaussian in fewer directions.
        gain = covariance[np.ix_(gone, ~gone)] @ np.linalg.pinv(
            covariance[np.ix_(~gone, ~gone)], rcond=1e-12, hermitian=True
        )
        rest = covariance[np.ix_(gone, gone)] - gain @ covariance[np.ix_(~gone, gone)]
        np.testing.assert_allclose(guess[gone], mean[gone] + gain @ (row - mean)[~gone], atol=1e-5)
        np.testing.assert_allclose(deviation[gone], np.sqrt(rest.diagonal()), atol=1e-5)


def test_imputed_cells_are_nearer_than_means_and_as_sure_as_they_say() -> None:
    base, data = world(12, 20, 0), world(6, 20, 3)
    clf = Marginal().fit_base(base)  # with roots or unit rows, as the data ask for
    rng = np.random.default_rng(0)
    views = {v: np.where(rng.random(b.shape) < 0.4, NAN, b) for v, b in data.views.items()}
    for block in views.values():
        block[np.isnan(block).all(axis=1), 0] = 3.0
    views["b"][::3] = NAN
    filled, deviations = clf.impute(MultiViewData(views))
    for view, block in data.views.items():
        gone = np.isnan(views[view])
        error = (filled.view(view) - block)[gone]
        usual = (base.view(view).mean(axis=0) - block)[gone]
        assert np.mean(error**2) < 0.5 * np.mean(usual**2)
        within = np.abs(error) < 2 * deviations.view(view)[gone]
        assert 0.85 < within.mean() <= 1
    with pytest.raises(NotFittedError, match="fit_base"):
        Marginal().impute(data)


def test_moments_of_roots_come_back_in_the_units_of_the_table() -> None:
    rng = np.random.default_rng(0)
    block = rng.gamma(2.0, size=(500, 8))
    scaling = fit_scaling(MultiViewData({"a": block}), "root+standard+unit")
    row = block[:1].copy()
    row[0, :3] = NAN
    means, variances = rng.normal(size=(1, 8)) / 3, np.full((1, 8), 0.04)
    mean, variance = scaling.undo("a", means, variances, row)
    draws = means + np.sqrt(variances) * rng.normal(size=(400_000, 8))
    # By hand: the length of the row, then columns, then squares with their signs.
    root = np.sqrt(block)
    standard = (root[0] - root.mean(axis=0)) / root.std(axis=0)
    length = np.sqrt(3 + np.square(standard[3:]).sum())
    values = draws * length * root.std(axis=0) + root.mean(axis=0)
    values = np.copysign(values**2, values)
    np.testing.assert_allclose(mean[0], values.mean(axis=0), rtol=0.02, atol=0.02)
    np.testing.assert_allclose(variance[0], values.var(axis=0), rtol=0.03)


def test_filled_categories_are_probabilities() -> None:
    rng = np.random.default_rng(0)
    codes = np.repeat(np.arange(4), 15)
    words = np.array(["dry", "wet", "mild"])[(codes + (rng.random(60) < 0.2)) % 3].astype(object)
    ill = np.where((codes < 2) ^ (rng.random(60) < 0.1), "yes", "no").astype(object)
    frames = {
        "leaf": pd.DataFrame({"state": words, "ill": ill, "size": codes + rng.normal(size=60)}),
        "stem": pd.DataFrame({"height": codes + 0.3 * rng.normal(size=60)}),
    }
    labels = {row: f"c{code}" for row, code in enumerate(codes)}
    data = MultiViewData.from_frames(frames, labels=labels)
    clf = Marginal().fit_base(data)
    gaps = data[::3].with_mask([[False, True]] * 20)
    filled, deviations = clf.impute(gaps)
    block, unsure = filled.view("leaf"), deviations.view("leaf")
    np.testing.assert_allclose(block[:, :3].sum(1), 1, atol=1e-6)
    assert block[:, :4].min() >= 0
    assert block[:, :4].max() <= 1
    np.testing.assert_allclose(unsure[:, :4] ** 2, block[:, :4] * (1 - block[:, :4]), atol=1e-6)
    # They say something: who is ill is known from the stem, by and large.
    ill_there = data[::3].view("leaf")[:, 3] == 1
    assert block[ill_there, 3].mean() > block[~ill_there, 3].mean() + 0.2


def test_empty_cells_of_some_base_classes_alone_can_be_learnt_from() -> None:
    """Classes that play new ones may have none while those they are asked beside have some."""
    base, novel = world(8, 12, 1), world(3, 12, 2)
    views = {name: block.copy() for name, block in base.views.items()}
    views["a"][:6, 0] = NAN  # of one class of eight
    clf = Marginal().fit_base(MultiViewData(views, base.labels)).fit(novel[::6])
    assert np.isfinite(clf.p_values(novel)).all()
    found = clf.predict(novel, 0.05)
    assert np.mean([str(a) == str(b) for a, b in zip(found, novel.labels, strict=True)]) > 0.5
