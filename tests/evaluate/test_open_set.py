from __future__ import annotations

import numpy as np
import pytest

from fewview.evaluate import Grid
from fewview.evaluate._open_set import measure_open_set, precision_at_recall, run_open_set
from fewview.samples import FewviewError, MultiViewData


def test_precision_where_most_unknown_queries_are_found() -> None:
    # Both unknown ones are found at 2, and with them one of the known ones.
    found = precision_at_recall(np.array([True, True, False, False]), np.array([4.0, 2, 3, 1]))
    assert found == pytest.approx(2 / 3)


def test_unknown_queries_are_those_that_fit_no_class() -> None:
    sure = np.array([[[3.0, 0.0], [0.0, 3.0], [0.1, 0.0]]])
    got = measure_open_set(sure, sure, np.array([[0, 1, 2]]), 2)
    assert got.accuracy.tolist() == got.auroc.tolist() == got.auroc_of_probability.tolist() == [1.0]
    turned = measure_open_set(sure, -sure, np.array([[0, 1, 2]]), 2)
    assert turned.auroc.tolist() == [0.5]
    assert turned.auroc_of_probability.tolist() == [1.0]


def test_too_few_classes_are_named() -> None:
    rng = np.random.default_rng(0)
    data = MultiViewData(rng.normal(size=(50, 3)), labels=np.repeat(np.arange(5), 10))
    with pytest.raises(FewviewError, match="takes 4 or more"):
        run_open_set(Grid(datasets=(data,), methods=("proto",), splits=1, episodes=2))
