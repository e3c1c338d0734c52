"""Every method as scikit-learn users know estimators: inputs, checks, streams, no base set."""

from __future__ import annotations

import warnings
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse
import torch
from sklearn.base import clone
from sklearn.covariance import OAS
from sklearn.model_selection import (
    GridSearchCV,
    StratifiedKFold,
    cross_val_predict,
    cross_val_score,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import (
    check_methods_subset_invariance,
    parametrize_with_checks,
)

from fewview import FewviewError, FewviewWarning, MultiViewData, TaskSpec, create
from fewview.engine._checks import synthetic_data
from fewview.engine._fitted import FittedBase, usual_task
from fewview.engine._method import Method
from fewview.engine._registry import names
from fewview.engine._streaming import BaseStream
from fewview.methods import CATALOGUE
from fewview.methods.combined import Combined
from fewview.methods.concat import Concat
from fewview.methods.marginal import Marginal
from fewview.methods.marginal._imputer import MarginalImputer
from fewview.methods.marginal._unlabelled import oas_shrinkage
from fewview.methods.proto import Proto
from fewview.methods.ptmap import PTMAP
from fewview.methods.ugda import UGDA
from fewview.samples._inputs import as_data

NAN = float("nan")
BASE, NOVEL = synthetic_data()

# ---------------------------------------------------------------------------- scikit-learn's checks

# Smaller and shorter than usual, so that some fifty checks per method take seconds.
CHEAP: dict[str, dict[str, Any]] = {
    "concat-hgb": {"estimator__max_iter": 5, "estimator__max_features": 1.0},
    "ugda": {"n_anchors": 2},
    "ptmap": {"n_iter": 4},
    "ptmap+ugda": {"source__n_anchors": 2, "head__n_iter": 4},
    "rfs+ugda": {"source__n_anchors": 2},
    "tim": {"steps": 25, "learning_rate": 1e-2},
    "alpha-tim": {"steps": 25, "learning_rate": 1e-2},
    "tim-adm": {"adm_steps": 20},
}
# Methods that train networks take minutes, and those that cannot do without base classes would
# need some for every width of X that the checks come up with.
CHECKED = [n for n in names() if not (create(n).tags.trained or create(n).tags.needs_base)]


# Their answers to a query alone and among others differ in the last digit of float32.
ROUNDED = ("match", "partial-nn")


def expected_failures(method: Method) -> dict[str, str]:
    reasons = {}
    if method.name in ROUNDED:
        reasons["check_methods_subset_invariance"] = "equal to seven digits of float32, not more"
    if method.tags.transductive:
        reasons["check_methods_subset_invariance"] = (
            "transductive: an answer depends on the other queries, by design"
        )
    if method.name == "ptmap":
        reasons["check_classifiers_train"] = (
            "PT-MAP takes powers of features and is made for non-negative ones"
        )
    if hasattr(method, "source"):
        reasons["check_parameters_default_constructible"] = (
            "a combination is made of methods, and a default object per instance is a factory"
        )
    return reasons


def checked(name: str) -> Method:
    # With the default dtype, as users have it; the checks compare with a tolerance of 1e-7.
    return create(name).set_params(**CHEAP.get(name, {}))


@parametrize_with_checks(
    [checked(name) for name in CHECKED], expected_failed_checks=expected_failures
)  # type: ignore[misc]
@pytest.mark.filterwarnings("ignore")
def test_scikit_learn_checks(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.parametrize("name", ROUNDED)
def test_rounding_is_all_that_is_wrong(name: str) -> None:
    check_methods_subset_invariance(name, create(name, dtype="float64"))


def test_which_methods_are_checked() -> None:
    left_out = {name for name in CATALOGUE if name not in CHECKED}
    assert {"proto", "ugda", "marginal", "rfs", "concat-logistic"} <= set(CHECKED)
    assert all(create(n).tags.trained or create(n).tags.needs_base for n in left_out)


# ---------------------------------------------------------------------------- inputs


@pytest.fixture
def task() -> tuple[MultiViewData, MultiViewData]:
    mask = np.ones(NOVEL.mask.shape, dtype=bool)
    mask[1::4, 0] = mask[2::4, 1] = False
    data = NOVEL.with_mask(mask)
    support = np.concatenate([np.flatnonzero(data.codes == code)[:3] for code in range(4)])
    return data[support], data[np.setdiff1d(np.arange(len(data)), support)]


def frames(data: MultiViewData, kind: Any, key: bool) -> dict[str, Any]:
    """One frame per view, without the rows that are missing if there is a key."""
    out = {}
    for index, (view, block) in enumerate(data.views.items()):
        columns = {f"{view}{c}": block[:, c] for c in range(block.shape[1])}
        rows = np.flatnonzero(data.mask[:, index]) if key else np.arange(len(data))
        if key:
            columns = {"id": [f"s{row:03d}" for row in range(len(data))], **columns}
        out[view] = kind({name: np.asarray(values)[rows] for name, values in columns.items()})
    return out


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame])
@pytest.mark.parametrize("key", [False, True])
def test_frames_give_the_same_answers(task: Any, kind: Any, key: bool) -> None:
    support, query = task
    wanted = Proto().fit(support).predict_proba(query)
    labels = support.labels.tolist()
    y = {f"s{row:03d}": label for row, label in enumerate(labels)} if key else labels
    clf = Proto().fit(frames(support, kind, key), y)
    assert np.allclose(clf.predict_proba(frames(query, kind, key)), wanted)


