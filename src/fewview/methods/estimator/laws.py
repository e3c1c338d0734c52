"""Laws that every method must keep, for this package's methods and for anyone else's.

`check_method(MyMethod())` makes small data of its own and raises an AssertionError that names the
law that was broken. It takes seconds for methods that train no networks. Without pytest, for
instance where there is a GPU: `python -m fewview.methods.estimator.laws --device cuda [NAME ...]`.
"""

from __future__ import annotations

import pickle
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.base import clone
from torch import Tensor

from fewview.datasets.synthetic import make_few_shot
from fewview.episodes.batch import EpisodeBatch
from fewview.episodes.sampler import EpisodeSampler
from fewview.episodes.task import TaskSpec
from fewview.errors import FewviewError
from fewview.methods.estimator.fitted_base import learn_base
from fewview.methods.estimator.law_case import (
    WAY,
    WIDTHS,
    Case,
    accuracy,
    agree,
    permutation,
    picked,
    proba,
)
from fewview.methods.estimator.method import Method, load_model
from fewview.methods.estimator.streaming import BaseStream
from fewview.methods.params import describe_params, rules_of
from fewview.numerics.iterate import tensors_in
from fewview.samples._data import MultiViewData
from fewview.samples._masks import MissingRule

# ------------------------------------------------------------------------------ order and names


def law_queries_permuted(case: Case) -> None:
    """Queries in another order have the same answers: those of benchmarks come class by class."""
    method, fitted, batch = case.setting()
    order = permutation(batch.n_query)
    turned = proba(method, fitted, picked(batch, "query", order))
    labels = picked(batch, "query", order).query_labels
    agree(case, proba(method, fitted, batch)[:, order], turned, labels, "queries permuted")


def law_supports_permuted(case: Case) -> None:
    """The order of supports says nothing."""
    method, fitted, batch = case.setting()
    turned = picked(batch, "support", permutation(batch.n_support))
    before, after = proba(method, fitted, batch), proba(method, fitted, turned)
    agree(case, before, after, batch.query_labels, "supports permuted")


def law_classes_renumbered(case: Case) -> None:
    """The number of a class says nothing, ties included."""
    method, fitted, batch = case.setting()
    order = torch.tensor([2, 0, 1])
    turned = replace(batch, support_labels=order[batch.support_labels])
    found = proba(method, fitted, turned)[..., order]
    agree(case, proba(method, fitted, batch), found, batch.query_labels, "classes renumbered")


def law_views_permuted(case: Case) -> None:
    """Names of views decide, not their order."""
    method, fitted, batch = case.setting()
    base, names = case.base.select_views(["c", "b", "a"]), [2, 1, 0]
    other = learn_base(method, base, fitted.task)
    turned = replace(
        batch,
        support=tuple(batch.support[k] for k in names),
        query=tuple(batch.query[k] for k in names),
        support_mask=batch.support_mask[..., names],
        query_mask=batch.query_mask[..., names],
        view_names=tuple(batch.view_names[k] for k in names),
    )
    before, after = proba(method, fitted, batch), proba(method, other, turned)
    agree(case, before, after, batch.query_labels, "views permuted")


def law_tasks_apart(case: Case) -> None:
    """One task has the same answer in a batch, by itself, and among others in another order."""
    if case.method.tags.learns_from == "tasks":
        return
    method, fitted, batch = case.setting()
    whole = proba(method, fitted, batch)
    order = permutation(batch.n_tasks)
    turned = batch.tasks(order)
    agree(case, whole[order], proba(method, fitted, turned), turned.query_labels, "tasks permuted")
    for task in range(min(3, batch.n_tasks)):
        one = proba(method, fitted, batch.tasks(slice(task, task + 1)))
        tolerance = 1e-3 if case.method.tags.trained else 1e-5
        worst = float((one[0] - whole[task]).abs().max())
        assert worst <= tolerance, f"a task by itself: probabilities move by {worst:.2g}"


