"""Foundation models for tables through Concat, with a stand-in of the same interface."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fewview import Concat, FewviewError, create
from fewview.engine._registry import expand, get_entry, names
from fewview.evaluate import bench, make_grid
from fewview.methods import CATALOGUE, OPTIONAL
from fewview.methods.concat import PRETRAINED, Pretrained

# What both packages offer: a constructor with these names, fit, classes_, predict_proba, NaN.
STAND_IN = """
import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin

__version__ = "9.8"
calls = []

class {name}(ClassifierMixin, BaseEstimator):
    def __init__(self, *, n_estimators=8, random_state=42, device=None):
        self.n_estimators, self.random_state, self.device = n_estimators, random_state, device

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        self.X_, self.y_ = X, y
        calls.append((self.n_estimators, self.random_state, bool(np.isnan(X).any())))
        return self

    def predict_proba(self, X):
        gap = X[:, None] - self.X_[None]
        far = np.nanmean(np.where(np.isnan(gap), np.nan, gap**2), axis=2)
        near = np.stack([far[:, self.y_ == k].min(axis=1) for k in self.classes_], axis=1)
        p = np.exp(-10 * np.nan_to_num(near, nan=1.0))
        return p / p.sum(axis=1, keepdims=True)
"""


@pytest.fixture
def stand_ins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    for package, name in PRETRAINED.items():
        (tmp_path / f"{package}.py").write_text(STAND_IN.replace("{name}", name))
        monkeypatch.delitem(sys.modules, package, raising=False)
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.parametrize("package", PRETRAINED)
def test_without_the_package_it_is_said_what_to_install(package: str) -> None:
    with pytest.raises(FewviewError, match=f"{package} is not installed; pip install {package}"):
        create(package)


def test_they_are_found_by_name_and_in_no_list() -> None:
    assert set(OPTIONAL) == set(PRETRAINED)
    assert not set(OPTIONAL) & ({*names(), *expand("all")} | set(CATALOGUE))
    assert get_entry("tabicl").factory is Concat


@pytest.mark.usefixtures("stand_ins")
def test_the_interface_is_used_as_it_is() -> None:
    grid = make_grid(
        ["digits"], methods="tabicl,tabpfn:estimator__n_estimators=2,proto", eta="0,0.5", splits=1,
        episodes=3,
    )  # fmt: skip
    rows, outcome = bench(grid, store="none")
    assert not outcome.failures
    found = {row["method"]: row["accuracy"] for row in rows if row["eta"] == 0}
    assert min(found.values()) > 50
    import tabicl  # type: ignore[import-not-found]
    import tabpfn  # type: ignore[import-not-found]

    assert {size for size, _, _ in tabicl.calls} == {8}
    assert {size for size, _, _ in tabpfn.calls} == {2}
    assert {seed for _, seed, _ in tabicl.calls} == {0}  # the benchmark's
    assert {gaps for _, _, gaps in tabicl.calls} == {False, True}  # empty cells, as they are


@pytest.mark.usefixtures("stand_ins")
def test_the_version_of_the_package_is_part_of_the_key() -> None:
    import tabicl  # noqa: F401

    assert "of tabicl 9.8" in create("tabicl").key()


@pytest.mark.usefixtures("stand_ins")
def test_an_estimator_like_any_other() -> None:
    clf = Concat(Pretrained("tabpfn"), impute="none").fit([[0.0], [9.0]], ["cat", "dog"])
    assert clf.predict([[8.0], [1.0]]).tolist() == ["dog", "cat"]
    np.testing.assert_allclose(clf.predict_proba([[8.0]]).sum(), 1)