def test_frames_with_the_same_rows_keep_their_order() -> None:
    one = pd.DataFrame({"x": [3.0, 1.0, 2.0]}, index=[30, 10, 20])
    two = pd.DataFrame({"z": [0.3, 0.1, 0.2]}, index=[30, 10, 20])
    data = as_data({"a": one, "b": two}, ["u", "v", "w"])
    assert data.ids.tolist() == [30, 10, 20]
    assert data.view("a")[:, 0].tolist() == [3.0, 1.0, 2.0]
    assert data.labels.tolist() == ["u", "v", "w"]
    with pytest.raises(FewviewError, match="no order to follow"):
        as_data({"a": one, "b": two[:2]}, ["u", "v", "w"])


@pytest.mark.parametrize(
    "kind", [scipy.sparse.csr_array, scipy.sparse.coo_matrix, scipy.sparse.dok_array]
)
def test_sparse_views(kind: Any) -> None:
    complete = NOVEL[::3]
    rng = np.random.default_rng(0)
    blocks = {v: b * (rng.random(b.shape) < 0.5) for v, b in complete.views.items()}
    dense = Proto().fit(blocks, complete.labels)
    sparse = {view: kind(block) for view, block in blocks.items()}
    clf = Proto().fit(sparse, complete.labels)
    assert np.array_equal(clf.predict_proba(sparse), dense.predict_proba(blocks))
    one = blocks["shape"]
    wanted = Proto().fit(one, complete.labels).predict_proba(one)
    found = Proto().fit(kind(one), complete.labels).predict_proba(kind(one))
    assert np.array_equal(found, wanted)


def modality(data: MultiViewData, view: str, ids: list[str]) -> SimpleNamespace:
    rows = np.flatnonzero(data.mask[:, data.view_names.index(view)])
    block = np.asarray(data.view(view)[rows])
    return SimpleNamespace(
        X=scipy.sparse.csr_matrix(block) if view == "shape" else block,
        obs_names=pd.Index([ids[row] for row in rows]),
        var_names=pd.Index([f"{view}{c}" for c in range(block.shape[1])]),
    )


def test_mudata_like_objects(task: Any) -> None:
    support, query = task

    def container(data: MultiViewData) -> SimpleNamespace:
        ids = [f"cell{row}" for row in range(len(data))]  # not sorted as text
        return SimpleNamespace(
            mod={view: modality(data, view, ids) for view in data.view_names},
            obs_names=pd.Index(ids),
            obs=pd.DataFrame({"kind": data.labels}, index=ids),
        )

    wanted = Proto().fit(support).predict_proba(query)
    clf = Proto().fit(container(support), "kind")
    assert np.allclose(clf.predict_proba(container(query)), wanted)
    with pytest.raises(FewviewError, match="no column 'colour'"):
        Proto().fit(container(support), "colour")
    alone = modality(support, "colour", [str(row) for row in range(len(support))])
    assert as_data(alone).columns["view0"][0] == "colour0"


