"""The estimator face, padding by hand, random numbers, and the language of `--methods`."""

import warnings
from dataclasses import replace

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
from fewview.engine._checks import synthetic_data
from fewview.engine._registry import expand, get_entry, names, register
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
    others = {"marginal": "auto", "completer": "minmax"}
    assert method.paper_settings["scaling"] == others.get(name, "scale")
    for grid in (method.tune_grid, {k: (v,) for k, v in method.paper_settings.items()}):
        for parameter, values in grid.items():
            for value in values:
                clone(method).set_params(**{parameter: value}).validate()
