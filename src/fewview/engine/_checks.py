"""Common checks that every method must pass, for this package's methods and for anyone else's.

`check_method(MyMethod())` makes a small data set of its own and raises an AssertionError that names
the check that failed. It takes seconds for methods that train no networks.
"""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from inspect import get_annotations
from typing import Any

import numpy as np
import torch
from sklearn.base import clone
from torch import Tensor

from fewview.engine._contract import scale_base
from fewview.engine._method import Method
from fewview.engine._state import Prepared
from fewview.episodes._sampler import Episodes, EpisodeSampler
from fewview.episodes._task import TaskSpec
from fewview.ground._errors import FewviewError
from fewview.numerics._batch import EpisodeBatch, map_tensors
from fewview.samples._data import MultiViewData
from fewview.samples._masks import MissingRule

WAY = 3
WIDTHS = {"colour": 5, "shape": 8, "sound": 3}
BASE_CLASSES = tuple(f"base{index}" for index in range(6))
NOVEL_CLASSES = ("ape", "bee", "cat", "dog")
LARGEST_ETA = 2 / 3


def synthetic_data(seed: int = 0, per_class: int = 20) -> tuple[MultiViewData, MultiViewData]:
    """Make a small base set (6 classes) and novel set (4 classes) with three correlated views.

    Example:
        >>> base, novel = synthetic_data()
        >>> base.n_samples, base.view_names
        (120, ('colour', 'shape', 'sound'))
    """
    rng = np.random.default_rng(seed)
    names = np.repeat(np.array([*BASE_CLASSES, *NOVEL_CLASSES], dtype=object), per_class)
    centres = rng.normal(size=(10, 4))
    # The last four classes are placed far apart, so that a method that learns is seen to learn.
    centres[6:] = 2.0 * np.linalg.qr(rng.normal(size=(4, 4)))[0]
    hidden = centres.repeat(per_class, axis=0) + 0.5 * rng.normal(size=(len(names), 4))
    views = {}
    for view, width in WIDTHS.items():
        mixing = rng.normal(size=(4, width))
        views[view] = 3.0 + hidden @ mixing + 0.3 * rng.normal(size=(len(names), width))
    data = MultiViewData(views, names)
    is_base = np.isin(names.astype(str), BASE_CLASSES)
    return data[is_base], data[~is_base]


@dataclass(frozen=True)
class Case:
    """A method under test together with the data it is tested on."""

    method: Method
    base: MultiViewData
    novel: MultiViewData
    n_tasks: int
    n_random_tasks: int

    @property
    def tolerance(self) -> float:
        """Largest difference of float64 probabilities that counts as equal."""
        tags = self.method.tags
        return 1e-3 if tags.trained else 1e-5 if tags.iterative else 1e-8

    def variant(self, **parameters: Any) -> Method:
        """Clone the method in float64 on the CPU, with some parameters changed."""
        settings: dict[str, Any] = {"dtype": "float64", "device": "cpu", **parameters}
        method: Method = clone(self.method).set_params(**settings)
        return method

    def task(self, eta: float = 0.3, shot: int | tuple[int, ...] = 2) -> TaskSpec:
        """Return the shape of the tasks: 3-way, 2-shot unless told otherwise."""
        return TaskSpec(way=WAY, shot=shot, queries=5, eta=eta)

    def episodes(self, task: TaskSpec, count: int | None = None) -> Episodes:
        """Draw tasks from the novel classes."""
        return EpisodeSampler(self.novel, task).draw(0, count or self.n_tasks)

    def setting(
        self, task: TaskSpec, count: int | None = None, method: Method | None = None
    ) -> tuple[Method, Prepared, EpisodeBatch]:
        """Return the method, what it learnt from the base set, and a batch of scaled tasks."""
        method = method or self.variant()
        prepared = method.prepare_base(self.base, task)
        episodes = self.episodes(task, count)
        return method, prepared, method.scaled(self.novel, prepared).gather(episodes)

    @property
    def n_compared(self) -> int:
        """Tasks to compare answers over: more where they agree on average only."""
        return self.n_tasks if self.method.tags.deterministic else self.n_random_tasks