def test_real_mudata(task: Any) -> None:
    mudata = pytest.importorskip("mudata")
    anndata = pytest.importorskip("anndata")
    support, query = task
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")

        def container(data: MultiViewData) -> Any:
            ids = [f"cell{row}" for row in range(len(data))]
            parts = {}
            for view in data.view_names:
                part = modality(data, view, ids)
                parts[view] = anndata.AnnData(
                    part.X,
                    obs=pd.DataFrame(index=part.obs_names),
                    var=pd.DataFrame(index=part.var_names),
                )
            return mudata.MuData(parts)

        found = container(support)
        order = [int(name.removeprefix("cell")) for name in found.obs_names]
        clf = Proto().fit(found, support.labels[order])
        asked = container(query)
        place = [int(name.removeprefix("cell")) for name in asked.obs_names]
        wanted = Proto().fit(support).predict_proba(query)[place]
        assert np.allclose(clf.predict_proba(asked), wanted, atol=1e-6)


def test_columns_are_matched_by_name() -> None:
    X = pd.DataFrame({"a": [0.0, 9.0], "b": [1.0, 5.0]})
    clf = Proto(scaling="none").fit(X, ["cat", "dog"])
    assert clf.feature_names_in_.tolist() == ["a", "b"]
    assert clf.predict(pd.DataFrame({"b": [5.0], "a": [8.0]})).tolist() == ["dog"]
    with pytest.warns(FewviewWarning, match=r"1 learnt column is not there.*'b'.*left out \('c'\)"):
        assert clf.predict(pd.DataFrame({"a": [1.0], "c": [2.0]})).tolist() == ["cat"]


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        ([[1.0], [2.0]], ["a"], "1 labels for 2 samples"),
        ([[1.0], [2.0]], "ab", "the text 'ab'"),
        ([[1.0], [2.0]], [0.5, 1.7], "Unknown label type: continuous"),
        ([[1.0], [NAN]], ["a", "b"], "contains NaN"),
        ([[1.0], ["x"]], ["a", "b"], "numeric"),
        ({"v": [[1.0], [2.0]]}, ["a", None], "row 1 has no label"),
        ({"v": [[1.0], [np.inf]]}, ["a", "b"], "infinite"),
        ({"v": [[1.0], [2.0]], "w": [[1.0]]}, ["a", "b"], "different numbers of rows"),
    ],
)
def test_bad_input_is_named(X: Any, y: Any, message: str) -> None:
    with pytest.raises(FewviewError, match=message):
        Proto().fit(X, y)


def test_answers_about_frames_come_in_the_order_of_identifiers() -> None:
    """Every query lies on a support, so that the right answer is known for every identifier."""
    clf = Proto(scaling="none").fit({"a": [[0.0], [9.0]], "b": [[0.0], [9.0]]}, ["low", "high"])
    frames = {
        "a": pd.DataFrame({"id": ["z", "x"], "value": [9.0, 0.0]}),
        "b": pd.DataFrame({"id": ["y", "x"], "value": [9.0, 0.0]}),
    }
    joined = MultiViewData.from_frames(frames)
    wanted = {"x": "low", "y": "high", "z": "high"}
    assert clf.predict(frames).tolist() == [wanted[name] for name in joined.ids]
    assert clf.predict(joined).tolist() == clf.predict(frames).tolist()


# ---------------------------------------------------------------------------- scikit-learn's tools


