"""Scaling against scikit-learn, in odd cases, and that it is learnt from base classes alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MinMaxScaler,
    Normalizer,
    StandardScaler,
)

from fewview.samples import SCALINGS, FewviewError, MultiViewData, fit_scaling
from fewview.samples._scaling import natural_rules


def block(seed: int, n: int = 30, width: int = 4) -> Any:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, width)) * rng.uniform(0.1, 10, width) + rng.normal(size=width) * 5


def scaled(data: Any, rule: str, fit_on: Any = None) -> Any:
    fitted = fit_scaling(MultiViewData({"a": data if fit_on is None else fit_on}), rule)
    return fitted.transform(MultiViewData({"a": data}), np.float64).view("a")


def by_sklearn(rule: str, base: Any, new: Any) -> Any:
    """The same rules in scikit-learn; `scale` and `minmax` see all entries as one feature."""
    if rule == "none":
        return new
    if rule == "by-width":
        narrow = base.shape[1] < 6
        found = by_sklearn("standard" if narrow else "root+standard+unit", base, new)
        return found / base.shape[1] ** 0.5 if narrow else found
    if rule == "natural":
        dense = "root+standard+unit" if base.min() >= 0 else "standard+unit"
        narrow = base.shape[1] < 6
        found = by_sklearn("standard" if narrow else dense, base, new)
        return found / base.shape[1] ** 0.5 if narrow else found
    if rule == "minmax":
        fitted = MinMaxScaler().fit(base.reshape(-1, 1))
        return fitted.transform(new.reshape(-1, 1)).reshape(new.shape)
    if rule == "scale":
        centre = StandardScaler(with_std=False).fit(base.reshape(-1, 1))
        spread = MinMaxScaler().fit(base.reshape(-1, 1)).data_range_
        return centre.transform(new.reshape(-1, 1)).reshape(new.shape) / spread
    root = FunctionTransformer(lambda rows: np.sign(rows) * np.abs(rows) ** 0.5)
    steps = {
        "root+unit": [root, Normalizer()],
        "root+standard+unit": [root, StandardScaler(), Normalizer()],
        "standard": [StandardScaler()],
        "unit": [Normalizer()],
        "standard+unit": [StandardScaler(), Normalizer()],
    }[rule]
    return make_pipeline(*steps).fit(base).transform(new)


@pytest.mark.parametrize("width", [1, 5, 6, 9])
def test_by_width_keeps_what_narrow_views_say(width: int) -> None:
    base, new = np.random.default_rng(width).gamma(2.0, size=(2, 30, width))
    found = scaled(new, "by-width", base)
    wanted = by_sklearn("standard", base, new) / width**0.5
    if width >= 6:
        wanted = by_sklearn("root+standard+unit", base, new)
    np.testing.assert_allclose(found, wanted, atol=1e-12)


@pytest.mark.parametrize("rule", SCALINGS)
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_scaling_equals_scikit_learn(rule: str, seed: int) -> None:
    base, new = block(seed), block(seed + 1, n=7)
    np.testing.assert_allclose(
        scaled(new, rule, base), by_sklearn(rule, base, new), rtol=1e-10, atol=1e-12
    )


@pytest.mark.parametrize("rule", SCALINGS)
def test_missing_rows_are_left_out_of_the_fit_and_stay_missing(rule: str) -> None:
    values = block(3)
    mask = np.ones((30, 2), dtype=bool)
    mask[::4, 0] = False
    data = MultiViewData({"a": values, "b": block(4)}, mask=mask)
    fitted = fit_scaling(data, rule)
    whole = fit_scaling(MultiViewData({"a": values[mask[:, 0]]}), rule)
    np.testing.assert_array_equal(fitted.shift["a"], whole.shift["a"])
    np.testing.assert_array_equal(fitted.factor["a"], whole.factor["a"])
    out = fitted.transform(data)
    assert (out.mask == mask).all()
    assert np.isnan(out.view("a")[::4]).all()
    assert np.isfinite(out.view("a")[mask[:, 0]]).all()


@pytest.mark.parametrize("rule", [rule for rule in SCALINGS if rule != "none"])
@pytest.mark.parametrize("exponent", [-12, -6, 3, 12])
def test_units_do_not_matter(rule: str, exponent: int) -> None:
    values = block(5)
    np.testing.assert_allclose(
        scaled(10.0**exponent * values, rule), scaled(values, rule), rtol=1e-9, atol=1e-12
    )


@pytest.mark.parametrize("rule", SCALINGS)
@pytest.mark.parametrize("scale", [1e-300, 1e-30, 1e30, 1e150])
def test_no_overflow_beyond_what_anyone_measures(rule: str, scale: float) -> None:
    out = fit_scaling(MultiViewData({"a": scale * block(6)}), rule).transform(
        MultiViewData({"a": scale * block(7)})
    )
    assert out.view("a").dtype == np.float32
    assert np.isfinite(out.view("a")).all()


@pytest.mark.parametrize("rule", SCALINGS)
@pytest.mark.parametrize("value", [0.0, 0.1, -3.0, 1e12, 1e-12])
def test_constant_features_and_constant_views_are_safe(rule: str, value: float) -> None:
    values = block(8)
    values[:, 1] = value
    flat = np.full((30, 2), value)
    for base in (values, flat):
        out = scaled(base, rule)
        assert np.isfinite(out).all()
        # A novel sample may differ where the base set is constant.
        assert np.isfinite(scaled(base + 1.0, rule, base)).all()
    if "standard" in rule:
        assert (scaled(values, rule)[:, 1] == 0).all()
        assert (scaled(flat, rule) == 0).all()
    if rule == "scale":
        assert (scaled(flat, rule) == 0).all()


def test_a_constant_feature_is_measured_in_the_typical_deviation_of_its_view() -> None:
    base = np.array([[0.0, 7.0, 0.0], [6.0, 7.0, 8.0]])  # deviations 3, 0, 4
    typical = np.sqrt((3**2 + 4**2) / 2)
    out = scaled(base + np.array([0, 1, 0]), "standard", base)
    np.testing.assert_allclose(out, [[-1, 1 / typical, -1], [1, 1 / typical, 1]])


def test_rounding_does_not_make_a_constant_feature_vary() -> None:
    base = np.column_stack([np.full(9973, 0.1), np.arange(9973.0)])
    assert abs(scaled(base, "standard")[:, 0]).max() < 1e-6


@pytest.mark.parametrize("rule", [rule for rule in SCALINGS if rule.endswith("unit")])
def test_unit_rows_have_unit_length_and_zero_rows_stay_zero(rule: str) -> None:
    base = block(9)
    new = block(10, n=5)
    new[2] = 0.0 if rule == "unit" else base.mean(axis=0)
    out = scaled(new, rule, base)
    lengths = np.linalg.norm(out, axis=1)
    np.testing.assert_allclose(np.delete(lengths, 2), 1)
    assert lengths[2] == 0 or rule != "unit"
    assert np.isfinite(out).all()


@pytest.mark.parametrize("rule", SCALINGS)
def test_a_view_that_the_base_set_lacks_is_neither_shifted_nor_stretched(rule: str) -> None:
    base = MultiViewData({"a": block(1), "b": np.full((30, 2), np.nan)})
    fitted = fit_scaling(base, rule)
    new = MultiViewData({"a": block(2), "b": block(3, width=2)})
    wanted = new.view("b")
    if fitted.rooted("b"):
        wanted = np.sign(wanted) * np.sqrt(np.abs(wanted))
    wanted = Normalizer().transform(wanted) if fitted.unit_rows("b") else wanted
    np.testing.assert_allclose(fitted.transform(new, np.float64).view("b"), wanted)


def test_one_sample_is_enough() -> None:
    for rule in SCALINGS:
        assert np.isfinite(scaled([[3.0, 4.0]], rule)).all()
        assert np.isfinite(scaled([[3.0]], rule)).all()


def test_labels_ids_and_the_original_are_kept() -> None:
    data = MultiViewData({"a": block(1, n=3)}, labels=["x", "y", None], ids=[1, 2, 3], name="n")
    before = data.fingerprint
    out = fit_scaling(data, "standard").transform(data)
    assert out.labels is not None
    assert out.labels.tolist() == ["x", "y", None]
    assert out.ids is not None
    assert out.ids.tolist() == [1, 2, 3]
    assert out.name == "n"
    assert data.fingerprint == before
    with pytest.raises(ValueError, match="read-only"):
        out.view("a")[0, 0] = 1.0


def test_unknown_rule_and_unknown_view() -> None:
    data = MultiViewData({"a": [[1.0]]})
    with pytest.raises(FewviewError, match=r"scaling 'zscore' is not one of scale, minmax"):
        fit_scaling(data, "zscore")
    with pytest.raises(FewviewError, match="view 'b' was not there when the scaling was fitted"):
        fit_scaling(data, "scale").transform(MultiViewData({"b": [[1.0]]}))


@pytest.mark.parametrize("rule", SCALINGS)
def test_scaling_is_learnt_from_base_classes_only(rule: str) -> None:
    import torch

    from fewview import EpisodeSampler, Proto, TaskSpec
    from fewview.methods.estimator.fitted_base import learn_base

    rng = np.random.default_rng(0)
    base = MultiViewData({"a": block(1), "b": block(2)}, labels=np.repeat(["u", "v", "w"], 10))
    novel = MultiViewData({"a": block(3), "b": block(4)}, labels=np.repeat(["x", "y", "z"], 10))
    task = TaskSpec(way=3, shot=1, queries=4)
    episodes = EpisodeSampler(novel, task).draw(0, 1)
    unused = np.setdiff1d(np.arange(30), np.concatenate([episodes.support[0], episodes.query[0]]))
    views = {view: np.array(values) for view, values in novel.views.items()}
    for values in views.values():
        values[unused] = 1e6 * rng.normal(size=(len(unused), values.shape[1]))
    other = MultiViewData(views, labels=novel.labels)
    method = Proto(scaling=rule, padding="zero")
    fitted = learn_base(method, base, task)
    np.testing.assert_array_equal(fitted.scaling.shift["a"], fit_scaling(base, rule).shift["a"])
    scores = [method.score_episodes(data, episodes, fitted) for data in (novel, other)]
    assert torch.equal(*scores)


def test_categories_and_a_few_flags_are_no_words() -> None:
    """All are mostly zeros without negative entries; words have many columns of their own."""
    rng = np.random.default_rng(0)
    names = [f"maker {k}" for k in range(40)]
    table = pd.DataFrame({"maker": rng.permutation(names * 5), "doors": rng.integers(2, 6, 200)})
    flags = rng.random((200, 9)) < 0.3
    data = MultiViewData({"cars": table, "flags": flags.astype(float)})
    assert data.view_dims["cars"] == 41
    assert set(natural_rules(data).values()) == {"root+standard+unit"}
    words = rng.poisson(0.2, size=(200, 40)).astype(float)
    assert natural_rules(MultiViewData({"words": words})) == {"words": "root+unit"}


def test_natural_scaling_of_every_view() -> None:
    rng = np.random.default_rng(0)
    words = rng.poisson(0.2, size=(40, 60)).astype(float)
    histogram, signal = rng.random((40, 7)), rng.normal(size=(40, 8))
    rules = natural_rules(MultiViewData({"words": words, "histogram": histogram}))
    assert rules == {"words": "root+unit", "histogram": "root+standard+unit"}
    mixed = MultiViewData({"words": words, "histogram": histogram, "signal": signal})
    fitted = fit_scaling(mixed, "natural")
    assert [view for view in mixed.view_names if fitted.rooted(view)] == ["words"]
    for view, rule in (("words", "root+unit"), ("histogram", "standard+unit")):
        alone = fit_scaling(mixed.select_views([view]), rule)
        np.testing.assert_array_equal(
            fitted.transform(mixed).view(view),
            alone.transform(mixed.select_views([view])).view(view),
        )


def odd_data() -> MultiViewData:
    """Missing rows, empty cells, an empty column, a constant one, counts, a view nobody has."""
    rng = np.random.default_rng(3)
    dense, words = block(1, 40, 8), rng.poisson(0.2, size=(40, 50)).astype(np.float32)
    dense[rng.random(dense.shape) < 0.1] = np.nan
    dense[:, 2], dense[:, 5] = np.nan, 0.1
    dense[:6] = words[4:9] = np.nan
    nobody = np.full((40, 3), np.nan)
    views = {"dense": dense, "words": words, "narrow": block(2, 40, 3), "nobody": nobody}
    return MultiViewData(views, partial_rows="keep")


@pytest.mark.parametrize("rule", SCALINGS)
@pytest.mark.parametrize("keep_empty", [False, True])
def test_tensors_are_scaled_like_arrays(rule: str, keep_empty: bool) -> None:
    """Where a device is asked for that is not simply the CPU, torch does what numpy does."""
    data = odd_data()[::-1]  # torch takes no negative strides
    expected, found = fit_scaling(data, rule), fit_scaling(data, rule, "cpu:0")
    assert found.rules == expected.rules
    for name in ("shift", "factor", "means"):
        for view, values in getattr(expected, name).items():
            np.testing.assert_allclose(getattr(found, name)[view], values, rtol=1e-12, atol=1e-13)
    one = expected.transform(data, np.float64, keep_empty)
    other = found.transform(data, np.float64, keep_empty, "cpu:0")
    for view, values in one.views.items():
        np.testing.assert_allclose(other.view(view), values, rtol=1e-11, atol=1e-12)
    with pytest.raises(ValueError, match="read-only"):
        other.view("dense")[0, 0] = 1.0