def _probabilities(method: Method, prepared: Prepared, batch: EpisodeBatch) -> Tensor:
    scores = method.score_batch(batch.without_query_labels(), prepared)
    return torch.softmax(scores.double().cpu(), dim=-1)


def _accuracy(probabilities: Tensor, batch: EpisodeBatch) -> float:
    """In percent."""
    assert batch.query_labels is not None
    return 100 * float((probabilities.argmax(-1) == batch.query_labels.cpu()).double().mean())


def _expect_close(found: Tensor, wanted: Tensor, tolerance: float, what: str) -> None:
    assert found.shape == wanted.shape, f"{what}: shape {found.shape} instead of {wanted.shape}"
    worst = float((found - wanted).abs().max()) if found.numel() else 0.0
    assert worst <= tolerance, f"{what}: probabilities move by up to {worst:.2g}"


def _expect_finite(scores: Tensor, what: str) -> None:
    assert bool(torch.isfinite(scores).all()), f"{what}: scores are not finite"


def _expect_same_answers(
    case: Case,
    what: str,
    change: Callable[[EpisodeBatch], EpisodeBatch],
    undo: Callable[[Tensor], Tensor] = lambda out: out,
) -> None:
    """Score tasks as they are and changed; `undo` brings the answers into the former order."""
    method, prepared, batch = case.setting(case.task(), case.n_compared)
    before = _probabilities(method, prepared, batch)
    _compare(case, before, undo(_probabilities(method, prepared, change(batch))), batch, what)


def _compare(case: Case, before: Tensor, after: Tensor, batch: EpisodeBatch, what: str) -> None:
    if case.method.tags.deterministic:
        _expect_close(after, before, case.tolerance, what)
        return
    one, two = _accuracy(before, batch), _accuracy(after, batch)
    assert abs(one - two) <= 2.0 * max(1.0, (200 / batch.n_tasks) ** 0.5), (
        f"{what}: accuracy goes from {one:.1f} to {two:.1f} over {batch.n_tasks} tasks"
    )


def _order(count: int) -> Tensor:
    return torch.from_numpy(np.random.default_rng(count).permutation(count))


def _picked(batch: EpisodeBatch, kind: str, rows: Any) -> EpisodeBatch:
    """The same tasks with some of their samples of a kind, `support` or `query`."""
    changes: dict[str, Any] = {
        name: getattr(batch, name)[:, rows] for name in (f"{kind}_mask", f"{kind}_labels")
    }
    changes[kind] = tuple(view[:, rows] for view in getattr(batch, kind))
    return replace(batch, **changes)


def _with_views(batch: EpisodeBatch, change: Callable[[Tensor], Tensor]) -> EpisodeBatch:
    support, query = (tuple(map(change, views)) for views in (batch.support, batch.query))
    return replace(batch, support=support, query=query)


# ---------------------------------------------------------------------------- the estimator face


def check_parameters(case: Case) -> None:
    """`get_params`, `set_params`, `clone` and pickling keep every parameter."""
    method = case.method
    parameters = method.get_params(deep=False)
    for name, value in _undeclared(type(method)).items():
        assert name in parameters, (
            f"{name} = {value!r} is not declared in a method's class with an annotation, so it is "
            f"no parameter and no part of a result's key; write '{name}: {type(value).__name__} = "
            f"{value!r}', or annotate it with ClassVar if it is the same for all instances"
        )
    for name, value in parameters.items():
        assert getattr(method, name) is value, f"parameter {name!r} is not stored as it was given"
    copy = clone(method)
    assert copy.key() == method.key(), "clone changes parameters"
    for name, value in parameters.items():
        assert copy.set_params(**{name: value}) is copy, "set_params must return the method"
    assert copy.key() == method.key(), "set_params with its own parameters changes something"
    assert pickle.loads(pickle.dumps(method)).key() == method.key(), "pickling changes parameters"
    learnt = [name for name in vars(clone(method)) if name.endswith("_")]
    assert not learnt, f"{learnt} exists before fit"
    assert method.name, "the class has no name; use @register or set the class attribute `name`"


