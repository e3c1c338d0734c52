"""What users are told of their queries, and when."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from fewview import FewviewWarning, MultiViewData, create
from fewview.datasets import make_few_shot, split_few_shot

BASE, SUPPORT, QUERY = split_few_shot(make_few_shot(seed=0), new=4, shot=2, seed=0)


def unbalanced() -> MultiViewData:
    """Queries nearly all of one class."""
    counts = np.bincount(QUERY.codes)
    first = np.flatnonzero(QUERY.codes == counts.argmax())
    others = [np.flatnonzero(QUERY.codes == code)[0] for code in range(len(counts))]
    return QUERY[np.unique([*first, *others])].with_labels(None)


def test_nothing_is_said_of_balanced_queries_or_by_inductive_methods() -> None:
    for name in ("proto", "ptmap", "marginal"):
        assert create(name).fit_base(BASE).fit(SUPPORT).diagnose(QUERY) == []
    assert create("proto").fit_base(BASE).fit(SUPPORT).diagnose(unbalanced()) == []


def test_a_single_query_is_told_to_methods_that_look_at_all_together() -> None:
    found = create("ptmap").fit_base(BASE).fit(SUPPORT).diagnose(QUERY[:1])
    assert len(found) == 1
    assert "with a single one it falls back to what the supports say" in found[0]
    assert create("proto").fit_base(BASE).fit(SUPPORT).diagnose(QUERY[:1]) == []


@pytest.mark.parametrize("name", ["ptmap", "tim"])
def test_unbalanced_queries_are_told_to_who_wants_balance(name: str) -> None:
    clf = create(name).fit_base(BASE).fit(SUPPORT)
    balanced = clf.tags.balanced
    found = clf.diagnose(unbalanced())
    assert balanced
    wants = "assumes" if balanced == 1 else "pulls towards"
    assert any(f"{wants} equally many queries of every class" in text for text in found)
    shares = [
        int(text) for text in found[0].split("(")[1].split(" by")[0].split() if text.isdigit()
    ]
    assert sum(shares) == pytest.approx(100, abs=4)
    assert max(shares) > 60


def test_few_queries_say_nothing() -> None:
    clf = create("ptmap").fit_base(BASE).fit(SUPPORT)
    assert clf.diagnose(unbalanced()[:8]) == []


def test_answers_are_silent_about_queries() -> None:
    """What is to be said of queries is said by `diagnose`, never inside `predict`."""
    clf = create("ptmap").fit_base(BASE).fit(SUPPORT)
    with warnings.catch_warnings():
        warnings.simplefilter("error", FewviewWarning)
        clf.predict(unbalanced())
        clf.predict(QUERY[:1])
        clf.diagnose(unbalanced())