def test_pipeline_and_model_selection(task: Any) -> None:
    support, query = task
    data = MultiViewData.concat([support, query])
    folds = StratifiedKFold(3)
    clf = Marginal().fit_base(BASE)
    assert cross_val_score(clf, data, data.labels, cv=folds).mean() > 0.8
    predicted = cross_val_predict(clf, data, data.labels, cv=folds)
    assert np.mean(predicted == data.labels) > 0.8
    proba = cross_val_predict(clf, data, data.labels, cv=folds, method="predict_proba")
    assert proba.shape == (len(data), 4)
    search = GridSearchCV(clf, {"shrinkage": [0.05, 0.3]}, cv=folds).fit(data, data.labels)
    assert search.best_score_ > 0.8
    chain = make_pipeline(MarginalImputer(), Proto())
    assert chain.fit(data, data.labels).score(query, query.labels) > 0.8
    X = data.with_mask(None).view("shape")
    rows = ~np.isnan(X[:, 0])
    plain = make_pipeline(StandardScaler(), Proto()).fit(X[rows], data.labels[rows])
    assert plain.score(X[rows], data.labels[rows]) > 0.8


def test_score_takes_labels_from_the_data(task: Any) -> None:
    support, query = task
    clf = Proto().fit(support)
    assert clf.score(query) == clf.score(query.with_labels(None), query.labels)
    assert clf.score(query) == np.mean(clf.predict(query) == query.labels)
    with pytest.raises(FewviewError, match="no labels to compare with"):
        clf.score(query.with_labels(None))


# ---------------------------------------------------------------------------- shots and classes


@pytest.mark.parametrize("method", [Proto(), Marginal(base=BASE), UGDA(base=BASE, n_anchors=5)])
def test_partial_fit_equals_fit(task: Any, method: Method) -> None:
    support, query = task
    wanted = clone(method).fit(support).predict_proba(query)
    clf = clone(method)
    order = np.argsort(np.arange(len(support)) % 3, kind="stable")  # one shot after the other
    support = support[order]
    for start in range(0, len(support), 4):
        clf.partial_fit(support[start : start + 4])
    again = clone(method).fit(support).predict_proba(query)
    assert np.array_equal(clf.predict_proba(query), again)
    if method.tags.deterministic:
        assert np.allclose(again, wanted, atol=1e-4)


def test_partial_fit_one_class_after_the_other(task: Any) -> None:
    support, query = task
    clf = Proto(base=BASE)
    clf.partial_fit(support[support.labels == "ape"])
    with pytest.raises(FewviewError, match="only class 'ape' is known so far"):
        clf.predict(query)
    for name in ("bee", "cat", "dog"):
        clf.partial_fit(support[support.labels == name])
    assert clf.classes_.tolist() == ["ape", "bee", "cat", "dog"]
    assert np.allclose(
        clf.predict_proba(query), Proto(base=BASE).fit(support).predict_proba(query), atol=1e-6
    )
    with pytest.raises(FewviewError, match="must not overlap"):
        clf.partial_fit(BASE[:1])
    with pytest.raises(FewviewError, match="not among the given classes"):
        clf.partial_fit(support[:1], classes=["x"])