def law_rows_and_names(case: Case) -> None:
    """Through fit and predict_proba, neither the order of rows nor names of classes matter."""
    support, query = case.task()
    clf = case.make(base=case.base).fit(support)
    before = torch.from_numpy(clf.predict_proba(query))
    rows = permutation(len(query)).numpy()
    turned = case.make(base=case.base).fit(support[permutation(len(support)).numpy()])
    after = torch.from_numpy(turned.predict_proba(query[rows])[np.argsort(rows)])
    assert float((before - after).abs().max()) <= 1e-5, "rows in another order"
    assert support.labels is not None
    names = dict(zip(clf.classes_.tolist(), ("z", "y", "x"), strict=True))
    renamed = support.with_labels([names[label] for label in support.labels.tolist()])
    after = torch.from_numpy(case.make(base=case.base).fit(renamed).predict_proba(query))
    loose = 0.05 if case.method.tags.trained else 1e-5
    assert float((before - after.flip(-1)).abs().max()) <= loose, "classes renamed"


# ------------------------------------------------------------------------------ use of the data


def law_query_labels_unread(case: Case) -> None:
    """Query labels never reach a score: every bit is the same with others, and without them."""
    method, fitted, batch = case.setting()
    assert batch.query_labels is not None
    found = [
        method.score_batch(replace(batch, query_labels=labels), fitted)
        for labels in (batch.query_labels, batch.query_labels.flip(1), None)
    ]
    assert torch.equal(found[0], found[1]), "scores follow the query labels"
    assert torch.equal(found[0], found[2]), "scores differ without query labels"


def law_gaps_unread(case: Case) -> None:
    """What stands in the place of a missing view is never read: every bit."""
    method, fitted, _ = case.setting()
    mask = np.random.default_rng(0).random((len(case.novel), len(WIDTHS))) < 0.7
    mask[~mask.any(axis=1), 0] = True
    novel = case.novel.with_mask(mask)
    blocks = {view: block.copy() for view, block in case.novel.views.items()}
    for index, view in enumerate(blocks):
        blocks[view][~mask[:, index]] = 1e6
    filled = MultiViewData(blocks, case.novel.labels, mask=mask)
    task = TaskSpec(way=WAY, shot=2, queries=5)
    episodes = EpisodeSampler(novel, task, name="laws").draw(0, case.n_tasks)
    one, two = (method.score_episodes(data, episodes, fitted) for data in (novel, filled))
    assert torch.equal(one, two), "scores depend on values of missing views"


def law_inductive(case: Case) -> None:
    """Who does not declare to look at queries together says the same of each one by itself."""
    for eta in (0.0, 0.3):
        method, fitted, batch = case.setting(eta=eta)
        batch = batch.tasks(slice(0, 1))
        rows = torch.arange(batch.n_query)
        single = proba(method, fitted, batch.one_by_one(rows))[:, 0]
        with torch.no_grad():
            quick = method.scores_inductive(replace(batch, query_labels=None), fitted.state)
        if quick is not None and case.exact:
            quick = torch.softmax(quick[0].double(), dim=-1)
            agree(case, single, quick, None, "scores_inductive instead of one query at a time")
        if method.looks_at_queries == "-":
            agree(
                case, single, proba(method, fitted, batch)[0], batch.tasks(0).query_labels,
                "queries one by one, which needs the tag transductive (or a padding that does not "
                "look at queries)",
            )  # fmt: skip


def law_depends_on(case: Case) -> None:
    """What is learnt depends on no field of the task but those named in the tag `depends_on`."""
    tags = case.method.tags
    if tags.trained:
        return  # minutes; their own tests look at it
    method, task = case.make(), TaskSpec(way=WAY, shot=2, queries=5, eta=0.3)
    scaled = learn_base(method, case.base, task).scaling.transform(case.base, "float64")
    named = {*tags.depends_on} | ({"eta"} if "missing" in tags.depends_on else set())

    def learnt(task: TaskSpec) -> list[Tensor]:
        return list(tensors_in(method.learn(scaled, task, 0)))

    usual = learnt(task)
    changes: dict[str, Any] = {
        "way": 2,
        "shot": 1,
        "queries": 3,
        "missing": MissingRule("class"),
        "eta": 0.1,
    }
    for name, value in changes.items():
        if name in named:
            continue
        for one, two in zip(usual, learnt(replace(task, **{name: value})), strict=True):
            assert torch.equal(one, two), (
                f"learn looks at the task's {name}; name it in the tag depends_on, or what was "
                "learnt for one task is used for another"
            )