def _undeclared(factory: type[Method]) -> dict[str, Any]:
    """Values in the bodies of a method's classes that look like parameters and are not declared."""
    out: dict[str, Any] = {}
    known = {field.name for field in fields(factory)} | {*dir(Method)}
    for kind in factory.__mro__:
        notes = get_annotations(kind)
        for name, value in vars(kind).items() if kind not in Method.__mro__ else ():
            same_for_all = "ClassVar" in str(notes.get(name, ""))
            code = callable(value) or hasattr(value, "__get__")
            if not (name in known or same_for_all or code or name.startswith("_")):
                out[name] = value
    return out


def check_estimator(case: Case) -> None:
    """`fit`, `predict` and `predict_proba` have the right shapes, sums and labels."""
    support, query = _split(case)
    clf = case.variant(base=case.base)
    assert clf.fit(support) is clf, "fit must return the method"
    assert clf.classes_.tolist() == sorted(NOVEL_CLASSES[:WAY]), f"classes_ is {clf.classes_}"
    proba = clf.predict_proba(query)
    assert proba.shape == (len(query), WAY), f"predict_proba has shape {proba.shape}"
    assert np.allclose(proba.sum(axis=1), 1.0), "probabilities do not sum to one"
    assert (proba >= 0).all(), "a probability is negative"
    predicted = clf.predict(query)
    assert predicted.shape == (len(query),), f"predict has shape {predicted.shape}"
    assert (predicted == clf.classes_[proba.argmax(axis=1)]).all(), (
        "predict and predict_proba disagree"
    )
    assert np.array_equal(proba, clf.predict_proba(query)), "the same call twice differs"
    again = case.variant(base=case.base).fit(support.with_labels(None), support.labels)
    assert np.array_equal(proba, again.predict_proba(query)), "fit(X, y) differs from fit(X)"


def check_fitted_base(case: Case) -> None:
    """A clone keeps the base set and gives the same answers."""
    support, query = _split(case)
    first = case.variant().fit_base(case.base, task=case.task())
    copy = clone(first)
    assert copy.base is not None, "clone loses the base set"
    assert copy.base.fingerprint == case.base.fingerprint, "clone changes the base set"
    wanted = first.fit(support).predict_proba(query)
    found = copy.fit(support).predict_proba(query)
    assert np.array_equal(wanted, found), "a clone with the same base set answers differently"
    if not case.method.tags.needs_base:
        alone = case.variant(base=None).fit(support).predict_proba(query)
        assert np.isfinite(alone).all(), "without a base set probabilities are not finite"


def check_bad_input(case: Case) -> None:
    """Bad input raises a FewviewError (a ValueError) with a message."""
    support, _ = _split(case)
    clf = case.variant(base=case.base).fit(support)
    one_class = support[support.labels == NOVEL_CLASSES[0]]
    wider = {view: np.ones((4, width + 1)) for view, width in WIDTHS.items()}
    bad: dict[str, Callable[[], Any]] = {
        "supports of one class": lambda: clone(clf).fit(one_class),
        "supports without labels": lambda: clone(clf).fit(support.with_labels(None)),
        "a base class among the supports": lambda: clone(clf).fit(case.base),
        "queries of another width": lambda: clf.predict(wider),
        "queries with an unknown view": lambda: clf.predict({"smell": np.ones((4, 2))}),
        "unknown scaling": lambda: clone(clf).set_params(scaling="huge").fit(support),
        "unknown padding": lambda: clone(clf).set_params(padding="foam").fit(support),
    }
    if case.method.tags.needs_base:
        bad["no base set"] = lambda: case.variant(base=None).fit(support)
    for what, action in bad.items():
        try:
            action()
        except FewviewError as error:
            _expect_message(error, what)
        except Exception as error:
            told = f"{what}: {type(error).__name__} instead of FewviewError"
            raise AssertionError(told) from error
        else:
            raise AssertionError(f"{what}: no error")


