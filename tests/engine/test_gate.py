"""The gate between new and known classes, against scikit-learn's logistic regression."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from fewview.engine.open_world._known import _gate, log_odds
from fewview.engine.open_world._playing import Played


@pytest.mark.parametrize("apart", [0.0, 1.0, 30.0])
def test_the_gate_is_a_logistic_regression(apart: float) -> None:
    rng = np.random.default_rng(0)
    n = 300
    new = rng.random(n) < 0.3
    few, known = rng.normal(size=(n, 3)), rng.normal(size=(n, 4))
    few[new, 0] += apart
    known[~new, 0] += apart
    place = np.where(new, 0, 3)
    nothing = np.zeros(n, dtype=np.int64)
    found = Played(nothing, nothing, nothing, new, few, known, place, new)
    gate = _gate(found, np.ones(n, dtype=bool))
    step = log_odds(np.array([gate[0], 1.0, 0.0]), few.max(1), known.max(1))
    counts = np.where(new, 1 / new.mean(), 1 / (~new).mean()) / 2
    model = LogisticRegression(C=1.0, tol=1e-10, max_iter=1000)
    model.fit(step[:, None] / step.std(), new, sample_weight=counts)
    assert gate[1] == pytest.approx(model.coef_[0, 0] / step.std(), rel=1e-4, abs=1e-6)
    assert gate[2] == pytest.approx(model.intercept_[0], rel=1e-4, abs=1e-6)
