"""Every registered method passes the common checks, and the checks can fail."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

from fewview import FewviewError, MultiViewData, TaskSpec, create, register
from fewview.engine._checks import CHECKS, REPAIRS, check_method
from fewview.engine._method import Method
from fewview.engine._registry import get_entry, names
from fewview.engine._state import State, Tags
from fewview.methods import CATALOGUE
from fewview.methods.proto import Proto
from fewview.numerics._batch import EpisodeBatch

PLAIN = [n for n in names() if not get_entry(n).create().tags.trained]
# Cheaper settings of the same method, where the number of steps, trees or anchors is all that
# changes; `test_ugda.py` checks UGDA's other solvers.
CHEAPER = {
    "tim": {"steps": 200},
    "alpha-tim": {"steps": 200},
    "concat-hgb": {"estimator__max_iter": 3},
    "ugda": {"n_anchors": 10},
    "ptmap+ugda": {"source__n_anchors": 10},
    "rfs+ugda": {"source__n_anchors": 10},
    "unem": {"n_steps": 10},
}
FEWER_TASKS = {"concat-hgb": 24, "concat-logistic": 24, "concat-nn": 24}


@pytest.mark.parametrize("name", PLAIN)
def test_common_checks(name: str) -> None:
    method = create(name).set_params(**CHEAPER.get(name, {}))
    n_tasks = 6 if name in FEWER_TASKS else None  # scikit-learn fits task after task
    check_method(method, n_tasks=n_tasks, n_random_tasks=FEWER_TASKS.get(name))


class Broken(Proto):
    """Proto with one fault at a time."""

    fault: str = ""
    name: ClassVar[str] = "broken"
    tags: ClassVar[Tags] = Tags()

    def scores(self, batch: EpisodeBatch, state: State) -> Tensor:
        if self.fault == "changes input":
            batch.query[0].mul_(2)
        out = super().scores(batch, state)
        if self.fault == "prefers first class":
            out[..., 0] += 1.0
        if self.fault == "position of supports":
            out = out + torch.nn.functional.one_hot(batch.support_labels[:, :1], batch.way)
        if self.fault == "position of queries":
            out = out + torch.arange(batch.n_query, device=out.device)[:, None] * out[:, :1]
        if self.fault == "uses labels" and batch.query_labels is not None:
            out = out + torch.nn.functional.one_hot(batch.query_labels, batch.way)
        if self.fault == "mixes tasks":
            out = out + out.mean(0)
        if self.fault == "not a number":
            out = torch.where(out == out.amin(), torch.nan, out)
        if self.fault == "global random":
            out = out + torch.rand(1)
        if self.fault == "first view only":
            out = -batch.query[0].square().sum(-1, keepdim=True) * torch.arange(batch.way)
        return out


@pytest.mark.parametrize(
    ("fault", "check"),
    [
        ("changes input", "side effects"),
        ("prefers first class", "relabelling"),
        ("position of supports", "sample order"),
        ("position of queries", "query order"),
        ("uses labels", "query labels"),
        ("mixes tasks", "batch size"),
        ("not a number", "finite"),
        ("global random", "side effects"),
        ("first view only", "view order"),
    ],
)
def test_checks_find_faults(fault: str, check: str) -> None:
    check_method(Broken(), only=[check])
    with pytest.raises(AssertionError, match=f"Broken fails the check '{check}'.*Likely repair: "):
        check_method(Broken(fault=fault), only=[check])


def test_clone_that_loses_parameters_is_found() -> None:
    class Forgetful(Proto):
        size: int = 1

        def get_params(self, deep: bool = True) -> dict[str, Any]:
            return super().get_params(deep) | {"size": 1}

    with pytest.raises(AssertionError, match="parameters"):
        check_method(Forgetful(size=2), only=["parameters"])


class Careless(Proto):
    sharpness = 3.0


def test_a_parameter_without_annotation_is_found() -> None:
    with pytest.raises(AssertionError, match=r"write 'sharpness: float = 3\.0', or annotate it"):
        check_method(Careless(), only=["parameters"])


class Own(Proto):
    """A method of somebody's own, without any decorator."""

    name = "own"
    size: int = 3
    scaling = "unit"