def law_no_side_effects(case: Case) -> None:
    """Scoring changes neither its input nor a global random generator, and repeats itself."""
    for eta in (0.0, 0.3):  # complete tasks reach a method without the copy that padding makes
        method, fitted, batch = case.setting(eta=eta)
        copies = [view.clone() for view in (*batch.support, *batch.query)]
        numpy_state: Any = np.random.get_state()  # noqa: NPY002
        torch_state = torch.random.get_rng_state()
        first = method.score_batch(batch, fitted)
        now: Any = np.random.get_state()  # noqa: NPY002
        assert np.array_equal(numpy_state[1], now[1]), "numpy's global generator was touched"
        same = torch.equal(torch_state, torch.random.get_rng_state())
        assert same, "torch's global generator was touched"
        for before, after in zip(copies, (*batch.support, *batch.query), strict=True):
            assert torch.equal(before, after), "scores changes the batch it is given"
        assert torch.equal(first, method.score_batch(batch, fitted)), "twice differs"


def law_parts_equal_whole(case: Case) -> None:
    """A base set in parts, in any order and merged, teaches what the whole one does."""
    method = case.make()
    try:
        start = BaseStream.start(method, case.base)
    except FewviewError:
        return  # it cannot sum
    half = len(case.base) // 2
    one = start.update(case.base[:half]).update(case.base[half:]).finish(method)
    two = start.update(case.base[half:]).merge(start.update(case.base[:half])).finish(method)
    support, query = case.task()
    whole = case.make().fit_base(case.base, task=one.task).fit(support).predict_proba(query)
    for name, fitted in (("in parts", one), ("merged", two)):
        found = case.make(base=fitted).fit(support).predict_proba(query)
        if case.exact:
            worst = np.abs(found - whole).max()
            assert worst <= 1e-5, f"a base set {name}: probabilities move by up to {worst:.2g}"


# ------------------------------------------------------------------------------ numbers


def law_odd_shapes(case: Case) -> None:
    """One query, no query, unequal shots, and views that somebody lacks get sensible answers."""
    method, fitted, batch = case.setting(eta=0.0)
    right = []
    for index in (0, 5, 10):  # one of every class: queries come class by class
        only = picked(batch, "query", [index])
        right.append(accuracy(proba(method, fitted, only), only))
    share = sum(right) / len(right)
    assert share > 50, f"single queries are right in {share:.0f} % of easy tasks"
    none = proba(method, fitted, picked(batch, "query", []))
    assert none.shape == (batch.n_tasks, 0, WAY), "no query at all"
    method, fitted, batch = case.setting(eta=0.2, shot=(1, 2, 4))
    share = accuracy(proba(method, fitted, batch), batch)
    assert share > 36, f"accuracy {share:.0f} % with 1, 2 and 4 shots (chance is 33 %)"


def law_unrelated_query(case: Case) -> None:
    """A query that shares no view with any support has equal probabilities, and a warning."""
    support, query = case.task(gaps=False)
    last = np.array([False, False, True])
    support = support.with_mask(np.tile(~last, (len(support), 1)))
    query = query.with_mask(last | (np.arange(len(query)) >= 2)[:, None])
    clf = case.make(base=case.base).fit(support)
    for inductive in (False, True):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found = clf.predict_proba(query, inductive=inductive)
        assert any("share no view" in str(one.message) for one in caught), "no warning is given"
        even = bool(np.allclose(found[:2], 1 / WAY, atol=1e-9))
        assert even or case.method.tags.links_views, "an unrelated query has unequal chances"
        assert not np.allclose(found[2:], 1 / WAY), "others have equal chances too"


