"""Hyper-parameters: what their rules refuse, how classes inherit them, how they are described."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from sklearn.base import BaseEstimator, clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.svm import SVC

from fewview import Combined, Concat, FewviewError, Proto, create, param
from fewview.methods.params import check_params, describe_params, rules_of


@dataclass(kw_only=True, eq=False, repr=False)
class Settings(BaseEstimator):  # type: ignore[misc]
    """One parameter of every kind; checking needs no method."""

    rate: float = param(0.1, above=0)
    share: float | None = param(None, least=0, most=1)
    sizes: tuple[int, ...] = param((1, 2), least=1)
    pair: tuple[float, float] = param((0.5, 2.0), least=0)
    n_iter: int = param(3, least=1)
    rule: str = param("mean", among=("mean", "sum"), tune=("mean", "sum"))
    exact: bool = True
    other: Any = None


@dataclass(kw_only=True, eq=False, repr=False)
class Narrower(Settings):
    """Another default keeps its rules; rules that are given here replace those above."""

    rule: str = param("sum")
    rate: float = param(0.2, most=0.5)
    n_iter: int = 5
    extra: int = param(0, least=0)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("rate", 0, "rate is 0; it must be above 0"),
        ("rate", "fast", "rate is 'fast'; it must be a finite number"),
        ("rate", float("nan"), "rate is nan; it must be a finite number"),
        ("rate", None, "rate is None; it must be a finite number"),
        ("rate", (0.1,), "it must be a single value"),
        ("share", 1.5, "share is 1.5; it must be at most 1"),
        ("share", -1e-9, "share is -1e-09; it must be at least 0"),
        ("share", True, "share is True; it must be a finite number"),
        ("sizes", (3, 0), r"sizes is \(3, 0\); it must be at least 1"),
        ("sizes", (3, 2.0), "it must be a whole number"),
        ("sizes", 3, "sizes is 3; it must be a tuple"),
        ("pair", (1.0,), r"pair is \(1.0,\); it must have 2 entries"),
        ("n_iter", 0, "n_iter is 0; it must be at least 1"),
        ("n_iter", 2.0, "n_iter is 2.0; it must be a whole number"),
        ("rule", "product", "rule is 'product'; it must be one of mean, sum"),
        ("exact", 1, "exact is 1; it must be true or false"),
    ],
)
def test_what_is_outside_its_rules_is_named(name: str, value: Any, message: str) -> None:
    for kind in (Settings, Narrower):
        with pytest.raises(FewviewError, match=message):
            check_params(kind(**{name: value}))


@pytest.mark.parametrize(
    "changes",
    [
        {}, {"share": 0}, {"share": 1.0}, {"sizes": ()}, {"sizes": (np.int64(7),)}, {"other": "?"},
        {"rate": np.float32(0.25), "n_iter": np.int64(1), "exact": np.bool_(0)}, {"pair": (1, 0)},
    ],
)  # fmt: skip
def test_what_is_inside_passes(changes: dict[str, Any]) -> None:
    check_params(Settings(**changes))


def test_a_class_inherits_the_rules_of_those_above() -> None:
    rules = rules_of(Narrower)
    assert rules["rule"] == {"among": ("mean", "sum"), "tune": ("mean", "sum")}
    assert rules["rate"] == {"above": 0, "most": 0.5}
    assert rules["n_iter"] == {"least": 1}
    assert rules["extra"] == {"least": 0}
    assert clone(Narrower(rate=0.4)).get_params() == {**Settings().get_params(), **{
        "rule": "sum", "rate": 0.4, "n_iter": 5, "extra": 0}}  # fmt: skip
    with pytest.raises(FewviewError, match=r"rate is 0\.6; it must be at most 0.5"):
        check_params(Narrower(rate=0.6))


def test_a_class_without_its_decorator_is_named() -> None:
    class Undecorated(Settings):
        strength: float = param(1.0, above=0)

    class Mixed:
        strength: float = 2.0

    @dataclass(kw_only=True, eq=False, repr=False)
    class WithMixin(Mixed, Settings):
        pass

    for kind, name in ((Undecorated, "Undecorated"), (WithMixin, "Mixed")):
        with pytest.raises(TypeError, match=f"{name} declares parameters and is no dataclass"):
            check_params(kind())


@pytest.mark.parametrize(
    "text",
    [
        "proto:padding=foam", "tim:temperature=0", "tim:solver=newton", "tim:weights=1+2",
        "ptmap:power=cube", "match:temperature=-1", "rfs:C=-1", "bd-cspn:n_pseudo=-1",
        "paddle:rescale=big", "bavardage:n_iter=0", "partial-nn:weighting=sum", "ugda:rectify=more",
        "concat-logistic:impute=guess", "concat-logistic:n_neighbors=0", "unem:n_tasks=1",
        "alpha-tim:solver=adm", "class-impute:strength=none", "marginal:shrinkage=2",
        "proto:dtype=float16", "proto:max_memory=0",
    ],
)  # fmt: skip
def test_methods_refuse_values_by_the_name_of_the_parameter(text: str) -> None:
    name = text.partition(":")[2].partition("=")[0]
    with pytest.raises(FewviewError, match=f"^{name} is "):
        create(text)


@pytest.mark.parametrize("state", ["seven", True, 0.5])
def test_a_random_state_that_is_none_is_named(state: Any) -> None:
    with pytest.raises(FewviewError, match="it must be a whole number, None or a RandomState"):
        Proto(random_state=state).check()


# ---------------------------------------------------------------------------- as text


def test_where_and_from_what_are_no_part_of_a_description() -> None:
    found = describe_params(Proto(device="auto", max_memory=3.0, base="digits", dtype="float64"))
    assert found == {
        "dtype": "float64", "padding": "zero", "random_state": "0", "scaling": "by-width",
    }  # fmt: skip
    assert list(found) == sorted(found)


def test_nested_methods_and_tuples_are_described() -> None:
    found = describe_params(Combined(create("ugda:rectify=none"), head=create("tim:n_iter=7")))
    assert "UGDA(" in found["source"]
    assert "rectify=none" in found["source"]
    assert "n_iter=7" in found["head"]
    assert "weights=0.1+1.0+0.1" in found["head"]


def test_long_pipelines_are_described_whole() -> None:
    one, two = (
        Concat(make_pipeline(*(FunctionTransformer() for _ in range(60)), SVC(C=c)))
        for c in (1.5, 2.5)
    )
    assert describe_params(one) != describe_params(two)


def test_functions_are_described_by_what_they_do() -> None:
    def power(exponent: int) -> Any:
        return lambda x: x**exponent

    texts = [
        describe_params(Concat(make_pipeline(FunctionTransformer(power(k)), SVC())))["estimator"]
        for k in (2, 2, 3)
    ]
    assert texts[0] == texts[1] != texts[2]
    assert " at 0x" not in texts[0]


def test_default_objects_are_not_shared() -> None:
    @dataclass(kw_only=True, eq=False, repr=False)
    class Holder(Proto):
        inner: Any = field(default_factory=SVC)

    assert Holder().inner is not Holder().inner
    one, two = create("concat-logistic"), create("concat-logistic")
    one.set_params(estimator__C=7.0)
    assert two.get_params()["estimator__C"] == 1.0
