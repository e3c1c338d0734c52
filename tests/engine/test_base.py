"""The estimator face, padding by hand, random numbers, and the language of `--methods`."""

import re
import warnings
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.model_selection import (
    GridSearchCV,
    StratifiedKFold,
    cross_val_score,
    train_test_split,
)

import fewview.ground._draws as view_random
import fewview.numerics._tensor_draws as method_random
from fewview import EpisodeBatch, FewviewError, FewviewWarning, MultiViewData, TaskSpec, create
from fewview.engine._checks import check_method, synthetic_data
from fewview.engine._contract import Contract
from fewview.engine._method import Method, compare_alone
from fewview.engine._registry import expand, get_entry, names, register
from fewview.engine._state import State, Tags
from fewview.methods.bavardage import Bavardage
from fewview.methods.proto import Proto
from fewview.numerics._padding import pad

NAN = float("nan")
KNOWN = (6457827717110365317, 3203168211198807973, 9817491932198370423)


# ---------------------------------------------------------------------------- estimator


@pytest.mark.parametrize("with_base", [False, True])
def test_scikit_learn_takes_multi_view_data(with_base: bool) -> None:
    base, novel = synthetic_data()
    mask = np.ones(novel.mask.shape, dtype=bool)
    mask[::3, 1] = False
    novel = novel.with_mask(mask)
    clf, enough = (Bavardage(base=base), 0.6) if with_base else (Proto(), 0.8)
    train, test, y_train, y_test = train_test_split(
        novel, novel.labels, train_size=0.3, random_state=0, stratify=novel.labels
    )
    assert isinstance(train, MultiViewData)
    assert clf.fit(train, y_train).score(test, y_test) > enough
    folds = StratifiedKFold(4)
    assert cross_val_score(clf, novel, novel.labels, cv=folds).mean() > enough
    search = GridSearchCV(clf, {"padding": ["episode", "zero"]}, cv=folds)
    search.fit(novel, novel.labels)
    assert search.best_score_ > enough
    assert (search.predict(test) == search.best_estimator_.predict(test)).all()


def test_base_is_kept_and_checked() -> None:
    base, novel = synthetic_data()
    clf = Bavardage().fit_base(base)
    assert clone(clf).base is not None
    assert clone(clf).fit(novel[::5]).score(novel, novel.labels) > 0.8
    with pytest.raises(FewviewError, match="learns from base classes first"):
        Bavardage().fit(novel)
    with pytest.raises(FewviewError, match="must not overlap"):
        Proto(base=base).fit(base)
    with pytest.raises(FewviewError, match="of one class"):
        Proto().fit([[1.0], [2.0]], ["a", "a"])
    with pytest.raises(ValueError, match="not fitted"):
        Proto().predict([[1.0]])


def test_views_may_come_in_any_order_and_be_absent() -> None:
    _, novel = synthetic_data()
    clf = Proto().fit(novel[::5])
    turned = novel.select_views(["sound", "colour", "shape"])
    assert (clf.predict(turned) == clf.predict(novel)).all()
    assert clf.predict(novel.select_views(["shape"])).shape == (80,)


def test_a_transductive_method_warns_about_one_query() -> None:
    _, novel = synthetic_data()
    clf = create("ptmap").fit(novel[::5])
    with pytest.warns(FewviewWarning, match="all queries together"):
        clf.predict(novel[:1])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        clf.predict(novel)
        create("proto").fit(novel[::5]).predict(novel[:1])


def test_a_method_that_assumes_balance_warns_about_unbalanced_queries() -> None:
    _, novel = synthetic_data()
    clf = create("ptmap").fit(novel[::5])
    lopsided = novel[[*range(20), 25, 45, 65]]
    with pytest.warns(FewviewWarning, match="unbalanced"):
        clf.predict(lopsided)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        create("paddle").fit(novel[::5]).predict(lopsided)