def test_a_class_is_a_dataclass_by_itself_and_a_plain_value_is_a_new_default() -> None:
    assert Own().get_params()["size"] == 3
    assert Own(size=4).key() == Own().key().replace("size=3", "size=4")
    assert (Own().scaling, Own(scaling="none").scaling) == ("unit", "none")
    assert "scaling=unit" in Own().key()
    check_method(Own(), only=["parameters"])


def test_unknown_check() -> None:
    with pytest.raises(FewviewError, match="no check 'colour'"):
        check_method(Proto(), only=["colour"])


def test_all_checks_are_described() -> None:
    assert all(check.__doc__ for check in CHECKS.values())
    assert set(REPAIRS) == set(CHECKS)
    assert issubclass(Proto, Method)


# ---------------------------------------------------------------------- what authors forget


class Mixed:
    temperature: float = 2.0


class WithMixin(Mixed, Proto):
    name = "with-mixin"


class Centred(Proto):
    """Looks at all queries and does not say so."""

    name = "centred"

    def scores(self, batch: EpisodeBatch, state: State) -> Tensor:
        out = super().scores(batch, state)
        return out - out.mean(dim=1, keepdim=True)


class SaysAlone(Proto):
    """Fills gaps from the queries and does not say so."""

    name = "says-alone"
    queries_together = "-"


class ByPosition(Proto):
    """Draws by the position of a query, whatever `predict_proba` does about that."""

    name = "by-position"

    def predict_proba(self, X: Any) -> Any:
        out = super().predict_proba(X)
        return out + 0.01 * np.arange(len(out))[:, None]


class ByNumber(Proto):
    """Prefers the first class by name."""

    name = "by-number"

    def predict_proba(self, X: Any) -> Any:
        return super().predict_proba(X) + np.array([0.1, 0.0, 0.0])


@dataclass(frozen=True)
class Shots(State):
    shot: Tensor


class ByShot(Proto):
    """Looks at the task and does not say so."""

    name = "by-shot"

    def prepare(self, base: MultiViewData, task: TaskSpec, seed: int) -> State:
        return Shots(torch.tensor(float(task.shots[0])))


class Turned(Proto):
    name = "turned"

    def scores(self, batch: EpisodeBatch, state: State) -> Tensor:
        return super().scores(batch, state).transpose(1, 2)


class Dictionary(Proto):
    name = "dictionary"

    def prepare(self, base: MultiViewData, task: TaskSpec, seed: int) -> State:
        return {"mean": 0.0}  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("method", "check", "said"),
    [
        (WithMixin(), "parameters", "temperature = 2.0 is not declared in a method's class"),
        (Centred(), "one by one", "needs the tag transductive"),
        (SaysAlone(padding="episode"), "one by one", "with 30 % of the views missing"),
        (ByPosition(), "order of samples", "rows in another order"),
        (ByNumber(), "order of samples", "classes renamed"),
        (ByShot(), "prepare depends on", "looks at the task's shot; name it in the tag"),
        (Turned(), "estimator", r"\[tasks, queries, classes\] = \(1, 18, 3\)"),
        (Dictionary(), "finite", "prepare gave a dict; it must give a State"),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_what_authors_forget_is_said(method: Method, check: str, said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        check_method(method, only=[check])


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"__init__": lambda self: None}, "has a __init__: the constructor is made from"),
        ({"__post_init__": lambda self: None}, "old after set_params"),
        ({"__annotations__": {"tags": "Tags"}}, "tags is no parameter; annotate it with ClassVar"),
    ],
)
def test_a_class_that_cannot_be_a_method_is_refused(body: dict[str, Any], said: str) -> None:
    with pytest.raises(TypeError, match=said):
        type("Wrong", (Proto,), body)


def test_a_name_belongs_to_one_class() -> None:
    known = {"__module__": "one", "__qualname__": "Same"}
    register("one-name")(type("Same", (Proto,), known))
    register("one-name")(type("Same", (Proto,), known))  # a cell of a notebook, run again
    with pytest.raises(FewviewError, match=r"'one-name': one.Same, and Same in two; give this"):
        register("one-name")(type("Same", (Proto,), known | {"__module__": "two"}))
    with pytest.raises(FewviewError, match=r"'match': fewview\.methods\.match.*, and Mine in"):
        register("match")(type("Mine", (Proto,), {"__module__": "mine"}))


def test_a_file_that_registers_nothing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CATALOGUE, "forgotten", "proto")
    with pytest.raises(FewviewError, match=r'proto, which .* write @register\("forgotten"\)'):
        create("forgotten")