def test_partial_fit_does_not_learn_from_base_classes_again(
    task: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    support, _ = task
    clf = Marginal(base=BASE).fit(support)

    def refuse(*_: Any) -> Any:
        raise AssertionError("learnt from base classes again")

    monkeypatch.setattr(Marginal, "prepare_base", refuse)
    assert len(clf.partial_fit(support[:2]).support_) == len(support) + 2


# ---------------------------------------------------------------------------- base sets


def test_the_usual_task() -> None:
    task = usual_task(BASE)
    assert (task.way, task.shot, task.queries, task.eta) == (2, 1, 15, 0.3)
    assert task.missing.kind == "uniform"
    holes = np.ones(BASE.mask.shape, dtype=bool)
    holes[::2, 0] = False
    partial = usual_task(BASE.with_mask(holes))
    assert partial.missing.kind == "patterns"
    assert partial.eta == pytest.approx(1 / 6)
    many = MultiViewData(np.ones((30, 1)), labels=np.arange(30))
    assert (usual_task(many).way, usual_task(many).eta) == (5, 0.0)  # one view cannot be missing
    assert [usual_task(many[:n]).way for n in (3, 9, 10)] == [2, 3, 4]


def test_fit_base_chooses_for_the_task_it_is_given(task: Any) -> None:
    support, query = task
    shape = TaskSpec(way=2, shot=3, eta=0.1)
    clf = Marginal().fit_base(BASE, task=shape)
    assert isinstance(clf.base, FittedBase)
    assert clf.base.task is shape
    before = clf.base.prepared
    assert clf.fit(support).prepared_.state is before.state or torch.equal(
        clf.prepared_.state.model.mean, before.state.model.mean
    )
    # Other parameters: rows are still here, so it learns again.
    other = clone(clf).set_params(shrinkage=0.9).fit(support)
    assert not np.allclose(other.predict_proba(query), clf.predict_proba(query))
    alone = clone(clf).set_params(base=clf.base.without_rows())
    assert np.array_equal(alone.fit(support).predict_proba(query), clf.predict_proba(query))
    with pytest.raises(FewviewError, match=r"other parameters.*shrinkage=0.9"):
        alone.set_params(shrinkage=0.9).fit(support)
    with pytest.raises(FewviewError, match="fitted by Marginal"):
        Proto(base=clf.base.without_rows()).fit(support)


@pytest.mark.parametrize(
    "method",
    [
        UGDA(n_anchors=5, dtype="float64"),
        Proto(padding="base", dtype="float64"),
        Marginal(dtype="float64"),
        create("ptmap+ugda", source__n_anchors=5, dtype="float64"),
    ],
    ids=lambda method: method.name,
)
@pytest.mark.filterwarnings("ignore::fewview.ground._errors.FewviewWarning")
def test_a_base_set_in_parts_is_the_whole(task: Any, method: Method) -> None:
    """The sum of the parts: started from all samples, streams give what fit_base gives."""
    support, query = task
    holes = np.ones(BASE.mask.shape, dtype=bool)
    holes[::5, 0] = False
    base = BASE.with_mask(holes)
    wanted = clone(method).fit_base(base).fit(support).predict_proba(query)
    order = np.random.default_rng(0).permutation(len(base))
    start = BaseStream.start(method, base)
    parts = [start.update(base[rows]) for rows in np.array_split(order, 3)]
    merged = parts[2].merge(parts[0]).merge(parts[1])
    clf = clone(method).use_base(merged)
    assert clf.base.n_samples == len(base)
    assert clf.base.task.missing.kind == "patterns"
    # Classes in the same order draw the same anchors; sums differ in their last digits only.
    if method.tags.deterministic:
        assert np.allclose(clf.fit(support).predict_proba(query), wanted, atol=1e-6)
    else:
        right = clf.fit(support).score(query)
        assert abs(right - np.mean(support.classes[wanted.argmax(1)] == query.labels)) < 0.1


def test_streams_that_were_scaled_differently_do_not_merge() -> None:
    one = BaseStream.start(Proto(), BASE).update(BASE[:9])
    two = BaseStream.start(Proto(), BASE[::2]).update(BASE[9:])
    with pytest.raises(FewviewError, match="scaled differently"):
        one.merge(two)
    with pytest.raises(FewviewError, match="cannot learn from a base set in parts"):
        Concat().partial_fit_base(BASE)


def test_partial_fit_base(task: Any) -> None:
    support, query = task
    clf = UGDA(n_anchors=5)
    for part in (BASE[::2], BASE[1::2]):
        clf.partial_fit_base(part)
    assert clf.base.rows is None
    assert clf.base.n_samples == len(BASE)
    assert clf.fit(support).score(query) > 0.8
    with pytest.warns(FewviewWarning, match="base set in parts .* of 60 rows"):
        Marginal().partial_fit_base(BASE[::2])


# ---------------------------------------------------------------------------- no base set


def test_oas_is_scikit_learns() -> None:
    rows = np.random.default_rng(1).normal(size=(12, 7)) * np.arange(1, 8)
    covariance = torch.from_numpy(np.cov(rows.T, bias=True))
    assert oas_shrinkage(covariance, 12) == pytest.approx(OAS().fit(rows).shrinkage_)


@pytest.mark.parametrize(
    "method",
    [
        Marginal(),
        Marginal(transductive=False),
        UGDA(n_anchors=10),
    ],
    ids=str,
)
@pytest.mark.parametrize("unlabelled", [False, True])
def test_without_base_classes(task: Any, method: Method, unlabelled: bool) -> None:
    support, query = task
    clf = clone(method)
    if unlabelled:
        clf.fit_base(BASE.with_labels(None))
    proba = clf.fit(support).predict_proba(query)
    assert np.isfinite(proba).all()
    assert np.mean(clf.classes_[proba.argmax(1)] == query.labels) > 0.75


def test_unlabelled_rows_help() -> None:
    """Two views of one hidden thing: unlabelled pairs teach what a view says about the other."""
    rng = np.random.default_rng(0)
    right: dict[str, list[float]] = {"marginal": [], "marginal alone": []}
    mixing = rng.normal(size=(2, 4, 12))
    for _ in range(12):
        centres = 1.5 * rng.normal(size=(4, 4))

        def draw(codes: Any, centres: Any = centres) -> dict[str, Any]:
            hidden = centres[codes] + 0.5 * rng.normal(size=(len(codes), 4))
            return {
                view: hidden @ mixing[k] + 3.0 * rng.normal(size=(len(codes), 12))
                for k, view in enumerate("ab")
            }

        others = MultiViewData(draw(rng.integers(0, 4, 400)))
        mask = np.array([[True, False], [False, True]] * 2)
        support = MultiViewData(draw(np.arange(4)), np.arange(4), mask=mask)
        codes = np.arange(80) % 4
        mask = np.array([[False, True], [True, False]] * 40)
        query = MultiViewData(draw(codes), codes, mask=mask)
        one = Marginal(transductive=False)
        right["marginal alone"].append(clone(one).fit(support).score(query))
        right["marginal"].append(one.fit_base(others).fit(support).score(query))
    # A query and its own class's support never share a view: without other rows it is a guess.
    assert np.mean(right["marginal alone"]) < 0.4
    assert np.mean(right["marginal"]) > np.mean(right["marginal alone"]) + 0.15


def test_methods_that_need_base_classes_say_so(task: Any) -> None:
    support, _ = task
    needy = [name for name in names() if create(name).tags.needs_base]
    assert "bavardage" in needy
    for name in needy:
        with pytest.raises(FewviewError, match="learns from base classes first"):
            create(name).fit(support)
        with pytest.raises(FewviewError, match="learns from base classes first"):
            create(name).fit_base(BASE.with_labels(None))


# ---------------------------------------------------------------------------- reasons


@pytest.mark.parametrize("name", ["proto", "ugda:n_anchors=5", "marginal", "ptmap"])
def test_explanations_add_up(task: Any, name: str) -> None:
    support, query = task
    clf = create(name, base=BASE).fit(support)
    found = clf.explain(query)
    together = found.together if found.together.size else 0.0
    assert np.allclose(found.contributions.sum(1) + together, found.scores, atol=1e-6)
    shares = found.support_of_views.sum(1) + found.support_of_other_queries
    assert np.allclose(shares, found.margin, atol=1e-6)
    assert (found.contributions[~query.mask] == 0).all()
    assert (found.margin >= 0).all()
    assert (found.classes == clf.classes_).all()
    assert (clf.classes_[found.decided] == clf.predict(query)).all()
    frame = found.frame()
    assert len(frame) == len(query)
    assert frame["label"].tolist() == clf.predict(query).tolist()
    assert np.allclose(frame["probability"], clf.predict_proba(query).max(1), atol=1e-6)
    assert np.allclose(frame.filter(regex="^from_").sum(axis=1), frame["margin"], atol=1e-6)
    assert ("from_the_other_queries" in frame) == name.startswith("marginal")
    assert frame["views"][0] == "+".join(np.array(query.view_names)[query.mask[0]])
    single = query.mask.sum(1) == 1
    assert (found.decided_without[single].max(1, initial=-1) <= found.decided[single]).all()


def test_the_telling_view_gets_the_credit() -> None:
    """One view tells the classes apart, the other is the same for both."""
    rng = np.random.default_rng(0)
    codes = np.arange(40) % 2
    views = {
        "signal": 5.0 * codes[:, None] + 0.3 * rng.normal(size=(40, 2)),
        "noise": rng.normal(size=(40, 2)),
    }
    data = MultiViewData(views, np.array(["no", "yes"])[codes])
    for method in (Proto(), Marginal(), UGDA(n_anchors=5)):
        found = clone(method).fit(data[:10]).explain(data[10:])
        parts = found.support_of_views
        assert np.mean(parts[:, 0] > parts[:, 1]) > 0.9, method


@pytest.mark.parametrize("name", ["proto", "ptmap", "marginal"])
def test_reasons_and_answers_agree_where_no_view_is_shared(name: str) -> None:
    views = {"a": [[0.0], [9.0], [NAN], [1.0]], "b": [[NAN], [NAN], [5.0], [2.0]]}
    data = MultiViewData(views)
    clf = create(name).fit(data[:2], ["x", "y"])
    query = data[2:]
    with pytest.warns(FewviewWarning, match="share no view"):
        proba = clf.predict_proba(query)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FewviewWarning)
        found = clf.explain(query, alone=True)
    assert proba[0].tolist() == [0.5, 0.5]
    assert found.scores[0].tolist() == [0.0, 0.0]
    assert found.support_of_views[0].tolist() == [0.0, 0.0]
    assert found.classes[found.decided[0]] == clf.classes_[proba[0].argmax()] == "x"
    assert found.nearest[0] == ()
    assert "shares no view with any support" in found._repr_html_()