def test_what_queries_say_alone_is_compared_with_what_they_say_together() -> None:
    # Two classes; alone 0.9, 0.6 and 0.2 for the first, together the second, the first, the first:
    # 0.9 - 0.1, nothing, 0.8 - 0.2, a third of which is 1.4 / 3. Shares (0.9 + 0.6 + 0.2) / 3.
    alone = torch.tensor([[0.9, 0.1], [0.6, 0.4], [0.2, 0.8]]).log()
    together = torch.tensor([[0.0, 1.0], [3.0, 1.0], [0.2, 0.1]])
    shares, lost = compare_alone(alone, together)
    assert shares.tolist() == pytest.approx([1.7 / 3, 1.3 / 3])
    assert float(lost) == pytest.approx(1.4 / 3)


class Stubborn(Method):
    """The first view of a query is its probability of class 1 alone, the second that together."""

    pull: float = 0.5
    transductive: bool = True

    @property
    def tags(self) -> Tags:  # type: ignore[override]
        return Tags(transductive=True, assumes_balance=self.pull)

    def scores(self, batch: EpisodeBatch, state: State) -> torch.Tensor:
        return self.said(batch, 1)

    def scores_alone(self, batch: EpisodeBatch, state: State) -> torch.Tensor:
        return self.said(batch, 0)

    def said(self, batch: EpisodeBatch, view: int) -> torch.Tensor:
        # Class 1 is the one whose support is 1, wherever its column is.
        one = batch.one_hot().mT @ batch.support[0]
        return (1 - one.mT + (2 * one.mT - 1) * batch.query[view]).log()


@pytest.mark.parametrize(
    ("alone", "together", "parameters", "message"),
    [
        # Nine of ten in one class: 0.4 away from equal shares.
        ([0.9] * 10, [0.9] * 10, {}, r"Stubborn pulls towards .* \(10 %, 90 % by what the supp"),
        ([0.9] * 10, [0.9] * 10, {"pull": 1.0}, r"Stubborn assumes equally many"),
        ([0.9] * 10, [0.9] * 10, {"pull": 0.0}, ""),
        ([0.9] * 9, [0.9] * 9, {}, ""),  # fewer than five a class
        ([0.75] * 10, [0.9] * 10, {}, ""),  # 0.25 away
        # Four of ten are turned over, of which each costs 0.8: 0.32.
        (
            [0.9, 0.1] * 5, [0.1, 0.9, 0.1, 0.9] + [0.9, 0.1] * 3, {"pull": 0.0},
            r"Stubborn gives 40 % of .* than each would get alone, and .* are 32 points less",
        ),
        ([0.9, 0.1] * 5, [0.1, 0.9] + [0.9, 0.1] * 4, {}, ""),  # two: 0.16
        ([0.6, 0.4] * 5, [0.4, 0.6] * 5, {}, ""),  # all of them, but alone nothing was sure
        ([0.9] * 10, [0.1] * 10, {}, r"unbalanced .*; it gives 100 % of"),
        ([0.9] * 10, [0.1] * 10, {"transductive": False}, ""),
    ],
)  # fmt: skip
def test_queries_that_change_much_or_look_unbalanced_are_told_once(
    alone: list[float], together: list[float], parameters: dict[str, Any], message: str
) -> None:
    clf = Stubborn(scaling="none", dtype="float64", **parameters)
    clf.fit({"a": [[0.0], [1.0]], "b": [[0.0], [1.0]]}, [0, 1])
    queries = {"a": np.array(alone)[:, None], "b": np.array(together)[:, None]}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        clf.predict(queries)
    assert len(caught) == bool(message)
    if message:
        assert re.search(message, str(caught[0].message))
        assert caught[0].filename == __file__
    assert clf.proba_alone(queries)[:, 1] == pytest.approx(alone)