def _expect_message(error: FewviewError, what: str) -> None:
    assert str(error), f"{what}: the error has no message"


def _split(case: Case, gaps: bool = True) -> tuple[MultiViewData, MultiViewData]:
    """Two supports and six queries of each of three novel classes, some views missing."""
    data = case.novel[case.novel.codes < WAY]
    if gaps:
        mask = np.ones((len(data), len(WIDTHS)), dtype=bool)
        mask[1::4, 0] = mask[2::4, 1] = mask[3::6, 2] = False
        data = data.with_mask(mask)
    rank = np.array([np.sum(data.codes[:row] == code) for row, code in enumerate(data.codes)])
    return data[rank < 2], data[(rank >= 2) & (rank < 8)]


# ---------------------------------------------------------------------------- invariances


def check_view_order(case: Case) -> None:
    """The order of the views does not matter."""
    order, place = list(reversed(WIDTHS)), [2, 1, 0]
    task = case.task()
    method, prepared, batch = case.setting(task, case.n_compared)
    episodes = case.episodes(task, case.n_compared)
    turned = replace(
        episodes,
        support_mask=episodes.support_mask[..., place],
        query_mask=episodes.query_mask[..., place],
        view_names=tuple(order),
    )
    other = method.prepare_base(case.base.select_views(order), task)
    tasks = method.scaled(case.novel.select_views(order), other).gather(turned)
    before = _probabilities(method, prepared, batch)
    after = _probabilities(method, other, tasks)
    _compare(case, before, after, batch, "views in another order")


def check_sample_order(case: Case) -> None:
    """The order of supports does not matter."""
    supports = _order(case.task().n_support)
    _expect_same_answers(
        case, "supports in another order", lambda batch: _picked(batch, "support", supports)
    )


def check_query_order(case: Case) -> None:
    """The order of queries does not matter: those of benchmarks come class by class."""
    queries = _order(case.task().n_query)
    _expect_same_answers(
        case,
        "queries in another order",
        lambda batch: _picked(batch, "query", queries),
        lambda out: out[:, queries.argsort()],
    )


def check_constant_features(case: Case) -> None:
    """In float32, features that never vary do no harm: the order of queries still tells nothing.

    Filled gaps and means differ from them in their last digits, and dividing by that is noise.
    """
    if not case.method.tags.deterministic:
        return

    def widened(data: MultiViewData) -> MultiViewData:
        more = np.tile([0.3, 0.3, 1e3], (len(data), 1))
        return MultiViewData(
            {view: np.hstack([block, more]) for view, block in data.views.items()}, data.labels
        )

    wide = replace(case, base=widened(case.base), novel=widened(case.novel))
    method, prepared, batch = wide.setting(case.task(), method=case.variant(dtype="float32"))
    queries = _order(batch.n_query)
    before = _probabilities(method, prepared, batch)
    after = _probabilities(method, prepared, _picked(batch, "query", queries))
    what = "queries in another order, in float32 with features that never vary"
    _expect_close(after[:, queries.argsort()], before, 0.01, what)


def check_task_order(case: Case) -> None:
    """The order of the tasks does not matter, random draws included."""
    method, prepared, batch = case.setting(case.task())
    order = _order(batch.n_tasks)
    before = _probabilities(method, prepared, batch)
    after = _probabilities(method, prepared, batch.tasks(order))
    _expect_close(after[order.argsort()], before, case.tolerance, "tasks in another order")