def test_nearest_base_classes_and_the_picture(task: Any, tmp_path: Any) -> None:
    support, query = task
    clf = UGDA(base=BASE, n_anchors=5).fit(support)
    found = clf.explain(query[:40])
    assert {len(row) for row in found.neighbours} == {3}
    # By hand: the nearest class mean of a complete query, in scaled units.
    complete = int(np.flatnonzero(query[:40].mask.all(1))[0])
    scaling = clf.prepared_.scaling
    scaled, one = scaling.transform(BASE), scaling.transform(query[complete])
    distance = {
        label: np.mean([
            np.mean((scaled.view(v)[BASE.labels == label].mean(0) - one.view(v)[0]) ** 2)
            for v in BASE.view_names
        ])
        for label in BASE.classes
    }  # fmt: skip
    assert found.neighbours[complete][0] == min(distance, key=distance.__getitem__)
    assert "nearest_base_classes" in found.frame().columns
    found.save(tmp_path / "why.svg")
    assert "log-odds" in (tmp_path / "why.svg").read_text()
    with pytest.raises(FewviewError, match="why"):
        found.save(tmp_path / "why.xyz")
    assert [path.name for path in tmp_path.iterdir()] == ["why.svg"]


def test_a_parameter_that_a_part_has_too_is_noticed_when_it_changes() -> None:
    """The scaling of a combination is its own, whatever the scaling of its head is called."""
    base, novel = synthetic_data()
    support, query = novel[::9], novel[1::3]

    def combined(**parameters: Any) -> Combined:
        head = PTMAP(power="signed", scaling="standard")
        return Combined(UGDA(n_anchors=10), head=head, **parameters)

    changed = combined().fit_base(base).set_params(scaling="standard").fit(support)
    fresh = combined(scaling="standard").fit_base(base).fit(support)
    before = combined().fit_base(base).fit(support)
    np.testing.assert_allclose(changed.predict_proba(query), fresh.predict_proba(query))
    assert np.abs(before.predict_proba(query) - fresh.predict_proba(query)).max() > 1e-3
    assert changed.prepared_.scaling.rule == "standard"