@pytest.mark.parametrize(
    "name",
    ["marginal", "ptmap", "proto", "proto:padding=episode", "ugda", "partial-nn"],
)
def test_alone_is_what_a_single_query_gets(name: str) -> None:
    base, novel = synthetic_data()
    clf = create(name, dtype="float64", max_memory=1e-4).fit_base(base).fit(novel[::5])
    mask = np.ones((16, 3), dtype=bool)
    mask[::3, 1] = mask[1::3, 0] = False
    query = novel[1::5].with_mask(mask)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FewviewWarning)
        single = np.concatenate([clf.predict_proba(query[k : k + 1]) for k in range(len(query))])
        together = clf.predict_proba(query)
    alone = clf.proba_alone(query)
    np.testing.assert_allclose(alone, single, atol=1e-6)
    # Proto looks at queries one by one, but the padding `episode` at all of them.
    assert np.allclose(alone, together, atol=1e-6) == (clf.queries_together == "-")
    assert (clf.queries_together == "-") == (name in ("partial-nn", "proto"))
    assert clf.proba_alone(query[:0]).shape == (0, 4)


def test_queries_one_by_one_need_no_memory_of_their_square() -> None:
    # As pairs of 10 000 queries of 400 features these would be 160 GB.
    clf = create("ptmap").fit(MultiViewData(np.eye(4, 400), ["a", "b", "c", "d"]))
    queries = np.tile(np.eye(4, 400), (2500, 1))
    found = clf.proba_alone(queries).argmax(1)
    assert found.tolist() == [0, 1, 2, 3] * 2500


def test_scores_alone_that_are_not_those_of_a_single_query_are_found() -> None:
    class Wrong(type(create("marginal"))):  # type: ignore[misc]
        def scores_alone(self, batch: EpisodeBatch, state: State) -> torch.Tensor:
            return self.scores(batch, state)

    check_method(create("marginal"), only=["single query"])
    with pytest.raises(AssertionError, match="scores_alone instead of a single query"):
        check_method(Wrong(), only=["single query"])