def check_relabelling(case: Case) -> None:
    """Numbering the classes differently numbers the answers differently, nothing else."""
    order = torch.tensor([2, 0, 1])
    _expect_same_answers(
        case,
        "classes numbered differently",
        lambda batch: replace(batch, support_labels=order[batch.support_labels]),
        lambda out: out[..., order],
    )


def check_query_labels(case: Case) -> None:
    """Query labels are not used: permuting or removing them changes nothing."""
    method, prepared, batch = case.setting(case.task())
    assert batch.query_labels is not None
    wanted = method.score_batch(batch, prepared)
    turned = replace(batch, query_labels=(batch.query_labels + 1) % WAY)
    for what, other in (("permuting", turned), ("removing", batch.without_query_labels())):
        assert torch.equal(method.score_batch(other, prepared), wanted), (
            f"{what} the query labels changes the scores"
        )


def check_batch_size(case: Case) -> None:
    """A batch of one gives the same answers as a batch of many."""
    method, prepared, batch = case.setting(case.task())
    many = _probabilities(method, prepared, batch)
    count = min(batch.n_tasks, 4)
    one = [_probabilities(method, prepared, batch.tasks([index])) for index in range(count)]
    _expect_close(torch.cat(one), many[:count], case.tolerance, "one task at a time")


# ---------------------------------------------------------------------------- numbers


def check_float32(case: Case) -> None:
    """float32 agrees with float64 as far as the kind of method allows."""
    tags = case.method.tags
    count = case.n_tasks if tags.trained else 10 * case.n_tasks
    double = _probabilities(*case.setting(case.task(), count))
    method, prepared, batch = case.setting(case.task(), count, case.variant(dtype="float32"))
    single = _probabilities(method, prepared, batch)
    if tags.trained:
        gap = _accuracy(double, batch) - _accuracy(single, batch)
        allowed = 0.5 + 100 * 0.5 / (batch.n_tasks * batch.n_query) ** 0.5
        assert abs(gap) <= allowed, f"float32 changes the accuracy by {gap:.1f} points"
        return
    agree = float((double.argmax(-1) == single.argmax(-1)).double().mean())
    # Random draws and ties that are broken by order make more of a rounding error.
    wanted = 0.98 if not tags.deterministic else 0.995 if tags.iterative else 0.999
    assert agree >= wanted, f"float32 agrees with float64 in {100 * agree:.1f} % of predictions"
    if not tags.iterative and tags.deterministic:
        _expect_close(single, double, 1e-3, "float32 instead of float64")


def check_finite(case: Case) -> None:
    """NaN never leaves: odd tasks give finite scores."""
    method, prepared, batch = case.setting(case.task(eta=LARGEST_ETA, shot=1))
    complete = case.setting(case.task(eta=0.0, shot=1))[2]
    keep = torch.tensor([True, True, False])
    first = torch.zeros(batch.n_query, dtype=torch.int64)
    odd = {
        "every second view missing": batch,
        "a constant view": _with_views(batch, torch.ones_like),
        "all features zero": _with_views(batch, torch.zeros_like),
        "far outliers": replace(batch, query=tuple(1e4 * view for view in batch.query)),
        "a view that nobody has": replace(
            complete,
            support=(*complete.support[:2], torch.zeros_like(complete.support[2])),
            query=(*complete.query[:2], torch.zeros_like(complete.query[2])),
            support_mask=complete.support_mask & keep,
            query_mask=complete.query_mask & keep,
        ),
        "queries that repeat a support": replace(
            batch,
            query=tuple(view[:, first] for view in batch.support),
            query_mask=batch.support_mask[:, first],
        ),
    }
    for what, tasks in odd.items():
        scores = method.score_batch(tasks.without_query_labels(), prepared)
        wanted = (tasks.n_tasks, tasks.n_query, tasks.way)
        assert scores.shape == wanted, f"{what}: scores of shape {tuple(scores.shape)}"
        _expect_finite(scores, what)