def law_finite(case: Case) -> None:
    """Odd numbers give finite scores."""
    method, fitted, batch = case.setting(eta=2 / 3, shot=1)
    first = torch.zeros(batch.n_query, dtype=torch.int64)

    def all_views(change: Callable[[Tensor], Tensor]) -> EpisodeBatch:
        support, query = (tuple(map(change, part)) for part in (batch.support, batch.query))
        return replace(batch, support=support, query=query)

    repeated = tuple(view[:, first] for view in batch.support)
    odd = {
        "the largest missing rate": batch,
        "a constant view": all_views(torch.ones_like),
        "all features zero": all_views(torch.zeros_like),
        "far outliers": replace(batch, query=tuple(1e4 * view for view in batch.query)),
        "queries that repeat a support": replace(
            batch, query=repeated, query_mask=batch.support_mask[:, first]
        ),
    }
    for what, tasks in odd.items():
        scores = method.score_batch(replace(tasks, query_labels=None), fitted)
        assert bool(torch.isfinite(scores).all()), f"{what}: scores are not finite"


def law_precision_and_device(case: Case) -> None:
    """float32 agrees with float64, and a GPU with a CPU."""
    tags = case.method.tags
    double = proba(*(setting := case.setting()))
    for where in ["cpu"] + ["cuda"] * torch.cuda.is_available():
        method, fitted, batch = case.setting(dtype="float32", device=where)
        single = proba(method, fitted, batch)
        if tags.trained:
            gap = abs(accuracy(double, setting[2]) - accuracy(single, batch))
            assert gap <= 15, f"float32 on {where} changes the accuracy by {gap:.1f} points"
            continue
        top = double.sort(-1).values
        clear = top[..., -1] - top[..., -2] > 1e-3
        same = (double.argmax(-1) == single.argmax(-1))[clear].double().mean()
        wanted = 0.98 if tags.random else 0.995 if tags.iterative else 0.999
        assert same >= wanted, f"float32 on {where} agrees in {100 * same:.1f} % of answers"


def law_learns(case: Case) -> None:
    """Accuracy above 60 % on easy complete tasks, above 40 % with 30 % of the views missing."""
    for eta, least in ((0.0, 60), (0.3, 40)):
        method, fitted, batch = case.setting(eta=eta)
        share = accuracy(proba(method, fitted, batch), batch)
        assert share > least, f"accuracy {share:.0f} % at a missing rate of {eta} (chance is 33 %)"
    holes = np.ones((len(case.base), len(WIDTHS)), dtype=bool)
    holes[::3, 0] = holes[1::3, 2] = False
    partial = learn_base(method, case.base.with_mask(holes), TaskSpec(way=WAY, shot=2, eta=0.3))
    scores = method.score_batch(replace(batch, query_labels=None), partial)
    assert bool(torch.isfinite(scores).all()), "a base set with gaps: scores are not finite"


# ------------------------------------------------------------------------------ the estimator


def law_estimator(case: Case) -> None:
    """fit, predict and predict_proba have the right shapes, sums and labels; clones agree."""
    support, query = case.task()
    clf = case.make(base=case.base)
    assert clf.fit(support) is clf, "fit must return the method"
    found = clf.predict_proba(query)
    assert found.shape == (len(query), WAY), f"predict_proba has shape {found.shape}"
    assert np.allclose(found.sum(axis=1), 1.0), "probabilities do not sum to one"
    assert (clf.predict(query) == clf.classes_[found.argmax(axis=1)]).all(), "predict differs"
    assert np.array_equal(found, clf.predict_proba(query)), "the same call twice differs"
    apart = case.make(base=case.base).fit(support.with_labels(None), support.labels)
    assert np.array_equal(found, apart.predict_proba(query)), "fit(X, y) differs from fit(X)"
    first = case.make().fit_base(case.base)
    for one in (clone(first), pickle.loads(pickle.dumps(first))):
        assert one.base is not None, "a copy loses the base set"
        wanted = first.fit(support).predict_proba(query)
        assert np.array_equal(one.fit(support).predict_proba(query), wanted), "a copy differs"
    if not case.method.tags.needs_base:
        free = case.make().fit(support).predict_proba(query)
        assert np.isfinite(free).all(), "without a base set probabilities are not finite"


def law_saved_and_loaded(case: Case) -> None:
    """A model that is saved and loaded gives every bit of the same answers."""
    support, query = case.task()
    clf = case.make(base=case.base).fit(support)
    if not case.method.name:
        return  # a class without a name cannot be in a file
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.model"
        clf.save(path, base_rows=True, calibrate=False)
        found = load_model(path).predict_proba(query)
    assert np.array_equal(found, clf.predict_proba(query)), "a loaded model answers differently"