def test_marginal_says_that_one_class_dominates() -> None:
    base, novel = synthetic_data()
    clf = create("marginal").fit_base(base).fit(novel[::5])
    with pytest.warns(FewviewWarning, match="Marginal pulls towards equally many .* unbalanced"):
        clf.predict(novel[[*range(20), 25, 45, 65]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        clf.predict(novel)
        clf.set_params(transductive=False).fit(novel[::5]).predict(novel[:20])


def test_the_pull_of_marginal_is_its_balance() -> None:
    pulls = {"": 0.5, ":balance=0": 0.0, ":balance=1": 1.0, ":transductive=false": 0.0}
    for text, pull in pulls.items():
        assert create(f"marginal{text}").tags.assumes_balance == pull


def test_batches_split_by_memory_do_not_matter() -> None:
    from fewview import EpisodeSampler

    base, novel = synthetic_data()
    task = TaskSpec(way=3, shot=1, queries=5, eta=0.3)
    episodes = EpisodeSampler(novel, task).draw(0, 12)
    out = []
    for gib in (1.0, 4e-6):
        method = create("ptmap", dtype="float64", max_memory=gib)
        out.append(method.score_episodes(novel, episodes, method.prepare_base(base, task)))
    assert torch.allclose(*out, atol=1e-6)


@pytest.mark.parametrize(("card", "gib"), [(139, 16.0), (8, 4.0)])
def test_the_budget_of_a_batch_follows_from_the_kind_of_device(
    monkeypatch: pytest.MonkeyPatch, card: int, gib: float
) -> None:
    shape = (5, 75, {"a": 100}, 5)
    here = create("ptmap").batch_size(*shape)
    assert here == create("ptmap", max_memory=1.0).batch_size(*shape)
    monkeypatch.setattr(Contract, "torch_device", property(lambda _: torch.device("cuda")))
    properties = SimpleNamespace(total_memory=card * 2**30)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
    there = create("ptmap").batch_size(*shape)
    assert there == create("ptmap", max_memory=gib).batch_size(*shape) > here
    assert create("ptmap", max_memory=1.0).batch_size(*shape) == here
    # Rows of methods that do little else than read them stay in the caches of a CPU alone.
    assert create("proto").batch_size(*shape) > (8 << 20) // (4 * 80 * 100)
    monkeypatch.undo()
    assert create("proto").batch_size(*shape) == (8 << 20) // (4 * 80 * 100)
    assert create("proto", max_memory=1e-4).batch_size(*shape) < 2
    assert create("proto").batch_size(5, 75, {"a": 10**6}, 5) == 1


# ---------------------------------------------------------------------------- padding


def batch() -> EpisodeBatch:
    """Two views of width one; class 0 has supports 0 and 1, class 1 support 2; two queries."""
    return EpisodeBatch(
        support=(torch.tensor([[[1.0], [0.0], [0.0]]]), torch.tensor([[[5.0], [7.0], [9.0]]])),
        query=(torch.tensor([[[4.0], [0.0]]]), torch.tensor([[[0.0], [3.0]]])),
        support_mask=torch.tensor([[[True, True], [False, True], [False, True]]]),
        query_mask=torch.tensor([[[True, False], [False, True]]]),
        support_labels=torch.tensor([[0, 0, 1]]),
        query_labels=None,
        seeds=torch.tensor([0]),
        way=2,
        view_names=("a", "b"),
    )


@pytest.mark.parametrize(
    ("rule", "support_a", "query_a", "query_b"),
    [
        ("zero", [1.0, 1.0, 0.0], [4.0, 0.0], [0.0, 3.0]),
        ("episode", [1.0, 1.0, 2.5], [4.0, 2.5], [6.0, 3.0]),
        ("support", [1.0, 1.0, 1.0], [4.0, 1.0], [7.0, 3.0]),
        ("base", [1.0, 1.0, -1.0], [4.0, -1.0], [-2.0, 3.0]),
    ],
)
def test_padding_by_hand(
    rule: str, support_a: list[float], query_a: list[float], query_b: list[float]
) -> None:
    found = pad(batch(), rule, (torch.tensor([-1.0]), torch.tensor([-2.0])))
    assert found.support[0].flatten().tolist() == support_a
    assert found.support[1].flatten().tolist() == [5.0, 7.0, 9.0]
    assert found.query[0].flatten().tolist() == query_a
    assert found.query[1].flatten().tolist() == query_b


def test_a_view_that_nobody_has_is_padded_by_the_base_mean() -> None:
    gone = replace(
        batch(),
        support_mask=batch().support_mask & torch.tensor([False, True]),
        query_mask=batch().query_mask & torch.tensor([False, True]),
    )
    for rule in ("episode", "support", "base"):
        found = pad(gone, rule, (torch.tensor([-1.0]), torch.tensor([-2.0])))
        assert found.support[0].flatten().tolist() == [-1.0] * 3
        assert pad(gone, rule).query[0].flatten().tolist() == [0.0] * 2
    with pytest.raises(FewviewError, match="not one of"):
        pad(gone, "foam")


def test_padding_counts_weighted_supports_by_their_weight() -> None:
    data = replace(
        batch(),
        support_mask=torch.tensor([[[True, True], [True, True], [False, True]]]),
        support=(torch.tensor([[[1.0], [3.0], [0.0]]]), batch().support[1]),
        support_labels=torch.tensor([[0, 0, 0]]),
        support_weights=torch.tensor([[3.0, 1.0, 1.0]]),
    )
    assert pad(data, "zero").support[0][0, 2].item() == pytest.approx(1.5)


# ---------------------------------------------------------------------------- random numbers


def test_split_mix_64_known_answers() -> None:
    seed = np.array([1234567], dtype=np.uint64)
    assert tuple(view_random.raw(seed, 3)[0].tolist()) == KNOWN
    found = method_random.raw(torch.tensor([1234567]), 3)[0]
    assert tuple(int(value) % 2**64 for value in found) == KNOWN


def test_torch_generator_is_numpys() -> None:
    seeds = np.array([0, 1, 2**63, 2**64 - 1], dtype=np.uint64)
    tensor = torch.from_numpy(seeds.view(np.int64))
    key = view_random.stream_key("anchors", 3)
    streams = view_random.combine(seeds, key)
    found = method_random.streams(tensor, "anchors", 3)
    assert np.array_equal(found.numpy().view(np.uint64), streams)
    wanted = view_random.raw(streams, 7)
    assert np.array_equal(method_random.raw(found, 7).numpy().view(np.uint64), wanted)
    uniform = method_random.uniform(found, (7,), torch.float64).numpy()
    assert np.abs(uniform - view_random.uniform(streams, 7)).max() < 2.0**-52


def test_random_numbers_do_not_depend_on_the_batch() -> None:
    seeds = torch.arange(6)
    for draw in (method_random.uniform, method_random.normal):
        many = draw(method_random.streams(seeds, "x"), (3, 5))
        assert many.shape == (6, 3, 5)
        one = draw(method_random.streams(seeds[4:5], "x"), (3, 5))
        assert torch.equal(one[0], many[4])
        other = draw(method_random.streams(seeds, "y"), (3, 5))
        assert not torch.equal(other, many)
    table = method_random.substreams(seeds[:, None], torch.arange(4))
    assert len(torch.unique(table)) == 24


def test_normal_numbers_are_normal() -> None:
    z = method_random.normal(torch.arange(50), 4001, torch.float64).flatten()
    assert abs(float(z.mean())) < 0.01
    assert abs(float(z.std()) - 1) < 0.01
    assert abs(float((z**4).mean()) - 3) < 0.1
    assert bool(torch.isfinite(z).all())


# ---------------------------------------------------------------------------- registry


def test_parameters_in_text() -> None:
    method = create("ptmap:power=signed:n_iter=5:step=0.5:scaling=none")
    assert (method.power, method.n_iter, method.step) == ("signed", 5, 0.5)
    assert method.scaling == "none"
    assert create("tim:weights=1+2+0.5").weights == (1, 2, 0.5)
    assert create("tim:reduce=true").reduce is True
    assert create("concat-logistic:estimator=none").estimator is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("prot", "did you mean proto"),
        ("proto:paddin=zero", "did you mean padding"),
        ("proto:padding", "parameter=value"),
        ("proto:padding=foam", "must be one of"),
        ("proto:base=x", "no parameter 'base'"),
        ("tim:reduce=7", "true or false"),
        ("ptmap:power=cube", "power is 'cube'"),
        ("match:temperature=0", "temperature"),
        ("rfs:C=-1", "C is -1"),
        ("bd-cspn:n_pseudo=-1", "n_pseudo"),
        ("paddle:rescale=big", "rescale"),
        ("bavardage:n_iter=0", "at least 1"),
        ("partial-nn:weighting=sum", "weighting"),
        ("concat-logistic:impute=guess", "impute"),
        ("concat-logistic:n_neighbors=0", "n_neighbors"),
        ("tim:solver=newton", "solver"),
    ],
)
def test_bad_text(text: str, message: str) -> None:
    with pytest.raises(FewviewError, match=message):
        create(text)