def check_missing_views(case: Case) -> None:
    """Every missing rate up to the largest works, with a complete and with a partial base set."""
    accuracies = []
    for eta in (0.0, 0.3, LARGEST_ETA):
        method, prepared, batch = case.setting(case.task(eta=eta))
        accuracies.append(_accuracy(_probabilities(method, prepared, batch), batch))
    assert accuracies[0] > 60, (
        f"accuracy {accuracies[0]:.0f} % on easy complete data (chance is 33 %)"
    )
    assert accuracies[1] > 40, f"accuracy {accuracies[1]:.0f} % with 30 % missing"
    holes = np.ones((len(case.base), len(WIDTHS)), dtype=bool)
    holes[::3, 0] = holes[1::3, 2] = False
    try:
        partial = method.prepare_base(case.base.with_mask(holes), case.task())
    except FewviewError as error:
        _expect_message(error, "a partial base set is refused")
        return
    scores = method.score_batch(batch.without_query_labels(), partial)
    _expect_finite(scores, "a partial base set")


def check_single_query(case: Case) -> None:
    """One query alone gets a sensible answer, `scores_alone`, or an error that says why not."""
    method, prepared, batch = case.setting(case.task(eta=0.0), 4 * case.n_tasks)
    with torch.no_grad():
        alone = method.scores_alone(batch.without_query_labels(), prepared.state)
    found = []
    for index in (0, 5, 10):  # one of every class: queries come class by class
        only = _picked(batch, "query", [index])
        try:
            out = _probabilities(method, prepared, only)
        except FewviewError as error:
            _expect_message(error, "a single query is refused")
            return
        assert out.shape == (batch.n_tasks, 1, WAY), f"scores of shape {tuple(out.shape)}"
        found.append(_accuracy(out, only))
        if alone is not None and method.tags.deterministic:
            said = torch.softmax(alone[:, [index]].double().cpu(), dim=-1)
            _expect_close(said, out, case.tolerance, "scores_alone instead of a single query")
    share = sum(found) / len(found)
    assert share > 50, f"single queries are right in {share:.0f} % of easy tasks"
    none = _probabilities(method, prepared, _picked(batch, "query", []))
    assert none.shape == (batch.n_tasks, 0, WAY), "no query at all"


def check_unequal_shots(case: Case) -> None:
    """Classes may have different numbers of supports."""
    setting = case.setting(case.task(eta=0.2, shot=(1, 2, 4)))
    share = _accuracy(_probabilities(*setting), setting[2])
    assert share > 36, f"accuracy {share:.0f} % with 1, 2 and 4 shots (chance is 33 %)"


def check_side_effects(case: Case) -> None:
    """Scoring changes neither its input nor any global random generator, and repeats itself."""
    for eta in (0.0, 0.3):  # complete tasks reach a method without the copy that padding makes
        method, prepared, batch = case.setting(case.task(eta=eta))
        copies = [view.clone() for view in (*batch.support, *batch.query)]
        numpy_state: Any = np.random.get_state()  # noqa: NPY002
        torch_state = torch.random.get_rng_state()
        first = method.score_batch(batch, prepared)
        now: Any = np.random.get_state()  # noqa: NPY002
        assert np.array_equal(numpy_state[1], now[1]), "numpy's global generator was touched"
        assert numpy_state[2] == now[2], "numpy's global generator was touched"
        same = torch.equal(torch_state, torch.random.get_rng_state())
        assert same, "torch's global generator was touched"
        for before, after in zip(copies, (*batch.support, *batch.query), strict=True):
            assert torch.equal(before, after), "scores changes the batch it is given"
        again = method.score_batch(batch, prepared)
        assert torch.equal(first, again), "the same batch twice differs"


