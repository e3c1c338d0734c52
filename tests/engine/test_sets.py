"""Sets of classes hold the truth as often as they promise, for every pattern of views."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.special import log_softmax

from fewview import FewviewError, FewviewWarning, MultiViewData, create, load_model
from fewview.engine.open_world._rejection import LEVELS
from fewview.engine.open_world._sets import SetLimits, class_quantiles

WIDTHS = {"a": 5, "b": 3}


def world(seed: int, n_classes: int, per_class: int) -> MultiViewData:
    """Classes that overlap, one view that tells more than the other, and gaps."""
    rng = np.random.default_rng(seed)
    codes = np.repeat(np.arange(n_classes), per_class)
    hidden = rng.normal(size=(n_classes, 3))[codes] + 0.6 * rng.normal(size=(len(codes), 3))
    views = {}
    for k, (view, width) in enumerate(WIDTHS.items()):
        mixing = np.random.default_rng(k).normal(size=(3, width))
        noise = (0.3, 1.5)[k] * rng.normal(size=(len(codes), width))
        views[view] = hidden @ mixing + noise
    mask = rng.random((len(codes), 2)) > 0.3
    mask[~mask.any(1), 1] = True
    return MultiViewData(views, [f"{seed}-{code}" for code in codes], mask=mask)


@pytest.mark.parametrize("name", ["proto", "marginal:transductive=false"])
def test_coverage_by_pattern_is_what_was_asked_for(name: str) -> None:
    method = create(name).fit_base(world(1, 40, 20))
    held: dict[tuple[float, str], list[bool]] = {}
    sizes: dict[float, list[int]] = {0.8: [], 0.95: []}
    for seed in range(2, 32):
        data = world(seed, 4, 20)
        few = np.arange(len(data)) % 20 < 2
        clf = method.fit(data[few])
        query = data[~few]
        for coverage in sizes:
            found = clf.predict_sets(query, coverage)
            best = clf.predict(query)
            for row, (chosen, mask) in enumerate(zip(found, query.mask, strict=True)):
                assert chosen[0] == best[row]
                key = coverage, "+".join(np.array(["a", "b"])[mask])
                held.setdefault(key, []).append(query.labels[row] in chosen)
                sizes[coverage].append(len(chosen))
    for (coverage, pattern), values in held.items():
        # Thirty tasks of four classes, which differ: a few points are chance.
        assert coverage - 0.07 < np.mean(values), (coverage, pattern)
        assert np.mean(values) < max(coverage + 0.1, 0.97), (coverage, pattern)
    assert np.mean(sizes[0.8]) < np.mean(sizes[0.95]) < 4


def test_limits_are_looked_up_by_pattern_then_by_number_of_views() -> None:
    limits = SetLimits(
        patterns=torch.tensor([[True, False, False]]),
        of_patterns=np.array([10.0 - LEVELS]),
        of_counts=np.array([20.0 - LEVELS, 30.0 - LEVELS, 40.0 - LEVELS]),
        way=3,
        shot=1,
    )
    mask = np.array([[1, 0, 0], [0, 1, 0], [1, 1, 0], [1, 1, 1]], dtype=bool)
    np.testing.assert_allclose(limits.at(0.9, mask), [9.9, 19.9, 29.9, 39.9])


def test_sets_are_classes_within_the_limit_and_files_keep_it(tmp_path: Path) -> None:
    base, data = world(1, 12, 20), world(2, 3, 12)
    clf = create("proto").fit_base(base).calibrate_sets()
    clf.save(tmp_path / "a.model")
    clf.fit(data[::4])
    again = load_model(tmp_path / "a.model").fit(data[::4])
    query = data[1::4]
    sets = clf.predict_sets(query, 0.9)
    assert again.predict_sets(query, 0.9) == sets
    logs = log_softmax(clf.query_scores(query).double().numpy(), axis=1)
    limit = clf.base.sets.at(0.9, query.mask)
    for row, chosen in enumerate(sets):
        wanted = clf.classes_[logs[row] >= logs[row].max() - limit[row] - 1e-9]
        assert sorted(chosen) == sorted(wanted.tolist())
    rows = clf.predictions(query, sets=0.9)
    assert [row["set"].split("|") for row in rows] == sets
    with pytest.raises(FewviewError, match="between 0 and 1"):
        clf.predict_sets(query, 90)
    create("proto").fit_base(base).save(tmp_path / "b.model")
    with pytest.raises(FewviewError, match="fewview fit --sets"):
        load_model(tmp_path / "b.model").fit(data[::4]).predict_sets(query)
    alone = create("proto").fit_base(base[np.isin(base.codes, [0, 1])]).fit(data[::4])
    with pytest.raises(FewviewError, match="at least 4 of them"):
        alone.predict_sets(query)
    with pytest.raises(FewviewError, match="new classes alone"):
        clf.fit(data[::4], classes="all").predict_sets(query)


def test_a_class_that_was_left_out_is_covered_as_promised() -> None:
    """Classes that differ: of few, pooled quantiles promise too much."""
    rng = np.random.default_rng(0)
    for count in (5, 30):
        held: dict[float, list[float]] = {0.8: [], 0.9: [], 0.95: []}
        for _ in range(600):
            centres = 2 * rng.normal(size=count + 1)
            values = np.maximum(centres[:, None] + rng.normal(size=(count + 1, 40)), 0)
            limits = class_quantiles(values[:-1].reshape(-1), np.repeat(np.arange(count), 40))
            for coverage, found in held.items():
                place = int(np.flatnonzero(np.isclose(LEVELS, 1 - coverage))[0])
                found.append(np.mean(values[-1] <= limits[place]))
        for coverage, found in held.items():
            # Above by a standard error over classes, nearly all or nothing of each.
            above = np.sqrt(coverage * (1 - coverage) / count)
            assert coverage - 0.01 < np.mean(found) < coverage + 1.2 * above


def test_limits_by_hand() -> None:
    """Three classes, one value each: 0 and 1 are below the larger of the two others, 3 is not.

    Two thirds, less a standard error of one third, are covered by whatever is above the median of
    two, which is 1 of the three; all only by three times the largest: 9, or the next step,
    8 ** (1 / 39) times as large at most.
    """
    limits = class_quantiles(np.array([0.0, 1.0, 3.0]), np.arange(3))
    at = {level: float(limits[np.flatnonzero(np.isclose(LEVELS, level))[0]])
          for level in (0.05, 0.67)}  # fmt: skip
    assert at[0.67] == 1
    assert 9 <= at[0.05] <= 9 * 8 ** (1 / 39)
    assert np.isinf(class_quantiles(np.array([0.0, 1.0]), np.arange(2))).all()


def test_more_than_base_classes_can_show_is_told() -> None:
    data = world(2, 3, 12)
    clf = create("proto").fit_base(world(1, 6, 20)).calibrate_sets().fit(data[::4])
    assert any(len(chosen) < 3 for chosen in clf.predict_sets(data[1::4], 0.7))
    none = replace(
        clf.base.sets,
        of_patterns=np.full_like(clf.base.sets.of_patterns, np.inf),
        of_counts=np.full_like(clf.base.sets.of_counts, np.inf),
    )
    clf.base = replace(clf.base, sets=none)
    with pytest.warns(FewviewWarning, match="0.95 is more than so few base classes can show"):
        sets = clf.predict_sets(data[1::4], 0.95)
    assert all(len(chosen) == 3 for chosen in sets)