def test_names_and_all() -> None:
    wanted = [
        "proto",
        "match",
        "tim",
        "tim-adm",
        "ptmap",
        "rfs",
        "bd-cspn",
        "alpha-tim",
        "paddle",
        "bavardage",
        "concat-logistic",
        "concat-hgb",
        "partial-nn",
    ]
    assert set(wanted) <= set(names())
    assert set(wanted) <= set(expand("all"))
    assert expand("proto, match,proto") == ["proto", "match"]
    with pytest.raises(FewviewError, match="no methods"):
        expand(",")


def test_two_methods_cannot_share_a_name() -> None:
    with pytest.raises(FewviewError, match="two methods"):
        register("proto")(Bavardage)
    assert get_entry("proto").factory is Proto


def test_instances_do_not_share_nested_estimators() -> None:
    one, two = create("concat-logistic"), create("concat-logistic")
    one.set_params(estimator__C=7.0)
    assert two.get_params()["estimator__C"] == 1.0


@pytest.mark.parametrize("name", [n for n in names() if "ugda" not in n])
def test_declared_settings_exist(name: str) -> None:
    method = create(name)
    # Our own method is not in the paper and keeps its own scaling; COMPLETER wants 0 to 1.
    others = {"marginal": "natural", "completer": "minmax"}
    assert method.paper_settings["scaling"] == others.get(name, "scale")
    for grid in (method.tune_grid, {k: (v,) for k, v in method.paper_settings.items()}):
        for parameter, values in grid.items():
            for value in values:
                clone(method).set_params(**{parameter: value}).validate()
