"""A view that the base set lacks is used where a method can, else left out; never refused."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest

from fewview import FewviewError, FewviewWarning, MultiViewData, create, load_model


def sets() -> tuple[MultiViewData, MultiViewData, MultiViewData]:
    """Base classes with a view of noise, new ones with a sensor that tells them apart."""
    rng = np.random.default_rng(0)
    base = MultiViewData({"a": rng.normal(size=(60, 3))}, np.repeat(list("pqrstu"), 10))
    labels = np.repeat(["x", "y"], 20)
    views = {
        "a": rng.normal(size=(40, 3)),
        "sensor": 100 + 10 * (labels == "y")[:, None] + rng.normal(size=(40, 2)),
    }
    new = MultiViewData(views, labels)
    keep = np.arange(40) % 20 < 3
    return base, new[keep], new[~keep]


@pytest.mark.parametrize(
    "name", ["proto", "match", "partial-nn", "ptmap", "bd-cspn", "tim-adm", "marginal"]
)
def test_a_new_sensor_is_used(name: str, tmp_path: Path) -> None:
    base, support, query = sets()
    clf = create(name).fit_base(base)
    with pytest.warns(FewviewWarning, match="view 'sensor' is not in the base set; it is used"):
        clf.fit(support)
    with_it = clf.score(query)
    without = create(name).fit_base(base).fit(support.drop_views(["sensor"]))
    assert with_it > 0.9
    assert without.score(query.drop_views(["sensor"])) < 0.75
    clf.save(tmp_path / "a.model")
    again = load_model(tmp_path / "a.model")
    assert np.array_equal(again.predict_proba(query), clf.predict_proba(query))
    # A query without the sensor is still a query.
    assert len(clf.predict(query.drop_views(["sensor"])[:3])) == 3


@pytest.mark.parametrize("name", ["ugda", "ptmap+ugda"])
def test_elsewhere_it_is_left_out_and_told(name: str) -> None:
    base, support, query = sets()
    clf = create(name).fit_base(base)
    with pytest.warns(FewviewWarning, match="support has a view 'sensor' .*it is left out"):
        clf.fit(support)
    with pytest.warns(FewviewWarning, match="query has a view 'sensor' .*it is left out"):
        found = clf.predict_proba(query)
    known = create(name).fit_base(base).fit(support.drop_views(["sensor"]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FewviewWarning)
        assert np.array_equal(found, known.predict_proba(query.drop_views(["sensor"])))


def test_a_sample_without_any_known_view_is_an_error() -> None:
    base, support, query = sets()
    clf = create("ugda").fit_base(base).fit(support.drop_views(["sensor"]))
    with pytest.raises(FewviewError, match="query has a view 'sensor'"):
        clf.predict(query.select_views(["sensor"]))
    blind = query.with_mask([[row > 0, True] for row in range(len(query))])
    with pytest.raises(FewviewError, match=r"'sensor'.*row 0 no other; drop these samples"):
        clf.predict(blind)


def test_rejection_known_classes_and_sets_with_a_new_sensor() -> None:
    """What is learnt on base classes knows nothing of the sensor, and does without it."""
    base, support, query = sets()
    clf = create("marginal").fit_base(base)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FewviewWarning)
        clf.fit(support)
        assert clf.rejected(query, 0.05).shape == (34,)
        assert all(chosen for chosen in clf.predict_sets(query))
        clf.fit(support, classes="all")
        np.testing.assert_allclose(clf.predict_proba(query).sum(1), 1)
        assert clf.rejected(query, 0.05).shape == (34,)


def test_the_model_of_a_new_sensor_stands_beside_that_of_the_base_set() -> None:
    base, support, _ = sets()
    clf = create("marginal:dtype=float64").fit_base(base)
    before = clf.base.prepared.state.model
    with pytest.warns(FewviewWarning, match="is used"):
        clf.fit(support)
    model = clf.prepared_.state.model
    known, new = model.dims[0], sum(model.dims) - model.dims[0]
    assert before.dims == model.dims[:1]
    assert new == 2
    for part in ("within", "between"):
        whole = getattr(model, part)
        assert (whole[:known, :known] == getattr(before, part)).all()
        assert not whole[:known, known:].any()
        assert (whole[known:, known:].diagonal() > 0).all()