def law_parameters(case: Case) -> None:
    """Every parameter is declared, stored as given, kept by clone, and checked."""
    method = case.method
    rules_of(type(method))  # a class that declares parameters is a dataclass
    copy = clone(method)
    assert describe_params(copy) == describe_params(method), "clone changes parameters"
    for name, value in method.get_params(deep=False).items():
        assert getattr(method, name) is value, f"parameter {name!r} is not stored as it was given"
        rules = rules_of(type(method))[name]
        for wrong in [float("nan")] * ("above" in rules or "least" in rules) + ["?"] * bool(rules):
            message = refusal(clone(method).set_params(**{name: wrong}).check)
            assert name in message, f"{name}={wrong!r} is not refused by its name: {message}"


def law_bad_input(case: Case) -> None:
    """Bad input raises a FewviewError with a message."""
    support, _ = case.task()
    clf = case.make(base=case.base).fit(support)
    wider = {view: np.ones((4, width + 1)) for view, width in WIDTHS.items()}
    bad: dict[str, Callable[[], Any]] = {
        "supports of one class": lambda: clone(clf).fit(support[support.codes == 0]),
        "supports without labels": lambda: clone(clf).fit(support.with_labels(None)),
        "a base class among the supports": lambda: clone(clf).fit(case.base),
        "queries of another width": lambda: clf.predict(wider),
        "queries with an unknown view": lambda: clf.predict({"smell": np.ones((4, 2))}),
    }
    if case.method.tags.needs_base:
        bad["no base set"] = lambda: case.make(base=None).fit(support)
    for what, action in bad.items():
        assert refusal(action), f"{what}: no error"


def refusal(action: Callable[[], Any]) -> str:
    """The message of the FewviewError that an action raises; empty if it raises none."""
    try:
        action()
    except FewviewError as error:
        return str(error)
    return ""


LAWS: dict[str, Callable[[Case], None]] = {
    name.removeprefix("law_").replace("_", " "): law
    for name, law in tuple(globals().items())
    if name.startswith("law_")
}


def check_method(
    method: Method | type[Method], *, only: Sequence[str] | None = None, n_tasks: int | None = None
) -> None:
    """Check the laws for a method; an AssertionError names the one that is broken, and how.

    Args:
        method: an instance or a class; it is cloned, never changed.
        only: names of laws from `LAWS`; all of them when None.
        n_tasks: tasks of a law: 12, 4 where networks are trained, 60 for random numbers.

    Example:
        >>> from fewview import Proto
        >>> check_method(Proto(), only=["classes renumbered", "query labels unread"])
    """
    for name, problem in broken_laws(method, only=only, n_tasks=n_tasks):
        raise AssertionError(f"{type(method).__name__} breaks the law {name!r}: {problem}")


def broken_laws(
    method: Method | type[Method], *, only: Sequence[str] | None = None, n_tasks: int | None = None
) -> Iterator[tuple[str, str]]:
    """Names of the laws that a method breaks, and what happened; see `check_method`."""
    made: Any = method() if isinstance(method, type) else method
    tags = made.tags
    data = make_few_shot(10, 20, WIDTHS, seed=1)
    count = n_tasks or (4 if tags.trained else 60 if tags.random else 12)
    case = Case(made, data[data.codes < 6], data[data.codes >= 6], count)
    for name in LAWS if only is None else only:
        if name not in LAWS:
            raise FewviewError(f"no law {name!r}; they are {', '.join(LAWS)}")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                LAWS[name](case)
        except Exception as error:
            kind = "" if isinstance(error, AssertionError) else f"{type(error).__name__}: "
            yield name, f"{kind}{error}"


def main(arguments: Sequence[str]) -> int:
    """Check methods by name, all but networks where none is named; prints a line for each."""
    from fewview.methods.registry import create, expand

    device = arguments[arguments.index("--device") + 1] if "--device" in arguments else "cpu"
    named = [one for one in arguments if one not in ("--device", device)]
    failed = 0
    for name in expand(",".join(named) or "all"):
        found = list(broken_laws(create(name, device=device)))
        failed += bool(found)
        print(f"{name}: {'; '.join(': '.join(one) for one in found) or 'all laws hold'}")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