def check_one_by_one(case: Case) -> None:
    """Who does not declare to look at queries together says the same to each one alone.

    With gaps too: filling them from the queries is looking at them (`queries_together`).
    """
    if case.method.queries_together != "-":
        return
    for eta in (0.0, 0.3):
        method, prepared, batch = case.setting(case.task(eta=eta))
        together = _probabilities(method, prepared, batch)
        rows = torch.arange(batch.n_query)
        for index in range(min(batch.n_tasks, 4)):
            alone = batch.tasks([index]).one_by_one(rows)
            _expect_close(
                _probabilities(method, prepared, alone)[:, 0],
                together[index],
                case.tolerance,
                f"queries one by one with {100 * eta:.0f} % of the views missing, which needs the "
                "tag transductive (or a padding that does not look at queries)",
            )


def check_order_of_samples(case: Case) -> None:
    """Through `fit` and `predict_proba`, the order of rows and the names of classes tell nothing.

    Random draws included: they are keyed by what the samples are.
    """
    support, query = _split(case)
    clf = case.variant(base=case.base).fit(support)
    before = torch.from_numpy(clf.predict_proba(query))
    turned, mixed = _order(len(support)).numpy(), _order(len(query)).numpy()
    after = case.variant(base=case.base).fit(support[turned]).predict_proba(query[mixed])
    after = after[np.argsort(mixed)]
    _expect_close(torch.from_numpy(after), before, case.tolerance, "rows in another order")
    other = dict(zip(NOVEL_CLASSES, ("z", "y", "x", "w"), strict=True))
    assert support.labels is not None
    renamed = support.with_labels([other[label] for label in support.labels.tolist()])
    after = case.variant(base=case.base).fit(renamed).predict_proba(query)[:, ::-1].copy()
    # Sums over classes are taken in another order, which training makes more of.
    loose = 0.05 if case.method.tags.trained else max(case.tolerance, 1e-6)
    _expect_close(torch.from_numpy(after), before, loose, "classes renamed")


def check_unrelated_query(case: Case) -> None:
    """A query that shares no view with any support gets equal probabilities, and a warning.

    Unless the method declares that a base set tells it how views go together (`bridges_views`).
    """
    support, query = _split(case, gaps=False)
    last = np.arange(len(WIDTHS)) == len(WIDTHS) - 1
    support = support.with_mask(np.tile(~last, (len(support), 1)))
    only_last = (np.arange(len(query)) < 2)[:, None]
    query = query.with_mask(last | ~only_last)
    knows = case.method.tags.bridges_views
    clf = case.variant(base=case.base).fit(support)
    for ask in (clf.predict_proba, clf.proba_alone):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found = ask(query)
        assert any("share no view" in str(one.message) for one in caught), "no warning is given"
        even = bool(np.allclose(found[:2], 1 / WAY, atol=1e-9))
        assert even or knows, "a query that shares no view with any support has unequal chances"
        assert not np.allclose(found[2:], 1 / WAY), "others have equal chances too"


def check_prepare_depends_on(case: Case) -> None:
    """What is learnt from base classes depends on no field of the task that is not named."""
    tags = case.method.tags
    if tags.trained:
        return  # minutes, and which masks they are trained on is declared by their own tests
    method, task = case.variant(), case.task()
    _, rows = scale_base(case.base, method.scaling, method.dtype)
    changes: dict[str, Any] = {
        "way": 2,
        "shot": 1,
        "queries": 3,
        "missing": MissingRule("class"),
        "eta": 0.1,
    }
    named = {*tags.prepare_depends_on}
    named |= {"eta"} if "missing" in named else set()

    def learnt(task: TaskSpec) -> list[Tensor]:
        found: list[Tensor] = []

        def note(held: Tensor) -> Tensor:
            found.append(held)
            return held

        map_tensors(method.prepare(rows, task, 0), note)
        return found

    usual = learnt(task)
    for name, value in changes.items():
        if name not in named:
            for one, two in zip(usual, learnt(replace(task, **{name: value})), strict=True):
                assert torch.equal(one, two), (
                    f"prepare looks at the task's {name}; name it in the tag prepare_depends_on, "
                    "or what was learnt for one task is used for another"
                )


# Every function above that is called `check_...`, under the rest of its name.
CHECKS: dict[str, Callable[[Case], None]] = {
    name.removeprefix("check_").replace("_", " "): check
    for name, check in tuple(globals().items())
    if name.startswith("check_")
}

SCORES = "look at `scores`"
# What to do about a check that fails.
REPAIRS = {
    "parameters": "declare parameters as annotated attributes, and compute nothing from them early",
    "estimator": "let `scores` return [tasks, n_query, way] without NaN",
    "fitted base": "keep what is learnt in the state that `prepare` returns, not in the object",
    "bad input": "raise a FewviewError in `validate`, or leave checking to `fit` and `predict`",
    "view order": f"{SCORES}: order views by their names before anything depends on their place",
    "sample order": f"{SCORES}: no step may depend on which sample comes first; draw by content",
    "query order": f"{SCORES}: an answer may not depend on the place of a query among the others",
    "constant features": "add something to variances before dividing by them",
    "task order": "draw random numbers from `batch.seeds`, one stream for every task",
    "relabelling": f"{SCORES}: break ties by something else than the number of a class",
    "query labels": "do not read `batch.query_labels`",
    "batch size": f"{SCORES}: nothing may be shared between tasks (means over dimension 0?)",
    "float32": "compute differences of large numbers and matrix inverses in float64",
    "finite": "clamp logarithms, roots and divisors",
    "missing views": "use the masks: blocks have zeros where a view is missing",
    "single query": "allow one query, or none, or raise a FewviewError that says why not",
    "unequal shots": "count supports by `batch.support_labels`, not by n_support / way",
    "side effects": "do not change tensors of the batch in place, nor seed global generators",
    "one by one": "set the tag transductive=True if queries look at each other",
    "order of samples": "draw by content and not by place, or set the tag deterministic=False",
    "unrelated query": "give equal scores where no view is shared",
    "prepare depends on": "name what `prepare` reads of the task in the tag prepare_depends_on",
}


def check_method(
    method: Method,
    *,
    only: Sequence[str] | None = None,
    n_tasks: int | None = None,
    n_random_tasks: int | None = None,
    data: tuple[MultiViewData, MultiViewData] | None = None,
) -> None:
    """Run the common checks on a method; an AssertionError names what failed and what to do.

    Invariances are exact up to rounding for methods that draw no random numbers and hold within 2
    points over 200 tasks (2.8 over 100) for the others; methods that train networks are compared
    more loosely.

    Args:
        method: an instance; it is cloned, never changed.
        only: names of checks to run, from `CHECKS`; all of them when None.
        n_tasks: tasks per check: 12, or 4 for methods that train networks, when None.
        n_random_tasks: tasks where answers agree on average only: 100, or 12, when None.
        data: base and novel samples with the views and classes of `synthetic_data`.

    Raises:
        AssertionError: with the name of the method and of the check.

    Example:
        >>> from fewview.methods.proto import Proto
        >>> check_method(Proto(), only=["relabelling", "query labels"])
    """
    trained = method.tags.trained
    base, novel = data or synthetic_data()
    case = Case(
        method=method,
        base=base,
        novel=novel,
        n_tasks=n_tasks or (4 if trained else 12),
        n_random_tasks=n_random_tasks or (12 if trained else 100),
    )
    for name in CHECKS if only is None else only:
        if name not in CHECKS:
            raise FewviewError(f"no check {name!r}; the checks are {', '.join(CHECKS)}")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                CHECKS[name](case)
        except Exception as error:
            kind = "" if isinstance(error, AssertionError) else f"{type(error).__name__}: "
            raise AssertionError(
                f"{type(method).__name__} fails the check {name!r}: {kind}{error}. Likely repair: "
                f"{REPAIRS[name]}"
            ) from error
